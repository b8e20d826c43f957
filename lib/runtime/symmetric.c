//===- symmetric.c - symmetric memory and notes -----------------------------------------------------===//

#include "comm.h"
#include "lib/reference/workspace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

//===--- blocks -----------------------------------------------------------------------------------===//

static void free_notes(moert__note *notes) {
  while (notes) {
    moert__note *next = notes->next;
    free(notes);
    notes = next;
  }
}

// Among threads a peer's memory is the peer's; among processes it is mapped here, if this rank can address it.
static bool is_imported(const moert__group *group) { return group->processes && group->transport == MOERT_TRANSPORT_PEER; }

static void forget_peers(const moert__group *group, int32_t rank, moert__block *block) {
  for (int32_t r = 0; r < group->size && is_imported(group); ++r) {
    if (r == rank || !block->memory[r]) continue;
    group->backend->forget_shared(group->devices[rank], block->memory[r], block->bytes);
    block->memory[r] = NULL;
  }
}

void moert__free_blocks(const moert__group *group, int32_t rank, moert__block *blocks) {
  while (blocks) {
    moert__block *next = blocks->next;
    forget_peers(group, rank, blocks);
    if (blocks->outboxes) group->backend->release_outboxes(blocks->outboxes);
    group->backend->release_shared(group->devices[rank], blocks->memory[rank], blocks->bytes);
    free_notes(blocks->notes);
    free(blocks);
    blocks = next;
  }
}

// NULL if it fails.
static moert__block *create_block(const moert_comm *comm, size_t bytes, moert__memory_handle *handle, moert_status *status) {
  const moert__group *group = comm->group;
  moert__block *made = calloc(1, sizeof *made);
  void *memory;
  *status = made ? group->backend->allocate_shared(group->devices[comm->rank], bytes, &memory, is_imported(group) ? handle : NULL)
                 : MOERT_ERROR_OUT_OF_MEMORY;
  if (*status) {
    free(made);
    return NULL;
  }
  made->bytes = bytes;
  made->memory[comm->rank] = memory;
  return made;
}

static void free_block(const moert_comm *comm, moert__block *block) {
  if (block) moert__free_blocks(comm->group, comm->rank, block);
}

static void keep_block(moert_comm *comm, moert__block *made) {
  made->next = comm->blocks;
  comm->blocks = made;
}

//===--- votes ------------------------------------------------------------------------------------===//

static uint64_t value_of(const moert_comm *comm, int32_t rank) {
  return atomic_load_explicit(&moert__vote_of(comm, rank)->value, memory_order_relaxed);
}

static unsigned char *memory_of(const moert_comm *comm, int32_t rank) {
  return atomic_load_explicit(&moert__vote_of(comm, rank)->memory, memory_order_relaxed);
}

// After a meeting: whether all ranks voted alike. All ranks come to the same verdict.
static moert_status check_same(const moert_comm *comm, const char *subject, const char *verb_first, const char *verb_other) {
  int32_t first = __builtin_ctzll(comm->mask);
  moert__text text = {0};
  for (int32_t r = first + 1; r < comm->group->size; ++r)
    if (moert__lives(comm, r) && value_of(comm, r) != value_of(comm, first))
      moert__append(&text, "%s rank %" PRId32 " %s %" PRIu64, text.length ? "," : "", r, verb_other, value_of(comm, r));
  if (!text.length) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "%s: rank %" PRId32 " %s %" PRIu64 ", but%s", subject, first, verb_first, value_of(comm, first),
                     text.data);
}

// Whether all ranks voted for the same size and all have memory; `own`: how this rank fared.
static moert_status check_votes(const moert_comm *comm, size_t bytes, moert_status own) {
  moert_status status = check_same(comm, "symmetric memory must have one size", "asked for", "for");
  if (status) return status;
  if (own && own != MOERT_ERROR_OUT_OF_MEMORY) return own; // its text stands
  for (int32_t r = 0; r < comm->group->size; ++r)
    if (moert__lives(comm, r) && !memory_of(comm, r))
      return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "rank %" PRId32 " has no memory for %zu bytes of symmetric memory", r, bytes);
  return MOERT_OK;
}

//===--- peers' memory ----------------------------------------------------------------------------===//

static void take_addresses(const moert_comm *comm, moert__block *block) {
  for (int32_t r = 0; r < comm->group->size; ++r)
    if (moert__lives(comm, r)) block->memory[r] = memory_of(comm, r);
}

static moert_status import_memory(const moert_comm *comm, moert__block *block) {
  const moert__group *group = comm->group;
  for (int32_t r = 0; r < group->size; ++r) {
    if (r == comm->rank || !moert__lives(comm, r)) continue;
    void *memory;
    moert_status status = group->backend->import_shared(group->devices[comm->rank], &moert__vote_of(comm, r)->handle, block->bytes, &memory);
    if (status) return status;
    block->memory[r] = memory;
  }
  return MOERT_OK;
}

// The first rank that could not map the memory of its peers, with the status that it voted.
static moert_status check_imports(const moert_comm *comm, moert_status own) {
  if (own) return own; // its text stands
  for (int32_t r = 0; r < comm->group->size; ++r) {
    moert_status status = moert__lives(comm, r) ? (moert_status)value_of(comm, r) : MOERT_OK;
    if (status) return moert__fail(status, "rank %" PRId32 " could not map the symmetric memory of its peers: %s", r, moert_status_name(status));
  }
  return MOERT_OK;
}

// A second meeting, so that all ranks have the memory or none. The block is kept if a peer may have come to have it.
static moert_status exchange_memory(moert_comm *comm, moert__block *block) {
  moert_status own = import_memory(comm, block);
  atomic_store_explicit(&moert__next_vote(comm)->value, (uint64_t)own, memory_order_relaxed);
  moert_status status = moert__meet(comm, MOERT__MEETING_MAP, comm->timeout_ms);
  if (status) {
    keep_block(comm, block);
    return status;
  }
  if ((status = check_imports(comm, own))) free_block(comm, block);
  return status;
}

//===--- allocate and free ------------------------------------------------------------------------===//

static void vote_for_memory(const moert_comm *comm, const moert__block *block, size_t bytes, const moert__memory_handle *handle) {
  moert__vote *mine = moert__next_vote(comm);
  atomic_store_explicit(&mine->value, bytes, memory_order_relaxed);
  atomic_store_explicit(&mine->memory, block ? block->memory[comm->rank] : NULL, memory_order_relaxed);
  mine->handle = *handle;
}

moert_status moert_symmetric_alloc(moert_comm *comm, size_t bytes, void **memory) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!memory) return moert__fail(MOERT_ERROR_NULL_POINTER, "memory is NULL");
  moert_status status = moert__standing_error(comm);
  if (status) return status;
  moert__memory_handle handle = {0};
  moert_status own;
  moert__block *made = create_block(comm, bytes, &handle, &own);
  if (own == MOERT_ERROR_DEVICE) moert__comm_note(comm, own); // as everywhere: it may have stopped for good
  vote_for_memory(comm, made, bytes, &handle);
  if ((status = moert__meet(comm, MOERT__MEETING_ALLOC, comm->timeout_ms))) { // a peer may have met all, and use this block
    if (made) keep_block(comm, made);
    return status;
  }
  if ((status = check_votes(comm, bytes, own))) {
    free_block(comm, made);
    return status;
  }
  if (is_imported(comm->group) && (status = exchange_memory(comm, made))) return status;
  if (!comm->group->processes && comm->group->transport == MOERT_TRANSPORT_PEER) take_addresses(comm, made);
  made->number = ++comm->allocations;
  keep_block(comm, made);
  *memory = made->memory[comm->rank];
  return MOERT_OK;
}

// Devices need memory to be mapped nowhere else when it is given back. A peer that is lost on the way uses it no more, so it is given back all the
// same.
static moert_status forget_everywhere(moert_comm *comm, moert__block *block) {
  if (!is_imported(comm->group)) return MOERT_OK;
  forget_peers(comm->group, comm->rank, block);
  return moert__meet(comm, MOERT__MEETING_UNMAP, comm->timeout_ms);
}

moert_status moert_symmetric_free(moert_comm *comm, void *memory) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!memory) return MOERT_OK;
  moert__block **link = &comm->blocks;
  while (*link && (*link)->memory[comm->rank] != memory) link = &(*link)->next;
  moert__block *found = *link;
  if (!found) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "memory is not what moert_symmetric_alloc gave to rank %" PRId32, comm->rank);
  moert_status status = moert__standing_error(comm);
  if (status) return status;
  atomic_store_explicit(&moert__next_vote(comm)->value, found->number, memory_order_relaxed);
  if ((status = moert__meet(comm, MOERT__MEETING_FREE, comm->timeout_ms))) return status;
  if ((status = check_same(comm, "all ranks must free the same memory", "gave back allocation", "allocation"))) return status;
  *link = found->next;
  found->next = NULL;
  status = forget_everywhere(comm, found);
  free_block(comm, found);
  return status;
}

//===--- look-up ----------------------------------------------------------------------------------===//

// The block that the bytes lie in, or NULL.
static moert__block *find_block(const moert_comm *comm, const void *memory, size_t bytes) {
  uintptr_t address = (uintptr_t)memory;
  for (moert__block *at = comm->blocks; at; at = at->next) {
    uintptr_t begin = (uintptr_t)at->memory[comm->rank];
    if (address >= begin && address - begin <= at->bytes && bytes <= at->bytes - (address - begin)) return at;
  }
  return NULL;
}

static size_t offset_in(const moert_comm *comm, const moert__block *block, const void *address) {
  return (size_t)((uintptr_t)address - (uintptr_t)block->memory[comm->rank]);
}

static moert_status fail_outside(const moert_comm *comm, const void *memory, size_t bytes) {
  return moert__fail(MOERT_ERROR_INVALID_MEMORY, "%zu bytes at %p do not lie in one block of symmetric memory of rank %" PRId32, bytes, memory,
                     comm->rank);
}

moert_status moert__symmetric_peers(moert_comm *comm, const void *memory, size_t bytes, void *peers[MOERT_MAX_RANKS]) {
  const moert__block *found = find_block(comm, memory, bytes);
  if (!found) return fail_outside(comm, memory, bytes);
  size_t offset = offset_in(comm, found, memory);
  for (int32_t r = 0; r < comm->group->size; ++r) peers[r] = found->memory[r] ? found->memory[r] + offset : NULL;
  return MOERT_OK;
}

void **moert__symmetric_outboxes(moert_comm *comm, const void *address, void **begin, size_t *bytes) {
  moert__block *found = find_block(comm, address, 1);
  if (!found) return NULL;
  *begin = found->memory[comm->rank];
  *bytes = found->bytes;
  return &found->outboxes;
}

moert_status moert__symmetric_agree(moert_comm *comm, const void *address, uint32_t number, int64_t timeout_ms, int32_t *other) {
  const moert__block *found = find_block(comm, address, 1);
  if (!found) return fail_outside(comm, address, 1);
  uint32_t place = moert__hash(moert__hash(MOERT__HASH_INIT, (int64_t)found->number), (int64_t)offset_in(comm, found, address));
  return moert__agree(comm, (uint64_t)number << 32 | place, timeout_ms, other);
}

//===--- notes ------------------------------------------------------------------------------------===//

static moert__note *find_note(const moert__block *block, size_t offset) {
  moert__note *at = block->notes;
  while (at && at->offset != offset) at = at->next;
  return at;
}

void *moert__symmetric_note(moert_comm *comm, const void *address) {
  const moert__block *block = find_block(comm, address, 1);
  moert__note *found = block ? find_note(block, offset_in(comm, block, address)) : NULL;
  return found ? found->bytes : NULL;
}

moert_status moert__symmetric_make_note(moert_comm *comm, const void *address, void **note) {
  moert__block *block = find_block(comm, address, 1);
  if (!block) return fail_outside(comm, address, 1);
  size_t offset = offset_in(comm, block, address);
  moert__note *made = find_note(block, offset);
  if (!made) {
    made = calloc(1, sizeof *made);
    if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory to remember what lies at %p", address);
    made->offset = offset;
    made->next = block->notes;
    block->notes = made;
  }
  *note = made->bytes;
  return MOERT_OK;
}

moert_status moert__symmetric_recover(moert_comm *comm, uint64_t mask) {
  moert_status first = MOERT_OK;
  for (const moert__block *block = comm->blocks; block; block = block->next)
    for (moert__note *note = block->notes; note; note = note->next) {
      moert_status status = moert__workspace_recover(comm, block->memory[comm->rank] + note->offset, note->bytes, mask);
      if (!first) first = status;
    }
  return first;
}

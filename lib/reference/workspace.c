//===- workspace.c - layout and protocol words of workspaces --------------------------------------===//

#include "lib/reference/workspace.h"
#include "lib/reference/checks.h"
#include "lib/reference/slab.h"
#include "lib/runtime/backend.h"
#include <string.h>

_Static_assert(sizeof(moert__workspace_note) <= MOERT__NOTE_BYTES, "a note has outgrown its place");
_Static_assert(sizeof(moert__slab_state) <= MOERT_WORKSPACE_STATE_BYTES, "the state has outgrown its region");

void *moert__workspace_region(const moert__workspace *workspace, int32_t rank, int field) {
  return workspace->peers[rank] + workspace->layout.offsets[field];
}

//===--- opening ----------------------------------------------------------------------------------===//

moert_status moert__workspace_ranks(moert_context *context, const char *name, int64_t value, int64_t *ranks) {
  *ranks = moert_comm_size(moert_context_comm(context));
  if (value && value != *ranks)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter '%s' is %" PRId64 ", must be 0 or %" PRId64 ", the ranks of the communicator", name,
                       value, *ranks);
  return MOERT_OK;
}

moert_status moert__workspace_check(const moert_tensor *workspace, const moert_tensor *metainfo, int64_t bytes) {
  moert_status status = moert__check_dimension(metainfo, "metainfo", 0, MOERT_METAINFO_FIELDS, "MOERT_METAINFO_FIELDS");
  if (status) return status;
  if ((uintptr_t)moert__data(workspace) % MOERT_WORKSPACE_ALIGNMENT)
    return moert__fail(MOERT_ERROR_MISALIGNED, "operand 'workspace' does not begin at a multiple of %d bytes", MOERT_WORKSPACE_ALIGNMENT);
  if (workspace->shape[0] < bytes)
    return moert__fail(MOERT_ERROR_WORKSPACE_SIZE, "operand 'workspace' has %" PRId64 " bytes, must have at least %" PRId64 " (moe.workspace_size)",
                       workspace->shape[0], bytes);
  return MOERT_OK;
}

// The note of a workspace, or NULL if metainfo is not what its initialisation wrote.
static moert__workspace_note *find_note(moert_comm *comm, const moert_tensor *workspace, const moert_tensor *metainfo) {
  moert__workspace_note *note = moert__symmetric_note(comm, moert__data(workspace));
  if (!note || !note->info.ep_size) return NULL;
  moert_workspace_layout layout = moert_workspace_lay_out(&note->info);
  return memcmp(moert__data(metainfo), layout.offsets, MOERT_METAINFO_FIELDS * sizeof *layout.offsets) ? NULL : note;
}

moert_status moert__workspace_open(moert_context *context, const char *name, int64_t value, const moert_tensor *workspace,
                                   const moert_tensor *metainfo, moert__workspace *opened) {
  moert_comm *comm = moert_context_comm(context);
  int64_t ranks;
  moert_status status = moert__workspace_ranks(context, name, value, &ranks);
  if (status) return status;
  status = moert__workspace_check(workspace, metainfo, 0);
  if (status) return status;
  moert__workspace_note *note = find_note(comm, workspace, metainfo);
  if (!note)
    return moert__fail(
        MOERT_ERROR_INVALID_STATE,
        "operand 'metainfo' does not describe operand 'workspace': pass the two that one moe.initialize on this communicator was given");
  opened->note = note;
  opened->layout = moert_workspace_lay_out(&note->info);
  opened->rank = moert_comm_rank(comm);
  opened->ranks = (int32_t)ranks;
  opened->mask = moert_comm_mask(comm);
  status = moert__workspace_check(workspace, metainfo, opened->layout.bytes);
  if (status) return status;
  void *peers[MOERT_MAX_RANKS];
  status = moert__symmetric_peers(comm, moert__data(workspace), (size_t)opened->layout.bytes, peers);
  if (status) return status;
  for (int32_t rank = 0; rank < opened->ranks; ++rank) opened->peers[rank] = peers[rank];
  return MOERT_OK;
}

moert_status moert__workspace_select(moert__workspace *workspace, int64_t active_rank_mask) {
  uint64_t mask = (uint64_t)active_rank_mask, others = mask & ~workspace->mask;
  if (!mask) return MOERT_OK;
  if (workspace->ranks < MOERT_MAX_RANKS && mask >> workspace->ranks)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "operand 'active_rank_mask' is 0x%" PRIx64 ", must be less than 0x%" PRIx64 ": the communicator has %" PRId32 " ranks", mask,
                       UINT64_C(1) << workspace->ranks, workspace->ranks);
  if (!(mask >> workspace->rank & 1))
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "operand 'active_rank_mask' is 0x%" PRIx64 ", must have bit %" PRId32 ": that of the calling rank", mask, workspace->rank);
  if (others)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "operand 'active_rank_mask' is 0x%" PRIx64 ", must have no ranks but those that live, 0x%" PRIx64 ": leave out rank %d", mask,
                       workspace->mask, __builtin_ctzll(others));
  workspace->mask = mask;
  return MOERT_OK;
}

moert_status moert__workspace_check_returns(const moert__workspace *workspace) {
  uint64_t before = workspace->note->round.mask, back = before ? workspace->mask & ~before : 0;
  if (!back) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_STATE,
                     "rank %d was left out of the dispatch before by its 'active_rank_mask' 0x%" PRIx64
                     ": call moe.initialize on all ranks before it takes part again",
                     __builtin_ctzll(back), before);
}

//===--- recovery ---------------------------------------------------------------------------------===//

// The words of the protocol lie in these regions: epoch and counters together at the start, which the first of the flags follows.
static const int protocol_fields[] = {MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS,
                                      MOERT_METAINFO_COMBINE_COMPLETION_FLAGS,
                                      MOERT_METAINFO_ANNOUNCEMENTS,
                                      MOERT_METAINFO_COUNT_FLAGS,
                                      MOERT_METAINFO_STATE,
                                      MOERT_WORKSPACE_DISPATCH_ROW_FLAGS,
                                      MOERT_WORKSPACE_COMBINE_ROW_FLAGS,
                                      MOERT_WORKSPACE_GROUP_COUNTS,
                                      MOERT_WORKSPACE_TURNS,
                                      MOERT_WORKSPACE_REDUCTION_PACKETS,
                                      MOERT_WORKSPACE_REDUCTION_FLAGS,
                                      MOERT_WORKSPACE_FEW_ROWS};

static size_t protocol_bytes(int field, const moert_workspace_info *info) {
  size_t ranks = (size_t)info->ep_size;
  switch (field) {
  case MOERT_METAINFO_STATE: return MOERT_WORKSPACE_STATE_BYTES;
  case MOERT_METAINFO_ANNOUNCEMENTS: return 2 * ranks * sizeof(uint64_t);
  case MOERT_WORKSPACE_DISPATCH_ROW_FLAGS:
  case MOERT_WORKSPACE_COMBINE_ROW_FLAGS: return ranks * (size_t)info->max_num_tokens * sizeof(uint32_t);
  case MOERT_WORKSPACE_GROUP_COUNTS: return (MOERT_WORKSPACE_MAX_GROUPED_EXPERTS + 2 * ranks) * sizeof(uint64_t);
  case MOERT_WORKSPACE_TURNS: return MOERT_WORKSPACE_TURNS_BYTES;
  case MOERT_WORKSPACE_REDUCTION_PACKETS: return 2 * ranks * (size_t)(moert_workspace_packet_tokens(info) * moert_workspace_packet_row(info));
  case MOERT_WORKSPACE_REDUCTION_FLAGS: return 2 * MOERT_WORKSPACE_QUARTERS * (size_t)moert_workspace_rows(info) * sizeof(uint32_t);
  case MOERT_WORKSPACE_FEW_ROWS: return 2 * ranks * (size_t)moert_workspace_few_area(info);
  default: return ranks * sizeof(uint32_t);
  }
}

// Clears the words of a slab, and begins its state anew.
static moert_status clear_protocol(const moert__backend *backend, int32_t device, char *slab, const moert_workspace_info *info, uint64_t mask) {
  moert_workspace_layout layout = moert_workspace_lay_out(info);
  moert__slab_state state = {.mask = mask, .self = (uintptr_t)slab};
  moert_status status = backend->fill(device, NULL, slab, 0, (size_t)layout.offsets[protocol_fields[0]]);
  for (size_t i = 0; i < sizeof protocol_fields / sizeof *protocol_fields && !status; ++i) {
    size_t bytes = protocol_bytes(protocol_fields[i], info);
    status = backend->fill(device, NULL, slab + layout.offsets[protocol_fields[i]], 0, bytes);
  }
  if (!status) status = backend->copy(device, NULL, slab + layout.offsets[MOERT_METAINFO_STATE], &state, sizeof state);
  return status ? status : backend->synchronize(device, NULL);
}

moert_status moert__workspace_recover(moert_comm *comm, void *address, void *note, uint64_t mask) {
  moert__workspace_note *known = note;
  if (!known->info.ep_size) return MOERT_OK;
  const moert__backend *backend = moert__comm_backend(comm);
  int32_t device = moert_comm_device(comm).id;
  moert_workspace_layout layout = moert_workspace_lay_out(&known->info);
  moert__slab_state state;
  moert_status status = backend->copy(device, NULL, &state, (char *)address + layout.offsets[MOERT_METAINFO_STATE], sizeof state);
  if (status) return status;
  known->dispatched = 0;
  known->round.mask = 0;
  if (state.self == (uintptr_t)address) return clear_protocol(backend, device, address, &known->info, mask);
  known->info.ep_size = 0; // the program has made another workspace over this one
  return MOERT_OK;
}

//===--- protocol ---------------------------------------------------------------------------------===//

uint32_t moert__hash(uint32_t hash, int64_t value) {
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (uint32_t)((uint64_t)value >> 8 * byte & 0xff)) * UINT32_C(16777619);
  return hash;
}

uint32_t moert__hash_dtype(uint32_t hash, moert_dtype dtype) { return moert__hash(hash, dtype.code | dtype.bits << 8 | (int64_t)dtype.lanes << 16); }

static uint32_t epoch_of(const moert__workspace *workspace) { return (uint32_t)workspace->announcement; }

// The announcement of rank `from` in the slab of rank `at`. Two per rank: a peer may be an epoch ahead, but not two.
static _Atomic uint64_t *announcement_at(const moert__workspace *workspace, int32_t at, int32_t from) {
  _Atomic uint64_t *words = moert__workspace_region(workspace, at, MOERT_METAINFO_ANNOUNCEMENTS);
  return words + (epoch_of(workspace) & 1) * (uint32_t)workspace->ranks + from;
}

static void announce(moert__workspace *workspace, uint32_t hash) {
  uint32_t *epoch = moert__workspace_region(workspace, workspace->rank, MOERT_METAINFO_FLAG_VAL);
  ++*epoch;
  workspace->announcement = (uint64_t)hash << 32 | *epoch;
  for (int32_t peer = 0; peer < workspace->ranks; ++peer)
    if (moert__workspace_has(workspace, peer))
      atomic_store_explicit(announcement_at(workspace, peer, workspace->rank), workspace->announcement, memory_order_release);
}

static void raise_flags(const moert__workspace *workspace, int field) {
  for (int32_t peer = 0; peer < workspace->ranks; ++peer) {
    if (!moert__workspace_has(workspace, peer)) continue;
    _Atomic uint32_t *flags = moert__workspace_region(workspace, peer, field);
    atomic_store_explicit(flags + workspace->rank, epoch_of(workspace), memory_order_release);
  }
}

// A flag is the epoch, not beyond it: before a peer raises it again, it waits for one that this rank raises after this wait. And so one that no op
// has raised for half of all epochs, which wrap, is not taken for raised.
static moert_status await_flags(const moert__workspace *workspace, moert_context *context, int field, const char *what) {
  const _Atomic uint32_t *flags = moert__workspace_region(workspace, workspace->rank, field);
  int64_t deadline = moert__deadline_ns(context);
  for (int32_t peer = 0; peer < workspace->ranks; ++peer) {
    if (!moert__workspace_has(workspace, peer)) continue;
    moert__wait wait = {.word = flags + peer,
                        .epoch = epoch_of(workspace),
                        .peer = peer,
                        .what = what,
                        .announced = announcement_at(workspace, workspace->rank, peer),
                        .expected = workspace->announcement,
                        .exact = true};
    moert_status status = moert__wait_for(context, &wait, deadline);
    if (status) return status;
  }
  return MOERT_OK;
}

moert_status moert__workspace_enter(moert__workspace *workspace, moert_context *context, uint32_t hash) {
  moert_status status = moert__stop_point(context, "entry");
  if (!status) announce(workspace, hash);
  return status;
}

moert_status moert__workspace_meet(const moert__workspace *workspace, moert_context *context, int field, const char *what) {
  raise_flags(workspace, field);
  moert_status status = moert__stop_point(context, "counts");
  return status ? status : await_flags(workspace, context, field, what);
}

moert_status moert__workspace_complete(const moert__workspace *workspace, moert_context *context, int field) {
  moert_status status = moert__stop_point(context, "data");
  if (!status) status = moert__stop_point(context, "flag");
  if (status) return status;
  raise_flags(workspace, field);
  return await_flags(workspace, context, field, "its data");
}

int64_t moert__workspace_received(const moert__workspace *workspace, int32_t source) {
  const int32_t *counts = moert__workspace_region(workspace, workspace->rank, MOERT_METAINFO_RECV_COUNTERS);
  return moert__workspace_has(workspace, source) ? counts[source] : 0;
}

bool moert__is_peer_error(moert_status status) {
  return status == MOERT_ERROR_PEER_TIMEOUT || status == MOERT_ERROR_PEER_MISMATCH || status == MOERT_ERROR_PEER_FAILED;
}

moert_status moert__workspace_check_idle(const moert__workspace *workspace) {
  if (!workspace->note->dispatched) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_STATE, "the dispatch before on this workspace waits for its combine: call moe.combine first");
}

//===--- operands ---------------------------------------------------------------------------------===//

int64_t moert__row_size(const moert_tensor *tensor, int32_t leading) {
  int64_t bytes = moert__row_bytes(tensor, leading);
  return bytes < 0 ? INT64_MAX : bytes;
}

static uintptr_t tensor_bytes(const moert_tensor *tensor) { return (uintptr_t)(moert__elements(tensor) * moert__dtype_bytes(tensor->dtype)); }

bool moert__same_row(const moert_tensor *a, int32_t a_leading, const moert_tensor *b, int32_t b_leading) {
  if (a->ndim - a_leading != b->ndim - b_leading || a->ndim < a_leading) return false;
  for (int32_t i = 0; i < a->ndim - a_leading; ++i)
    if (a->shape[a_leading + i] != b->shape[b_leading + i]) return false;
  return true;
}

bool moert__workspace_overlaps(const moert__workspace *workspace, const moert_tensor *tensor, int64_t begin, int64_t end) {
  uintptr_t slab = (uintptr_t)workspace->peers[workspace->rank], data = (uintptr_t)moert__data(tensor);
  uintptr_t bytes = tensor_bytes(tensor);
  return bytes && data < slab + (uintptr_t)end && slab + (uintptr_t)begin < data + bytes;
}

moert_status moert__workspace_check_apart(const moert__workspace *workspace, const moert_tensor *tensor, const char *name) {
  if (!tensor || !moert__workspace_overlaps(workspace, tensor, 0, workspace->layout.offsets[MOERT_METAINFO_COMBINE_DATA])) return MOERT_OK;
  return moert__fail(MOERT_ERROR_OVERLAP, "operand '%s' lies in the workspace, where this call receives", name);
}

void moert__workspace_poison(const moert__workspace *workspace, const moert_tensor *output) {
  if (moert__workspace_overlaps(workspace, output, 0, workspace->layout.bytes)) return;
  size_t bytes = tensor_bytes(output);
  if (bytes) memset(moert__data(output), 0xff, bytes);
}

int64_t moert__first_expert(int64_t experts, int64_t ranks, int64_t rank) {
  int64_t extra = experts % ranks;
  return rank * (experts / ranks) + (rank < extra ? rank : extra);
}

int32_t moert__expert_rank(int64_t experts, int64_t ranks, int64_t expert) {
  if (expert < 0 || expert >= experts) return -1;
  int64_t base = experts / ranks, extra = experts % ranks, larger = extra * (base + 1);
  return (int32_t)(expert < larger ? expert / (base + 1) : extra + (expert - larger) / base);
}

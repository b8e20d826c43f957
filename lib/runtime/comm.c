//===- comm.c - communicators whose ranks are threads of one process --------------------------------===//
//
// The ranks of a group meet in memory that all of them address: a control block per rank, and the blocks of symmetric memory. A rank writes
// only its own control block and reads those of its peers, by C11 atomics; nothing is locked.
//
// Every collective of the communicator itself is one meeting: a rank announces what it calls and the number of the meeting, arrives, and
// waits until all peers have arrived. What it tells the peers for that meeting (a vote) is written before it arrives. Votes lie in two places that
// take turns: a rank writes one again only after the meeting in between, which its peers enter after having read it.
//
//===----------------------------------------------------------------------------------------------===//

#include "runtime.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIGNMENT = 256, LINE = 128 };

typedef struct vote {
  _Atomic uint64_t value; // of moert_symmetric_alloc the bytes, of moert_symmetric_free the number of the block
  _Atomic(void *) memory; // of moert_symmetric_alloc this rank's block, NULL if it has no memory
} vote;

// What a rank waits for, for moert_comm_dump. `version` is odd while the others change.
typedef struct waiting {
  _Atomic uint32_t version;
  _Atomic int32_t peer; // -1: it has not waited yet, or what it waited for has come
  _Atomic uint32_t epoch;
  _Atomic(const char *) what;
  _Atomic(const char *) op;
  _Atomic int64_t since_ns;
} waiting;

typedef struct control {
  _Alignas(LINE) _Atomic uint32_t arrived; // at this meeting
  _Atomic uint64_t announced;              // kind of meeting << 32 | its number
  _Atomic int32_t status;                  // first error
  vote votes[2];
  _Alignas(LINE) waiting waiting;
} control;

// One allocation of symmetric memory as a rank knows it.
typedef struct block {
  struct block *next;
  uint64_t number; // the same on all ranks
  size_t bytes;
  void *allocation; // what to free: this rank's share
  unsigned char *memory[MOERT_MAX_RANKS];
} block;

typedef struct group {
  int32_t size;
  _Atomic int32_t references;
  block *left[MOERT_MAX_RANKS]; // blocks of ranks whose handle is gone; peers may still write there
  control controls[];
} group;

struct moert_comm {
  group *group;
  int32_t rank;
  int64_t timeout_ms;
  uint32_t meetings; // so far
  uint64_t allocations;
  block *blocks;
};

typedef enum meeting { MEETING_BARRIER = 1, MEETING_ALLOC, MEETING_FREE } meeting;

static const char *const meeting_names[] = {NULL, "at a barrier", "in moert_symmetric_alloc", "in moert_symmetric_free"};

//===--- time -------------------------------------------------------------------------------------===//

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

moert_status moert__default_timeout_ms(int64_t *timeout_ms) {
  *timeout_ms = 30000;
  const char *text = getenv("MOERT_TIMEOUT_MS");
  if (!text || !*text) return MOERT_OK;
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*end || errno || value < 1 || value > MOERT__MAX_TIMEOUT_MS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "environment variable MOERT_TIMEOUT_MS is '%s', must be in [1, %" PRId64 "]", text,
                       MOERT__MAX_TIMEOUT_MS);
  *timeout_ms = value;
  return MOERT_OK;
}

int64_t moert__deadline_ns(const moert_context *context) { return now_ns() + moert__context_timeout_ms(context) * 1000000; }

//===--- create and destroy -----------------------------------------------------------------------===//

static group *create_group(int32_t size) {
  size_t bytes = sizeof(group) + (size_t)size * sizeof(control);
  group *made = aligned_alloc(_Alignof(group), (bytes + _Alignof(group) - 1) / _Alignof(group) * _Alignof(group));
  if (!made) return NULL;
  memset(made, 0, bytes);
  made->size = size;
  atomic_init(&made->references, size);
  for (int32_t r = 0; r < size; ++r) atomic_init(&made->controls[r].waiting.peer, -1);
  return made;
}

static void free_blocks(block *blocks) {
  while (blocks) {
    block *next = blocks->next;
    free(blocks->allocation);
    free(blocks);
    blocks = next;
  }
}

static void release_group(group *shared) {
  if (atomic_fetch_sub_explicit(&shared->references, 1, memory_order_acq_rel) != 1) return;
  for (int32_t r = 0; r < shared->size; ++r) free_blocks(shared->left[r]);
  free(shared);
}

static moert_comm *create_rank(group *shared, int32_t rank, int64_t timeout_ms) {
  moert_comm *comm = calloc(1, sizeof *comm);
  if (!comm) return NULL;
  comm->group = shared;
  comm->rank = rank;
  comm->timeout_ms = timeout_ms;
  return comm;
}

moert_status moert_comm_create_threads(int32_t size, moert_comm **comms) {
  if (size < 1 || size > MOERT_MAX_RANKS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "size is %" PRId32 ", must be in [1, %d]", size, MOERT_MAX_RANKS);
  if (!comms) return moert__fail(MOERT_ERROR_NULL_POINTER, "comms is NULL, must have room for %" PRId32 " handles", size);
  int64_t timeout_ms;
  moert_status status = moert__default_timeout_ms(&timeout_ms);
  if (status) return status;
  moert_comm *made[MOERT_MAX_RANKS] = {0};
  group *shared = create_group(size);
  int32_t count = 0;
  while (shared && count < size && (made[count] = create_rank(shared, count, timeout_ms))) ++count;
  if (count < size) {
    for (int32_t r = 0; r < count; ++r) free(made[r]);
    free(shared);
    return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %" PRId32 " ranks", size);
  }
  memcpy(comms, made, (size_t)size * sizeof *comms);
  return MOERT_OK;
}

void moert_comm_destroy(moert_comm *comm) {
  if (!comm) return;
  comm->group->left[comm->rank] = comm->blocks;
  release_group(comm->group);
  free(comm);
}

int32_t moert_comm_rank(const moert_comm *comm) { return comm ? comm->rank : -1; }

int32_t moert_comm_size(const moert_comm *comm) { return comm ? comm->group->size : 0; }

//===--- errors -----------------------------------------------------------------------------------===//

static control *own_control(const moert_comm *comm) { return &comm->group->controls[comm->rank]; }

moert_status moert_comm_status(const moert_comm *comm) {
  if (!comm) return MOERT_ERROR_NULL_POINTER;
  return (moert_status)atomic_load_explicit(&own_control(comm)->status, memory_order_acquire);
}

void moert_comm_report(moert_comm *comm, moert_status status) {
  int32_t none = MOERT_OK;
  if (comm && status) atomic_compare_exchange_strong(&own_control(comm)->status, &none, (int32_t)status);
}

void moert__comm_note(moert_comm *comm, moert_status status) {
  int class = (int)status / 1000;
  if (class > 2 && status != MOERT_ERROR_STOPPED) moert_comm_report(comm, status);
}

// A communicator that stands in error returns it without waiting for anybody.
static moert_status standing_error(const moert_comm *comm) {
  moert_status status = moert_comm_status(comm);
  if (!status) return MOERT_OK;
  return moert__fail(status, "rank %" PRId32 " stands in error since an earlier call: %s (%s)", comm->rank, moert_status_name(status),
                     moert_status_text(status));
}

//===--- waiting ----------------------------------------------------------------------------------===//

// Each field's release keeps the odd version before it, so that a reader that sees the field sees that version or a later one.
static void publish_waiting(waiting *mine, int32_t peer, const moert__wait *wait) {
  uint32_t version = atomic_load_explicit(&mine->version, memory_order_relaxed);
  atomic_store_explicit(&mine->version, version + 1, memory_order_relaxed);
  atomic_store_explicit(&mine->peer, peer, memory_order_release);
  if (wait) {
    atomic_store_explicit(&mine->epoch, wait->epoch, memory_order_release);
    atomic_store_explicit(&mine->what, wait->what, memory_order_release);
    atomic_store_explicit(&mine->op, moert__current_op(), memory_order_release);
    atomic_store_explicit(&mine->since_ns, now_ns(), memory_order_release);
  }
  atomic_store_explicit(&mine->version, version + 2, memory_order_release);
}

static moert_status fail_timeout(const moert_comm *comm, const moert__wait *wait, int64_t timeout_ms) {
  return moert__fail(MOERT_ERROR_PEER_TIMEOUT, "rank %" PRId32 " waited %" PRId64 " ms for rank %" PRId32 " (%s, epoch %" PRIu32 ")", comm->rank,
                     timeout_ms, wait->peer, wait->what, wait->epoch);
}

static moert_status fail_peer(const moert_comm *comm, const moert__wait *wait, moert_status reported) {
  return moert__fail(MOERT_ERROR_PEER_FAILED, "rank %" PRId32 " reported %s while rank %" PRId32 " waited for it (%s, epoch %" PRIu32 ")", wait->peer,
                     moert_status_name(reported), comm->rank, wait->what, wait->epoch);
}

static moert_status fail_mismatch(const moert_comm *comm, const moert__wait *wait, uint64_t announced) {
  return moert__fail(MOERT_ERROR_PEER_MISMATCH,
                     "rank %" PRId32 " called another op or used other parameters than rank %" PRId32 " (%s, epoch %" PRIu32 "): hash %08" PRIx64
                     ", must be %08" PRIx64,
                     wait->peer, comm->rank, wait->what, wait->epoch, announced >> 32, wait->expected >> 32);
}

static bool has_arrived(const moert__wait *wait) {
  uint32_t ahead = atomic_load_explicit(wait->word, memory_order_acquire) - wait->epoch;
  return ahead <= INT32_MAX;
}

static bool is_mismatch(const moert__wait *wait, uint64_t announced) {
  return (uint32_t)announced == (uint32_t)wait->expected && announced != wait->expected;
}

// One look at the peer: true when there is nothing to wait for, with the verdict in *status.
// The word is read before what could be wrong: a peer that had done its part and failed after that is no failure here, and a mismatch is found
// however far the peer has come, for it announces before it writes words.
static bool look(const moert_comm *comm, const moert__wait *wait, moert_status *status) {
  bool arrived = has_arrived(wait);
  uint64_t announced = wait->announced ? atomic_load_explicit(wait->announced, memory_order_acquire) : 0;
  *status = MOERT_OK;
  if (wait->announced && is_mismatch(wait, announced)) return *status = fail_mismatch(comm, wait, announced), true;
  if (arrived) return true;
  int32_t reported = atomic_load_explicit(&comm->group->controls[wait->peer].status, memory_order_acquire);
  if (!reported || has_arrived(wait)) return false;
  return *status = fail_peer(comm, wait, (moert_status)reported), true;
}

// Ranks are often more than cores: after a short spin a waiting rank gives its core away, and sleeps when that does not help.
static void pause_before_look(uint64_t looks) {
  enum { SPINS = 128, YIELDS = 1024 };
  if (looks < SPINS) return;
  if (looks < SPINS + YIELDS) {
    sched_yield();
    return;
  }
  struct timespec time = {0, 100000};
  nanosleep(&time, NULL);
}

static moert_status wait_slowly(moert_comm *comm, const moert__wait *wait, int64_t deadline_ns, int64_t timeout_ms) {
  waiting *mine = &own_control(comm)->waiting;
  publish_waiting(mine, wait->peer, wait);
  moert_status status;
  for (uint64_t looks = 0; !look(comm, wait, &status); ++looks) {
    if (now_ns() >= deadline_ns) {
      status = fail_timeout(comm, wait, timeout_ms);
      break;
    }
    pause_before_look(looks);
  }
  if (!status) publish_waiting(mine, -1, NULL); // after an error the record stays, for post-mortems
  return status;
}

static moert_status wait_for(moert_comm *comm, const moert__wait *wait, int64_t deadline_ns, int64_t timeout_ms) {
  moert_status status;
  if (!look(comm, wait, &status)) status = wait_slowly(comm, wait, deadline_ns, timeout_ms);
  moert__comm_note(comm, status);
  return status;
}

moert_status moert__wait_for(moert_context *context, const moert__wait *wait, int64_t deadline_ns) {
  return wait_for(moert_context_comm(context), wait, deadline_ns, moert__context_timeout_ms(context));
}

//===--- meetings ---------------------------------------------------------------------------------===//

static vote *vote_of(const moert_comm *comm, int32_t rank, uint32_t number) { return &comm->group->controls[rank].votes[number % 2]; }

static moert_status meet(moert_comm *comm, meeting kind, int64_t timeout_ms) {
  control *mine = own_control(comm);
  uint32_t number = ++comm->meetings;
  uint64_t announced = (uint64_t)kind << 32 | number;
  atomic_store_explicit(&mine->announced, announced, memory_order_release);
  atomic_store_explicit(&mine->arrived, number, memory_order_release);
  int64_t deadline_ns = now_ns() + timeout_ms * 1000000;
  for (int32_t r = 0; r < comm->group->size; ++r) {
    control *peer = &comm->group->controls[r];
    moert__wait wait = {&peer->arrived, number, r, meeting_names[kind], &peer->announced, announced};
    moert_status status = r == comm->rank ? MOERT_OK : wait_for(comm, &wait, deadline_ns, timeout_ms);
    if (status) return status;
  }
  return MOERT_OK;
}

moert_status moert_comm_barrier(moert_comm *comm, int64_t timeout_ms) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (timeout_ms < 0 || timeout_ms > MOERT__MAX_TIMEOUT_MS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "timeout_ms is %" PRId64 ", must be in [0, %" PRId64 "]", timeout_ms, MOERT__MAX_TIMEOUT_MS);
  moert_status status = standing_error(comm);
  return status ? status : meet(comm, MEETING_BARRIER, timeout_ms ? timeout_ms : comm->timeout_ms);
}

//===--- symmetric memory -------------------------------------------------------------------------===//

// NULL if there is no memory. calloc gives large blocks page by page on first touch, so the alignment is made here.
static block *create_block(moert_comm *comm, size_t bytes) {
  size_t padded;
  if (__builtin_add_overflow(bytes, (size_t)ALIGNMENT, &padded)) return NULL;
  block *made = calloc(1, sizeof *made);
  unsigned char *allocation = made ? calloc(1, padded) : NULL;
  if (!allocation) {
    free(made);
    return NULL;
  }
  made->bytes = bytes;
  made->allocation = allocation;
  made->memory[comm->rank] = allocation + (ALIGNMENT - (uintptr_t)allocation % ALIGNMENT);
  return made;
}

static moert_status check_same(const moert_comm *comm, const char *format_first, const char *format_other) {
  uint64_t first = atomic_load_explicit(&vote_of(comm, 0, comm->meetings)->value, memory_order_relaxed);
  moert__text text = {0};
  for (int32_t r = 1; r < comm->group->size; ++r) {
    uint64_t value = atomic_load_explicit(&vote_of(comm, r, comm->meetings)->value, memory_order_relaxed);
    if (value != first) moert__append(&text, "%s rank %" PRId32 " %s %" PRIu64, text.length ? "," : "", r, format_other, value);
  }
  if (!text.length) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "%s %" PRIu64 ", but%s", format_first, first, text.data);
}

static unsigned char *memory_of(const moert_comm *comm, int32_t rank) {
  return atomic_load_explicit(&vote_of(comm, rank, comm->meetings)->memory, memory_order_relaxed);
}

// After the meeting: whether all ranks voted for the same size and all have memory. All ranks come to the same verdict.
static moert_status check_votes(const moert_comm *comm, size_t bytes) {
  moert_status status = check_same(comm, "symmetric memory must have one size: rank 0 asked for", "for");
  if (status) return status;
  for (int32_t r = 0; r < comm->group->size; ++r)
    if (!memory_of(comm, r))
      return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "rank %" PRId32 " has no memory for %zu bytes of symmetric memory", r, bytes);
  return MOERT_OK;
}

static void keep_block(moert_comm *comm, block *made) {
  made->next = comm->blocks;
  comm->blocks = made;
}

moert_status moert_symmetric_alloc(moert_comm *comm, size_t bytes, void **memory) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!memory) return moert__fail(MOERT_ERROR_NULL_POINTER, "memory is NULL");
  moert_status status = standing_error(comm);
  if (status) return status;
  block *made = create_block(comm, bytes);
  vote *mine = vote_of(comm, comm->rank, comm->meetings + 1);
  atomic_store_explicit(&mine->value, bytes, memory_order_relaxed);
  atomic_store_explicit(&mine->memory, made ? made->memory[comm->rank] : NULL, memory_order_relaxed);
  if ((status = meet(comm, MEETING_ALLOC, comm->timeout_ms))) { // a peer may have met all, and use this block
    if (made) keep_block(comm, made);
    return status;
  }
  if ((status = check_votes(comm, bytes))) {
    free_blocks(made);
    return status;
  }
  for (int32_t r = 0; r < comm->group->size; ++r) made->memory[r] = memory_of(comm, r);
  made->number = ++comm->allocations;
  keep_block(comm, made);
  *memory = made->memory[comm->rank];
  return MOERT_OK;
}

moert_status moert_symmetric_free(moert_comm *comm, void *memory) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!memory) return MOERT_OK;
  block **link = &comm->blocks;
  while (*link && (*link)->memory[comm->rank] != memory) link = &(*link)->next;
  block *found = *link;
  if (!found) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "memory is not what moert_symmetric_alloc gave to rank %" PRId32, comm->rank);
  moert_status status = standing_error(comm);
  if (status) return status;
  atomic_store_explicit(&vote_of(comm, comm->rank, comm->meetings + 1)->value, found->number, memory_order_relaxed);
  if ((status = meet(comm, MEETING_FREE, comm->timeout_ms))) return status;
  if ((status = check_same(comm, "all ranks must free the same memory: rank 0 gave back allocation", "allocation"))) return status;
  *link = found->next;
  found->next = NULL;
  free_blocks(found);
  return MOERT_OK;
}

moert_status moert__symmetric_peers(moert_comm *comm, const void *memory, size_t bytes, void *peers[MOERT_MAX_RANKS]) {
  uintptr_t address = (uintptr_t)memory;
  for (const block *at = comm->blocks; at; at = at->next) {
    uintptr_t begin = (uintptr_t)at->memory[comm->rank];
    if (address < begin || address - begin > at->bytes || bytes > at->bytes - (address - begin)) continue;
    for (int32_t r = 0; r < comm->group->size; ++r) peers[r] = at->memory[r] + (address - begin);
    return MOERT_OK;
  }
  return moert__fail(MOERT_ERROR_INVALID_MEMORY, "%zu bytes at %p do not lie in one block of symmetric memory of rank %" PRId32, bytes, memory,
                     comm->rank);
}

//===--- dump -------------------------------------------------------------------------------------===//

typedef struct waiting_copy {
  int32_t peer;
  uint32_t epoch;
  const char *what, *op;
  int64_t since_ns;
} waiting_copy;

// A rank that starts and ends waits so fast that no copy holds together does not hang.
static waiting_copy copy_waiting(waiting *theirs) {
  waiting_copy copy;
  for (int attempt = 0; attempt < 64; ++attempt) {
    uint32_t version = atomic_load_explicit(&theirs->version, memory_order_acquire);
    copy.peer = atomic_load_explicit(&theirs->peer, memory_order_acquire);
    copy.epoch = atomic_load_explicit(&theirs->epoch, memory_order_acquire);
    copy.what = atomic_load_explicit(&theirs->what, memory_order_acquire);
    copy.op = atomic_load_explicit(&theirs->op, memory_order_acquire);
    copy.since_ns = atomic_load_explicit(&theirs->since_ns, memory_order_acquire);
    if (version % 2 == 0 && version == atomic_load_explicit(&theirs->version, memory_order_relaxed)) return copy;
  }
  copy.peer = -1;
  return copy;
}

static void describe_rank(const moert_comm *comm, int32_t rank, moert__text *text) {
  control *theirs = &comm->group->controls[rank];
  moert_status status = (moert_status)atomic_load_explicit(&theirs->status, memory_order_acquire);
  waiting_copy copy = copy_waiting(&theirs->waiting);
  moert__append(text, "rank %" PRId32 " of %" PRId32 ": %s, ", rank, comm->group->size, status ? moert_status_name(status) : "no error");
  if (copy.peer < 0) {
    moert__append(text, "not waiting");
  } else {
    moert__append(text, "%s for rank %" PRId32 " (%s, epoch %" PRIu32 ")", status ? "last waited" : "waits", copy.peer, copy.what, copy.epoch);
    if (copy.op) moert__append(text, " in %s", copy.op);
    if (!status) moert__append(text, " since %" PRId64 " ms", (now_ns() - copy.since_ns) / 1000000);
  }
  moert__append(text, ", %" PRIu32 " meetings", atomic_load_explicit(&theirs->arrived, memory_order_acquire));
}

void moert_comm_dump(const moert_comm *comm, void (*write)(void *user, const char *line), void *user) {
  if (!comm || !write) return;
  for (int32_t r = 0; r < comm->group->size; ++r) {
    moert__text text = {0};
    describe_rank(comm, r, &text);
    write(user, text.data);
  }
}

//===- wait.c - waiting for peers, meetings ---------------------------------------------------------===//
//
// Every collective of the communicator itself is one meeting, or a few: a rank announces what it calls and the number of the meeting, arrives, and
// waits until all peers have arrived. What it tells the peers for that meeting (a vote) is written before it arrives. Votes lie in two places that
// take turns: a rank writes one again only after the meeting in between, which its peers enter after having read it.
//
//===----------------------------------------------------------------------------------------------===//

#include "comm.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <time.h>

// Ranks are often more than cores: after a short spin a waiting rank gives its core away, and sleeps when that does not help.
enum { SPINS = 128, YIELDS = 1024, LOOKS_PER_CHECK = 32, SLEEP_NS = 100000 };

//===--- time -------------------------------------------------------------------------------------===//

int64_t moert__now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t moert__deadline_ns(const moert_context *context) { return moert__now_ns() + moert__context_timeout_ms(context) * 1000000; }

void moert__pause_before_look(uint64_t looks) {
  if (looks < SPINS) return;
  if (looks < SPINS + YIELDS) {
    sched_yield();
    return;
  }
  struct timespec time = {0, SLEEP_NS};
  nanosleep(&time, NULL);
}

//===--- errors -----------------------------------------------------------------------------------===//

moert_status moert__fail_timeout(const moert_comm *comm, const moert__wait *wait, int64_t timeout_ms) {
  return moert__fail(MOERT_ERROR_PEER_TIMEOUT, "rank %" PRId32 " waited %" PRId64 " ms for rank %" PRId32 " (%s, epoch %" PRIu32 ")", comm->rank,
                     timeout_ms, wait->peer, wait->what, wait->epoch);
}

moert_status moert__fail_ended(const moert_comm *comm, int32_t peer, const char *what, uint32_t epoch) {
  return moert__fail(MOERT_ERROR_PEER_FAILED,
                     "the process of rank %" PRId32 " has ended while rank %" PRId32 " waited for it (%s, epoch %" PRIu32 ")", peer, comm->rank, what,
                     epoch);
}

moert_status moert__fail_left_out(const moert_comm *comm) {
  int32_t by = atomic_load_explicit(&moert__control_of(comm, comm->rank)->left_out_by, memory_order_acquire) - 1;
  return moert__fail(MOERT_ERROR_PEER_FAILED, "rank %" PRId32 " was left out by rank %" PRId32 ", which went on without it (moert_comm_recover)",
                     comm->rank, by);
}

static moert_status fail_peer(const moert_comm *comm, const moert__wait *wait, moert_status reported) {
  return moert__fail(MOERT_ERROR_PEER_FAILED, "rank %" PRId32 " reported %s while rank %" PRId32 " waited for it (%s, epoch %" PRIu32 ")", wait->peer,
                     reported ? moert_status_name(reported) : "an error", comm->rank, wait->what, wait->epoch);
}

static moert_status fail_mismatch(const moert_comm *comm, const moert__wait *wait, uint64_t announced) {
  return moert__fail(MOERT_ERROR_PEER_MISMATCH,
                     "rank %" PRId32 " called another op or used other parameters than rank %" PRId32 " (%s, epoch %" PRIu32 "): hash %08" PRIx64
                     ", must be %08" PRIx64,
                     wait->peer, comm->rank, wait->what, wait->epoch, announced >> 32, wait->expected >> 32);
}

//===--- what others see --------------------------------------------------------------------------===//

// Each field's release keeps the odd version before it, so that a reader that sees the field sees that version or a later one.
static void store_label(moert__label *label, const char *text) {
  char bytes[sizeof label->words] = {0};
  if (text) memcpy(bytes, text, strnlen(text, sizeof bytes - 1));
  for (size_t i = 0; i < sizeof bytes / sizeof(uint64_t); ++i) {
    uint64_t word;
    memcpy(&word, bytes + i * sizeof word, sizeof word);
    atomic_store_explicit(&label->words[i], word, memory_order_release);
  }
}

void moert__publish_waiting(moert_comm *comm, const moert__wait *wait) {
  moert__waiting *mine = &moert__control_of(comm, comm->rank)->waiting;
  uint32_t version = atomic_load_explicit(&mine->version, memory_order_relaxed);
  atomic_store_explicit(&mine->version, version + 1, memory_order_relaxed);
  atomic_store_explicit(&mine->peer, wait ? wait->peer : -1, memory_order_release);
  if (wait) {
    atomic_store_explicit(&mine->epoch, wait->epoch, memory_order_release);
    store_label(&mine->what, wait->what);
    store_label(&mine->op, moert__current_op());
    atomic_store_explicit(&mine->since_ns, moert__now_ns(), memory_order_release);
  }
  atomic_store_explicit(&mine->version, version + 2, memory_order_release);
}

//===--- waiting ----------------------------------------------------------------------------------===//

static bool has_arrived(const moert__wait *wait) {
  uint32_t ahead = atomic_load_explicit(wait->word, memory_order_acquire) - wait->epoch;
  return wait->exact ? ahead == 0 : ahead <= INT32_MAX;
}

static uint64_t announced_to(const moert__wait *wait) { return wait->announced ? atomic_load_explicit(wait->announced, memory_order_acquire) : 0; }

static bool is_mismatch(const moert__wait *wait, uint64_t announced) {
  return wait->announced && (uint32_t)announced == (uint32_t)wait->expected && announced != wait->expected;
}

// One look at the peer: true when there is nothing to wait for, with the verdict in *status.
// The word is read before what could be wrong: a peer that had done its part and failed after that is no failure here, and a mismatch is found
// however far the peer has come, for it announces before it writes words. A peer that went on without this rank says so before it does either. What a
// peer in error had announced and done counts: so that is read again behind its status.
static bool look(const moert_comm *comm, const moert__wait *wait, moert_status *status) {
  bool arrived = has_arrived(wait);
  uint64_t announced = announced_to(wait);
  *status = MOERT_OK;
  if (atomic_load_explicit(&moert__control_of(comm, comm->rank)->left_out_by, memory_order_acquire))
    return *status = moert__fail_left_out(comm), true;
  if (is_mismatch(wait, announced)) return *status = fail_mismatch(comm, wait, announced), true;
  if (arrived) return true;
  const moert__control *peer = moert__control_of(comm, wait->peer);
  int32_t reported = atomic_load_explicit(&peer->status, memory_order_acquire);
  int32_t failed = atomic_load_explicit(&peer->failed, memory_order_acquire);
  if ((!reported && !failed) || has_arrived(wait) || is_mismatch(wait, announced_to(wait))) return false; // the next look tells the last two
  return *status = fail_peer(comm, wait, (moert_status)reported), true;
}

bool moert__has_ended(const moert_comm *comm, int32_t peer, uint64_t looks) {
  if (looks < SPINS + YIELDS || looks % LOOKS_PER_CHECK) return false;
  int32_t process = atomic_load_explicit(&moert__control_of(comm, peer)->process, memory_order_relaxed);
  return process && moert__process_has_ended(process);
}

static moert_status wait_slowly(moert_comm *comm, const moert__wait *wait, int64_t deadline_ns, int64_t timeout_ms) {
  moert__publish_waiting(comm, wait);
  moert_status status;
  for (uint64_t looks = 0; !look(comm, wait, &status); ++looks) {
    if (moert__has_ended(comm, wait->peer, looks)) {
      if (!look(comm, wait, &status))
        status = moert__fail_ended(comm, wait->peer, wait->what, wait->epoch); // it may have done its part before it ended
      break;
    }
    if (moert__now_ns() >= deadline_ns) {
      status = moert__fail_timeout(comm, wait, timeout_ms);
      break;
    }
    moert__pause_before_look(looks);
  }
  if (!status) moert__publish_waiting(comm, NULL); // after an error the record stays, for post-mortems
  return status;
}

moert_status moert__wait_until(moert_comm *comm, const moert__wait *wait, int64_t deadline_ns, int64_t timeout_ms) {
  moert_status status;
  if (!look(comm, wait, &status)) status = wait_slowly(comm, wait, deadline_ns, timeout_ms);
  moert__comm_note(comm, status);
  return status;
}

moert_status moert__wait_for(moert_context *context, const moert__wait *wait, int64_t deadline_ns) {
  return moert__wait_until(moert_context_comm(context), wait, deadline_ns, moert__context_timeout_ms(context));
}

//===--- meetings ---------------------------------------------------------------------------------===//

static const char *const meeting_names[] = {[MOERT__MEETING_BARRIER] = "at a barrier",          [MOERT__MEETING_ALLOC] = "in moert_symmetric_alloc",
                                            [MOERT__MEETING_FREE] = "in moert_symmetric_free",  [MOERT__MEETING_MAP] = "in moert_symmetric_alloc",
                                            [MOERT__MEETING_UNMAP] = "in moert_symmetric_free", [MOERT__MEETING_AGREE] = "at a barrier"};

static moert__vote *vote_at(const moert_comm *comm, int32_t rank, uint32_t number) { return &moert__control_of(comm, rank)->votes[number % 2]; }

moert__vote *moert__next_vote(const moert_comm *comm) { return vote_at(comm, comm->rank, comm->meetings + 1); }

const moert__vote *moert__vote_of(const moert_comm *comm, int32_t rank) { return vote_at(comm, rank, comm->meetings); }

// What the ranks of several hosts bring to a meeting.
typedef struct parcel {
  uint64_t announced, value;
  void *memory; // only whether there is some
  uint32_t arrived;
  int32_t status, failed;
} parcel;

static parcel pack(const moert_comm *comm) {
  const moert__control *mine = moert__control_of(comm, comm->rank);
  const moert__vote *vote = moert__vote_of(comm, comm->rank);
  return (parcel){.announced = atomic_load_explicit(&mine->announced, memory_order_relaxed),
                  .value = atomic_load_explicit(&vote->value, memory_order_relaxed),
                  .memory = atomic_load_explicit(&vote->memory, memory_order_relaxed),
                  .arrived = atomic_load_explicit(&mine->arrived, memory_order_relaxed),
                  .status = atomic_load_explicit(&mine->status, memory_order_relaxed),
                  .failed = atomic_load_explicit(&mine->failed, memory_order_relaxed)};
}

static void unpack(const moert_comm *comm, int32_t rank, const parcel *theirs) {
  moert__control *copy = moert__control_of(comm, rank);
  moert__vote *vote = vote_at(comm, rank, comm->meetings);
  atomic_store_explicit(&vote->value, theirs->value, memory_order_relaxed);
  atomic_store_explicit(&vote->memory, theirs->memory, memory_order_relaxed);
  atomic_store_explicit(&copy->status, theirs->status, memory_order_release);
  atomic_store_explicit(&copy->failed, theirs->failed, memory_order_release);
  atomic_store_explicit(&copy->announced, theirs->announced, memory_order_release);
  atomic_store_explicit(&copy->arrived, theirs->arrived, memory_order_release);
}

// What ranks of one host see in their place, those of several send each other.
static moert_status bring_controls(const moert_comm *comm, int64_t timeout_ms) {
  parcel mine = pack(comm), all[MOERT_MAX_RANKS];
  memset(all, 0, sizeof all);
  moert_status status = comm->group->backend->gather_over_link(comm->link, &mine, sizeof mine, all, timeout_ms);
  for (int32_t r = 0; r < comm->group->size && !status; ++r)
    if (r != comm->rank && moert__lives(comm, r)) unpack(comm, r, &all[r]);
  return status;
}

moert_status moert__meet(moert_comm *comm, moert__meeting kind, int64_t timeout_ms) {
  moert__control *mine = moert__control_of(comm, comm->rank);
  uint32_t number = ++comm->meetings;
  uint64_t announced = (uint64_t)kind << 32 | number;
  atomic_store_explicit(&mine->announced, announced, memory_order_release);
  atomic_store_explicit(&mine->arrived, number, memory_order_release);
  int64_t deadline_ns = moert__now_ns() + timeout_ms * 1000000;
  moert_status brought = comm->group->apart ? bring_controls(comm, timeout_ms) : MOERT_OK;
  if (brought) {
    moert__comm_note(comm, brought);
    return brought;
  }
  for (int32_t r = 0; r < comm->group->size; ++r) {
    if (r == comm->rank || !moert__lives(comm, r)) continue;
    moert__control *peer = moert__control_of(comm, r);
    moert__wait wait = {
        .word = &peer->arrived, .epoch = number, .peer = r, .what = meeting_names[kind], .announced = &peer->announced, .expected = announced};
    moert_status status = moert__wait_until(comm, &wait, deadline_ns, timeout_ms);
    if (status) return status;
  }
  return MOERT_OK;
}

moert_status moert__agree(moert_comm *comm, uint64_t number, int64_t timeout_ms, int32_t *other) {
  *other = -1;
  atomic_store_explicit(&moert__next_vote(comm)->value, number, memory_order_relaxed);
  moert_status status = moert__meet(comm, MOERT__MEETING_AGREE, timeout_ms);
  for (int32_t r = comm->group->size - 1; r >= 0 && !status; --r)
    if (moert__lives(comm, r) && atomic_load_explicit(&moert__vote_of(comm, r)->value, memory_order_relaxed) != number) *other = r;
  return status;
}

moert_status moert_comm_barrier(moert_comm *comm, int64_t timeout_ms) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  moert_status status = moert__check_timeout(comm, &timeout_ms);
  if (!status) status = moert__standing_error(comm);
  return status ? status : moert__meet(comm, MOERT__MEETING_BARRIER, timeout_ms);
}

//===- recover.c - going on without ranks -----------------------------------------------------------===//
//
// After an error ranks do not agree on how many meetings they have had, so they come together by proposals, which need no number in common. A rank
// proposes a mask under a ticket of its own, and writes down which tickets of its peers it has seen. It is through when it has seen a proposal of
// every rank of the mask, and finds its own ticket among what each of them has seen: then all of them are here, in this very call.
//
// A ticket with which all came together does not count again, nor does one of a call that ended at its deadline: it is closed. A ticket for another
// mask is an error once, also when its own call has ended for that reason; the next call passes over those that were there then.
//
// A recovery has two such rounds. The first agrees on the mask; all calls of the survivors have returned. Then each clears its words. The second says
// that all have cleared them, or who could not. With the transport NCCL links are opened anew, by the key that the first of the survivors has made
// when it comes to the second round; a third one says how that went.
//
//===----------------------------------------------------------------------------------------------===//

#include "comm.h"

#include <inttypes.h>
#include <string.h>

enum { CLOSED, OPEN, MISMATCH, STATE_BITS = 2 }; // of a proposal

typedef struct proposal {
  uint64_t mask, allocations;
  uint32_t meetings;
  int32_t phase; // round
  moert_status result;
} proposal;

typedef struct round_call {
  moert_comm *comm;
  proposal mine;
  int64_t deadline_ns, timeout_ms;
  uint32_t found[MOERT_MAX_RANKS]; // their numbers in this round, 0: not yet
  proposal theirs[MOERT_MAX_RANKS];
} round_call;

//===--- proposals --------------------------------------------------------------------------------===//

static moert__proposal *proposal_at(const moert_comm *comm, int32_t rank) { return &moert__control_of(comm, rank)->proposal; }

static void set_state(moert_comm *comm, uint64_t state) {
  atomic_store_explicit(&proposal_at(comm, comm->rank)->ticket, (uint64_t)comm->ticket << STATE_BITS | state, memory_order_release);
}

// The ticket before is closed. Each field's release keeps that in front of it, so that who reads a field of this proposal does not take it for one of
// the ticket before.
static void publish(round_call *call) {
  moert__proposal *own = proposal_at(call->comm, call->comm->rank);
  atomic_store_explicit(&own->mask, call->mine.mask, memory_order_release);
  atomic_store_explicit(&own->allocations, call->mine.allocations, memory_order_release);
  atomic_store_explicit(&own->meetings, call->mine.meetings, memory_order_release);
  atomic_store_explicit(&own->phase, call->mine.phase, memory_order_release);
  atomic_store_explicit(&own->result, (int32_t)call->mine.result, memory_order_release);
  ++call->comm->ticket;
  set_state(call->comm, OPEN);
}

// The state of the rank's proposal, with its number; fields that were being changed meanwhile are no proposal.
static uint64_t read_proposal(const moert_comm *comm, int32_t rank, uint32_t *number, proposal *read) {
  const moert__proposal *at = proposal_at(comm, rank);
  uint64_t ticket = atomic_load_explicit(&at->ticket, memory_order_acquire);
  read->mask = atomic_load_explicit(&at->mask, memory_order_acquire);
  read->allocations = atomic_load_explicit(&at->allocations, memory_order_acquire);
  read->meetings = atomic_load_explicit(&at->meetings, memory_order_acquire);
  read->phase = atomic_load_explicit(&at->phase, memory_order_acquire);
  read->result = (moert_status)atomic_load_explicit(&at->result, memory_order_acquire);
  *number = (uint32_t)(ticket >> STATE_BITS);
  bool same = ticket == atomic_load_explicit(&at->ticket, memory_order_relaxed);
  return same ? ticket & ((1 << STATE_BITS) - 1) : CLOSED;
}

//===--- rounds -----------------------------------------------------------------------------------===//

static moert_status fail_masks(const round_call *call, int32_t rank, uint64_t mask) {
  return moert__fail(MOERT_ERROR_PEER_MISMATCH, "rank %" PRId32 " recovers with mask 0x%" PRIx64 ", rank %" PRId32 " with mask 0x%" PRIx64, rank,
                     mask, call->comm->rank, call->mine.mask);
}

// A rank that has met another mask than its own, which is this rank's, will come again; who has that mask is among those to look at.
static moert_status look_at_rank(round_call *call, int32_t rank) {
  uint32_t number;
  proposal theirs;
  uint64_t state = read_proposal(call->comm, rank, &number, &theirs);
  if (state == CLOSED || number == call->comm->met[rank]) return MOERT_OK;
  if (theirs.mask != call->mine.mask) {
    bool known = number == call->comm->refused[rank] || theirs.phase != call->mine.phase;
    return known ? MOERT_OK : fail_masks(call, rank, theirs.mask);
  }
  if (state == MISMATCH || theirs.phase != call->mine.phase) return MOERT_OK;
  call->found[rank] = number;
  call->theirs[rank] = theirs;
  atomic_store_explicit(&proposal_at(call->comm, call->comm->rank)->seen[rank], number, memory_order_release);
  return MOERT_OK;
}

static bool is_here(const round_call *call, int32_t rank) {
  const moert_comm *comm = call->comm;
  return call->found[rank] && atomic_load_explicit(&proposal_at(comm, rank)->seen[comm->rank], memory_order_acquire) == comm->ticket;
}

// Looks at all ranks of the mask. *missing: the first that is not here, -1 if all are.
static moert_status look_at_all(round_call *call, int32_t *missing) {
  *missing = -1;
  for (int32_t r = call->comm->group->size - 1; r >= 0; --r) {
    if (r == call->comm->rank || !(call->mine.mask >> r & 1)) continue;
    moert_status status = look_at_rank(call, r);
    if (status) return status;
    if (!is_here(call, r)) *missing = r;
  }
  return MOERT_OK;
}

// A rank of the mask that is not here and whose process has ended, -1 if there is none. The first that is missing may only have found that out
// before.
static int32_t find_ended(const round_call *call, uint64_t looks) {
  for (int32_t r = 0; r < call->comm->group->size; ++r)
    if (r != call->comm->rank && call->mine.mask >> r & 1 && !is_here(call, r) && moert__has_ended(call->comm, r, looks)) return r;
  return -1;
}

static bool is_left_out(const moert_comm *comm) {
  return atomic_load_explicit(&moert__control_of(comm, comm->rank)->left_out_by, memory_order_acquire);
}

static moert_status wait_for_all(round_call *call) {
  int32_t missing, waits_for = -1;
  for (uint64_t looks = 0;; ++looks) {
    moert_status status = look_at_all(call, &missing);
    if (status || missing < 0) return status;
    if (is_left_out(call->comm)) return moert__fail_left_out(call->comm);
    moert__wait wait = {.peer = missing, .what = "in moert_comm_recover", .epoch = call->comm->ticket};
    if (missing != waits_for) moert__publish_waiting(call->comm, &wait);
    waits_for = missing;
    int32_t ended = find_ended(call, looks);
    if (ended >= 0) return moert__fail_ended(call->comm, ended, wait.what, wait.epoch);
    if (moert__now_ns() >= call->deadline_ns) return moert__fail_timeout(call->comm, &wait, call->timeout_ms);
    moert__pause_before_look(looks);
  }
}

// Masks that differ concern whatever was proposed so far.
static void finish(round_call *call, moert_status status) {
  moert_comm *comm = call->comm;
  for (int32_t r = 0; r < comm->group->size; ++r) {
    proposal ignored;
    if (status == MOERT_OK && call->found[r]) comm->met[r] = call->found[r];
    if (status == MOERT_ERROR_PEER_MISMATCH) read_proposal(comm, r, &comm->refused[r], &ignored);
  }
  set_state(comm, status == MOERT_ERROR_PEER_MISMATCH ? MISMATCH : CLOSED);
}

static moert_status come_together(round_call *call, int32_t phase, moert_status result) {
  call->mine.phase = phase;
  call->mine.result = result;
  memset(call->found, 0, sizeof call->found);
  publish(call);
  moert_status status = wait_for_all(call);
  finish(call, status);
  if (!status) moert__publish_waiting(call->comm, NULL);
  return status;
}

//===--- recovery ---------------------------------------------------------------------------------===//

static moert_status check_mask(const moert_comm *comm, uint64_t mask) {
  if (is_left_out(comm)) return moert__fail_left_out(comm);
  if (mask & ~comm->mask)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "mask is 0x%" PRIx64 ", must have no ranks but those that live, 0x%" PRIx64, mask, comm->mask);
  if (!(mask >> comm->rank & 1))
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "mask is 0x%" PRIx64 ", must have this rank, %" PRId32, mask, comm->rank);
  return MOERT_OK;
}

// The newest numbers among the survivors, so that none that a rank has used comes again.
static void adopt_numbers(round_call *call) {
  moert_comm *comm = call->comm;
  for (int32_t r = 0; r < comm->group->size; ++r) {
    if (!call->found[r]) continue;
    if (call->theirs[r].meetings > comm->meetings) comm->meetings = call->theirs[r].meetings;
    if (call->theirs[r].allocations > comm->allocations) comm->allocations = call->theirs[r].allocations;
  }
}

static void leave_out_others(moert_comm *comm, uint64_t mask) {
  for (int32_t r = 0; r < comm->group->size; ++r)
    if (moert__lives(comm, r) && !(mask >> r & 1))
      atomic_store_explicit(&moert__control_of(comm, r)->left_out_by, comm->rank + 1, memory_order_release);
  comm->mask = mask;
}

static void clear_errors(moert_comm *comm) {
  moert__control *mine = moert__control_of(comm, comm->rank);
  moert__forget_faults(comm);
  atomic_store_explicit(&mine->failed, 0, memory_order_release);
  atomic_store_explicit(&mine->status, MOERT_OK, memory_order_release);
  ++comm->recoveries;
}

// A round that tells all how this rank fared with what is `done`.
static moert_status tell_result(round_call *call, int32_t phase, moert_status result, const char *done) {
  moert_status status = come_together(call, phase, result);
  if (status) return status;
  if (result) return result; // its text stands
  for (int32_t r = 0; r < call->comm->group->size; ++r)
    if (call->found[r] && call->theirs[r].result)
      return moert__fail(MOERT_ERROR_PEER_FAILED, "rank %" PRId32 " could not %s: %s", r, done, moert_status_name(call->theirs[r].result));
  return MOERT_OK;
}

// What was under way ends here, and the survivors' links can be found.
static moert_status leave_link(moert_comm *comm) {
  moert__close_link(comm);
  bool makes_key = comm->group->transport == MOERT_TRANSPORT_NCCL && comm->rank == __builtin_ctzll(comm->mask);
  return makes_key ? comm->group->backend->make_link_key(&moert__control_of(comm, comm->rank)->link_key) : MOERT_OK;
}

static moert_status open_link(round_call *call) {
  moert_comm *comm = call->comm;
  const moert__link_key *key = &moert__control_of(comm, __builtin_ctzll(comm->mask))->link_key;
  return moert__open_links(&comm, 1, key, call->timeout_ms);
}

static moert_status recover(moert_comm *comm, uint64_t mask, int64_t timeout_ms) {
  round_call call = {.comm = comm,
                     .mine = {.mask = mask, .allocations = comm->allocations, .meetings = comm->meetings},
                     .deadline_ns = moert__now_ns() + timeout_ms * 1000000,
                     .timeout_ms = timeout_ms};
  moert_status status = come_together(&call, 1, MOERT_OK);
  if (status) return status;
  adopt_numbers(&call);
  leave_out_others(comm, mask);
  moert_status own = leave_link(comm);
  clear_errors(comm);
  moert_status cleared = moert__symmetric_recover(comm, mask);
  status = tell_result(&call, 2, own ? own : cleared, "clear its workspaces");
  if (status || comm->group->transport != MOERT_TRANSPORT_NCCL) return status;
  return tell_result(&call, 3, open_link(&call), "open its link");
}

moert_status moert_comm_recover(moert_comm *comm, uint64_t mask, int64_t timeout_ms) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  moert_status status = moert__check_timeout(comm, &timeout_ms);
  if (!status) status = check_mask(comm, mask);
  if (!status && comm->group->apart)
    status =
        moert__fail(MOERT_ERROR_UNSUPPORTED, "the ranks are on several hosts, where those that live cannot go on without the others; destroy the "
                                             "communicator, and make one of them alone");
  if (status) return status;
  status = recover(comm, mask, timeout_ms);
  moert__comm_note(comm, status);
  return status;
}

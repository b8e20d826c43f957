//===- round.cuh - an all-reduce that is one kernel -----------------------------------------------------===//
//
// What each block of the kernel does besides the numbers:
//
//   begins   `readRound`: reads the epoch and the words of failure; block 0 announces to the peers what this rank does (`announce`)
//   waits    `await`: a warp, until all that it waits for is here, the deadline has passed, or a peer is in error
//   counts   `countBegun`: when all blocks have read the epoch, the last of them ends it
//   leaves   `leaveRound`: if a block has failed, one that has fills the outputs with ones when all others have left
//
// A block that has failed goes on without waiting: its numbers mean nothing, but blocks of a cluster wait for each other.
//
// Nobody waits for permission to push. Peers push into one of two areas, by the parity of the epoch. A peer pushes in the same area again two epochs
// later. By then it has ended the epoch between, for which this rank has sent it something by a kernel that began when the one that read the area had
// ended. What has been read cannot change any more, so no fence is needed for that. In a call without tokens announcements are what is sent.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_ALLREDUCE_FUSION_ROUND_CUH
#define MOE_KERNELS_MOE_ALLREDUCE_FUSION_ROUND_CUH

#include "kernels/common/turns.cuh"

namespace allreduce {

// The part of the kernel's parameter that this file needs.
struct Round {
  Turns *turns;
  moert__slab_state *state;
  uint32_t *last; // the epoch before
  uint32_t hash;
  bool stops; // for a test: the rank announces itself, and leaves without a word to its peers
  Exchange exchange;
};

// What a thread knows since it began.
struct Begun {
  unsigned long long mask; // of the ranks that take part
  uint32_t epoch, turn;
  bool fails; // the workspace stands in error
};

__device__ inline bool takesPart(const Begun &begun, int rank) { return (begun.mask >> rank & 1) != 0; }

// By every thread, with one latency.
__device__ inline Begun readRound(const Round &round) {
  const int failed = round.state->failed, full = round.state->full;
  return {round.state->mask & round.exchange.mask, epochAfter(*round.last), round.turns->number, (failed | full) != 0};
}

__device__ inline unsigned long long announcementOf(const Round &round, const Begun &begun) {
  return static_cast<unsigned long long>(round.hash) << 32 | begun.epoch;
}

__device__ inline void announce(const Round &round, const Begun &begun) {
  for (int peer = static_cast<int>(threadIdx.x); peer < round.exchange.watch.ranks; peer += static_cast<int>(blockDim.x))
    if (takesPart(begun, peer))
      asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(announcementAt(round.exchange, peer, round.exchange.watch.rank, begun.epoch)),
                   "l"(announcementOf(round, begun))
                   : "memory");
}

//===--- failure, which is rare and apart -----------------------------------------------------------===//

__device__ inline unsigned long long announcedBy(const Round &round, const Begun &begun, int peer) {
  return loadAcquire(announcementAt(round.exchange, round.exchange.watch.rank, peer, begun.epoch));
}

__device__ inline bool differs(const Round &round, const Begun &begun, unsigned long long announced) {
  return static_cast<uint32_t>(announced) == begun.epoch && announced != announcementOf(round, begun);
}

// The first thread that fails in a round says why, and lets all others know.
static __device__ __noinline__ void fail(const Round &round, Begun begun, int peer, int kind) {
  const moert__watch &watch = round.exchange.watch;
  const unsigned long long announced = announcedBy(round, begun, peer);
  const bool began = static_cast<uint32_t>(announced) == begun.epoch && kind != MOERT__FAULT_MISMATCH;
  const int what = began ? MOERT__AWAITED_DATA : MOERT__AWAITED_ARRIVAL;
  if (atomicExch(&round.state->failed, 1) != 0) return;
  if (kind == MOERT__FAULT_MISMATCH)
    report(watch.fault, watch.op, kind, peer, watch.rank, what, begun.epoch, announced >> 32, round.hash);
  else if (kind == MOERT__FAULT_PEER_FAILED)
    report(watch.fault, watch.op, kind, peer, watch.rank, what, begun.epoch);
  else
    report(watch.fault, watch.op, kind, watch.rank, watch.timeout_ns / 1000000, peer, what, begun.epoch);
  tellPeers(round.exchange);
}

// To hosts that ask what goes on (moert_comm_dump). Any of the blocks that wait may have the last word.
static __device__ __noinline__ void showWait(const Round &round, Begun begun, int peer) {
  const moert__watch &watch = round.exchange.watch;
  const bool began = static_cast<uint32_t>(announcedBy(round, begun, peer)) == begun.epoch;
  const unsigned long long op = static_cast<unsigned long long>(watch.op) << MOERT__WAITING_OP,
                           what = static_cast<unsigned long long>(began ? MOERT__AWAITED_DATA : MOERT__AWAITED_ARRIVAL) << MOERT__WAITING_WHAT;
  storeRelease(&watch.fault->waiting, begun.epoch | op | what | static_cast<unsigned long long>(peer + 1) << MOERT__WAITING_PEER);
}

// Why waiting for `peer` makes no sense any more, if what it waits for has not come by now; FAULT_NONE: it does; FAULT_STANDING: somebody has
// reported. `far`: looks at what the peer's host has reported, beyond the bus.
static __device__ __noinline__ int lookAround(const Round &round, Begun begun, int peer, bool far, unsigned long long deadline) {
  const moert__watch &watch = round.exchange.watch;
  const uint32_t *statuses = reinterpret_cast<const uint32_t *>(watch.statuses + peer * watch.stride);
  if (*const_cast<volatile int *>(&round.state->failed) != 0) return MOERT__FAULT_STANDING;
  if (differs(round, begun, announcedBy(round, begun, peer))) return MOERT__FAULT_MISMATCH;
  if (far && (loadAcquire(statuses) != 0 || loadAcquire(statuses + 1) != 0)) return MOERT__FAULT_PEER_FAILED;
  return now() >= deadline ? MOERT__FAULT_TIMEOUT : MOERT__FAULT_NONE;
}

//===--- waiting ------------------------------------------------------------------------------------===//

// By a whole warp: until `look`, which looks anew for what has not come, finds in every lane that all is here. `peer`: whom this lane waits for.
// False if the round has failed. The first look has been made: `isHere` is what it found.
template <typename Look> __device__ bool await(const Round &round, const Begun &begun, int peer, bool isHere, const Look &look) {
  const unsigned kLookAroundEvery = 64, kEager = 256, kLookFarEvery = 1024, kLong = 8192;
  unsigned long long deadline = 0;
  unsigned missing, turn = 0;
  for (; (missing = __ballot_sync(~0u, !isHere)) != 0; isHere = look()) {
    if (++turn > kEager) __nanosleep(1000);
    if (turn % kLookAroundEvery) continue;
    if (!deadline) deadline = now() + static_cast<unsigned long long>(round.exchange.watch.timeout_ns);
    // Many warps wait at once: of a block one looks far, after a millisecond or so, or the bus would be all that they wait for.
    const bool far = threadIdx.x < 32 && turn % kLookFarEvery == 0;
    const int first = __shfl_sync(~0u, peer, __ffs(missing) - 1);
    const int kind = __shfl_sync(~0u, lookAround(round, begun, first, far, deadline), 0);
    if (far && turn > kLong) showWait(round, begun, first);
    if (kind == MOERT__FAULT_NONE) continue;
    if (kind != MOERT__FAULT_STANDING && kind != MOERT__FAULT_MISMATCH && !__any_sync(~0u, !look())) break; // what a peer did before it failed counts
    if (threadIdx.x % 32 == 0 && kind != MOERT__FAULT_STANDING) fail(round, begun, first, kind);
    return false;
  }
  if (turn > kLong && threadIdx.x == 0) storeRelease(&round.exchange.watch.fault->waiting, 0ull);
  return true;
}

// By whole warps of block 0, whose threads look at a rank each: until all have announced what this rank does. False if the round has failed.
__device__ inline bool awaitAnnouncements(const Round &round, const Begun &begun) {
  bool goesOn = true;
  for (int first = static_cast<int>(threadIdx.x) / 32 * 32; goesOn && first < round.exchange.watch.ranks; first += static_cast<int>(blockDim.x)) {
    const int peer = first + static_cast<int>(threadIdx.x) % 32;
    const bool waits = peer < round.exchange.watch.ranks && takesPart(begun, peer);
    const auto look = [&] { return !waits || announcedBy(round, begun, peer) == announcementOf(round, begun); };
    goesOn = await(round, begun, peer, look(), look);
  }
  return goesOn;
}

//===--- the ends of an epoch -----------------------------------------------------------------------===//

// By the first thread of a block, behind a barrier of it: all its threads have read the epoch.
__device__ inline void countBegun(const Round &round, const Begun &begun) { beginTurn(round.turns, begun.turn, round.last, begun.epoch); }

// All threads of a block, of which this one `failed`. True in one block if any has, when all others have left: it fills the outputs.
__device__ inline bool leaveRound(const Round &round, const Begun &begun, bool failed) { return leaveTurn(round.turns, begun.turn, failed); }

} // namespace allreduce

#endif

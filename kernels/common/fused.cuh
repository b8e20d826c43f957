//===- fused.cuh - exchanges that are one kernel ----------------------------------------------------------===//
//
// All blocks of the kernel push rows to the slabs of the peers, and wait for what the peers push here. A block has workers, a thread that keeps the
// copy engine busy, the mover, and one that tells peers of what it has moved, the teller, or another mover. It
//
//   begins     `readRound`, `shareBegin`, `countBegun`: reads the epoch and the words of failure; block 0 announces to the peers what this rank
//              does, and the last block to begin ends the epoch
//   pushes     rows, and sets the flag of each, a word, to the epoch
//   receives   rows whose flags have come (`awaitWarp`)
//   completes  a dispatch: `addShare` adds a block's share to this rank's counters at all ranks; they have all rows when a counter is whole
//   leaves     `leaveTurn`: if a block has failed, one that has fills the outputs with ones when all others have left
//
// Pushing never waits for a peer. A rank that waits for another has therefore sent all that the others wait for, and blames the right one when time
// is up.
//
// Flags and counters say that what was pushed can be read, in the terms of the memory model of PTX as in exchange.cuh. What the copy engine has
// stored is visible to the mover when its group is complete, and that is before the word that the teller reads; what workers store is before their
// barrier, and that before the word by which one of them hands it on. Either is before the teller's release of a flag, which synchronizes with the
// acquire load that sees its value; by the barrier of the reader's block, or of its warp, other threads read what was stored. Counters likewise, by
// the fence of the thread that adds a share. What peers write may not be read through the read-only path, for it changes while the kernel runs.
//
// Nobody waits for permission to push. Rows of a dispatch go where the peer has read those of the dispatch before: the peer has begun the combine in
// between, for this rank has awaited that (`awaitBegun`), and a rank begins when its kernels before have ended. Rows of a combine go where the peer
// has read those of the combine before, for all its blocks have completed the dispatch since. A counter is set to zero by the rank that it is whole
// at, before anybody adds to it again, for the first reason.
//
// Blocks that wait must all be resident: `exchangeBlocks` leaves room for the ranks that share the device, and for one more exchange beside this one.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_FUSED_CUH
#define MOE_KERNELS_FUSED_CUH

#include "kernels/common/bulk.cuh"
#include "kernels/common/exchange.cuh"
#include "kernels/common/turns.cuh"

namespace fused {

// Where the workers of a block wait together, they are so many, a power of two; with more each has too few registers to route tokens.
const int kThreads = 256;
const int kWarps = kThreads / 32;
const int kBlocksPerSm = 2;       // that fit, of any kernels
const uint32_t kWhole = 1u << 12; // a counter that has all shares

// A multiprocessor has four register files, over which a block's warps are spread. The compiler reckons with whole quarters: what a block has of one
// is then no more than half of it, and another block fits beside it whatever the warps of each begin with.
constexpr int boundOf(int threads) { return (threads + 127) / 128 * 128; }

// Where tests stop a rank: it leaves without a word to its peers.
enum Stop { kGoOn, kStopAtCounts, kStopAtData };

// What of the exchange a kernel does. With a transport that moves rows between kernels one pushes to images of the peers' slabs, another receives.
enum Part { kPush = 1, kReceive = 2, kSignal = 4, kAll = 7 };

// The parameter that all such kernels have.
struct Round {
  Exchange exchange;
  uint32_t hash;
  int stop, parts;
};

// What a block knows since it began.
struct Begun {
  unsigned long long mask; // of the ranks that take part
  uint32_t epoch;
  bool fails;    // until `shareBegin`: the workspace stands in error
  uint32_t turn; // its number (turns.cuh)
};

__device__ inline bool takesPart(const Begun &begun, int rank) { return (begun.mask >> rank & 1) != 0; }

__device__ inline unsigned long long announcementOf(const Round &round, const Begun &begun) {
  return static_cast<unsigned long long>(round.hash) << 32 | begun.epoch;
}

// Where the pieces of a block begin, of `count` < 2^31; the first blocks have one more than the others.
__device__ inline int rangeBegin(int64_t count, unsigned block) {
  const unsigned pieces = static_cast<unsigned>(count), each = pieces / gridDim.x, more = pieces - each * gridDim.x;
  return static_cast<int>(block * each + (block < more ? block : more));
}

__device__ inline int laneNumber() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warpNumber() { return static_cast<int>(threadIdx.x) / 32; }

// Quotients of numbers below 2^16 by a product's upper half; a divisor of 1 has the factor 0 (`factorOf`).
__device__ inline uint32_t quotient(uint32_t number, uint32_t factor) { return factor ? __umulhi(number, factor) : number; }

//===--- words of peers ---------------------------------------------------------------------------===//

__device__ inline void fenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ inline void storeRelaxed(uint32_t *word, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ inline void storeRelaxed(unsigned long long *word, unsigned long long value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ inline unsigned long long loadRelaxed(const unsigned long long *word) {
  unsigned long long value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ inline void addRelaxed(uint32_t *word, uint32_t value) {
  asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

//===--- beginning --------------------------------------------------------------------------------===//

// The first thread that claims the failure of a round reports it.
__device__ inline bool claimFailure(const Exchange &exchange) { return atomicExch(&stateOf(exchange)->failed, 1) == 0; }

__device__ inline Turns *turnsOf(const Round &round) { return regionOf<Turns>(round.exchange, MOERT_WORKSPACE_TURNS); }

// By every thread, with one latency; whether the round can go on is known behind `shareBegin`.
__device__ inline Begun readRound(const Round &round) {
  const moert__slab_state *state = stateOf(round.exchange);
  const int failed = state->failed, full = state->full;
  const uint32_t last = *regionOf<uint32_t>(round.exchange, MOERT_METAINFO_FLAG_VAL), turn = turnsOf(round)->number;
  return {state->mask & round.exchange.mask, epochAfter(last), (failed | full) != 0, turn};
}

template <typename Check> __device__ bool canBegin(const Round &round, bool stands, const Check &check) {
  const Exchange &exchange = round.exchange;
  if (stands && blockIdx.x == 0) report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_STANDING);
  if (!stands && check(exchange)) return true;
  if (blockIdx.x == 0) breakOff(exchange);
  return false;
}

// All threads of a block. `check` reports in block 0 only.
template <typename Check> __device__ void shareBegin(const Round &round, const Check &check, Begun *begun) {
  const int peer = static_cast<int>(threadIdx.x);
  bool fails = false;
  if (threadIdx.x == 0) fails = !canBegin(round, begun->fails, check);
  begun->fails = __syncthreads_or(fails);
  if ((round.parts & kSignal) && !begun->fails && blockIdx.x == 0 && peer < round.exchange.watch.ranks && takesPart(*begun, peer))
    storeRelaxed(announcementAt(round.exchange, peer, round.exchange.watch.rank, begun->epoch), announcementOf(round, *begun));
}

// By a thread of each block, behind `shareBegin`.
__device__ inline void countBegun(const Round &round, const Begun &begun) {
  uint32_t *last = round.parts & kReceive ? regionOf<uint32_t>(round.exchange, MOERT_METAINFO_FLAG_VAL) : nullptr; // who pushes only is not the last
  beginTurn(turnsOf(round), begun.turn, last, begun.epoch);
}

//===--- workers ----------------------------------------------------------------------------------===//

__device__ inline bool isWorker() { return threadIdx.x < kThreads; }

__device__ inline void syncWorkers() { asm volatile("barrier.sync 1, %0;" ::"n"(kThreads) : "memory"); }

__device__ inline bool anyWorker(bool value) {
  int any;
  asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.s32 p, %1, 0;\n\tbarrier.red.or.pred q, 1, %2, p;\n\tselp.s32 %0, 1, 0, q;\n\t}"
               : "=r"(any)
               : "r"(static_cast<int>(value)), "n"(kThreads)
               : "memory");
  return any != 0;
}

//===--- signals ----------------------------------------------------------------------------------===//

using bulk::loadShared;
using bulk::storeShared;

// How far workers and teller have come, in the shared memory of a block.
struct Progress {
  int handed;  // by the workers: tiles, or rows, that the mover may take
  int covered; // and whose flags the teller may set, once the mover's part is done and it has made a fence
  // By the teller, in the first word: those whose rows are where they belong. By each of two movers: those that it does not look at any more, and all
  // when its rows are there.
  int ended[2];
};

__device__ inline void awaitProgress(const int *word, int value) {
  while (loadShared(word) < value) {}
}

__device__ inline int endedOf(const Progress &progress) { return min(loadShared(&progress.ended[0]), loadShared(&progress.ended[1])); }

__device__ inline void awaitEnded(const Progress &progress, int value) {
  while (endedOf(progress) < value) {}
}

// Adds the share of one of `count` parts of what all blocks push, when all its stores are made: by the threads from `first` on, of which there are
// `step`, each for some ranks.
__device__ inline void addShare(const Round &round, const Begun &begun, int field, uint32_t part, uint32_t count, int first, int step) {
  const int rank = round.exchange.watch.rank, ranks = round.exchange.watch.ranks;
  if (!(round.parts & kSignal) || round.stop != kGoOn || first >= ranks) return;
  const uint32_t share = (part + 1) * kWhole / count - part * kWhole / count;
  fenceSystem();
  for (int peer = first; peer < ranks; peer += step)
    if (takesPart(begun, peer)) addRelaxed(regionOf<uint32_t>(round.exchange, peer, field) + rank, share);
}

//===--- waiting ----------------------------------------------------------------------------------===//

__device__ inline bool announcesOther(const Round &round, const Begun &begun, int peer, unsigned long long *announced) {
  *announced = loadAcquire(announcementAt(round.exchange, round.exchange.watch.rank, peer, begun.epoch));
  return static_cast<uint32_t>(*announced) == begun.epoch && *announced != announcementOf(round, begun);
}

__device__ inline bool hasReported(const Exchange &exchange, int peer) {
  const uint32_t *statuses = reinterpret_cast<const uint32_t *>(exchange.watch.statuses + peer * exchange.watch.stride);
  return loadAcquire(statuses) != 0 || loadAcquire(statuses + 1) != 0;
}

// What follows is rare, and apart: kernels whose code is small begin sooner.

// What a rank waits for that has not even announced itself: of a dispatch the counts, with which it begins.
__device__ inline int awaitedOf(const Round &round, const Begun &begun, int peer) {
  const unsigned long long announced = loadAcquire(announcementAt(round.exchange, round.exchange.watch.rank, peer, begun.epoch));
  const bool begins = round.exchange.watch.op == MOERT__OP_MOE_DISPATCH && static_cast<uint32_t>(announced) != begun.epoch;
  return begins ? MOERT__AWAITED_COUNTS : MOERT__AWAITED_DATA;
}

// The first thread that fails in a round says why, and lets all others know.
static __device__ __noinline__ void failRound(const Round &round, Begun begun, int peer, int kind) {
  const moert__watch &watch = round.exchange.watch;
  const int what = awaitedOf(round, begun, peer);
  if (!claimFailure(round.exchange)) return;
  if (kind == MOERT__FAULT_PEER_FAILED)
    report(watch.fault, watch.op, kind, peer, watch.rank, what, begun.epoch);
  else
    report(watch.fault, watch.op, kind, watch.rank, watch.timeout_ns / 1000000, peer, what, begun.epoch);
  tellPeers(round.exchange);
}

// Whether the peer does something else; reports it.
static __device__ __noinline__ bool failDifference(const Round &round, Begun begun, int peer) {
  unsigned long long announced;
  const moert__watch &watch = round.exchange.watch;
  if (!announcesOther(round, begun, peer, &announced)) return false;
  const int what = watch.op == MOERT__OP_MOE_DISPATCH ? MOERT__AWAITED_COUNTS : MOERT__AWAITED_DATA;
  if (claimFailure(round.exchange)) {
    report(watch.fault, watch.op, MOERT__FAULT_MISMATCH, peer, watch.rank, what, begun.epoch, announced >> 32, round.hash);
    tellPeers(round.exchange);
  }
  return true;
}

const int kReported = -1; // somebody has said why

// Why waiting for `peer` makes no sense any more, if what it waits for has not come by now; 0: it does.
static __device__ __noinline__ int lookAround(const Round &round, Begun begun, int peer, unsigned long long deadline) {
  const Exchange &exchange = round.exchange;
  if (*const_cast<volatile int *>(&stateOf(exchange)->failed) != 0 || failDifference(round, begun, peer)) return kReported;
  if (peer != exchange.watch.rank && hasReported(exchange, peer)) return MOERT__FAULT_PEER_FAILED;
  return now() >= deadline ? MOERT__FAULT_TIMEOUT : 0;
}

// To hosts that ask what goes on (moert_comm_dump). Any of the threads that wait may have the last word.
static __device__ __noinline__ void showLongWait(const Round &round, Begun begun, int peer) {
  const moert__watch &watch = round.exchange.watch;
  const unsigned long long op = static_cast<unsigned long long>(watch.op) << MOERT__WAITING_OP,
                           what = static_cast<unsigned long long>(awaitedOf(round, begun, peer)) << MOERT__WAITING_WHAT;
  storeRelease(&watch.fault->waiting, begun.epoch | op | what | static_cast<unsigned long long>(peer + 1) << MOERT__WAITING_PEER);
}

// What a lane of a warp says that has come, and that it has nothing to wait for.
const int kHere = -1, kIdle = -2;

// By a whole warp, which waits without the others of its block: until all lanes see what they look for, or one does. `look` says which peer it has
// not come from, kHere or kIdle. False if the round has failed.
template <bool kOneIsEnough = false, typename Look> __device__ bool awaitWarp(const Round &round, const Begun &begun, const Look &look) {
  // Milliseconds: to look at peers' statuses is to read from the host's memory, which holds up all that the multiprocessor stores.
  const unsigned kLookAroundEvery = 4096, kLong = 8192, kAll = ~0u, lane = threadIdx.x % 32;
  unsigned long long deadline = 0;
  unsigned turn = 0;
  for (;; ++turn) {
    const int missing = look();
    if (kOneIsEnough ? __any_sync(kAll, missing == kHere) : !__any_sync(kAll, missing >= 0)) break;
    if (turn % kLookAroundEvery != kLookAroundEvery - 1) continue;
    if (!deadline) deadline = now() + static_cast<unsigned long long>(round.exchange.watch.timeout_ns);
    const unsigned bid = missing < 0 ? ~0u : static_cast<unsigned>(missing) * 32 + lane;
    const bool isFirst = bid == __reduce_min_sync(kAll, bid);
    const int kind = missing >= 0 && isFirst ? lookAround(round, begun, missing, deadline) : 0;
    if (__any_sync(kAll, kind != 0)) {
      const bool fails = look() >= 0 && kind > 0; // what a peer did before it failed counts
      if (fails) failRound(round, begun, missing, kind);
      if (__any_sync(kAll, fails || kind == kReported)) return false;
    }
    if (missing >= 0 && isFirst && turn > kLong) showLongWait(round, begun, missing);
    __nanosleep(500);
  }
  if (turn > kLong && lane == 0) storeRelease(&round.exchange.watch.fault->waiting, 0ull);
  __syncwarp(); // what one lane has seen others may read
  return true;
}

// By a warp of block 0: until `look`, which says of a peer whether what it tells is here, finds that of all of them, and all have begun the same.
// False if the round has failed.
template <typename Look> __device__ bool awaitBegun(const Round &round, const Begun &begun, const Look &look) {
  const int ranks = round.exchange.watch.ranks, lane = laneNumber();
  bool goesOn = true;
  for (int first = 0; goesOn && first < ranks; first += 32) {
    const int peer = first + lane;
    const bool waits = peer < ranks && takesPart(begun, peer);
    unsigned long long announced = 0;
    const auto both = [&] {
      if (!waits) return kIdle;
      const bool isHere = look(peer); // first: what comes behind an acquire load waits for it
      announced = loadAcquire(announcementAt(round.exchange, round.exchange.watch.rank, peer, begun.epoch));
      return isHere && static_cast<uint32_t>(announced) == begun.epoch ? kHere : peer;
    };
    goesOn = awaitWarp(round, begun, both);
    const bool differs = goesOn && waits && announced != announcementOf(round, begun) && failDifference(round, begun, peer);
    goesOn = !__any_sync(~0u, differs) && goesOn;
  }
  return goesOn;
}

// By a warp of block 0: until all rows of all ranks are here, those of this rank's other blocks too. False if the round has failed.
__device__ inline bool awaitShares(const Round &round, const Begun &begun, int field) {
  uint32_t *counters = regionOf<uint32_t>(round.exchange, field);
  const int ranks = round.exchange.watch.ranks, lane = laneNumber();
  const auto look = [&] {
    for (int peer = lane; peer < ranks; peer += 32)
      if (takesPart(begun, peer) && loadAcquire(counters + peer) != kWhole) return peer;
    return kHere;
  };
  if (!awaitWarp(round, begun, look)) return false;
  for (int peer = lane; peer < ranks; peer += 32) counters[peer] = 0;
  return true;
}

// All workers of all blocks, once in a turn: what each has stored others see behind it. False if they do not come in time.
__device__ inline bool meetBlocks(const Round &round, const Begun &begun) {
  uint32_t *met = &turnsOf(round)->met[begun.turn & 1];
  syncWorkers();
  bool comes = true;
  if (warpNumber() == 0) {
    if (laneNumber() == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(met) : "memory");
    comes = awaitWarp(round, begun, [&] { return loadAcquire(met) == gridDim.x ? kHere : round.exchange.watch.rank; });
  }
  return !anyWorker(!comes);
}

//===--- rows -----------------------------------------------------------------------------------===//

// Threads of a block that work on a row.
struct Team {
  int number, count, lane, size;
};

// `size` is a power of two. `begin`: the thread that is the first of the first team.
__device__ inline Team teamOf(int size, int begin = 0) {
  const int thread = (static_cast<int>(threadIdx.x) - begin) & (kThreads - 1);
  return {thread / size, kThreads / size, thread % size, size};
}

// What teams copy: `count` rows, in turns, each to some places. kRows of a team are on their way at once.
template <typename Vector, int kRows, typename Rows> __device__ void copyVectors(const Team &team, const Rows &rows) {
  const int kBatch = 2; // vectors of a row that are on their way at once
  const uint32_t vectors = static_cast<uint32_t>(rows.bytes / static_cast<int64_t>(sizeof(Vector))), step = static_cast<uint32_t>(team.size);
#pragma unroll 1
  for (int first = team.number; first < rows.count; first += kRows * team.count)
#pragma unroll 1
    for (uint32_t begin = static_cast<uint32_t>(team.lane); begin < vectors; begin += kBatch * step) {
      Vector batch[kRows][kBatch];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (first + row * team.count >= rows.count) continue;
        const Vector *from = reinterpret_cast<const Vector *>(rows.source(first + row * team.count));
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          if (begin + i * step < vectors) batch[row][i] = from[begin + i * step];
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (first + row * team.count >= rows.count) continue;
        const int places = rows.places(first + row * team.count);
#pragma unroll 1
        for (int place = 0; place < places; ++place) {
          Vector *to = reinterpret_cast<Vector *>(rows.place(first + row * team.count, place));
          if (!to) continue;
#pragma unroll
          for (int i = 0; i < kBatch; ++i)
            if (begin + i * step < vectors) to[begin + i * step] = batch[row][i];
        }
      }
    }
}

// Apart, for the registers that it takes would be missing where rows are whole vectors.
template <typename Rows> __device__ __noinline__ void copyNarrow(const Team &team, int width, const Rows &rows) {
  switch (width) {
  case 8: copyVectors<uint2, 1>(team, rows); break;
  case 4: copyVectors<uint32_t, 1>(team, rows); break;
  case 2: copyVectors<uint16_t, 1>(team, rows); break;
  default: copyVectors<uint8_t, 1>(team, rows);
  }
}

// With `size` threads a row, from thread *begin on, for accesses of `width`. *begin becomes a warp that has nothing to do, if there is one, so that
// several calls overlap.
template <int kRows, typename Rows> __device__ void copyRows(int size, int *begin, int width, const Rows &rows) {
  const Team team = teamOf(size, *begin);
  if (width == 16)
    copyVectors<uint4, kRows>(team, rows);
  else
    copyNarrow(team, width, rows);
  *begin = (*begin + (rows.count * size + 31) / 32 * 32) & (kThreads - 1);
}

//===--- launches ---------------------------------------------------------------------------------===//

static inline uint32_t factorOf(uint32_t divisor) { return divisor == 1 ? 0 : static_cast<uint32_t>(((UINT64_C(1) << 32) + divisor - 1) / divisor); }

// A power of two of threads, at least `least`, for a row of so many vectors.
static inline int teamFor(int64_t vectors, int least) {
  int team = least;
  while (team < kThreads && team < vectors) team *= 2;
  return team;
}

// Of `team` threads for a row as many as leave some teams, for rows that are there at the same time: one waits for memory while another works.
static inline int splitTeam(int team, int64_t rows) {
  const int kTeams = 4, kLeast = 64;
  while (team > kLeast && kThreads / team < kTeams && kThreads / team < rows) team /= 2;
  return team;
}

// Blocks for `work` pieces within `maxSms` multiprocessors, 0: all.
static inline moert_status exchangeBlocks(const moert_context *context, int64_t work, int64_t maxSms, unsigned *blocks) {
  int sms = 0;
  cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, moert__context_device(context));
  if (error != cudaSuccess) return failDevice(error, "multiprocessors");
  int64_t most = sms / moert__comm_ranks_on_device(moert_context_comm(context));
  if (maxSms && maxSms < most) most = maxSms;
  if (work < most) most = work;
  *blocks = static_cast<unsigned>(most < 1 ? 1 : most);
  return MOERT_OK;
}

static inline Round roundOf(const moert__workspace &workspace, moert_context *context, int op, uint32_t hash) {
  return {exchangeOf(workspace, context, op), hash, kGoOn, kAll};
}

// Passes the stop points of an exchange. If a test stops it behind "entry", *stopped is the status to be returned once the kernel is launched, which
// leaves at that point.
static inline moert_status passStops(moert_context *context, Round *round, moert_status *stopped) {
  moert_status status = moert__stop_point(context, "entry");
  *stopped = MOERT_OK;
  if (!status) *stopped = moert__stop_point(context, "counts");
  if (*stopped) round->stop = kStopAtCounts;
  if (!status && !*stopped) *stopped = moert__stop_point(context, "data");
  if (!status && !*stopped) *stopped = moert__stop_point(context, "flag");
  if (*stopped && round->stop == kGoOn) round->stop = kStopAtData;
  return status;
}

} // namespace fused

#endif

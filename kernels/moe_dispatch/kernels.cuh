//===- kernels.cuh - moe.dispatch on devices ----------------------------------------------------------===//
//
// lib/reference/moe_dispatch.c says what is written where; this kernel writes the same bits.
//
// A block has a range of this rank's tokens, and ranges of the rows that come from each peer. Its workers find how many of the tokens before its own
// go to which rank (`Counter`), and so the places of its rows. Rows that are received in the workspace are pushed by two movers, and are then where
// they belong. Others are pushed by one, and the teller sets their flags; the block's placer, a warp, takes them to their destinations as they come.
// For the layout expert_grouped blocks tell each rank how many rows there are for each of its experts. From what all ranks tell, every placer finds
// where an expert's rows from a source begin; with each row comes its place among those.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_DISPATCH_KERNELS_CUH
#define MOE_KERNELS_MOE_DISPATCH_KERNELS_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/fused.cuh"

namespace dispatch {

using namespace fused;

const int kTile = 32; // tokens that a block routes at a time
const int kTogether =
    4; // of which so many go at a time, at most: the mover has said of a tile that it is there when it waits for the tile after the next
static_assert(kTile / kTogether >= 2 * bulk::kUnfinished, "pieces of a tile");
const int kMaxGroup = 32;       // received rows that are copied at a time
const int kAbandoned = INT_MAX; // instead of a number of tiles: nothing is moved or told any more
const int kOutputs = MOERT_WORKSPACE_MAX_PAYLOADS + 3;
const int kMaxTopK = MOERT_WORKSPACE_MAX_TOP_K;

// Where received rows have to be: where they arrive, in an output like that, or in the places of the layout expert_grouped.
enum class Receives { inPlace, copies, groups };

struct Payload {
  const char *from;
  char *recv;
  int64_t rowBytes, area; // `area`: offset in a slab
  int sendWidth, receiveWidth;
  bool isInPlace, isBulk; // isBulk: the mover pushes it
  int32_t team;           // threads of a worker's copy of a row
};

// Which rank owns an expert: the first `extra` ranks own one more than the others.
struct Owners {
  uint32_t each, extra, more, eachFactor, moreFactor; // `more`: experts of the first `extra` ranks together
};

// The kernel's parameter.
struct Call {
  Round round;
  const int32_t *ids;
  const float *weights; // NULL: all are 1
  bool alignedIds;      // to vectors
  int64_t tokens, maxTokens, experts, capacity;
  int64_t flagLane; // from source to source of the row flags
  int32_t topK, numPayloads, numBulk;
  bool counts; // each block counts the rows of its own tokens for all blocks (BLOCK_COUNTS); otherwise those of all tokens before them
  Owners owners;
  int32_t *recvCounts, *offsets; // may be NULL
  const int32_t *stats;
  int32_t *gatheredStats;
  int64_t numStats, statsStride; // of each rank, 0: none; from row to row of EPLB_GATHERED_STATS
  Payload payloads[MOERT_WORKSPACE_MAX_PAYLOADS];
  Output outputs[kOutputs];
};

//===--- experts ----------------------------------------------------------------------------------===//

__device__ inline bool isExpert(const Call &call, int32_t id) { return static_cast<uint32_t>(id) < static_cast<uint32_t>(call.experts); }

__device__ inline int ownerOf(const Owners &owners, int32_t id) {
  const uint32_t expert = static_cast<uint32_t>(id);
  return static_cast<int>(expert < owners.more ? quotient(expert, owners.moreFactor)
                                               : owners.extra + quotient(expert - owners.more, owners.eachFactor));
}

__device__ inline int ownerOf(const Call &call, int32_t id) { return ownerOf(call.owners, id); }

__device__ inline int32_t firstExpert(const Call &call, int rank) {
  const uint32_t r = static_cast<uint32_t>(rank);
  return static_cast<int32_t>(r * call.owners.each + (r < call.owners.extra ? r : call.owners.extra));
}

//===--- a block's memory -------------------------------------------------------------------------===//

struct Target {
  int32_t rank, index;
};

// Where the tokens of a tile go.
struct Tile {
  int32_t numTargets[kTile];
  Target targets[kTile][kMaxTopK];
};

// Behind the workers are the warps of a mover and of a second one, or of the mover, the teller and the placer. Each of two shares the block's stages.
__host__ __device__ constexpr int moversOf(Receives receives) { return receives == Receives::inPlace ? 2 : 1; }
__host__ __device__ constexpr int threadsOf(Receives receives) { return kThreads + (receives == Receives::inPlace ? 64 : 96); }
const int kShareStages = bulk::kBlockStages / 2;

// Of a row that the placer has in a stage.
struct Placing {
  char *recv; // of the piece, in row 0
  int64_t rowBytes, row;
  uint32_t bytes;
  int source;
  bool begins;                                  // the piece is the row's first
  int32_t experts[kMaxTopK], numbers[kMaxTopK]; // of its choices, on their way when it is
};

enum Learnt { kNotYet, kKnown, kNothing, kFailed }; // kNothing: there is no room

// What workers and placer tell each other, in the shared memory of a block.
struct PlacerProgress {
  int own, isRouted; // by the workers: rows of this rank for itself that may be taken, with those of the blocks before, -1: it is not known; whether
                     // these are all
  int learnt;        // a `Learnt`, by the placer: how many rows come from where
  int placed;        // likewise: that all rows are, kKnown or kNothing
};

// What a block knows of its tokens; the tables of the layout expert_grouped lie behind it.
struct Memory {
  Progress progress; // in tiles
  PlacerProgress placer;
  bulk::Barriers barriers[2]; // of both that have stages
  Placing placings[kShareStages];
  int32_t counted[kWarps][MOERT_MAX_RANKS];         // rows for each rank of some tokens, as each warp has counted them
  int32_t sent[MOERT_MAX_RANKS];                    // rows for each rank up to here
  int32_t received[MOERT_MAX_RANKS];                // rows of each source
  int32_t ownBegin;                                 // rows of this rank for itself of the tokens before
  Tile tiles[2];                                    // one is routed while the mover works on the other
  alignas(16) int32_t places[kMaxGroup * kMaxTopK]; // of the choices of a tile among their experts', and of received rows that are copied
};

// How many choices there are of each expert before the block's next tile.
__device__ inline int32_t *expertTable(Memory *memory) { return reinterpret_cast<int32_t *>(memory + 1); }

// When peers have told: which row an expert's rows from each source begin at.
__device__ inline int32_t *baseTable(const Call &call, Memory *memory) { return expertTable(memory) + call.experts; }

// The mover's stages come first in a block's shared memory.
inline size_t memoryBytes(Receives receives, int64_t experts, int64_t ranks) {
  const size_t tables = receives == Receives::groups ? static_cast<size_t>(2 * experts + ranks) * sizeof(int32_t) : 0;
  return bulk::kBlockStages * bulk::kStageBytes + sizeof(Memory) + tables;
}

//===--- counting ---------------------------------------------------------------------------------===//

// The experts of a token, in registers if their number is known.
template <int kTopK> struct alignas(16) Ids {
  int32_t ids[kTopK];
  __device__ Ids() {}
  __device__ Ids(const Call &call, int64_t token, bool exists) {
    const int32_t *from = call.ids + token * kTopK;
#pragma unroll
    for (int k = 0; k < kTopK; ++k) ids[k] = -1;
    if (kTopK % 4 == 0 && call.alignedIds) {
#pragma unroll
      for (int k = 0; k < kTopK; k += 4)
        if (exists) *reinterpret_cast<int4 *>(ids + k) = *reinterpret_cast<const int4 *>(from + k);
      return;
    }
#pragma unroll
    for (int k = 0; k < kTopK; ++k)
      if (exists) ids[k] = from[k];
  }
  static __device__ int count(const Call &) { return kTopK; }
  __device__ int32_t operator[](int k) const { return ids[k]; }
};

template <> struct Ids<0> {
  const int32_t *ids;
  __device__ Ids() {}
  __device__ Ids(const Call &call, int64_t token, bool exists) : ids(exists ? call.ids + token * call.topK : nullptr) {}
  static __device__ int count(const Call &call) { return call.topK; }
  __device__ int32_t operator[](int k) const { return ids ? ids[k] : -1; }
};

// The ranks of a token's experts, of which there are no more than `Mask` has bits.
template <typename Mask, int kTopK> __device__ Mask ranksOf(const Call &call, const Ids<kTopK> &ids) {
  Mask named = 0;
#pragma unroll
  for (int k = 0; k < ids.count(call); ++k)
    if (isExpert(call, ids[k])) named |= static_cast<Mask>(1) << ownerOf(call, ids[k]);
  return named;
}

// Of tokens kThreads apart all choices are on their way at once, where registers hold them.
template <int kTopK, int kBatch> struct Batch {
  Ids<kTopK> tokens[kBatch];
  __device__ Batch(const Call &call, int64_t token, int64_t end) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) tokens[i] = Ids<kTopK>(call, token + i * kThreads, token + i * kThreads < end);
  }
};

// counts[r]: how many of the tokens [begin, end) that this warp looks at, 32 at a time, go to rank r.
template <typename Mask, int kTopK, int kBatch>
__device__ void countMasks(const Call &call, const Begun &begun, int64_t begin, int64_t end, int32_t *counts) {
  const int ranks = call.round.exchange.watch.ranks, lane = laneNumber();
  int32_t low = 0, high = 0; // of ranks `lane` and 32 + lane
#pragma unroll 1
  for (int64_t first = begin + warpNumber() * 32; first < end; first += kBatch * kThreads) {
    const Batch<kTopK, kBatch> batch(call, first + lane, end);
    Mask named[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) named[i] = ranksOf<Mask>(call, batch.tokens[i]) & static_cast<Mask>(begun.mask);
#pragma unroll 1
    for (int rank = 0; rank < ranks; ++rank) {
      int32_t count = 0;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) count += __popc(__ballot_sync(~0u, (named[i] >> rank & 1) != 0));
      low += rank == lane ? count : 0;
      high += rank == lane + 32 ? count : 0;
    }
  }
  counts[lane] = low;
  counts[lane + 32] = high;
}

template <int kTopK, int kBatch = 1> __device__ void countTokens(const Call &call, const Begun &begun, int64_t begin, int64_t end, int32_t *counts) {
  if (call.round.exchange.watch.ranks <= 32)
    countMasks<uint32_t, kTopK, kBatch>(call, begun, begin, end, counts);
  else
    countMasks<unsigned long long, kTopK, kBatch>(call, begun, begin, end, counts);
}

// By a warp, all lanes of which get the sum of what the warps have counted.
__device__ inline int32_t sumOfWarps(const Memory &memory, int rank) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t sum = lane < kWarps ? memory.counted[lane][rank] : 0;
#pragma unroll
  for (int distance = kWarps / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  return __shfl_sync(~0u, sum, 0);
}

// Adds `step` to table[e] as often as the tokens [begin, end) choose expert e. kBatch choices of a thread are on their way at once.
template <int kBatch>
__device__ void countChoices(const Call &call, const Begun &begun, int64_t begin, int64_t end, int32_t *table, int32_t step = 1) {
  for (int64_t first = begin * call.topK + threadIdx.x; first < end * call.topK; first += kBatch * kThreads) {
    int32_t ids[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) ids[i] = first + i * kThreads < end * call.topK ? call.ids[first + i * kThreads] : -1;
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (isExpert(call, ids[i]) && takesPart(begun, ownerOf(call, ids[i]))) atomicAdd(&table[ids[i]], step);
  }
}

//===--- what peers are told ----------------------------------------------------------------------===//

__device__ inline int64_t localExperts(const Call &call, int rank) { return firstExpert(call, rank + 1) - firstExpert(call, rank); }

// How many numbers a rank is told by each: of each of its experts, if they are grouped, and of all rows.
template <Receives kReceives> __device__ int numbersFor(const Call &call, int rank) {
  return (kReceives == Receives::groups ? static_cast<int>(localExperts(call, rank)) : 0) + 1;
}

// GROUP_COUNTS of rank `at`, of what `from` sends there: the numbers, which are their own flags.
template <Receives kReceives> __device__ unsigned long long *groupCounts(const Call &call, int at, int from) {
  return regionOf<unsigned long long>(call.round.exchange, at, MOERT_WORKSPACE_GROUP_COUNTS) + from * numbersFor<kReceives>(call, at);
}

__device__ inline unsigned long long countWord(const Begun &begun, int32_t count) {
  return static_cast<unsigned long long>(begun.epoch) << 32 | static_cast<uint32_t>(count);
}

// How many rows `from` has for `at`, in a word that is its own flag.
__device__ inline unsigned long long *totalAt(const Call &call, int at, int from) { return groupCounts<Receives::inPlace>(call, at, from); }

// The numbers of rows, by the last block, behind all its tokens. Where rows are taken elsewhere the peers have been told.
template <Receives kReceives> __device__ void sendCounts(const Call &call, const Begun &begun, const int32_t *totals) {
  const Exchange &exchange = call.round.exchange;
  const int rank = exchange.watch.rank, peer = static_cast<int>(threadIdx.x);
  if (peer >= exchange.watch.ranks) return;
  regionOf<int32_t>(exchange, MOERT_METAINFO_SEND_COUNTERS)[peer] = totals[peer];
  if (!(call.round.parts & kSignal))
    regionOf<int32_t>(exchange, peer, MOERT_METAINFO_RECV_COUNTERS)[rank] = totals[peer];
  else if (kReceives == Receives::inPlace && takesPart(begun, peer))
    storeRelaxed(totalAt(call, peer, rank), countWord(begun, totals[peer]));
}

// Where rows are taken elsewhere: how many of all tokens' there are of an expert, and for a rank.
__device__ inline void tellExpert(const Call &call, const Begun &begun, int32_t expert, int32_t rows) {
  const int owner = ownerOf(call, expert);
  unsigned long long *words = groupCounts<Receives::groups>(call, owner, call.round.exchange.watch.rank);
  if (takesPart(begun, owner)) storeRelaxed(words + expert - firstExpert(call, owner), countWord(begun, rows));
}

template <Receives kReceives> __device__ void tellTotal(const Call &call, const Begun &begun, int peer, int32_t rows) {
  unsigned long long *words = groupCounts<kReceives>(call, peer, call.round.exchange.watch.rank);
  if (takesPart(begun, peer)) storeRelaxed(words + numbersFor<kReceives>(call, peer) - 1, countWord(begun, rows));
}

// With all blocks of a kernel.
__device__ inline void sendStats(const Call &call, const Begun &begun) {
  const Exchange &exchange = call.round.exchange;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, row = exchange.watch.rank * call.statsStride;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < call.numStats; i += step)
    for (int peer = 0; peer < exchange.watch.ranks; ++peer)
      if (takesPart(begun, peer)) regionOf<int32_t>(exchange, peer, MOERT_METAINFO_EPLB_GATHERED_STATS)[row + i] = call.stats[i];
}

//===--- rows of the tokens before ----------------------------------------------------------------===//

// Rows of the tokens before the block's, to memory->sent and the table of experts; and what peers are told of all tokens, before they take rows
// elsewhere. Blocks count those of their own tokens, and each adds up what others have; or each counts for itself.
template <Receives kReceives, int kTopK> class Counter {
public:
  __device__ Counter(const Call &call, const Begun &begun, Memory *memory)
      : call(call), begun(begun), memory(memory), begin(rangeBegin(call.tokens, blockIdx.x)), last(rangeBegin(call.tokens, blockIdx.x + 1)),
        ranks(call.round.exchange.watch.ranks), experts(kReceives == Receives::groups ? static_cast<int>(call.experts) : 0) {}

  // In front of the block's barrier: what needs nothing but the choices.
  __device__ void beginRanks() const {
    int32_t *counts = memory->counted[warpNumber()];
    if (call.counts)
      countTokens<kTopK>(call, begun, begin, last, counts);
    else
      countTokens<kTopK, 2>(call, begun, 0, begin, counts);
    for (int i = static_cast<int>(threadIdx.x); i < experts; i += kThreads) expertTable(memory)[i] = 0;
  }

  // Behind it. False if other blocks have not come.
  __device__ bool endRanks() const {
    if (kReceives == Receives::groups) countExperts();
    for (int rank = warpNumber(); rank < ranks; rank += kWarps) {
      const int32_t rows = sumOfWarps(*memory, rank);
      if (laneNumber() != 0) continue;
      if (call.counts)
        counts(rank)[blockIdx.x] = rows;
      else
        beginRank(rank, rows);
    }
    if (call.counts && !meetBlocks(call.round, begun)) return false;
    for (int rank = warpNumber(); call.counts && rank < ranks; rank += kWarps) {
      const int32_t rows = sumOfBlocks(rank, blockIdx.x);
      if (laneNumber() == 0) beginRank(rank, rows);
    }
    syncWorkers();
    if (kReceives == Receives::inPlace) return true;
    if (call.counts)
      tellShare();
    else if (blockIdx.x == gridDim.x - 1)
      tellAll();
    return true;
  }

  // Experts, which nobody needs before rows can go.
  __device__ void endExperts() const {
    int32_t *table = expertTable(memory);
    const int kTogether = 4;
#pragma unroll 1
    for (int first = warpNumber() * kTogether; call.counts && first < experts; first += kWarps * kTogether) {
      int32_t before[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) before[i] = first + i < experts && table[first + i] ? partOfBlocks(ranks + first + i, blockIdx.x) : 0;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        before[i] = __reduce_add_sync(~0u, before[i]);
        if (laneNumber() == 0 && first + i < experts) table[first + i] = before[i];
      }
    }
    syncWorkers();
  }

private:
  // So many rows are before the block's; those of this rank for itself begin there.
  __device__ void beginRank(int rank, int32_t rows) const {
    memory->sent[rank] = rows;
    if (rank != call.round.exchange.watch.rank) return;
    memory->ownBegin = rows;
    storeShared(&memory->placer.own, rows);
  }

  // Of a rank or, behind these, of an expert: what each block has.
  __device__ int32_t *counts(int number) const {
    return regionOf<int32_t>(call.round.exchange, MOERT_WORKSPACE_BLOCK_COUNTS) + number * MOERT_WORKSPACE_MOST_BLOCKS;
  }

  __device__ void countExperts() const {
    int32_t *table = expertTable(memory);
    if (call.counts)
      countChoices<2>(call, begun, begin, last, table);
    else
      countChoices<16>(call, begun, 0, begin, table);
    syncWorkers();
    for (int i = static_cast<int>(threadIdx.x); call.counts && i < experts; i += kThreads) counts(ranks + i)[blockIdx.x] = table[i];
  }

  // What the lane has of the first `blocks` blocks.
  __device__ int32_t partOfBlocks(int number, unsigned blocks) const {
    const int32_t *rows = counts(number);
    int32_t sum = 0;
#pragma unroll
    for (int i = 0; i < MOERT_WORKSPACE_MOST_BLOCKS / 32; ++i) {
      const int block = i * 32 + laneNumber();
      sum += block < static_cast<int>(blocks) ? rows[block] : 0;
    }
    return sum;
  }

  __device__ int32_t sumOfBlocks(int number, unsigned blocks) const { return __reduce_add_sync(~0u, partOfBlocks(number, blocks)); }

  // Each block tells of some ranks and experts.
  __device__ void tellShare() const {
    for (int number = static_cast<int>(blockIdx.x) + warpNumber() * static_cast<int>(gridDim.x); number < ranks + experts;
         number += kWarps * static_cast<int>(gridDim.x)) {
      const int32_t rows = sumOfBlocks(number, gridDim.x);
      if (laneNumber() == 0) tell(number, rows);
    }
  }

  __device__ void tell(int number, int32_t rows) const {
    if (number < ranks)
      tellTotal<kReceives>(call, begun, number, rows);
    else
      tellExpert(call, begun, number - ranks, rows);
  }

  // By the last block, which counts its own tokens too, for a while.
  __device__ void tellAll() const {
    int32_t *table = expertTable(memory);
    countTokens<kTopK>(call, begun, begin, last, memory->counted[warpNumber()]);
    if (kReceives == Receives::groups) countChoices<2>(call, begun, begin, last, table);
    syncWorkers();
    for (int i = static_cast<int>(threadIdx.x); i < experts; i += kThreads) tellExpert(call, begun, i, table[i]);
    for (int rank = warpNumber(); rank < ranks; rank += kWarps) {
      const int32_t rows = memory->sent[rank] + sumOfWarps(*memory, rank);
      if (laneNumber() == 0) tellTotal<kReceives>(call, begun, rank, rows);
    }
    syncWorkers();
    if (kReceives == Receives::groups) countChoices<2>(call, begun, begin, last, table, -1);
    syncWorkers();
  }

  const Call &call;
  const Begun &begun;
  Memory *memory;
  const int64_t begin, last;
  const int ranks, experts;
};

//===--- routing ----------------------------------------------------------------------------------===//

// Warps take ranks in turns, lanes the tokens of the tile. An entry of targets and indices belongs to the warp of its expert's rank; where there is
// none, to that of rank 0.
template <int kTopK>
__device__ void routeTile(const Call &call, const Begun &begun, Memory *memory, Tile *tile, const Ids<kTopK> &ids, int64_t first, int count) {
  const Exchange &exchange = call.round.exchange;
  const int topK = ids.count(call), lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int32_t *targets = regionOf<int32_t>(exchange, MOERT_METAINFO_TOPK_TARGET_RANKS) + (first + lane) * topK,
          *indices = regionOf<int32_t>(exchange, MOERT_METAINFO_TOPK_SEND_INDICES) + (first + lane) * topK;
  for (int rank = warp; rank < exchange.watch.ranks; rank += kWarps) {
    const int32_t begin = firstExpert(call, rank), end = firstExpert(call, rank + 1);
    int slot = -1;
#pragma unroll
    for (int k = 0; k < topK; ++k)
      if (slot < 0 && ids[k] >= begin && ids[k] < end) slot = k;
    if (!takesPart(begun, rank)) slot = -1;
    const unsigned goes = __ballot_sync(~0u, slot >= 0);
    const int32_t sent = memory->sent[rank], index = sent + __popc(goes & ((1u << lane) - 1));
    if (slot >= 0) tile->targets[lane][atomicAdd(&tile->numTargets[lane], 1)] = {rank, index};
    __syncwarp();
    if (lane == 0) memory->sent[rank] = sent + __popc(goes);
#pragma unroll
    for (int k = 0; k < topK; ++k) {
      const bool isMine = ids[k] >= begin && ids[k] < end, isNobodys = rank == 0 && !isExpert(call, ids[k]);
      if (lane >= count || !(isMine || isNobodys)) continue;
      targets[k] = k == slot ? rank : -1;
      indices[k] = k == slot ? index : -1;
    }
  }
  syncWorkers();
}

// The places of the tile's choices among those of their experts, in the order of tokens and slots: behind the choices before, which `table` counts. A
// thread has some choices, and looks at all before them.
__device__ inline void placeChoices(const Call &call, const Begun &begun, Memory *memory, int32_t *table, int64_t first, int count) {
  const int kMost = kTile * kMaxTopK / kThreads, choices = count * call.topK, thread = static_cast<int>(threadIdx.x);
  int32_t ids[kMost], places[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int choice = thread + i * kThreads;
    ids[i] = choice < choices ? call.ids[first * call.topK + choice] : -1;
    if (!isExpert(call, ids[i]) || !takesPart(begun, ownerOf(call, ids[i]))) ids[i] = -1;
    if (choice < (choices + 3) / 4 * 4) memory->places[choice] = ids[i];
  }
  syncWorkers();
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int choice = thread + i * kThreads;
    places[i] = ids[i] < 0 ? 0 : table[ids[i]];
#pragma unroll 4
    for (int before = 0; before < choice && choice < choices; before += 4) {
      const int4 four = *reinterpret_cast<const int4 *>(memory->places + before);
      places[i] += (four.x == ids[i]) + (before + 1 < choice && four.y == ids[i]) + (before + 2 < choice && four.z == ids[i]) +
                   (before + 3 < choice && four.w == ids[i]);
    }
  }
  syncWorkers();
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (thread + i * kThreads >= choices) continue;
    memory->places[thread + i * kThreads] = ids[i] < 0 ? -1 : places[i];
    if (ids[i] >= 0) atomicAdd(&table[ids[i]], 1);
  }
  syncWorkers();
}

//===--- pushing ----------------------------------------------------------------------------------===//

// Row of a receive area, and of what is sent along with rows, that row `index` from `source` has at the receiver.
__device__ inline int64_t laneRow(const Call &call, int source, int32_t index) { return source * call.maxTokens + index; }

// A source's flags are always in one place: this rank has the numbers of its tokens among them, which must not be taken for epochs of others when R
// changes.
__device__ inline uint32_t *rowFlag(const Call &call, int at, int source, int32_t index) {
  return regionOf<uint32_t>(call.round.exchange, at, MOERT_WORKSPACE_DISPATCH_ROW_FLAGS) + source * call.flagLane + index;
}

// The place of a payload's row at a target. Rows for this rank itself go to their output at once; grouped ones are left to the placer.
template <Receives kReceives> __device__ char *placeOf(const Call &call, const Payload &payload, const Target &target) {
  const Exchange &exchange = call.round.exchange;
  const int me = exchange.watch.rank;
  if (target.rank == me && kReceives == Receives::groups) return nullptr;
  char *area = target.rank == me && kReceives == Receives::copies ? payload.recv : exchange.slabs[target.rank] + payload.area;
  return area + laneRow(call, me, target.index) * payload.rowBytes;
}

// A payload's rows of a tile, for workers to copy.
template <Receives kReceives> struct PushedRows {
  const Call &call;
  const Tile &tile;
  const Payload &payload;
  int64_t token; // the first
  int count;
  int64_t bytes;

  __device__ const char *source(int row) const { return payload.from + (token + row) * bytes; }
  __device__ int places(int row) const { return tile.numTargets[row]; }
  __device__ char *place(int row, int number) const { return placeOf<kReceives>(call, payload, tile.targets[row][number]); }
};

// What goes with the grouped rows of a tile: the local experts of their choices, the places there, and the weights.
__device__ inline void pushChoices(const Call &call, const Memory &memory, const Tile &tile, int64_t first, int count) {
  const Exchange &exchange = call.round.exchange;
  const int topK = call.topK, me = exchange.watch.rank;
  for (int i = static_cast<int>(threadIdx.x); i < count * topK; i += kThreads) {
    const int inTile = i / topK;
    const int64_t choice = first * topK + i;
    const int32_t id = call.ids[choice], place = memory.places[i];
    const float weight = call.weights ? call.weights[choice] : 1.0f;
    for (int number = 0; number < tile.numTargets[inTile]; ++number) {
      const Target target = tile.targets[inTile][number];
      const int64_t at = laneRow(call, me, target.index) * topK + i % topK;
      const int32_t local = id - firstExpert(call, target.rank);
      const bool isThere = id >= 0 && local >= 0 && local < localExperts(call, target.rank);
      regionOf<int32_t>(exchange, target.rank, MOERT_METAINFO_RECV_TOPK_ROWS)[at] = isThere ? local : -1;
      regionOf<int32_t>(exchange, target.rank, MOERT_WORKSPACE_RECV_TOPK_INDICES)[at] = place;
      regionOf<float>(exchange, target.rank, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[at] = weight;
      if (target.rank == me && i % topK == 0) *rowFlag(call, me, me, target.index) = static_cast<uint32_t>(first + inTile);
    }
  }
  syncWorkers();
}

// Routes the tokens of a block, a tile at each call, and hands the tiles to the mover; pushes what it does not.
template <Receives kReceives, int kTopK> class Router {
public:
  __device__ Router(const Call &call, const Begun &begun, Memory *memory, const Counter<kReceives, kTopK> &counter)
      : call(call), begun(begun), memory(memory), counter(counter), next(rangeBegin(call.tokens, blockIdx.x)),
        end(rangeBegin(call.tokens, blockIdx.x + 1)) {}

  __device__ bool isDone() const { return next >= end; }
  __device__ int tiles() const { return number; }

  // `first`: of the lane's token of the first tile.
  __device__ void route(const Ids<kTopK> &first) {
    Tile *tile = &memory->tiles[number % 2];
    const int count = static_cast<int>(end - next < kTile ? end - next : kTile);
    const Ids<kTopK> ids = number == 0 ? first : reopen(tile);
    routeTile<kTopK>(call, begun, memory, tile, ids, next, count);
    if (threadIdx.x == 0) storeShared(&memory->progress.handed, number + 1);
    if (kReceives == Receives::groups) {
      if (number == 0) counter.endExperts();
      placeChoices(call, begun, memory, expertTable(memory), next, count);
      pushChoices(call, *memory, *tile, next, count);
    }
    if (call.numBulk < call.numPayloads) pushNarrow(*tile, count);
    cover();
    next += count;
    ++number;
  }

private:
  __device__ Ids<kTopK> reopen(Tile *tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Ids<kTopK> ids(call, next + lane, next + lane < end);
    if (threadIdx.x == 0) awaitEnded(memory->progress, number - 1);
    syncWorkers(); // the tile before the last has been read
    if (threadIdx.x < kTile) tile->numTargets[threadIdx.x] = 0;
    syncWorkers();
    return ids;
  }

  __device__ void pushNarrow(const Tile &tile, int count) {
    int begin = 0;
#pragma unroll 1
    for (int i = 0; i < call.numPayloads; ++i) {
      const Payload &payload = call.payloads[i];
      if (payload.isBulk) continue;
      const PushedRows<kReceives> rows = {call, tile, payload, next, count, payload.rowBytes};
      copyRows<1>(payload.team, &begin, payload.sendWidth, rows);
    }
  }

  // The workers have stored what is theirs of the tile.
  __device__ void cover() {
    if (kReceives == Receives::inPlace) return; // there are no flags
    syncWorkers();
    if (threadIdx.x != 0) return;
    storeShared(&memory->placer.own, memory->sent[call.round.exchange.watch.rank]);
    storeShared(&memory->progress.covered, number + 1);
  }

  const Call &call;
  const Begun &begun;
  Memory *memory;
  const Counter<kReceives, kTopK> &counter;
  int64_t next, end;
  int number = 0;
};

// The rows that the mover pushes: of all tokens of the block all payloads for the copy engine. kIsOnly: there is one of them; of short rows several
// tokens go at a time then. One thread does it all, and so it keeps at hand what it needs of the payload that it is at.
template <Receives kReceives, bool kIsOnly> class PushCursor {
public:
  __device__ PushCursor(const Call &call, const Begun &begun, Memory *memory, int mover = 0)
      : call(call), begun(begun), memory(memory), me(call.round.exchange.watch.rank), mover(mover), first(rangeBegin(call.tokens, blockIdx.x)),
        tokens(static_cast<uint32_t>(rangeBegin(call.tokens, blockIdx.x + 1) - first)), passes(1 + mover) {
    if (!kIsOnly) return;
    choose(nextBulk(0));
    offset = rowBytes;
    const int fit = static_cast<int>(bulk::kStageBytes / rowBytes);
    together = static_cast<uint32_t>(fit < 1 ? 1 : fit < kTogether ? fit : kTogether);
  }

  __device__ bool next(bulk::Piece *piece) {
    offset += bytes;
    if (offset >= rowBytes) nextRows();
    if (token >= tokens) return false;
    bytes = rowBytes - offset < bulk::kStageBytes ? rowBytes - offset : bulk::kStageBytes;
    *piece = {from + static_cast<uint64_t>(token) * rowBytes + offset, bytes * count};
    return true;
  }

  __device__ void storeTo(const char *stage) {
    if (token / kTile >= entered) enterTile();
    if (isAbandoned()) return;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) storeRow(stage + i * rowBytes, token + i);
  }

  // What is told next may begin with a tile, of which the workers have to have stored their part.
  __device__ void settle() {
    if (token + count < tokens) awaitCovered((token + count) / kTile);
    fenceSystem();
  }

  __device__ void finish() {
    if (offset + bytes < rowBytes || (!kIsOnly && payload != last)) return;
    for (uint32_t i = 0; i < count; ++i) endToken(token + i);
  }

  // Of tokens that the workers push alone.
  __device__ void finishAll() {
    for (uint32_t each = 0; each < tokens; ++each) {
      if (each % kTile == 0) awaitProgress(&memory->progress.handed, static_cast<int>(each / kTile) + 1);
      endToken(each);
    }
  }

private:
  __device__ int nextBulk(int from) const {
    while (from < call.numPayloads && !call.payloads[from].isBulk) ++from;
    return from;
  }

  __device__ void choose(int number) {
    if (number >= call.numPayloads) return;
    const Payload &chosen = call.payloads[number];
    const int64_t lane = laneRow(call, me, 0) * chosen.rowBytes;
    payload = number;
    from = chosen.from + first * chosen.rowBytes;
    rowBytes = static_cast<uint32_t>(chosen.rowBytes);
    area = chosen.area + lane;
    own = chosen.recv + lane;
    last = nextBulk(number + 1) < call.numPayloads ? -1 : number;
  }

  // The next payload, or the next tokens of a tile.
  __device__ void nextRows() {
    const bool isLast = kIsOnly || payload == last;
    offset = bytes = 0;
    if (!kIsOnly) choose(nextBulk(isLast ? 0 : payload + 1));
    if (!isLast) return;
#pragma unroll 1
    for (; passes > 0; --passes) {
      token += count;
      const uint32_t ofTile = kTile - token % kTile, left = tokens - token;
      count = together < ofTile ? together : ofTile;
      if (left < count) count = left;
    }
    passes = moversOf(kReceives);
  }

  __device__ bool isAbandoned() const { return loadShared(&memory->progress.handed) == kAbandoned; }

  // When it has been routed. What is before it has been looked at.
  __device__ void enterTile() {
    const int tile = static_cast<int>(token / kTile);
    awaitProgress(&memory->progress.handed, tile + 1);
    if (kReceives == Receives::inPlace) storeShared(&memory->progress.ended[mover], tile);
    entered = static_cast<uint32_t>(tile) + 1;
  }

  // Where a row goes is looked up for two targets at once: one takes as long as both.
  __device__ void storeRow(const char *stage, uint32_t token) const {
    const Tile &tile = memory->tiles[token / kTile % 2];
    const Target *targets = tile.targets[token % kTile];
    const int count = tile.numTargets[token % kTile];
#pragma unroll 1
    for (int i = 0; i < count; i += 2) {
      const bool hasSecond = i + 1 < count;
      const Target both[2] = {targets[i], targets[hasSecond ? i + 1 : i]};
      char *const places[2] = {placeFor(both[0]), placeFor(both[1])};
      if (isPushed(both[0])) bulk::store(places[0], stage, bytes);
      if (isPushed(both[1]) && hasSecond) bulk::store(places[1], stage, bytes);
    }
  }

  // The placer takes grouped rows of this rank.
  __device__ bool isPushed(const Target &target) const { return kReceives != Receives::groups || target.rank != me; }

  __device__ char *placeFor(const Target &target) const {
    char *lane = target.rank == me && kReceives == Receives::copies ? own : call.round.exchange.slabs[target.rank] + area;
    return lane + static_cast<uint64_t>(static_cast<uint32_t>(target.index)) * rowBytes + offset;
  }

  // Whether this was not known before.
  __device__ bool awaitCovered(uint32_t tile) {
    if (tile < covered) return false;
    awaitProgress(&memory->progress.covered, static_cast<int>(tile) + 1);
    covered = tile + 1;
    return true;
  }

  // Sets the flags of a token's rows.
  __device__ void endToken(uint32_t token) {
    const Tile &tile = memory->tiles[token / kTile % 2];
    const uint32_t inTile = token % kTile;
    if (awaitCovered(token / kTile)) fenceSystem();
    for (int i = 0; !isAbandoned() && (call.round.parts & kSignal) && call.round.stop == kGoOn && i < tile.numTargets[inTile]; ++i) {
      const Target target = tile.targets[inTile][i];
      if (target.rank != me) storeRelaxed(rowFlag(call, target.rank, me, target.index), begun.epoch);
    }
    if (inTile == kTile - 1 || token == tokens - 1) storeShared(&memory->progress.ended[0], static_cast<int>(token / kTile) + 1);
  }

  const Call &call;
  const Begun &begun;
  Memory *memory;
  const int me, mover; // mover: its number
  const int64_t first;
  const uint32_t tokens;
  uint32_t together = 1;         // tokens that go at a time, within a tile, to each mover in turn
  uint32_t token = 0, count = 0; // those that do
  int passes;                    // to pass, with those of other movers in between, until the next ones
  uint32_t entered = 0, covered = 0;
  int payload = 0, last = 0; // last: of the payloads for the copy engine, if this is it
  const char *from = nullptr;
  char *own = nullptr;
  int64_t area = 0;
  uint32_t rowBytes = 0, offset = 0, bytes = 0;
};

// Parts of a block that add shares of their own: the workers, for the mover too if there is a teller, or they and each mover.
__host__ __device__ constexpr uint32_t partsOf(Receives receives) { return receives == Receives::inPlace ? 3 : 1; }

template <Receives kReceives> __device__ void addPart(const Call &call, const Begun &begun, uint32_t part, int first, int step) {
  const uint32_t parts = partsOf(kReceives);
  addShare(call.round, begun, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS, blockIdx.x * parts + part, gridDim.x * parts, first, step);
}

// By a mover.
template <Receives kReceives> __device__ void moveRows(const Call &call, const Begun &begun, Memory *memory, char *stages, int mover) {
  const auto telling = kReceives == Receives::inPlace ? bulk::Telling::never : bulk::Telling::byTeller;
  bulk::Barriers *barriers = &memory->barriers[mover];
  stages += mover * kShareStages * bulk::kStageBytes;
  if (call.numBulk == 1)
    bulk::moveAll<kShareStages>(barriers, stages, PushCursor<kReceives, true>(call, begun, memory, mover), telling);
  else if (call.numBulk > 1)
    bulk::moveAll<kShareStages>(barriers, stages, PushCursor<kReceives, false>(call, begun, memory, mover), telling);
  if (kReceives != Receives::inPlace) return;
  storeShared(&memory->progress.ended[mover], INT_MAX);
  if (loadShared(&memory->progress.handed) == kAbandoned) return;
  addPart<kReceives>(call, begun, 1 + static_cast<uint32_t>(mover), 0, 1);
}

// By the teller.
template <Receives kReceives> __device__ void tellRows(const Call &call, const Begun &begun, Memory *memory) {
  if (call.numBulk == 1)
    bulk::tellAll(memory->barriers[0], PushCursor<kReceives, true>(call, begun, memory));
  else if (call.numBulk > 1)
    bulk::tellAll(memory->barriers[0], PushCursor<kReceives, false>(call, begun, memory));
  else
    PushCursor<kReceives, false>(call, begun, memory).finishAll();
}

//===--- receiving --------------------------------------------------------------------------------===//

// A payload's rows from `row` on of what has arrived; or of this rank's tokens for itself, whose numbers are `own`.
template <Receives kReceives> struct TakenRows {
  const Call &call;
  const Memory &memory;
  const Payload &payload;
  int64_t row;
  const uint32_t *own;
  int count;
  int64_t bytes;

  __device__ const char *source(int number) const {
    const Exchange &exchange = call.round.exchange;
    if (!own) return exchange.slabs[exchange.watch.rank] + payload.area + (row + number) * bytes;
    return payload.from + static_cast<int64_t>(own[number]) * bytes;
  }
  __device__ int places(int) const { return kReceives == Receives::groups ? call.topK : 1; }
  __device__ char *place(int number, int k) const {
    const int64_t to = kReceives == Receives::groups ? memory.places[number * call.topK + k] : row + number;
    return to < 0 ? nullptr : payload.recv + to * bytes;
  }
};

// Which of a source's rows a block takes elsewhere.
struct Range {
  int32_t begin, end;
};

template <Receives kReceives> __device__ Range rangeOf(const Call &call, const Memory &memory, int source) {
  if (source != call.round.exchange.watch.rank) {
    const int32_t received = memory.received[source];
    return {rangeBegin(received, blockIdx.x), rangeBegin(received, blockIdx.x + 1)};
  }
  if (kReceives != Receives::groups) return {0, 0};
  return {memory.ownBegin, loadShared(&memory.placer.own)};
}

//===--- by workers -------------------------------------------------------------------------------===//

// The rows of payloads that are not the placer's, when it has found all places. They have come.
template <Receives kReceives> __device__ void copyReceived(const Call &call, Memory *memory) {
  const int ranks = call.round.exchange.watch.ranks, me = call.round.exchange.watch.rank;
  awaitProgress(&memory->placer.placed, kKnown);
  if (loadShared(&memory->placer.placed) != kKnown) return;
  for (int source = 0; source < ranks; ++source) {
    const Range range = rangeOf<kReceives>(call, *memory, source);
    for (int32_t first = range.begin; first < range.end; first += kMaxGroup) {
      const int count = range.end - first < kMaxGroup ? range.end - first : kMaxGroup;
      const int64_t row = laneRow(call, source, first);
      int begin = 0;
      for (int i = static_cast<int>(threadIdx.x); kReceives == Receives::groups && i < count * call.topK; i += kThreads)
        memory->places[i] = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[row * call.topK + i];
      syncWorkers();
#pragma unroll 1
      for (int i = 0; i < call.numPayloads; ++i) {
        const Payload &payload = call.payloads[i];
        if (payload.isInPlace || payload.isBulk) continue;
        const bool isOwn = source == me;
        const TakenRows<kReceives> rows = {call, *memory, payload, row, isOwn ? rowFlag(call, me, me, first) : nullptr, count, payload.rowBytes};
        copyRows<1>(payload.team, &begin, isOwn && payload.sendWidth < payload.receiveWidth ? payload.sendWidth : payload.receiveWidth, rows);
      }
      syncWorkers(); // the places have been read
    }
  }
}

//===--- by the placer: what comes from where -----------------------------------------------------===//

// The numbers that peers told, which are their own flags. As `look` of `awaitWarp`: it leaves what it has seen where it belongs.
template <Receives kReceives> class Told {
public:
  __device__ Told(const Call &call, const Begun &begun, Memory *memory)
      : call(call), begun(begun), me(call.round.exchange.watch.rank), experts(numbersFor<kReceives>(call, me) - 1), received(memory->received),
        bases(baseTable(call, memory)) {}

  __device__ int operator()() const {
    int missing = kHere;
#pragma unroll 1
    for (int source = 0; source < call.round.exchange.watch.ranks; ++source) {
      const bool isThere = takesPart(begun, source);
      const unsigned long long *words = groupCounts<kReceives>(call, me, source);
#pragma unroll 4
      for (int i = laneNumber(); i <= experts; i += 32) {
        const unsigned long long told = isThere ? loadRelaxed(words + i) : 0;
        if (isThere && told >> 32 != begun.epoch) missing = source;
        (i == experts ? received[source] : bases[source * experts + i]) = static_cast<int32_t>(told);
      }
    }
    return missing;
  }

private:
  const Call &call;
  const Begun &begun;
  const int me, experts;
  int32_t *received, *bases;
};

// From how many rows there are of each expert and source to where these begin. Returns how many rows these are.
__device__ inline long long placeExperts(int32_t *bases, int ranks, int local) {
  long long before = 0;
#pragma unroll 1
  for (int first = 0; first < local; first += 32) {
    const int expert = first + laneNumber();
    long long mine = 0;
    for (int source = 0; expert < local && source < ranks; ++source) mine += bases[source * local + expert];
    long long sum = mine;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const long long other = __shfl_up_sync(~0u, sum, distance);
      if (laneNumber() >= distance) sum += other;
    }
    long long row = before + sum - mine;
    before += __shfl_sync(~0u, sum, 31);
    for (int source = 0; expert < local && source < ranks; ++source) {
      const int32_t rows = bases[source * local + expert];
      bases[source * local + expert] = static_cast<int32_t>(row);
      row += rows;
    }
  }
  __syncwarp();
  return before;
}

// By block 0. The peers have all they wait for: they may finish this call while this rank reports that it has no room.
__device__ inline void endGroups(const Call &call, const int32_t *bases, long long rows, long long most, int local) {
  const Exchange &exchange = call.round.exchange;
  for (int expert = laneNumber(); rows <= most && expert < local; expert += 32) call.offsets[expert] = bases[expert];
  if (laneNumber() != 0) return;
  stateOf(exchange)->rows = rows;
  if (rows <= most) {
    call.offsets[local] = static_cast<int32_t>(rows);
    return;
  }
  report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_DISPATCH_CAPACITY, rows, exchange.watch.rank, most);
  stateOf(exchange)->full = 1;
  tellPeers(exchange);
}

// How many rows come from each source, and where those of each expert begin.
template <Receives kReceives> __device__ Learnt learn(const Call &call, const Begun &begun, Memory *memory) {
  const int ranks = call.round.exchange.watch.ranks, me = call.round.exchange.watch.rank;
  if (!awaitWarp(call.round, begun, Told<kReceives>(call, begun, memory))) return kFailed;
  if (!(call.round.parts & kPush) && laneNumber() == 0) { // then this rank's own rows are divided like those of others
    memory->ownBegin = rangeBegin(memory->received[me], blockIdx.x);
    storeShared(&memory->placer.own, rangeBegin(memory->received[me], blockIdx.x + 1));
    storeShared(&memory->placer.isRouted, 1);
  }
  if (kReceives != Receives::groups) return kKnown;
  const int local = static_cast<int>(localExperts(call, me));
  const long long rows = placeExperts(baseTable(call, memory), ranks, local), most = call.capacity < INT32_MAX ? call.capacity : INT32_MAX;
  if (blockIdx.x == 0) endGroups(call, baseTable(call, memory), rows, most, local);
  return rows > most ? kNothing : kKnown;
}

//===--- by the placer: rows ----------------------------------------------------------------------===//

// A warp that takes the block's rows to their places as they come, by way of stages. Each lane finds the place of one of a row's choices.
template <Receives kReceives> class Placer {
public:
  __device__ Placer(const Call &call, const Begun &begun, Memory *memory, char *stages)
      : call(call), begun(begun), memory(memory), stages(stages), me(call.round.exchange.watch.rank), lane(static_cast<int>(threadIdx.x) % 32),
        source(me) {}

  // False if the round has failed.
  __device__ bool run() {
    const Learnt learnt = learn<kReceives>(call, begun, memory);
    const bool isKnown = learnt == kKnown;
    __syncwarp();
    if (lane == 0) storeShared(&memory->placer.learnt, learnt);
    fails = learnt == kFailed;
    if (isKnown) {
      awaitProgress(&memory->placer.own, 0);
      own = kReceives == Receives::groups ? memory->ownBegin : 0;
      findSource();
      placeRows();
    }
    bulk::awaitStores<0>();
    __syncwarp();
    if (lane == 0) storeShared(&memory->placer.placed, isKnown && !fails ? kKnown : kNothing);
    return !fails;
  }

private:
  __device__ void placeRows() {
    for (;;) {
      const bool hasRoom = loaded - stored < kShareStages - 1, isFound = hasRoom && !hasPiece() && findRow(loaded == stored);
      if (hasRoom && hasPiece())
        loadPiece();
      else if (stored < loaded)
        storePiece();
      else if (!isFound)
        return;
    }
  }

  // The next source that has rows for this block; none: source is -1.
  __device__ void findSource() {
    const int ranks = call.round.exchange.watch.ranks;
    for (int tries = 0; tries < ranks; ++tries) {
      source = source + 1 == ranks ? 0 : source + 1;
      if (source == me) break;
      const Range range = rangeOf<kReceives>(call, *memory, source);
      next = range.begin;
      end = range.end;
      if (next < end) {
        openWindow();
        return;
      }
    }
    source = -1;
    window = 0;
  }

  // Of the rows from `next` on the lanes look for one each, for they need not come in their order.
  __device__ void openWindow() { window = end - next < 32 ? (1u << (end - next)) - 1 : ~0u; }

  __device__ int32_t ownEnd() const { return __shfl_sync(~0u, rangeOf<kReceives>(call, *memory, me).end, 0); }

  // As `look` of `awaitWarp`.
  __device__ int look() const {
    if (!(window >> lane & 1)) return kIdle;
    return !(call.round.parts & kSignal) || loadAcquire(rowFlag(call, me, source, next + lane)) == begun.epoch ? kHere : source;
  }

  // A row that is here, of a peer or of this rank; if `waits`, waits for one. False: there is none, or none is left, or the round has failed.
  __device__ bool findRow(bool waits) {
    for (;;) {
      if (!here) lookForRows();
      const bool areAll = kReceives != Receives::groups || __all_sync(~0u, loadShared(&memory->placer.isRouted)); // before `ownEnd`
      if (here) {
        takeArrived(__ffs(static_cast<int>(here)) - 1);
        return true;
      }
      if (own < ownEnd()) {
        takeOwn();
        return true;
      }
      if (!waits || (source < 0 && areAll)) return false;
      if (source < 0) continue; // the workers are still routing
      fails = !awaitWarp<true>(call.round, begun, [&] { return own < rangeOf<kReceives>(call, *memory, me).end ? kHere : look(); });
      if (fails) return false;
    }
  }

  __device__ void lookForRows() {
    here = __ballot_sync(~0u, look() == kHere);
    __syncwarp(); // what one lane has seen others may read
    bulk::orderLoads();
  }

  __device__ void takeArrived(int inWindow) {
    takeRow(source, next + inWindow);
    here &= ~(1u << inWindow);
    window &= ~(1u << inWindow);
    if (window) return;
    next += 32;
    if (next < end)
      openWindow();
    else
      findSource();
  }

  // The numbers of a few tokens are read at once.
  __device__ void takeOwn() {
    if (own >= knownEnd) {
      const int32_t routed = ownEnd();
      knownBegin = own;
      knownEnd = routed - own < 32 ? routed : own + 32;
      tokens = own + lane < knownEnd ? *rowFlag(call, me, me, own + lane) : 0;
    }
    token = __shfl_sync(~0u, tokens, own - knownBegin);
    takeRow(me, own++);
  }

  __device__ void takeRow(int from, int32_t index) {
    row = laneRow(call, from, index);
    taken = from;
    begins = true;
    payload = -1;
    passPayload();
    if (hasPiece() || kReceives != Receives::groups || lane >= call.topK) return;
    place(from, row, *choiceOf(MOERT_METAINFO_RECV_TOPK_ROWS, row), *choiceOf(MOERT_WORKSPACE_RECV_TOPK_INDICES, row));
  }

  // What `field` has of the lane's choice.
  __device__ int32_t *choiceOf(int field, int64_t row) const { return regionOf<int32_t>(call.round.exchange, field) + row * call.topK + lane; }

  // The row of the layout that the lane's choice has. It stays in the workspace for the combine.
  __device__ int64_t place(int from, int64_t row, int32_t expert, int32_t number) const {
    if (expert < 0) return -1;
    const int32_t base = baseTable(call, memory)[from * static_cast<int>(localExperts(call, me)) + expert];
    return *choiceOf(MOERT_METAINFO_RECV_TOPK_ROWS, row) = base + number;
  }

  __device__ bool hasPiece() const { return payload < call.numPayloads; }

  __device__ void passPayload() {
    offset = 0;
    ++payload;
    while (hasPiece() && (!call.payloads[payload].isBulk || call.payloads[payload].isInPlace)) ++payload;
  }

  __device__ void loadPiece() {
    const Payload &piece = call.payloads[payload];
    const uint32_t left = static_cast<uint32_t>(piece.rowBytes) - offset, bytes = left < bulk::kStageBytes ? left : bulk::kStageBytes;
    const int stage = loaded % kShareStages;
    Placing *placing = &memory->placings[stage];
    if (bulk::isChosen()) {
      const bool isOwn = taken == me;
      const char *from =
          isOwn ? piece.from + static_cast<int64_t>(token) * piece.rowBytes : call.round.exchange.slabs[me] + piece.area + row * piece.rowBytes;
      bulk::load(stages + stage * bulk::kStageBytes, from + offset, bytes, &memory->barriers[1].full[stage]);
      placing->recv = piece.recv + offset;
      placing->rowBytes = piece.rowBytes;
      placing->row = row;
      placing->bytes = bytes;
      placing->source = taken;
      placing->begins = begins;
    }
    if (kReceives == Receives::groups && begins && lane < call.topK) {
      bulk::copyWord(&placing->experts[lane], choiceOf(MOERT_METAINFO_RECV_TOPK_ROWS, row));
      bulk::copyWord(&placing->numbers[lane], choiceOf(MOERT_WORKSPACE_RECV_TOPK_INDICES, row));
    }
    bulk::closeCopies();
    __syncwarp();
    begins = false;
    ++loaded;
    offset += bytes;
    if (bytes == left) passPayload();
  }

  __device__ void storePiece() {
    const int stage = stored % kShareStages;
    const Placing &placing = memory->placings[stage];
    if (loaded - stored > 1)
      bulk::awaitCopies<1>();
    else
      bulk::awaitCopies<0>();
    if (placing.begins) to = placeOf(placing);
    bulk::await(&memory->barriers[1].full[stage], static_cast<uint32_t>(stored / kShareStages) & 1);
#pragma unroll 1
    for (uint32_t left = __ballot_sync(~0u, to >= 0); left; left &= left - 1) {
      const int64_t place = __shfl_sync(~0u, to, __ffs(static_cast<int>(left)) - 1);
      if (bulk::isChosen()) bulk::store(placing.recv + place * placing.rowBytes, stages + stage * bulk::kStageBytes, placing.bytes);
    }
    bulk::closeGroup();
    ++stored;
    bulk::awaitReads<1>();
    __syncwarp();
  }

  // Where the lane takes the row, -1: nowhere.
  __device__ int64_t placeOf(const Placing &placing) const {
    if (kReceives != Receives::groups) return lane == 0 ? placing.row : -1;
    return lane < call.topK ? place(placing.source, placing.row, placing.experts[lane], placing.numbers[lane]) : -1;
  }

  const Call &call;
  const Begun &begun;
  Memory *memory;
  char *stages;
  const int me, lane;
  bool fails = false;
  int source, loaded = 0, stored = 0;
  int32_t next = 0, end = 0;                     // of the source
  uint32_t window = 0, here = 0;                 // of its rows from `next` on: those that are not taken, and those of them that are here
  int32_t own = 0, knownBegin = 0, knownEnd = 0; // of this rank's rows: the next, and those whose tokens the lanes know
  uint32_t tokens = 0;
  int64_t row = 0; // of the row that is being loaded
  int taken = 0, payload = INT32_MAX;
  uint32_t token = 0, offset = 0;
  bool begins = false;
  int64_t to = -1; // of the row that is being stored
};

//===--- outputs ----------------------------------------------------------------------------------===//

// By block 0, when all has arrived. The rows of ranks that do not take part are 0.
__device__ inline void gatherStats(const Call &call, const Begun &begun) {
  const Exchange &exchange = call.round.exchange;
  const int32_t *rows = regionOf<const int32_t>(exchange, MOERT_METAINFO_EPLB_GATHERED_STATS);
  for (int source = 0; source < exchange.watch.ranks; ++source)
    for (int64_t i = threadIdx.x; i < call.numStats; i += kThreads)
      call.gatheredStats[source * call.numStats + i] = takesPart(begun, source) ? rows[source * call.statsStride + i] : 0;
}

//===--- the kernel -------------------------------------------------------------------------------===//

// All tiles are routed.
template <Receives kReceives> __device__ void endPush(const Call &call, const Begun &begun, const Memory *memory, int tiles) {
  sendStats(call, begun);
  if (blockIdx.x == gridDim.x - 1) sendCounts<kReceives>(call, begun, memory->sent);
  syncWorkers();
  if (kReceives != Receives::inPlace && threadIdx.x < 32) awaitEnded(memory->progress, tiles);
  if (threadIdx.x < 32) addPart<kReceives>(call, begun, 0, laneNumber(), 32);
}

// Whether there are rows that the placer leaves to the workers.
__device__ inline bool copiesAny(const Call &call) {
  bool any = false;
  for (int i = 0; i < call.numPayloads; ++i) any |= !call.payloads[i].isBulk && !call.payloads[i].isInPlace;
  return any;
}

// By the workers: mover and teller have nothing to do any more, and the placer none of this rank's rows.
__device__ inline void abandon(Memory *memory) {
  if (threadIdx.x != 0) return;
  storeShared(&memory->progress.handed, kAbandoned);
  storeShared(&memory->progress.covered, kAbandoned);
  storeShared(&memory->placer.own, 0);
  storeShared(&memory->placer.isRouted, 1);
}

// The workers' part. False if the round has failed.
template <Receives kReceives, int kTopK>
__device__ bool exchangeRows(const Call &call, const Begun &begun, Memory *memory, const Ids<kTopK> &ids, const Counter<kReceives, kTopK> &counter) {
  const bool receives = kReceives != Receives::inPlace && (call.round.parts & kReceive) && call.round.stop == kGoOn;
  if (call.round.parts & kPush) {
    if (!counter.endRanks()) {
      abandon(memory);
      return false;
    }
    Router<kReceives, kTopK> router(call, begun, memory, counter);
    while (!router.isDone()) router.route(ids);
    if (threadIdx.x == 0) storeShared(&memory->placer.isRouted, 1);
    endPush<kReceives>(call, begun, memory, router.tiles());
  }
  if (!receives) return true;
  awaitProgress(&memory->placer.learnt, kKnown);
  const int learnt = loadShared(&memory->placer.learnt);
  if (learnt == kKnown && copiesAny(call)) copyReceived<kReceives>(call, memory);
  return learnt != kFailed;
}

// By a warp of block 0: how many rows have come from a rank, for the caller and the combine.
__device__ inline void noteReceived(const Call &call, int source, int32_t received) {
  const Exchange &exchange = call.round.exchange;
  regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_COUNTERS)[source] = regionOf<int32_t>(exchange, MOERT_METAINFO_COUNT_FLAGS)[source] = received;
  if (call.recvCounts) call.recvCounts[source] = received;
}

// By a warp of block 0: how many rows come from each source, for the caller and the combine. False if the round has failed.
__device__ inline bool learnTotals(const Call &call, const Begun &begun) {
  const Exchange &exchange = call.round.exchange;
  int32_t low = 0, high = 0; // from ranks `lane` and 32 + lane
  const auto look = [&](int peer) {
    const unsigned long long told = loadRelaxed(totalAt(call, exchange.watch.rank, peer));
    (peer < 32 ? low : high) = static_cast<int32_t>(told);
    return told >> 32 == begun.epoch;
  };
  if (!awaitBegun(call.round, begun, look)) return false;
  for (int peer = laneNumber(); peer < exchange.watch.ranks; peer += 32) noteReceived(call, peer, peer < 32 ? low : high);
  return true;
}

// By a warp of block 0: until all rows have come, and it is noted how many. False if the round has failed.
template <Receives kReceives> __device__ bool awaitRows(const Call &call, const Begun &begun, const Memory &memory) {
  const Exchange &exchange = call.round.exchange;
  const bool isTold = (call.round.parts & kSignal) != 0, areTotals = isTold && kReceives == Receives::inPlace;
  if (areTotals && !learnTotals(call, begun)) return false;
  if (isTold && !areTotals && !awaitBegun(call.round, begun, [](int) { return true; })) return false;
  for (int source = laneNumber(); !areTotals && source < exchange.watch.ranks; source += 32)
    noteReceived(call, source,
                 isTold                     ? memory.received[source]
                 : takesPart(begun, source) ? regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_COUNTERS)[source]
                                            : 0);
  return !isTold || awaitShares(call.round, begun, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS);
}

// By the workers of block 0. False if the round has failed.
template <Receives kReceives> __device__ bool endRound(const Call &call, const Begun &begun, const Memory &memory) {
  if (anyWorker(warpNumber() == 0 && !awaitRows<kReceives>(call, begun, memory))) return false;
  gatherStats(call, begun);
  return true;
}

template <Receives kReceives, int kTopK>
__global__ void __launch_bounds__(boundOf(threadsOf(kReceives)), kBlocksPerSm) dispatchTokens(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) char stages[];
  Memory *memory = reinterpret_cast<Memory *>(stages + bulk::kBlockStages * bulk::kStageBytes);
  awaitStream();
  const bool pushes = (call.round.parts & kPush) != 0, receives = (call.round.parts & kReceive) && call.round.stop == kGoOn;
  const int64_t begin = rangeBegin(call.tokens, blockIdx.x), token = begin + threadIdx.x % 32;
  const Ids<kTopK> ids(call, token, token < rangeBegin(call.tokens, blockIdx.x + 1));
  Begun begun = readRound(call.round);
  const Counter<kReceives, kTopK> counter(call, begun, memory);
  if (isWorker() && pushes) counter.beginRanks();
  if (threadIdx.x < kTile) memory->tiles[0].numTargets[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    memory->progress = {};
    if (moversOf(kReceives) == 1) memory->progress.ended[1] = INT_MAX;
    memory->placer = {-1, 0, kNotYet, kNotYet};
    memory->ownBegin = 0;
    for (bulk::Barriers &barriers : memory->barriers) bulk::open(&barriers, 1);
  }
  shareBegin(call.round, NothingToCheck(), &begun);
  bool fails = begun.fails;
  if (call.round.stop == kStopAtCounts) return;
  if (warpNumber() == kWarps + 1 && laneNumber() == 0 && call.round.stop == kGoOn) countBegun(call.round, begun); // of rounds that fail, too
  __syncwarp();
  if (!fails && isWorker()) {
    fails = !exchangeRows<kReceives, kTopK>(call, begun, memory, ids, counter);
    if (blockIdx.x == 0 && !fails && receives) fails = !endRound<kReceives>(call, begun, *memory);
  } else if (!fails && threadIdx.x < kThreads + 64) {
    const int mover = warpNumber() - kWarps;
    if (pushes && bulk::isChosen()) {
      if (mover < moversOf(kReceives))
        moveRows<kReceives>(call, begun, memory, stages, mover);
      else
        tellRows<kReceives>(call, begun, memory);
    }
    __syncwarp(); // barriers count warps
  } else if (!fails && receives) {
    Placer<kReceives> placer(call, begun, memory, stages + kShareStages * bulk::kStageBytes);
    fails = !placer.run();
  }
  if (call.round.stop != kGoOn) return;
  if (!leaveTurn(turnsOf(call.round), begun.turn, fails)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace dispatch

#endif

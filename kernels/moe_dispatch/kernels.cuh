//===- kernels.cuh - moe.dispatch on devices ----------------------------------------------------------===//
//
// lib/reference/moe_dispatch.c says what is written where; this kernel writes the same bits.
//
// A block has a range of this rank's tokens, and ranges of the rows that come from each peer. Its workers count which tokens before its own go to
// which rank, and so know the places of its rows, with nobody's help. The mover pushes the rows, and the teller sets their flags. Rows that are
// received in the workspace are then where they belong. Others the block's placer, a warp, takes to their destinations as they come. For the layout
// expert_grouped the last block tells each rank how many rows there are for each of its experts. From what all ranks tell, every block finds where an
// expert's rows from a source begin; with each row comes its place among those.
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
const int kMaxGroup = 32; // received rows that are copied at a time
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
  Owners owners;
  int32_t *recvCounts, *offsets; // may be NULL
  const int32_t *stats;
  int32_t *gatheredStats;
  int64_t numStats, statsStride; // of each rank, 0: none; from row to row of EPLB_GATHERED_STATS
  Payload payloads[MOERT_WORKSPACE_MAX_PAYLOADS];
  Output outputs[kOutputs];
};

//===--- experts ----------------------------------------------------------------------------------===//

__device__ inline bool isExpert(const Call &call, int32_t id) { return id >= 0 && id < call.experts; }

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

// A block that places rows shares its stages between the mover and the placer.
__host__ __device__ constexpr int moverStages(Receives receives) {
  return receives == Receives::inPlace ? bulk::kBlockStages : bulk::kBlockStages / 2;
}
// The workers, the warps of mover and teller, and the placer.
__host__ __device__ constexpr int threadsOf(Receives receives) { return kThreads + (receives == Receives::inPlace ? 64 : 96); }
const int kPlacerStages = bulk::kBlockStages / 2;

// Of a row that the placer has in a stage.
struct Placing {
  char *recv; // of the piece, in row 0
  int64_t rowBytes, row;
  uint32_t bytes;
  int source;
  bool begins;                                  // the piece is the row's first
  int32_t experts[kMaxTopK], numbers[kMaxTopK]; // of its choices, on their way when it is
};

enum Learnt { kNotYet, kKnown, kNothing }; // kNothing: there is no room, or the round has failed

// What workers and placer tell each other, in the shared memory of a block.
struct PlacerProgress {
  int learnt;        // a `Learnt`: how many rows come from where, by the workers
  int own, isRouted; // rows of this rank for itself that may be taken, behind those of the blocks before; whether these are all
  int placed;        // by the placer: that all rows are, kKnown or kNothing
};

// What a block knows of its tokens; the tables of the layout expert_grouped lie behind it.
struct Memory {
  Progress progress; // in tiles
  PlacerProgress placer;
  bulk::Barriers barriers, placerBarriers;
  Placing placings[kPlacerStages];
  int32_t before[kWarps][MOERT_MAX_RANKS]; // rows for each rank of the tokens before this block's, as each warp has counted them
  int32_t sent[MOERT_MAX_RANKS];           // rows for each rank up to here
  int32_t totals[MOERT_MAX_RANKS];         // in the last block: of all tokens
  int32_t received[MOERT_MAX_RANKS];       // rows of each source
  bool isFull;                             // they have no room
  int32_t ownBegin;                        // rows of this rank for itself of the tokens before
  Tile tiles[2];                           // one is routed while the mover works on the other
  int32_t places[kMaxGroup * kMaxTopK];    // of the choices of a tile among their experts', and of received rows that are copied
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
  __device__ Ids(const Call &call, int64_t token, bool exists) : ids(exists ? call.ids + token * call.topK : nullptr) {}
  static __device__ int count(const Call &call) { return call.topK; }
  __device__ int32_t operator[](int k) const { return ids ? ids[k] : -1; }
};

template <int kTopK> __device__ unsigned long long ranksOf(const Call &call, const Ids<kTopK> &ids) {
  unsigned long long named = 0;
#pragma unroll
  for (int k = 0; k < ids.count(call); ++k)
    if (isExpert(call, ids[k])) named |= 1ull << ownerOf(call, ids[k]);
  return named;
}

// counts[r]: how many of the tokens [begin, end) that this warp looks at, 32 at a time, go to rank r.
template <int kTopK> __device__ void countTokens(const Call &call, const Begun &begun, int64_t begin, int64_t end, int32_t *counts) {
  const int ranks = call.round.exchange.watch.ranks, lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int32_t low = 0, high = 0; // of ranks `lane` and 32 + lane
#pragma unroll 4
  for (int64_t first = begin + warp * 32; first < end; first += kThreads) {
    const Ids<kTopK> ids(call, first + lane, first + lane < end);
    const unsigned long long named = ranksOf(call, ids) & begun.mask;
    for (int rank = 0; rank < ranks; ++rank) {
      const int32_t count = __popc(__ballot_sync(~0u, named >> rank & 1));
      low += rank == lane ? count : 0;
      high += rank == lane + 32 ? count : 0;
    }
  }
  counts[lane] = low;
  counts[lane + 32] = high;
}

// By a warp, all lanes of which get the sum of what the warps have counted.
__device__ inline int32_t sumOfWarps(const Memory &memory, int rank) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t sum = lane < kWarps ? memory.before[lane][rank] : 0;
#pragma unroll
  for (int distance = kWarps / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  return __shfl_sync(~0u, sum, 0);
}

// Adds, to table[e], how often the tokens [begin, end) choose expert e. Many choices are on their way at once.
__device__ inline void countChoices(const Call &call, const Begun &begun, int64_t begin, int64_t end, int32_t *table) {
  const int kBatch = 16;
  for (int64_t first = begin * call.topK + threadIdx.x; first < end * call.topK; first += kBatch * kThreads) {
    int32_t ids[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) ids[i] = first + i * kThreads < end * call.topK ? call.ids[first + i * kThreads] : -1;
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (isExpert(call, ids[i]) && takesPart(begun, ownerOf(call, ids[i]))) atomicAdd(&table[ids[i]], 1);
  }
}

//===--- what peers are told ----------------------------------------------------------------------===//

// The numbers of rows, by the last block, behind all its tokens.
__device__ inline void sendCounts(const Call &call, const Begun &begun, const int32_t *totals) {
  const Exchange &exchange = call.round.exchange;
  const int rank = exchange.watch.rank, peer = static_cast<int>(threadIdx.x);
  if (peer >= exchange.watch.ranks) return;
  regionOf<int32_t>(exchange, MOERT_METAINFO_SEND_COUNTERS)[peer] = totals[peer];
  if (takesPart(begun, peer))
    regionOf<int32_t>(exchange, peer, MOERT_METAINFO_RECV_COUNTERS)[rank] = totals[peer];
  else
    regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_COUNTERS)[peer] = 0;
}

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

template <Receives kReceives> __device__ void sendGroupCounts(const Call &call, const Begun &begun, const int32_t *totals, const int32_t *table) {
  const int rank = call.round.exchange.watch.rank, ranks = call.round.exchange.watch.ranks;
  for (int32_t expert = static_cast<int32_t>(threadIdx.x); kReceives == Receives::groups && expert < call.experts; expert += kThreads) {
    const int owner = ownerOf(call, expert);
    unsigned long long *words = groupCounts<kReceives>(call, owner, rank);
    if (takesPart(begun, owner)) storeRelaxed(words + expert - firstExpert(call, owner), countWord(begun, table[expert]));
  }
  for (int peer = static_cast<int>(threadIdx.x); peer < ranks; peer += kThreads)
    if (takesPart(begun, peer))
      storeRelaxed(groupCounts<kReceives>(call, peer, rank) + numbersFor<kReceives>(call, peer) - 1, countWord(begun, totals[peer]));
}

// With all blocks of a kernel.
__device__ inline void sendStats(const Call &call, const Begun &begun) {
  const Exchange &exchange = call.round.exchange;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, row = exchange.watch.rank * call.statsStride;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < call.numStats; i += step)
    for (int peer = 0; peer < exchange.watch.ranks; ++peer)
      if (takesPart(begun, peer)) regionOf<int32_t>(exchange, peer, MOERT_METAINFO_EPLB_GATHERED_STATS)[row + i] = call.stats[i];
}

//===--- routing ----------------------------------------------------------------------------------===//

// Warps take ranks in turns, lanes the tokens of the tile. An entry of targets and indices belongs to the warp of its expert's rank; where there is
// none, to that of rank 0. `isFirst`: nothing is in memory->sent yet.
template <int kTopK>
__device__ void routeTile(const Call &call, const Begun &begun, Memory *memory, Tile *tile, const Ids<kTopK> &ids, int64_t first, int count,
                          bool isFirst) {
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
    const int32_t sent = isFirst ? sumOfWarps(*memory, rank) : memory->sent[rank], index = sent + __popc(goes & ((1u << lane) - 1));
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

// The places of the tile's choices among those of their experts, in the order of tokens and slots: behind the choices before, which `table` counts.
__device__ inline void placeChoices(const Call &call, const Begun &begun, Memory *memory, int32_t *table, int64_t first, int count) {
  const int choices = count * call.topK;
  const int32_t *ids = call.ids + first * call.topK;
  for (int choice = static_cast<int>(threadIdx.x); choice < choices; choice += kThreads) {
    const int32_t id = ids[choice];
    int32_t place = -1;
    if (isExpert(call, id) && takesPart(begun, ownerOf(call, id))) {
      place = table[id];
      for (int before = 0; before < choice; ++before) place += ids[before] == id;
    }
    memory->places[choice] = place;
  }
  syncWorkers();
  for (int choice = static_cast<int>(threadIdx.x); choice < choices; choice += kThreads)
    if (memory->places[choice] >= 0) atomicAdd(&table[ids[choice]], 1);
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
  __device__ Router(const Call &call, const Begun &begun, Memory *memory)
      : call(call), begun(begun), memory(memory), next(rangeBegin(call.tokens, blockIdx.x)), end(rangeBegin(call.tokens, blockIdx.x + 1)) {}

  __device__ bool isDone() const { return next >= end; }
  __device__ int tiles() const { return number; }

  // `first`: of the lane's token of the first tile.
  __device__ void route(const Ids<kTopK> &first) {
    Tile *tile = &memory->tiles[number % 2];
    const int count = static_cast<int>(end - next < kTile ? end - next : kTile);
    const Ids<kTopK> ids = number == 0 ? first : reopen(tile);
    routeTile<kTopK>(call, begun, memory, tile, ids, next, count, number == 0);
    if (threadIdx.x == 0) storeShared(&memory->progress.handed, number + 1);
    if (kReceives == Receives::groups) {
      placeChoices(call, begun, memory, expertTable(memory), next, count);
      pushChoices(call, *memory, *tile, next, count);
    }
    if (call.numBulk < call.numPayloads) pushNarrow(*tile, count);
    cover();
    next += count;
    ++number;
  }

  // A block without tokens.
  __device__ void countNone() {
    for (int rank = static_cast<int>(threadIdx.x) / 32; rank < call.round.exchange.watch.ranks; rank += kWarps) {
      const int32_t sent = sumOfWarps(*memory, rank);
      if (threadIdx.x % 32 == 0) memory->sent[rank] = sent;
    }
    syncWorkers();
  }

private:
  __device__ Ids<kTopK> reopen(Tile *tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Ids<kTopK> ids(call, next + lane, next + lane < end);
    if (threadIdx.x == 0) awaitProgress(&memory->progress.ended, number - 1);
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
  int64_t next, end;
  int number = 0;
};

// The rows that the mover pushes: of all tokens of the block all payloads for the copy engine. kIsOnly: there is one of them; of short rows several
// tokens go at a time then. One thread does it all, and so it keeps at hand what it needs of the payload that it is at.
template <Receives kReceives, bool kIsOnly> class PushCursor {
public:
  __device__ PushCursor(const Call &call, const Begun &begun, Memory *memory)
      : call(call), begun(begun), memory(memory), me(call.round.exchange.watch.rank), first(rangeBegin(call.tokens, blockIdx.x)),
        tokens(static_cast<uint32_t>(rangeBegin(call.tokens, blockIdx.x + 1) - first)) {
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
    if (token % kTile == 0) awaitProgress(&memory->progress.handed, static_cast<int>(token / kTile) + 1);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) storeRow(stage + i * rowBytes, token + i);
  }

  // What is told next may begin with a tile, of which the workers have to have stored their part.
  __device__ void settle() {
    if (kReceives == Receives::inPlace) return; // there are no flags
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
    token += count;
    const uint32_t ofTile = kTile - token % kTile, left = tokens - token;
    count = together < ofTile ? together : ofTile;
    if (left < count) count = left;
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
    if (kReceives != Receives::inPlace && awaitCovered(token / kTile)) fenceSystem();
    for (int i = 0; kReceives != Receives::inPlace && (call.round.parts & kSignal) && call.round.stop == kGoOn && i < tile.numTargets[inTile]; ++i) {
      const Target target = tile.targets[inTile][i];
      if (target.rank != me) storeRelaxed(rowFlag(call, target.rank, me, target.index), begun.epoch);
    }
    if (inTile == kTile - 1 || token == tokens - 1) storeShared(&memory->progress.ended, static_cast<int>(token / kTile) + 1);
  }

  const Call &call;
  const Begun &begun;
  Memory *memory;
  const int me;
  const int64_t first;
  const uint32_t tokens;
  uint32_t together = 1;         // tokens that go at a time, within a tile
  uint32_t token = 0, count = 0; // those that do
  uint32_t covered = 0;
  int payload = 0, last = 0; // last: of the payloads for the copy engine, if this is it
  const char *from = nullptr;
  char *own = nullptr;
  int64_t area = 0;
  uint32_t rowBytes = 0, offset = 0, bytes = 0;
};

// By the mover.
template <Receives kReceives> __device__ void moveRows(const Call &call, const Begun &begun, Memory *memory, char *stages) {
  const int kStages = moverStages(kReceives);
  if (call.numBulk == 1)
    bulk::moveAll<kStages>(&memory->barriers, stages, PushCursor<kReceives, true>(call, begun, memory), false);
  else if (call.numBulk > 1)
    bulk::moveAll<kStages>(&memory->barriers, stages, PushCursor<kReceives, false>(call, begun, memory), false);
}

// By the teller.
template <Receives kReceives> __device__ void tellRows(const Call &call, const Begun &begun, Memory *memory) {
  if (call.numBulk == 1)
    bulk::tellAll(memory->barriers, PushCursor<kReceives, true>(call, begun, memory));
  else if (call.numBulk > 1)
    bulk::tellAll(memory->barriers, PushCursor<kReceives, false>(call, begun, memory));
  else
    PushCursor<kReceives, false>(call, begun, memory).finishAll();
}

//===--- receiving --------------------------------------------------------------------------------===//

// The numbers that peers told, which are their own flags.
template <Receives kReceives> class Told {
public:
  __device__ Told(const Call &call, const Begun &begun)
      : call(call), begun(begun), me(call.round.exchange.watch.rank), each(numbersFor<kReceives>(call, me)) {}

  __device__ unsigned long long word(int source, int i) const { return loadAcquire(groupCounts<kReceives>(call, me, source) + i); }
  __device__ int32_t rows(int source) const { return static_cast<int32_t>(word(source, each - 1)); }

  // As `look` of `await`.
  __device__ int operator()() const {
    const int words = call.round.exchange.watch.ranks * each;
    for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) {
      const int source = i / each;
      if (takesPart(begun, source) && word(source, i % each) >> 32 != begun.epoch) return source;
    }
    return -1;
  }

private:
  const Call &call;
  const Begun &begun;
  const int me, each;
};

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

//===--- by workers: what comes from where --------------------------------------------------------===//

// Of the experts from `first` on, one a thread: from how many rows there are of each source to where these begin. Returns how many rows these are.
__device__ inline long long placeExperts(int32_t *bases, long long before, int first, int ranks, int local) {
  const int expert = first + static_cast<int>(threadIdx.x);
  long long mine = 0, all;
  for (int source = 0; expert < local && source < ranks; ++source) mine += bases[source * local + expert];
  long long row = before + sumBefore<long long, kThreads>(mine, &all, [] { syncWorkers(); });
  for (int source = 0; expert < local && source < ranks; ++source) {
    const int32_t rows = bases[source * local + expert];
    bases[source * local + expert] = static_cast<int32_t>(row);
    row += rows;
  }
  return all;
}

// By block 0. The peers have all they wait for: they may finish this call while this rank reports that it has no room.
__device__ inline void endGroups(const Call &call, const int32_t *bases, long long rows, long long most, int local) {
  const Exchange &exchange = call.round.exchange;
  syncWorkers();
  for (int expert = static_cast<int>(threadIdx.x); rows <= most && expert < local; expert += kThreads) call.offsets[expert] = bases[expert];
  if (threadIdx.x != 0) return;
  stateOf(exchange)->rows = rows;
  if (rows <= most) {
    call.offsets[local] = static_cast<int32_t>(rows);
    return;
  }
  report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_DISPATCH_CAPACITY, rows, exchange.watch.rank, most);
  stateOf(exchange)->full = 1;
  tellPeers(exchange);
}

template <Receives kReceives>
__device__ void groupExperts(const Call &call, const Begun &begun, Memory *memory, const Told<kReceives> &told, int ranks, int local) {
  int32_t *bases = baseTable(call, memory);
  for (int i = static_cast<int>(threadIdx.x); i < ranks * local; i += kThreads)
    bases[i] = takesPart(begun, i / local) ? static_cast<int32_t>(told.word(i / local, i % local)) : 0;
  syncWorkers();
  long long rows = 0;
  for (int first = 0; first < local; first += kThreads) rows += placeExperts(bases, rows, first, ranks, local);
  const long long most = call.capacity < INT32_MAX ? call.capacity : INT32_MAX;
  if (rows > most && threadIdx.x == 0) memory->isFull = true;
  if (blockIdx.x == 0) endGroups(call, bases, rows, most, local);
}

// How many rows come from each source, and where those of each expert begin; for the placer, which is told. If `waits`, waits for the peers to tell.
template <Receives kReceives> __device__ Arrival learn(const Call &call, const Begun &begun, Memory *memory, bool waits) {
  const int ranks = call.round.exchange.watch.ranks, me = call.round.exchange.watch.rank, thread = static_cast<int>(threadIdx.x);
  const Told<kReceives> told(call, begun);
  const Arrival arrival = await(call.round, begun, waits, told);
  if (arrival == Arrival::notYet) return arrival;
  if (arrival == Arrival::over) {
    if (thread < ranks) memory->received[thread] = takesPart(begun, thread) ? told.rows(thread) : 0;
    if (thread == 0) memory->isFull = false;
    if (kReceives == Receives::groups) groupExperts(call, begun, memory, told, ranks, static_cast<int>(localExperts(call, me)));
    syncWorkers();
  }
  if (thread != 0) return arrival;
  if (!(call.round.parts & kPush)) { // then this rank's own rows are divided like those of others
    memory->ownBegin = rangeBegin(memory->received[me], blockIdx.x);
    storeShared(&memory->placer.own, rangeBegin(memory->received[me], blockIdx.x + 1));
    storeShared(&memory->placer.isRouted, 1);
  }
  storeShared(&memory->placer.learnt, arrival == Arrival::over && !memory->isFull ? kKnown : kNothing);
  return arrival;
}

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

//===--- by the placer ----------------------------------------------------------------------------===//

// A warp that takes the block's rows to their places as they come, by way of stages. Each lane finds the place of one of a row's choices.
template <Receives kReceives> class Placer {
public:
  __device__ Placer(const Call &call, const Begun &begun, Memory *memory, char *stages)
      : call(call), begun(begun), memory(memory), stages(stages), me(call.round.exchange.watch.rank), lane(static_cast<int>(threadIdx.x) % 32),
        source(me) {}

  // False if the round has failed.
  __device__ bool run() {
    awaitProgress(&memory->placer.learnt, kKnown);
    const bool isKnown = loadShared(&memory->placer.learnt) == kKnown;
    if (isKnown) {
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
      const bool hasRoom = loaded - stored < kPlacerStages - 1, isFound = hasRoom && !hasPiece() && findRow(loaded == stored);
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
    const int stage = loaded % kPlacerStages;
    Placing *placing = &memory->placings[stage];
    if (bulk::isChosen()) {
      const bool isOwn = taken == me;
      const char *from =
          isOwn ? piece.from + static_cast<int64_t>(token) * piece.rowBytes : call.round.exchange.slabs[me] + piece.area + row * piece.rowBytes;
      bulk::load(stages + stage * bulk::kStageBytes, from + offset, bytes, &memory->placerBarriers.full[stage]);
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
    const int stage = stored % kPlacerStages;
    const Placing &placing = memory->placings[stage];
    if (loaded - stored > 1)
      bulk::awaitCopies<1>();
    else
      bulk::awaitCopies<0>();
    if (placing.begins) to = placeOf(placing);
    bulk::await(&memory->placerBarriers.full[stage], static_cast<uint32_t>(stored / kPlacerStages) & 1);
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

// Of the layout expert_grouped: the choices before the block's tokens, and in the last block what it tells of all.
__device__ inline void countExperts(const Call &call, const Begun &begun, Memory *memory, int64_t begin, bool isLast) {
  int32_t *table = expertTable(memory), *totals = baseTable(call, memory);
  for (int i = static_cast<int>(threadIdx.x); i < call.experts; i += kThreads) table[i] = totals[i] = 0;
  syncWorkers();
  countChoices(call, begun, 0, begin, table);
  if (isLast) countChoices(call, begun, begin, call.tokens, totals);
  syncWorkers();
  for (int i = static_cast<int>(threadIdx.x); isLast && i < call.experts; i += kThreads) totals[i] += table[i];
}

// How many rows all tokens have, by the last block before its first.
template <int kTopK> __device__ void countTotals(const Call &call, const Begun &begun, Memory *memory, int64_t begin) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int32_t *counts = memory->places + warp * MOERT_MAX_RANKS; // nothing is there yet
  for (int rank = warp; rank < call.round.exchange.watch.ranks; rank += kWarps) {
    const int32_t sum = sumOfWarps(*memory, rank);
    if (lane == 0) memory->totals[rank] = sum;
  }
  countTokens<kTopK>(call, begun, begin, call.tokens, counts);
  syncWorkers();
  for (int rank = lane; rank < MOERT_MAX_RANKS; rank += 32)
    if (counts[rank]) atomicAdd(&memory->totals[rank], counts[rank]);
  syncWorkers();
}

// What peers wait for before they take rows elsewhere.
template <Receives kReceives, int kTopK> __device__ void tellCounts(const Call &call, const Begun &begun, Memory *memory) {
  const int64_t begin = rangeBegin(call.tokens, blockIdx.x);
  const bool isLast = blockIdx.x == gridDim.x - 1;
  if (kReceives == Receives::groups) countExperts(call, begun, memory, begin, isLast);
  if (!isLast) return;
  countTotals<kTopK>(call, begun, memory, begin);
  sendGroupCounts<kReceives>(call, begun, memory->totals, baseTable(call, memory));
  syncWorkers();
}

// All tiles are routed.
__device__ inline void endPush(const Call &call, const Begun &begun, const Memory *memory, int tiles) {
  sendStats(call, begun);
  if (blockIdx.x == gridDim.x - 1) sendCounts(call, begun, memory->sent);
  if (call.round.stop == kGoOn) completePush(call.round, begun, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS, memory->progress, tiles);
}

// By a warp: this rank's rows for itself begin behind those of the tokens before.
__device__ inline void beginOwn(const Call &call, Memory *memory) {
  const int32_t begin = sumOfWarps(*memory, call.round.exchange.watch.rank);
  if (threadIdx.x % 32 != 0) return;
  memory->ownBegin = begin;
  storeShared(&memory->placer.own, begin);
}

// Whether there are rows that the placer leaves to the workers.
__device__ inline bool copiesAny(const Call &call) {
  bool any = false;
  for (int i = 0; i < call.numPayloads; ++i) any |= !call.payloads[i].isBulk && !call.payloads[i].isInPlace;
  return any;
}

// The workers' part. False if the round has failed.
template <Receives kReceives, int kTopK> __device__ bool exchangeRows(const Call &call, const Begun &begun, Memory *memory, const Ids<kTopK> &ids) {
  const bool receives = kReceives != Receives::inPlace && (call.round.parts & kReceive) && call.round.stop == kGoOn;
  Arrival learnt = receives ? Arrival::notYet : Arrival::over;
  const auto tryToLearn = [&](bool waits) {
    if (kReceives != Receives::inPlace && learnt == Arrival::notYet) learnt = learn<kReceives>(call, begun, memory, waits);
  };
  if (call.round.parts & kPush) {
    if (kReceives != Receives::inPlace) tellCounts<kReceives, kTopK>(call, begun, memory);
    if (threadIdx.x < 32) beginOwn(call, memory);
    Router<kReceives, kTopK> router(call, begun, memory);
    if (router.isDone()) router.countNone();
    while (!router.isDone()) {
      router.route(ids);
      tryToLearn(false);
    }
    if (threadIdx.x == 0) storeShared(&memory->placer.isRouted, 1);
    while (learnt == Arrival::notYet && anyWorker(loadShared(&memory->progress.ended) < router.tiles())) tryToLearn(false);
    endPush(call, begun, memory, router.tiles());
  }
  tryToLearn(true);
  if (receives && learnt == Arrival::over && copiesAny(call)) copyReceived<kReceives>(call, memory);
  return learnt == Arrival::over;
}

// By the workers of block 0. False if the round has failed.
__device__ inline bool endRound(const Call &call, const Begun &begun) {
  const int source = static_cast<int>(threadIdx.x);
  const bool counts = source < call.round.exchange.watch.ranks && takesPart(begun, source);
  int32_t received = 0;
  const auto look = [&] {
    if (counts) received = regionOf<volatile int32_t>(call.round.exchange, MOERT_METAINFO_RECV_COUNTERS)[source];
  };
  if (!awaitCompletion(call.round, begun, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS, look)) return false;
  if (source < call.round.exchange.watch.ranks) regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_COUNT_FLAGS)[source] = received;
  if (call.recvCounts && source < call.round.exchange.watch.ranks) call.recvCounts[source] = received;
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
  if (isWorker() && pushes) countTokens<kTopK>(call, begun, 0, begin, memory->before[threadIdx.x / 32]);
  if (threadIdx.x < kTile) memory->tiles[0].numTargets[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    memory->progress = {};
    memory->placer = {};
    bulk::open(&memory->barriers, 1);
    bulk::open(&memory->placerBarriers, 1);
  }
  shareBegin(call.round, NothingToCheck(), &begun);
  bool fails = begun.fails;
  if (call.round.stop == kStopAtCounts) return;
  if (!fails && isWorker()) {
    fails = !exchangeRows<kReceives, kTopK>(call, begun, memory, ids);
    if (blockIdx.x == 0 && !fails && receives) fails = !endRound(call, begun);
  } else if (!fails && threadIdx.x < kThreads + 64) {
    const bool moves = warpNumber() == kWarps, isOne = bulk::isChosen();
    if (pushes && moves && isOne) moveRows<kReceives>(call, begun, memory, stages);
    if (pushes && !moves && isOne) tellRows<kReceives>(call, begun, memory);
    __syncwarp(); // barriers count warps
  } else if (!fails && receives) {
    Placer<kReceives> placer(call, begun, memory, stages + moverStages(kReceives) * bulk::kStageBytes);
    fails = !placer.run();
  }
  if (call.round.stop != kGoOn) return;
  if (!leaveRound(call.round, begun, fails)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace dispatch

#endif

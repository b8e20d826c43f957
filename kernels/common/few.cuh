//===- few.cuh - exchanges of few tokens ------------------------------------------------------------------===//
//
// What fused.cuh says holds here too, but rows are their own flags: what is won is the time of a fence, of a flag behind it, and of the copy engine.
//
// A row goes in units of 32 vectors of 16 bytes to a room where all is 0. A vector that is not 0 has come when it is seen; of those that are 0 the
// unit's header tells, a packet (packets.cuh), so that any bits may be data. Vectors are stored and loaded as packets are. Who has received a unit
// sets its room and that of its header to 0 again, for a row of another size has vectors there.
//
// Warps work by themselves: each has some units of the rows that its block sends and receives, and waits for these alone. The last warp of a block
// has none: it does what is not a row's.
//
// Nobody waits for permission to push. Rows go to one of two areas, by the parity of the epoch. Who sends into an area again, two epochs later, has
// awaited in the epoch between that all ranks had begun that (`awaitBegun`, or all that they send in it); and a rank begins when its kernels before
// have ended, and the stores of these are performed. All that is sent is awaited, so that nothing is on its way when its receiver has ended the
// epoch; for that reason how many rows a combine sends may not be read where a peer that is ahead writes already (RECV_COUNTERS). What a failed round
// leaves is cleared when the workspace is recovered.
//
// Which kernel a call has follows from what all ranks agree on (the hash of the call): the others would look for its rows elsewhere.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_FEW_CUH
#define MOE_KERNELS_FEW_CUH

#include "kernels/common/fused.cuh"
#include "kernels/common/packets.cuh"

namespace few {

using namespace fused;
using namespace packets;

const int kFewThreads = 256, kFewWorkers = kFewThreads / 32 - 1; // warps that have units
const int kFewTokens = MOERT_WORKSPACE_FEW_TOKENS;

// The first part of the kernel's parameter, where all is together that a block needs before it can send: what it has to look for takes its time.
struct FewRows {
  const moert__slab_state *state;
  uint32_t *last; // the epoch before
  Turns *turns;
  unsigned long long mask;
  int64_t areaBytes, choicesBegin; // of a rank and a parity; where in it its choices are
  uint32_t rowBytes;
  int32_t units;     // of a row
  int32_t partShift; // blocks for a row are a power of two
  int32_t rank, ranks, peers;
  uint32_t peersFactor;
};

__device__ inline bool isFewWorker() { return warpNumber() < kFewWorkers; }

// What a block does, one after another with a step of gridDim.x: parts of rows.
struct Item {
  int row, part;
  __device__ Item(const FewRows &rows, int number) : row(number >> rows.partShift), part(number & ((1 << rows.partShift) - 1)) {}
};

__device__ inline int itemsOf(const FewRows &rows, int64_t count) { return static_cast<int>(count) << rows.partShift; }

// Likewise of rows that come from peers or go to them, in turns from the rank behind this one on.
struct PeerItem {
  int part, peer, index;
  __device__ PeerItem(const FewRows &rows, int number) {
    const Item item(rows, number);
    part = item.part;
    index = static_cast<int>(quotient(static_cast<uint32_t>(item.row), rows.peersFactor));
    peer = rows.rank + 1 + item.row - index * rows.peers;
    if (peer >= rows.ranks) peer -= rows.ranks;
  }
};

// Of a row the units that a warp has in a part of it: kGroup neighbours, from kGroup * `first` on, `step` groups apart.
template <int kGroup> struct Units {
  int first, step, end;

  __device__ Units(const FewRows &rows, int part)
      : first((warpNumber() << rows.partShift) + part), step(kFewWorkers << rows.partShift), end(rows.units) {}
  __device__ bool isDone() const { return first * kGroup >= end; }
  __device__ void pass(int units) { first += units / kGroup * step; }
  __device__ int operator[](int i) const { return (first + i / kGroup * step) * kGroup + i % kGroup; }
  __device__ bool has(int i) const { return (*this)[i] < end; }
};

// Where rank `at` has what rank `from` sends.
__device__ inline char *areaOf(const Round &round, const Begun &begun, const FewRows &rows, int at, int from) {
  const int64_t area = static_cast<int64_t>(begun.epoch & 1) * rows.ranks + from;
  return regionOf<char>(round.exchange, at, MOERT_WORKSPACE_FEW_ROWS) + area * rows.areaBytes;
}

// Of its row `index`.
__device__ inline char *roomOf(const Round &round, const Begun &begun, const FewRows &rows, int at, int from, int32_t index) {
  return areaOf(round, begun, rows, at, from) + static_cast<uint32_t>(index) * rows.rowBytes;
}

__device__ inline char *vectorAt(char *room, int unit) { return room + unit * MOERT_WORKSPACE_UNIT_DATA + laneNumber() * 16; }
__device__ inline char *headerAt(const FewRows &rows, char *room, int unit) { return room + rows.units * MOERT_WORKSPACE_UNIT_DATA + unit * 16; }

__device__ inline void clearVector(char *at) { *reinterpret_cast<uint4 *>(at) = uint4{}; }

__device__ inline bool isZero(const uint4 &vector) { return (vector.x | vector.y | vector.z | vector.w) == 0; }

// By a warp, of a vector of each lane in each unit: in lane i, which vectors of unit i are 0.
template <int kUnits> __device__ uint32_t zerosOf(const uint4 (&vectors)[kUnits]) {
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const uint32_t zeros = __ballot_sync(~0u, isZero(vectors[i]));
    if (laneNumber() == i) mine = zeros;
  }
  return mine;
}

// By a warp: the vectors of the units that there are. Behind a row's end they are 0.
template <int kUnits, typename Mine> __device__ void sendVectors(char *room, const Mine &units, const uint4 (&vectors)[kUnits]) {
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const uint4 &vector = vectors[i];
    if (units.has(i) && !isZero(vector)) storePacket(vectorAt(room, units[i]), vector.x, vector.y, vector.z, vector.w);
  }
}

// And their headers, each by a lane. `zeros`: as `zerosOf` has them.
template <int kUnits, typename Mine>
__device__ void sendHeaders(const Round &round, const Begun &begun, const FewRows &rows, char *room, const Mine &units, uint32_t zeros) {
  const int lane = laneNumber();
  if (lane < kUnits && units.has(lane)) storePacket(headerAt(rows, room, units[lane]), zeros, round.hash, 0, begun.epoch);
}

enum class Coming { here, none, failed };

// By a warp, from `source`: until the first kMost units, as far as there are so many, are here, or `isNone` says that there is no such row. Where
// there is no unit the first is loaded once more: without branches all loads come first.
template <int kMost, int kUnits, typename Mine, typename IsNone>
__device__ Coming receiveFirst(const Round &round, const Begun &begun, const FewRows &rows, int source, char *room, const Mine &units,
                               const IsNone &isNone, uint4 (&vectors)[kUnits]) {
  const int lane = laneNumber();
  const bool hasHeader = lane < kMost && units.has(lane);
  const char *headerOfLane = headerAt(rows, room, units[hasHeader ? lane : 0]);
  bool isHere = true;
  const auto look = [&] {
    const bool none = isNone();
#pragma unroll
    for (int i = 0; i < kMost; ++i) vectors[i] = loadPacket(vectorAt(room, units[units.has(i) ? i : 0]));
    const uint4 header = loadPacket(headerOfLane);
    isHere = header.w == begun.epoch && header.y == round.hash;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const uint32_t zeros = __shfl_sync(~0u, header.x, i);
      isHere = isHere && (!isZero(vectors[i]) || (zeros >> lane & 1) != 0);
    }
    return isHere || none ? kHere : source;
  };
  if (!awaitWarp(round, begun, look)) return Coming::failed;
  if (!__all_sync(~0u, isHere)) return Coming::none;
#pragma unroll
  for (int i = 0; i < kMost; ++i)
    if (units.has(i)) clearVector(vectorAt(room, units[i]));
  if (hasHeader) clearVector(headerAt(rows, room, units[lane]));
  return Coming::here;
}

// All units. Of one or two, which a warp has of few tokens, it takes a part of the instructions.
template <int kUnits, typename Mine, typename IsNone>
__device__ Coming receiveUnits(const Round &round, const Begun &begun, const FewRows &rows, int source, char *room, const Mine &units,
                               const IsNone &isNone, uint4 (&vectors)[kUnits]) {
  return units.has(2) ? receiveFirst<kUnits>(round, begun, rows, source, room, units, isNone, vectors)
                      : receiveFirst<2>(round, begun, rows, source, room, units, isNone, vectors);
}

// As `readRound`. Volatile, or the first thread of a block, which alone looks at these words, would load them when the others wait for it.
__device__ inline Begun readFew(const FewRows &rows) {
  const volatile moert__slab_state *state = rows.state;
  const int failed = state->failed, full = state->full;
  return {rows.state->mask & rows.mask, epochAfter(*rows.last), (failed | full) != 0, rows.turns->number};
}

// By the first lane of a block's last warp, behind a barrier of the block.
__device__ inline void countBegun(const FewRows &rows, const Begun &begun) { beginTurn(rows.turns, begun.turn, rows.last, begun.epoch); }

//===--- launches ---------------------------------------------------------------------------------===//

// Whether there is room for rows of a call.
inline bool isForFew(const moert__workspace &workspace, int64_t maxTokens) { return maxTokens <= moert_workspace_few_tokens(&workspace.note->info); }

// What of a workspace is in the kernel's parameter.
inline FewRows fewRowsOf(const moert__workspace &workspace) {
  char *slab = workspace.peers[workspace.rank];
  const int64_t *offsets = workspace.layout.offsets;
  FewRows rows = {};
  rows.state = reinterpret_cast<const moert__slab_state *>(slab + offsets[MOERT_METAINFO_STATE]);
  rows.last = reinterpret_cast<uint32_t *>(slab + offsets[MOERT_METAINFO_FLAG_VAL]);
  rows.turns = reinterpret_cast<Turns *>(slab + offsets[MOERT_WORKSPACE_TURNS]);
  rows.mask = workspace.mask;
  rows.areaBytes = moert_workspace_few_area(&workspace.note->info);
  rows.choicesBegin = moert_workspace_few_choices(&workspace.note->info);
  rows.rank = workspace.rank;
  rows.ranks = workspace.ranks;
  rows.peers = rows.ranks > 1 ? rows.ranks - 1 : 1;
  rows.peersFactor = factorOf(static_cast<uint32_t>(rows.peers));
  return rows;
}

inline Grid gridOfFew(unsigned blocks, bool overlaps) { return {dim3(blocks), dim3(kFewThreads), 0, overlaps, 0, true}; }

// For `rows->units` units of each of `count` rows of each peer. As many blocks for a row as have something to do, while there is room for them.
static inline moert_status shareRows(const moert_context *context, int64_t count, int64_t maxSms, FewRows *rows, unsigned *blocks) {
  const int kMostParts = 4;
  const int64_t all = count * rows->peers;
  int parts = 1;
  moert_status status = exchangeBlocks(context, all * kMostParts, maxSms, blocks);
  for (; parts < kMostParts && parts * kFewWorkers < rows->units && 2 * parts * all <= *blocks; parts *= 2) ++rows->partShift;
  if (parts * all < *blocks) *blocks = static_cast<unsigned>(parts * all);
  rows->rowBytes = static_cast<uint32_t>(moert_workspace_few_bytes(rows->units));
  return status;
}

} // namespace few

#endif

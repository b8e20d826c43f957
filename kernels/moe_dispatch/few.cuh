//===- few.cuh - moe.dispatch of few tokens on devices ----------------------------------------------------===//
//
// Rows are their own flags, as kernels/common/few.cuh says, with the layout rank_major. A block has a token, or a part of it, and a row of a peer. It
// loads its row, finds where that goes while it is on its way, sends it, and puts what comes where it belongs, whether that is the workspace or not.
//
// A unit has vectors of one payload.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_DISPATCH_FEW_CUH
#define MOE_KERNELS_MOE_DISPATCH_FEW_CUH

#include "kernels/common/few.cuh"
#include "kernels/moe_dispatch/kernels.cuh"

namespace dispatch {

using namespace few;

const int kHeld = 5; // units of a row that a warp has at once

// Where a payload's rows are.
struct FewPayload {
  const char *from;
  char *recv;
  int32_t rowBytes;
  int32_t firstUnit; // INT32_MAX: there is no such payload
};

// The kernel's parameter.
struct FewCall {
  FewRows rows;
  const int32_t *ids;
  Owners owners;
  int32_t tokens, topK, experts;
  int32_t width; // of all accesses to rows where they come from and go to: 16, 4 or 1
  FewPayload payloads[MOERT_WORKSPACE_MAX_PAYLOADS];
  Call call;
};

//===--- rows -------------------------------------------------------------------------------------===//

// What a lane has of a row in a unit: 16 bytes of a payload, or as many as there are.
struct Part {
  const char *from; // in row 0, as `to`
  char *to;
  int32_t rowBytes, bytes;

  __device__ const char *source(uint32_t token) const { return from + static_cast<uint64_t>(token) * static_cast<uint32_t>(rowBytes); }
  __device__ char *place(uint32_t row) const { return to + static_cast<uint64_t>(row) * static_cast<uint32_t>(rowBytes); }
};

// Of a row that does not begin at addresses of vectors.
template <typename Piece> __device__ uint4 loadPieces(const char *from, int bytes) {
  const int kSize = static_cast<int>(sizeof(Piece));
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 16 / kSize; ++i)
    if (i * kSize < bytes) words[i * kSize / 4] |= static_cast<uint32_t>(reinterpret_cast<const Piece *>(from)[i]) << i * kSize % 4 * 8;
  return {words[0], words[1], words[2], words[3]};
}

template <typename Piece> __device__ void storePieces(char *to, int bytes, const uint4 &vector) {
  const int kSize = static_cast<int>(sizeof(Piece));
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 16 / kSize; ++i)
    if (i * kSize < bytes) reinterpret_cast<Piece *>(to)[i] = static_cast<Piece>(words[i * kSize / 4] >> i * kSize % 4 * 8);
}

// Apart, for code that is rarely needed would be in the way.
static __device__ __noinline__ uint4 loadNarrow(const char *from, int bytes, int width) {
  return width == 4 ? loadPieces<uint32_t>(from, bytes) : loadPieces<uint8_t>(from, bytes);
}

static __device__ __noinline__ void storeNarrow(char *to, int bytes, int width, uint4 vector) {
  if (width == 4)
    storePieces<uint32_t>(to, bytes, vector);
  else
    storePieces<uint8_t>(to, bytes, vector);
}

// Some units of a row, as a warp has them. What is looked up for them serves all rows.
class Parts {
public:
  __device__ Parts(const FewCall &few, const Units<1> &units) : few(few), units(units), vectors{} { find(); }

  // To others.
  __device__ void choose(const Units<1> &others) {
    if (others.first == units.first) return;
    units = others;
    find();
  }

  // Of a token, if it `exists`: without a branch, so that other loads can be on their way at the same time.
  __device__ void load(uint32_t token, bool exists) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      vectors[i] = uint4{};
      if (exists && few.width == 16 && parts[i].bytes > 0) vectors[i] = *reinterpret_cast<const uint4 *>(parts[i].source(token));
    }
  }

  // When all has come: with what `load` leaves, of rows that do not begin at addresses of vectors.
  __device__ void endLoad(uint32_t token) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (few.width != 16 && parts[i].bytes > 0) vectors[i] = loadNarrow(parts[i].source(token), parts[i].bytes, few.width);
    zeros = zerosOf(vectors);
  }

  // To row `row` of the outputs.
  __device__ void place(int64_t row) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!units.has(i)) break;
      if (parts[i].bytes <= 0) continue;
      char *to = parts[i].place(static_cast<uint32_t>(row));
      if (few.width == 16)
        *reinterpret_cast<uint4 *>(to) = vectors[i];
      else
        storeNarrow(to, parts[i].bytes, few.width, vectors[i]);
    }
  }

  __device__ void send(const Begun &begun, int rank, int32_t index) const {
    const Round &round = few.call.round;
    char *room = roomOf(round, begun, few.rows, rank, few.rows.rank, index);
    sendVectors(room, units, vectors);
    sendHeaders<kHeld>(round, begun, few.rows, room, units, zeros);
  }

  template <typename IsNone> __device__ Coming receive(const Begun &begun, int source, char *room, const IsNone &isNone) {
    return receiveUnits(few.call.round, begun, few.rows, source, room, units, isNone, vectors);
  }

private:
  // A lane looks a unit up for all.
  __device__ void find() {
    const int unit = units[laneNumber() < kHeld ? laneNumber() : 0];
    int payload = 0;
#pragma unroll
    for (int i = 1; i < MOERT_WORKSPACE_MAX_PAYLOADS; ++i) payload += unit >= few.payloads[i].firstUnit;
    const FewPayload &chosen = few.payloads[payload];
    const int32_t begin = (unit - chosen.firstUnit) * MOERT_WORKSPACE_UNIT_DATA, left = unit < few.rows.units ? chosen.rowBytes - begin : 0;
    const auto from = reinterpret_cast<uintptr_t>(chosen.from + begin), to = reinterpret_cast<uintptr_t>(chosen.recv + begin);
    const int32_t offset = laneNumber() * 16;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      parts[i].from = reinterpret_cast<const char *>(__shfl_sync(~0u, from, i)) + offset;
      parts[i].to = reinterpret_cast<char *>(__shfl_sync(~0u, to, i)) + offset;
      parts[i].rowBytes = __shfl_sync(~0u, chosen.rowBytes, i);
      parts[i].bytes = __shfl_sync(~0u, left, i) - offset;
    }
  }

  const FewCall &few;
  Units<1> units;
  Part parts[kHeld];
  uint4 vectors[kHeld];
  uint32_t zeros = 0; // as `zerosOf` has them
};

//===--- routing ----------------------------------------------------------------------------------===//

// What a block knows: the ranks that each token goes to, and the tokens that go to each rank, a bit for each.
struct FewMemory {
  unsigned long long named[kFewTokens];
  alignas(16) uint16_t goes[MOERT_MAX_RANKS][kFewTokens / 16];
};

// A warp looks at 16 tokens, two lanes at each, at every other choice.
const int kRoutedTokens = 16, kFirstChoices = 4;
static_assert(kFewThreads / 32 * kRoutedTokens == kFewTokens, "tokens of a block's warps");

__device__ inline int routedToken() { return warpNumber() * kRoutedTokens + laneNumber() % kRoutedTokens; }
__device__ inline int routedSlot(int i) { return laneNumber() / kRoutedTokens + 2 * i; }

__device__ inline int32_t loadChoice(const FewCall &few, int i) {
  return routedToken() < few.tokens && routedSlot(i) < few.topK ? few.ids[routedToken() * few.topK + routedSlot(i)] : -1;
}

// The first of them: all if there are no more than 8 to each token.
struct FirstChoices {
  int32_t ids[kFirstChoices];
  __device__ explicit FirstChoices(const FewCall &few) {
#pragma unroll
    for (int i = 0; i < kFirstChoices; ++i) ids[i] = loadChoice(few, i);
  }
};

__device__ inline unsigned long long rankOf(const FewCall &few, int32_t id) {
  return id >= 0 && id < few.experts ? 1ull << ownerOf(few.owners, id) : 0;
}

// By the whole block. To be read behind a barrier.
__device__ inline void routeTokens(const FewCall &few, const Begun &begun, const FirstChoices &first, FewMemory *memory) {
  unsigned long long named = 0;
#pragma unroll
  for (int i = 0; i < kFirstChoices; ++i) named |= rankOf(few, first.ids[i]);
#pragma unroll 1
  for (int i = kFirstChoices; 2 * i < few.topK; ++i) named |= rankOf(few, loadChoice(few, i));
  named = (named | __shfl_xor_sync(~0u, named, kRoutedTokens)) & begun.mask;
  if (laneNumber() < kRoutedTokens) memory->named[routedToken()] = named;
#pragma unroll 1
  for (int rank = 0; rank < few.rows.ranks; ++rank) {
    const uint32_t goes = __ballot_sync(~0u, (named >> rank & 1) != 0);
    if (laneNumber() == 0) memory->goes[rank][warpNumber()] = static_cast<uint16_t>(goes);
  }
}

// How many of the tokens before `token` go to a rank: a row's place there.
__device__ inline int32_t rowsBefore(const FewMemory &memory, int rank, int token) {
  const uint4 goes = *reinterpret_cast<const uint4 *>(memory.goes[rank]);
  const uint32_t words[kFewTokens / 32] = {goes.x, goes.y, goes.z, goes.w};
  int32_t rows = 0;
#pragma unroll
  for (int i = 0; i < kFewTokens / 32; ++i) {
    const int left = token - 32 * i;
    rows += __popc(left >= 32 ? words[i] : left > 0 ? words[i] & ((1u << left) - 1) : 0u);
  }
  return rows;
}

// By a warp, for the combine: which choices of a token have a row, and its place.
__device__ inline void noteTargets(const FewCall &few, const Begun &begun, const FewMemory &memory, int token) {
  const Call &call = few.call;
  const int lane = laneNumber();
  const int32_t id = lane < few.topK ? few.ids[token * few.topK + lane] : -1;
  const int owner = isExpert(call, id) && takesPart(begun, ownerOf(call, id)) ? ownerOf(call, id) : -1;
  int32_t target = -1, index = -1;
#pragma unroll 1
  for (unsigned long long left = memory.named[token]; left; left &= left - 1) {
    const int rank = __ffsll(static_cast<long long>(left)) - 1;
    const int32_t before = rowsBefore(memory, rank, token);
    if (lane != __ffs(static_cast<int>(__ballot_sync(~0u, owner == rank))) - 1) continue;
    target = rank;
    index = before;
  }
  if (lane >= few.topK) return;
  regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[token * few.topK + lane] = target;
  regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[token * few.topK + lane] = index;
}

//===--- counts -----------------------------------------------------------------------------------===//

// By a warp of block 0.
__device__ inline void tellTotals(const FewCall &few, const Begun &begun, const FewMemory &memory) {
  for (int peer = laneNumber(); peer < few.rows.ranks; peer += 32) {
    const int32_t total = rowsBefore(memory, peer, kFewTokens);
    if (takesPart(begun, peer)) storeRelaxed(totalAt(few.call, peer, few.rows.rank), countWord(begun, total));
    regionOf<int32_t>(few.call.round.exchange, MOERT_METAINFO_SEND_COUNTERS)[peer] = total;
  }
  __syncwarp();
}

//===--- by workers -------------------------------------------------------------------------------===//

__device__ inline void sendParts(const FewCall &few, const Begun &begun, const FewMemory &memory, const Parts &parts, int token) {
  const int me = few.rows.rank;
  const unsigned long long named = memory.named[token];
#pragma unroll 1
  for (unsigned long long left = named & ~(1ull << me); left; left &= left - 1) {
    const int rank = __ffsll(static_cast<long long>(left)) - 1;
    parts.send(begun, rank, rowsBefore(memory, rank, token));
  }
  if (named >> me & 1) parts.place(laneRow(few.call, me, rowsBefore(memory, me, token)));
}

// Calls `send` with all units of the block's tokens but the first of the first, in `parts`. False: there are no others.
template <typename Send> __device__ bool forOtherParts(const FewCall &few, Parts *parts, const Send &send) {
  const int items = itemsOf(few.rows, few.tokens);
  bool any = false;
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < items; number += static_cast<int>(gridDim.x)) {
    const Item item(few.rows, number);
    Units<1> units(few.rows, item.part);
    if (number == static_cast<int>(blockIdx.x)) units.pass(kHeld);
#pragma unroll 1
    for (; !units.isDone(); units.pass(kHeld)) {
      parts->choose(units);
      parts->load(static_cast<uint32_t>(item.row), true);
      parts->endLoad(static_cast<uint32_t>(item.row));
      send(item.row);
      any = true;
    }
  }
  return any;
}

// Row `index` of `source`, if there is one. False if the round has failed.
__device__ inline bool receiveRow(const FewCall &few, const Begun &begun, Units<1> units, Parts *parts, int source, int index) {
  char *room = roomOf(few.call.round, begun, few.rows, few.rows.rank, source, index);
  const unsigned long long *total = totalAt(few.call, few.rows.rank, source);
  const auto isNone = [&] {
    const unsigned long long told = loadRelaxed(total);
    return told >> 32 == begun.epoch && index >= static_cast<int32_t>(told);
  };
#pragma unroll 1
  for (; !units.isDone(); units.pass(kHeld)) {
    parts->choose(units);
    const Coming coming = parts->receive(begun, source, room, isNone);
    if (coming != Coming::here) return coming == Coming::none;
    parts->place(laneRow(few.call, source, index));
  }
  return true;
}

__device__ inline bool receiveRows(const FewCall &few, const Begun &begun, Parts *parts) {
  const int items = itemsOf(few.rows, few.call.maxTokens * (few.rows.ranks - 1));
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < items; number += static_cast<int>(gridDim.x)) {
    const PeerItem row(few.rows, number);
    if (takesPart(begun, row.peer) && !receiveRow(few, begun, Units<1>(few.rows, row.part), parts, row.peer, row.index)) return false;
  }
  return true;
}

//===--- the kernel -------------------------------------------------------------------------------===//

// By a block's last warp.
__device__ inline void noteAllTargets(const FewCall &few, const Begun &begun, const FewMemory &memory) {
  const int items = itemsOf(few.rows, few.tokens);
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < items; number += static_cast<int>(gridDim.x)) {
    const Item item(few.rows, number);
    if (item.part == 0) noteTargets(few, begun, memory, item.row);
  }
}

// Likewise: what is not a row's; peers wait for the totals, and so these come first. False if the round has failed.
__device__ inline bool endRows(const FewCall &few, const Begun &begun, const FewMemory &memory) {
  if (blockIdx.x == 0 && !begun.fails) tellTotals(few, begun, memory);
  if (laneNumber() == 0) countBegun(few.rows, begun);
  __syncwarp();
  if (begun.fails) return false;
  noteAllTargets(few, begun, memory);
  return blockIdx.x != 0 || learnTotals(few.call, begun);
}

static __global__ void __launch_bounds__(kFewThreads, kBlocksPerSm) dispatchFew(const __grid_constant__ FewCall few) {
  __shared__ FewMemory memory;
  const Call &call = few.call;
  const Item item(few.rows, static_cast<int>(blockIdx.x));
  const Units<1> units(few.rows, item.part);
  const bool sends = isFewWorker() && item.row < few.tokens && !units.isDone();
  Parts parts(few, units);
  awaitStream();
  const FirstChoices choices(few);
  parts.load(static_cast<uint32_t>(item.row), sends);
  Begun begun = readFew(few.rows); // behind all other loads: who looks at it waits for memory
  routeTokens(few, begun, choices, &memory);
  if (sends) parts.endLoad(static_cast<uint32_t>(item.row));
  shareBegin(call.round, NothingToCheck(), &begun);
  if (call.round.stop != kGoOn) return;
  bool fails = begun.fails;
  if (!isFewWorker()) {
    fails = !endRows(few, begun, memory);
  } else if (!fails) {
    if (sends) sendParts(few, begun, memory, parts, item.row);
    forOtherParts(few, &parts, [&](int token) { sendParts(few, begun, memory, parts, token); });
    fails = !receiveRows(few, begun, &parts);
  }
  if (!leaveTurn(few.rows.turns, begun.turn, fails)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace dispatch

#endif

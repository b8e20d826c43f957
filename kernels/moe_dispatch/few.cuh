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
  int32_t teamShift; // lanes that look at a token are a power of two, at least topK
  int32_t width;     // of all accesses to rows where they come from and go to: 16, 4 or 1
  FewPayload payloads[MOERT_WORKSPACE_MAX_PAYLOADS];
  Call call;
};

//===--- rows -------------------------------------------------------------------------------------===//

// What a lane has of a row in a unit: 16 bytes of a payload, or as many as there are.
struct Part {
  char *to; // in row 0
  int32_t payload, rowBytes, bytes;

  __device__ void find(const FewCall &few, int unit) {
    payload = 0;
#pragma unroll
    for (int i = 1; i < MOERT_WORKSPACE_MAX_PAYLOADS; ++i) payload += unit >= few.payloads[i].firstUnit;
    const FewPayload &chosen = few.payloads[payload];
    const int32_t offset = (unit - chosen.firstUnit) * MOERT_WORKSPACE_UNIT_DATA + laneNumber() * 16;
    to = chosen.recv + offset;
    rowBytes = chosen.rowBytes;
    bytes = unit < few.rows.units ? rowBytes - offset : 0;
  }

  __device__ const char *source(const FewCall &few, uint32_t token) const {
    const FewPayload &chosen = few.payloads[payload];
    return chosen.from + (to - chosen.recv) + static_cast<uint64_t>(token) * static_cast<uint32_t>(rowBytes);
  }
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
      if (exists && few.width == 16 && parts[i].bytes > 0) vectors[i] = *reinterpret_cast<const uint4 *>(parts[i].source(few, token));
    }
  }

  // What `load` leaves, of rows that do not begin at addresses of vectors.
  __device__ void loadRest(uint32_t token) {
    if (few.width == 16) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (parts[i].bytes > 0) vectors[i] = loadNarrow(parts[i].source(few, token), parts[i].bytes, few.width);
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
    sendUnits(few.call.round, begun, few.rows, roomOf(few.call.round, begun, few.rows, rank, few.rows.rank, index), units, vectors);
  }

  template <typename IsNone> __device__ Coming receive(const Begun &begun, int source, char *room, const IsNone &isNone) {
    return receiveUnits(few.call.round, begun, few.rows, source, room, units, isNone, vectors);
  }

private:
  __device__ void find() {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) parts[i].find(few, units[i]);
  }

  const FewCall &few;
  Units<1> units;
  Part parts[kHeld];
  uint4 vectors[kHeld];
};

//===--- routing ----------------------------------------------------------------------------------===//

// What a block knows: the ranks that each token goes to.
struct FewMemory {
  unsigned long long named[kFewTokens];
};

// The choices that a lane looks at, in turns.
struct Choice {
  int token, slot;
  __device__ Choice(const FewCall &few, int turn)
      : token((static_cast<int>(threadIdx.x) >> few.teamShift) + turn * (kFewThreads >> few.teamShift)),
        slot(static_cast<int>(threadIdx.x) & ((1 << few.teamShift) - 1)) {}
  __device__ int32_t load(const FewCall &few) const { return token < few.tokens && slot < few.topK ? few.ids[token * few.topK + slot] : -1; }
};

const int kFirstTurns = kFewTokens * 8 / kFewThreads;

// The first of them: all if there are no more than 8 to each token.
struct FirstChoices {
  int32_t ids[kFirstTurns];
  __device__ explicit FirstChoices(const FewCall &few) {
#pragma unroll
    for (int turn = 0; turn < kFirstTurns; ++turn) ids[turn] = Choice(few, turn).load(few);
  }
};

// By a warp: the ranks that its lanes' tokens go to.
__device__ inline void routeChoice(const FewCall &few, const Begun &begun, const Choice &choice, int32_t id, FewMemory *memory) {
  const unsigned long long named = id >= 0 && id < few.experts ? (1ull << ownerOf(few.owners, id)) & begun.mask : 0;
  uint32_t low = static_cast<uint32_t>(named), high = static_cast<uint32_t>(named >> 32);
  for (int distance = 1 << few.teamShift >> 1; distance > 0; distance /= 2) {
    low |= __shfl_xor_sync(~0u, low, distance);
    high |= __shfl_xor_sync(~0u, high, distance);
  }
  if (choice.slot == 0 && choice.token < kFewTokens) memory->named[choice.token] = static_cast<unsigned long long>(high) << 32 | low;
}

// By the whole block. To be read behind a barrier, as far as there are tokens.
__device__ inline void routeTokens(const FewCall &few, const Begun &begun, const FirstChoices &first, FewMemory *memory) {
  const int atOnce = kFewThreads >> few.teamShift; // tokens
#pragma unroll
  for (int turn = 0; turn < kFirstTurns; ++turn)
    if (turn * atOnce < few.tokens) routeChoice(few, begun, Choice(few, turn), first.ids[turn], memory);
#pragma unroll 1
  for (int turn = kFirstTurns; turn * atOnce < few.tokens; ++turn) routeChoice(few, begun, Choice(few, turn), Choice(few, turn).load(few), memory);
}

// By a warp: how many of the tokens before `token` go to a rank: a row's place there.
__device__ inline int32_t rowsBefore(const FewCall &few, const FewMemory &memory, int rank, int token) {
  int32_t rows = 0;
#pragma unroll 1
  for (int first = 0; first < token; first += 32) {
    const bool goes = first + laneNumber() < token && (memory.named[first + laneNumber()] >> rank & 1) != 0;
    rows += __popc(__ballot_sync(~0u, goes));
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
    const int32_t before = rowsBefore(few, memory, rank, token);
    if (lane != __ffs(static_cast<int>(__ballot_sync(~0u, owner == rank))) - 1) continue;
    target = rank;
    index = before;
  }
  if (lane >= few.topK) return;
  regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[token * few.topK + lane] = target;
  regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[token * few.topK + lane] = index;
}

//===--- counts -----------------------------------------------------------------------------------===//

// How many rows `from` has for `at`, in a word that is its own flag.
__device__ inline unsigned long long *totalAt(const Call &call, int at, int from) { return groupCounts<Receives::inPlace>(call, at, from); }

// By a warp of block 0.
__device__ inline void tellTotals(const FewCall &few, const Begun &begun, const FewMemory &memory) {
#pragma unroll 1
  for (int peer = 0; peer < few.rows.ranks; ++peer) {
    const int32_t total = rowsBefore(few, memory, peer, few.tokens);
    if (laneNumber() != 0) continue;
    if (takesPart(begun, peer)) storeRelaxed(totalAt(few.call, peer, few.rows.rank), countWord(begun, total));
    regionOf<int32_t>(few.call.round.exchange, MOERT_METAINFO_SEND_COUNTERS)[peer] = total;
  }
  __syncwarp();
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
  for (int peer = laneNumber(); peer < exchange.watch.ranks; peer += 32) {
    const int32_t received = peer < 32 ? low : high;
    regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_COUNTERS)[peer] = regionOf<int32_t>(exchange, MOERT_METAINFO_COUNT_FLAGS)[peer] = received;
    if (call.recvCounts) call.recvCounts[peer] = received;
  }
  return true;
}

//===--- by workers -------------------------------------------------------------------------------===//

__device__ inline void sendParts(const FewCall &few, const Begun &begun, const FewMemory &memory, const Parts &parts, int token) {
  const int me = few.rows.rank;
  const unsigned long long named = memory.named[token];
#pragma unroll 1
  for (unsigned long long left = named & ~(1ull << me); left; left &= left - 1) {
    const int rank = __ffsll(static_cast<long long>(left)) - 1;
    parts.send(begun, rank, rowsBefore(few, memory, rank, token));
  }
  if (named >> me & 1) parts.place(laneRow(few.call, me, rowsBefore(few, memory, me, token)));
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
      parts->loadRest(static_cast<uint32_t>(item.row));
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
__device__ inline bool endRows(const FewCall &few, const Begun &begun, uint32_t turn, const FewMemory &memory) {
  if (blockIdx.x == 0 && !begun.fails) tellTotals(few, begun, memory);
  if (laneNumber() == 0) countBegun(few.rows, begun, turn);
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
  const uint32_t turn = few.rows.turns->number;
  routeTokens(few, begun, choices, &memory);
  shareBegin(call.round, NothingToCheck(), &begun);
  if (call.round.stop != kGoOn) return;
  bool fails = begun.fails;
  if (!isFewWorker()) {
    fails = !endRows(few, begun, turn, memory);
  } else if (!fails) {
    if (sends) {
      parts.loadRest(static_cast<uint32_t>(item.row));
      sendParts(few, begun, memory, parts, item.row);
    }
    forOtherParts(few, &parts, [&](int token) { sendParts(few, begun, memory, parts, token); });
    fails = !receiveRows(few, begun, &parts);
  }
  if (!leaveTurn(few.rows.turns, turn, fails)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace dispatch

#endif

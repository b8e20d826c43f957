//===- few.cuh - moe.combine of few tokens on devices -----------------------------------------------------===//
//
// Rows that go back are their own flags, as kernels/common/few.cuh says, with the layout rank_major and in the payload's type. A block has a row of a
// peer, or a part of it, which it sends, and a token, which it adds up.
//
// A lane has the same columns of both, a piece in each group of units, and so nobody needs what another has received. Where everything is plain, and
// two rows at most are to be added, what comes is added as it is. Otherwise it is put to COMBINE_ARRIVALS, from where the lane that did so adds it as
// the kernel of many tokens does.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_COMBINE_FEW_CUH
#define MOE_KERNELS_MOE_COMBINE_FEW_CUH

#include "kernels/common/few.cuh"
#include "kernels/moe_combine/kernels.cuh"

namespace combine {

using namespace few;

// The kernel's parameter; a token's columns are divided among `call.add.warps` warps.
struct FewCall {
  FewRows rows;
  const int32_t *received, *targets, *indices; // what the dispatch has left
  Call call;
};

const int kHeld = 2; // units of a row that a warp has at once

// The units of a piece, one for each of its vectors.
template <typename Kind> using UnitsOf = Units<Numbers<Kind::kFormat>::kWords>;

// Some pieces of a row, as a lane has them.
template <typename Kind> class Pieced {
public:
  static const int kVectors = Numbers<Kind::kFormat>::kWords, kPieces = kHeld / kVectors;

  __device__ Pieced(const FewCall &few, const UnitsOf<Kind> &units) : few(few), units(units), vectors{} {}

  __device__ int column(int i) const { return (units.first + i * units.step) * 32 * kPiece + laneNumber() * kPiece; }
  __device__ bool has(int i) const { return column(i) < Kind::hidden(few.call); }

  // Row `row` of the payload.
  __device__ void load(int64_t row) {
    const int hidden = Kind::hidden(few.call);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      uint4 piece[kVectors];
      loadVectors<Kind::kFormat>(few.call.payload, row * hidden + (has(i) ? column(i) : 0), kPiece, Kind::alignedPayload(few.call), piece);
#pragma unroll
      for (int j = 0; j < kVectors; ++j) vectors[i * kVectors + j] = has(i) ? piece[j] : uint4{};
    }
  }

  __device__ void send(const Begun &begun, int rank, int32_t index) const {
    const Round &round = few.call.round;
    sendUnits(round, begun, few.rows, roomOf(round, begun, few.rows, rank, round.exchange.watch.rank, index), units, vectors);
  }

  // False if the round has failed.
  __device__ bool receive(const Begun &begun, int source, int32_t index) {
    const Round &round = few.call.round;
    char *room = roomOf(round, begun, few.rows, round.exchange.watch.rank, source, index);
    return receiveUnits(round, begun, few.rows, source, room, units, [] { return false; }, vectors) != Coming::failed;
  }

  __device__ void unpack(int i, float (&piece)[kPiece]) const {
    uint4 packed[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) packed[j] = vectors[i * kVectors + j];
    unpackPiece<Kind::kFormat>(packed, piece);
  }

  __device__ void take(const Pieced &other) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) vectors[i] = other.vectors[i];
  }

  __device__ void store(char *row) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (!has(i)) continue;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) reinterpret_cast<uint4 *>(row + column(i) * Numbers<Kind::kFormat>::kBytes)[j] = vectors[i * kVectors + j];
    }
  }

private:
  const FewCall &few;
  const UnitsOf<Kind> units;
  uint4 vectors[kHeld];
};

//===--- sending ----------------------------------------------------------------------------------===//

// What a block sends: a part of a row of a peer.
struct SentRow {
  int part, source, index;
  __device__ SentRow(const FewCall &few, int item) {
    const int row = item / few.rows.parts, peers = few.rows.ranks > 1 ? few.rows.ranks - 1 : 1;
    part = item % few.rows.parts;
    source = peerOf(few.rows, row % peers);
    index = row / peers;
  }
};

__device__ inline int sentRows(const FewCall &few) { return static_cast<int>(few.call.maxTokens) * (few.rows.ranks - 1) * few.rows.parts; }

// Rows that are sent, of which there are as many as were received; others may be loaded too.
template <typename Kind>
__device__ void sendRow(const FewCall &few, const Begun &begun, const SentRow &row, int32_t received, const Pieced<Kind> &pieces) {
  if (row.index < received && takesPart(begun, row.source)) pieces.send(begun, row.source, row.index);
}

// All but the first units of the block's first row.
template <typename Kind> __device__ void sendOthers(const FewCall &few, const Begun &begun) {
  for (int item = static_cast<int>(blockIdx.x); item < sentRows(few); item += static_cast<int>(gridDim.x)) {
    const SentRow row(few, item);
    UnitsOf<Kind> units(few.rows, row.part);
    if (item == static_cast<int>(blockIdx.x)) units.pass(kHeld);
    const int32_t received = units.isDone() ? 0 : few.received[row.source];
#pragma unroll 1
    for (; row.index < received && !units.isDone(); units.pass(kHeld)) {
      Pieced<Kind> pieces(few, units);
      pieces.load(laneRow(few.call, row.source, row.index));
      sendRow<Kind>(few, begun, row, received, pieces);
    }
  }
}

//===--- sums -------------------------------------------------------------------------------------===//

// As `tokenOf`.
__device__ inline Token fewToken(const FewCall &few, int64_t number) {
  const int lane = laneNumber(), topK = few.call.topK;
  Token token = {-1, 0, 0};
  if (lane < topK) {
    token.target = few.targets[number * topK + lane];
    token.index = few.indices[number * topK + lane];
  }
  token.present = __ballot_sync(kAllLanes, token.target >= 0);
  return token;
}

// The lane whose row this rank has itself.
__device__ inline uint32_t ownSlot(const FewCall &few, const Token &token) { return __ballot_sync(kAllLanes, token.target == few.rows.rank); }

// Adds up two rows at most: as `SumOfTwo` says, their order makes no difference. False if the round has failed.
template <typename Kind>
__device__ bool addTwo(const FewCall &few, const Begun &begun, const Token &token, int64_t number, const UnitsOf<Kind> &units) {
  const Call &call = few.call;
  const int me = call.round.exchange.watch.rank, topK = Kind::topK(call);
  const uint32_t own = ownSlot(few, token);
  const int32_t ownIndex = __shfl_sync(kAllLanes, token.index, own ? __ffs(static_cast<int>(own)) - 1 : 0);
  Pieced<Kind> pieces(few, units), others(few, units);
  if (own) others.load(laneRow(call, me, ownIndex));
#pragma unroll 1
  for (uint32_t all = token.present & ~own, left = all; left; left &= left - 1) {
    const int slot = __ffs(static_cast<int>(left)) - 1;
    if (left != all) others.take(pieces);
    if (!pieces.receive(begun, __shfl_sync(kAllLanes, token.target, slot), __shfl_sync(kAllLanes, token.index, slot))) return false;
  }
#pragma unroll
  for (int i = 0; i < Pieced<Kind>::kPieces; ++i) {
    float sum[kPiece], other[kPiece];
    pieces.unpack(i, sum);
    others.unpack(i, other);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      if (topK > 1)
        sum[j] += other[j];
      else if (own) // the only row
        sum[j] = other[j];
      if (topK > 2) sum[j] += 0.0f; // which only adding two -0 leaves to be done
    }
    if (pieces.has(i)) storePiece<Kind::kFormat>(call.out, number * Kind::hidden(call) + pieces.column(i), kPiece, true, sum);
  }
  return true;
}

// A token of any rows, by way of COMBINE_ARRIVALS. Apart, for the registers that it takes would be missing elsewhere. False if the round has failed.
template <typename Kind> static __device__ __noinline__ bool addUnpacked(const FewCall &few, Begun begun, Token token, int64_t number, int part) {
  const Call &call = few.call;
  const int me = call.round.exchange.watch.rank;
#pragma unroll 1
  for (UnitsOf<Kind> units(few.rows, part); !units.isDone(); units.pass(kHeld))
#pragma unroll 1
    for (uint32_t left = Kind::copies(call) ? token.present & ~ownSlot(few, token) : token.present; left; left &= left - 1) {
      const int slot = __ffs(static_cast<int>(left)) - 1, source = __shfl_sync(kAllLanes, token.target, slot);
      const int32_t index = __shfl_sync(kAllLanes, token.index, slot);
      Pieced<Kind> pieces(few, units);
      if (source == me)
        pieces.load(laneRow(call, me, index));
      else if (!pieces.receive(begun, source, index))
        return false;
      pieces.store(arrivalOf(call, me, laneRow(call, source, index), Kind::wireBytes(call)));
    }
  const int first = UnitsOf<Kind>(few.rows, part).first;
  if constexpr (Kind::kIsPlain)
    writeToken<Kind>(call, number, first, SumOfMany<Kind>(call, token));
  else
    addToken<Kind>(call, token, number, first);
  return true;
}

template <typename Kind> __device__ bool addPart(const FewCall &few, const Begun &begun, const Token &token, int64_t number, int part) {
  if constexpr (Kind::kIsPlain) {
    bool goesOn = true, isTwo = __popc(token.present) <= 2;
#pragma unroll 1
    for (UnitsOf<Kind> units(few.rows, part); isTwo && goesOn && !units.isDone(); units.pass(kHeld))
      goesOn = addTwo<Kind>(few, begun, token, number, units);
    if (isTwo) return goesOn;
  }
  return addUnpacked<Kind>(few, begun, token, number, part);
}

// `first`: the block's first token. False if the round has failed.
template <typename Kind> __device__ bool addTokens(const FewCall &few, const Begun &begun, const Token &first) {
  const int items = static_cast<int>(few.call.tokens) * few.rows.parts;
  Token token = first;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int number = item / few.rows.parts;
    if (item != static_cast<int>(blockIdx.x)) token = fewToken(few, number);
    if (!addPart<Kind>(few, begun, token, number, item % few.rows.parts)) return false;
  }
  return true;
}

//===--- the kernel -------------------------------------------------------------------------------===//

template <typename Kind> __global__ void __launch_bounds__(kFewThreads, kBlocksPerSm) combineFew(const __grid_constant__ FewCall few) {
  const Call &call = few.call;
  const int item = static_cast<int>(blockIdx.x);
  const bool sends = isFewWorker() && item < sentRows(few), adds = isFewWorker() && item / few.rows.parts < call.tokens;
  const SentRow row(few, sends ? item : 0);
  Pieced<Kind> pieces(few, UnitsOf<Kind>(few.rows, row.part));
  int32_t received = 0;
  awaitStream();
  Begun begun = readFew(few.rows);
  const uint32_t turn = few.rows.turns->number;
  if (sends) pieces.load(laneRow(call, row.source, row.index));
  if (sends) received = few.received[row.source];
  Token first = {};
  if (adds) first = fewToken(few, item / few.rows.parts);
  shareBegin(call.round, NothingToCheck(), &begun);
  if (call.round.stop != kGoOn) return;
  bool fails = begun.fails;
  if (!isFewWorker()) {
    if (laneNumber() == 0) countBegun(few.rows, begun, turn);
    __syncwarp();
    if (!fails && Kind::kQuantizes) zeroPadding(call.quantized, blockIdx.x, gridDim.x, static_cast<unsigned>(laneNumber()), 32);
    if (!fails && blockIdx.x == 0) fails = !awaitBegun(call.round, begun, [](int) { return true; });
  } else if (!fails) {
    sendRow<Kind>(few, begun, row, received, pieces);
    sendOthers<Kind>(few, begun);
    fails = !addTokens<Kind>(few, begun, first);
  }
  if (!leaveTurn(few.rows.turns, turn, fails)) return;
  poisonByBlock(call.output);
  poisonByBlock(call.scales);
}

} // namespace combine

#endif

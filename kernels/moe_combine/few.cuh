//===- few.cuh - moe.combine of few tokens on devices -----------------------------------------------------===//
//
// Rows that go back are their own flags, as kernels/common/few.cuh says, in the payload's type. A block has a row of a peer, or a part of it, which
// it sends, and a token, which it adds up. With the layout expert_grouped a row, of a peer or of this rank, is the weighted sum of those of its
// choices.
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

const int kHeld = 4; // units of a row that a warp has at once

// The units of a piece, one for each of its vectors.
template <typename Kind> using UnitsOf = Units<Numbers<Kind::kFormat>::kWords>;

// Some pieces of a row, as a lane has them.
template <typename Kind> class Pieced {
public:
  static const int kVectors = Numbers<Kind::kFormat>::kWords, kPieces = kHeld / kVectors;

  __device__ Pieced(const FewCall &few, const UnitsOf<Kind> &units) : few(few), units(units), vectors{} {}

  __device__ int column(int i) const { return (units.first + i * units.step) * 32 * kPiece + laneNumber() * kPiece; }
  __device__ bool has(int i) const { return column(i) < Kind::hidden(few.call); }

  // Of what was received row `row`, whose choices are `choices`.
  __device__ void load(int64_t row, const Choices &choices) {
    const int hidden = Kind::hidden(few.call);
    uint4 loaded[kPieces][kVectors];
    int columns[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) columns[i] = has(i) ? column(i) : 0;
    if (Kind::isGrouped(few.call)) {
      Pieces<kPieces> sums;
      loadWeighted<Kind, 2>(few.call, choices, columns, sums);
#pragma unroll
      for (int i = 0; i < kPieces; ++i) packPiece<Kind::kFormat>(sums[i], loaded[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        loadVectors<Kind::kFormat>(few.call.payload, row * hidden + columns[i], kPiece, Kind::alignedPayload(few.call), loaded[i]);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
#pragma unroll
      for (int j = 0; j < kVectors; ++j) vectors[i * kVectors + j] = has(i) ? loaded[i][j] : uint4{};
  }

  __device__ void send(const Begun &begun, int rank, int32_t index) const {
    const Round &round = few.call.round;
    char *room = roomOf(round, begun, few.rows, rank, round.exchange.watch.rank, index);
    sendVectors(room, units, vectors);
    sendHeaders<kHeld>(round, begun, few.rows, room, units, zerosOf(vectors));
  }

  // False if the round has failed.
  __device__ bool receive(const Begun &begun, int source, int32_t index) {
    const Round &round = few.call.round;
    char *room = roomOf(round, begun, few.rows, round.exchange.watch.rank, source, index);
    const auto isNone = [] { return false; };
    return receiveUnits(round, begun, few.rows, source, room, units, isNone, vectors) != Coming::failed;
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

__device__ inline int sentItems(const FewCall &few) { return itemsOf(few.rows, few.call.maxTokens * (few.rows.ranks - 1)); }

// Of row `row` of what was received, if it `exists`; nothing unless they are grouped.
template <typename Kind> __device__ Choices loadFewChoices(const FewCall &few, int64_t row, bool exists) {
  return Kind::isGrouped(few.call) && exists ? loadChoices<Kind>(few.call, row) : Choices{-1, 0.0f, 0};
}

template <typename Kind> __device__ Choices fewChoices(const FewCall &few, int64_t row, bool exists) {
  Choices choices = loadFewChoices<Kind>(few, row, exists);
  shareChoices(&choices);
  return choices;
}

// Of a row, if it is one of those that were received; others may be loaded too.
template <typename Kind>
__device__ void sendRow(const FewCall &few, const Begun &begun, const PeerItem &row, int32_t received, const Pieced<Kind> &pieces) {
  if (row.index < received && takesPart(begun, row.peer)) pieces.send(begun, row.peer, row.index);
}

// All but the first units of the block's first row.
template <typename Kind> __device__ void sendOthers(const FewCall &few, const Begun &begun) {
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < sentItems(few); number += static_cast<int>(gridDim.x)) {
    const PeerItem row(few.rows, number);
    UnitsOf<Kind> units(few.rows, row.part);
    if (number == static_cast<int>(blockIdx.x)) units.pass(kHeld);
    const int32_t received = units.isDone() ? 0 : few.received[row.peer];
    const int64_t lane = laneRow(few.call, row.peer, row.index);
    const Choices choices = fewChoices<Kind>(few, lane, row.index < received);
#pragma unroll 1
    for (; row.index < received && !units.isDone(); units.pass(kHeld)) {
      Pieced<Kind> pieces(few, units);
      pieces.load(lane, choices);
      sendRow<Kind>(few, begun, row, received, pieces);
    }
  }
}

//===--- sums -------------------------------------------------------------------------------------===//

// A token, the lane whose row this rank has itself, that row's number, and its choices.
struct FewToken {
  Token rows;
  uint32_t own;
  int32_t ownIndex;
  Choices choices;
};

// As `tokenOf`, but for what lanes say of each other.
__device__ inline FewToken loadToken(const FewCall &few, int64_t number, bool exists) {
  const int lane = laneNumber(), topK = few.call.topK;
  FewToken token = {{-1, 0, 0}, 0, 0, {-1, 0.0f, 0}};
  if (exists && lane < topK) token.rows.target = few.targets[number * topK + lane];
  if (exists && lane < topK) token.rows.index = few.indices[number * topK + lane];
  return token;
}

// But for what lanes say of its choices.
template <typename Kind> __device__ void shareToken(const FewCall &few, FewToken *token) {
  token->rows.present = __ballot_sync(kAllLanes, token->rows.target >= 0);
  token->own = __ballot_sync(kAllLanes, token->rows.target == few.rows.rank);
  token->ownIndex = __shfl_sync(kAllLanes, token->rows.index, token->own ? __ffs(static_cast<int>(token->own)) - 1 : 0);
  token->choices = loadFewChoices<Kind>(few, laneRow(few.call, few.rows.rank, token->ownIndex), token->own != 0);
}

// Adds up two rows at most: as `SumOfTwo` says, their order makes no difference. False if the round has failed.
template <typename Kind>
__device__ bool addTwo(const FewCall &few, const Begun &begun, const FewToken &token, int64_t number, const UnitsOf<Kind> &units) {
  const Call &call = few.call;
  const int topK = Kind::topK(call);
  Pieced<Kind> pieces(few, units), others(few, units);
  Choices choices = token.choices;
  shareChoices(&choices);
  if (token.own) others.load(laneRow(call, few.rows.rank, token.ownIndex), choices);
#pragma unroll 1
  for (uint32_t all = token.rows.present & ~token.own, left = all; left; left &= left - 1) {
    const int slot = __ffs(static_cast<int>(left)) - 1;
    if (left != all) others.take(pieces);
    if (!pieces.receive(begun, __shfl_sync(kAllLanes, token.rows.target, slot), __shfl_sync(kAllLanes, token.rows.index, slot))) return false;
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
      else if (token.own) // the only row
        sum[j] = other[j];
      if (topK > 2) sum[j] += 0.0f; // which only adding two -0 leaves to be done
    }
    if (pieces.has(i)) storePiece<Kind::kFormat>(call.out, number * Kind::hidden(call) + pieces.column(i), kPiece, true, sum);
  }
  return true;
}

// A token of any rows, by way of COMBINE_ARRIVALS, to which this rank's own row goes too if it cannot be taken from the payload. Apart, for the
// registers that it takes would be missing elsewhere. False if the round has failed.
template <typename Kind> static __device__ __noinline__ bool addUnpacked(const FewCall &few, Begun begun, FewToken token, int64_t number, int part) {
  const Call &call = few.call;
#pragma unroll 1
  for (UnitsOf<Kind> units(few.rows, part); !units.isDone(); units.pass(kHeld))
#pragma unroll 1
    for (uint32_t left = token.rows.present; left; left &= left - 1) {
      const int slot = __ffs(static_cast<int>(left)) - 1, source = __shfl_sync(kAllLanes, token.rows.target, slot);
      const int32_t index = __shfl_sync(kAllLanes, token.rows.index, slot);
      if (isInPayload<Kind>(call, source)) continue;
      const int64_t row = laneRow(call, source, index);
      Pieced<Kind> pieces(few, units);
      if (source == few.rows.rank)
        pieces.load(row, fewChoices<Kind>(few, row, true));
      else if (!pieces.receive(begun, source, index))
        return false;
      pieces.store(arrivalOf(call, few.rows.rank, row, Kind::wireBytes(call)));
    }
  const int first = UnitsOf<Kind>(few.rows, part).first;
  if (!Kind::kIsPlain && __popc(token.rows.present) <= 2)
    writeToken<Kind>(call, number, first, sumOfTwo<Kind>(call, token.rows));
  else
    writeToken<Kind>(call, number, first, SumOfMany<Kind>(call, token.rows));
  return true;
}

template <typename Kind> __device__ bool addPart(const FewCall &few, const Begun &begun, const FewToken &token, int64_t number, int part) {
  if constexpr (Kind::kIsPlain) {
    bool goesOn = true, isTwo = __popc(token.rows.present) <= 2;
#pragma unroll 1
    for (UnitsOf<Kind> units(few.rows, part); isTwo && goesOn && !units.isDone(); units.pass(kHeld))
      goesOn = addTwo<Kind>(few, begun, token, number, units);
    if (isTwo) return goesOn;
  }
  return addUnpacked<Kind>(few, begun, token, number, part);
}

// `first`: the block's first token, as `shareToken` leaves it. False if the round has failed.
template <typename Kind> __device__ bool addTokens(const FewCall &few, const Begun &begun, const FewToken &first) {
  const int items = itemsOf(few.rows, few.call.tokens);
  FewToken token = first;
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < items; number += static_cast<int>(gridDim.x)) {
    const Item item(few.rows, number);
    if (number != static_cast<int>(blockIdx.x)) {
      token = loadToken(few, item.row, true);
      shareToken<Kind>(few, &token);
    }
    if (!addPart<Kind>(few, begun, token, item.row, item.part)) return false;
  }
  return true;
}

//===--- the kernel -------------------------------------------------------------------------------===//

template <typename Kind, typename Check>
__global__ void __launch_bounds__(kFewThreads, kBlocksPerSm) combineFew(const __grid_constant__ FewCall few, Check check) {
  const Call &call = few.call;
  const int number = static_cast<int>(blockIdx.x);
  const Item item(few.rows, number);
  const PeerItem row(few.rows, number);
  const bool sends = isFewWorker() && number < sentItems(few);
  Pieced<Kind> pieces(few, UnitsOf<Kind>(few.rows, row.part));
  const int64_t lane = laneRow(call, row.peer, row.index);
  int32_t received = 0;
  awaitStream();
  if (sends) received = few.received[row.peer];
  FewToken first = loadToken(few, item.row, isFewWorker() && item.row < call.tokens);
  if (sends && !Kind::isGrouped(call)) pieces.load(lane, {});
  Begun begun = readFew(few.rows); // behind all other loads: who looks at it waits for memory
  Choices choices = loadFewChoices<Kind>(few, lane, sends);
  shareToken<Kind>(few, &first); // its choices are on their way together with those
  shareChoices(&choices);
  if (Kind::isGrouped(call) && row.index < received) pieces.load(lane, choices);
  shareBegin(call.round, check, &begun);
  if (call.round.stop != kGoOn) return;
  bool fails = begun.fails;
  if (!isFewWorker()) {
    if (laneNumber() == 0) countBegun(few.rows, begun);
    __syncwarp();
    if (!fails && Kind::kQuantizes) zeroPadding(call.quantized, blockIdx.x, gridDim.x, static_cast<unsigned>(laneNumber()), 32);
    if (!fails && blockIdx.x == 0) fails = !awaitBegun(call.round, begun, [](int) { return true; });
  } else if (!fails) {
    sendRow<Kind>(few, begun, row, received, pieces);
    sendOthers<Kind>(few, begun);
    fails = !addTokens<Kind>(few, begun, first);
  }
  if (!leaveTurn(few.rows.turns, begun.turn, fails)) return;
  poisonByBlock(call.output);
  poisonByBlock(call.scales);
}

} // namespace combine

#endif

//===- kernels.cuh - moe.allreduce_fusion on devices ----------------------------------------------------===//
//
// lib/reference/moe_allreduce_fusion.c says what is added in which order; these kernels write the same bits. A thread works on pieces of 8 columns, a
// warp on 32 pieces, a block on 32 warps: the three levels of the sum of squares.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_ALLREDUCE_FUSION_KERNELS_CUH
#define MOE_KERNELS_MOE_ALLREDUCE_FUSION_KERNELS_CUH

#include "kernels/common/exchange.cuh"
#include "lib/reference/moe_allreduce_fusion.h"

namespace allreduce {

static_assert(kPiece == MOERT__ALLREDUCE_VECTOR && MOERT__ALLREDUCE_WIDTH == 32, "a thread's piece, and a warp");
const int kWarps = MOERT__ALLREDUCE_WIDTH;
const int kMostThreads = 32 * kWarps, kSendThreads = 256;
const int kOutputs = 3;

// moe_reduction_device_num_experts; `data` is NULL if there is none, and all `most` count.
struct Number {
  const void *data;
  bool isUnsigned;
  int64_t most;

  __device__ int64_t read() const {
    if (!data) return most;
    return isUnsigned ? static_cast<int64_t>(*static_cast<const uint32_t *>(data)) : *static_cast<const int32_t *>(data);
  }
};

struct NumberFits {
  Number number;
  __device__ bool operator()(const Exchange &exchange) const {
    int64_t value = number.read();
    if (value >= 0 && value <= number.most) return true;
    report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_ALLREDUCE_EXPERTS, value, number.most);
    return false;
  }
};

// The parameter of all kernels.
struct Call {
  Exchange exchange;
  Number number;
  const void *inputs, *scales, *shared, *residual, *gamma;
  void *sumOut, *residualOut, *normOut; // may be NULL
  int64_t tokens, hidden, rowBytes;
  moert__format scaleFormat;
  int32_t fp32Acc;
  bool aligned; // all rows begin at multiples of 16 bytes
  float epsilon, bias;
  Output outputs[kOutputs];
};

// What an instance knows; -1 or 0: known at run time.
template <moert__format kFormat, int kHidden, int kFp32Acc> struct Known {
  __device__ static int64_t hidden(const Call &call) { return kHidden ? kHidden : call.hidden; }
  __device__ static bool accumulatesInF32(const Call &call) { return kFp32Acc >= 0 ? kFp32Acc != 0 : call.fp32Acc != 0; }
};

//===--- this rank's part -------------------------------------------------------------------------===//

// The part of rank `from` as rank `at` receives it.
__device__ inline char *partAt(const Call &call, int at, int from) {
  return regionOf<char>(call.exchange, at, MOERT_METAINFO_PAYLOAD_DATA) + from * call.tokens * call.rowBytes;
}

template <moert__format kFormat> __device__ void addExpert(bool inF32, const float (&piece)[kPiece], float scale, float (&sum)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    if (inF32)
      sum[i] = fmaf(piece[i], scale, sum[i]);
    else
      sum[i] = moert__round_to(kFormat, sum[i] + moert__round_to(kFormat, piece[i] * scale));
  }
}

template <moert__format kFormat>
__device__ void addPart(const Call &call, bool inF32, int64_t experts, int64_t hidden, int64_t token, int64_t column, float (&sum)[kPiece]) {
  float piece[kPiece];
  for (int64_t expert = 0; expert < experts; ++expert) {
    int64_t row = expert * call.tokens + token;
    loadPiece<kFormat>(call.inputs, row * hidden + column, kPiece, call.aligned, piece);
    addExpert<kFormat>(inF32, piece, moert__load(call.scaleFormat, call.scales, row), sum);
  }
  loadPiece<kFormat>(call.shared, token * hidden + column, kPiece, call.aligned, piece);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum[i] += piece[i];
}

// A block makes the part of a token, and sends it to all ranks.
template <moert__format kFormat, int kHidden, int kFp32Acc>
__global__ void __launch_bounds__(kSendThreads) sendParts(const __grid_constant__ Call call) {
  using Is = Known<kFormat, kHidden, kFp32Acc>;
  const Exchange &exchange = call.exchange;
  if (hasFailed(exchange)) return;
  const int64_t hidden = Is::hidden(call), experts = call.number.read();
  const bool inF32 = Is::accumulatesInF32(call);
  for (int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    for (int64_t column = threadIdx.x * kPiece; column < hidden; column += kSendThreads * kPiece) {
      float part[kPiece] = {};
      addPart<kFormat>(call, inF32, experts, hidden, token, column, part);
      for (int peer = 0; peer < exchange.watch.ranks; ++peer)
        if (lives(exchange, peer))
          storePiece(inF32 ? MOERT__F32 : kFormat, partAt(call, peer, exchange.watch.rank), token * hidden + column, kPiece, true, part);
    }
  }
}

//===--- all ranks' sum ---------------------------------------------------------------------------===//

template <moert__format kFormat> __device__ void loadPart(const Call &call, bool inF32, int from, int64_t element, float (&piece)[kPiece]) {
  const char *part = partAt(call, call.exchange.watch.rank, from);
  if (inF32)
    loadPiece<MOERT__F32>(part, element, kPiece, true, piece);
  else
    loadPiece<kFormat>(part, element, kPiece, true, piece);
}

// The parts of the living ranks in their order. With fp32_acc only the last rounding changes anything. -0.0 leaves as +0.0.
template <moert__format kFormat> __device__ void addParts(const Call &call, bool inF32, int64_t element, float (&sum)[kPiece]) {
  int from = 0;
  while (!lives(call.exchange, from)) ++from;
  loadPart<kFormat>(call, inF32, from, element, sum);
  while (++from < call.exchange.watch.ranks) {
    if (!lives(call.exchange, from)) continue;
    float part[kPiece];
    loadPart<kFormat>(call, inF32, from, element, part);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] = inF32 ? sum[i] + part[i] : moert__round_to(kFormat, sum[i] + part[i]);
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    sum[i] = moert__round_to(kFormat, sum[i]);
    if (sum[i] == 0.0f) sum[i] = 0.0f;
  }
}

// Into *total: the sum with the residual, as it is stored. residual_out may be residual_in: an element is read before it is written.
template <moert__format kFormat> __device__ void addResidual(const Call &call, bool inF32, int64_t element, float (&total)[kPiece]) {
  float residual[kPiece];
  addParts<kFormat>(call, inF32, element, total);
  loadPiece<kFormat>(call.residual, element, kPiece, call.aligned, residual);
  if (call.sumOut) storePiece<kFormat>(call.sumOut, element, kPiece, call.aligned, total);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) total[i] = moert__round_to(kFormat, total[i] + residual[i]);
  if (call.residualOut) storePiece<kFormat>(call.residualOut, element, kPiece, call.aligned, total);
  if (call.normOut) storePiece<kFormat>(call.normOut, element, kPiece, call.aligned, total);
}

//===--- norm -------------------------------------------------------------------------------------===//

// By halves, into the first lane.
__device__ inline float addHalves(float value) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) value += __shfl_down_sync(~0u, value, width);
  return value;
}

__device__ inline float squaresOf(const float (&piece)[kPiece]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum = fmaf(piece[i], piece[i], sum);
  return sum;
}

// The sum over a block of what its threads have. Warps that are not there count as 0.
__device__ inline float addOverBlock(float value) {
  __shared__ float sums[kWarps], all;
  int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float sum = addHalves(value);
  __syncthreads(); // the sums of the call before have been read
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = addHalves(lane * 32 < static_cast<int>(blockDim.x) ? sums[lane] : 0.0f);
    if (lane == 0) all = sum;
  }
  __syncthreads();
  return all;
}

// norm_out holds the sums with the residual; each thread comes back to the pieces that it has written.
template <moert__format kFormat> __device__ void normalize(const Call &call, int64_t hidden, int64_t token, float squares) {
  float mean = moert__divide(squares, static_cast<float>(hidden));
  float inverse = moert__divide(1.0f, moert__square_root(mean + call.epsilon));
  for (int64_t column = threadIdx.x * kPiece; column < hidden; column += blockDim.x * kPiece) {
    float piece[kPiece], gamma[kPiece];
    loadPiece<kFormat>(call.normOut, token * hidden + column, kPiece, call.aligned, piece);
    loadPiece<kFormat>(call.gamma, column, kPiece, call.aligned, gamma);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = piece[i] * inverse * (call.bias + gamma[i]);
    storePiece<kFormat>(call.normOut, token * hidden + column, kPiece, call.aligned, piece);
  }
}

// A block finishes a token. It has as many threads as a token has pieces, up to kMostThreads.
template <moert__format kFormat, int kHidden, int kFp32Acc>
__global__ void __launch_bounds__(kMostThreads, 1) finishTokens(const __grid_constant__ Call call) {
  using Is = Known<kFormat, kHidden, kFp32Acc>;
  if (hasFailed(call.exchange)) {
    for (int i = 0; i < kOutputs; ++i) poison(call.outputs[i]);
    return;
  }
  const int64_t hidden = Is::hidden(call);
  const bool inF32 = Is::accumulatesInF32(call);
  for (int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    float squares = 0.0f;
    for (int64_t begin = 0; begin < hidden; begin += blockDim.x * kPiece) {
      int64_t column = begin + threadIdx.x * kPiece;
      float piece[kPiece] = {};
      if (column < hidden) addResidual<kFormat>(call, inF32, token * hidden + column, piece);
      squares += addOverBlock(squaresOf(piece));
    }
    if (call.normOut) normalize<kFormat>(call, hidden, token, squares);
  }
}

} // namespace allreduce

#endif

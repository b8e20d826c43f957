//===- kernels.cuh - ep.combine.skip_a2a on devices ----------------------------------------------------===//
//
//   checkRound   one block: whether the counters are those of the dispatch that this call combines
//   ascribeRows  turns src_info round into the row of each pair
//   checkPairs   whether each pair of this rank has its row
//   combineRows  the sums
//
// They share a CombineState, which is all ones at first. If one of them finds a fault, nothing is written.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_EP_COMBINE_SKIP_A2A_KERNELS_CUH
#define MOE_KERNELS_EP_COMBINE_SKIP_A2A_KERNELS_CUH

#include "kernels/common/pairs.cuh"

static const unsigned long long kNothingMissing = ~0ull;

struct CombineState {
  int64_t end;                // of the experts' rows, -1: the counters are at fault
  unsigned long long missing; // the first pair that has no row
};

struct CombineCall {
  EpLayer layer;
  const void *rows, *weights;
  moert__format weightFormat;
  const int *sources;
  void *out;
  int64_t numRows;
  // The arena's.
  CombineState *state;
  int *rowOf; // [tokens][topK]: -1: none
};

//===--- counters ---------------------------------------------------------------------------------===//

__device__ inline bool isRoundWrong(const EpLayer &layer) {
  const int64_t tokens = static_cast<int64_t>(layer.round[0]) - kFlag; // whatever was written over the counter, this does not overflow
  if (!layer.round[0])
    report(layer.fault, layer.op, MOERT__FAULT_EP_IDLE);
  else if (tokens != layer.tokens)
    report(layer.fault, layer.op, MOERT__FAULT_EP_TOKENS, layer.tokens, tokens);
  else if (layer.round[1] != layer.topK)
    report(layer.fault, layer.op, MOERT__FAULT_EP_TOP_K, layer.topK, layer.round[1]);
  else if (layer.round[2] != layer.fusedShared)
    report(layer.fault, layer.op, MOERT__FAULT_EP_SHARED, layer.fusedShared, layer.round[2]);
  else
    return false;
  return true;
}

__device__ inline int64_t endOf(const EpLayer &layer, int64_t expert) { return static_cast<int64_t>(layer.segments[2 * expert]) - kFlag; }

// Whether an expert's rows do not stand behind those of the expert before.
__device__ inline bool isSegmentWrong(const EpLayer &layer, int64_t expert) {
  const int64_t count = layer.segments[2 * expert + 1];
  return count < 0 || endOf(layer, expert) - count != (expert ? endOf(layer, expert - 1) : layer.sharedCount);
}

static __global__ void __launch_bounds__(kWideThreads) checkRound(CombineCall call) {
  __shared__ int wrong; // the first expert
  __shared__ bool refused;
  const EpLayer &layer = call.layer;
  const int experts = static_cast<int>(layer.experts);
  if (threadIdx.x == 0) {
    wrong = experts;
    refused = isRoundWrong(layer);
  }
  __syncthreads();
  if (refused) return;
  for (int expert = threadIdx.x; expert < experts; expert += kWideThreads)
    if (isSegmentWrong(layer, expert)) atomicMin(&wrong, expert);
  __syncthreads();
  if (threadIdx.x) return;
  const int64_t end = endOf(layer, experts - 1);
  if (wrong < experts)
    report(layer.fault, layer.op, MOERT__FAULT_EP_SEGMENTS, wrong, layer.segments[2 * wrong + 1], endOf(layer, wrong));
  else if (end > call.numRows)
    report(layer.fault, layer.op, MOERT__FAULT_EP_ROWS, call.numRows, end);
  else
    call.state->end = end;
}

//===--- rows of pairs ----------------------------------------------------------------------------===//

// If src_info ascribes several rows to a pair, the last one counts.
template <int kTopK> __global__ void __launch_bounds__(kThreads) ascribeRows(CombineCall call) {
  const int topK = kTopK ? kTopK : call.layer.topK;
  const int64_t end = call.state->end, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t row = call.layer.sharedCount + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; row < end; row += step) {
    const int token = call.sources[2 * row], slot = call.sources[2 * row + 1];
    if (token < 0 || token >= call.layer.tokens || slot < 0 || slot >= topK) continue;
    atomicMax(&call.rowOf[static_cast<int64_t>(token) * topK + slot], static_cast<int>(row));
  }
}

// Rows of pairs that are not this rank's are taken away.
template <int kTopK> __global__ void __launch_bounds__(kThreads) checkPairs(CombineCall call) {
  if (call.state->end < 0) return;
  const int64_t pairs = call.layer.tokens * (kTopK ? kTopK : call.layer.topK), step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t pair = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; pair < pairs; pair += step) {
    if (localExpert(call.layer, call.layer.ids[pair]) < 0)
      call.rowOf[pair] = -1;
    else if (call.rowOf[pair] < 0)
      atomicMin(&call.state->missing, static_cast<unsigned long long>(pair));
  }
}

//===--- sums -------------------------------------------------------------------------------------===//

// So many elements of a row as one thread takes at once: 16 bytes, or one element.
template <moert__format kFormat, int kWidth> struct Elements {
  static const int kBytes = kFormat == MOERT__F32 ? 4 : 2;
  static const bool kIsVector = kWidth * kBytes == 16;
  alignas(kIsVector ? 16 : kBytes) unsigned char bytes[kWidth * kBytes];

  __device__ float get(int i) const { return moert__load(kFormat, bytes, i); }
  __device__ void set(int i, float value) { moert__store(kFormat, bytes, i, value); }
};

// The routed sum is rounded before the shared expert's element is added.
template <moert__format kFormat, int kHidden, int kTopK, int kWidth>
__device__ inline Elements<kFormat, kWidth> combineElements(const CombineCall &call, int64_t token, int64_t column, int64_t vectors) {
  typedef Elements<kFormat, kWidth> Vector;
  const Vector *rows = static_cast<const Vector *>(call.rows);
  const int topK = kTopK ? kTopK : call.layer.topK;
  float sums[kWidth] = {};
#pragma unroll
  for (int slot = 0; slot < topK; ++slot) {
    const int64_t pair = token * topK + slot;
    const int row = call.rowOf[pair];
    if (row < 0) continue;
    const float weight = moert__load(call.weightFormat, call.weights, pair);
    const Vector values = rows[row * vectors + column];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = fmaf(weight, values.get(i), sums[i]);
  }
  Vector result;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) result.set(i, sums[i]);
  const int64_t shared = sharedRow(call.layer, token);
  if (shared < 0) return result;
  const Vector values = rows[shared * vectors + column];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) result.set(i, result.get(i) + values.get(i));
  return result;
}

__device__ inline void reportMissing(const CombineCall &call, int topK) {
  const int64_t pair = static_cast<int64_t>(call.state->missing);
  report(call.layer.fault, call.layer.op, MOERT__FAULT_EP_SOURCE, pair / topK, pair % topK, call.layer.ids[pair], call.layer.rank);
}

// The next dispatch may come.
__device__ inline void clearCounters(const EpLayer &layer) {
  for (int64_t word = threadIdx.x; word < 2 * layer.experts; word += kThreads) layer.segments[word] = 0;
  if (threadIdx.x < 3) layer.round[threadIdx.x] = 0;
}

// kHidden and kTopK 0: those of the call. For more than four blocks on a processor the compiler would keep values on the stack.
template <moert__format kFormat, int kHidden, int kTopK, int kWidth> __global__ void __launch_bounds__(kThreads, 4) combineRows(CombineCall call) {
  if (call.state->end < 0) return;
  const bool first = blockIdx.x == 0;
  if (call.state->missing != kNothingMissing) {
    if (first && threadIdx.x == 0) reportMissing(call, kTopK ? kTopK : call.layer.topK);
    return;
  }
  if (first) clearCounters(call.layer);
  const int64_t vectors = (kHidden ? kHidden : call.layer.hidden) / kWidth, pieces = (vectors + kThreads - 1) / kThreads;
  Elements<kFormat, kWidth> *out = static_cast<Elements<kFormat, kWidth> *>(call.out);
  for (int64_t work = blockIdx.x; work < call.layer.tokens * pieces; work += gridDim.x) {
    const int64_t token = work / pieces, column = work % pieces * kThreads + threadIdx.x;
    if (column < vectors) out[token * vectors + column] = combineElements<kFormat, kHidden, kTopK, kWidth>(call, token, column, vectors);
  }
}

#endif

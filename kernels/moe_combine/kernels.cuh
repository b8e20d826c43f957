//===- kernels.cuh - moe.combine on devices -------------------------------------------------------------===//
//
// lib/reference/moe_combine.c says what is added in which order; these kernels write the same bits.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_COMBINE_KERNELS_CUH
#define MOE_KERNELS_MOE_COMBINE_KERNELS_CUH

#include "kernels/common/exchange.cuh"
#include "lib/reference/moe_combine.h"

namespace combine {

const int kThreads = 256;
const int kMaxTopK = MOERT_WORKSPACE_MAX_TOP_K;

// The parameter of all kernels.
struct Call {
  Exchange exchange;
  const void *payload;
  void *out;
  int64_t tokens, maxTokens, hidden, rowBytes;
  int32_t topK;
  moert__format outFormat;
  bool alignedPayload, alignedArea, alignedOut; // pieces of rows begin at multiples of 16 bytes
  int width;                                    // of accesses that copy the payload
  Output output;
};

__device__ inline int64_t receivedRows(const Call &call) { return call.exchange.watch.ranks * call.maxTokens; }

__device__ inline bool isReceived(const Call &call, int64_t row) {
  return row % call.maxTokens < receivedFrom(call.exchange, static_cast<int>(row / call.maxTokens));
}

//===--- this rank's rows -------------------------------------------------------------------------===//

// The rows that the dispatch placed are in the payload.
struct RowsFit {
  int64_t rows;
  __device__ bool operator()(const Exchange &exchange) const {
    long long placed = stateOf(exchange)->rows;
    if (placed <= rows) return true;
    report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_COMBINE_ROWS, rows, placed);
    return false;
  }
};

static __global__ void __launch_bounds__(kThreads) stageRankMajor(const __grid_constant__ Call call) {
  if (hasFailed(call.exchange)) return;
  char *area = regionOf<char>(call.exchange, MOERT_METAINFO_COMBINE_DATA);
  for (int64_t row = blockIdx.x; row < receivedRows(call); row += gridDim.x)
    if (isReceived(call, row))
      copyRow(&area, 1, row * call.rowBytes, static_cast<const char *>(call.payload) + row * call.rowBytes, call.rowBytes, call.width);
}

// A block makes a token's row of the combine area of the rows of this rank's experts: weighted, added in slot order, rounded for the wire.
template <moert__format kFormat> __global__ void __launch_bounds__(kThreads) stageGrouped(const __grid_constant__ Call call) {
  __shared__ int32_t rows[kMaxTopK];
  __shared__ float weights[kMaxTopK];
  if (hasFailed(call.exchange)) return;
  for (int64_t received = blockIdx.x; received < receivedRows(call); received += gridDim.x) {
    if (!isReceived(call, received)) continue;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < call.topK) {
      rows[threadIdx.x] = regionOf<int32_t>(call.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[received * call.topK + threadIdx.x];
      weights[threadIdx.x] = regionOf<float>(call.exchange, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[received * call.topK + threadIdx.x];
    }
    __syncthreads();
    char *staged = regionOf<char>(call.exchange, MOERT_METAINFO_COMBINE_DATA) + received * call.rowBytes;
    for (int64_t column = threadIdx.x * kPiece; column < call.hidden; column += kThreads * kPiece) {
      int size = pieceSize(call.hidden, column);
      float sum[kPiece] = {}, piece[kPiece];
      for (int k = 0; k < call.topK; ++k) {
        if (rows[k] < 0) continue;
        loadPiece<kFormat>(call.payload, rows[k] * call.hidden + column, size, call.alignedPayload, piece);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) sum[i] = fmaf(piece[i], weights[k], sum[i]);
      }
      storePiece<kFormat>(staged, column, size, call.alignedArea, sum);
    }
  }
}

//===--- the sums ---------------------------------------------------------------------------------===//

__device__ inline void add(float (&to)[kPiece], const float (&from)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) to[i] += from[i];
}

// Where a token's rows are, and which piece of them is worked on. A slot that sent none has the row NULL and counts as 0.
struct Rows {
  const char *const *rows;
  int64_t column;
  int size;
  bool aligned;
};

template <moert__format kFormat> __device__ void loadTerm(const Rows &from, int k, float (&term)[kPiece]) {
  if (from.rows[k]) {
    loadPiece<kFormat>(from.rows[k], from.column, from.size, from.aligned, term);
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) term[i] = 0.0f;
  }
}

// All rows are on their way before the first is added.
template <moert__format kFormat, int kTopK> __device__ void addTerms(const Rows &from, float (&sum)[kPiece]) {
  static_assert(kTopK <= 24, "the terms are registers: leave larger top_k to the generic kernel");
  float terms[kTopK][kPiece];
#pragma unroll
  for (int k = 0; k < kTopK; ++k) loadTerm<kFormat>(from, k, terms[k]);
  if (moert__combine_adds_pairwise(kTopK)) {
#pragma unroll
    for (int stride = 1; stride < kTopK; stride *= 2)
#pragma unroll
      for (int k = 0; k + stride < kTopK; k += 2 * stride) add(terms[k], terms[k + stride]);
  } else {
#pragma unroll
    for (int k = 1; k < kTopK; ++k) add(terms[0], terms[k]);
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum[i] = terms[0][i];
}

template <moert__format kFormat> __device__ void addFolded(const Rows &from, int topK, float (&sum)[kPiece]) {
  loadTerm<kFormat>(from, 0, sum);
  for (int k = 1; k < topK; ++k) {
    float term[kPiece];
    loadTerm<kFormat>(from, k, term);
    add(sum, term);
  }
}

// The same tree for a number of terms that is known at run time, without an array of them: level l holds the sum of 2^l neighbours whose other half
// is still to come, as a binary counter does. What is left over in the end is added from the right.
template <moert__format kFormat> __device__ void addPairwise(const Rows &from, int topK, float (&sum)[kPiece]) {
  const int kLevels = 5; // up to 31 terms; the largest tree has 22
  float levels[kLevels][kPiece];
#pragma unroll
  for (int k = 0; k < (1 << kLevels) - 1; ++k) {
    if (k >= topK) break;
    float term[kPiece];
    loadTerm<kFormat>(from, k, term);
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      bool isHeld = (k >> level & 1) != 0, isLast = !isHeld && (k & ((1 << level) - 1)) == (1 << level) - 1;
      if (isLast) {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) levels[level][i] = term[i];
        break;
      }
      add(levels[level], term);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) term[i] = levels[level][i];
    }
  }
  bool any = false;
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if (!(topK >> level & 1)) continue;
    if (any) add(levels[level], sum);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] = levels[level][i];
    any = true;
  }
}

// The first threads look up where the rows of a token are.
__device__ inline void findRows(const Call &call, int64_t token, int topK, int64_t rowBytes, const char **rows) {
  int k = static_cast<int>(threadIdx.x);
  if (k >= topK) return;
  int64_t choice = token * topK + k;
  int target = regionOf<int32_t>(call.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[choice];
  rows[k] = nullptr;
  if (target < 0) return;
  int64_t row = call.exchange.watch.rank * call.maxTokens + regionOf<int32_t>(call.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[choice];
  rows[k] = regionOf<char>(call.exchange, target, MOERT_METAINFO_COMBINE_DATA) + row * rowBytes;
}

// A block adds up the rows of a token, from all ranks that it was sent to. kTopK and kHidden are 0 if they are known at run time.
template <moert__format kFormat, int kTopK, int kHidden> __global__ void __launch_bounds__(kThreads) addRows(const __grid_constant__ Call call) {
  __shared__ const char *rows[kMaxTopK];
  if (hasFailed(call.exchange)) {
    poison(call.output);
    return;
  }
  const int topK = kTopK ? kTopK : call.topK;
  const int64_t hidden = kHidden ? kHidden : call.hidden;
  const bool aligned = (kHidden && kHidden % kPiece == 0) || call.alignedArea;
  for (int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    __syncthreads();
    findRows(call, token, topK, hidden * (kFormat == MOERT__F32 ? 4 : 2), rows);
    __syncthreads();
    for (int64_t column = threadIdx.x * kPiece; column < hidden; column += kThreads * kPiece) {
      Rows from = {rows, column, pieceSize(hidden, column), aligned};
      float added[kPiece];
      if constexpr (kTopK != 0)
        addTerms<kFormat, kTopK>(from, added);
      else if (moert__combine_adds_pairwise(topK))
        addPairwise<kFormat>(from, topK, added);
      else
        addFolded<kFormat>(from, topK, added);
      storePiece(call.outFormat, call.out, token * hidden + column, from.size, call.alignedOut, added);
    }
  }
}

} // namespace combine

#endif

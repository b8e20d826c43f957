//===- kernels.cuh - moe.combine on devices -------------------------------------------------------------===//
//
// lib/reference/moe_combine.c says what is added in which order; these kernels write the same bits.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_COMBINE_KERNELS_CUH
#define MOE_KERNELS_MOE_COMBINE_KERNELS_CUH

#include "kernels/common/exchange.cuh"
#include "kernels/common/formats.cuh"
#include "kernels/common/scales.cuh"
#include "lib/reference/moe_combine.h"

namespace combine {

const int kThreads = 256;
const int kMaxTopK = MOERT_WORKSPACE_MAX_TOP_K;

// The parameter of all kernels.
struct Call {
  Exchange exchange;
  const void *payload;
  void *out;
  int64_t tokens, maxTokens, hidden, rowBytes, wireBytes; // from row to row of the payload, and of the combine area
  int32_t topK;
  moert__format outFormat;
  bool alignedPayload, alignedArea, alignedOut; // pieces of rows begin at multiples of their bytes, up to 16
  int width;                                    // of accesses that copy the payload
  moert__quantized_call quantized;              // where codes and scales of a quantised output lie
  float global;                                 // G of nvfp4
  Output output, scales;
};

//===--- rows of the combine area -------------------------------------------------------------------===//

// What their elements are: those of the payload, or E4M3.
template <moert__format kFormat> struct Numbers {
  static const int kBytes = kFormat == MOERT__F32 ? 4 : 2;
  static __device__ void load(const void *row, int64_t column, int size, bool aligned, float (&piece)[kPiece]) {
    loadPiece<kFormat>(row, column, size, aligned, piece);
  }
  static __device__ void store(void *row, int64_t column, int size, bool aligned, const float (&piece)[kPiece]) {
    storePiece<kFormat>(row, column, size, aligned, piece);
  }
};

struct LowPrecision {
  static const int kBytes = 1;
  static __device__ void load(const void *row, int64_t column, int size, bool aligned, float (&piece)[kPiece]) {
    const uint8_t *codes = static_cast<const uint8_t *>(row) + column;
    if (aligned) {
      const uint2 words = *reinterpret_cast<const uint2 *>(codes);
      dequantizeTile(MOERT__FP8_BLOCK, 1.0f, false, {words.x, words.y}, piece);
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) piece[i] = i < size ? moert__e4m3_to_f32(codes[i]) : 0.0f;
    }
  }
  static __device__ void store(void *row, int64_t column, int size, bool aligned, const float (&piece)[kPiece]) {
    uint8_t *codes = static_cast<uint8_t *>(row) + column;
    uint32_t words[2];
    encodeE4M3(piece, 1.0f, words);
    if (aligned) {
      *reinterpret_cast<uint2 *>(codes) = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        if (i < size) codes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
    }
  }
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

// A block converts a row at a time, also in place: what a round of the loop stores lies in front of what the rounds behind it load.
template <moert__format kFormat> __global__ void __launch_bounds__(kThreads) stageLowPrecision(const __grid_constant__ Call call) {
  if (hasFailed(call.exchange)) return;
  char *area = regionOf<char>(call.exchange, MOERT_METAINFO_COMBINE_DATA);
  for (int64_t row = blockIdx.x; row < receivedRows(call); row += gridDim.x) {
    if (!isReceived(call, row)) continue;
    const char *from = static_cast<const char *>(call.payload) + row * call.rowBytes;
    for (int64_t begin = 0; begin < call.hidden; begin += kThreads * kPiece) {
      const int64_t column = begin + threadIdx.x * kPiece;
      float piece[kPiece];
      if (column < call.hidden) loadPiece<kFormat>(from, column, pieceSize(call.hidden, column), call.alignedPayload, piece);
      __syncthreads();
      if (column < call.hidden) LowPrecision::store(area + row * call.wireBytes, column, pieceSize(call.hidden, column), call.alignedArea, piece);
    }
  }
}

// A block makes a token's row of the combine area of the rows of this rank's experts: weighted, added in slot order, rounded for the wire.
template <moert__format kFormat, typename Wire> __global__ void __launch_bounds__(kThreads) stageGrouped(const __grid_constant__ Call call) {
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
    char *staged = regionOf<char>(call.exchange, MOERT_METAINFO_COMBINE_DATA) + received * call.wireBytes;
    for (int64_t column = threadIdx.x * kPiece; column < call.hidden; column += kThreads * kPiece) {
      int size = pieceSize(call.hidden, column);
      float sum[kPiece] = {}, piece[kPiece];
      for (int k = 0; k < call.topK; ++k) {
        if (rows[k] < 0) continue;
        loadPiece<kFormat>(call.payload, rows[k] * call.hidden + column, size, call.alignedPayload, piece);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) sum[i] = fmaf(piece[i], weights[k], sum[i]);
      }
      Wire::store(staged, column, size, call.alignedArea, sum);
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

template <typename Wire> __device__ void loadTerm(const Rows &from, int k, float (&term)[kPiece]) {
  if (from.rows[k]) {
    Wire::load(from.rows[k], from.column, from.size, from.aligned, term);
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) term[i] = 0.0f;
  }
}

// All rows are on their way before the first is added.
template <typename Wire, int kTopK> __device__ void addTerms(const Rows &from, float (&sum)[kPiece]) {
  static_assert(kTopK <= 24, "the terms are registers: leave larger top_k to the generic kernel");
  float terms[kTopK][kPiece];
#pragma unroll
  for (int k = 0; k < kTopK; ++k) loadTerm<Wire>(from, k, terms[k]);
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

template <typename Wire> __device__ void addFolded(const Rows &from, int topK, float (&sum)[kPiece]) {
  loadTerm<Wire>(from, 0, sum);
  for (int k = 1; k < topK; ++k) {
    float term[kPiece];
    loadTerm<Wire>(from, k, term);
    add(sum, term);
  }
}

// The same tree for a number of terms that is known at run time, without an array of them: level l holds the sum of 2^l neighbours whose other half
// is still to come, as a binary counter does. What is left over in the end is added from the right.
template <typename Wire> __device__ void addPairwise(const Rows &from, int topK, float (&sum)[kPiece]) {
  const int kLevels = 5; // up to 31 terms; the largest tree has 22
  float levels[kLevels][kPiece];
#pragma unroll
  for (int k = 0; k < (1 << kLevels) - 1; ++k) {
    if (k >= topK) break;
    float term[kPiece];
    loadTerm<Wire>(from, k, term);
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

template <typename Wire, int kTopK> __device__ void addPiece(const Rows &from, int topK, float (&sum)[kPiece]) {
  if constexpr (kTopK != 0)
    addTerms<Wire, kTopK>(from, sum);
  else if (moert__combine_adds_pairwise(topK))
    addPairwise<Wire>(from, topK, sum);
  else
    addFolded<Wire>(from, topK, sum);
}

// A block adds up the rows of a token, from all ranks that it was sent to. kTopK and kHidden are 0 if they are known at run time.
template <typename Wire, int kTopK, int kHidden> __global__ void __launch_bounds__(kThreads) addRows(const __grid_constant__ Call call) {
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
    findRows(call, token, topK, kHidden ? kHidden * Wire::kBytes : call.wireBytes, rows);
    __syncthreads();
    for (int64_t column = threadIdx.x * kPiece; column < hidden; column += kThreads * kPiece) {
      Rows from = {rows, column, pieceSize(hidden, column), aligned};
      float added[kPiece];
      addPiece<Wire, kTopK>(from, topK, added);
      storePiece(call.outFormat, call.out, token * hidden + column, from.size, call.alignedOut, added);
    }
  }
}

//===--- quantised outputs ------------------------------------------------------------------------===//

__device__ inline void storeCodes(const Call &call, int64_t token, int64_t column, const uint32_t (&words)[kPiece / 4]) {
  const bool packed = moert__is_packed(call.quantized.format);
  uint8_t *codes = const_cast<uint8_t *>(call.quantized.codes) + token * call.quantized.codes_stride + (packed ? column / 2 : column);
  if (!call.alignedOut)
    for (int i = 0; i < (packed ? kPiece / 2 : kPiece); ++i) codes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
  else if (packed)
    *reinterpret_cast<uint32_t *>(codes) = words[0];
  else
    *reinterpret_cast<uint2 *>(codes) = make_uint2(words[0], words[1]);
}

// The numbers that `out` would have in the payload's type.
template <moert__format kFormat> __device__ void roundPiece(float (&piece)[kPiece]) {
  float rounded[kPiece];
  storePiece<kFormat>(rounded, 0, kPiece, false, piece);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) piece[i] = moert__load(kFormat, rounded, i);
}

// As addRows, to codes and scales. Whole warps come to the block scales: behind the row's end with zeros.
template <moert__format kFormat, typename Wire> __global__ void __launch_bounds__(kThreads) quantizeRows(const __grid_constant__ Call call) {
  __shared__ const char *rows[kMaxTopK];
  if (hasFailed(call.exchange)) {
    poison(call.output);
    poison(call.scales);
    return;
  }
  const int format = call.quantized.format, block = moert__block_size(format);
  const QuantizeOptions options = {call.global, __frcp_rn(call.global), false, false, false};
  for (int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    __syncthreads();
    findRows(call, token, call.topK, call.wireBytes, rows);
    __syncthreads();
    for (int64_t begin = 0; begin < call.hidden; begin += kThreads * kPiece) {
      const int64_t column = begin + threadIdx.x * kPiece;
      float added[kPiece] = {};
      uint32_t words[kPiece / 4];
      if (column < call.hidden) addPiece<Wire, 0>({rows, column, kPiece, call.alignedArea}, call.topK, added);
      roundPiece<kFormat>(added);
      const uint32_t code = quantizeTile(format, options, added, tileAmax(format, added), words);
      if (column >= call.hidden) continue;
      storeCodes(call, token, column, words);
      if (column % block == 0) storeScale(call.quantized, moert__scale_offset(&call.quantized.grid, token, column / block), code);
    }
  }
  zeroPadding(call.quantized, blockIdx.x, gridDim.x);
}

} // namespace combine

#endif

//===- sm90_fma.cuh - moe.grouped_matmul of f32 -------------------------------------------------------===//
//
// The sums are those of the host backend to the bit: fused multiply-add in ascending k, starting from 0. A thread has eight rows and eight weight
// rows of a tile.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_FMA_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_FMA_CUH

#include "kernels/moe_grouped_matmul/call.cuh"

namespace grouped_matmul {

constexpr int kThreads = 256;
constexpr int kColumnTile = 256;            // weight rows of a tile
constexpr int kSumStride = kColumnTile + 8; // floats between rows of a tile's sums
constexpr int kFmaRowTile = 64;
constexpr int kFmaDepth = 8; // divides every depth
constexpr int kFmaShared = kFmaRowTile * kSumStride * sizeof(float);

struct FmaTiles {
  static __device__ int64_t width(const Call &call) { return call.swiglu ? kColumnTile / 2 : kColumnTile; } // columns of out
  static __device__ int64_t count(const Call &call, int64_t rows) { return ceilOf(rows, kFmaRowTile) * ceilOf(call.outColumns, width(call)); }
  static __device__ Tile at(const Call &call, int64_t group, int64_t rows, int64_t number) {
    const int64_t down = ceilOf(rows, kFmaRowTile), first = number % down * kFmaRowTile;
    return {group, first, number / down * width(call), static_cast<int>(rows - first < kFmaRowTile ? rows - first : kFmaRowTile), false};
  }
};

// Where the rows and the weight rows of a tile begin, in elements.
struct Origins {
  int64_t row[kThreads], weight[kThreads];
};

// Called by all threads; the barrier behind it is the caller's.
__device__ inline void findOrigins(const Call &call, const Tile &tile, bool gated, Origins *origins) {
  const int place = static_cast<int>(threadIdx.x);
  origins->row[place] = rowOf(call, tile, place) * call.depth;
  origins->weight[place] = weightRowOf(call, tile, place, gated) * call.depth;
}

struct FmaStage {
  float rows[kFmaDepth][kFmaRowTile + 4], weights[kFmaDepth][kColumnTile + 4];
};

// What a thread brings to a stage: some of a row's elements, and those of a weight row.
constexpr int kRowThreads = kThreads / kFmaRowTile, kRowPart = kFmaDepth / kRowThreads;
struct FmaPiece {
  float weight[kFmaDepth], row[kRowPart];
};

__device__ inline void loadFour(float *to, const float *from, bool vector) {
  if (vector)
    loadFour(to, from);
  else
    for (int i = 0; i < 4; ++i) to[i] = from[i];
}

__device__ inline FmaPiece loadPiece(const Call &call, const Origins &origins, int64_t depth) {
  alignas(16) FmaPiece piece;
  const float *row = static_cast<const float *>(call.in) + origins.row[threadIdx.x / kRowThreads] + depth + threadIdx.x % kRowThreads * kRowPart;
  const float *weight = static_cast<const float *>(call.weights) + origins.weight[threadIdx.x] + depth;
  for (int k = 0; k < kRowPart; ++k) piece.row[k] = row[k];
  loadFour(piece.weight, weight, call.readsVectors);
  loadFour(piece.weight + 4, weight + 4, call.readsVectors);
  return piece;
}

__device__ inline void storePiece(FmaStage &stage, const FmaPiece &piece) {
#pragma unroll
  for (int k = 0; k < kRowPart; ++k) stage.rows[threadIdx.x % kRowThreads * kRowPart + k][threadIdx.x / kRowThreads] = piece.row[k];
#pragma unroll
  for (int k = 0; k < kFmaDepth; ++k) stage.weights[k][threadIdx.x] = piece.weight[k];
}

// A thread's first row; the first weight row of each four that it has.
constexpr int kFmaAcross = kColumnTile / 8;
static_assert(kThreads / kFmaAcross * 8 == kFmaRowTile, "eight rows and eight weight rows a thread");
__device__ inline int fmaRow() { return static_cast<int>(threadIdx.x) / kFmaAcross * 8; }
__device__ inline int fmaColumn(int half) { return static_cast<int>(threadIdx.x) % kFmaAcross * 4 + half * (kColumnTile / 2); }

__device__ inline void multiplyStage(float (&sums)[8][8], const FmaStage &stage) {
#pragma unroll
  for (int k = 0; k < kFmaDepth; ++k) {
    alignas(16) float rows[8], weights[8];
    for (int half = 0; half < 2; ++half) {
      loadFour(rows + half * 4, &stage.rows[k][fmaRow() + half * 4], true);
      loadFour(weights + half * 4, &stage.weights[k][fmaColumn(half)], true);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(rows[i], weights[j], sums[i][j]);
  }
}

__device__ inline void multiplyTile(const Call &call, const Origins &origins, FmaStage &stage, float *to) {
  float sums[8][8] = {};
  FmaPiece piece;
  if (call.depth > 0) piece = loadPiece(call, origins, 0);
  for (int64_t depth = 0; depth < call.depth; depth += kFmaDepth) {
    __syncthreads();
    storePiece(stage, piece);
    __syncthreads();
    if (depth + kFmaDepth < call.depth) piece = loadPiece(call, origins, depth + kFmaDepth);
    multiplyStage(sums, stage);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) to[(fmaRow() + i) * kSumStride + fmaColumn(j / 4) + j % 4] = sums[i][j];
}

// A tile from its sums in shared memory, [rows][kSumStride].
__device__ inline void finishTile(const Call &call, const Tile &tile, bool gated, const float *sums) {
  const int units = (gated ? kColumnTile / 2 : kColumnTile) / 8; // of eight columns
  for (int unit = static_cast<int>(threadIdx.x); unit < tile.rows * units; unit += kThreads) {
    const int row = unit / units, eight = unit % units;
    if (tile.column + eight * 8 < call.outColumns)
      finishEight(call, tile.group, tile.firstRow + row, tile.column + eight * 8, gated, sums + row * kSumStride + eight * (gated ? 16 : 8));
  }
}

template <Activation kActivation> __global__ void __launch_bounds__(kThreads) sm90_moe_grouped_matmul_f32(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Origins origins;
  __shared__ __align__(16) FmaStage stage;
  float *sums = reinterpret_cast<float *>(shared);
  awaitStream();
  if (!callIsSound(call)) return;
  const bool gated = isGated<kActivation>(call);
  const int64_t tiles = countTiles(call);
  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = tileAt<FmaTiles>(call, number);
    findOrigins(call, tile, gated, &origins);
    __syncthreads();
    multiplyTile(call, origins, stage, sums);
    __syncthreads();
    finishTile(call, tile, gated, sums);
  }
}

} // namespace grouped_matmul

#endif

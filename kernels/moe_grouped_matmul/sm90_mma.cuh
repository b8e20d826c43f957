//===- sm90_mma.cuh - moe.grouped_matmul of bf16 and f16 by tensor cores ------------------------------===//
//
// Eight warps multiply a tile of up to 128 rows and 256 weight rows, 64 deep at a time, from a ring of stages that asynchronous copies fill. Each sum
// starts from 0 and takes 16 products at a time in ascending k: how many rows a tile has changes no bit, and a few rows get a smaller one. A tile is
// as large as registers allow, because the cache that all blocks read from is what limits large products.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_MMA_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_MMA_CUH

#include "kernels/moe_grouped_matmul/call.cuh"

namespace grouped_matmul {

constexpr int kMmaRowTile = 128;
constexpr int kDepthTile = 64;                        // elements: rows of 128 bytes in shared memory
constexpr int kStages = 4;                            // three of which are under way while one is multiplied
constexpr int kStageRows = kMmaRowTile + kColumnTile; // the tile's rows, then its weight rows
constexpr int kStageBytes = kStageRows * kDepthTile * 2;
constexpr int kMmaShared = kStages * kStageBytes;
static_assert(kMmaRowTile * kSumStride * 4 <= kMmaShared, "the sums take the place of the stages");

//===--- instructions -----------------------------------------------------------------------------===//

// Sixteen bytes, zeros instead if `inside` is false.
__device__ inline void copyAsync(uint32_t to, const void *from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
               : "memory");
}
__device__ inline void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending> __device__ void waitCopies() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }

__device__ inline void loadMatrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

template <moert__format kFormat> __device__ void multiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kFormat == MOERT__BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

//===--- stages -----------------------------------------------------------------------------------===//

// The sixteen-byte chunks of a row are permuted by its number, so that eight rows' chunks of the same place lie in different banks.
__device__ inline uint32_t chunkAt(uint32_t stage, int row, int chunk) { return stage + row * (kDepthTile * 2) + ((chunk ^ (row & 7)) * 16); }

// What copyAsync does, for memory that is aligned to its elements only.
__device__ inline void copyElements(uint32_t to, const uint16_t *from, bool inside) {
  uint32_t words[4] = {0, 0, 0, 0};
  if (inside)
    for (int i = 0; i < 4; ++i) words[i] = from[2 * i] | static_cast<uint32_t>(from[2 * i + 1]) << 16;
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

// Rows from `firstRow` of the stage on, eight threads a row.
template <int kRows, bool kVectors>
__device__ void fillRows(const Call &call, uint32_t stage, int firstRow, const void *elements, const int64_t *origins, int64_t depth) {
  constexpr int kLines = kThreads / 8, kTimes = (kRows + kLines - 1) / kLines;
  const int chunk = threadIdx.x % 8, line = threadIdx.x / 8;
  if (kRows < kLines && line >= kRows) return;
  int64_t k = depth + chunk * 8;
  bool inside = k < call.depth;
  const uint16_t *from = static_cast<const uint16_t *>(elements) + (inside ? k : 0);
  int64_t begins[kTimes]; // all are read before the first copy, which the compiler would not reorder with a read
#pragma unroll
  for (int i = 0; i < kTimes; ++i) begins[i] = origins[i * kLines + line];
#pragma unroll
  for (int i = 0; i < kTimes; ++i) {
    uint32_t to = chunkAt(stage, firstRow + i * kLines + line, chunk);
    if constexpr (kVectors)
      copyAsync(to, from + begins[i], inside);
    else
      copyElements(to, from + begins[i], inside);
  }
}

// Zeros where `depth` and what follows is beyond the last; nothing if all is.
template <int kRowTile, bool kVectors> __device__ void fillStage(const Call &call, uint32_t stage, const Origins &origins, int64_t depth) {
  if (depth < call.depth) {
    fillRows<kRowTile, kVectors>(call, stage, 0, call.in, origins.row, depth);
    fillRows<kColumnTile, kVectors>(call, stage, kMmaRowTile, call.weights, origins.weight, depth);
  }
  commitCopies();
}

//===--- a warp's part of a tile ------------------------------------------------------------------===//

// How the warps share a tile of kRowTile rows.
template <int kRowTile> struct Shares {
  static constexpr int kDown = kRowTile > 16 ? 2 : 1, kAcross = kThreads / 32 / kDown;
  static constexpr int kRows = kRowTile / kDown, kColumns = kColumnTile / kAcross;
  static constexpr int kRowFragments = kRows / 16, kColumnPairs = kColumns / 16;
  static __device__ int firstRow() { return static_cast<int>(threadIdx.x / 32) / kAcross * kRows; }
  static __device__ int firstColumn() { return static_cast<int>(threadIdx.x / 32) % kAcross * kColumns; }
};

// Operands of one step of 16: of a column pair the weights of two times eight columns.
template <int kRowTile> struct Fragments {
  uint32_t rows[Shares<kRowTile>::kRowFragments][4], columns[Shares<kRowTile>::kColumnPairs][4];
};

template <int kRowTile> using Sums = float[Shares<kRowTile>::kRowFragments][2 * Shares<kRowTile>::kColumnPairs][4];

template <int kRowTile> __device__ void loadFragments(Fragments<kRowTile> &fragments, uint32_t stage, int step) {
  using S = Shares<kRowTile>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < S::kRowFragments; ++i)
    loadMatrices(fragments.rows[i], chunkAt(stage, S::firstRow() + i * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
  for (int j = 0; j < S::kColumnPairs; ++j)
    loadMatrices(fragments.columns[j], chunkAt(stage, kMmaRowTile + S::firstColumn() + j * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
}

template <moert__format kFormat, int kRowTile> __device__ void multiplyFragments(Sums<kRowTile> &sums, const Fragments<kRowTile> &fragments) {
  using S = Shares<kRowTile>;
#pragma unroll
  for (int i = 0; i < S::kRowFragments; ++i)
#pragma unroll
    for (int j = 0; j < S::kColumnPairs; ++j) {
      multiplyAdd<kFormat>(sums[i][2 * j], fragments.rows[i], fragments.columns[j][0], fragments.columns[j][1]);
      multiplyAdd<kFormat>(sums[i][2 * j + 1], fragments.rows[i], fragments.columns[j][2], fragments.columns[j][3]);
    }
}

// The next fragments are loaded while these are multiplied, and `fill` starts copies meanwhile.
template <moert__format kFormat, int kRowTile, typename Fill> __device__ void multiplyStage(Sums<kRowTile> &sums, uint32_t stage, Fill fill) {
  Fragments<kRowTile> fragments[2];
  loadFragments<kRowTile>(fragments[0], stage, 0);
#pragma unroll
  for (int step = 0; step < kDepthTile / 16; ++step) {
    if (step + 1 < kDepthTile / 16) loadFragments<kRowTile>(fragments[(step + 1) % 2], stage, step + 1);
    multiplyFragments<kFormat, kRowTile>(sums, fragments[step % 2]);
    if (step == 0) fill();
  }
}

template <int kRowTile> __device__ void keepSums(const Sums<kRowTile> &sums, float *to) {
  using S = Shares<kRowTile>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < S::kRowFragments; ++i)
#pragma unroll
    for (int j = 0; j < 2 * S::kColumnPairs; ++j) {
      float *place = to + (S::firstRow() + i * 16 + lane / 4) * kSumStride + S::firstColumn() + j * 8 + lane % 4 * 2;
      *reinterpret_cast<float2 *>(place) = make_float2(sums[i][j][0], sums[i][j][1]);
      *reinterpret_cast<float2 *>(place + 8 * kSumStride) = make_float2(sums[i][j][2], sums[i][j][3]);
    }
}

//===--- tiles ------------------------------------------------------------------------------------===//

// A barrier for all threads lies before each use of a stage: its copies have arrived then, and the stage that is filled next has been multiplied.
template <moert__format kFormat, int kRowTile, bool kVectors>
__device__ void multiplyTile(const Call &call, const Origins &origins, unsigned char *shared) {
  const uint32_t stages = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  Sums<kRowTile> sums = {};
  for (int stage = 0; stage < kStages - 1; ++stage) fillStage<kRowTile, kVectors>(call, stages + stage * kStageBytes, origins, stage * kDepthTile);
  int filled = kStages - 1, multiplied = 0;
  for (int64_t depth = 0; depth < call.depth; depth += kDepthTile) {
    waitCopies<kStages - 2>();
    __syncthreads();
    multiplyStage<kFormat, kRowTile>(sums, stages + multiplied * kStageBytes, [&] {
      fillStage<kRowTile, kVectors>(call, stages + filled * kStageBytes, origins, depth + (kStages - 1) * kDepthTile);
    });
    filled = multiplied;
    multiplied = multiplied + 1 < kStages ? multiplied + 1 : 0;
  }
  __syncthreads();
  keepSums<kRowTile>(sums, reinterpret_cast<float *>(shared));
}

// With a tile that the rows fill best.
template <moert__format kFormat, bool kVectors>
__device__ void multiplyRows(const Call &call, int rows, const Origins &origins, unsigned char *shared) {
  if (rows <= 16)
    multiplyTile<kFormat, 16, kVectors>(call, origins, shared);
  else if (rows <= 64)
    multiplyTile<kFormat, 64, kVectors>(call, origins, shared);
  else
    multiplyTile<kFormat, 128, kVectors>(call, origins, shared);
}

template <moert__format kFormat, Activation kActivation>
__global__ void __launch_bounds__(kThreads, 1) sm90_moe_grouped_matmul_mma(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Origins origins;
  if (!callIsSound(call)) return;
  const bool gated = isGated<kActivation>(call);
  const int64_t tiles = countTiles(call, gated);
  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    Tile tile = tileAt(call, number, kMmaRowTile, gated);
    findOrigins(call, tile, gated, &origins);
    __syncthreads();
    if (call.readsVectors)
      multiplyRows<kFormat, true>(call, tile.rows, origins, shared);
    else
      multiplyRows<kFormat, false>(call, tile.rows, origins, shared);
    __syncthreads();
    finishTile(call, tile, gated, reinterpret_cast<const float *>(shared));
  }
}

} // namespace grouped_matmul

#endif

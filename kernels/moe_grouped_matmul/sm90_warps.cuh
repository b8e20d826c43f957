//===- sm90_warps.cuh - moe.grouped_matmul with weights of 4 bits by warps ------------------------------===//
//
// One warp of a block brings codes, scales and rows through a ring of stages, 256 elements deep, and does nothing but ask for copies. Each of the
// others multiplies 16 weight rows with all rows of the tile, by instructions of its own: no warp waits for another but at the ring. Where groups
// have few rows several blocks share a multiprocessor, so that some have bytes on their way while others begin or end a tile.
//
// What bounds it beside the memory is how many instructions a code takes. A lane has four of the sixteen codes of a block, those of the same two
// bytes for all eight rows of a fragment. The three bits of a code's magnitude are moved to where bf16 has the lowest two of its exponent and the
// highest of its fraction, and are the code times 2^-126 there. Factors make up for it:
//
//   nvfp4   the scale times 2^118, which bf16 holds for every E4M3; sums are 2^-8 of what they stand for
//   mxfp4   2^126, and then the scale
//
// The sums are those of sm90_wgmma.cuh to the bit: 16 products at a time in ascending k. In which order the tensor cores have those does not matter,
// so that codes of a block are multiplied as they lie, with the rows permuted likewise. (A sum of nvfp4 that is less than 2^-118 may lose bits.)
//
// A call of eight rows or less needs no plan: its blocks find the groups that have rows by themselves. In other calls gatherRows has permuted the
// rows.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_WARPS_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_WARPS_CUH

#include "kernels/moe_grouped_matmul/sm90_codes.cuh"

namespace grouped_matmul {

constexpr int kProductRows = 16; // weight rows of an instruction

// Of the kernel whose tiles have so many times eight rows, at most. A stage is codes, as the copy engine swizzles them, scales as they are in memory,
// and rows.
template <int kMostEights> struct WarpStages {
  static constexpr int kEights = kMostEights;
  static constexpr int kWarps = kEights <= 2 ? 4 : 8, kThreads = 32 * (1 + kWarps); // that multiply; with the one that brings
  static constexpr int kBlocks = kEights == 1 ? 4 : kEights == 2 ? 3 : 2;           // that share a multiprocessor
  static constexpr int kBands = 1;                                                  // of 16 weight rows, of a warp
  static constexpr int kWeightRows = kWarps * kBands * kProductRows;                // of a tile
  static constexpr int kCount = 3, kArrivals = 32 + 1, kReleases = kWarps;
  static constexpr int kDepth = CodesStages::kNarrowDepth;
  static constexpr int kCodesBytes = kWeightRows * kDepth / 2, kScalesBytes = kWeightRows * kDepth / kScaleBlock;
  static constexpr bool kGathered = kEights > 1;
  static constexpr int kRowBytes = kDepth * 2;
  static constexpr int kRowStride = kRowBytes + (kGathered ? 64 : 32); // rows that lanes read side by side begin in different banks
  static constexpr int kScalesAt = kCodesBytes, kRowsAt = kScalesAt + kScalesBytes;
  static constexpr int kBytes = (kRowsAt + kEights * 8 * kRowStride + kAlignment - 1) / kAlignment * kAlignment;

  static constexpr __device__ int depth(bool) { return kDepth; }
};

// The tiles of the same weights follow each other: they share them in the cache. Groups are cut into tiles of whole eights of rows, as evenly as
// that goes.
template <typename Stages> struct WarpTiles {
  static __device__ int64_t width(const Call &call) { return Stages::kWeightRows >> call.swiglu; } // columns of out
  static __device__ int64_t count(const Call &call, int64_t rows) { return ceilOf(rows, Stages::kEights * 8) * ceilOf(call.outColumns, width(call)); }
  static __device__ Tile at(const Call &call, int64_t group, int64_t rows, int64_t number) {
    const int64_t down = ceilOf(rows, Stages::kEights * 8), eights = ceilOf(rows, 8), tile = number % down;
    const int64_t first = tile * eights / down * 8, end = (tile + 1) * eights / down * 8;
    return {group, first, number / down * width(call), static_cast<int>((end < rows ? end : rows) - first), true};
  }
};

// Of a warp: scales of a stage as pairs, or sums of eight rows.
constexpr int kWarpOwnBytes = kProductRows * CodesStages::kNarrowDepth / kScaleBlock * 4;
constexpr int kSumsStride = kProductRows + 4; // floats
static_assert(8 * kSumsStride * sizeof(float) <= kWarpOwnBytes, "sums have room where scales were");
template <typename Stages> constexpr int kWarpShared = Stages::kCount * Stages::kBytes + Stages::kWarps * kWarpOwnBytes + kAlignment;

//===--- rows in the order of fragments -------------------------------------------------------------===//

// Of four elements of a block, 0 and 2, then 1 and 3.
__device__ inline uint2 permuteFour(const uint2 &four) {
  return make_uint2(__byte_perm(four.x, four.y, 0x5410), __byte_perm(four.x, four.y, 0x7632));
}

// Of each two blocks of a row, the four elements of either that a lane of a quad multiplies lie together. Ids outside of the rows are told as
// checkRowIds does.
__global__ void __launch_bounds__(256) gatherRows(const __grid_constant__ Call call) {
  letNextBegin();
  awaitStream();
  if (!call.plan->isSound) return;
  const int64_t start = indexAt(call.offsets, 0), end = indexAt(call.offsets, call.groups), vectors = call.depth / 8;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = start * vectors + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < end * vectors; i += stride) {
    const int64_t row = i / vectors, vector = i % vectors, id = call.rowIds.data ? indexAt(call.rowIds, row) : row;
    if (call.checksRowIds && (id < 0 || id >= call.inRows)) {
      if (vector == 0) atomicMin(&call.plan->firstBadRow, static_cast<unsigned long long>(row));
      continue;
    }
    const uint2 *from = reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(call.in) + id * call.depth + vector / 4 * 32) + vector % 4;
    const uint2 first = permuteFour(from[0]), second = permuteFour(from[4]);
    call.gathered[i] = make_uint4(first.x, first.y, second.x, second.y);
  }
}

//===--- tiles of a call of eight rows or less ------------------------------------------------------===//

constexpr int kAloneRows = 8;

// In shared memory: the groups that have rows, each at the place of its first.
struct AlonePlan {
  unsigned long long firstBadOffset, firstBadRow;
  int64_t group[kAloneRows];
  int rows[kAloneRows];
};

__device__ inline void findGroups(const Call &call, AlonePlan &plan) {
  const int64_t start = indexAt(call.offsets, 0);
  for (int64_t g = threadIdx.x; g <= call.groups; g += blockDim.x) {
    const int64_t first = indexAt(call.offsets, g), place = first - start;
    const int64_t rows = g < call.groups ? indexAt(call.offsets, g + 1) - first : 0;
    if (offsetFault(call, g) != MOERT__FAULT_NONE) {
      atomicMin(&plan.firstBadOffset, static_cast<unsigned long long>(g));
    } else if (rows > 0 && place >= 0 && place < kAloneRows) { // of offsets in fault, places may be anywhere
      plan.group[place] = g;
      plan.rows[place] = static_cast<int>(rows);
    }
  }
}

__device__ inline void findBadRow(const Call &call, AlonePlan &plan) {
  const int64_t row = threadIdx.x;
  if (!call.checksRowIds || row >= call.rows || row < indexAt(call.offsets, 0) || row >= indexAt(call.offsets, call.groups)) return;
  const int64_t id = indexAt(call.rowIds, row);
  if (id < 0 || id >= call.inRows) atomicMin(&plan.firstBadRow, static_cast<unsigned long long>(row));
}

// By the whole block. False: a fault, which has been reported.
__device__ inline bool planAlone(const Call &call, AlonePlan &plan) {
  if (threadIdx.x < kAloneRows) plan.rows[threadIdx.x] = 0;
  if (threadIdx.x == 0) plan.firstBadOffset = plan.firstBadRow = kNoRow;
  __syncthreads();
  findGroups(call, plan);
  findBadRow(call, plan);
  __syncthreads();
  if (plan.firstBadOffset == kNoRow && plan.firstBadRow == kNoRow) return true;
  if (blockIdx.x > 0 || threadIdx.x > 0) return false;
  if (plan.firstBadOffset != kNoRow)
    reportOffset(call, static_cast<int64_t>(plan.firstBadOffset));
  else
    reportRowId(call, static_cast<int64_t>(plan.firstBadRow));
  return false;
}

// By a warp.
template <typename Tiles> __device__ int64_t tilesAlone(const Call &call, const AlonePlan &plan) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return __popc(__ballot_sync(~0u, lane < kAloneRows && plan.rows[lane] > 0)) * ceilOf(call.outColumns, Tiles::width(call));
}

template <typename Tiles> __device__ Tile tileAlone(const Call &call, const AlonePlan &plan, int64_t number) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t across = ceilOf(call.outColumns, Tiles::width(call));
  const unsigned there = __ballot_sync(~0u, lane < kAloneRows && plan.rows[lane] > 0);
  const int place = static_cast<int>(__fns(there, 0, static_cast<int>(number / across) + 1));
  Tile tile = Tiles::at(call, plan.group[place], plan.rows[place], number % across);
  tile.firstRow = indexAt(call.offsets, 0) + place;
  return tile;
}

//===--- the warp that brings -----------------------------------------------------------------------===//

template <int kEights> class WarpProducer : public AnyProducer<WarpStages<kEights>> {
public:
  using Base = AnyProducer<WarpStages<kEights>>;
  using Stages = typename Base::Stages;
  using Base::Base, Base::call, Base::ring, Base::gated, Base::filled, Base::openStage;

  __device__ void bring(const Tile &tile) {
    if (call.codesFormat == MOERT__NVFP4)
      bringTile<16>(tile);
    else
      bringTile<8>(tile);
  }

  // Behind the last tile.
  __device__ void finish() {
    openStage(Tile{}, true, 0);
    closeStage();
  }

private:
  static constexpr int kScaleRows = Stages::kWeightRows / 32, kRows = (kEights * 8 + 31) / 32; // of a lane

  // kBytes: of a weight row's scales in a stage.
  template <int kBytes> __device__ void bringTile(const Tile &tile) {
    const char *rows[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      rows[i] = static_cast<const char *>(Stages::kGathered ? call.gathered : call.in) +
                (i * 32 + lane < tile.rows ? rowOf(call, tile, i * 32 + lane) * call.depth * 2 : 0);
    const uint8_t *scales[kScaleRows];
#pragma unroll
    for (int i = 0; i < kScaleRows; ++i)
      scales[i] = call.codesScales + weightRowOf(call, tile, i * 32 + lane, gated) * (call.depth / Stages::kDepth * kBytes);
    const int count = static_cast<int>(call.depth / Stages::kDepth);
    for (int i = 0; i < count; ++i) {
      const uint32_t stage = openStage(tile, i == 0, static_cast<uint32_t>(Stages::kCodesBytes + tile.rows * Stages::kRowBytes));
      unsigned long long *full = &ring.full[filled % Stages::kCount];
      if (lane == 0) loadBox(call.map, tile, 0, gated, i * static_cast<int64_t>(Stages::kDepth / 2), stage, full);
#pragma unroll
      for (int j = 0; j < kRows; ++j)
        if (j * 32 + lane < tile.rows)
          bringRow(stage + Stages::kRowsAt + (j * 32 + lane) * Stages::kRowStride, rows[j] + static_cast<int64_t>(i) * Stages::kRowBytes, full);
#pragma unroll
      for (int j = 0; j < kScaleRows; ++j)
        copyBytesAsync<kBytes>(stage + Stages::kScalesAt + (j * 32 + lane) * kBytes, scales[j] + static_cast<int64_t>(i) * kBytes);
      closeStage();
    }
  }

  __device__ static void bringRow(uint32_t to, const char *from, unsigned long long *full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(Stages::kRowBytes), "r"(bulk::sharedAddress(full))
                 : "memory");
  }

  __device__ void closeStage() {
    arriveWithCopies(&ring.full[filled % Stages::kCount]);
    ++filled;
  }

  const int lane = static_cast<int>(threadIdx.x);
};

//===--- the warps that multiply --------------------------------------------------------------------===//

// The sums of 16 weight rows with eight rows, as wgmma.cuh has the first of 64.
__device__ inline void multiplyFragments(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// What consumers of all kinds of stages by warps share. A `Kind` is derived from it, and has
//
//   void multiplyTile(const Tile &, Sums &)    all stages of a tile, which are then released
//   float sumsFactor()                         what a sum lacks
//
// for a warp's bands of 16 weight rows, of which Stages tells how many there are.
template <typename StagesOfKind, typename Kind> class AnyWarpConsumer {
public:
  using Stages = StagesOfKind;

  // `own`: of the block's warps, kWarpOwnBytes each.
  __device__ AnyWarpConsumer(const Call &call, Ring<Stages> &ring, uint32_t stages, unsigned char *own)
      : call(call), ring(ring), stages(stages), own(own + warp * kWarpOwnBytes) {}

  // False: there is none.
  __device__ bool takeTile(bool gated) {
    awaitStage();
    const Tile tile = ring.tiles[taken % Stages::kCount];
    if (tile.rows == 0) return false;
    Kind &kind = static_cast<Kind &>(*this);
    Sums sums = {};
    kind.multiplyTile(tile, sums);
#pragma unroll 1
    for (int first = 0; first < tile.rows; first += 8) {
#pragma unroll
      for (int band = 0; band < Stages::kBands; ++band) storeEightRows(tile, gated, band, first, sums[band][0], kind.sumsFactor());
      shift(sums);
    }
    return true;
  }

protected:
  // Of bands of 16 weight rows with some times eight rows.
  using Sums = float[Stages::kBands][Stages::kEights][4];

  // The address of the first stage that was not released.
  __device__ uint32_t awaitStage() {
    bulk::await(&ring.full[taken % Stages::kCount], phaseOf<Stages>(taken));
    return stages + taken % Stages::kCount * Stages::kBytes;
  }

  // The copy engine may write where all lanes have read: the fence waits for loads, which the arrival alone would overtake.
  __device__ void release() {
    wgmma::publish();
    __syncwarp();
    if (lane == 0) bulk::arrive(&ring.empty[taken % Stages::kCount]);
    ++taken;
  }

  const Call &call;
  Ring<Stages> &ring;
  const uint32_t stages;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 - 1;
  unsigned char *const own;

private:
  // The next eight rows' to the front: an index would put them all into memory.
  __device__ static void shift(Sums &sums) {
#pragma unroll
    for (int band = 0; band < Stages::kBands; ++band)
#pragma unroll
      for (int i = 0; i + 1 < Stages::kEights; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[band][i][j] = sums[band][i + 1][j];
  }

  __device__ void storeEightRows(const Tile &tile, bool gated, int band, int first, const float (&sums)[4], float factor) {
    float *finished = reinterpret_cast<float *>(own);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) finished[(lane % 4 * 2 + i % 2) * kSumsStride + lane / 4 + i / 2 * 8] = sums[i] * factor;
    __syncwarp();
    const int columns = gated ? kProductRows / 2 : kProductRows;
    for (int i = lane; i < 8 * columns; i += 32) {
      const int row = i / columns, column = i % columns;
      const int64_t to = tile.column + (warp * Stages::kBands + band) * columns + column, outRow = tile.firstRow + first + row;
      if (first + row >= tile.rows || to >= call.outColumns) continue;
      const float *sum = finished + row * kSumsStride + column;
      moert__store(call.outFormat, call.out, outRow * call.outColumns + to,
                   finishOne(call, tile.group, outRow, to, gated, sum[0], gated ? sum[8] : 0));
    }
  }

  uint32_t taken = 0;
};

template <int kMostEights> class WarpConsumer : public AnyWarpConsumer<WarpStages<kMostEights>, WarpConsumer<kMostEights>> {
public:
  using Stages = WarpStages<kMostEights>;
  using Base = AnyWarpConsumer<Stages, WarpConsumer>;
  using Base::call, Base::lane, Base::warp, Base::own, Base::awaitStage, Base::release;
  using typename Base::Sums;

  __device__ WarpConsumer(const Call &call, Ring<Stages> &ring, uint32_t stages, unsigned char *own)
      : Base(call, ring, stages, own), ownAddress(bulk::sharedAddress(this->own)) {}

  __device__ void multiplyTile(const Tile &tile, Sums &sums) {
    if (call.codesFormat == MOERT__NVFP4)
      multiplyRows<true>(tile, sums[0]);
    else
      multiplyRows<false>(tile, sums[0]);
  }

  __device__ float sumsFactor() const { return call.codesFormat == MOERT__NVFP4 ? 0x1p8f : 1.0f; }

private:
  using BandSums = float[kMostEights][4];

  static constexpr int kBlocks = Stages::kDepth / kScaleBlock; // of sixteen codes
  static constexpr int kCodesStride = Stages::kDepth / 2;      // bytes of a weight row

  template <bool kNvfp4, int kEights = kMostEights> __device__ void multiplyRows(const Tile &tile, BandSums &sums) {
    if constexpr (kEights > 1)
      if (tile.rows <= (kEights - 1) * 8) return multiplyRows<kNvfp4, kEights - 1>(tile, sums);
    multiplyStages<kNvfp4, kEights>(sums);
  }

  template <bool kNvfp4, int kEights> __device__ void multiplyStages(BandSums &sums) {
    for (int left = static_cast<int>(call.depth / Stages::kDepth); left > 0; --left) {
      const uint32_t stage = awaitStage();
      expandScales<kNvfp4>(stage);
      multiplyStage<kNvfp4, kEights>(stage, sums);
      release();
    }
  }

  //===--- scales -----------------------------------------------------------------------------------===//

  // Of a row some chunks of four pairs; those of eight rows that are read at once lie in different banks.
  template <bool kNvfp4> __device__ static uint32_t scaleChunkAt(int row, int chunk) {
    constexpr int kChunks = kNvfp4 ? 4 : 2;
    return static_cast<uint32_t>((row * kChunks + (chunk ^ (row / (8 / kChunks) & (kChunks - 1)))) * 16);
  }

  // A lane has half of the scales of a row.
  template <bool kNvfp4> __device__ void expandScales(uint32_t stage) const {
    constexpr int kOwnScales = kNvfp4 ? 8 : 4;
    const int row = lane / 2, half = lane % 2;
    const uint32_t raw = stage + Stages::kScalesAt + (warp * 32 + lane) * kOwnScales;
    uint2 codes = {0, 0};
    if constexpr (kNvfp4)
      codes = loadSharedPair(raw);
    else
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(codes.x) : "r"(raw));
    __syncwarp(); // all lanes have read those of the stage before
    storeShared(ownAddress + scaleChunkAt<kNvfp4>(row, half * (kOwnScales / 4)), pairsOf<kNvfp4>(codes.x));
    if constexpr (kNvfp4) storeShared(ownAddress + scaleChunkAt<kNvfp4>(row, half * 2 + 1), pairsOf<kNvfp4>(codes.y));
    __syncwarp();
  }

  // Of four scales.
  template <bool kNvfp4> __device__ static uint4 pairsOf(uint32_t codes) {
    constexpr float kScaleFactor = kNvfp4 ? 0x1p118f : 1.0f;
    float scales[4];
    if constexpr (kNvfp4) {
      e4m3ToPair(codes & 0xffff, &scales[0], &scales[1]);
      e4m3ToPair(codes >> 16, &scales[2], &scales[3]);
    } else {
      for (int i = 0; i < 4; ++i) scales[i] = moert__e8m0_to_f32(codes >> i * 8 & 0xff);
    }
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i) pairs[i] = pairTo16Bits<MOERT__BF16>(scales[i] * kScaleFactor, scales[i] * kScaleFactor);
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }

  //===--- products ---------------------------------------------------------------------------------===//

  // Four blocks of sixteen at a time, which have two chunks of codes.
  template <bool kNvfp4, int kEights> __device__ void multiplyStage(uint32_t stage, BandSums &sums) const {
    const uint32_t codes = stage + warp * kProductRows * kCodesStride + packedChunkAt<8>(lane / 4, 0);
#pragma unroll
    for (int four = 0; four < kBlocks / 4; ++four) {
      uint32_t low[4], high[4];
      loadScales<kNvfp4>(lane / 4, four, low);
      loadScales<kNvfp4>(lane / 4 + 8, four, high);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int chunk = 2 * four + half;
        const uint32_t from = codes ^ chunk * 16; // where packedChunkAt has it
        uint32_t a[2][4];
        decodeChunk<kNvfp4>(loadShared(from), low + 2 * half, &a[0][0], &a[1][0]);
        decodeChunk<kNvfp4>(loadShared(from + 8 * kCodesStride), high + 2 * half, &a[0][1], &a[1][1]);
        multiplyChunk<kEights>(a, stage, chunk, sums);
      }
    }
  }

  // Two eights of rows at a time: one product does not wait for the one before, and few rows are in registers.
  template <int kEights> __device__ void multiplyChunk(const uint32_t (&a)[2][4], uint32_t stage, int chunk, BandSums &sums) const {
#pragma unroll
    for (int first = 0; first < kEights; first += 2) {
      const bool both = first + 1 < kEights;
      const uint4 b0 = rowsAt(stage, first, chunk), b1 = both ? rowsAt(stage, first + 1, chunk) : b0;
      multiplyFragments(sums[first], a[0], b0.x, b0.y);
      if (both) multiplyFragments(sums[first + 1], a[0], b1.x, b1.y);
      multiplyFragments(sums[first], a[1], b0.z, b0.w);
      if (both) multiplyFragments(sums[first + 1], a[1], b1.z, b1.w);
    }
  }

  // What the lane multiplies of two blocks of a row of eight.
  __device__ uint4 rowsAt(uint32_t stage, int eight, int chunk) const {
    const uint32_t row = stage + Stages::kRowsAt + (eight * 8 + lane / 4) * Stages::kRowStride + chunk * kChunkCodes * 2;
    if constexpr (Stages::kGathered) return loadShared(row + lane % 4 * 16);
    const uint2 first = permuteFour(loadSharedPair(row + lane % 4 * 8)), second = permuteFour(loadSharedPair(row + kScaleBlock * 2 + lane % 4 * 8));
    return make_uint4(first.x, first.y, second.x, second.y);
  }

  // Of four blocks.
  template <bool kNvfp4> __device__ void loadScales(int row, int four, uint32_t (&scales)[4]) const {
    if constexpr (kNvfp4) {
      const uint4 pairs = loadShared(ownAddress + scaleChunkAt<kNvfp4>(row, four));
      scales[0] = pairs.x, scales[1] = pairs.y, scales[2] = pairs.z, scales[3] = pairs.w;
    } else {
      const uint2 pairs = loadSharedPair(ownAddress + scaleChunkAt<kNvfp4>(row, four / 2) + four % 2 * 8);
      scales[0] = scales[1] = pairs.x, scales[2] = scales[3] = pairs.y;
    }
  }

  // Two blocks of a row, to their places in fragments.
  template <bool kNvfp4> __device__ void decodeChunk(const uint4 &codes, const uint32_t *scales, uint32_t *first, uint32_t *second) const {
    decode<kNvfp4>(__byte_perm(codes.x, codes.y, spread), scales[0], &first[0], &first[2]);
    decode<kNvfp4>(__byte_perm(codes.z, codes.w, spread), scales[1], &second[0], &second[2]);
  }

  // The low byte of either half of `bytes` has two codes: the numbers of both lower ones, and of both upper ones. A product with two powers of two
  // moves a magnitude and a sign to their places; what else it leaves is masked.
  template <bool kNvfp4> __device__ static void decode(uint32_t bytes, uint32_t scale, uint32_t *lower, uint32_t *upper) {
    constexpr uint32_t kPlaces = 0x81c081c0;
    *lower = number<kNvfp4>((bytes & 0x000f000f) * (1 << 6 | 1 << 12) & kPlaces, scale);
    *upper = number<kNvfp4>((bytes & 0x00f000f0) * (1 << 2 | 1 << 8) & kPlaces, scale);
  }

  template <bool kNvfp4> __device__ static uint32_t number(uint32_t pair, uint32_t scale) {
    constexpr uint32_t kTwoTo126 = 0x7e807e80; // a pair
    return multiplyPairs(kNvfp4 ? pair : multiplyPairs(pair, kTwoTo126), scale);
  }

  const uint32_t ownAddress;
  const uint32_t spread = static_cast<uint32_t>(lane % 4 * 2) * 0x1111 + 0x1100; // of the lane's two bytes of eight
};

//===--- the kernel ---------------------------------------------------------------------------------===//

template <typename Producer> __device__ void bringTiles(const Call &call, Producer &producer, const AlonePlan *alone) {
  using Tiles = WarpTiles<typename Producer::Stages>;
  const int64_t tiles = alone ? tilesAlone<Tiles>(call, *alone) : countTiles(call);
  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x)
    producer.bring(alone ? tileAlone<Tiles>(call, *alone, number) : tileAt<Tiles>(call, number));
  producer.finish();
}

// One warp brings what the others multiply. With one times eight rows: the call has no more.
template <typename Producer, typename Consumer> __device__ void multiplyByWarps(const Call &call, bool gated) {
  using Stages = typename Producer::Stages;
  constexpr bool kAlone = Stages::kEights * 8 == kAloneRows;
  extern __shared__ unsigned char shared[];
  __shared__ Ring<Stages> ring;
  __shared__ AlonePlan plan;
  openRing(ring);
  awaitStream();
  letNextBegin();
  if (!(kAlone ? planAlone(call, plan) : callIsSound(call))) return;
  const uint32_t stages = (bulk::sharedAddress(shared) + kAlignment - 1) / kAlignment * kAlignment;
  if (threadIdx.x < 32) {
    Producer producer(call, ring, stages, gated);
    bringTiles(call, producer, kAlone ? &plan : nullptr);
  } else {
    unsigned char *own = shared + (stages - bulk::sharedAddress(shared)) + Stages::kCount * Stages::kBytes;
    Consumer consumer(call, ring, stages, own);
    while (consumer.takeTile(gated));
  }
}

template <Activation kActivation, int kEights>
__global__ void __launch_bounds__(WarpStages<kEights>::kThreads, WarpStages<kEights>::kBlocks)
    sm90_moe_grouped_matmul_warps(const __grid_constant__ Call call) {
  multiplyByWarps<WarpProducer<kEights>, WarpConsumer<kEights>>(call, isGated<kActivation>(call));
}

} // namespace grouped_matmul

#endif

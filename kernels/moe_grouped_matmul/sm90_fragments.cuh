//===- sm90_fragments.cuh - moe.grouped_matmul with prepared weights of 4 bits ---------------------------===//
//
// Weights of NVFP4 as fragments: what a lane multiplies is in words of its own, scales beside codes, so that a stage is few copies of memory that is
// in one piece. Blocks, ring and tiles are those of sm90_warps.cuh; rows lie in a stage as they come. Sums have the bits of that kernel's.
//
// A warp has 32 weight rows where there are more than eight rows: shared memory is what bounds it then, and rows are read half as often.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_FRAGMENTS_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_FRAGMENTS_CUH

#include "kernels/moe_grouped_matmul/fragments.cuh"
#include "kernels/moe_grouped_matmul/sm90_warps.cuh"

namespace grouped_matmul {

//===--- stages -------------------------------------------------------------------------------------===//

// Of the kernel whose tiles have so many times eight rows, at most. A stage is strips of panels, 64 weight rows each, and rows. Where there are at
// most eight rows tiles are small, so that few experts keep all multiprocessors busy.
template <int kMostEights> struct FragmentStages {
  static constexpr int kEights = kMostEights;
  static constexpr int kWarps = 4, kThreads = 32 * (1 + kWarps);
  static constexpr int kBlocks = kEights == 1 ? 4 : 3;            // that share a multiprocessor
  static constexpr int kBands = kEights == 1 ? 1 : 2;             // of a warp
  static constexpr int kWeightRows = kWarps * kBands * kBandRows; // of a tile
  static constexpr int kCount = kEights == 1 ? 3 : 2, kArrivals = 1, kReleases = kWarps;
  static constexpr int kPanels = 2, kDepth = kPanels * kPanelDepth; // of a strip
  static constexpr int kStrips = kWeightRows / kPanelRows, kStripBytes = kPanels * kPanelBytes;
  static constexpr int kRowBytes = kDepth * 2, kRowStride = kRowBytes + 16; // chunks of eight rows lie in different banks
  static constexpr int kRowsAt = kStrips * kStripBytes, kBytes = kRowsAt + kEights * 8 * kRowStride;

  static constexpr __device__ int depth(bool) { return kDepth; }
};

//===--- the warp that brings -----------------------------------------------------------------------===//

template <int kEights> class FragmentProducer : public AnyProducer<FragmentStages<kEights>> {
public:
  using Base = AnyProducer<FragmentStages<kEights>>;
  using Stages = typename Base::Stages;
  using Base::Base, Base::call, Base::ring, Base::filled, Base::openStage;

  __device__ void bring(const Tile &tile) {
    const int panels = static_cast<int>(call.depth / kPanelDepth);
    const char *const strip = stripOf(tile, panels), *rows[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      rows[i] = static_cast<const char *>(call.in) + (i * 32 + lane < tile.rows ? rowOf(call, tile, i * 32 + lane) * call.depth * 2 : 0);
    for (int first = 0; first < panels; first += Stages::kPanels) {
      const int count = min(panels - first, Stages::kPanels);
      const uint32_t stage = openStage(tile, first == 0, count * (Stages::kStrips * kPanelBytes + tile.rows * kPanelDepth * 2));
      unsigned long long *full = &ring.full[filled % Stages::kCount];
      if (lane < Stages::kStrips)
        bringBytes(stage + lane * Stages::kStripBytes, strip + static_cast<int64_t>(first) * kPanelBytes, count * kPanelBytes, full);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (i * 32 + lane < tile.rows)
          bringBytes(stage + Stages::kRowsAt + (i * 32 + lane) * Stages::kRowStride, rows[i] + static_cast<int64_t>(first) * kPanelDepth * 2,
                     count * kPanelDepth * 2, full);
      ++filled;
    }
  }

  // Behind the last tile.
  __device__ void finish() { openStage(Tile{}, true, 0); }

private:
  static constexpr int kRows = (kEights * 8 + 31) / 32; // of a lane

  // The lane's strip of a tile: some lanes have one each. What a tile has beyond the last row is multiplied and not stored.
  __device__ const char *stripOf(const Tile &tile, int panels) const {
    const int64_t strips = call.columns / kPanelRows, first = (tile.column << call.swiglu) / kPanelRows + lane;
    return reinterpret_cast<const char *>(call.fragments) + (tile.group * strips + min(first, strips - 1)) * panels * kPanelBytes;
  }

  __device__ static void bringBytes(uint32_t to, const char *from, uint32_t bytes, unsigned long long *full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(bulk::sharedAddress(full))
                 : "memory");
  }

  const int lane = static_cast<int>(threadIdx.x);
};

//===--- the warps that multiply --------------------------------------------------------------------===//

// Of eight rows, two blocks: what a lane multiplies of each.
__device__ inline uint4 loadRows(uint32_t chunk) {
  uint4 rows;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(rows.x), "=r"(rows.y), "=r"(rows.z), "=r"(rows.w)
               : "r"(chunk));
  return rows;
}

template <int kMostEights> class FragmentConsumer : public AnyWarpConsumer<FragmentStages<kMostEights>, FragmentConsumer<kMostEights>> {
public:
  using Stages = FragmentStages<kMostEights>;
  using Base = AnyWarpConsumer<Stages, FragmentConsumer>;
  using Base::Base, Base::call, Base::lane, Base::warp, Base::awaitStage, Base::release;
  using typename Base::Sums;

  __device__ void multiplyTile(const Tile &tile, Sums &sums) { multiplyRows<kMostEights>(tile, sums); }

  __device__ float sumsFactor() const { return kFragmentSums; }

private:
  template <int kEights> __device__ void multiplyRows(const Tile &tile, Sums &sums) {
    if constexpr (kEights > 1)
      if (tile.rows <= (kEights - 1) * 8) return multiplyRows<kEights - 1>(tile, sums);
    const int panels = static_cast<int>(call.depth / kPanelDepth);
    for (int first = 0; first < panels; first += Stages::kPanels) {
      const uint32_t stage = awaitStage(), strip = stage + warp * kBands / kPanelBands * Stages::kStripBytes;
      const int count = min(panels - first, Stages::kPanels);
#pragma unroll 1
      for (int panel = 0; panel < count; ++panel)
        multiplyPanel<kEights>(strip + panel * kPanelBytes, stage + Stages::kRowsAt + panel * kPanelDepth * 2 + rowsOffset, sums);
      release();
    }
  }

  template <int kEights> __device__ void multiplyPanel(uint32_t panel, uint32_t rows, Sums &sums) const {
    uint32_t scales[kBands][4];
#pragma unroll
    for (int band = 0; band < kBands; ++band) splitVector(loadShared(panel + scalesOffset + band * kBandScalesBytes), scales[band]);
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      uint32_t codes[kBands][4];
#pragma unroll
      for (int band = 0; band < kBands; ++band) splitVector(loadShared(panel + codesOffset + (band * 2 + chunk) * kBandChunkBytes), codes[band]);
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        const int number = chunk * 2 + two;
        uint4 b[kEights];
#pragma unroll
        for (int i = 0; i < kEights; ++i) b[i] = loadRows(rows + i * 8 * Stages::kRowStride + number * 64);
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
          for (int band = 0; band < kBands; ++band) {
            uint32_t a[4];
            decodeBlock(codes[band][two * 2 + block], scalesOf(scales[band][number], block), a);
#pragma unroll
            for (int i = 0; i < kEights; ++i) multiplyFragments(sums[band][i], a, block ? b[i].z : b[i].x, block ? b[i].w : b[i].y);
          }
      }
    }
  }

  static constexpr int kBands = Stages::kBands;

  const uint32_t firstBand = static_cast<uint32_t>(warp * kBands % kPanelBands);
  const uint32_t codesOffset = firstBand * 2 * kBandChunkBytes + lane * 16;
  const uint32_t scalesOffset = kPanelScalesAt + firstBand * kBandScalesBytes + lane / 4 * 16;
  const uint32_t rowsOffset = lane % 8 * Stages::kRowStride + lane / 8 * 16;
};

//===--- the kernel ---------------------------------------------------------------------------------===//

template <Activation kActivation, int kEights>
__global__ void __launch_bounds__(FragmentStages<kEights>::kThreads, FragmentStages<kEights>::kBlocks)
    sm90_moe_grouped_matmul_fragments(const __grid_constant__ Call call) {
  multiplyByWarps<FragmentProducer<kEights>, FragmentConsumer<kEights>>(call, isGated<kActivation>(call));
}

} // namespace grouped_matmul

#endif

//===- sm90_wgmma.cuh - moe.grouped_matmul of bf16 and f16 by warpgroups ------------------------------===//
//
// Weight rows are the 64 rows of an instruction, the group's rows its columns: a tile has as many columns as it has rows, in steps of 16, and 8 rows
// cost no more than the weights that have to be read for them. A warpgroup brings what two others multiply, by way of a ring of stages: weights by
// the copy engine, rows, which may lie anywhere, by asynchronous copies of 16 bytes. It runs ahead into the next tiles while the two finish theirs.
//
//   wide tile     up to 128 rows, 256 weight rows; a stage is 64 deep, a warpgroup has two times 64 of the weight rows
//   narrow tile   up to 16 rows, 128 weight rows; a stage is 128 deep, a warpgroup has 64 weight rows
//
// so that a stage has two boxes of weights, 128 rows of 64 elements each, whatever the tile.
//
// The kernel of weights of 4 bits, in sm90_codes.cuh, has the same tiles, warpgroups and ring, and stages of its own.
//
// Each sum starts from 0 and takes 16 products at a time in ascending k: how many rows a tile has, and which, changes no bit.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_WGMMA_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_WGMMA_CUH

#include "kernels/common/bulk.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/moe_grouped_matmul/call.cuh"

namespace grouped_matmul {

constexpr int kProducers = 128, kConsumers = 256; // threads: a warpgroup, and two behind it
constexpr int kWarpgroupThreads = kProducers + kConsumers;
constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;

constexpr int kBoxRows = 128, kBoxBytes = kBoxRows * wgmma::kTileRowBytes;
constexpr int kMostRows = 128, kNarrowRows = 16;        // of a wide tile, of a narrow one
constexpr int kFinishedRows = 32, kFinishedStride = 68; // of a warpgroup's sums at a time; floats between rows: lanes that write meet different banks
constexpr int kFinishedFloats = 2 * kFinishedRows * kFinishedStride;
constexpr int kAlignment = 1024; // of tiles in shared memory

// What the stages of a ring are like.
struct NumberStages {
  static constexpr int kWeightBytes = 2 * kBoxBytes;
  static constexpr int kCount = 4, kBytes = kWeightBytes + kMostRows * wgmma::kTileRowBytes;
  static constexpr int kArrivals = kProducers + 1;  // by which one is full: the first producer also tells what the copy engine will bring
  static constexpr int kReleases = kConsumers / 32; // by which one is empty
  static constexpr __device__ int depth(bool isNarrow) { return isNarrow ? 2 * wgmma::kTileDepth : wgmma::kTileDepth; }
};

template <typename Stages> constexpr int kSharedOf = Stages::kCount * Stages::kBytes + kFinishedFloats * sizeof(float) + kAlignment;

//===--- tiles ------------------------------------------------------------------------------------===//

constexpr int kUnit = 16; // rows: groups are cut into tiles of these, as evenly as that goes
constexpr int kBand = 16; // tiles of rows that meet the same weights one after the other

struct WarpgroupTiles {
  static __device__ bool isNarrow(int64_t rows) { return rows <= kNarrowRows; }
  static __device__ int64_t width(const Call &call, int64_t rows) { return 2 * kBoxRows >> isNarrow(rows) >> call.swiglu; } // columns of out
  static __device__ int64_t count(const Call &call, int64_t rows) { return ceilOf(rows, kMostRows) * ceilOf(call.outColumns, width(call, rows)); }

  static __device__ Tile at(const Call &call, int64_t group, int64_t rows, int64_t number) {
    const int64_t down = ceilOf(rows, kMostRows), across = ceilOf(call.outColumns, width(call, rows));
    const int64_t band = number / (kBand * across), within = number - band * kBand * across;
    const int64_t height = down - band * kBand < kBand ? down - band * kBand : kBand, tile = band * kBand + within % height;
    const int64_t units = ceilOf(rows, kUnit), first = tile * units / down * kUnit, end = (tile + 1) * units / down * kUnit;
    return {group, first, within / height * width(call, rows), static_cast<int>((end < rows ? end : rows) - first), isNarrow(rows)};
  }
};

//===--- the ring ---------------------------------------------------------------------------------===//

// In shared memory.
template <typename Stages> struct Ring {
  unsigned long long full[Stages::kCount], empty[Stages::kCount]; // barriers
  Tile tiles[Stages::kCount];                                     // that begin in the stage; no rows: there are no more
};

template <typename Stages> __device__ void openRing(Ring<Stages> &ring) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages::kCount; ++i) {
      bulk::openBarrier(&ring.full[i], Stages::kArrivals);
      bulk::openBarrier(&ring.empty[i], Stages::kReleases);
    }
    bulk::publishBarriers();
  }
  __syncthreads();
}

// How often a stage has been used tells the phase of its barriers.
template <typename Stages> __device__ uint32_t phaseOf(uint32_t position) { return position / Stages::kCount & 1; }

// Of a tile: at least one, so that the consumers learn of it.
template <typename Stages> __device__ int64_t stagesOf(const Call &call, bool isNarrow) {
  const int64_t stages = ceilOf(call.depth, Stages::depth(isNarrow));
  return stages > 0 ? stages : 1;
}

//===--- the warpgroup that brings ------------------------------------------------------------------===//

// Sixteen bytes, zeros instead if `inside` is false.
__device__ inline void copyAsync(uint32_t to, const void *from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
               : "memory");
}
// This thread arrives at the barrier when its copies have.
__device__ inline void arriveWithCopies(unsigned long long *barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bulk::sharedAddress(barrier)) : "memory");
}

// What copyAsync does, for memory that is aligned to its elements only.
__device__ inline void copyElements(uint32_t to, const uint16_t *from, bool inside) {
  uint32_t words[4] = {0, 0, 0, 0};
  if (inside)
    for (int i = 0; i < 4; ++i) words[i] = from[2 * i] | static_cast<uint32_t>(from[2 * i + 1]) << 16;
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

// `place` is that of the box's first weight row in the tile; `depth` is in elements of the map.
__device__ inline void loadBox(const CUtensorMap &map, const Tile &tile, int place, bool gated, int64_t depth, uint32_t to,
                               unsigned long long *barrier) {
  const int eight = static_cast<int>(tile.column / 8) + place / (gated ? 16 : 8);
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %3, %4, %5}], [%6];" ::"r"(to),
               "l"(&map), "r"(static_cast<int>(depth)), "r"(0), "r"(eight), "r"(static_cast<int>(tile.group)), "r"(bulk::sharedAddress(barrier))
               : "memory");
}

// The rows of a tile, of which there are at most so many: eight threads a row of a stage.
constexpr int kLines = kProducers / 8;

template <int kMost> class TileRows {
public:
  __device__ TileRows(const Call &call, const Tile &tile) : count(tile.rows), left(call.depth - chunk * 8) {
#pragma unroll
    for (int i = 0; i < kMost / kLines; ++i)
      chunks[i] = static_cast<const uint16_t *>(call.in) + chunk * 8 + (i * kLines < count ? rowOf(call, tile, i * kLines + line) * call.depth : 0);
  }

  // As many elements as a stage is deep, in tiles one behind the other. Of a chunk that is outside nothing is read.
  template <bool kVectors, int kDepth> __device__ void bring(uint32_t to, int64_t depth) const {
#pragma unroll
    for (int part = 0; part < kDepth / wgmma::kTileDepth; ++part)
#pragma unroll
      for (int i = 0; i < kMost / kLines; ++i) {
        if (i * kLines >= count) break;
        const uint32_t place = to + part * kMost * wgmma::kTileRowBytes + i * kLines * wgmma::kTileRowBytes + wgmma::chunkAt(0, line, chunk);
        const uint16_t *from = chunks[i] + depth + part * wgmma::kTileDepth;
        if constexpr (kVectors)
          copyAsync(place, from, part * wgmma::kTileDepth < left - depth);
        else
          copyElements(place, from, part * wgmma::kTileDepth < left - depth);
      }
  }

private:
  const int count, chunk = static_cast<int>(threadIdx.x) % 8, line = static_cast<int>(threadIdx.x) / 8;
  const int64_t left; // elements of a row, from the thread's chunk on
  const uint16_t *chunks[kMost / kLines];
};

// What producers of all kinds of stages share.
template <typename StagesOfKind> class AnyProducer {
public:
  using Stages = StagesOfKind;

  __device__ AnyProducer(const Call &call, Ring<Stages> &ring, uint32_t stages, bool gated) : call(call), ring(ring), stages(stages), gated(gated) {}

protected:
  // The address of the next stage, which the copy engine will bring so many bytes to.
  __device__ uint32_t openStage(const Tile &tile, bool isFirst, uint32_t bytes) {
    const int stage = filled % Stages::kCount;
    bulk::await(&ring.empty[stage], phaseOf<Stages>(filled) ^ 1);
    if (threadIdx.x == 0) {
      if (isFirst) ring.tiles[stage] = tile;
      bulk::arriveForBytes(&ring.full[stage], bytes);
    }
    return stages + stage * Stages::kBytes;
  }

  const Call &call;
  Ring<Stages> &ring;
  const uint32_t stages;
  const bool gated;
  uint32_t filled = 0;
};

class Producer : public AnyProducer<NumberStages> {
public:
  using AnyProducer::AnyProducer;

  __device__ void bring(const Tile &tile) {
    if (tile.isNarrow)
      bringTile<true>(tile);
    else
      bringTile<false>(tile);
  }

  // Behind the last tile.
  __device__ void finish() {
    openStage(Tile{}, true, 0);
    closeStage<false>();
  }

private:
  template <bool kNarrow> __device__ void bringTile(const Tile &tile) {
    if (call.readsVectors && call.isMapped)
      bringTile<kNarrow, true>(tile);
    else
      bringTile<kNarrow, false>(tile);
  }

  template <bool kNarrow, bool kVectors> __device__ void bringTile(const Tile &tile) {
    constexpr int kDepth = Stages::depth(kNarrow);
    const TileRows<kNarrow ? kNarrowRows : kMostRows> rows(call, tile);
    const int64_t count = stagesOf<Stages>(call, kNarrow);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t stage = openStage(tile, i == 0, call.isMapped ? Stages::kWeightBytes : 0);
      bringWeights<kNarrow>(tile, stage, i * kDepth);
      rows.template bring<kVectors, kDepth>(stage + Stages::kWeightBytes, i * kDepth);
      closeStage<kVectors>();
    }
  }

  template <bool kVectors> __device__ void closeStage() {
    if constexpr (kVectors)
      arriveWithCopies(&ring.full[filled % Stages::kCount]);
    else
      bulk::arrive(&ring.full[filled % Stages::kCount]);
    ++filled;
  }

  template <bool kNarrow> __device__ void bringWeights(const Tile &tile, uint32_t stage, int64_t depth) {
    for (int box = 0; box < 2; ++box) {
      const int64_t from = depth + (kNarrow ? box * wgmma::kTileDepth : 0);
      const int place = kNarrow ? 0 : box * kBoxRows;
      const uint32_t to = stage + box * kBoxBytes;
      if (!call.isMapped)
        copyBox(tile, to, from, place);
      else if (threadIdx.x == 0)
        loadBox(call.map, tile, place, gated, from, to, &ring.full[filled % Stages::kCount]);
    }
  }

  __device__ void copyBox(const Tile &tile, uint32_t to, int64_t depth, int place) {
    const int64_t k = depth + chunk * 8;
    for (int i = 0; i < kBoxRows; i += kLines) {
      const uint16_t *from = static_cast<const uint16_t *>(call.weights) + weightRowOf(call, tile, place + i + line, gated) * call.depth;
      copyElements(wgmma::chunkAt(to, i + line, chunk), from + k, k < call.depth);
    }
  }

  const int chunk = static_cast<int>(threadIdx.x) % 8, line = static_cast<int>(threadIdx.x) / 8;
};

//===--- the warpgroups that multiply ---------------------------------------------------------------===//

// Of two times 64 weight rows, or one, with up to 128 rows.
using Sums = float[2][kMostRows / 8][4];

// What consumers of all kinds of stages share. A `Kind` is derived from it, and has
//
//   template <int kRows> void multiplyNarrow(Sums &), multiplyWide(Sums &)    all stages of a tile, which are then released
//
// for tiles of 8 or 16 rows and, in steps of 16, up to kMostRows.
template <typename StagesOfKind, typename Kind> class AnyConsumer {
public:
  using Stages = StagesOfKind;

  __device__ AnyConsumer(const Call &call, Ring<Stages> &ring, uint32_t stages, float *finished)
      : call(call), ring(ring), stages(stages), finished(finished + warpgroup * kFinishedRows * kFinishedStride) {}

  // False: there is none.
  __device__ bool takeTile(bool gated) {
    awaitStage(0);
    const Tile tile = ring.tiles[taken % Stages::kCount];
    if (tile.rows == 0) return false;
    Sums sums = {};
    if (call.depth == 0)
      release();
    else
      multiply(tile, sums);
    finishTile(tile, gated, sums);
    return true;
  }

protected:
  // The address of the first stage that was not released, or of one behind it.
  __device__ uint32_t awaitStage(uint32_t behind) {
    const uint32_t position = taken + behind;
    bulk::await(&ring.full[position % Stages::kCount], phaseOf<Stages>(position));
    wgmma::publish();
    return stages + position % Stages::kCount * Stages::kBytes;
  }

  __device__ void release() {
    __syncwarp();
    if (lane == 0) bulk::arrive(&ring.empty[taken % Stages::kCount]);
    ++taken;
  }

  const Call &call;
  Ring<Stages> &ring;
  const uint32_t stages;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x - kProducers) / 32, warpgroup = warp / 4;
  float *const finished;
  uint32_t taken = 0;

private:
  __device__ void multiply(const Tile &tile, Sums &sums) {
    Kind &kind = static_cast<Kind &>(*this);
    if (tile.isNarrow) return tile.rows <= 8 ? kind.template multiplyNarrow<8>(sums) : kind.template multiplyNarrow<16>(sums);
    switch ((tile.rows + 15) / 16) {
    case 1: return kind.template multiplyWide<16>(sums);
    case 2: return kind.template multiplyWide<32>(sums);
    case 3: return kind.template multiplyWide<48>(sums);
    case 4: return kind.template multiplyWide<64>(sums);
    case 5: return kind.template multiplyWide<80>(sums);
    case 6: return kind.template multiplyWide<96>(sums);
    case 7: return kind.template multiplyWide<112>(sums);
    default: return kind.template multiplyWide<128>(sums);
    }
  }

  // By way of shared memory, so that threads that lie side by side get columns that do. What follows the sums is long, and there once.
  __device__ void finishTile(const Tile &tile, bool gated, const Sums &sums) {
    const int parts = (tile.rows + kFinishedRows - 1) / kFinishedRows;
    for (int part = 0; part < (tile.isNarrow ? parts : 2 * parts); ++part) {
      const int block = part / parts, first = part % parts * kFinishedRows;
      keepPart(sums, block, first);
      wgmma::syncWarpgroup(1 + warpgroup);
      finishRows(tile, block, first, gated);
      wgmma::syncWarpgroup(1 + warpgroup);
    }
  }

  __device__ void keepPart(const Sums &sums, int block, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < kMostRows; j += kFinishedRows)
        if (i == block && j == first) keepSums(sums[i], j);
  }

  __device__ void keepSums(const float (&sums)[kMostRows / 8][4], int first) {
#pragma unroll
    for (int j = 0; j < kFinishedRows / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        finished[(j * 8 + lane % 4 * 2 + i % 2) * kFinishedStride + warp % 4 * 16 + lane / 4 + i / 2 * 8] = sums[first / 8 + j][i];
  }

  __device__ void finishRows(const Tile &tile, int block, int first, bool gated) {
    const int place = tile.isNarrow ? warpgroup * 64 : warpgroup * 128 + block * 64; // of the warpgroup's first weight row
    const int eights = gated ? 4 : 8;                                                // of columns, from 64 weight rows
    const int rows = tile.rows - first < kFinishedRows ? tile.rows - first : kFinishedRows;
    for (int unit = static_cast<int>(threadIdx.x) % 128; unit < rows * eights; unit += 128) {
      const int row = unit / eights, eight = unit % eights;
      const int64_t column = tile.column + (gated ? place / 2 : place) + eight * 8;
      if (column < call.outColumns)
        finishEight(call, tile.group, tile.firstRow + first + row, column, gated, finished + row * kFinishedStride + eight * (gated ? 16 : 8));
    }
  }
};

template <moert__format kFormat> class Consumer : public AnyConsumer<NumberStages, Consumer<kFormat>> {
public:
  using Stages = NumberStages;
  using Base = AnyConsumer<Stages, Consumer<kFormat>>;
  using Base::Base, Base::call, Base::warpgroup, Base::awaitStage, Base::release;

  template <int kRows> __device__ void multiplyNarrow(Sums &sums) {
    for (int64_t i = stagesOf<Stages>(call, true); i > 0; --i) {
      const uint32_t stage = awaitStage(0), weights = stage + warpgroup * (kBoxBytes / 2);
      wgmma::begin();
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int step = 0; step < wgmma::kTileDepth / wgmma::kStep; ++step)
          wgmma::Product<kFormat, kRows>::add(sums[0], wgmma::describe(weights, half * kBoxBytes, step),
                                              wgmma::describe(stage, Stages::kWeightBytes + half * kNarrowRows * wgmma::kTileRowBytes, step));
      wgmma::commit();
      wgmma::await<0>();
      release();
    }
  }

  // The products of a stage begin while those of the one before still run.
  template <int kRows> __device__ void multiplyWide(Sums &sums) {
    const int64_t count = stagesOf<Stages>(call, false);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t stage = awaitStage(i > 0), weights = stage + warpgroup * kBoxBytes;
      wgmma::begin();
#pragma unroll
      for (int step = 0; step < wgmma::kTileDepth / wgmma::kStep; ++step)
#pragma unroll
        for (int block = 0; block < 2; ++block)
          wgmma::Product<kFormat, kRows>::add(sums[block], wgmma::describe(weights, block * (kBoxBytes / 2), step),
                                              wgmma::describe(stage, Stages::kWeightBytes, step));
      wgmma::commit();
      wgmma::await<1>();
      if (i > 0) release();
    }
    wgmma::await<0>();
    release();
  }
};

//===--- the kernel -------------------------------------------------------------------------------===//

// One warpgroup brings what the others multiply.
template <typename Producer, typename Consumer> __device__ void multiplyTiles(const Call &call, bool gated) {
  using Stages = typename Producer::Stages;
  extern __shared__ unsigned char shared[];
  __shared__ Ring<Stages> ring;
  openRing(ring);
  awaitStream();
  if (!callIsSound(call)) return;
  const uint32_t stages = (bulk::sharedAddress(shared) + kAlignment - 1) / kAlignment * kAlignment;
  if (threadIdx.x < kProducers) {
    wgmma::shrinkRegisters<kProducerRegisters>();
    Producer producer(call, ring, stages, gated);
    const int64_t tiles = countTiles(call);
    for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) producer.bring(tileAt<WarpgroupTiles>(call, number));
    producer.finish();
  } else {
    wgmma::growRegisters<kConsumerRegisters>();
    float *finished = reinterpret_cast<float *>(shared + (stages - bulk::sharedAddress(shared)) + Stages::kCount * Stages::kBytes);
    Consumer consumer(call, ring, stages, finished);
    while (consumer.takeTile(gated));
  }
}

template <moert__format kFormat, Activation kActivation>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) sm90_moe_grouped_matmul_wgmma(const __grid_constant__ Call call) {
  multiplyTiles<Producer, Consumer<kFormat>>(call, isGated<kActivation>(call));
}

} // namespace grouped_matmul

#endif

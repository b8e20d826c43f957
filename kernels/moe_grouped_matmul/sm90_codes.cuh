//===- sm90_codes.cuh - moe.grouped_matmul with weights of 4 bits by warpgroups -------------------------===//
//
// Tiles and warpgroups are those of sm90_wgmma.cuh. Codes come to a stage as they are in memory, and become numbers in the registers of those who
// multiply, by a table of the pairs of codes: code times scale, which bf16 holds, so that a product has the bits of the one with the same weights in
// bf16. Shared memory is written and read for 4 bits a weight, not for 16.
//
//   wide tile     a stage is 128 deep: the copy engine takes short rows of codes no faster than long ones
//   narrow tile   a stage is 256 deep
//
// Scales become pairs of bf16 on the way, by the thread that has copied them: all others have what they multiply by without a conversion.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_CODES_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_CODES_CUH

#include "kernels/moe_grouped_matmul/sm90_wgmma.cuh"
#include "lib/reference/formats.h"

namespace grouped_matmul {

constexpr int kScaleBlock = 16; // codes that have a scale in a stage, whatever the format
constexpr int kChunkCodes = 32; // of sixteen bytes

// A stage is codes, scales for every sixteen of them, scales as they are in memory, and rows.
struct CodesStages {
  static constexpr int kCount = 3, kArrivals = kProducers + 1, kReleases = kConsumers / 32; // as in NumberStages
  static constexpr int kNarrowDepth = 256, kWideDepth = 128;
  static constexpr int kRawBytes = kProducers * 16;

  static constexpr __device__ int depth(bool isNarrow) { return isNarrow ? kNarrowDepth : kWideDepth; }
  static constexpr __device__ int weightRows(bool isNarrow) { return isNarrow ? kBoxRows : 2 * kBoxRows; }
  static constexpr __device__ int scalesAt(bool isNarrow) { return weightRows(isNarrow) * depth(isNarrow) / 2; }
  static constexpr __device__ int rawAt(bool isNarrow) { return scalesAt(isNarrow) + weightRows(isNarrow) * depth(isNarrow) / kScaleBlock * 4; }
  static constexpr __device__ int rowsAt(bool isNarrow) { return rawAt(isNarrow) + kRawBytes; }

  static constexpr int kBytes = 2 * kBoxRows * (kWideDepth / 2 + kWideDepth / kScaleBlock * 4) + kRawBytes + kMostRows * kWideDepth * 2;
};
static_assert(kBoxRows * (CodesStages::kNarrowDepth / 2 + CodesStages::kNarrowDepth / kScaleBlock * 4) + CodesStages::kRawBytes +
                      kNarrowRows * CodesStages::kNarrowDepth * 2 <=
                  CodesStages::kBytes,
              "a stage of a narrow tile is no larger");
static_assert(CodesStages::kBytes % kAlignment == 0, "stages begin where tiles may");

// Where a chunk of sixteen bytes lies, of rows of so many chunks: those of eight rows in different banks. Eight rows on it is eight rows' bytes on.
template <int kChunks> __device__ uint32_t packedChunkAt(int row, int chunk) {
  return (row * kChunks * 16 | (row / (8 / kChunks) & (kChunks - 1)) * 16) ^ chunk * 16;
}

__device__ inline uint4 loadShared(uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "r"(from));
  return value;
}

__device__ inline uint2 loadSharedPair(uint32_t from) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(from));
  return value;
}

__device__ inline void storeShared(uint32_t to, const uint4 &value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}

//===--- the warpgroup that brings ------------------------------------------------------------------===//

// Stages that are on their way when the one before them is told.
constexpr int kAhead = 1;
static_assert(kAhead + 1 < CodesStages::kCount, "consumers keep a stage until they have the next one");

template <int kBytes> __device__ void copyBytesAsync(uint32_t to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "n"(kBytes) : "memory");
}

// The copies of a thread since the last one are a group.
__device__ inline void closeCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last `kLeft` groups are there, for the thread itself and for those that it tells.
template <int kLeft> __device__ void awaitCopies() { asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory"); }

// What copyAsync does for memory of any alignment, of which the first `count` bytes are there.
__device__ inline void copyBytes(uint32_t to, const uint8_t *from, int64_t count) {
  uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (i < count) words[i / 4] |= static_cast<uint32_t>(from[i]) << i % 4 * 8;
  storeShared(to, make_uint4(words[0], words[1], words[2], words[3]));
}

// Four scales of NVFP4 in a word, or two of MXFP4 in its lower half, as pairs of bf16 for four times sixteen codes.
template <bool kNvfp4> __device__ uint4 expandScales(uint32_t word) {
  float scales[4];
  if constexpr (kNvfp4) {
    e4m3ToPair(word & 0xffff, &scales[0], &scales[1]);
    e4m3ToPair(word >> 16, &scales[2], &scales[3]);
  } else {
    scales[0] = scales[1] = moert__e8m0_to_f32(word & 0xff);
    scales[2] = scales[3] = moert__e8m0_to_f32(word >> 8 & 0xff);
  }
  uint32_t pairs[4];
  for (int i = 0; i < 4; ++i) pairs[i] = pairTo16Bits<MOERT__BF16>(scales[i], scales[i]);
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

class CodesProducer : public AnyProducer<CodesStages> {
public:
  __device__ CodesProducer(const Call &call, Ring<Stages> &ring, uint32_t stages, bool gated)
      : AnyProducer(call, ring, stages, gated), isNvfp4(call.codesFormat == MOERT__NVFP4), readsScales(call.readsScales) {}

  __device__ void bring(const Tile &tile) {
    if (tile.isNarrow)
      bringTile<true>(tile);
    else
      bringTile<false>(tile);
  }

  // Behind the last tile.
  __device__ void finish() {
    openStage(Tile{}, true, 0);
    awaitCopies<0>();
    for (const uint32_t last = filled + 1; told < last;) tell();
  }

private:
  template <bool kNarrow> __device__ void bringTile(const Tile &tile) {
    if (call.isMapped)
      bringTile<kNarrow, true>(tile);
    else
      bringTile<kNarrow, false>(tile);
  }

  template <bool kNarrow, bool kMapped> __device__ void bringTile(const Tile &tile) {
    constexpr int kDepth = Stages::depth(kNarrow), kScaleRows = Stages::weightRows(kNarrow) / kProducers;
    const uint8_t *scales[kScaleRows];
#pragma unroll
    for (int j = 0; j < kScaleRows; ++j)
      scales[j] = call.codesScales + weightRowOf(call, tile, j * kProducers + static_cast<int>(threadIdx.x), gated) * (call.depth >> blockShift());
    const TileRows<kNarrow ? kNarrowRows : kMostRows> rows(call, tile);
    const int64_t count = stagesOf<Stages>(call, kNarrow);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t depth = i * kDepth;
      const uint32_t stage = openStage(tile, i == 0, kMapped ? Stages::scalesAt(kNarrow) : 0);
      if constexpr (!kMapped)
        copyCodes<kNarrow>(tile, stage, depth);
      else if (threadIdx.x == 0)
        loadBox(kNarrow ? call.map : call.wideMap, tile, 0, gated, depth / 2, stage, &ring.full[filled % Stages::kCount]);
#pragma unroll
      for (int j = 0; j < kScaleRows; ++j) bringScales<kNarrow>(stage + Stages::rawAt(kNarrow), j, scales[j], depth);
      rows.template bring<kMapped, kDepth>(stage + Stages::rowsAt(kNarrow), depth);
      closeStage(kNarrow);
    }
  }

  template <bool kNarrow> __device__ void copyCodes(const Tile &tile, uint32_t stage, int64_t depth) const {
    constexpr int kChunks = Stages::depth(kNarrow) / kChunkCodes, kRows = kProducers / kChunks; // weight rows at a time
    const int row = static_cast<int>(threadIdx.x) / kChunks, chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int64_t k = depth + chunk * kChunkCodes;
    for (int i = 0; i < Stages::weightRows(kNarrow); i += kRows) {
      const uint8_t *from = static_cast<const uint8_t *>(call.weights) + weightRowOf(call, tile, i + row, gated) * (call.depth / 2);
      copyBytes(stage + packedChunkAt<kChunks>(i + row, chunk), from + k / 2, (call.depth - k) / 2);
    }
  }

  __device__ int blockShift() const { return isNvfp4 ? 4 : 5; } // codes of a scale

  // A row's scales of a stage, to a place of the thread: as many as 16 bytes hold of a narrow stage, and of two rows of a wide one.
  template <bool kNarrow> __device__ void bringScales(uint32_t raw, int number, const uint8_t *row, int64_t depth) {
    constexpr int kMost = Stages::depth(kNarrow) / kScaleBlock;
    const uint32_t to = raw + threadIdx.x * 16 + number * 8;
    const int64_t first = depth >> blockShift();
    if (!readsScales)
      gatherScales<kMost>(to, row + first, (call.depth >> blockShift()) - first);
    else if (isNvfp4)
      copyBytesAsync<kMost>(to, row + first);
    else
      copyBytesAsync<kMost / 2>(to, row + first);
  }

  // Of any alignment, of which `left` are there. Those behind a stage's are not used.
  template <int kMost> __device__ static void gatherScales(uint32_t to, const uint8_t *from, int64_t left) {
    uint32_t words[kMost / 4] = {};
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (i < left) words[i / 4] |= static_cast<uint32_t>(from[i]) << i % 4 * 8;
#pragma unroll
    for (int i = 0; i < kMost / 4; ++i) asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(words[i]) : "memory");
  }

  __device__ void closeStage(bool isNarrow) {
    closeCopies();
    kinds = kinds << 1 | static_cast<uint32_t>(isNarrow);
    ++filled;
    if (filled <= told + kAhead) return;
    awaitCopies<kAhead>();
    tell();
  }

  // The oldest stage that has not been told, whose copies by this thread are there.
  __device__ void tell() {
    if (told < filled) {
      const uint32_t stage = stages + told % Stages::kCount * Stages::kBytes;
      const bool isNarrow = kinds >> (filled - 1 - told) & 1;
      if (isNvfp4)
        isNarrow ? expandStage<true, true>(stage) : expandStage<true, false>(stage);
      else
        isNarrow ? expandStage<false, true>(stage) : expandStage<false, false>(stage);
    }
    bulk::arrive(&ring.full[told % Stages::kCount]);
    ++told;
  }

  template <bool kNvfp4, bool kNarrow> __device__ void expandStage(uint32_t stage) const {
    constexpr int kScaleRows = Stages::weightRows(kNarrow) / kProducers, kWords = Stages::depth(kNarrow) / kScaleBlock / 4; // of a row
    const int thread = static_cast<int>(threadIdx.x);
    const uint4 raw = loadShared(stage + Stages::rawAt(kNarrow) + threadIdx.x * 16);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int row = 0; row < kScaleRows; ++row)
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const uint32_t word = kNvfp4 ? words[row * 2 + i] : words[row * 2 + i / 2] >> i % 2 * 16;
        storeShared(stage + Stages::scalesAt(kNarrow) + packedChunkAt<kWords>(row * kProducers + thread, i), expandScales<kNvfp4>(word));
      }
  }

  const bool isNvfp4, readsScales;
  uint32_t told = 0;
  uint32_t kinds = 0; // of the last stages, a bit each: whether it is narrow
};

//===--- the warpgroups that multiply ---------------------------------------------------------------===//

// It stays in front of the fence behind which the tensor cores read the product.
__device__ inline uint32_t multiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// The two numbers of every byte of codes, as a pair of bf16: once for each lane of a warp, in its own bank.
constexpr int kLanes = 32;
using CodesTable = uint32_t[256][kLanes];

// Of the block.
__device__ inline CodesTable &codesTable() {
  __shared__ CodesTable table;
  return table;
}

// In front of the block's barrier.
__device__ inline void fillTable() {
  for (int i = static_cast<int>(threadIdx.x); i < 256 * kLanes; i += kWarpgroupThreads) {
    const uint32_t codes = static_cast<uint32_t>(i / kLanes);
    codesTable()[codes][i % kLanes] = pairTo16Bits<MOERT__BF16>(moert__e2m1_to_f32(codes & 15), moert__e2m1_to_f32(codes >> 4));
  }
}

class CodesConsumer : public AnyConsumer<CodesStages, CodesConsumer> {
public:
  using AnyConsumer::AnyConsumer;

  template <int kRows> __device__ void multiplyNarrow(Sums &sums) { multiplyStages<kRows, true>(sums); }
  template <int kRows> __device__ void multiplyWide(Sums &sums) { multiplyStages<kRows, false>(sums); }

private:
  // What a thread multiplies of 64 weight rows in so many steps, before scales are applied.
  template <int kSteps> struct Decoded {
    uint32_t pairs[kSteps][4];
    uint32_t scales[kSteps][2]; // of a row, and of that eight behind it
  };

  // A unit is some chunks deep and has 64 weight rows. Codes of the next are decoded while this one is multiplied, all but their scales: what the
  // tensor cores read may not change meanwhile.
  template <int kRows, bool kNarrow> __device__ void multiplyStages(Sums &sums) {
    constexpr int kBlocks = kNarrow ? 1 : 2, kUnitChunks = 2, kSteps = kUnitChunks * kChunkSteps;
    constexpr int kUnits = Stages::depth(kNarrow) / (kUnitChunks * kChunkCodes) * kBlocks;
    uint32_t stage = awaitStage(0);
    Decoded<kSteps> decoded;
    decode<kNarrow>(stage, 0, 0, &decoded);
    for (int64_t left = stagesOf<Stages>(call, kNarrow); left > 0; --left) {
      uint32_t next = stage;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        uint32_t numbers[kSteps][4];
        scale(decoded, numbers);
        multiply<kRows, kNarrow>(sums[unit % kBlocks], numbers, stage, unit / kBlocks * kSteps);
        __syncwarp(); // so that what follows does not get between the products
        if (unit + 1 < kUnits) {
          decode<kNarrow>(stage, (unit + 1) % kBlocks, (unit + 1) / kBlocks * kUnitChunks, &decoded);
        } else if (left > 1) {
          next = awaitStage(1);
          decode<kNarrow>(next, 0, 0, &decoded);
        }
        wgmma::await<0>();
      }
      release();
      stage = next;
    }
  }

  template <bool kNarrow, int kSteps> __device__ void decode(uint32_t stage, int block, int firstChunk, Decoded<kSteps> *decoded) const {
    constexpr int kChunks = Stages::depth(kNarrow) / kChunkCodes;
    const int row = (warpgroup * (kNarrow ? 1 : 2) + block) * 64 + warp % 4 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kSteps / kChunkSteps; ++i) {
        const int chunk = firstChunk + i, step = i * kChunkSteps;
        const uint4 codes = loadShared(stage + packedChunkAt<kChunks>(row, chunk) + half * 8 * kChunks * 16);
        const uint2 scales =
            loadSharedPair(stage + Stages::scalesAt(kNarrow) + packedChunkAt<kChunks / 2>(row, chunk / 2) + half * 8 * kChunks * 8 + chunk % 2 * 8);
        decoded->pairs[step][half] = pairOf(codes.x);
        decoded->pairs[step][2 + half] = pairOf(codes.y);
        decoded->pairs[step + 1][half] = pairOf(codes.z);
        decoded->pairs[step + 1][2 + half] = pairOf(codes.w);
        decoded->scales[step][half] = scales.x;
        decoded->scales[step + 1][half] = scales.y;
      }
  }

  // Of the thread's two of eight codes: those whose byte is its place in a group of four lanes.
  __device__ uint32_t pairOf(uint32_t codes) const {
    const uint32_t kEntry = sizeof(uint32_t[kLanes]), kEntries = 255 * kEntry;
    const uint32_t entry = (__funnelshift_r(codes, codes, rotation) & kEntries) | laneOffset;
    return *reinterpret_cast<const uint32_t *>(reinterpret_cast<const char *>(codesTable()) + entry);
  }

  template <int kSteps> __device__ void scale(const Decoded<kSteps> &decoded, uint32_t (&numbers)[kSteps][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) numbers[step][i] = multiplyPairs(decoded.pairs[step][i], decoded.scales[step][i % 2]);
  }

  template <int kRows, bool kNarrow, int kSteps>
  __device__ void multiply(float (&sums)[kMostRows / 8][4], const uint32_t (&numbers)[kSteps][4], uint32_t stage, int before) const {
    const int tile = Stages::rowsAt(kNarrow) + before / kTileSteps * (kNarrow ? kNarrowRows : kMostRows) * wgmma::kTileRowBytes;
    wgmma::begin();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      wgmma::RegisterProduct<MOERT__BF16, kRows>::add(sums, numbers[step], wgmma::describe(stage, tile, before % kTileSteps + step));
    wgmma::commit();
  }

  static constexpr int kTileSteps = wgmma::kTileDepth / wgmma::kStep, kChunkSteps = kChunkCodes / wgmma::kStep;

  const uint32_t rotation = static_cast<uint32_t>(lane % 4 * 8 - 7) & 31, laneOffset = static_cast<uint32_t>(lane * 4); // of pairOf
};

//===--- the kernel -------------------------------------------------------------------------------===//

template <Activation kActivation>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) sm90_moe_grouped_matmul_codes(const __grid_constant__ Call call) {
  fillTable();
  multiplyTiles<CodesProducer, CodesConsumer>(call, isGated<kActivation>(call));
}

} // namespace grouped_matmul

#endif

//===- sm90_codes.cuh - moe.grouped_matmul with weights of 4 bits by warpgroups -------------------------===//
//
// Tiles and warpgroups are those of sm90_wgmma.cuh. Codes come to a stage as they are in memory, and become numbers in the registers of those who
// multiply: code times scale, which bf16 holds, so that a product has the bits of the one with the same weights in bf16. Shared memory is written
// and read for 4 bits a weight, not for 16.
//
//   wide tile     a stage is 64 deep
//   narrow tile   a stage is 256 deep
//
// Scales become pairs of bf16 on the way, by the thread that has copied them: all others have what they multiply by without a conversion.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_SM90_CODES_CUH
#define MOE_KERNELS_GROUPED_MATMUL_SM90_CODES_CUH

#include "kernels/moe_grouped_matmul/sm90_wgmma.cuh"

namespace grouped_matmul {

constexpr int kScaleBlock = 16; // codes that have a scale in a stage, whatever the format
constexpr int kChunkCodes = 32; // of sixteen bytes

// A stage is codes, scales for every sixteen of them, scales as they are in memory, and rows.
struct CodesStages {
  static constexpr int kCount = 6, kArrivals = kProducers + 1; // as in NumberStages
  static constexpr int kNarrowDepth = 256, kWideDepth = wgmma::kTileDepth;
  static constexpr int kRawBytes = kProducers * 16;

  static constexpr __device__ int depth(bool isNarrow) { return isNarrow ? kNarrowDepth : kWideDepth; }
  static constexpr __device__ int weightRows(bool isNarrow) { return isNarrow ? kBoxRows : 2 * kBoxRows; }
  static constexpr __device__ int scalesAt(bool isNarrow) { return weightRows(isNarrow) * depth(isNarrow) / 2; }
  static constexpr __device__ int rawAt(bool isNarrow) { return scalesAt(isNarrow) + weightRows(isNarrow) * depth(isNarrow) / kScaleBlock * 4; }
  static constexpr __device__ int rowsAt(bool isNarrow) { return rawAt(isNarrow) + kRawBytes; }

  static constexpr int kBytes = kBoxRows * (kNarrowDepth / 2 + kNarrowDepth / kScaleBlock * 4) + kRawBytes + kNarrowRows * kNarrowDepth * 2;
};
static_assert(2 * kBoxRows * (CodesStages::kWideDepth / 2 + CodesStages::kWideDepth / kScaleBlock * 4) + CodesStages::kRawBytes +
                      kMostRows * CodesStages::kWideDepth * 2 <=
                  CodesStages::kBytes,
              "a stage of a wide tile is no larger");
static_assert(CodesStages::kBytes % kAlignment == 0, "stages begin where tiles may");

// Where a chunk of sixteen bytes lies, of rows of so many chunks: those of eight rows in different banks.
template <int kChunks> __device__ uint32_t packedChunkAt(uint32_t rows, int row, int chunk) {
  return rows + (row * kChunks + (chunk ^ (row / (8 / kChunks) & (kChunks - 1)))) * 16;
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
constexpr int kAhead = 4;
static_assert(kAhead < CodesStages::kCount, "the oldest of them is told before its place is awaited");

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
__device__ inline uint4 expandScales(bool isNvfp4, uint32_t word) {
  float scales[4];
  if (isNvfp4) {
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

// Scales of weight rows of a tile that lie a multiple of sixteen behind a place: rows behind the last repeat it, as in weightRowOf.
class RowsBehind {
public:
  __device__ RowsBehind(const Call &call, const Tile &tile, int place, bool gated, const void *data, int64_t bytes)
      : data(static_cast<const uint8_t *>(data)), bytes(bytes), gated(gated) {
    const int64_t column = tile.column + (gated ? place / 16 * 8 + place % 8 : place), left = call.outColumns - 1 - column;
    first = tile.group * call.columns + (gated && place % 16 >= 8 ? call.outColumns : 0) + column;
    most = static_cast<int>(left < 2 * kBoxRows ? left : 2 * kBoxRows);
  }

  __device__ const uint8_t *at(int places) const {
    const int columns = gated ? places / 2 : places;
    return data + (first + (columns < most ? columns : most)) * bytes;
  }

private:
  const uint8_t *const data;
  const int64_t bytes; // of a row
  const bool gated;
  int64_t first;
  int most; // columns to the last, of the gate or of the up projection
};

class CodesProducer : public AnyProducer<CodesStages> {
public:
  __device__ CodesProducer(const Call &call, Ring<Stages> &ring, uint32_t stages, bool gated)
      : AnyProducer(call, ring, stages, gated), isNvfp4(call.codesFormat == MOERT__NVFP4) {}

  __device__ void bring(const Tile &tile) {
    if (tile.isNarrow)
      bringTile<true>(tile);
    else
      bringTile<false>(tile);
  }

  // Behind the last tile.
  __device__ void finish() {
    openStage(Tile{}, 0);
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
    const RowsBehind scales(call, tile, static_cast<int>(threadIdx.x), gated, call.codesScales, call.depth / blockSize());
    const TileRows<kNarrow ? kNarrowRows : kMostRows> rows(call, tile);
    const int64_t count = stagesOf<Stages>(call, kNarrow);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t depth = i * Stages::depth(kNarrow);
      const uint32_t stage = openStage(tile, kMapped ? Stages::scalesAt(kNarrow) : 0);
      if constexpr (!kMapped)
        copyCodes<kNarrow>(tile, stage, depth);
      else if (threadIdx.x == 0)
        loadBox(kNarrow ? call.map : call.wideMap, tile, 0, gated, depth / 2, stage, &ring.full[filled % Stages::kCount]);
#pragma unroll
      for (int j = 0; j < (kNarrow ? 1 : 2); ++j) bringScales<kNarrow>(stage + Stages::rawAt(kNarrow), j, scales.at(j * kBoxRows), depth);
      rows.template bring<kMapped>(stage + Stages::rowsAt(kNarrow), depth, Stages::depth(kNarrow));
      closeStage(kNarrow, depth);
    }
  }

  template <bool kNarrow> __device__ void copyCodes(const Tile &tile, uint32_t stage, int64_t depth) const {
    constexpr int kChunks = Stages::depth(kNarrow) / kChunkCodes, kRows = kProducers / kChunks; // weight rows at a time
    const int row = static_cast<int>(threadIdx.x) / kChunks, chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int64_t k = depth + chunk * kChunkCodes;
    for (int i = 0; i < Stages::weightRows(kNarrow); i += kRows) {
      const uint8_t *from = static_cast<const uint8_t *>(call.weights) + weightRowOf(call, tile, i + row, gated) * (call.depth / 2);
      copyBytes(packedChunkAt<kChunks>(stage, i + row, chunk), from + k / 2, (call.depth - k) / 2);
    }
  }

  __device__ int blockSize() const { return isNvfp4 ? 16 : 32; }

  // A row's scales of a stage, to a place of the thread; of a wide stage two rows', a word each, of which MXFP4 has a half for every other stage.
  template <bool kNarrow> __device__ void bringScales(uint32_t raw, int number, const uint8_t *row, int64_t depth) {
    const uint32_t to = raw + threadIdx.x * 16 + number * 4;
    const int64_t first = depth / blockSize();
    if (!call.readsScales)
      gatherScales<kNarrow>(to, row + first, call.depth / blockSize() - first, depth);
    else if (!kNarrow)
      copyBytesAsync<4>(to, row + first / 4 * 4);
    else if (isNvfp4)
      copyBytesAsync<16>(to, row + first);
    else
      copyBytesAsync<8>(to, row + first);
  }

  // Of any alignment, of which `left` are there.
  template <bool kNarrow> __device__ void gatherScales(uint32_t to, const uint8_t *from, int64_t left, int64_t depth) {
    const int most = Stages::depth(kNarrow) / blockSize();
    if constexpr (kNarrow) {
      copyBytes(to, from, left < most ? left : most);
    } else {
      uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (i < most && i < left) word |= static_cast<uint32_t>(from[i]) << (i * 8 + shiftOf(depth));
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
    }
  }

  // Of the scales of a wide stage in their word.
  __device__ int shiftOf(int64_t depth) const { return isNvfp4 || depth / Stages::kWideDepth % 2 == 0 ? 0 : 16; }

  __device__ void closeStage(bool isNarrow, int64_t depth) {
    closeCopies();
    kinds = kinds << 2 | (isNarrow ? 1 : 0) | (shiftOf(depth) > 0 ? 2 : 0);
    ++filled;
    if (filled <= told + kAhead) return;
    awaitCopies<kAhead>();
    tell();
  }

  // The oldest stage that has not been told, whose copies by this thread are there.
  __device__ void tell() {
    if (told < filled) {
      const uint32_t kind = kinds >> 2 * (filled - 1 - told) & 3, stage = stages + told % Stages::kCount * Stages::kBytes;
      if (kind & 1)
        expandNarrow(stage);
      else
        expandWide(stage, kind & 2 ? 16 : 0);
    }
    bulk::arrive(&ring.full[told % Stages::kCount]);
    ++told;
  }

  __device__ void expandNarrow(uint32_t stage) const {
    const uint4 raw = loadShared(stage + Stages::rawAt(true) + threadIdx.x * 16);
    const uint32_t words[4] = {raw.x, isNvfp4 ? raw.y : raw.x >> 16, isNvfp4 ? raw.z : raw.y, isNvfp4 ? raw.w : raw.y >> 16};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      storeShared(packedChunkAt<4>(stage + Stages::scalesAt(true), static_cast<int>(threadIdx.x), i), expandScales(isNvfp4, words[i]));
  }

  __device__ void expandWide(uint32_t stage, int shift) const {
    const uint4 raw = loadShared(stage + Stages::rawAt(false) + threadIdx.x * 16);
    const uint32_t words[2] = {raw.x >> shift, raw.y >> shift};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      storeShared(packedChunkAt<1>(stage + Stages::scalesAt(false), i * kBoxRows + static_cast<int>(threadIdx.x), 0),
                  expandScales(isNvfp4, words[i]));
  }

  const bool isNvfp4;
  uint32_t told = 0;
  uint32_t kinds = 0; // of the last stages, two bits each: narrow; scales are in the upper half of a word
};

//===--- the warpgroups that multiply ---------------------------------------------------------------===//

// What a thread multiplies of 64 weight rows, as deep as the codes of a chunk.
constexpr int kSteps = kChunkCodes / wgmma::kStep;
using Numbers = uint32_t[kSteps][4];

__device__ inline uint32_t multiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// The numbers that stand for a thread's codes, without scales, in pairs. Of the eight codes of each of two words it has a byte, which `place`
// selects.
//
// The three lower bits of a code, where bf16 has the end of the exponent and the beginning of the fraction, are 2^-126 times its magnitude.
__device__ inline void decodePairs(uint32_t firstWord, uint32_t secondWord, uint32_t place, uint32_t *first, uint32_t *second) {
  const uint32_t kMagnitude = 0x01c001c0, kSign = 0x80008000, kFactor = 0x7e807e80;
  const uint32_t bytes = __byte_perm(firstWord, secondWord, place); // both, and both again
  const uint32_t codes = __byte_perm(bytes << 4, bytes, 0x7610);    // even codes in the lower half, odd ones in the upper
  *first = multiplyPairs((codes >> 6 & kMagnitude) | (codes & kSign), kFactor);
  *second = multiplyPairs((codes << 2 & kMagnitude) | (codes << 8 & kSign), kFactor);
}

class CodesConsumer : public AnyConsumer<CodesStages, CodesConsumer> {
public:
  using AnyConsumer::AnyConsumer;

  template <int kRows> __device__ void multiplyNarrow(Sums &sums) { multiplyStages<kRows, true>(sums); }
  template <int kRows> __device__ void multiplyWide(Sums &sums) { multiplyStages<kRows, false>(sums); }

private:
  // Before scales are applied.
  struct Decoded {
    Numbers numbers;
    uint32_t scales[kSteps][2]; // of a row, and of that eight behind it
  };

  // A unit is a chunk deep and has 64 weight rows. Codes of the next are decoded while this one is multiplied, all but their scales: what the tensor
  // cores read may not change meanwhile.
  template <int kRows, bool kNarrow> __device__ void multiplyStages(Sums &sums) {
    constexpr int kBlocks = kNarrow ? 1 : 2, kUnits = Stages::depth(kNarrow) / kChunkCodes * kBlocks;
    uint32_t stage = awaitStage(0);
    Decoded decoded;
    decode<kNarrow>(stage, 0, &decoded);
    for (int64_t left = stagesOf<Stages>(call, kNarrow); left > 0; --left) {
      uint32_t next = stage;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        Numbers numbers;
        scale(decoded, numbers);
        multiply<kRows, kNarrow>(sums[unit % kBlocks], numbers, stage, unit / kBlocks);
        if (unit + 1 < kUnits) {
          decode<kNarrow>(stage, unit + 1, &decoded);
        } else if (left > 1) {
          next = awaitStage(1);
          decode<kNarrow>(next, 0, &decoded);
        }
        wgmma::await<0>();
      }
      release();
      stage = next;
    }
  }

  template <bool kNarrow> __device__ void decode(uint32_t stage, int unit, Decoded *decoded) const {
    constexpr int kBlocks = kNarrow ? 1 : 2, kChunks = Stages::depth(kNarrow) / kChunkCodes;
    const int chunk = unit / kBlocks, first = (warpgroup * kBlocks + unit % kBlocks) * 64 + warp % 4 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + half * 8;
      const uint4 codes = loadShared(packedChunkAt<kChunks>(stage, row, chunk));
      const uint2 scales = loadSharedPair(packedChunkAt<kChunks / 2>(stage + Stages::scalesAt(kNarrow), row, chunk / 2) + chunk % 2 * 8);
      decodePairs(codes.x, codes.y, place, &decoded->numbers[0][half], &decoded->numbers[0][2 + half]);
      decodePairs(codes.z, codes.w, place, &decoded->numbers[1][half], &decoded->numbers[1][2 + half]);
      decoded->scales[0][half] = scales.x;
      decoded->scales[1][half] = scales.y;
    }
  }

  __device__ void scale(const Decoded &decoded, Numbers &numbers) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) numbers[step][i] = multiplyPairs(decoded.numbers[step][i], decoded.scales[step][i % 2]);
  }

  template <int kRows, bool kNarrow>
  __device__ void multiply(float (&sums)[kMostRows / 8][4], const Numbers &numbers, uint32_t stage, int chunk) const {
    const int before = chunk * kSteps; // steps
    const uint32_t tile = stage + Stages::rowsAt(kNarrow) + before / kTileSteps * kNarrowRows * wgmma::kTileRowBytes;
    wgmma::begin();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      wgmma::RegisterProduct<MOERT__BF16, kRows>::add(sums, numbers[step], wgmma::describe(tile, before % kTileSteps + step));
    wgmma::commit();
  }

  static constexpr int kTileSteps = wgmma::kTileDepth / wgmma::kStep;

  // For __byte_perm: the byte of two words that has the thread's codes, that of the second below that of the first, twice.
  const uint32_t place = static_cast<uint32_t>(lane % 4) * 0x1111 + 0x0404;
};

//===--- the kernel -------------------------------------------------------------------------------===//

// Of a name that the profiler's list of kernels shows beside that of numbers.
template <Activation kActivation>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) sm90_moe_grouped_matmul_codes(const __grid_constant__ Call call) {
  multiplyTiles<CodesProducer, CodesConsumer>(call, isGated<kActivation>(call));
}

} // namespace grouped_matmul

#endif

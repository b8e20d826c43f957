//===- kernels.cuh - moe.quantize on devices -----------------------------------------------------------===//
//
// A thread takes tiles of 16 numbers, 8 of f32, and stores their codes at once; the tiles of a block that shares a scale are neighbouring lanes'.
// docs/formats.md and lib/reference/moe_quantize.c say what the bits are.
//
//   quantizeBlocks  scales of blocks, of one that was found before, or none
//   quantizeRows    a scale for each row: a thread block keeps its row in registers
//   findAmax        the largest magnitudes of all rows, one for each thread block
//
// kFormat -1 takes the format from the call, and any addresses: the generic kernel. Else rows of numbers and of codes are whole vectors.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_QUANTIZE_KERNELS_CUH
#define MOE_KERNELS_MOE_QUANTIZE_KERNELS_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/formats.cuh"
#include "kernels/common/scales.cuh"

static const int kAnyFormat = -1;
static const int kRowThreads = 512, kAmaxThreads = 1024; // of a block of quantizeRows and of findAmax, at most

struct QuantizeCall {
  moert__quantized_call tensors;
  bool even, fast;
  unsigned tileColumns; // thread blocks side by side over a row
  unsigned dataBlocks;  // thread blocks that quantise; those behind them zero padding
  float *amaxes;        // of findAmax; NULL: none
  int numAmaxes;
};

template <moert__format kType> __host__ __device__ constexpr int tileSize() { return kType == MOERT__F32 ? 8 : 16; }

//===--- tiles ------------------------------------------------------------------------------------------===//

// A tile as it lies in memory, so that the next one can be on its way. What lies behind the last row or the row's end is 0.
template <moert__format kType, bool kVectors> struct Tile {
  static constexpr int kCount = tileSize<kType>();
  float numbers[kCount];

  // `column` is that of the first number.
  __device__ void load(const moert__quantized_call &call, int64_t row, int64_t column) {
    const int64_t first = row * call.numbers_stride + column, end = row < call.tokens ? call.hidden : 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = column + i < end ? moert__load(kType, call.numbers, first + i) : 0.0f;
  }

  // The largest magnitude, as moert__amax finds it.
  __device__ float unpack(int format, float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = numbers[i];
    return tileAmax(format, x);
  }
};

template <moert__format kType> struct Tile<kType, true> {
  static constexpr int kCount = tileSize<kType>(), kBytes = kType == MOERT__F32 ? 4 : 2, kParts = kCount * kBytes / 16;
  uint4 parts[kParts];

  __device__ void load(const moert__quantized_call &call, int64_t row, int64_t column) {
    const char *first = static_cast<const char *>(call.numbers) + (row * call.numbers_stride + column) * kBytes;
    const bool isThere = row < call.tokens && column < call.hidden;
#pragma unroll
    for (int i = 0; i < kParts; ++i) parts[i] = isThere ? __ldg(reinterpret_cast<const uint4 *>(first) + i) : make_uint4(0, 0, 0, 0);
  }

  __device__ float unpack(int format, float (&x)[kCount]) const {
    uint32_t words[4 * kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      words[4 * i] = parts[i].x, words[4 * i + 1] = parts[i].y, words[4 * i + 2] = parts[i].z, words[4 * i + 3] = parts[i].w;
    if constexpr (kType == MOERT__F32) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = moert__float(words[i]);
      return tileAmax(format, x);
    } else {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) pairFrom16Bits<kType>(words[i], &x[2 * i], &x[2 * i + 1]);
      return pairsAmax<kType>(format, words);
    }
  }
};

// The tiles of a thread: of one column, in rows `step` apart. A thread block is tiles side by side (x) by rows (y), in whole warps.
struct Walk {
  int64_t column, row, step;
};

template <moert__format kType> __device__ inline Walk walkOf(const QuantizeCall &call) {
  return {(static_cast<int64_t>(blockIdx.x % call.tileColumns) * blockDim.x + threadIdx.x) * tileSize<kType>(),
          static_cast<int64_t>(blockIdx.x / call.tileColumns) * blockDim.y + threadIdx.y,
          static_cast<int64_t>(call.dataBlocks / call.tileColumns) * blockDim.y};
}

// The first kWords words of codes, which are those of `count` bytes.
template <int kWords, bool kVectors> __device__ inline void storeWords(uint8_t *to, const uint32_t *words, int64_t count) {
  if constexpr (!kVectors) {
    for (int i = 0; i < 4 * kWords && i < count; ++i) to[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
  } else if constexpr (kWords == 4) {
    *reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2 *>(to) = make_uint2(words[0], words[1]);
  } else {
    *reinterpret_cast<uint32_t *>(to) = words[0];
  }
}

template <int kCount, bool kVectors>
__device__ inline void storeCodes(const moert__quantized_call &call, int format, int64_t row, int64_t column, const uint32_t *words) {
  uint8_t *codes = const_cast<uint8_t *>(call.codes) + row * call.codes_stride;
  if (moert__is_packed(format))
    storeWords<kCount / 8, kVectors>(codes + column / 2, words, (call.hidden - column) / 2);
  else
    storeWords<kCount / 4, kVectors>(codes + column, words, call.hidden - column);
}

//===--- scales of blocks -------------------------------------------------------------------------------===//

// Over the threads of a block, all of which call it. Numbers that are not negative compare as their bits do.
__device__ inline float threadsAmax(float amax) {
  __shared__ uint32_t largest[32];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / 32;
  const uint32_t bits = __reduce_max_sync(~0u, moert__bits(amax));
  if (thread % 32 == 0) largest[thread / 32] = bits;
  __syncthreads();
  return moert__float(__reduce_max_sync(~0u, thread % 32 < warps ? largest[thread % 32] : 0));
}

// The largest of what findAmax found.
__device__ inline float largestOf(const float *amaxes, int count) {
  float amax = 0.0f;
  for (unsigned i = threadIdx.y * blockDim.x + threadIdx.x; i < static_cast<unsigned>(count); i += blockDim.x * blockDim.y)
    amax = fmaxf(amax, amaxes[i]);
  return threadsAmax(amax);
}

// What fp8_tensor makes its codes with.
struct TensorScale {
  bool isGiven;      // G: codes are of x * G, and there is no scale to store
  float value, amax; // G, or the scale and what it was made of
};

__device__ inline TensorScale tensorScaleOf(const QuantizeCall &call, const QuantizeOptions &options) {
  if (!call.amaxes) return {true, options.global, 0.0f};
  const float amax = largestOf(call.amaxes, call.numAmaxes), scale = moert__fp8_scale(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) storeScale(call.tensors, 0, moert__bits(scale));
  return {false, scale, amax};
}

template <int kCount> __device__ inline void encodeOfTensor(const TensorScale &scale, const float (&x)[kCount], uint32_t (&words)[kCount / 4]) {
  if (scale.isGiven)
    encodeE4M3(x, scale.value, words);
  else
    encodeE4M3Divided(x, scale.amax, scale.value, words);
}

__device__ inline QuantizeOptions optionsOf(const QuantizeCall &call, int format) {
  const bool has = (format == MOERT__NVFP4 || format == MOERT__FP8_TENSOR) && call.tensors.global;
  const float global = has ? *call.tensors.global : 1.0f;
  return {global, __frcp_rn(global), call.even, call.fast, call.tensors.mega != 0};
}

// The row that a walk comes to: behind findAmax from the last to the first, because what it read last is still in the cache.
__device__ inline int64_t rowAt(const QuantizeCall &call, int format, int64_t walked) {
  const bool backwards = format == MOERT__FP8_TENSOR && call.amaxes && walked < call.tensors.tokens;
  return backwards ? call.tensors.tokens - 1 - walked : walked;
}

template <moert__format kType, int kFormat> __global__ void quantizeBlocks(QuantizeCall call) {
  constexpr int kCount = tileSize<kType>();
  constexpr bool kVectors = kFormat != kAnyFormat;
  const moert__quantized_call &tensors = call.tensors;
  const int format = kVectors ? kFormat : tensors.format, block = moert__block_size(format);
  if (blockIdx.x >= call.dataBlocks) {
    zeroPadding(tensors, blockIdx.x - call.dataBlocks, gridDim.x - call.dataBlocks, threadIdx.y * blockDim.x + threadIdx.x, blockDim.x * blockDim.y);
    return;
  }
  const Walk walk = walkOf<kType>(call);
  Tile<kType, kVectors> next;
  next.load(tensors, rowAt(call, format, walk.row), walk.column);
  const QuantizeOptions options = optionsOf(call, format);
  TensorScale tensorScale = {};
  if (!block) tensorScale = tensorScaleOf(call, options);
  const int64_t place = block ? moert__scale_offset(&tensors.grid, 0, walk.column / block) : 0;
  for (int64_t walked = walk.row; walked - threadIdx.y < tensors.tokens; walked += walk.step) {
    const int64_t row = rowAt(call, format, walked);
    float x[kCount];
    uint32_t words[kCount / 4], code = 0;
    const float own = next.unpack(format, x);
    next.load(tensors, rowAt(call, format, walked + walk.step), walk.column);
    if (block)
      code = quantizeTile(format, options, x, own, words);
    else
      encodeOfTensor(tensorScale, x, words);
    if (row >= tensors.tokens || walk.column >= tensors.hidden) continue;
    storeCodes<kCount, kVectors>(tensors, format, row, walk.column, words);
    if (block && walk.column % block == 0) storeScale(tensors, moert__scale_offset(&tensors.grid, row, 0) + place, code);
  }
}

//===--- scales of rows and of all ----------------------------------------------------------------------===//

// gridDim.y thread blocks for each row: each finds the scale of the whole row, and makes the codes of some warps' tiles. What does not fit into kHeld
// tiles a thread is read a second time.
template <moert__format kType, int kFormat> __global__ void __launch_bounds__(kRowThreads) quantizeRows(QuantizeCall call) {
  constexpr int kCount = tileSize<kType>(), kHeld = 32 / kCount;
  constexpr bool kVectors = kFormat != kAnyFormat;
  const moert__quantized_call &tensors = call.tensors;
  const int64_t row = blockIdx.x, first = static_cast<int64_t>(threadIdx.x) * kCount, step = static_cast<int64_t>(blockDim.x) * kCount;
  const int64_t end = row < tensors.tokens ? tensors.hidden : 0;
  Tile<kType, kVectors> held[kHeld], tile;
  float x[kCount], amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i].load(tensors, row, first + i * step);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) { amax = fmaxf(amax, held[i].unpack(MOERT__FP8_TOKEN, x)); }
  for (int64_t column = first + kHeld * step; column < end; column += step) {
    tile.load(tensors, row, column);
    amax = fmaxf(amax, tile.unpack(MOERT__FP8_TOKEN, x));
  }
  amax = threadsAmax(amax);
  const float scale = moert__fp8_scale(amax);
  if (threadIdx.x == 0 && blockIdx.y == 0) storeScale(tensors, row, moert__bits(scale));
  if (threadIdx.x / 32 % gridDim.y != blockIdx.y) return;
  uint32_t words[kCount / 4];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (first + i * step >= end) return;
    held[i].unpack(MOERT__FP8_TOKEN, x);
    encodeE4M3Divided(x, amax, scale, words);
    storeCodes<kCount, kVectors>(tensors, MOERT__FP8_TOKEN, row, first + i * step, words);
  }
  for (int64_t column = first + kHeld * step; column < end; column += step) {
    tile.load(tensors, row, column);
    tile.unpack(MOERT__FP8_TOKEN, x);
    encodeE4M3Divided(x, amax, scale, words);
    storeCodes<kCount, kVectors>(tensors, MOERT__FP8_TOKEN, row, column, words);
  }
}

template <moert__format kType, int kFormat> __global__ void __launch_bounds__(kAmaxThreads) findAmax(QuantizeCall call) {
  const Walk walk = walkOf<kType>(call);
  float amax = 0.0f;
#pragma unroll 4
  for (int64_t row = walk.row; row < call.tensors.tokens; row += walk.step) {
    Tile<kType, kFormat != kAnyFormat> tile;
    float x[tileSize<kType>()];
    tile.load(call.tensors, row, walk.column);
    amax = fmaxf(amax, tile.unpack(MOERT__FP8_TENSOR, x));
  }
  amax = threadsAmax(amax);
  if (threadIdx.x == 0 && threadIdx.y == 0) call.amaxes[blockIdx.x] = amax;
}

#endif

//===- kernels.cuh - moe.dequantize on devices ---------------------------------------------------------===//
//
// A thread takes tiles of 8 numbers, 4 of f32, and stores each at once. docs/formats.md and lib/reference/moe_dequantize.c say what the bits are.
//
// kFormat -1 takes the format from the call, and any addresses: the generic kernel. Else rows of numbers and of codes are whole vectors.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_DEQUANTIZE_KERNELS_CUH
#define MOE_KERNELS_MOE_DEQUANTIZE_KERNELS_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/formats.cuh"

static const int kAnyFormat = -1;

struct DequantizeCall {
  moert__quantized_call tensors;
  unsigned tileColumns; // thread blocks side by side over a row
};

template <moert__format kType> __host__ __device__ constexpr int tileSize() { return kType == MOERT__F32 ? 4 : 8; }

// The codes of a tile. Of packed formats the first word has those of the eight numbers that it is of; behind the row's end all are 0.
template <int kWords, bool kVectors>
__device__ inline void loadCodes(const moert__quantized_call &call, bool packed, int64_t row, int64_t column, uint32_t (&words)[kWords]) {
  const int64_t first = packed ? column / 8 * 4 : column, bytes = packed ? call.hidden / 2 : call.hidden;
  const uint8_t *codes = call.codes + row * call.codes_stride + first;
  if constexpr (!kVectors) {
    for (int i = 0; i < (packed ? 4 : 4 * kWords) && first + i < bytes; ++i) words[i / 4] |= static_cast<uint32_t>(codes[i]) << 8 * (i % 4);
  } else if (packed || kWords == 1) {
    words[0] = __ldg(reinterpret_cast<const uint32_t *>(codes));
  } else {
    const uint2 vector = __ldg(reinterpret_cast<const uint2 *>(codes));
    words[0] = vector.x, words[kWords - 1] = vector.y;
  }
}

template <moert__format kType>
__device__ inline void decodeTile(const moert__quantized_call &call, int format, float factor, int64_t column,
                                  const uint32_t (&words)[tileSize<kType>() / 4], float (&x)[tileSize<kType>()]) {
  if constexpr (kType == MOERT__F32)
    dequantizeHalf(format, factor, call.mega, words[0], column % 8 / 4, x);
  else
    dequantizeTile(format, factor, call.mega, words, x);
}

template <moert__format kType, bool kVectors>
__device__ inline void storeNumbers(const moert__quantized_call &call, int64_t row, int64_t column, const float (&x)[tileSize<kType>()]) {
  const int64_t first = row * call.numbers_stride + column;
  void *numbers = const_cast<void *>(call.numbers);
  if constexpr (!kVectors)
    for (int i = 0; i < tileSize<kType>() && column + i < call.hidden; ++i) moert__store(kType, numbers, first + i, x[i]);
  else if constexpr (kType == MOERT__F32)
    *reinterpret_cast<float4 *>(static_cast<float *>(numbers) + first) = make_float4(x[0], x[1], x[2], x[3]);
  else
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(numbers) + first) = make_uint4(
        pairTo16Bits<kType>(x[0], x[1]), pairTo16Bits<kType>(x[2], x[3]), pairTo16Bits<kType>(x[4], x[5]), pairTo16Bits<kType>(x[6], x[7]));
}

// The scale's code, or the bits of an f32 scale; of fp8_tensor with G none.
__device__ inline uint32_t loadScale(const moert__quantized_call &call, int format, int64_t row, int64_t place) {
  if (format == MOERT__FP8_TENSOR) return call.scales ? __ldg(static_cast<const uint32_t *>(call.scales)) : 0;
  const int64_t offset = moert__scale_offset(&call.grid, row, 0) + place;
  return !moert__has_code_scales(format) ? __ldg(static_cast<const uint32_t *>(call.scales) + offset)
                                         : __ldg(static_cast<const uint8_t *>(call.scales) + offset);
}

__device__ inline float factorOf(const moert__quantized_call &call, int format, uint32_t scale, float inverse) {
  switch (format) {
  case MOERT__NVFP4: return moert__nvfp4_factor(scale, inverse);
  case MOERT__MXFP4:
  case MOERT__MXFP8: return moert__e8m0_to_f32(scale);
  case MOERT__FP8_TENSOR: return call.scales ? moert__float(scale) : inverse;
  default: return moert__float(scale);
  }
}

// A thread block is tiles side by side (x) by rows (y); each thread takes kRows rows.
template <moert__format kType, int kFormat, int kRows> __global__ void dequantizeTiles(DequantizeCall call) {
  constexpr bool kVectors = kFormat != kAnyFormat;
  constexpr int kCount = tileSize<kType>();
  const moert__quantized_call &tensors = call.tensors;
  const int format = kVectors ? kFormat : tensors.format, block = moert__block_size(format);
  const int64_t column = (static_cast<int64_t>(blockIdx.x % call.tileColumns) * blockDim.x + threadIdx.x) * kCount;
  const int64_t row = static_cast<int64_t>(blockIdx.x / call.tileColumns) * (blockDim.y * kRows) + threadIdx.y;
  const int64_t place = block ? moert__scale_offset(&tensors.grid, 0, column / block) : 0;
  if (column >= tensors.hidden) return;
  uint32_t words[kRows][kCount / 4] = {}, scales[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t at = row + i * blockDim.y;
    if (at >= tensors.tokens) break;
    loadCodes<kCount / 4, kVectors>(tensors, moert__is_packed(format), at, column, words[i]);
    scales[i] = loadScale(tensors, format, at, place);
  }
  const float inverse = tensors.global ? __frcp_rn(*tensors.global) : 1.0f;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t at = row + i * blockDim.y;
    if (at >= tensors.tokens) return;
    float x[kCount];
    decodeTile<kType>(tensors, format, factorOf(tensors, format, scales[i], inverse), column, words[i], x);
    storeNumbers<kType, kVectors>(tensors, at, column, x);
  }
}

#endif

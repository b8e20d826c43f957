//===- formats.cuh - numbers of 4 and 8 bits on devices ------------------------------------------------===//
//
// A thread holds a tile of numbers in registers: consecutive elements of a row, 8 or 16. The tiles of a block that shares a scale lie in
// neighbouring lanes of a warp. quantizeTile makes codes and scales of them, dequantizeTile numbers, with the bits of lib/reference/formats.h:
//
//   uint32_t words[4];
//   const uint32_t code = quantizeTile(MOERT__NVFP4, options, x, tileAmax(MOERT__NVFP4, x), words); // of float x[16]: words[0] and words[1]
//   scales[moert__scale_offset(&grid, row, column / 16)] = code;
//
// No headers of the host: NVRTC compiles this too.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_FORMATS_CUH
#define MOE_KERNELS_FORMATS_CUH

#include "lib/reference/formats.h"

//===--- conversions by instructions ------------------------------------------------------------------===//

// The codes of two numbers, `low` in the low byte.
__device__ inline uint32_t pairToE4M3(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

__device__ inline void e4m3ToPair(uint32_t codes, float *low, float *high) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(*low), "=f"(*high) : "r"(halves));
}

// Two numbers of a 16-bit type, `low` first in memory.
template <moert__format kType> __device__ inline uint32_t pairTo16Bits(float low, float high) {
  uint32_t pair;
  if constexpr (kType == MOERT__BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <moert__format kType> __device__ inline void pairFrom16Bits(uint32_t pair, float *low, float *high) {
  if constexpr (kType == MOERT__BF16) {
    *low = moert__float(pair << 16);
    *high = moert__float(pair & 0xffff0000u);
  } else {
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(*low), "=f"(*high) : "r"(pair));
  }
}

//===--- largest magnitudes -----------------------------------------------------------------------------===//

// As moert__amax of two magnitudes.
__device__ inline float largerMagnitude(int format, float a, float b) {
  float larger;
  if (moert__is_packed(format))
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  else
    larger = fmaxf(a, b);
  return larger;
}

// Two at a time, so that one does not wait for the other.
template <int kCount> __device__ inline float tileAmax(int format, const float (&x)[kCount]) {
  float largest[2] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) largest[i % 2] = largerMagnitude(format, largest[i % 2], fabsf(x[i]));
  return largerMagnitude(format, largest[0], largest[1]);
}

// Likewise of pairs of a 16-bit type, as they lie in memory.
template <moert__format kType, int kWords> __device__ inline float pairsAmax(int format, const uint32_t (&pairs)[kWords]) {
  uint32_t largest = pairs[0]; // of either half the largest magnitude, with any sign
#pragma unroll
  for (int i = 1; i < kWords; ++i) {
    if constexpr (kType == MOERT__BF16) {
      if (moert__is_packed(format))
        asm("max.NaN.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(pairs[i]));
      else
        asm("max.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(pairs[i]));
    } else {
      if (moert__is_packed(format))
        asm("max.NaN.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(largest) : "r"(pairs[i]));
      else
        asm("max.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(largest) : "r"(pairs[i]));
    }
  }
  float x[2];
  pairFrom16Bits<kType>(largest, &x[0], &x[1]);
  return tileAmax(format, x);
}

// Over `lanes` neighbouring lanes, a power of two. All lanes of the warp call it.
__device__ inline float blockAmax(int format, float amax, int lanes) {
  for (int distance = 1; distance < lanes; distance *= 2) amax = largerMagnitude(format, amax, __shfl_xor_sync(~0u, amax, distance));
  return amax;
}

//===--- scales -----------------------------------------------------------------------------------------===//

// x / divisor from 1 / divisor rounded to nearest: the quotient rounded to nearest, if nothing leaves the range of normal numbers. The first
// correction leaves less than a unit in the last place, the second none (Markstein's theorem). A 0 keeps its sign.
__device__ inline float divideWith(float x, float divisor, float reciprocal) {
  float quotient = x * reciprocal;
  quotient = fmaf(-fmaf(quotient, divisor, -x), reciprocal, quotient);
  return fmaf(-fmaf(quotient, divisor, -x), reciprocal, quotient);
}

// As moert__nvfp4_scale; `inverse` is 1 / global.
__device__ inline moert__block_scale nvfp4Scale(float amax, float global, float inverse) {
  moert__block_scale scale;
  float factor, none;
  const bool isNormal = amax > 0x1p-90f && amax <= MOERT__F32_MAX;
  const float sixth = isNormal ? divideWith(amax, MOERT__E2M1_MAX, 1.0f / MOERT__E2M1_MAX) : moert__divide(amax, MOERT__E2M1_MAX);
  scale.code = pairToE4M3(global * sixth, 0.0f);
  e4m3ToPair(scale.code, &factor, &none);
  const float encode = __frcp_rn(factor * inverse);
  scale.encode = amax == 0.0f ? 0.0f : encode > MOERT__F32_MAX ? MOERT__F32_MAX : encode;
  return scale;
}

//===--- codes ------------------------------------------------------------------------------------------===//

// Eight numbers of the magnitudes of E2M1 to eight codes: by way of E4M3, whose codes of 2^-6 times a number have the same three bits two places
// higher. In `mega` order halves are interleaved, else neighbours.
__device__ inline uint32_t packE2M1(const float *x, bool mega) {
  uint32_t low, high;
  if (mega) {
    low = pairToE4M3(x[4], x[5]) | pairToE4M3(x[6], x[7]) << 16;
    high = pairToE4M3(x[0], x[1]) | pairToE4M3(x[2], x[3]) << 16;
  } else {
    low = pairToE4M3(x[0], x[2]) | pairToE4M3(x[4], x[6]) << 16;
    high = pairToE4M3(x[1], x[3]) | pairToE4M3(x[5], x[7]) << 16;
  }
  return (low >> 4 & 0x08080808) | (low >> 2 & 0x07070707) | (high & 0x80808080) | (high << 2 & 0x70707070);
}

// 2^-6 times a number below 7 to 2^-6 times the nearest magnitude of E2M1, ties to even, but for a trace of `small` that leaves zeros their signs.
// Adding 3 * 2^21 quanta leaves no bits below the quantum, which is half of the power of two below the number, and of 1 at least. The instructions
// are such that few go to the pipe of integers and comparisons, which is what bounds the kernels.
__device__ inline float roundToE2M1(float small) {
  const float power = moert__float(moert__bits(fmaxf(fabsf(small), 0x1p-6f)) & 0x7f800000);
  const float sum = fmaf(power, 0x1.8p22f, small);
  return fmaf(small, 0x1p-20f, -fmaf(power, 0x1.8p22f, -sum));
}

// The codes of a tile: x * encode. `amax` is the block's, by which is known whether anything saturates. Products are made 2^-6 times as large at once
// where that loses no bits.
template <int kCount>
__device__ inline void encodeE2M1(const float (&x)[kCount], float amax, float encode, bool mega, uint32_t (&words)[kCount / 8]) {
  const float smallEncode = encode * 0x1p-6f;
  float small[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) small[i] = x[i] * smallEncode;
  if (amax * encode >= 7.0f || encode < 0x1p-120f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float scaled = x[i] * encode;
      small[i] = (fabsf(scaled) > MOERT__E2M1_MAX ? copysignf(MOERT__E2M1_MAX, scaled) : scaled) * 0x1p-6f;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) small[i] = roundToE2M1(small[i]);
#pragma unroll
  for (int i = 0; i < kCount / 8; ++i) words[i] = packE2M1(small + 8 * i, mega);
}

// Likewise of E4M3, which saturates by itself.
template <int kCount> __device__ inline void encodeE4M3(const float (&x)[kCount], float encode, uint32_t (&words)[kCount / 4]) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
    words[i] = pairToE4M3(x[4 * i] * encode, x[4 * i + 1] * encode) | pairToE4M3(x[4 * i + 2] * encode, x[4 * i + 3] * encode) << 16;
}

// The codes of a tile: x / scale, with a scale of moert__fp8_scale. `amax` is that of all that share it. Quotients that are too small for divideWith
// are too small for E4M3 as well.
template <int kCount> __device__ inline void encodeE4M3Divided(const float (&x)[kCount], float amax, float scale, uint32_t (&words)[kCount / 4]) {
  const float reciprocal = __frcp_rn(scale);
  float quotients[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) quotients[i] = divideWith(x[i], scale, reciprocal);
  if (amax > MOERT__F32_MAX) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) quotients[i] = fabsf(x[i]) > MOERT__F32_MAX ? x[i] : quotients[i];
  }
  encodeE4M3(quotients, 1.0f, words);
}

//===--- numbers ----------------------------------------------------------------------------------------===//

// code * factor, of four codes.
__device__ inline void decodeE4M3(uint32_t word, float factor, float (&x)[4]) {
  e4m3ToPair(word & 0xffff, &x[0], &x[1]);
  e4m3ToPair(word >> 16, &x[2], &x[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= factor;
}

// code * factor, of the first or the second four of a word's eight codes: by way of E4M3, as in packE2M1.
__device__ inline void decodeE2M1(uint32_t word, int half, float factor, bool mega, float (&x)[4]) {
  const uint32_t low = (word << 4 & 0x80808080) | (word << 2 & 0x1c1c1c1c), high = (word & 0x80808080) | (word >> 2 & 0x1c1c1c1c);
  if (mega) {
    decodeE4M3(half ? low : high, 0x1p6f, x);
  } else {
    const uint32_t even = half ? low >> 16 : low & 0xffff, odd = half ? high & 0xffff0000 : high << 16;
    decodeE4M3(even | odd, 0x1p6f, x);
    const float second = x[2];
    x[2] = x[1], x[1] = second;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= factor;
}

//===--- tiles ------------------------------------------------------------------------------------------===//

// Parameters of moe.quantize. G is that of NVFP4, 1 of others.
struct QuantizeOptions {
  float global, inverse; // G and 1 / G
  bool even, fast, mega;
};

// A tile of a format whose scales are those of blocks: to kCount / 8 words of 4-bit codes or kCount / 4 words of 8-bit codes. `own` is its largest
// magnitude. The result is the code of the block's scale, the bits of the number for FP8_BLOCK. All lanes of the warp call it; tiles behind a row's
// end are zeros.
template <int kCount>
__device__ inline uint32_t quantizeTile(int format, const QuantizeOptions &options, const float (&x)[kCount], float own,
                                        uint32_t (&words)[kCount / 4]) {
  const float amax = blockAmax(format, own, moert__block_size(format) / kCount);
  if (format == MOERT__FP8_BLOCK) {
    const float scale = moert__fp8_scale(amax);
    encodeE4M3Divided(x, amax, scale, words);
    return moert__bits(scale);
  }
  const moert__block_scale scale = format != MOERT__NVFP4 ? moert__mx_scale(format, amax, options.even)
                                   : options.fast         ? moert__nvfp4_scale_fast(amax, options.global)
                                                          : nvfp4Scale(amax, options.global, options.inverse);
  if (moert__is_packed(format))
    encodeE2M1(x, amax, scale.encode, options.mega, reinterpret_cast<uint32_t (&)[kCount / 8]>(words));
  else
    encodeE4M3(x, scale.encode, words);
  return scale.code;
}

// code * factor, of four numbers that the first or the second half of eight codes stand for: `word` has all eight of a 4-bit format, in the order
// that `mega` says, or the four of an 8-bit format.
__device__ inline void dequantizeHalf(int format, float factor, bool mega, uint32_t word, int half, float (&x)[4]) {
  if (moert__is_packed(format))
    decodeE2M1(word, half, factor, mega, x);
  else
    decodeE4M3(word, factor, x);
}

// code * factor, of a tile of eight: two words of codes, of 4-bit formats one.
__device__ inline void dequantizeTile(int format, float factor, bool mega, const uint32_t (&words)[2], float (&x)[8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float four[4];
    dequantizeHalf(format, factor, mega, words[moert__is_packed(format) ? 0 : half], half, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[4 * half + i] = four[i];
  }
}

#endif

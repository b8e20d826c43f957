//===- numerics.h - arithmetic that host and device share to the bit ------------------------------===//
//
// Element types, exp, sigmoid, silu. Host C compiles this with -ffp-contract=off, nvcc with --fmad=false; every fused step
// is an explicit fmaf, division and square root are IEEE, and nothing comes from a math library but fmaf and sqrtf, which round correctly
// everywhere.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_NUMERICS_H
#define MOERT_NUMERICS_H

#if defined(__CUDACC_RTC__) // without headers of the host
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#if defined(__CUDACC__)
#define MOERT__NUMERIC static __host__ __device__ inline
#else
#define MOERT__NUMERIC static inline
#endif

//===--- bits -------------------------------------------------------------------------------------===//

MOERT__NUMERIC uint32_t moert__bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

MOERT__NUMERIC float moert__float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MOERT__NUMERIC int moert__is_nan(float value) { return value != value; }

//===--- element types ----------------------------------------------------------------------------===//

// Widening is exact. Narrowing rounds to nearest even, subnormal results included; what is too large becomes infinity, and any NaN becomes
// 0x7fff, as the conversion instructions of NVIDIA GPUs do it.

MOERT__NUMERIC float moert__bf16_to_f32(uint16_t value) { return moert__float((uint32_t)value << 16); }

MOERT__NUMERIC uint16_t moert__f32_to_bf16(float value) {
  uint32_t bits = moert__bits(value);
  if (moert__is_nan(value)) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

MOERT__NUMERIC float moert__f16_to_f32(uint16_t value) {
  uint32_t magnitude = (uint32_t)(value & 0x7fff) << 13;
  uint32_t sign = (uint32_t)(value & 0x8000) << 16;
  // The exponents of the types are biased by 15 and 127: scaling by 2^112 moves one to the other and normalises subnormals.
  uint32_t bits = moert__bits(moert__float(magnitude) * 0x1p112f);
  return moert__float(sign | (magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : bits));
}

MOERT__NUMERIC uint16_t moert__f32_to_f16(float value) {
  uint32_t magnitude = moert__bits(value) & 0x7fffffff;
  uint32_t sign = moert__bits(value) >> 16 & 0x8000;
  if (moert__is_nan(value)) return 0x7fff;
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // from halfway between the largest number and 2^16
  if (magnitude < 0x38800000)                                    // below 2^-14: the units of 0.5f are the subnormals' units
    return (uint16_t)(sign | (moert__bits(moert__float(magnitude) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

typedef enum moert__format { MOERT__BF16, MOERT__F16, MOERT__F32 } moert__format;

// Of a floating-point element type with the `code` and `bits` of a moert_dtype.
MOERT__NUMERIC moert__format moert__format_of(uint8_t code, uint8_t bits) { return bits == 32 ? MOERT__F32 : code == 2 ? MOERT__F16 : MOERT__BF16; }

MOERT__NUMERIC float moert__load(moert__format format, const void *elements, int64_t index) {
  switch (format) {
  case MOERT__BF16: return moert__bf16_to_f32(((const uint16_t *)elements)[index]);
  case MOERT__F16: return moert__f16_to_f32(((const uint16_t *)elements)[index]);
  default: return ((const float *)elements)[index];
  }
}

MOERT__NUMERIC void moert__store(moert__format format, void *elements, int64_t index, float value) {
  switch (format) {
  case MOERT__BF16: ((uint16_t *)elements)[index] = moert__f32_to_bf16(value); break;
  case MOERT__F16: ((uint16_t *)elements)[index] = moert__f32_to_f16(value); break;
  default: ((float *)elements)[index] = value;
  }
}

//===--- functions --------------------------------------------------------------------------------===//

MOERT__NUMERIC float moert__divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b); // whatever -prec-div says
#else
  return a / b;
#endif
}

MOERT__NUMERIC float moert__square_root(float a) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(a); // whatever -prec-sqrt says
#else
  return sqrtf(a);
#endif
}

// 2^n for -126 <= n <= 127.
MOERT__NUMERIC float moert__power_of_2(int n) { return moert__float((uint32_t)(n + 127) << 23); }

// e^x, off by at most 0.88 units in the last place, of subnormal results too; exp(0) = 1, exp(-inf) = 0, exp(inf) = inf; NaN stays NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r^2 q(r), where q is the polynomial of degree 4 of least largest error (3.1e-9 of
// e^r). ln 2 is split so that x minus n times its upper part is exact. 2^n is applied in two steps, of which only the last can round, overflow or
// underflow.
MOERT__NUMERIC float moert__exp(float x) {
  const float to_integer = 0x1.8p23f;                            // adding it leaves no bits behind the point
  float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x; // beyond, results are 0 and infinity all the same
  float shifted = fmaf(clamped, 0x1.715476p+0f, to_integer);     // 1 / ln 2
  float whole = shifted - to_integer;
  float upper = fmaf(-whole, 0x1.62e4p-1f, clamped);
  float lower = -whole * 0x1.7f7d1cp-20f;
  float r = upper + lower;
  float q = fmaf(0x1.6a23dp-10f, r, 0x1.123a2p-7f);
  q = fmaf(q, r, 0x1.5558f2p-5f);
  q = fmaf(q, r, 0x1.555492p-3f);
  q = fmaf(q, r, 0x1.fffffcp-2f);
  float power = 1.0f + (upper + fmaf(r * r, q, lower));
  if (moert__is_nan(x)) return x;
  int n = (int)whole;
  int half = n / 2;
  return power * moert__power_of_2(half) * moert__power_of_2(n - half);
}

// 1 / (1 + e^-x), accurate in both tails: 0 at -inf, 1 at inf.
MOERT__NUMERIC float moert__sigmoid(float x) {
  float tail = moert__exp(x < 0 ? x : -x);
  return moert__divide(x < 0 ? tail : 1.0f, 1.0f + tail);
}

// x sigmoid(x): NaN at -inf, where the product is -inf times 0.
MOERT__NUMERIC float moert__silu(float x) { return x * moert__sigmoid(x); }

#endif

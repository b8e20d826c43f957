//===- formats.h - number formats of 4 and 8 bits, to the bit on host and device -----------------------===//
//
// docs/formats.md describes them. As in numerics.h every step is one operation of IEEE's f32, rounded once.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_FORMATS_H
#define MOERT_REFERENCE_FORMATS_H

#include "lib/reference/numerics.h"

// In the order of the ops' parameter `format`.
typedef enum moert__quantized { MOERT__NVFP4, MOERT__MXFP4, MOERT__MXFP8, MOERT__FP8_BLOCK, MOERT__FP8_TOKEN, MOERT__FP8_TENSOR } moert__quantized;

// In the order of the ops' parameter `scale_layout`.
typedef enum moert__scale_layout { MOERT__LINEAR, MOERT__128X4, MOERT__8X4, MOERT__TRANSPOSED } moert__scale_layout;

MOERT__NUMERIC int moert__is_packed(int format) { return format == MOERT__NVFP4 || format == MOERT__MXFP4; } // two codes a byte

MOERT__NUMERIC int moert__has_code_scales(int format) { return moert__is_packed(format) || format == MOERT__MXFP8; } // of 8 bits; else f32

// Elements that share a scale; 0: those of a row, or of all rows.
MOERT__NUMERIC int moert__block_size(int format) {
  return format == MOERT__NVFP4 ? 16 : format == MOERT__MXFP4 || format == MOERT__MXFP8 ? 32 : format == MOERT__FP8_BLOCK ? 128 : 0;
}

#define MOERT__E2M1_MAX 6.0f
#define MOERT__E4M3_MAX 448.0f
#define MOERT__F32_MAX 0x1.fffffep127f
#define MOERT__FP8_LEAST_AMAX 1e-4f // of f32 scales, which are never 0

//===--- elements ---------------------------------------------------------------------------------===//

MOERT__NUMERIC float moert__magnitude(float value) { return moert__float(moert__bits(value) & 0x7fffffff); }

// To nearest, ties to the even code, saturating; any NaN becomes 7, as the conversion instructions of NVIDIA GPUs do it.
MOERT__NUMERIC uint32_t moert__f32_to_e2m1(float value) {
  float magnitude = moert__magnitude(value);
  uint32_t sign = moert__bits(value) >> 28 & 8;
  if (moert__is_nan(value)) return 7;
  return sign | (uint32_t)((magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) + (magnitude > 2.5f) +
                           (magnitude >= 3.5f) + (magnitude > 5.0f));
}

// The exponents of the types are biased by 1 and 127: scaling by 2^126 moves one to the other and normalises the subnormal.
MOERT__NUMERIC float moert__e2m1_to_f32(uint32_t code) { return moert__float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f; }

// To nearest even, saturating; any NaN becomes 0x7f.
MOERT__NUMERIC uint32_t moert__f32_to_e4m3(float value) {
  float magnitude = moert__magnitude(value);
  uint32_t bits = moert__bits(magnitude), sign = moert__bits(value) >> 24 & 0x80;
  if (moert__is_nan(value)) return 0x7f;
  if (magnitude >= MOERT__E4M3_MAX) return sign | 0x7e;
  if (magnitude < 0x1p-6f) return sign | (moert__bits(magnitude + 0x1p14f) - moert__bits(0x1p14f)); // the unit of 2^14 is the subnormals', 2^-9
  return sign | ((bits - (120u << 23) + 0x7ffff + (bits >> 20 & 1)) >> 20);
}

MOERT__NUMERIC float moert__e4m3_to_f32(uint32_t code) {
  float value = moert__float((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f;
  return (code & 0x7f) == 0x7f ? moert__float(0x7fffffff) : value;
}

// 2^(code - 127); NaN for 255.
MOERT__NUMERIC float moert__e8m0_to_f32(uint32_t code) { return moert__float(code == 255 ? 0x7fffffff : code == 0 ? 0x400000 : code << 23); }

// The code of the scale of MXFP4 and MXFP8, at least 0. Up: the least power of two that is no smaller than amax over the largest number of the codes,
// 6 or 448, which are 1.5 and 1.75 times a power of two. Even: that power of two below amax, once it was rounded, ties up, to the significand of the
// codes, of 2 bits or 4. An infinity counts as the largest number; NaN becomes 255.
MOERT__NUMERIC uint32_t moert__f32_to_e8m0(int format, float amax, int even) {
  int packed = moert__is_packed(format);
  uint32_t carry = even ? (packed ? 0x200000 : 0x80000) : packed ? 0x3fffff : 0x1fffff; // what is beyond goes to the next power of two
  int code = (int)((moert__bits(amax) + carry) >> 23) - (packed ? 2 : 8);
  if (moert__is_nan(amax)) return 255;
  return (uint32_t)(code < 0 ? 0 : code);
}

//===--- scales -----------------------------------------------------------------------------------===//

// What a block's elements are multiplied with, and the code that stands for it.
typedef struct moert__block_scale {
  uint32_t code;
  float encode;
} moert__block_scale;

// 1 / value, subnormals flushed on both sides: of rcp.approx.ftz on devices, which is off by at most one unit in the last place; correctly rounded on
// the host.
MOERT__NUMERIC float moert__approximate_reciprocal(float value) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  float flushed = moert__magnitude(value) < 0x1p-126f ? value * 0.0f : value, result = 1.0f / flushed;
  return moert__magnitude(result) < 0x1p-126f ? result * 0.0f : result;
#endif
}

// The factor of the decoder; `inverse` is 1 / G.
MOERT__NUMERIC float moert__nvfp4_factor(uint32_t code, float inverse) { return moert__e4m3_to_f32(code) * inverse; }

MOERT__NUMERIC moert__block_scale moert__nvfp4_scale(float amax, float global) {
  moert__block_scale scale;
  scale.code = moert__f32_to_e4m3(global * moert__divide(amax, MOERT__E2M1_MAX));
  float encode = moert__divide(1.0f, moert__nvfp4_factor(scale.code, moert__divide(1.0f, global)));
  scale.encode = amax == 0.0f ? 0.0f : encode > MOERT__F32_MAX ? MOERT__F32_MAX : encode;
  return scale;
}

MOERT__NUMERIC moert__block_scale moert__nvfp4_scale_fast(float amax, float global) {
  moert__block_scale scale;
  scale.code = moert__f32_to_e4m3(global * (amax * moert__approximate_reciprocal(MOERT__E2M1_MAX)));
  float factor = moert__nvfp4_factor(scale.code, moert__approximate_reciprocal(global));
  scale.encode = amax == 0.0f ? 0.0f : moert__approximate_reciprocal(factor);
  return scale;
}

// Of MXFP4 and MXFP8.
MOERT__NUMERIC moert__block_scale moert__mx_scale(int format, float amax, int even) {
  moert__block_scale scale;
  scale.code = moert__f32_to_e8m0(format, amax, even);
  scale.encode = moert__e8m0_to_f32(scale.code == 255 ? 255 : 254 - scale.code);
  return scale;
}

// The f32 scale of the other formats, which elements are divided by.
MOERT__NUMERIC float moert__fp8_scale(float amax) {
  float finite = amax > MOERT__F32_MAX ? MOERT__F32_MAX : amax; // so that the numbers beside an infinity keep what bits they can
  return moert__divide(finite > MOERT__FP8_LEAST_AMAX ? finite : MOERT__FP8_LEAST_AMAX, MOERT__E4M3_MAX);
}

// The larger of a magnitude and that of another value. A NaN stays in 4-bit formats, which have none of their own, and does not count in the others.
MOERT__NUMERIC float moert__amax(int format, float amax, float value) {
  float magnitude = moert__magnitude(value);
  if (moert__is_packed(format) && moert__is_nan(value)) return magnitude;
  return magnitude > amax ? magnitude : amax;
}

//===--- places -----------------------------------------------------------------------------------===//

// The scales of a tensor. `rows` and `columns` are those that stand for elements; the buffer has the padded ones. Transposed, padded_rows is its
// second dimension.
typedef struct moert__scale_grid {
  int layout;
  int64_t rows, columns, padded_rows, padded_columns;
} moert__scale_grid;

MOERT__NUMERIC int64_t moert__scale_offset(const moert__scale_grid *grid, int64_t row, int64_t column) {
  switch (grid->layout) {
  case MOERT__128X4: return (row / 128 * (grid->padded_columns / 4) + column / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
  case MOERT__8X4: return (row / 8 * (grid->padded_columns / 4) + column / 4) * 32 + row % 8 * 4 + column % 4;
  case MOERT__TRANSPOSED: return column * grid->padded_rows + row;
  default: return row * grid->columns + column;
  }
}

// Of an element in a row of 4-bit codes: byte column / 2 is right up to the order within eight elements.
MOERT__NUMERIC int64_t moert__code_byte(int mega, int64_t column) { return mega ? column / 8 * 4 + column % 4 : column / 2; }
MOERT__NUMERIC int moert__code_shift(int mega, int64_t column) { return mega ? (column % 8 < 4 ? 4 : 0) : column % 2 ? 4 : 0; }

//===--- calls ------------------------------------------------------------------------------------===//

// One call of moe.quantize or moe.dequantize. Rows are `stride` elements of their tensor apart.
typedef struct moert__quantized_call {
  int format, mega;
  moert__format type; // of the numbers
  int64_t tokens, hidden;
  const void *numbers; // of moe.dequantize written
  int64_t numbers_stride;
  const uint8_t *codes; // of moe.quantize written
  int64_t codes_stride; // in bytes
  const void *scales;   // NULL: none
  moert__scale_grid grid;
  const float *global; // NULL: 1
} moert__quantized_call;

#endif

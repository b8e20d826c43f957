//===- formats_test.c - formats.h against definitions, and there and back through the ops ---------===//
//
// Expected codes come from tables of what codes stand for, in double precision, and from comparisons.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/formats.h"
#include <moert/ops.h>
#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;

static void expect(bool holds, const char *what, double at, double got) {
  if (holds) return;
  if (++failures < 100) fprintf(stderr, "%s: at %a got %a\n", what, at, got);
}

static float offset_bits(float value, int units) { return moert__float(moert__bits(value) + (uint32_t)units); }

//===--- elements ---------------------------------------------------------------------------------===//

// Codes up to `last` stand for ascending magnitudes; `sign` is the bit of negative ones.
typedef struct narrow {
  const char *name;
  uint32_t (*encode)(float);
  float (*decode)(uint32_t);
  uint32_t sign, last, nan;
  double magnitudes[127];
} narrow;

static narrow e2m1 = {"e2m1", moert__f32_to_e2m1, moert__e2m1_to_f32, 8, 7, 7, {0, 0.5, 1, 1.5, 2, 3, 4, 6}};
static narrow e4m3 = {"e4m3", moert__f32_to_e4m3, moert__e4m3_to_f32, 0x80, 0x7e, 0x7f, {0}};

static void fill_e4m3(void) {
  for (int code = 0; code < 127; ++code) {
    int exponent = code / 8, eighths = code % 8;
    e4m3.magnitudes[code] = exponent ? ldexp(8 + eighths, exponent - 7 - 3) : ldexp(eighths, -6 - 3);
  }
}

// To the nearest, ties to the even code.
static uint32_t nearest(const narrow *format, double magnitude) {
  uint32_t low = 0, high = format->last;
  if (magnitude >= format->magnitudes[high]) return high;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    *(magnitude >= format->magnitudes[middle] ? &low : &high) = middle;
  }
  double tie = (format->magnitudes[low] + format->magnitudes[high]) / 2;
  return magnitude < tie ? low : magnitude > tie ? high : low % 2 == 0 ? low : high;
}

static void test_rounding_at(const narrow *format, float value) {
  uint32_t got = format->encode(value);
  uint32_t expected = moert__is_nan(value) ? format->nan : nearest(format, fabs((double)value)) | (signbit(value) ? format->sign : 0);
  expect(got == expected, format->name, (double)value, got);
}

static void test_around(const narrow *format, double magnitude) {
  for (int units = magnitude == 0 ? 0 : -3; units <= 3; ++units) {
    float value = offset_bits((float)magnitude, units);
    test_rounding_at(format, value);
    test_rounding_at(format, -value);
  }
}

static void test_rounding(const narrow *format) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    test_rounding_at(format, moert__bf16_to_f32((uint16_t)bits));
    test_rounding_at(format, moert__f16_to_f32((uint16_t)bits));
  }
  for (uint32_t bits = 0; bits < 0xffffffff - 499; bits += 499) test_rounding_at(format, moert__float(bits));
  for (uint32_t code = 0; code < format->last; ++code) {
    test_around(format, format->magnitudes[code]);
    test_around(format, (format->magnitudes[code] + format->magnitudes[code + 1]) / 2);
  }
  test_around(format, format->magnitudes[format->last]);
  test_around(format, 464); // from here on f8E4M3FN without saturation would be NaN
  test_around(format, (double)MOERT__F32_MAX - 0x1p106);
  test_rounding_at(format, INFINITY);
  test_rounding_at(format, -INFINITY);
  static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffc00000, 0xffffffff};
  for (size_t i = 0; i < sizeof nans / sizeof *nans; ++i) test_rounding_at(format, moert__float(nans[i]));
}

static void test_codes(const narrow *format) {
  for (uint32_t code = 0; code < 2 * format->sign; ++code) {
    uint32_t magnitude = code & (format->sign - 1);
    float value = format->decode(code);
    if (magnitude > format->last) {
      expect(moert__bits(value) == 0x7fffffff, "a code that is NaN", code, (double)value);
      continue;
    }
    expect(fabs((double)value) == format->magnitudes[magnitude] && !signbit(value) == (code == magnitude), "what a code stands for", code,
           (double)value);
    expect(format->encode(value) == code, "a code there and back", code, format->encode(value));
  }
}

// A tensor core that multiplies bf16 or f16 works on dequantized 4-bit weights without a loss.
static void test_products(void) {
  for (uint32_t code = 0; code < 16; ++code)
    for (uint32_t scale = 0; scale < 127; ++scale) {
      float product = moert__nvfp4_factor(scale, 1.0f) * moert__e2m1_to_f32(code);
      double exact = e4m3.magnitudes[scale] * e2m1.magnitudes[code & 7] * (code & 8 ? -1 : 1);
      expect((double)product == exact, "product in f32", exact, (double)product);
      expect((double)moert__bf16_to_f32(moert__f32_to_bf16(product)) == exact, "product in bf16", exact, (double)product);
      expect((double)moert__f16_to_f32(moert__f32_to_f16(product)) == exact, "product in f16", exact, (double)product);
    }
}

//===--- scales that are powers of two --------------------------------------------------------------===//

static int clamp_code(int exponent) { return exponent < -127 ? 0 : exponent > 127 ? 254 : exponent + 127; }

static double largest_number(int format) { return format == MOERT__MXFP4 ? 6 : 448; }

static int defined_up(int format, float amax) {
  double finite = amax == INFINITY ? (double)FLT_MAX : (double)amax;
  int exponent, code;
  if (amax == 0.0f) return 0;
  frexp(finite, &exponent);
  code = exponent + 116 > 0 ? exponent + 116 : 0; // the quotient is more than 2^-10 times the number
  while (ldexp(largest_number(format), code - 127) < finite) ++code;
  return code;
}

// A positive number is fraction * 2^exponent with a fraction in [1/2, 1).

static int defined_even(int format, float amax) {
  int exponent, precision = format == MOERT__MXFP4 ? 2 : 4, largest = format == MOERT__MXFP4 ? 2 : 8;
  if (amax == 0.0f) return 0;
  if (amax == INFINITY) return clamp_code(128 - largest);
  int significand = (int)floor(ldexp(frexp((double)amax, &exponent), precision) + 0.5);
  return clamp_code((significand == 1 << precision ? exponent : exponent - 1) - largest);
}

static void test_powers_at(float value) {
  for (int format = MOERT__MXFP4; format <= MOERT__MXFP8; ++format) {
    uint32_t up = moert__f32_to_e8m0(format, value, 0), even = moert__f32_to_e8m0(format, value, 1);
    expect((int)up == defined_up(format, value), "e8m0 up", (double)value, up);
    expect((int)even == defined_even(format, value), "e8m0 even", (double)value, even);
  }
}

static void test_powers(void) {
  for (uint32_t code = 0; code < 255; ++code) {
    float value = moert__e8m0_to_f32(code);
    expect((double)value == ldexp(1, (int)code - 127), "e8m0", code, (double)value);
  }
  expect(moert__bits(moert__e8m0_to_f32(255)) == 0x7fffffff, "e8m0", 255, (double)moert__e8m0_to_f32(255));
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 251) test_powers_at(moert__float(bits));
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (uint32_t eighth = 0; eighth < 16; ++eighth) // the steps, and the ties of both precisions
      for (int units = -3; units <= 3; ++units) {
        uint32_t bits = (exponent << 23) + (eighth << 19) + (uint32_t)units;
        if (bits <= 0x7f800000) test_powers_at(moert__float(bits));
      }
  for (uint32_t nan = 0x7f800001; nan > 0x7f800000 && nan < 0x80000000; nan += 0x100000)
    for (int even = 0; even <= 1; ++even) expect(moert__f32_to_e8m0(MOERT__MXFP4, moert__float(nan), even) == 255, "e8m0 of NaN", nan, 0);
}

// What other libraries do: the least power of two that is no smaller than a rounded quotient, or a product with a rounded reciprocal, is the same; of
// amax in two binades, so of all whose quotients are normal.
static int power_above(float value) {
  int exponent;
  return (frexp((double)value, &exponent) == 0.5 ? exponent - 1 : exponent) + 127;
}

static void test_reciprocals(void) {
  for (uint32_t bits = 0x3f800000; bits < 0x40800000; ++bits)
    for (int format = MOERT__MXFP4; format <= MOERT__MXFP8; ++format) {
      float amax = moert__float(bits), largest = (float)largest_number(format);
      int code = (int)moert__f32_to_e8m0(format, amax, 0);
      expect(power_above(amax / largest) == code, "rounded quotient, up", (double)amax, code);
      expect(power_above(amax * (1.0f / largest)) == code, "product with a reciprocal, up", (double)amax, code);
    }
}

//===--- scales of blocks ---------------------------------------------------------------------------===//

static void expect_scale(const char *what, moert__block_scale got, uint32_t code, float encode) {
  bool same = moert__bits(got.encode) == moert__bits(encode) || (moert__is_nan(got.encode) && moert__is_nan(encode));
  expect(got.code == code && same, what, got.code, (double)got.encode);
}

static void test_block_scales(void) {
  expect_scale("nvfp4 of 0", moert__nvfp4_scale(0, 1), 0, 0);
  expect_scale("nvfp4 of 0 in a tensor of 0", moert__nvfp4_scale(0, MOERT__F32_MAX), 0, 0);
  expect_scale("nvfp4 of 6", moert__nvfp4_scale(6, 1), 0x38, 1);
  expect_scale("nvfp4 of 6 with 2", moert__nvfp4_scale(6, 2), 0x40, 1);
  expect_scale("nvfp4 of too little", moert__nvfp4_scale(0x1p-10f, 1), 0, MOERT__F32_MAX);
  expect_scale("nvfp4 of too much", moert__nvfp4_scale(1e6f, 1), 0x7e, 1.0f / 448);
  expect_scale("nvfp4 of inf", moert__nvfp4_scale(INFINITY, 1), 0x7e, 1.0f / 448);
  expect_scale("nvfp4 of NaN", moert__nvfp4_scale(NAN, 1), 0x7f, NAN);
  expect_scale("fast nvfp4 of 0", moert__nvfp4_scale_fast(0, 1), 0, 0);
  expect_scale("fast nvfp4 of 6", moert__nvfp4_scale_fast(6, 2), 0x40, 1);
  expect_scale("fast nvfp4 of too little", moert__nvfp4_scale_fast(0x1p-10f, 1), 0, INFINITY);
  expect_scale("fast nvfp4 of NaN", moert__nvfp4_scale_fast(NAN, 1), 0x7f, NAN);
  for (int even = 0; even < 2; ++even) {
    expect_scale("mxfp4 of 0", moert__mx_scale(MOERT__MXFP4, 0, even), 0, 0x1p127f);
    expect_scale("mxfp4 of 6", moert__mx_scale(MOERT__MXFP4, 6, even), 127, 1);
    expect_scale("mxfp8 of 448", moert__mx_scale(MOERT__MXFP8, 448, even), 127, 1);
    expect_scale("mxfp4 of NaN", moert__mx_scale(MOERT__MXFP4, NAN, even), 255, NAN);
  }
  expect_scale("mxfp4 of 6.5, up", moert__mx_scale(MOERT__MXFP4, 6.5f, 0), 128, 0.5f);
  expect_scale("mxfp4 of 6.5, even", moert__mx_scale(MOERT__MXFP4, 6.5f, 1), 127, 1);
  expect_scale("mxfp4 of 7, even", moert__mx_scale(MOERT__MXFP4, 7, 1), 128, 0.5f);
  expect_scale("mxfp8 of 479, even", moert__mx_scale(MOERT__MXFP8, 479, 1), 127, 1);
  expect_scale("mxfp8 of 496, even", moert__mx_scale(MOERT__MXFP8, 496, 1), 128, 0.5f);
  expect_scale("mxfp8 of inf, up", moert__mx_scale(MOERT__MXFP8, INFINITY, 0), 247, 0x1p-120f);
  expect_scale("mxfp4 of inf, up", moert__mx_scale(MOERT__MXFP4, INFINITY, 0), 253, 0x1p-126f);
  expect_scale("mxfp4 of inf, even", moert__mx_scale(MOERT__MXFP4, INFINITY, 1), 253, 0x1p-126f);
  expect(moert__fp8_scale(0) == 1e-4f / 448, "fp8 of 0", 0, (double)moert__fp8_scale(0));
  expect(moert__fp8_scale(448) == 1, "fp8 of 448", 448, (double)moert__fp8_scale(448));
  expect(moert__fp8_scale(INFINITY) == MOERT__F32_MAX / 448, "fp8 of inf", (double)INFINITY, (double)moert__fp8_scale(INFINITY));
}

static void test_amax(void) {
  float nan = moert__amax(MOERT__NVFP4, 1, -NAN);
  expect(moert__is_nan(nan) && moert__is_nan(moert__amax(MOERT__NVFP4, nan, INFINITY)), "NaN stays", 0, (double)nan);
  expect(moert__amax(MOERT__MXFP8, 1, NAN) == 1 && moert__amax(MOERT__FP8_BLOCK, 1, NAN) == 1, "NaN does not count", 0, 0);
  expect(moert__amax(MOERT__MXFP4, 1, -2) == 2 && moert__amax(MOERT__MXFP4, 3, -2) == 3, "the larger magnitude", 0, 0);
  expect(moert__bits(moert__amax(MOERT__FP8_TOKEN, 0, -0.0f)) == 0, "of -0", 0, 0);
}

//===--- places -----------------------------------------------------------------------------------===//

static int64_t up_to(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// As the layouts are published, m and c being row and column.
static int64_t defined_offset(const moert__scale_grid *grid, int64_t m, int64_t c) {
  int64_t tiles = up_to(grid->columns, 4) / 4;
  switch (grid->layout) {
  case MOERT__LINEAR: return m * grid->columns + c;
  case MOERT__128X4: return (m / 128 * tiles + c / 4) * 512 + m % 32 * 16 + m % 128 / 32 * 4 + c % 4;
  case MOERT__8X4: return (m / 8 * tiles + c / 4) * 32 + m % 8 * 4 + c % 4;
  default: return c * grid->padded_rows + m;
  }
}

static moert__scale_grid make_grid(int layout, int64_t rows, int64_t columns) {
  int64_t row_multiple = layout == MOERT__128X4 ? 128 : layout == MOERT__8X4 ? 8 : 1;
  bool swizzled = row_multiple > 1;
  return (moert__scale_grid){layout, rows, columns, up_to(rows, row_multiple) + (layout == MOERT__TRANSPOSED ? 3 : 0),
                             up_to(columns, swizzled ? 4 : 1)};
}

// Each scale has a place of its own in the buffer; with the places of the padding, all of it is taken.
static void test_grid(int layout, int64_t rows, int64_t columns) {
  moert__scale_grid grid = make_grid(layout, rows, columns);
  int64_t count = grid.padded_rows * grid.padded_columns;
  bool *taken = calloc((size_t)count + 1, sizeof *taken);
  for (int64_t row = 0; row < grid.padded_rows; ++row)
    for (int64_t column = 0; column < grid.padded_columns; ++column) {
      int64_t offset = moert__scale_offset(&grid, row, column);
      bool fits = offset >= 0 && offset < count && !taken[offset];
      expect(fits && offset == defined_offset(&grid, row, column), "place of a scale", (double)row, (double)offset);
      if (fits) taken[offset] = true;
    }
  free(taken);
}

static void test_places(void) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 127, 128, 129, 257};
  for (int layout = MOERT__LINEAR; layout <= MOERT__TRANSPOSED; ++layout)
    for (size_t r = 0; r < sizeof sizes / sizeof *sizes; ++r)
      for (size_t c = 0; c < sizeof sizes / sizeof *sizes; ++c) test_grid(layout, sizes[r], sizes[c]);
  static const int bytes[2][8] = {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 2, 3, 0, 1, 2, 3}}, shifts[2][8] = {{0, 4, 0, 4, 0, 4, 0, 4}, {4, 4, 4, 4}};
  for (int mega = 0; mega < 2; ++mega)
    for (int64_t column = 0; column < 64; ++column)
      expect(moert__code_byte(mega, column) == column / 8 * 4 + bytes[mega][column % 8] &&
                 moert__code_shift(mega, column) == shifts[mega][column % 8],
             "place of a code", (double)column, (double)moert__code_byte(mega, column));
}

//===--- there and back -----------------------------------------------------------------------------===//

static moert_comm *comm;
static moert_context *context;

static void expect_ok(moert_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", moert_last_error());
  exit(1);
}

// Codes and scales, the numbers that they stand for, the codes and scales of those, and the numbers again. Scales lie in linear order.
typedef struct trip {
  int64_t format, rounding;
  moert_dtype type;
  float global; // 0: none
  int64_t rows, hidden, columns;
  void *codes, *scales, *numbers, *codes_again, *scales_again, *numbers_again;
} trip;

static const moert_dtype types[] = {{MOERT_CODE_FLOAT, 32, 1}, {MOERT_CODE_BFLOAT, 16, 1}, {MOERT_CODE_FLOAT, 16, 1}};

static size_t code_bytes(const trip *t) { return (size_t)(t->rows * t->hidden / (moert__is_packed((int)t->format) ? 2 : 1)); }
static size_t scale_bytes(const trip *t) { return (size_t)(t->rows * t->columns) * (t->format >= MOERT__FP8_BLOCK ? 4 : 1); }
static size_t number_bytes(const trip *t) { return (size_t)(t->rows * t->hidden) * t->type.bits / 8; }

static trip make_trip(int64_t format, int64_t rounding, moert_dtype type, float global, int64_t rows, int64_t hidden) {
  int64_t block = moert__block_size((int)format);
  trip t = {format, rounding, type, global, rows, hidden, block ? (hidden + block - 1) / block : 1, NULL, NULL, NULL, NULL, NULL, NULL};
  t.codes = malloc(code_bytes(&t));
  t.codes_again = malloc(code_bytes(&t));
  t.scales = malloc(scale_bytes(&t));
  t.scales_again = malloc(scale_bytes(&t));
  t.numbers = malloc(number_bytes(&t));
  t.numbers_again = malloc(number_bytes(&t));
  return t;
}

static void free_trip(const trip *t) {
  void *buffers[] = {t->codes, t->scales, t->numbers, t->codes_again, t->scales_again, t->numbers_again};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; ++i) free(buffers[i]);
}

static moert_tensor matrix(void *data, moert_dtype type, int64_t *shape) {
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, 2, type, shape, NULL, 0};
}

typedef struct call_tensors {
  int64_t numbers_shape[2], codes_shape[2], scales_shape[2], global_shape[1];
  float global_value;
  moert_tensor numbers, codes, scales, global;
} call_tensors;

static void fill_tensors(const trip *t, void *codes, void *scales, void *numbers, call_tensors *of) {
  bool f32 = t->format >= MOERT__FP8_BLOCK;
  *of = (call_tensors){{t->rows, t->hidden},
                       {t->rows, moert__is_packed((int)t->format) ? t->hidden / 2 : t->hidden},
                       {t->rows, t->columns},
                       {1},
                       1,
                       {0},
                       {0},
                       {0},
                       {0}};
  of->global_value = t->global;
  of->numbers = matrix(numbers, t->type, of->numbers_shape);
  of->codes = matrix(codes, (moert_dtype){MOERT_CODE_UINT, 8, 1}, of->codes_shape);
  of->scales = matrix(scales, f32 ? types[0] : (moert_dtype){MOERT_CODE_UINT, 8, 1}, of->scales_shape);
  of->global = matrix(&of->global_value, types[0], of->global_shape);
  of->global.ndim = 1;
}

static bool has_scales(const trip *t) { return t->format != MOERT__FP8_TENSOR || t->global == 0; }

static void dequantize(const trip *t, void *codes, void *scales, void *numbers) {
  call_tensors of;
  fill_tensors(t, codes, scales, numbers, &of);
  moert_moe_dequantize_params params = MOERT_MOE_DEQUANTIZE_PARAMS_INIT;
  params.format = t->format;
  moert_moe_dequantize_args args = {sizeof args, &of.codes, has_scales(t) ? &of.scales : NULL, t->global != 0 ? &of.global : NULL, &of.numbers};
  expect_ok(moert_moe_dequantize(&params, &args, NULL, context));
}

static void quantize(const trip *t, void *numbers, void *codes, void *scales) {
  call_tensors of;
  fill_tensors(t, codes, scales, numbers, &of);
  moert_moe_quantize_params params = MOERT_MOE_QUANTIZE_PARAMS_INIT;
  params.format = t->format;
  params.scale_rounding = t->rounding;
  moert_moe_quantize_args args = {sizeof args, &of.numbers, t->global != 0 ? &of.global : NULL, &of.codes, has_scales(t) ? &of.scales : NULL};
  expect_ok(moert_moe_quantize(&params, &args, NULL, context));
}

static void travel(const trip *t) {
  dequantize(t, t->codes, t->scales, t->numbers);
  quantize(t, t->numbers, t->codes_again, t->scales_again);
  dequantize(t, t->codes_again, t->scales_again, t->numbers_again);
}

static bool same_row(const void *a, const void *b, int64_t row, size_t bytes, const trip *t) {
  size_t size = bytes / (size_t)t->rows, at = (size_t)row * size;
  return !memcmp((const char *)a + at, (const char *)b + at, size);
}

static bool same_codes(const trip *t, int64_t row) { return same_row(t->codes, t->codes_again, row, code_bytes(t), t); }
static bool same_scales(const trip *t, int64_t row) { return same_row(t->scales, t->scales_again, row, scale_bytes(t), t); }
static bool same_numbers(const trip *t, int64_t row) { return same_row(t->numbers, t->numbers_again, row, number_bytes(t), t); }

// In every block of a row the code `most`, and otherwise all codes of no larger magnitude in turn.
static void fill_codes(const trip *t, int64_t row, uint32_t most) {
  uint8_t *codes = (uint8_t *)t->codes + (size_t)row * (code_bytes(t) / (size_t)t->rows);
  const narrow *format = moert__is_packed((int)t->format) ? &e2m1 : &e4m3;
  int64_t block = t->hidden / t->columns;
  uint32_t next = 0;
  for (int64_t column = 0; column < t->hidden; ++column) {
    uint32_t code = most;
    if (column % block) {
      code = next / 2 | (next % 2 ? format->sign : 0);
      next = (next + 1) % (2 * most + 2);
    }
    if (format == &e4m3)
      codes[column] = (uint8_t)code;
    else
      codes[column / 2] = (uint8_t)(column % 2 ? codes[column / 2] | code << 4 : code);
  }
}

enum { SCALE_CODES = 256 };

// Row s has the scale s; columns enough for all codes in each of its turns.
static trip make_code_trip(int64_t format, int64_t rounding, moert_dtype type, float global, uint32_t most) {
  trip t = make_trip(format, rounding, type, global, SCALE_CODES, format == MOERT__MXFP8 ? 9 * 32 : 32);
  for (int64_t row = 0; row < t.rows; ++row) {
    fill_codes(&t, row, most);
    memset((uint8_t *)t.scales + row * t.columns, (int)row, (size_t)t.columns);
  }
  travel(&t);
  return t;
}

typedef struct range {
  int64_t format, rounding;
  int type;
  float global;
  int64_t first, last; // scale codes
} range;

// Blocks with the largest code come back as they were.
static const range identities[] = {
    {MOERT__NVFP4, 0, 0, 0, 1, 126},          {MOERT__NVFP4, 0, 1, 0, 1, 126},       {MOERT__NVFP4, 0, 2, 0, 1, 126},
    {MOERT__NVFP4, 0, 0, 507.17f, 1, 126},    {MOERT__NVFP4, 0, 1, 507.17f, 1, 126}, {MOERT__NVFP4, 0, 2, 507.17f, 1, 126},
    {MOERT__NVFP4, 0, 0, 0x1.8p116f, 1, 126}, {MOERT__NVFP4, 0, 0, 1e-35f, 1, 126},  {MOERT__NVFP4, 0, 1, 0x1.8p116f, 1, 126},
    {MOERT__NVFP4, 0, 1, 1e-35f, 1, 126},     {MOERT__MXFP4, 0, 0, 0, 0, 252},       {MOERT__MXFP4, 0, 1, 0, 0, 252},
    {MOERT__MXFP4, 0, 2, 0, 104, 140},        {MOERT__MXFP4, 1, 0, 0, 0, 252},       {MOERT__MXFP4, 1, 1, 0, 0, 252},
    {MOERT__MXFP4, 1, 2, 0, 104, 140},        {MOERT__MXFP8, 0, 0, 0, 0, 246},       {MOERT__MXFP8, 0, 1, 0, 3, 246},
    {MOERT__MXFP8, 0, 2, 0, 112, 134},        {MOERT__MXFP8, 1, 0, 0, 0, 246},       {MOERT__MXFP8, 1, 1, 0, 3, 246},
    {MOERT__MXFP8, 1, 2, 0, 112, 134},
};

static void test_identity(const range *r) {
  trip t = make_code_trip(r->format, r->rounding, types[r->type], r->global, moert__is_packed((int)r->format) ? 7 : 0x7e);
  for (int64_t row = r->first; row <= r->last; ++row) {
    expect(same_codes(&t, row) && same_scales(&t, row), "codes and scales there and back", (double)r->format, (double)row);
    expect(same_numbers(&t, row), "numbers there and back", (double)r->format, (double)row);
  }
  free_trip(&t);
}

// Blocks without the largest code may get another scale, but stand for the same numbers.
static const range equalities[] = {
    {MOERT__MXFP4, 0, 0, 0, 0, 252}, {MOERT__MXFP4, 0, 1, 0, 0, 252}, {MOERT__MXFP4, 0, 2, 0, 104, 140},
    {MOERT__MXFP4, 1, 0, 0, 0, 252}, {MOERT__MXFP4, 1, 1, 0, 0, 252}, {MOERT__MXFP4, 1, 2, 0, 104, 140},
    {MOERT__MXFP8, 0, 0, 0, 0, 246}, {MOERT__MXFP8, 0, 1, 0, 3, 246}, {MOERT__MXFP8, 0, 2, 0, 112, 134},
};

static void test_equality(const range *r) {
  uint32_t last = moert__is_packed((int)r->format) ? 7 : 0x7e;
  for (uint32_t most = 0; most <= last; ++most) {
    trip t = make_code_trip(r->format, r->rounding, types[r->type], r->global, most);
    for (int64_t row = r->first; row <= r->last; ++row) expect(same_numbers(&t, row), "the same numbers", most, (double)row);
    free_trip(&t);
  }
}

// Scales of NaN stay and make all codes of 4 bits the largest; a block of scale 0 of nvfp4 keeps no more than signs.
static void test_special_scales(void) {
  static const struct {
    int format;
    uint8_t scale, expected;
  } rows[] = {{MOERT__NVFP4, 0x7f, 0x7f}, {MOERT__NVFP4, 0xff, 0x7f}, {MOERT__MXFP4, 255, 255}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    trip t = make_code_trip(rows[i].format, 0, types[0], 0, 7);
    const uint8_t *codes = (const uint8_t *)t.codes_again + (size_t)rows[i].scale * (code_bytes(&t) / SCALE_CODES);
    for (int64_t j = 0; j < t.hidden / 2; ++j) expect(codes[j] == 0x77, "codes of NaN", rows[i].scale, codes[j]);
    expect(((const uint8_t *)t.scales_again)[rows[i].scale * t.columns] == rows[i].expected, "scale of NaN", rows[i].scale, 0);
    free_trip(&t);
  }
  trip t = make_code_trip(MOERT__NVFP4, 0, types[0], 0, 7);
  const uint8_t *before = t.codes, *after = t.codes_again;
  expect(same_scales(&t, 0) && same_numbers(&t, 0), "scale 0", 0, 0);
  for (int64_t j = 0; j < t.hidden / 2; ++j) expect(after[j] == (before[j] & 0x88), "signs of scale 0", (double)j, after[j]);
  free_trip(&t);
}

//===--- there and back with scales of f32 ----------------------------------------------------------===//

static void expect_scales_back(const trip *t, const char *what) {
  quantize(t, t->numbers, t->codes, t->scales);
  travel(t);
  expect(!memcmp(t->codes, t->codes_again, code_bytes(t)) && !memcmp(t->scales, t->scales_again, scale_bytes(t)), what, t->type.bits, 0);
}

// Any f32 that quantize made a scale of comes back; one binade of largest magnitudes stands for all, the last is tried beside it.
static void test_made_scales(void) {
  static const uint32_t starts[] = {0x3f800000, 0x7f000000};
  enum { ROWS = 1 << 20, BINADE = 1 << 23 };
  trip t = make_trip(MOERT__FP8_TOKEN, 0, types[0], 0, ROWS, 1);
  for (size_t i = 0; i < sizeof starts / sizeof *starts; ++i)
    for (uint32_t first = 0; first < BINADE; first += ROWS) {
      for (uint32_t row = 0; row < ROWS; ++row) ((float *)t.numbers)[row] = moert__float(starts[i] + first + row);
      expect_scales_back(&t, "scales of f32");
    }
  free_trip(&t);
}

// Likewise from bf16 to bf16 and from f16 to f16, if the largest magnitude is at least 1e-4.
static void test_made_scales_of_halves(void) {
  for (int type = 1; type <= 2; ++type) {
    trip t = make_trip(MOERT__FP8_TOKEN, 0, types[type], 0, 0x10000, 1);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      float value = type == 1 ? moert__bf16_to_f32((uint16_t)bits) : moert__f16_to_f32((uint16_t)bits);
      bool counts = fabsf(value) >= MOERT__FP8_LEAST_AMAX && fabsf(value) <= MOERT__F32_MAX;
      ((uint16_t *)t.numbers)[bits] = counts ? (uint16_t)bits : type == 1 ? 0x3f80 : 0x3c00;
    }
    expect_scales_back(&t, "scales of halves");
    free_trip(&t);
  }
}

// Every code, next to the largest, comes back from all three types with a scale that quantize made.
static void test_codes_of_made_scales(void) {
  enum { ROWS = 64, HIDDEN = 3 * 128 - 17 };
  for (int type = 0; type < 3; ++type)
    for (int format = MOERT__FP8_BLOCK; format <= MOERT__FP8_TOKEN; ++format) {
      trip t = make_trip(format, 0, types[type], 0, ROWS, HIDDEN);
      for (int64_t row = 0; row < ROWS; ++row)
        for (int64_t column = 0; column < HIDDEN; ++column) {
          uint32_t code = column % 128 ? (uint32_t)(column + column / 128 * 127) % 255 : 0x7e;
          if ((code & 0x7f) == 0x7f) code = 0;
          ((uint8_t *)t.codes)[row * HIDDEN + column] = (uint8_t)code;
        }
      for (int64_t i = 0; i < ROWS * t.columns; ++i) {
        float amax = ldexpf(1.0f + (float)(i % 8) / 8, (int)(i % 12) + 1); // with few bits, so that it is a number of each type
        ((float *)t.scales)[i] = moert__fp8_scale(amax);
      }
      travel(&t);
      for (int64_t row = 0; row < ROWS; ++row)
        expect(same_codes(&t, row) && same_scales(&t, row) && same_numbers(&t, row), "codes with scales of f32", format, (double)row);
      free_trip(&t);
    }
}

// A scale that quantize did not make may come back as its neighbour, which then stays.
static void test_any_scale(void) {
  long changed = 0;
  for (uint32_t bits = 0x3f800000; bits < 0x40000000; ++bits) {
    float scale = moert__float(bits), once = moert__fp8_scale(448.0f * scale), twice = moert__fp8_scale(448.0f * once);
    changed += once != scale;
    expect(fabsf(once - scale) <= 0x1p-23f && twice == once, "an f32 scale there and back", (double)scale, (double)once);
  }
  expect(changed == 898779, "scales that change, of 2^23", 0, (double)changed);
}

// All codes come back with a given factor, as long as the largest number is one of the type and the smallest is not lost.
static void test_given_factors(void) {
  static const int last_exponents[] = {127, 124, 15};
  static const double largest[] = {0x1.fffffep127, 0x1.fep127, 65504};
  for (int type = 0; type < 3; ++type) {
    trip t = make_trip(MOERT__FP8_TENSOR, 0, types[type], 1, 1, 256);
    for (int64_t i = 0; i < 256; ++i) ((uint8_t *)t.codes)[i] = (uint8_t)(i == 0xff ? 0x7f : i); // NaN has one code that is made
    for (int exponent = -126; exponent <= last_exponents[type]; ++exponent)
      for (int k = 0; k < 5; ++k) {
        t.global = ldexpf(exponent == last_exponents[type] ? 1 : 1 + 0.21f * (float)k, exponent);
        if (448 / (double)t.global > largest[type]) continue;
        travel(&t);
        expect(same_codes(&t, 0) && same_numbers(&t, 0), "codes with a given factor", (double)t.global, type);
      }
    free_trip(&t);
  }
}

int main(void) {
  fill_e4m3();
  expect_ok(moert_comm_create_threads(1, NULL, &comm));
  expect_ok(moert_context_create(comm, NULL, &context));
  test_rounding(&e2m1);
  test_rounding(&e4m3);
  test_codes(&e2m1);
  test_codes(&e4m3);
  test_products();
  test_powers();
  test_reciprocals();
  test_block_scales();
  test_amax();
  test_places();
  for (size_t i = 0; i < sizeof identities / sizeof *identities; ++i) test_identity(&identities[i]);
  for (size_t i = 0; i < sizeof equalities / sizeof *equalities; ++i) test_equality(&equalities[i]);
  test_special_scales();
  test_made_scales();
  test_made_scales_of_halves();
  test_codes_of_made_scales();
  test_any_scale();
  test_given_factors();
  moert_context_destroy(context);
  moert_comm_destroy(comm);
  printf("%d failures\n", failures);
  return failures != 0;
}

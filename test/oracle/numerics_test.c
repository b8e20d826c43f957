//===- numerics_test.c - numerics.h against double precision, fma_tile.h against itself -----------===//

#include "lib/reference/fma_tile.h"
#include "lib/reference/numerics.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;

static void expect(bool holds, const char *what, double at, double got) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "%s: at %a got %a\n", what, at, got);
}

static bool same(float a, float b) { return moert__bits(a) == moert__bits(b) || (moert__is_nan(a) && moert__is_nan(b)); }

// What a value of f32 at `y` differs from its neighbours by.
static double unit(double y) {
  int exponent;
  frexp(y, &exponent);
  return ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
}

//===--- functions --------------------------------------------------------------------------------===//

static void test_exp_at(float x) {
  double exact = exp((double)x);
  float got = moert__exp(x);
  if (exact > 0x1.ffffffp127)
    expect(got == INFINITY, "exp overflows", (double)x, (double)got);
  else
    expect(fabs((double)got - exact) <= 0.88 * unit(exact), "exp is off by more than 0.88 units", (double)x, (double)got);
}

static void test_exp(void) {
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 1009) {
    test_exp_at(moert__float(bits));
    test_exp_at(-moert__float(bits));
  }
  float worst[] = {0x1.f31782p+3f, -0x1.601e0ap+6f, 0x1.62e42ep+6f, 0x1.62e43p+6f, -0x1.9fe368p+6f, -0x1.9fe36ap+6f, 3.4e38f, -3.4e38f};
  for (size_t i = 0; i < sizeof worst / sizeof *worst; ++i) test_exp_at(worst[i]);
  expect(moert__exp(0.0f) == 1.0f && moert__exp(-0.0f) == 1.0f, "exp of 0", 0, (double)moert__exp(0.0f));
  expect(moert__exp(INFINITY) == INFINITY, "exp of inf", (double)INFINITY, (double)moert__exp(INFINITY));
  expect(same(moert__exp(-INFINITY), 0.0f), "exp of -inf", (double)-INFINITY, (double)moert__exp(-INFINITY));
  expect(moert__is_nan(moert__exp(NAN)), "exp of NaN", (double)NAN, (double)moert__exp(NAN));
}

static void test_sigmoid_at(float x) {
  double exact = x < 0 ? exp((double)x) / (1 + exp((double)x)) : 1 / (1 + exp((double)-x));
  float got = moert__sigmoid(x);
  expect(fabs((double)got - exact) <= 2.5 * unit(exact), "sigmoid is off by more than 2.5 units", (double)x, (double)got);
  expect(same(moert__silu(x), x * got), "silu is not the product", (double)x, (double)moert__silu(x));
}

static void test_sigmoid(void) {
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 10007) {
    test_sigmoid_at(moert__float(bits));
    test_sigmoid_at(-moert__float(bits));
  }
  expect(moert__sigmoid(INFINITY) == 1.0f, "sigmoid of inf", (double)INFINITY, (double)moert__sigmoid(INFINITY));
  expect(same(moert__sigmoid(-INFINITY), 0.0f), "sigmoid of -inf", (double)-INFINITY, (double)moert__sigmoid(-INFINITY));
  expect(moert__is_nan(moert__sigmoid(NAN)), "sigmoid of NaN", (double)NAN, (double)moert__sigmoid(NAN));
  expect(moert__silu(INFINITY) == INFINITY, "silu of inf", (double)INFINITY, (double)moert__silu(INFINITY));
  expect(moert__is_nan(moert__silu(-INFINITY)), "silu of -inf", (double)-INFINITY, (double)moert__silu(-INFINITY));
}

//===--- element types ----------------------------------------------------------------------------===//

typedef struct narrow {
  const char *name;
  float (*widen)(uint16_t);
  uint16_t (*round)(float);
  int precision, least_exponent;
  uint16_t infinity;
} narrow;

static const narrow bf16 = {"bf16", moert__bf16_to_f32, moert__f32_to_bf16, 8, -126, 0x7f80};
static const narrow f16 = {"f16", moert__f16_to_f32, moert__f32_to_f16, 11, -14, 0x7c00};

// The value that the format's definition gives to a finite bit pattern.
static double defined_value(const narrow *format, uint16_t bits) {
  int fraction_bits = format->precision - 1;
  int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  if (exponent > 0) fraction |= 1 << fraction_bits;
  double magnitude = ldexp(fraction, (exponent > 0 ? exponent - 1 : 0) + format->least_exponent - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

static void test_widening(const narrow *format) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = format->widen((uint16_t)bits);
    uint32_t magnitude = bits & 0x7fff;
    bool right = magnitude > format->infinity    ? moert__is_nan(value)
                 : magnitude == format->infinity ? fabsf(value) == INFINITY && !signbit(value) == (bits == magnitude)
                                                 : (double)value == defined_value(format, (uint16_t)bits) && !signbit(value) == (bits == magnitude);
    expect(right, format->name, bits, (double)value);
    expect(format->round(value) == (magnitude > format->infinity ? 0x7fff : bits), "widened and narrowed", bits, format->round(value));
  }
}

// Rounded to nearest even by the default rounding of rint.
static void test_narrowing_at(const narrow *format, float value) {
  double magnitude = fabs((double)value);
  int exponent;
  frexp(magnitude, &exponent);
  int unit_exponent = (exponent - 1 < format->least_exponent ? format->least_exponent : exponent - 1) - (format->precision - 1);
  double rounded = ldexp(rint(ldexp(magnitude, -unit_exponent)), unit_exponent);
  uint16_t got = format->round(value);
  double largest = defined_value(format, format->infinity - 1);
  bool right =
      rounded > largest ? (got & 0x7fff) == format->infinity : (got & 0x7fff) < format->infinity && defined_value(format, got & 0x7fff) == rounded;
  expect(right && !signbit(value) == !(got & 0x8000), format->name, (double)value, got);
}

static void test_narrowing(const narrow *format) {
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 509) {
    test_narrowing_at(format, moert__float(bits));
    test_narrowing_at(format, -moert__float(bits));
  }
  for (uint16_t bits = 0; bits < format->infinity - 1; ++bits) { // ties, and what is next to them
    float middle = (float)((defined_value(format, bits) + defined_value(format, bits + 1)) / 2);
    test_narrowing_at(format, middle);
    test_narrowing_at(format, nextafterf(middle, 0.0f));
    test_narrowing_at(format, nextafterf(middle, INFINITY));
  }
}

static void test_dispatch(void) {
  uint16_t halves[3] = {0, 0, 0};
  float words[2] = {0, 0};
  moert__store(moert__format_of(4, 16), halves, 1, 1.5f);
  moert__store(moert__format_of(2, 16), halves, 2, 1.5f);
  moert__store(moert__format_of(2, 32), words, 1, 1.5f);
  expect(halves[0] == 0 && halves[1] == 0x3fc0 && halves[2] == 0x3e00 && words[0] == 0 && words[1] == 1.5f, "store", 1.5, (double)words[1]);
  expect(moert__load(MOERT__BF16, halves, 1) == 1.5f && moert__load(MOERT__F16, halves, 2) == 1.5f && moert__load(MOERT__F32, words, 1) == 1.5f,
         "load", 1.5, 0);
}

//===--- products ---------------------------------------------------------------------------------===//

enum { DEPTH = 257 };

// Of any size, with a few zeros, infinities and NaN.
static float random_float(bool special) {
  uint32_t bits = (uint32_t)rand() << 16 ^ (uint32_t)rand();
  if (special && rand() % 1000 == 0) return rand() % 2 ? INFINITY : NAN;
  return moert__float((bits & 0x807fffff) | (uint32_t)(rand() % 60 + 30) << 23);
}

static void test_tile(bool special) {
  static float rows[DEPTH * MOERT__TILE_ROWS], columns[MOERT__TILE_COLUMNS * DEPTH];
  for (int i = 0; i < DEPTH * MOERT__TILE_ROWS; ++i) rows[i] = random_float(special);
  for (int i = 0; i < DEPTH * MOERT__TILE_COLUMNS; ++i) columns[i] = random_float(special);
  moert__tile_sums selected, portable;
  moert__fma_tile_select()(DEPTH, rows, columns, &selected);
  moert__fma_tile_portable(DEPTH, rows, columns, &portable);
  for (int c = 0; c < MOERT__TILE_COLUMNS; ++c)
    for (int r = 0; r < MOERT__TILE_ROWS; ++r) {
      float sum = 0.0f;
      for (int k = 0; k < DEPTH; ++k) sum = fmaf(rows[k * MOERT__TILE_ROWS + r], columns[c * DEPTH + k], sum);
      expect(same(selected.of[c][r], sum), "the chosen instructions", c * MOERT__TILE_ROWS + r, (double)selected.of[c][r]);
      expect(same(portable.of[c][r], sum), "portable C", c * MOERT__TILE_ROWS + r, (double)portable.of[c][r]);
    }
}

int main(void) {
  test_exp();
  test_sigmoid();
  test_widening(&bf16);
  test_widening(&f16);
  test_narrowing(&bf16);
  test_narrowing(&f16);
  test_dispatch();
  for (int i = 0; i < 50; ++i) test_tile(i % 2);
  return failures != 0;
}

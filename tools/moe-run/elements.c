//===- elements.c - element types: names, .npy types, numbers -------------------------------------===//
#include "elements.h"

#include "text.h"

#include <math.h>
#include <string.h>

static const element_type types[] = {
    {{MOERT_CODE_FLOAT, 32, 1}, "f32", "<f4"},    {{MOERT_CODE_FLOAT, 64, 1}, "f64", "<f8"},
    {{MOERT_CODE_FLOAT, 16, 1}, "f16", "<f2"},    {{MOERT_CODE_BFLOAT, 16, 1}, "bf16", "<u2"},
    {{MOERT_CODE_INT, 8, 1}, "i8", "|i1"},        {{MOERT_CODE_INT, 16, 1}, "i16", "<i2"},
    {{MOERT_CODE_INT, 32, 1}, "i32", "<i4"},      {{MOERT_CODE_INT, 64, 1}, "i64", "<i8"},
    {{MOERT_CODE_UINT, 8, 1}, "ui8", "|u1"},      {{MOERT_CODE_UINT, 16, 1}, "ui16", "<u2"},
    {{MOERT_CODE_UINT, 32, 1}, "ui32", "<u4"},    {{MOERT_CODE_UINT, 64, 1}, "ui64", "<u8"},
    {{MOERT_CODE_BOOL, 8, 1}, "bool", "|b1"},     {{MOERT_CODE_F8E4M3FN, 8, 1}, "f8E4M3FN", "|u1"},
    {{MOERT_CODE_F8E5M2, 8, 1}, "f8E5M2", "|u1"}, {{MOERT_CODE_F8E8M0FNU, 8, 1}, "f8E8M0FNU", "|u1"},
};

const element_type *element_type_of(moert_dtype dtype) {
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    const moert_dtype *known = &types[i].dtype;
    if (known->code == dtype.code && known->bits == dtype.bits && known->lanes == dtype.lanes) return &types[i];
  }
  return NULL;
}

moert_dtype element_dtype(int64_t packed) {
  return (moert_dtype){(uint8_t)(packed & 0xff), (uint8_t)(packed >> 8 & 0xff), (uint16_t)(packed >> 16 & 0xffff)};
}

int64_t element_bytes(const element_type *type) { return type->dtype.bits / 8; }

bool element_is_float(const element_type *type) {
  uint8_t code = type->dtype.code;
  return code != MOERT_CODE_INT && code != MOERT_CODE_UINT && code != MOERT_CODE_BOOL;
}

static bool is_raw(const element_type *type) { return element_is_float(type) && type->npy[1] == 'u'; }

bool element_fits_npy(const element_type *type, const char *npy) {
  // NumPy writes the types of extension packages as untyped bytes: "<V2", "|V1".
  return strcmp(type->npy, npy) == 0 || (is_raw(type) && npy[1] == 'V' && strcmp(type->npy + 2, npy + 2) == 0);
}

//===--- floats of 8 and 16 bits ------------------------------------------------------------------===//

typedef struct float_format {
  int bits, mantissa, bias;
  bool infinities; // else the largest exponent holds numbers, and only all ones is NaN
} float_format;

static float_format format_of(const element_type *type) {
  switch (type->dtype.code) {
  case MOERT_CODE_BFLOAT: return (float_format){16, 7, 127, true};
  case MOERT_CODE_F8E4M3FN: return (float_format){8, 3, 7, false};
  case MOERT_CODE_F8E5M2: return (float_format){8, 2, 15, true};
  default: return (float_format){16, 10, 15, true};
  }
}

static double decode(float_format format, unsigned code) {
  unsigned magnitude = code & ((1u << (format.bits - 1)) - 1);
  unsigned mantissa = magnitude & ((1u << format.mantissa) - 1);
  int exponent = (int)(magnitude >> format.mantissa);
  int largest = (1 << (format.bits - 1 - format.mantissa)) - 1;
  double value;
  if (format.infinities ? exponent == largest && mantissa != 0 : magnitude == (1u << (format.bits - 1)) - 1)
    value = NAN;
  else if (format.infinities && exponent == largest)
    value = INFINITY;
  else if (exponent == 0)
    value = ldexp(mantissa, 1 - format.bias - format.mantissa);
  else
    value = ldexp(mantissa + (1u << format.mantissa), exponent - format.bias - format.mantissa);
  return code >> (format.bits - 1) ? -value : value;
}

// The nearest code, ties to even; a value out of range gives the code of an infinity or a NaN.
static unsigned encode(float_format format, double value) {
  unsigned sign = signbit(value) ? 1u << (format.bits - 1) : 0, most = (1u << (format.bits - 1)) - 1;
  int exponent;
  frexp(value, &exponent);
  if (exponent - 1 < 1 - format.bias || value == 0) exponent = 2 - format.bias;
  double scaled = nearbyint(ldexp(fabs(value), format.mantissa - (exponent - 1)));
  double code = ldexp(exponent + format.bias - 2, format.mantissa) + scaled;
  return sign | (code < most ? (unsigned)code : most);
}

//===--- numbers ----------------------------------------------------------------------------------===//

static int64_t read_signed(int bits, const void *element) {
  int8_t i8;
  int16_t i16;
  int32_t i32;
  int64_t i64;
  switch (bits) {
  case 8: return memcpy(&i8, element, sizeof i8), i8;
  case 16: return memcpy(&i16, element, sizeof i16), i16;
  case 32: return memcpy(&i32, element, sizeof i32), i32;
  default: return memcpy(&i64, element, sizeof i64), i64;
  }
}

// Little-endian, as .npy and every machine that this runs on.
static uint64_t read_unsigned(int bits, const void *element) {
  uint64_t value = 0;
  memcpy(&value, element, (size_t)bits / 8);
  return value;
}

static double read_float(int bits, const void *element) {
  float f32;
  double f64;
  if (bits == 32) return memcpy(&f32, element, sizeof f32), f32;
  return memcpy(&f64, element, sizeof f64), f64;
}

double element_widen(const element_type *type, const void *element) {
  int bits = type->dtype.bits;
  uint64_t raw;
  switch (type->dtype.code) {
  case MOERT_CODE_INT: return (double)read_signed(bits, element);
  case MOERT_CODE_BOOL:
  case MOERT_CODE_UINT: return (double)read_unsigned(bits, element);
  case MOERT_CODE_F8E8M0FNU: return raw = read_unsigned(bits, element), raw == 0xff ? NAN : ldexp(1, (int)raw - 127);
  default: break;
  }
  if (bits >= 32) return read_float(bits, element);
  return decode(format_of(type), (unsigned)read_unsigned(bits, element));
}

static bool parse_integer(const element_type *type, const char *text, void *element) {
  int bits = type->dtype.bits;
  int64_t number, limit = INT64_MAX >> (64 - bits);
  if (!parse_int64(text, &number) || number > limit || number < -limit - 1) return false;
  memcpy(element, &number, (size_t)bits / 8);
  return true;
}

static bool parse_natural(const element_type *type, const char *text, void *element) {
  int bits = type->dtype.bits;
  uint64_t number, limit = type->dtype.code == MOERT_CODE_BOOL ? 1 : UINT64_MAX >> (64 - bits);
  if (!parse_uint64(text, &number) || number > limit) return false;
  memcpy(element, &number, (size_t)bits / 8);
  return true;
}

static bool store_power_of_two(double number, void *element) {
  int exponent;
  if (frexp(number, &exponent) != 0.5 || exponent < -126 || exponent > 128) return false;
  uint8_t code = (uint8_t)(exponent + 126);
  memcpy(element, &code, sizeof code);
  return true;
}

static bool store_narrow(const element_type *type, double number, void *element) {
  unsigned code = encode(format_of(type), number);
  memcpy(element, &code, (size_t)element_bytes(type));
  return isfinite(decode(format_of(type), code));
}

// False if the number is out of range; infinities and NaN are within that of f32 and f64 only.
static bool store_float(const element_type *type, double number, void *element) {
  if (type->dtype.bits == 64) return memcpy(element, &number, sizeof number), true;
  if (type->dtype.bits == 32) {
    float narrow = (float)number;
    memcpy(element, &narrow, sizeof narrow);
    return isfinite(number) == isfinite(narrow);
  }
  if (!isfinite(number)) return false;
  return type->dtype.code == MOERT_CODE_F8E8M0FNU ? store_power_of_two(number, element) : store_narrow(type, number, element);
}

bool element_parse(const element_type *type, const char *text, void *element) {
  double number;
  if (type->dtype.code == MOERT_CODE_INT) return parse_integer(type, text, element);
  if (!element_is_float(type)) return parse_natural(type, text, element);
  return parse_double(text, &number) && store_float(type, number, element);
}

//===--- contents ---------------------------------------------------------------------------------===//

void elements_poison(const element_type *type, void *data, size_t bytes) {
  // All ones is a NaN in every float format here.
  memset(data, element_is_float(type) ? 0xff : 0x80, bytes);
}

static uint64_t next_random(uint64_t *state) { // splitmix64
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

// The sum of four uniform numbers: 0 to 4 * 65535.
static unsigned bell(uint64_t draw) { return (unsigned)((draw & 0xffff) + (draw >> 16 & 0xffff) + (draw >> 32 & 0xffff) + (draw >> 48)); }

static double bell_value(double sum) { return (sum - 131070 + 0.25) / 131072; }

static void fill_wide_floats(const element_type *type, char *data, int64_t count, uint64_t seed) {
  for (int64_t i = 0; i < count; ++i) store_float(type, bell_value(bell(next_random(&seed))), data + i * element_bytes(type));
}

// Weights have hundreds of millions of elements: a table spares rounding each.
static void fill_narrow_floats(const element_type *type, char *data, int64_t count, uint64_t seed) {
  enum { STEP = 256, VALUES = 4 * 65536 / STEP };
  unsigned table[VALUES];
  size_t bytes = (size_t)element_bytes(type);
  bool power = type->dtype.code == MOERT_CODE_F8E8M0FNU;
  for (unsigned i = 0; i < VALUES; ++i) table[i] = power ? 124 + i % 4 : encode(format_of(type), bell_value((i + 0.5) * STEP));
  for (int64_t i = 0; i < count; ++i) memcpy(data + (size_t)i * bytes, &table[bell(next_random(&seed)) / STEP], bytes);
}

static void fill_integers(const element_type *type, char *data, int64_t count, uint64_t seed) {
  size_t bytes = (size_t)element_bytes(type);
  uint64_t mask = type->dtype.code == MOERT_CODE_BOOL ? 1 : 7;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t number = next_random(&seed) >> 32 & mask;
    memcpy(data + (size_t)i * bytes, &number, bytes);
  }
}

void elements_fill_random(const element_type *type, void *data, int64_t count, uint64_t seed) {
  if (!element_is_float(type))
    fill_integers(type, data, count, seed);
  else if (type->dtype.bits >= 32)
    fill_wide_floats(type, data, count, seed);
  else
    fill_narrow_floats(type, data, count, seed);
}

//===- encode.c - numbers into codes and scales, on the host ------------------------------------------------===//

#include "lib/reference/encode.h"

#include <string.h>

//===--- scales -----------------------------------------------------------------------------------===//

void moert__encoder_clear(const moert__encoder *encoder, const moert_tensor *scales) {
  if (encoder->call->grid.layout != MOERT__LINEAR && moert__elements(scales) > 0) memset(encoder->scales, 0, (size_t)moert__row_bytes(scales, 0));
}

static float element_at(const moert__encoder *encoder, const moert__elements_of_row *elements, int64_t column) {
  return moert__load(encoder->call->type, elements->numbers, elements->first + column - elements->columns.first);
}

float moert__encoder_amax(const moert__encoder *encoder, float amax, const moert__elements_of_row *elements) {
  for (int64_t column = elements->columns.first; column < elements->columns.end; ++column)
    amax = moert__amax(encoder->call->format, amax, element_at(encoder, elements, column));
  return amax;
}

// Of formats whose scales are codes.
static moert__block_scale block_scale(const moert__encoder *encoder, float amax) {
  int format = encoder->call->format;
  if (format != MOERT__NVFP4) return moert__mx_scale(format, amax, encoder->even);
  return encoder->fast ? moert__nvfp4_scale_fast(amax, encoder->global) : moert__nvfp4_scale(amax, encoder->global);
}

float moert__encoder_scale(const moert__encoder *encoder, float amax, int64_t row, int64_t block) {
  int64_t offset = moert__scale_offset(&encoder->call->grid, row, block);
  if (!moert__has_code_scales(encoder->call->format)) {
    float scale = moert__fp8_scale(amax);
    ((float *)encoder->scales)[offset] = scale;
    return scale;
  }
  moert__block_scale scale = block_scale(encoder, amax);
  ((uint8_t *)encoder->scales)[offset] = (uint8_t)scale.code;
  return scale.encode;
}

//===--- codes ------------------------------------------------------------------------------------===//

static uint32_t code_of(const moert__quantized_call *call, float value, float factor) {
  bool divides = !moert__has_code_scales(call->format) && !call->global;
  float scaled = divides ? moert__divide(value, factor) : value * factor;
  return moert__is_packed(call->format) ? moert__f32_to_e2m1(scaled) : moert__f32_to_e4m3(scaled);
}

static void write_code(const moert__encoder *encoder, int64_t row, int64_t column, uint32_t code) {
  const moert__quantized_call *call = encoder->call;
  uint8_t *codes = encoder->codes + row * call->codes_stride;
  if (!moert__is_packed(call->format)) {
    codes[column] = (uint8_t)code;
    return;
  }
  uint8_t *pair = codes + moert__code_byte(call->mega, column);
  int shift = moert__code_shift(call->mega, column);
  *pair = (uint8_t)((*pair & ~(15u << shift)) | code << shift);
}

void moert__encoder_codes(const moert__encoder *encoder, float factor, const moert__elements_of_row *elements) {
  for (int64_t column = elements->columns.first; column < elements->columns.end; ++column)
    write_code(encoder, elements->row, column, code_of(encoder->call, element_at(encoder, elements, column), factor));
}

//===--- blocks -----------------------------------------------------------------------------------===//

void moert__encode_block(const moert__encoder *encoder, int64_t row, int64_t block, const void *numbers, int64_t first) {
  moert__elements_of_row elements = {row, moert__columns_of(encoder->call, block), numbers, first};
  float factor = moert__encoder_scale(encoder, moert__encoder_amax(encoder, 0.0f, &elements), row, block);
  moert__encoder_codes(encoder, factor, &elements);
}

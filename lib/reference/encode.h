//===- encode.h - numbers into codes and scales, on the host ------------------------------------------------===//
//
// What the ops that quantise share. lib/reference/formats.h has the arithmetic.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_ENCODE_H
#define MOERT_REFERENCE_ENCODE_H

#include "lib/reference/quantized.h"

// Where the codes and scales of a call go, and how scales are made.
typedef struct moert__encoder {
  const moert__quantized_call *call;
  uint8_t *codes;
  void *scales;
  float global; // G of nvfp4
  bool even, fast;
} moert__encoder;

// Elements of one row, of the type of the call: the one of column `columns.first` is numbers[first], the others follow.
typedef struct moert__elements_of_row {
  int64_t row;
  moert__block_columns columns;
  const void *numbers;
  int64_t first;
} moert__elements_of_row;

// Zero to all of a buffer of scales in a layout where bytes that stand for nothing lie between the others.
void moert__encoder_clear(const moert__encoder *encoder, const moert_tensor *scales);
// The larger of `amax` and the largest magnitude among the elements.
float moert__encoder_amax(const moert__encoder *encoder, float amax, const moert__elements_of_row *elements);
// Writes the scale of a block. Returns what its elements are multiplied with, or divided by if the scale is an f32.
float moert__encoder_scale(const moert__encoder *encoder, float amax, int64_t row, int64_t block);
void moert__encoder_codes(const moert__encoder *encoder, float factor, const moert__elements_of_row *elements);
// Scale and codes of a block, whose first element is numbers[first].
void moert__encode_block(const moert__encoder *encoder, int64_t row, int64_t block, const void *numbers, int64_t first);

#endif

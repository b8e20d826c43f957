//===- coded_rows.h - rows of 4-bit codes as numbers, on the host -----------------------------------------===//
//
// A number is code times scale, which f32 holds exactly.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_CODED_ROWS_H
#define MOERT_REFERENCE_CODED_ROWS_H

#include "lib/reference/formats.h"

// Two codes a byte, the first in the low half; scales are linear.
typedef struct moert__coded_rows {
  int format;            // MOERT__NVFP4 or MOERT__MXFP4
  int64_t columns;       // codes of a row: whole blocks
  int64_t stride;        // bytes from the codes of a row to those of the next
  const uint8_t *codes;  // [rows][columns / 2]
  const uint8_t *scales; // [rows][columns / block]
} moert__coded_rows;

// Column k becomes to[k * step].
static inline void moert__decode_row(const moert__coded_rows *rows, int64_t row, float *to, int64_t step) {
  const int block = moert__block_size(rows->format);
  const uint8_t *codes = rows->codes + row * rows->stride, *scales = rows->scales + row * (rows->columns / block);
  for (int64_t first = 0; first < rows->columns; first += block) {
    const uint32_t code = scales[first / block];
    const float scale = rows->format == MOERT__NVFP4 ? moert__e4m3_to_f32(code) : moert__e8m0_to_f32(code);
    for (int64_t k = first; k < first + block; ++k) to[k * step] = moert__e2m1_to_f32(codes[k / 2] >> (k % 2 * 4) & 15) * scale;
  }
}

// `count` rows from `first` on, one behind the other.
static inline void moert__decode_rows(const moert__coded_rows *rows, int64_t first, int count, float *to) {
  for (int i = 0; i < count; ++i) moert__decode_row(rows, first + i, to + i * rows->columns, 1);
}

#endif

//===- scales.cuh - scales of number formats in memory --------------------------------------------------===//
#ifndef MOE_KERNELS_SCALES_CUH
#define MOE_KERNELS_SCALES_CUH

#include "lib/reference/formats.h"

// The code of a scale, or the bits of an f32 scale, in its place.
__device__ inline void storeScale(const moert__quantized_call &call, int64_t offset, uint32_t code) {
  if (!moert__has_code_scales(call.format))
    static_cast<float *>(const_cast<void *>(call.scales))[offset] = moert__float(code);
  else
    static_cast<uint8_t *>(const_cast<void *>(call.scales))[offset] = static_cast<uint8_t>(code);
}

// Zero to the scales behind the last row and beside the last column: a row at a time, by `blocks` thread blocks, of which this is the one of that
// number, and by `threads` threads of each.
__device__ inline void zeroPadding(const moert__quantized_call &call, unsigned block, unsigned blocks, unsigned thread, unsigned threads) {
  const moert__scale_grid &grid = call.grid;
  for (int64_t row = block; row < grid.padded_rows; row += blocks)
    for (int64_t column = (row < grid.rows ? grid.columns : 0) + thread; column < grid.padded_columns; column += threads)
      storeScale(call, moert__scale_offset(&grid, row, column), 0);
}

inline bool hasPadding(const moert__scale_grid &grid) { return grid.padded_rows > grid.rows || grid.padded_columns > grid.columns; }

#endif

//===- routed_panels.h - the orders of prepared weights of moe.nvfp4_routed, for all sides ----------===//
#ifndef MOERT_REFERENCE_ROUTED_PANELS_H
#define MOERT_REFERENCE_ROUTED_PANELS_H

#include "lib/reference/numerics.h"
#include <stdbool.h>

// The optional inputs with weights or their scales, panel by panel, in the order of the op's operands and of the layouts of moe.prepare_nvfp4.
typedef enum moert__routed_prepared {
  MOERT__W1_SCALE,
  MOERT__W2_SCALE,
  MOERT__W1_DATA,
  MOERT__W1_GATE_UP_DATA,
  MOERT__W1_GATE_UP_SCALE,
  MOERT__W1_SCALE_INTERLEAVED,
  MOERT__W2_DATA,
  MOERT__W2_DATA_K256,
  MOERT__W2_SCALE_K256,
  MOERT__W1_FRAGMENTS,
  MOERT__W2_FRAGMENTS,
  MOERT__ROUTED_NUM_PREPARED
} moert__routed_prepared;

typedef enum moert__routed_contents { MOERT__CODES, MOERT__SCALES, MOERT__FRAGMENTS } moert__routed_contents; // fragments: codes and scales

// In which order the rows of an expert are taken, the first half of which are gates, the second ups.
typedef enum moert__routed_order {
  MOERT__AS_THEY_COME,
  MOERT__IN_EIGHTS,   // 8 gates, then their ups
  MOERT__INTERLEAVED, // 64 gates, then their ups
  MOERT__ADJACENT     // the 128 gates of a panel, then their ups
} moert__routed_order;

// A panel is so many rows and columns of gemm1_weights [E, N, K] or of gemm2_weights [E, K, N / 2]; its bytes are a matrix of `height` and `width`.
typedef struct moert__routed_panel {
  moert__routed_contents contents;
  bool down; // of gemm2_weights
  moert__routed_order order;
  int64_t rows, columns, height, width;
} moert__routed_panel;

MOERT__NUMERIC moert__routed_panel moert__routed_panel_of(int prepared) {
  const moert__routed_panel panels[MOERT__ROUTED_NUM_PREPARED] = {
      {MOERT__SCALES, false, MOERT__AS_THEY_COME, 128, 256, 16, 128}, // W1_SCALE
      {MOERT__SCALES, true, MOERT__AS_THEY_COME, 128, 128, 8, 128},   // W2_SCALE
      {MOERT__CODES, false, MOERT__AS_THEY_COME, 128, 256, 128, 128}, // W1_DATA
      {MOERT__CODES, false, MOERT__ADJACENT, 256, 256, 256, 128},     // W1_GATE_UP_DATA
      {MOERT__SCALES, false, MOERT__ADJACENT, 256, 256, 32, 128},     // W1_GATE_UP_SCALE
      {MOERT__SCALES, false, MOERT__INTERLEAVED, 128, 256, 16, 128},  // W1_SCALE_INTERLEAVED
      {MOERT__CODES, true, MOERT__AS_THEY_COME, 128, 128, 128, 64},   // W2_DATA
      {MOERT__CODES, true, MOERT__AS_THEY_COME, 128, 256, 128, 128},  // W2_DATA_K256
      {MOERT__SCALES, true, MOERT__AS_THEY_COME, 128, 256, 16, 128},  // W2_SCALE_K256
      {MOERT__FRAGMENTS, false, MOERT__IN_EIGHTS, 64, 128, 36, 128},  // W1_FRAGMENTS
      {MOERT__FRAGMENTS, true, MOERT__AS_THEY_COME, 64, 128, 36, 128} // W2_FRAGMENTS
  };
  return panels[prepared];
}

// How many panels there are of sizes that are multiples of a panel's; INT64_MAX if that has no 64-bit value.
static inline int64_t moert__routed_panels(moert__routed_panel panel, int64_t experts, int64_t n, int64_t k) {
  int64_t count = experts;
  if (__builtin_mul_overflow(count, (panel.down ? k : n) / panel.rows, &count)) return INT64_MAX;
  if (__builtin_mul_overflow(count, (panel.down ? n / 2 : k) / panel.columns, &count)) return INT64_MAX;
  return count;
}

//===--- bytes ------------------------------------------------------------------------------------===//

// Bytes of a row of what a panel is made of: of fragments those of the codes.
MOERT__NUMERIC int64_t moert__routed_row_bytes(moert__routed_panel panel) {
  return panel.contents == MOERT__SCALES ? panel.columns / 16 : panel.columns / 2;
}

// Which of an expert's `rows` is row r of its panel number p.
MOERT__NUMERIC int64_t moert__routed_source_row(moert__routed_panel panel, int64_t rows, int64_t p, int64_t r) {
  const int64_t row = p * panel.rows + r, unit = panel.order == MOERT__IN_EIGHTS ? 8 : panel.order == MOERT__INTERLEAVED ? 64 : 128;
  if (panel.order == MOERT__AS_THEY_COME) return row;
  return (row / unit % 2 ? rows / 2 : 0) + row / unit / 2 * unit + row % unit;
}

// Where byte `byte` of row r lies in its panel, which is not one of fragments. Codes lie row by row; scales in such an order in each 128 rows that
// those of rows 32 apart are neighbours.
MOERT__NUMERIC int64_t moert__routed_offset(moert__routed_panel panel, int64_t r, int64_t byte) {
  const int64_t bytes = moert__routed_row_bytes(panel), words = bytes / 4;
  if (panel.contents == MOERT__CODES) return r * bytes + byte;
  const int64_t g = r % 128 / 32, c = r % 32 / 8, d = r % 8;
  return r / 128 * (128 * bytes) + ((words * c + byte / 4) * 8 + d) * 16 + 4 * g + byte % 4;
}

#endif

//===- routed_panels.h - the shapes of prepared weights of moe.nvfp4_routed, for compile side and host ----===//
#ifndef MOERT_REFERENCE_ROUTED_PANELS_H
#define MOERT_REFERENCE_ROUTED_PANELS_H

#include <stdbool.h>
#include <stdint.h>

// The optional inputs with weights or their scales, panel by panel, in the order of the op's operands.
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
  MOERT__ROUTED_NUM_PREPARED
} moert__routed_prepared;

// A panel is so many rows and columns of gemm1_weights [E, N, K] or of gemm2_weights [E, K, N / 2]; its bytes are a matrix of `height` and `width`.
typedef struct moert__routed_panel {
  bool down; // of gemm2_weights
  int64_t rows, columns, height, width;
} moert__routed_panel;

static inline moert__routed_panel moert__routed_panel_of(int prepared) {
  static const moert__routed_panel panels[MOERT__ROUTED_NUM_PREPARED] = {
      {false, 128, 256, 16, 128}, {true, 128, 128, 8, 128},  {false, 128, 256, 128, 128}, {false, 256, 256, 256, 128}, {false, 256, 256, 32, 128},
      {false, 128, 256, 16, 128}, {true, 128, 128, 128, 64}, {true, 128, 256, 128, 128},  {true, 128, 256, 16, 128}};
  return panels[prepared];
}

// How many panels there are of sizes that are multiples of a panel's; INT64_MAX if that has no 64-bit value.
static inline int64_t moert__routed_panels(moert__routed_panel panel, int64_t experts, int64_t n, int64_t k) {
  int64_t count = experts;
  if (__builtin_mul_overflow(count, (panel.down ? k : n) / panel.rows, &count)) return INT64_MAX;
  if (__builtin_mul_overflow(count, (panel.down ? n / 2 : k) / panel.columns, &count)) return INT64_MAX;
  return count;
}

#endif

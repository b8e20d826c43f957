//===- reduction.h - what the all-reduces with residual and norm share ------------------------------===//
#ifndef MOERT_REFERENCE_REDUCTION_H
#define MOERT_REFERENCE_REDUCTION_H

#include "lib/reference/formats.h"
#include "lib/reference/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

// In the order of the ops' parameter `strategy`.
enum { MOERT__STRATEGY_AUTO, MOERT__STRATEGY_ONE_SHOT, MOERT__STRATEGY_TWO_SHOT };

// One call. An op sets what comes from its operands and parameters; `moert__reduction_check` what follows from it.
typedef struct moert__reduction {
  moert_context *context;
  const moert_tensor *residual, *gamma, *workspace_memory, *metainfo;
  const moert_tensor *sum_out, *residual_out, *norm_out, *quant_out, *scale_out; // NULL: not there
  const char *gamma_name, *all_outputs;                                          // in texts
  int64_t hidden, fp32_acc, strategy, world_size, quant_format, scale_layout;    // quant_format: 0, or 1 + a moert__quantized
  double rms_eps, weight_bias, scale_factor;

  int64_t tokens, row_bytes; // `row_bytes`: of a part on its way
  moert__format format, part_format;
  moert__workspace workspace;
  moert__quantized_call quantized; // if there is a quant_out
  float factor;                    // scale_factor
} moert__reduction;

// The sum of squares of a token: this many columns, sums, sums of sums are added at a time.
enum { MOERT__REDUCTION_VECTOR = 8, MOERT__REDUCTION_WIDTH = 32 };

// The nearest value of an element type.
MOERT__NUMERIC float moert__round_to(moert__format format, float value) {
  union {
    uint16_t half;
    float single;
  } element;
  moert__store(format, &element, 0, value);
  return moert__load(format, &element, 0);
}

// Rows for the tokens of residual_in, of its element type, if the operand is there.
moert_status moert__reduction_check_rows(const moert__reduction *call, const moert_tensor *tensor, const char *name);
moert_status moert__reduction_check_dtype(const moert__reduction *call, const moert_tensor *tensor, const char *name);

// What an op checks of its own operands: shapes and element types, and that they do not lie where the call receives.
typedef struct moert__reduction_operands {
  moert_status (*check)(const moert__reduction *call, const void *own);
  moert_status (*check_apart)(const moert__reduction *call, const void *own);
  const void *own;
} moert__reduction_operands;

// All checks, which read neither the slab nor any tensor's elements but metainfo's.
moert_status moert__reduction_check(moert__reduction *call, const moert__reduction_operands *operands);
// What all ranks must agree on; `op` is a first value of hashes.
uint32_t moert__reduction_hash(const moert__reduction *call, int op);

//===--- the host backend ---------------------------------------------------------------------------===//

// This rank's part of an element; it is rounded to the type of parts.
typedef float moert__reduction_part(const moert__reduction *call, const void *own, int64_t token, int64_t column);
moert_status moert__reduction_run(moert__reduction *call, uint32_t hash, moert__reduction_part *part, const void *own);

#ifdef __cplusplus
}
#endif
#endif

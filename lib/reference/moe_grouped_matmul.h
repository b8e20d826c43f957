//===- moe_grouped_matmul.h - moe.grouped_matmul on every backend -----------------------------------===//
#ifndef MOERT_REFERENCE_MOE_GROUPED_MATMUL_H
#define MOERT_REFERENCE_MOE_GROUPED_MATMUL_H

#include "lib/reference/formats.h"
#include "lib/reference/swiglu.h"
#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moert__grouped_matmul_operand {
  moert__format format;
  void *data; // NULL: absent
} moert__grouped_matmul_operand;

// Weights of 4 bits.
typedef struct moert__grouped_matmul_codes {
  bool there;                 // else the weights are numbers
  int format;                 // MOERT__NVFP4 or MOERT__MXFP4
  const uint8_t *values;      // [groups][columns][depth / 2]
  const uint8_t *scales;      // [groups][columns][depth / block]
  const float *global_scales; // [groups], may be NULL
} moert__grouped_matmul_codes;

// What the shapes and parameters of a call come to.
typedef struct moert__grouped_matmul {
  bool swiglu;
  moert__swiglu_form form;
  int64_t groups, rows, columns, depth; // `rows` are those of `out`, `columns` of the weights
  int64_t in_rows, out_columns;
  moert__grouped_matmul_operand in, weights, bias, out; // no weights if there are codes
  moert__grouped_matmul_codes codes;
  const float *row_weights; // may be NULL
} moert__grouped_matmul;

// The checks C1 to C10, which read no tensor's elements; sets *call if all hold. What is left to check are the offsets and the row ids.
MOERT__SHARED moert_status moert__grouped_matmul_check(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args,
                                                       moert__grouped_matmul *call);

#ifdef __cplusplus
}
#endif
#endif

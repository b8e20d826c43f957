//===- moe_grouped_matmul.h - moe.grouped_matmul on every backend -----------------------------------===//
#ifndef MOERT_REFERENCE_MOE_GROUPED_MATMUL_H
#define MOERT_REFERENCE_MOE_GROUPED_MATMUL_H

#include "lib/reference/swiglu.h"
#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moert__grouped_matmul_operand {
  moert__format format;
  void *data; // NULL: absent
} moert__grouped_matmul_operand;

// What the shapes and parameters of a call come to.
typedef struct moert__grouped_matmul {
  bool swiglu;
  moert__swiglu_form form;
  int64_t groups, rows, columns, depth; // `rows` are those of `out`, `columns` of the weights
  int64_t in_rows, out_columns;
  moert__grouped_matmul_operand in, weights, bias, out;
  const float *row_weights; // may be NULL
} moert__grouped_matmul;

// The checks C1 to C7, which read no tensor's elements; sets *call if all hold. What is left to check are the offsets and the row ids.
MOERT__SHARED moert_status moert__grouped_matmul_check(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args,
                                                       moert__grouped_matmul *call);

#ifdef __cplusplus
}
#endif
#endif

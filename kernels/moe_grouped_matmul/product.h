//===- product.h - grouped products of other ops' launchers ----------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_PRODUCT_H
#define MOE_KERNELS_GROUPED_MATMUL_PRODUCT_H

#include "lib/runtime/shared.h"

// out[r, :] = act(in[rowIds[r], :] . weights[g]^T * factors[g]) for the rows r of group g, offsets[g] <= r < offsets[g + 1], by the kernels of
// moe.grouped_matmul. Kernels in front of it on the stream may write all that it reads.
struct GroupedProduct {
  int64_t groups, rows, inRows;  // `rows`: of out
  int64_t expectedRows;          // of groups: offsets may leave others out
  int64_t columns, depth;        // of the weights
  const uint16_t *in;            // [inRows][depth] of bf16
  const uint8_t *codes, *scales; // NVFP4: [groups][columns][depth / 2] and [groups][columns][depth / 16]
  const uint8_t *fragments;      // the same, as moe.prepare_nvfp4 makes w1_fragments if there is `swiglu`, else w2_fragments; NULL: not there
  const float *factors[2];       // [groups]: of the sums; with `swiglu` of the gates' and of the up projections'
  const int32_t *offsets;        // [groups + 1]
  const int32_t *rowIds;         // [rows]; NULL: row r is in[r]. Not checked
  float *out;                    // [rows][columns], with `swiglu` [rows][columns / 2]
  bool swiglu;                   // the first half of a group's weight rows is the gate
  int op;                        // that a fault names
};

// Takes scratch from the context's arena, which the caller rewinds.
moert_status launchGroupedProduct(const GroupedProduct &product, moert_context *context);

#endif

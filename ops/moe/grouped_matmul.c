//===- grouped_matmul.c - moe.grouped_matmul ------------------------------------------------------===//

#include "lib/ir/lowering.h"

static bool isSwiglu(MlirOperation op) { return moeInt(op, "activation") == MOE_GROUPED_MATMUL_ACTIVATION_SWIGLU; }

static MlirLogicalResult checkMultiple(MlirOperation op, const char *what, int64_t size, int64_t unit) {
  if (size == MOE_DYNAMIC || size % unit == 0) return MOE_OK;
  return moeError(op, "%s is %lld, must be a multiple of %lld", what, (long long)size, (long long)unit);
}

// C7: the clamp belongs to swiglu, alpha to the clamp.
static MlirLogicalResult checkClamp(MlirOperation op) {
  double limit = moeFloat(op, "limit"), alpha = moeFloat(op, "alpha");
  if (limit < 0) return moeError(op, "limit is %g, must be at least 0 (0: no clamp)", limit);
  if (limit > 0 && !isSwiglu(op)) return moeError(op, "limit = %g needs activation = \"swiglu\"", limit);
  if (alpha != 1.0 && limit == 0) return moeError(op, "alpha = %g needs a limit greater than 0", alpha);
  return MOE_OK;
}

MlirLogicalResult moe_grouped_matmul_verify(MlirOperation op) {
  MlirValue rows = moeOperand(op, MOE_GROUPED_MATMUL_ROWS), weights = moeOperand(op, MOE_GROUPED_MATMUL_WEIGHTS);
  int64_t k = moeDim(rows, 1), groups = moeDim(weights, 0), n = moeDim(weights, 1);
  int64_t columns = n == MOE_DYNAMIC ? MOE_DYNAMIC : isSwiglu(op) ? n / 2 : n;
  bool gathered = !mlirValueIsNull(moeOperand(op, MOE_GROUPED_MATMUL_ROW_IDS));
  MOE_TRY(checkClamp(op));                                                             // C7
  MOE_TRY(checkMultiple(op, "the row size K of 'rows'", k, 8));                        // C1
  MOE_TRY(checkMultiple(op, "the number N of weight rows", n, isSwiglu(op) ? 16 : 8)); // C2
  MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_WEIGHTS, 2, MOE_GROUPED_MATMUL_ROWS, 1));
  if (!mlirTypeEqual(moeElementType(rows), moeElementType(weights))) return moeError(op, "'rows' and 'weights' must have the same element type");
  if (groups != MOE_DYNAMIC) // C3
    MOE_TRY(moeCheckDim(op, MOE_GROUPED_MATMUL_OFFSETS, 0, groups < INT64_MAX ? groups + 1 : groups, "the number of groups + 1"));
  MOE_TRY(moeCheckDim(op, MOE_GROUPED_MATMUL_OUT, 1, columns, isSwiglu(op) ? "N / 2 (swiglu)" : "N")); // C4
  MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_OUT, 0, gathered ? MOE_GROUPED_MATMUL_ROW_IDS : MOE_GROUPED_MATMUL_ROWS, 0));
  if (!mlirValueIsNull(moeOperand(op, MOE_GROUPED_MATMUL_BIAS))) { // C5
    MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_BIAS, 0, MOE_GROUPED_MATMUL_WEIGHTS, 0));
    MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_BIAS, 1, MOE_GROUPED_MATMUL_WEIGHTS, 1));
  }
  return moeCheckSameDim(op, MOE_GROUPED_MATMUL_ROW_WEIGHTS, 0, MOE_GROUPED_MATMUL_OUT, 0); // C6
}

MlirLogicalResult moe_grouped_matmul_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

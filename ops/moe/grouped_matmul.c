//===- grouped_matmul.c - moe.grouped_matmul ------------------------------------------------------===//

#include "lib/ir/lowering.h"
#include "lib/reference/formats.h"
#include "ops/moe/formats.h"

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

//===--- weights ----------------------------------------------------------------------------------===//

static bool isThere(MlirOperation op, int index) { return !mlirValueIsNull(moeOperand(op, index)); }

static bool hasCodes(MlirOperation op) { return moeInt(op, "weight_format") != MOE_GROUPED_MATMUL_WEIGHT_FORMAT_NONE; }

// MOE_DYNAMIC stays.
static int64_t divided(int64_t size, int64_t by) { return size == MOE_DYNAMIC ? size : size / by; }

static MlirLogicalResult checkPlainWeights(MlirOperation op) {
  MlirType rows = moeElementType(moeOperand(op, MOE_GROUPED_MATMUL_ROWS)), weights = moeElementType(moeOperand(op, MOE_GROUPED_MATMUL_WEIGHTS));
  MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_WEIGHTS, 2, MOE_GROUPED_MATMUL_ROWS, 1)); // C2
  if (!mlirTypeEqual(rows, weights)) return moeError(op, "'rows' and 'weights' must have the same element type");
  if (isThere(op, MOE_GROUPED_MATMUL_WEIGHT_SCALES)) // C9
    return moeError(op, "operand 'weight_scales' is there, but weight_format is none: name the format, or leave it out");
  if (isThere(op, MOE_GROUPED_MATMUL_WEIGHT_GLOBAL_SCALE)) // C10
    return moeError(op, "operand 'weight_global_scale' goes with weight_format = \"nvfp4\", but it is none: leave it out");
  return MOE_OK;
}

// C10
static MlirLogicalResult checkGlobalScale(MlirOperation op, int format) {
  if (!isThere(op, MOE_GROUPED_MATMUL_WEIGHT_GLOBAL_SCALE)) return MOE_OK;
  if (format != MOERT__NVFP4)
    return moeError(op, "operand 'weight_global_scale' goes with weight_format = \"nvfp4\", but it is %s: leave it out",
                    moeCase(op, "weight_format"));
  return moeCheckSameDim(op, MOE_GROUPED_MATMUL_WEIGHT_GLOBAL_SCALE, 0, MOE_GROUPED_MATMUL_WEIGHTS, 0);
}

// C9
static MlirLogicalResult checkScales(MlirOperation op, int64_t k, int block) {
  MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_WEIGHT_SCALES, 0, MOE_GROUPED_MATMUL_WEIGHTS, 0));
  MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_WEIGHT_SCALES, 1, MOE_GROUPED_MATMUL_WEIGHTS, 1));
  return moeCheckDim(op, MOE_GROUPED_MATMUL_WEIGHT_SCALES, 2, divided(k, block), block == 16 ? "K / 16" : "K / 32");
}

static MlirLogicalResult checkCodes(MlirOperation op, int64_t k) {
  const int format = moeInt(op, "weight_format") == MOE_GROUPED_MATMUL_WEIGHT_FORMAT_NVFP4 ? MOERT__NVFP4 : MOERT__MXFP4;
  const int block = moert__block_size(format);
  const MoeQuantized codes = {
      .format = format, .formatName = moeCase(op, "weight_format"), .values = MOE_GROUPED_MATMUL_WEIGHTS, .scales = MOE_GROUPED_MATMUL_WEIGHT_SCALES};
  if (!mlirTypeIsABF16(moeElementType(moeOperand(op, MOE_GROUPED_MATMUL_ROWS)))) // C2
    return moeError(op, "'rows' must be of bf16 with weight_format = \"%s\"", codes.formatName);
  MOE_TRY(moeCheckDim(op, MOE_GROUPED_MATMUL_WEIGHTS, 2, divided(k, 2), "half of the row size K of 'rows'"));
  MOE_TRY(checkMultiple(op, "the row size K of 'rows', which is in blocks,", k, block)); // C8
  if (!isThere(op, MOE_GROUPED_MATMUL_WEIGHT_SCALES))                                    // C9
    return moeError(op, "operand 'weight_scales' is not there, but weight_format is %s: add it", codes.formatName);
  MOE_TRY(moeCheckElementTypes(op, &codes));
  MOE_TRY(checkScales(op, k, block));
  return checkGlobalScale(op, format);
}

//===----------------------------------------------------------------------------------------------===//

MlirLogicalResult moe_grouped_matmul_verify(MlirOperation op) {
  MlirValue rows = moeOperand(op, MOE_GROUPED_MATMUL_ROWS), weights = moeOperand(op, MOE_GROUPED_MATMUL_WEIGHTS);
  int64_t k = moeDim(rows, 1), groups = moeDim(weights, 0), n = moeDim(weights, 1);
  int64_t columns = isSwiglu(op) ? divided(n, 2) : n;
  MOE_TRY(checkClamp(op));                                                             // C7
  MOE_TRY(checkMultiple(op, "the row size K of 'rows'", k, 8));                        // C1
  MOE_TRY(checkMultiple(op, "the number N of weight rows", n, isSwiglu(op) ? 16 : 8)); // C2
  MOE_TRY(hasCodes(op) ? checkCodes(op, k) : checkPlainWeights(op));
  if (groups != MOE_DYNAMIC) // C3
    MOE_TRY(moeCheckDim(op, MOE_GROUPED_MATMUL_OFFSETS, 0, groups < INT64_MAX ? groups + 1 : groups, "the number of groups + 1"));
  MOE_TRY(moeCheckDim(op, MOE_GROUPED_MATMUL_OUT, 1, columns, isSwiglu(op) ? "N / 2 (swiglu)" : "N")); // C4
  MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_OUT, 0,
                          isThere(op, MOE_GROUPED_MATMUL_ROW_IDS) ? MOE_GROUPED_MATMUL_ROW_IDS : MOE_GROUPED_MATMUL_ROWS, 0));
  if (isThere(op, MOE_GROUPED_MATMUL_BIAS)) { // C5
    MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_BIAS, 0, MOE_GROUPED_MATMUL_WEIGHTS, 0));
    MOE_TRY(moeCheckSameDim(op, MOE_GROUPED_MATMUL_BIAS, 1, MOE_GROUPED_MATMUL_WEIGHTS, 1));
  }
  return moeCheckSameDim(op, MOE_GROUPED_MATMUL_ROW_WEIGHTS, 0, MOE_GROUPED_MATMUL_OUT, 0); // C6
}

MlirLogicalResult moe_grouped_matmul_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

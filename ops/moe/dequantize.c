//===- dequantize.c - moe.dequantize --------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"
#include "ops/moe/formats.h"

MlirLogicalResult moe_dequantize_verify(MlirOperation op) {
  static const MoeQuantizedOperands operands = {MOE_DEQUANTIZE_OUT, MOE_DEQUANTIZE_VALUES, MOE_DEQUANTIZE_SCALES, MOE_DEQUANTIZE_GLOBAL_SCALE};
  return moeVerifyQuantized(op, &operands); // C1 to C8
}

//===--- canonicalisation -------------------------------------------------------------------------===//

static bool roundsToNearestEven(MlirOperation truncation) {
  MlirAttribute mode = mlirOperationGetAttributeByName(truncation, mlirStringRefCreateFromCString("roundingmode"));
  return mlirAttributeIsNull(mode) || mlirIntegerAttrGetValueInt(mode) == 0;
}

// The arith.truncf to bf16 or f16 that alone uses the value, or null.
static MlirOperation onlyTruncation(MlirValue value) {
  MlirOpOperand use = mlirValueGetFirstUse(value);
  if (mlirOpOperandIsNull(use) || !mlirOpOperandIsNull(mlirOpOperandGetNextUse(use))) return (MlirOperation){NULL};
  MlirOperation user = mlirOpOperandGetOwner(use);
  if (!moeIs(user, "arith.truncf") || !roundsToNearestEven(user)) return (MlirOperation){NULL};
  MlirType type = moeElementType(mlirOperationGetResult(user, 0));
  return mlirTypeIsABF16(type) || mlirTypeIsAF16(type) ? user : (MlirOperation){NULL};
}

static MlirValue insert(MlirRewriterBase rewriter, MlirOperation op) { return mlirOperationGetResult(mlirRewriterBaseInsert(rewriter, op), 0); }

static MlirValue buildSize(MlirRewriterBase rewriter, MlirLocation location, MlirValue tensor, intptr_t dim) {
  MlirContext mlir = mlirRewriterBaseGetContext(rewriter);
  MlirType index = mlirIndexTypeGet(mlir);
  MlirNamedAttribute value = moeNamed(mlir, "value", mlirIntegerAttrGet(index, dim));
  MlirValue number = insert(rewriter, moeCreate(location, "arith.constant", 0, NULL, 1, &index, 1, &value));
  return insert(rewriter, moeCreate(location, "tensor.dim", 2, (MlirValue[]){tensor, number}, 1, &index, 0, NULL));
}

// A tensor of the type with the sizes of another.
static MlirValue buildEmpty(MlirRewriterBase rewriter, MlirLocation location, MlirType type, MlirValue sizes) {
  MlirValue dynamic[2];
  intptr_t count = 0;
  for (intptr_t dim = 0; dim < 2; ++dim)
    if (moeDim(sizes, dim) == MOE_DYNAMIC) dynamic[count++] = buildSize(rewriter, location, sizes, dim);
  return insert(rewriter, moeCreate(location, "tensor.empty", count, dynamic, 1, &type, 0, NULL));
}

// A result of f32 that is only rounded further has that type at once. The op rounds to f32 first, and then to the type of `out`: the bits are the
// same.
static MlirLogicalResult roundAtOnce(MlirOperation op, MlirRewriterBase rewriter) {
  if (mlirOperationGetNumResults(op) == 0 || !mlirTypeIsAF32(moeElementType(moeOperand(op, MOE_DEQUANTIZE_OUT)))) return MOE_FAIL;
  MlirValue result = mlirOperationGetResult(op, 0);
  MlirOperation truncation = onlyTruncation(result);
  if (mlirOperationIsNull(truncation)) return MOE_FAIL;
  MlirType type = mlirValueGetType(mlirOperationGetResult(truncation, 0));
  mlirRewriterBaseSetInsertionPointBefore(rewriter, op);
  MlirValue out = buildEmpty(rewriter, mlirOperationGetLocation(op), type, moeOperand(op, MOE_DEQUANTIZE_OUT));
  mlirRewriterBaseStartOpModification(rewriter, op);
  mlirOperationSetOperand(op, moeOperandRange(op, MOE_DEQUANTIZE_OUT).first, out);
  mlirValueSetType(result, type);
  mlirRewriterBaseFinalizeOpModification(rewriter, op);
  mlirRewriterBaseReplaceOpWithValues(rewriter, truncation, 1, &result);
  return MOE_OK;
}

MlirLogicalResult moe_dequantize_canonicalize(MlirOperation op, MlirRewriterBase rewriter) { return roundAtOnce(op, rewriter); }

//===----------------------------------------------------------------------------------------------===//

MlirLogicalResult moe_dequantize_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

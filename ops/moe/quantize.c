//===- quantize.c - moe.quantize ------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"
#include "ops/moe/formats.h"

MlirLogicalResult moe_quantize_verify(MlirOperation op) {
  static const MoeQuantizedOperands operands = {MOE_QUANTIZE_INPUT, MOE_QUANTIZE_VALUES, MOE_QUANTIZE_SCALES, MOE_QUANTIZE_GLOBAL_SCALE};
  static const unsigned mx = 1 << MOE_QUANTIZE_FORMAT_MXFP4 | 1 << MOE_QUANTIZE_FORMAT_MXFP8, nvfp4 = 1 << MOE_QUANTIZE_FORMAT_NVFP4;
  if (moeInt(op, "scale_rounding") == MOE_QUANTIZE_SCALE_ROUNDING_EVEN)
    MOE_TRY(moeCheckGoesWith(op, "scale_rounding = even", mx, "mxfp4 and mxfp8", "leave it up"));                        // C8
  if (moeInt(op, "fast_reciprocal")) MOE_TRY(moeCheckGoesWith(op, "fast_reciprocal", nvfp4, "nvfp4", "leave it false")); // C9
  return moeVerifyQuantized(op, &operands);                                                                              // C1 to C7, C10
}

//===--- canonicalisation -------------------------------------------------------------------------===//

static bool is16BitFloat(MlirType type) { return mlirTypeIsABF16(type) || mlirTypeIsAF16(type); }

// An input that was widened is read as it was: the op widens what it reads itself.
static MlirLogicalResult readUnwidened(MlirOperation op, MlirRewriterBase rewriter) {
  MlirOperation widening = moeProducer(moeOperand(op, MOE_QUANTIZE_INPUT), "arith.extf");
  if (mlirOperationIsNull(widening)) return MOE_FAIL;
  MlirValue narrow = mlirOperationGetOperand(widening, 0);
  if (!is16BitFloat(moeElementType(narrow))) return MOE_FAIL;
  mlirRewriterBaseStartOpModification(rewriter, op);
  mlirOperationSetOperand(op, moeOperandRange(op, MOE_QUANTIZE_INPUT).first, narrow);
  mlirRewriterBaseFinalizeOpModification(rewriter, op);
  return MOE_OK;
}

// Whether the op finds the numbers of all codes and scales again, in its input's type. A block's largest code c becomes a scale and a code for c
// times the old scale; the other codes of the block can follow if the new scale is the old one over a power of two by which they can be multiplied.
// - mxfp4: it is the old one over 1, 2, 4 or 8. bf16 holds all products, f16 does not. A product beyond f32 becomes an infinity, and that the largest
//   code with the largest scale, which stand for an infinity again.
// - mxfp8, rounded up: likewise; bf16 does not hold the smallest products.
// - mxfp8, rounded to even: of c = 240 the scale is half of the old one, and 480 would saturate.
// - nvfp4: if c is not 6, 3 or 1.5, the new scale is not the old one over a power of two, or it is none of E4M3.
// - The others divide by 448 and multiply again, each time with a rounding.
static bool isReversible(MlirOperation op) {
  MlirType type = moeElementType(moeOperand(op, MOE_QUANTIZE_INPUT));
  switch (moeInt(op, "format")) {
  case MOE_QUANTIZE_FORMAT_MXFP4: return mlirTypeIsAF32(type) || mlirTypeIsABF16(type);
  case MOE_QUANTIZE_FORMAT_MXFP8: return mlirTypeIsAF32(type) && moeInt(op, "scale_rounding") == MOE_QUANTIZE_SCALE_ROUNDING_UP;
  default: return false;
  }
}

// Padding of scales is zero behind this op, but may be anything before moe.dequantize, which does not read it.
static bool mayHavePadding(MlirOperation op) {
  MlirValue input = moeOperand(op, MOE_QUANTIZE_INPUT), scales = moeOperand(op, MOE_QUANTIZE_SCALES);
  int64_t tokens = moeDim(input, 0), hidden = moeDim(input, 1), rows = moeDim(scales, 0), columns = moeDim(scales, 1);
  if (moeInt(op, "scale_layout") == MOE_QUANTIZE_SCALE_LAYOUT_LINEAR) return false;
  return tokens == MOE_DYNAMIC || hidden == MOE_DYNAMIC || rows != tokens || columns != hidden / 32;
}

// Whether `value` can take the place of what the op writes into a destination. A destination that someone else knows, as the caller of a graph does,
// must be written.
static bool canReplace(MlirValue value, MlirValue destination) {
  return !mlirOperationIsNull(moeProducer(destination, "tensor.empty")) && mlirTypeEqual(mlirValueGetType(value), mlirValueGetType(destination));
}

static bool isMadeBy(MlirValue value, MlirOperation op) { return mlirValueIsAOpResult(value) && mlirOperationEqual(mlirOpResultGetOwner(value), op); }

// Codes and scales that moe.dequantize made the input of take the place of the op's results: they stand for the same numbers.
static MlirLogicalResult useOriginal(MlirOperation op, MlirRewriterBase rewriter) {
  MlirOperation before = moeProducer(moeOperand(op, MOE_QUANTIZE_INPUT), "moe.dequantize");
  if (mlirOperationIsNull(before) || !isReversible(op) || mayHavePadding(op)) return MOE_FAIL;
  static const char *const alike[] = {"format", "scale_layout", "packing"};
  for (size_t i = 0; i < sizeof alike / sizeof *alike; ++i)
    if (moeInt(op, alike[i]) != moeInt(before, alike[i])) return MOE_FAIL;
  MlirValue original[2] = {moeOperand(before, MOE_DEQUANTIZE_VALUES), moeOperand(before, MOE_DEQUANTIZE_SCALES)};
  if (!canReplace(original[0], moeOperand(op, MOE_QUANTIZE_VALUES)) || !canReplace(original[1], moeOperand(op, MOE_QUANTIZE_SCALES))) return MOE_FAIL;
  if (isMadeBy(original[0], op) || isMadeBy(original[1], op)) return MOE_FAIL; // a circle, in unreachable code or a graph region
  mlirRewriterBaseReplaceOpWithValues(rewriter, op, 2, original);
  return MOE_OK;
}

MlirLogicalResult moe_quantize_canonicalize(MlirOperation op, MlirRewriterBase rewriter) {
  if (mlirLogicalResultIsSuccess(readUnwidened(op, rewriter))) return MOE_OK;
  return useOriginal(op, rewriter);
}

//===----------------------------------------------------------------------------------------------===//

MlirLogicalResult moe_quantize_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

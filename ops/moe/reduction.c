//===- reduction.c - what the all-reduces with residual and norm share ---------------------------===//

#include "ops/moe/reduction.h"
#include "lib/reference/formats.h"
#include "ops/moe/formats.h"

static const char *operandName(MlirOperation op, int index) { return moeOpOf(op)->operands[index].name; }
static bool isThere(MlirOperation op, int index) { return index >= 0 && !mlirValueIsNull(moeOperand(op, index)); }

//===--- rows -------------------------------------------------------------------------------------===//

// C6
MlirLogicalResult moeCheckReducedType(MlirOperation op, const MoeReduction *reduction, int index) {
  if (mlirTypeEqual(moeElementType(moeOperand(op, index)), moeElementType(moeOperand(op, reduction->residual)))) return MOE_OK;
  return moeError(op, "operand '%s' must have the element type of 'residual_in'", operandName(op, index));
}

MlirLogicalResult moeCheckReducedRows(MlirOperation op, const MoeReduction *reduction, int index) {
  if (!isThere(op, index)) return MOE_OK;
  MOE_TRY(moeCheckDim(op, index, 1, moeInt(op, "hidden_size"), "hidden_size"));
  MOE_TRY(moeCheckSameDim(op, index, 0, reduction->residual, 0));
  return moeCheckReducedType(op, reduction, index);
}

// C5
static MlirLogicalResult checkDestinations(MlirOperation op, const MoeReduction *reduction) {
  const int destinations[] = {reduction->sumOut, reduction->residualOut, reduction->normOut};
  bool any = isThere(op, reduction->quantOut);
  for (size_t i = 0; i < sizeof destinations / sizeof *destinations; ++i) {
    MOE_TRY(moeCheckReducedRows(op, reduction, destinations[i]));
    any |= isThere(op, destinations[i]);
  }
  if (any) return MOE_OK;
  return moeError(op, "has no destination, must have one of %s'residual_out', 'norm_out' and 'quant_out'",
                  reduction->sumOut < 0 ? "" : "'moe_allreduce_out', ");
}

//===--- codes ------------------------------------------------------------------------------------===//

// The lists of formats and layouts begin as those of moe.quantize do, that of formats behind `none`.
static int formatOf(MlirOperation op) { return (int)moeInt(op, "quant_format") - 1; }

// C9
static MlirLogicalResult checkPresence(MlirOperation op, const MoeReduction *reduction) {
  bool codes = isThere(op, reduction->quantOut), scales = isThere(op, reduction->scaleOut), quantizes = formatOf(op) >= 0;
  bool scaled = quantizes && formatOf(op) != MOERT__FP8_TENSOR;
  const char *format = moeCase(op, "quant_format");
  if (codes && !quantizes) return moeError(op, "operand 'quant_out' is there, but quant_format is none: leave it out");
  if (!codes && quantizes) return moeError(op, "operand 'quant_out' is not there, but quant_format is %s: add it", format);
  if (scales && !scaled) return moeError(op, "operand 'scale_out' is there, but quant_format is %s: leave it out", format);
  if (!scales && scaled) return moeError(op, "operand 'scale_out' is not there, but quant_format is %s: add it", format);
  return MOE_OK;
}

// C11, C12
static MlirLogicalResult checkFormatParameters(MlirOperation op) {
  const int format = formatOf(op);
  const double factor = moeFloat(op, "scale_factor");
  const bool hasCodes = format >= 0 && moert__has_code_scales(format), hasFactor = format == MOERT__NVFP4 || format == MOERT__FP8_TENSOR;
  if (moeInt(op, "layout_code") != MOERT__LINEAR && !hasCodes)
    return moeError(op, "layout_code = %s goes with nvfp4, mxfp4 and mxfp8, but quant_format is %s: leave it linear", moeCase(op, "layout_code"),
                    moeCase(op, "quant_format"));
  if (!((float)factor > 0)) return moeError(op, "scale_factor is %g, must be larger than 0 as an f32", factor);
  if (factor != 1 && !hasFactor)
    return moeError(op, "scale_factor = %g goes with nvfp4 and fp8_tensor, but quant_format is %s: leave it 1", factor, moeCase(op, "quant_format"));
  return MOE_OK;
}

// C10
static MlirLogicalResult checkCodes(MlirOperation op, const MoeReduction *reduction) {
  const MoeQuantized quantized = {.format = formatOf(op),
                                  .formatName = moeCase(op, "quant_format"),
                                  .layout = moeInt(op, "layout_code"),
                                  .values = reduction->quantOut,
                                  .scales = reduction->scaleOut,
                                  .tokens = moeDim(moeOperand(op, reduction->residual), 0),
                                  .hidden = moeInt(op, "hidden_size")};
  if (quantized.format < 0) return MOE_OK;
  const int block = moert__has_code_scales(quantized.format) ? moert__block_size(quantized.format) : 1;
  const bool packed = moert__is_packed(quantized.format);
  MOE_TRY(moeCheckElementTypes(op, &quantized));
  if (quantized.hidden % block != 0)
    return moeError(op, "hidden_size is %lld, must be a multiple of %d for %s", (long long)quantized.hidden, block, quantized.formatName);
  MOE_TRY(moeCheckSameDim(op, reduction->quantOut, 0, reduction->residual, 0));
  MOE_TRY(moeCheckDim(op, reduction->quantOut, 1, packed ? quantized.hidden / 2 : quantized.hidden, packed ? "half of hidden_size" : "hidden_size"));
  return isThere(op, reduction->scaleOut) ? moeCheckScales(op, &quantized) : MOE_OK;
}

//===----------------------------------------------------------------------------------------------===//

MlirLogicalResult moeVerifyReduction(MlirOperation op, const MoeReduction *reduction) {
  int64_t hidden = moeInt(op, "hidden_size");
  if (hidden % 8) return moeError(op, "hidden_size is %lld, must be a multiple of 8", (long long)hidden); // C1
  MOE_TRY(moeCheckDim(op, reduction->residual, 1, hidden, "hidden_size"));
  MOE_TRY(moeCheckDim(op, reduction->gamma, 0, hidden, "hidden_size"));                                               // C2
  MOE_TRY(moeCheckReducedType(op, reduction, reduction->gamma));                                                      // C6
  MOE_TRY(checkDestinations(op, reduction));                                                                          // C5, C6
  if (moeFloat(op, "rms_eps") < 0) return moeError(op, "rms_eps is %g, must be at least 0", moeFloat(op, "rms_eps")); // C7
  MOE_TRY(checkPresence(op, reduction));                                                                              // C9
  MOE_TRY(checkFormatParameters(op));                                                                                 // C11, C12
  MOE_TRY(checkCodes(op, reduction));                                                                                 // C10
  return moeCheckMetainfo(op, reduction->metainfo);                                                                   // C8
}

//===- combine.c - moe.combine --------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"
#include "lib/reference/formats.h"
#include "ops/moe/formats.h"

static bool isGrouped(MlirOperation op) { return moeInt(op, "layout") == MOE_COMBINE_LAYOUT_EXPERT_GROUPED; }

// The elements of a row, MOE_DYNAMIC if a dimension is not known.
static int64_t rowElements(MlirValue buffer, intptr_t leading) {
  int64_t elements = 1;
  for (intptr_t dim = leading; dim < moeRank(buffer); ++dim) {
    int64_t size = moeDim(buffer, dim);
    if (size == MOE_DYNAMIC) return MOE_DYNAMIC;
    if (size > 0 && elements > INT64_MAX / size) return INT64_MAX; // no hidden_size is that large
    elements *= size;
  }
  return elements;
}

// C5: R, where it is a constant, is at least 1, and what a payload by ranks has room for.
static MlirLogicalResult checkRows(MlirOperation op) {
  int64_t rows;
  if (!moeConstantValue(moeOperand(op, MOE_COMBINE_RUNTIME_MAX_TOKENS_PER_RANK), &rows)) return MOE_OK;
  if (rows < 1) return moeError(op, "runtime_max_tokens_per_rank is %lld, must be at least 1", (long long)rows);
  return isGrouped(op) ? MOE_OK : moeCheckDim(op, MOE_COMBINE_PAYLOAD, 1, rows, "runtime_max_tokens_per_rank");
}

//===--- codes ------------------------------------------------------------------------------------===//

static bool isQuantized(MlirOperation op) { return moeInt(op, "output_format") != MOE_COMBINE_OUTPUT_FORMAT_NONE; }

// The lists of formats and layouts begin as those of moe.quantize do, that of formats behind `none`.
static MoeQuantized quantizedOf(MlirOperation op) {
  return (MoeQuantized){.format = (int)moeInt(op, "output_format") - 1,
                        .formatName = moeCase(op, "output_format"),
                        .layout = moeInt(op, "sf_layout"),
                        .values = MOE_COMBINE_OUT,
                        .scales = MOE_COMBINE_OUTPUT_SCALES,
                        .tokens = moeDim(moeOperand(op, MOE_COMBINE_OUT), 0),
                        .hidden = moeInt(op, "hidden_size")};
}

// C2 and C7 of an `out` of codes.
static MlirLogicalResult checkCodes(MlirOperation op) {
  intptr_t rank = moeRank(moeOperand(op, MOE_COMBINE_OUT));
  if (rank != 2)
    return moeError(op, "operand 'out' must have rank 2 for output_format = %s, but has rank %ld", moeCase(op, "output_format"), (long)rank);
  MoeQuantized quantized = quantizedOf(op);
  int block = moert__block_size(quantized.format);
  bool packed = moert__is_packed(quantized.format);
  MOE_TRY(moeCheckElementTypes(op, &quantized));
  if (quantized.hidden % block != 0)
    return moeError(op, "hidden_size is %lld, must be a multiple of %d for %s", (long long)quantized.hidden, block, quantized.formatName);
  MOE_TRY(moeCheckDim(op, MOE_COMBINE_OUT, 1, packed ? quantized.hidden / 2 : quantized.hidden, packed ? "half of hidden_size" : "hidden_size"));
  return moeCheckScales(op, &quantized);
}

// C2 and C7 of an `out` of numbers.
static MlirLogicalResult checkNumbers(MlirOperation op, intptr_t leading) {
  MlirType type = moeElementType(moeOperand(op, MOE_COMBINE_OUT));
  if (!mlirTypeIsABF16(type) && !mlirTypeIsAF16(type) && !mlirTypeIsAF32(type))
    return moeError(op, "operand 'out' has an element type of codes, but output_format is none: must be bf16, f16 or f32");
  return moeCheckTrailingDims(op, MOE_COMBINE_OUT, 0, 1, MOE_COMBINE_PAYLOAD, 0, leading);
}

// C6, C8, C9: what goes with which format.
static MlirLogicalResult checkFormat(MlirOperation op) {
  bool scales = !mlirValueIsNull(moeOperand(op, MOE_COMBINE_OUTPUT_SCALES));
  double global = moeFloat(op, "output_scalar_scale");
  if (scales && !isQuantized(op)) return moeError(op, "operand 'output_scales' is there, but output_format is none: leave it out");
  if (!scales && isQuantized(op))
    return moeError(op, "operand 'output_scales' is not there, but output_format is %s: add it", moeCase(op, "output_format"));
  if (!isQuantized(op) && moeInt(op, "sf_layout") != MOE_COMBINE_SF_LAYOUT_LINEAR)
    return moeError(op, "sf_layout = %s goes with nvfp4, mxfp4 and mxfp8, but output_format is none: leave it linear", moeCase(op, "sf_layout"));
  if ((float)global <= 0) return moeError(op, "output_scalar_scale is %g, must be larger than 0 as an f32", global);
  if (global != 1 && moeInt(op, "output_format") != MOE_COMBINE_OUTPUT_FORMAT_NVFP4)
    return moeError(op, "output_scalar_scale = %g goes with nvfp4, but output_format is %s: leave it 1", global, moeCase(op, "output_format"));
  return MOE_OK;
}

//===----------------------------------------------------------------------------------------------===//

MlirLogicalResult moe_combine_verify(MlirOperation op) {
  MlirValue payload = moeOperand(op, MOE_COMBINE_PAYLOAD);
  long long hidden = moeInt(op, "hidden_size"), ranks = moeInt(op, "ep_size");
  intptr_t leading = isGrouped(op) ? 1 : 2;
  if (moeRank(payload) < leading) // C1
    return moeError(op, "operand 'payload' must have rank %ld at least for layout \"%s\", but has rank %ld", (long)leading,
                    isGrouped(op) ? "expert_grouped" : "rank_major", (long)moeRank(payload));
  long long row = rowElements(payload, leading);
  if (row != MOE_DYNAMIC && row != hidden) return moeError(op, "rows of 'payload' have %lld elements, but hidden_size is %lld", row, hidden);
  if (!isGrouped(op) && ranks > 0) MOE_TRY(moeCheckDim(op, MOE_COMBINE_PAYLOAD, 0, ranks, "ep_size"));
  MOE_TRY(checkRows(op));                                                                                                               // C5
  MOE_TRY(checkFormat(op));                                                                                                             // C6, C8, C9
  MOE_TRY(isQuantized(op) ? checkCodes(op) : checkNumbers(op, leading));                                                                // C2, C7
  if (isGrouped(op) && moeInt(op, "payload_in_workspace")) return moeError(op, "payload_in_workspace goes with layout \"rank_major\""); // C3
  MOE_TRY(moeCheckRankMask(op, MOE_COMBINE_ACTIVE_RANK_MASK));                                                                          // C10
  return moeCheckMetainfo(op, MOE_COMBINE_METAINFO);                                                                                    // C4
}

MlirLogicalResult moe_combine_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

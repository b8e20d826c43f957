//===- formats.c - what ops with codes and scales share -------------------------------------------===//

#include "ops/moe/formats.h"
#include "lib/reference/formats.h" // the ops have its lists of formats and layouts
#include <stdio.h>

enum {
  NVFP4 = 1 << MOE_QUANTIZE_FORMAT_NVFP4,
  MX = 1 << MOE_QUANTIZE_FORMAT_MXFP4 | 1 << MOE_QUANTIZE_FORMAT_MXFP8,
  PACKED = 1 << MOE_QUANTIZE_FORMAT_NVFP4 | 1 << MOE_QUANTIZE_FORMAT_MXFP4,
  BLOCK = 1 << MOE_QUANTIZE_FORMAT_FP8_BLOCK,
  TENSOR = 1 << MOE_QUANTIZE_FORMAT_FP8_TENSOR
};

static int formatOf(MlirOperation op) { return (int)moeInt(op, "format"); }
static bool isOneOf(int format, unsigned formats) { return formats >> format & 1; }
static const char *operandName(MlirOperation op, int index) { return moeOpOf(op)->operands[index].name; }
static bool isThere(MlirOperation op, int index) { return !mlirValueIsNull(moeOperand(op, index)); }

//===--- parameters -------------------------------------------------------------------------------===//

MlirLogicalResult moeCheckGoesWith(MlirOperation op, const char *what, unsigned formats, const char *names, const char *remedy) {
  if (isOneOf(formatOf(op), formats)) return MOE_OK;
  return moeError(op, "%s goes with %s, but format is %s: %s", what, names, moeCase(op, "format"), remedy);
}

// C6
static MlirLogicalResult checkLayout(MlirOperation op) {
  static const char blocks[] = "nvfp4, mxfp4 and mxfp8", remedy[] = "leave it linear";
  switch (moeInt(op, "scale_layout")) {
  case MOE_QUANTIZE_SCALE_LAYOUT_128X4: return moeCheckGoesWith(op, "scale_layout = 128x4", NVFP4 | MX, blocks, remedy);
  case MOE_QUANTIZE_SCALE_LAYOUT_8X4: return moeCheckGoesWith(op, "scale_layout = 8x4", NVFP4 | MX, blocks, remedy);
  case MOE_QUANTIZE_SCALE_LAYOUT_TRANSPOSED: return moeCheckGoesWith(op, "scale_layout = transposed", BLOCK, "fp8_block", remedy);
  default: return MOE_OK;
  }
}

// C7
static MlirLogicalResult checkPacking(MlirOperation op) {
  if (moeInt(op, "packing") != MOE_QUANTIZE_PACKING_MEGA) return MOE_OK;
  return moeCheckGoesWith(op, "packing = mega", PACKED, "nvfp4 and mxfp4", "leave it low_first");
}

//===--- operands ---------------------------------------------------------------------------------===//

// C5
static MlirLogicalResult checkPresence(MlirOperation op, const MoeQuantizedOperands *at) {
  bool none = isOneOf(formatOf(op), TENSOR) && isThere(op, at->globalScale);
  if (none && isThere(op, at->scales))
    return moeError(op, "operand 'scales' is there, but fp8_tensor with 'global_scale' has no scales: leave out one of the two");
  if (!none && !isThere(op, at->scales)) return moeError(op, "operand 'scales' is not there, but format is %s: add it", moeCase(op, "format"));
  return MOE_OK;
}

// C10 of moe.quantize
static MlirLogicalResult checkGlobalScale(MlirOperation op, const MoeQuantizedOperands *at) {
  if (!isThere(op, at->globalScale)) return MOE_OK;
  MOE_TRY(moeCheckGoesWith(op, "operand 'global_scale'", NVFP4 | TENSOR, "nvfp4 and fp8_tensor", "leave it out"));
  return moeCheckDim(op, at->globalScale, 0, 1, "the number of its elements");
}

// Of the types that the operands' constraints let through.
static bool isByte(MlirType type) { return mlirTypeIsAInteger(type); }

static MlirLogicalResult checkElementType(MlirOperation op, int index, bool right, const char *formatName, const char *names) {
  if (right) return MOE_OK;
  return moeError(op, "operand '%s' has an element type that is none of %s: must be %s", operandName(op, index), formatName, names);
}

static MlirLogicalResult checkCodes(MlirOperation op, const MoeQuantized *q) {
  MlirType type = moeElementType(moeOperand(op, q->values));
  if (moert__is_packed(q->format)) return checkElementType(op, q->values, isByte(type), q->formatName, "i8 or ui8");
  return checkElementType(op, q->values, isByte(type) || mlirTypeIsAFloat8E4M3FN(type), q->formatName, "f8E4M3FN, i8 or ui8");
}

static MlirLogicalResult checkScaleType(MlirOperation op, const MoeQuantized *q) {
  MlirType type = moeElementType(moeOperand(op, q->scales));
  if (isOneOf(q->format, NVFP4))
    return checkElementType(op, q->scales, isByte(type) || mlirTypeIsAFloat8E4M3FN(type), q->formatName, "f8E4M3FN, i8 or ui8");
  if (isOneOf(q->format, MX))
    return checkElementType(op, q->scales, isByte(type) || mlirTypeIsAFloat8E8M0FNU(type), q->formatName, "f8E8M0FNU, i8 or ui8");
  return checkElementType(op, q->scales, mlirTypeIsAF32(type), q->formatName, "f32");
}

MlirLogicalResult moeCheckElementTypes(MlirOperation op, const MoeQuantized *quantized) {
  MOE_TRY(checkCodes(op, quantized));
  return isThere(op, quantized->scales) ? checkScaleType(op, quantized) : MOE_OK;
}

//===--- sizes ------------------------------------------------------------------------------------===//

static int64_t codesPerValue(MlirOperation op) { return moert__is_packed(formatOf(op)) ? 2 : 1; }

// T and H, MOE_DYNAMIC if neither operand tells.
static int64_t tokensOf(MlirOperation op, const MoeQuantizedOperands *at) {
  int64_t tokens = moeDim(moeOperand(op, at->numbers), 0);
  return tokens != MOE_DYNAMIC ? tokens : moeDim(moeOperand(op, at->values), 0);
}

static int64_t hiddenOf(MlirOperation op, const MoeQuantizedOperands *at) {
  int64_t hidden = moeDim(moeOperand(op, at->numbers), 1), values = moeDim(moeOperand(op, at->values), 1);
  if (hidden != MOE_DYNAMIC || values == MOE_DYNAMIC) return hidden;
  return __builtin_mul_overflow(values, codesPerValue(op), &hidden) ? MOE_DYNAMIC : hidden;
}

// C1
static MlirLogicalResult checkValues(MlirOperation op, const MoeQuantizedOperands *at) {
  int64_t hidden = moeDim(moeOperand(op, at->numbers), 1);
  MOE_TRY(moeCheckSameDim(op, at->values, 0, at->numbers, 0));
  if (codesPerValue(op) == 1 || hidden == MOE_DYNAMIC) return moeCheckSameDim(op, at->values, 1, at->numbers, 1);
  char symbol[128];
  snprintf(symbol, sizeof symbol, "half of dimension 1 of operand '%s'", operandName(op, at->numbers));
  return moeCheckDim(op, at->values, 1, hidden / 2, symbol);
}

// C2
static MlirLogicalResult checkHidden(MlirOperation op, const MoeQuantizedOperands *at) {
  int format = formatOf(op), block = moert__block_size(format);
  int64_t hidden = hiddenOf(op, at);
  bool known = moeDim(moeOperand(op, at->numbers), 1) != MOE_DYNAMIC;
  if (!isOneOf(format, NVFP4 | MX) || hidden == MOE_DYNAMIC || hidden % block == 0) return MOE_OK;
  return moeError(op, "operand '%s' has rows of %lld %s, must be a multiple of %d for %s: pad the rows",
                  operandName(op, known ? at->numbers : at->values), (long long)hidden, known ? "elements" : "codes", block, moeCase(op, "format"));
}

// Dimension `dim` of the scales has `size`, of what the text calls `symbol`, up to a multiple.
static MlirLogicalResult checkPadded(MlirOperation op, int scales, intptr_t dim, int64_t size, int64_t multiple, const char *symbol) {
  int64_t actual = moeDim(moeOperand(op, scales), dim);
  char padded[128];
  if (multiple == 1) return moeCheckDim(op, scales, dim, size, symbol);
  snprintf(padded, sizeof padded, "%s, up to a multiple of %lld,", symbol, (long long)multiple);
  if (size != MOE_DYNAMIC && size <= INT64_MAX - multiple) return moeCheckDim(op, scales, dim, (size + multiple - 1) / multiple * multiple, padded);
  if (actual == MOE_DYNAMIC || actual % multiple == 0) return MOE_OK;
  return moeError(op, "operand '%s' has size %lld in dimension %ld, must be a multiple of %lld", operandName(op, scales), (long long)actual,
                  (long)dim, (long long)multiple);
}

static MlirLogicalResult checkTransposed(MlirOperation op, int scales, int64_t tokens, int64_t columns, const char *symbol) {
  int64_t actual = moeDim(moeOperand(op, scales), 1);
  MOE_TRY(moeCheckDim(op, scales, 0, columns, symbol));
  if (tokens == MOE_DYNAMIC || actual == MOE_DYNAMIC || actual >= tokens) return MOE_OK;
  return moeError(op, "operand '%s' has size %lld in dimension 1, must be at least %lld, the number of tokens", operandName(op, scales),
                  (long long)actual, (long long)tokens);
}

// Scales of a row, MOE_DYNAMIC if not known.
static int64_t columnsOf(const MoeQuantized *q) {
  int block = moert__block_size(q->format);
  if (block == 0) return 1;
  return q->hidden == MOE_DYNAMIC ? MOE_DYNAMIC : q->hidden / block + (q->hidden % block != 0);
}

MlirLogicalResult moeCheckScales(MlirOperation op, const MoeQuantized *quantized) {
  static const char tokensText[] = "the number of tokens", columnsText[] = "the number of scales of a row";
  int scales = quantized->scales;
  int64_t layout = quantized->layout, columns = columnsOf(quantized);
  if (!isThere(op, scales)) return MOE_OK;
  if (isOneOf(quantized->format, TENSOR)) {
    MOE_TRY(moeCheckDim(op, scales, 0, 1, "the number of its rows"));
    return moeCheckDim(op, scales, 1, 1, columnsText);
  }
  if (layout == MOE_QUANTIZE_SCALE_LAYOUT_TRANSPOSED) return checkTransposed(op, scales, quantized->tokens, columns, columnsText);
  bool linear = layout == MOE_QUANTIZE_SCALE_LAYOUT_LINEAR;
  int64_t rows = linear ? 1 : layout == MOE_QUANTIZE_SCALE_LAYOUT_128X4 ? 128 : 8;
  MOE_TRY(checkPadded(op, scales, 0, quantized->tokens, rows, tokensText));
  return checkPadded(op, scales, 1, columns, linear ? 1 : 4, columnsText);
}

//===----------------------------------------------------------------------------------------------===//

static MoeQuantized quantizedOf(MlirOperation op, const MoeQuantizedOperands *at) {
  return (MoeQuantized){.format = formatOf(op),
                        .formatName = moeCase(op, "format"),
                        .layout = moeInt(op, "scale_layout"),
                        .values = at->values,
                        .scales = at->scales,
                        .tokens = tokensOf(op, at),
                        .hidden = hiddenOf(op, at)};
}

MlirLogicalResult moeVerifyQuantized(MlirOperation op, const MoeQuantizedOperands *operands) {
  MoeQuantized quantized = quantizedOf(op, operands);
  MOE_TRY(checkLayout(op));                      // C6
  MOE_TRY(checkPacking(op));                     // C7
  MOE_TRY(checkGlobalScale(op, operands));       // C10 of moe.quantize
  MOE_TRY(checkPresence(op, operands));          // C5
  MOE_TRY(moeCheckElementTypes(op, &quantized)); // C3
  MOE_TRY(checkHidden(op, operands));            // C2
  MOE_TRY(checkValues(op, operands));            // C1
  return moeCheckScales(op, &quantized);         // C4
}

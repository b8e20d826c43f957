//===- formats.h - what ops with codes and scales share -------------------------------------------===//
#ifndef MOE_OPS_FORMATS_H
#define MOE_OPS_FORMATS_H

#include "lib/ir/ops.h"

// Where the op has its operands. `numbers` are those that codes and scales stand for.
typedef struct MoeQuantizedOperands {
  int numbers, values, scales, globalScale;
} MoeQuantizedOperands;

// C1 to C7, and C10 of moe.quantize, which is C8 of moe.dequantize. All sizes that are known are checked, whichever operand they are known of.
MlirLogicalResult moeVerifyQuantized(MlirOperation op, const MoeQuantizedOperands *operands);

// The parameter goes with the formats of the set (1 << MOE_QUANTIZE_FORMAT_...), which the text calls `names`.
MlirLogicalResult moeCheckGoesWith(MlirOperation op, const char *what, unsigned formats, const char *names, const char *remedy);

// Codes and scales of any op, and what they stand for.
typedef struct MoeQuantized {
  int format;             // MOE_QUANTIZE_FORMAT_...
  const char *formatName; // in texts
  int64_t layout;         // MOE_QUANTIZE_SCALE_LAYOUT_...
  int values, scales;     // operands; the scales may be absent
  int64_t tokens, hidden; // of the numbers: MOE_DYNAMIC if not known
} MoeQuantized;

// C3 and C4 of moe.quantize.
MlirLogicalResult moeCheckElementTypes(MlirOperation op, const MoeQuantized *quantized);
MlirLogicalResult moeCheckScales(MlirOperation op, const MoeQuantized *quantized);

#endif

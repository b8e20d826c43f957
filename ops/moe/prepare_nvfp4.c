//===- prepare_nvfp4.c - moe.prepare_nvfp4 --------------------------------------------------------===//

#include "ops/moe/panels.h"

enum { SOURCE = MOE_PREPARE_NVFP4_SOURCE, SCALES = MOE_PREPARE_NVFP4_SCALES, PREPARED = MOE_PREPARE_NVFP4_PREPARED };

static MlirLogicalResult checkMultiple(MlirOperation op, intptr_t dim, int64_t unit) {
  int64_t size = moeDim(moeOperand(op, SOURCE), dim);
  if (size == MOE_DYNAMIC || size % unit == 0) return MOE_OK;
  return moeError(op, "operand 'source' has size %lld in dimension %ld, must be a multiple of %lld for %s", (long long)size, (long)dim,
                  (long long)unit, moeCase(op, "layout"));
}

static int64_t panelsOf(MlirOperation op, moert__routed_panel panel) {
  MlirValue source = moeOperand(op, SOURCE);
  int64_t panels = moeDim(source, 0), rows = moeDim(source, 1), bytes = moeDim(source, 2);
  if (panels == MOE_DYNAMIC || rows == MOE_DYNAMIC || bytes == MOE_DYNAMIC) return MOE_DYNAMIC;
  if (__builtin_mul_overflow(panels, rows / panel.rows, &panels)) return INT64_MAX;
  return __builtin_mul_overflow(panels, bytes / moert__routed_row_bytes(panel), &panels) ? INT64_MAX : panels;
}

static MlirLogicalResult checkCodes(MlirOperation op, int operand) {
  if (mlirTypeIsAInteger(moeElementType(moeOperand(op, operand)))) return MOE_OK;
  return moeError(op, "operand '%s' has codes for %s, must be of i8 or ui8", moeOpOf(op)->operands[operand].name, moeCase(op, "layout"));
}

// C4
static MlirLogicalResult checkScales(MlirOperation op, moert__routed_panel panel) {
  const bool areThere = !mlirValueIsNull(moeOperand(op, SCALES)), areRead = panel.contents == MOERT__FRAGMENTS;
  const int64_t bytes = moeDim(moeOperand(op, SOURCE), 2);
  if (areRead && !areThere) return moeError(op, "operand 'scales' is not there, but layout is %s: add it", moeCase(op, "layout"));
  if (!areRead && areThere) return moeError(op, "operand 'scales' goes with fragments, but layout is %s: leave it out", moeCase(op, "layout"));
  if (!areThere) return MOE_OK;
  MOE_TRY(moeCheckSameDim(op, SCALES, 0, SOURCE, 0));
  MOE_TRY(moeCheckSameDim(op, SCALES, 1, SOURCE, 1));
  return moeCheckDim(op, SCALES, 2, bytes == MOE_DYNAMIC ? bytes : bytes / 8, "an eighth of dimension 2 of operand 'source'");
}

MlirLogicalResult moe_prepare_nvfp4_verify(MlirOperation op) {
  const moert__routed_panel panel = moert__routed_panel_of((int)moeInt(op, "layout"));
  MOE_TRY(checkMultiple(op, 1, panel.rows)); // C1
  MOE_TRY(checkMultiple(op, 2, moert__routed_row_bytes(panel)));
  MOE_TRY(moeCheckPanels(op, PREPARED, panelsOf(op, panel), panel)); // C2
  MOE_TRY(checkScales(op, panel));
  if (panel.contents == MOERT__SCALES) return MOE_OK;
  MOE_TRY(checkCodes(op, SOURCE)); // C3
  return checkCodes(op, PREPARED);
}

MlirLogicalResult moe_prepare_nvfp4_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

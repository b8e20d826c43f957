//===- prepare_nvfp4.c - moe.prepare_nvfp4 --------------------------------------------------------===//

#include "ops/moe/panels.h"

enum { SOURCE = MOE_PREPARE_NVFP4_SOURCE, PREPARED = MOE_PREPARE_NVFP4_PREPARED };

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

MlirLogicalResult moe_prepare_nvfp4_verify(MlirOperation op) {
  const moert__routed_panel panel = moert__routed_panel_of((int)moeInt(op, "layout"));
  MOE_TRY(checkMultiple(op, 1, panel.rows)); // C1
  MOE_TRY(checkMultiple(op, 2, moert__routed_row_bytes(panel)));
  MOE_TRY(moeCheckPanels(op, PREPARED, panelsOf(op, panel), panel)); // C2
  if (!moert__routed_has_codes(panel)) return MOE_OK;
  MOE_TRY(checkCodes(op, SOURCE)); // C3
  return checkCodes(op, PREPARED);
}

MlirLogicalResult moe_prepare_nvfp4_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

//===- panels.c - what ops with weights in panels share -------------------------------------------===//

#include "ops/moe/panels.h"

MlirLogicalResult moeCheckPanels(MlirOperation op, int operand, int64_t panels, moert__routed_panel panel) {
  MOE_TRY(moeCheckDim(op, operand, 0, panels, "the number of panels"));
  MOE_TRY(moeCheckDim(op, operand, 1, panel.height, "the height of a panel"));
  return moeCheckDim(op, operand, 2, panel.width, "the width of a panel");
}

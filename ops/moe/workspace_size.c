//===- workspace_size.c - moe.workspace_size ------------------------------------------------------===//

#include "lib/ir/lowering.h"

MlirLogicalResult moe_workspace_size_verify(MlirOperation op) {
  (void)op; // the bounds of the parameters are all there is
  return MOE_OK;
}

MlirLogicalResult moe_workspace_size_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

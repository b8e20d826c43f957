//===- workspace_view.c - moe.workspace_view ------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"

static MlirType viewType(MlirOperation op) { return mlirValueGetType(mlirOperationGetResult(op, 0)); }

MlirLogicalResult moe_workspace_view_verify(MlirOperation op) {
  MlirType type = viewType(op);
  MOE_TRY(moeCheckExtents(op, MOE_WORKSPACE_VIEW_SIZES, type)); // C1
  MOE_TRY(moeCheckContiguousBuffer(op, type));                  // C2
  if (moeElementBytes(mlirShapedTypeGetElementType(type)) == 0) return moeError(op, "the elements of the view must have 1, 2, 4 or 8 bytes");
  MlirValue workspace = moeOperand(op, MOE_WORKSPACE_VIEW_WORKSPACE);
  int64_t bytes = moeDim(workspace, 0), offset, view = moeStaticBytes(type);
  if (bytes == MOE_DYNAMIC || view == MOE_DYNAMIC || !moeConstantValue(moeOperand(op, MOE_WORKSPACE_VIEW_OFFSET), &offset)) return MOE_OK;
  if (offset < 0 || view > bytes || offset > bytes - view) // C3
    return moeError(op, "%lld bytes at offset %lld are not within the workspace of %lld bytes", (long long)view, (long long)offset, (long long)bytes);
  return MOE_OK;
}

// The runtime checks the bounds; upstream makes the view.
MlirLogicalResult moe_workspace_view_lower(MlirOperation op, MoeLowering *lowering) {
  MOE_TRY(moeLowerViewCheck(op, viewType(op), lowering));
  MoeRange sizes = moeOperandRange(op, MOE_WORKSPACE_VIEW_SIZES);
  MlirValue operands[2 + MOE_MAX_RANK];
  operands[0] = moeOperand(op, MOE_WORKSPACE_VIEW_WORKSPACE);
  operands[1] = moeBuildIndex(lowering->before, moeOperand(op, MOE_WORKSPACE_VIEW_OFFSET));
  for (intptr_t i = 0; i < sizes.count; ++i) operands[2 + i] = mlirOperationGetOperand(op, sizes.first + i);
  MlirValue view = moeBuildValue(lowering->before, "memref.view", 2 + sizes.count, operands, viewType(op), 0, NULL);
  moeReplaceOp(op, 1, &view);
  return MOE_OK;
}

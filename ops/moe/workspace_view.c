//===- workspace_view.c - moe.workspace_view ------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"

static MlirType viewType(MlirOperation op) { return mlirValueGetType(mlirOperationGetResult(op, 0)); }

// C3: a constant offset is one that a view can begin at, and the view lies within a workspace of static size.
static MlirLogicalResult checkOffset(MlirOperation op, int64_t elementBytes) {
  int64_t bytes = moeDim(moeOperand(op, MOE_WORKSPACE_VIEW_WORKSPACE), 0), view = moeStaticBytes(viewType(op)), offset;
  if (!moeConstantValue(moeOperand(op, MOE_WORKSPACE_VIEW_OFFSET), &offset)) return MOE_OK;
  if (offset < 0 || offset % elementBytes)
    return moeError(op, "offset is %lld, must be at least 0 and a multiple of %lld (the element's size)", (long long)offset, (long long)elementBytes);
  if (bytes == MOE_DYNAMIC || view == MOE_DYNAMIC || (view <= bytes && offset <= bytes - view)) return MOE_OK;
  return moeError(op, "%lld bytes at offset %lld are not within the workspace of %lld bytes", (long long)view, (long long)offset, (long long)bytes);
}

MlirLogicalResult moe_workspace_view_verify(MlirOperation op) {
  MlirType type = viewType(op);
  int64_t elementBytes = moeElementBytes(mlirShapedTypeGetElementType(type));
  MOE_TRY(moeCheckExtents(op, MOE_WORKSPACE_VIEW_SIZES, type)); // C1
  MOE_TRY(moeCheckContiguousBuffer(op, type));                  // C2
  if (elementBytes == 0) return moeError(op, "the elements of the view must have 1, 2, 4 or 8 bytes");
  return checkOffset(op, elementBytes); // C3
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

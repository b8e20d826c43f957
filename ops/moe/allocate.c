//===- allocate.c - moe.allocate ------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"

static MlirType bufferType(MlirOperation op) { return mlirValueGetType(mlirOperationGetResult(op, 0)); }

MlirLogicalResult moe_allocate_verify(MlirOperation op) {
  MOE_TRY(moeCheckExtents(op, MOE_ALLOCATE_SIZES, bufferType(op)));                                                                              // C1
  MOE_TRY(moeCheckContiguousBuffer(op, bufferType(op)));                                                                                         // C2
  if (moeElementBytes(mlirShapedTypeGetElementType(bufferType(op))) == 0) return moeError(op, "the elements of the result must be whole bytes"); // C3
  return MOE_OK;
}

MlirLogicalResult moe_allocate_lower(MlirOperation op, MoeLowering *lowering) {
  MoeRange sizes = moeOperandRange(op, MOE_ALLOCATE_SIZES);
  MlirValue extents[MOE_MAX_RANK];
  for (intptr_t i = 0; i < sizes.count; ++i) extents[i] = mlirOperationGetOperand(op, sizes.first + i);
  MlirValue buffer = moeAllocateBuffer(bufferType(op), sizes.count, extents, lowering);
  moeReplaceOp(op, 1, &buffer);
  return MOE_OK;
}

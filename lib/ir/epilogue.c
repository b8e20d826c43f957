//===- epilogue.c - epilogues: their verifier, and moe-expand-epilogues ---------------------------===//
//
// An epilogue is what an op does to each element of its first destination, a matrix, before it stores it. Targets that do not fuse it apply it
// afterwards: the pass turns the op into one without the region, and a linalg.generic over the destination with the region as its body. Both call it
// once per element.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/AffineMap.h>
#include <mlir-c/Dialect/Linalg.h>
#include <stdlib.h>

#define STR mlirStringRefCreateFromCString

#define EPILOGUE_PARAMETER "has_epilogue_fusion" // every op with an epilogue has it: true exactly if the region is there

enum { ROW, COLUMN, VALUE, EPILOGUE_ARGUMENTS };

static MlirBlock epilogueOf(MlirOperation op) {
  return moeOpOf(op) && mlirOperationGetNumRegions(op) ? mlirRegionGetFirstBlock(mlirOperationGetRegion(op, 0)) : (MlirBlock){NULL};
}

bool moeHasEpilogue(MlirOperation op) { return !mlirBlockIsNull(epilogueOf(op)); }

static int destinationIndex(MlirOperation op) {
  int index = 0;
  while (moeOpOf(op)->operands[index].kind != MOE_DESTINATION) ++index;
  return index;
}

//===--- verifying --------------------------------------------------------------------------------===//

static MlirWalkResult checkReader(MlirOperation inner, void *data) {
  MlirOperation *outer = data;
  if (!moeOnlyReads(inner)) {
    moeError(inner, "in an epilogue may only read: it is called once for each element, in no order");
    return *outer = (MlirOperation){NULL}, MlirWalkResultInterrupt;
  }
  for (intptr_t i = 0; i < mlirOperationGetNumResults(inner); ++i) {
    if (!mlirTypeIsAShaped(mlirValueGetType(mlirOperationGetResult(inner, i)))) continue;
    moeError(inner, "in an epilogue may only give numbers");
    return *outer = (MlirOperation){NULL}, MlirWalkResultInterrupt;
  }
  return MlirWalkResultAdvance;
}

static MlirLogicalResult checkBody(MlirBlock block) {
  for (MlirOperation inner = mlirBlockGetFirstOperation(block); !mlirOperationIsNull(inner); inner = mlirOperationGetNextInBlock(inner)) {
    MlirOperation sound = inner;
    mlirOperationWalk(inner, checkReader, &sound, MlirWalkPreOrder);
    if (mlirOperationIsNull(sound)) return MOE_FAIL;
  }
  return MOE_OK;
}

MlirLogicalResult moeVerifyEpilogue(MlirOperation op) {
  MlirBlock block = epilogueOf(op);
  if (mlirOperationGetNumRegions(op) > 1) return moeError(op, "has %ld epilogues, must have one at most", (long)mlirOperationGetNumRegions(op));
  bool fused = moeInt(op, EPILOGUE_PARAMETER);
  if (mlirBlockIsNull(block)) return fused ? moeError(op, "has_epilogue_fusion is true, but there is no epilogue") : MOE_OK;
  if (!fused) return moeError(op, "has an epilogue, so has_epilogue_fusion must be true");
  int destination = destinationIndex(op);
  MlirType element = moeElementType(moeOperand(op, destination));
  const char *name = moeOpOf(op)->operands[destination].name;
  bool takes = mlirBlockGetNumArguments(block) == EPILOGUE_ARGUMENTS && mlirTypeIsAIndex(mlirValueGetType(mlirBlockGetArgument(block, ROW))) &&
               mlirTypeIsAIndex(mlirValueGetType(mlirBlockGetArgument(block, COLUMN))) &&
               mlirTypeEqual(mlirValueGetType(mlirBlockGetArgument(block, VALUE)), element);
  if (!takes) return moeError(op, "the epilogue must take a row index, a column index and a value of the element type of '%s'", name);
  MlirOperation yield = mlirBlockGetTerminator(block);
  if (mlirOperationIsNull(yield) || !moeIs(yield, "ep.yield")) return moeError(op, "the epilogue must end with ep.yield");
  if (!mlirTypeEqual(mlirValueGetType(mlirOperationGetOperand(yield, 0)), element))
    return moeError(yield, "must yield a value of the element type of '%s'", name);
  return checkBody(block);
}

//===--- expanding --------------------------------------------------------------------------------===//

// The block of a linalg.generic, which has no arguments for indices.
static void adaptBlock(MlirBlock block) {
  MlirContext mlir = mlirTypeGetContext(mlirValueGetType(mlirBlockGetArgument(block, ROW)));
  MlirOperation first = mlirBlockGetFirstOperation(block), yield = mlirBlockGetTerminator(block);
  for (intptr_t dim = COLUMN; dim >= ROW; --dim) {
    MlirNamedAttribute number = moeNamed(mlir, "dim", mlirIntegerAttrGet(moeInt64Type(mlir), dim));
    MlirValue index = moeBuildValue(first, "linalg.index", 0, NULL, mlirIndexTypeGet(mlir), 1, &number);
    mlirValueReplaceAllUsesOfWith(mlirBlockGetArgument(block, dim), index);
    mlirBlockEraseArgument(block, (unsigned)dim);
  }
  MlirValue value = mlirOperationGetOperand(yield, 0);
  moeBuild(yield, "linalg.yield", 1, &value, 0, NULL, 0, NULL);
  mlirOperationDestroy(yield);
}

// In place of each element of `matrix` what the region makes of it.
static void applyAfter(MlirOperation op, MlirRegion epilogue, MlirValue matrix) {
  MlirContext mlir = mlirOperationGetContext(op);
  MlirAttribute map = mlirAffineMapAttrGet(mlirAffineMapMultiDimIdentityGet(mlir, 2));
  MlirAttribute parallel = mlirAttributeParseGet(mlir, STR("#linalg.iterator_type<parallel>")), iterators[2] = {parallel, parallel};
  MlirNamedAttribute attributes[3] = {moeNamed(mlir, "indexing_maps", mlirArrayAttrGet(mlir, 1, &map)),
                                      moeNamed(mlir, "iterator_types", mlirArrayAttrGet(mlir, 2, iterators)),
                                      moeNamed(mlir, "operandSegmentSizes", mlirDenseI32ArrayGet(mlir, 2, (int32_t[]){0, 1}))};
  MlirRegion body = mlirRegionCreate();
  mlirRegionTakeBody(body, epilogue);
  adaptBlock(mlirRegionGetFirstBlock(body));
  MlirOperationState state = mlirOperationStateGet(STR("linalg.generic"), mlirOperationGetLocation(op));
  mlirOperationStateAddOperands(&state, 1, &matrix);
  mlirOperationStateAddAttributes(&state, 3, attributes);
  mlirOperationStateAddOwnedRegions(&state, 1, &body);
  mlirBlockInsertOwnedOperationAfter(mlirOperationGetBlock(op), op, mlirOperationCreate(&state));
}

// The parameter that says that there is an epilogue goes with it: its default is false.
static void replaceWithoutRegion(MlirOperation op) {
  MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(op));
  MlirOperationState state = mlirOperationStateGet(name, mlirOperationGetLocation(op));
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    MlirValue operand = mlirOperationGetOperand(op, i);
    mlirOperationStateAddOperands(&state, 1, &operand);
  }
  for (intptr_t i = 0; i < mlirOperationGetNumAttributes(op); ++i) {
    MlirNamedAttribute attribute = mlirOperationGetAttribute(op, i);
    if (mlirStringRefEqual(mlirIdentifierStr(attribute.name), STR(EPILOGUE_PARAMETER))) continue;
    mlirOperationStateAddAttributes(&state, 1, &attribute);
  }
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(op), op, mlirOperationCreate(&state));
  mlirOperationDestroy(op);
}

static MlirLogicalResult expand(MlirOperation op) {
  if (!moeHasEpilogue(op)) return MOE_OK;
  if (mlirOperationGetNumResults(op) > 0) return moeError(op, "is still on tensors: run one-shot-bufferize first");
  applyAfter(op, mlirOperationGetRegion(op, 0), moeOperand(op, destinationIndex(op)));
  replaceWithoutRegion(op);
  return MOE_OK;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MoeOpList ours = MOE_FIND(module, "moe.", "ep.");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < ours.count && mlirLogicalResultIsSuccess(result); ++i) result = expand(ours.ops[i]);
  free(ours.ops);
  return result;
}

static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__linalg__, NULL};

const MoePass moeExpandEpilogues = {"moe-expand-epilogues", "Apply epilogues after their ops instead of inside them", NULL, dialects, run};

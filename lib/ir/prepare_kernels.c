//===- prepare_kernels.c - moe-prepare-kernels ----------------------------------------------------===//
//
// Upstream makes a kernel of the parallel loops that a linalg op begins with, a thread for each iteration. So each op gets its parallel loops first,
// in their order; a sum over all elements, which has none, gets one of a single iteration. No result changes: the reduction loops keep their order.
// Constant tensors of one value, which lie in host memory, become buffers that are filled.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/AffineExpr.h>
#include <mlir-c/AffineMap.h>
#include <mlir-c/Dialect/Arith.h>
#include <mlir-c/Dialect/Linalg.h>
#include <mlir-c/Dialect/SCF.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

enum { MAX_LOOPS = 64 };

typedef struct Order {
  intptr_t count, parallel;     // of the loops, of the parallel ones among them
  intptr_t position[MAX_LOOPS]; // of each loop in the new order
} Order;

static bool isParallel(MlirAttribute iterators, intptr_t loop) {
  MlirAttribute parallel = mlirAttributeParseGet(mlirAttributeGetContext(iterators), STR("#linalg.iterator_type<parallel>"));
  return mlirAttributeEqual(mlirArrayAttrGetElement(iterators, loop), parallel);
}

static Order orderOf(MlirAttribute iterators) {
  Order order = {mlirArrayAttrGetNumElements(iterators), 0, {0}};
  if (order.count > MAX_LOOPS) return order;
  for (intptr_t i = 0; i < order.count; ++i)
    if (isParallel(iterators, i)) order.position[i] = order.parallel++;
  for (intptr_t i = 0, next = order.parallel; i < order.count; ++i)
    if (!isParallel(iterators, i)) order.position[i] = next++;
  return order;
}

static bool isOrdered(const Order *order) {
  for (intptr_t i = 0; i < order->count; ++i)
    if (order->position[i] != i) return false;
  return true;
}

//===--- parallel loops first ---------------------------------------------------------------------===//

// The map in the new order: each of its results, with the loops' new numbers for the old.
static MlirAttribute reorderMap(MlirAttribute old, MlirAffineMap renumber) {
  MlirAffineMap map = mlirAffineMapAttrGetValue(old);
  intptr_t count = mlirAffineMapGetNumResults(map);
  MlirAffineExpr results[MOE_MAX_RANK];
  if (count > MOE_MAX_RANK) return mlirAttributeGetNull();
  for (intptr_t i = 0; i < count; ++i) results[i] = mlirAffineExprCompose(mlirAffineMapGetResult(map, i), renumber);
  return mlirAffineMapAttrGet(mlirAffineMapGet(mlirAffineMapGetContext(map), mlirAffineMapGetNumDims(map), 0, count, results));
}

// Of the op's own body; a body inside it has indices of its own.
static void renumberIndices(MlirOperation op, const Order *order) {
  MoeOpList indices = MOE_FIND(op, "linalg.index");
  for (intptr_t i = 0; i < indices.count; ++i) {
    MlirOperation owner = indices.ops[i];
    do owner = mlirOperationGetParentOperation(owner);
    while (!moeIs(owner, "linalg.generic"));
    if (!mlirOperationEqual(owner, op)) continue;
    MlirAttribute dim = mlirOperationGetAttributeByName(indices.ops[i], STR("dim"));
    int64_t position = order->position[mlirIntegerAttrGetValueInt(dim)];
    mlirOperationSetAttributeByName(indices.ops[i], STR("dim"), mlirIntegerAttrGet(mlirAttributeGetType(dim), position));
  }
  free(indices.ops);
}

static MlirLogicalResult reorder(MlirOperation op, MlirAttribute iterators, const Order *order) {
  MlirContext mlir = mlirOperationGetContext(op);
  MlirAttribute maps = mlirOperationGetAttributeByName(op, STR("indexing_maps")), types[MAX_LOOPS], reordered[MAX_LOOPS];
  MlirAffineExpr dims[MAX_LOOPS];
  intptr_t operands = mlirArrayAttrGetNumElements(maps);
  if (operands > MAX_LOOPS) return moeError(op, "has %ld operands, must have %d at most to become a kernel", (long)operands, MAX_LOOPS);
  for (intptr_t i = 0; i < order->count; ++i) {
    dims[i] = mlirAffineDimExprGet(mlir, order->position[i]);
    types[order->position[i]] = mlirArrayAttrGetElement(iterators, i);
  }
  MlirAffineMap renumber = mlirAffineMapGet(mlir, order->count, 0, order->count, dims);
  for (intptr_t i = 0; i < operands; ++i) {
    reordered[i] = reorderMap(mlirArrayAttrGetElement(maps, i), renumber);
    if (mlirAttributeIsNull(reordered[i])) return moeError(op, "has an operand of more than %d dimensions", MOE_MAX_RANK);
  }
  mlirOperationSetAttributeByName(op, STR("indexing_maps"), mlirArrayAttrGet(mlir, operands, reordered));
  mlirOperationSetAttributeByName(op, STR("iterator_types"), mlirArrayAttrGet(mlir, order->count, types));
  renumberIndices(op, order);
  return MOE_OK;
}

//===--- ops without parallel loops ---------------------------------------------------------------===//

static bool isInParallelLoop(MlirOperation op) {
  for (op = mlirOperationGetParentOperation(op); !mlirOperationIsNull(op); op = mlirOperationGetParentOperation(op))
    if (moeIs(op, "scf.parallel")) return true;
  return false;
}

// Into an scf.parallel of one iteration.
static void wrap(MlirOperation op) {
  MlirContext mlir = mlirOperationGetContext(op);
  MlirLocation location = mlirOperationGetLocation(op);
  MlirType index = mlirIndexTypeGet(mlir);
  MlirValue bounds[3] = {moeBuildConstant(op, index, 0), moeBuildConstant(op, index, 1), moeBuildConstant(op, index, 1)};
  MlirNamedAttribute sizes = moeNamed(mlir, "operandSegmentSizes", mlirDenseI32ArrayGet(mlir, 4, (int32_t[]){1, 1, 1, 0}));
  MlirBlock body = mlirBlockCreate(1, &index, &location);
  MlirRegion region = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(region, body);
  MlirOperationState loop = mlirOperationStateGet(STR("scf.parallel"), location), reduce = mlirOperationStateGet(STR("scf.reduce"), location);
  mlirOperationStateAddOperands(&loop, 3, bounds);
  mlirOperationStateAddAttributes(&loop, 1, &sizes);
  mlirOperationStateAddOwnedRegions(&loop, 1, &region);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(op), op, mlirOperationCreate(&loop));
  mlirOperationRemoveFromParent(op);
  mlirBlockAppendOwnedOperation(body, op);
  mlirBlockAppendOwnedOperation(body, mlirOperationCreate(&reduce));
}

//===--- constants --------------------------------------------------------------------------------===//

// The one value that all elements of a constant tensor have; null if they differ, or if it is not one.
static MlirAttribute valueOf(MlirOperation constant, MlirSymbolTable symbols) {
  MlirAttribute name = mlirOperationGetAttributeByName(constant, STR("name"));
  MlirOperation global = mlirSymbolTableLookup(symbols, mlirFlatSymbolRefAttrGetValue(name));
  if (mlirOperationIsNull(global) || !moeIs(global, "memref.global")) return mlirAttributeGetNull();
  MlirAttribute value = mlirOperationGetAttributeByName(global, STR("initial_value"));
  bool one = !mlirAttributeIsNull(value) && mlirAttributeIsADenseElements(value) && mlirDenseElementsAttrIsSplat(value);
  return one ? mlirDenseElementsAttrGetSplatValue(value) : mlirAttributeGetNull();
}

static bool isHostLoad(MlirOperation op) { return (moeIs(op, "memref.load") || moeIs(op, "affine.load")) && !moeIsDeviceWork(op); }

static bool isUsedByDevice(MlirValue buffer) {
  for (MlirOpOperand use = mlirValueGetFirstUse(buffer); !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
    if (!isHostLoad(mlirOpOperandGetOwner(use))) return true;
  return false;
}

static void replaceOnDevice(MlirValue constant, MlirValue buffer) {
  for (MlirOpOperand use = mlirValueGetFirstUse(constant), next; !mlirOpOperandIsNull(use); use = next) {
    next = mlirOpOperandGetNextUse(use);
    if (!isHostLoad(mlirOpOperandGetOwner(use))) mlirOperationSetOperand(mlirOpOperandGetOwner(use), mlirOpOperandGetOperandNumber(use), buffer);
  }
}

static MlirBlock entryOf(MlirOperation op) {
  while (!mlirOperationIsNull(op) && !moeIs(op, "func.func")) op = mlirOperationGetParentOperation(op);
  return mlirOperationIsNull(op) ? (MlirBlock){NULL} : mlirRegionGetFirstBlock(mlirOperationGetRegion(op, 0));
}

// A buffer of the arena instead, filled at the beginning of the function.
static void fill(MlirOperation constant, MlirSymbolTable symbols) {
  MlirValue buffer = mlirOperationGetResult(constant, 0);
  MlirBlock entry = entryOf(constant);
  intptr_t count = mlirBlockIsNull(entry) ? 0 : mlirBlockGetNumArguments(entry);
  MlirAttribute value = valueOf(constant, symbols);
  bool placed = moeElementBytes(mlirShapedTypeGetElementType(mlirValueGetType(buffer))) > 0; // as in moe-place-buffers
  if (mlirAttributeIsNull(value) || count == 0 || !placed || !isUsedByDevice(buffer)) return;
  MlirValue context = mlirBlockGetArgument(entry, count - 1);
  MlirType type = mlirValueGetType(buffer);
  if (!moeMlirTypeIsAContext(mlirValueGetType(context)) || !mlirAttributeIsNull(mlirMemRefTypeGetMemorySpace(type))) return;
  MlirOperation first = mlirBlockGetFirstOperation(entry);
  MlirNamedAttribute attribute = moeNamed(mlirOperationGetContext(constant), "value", value);
  MlirValue number = moeBuildValue(first, "arith.constant", 0, NULL, mlirShapedTypeGetElementType(type), 1, &attribute);
  MlirValue filled = moeBuildValue(first, "moe.allocate", 1, &context, type, 0, NULL);
  moeBuildLinalg(first, "linalg.fill", number, filled);
  replaceOnDevice(buffer, filled);
}

static void fillConstants(MlirOperation module) {
  MoeOpList constants = MOE_FIND(module, "memref.get_global");
  MlirSymbolTable symbols = mlirSymbolTableCreate(module);
  for (intptr_t i = 0; i < constants.count; ++i) fill(constants.ops[i], symbols);
  mlirSymbolTableDestroy(symbols);
  free(constants.ops);
}

//===--- the pass ---------------------------------------------------------------------------------===//

static MlirLogicalResult prepare(MlirOperation op) {
  MlirAttribute iterators = mlirOperationGetAttributeByName(op, STR("iterator_types"));
  Order order = orderOf(iterators);
  if (order.count > MAX_LOOPS) return moeError(op, "has %ld loops, must have %d at most to become a kernel", (long)order.count, MAX_LOOPS);
  if (!isOrdered(&order)) MOE_TRY(reorder(op, iterators, &order));
  if (order.parallel == 0 && !isInParallelLoop(op)) wrap(op);
  return MOE_OK;
}

// Upstream's conversion would break off with a text that says nothing.
static MlirLogicalResult checkLoops(MlirOperation module) {
  MoeOpList loops = MOE_FIND(module, "scf.parallel");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < loops.count; ++i)
    if (mlirOperationGetNumResults(loops.ops[i]) > 0)
      result = moeError(loops.ops[i], "reduces to a number, which host code would need and a kernel cannot return: write it as a linalg.generic that "
                                      "reduces into a tensor");
  free(loops.ops);
  return result;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MOE_TRY(checkLoops(module));
  fillConstants(module);
  MoeOpList generics = MOE_FIND(module, "linalg.generic");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < generics.count && mlirLogicalResultIsSuccess(result); ++i) result = prepare(generics.ops[i]);
  free(generics.ops);
  return result;
}

static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__moe__, mlirGetDialectHandle__linalg__, mlirGetDialectHandle__scf__,
                                                      mlirGetDialectHandle__arith__, NULL};

const MoePass moePrepareKernels = {"moe-prepare-kernels", "Give linalg ops parallel loops before their reductions, and fill constant tensors", NULL,
                                   dialects, run};

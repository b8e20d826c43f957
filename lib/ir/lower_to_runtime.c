//===- lower_to_runtime.c - moe-lower-to-runtime --------------------------------------------------===//
//
// Turns the functions of a module whose control flow is cf into what graph.so exports: each returns a status, takes the context as a pointer,
// calls the runtime for every op of ours, and returns at the first error.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/interface.h"
#include "lib/ir/lowering.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/Dialect/Arith.h>
#include <mlir-c/Dialect/ControlFlow.h>
#include <mlir-c/Dialect/Func.h>
#include <mlir-c/Dialect/LLVM.h>
#include <mlir-c/Dialect/MemRef.h>
#include <stdlib.h>

#define STR mlirStringRefCreateFromCString

//===--- types that mean nothing below this pass --------------------------------------------------===//

// !moe.context is a pointer, and host memory is memory. What stays as it is because there is no memory for it, the conversions to LLVM refuse.
static MlirType loweredType(MlirType type) {
  if (moeMlirTypeIsAContext(type)) return moePointerType(mlirTypeGetContext(type));
  if (mlirTypeIsAUnrankedMemRef(type) && moeMlirAttributeIsAHost(mlirUnrankedMemrefGetMemorySpace(type)))
    return mlirUnrankedMemRefTypeGet(mlirShapedTypeGetElementType(type), mlirAttributeGetNull());
  if (!mlirTypeIsAMemRef(type) || !moeMlirAttributeIsAHost(mlirMemRefTypeGetMemorySpace(type))) return type;
  intptr_t rank = mlirShapedTypeGetRank(type); // of any view in the function
  int64_t *shape = malloc((size_t)(rank + 1) * sizeof *shape);
  if (!shape) return type;
  for (intptr_t dim = 0; dim < rank; ++dim) shape[dim] = mlirShapedTypeGetDimSize(type, dim);
  MlirType lowered = mlirMemRefTypeGet(mlirShapedTypeGetElementType(type), rank, shape, mlirMemRefTypeGetLayout(type), mlirAttributeGetNull());
  free(shape);
  return lowered;
}

static void lowerValue(MlirValue value) {
  MlirType type = mlirValueGetType(value), lowered = loweredType(type);
  if (!mlirTypeEqual(type, lowered)) mlirValueSetType(value, lowered);
}

// The signature of a function that the graph calls, but does not contain.
static void lowerDeclaration(MlirOperation function) {
  MlirType type = mlirTypeAttrGetValue(mlirOperationGetAttributeByName(function, STR("function_type")));
  intptr_t inputs = mlirFunctionTypeGetNumInputs(type), results = mlirFunctionTypeGetNumResults(type);
  MlirType *types = malloc((size_t)(inputs + results + 1) * sizeof *types);
  if (!types) return;
  for (intptr_t i = 0; i < inputs; ++i) types[i] = loweredType(mlirFunctionTypeGetInput(type, i));
  for (intptr_t i = 0; i < results; ++i) types[inputs + i] = loweredType(mlirFunctionTypeGetResult(type, i));
  MlirType lowered = mlirFunctionTypeGet(mlirOperationGetContext(function), inputs, types, results, types + inputs);
  mlirOperationSetAttributeByName(function, STR("function_type"), mlirTypeAttrGet(lowered));
  free(types);
}

static void lowerGlobal(MlirOperation global) {
  MlirType type = mlirTypeAttrGetValue(mlirOperationGetAttributeByName(global, STR("type")));
  mlirOperationSetAttributeByName(global, STR("type"), mlirTypeAttrGet(loweredType(type)));
}

static MlirWalkResult lowerTypes(MlirOperation op, void *data) {
  (void)data;
  if (moeIs(op, "memref.global")) lowerGlobal(op);
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); ++i) lowerValue(mlirOperationGetResult(op, i));
  for (intptr_t r = 0; r < mlirOperationGetNumRegions(op); ++r)
    for (MlirBlock block = mlirRegionGetFirstBlock(mlirOperationGetRegion(op, r)); !mlirBlockIsNull(block); block = mlirBlockGetNextInRegion(block))
      for (intptr_t i = 0; i < mlirBlockGetNumArguments(block); ++i) lowerValue(mlirBlockGetArgument(block, i));
  return MlirWalkResultAdvance;
}

//===--- functions --------------------------------------------------------------------------------===//

static void returnStatus(MlirBlock block, MlirLocation location, MlirValue status) {
  MlirOperationState state = mlirOperationStateGet(STR("func.return"), location);
  mlirOperationStateAddOperands(&state, 1, &status);
  mlirBlockAppendOwnedOperation(block, mlirOperationCreate(&state));
}

// Every return returns MOERT_OK, and a last block returns the status that it is given.
static MlirBlock returnStatuses(MlirOperation function) {
  MlirContext mlir = mlirOperationGetContext(function);
  MlirLocation location = mlirOperationGetLocation(function);
  MlirType i32 = mlirIntegerTypeGet(mlir, 32);
  MoeOpList returns = MOE_FIND(function, "func.return");
  for (intptr_t i = 0; i < returns.count; ++i) {
    MlirBlock block = mlirOperationGetBlock(returns.ops[i]);
    MlirValue ok = moeBuildConstant(returns.ops[i], i32, 0);
    mlirOperationDestroy(returns.ops[i]);
    returnStatus(block, location, ok);
  }
  free(returns.ops);
  MlirBlock exit = mlirBlockCreate(1, &i32, &location);
  mlirRegionAppendOwnedBlock(mlirOperationGetRegion(function, 0), exit);
  returnStatus(exit, location, mlirBlockGetArgument(exit, 0));
  return exit;
}

static MlirLogicalResult setFunctionType(MlirOperation function, MlirBlock entry) {
  MlirContext mlir = mlirOperationGetContext(function);
  MlirType i32 = mlirIntegerTypeGet(mlir, 32);
  intptr_t count = mlirBlockGetNumArguments(entry);
  MlirType *inputs = malloc((size_t)(count + 1) * sizeof *inputs);
  if (!inputs) return moeError(function, "cannot be lowered: there is no memory");
  for (intptr_t i = 0; i < count; ++i) inputs[i] = mlirValueGetType(mlirBlockGetArgument(entry, i));
  mlirOperationSetAttributeByName(function, STR("function_type"), mlirTypeAttrGet(mlirFunctionTypeGet(mlir, count, inputs, 1, &i32)));
  mlirOperationSetAttributeByName(function, STR("llvm.emit_c_interface"), mlirUnitAttrGet(mlir));
  free(inputs);
  return MOE_OK;
}

static MlirLogicalResult lowerOps(MlirOperation function, MoeLowering *lowering) {
  MoeOpList ours = MOE_FIND(function, "moe.", "ep.");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < ours.count && mlirLogicalResultIsSuccess(result); ++i) {
    MlirOperation op = ours.ops[i];
    lowering->before = op;
    if (!mlirOperationEqual(mlirOperationGetParentOperation(op), function))
      result = moeError(op, "is inside an op with a region: run convert-scf-to-cf first (inside linalg.generic and scf.forall it has no meaning)");
    else
      result = moeOpOf(op)->lower(op, lowering);
  }
  free(ours.ops);
  return result;
}

// An exchange between the hosts of the ranks, which a CUDA graph cannot hold.
static void markCapturable(MlirOperation function) {
  MoeOpList ours = MOE_FIND(function, "moe.", "ep.");
  for (intptr_t i = 0; i < ours.count; ++i)
    if (moeOpOf(ours.ops[i])->fabric && !moeOpOf(ours.ops[i])->kernel)
      mlirOperationSetAttributeByName(function, STR(MOE_NOT_CAPTURABLE), mlirUnitAttrGet(mlirOperationGetContext(function)));
  free(ours.ops);
}

static MlirLogicalResult lowerFunction(MlirOperation function, bool host) {
  MlirBlock entry = mlirRegionGetFirstBlock(mlirOperationGetRegion(function, 0));
  if (mlirBlockIsNull(entry)) return lowerDeclaration(function), MOE_OK;
  intptr_t count = mlirBlockGetNumArguments(entry);
  MlirValue context = count ? mlirBlockGetArgument(entry, count - 1) : (MlirValue){NULL};
  if (!count || !mlirTypeIsALLVMPointerType(mlirValueGetType(context))) return moeError(function, "must take a !moe.context as its last argument");
  MoeLowering lowering = {.mlir = mlirOperationGetContext(function),
                          .before = function,
                          .host = host,
                          .context = context,
                          .entry = entry,
                          .exit = returnStatuses(function)};
  MOE_TRY(setFunctionType(function, entry));
  markCapturable(function);
  return lowerOps(function, &lowering);
}

static bool isForHost(MlirOperation module) {
  MlirAttribute target = mlirOperationGetAttributeByName(module, STR(MOE_TARGET));
  return mlirAttributeIsNull(target) || !mlirAttributeIsAString(target) || mlirStringRefEqual(mlirStringAttrGetValue(target), STR("host"));
}

// moe-export-graph defines them.
static void declareKernelSlots(MlirOperation module) {
  MlirAttribute keys = mlirOperationGetAttributeByName(module, STR(MOE_KERNELS));
  intptr_t count = mlirAttributeIsNull(keys) || !mlirAttributeIsAArray(keys) ? 0 : mlirArrayAttrGetNumElements(keys);
  if (count == 0) return;
  MlirContext mlir = mlirOperationGetContext(module);
  MlirOperationState state = mlirOperationStateGet(STR("llvm.mlir.global"), mlirOperationGetLocation(module));
  MlirRegion none = mlirRegionCreate();
  MlirAttribute linkage = mlirLLVMLinkageAttrGet(mlir, MlirLLVMLinkageExternal);
  MlirNamedAttribute attributes[4] = {moeNamed(mlir, "sym_name", mlirStringAttrGet(mlir, STR(MOE_KERNEL_SLOTS))),
                                      moeNamed(mlir, "global_type", mlirTypeAttrGet(mlirLLVMArrayTypeGet(moePointerType(mlir), (unsigned)count))),
                                      moeNamed(mlir, "linkage", linkage),
                                      moeNamed(mlir, "addr_space", mlirIntegerAttrGet(mlirIntegerTypeGet(mlir, 32), 0))};
  mlirOperationStateAddAttributes(&state, 4, attributes);
  mlirOperationStateAddOwnedRegions(&state, 1, &none);
  mlirBlockAppendOwnedOperation(mlirModuleGetBody(mlirModuleFromOperation(module)), mlirOperationCreate(&state));
}

static MlirWalkResult checkArithmetic(MlirOperation op, void *data) {
  MlirLogicalResult *result = data;
  if (mlirLogicalResultIsFailure(moeCheckArithmetic(op))) *result = MOE_FAIL;
  return MlirWalkResultAdvance;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  bool host = isForHost(module);
  MoeOpList functions = MOE_FIND(module, "func.func");
  MlirLogicalResult result = MOE_OK;
  mlirOperationWalk(module, checkArithmetic, &result, MlirWalkPreOrder);
  mlirOperationWalk(module, lowerTypes, NULL, MlirWalkPreOrder);
  declareKernelSlots(module);
  for (intptr_t i = 0; i < functions.count && mlirLogicalResultIsSuccess(result); ++i) result = lowerFunction(functions.ops[i], host);
  free(functions.ops);
  return result;
}

static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__arith__, mlirGetDialectHandle__cf__,     mlirGetDialectHandle__func__,
                                                      mlirGetDialectHandle__llvm__,  mlirGetDialectHandle__memref__, NULL};

const MoePass moeLowerToRuntime = {"moe-lower-to-runtime", "Turn ops on buffers into calls of the runtime that leave the function on error", NULL,
                                   dialects, run};

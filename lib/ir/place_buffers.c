//===- place_buffers.c - moe-place-buffers --------------------------------------------------------===//
//
// After one-shot-bufferize: what a function returns must be the caller's destinations, so that results can go; intermediates move to the arena of the
// context; copies become linalg.copy (memref.copy lowers to a library call where a layout is not contiguous).
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/Dialect/Func.h>
#include <mlir-c/Dialect/Linalg.h>
#include <stdlib.h>

#define STR mlirStringRefCreateFromCString

//===--- results ----------------------------------------------------------------------------------===//

// The buffer behind casts, of which unreachable code can have a circle.
static MlirValue source(MlirValue buffer) {
  for (int casts = 0; casts < 1024 && mlirValueIsAOpResult(buffer) && moeIs(mlirOpResultGetOwner(buffer), "memref.cast"); ++casts)
    buffer = mlirOperationGetOperand(mlirOpResultGetOwner(buffer), 0);
  return buffer;
}

static MlirLogicalResult checkReturned(MlirOperation ret, MlirBlock entry) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(ret); ++i) {
    MlirValue buffer = source(mlirOperationGetOperand(ret, i));
    if (!mlirValueIsABlockArgument(buffer) || !mlirBlockEqual(mlirBlockArgumentGetOwner(buffer), entry))
      return moeError(ret, "result #%ld is not a destination of the caller: write it into an argument of the function (outs) and return that%s",
                      (long)i, "; an argument that is not seen to be a destination can be marked {moe.role = \"out\"}");
  }
  return MOE_OK;
}

// The function without results; the destinations hold them.
static MlirLogicalResult dropResults(MlirOperation function, MlirBlock entry) {
  MlirContext mlir = mlirOperationGetContext(function);
  MoeOpList returns = MOE_FIND(function, "func.return");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < returns.count && mlirLogicalResultIsSuccess(result); ++i) {
    result = checkReturned(returns.ops[i], entry);
    if (mlirLogicalResultIsFailure(result)) break;
    moeBuild(returns.ops[i], "func.return", 0, NULL, 0, NULL, 0, NULL);
    mlirOperationDestroy(returns.ops[i]);
  }
  free(returns.ops);
  intptr_t count = mlirBlockGetNumArguments(entry);
  MlirType *inputs = malloc((size_t)(count + 1) * sizeof *inputs);
  if (!inputs) return moeError(function, "cannot be lowered: there is no memory");
  for (intptr_t i = 0; i < count; ++i) inputs[i] = mlirValueGetType(mlirBlockGetArgument(entry, i));
  mlirOperationSetAttributeByName(function, STR("function_type"), mlirTypeAttrGet(mlirFunctionTypeGet(mlir, count, inputs, 0, NULL)));
  mlirOperationRemoveAttributeByName(function, STR("res_attrs"));
  mlirOperationRemoveAttributeByName(function, STR("arg_attrs")); // recorded in the interface; LLVM would warn of them
  free(inputs);
  return result;
}

//===--- intermediates ----------------------------------------------------------------------------===//

static MlirLogicalResult placeAllocation(MlirOperation alloc, MlirValue context) {
  MlirType type = mlirValueGetType(mlirOperationGetResult(alloc, 0));
  MlirValue operands[MOE_MAX_RANK + 1];
  intptr_t sizes = mlirOperationGetNumOperands(alloc);
  if (moeMlirAttributeIsAHost(mlirMemRefTypeGetMemorySpace(type)))
    return moeError(alloc, "host code's buffers live on the stack: use memref.alloca, or take the buffer as an argument");
  if (moeElementBytes(mlirShapedTypeGetElementType(type)) == 0) return moeError(alloc, "intermediates must have elements of 1, 2, 4 or 8 bytes");
  if (sizes > MOE_MAX_RANK) return moeError(alloc, "has rank %ld, must be at most %d", (long)sizes, MOE_MAX_RANK);
  for (intptr_t i = 0; i < sizes; ++i) operands[i] = mlirOperationGetOperand(alloc, i);
  operands[sizes] = context;
  MlirValue buffer = moeBuildValue(alloc, "moe.allocate", sizes + 1, operands, type, 0, NULL);
  mlirValueReplaceAllUsesOfWith(mlirOperationGetResult(alloc, 0), buffer);
  mlirOperationDestroy(alloc);
  return MOE_OK;
}

static MlirLogicalResult placeAllocations(MlirOperation function, MlirValue context) {
  MoeOpList allocations = MOE_FIND(function, "memref.alloc"), deallocations = MOE_FIND(function, "memref.dealloc");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < deallocations.count; ++i) mlirOperationDestroy(deallocations.ops[i]); // the arena is rewound at the end
  for (intptr_t i = 0; i < allocations.count && mlirLogicalResultIsSuccess(result); ++i) result = placeAllocation(allocations.ops[i], context);
  free(allocations.ops), free(deallocations.ops);
  return result;
}

static MlirLogicalResult convertCopy(MlirOperation op) {
  for (int i = 0; i < 2; ++i)
    if (!mlirTypeIsAMemRef(mlirValueGetType(mlirOperationGetOperand(op, i)))) return moeError(op, "must be between buffers of a known rank");
  moeBuildLinalg(op, "linalg.copy", mlirOperationGetOperand(op, 0), mlirOperationGetOperand(op, 1));
  mlirOperationDestroy(op);
  return MOE_OK;
}

static MlirLogicalResult convertCopies(MlirOperation function) {
  MoeOpList copies = MOE_FIND(function, "memref.copy");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < copies.count && mlirLogicalResultIsSuccess(result); ++i) result = convertCopy(copies.ops[i]);
  free(copies.ops);
  return result;
}

//===--- the pass ---------------------------------------------------------------------------------===//

// Functions return a status below, so that none can be called that is still there.
#define INLINE_RULE                                                                                                                                  \
  "graph functions cannot call each other recursively, and one of several blocks cannot be called inside an op with a region (use scf.if in it)"

static bool hasBody(MlirOperation function) { return !mlirBlockIsNull(mlirRegionGetFirstBlock(mlirOperationGetRegion(function, 0))); }

static MlirLogicalResult checkCalls(MlirOperation function, MlirSymbolTable symbols) {
  MoeOpList calls = MOE_FIND(function, "func.call");
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < calls.count && mlirLogicalResultIsSuccess(result); ++i) {
    MlirAttribute callee = mlirOperationGetAttributeByName(calls.ops[i], STR("callee"));
    MlirOperation called = mlirSymbolTableLookup(symbols, mlirFlatSymbolRefAttrGetValue(callee));
    if (!mlirOperationIsNull(called) && hasBody(called)) result = moeError(calls.ops[i], "was not inlined: " INLINE_RULE);
  }
  free(calls.ops);
  return result;
}

static MlirLogicalResult placeInFunction(MlirOperation function, MlirSymbolTable symbols) {
  MlirBlock entry = mlirRegionGetFirstBlock(mlirOperationGetRegion(function, 0));
  if (mlirBlockIsNull(entry)) return MOE_OK;
  if (!moeIsPublic(function)) return moeError(function, "is private and was not inlined: " INLINE_RULE);
  MOE_TRY(checkCalls(function, symbols));
  intptr_t count = mlirBlockGetNumArguments(entry);
  if (count == 0 || !moeMlirTypeIsAContext(mlirValueGetType(mlirBlockGetArgument(entry, count - 1))))
    return moeError(function, "must take a !moe.context as its last argument");
  MOE_TRY(dropResults(function, entry));
  MOE_TRY(convertCopies(function));
  return placeAllocations(function, mlirBlockGetArgument(entry, count - 1));
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MoeOpList functions = MOE_FIND(module, "func.func");
  MlirSymbolTable symbols = mlirSymbolTableCreate(module);
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < functions.count && mlirLogicalResultIsSuccess(result); ++i) result = placeInFunction(functions.ops[i], symbols);
  mlirSymbolTableDestroy(symbols);
  free(functions.ops);
  return result;
}

static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__moe__, mlirGetDialectHandle__func__, mlirGetDialectHandle__linalg__,
                                                      NULL};

const MoePass moePlaceBuffers = {"moe-place-buffers", "Bind results to the caller's destinations and move intermediates to the arena of the context",
                                 NULL, dialects, run};

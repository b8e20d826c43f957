//===- build.c - making ops through the MLIR C API ------------------------------------------------===//

#include "lib/ir/build.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/AffineMap.h>
#include <mlir-c/Dialect/LLVM.h>
#include <mlir-c/Dialect/Linalg.h>
#include <moert/moert.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

//===--- ops --------------------------------------------------------------------------------------===//

MlirNamedAttribute moeNamed(MlirContext context, const char *name, MlirAttribute attribute) {
  return mlirNamedAttributeGet(mlirIdentifierGet(context, STR(name)), attribute);
}

MlirOperation moeCreate(MlirLocation location, const char *name, intptr_t numOperands, const MlirValue *operands, intptr_t numResults,
                        const MlirType *results, intptr_t numAttributes, const MlirNamedAttribute *attributes) {
  MlirOperationState state = mlirOperationStateGet(STR(name), location);
  mlirOperationStateAddOperands(&state, numOperands, operands);
  mlirOperationStateAddResults(&state, numResults, results);
  mlirOperationStateAddAttributes(&state, numAttributes, attributes);
  return mlirOperationCreate(&state);
}

MlirOperation moeBuild(MlirOperation before, const char *name, intptr_t numOperands, const MlirValue *operands, intptr_t numResults,
                       const MlirType *results, intptr_t numAttributes, const MlirNamedAttribute *attributes) {
  MlirOperation op = moeCreate(mlirOperationGetLocation(before), name, numOperands, operands, numResults, results, numAttributes, attributes);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(before), before, op);
  return op;
}

MlirValue moeBuildValue(MlirOperation before, const char *name, intptr_t numOperands, const MlirValue *operands, MlirType result,
                        intptr_t numAttributes, const MlirNamedAttribute *attributes) {
  return mlirOperationGetResult(moeBuild(before, name, numOperands, operands, 1, &result, numAttributes, attributes), 0);
}

void moeBuildLinalg(MlirOperation before, const char *name, MlirValue input, MlirValue output) {
  MlirContext mlir = mlirOperationGetContext(before);
  MlirOperationState state = mlirOperationStateGet(STR(name), mlirOperationGetLocation(before));
  MlirNamedAttribute sizes = moeNamed(mlir, "operandSegmentSizes", mlirDenseI32ArrayGet(mlir, 2, (int32_t[]){1, 1}));
  MlirRegion body = mlirRegionCreate();
  mlirOperationStateAddOperands(&state, 2, (MlirValue[]){input, output});
  mlirOperationStateAddAttributes(&state, 1, &sizes);
  mlirOperationStateAddOwnedRegions(&state, 1, &body);
  MlirOperation op = mlirOperationCreate(&state);
  mlirLinalgFillBuiltinNamedOpRegion(op);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(before), before, op);
}

MlirType moeInt64Type(MlirContext context) { return mlirIntegerTypeGet(context, 64); }
MlirType moePointerType(MlirContext context) { return mlirLLVMPointerTypeGet(context, 0); }

MlirValue moeBuildConstant(MlirOperation before, MlirType type, int64_t value) {
  MlirNamedAttribute attribute = moeNamed(mlirOperationGetContext(before), "value", mlirIntegerAttrGet(type, value));
  return moeBuildValue(before, "arith.constant", 0, NULL, type, 1, &attribute);
}

static MlirValue castTo(MlirOperation before, MlirValue number, MlirType type) {
  if (mlirTypeEqual(mlirValueGetType(number), type)) return number;
  return moeBuildValue(before, "arith.index_cast", 1, &number, type, 0, NULL);
}

MlirValue moeBuildIndex(MlirOperation before, MlirValue number) { return castTo(before, number, mlirIndexTypeGet(mlirOperationGetContext(before))); }
MlirValue moeBuildInt64(MlirOperation before, MlirValue number) { return castTo(before, number, moeInt64Type(mlirOperationGetContext(before))); }

MlirValue moeBuildPointer(MlirOperation before, MlirValue int64) {
  return moeBuildValue(before, "llvm.inttoptr", 1, &int64, moePointerType(mlirOperationGetContext(before)), 0, NULL);
}

//===--- finding ops ------------------------------------------------------------------------------===//

typedef struct Search {
  const char *const *names;
  MoeOpList found;
} Search;

static bool isDialect(const char *name) { return name[strlen(name) - 1] == '.'; }

static bool matches(MlirOperation op, const char *name) {
  MlirStringRef actual = mlirIdentifierStr(mlirOperationGetName(op));
  size_t length = strlen(name);
  bool dialect = isDialect(name);
  return (dialect ? actual.length > length : actual.length == length) && memcmp(actual.data, name, length) == 0;
}

bool moeIs(MlirOperation op, const char *name) { return matches(op, name); }

MlirOperation moeProducer(MlirValue value, const char *name) {
  bool found = mlirValueIsAOpResult(value) && moeIs(mlirOpResultGetOwner(value), name);
  return found ? mlirOpResultGetOwner(value) : (MlirOperation){NULL};
}

bool moeIsPublic(MlirOperation symbol) {
  MlirAttribute visibility = mlirOperationGetAttributeByName(symbol, STR("sym_visibility"));
  return mlirAttributeIsNull(visibility) || mlirStringRefEqual(mlirStringAttrGetValue(visibility), STR("public"));
}

static MlirWalkResult collect(MlirOperation op, void *data) {
  Search *search = data;
  for (const char *const *name = search->names; *name; ++name) {
    if (!matches(op, *name) || (isDialect(*name) && !moeOpOf(op))) continue;
    MoeOpList *list = &search->found;
    if (list->count == list->capacity) {
      intptr_t capacity = 2 * list->capacity + 16;
      MlirOperation *ops = realloc(list->ops, (size_t)capacity * sizeof *ops);
      if (!ops) return MlirWalkResultInterrupt;
      list->ops = ops, list->capacity = capacity;
    }
    list->ops[list->count++] = op;
    break;
  }
  return MlirWalkResultAdvance;
}

MoeOpList moeFindOps(MlirOperation root, const char *const *names) {
  Search search = {names, {NULL, 0, 0}};
  mlirOperationWalk(root, collect, &search, MlirWalkPreOrder);
  return search.found;
}

//===--- facts ------------------------------------------------------------------------------------===//

int64_t moeElementBytes(MlirType element) {
  if (mlirTypeIsAIndex(element)) return 8;
  int64_t bits = mlirTypeIsAInteger(element) ? mlirIntegerTypeGetWidth(element) : mlirTypeIsAFloat(element) ? mlirFloatTypeGetWidth(element) : 0;
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
}

static moert_dtype dtypeOf(MlirType element) {
  if (mlirTypeIsABF16(element)) return (moert_dtype){MOERT_CODE_BFLOAT, 16, 1};
  if (mlirTypeIsAFloat8E4M3FN(element)) return (moert_dtype){MOERT_CODE_F8E4M3FN, 8, 1};
  if (mlirTypeIsAFloat8E5M2(element)) return (moert_dtype){MOERT_CODE_F8E5M2, 8, 1};
  if (mlirTypeIsAFloat8E8M0FNU(element)) return (moert_dtype){MOERT_CODE_F8E8M0FNU, 8, 1};
  uint8_t bits = (uint8_t)(8 * moeElementBytes(element));
  if (mlirTypeIsAFloat(element)) return (moert_dtype){MOERT_CODE_FLOAT, bits, 1};
  return (moert_dtype){mlirTypeIsAInteger(element) && mlirIntegerTypeIsUnsigned(element) ? MOERT_CODE_UINT : MOERT_CODE_INT, bits, 1};
}

int64_t moeDtypeCode(MlirType element) {
  moert_dtype dtype = dtypeOf(element);
  return dtype.code | dtype.bits << 8 | dtype.lanes << 16;
}

int64_t moeStaticBytes(MlirType buffer) {
  int64_t bytes = moeElementBytes(mlirShapedTypeGetElementType(buffer));
  for (intptr_t dim = 0; dim < mlirShapedTypeGetRank(buffer); ++dim) {
    if (mlirShapedTypeIsDynamicDim(buffer, dim)) return MOE_DYNAMIC;
    if (__builtin_mul_overflow(bytes, mlirShapedTypeGetDimSize(buffer, dim), &bytes)) return MOE_DYNAMIC;
  }
  return bytes;
}

bool moeConstantValue(MlirValue number, int64_t *constant) {
  if (!mlirValueIsAOpResult(number)) return false;
  MlirOperation op = mlirOpResultGetOwner(number);
  if (!moeIs(op, "arith.constant") && !moeIs(op, "index.constant")) return false;
  MlirAttribute value = mlirOperationGetAttributeByName(op, STR("value"));
  // A constant that stands behind its use has not been verified yet.
  if (mlirAttributeIsNull(value) || !mlirAttributeIsAInteger(value) || !mlirTypeEqual(mlirAttributeGetType(value), mlirValueGetType(number)))
    return false;
  *constant = mlirIntegerAttrGetValueInt(value);
  return true;
}

bool moeIsDeviceWork(MlirOperation op) {
  for (op = mlirOperationGetParentOperation(op); !mlirOperationIsNull(op); op = mlirOperationGetParentOperation(op))
    if (moeIs(op, "linalg.") || moeIs(op, "scf.forall") || moeIs(op, "scf.parallel") || moeIs(op, "affine.parallel") || moeHasEpilogue(op))
      return true;
  return false;
}

// Unreachable code can have a circle of views.
MlirValue moeRootOf(MlirValue buffer) {
  for (int views = 0; views < 1024 && mlirValueIsAOpResult(buffer); ++views) {
    MlirOperation op = mlirOpResultGetOwner(buffer);
    if (!moeIs(op, "memref.") || mlirOperationGetNumOperands(op) == 0 || !mlirTypeIsAMemRef(mlirValueGetType(mlirOperationGetOperand(op, 0)))) break;
    buffer = mlirOperationGetOperand(op, 0);
  }
  return buffer;
}

bool moeIsInHostSpace(MlirValue value) {
  MlirType type = mlirValueGetType(value);
  if (mlirTypeIsAMemRef(type)) return moeMlirAttributeIsAHost(mlirMemRefTypeGetMemorySpace(type));
  return mlirTypeIsAUnrankedMemRef(type) && moeMlirAttributeIsAHost(mlirUnrankedMemrefGetMemorySpace(type));
}

bool moeIsHostMemory(MlirValue buffer) {
  MlirValue root = moeRootOf(buffer);
  if (moeIsInHostSpace(buffer) || moeIsInHostSpace(root)) return true;
  if (!mlirValueIsAOpResult(root)) return false;
  MlirOperation op = mlirOpResultGetOwner(root);
  return moeIs(op, "memref.get_global") || moeIs(op, "memref.alloca");
}

static bool isFloat8(MlirValue value) {
  MlirType type = mlirValueGetType(value);
  return mlirTypeIsAFloat(type) && mlirFloatTypeGetWidth(type) == 8;
}

MlirLogicalResult moeCheckArithmetic(MlirOperation op) {
  if (moeIs(op, "arith.bitcast") || moeIs(op, "arith.constant") || moeIs(op, "arith.select") || !(moeIs(op, "arith.") || moeIs(op, "math.")))
    return MOE_OK;
  bool float8 = false;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) float8 |= isFloat8(mlirOperationGetOperand(op, i));
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); ++i) float8 |= isFloat8(mlirOperationGetResult(op, i));
  return float8 ? moeError(op, "computes with 8-bit floats, which nothing lowers: leave them to ops of moe and ep, or convert their bits as integers")
                : MOE_OK;
}

MlirLogicalResult moeCheckExtents(MlirOperation op, int index, MlirType buffer) {
  intptr_t dynamic = 0, given = moeOperandRange(op, index).count;
  for (intptr_t dim = 0; dim < mlirShapedTypeGetRank(buffer); ++dim) dynamic += mlirShapedTypeIsDynamicDim(buffer, dim);
  if (given == dynamic) return MOE_OK;
  return moeError(op, "has %ld 'sizes', but its result has %ld dynamic dimensions", (long)given, (long)dynamic);
}

MlirLogicalResult moeCheckContiguousBuffer(MlirOperation op, MlirType buffer) {
  if (!mlirTypeIsAMemRef(buffer)) return moeError(op, "the result must be a ranked memref");
  if (mlirShapedTypeGetRank(buffer) > MOE_MAX_RANK)
    return moeError(op, "the result has rank %ld, must be at most %d", (long)mlirShapedTypeGetRank(buffer), MOE_MAX_RANK);
  if (!mlirAffineMapIsIdentity(mlirMemRefTypeGetAffineMap(buffer))) return moeError(op, "the result must be contiguous: its type has a layout");
  if (!mlirAttributeIsNull(mlirMemRefTypeGetMemorySpace(buffer))) return moeError(op, "the result must be in the default memory space");
  return MOE_OK;
}

//===- declare_interface.c - moe-declare-interface ------------------------------------------------===//
//
// Before bufferization: record each public function's interface, and mark the tensors that it only reads, so that nothing is ever written into a
// caller's input.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/interface.h"
#include "lib/ir/build.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/Dialect/Bufferization.h>
#include <mlir-c/Dialect/Func.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString
#define NO_MEMORY "cannot be given an interface: there is no memory"

enum { MAX_NAME = 128 };
#define NAME_RULE "1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','"

typedef struct Argument {
  char name[MAX_NAME];
  MlirType type;
  MlirAttribute attributes; // dictionary that the author wrote, or null
  bool destination;         // something that the function returns was written into it
  bool symmetric;           // an op uses it as a workspace
  MlirOperation initialize; // the op that lays the workspace out, or null
} Argument;

typedef struct Function {
  MlirOperation op;
  MlirBlock entry;
  intptr_t count; // without the context
  Argument *arguments;
} Function;

static bool equals(MlirStringRef text, const char *other) { return strlen(other) == text.length && memcmp(text.data, other, text.length) == 0; }

// Names are typed on command lines, as in --input NAME=FILE, and stand between quotes in the text of moe-export-graph.
static bool isName(MlirStringRef text) {
  for (size_t i = 0; i < text.length; ++i)
    if (text.data[i] <= ' ' || text.data[i] > '~' || strchr("\"\\=:,", text.data[i])) return false;
  return text.length > 0 && text.length < MAX_NAME;
}

//===--- what the author wrote --------------------------------------------------------------------===//

static MlirAttribute authored(const Argument *argument, const char *name) {
  return mlirAttributeIsNull(argument->attributes) ? argument->attributes : mlirDictionaryAttrGetElementByName(argument->attributes, STR(name));
}

// A misspelt attribute would silently do nothing.
static MlirLogicalResult checkNames(const Function *function, intptr_t index) {
  MlirAttribute attributes = function->arguments[index].attributes;
  for (intptr_t i = 0; !mlirAttributeIsNull(attributes) && i < mlirDictionaryAttrGetNumElements(attributes); ++i) {
    MlirStringRef name = mlirIdentifierStr(mlirDictionaryAttrGetElement(attributes, i).name);
    bool ours = name.length > 4 && memcmp(name.data, "moe.", 4) == 0;
    if (ours && !equals(name, MOE_ARGUMENT_NAME) && !equals(name, MOE_ARGUMENT_DIMS) && !equals(name, MOE_ARGUMENT_ROLE))
      return moeError(function->op, "argument #%ld has an unknown attribute '%.*s': known are moe.name, moe.dims, moe.role", (long)index,
                      (int)name.length, name.data);
  }
  return MOE_OK;
}

static MlirLogicalResult readName(const Function *function, intptr_t index) {
  Argument *argument = &function->arguments[index];
  MlirAttribute name = authored(argument, MOE_ARGUMENT_NAME);
  if (mlirAttributeIsNull(name)) {
    snprintf(argument->name, sizeof argument->name, "arg%ld", (long)index);
  } else {
    if (!mlirAttributeIsAString(name) || !isName(mlirStringAttrGetValue(name)))
      return moeError(function->op, "moe.name of argument #%ld must be a string: " NAME_RULE, (long)index);
    MlirStringRef text = mlirStringAttrGetValue(name);
    memcpy(argument->name, text.data, text.length);
  }
  for (intptr_t other = 0; other < index; ++other)
    if (strcmp(function->arguments[other].name, argument->name) == 0)
      return moeError(function->op, "arguments #%ld and #%ld are both named '%s'", (long)other, (long)index, argument->name);
  return MOE_OK;
}

static bool isTensor(MlirType type) { return mlirTypeIsARankedTensor(type); }
static bool isBuffer(MlirType type) { return isTensor(type) || mlirTypeIsAMemRef(type); }

// An element type of moert_dtype.
#define ELEMENT_RULE "use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only"
static bool hasDtype(MlirType element) {
  int64_t bytes = moeElementBytes(element);
  if (bytes != 1 || !mlirTypeIsAFloat(element)) return bytes != 0;
  return mlirTypeIsAFloat8E4M3FN(element) || mlirTypeIsAFloat8E5M2(element) || mlirTypeIsAFloat8E8M0FNU(element);
}

static MlirLogicalResult checkType(const Function *function, intptr_t index) {
  const Argument *argument = &function->arguments[index];
  MlirType type = argument->type, element = isBuffer(type) ? mlirShapedTypeGetElementType(type) : type;
  if (!isBuffer(type) && !mlirTypeIsAIndex(type) && !mlirTypeIsAInteger(type) && !mlirTypeIsAFloat(type))
    return moeError(function->op, "argument '%s' must be a ranked tensor, a ranked memref or a number", argument->name);
  if (!hasDtype(element) || (!isBuffer(type) && mlirTypeIsAFloat(type) && moeElementBytes(type) < 2))
    return moeError(function->op, "argument '%s' has an element type that callers cannot pass: " ELEMENT_RULE, argument->name);
  if (!isBuffer(type)) return MOE_OK;
  if (mlirShapedTypeGetRank(type) > MOE_MAX_RANK)
    return moeError(function->op, "argument '%s' must have rank %d at most", argument->name, MOE_MAX_RANK);
  if (mlirTypeIsAMemRef(type) && !mlirAffineMapIsIdentity(mlirMemRefTypeGetAffineMap(type)))
    return moeError(function->op, "argument '%s' must be contiguous: its type has a layout", argument->name);
  return MOE_OK;
}

static MlirLogicalResult readArgument(const Function *function, intptr_t index, MlirAttribute allAttributes) {
  Argument *argument = &function->arguments[index];
  argument->type = mlirValueGetType(mlirBlockGetArgument(function->entry, index));
  argument->attributes = mlirAttributeIsNull(allAttributes) ? allAttributes : mlirArrayAttrGetElement(allAttributes, index);
  MOE_TRY(checkNames(function, index));
  MOE_TRY(readName(function, index));
  return checkType(function, index);
}

//===--- which arguments are destinations ---------------------------------------------------------===//

// The values that what a function returns was made from, each once: branches that join make 2^n ways back, and unreachable code can define values in
// a circle.
typedef struct Trail {
  MlirValue *values;
  size_t count, capacity; // at most half as many values as the table has places
  size_t *table;          // by a value's address: its number from 1; 0: free
  bool lost;              // there was no memory for it
} Trail;

static size_t *placeOf(const Trail *trail, MlirValue value) {
  size_t place = (size_t)((uint64_t)(uintptr_t)value.ptr * UINT64_C(0x9e3779b97f4a7c15) >> 32);
  for (;; ++place) {
    size_t *number = &trail->table[place & (trail->capacity - 1)];
    if (!*number || mlirValueEqual(trail->values[*number - 1], value)) return number;
  }
}

static void growTrail(Trail *trail) {
  size_t capacity = trail->capacity ? 2 * trail->capacity : 64, *table = calloc(capacity, sizeof *table);
  MlirValue *values = realloc(trail->values, capacity / 2 * sizeof *values);
  if (values) trail->values = values;
  trail->lost = !table || !values;
  if (trail->lost) {
    free(table);
    return;
  }
  free(trail->table);
  trail->table = table, trail->capacity = capacity;
  for (size_t i = 0; i < trail->count; ++i) *placeOf(trail, trail->values[i]) = i + 1;
}

static void follow(Trail *trail, MlirValue value) {
  if (mlirValueIsNull(value)) return;
  if (!trail->lost && trail->count == trail->capacity / 2) growTrail(trail);
  if (trail->lost) return;
  size_t *number = placeOf(trail, value);
  if (*number) return;
  trail->values[trail->count++] = value;
  *number = trail->count;
}

// The operand that a result on tensors was written into, for the ops that write into one.
static MlirValue writtenInto(MlirOperation op, intptr_t result) {
  static const char *const first[] = {"tensor.cast", "tensor.expand_shape", "tensor.collapse_shape", "tensor.reshape", "scf.while"};
  static const char *const second[] = {"tensor.insert", "tensor.insert_slice", "bufferization.materialize_in_destination"};
  static const char *const last[] = {"linalg.", "scf.forall", "scf.for"}; // as many as results, at the end
  intptr_t operands = mlirOperationGetNumOperands(op), results = mlirOperationGetNumResults(op);
  const MoeOp *ours = moeOpOf(op);
  for (intptr_t i = 0, next = 0; ours && i < operands; ++i)
    if (ours->operands[moeOperandIndex(op, i)].kind == MOE_DESTINATION && next++ == result) return mlirOperationGetOperand(op, i);
  for (size_t i = 0; i < sizeof first / sizeof *first; ++i)
    if (moeIs(op, first[i]) && result < operands) return mlirOperationGetOperand(op, result); // scf.while may have more results
  for (size_t i = 0; i < sizeof second / sizeof *second; ++i)
    if (moeIs(op, second[i])) return mlirOperationGetOperand(op, 1);
  for (size_t i = 0; i < sizeof last / sizeof *last; ++i)
    if (moeIs(op, last[i])) return mlirOperationGetOperand(op, operands - results + result);
  return (MlirValue){NULL};
}

// What the blocks of the op's regions yield as its result.
static void followBranches(Trail *trail, MlirOperation op, intptr_t result) {
  for (intptr_t r = 0; r < mlirOperationGetNumRegions(op); ++r) {
    MlirBlock block = mlirRegionGetFirstBlock(mlirOperationGetRegion(op, r));
    for (; !mlirBlockIsNull(block); block = mlirBlockGetNextInRegion(block)) {
      MlirOperation yield = mlirBlockGetTerminator(block);
      if (moeIs(yield, "scf.yield")) follow(trail, mlirOperationGetOperand(yield, result));
    }
  }
}

static void followBack(const Function *function, MlirValue value, Trail *trail) {
  if (mlirValueIsABlockArgument(value)) {
    intptr_t index = mlirBlockArgumentGetArgNumber(value);
    if (mlirBlockEqual(mlirBlockArgumentGetOwner(value), function->entry) && index < function->count) function->arguments[index].destination = true;
    return;
  }
  MlirOperation op = mlirOpResultGetOwner(value);
  intptr_t result = mlirOpResultGetResultNumber(value);
  if (moeIs(op, "scf.if") || moeIs(op, "scf.index_switch") || moeIs(op, "scf.execute_region"))
    followBranches(trail, op, result);
  else
    follow(trail, writtenInto(op, result));
}

static MlirLogicalResult markDestinations(const Function *function) {
  Trail trail = {.count = 0};
  MoeOpList returns = MOE_FIND(function->op, "func.return");
  for (intptr_t i = 0; i < returns.count; ++i)
    for (intptr_t k = 0; k < mlirOperationGetNumOperands(returns.ops[i]); ++k) follow(&trail, mlirOperationGetOperand(returns.ops[i], k));
  for (size_t i = 0; i < trail.count; ++i) followBack(function, trail.values[i], &trail);
  free(returns.ops), free(trail.values), free(trail.table);
  return trail.lost ? moeError(function->op, "cannot be looked through: there is no memory") : MOE_OK;
}

//===--- which arguments are workspaces -----------------------------------------------------------===//

static void markWorkspaces(const Function *function) {
  MoeOpList ours = MOE_FIND(function->op, "moe.", "ep.");
  for (intptr_t i = 0; i < ours.count; ++i) {
    const MoeOp *info = moeOpOf(ours.ops[i]);
    for (intptr_t k = 0; k < mlirOperationGetNumOperands(ours.ops[i]); ++k) {
      MlirValue value = mlirOperationGetOperand(ours.ops[i], k);
      if (strcmp(info->operands[moeOperandIndex(ours.ops[i], k)].memory, "symmetric") != 0 || !mlirValueIsABlockArgument(value)) continue;
      if (!mlirBlockEqual(mlirBlockArgumentGetOwner(value), function->entry)) continue;
      Argument *argument = &function->arguments[mlirBlockArgumentGetArgNumber(value)];
      argument->symmetric = true;
      if (moeIs(ours.ops[i], "moe.initialize")) argument->initialize = ours.ops[i];
    }
  }
  free(ours.ops);
}

static const char *const workspaceParameters[] = {"max_num_tokens", "dispatch_bytes_per_token", "combine_bytes_per_token", "eplb_stats_num_experts",
                                                  "ep_size"};
enum { WORKSPACE_PARAMETERS = sizeof workspaceParameters / sizeof *workspaceParameters };

// Functions that share a workspace by name share the op that lays it out.
static MlirLogicalResult shareWorkspaces(const Function *functions, intptr_t count, Argument *argument) {
  for (intptr_t f = 0; f < count; ++f) {
    for (intptr_t i = 0; i < functions[f].count; ++i) {
      const Argument *other = &functions[f].arguments[i];
      if (mlirOperationIsNull(other->initialize) || strcmp(other->name, argument->name) != 0) continue;
      if (mlirOperationIsNull(argument->initialize)) argument->initialize = other->initialize;
      for (int p = 0; p < WORKSPACE_PARAMETERS; ++p)
        if (moeInt(other->initialize, workspaceParameters[p]) != moeInt(argument->initialize, workspaceParameters[p]))
          return moeError(other->initialize, "initialises workspace '%s' with another %s than another function of the module", argument->name,
                          workspaceParameters[p]);
    }
  }
  return MOE_OK;
}

//===--- writing the interface --------------------------------------------------------------------===//

static MlirAttribute string(MlirContext mlir, const char *text) { return mlirStringAttrGet(mlir, STR(text)); }

static MlirLogicalResult roleOf(const Function *function, const Argument *argument, const char **role) {
  static const char *const roles[] = {"in", "out", "inout"};
  MlirAttribute written = authored(argument, MOE_ARGUMENT_ROLE);
  *role = !isBuffer(argument->type) ? "in" : !isTensor(argument->type) ? "inout" : argument->destination ? "out" : "in";
  if (mlirAttributeIsNull(written)) return MOE_OK;
  for (size_t i = 0; i < sizeof roles / sizeof *roles; ++i) {
    if (!mlirAttributeIsAString(written) || !equals(mlirStringAttrGetValue(written), roles[i])) continue;
    if (i > 0 && !isBuffer(argument->type))
      return moeError(function->op, "moe.role of argument '%s' must be \"in\": it is a number, which the caller passes by value", argument->name);
    *role = roles[i];
    return MOE_OK;
  }
  return moeError(function->op, "moe.role of argument '%s' must be \"in\", \"out\" or \"inout\"", argument->name);
}

static const char *memoryOf(const Argument *argument) {
  if (!isBuffer(argument->type)) return "value";
  if (argument->symmetric) return "symmetric";
  return mlirTypeIsAMemRef(argument->type) && moeMlirAttributeIsAHost(mlirMemRefTypeGetMemorySpace(argument->type)) ? "host" : "device";
}

static MlirLogicalResult symbolsOf(const Function *function, const Argument *argument, MlirAttribute *symbols) {
  MlirContext mlir = mlirOperationGetContext(function->op);
  MlirAttribute dims = authored(argument, MOE_ARGUMENT_DIMS), names[MOE_MAX_RANK];
  intptr_t rank = isBuffer(argument->type) ? mlirShapedTypeGetRank(argument->type) : 0, next = 0;
  if (!mlirAttributeIsNull(dims) && !mlirAttributeIsAArray(dims))
    return moeError(function->op, "moe.dims of argument '%s' must be an array of strings", argument->name);
  intptr_t given = mlirAttributeIsNull(dims) ? 0 : mlirArrayAttrGetNumElements(dims);
  for (intptr_t dim = 0; dim < rank; ++dim) {
    names[dim] = string(mlir, "");
    if (!mlirShapedTypeIsDynamicDim(argument->type, dim)) continue;
    if (next < given) names[dim] = mlirArrayAttrGetElement(dims, next);
    if (!mlirAttributeIsAString(names[dim])) return moeError(function->op, "moe.dims of argument '%s' must be an array of strings", argument->name);
    MlirStringRef name = mlirStringAttrGetValue(names[dim]);
    if (name.length > 0 && !isName(name))
      return moeError(function->op, "moe.dims of argument '%s' must consist of names: " NAME_RULE, argument->name);
    ++next;
  }
  if (given && given != next)
    return moeError(function->op, "moe.dims of argument '%s' has %ld names for %ld dynamic dimensions", argument->name, (long)given, (long)next);
  *symbols = mlirArrayAttrGet(mlir, rank, names);
  return MOE_OK;
}

static MlirAttribute workspaceOf(MlirContext mlir, MlirOperation initialize) {
  MlirAttribute numbers[WORKSPACE_PARAMETERS];
  for (int p = 0; p < WORKSPACE_PARAMETERS; ++p) numbers[p] = mlirIntegerAttrGet(moeInt64Type(mlir), moeInt(initialize, workspaceParameters[p]));
  return mlirArrayAttrGet(mlir, WORKSPACE_PARAMETERS, numbers);
}

static MlirLogicalResult writeArgument(const Function *function, intptr_t index, MlirAttribute *entry) {
  const Argument *argument = &function->arguments[index];
  MlirContext mlir = mlirOperationGetContext(function->op);
  const char *role;
  MlirAttribute symbols;
  MOE_TRY(roleOf(function, argument, &role));
  MOE_TRY(symbolsOf(function, argument, &symbols));
  MlirNamedAttribute fields[6] = {moeNamed(mlir, "memory", string(mlir, memoryOf(argument))), moeNamed(mlir, "name", string(mlir, argument->name)),
                                  moeNamed(mlir, "role", string(mlir, role)), moeNamed(mlir, "symbols", symbols),
                                  moeNamed(mlir, "type", mlirTypeAttrGet(argument->type))};
  bool workspace = !mlirOperationIsNull(argument->initialize);
  if (workspace) fields[5] = moeNamed(mlir, "workspace", workspaceOf(mlir, argument->initialize));
  *entry = mlirDictionaryAttrGet(mlir, workspace ? 6 : 5, fields);
  if (isTensor(argument->type))
    mlirFuncSetArgAttr(function->op, index, STR("bufferization.writable"), mlirBoolAttrGet(mlir, strcmp(role, "in") != 0));
  return MOE_OK;
}

static MlirLogicalResult writeInterface(const Function *function) {
  MlirAttribute *entries = calloc((size_t)function->count + 1, sizeof *entries);
  if (!entries) return moeError(function->op, NO_MEMORY);
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < function->count && mlirLogicalResultIsSuccess(result); ++i) result = writeArgument(function, i, &entries[i]);
  if (mlirLogicalResultIsSuccess(result))
    mlirOperationSetAttributeByName(function->op, STR(MOE_INTERFACE),
                                    mlirArrayAttrGet(mlirOperationGetContext(function->op), function->count, entries));
  free(entries);
  return result;
}

//===--- the pass ---------------------------------------------------------------------------------===//

static MlirLogicalResult checkResults(MlirOperation op) {
  MlirType type = mlirTypeAttrGetValue(mlirOperationGetAttributeByName(op, STR("function_type")));
  for (intptr_t i = 0; i < mlirFunctionTypeGetNumResults(type); ++i)
    if (!isTensor(mlirFunctionTypeGetResult(type, i)))
      return moeError(op, "result #%ld must be a ranked tensor, which is a destination among the arguments; write numbers into a memref in #moe.host",
                      (long)i);
  return MOE_OK;
}

// The lowering calls moert_..., and makes an _mlir_ciface_... for each function.
static MlirLogicalResult checkFunctionName(MlirOperation op) {
  static const char *const reserved[] = {"moert_", "_mlir_ciface_"};
  MlirStringRef name = mlirStringAttrGetValue(mlirOperationGetAttributeByName(op, STR("sym_name")));
  if (!isName(name)) return moeError(op, "must have a name of " NAME_RULE);
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; ++i)
    if (name.length >= strlen(reserved[i]) && memcmp(name.data, reserved[i], strlen(reserved[i])) == 0)
      return moeError(op, "has the name '%.*s', but names that begin with '%s' are the runtime's: choose another", (int)name.length, name.data,
                      reserved[i]);
  return MOE_OK;
}

static MlirLogicalResult readFunction(Function *function) {
  MlirAttribute attributes = mlirOperationGetAttributeByName(function->op, STR("arg_attrs"));
  intptr_t count = mlirBlockGetNumArguments(function->entry);
  if (count == 0 || !moeMlirTypeIsAContext(mlirValueGetType(mlirBlockGetArgument(function->entry, count - 1))))
    return moeError(function->op, "must take a !moe.context as its last argument");
  MOE_TRY(checkFunctionName(function->op));
  function->count = count - 1;
  function->arguments = calloc((size_t)count, sizeof *function->arguments);
  if (!function->arguments) return moeError(function->op, NO_MEMORY);
  MOE_TRY(checkResults(function->op));
  for (intptr_t i = 0; i < function->count; ++i) MOE_TRY(readArgument(function, i, attributes));
  MOE_TRY(markDestinations(function));
  markWorkspaces(function);
  return MOE_OK;
}

static MlirLogicalResult declareAll(Function *functions, intptr_t count) {
  for (intptr_t f = 0; f < count; ++f) MOE_TRY(readFunction(&functions[f]));
  for (intptr_t f = 0; f < count; ++f)
    for (intptr_t i = 0; i < functions[f].count; ++i)
      if (functions[f].arguments[i].symmetric) MOE_TRY(shareWorkspaces(functions, count, &functions[f].arguments[i]));
  for (intptr_t f = 0; f < count; ++f) MOE_TRY(writeInterface(&functions[f]));
  return MOE_OK;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  MoeOpList found = MOE_FIND(module, "func.func");
  Function *functions = calloc((size_t)found.count + 1, sizeof *functions);
  intptr_t count = 0;
  if (!functions) free(found.ops);
  if (!functions) return moeError(module, NO_MEMORY);
  for (intptr_t i = 0; i < found.count; ++i) {
    MlirBlock entry = mlirRegionGetFirstBlock(mlirOperationGetRegion(found.ops[i], 0));
    if (!mlirBlockIsNull(entry) && moeIsPublic(found.ops[i])) functions[count].op = found.ops[i], functions[count++].entry = entry;
  }
  MlirLogicalResult result = declareAll(functions, count);
  for (intptr_t f = 0; f < count; ++f) free(functions[f].arguments);
  free(functions), free(found.ops);
  return result;
}

static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__moe__, mlirGetDialectHandle__bufferization__, NULL};

const MoePass moeDeclareInterface = {"moe-declare-interface", "Record the functions' interfaces and protect the tensors that they only read", NULL,
                                     dialects, run};

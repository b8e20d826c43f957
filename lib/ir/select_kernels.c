//===- select_kernels.c - moe-select-kernels ------------------------------------------------------===//
//
// Names the kernel of every op by a key: "<op>/<target>/<element types of its buffers>,<static parameters>". The host backend has one implementation
// of each op, which takes any key; for devices the table of kernels says which instance a key gets.
//
//===----------------------------------------------------------------------------------------------===//

#include "kernels/table.h"
#include "lib/ir/build.h"
#include "lib/ir/interface.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/Diagnostics.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

typedef struct Key {
  char text[1024];
  size_t used;
  char separator;
} Key;

static void append(MlirStringRef text, void *data) {
  Key *key = data;
  size_t room = sizeof key->text - 1 - key->used, count = text.length < room ? text.length : room;
  memcpy(key->text + key->used, text.data, count);
  key->text[key->used += count] = 0;
}

static void next(Key *key) {
  append(mlirStringRefCreate(&key->separator, 1), key);
  key->separator = ',';
}

static void addAttribute(Key *key, MlirOperation op, const MoeAttribute *attribute) {
  char text[64];
  if (attribute->kind == MOE_FLOAT)
    snprintf(text, sizeof text, "=%.17g", moeFloat(op, attribute->name));
  else if (attribute->kind == MOE_ENUM)
    snprintf(text, sizeof text, "=%s", attribute->cases[moeInt(op, attribute->name)]);
  else
    snprintf(text, sizeof text, "=%lld", (long long)moeInt(op, attribute->name));
  next(key);
  append(STR(attribute->name), key);
  append(STR(text), key);
}

static void makeKey(Key *key, MlirOperation op, const char *target) {
  const MoeOp *info = moeOpOf(op);
  *key = (Key){{0}, 0, '/'};
  append(STR(info->name), key);
  append(STR("/"), key);
  append(STR(target), key);
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    MoeOperandKind kind = info->operands[moeOperandIndex(op, i)].kind;
    if (kind != MOE_INPUT && kind != MOE_DESTINATION) continue;
    next(key);
    mlirTypePrint(moeElementType(mlirOperationGetOperand(op, i)), append, key);
  }
  for (int i = 0; i < info->numAttributes; ++i) addAttribute(key, op, &info->attributes[i]);
}

static bool addUnique(MlirAttribute *keys, intptr_t count, MlirAttribute key) {
  for (intptr_t i = 0; i < count; ++i)
    if (mlirAttributeEqual(keys[i], key)) return false;
  keys[count] = key;
  return true;
}

// Iterations that have no order cannot call: ranks would have to agree on one.
static MlirLogicalResult checkPlace(MlirOperation op) {
  static const char *const unordered[] = {"linalg.", "scf.forall", "scf.parallel", "affine.parallel"};
  for (MlirOperation parent = mlirOperationGetParentOperation(op); !mlirOperationIsNull(parent); parent = mlirOperationGetParentOperation(parent)) {
    for (size_t i = 0; i < sizeof unordered / sizeof *unordered; ++i) {
      if (!moeIs(parent, unordered[i])) continue;
      MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(parent));
      return moeError(op, "is inside %.*s, whose iterations have no order: use it outside, or in scf.for", (int)name.length, name.data);
    }
  }
  return MOE_OK;
}

//===--- which kernel a key gets ------------------------------------------------------------------===//

typedef struct Request {
  const char *target;
  bool host, remarks, requireSpecialized;
} Request;

// "moe.combine/sm_90a/bf16,hidden_size=7168,top_k=8"
static void nameInstance(Key *name, const MoeKernelInstance *instance, const char *target) {
  *name = (Key){{0}, 0, '/'};
  append(STR(instance->op), name);
  append(STR("/"), name);
  append(STR(target), name);
  next(name);
  append(STR(instance->dtype), name);
  for (int i = 0; i < instance->numColumns; ++i) {
    next(name);
    append(STR(instance->columns[i].name), name);
    append(STR("="), name);
    append(STR(instance->columns[i].value), name);
  }
}

// "kernel moe.combine/sm_90a/bf16,hidden_size=4096,top_k=8 (exact, set default)": libraries of smaller sets do not have it.
static void describeExact(char *text, size_t size, const char *name, MoeKernelSet set) {
  if (set == MOE_KERNEL_SET_MINIMAL)
    snprintf(text, size, "kernel %s (exact)", name);
  else
    snprintf(text, size, "kernel %s (exact, set %s)", name, moeKernelSetName(set));
}

// "generic kernel; nearest moe.combine/sm_90a/bf16,hidden_size=7168,top_k=8: hidden_size is 7000, the nearest instance has 7168"
static void describe(char *text, size_t size, const MoeKernelMatch *match, const char *target) {
  Key name = {{0}, 0, '/'};
  if (match->instance) nameInstance(&name, match->instance, target);
  if (match->answer == MOE_KERNEL_EXACT)
    describeExact(text, size, name.text, match->instance->set);
  else if (match->instance)
    snprintf(text, size, "generic kernel; nearest %s: %s", name.text, match->why);
  else
    snprintf(text, size, "generic kernel: %s", match->why);
}

static MlirLogicalResult answer(MlirOperation op, const char *key, const Request *request) {
  char text[1536];
  if (request->host) {
    snprintf(text, sizeof text, "the implementation of the host backend");
  } else {
    MoeKernelMatch match = moeKernelMatch(key);
    if (match.answer == MOE_KERNEL_NONE) return moeError(op, "has no kernel for target '%s': %s", request->target, match.why);
    describe(text, sizeof text, &match, request->target);
    if (match.answer == MOE_KERNEL_GENERIC && request->requireSpecialized) return moeError(op, "would get a %s", text);
  }
  if (request->remarks) moeRemark(op, text);
  return MOE_OK;
}

//===--- the pass ---------------------------------------------------------------------------------===//

static MlirLogicalResult selectKernel(MlirOperation op, const Request *request, MlirAttribute *keys, intptr_t *count) {
  MOE_TRY(checkPlace(op));
  if (!moeOpOf(op)->kernel) return MOE_OK;
  Key key;
  makeKey(&key, op, request->target);
  MlirAttribute attribute = mlirStringAttrGet(mlirOperationGetContext(op), STR(key.text));
  mlirOperationSetAttributeByName(op, STR(MOE_KERNEL), attribute);
  *count += addUnique(keys, *count, attribute);
  return answer(op, key.text, request);
}

static MlirLogicalResult selectAll(MlirOperation module, const Request *request) {
  MlirContext mlir = mlirOperationGetContext(module);
  MoeOpList ours = MOE_FIND(module, "moe.", "ep.");
  MlirAttribute *keys = calloc((size_t)ours.count + 1, sizeof *keys);
  intptr_t count = 0;
  MlirLogicalResult result = keys ? MOE_OK : moeError(module, "cannot be given kernels: there is no memory");
  for (intptr_t i = 0; keys && i < ours.count; ++i)
    if (mlirLogicalResultIsFailure(selectKernel(ours.ops[i], request, keys, &count))) result = MOE_FAIL; // all of them, each with its place
  if (keys) mlirOperationSetAttributeByName(module, STR(MOE_KERNELS), mlirArrayAttrGet(mlir, count, keys));
  mlirOperationSetAttributeByName(module, STR(MOE_TARGET), mlirStringAttrGet(mlir, STR(request->target)));
  free(keys), free(ours.ops);
  return result;
}

static MlirLogicalResult refuse(MlirOperation module, const char *format, const char *value) {
  char text[256];
  snprintf(text, sizeof text, format, value);
  mlirEmitError(mlirOperationGetLocation(module), text);
  return MOE_FAIL;
}

static bool parseBool(const char *text, bool *value) {
  *value = strcmp(text, "true") == 0;
  return *value || strcmp(text, "false") == 0;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  Request request = {options[0], strcmp(options[0], "host") == 0, false, false};
  if (!request.host && !moeKernelTargetExists(request.target))
    return refuse(module, "target '%.100s' is not one of this build: host, sm_90a", request.target);
  if (!parseBool(options[1], &request.remarks)) return refuse(module, "remarks must be true or false, not '%.100s'", options[1]);
  if (!parseBool(options[2], &request.requireSpecialized))
    return refuse(module, "require-specialized must be true or false, not '%.100s'", options[2]);
  return selectAll(module, &request);
}

static const char *const options[] = {"target",
                                      "host",
                                      "What the graph will run on",
                                      "remarks",
                                      "false",
                                      "Say of each op which kernel it gets",
                                      "require-specialized",
                                      "false",
                                      "A generic kernel is an error",
                                      NULL};
static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__moe__, NULL};

const MoePass moeSelectKernels = {"moe-select-kernels", "Name the kernel of every op for a target", options, dialects, run};

//===- select_kernels.c - moe-select-kernels ------------------------------------------------------===//
//
// Names the kernel of every op by a key: "<op>/<target>/<element types of its buffers>,<static parameters>". The host backend has one implementation
// of each op, which takes any key.
//
//===----------------------------------------------------------------------------------------------===//

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

// A view and a buffer of the arena are no kernels.
static bool hasKernel(MlirOperation op) { return !moeIs(op, "moe.workspace_view") && !moeIs(op, "moe.allocate"); }

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

static MlirLogicalResult selectAll(MlirOperation module, const char *target) {
  MlirContext mlir = mlirOperationGetContext(module);
  MoeOpList ours = MOE_FIND(module, "moe.", "ep.");
  MlirAttribute *keys = calloc((size_t)ours.count + 1, sizeof *keys);
  intptr_t count = 0;
  MlirLogicalResult result = MOE_OK;
  for (intptr_t i = 0; i < ours.count && mlirLogicalResultIsSuccess(result); ++i) {
    result = checkPlace(ours.ops[i]);
    if (!hasKernel(ours.ops[i])) continue;
    Key key;
    makeKey(&key, ours.ops[i], target);
    MlirAttribute attribute = mlirStringAttrGet(mlir, STR(key.text));
    mlirOperationSetAttributeByName(ours.ops[i], STR(MOE_KERNEL), attribute);
    count += addUnique(keys, count, attribute);
  }
  mlirOperationSetAttributeByName(module, STR(MOE_KERNELS), mlirArrayAttrGet(mlir, count, keys));
  mlirOperationSetAttributeByName(module, STR(MOE_TARGET), mlirStringAttrGet(mlir, STR(target)));
  free(keys), free(ours.ops);
  return result;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  const char *target = options[0];
  if (strcmp(target, "host") != 0) {
    char text[256];
    snprintf(text, sizeof text, "target '%s' is not one of this build: host", target);
    mlirEmitError(mlirOperationGetLocation(module), text);
    return MOE_FAIL;
  }
  return selectAll(module, target);
}

static const char *const options[] = {"target", "host", "What the graph will run on", NULL};
static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__moe__, NULL};

const MoePass moeSelectKernels = {"moe-select-kernels", "Name the kernel of every op for a target", options, dialects, run};

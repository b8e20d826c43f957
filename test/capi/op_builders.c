//===- op_builders.c - every op, built by its table -----------------------------------------------===//
//
//   test_op_builders ROUND-TRIP.mlir ...
//
// The ops in the given files, which have each op in all its forms, are built anew through the C API: the module must print as before. What is then
// left out or changed, one field at a time, must be refused in these words. Nothing here names an op.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/ops.h"
#include "support.h"
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STRUCT = 1024, MAX_VALUES = 64, MAX_OPS = 64 };

static const char *const *files;
static int numFiles;

//===--- what a parsed op was built from ----------------------------------------------------------===//

typedef union Struct {
  size_t structSize;
  double alignment;
  char bytes[MAX_STRUCT];
} Struct;

typedef struct Parts {
  const MoeMlirOpInfo *info;
  MlirLocation location;
  Struct operands, attributes;
  MlirValue lists[MAX_VALUES];
  intptr_t numListed;
  MlirType scalar;
} Parts;

static void setValue(Parts *parts, size_t offset, MlirValue value) { memcpy(parts->operands.bytes + offset, &value, sizeof value); }
static void setCount(Parts *parts, size_t offset, int64_t count) { memcpy(parts->operands.bytes + offset, &count, sizeof count); }
static void setList(Parts *parts, size_t offset, const MlirValue *values) { memcpy(parts->operands.bytes + offset, &values, sizeof values); }
static void setInteger(Parts *parts, size_t offset, int64_t number) { memcpy(parts->attributes.bytes + offset, &number, sizeof number); }
static void setFloat(Parts *parts, size_t offset, double number) { memcpy(parts->attributes.bytes + offset, &number, sizeof number); }

static void takeOperands(Parts *parts, MlirOperation op) {
  for (int i = 0; parts->info->operands[i]; ++i) {
    const MoeMlirOperandInfo *operand = parts->info->operands[i];
    MoeRange range = moeOperandRange(op, i);
    if (operand->list) {
      setList(parts, operand->offset, parts->lists + parts->numListed);
      setCount(parts, operand->count_offset, range.count);
      for (intptr_t k = 0; k < range.count; ++k) parts->lists[parts->numListed++] = mlirOperationGetOperand(op, range.first + k);
    } else if (range.count) {
      setValue(parts, operand->offset, mlirOperationGetOperand(op, range.first));
    }
  }
}

// All are there: upstream's parser has added the defaults.
static void takeAttribute(Parts *parts, MlirOperation op, const MoeMlirAttributeInfo *attribute) {
  MlirAttribute value = mlirOperationGetAttributeByName(op, STR(attribute->name));
  assert_false(mlirAttributeIsNull(value));
  switch (attribute->bounds->kind) {
  case MOE_MLIR_INT: setInteger(parts, attribute->offset, mlirIntegerAttrGetValueInt(value)); break;
  case MOE_MLIR_BOOL: setInteger(parts, attribute->offset, mlirBoolAttrGetValue(value)); break;
  case MOE_MLIR_FLOAT: setFloat(parts, attribute->offset, mlirFloatAttrGetValueDouble(value)); break;
  case MOE_MLIR_ENUM:
    for (int64_t i = 0; i < attribute->bounds->num_cases; ++i)
      if (mlirStringRefEqual(mlirStringAttrGetValue(value), STR(attribute->bounds->cases[i]))) setInteger(parts, attribute->offset, i);
  }
}

static void takeParts(Parts *parts, MlirOperation op) {
  memset(parts, 0, sizeof *parts);
  parts->info = moeMlirOpInfoGet(moeOpOf(op)->name);
  parts->location = mlirOperationGetLocation(op);
  assert_true(parts->info->operands_size <= MAX_STRUCT && parts->info->attributes_size <= MAX_STRUCT);
  parts->operands.structSize = parts->info->operands_size;
  parts->attributes.structSize = parts->info->attributes_size;
  takeOperands(parts, op);
  for (const MoeMlirAttributeInfo *const *attribute = parts->info->attributes; *attribute; ++attribute) takeAttribute(parts, op, *attribute);
  intptr_t results = mlirOperationGetNumResults(op);
  if (parts->info->scalar && !parts->info->scalar_type) parts->scalar = mlirValueGetType(mlirOperationGetResult(op, results - 1));
}

static MlirOperation build(const Parts *parts, MlirRegion region) {
  const void *attributes = parts->info->attributes_size ? &parts->attributes : NULL;
  return moeMlirOpCreate(parts->info->name, parts->location, &parts->operands, attributes, parts->scalar, region);
}

//===--- the ops of the files ---------------------------------------------------------------------===//

typedef struct Ops {
  MlirOperation list[MAX_OPS];
  intptr_t count;
} Ops;

static MlirWalkResult collect(MlirOperation op, void *data) {
  Ops *ops = data;
  if (moeOpOf(op)) {
    assert_true(ops->count < MAX_OPS);
    ops->list[ops->count++] = op;
  }
  return MlirWalkResultAdvance;
}

static MlirModule parseFile(MlirContext context, const char *path) {
  static char text[1 << 18];
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("cannot read %s", path);
  size_t length = fread(text, 1, sizeof text, file);
  fclose(file);
  assert_true(length < sizeof text);
  MlirModule module = mlirModuleCreateParse(context, mlirStringRefCreate(text, length));
  if (mlirModuleIsNull(module)) fail_msg("%s: %s", path, diagnostics.data);
  return module;
}

static void forEachOp(MlirContext context, void (*visit)(MlirOperation op)) {
  for (int i = 0; i < numFiles; ++i) {
    MlirModule module = parseFile(context, files[i]);
    Ops ops = {.count = 0};
    mlirOperationWalk(mlirModuleGetOperation(module), collect, &ops, MlirWalkPreOrder);
    for (intptr_t k = 0; k < ops.count; ++k) visit(ops.list[k]);
    mlirModuleDestroy(module);
  }
}

//===--- built again, they print the same ---------------------------------------------------------===//

static void copyOtherAttributes(MlirOperation from, MlirOperation to) {
  for (intptr_t i = 0; i < mlirOperationGetNumDiscardableAttributes(from); ++i) {
    MlirNamedAttribute attribute = mlirOperationGetDiscardableAttribute(from, i);
    mlirOperationSetDiscardableAttributeByName(to, mlirIdentifierStr(attribute.name), attribute.attribute);
  }
}

static void expectInferred(const Parts *parts, MlirOperation op) {
  MlirType types[MAX_VALUES];
  intptr_t count = mlirOperationGetNumResults(op);
  assert_int_equal(moeMlirOpInferResultTypes(parts->info->name, parts->location, &parts->operands, parts->scalar, MAX_VALUES, types), count);
  for (intptr_t i = 0; i < count; ++i) assert_true(mlirTypeEqual(types[i], mlirValueGetType(mlirOperationGetResult(op, i))));
}

static void rebuild(MlirOperation op) {
  Parts parts;
  MlirRegion region = {NULL};
  takeParts(&parts, op);
  expectInferred(&parts, op);
  if (mlirOperationGetNumRegions(op)) {
    region = mlirRegionCreate();
    mlirRegionTakeBody(region, mlirOperationGetRegion(op, 0));
  }
  MlirOperation built = build(&parts, region);
  if (mlirOperationIsNull(built)) fail_msg("%s", diagnostics.data);
  copyOtherAttributes(op, built);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(op), op, built);
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); ++i)
    mlirValueReplaceAllUsesOfWith(mlirOperationGetResult(op, i), mlirOperationGetResult(built, i));
  mlirOperationDestroy(op);
}

static void printsAsParsed(void **state) {
  Text *parsed = calloc(1, sizeof *parsed), *built = calloc(1, sizeof *built);
  for (int i = 0; i < numFiles; ++i) {
    MlirModule module = parseFile(contextOf(state), files[i]);
    Ops ops = {.count = 0};
    parsed->used = built->used = 0;
    mlirOperationPrint(mlirModuleGetOperation(module), append, parsed);
    mlirOperationWalk(mlirModuleGetOperation(module), collect, &ops, MlirWalkPreOrder);
    for (intptr_t k = 0; k < ops.count; ++k) rebuild(ops.list[k]);
    assert_true(mlirOperationVerify(mlirModuleGetOperation(module)));
    mlirOperationPrint(mlirModuleGetOperation(module), append, built);
    assert_string_equal(built->data, parsed->data);
    mlirModuleDestroy(module);
  }
  assert_string_equal(diagnostics.data, "");
  free(parsed), free(built);
}

//===--- the files have all forms -----------------------------------------------------------------===//

typedef struct Forms {
  bool tensors, memrefs, withRegion, withoutRegion;
  bool absent[MAX_VALUES], present[MAX_VALUES]; // by operand
} Forms;

static Forms forms[MAX_OPS]; // by op, in the order of moeMlirOps

static void noteForms(MlirOperation op) {
  intptr_t index = 0;
  while (moeMlirOps()[index] != moeMlirOpInfoGet(moeOpOf(op)->name)) ++index;
  const MoeMlirOpInfo *info = moeMlirOps()[index];
  for (int i = 0; info->operands[i]; ++i) {
    MoeRange range = moeOperandRange(op, i);
    *(range.count ? &forms[index].present[i] : &forms[index].absent[i]) = true;
    if (range.count == 0 || (info->operands[i]->kind != MOE_MLIR_INPUT && info->operands[i]->kind != MOE_MLIR_DESTINATION)) continue;
    bool tensor = mlirTypeIsATensor(mlirValueGetType(mlirOperationGetOperand(op, range.first)));
    *(tensor ? &forms[index].tensors : &forms[index].memrefs) = true;
  }
  bool region = mlirOperationGetNumRegions(op) && !mlirBlockIsNull(mlirRegionGetFirstBlock(mlirOperationGetRegion(op, 0)));
  *(region ? &forms[index].withRegion : &forms[index].withoutRegion) = true;
}

static int countMissing(const MoeMlirOpInfo *info, const Forms *seen) {
  int missing = 0;
  bool buffers = false;
  for (int i = 0; info->operands[i]; ++i) {
    const MoeMlirOperandInfo *operand = info->operands[i];
    buffers |= operand->kind == MOE_MLIR_INPUT || operand->kind == MOE_MLIR_DESTINATION;
    bool never = !seen->absent[i] && !seen->present[i], wanting = operand->optional && !(seen->absent[i] && seen->present[i]);
    if (never || wanting) print_error("no round-trip test has %s %s '%s'\n", info->name, seen->present[i] ? "without" : "with", operand->name);
    missing += never || wanting;
  }
  const struct {
    bool wanting;
    const char *form;
  } others[] = {{buffers && !seen->tensors, "on tensors"},
                {buffers && !seen->memrefs, "on memrefs"},
                {info->region && !seen->withRegion, "with its region"},
                {info->region && !seen->withoutRegion, "without its region"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
    if (others[i].wanting) print_error("no round-trip test has %s %s\n", info->name, others[i].form);
    missing += others[i].wanting;
  }
  return missing;
}

static void hasAllForms(void **state) {
  int missing = 0;
  forEachOp(contextOf(state), noteForms);
  for (intptr_t i = 0; moeMlirOps()[i]; ++i) missing += countMissing(moeMlirOps()[i], &forms[i]);
  assert_int_equal(missing, 0);
}

//===--- what is missing --------------------------------------------------------------------------===//

__attribute__((format(printf, 2, 3))) static void expectRefused(const Parts *parts, const char *format, ...) {
  char text[512];
  int used = snprintf(text, sizeof text, "'%s' op ", parts->info->name);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
  va_end(arguments);
  assert_true(mlirOperationIsNull(build(parts, (MlirRegion){NULL})));
  expectDiagnostic(text);
}

static void refuseList(const Parts *whole, const MoeMlirOperandInfo *operand) {
  Parts parts = *whole;
  int64_t count;
  memcpy(&count, whole->operands.bytes + operand->count_offset, sizeof count);
  setCount(&parts, operand->count_offset, -1);
  expectRefused(&parts, "num_%s is -1, must be 0 to 2147483647", operand->name);
  setCount(&parts, operand->count_offset, (int64_t)INT32_MAX + 1);
  expectRefused(&parts, "num_%s is 2147483648, must be 0 to 2147483647", operand->name);
  if (count == 0) return;
  setCount(&parts, operand->count_offset, count);
  setList(&parts, operand->offset, NULL);
  expectRefused(&parts, "num_%s is %lld, but '%s' is NULL", operand->name, (long long)count, operand->name);
  MlirValue nulls[MAX_VALUES] = {{NULL}};
  setList(&parts, operand->offset, nulls);
  expectRefused(&parts, "operand '%s' #0 is null", operand->name);
}

static void refuseIncomplete(MlirOperation op) {
  Parts whole;
  takeParts(&whole, op);
  for (const MoeMlirOperandInfo *const *operand = whole.info->operands; *operand; ++operand) {
    Parts parts = whole;
    if ((*operand)->list) refuseList(&whole, *operand);
    if ((*operand)->list || (*operand)->optional) continue;
    setValue(&parts, (*operand)->offset, (MlirValue){NULL});
    expectRefused(&parts, "operand '%s' is missing", (*operand)->name);
    assert_int_equal(moeMlirOpInferResultTypes(whole.info->name, (MlirLocation){NULL}, &parts.operands, parts.scalar, 0, NULL), -1);
  }
  for (const MoeMlirAttributeInfo *const *attribute = whole.info->attributes; *attribute; ++attribute) {
    Parts parts = whole;
    if (!(*attribute)->bounds->required) continue;
    if ((*attribute)->bounds->kind == MOE_MLIR_FLOAT)
      setFloat(&parts, (*attribute)->offset, MOE_MLIR_REQUIRED_FLOAT);
    else
      setInteger(&parts, (*attribute)->offset, MOE_MLIR_REQUIRED);
    expectRefused(&parts, "parameter '%s' is missing", (*attribute)->name);
  }
}

static void refusesIncomplete(void **state) { forEachOp(contextOf(state), refuseIncomplete); }

static void refuseOther(MlirOperation op) {
  Parts parts;
  takeParts(&parts, op);
  size_t size = parts.info->operands_size;
  parts.operands.structSize = size + 1;
  expectRefused(&parts, "struct_size of the operands is %zu, this library's is %zu; begin with the INIT macro", size + 1, size);
  parts.operands.structSize = 0;
  expectRefused(&parts, "struct_size of the operands is 0, this library's is %zu; begin with the INIT macro", size);
  takeParts(&parts, op);
  if (parts.info->attributes_size) {
    parts.attributes.structSize = 7;
    expectRefused(&parts, "struct_size of the attributes is 7, this library's is %zu; begin with the INIT macro", parts.info->attributes_size);
  }
  takeParts(&parts, op);
  if (!mlirTypeIsNull(parts.scalar)) {
    parts.scalar = (MlirType){NULL};
    expectRefused(&parts, "the type of result '%s' is missing", parts.info->scalar);
  } else {
    parts.scalar = moeMlirContextTypeGet(mlirOperationGetContext(op));
    expectRefused(&parts, "fixes the types of its results: none can be given");
  }
  takeParts(&parts, op);
  if (parts.info->region) return;
  assert_true(mlirOperationIsNull(build(&parts, mlirRegionCreate())));
  assert_non_null(strstr(diagnostics.data, "takes no region"));
  clearDiagnostics();
}

static void refusesUnknownStructs(void **state) { forEachOp(contextOf(state), refuseOther); }

//===--- bounds -----------------------------------------------------------------------------------===//

// Whether the attribute is within its bounds by itself; it need not fit the others.
static bool isAccepted(const Parts *parts, const char *attribute) {
  char refusal[2][128];
  MlirOperation op = build(parts, (MlirRegion){NULL});
  if (!mlirOperationIsNull(op)) mlirOperationDestroy(op);
  snprintf(refusal[0], sizeof refusal[0], "attribute '%s' failed to satisfy constraint", attribute);
  snprintf(refusal[1], sizeof refusal[1], "parameter '%s' is", attribute);
  bool accepted = !strstr(diagnostics.data, refusal[0]) && !strstr(diagnostics.data, refusal[1]);
  if (!accepted) assert_true(mlirOperationIsNull(op));
  clearDiagnostics();
  return accepted;
}

static void expectInteger(const Parts *whole, const MoeMlirAttributeInfo *attribute, int64_t number, bool accepted) {
  Parts parts = *whole;
  setInteger(&parts, attribute->offset, number);
  if (isAccepted(&parts, attribute->name) != accepted)
    fail_msg("%s: %s = %lld should be %s", whole->info->name, attribute->name, (long long)number, accepted ? "accepted" : "refused");
}

static void expectFloat(const Parts *whole, const MoeMlirAttributeInfo *attribute, double number, bool accepted) {
  Parts parts = *whole;
  setFloat(&parts, attribute->offset, number);
  if (isAccepted(&parts, attribute->name) != accepted)
    fail_msg("%s: %s = %g should be %s", whole->info->name, attribute->name, number, accepted ? "accepted" : "refused");
}

static void enforceBounds(MlirOperation op) {
  Parts whole;
  takeParts(&whole, op);
  for (const MoeMlirAttributeInfo *const *attribute = whole.info->attributes; *attribute; ++attribute) {
    MoeMlirBounds bounds = MOE_MLIR_BOUNDS_INIT;
    assert_true(moeMlirAttributeBounds(whole.info->name, (*attribute)->name, &bounds));
    assert_memory_equal(&bounds, (*attribute)->bounds, sizeof bounds);
    if (bounds.kind == MOE_MLIR_FLOAT) {
      expectFloat(&whole, *attribute, DBL_MAX, true), expectFloat(&whole, *attribute, -DBL_MAX, true);
      expectFloat(&whole, *attribute, HUGE_VAL, false), expectFloat(&whole, *attribute, NAN, false);
      continue;
    }
    expectInteger(&whole, *attribute, bounds.minimum, true), expectInteger(&whole, *attribute, bounds.maximum, true);
    expectInteger(&whole, *attribute, bounds.minimum - 1, false), expectInteger(&whole, *attribute, bounds.maximum + 1, false);
    if (!bounds.required) expectInteger(&whole, *attribute, bounds.default_value, true);
  }
}

static void boundsAreTheVerifiers(void **state) { forEachOp(contextOf(state), enforceBounds); }

// An attribute that is not given, in a struct that ends before it or none at all, has its default.
static void takeDefaults(MlirOperation op) {
  Parts parts;
  takeParts(&parts, op);
  parts.attributes.structSize = sizeof parts.attributes.structSize;
  bool required = false;
  for (const MoeMlirAttributeInfo *const *attribute = parts.info->attributes; *attribute; ++attribute) required |= (*attribute)->bounds->required;
  MlirOperation built = build(&parts, (MlirRegion){NULL});
  if (required) assert_non_null(strstr(diagnostics.data, "' is missing"));
  clearDiagnostics();
  if (mlirOperationIsNull(built)) return; // without its parameters, the op need not be valid
  for (const MoeMlirAttributeInfo *const *attribute = parts.info->attributes; *attribute; ++attribute) {
    const MoeMlirBounds *bounds = (*attribute)->bounds;
    if (bounds->kind == MOE_MLIR_FLOAT)
      assert_true(moeFloat(built, (*attribute)->name) == bounds->default_float);
    else
      assert_int_equal(moeInt(built, (*attribute)->name), bounds->default_value);
  }
  mlirOperationDestroy(built);
}

static void absentAttributesHaveDefaults(void **state) { forEachOp(contextOf(state), takeDefaults); }

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(printsAsParsed, setUp, tearDown),
      cmocka_unit_test_setup_teardown(hasAllForms, setUp, tearDown),
      cmocka_unit_test_setup_teardown(refusesIncomplete, setUp, tearDown),
      cmocka_unit_test_setup_teardown(refusesUnknownStructs, setUp, tearDown),
      cmocka_unit_test_setup_teardown(boundsAreTheVerifiers, setUp, tearDown),
      cmocka_unit_test_setup_teardown(absentAttributesHaveDefaults, setUp, tearDown),
  };
  files = (const char *const *)argv + 1;
  numFiles = argc - 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}

//===- mutations.c - changes of a module that may make it invalid ---------------------------------===//
//
// In memory, where nothing is checked until the verifier runs: operands, results, types, attributes and regions become anything that the C API of
// MLIR lets them be. After a change the function's type and the results of our ops mostly follow, so that what is wrong is one thing, not its echo.
//
//===----------------------------------------------------------------------------------------------===//

#include "mutations.h"
#include "lib/ir/build.h"
#include "moe-mlir-c/MoeMlir.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

enum { MAX_VALUES = 256, MAX_DIMS = 40 };

typedef struct Scene {
  fuzz_random *random;
  MlirContext mlir;
  MlirOperation function;
  MlirBlock entry;
  MlirOperation op; // one of ours in the function
  const MoeOp *info;
} Scene;

void fuzzAppend(MlirStringRef piece, void *data) {
  FuzzText *text = data;
  size_t room = sizeof text->data - 1 - text->used, count = piece.length < room ? piece.length : room;
  memcpy(text->data + text->used, piece.data, count);
  text->data[text->used += count] = 0;
}

static int64_t below(Scene *scene, int64_t count) { return fuzz_below(scene->random, count); }
static bool chance(Scene *scene, int percent) { return fuzz_chance(scene->random, percent); }
#define PICK(scene, array) FUZZ_PICK((scene)->random, array)

//===--- values -----------------------------------------------------------------------------------===//

typedef struct Values {
  MlirValue at[MAX_VALUES];
  intptr_t count;
} Values;

static void addValue(Values *values, MlirValue value) {
  if (values->count < MAX_VALUES) values->at[values->count++] = value;
}

static MlirWalkResult addResults(MlirOperation op, void *data) {
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); ++i) addValue(data, mlirOperationGetResult(op, i));
  return MlirWalkResultAdvance;
}

static bool isBuffer(MlirType type) { return mlirTypeIsARankedTensor(type) || mlirTypeIsAMemRef(type); }

static bool isSimilar(MlirType a, MlirType b) {
  if (!isBuffer(a) || !isBuffer(b)) return mlirTypeEqual(a, b);
  return mlirShapedTypeGetRank(a) == mlirShapedTypeGetRank(b) && mlirTypeEqual(mlirShapedTypeGetElementType(a), mlirShapedTypeGetElementType(b));
}

// Any value of the function, whether it is defined where it will be used or not; mostly one of much the same type as `like`.
static MlirValue anyValue(Scene *scene, MlirType like) {
  Values values = {.count = 0};
  for (intptr_t i = 0; i < mlirBlockGetNumArguments(scene->entry); ++i) addValue(&values, mlirBlockGetArgument(scene->entry, i));
  if (chance(scene, 30)) mlirOperationWalk(scene->function, addResults, &values, MlirWalkPreOrder);
  intptr_t similar = 0;
  for (intptr_t i = 0; i < values.count; ++i)
    if (isSimilar(mlirValueGetType(values.at[i]), like)) values.at[similar++] = values.at[i];
  if (chance(scene, 70) && similar > 0) values.count = similar;
  return values.count ? values.at[below(scene, values.count)] : mlirOperationGetOperand(scene->op, 0);
}

static intptr_t readOperands(MlirOperation op, MlirValue *values) {
  intptr_t count = mlirOperationGetNumOperands(op);
  if (count > MAX_VALUES - 2) count = MAX_VALUES - 2;
  for (intptr_t i = 0; i < count; ++i) values[i] = mlirOperationGetOperand(op, i);
  return count;
}

//===--- types ------------------------------------------------------------------------------------===//

static const char *const elementTypes[] = {"f32",           "bf16",          "f16",          "f64",          "i1",       "i4",           "i8",
                                           "i16",           "i32",           "i64",          "ui32",         "si32",     "i128",         "index",
                                           "f8E5M2",        "f8E4M3FN",      "tf32",         "f8E8M0FNU",    "f4E2M1FN", "complex<f32>", "none",
                                           "vector<4xf32>", "memref<4xf32>", "!moe.context", "tensor<2xf32>"};
static const char *const usualTypes[] = {"f32", "bf16", "f16", "i32", "ui32"};
static const char *const otherTypes[] = {"index",
                                         "i64",
                                         "i32",
                                         "i1",
                                         "f64",
                                         "f8E4M3FN",
                                         "none",
                                         "tuple<i32>",
                                         "!moe.context",
                                         "!llvm.ptr",
                                         "tensor<*xf32>",
                                         "memref<*xf32>",
                                         "tensor<4xf32>",
                                         "memref<16xi64, #moe.host>",
                                         "tensor<16xi64>",
                                         "memref<?xi8>",
                                         "tensor<f32>",
                                         "memref<f32>",
                                         "() -> ()"};
static const char *const memorySpaces[] = {"#moe.host", "1 : i64", "\"here\"", "#moe.host", "unit"};
static const char *const layouts[] = {"strided<[?], offset: ?>", "strided<[1], offset: 4>", "strided<[?, 1], offset: ?>",
                                      "strided<[2, 1]>",         "strided<[?, ?, 1]>",      "affine_map<(d0) -> (d0 + 1)>"};

static int64_t anySize(Scene *scene, int64_t old) {
  static const int64_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 32, 33, 64, 128, 4096, INT64_C(1) << 31, INT64_C(1) << 62, INT64_MAX};
  bool fixed = old >= 0 && old < INT64_MAX - 1;
  switch (below(scene, 5)) {
  case 0: return mlirShapedTypeGetDynamicSize();
  case 1: return fixed ? old + 1 : 1;
  case 2: return fixed && old > 0 ? old - 1 : 2;
  default: return PICK(scene, sizes);
  }
}

typedef struct Shape {
  int64_t sizes[MAX_DIMS];
  intptr_t rank;
  MlirType element;
  bool tensor;
  MlirAttribute layout, space;
} Shape;

static Shape shapeOf(MlirType type) {
  Shape shape = {.rank = mlirShapedTypeGetRank(type), .element = mlirShapedTypeGetElementType(type), .tensor = mlirTypeIsARankedTensor(type)};
  if (shape.rank > MAX_DIMS - 1) shape.rank = MAX_DIMS - 1;
  for (intptr_t i = 0; i < shape.rank; ++i) shape.sizes[i] = mlirShapedTypeGetDimSize(type, i);
  if (!shape.tensor) shape.layout = mlirMemRefTypeGetLayout(type), shape.space = mlirMemRefTypeGetMemorySpace(type);
  return shape;
}

// A null type if there is no such type.
static MlirType typeOf(Scene *scene, const Shape *shape) {
  MlirLocation location = mlirLocationUnknownGet(scene->mlir);
  if (shape->tensor) return mlirRankedTensorTypeGetChecked(location, shape->rank, shape->sizes, shape->element, mlirAttributeGetNull());
  if (mlirAttributeIsNull(shape->layout))
    return mlirMemRefTypeContiguousGetChecked(location, shape->element, shape->rank, shape->sizes, shape->space);
  return mlirMemRefTypeGetChecked(location, shape->element, shape->rank, shape->sizes, shape->layout, shape->space);
}

static void changeRank(Scene *scene, Shape *shape) {
  static const intptr_t ranks[] = {0, 1, 2, 3, 4, 16, 17, MAX_DIMS - 1};
  intptr_t rank = chance(scene, 50) ? shape->rank + 1 : chance(scene, 60) && shape->rank > 0 ? shape->rank - 1 : PICK(scene, ranks);
  for (intptr_t i = shape->rank; i < rank && i < MAX_DIMS; ++i) shape->sizes[i] = chance(scene, 70) ? 1 : anySize(scene, 1);
  shape->rank = rank < MAX_DIMS ? rank : MAX_DIMS - 1;
  shape->layout = mlirAttributeGetNull();
}

static void changeShape(Scene *scene, Shape *shape) {
  intptr_t dim = (intptr_t)below(scene, shape->rank);
  switch (below(scene, 20)) {
  case 0: shape->element = mlirTypeParseGet(scene->mlir, STR(PICK(scene, elementTypes))); break;
  case 1: shape->element = mlirTypeParseGet(scene->mlir, STR(PICK(scene, usualTypes))); break;
  case 2: changeRank(scene, shape); break;
  case 3: shape->tensor = !shape->tensor, shape->layout = shape->space = mlirAttributeGetNull(); break;
  case 4:
    shape->space = mlirAttributeIsNull(shape->space) ? mlirAttributeParseGet(scene->mlir, STR(PICK(scene, memorySpaces))) : mlirAttributeGetNull();
    break;
  case 5: shape->layout = mlirAttributeParseGet(scene->mlir, STR(PICK(scene, layouts))); break;
  default:
    if (shape->rank > 0) shape->sizes[dim] = anySize(scene, shape->sizes[dim]);
  }
}

static MlirType changeType(Scene *scene, MlirType type) {
  if (chance(scene, 3) || !isBuffer(type)) return mlirTypeParseGet(scene->mlir, STR(PICK(scene, otherTypes)));
  Shape shape = shapeOf(type);
  changeShape(scene, &shape);
  MlirType changed = mlirTypeIsNull(shape.element) ? shape.element : typeOf(scene, &shape);
  return mlirTypeIsNull(changed) ? type : changed;
}

//===--- ops --------------------------------------------------------------------------------------===//

// The op again with another name, other operands and results; uses of results that are gone go elsewhere.
static MlirOperation rebuild(Scene *scene, MlirOperation op, const char *name, intptr_t numOperands, const MlirValue *operands, intptr_t numResults,
                             const MlirType *results) {
  MlirNamedAttribute attributes[64];
  intptr_t numAttributes = mlirOperationGetNumAttributes(op);
  if (numAttributes > 64) numAttributes = 64;
  for (intptr_t i = 0; i < numAttributes; ++i) attributes[i] = mlirOperationGetAttribute(op, i);
  MlirOperation made = moeBuild(op, name, numOperands, operands, numResults, results, numAttributes, attributes);
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); ++i) {
    MlirValue replacement = i < numResults ? mlirOperationGetResult(made, i) : mlirBlockGetArgument(scene->entry, 0);
    mlirValueReplaceAllUsesOfWith(mlirOperationGetResult(op, i), replacement);
  }
  mlirOperationDestroy(op);
  return made;
}

static intptr_t readResultTypes(MlirOperation op, MlirType *types) {
  intptr_t count = mlirOperationGetNumResults(op);
  for (intptr_t i = 0; i < count; ++i) types[i] = mlirValueGetType(mlirOperationGetResult(op, i));
  return count;
}

static bool changeSegments(Scene *scene, MlirOperation op, intptr_t index, int32_t by) {
  int32_t sizes[32];
  MlirAttribute attribute = mlirOperationGetAttributeByName(op, STR("operandSegmentSizes"));
  intptr_t count = mlirAttributeIsNull(attribute) ? 0 : mlirDenseArrayGetNumElements(attribute);
  if (count == 0 || count > 32 || index >= count) return false;
  for (intptr_t i = 0; i < count; ++i) sizes[i] = mlirDenseI32ArrayGetElement(attribute, i);
  sizes[index] += by;
  mlirOperationSetAttributeByName(op, STR("operandSegmentSizes"), mlirDenseI32ArrayGet(scene->mlir, count, sizes));
  return true;
}

// The entry of the table that an operand belongs to, -1 if the op's segments do not add up to its operands.
static int entryOf(const Scene *scene, intptr_t position) {
  intptr_t total = 0;
  for (int i = 0; i < scene->info->numOperands; ++i) {
    intptr_t count = moeOperandRange(scene->op, i).count;
    if (count < 0) return -1;
    total += count;
  }
  return total == mlirOperationGetNumOperands(scene->op) && position < total ? moeOperandIndex(scene->op, position) : -1;
}

// Operands without number `position` (by -1), or with `value` in front of it (by 1). Segments follow, mostly.
static void editOperands(Scene *scene, intptr_t position, int by, MlirValue value) {
  MlirValue operands[MAX_VALUES];
  intptr_t count = readOperands(scene->op, operands);
  int index = entryOf(scene, position);
  if (by > 0) {
    memmove(operands + position + 1, operands + position, (size_t)(count - position) * sizeof *operands);
    operands[position] = value;
  } else {
    memmove(operands + position, operands + position + 1, (size_t)(count - position - 1) * sizeof *operands);
  }
  if (index >= 0 && chance(scene, 70)) changeSegments(scene, scene->op, index, by);
  mlirOperationSetOperands(scene->op, count + by, operands);
}

//===--- mutations of operands --------------------------------------------------------------------===//

// Each returns whether there was something to change.
static intptr_t anyPosition(Scene *scene) { return (intptr_t)below(scene, mlirOperationGetNumOperands(scene->op)); }

static bool swapOperands(Scene *scene) {
  intptr_t i = anyPosition(scene), j = anyPosition(scene);
  MlirValue a = mlirOperationGetOperand(scene->op, i), b = mlirOperationGetOperand(scene->op, j);
  mlirOperationSetOperand(scene->op, i, b);
  mlirOperationSetOperand(scene->op, j, a);
  return i != j;
}

static bool repeatOperand(Scene *scene) {
  intptr_t position = anyPosition(scene);
  editOperands(scene, position, 1, mlirOperationGetOperand(scene->op, position));
  return true;
}

static bool dropOperand(Scene *scene) {
  if (mlirOperationGetNumOperands(scene->op) < 2) return false;
  editOperands(scene, anyPosition(scene), -1, (MlirValue){NULL});
  return true;
}

static bool replaceOperand(Scene *scene) {
  intptr_t position = anyPosition(scene);
  mlirOperationSetOperand(scene->op, position, anyValue(scene, mlirValueGetType(mlirOperationGetOperand(scene->op, position))));
  return true;
}

static MlirValue newArgument(Scene *scene, MlirType type) {
  intptr_t count = mlirBlockGetNumArguments(scene->entry), position = chance(scene, 95) ? count - 1 : count;
  MlirAttribute old = mlirOperationGetAttributeByName(scene->function, STR("arg_attrs")), entries[MAX_VALUES];
  if (count < 1 || count >= MAX_VALUES) return anyValue(scene, type);
  if (!mlirAttributeIsNull(old)) {
    for (intptr_t i = 0; i <= count; ++i)
      entries[i] = i == position ? mlirDictionaryAttrGet(scene->mlir, 0, NULL) : mlirArrayAttrGetElement(old, i < position ? i : i - 1);
    mlirOperationSetAttributeByName(scene->function, STR("arg_attrs"), mlirArrayAttrGet(scene->mlir, count + 1, entries));
  }
  return mlirBlockInsertArgument(scene->entry, position, type, mlirLocationUnknownGet(scene->mlir));
}

static bool retypeOperand(Scene *scene) {
  intptr_t position = anyPosition(scene);
  if (!isBuffer(mlirValueGetType(mlirOperationGetOperand(scene->op, position))) && chance(scene, 90)) return false;
  MlirType type = changeType(scene, mlirValueGetType(mlirOperationGetOperand(scene->op, position)));
  mlirOperationSetOperand(scene->op, position, newArgument(scene, type));
  return true;
}

// One element more or less of a list, and of the list of destinations that goes with it.
static bool changeLists(Scene *scene) {
  int by = chance(scene, 50) ? 1 : -1, changed = 0;
  for (int i = 0; i < scene->info->numOperands; ++i) {
    MoeRange range = moeOperandRange(scene->op, i);
    if (!scene->info->operands[i].variadic || range.count < 1 || entryOf(scene, range.first) != i || chance(scene, 15)) continue;
    intptr_t repeats = by > 0 && chance(scene, 30) ? (intptr_t)below(scene, 9) : 1;
    for (intptr_t r = 0; r < repeats && mlirOperationGetNumOperands(scene->op) < MAX_VALUES / 2; ++r)
      editOperands(scene, range.first, by, mlirOperationGetOperand(scene->op, range.first));
    ++changed;
  }
  return changed > 0;
}

static bool changeSegmentSizes(Scene *scene) {
  static const int32_t steps[] = {1, -1, 2, -2, 1000, INT32_MAX, INT32_MIN};
  intptr_t index = (intptr_t)below(scene, scene->info->numOperands);
  int32_t step = chance(scene, 70) ? (chance(scene, 50) ? 1 : -1) : PICK(scene, steps);
  if (step < -1000 || step > 1000) return changeSegments(scene, scene->op, index, step < 0 ? -1000000 : 1000000);
  return changeSegments(scene, scene->op, index, step) &&
         (chance(scene, 30) || changeSegments(scene, scene->op, below(scene, scene->info->numOperands), -step));
}

//===--- mutations of types -----------------------------------------------------------------------===//

static bool retypeArgument(Scene *scene) {
  MlirValue argument = mlirBlockGetArgument(scene->entry, (intptr_t)below(scene, mlirBlockGetNumArguments(scene->entry)));
  if (!isBuffer(mlirValueGetType(argument)) && chance(scene, 90)) return false;
  mlirValueSetType(argument, changeType(scene, mlirValueGetType(argument)));
  return true;
}

static bool retypeResult(Scene *scene) {
  intptr_t count = mlirOperationGetNumResults(scene->op);
  if (count == 0) return false;
  MlirValue result = mlirOperationGetResult(scene->op, (intptr_t)below(scene, count));
  mlirValueSetType(result, changeType(scene, mlirValueGetType(result)));
  return true;
}

static bool changeResultCount(Scene *scene) {
  MlirType types[MAX_VALUES];
  MlirValue operands[MAX_VALUES];
  intptr_t results = readResultTypes(scene->op, types), count = readOperands(scene->op, operands);
  if (chance(scene, 50) && results > 0)
    --results;
  else
    types[results] = results > 0 ? types[0] : mlirTypeParseGet(scene->mlir, STR(PICK(scene, otherTypes))), ++results;
  scene->op = rebuild(scene, scene->op, scene->info->name, count, operands, results, types);
  return true;
}

//===--- mutations of attributes ------------------------------------------------------------------===//

static MlirAttribute anyInteger(Scene *scene, int64_t old) {
  static const int64_t numbers[] = {
      INT64_MIN,        -1,       0, 1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 63, 64, 65, 128, 1024, 4096, 4097, 65536, 65537, INT32_MAX, INT64_C(1) << 31,
      INT64_C(1) << 62, INT64_MAX};
  static const char *const types[] = {"i32", "i1", "index", "ui64", "si64", "i128"};
  int64_t value = chance(scene, 40) ? (int64_t)((uint64_t)old + 1) : chance(scene, 50) ? (int64_t)((uint64_t)old - 1) : PICK(scene, numbers);
  const char *type = chance(scene, 96) ? "i64" : PICK(scene, types);
  return mlirIntegerAttrGet(mlirTypeParseGet(scene->mlir, STR(type)), value);
}

static MlirAttribute anyFloat(Scene *scene) {
  static const double numbers[] = {0.0, -0.0, 1.0, -1.0, 7.0, 1.702, 1e39, -1e308, 1e-320, (double)INFINITY, (double)NAN};
  MlirType type = chance(scene, 90) ? mlirF64TypeGet(scene->mlir) : mlirF32TypeGet(scene->mlir);
  return mlirFloatAttrDoubleGet(scene->mlir, type, PICK(scene, numbers));
}

static MlirAttribute anyText(Scene *scene, const MoeAttribute *entry) {
  static const char *const texts[] = {
      "", "none", "rank_major", "expert_grouped", "swiglu|none", "softmax ", "f32", "a name with spaces, \"quotes\" and \\", "\xff\xfe"};
  if (entry && entry->numCases && chance(scene, 75)) return mlirStringAttrGet(scene->mlir, STR(entry->cases[below(scene, entry->numCases)]));
  return mlirStringAttrGet(scene->mlir, STR(PICK(scene, texts)));
}

static bool changeParameter(Scene *scene) {
  if (scene->info->numAttributes == 0) return false;
  const MoeAttribute *entry = &scene->info->attributes[below(scene, scene->info->numAttributes)];
  MlirAttribute old = mlirOperationGetAttributeByName(scene->op, STR(entry->name)), value;
  if (entry->kind == MOE_ENUM)
    value = anyText(scene, entry);
  else if (entry->kind == MOE_FLOAT)
    value = anyFloat(scene);
  else if (entry->kind == MOE_BOOL)
    value = mlirBoolAttrGet(scene->mlir, chance(scene, 50));
  else
    value = anyInteger(scene, mlirAttributeIsNull(old) ? (int64_t)entry->defaultValue : mlirIntegerAttrGetValueInt(old));
  mlirOperationSetAttributeByName(scene->op, STR(entry->name), value);
  return true;
}

static bool dropParameter(Scene *scene) {
  intptr_t count = mlirOperationGetNumAttributes(scene->op);
  if (count == 0) return false;
  mlirOperationRemoveAttributeByName(scene->op, mlirIdentifierStr(mlirOperationGetAttribute(scene->op, (intptr_t)below(scene, count)).name));
  return true;
}

static const char *const attributeTexts[] = {"1 : i64",
                                             "\"text\"",
                                             "unit",
                                             "array<i32: 1, 1, 1, 1>",
                                             "array<i32>",
                                             "array<i64: 1>",
                                             "[]",
                                             "[1, \"in\"]",
                                             "{}",
                                             "{name = \"x\"}",
                                             "f32",
                                             "#moe.host",
                                             "dense<1> : tensor<4xi32>",
                                             "@symbol",
                                             "true",
                                             "1.0 : f32",
                                             "[{}]",
                                             "[\"T\"]",
                                             "array<i32: 100, -1, 7, 1, 1, 1>"};

static MlirAttribute anyAttribute(Scene *scene) { return mlirAttributeParseGet(scene->mlir, STR(PICK(scene, attributeTexts))); }

static bool addAttribute(Scene *scene) {
  static const char *const names[] = {"operandSegmentSizes", "operandSegmentSizes", "top_k",   "top_q", "my.note", "_mark", "moe.kernel",
                                      "moe.interface",       "resultSegmentSizes",  "moe.name"};
  mlirOperationSetAttributeByName(scene->op, STR(PICK(scene, names)), anyAttribute(scene));
  return true;
}

//===--- mutations of functions and the module ----------------------------------------------------===//

static bool changeArgumentAttribute(Scene *scene) {
  static const char *const names[] = {"moe.name", "moe.dims", "moe.role", "moe.rank", "bufferization.writable", "llvm.noalias", "note"};
  static const char *const texts[] = {
      "\"in\"", "\"out\"", "\"inout\"", "\"tokens\"", "\"a=b\"",   "\"\"", "[\"T\"]", "[\"T\", \"\"]", "[\"T\", \"U\", \"V\"]",
      "[1]",    "1 : i64", "false",     "unit",       "[\"\\FF\"]"};
  intptr_t count = mlirBlockGetNumArguments(scene->entry);
  if (count == 0 || mlirAttributeIsNull(mlirOperationGetAttributeByName(scene->function, STR("function_type")))) return false;
  MlirAttribute old = mlirOperationGetAttributeByName(scene->function, STR("arg_attrs")), entries[MAX_VALUES];
  intptr_t index = (intptr_t)below(scene, count);
  if (!mlirAttributeIsNull(old) && mlirArrayAttrGetNumElements(old) != count) return false;
  for (intptr_t i = 0; i < count && i < MAX_VALUES; ++i)
    entries[i] = mlirAttributeIsNull(old) ? mlirDictionaryAttrGet(scene->mlir, 0, NULL) : mlirArrayAttrGetElement(old, i);
  MlirNamedAttribute named = moeNamed(scene->mlir, PICK(scene, names), mlirAttributeParseGet(scene->mlir, STR(PICK(scene, texts))));
  entries[index] = mlirDictionaryAttrGet(scene->mlir, 1, &named);
  mlirOperationSetAttributeByName(scene->function, STR("arg_attrs"), mlirArrayAttrGet(scene->mlir, count, entries));
  return true;
}

static bool changeFunctionAttribute(Scene *scene) {
  static const char *const symbols[] = {"moert_moe_route", "moert_graph_info", "_mlir_ciface_f", "a:b", "a\"b", "moe.c0", "malloc", "f\xff"};
  MlirAttribute value;
  switch (below(scene, 4)) {
  case 0:
    mlirOperationSetAttributeByName(scene->function, STR("sym_visibility"),
                                    mlirStringAttrGet(scene->mlir, STR(chance(scene, 50) ? "private" : "nested")));
    return true;
  case 1: mlirOperationSetAttributeByName(scene->function, STR("sym_name"), mlirStringAttrGet(scene->mlir, STR(PICK(scene, symbols)))); return true;
  case 2: value = anyAttribute(scene); break;
  default: value = mlirUnitAttrGet(scene->mlir);
  }
  mlirOperationSetAttributeByName(scene->function, STR(chance(scene, 50) ? "moe.interface" : "llvm.emit_c_interface"), value);
  return true;
}

static bool changeModuleAttribute(Scene *scene) {
  static const char *const names[] = {"moe.target", "moe.kernels", "moe.interface"};
  MlirOperation module = mlirOperationGetParentOperation(scene->function);
  mlirOperationSetAttributeByName(module, STR(PICK(scene, names)), anyAttribute(scene));
  return true;
}

static bool dropArgument(Scene *scene) {
  intptr_t count = mlirBlockGetNumArguments(scene->entry), index = chance(scene, 10) ? count - 1 : (intptr_t)below(scene, count);
  if (count < 2) return false;
  MlirValue argument = mlirBlockGetArgument(scene->entry, index);
  mlirValueReplaceAllUsesOfWith(argument, newArgument(scene, mlirValueGetType(argument)));
  mlirBlockEraseArgument(scene->entry, (unsigned)mlirBlockArgumentGetArgNumber(argument));
  mlirOperationRemoveAttributeByName(scene->function, STR("arg_attrs"));
  return true;
}

// What the function returns: other values, fewer or more.
static bool changeReturn(Scene *scene) {
  MlirOperation last = mlirBlockGetTerminator(scene->entry);
  MlirValue operands[MAX_VALUES];
  if (mlirOperationIsNull(last)) return false;
  intptr_t count = readOperands(last, operands);
  if (count == 0) operands[0] = mlirBlockGetArgument(scene->entry, 0);
  if (count > 0 && chance(scene, 30))
    --count;
  else if (count == 0 || chance(scene, 30))
    operands[count] = anyValue(scene, mlirValueGetType(operands[0])), ++count;
  else
    operands[below(scene, count)] = anyValue(scene, mlirValueGetType(operands[0]));
  mlirOperationSetOperands(last, count, operands);
  return true;
}

//===--- mutations of structure -------------------------------------------------------------------===//

static bool repeatOp(Scene *scene) {
  MlirOperation copy = mlirOperationClone(scene->op);
  mlirBlockInsertOwnedOperationAfter(mlirOperationGetBlock(scene->op), scene->op, copy);
  return true;
}

// Behind what uses it, or before what it uses.
static bool moveOp(Scene *scene) {
  MlirOperation first = mlirBlockGetFirstOperation(scene->entry), last = mlirBlockGetTerminator(scene->entry);
  if (mlirOperationIsNull(last) || mlirOperationEqual(first, scene->op)) return false;
  mlirOperationMoveBefore(scene->op, chance(scene, 50) ? first : last);
  return true;
}

static bool renameOp(Scene *scene) {
  MlirType types[MAX_VALUES];
  MlirValue operands[MAX_VALUES];
  intptr_t numOps = 0, results = readResultTypes(scene->op, types), count = readOperands(scene->op, operands);
  while (moeOps[numOps]) ++numOps;
  scene->info = moeOps[below(scene, numOps)];
  scene->op = rebuild(scene, scene->op, scene->info->name, count, operands, results, types);
  return true;
}

static MlirValue constant(Scene *scene, MlirOperation before, const char *type, int64_t value) {
  return moeBuildConstant(before, mlirTypeParseGet(scene->mlir, STR(type)), value);
}

// The op in the region of an op in its place, which yields its results.
static MlirOperation wrap(Scene *scene, const char *name, intptr_t numOperands, const MlirValue *operands, intptr_t numArguments,
                          const MlirType *arguments, bool otherwise) {
  MlirLocation location = mlirOperationGetLocation(scene->op);
  MlirType types[MAX_VALUES];
  MlirValue results[MAX_VALUES];
  intptr_t count = readResultTypes(scene->op, types);
  MlirOperationState state = mlirOperationStateGet(STR(name), location);
  MlirRegion regions[2] = {mlirRegionCreate(), otherwise ? mlirRegionCreate() : (MlirRegion){NULL}};
  MlirBlock body = mlirBlockCreate(numArguments, arguments, &location);
  mlirRegionAppendOwnedBlock(regions[0], body);
  mlirOperationStateAddOperands(&state, numOperands, operands);
  mlirOperationStateAddResults(&state, count, types);
  mlirOperationStateAddOwnedRegions(&state, otherwise ? 2 : 1, regions);
  MlirOperation outer = mlirOperationCreate(&state);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(scene->op), scene->op, outer);
  for (intptr_t i = 0; i < count; ++i) {
    results[i] = mlirOperationGetResult(scene->op, i);
    mlirValueReplaceAllUsesOfWith(results[i], mlirOperationGetResult(outer, i));
  }
  mlirOperationRemoveFromParent(scene->op);
  mlirBlockAppendOwnedOperation(body, scene->op);
  MlirOperationState yield = mlirOperationStateGet(STR("scf.yield"), location);
  mlirOperationStateAddOperands(&yield, count, results);
  mlirBlockAppendOwnedOperation(body, mlirOperationCreate(&yield));
  return outer;
}

// A block in front of the region's, which only leads to it.
static void enterByBranch(Scene *scene, MlirOperation outer) {
  MlirRegion region = mlirOperationGetRegion(outer, 0);
  MlirBlock body = mlirRegionGetFirstBlock(region), first = mlirBlockCreate(0, NULL, NULL);
  MlirOperationState state = mlirOperationStateGet(STR("cf.br"), mlirOperationGetLocation(scene->op));
  mlirOperationStateAddSuccessors(&state, 1, &body);
  mlirRegionInsertOwnedBlock(region, 0, first);
  mlirBlockAppendOwnedOperation(first, mlirOperationCreate(&state));
}

static bool moveIntoRegion(Scene *scene) {
  MlirType index = mlirIndexTypeGet(scene->mlir);
  MlirValue bounds[3];
  bool plain = mlirOperationGetNumResults(scene->op) == 0;
  switch (below(scene, plain ? 4 : 2)) {
  case 0:
    bounds[0] = constant(scene, scene->op, "i1", 1);
    wrap(scene, plain ? "scf.if" : "scf.execute_region", plain, bounds, 0, NULL, plain);
    break;
  case 1: enterByBranch(scene, wrap(scene, "scf.execute_region", 0, NULL, 0, NULL, false)); break;
  case 2:
    for (int i = 0; i < 3; ++i) bounds[i] = constant(scene, scene->op, "index", i);
    wrap(scene, "scf.for", 3, bounds, 1, &index, false);
    break;
  default: wrap(scene, "builtin.module", 0, NULL, 0, NULL, false);
  }
  return true;
}

// A chain of scf.if whose branches both yield what came before: there are 2^48 ways through it.
static bool chainBranches(Scene *scene) {
  MlirOperation last = mlirBlockGetTerminator(scene->entry);
  if (mlirOperationIsNull(last) || mlirOperationGetNumOperands(last) == 0) return false;
  MlirValue value = mlirOperationGetOperand(last, 0), condition = constant(scene, last, "i1", 1);
  MlirLocation location = mlirOperationGetLocation(last);
  MlirType type = mlirValueGetType(value);
  for (int i = 0; i < 48; ++i) {
    MlirRegion regions[2] = {mlirRegionCreate(), mlirRegionCreate()};
    for (int r = 0; r < 2; ++r) {
      MlirOperationState yield = mlirOperationStateGet(STR("scf.yield"), location);
      MlirBlock block = mlirBlockCreate(0, NULL, NULL);
      mlirOperationStateAddOperands(&yield, 1, &value);
      mlirBlockAppendOwnedOperation(block, mlirOperationCreate(&yield));
      mlirRegionAppendOwnedBlock(regions[r], block);
    }
    MlirOperationState state = mlirOperationStateGet(STR("scf.if"), location);
    mlirOperationStateAddOperands(&state, 1, &condition);
    mlirOperationStateAddResults(&state, 1, &type);
    mlirOperationStateAddOwnedRegions(&state, 2, regions);
    MlirOperation branch = mlirOperationCreate(&state);
    mlirBlockInsertOwnedOperationBefore(scene->entry, last, branch);
    value = mlirOperationGetResult(branch, 0);
  }
  mlirOperationSetOperand(last, 0, value);
  return true;
}

// A block that nothing leads to; its values are made from each other.
static bool addCircle(Scene *scene) {
  MlirOperation last = mlirBlockGetTerminator(scene->entry);
  MlirValue values[MAX_VALUES];
  intptr_t count = mlirOperationIsNull(last) ? 0 : readOperands(last, values);
  if (count == 0 || !mlirTypeIsARankedTensor(mlirValueGetType(values[0]))) return false;
  MlirOperation copy = mlirOperationClone(last);
  MlirBlock block = mlirBlockCreate(0, NULL, NULL);
  mlirRegionAppendOwnedBlock(mlirBlockGetParentRegion(scene->entry), block);
  mlirBlockAppendOwnedOperation(block, copy);
  MlirType type = mlirValueGetType(values[0]);
  MlirOperation first = moeBuild(copy, "tensor.cast", 1, values, 1, &type, 0, NULL), second;
  MlirValue circle = mlirOperationGetResult(first, 0);
  second = moeBuild(copy, "tensor.cast", 1, &circle, 1, &type, 0, NULL);
  mlirOperationSetOperand(first, 0, mlirOperationGetResult(second, 0));
  mlirOperationSetOperand(copy, 0, circle);
  return true;
}

// What is returned comes from a loop of one value that has two results.
static bool addLoop(Scene *scene) {
  MlirOperation last = mlirBlockGetTerminator(scene->entry);
  if (mlirOperationIsNull(last) || mlirOperationGetNumOperands(last) == 0) return false;
  MlirValue value = mlirOperationGetOperand(last, 0);
  MlirType types[2] = {mlirValueGetType(value), mlirValueGetType(value)};
  MlirLocation location = mlirOperationGetLocation(last), locations[2] = {location, location};
  MlirRegion regions[2] = {mlirRegionCreate(), mlirRegionCreate()};
  MlirBlock before = mlirBlockCreate(1, types, locations), after = mlirBlockCreate(2, types, locations);
  MlirValue condition[3] = {constant(scene, last, "i1", 0), mlirBlockGetArgument(before, 0), mlirBlockGetArgument(before, 0)},
            next = mlirBlockGetArgument(after, 0);
  MlirOperationState leave = mlirOperationStateGet(STR("scf.condition"), location), yield = mlirOperationStateGet(STR("scf.yield"), location);
  mlirOperationStateAddOperands(&leave, 3, condition);
  mlirOperationStateAddOperands(&yield, 1, &next);
  mlirBlockAppendOwnedOperation(before, mlirOperationCreate(&leave));
  mlirBlockAppendOwnedOperation(after, mlirOperationCreate(&yield));
  mlirRegionAppendOwnedBlock(regions[0], before);
  mlirRegionAppendOwnedBlock(regions[1], after);
  MlirOperationState state = mlirOperationStateGet(STR("scf.while"), location);
  mlirOperationStateAddOperands(&state, 1, &value);
  mlirOperationStateAddResults(&state, 2, types);
  mlirOperationStateAddOwnedRegions(&state, 2, regions);
  MlirOperation loop = mlirOperationCreate(&state);
  mlirBlockInsertOwnedOperationBefore(scene->entry, last, loop);
  mlirOperationSetOperand(last, 0, mlirOperationGetResult(loop, 1));
  return true;
}

//===--- one mutant -------------------------------------------------------------------------------===//

static const struct {
  const char *name;
  int weight;
  bool (*change)(Scene *scene);
} mutations[] = {
    {"change a parameter", 18, changeParameter},
    {"drop a parameter", 3, dropParameter},
    {"add an attribute", 5, addAttribute},
    {"swap operands", 3, swapOperands},
    {"repeat an operand", 2, repeatOperand},
    {"drop an operand", 2, dropOperand},
    {"replace an operand", 7, replaceOperand},
    {"give an operand another type", 14, retypeOperand},
    {"change lists", 5, changeLists},
    {"change segments", 3, changeSegmentSizes},
    {"give an argument another type", 14, retypeArgument},
    {"give a result another type", 5, retypeResult},
    {"change the number of results", 2, changeResultCount},
    {"change an argument's attribute", 5, changeArgumentAttribute},
    {"change a function's attribute", 4, changeFunctionAttribute},
    {"change a module's attribute", 1, changeModuleAttribute},
    {"drop an argument", 2, dropArgument},
    {"change what is returned", 4, changeReturn},
    {"repeat an op", 4, repeatOp},
    {"move an op", 2, moveOp},
    {"rename an op", 1, renameOp},
    {"move an op into a region", 5, moveIntoRegion},
    {"chain branches", 1, chainBranches},
    {"add a circle", 1, addCircle},
    {"add a loop", 2, addLoop},
};

static size_t anyMutation(Scene *scene) {
  int total = 0;
  for (size_t i = 0; i < FUZZ_COUNT(mutations); ++i) total += mutations[i].weight;
  int64_t left = below(scene, total);
  size_t at = 0;
  while (left >= mutations[at].weight) left -= mutations[at++].weight;
  return at;
}

static bool find(Scene *scene, MlirOperation module) {
  static const char *const names[] = {"moe.", "ep.", NULL};
  MoeOpList ours = moeFindOps(module, names);
  intptr_t known = 0;
  for (intptr_t i = 0; i < ours.count; ++i)
    if (moeOpOf(ours.ops[i])) ours.ops[known++] = ours.ops[i];
  if (known) scene->op = ours.ops[below(scene, known)];
  free(ours.ops);
  if (!known || mlirOperationGetNumOperands(scene->op) == 0) return false;
  scene->info = moeOpOf(scene->op);
  scene->function = scene->op;
  while (!mlirOperationIsNull(scene->function) && !moeIs(scene->function, "func.func"))
    scene->function = mlirOperationGetParentOperation(scene->function);
  if (mlirOperationIsNull(scene->function)) return false;
  scene->entry = mlirRegionGetFirstBlock(mlirOperationGetRegion(scene->function, 0));
  return !mlirBlockIsNull(scene->entry) && mlirBlockGetNumArguments(scene->entry) > 0;
}

// The results on tensors take the types of their destinations.
static void followDestinations(Scene *scene) {
  intptr_t next = 0, results = mlirOperationGetNumResults(scene->op);
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(scene->op) && next < results; ++i) {
    MlirType type = mlirValueGetType(mlirOperationGetOperand(scene->op, i));
    int entry = entryOf(scene, i);
    if (entry < 0 || scene->info->operands[entry].kind != MOE_DESTINATION || !mlirTypeIsARankedTensor(type)) continue;
    mlirValueSetType(mlirOperationGetResult(scene->op, next++), type);
  }
}

static void followSignature(Scene *scene) {
  MlirType inputs[MAX_VALUES], results[MAX_VALUES];
  MlirValue operands[MAX_VALUES];
  MlirOperation last = mlirBlockGetTerminator(scene->entry);
  intptr_t count = mlirBlockGetNumArguments(scene->entry), returned = mlirOperationIsNull(last) ? 0 : readOperands(last, operands);
  if (count > MAX_VALUES) return;
  for (intptr_t i = 0; i < count; ++i) inputs[i] = mlirValueGetType(mlirBlockGetArgument(scene->entry, i));
  for (intptr_t i = 0; i < returned; ++i) results[i] = mlirValueGetType(operands[i]);
  mlirOperationSetAttributeByName(scene->function, STR("function_type"),
                                  mlirTypeAttrGet(mlirFunctionTypeGet(scene->mlir, count, inputs, returned, results)));
}

void fuzzMutateModule(MlirOperation module, fuzz_random *random, FuzzText *log) {
  Scene scene = {.random = random, .mlir = mlirOperationGetContext(module)};
  int64_t changes = fuzz_chance(random, 60) ? 1 : 2 + fuzz_below(random, 2);
  for (int attempt = 0; changes > 0 && attempt < 16 && find(&scene, module); ++attempt) {
    size_t which = anyMutation(&scene);
    if (!mutations[which].change(&scene)) continue;
    --changes;
    fuzzAppend(STR(mutations[which].name), log);
    fuzzAppend(STR("; "), log);
    if (chance(&scene, 80) && moeOpOf(scene.op)) followDestinations(&scene);
    if (chance(&scene, 97)) followSignature(&scene);
  }
}

//===--- tokens -----------------------------------------------------------------------------------===//

typedef struct Token {
  const char *begin;
  size_t length;
} Token;

static Token tokenAt(const char *at) {
  const char *end = at;
  if (isalnum((unsigned char)*end) || *end == '_') {
    while (isalnum((unsigned char)*end) || *end == '_' || *end == '.') ++end;
  } else if (*end == '"') {
    while (*++end && *end != '"') continue;
    if (*end) ++end;
  } else if (*end) {
    ++end;
  }
  return (Token){at, (size_t)(end - at)};
}

// A token that is not white space, mostly in a line that names one of our dialects.
static Token anyToken(const FuzzText *text, fuzz_random *random) {
  Token token = {text->data, 0};
  for (int attempt = 0; attempt < 64 && text->used > 0; ++attempt) {
    const char *at = text->data + fuzz_below(random, (int64_t)text->used), *begin = at;
    while (begin > text->data && begin[-1] != '\n') --begin;
    const char *ours = strstr(begin, "moe.");
    if (attempt < 48 && (!ours || memchr(begin, '\n', (size_t)(ours - begin)))) continue;
    while (begin < at && begin + tokenAt(begin).length <= at) begin += tokenAt(begin).length;
    token = tokenAt(begin);
    if (token.length > 0 && !isspace((unsigned char)*token.begin)) break;
  }
  return token;
}

void fuzzMutateText(const FuzzText *text, fuzz_random *random, FuzzText *changed, FuzzText *log) {
  static const char *const others[] = {"0",
                                       "-1",
                                       "i64",
                                       "i32",
                                       "f64",
                                       "\"\"",
                                       "unit",
                                       "[]",
                                       "{}",
                                       "array<i32: 1, 1>",
                                       "99999999999999999999",
                                       "dense<0> : tensor<2xi64>",
                                       "?",
                                       "x",
                                       "%ctx",
                                       "tensor<*xf32>",
                                       "!moe.context",
                                       "#moe.host",
                                       "#moe.none",
                                       "true",
                                       ",",
                                       "->",
                                       "(",
                                       ")"};
  Token out = anyToken(text, random), in = anyToken(text, random);
  size_t before = (size_t)(out.begin - text->data), after = before + out.length;
  if (fuzz_chance(random, 40)) in.begin = FUZZ_PICK(random, others), in.length = strlen(in.begin);
  bool removes = fuzz_chance(random, 70), adds = !removes || fuzz_chance(random, 70);
  fuzzAppend(STR(removes && adds ? "replace a token; " : adds ? "add a token; " : "remove a token; "), log);
  fuzzAppend(mlirStringRefCreate(text->data, removes ? before : after), changed);
  if (adds) fuzzAppend(STR(" "), changed), fuzzAppend(mlirStringRefCreate(in.begin, in.length), changed), fuzzAppend(STR(" "), changed);
  fuzzAppend(mlirStringRefCreate(text->data + after, text->used - after), changed);
}

//===- export_graph.c - moe-export-graph ----------------------------------------------------------===//
//
// At the end of the pipeline, in the LLVM dialect: an entry for every function that takes its arguments as an array, and the data symbol
// `moert_graph_info`, the structs of <moert/moert.h>. They are written as text and parsed.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/interface.h"
#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <inttypes.h>
#include <mlir-c/Dialect/LLVM.h>
#include <moert/moert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

//===--- text -------------------------------------------------------------------------------------===//

typedef struct Text {
  char *data;
  size_t used, capacity;
  int serial; // of the next global
  bool lost;  // there was no memory for it
} Text;

static void makeRoom(Text *text, size_t bytes) {
  if (text->lost || text->used + bytes <= text->capacity) return;
  size_t capacity = 2 * (text->used + bytes);
  char *data = realloc(text->data, capacity);
  text->lost = !data;
  if (data) text->data = data, text->capacity = capacity;
}

static void print(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(Text *text, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  size_t length = (size_t)vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  makeRoom(text, length + 1);
  if (!text->lost) text->used += (size_t)vsnprintf(text->data + text->used, length + 1, format, again);
  va_end(again);
}

//===--- constants --------------------------------------------------------------------------------===//
//
// Each writes a global and returns its number; @moe.c<number> is its name. -1 stands for a null pointer.

static int writeString(Text *text, MlirStringRef string) {
  print(text, "llvm.mlir.global internal constant @moe.c%d(\"", text->serial);
  for (size_t i = 0; i < string.length; ++i) print(text, "\\%02X", (unsigned char)string.data[i]);
  print(text, "\\00\") {addr_space = 0 : i32}\n");
  return text->serial++;
}

static int writeNumbers(Text *text, intptr_t count, const int64_t *numbers) {
  if (count == 0) return -1;
  print(text, "llvm.mlir.global internal constant @moe.c%d(dense<[", text->serial);
  for (intptr_t i = 0; i < count; ++i) print(text, "%s%" PRId64, i ? ", " : "", numbers[i]);
  print(text, "]> : tensor<%ldxi64>) : !llvm.array<%ld x i64>\n", (long)count, (long)count);
  return text->serial++;
}

// A struct, or an array of structs, is built field by field in the initialiser of its global.
typedef struct Field {
  enum { NUMBER, GLOBAL, SYMBOL } kind;
  int64_t number;     // or the number of a global
  const char *prefix; // of a symbol, which has two parts
  const char *symbol;
} Field;

static Field number(int64_t value) { return (Field){NUMBER, value, NULL, NULL}; }
static Field global(int constant) { return (Field){GLOBAL, constant, NULL, NULL}; }
static Field symbol(const char *prefix, const char *name) { return (Field){SYMBOL, 0, prefix, name}; }

static void writeField(Text *text, const Field *field, const char *type, const char *position, int *value) {
  if (field->kind == NUMBER)
    print(text, "  %%f%d = llvm.mlir.constant(%" PRId64 " : i64) : i64\n", *value, field->number);
  else if (field->kind == SYMBOL)
    print(text, "  %%f%d = llvm.mlir.addressof @\"%s%s\" : !llvm.ptr\n", *value, field->prefix, field->symbol);
  else if (field->number < 0)
    print(text, "  %%f%d = llvm.mlir.zero : !llvm.ptr\n", *value);
  else
    print(text, "  %%f%d = llvm.mlir.addressof @moe.c%" PRId64 " : !llvm.ptr\n", *value, field->number);
  print(text, "  %%a%d = llvm.insertvalue %%f%d, %%a%d[%s] : %s\n", *value + 1, *value, *value, position, type);
  ++*value;
}

// `rows` structs of `columns` fields (rows 0: one struct, not an array) under `linkage` and `name`.
static void writeStructs(Text *text, const char *linkage, const char *name, intptr_t rows, intptr_t columns, const Field *fields) {
  char row[256] = "!llvm.struct<(", type[320], position[48];
  int value = 0;
  for (intptr_t c = 0; c < columns; ++c)
    snprintf(row + strlen(row), sizeof row - strlen(row), "%s%s", c ? ", " : "", fields[c].kind == NUMBER ? "i64" : "ptr");
  snprintf(row + strlen(row), sizeof row - strlen(row), ")>");
  if (rows)
    snprintf(type, sizeof type, "!llvm.array<%ld x %s>", (long)rows, row + strlen("!llvm."));
  else
    snprintf(type, sizeof type, "%s", row);
  print(text, "llvm.mlir.global %s constant @%s() : %s {\n  %%a0 = llvm.mlir.poison : %s\n", linkage, name, type, type);
  for (intptr_t r = 0; r < (rows ? rows : 1); ++r) {
    for (intptr_t c = 0; c < columns; ++c) {
      if (rows)
        snprintf(position, sizeof position, "%ld, %ld", (long)r, (long)c);
      else
        snprintf(position, sizeof position, "%ld", (long)c);
      writeField(text, &fields[r * columns + c], type, position, &value);
    }
  }
  print(text, "  llvm.return %%a%d : %s\n}\n", value, type);
}

static int writeTable(Text *text, intptr_t rows, intptr_t columns, const Field *fields) {
  char name[32];
  if (rows == 0) return -1;
  int serial = text->serial++;
  snprintf(name, sizeof name, "moe.c%d", serial);
  writeStructs(text, "internal", name, rows, columns, fields);
  return serial;
}

//===--- arguments --------------------------------------------------------------------------------===//

static MlirAttribute member(MlirAttribute dictionary, const char *name) { return mlirDictionaryAttrGetElementByName(dictionary, STR(name)); }

static int64_t choice(MlirAttribute string, const char *const *names) {
  MlirStringRef text = mlirStringAttrGetValue(string);
  int64_t index = 0;
  while (strlen(names[index]) != text.length || memcmp(names[index], text.data, text.length) != 0) ++index;
  return index;
}

static bool isBuffer(MlirType type) { return mlirTypeIsARankedTensor(type) || mlirTypeIsAMemRef(type); }

// Anybody can write an attribute of that name: it is read only if it is what moe-declare-interface writes.
static const char *const roles[] = {"in", "out", "inout", NULL}, *const memories[] = {"device", "host", "symmetric", "value", NULL};

static bool isString(MlirAttribute attribute) { return !mlirAttributeIsNull(attribute) && mlirAttributeIsAString(attribute); }

static bool isOneOf(MlirAttribute attribute, const char *const *names) {
  for (; isString(attribute) && *names; ++names)
    if (mlirStringRefEqual(mlirStringAttrGetValue(attribute), STR(*names))) return true;
  return false;
}

static bool isArrayOf(MlirAttribute attribute, intptr_t count, bool (*isElement)(MlirAttribute)) {
  if (mlirAttributeIsNull(attribute) || !mlirAttributeIsAArray(attribute) || (count >= 0 && mlirArrayAttrGetNumElements(attribute) != count))
    return false;
  for (intptr_t i = 0; i < mlirArrayAttrGetNumElements(attribute); ++i)
    if (!isElement(mlirArrayAttrGetElement(attribute, i))) return false;
  return true;
}

static bool isArgument(MlirAttribute argument) {
  if (!mlirAttributeIsADictionary(argument)) return false;
  MlirAttribute type = member(argument, "type"), workspace = member(argument, "workspace");
  if (mlirAttributeIsNull(type) || !mlirAttributeIsAType(type)) return false;
  intptr_t rank = isBuffer(mlirTypeAttrGetValue(type)) ? mlirShapedTypeGetRank(mlirTypeAttrGetValue(type)) : 0;
  return isString(member(argument, "name")) && isOneOf(member(argument, "role"), roles) && isOneOf(member(argument, "memory"), memories) &&
         rank <= MOE_MAX_RANK && isArrayOf(member(argument, "symbols"), rank, isString) &&
         (mlirAttributeIsNull(workspace) || isArrayOf(workspace, sizeof(moert_workspace_info) / 8, mlirAttributeIsAInteger));
}

static int writeSymbols(Text *text, MlirAttribute symbols) {
  intptr_t rank = mlirArrayAttrGetNumElements(symbols);
  Field fields[MOE_MAX_RANK];
  bool any = false;
  for (intptr_t i = 0; i < rank; ++i) {
    MlirStringRef name = mlirStringAttrGetValue(mlirArrayAttrGetElement(symbols, i));
    fields[i] = global(name.length ? writeString(text, name) : -1);
    any |= name.length > 0;
  }
  return any ? writeTable(text, rank, 1, fields) : -1;
}

static int writeWorkspace(Text *text, MlirAttribute workspace) {
  int64_t numbers[sizeof(moert_workspace_info) / 8];
  if (mlirAttributeIsNull(workspace)) return -1;
  for (size_t i = 0; i < sizeof numbers / 8; ++i) numbers[i] = mlirIntegerAttrGetValueInt(mlirArrayAttrGetElement(workspace, (intptr_t)i));
  return writeNumbers(text, sizeof numbers / 8, numbers);
}

enum { ARGUMENT_FIELDS = 8, FUNCTION_FIELDS = 5, GRAPH_FIELDS = 10 };
_Static_assert(sizeof(moert_argument_info) == 8 * ARGUMENT_FIELDS && sizeof(moert_function_info) == 8 * FUNCTION_FIELDS, "the tables follow moert.h");
_Static_assert(sizeof(moert_graph_description) == 8 * GRAPH_FIELDS, "the description follows moert.h");

static void writeArgument(Text *text, MlirAttribute argument, Field *fields) {
  MlirType type = mlirTypeAttrGetValue(member(argument, "type"));
  int64_t shape[MOE_MAX_RANK];
  intptr_t rank = isBuffer(type) ? mlirShapedTypeGetRank(type) : 0;
  for (intptr_t i = 0; i < rank; ++i) shape[i] = mlirShapedTypeIsDynamicDim(type, i) ? -1 : mlirShapedTypeGetDimSize(type, i);
  fields[0] = global(writeString(text, mlirStringAttrGetValue(member(argument, "name"))));
  fields[1] = number(moeDtypeCode(isBuffer(type) ? mlirShapedTypeGetElementType(type) : type));
  fields[2] = number(choice(member(argument, "role"), roles));
  fields[3] = number(choice(member(argument, "memory"), memories));
  fields[4] = number(rank);
  fields[5] = global(writeNumbers(text, rank, shape));
  fields[6] = global(writeSymbols(text, member(argument, "symbols")));
  fields[7] = global(writeWorkspace(text, member(argument, "workspace")));
}

//===--- functions --------------------------------------------------------------------------------===//

// The type of an argument of the C interface: numbers go by value, buffers by their descriptor's address.
static void printArgumentType(Text *text, MlirType type) {
  if (isBuffer(type))
    print(text, "!llvm.ptr");
  else if (mlirTypeIsAIndex(type))
    print(text, "i64");
  else if (mlirTypeIsAInteger(type))
    print(text, "i%u", mlirIntegerTypeGetWidth(type));
  else
    print(text, mlirTypeIsABF16(type) ? "bf16" : "f%u", mlirFloatTypeGetWidth(type));
}

static void printArgumentTypes(Text *text, MlirAttribute interface) {
  for (intptr_t i = 0; i < mlirArrayAttrGetNumElements(interface); ++i) {
    printArgumentType(text, mlirTypeAttrGetValue(member(mlirArrayAttrGetElement(interface, i), "type")));
    print(text, ", ");
  }
  print(text, "!llvm.ptr"); // the context
}

static void writeEntry(Text *text, const char *name, MlirAttribute interface) {
  intptr_t count = mlirArrayAttrGetNumElements(interface);
  print(text, "llvm.func @\"_mlir_ciface_%s\"(", name);
  printArgumentTypes(text, interface);
  print(text, ") -> i32\nllvm.func @\"moe.entry.%s\"(%%arguments: !llvm.ptr, %%context: !llvm.ptr) -> i32 {\n", name);
  for (intptr_t i = 0; i < count; ++i) {
    MlirType type = mlirTypeAttrGetValue(member(mlirArrayAttrGetElement(interface, i), "type"));
    print(text, "  %%s%ld = llvm.getelementptr %%arguments[%ld] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n", (long)i, (long)i);
    print(text, "  %%p%ld = llvm.load %%s%ld : !llvm.ptr -> !llvm.ptr\n", (long)i, (long)i);
    if (isBuffer(type)) continue;
    print(text, "  %%v%ld = llvm.load %%p%ld : !llvm.ptr -> ", (long)i, (long)i);
    printArgumentType(text, type);
    print(text, "\n");
  }
  print(text, "  %%status = llvm.call @\"_mlir_ciface_%s\"(", name);
  for (intptr_t i = 0; i < count; ++i)
    print(text, "%%%c%ld, ", isBuffer(mlirTypeAttrGetValue(member(mlirArrayAttrGetElement(interface, i), "type"))) ? 'p' : 'v', (long)i);
  print(text, "%%context) : (");
  printArgumentTypes(text, interface);
  print(text, ") -> i32\n  llvm.return %%status : i32\n}\n");
}

static void writeFunction(Text *text, const char *name, MlirAttribute interface, bool capturable, Field *fields) {
  intptr_t count = mlirArrayAttrGetNumElements(interface);
  Field *arguments = calloc((size_t)count * ARGUMENT_FIELDS + 1, sizeof *arguments);
  if ((text->lost |= !arguments)) return;
  for (intptr_t i = 0; i < count; ++i) writeArgument(text, mlirArrayAttrGetElement(interface, i), &arguments[i * ARGUMENT_FIELDS]);
  writeEntry(text, name, interface);
  fields[0] = global(writeString(text, STR(name)));
  fields[1] = symbol("moe.entry.", name);
  fields[2] = number(count);
  fields[3] = global(writeTable(text, count, ARGUMENT_FIELDS, arguments));
  fields[4] = number(capturable);
  free(arguments);
}

//===--- the graph --------------------------------------------------------------------------------===//

static int writeKernelKeys(Text *text, MlirAttribute keys, intptr_t count) {
  Field *fields = calloc((size_t)count + 1, sizeof *fields);
  if ((text->lost |= !fields)) return -1;
  for (intptr_t i = 0; i < count; ++i) fields[i] = global(writeString(text, mlirStringAttrGetValue(mlirArrayAttrGetElement(keys, i))));
  int table = writeTable(text, count, 1, fields);
  free(fields);
  return table;
}

// Zero until the runtime has found the kernels.
static Field writeKernelSlots(Text *text, intptr_t count) {
  if (count == 0) return global(-1);
  print(text, "llvm.mlir.global internal @" MOE_KERNEL_SLOTS "() : !llvm.array<%ld x ptr> {\n", (long)count);
  print(text, "  %%0 = llvm.mlir.zero : !llvm.array<%ld x ptr>\n  llvm.return %%0 : !llvm.array<%ld x ptr>\n}\n", (long)count, (long)count);
  return symbol("", MOE_KERNEL_SLOTS);
}

static void writeGraph(Text *text, MlirOperation module, int functions, intptr_t numFunctions) {
  MlirAttribute target = mlirOperationGetAttributeByName(module, STR(MOE_TARGET)), keys = mlirOperationGetAttributeByName(module, STR(MOE_KERNELS));
  intptr_t numKeys = mlirAttributeIsNull(keys) ? 0 : mlirArrayAttrGetNumElements(keys);
  Field fields[GRAPH_FIELDS] = {
      number((int64_t)MOERT_GRAPH_MAGIC),
      number(MOERT_ABI_VERSION),
      number(sizeof(moert_graph_description)),
      global(writeString(text, mlirAttributeIsNull(target) ? STR("host") : mlirStringAttrGetValue(target))),
      global(writeString(text, STR("moe-mlir " MOE_VERSION ", LLVM " MOE_LLVM_VERSION))),
      number(numFunctions),
      global(functions),
      number(numKeys),
      global(numKeys ? writeKernelKeys(text, keys, numKeys) : -1),
      writeKernelSlots(text, numKeys),
  };
  writeStructs(text, "external", "moert_graph_info", 0, GRAPH_FIELDS, fields);
}

// The functions with an interface; for each one, `_mlir_ciface_` and the function itself carry the attribute.
static bool exportedName(MlirOperation function, char *name, size_t size) {
  static const char wrapper[] = "_mlir_ciface_";
  MlirStringRef symbol = mlirStringAttrGetValue(mlirOperationGetAttributeByName(function, STR("sym_name")));
  bool wraps = symbol.length >= sizeof wrapper - 1 && memcmp(symbol.data, wrapper, sizeof wrapper - 1) == 0;
  if (wraps || symbol.length >= size || mlirAttributeIsNull(mlirOperationGetAttributeByName(function, STR(MOE_INTERFACE)))) return false;
  memcpy(name, symbol.data, symbol.length);
  name[symbol.length] = 0;
  return true;
}

static MlirLogicalResult foreignAttribute(MlirOperation op, const char *name, const char *pass) {
  return moeError(op, "has an attribute '%s' that %s did not write", name, pass);
}

static MlirLogicalResult checkAttributes(MlirOperation module, const MoeOpList *functions) {
  MlirAttribute target = mlirOperationGetAttributeByName(module, STR(MOE_TARGET)), keys = mlirOperationGetAttributeByName(module, STR(MOE_KERNELS));
  if (!mlirAttributeIsNull(target) && !isString(target)) return foreignAttribute(module, MOE_TARGET, "moe-select-kernels");
  if (!mlirAttributeIsNull(keys) && !isArrayOf(keys, -1, isString)) return foreignAttribute(module, MOE_KERNELS, "moe-select-kernels");
  for (intptr_t i = 0; i < functions->count; ++i) {
    MlirAttribute interface = mlirOperationGetAttributeByName(functions->ops[i], STR(MOE_INTERFACE));
    bool body = !mlirBlockIsNull(mlirRegionGetFirstBlock(mlirOperationGetRegion(functions->ops[i], 0)));
    if (!mlirAttributeIsNull(interface) && !(body && isArrayOf(interface, -1, isArgument)))
      return foreignAttribute(functions->ops[i], MOE_INTERFACE, "moe-declare-interface");
  }
  return MOE_OK;
}

static MlirLogicalResult writeFunctions(Text *text, MlirOperation module, const MoeOpList *found) {
  Field *fields = calloc((size_t)found->count * FUNCTION_FIELDS + 1, sizeof *fields);
  char (*names)[256] = calloc((size_t)found->count + 1, sizeof *names);
  intptr_t count = 0;
  text->lost |= !fields || !names;
  for (intptr_t i = 0; !text->lost && i < found->count; ++i) {
    if (!exportedName(found->ops[i], names[count], sizeof *names)) continue;
    MlirAttribute interface = mlirOperationGetAttributeByName(found->ops[i], STR(MOE_INTERFACE));
    bool capturable = mlirAttributeIsNull(mlirOperationGetAttributeByName(found->ops[i], STR(MOE_NOT_CAPTURABLE)));
    writeFunction(text, names[count], interface, capturable, &fields[count * FUNCTION_FIELDS]);
    ++count;
  }
  if (count) writeGraph(text, module, writeTable(text, count, FUNCTION_FIELDS, fields), count);
  free(fields), free(names);
  return count || text->lost ? MOE_OK
                             : moeError(module, "has no public function with a body to export: run moe-declare-interface before bufferization");
}

static MlirLogicalResult writeModule(Text *text, MlirOperation module) {
  MoeOpList found = MOE_FIND(module, "llvm.func");
  MlirLogicalResult result = checkAttributes(module, &found);
  if (mlirLogicalResultIsSuccess(result)) result = writeFunctions(text, module, &found);
  free(found.ops);
  return result;
}

static bool isDeclaration(MlirOperation op) {
  return (moeIs(op, "llvm.func") || moeIs(op, "llvm.mlir.global")) && mlirBlockIsNull(mlirRegionGetFirstBlock(mlirOperationGetRegion(op, 0)));
}

// The parsed ops move into the module, but for declarations of what it already has.
static MlirLogicalResult insertAll(MlirOperation module, MlirModule parsed) {
  MlirBlock body = mlirModuleGetBody(mlirModuleFromOperation(module));
  MlirSymbolTable table = mlirSymbolTableCreate(module);
  MlirLogicalResult result = MOE_OK;
  for (MlirOperation op = mlirBlockGetFirstOperation(mlirModuleGetBody(parsed)), next; !mlirOperationIsNull(op); op = next) {
    next = mlirOperationGetNextInBlock(op);
    MlirStringRef name = mlirStringAttrGetValue(mlirOperationGetAttributeByName(op, STR("sym_name")));
    MlirOperation taken = mlirSymbolTableLookup(table, name);
    if (mlirOperationIsNull(taken)) {
      mlirOperationRemoveFromParent(op);
      mlirBlockAppendOwnedOperation(body, op);
    } else if (mlirStringRefEqual(name, STR(MOE_KERNEL_SLOTS)) && isDeclaration(taken)) {
      mlirOperationDestroy(taken); // of moe-lower-to-runtime
      mlirOperationRemoveFromParent(op);
      mlirBlockAppendOwnedOperation(body, op);
    } else if (!isDeclaration(op)) {
      result = moeError(taken, "has the name '%.*s', which a graph's description needs: choose another", (int)name.length, name.data);
    }
  }
  mlirSymbolTableDestroy(table);
  return result;
}

static MlirLogicalResult run(MlirOperation module, const char *const *options) {
  (void)options;
  Text text = {.serial = 0};
  MlirLogicalResult result = writeModule(&text, module);
  if (mlirLogicalResultIsSuccess(result) && text.lost) result = moeError(module, "could not be given its description: there is no memory");
  if (mlirLogicalResultIsSuccess(result)) {
    MlirModule parsed = mlirModuleCreateParse(mlirOperationGetContext(module), mlirStringRefCreate(text.data, text.used));
    if (mlirModuleIsNull(parsed)) {
      result = moeError(module, "could not be given its description");
    } else {
      result = insertAll(module, parsed);
      mlirModuleDestroy(parsed);
    }
  }
  free(text.data);
  return result;
}

static MlirDialectHandle (*const dialects[])(void) = {mlirGetDialectHandle__llvm__, NULL};

const MoePass moeExportGraph = {"moe-export-graph", "Add the entries and the description that graph.so exports", NULL, dialects, run};

//===- capi.c - queries and builders for compilers ------------------------------------------------===//
//
// The tables and the builders' signatures are generated; each builder is createOp with the op's table, which says where in the caller's structs the
// operands and attributes lie. What is checked here is what would otherwise be read wrongly; the verifier does the rest.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/ops.h"
#include "moe-mlir-c/Ops.h"
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

typedef struct Op {
  MoeMlirOpInfo info;
  MlirDialectHandle (*dialect)(void);
  bool segments;       // it has operandSegmentSizes
  bool regionOptional; // without one it has none, else an empty one
} Op;

// The op that is asked for, as its parts come in.
typedef struct Request {
  const MoeMlirOpInfo *info;
  MlirLocation location; // null: nothing is reported
  MlirContext mlir;
  const char *structure; // of operands, then of attributes: the caller's struct
  size_t structSize;     // of which it says so
  MlirValue *operands;
  int32_t *segments;
  MlirType *results;
  MlirNamedAttribute *attributes;
  intptr_t numOperands, numSegments, numResults, numAttributes;
} Request;

#define FAIL(request, ...) (mlirLocationIsNull((request)->location) ? MOE_FAIL : moeErrorAt((request)->location, (request)->info->name, __VA_ARGS__))

//===--- the caller's structs ---------------------------------------------------------------------===//

// A struct of an older header is shorter: its missing fields are as if they had not been set.
static MlirLogicalResult openStruct(Request *request, const char *what, const void *structure, size_t known) {
  request->structure = structure;
  request->structSize = 0;
  if (!structure) return MOE_OK;
  memcpy(&request->structSize, structure, sizeof request->structSize);
  if (request->structSize >= sizeof request->structSize && request->structSize <= known) return MOE_OK;
  return FAIL(request, "struct_size of the %s is %zu, this library's is %zu; begin with the INIT macro", what, request->structSize, known);
}

static const void *field(const Request *request, size_t offset, size_t bytes) {
  return offset + bytes <= request->structSize ? request->structure + offset : NULL;
}

//===--- operands ---------------------------------------------------------------------------------===//

static MlirLogicalResult checkContext(const Request *request, const char *what, const char *name, MlirContext mlir) {
  if (mlirContextIsNull(request->mlir) || mlirContextEqual(request->mlir, mlir)) return MOE_OK;
  return FAIL(request, "%s '%s' belongs to another MLIR context", what, name);
}

// Where the values of one operand lie, and how many they are.
static MlirLogicalResult findValues(const Request *request, const MoeMlirOperandInfo *operand, const MlirValue **values, int64_t *count) {
  const void *value = field(request, operand->offset, sizeof(MlirValue)), *number = field(request, operand->count_offset, sizeof *count);
  *count = 0;
  if (!operand->list) {
    *values = value;
    *count = value && !mlirValueIsNull(**values);
    return *count || operand->optional ? MOE_OK : FAIL(request, "operand '%s' is missing", operand->name);
  }
  if (!value || !number) return MOE_OK;
  memcpy(values, value, sizeof *values);
  memcpy(count, number, sizeof *count);
  if (*count < 0 || *count > INT32_MAX) return FAIL(request, "num_%s is %lld, must be 0 to %d", operand->name, (long long)*count, INT32_MAX);
  return *count == 0 || *values ? MOE_OK : FAIL(request, "num_%s is %lld, but '%s' is NULL", operand->name, (long long)*count, operand->name);
}

static MlirLogicalResult addOperand(Request *request, const MoeMlirOperandInfo *operand) {
  const MlirValue *values = NULL;
  int64_t count;
  MOE_TRY(findValues(request, operand, &values, &count));
  request->segments[request->numSegments++] = (int32_t)count;
  if (count == 0) return MOE_OK;
  MlirValue *grown = realloc(request->operands, (size_t)(request->numOperands + count) * sizeof *grown);
  if (!grown) return FAIL(request, "has no memory for %lld operands", (long long)(request->numOperands + count));
  request->operands = grown;
  for (int64_t i = 0; i < count; ++i) {
    if (mlirValueIsNull(values[i])) return FAIL(request, "operand '%s' #%lld is null", operand->name, (long long)i);
    if (mlirContextIsNull(request->mlir)) request->mlir = mlirValueGetContext(values[i]);
    MOE_TRY(checkContext(request, "operand", operand->name, mlirValueGetContext(values[i])));
    grown[request->numOperands++] = values[i];
  }
  return MOE_OK;
}

static MlirLogicalResult addOperands(Request *request, const void *operands) {
  intptr_t count = 0;
  while (request->info->operands[count]) ++count;
  request->segments = calloc((size_t)count, sizeof *request->segments);
  if (!request->segments) return FAIL(request, "has no memory for %lld operands", (long long)count);
  MOE_TRY(openStruct(request, "operands", operands, request->info->operands_size));
  for (intptr_t i = 0; i < count; ++i) MOE_TRY(addOperand(request, request->info->operands[i]));
  return MOE_OK;
}

//===--- results ----------------------------------------------------------------------------------===//

static MlirLogicalResult addScalar(Request *request, MlirType given) {
  const MoeMlirOpInfo *info = request->info;
  bool open = info->scalar && !info->scalar_type;
  if (!open && !mlirTypeIsNull(given)) return FAIL(request, "fixes the types of its results: none can be given");
  if (!info->scalar) return MOE_OK;
  if (open && mlirTypeIsNull(given)) return FAIL(request, "the type of result '%s' is missing", info->scalar);
  if (open) MOE_TRY(checkContext(request, "result", info->scalar, mlirTypeGetContext(given)));
  request->results[request->numResults++] = open ? given : mlirTypeParseGet(request->mlir, STR(info->scalar_type));
  return MOE_OK;
}

// S3: one for each destination on tensors, of its type and in order; then the op's number or view.
static MlirLogicalResult addResults(Request *request, MlirType scalar) {
  request->results = calloc((size_t)request->numOperands + 1, sizeof *request->results);
  if (!request->results) return FAIL(request, "has no memory for %lld results", (long long)request->numOperands);
  intptr_t next = 0;
  for (intptr_t i = 0; i < request->numSegments; ++i)
    for (intptr_t end = next + request->segments[i]; next < end; ++next) {
      MlirType type = mlirValueGetType(request->operands[next]);
      if (request->info->operands[i]->kind == MOE_MLIR_DESTINATION && mlirTypeIsATensor(type)) request->results[request->numResults++] = type;
    }
  return addScalar(request, scalar);
}

//===--- attributes -------------------------------------------------------------------------------===//

static void addAttribute(Request *request, const char *name, MlirAttribute attribute) {
  request->attributes[request->numAttributes++] = mlirNamedAttributeGet(mlirIdentifierGet(request->mlir, STR(name)), attribute);
}

static MlirLogicalResult addFloat(Request *request, const MoeMlirAttributeInfo *attribute) {
  const MoeMlirBounds *bounds = attribute->bounds;
  const void *given = field(request, attribute->offset, sizeof(double));
  double number = bounds->required ? MOE_MLIR_REQUIRED_FLOAT : bounds->default_float;
  if (given) memcpy(&number, given, sizeof number);
  if (bounds->required && number == MOE_MLIR_REQUIRED_FLOAT) return FAIL(request, "parameter '%s' is missing", attribute->name);
  addAttribute(request, attribute->name, mlirFloatAttrDoubleGet(request->mlir, mlirF64TypeGet(request->mlir), number));
  return MOE_OK;
}

// Bounds of an integer are left to the verifier; a truth value or a case that is none has no attribute.
static MlirLogicalResult addInteger(Request *request, const MoeMlirAttributeInfo *attribute) {
  const MoeMlirBounds *bounds = attribute->bounds;
  const void *given = field(request, attribute->offset, sizeof(int64_t));
  int64_t number = bounds->required ? MOE_MLIR_REQUIRED : bounds->default_value;
  if (given) memcpy(&number, given, sizeof number);
  if (bounds->required && number == MOE_MLIR_REQUIRED) return FAIL(request, "parameter '%s' is missing", attribute->name);
  if (bounds->kind != MOE_MLIR_INT && (number < bounds->minimum || number > bounds->maximum))
    return FAIL(request, "parameter '%s' is %lld, must be %lld to %lld", attribute->name, (long long)number, (long long)bounds->minimum,
                (long long)bounds->maximum);
  MlirAttribute made = bounds->kind == MOE_MLIR_ENUM   ? mlirStringAttrGet(request->mlir, STR(bounds->cases[number]))
                       : bounds->kind == MOE_MLIR_BOOL ? mlirBoolAttrGet(request->mlir, (int)number)
                                                       : mlirIntegerAttrGet(mlirIntegerTypeGet(request->mlir, 64), number);
  addAttribute(request, attribute->name, made);
  return MOE_OK;
}

static MlirLogicalResult addAttributes(Request *request, const Op *op, const void *attributes) {
  const MoeMlirAttributeInfo *const *table = op->info.attributes;
  size_t count = 0;
  while (table[count]) ++count;
  request->attributes = calloc(count + 1, sizeof *request->attributes);
  if (!request->attributes) return FAIL(request, "has no memory for %zu attributes", count);
  MOE_TRY(openStruct(request, "attributes", attributes, op->info.attributes_size));
  for (size_t i = 0; i < count; ++i) MOE_TRY(table[i]->bounds->kind == MOE_MLIR_FLOAT ? addFloat(request, table[i]) : addInteger(request, table[i]));
  if (op->segments) addAttribute(request, "operandSegmentSizes", mlirDenseI32ArrayGet(request->mlir, request->numSegments, request->segments));
  return MOE_OK;
}

//===--- builders ---------------------------------------------------------------------------------===//

static void release(Request *request) { free(request->operands), free(request->segments), free(request->results), free(request->attributes); }

static MlirOperation make(const Op *op, const Request *request, MlirRegion *region) {
  MlirOperationState state = mlirOperationStateGet(STR(op->info.name), request->location);
  mlirOperationStateAddOperands(&state, request->numOperands, request->operands);
  mlirOperationStateAddResults(&state, request->numResults, request->results);
  mlirOperationStateAddAttributes(&state, request->numAttributes, request->attributes);
  if (op->info.region && !op->regionOptional && mlirRegionIsNull(*region)) *region = mlirRegionCreate();
  if (!mlirRegionIsNull(*region)) mlirOperationStateAddOwnedRegions(&state, 1, region);
  *region = (MlirRegion){NULL};
  MlirOperation made = mlirOperationCreate(&state);
  if (mlirOperationIsNull(made) || moeVerifyDetached(made)) return made;
  mlirOperationDestroy(made);
  return (MlirOperation){NULL};
}

static MlirOperation createOp(const Op *op, MlirLocation location, const void *operands, const void *attributes, MlirType scalar, MlirRegion region) {
  Request request = {.info = &op->info, .location = location};
  MlirOperation made = {NULL};
  if (!mlirLocationIsNull(location)) {
    request.mlir = mlirLocationGetContext(location);
    mlirDialectHandleLoadDialect(op->dialect(), request.mlir);
    bool complete = mlirLogicalResultIsSuccess(addOperands(&request, operands)) && mlirLogicalResultIsSuccess(addResults(&request, scalar)) &&
                    mlirLogicalResultIsSuccess(addAttributes(&request, op, attributes));
    if (complete && !op->info.region && !mlirRegionIsNull(region)) complete = mlirLogicalResultIsSuccess(FAIL(&request, "takes no region"));
    if (complete) made = make(op, &request, &region);
  }
  if (!mlirRegionIsNull(region)) mlirRegionDestroy(region);
  release(&request);
  return made;
}

static intptr_t inferOp(const Op *op, MlirLocation location, const void *operands, MlirType scalar, intptr_t capacity, MlirType *types) {
  Request request = {.info = &op->info, .location = location};
  intptr_t count = -1;
  if (!mlirLocationIsNull(location)) request.mlir = mlirLocationGetContext(location);
  if (mlirLogicalResultIsSuccess(addOperands(&request, operands)) && mlirLogicalResultIsSuccess(addResults(&request, scalar))) {
    count = request.numResults;
    for (intptr_t i = 0; i < count && i < capacity && types; ++i) types[i] = request.results[i];
  }
  release(&request);
  return count;
}

//===--- generated --------------------------------------------------------------------------------===//

#include "capi.inc"

//===--- queries ----------------------------------------------------------------------------------===//

static const Op *findOp(const char *name) {
  for (const Op *const *op = ops; name && *op; ++op)
    if (strcmp((*op)->info.name, name) == 0) return *op;
  return NULL;
}

const MoeMlirOpInfo *const *moeMlirOps(void) { return infos; }

const MoeMlirOpInfo *moeMlirOpInfoGet(const char *name) {
  const Op *op = findOp(name);
  return op ? &op->info : NULL;
}

bool moeMlirAttributeBounds(const char *name, const char *attribute, MoeMlirBounds *bounds) {
  const Op *op = findOp(name);
  if (!op || !attribute || !bounds || bounds->struct_size < sizeof bounds->struct_size || bounds->struct_size > sizeof *bounds) return false;
  for (const MoeMlirAttributeInfo *const *entry = op->info.attributes; *entry; ++entry) {
    if (strcmp((*entry)->name, attribute) != 0) continue;
    size_t size = bounds->struct_size;
    memcpy(bounds, (*entry)->bounds, size);
    bounds->struct_size = size;
    return true;
  }
  return false;
}

int64_t moeMlirWorkspaceSize(const moert_workspace_info *info) {
  if (!info || info->ep_size == 0) return -1;
  const struct {
    const char *name;
    int64_t value;
  } parameters[] = {{"max_num_tokens", info->max_num_tokens},
                    {"dispatch_bytes_per_token", info->dispatch_bytes_per_token},
                    {"combine_bytes_per_token", info->combine_bytes_per_token},
                    {"eplb_stats_num_experts", info->eplb_stats_num_experts},
                    {"ep_size", info->ep_size}};
  for (size_t i = 0; i < sizeof parameters / sizeof *parameters; ++i) {
    MoeMlirBounds bounds = MOE_MLIR_BOUNDS_INIT;
    if (!moeMlirAttributeBounds("moe.workspace_size", parameters[i].name, &bounds)) return -1;
    if (parameters[i].value < bounds.minimum || parameters[i].value > bounds.maximum) return -1;
  }
  return moert_workspace_lay_out(info).bytes;
}

//===--- by name ----------------------------------------------------------------------------------===//

static const Op *opOrError(const char *name, MlirLocation location) {
  const Op *op = findOp(name);
  if (!op && !mlirLocationIsNull(location)) moeErrorAt(location, name ? name : "", "is not one of this library's");
  return op;
}

MlirOperation moeMlirOpCreate(const char *name, MlirLocation location, const void *operands, const void *attributes, MlirType scalar,
                              MlirRegion region) {
  const Op *op = opOrError(name, location);
  if (op) return createOp(op, location, operands, attributes, scalar, region);
  if (!mlirRegionIsNull(region)) mlirRegionDestroy(region);
  return (MlirOperation){NULL};
}

intptr_t moeMlirOpInferResultTypes(const char *name, MlirLocation location, const void *operands, MlirType scalar, intptr_t capacity,
                                   MlirType *types) {
  const Op *op = opOrError(name, location);
  return op ? inferOp(op, location, operands, scalar, capacity, types) : -1;
}

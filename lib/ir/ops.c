//===- ops.c - reading and verifying ops by their table -------------------------------------------===//

#include "lib/ir/ops.h"
#include "lib/ir/build.h"
#include "moe-mlir-c/MoeMlir.h"
#include <mlir-c/Diagnostics.h>
#include <moert/workspace.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static MlirStringRef nameOf(MlirOperation op) { return mlirIdentifierStr(mlirOperationGetName(op)); }

static MlirAttribute attributeOf(MlirOperation op, const char *name) {
  return mlirOperationGetAttributeByName(op, mlirStringRefCreateFromCString(name));
}

const MoeOp *moeOpOf(MlirOperation op) {
  MlirStringRef name = nameOf(op);
  for (const MoeOp *const *info = moeOps; *info; ++info)
    if (strlen((*info)->name) == name.length && memcmp((*info)->name, name.data, name.length) == 0) return *info;
  return NULL;
}

//===--- operands ---------------------------------------------------------------------------------===//

static bool isList(const MoeOperand *entry) { return entry->optional || entry->variadic; }

// Such an op carries operandSegmentSizes. On another, an attribute of that name is not ours and can be anything.
static bool hasSegments(const MoeOp *info) {
  int lists = 0;
  for (int i = 0; i < info->numOperands; ++i) lists += isList(&info->operands[i]);
  return lists > 1;
}

// How many operands entry `index` has: of one list, what the others leave over. Until S6 is checked, segments can give an operand that is no list
// none or several.
static intptr_t segmentSize(MlirOperation op, const MoeOp *info, int index) {
  if (hasSegments(info)) return mlirDenseI32ArrayGetElement(attributeOf(op, "operandSegmentSizes"), index);
  return isList(&info->operands[index]) ? mlirOperationGetNumOperands(op) - (info->numOperands - 1) : 1;
}

MoeRange moeOperandRange(MlirOperation op, int index) {
  const MoeOp *info = moeOpOf(op);
  MoeRange range = {0, 0};
  for (int i = 0; i < index; ++i) range.first += segmentSize(op, info, i);
  range.count = segmentSize(op, info, index);
  return range;
}

MlirValue moeOperand(MlirOperation op, int index) {
  MoeRange range = moeOperandRange(op, index);
  return range.count > 0 ? mlirOperationGetOperand(op, range.first) : (MlirValue){NULL};
}

int moeOperandIndex(MlirOperation op, intptr_t position) {
  const MoeOp *info = moeOpOf(op);
  int index = 0;
  for (intptr_t end = segmentSize(op, info, 0); position >= end; end += segmentSize(op, info, index)) ++index;
  return index;
}

//===--- attributes -------------------------------------------------------------------------------===//

static const MoeAttribute *attributeEntry(MlirOperation op, const char *name) {
  const MoeOp *info = moeOpOf(op);
  for (int i = 0; i < info->numAttributes; ++i)
    if (strcmp(info->attributes[i].name, name) == 0) return &info->attributes[i];
  return NULL;
}

static int64_t caseIndex(const MoeAttribute *entry, MlirStringRef text) {
  for (int i = 0; i < entry->numCases; ++i)
    if (strlen(entry->cases[i]) == text.length && memcmp(entry->cases[i], text.data, text.length) == 0) return i;
  return -1;
}

int64_t moeInt(MlirOperation op, const char *name) {
  const MoeAttribute *entry = attributeEntry(op, name);
  MlirAttribute attribute = attributeOf(op, name);
  if (mlirAttributeIsNull(attribute)) return (int64_t)entry->defaultValue;
  if (entry->kind == MOE_ENUM) return caseIndex(entry, mlirStringAttrGetValue(attribute));
  return entry->kind == MOE_BOOL ? mlirBoolAttrGetValue(attribute) : mlirIntegerAttrGetValueInt(attribute);
}

double moeFloat(MlirOperation op, const char *name) {
  MlirAttribute attribute = attributeOf(op, name);
  return mlirAttributeIsNull(attribute) ? attributeEntry(op, name)->defaultValue : mlirFloatAttrGetValueDouble(attribute);
}

const char *moeCase(MlirOperation op, const char *name) { return attributeEntry(op, name)->cases[moeInt(op, name)]; }

//===--- diagnostics ------------------------------------------------------------------------------===//

static MlirLogicalResult emitError(MlirLocation location, MlirStringRef name, const char *format, va_list arguments) {
  char text[768];
  int used = snprintf(text, sizeof text, "'%.*s' op ", (int)name.length, name.data);
  if (used >= (int)sizeof text) used = (int)sizeof text - 1; // a name that is not one of ours may be of any length
  vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
  mlirEmitError(location, text);
  return MOE_FAIL;
}

MlirLogicalResult moeError(MlirOperation op, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  MlirLogicalResult failure = emitError(mlirOperationGetLocation(op), nameOf(op), format, arguments);
  va_end(arguments);
  return failure;
}

MlirLogicalResult moeErrorAt(MlirLocation location, const char *op, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  MlirLogicalResult failure = emitError(location, mlirStringRefCreateFromCString(op), format, arguments);
  va_end(arguments);
  return failure;
}

//===--- shapes -----------------------------------------------------------------------------------===//

intptr_t moeRank(MlirValue buffer) { return (intptr_t)mlirShapedTypeGetRank(mlirValueGetType(buffer)); }

int64_t moeDim(MlirValue buffer, intptr_t dim) {
  if (mlirValueIsNull(buffer)) return MOE_DYNAMIC;
  MlirType type = mlirValueGetType(buffer);
  return mlirShapedTypeIsDynamicDim(type, dim) ? MOE_DYNAMIC : mlirShapedTypeGetDimSize(type, dim);
}

MlirType moeElementType(MlirValue buffer) { return mlirShapedTypeGetElementType(mlirValueGetType(buffer)); }

static const char *operandName(MlirOperation op, int index) { return moeOpOf(op)->operands[index].name; }

MlirLogicalResult moeCheckDim(MlirOperation op, int index, intptr_t dim, int64_t expected, const char *symbol) {
  int64_t actual = moeDim(moeOperand(op, index), dim);
  if (actual == MOE_DYNAMIC || expected == MOE_DYNAMIC || actual == expected) return MOE_OK;
  return moeError(op, "operand '%s' has size %lld in dimension %ld, but %s is %lld", operandName(op, index), (long long)actual, (long)dim, symbol,
                  (long long)expected);
}

MlirLogicalResult moeCheckSameDim(MlirOperation op, int index, intptr_t dim, int other, intptr_t otherDim) {
  char symbol[128];
  snprintf(symbol, sizeof symbol, "dimension %ld of operand '%s'", (long)otherDim, operandName(op, other));
  return moeCheckDim(op, index, dim, moeDim(moeOperand(op, other), otherDim), symbol);
}

static MlirValue nthOperand(MlirOperation op, int index, intptr_t nth) { return mlirOperationGetOperand(op, moeOperandRange(op, index).first + nth); }

MlirLogicalResult moeCheckTrailingDims(MlirOperation op, int index, intptr_t nth, intptr_t dim, int other, intptr_t otherNth, intptr_t otherDim) {
  MlirValue value = nthOperand(op, index, nth), reference = nthOperand(op, other, otherNth);
  intptr_t trailing = moeRank(value) - dim, expected = moeRank(reference) - otherDim;
  if (trailing < 0 || trailing != expected)
    return moeError(op, "operand '%s' #%ld must have rank %ld to hold the rows of '%s' #%ld, but has rank %ld", operandName(op, index), (long)nth,
                    (long)(dim + expected), operandName(op, other), (long)otherNth, (long)moeRank(value));
  for (intptr_t i = 0; i < trailing; ++i) {
    int64_t actual = moeDim(value, dim + i), wanted = moeDim(reference, otherDim + i);
    if (actual == MOE_DYNAMIC || wanted == MOE_DYNAMIC || actual == wanted) continue;
    return moeError(op, "operand '%s' #%ld has size %lld in dimension %ld, but dimension %ld of '%s' #%ld is %lld", operandName(op, index), (long)nth,
                    (long long)actual, (long)(dim + i), (long)(otherDim + i), operandName(op, other), (long)otherNth, (long long)wanted);
  }
  return MOE_OK;
}

MlirLogicalResult moeCheckMetainfo(MlirOperation op, int index) {
  return moeCheckDim(op, index, 0, MOERT_METAINFO_FIELDS, "the number of metainfo fields");
}

MlirLogicalResult moeCheckRankMask(MlirOperation op, int index) {
  int64_t mask, ranks = moeInt(op, "ep_size");
  MlirValue operand = moeOperand(op, index);
  if (mlirValueIsNull(operand) || !moeConstantValue(operand, &mask)) return MOE_OK;
  if (!mask) return moeError(op, "%s is 0, must have the bit of a rank: leave it out for all ranks", operandName(op, index));
  if (ranks > 0 && ranks < 64 && (uint64_t)mask >> ranks)
    return moeError(op, "%s is 0x%llx, but ep_size is %lld: must be less than 0x%llx", operandName(op, index), (unsigned long long)mask,
                    (long long)ranks, 1ULL << ranks);
  return MOE_OK;
}

//===--- what holds for every op ------------------------------------------------------------------===//

static bool isTensor(MlirValue value) { return mlirTypeIsARankedTensor(mlirValueGetType(value)); }

static bool hasValueSemantics(const MoeOperand *entry) { return entry->kind == MOE_INPUT || entry->kind == MOE_DESTINATION; }

// S1: inputs and destinations are all tensors or all memrefs.
static MlirLogicalResult checkNotMixed(MlirOperation op, const MoeOp *info) {
  const char *first = NULL;
  bool tensors = false;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    const MoeOperand *entry = &info->operands[moeOperandIndex(op, i)];
    if (!hasValueSemantics(entry)) continue;
    bool tensor = isTensor(mlirOperationGetOperand(op, i));
    if (first && tensor != tensors)
      return moeError(op, "operand '%s' is a %s, but operand '%s' is a %s: use tensors or memrefs throughout", entry->name,
                      tensor ? "tensor" : "memref", first, tensors ? "tensor" : "memref");
    if (!first) first = entry->name, tensors = tensor;
  }
  return MOE_OK;
}

// S2: every memref lies in the memory that the op's definition names.
static MlirLogicalResult checkMemory(MlirOperation op, const MoeOp *info) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    const MoeOperand *entry = &info->operands[moeOperandIndex(op, i)];
    MlirType type = mlirValueGetType(mlirOperationGetOperand(op, i));
    if (!mlirTypeIsAMemRef(type)) continue;
    MlirAttribute space = mlirMemRefTypeGetMemorySpace(type);
    bool host = strcmp(entry->memory, "host") == 0;
    if (host && !moeMlirAttributeIsAHost(space))
      return moeError(op, "operand '%s' must be in host memory: give its type the memory space #moe.host", entry->name);
    if (!host && !mlirAttributeIsNull(space))
      return moeError(op, "operand '%s' must be in %s memory, which is the default memory space: its type has another one", entry->name,
                      entry->memory);
  }
  return MOE_OK;
}

// S3: one result for each destination on tensors, of its type, in order; then the op's number or view.
static MlirLogicalResult checkResults(MlirOperation op, const MoeOp *info) {
  intptr_t results = mlirOperationGetNumResults(op), next = 0;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    const MoeOperand *entry = &info->operands[moeOperandIndex(op, i)];
    MlirValue operand = mlirOperationGetOperand(op, i);
    if (entry->kind != MOE_DESTINATION || !isTensor(operand)) continue;
    if (next >= results || !mlirTypeEqual(mlirValueGetType(mlirOperationGetResult(op, next)), mlirValueGetType(operand)))
      return moeError(op, "result #%ld must have the type of destination '%s'", (long)next, entry->name);
    ++next;
  }
  if (results != next + (info->scalar ? 1 : 0))
    return moeError(op, "has %ld results, but must have %ld: one for each destination on tensors%s%s", (long)results,
                    (long)next + (info->scalar ? 1 : 0), info->scalar ? " and " : "", info->scalar ? info->scalar : "");
  return MOE_OK;
}

// Attributes of others have a prefix ("my.note", "__marker"), or are no identifiers, as those of one-shot-bufferize's print-conflicts.
static bool looksLikeParameter(MlirStringRef name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  for (size_t i = 0; i < name.length; ++i)
    if (!strchr(letters, name.data[i])) return false;
  return name.data[0] != '_';
}

// S4: what stands among the parameters is one. A misspelt one would silently do nothing.
static MlirLogicalResult checkParameters(MlirOperation op) {
  for (intptr_t i = 0; i < mlirOperationGetNumDiscardableAttributes(op); ++i) {
    MlirStringRef name = mlirIdentifierStr(mlirOperationGetDiscardableAttribute(op, i).name);
    if (looksLikeParameter(name)) return moeError(op, "has no parameter '%.*s'", (int)name.length, name.data);
  }
  return MOE_OK;
}

// S6: the generic form can give an operand that is no list another number of values; upstream's generated checks look at lists alone.
static MlirLogicalResult checkSegments(MlirOperation op, const MoeOp *info) {
  for (int i = 0; i < info->numOperands; ++i) {
    intptr_t count = segmentSize(op, info, i);
    if (!isList(&info->operands[i]) && count != 1)
      return moeError(op, "operand '%s' stands for %ld values, must be one", info->operands[i].name, (long)count);
  }
  return MOE_OK;
}

// S7: a buffer's sizes and strides have a place in the structs of a call.
static MlirLogicalResult checkRanks(MlirOperation op, const MoeOp *info) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); ++i) {
    const MoeOperand *entry = &info->operands[moeOperandIndex(op, i)];
    MlirValue operand = mlirOperationGetOperand(op, i);
    if (mlirTypeIsAShaped(mlirValueGetType(operand)) && moeRank(operand) > MOE_MAX_RANK)
      return moeError(op, "operand '%s' has rank %ld, must have %d at most", entry->name, (long)moeRank(operand), MOE_MAX_RANK);
  }
  return MOE_OK;
}

MlirLogicalResult moeVerifyShared(MlirOperation op) {
  const MoeOp *info = moeOpOf(op);
  MOE_TRY(checkSegments(op, info));
  MOE_TRY(checkRanks(op, info));
  MOE_TRY(checkParameters(op));
  MOE_TRY(checkNotMixed(op, info));
  MOE_TRY(checkMemory(op, info));
  return checkResults(op, info);
}

//===- lowering.c - from an op on buffers to a call of its runtime function -----------------------===//

#include "lib/ir/lowering.h"
#include "lib/ir/build.h"
#include "lib/ir/interface.h"
#include <mlir-c/Dialect/LLVM.h>
#include <moert/moert.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString

void moeReplaceOp(MlirOperation op, intptr_t numValues, const MlirValue *values) {
  for (intptr_t i = 0; i < numValues; ++i) mlirValueReplaceAllUsesOfWith(mlirOperationGetResult(op, i), values[i]);
  mlirOperationDestroy(op);
}

//===--- the frame: the words of one call ---------------------------------------------------------===//

typedef struct Word {
  MlirValue value; // an i64; null: the address of word `target` of the same frame
  intptr_t target;
} Word;

typedef struct Frame {
  MoeLowering *lowering;
  Word *words; // room for all that the call can have
  intptr_t count;
} Frame;

// The index of `count` new words, which read as 0 until they are set.
static intptr_t reserve(Frame *frame, intptr_t count) {
  intptr_t first = frame->count;
  frame->count += count;
  MlirOperation before = frame->lowering->before;
  MlirValue zero = moeBuildConstant(before, moeInt64Type(frame->lowering->mlir), 0);
  for (intptr_t i = first; i < frame->count; ++i) frame->words[i] = (Word){zero, 0};
  return first;
}

static void setValue(Frame *frame, intptr_t word, MlirValue value) { frame->words[word] = (Word){value, 0}; }
static void setAddress(Frame *frame, intptr_t word, intptr_t target) { frame->words[word] = (Word){{NULL}, target}; }
static void setNumber(Frame *frame, intptr_t word, int64_t number) {
  setValue(frame, word, moeBuildConstant(frame->lowering->before, moeInt64Type(frame->lowering->mlir), number));
}

//===--- calls of the runtime ---------------------------------------------------------------------===//

static MlirOperation moduleOf(MlirOperation op) {
  for (MlirOperation parent = op; !mlirOperationIsNull(parent); parent = mlirOperationGetParentOperation(op)) op = parent;
  return op;
}

static void declare(MlirOperation before, const char *symbol, intptr_t numInputs, const MlirType *inputs, MlirType result) {
  MlirContext mlir = mlirOperationGetContext(before);
  MlirOperation module = moduleOf(before);
  MlirSymbolTable table = mlirSymbolTableCreate(module);
  if (mlirOperationIsNull(mlirSymbolTableLookup(table, STR(symbol)))) {
    MlirOperationState state = mlirOperationStateGet(STR("func.func"), mlirOperationGetLocation(before));
    MlirRegion body = mlirRegionCreate();
    mlirOperationStateAddOwnedRegions(&state, 1, &body);
    MlirNamedAttribute attributes[3] = {moeNamed(mlir, "sym_name", mlirStringAttrGet(mlir, STR(symbol))),
                                        moeNamed(mlir, "sym_visibility", mlirStringAttrGet(mlir, STR("private"))),
                                        moeNamed(mlir, "function_type", mlirTypeAttrGet(mlirFunctionTypeGet(mlir, numInputs, inputs, 1, &result)))};
    mlirOperationStateAddAttributes(&state, 3, attributes);
    mlirSymbolTableInsert(table, mlirOperationCreate(&state));
  }
  mlirSymbolTableDestroy(table);
}

static MlirValue call(MlirOperation before, const char *symbol, intptr_t numOperands, const MlirValue *operands, MlirType result) {
  MlirContext mlir = mlirOperationGetContext(before);
  MlirType types[8];
  for (intptr_t i = 0; i < numOperands; ++i) types[i] = mlirValueGetType(operands[i]);
  declare(before, symbol, numOperands, types, result);
  MlirNamedAttribute callee = moeNamed(mlir, "callee", mlirFlatSymbolRefAttrGet(mlir, STR(symbol)));
  return moeBuildValue(before, "func.call", numOperands, operands, result, 1, &callee);
}

//===--- tensors ----------------------------------------------------------------------------------===//

enum { TENSOR_DATA, TENSOR_DEVICE, TENSOR_NDIM_DTYPE, TENSOR_SHAPE, TENSOR_STRIDES, TENSOR_BYTE_OFFSET, TENSOR_WORDS };
_Static_assert(sizeof(moert_tensor) == 8 * TENSOR_WORDS, "moert_tensor consists of 8-byte words");
_Static_assert(offsetof(moert_tensor, dtype) == 8 * TENSOR_NDIM_DTYPE + 4, "rank and element type share a word");

_Static_assert(sizeof(moert_device) == 8 && offsetof(moert_device, type) == 0, "functions return a moert_device as they return an i64");

// The rank's device, asked for at the beginning of the function. On the host backend it is known: the host.
static MlirValue deviceOf(MoeLowering *lowering) {
  MlirContext mlir = lowering->mlir;
  MlirType pointer = moePointerType(mlir), i64 = moeInt64Type(mlir);
  if (lowering->host) return moeBuildConstant(lowering->before, i64, MOERT_DEVICE_CPU);
  if (mlirValueIsNull(lowering->device)) {
    MlirOperation first = mlirBlockGetFirstOperation(lowering->entry);
    MlirValue comm = call(first, "moert_context_comm", 1, &lowering->context, pointer);
    lowering->device = call(first, "moert_comm_device", 1, &comm, i64);
  }
  return lowering->device;
}

// The fields that the type alone decides, and the kind of memory: that of the device, or of the host.
static void packType(Frame *frame, intptr_t tensor, MlirType type, bool host) {
  intptr_t rank = mlirShapedTypeGetRank(type), extents = reserve(frame, 2 * rank);
  if (host)
    setNumber(frame, tensor + TENSOR_DEVICE, MOERT_DEVICE_CPU);
  else
    setValue(frame, tensor + TENSOR_DEVICE, deviceOf(frame->lowering));
  setNumber(frame, tensor + TENSOR_NDIM_DTYPE, rank | moeDtypeCode(mlirShapedTypeGetElementType(type)) << 32);
  setAddress(frame, tensor + TENSOR_SHAPE, extents);
  setAddress(frame, tensor + TENSOR_STRIDES, extents + rank);
}

static MlirValue addressOf(MlirOperation before, MlirValue buffer) {
  MlirType index = mlirIndexTypeGet(mlirOperationGetContext(before));
  return moeBuildInt64(before, moeBuildValue(before, "memref.extract_aligned_pointer_as_index", 1, &buffer, index, 0, NULL));
}

static void packTensor(Frame *frame, intptr_t tensor, MlirValue buffer, bool host) {
  MlirOperation before = frame->lowering->before;
  MlirContext mlir = frame->lowering->mlir;
  MlirType type = mlirValueGetType(buffer), element = mlirShapedTypeGetElementType(type), results[2 + 2 * MOE_MAX_RANK];
  intptr_t rank = mlirShapedTypeGetRank(type);
  results[0] = mlirMemRefTypeContiguousGet(element, 0, NULL, mlirAttributeGetNull());
  for (intptr_t i = 1; i < 2 + 2 * rank; ++i) results[i] = mlirIndexTypeGet(mlir);
  MlirOperation metadata = moeBuild(before, "memref.extract_strided_metadata", 1, &buffer, 2 + 2 * rank, results, 0, NULL);

  packType(frame, tensor, type, host);
  setValue(frame, tensor + TENSOR_DATA, addressOf(before, buffer));
  MlirValue product[2] = {moeBuildInt64(before, mlirOperationGetResult(metadata, 1)),
                          moeBuildConstant(before, moeInt64Type(mlir), moeElementBytes(element))};
  setValue(frame, tensor + TENSOR_BYTE_OFFSET, moeBuildValue(before, "arith.muli", 2, product, moeInt64Type(mlir), 0, NULL));
  intptr_t extents = frame->words[tensor + TENSOR_SHAPE].target;
  for (intptr_t i = 0; i < 2 * rank; ++i) setValue(frame, extents + i, moeBuildInt64(before, mlirOperationGetResult(metadata, 2 + i)));
}

// A contiguous tensor without data, of the type's sizes and, for its dynamic ones, those of the op's extents.
static void packView(Frame *frame, intptr_t tensor, MlirOperation op, MlirType type) {
  const MoeOp *info = moeOpOf(op);
  intptr_t rank = mlirShapedTypeGetRank(type), next = 0;
  for (int i = 0; i < info->numOperands; ++i)
    if (info->operands[i].kind == MOE_EXTENT) next = moeOperandRange(op, i).first;
  packType(frame, tensor, type, false);
  intptr_t extents = frame->words[tensor + TENSOR_SHAPE].target;
  for (intptr_t dim = 0; dim < rank; ++dim) {
    if (mlirShapedTypeIsDynamicDim(type, dim))
      setValue(frame, extents + dim, moeBuildInt64(frame->lowering->before, mlirOperationGetOperand(op, next++)));
    else
      setNumber(frame, extents + dim, mlirShapedTypeGetDimSize(type, dim));
  }
  setNumber(frame, tensor + TENSOR_STRIDES, 0);
}

//===--- parameters and arguments -----------------------------------------------------------------===//

static int64_t attributeWord(MlirOperation op, const MoeAttribute *attribute) {
  if (attribute->kind != MOE_FLOAT) return moeInt(op, attribute->name);
  double number = moeFloat(op, attribute->name);
  int64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

static intptr_t packParameters(Frame *frame, MlirOperation op) {
  const MoeOp *info = moeOpOf(op);
  intptr_t params = reserve(frame, 1 + info->numAttributes);
  setNumber(frame, params, 8 * (1 + info->numAttributes));
  for (int i = 0; i < info->numAttributes; ++i) setNumber(frame, params + 1 + i, attributeWord(op, &info->attributes[i]));
  return params;
}

static bool isPassed(const MoeOperand *entry) { return entry->kind != MOE_CONTEXT && entry->kind != MOE_EXTENT; }

static intptr_t argumentWords(const MoeOp *info) {
  intptr_t words = 1 + (info->scalar ? 1 : 0);
  for (int i = 0; i < info->numOperands; ++i)
    if (isPassed(&info->operands[i])) words += info->operands[i].variadic ? 2 : 1;
  return words;
}

// Sets the operand's words from `word` on; the word behind them.
static intptr_t packOperand(Frame *frame, MlirOperation op, int index, intptr_t word) {
  const MoeOperand *entry = &moeOpOf(op)->operands[index];
  MoeRange range = moeOperandRange(op, index);
  if (entry->variadic) setNumber(frame, word++, range.count);
  if (entry->kind == MOE_VALUE && range.count > 0) {
    setValue(frame, word, moeBuildInt64(frame->lowering->before, mlirOperationGetOperand(op, range.first)));
  } else if (range.count > 0) {
    intptr_t tensors = reserve(frame, range.count * TENSOR_WORDS);
    setAddress(frame, word, tensors);
    bool host = strcmp(entry->memory, "host") == 0;
    for (intptr_t i = 0; i < range.count; ++i) packTensor(frame, tensors + i * TENSOR_WORDS, mlirOperationGetOperand(op, range.first + i), host);
  }
  return word + 1;
}

// `scalar` becomes the word that the op's scalar result points to: a number, or the tensor of a view if `view` is not null.
static intptr_t packArguments(Frame *frame, MlirOperation op, MlirType view, intptr_t *scalar) {
  const MoeOp *info = moeOpOf(op);
  intptr_t args = reserve(frame, argumentWords(info)), word = args;
  setNumber(frame, word++, 8 * argumentWords(info));
  for (int i = 0; i < info->numOperands; ++i)
    if (isPassed(&info->operands[i])) word = packOperand(frame, op, i, word);
  if (info->scalar) {
    *scalar = reserve(frame, mlirTypeIsNull(view) ? 1 : TENSOR_WORDS);
    if (!mlirTypeIsNull(view)) packView(frame, *scalar, op, view);
    setAddress(frame, word, *scalar);
  }
  return args;
}

//===--- the call ---------------------------------------------------------------------------------===//

static MlirValue wordIndex(MlirOperation before, intptr_t word) {
  return moeBuildConstant(before, mlirIndexTypeGet(mlirOperationGetContext(before)), word);
}

static MlirValue wordAddress(MlirOperation before, MlirValue base, intptr_t word) {
  MlirType i64 = moeInt64Type(mlirOperationGetContext(before));
  MlirValue sum[2] = {base, moeBuildConstant(before, i64, 8 * word)};
  return moeBuildValue(before, "arith.addi", 2, sum, i64, 0, NULL);
}

// On the stack, in the function's first block, however often the call is made. A call's words are done with when it has returned and its number is
// loaded: all calls of a function share the words of the largest.
static MlirValue allocateWords(Frame *frame) {
  MoeLowering *lowering = frame->lowering;
  MlirContext mlir = lowering->mlir;
  MlirValue smaller = lowering->words;
  int64_t size = frame->count;
  if (!mlirValueIsNull(smaller) && mlirShapedTypeGetDimSize(mlirValueGetType(smaller), 0) >= size) return smaller;
  MlirType type = mlirMemRefTypeContiguousGet(moeInt64Type(mlir), 1, &size, mlirAttributeGetNull());
  MlirNamedAttribute attributes[2] = {moeNamed(mlir, "alignment", mlirIntegerAttrGet(moeInt64Type(mlir), 16)),
                                      moeNamed(mlir, "operandSegmentSizes", mlirDenseI32ArrayGet(mlir, 2, (int32_t[]){0, 0}))};
  lowering->words = moeBuildValue(mlirBlockGetFirstOperation(lowering->entry), "memref.alloca", 0, NULL, type, 2, attributes);
  if (!mlirValueIsNull(smaller)) moeReplaceOp(mlirOpResultGetOwner(smaller), 1, &lowering->words);
  return lowering->words;
}

static void storeWords(Frame *frame, MlirValue words, MlirValue base) {
  MlirOperation before = frame->lowering->before;
  for (intptr_t i = 0; i < frame->count; ++i) {
    const Word *word = &frame->words[i];
    MlirValue value = mlirValueIsNull(word->value) ? wordAddress(before, base, word->target) : word->value;
    MlirValue operands[3] = {value, words, wordIndex(before, i)};
    moeBuild(before, "memref.store", 3, operands, 0, NULL, 0, NULL);
  }
}

// What stands from `before` on moves to a block of its own, which an OK status leads to; any other leads to the function's exit.
static void leaveUnlessOk(MlirValue status, MoeLowering *lowering) {
  MlirContext mlir = lowering->mlir;
  MlirType i1 = mlirIntegerTypeGet(mlir, 1);
  MlirNamedAttribute equal = moeNamed(mlir, "predicate", mlirIntegerAttrGet(moeInt64Type(mlir), 0));
  MlirValue operands[2] = {status, moeBuildConstant(lowering->before, mlirValueGetType(status), MOERT_OK)};
  MlirValue ok = moeBuildValue(lowering->before, "arith.cmpi", 2, operands, i1, 1, &equal);

  MlirBlock block = mlirOperationGetBlock(lowering->before), rest = mlirBlockCreate(0, NULL, NULL);
  mlirRegionInsertOwnedBlockAfter(mlirBlockGetParentRegion(block), block, rest);
  for (MlirOperation op = lowering->before, next; !mlirOperationIsNull(op); op = next) {
    next = mlirOperationGetNextInBlock(op);
    mlirOperationRemoveFromParent(op);
    mlirBlockAppendOwnedOperation(rest, op);
  }
  MlirOperationState branch = mlirOperationStateGet(STR("cf.cond_br"), mlirOperationGetLocation(lowering->before));
  MlirNamedAttribute sizes = moeNamed(mlir, "operandSegmentSizes", mlirDenseI32ArrayGet(mlir, 3, (int32_t[]){1, 0, 1}));
  mlirOperationStateAddOperands(&branch, 2, (MlirValue[]){ok, status});
  mlirOperationStateAddSuccessors(&branch, 2, (MlirBlock[]){rest, lowering->exit});
  mlirOperationStateAddAttributes(&branch, 1, &sizes);
  mlirBlockAppendOwnedOperation(block, mlirOperationCreate(&branch));
}

static void callAndCheck(const char *symbol, intptr_t numOperands, const MlirValue *operands, MoeLowering *lowering) {
  leaveUnlessOk(call(lowering->before, symbol, numOperands, operands, mlirIntegerTypeGet(lowering->mlir, 32)), lowering);
}

// The number of the op's key among the module's; -1: it has none.
static int32_t slotOf(MlirOperation op) {
  MlirAttribute key = mlirOperationGetAttributeByName(op, STR(MOE_KERNEL)), keys = mlirOperationGetAttributeByName(moduleOf(op), STR(MOE_KERNELS));
  if (mlirAttributeIsNull(key) || mlirAttributeIsNull(keys) || !mlirAttributeIsAArray(keys)) return -1;
  for (intptr_t i = 0; i < mlirArrayAttrGetNumElements(keys); ++i)
    if (mlirAttributeEqual(mlirArrayAttrGetElement(keys, i), key)) return (int32_t)i;
  return -1;
}

// What the runtime has put into the slot of the op's key; NULL, which lets the library choose, for an op without one.
static MlirValue kernelOf(MlirOperation op) {
  MlirContext mlir = mlirOperationGetContext(op);
  MlirType pointer = moePointerType(mlir);
  int32_t slot = slotOf(op);
  if (slot < 0) return moeBuildValue(op, "llvm.mlir.zero", 0, NULL, pointer, 0, NULL);
  MlirNamedAttribute name = moeNamed(mlir, "global_name", mlirFlatSymbolRefAttrGet(mlir, STR(MOE_KERNEL_SLOTS)));
  MlirNamedAttribute place[2] = {moeNamed(mlir, "elem_type", mlirTypeAttrGet(pointer)),
                                 moeNamed(mlir, "rawConstantIndices", mlirDenseI32ArrayGet(mlir, 1, &slot))};
  MlirValue slots = moeBuildValue(op, "llvm.mlir.addressof", 0, NULL, pointer, 1, &name);
  MlirValue address = moeBuildValue(op, "llvm.getelementptr", 1, &slots, pointer, 2, place);
  return moeBuildValue(op, "llvm.load", 1, &address, pointer, 0, NULL);
}

typedef struct Call {
  MlirValue words; // of the frame, after the call
  intptr_t scalar; // which of them the scalar result is
} Call;

// At most: parameters and arguments with their sizes, and for each operand and the result a tensor with its shape and strides.
static intptr_t mostWords(MlirOperation op) {
  const MoeOp *info = moeOpOf(op);
  return 1 + info->numAttributes + argumentWords(info) + (mlirOperationGetNumOperands(op) + 1) * (TENSOR_WORDS + 2 * MOE_MAX_RANK);
}

static MlirLogicalResult makeCall(MlirOperation op, MlirType view, MoeLowering *lowering, Call *made) {
  Frame frame = {lowering, calloc((size_t)mostWords(op), sizeof *frame.words), 0};
  if (!frame.words) return moeError(op, "cannot be lowered: there is no memory");
  lowering->before = op;
  intptr_t params = packParameters(&frame, op), args = packArguments(&frame, op, view, &made->scalar);
  made->words = allocateWords(&frame);
  MlirValue base = addressOf(op, made->words);
  storeWords(&frame, made->words, base);
  free(frame.words);
  MlirValue operands[4] = {moeBuildPointer(op, wordAddress(op, base, params)), moeBuildPointer(op, wordAddress(op, base, args)), kernelOf(op),
                           lowering->context};
  callAndCheck(moeOpOf(op)->symbol, 4, operands, lowering);
  return MOE_OK;
}

MlirLogicalResult moeLowerToCall(MlirOperation op, MoeLowering *lowering) {
  Call made = {{NULL}, 0};
  if (mlirOperationGetNumResults(op) > (moeOpOf(op)->scalar ? 1 : 0)) return moeError(op, "is still on tensors: run one-shot-bufferize first");
  if (moeHasEpilogue(op)) return moeError(op, "still has its epilogue: run moe-expand-epilogues first");
  MOE_TRY(makeCall(op, (MlirType){NULL}, lowering, &made));
  if (moeOpOf(op)->scalar) {
    MlirValue operands[2] = {made.words, wordIndex(op, made.scalar)};
    MlirValue number = moeBuildValue(op, "memref.load", 2, operands, moeInt64Type(lowering->mlir), 0, NULL);
    if (mlirTypeIsAIndex(mlirValueGetType(mlirOperationGetResult(op, 0)))) number = moeBuildIndex(op, number);
    moeReplaceOp(op, 1, &number);
  } else {
    mlirOperationDestroy(op);
  }
  return MOE_OK;
}

MlirLogicalResult moeLowerViewCheck(MlirOperation op, MlirType view, MoeLowering *lowering) {
  Call made = {{NULL}, 0};
  return makeCall(op, view, lowering, &made);
}

//===--- the arena --------------------------------------------------------------------------------===//

// a * b, or INT64_MAX if that is not a number from 0 to INT64_MAX.
static MlirValue boundedProduct(MlirValue a, MlirValue b, MlirOperation before) {
  MlirContext mlir = mlirOperationGetContext(before);
  MlirType i64 = moeInt64Type(mlir), i1 = mlirIntegerTypeGet(mlir, 1);
  MlirOperation product = moeBuild(before, "arith.mulsi_extended", 2, (MlirValue[]){a, b}, 2, (MlirType[]){i64, i64}, 0, NULL);
  MlirValue low = mlirOperationGetResult(product, 0), zero = moeBuildConstant(before, i64, 0);
  MlirNamedAttribute equal = moeNamed(mlir, "predicate", mlirIntegerAttrGet(i64, 0)),
                     atLeast = moeNamed(mlir, "predicate", mlirIntegerAttrGet(i64, 5));
  MlirValue narrow = moeBuildValue(before, "arith.cmpi", 2, (MlirValue[]){mlirOperationGetResult(product, 1), zero}, i1, 1, &equal);
  MlirValue positive = moeBuildValue(before, "arith.cmpi", 2, (MlirValue[]){low, zero}, i1, 1, &atLeast);
  MlirValue fits = moeBuildValue(before, "arith.andi", 2, (MlirValue[]){narrow, positive}, i1, 0, NULL);
  return moeBuildValue(before, "arith.select", 3, (MlirValue[]){fits, low, moeBuildConstant(before, i64, INT64_MAX)}, i64, 0, NULL);
}

// The bytes of the buffer; sizes whose product overflows become a number that no arena has.
static MlirValue bufferBytes(MlirType type, const MlirValue *sizes, MlirOperation before) {
  int64_t fixed = moeElementBytes(mlirShapedTypeGetElementType(type));
  for (intptr_t dim = 0; dim < mlirShapedTypeGetRank(type); ++dim)
    if (!mlirShapedTypeIsDynamicDim(type, dim) && __builtin_mul_overflow(fixed, mlirShapedTypeGetDimSize(type, dim), &fixed)) fixed = INT64_MAX;
  MlirValue bytes = moeBuildConstant(before, moeInt64Type(mlirOperationGetContext(before)), fixed);
  for (intptr_t dim = 0, next = 0; dim < mlirShapedTypeGetRank(type); ++dim)
    if (mlirShapedTypeIsDynamicDim(type, dim)) bytes = boundedProduct(bytes, moeBuildInt64(before, sizes[next++]), before);
  return bytes;
}

// memref<?xi8> on `pointer`: the descriptor that upstream's lowering expects, cast as its type converter does.
static MlirValue bytesBuffer(MlirValue pointer, MlirValue bytes, MlirOperation before) {
  MlirContext mlir = mlirOperationGetContext(before);
  MlirType i64 = moeInt64Type(mlir), array = mlirLLVMArrayTypeGet(i64, 1), pointerType = moePointerType(mlir);
  MlirType descriptor = mlirLLVMStructTypeLiteralGet(mlir, 5, (MlirType[]){pointerType, pointerType, i64, array, array}, false);
  MlirValue zero = moeBuildConstant(before, i64, 0), one = moeBuildConstant(before, i64, 1);
  const struct {
    MlirValue value;
    intptr_t depth;
    int64_t position[2];
  } fields[] = {{pointer, 1, {0}}, {pointer, 1, {1}}, {zero, 1, {2}}, {bytes, 2, {3, 0}}, {one, 2, {4, 0}}};
  MlirValue aggregate = moeBuildValue(before, "llvm.mlir.poison", 0, NULL, descriptor, 0, NULL);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i) {
    MlirNamedAttribute position = moeNamed(mlir, "position", mlirDenseI64ArrayGet(mlir, fields[i].depth, fields[i].position));
    aggregate = moeBuildValue(before, "llvm.insertvalue", 2, (MlirValue[]){aggregate, fields[i].value}, descriptor, 1, &position);
  }
  int64_t dynamic = mlirShapedTypeGetDynamicSize();
  MlirType buffer = mlirMemRefTypeContiguousGet(mlirIntegerTypeGet(mlir, 8), 1, &dynamic, mlirAttributeGetNull());
  return moeBuildValue(before, "builtin.unrealized_conversion_cast", 1, &aggregate, buffer, 0, NULL);
}

MlirValue moeAllocateBuffer(MlirType type, intptr_t numSizes, const MlirValue *sizes, MoeLowering *lowering) {
  MlirOperation before = lowering->before;
  Word word;
  Frame frame = {lowering, &word, 0};
  reserve(&frame, 1);
  MlirValue slot = allocateWords(&frame), bytes = bufferBytes(type, sizes, before);
  MlirValue operands[3] = {lowering->context, bytes, moeBuildPointer(before, addressOf(before, slot))};
  callAndCheck("moert_context_allocate", 3, operands, lowering);
  MlirValue load[2] = {slot, wordIndex(before, 0)};
  MlirValue pointer = moeBuildPointer(before, moeBuildValue(before, "memref.load", 2, load, moeInt64Type(lowering->mlir), 0, NULL));
  MlirValue view[2 + MOE_MAX_RANK] = {bytesBuffer(pointer, bytes, before), wordIndex(before, 0)};
  for (intptr_t i = 0; i < numSizes; ++i) view[2 + i] = sizes[i];
  return moeBuildValue(before, "memref.view", 2 + numSizes, view, type, 0, NULL);
}

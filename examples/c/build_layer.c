//===- build_layer.c - a mixture-of-experts layer, built by a compiler ----------------------------===//
//
//   build_layer [--lowered] [HIDDEN INTERMEDIATE EXPERTS TOP_K]
//
// Builds the module of examples/moe_layer.mlir operation by operation: those of moe by <moe-mlir-c/Ops.h>, those of upstream by MLIR's own C API, and
// nothing from text. Prints the module, for moe-compile; with --lowered, what the pipeline makes of it: the LLVM dialect, for a compiler's own
// backend. The sizes are those of OLMoE-1B-7B unless others are given.
//
//===----------------------------------------------------------------------------------------------===//

#include <mlir-c/AffineMap.h>
#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/Dialect/Func.h>
#include <mlir-c/Dialect/Linalg.h>
#include <mlir-c/Pass.h>
#include <mlir-c/RegisterEverything.h>
#include <moe-mlir-c/Ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR mlirStringRefCreateFromCString
#define COUNT(array) ((intptr_t)(sizeof(array) / sizeof *(array)))

typedef struct Sizes {
  int64_t hidden, intermediate, experts, topK, maxTokens;
} Sizes;

// Operations are appended to `block`. One that cannot be built is null and has been reported; its results are null values, which no other operation
// takes, so that it suffices to look at `failed` in the end.
typedef struct Builder {
  MlirContext context;
  MlirLocation location;
  MlirBlock block;
  MlirType f32, bf16, i32, index;
  Sizes sizes;
  bool failed;
} Builder;

//===--- upstream operations ----------------------------------------------------------------------===//

static MlirOperation append(Builder *b, MlirOperation op) {
  if (mlirOperationIsNull(op))
    b->failed = true;
  else
    mlirBlockAppendOwnedOperation(b->block, op);
  return op;
}

static MlirValue result(MlirOperation op, intptr_t index) { return mlirOperationIsNull(op) ? (MlirValue){NULL} : mlirOperationGetResult(op, index); }

static MlirNamedAttribute named(Builder *b, const char *name, MlirAttribute attribute) {
  return mlirNamedAttributeGet(mlirIdentifierGet(b->context, STR(name)), attribute);
}

// With `type`, the operation has that one result.
static MlirOperation build(Builder *b, const char *name, intptr_t numOperands, const MlirValue *operands, const MlirType *type,
                           intptr_t numAttributes, const MlirNamedAttribute *attributes) {
  MlirOperationState state = mlirOperationStateGet(STR(name), b->location);
  for (intptr_t i = 0; i < numOperands; ++i)
    if (mlirValueIsNull(operands[i])) return (MlirOperation){NULL};
  mlirOperationStateAddOperands(&state, numOperands, operands);
  mlirOperationStateAddResults(&state, type ? 1 : 0, type);
  mlirOperationStateAddAttributes(&state, numAttributes, attributes);
  return append(b, mlirOperationCreate(&state));
}

static MlirValue constant(Builder *b, MlirType type, MlirAttribute value) {
  MlirNamedAttribute attribute = named(b, "value", value);
  return result(build(b, "arith.constant", 0, NULL, &type, 1, &attribute), 0);
}

static MlirValue indexConstant(Builder *b, int64_t value) { return constant(b, b->index, mlirIntegerAttrGet(b->index, value)); }

static MlirValue dim(Builder *b, MlirValue tensor, MlirValue number) {
  return result(build(b, "tensor.dim", 2, (MlirValue[]){tensor, number}, &b->index, 0, NULL), 0);
}

// `rows` is the one dynamic size of `type`.
static MlirValue empty(Builder *b, MlirType type, MlirValue rows) { return result(build(b, "tensor.empty", 1, &rows, &type, 0, NULL), 0); }

// A named linalg operation with one destination, which comes last. Upstream fills its region.
static MlirValue linalg(Builder *b, const char *name, int32_t numInputs, const MlirValue *operands, const MlirNamedAttribute *maps) {
  MlirNamedAttribute attributes[2] = {named(b, "operandSegmentSizes", mlirDenseI32ArrayGet(b->context, 2, (int32_t[]){numInputs, 1}))};
  MlirOperationState state = mlirOperationStateGet(STR(name), b->location);
  MlirRegion body = mlirRegionCreate();
  MlirType type = mlirValueGetType(operands[numInputs]);
  if (maps) attributes[1] = *maps;
  mlirOperationStateAddOperands(&state, numInputs + 1, operands);
  mlirOperationStateAddResults(&state, 1, &type);
  mlirOperationStateAddAttributes(&state, maps ? 2 : 1, attributes);
  mlirOperationStateAddOwnedRegions(&state, 1, &body);
  MlirOperation op = mlirOperationCreate(&state);
  mlirLinalgFillBuiltinNamedOpRegion(op);
  return result(append(b, op), 0);
}

// rows . weights^T: of the loops (row, column, k), the first operand has (row, k), the second (column, k), the destination (row, column).
static MlirValue matmul(Builder *b, MlirValue rows, MlirValue weights, MlirValue destination) {
  static const int loops[3][2] = {{0, 2}, {1, 2}, {0, 1}};
  MlirAttribute maps[3];
  for (int i = 0; i < 3; ++i) {
    MlirAffineExpr dims[2] = {mlirAffineDimExprGet(b->context, loops[i][0]), mlirAffineDimExprGet(b->context, loops[i][1])};
    maps[i] = mlirAffineMapAttrGet(mlirAffineMapGet(b->context, 3, 0, 2, dims));
  }
  MlirNamedAttribute attribute = named(b, "indexing_maps", mlirArrayAttrGet(b->context, 3, maps));
  return linalg(b, "linalg.matmul", 2, (MlirValue[]){rows, weights, destination}, &attribute);
}

//===--- functions --------------------------------------------------------------------------------===//

typedef struct Argument {
  const char *name;
  MlirType type;
  const char *rows; // name of its dynamic size, or NULL
} Argument;

enum { MAX_ARGUMENTS = 16 };

static void nameArgument(Builder *b, MlirOperation function, intptr_t index, const Argument *argument) {
  mlirFuncSetArgAttr(function, index, STR("moe.name"), mlirStringAttrGet(b->context, STR(argument->name)));
  if (!argument->rows) return;
  MlirAttribute rows = mlirStringAttrGet(b->context, STR(argument->rows));
  mlirFuncSetArgAttr(function, index, STR("moe.dims"), mlirArrayAttrGet(b->context, 1, &rows));
}

// A function of these arguments and a !moe.context; operations are appended to its body from here on.
static void beginFunction(Builder *b, MlirModule module, const char *name, intptr_t count, const Argument *arguments, const MlirType *resultType) {
  MlirType types[MAX_ARGUMENTS];
  MlirLocation locations[MAX_ARGUMENTS];
  for (intptr_t i = 0; i <= count; ++i) {
    types[i] = i < count ? arguments[i].type : moeMlirContextTypeGet(b->context);
    locations[i] = b->location;
  }
  MlirType type = mlirFunctionTypeGet(b->context, count + 1, types, resultType ? 1 : 0, resultType);
  MlirNamedAttribute attributes[2] = {named(b, "sym_name", mlirStringAttrGet(b->context, STR(name))),
                                      named(b, "function_type", mlirTypeAttrGet(type))};
  MlirOperationState state = mlirOperationStateGet(STR("func.func"), b->location);
  MlirRegion body = mlirRegionCreate();
  b->block = mlirBlockCreate(count + 1, types, locations);
  mlirRegionAppendOwnedBlock(body, b->block);
  mlirOperationStateAddAttributes(&state, 2, attributes);
  mlirOperationStateAddOwnedRegions(&state, 1, &body);
  MlirOperation function = mlirOperationCreate(&state);
  for (intptr_t i = 0; i < count; ++i) nameArgument(b, function, i, &arguments[i]);
  mlirBlockAppendOwnedOperation(mlirModuleGetBody(module), function);
}

static MlirValue argument(Builder *b, intptr_t index) { return mlirBlockGetArgument(b->block, index); }

//===--- types ------------------------------------------------------------------------------------===//

#define ROWS INT64_MIN // a size that only the run knows; mlirShapedTypeGetDynamicSize says so, too

static MlirType tensorOf(MlirType element, intptr_t rank, const int64_t *sizes) {
  return mlirRankedTensorTypeGet(rank, sizes, element, mlirAttributeGetNull());
}
#define TENSOR(element, ...) tensorOf(element, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static MlirType workspaceType(Builder *b) {
  return mlirMemRefTypeContiguousGet(mlirIntegerTypeGet(b->context, 8), 1, (int64_t[]){ROWS}, mlirAttributeGetNull());
}

static MlirType metainfoType(Builder *b) {
  return mlirMemRefTypeContiguousGet(mlirIntegerTypeGet(b->context, 64), 1, (int64_t[]){MOERT_METAINFO_FIELDS}, moeMlirHostAttributeGet(b->context));
}

//===--- the functions of the module --------------------------------------------------------------===//

static void buildSetup(Builder *b, MlirModule module) {
  const Argument arguments[] = {{"workspace", workspaceType(b), NULL}, {"metainfo", metainfoType(b), NULL}};
  beginFunction(b, module, "setup", COUNT(arguments), arguments, NULL);
  MoeMlirInitializeOperands operands = MOE_MLIR_INITIALIZE_OPERANDS_INIT;
  operands.workspace = argument(b, 0);
  operands.metainfo = argument(b, 1);
  operands.device_context = argument(b, 2);
  MoeMlirInitializeAttributes attributes = MOE_MLIR_INITIALIZE_ATTRIBUTES_INIT;
  attributes.max_num_tokens = b->sizes.maxTokens;
  attributes.dispatch_bytes_per_token = attributes.combine_bytes_per_token = 2 * b->sizes.hidden; // rows of bf16
  append(b, moeMlirInitializeCreate(b->location, &operands, &attributes));
  build(b, "func.return", 0, NULL, NULL, 0, NULL);
}

enum { TOKENS, ROUTER, GATE_UP, DOWN, WORKSPACE, METAINFO, MAX_TOKENS, CAPACITY, OUT, CONTEXT };

static MlirValue buildLogits(Builder *b, MlirValue zero, MlirValue numTokens) {
  MlirValue destination = empty(b, TENSOR(b->f32, ROWS, b->sizes.experts), numTokens);
  MlirValue cleared = linalg(b, "linalg.fill", 1, (MlirValue[]){zero, destination}, NULL);
  return matmul(b, argument(b, TOKENS), argument(b, ROUTER), cleared);
}

// Results: ids, weights.
static MlirOperation buildRoute(Builder *b, MlirValue logits, MlirValue numTokens) {
  MoeMlirRouteOperands operands = MOE_MLIR_ROUTE_OPERANDS_INIT;
  operands.logits = logits;
  operands.ids = empty(b, TENSOR(b->i32, ROWS, b->sizes.topK), numTokens);
  operands.weights = empty(b, TENSOR(b->f32, ROWS, b->sizes.topK), numTokens);
  operands.device_context = argument(b, CONTEXT);
  MoeMlirRouteAttributes attributes = MOE_MLIR_ROUTE_ATTRIBUTES_INIT;
  attributes.top_k = b->sizes.topK;
  attributes.n_experts = b->sizes.experts;
  return append(b, moeMlirRouteCreate(b->location, &operands, &attributes));
}

// Results: rows, offsets, where the combine expects its payload.
static MlirOperation buildDispatch(Builder *b, MlirOperation route, MlirValue numExperts, MlirValue one) {
  const MlirValue tokens = argument(b, TOKENS), rows = empty(b, TENSOR(b->bf16, ROWS, b->sizes.hidden), argument(b, CAPACITY));
  const MlirValue ends = result(build(b, "arith.addi", 2, (MlirValue[]){numExperts, one}, &b->index, 0, NULL), 0);
  MoeMlirDispatchOperands operands = MOE_MLIR_DISPATCH_OPERANDS_INIT;
  operands.topk_ids = result(route, 0);
  operands.topk_weights = result(route, 1);
  operands.num_payloads = operands.num_recv = 1;
  operands.payloads = &tokens;
  operands.recv = &rows;
  operands.offsets = empty(b, TENSOR(b->i32, ROWS), ends);
  operands.workspace = argument(b, WORKSPACE);
  operands.metainfo = argument(b, METAINFO);
  operands.runtime_max_tokens_per_rank = argument(b, MAX_TOKENS);
  operands.device_context = argument(b, CONTEXT);
  MoeMlirDispatchAttributes attributes = MOE_MLIR_DISPATCH_ATTRIBUTES_INIT;
  attributes.top_k = b->sizes.topK;
  attributes.n_experts = b->sizes.experts;
  attributes.layout = MOE_MLIR_DISPATCH_LAYOUT_EXPERT_GROUPED;
  return append(b, moeMlirDispatchCreate(b->location, &operands, &attributes));
}

static MlirValue buildExperts(Builder *b, MlirValue rows, MlirValue offsets, MlirValue weights, int64_t columns, int64_t activation) {
  MoeMlirGroupedMatmulOperands operands = MOE_MLIR_GROUPED_MATMUL_OPERANDS_INIT;
  operands.rows = rows;
  operands.offsets = offsets;
  operands.weights = weights;
  operands.out = empty(b, TENSOR(b->bf16, ROWS, columns), argument(b, CAPACITY));
  operands.device_context = argument(b, CONTEXT);
  MoeMlirGroupedMatmulAttributes attributes = MOE_MLIR_GROUPED_MATMUL_ATTRIBUTES_INIT;
  attributes.activation = activation;
  return result(append(b, moeMlirGroupedMatmulCreate(b->location, &operands, &attributes)), 0);
}

static MlirValue buildCombine(Builder *b, MlirValue rows, MlirValue payloadOffset) {
  MoeMlirCombineOperands operands = MOE_MLIR_COMBINE_OPERANDS_INIT;
  operands.payload = rows;
  operands.workspace = argument(b, WORKSPACE);
  operands.metainfo = argument(b, METAINFO);
  operands.runtime_max_tokens_per_rank = argument(b, MAX_TOKENS);
  operands.combine_payload_offset = payloadOffset;
  operands.out = argument(b, OUT);
  operands.device_context = argument(b, CONTEXT);
  MoeMlirCombineAttributes attributes = MOE_MLIR_COMBINE_ATTRIBUTES_INIT;
  attributes.top_k = b->sizes.topK;
  attributes.hidden_size = b->sizes.hidden;
  attributes.layout = MOE_MLIR_COMBINE_LAYOUT_EXPERT_GROUPED;
  return result(append(b, moeMlirCombineCreate(b->location, &operands, &attributes)), 0);
}

static void buildLayerBody(Builder *b) {
  MlirValue zeroIndex = indexConstant(b, 0), one = indexConstant(b, 1);
  MlirValue zero = constant(b, b->f32, mlirFloatAttrDoubleGet(b->context, b->f32, 0.0));
  MlirValue numTokens = dim(b, argument(b, TOKENS), zeroIndex), numExperts = dim(b, argument(b, GATE_UP), zeroIndex);
  MlirOperation route = buildRoute(b, buildLogits(b, zero, numTokens), numTokens);
  MlirOperation dispatch = buildDispatch(b, route, numExperts, one);
  MlirValue rows = result(dispatch, 0), offsets = result(dispatch, 1);
  MlirValue hidden = buildExperts(b, rows, offsets, argument(b, GATE_UP), b->sizes.intermediate, MOE_MLIR_GROUPED_MATMUL_ACTIVATION_SWIGLU);
  MlirValue results = buildExperts(b, hidden, offsets, argument(b, DOWN), b->sizes.hidden, MOE_MLIR_GROUPED_MATMUL_ACTIVATION_NONE);
  MlirValue sum = buildCombine(b, results, result(dispatch, 2));
  build(b, "func.return", 1, &sum, NULL, 0, NULL);
}

static void buildLayer(Builder *b, MlirModule module) {
  const Sizes *sizes = &b->sizes;
  MlirType tokens = TENSOR(b->bf16, ROWS, sizes->hidden);
  const Argument arguments[] = {[TOKENS] = {"tokens", tokens, "T"},
                                [ROUTER] = {"router", TENSOR(b->bf16, sizes->experts, sizes->hidden), NULL},
                                [GATE_UP] = {"gate_up", TENSOR(b->bf16, ROWS, 2 * sizes->intermediate, sizes->hidden), "L"},
                                [DOWN] = {"down", TENSOR(b->bf16, ROWS, sizes->hidden, sizes->intermediate), "L"},
                                [WORKSPACE] = {"workspace", workspaceType(b), NULL},
                                [METAINFO] = {"metainfo", metainfoType(b), NULL},
                                [MAX_TOKENS] = {"max_tokens", b->index, NULL},
                                [CAPACITY] = {"capacity", b->index, NULL},
                                [OUT] = {"out", tokens, "T"}};
  beginFunction(b, module, "layer", COUNT(arguments), arguments, &tokens);
  buildLayerBody(b);
}

//===--- the program ------------------------------------------------------------------------------===//

static void toFile(MlirStringRef text, void *file) { fwrite(text.data, 1, text.length, file); }

static MlirContext makeContext(void) {
  static const char *const dialects[] = {"arith", "func", "linalg", "tensor"};
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  mlirRegisterAllDialects(registry);
  moeMlirRegisterDialects(registry);
  MlirContext context = mlirContextCreateWithRegistry(registry, true);
  mlirDialectRegistryDestroy(registry);
  for (intptr_t i = 0; i < COUNT(dialects); ++i) mlirContextGetOrLoadDialect(context, STR(dialects[i]));
  return context;
}

static bool lower(MlirModule module) {
  mlirRegisterAllPasses();
  moeMlirRegisterPasses();
  MlirPassManager manager = mlirPassManagerCreate(mlirModuleGetContext(module));
  MlirOpPassManager passes = mlirPassManagerGetAsOpPassManager(manager);
  bool done = mlirLogicalResultIsSuccess(mlirParsePassPipeline(passes, STR(moeMlirPipelineGet(STR("host"))), toFile, stderr)) &&
              mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(manager, mlirModuleGetOperation(module)));
  mlirPassManagerDestroy(manager);
  return done;
}

static bool run(MlirContext context, Sizes sizes, bool lowered) {
  MlirLocation location = mlirLocationUnknownGet(context);
  MlirModule module = mlirModuleCreateEmpty(location);
  Builder b = {.context = context,
               .location = location,
               .f32 = mlirF32TypeGet(context),
               .bf16 = mlirBF16TypeGet(context),
               .i32 = mlirIntegerTypeGet(context, 32),
               .index = mlirIndexTypeGet(context),
               .sizes = sizes};
  buildSetup(&b, module);
  buildLayer(&b, module);
  bool done = !b.failed && mlirOperationVerify(mlirModuleGetOperation(module)) && (!lowered || lower(module));
  if (done) mlirOperationPrint(mlirModuleGetOperation(module), toFile, stdout);
  mlirModuleDestroy(module);
  return done;
}

// The sizes from the command line; false if they are none.
static bool readSizes(char **arguments, Sizes *sizes) {
  int64_t *const fields[] = {&sizes->hidden, &sizes->intermediate, &sizes->experts, &sizes->topK};
  for (intptr_t i = 0; i < COUNT(fields); ++i) {
    char *end;
    *fields[i] = strtol(arguments[i], &end, 10);
    if (*end || *fields[i] < 1 || *fields[i] > 1 << 20) return false;
  }
  return true;
}

int main(int argc, char **argv) {
  Sizes sizes = {2048, 1024, 64, 8, 512};
  bool lowered = argc > 1 && strcmp(argv[1], "--lowered") == 0;
  int first = lowered ? 2 : 1;
  if (argc != first && (argc != first + 4 || !readSizes(argv + first, &sizes))) {
    fprintf(stderr, "usage: build_layer [--lowered] [HIDDEN INTERMEDIATE EXPERTS TOP_K]\n");
    return 2;
  }
  MlirContext context = makeContext();
  bool done = run(context, sizes, lowered);
  mlirContextDestroy(context);
  return done && fflush(stdout) == 0 ? 0 : 1;
}

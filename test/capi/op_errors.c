//===- op_errors.c - builders and queries, function by function -----------------------------------===//
//
// What op_builders.c does for every op by its table is done here for a few by their own functions: what a caller gets, and what he is told when
// operands do not fit, are of another context, or are none.
//
//===----------------------------------------------------------------------------------------------===//

#include "support.h"
#include <mlir-c/Diagnostics.h>
#include <string.h>

//===--- a block whose arguments are the operands -------------------------------------------------===//

enum { LOGITS, BIAS, IDS, WEIGHTS, WORKSPACE, METAINFO, NUMBER, CONTEXT, NUM_ARGUMENTS };
static const char *const argumentTypes[NUM_ARGUMENTS] = {
    "tensor<?x8xf32>", "tensor<8xf32>", "tensor<?x2xi32>", "tensor<?x2xf32>", "memref<?xi8>", "memref<16xi64, #moe.host>", "index", "!moe.context"};

typedef struct Fixture {
  MlirContext context;
  MlirLocation location;
  MlirBlock block;
} Fixture;

static MlirType typeOf(const Fixture *f, const char *text) {
  MlirType type = mlirTypeParseGet(f->context, STR(text));
  assert_false(mlirTypeIsNull(type));
  return type;
}

static Fixture begin(MlirContext context) {
  Fixture f = {context, mlirLocationFileLineColGet(context, STR("layer.py"), 7, 3), {NULL}};
  MlirType types[NUM_ARGUMENTS];
  MlirLocation locations[NUM_ARGUMENTS];
  moeMlirContextTypeGet(context); // loads the dialect, so that its types can be parsed
  for (int i = 0; i < NUM_ARGUMENTS; ++i) types[i] = typeOf(&f, argumentTypes[i]), locations[i] = f.location;
  f.block = mlirBlockCreate(NUM_ARGUMENTS, types, locations);
  return f;
}

static void end(Fixture *f) { mlirBlockDestroy(f->block); }

static MlirValue argument(const Fixture *f, int index) { return mlirBlockGetArgument(f->block, index); }

// A further argument of that type.
static MlirValue valueOf(const Fixture *f, const char *type) { return mlirBlockAddArgument(f->block, typeOf(f, type), f->location); }

static MoeMlirRouteOperands routeOperands(const Fixture *f) {
  MoeMlirRouteOperands operands = MOE_MLIR_ROUTE_OPERANDS_INIT;
  operands.logits = argument(f, LOGITS);
  operands.ids = argument(f, IDS);
  operands.weights = argument(f, WEIGHTS);
  operands.device_context = argument(f, CONTEXT);
  return operands;
}

static MoeMlirRouteAttributes routeAttributes(void) {
  MoeMlirRouteAttributes attributes = MOE_MLIR_ROUTE_ATTRIBUTES_INIT;
  attributes.top_k = 2;
  attributes.n_experts = 8;
  return attributes;
}

static void expectNoRoute(const Fixture *f, const MoeMlirRouteOperands *operands, const MoeMlirRouteAttributes *attributes, const char *diagnostic) {
  assert_true(mlirOperationIsNull(moeMlirRouteCreate(f->location, operands, attributes)));
  expectDiagnostic(diagnostic);
}

//===--- what is built ----------------------------------------------------------------------------===//

static void builtOpIsTheCallers(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirRouteOperands operands = routeOperands(&f);
  MoeMlirRouteAttributes attributes = routeAttributes();
  operands.bias = argument(&f, BIAS);
  attributes.score = MOE_MLIR_ROUTE_SCORE_SIGMOID;
  attributes.renormalize = 1;
  attributes.routed_scaling_factor = 2.5;
  MlirOperation op = moeMlirRouteCreate(f.location, &operands, &attributes);
  assert_false(mlirOperationIsNull(op));
  assert_true(mlirBlockIsNull(mlirOperationGetBlock(op)));
  assert_true(mlirLocationEqual(mlirOperationGetLocation(op), f.location));
  assert_int_equal(mlirOperationGetNumOperands(op), 5);
  assert_int_equal(mlirOperationGetNumResults(op), 2);
  assert_true(mlirTypeEqual(mlirValueGetType(mlirOperationGetResult(op, 0)), typeOf(&f, "tensor<?x2xi32>")));
  assert_true(mlirTypeEqual(mlirValueGetType(mlirOperationGetResult(op, 1)), typeOf(&f, "tensor<?x2xf32>")));
  mlirBlockAppendOwnedOperation(f.block, op);
  static Text text;
  mlirOperationPrint(op, append, &text);
  assert_non_null(strstr(text.data, "bias("));
  assert_non_null(
      strstr(text.data, "{n_experts = 8 : i64, renormalize = true, routed_scaling_factor = 2.500000e+00 : f64, score = \"sigmoid\", top_k = 2 : i64} "
                        "-> tensor<?x2xi32>, tensor<?x2xf32>"));
  assert_string_equal(diagnostics.data, "");
  end(&f);
}

static void infersResultTypes(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirRouteOperands operands = routeOperands(&f);
  MlirType types[2] = {{NULL}, {NULL}};
  assert_int_equal(moeMlirRouteInferResultTypes(f.location, &operands, 0, NULL), 2);
  assert_int_equal(moeMlirRouteInferResultTypes(f.location, &operands, 1, types), 2);
  assert_true(mlirTypeEqual(types[0], typeOf(&f, "tensor<?x2xi32>")));
  assert_true(mlirTypeIsNull(types[1]));
  operands.ids = valueOf(&f, "memref<?x2xi32>");
  operands.weights = valueOf(&f, "memref<?x2xf32>");
  assert_int_equal(moeMlirRouteInferResultTypes(f.location, &operands, 2, types), 0);

  MoeMlirWorkspaceSizeOperands size = MOE_MLIR_WORKSPACE_SIZE_OPERANDS_INIT;
  size.device_context = argument(&f, CONTEXT);
  assert_int_equal(moeMlirWorkspaceSizeInferResultTypes((MlirLocation){NULL}, &size, 2, types), 1);
  assert_true(mlirTypeEqual(types[0], mlirIndexTypeGet(f.context)));

  operands.ids = (MlirValue){NULL};
  assert_int_equal(moeMlirRouteInferResultTypes((MlirLocation){NULL}, &operands, 2, types), -1);
  assert_string_equal(diagnostics.data, "");
  assert_int_equal(moeMlirRouteInferResultTypes(f.location, &operands, 2, types), -1);
  expectDiagnostic("'moe.route' op operand 'ids' is missing");
  end(&f);
}

static void buildsViewOfGivenType(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirWorkspaceViewOperands operands = MOE_MLIR_WORKSPACE_VIEW_OPERANDS_INIT;
  MlirValue rows = argument(&f, NUMBER);
  operands.workspace = argument(&f, WORKSPACE);
  operands.offset = argument(&f, NUMBER);
  operands.device_context = argument(&f, CONTEXT);
  operands.num_sizes = 1;
  operands.sizes = &rows;
  MlirType view = typeOf(&f, "memref<?x64xbf16>");
  MlirOperation op = moeMlirWorkspaceViewCreate(f.location, &operands, view);
  assert_false(mlirOperationIsNull(op));
  assert_true(mlirTypeEqual(mlirValueGetType(mlirOperationGetResult(op, 0)), view));
  mlirOperationDestroy(op);
  assert_true(mlirOperationIsNull(moeMlirWorkspaceViewCreate(f.location, &operands, typeOf(&f, "memref<4x64xbf16>"))));
  expectDiagnostic("'moe.workspace_view' op has 1 'sizes', but its result has 0 dynamic dimensions");
  assert_true(mlirOperationIsNull(moeMlirWorkspaceViewCreate(f.location, &operands, typeOf(&f, "tensor<?x64xbf16>"))));
  expectDiagnostic("'moe.workspace_view' op result #0 must be memref of any type values, but got 'tensor<?x64xbf16>'");
  end(&f);
}

//===--- regions ----------------------------------------------------------------------------------===//

static MoeMlirEpCombineSkipA2aOperands combineOperands(const Fixture *f) {
  MoeMlirEpCombineSkipA2aOperands operands = MOE_MLIR_EP_COMBINE_SKIP_A2A_OPERANDS_INIT;
  operands.output_tokens = valueOf(f, "tensor<?x16xbf16>");
  operands.atomic_counters = valueOf(f, "memref<?xi32>");
  operands.input_tokens = valueOf(f, "tensor<?x16xbf16>");
  operands.src_info = valueOf(f, "tensor<?x2xi32>");
  operands.send_ptrs = operands.recv_ptrs = operands.recv_count_ptrs = valueOf(f, "memref<?xi64, #moe.host>");
  operands.router_weights = argument(f, WEIGHTS);
  operands.topk_ids = argument(f, IDS);
  operands.device_context = argument(f, CONTEXT);
  return operands;
}

// (row, column, value) -> value, where `value` has that type; or -> `yielded`, which stands outside.
static MlirRegion epilogueOf(const Fixture *f, const char *type, MlirValue yielded) {
  MlirType types[3] = {mlirIndexTypeGet(f->context), mlirIndexTypeGet(f->context), typeOf(f, type)};
  MlirBlock block = mlirBlockCreate(3, types, (MlirLocation[]){f->location, f->location, f->location});
  MlirOperationState state = mlirOperationStateGet(STR("ep.yield"), f->location);
  MlirValue value = mlirValueIsNull(yielded) ? mlirBlockGetArgument(block, 2) : yielded;
  mlirOperationStateAddOperands(&state, 1, &value);
  mlirBlockAppendOwnedOperation(block, mlirOperationCreate(&state));
  MlirRegion region = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(region, block);
  return region;
}

static void takesRegions(void **state) {
  Fixture f = begin(contextOf(state));
  mlirDialectHandleLoadDialect(mlirGetDialectHandle__ep__(), f.context);
  MoeMlirEpCombineSkipA2aOperands operands = combineOperands(&f);
  MoeMlirEpCombineSkipA2aAttributes attributes = MOE_MLIR_EP_COMBINE_SKIP_A2A_ATTRIBUTES_INIT;
  const MlirValue none = {NULL};
  attributes.hidden_size = 16;
  attributes.top_k = 2;
  attributes.n_experts = 8;
  attributes.max_token_per_rank = 64;
  attributes.allreduce_world_size = 4;
  MlirOperation plain = moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, (MlirRegion){NULL});
  assert_false(mlirOperationIsNull(plain));
  assert_int_equal(mlirOperationGetNumRegions(plain), 0);
  mlirOperationDestroy(plain);
  assert_true(mlirOperationIsNull(moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, epilogueOf(&f, "bf16", none))));
  expectDiagnostic("'ep.combine.skip_a2a' op has an epilogue, so has_epilogue_fusion must be true");
  attributes.has_epilogue_fusion = true;
  assert_true(mlirOperationIsNull(moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, (MlirRegion){NULL})));
  expectDiagnostic("'ep.combine.skip_a2a' op has_epilogue_fusion is true, but there is no epilogue");
  MlirOperation fused = moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, epilogueOf(&f, "bf16", none));
  assert_false(mlirOperationIsNull(fused));
  assert_false(mlirBlockIsNull(mlirRegionGetFirstBlock(mlirOperationGetRegion(fused, 0))));
  mlirOperationDestroy(fused);
  MlirOperation reader = moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, epilogueOf(&f, "bf16", valueOf(&f, "bf16")));
  assert_false(mlirOperationIsNull(reader));
  mlirOperationDestroy(reader);
  MlirRegion endless = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(endless, mlirBlockCreate(0, NULL, NULL));
  assert_true(mlirOperationIsNull(moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, endless)));
  expectDiagnostic("'ep.combine.skip_a2a' op has a block without a terminator");
  assert_true(mlirOperationIsNull(moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, epilogueOf(&f, "f32", none))));
  expectDiagnostic("'ep.combine.skip_a2a' op the epilogue must take a row index, a column index and a value of the element type of 'output_tokens'");
  operands.src_info = (MlirValue){NULL};
  assert_true(mlirOperationIsNull(moeMlirEpCombineSkipA2aCreate(f.location, &operands, &attributes, epilogueOf(&f, "bf16", none))));
  expectDiagnostic("'ep.combine.skip_a2a' op operand 'src_info' is missing");
  assert_true(mlirOperationIsNull(moeMlirEpCombineSkipA2aCreate((MlirLocation){NULL}, &operands, &attributes, epilogueOf(&f, "bf16", none))));
  end(&f);
}

//===--- what is refused --------------------------------------------------------------------------===//

static void refusesWrongTypes(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirRouteAttributes attributes = routeAttributes();
  MoeMlirRouteOperands operands = routeOperands(&f);
  operands.logits = valueOf(&f, "tensor<?x8xf64>");
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'tensor<?x8xf64>'");
  operands.logits = valueOf(&f, "tensor<*xf32>");
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'tensor<*xf32>'");
  operands.logits = argument(&f, NUMBER);
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'index'");
  operands.logits = valueOf(&f, "tensor<?x9xf32>");
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand 'logits' has size 9 in dimension 1, but n_experts is 8");
  operands.logits = valueOf(&f, "memref<?x8xf32>");
  expectNoRoute(&f, &operands, &attributes,
                "'moe.route' op operand 'ids' is a tensor, but operand 'logits' is a memref: use tensors or memrefs throughout");
  operands = routeOperands(&f);
  operands.device_context = argument(&f, NUMBER);
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand #3 must be !moe.context, but got 'index'");
  operands = routeOperands(&f);
  attributes.top_k = 33;
  expectNoRoute(
      &f, &operands, &attributes,
      "'moe.route' op attribute 'top_k' failed to satisfy constraint: 64-bit signless integer attribute whose minimum value is 1 whose maximum "
      "value is 32");
  end(&f);
}

static void refusesWrongMemory(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirInitializeOperands operands = MOE_MLIR_INITIALIZE_OPERANDS_INIT;
  MoeMlirInitializeAttributes attributes = MOE_MLIR_INITIALIZE_ATTRIBUTES_INIT;
  attributes.max_num_tokens = attributes.dispatch_bytes_per_token = attributes.combine_bytes_per_token = 16;
  operands.workspace = argument(&f, WORKSPACE);
  operands.metainfo = valueOf(&f, "memref<16xi64>");
  operands.device_context = argument(&f, CONTEXT);
  assert_true(mlirOperationIsNull(moeMlirInitializeCreate(f.location, &operands, &attributes)));
  expectDiagnostic("'moe.initialize' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host");
  operands.metainfo = argument(&f, METAINFO);
  MlirOperation op = moeMlirInitializeCreate(f.location, &operands, &attributes);
  assert_false(mlirOperationIsNull(op));
  assert_int_equal(mlirOperationGetNumResults(op), 0);
  mlirOperationDestroy(op);
  end(&f);
}

static void refusesWhatIsNot(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirRouteOperands operands = routeOperands(&f), none = MOE_MLIR_ROUTE_OPERANDS_INIT;
  MoeMlirRouteAttributes attributes = routeAttributes(), unset = MOE_MLIR_ROUTE_ATTRIBUTES_INIT;
  expectNoRoute(&f, NULL, &attributes, "'moe.route' op operand 'logits' is missing");
  expectNoRoute(&f, &none, &attributes, "'moe.route' op operand 'logits' is missing");
  expectNoRoute(&f, &operands, NULL, "'moe.route' op parameter 'top_k' is missing");
  expectNoRoute(&f, &operands, &unset, "'moe.route' op parameter 'top_k' is missing");
  attributes.score = 2;
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op parameter 'score' is 2, must be 0 to 1");
  attributes = routeAttributes();
  attributes.renormalize = -1;
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op parameter 'renormalize' is -1, must be 0 to 1");
  attributes = routeAttributes();
  assert_true(mlirOperationIsNull(moeMlirRouteCreate((MlirLocation){NULL}, &operands, &attributes)));
  assert_string_equal(diagnostics.data, "");
  assert_true(mlirOperationIsNull(moeMlirRouteCreate((MlirLocation){NULL}, NULL, NULL)));
  end(&f);
}

static void refusesOtherContexts(void **state) {
  Fixture f = begin(contextOf(state));
  MlirContext otherContext = mlirContextCreate();
  Fixture other = begin(otherContext);
  MoeMlirRouteOperands operands = routeOperands(&f);
  MoeMlirRouteAttributes attributes = routeAttributes();
  operands.ids = argument(&other, IDS);
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand 'ids' belongs to another MLIR context");
  assert_int_equal(moeMlirRouteInferResultTypes((MlirLocation){NULL}, &operands, 0, NULL), -1);
  MoeMlirAllocateOperands allocate = MOE_MLIR_ALLOCATE_OPERANDS_INIT;
  allocate.device_context = argument(&f, CONTEXT);
  assert_true(mlirOperationIsNull(moeMlirAllocateCreate(f.location, &allocate, typeOf(&other, "memref<4xf32>"))));
  expectDiagnostic("'moe.allocate' op result 'buffer' belongs to another MLIR context");
  end(&other);
  mlirContextDestroy(otherContext);
  end(&f);
}

static MlirLogicalResult keepLocation(MlirDiagnostic diagnostic, void *data) {
  mlirLocationPrint(mlirDiagnosticGetLocation(diagnostic), append, data);
  return mlirLogicalResultSuccess();
}

static void diagnosticsHaveTheLocation(void **state) {
  Fixture f = begin(contextOf(state));
  static Text places;
  MlirDiagnosticHandlerID handler = mlirContextAttachDiagnosticHandler(f.context, keepLocation, &places, NULL);
  MoeMlirRouteOperands operands = routeOperands(&f);
  MoeMlirRouteAttributes attributes = routeAttributes();
  attributes.n_experts = 9;
  assert_true(mlirOperationIsNull(moeMlirRouteCreate(f.location, &operands, &attributes))); // of the verifier
  assert_true(mlirOperationIsNull(moeMlirRouteCreate(f.location, &operands, NULL)));        // of the builder
  assert_string_equal(places.data, "loc(\"layer.py\":7:3)loc(\"layer.py\":7:3)");
  mlirContextDetachDiagnosticHandler(f.context, handler);
  end(&f);
}

//===--- structs of other headers -----------------------------------------------------------------===//

static void shorterStructsHaveDefaults(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirRouteOperands operands = routeOperands(&f);
  MoeMlirRouteAttributes attributes = routeAttributes();
  attributes.struct_size = offsetof(MoeMlirRouteAttributes, score);
  attributes.score = 77, attributes.renormalize = 77; // behind its end
  MlirOperation op = moeMlirRouteCreate(f.location, &operands, &attributes);
  assert_false(mlirOperationIsNull(op));
  mlirOperationDestroy(op);
  operands.struct_size = offsetof(MoeMlirRouteOperands, device_context);
  expectNoRoute(&f, &operands, &attributes, "'moe.route' op operand 'device_context' is missing");
  end(&f);
}

//===--- queries ----------------------------------------------------------------------------------===//

static void listsOps(void **state) {
  (void)state;
  const MoeMlirOpInfo *const *ops = moeMlirOps();
  for (intptr_t i = 0; ops[i]; ++i) {
    assert_ptr_equal(moeMlirOpInfoGet(ops[i]->name), ops[i]);
    if (i > 0) assert_true(strcmp(ops[i - 1]->name, ops[i]->name) < 0);
  }
  assert_null(moeMlirOpInfoGet("moe.rout"));
  assert_null(moeMlirOpInfoGet(""));
  assert_null(moeMlirOpInfoGet(NULL));
}

static void describesOp(void **state) {
  (void)state;
  const MoeMlirOpInfo *info = moeMlirOpInfoGet("moe.dispatch");
  assert_string_equal(info->summary, "Send each token to the ranks of its experts");
  assert_true(info->collective);
  assert_string_equal(info->scalar, "combine_payload_offset");
  assert_string_equal(info->scalar_type, "i64");
  assert_null(info->region);
  assert_int_equal(info->operands_size, sizeof(MoeMlirDispatchOperands));
  assert_int_equal(info->attributes_size, sizeof(MoeMlirDispatchAttributes));
  const MoeMlirOperandInfo *weights = info->operands[1], *payloads = info->operands[2], *workspace = info->operands[4], *metainfo = info->operands[5];
  assert_string_equal(weights->name, "topk_weights");
  assert_string_equal(weights->types, "2-D tensor or memref of f32");
  assert_true(weights->optional && !weights->list && weights->kind == MOE_MLIR_INPUT);
  assert_true(payloads->list && payloads->offset == offsetof(MoeMlirDispatchOperands, payloads));
  assert_int_equal(payloads->count_offset, offsetof(MoeMlirDispatchOperands, num_payloads));
  assert_true(workspace->kind == MOE_MLIR_STATE && strcmp(workspace->memory, "symmetric") == 0);
  assert_true(metainfo->kind == MOE_MLIR_STATE && strcmp(metainfo->memory, "host") == 0);
  assert_true(info->operands[6]->kind == MOE_MLIR_NUMBER && strcmp(info->operands[6]->memory, "") == 0);
  assert_true(info->operands[7]->kind == MOE_MLIR_NUMBER && info->operands[7]->optional && !info->operands[7]->list);
  assert_true(info->operands[8]->kind == MOE_MLIR_DESTINATION && info->operands[8]->kept);
  assert_true(info->operands[11]->kind == MOE_MLIR_DESTINATION && info->operands[11]->optional && !info->operands[11]->kept);
  assert_true(info->operands[12]->kind == MOE_MLIR_CONTEXT);
  assert_null(info->operands[13]);
  assert_string_equal(info->attributes[0]->name, "top_k");
  assert_null(info->attributes[6]);
}

static void givesBounds(void **state) {
  (void)state;
  MoeMlirBounds bounds = MOE_MLIR_BOUNDS_INIT;
  assert_true(moeMlirAttributeBounds("moe.route", "top_k", &bounds));
  assert_true(bounds.kind == MOE_MLIR_INT && bounds.required && bounds.minimum == 1 && bounds.maximum == 32);
  assert_true(moeMlirAttributeBounds("moe.route", "n_group", &bounds));
  assert_true(bounds.kind == MOE_MLIR_INT && !bounds.required && bounds.default_value == 1 && bounds.maximum == 4096);
  assert_true(moeMlirAttributeBounds("moe.route", "score", &bounds));
  assert_true(bounds.kind == MOE_MLIR_ENUM && bounds.num_cases == 2 && bounds.default_value == MOE_MLIR_ROUTE_SCORE_SOFTMAX);
  assert_string_equal(bounds.cases[MOE_MLIR_ROUTE_SCORE_SIGMOID], "sigmoid");
  assert_true(moeMlirAttributeBounds("moe.route", "renormalize", &bounds));
  assert_true(bounds.kind == MOE_MLIR_BOOL && bounds.minimum == 0 && bounds.maximum == 1 && !bounds.cases);
  assert_true(moeMlirAttributeBounds("moe.route", "routed_scaling_factor", &bounds));
  assert_true(bounds.kind == MOE_MLIR_FLOAT && bounds.default_float == 1.0);

  const MoeMlirBounds before = bounds;
  assert_false(moeMlirAttributeBounds("moe.route", "top", &bounds));
  assert_false(moeMlirAttributeBounds("moe.rout", "top_k", &bounds));
  assert_false(moeMlirAttributeBounds(NULL, "top_k", &bounds));
  assert_false(moeMlirAttributeBounds("moe.route", NULL, &bounds));
  assert_false(moeMlirAttributeBounds("moe.route", "top_k", NULL));
  assert_memory_equal(&bounds, &before, sizeof bounds);
  bounds.struct_size = sizeof bounds + 1;
  assert_false(moeMlirAttributeBounds("moe.route", "top_k", &bounds));
  bounds.struct_size = offsetof(MoeMlirBounds, maximum);
  bounds.maximum = 77;
  assert_true(moeMlirAttributeBounds("moe.route", "top_k", &bounds));
  assert_true(bounds.minimum == 1 && bounds.maximum == 77 && bounds.struct_size == offsetof(MoeMlirBounds, maximum));
}

static void computesWorkspaceSize(void **state) {
  (void)state;
  moert_workspace_info info = {512, 4096, 4096, 0, 4};
  assert_int_equal(moeMlirWorkspaceSize(&info), moert_workspace_lay_out(&info).bytes);
  assert_true(moeMlirWorkspaceSize(&info) > 4 * 512 * (4096 + 4096));
  assert_int_equal(moeMlirWorkspaceSize(NULL), -1);
  moert_workspace_info invalid[] = {{0, 4096, 4096, 0, 4},       {512, 0, 4096, 0, 4},       {512, 4096, 0, 0, 4},      {512, 4096, 4096, -1, 4},
                                    {512, 4096, 4096, 0, 0},     {512, 4096, 4096, 0, 65},   {512, 4096, 4096, 0, -1},  {16777217, 4096, 4096, 0, 4},
                                    {512, 4096, 4096, 65537, 4}, {512, 2147483648, 1, 0, 4}, {512, 1, 2147483648, 0, 4}};
  for (size_t i = 0; i < sizeof invalid / sizeof *invalid; ++i) assert_int_equal(moeMlirWorkspaceSize(&invalid[i]), -1);
  moert_workspace_info largest = {16777216, 2147483647, 2147483647, 65536, 64};
  assert_true(moeMlirWorkspaceSize(&largest) > INT64_C(1) << 61);
}

static void refusesUnknownOps(void **state) {
  Fixture f = begin(contextOf(state));
  MoeMlirRouteOperands operands = routeOperands(&f);
  assert_true(mlirOperationIsNull(moeMlirOpCreate("moe.rout", f.location, &operands, NULL, (MlirType){NULL}, mlirRegionCreate())));
  expectDiagnostic("'moe.rout' op is not one of this library's");
  assert_int_equal(moeMlirOpInferResultTypes(NULL, f.location, &operands, (MlirType){NULL}, 0, NULL), -1);
  expectDiagnostic("'' op is not one of this library's");
  assert_true(mlirOperationIsNull(moeMlirOpCreate(NULL, (MlirLocation){NULL}, NULL, NULL, (MlirType){NULL}, (MlirRegion){NULL})));
  char name[2000] = {0};
  memset(name, 'x', sizeof name - 1);
  assert_int_equal(moeMlirOpInferResultTypes(name, f.location, &operands, (MlirType){NULL}, 0, NULL), -1);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(builtOpIsTheCallers, setUp, tearDown),
      cmocka_unit_test_setup_teardown(infersResultTypes, setUp, tearDown),
      cmocka_unit_test_setup_teardown(buildsViewOfGivenType, setUp, tearDown),
      cmocka_unit_test_setup_teardown(takesRegions, setUp, tearDown),
      cmocka_unit_test_setup_teardown(refusesWrongTypes, setUp, tearDown),
      cmocka_unit_test_setup_teardown(refusesWrongMemory, setUp, tearDown),
      cmocka_unit_test_setup_teardown(refusesWhatIsNot, setUp, tearDown),
      cmocka_unit_test_setup_teardown(refusesOtherContexts, setUp, tearDown),
      cmocka_unit_test_setup_teardown(diagnosticsHaveTheLocation, setUp, tearDown),
      cmocka_unit_test_setup_teardown(shorterStructsHaveDefaults, setUp, tearDown),
      cmocka_unit_test(listsOps),
      cmocka_unit_test(describesOp),
      cmocka_unit_test(givesBounds),
      cmocka_unit_test(computesWorkspaceSize),
      cmocka_unit_test_setup_teardown(refusesUnknownOps, setUp, tearDown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

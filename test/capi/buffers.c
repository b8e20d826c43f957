//===- buffers.c - compilers that bufferize by themselves -------------------------------------------===//
//
// Ops are built on memrefs, with their intermediates in the arena, and lowered by the passes that docs/embedding.md
// says are enough.
//
//===----------------------------------------------------------------------------------------------===//

#include "support.h"
#include <mlir-c/Pass.h>
#include <mlir-c/RegisterEverything.h>
#include <string.h>

#define TO_LLVM                                                                                                                                      \
  "moe-lower-to-runtime,expand-strided-metadata,lower-affine,convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,"                        \
  "finalize-memref-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts"

static const char function[] =
    "func.func @gate(%logits: memref<?x8xf32> {moe.name = \"logits\"}, %ids: memref<?x2xi32> {moe.role = \"out\"}, %tokens: index,\n"
    "                %ctx: !moe.context) { return }\n";
enum { LOGITS, IDS, TOKENS, CONTEXT };

typedef struct Gate {
  MlirModule module;
  MlirBlock block;
} Gate;

static MlirValue argument(const Gate *gate, intptr_t index) { return mlirBlockGetArgument(gate->block, index); }

static MlirValue insert(const Gate *gate, MlirOperation op) {
  assert_false(mlirOperationIsNull(op));
  mlirBlockInsertOwnedOperationBefore(gate->block, mlirBlockGetTerminator(gate->block), op);
  return mlirOperationGetNumResults(op) ? mlirOperationGetResult(op, 0) : (MlirValue){NULL};
}

// The function, with a moe.route whose weights go to the arena.
static Gate buildGate(MlirContext context) {
  Gate gate = {mlirModuleCreateParse(context, STR(function)), {NULL}};
  MlirLocation location = mlirLocationNameGet(context, STR("gate"), mlirLocationUnknownGet(context));
  MlirOperation op = mlirBlockGetFirstOperation(mlirModuleGetBody(gate.module));
  gate.block = mlirRegionGetFirstBlock(mlirOperationGetRegion(op, 0));
  MoeMlirRouteOperands operands = MOE_MLIR_ROUTE_OPERANDS_INIT;
  operands.logits = argument(&gate, LOGITS);
  operands.ids = argument(&gate, IDS);
  operands.device_context = argument(&gate, CONTEXT);
  MlirValue tokens = argument(&gate, TOKENS);
  MoeMlirAllocateOperands allocate = MOE_MLIR_ALLOCATE_OPERANDS_INIT;
  allocate.num_sizes = 1;
  allocate.sizes = &tokens;
  allocate.device_context = argument(&gate, CONTEXT);
  operands.weights = insert(&gate, moeMlirAllocateCreate(location, &allocate, mlirTypeParseGet(context, STR("memref<?x2xf32>"))));
  MoeMlirRouteAttributes attributes = MOE_MLIR_ROUTE_ATTRIBUTES_INIT;
  attributes.top_k = 2;
  attributes.n_experts = 8;
  insert(&gate, moeMlirRouteCreate(location, &operands, &attributes));
  return gate;
}

// The module after the passes, as text.
static const char *run(MlirContext context, MlirModule module, const char *passes) {
  static Text text;
  text.used = 0;
  MlirPassManager manager = mlirPassManagerCreate(context);
  bool done = mlirLogicalResultIsSuccess(mlirParsePassPipeline(mlirPassManagerGetAsOpPassManager(manager), STR(passes), append, &diagnostics)) &&
              mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(manager, mlirModuleGetOperation(module)));
  mlirPassManagerDestroy(manager);
  mlirOperationPrint(mlirModuleGetOperation(module), append, &text);
  if (!done) fail_msg("%s", diagnostics.data);
  return text.data;
}

// One pass of ours is enough: functions take the context as a pointer and return a status.
static void oneOfOurPassesIsEnough(void **state) {
  Gate gate = buildGate(contextOf(state));
  const char *text = run(contextOf(state), gate.module, "builtin.module(" TO_LLVM ")");
  assert_non_null(strstr(text, "llvm.call @moert_moe_route"));
  assert_non_null(strstr(text, "llvm.call @moert_context_allocate"));
  const char *entry = strstr(text, "llvm.func @_mlir_ciface_gate(%arg0: !llvm.ptr");
  assert_non_null(entry);
  assert_non_null(strstr(entry, "%arg2: i64, %arg3: !llvm.ptr) -> i32"));
  assert_null(strstr(text, "moert_graph_info"));
  assert_null(strstr(text, "malloc"));
  mlirModuleDestroy(gate.module);
}

// With all of them, but no bufferization, the result is a graph for moe-run.
static void describesGraph(void **state) {
  Gate gate = buildGate(contextOf(state));
  const char *text = run(contextOf(state), gate.module,
                         "builtin.module(moe-declare-interface,moe-place-buffers,moe-select-kernels{target=host}," TO_LLVM ",moe-export-graph)");
  assert_non_null(strstr(text, "@moert_graph_info"));
  assert_non_null(strstr(text, "\"logits\\00\""));
  assert_non_null(strstr(text, "moe.route/host/f32,i32,f32,top_k=2"));
  mlirModuleDestroy(gate.module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(oneOfOurPassesIsEnough, setUp, tearDown),
      cmocka_unit_test_setup_teardown(describesGraph, setUp, tearDown),
  };
  mlirRegisterAllPasses();
  moeMlirRegisterPasses();
  return cmocka_run_group_tests(tests, NULL, NULL);
}

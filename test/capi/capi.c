//===- capi.c - the C API of the compiler side ----------------------------------------------------===//
//
// A program that embeds MLIR: it registers the dialect and the passes, makes types and attributes, compiles a graph with the pipeline's text, and
// gets diagnostics for a bad one.
//
//===----------------------------------------------------------------------------------------------===//

#include "support.h"
#include <mlir-c/Pass.h>
#include <mlir-c/RegisterEverything.h>
#include <stdlib.h>
#include <string.h>

static const char route[] =
    "func.func @f(%l: tensor<?x8xf32>, %i: tensor<?x2xi32>, %w: tensor<?x2xf32>, %c: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {\n"
    "  %a, %b = moe.route logits(%l : tensor<?x8xf32>) outs(%i, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%c)\n"
    "    {top_k = 2, n_experts = @} -> tensor<?x2xi32>, tensor<?x2xf32>\n"
    "  return %a, %b : tensor<?x2xi32>, tensor<?x2xf32>\n"
    "}\n";

// The graph above with that many experts.
static MlirModule parse(MlirContext context, char experts) {
  char source[sizeof route];
  memcpy(source, route, sizeof route);
  *strrchr(source, '@') = experts;
  return mlirModuleCreateParse(context, STR(source));
}

static void typesAndAttributes(void **state) {
  MlirContext context = contextOf(state);
  MlirType type = moeMlirContextTypeGet(context);
  assert_true(moeMlirTypeIsAContext(type));
  assert_false(moeMlirTypeIsAContext(mlirIndexTypeGet(context)));
  assert_true(mlirTypeEqual(type, mlirTypeParseGet(context, STR("!moe.context"))));
  MlirAttribute host = moeMlirHostAttributeGet(context);
  assert_true(moeMlirAttributeIsAHost(host));
  assert_false(moeMlirAttributeIsAHost(mlirAttributeGetNull()));
  assert_true(mlirAttributeEqual(host, mlirAttributeParseGet(context, STR("#moe.host"))));
}

// The graph in the LLVM dialect; the text is the caller's.
static Text *compileFor(const char *target, void **state) {
  MlirContext context = contextOf(state);
  MlirModule module = parse(context, '8');
  assert_false(mlirModuleIsNull(module));
  MlirPassManager manager = mlirPassManagerCreate(context);
  Text *text = calloc(1, sizeof *text);
  assert_non_null(text);
  assert_true(mlirLogicalResultIsSuccess(
      mlirParsePassPipeline(mlirPassManagerGetAsOpPassManager(manager), STR(moeMlirPipelineGet(STR(target))), append, text)));
  assert_true(mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(manager, mlirModuleGetOperation(module))));
  mlirOperationPrint(mlirModuleGetOperation(module), append, text);
  mlirPassManagerDestroy(manager);
  mlirModuleDestroy(module);
  assert_non_null(strstr(text->data, "llvm.call @moert_moe_route"));
  assert_non_null(strstr(text->data, "@moert_graph_info"));
  assert_null(strstr(text->data, "moe.route \""));
  return text;
}

static void compilesGraph(void **state) {
  Text *text = compileFor("host", state);
  assert_null(strstr(text->data, "moert_comm_device"));
  free(text);
}

static void compilesGraphForDevice(void **state) {
  Text *text = compileFor("sm_90a", state);
  assert_non_null(strstr(text->data, "moe.route/sm_90a/"));
  assert_non_null(strstr(text->data, "llvm.call @moert_comm_device"));
  free(text);
}

static void reportsInvalidGraph(void **state) {
  MlirModule module = parse(contextOf(state), '9');
  assert_true(mlirModuleIsNull(module));
  assert_non_null(strstr(diagnostics.data, "'moe.route' op operand 'logits' has size 8 in dimension 1, but n_experts is 9"));
}

static void knowsTargets(void **state) {
  (void)state;
  assert_non_null(moeMlirPipelineGet(STR("host")));
  assert_non_null(moeMlirPipelineGet(STR("sm_90a")));
  assert_null(moeMlirPipelineGet(STR("sm_100a")));
  assert_null(moeMlirPipelineGet(STR("")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(typesAndAttributes, setUp, tearDown),
      cmocka_unit_test_setup_teardown(compilesGraph, setUp, tearDown),
      cmocka_unit_test_setup_teardown(compilesGraphForDevice, setUp, tearDown),
      cmocka_unit_test_setup_teardown(reportsInvalidGraph, setUp, tearDown),
      cmocka_unit_test(knowsTargets),
  };
  mlirRegisterAllPasses();
  moeMlirRegisterPasses();
  return cmocka_run_group_tests(tests, NULL, NULL);
}

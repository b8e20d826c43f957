/*===- embed.c - a program that embeds MLIR and the compiler side -------------------------------------===*
 *
 * It parses a graph, runs the pipeline for the host, and looks for what calls the run side.
 *
 *===----------------------------------------------------------------------------------------------===*/
#include <moe-mlir-c/MoeMlir.h>
#include <mlir-c/Pass.h>
#include <mlir-c/RegisterEverything.h>
#include <stdio.h>

#define STR mlirStringRefCreateFromCString

static const char graph[] = "func.func @f(%l: tensor<?x8xf32> {moe.name = \"logits\"}, %i: tensor<?x2xi32>, %w: tensor<?x2xf32>, %c: !moe.context)\n"
                            "    -> (tensor<?x2xi32>, tensor<?x2xf32>) {\n"
                            "  %a, %b = moe.route logits(%l : tensor<?x8xf32>) outs(%i, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%c)\n"
                            "    {top_k = 2, n_experts = 8} -> tensor<?x2xi32>, tensor<?x2xf32>\n"
                            "  return %a, %b : tensor<?x2xi32>, tensor<?x2xf32>\n"
                            "}\n";

static void print(MlirStringRef piece, void *user) {
  (void)user;
  fwrite(piece.data, 1, piece.length, stderr);
}

static MlirContext make_context(void) {
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  MlirContext context;
  mlirRegisterAllDialects(registry);
  moeMlirRegisterDialects(registry);
  context = mlirContextCreateWithRegistry(registry, false);
  mlirDialectRegistryDestroy(registry);
  mlirRegisterAllPasses();
  moeMlirRegisterPasses();
  return context;
}

static bool run_pipeline(MlirContext context, MlirOperation root) {
  MlirPassManager manager = mlirPassManagerCreate(context);
  MlirOpPassManager passes = mlirPassManagerGetAsOpPassManager(manager);
  bool ok = mlirLogicalResultIsSuccess(mlirParsePassPipeline(passes, STR(moeMlirPipelineGet(STR("host"))), print, NULL)) &&
            mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(manager, root));
  mlirPassManagerDestroy(manager);
  return ok;
}

static bool has_symbol(MlirOperation root, const char *name) {
  MlirSymbolTable symbols = mlirSymbolTableCreate(root);
  bool found = !mlirOperationIsNull(mlirSymbolTableLookup(symbols, STR(name)));
  mlirSymbolTableDestroy(symbols);
  return found;
}

static bool compiles(MlirContext context) {
  MlirModule module = mlirModuleCreateParse(context, STR(graph));
  MlirOperation root = mlirModuleGetOperation(module);
  bool ok = !mlirModuleIsNull(module) && run_pipeline(context, root) && has_symbol(root, "moert_moe_route");
  mlirModuleDestroy(module);
  return ok;
}

int main(void) {
  MlirContext context = make_context();
  bool ok = moeMlirTypeIsAContext(moeMlirContextTypeGet(context)) && compiles(context);
  mlirContextDestroy(context);
  if (ok) printf("embed: OK with moe-mlir %s\n", moeMlirVersionGet());
  return !ok;
}

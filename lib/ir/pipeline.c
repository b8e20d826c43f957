//===- pipeline.c - the passes, and the pipelines made of them ------------------------------------===//

#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <string.h>

const MoePass *const moePasses[] = {&moeDeclareInterface, &moeCheckHostAccess, &moePlaceBuffers, &moeExpandEpilogues,
                                    &moeSelectKernels,    &moeLowerToRuntime,  &moeExportGraph,  NULL};

void moeMlirRegisterPasses(void) {
  for (const MoePass *const *pass = moePasses; *pass; ++pass) moeRegisterPass(*pass);
}

// Tensors to buffers: destinations come from the caller, intermediates from the arena. Elementwise ops become linalg only when interfaces are
// declared: the conversion takes an operand as destination, which must not count as the author's choice.
#define FRONT                                                                                                                                        \
  "inline,symbol-dce,moe-declare-interface,func.func(convert-elementwise-to-linalg),"                                                                \
  "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},"                                       \
  "canonicalize,cse,moe-check-host-access,func.func(buffer-loop-hoisting),moe-place-buffers,"

// Loops on the host. Our ops stay until control flow is in blocks, so that a call can leave the function.
#define HOST_LOOPS "scf-forall-to-for,convert-linalg-to-loops,expand-strided-metadata,lower-affine,canonicalize,cse,convert-scf-to-cf,"

// To the LLVM dialect. bf16 is extended first: x86 has no instructions for it, and libgcc may lack the conversions.
#define BACK                                                                                                                                         \
  "moe-lower-to-runtime,expand-strided-metadata,lower-affine,canonicalize,cse,"                                                                      \
  "func.func(math-extend-to-supported-types{target-type=f32},arith-emulate-unsupported-floats{source-types=bf16 target-type=f32},"                   \
  "arith-expand{include-bf16=1}),"                                                                                                                   \
  "convert-math-to-llvm,convert-math-to-libm,convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,finalize-memref-to-llvm,"                \
  "convert-func-to-llvm,reconcile-unrealized-casts,canonicalize,cse,moe-export-graph"

const char *moeMlirPipelineGet(MlirStringRef target) {
  static const char host[] = "builtin.module(" FRONT "moe-expand-epilogues,moe-select-kernels{target=host}," HOST_LOOPS BACK ")";
  return target.length == 4 && memcmp(target.data, "host", 4) == 0 ? host : NULL;
}

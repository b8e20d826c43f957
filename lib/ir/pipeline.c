//===- pipeline.c - the passes, and the pipelines made of them ------------------------------------===//

#include "lib/ir/passes.h"
#include "moe-mlir-c/MoeMlir.h"
#include <string.h>

const MoePass *const moePasses[] = {&moeDeclareInterface, &moeCheckHostAccess, &moePlaceBuffers,   &moeExpandEpilogues, &moeSelectKernels,
                                    &moePrepareKernels,   &moeCheckDeviceCode, &moeLowerToRuntime, &moeExportGraph,     NULL};

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

// Loops into kernels: the two outermost levels of a nest are tiled, tiles are blocks, and what is in a tile are threads. First scf.forall, whose
// bodies may be linalg ops, then what is left of those. Nothing may come between tiling and mapping: canonicalisation would merge the loops again.
#define TILE(sizes)                                                                                                                                  \
  "func.func(scf-parallel-loop-tiling{parallel-loop-tile-sizes=" sizes                                                                               \
  " no-min-max-bounds=1},gpu-map-parallel-loops{mapping-policy=innermost-first}),"
#define KERNELS                                                                                                                                      \
  "scf-forall-to-parallel," TILE("1,8,32") "linalg-generalize-named-ops,moe-prepare-kernels,convert-linalg-to-parallel-loops," TILE(                 \
      "8,32") "convert-parallel-loops-to-gpu,expand-strided-metadata,lower-affine,canonicalize,cse,gpu-kernel-outlining,moe-check-device-code,"

// Sizes and offsets of tensors need 64 bits.
#define SM_90A                                                                                                                                       \
  "nvvm-attach-target{chip=sm_90a features=+ptx83 O=3},convert-scf-to-cf,"                                                                           \
  "gpu.module(convert-gpu-to-nvvm{index-bitwidth=64},canonicalize,cse,reconcile-unrealized-casts),"

// To the LLVM dialect. bf16 is extended first: x86 has no instructions for it, and libgcc may lack the conversions.
#define BACK(launches)                                                                                                                               \
  "moe-lower-to-runtime,expand-strided-metadata,lower-affine,canonicalize,cse,"                                                                      \
  "func.func(math-extend-to-supported-types{target-type=f32},arith-emulate-unsupported-floats{source-types=bf16 target-type=f32},"                   \
  "arith-expand{include-bf16=1}),"                                                                                                                   \
  "convert-math-to-llvm,convert-math-to-libm,convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,finalize-memref-to-llvm,"                \
  "convert-func-to-llvm," launches "reconcile-unrealized-casts,canonicalize,cse,moe-export-graph"

static bool equals(MlirStringRef text, const char *other) { return text.length == strlen(other) && memcmp(text.data, other, text.length) == 0; }

const char *moeMlirPipelineGet(MlirStringRef target) {
  static const char host[] = "builtin.module(" FRONT "moe-expand-epilogues,moe-select-kernels{target=host}," HOST_LOOPS BACK("") ")";
  static const char sm_90a[] =
      "builtin.module(" FRONT "moe-expand-epilogues,moe-select-kernels{target=sm_90a}," KERNELS SM_90A BACK("gpu-to-llvm,") ")";
  return equals(target, "host") ? host : equals(target, "sm_90a") ? sm_90a : NULL;
}

//===- passes.h - the passes, and how they are registered -----------------------------------------===//
#ifndef MOE_IR_PASSES_H
#define MOE_IR_PASSES_H

#include <mlir-c/IR.h>
#include <mlir-c/Pass.h>

#ifdef __cplusplus
extern "C" {
#endif

// A pass of builtin.module. The C API can create passes, but not register them, nor give them options.
typedef struct MoePass {
  const char *name, *description;
  const char *const *options;                                                 // name, default, description, ..., NULL
  MlirDialectHandle (*const *dialects)(void);                                 // whose ops it makes, ..., NULL
  MlirLogicalResult (*run)(MlirOperation module, const char *const *options); // the options' values, in order
} MoePass;

extern const MoePass *const moePasses[]; // NULL at the end
void moeRegisterPass(const MoePass *pass);

extern const MoePass moeDeclareInterface, moeCheckHostAccess, moePlaceBuffers, moeExpandEpilogues, moeSelectKernels, moePrepareKernels,
    moeCheckDeviceCode, moeLowerToRuntime, moeExportGraph;

#ifdef __cplusplus
}
#endif

#endif

/*===- MoeMlir.h - the compiler side of moe-mlir in C -------------------------------------------------===*
 *
 * For programs that embed MLIR 22.1 and link libMoeMlir.so. Nothing here is collective; everything follows MLIR's rules on threads (a context is used
 * by one thread at a time unless MLIR itself runs several).
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOE_MLIR_C_MOEMLIR_H
#define MOE_MLIR_C_MOEMLIR_H

#include <mlir-c/IR.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the dialects, which their bytecode carries. Bytecode of an older version is read, of a newer one refused. */
#define MOE_MLIR_DIALECT_VERSION 2

/* "0.1.0, ABI 2, dialect 1, LLVM 22.1.8": the versions of this library, of the run side that it compiles for, of the dialects, and of the LLVM that
 * it was built with. Static storage. */
MLIR_CAPI_EXPORTED const char *moeMlirVersionGet(void);

/* mlirGetDialectHandle__moe__() and mlirGetDialectHandle__ep__(): the dialects `moe` and `ep`. */
MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(Moe, moe);
MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(Ep, ep);

/* Both. */
MLIR_CAPI_EXPORTED void moeMlirRegisterDialects(MlirDialectRegistry registry);

/* Register the passes moe-*, for pipelines given as text. What is registered already stays. */
MLIR_CAPI_EXPORTED void moeMlirRegisterPasses(void);

/* !moe.context */
MLIR_CAPI_EXPORTED MlirType moeMlirContextTypeGet(MlirContext context);
MLIR_CAPI_EXPORTED bool moeMlirTypeIsAContext(MlirType type);

/* #moe.host, the memory space of buffers that host code reads and writes */
MLIR_CAPI_EXPORTED MlirAttribute moeMlirHostAttributeGet(MlirContext context);
MLIR_CAPI_EXPORTED bool moeMlirAttributeIsAHost(MlirAttribute attribute); /* false for a null attribute */

/* The text of the pass pipeline from a graph on tensors to the LLVM dialect, for --pass-pipeline or mlirParsePassPipeline; NULL if `target` is not
 * one of this build: "host", "sm_90a". For a device the kernels are gpu.module ops in the NVVM dialect at its end: gpu-module-to-binary makes machine
 * code of them, and what is translated then calls mgpu... functions, which libmoert_cuda has as moert_mgpu.... Static storage. */
MLIR_CAPI_EXPORTED const char *moeMlirPipelineGet(MlirStringRef target);

#ifdef __cplusplus
}
#endif
#endif /* MOE_MLIR_C_MOEMLIR_H */

/*===- MoeMlir.h - the compiler side of moe-mlir in C -------------------------------------------------===*
 *
 * For programs that embed MLIR 22.1 and link this project's compiler library, or dlopen MoeMlirPlugin.so. Nothing here is collective; everything
 * follows MLIR's rules on threads (a context is used by one thread at a time unless MLIR itself runs several).
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOE_MLIR_C_MOEMLIR_H
#define MOE_MLIR_C_MOEMLIR_H

#include <mlir-c/IR.h>

#ifdef __cplusplus
extern "C" {
#endif

/* mlirGetDialectHandle__moe__(): the dialect `moe`. */
MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(Moe, moe);

/* Register the passes moe-*, for pipelines given as text. Call it once. */
MLIR_CAPI_EXPORTED void moeMlirRegisterPasses(void);

/* !moe.context */
MLIR_CAPI_EXPORTED MlirType moeMlirContextTypeGet(MlirContext context);
MLIR_CAPI_EXPORTED bool moeMlirTypeIsAContext(MlirType type);

/* #moe.host, the memory space of buffers that host code reads and writes */
MLIR_CAPI_EXPORTED MlirAttribute moeMlirHostAttributeGet(MlirContext context);
MLIR_CAPI_EXPORTED bool moeMlirAttributeIsAHost(MlirAttribute attribute); /* false for a null attribute */

/* The text of the pass pipeline from a graph on tensors to the LLVM dialect, for --pass-pipeline or mlirParsePassPipeline; NULL if `target` is not
 * one of this build. Static storage. */
MLIR_CAPI_EXPORTED const char *moeMlirPipelineGet(MlirStringRef target);

#ifdef __cplusplus
}
#endif
#endif /* MOE_MLIR_C_MOEMLIR_H */

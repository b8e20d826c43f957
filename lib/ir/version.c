//===- version.c - what this library is and was built with ----------------------------------------===//

#include "moe-mlir-c/MoeMlir.h"
#include <moert/moert.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *moeMlirVersionGet(void) {
  return MOE_VERSION ", ABI " TEXT(MOERT_ABI_VERSION) ", dialect " TEXT(MOE_MLIR_DIALECT_VERSION) ", LLVM " MOE_LLVM_VERSION;
}

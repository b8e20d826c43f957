//===- moe-opt.cpp - mlir-opt with the dialects and passes of moe-mlir ----------------------------===//

#include "moe-mlir-c/MoeMlir.h"
#include "mlir-c/RegisterEverything.h"
#include "mlir/CAPI/IR.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlirRegisterAllDialects(wrap(&registry));
  mlirRegisterAllPasses();
  mlirDialectHandleInsertDialect(mlirGetDialectHandle__moe__(), wrap(&registry));
  moeMlirRegisterPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "moe-mlir optimizer driver\n", registry));
}

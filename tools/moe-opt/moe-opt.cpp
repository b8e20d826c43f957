//===- moe-opt.cpp - mlir-opt with the dialects and passes of moe-mlir ----------------------------===//

#include "moe-mlir-c/MoeMlir.h"
#include "mlir-c/RegisterEverything.h"
#include "mlir/CAPI/IR.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlirRegisterAllDialects(wrap(&registry));
  mlirRegisterAllPasses();
  moeMlirRegisterDialects(wrap(&registry));
  moeMlirRegisterPasses();
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &out) { out << "moe-opt " << moeMlirVersionGet() << "\n"; });
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "moe-mlir optimizer driver\n", registry));
}

//===- moe-lsp-server.cpp - mlir-lsp-server with the dialects of moe-mlir -------------------------===//

#include "moe-mlir-c/MoeMlir.h"
#include "mlir-c/RegisterEverything.h"
#include "mlir/CAPI/IR.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/LogicalResult.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlirRegisterAllDialects(wrap(&registry));
  moeMlirRegisterDialects(wrap(&registry));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &out) { out << "moe-lsp-server " << moeMlirVersionGet() << "\n"; });
  return llvm::failed(mlir::MlirLspServerMain(argc, argv, registry));
}

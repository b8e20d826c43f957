// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-export-graph

// expected-error@+1 {{'builtin.module' op has no public function with a body to export: run moe-declare-interface before bufferization}}
module {
}

// -----

// expected-error@+1 {{'builtin.module' op has no public function with a body to export: run moe-declare-interface before bufferization}}
module {
  llvm.func @f() {
    llvm.return
  }
}

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

// -----

// Attributes that others wrote are refused, whatever they are.
module {
  // expected-error@+1 {{'llvm.func' op has an attribute 'moe.interface' that moe-declare-interface did not write}}
  llvm.func @f(!llvm.ptr) -> i32 attributes {moe.interface = "text"}
}

// -----

module {
  // expected-error@+1 {{'llvm.func' op has an attribute 'moe.interface' that moe-declare-interface did not write}}
  llvm.func @f(%ctx: !llvm.ptr) -> i32 attributes {moe.interface = [{memory = "device", name = "x", role = "both", symbols = [""], type = memref<?xf32>}]} {
    %0 = llvm.mlir.constant(0 : i32) : i32
    llvm.return %0 : i32
  }
}

// -----

// expected-error@+1 {{'builtin.module' op has an attribute 'moe.target' that moe-select-kernels did not write}}
module attributes {moe.target = 1 : i64} {
}

// -----

// expected-error@+1 {{'builtin.module' op has an attribute 'moe.kernels' that moe-select-kernels did not write}}
module attributes {moe.kernels = ["moe.route/host", 1]} {
}

// -----

// A symbol of the graph must not take the place of one that is exported.
module {
  // expected-error@+1 {{'llvm.func' op has the name 'moert_graph_info', which a graph's description needs: choose another}}
  llvm.func @moert_graph_info()
  llvm.func @f(%ctx: !llvm.ptr) -> i32 attributes {llvm.emit_c_interface, moe.interface = []} {
    %0 = llvm.mlir.constant(0 : i32) : i32
    llvm.return %0 : i32
  }
}

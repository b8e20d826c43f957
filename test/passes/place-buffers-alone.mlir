// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-place-buffers

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @no_context(%x: memref<8xf32>) {
  return
}

// -----

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @no_arguments() {
  return
}

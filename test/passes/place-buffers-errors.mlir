// RUN: moe-opt %s --split-input-file --verify-diagnostics %bufferize

// A result that no argument is the destination of.
func.func @result_is_an_intermediate(%x: tensor<8xf32>, %ctx: !moe.context) -> tensor<8xf32> {
  %empty = tensor.empty() : tensor<8xf32>
  %0 = linalg.exp ins(%x : tensor<8xf32>) outs(%empty : tensor<8xf32>) -> tensor<8xf32>
  // expected-error@+1 {{'func.return' op result #0 is not a destination of the caller: write it into an argument of the function (outs) and return that; an argument that is not seen to be a destination can be marked {moe.role = "out"}}}
  return %0 : tensor<8xf32>
}

// -----

func.func @result_is_a_constant(%out: tensor<8xf32>, %ctx: !moe.context) -> (tensor<8xf32>, tensor<2xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<8xf32>) -> tensor<8xf32>
  %constant = arith.constant dense<1.0> : tensor<2xf32>
  // expected-error@+1 {{'func.return' op result #1 is not a destination of the caller: write it into an argument of the function (outs) and return that; an argument that is not seen to be a destination can be marked {moe.role = "out"}}}
  return %0, %constant : tensor<8xf32>, tensor<2xf32>
}

// -----

// What the author calls an input is not written.
func.func @destination_is_an_input(%x: tensor<8xf32> {moe.role = "in"}, %ctx: !moe.context) -> tensor<8xf32> {
  %0 = linalg.exp ins(%x : tensor<8xf32>) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  // expected-error@+1 {{'func.return' op result #0 is not a destination of the caller: write it into an argument of the function (outs) and return that; an argument that is not seen to be a destination can be marked {moe.role = "out"}}}
  return %0 : tensor<8xf32>
}

// -----

// expected-error@+1 {{'func.func' op is private and was not inlined: graph functions cannot call each other recursively}}
func.func private @recursive(%x: memref<8xf32>, %ctx: !moe.context) {
  func.call @recursive(%x, %ctx) : (memref<8xf32>, !moe.context) -> ()
  return
}
func.func @calls(%x: memref<8xf32>, %ctx: !moe.context) {
  func.call @recursive(%x, %ctx) : (memref<8xf32>, !moe.context) -> ()
  return
}

// -----

func.func private @fill(memref<8xi1>)
func.func @bits(%x: memref<8xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'memref.alloc' op intermediates must have elements of 1, 2, 4 or 8 bytes}}
  %0 = memref.alloc() : memref<8xi1>
  func.call @fill(%0) : (memref<8xi1>) -> ()
  return
}

// -----

func.func @host_intermediate(%x: memref<4xf32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'memref.alloc' op host code's buffers live on the stack: use memref.alloca, or take the buffer as an argument}}
  %0 = memref.alloc() : memref<4xf32, #moe.host>
  memref.copy %x, %0 : memref<4xf32, #moe.host> to memref<4xf32, #moe.host>
  return
}

// -----

func.func @unranked_copy(%x: memref<4xf32>, %y: memref<4xf32>, %ctx: !moe.context) {
  %from = memref.cast %x : memref<4xf32> to memref<*xf32>
  %to = memref.cast %y : memref<4xf32> to memref<*xf32>
  // expected-error@+1 {{'memref.copy' op must be between buffers of a known rank}}
  memref.copy %from, %to : memref<*xf32> to memref<*xf32>
  return
}

// -----

// A public function that calls itself.
func.func @itself(%x: memref<8xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'func.call' op was not inlined: graph functions cannot call each other recursively, and one of several blocks cannot be called inside an op with a region (use scf.if in it)}}
  func.call @itself(%x, %ctx) : (memref<8xf32>, !moe.context) -> ()
  return
}

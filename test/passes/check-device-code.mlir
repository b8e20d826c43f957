// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-check-device-code

// What upstream makes no kernel of stays in host code.
func.func @elements(%x: memref<8xf32>, %y: memref<8xf32>, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error@+1 {{'memref.load' op host code would read elements of a buffer of the device: do it inside a linalg op or scf.forall, or pass a memref in #moe.host}}
  %0 = memref.load %x[%c0] : memref<8xf32>
  // expected-error@+1 {{'memref.store' op host code would write elements of a buffer of the device: do it inside a linalg op or scf.forall}}
  memref.store %0, %x[%c0] : memref<8xf32>
  // expected-error@+1 {{'memref.atomic_rmw' op host code would write elements}}
  %1 = memref.atomic_rmw addf %0, %x[%c0] : (f32, memref<8xf32>) -> f32
  // expected-error@+1 {{'vector.load' op host code would read elements}}
  %2 = vector.load %x[%c0] : memref<8xf32>, vector<8xf32>
  // expected-error@+1 {{'vector.store' op host code would write elements}}
  vector.store %2, %x[%c0] : memref<8xf32>, vector<8xf32>
  // expected-error@+1 {{'memref.copy' op host code would copy a buffer of the device: use linalg.copy}}
  memref.copy %x, %y : memref<8xf32> to memref<8xf32>
  // expected-error@+1 {{'memref.prefetch' op host code would use a buffer of the device: do it inside a linalg op or scf.forall}}
  memref.prefetch %x[%c0], read, locality<3>, data : memref<8xf32>
  scf.for %i = %c0 to %n step %c1 {
    // expected-error@+1 {{'memref.load' op host code would read elements}}
    %3 = memref.load %x[%i] : memref<8xf32>
  }
  return
}

// -----

// Loops and linalg ops; what is in them is not reported once more.
func.func @loops(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error@+1 {{'scf.parallel' op could not be made a kernel: bounds of inner loops must not depend on outer ones, and nothing may stand between them; use one nest, or linalg}}
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %0 = memref.load %x[%i, %c0] : memref<?x8xf32>
    memref.store %0, %y[%i, %c0] : memref<?x8xf32>
  }
  // expected-error@+1 {{'linalg.softmax' op has no lowering to a kernel: write it as linalg.generic}}
  linalg.softmax dimension(1) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  return
}

// -----

// Memory, copies and order are the runtime's business.
func.func @gpu(%x: memref<4xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'gpu.alloc' op is not served by the runtime: a graph's buffers come from its arguments and from tensors, and its kernels run in order on the stream of its context}}
  %0 = gpu.alloc () : memref<4xf32>
  // expected-error@+1 {{'gpu.memcpy' op is not served by the runtime}}
  gpu.memcpy %0, %x : memref<4xf32>, memref<4xf32>
  // expected-error@+1 {{'gpu.wait' op is not served by the runtime}}
  %1 = gpu.wait async
  return
}

// -----

// Kernels take no host memory, and are not asynchronous.
module attributes {gpu.container_module} {
  memref.global "private" constant @table : memref<4xf32> = dense<1.0>
  gpu.module @kernels {
    gpu.func @kernel(%x: memref<4xf32>) kernel {
      gpu.return
    }
    gpu.func @host_kernel(%x: memref<4xf32, #moe.host>) kernel {
      gpu.return
    }
  }
  func.func @launches(%x: memref<4xf32>, %host: memref<4xf32, #moe.host>, %ctx: !moe.context) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    %table = memref.get_global @table : memref<4xf32>
    // expected-error@+1 {{'gpu.launch_func' op a kernel would access a constant tensor, which lies in host memory: pass it as an argument of the function, or make it with linalg.fill or linalg.generic}}
    gpu.launch_func @kernels::@kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%table : memref<4xf32>)
    %stack = memref.alloca() : memref<4xf32>
    // expected-error@+1 {{'gpu.launch_func' op a kernel would access a buffer on the stack of the host: make it with tensor.empty, or take it as an argument}}
    gpu.launch_func @kernels::@kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%stack : memref<4xf32>)
    // expected-error@+1 {{'gpu.launch_func' op a kernel would access a buffer in #moe.host, which kernels do not address: use scf.for with memref.load and memref.store for it}}
    gpu.launch_func @kernels::@host_kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%host : memref<4xf32, #moe.host>)
    // expected-error@+1 {{'gpu.launch_func' op is asynchronous: kernels of a graph run in order on the stream of its context, without tokens}}
    %token = gpu.launch_func async @kernels::@kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    return
  }
}

// -----

// Nor do ops of ours.
memref.global "private" constant @logits : memref<2x8xf32> = dense<1.0>
func.func @ours(%ids: memref<2x2xi32>, %weights: memref<2x2xf32>, %ctx: !moe.context) {
  %logits = memref.get_global @logits : memref<2x8xf32>
  // expected-error@+1 {{'moe.route' op operand 'logits' is a constant tensor, which lies in host memory: pass it as an argument of the function}}
  moe.route logits(%logits : memref<2x8xf32>) outs(%ids, %weights : memref<2x2xi32>, memref<2x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

// Nor is it handed on to where that could not be seen.
memref.global "private" constant @either : memref<4xf32> = dense<1.0>
func.func @meeting(%x: memref<4xf32>, %choice: i1, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %constant = memref.get_global @either : memref<4xf32>
  %stack = memref.alloca() : memref<4xf32>
  // expected-error@+1 {{'arith.select' op hands on a constant tensor, which lies in host memory: pass it as an argument of the function}}
  %0 = arith.select %choice, %constant, %x : memref<4xf32>
  // expected-error@+1 {{'scf.for' op hands on a buffer on the stack of the host: make it with tensor.empty, or take it as an argument}}
  %1 = scf.for %i = %c0 to %n step %c1 iter_args(%before = %stack) -> memref<4xf32> {
    scf.yield %before : memref<4xf32>
  }
  return
}

// -----

// In kernels.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    func.func private @scale(f32) -> f32
    gpu.func @kernel(%x: memref<4xf32>, %y: memref<4xf8E4M3FN>) kernel {
      %c0 = arith.constant 0 : index
      %0 = memref.load %x[%c0] : memref<4xf32>
      // expected-error@+1 {{'func.call' op is in a kernel, but 'scale' has no code for the device: call it outside of linalg ops and parallel loops}}
      %1 = func.call @scale(%0) : (f32) -> f32
      %2 = memref.load %y[%c0] : memref<4xf8E4M3FN>
      // expected-error@+1 {{'arith.extf' op computes with 8-bit floats, which nothing lowers: leave them to ops of moe and ep, or convert their bits as integers}}
      %3 = arith.extf %2 : f8E4M3FN to f32
      %4 = arith.bitcast %2 : f8E4M3FN to i8
      gpu.return
    }
  }
}

// -----

// Host memory is host code's, whatever it does; buffers of the device are only handed on.
memref.global "private" constant @numbers : memref<4xi64> = dense<[1, 2, 3, 4]>
func.func private @elsewhere(memref<?xf32>)
func.func @allowed(%x: memref<?xf32>, %host: memref<4xi64, #moe.host>, %other: memref<4xi64, #moe.host>, %choice: i1, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %numbers = memref.get_global @numbers : memref<4xi64>
  %stack = memref.alloca() : memref<4xi64>
  scf.for %i = %c0 to %n step %c1 {
    %0 = memref.load %numbers[%i] : memref<4xi64>
    memref.store %0, %stack[%i] : memref<4xi64>
    memref.store %0, %host[%i] : memref<4xi64, #moe.host>
  }
  memref.copy %host, %other : memref<4xi64, #moe.host> to memref<4xi64, #moe.host>
  %half = memref.subview %x[0] [%n] [1] : memref<?xf32> to memref<?xf32, strided<[1]>>
  %cast = memref.cast %half : memref<?xf32, strided<[1]>> to memref<?xf32, strided<[?], offset: ?>>
  %buffer = moe.allocate(%n) context(%ctx) : memref<?xf32>
  %one = arith.select %choice, %buffer, %x : memref<?xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%before = %one) -> memref<?xf32> {
    scf.yield %before : memref<?xf32>
  }
  func.call @elsewhere(%last) : (memref<?xf32>) -> ()
  return
}

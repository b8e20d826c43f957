// RUN: moe-opt %s %bufferize | FileCheck %s

// Intermediates move to the arena with their sizes; what deallocates goes; copies become linalg.copy; results go, and the destinations hold them.
// CHECK-LABEL: func.func @intermediates(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x8xf32>, %[[OUT:[^:]*]]: memref<?x8xf32>, %[[CTX:[^:]*]]: !moe.context) attributes {moe.interface
// CHECK: %[[SIZE:.*]] = memref.dim %[[X]]
// CHECK: %[[BUFFER:.*]] = moe.allocate(%[[SIZE]]) context(%[[CTX]]) : memref<?x8xf32>
// CHECK: linalg.add ins(%[[X]], %[[X]] : {{.*}}) outs(%[[BUFFER]] :
// CHECK: linalg.exp ins(%[[BUFFER]] : {{.*}}) outs(%[[OUT]] :
// CHECK: return{{$}}
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.dealloc
// CHECK-NOT: memref.copy
func.func @intermediates(%x: tensor<?x8xf32>, %out: tensor<?x8xf32>, %ctx: !moe.context) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %empty = tensor.empty(%n) : tensor<?x8xf32>
  %0 = linalg.add ins(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = linalg.exp ins(%0 : tensor<?x8xf32>) outs(%out : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @on_memrefs(
// CHECK-SAME: %[[X:[^:]*]]: memref<8xf32>, %[[OUT:[^:]*]]: memref<8xf32>,
// CHECK: %[[BUFFER:.*]] = moe.allocate() context(%{{.*}}) : memref<8xf32>
// CHECK: linalg.copy ins(%[[X]] : memref<8xf32>) outs(%[[BUFFER]] : memref<8xf32>)
// CHECK: linalg.copy ins(%[[BUFFER]] : memref<8xf32>) outs(%[[OUT]] : memref<8xf32>)
// CHECK-NEXT: return
func.func @on_memrefs(%x: memref<8xf32>, %out: memref<8xf32>, %ctx: !moe.context) {
  %0 = memref.alloc() : memref<8xf32>
  memref.copy %x, %0 : memref<8xf32> to memref<8xf32>
  memref.copy %0, %out : memref<8xf32> to memref<8xf32>
  memref.dealloc %0 : memref<8xf32>
  return
}

// The same destination may be returned twice, and behind a cast.
// CHECK-LABEL: func.func @returned_twice(
// CHECK-SAME: !moe.context) attributes
// CHECK: return{{$}}
func.func @returned_twice(%out: tensor<8xf32>, %ctx: !moe.context) -> (tensor<8xf32>, tensor<?xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<8xf32>) -> tensor<8xf32>
  %1 = tensor.cast %0 : tensor<8xf32> to tensor<?xf32>
  return %0, %1 : tensor<8xf32>, tensor<?xf32>
}

// Declarations stay as they are.
// CHECK: func.func private @elsewhere(memref<8xf32>)
func.func private @elsewhere(memref<8xf32>)
func.func @calls(%x: memref<8xf32>, %ctx: !moe.context) {
  func.call @elsewhere(%x) : (memref<8xf32>) -> ()
  return
}

// RUN: moe-opt %s --convert-scf-to-cf --moe-lower-to-runtime --canonicalize | FileCheck %s

// Functions return a status and take the context as a pointer; host memory is memory; all of it also in blocks and casts.
// CHECK-LABEL: func.func @types(
// CHECK-SAME: memref<?xi64>, %{{.*}}: !llvm.ptr) -> i32 attributes {llvm.emit_c_interface}
// CHECK: memref.store %c1_i64, %{{.*}} : memref<?xi64>
// CHECK: return %c0_i32 : i32
func.func @types(%x: memref<4xi64, #moe.host>, %y: memref<?xi64, #moe.host>, %choice: i1, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : i64
  %cast = memref.cast %x : memref<4xi64, #moe.host> to memref<?xi64, #moe.host>
  cf.cond_br %choice, ^write(%cast : memref<?xi64, #moe.host>), ^write(%y : memref<?xi64, #moe.host>)
^write(%to: memref<?xi64, #moe.host>):
  memref.store %one, %to[%c0] : memref<?xi64, #moe.host>
  return
}

// In a loop within a branch: the words lie in the first block, so that the stack does not grow; the first error leaves the function from there.
// CHECK-LABEL: func.func @in_loop(
// CHECK: memref.alloca() {alignment = 16 : i64}
// CHECK: cf.cond_br
// CHECK-NOT: memref.alloca
// CHECK: %[[STATUS:.*]] = call @moert_moe_route
// CHECK: %[[OK:.*]] = arith.cmpi eq, %[[STATUS]], %c0_i32 : i32
// CHECK: cf.cond_br %[[OK]], ^{{.*}}, ^[[EXIT:bb[0-9]+]](%[[STATUS]] : i32)
// CHECK: ^[[EXIT]](%[[RESULT:.*]]: i32):
// CHECK-NEXT: return %[[RESULT]] : i32
func.func @in_loop(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %choice: i1, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.if %choice {
    scf.for %i = %c0 to %n step %c1 {
      moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
    }
  }
  return
}

// Several returns all return OK.
// CHECK-LABEL: func.func @returns(
// CHECK-COUNT-2: return %c0_i32 : i32
func.func @returns(%x: memref<1xi32>, %choice: i1, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : i32
  cf.cond_br %choice, ^write, ^leave
^write:
  memref.store %one, %x[%c0] : memref<1xi32>
  return
^leave:
  return
}

// What the graph does not contain keeps its name, with the types of this level.
// CHECK: func.func private @elsewhere(memref<4xi64>, memref<?x8xf32>, !llvm.ptr) -> memref<4xi64>
// CHECK-LABEL: func.func @calls(
// CHECK: call @elsewhere(%{{.*}}) : (memref<4xi64>, memref<?x8xf32>, !llvm.ptr) -> memref<4xi64>
func.func private @elsewhere(memref<4xi64, #moe.host>, memref<?x8xf32>, !moe.context) -> memref<4xi64, #moe.host>
func.func @calls(%x: memref<4xi64, #moe.host>, %y: memref<?x8xf32>, %ctx: !moe.context) {
  %0 = func.call @elsewhere(%x, %y, %ctx) : (memref<4xi64, #moe.host>, memref<?x8xf32>, !moe.context) -> memref<4xi64, #moe.host>
  return
}

// Views of host memory lose its memory space whatever their rank is.
// CHECK-LABEL: func.func @deep_view(
// CHECK: memref.reinterpret_cast %{{.*}} : memref<16xi64> to memref<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xi64>
func.func @deep_view(%info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %0 = memref.reinterpret_cast %info to offset: [0], sizes: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    strides: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] : memref<16xi64, #moe.host> to memref<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xi64, #moe.host>
  %one = arith.constant 1 : i64
  memref.store %one, %0[%c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0] : memref<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xi64, #moe.host>
  return
}

// Constants in host memory, and views of it of no rank.
// CHECK: memref.global "private" constant @table : memref<4xi64> =
// CHECK: func.func private @host_table(memref<*xi64>)
memref.global "private" constant @table : memref<4xi64, #moe.host> = dense<1>
func.func private @host_table(memref<*xi64, #moe.host>)
// CHECK-LABEL: func.func @host_constant(
// CHECK: %[[TABLE:.*]] = memref.get_global @table : memref<4xi64>
// CHECK: %[[CAST:.*]] = memref.cast %[[TABLE]] : memref<4xi64> to memref<*xi64>
// CHECK: call @host_table(%[[CAST]])
func.func @host_constant(%ctx: !moe.context) {
  %table = memref.get_global @table : memref<4xi64, #moe.host>
  %cast = memref.cast %table : memref<4xi64, #moe.host> to memref<*xi64, #moe.host>
  func.call @host_table(%cast) : (memref<*xi64, #moe.host>) -> ()
  return
}

// Calls come one after the other: they share the words of the largest.
// CHECK-LABEL: func.func @several(
// CHECK: memref.alloca() {alignment = 16 : i64}
// CHECK-NOT: memref.alloca
// CHECK-COUNT-3: call @moert_moe_
// CHECK-NOT: memref.alloca
// CHECK-LABEL: func.func @after_several(
func.func @several(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %size: memref<2xindex, #moe.host>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  %1 = moe.workspace_size context(%ctx) {max_num_tokens = 9 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  memref.store %0, %size[%c0] : memref<2xindex, #moe.host>
  memref.store %1, %size[%c1] : memref<2xindex, #moe.host>
  return
}
func.func @after_several(%ctx: !moe.context) {
  return
}

// Without the keys of moe-select-kernels the library chooses the kernel. Only what talks to other ranks' hosts cannot be captured in a CUDA graph.
// CHECK-LABEL: func.func @with_initialize(
// CHECK-SAME: attributes {llvm.emit_c_interface, moe.not_capturable}
// CHECK: llvm.mlir.zero : !llvm.ptr
// CHECK: call @moert_moe_initialize
func.func @with_initialize(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

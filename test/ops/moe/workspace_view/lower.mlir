// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device the same function serves: there is no kernel to choose.
// GPU: %[[NO_KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// GPU: call @moert_moe_workspace_view(%{{.*}}, %{{.*}}, %[[NO_KERNEL]], %{{.*}})

// Word 0 is moert_moe_workspace_view_params, 1 to 4 are moert_moe_workspace_view_args: struct_size, workspace, offset, view. The runtime checks; the
// view itself is upstream's.

// CHECK-LABEL: func.func @dynamic
// CHECK-SAME: (%[[WORKSPACE:.*]]: memref<?xi8>, %[[OFFSET:.*]]: i64, %[[ROWS:.*]]: index, %[[CTX:.*]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<23xi64>
// CHECK-DAG: %[[SIZE:.*]] = arith.index_cast %[[ROWS]] : index to i64
// CHECK: memref.store %c8_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c32_i64, %[[FRAME]][%c1]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c2]
// CHECK: memref.store %[[OFFSET]], %[[FRAME]][%c3]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c4]
// The view: no data, no strides, [rows, 8]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c13]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c17]
// CHECK: memref.store %[[SIZE]], %[[FRAME]][%c19]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c20]
// CHECK: call @moert_moe_workspace_view(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br %{{.*}}, ^[[REST:.*]], ^
// CHECK: ^[[REST]]:
// CHECK: %[[AT:.*]] = arith.index_cast %[[OFFSET]] : i64 to index
// CHECK: %[[VIEW:.*]] = memref.view %[[WORKSPACE]][%[[AT]]][%[[ROWS]]] : memref<?xi8> to memref<?x8xbf16>
// CHECK: memref.store %{{.*}}, %[[VIEW]]
func.func @dynamic(%ws: memref<?xi8>, %offset: i64, %rows: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : bf16
  %view = moe.workspace_view %ws[%offset : i64] sizes(%rows) context(%ctx) : memref<?xi8> to memref<?x8xbf16>
  memref.store %one, %view[%c0, %c0] : memref<?x8xbf16>
  return
}

// CHECK-LABEL: func.func @fixed
// CHECK: call @moert_moe_workspace_view
// CHECK: memref.view %{{.*}}[%c256][] : memref<1024xi8> to memref<4x8xf32>
func.func @fixed(%ws: memref<1024xi8>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %one = arith.constant 1.0 : f32
  %view = moe.workspace_view %ws[%c256 : index] sizes() context(%ctx) : memref<1024xi8> to memref<4x8xf32>
  memref.store %one, %view[%c0, %c0] : memref<4x8xf32>
  return
}

// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize --cse | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=host --moe-lower-to-runtime --canonicalize --cse | FileCheck %s --check-prefix=HOST

// The rank's device is asked for once, at the beginning; tensors of device and symmetric memory say it, those of host memory say CPU (1).
// CHECK-LABEL: func.func @initialize(
// CHECK-SAME: memref<16xi64>, %[[CTX:.*]]: !llvm.ptr) -> i32
// CHECK-DAG: %[[CPU:.*]] = arith.constant 1 : i64
// CHECK: %[[COMM:.*]] = call @moert_context_comm(%[[CTX]]) : (!llvm.ptr) -> !llvm.ptr
// CHECK: %[[DEVICE:.*]] = call @moert_comm_device(%[[COMM]]) : (!llvm.ptr) -> i64
// CHECK-NOT: @moert_comm_device
// metainfo
// CHECK-DAG: memref.store %[[CPU]], %{{.*}}[%c18]
// workspace
// CHECK-DAG: memref.store %[[DEVICE]], %{{.*}}[%c10]
// CHECK: call @moert_moe_initialize

// HOST-NOT: @moert_comm_device
func.func @initialize(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// A call takes the kernel that is in the slot of its key; equal keys have one slot.
// CHECK-LABEL: func.func @kernels(
// CHECK: %[[SLOTS:.*]] = llvm.mlir.addressof @moert_kernel_slots : !llvm.ptr
// CHECK: %[[FIRST:.*]] = llvm.load %[[SLOTS]] : !llvm.ptr -> !llvm.ptr
// CHECK: call @moert_moe_route(%{{.*}}, %{{.*}}, %[[FIRST]], %{{.*}})
// CHECK: %[[ADDRESS:.*]] = llvm.getelementptr %[[SLOTS]][1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK: %[[SECOND:.*]] = llvm.load %[[ADDRESS]] : !llvm.ptr -> !llvm.ptr
// CHECK: call @moert_moe_route(%{{.*}}, %{{.*}}, %[[SECOND]], %{{.*}})
// CHECK: %[[AGAIN:.*]] = llvm.load %[[SLOTS]] : !llvm.ptr -> !llvm.ptr
// CHECK: call @moert_moe_route(%{{.*}}, %{{.*}}, %[[AGAIN]], %{{.*}})
// CHECK: llvm.mlir.global external @moert_kernel_slots() {addr_space = 0 : i32} : !llvm.array<2 x ptr>

// HOST: llvm.mlir.addressof @moert_kernel_slots
func.func @kernels(%x: memref<?x8xf32>, %y: memref<?x8xbf16>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  moe.route logits(%x : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  moe.route logits(%y : memref<?x8xbf16>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  moe.route logits(%x : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

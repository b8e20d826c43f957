// RUN: moe-opt %s --canonicalize --split-input-file | FileCheck %s

// Without rows there is nothing to do, and without entries in the rows neither.
// CHECK-LABEL: func.func @no_rows
// CHECK-SAME: %[[R:[a-z0-9]+]]: tensor<4x0x2xi32>, %[[E:[a-z0-9]+]]: tensor<0x?x?xi32>, %[[K:[a-z0-9]+]]: tensor<4x8x0xi32>
// CHECK-NEXT: return %[[R]], %[[E]], %[[K]]
func.func @no_rows(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %r: tensor<4x0x2xi32>, %e: tensor<0x?x?xi32>, %k: tensor<4x8x0xi32>, %ctx: !moe.context)
    -> (tensor<4x0x2xi32>, tensor<0x?x?xi32>, tensor<4x8x0xi32>) {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%r : tensor<4x0x2xi32>) context(%ctx) -> tensor<4x0x2xi32>
  %1 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%e : tensor<0x?x?xi32>) context(%ctx) -> tensor<0x?x?xi32>
  %2 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%k : tensor<4x8x0xi32>) context(%ctx) -> tensor<4x8x0xi32>
  return %0, %1, %2 : tensor<4x0x2xi32>, tensor<0x?x?xi32>, tensor<4x8x0xi32>
}

// -----

// CHECK-LABEL: func.func @no_rows_in_memory
// CHECK-NEXT: return
func.func @no_rows_in_memory(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x0x2xi32>, %ctx: !moe.context) {
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x0x2xi32>) context(%ctx)
  return
}

// -----

// A size that is not known may not be 0.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-2: moe.sanitize_expert_ids
func.func @rows(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<?x?x?xi32>, %buffer: memref<4x8x2xi32>, %ctx: !moe.context) -> tensor<?x?x?xi32> {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<?x?x?xi32>) context(%ctx) -> tensor<?x?x?xi32>
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%buffer : memref<4x8x2xi32>) context(%ctx)
  return %0 : tensor<?x?x?xi32>
}

// -----

// Once more changes nothing; what only reads may stand in between.
// CHECK-LABEL: func.func @twice
// CHECK: %[[ONCE:.*]] = moe.sanitize_expert_ids
// CHECK-NOT: moe.sanitize_expert_ids
// CHECK: return %[[ONCE]], %{{.*}} : tensor<4x8x2xi32>, i8
func.func @twice(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<4x8x2xi32>, %ctx: !moe.context) -> (tensor<4x8x2xi32>, i8) {
  %c0 = arith.constant 0 : index
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<4x8x2xi32>) context(%ctx) {ep_size = 4 : i64} -> tensor<4x8x2xi32>
  %byte = memref.load %ws[%c0] : memref<?xi8>
  %1 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%0 : tensor<4x8x2xi32>) context(%ctx) {ep_size = 4 : i64} -> tensor<4x8x2xi32>
  %2 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%1 : tensor<4x8x2xi32>) context(%ctx) {ep_size = 4 : i64} -> tensor<4x8x2xi32>
  return %2, %byte : tensor<4x8x2xi32>, i8
}

// -----

// Another mark, other counts, or a dispatch in between.
// CHECK-LABEL: func.func @not_the_same
// CHECK: moe.sanitize_expert_ids
// CHECK-NEXT: moe.sanitize_expert_ids
// CHECK-NEXT: moe.sanitize_expert_ids
// CHECK-NEXT: memref.store
// CHECK-NEXT: moe.sanitize_expert_ids
// CHECK-NEXT: return
func.func @not_the_same(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %other: memref<?xi8>, %byte: i8, %ids: tensor<4x8x2xi32>, %ctx: !moe.context) -> tensor<4x8x2xi32> {
  %c0 = arith.constant 0 : index
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  %1 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%0 : tensor<4x8x2xi32>) context(%ctx) {invalid_expert_id = 8 : i64} -> tensor<4x8x2xi32>
  %2 = moe.sanitize_expert_ids workspace(%other, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%1 : tensor<4x8x2xi32>) context(%ctx)
    {invalid_expert_id = 8 : i64} -> tensor<4x8x2xi32>
  memref.store %byte, %other[%c0] : memref<?xi8>
  %3 = moe.sanitize_expert_ids workspace(%other, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%2 : tensor<4x8x2xi32>) context(%ctx)
    {invalid_expert_id = 8 : i64} -> tensor<4x8x2xi32>
  return %3 : tensor<4x8x2xi32>
}

// -----

// CHECK-LABEL: func.func @dispatch_between
// CHECK: moe.sanitize_expert_ids
// CHECK: moe.dispatch
// CHECK: moe.sanitize_expert_ids
func.func @dispatch_between(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<?x2xi32>, %recv: tensor<4x8x2xi32>, %max: index, %ctx: !moe.context) -> (tensor<4x8x2xi32>, tensor<4x8x2xi32>) {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  %1:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%ids : tensor<?x2xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x8x2xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x2xi32>, i64)
  %2 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%0 : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  return %2, %1#0 : tensor<4x8x2xi32>, tensor<4x8x2xi32>
}

// RUN: moe-opt %s --cse --loop-invariant-code-motion --canonicalize --symbol-dce --cse | FileCheck %s

// It reads the workspace: two of them are one, and one that nobody needs is none.
// CHECK-LABEL: func.func @merged
// CHECK-SAME: %[[RECV:[a-z0-9]+]]: tensor<4x8x2xi32>
// CHECK-NEXT: %[[ONCE:.*]] = moe.sanitize_expert_ids {{.*}} outs(%[[RECV]] : tensor<4x8x2xi32>)
// CHECK-NEXT: return %[[ONCE]], %[[ONCE]]
func.func @merged(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %recv: tensor<4x8x2xi32>, %ctx: !moe.context) -> (tensor<4x8x2xi32>, tensor<4x8x2xi32>) {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  %1 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  %2 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) {invalid_expert_id = 7 : i64} -> tensor<4x8x2xi32>
  return %0, %1 : tensor<4x8x2xi32>, tensor<4x8x2xi32>
}

// A dispatch writes the workspace: what stood before it and behind it stays so, and is not the same.
// CHECK-LABEL: func.func @across_dispatch
// CHECK-SAME: %[[RECV:[a-z0-9]+]]: tensor<4x8x2xi32>
// CHECK: %[[BEFORE:.*]] = moe.sanitize_expert_ids {{.*}} outs(%[[RECV]] :
// CHECK-NEXT: moe.dispatch
// CHECK-NEXT: %[[BEHIND:.*]] = moe.sanitize_expert_ids {{.*}} outs(%[[RECV]] :
// CHECK-NEXT: return %[[BEFORE]], %[[BEHIND]]
func.func @across_dispatch(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %recv: tensor<4x8x2xi32>, %ids: tensor<?x2xi32>, %max: index, %ctx: !moe.context) -> (tensor<4x8x2xi32>, tensor<4x8x2xi32>) {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  %1:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%ids : tensor<?x2xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x8x2xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x2xi32>, i64)
  %2 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  return %0, %2 : tensor<4x8x2xi32>, tensor<4x8x2xi32>
}

// Nor does it leave a loop whose body dispatches, or one that runs no times.
// CHECK-LABEL: func.func @in_loop
// CHECK-NOT: moe.sanitize_expert_ids
// CHECK: scf.for
// CHECK: moe.dispatch
// CHECK-NEXT: moe.sanitize_expert_ids
func.func @in_loop(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %recv: tensor<4x8x2xi32>, %ids: tensor<?x2xi32>, %max: index, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %1:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%ids : tensor<?x2xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x8x2xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x2xi32>, i64)
    %2 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%recv : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
    func.call @use(%2) : (tensor<4x8x2xi32>) -> ()
  }
  return
}
func.func private @use(tensor<4x8x2xi32>)

// On memrefs it writes memory: twice is twice.
// CHECK-LABEL: func.func @on_memrefs
// CHECK-COUNT-2: moe.sanitize_expert_ids
// CHECK: return
func.func @on_memrefs(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

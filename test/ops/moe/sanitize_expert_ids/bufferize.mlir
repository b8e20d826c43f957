// RUN: moe-opt %s %bufferize | FileCheck %s

// The ids are received and sanitised in the caller's buffer, without a copy; workspace and metainfo are the caller's memory, as they are.
// CHECK-LABEL: func.func @in_place
// CHECK-SAME: (%[[WS:[^:]*]]: memref<?xi8>, %[[INFO:[^:]*]]: memref<16xi64, #moe.host>, {{.*}}, %[[RECV:[a-z0-9]+]]: memref<4x8x2xi32>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.dispatch {{.*}} workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) {{.*}} outs(%[[RECV]] : memref<4x8x2xi32>)
// CHECK-NEXT: moe.sanitize_expert_ids workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) outs(%[[RECV]] : memref<4x8x2xi32>)
// CHECK-NEXT: return
func.func @in_place(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<?x2xi32>, %max: index, %recv: tensor<4x8x2xi32>, %ctx: !moe.context) -> tensor<4x8x2xi32> {
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%ids : tensor<?x2xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x8x2xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x2xi32>, i64)
  %1 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%0#0 : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  return %1 : tensor<4x8x2xi32>
}

// Rows below the counts stay, so that an input which must not be written is copied.
// CHECK-LABEL: func.func @input_is_kept
// CHECK-SAME: (%[[WS:[^:]*]]: memref<?xi8>, %[[INFO:[^:]*]]: memref<16xi64, #moe.host>, %[[IDS:[a-z0-9]+]]: memref<4x8x2xi32>, %[[SUM:[a-z0-9]+]]: memref<4x8x2xi32>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: %[[COPY:.*]] = moe.allocate() {{.*}} : memref<4x8x2xi32>
// CHECK-NEXT: linalg.copy ins(%[[IDS]] : memref<4x8x2xi32>) outs(%[[COPY]] : memref<4x8x2xi32>)
// CHECK-NEXT: moe.sanitize_expert_ids workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) outs(%[[COPY]] : memref<4x8x2xi32>)
// CHECK-NEXT: linalg.add ins(%[[IDS]], %[[COPY]]
func.func @input_is_kept(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<4x8x2xi32>, %sum: tensor<4x8x2xi32>, %ctx: !moe.context) -> tensor<4x8x2xi32> {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  %1 = linalg.add ins(%ids, %0 : tensor<4x8x2xi32>, tensor<4x8x2xi32>) outs(%sum : tensor<4x8x2xi32>) -> tensor<4x8x2xi32>
  return %1 : tensor<4x8x2xi32>
}

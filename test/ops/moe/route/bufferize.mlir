// RUN: moe-opt %s %bufferize | FileCheck %s

// The caller's buffers are written, and nothing else is there.
// CHECK-LABEL: func.func @destinations_of_the_caller
// CHECK-SAME: (%[[LOGITS:.*]]: memref<?x8xf32>, %[[BIAS:.*]]: memref<8xf32>, %[[IDS:.*]]: memref<?x2xi32>, %[[WEIGHTS:.*]]: memref<?x2xf32>, %[[CTX:.*]]: !moe.context)
// CHECK-NEXT: moe.route logits(%[[LOGITS]] : memref<?x8xf32>) bias(%[[BIAS]] : memref<8xf32>) outs(%[[IDS]], %[[WEIGHTS]] : memref<?x2xi32>, memref<?x2xf32>) context(%[[CTX]]) {n_experts = 8 : i64, top_k = 2 : i64}
// CHECK-NEXT: return
func.func @destinations_of_the_caller(%logits: tensor<?x8xf32>, %bias: tensor<8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context)
    -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) bias(%bias : tensor<8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

// A destination that someone else still reads is another buffer, without a copy: all of it is written.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %{{[^,]*}}, %[[IDS:[^:]*]]: memref<4x2xi32>, %[[WEIGHTS:[^:]*]]: memref<4x2xf32>, %[[OLD:[^:]*]]: memref<4x2xf32>
// CHECK: %[[BUFFER:.*]] = moe.allocate() {{.*}} : memref<4x2xf32>
// CHECK-NOT: copy
// CHECK: moe.route {{.*}} outs(%[[IDS]], %[[BUFFER]] :
// CHECK: linalg.copy ins(%[[WEIGHTS]] : memref<4x2xf32>) outs(%[[OLD]] : memref<4x2xf32>)
// CHECK: linalg.copy ins(%[[BUFFER]] : memref<4x2xf32>) outs(%[[WEIGHTS]] : memref<4x2xf32>)
func.func @destination_is_read_later(%logits: tensor<4x8xf32>, %ids: tensor<4x2xi32>, %weights: tensor<4x2xf32> {moe.role = "inout"}, %old: tensor<4x2xf32>, %ctx: !moe.context)
    -> (tensor<4x2xi32>, tensor<4x2xf32>, tensor<4x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<4x8xf32>) outs(%ids, %weights : tensor<4x2xi32>, tensor<4x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<4x2xi32>, tensor<4x2xf32>
  %1 = linalg.copy ins(%weights : tensor<4x2xf32>) outs(%old : tensor<4x2xf32>) -> tensor<4x2xf32>
  %2 = linalg.copy ins(%0#1 : tensor<4x2xf32>) outs(%weights : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0#0, %2, %1 : tensor<4x2xi32>, tensor<4x2xf32>, tensor<4x2xf32>
}

// An input is never written: as a destination it is replaced.
// CHECK-LABEL: func.func @input_as_destination
// CHECK-SAME: %{{[^,]*}}, %[[IDS:[^:]*]]: memref<4x2xi32>, %[[INPUT:[^:]*]]: memref<4x2xf32>, %[[OUT:[^:]*]]: memref<4x2xf32>
// CHECK: %[[BUFFER:.*]] = moe.allocate() {{.*}} : memref<4x2xf32>
// CHECK: moe.route {{.*}} outs(%[[IDS]], %[[BUFFER]] :
// CHECK: linalg.copy ins(%[[BUFFER]] : memref<4x2xf32>) outs(%[[OUT]] : memref<4x2xf32>)
func.func @input_as_destination(%logits: tensor<4x8xf32>, %ids: tensor<4x2xi32>, %input: tensor<4x2xf32>, %out: tensor<4x2xf32>, %ctx: !moe.context)
    -> (tensor<4x2xi32>, tensor<4x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<4x8xf32>) outs(%ids, %input : tensor<4x2xi32>, tensor<4x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<4x2xi32>, tensor<4x2xf32>
  %1 = linalg.copy ins(%0#1 : tensor<4x2xf32>) outs(%out : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0#0, %1 : tensor<4x2xi32>, tensor<4x2xf32>
}

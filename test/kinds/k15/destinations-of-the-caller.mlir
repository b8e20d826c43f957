// Destinations that are arguments of the function: results in their order, swapped, and one argument for two destinations.
// RUN: moe-opt %s %bufferize | FileCheck %s

// CHECK-LABEL: @swapped
// CHECK-SAME: %[[IDS:[^:]*]]: memref<?x2xi32>, %[[WEIGHTS:[^:]*]]: memref<?x2xf32>
// CHECK-NEXT: moe.route {{.*}} outs(%[[IDS]], %[[WEIGHTS]] :
// CHECK-NEXT: return
func.func @swapped(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) -> (tensor<?x2xf32>, tensor<?x2xi32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#1, %0#0 : tensor<?x2xf32>, tensor<?x2xi32>
}

// CHECK-LABEL: @crossed
// CHECK-SAME: %[[A:[^:]*]]: memref<2x16xf32>, %[[B:[^:]*]]: memref<2x16xf32>, %[[C:[^:]*]]: memref<2x16xf32>, %{{[^:]*}}: !moe.context
// CHECK: moe.allreduce_fusion {{.*}} allreduce_out(%[[B]] : {{.*}} residual_out(%[[C]] : {{.*}} norm_out(%[[A]] :
// CHECK-NEXT: return
func.func @crossed(%residual: tensor<2x16xf32>, %gamma: tensor<16xf32>, %x: tensor<2x2x16xf32>, %scales: tensor<2x2xf32>, %token: tensor<2x16xf32>,
                   %ws: memref<?xi8>, %metainfo: memref<16xi64, #moe.host>, %a: tensor<2x16xf32>, %b: tensor<2x16xf32>, %c: tensor<2x16xf32>, %ctx: !moe.context)
    -> (tensor<2x16xf32>, tensor<2x16xf32>, tensor<2x16xf32>) {
  %0:3 = moe.allreduce_fusion residual_in(%residual : tensor<2x16xf32>) rms_gamma(%gamma : tensor<16xf32>)
    active_experts(%x, %scales : tensor<2x2x16xf32>, tensor<2x2xf32>) token_input(%token : tensor<2x16xf32>)
    workspace(%ws, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%b : tensor<2x16xf32>) residual_out(%c : tensor<2x16xf32>) norm_out(%a : tensor<2x16xf32>) context(%ctx)
    {hidden_size = 16 : i64, rms_eps = 1.0e-06 : f64} -> tensor<2x16xf32>, tensor<2x16xf32>, tensor<2x16xf32>
  return %0#2, %0#0, %0#1 : tensor<2x16xf32>, tensor<2x16xf32>, tensor<2x16xf32>
}

// CHECK-LABEL: @one_for_two
// CHECK: moe.allreduce_fusion {{.*}} residual_out(%[[FIRST:[^ ]*]] : {{.*}} norm_out(
// CHECK-NOT: %[[FIRST]] :
// CHECK-SAME: context(
func.func @one_for_two(%residual: tensor<2x16xf32>, %gamma: tensor<16xf32>, %x: tensor<2x2x16xf32>, %scales: tensor<2x2xf32>, %token: tensor<2x16xf32>,
                       %ws: memref<?xi8>, %metainfo: memref<16xi64, #moe.host>, %a: tensor<2x16xf32>, %b: tensor<2x16xf32>, %ctx: !moe.context)
    -> tensor<2x16xf32> {
  %0:2 = moe.allreduce_fusion residual_in(%residual : tensor<2x16xf32>) rms_gamma(%gamma : tensor<16xf32>)
    active_experts(%x, %scales : tensor<2x2x16xf32>, tensor<2x2xf32>) token_input(%token : tensor<2x16xf32>)
    workspace(%ws, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%a : tensor<2x16xf32>) norm_out(%a : tensor<2x16xf32>) context(%ctx)
    {hidden_size = 16 : i64, rms_eps = 1.0e-06 : f64} -> tensor<2x16xf32>, tensor<2x16xf32>
  %1 = linalg.add ins(%0#0, %0#1 : tensor<2x16xf32>, tensor<2x16xf32>) outs(%b : tensor<2x16xf32>) -> tensor<2x16xf32>
  return %1 : tensor<2x16xf32>
}

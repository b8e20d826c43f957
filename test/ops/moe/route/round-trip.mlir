// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.route logits(%{{.*}} : tensor<?x8xf32>) outs(%{{.*}}, %{{.*}} : tensor<?x2xi32>, tensor<?x2xf32>) context(%{{.*}}) {n_experts = 8 : i64, top_k = 2 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
func.func @tensors(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

// CHECK-LABEL: func.func @bias_and_all_parameters
// CHECK: bias(%{{.*}} : tensor<16xf32>)
// CHECK-SAME: {n_experts = 16 : i64, n_group = 4 : i64, order = "top_k_then_score", renormalize = true, routed_scaling_factor = 2.500000e+00 : f64, score = "sigmoid", top_k = 4 : i64, topk_group = 2 : i64}
func.func @bias_and_all_parameters(%logits: tensor<5x16xbf16>, %bias: tensor<16xf32>, %ids: tensor<5x4xi32>, %weights: tensor<5x4xf32>,
                                   %ctx: !moe.context) -> (tensor<5x4xi32>, tensor<5x4xf32>) {
  %0:2 = moe.route logits(%logits : tensor<5x16xbf16>) bias(%bias : tensor<16xf32>) outs(%ids, %weights : tensor<5x4xi32>, tensor<5x4xf32>) context(%ctx)
    {top_k = 4 : i64, n_experts = 16 : i64, score = "sigmoid", order = "top_k_then_score", renormalize = true, routed_scaling_factor = 2.5 : f64,
     n_group = 4 : i64, topk_group = 2 : i64} -> tensor<5x4xi32>, tensor<5x4xf32>
  return %0#0, %0#1 : tensor<5x4xi32>, tensor<5x4xf32>
}

// What a parameter is by default may be written; it is not printed.
// CHECK-LABEL: func.func @defaults
// CHECK: {n_experts = 8 : i64, top_k = 8 : i64}
func.func @defaults(%logits: memref<?x8xf16>, %ids: memref<?x8xi32>, %weights: memref<?x8xf32>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<?x8xf16>) outs(%ids, %weights : memref<?x8xi32>, memref<?x8xf32>) context(%ctx)
    {top_k = 8 : i64, n_experts = 8 : i64, score = "softmax", order = "score_then_top_k", renormalize = false, routed_scaling_factor = 1.0 : f64,
     n_group = 1 : i64, topk_group = 1 : i64}
  return
}

// CHECK-LABEL: func.func @memrefs
// CHECK: moe.route logits(%{{.*}} : memref<?x?xf32, strided<[?, 1], offset: ?>>) bias(%{{.*}} : memref<?xf32>) outs(%{{.*}}, %{{.*}} : memref<0x1xi32>, memref<?x?xf32>)
// CHECK-SAME: {n_experts = 4096 : i64, top_k = 1 : i64}
// CHECK-NOT: ->
func.func @memrefs(%logits: memref<?x?xf32, strided<[?, 1], offset: ?>>, %bias: memref<?xf32>, %ids: memref<0x1xi32>, %weights: memref<?x?xf32>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<?x?xf32, strided<[?, 1], offset: ?>>) bias(%bias : memref<?xf32>) outs(%ids, %weights : memref<0x1xi32>, memref<?x?xf32>) context(%ctx)
    {top_k = 1 : i64, n_experts = 4096 : i64}
  return
}

// CHECK-LABEL: func.func @other_attributes_stay
// CHECK: {my.note = "kept", n_experts = 32 : i64, top_k = 32 : i64}
func.func @other_attributes_stay(%logits: tensor<1x32xf32>, %ids: tensor<1x32xi32>, %weights: tensor<1x32xf32>, %ctx: !moe.context) -> tensor<1x32xi32> {
  %0:2 = moe.route logits(%logits : tensor<1x32xf32>) outs(%ids, %weights : tensor<1x32xi32>, tensor<1x32xf32>) context(%ctx)
    {my.note = "kept", top_k = 32 : i64, n_experts = 32 : i64} -> tensor<1x32xi32>, tensor<1x32xf32>
  return %0#0 : tensor<1x32xi32>
}

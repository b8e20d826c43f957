// RUN: moe-opt %s --canonicalize | FileCheck %s
// RUN: moe-opt %s --canonicalize --cse | FileCheck %s --check-prefix=MERGED

// A local op gives way to its destinations if they have no elements.
// CHECK-LABEL: func.func @empty
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<0x2xi32>, %[[W:[a-z0-9]+]]: tensor<0x2xf32>
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: tensor<0x32xf32>
// CHECK-NEXT: return %[[IDS]], %[[W]], %[[OUT]]
func.func @empty(%logits: tensor<0x8xf32>, %ids: tensor<0x2xi32>, %w: tensor<0x2xf32>, %rows: tensor<0x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>,
                 %out: tensor<0x32xf32>, %ctx: !moe.context) -> (tensor<0x2xi32>, tensor<0x2xf32>, tensor<0x32xf32>) {
  %0:2 = moe.route logits(%logits : tensor<0x8xf32>) outs(%ids, %w : tensor<0x2xi32>, tensor<0x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<0x2xi32>, tensor<0x2xf32>
  %1 = moe.grouped_matmul rows(%rows : tensor<0x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>) outs(%out : tensor<0x32xf32>) context(%ctx) -> tensor<0x32xf32>
  return %0#0, %0#1, %1 : tensor<0x2xi32>, tensor<0x2xf32>, tensor<0x32xf32>
}

// CHECK-LABEL: func.func @empty_in_memory
// CHECK-NEXT: return
func.func @empty_in_memory(%logits: memref<0x8xf32>, %ids: memref<0x2xi32>, %w: memref<0x2xf32>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<0x8xf32>) outs(%ids, %w : memref<0x2xi32>, memref<0x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// One destination may have elements, or it may turn out to.
// CHECK-LABEL: func.func @not_empty
// CHECK-COUNT-2: moe.route
func.func @not_empty(%logits: tensor<?x8xf32>, %ids: tensor<0x2xi32>, %w: tensor<?x2xf32>, %any: tensor<?x2xi32>, %ctx: !moe.context)
    -> (tensor<0x2xi32>, tensor<?x2xi32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<0x2xi32>, tensor<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<0x2xi32>, tensor<?x2xf32>
  %1:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%any, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %1#0 : tensor<0x2xi32>, tensor<?x2xi32>
}

// What other ranks wait for stays.
// CHECK-LABEL: func.func @collective
// CHECK: moe.dispatch
// CHECK: moe.combine
func.func @collective(%ids: tensor<0x2xi32>, %x: tensor<0x16xbf16>, %recv: tensor<0x16xbf16>, %offsets: tensor<0xi32>, %out: tensor<0x16xbf16>, %ws: memref<?xi8>,
                      %info: memref<16xi64, #moe.host>, %max: index, %ctx: !moe.context) -> tensor<0x16xbf16> {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<0x2xi32>) payloads(%x : tensor<0x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%recv : tensor<0x16xbf16>) offsets(%offsets : tensor<0xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (tensor<0x16xbf16>, tensor<0xi32>, i64)
  %1 = moe.combine payload(%0#0 : tensor<0x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#2)
    outs(%out : tensor<0x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped"} -> tensor<0x16xbf16>
  return %1 : tensor<0x16xbf16>
}

// Where nobody uses the weights, routes that differ only in parameters of the weights are one. A route whose weights are used keeps them.
// CHECK-LABEL: func.func @idle_parameters
// CHECK: moe.route {{.*}} {n_experts = 8 : i64, score = "sigmoid", top_k = 2 : i64}
// CHECK: moe.route {{.*}} {n_experts = 8 : i64, score = "sigmoid", top_k = 2 : i64}
// CHECK: moe.route {{.*}} {n_experts = 8 : i64, renormalize = true, score = "sigmoid", top_k = 2 : i64}
// MERGED-LABEL: func.func @idle_parameters
// MERGED-COUNT-2: moe.route
// MERGED-NOT: moe.route
// MERGED: return
func.func @idle_parameters(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %ctx: !moe.context)
    -> (tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, score = "sigmoid", renormalize = true, routed_scaling_factor = 2.5 : f64} -> tensor<?x2xi32>, tensor<?x2xf32>
  %1:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, score = "sigmoid"} -> tensor<?x2xi32>, tensor<?x2xf32>
  %2:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, score = "sigmoid", renormalize = true} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %1#0, %2#1 : tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x2xf32>
}

// In memory the weights are there for anyone.
// CHECK-LABEL: func.func @weights_in_memory
// CHECK: moe.route {{.*}}renormalize = true, routed_scaling_factor = 2.500000e+00 : f64
func.func @weights_in_memory(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %w: memref<?x2xf32>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %w : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, renormalize = true, routed_scaling_factor = 2.5 : f64}
  return
}

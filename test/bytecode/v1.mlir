// Bytecode of version 1 of the dialects stays readable. v1.mlirbc was written from this file by the first build that had the version; it is never
// written anew, and this file never changes: a new version gets files of its own.
//
// RUN: moe-opt %s > %t.text
// RUN: moe-opt %S/v1.mlirbc | diff %t.text -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.text -
// RUN: FileCheck %s --input-file=%t.text

// Every op with all that is optional and no parameter at its default.
// CHECK-LABEL: func.func @everything
// CHECK: moe.route {{.*}} bias({{.*}} {n_experts = 16 : i64, n_group = 4 : i64, order = "top_k_then_score", renormalize = true, routed_scaling_factor = 2.500000e+00 : f64, score = "sigmoid", top_k = 4 : i64, topk_group = 2 : i64}
// CHECK: moe.workspace_size {{.*}} {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, ep_size = 4 : i64, eplb_stats_num_experts = 256 : i64, max_num_tokens = 8 : i64}
// CHECK: moe.initialize {{.*}} {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, ep_size = 4 : i64, eplb_stats_num_experts = 256 : i64, max_num_tokens = 8 : i64}
// CHECK: moe.dispatch {{.*}} topk_weights({{.*}} offsets({{.*}} {ep_size = 4 : i64, layout = "expert_grouped", n_experts = 16 : i64, top_k = 4 : i64}
// CHECK: moe.grouped_matmul {{.*}} bias({{.*}} row_ids({{.*}} row_weights({{.*}} {activation = "swiglu", alpha = 1.702000e+00 : f64, limit = 7.000000e+00 : f64}
// CHECK: moe.combine {{.*}} {ep_size = 4 : i64, hidden_size = 64 : i64, layout = "expert_grouped", top_k = 4 : i64}
func.func @everything(%logits: tensor<?x16xbf16>, %bias: tensor<16xf32>, %ids: tensor<?x4xi32>, %weights: tensor<?x4xf32>, %tokens: tensor<?x64xbf16>,
                      %scales: tensor<?x2xf8E8M0FNU>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %rows: tensor<?x64xbf16>,
                      %row_scales: tensor<?x2xf8E8M0FNU>, %offsets: tensor<5xi32>, %stack: tensor<4x128x64xbf16>, %stack_bias: tensor<4x128xbf16>,
                      %row_ids: tensor<?xi32>, %row_weights: tensor<?xf32>, %hidden: tensor<?x64xf32>, %out: tensor<?x64xbf16>,
                      %ctx: !moe.context) -> (tensor<?x64xbf16>, tensor<?x2xf8E8M0FNU>, index) {
  %chosen:2 = moe.route logits(%logits : tensor<?x16xbf16>) bias(%bias : tensor<16xf32>) outs(%ids, %weights : tensor<?x4xi32>, tensor<?x4xf32>)
    context(%ctx) {top_k = 4 : i64, n_experts = 16 : i64, score = "sigmoid", order = "top_k_then_score", renormalize = true,
                   routed_scaling_factor = 2.5 : f64, n_group = 4 : i64, topk_group = 2 : i64} -> tensor<?x4xi32>, tensor<?x4xf32>
  %size = moe.workspace_size context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64, eplb_stats_num_experts = 256 : i64,
     ep_size = 4 : i64}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64, eplb_stats_num_experts = 256 : i64,
     ep_size = 4 : i64}
  %recv:4 = moe.dispatch topk_ids(%chosen#0 : tensor<?x4xi32>) topk_weights(%chosen#1 : tensor<?x4xf32>)
    payloads(%tokens, %scales : tensor<?x64xbf16>, tensor<?x2xf8E8M0FNU>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%rows, %row_scales : tensor<?x64xbf16>, tensor<?x2xf8E8M0FNU>) offsets(%offsets : tensor<5xi32>)
    context(%ctx) {top_k = 4 : i64, n_experts = 16 : i64, layout = "expert_grouped", ep_size = 4 : i64}
    -> (tensor<?x64xbf16>, tensor<?x2xf8E8M0FNU>, tensor<5xi32>, i64)
  %product = moe.grouped_matmul rows(%recv#0 : tensor<?x64xbf16>) offsets(%recv#2 : tensor<5xi32>) weights(%stack : tensor<4x128x64xbf16>)
    bias(%stack_bias : tensor<4x128xbf16>) row_ids(%row_ids : tensor<?xi32>) row_weights(%row_weights : tensor<?xf32>)
    outs(%hidden : tensor<?x64xf32>) context(%ctx) {activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64} -> tensor<?x64xf32>
  %sum = moe.combine payload(%product : tensor<?x64xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) offset(%recv#3) outs(%out : tensor<?x64xbf16>) context(%ctx)
    {top_k = 4 : i64, hidden_size = 64 : i64, layout = "expert_grouped", ep_size = 4 : i64} -> tensor<?x64xbf16>
  return %sum, %recv#1, %size : tensor<?x64xbf16>, tensor<?x2xf8E8M0FNU>, index
}

// Every op on buffers, with nothing that is optional and all parameters at their defaults; and what only goes with the layout rank_major.
// CHECK-LABEL: func.func @least
// CHECK: moe.route {{.*}} {n_experts = 8 : i64, top_k = 2 : i64}
// CHECK: moe.workspace_size {{.*}} {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, max_num_tokens = 8 : i64}
// CHECK: moe.initialize {{.*}} {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, max_num_tokens = 8 : i64}
// CHECK: moe.dispatch {{.*}} {n_experts = 8 : i64, top_k = 2 : i64} -> (i64)
// CHECK: moe.dispatch {{.*}} recv_counts({{.*}} {n_experts = 8 : i64, top_k = 2 : i64} -> (i64)
// CHECK: moe.workspace_view
// CHECK: moe.allocate
// CHECK: moe.grouped_matmul
// CHECK: moe.combine {{.*}} {hidden_size = 16 : i64, payload_in_workspace = true, top_k = 2 : i64}
// CHECK: moe.combine {{.*}} {hidden_size = 16 : i64, top_k = 2 : i64}
func.func @least(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %tokens: memref<?x16xbf16>, %ws: memref<?xi8>,
                 %info: memref<16xi64, #moe.host>, %max: i64, %recv: memref<4x?x16xbf16>, %counts: memref<4xi32>, %at: index, %rows: index,
                 %offsets: memref<?xi32>, %stack: memref<?x16x16xbf16>, %out: memref<?x16xbf16>, %ctx: !moe.context) -> index {
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  %size = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  %first = moe.dispatch topk_ids(%ids : memref<?x2xi32>) payloads(%tokens : memref<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : i64) outs(%recv : memref<4x?x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  %second = moe.dispatch topk_ids(%ids : memref<?x2xi32>) payloads(%tokens : memref<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : i64) outs(%recv : memref<4x?x16xbf16>) recv_counts(%counts : memref<4xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  %view = moe.workspace_view %ws[%at : index] sizes(%rows) context(%ctx) : memref<?xi8> to memref<4x?x16xbf16>
  %product = moe.allocate(%rows) context(%ctx) : memref<?x16xbf16>
  moe.grouped_matmul rows(%tokens : memref<?x16xbf16>) offsets(%offsets : memref<?xi32>) weights(%stack : memref<?x16x16xbf16>)
    outs(%product : memref<?x16xbf16>) context(%ctx)
  moe.combine payload(%view : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%first)
    outs(%out : memref<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, payload_in_workspace = true}
  moe.combine payload(%recv : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%second)
    outs(%out : memref<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return %size : index
}

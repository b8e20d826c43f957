// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.dispatch topk_ids(%{{[^ ]*}} : tensor<?x2xi32>) payloads(%{{[^ ]*}} : tensor<?x16xbf16>) workspace(%{{[^ ]*}}, %{{[^ ]*}} : memref<?xi8>, memref<16xi64, #moe.host>)
// CHECK-SAME: max_tokens(%{{[^ ]*}} : index) outs(%{{[^ ]*}} : tensor<?x?x16xbf16>) context(%{{[^)]*}}) {n_experts = 8 : i64, top_k = 2 : i64} -> (tensor<?x?x16xbf16>, i64)
func.func @tensors(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                   %recv: tensor<?x?x16xbf16>, %ctx: !moe.context) -> tensor<?x?x16xbf16> {
  %0, %offset = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%recv : tensor<?x?x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<?x?x16xbf16>, i64)
  return %0 : tensor<?x?x16xbf16>
}

// CHECK-LABEL: func.func @memrefs
// CHECK: moe.dispatch topk_ids(%{{[^)]*}}) payloads(%{{[^)]*}}) workspace(%{{[^ ]*}}, %{{[^ ]*}} : memref<4096xi8>, memref<?xi64, #moe.host>) max_tokens(%{{[^ ]*}} : i64) outs(%{{[^)]*}}) recv_counts(%{{[^ ]*}} : memref<4xi32>) context(%{{[^)]*}}) {ep_size = 4 : i64, n_experts = 9 : i64, top_k = 1 : i64} -> (i64)
func.func @memrefs(%ids: memref<5x1xi32>, %x: memref<5x16xf32>, %ws: memref<4096xi8>, %info: memref<?xi64, #moe.host>, %max: i64, %recv: memref<4x8x16xf32>,
                   %counts: memref<4xi32>, %ctx: !moe.context) -> i64 {
  %offset = moe.dispatch topk_ids(%ids : memref<5x1xi32>) payloads(%x : memref<5x16xf32>) workspace(%ws, %info : memref<4096xi8>, memref<?xi64, #moe.host>)
    max_tokens(%max : i64) outs(%recv : memref<4x8x16xf32>) recv_counts(%counts : memref<4xi32>) context(%ctx)
    {top_k = 1 : i64, n_experts = 9 : i64, ep_size = 4 : i64} -> (i64)
  return %offset : i64
}

// CHECK-LABEL: func.func @grouped
// CHECK: topk_weights(%{{[^ ]*}} : tensor<5x2xf32>) payloads
// CHECK-SAME: outs(%{{[^ ]*}} : tensor<64x16xf16>) offsets(%{{[^ ]*}} : tensor<3xi32>) context(%{{[^)]*}}) {ep_size = 4 : i64, layout = "expert_grouped", n_experts = 8 : i64, top_k = 2 : i64} -> (tensor<64x16xf16>, tensor<3xi32>, i64)
func.func @grouped(%ids: tensor<5x2xi32>, %w: tensor<5x2xf32>, %x: tensor<5x16xf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                   %recv: tensor<64x16xf16>, %offsets: tensor<3xi32>, %ctx: !moe.context) -> (tensor<64x16xf16>, tensor<3xi32>) {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<5x2xi32>) topk_weights(%w : tensor<5x2xf32>) payloads(%x : tensor<5x16xf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<64x16xf16>) offsets(%offsets : tensor<3xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64, ep_size = 4 : i64, layout = "expert_grouped"} -> (tensor<64x16xf16>, tensor<3xi32>, i64)
  return %0#0, %0#1 : tensor<64x16xf16>, tensor<3xi32>
}

// Eight payloads: every element type, no trailing dimension and several.
// CHECK-LABEL: func.func @eight_payloads
// CHECK: payloads({{[^:]*}} : memref<?x4x2xbf16>, memref<?xf64>, memref<?x16xf8E4M3FN>, memref<?x16xf8E5M2>, memref<?x1x2x3x4xf8E8M0FNU>, memref<?x3xi8>, memref<?x3xui16>, memref<?x0xsi64>)
// CHECK-SAME: outs({{[^:]*}} : memref<2x?x4x2xbf16>, memref<?x?xf64>, memref<2x7x16xf8E4M3FN>, memref<2x?x16xf8E5M2>, memref<2x?x1x2x3x4xf8E8M0FNU>, memref<2x?x3xi8>, memref<2x?x3xui16>, memref<2x?x0xsi64>)
func.func @eight_payloads(%ids: memref<?x32xi32>, %x0: memref<?x4x2xbf16>, %x1: memref<?xf64>, %x2: memref<?x16xf8E4M3FN>, %x3: memref<?x16xf8E5M2>,
                          %x4: memref<?x1x2x3x4xf8E8M0FNU>, %x5: memref<?x3xi8>, %x6: memref<?x3xui16>, %x7: memref<?x0xsi64>, %ws: memref<?xi8>,
                          %info: memref<16xi64, #moe.host>, %max: index, %r0: memref<2x?x4x2xbf16>, %r1: memref<?x?xf64>, %r2: memref<2x7x16xf8E4M3FN>,
                          %r3: memref<2x?x16xf8E5M2>, %r4: memref<2x?x1x2x3x4xf8E8M0FNU>, %r5: memref<2x?x3xi8>, %r6: memref<2x?x3xui16>, %r7: memref<2x?x0xsi64>,
                          %ctx: !moe.context) {
  %offset = moe.dispatch topk_ids(%ids : memref<?x32xi32>)
    payloads(%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7 : memref<?x4x2xbf16>, memref<?xf64>, memref<?x16xf8E4M3FN>, memref<?x16xf8E5M2>,
             memref<?x1x2x3x4xf8E8M0FNU>, memref<?x3xi8>, memref<?x3xui16>, memref<?x0xsi64>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7 : memref<2x?x4x2xbf16>, memref<?x?xf64>, memref<2x7x16xf8E4M3FN>, memref<2x?x16xf8E5M2>,
         memref<2x?x1x2x3x4xf8E8M0FNU>, memref<2x?x3xi8>, memref<2x?x3xui16>, memref<2x?x0xsi64>)
    context(%ctx) {top_k = 32 : i64, n_experts = 65536 : i64, ep_size = 2 : i64} -> (i64)
  return
}

// The remaining element types: f32, f16, i16, i32, i64.
// CHECK-LABEL: func.func @other_element_types
func.func @other_element_types(%ids: memref<?x1xi32>, %x0: memref<?xf32>, %x1: memref<?xf16>, %x2: memref<?xi16>, %x3: memref<?xi32>, %x4: memref<?xi64>, %ws: memref<?xi8>,
                               %info: memref<16xi64, #moe.host>, %max: index, %r0: memref<?x?xf32>, %r1: memref<?x?xf16>, %r2: memref<?x?xi16>, %r3: memref<?x?xi32>,
                               %r4: memref<?x?xi64>, %ctx: !moe.context) {
  %offset = moe.dispatch topk_ids(%ids : memref<?x1xi32>) payloads(%x0, %x1, %x2, %x3, %x4 : memref<?xf32>, memref<?xf16>, memref<?xi16>, memref<?xi32>, memref<?xi64>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r0, %r1, %r2, %r3, %r4 : memref<?x?xf32>, memref<?x?xf16>, memref<?x?xi16>, memref<?x?xi32>, memref<?x?xi64>)
    context(%ctx) {top_k = 1 : i64, n_experts = 1 : i64} -> (i64)
  return
}

// Numbers for load balancing, in both layouts.
// CHECK-LABEL: func.func @statistics
// CHECK: payloads(%{{[^)]*}}) eplb_stats(%{{[^ ]*}} : tensor<8xi32>) workspace
// CHECK-SAME: recv_counts(%{{[^ ]*}} : tensor<4xi32>) eplb_gathered(%{{[^ ]*}} : tensor<4x8xi32>) context(%{{[^)]*}}) {n_experts = 8 : i64, top_k = 2 : i64} -> (tensor<4x?x16xbf16>, tensor<4xi32>, tensor<4x8xi32>, i64)
func.func @statistics(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %stats: tensor<8xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                      %recv: tensor<4x?x16xbf16>, %counts: tensor<4xi32>, %all: tensor<4x8xi32>, %ctx: !moe.context) -> (tensor<4x?x16xbf16>, tensor<4xi32>, tensor<4x8xi32>) {
  %0:4 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) eplb_stats(%stats : tensor<8xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x?x16xbf16>) recv_counts(%counts : tensor<4xi32>)
    eplb_gathered(%all : tensor<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x?x16xbf16>, tensor<4xi32>, tensor<4x8xi32>, i64)
  return %0#0, %0#1, %0#2 : tensor<4x?x16xbf16>, tensor<4xi32>, tensor<4x8xi32>
}

// CHECK-LABEL: func.func @statistics_grouped
// CHECK: topk_weights(%{{[^)]*}}) payloads(%{{[^)]*}}) eplb_stats(%{{[^ ]*}} : memref<?xui32>) workspace
// CHECK-SAME: offsets(%{{[^ ]*}} : memref<3xi32>) eplb_gathered(%{{[^ ]*}} : memref<?x1xi32>) context
func.func @statistics_grouped(%ids: memref<5x2xi32>, %w: memref<5x2xf32>, %x: memref<5x16xf16>, %stats: memref<?xui32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                              %max: index, %recv: memref<64x16xf16>, %offsets: memref<3xi32>, %all: memref<?x1xi32>, %ctx: !moe.context) {
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) topk_weights(%w : memref<5x2xf32>) payloads(%x : memref<5x16xf16>) eplb_stats(%stats : memref<?xui32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : memref<64x16xf16>) offsets(%offsets : memref<3xi32>)
    eplb_gathered(%all : memref<?x1xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64, ep_size = 4 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// The ranks that take part, and what a call leaves to others on a GPU.
// CHECK-LABEL: func.func @active_ranks
// CHECK: max_tokens(%{{[^ ]*}} : index) active_ranks(%[[MASK:[^ ]*]]) outs(%{{[^)]*}}) context(%{{[^)]*}}) {enable_pdl = false, max_sms = 24 : i64, n_experts = 8 : i64, top_k = 2 : i64}
// CHECK: moe.dispatch {{.*}} topk_weights(%{{[^)]*}}) payloads(%{{[^)]*}}) eplb_stats(%{{[^)]*}}) {{.*}} active_ranks(%{{[^ ]*}}) outs(%{{[^)]*}}) offsets(%{{[^)]*}}) eplb_gathered(%{{[^)]*}}) context(%{{[^)]*}}) {ep_size = 64 : i64, layout = "expert_grouped", n_experts = 64 : i64, top_k = 2 : i64}
func.func @active_ranks(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %mask: i64,
                        %recv: tensor<?x?x16xbf16>, %w: tensor<?x2xf32>, %stats: tensor<8xi32>, %rows: tensor<?x16xbf16>, %offsets: tensor<2xi32>, %all: tensor<64x8xi32>,
                        %ctx: !moe.context) -> (tensor<?x?x16xbf16>, tensor<?x16xbf16>) {
  %last = arith.constant 0x8000000000000000 : i64
  %0, %offset = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) active_ranks(%mask) outs(%recv : tensor<?x?x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, max_sms = 24 : i64, enable_pdl = false} -> (tensor<?x?x16xbf16>, i64)
  %1:4 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) topk_weights(%w : tensor<?x2xf32>) payloads(%x : tensor<?x16xbf16>) eplb_stats(%stats : tensor<8xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) active_ranks(%last) outs(%rows : tensor<?x16xbf16>)
    offsets(%offsets : tensor<2xi32>) eplb_gathered(%all : tensor<64x8xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 64 : i64, ep_size = 64 : i64, layout = "expert_grouped", max_sms = 0 : i64, enable_pdl = true}
    -> (tensor<?x16xbf16>, tensor<2xi32>, tensor<64x8xi32>, i64)
  return %0, %1#0 : tensor<?x?x16xbf16>, tensor<?x16xbf16>
}

// CHECK-LABEL: func.func @active_ranks_of_memrefs
// CHECK: max_tokens(%{{[^ ]*}} : i64) active_ranks(%{{[^ ]*}}) outs(%{{[^ ]*}} : memref<4x8x16xf32>) recv_counts
func.func @active_ranks_of_memrefs(%ids: memref<5x1xi32>, %x: memref<5x16xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i64, %recv: memref<4x8x16xf32>,
                                   %counts: memref<4xi32>, %ctx: !moe.context) {
  %mask = arith.constant 15 : i64
  moe.dispatch topk_ids(%ids : memref<5x1xi32>) payloads(%x : memref<5x16xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : i64) active_ranks(%mask) outs(%recv : memref<4x8x16xf32>) recv_counts(%counts : memref<4xi32>) context(%ctx)
    {top_k = 1 : i64, n_experts = 9 : i64, ep_size = 4 : i64} -> (i64)
  return
}

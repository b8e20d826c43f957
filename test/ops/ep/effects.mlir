// RUN: moe-opt %s --cse --loop-invariant-code-motion --canonicalize --symbol-dce --cse | FileCheck %s

// A dispatch and a combine write the counters: neither is removed, merged or moved, whoever uses their results.
// CHECK-LABEL: func.func @stay
// CHECK: scf.for
// CHECK-COUNT-2: ep.dispatch
// CHECK-COUNT-2: ep.combine.skip_a2a
// CHECK: ep.dispatch
// CHECK: return
func.func @stay(%c: memref<360xi32>, %x: tensor<8x16xbf16>, %ids: tensor<8x2xi32>, %w: tensor<8x2xf32>, %s: memref<1xi64, #moe.host>, %rows: tensor<16x16xbf16>,
                %offsets: tensor<5xi32>, %experts: tensor<4xi32>, %sources: tensor<16x2xi32>, %out: tensor<8x16xbf16>, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<8x16xbf16>) topk_ids(%ids : tensor<8x2xi32>)
      buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
      outs(%rows, %offsets, %experts, %sources : tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>) context(%ctx)
      {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
      -> tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>
    %1:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<8x16xbf16>) topk_ids(%ids : tensor<8x2xi32>)
      buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
      outs(%rows, %offsets, %experts, %sources : tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>) context(%ctx)
      {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
      -> tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>
    %2 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%rows : tensor<16x16xbf16>) src_info(%sources : tensor<16x2xi32>)
      buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
      router_weights(%w : tensor<8x2xf32>) topk_ids(%ids : tensor<8x2xi32>) outs(%out : tensor<8x16xbf16>) context(%ctx)
      {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64} -> tensor<8x16xbf16>
    %3 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%rows : tensor<16x16xbf16>) src_info(%sources : tensor<16x2xi32>)
      buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
      router_weights(%w : tensor<8x2xf32>) topk_ids(%ids : tensor<8x2xi32>) outs(%out : tensor<8x16xbf16>) context(%ctx)
      {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64} -> tensor<8x16xbf16>
  }
  %4:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<8x16xbf16>) topk_ids(%ids : tensor<8x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
    -> tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>
  return
}

// Without tokens a combine writes nothing but the counters, and that it must.
// CHECK-LABEL: func.func @no_tokens
// CHECK: ep.combine.skip_a2a
func.func @no_tokens(%c: memref<360xi32>, %rows: tensor<16x16xbf16>, %sources: tensor<16x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<0x2xf32>, %ids: tensor<0x2xi32>,
                     %out: tensor<0x16xbf16>, %ctx: !moe.context) -> tensor<0x16xbf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%rows : tensor<16x16xbf16>) src_info(%sources : tensor<16x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<0x2xf32>) topk_ids(%ids : tensor<0x2xi32>) outs(%out : tensor<0x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64} -> tensor<0x16xbf16>
  return %0 : tensor<0x16xbf16>
}

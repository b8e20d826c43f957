// Without an epilogue there is no region, so that upstream's patterns can copy the op.
// RUN: moe-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @cast
// CHECK-NOT: tensor.cast
// CHECK: ep.combine.skip_a2a {{.*}} tokens(%{{[^ ]+}} : tensor<4x16xbf16>)
func.func @cast(%c: memref<360xi32>, %given: tensor<4x16xbf16>, %sources: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<?x2xf32>,
                %ids: tensor<?x2xi32>, %out: tensor<?x16xbf16>, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %x = tensor.cast %given : tensor<4x16xbf16> to tensor<?x16xbf16>
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64} -> tensor<?x16xbf16>
  return %0 : tensor<?x16xbf16>
}

// RUN: moe-opt %s --split-input-file --moe-expand-epilogues --verify-diagnostics
// RUN: not moe-opt %s --split-input-file --moe-lower-to-runtime 2>&1 | FileCheck %s

// CHECK: error: 'ep.combine.skip_a2a' op is still on tensors: run one-shot-bufferize first
func.func @tensors(%c: memref<360xi32>, %x: tensor<?x16xf32>, %sources: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<?x2xf32>, %ids: tensor<?x2xi32>,
                   %out: tensor<?x16xf32>, %ctx: !moe.context) -> tensor<?x16xf32> {
  // expected-error@+1 {{'ep.combine.skip_a2a' op is still on tensors: run one-shot-bufferize first}}
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xf32>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xf32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: f32):
      ep.yield %value : f32
    } -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// -----

// CHECK: error: 'ep.combine.skip_a2a' op still has its epilogue: run moe-expand-epilogues first
func.func @buffers(%c: memref<360xi32>, %x: memref<?x16xf32>, %sources: memref<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: memref<?x2xf32>, %ids: memref<?x2xi32>,
                   %out: memref<?x16xf32>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xf32>) src_info(%sources : memref<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xf32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: f32):
      ep.yield %value : f32
    }
  return
}

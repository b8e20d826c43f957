// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: %{{[^ ,]+}} = ep.combine.skip_a2a counters(%{{[^ ,]+}} : memref<360xi32>) tokens(%{{[^ ,]+}} : tensor<?x16xbf16>) src_info(%{{[^ ,]+}} : tensor<?x2xi32>)
// CHECK-SAME: buffers(%{{[^ ,]+}}, %{{[^ ,]+}}, %{{[^ ,]+}} : memref<2xi64, #moe.host>, memref<2xui64, #moe.host>, memref<?xi64, #moe.host>)
// CHECK-SAME: router_weights(%{{[^ ,]+}} : tensor<?x2xf32>) topk_ids(%{{[^ ,]+}} : tensor<?x2xi32>) outs(%{{[^ ,]+}} : tensor<?x16xbf16>) context(%{{[^ ,]+}})
// CHECK-SAME: {allreduce_world_size = 2 : i64, hidden_size = 16 : i64, max_token_per_rank = 8 : i64, n_experts = 4 : i64, top_k = 2 : i64} -> tensor<?x16xbf16>
func.func @tensors(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %sources: tensor<?x2xi32>, %s: memref<2xi64, #moe.host>, %r: memref<2xui64, #moe.host>,
                   %n: memref<?xi64, #moe.host>, %w: tensor<?x2xf32>, %ids: tensor<?x2xi32>, %out: tensor<?x16xbf16>, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<2xi64, #moe.host>, memref<2xui64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, n_gpus_per_node = 1 : i64, n_nodes = 1 : i64,
     fused_shared_expert = false, skip_a2a = true, allreduce_world_size = 2 : i64, has_epilogue_fusion = false} -> tensor<?x16xbf16>
  return %0 : tensor<?x16xbf16>
}

// An epilogue may read what stands outside, through ops with regions too.
// CHECK-LABEL: func.func @epilogue
// CHECK: {allreduce_world_size = 1 : i64, fused_shared_expert = true, has_epilogue_fusion = true, hidden_size = 16 : i64, max_token_per_rank = 8 : i64, n_experts = 4 : i64, top_k = 2 : i64} epilogue {
// CHECK-NEXT: ^bb0(%[[ROW:.*]]: index, %[[COLUMN:.*]]: index, %[[VALUE:.*]]: f16):
// CHECK-NEXT: %[[OTHER:.*]] = tensor.extract %{{[^ ,]+}}[%[[ROW]], %[[COLUMN]]] : tensor<5x16xf16>
// CHECK: %[[CHOSEN:.*]] = scf.if
// CHECK: ep.yield %[[CHOSEN]] : f16
// CHECK-NEXT: } -> tensor<5x16xf16>
func.func @epilogue(%c: memref<360xi32>, %x: tensor<?x16xf16>, %sources: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<5x2xbf16>, %ids: tensor<5x2xi32>,
                    %residual: tensor<5x16xf16>, %flag: i1, %out: tensor<5x16xf16>, %ctx: !moe.context) -> tensor<5x16xf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<5x2xbf16>) topk_ids(%ids : tensor<5x2xi32>) outs(%out : tensor<5x16xf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, fused_shared_expert = true, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: f16):
      %other = tensor.extract %residual[%row, %column] : tensor<5x16xf16>
      %sum = arith.addf %value, %other : f16
      %chosen = scf.if %flag -> f16 {
        scf.yield %sum : f16
      } else {
        %product = arith.mulf %value, %other : f16
        scf.yield %product : f16
      }
      ep.yield %chosen : f16
    } -> tensor<5x16xf16>
  return %0 : tensor<5x16xf16>
}

// CHECK-LABEL: func.func @memrefs
// CHECK: ep.combine.skip_a2a {{.*}} outs(%{{[^ ,]+}} : memref<0x16xf32, strided<[16, 1], offset: 64>>)
// CHECK-SAME: epilogue {
// CHECK-NEXT: ^bb0(%{{[^ ,]+}}: index, %{{[^ ,]+}}: index, %[[VALUE:.*]]: f32):
// CHECK-NEXT: ep.yield %[[VALUE]] : f32
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @memrefs(%c: memref<?xi32>, %x: memref<24x16xf32>, %sources: memref<24x2xi32>, %s: memref<64xi64, #moe.host>, %w: memref<0x2xf16>, %ids: memref<?x2xi32>,
                   %out: memref<0x16xf32, strided<[16, 1], offset: 64>>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<?xi32>) tokens(%x : memref<24x16xf32>) src_info(%sources : memref<24x2xi32>)
    buffers(%s, %s, %s : memref<64xi64, #moe.host>, memref<64xi64, #moe.host>, memref<64xi64, #moe.host>)
    router_weights(%w : memref<0x2xf16>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<0x16xf32, strided<[16, 1], offset: 64>>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 64 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: f32):
      ep.yield %value : f32
    }
  return
}

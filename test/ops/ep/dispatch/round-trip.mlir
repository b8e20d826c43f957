// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: %{{[^ ,]+}}:4 = ep.dispatch counters(%{{[^ ,]+}} : memref<360xi32>) tokens(%{{[^ ,]+}} : tensor<?x16xbf16>) topk_ids(%{{[^ ,]+}} : tensor<?x2xi32>)
// CHECK-SAME: buffers(%{{[^ ,]+}}, %{{[^ ,]+}}, %{{[^ ,]+}} : memref<2xi64, #moe.host>, memref<2xui64, #moe.host>, memref<?xi64, #moe.host>)
// CHECK-SAME: outs(%{{[^ ,]+}}, %{{[^ ,]+}}, %{{[^ ,]+}}, %{{[^ ,]+}} : tensor<?x16xbf16>, tensor<5xui32>, tensor<4xi32>, tensor<?x2xi32>) context(%{{[^ ,]+}})
// CHECK-SAME: {allreduce_world_size = 2 : i64, hidden_size = 16 : i64, max_token_per_rank = 8 : i64, n_experts = 4 : i64, skip_a2a = true, top_k = 2 : i64}
// CHECK-SAME: -> tensor<?x16xbf16>, tensor<5xui32>, tensor<4xi32>, tensor<?x2xi32>
func.func @tensors(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %ids: tensor<?x2xi32>, %s: memref<2xi64, #moe.host>, %r: memref<2xui64, #moe.host>,
                   %n: memref<?xi64, #moe.host>, %rows: tensor<?x16xbf16>, %offsets: tensor<5xui32>, %experts: tensor<4xi32>, %sources: tensor<?x2xi32>,
                   %ctx: !moe.context) -> tensor<?x16xbf16> {
  %0:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<2xi64, #moe.host>, memref<2xui64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<?x16xbf16>, tensor<5xui32>, tensor<4xi32>, tensor<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64,
     n_gpus_per_node = 1 : i64, n_nodes = 1 : i64, fused_shared_expert = false} -> tensor<?x16xbf16>, tensor<5xui32>, tensor<4xi32>, tensor<?x2xi32>
  return %0#0 : tensor<?x16xbf16>
}

// CHECK-LABEL: func.func @memrefs
// CHECK: ep.dispatch counters(%{{[^ ,]+}} : memref<?xi32>) tokens(%{{[^ ,]+}} : memref<0x16xbf16>)
// CHECK-SAME: outs(%{{[^ ,]+}}, %{{[^ ,]+}}, %{{[^ ,]+}}, %{{[^ ,]+}} : memref<24x16xbf16>, memref<6xi32>, memref<5xi32>, memref<24x2xi32>)
// CHECK-SAME: {fused_shared_expert = true, hidden_size = 16 : i64, max_token_per_rank = 8 : i64, n_experts = 4 : i64, skip_a2a = true, top_k = 2 : i64}
// CHECK-NOT: ->
func.func @memrefs(%c: memref<?xi32>, %x: memref<0x16xbf16>, %ids: memref<0x2xi32>, %s: memref<1xi64, #moe.host>, %rows: memref<24x16xbf16>, %offsets: memref<6xi32>,
                   %experts: memref<5xi32>, %sources: memref<24x2xi32>, %ctx: !moe.context) {
  ep.dispatch counters(%c : memref<?xi32>) tokens(%x : memref<0x16xbf16>) topk_ids(%ids : memref<0x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : memref<24x16xbf16>, memref<6xi32>, memref<5xi32>, memref<24x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, fused_shared_expert = true}
  return
}

// RUN: moe-opt %s %bufferize | FileCheck %s --implicit-check-not=alloc --implicit-check-not=copy

// Counters and tables are never copied or replaced: dispatch and combine find in the caller's memory what the init has left there.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: (%[[C0:[^:]*]]: memref<360xi32>, %[[C1:[^:]*]]: memref<360xi32>, %[[DEV:[^:]*]]: memref<2x3xi64, #moe.host>, %[[RANK:[^:]*]]: memref<1xi32, #moe.host>,
// CHECK-SAME: %[[S:[^:]*]]: memref<1xi64, #moe.host>, %[[R:[^:]*]]: memref<1xi64, #moe.host>, %[[N:[^:]*]]: memref<1xi64, #moe.host>,
// CHECK-SAME: %[[ROWS:[^:]*]]: memref<16x16xbf16>, %[[OFFSETS:[^:]*]]: memref<5xi32>, %[[EXPERTS:[^:]*]]: memref<4xi32>, %[[SOURCES:[^:]*]]: memref<16x2xi32>, %[[OUT:[^:]*]]: memref<?x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: ep.init counters(%[[C0]], %[[C1]] : memref<360xi32>, memref<360xi32>) dev_ptrs(%[[DEV]] : memref<2x3xi64, #moe.host>) my_rank(%[[RANK]] : memref<1xi32, #moe.host>)
// CHECK-NEXT: ep.dispatch counters(%[[C0]] : memref<360xi32>) {{.*}} buffers(%[[S]], %[[R]], %[[N]] : {{.*}}) outs(%[[ROWS]], %[[OFFSETS]], %[[EXPERTS]], %[[SOURCES]] : {{.*}})
// CHECK-NEXT: ep.combine.skip_a2a counters(%[[C0]] : memref<360xi32>) tokens(%[[ROWS]] : {{.*}}) src_info(%[[SOURCES]] : {{.*}}) buffers(%[[S]], %[[R]], %[[N]] : {{.*}}) {{.*}} outs(%[[OUT]] : memref<?x16xbf16>)
// CHECK-NEXT: return
func.func @layer(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %x: tensor<?x16xbf16>,
                 %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %s: memref<1xi64, #moe.host>, %r: memref<1xi64, #moe.host>, %n: memref<1xi64, #moe.host>,
                 %rows: tensor<16x16xbf16>, %offsets: tensor<5xi32>, %experts: tensor<4xi32>, %sources: tensor<16x2xi32>, %out: tensor<?x16xbf16>,
                 %ctx: !moe.context) -> (tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>, tensor<?x16xbf16>) {
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>) my_rank(%rank : memref<1xi32, #moe.host>)
    context(%ctx) {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  %0:4 = ep.dispatch counters(%c0 : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
    -> tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>
  %1 = ep.combine.skip_a2a counters(%c0 : memref<360xi32>) tokens(%0#0 : tensor<16x16xbf16>) src_info(%0#3 : tensor<16x2xi32>)
    buffers(%s, %r, %n : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64} -> tensor<?x16xbf16>
  return %0#0, %0#1, %0#2, %0#3, %1 : tensor<16x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<16x2xi32>, tensor<?x16xbf16>
}

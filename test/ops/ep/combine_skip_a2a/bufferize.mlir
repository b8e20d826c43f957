// RUN: moe-opt %s %bufferize | FileCheck %s --implicit-check-not=copy

// CHECK-LABEL: func.func @destination_of_the_caller
// CHECK-SAME: (%[[C:[^:]*]]: memref<360xi32>, %[[X:[^:]*]]: memref<?x16xbf16>, %[[SOURCES:[^:]*]]: memref<?x2xi32>, %[[S:[^:]*]]: memref<1xi64, #moe.host>,
// CHECK-SAME: %[[W:[^:]*]]: memref<?x2xf32>, %[[IDS:[^:]*]]: memref<?x2xi32>, %[[RESIDUAL:[^:]*]]: memref<?x16xbf16>, %[[OUT:[^:]*]]: memref<?x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-NOT: allocate
// CHECK: ep.combine.skip_a2a counters(%[[C]] : memref<360xi32>) tokens(%[[X]] : memref<?x16xbf16>) src_info(%[[SOURCES]] : memref<?x2xi32>) {{.*}} outs(%[[OUT]] : memref<?x16xbf16>)
// CHECK-SAME: epilogue {
// CHECK-NEXT: ^bb0(%[[ROW:.*]]: index, %[[COLUMN:.*]]: index, %[[VALUE:.*]]: bf16):
// CHECK-NEXT: memref.load %[[RESIDUAL]][%[[ROW]], %[[COLUMN]]]
// CHECK: return
func.func @destination_of_the_caller(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %sources: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<?x2xf32>,
                                     %ids: tensor<?x2xi32>, %residual: tensor<?x16xbf16>, %out: tensor<?x16xbf16>, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: bf16):
      %other = tensor.extract %residual[%row, %column] : tensor<?x16xbf16>
      %sum = arith.addf %value, %other : bf16
      ep.yield %sum : bf16
    } -> tensor<?x16xbf16>
  return %0 : tensor<?x16xbf16>
}

// An epilogue that reads what the destination was gets it: the op then writes somewhere else.
// CHECK-LABEL: func.func @epilogue_reads_the_destination
// CHECK-SAME: %[[OUT:[^:]*]]: memref<5x16xbf16>, %[[SUM:[^:]*]]: memref<5x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK: %[[NEW:.*]] = moe.allocate() {{.*}} : memref<5x16xbf16>
// CHECK: ep.combine.skip_a2a {{.*}} outs(%[[NEW]] : memref<5x16xbf16>)
// CHECK: memref.load %[[OUT]]
// CHECK: linalg.add ins(%[[NEW]], %[[NEW]] : memref<5x16xbf16>, memref<5x16xbf16>) outs(%[[SUM]] : memref<5x16xbf16>)
func.func @epilogue_reads_the_destination(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %sources: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<5x2xf32>,
                                          %ids: tensor<5x2xi32>, %out: tensor<5x16xbf16>, %sum: tensor<5x16xbf16>, %ctx: !moe.context) -> tensor<5x16xbf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<5x2xf32>) topk_ids(%ids : tensor<5x2xi32>) outs(%out : tensor<5x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: bf16):
      %old = tensor.extract %out[%row, %column] : tensor<5x16xbf16>
      %both = arith.addf %value, %old : bf16
      ep.yield %both : bf16
    } -> tensor<5x16xbf16>
  %1 = linalg.add ins(%0, %0 : tensor<5x16xbf16>, tensor<5x16xbf16>) outs(%sum : tensor<5x16xbf16>) -> tensor<5x16xbf16>
  return %1 : tensor<5x16xbf16>
}

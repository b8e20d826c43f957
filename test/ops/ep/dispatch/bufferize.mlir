// RUN: moe-opt %s %bufferize | FileCheck %s

// Counters and tables are the caller's memory, as they are; so are the destinations.
// CHECK-LABEL: func.func @destinations_of_the_caller
// CHECK-SAME: (%[[C:[^:]*]]: memref<360xi32>, %[[X:[^:]*]]: memref<?x16xbf16>, %[[IDS:[^:]*]]: memref<?x2xi32>, %[[S:[^:]*]]: memref<1xi64, #moe.host>,
// CHECK-SAME: %[[ROWS:[^:]*]]: memref<24x16xbf16>, %[[OFFSETS:[^:]*]]: memref<5xi32>, %[[EXPERTS:[^:]*]]: memref<4xi32>, %[[SOURCES:[^:]*]]: memref<24x2xi32>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: ep.dispatch counters(%[[C]] : memref<360xi32>) tokens(%[[X]] : memref<?x16xbf16>) topk_ids(%[[IDS]] : memref<?x2xi32>) buffers(%[[S]], %[[S]], %[[S]] : {{.*}}) outs(%[[ROWS]], %[[OFFSETS]], %[[EXPERTS]], %[[SOURCES]] : {{.*}})
// CHECK-NEXT: return
func.func @destinations_of_the_caller(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %ids: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %rows: tensor<24x16xbf16>,
                                      %offsets: tensor<5xi32>, %experts: tensor<4xi32>, %sources: tensor<24x2xi32>, %ctx: !moe.context)
    -> (tensor<24x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<24x2xi32>) {
  %0:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<24x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<24x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
    -> tensor<24x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<24x2xi32>
  return %0#0, %0#1, %0#2, %0#3 : tensor<24x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<24x2xi32>
}

// A destination whose rows someone else still reads is copied, because rows in no group keep their contents; offsets and expert ids are written throughout.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %[[ROWS:[^:]*]]: memref<24x16xbf16>, %[[SUM:[^:]*]]: memref<24x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-DAG: moe.allocate() {{.*}} : memref<5xi32>
// CHECK-DAG: moe.allocate() {{.*}} : memref<4xi32>
// CHECK-DAG: moe.allocate() {{.*}} : memref<24x2xi32>
// CHECK-DAG: %[[NEW:.*]] = moe.allocate() {{.*}} : memref<24x16xbf16>
// CHECK-DAG: linalg.copy ins(%[[ROWS]] : memref<24x16xbf16>) outs(%[[NEW]] : memref<24x16xbf16>)
// CHECK-NOT: linalg.copy
// CHECK: ep.dispatch {{.*}} outs(%[[NEW]],
// CHECK-NEXT: linalg.add ins(%[[ROWS]], %[[NEW]] : memref<24x16xbf16>, memref<24x16xbf16>) outs(%[[SUM]] : memref<24x16xbf16>)
func.func @destination_is_read_later(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %ids: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %rows: tensor<24x16xbf16>,
                                     %sum: tensor<24x16xbf16>, %ctx: !moe.context) -> tensor<24x16xbf16> {
  %offsets = tensor.empty() : tensor<5xi32>
  %experts = tensor.empty() : tensor<4xi32>
  %sources = tensor.empty() : tensor<24x2xi32>
  %0:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<24x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<24x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
    -> tensor<24x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<24x2xi32>
  %1 = linalg.add ins(%rows, %0#0 : tensor<24x16xbf16>, tensor<24x16xbf16>) outs(%sum : tensor<24x16xbf16>) -> tensor<24x16xbf16>
  return %1 : tensor<24x16xbf16>
}

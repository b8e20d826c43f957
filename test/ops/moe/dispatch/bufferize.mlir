// RUN: moe-opt %s %bufferize | FileCheck %s

// Workspace and metainfo are the caller's memory, as they are; so are the destinations.
// CHECK-LABEL: func.func @destinations_of_the_caller
// CHECK-SAME: %[[WS:[^:]*]]: memref<?xi8>, %[[INFO:[^:]*]]: memref<16xi64, #moe.host>,
// CHECK-SAME: %[[R0:[^:]*]]: memref<4x?x16xbf16>, %[[R1:[^:]*]]: memref<4x?xf32>, %[[COUNTS:[^:]*]]: memref<4xi32>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.dispatch {{.*}} workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) {{.*}} outs(%[[R0]], %[[R1]] : memref<4x?x16xbf16>, memref<4x?xf32>) recv_counts(%[[COUNTS]] : memref<4xi32>) {{.*}} -> (i64)
// CHECK-NEXT: return
func.func @destinations_of_the_caller(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %s: tensor<?xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                      %r0: tensor<4x?x16xbf16>, %r1: tensor<4x?xf32>, %counts: tensor<4xi32>, %ctx: !moe.context)
    -> (tensor<4x?x16xbf16>, tensor<4x?xf32>, tensor<4xi32>) {
  %0:4 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x, %s : tensor<?x16xbf16>, tensor<?xf32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%r0, %r1 : tensor<4x?x16xbf16>, tensor<4x?xf32>)
    recv_counts(%counts : tensor<4xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x?x16xbf16>, tensor<4x?xf32>, tensor<4xi32>, i64)
  return %0#0, %0#1, %0#2 : tensor<4x?x16xbf16>, tensor<4x?xf32>, tensor<4xi32>
}

// Rows beyond the counts keep their contents, so what was written into the destination must be there.
// CHECK-LABEL: func.func @contents_stay
// CHECK-SAME: %[[ROWS:[^:]*]]: memref<?x16xbf16>, %[[OFFSETS:[^:]*]]: memref<3xi32>, %{{[^:]*}}: !moe.context)
// CHECK-NOT: alloc
// CHECK: linalg.fill {{.*}} outs(%[[ROWS]] : memref<?x16xbf16>)
// CHECK-NEXT: moe.dispatch {{.*}} outs(%[[ROWS]] : memref<?x16xbf16>) offsets(%[[OFFSETS]] : memref<3xi32>)
func.func @contents_stay(%ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %x: tensor<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                         %rows: tensor<?x16xbf16>, %offsets: tensor<3xi32>, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<3xi32>) {
  %zero = arith.constant 0.0 : bf16
  %zeros = linalg.fill ins(%zero : bf16) outs(%rows : tensor<?x16xbf16>) -> tensor<?x16xbf16>
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) topk_weights(%w : tensor<?x2xf32>) payloads(%x : tensor<?x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%zeros : tensor<?x16xbf16>) offsets(%offsets : tensor<3xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (tensor<?x16xbf16>, tensor<3xi32>, i64)
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<3xi32>
}

// A destination that someone else still reads is copied before; the counts, which are all written, are only another buffer.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %[[RECV:[^:]*]]: memref<4x8x16xf32>, %[[OTHER:[^:]*]]: memref<4x8x16xf32>, %[[COUNTS:[^:]*]]: memref<4xi32>, %[[SUM:[^:]*]]: memref<4xi32>, %{{[^:]*}}: !moe.context)
// CHECK-DAG: %[[COPY:.*]] = moe.allocate() {{.*}} : memref<4x8x16xf32>
// CHECK-DAG: %[[NEW:.*]] = moe.allocate() {{.*}} : memref<4xi32>
// CHECK-DAG: linalg.copy ins(%[[RECV]] : memref<4x8x16xf32>) outs(%[[COPY]] : memref<4x8x16xf32>)
// CHECK: moe.dispatch {{.*}} outs(%[[COPY]] : memref<4x8x16xf32>) recv_counts(%[[NEW]] : memref<4xi32>)
// CHECK: linalg.add ins(%[[RECV]], %[[COPY]] : memref<4x8x16xf32>, memref<4x8x16xf32>) outs(%[[OTHER]] : memref<4x8x16xf32>)
// CHECK: linalg.add ins(%[[COUNTS]], %[[NEW]] : memref<4xi32>, memref<4xi32>) outs(%[[SUM]] : memref<4xi32>)
func.func @destination_is_read_later(%ids: tensor<?x2xi32>, %x: tensor<?x16xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                     %recv: tensor<4x8x16xf32>, %other: tensor<4x8x16xf32>, %counts: tensor<4xi32>, %sum: tensor<4xi32>, %ctx: !moe.context)
    -> (tensor<4x8x16xf32>, tensor<4xi32>) {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xf32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x8x16xf32>)
    recv_counts(%counts : tensor<4xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xf32>, tensor<4xi32>, i64)
  %1 = linalg.add ins(%recv, %0#0 : tensor<4x8x16xf32>, tensor<4x8x16xf32>) outs(%other : tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
  %2 = linalg.add ins(%counts, %0#1 : tensor<4xi32>, tensor<4xi32>) outs(%sum : tensor<4xi32>) -> tensor<4xi32>
  return %1, %2 : tensor<4x8x16xf32>, tensor<4xi32>
}

// The same value as two destinations becomes two buffers.
// CHECK-LABEL: func.func @destination_twice
// CHECK-SAME: %[[RECV:[^:]*]]: memref<4x8x16xf32>, %[[OTHER:[^:]*]]: memref<4x8x16xf32>, %{{[^:]*}}: !moe.context)
// CHECK: %[[COPY:.*]] = moe.allocate() {{.*}} : memref<4x8x16xf32>
// CHECK: linalg.copy ins(%[[RECV]] : memref<4x8x16xf32>) outs(%[[COPY]] : memref<4x8x16xf32>)
// CHECK: moe.dispatch
// CHECK-SAME: outs(%[[FIRST:.*]], %[[SECOND:.*]] : memref<4x8x16xf32>, memref<4x8x16xf32>)
// CHECK: linalg.sub ins(%[[FIRST]], %[[SECOND]] :
func.func @destination_twice(%ids: tensor<?x2xi32>, %x: tensor<?x16xf32>, %y: tensor<?x16xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                             %recv: tensor<4x8x16xf32> {moe.role = "inout"}, %other: tensor<4x8x16xf32>, %ctx: !moe.context) -> tensor<4x8x16xf32> {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x, %y : tensor<?x16xf32>, tensor<?x16xf32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv, %recv : tensor<4x8x16xf32>, tensor<4x8x16xf32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xf32>, tensor<4x8x16xf32>, i64)
  %1 = linalg.sub ins(%0#0, %0#1 : tensor<4x8x16xf32>, tensor<4x8x16xf32>) outs(%other : tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
  return %1 : tensor<4x8x16xf32>
}

// The statistics of all ranks are the last destination, and all written.
// CHECK-LABEL: func.func @statistics
// CHECK-SAME: %[[STATS:[^:]*]]: memref<8xi32>, %[[ALL:[^:]*]]: memref<4x8xi32>, %[[SUM:[^:]*]]: memref<4x8xi32>, %{{[^:]*}}: !moe.context)
// CHECK: %[[NEW:.*]] = moe.allocate() {{.*}} : memref<4x8xi32>
// CHECK-NOT: linalg.copy
// CHECK: moe.dispatch {{.*}} eplb_stats(%[[STATS]] : memref<8xi32>) {{.*}} eplb_gathered(%[[NEW]] : memref<4x8xi32>)
// CHECK: linalg.add ins(%[[ALL]], %[[NEW]] : memref<4x8xi32>, memref<4x8xi32>) outs(%[[SUM]] : memref<4x8xi32>)
func.func @statistics(%ids: tensor<?x2xi32>, %x: tensor<?x16xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %recv: tensor<4x8x16xf32>,
                      %stats: tensor<8xi32>, %all: tensor<4x8xi32>, %sum: tensor<4x8xi32>, %ctx: !moe.context) -> (tensor<4x8x16xf32>, tensor<4x8xi32>) {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xf32>) eplb_stats(%stats : tensor<8xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv : tensor<4x8x16xf32>) eplb_gathered(%all : tensor<4x8xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xf32>, tensor<4x8xi32>, i64)
  %1 = linalg.add ins(%all, %0#1 : tensor<4x8xi32>, tensor<4x8xi32>) outs(%sum : tensor<4x8xi32>) -> tensor<4x8xi32>
  return %0#0, %1 : tensor<4x8x16xf32>, tensor<4x8xi32>
}

// A mask of ranks is a number: nothing of it is bufferized, and dispatch and combine keep it.
// CHECK-LABEL: func.func @active_ranks
// CHECK-SAME: %[[MASK:[^:]*]]: i64, %[[RECV:[^:]*]]: memref<4x8x16xbf16>, %[[OUT:[^:]*]]: memref<?x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.dispatch {{.*}} active_ranks(%[[MASK]]) outs(%[[RECV]] : memref<4x8x16xbf16>)
// CHECK-NEXT: moe.combine payload(%[[RECV]] : memref<4x8x16xbf16>) {{.*}} active_ranks(%[[MASK]]) outs(%[[OUT]] : memref<?x16xbf16>)
// CHECK-NEXT: return
func.func @active_ranks(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %mask: i64,
                        %recv: tensor<4x8x16xbf16>, %out: tensor<?x16xbf16>, %ctx: !moe.context) -> (tensor<4x8x16xbf16>, tensor<?x16xbf16>) {
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) active_ranks(%mask) outs(%recv : tensor<4x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  %1 = moe.combine payload(%0#0 : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    active_ranks(%mask) outs(%out : tensor<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xbf16>
  return %0#0, %1 : tensor<4x8x16xbf16>, tensor<?x16xbf16>
}

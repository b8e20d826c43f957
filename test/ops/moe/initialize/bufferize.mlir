// RUN: moe-opt %s %bufferize | FileCheck %s --implicit-check-not=alloc --implicit-check-not=copy

// A workspace is never copied or replaced: peers write to the caller's slab, also where the rest of the function is on tensors.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: %[[WS:[^:]*]]: memref<?xi8>, %[[INFO:[^:]*]]: memref<16xi64, #moe.host>, %{{[^:]*}}: index, %[[RECV:[^:]*]]: memref<4x?x16xbf16>, %[[OUT:[^:]*]]: memref<?x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.initialize workspace(%[[WS]] : memref<?xi8>) metainfo(%[[INFO]] : memref<16xi64, #moe.host>)
// CHECK-NEXT: moe.dispatch {{.*}} workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) {{.*}} outs(%[[RECV]] : memref<4x?x16xbf16>)
// CHECK-NEXT: moe.combine payload(%[[RECV]] : memref<4x?x16xbf16>) workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) {{.*}} outs(%[[OUT]] : memref<?x16xbf16>)
// CHECK-NEXT: return
func.func @layer(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %recv: tensor<4x?x16xbf16>,
                 %out: tensor<?x16xbf16>, %ctx: !moe.context) -> (tensor<4x?x16xbf16>, tensor<?x16xbf16>) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 32 : i64}
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%recv : tensor<4x?x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x?x16xbf16>, i64)
  %1 = moe.combine payload(%0#0 : tensor<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xbf16>
  return %0#0, %1 : tensor<4x?x16xbf16>, tensor<?x16xbf16>
}

// One workspace after the other, and the first one again: each op has the memory that its text names.
// CHECK-LABEL: func.func @two_workspaces
// CHECK-SAME: (%[[A:[^:]*]]: memref<?xi8>, %[[A_INFO:[^:]*]]: memref<16xi64, #moe.host>, %[[B:[^:]*]]: memref<?xi8>, %[[B_INFO:[^:]*]]: memref<16xi64, #moe.host>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.initialize workspace(%[[A]] : memref<?xi8>) metainfo(%[[A_INFO]] : memref<16xi64, #moe.host>)
// CHECK-NEXT: moe.initialize workspace(%[[B]] : memref<?xi8>) metainfo(%[[B_INFO]] : memref<16xi64, #moe.host>)
// CHECK-NEXT: moe.initialize workspace(%[[A]] : memref<?xi8>) metainfo(%[[A_INFO]] : memref<16xi64, #moe.host>)
// CHECK-NEXT: return
func.func @two_workspaces(%a: memref<?xi8>, %a_info: memref<16xi64, #moe.host>, %b: memref<?xi8>, %b_info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%a : memref<?xi8>) metainfo(%a_info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 32 : i64}
  moe.initialize workspace(%b : memref<?xi8>) metainfo(%b_info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 32 : i64}
  moe.initialize workspace(%a : memref<?xi8>) metainfo(%a_info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 32 : i64}
  return
}

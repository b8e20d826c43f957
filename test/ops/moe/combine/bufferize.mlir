// RUN: moe-opt %s %bufferize | FileCheck %s --implicit-check-not=alloc --implicit-check-not=copy

// Workspace and metainfo are the caller's memory, as they are; so is the destination.
// CHECK-LABEL: func.func @destination_of_the_caller
// CHECK-SAME: (%[[X:[^:]*]]: memref<4x?x16xbf16>, %[[WS:[^:]*]]: memref<?xi8>, %[[INFO:[^:]*]]: memref<16xi64, #moe.host>,
// CHECK-SAME: %[[OUT:[^:]*]]: memref<?x16xf32>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.combine payload(%[[X]] : memref<4x?x16xbf16>) workspace(%[[WS]], %[[INFO]] : memref<?xi8>, memref<16xi64, #moe.host>) {{.*}} outs(%[[OUT]] : memref<?x16xf32>)
// CHECK-NEXT: return
func.func @destination_of_the_caller(%x: tensor<4x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<?x16xf32>,
                                     %ctx: !moe.context) -> tensor<?x16xf32> {
  %0 = moe.combine payload(%x : tensor<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// Codes and scales are two destinations of the caller.
// CHECK-LABEL: func.func @codes
// CHECK-SAME: %[[OUT:[^:]*]]: memref<?x8xi8>, %[[SCALES:[^:]*]]: memref<?x1xf8E4M3FN>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.combine {{.*}} outs(%[[OUT]] : memref<?x8xi8>) output_scales(%[[SCALES]] : memref<?x1xf8E4M3FN>)
// CHECK-NEXT: return
func.func @codes(%x: tensor<4x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<?x8xi8>, %scales: tensor<?x1xf8E4M3FN>,
                 %ctx: !moe.context) -> (tensor<?x8xi8>, tensor<?x1xf8E4M3FN>) {
  %0:2 = moe.combine payload(%x : tensor<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x8xi8>) output_scales(%scales : tensor<?x1xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, output_format = "nvfp4"}
    -> tensor<?x8xi8>, tensor<?x1xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x8xi8>, tensor<?x1xf8E4M3FN>
}

// A destination that someone else still reads is another buffer, without a copy: all of it is written.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %[[OUT:[^:]*]]: memref<5x16xf32>, %[[SUM:[^:]*]]: memref<5x16xf32>, %{{[^:]*}}: !moe.context)
// CHECK: %[[NEW:.*]] = moe.allocate() {{.*}} : memref<5x16xf32>
// CHECK-NEXT: moe.combine {{.*}} outs(%[[NEW]] : memref<5x16xf32>)
// CHECK-NEXT: linalg.add ins(%[[OUT]], %[[NEW]] : memref<5x16xf32>, memref<5x16xf32>) outs(%[[SUM]] : memref<5x16xf32>)
func.func @destination_is_read_later(%x: tensor<64x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<5x16xf32>,
                                     %sum: tensor<5x16xf32>, %ctx: !moe.context) -> tensor<5x16xf32> {
  %0 = moe.combine payload(%x : tensor<64x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped"} -> tensor<5x16xf32>
  %1 = linalg.add ins(%out, %0 : tensor<5x16xf32>, tensor<5x16xf32>) outs(%sum : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %1 : tensor<5x16xf32>
}

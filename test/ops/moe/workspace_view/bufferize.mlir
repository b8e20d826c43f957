// RUN: moe-opt %s %bufferize | FileCheck %s --implicit-check-not=alloc --implicit-check-not=copy

// The experts write where the combine sends from: the graph is on tensors, and nothing is moved.
// CHECK-LABEL: func.func @experts_in_workspace
// CHECK-SAME: %[[WS:[^:]*]]: memref<?xi8>,
// CHECK-SAME: %[[OUT:[^:]*]]: memref<?x32xf32>, %{{[^:]*}}: !moe.context)
// CHECK: %[[VIEW:.*]] = moe.workspace_view %[[WS]][
// CHECK: %[[ROWS:.*]] = memref.collapse_shape %[[VIEW]]
// CHECK: moe.grouped_matmul {{.*}} outs(%[[ROWS]] :
// CHECK: moe.combine payload(%[[VIEW]] : memref<2x8x32xf32>) workspace(%[[WS]],
// CHECK-SAME: outs(%[[OUT]] : memref<?x32xf32>)
func.func @experts_in_workspace(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %ws: memref<?xi8>,
                                %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<?x32xf32>, %ctx: !moe.context) -> tensor<?x32xf32> {
  %view = moe.workspace_view %ws[%offset : i64] sizes() context(%ctx) : memref<?xi8> to memref<2x8x32xf32>
  %area = bufferization.to_tensor %view restrict writable : memref<2x8x32xf32> to tensor<2x8x32xf32>
  %flat = tensor.collapse_shape %area [[0, 1], [2]] : tensor<2x8x32xf32> into tensor<16x32xf32>
  %0 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    outs(%flat : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  %payload = tensor.expand_shape %0 [[0, 1], [2]] output_shape [2, 8, 32] : tensor<16x32xf32> into tensor<2x8x32xf32>
  %1 = moe.combine payload(%payload : tensor<2x8x32xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x32xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, payload_in_workspace = true} -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}

// RUN: moe-opt %s %bufferize | FileCheck %s

// CHECK-LABEL: func.func @destination_of_the_caller
// CHECK-SAME: (%[[SOURCE:[^:]*]]: memref<2x256x16xi8>, %[[PREPARED:[^:]*]]: memref<4x16x128xi8>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.prepare_nvfp4 source(%[[SOURCE]] : memref<2x256x16xi8>) outs(%[[PREPARED]] : memref<4x16x128xi8>)
// CHECK-NEXT: return
func.func @destination_of_the_caller(%source: tensor<2x256x16xi8>, %prepared: tensor<4x16x128xi8>, %ctx: !moe.context) -> tensor<4x16x128xi8> {
  %0 = moe.prepare_nvfp4 source(%source : tensor<2x256x16xi8>) outs(%prepared : tensor<4x16x128xi8>) context(%ctx) {layout = "w1_scales"} -> tensor<4x16x128xi8>
  return %0 : tensor<4x16x128xi8>
}

// All of the destination is written: what it held does not matter.
// CHECK-LABEL: func.func @contents_go
// CHECK-NOT: linalg.copy
// CHECK: moe.prepare_nvfp4
func.func @contents_go(%source: tensor<8x128x128xi8>, %prepared: tensor<8x128x128xi8>, %ctx: !moe.context) -> tensor<8x128x128xi8> {
  %empty = tensor.empty() : tensor<8x128x128xi8>
  %0 = moe.prepare_nvfp4 source(%source : tensor<8x128x128xi8>) outs(%empty : tensor<8x128x128xi8>) context(%ctx) {layout = "w2_data_k256"} -> tensor<8x128x128xi8>
  %1 = moe.prepare_nvfp4 source(%0 : tensor<8x128x128xi8>) outs(%prepared : tensor<8x128x128xi8>) context(%ctx) {layout = "w1_data"} -> tensor<8x128x128xi8>
  return %1 : tensor<8x128x128xi8>
}

// CHECK-LABEL: func.func @fragments
// CHECK-SAME: (%[[SOURCE:[^:]*]]: memref<2x64x64xi8>, %[[SCALES:[^:]*]]: memref<2x64x8xi8>, %[[PREPARED:[^:]*]]: memref<2x36x128xi8>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.prepare_nvfp4 source(%[[SOURCE]] : memref<2x64x64xi8>) scales(%[[SCALES]] : memref<2x64x8xi8>) outs(%[[PREPARED]] : memref<2x36x128xi8>)
// CHECK-NEXT: return
func.func @fragments(%source: tensor<2x64x64xi8>, %scales: tensor<2x64x8xi8>, %prepared: tensor<2x36x128xi8>, %ctx: !moe.context) -> tensor<2x36x128xi8> {
  %0 = moe.prepare_nvfp4 source(%source : tensor<2x64x64xi8>) scales(%scales : tensor<2x64x8xi8>) outs(%prepared : tensor<2x36x128xi8>) context(%ctx) {layout = "w2_fragments"} -> tensor<2x36x128xi8>
  return %0 : tensor<2x36x128xi8>
}

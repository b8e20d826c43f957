// RUN: moe-opt %s %bufferize | FileCheck %s

// The caller's buffers are written, and nothing else is there.
// CHECK-LABEL: func.func @destinations_of_the_caller
// CHECK-SAME: (%[[X:.*]]: memref<?x64xbf16>, %[[G:.*]]: memref<1xf32>, %[[V:.*]]: memref<?x32xi8>, %[[S:.*]]: memref<?x4xf8E4M3FN>, %[[CTX:.*]]: !moe.context)
// CHECK-NEXT: moe.quantize input(%[[X]] : memref<?x64xbf16>) global_scale(%[[G]] : memref<1xf32>) outs(%[[V]] : memref<?x32xi8>) scales(%[[S]] : memref<?x4xf8E4M3FN>) context(%[[CTX]]) {fast_reciprocal = true, format = "nvfp4"}
// CHECK-NEXT: return
func.func @destinations_of_the_caller(%x: tensor<?x64xbf16>, %g: tensor<1xf32>, %v: tensor<?x32xi8>, %s: tensor<?x4xf8E4M3FN>, %ctx: !moe.context)
    -> (tensor<?x32xi8>, tensor<?x4xf8E4M3FN>) {
  %0:2 = moe.quantize input(%x : tensor<?x64xbf16>) global_scale(%g : tensor<1xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xf8E4M3FN>) context(%ctx)
    {format = "nvfp4", fast_reciprocal = true} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
}

// Columns of a wider matrix are read where they are.
// CHECK-LABEL: func.func @columns
// CHECK-SAME: (%[[X:.*]]: memref<?x192xbf16>, %[[V:.*]]: memref<?x64xf8E4M3FN>, %[[S:.*]]: memref<?x1xf32>, %{{.*}}: !moe.context)
// CHECK-NOT: copy
// CHECK-NOT: allocate
// CHECK: %[[PART:.*]] = memref.subview %[[X]][0, 128] [%{{.*}}, 64] [1, 1] : memref<?x192xbf16> to memref<?x64xbf16, strided<[192, 1], offset: 128>>
// CHECK-NEXT: moe.quantize input(%[[PART]] : memref<?x64xbf16, strided<[192, 1], offset: 128>>) outs(%[[V]] : memref<?x64xf8E4M3FN>) scales(%[[S]] : memref<?x1xf32>)
// CHECK-NEXT: return
func.func @columns(%x: tensor<?x192xbf16>, %v: tensor<?x64xf8E4M3FN>, %s: tensor<?x1xf32>, %ctx: !moe.context) -> (tensor<?x64xf8E4M3FN>, tensor<?x1xf32>) {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x192xbf16>
  %part = tensor.extract_slice %x[0, 128] [%t, 64] [1, 1] : tensor<?x192xbf16> to tensor<?x64xbf16>
  %0:2 = moe.quantize input(%part : tensor<?x64xbf16>) outs(%v : tensor<?x64xf8E4M3FN>) scales(%s : tensor<?x1xf32>) context(%ctx) {format = "fp8_token"}
    -> tensor<?x64xf8E4M3FN>, tensor<?x1xf32>
  return %0#0, %0#1 : tensor<?x64xf8E4M3FN>, tensor<?x1xf32>
}

// A destination that someone else still reads is another buffer, without a copy: all of it is written, padding too.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %[[X:[^:]*]]: memref<4x64xf32>, %[[V:[^:]*]]: memref<4x32xi8>, %[[S:[^:]*]]: memref<128x4xi8>, %[[OLD:[^:]*]]: memref<128x4xi8>
// CHECK: %[[BUFFER:.*]] = moe.allocate() {{.*}} : memref<128x4xi8>
// CHECK-NOT: copy
// CHECK: moe.quantize {{.*}} outs(%[[V]] : memref<4x32xi8>) scales(%[[BUFFER]] :
// CHECK: linalg.copy ins(%[[S]] : memref<128x4xi8>) outs(%[[OLD]] : memref<128x4xi8>)
// CHECK: linalg.copy ins(%[[BUFFER]] : memref<128x4xi8>) outs(%[[S]] : memref<128x4xi8>)
func.func @destination_is_read_later(%x: tensor<4x64xf32>, %v: tensor<4x32xi8>, %s: tensor<128x4xi8> {moe.role = "inout"}, %old: tensor<128x4xi8>, %ctx: !moe.context)
    -> (tensor<4x32xi8>, tensor<128x4xi8>, tensor<128x4xi8>) {
  %0:2 = moe.quantize input(%x : tensor<4x64xf32>) outs(%v : tensor<4x32xi8>) scales(%s : tensor<128x4xi8>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
    -> tensor<4x32xi8>, tensor<128x4xi8>
  %1 = linalg.copy ins(%s : tensor<128x4xi8>) outs(%old : tensor<128x4xi8>) -> tensor<128x4xi8>
  %2 = linalg.copy ins(%0#1 : tensor<128x4xi8>) outs(%s : tensor<128x4xi8>) -> tensor<128x4xi8>
  return %0#0, %2, %1 : tensor<4x32xi8>, tensor<128x4xi8>, tensor<128x4xi8>
}

// RUN: moe-opt %s --canonicalize %bufferize | FileCheck %s

// The caller's buffer is written, and nothing else is there.
// CHECK-LABEL: func.func @destination_of_the_caller
// CHECK-SAME: (%[[V:.*]]: memref<?x32xi8>, %[[S:.*]]: memref<?x4xf8E4M3FN>, %[[G:.*]]: memref<1xf32>, %[[Y:.*]]: memref<?x64xbf16>, %[[CTX:.*]]: !moe.context)
// CHECK-NEXT: moe.dequantize values(%[[V]] : memref<?x32xi8>) scales(%[[S]] : memref<?x4xf8E4M3FN>) global_scale(%[[G]] : memref<1xf32>) outs(%[[Y]] : memref<?x64xbf16>) context(%[[CTX]]) {format = "nvfp4"}
// CHECK-NEXT: return
func.func @destination_of_the_caller(%v: tensor<?x32xi8>, %s: tensor<?x4xf8E4M3FN>, %g: tensor<1xf32>, %y: tensor<?x64xbf16>, %ctx: !moe.context) -> tensor<?x64xbf16> {
  %0 = moe.dequantize values(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xf8E4M3FN>) global_scale(%g : tensor<1xf32>) outs(%y : tensor<?x64xbf16>) context(%ctx)
    {format = "nvfp4"} -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// Columns of a wider matrix of codes are read where they are.
// CHECK-LABEL: func.func @columns
// CHECK-SAME: (%[[V:.*]]: memref<6x192xf8E4M3FN>, %[[S:.*]]: memref<6x2xf8E8M0FNU>, %[[Y:.*]]: memref<6x64xf16>, %{{.*}}: !moe.context)
// CHECK-NEXT: %[[PART:.*]] = memref.subview %[[V]][0, 64] [6, 64] [1, 1] : memref<6x192xf8E4M3FN> to memref<6x64xf8E4M3FN, strided<[192, 1], offset: 64>>
// CHECK-NEXT: moe.dequantize values(%[[PART]] : memref<6x64xf8E4M3FN, strided<[192, 1], offset: 64>>) scales(%[[S]] : memref<6x2xf8E8M0FNU>) outs(%[[Y]] : memref<6x64xf16>)
// CHECK-NEXT: return
func.func @columns(%v: tensor<6x192xf8E4M3FN>, %s: tensor<6x2xf8E8M0FNU>, %y: tensor<6x64xf16>, %ctx: !moe.context) -> tensor<6x64xf16> {
  %part = tensor.extract_slice %v[0, 64] [6, 64] [1, 1] : tensor<6x192xf8E4M3FN> to tensor<6x64xf8E4M3FN>
  %0 = moe.dequantize values(%part : tensor<6x64xf8E4M3FN>) scales(%s : tensor<6x2xf8E8M0FNU>) outs(%y : tensor<6x64xf16>) context(%ctx) {format = "mxfp8"} -> tensor<6x64xf16>
  return %0 : tensor<6x64xf16>
}

// What canonicalisation makes has a buffer of the narrow type, and the wide one is gone.
// CHECK-LABEL: func.func @rounded
// CHECK-SAME: memref<?x1xf32>, %[[Y:[^:]*]]: memref<?x64xbf16>
// CHECK-NEXT: %[[BUFFER:.*]] = moe.allocate(%{{.*}}) {{.*}} : memref<?x64xbf16>
// CHECK-NEXT: moe.dequantize {{.*}} outs(%[[BUFFER]] : memref<?x64xbf16>)
// CHECK-NEXT: linalg.copy ins(%[[BUFFER]] : memref<?x64xbf16>) outs(%[[Y]] : memref<?x64xbf16>)
// CHECK-NEXT: return
func.func @rounded(%t: index, %v: tensor<?x64xf8E4M3FN>, %s: tensor<?x1xf32>, %y: tensor<?x64xbf16>, %ctx: !moe.context) -> tensor<?x64xbf16> {
  %wide = tensor.empty(%t) : tensor<?x64xf32>
  %0 = moe.dequantize values(%v : tensor<?x64xf8E4M3FN>) scales(%s : tensor<?x1xf32>) outs(%wide : tensor<?x64xf32>) context(%ctx) {format = "fp8_token"} -> tensor<?x64xf32>
  %1 = arith.truncf %0 : tensor<?x64xf32> to tensor<?x64xbf16>
  %2 = linalg.copy ins(%1 : tensor<?x64xbf16>) outs(%y : tensor<?x64xbf16>) -> tensor<?x64xbf16>
  return %2 : tensor<?x64xbf16>
}

// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @nvfp4
// CHECK: moe.dequantize values(%{{.*}} : tensor<?x32xui8>) scales(%{{.*}} : tensor<?x4xui8>) global_scale(%{{.*}} : tensor<1xf32>) outs(%{{.*}} : tensor<?x64xbf16>) context(%{{.*}}) {format = "nvfp4", packing = "mega", scale_layout = "128x4"} -> tensor<?x64xbf16>
func.func @nvfp4(%v: tensor<?x32xui8>, %s: tensor<?x4xui8>, %g: tensor<1xf32>, %y: tensor<?x64xbf16>, %ctx: !moe.context) -> tensor<?x64xbf16> {
  %0 = moe.dequantize values(%v : tensor<?x32xui8>) scales(%s : tensor<?x4xui8>) global_scale(%g : tensor<1xf32>) outs(%y : tensor<?x64xbf16>) context(%ctx)
    {format = "nvfp4", scale_layout = "128x4", packing = "mega"} -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// Parameters at their defaults are not printed.
// CHECK-LABEL: func.func @nvfp4_defaults
// CHECK: moe.dequantize values({{.*}}) scales({{.*}}) outs({{.*}}) context(%{{.*}}) {format = "nvfp4"} -> tensor<3x16xf32>
func.func @nvfp4_defaults(%v: tensor<3x8xi8>, %s: tensor<3x1xf8E4M3FN>, %y: tensor<3x16xf32>, %ctx: !moe.context) -> tensor<3x16xf32> {
  %0 = moe.dequantize values(%v : tensor<3x8xi8>) scales(%s : tensor<3x1xf8E4M3FN>) outs(%y : tensor<3x16xf32>) context(%ctx)
    {format = "nvfp4", scale_layout = "linear", packing = "low_first"} -> tensor<3x16xf32>
  return %0 : tensor<3x16xf32>
}

// CHECK-LABEL: func.func @mxfp4
// CHECK: moe.dequantize {{.*}} {format = "mxfp4", scale_layout = "8x4"} -> tensor<?x?xf16>
func.func @mxfp4(%v: tensor<?x?xi8>, %s: tensor<?x?xf8E8M0FNU>, %y: tensor<?x?xf16>, %ctx: !moe.context) -> tensor<?x?xf16> {
  %0 = moe.dequantize values(%v : tensor<?x?xi8>) scales(%s : tensor<?x?xf8E8M0FNU>) outs(%y : tensor<?x?xf16>) context(%ctx) {format = "mxfp4", scale_layout = "8x4"} -> tensor<?x?xf16>
  return %0 : tensor<?x?xf16>
}

// Rows of the codes may lie apart.
// CHECK-LABEL: func.func @mxfp8
// CHECK: moe.dequantize values(%{{.*}} : memref<?x96xf8E4M3FN, strided<[?, 1], offset: ?>>) {{.*}} {format = "mxfp8"}{{$}}
func.func @mxfp8(%v: memref<?x96xf8E4M3FN, strided<[?, 1], offset: ?>>, %s: memref<?x3xi8>, %y: memref<?x96xf32>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<?x96xf8E4M3FN, strided<[?, 1], offset: ?>>) scales(%s : memref<?x3xi8>) outs(%y : memref<?x96xf32>) context(%ctx) {format = "mxfp8"}
  return
}

// CHECK-LABEL: func.func @fp8_block
// CHECK: moe.dequantize {{.*}} {format = "fp8_block", scale_layout = "transposed"}
func.func @fp8_block(%v: memref<5x200xi8>, %s: memref<2x5xf32>, %y: memref<5x200xbf16>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<5x200xi8>) scales(%s : memref<2x5xf32>) outs(%y : memref<5x200xbf16>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"}
  return
}

// CHECK-LABEL: func.func @fp8_token
// CHECK: moe.dequantize {{.*}} {format = "fp8_token"}
func.func @fp8_token(%v: memref<0x7xf8E4M3FN>, %s: memref<0x1xf32>, %y: memref<0x7xf16>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<0x7xf8E4M3FN>) scales(%s : memref<0x1xf32>) outs(%y : memref<0x7xf16>) context(%ctx) {format = "fp8_token"}
  return
}

// CHECK-LABEL: func.func @fp8_tensor
// CHECK: moe.dequantize values({{.*}}) scales({{.*}}) outs({{.*}}) context(%{{.*}}) {format = "fp8_tensor"}
// CHECK: moe.dequantize values(%{{[^ ]*}} : memref<?x7xi8>) global_scale({{.*}}) outs({{.*}}) context(%{{.*}}) {format = "fp8_tensor"}
func.func @fp8_tensor(%v: memref<?x7xi8>, %s: memref<1x1xf32>, %g: memref<1xf32>, %y: memref<?x7xf32>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<?x7xi8>) scales(%s : memref<1x1xf32>) outs(%y : memref<?x7xf32>) context(%ctx) {format = "fp8_tensor"}
  moe.dequantize values(%v : memref<?x7xi8>) global_scale(%g : memref<1xf32>) outs(%y : memref<?x7xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

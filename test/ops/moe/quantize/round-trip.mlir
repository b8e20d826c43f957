// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @nvfp4
// CHECK: moe.quantize input(%{{.*}} : tensor<?x64xbf16>) global_scale(%{{.*}} : tensor<1xf32>) outs(%{{.*}} : tensor<?x32xi8>) scales(%{{.*}} : tensor<?x4xf8E4M3FN>) context(%{{.*}}) {fast_reciprocal = true, format = "nvfp4", packing = "mega", scale_layout = "8x4"} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
func.func @nvfp4(%x: tensor<?x64xbf16>, %g: tensor<1xf32>, %v: tensor<?x32xi8>, %s: tensor<?x4xf8E4M3FN>, %ctx: !moe.context) -> (tensor<?x32xi8>, tensor<?x4xf8E4M3FN>) {
  %0:2 = moe.quantize input(%x : tensor<?x64xbf16>) global_scale(%g : tensor<1xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xf8E4M3FN>) context(%ctx)
    {format = "nvfp4", scale_layout = "8x4", packing = "mega", fast_reciprocal = true} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
}

// Parameters at their defaults are not printed.
// CHECK-LABEL: func.func @nvfp4_defaults
// CHECK: moe.quantize input({{.*}}) outs({{.*}}) scales({{.*}}) context(%{{.*}}) {format = "nvfp4"} -> tensor<3x8xui8>, tensor<3x1xui8>
func.func @nvfp4_defaults(%x: tensor<3x16xf32>, %v: tensor<3x8xui8>, %s: tensor<3x1xui8>, %ctx: !moe.context) -> tensor<3x8xui8> {
  %0:2 = moe.quantize input(%x : tensor<3x16xf32>) outs(%v : tensor<3x8xui8>) scales(%s : tensor<3x1xui8>) context(%ctx)
    {format = "nvfp4", scale_layout = "linear", packing = "low_first", scale_rounding = "up", fast_reciprocal = false} -> tensor<3x8xui8>, tensor<3x1xui8>
  return %0#0 : tensor<3x8xui8>
}

// CHECK-LABEL: func.func @mxfp4
// CHECK: moe.quantize {{.*}} {format = "mxfp4", scale_layout = "128x4", scale_rounding = "even"} -> tensor<?x?xi8>, tensor<?x?xf8E8M0FNU>
func.func @mxfp4(%x: tensor<?x?xf16>, %v: tensor<?x?xi8>, %s: tensor<?x?xf8E8M0FNU>, %ctx: !moe.context) -> (tensor<?x?xi8>, tensor<?x?xf8E8M0FNU>) {
  %0:2 = moe.quantize input(%x : tensor<?x?xf16>) outs(%v : tensor<?x?xi8>) scales(%s : tensor<?x?xf8E8M0FNU>) context(%ctx)
    {format = "mxfp4", scale_layout = "128x4", scale_rounding = "even"} -> tensor<?x?xi8>, tensor<?x?xf8E8M0FNU>
  return %0#0, %0#1 : tensor<?x?xi8>, tensor<?x?xf8E8M0FNU>
}

// CHECK-LABEL: func.func @mxfp8
// CHECK: moe.quantize {{.*}} {format = "mxfp8"}{{$}}
func.func @mxfp8(%x: memref<?x96xf32>, %v: memref<?x96xf8E4M3FN>, %s: memref<?x3xf8E8M0FNU>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<?x96xf32>) outs(%v : memref<?x96xf8E4M3FN>) scales(%s : memref<?x3xf8E8M0FNU>) context(%ctx) {format = "mxfp8"}
  return
}

// Rows of the input may lie apart; the last block of a row may be narrower; there is room for more tokens in transposed scales.
// CHECK-LABEL: func.func @fp8_block
// CHECK: moe.quantize input(%{{.*}} : memref<5x200xbf16, strided<[512, 1], offset: 8>>) outs({{.*}}) scales(%{{.*}} : memref<2x8xf32>) context(%{{.*}}) {format = "fp8_block", scale_layout = "transposed"}
func.func @fp8_block(%x: memref<5x200xbf16, strided<[512, 1], offset: 8>>, %v: memref<5x200xi8>, %s: memref<2x8xf32>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<5x200xbf16, strided<[512, 1], offset: 8>>) outs(%v : memref<5x200xi8>) scales(%s : memref<2x8xf32>) context(%ctx)
    {format = "fp8_block", scale_layout = "transposed"}
  return
}

// CHECK-LABEL: func.func @fp8_token
// CHECK: moe.quantize {{.*}} {format = "fp8_token"}
func.func @fp8_token(%x: memref<0x7xf16>, %v: memref<0x7xf8E4M3FN>, %s: memref<0x1xf32>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<0x7xf16>) outs(%v : memref<0x7xf8E4M3FN>) scales(%s : memref<0x1xf32>) context(%ctx) {format = "fp8_token"}
  return
}

// CHECK-LABEL: func.func @fp8_tensor
// CHECK: moe.quantize input({{.*}}) outs({{.*}}) scales({{.*}}) context(%{{.*}}) {format = "fp8_tensor"} -> tensor<?x7xf8E4M3FN>, tensor<1x1xf32>
// CHECK: moe.quantize input({{.*}}) global_scale({{.*}}) outs(%{{[^ ]*}} : tensor<?x7xf8E4M3FN>) context(%{{.*}}) {format = "fp8_tensor"} -> tensor<?x7xf8E4M3FN>
func.func @fp8_tensor(%x: tensor<?x7xf32>, %g: tensor<1xf32>, %v: tensor<?x7xf8E4M3FN>, %s: tensor<1x1xf32>, %ctx: !moe.context) -> (tensor<?x7xf8E4M3FN>, tensor<?x7xf8E4M3FN>) {
  %0:2 = moe.quantize input(%x : tensor<?x7xf32>) outs(%v : tensor<?x7xf8E4M3FN>) scales(%s : tensor<1x1xf32>) context(%ctx) {format = "fp8_tensor"} -> tensor<?x7xf8E4M3FN>, tensor<1x1xf32>
  %1 = moe.quantize input(%x : tensor<?x7xf32>) global_scale(%g : tensor<1xf32>) outs(%v : tensor<?x7xf8E4M3FN>) context(%ctx) {format = "fp8_tensor"} -> tensor<?x7xf8E4M3FN>
  return %0#0, %1 : tensor<?x7xf8E4M3FN>, tensor<?x7xf8E4M3FN>
}

// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.grouped_matmul rows(%{{.*}} : tensor<?x64xbf16>) offsets(%{{.*}} : tensor<?xi32>) weights(%{{.*}} : tensor<?x32x64xbf16>) outs(%{{.*}} : tensor<?x32xbf16>) context(%{{.*}}) -> tensor<?x32xbf16>
func.func @tensors(%rows: tensor<?x64xbf16>, %offsets: tensor<?xi32>, %weights: tensor<?x32x64xbf16>, %out: tensor<?x32xbf16>, %ctx: !moe.context) -> tensor<?x32xbf16> {
  %0 = moe.grouped_matmul rows(%rows : tensor<?x64xbf16>) offsets(%offsets : tensor<?xi32>) weights(%weights : tensor<?x32x64xbf16>)
    outs(%out : tensor<?x32xbf16>) context(%ctx) -> tensor<?x32xbf16>
  return %0 : tensor<?x32xbf16>
}

// Each optional operand is there or not by itself.
// CHECK-LABEL: func.func @bias
// CHECK: weights(%{{.*}}) bias(%{{.*}} : memref<4x32xf32>) outs(
func.func @bias(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %bias: memref<4x32xf32>, %out: memref<16x32xf16>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    bias(%bias : memref<4x32xf32>) outs(%out : memref<16x32xf16>) context(%ctx)
  return
}

// CHECK-LABEL: func.func @row_ids
// CHECK: weights(%{{.*}}) row_ids(%{{.*}} : memref<9xi32>) outs(
func.func @row_ids(%rows: memref<16x64xf32>, %offsets: memref<5xui32>, %weights: memref<4x32x64xf32>, %row_ids: memref<9xi32>, %out: memref<9x32xf32>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xui32>) weights(%weights : memref<4x32x64xf32>)
    row_ids(%row_ids : memref<9xi32>) outs(%out : memref<9x32xf32>) context(%ctx)
  return
}

// CHECK-LABEL: func.func @row_weights
// CHECK: weights(%{{.*}}) row_weights(%{{.*}} : memref<16xf32>) outs(
func.func @row_weights(%rows: memref<16x64xf16>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf16>, %row_weights: memref<16xf32>, %out: memref<16x32xf16>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<16x64xf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf16>)
    row_weights(%row_weights : memref<16xf32>) outs(%out : memref<16x32xf16>) context(%ctx)
  return
}

// CHECK-LABEL: func.func @everything
// CHECK: bias(%{{.*}} : tensor<?x?xbf16>) row_ids(%{{.*}} : tensor<?xui32>) row_weights(%{{.*}} : tensor<?xf32>)
// CHECK-SAME: {activation = "swiglu", alpha = 1.702000e+00 : f64, limit = 7.000000e+00 : f64}
func.func @everything(%rows: tensor<?x?xbf16>, %offsets: tensor<?xi32>, %weights: tensor<?x?x?xbf16>, %bias: tensor<?x?xbf16>, %row_ids: tensor<?xui32>,
                      %row_weights: tensor<?xf32>, %out: tensor<?x?xf32>, %ctx: !moe.context) -> tensor<?x?xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<?x?xbf16>) offsets(%offsets : tensor<?xi32>) weights(%weights : tensor<?x?x?xbf16>)
    bias(%bias : tensor<?x?xbf16>) row_ids(%row_ids : tensor<?xui32>) row_weights(%row_weights : tensor<?xf32>)
    outs(%out : tensor<?x?xf32>) context(%ctx) {activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64} -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @nvfp4
// CHECK: weights(%{{.*}} : tensor<?x?x?xi8>) scales(%{{.*}} : tensor<?x?x?xf8E4M3FN>) global_scale(%{{.*}} : tensor<?xf32>) bias(
// CHECK-SAME: {activation = "swiglu", weight_format = "nvfp4"}
func.func @nvfp4(%rows: tensor<?x?xbf16>, %offsets: tensor<?xi32>, %weights: tensor<?x?x?xi8>, %scales: tensor<?x?x?xf8E4M3FN>, %factors: tensor<?xf32>,
                 %bias: tensor<?x?xf32>, %out: tensor<?x?xbf16>, %ctx: !moe.context) -> tensor<?x?xbf16> {
  %0 = moe.grouped_matmul rows(%rows : tensor<?x?xbf16>) offsets(%offsets : tensor<?xi32>) weights(%weights : tensor<?x?x?xi8>)
    scales(%scales : tensor<?x?x?xf8E4M3FN>) global_scale(%factors : tensor<?xf32>) bias(%bias : tensor<?x?xf32>)
    outs(%out : tensor<?x?xbf16>) context(%ctx) {activation = "swiglu", weight_format = "nvfp4"} -> tensor<?x?xbf16>
  return %0 : tensor<?x?xbf16>
}

// Scales are bytes, too.
// CHECK-LABEL: func.func @mxfp4
// CHECK: weights(%{{.*}} : memref<4x32x32xui8>) scales(%{{.*}} : memref<4x32x2xui8>) outs(%{{.*}}) context(%{{.*}}) {weight_format = "mxfp4"}
func.func @mxfp4(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xui8>, %scales: memref<4x32x2xui8>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xui8>)
    scales(%scales : memref<4x32x2xui8>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "mxfp4"}
  return
}

// Zero rows, no groups, and the smallest sizes.
// CHECK-LABEL: func.func @empty
// CHECK: moe.grouped_matmul rows(%{{.*}} : memref<0x8xf32>) offsets(%{{.*}} : memref<1xi32>) weights(%{{.*}} : memref<0x16x8xf32>) outs(%{{.*}} : memref<0x8xf32>)
func.func @empty(%rows: memref<0x8xf32>, %offsets: memref<1xi32>, %weights: memref<0x16x8xf32>, %out: memref<0x8xf32>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<0x8xf32>) offsets(%offsets : memref<1xi32>) weights(%weights : memref<0x16x8xf32>)
    outs(%out : memref<0x8xf32>) context(%ctx) {activation = "swiglu", accumulator = "f32"}
  return
}

// The ops, operands and parameters that version 2 of the dialects has besides those of version 1; what is said in v1.mlir holds here.
//
// RUN: moe-opt %s > %t.text
// RUN: moe-opt %S/v2.mlirbc | diff %t.text -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.text -
// RUN: FileCheck %s --input-file=%t.text

// CHECK-LABEL: func.func @nvfp4
// CHECK: moe.quantize {{.*}} global_scale({{.*}} {fast_reciprocal = true, format = "nvfp4", packing = "mega", scale_layout = "8x4"}
// CHECK: moe.dequantize {{.*}} global_scale({{.*}} {format = "nvfp4", packing = "mega", scale_layout = "8x4"}
func.func @nvfp4(%x: tensor<?x64xbf16>, %g: tensor<1xf32>, %v: tensor<?x32xi8>, %s: tensor<?x4xf8E4M3FN>, %y: tensor<?x64xf32>, %ctx: !moe.context)
    -> (tensor<?x32xi8>, tensor<?x4xf8E4M3FN>, tensor<?x64xf32>) {
  %0:2 = moe.quantize input(%x : tensor<?x64xbf16>) global_scale(%g : tensor<1xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xf8E4M3FN>) context(%ctx)
    {format = "nvfp4", scale_layout = "8x4", packing = "mega", fast_reciprocal = true} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
  %1 = moe.dequantize values(%0#0 : tensor<?x32xi8>) scales(%0#1 : tensor<?x4xf8E4M3FN>) global_scale(%g : tensor<1xf32>) outs(%y : tensor<?x64xf32>) context(%ctx)
    {format = "nvfp4", scale_layout = "8x4", packing = "mega"} -> tensor<?x64xf32>
  return %0#0, %0#1, %1 : tensor<?x32xi8>, tensor<?x4xf8E4M3FN>, tensor<?x64xf32>
}

// CHECK-LABEL: func.func @mx
// CHECK: moe.quantize {{.*}} {format = "mxfp4", scale_layout = "128x4", scale_rounding = "even"}
// CHECK: moe.quantize {{.*}} {format = "mxfp8"}
// CHECK: moe.dequantize {{.*}} {format = "mxfp8"}
func.func @mx(%x: memref<7x96xf16, strided<[?, 1], offset: ?>>, %v: memref<7x48xui8>, %s: memref<128x4xf8E8M0FNU>, %w: memref<7x96xf8E4M3FN>, %t: memref<7x3xui8>, %y: memref<7x96xbf16>,
              %ctx: !moe.context) {
  moe.quantize input(%x : memref<7x96xf16, strided<[?, 1], offset: ?>>) outs(%v : memref<7x48xui8>) scales(%s : memref<128x4xf8E8M0FNU>) context(%ctx)
    {format = "mxfp4", scale_layout = "128x4", scale_rounding = "even"}
  moe.quantize input(%x : memref<7x96xf16, strided<[?, 1], offset: ?>>) outs(%w : memref<7x96xf8E4M3FN>) scales(%t : memref<7x3xui8>) context(%ctx) {format = "mxfp8"}
  moe.dequantize values(%w : memref<7x96xf8E4M3FN>) scales(%t : memref<7x3xui8>) outs(%y : memref<7x96xbf16>) context(%ctx) {format = "mxfp8"}
  return
}

// CHECK-LABEL: func.func @fp8
// CHECK: moe.quantize {{.*}} {format = "fp8_block", scale_layout = "transposed"}
// CHECK: moe.quantize {{.*}} {format = "fp8_token"}
// CHECK: moe.quantize {{.*}} global_scale({{.*}} outs({{[^)]*}}) context({{.*}} {format = "fp8_tensor"}
// CHECK: moe.dequantize values({{[^)]*}}) global_scale({{.*}} {format = "fp8_tensor"}
func.func @fp8(%x: memref<?x200xf32>, %g: memref<1xf32>, %v: memref<?x200xf8E4M3FN>, %s: memref<2x?xf32>, %t: memref<?x1xf32>, %y: memref<?x200xf16>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<?x200xf32>) outs(%v : memref<?x200xf8E4M3FN>) scales(%s : memref<2x?xf32>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"}
  moe.quantize input(%x : memref<?x200xf32>) outs(%v : memref<?x200xf8E4M3FN>) scales(%t : memref<?x1xf32>) context(%ctx) {format = "fp8_token"}
  moe.quantize input(%x : memref<?x200xf32>) global_scale(%g : memref<1xf32>) outs(%v : memref<?x200xf8E4M3FN>) context(%ctx) {format = "fp8_tensor"}
  moe.dequantize values(%v : memref<?x200xf8E4M3FN>) global_scale(%g : memref<1xf32>) outs(%y : memref<?x200xf16>) context(%ctx) {format = "fp8_tensor"}
  return
}

// CHECK-LABEL: func.func @dispatch_and_combine
// CHECK: moe.dispatch {{.*}} eplb_stats({{.*}} active_ranks({{.*}} eplb_gathered({{.*}} {enable_pdl = false, max_sms = 24 : i64, n_experts = 8 : i64, top_k = 2 : i64}
// CHECK: moe.combine {{.*}} active_ranks({{.*}} output_scales({{.*}} {enable_pdl = false, hidden_size = 16 : i64, max_sms = 1024 : i64, output_format = "nvfp4", output_scalar_scale = 2.500000e+00 : f64, sf_layout = "8x4", top_k = 2 : i64, use_low_precision = true}
func.func @dispatch_and_combine(%ids: tensor<?x2xi32>, %tokens: tensor<?x16xbf16>, %stats: tensor<8xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %mask: i64,
                                %rows: tensor<4x?x16xbf16>, %all: tensor<4x8xi32>, %out: tensor<?x8xi8>, %scales: tensor<?x4xf8E4M3FN>, %ctx: !moe.context)
    -> (tensor<4x8xi32>, tensor<?x8xi8>, tensor<?x4xf8E4M3FN>) {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%tokens : tensor<?x16xbf16>) eplb_stats(%stats : tensor<8xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) active_ranks(%mask) outs(%rows : tensor<4x?x16xbf16>)
    eplb_gathered(%all : tensor<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64, max_sms = 24 : i64, enable_pdl = false} -> (tensor<4x?x16xbf16>, tensor<4x8xi32>, i64)
  %1:2 = moe.combine payload(%0#0 : tensor<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#2)
    active_ranks(%mask) outs(%out : tensor<?x8xi8>) output_scales(%scales : tensor<?x4xf8E4M3FN>) context(%ctx)
    {top_k = 2 : i64, hidden_size = 16 : i64, max_sms = 1024 : i64, enable_pdl = false, use_low_precision = true, output_format = "nvfp4", sf_layout = "8x4", output_scalar_scale = 2.5 : f64}
    -> tensor<?x8xi8>, tensor<?x4xf8E4M3FN>
  return %0#1, %1#0, %1#1 : tensor<4x8xi32>, tensor<?x8xi8>, tensor<?x4xf8E4M3FN>
}

// Optional operands in part: one of those that version 1 did not have, or none.
// CHECK-LABEL: func.func @in_part
// CHECK: moe.combine {{.*}} offset(%{{[^ ]*}}) outs(%{{[^ ]*}} : memref<?x16xbf16>) context(%{{[^)]*}}) {hidden_size
// CHECK: moe.combine {{.*}} offset(%{{[^ ]*}}) active_ranks(%{{[^ ]*}}) outs(%{{[^ ]*}} : memref<?x16xbf16>) context(%{{[^)]*}}) {hidden_size
// CHECK: moe.combine {{.*}} offset(%{{[^ ]*}}) outs(%{{[^ ]*}} : memref<?x8xi8>) output_scales(%{{[^ ]*}} : memref<?x1xf8E4M3FN>) context(%{{[^)]*}}) {hidden_size
func.func @in_part(%x: memref<4x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i64, %offset: i64, %mask: i64, %out: memref<?x16xbf16>,
                   %codes: memref<?x8xi8>, %scales: memref<?x1xf8E4M3FN>, %ctx: !moe.context) {
  moe.combine payload(%x : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    outs(%out : memref<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  moe.combine payload(%x : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    active_ranks(%mask) outs(%out : memref<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  moe.combine payload(%x : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    outs(%codes : memref<?x8xi8>) output_scales(%scales : memref<?x1xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, output_format = "nvfp4"}
  return
}

// CHECK-LABEL: func.func @codes
// CHECK: moe.grouped_matmul {{.*}} scales({{.*}} global_scale({{.*}} bias({{.*}} row_ids({{.*}} row_weights({{.*}} {activation = "swiglu", weight_format = "nvfp4"}
// CHECK: moe.grouped_matmul {{.*}} weights(%{{[^ ]*}} : memref<4x32x32xui8>) scales(%{{[^ ]*}} : memref<4x32x2xf8E8M0FNU>) outs({{.*}} {weight_format = "mxfp4"}
func.func @codes(%rows: memref<?x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xui8>, %scales: memref<4x32x4xf8E4M3FN>, %factors: memref<4xf32>,
                 %mx_scales: memref<4x32x2xf8E8M0FNU>, %bias: memref<4x32xf32>, %ids: memref<?xi32>, %row_weights: memref<?xf32>, %half: memref<?x16xbf16>,
                 %out: memref<?x32xf32>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<?x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xui8>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) global_scale(%factors : memref<4xf32>) bias(%bias : memref<4x32xf32>) row_ids(%ids : memref<?xi32>)
    row_weights(%row_weights : memref<?xf32>) outs(%half : memref<?x16xbf16>) context(%ctx) {activation = "swiglu", weight_format = "nvfp4"}
  moe.grouped_matmul rows(%rows : memref<?x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xui8>)
    scales(%mx_scales : memref<4x32x2xf8E8M0FNU>) outs(%out : memref<?x32xf32>) context(%ctx) {weight_format = "mxfp4"}
  return
}

// CHECK-LABEL: func.func @reductions
// CHECK: moe.allreduce_fusion {{.*}} quant_out({{.*}} scale_out({{.*}} {hidden_size = 32 : i64, layout_code = "8x4", quant_format = "nvfp4", rms_eps = 1.000000e-05 : f64, scale_factor = 2.500000e+00 : f64, strategy = "two_shot"}
// CHECK: moe.finalize_allreduce_fusion {{.*}} expert_scale_factor({{.*}} {hidden_size = 32 : i64, quant_format = "fp8_tensor", rms_eps = 1.000000e-05 : f64, routed_scaling_factor = 2.000000e+00 : f64}
func.func @reductions(%r: memref<5x32xbf16>, %g: memref<32xbf16>, %x: memref<3x5x32xbf16>, %s: memref<3x5xf32>, %t: memref<5x32xbf16>, %p: memref<9x32xbf16>,
    %i: memref<5x2xi32>, %w: memref<5x2xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %v: memref<5x16xi8>, %c: memref<8x4xi8>, %q: memref<5x32xi8>,
    %ctx: !moe.context) {
  moe.allreduce_fusion residual_in(%r : memref<5x32xbf16>) rms_gamma(%g : memref<32xbf16>) active_experts(%x, %s : memref<3x5x32xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) quant_out(%v : memref<5x16xi8>)
    scale_out(%c : memref<8x4xi8>) context(%ctx)
    {hidden_size = 32 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4", layout_code = "8x4", scale_factor = 2.5 : f64, strategy = "two_shot"}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x32xbf16>) norm_weight(%g : memref<32xbf16>) rows(%p, %i : memref<9x32xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) quant_out(%q : memref<5x32xi8>) context(%ctx)
    {hidden_size = 32 : i64, rms_eps = 1.0e-5 : f64, routed_scaling_factor = 2.0 : f64, quant_format = "fp8_tensor"}
  return
}

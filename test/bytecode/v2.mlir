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

// CHECK-LABEL: func.func @routed
// CHECK: moe.nvfp4_routed {{.*}} w1_scale_prepared({{.*}} w2_scale_prepared({{.*}} w1_data_prepared({{.*}} w1_gate_up_data_prepared({{.*}} w1_gate_up_scale_prepared({{.*}} w1_scale_prepared_interleaved({{.*}} w2_data_prepared({{.*}} w2_data_prepared_k256({{.*}} w2_scale_prepared_k256({{.*}} w1_fragments_prepared({{.*}} w2_fragments_prepared({{.*}} {accumulate = false, block_m = 16 : i64, first_expert = 4 : i64, num_experts = 12 : i64, routed_scaling_factor = 2.500000e+00 : f64, top_k = 2 : i64}
func.func @routed(%x: tensor<?x128xi8>, %xs: tensor<?x16xf8E4M3FN>, %w1: tensor<4x512x128xi8>, %s1: tensor<4x512x16xf8E4M3FN>,
    %w2: tensor<4x256x128xi8>, %s2: tensor<4x256x16xf8E4M3FN>, %g: tensor<4xf32>, %u: tensor<4xf32>, %d: tensor<4xf32>, %ids: tensor<?x2xi32>,
    %w: tensor<?x2xf32>, %w1s: tensor<16x16x128xf8E4M3FN>, %w2s: tensor<16x8x128xf8E4M3FN>, %w1d: tensor<16x128x128xi8>, %gud: tensor<8x256x128xi8>,
    %gus: tensor<8x32x128xf8E4M3FN>, %w1i: tensor<16x16x128xf8E4M3FN>, %w2d: tensor<16x128x64xi8>, %w2d256: tensor<8x128x128xi8>,
    %w2s256: tensor<8x16x128xf8E4M3FN>, %w1f: tensor<64x36x128xi8>, %w2f: tensor<32x36x128xi8>, %sorted: tensor<112xi32>, %experts: tensor<7xi32>, %padded: tensor<1xi32>, %cumsum: tensor<6xi32>,
    %out: tensor<?x256xbf16>, %ctx: !moe.context) -> (tensor<112xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x128xi8>, tensor<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<4x512x128xi8>, tensor<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<4x256x128xi8>, tensor<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) topk(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>)
    w1_scale_prepared(%w1s : tensor<16x16x128xf8E4M3FN>) w2_scale_prepared(%w2s : tensor<16x8x128xf8E4M3FN>)
    w1_data_prepared(%w1d : tensor<16x128x128xi8>) w1_gate_up_data_prepared(%gud : tensor<8x256x128xi8>)
    w1_gate_up_scale_prepared(%gus : tensor<8x32x128xf8E4M3FN>) w1_scale_prepared_interleaved(%w1i : tensor<16x16x128xf8E4M3FN>)
    w2_data_prepared(%w2d : tensor<16x128x64xi8>) w2_data_prepared_k256(%w2d256 : tensor<8x128x128xi8>)
    w2_scale_prepared_k256(%w2s256 : tensor<8x16x128xf8E4M3FN>)
    w1_fragments_prepared(%w1f : tensor<64x36x128xi8>) w2_fragments_prepared(%w2f : tensor<32x36x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<112xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>)
    outs(%out : tensor<?x256xbf16>) context(%ctx) {top_k = 2 : i64, block_m = 16 : i64, routed_scaling_factor = 2.5 : f64, accumulate = false, first_expert = 4 : i64, num_experts = 12 : i64} -> tensor<112xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<112xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>
}

// CHECK-LABEL: func.func @routed_plainly
// CHECK: moe.nvfp4_routed {{.*}} topk({{[^)]*}}) plan({{.*}} {top_k = 2 : i64}
func.func @routed_plainly(%x: memref<?x128xi8>, %xs: memref<?x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<?x2xi32>,
    %w: memref<?x2xf32>, %sorted: memref<112xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<?x256xbf16>,
    %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<?x128xi8>, memref<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<?x2xi32>, memref<?x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<112xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<?x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// CHECK-LABEL: func.func @prepare
// CHECK: moe.prepare_nvfp4 source({{[^)]*}}) outs({{.*}} {layout = "w1_gate_up_data"}
// CHECK: moe.prepare_nvfp4 source({{[^)]*}}) outs({{.*}} {layout = "w2_scales_k256"}
// CHECK: moe.prepare_nvfp4 source({{[^)]*}}) scales({{.*}} {layout = "w1_fragments"}
func.func @prepare(%data: memref<4x512x128xui8>, %panels: memref<8x256x128xi8>, %scales: tensor<?x256x16xf8E4M3FN>, %rows: tensor<?x16x128xi8>,
                   %codes: tensor<?x256x128xi8>, %lanes: tensor<?x36x128xi8>, %ctx: !moe.context) -> (tensor<?x16x128xi8>, tensor<?x36x128xi8>) {
  moe.prepare_nvfp4 source(%data : memref<4x512x128xui8>) outs(%panels : memref<8x256x128xi8>) context(%ctx) {layout = "w1_gate_up_data"}
  %0 = moe.prepare_nvfp4 source(%scales : tensor<?x256x16xf8E4M3FN>) outs(%rows : tensor<?x16x128xi8>) context(%ctx) {layout = "w2_scales_k256"} -> tensor<?x16x128xi8>
  %1 = moe.prepare_nvfp4 source(%codes : tensor<?x256x128xi8>) scales(%scales : tensor<?x256x16xf8E4M3FN>) outs(%lanes : tensor<?x36x128xi8>) context(%ctx)
    {layout = "w1_fragments"} -> tensor<?x36x128xi8>
  return %0, %1 : tensor<?x16x128xi8>, tensor<?x36x128xi8>
}

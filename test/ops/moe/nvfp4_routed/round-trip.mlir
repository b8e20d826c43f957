// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.nvfp4_routed hidden_states(%{{.*}}, %{{.*}} : tensor<?x128xi8>, tensor<?x16xf8E4M3FN>) gemm1(%{{.*}}, %{{.*}} : tensor<4x512x128xi8>, tensor<4x512x16xf8E4M3FN>)
// CHECK-SAME: gemm2(%{{.*}}, %{{.*}} : tensor<4x256x128xi8>, tensor<4x256x16xf8E4M3FN>) output_scales(%{{.*}}, %{{.*}}, %{{.*}} : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
// CHECK-SAME: topk(%{{.*}}, %{{.*}} : tensor<?x2xi32>, tensor<?x2xf32>) plan(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<6xi32>)
// CHECK-SAME: outs(%{{.*}} : tensor<?x256xbf16>) context(%{{.*}}) {top_k = 2 : i64} -> tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>
func.func @tensors(%x: tensor<?x128xi8>, %xs: tensor<?x16xf8E4M3FN>, %w1: tensor<4x512x128xi8>, %s1: tensor<4x512x16xf8E4M3FN>,
    %w2: tensor<4x256x128xi8>, %s2: tensor<4x256x16xf8E4M3FN>, %g: tensor<4xf32>, %u: tensor<4xf32>, %d: tensor<4xf32>, %ids: tensor<?x2xi32>,
    %w: tensor<?x2xf32>, %sorted: tensor<?xi32>, %experts: tensor<?xi32>, %padded: tensor<1xi32>, %cumsum: tensor<6xi32>, %out: tensor<?x256xbf16>,
    %ctx: !moe.context) -> (tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x128xi8>, tensor<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<4x512x128xi8>, tensor<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<4x256x128xi8>, tensor<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) topk(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<6xi32>)
    outs(%out : tensor<?x256xbf16>) context(%ctx) {top_k = 2 : i64} -> tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<6xi32>, tensor<?x256xbf16>
}

// Nothing is known but the number of choices; scales are bytes, too. No parameter at its default.
// CHECK-LABEL: func.func @sizes_at_run_time
// CHECK: {accumulate = false, block_m = 65536 : i64, routed_scaling_factor = -2.500000e+00 : f64, top_k = 32 : i64}
func.func @sizes_at_run_time(%x: tensor<?x?xui8>, %xs: tensor<?x?xui8>, %w1: tensor<?x?x?xui8>, %s1: tensor<?x?x?xui8>, %w2: tensor<?x?x?xui8>,
    %s2: tensor<?x?x?xui8>, %g: tensor<?xf32>, %u: tensor<?xf32>, %d: tensor<?xf32>, %ids: tensor<?x32xi32>, %w: tensor<?x32xf32>,
    %sorted: tensor<?xi32>, %experts: tensor<?xi32>, %padded: tensor<1xi32>, %cumsum: tensor<?xi32>, %out: tensor<?x?xbf16>, %ctx: !moe.context) -> (tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<?xi32>, tensor<?x?xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x?xui8>, tensor<?x?xui8>)
    gemm1(%w1, %s1 : tensor<?x?x?xui8>, tensor<?x?x?xui8>) gemm2(%w2, %s2 : tensor<?x?x?xui8>, tensor<?x?x?xui8>)
    output_scales(%g, %u, %d : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) topk(%ids, %w : tensor<?x32xi32>, tensor<?x32xf32>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<?xi32>)
    outs(%out : tensor<?x?xbf16>) context(%ctx) {top_k = 32 : i64, block_m = 65536 : i64, routed_scaling_factor = -2.5 : f64, accumulate = false} -> tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<?xi32>, tensor<?x?xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<?xi32>, tensor<?x?xbf16>
}

// Each prepared input is there or not by itself, but for the two that go together.
// CHECK-LABEL: func.func @first_weights
// CHECK: topk({{.*}}) w1_scale_prepared(%{{.*}} : memref<8x16x128xf8E4M3FN>) w1_data_prepared(%{{.*}} : memref<8x128x128xi8>) plan(
func.func @first_weights(%x: memref<3x128xi8>, %xs: memref<3x16xf8E4M3FN>, %w1: memref<2x512x128xi8>, %s1: memref<2x512x16xf8E4M3FN>,
    %w2: memref<2x256x128xi8>, %s2: memref<2x256x16xf8E4M3FN>, %g: memref<2xf32>, %u: memref<2xf32>, %d: memref<2xf32>, %ids: memref<3x1xi32>,
    %w: memref<3x1xf32>, %w1s: memref<8x16x128xf8E4M3FN>, %w1d: memref<8x128x128xi8>, %sorted: memref<64xi32>, %experts: memref<4xi32>,
    %padded: memref<1xi32>, %cumsum: memref<4xi32>, %out: memref<3x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<3x128xi8>, memref<3x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<2x512x128xi8>, memref<2x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<2x256x128xi8>, memref<2x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<2xf32>, memref<2xf32>, memref<2xf32>) topk(%ids, %w : memref<3x1xi32>, memref<3x1xf32>)
    w1_scale_prepared(%w1s : memref<8x16x128xf8E4M3FN>) w1_data_prepared(%w1d : memref<8x128x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<64xi32>, memref<4xi32>, memref<1xi32>, memref<4xi32>)
    outs(%out : memref<3x256xbf16>) context(%ctx) {top_k = 1 : i64, block_m = 16 : i64}
  return
}

// CHECK-LABEL: func.func @adjacent_weights
// CHECK: topk({{.*}}) w1_gate_up_data_prepared(%{{.*}} : memref<4x256x128xi8>) w1_gate_up_scale_prepared(%{{.*}} : memref<4x32x128xf8E4M3FN>) w1_scale_prepared_interleaved(%{{.*}} : memref<8x16x128xf8E4M3FN>) plan(
func.func @adjacent_weights(%x: memref<3x128xi8>, %xs: memref<3x16xf8E4M3FN>, %w1: memref<2x512x128xi8>, %s1: memref<2x512x16xf8E4M3FN>,
    %w2: memref<2x256x128xi8>, %s2: memref<2x256x16xf8E4M3FN>, %g: memref<2xf32>, %u: memref<2xf32>, %d: memref<2xf32>, %ids: memref<3x1xi32>,
    %w: memref<3x1xf32>, %gud: memref<4x256x128xi8>, %gus: memref<4x32x128xf8E4M3FN>, %w1i: memref<8x16x128xf8E4M3FN>, %sorted: memref<64xi32>,
    %experts: memref<4xi32>, %padded: memref<1xi32>, %cumsum: memref<4xi32>, %out: memref<3x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<3x128xi8>, memref<3x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<2x512x128xi8>, memref<2x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<2x256x128xi8>, memref<2x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<2xf32>, memref<2xf32>, memref<2xf32>) topk(%ids, %w : memref<3x1xi32>, memref<3x1xf32>)
    w1_gate_up_data_prepared(%gud : memref<4x256x128xi8>) w1_gate_up_scale_prepared(%gus : memref<4x32x128xf8E4M3FN>)
    w1_scale_prepared_interleaved(%w1i : memref<8x16x128xf8E4M3FN>)
    plan(%sorted, %experts, %padded, %cumsum : memref<64xi32>, memref<4xi32>, memref<1xi32>, memref<4xi32>)
    outs(%out : memref<3x256xbf16>) context(%ctx) {top_k = 1 : i64}
  return
}

// CHECK-LABEL: func.func @second_weights
// CHECK: topk({{.*}}) w2_scale_prepared(%{{.*}} : memref<8x8x128xi8>) w2_data_prepared(%{{.*}} : memref<8x128x64xi8>) plan(
func.func @second_weights(%x: memref<3x128xi8>, %xs: memref<3x16xi8>, %w1: memref<2x512x128xi8>, %s1: memref<2x512x16xi8>, %w2: memref<2x256x128xi8>,
    %s2: memref<2x256x16xi8>, %g: memref<2xf32>, %u: memref<2xf32>, %d: memref<2xf32>, %ids: memref<3x1xi32>, %w: memref<3x1xf32>,
    %w2s: memref<8x8x128xi8>, %w2d: memref<8x128x64xi8>, %sorted: memref<64xi32>, %experts: memref<4xi32>, %padded: memref<1xi32>,
    %cumsum: memref<4xi32>, %out: memref<3x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<3x128xi8>, memref<3x16xi8>)
    gemm1(%w1, %s1 : memref<2x512x128xi8>, memref<2x512x16xi8>) gemm2(%w2, %s2 : memref<2x256x128xi8>, memref<2x256x16xi8>)
    output_scales(%g, %u, %d : memref<2xf32>, memref<2xf32>, memref<2xf32>) topk(%ids, %w : memref<3x1xi32>, memref<3x1xf32>)
    w2_scale_prepared(%w2s : memref<8x8x128xi8>) w2_data_prepared(%w2d : memref<8x128x64xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<64xi32>, memref<4xi32>, memref<1xi32>, memref<4xi32>)
    outs(%out : memref<3x256xbf16>) context(%ctx) {top_k = 1 : i64}
  return
}

// CHECK-LABEL: func.func @second_weights_k256
// CHECK: topk({{.*}}) w2_data_prepared_k256(%{{.*}} : memref<4x128x128xui8>) w2_scale_prepared_k256(%{{.*}} : memref<4x16x128xf8E4M3FN>) plan(
func.func @second_weights_k256(%x: memref<3x128xui8>, %xs: memref<3x16xf8E4M3FN>, %w1: memref<2x512x128xui8>, %s1: memref<2x512x16xf8E4M3FN>,
    %w2: memref<2x256x128xui8>, %s2: memref<2x256x16xf8E4M3FN>, %g: memref<2xf32>, %u: memref<2xf32>, %d: memref<2xf32>, %ids: memref<3x1xi32>,
    %w: memref<3x1xf32>, %w2d256: memref<4x128x128xui8>, %w2s256: memref<4x16x128xf8E4M3FN>, %sorted: memref<64xi32>, %experts: memref<4xi32>,
    %padded: memref<1xi32>, %cumsum: memref<4xi32>, %out: memref<3x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<3x128xui8>, memref<3x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<2x512x128xui8>, memref<2x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<2x256x128xui8>, memref<2x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<2xf32>, memref<2xf32>, memref<2xf32>) topk(%ids, %w : memref<3x1xi32>, memref<3x1xf32>)
    w2_data_prepared_k256(%w2d256 : memref<4x128x128xui8>) w2_scale_prepared_k256(%w2s256 : memref<4x16x128xf8E4M3FN>)
    plan(%sorted, %experts, %padded, %cumsum : memref<64xi32>, memref<4xi32>, memref<1xi32>, memref<4xi32>)
    outs(%out : memref<3x256xbf16>) context(%ctx) {top_k = 1 : i64}
  return
}

// CHECK-LABEL: func.func @fragments
// CHECK: topk({{.*}}) w1_fragments_prepared(%{{.*}} : memref<32x36x128xui8>) w2_fragments_prepared(%{{.*}} : memref<16x36x128xi8>) plan(
func.func @fragments(%x: memref<3x128xui8>, %xs: memref<3x16xf8E4M3FN>, %w1: memref<2x512x128xui8>, %s1: memref<2x512x16xf8E4M3FN>,
    %w2: memref<2x256x128xui8>, %s2: memref<2x256x16xf8E4M3FN>, %g: memref<2xf32>, %u: memref<2xf32>, %d: memref<2xf32>, %ids: memref<3x1xi32>,
    %w: memref<3x1xf32>, %w1f: memref<32x36x128xui8>, %w2f: memref<16x36x128xi8>, %sorted: memref<64xi32>, %experts: memref<4xi32>,
    %padded: memref<1xi32>, %cumsum: memref<4xi32>, %out: memref<3x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<3x128xui8>, memref<3x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<2x512x128xui8>, memref<2x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<2x256x128xui8>, memref<2x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<2xf32>, memref<2xf32>, memref<2xf32>) topk(%ids, %w : memref<3x1xi32>, memref<3x1xf32>)
    w1_fragments_prepared(%w1f : memref<32x36x128xui8>) w2_fragments_prepared(%w2f : memref<16x36x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<64xi32>, memref<4xi32>, memref<1xi32>, memref<4xi32>)
    outs(%out : memref<3x256xbf16>) context(%ctx) {top_k = 1 : i64}
  return
}

// CHECK-LABEL: func.func @everything
// CHECK: w1_scale_prepared({{.*}} w2_scale_prepared({{.*}} w1_data_prepared({{.*}} w1_gate_up_data_prepared({{.*}} w1_gate_up_scale_prepared({{.*}} w1_scale_prepared_interleaved({{.*}} w2_data_prepared({{.*}} w2_data_prepared_k256({{.*}} w2_scale_prepared_k256({{.*}} w1_fragments_prepared({{.*}} w2_fragments_prepared(
// CHECK-SAME: {accumulate = false, block_m = 24 : i64, routed_scaling_factor = 2.500000e+00 : f64, top_k = 2 : i64}
func.func @everything(%x: tensor<?x512xi8>, %xs: tensor<?x64xf8E4M3FN>, %w1: tensor<8x512x512xi8>, %s1: tensor<8x512x64xf8E4M3FN>,
    %w2: tensor<8x1024x128xi8>, %s2: tensor<8x1024x16xf8E4M3FN>, %g: tensor<8xf32>, %u: tensor<8xf32>, %d: tensor<8xf32>, %ids: tensor<?x2xi32>,
    %w: tensor<?x2xf32>, %w1s: tensor<128x16x128xf8E4M3FN>, %w2s: tensor<128x8x128xf8E4M3FN>, %w1d: tensor<128x128x128xi8>,
    %gud: tensor<64x256x128xi8>, %gus: tensor<64x32x128xf8E4M3FN>, %w1i: tensor<128x16x128xf8E4M3FN>, %w2d: tensor<128x128x64xi8>,
    %w2d256: tensor<64x128x128xi8>, %w2s256: tensor<64x16x128xf8E4M3FN>, %w1f: tensor<512x36x128xi8>, %w2f: tensor<256x36x128xi8>,
    %sorted: tensor<120xi32>, %experts: tensor<5xi32>, %padded: tensor<1xi32>, %cumsum: tensor<10xi32>, %out: tensor<?x1024xbf16>, %ctx: !moe.context) -> (tensor<120xi32>, tensor<5xi32>, tensor<1xi32>, tensor<10xi32>, tensor<?x1024xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x512xi8>, tensor<?x64xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<8x512x512xi8>, tensor<8x512x64xf8E4M3FN>) gemm2(%w2, %s2 : tensor<8x1024x128xi8>, tensor<8x1024x16xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) topk(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>)
    w1_scale_prepared(%w1s : tensor<128x16x128xf8E4M3FN>) w2_scale_prepared(%w2s : tensor<128x8x128xf8E4M3FN>)
    w1_data_prepared(%w1d : tensor<128x128x128xi8>) w1_gate_up_data_prepared(%gud : tensor<64x256x128xi8>)
    w1_gate_up_scale_prepared(%gus : tensor<64x32x128xf8E4M3FN>) w1_scale_prepared_interleaved(%w1i : tensor<128x16x128xf8E4M3FN>)
    w2_data_prepared(%w2d : tensor<128x128x64xi8>) w2_data_prepared_k256(%w2d256 : tensor<64x128x128xi8>)
    w2_scale_prepared_k256(%w2s256 : tensor<64x16x128xf8E4M3FN>)
    w1_fragments_prepared(%w1f : tensor<512x36x128xi8>) w2_fragments_prepared(%w2f : tensor<256x36x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<120xi32>, tensor<5xi32>, tensor<1xi32>, tensor<10xi32>)
    outs(%out : tensor<?x1024xbf16>) context(%ctx) {top_k = 2 : i64, block_m = 24 : i64, routed_scaling_factor = 2.5 : f64, accumulate = false} -> tensor<120xi32>, tensor<5xi32>, tensor<1xi32>, tensor<10xi32>, tensor<?x1024xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<120xi32>, tensor<5xi32>, tensor<1xi32>, tensor<10xi32>, tensor<?x1024xbf16>
}

// No tokens, the fewest experts, a plan and a table of sums with room to spare, rows that lie apart.
// CHECK-LABEL: func.func @smallest
// CHECK: moe.nvfp4_routed hidden_states(%{{.*}}, %{{.*}} : memref<0x128xi8, strided<[192, 1]>>, memref<0x16xi8>)
func.func @smallest(%x: memref<0x128xi8, strided<[192, 1]>>, %xs: memref<0x16xi8>, %w1: memref<1x256x128xi8>, %s1: memref<1x256x16xi8>,
    %w2: memref<1x256x64xi8>, %s2: memref<1x256x8xi8>, %g: memref<1xf32>, %u: memref<1xf32>, %d: memref<1xf32>, %ids: memref<0x1xi32>,
    %w: memref<0x1xf32>, %sorted: memref<11xi32>, %experts: memref<1xi32>, %padded: memref<1xi32>, %cumsum: memref<9xi32>, %out: memref<0x256xbf16>,
    %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<0x128xi8, strided<[192, 1]>>, memref<0x16xi8>)
    gemm1(%w1, %s1 : memref<1x256x128xi8>, memref<1x256x16xi8>) gemm2(%w2, %s2 : memref<1x256x64xi8>, memref<1x256x8xi8>)
    output_scales(%g, %u, %d : memref<1xf32>, memref<1xf32>, memref<1xf32>) topk(%ids, %w : memref<0x1xi32>, memref<0x1xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<11xi32>, memref<1xi32>, memref<1xi32>, memref<9xi32>)
    outs(%out : memref<0x256xbf16>) context(%ctx) {top_k = 1 : i64}
  return
}

// Fewer experts than a token chooses, the last ones of as many as ids can name.
// CHECK-LABEL: func.func @part
// CHECK: {first_expert = 2147483645 : i64, num_experts = 2147483647 : i64, top_k = 8 : i64}
func.func @part(%x: memref<?x128xi8>, %xs: memref<?x16xi8>, %w1: memref<2x256x128xi8>, %s1: memref<2x256x16xi8>, %w2: memref<2x256x64xi8>,
    %s2: memref<2x256x8xi8>, %g: memref<2xf32>, %u: memref<2xf32>, %d: memref<2xf32>, %ids: memref<?x8xi32>, %w: memref<?x8xf32>,
    %sorted: memref<?xi32>, %experts: memref<?xi32>, %padded: memref<1xi32>, %cumsum: memref<4xi32>, %out: memref<?x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<?x128xi8>, memref<?x16xi8>)
    gemm1(%w1, %s1 : memref<2x256x128xi8>, memref<2x256x16xi8>) gemm2(%w2, %s2 : memref<2x256x64xi8>, memref<2x256x8xi8>)
    output_scales(%g, %u, %d : memref<2xf32>, memref<2xf32>, memref<2xf32>) topk(%ids, %w : memref<?x8xi32>, memref<?x8xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<?xi32>, memref<?xi32>, memref<1xi32>, memref<4xi32>)
    outs(%out : memref<?x256xbf16>) context(%ctx) {top_k = 8 : i64, first_expert = 2147483645 : i64, num_experts = 2147483647 : i64}
  return
}

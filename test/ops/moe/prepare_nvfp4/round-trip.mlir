// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : tensor<?x512x128xi8>) outs(%{{.*}} : tensor<?x128x128xi8>) context(%{{.*}}) {layout = "w1_data"} -> tensor<?x128x128xi8>
func.func @tensors(%source: tensor<?x512x128xi8>, %prepared: tensor<?x128x128xi8>, %ctx: !moe.context) -> tensor<?x128x128xi8> {
  %0 = moe.prepare_nvfp4 source(%source : tensor<?x512x128xi8>) outs(%prepared : tensor<?x128x128xi8>) context(%ctx) {layout = "w1_data"} -> tensor<?x128x128xi8>
  return %0 : tensor<?x128x128xi8>
}

// Nothing is known of the sizes; bytes of scales are of another type there than here.
// CHECK-LABEL: func.func @sizes_at_run_time
// CHECK: {layout = "w2_scales_k256"} -> tensor<?x?x?xui8>
func.func @sizes_at_run_time(%source: tensor<?x?x?xf8E4M3FN>, %prepared: tensor<?x?x?xui8>, %ctx: !moe.context) -> tensor<?x?x?xui8> {
  %0 = moe.prepare_nvfp4 source(%source : tensor<?x?x?xf8E4M3FN>) outs(%prepared : tensor<?x?x?xui8>) context(%ctx) {layout = "w2_scales_k256"} -> tensor<?x?x?xui8>
  return %0 : tensor<?x?x?xui8>
}

// CHECK-LABEL: func.func @w1_scales(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x512x16xf8E4M3FN>) outs(%{{.*}} : memref<16x16x128xf8E4M3FN>) context(%{{.*}}) {layout = "w1_scales"}
func.func @w1_scales(%source: memref<4x512x16xf8E4M3FN>, %prepared: memref<16x16x128xf8E4M3FN>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x512x16xf8E4M3FN>) outs(%prepared : memref<16x16x128xf8E4M3FN>) context(%ctx) {layout = "w1_scales"}
  return
}

// CHECK-LABEL: func.func @w2_scales(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x256x8xf8E4M3FN>) outs(%{{.*}} : memref<8x8x128xf8E4M3FN>) context(%{{.*}}) {layout = "w2_scales"}
func.func @w2_scales(%source: memref<4x256x8xf8E4M3FN>, %prepared: memref<8x8x128xf8E4M3FN>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x256x8xf8E4M3FN>) outs(%prepared : memref<8x8x128xf8E4M3FN>) context(%ctx) {layout = "w2_scales"}
  return
}

// CHECK-LABEL: func.func @w1_data(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x512x128xi8>) outs(%{{.*}} : memref<16x128x128xi8>) context(%{{.*}}) {layout = "w1_data"}
func.func @w1_data(%source: memref<4x512x128xi8>, %prepared: memref<16x128x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x512x128xi8>) outs(%prepared : memref<16x128x128xi8>) context(%ctx) {layout = "w1_data"}
  return
}

// CHECK-LABEL: func.func @w1_gate_up_data(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x512x128xui8>) outs(%{{.*}} : memref<8x256x128xui8>) context(%{{.*}}) {layout = "w1_gate_up_data"}
func.func @w1_gate_up_data(%source: memref<4x512x128xui8>, %prepared: memref<8x256x128xui8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x512x128xui8>) outs(%prepared : memref<8x256x128xui8>) context(%ctx) {layout = "w1_gate_up_data"}
  return
}

// CHECK-LABEL: func.func @w1_gate_up_scales(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x512x16xui8>) outs(%{{.*}} : memref<8x32x128xui8>) context(%{{.*}}) {layout = "w1_gate_up_scales"}
func.func @w1_gate_up_scales(%source: memref<4x512x16xui8>, %prepared: memref<8x32x128xui8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x512x16xui8>) outs(%prepared : memref<8x32x128xui8>) context(%ctx) {layout = "w1_gate_up_scales"}
  return
}

// CHECK-LABEL: func.func @w1_scales_interleaved(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x512x32xf8E4M3FN>) outs(%{{.*}} : memref<32x16x128xf8E4M3FN>) context(%{{.*}}) {layout = "w1_scales_interleaved"}
func.func @w1_scales_interleaved(%source: memref<4x512x32xf8E4M3FN>, %prepared: memref<32x16x128xf8E4M3FN>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x512x32xf8E4M3FN>) outs(%prepared : memref<32x16x128xf8E4M3FN>) context(%ctx) {layout = "w1_scales_interleaved"}
  return
}

// CHECK-LABEL: func.func @w2_data(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x256x128xi8>) outs(%{{.*}} : memref<16x128x64xi8>) context(%{{.*}}) {layout = "w2_data"}
func.func @w2_data(%source: memref<4x256x128xi8>, %prepared: memref<16x128x64xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x256x128xi8>) outs(%prepared : memref<16x128x64xi8>) context(%ctx) {layout = "w2_data"}
  return
}

// CHECK-LABEL: func.func @w2_data_k256(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x256x128xi8>) outs(%{{.*}} : memref<8x128x128xi8>) context(%{{.*}}) {layout = "w2_data_k256"}
func.func @w2_data_k256(%source: memref<4x256x128xi8>, %prepared: memref<8x128x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x256x128xi8>) outs(%prepared : memref<8x128x128xi8>) context(%ctx) {layout = "w2_data_k256"}
  return
}

// CHECK-LABEL: func.func @w2_scales_k256(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x256x16xi8>) outs(%{{.*}} : memref<8x16x128xi8>) context(%{{.*}}) {layout = "w2_scales_k256"}
func.func @w2_scales_k256(%source: memref<4x256x16xi8>, %prepared: memref<8x16x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x256x16xi8>) outs(%prepared : memref<8x16x128xi8>) context(%ctx) {layout = "w2_scales_k256"}
  return
}

// CHECK-LABEL: func.func @w1_fragments(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : memref<4x512x128xi8>) scales(%{{.*}} : memref<4x512x16xf8E4M3FN>) outs(%{{.*}} : memref<64x36x128xui8>) context(%{{.*}}) {layout = "w1_fragments"}
func.func @w1_fragments(%source: memref<4x512x128xi8>, %scales: memref<4x512x16xf8E4M3FN>, %prepared: memref<64x36x128xui8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<4x512x128xi8>) scales(%scales : memref<4x512x16xf8E4M3FN>) outs(%prepared : memref<64x36x128xui8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// CHECK-LABEL: func.func @w2_fragments(
// CHECK: moe.prepare_nvfp4 source(%{{.*}} : tensor<?x192x192xui8>) scales(%{{.*}} : tensor<?x192x24xi8>) outs(%{{.*}} : tensor<?x36x128xi8>) context(%{{.*}}) {layout = "w2_fragments"} -> tensor<?x36x128xi8>
func.func @w2_fragments(%source: tensor<?x192x192xui8>, %scales: tensor<?x192x24xi8>, %prepared: tensor<?x36x128xi8>, %ctx: !moe.context) -> tensor<?x36x128xi8> {
  %0 = moe.prepare_nvfp4 source(%source : tensor<?x192x192xui8>) scales(%scales : tensor<?x192x24xi8>) outs(%prepared : tensor<?x36x128xi8>) context(%ctx) {layout = "w2_fragments"} -> tensor<?x36x128xi8>
  return %0 : tensor<?x36x128xi8>
}

// CHECK-LABEL: func.func @fragments_of_sizes_at_run_time(
// CHECK: scales(%{{.*}} : tensor<?x?x?xui8>) outs(%{{.*}} : tensor<?x?x?xi8>) context(%{{.*}}) {layout = "w1_fragments"} -> tensor<?x?x?xi8>
func.func @fragments_of_sizes_at_run_time(%source: tensor<?x?x?xi8>, %scales: tensor<?x?x?xui8>, %prepared: tensor<?x?x?xi8>, %ctx: !moe.context) -> tensor<?x?x?xi8> {
  %0 = moe.prepare_nvfp4 source(%source : tensor<?x?x?xi8>) scales(%scales : tensor<?x?x?xui8>) outs(%prepared : tensor<?x?x?xi8>) context(%ctx) {layout = "w1_fragments"} -> tensor<?x?x?xi8>
  return %0 : tensor<?x?x?xi8>
}

// Nobody's weights.
// CHECK-LABEL: func.func @empty
// CHECK: moe.prepare_nvfp4
func.func @empty(%source: memref<0x256x16xi8>, %prepared: memref<0x32x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<0x256x16xi8>) outs(%prepared : memref<0x32x128xi8>) context(%ctx) {layout = "w1_gate_up_scales"}
  return
}

// CHECK-LABEL: func.func @empty_fragments
// CHECK: moe.prepare_nvfp4
func.func @empty_fragments(%source: memref<3x0x64xi8>, %scales: memref<3x0x8xi8>, %prepared: memref<0x36x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<3x0x64xi8>) scales(%scales : memref<3x0x8xi8>) outs(%prepared : memref<0x36x128xi8>) context(%ctx) {layout = "w2_fragments"}
  return
}

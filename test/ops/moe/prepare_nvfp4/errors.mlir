// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @prepare_nvfp4_c1(%source: memref<4x384x128xi8>, %prepared: memref<6x256x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'source' has size 384 in dimension 1, must be a multiple of 256 for w1_gate_up_data}}
  moe.prepare_nvfp4 source(%source : memref<4x384x128xi8>) outs(%prepared : memref<6x256x128xi8>) context(%ctx) {layout = "w1_gate_up_data"}
  return
}

// -----

func.func @prepare_nvfp4_c1_bytes(%source: memref<4x256x64xi8>, %prepared: memref<4x128x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'source' has size 64 in dimension 2, must be a multiple of 128 for w2_data_k256}}
  moe.prepare_nvfp4 source(%source : memref<4x256x64xi8>) outs(%prepared : memref<4x128x128xi8>) context(%ctx) {layout = "w2_data_k256"}
  return
}

// -----

func.func @prepare_nvfp4_c2(%source: memref<4x512x16xi8>, %prepared: memref<15x16x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has size 15 in dimension 0, but the number of panels is 16}}
  moe.prepare_nvfp4 source(%source : memref<4x512x16xi8>) outs(%prepared : memref<15x16x128xi8>) context(%ctx) {layout = "w1_scales"}
  return
}

// -----

func.func @prepare_nvfp4_c2_height(%source: memref<4x512x16xi8>, %prepared: memref<?x16x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has size 16 in dimension 1, but the height of a panel is 8}}
  moe.prepare_nvfp4 source(%source : memref<4x512x16xi8>) outs(%prepared : memref<?x16x128xi8>) context(%ctx) {layout = "w2_scales"}
  return
}

// -----

func.func @prepare_nvfp4_c2_width(%source: memref<?x512x64xi8>, %prepared: memref<?x128x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has size 128 in dimension 2, but the width of a panel is 64}}
  moe.prepare_nvfp4 source(%source : memref<?x512x64xi8>) outs(%prepared : memref<?x128x128xi8>) context(%ctx) {layout = "w2_data"}
  return
}

// -----

func.func @prepare_nvfp4_c3(%source: memref<4x512x128xf8E4M3FN>, %prepared: memref<16x128x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'source' has codes for w1_data, must be of i8 or ui8}}
  moe.prepare_nvfp4 source(%source : memref<4x512x128xf8E4M3FN>) outs(%prepared : memref<16x128x128xi8>) context(%ctx) {layout = "w1_data"}
  return
}

// -----

func.func @prepare_nvfp4_c3_prepared(%source: memref<4x512x128xi8>, %prepared: memref<16x128x128xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has codes for w1_data, must be of i8 or ui8}}
  moe.prepare_nvfp4 source(%source : memref<4x512x128xi8>) outs(%prepared : memref<16x128x128xf8E4M3FN>) context(%ctx) {layout = "w1_data"}
  return
}

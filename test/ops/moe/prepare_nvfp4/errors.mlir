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

// -----

func.func @prepare_nvfp4_c1_fragments(%source: memref<2x96x64xi8>, %scales: memref<2x96x8xi8>, %prepared: memref<?x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'source' has size 96 in dimension 1, must be a multiple of 64 for w2_fragments}}
  moe.prepare_nvfp4 source(%source : memref<2x96x64xi8>) scales(%scales : memref<2x96x8xi8>) outs(%prepared : memref<?x36x128xi8>) context(%ctx) {layout = "w2_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c1_fragment_bytes(%source: memref<2x64x96xi8>, %scales: memref<2x64x12xi8>, %prepared: memref<?x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'source' has size 96 in dimension 2, must be a multiple of 64 for w1_fragments}}
  moe.prepare_nvfp4 source(%source : memref<2x64x96xi8>) scales(%scales : memref<2x64x12xi8>) outs(%prepared : memref<?x36x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c2_fragments(%source: memref<2x128x128xi8>, %scales: memref<2x128x16xi8>, %prepared: memref<4x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has size 4 in dimension 0, but the number of panels is 8}}
  moe.prepare_nvfp4 source(%source : memref<2x128x128xi8>) scales(%scales : memref<2x128x16xi8>) outs(%prepared : memref<4x36x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c2_fragment_height(%source: memref<2x128x128xi8>, %scales: memref<2x128x16xi8>, %prepared: memref<8x32x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has size 32 in dimension 1, but the height of a panel is 36}}
  moe.prepare_nvfp4 source(%source : memref<2x128x128xi8>) scales(%scales : memref<2x128x16xi8>) outs(%prepared : memref<8x32x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c3_fragments(%source: memref<2x128x128xi8>, %scales: memref<2x128x16xi8>, %prepared: memref<8x36x128xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'prepared' has codes for w1_fragments, must be of i8 or ui8}}
  moe.prepare_nvfp4 source(%source : memref<2x128x128xi8>) scales(%scales : memref<2x128x16xi8>) outs(%prepared : memref<8x36x128xf8E4M3FN>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c4(%source: memref<2x128x128xi8>, %prepared: memref<8x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'scales' is not there, but layout is w1_fragments: add it}}
  moe.prepare_nvfp4 source(%source : memref<2x128x128xi8>) outs(%prepared : memref<8x36x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c4_others(%source: memref<4x512x128xi8>, %scales: memref<4x512x16xi8>, %prepared: memref<16x128x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'scales' goes with fragments, but layout is w1_data: leave it out}}
  moe.prepare_nvfp4 source(%source : memref<4x512x128xi8>) scales(%scales : memref<4x512x16xi8>) outs(%prepared : memref<16x128x128xi8>) context(%ctx) {layout = "w1_data"}
  return
}

// -----

func.func @prepare_nvfp4_c4_experts(%source: memref<2x128x128xi8>, %scales: memref<3x128x16xi8>, %prepared: memref<8x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'scales' has size 3 in dimension 0, but dimension 0 of operand 'source' is 2}}
  moe.prepare_nvfp4 source(%source : memref<2x128x128xi8>) scales(%scales : memref<3x128x16xi8>) outs(%prepared : memref<8x36x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c4_rows(%source: memref<2x128x128xi8>, %scales: memref<2x64x16xi8>, %prepared: memref<8x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'scales' has size 64 in dimension 1, but dimension 1 of operand 'source' is 128}}
  moe.prepare_nvfp4 source(%source : memref<2x128x128xi8>) scales(%scales : memref<2x64x16xi8>) outs(%prepared : memref<8x36x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

// -----

func.func @prepare_nvfp4_c4_bytes(%source: memref<?x?x128xi8>, %scales: memref<?x?x8xi8>, %prepared: memref<?x36x128xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.prepare_nvfp4' op operand 'scales' has size 8 in dimension 2, but an eighth of dimension 2 of operand 'source' is 16}}
  moe.prepare_nvfp4 source(%source : memref<?x?x128xi8>) scales(%scales : memref<?x?x8xi8>) outs(%prepared : memref<?x36x128xi8>) context(%ctx) {layout = "w2_fragments"}
  return
}

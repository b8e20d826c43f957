// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @dequantize_c1_tokens(%v: memref<3x32xi8>, %s: memref<2x4xf8E4M3FN>, %y: memref<2x64xbf16>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has size 3 in dimension 0, but dimension 0 of operand 'out' is 2}}
  moe.dequantize values(%v : memref<3x32xi8>) scales(%s : memref<2x4xf8E4M3FN>) outs(%y : memref<2x64xbf16>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c1_packed(%v: memref<?x64xi8>, %s: memref<?x4xf8E4M3FN>, %y: memref<?x64xbf16>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has size 64 in dimension 1, but half of dimension 1 of operand 'out' is 32}}
  moe.dequantize values(%v : memref<?x64xi8>) scales(%s : memref<?x4xf8E4M3FN>) outs(%y : memref<?x64xbf16>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c1_bytes(%v: memref<?x32xf8E4M3FN>, %s: memref<?x2xf8E8M0FNU>, %y: memref<?x64xbf16>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has size 32 in dimension 1, but dimension 1 of operand 'out' is 64}}
  moe.dequantize values(%v : memref<?x32xf8E4M3FN>) scales(%s : memref<?x2xf8E8M0FNU>) outs(%y : memref<?x64xbf16>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @dequantize_c2_nvfp4(%v: memref<?x12xi8>, %s: memref<?x2xf8E4M3FN>, %y: memref<?x24xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'out' has rows of 24 elements, must be a multiple of 16 for nvfp4: pad the rows}}
  moe.dequantize values(%v : memref<?x12xi8>) scales(%s : memref<?x2xf8E4M3FN>) outs(%y : memref<?x24xf32>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c2_mxfp4(%v: memref<?x24xi8>, %s: memref<?x?xf8E8M0FNU>, %y: memref<?x?xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has rows of 48 codes, must be a multiple of 32 for mxfp4: pad the rows}}
  moe.dequantize values(%v : memref<?x24xi8>) scales(%s : memref<?x?xf8E8M0FNU>) outs(%y : memref<?x?xf32>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

func.func @dequantize_c2_mxfp8(%v: memref<?x?xi8>, %s: memref<?x?xf8E8M0FNU>, %y: memref<?x33xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'out' has rows of 33 elements, must be a multiple of 32 for mxfp8: pad the rows}}
  moe.dequantize values(%v : memref<?x?xi8>) scales(%s : memref<?x?xf8E8M0FNU>) outs(%y : memref<?x33xf32>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @dequantize_c3_packed(%v: memref<?x32xf8E4M3FN>, %s: memref<?x4xf8E4M3FN>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has an element type that is none of nvfp4: must be i8 or ui8}}
  moe.dequantize values(%v : memref<?x32xf8E4M3FN>) scales(%s : memref<?x4xf8E4M3FN>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c3_nvfp4(%v: memref<?x32xi8>, %s: memref<?x4xf8E8M0FNU>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of nvfp4: must be f8E4M3FN, i8 or ui8}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E8M0FNU>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c3_mxfp4(%v: memref<?x32xi8>, %s: memref<?x2xf8E4M3FN>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of mxfp4: must be f8E8M0FNU, i8 or ui8}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x2xf8E4M3FN>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

func.func @dequantize_c3_mxfp8(%v: memref<?x64xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of mxfp8: must be f8E8M0FNU, i8 or ui8}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x2xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @dequantize_c3_fp8(%v: memref<?x64xf8E4M3FN>, %s: memref<?x1xui8>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of fp8_token: must be f32}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x1xui8>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_token"}
  return
}

// -----

func.func @dequantize_c4_linear_rows(%v: memref<2x32xi8>, %s: memref<3x4xf8E4M3FN>, %y: memref<2x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 3 in dimension 0, but the number of tokens is 2}}
  moe.dequantize values(%v : memref<2x32xi8>) scales(%s : memref<3x4xf8E4M3FN>) outs(%y : memref<2x64xf32>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c4_linear_columns(%v: memref<?x32xi8>, %s: memref<?x4xf8E8M0FNU>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 4 in dimension 1, but the number of scales of a row is 2}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E8M0FNU>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

func.func @dequantize_c4_128x4_rows(%v: memref<129x32xi8>, %s: memref<128x4xf8E4M3FN>, %y: memref<129x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 128 in dimension 0, but the number of tokens, up to a multiple of 128, is 256}}
  moe.dequantize values(%v : memref<129x32xi8>) scales(%s : memref<128x4xf8E4M3FN>) outs(%y : memref<129x64xf32>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @dequantize_c4_128x4_columns(%v: memref<?x40xi8>, %s: memref<?x5xf8E4M3FN>, %y: memref<?x80xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 5 in dimension 1, but the number of scales of a row, up to a multiple of 4, is 8}}
  moe.dequantize values(%v : memref<?x40xi8>) scales(%s : memref<?x5xf8E4M3FN>) outs(%y : memref<?x80xf32>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @dequantize_c4_128x4_dynamic_tokens(%v: memref<?x32xi8>, %s: memref<100x4xf8E4M3FN>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 100 in dimension 0, must be a multiple of 128}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<100x4xf8E4M3FN>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @dequantize_c4_128x4_dynamic_columns(%v: memref<?x?xi8>, %s: memref<?x6xf8E4M3FN>, %y: memref<?x?xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 6 in dimension 1, must be a multiple of 4}}
  moe.dequantize values(%v : memref<?x?xi8>) scales(%s : memref<?x6xf8E4M3FN>) outs(%y : memref<?x?xf32>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @dequantize_c4_8x4_rows(%v: memref<9x64xi8>, %s: memref<9x4xf8E8M0FNU>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 9 in dimension 0, but the number of tokens, up to a multiple of 8, is 16}}
  moe.dequantize values(%v : memref<9x64xi8>) scales(%s : memref<9x4xf8E8M0FNU>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp8", scale_layout = "8x4"}
  return
}

// -----

func.func @dequantize_c4_8x4_dynamic_tokens(%v: memref<?x64xi8>, %s: memref<12x4xf8E8M0FNU>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 12 in dimension 0, must be a multiple of 8}}
  moe.dequantize values(%v : memref<?x64xi8>) scales(%s : memref<12x4xf8E8M0FNU>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp8", scale_layout = "8x4"}
  return
}

// -----

func.func @dequantize_c4_block(%v: memref<?x300xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<?x300xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 1, but the number of scales of a row is 3}}
  moe.dequantize values(%v : memref<?x300xf8E4M3FN>) scales(%s : memref<?x2xf32>) outs(%y : memref<?x300xf32>) context(%ctx) {format = "fp8_block"}
  return
}

// -----

func.func @dequantize_c4_transposed_rows(%v: memref<?x300xf8E4M3FN>, %s: memref<2x?xf32>, %y: memref<?x300xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 0, but the number of scales of a row is 3}}
  moe.dequantize values(%v : memref<?x300xf8E4M3FN>) scales(%s : memref<2x?xf32>) outs(%y : memref<?x300xf32>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"}
  return
}

// -----

func.func @dequantize_c4_transposed_columns(%v: memref<5x300xf8E4M3FN>, %s: memref<3x4xf32>, %y: memref<5x300xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 4 in dimension 1, must be at least 5, the number of tokens}}
  moe.dequantize values(%v : memref<5x300xf8E4M3FN>) scales(%s : memref<3x4xf32>) outs(%y : memref<5x300xf32>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"}
  return
}

// -----

func.func @dequantize_c4_token(%v: memref<?x64xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 1, but the number of scales of a row is 1}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x2xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_token"}
  return
}

// -----

func.func @dequantize_c4_tensor(%v: memref<5x64xf8E4M3FN>, %s: memref<5x1xf32>, %y: memref<5x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 5 in dimension 0, but the number of its rows is 1}}
  moe.dequantize values(%v : memref<5x64xf8E4M3FN>) scales(%s : memref<5x1xf32>) outs(%y : memref<5x64xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @dequantize_c4_tensor_columns(%v: memref<5x64xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<5x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 1, but the number of scales of a row is 1}}
  moe.dequantize values(%v : memref<5x64xf8E4M3FN>) scales(%s : memref<?x2xf32>) outs(%y : memref<5x64xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @dequantize_c5_missing(%v: memref<?x64xf8E4M3FN>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' is not there, but format is mxfp8: add it}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @dequantize_c5_missing_in_tensor(%v: memref<?x64xf8E4M3FN>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' is not there, but format is fp8_tensor: add it}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @dequantize_c5_superfluous(%v: memref<?x64xf8E4M3FN>, %s: memref<1x1xf32>, %g: memref<1xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' is there, but fp8_tensor with 'global_scale' has no scales: leave out one of the two}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<1x1xf32>) global_scale(%g : memref<1xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @dequantize_c6_128x4(%v: memref<?x64xf8E4M3FN>, %s: memref<?x?xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = 128x4 goes with nvfp4, mxfp4 and mxfp8, but format is fp8_block: leave it linear}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x?xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_block", scale_layout = "128x4"}
  return
}

// -----

func.func @dequantize_c6_8x4(%v: memref<?x64xf8E4M3FN>, %s: memref<?x?xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = 8x4 goes with nvfp4, mxfp4 and mxfp8, but format is fp8_token: leave it linear}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x?xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_token", scale_layout = "8x4"}
  return
}

// -----

func.func @dequantize_c6_transposed(%v: memref<?x32xi8>, %s: memref<?x?xf8E8M0FNU>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = transposed goes with fp8_block, but format is mxfp4: leave it linear}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x?xf8E8M0FNU>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp4", scale_layout = "transposed"}
  return
}

// -----

func.func @dequantize_c6_transposed_tensor(%v: memref<?x64xf8E4M3FN>, %s: memref<1x1xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = transposed goes with fp8_block, but format is fp8_tensor: leave it linear}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<1x1xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_tensor", scale_layout = "transposed"}
  return
}

// -----

func.func @dequantize_c7(%v: memref<?x64xf8E4M3FN>, %s: memref<?x2xf8E8M0FNU>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{packing = mega goes with nvfp4 and mxfp4, but format is mxfp8: leave it low_first}}
  moe.dequantize values(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x2xf8E8M0FNU>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp8", packing = "mega"}
  return
}

// -----

func.func @dequantize_c8_size(%v: memref<?x32xi8>, %s: memref<?x4xf8E4M3FN>, %g: memref<2xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'global_scale' has size 2 in dimension 0, but the number of its elements is 1}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E4M3FN>) global_scale(%g : memref<2xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @dequantize_c8_format(%v: memref<?x32xi8>, %s: memref<?x2xf8E8M0FNU>, %g: memref<1xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'global_scale' goes with nvfp4 and fp8_tensor, but format is mxfp4: leave it out}}
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x2xf8E8M0FNU>) global_scale(%g : memref<1xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "mxfp4"}
  return
}

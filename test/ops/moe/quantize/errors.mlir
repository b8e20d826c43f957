// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @quantize_c1_tokens(%x: memref<2x64xbf16>, %v: memref<3x32xi8>, %s: memref<2x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has size 3 in dimension 0, but dimension 0 of operand 'input' is 2}}
  moe.quantize input(%x : memref<2x64xbf16>) outs(%v : memref<3x32xi8>) scales(%s : memref<2x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c1_packed(%x: memref<?x64xbf16>, %v: memref<?x64xi8>, %s: memref<?x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has size 64 in dimension 1, but half of dimension 1 of operand 'input' is 32}}
  moe.quantize input(%x : memref<?x64xbf16>) outs(%v : memref<?x64xi8>) scales(%s : memref<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c1_bytes(%x: memref<?x64xbf16>, %v: memref<?x32xf8E4M3FN>, %s: memref<?x2xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has size 32 in dimension 1, but dimension 1 of operand 'input' is 64}}
  moe.quantize input(%x : memref<?x64xbf16>) outs(%v : memref<?x32xf8E4M3FN>) scales(%s : memref<?x2xf8E8M0FNU>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @quantize_c2_nvfp4(%x: memref<?x24xf32>, %v: memref<?x12xi8>, %s: memref<?x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'input' has rows of 24 elements, must be a multiple of 16 for nvfp4: pad the rows}}
  moe.quantize input(%x : memref<?x24xf32>) outs(%v : memref<?x12xi8>) scales(%s : memref<?x2xf8E4M3FN>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c2_mxfp4(%x: memref<?x?xf32>, %v: memref<?x24xi8>, %s: memref<?x?xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has rows of 48 codes, must be a multiple of 32 for mxfp4: pad the rows}}
  moe.quantize input(%x : memref<?x?xf32>) outs(%v : memref<?x24xi8>) scales(%s : memref<?x?xf8E8M0FNU>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

func.func @quantize_c2_mxfp8(%x: memref<?x33xf32>, %v: memref<?x?xi8>, %s: memref<?x?xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'input' has rows of 33 elements, must be a multiple of 32 for mxfp8: pad the rows}}
  moe.quantize input(%x : memref<?x33xf32>) outs(%v : memref<?x?xi8>) scales(%s : memref<?x?xf8E8M0FNU>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @quantize_c3_packed(%x: memref<?x64xf32>, %v: memref<?x32xf8E4M3FN>, %s: memref<?x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'values' has an element type that is none of nvfp4: must be i8 or ui8}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xf8E4M3FN>) scales(%s : memref<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c3_nvfp4(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<?x4xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of nvfp4: must be f8E4M3FN, i8 or ui8}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E8M0FNU>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c3_mxfp4(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<?x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of mxfp4: must be f8E8M0FNU, i8 or ui8}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x2xf8E4M3FN>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

func.func @quantize_c3_mxfp8(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of mxfp8: must be f8E8M0FNU, i8 or ui8}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x2xf32>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @quantize_c3_fp8(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x1xui8>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has an element type that is none of fp8_token: must be f32}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x1xui8>) context(%ctx) {format = "fp8_token"}
  return
}

// -----

func.func @quantize_c4_linear_rows(%x: memref<2x64xf32>, %v: memref<2x32xi8>, %s: memref<3x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 3 in dimension 0, but the number of tokens is 2}}
  moe.quantize input(%x : memref<2x64xf32>) outs(%v : memref<2x32xi8>) scales(%s : memref<3x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c4_linear_columns(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<?x4xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 4 in dimension 1, but the number of scales of a row is 2}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E8M0FNU>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

func.func @quantize_c4_128x4_rows(%x: memref<129x64xf32>, %v: memref<129x32xi8>, %s: memref<128x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 128 in dimension 0, but the number of tokens, up to a multiple of 128, is 256}}
  moe.quantize input(%x : memref<129x64xf32>) outs(%v : memref<129x32xi8>) scales(%s : memref<128x4xf8E4M3FN>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @quantize_c4_128x4_columns(%x: memref<?x80xf32>, %v: memref<?x40xi8>, %s: memref<?x5xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 5 in dimension 1, but the number of scales of a row, up to a multiple of 4, is 8}}
  moe.quantize input(%x : memref<?x80xf32>) outs(%v : memref<?x40xi8>) scales(%s : memref<?x5xf8E4M3FN>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @quantize_c4_128x4_dynamic_tokens(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<100x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 100 in dimension 0, must be a multiple of 128}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<100x4xf8E4M3FN>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @quantize_c4_128x4_dynamic_columns(%x: memref<?x?xf32>, %v: memref<?x?xi8>, %s: memref<?x6xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 6 in dimension 1, must be a multiple of 4}}
  moe.quantize input(%x : memref<?x?xf32>) outs(%v : memref<?x?xi8>) scales(%s : memref<?x6xf8E4M3FN>) context(%ctx) {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

func.func @quantize_c4_8x4_rows(%x: memref<?x64xf32>, %v: memref<9x64xi8>, %s: memref<9x4xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 9 in dimension 0, but the number of tokens, up to a multiple of 8, is 16}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<9x64xi8>) scales(%s : memref<9x4xf8E8M0FNU>) context(%ctx) {format = "mxfp8", scale_layout = "8x4"}
  return
}

// -----

func.func @quantize_c4_8x4_dynamic_tokens(%x: memref<?x64xf32>, %v: memref<?x64xi8>, %s: memref<12x4xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 12 in dimension 0, must be a multiple of 8}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xi8>) scales(%s : memref<12x4xf8E8M0FNU>) context(%ctx) {format = "mxfp8", scale_layout = "8x4"}
  return
}

// -----

func.func @quantize_c4_block(%x: memref<?x300xf32>, %v: memref<?x300xf8E4M3FN>, %s: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 1, but the number of scales of a row is 3}}
  moe.quantize input(%x : memref<?x300xf32>) outs(%v : memref<?x300xf8E4M3FN>) scales(%s : memref<?x2xf32>) context(%ctx) {format = "fp8_block"}
  return
}

// -----

func.func @quantize_c4_transposed_rows(%x: memref<?x300xf32>, %v: memref<?x300xf8E4M3FN>, %s: memref<2x?xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 0, but the number of scales of a row is 3}}
  moe.quantize input(%x : memref<?x300xf32>) outs(%v : memref<?x300xf8E4M3FN>) scales(%s : memref<2x?xf32>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"}
  return
}

// -----

func.func @quantize_c4_transposed_columns(%x: memref<5x300xf32>, %v: memref<5x300xf8E4M3FN>, %s: memref<3x4xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 4 in dimension 1, must be at least 5, the number of tokens}}
  moe.quantize input(%x : memref<5x300xf32>) outs(%v : memref<5x300xf8E4M3FN>) scales(%s : memref<3x4xf32>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"}
  return
}

// -----

func.func @quantize_c4_token(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 1, but the number of scales of a row is 1}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x2xf32>) context(%ctx) {format = "fp8_token"}
  return
}

// -----

func.func @quantize_c4_tensor(%x: memref<5x64xf32>, %v: memref<5x64xf8E4M3FN>, %s: memref<5x1xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 5 in dimension 0, but the number of its rows is 1}}
  moe.quantize input(%x : memref<5x64xf32>) outs(%v : memref<5x64xf8E4M3FN>) scales(%s : memref<5x1xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @quantize_c4_tensor_columns(%x: memref<5x64xf32>, %v: memref<5x64xf8E4M3FN>, %s: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' has size 2 in dimension 1, but the number of scales of a row is 1}}
  moe.quantize input(%x : memref<5x64xf32>) outs(%v : memref<5x64xf8E4M3FN>) scales(%s : memref<?x2xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @quantize_c5_missing(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' is not there, but format is mxfp8: add it}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) context(%ctx) {format = "mxfp8"}
  return
}

// -----

func.func @quantize_c5_missing_in_tensor(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' is not there, but format is fp8_tensor: add it}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @quantize_c5_superfluous(%x: memref<?x64xf32>, %g: memref<1xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<1x1xf32>, %ctx: !moe.context) {
  // expected-error @below {{operand 'scales' is there, but fp8_tensor with 'global_scale' has no scales: leave out one of the two}}
  moe.quantize input(%x : memref<?x64xf32>) global_scale(%g : memref<1xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<1x1xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

// -----

func.func @quantize_c6_128x4(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x?xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = 128x4 goes with nvfp4, mxfp4 and mxfp8, but format is fp8_block: leave it linear}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x?xf32>) context(%ctx) {format = "fp8_block", scale_layout = "128x4"}
  return
}

// -----

func.func @quantize_c6_8x4(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x?xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = 8x4 goes with nvfp4, mxfp4 and mxfp8, but format is fp8_token: leave it linear}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x?xf32>) context(%ctx) {format = "fp8_token", scale_layout = "8x4"}
  return
}

// -----

func.func @quantize_c6_transposed(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<?x?xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = transposed goes with fp8_block, but format is mxfp4: leave it linear}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x?xf8E8M0FNU>) context(%ctx) {format = "mxfp4", scale_layout = "transposed"}
  return
}

// -----

func.func @quantize_c6_transposed_tensor(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<1x1xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_layout = transposed goes with fp8_block, but format is fp8_tensor: leave it linear}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<1x1xf32>) context(%ctx) {format = "fp8_tensor", scale_layout = "transposed"}
  return
}

// -----

func.func @quantize_c7(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x2xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{packing = mega goes with nvfp4 and mxfp4, but format is mxfp8: leave it low_first}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x2xf8E8M0FNU>) context(%ctx) {format = "mxfp8", packing = "mega"}
  return
}

// -----

func.func @quantize_c8(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<?x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{scale_rounding = even goes with mxfp4 and mxfp8, but format is nvfp4: leave it up}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4", scale_rounding = "even"}
  return
}

// -----

func.func @quantize_c8_fp8(%x: memref<?x64xf32>, %v: memref<?x64xf8E4M3FN>, %s: memref<?x1xf32>, %ctx: !moe.context) {
  // expected-error @below {{scale_rounding = even goes with mxfp4 and mxfp8, but format is fp8_block: leave it up}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x64xf8E4M3FN>) scales(%s : memref<?x1xf32>) context(%ctx) {format = "fp8_block", scale_rounding = "even"}
  return
}

// -----

func.func @quantize_c9(%x: memref<?x64xf32>, %v: memref<?x32xi8>, %s: memref<?x2xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{fast_reciprocal goes with nvfp4, but format is mxfp4: leave it false}}
  moe.quantize input(%x : memref<?x64xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x2xf8E8M0FNU>) context(%ctx) {format = "mxfp4", fast_reciprocal = true}
  return
}

// -----

func.func @quantize_c10_size(%x: memref<?x64xf32>, %g: memref<2xf32>, %v: memref<?x32xi8>, %s: memref<?x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{operand 'global_scale' has size 2 in dimension 0, but the number of its elements is 1}}
  moe.quantize input(%x : memref<?x64xf32>) global_scale(%g : memref<2xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"}
  return
}

// -----

func.func @quantize_c10_format(%x: memref<?x64xf32>, %g: memref<1xf32>, %v: memref<?x32xi8>, %s: memref<?x2xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error @below {{operand 'global_scale' goes with nvfp4 and fp8_tensor, but format is mxfp4: leave it out}}
  moe.quantize input(%x : memref<?x64xf32>) global_scale(%g : memref<1xf32>) outs(%v : memref<?x32xi8>) scales(%s : memref<?x2xf8E8M0FNU>) context(%ctx) {format = "mxfp4"}
  return
}

// -----

// Sizes of which no multiple is an integer are left to the run side.
func.func @largest_sizes(%x: memref<9223372036854775807x?xf32>, %v: memref<9223372036854775807x9223372036854775792xi8>, %s: memref<?x?xf8E4M3FN>, %t: memref<1x?xf8E4M3FN>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<9223372036854775807x?xf32>) outs(%v : memref<9223372036854775807x9223372036854775792xi8>) scales(%s : memref<?x?xf8E4M3FN>) context(%ctx)
    {format = "nvfp4", scale_layout = "128x4"}
  // expected-error @below {{operand 'scales' has size 1 in dimension 0, must be a multiple of 128}}
  moe.quantize input(%x : memref<9223372036854775807x?xf32>) outs(%v : memref<9223372036854775807x9223372036854775792xi8>) scales(%t : memref<1x?xf8E4M3FN>) context(%ctx)
    {format = "nvfp4", scale_layout = "128x4"}
  return
}

// -----

// S3: a result for each destination.
func.func @results(%x: tensor<?x64xf32>, %v: tensor<?x32xi8>, %s: tensor<?x4xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error @below {{'moe.quantize' op result #1 must have the type of destination 'scales'}}
  %0 = moe.quantize input(%x : tensor<?x64xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"} -> tensor<?x32xi8>
  return
}

// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @grouped_matmul_c1(%rows: memref<16x60xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x60xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op the row size K of 'rows' is 60, must be a multiple of 8}}
  moe.grouped_matmul rows(%rows : memref<16x60xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x60xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c2(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x36x64xf32>, %out: memref<16x36xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op the number N of weight rows is 36, must be a multiple of 8}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x36x64xf32>)
    outs(%out : memref<16x36xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c2_swiglu(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x24x64xf32>, %out: memref<16x12xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op the number N of weight rows is 24, must be a multiple of 16}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x24x64xf32>)
    outs(%out : memref<16x12xf32>) context(%ctx) {activation = "swiglu"}
  return
}

// -----

func.func @grouped_matmul_c2_inner_size(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x72xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weights' has size 72 in dimension 2, but dimension 1 of operand 'rows' is 64}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x72xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c2_element_type(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xbf16>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op 'rows' and 'weights' must have the same element type}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xbf16>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c3(%rows: memref<16x64xf32>, %offsets: memref<4xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'offsets' has size 4 in dimension 0, but the number of groups + 1 is 5}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<4xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c4_columns(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x24xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'out' has size 24 in dimension 1, but N is 32}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x24xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c4_columns_swiglu(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'out' has size 32 in dimension 1, but N / 2 (swiglu) is 16}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx) {activation = "swiglu"}
  return
}

// -----

func.func @grouped_matmul_c4_rows(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<15x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'out' has size 15 in dimension 0, but dimension 0 of operand 'rows' is 16}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<15x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c4_rows_gathered(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_ids: memref<9xi32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'out' has size 16 in dimension 0, but dimension 0 of operand 'row_ids' is 9}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_ids(%row_ids : memref<9xi32>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c5_groups(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %bias: memref<5x32xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'bias' has size 5 in dimension 0, but dimension 0 of operand 'weights' is 4}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    bias(%bias : memref<5x32xf32>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c5_columns(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %bias: memref<4x16xf32>, %out: memref<16x16xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'bias' has size 16 in dimension 1, but dimension 1 of operand 'weights' is 32}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    bias(%bias : memref<4x16xf32>) outs(%out : memref<16x16xf32>) context(%ctx) {activation = "swiglu"}
  return
}

// -----

func.func @grouped_matmul_c6(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_weights: memref<17xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'row_weights' has size 17 in dimension 0, but dimension 0 of operand 'out' is 16}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_weights(%row_weights : memref<17xf32>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c6_gathered(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_ids: memref<9xi32>, %row_weights: memref<16xf32>, %out: memref<9x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'row_weights' has size 16 in dimension 0, but dimension 0 of operand 'out' is 9}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_ids(%row_ids : memref<9xi32>) row_weights(%row_weights : memref<16xf32>) outs(%out : memref<9x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c7_negative(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x16xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op limit is -1, must be at least 0 (0: no clamp)}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x16xf32>) context(%ctx) {activation = "swiglu", limit = -1.0 : f64}
  return
}

// -----

func.func @grouped_matmul_c7_without_swiglu(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op limit = 7 needs activation = "swiglu"}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx) {limit = 7.0 : f64}
  return
}

// -----

func.func @grouped_matmul_c7_alpha_without_limit(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x16xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op alpha = 1.702 needs a limit greater than 0}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x16xf32>) context(%ctx) {activation = "swiglu", alpha = 1.702 : f64}
  return
}

// -----

func.func @grouped_matmul_c7_alpha_without_swiglu(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op alpha = 0.5 needs a limit greater than 0}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx) {alpha = 0.5 : f64}
  return
}

// -----

func.func @grouped_matmul_s1(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: tensor<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'out' is a tensor, but operand 'rows' is a memref: use tensors or memrefs throughout}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  return
}

// -----

func.func @grouped_matmul_s1_optional(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %row_ids: memref<16xi32>, %out: tensor<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'row_ids' is a memref, but operand 'rows' is a tensor: use tensors or memrefs throughout}}
  moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    row_ids(%row_ids : memref<16xi32>) outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  return
}

// -----

func.func @grouped_matmul_s2(%rows: memref<16x64xf32>, %offsets: memref<5xi32, #moe.host>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'offsets' must be in device memory, which is the default memory space: its type has another one}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32, #moe.host>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_s2_optional(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %bias: memref<4x32xf32, 1>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'bias' must be in device memory, which is the default memory space: its type has another one}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    bias(%bias : memref<4x32xf32, 1>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_s3(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %out: tensor<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op result #0 must have the type of destination 'out'}}
  moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf16>
  return
}

// -----

func.func @grouped_matmul_s3_missing(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %out: tensor<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op result #0 must have the type of destination 'out'}}
  moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    outs(%out : tensor<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_s3_on_memrefs(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op has 1 results, but must have 0: one for each destination on tensors}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  return
}

// -----

func.func @grouped_matmul_s4(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op has no parameter 'activations'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx) {activations = "swiglu"}
  return
}

// -----

func.func @grouped_matmul_rank_of_rows(%rows: memref<16x2x32xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<16x2x32xf32>'}}
  moe.grouped_matmul rows(%rows : memref<16x2x32xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_element_of_rows(%rows: memref<16x64xi8>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<16x64xi8>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xi8>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_rank_of_offsets(%rows: memref<16x64xf32>, %offsets: memref<5x1xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #1 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<5x1xi32>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5x1xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_element_of_offsets(%rows: memref<16x64xf32>, %offsets: memref<5xi64>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #1 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<5xi64>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi64>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_rank_of_weights(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #2 must be 3-D tensor or memref of bf16, f16, f32 or i8 (signless or ui8), but got 'memref<32x64xf32>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<32x64xf32>)
    outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_element_of_bias(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %bias: memref<4x32xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #3 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<4x32xf8E4M3FN>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    bias(%bias : memref<4x32xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_element_of_row_ids(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_ids: memref<16xsi32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #3 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<16xsi32>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_ids(%row_ids : memref<16xsi32>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_element_of_row_weights(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_weights: memref<16xbf16>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #3 must be 1-D tensor or memref of f32, but got 'memref<16xbf16>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_weights(%row_weights : memref<16xbf16>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_rank_of_out(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<512xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand #3 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<512xf32>'}}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    outs(%out : memref<512xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_segments(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand count (5) does not match with the total size (6) specified in attribute 'operandSegmentSizes'}}
  "moe.grouped_matmul"(%rows, %offsets, %weights, %out, %ctx) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 0, 1, 1>}
    : (memref<16x64xf32>, memref<5xi32>, memref<4x32x64xf32>, memref<16x32xf32>, !moe.context) -> ()
  return
}

// -----

func.func @grouped_matmul_two_biases(%rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %bias: memref<4x32xf32>, %out: memref<16x32xf32>,
                                     %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand group starting at #3 requires 0 or 1 element, but found 2}}
  "moe.grouped_matmul"(%rows, %offsets, %weights, %bias, %bias, %out, %ctx) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 2, 0, 0, 1, 1>}
    : (memref<16x64xf32>, memref<5xi32>, memref<4x32x64xf32>, memref<4x32xf32>, memref<4x32xf32>, memref<16x32xf32>, !moe.context) -> ()
  return
}

// -----

func.func @grouped_matmul_s6(%rows: memref<8x8xf32>, %offsets: memref<2xi32>, %weights: memref<1x8x8xf32>, %out: memref<8x8xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'device_context' stands for 2 values, must be one}}
  "moe.grouped_matmul"(%rows, %offsets, %weights, %out, %ctx, %ctx) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 1, 2>}>
    : (memref<8x8xf32>, memref<2xi32>, memref<1x8x8xf32>, memref<8x8xf32>, !moe.context, !moe.context) -> ()
  return
}

// -----

func.func @grouped_matmul_s6_none(%rows: memref<8x8xf32>, %offsets: memref<2xi32>, %weights: memref<1x8x8xf32>, %out: memref<8x8xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'rows' stands for 2 values, must be one}}
  "moe.grouped_matmul"(%rows, %rows, %offsets, %weights, %out) <{operandSegmentSizes = array<i32: 2, 1, 1, 0, 0, 0, 0, 0, 1, 0>}>
    : (memref<8x8xf32>, memref<8x8xf32>, memref<2xi32>, memref<1x8x8xf32>, memref<8x8xf32>) -> ()
  return
}

// -----

// No number is one more than the largest.
func.func @grouped_matmul_c3_largest(%rows: memref<0x8xf32>, %offsets: memref<2xi32>, %weights: memref<9223372036854775807x0x8xf32>, %out: memref<0x0xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'offsets' has size 2 in dimension 0, but the number of groups + 1 is 9223372036854775807}}
  moe.grouped_matmul rows(%rows : memref<0x8xf32>) offsets(%offsets : memref<2xi32>) weights(%weights : memref<9223372036854775807x0x8xf32>)
    outs(%out : memref<0x0xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c2_rows_of_codes(%rows: memref<16x64xf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x32x4xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op 'rows' must be of bf16 with weight_format = "nvfp4"}}
  moe.grouped_matmul rows(%rows : memref<16x64xf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

// -----

func.func @grouped_matmul_c2_half_the_size(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x64xi8>, %scales: memref<4x32x4xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weights' has size 64 in dimension 2, but half of the row size K of 'rows' is 32}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xi8>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

// -----

func.func @grouped_matmul_c2_codes_of_numbers(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xbf16>, %scales: memref<4x32x4xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weights' has an element type that is none of nvfp4: must be i8 or ui8}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xbf16>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

// -----

func.func @grouped_matmul_c8_nvfp4(%rows: memref<16x72xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x36xi8>, %scales: memref<4x32x4xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op the row size K of 'rows', which is in blocks, is 72, must be a multiple of 16}}
  moe.grouped_matmul rows(%rows : memref<16x72xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x36xi8>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

// -----

func.func @grouped_matmul_c8_mxfp4(%rows: memref<16x80xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x40xi8>, %scales: memref<4x32x2xf8E8M0FNU>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op the row size K of 'rows', which is in blocks, is 80, must be a multiple of 32}}
  moe.grouped_matmul rows(%rows : memref<16x80xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x40xi8>)
    scales(%scales : memref<4x32x2xf8E8M0FNU>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "mxfp4"}
  return
}

// -----

func.func @grouped_matmul_c9_absent(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_scales' is not there, but weight_format is mxfp4: add it}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "mxfp4"}
  return
}

// -----

func.func @grouped_matmul_c9_present(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x64xbf16>, %scales: memref<4x32x4xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_scales' is there, but weight_format is none: name the format, or leave it out}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xbf16>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c9_element_type(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x32x2xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_scales' has an element type that is none of mxfp4: must be f8E8M0FNU, i8 or ui8}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x32x2xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "mxfp4"}
  return
}

// -----

func.func @grouped_matmul_c9_rows(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x16x4xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_scales' has size 16 in dimension 1, but dimension 1 of operand 'weights' is 32}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x16x4xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

// -----

func.func @grouped_matmul_c9_columns(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x32x2xf8E4M3FN>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_scales' has size 2 in dimension 2, but K / 16 is 4}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x32x2xf8E4M3FN>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

// -----

func.func @grouped_matmul_c10_mxfp4(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x32x2xi8>, %factors: memref<4xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_global_scale' goes with weight_format = "nvfp4", but it is mxfp4: leave it out}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x32x2xi8>) global_scale(%factors : memref<4xf32>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "mxfp4"}
  return
}

// -----

func.func @grouped_matmul_c10_none(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x64xbf16>, %factors: memref<4xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_global_scale' goes with weight_format = "nvfp4", but it is none: leave it out}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xbf16>)
    global_scale(%factors : memref<4xf32>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// -----

func.func @grouped_matmul_c10_size(%rows: memref<16x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x32x4xf8E4M3FN>, %factors: memref<1xf32>, %out: memref<16x32xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.grouped_matmul' op operand 'weight_global_scale' has size 1 in dimension 0, but dimension 0 of operand 'weights' is 4}}
  moe.grouped_matmul rows(%rows : memref<16x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x32x4xf8E4M3FN>) global_scale(%factors : memref<1xf32>) outs(%out : memref<16x32xf32>) context(%ctx) {weight_format = "nvfp4"}
  return
}

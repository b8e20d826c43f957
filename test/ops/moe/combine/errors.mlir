// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @combine_c1(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op rows of 'payload' have 16 elements, but hidden_size is 32}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64}
  return
}

// -----

func.func @combine_c1_trailing(%x: memref<4x8x2x3x4xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                               %out: memref<5x2x3x4xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op rows of 'payload' have 24 elements, but hidden_size is 16}}
  moe.combine payload(%x : memref<4x8x2x3x4xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x2x3x4xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c1_empty_rows(%x: memref<4x8x0xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                 %out: memref<5x0xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op rows of 'payload' have 0 elements, but hidden_size is 16}}
  moe.combine payload(%x : memref<4x8x0xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x0xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c1_overflow(%x: memref<4x8x4294967296x4294967296xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                               %offset: i64, %out: memref<5x?x?xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op rows of 'payload' have 9223372036854775807 elements, but hidden_size is 16}}
  moe.combine payload(%x : memref<4x8x4294967296x4294967296xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x?x?xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c1_rank(%x: memref<64xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                           %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'payload' must have rank 2 at least for layout "rank_major", but has rank 1}}
  moe.combine payload(%x : memref<64xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c1_rank_grouped(%x: memref<bf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                   %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'payload' must have rank 1 at least for layout "expert_grouped", but has rank 0}}
  moe.combine payload(%x : memref<bf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped"}
  return
}

// -----

func.func @combine_c1_ranks(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                            %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'payload' has size 4 in dimension 0, but ep_size is 2}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, ep_size = 2 : i64}
  return
}

// -----

func.func @combine_c1_grouped(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                              %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op rows of 'payload' have 128 elements, but hidden_size is 16}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped"}
  return
}

// -----

func.func @combine_c2(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: memref<5x15xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' #0 has size 15 in dimension 1, but dimension 2 of 'payload' #0 is 16}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x15xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c2_rank(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                           %out: memref<5x4x4xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' #0 must have rank 2 to hold the rows of 'payload' #0, but has rank 3}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x4x4xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c2_rank_0(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                             %out: memref<bf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' #0 must have rank 2 to hold the rows of 'payload' #0, but has rank 0}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<bf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c2_grouped(%x: memref<64x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                              %out: memref<5x8xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' #0 has size 8 in dimension 1, but dimension 1 of 'payload' #0 is 16}}
  moe.combine payload(%x : memref<64x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x8xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped"}
  return
}

// -----

func.func @combine_c3(%x: memref<64x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op payload_in_workspace goes with layout "rank_major"}}
  moe.combine payload(%x : memref<64x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped", payload_in_workspace = true}
  return
}

// -----

func.func @combine_c4(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<15xi64, #moe.host>, %max: index, %offset: i64,
                      %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'metainfo' has size 15 in dimension 0, but the number of metainfo fields is 16}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<15xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_s1(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' is a tensor, but operand 'payload' is a memref: use tensors or memrefs throughout}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @combine_s2(%x: memref<4x8x16xbf16, #moe.host>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'payload' must be in device memory, which is the default memory space: its type has another one}}
  moe.combine payload(%x : memref<4x8x16xbf16, #moe.host>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_s2_workspace(%x: memref<4x8x16xbf16>, %ws: memref<?xi8, 1>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'workspace' must be in symmetric memory, which is the default memory space: its type has another one}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8, 1>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_s2_metainfo(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64>, %max: index, %offset: i64, %out: memref<5x16xbf16>,
                               %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_s3(%x: tensor<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op result #0 must have the type of destination 'out'}}
  moe.combine payload(%x : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xbf16>
  return
}

// -----

func.func @combine_s3_missing(%x: tensor<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                              %out: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op result #0 must have the type of destination 'out'}}
  moe.combine payload(%x : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_s3_on_memrefs(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                 %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op has 1 results, but must have 0: one for each destination on tensors}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @combine_s4(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                      %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op has no parameter 'hidden'}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, hidden = 16 : i64}
  return
}

// -----

func.func @combine_element_of_payload(%x: memref<4x8x16xi8>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                      %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #0 must be tensor or memref of bf16, f16 or f32, but got 'memref<4x8x16xi8>'}}
  moe.combine payload(%x : memref<4x8x16xi8>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_element_of_out(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                  %out: memref<5x16xf64>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #5 must be tensor or memref of bf16, f16, f32, f8E4M3FN or i8 (signless or ui8), but got 'memref<5x16xf64>'}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xf64>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_workspace_tensor(%x: tensor<4x8x16xbf16>, %ws: tensor<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                    %out: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #1 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'tensor<?xi8>'}}
  moe.combine payload(%x : tensor<4x8x16xbf16>) workspace(%ws, %info : tensor<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @combine_metainfo_tensor(%x: tensor<4x8x16xbf16>, %ws: memref<?xi8>, %info: tensor<16xi64>, %max: index, %offset: i64,
                                   %out: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #2 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<16xi64>'}}
  moe.combine payload(%x : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, tensor<16xi64>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @combine_workspace_rank(%x: memref<4x8x16xbf16>, %ws: memref<4x?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                  %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #1 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<4x?xi8>'}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<4x?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_max_tokens_type(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: f32, %offset: i64,
                                   %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #3 must be index or i64, but got 'f32'}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : f32) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c5(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %offset: i64, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  %max = arith.constant 5 : i64
  // expected-error@+1 {{'moe.combine' op operand 'payload' has size 8 in dimension 1, but runtime_max_tokens_per_rank is 5}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c5_zero(%x: memref<4x8x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %offset: i64, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  %max = arith.constant 0 : i64
  // expected-error@+1 {{'moe.combine' op runtime_max_tokens_per_rank is 0, must be at least 1}}
  moe.combine payload(%x : memref<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// -----

func.func @combine_c2_rank_of_codes(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x2x16xf8E4M3FN>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' must have rank 2 for output_format = mxfp8, but has rank 3}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x2x16xf8E4M3FN>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c2_rank_of_codes_0(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<i8>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' must have rank 2 for output_format = mxfp8, but has rank 0}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<i8>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c6_missing(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' is not there, but output_format is mxfp8: add it}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c6_unneeded(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xbf16>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' is there, but output_format is none: leave it out}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xbf16>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64}
  return
}

// -----

func.func @combine_c7_numbers(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has an element type of codes, but output_format is none: must be bf16, f16 or f32}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64}
  return
}

// -----

func.func @combine_c7_bytes(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xui8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has an element type of codes, but output_format is none: must be bf16, f16 or f32}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xui8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "none"}
  return
}

// -----

func.func @combine_c7_codes(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xbf16>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has an element type that is none of mxfp8: must be f8E4M3FN, i8 or ui8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xbf16>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c7_packed_codes(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xf8E4M3FN>, %scales: memref<5x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has an element type that is none of nvfp4: must be i8 or ui8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xf8E4M3FN>) output_scales(%scales : memref<5x2xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4"}
  return
}

// -----

func.func @combine_c7_packed_codes_mx(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xf16>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has an element type that is none of mxfp4: must be i8 or ui8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xf16>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp4"}
  return
}

// -----

func.func @combine_c7_columns(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has size 16 in dimension 1, but hidden_size is 32}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c7_packed_columns(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xi8>, %scales: memref<5x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'out' has size 32 in dimension 1, but half of hidden_size is 16}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xi8>) output_scales(%scales : memref<5x2xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4"}
  return
}

// -----

func.func @combine_c7_hidden(%x: memref<4x8x24xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x12xi8>, %scales: memref<5x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op hidden_size is 24, must be a multiple of 16 for nvfp4}}
  moe.combine payload(%x : memref<4x8x24xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x12xi8>) output_scales(%scales : memref<5x2xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 24 : i64, output_format = "nvfp4"}
  return
}

// -----

func.func @combine_c7_hidden_mxfp4(%x: memref<4x8x48xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x24xi8>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op hidden_size is 48, must be a multiple of 32 for mxfp4}}
  moe.combine payload(%x : memref<4x8x48xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x24xi8>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 48 : i64, output_format = "mxfp4"}
  return
}

// -----

func.func @combine_c7_hidden_mxfp8(%x: memref<4x8x?xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<?x?xi8>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op hidden_size is 48, must be a multiple of 32 for mxfp8}}
  moe.combine payload(%x : memref<4x8x?xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x?xi8>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 48 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c7_scales(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: memref<5x1xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has an element type that is none of mxfp8: must be f8E8M0FNU, i8 or ui8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : memref<5x1xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c7_scales_f32(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: memref<5x1xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has an element type that is none of mxfp8: must be f8E8M0FNU, i8 or ui8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : memref<5x1xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c7_scales_nvfp4(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<5x2xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has an element type that is none of nvfp4: must be f8E4M3FN, i8 or ui8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<5x2xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4"}
  return
}

// -----

func.func @combine_c7_scale_rows(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: memref<6x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has size 6 in dimension 0, but the number of tokens is 5}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : memref<6x1xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_c7_scale_columns(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has size 1 in dimension 1, but the number of scales of a row is 2}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<5x1xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4"}
  return
}

// -----

func.func @combine_c7_scale_rows_128(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<8x4xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has size 8 in dimension 0, but the number of tokens, up to a multiple of 128, is 128}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<8x4xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", sf_layout = "128x4"}
  return
}

// -----

func.func @combine_c7_scale_rows_8(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<128x4xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has size 128 in dimension 0, but the number of tokens, up to a multiple of 8, is 8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<128x4xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", sf_layout = "8x4"}
  return
}

// -----

func.func @combine_c7_scale_columns_4(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<8x2xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has size 2 in dimension 1, but the number of scales of a row, up to a multiple of 4, is 4}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<8x2xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", sf_layout = "8x4"}
  return
}

// -----

func.func @combine_c7_scale_rows_of_unknown(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<?x32xi8>, %scales: memref<12x4xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' has size 12 in dimension 0, must be a multiple of 8}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x32xi8>) output_scales(%scales : memref<12x4xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8", sf_layout = "8x4"}
  return
}

// -----

func.func @combine_c8(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op sf_layout = 128x4 goes with nvfp4, mxfp4 and mxfp8, but output_format is none: leave it linear}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, sf_layout = "128x4"}
  return
}

// -----

func.func @combine_c9_zero(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<5x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op output_scalar_scale is 0, must be larger than 0 as an f32}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<5x2xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", output_scalar_scale = 0.0 : f64}
  return
}

// -----

func.func @combine_c9_negative(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<5x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op output_scalar_scale is -1, must be larger than 0 as an f32}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<5x2xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", output_scalar_scale = -1.0 : f64}
  return
}

// -----

func.func @combine_c9_tiny(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xi8>, %scales: memref<5x2xf8E4M3FN>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op output_scalar_scale is 1e-60, must be larger than 0 as an f32}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x16xi8>) output_scales(%scales : memref<5x2xf8E4M3FN>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", output_scalar_scale = 1.0e-60 : f64}
  return
}

// -----

func.func @combine_c9_format(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: memref<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op output_scalar_scale = 2 goes with nvfp4, but output_format is mxfp8: leave it 1}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : memref<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8", output_scalar_scale = 2.0 : f64}
  return
}

// -----

func.func @combine_c9_none(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op output_scalar_scale = 0.5 goes with nvfp4, but output_format is none: leave it 1}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_scalar_scale = 0.5 : f64}
  return
}

// -----

func.func @combine_s1_scales(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: tensor<5x1xf8E8M0FNU>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' is a tensor, but operand 'payload' is a memref: use tensors or memrefs throughout}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : tensor<5x1xf8E8M0FNU>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"} -> tensor<5x1xf8E8M0FNU>
  return
}

// -----

func.func @combine_s2_scales(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: memref<5x1xf8E8M0FNU, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand 'output_scales' must be in device memory, which is the default memory space: its type has another one}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : memref<5x1xf8E8M0FNU, #moe.host>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_scales_rank(%x: memref<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x32xf8E4M3FN>, %scales: memref<5xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op operand #6 must be 2-D tensor or memref of f8E4M3FN, f8E8M0FNU, i8 (signless or ui8) or f32, but got 'memref<5xi8>'}}
  moe.combine payload(%x : memref<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<5x32xf8E4M3FN>) output_scales(%scales : memref<5xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"}
  return
}

// -----

func.func @combine_s3_scales(%x: tensor<4x8x32xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<5x32xi8>, %scales: tensor<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.combine' op result #1 must have the type of destination 'output_scales'}}
  moe.combine payload(%x : tensor<4x8x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<5x32xi8>) output_scales(%scales : tensor<5x1xi8>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "mxfp8"} -> tensor<5x32xi8>
  return
}

// -----

func.func @combine_c10(%x: memref<64x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  %mask = arith.constant 0 : i64
  // expected-error@+1 {{'moe.combine' op active_rank_mask is 0, must have the bit of a rank: leave it out for all ranks}}
  moe.combine payload(%x : memref<64x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped"}
  return
}

// -----

func.func @combine_c10_beyond(%x: memref<64x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  %mask = arith.constant 16 : i64
  // expected-error@+1 {{'moe.combine' op active_rank_mask is 0x10, but ep_size is 4: must be less than 0x10}}
  moe.combine payload(%x : memref<64x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped", ep_size = 4 : i64}
  return
}

// -----

func.func @combine_c10_last(%x: memref<64x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  %mask = arith.constant -1 : i64
  // expected-error@+1 {{'moe.combine' op active_rank_mask is 0xffffffffffffffff, but ep_size is 63: must be less than 0x8000000000000000}}
  moe.combine payload(%x : memref<64x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%out : memref<5x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped", ep_size = 63 : i64}
  return
}

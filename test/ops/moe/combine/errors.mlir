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
  // expected-error@+1 {{'moe.combine' op operand #5 must be tensor or memref of bf16, f16 or f32, but got 'memref<5x16xf64>'}}
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

// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @init_c1(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op dispatch_fmt_str = "MXFP4" is unsupported: this version has "BF16"}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, dispatch_fmt_str = "MXFP4", dispatch_dtype = "ui8"}
  return
}

// -----

func.func @init_c1_blockwisefp8(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op dispatch_fmt_str = "BlockwiseFP8" is unsupported: this version has "BF16"}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, dispatch_fmt_str = "BlockwiseFP8"}
  return
}

// -----

func.func @init_c1_block_scaled_nv(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op dispatch_fmt_str = "BLOCK_SCALED_NV" is unsupported: this version has "BF16"}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, dispatch_fmt_str = "BLOCK_SCALED_NV"}
  return
}

// -----

func.func @init_c1_mxfp6(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op dispatch_fmt_str = "MXFP6" is unsupported: this version has "BF16"}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, dispatch_fmt_str = "MXFP6"}
  return
}

// -----

func.func @init_c2(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op dispatch_dtype = "f8E4M3FN", but dispatch_fmt_str = "BF16" sends "bf16"}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, dispatch_dtype = "f8E4M3FN"}
  return
}

// -----

func.func @init_c3(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op n_gpus_per_node = 8 is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, n_gpus_per_node = 8 : i64}
  return
}

// -----

func.func @init_c3_nodes(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op n_nodes = 2 is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, n_nodes = 2 : i64}
  return
}

// -----

func.func @init_c4(%c0: memref<60xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'atomic_counters_0' has size 60 in dimension 0, but 10 * n_experts + 320 is 360}}
  ep.init counters(%c0, %c1 : memref<60xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_c4_other(%c0: memref<360xi32>, %c1: memref<361xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'atomic_counters_1' has size 361 in dimension 0, but 10 * n_experts + 320 is 360}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<361xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_c5(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<3x2xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'dev_ptrs' has size 3 in dimension 0, but the number of groups is 2}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<3x2xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_c5_buffers(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x2xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'dev_ptrs' has size 2 in dimension 1, but the number of buffers of a group is 3}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x2xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_c5_rank(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<4xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'my_rank' has size 4 in dimension 0, but the number of ranks that this one is is 1}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<4xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_s2(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'dev_ptrs' must be in host memory: give its type the memory space #moe.host}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_s2_counters(%c0: memref<360xi32, #moe.host>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'atomic_counters_0' must be in device memory, which is the default memory space: its type has another one}}
  ep.init counters(%c0, %c1 : memref<360xi32, #moe.host>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_s4(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op has no parameter 'skip_a2a'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true}
  return
}

// -----

func.func @init_tensor(%c0: tensor<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #0 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'tensor<360xi32>'}}
  ep.init counters(%c0, %c1 : tensor<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_element(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #3 must be 1-D memref of i32 in host memory (never a value: pass a memref in #moe.host, not a tensor), but got 'memref<1xi64, #moe.host>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi64, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_format(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+3 {{attribute 'dispatch_fmt_str' failed to satisfy constraint: one of BF16, BlockwiseFP8, BLOCK_SCALED_NV, MXFP4, MXFP6}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, dispatch_fmt_str = "bf16"}
  return
}

// -----

func.func @init_missing(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op requires attribute 'n_experts'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_s2_other_counters(%c0: memref<360xi32>, %c1: memref<360xi32, #moe.host>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'atomic_counters_1' must be in device memory, which is the default memory space: its type has another one}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32, #moe.host>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_s2_rank(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand 'my_rank' must be in host memory: give its type the memory space #moe.host}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_tensor_other_counters(%c0: memref<360xi32>, %c1: tensor<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #1 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'tensor<360xi32>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, tensor<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_element_of_counters(%c0: memref<360xui32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #0 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'memref<360xui32>'}}
  ep.init counters(%c0, %c1 : memref<360xui32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_rank_of_counters(%c0: memref<360xi32>, %c1: memref<4x90xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #1 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'memref<4x90xi32>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<4x90xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_tensor_dev_ptrs(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: tensor<2x3xi64>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #2 must be 2-D memref of i64 or ui64 in host memory (never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<2x3xi64>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : tensor<2x3xi64>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_element_of_dev_ptrs(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi32, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #2 must be 2-D memref of i64 or ui64 in host memory (never a value: pass a memref in #moe.host, not a tensor), but got 'memref<2x3xi32, #moe.host>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi32, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_rank_of_dev_ptrs(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<6xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #2 must be 2-D memref of i64 or ui64 in host memory (never a value: pass a memref in #moe.host, not a tensor), but got 'memref<6xi64, #moe.host>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<6xi64, #moe.host>)
    my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_tensor_rank(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: tensor<1xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #3 must be 1-D memref of i32 in host memory (never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<1xi32>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : tensor<1xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_rank_of_rank(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1x1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op operand #3 must be 1-D memref of i32 in host memory (never a value: pass a memref in #moe.host, not a tensor), but got 'memref<1x1xi32, #moe.host>'}}
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>)
    my_rank(%rank : memref<1x1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @init_s3(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.init' op requires zero results}}
  %0 = "ep.init"(%c0, %c1, %dev, %rank, %ctx) {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
    : (memref<360xi32>, memref<360xi32>, memref<2x3xi64, #moe.host>, memref<1xi32, #moe.host>, !moe.context) -> memref<360xi32>
  return
}

// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @dispatch_c1(%ids: memref<5x3xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'topk_ids' has size 3 in dimension 1, but top_k is 2}}
  moe.dispatch topk_ids(%ids : memref<5x3xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c1_weights(%ids: memref<5x2xi32>, %w: memref<5x1xf32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>,
                               %info: memref<16xi64, #moe.host>, %max: index, %r: memref<64x16xbf16>, %offsets: memref<?xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'topk_weights' has size 1 in dimension 1, but top_k is 2}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) topk_weights(%w : memref<5x1xf32>) payloads(%x : memref<5x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<64x16xbf16>) offsets(%offsets : memref<?xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c1_weights_tokens(%ids: memref<5x2xi32>, %w: memref<6x2xf32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>,
                                      %info: memref<16xi64, #moe.host>, %max: index, %r: memref<64x16xbf16>, %offsets: memref<?xi32>,
                                      %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'topk_weights' has size 6 in dimension 0, but dimension 0 of operand 'topk_ids' is 5}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) topk_weights(%w : memref<6x2xf32>) payloads(%x : memref<5x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<64x16xbf16>) offsets(%offsets : memref<?xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c2_none(%ids: memref<5x2xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op has 0 payloads, must have 1 to 8}}
  %0 = "moe.dispatch"(%ids, %ws, %info, %max, %ctx) {top_k = 2 : i64, n_experts = 8 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1>}
    : (memref<5x2xi32>, memref<?xi8>, memref<16xi64, #moe.host>, index, !moe.context) -> i64
  return
}

// -----

func.func @dispatch_c2_nine(%ids: memref<5x2xi32>, %x0: memref<?xi8>, %x1: memref<?xi8>, %x2: memref<?xi8>, %x3: memref<?xi8>, %x4: memref<?xi8>,
                            %x5: memref<?xi8>, %x6: memref<?xi8>, %x7: memref<?xi8>, %x8: memref<?xi8>, %ws: memref<?xi8>,
                            %info: memref<16xi64, #moe.host>, %max: index, %r0: memref<?x?xi8>, %r1: memref<?x?xi8>, %r2: memref<?x?xi8>,
                            %r3: memref<?x?xi8>, %r4: memref<?x?xi8>, %r5: memref<?x?xi8>, %r6: memref<?x?xi8>, %r7: memref<?x?xi8>,
                            %r8: memref<?x?xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op has 9 payloads, must have 1 to 8}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7, %x8 : memref<?xi8>, memref<?xi8>, memref<?xi8>, memref<?xi8>, memref<?xi8>, memref<?xi8>, memref<?xi8>, memref<?xi8>, memref<?xi8>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>, memref<?x?xi8>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c2_rows(%ids: memref<5x2xi32>, %x0: memref<5x16xbf16>, %x1: memref<6x16xbf16>, %ws: memref<?xi8>,
                            %info: memref<16xi64, #moe.host>, %max: index, %r0: memref<4x8x16xbf16>, %r1: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'payloads' #1 has 6 rows, but 'topk_ids' has 5 tokens}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x0, %x1 : memref<5x16xbf16>, memref<6x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r0, %r1 : memref<4x8x16xbf16>, memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c2_rank(%ids: memref<5x2xi32>, %x: memref<bf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                            %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'payloads' #0 must have a dimension for the tokens, but has rank 0}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<bf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_fewer(%ids: memref<5x2xi32>, %x0: memref<5x16xbf16>, %x1: memref<5x16xbf16>, %ws: memref<?xi8>,
                             %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op has 1 'recv' for 2 payloads}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x0, %x1 : memref<5x16xbf16>, memref<5x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_more(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                            %r0: memref<4x8x16xbf16>, %r1: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op has 2 'recv' for 1 payloads}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r0, %r1 : memref<4x8x16xbf16>, memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_element_type(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                    %r: memref<4x8x16xf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 must have the element type of 'payloads' #0}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_signedness(%ids: memref<5x2xi32>, %x: memref<5x16xui8>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                  %r: memref<4x8x16xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 must have the element type of 'payloads' #0}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xui8>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xi8>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_rank(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                            %r: memref<4x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 must have rank 3 to hold the rows of 'payloads' #0, but has rank 2}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_rank_grouped(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                    %r: memref<4x8x16xbf16>, %offsets: memref<?xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 must have rank 2 to hold the rows of 'payloads' #0, but has rank 3}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) offsets(%offsets : memref<?xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c3_rank_0(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                              %r: memref<bf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 must have rank 3 to hold the rows of 'payloads' #0, but has rank 0}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<bf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_trailing(%ids: memref<5x2xi32>, %x0: memref<5x16xbf16>, %x1: memref<5x16xbf16>, %ws: memref<?xi8>,
                                %info: memref<16xi64, #moe.host>, %max: index, %r0: memref<4x8x16xbf16>, %r1: memref<4x8x15xbf16>,
                                %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #1 has size 15 in dimension 2, but dimension 1 of 'payloads' #1 is 16}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x0, %x1 : memref<5x16xbf16>, memref<5x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r0, %r1 : memref<4x8x16xbf16>, memref<4x8x15xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c3_trailing_grouped(%ids: memref<5x2xi32>, %x: memref<5x2x4xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                                        %max: index, %r: memref<64x2x3xbf16>, %offsets: memref<?xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 has size 3 in dimension 2, but dimension 2 of 'payloads' #0 is 4}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x2x4xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<64x2x3xbf16>) offsets(%offsets : memref<?xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c3_ranks(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                             %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 has size 4 in dimension 0, but ep_size is 2}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, ep_size = 2 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c4(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: memref<4x8x16xbf16>, %counts: memref<3xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv_counts' has size 3 in dimension 0, but ep_size is 4}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) recv_counts(%counts : memref<3xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, ep_size = 4 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c4_layout(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                              %r: memref<64x16xbf16>, %counts: memref<4xi32>, %offsets: memref<3xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op 'recv_counts' goes with layout "rank_major"}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<64x16xbf16>) recv_counts(%counts : memref<4xi32>) offsets(%offsets : memref<3xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c5(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: memref<64x16xbf16>, %offsets: memref<2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'offsets' has size 2 in dimension 0, but the number of local experts + 1 is 3}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<64x16xbf16>) offsets(%offsets : memref<2xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped", ep_size = 4 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c5_missing(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                               %r: memref<64x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op layout "expert_grouped" needs the destination 'offsets'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<64x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c5_layout(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                              %r: memref<4x8x16xbf16>, %offsets: memref<3xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op 'offsets' goes with layout "expert_grouped"}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) offsets(%offsets : memref<3xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c6(%ids: memref<5x2xi32>, %w: memref<5x2xf32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %max: index, %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op 'topk_weights' goes with layout "expert_grouped"}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) topk_weights(%w : memref<5x2xf32>) payloads(%x : memref<5x16xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c7_top_k(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                             %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op top_k = 2 exceeds n_experts = 1}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 1 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c7_ranks(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                             %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op n_experts = 8 is less than ep_size = 9}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, ep_size = 9 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c8(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<10xi64, #moe.host>, %max: index,
                       %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'metainfo' has size 10 in dimension 0, but the number of metainfo fields is 16}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<10xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s1(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: tensor<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' is a tensor, but operand 'topk_ids' is a memref: use tensors or memrefs throughout}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  return
}

// -----

func.func @dispatch_s1_payload(%ids: tensor<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                               %r: tensor<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'payloads' is a memref, but operand 'topk_ids' is a tensor: use tensors or memrefs throughout}}
  moe.dispatch topk_ids(%ids : tensor<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  return
}

// -----

func.func @dispatch_s2(%ids: memref<5x2xi32, #moe.host>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'topk_ids' must be in device memory, which is the default memory space: its type has another one}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32, #moe.host>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s2_recv(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                            %r: memref<4x8x16xbf16, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' must be in device memory, which is the default memory space: its type has another one}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16, #moe.host>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s2_workspace(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8, #moe.host>, %info: memref<16xi64, #moe.host>,
                                 %max: index, %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'workspace' must be in symmetric memory, which is the default memory space: its type has another one}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8, #moe.host>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s2_metainfo(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64>, %max: index,
                                %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s2_metainfo_other_space(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, 1>, %max: index,
                                            %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, 1>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s3(%ids: tensor<5x2xi32>, %x: tensor<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: tensor<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op result #0 must have the type of destination 'recv'}}
  moe.dispatch topk_ids(%ids : tensor<5x2xi32>) payloads(%x : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xf16>, i64)
  return
}

// -----

func.func @dispatch_s3_missing(%ids: tensor<5x2xi32>, %x: tensor<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                               %r: tensor<4x8x16xbf16>, %counts: tensor<4xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op result #1 must have the type of destination 'recv_counts'}}
  moe.dispatch topk_ids(%ids : tensor<5x2xi32>) payloads(%x : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) recv_counts(%counts : tensor<4xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  return
}

// -----

func.func @dispatch_s3_on_memrefs(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                  %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op has 2 results, but must have 1: one for each destination on tensors and combine_payload_offset}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  return
}

// -----

func.func @dispatch_s3_number(%ids: tensor<5x2xi32>, %x: tensor<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                              %r: tensor<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op result #1 must be 64-bit signless integer, but got 'index'}}
  moe.dispatch topk_ids(%ids : tensor<5x2xi32>) payloads(%x : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, index)
  return
}

// -----

func.func @dispatch_s4(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                       %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op has no parameter 'num_experts'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, num_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_workspace_tensor(%ids: tensor<5x2xi32>, %x: tensor<5x16xbf16>, %ws: tensor<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                     %r: tensor<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #2 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'tensor<?xi8>'}}
  moe.dispatch topk_ids(%ids : tensor<5x2xi32>) payloads(%x : tensor<5x16xbf16>) workspace(%ws, %info : tensor<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  return
}

// -----

func.func @dispatch_metainfo_tensor(%ids: tensor<5x2xi32>, %x: tensor<5x16xbf16>, %ws: memref<?xi8>, %info: tensor<16xi64>, %max: index,
                                    %r: tensor<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #3 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<16xi64>'}}
  moe.dispatch topk_ids(%ids : tensor<5x2xi32>) payloads(%x : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, tensor<16xi64>) max_tokens(%max : index)
    outs(%r : tensor<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  return
}

// -----

func.func @dispatch_workspace_element(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi32>, %info: memref<16xi64, #moe.host>,
                                      %max: index, %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #2 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<?xi32>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi32>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_metainfo_element(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi32, #moe.host>, %max: index,
                                     %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #3 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'memref<16xi32, #moe.host>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi32, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_element_of_ids(%ids: memref<5x2xi64>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                   %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #0 must be 2-D tensor or memref of i32, but got 'memref<5x2xi64>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi64>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_element_of_unsigned_ids(%ids: memref<5x2xui32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                                            %max: index, %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #0 must be 2-D tensor or memref of i32, but got 'memref<5x2xui32>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xui32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_rank_of_ids(%ids: memref<5xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #0 must be 2-D tensor or memref of i32, but got 'memref<5xi32>'}}
  moe.dispatch topk_ids(%ids : memref<5xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_element_of_payload(%ids: memref<5x2xi32>, %x: memref<5x16xi4>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                       %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #1 must be variadic of tensor or memref of a whole-byte element type, but got 'memref<5x16xi4>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xi4>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_element_of_counts(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                                      %r: memref<4x8x16xbf16>, %counts: memref<4xi64>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #6 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<4xi64>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) recv_counts(%counts : memref<4xi64>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_max_tokens_type(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i32,
                                    %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #4 must be index or i64, but got 'i32'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i32)
    outs(%r : memref<4x8x16xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s7(%ids: memref<4x1xi32>, %x: memref<4x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
              %recv: memref<?x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>, %offsets: memref<2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'payloads' has rank 17, must have 16 at most}}
  %offset = moe.dispatch topk_ids(%ids : memref<4x1xi32>) payloads(%x : memref<4x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%recv : memref<?x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>) offsets(%offsets : memref<2xi32>) context(%ctx)
    {top_k = 1 : i64, n_experts = 1 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c9_constant(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %y: memref<5xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %r: memref<2x8x16xbf16>, %s: memref<2x8xf32>, %ctx: !moe.context) {
  %max = arith.constant 0 : index
  // expected-error@+1 {{'moe.dispatch' op runtime_max_tokens_per_rank is 0, must be at least 1}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x, %y : memref<5x16xbf16>, memref<5xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r, %s : memref<2x8x16xbf16>, memref<2x8xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 5 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c9_tokens(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %y: memref<5xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %r: memref<2x8x16xbf16>, %s: memref<2x8xf32>, %ctx: !moe.context) {
  %max = arith.constant 4 : index
  // expected-error@+1 {{'moe.dispatch' op operand 'topk_ids' has 5 tokens, but runtime_max_tokens_per_rank is 4}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x, %y : memref<5x16xbf16>, memref<5xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r, %s : memref<2x8x16xbf16>, memref<2x8xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 5 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c9_room(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %y: memref<5xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %r: memref<2x8x16xbf16>, %s: memref<2x8xf32>, %ctx: !moe.context) {
  %max = arith.constant 9 : index
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #0 has room for 8 rows, but runtime_max_tokens_per_rank is 9}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x, %y : memref<5x16xbf16>, memref<5xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r, %s : memref<2x8x16xbf16>, memref<2x8xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 5 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c9_lists(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %y: memref<5xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %max: index, %r: memref<2x8x16xbf16>, %s: memref<2x7xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #1 has room for 7 rows, but the room of another 'recv' is 8}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x, %y : memref<5x16xbf16>, memref<5xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r, %s : memref<2x8x16xbf16>, memref<2x7xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 5 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c9_capacity(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %y: memref<5xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %max: index, %r: memref<40x16xbf16>, %s: memref<41xf32>, %offsets: memref<?xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'recv' #1 has room for 41 rows, but the room of another 'recv' is 40}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x, %y : memref<5x16xbf16>, memref<5xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r, %s : memref<40x16xbf16>, memref<41xf32>) offsets(%offsets : memref<?xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 5 : i64, layout = "expert_grouped"} -> (i64)
  return
}

// -----

func.func @dispatch_c5_remainder(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %y: memref<5xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                       %max: index, %r: memref<40x16xbf16>, %s: memref<40xf32>, %offsets: memref<5xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'offsets' has size 5 in dimension 0, but the number of local experts + 1 is 3 or one more}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x, %y : memref<5x16xbf16>, memref<5xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r, %s : memref<40x16xbf16>, memref<40xf32>) offsets(%offsets : memref<5xi32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 5 : i64, layout = "expert_grouped", ep_size = 2 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_local_alone(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<8xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_local_stats' is there, but 'eplb_gathered_stats' is not: add it, or leave out both}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<8xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_gathered_alone(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x8xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_gathered_stats' is there, but 'eplb_local_stats' is not: add it, or leave out both}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_sizes(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<7xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x8xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_gathered_stats' has size 8 in dimension 1, but dimension 0 of operand 'eplb_local_stats' is 7}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<7xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_ranks(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<8xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<2x8x16xbf16>, %all: memref<4x8xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_gathered_stats' has size 4 in dimension 0, but ep_size is 2}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<8xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<2x8x16xbf16>) eplb_gathered(%all : memref<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64, ep_size = 2 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_none(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<0xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x?xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_local_stats' has size 0 in dimension 0, must be from 1 to n_experts = 8}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<0xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x?xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_experts(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<9xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x9xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_local_stats' has size 9 in dimension 0, must be from 1 to n_experts = 8}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<9xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x9xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c10_experts_of_all(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<?xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x9xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_gathered_stats' has size 9 in dimension 1, must be from 1 to n_experts = 8}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<?xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x9xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s1_statistics(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: tensor<8xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x8xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_local_stats' is a tensor, but operand 'topk_ids' is a memref: use tensors or memrefs throughout}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : tensor<8xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_s2_statistics(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<8xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x8xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand 'eplb_gathered_stats' must be in device memory, which is the default memory space: its type has another one}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<8xi32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x8xi32, #moe.host>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_element_of_statistics(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %stats: memref<8xi64>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<4x8x16xbf16>, %all: memref<4x8xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.dispatch' op operand #2 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<8xi64>'}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) eplb_stats(%stats : memref<8xi64>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    outs(%r : memref<4x8x16xbf16>) eplb_gathered(%all : memref<4x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c11(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<?x8x16xbf16>, %ctx: !moe.context) {
  %mask = arith.constant 0 : i64
  // expected-error@+1 {{'moe.dispatch' op active_rank_mask is 0, must have the bit of a rank: leave it out for all ranks}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    active_ranks(%mask) outs(%r : memref<?x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 64 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c11_beyond(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<?x8x16xbf16>, %ctx: !moe.context) {
  %mask = arith.constant 16 : i64
  // expected-error@+1 {{'moe.dispatch' op active_rank_mask is 0x10, but ep_size is 4: must be less than 0x10}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    active_ranks(%mask) outs(%r : memref<?x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 64 : i64, ep_size = 4 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_c11_last(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<?x8x16xbf16>, %ctx: !moe.context) {
  %mask = arith.constant -1 : i64
  // expected-error@+1 {{'moe.dispatch' op active_rank_mask is 0xffffffffffffffff, but ep_size is 63: must be less than 0x8000000000000000}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    active_ranks(%mask) outs(%r : memref<?x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 64 : i64, ep_size = 63 : i64} -> (i64)
  return
}

// -----

func.func @dispatch_type_of_mask(%ids: memref<5x2xi32>, %x: memref<5x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %r: memref<?x8x16xbf16>, %mask: index, %ctx: !moe.context) {
  // expected-note@-1 {{prior use here}}
  moe.dispatch topk_ids(%ids : memref<5x2xi32>) payloads(%x : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index)
    // expected-error@+1 {{use of value '%mask' expects different type than prior uses: 'i64' vs 'index'}}
    active_ranks(%mask) outs(%r : memref<?x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 64 : i64} -> (i64)
  return
}

// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @combine_skip_a2a_c1(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op skip_a2a = false is unsupported: it needs ep.combine, which this version does not have (moe.combine has its own workspace)}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, skip_a2a = false}
  return
}

// -----

func.func @combine_skip_a2a_c2(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op n_gpus_per_node = 2 is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, n_gpus_per_node = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c2_nodes(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op n_nodes = 2 is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, n_nodes = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c3(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x8xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'output_tokens' has size 8 in dimension 1, but hidden_size is 16}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x8xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c3_rows(%c: memref<360xi32>, %x: memref<?x8xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'input_tokens' has size 8 in dimension 1, but hidden_size is 16}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x8xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c3_dtype(%c: memref<360xi32>, %x: memref<?x16xf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op 'input_tokens' and 'output_tokens' must have the same element type, which is the combine dtype}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c4(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x3xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'src_info' has size 3 in dimension 1, but the number of its columns is 2}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x3xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c4_rows(%c: memref<360xi32>, %x: memref<17x16xbf16>, %src: memref<16x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'src_info' has size 16 in dimension 0, but dimension 0 of operand 'input_tokens' is 17}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<17x16xbf16>) src_info(%src : memref<16x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c5(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x3xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'router_weights' has size 3 in dimension 1, but top_k is 2}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x3xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c5_ids(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x1xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'topk_ids' has size 1 in dimension 1, but top_k is 2}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x1xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c5_tokens(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<4x2xf32>, %ids: memref<?x2xi32>, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'router_weights' has size 4 in dimension 0, but dimension 0 of operand 'output_tokens' is 5}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<4x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<5x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c5_ids_tokens(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<4x2xi32>, %out: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'topk_ids' has size 4 in dimension 0, but dimension 0 of operand 'output_tokens' is 5}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<4x2xi32>) outs(%out : memref<5x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c6(%c: memref<60xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'atomic_counters' has size 60 in dimension 0, but 10 * n_experts + 320 is 360}}
  ep.combine.skip_a2a counters(%c : memref<60xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c7(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<4xi64, #moe.host>, %r: memref<4xi64, #moe.host>, %n: memref<4xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'send_ptrs' has size 4 in dimension 0, but allreduce_world_size is 2}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<4xi64, #moe.host>, memref<4xi64, #moe.host>, memref<4xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c8(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<9x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'output_tokens' has 9 tokens, must have at most max_token_per_rank = 8}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<9x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_c9(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op the epilogue must take a row index, a column index and a value of the element type of 'output_tokens'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %v: bf16):
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_value(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op the epilogue must take a row index, a column index and a value of the element type of 'output_tokens'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: f32):
    ep.yield %v : f32
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_index(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op the epilogue must take a row index, a column index and a value of the element type of 'output_tokens'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: i64, %j: index, %v: bf16):
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_column(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op the epilogue must take a row index, a column index and a value of the element type of 'output_tokens'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: i32, %v: bf16):
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_yield(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'ep.yield' op must yield a value of the element type of 'output_tokens'}}
    ep.yield %i : index
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_terminator(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op the epilogue must end with ep.yield}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    llvm.unreachable
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_blocks(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op region #0 ('epilogue') failed to verify constraint: region with 1 blocks}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    cf.br ^bb1
  ^bb1:
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c9_two(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %p: memref<?xi64, #moe.host>, %w: memref<?x2xf32>,
    %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op has 2 epilogues, must have one at most}}
  "ep.combine.skip_a2a"(%out, %c, %x, %src, %p, %p, %p, %w, %ids, %ctx) <{hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64,
    max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}> ({
  ^bb0(%i: index, %j: index, %v: bf16):
    ep.yield %v : bf16
  }, {
  ^bb0(%i: index, %j: index, %v: bf16):
    ep.yield %v : bf16
  }) : (memref<?x16xbf16>, memref<360xi32>, memref<?x16xbf16>, memref<?x2xi32>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>,
        memref<?xi64, #moe.host>, memref<?x2xf32>, memref<?x2xi32>, !moe.context) -> ()
  return
}

// -----

func.func @combine_skip_a2a_c10(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %other: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'memref.store' op in an epilogue may only read: it is called once for each element, in no order}}
    memref.store %v, %other[%i, %j] : memref<?x16xbf16>
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c10_nested(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %other: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    %first = arith.cmpi eq, %i, %j : index
    // expected-error@+1 {{'scf.if' op in an epilogue may only read: it is called once for each element, in no order}}
    scf.if %first {
      memref.store %v, %other[%i, %j] : memref<?x16xbf16>
    }
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c10_call(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'func.call' op in an epilogue may only read: it is called once for each element, in no order}}
    %u = func.call @scale(%v) : (bf16) -> bf16
    ep.yield %u : bf16
  }
  return
}

func.func private @scale(bf16) -> bf16

// -----

func.func @combine_skip_a2a_c10_tensor(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'tensor.from_elements' op in an epilogue may only give numbers}}
    %t = tensor.from_elements %v : tensor<1xbf16>
    %c0 = arith.constant 0 : index
    %u = tensor.extract %t[%c0] : tensor<1xbf16>
    ep.yield %u : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c10_ours(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %l: memref<?x8xf32>, %e: memref<?x2xi32>, %f: memref<?x2xf32>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'moe.route' op in an epilogue may only read: it is called once for each element, in no order}}
    moe.route logits(%l : memref<?x8xf32>) outs(%e, %f : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c11(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op has_epilogue_fusion is true, but there is no epilogue}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = true}
  return
}

// -----

func.func @combine_skip_a2a_c11_absent(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op has an epilogue, so has_epilogue_fusion must be true}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_c11_false(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op has an epilogue, so has_epilogue_fusion must be true}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, has_epilogue_fusion = false} epilogue {
  ^bb0(%i: index, %j: index, %v: bf16):
    ep.yield %v : bf16
  }
  return
}

// -----

func.func @combine_skip_a2a_s1(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: tensor<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'input_tokens' is a memref, but operand 'output_tokens' is a tensor: use tensors or memrefs throughout}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_s2(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<2xi64>, %r: memref<2xi64>, %n: memref<2xi64>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand 'send_ptrs' must be in host memory: give its type the memory space #moe.host}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<2xi64>, memref<2xi64>, memref<2xi64>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @combine_skip_a2a_s3(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %src: tensor<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: tensor<?x2xf32>, %ids: tensor<?x2xi32>, %out: tensor<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op result #0 must have the type of destination 'output_tokens'}}
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) src_info(%src : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @combine_skip_a2a_s4(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op has no parameter 'lambdas_have_fusion'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64, lambdas_have_fusion = true}
  return
}

// -----

func.func @combine_skip_a2a_world(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op requires attribute 'allreduce_world_size'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64}
  return
}

// -----

func.func @combine_skip_a2a_weights(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %w: memref<?x2xf64>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand #7 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<?x2xf64>'}}
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf64>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @yield_alone(%v: bf16) {
  // expected-error@+1 {{'ep.yield' op expects parent op 'ep.combine.skip_a2a'}}
  ep.yield %v : bf16
}

// -----

func.func @combine_skip_a2a_tensor_counters(%c: tensor<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %p: memref<?xi64, #moe.host>,
    %w: memref<?x2xf32>, %ids: memref<?x2xi32>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op operand #1 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'tensor<360xi32>'}}
  ep.combine.skip_a2a counters(%c : tensor<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%src : memref<?x2xi32>)
    buffers(%p, %p, %p : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

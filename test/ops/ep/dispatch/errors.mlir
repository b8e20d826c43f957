// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @dispatch_c1(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op skip_a2a = false is unsupported: this version has no all-to-all with the tables of ep.init (moe.dispatch has its own)}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = false, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c1_default(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op skip_a2a = false is unsupported: this version has no all-to-all with the tables of ep.init (moe.dispatch has its own)}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c2(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op n_gpus_per_node = 2 is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64, n_gpus_per_node = 2 : i64}
  return
}

// -----

func.func @dispatch_c2_nodes(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op n_nodes = 4 is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64, n_nodes = 4 : i64}
  return
}

// -----

func.func @dispatch_c3(%c: memref<360xi32>, %x: memref<?x15xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'input_tokens' has size 15 in dimension 1, but hidden_size is 16}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x15xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c3_out(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x8xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'output_tokens' has size 8 in dimension 1, but hidden_size is 16}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x8xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c4(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x3xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'topk_ids' has size 3 in dimension 1, but top_k is 2}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x3xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c4_tokens(%c: memref<360xi32>, %x: memref<6x16xbf16>, %ids: memref<5x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'topk_ids' has size 5 in dimension 0, but dimension 0 of operand 'input_tokens' is 6}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<6x16xbf16>) topk_ids(%ids : memref<5x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c5(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<4xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'row_offsets' has size 4 in dimension 0, but n_experts + 1 is 5}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<4xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c5_experts(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<5xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'expert_ids' has size 5 in dimension 0, but n_experts is 4}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<5xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c5_shared(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'row_offsets' has size 5 in dimension 0, but n_experts + 2 (with the shared expert's group) is 6}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64, fused_shared_expert = true}
  return
}

// -----

func.func @dispatch_c5_shared_experts(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<6xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'expert_ids' has size 4 in dimension 0, but n_experts + 1 (with the shared expert) is 5}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<6xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64, fused_shared_expert = true}
  return
}

// -----

func.func @dispatch_c6(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x3xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'src_info' has size 3 in dimension 1, but the number of its columns is 2}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x3xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c6_rows(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<17x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<16x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'src_info' has size 16 in dimension 0, but dimension 0 of operand 'output_tokens' is 17}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<17x16xbf16>, memref<5xi32>, memref<4xi32>, memref<16x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c7(%c: memref<60xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'atomic_counters' has size 60 in dimension 0, but 10 * n_experts + 320 is 360}}
  ep.dispatch counters(%c : memref<60xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c8(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<1xi64, #moe.host>, %r: memref<1xi64, #moe.host>, %n: memref<1xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'send_ptrs' has size 1 in dimension 0, but allreduce_world_size is 2}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_c9(%c: memref<360xi32>, %x: memref<9x16xbf16>, %ids: memref<9x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'input_tokens' has 9 tokens, must have at most max_token_per_rank = 8}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<9x16xbf16>) topk_ids(%ids : memref<9x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s1(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: tensor<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'row_offsets' is a memref, but operand 'output_tokens' is a tensor: use tensors or memrefs throughout}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : tensor<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s2(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<2xi64>, %r: memref<2xi64>, %n: memref<2xi64>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'send_ptrs' must be in host memory: give its type the memory space #moe.host}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<2xi64>, memref<2xi64>, memref<2xi64>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s3(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %ids: tensor<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: tensor<?x16xbf16>, %off: tensor<5xi32>, %ex: tensor<4xi32>, %src: tensor<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op result #0 must have the type of destination 'output_tokens'}}
  %0:4 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : tensor<?x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64} -> tensor<17x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<?x2xi32>
  return
}

// -----

func.func @dispatch_s4(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op has no parameter 'dispatch_fmt_str'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64, dispatch_fmt_str = "BF16"}
  return
}

// -----

func.func @dispatch_element(%c: memref<360xi32>, %x: memref<?x16xf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #5 must be 2-D tensor or memref of bf16, but got 'memref<?x16xf16>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_tensor_counters(%c: tensor<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #4 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'tensor<360xi32>'}}
  ep.dispatch counters(%c : tensor<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s1_input(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'input_tokens' is a tensor, but operand 'output_tokens' is a memref: use tensors or memrefs throughout}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s2_counters(%c: memref<360xi32, #moe.host>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'atomic_counters' must be in device memory, which is the default memory space: its type has another one}}
  ep.dispatch counters(%c : memref<360xi32, #moe.host>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s2_destination(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'src_info' must be in device memory, which is the default memory space: its type has another one}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s2_other_space(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, 1>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand 'recv_count_ptrs' must be in host memory: give its type the memory space #moe.host}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, 1>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_s3_missing(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %ids: tensor<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: tensor<?x16xbf16>, %off: tensor<5xi32>, %ex: tensor<4xi32>, %src: tensor<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op result #1 must have the type of destination 'row_offsets'}}
  %0 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : tensor<?x16xbf16>, tensor<5xi32>, tensor<4xi32>, tensor<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64} -> tensor<?x16xbf16>
  return
}

// -----

func.func @dispatch_s3_on_memrefs(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op has 1 results, but must have 0: one for each destination on tensors}}
  %0 = ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64} -> tensor<?x16xbf16>
  return
}

// -----

func.func @dispatch_element_of_counters(%c: memref<360xi64>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #4 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'memref<360xi64>'}}
  ep.dispatch counters(%c : memref<360xi64>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_rank_of_counters(%c: memref<4x90xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #4 must be 1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor), but got 'memref<4x90xi32>'}}
  ep.dispatch counters(%c : memref<4x90xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_tensor_table(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: tensor<?xi64>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #7 must be 1-D memref of i64 or ui64 in host memory: one address for each rank (never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<?xi64>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : tensor<?xi64>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_element_of_table(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi32, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #8 must be 1-D memref of i64 or ui64 in host memory: one address for each rank (never a value: pass a memref in #moe.host, not a tensor), but got 'memref<?xi32, #moe.host>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi32, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_rank_of_table(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<2x1xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #9 must be 1-D memref of i64 or ui64 in host memory: one address for each rank (never a value: pass a memref in #moe.host, not a tensor), but got 'memref<2x1xi64, #moe.host>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<2x1xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_element_of_ids(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi64>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #6 must be 2-D tensor or memref of i32, but got 'memref<?x2xi64>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi64>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_rank_of_src_info(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #3 must be 2-D tensor or memref of i32, but got 'memref<?xi32>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi32>, memref<?xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_rank_of_offsets(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5x1xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #1 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<5x1xi32>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5x1xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_element_of_expert_ids(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x16xbf16>, %off: memref<5xi32>, %ex: memref<4xi64>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #2 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<4xi64>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x16xbf16>, memref<5xi32>, memref<4xi64>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

// -----

func.func @dispatch_rank_of_tokens(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<?xi64, #moe.host>, %r: memref<?xi64, #moe.host>, %n: memref<?xi64, #moe.host>,
    %rows: memref<?x2x8xbf16>, %off: memref<5xi32>, %ex: memref<4xi32>, %src: memref<?x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'ep.dispatch' op operand #0 must be 2-D tensor or memref of bf16, but got 'memref<?x2x8xbf16>'}}
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %r, %n : memref<?xi64, #moe.host>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>)
    outs(%rows, %off, %ex, %src : memref<?x2x8xbf16>, memref<5xi32>, memref<4xi32>, memref<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, allreduce_world_size = 2 : i64}
  return
}

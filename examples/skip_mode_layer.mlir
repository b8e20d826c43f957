// A mixture-of-experts layer on four ranks that all have all tokens, as tensor-parallel attention leaves them: hidden 256, intermediate 128,
// 16 experts, four per rank, top-4. Nothing moves before the experts: each rank takes the rows of its experts out of the tokens that it has, and
// comes to its part of the result. An all-reduce, which a model needs there anyway, adds the four parts and the residual.
// The functions share buffers by name: call @setup once, then @layer for each step.
#token_by_hidden  = affine_map<(t, e, h) -> (t, h)>
#expert_by_hidden = affine_map<(t, e, h) -> (e, h)>
#token_by_expert  = affine_map<(t, e, h) -> (t, e)>

// A row of the pointer tables, which are [group, buffer, rank]: dispatch and combine; send, recv, recv_count.
!table = memref<?xi64, strided<[1], offset: ?>, #moe.host>

func.func @setup(%counters: memref<?xi32> {moe.name = "counters", moe.dims = ["C"]},
                 %more_counters: memref<?xi32> {moe.name = "more_counters", moe.dims = ["C"]},
                 %dev_ptrs: memref<2x3xi64, #moe.host> {moe.name = "dev_ptrs"},
                 %my_rank: memref<1xi32, #moe.host> {moe.name = "my_rank"},
                 %pointers: memref<2x3x?xi64, #moe.host> {moe.name = "pointers", moe.dims = ["W"]},
                 %workspace: memref<?xi8> {moe.name = "workspace"},
                 %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                 %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  ep.init counters(%counters, %more_counters : memref<?xi32>, memref<?xi32>) dev_ptrs(%dev_ptrs : memref<2x3xi64, #moe.host>)
    my_rank(%my_rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 256 : i64, top_k = 4 : i64, n_experts = 4 : i64, max_token_per_rank = 64 : i64}

  // In this mode an op looks at this rank's entries only.
  %number = memref.load %my_rank[%c0] : memref<1xi32, #moe.host>
  %rank = arith.index_cast %number : i32 to index
  scf.for %group = %c0 to %c2 step %c1 {
    scf.for %buffer = %c0 to %c3 step %c1 {
      %address = memref.load %dev_ptrs[%group, %buffer] : memref<2x3xi64, #moe.host>
      memref.store %address, %pointers[%group, %buffer, %rank] : memref<2x3x?xi64, #moe.host>
    }
  }

  // The all-reduce sends rows of 256 f32.
  moe.initialize workspace(%workspace : memref<?xi8>) metainfo(%metainfo : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 64 : i64, dispatch_bytes_per_token = 1024 : i64, combine_bytes_per_token = 1 : i64}
  return
}

// Weights are [expert, output, input], those of this rank's experts; of the outputs of gate_up the first 128 are the gate.
func.func @layer(%tokens: tensor<?x256xbf16> {moe.name = "tokens", moe.dims = ["T"]},
                 %router: tensor<16x256xbf16> {moe.name = "router"},
                 %gate_up: tensor<?x256x256xbf16> {moe.name = "gate_up", moe.dims = ["L"]},
                 %down: tensor<?x256x128xbf16> {moe.name = "down", moe.dims = ["L"]},
                 %gamma: tensor<256xbf16> {moe.name = "gamma"},
                 %counters: memref<?xi32> {moe.name = "counters", moe.dims = ["C"]},
                 %pointers: memref<2x3x?xi64, #moe.host> {moe.name = "pointers", moe.dims = ["W"]},
                 %workspace: memref<?xi8> {moe.name = "workspace"},
                 %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                 %out: tensor<?x256xbf16> {moe.name = "out", moe.dims = ["T"]},
                 %residual: tensor<?x256xbf16> {moe.name = "residual", moe.dims = ["T"]},
                 %ctx: !moe.context) -> (tensor<?x256xbf16>, tensor<?x256xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %zero = arith.constant 0.0 : f32
  %T = tensor.dim %tokens, %c0 : tensor<?x256xbf16>
  %L = tensor.dim %gate_up, %c0 : tensor<?x256x256xbf16>
  %W = memref.dim %pointers, %c2 : memref<2x3x?xi64, #moe.host>

  // Gate, the same on all ranks.
  %logits_empty = tensor.empty(%T) : tensor<?x16xf32>
  %logits_zero = linalg.fill ins(%zero : f32) outs(%logits_empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  %logits = linalg.matmul indexing_maps = [#token_by_hidden, #expert_by_hidden, #token_by_expert]
    ins(%tokens, %router : tensor<?x256xbf16>, tensor<16x256xbf16>) outs(%logits_zero : tensor<?x16xf32>) -> tensor<?x16xf32>
  %ids_empty = tensor.empty(%T) : tensor<?x4xi32>
  %weights_empty = tensor.empty(%T) : tensor<?x4xf32>
  %ids, %weights = moe.route logits(%logits : tensor<?x16xf32>) outs(%ids_empty, %weights_empty : tensor<?x4xi32>, tensor<?x4xf32>) context(%ctx)
    {top_k = 4 : i64, n_experts = 16 : i64} -> tensor<?x4xi32>, tensor<?x4xf32>

  // The rows of this rank's experts: expert e has the rows offsets[e] to offsets[e + 1]. Four rows of each token suffice, five with a shared expert.
  %send = memref.subview %pointers[%c0, %c0, 0] [1, 1, %W] [1, 1, 1] : memref<2x3x?xi64, #moe.host> to !table
  %recv = memref.subview %pointers[%c0, %c1, 0] [1, 1, %W] [1, 1, 1] : memref<2x3x?xi64, #moe.host> to !table
  %recv_count = memref.subview %pointers[%c0, %c2, 0] [1, 1, %W] [1, 1, 1] : memref<2x3x?xi64, #moe.host> to !table
  %capacity = arith.muli %T, %c5 : index
  %ends = arith.addi %L, %c1 : index
  %rows_empty = tensor.empty(%capacity) : tensor<?x256xbf16>
  %offsets_empty = tensor.empty(%ends) : tensor<?xi32>
  %experts_empty = tensor.empty(%L) : tensor<?xi32>
  %sources_empty = tensor.empty(%capacity) : tensor<?x2xi32>
  %rows, %offsets, %experts, %sources = ep.dispatch counters(%counters : memref<?xi32>) tokens(%tokens : tensor<?x256xbf16>)
    topk_ids(%ids : tensor<?x4xi32>) buffers(%send, %recv, %recv_count : !table, !table, !table)
    outs(%rows_empty, %offsets_empty, %experts_empty, %sources_empty : tensor<?x256xbf16>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xi32>)
    context(%ctx)
    {hidden_size = 256 : i64, top_k = 4 : i64, n_experts = 4 : i64, max_token_per_rank = 64 : i64, skip_a2a = true, allreduce_world_size = 4 : i64}
    -> tensor<?x256xbf16>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xi32>

  // The experts.
  %hidden_empty = tensor.empty(%capacity) : tensor<?x128xbf16>
  %hidden = moe.grouped_matmul rows(%rows : tensor<?x256xbf16>) offsets(%offsets : tensor<?xi32>) weights(%gate_up : tensor<?x256x256xbf16>)
    outs(%hidden_empty : tensor<?x128xbf16>) context(%ctx) {activation = "swiglu"} -> tensor<?x128xbf16>
  %results_empty = tensor.empty(%capacity) : tensor<?x256xbf16>
  %results = moe.grouped_matmul rows(%hidden : tensor<?x128xbf16>) offsets(%offsets : tensor<?xi32>) weights(%down : tensor<?x256x128xbf16>)
    outs(%results_empty : tensor<?x256xbf16>) context(%ctx) -> tensor<?x256xbf16>

  // This rank's part of each token's result.
  %combine_send = memref.subview %pointers[%c1, %c0, 0] [1, 1, %W] [1, 1, 1] : memref<2x3x?xi64, #moe.host> to !table
  %combine_recv = memref.subview %pointers[%c1, %c1, 0] [1, 1, %W] [1, 1, 1] : memref<2x3x?xi64, #moe.host> to !table
  %combine_recv_count = memref.subview %pointers[%c1, %c2, 0] [1, 1, %W] [1, 1, 1] : memref<2x3x?xi64, #moe.host> to !table
  %part_empty = tensor.empty(%T) : tensor<?x256xbf16>
  %part = ep.combine.skip_a2a counters(%counters : memref<?xi32>) tokens(%results : tensor<?x256xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%combine_send, %combine_recv, %combine_recv_count : !table, !table, !table)
    router_weights(%weights : tensor<?x4xf32>) topk_ids(%ids : tensor<?x4xi32>) outs(%part_empty : tensor<?x256xbf16>) context(%ctx)
    {hidden_size = 256 : i64, top_k = 4 : i64, n_experts = 4 : i64, max_token_per_rank = 64 : i64, allreduce_world_size = 4 : i64}
    -> tensor<?x256xbf16>

  // The sum of the parts, and with it the residual; there are no expert outputs left to reduce.
  %no_outputs = tensor.empty(%T) : tensor<0x?x256xbf16>
  %no_scales = tensor.empty(%T) : tensor<0x?xf32>
  %sum, %next = moe.allreduce_fusion residual_in(%tokens : tensor<?x256xbf16>) rms_gamma(%gamma : tensor<256xbf16>)
    active_experts(%no_outputs, %no_scales : tensor<0x?x256xbf16>, tensor<0x?xf32>) token_input(%part : tensor<?x256xbf16>)
    workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>) allreduce_out(%out : tensor<?x256xbf16>)
    residual_out(%residual : tensor<?x256xbf16>) context(%ctx) {hidden_size = 256 : i64, rms_eps = 1.0e-6 : f64, fp32_acc = true}
    -> tensor<?x256xbf16>, tensor<?x256xbf16>
  return %sum, %next : tensor<?x256xbf16>, tensor<?x256xbf16>
}

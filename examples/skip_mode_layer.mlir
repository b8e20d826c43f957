// A mixture-of-experts layer on four ranks that all have all tokens, as tensor-parallel attention leaves them: hidden 256, intermediate 128, 16 experts, four per
// rank, top-4. Nothing moves before the experts: each rank takes the rows of its experts out of the tokens that it has, and gives its part of the result. What
// an all-reduce makes of the four parts is the layer.
// The functions share buffers by name: call @setup once, then @layer for each step.
#token_by_hidden  = affine_map<(t, e, h) -> (t, h)>
#expert_by_hidden = affine_map<(t, e, h) -> (e, h)>
#token_by_expert  = affine_map<(t, e, h) -> (t, e)>

// The pointer tables are [group, buffer, rank]: dispatch and combine; send, recv, recv_count. In this mode an op looks at this rank's entries only.
func.func @setup(%counters: memref<?xi32> {moe.name = "counters", moe.dims = ["C"]},
                 %more_counters: memref<?xi32> {moe.name = "more_counters", moe.dims = ["C"]},
                 %dev_ptrs: memref<2x3xi64, #moe.host> {moe.name = "dev_ptrs"},
                 %my_rank: memref<1xi32, #moe.host> {moe.name = "my_rank"},
                 %pointers: memref<2x3x4xi64, #moe.host> {moe.name = "pointers"},
                 %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  ep.init counters(%counters, %more_counters : memref<?xi32>, memref<?xi32>) dev_ptrs(%dev_ptrs : memref<2x3xi64, #moe.host>)
    my_rank(%my_rank : memref<1xi32, #moe.host>) context(%ctx) {hidden_size = 256 : i64, top_k = 4 : i64, n_experts = 4 : i64, max_token_per_rank = 64 : i64}
  %number = memref.load %my_rank[%c0] : memref<1xi32, #moe.host>
  %rank = arith.index_cast %number : i32 to index
  scf.for %group = %c0 to %c2 step %c1 {
    scf.for %buffer = %c0 to %c3 step %c1 {
      %address = memref.load %dev_ptrs[%group, %buffer] : memref<2x3xi64, #moe.host>
      memref.store %address, %pointers[%group, %buffer, %rank] : memref<2x3x4xi64, #moe.host>
    }
  }
  return
}

// Weights are [expert, output, input], those of this rank's experts; of the outputs of gate_up the first 128 are the gate. `capacity` is the rows that
// this rank has room for: four times the tokens suffices.
func.func @layer(%tokens: tensor<?x256xbf16> {moe.name = "tokens", moe.dims = ["T"]},
                 %router: tensor<16x256xbf16> {moe.name = "router"},
                 %gate_up: tensor<?x256x256xbf16> {moe.name = "gate_up", moe.dims = ["L"]},
                 %down: tensor<?x256x128xbf16> {moe.name = "down", moe.dims = ["L"]},
                 %counters: memref<?xi32> {moe.name = "counters", moe.dims = ["C"]},
                 %pointers: memref<2x3x4xi64, #moe.host> {moe.name = "pointers"},
                 %capacity: index {moe.name = "capacity"},
                 %out: tensor<?x256xbf16> {moe.name = "out", moe.dims = ["T"]},
                 %ctx: !moe.context) -> tensor<?x256xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %T = tensor.dim %tokens, %c0 : tensor<?x256xbf16>
  %L = tensor.dim %gate_up, %c0 : tensor<?x256x256xbf16>

  // Gate, the same on all ranks.
  %logits_empty = tensor.empty(%T) : tensor<?x16xf32>
  %logits_zero = linalg.fill ins(%zero : f32) outs(%logits_empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  %logits = linalg.matmul indexing_maps = [#token_by_hidden, #expert_by_hidden, #token_by_expert]
    ins(%tokens, %router : tensor<?x256xbf16>, tensor<16x256xbf16>) outs(%logits_zero : tensor<?x16xf32>) -> tensor<?x16xf32>
  %ids_empty = tensor.empty(%T) : tensor<?x4xi32>
  %weights_empty = tensor.empty(%T) : tensor<?x4xf32>
  %ids, %weights = moe.route logits(%logits : tensor<?x16xf32>) outs(%ids_empty, %weights_empty : tensor<?x4xi32>, tensor<?x4xf32>) context(%ctx)
    {top_k = 4 : i64, n_experts = 16 : i64} -> tensor<?x4xi32>, tensor<?x4xf32>

  // The rows of this rank's experts: expert e has the rows offsets[e] to offsets[e + 1].
  %send = memref.subview %pointers[0, 0, 0] [1, 1, 4] [1, 1, 1] : memref<2x3x4xi64, #moe.host> to memref<4xi64, strided<[1]>, #moe.host>
  %recv = memref.subview %pointers[0, 1, 0] [1, 1, 4] [1, 1, 1] : memref<2x3x4xi64, #moe.host> to memref<4xi64, strided<[1], offset: 4>, #moe.host>
  %recv_count = memref.subview %pointers[0, 2, 0] [1, 1, 4] [1, 1, 1] : memref<2x3x4xi64, #moe.host> to memref<4xi64, strided<[1], offset: 8>, #moe.host>
  %ends = arith.addi %L, %c1 : index
  %rows_empty = tensor.empty(%capacity) : tensor<?x256xbf16>
  %offsets_empty = tensor.empty(%ends) : tensor<?xi32>
  %experts_empty = tensor.empty(%L) : tensor<?xi32>
  %sources_empty = tensor.empty(%capacity) : tensor<?x2xi32>
  %rows, %offsets, %experts, %sources = ep.dispatch counters(%counters : memref<?xi32>) tokens(%tokens : tensor<?x256xbf16>) topk_ids(%ids : tensor<?x4xi32>)
    buffers(%send, %recv, %recv_count : memref<4xi64, strided<[1]>, #moe.host>, memref<4xi64, strided<[1], offset: 4>, #moe.host>,
            memref<4xi64, strided<[1], offset: 8>, #moe.host>)
    outs(%rows_empty, %offsets_empty, %experts_empty, %sources_empty : tensor<?x256xbf16>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xi32>) context(%ctx)
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
  %csend = memref.subview %pointers[1, 0, 0] [1, 1, 4] [1, 1, 1] : memref<2x3x4xi64, #moe.host> to memref<4xi64, strided<[1], offset: 12>, #moe.host>
  %crecv = memref.subview %pointers[1, 1, 0] [1, 1, 4] [1, 1, 1] : memref<2x3x4xi64, #moe.host> to memref<4xi64, strided<[1], offset: 16>, #moe.host>
  %crecv_count = memref.subview %pointers[1, 2, 0] [1, 1, 4] [1, 1, 1] : memref<2x3x4xi64, #moe.host> to memref<4xi64, strided<[1], offset: 20>, #moe.host>
  %part = ep.combine.skip_a2a counters(%counters : memref<?xi32>) tokens(%results : tensor<?x256xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%csend, %crecv, %crecv_count : memref<4xi64, strided<[1], offset: 12>, #moe.host>, memref<4xi64, strided<[1], offset: 16>, #moe.host>,
            memref<4xi64, strided<[1], offset: 20>, #moe.host>)
    router_weights(%weights : tensor<?x4xf32>) topk_ids(%ids : tensor<?x4xi32>) outs(%out : tensor<?x256xbf16>) context(%ctx)
    {hidden_size = 256 : i64, top_k = 4 : i64, n_experts = 4 : i64, max_token_per_rank = 64 : i64, allreduce_world_size = 4 : i64} -> tensor<?x256xbf16>
  return %part : tensor<?x256xbf16>
}

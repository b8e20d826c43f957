// The mixture-of-experts layer of OLMoE-1B-7B (hidden 2048, intermediate 1024, 64 experts, top-8) on any number of ranks.
// Each rank has T tokens of its own and L of the 64 experts: blocks of consecutive ids, one more on the first ranks if they do not divide evenly.
// Weights are [expert, output, input]; of the outputs of gate_up the first 1024 are the gate.
// The functions share buffers by name: call @setup once, then @layer for each step.
#token_by_hidden  = affine_map<(t, e, h) -> (t, h)>
#expert_by_hidden = affine_map<(t, e, h) -> (e, h)>
#token_by_expert  = affine_map<(t, e, h) -> (t, e)>

func.func @setup(%workspace: memref<?xi8> {moe.name = "workspace"},
                 %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                 %ctx: !moe.context) {
  moe.initialize workspace(%workspace : memref<?xi8>) metainfo(%metainfo : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 512 : i64, dispatch_bytes_per_token = 4096 : i64, combine_bytes_per_token = 4096 : i64}
  return
}

// `max_tokens` is the most tokens that any rank has, `capacity` the rows that this rank has room for: min(8, L) times the tokens of all ranks
// suffices in any case.
func.func @layer(%tokens: tensor<?x2048xbf16> {moe.name = "tokens", moe.dims = ["T"]},
                 %router: tensor<64x2048xbf16> {moe.name = "router"},
                 %gate_up: tensor<?x2048x2048xbf16> {moe.name = "gate_up", moe.dims = ["L"]},
                 %down: tensor<?x2048x1024xbf16> {moe.name = "down", moe.dims = ["L"]},
                 %workspace: memref<?xi8> {moe.name = "workspace"},
                 %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                 %max_tokens: index {moe.name = "max_tokens"},
                 %capacity: index {moe.name = "capacity"},
                 %out: tensor<?x2048xbf16> {moe.name = "out", moe.dims = ["T"]},
                 %ctx: !moe.context) -> tensor<?x2048xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %T = tensor.dim %tokens, %c0 : tensor<?x2048xbf16>
  %L = tensor.dim %gate_up, %c0 : tensor<?x2048x2048xbf16>

  // Gate: logits in f32; softmax over all experts, then the best eight, whose weights stay as they are.
  %logits_empty = tensor.empty(%T) : tensor<?x64xf32>
  %logits_zero = linalg.fill ins(%zero : f32) outs(%logits_empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %logits = linalg.matmul indexing_maps = [#token_by_hidden, #expert_by_hidden, #token_by_expert]
    ins(%tokens, %router : tensor<?x2048xbf16>, tensor<64x2048xbf16>) outs(%logits_zero : tensor<?x64xf32>) -> tensor<?x64xf32>
  %ids_empty = tensor.empty(%T) : tensor<?x8xi32>
  %weights_empty = tensor.empty(%T) : tensor<?x8xf32>
  %ids, %weights = moe.route logits(%logits : tensor<?x64xf32>) outs(%ids_empty, %weights_empty : tensor<?x8xi32>, tensor<?x8xf32>) context(%ctx)
    {top_k = 8 : i64, n_experts = 64 : i64} -> tensor<?x8xi32>, tensor<?x8xf32>

  // Every token to the ranks of its experts: expert e of this rank gets the rows offsets[e] to offsets[e + 1].
  %rows_empty = tensor.empty(%capacity) : tensor<?x2048xbf16>
  %ends = arith.addi %L, %c1 : index
  %offsets_empty = tensor.empty(%ends) : tensor<?xi32>
  %rows, %offsets, %payload_offset = moe.dispatch topk_ids(%ids : tensor<?x8xi32>) topk_weights(%weights : tensor<?x8xf32>)
    payloads(%tokens : tensor<?x2048xbf16>) workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max_tokens : index) outs(%rows_empty : tensor<?x2048xbf16>) offsets(%offsets_empty : tensor<?xi32>) context(%ctx)
    {top_k = 8 : i64, n_experts = 64 : i64, layout = "expert_grouped"} -> (tensor<?x2048xbf16>, tensor<?xi32>, i64)

  // The experts.
  %hidden_empty = tensor.empty(%capacity) : tensor<?x1024xbf16>
  %hidden = moe.grouped_matmul rows(%rows : tensor<?x2048xbf16>) offsets(%offsets : tensor<?xi32>) weights(%gate_up : tensor<?x2048x2048xbf16>)
    outs(%hidden_empty : tensor<?x1024xbf16>) context(%ctx) {activation = "swiglu"} -> tensor<?x1024xbf16>
  %results_empty = tensor.empty(%capacity) : tensor<?x2048xbf16>
  %results = moe.grouped_matmul rows(%hidden : tensor<?x1024xbf16>) offsets(%offsets : tensor<?xi32>) weights(%down : tensor<?x2048x1024xbf16>)
    outs(%results_empty : tensor<?x2048xbf16>) context(%ctx) -> tensor<?x2048xbf16>

  // Back to the tokens, weighted and added up.
  %sum = moe.combine payload(%results : tensor<?x2048xbf16>) workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max_tokens : index) offset(%payload_offset) outs(%out : tensor<?x2048xbf16>) context(%ctx)
    {top_k = 8 : i64, hidden_size = 2048 : i64, layout = "expert_grouped"} -> tensor<?x2048xbf16>
  return %sum : tensor<?x2048xbf16>
}

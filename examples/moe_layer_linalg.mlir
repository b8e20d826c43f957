// The layer of moe_layer.mlir with its experts in upstream MLIR instead of moe.grouped_matmul: the two can replace each other.
// How many rows an expert has is known on the device alone, so that no code outside of a linalg body reads `offsets`: each row finds its expert.
#token_by_hidden  = affine_map<(t, e, h) -> (t, h)>
#expert_by_hidden = affine_map<(t, e, h) -> (e, h)>
#token_by_expert  = affine_map<(t, e, h) -> (t, e)>
#row        = affine_map<(r, c) -> (r)>
#column     = affine_map<(r, c) -> (c)>
#row_column = affine_map<(r, c) -> (r, c)>

// Rows through the weights of their experts: down . (silu(gate . row) * (up . row)). Sums are f32 in ascending k; the hidden row and the result are
// rounded to bf16.
func.func private @experts(%rows: tensor<?x2048xbf16>, %offsets: tensor<?xi32>, %gate_up: tensor<?x2048x2048xbf16>, %down: tensor<?x2048x1024xbf16>)
    -> tensor<?x2048xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c1024 = arith.constant 1024 : index
  %c2048 = arith.constant 2048 : index
  %minus_one = arith.constant -1 : i32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %R = tensor.dim %rows, %c0 : tensor<?x2048xbf16>
  %L = tensor.dim %gate_up, %c0 : tensor<?x2048x2048xbf16>
  %experts = arith.index_cast %L : index to i32

  // The expert of each row: how many of the L + 1 offsets are at most the row's number, less one. That is L past the rows of the last expert.
  %expert_empty = tensor.empty(%R) : tensor<?xi32>
  %expert_init = linalg.fill ins(%minus_one : i32) outs(%expert_empty : tensor<?xi32>) -> tensor<?xi32>
  %expert = linalg.generic {indexing_maps = [#column, #row], iterator_types = ["parallel", "reduction"]}
    ins(%offsets : tensor<?xi32>) outs(%expert_init : tensor<?xi32>) {
  ^bb0(%offset: i32, %count: i32):
    %r = linalg.index 0 : index
    %number = arith.index_cast %r : index to i32
    %begun = arith.cmpi sle, %offset, %number : i32
    %step = arith.extui %begun : i1 to i32
    %next = arith.addi %count, %step : i32
    linalg.yield %next : i32
  } -> tensor<?xi32>

  // Sums over k stand in the body, so that they stay in registers; rows without an expert sum over nothing.
  %hidden_empty = tensor.empty(%R) : tensor<?x1024xbf16>
  %hidden = linalg.generic {indexing_maps = [#row, #row_column], iterator_types = ["parallel", "parallel"]}
    ins(%expert : tensor<?xi32>) outs(%hidden_empty : tensor<?x1024xbf16>) {
  ^bb0(%e: i32, %unused: bf16):
    %r = linalg.index 0 : index
    %gate_column = linalg.index 1 : index
    %up_column = arith.addi %gate_column, %c1024 : index
    %group = arith.index_cast %e : i32 to index
    %valid = arith.cmpi slt, %e, %experts : i32
    %end = arith.select %valid, %c2048, %c0 : index
    %gate, %up = scf.for %k = %c0 to %end step %c1 iter_args(%gate_before = %zero, %up_before = %zero) -> (f32, f32) {
      %x_bf16 = tensor.extract %rows[%r, %k] : tensor<?x2048xbf16>
      %gate_bf16 = tensor.extract %gate_up[%group, %gate_column, %k] : tensor<?x2048x2048xbf16>
      %up_bf16 = tensor.extract %gate_up[%group, %up_column, %k] : tensor<?x2048x2048xbf16>
      %x = arith.extf %x_bf16 : bf16 to f32
      %gate_weight = arith.extf %gate_bf16 : bf16 to f32
      %up_weight = arith.extf %up_bf16 : bf16 to f32
      %gate_product = arith.mulf %x, %gate_weight : f32
      %up_product = arith.mulf %x, %up_weight : f32
      %gate_after = arith.addf %gate_before, %gate_product : f32
      %up_after = arith.addf %up_before, %up_product : f32
      scf.yield %gate_after, %up_after : f32, f32
    }
    %minus = arith.negf %gate : f32
    %decay = math.exp %minus : f32
    %divisor = arith.addf %decay, %one : f32
    %silu = arith.divf %gate, %divisor : f32
    %swiglu = arith.mulf %silu, %up : f32
    %narrow = arith.truncf %swiglu : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<?x1024xbf16>

  %results_empty = tensor.empty(%R) : tensor<?x2048xbf16>
  %results = linalg.generic {indexing_maps = [#row, #row_column], iterator_types = ["parallel", "parallel"]}
    ins(%expert : tensor<?xi32>) outs(%results_empty : tensor<?x2048xbf16>) {
  ^bb0(%e: i32, %unused: bf16):
    %r = linalg.index 0 : index
    %c = linalg.index 1 : index
    %group = arith.index_cast %e : i32 to index
    %valid = arith.cmpi slt, %e, %experts : i32
    %end = arith.select %valid, %c1024, %c0 : index
    %sum = scf.for %k = %c0 to %end step %c1 iter_args(%before = %zero) -> f32 {
      %x_bf16 = tensor.extract %hidden[%r, %k] : tensor<?x1024xbf16>
      %weight_bf16 = tensor.extract %down[%group, %c, %k] : tensor<?x2048x1024xbf16>
      %x = arith.extf %x_bf16 : bf16 to f32
      %weight = arith.extf %weight_bf16 : bf16 to f32
      %product = arith.mulf %x, %weight : f32
      %after = arith.addf %before, %product : f32
      scf.yield %after : f32
    }
    %narrow = arith.truncf %sum : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<?x2048xbf16>
  return %results : tensor<?x2048xbf16>
}

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
  %results = call @experts(%rows, %offsets, %gate_up, %down)
    : (tensor<?x2048xbf16>, tensor<?xi32>, tensor<?x2048x2048xbf16>, tensor<?x2048x1024xbf16>) -> tensor<?x2048xbf16>

  // Back to the tokens, weighted and added up.
  %sum = moe.combine payload(%results : tensor<?x2048xbf16>) workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max_tokens : index) offset(%payload_offset) outs(%out : tensor<?x2048xbf16>) context(%ctx)
    {top_k = 8 : i64, hidden_size = 2048 : i64, layout = "expert_grouped"} -> tensor<?x2048xbf16>
  return %sum : tensor<?x2048xbf16>
}

// The layer of moe_layer.mlir as its definition: one rank, upstream ops only, every expert on every token, everything in f32 but inputs and output.
// It does 64 / 8 times the work, so the loops are ordered for one core: activations are transposed, and the innermost loop runs over the tokens
// with one weight, which is read once.
#ij = affine_map<(i, j) -> (i, j)>
#ji = affine_map<(i, j) -> (j, i)>
#i  = affine_map<(i, j) -> (i)>
#j  = affine_map<(i, j) -> (j)>
#token_by_hidden  = affine_map<(t, e, h) -> (t, h)>
#expert_by_hidden = affine_map<(t, e, h) -> (e, h)>
#token_by_expert  = affine_map<(t, e, h) -> (t, e)>
// Product of a matrix (n, k) and transposed activations (k, t).
#weight = affine_map<(n, k, t) -> (n, k)>
#input  = affine_map<(n, k, t) -> (k, t)>
#output = affine_map<(n, k, t) -> (n, t)>
#at   = affine_map<(t, e, f) -> (t, e)>
#with = affine_map<(t, e, f) -> (t, f)>

func.func @layer(%tokens: tensor<?x2048xbf16> {moe.name = "tokens", moe.dims = ["T"]},
                 %router: tensor<64x2048xbf16> {moe.name = "router"},
                 %gate_up: tensor<64x2048x2048xbf16> {moe.name = "gate_up"},
                 %down: tensor<64x2048x1024xbf16> {moe.name = "down"},
                 %out: tensor<?x2048xbf16> {moe.name = "out", moe.dims = ["T"]},
                 %ctx: !moe.context) -> tensor<?x2048xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %experts = arith.constant 64 : index
  %top_k = arith.constant 8 : i32
  %zero_i32 = arith.constant 0 : i32
  %one_i32 = arith.constant 1 : i32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %T = tensor.dim %tokens, %c0 : tensor<?x2048xbf16>

  // Logits.
  %logits_empty = tensor.empty(%T) : tensor<?x64xf32>
  %logits_zero = linalg.fill ins(%zero : f32) outs(%logits_empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %logits = linalg.matmul indexing_maps = [#token_by_hidden, #expert_by_hidden, #token_by_expert]
    ins(%tokens, %router : tensor<?x2048xbf16>, tensor<64x2048xbf16>) outs(%logits_zero : tensor<?x64xf32>) -> tensor<?x64xf32>

  // Softmax over the experts.
  %per_token = tensor.empty(%T) : tensor<?xf32>
  %max_init = linalg.fill ins(%lowest : f32) outs(%per_token : tensor<?xf32>) -> tensor<?xf32>
  %max = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
    ins(%logits : tensor<?x64xf32>) outs(%max_init : tensor<?xf32>) {
  ^bb0(%logit: f32, %acc: f32):
    %greater = arith.maximumf %logit, %acc : f32
    linalg.yield %greater : f32
  } -> tensor<?xf32>
  %exp = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
    ins(%logits, %max : tensor<?x64xf32>, tensor<?xf32>) outs(%logits_empty : tensor<?x64xf32>) {
  ^bb0(%logit: f32, %m: f32, %unused: f32):
    %below = arith.subf %logit, %m : f32
    %value = math.exp %below : f32
    linalg.yield %value : f32
  } -> tensor<?x64xf32>
  %sum_init = linalg.fill ins(%zero : f32) outs(%per_token : tensor<?xf32>) -> tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
    ins(%exp : tensor<?x64xf32>) outs(%sum_init : tensor<?xf32>) {
  ^bb0(%value: f32, %acc: f32):
    %next = arith.addf %acc, %value : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  %scores = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
    ins(%exp, %sum : tensor<?x64xf32>, tensor<?xf32>) outs(%logits_empty : tensor<?x64xf32>) {
  ^bb0(%value: f32, %total: f32, %unused: f32):
    %score = arith.divf %value, %total : f32
    linalg.yield %score : f32
  } -> tensor<?x64xf32>

  // An expert is chosen if fewer than eight come before it: those of a greater score, or of the same score and a lower id.
  %places_empty = tensor.empty(%T) : tensor<?x64xi32>
  %places_zero = linalg.fill ins(%zero_i32 : i32) outs(%places_empty : tensor<?x64xi32>) -> tensor<?x64xi32>
  %places = linalg.generic {indexing_maps = [#at, #with, #at], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%scores, %scores : tensor<?x64xf32>, tensor<?x64xf32>) outs(%places_zero : tensor<?x64xi32>) {
  ^bb0(%score: f32, %other: f32, %acc: i32):
    %e = linalg.index 1 : index
    %f = linalg.index 2 : index
    %greater = arith.cmpf ogt, %other, %score : f32
    %equal = arith.cmpf oeq, %other, %score : f32
    %lower = arith.cmpi ult, %f, %e : index
    %tie = arith.andi %equal, %lower : i1
    %before = arith.ori %greater, %tie : i1
    %step = arith.select %before, %one_i32, %zero_i32 : i32
    %next = arith.addi %acc, %step : i32
    linalg.yield %next : i32
  } -> tensor<?x64xi32>
  %weights_empty = tensor.empty(%T) : tensor<64x?xf32>
  %weights = linalg.generic {indexing_maps = [#ji, #ji, #ij], iterator_types = ["parallel", "parallel"]}
    ins(%scores, %places : tensor<?x64xf32>, tensor<?x64xi32>) outs(%weights_empty : tensor<64x?xf32>) {
  ^bb0(%score: f32, %place: i32, %unused: f32):
    %chosen = arith.cmpi slt, %place, %top_k : i32
    %weight = arith.select %chosen, %score, %zero : f32
    linalg.yield %weight : f32
  } -> tensor<64x?xf32>

  // Tokens, transposed and in f32.
  %inputs_empty = tensor.empty(%T) : tensor<2048x?xf32>
  %inputs = linalg.generic {indexing_maps = [#ji, #ij], iterator_types = ["parallel", "parallel"]}
    ins(%tokens : tensor<?x2048xbf16>) outs(%inputs_empty : tensor<2048x?xf32>) {
  ^bb0(%value: bf16, %unused: f32):
    %wide = arith.extf %value : bf16 to f32
    linalg.yield %wide : f32
  } -> tensor<2048x?xf32>

  // The experts, one after the other. A token's weight goes to the expert's hidden values, so that the second product adds straight to the sum.
  %results_empty = tensor.empty(%T) : tensor<2048x?xf32>
  %results_zero = linalg.fill ins(%zero : f32) outs(%results_empty : tensor<2048x?xf32>) -> tensor<2048x?xf32>
  %gate_up_empty = tensor.empty(%T) : tensor<2048x?xf32>
  %hidden_empty = tensor.empty(%T) : tensor<1024x?xf32>
  %results = scf.for %e = %c0 to %experts step %c1 iter_args(%results_before = %results_zero) -> tensor<2048x?xf32> {
    %expert_gate_up = tensor.extract_slice %gate_up[%e, 0, 0] [1, 2048, 2048] [1, 1, 1] : tensor<64x2048x2048xbf16> to tensor<2048x2048xbf16>
    %expert_down = tensor.extract_slice %down[%e, 0, 0] [1, 2048, 1024] [1, 1, 1] : tensor<64x2048x1024xbf16> to tensor<2048x1024xbf16>
    %expert_weights = tensor.extract_slice %weights[%e, 0] [1, %T] [1, 1] : tensor<64x?xf32> to tensor<?xf32>

    %gate_up_zero = linalg.fill ins(%zero : f32) outs(%gate_up_empty : tensor<2048x?xf32>) -> tensor<2048x?xf32>
    %gate_up_values = linalg.generic {indexing_maps = [#weight, #input, #output], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%expert_gate_up, %inputs : tensor<2048x2048xbf16>, tensor<2048x?xf32>) outs(%gate_up_zero : tensor<2048x?xf32>) {
    ^bb0(%weight: bf16, %value: f32, %acc: f32):
      %wide = arith.extf %weight : bf16 to f32
      %product = arith.mulf %wide, %value : f32
      %next = arith.addf %acc, %product : f32
      linalg.yield %next : f32
    } -> tensor<2048x?xf32>

    %gate = tensor.extract_slice %gate_up_values[0, 0] [1024, %T] [1, 1] : tensor<2048x?xf32> to tensor<1024x?xf32>
    %up = tensor.extract_slice %gate_up_values[1024, 0] [1024, %T] [1, 1] : tensor<2048x?xf32> to tensor<1024x?xf32>
    %hidden = linalg.generic {indexing_maps = [#ij, #ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%gate, %up, %expert_weights : tensor<1024x?xf32>, tensor<1024x?xf32>, tensor<?xf32>) outs(%hidden_empty : tensor<1024x?xf32>) {
    ^bb0(%g: f32, %u: f32, %weight: f32, %unused: f32):
      %minus = arith.negf %g : f32
      %decay = math.exp %minus : f32
      %divisor = arith.addf %decay, %one : f32
      %silu = arith.divf %g, %divisor : f32
      %swiglu = arith.mulf %silu, %u : f32
      %weighted = arith.mulf %swiglu, %weight : f32
      linalg.yield %weighted : f32
    } -> tensor<1024x?xf32>

    %results_after = linalg.generic {indexing_maps = [#weight, #input, #output], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%expert_down, %hidden : tensor<2048x1024xbf16>, tensor<1024x?xf32>) outs(%results_before : tensor<2048x?xf32>) {
    ^bb0(%weight: bf16, %value: f32, %acc: f32):
      %wide = arith.extf %weight : bf16 to f32
      %product = arith.mulf %wide, %value : f32
      %next = arith.addf %acc, %product : f32
      linalg.yield %next : f32
    } -> tensor<2048x?xf32>
    scf.yield %results_after : tensor<2048x?xf32>
  }

  %rounded = linalg.generic {indexing_maps = [#ji, #ij], iterator_types = ["parallel", "parallel"]}
    ins(%results : tensor<2048x?xf32>) outs(%out : tensor<?x2048xbf16>) {
  ^bb0(%value: f32, %unused: bf16):
    %narrow = arith.truncf %value : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<?x2048xbf16>
  return %rounded : tensor<?x2048xbf16>
}

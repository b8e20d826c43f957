// The gate of a small layer: a matrix product of upstream MLIR, then the choice of two experts out of eight for each token.
// The caller passes the destinations `ids` and `weights`; returning them is what makes them outputs.

func.func @gate(%tokens: tensor<?x16xf32> {moe.name = "tokens", moe.dims = ["T"]},
                %router: tensor<16x8xf32> {moe.name = "router"},
                %ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]},
                %weights: tensor<?x2xf32> {moe.name = "weights", moe.dims = ["T"]},
                %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %T = tensor.dim %tokens, %c0 : tensor<?x16xf32>

  %empty = tensor.empty(%T) : tensor<?x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %logits = linalg.matmul ins(%tokens, %router : tensor<?x16xf32>, tensor<16x8xf32>) outs(%zeros : tensor<?x8xf32>) -> tensor<?x8xf32>

  %chosen:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, renormalize = true} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %chosen#0, %chosen#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

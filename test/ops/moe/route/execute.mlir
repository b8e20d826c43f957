// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/execute.py route %t

// Ranks route their own tokens; a rank may have none.
// RUN: moe-run %t.so --function route --input logits=%t/1/logits{rank}.npy --expect ids=%t/1/ids{rank}.npy --expect weights=%t/1/weights{rank}.npy --rtol 2e-6
// RUN: moe-run %t.so --ranks 2 --function route --input logits=%t/2/logits{rank}.npy --expect ids=%t/2/ids{rank}.npy --expect weights=%t/2/weights{rank}.npy --rtol 2e-6
// RUN: moe-run %t.so --ranks 4 --function route --input logits=%t/4/logits{rank}.npy --expect ids=%t/4/ids{rank}.npy --expect weights=%t/4/weights{rank}.npy --rtol 2e-6 --repeat 3

// RUN: moe-run %t.so --function biased --input logits=%t/1/logits{rank}.npy --input bias=%t/1/bias{rank}.npy --expect ids=%t/1/biased_ids{rank}.npy --expect weights=%t/1/biased_weights{rank}.npy --rtol 2e-6
// RUN: moe-run %t.so --ranks 4 --function biased --input logits=%t/4/logits{rank}.npy --input bias=%t/4/bias{rank}.npy --expect ids=%t/4/biased_ids{rank}.npy --expect weights=%t/4/biased_weights{rank}.npy --rtol 2e-6 --repeat 3

// The comparison sees a difference.
// RUN: not moe-run %t.so --function route --input logits=%t/1/logits{rank}.npy --expect weights=%t/1/biased_weights{rank}.npy --rtol 2e-6

// What the compiler cannot know the run time checks.
// RUN: not moe-run %t.so --function unequal --random 1 --size T=5 --size ids.0=4 2>&1 | FileCheck %s
// CHECK: moe-run: rank 0: unequal: MOERT_ERROR_INVALID_SHAPE {{.*}}: moe.route: operand 'ids' dimension 0 is 4, must equal dimension 0 of 'logits' = 5{{$}}

func.func @route(%logits: tensor<?x8xf32> {moe.name = "logits", moe.dims = ["T"]}, %ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]},
                 %weights: tensor<?x2xf32> {moe.name = "weights", moe.dims = ["T"]}, %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

func.func @biased(%logits: tensor<?x8xf32> {moe.name = "logits", moe.dims = ["T"]}, %bias: tensor<8xf32> {moe.name = "bias"},
                  %ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %weights: tensor<?x2xf32> {moe.name = "weights", moe.dims = ["T"]},
                  %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) bias(%bias : tensor<8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, score = "sigmoid", renormalize = true, routed_scaling_factor = 2.5 : f64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

func.func @unequal(%logits: tensor<?x8xf32> {moe.name = "logits", moe.dims = ["T"]}, %ids: tensor<?x2xi32> {moe.name = "ids"},
                   %weights: tensor<?x2xf32> {moe.name = "weights", moe.dims = ["T"]}, %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

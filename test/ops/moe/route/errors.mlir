// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @route_c1(%logits: tensor<?x7xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'logits' has size 7 in dimension 1, but n_experts is 8}}
  moe.route logits(%logits : tensor<?x7xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route_c2(%logits: tensor<?x8xf32>, %bias: tensor<9xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'bias' has size 9 in dimension 0, but n_experts is 8}}
  moe.route logits(%logits : tensor<?x8xf32>) bias(%bias : tensor<9xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route_c3_ids(%logits: memref<?x8xf32>, %ids: memref<?x3xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'ids' has size 3 in dimension 1, but top_k is 2}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x3xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_c3_weights(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x1xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'weights' has size 1 in dimension 1, but top_k is 2}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x1xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_c3_tokens_of_ids(%logits: memref<5x8xf32>, %ids: memref<6x2xi32>, %weights: memref<5x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'ids' has size 6 in dimension 0, but dimension 0 of operand 'logits' is 5}}
  moe.route logits(%logits : memref<5x8xf32>) outs(%ids, %weights : memref<6x2xi32>, memref<5x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_c3_tokens_of_weights(%logits: memref<5x8xf32>, %ids: memref<?x2xi32>, %weights: memref<0x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'weights' has size 0 in dimension 0, but dimension 0 of operand 'logits' is 5}}
  moe.route logits(%logits : memref<5x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<0x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_c4(%logits: memref<?x4xf32>, %ids: memref<?x5xi32>, %weights: memref<?x5xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op top_k = 5 exceeds n_experts = 4}}
  moe.route logits(%logits : memref<?x4xf32>) outs(%ids, %weights : memref<?x5xi32>, memref<?x5xf32>) context(%ctx) {top_k = 5 : i64, n_experts = 4 : i64}
  return
}

// -----

func.func @route_c5(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op n_experts = 8 is not a multiple of n_group = 3}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, n_group = 3 : i64}
  return
}

// -----

func.func @route_c6(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op topk_group = 5 exceeds n_group = 4}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, n_group = 4 : i64, topk_group = 5 : i64}
  return
}

// -----

func.func @route_c7(%logits: memref<?x8xf32>, %ids: memref<?x3xi32>, %weights: memref<?x3xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op top_k = 3 exceeds the 2 experts of topk_group = 1 groups}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x3xi32>, memref<?x3xf32>) context(%ctx)
    {top_k = 3 : i64, n_experts = 8 : i64, n_group = 4 : i64}
  return
}

// -----

func.func @route_c8(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op n_group = 8 leaves groups of 1 expert; a group's value needs two}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, n_group = 8 : i64, topk_group = 8 : i64}
  return
}

// -----

func.func @route_s1_destination(%logits: tensor<?x8xf32>, %ids: memref<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'ids' is a memref, but operand 'logits' is a tensor: use tensors or memrefs throughout}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xf32>
  return
}

// -----

func.func @route_s1_input(%logits: memref<?x8xf32>, %bias: tensor<8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'bias' is a tensor, but operand 'logits' is a memref: use tensors or memrefs throughout}}
  moe.route logits(%logits : memref<?x8xf32>) bias(%bias : tensor<8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_s2(%logits: memref<?x8xf32>, %ids: memref<?x2xi32, #moe.host>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'ids' must be in device memory, which is the default memory space: its type has another one}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32, #moe.host>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_s2_other_space(%logits: memref<?x8xf32, 3>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand 'logits' must be in device memory, which is the default memory space: its type has another one}}
  moe.route logits(%logits : memref<?x8xf32, 3>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

func.func @route_s3_type(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op result #1 must have the type of destination 'weights'}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @route_s3_too_few(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op result #1 must have the type of destination 'weights'}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>
  return
}

// -----

func.func @route_s3_on_memrefs(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op has 1 results, but must have 0: one for each destination on tensors}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>
  return
}

// -----

func.func @route_rank_of_logits(%logits: tensor<8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'tensor<8xf32>'}}
  moe.route logits(%logits : tensor<8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route_element_of_logits(%logits: tensor<?x8xf64>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'tensor<?x8xf64>'}}
  moe.route logits(%logits : tensor<?x8xf64>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route_element_of_bias(%logits: tensor<?x8xf16>, %bias: tensor<8xf16>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand #1 must be 1-D tensor or memref of f32, but got 'tensor<8xf16>'}}
  moe.route logits(%logits : tensor<?x8xf16>) bias(%bias : tensor<8xf16>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route_element_of_ids(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi64>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand #1 must be 2-D tensor or memref of i32, but got 'tensor<?x2xi64>'}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi64>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi64>, tensor<?x2xf32>
  return
}

// -----

func.func @route_element_of_weights(%logits: tensor<?x8xbf16>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand #2 must be 2-D tensor or memref of f32, but got 'tensor<?x2xbf16>'}}
  moe.route logits(%logits : tensor<?x8xbf16>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xbf16>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xbf16>
  return
}

// -----

func.func @route_unranked(%logits: tensor<*xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'tensor<*xf32>'}}
  moe.route logits(%logits : tensor<*xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

// expected-note@+1 {{prior use here}}
func.func @route_context_type(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: index) {
  // expected-error@+1 {{use of value '%ctx' expects different type than prior uses: '!moe.context' vs 'index'}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @route_without_context(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error@+1 {{'moe.route' op expected 4 or more operands, but found 3}}
  "moe.route"(%logits, %ids, %weights) {top_k = 2 : i64, n_experts = 8 : i64}
    : (tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>) -> (tensor<?x2xi32>, tensor<?x2xf32>)
  return
}

// -----

func.func @route_s4(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op has no parameter 'renormalise'}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, renormalise = true} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

// An attribute of that name means nothing here.
func.func @route_s4_segments(%logits: tensor<4x8xf32>, %ids: tensor<4x2xi32>, %weights: tensor<4x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op has no parameter 'operandSegmentSizes'}}
  %0:2 = "moe.route"(%logits, %ids, %weights, %ctx) <{top_k = 2 : i64, n_experts = 8 : i64}> {operandSegmentSizes = "text"}
    : (tensor<4x8xf32>, tensor<4x2xi32>, tensor<4x2xf32>, !moe.context) -> (tensor<4x2xi32>, tensor<4x2xf32>)
  return
}

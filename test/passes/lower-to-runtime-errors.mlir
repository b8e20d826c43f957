// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-lower-to-runtime

func.func @on_tensors(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.route' op is still on tensors: run one-shot-bufferize first}}
  moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @in_for(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %n: index, %ctx: !moe.context) {
  scf.for %i = %n to %n step %n {
    // expected-error@+1 {{'moe.route' op is inside an op with a region: run convert-scf-to-cf first (inside linalg.generic and scf.forall it has no meaning)}}
    moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  }
  return
}

// -----

func.func @in_forall(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %n: index, %ctx: !moe.context) {
  scf.forall (%i) in (%n) {
    // expected-error@+1 {{'moe.route' op is inside an op with a region: run convert-scf-to-cf first (inside linalg.generic and scf.forall it has no meaning)}}
    moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  }
  return
}

// -----

func.func @in_generic(%x: memref<4xf32>, %ctx: !moe.context) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<4xf32>) {
  ^bb0(%element: f32):
    // expected-error@+1 {{'moe.workspace_size' op is inside an op with a region: run convert-scf-to-cf first (inside linalg.generic and scf.forall it has no meaning)}}
    %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
    linalg.yield %element : f32
  }
  return
}

// -----

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @no_context(%x: memref<4xf32>) {
  return
}

// -----

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @no_arguments() {
  return
}

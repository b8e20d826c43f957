// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-select-kernels

func.func @in_forall(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %n: index, %ctx: !moe.context) {
  scf.forall (%i) in (%n) {
    // expected-error@+1 {{'moe.route' op is inside scf.forall, whose iterations have no order: use it outside, or in scf.for}}
    moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  }
  return
}

// -----

func.func @in_parallel(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %n: index, %choice: i1, %ctx: !moe.context) {
  scf.parallel (%i) = (%n) to (%n) step (%n) {
    scf.if %choice {
      // expected-error@+1 {{'moe.initialize' op is inside scf.parallel, whose iterations have no order: use it outside, or in scf.for}}
      moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
        {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
    }
  }
  return
}

// -----

func.func @in_generic(%x: memref<4xindex>, %ctx: !moe.context) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<4xindex>) {
  ^bb0(%element: index):
    // expected-error@+1 {{'moe.workspace_size' op is inside linalg.generic, whose iterations have no order: use it outside, or in scf.for}}
    %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
    linalg.yield %0 : index
  }
  return
}

// -----

func.func @in_affine_parallel(%x: memref<4xindex>, %ctx: !moe.context) {
  affine.parallel (%i) = (0) to (4) {
    // expected-error@+1 {{'moe.workspace_size' op is inside affine.parallel, whose iterations have no order: use it outside, or in scf.for}}
    %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
    affine.store %0, %x[%i] : memref<4xindex>
  }
  return
}

// RUN: moe-opt %s --moe-select-kernels="target=sm_90a remarks=true" --verify-diagnostics --split-input-file | FileCheck %s
// RUN: not moe-opt %s --moe-select-kernels="target=sm_90a require-specialized=true" --split-input-file 2>&1 | FileCheck %s --check-prefix=REQUIRE

// An instance for exactly these parameters. Ops that no device has a kernel for get no key and no remark.
// CHECK: moe.kernels = ["moe.combine/sm_90a/bf16,bf16,top_k=8,hidden_size=7168,
// CHECK-SAME: moe.target = "sm_90a"
// CHECK: moe.workspace_size
// CHECK-NOT: moe.kernel
// CHECK: moe.combine {{.*}}moe.kernel = "moe.combine/sm_90a/
// REQUIRE-NOT: error
func.func @exact(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %payload: memref<?x?x7168xbf16>, %max: index, %offset: i64, %out: memref<?x7168xbf16>,
                 %size: memref<1xindex, #moe.host>, %ctx: !moe.context) {
  %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  // expected-remark@+1 {{moe.combine: kernel moe.combine/sm_90a/bf16,hidden_size=7168,top_k=8 (exact)}}
  moe.combine payload(%payload : memref<?x?x7168xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x7168xbf16>) context(%ctx) {top_k = 8 : i64, hidden_size = 7168 : i64}
  return
}

// -----

// An instance that not all builds have.
// REQUIRE-NOT: error
func.func @of_a_set(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %payload: memref<?x?x4096xbf16>, %max: index, %offset: i64, %out: memref<?x4096xbf16>,
                    %ctx: !moe.context) {
  // expected-remark@+1 {{moe.combine: kernel moe.combine/sm_90a/bf16,hidden_size=4096,top_k=8 (exact, set default)}}
  moe.combine payload(%payload : memref<?x?x4096xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x4096xbf16>) context(%ctx) {top_k = 8 : i64, hidden_size = 4096 : i64}
  return
}

// -----

// The nearest is named, and what it has otherwise. All ops are looked at.
// REQUIRE: error: 'moe.combine' op would get a generic kernel; nearest moe.combine/sm_90a/bf16,hidden_size=7168,top_k=8: hidden_size is 7000
// REQUIRE: error: 'moe.route' op would get a generic kernel
func.func @near(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %payload: memref<?x?x7000xbf16>, %max: index, %offset: i64, %out: memref<?x7000xbf16>,
                %logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  // expected-remark@+1 {{moe.combine: generic kernel; nearest moe.combine/sm_90a/bf16,hidden_size=7168,top_k=8: hidden_size is 7000}}
  moe.combine payload(%payload : memref<?x?x7000xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x7000xbf16>) context(%ctx) {top_k = 8 : i64, hidden_size = 7000 : i64}
  // expected-remark@+1 {{moe.route: generic kernel; nearest moe.route/sm_90a/f32,n_experts=64,top_k=8}}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

// -----

// No instance of the element type.
// REQUIRE: error: 'moe.route' op would get a generic kernel
func.func @none(%logits: memref<?x64xf16>, %ids: memref<?x8xi32>, %weights: memref<?x8xf32>, %ctx: !moe.context) {
  // expected-remark@+1 {{moe.route: generic kernel: }}
  moe.route logits(%logits : memref<?x64xf16>) outs(%ids, %weights : memref<?x8xi32>, memref<?x8xf32>) context(%ctx) {top_k = 8 : i64, n_experts = 64 : i64}
  return
}

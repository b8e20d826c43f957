// RUN: moe-opt %s --moe-select-kernels | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=host | FileCheck %s
// RUN: not moe-opt %s --moe-select-kernels=target=sm_70 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not moe-opt %s --moe-select-kernels=remarks=yes 2>&1 | FileCheck %s --check-prefix=REMARKS
// RUN: not moe-opt %s --moe-select-kernels=require-specialized=1 2>&1 | FileCheck %s --check-prefix=REQUIRE

// TARGET: error: target 'sm_70' is not one of this build: host, sm_90a
// REMARKS: error: remarks must be true or false, not 'yes'
// REQUIRE: error: require-specialized must be true or false, not '1'

// A key for each way that an op is used, once; ops that no device has a kernel for have none.
// CHECK: module attributes {moe.kernels = [
// CHECK-SAME: "moe.route/host/bf16,f32,i32,f32,top_k=2,n_experts=8,score=sigmoid,order=score_then_top_k,renormalize=1,routed_scaling_factor=0.10000000000000001,n_group=1,topk_group=1",
// CHECK-SAME: "moe.route/host/f32,i32,f32,top_k=2,n_experts=8,score=softmax,order=score_then_top_k,renormalize=0,routed_scaling_factor=1,n_group=1,topk_group=1",
// CHECK-SAME: "moe.combine/host/bf16,f32,top_k=2,hidden_size=16,layout=rank_major,payload_in_workspace=0,use_low_precision=0,output_format=none,sf_layout=linear,output_scalar_scale=1,max_sms=0,enable_pdl=1,ep_size=0"], moe.target = "host"}
// CHECK: moe.route {{.*}}moe.kernel = "moe.route/host/bf16,
// CHECK: moe.route {{.*}}moe.kernel = "moe.route/host/f32,
// CHECK: moe.route {{.*}}moe.kernel = "moe.route/host/f32,
// CHECK: moe.workspace_size
// CHECK-NOT: moe.kernel
// CHECK: moe.workspace_view
// CHECK-NOT: moe.kernel
// CHECK: moe.allocate
// CHECK-NOT: moe.kernel
// CHECK: moe.combine {{.*}}moe.kernel = "moe.combine/host/
func.func @f(%x: memref<?x8xbf16>, %y: memref<?x8xf32>, %bias: memref<8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ws: memref<?xi8>,
             %info: memref<16xi64, #moe.host>, %payload: memref<?x?x16xbf16>, %max: index, %offset: i64, %out: memref<?x16xf32>, %ctx: !moe.context) {
  moe.route logits(%x : memref<?x8xbf16>) bias(%bias : memref<8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, score = "sigmoid", renormalize = true, routed_scaling_factor = 0.1 : f64}
  moe.route logits(%y : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  moe.route logits(%y : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  %size = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  %view = moe.workspace_view %ws[%offset : i64] sizes(%size) context(%ctx) : memref<?xi8> to memref<?x8xf32>
  %buffer = moe.allocate(%size) context(%ctx) : memref<?x8xf32>
  moe.combine payload(%payload : memref<?x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

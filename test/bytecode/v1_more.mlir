// The ops that version 1 of the dialects has besides those of v1.mlir; what is said there holds here.
//
// RUN: moe-opt %s > %t.text
// RUN: moe-opt %S/v1_more.mlirbc | diff %t.text -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.text -
// RUN: FileCheck %s --input-file=%t.text

// CHECK-LABEL: func.func @sanitize
// CHECK: moe.sanitize_expert_ids {{.*}} {ep_size = 64 : i64, invalid_expert_id = 256 : i64}
func.func @sanitize(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<?x?x?xi32, strided<[?, ?, 1], offset: ?>>, %ctx: !moe.context) {
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<?x?x?xi32, strided<[?, ?, 1], offset: ?>>) context(%ctx)
    {invalid_expert_id = 256 : i64, ep_size = 64 : i64}
  return
}

// CHECK-LABEL: func.func @allreduce
// CHECK: moe.allreduce_fusion {{.*}} allreduce_out({{.*}} residual_out({{.*}} norm_out({{.*}} {hidden_size = 16 : i64, rms_eps = 1.000000e-05 : f64}
func.func @allreduce(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %n: tensor<1xi32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %y: tensor<?x16xbf16>, %z: tensor<?x16xbf16>, %m: tensor<?x16xbf16>, %ctx: !moe.context)
    -> (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:3 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>) device_num_experts(%n : tensor<1xi32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : tensor<?x16xbf16>) residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1, %0#2 : tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
}

// CHECK-LABEL: func.func @allreduce_in_place
// CHECK: moe.allreduce_fusion {{.*}} {fp32_acc = true, hidden_size = 24 : i64, launch_with_pdl = true, rms_eps = 0.000000e+00 : f64, weight_bias = 1.000000e+00 : f64, world_size = 16 : i64}
func.func @allreduce_in_place(%r: memref<5x24xf16>, %g: memref<24xf16>, %x: memref<3x5x24xf16>, %s: memref<3x5xbf16>, %n: memref<1xui32>, %t: memref<5x24xf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.allreduce_fusion residual_in(%r : memref<5x24xf16>) rms_gamma(%g : memref<24xf16>) active_experts(%x, %s : memref<3x5x24xf16>, memref<3x5xbf16>) device_num_experts(%n : memref<1xui32>)
    token_input(%t : memref<5x24xf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : memref<5x24xf16>) context(%ctx) {hidden_size = 24 : i64, rms_eps = 0.0 : f64, weight_bias = 1.0 : f64, fp32_acc = true, launch_with_pdl = true, backend = "trtllm", world_size = 16 : i64}
  return
}

// CHECK-LABEL: func.func @init
// CHECK: ep.init {{.*}} n_experts = 65536 : i64
func.func @init(%c0: memref<655680xi32>, %c1: memref<655680xi32>, %dev: memref<?x?xui64, #moe.host>, %rank: memref<?xi32, #moe.host>, %ctx: !moe.context) {
  ep.init counters(%c0, %c1 : memref<655680xi32>, memref<655680xi32>) dev_ptrs(%dev : memref<?x?xui64, #moe.host>) my_rank(%rank : memref<?xi32, #moe.host>)
    context(%ctx) {hidden_size = 1048576 : i64, top_k = 32 : i64, n_experts = 65536 : i64, max_token_per_rank = 16777216 : i64, combine_dtype = "f32",
                   dispatch_scale_dtype = "f8E8M0FNU", my.note = "kept"}
  return
}

// CHECK-LABEL: func.func @dispatch
// CHECK: ep.dispatch {{.*}} skip_a2a = true
func.func @dispatch(%c: memref<?xi32>, %x: memref<0x16xbf16>, %ids: memref<0x2xi32>, %s: memref<1xi64, #moe.host>, %rows: memref<24x16xbf16>, %offsets: memref<6xi32>,
                   %experts: memref<5xi32>, %sources: memref<24x2xi32>, %ctx: !moe.context) {
  ep.dispatch counters(%c : memref<?xi32>) tokens(%x : memref<0x16xbf16>) topk_ids(%ids : memref<0x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : memref<24x16xbf16>, memref<6xi32>, memref<5xi32>, memref<24x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, fused_shared_expert = true}
  return
}

// CHECK-LABEL: func.func @combine
// CHECK: ep.combine.skip_a2a {{.*}} {allreduce_world_size = 2 : i64
func.func @combine(%c: memref<360xi32>, %x: tensor<?x16xbf16>, %sources: tensor<?x2xi32>, %s: memref<2xi64, #moe.host>, %r: memref<2xui64, #moe.host>,
                   %n: memref<?xi64, #moe.host>, %w: tensor<?x2xf32>, %ids: tensor<?x2xi32>, %out: tensor<?x16xbf16>, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xbf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %r, %n : memref<2xi64, #moe.host>, memref<2xui64, #moe.host>, memref<?xi64, #moe.host>)
    router_weights(%w : tensor<?x2xf32>) topk_ids(%ids : tensor<?x2xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, n_gpus_per_node = 1 : i64, n_nodes = 1 : i64,
     fused_shared_expert = false, skip_a2a = true, allreduce_world_size = 2 : i64} -> tensor<?x16xbf16>
  return %0 : tensor<?x16xbf16>
}

// CHECK-LABEL: func.func @combine_epilogue
// CHECK: ep.combine.skip_a2a {{.*}} epilogue {
func.func @combine_epilogue(%c: memref<360xi32>, %x: tensor<?x16xf16>, %sources: tensor<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: tensor<5x2xbf16>, %ids: tensor<5x2xi32>,
                    %residual: tensor<5x16xf16>, %flag: i1, %out: tensor<5x16xf16>, %ctx: !moe.context) -> tensor<5x16xf16> {
  %0 = ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : tensor<?x16xf16>) src_info(%sources : tensor<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : tensor<5x2xbf16>) topk_ids(%ids : tensor<5x2xi32>) outs(%out : tensor<5x16xf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, fused_shared_expert = true, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: f16):
      %other = tensor.extract %residual[%row, %column] : tensor<5x16xf16>
      %sum = arith.addf %value, %other : f16
      %chosen = scf.if %flag -> f16 {
        scf.yield %sum : f16
      } else {
        %product = arith.mulf %value, %other : f16
        scf.yield %product : f16
      }
      ep.yield %chosen : f16
    } -> tensor<5x16xf16>
  return %0 : tensor<5x16xf16>
}

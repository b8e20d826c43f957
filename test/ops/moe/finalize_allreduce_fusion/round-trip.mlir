// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// All operands but codes.
// CHECK-LABEL: func.func @all
// CHECK: moe.finalize_allreduce_fusion residual_in(%{{[^ ]*}} : tensor<?x16xbf16>) norm_weight(%{{[^ ]*}} : tensor<16xbf16>)
// CHECK-SAME: rows(%{{[^ ]*}}, %{{[^ ]*}} : tensor<?x16xbf16>, tensor<?x8xi32>)
// CHECK-SAME: expert_scale_factor(%{{[^ ]*}} : tensor<?x8xf32>) shared_expert_output(%{{[^ ]*}} : tensor<?x16xbf16>)
// CHECK-SAME: workspace(%{{[^ ]*}}, %{{[^ ]*}} : memref<?xi8>, memref<16xi64, #moe.host>)
// CHECK-SAME: residual_out(%{{[^ ]*}} : tensor<?x16xbf16>) norm_out(%{{[^ ]*}} : tensor<?x16xbf16>)
// CHECK-SAME: context(%{{[^)]*}}) {hidden_size = 16 : i64, rms_eps = 1.000000e-05 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>
func.func @all(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x16xbf16>, %i: tensor<?x8xi32>, %w: tensor<?x8xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %z: tensor<?x16xbf16>, %m: tensor<?x16xbf16>, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:2 = moe.finalize_allreduce_fusion residual_in(%r : tensor<?x16xbf16>) norm_weight(%g : tensor<16xbf16>) rows(%x, %i : tensor<?x16xbf16>, tensor<?x8xi32>)
    expert_scale_factor(%w : tensor<?x8xf32>) shared_expert_output(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x16xbf16>
}

// Codes alone, rows as they are.
// CHECK-LABEL: func.func @codes
// CHECK: moe.finalize_allreduce_fusion
// CHECK-SAME: tensor<?x2xi32>) workspace
// CHECK-SAME: #moe.host>) quant_out(%{{[^ ]*}} : tensor<?x16xi8>) scale_out(%{{[^ ]*}} : tensor<?x4xf8E4M3FN>) context
// CHECK-SAME: {hidden_size = 32 : i64, layout_code = "128x4", quant_format = "nvfp4", rms_eps = 1.000000e-05 : f64, scale_factor = 2.500000e+00 : f64}
func.func @codes(%r: tensor<?x32xbf16>, %g: tensor<32xbf16>, %x: tensor<?x32xbf16>, %i: tensor<?x2xi32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
    %v: tensor<?x16xi8>, %c: tensor<?x4xf8E4M3FN>, %ctx: !moe.context) -> (tensor<?x16xi8>, tensor<?x4xf8E4M3FN>) {
  %0:2 = moe.finalize_allreduce_fusion residual_in(%r : tensor<?x32xbf16>) norm_weight(%g : tensor<32xbf16>) rows(%x, %i : tensor<?x32xbf16>, tensor<?x2xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    quant_out(%v : tensor<?x16xi8>) scale_out(%c : tensor<?x4xf8E4M3FN>) context(%ctx)
    {hidden_size = 32 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4", layout_code = "128x4", scale_factor = 2.5 : f64} -> tensor<?x16xi8>, tensor<?x4xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x16xi8>, tensor<?x4xf8E4M3FN>
}

// On memrefs, with all parameters; the residual is updated where it is.
// CHECK-LABEL: func.func @memrefs
// CHECK: moe.finalize_allreduce_fusion residual_in(%[[R:[^ ]*]] : memref<5x24xf16>)
// CHECK-SAME: residual_out(%[[R]] : memref<5x24xf16>)
// CHECK-SAME: {fp32_acc = true, hidden_size = 24 : i64, launch_with_pdl = true, rms_eps = 0.000000e+00 : f64, routed_scaling_factor = 2.500000e+00 : f64, strategy = "two_shot", weight_bias = 1.000000e+00 : f64, world_size = 16 : i64}
// CHECK-NOT: ->
func.func @memrefs(%r: memref<5x24xf16>, %g: memref<24xf16>, %x: memref<0x24xf16>, %i: memref<5x3xi32>, %w: memref<5x3xbf16>, %t: memref<5x24xf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x24xf16>) norm_weight(%g : memref<24xf16>) rows(%x, %i : memref<0x24xf16>, memref<5x3xi32>)
    expert_scale_factor(%w : memref<5x3xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : memref<5x24xf16>) context(%ctx) {hidden_size = 24 : i64, rms_eps = 0.0 : f64, routed_scaling_factor = 2.5 : f64, weight_bias = 1.0 : f64,
    fp32_acc = true, launch_with_pdl = true, backend = "trtllm", strategy = "two_shot", world_size = 16 : i64}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x24xf16>) norm_weight(%g : memref<24xf16>) rows(%x, %i : memref<0x24xf16>, memref<5x3xi32>)
    shared_expert_output(%t : memref<5x24xf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : memref<5x24xf16>) context(%ctx) {hidden_size = 24 : i64, rms_eps = 0.0 : f64}
  return
}

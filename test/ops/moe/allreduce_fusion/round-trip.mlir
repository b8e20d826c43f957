// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @all
// CHECK: moe.allreduce_fusion residual_in(%{{[^ ]*}} : tensor<?x16xbf16>) rms_gamma(%{{[^ ]*}} : tensor<16xbf16>)
// CHECK-SAME: active_experts(%{{[^ ]*}}, %{{[^ ]*}} : tensor<?x?x16xbf16>, tensor<?x?xf32>) device_num_experts(%{{[^ ]*}} : tensor<1xi32>)
// CHECK-SAME: token_input(%{{[^ ]*}} : tensor<?x16xbf16>) workspace(%{{[^ ]*}}, %{{[^ ]*}} : memref<?xi8>, memref<16xi64, #moe.host>)
// CHECK-SAME: allreduce_out(%{{[^ ]*}} : tensor<?x16xbf16>) residual_out(%{{[^ ]*}} : tensor<?x16xbf16>) norm_out(%{{[^ ]*}} : tensor<?x16xbf16>)
// CHECK-SAME: context(%{{[^)]*}}) {hidden_size = 16 : i64, rms_eps = 1.000000e-05 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
func.func @all(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %n: tensor<1xi32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %y: tensor<?x16xbf16>, %z: tensor<?x16xbf16>, %m: tensor<?x16xbf16>, %ctx: !moe.context)
    -> (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:3 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>) device_num_experts(%n : tensor<1xi32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : tensor<?x16xbf16>) residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1, %0#2 : tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
}

// Each destination alone, and no experts at all.
// CHECK-LABEL: func.func @one
// CHECK: moe.allreduce_fusion
// CHECK-SAME: active_experts(%{{[^ ]*}}, %{{[^ ]*}} : tensor<0x?x16xbf16>, tensor<0x?xf32>) token_input
// CHECK-SAME: #moe.host>) allreduce_out(%{{[^ ]*}} : tensor<?x16xbf16>) context
// CHECK: moe.allreduce_fusion
// CHECK-SAME: #moe.host>) residual_out(%{{[^ ]*}} : tensor<?x16xbf16>) context
// CHECK: moe.allreduce_fusion
// CHECK-SAME: #moe.host>) norm_out(%{{[^ ]*}} : tensor<?x16xbf16>) context
func.func @one(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<0x?x16xbf16>, %s: tensor<0x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %y: tensor<?x16xbf16>, %z: tensor<?x16xbf16>, %m: tensor<?x16xbf16>, %ctx: !moe.context)
    -> (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<0x?x16xbf16>, tensor<0x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  %1 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<0x?x16xbf16>, tensor<0x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%z : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  %2 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<0x?x16xbf16>, tensor<0x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  return %0, %1, %2 : tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
}

// On memrefs, with all parameters; the residual is updated where it is.
// CHECK-LABEL: func.func @memrefs
// CHECK: moe.allreduce_fusion residual_in(%[[R:[^ ]*]] : memref<5x24xf16>)
// CHECK-SAME: memref<3x5x24xf16>, memref<3x5xbf16>
// CHECK-SAME: residual_out(%[[R]] : memref<5x24xf16>)
// CHECK-SAME: {fp32_acc = true, hidden_size = 24 : i64, launch_with_pdl = true, rms_eps = 0.000000e+00 : f64, weight_bias = 1.000000e+00 : f64, world_size = 16 : i64}
// CHECK-NOT: ->
func.func @memrefs(%r: memref<5x24xf16>, %g: memref<24xf16>, %x: memref<3x5x24xf16>, %s: memref<3x5xbf16>, %n: memref<1xui32>, %t: memref<5x24xf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.allreduce_fusion residual_in(%r : memref<5x24xf16>) rms_gamma(%g : memref<24xf16>) active_experts(%x, %s : memref<3x5x24xf16>, memref<3x5xbf16>) device_num_experts(%n : memref<1xui32>)
    token_input(%t : memref<5x24xf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : memref<5x24xf16>) context(%ctx) {hidden_size = 24 : i64, rms_eps = 0.0 : f64, weight_bias = 1.0 : f64, fp32_acc = true, launch_with_pdl = true, backend = "trtllm", world_size = 16 : i64}
  return
}

// Codes and scales of the norm, which need not be there itself.
// CHECK-LABEL: func.func @codes
// CHECK: moe.allreduce_fusion
// CHECK-SAME: #moe.host>) quant_out(%{{[^ ]*}} : tensor<?x16xi8>) scale_out(%{{[^ ]*}} : tensor<?x4xf8E4M3FN>) context
// CHECK-SAME: {hidden_size = 32 : i64, layout_code = "8x4", quant_format = "nvfp4", rms_eps = 1.000000e-05 : f64, scale_factor = 2.500000e+00 : f64, strategy = "two_shot"}
// CHECK: moe.allreduce_fusion
// CHECK-SAME: residual_out(%{{[^ ]*}} : tensor<?x32xbf16>) norm_out(%{{[^ ]*}} : tensor<?x32xbf16>) quant_out(%{{[^ ]*}} : tensor<?x32xf8E4M3FN>) context
// CHECK-SAME: {hidden_size = 32 : i64, quant_format = "fp8_tensor", rms_eps = 1.000000e-05 : f64, strategy = "one_shot"}
func.func @codes(%r: tensor<?x32xbf16>, %g: tensor<32xbf16>, %x: tensor<0x?x32xbf16>, %s: tensor<0x?xf32>, %t: tensor<?x32xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %z: tensor<?x32xbf16>, %m: tensor<?x32xbf16>, %v: tensor<?x16xi8>, %c: tensor<?x4xf8E4M3FN>,
    %w: tensor<?x32xf8E4M3FN>, %ctx: !moe.context) -> (tensor<?x16xi8>, tensor<?x4xf8E4M3FN>, tensor<?x32xbf16>, tensor<?x32xbf16>, tensor<?x32xf8E4M3FN>) {
  %0:2 = moe.allreduce_fusion residual_in(%r : tensor<?x32xbf16>) rms_gamma(%g : tensor<32xbf16>) active_experts(%x, %s : tensor<0x?x32xbf16>, tensor<0x?xf32>)
    token_input(%t : tensor<?x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    quant_out(%v : tensor<?x16xi8>) scale_out(%c : tensor<?x4xf8E4M3FN>) context(%ctx)
    {hidden_size = 32 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4", layout_code = "8x4", scale_factor = 2.5 : f64, strategy = "two_shot"} -> tensor<?x16xi8>, tensor<?x4xf8E4M3FN>
  %1:3 = moe.allreduce_fusion residual_in(%r : tensor<?x32xbf16>) rms_gamma(%g : tensor<32xbf16>) active_experts(%x, %s : tensor<0x?x32xbf16>, tensor<0x?xf32>)
    token_input(%t : tensor<?x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%z : tensor<?x32xbf16>) norm_out(%m : tensor<?x32xbf16>) quant_out(%w : tensor<?x32xf8E4M3FN>) context(%ctx)
    {hidden_size = 32 : i64, rms_eps = 1.0e-5 : f64, quant_format = "fp8_tensor", strategy = "one_shot"} -> tensor<?x32xbf16>, tensor<?x32xbf16>, tensor<?x32xf8E4M3FN>
  return %0#0, %0#1, %1#0, %1#1, %1#2 : tensor<?x16xi8>, tensor<?x4xf8E4M3FN>, tensor<?x32xbf16>, tensor<?x32xbf16>, tensor<?x32xf8E4M3FN>
}

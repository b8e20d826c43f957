// RUN: moe-opt %s --cse --loop-invariant-code-motion --canonicalize --symbol-dce --cse | FileCheck %s

// Every rank must call it as often, in the same order: it is never removed, merged or moved, not even without tokens.
// CHECK-LABEL: func.func @stays
// CHECK: moe.allreduce_fusion
// CHECK-NEXT: moe.allreduce_fusion
// CHECK-NEXT: moe.initialize
// CHECK-NEXT: moe.allreduce_fusion
// CHECK-NEXT: return
func.func @stays(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %y: tensor<?x16xbf16>, %z: tensor<?x16xbf16>, %m: tensor<?x16xbf16>, %ctx: !moe.context) {
  %0:3 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : tensor<?x16xbf16>) residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
  %1:3 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : tensor<?x16xbf16>) residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 1 : i64}
  %2:3 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : tensor<?x16xbf16>) residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
  return
}

// CHECK-LABEL: func.func @no_tokens
// CHECK: moe.allreduce_fusion
// CHECK-NEXT: return
func.func @no_tokens(%r: tensor<0x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x0x16xbf16>, %s: tensor<?x0xf32>, %t: tensor<0x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<0x16xbf16>, %ctx: !moe.context) -> tensor<0x16xbf16> {
  %0 = moe.allreduce_fusion residual_in(%r : tensor<0x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x0x16xbf16>, tensor<?x0xf32>)
    token_input(%t : tensor<0x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : tensor<0x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<0x16xbf16>
  return %0 : tensor<0x16xbf16>
}

// CHECK-LABEL: func.func @in_loop
// CHECK-NOT: moe.allreduce_fusion
// CHECK: scf.for
// CHECK: moe.allreduce_fusion
// CHECK-NEXT: {{^ +[}]$}}
func.func @in_loop(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<?x16xbf16>, %k: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %k step %c1 {
    %0 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
      token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
      norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  }
  return
}

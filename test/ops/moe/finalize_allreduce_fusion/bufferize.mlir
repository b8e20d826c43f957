// RUN: moe-opt %s %bufferize | FileCheck %s

// The residual is updated in the caller's buffer, without a copy; the norm has the caller's destination.
// CHECK-LABEL: func.func @residual_in_place
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<?x16xbf16>,
// CHECK-SAME: %[[M:[a-z0-9]+]]: memref<?x16xbf16>, %[[CTX:[a-z0-9]+]]: !moe.context
// CHECK-NEXT: moe.finalize_allreduce_fusion residual_in(%[[R]] : {{.*}} residual_out(%[[R]] : memref<?x16xbf16>) norm_out(%[[M]] : memref<?x16xbf16>)
// CHECK-NEXT: return
func.func @residual_in_place(%r: tensor<?x16xbf16> {moe.role = "inout"}, %g: tensor<16xbf16>, %x: tensor<?x16xbf16>, %i: tensor<?x2xi32>, %w: tensor<?x2xf32>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<?x16xbf16>, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:2 = moe.finalize_allreduce_fusion residual_in(%r : tensor<?x16xbf16>) norm_weight(%g : tensor<16xbf16>) rows(%x, %i : tensor<?x16xbf16>, tensor<?x2xi32>)
    expert_scale_factor(%w : tensor<?x2xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x16xbf16>
}

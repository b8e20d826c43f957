// RUN: moe-opt %s %bufferize | FileCheck %s

// Destinations of the caller.
// CHECK-LABEL: func.func @destinations
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<?x16xbf16>,
// CHECK-SAME: %[[WS:[a-z0-9]+]]: memref<?xi8>, %[[INFO:[a-z0-9]+]]: memref<16xi64, #moe.host>, %[[Z:[a-z0-9]+]]: memref<?x16xbf16>, %[[M:[a-z0-9]+]]: memref<?x16xbf16>,
// CHECK-NEXT: moe.allreduce_fusion residual_in(%[[R]] : {{.*}} workspace(%[[WS]], %[[INFO]] : {{.*}} residual_out(%[[Z]] : memref<?x16xbf16>) norm_out(%[[M]] : memref<?x16xbf16>)
// CHECK-NEXT: return
func.func @destinations(%r: tensor<?x16xbf16>, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %z: tensor<?x16xbf16>, %m: tensor<?x16xbf16>, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:2 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%z : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x16xbf16>
}

// The residual is updated in the caller's buffer, without a copy.
// CHECK-LABEL: func.func @residual_in_place
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<?x16xbf16>,
// CHECK-NEXT: moe.allreduce_fusion residual_in(%[[R]] : {{.*}} residual_out(%[[R]] : memref<?x16xbf16>) norm_out
// CHECK-NEXT: return
func.func @residual_in_place(%r: tensor<?x16xbf16> {moe.role = "inout"}, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<?x16xbf16>, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:2 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : tensor<?x16xbf16>) norm_out(%m : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x16xbf16>
}

// That holds for the residual alone: the norm gets a buffer of its own. What is in it before, nobody reads, so that nothing is copied.
// CHECK-LABEL: func.func @norm_in_place
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<?x16xbf16>,
// CHECK: %[[NEW:.*]] = moe.allocate
// CHECK-NOT: linalg.copy
// CHECK: moe.allreduce_fusion residual_in(%[[R]] : {{.*}} norm_out(%[[NEW]] : memref<?x16xbf16>)
// CHECK: linalg.add ins(%[[NEW]], %[[NEW]]
func.func @norm_in_place(%r: tensor<?x16xbf16> {moe.role = "inout"}, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<?x16xbf16>, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %0 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%r : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  %1 = linalg.add ins(%0, %0 : tensor<?x16xbf16>, tensor<?x16xbf16>) outs(%m : tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return %1 : tensor<?x16xbf16>
}

// A residual that is read later stays.
// CHECK-LABEL: func.func @residual_is_read_later
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<?x16xbf16>,
// CHECK: %[[NEW:.*]] = moe.allocate
// CHECK: moe.allreduce_fusion residual_in(%[[R]] : {{.*}} residual_out(%[[NEW]] : memref<?x16xbf16>)
// CHECK: linalg.sub ins(%[[R]], %[[NEW]]
func.func @residual_is_read_later(%r: tensor<?x16xbf16> {moe.role = "inout"}, %g: tensor<16xbf16>, %x: tensor<?x?x16xbf16>, %s: tensor<?x?xf32>, %t: tensor<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<?x16xbf16>, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %0 = moe.allreduce_fusion residual_in(%r : tensor<?x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<?x?x16xbf16>, tensor<?x?xf32>)
    token_input(%t : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%r : tensor<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  %1 = linalg.sub ins(%r, %0 : tensor<?x16xbf16>, tensor<?x16xbf16>) outs(%m : tensor<?x16xbf16>) -> tensor<?x16xbf16>
  return %1 : tensor<?x16xbf16>
}

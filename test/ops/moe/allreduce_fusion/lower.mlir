// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_allreduce_fusion(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 11 are moert_moe_allreduce_fusion_params, 12 to 25 moert_moe_allreduce_fusion_args. Operands that are absent are NULL.

// CHECK-LABEL: func.func @allreduce_fusion
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK-DAG: %[[EPS:.*]] = arith.constant 4562254508917369340 : i64
// CHECK-DAG: %[[ONE:.*]] = arith.constant 4607182418800017408 : i64
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, hidden_size, rms_eps, weight_bias, fp32_acc, backend, strategy, quant_format, layout_code, scale_factor, launch_with_pdl, world_size
// CHECK: memref.store %c96_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c1]
// CHECK: memref.store %[[EPS]], %[[FRAME]][%c2]
// CHECK: memref.store %[[ONE]], %[[FRAME]][%c3]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c8]
// CHECK: memref.store %[[ONE]], %[[FRAME]][%c9]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c10]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c11]
// struct_size, residual_in, rms_gamma, active experts, scales, number of experts, token input, workspace, metainfo, five destinations
// CHECK: memref.store %c112_i64, %[[FRAME]][%c12]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c13]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c14]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c15]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c16]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c17]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c18]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c19]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c20]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c21]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c22]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c23]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c24]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c25]
// CHECK: call @moert_moe_allreduce_fusion(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @allreduce_fusion(%r: memref<?x16xbf16>, %g: memref<16xbf16>, %x: memref<?x?x16xbf16>, %s: memref<?x?xf32>, %t: memref<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<?x16xbf16>, %ctx: !moe.context) {
  moe.allreduce_fusion residual_in(%r : memref<?x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<?x?x16xbf16>, memref<?x?xf32>)
    token_input(%t : memref<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-3 : f64, weight_bias = 1.0 : f64, fp32_acc = true, launch_with_pdl = true, world_size = 4 : i64}
  return
}

// CHECK-LABEL: func.func @all_operands
// CHECK: %[[FRAME:.*]] = memref.alloca()
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c17]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c21]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c22]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c23]
func.func @all_operands(%r: memref<?x16xbf16>, %g: memref<16xbf16>, %x: memref<?x?x16xbf16>, %s: memref<?x?xf32>, %n: memref<1xi32>, %t: memref<?x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %y: memref<?x16xbf16>, %z: memref<?x16xbf16>, %m: memref<?x16xbf16>, %ctx: !moe.context) {
  moe.allreduce_fusion residual_in(%r : memref<?x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<?x?x16xbf16>, memref<?x?xf32>) device_num_experts(%n : memref<1xi32>)
    token_input(%t : memref<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%y : memref<?x16xbf16>) residual_out(%z : memref<?x16xbf16>) norm_out(%m : memref<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// GPU: call @moert_moe_finalize_allreduce_fusion(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})

// Words 0 to 12 are moert_moe_finalize_allreduce_fusion_params, 13 to 25 moert_moe_finalize_allreduce_fusion_args. Operands that are absent are NULL.

// CHECK-LABEL: func.func @finalize
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK-DAG: %[[EPS:.*]] = arith.constant 4562254508917369340 : i64
// CHECK-DAG: %[[ONE:.*]] = arith.constant 4607182418800017408 : i64
// CHECK-DAG: %[[TWO:.*]] = arith.constant 4611686018427387904 : i64
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, hidden_size, rms_eps, routed_scaling_factor, weight_bias, fp32_acc, backend, strategy, quant_format, layout_code, scale_factor, launch_with_pdl, world_size
// CHECK: memref.store %c104_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c1]
// CHECK: memref.store %[[EPS]], %[[FRAME]][%c2]
// CHECK: memref.store %[[TWO]], %[[FRAME]][%c3]
// CHECK: memref.store %{{.*}}, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c8]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c9]
// CHECK: memref.store %[[ONE]], %[[FRAME]][%c10]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c11]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c12]
// struct_size, residual_in, norm_weight, allreduce_in, indices, scales, shared output, workspace, metainfo, four destinations
// CHECK: memref.store %c104_i64, %[[FRAME]][%c13]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c14]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c15]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c16]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c17]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c18]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c19]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c20]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c21]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c22]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c23]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c24]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c25]
// CHECK: call @moert_moe_finalize_allreduce_fusion(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @finalize(%r: memref<?x16xbf16>, %g: memref<16xbf16>, %x: memref<?x16xbf16>, %i: memref<?x2xi32>, %w: memref<?x2xf32>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<?x16xbf16>, %ctx: !moe.context) {
  moe.finalize_allreduce_fusion residual_in(%r : memref<?x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<?x16xbf16>, memref<?x2xi32>)
    expert_scale_factor(%w : memref<?x2xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<?x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-3 : f64, routed_scaling_factor = 2.0 : f64, fp32_acc = true, launch_with_pdl = true, world_size = 4 : i64}
  return
}

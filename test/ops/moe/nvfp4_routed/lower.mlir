// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_nvfp4_routed(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 6 are moert_moe_nvfp4_routed_params, 7 to 34 moert_moe_nvfp4_routed_args. Inputs that are absent are NULL.

// CHECK-LABEL: func.func @routed
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, top_k, block_m, the bits of 2.5, accumulate, first_expert, num_experts
// CHECK: memref.store %c56_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c4612811918334230528_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c12_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c64_i64, %[[FRAME]][%c6]
// struct_size, eleven inputs, of the prepared ones that of the second product's scales, five destinations
// CHECK: memref.store %c224_i64, %[[FRAME]][%c7]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c8]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c9]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c10]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c11]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c12]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c13]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c14]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c15]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c16]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c17]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c18]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c19]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c20]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c21]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c22]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c23]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c24]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c25]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c26]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c27]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c28]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c29]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c30]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c31]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c32]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c33]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c34]
// CHECK: call @moert_moe_nvfp4_routed(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @routed(%x: memref<?x128xi8>, %xs: memref<?x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<?x2xi32>,
    %w: memref<?x2xf32>, %w2s: memref<16x8x128xf8E4M3FN>, %sorted: memref<?xi32>, %experts: memref<?xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<?x256xbf16>, %ctx: !moe.context) {
  moe.nvfp4_routed hidden_states(%x, %xs : memref<?x128xi8>, memref<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<?x2xi32>, memref<?x2xf32>)
    w2_scale_prepared(%w2s : memref<16x8x128xf8E4M3FN>)
    plan(%sorted, %experts, %padded, %cumsum : memref<?xi32>, memref<?xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<?x256xbf16>) context(%ctx) {top_k = 2 : i64, block_m = 16 : i64, routed_scaling_factor = 2.5 : f64, accumulate = false,
      first_expert = 12 : i64, num_experts = 64 : i64}
  return
}

// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device the same function serves: there is no kernel to choose.
// GPU: %[[NO_KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// GPU: call @moert_moe_initialize(%{{.*}}, %{{.*}}, %[[NO_KERNEL]], %{{.*}})

// Words 0 to 5 are moert_moe_initialize_params, 6 to 8 moert_moe_initialize_args. Host memory is memory.

// CHECK-LABEL: func.func @initialize
// CHECK-SAME: (%{{.*}}: memref<?xi8>, %{{.*}}: memref<16xi64>, %[[CTX:.*]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// CHECK: memref.store %c48_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c32_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c24_i64, %[[FRAME]][%c6]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c7]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c8]
// CHECK: call @moert_moe_initialize(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @initialize(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

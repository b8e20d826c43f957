// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device the same function serves: there is no kernel to choose.
// GPU: %[[NO_KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// GPU: call @moert_moe_workspace_size(%{{.*}}, %{{.*}}, %[[NO_KERNEL]], %{{.*}})

// Words 0 to 5 are moert_moe_workspace_size_params, 6 and 7 moert_moe_workspace_size_args, 8 the size.

// CHECK-LABEL: func.func @workspace_size
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<9xi64>
// CHECK: memref.store %c48_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c32_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c6]
// CHECK: %[[ADDRESS:.*]] = arith.addi %{{.*}}, %c64_i64
// CHECK: memref.store %[[ADDRESS]], %[[FRAME]][%c7]
// CHECK: call @moert_moe_workspace_size
// CHECK: cf.cond_br %{{.*}}, ^[[REST:.*]], ^
// The number is read where the call has succeeded.
// CHECK: ^[[REST]]:
// CHECK: %[[SIZE:.*]] = memref.load %[[FRAME]][%c8]
// CHECK: memref.store %[[SIZE]], %{{.*}}[%c0] : memref<1xi64>
func.func @workspace_size(%bytes: memref<1xi64, #moe.host>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %size = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64,
                                            eplb_stats_num_experts = 5 : i64, ep_size = 4 : i64}
  %number = arith.index_cast %size : index to i64
  memref.store %number, %bytes[%c0] : memref<1xi64, #moe.host>
  return
}

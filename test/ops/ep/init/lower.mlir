// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device the same function serves: there is no kernel to choose.
// GPU: %[[NO_KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// GPU: call @moert_ep_init(%{{.*}}, %{{.*}}, %[[NO_KERNEL]], %{{.*}})

// Words 0 to 10 are moert_ep_init_params, 11 to 15 moert_ep_init_args; the tensors follow.

// CHECK-LABEL: func.func @init
// CHECK-SAME: (%[[C0:[^:]*]]: memref<360xi32>, %{{[^:]*}}: memref<360xi32>, %{{[^:]*}}: memref<2x3xi64>, %{{[^:]*}}: memref<1xi32>, %[[CTX:[^:]*]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<50xi64>
// struct_size, hidden_size, top_k, n_experts, max_token_per_rank, n_gpus_per_node, n_nodes, dispatch_dtype, combine_dtype f16, dispatch_scale_dtype, dispatch_fmt_str
// CHECK: memref.store %c88_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c8]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c9]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c10]
// struct_size, the addresses of the four tensors
// CHECK: memref.store %c40_i64, %[[FRAME]][%c11]
// CHECK: %[[TENSOR:.*]] = arith.addi %{{.*}}, %c128_i64
// CHECK: memref.store %[[TENSOR]], %[[FRAME]][%c12]
// CHECK: %[[STATUS:.*]] = call @moert_ep_init(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^{{.*}}(%[[STATUS]] : i32)
func.func @init(%c0: memref<360xi32>, %c1: memref<360xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<360xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>) my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, combine_dtype = "f16"}
  return
}

// RUN: moe-opt %s --split-input-file --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --split-input-file --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_ep_combine_skip_a2a(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 10 are moert_ep_combine_skip_a2a_params, 11 to 20 moert_ep_combine_skip_a2a_args; the tensors follow.

// CHECK-LABEL: func.func @combine
// CHECK-SAME: %[[CTX:[^:]*]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<103xi64>
// struct_size, hidden_size, top_k, n_experts, max_token_per_rank, n_gpus_per_node, n_nodes, fused_shared_expert, skip_a2a, allreduce_world_size,
// has_epilogue_fusion
// CHECK: memref.store %c88_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c8]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c9]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c10]
// struct_size, the addresses of the nine tensors: output_tokens is the first
// CHECK: memref.store %c80_i64, %[[FRAME]][%c11]
// CHECK: %[[TENSOR:.*]] = arith.addi %{{.*}}, %c168_i64
// CHECK: memref.store %[[TENSOR]], %[[FRAME]][%c12]
// CHECK: call @moert_ep_combine_skip_a2a(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
func.func @combine(%c: memref<360xi32>, %x: memref<24x16xbf16>, %sources: memref<24x2xi32>, %s: memref<2xi64, #moe.host>, %w: memref<?x2xf32>, %ids: memref<?x2xi32>,
                   %out: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<24x16xbf16>) src_info(%sources : memref<24x2xi32>)
    buffers(%s, %s, %s : memref<2xi64, #moe.host>, memref<2xi64, #moe.host>, memref<2xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 2 : i64}
  return
}

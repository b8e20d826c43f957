// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_ep_dispatch(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 9 are moert_ep_dispatch_params, 10 to 20 moert_ep_dispatch_args; the tensors follow.

// CHECK-LABEL: func.func @dispatch
// CHECK-SAME: %[[CTX:[^:]*]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<109xi64>
// struct_size, hidden_size, top_k, n_experts, max_token_per_rank, n_gpus_per_node, n_nodes, fused_shared_expert, skip_a2a, allreduce_world_size
// CHECK: memref.store %c80_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c8]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c9]
// struct_size, the addresses of the ten tensors: output_tokens is the first
// CHECK: memref.store %c88_i64, %[[FRAME]][%c10]
// CHECK: %[[TENSOR:.*]] = arith.addi %{{.*}}, %c168_i64
// CHECK: memref.store %[[TENSOR]], %[[FRAME]][%c11]
// CHECK: call @moert_ep_dispatch(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
func.func @dispatch(%c: memref<360xi32>, %x: memref<?x16xbf16>, %ids: memref<?x2xi32>, %s: memref<2xi64, #moe.host>, %rows: memref<24x16xbf16>, %offsets: memref<6xi32>,
                    %experts: memref<5xi32>, %sources: memref<24x2xi32>, %ctx: !moe.context) {
  ep.dispatch counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) topk_ids(%ids : memref<?x2xi32>)
    buffers(%s, %s, %s : memref<2xi64, #moe.host>, memref<2xi64, #moe.host>, memref<2xi64, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : memref<24x16xbf16>, memref<6xi32>, memref<5xi32>, memref<24x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, skip_a2a = true, fused_shared_expert = true,
     allreduce_world_size = 2 : i64}
  return
}

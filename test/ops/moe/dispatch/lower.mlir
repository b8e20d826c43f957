// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_dispatch(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 6 are moert_moe_dispatch_params, 7 to 22 moert_moe_dispatch_args.

// CHECK-LABEL: func.func @dispatch
// CHECK-SAME: %[[MAX:[a-z0-9]+]]: index,
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, top_k, n_experts, layout, max_sms, enable_pdl, ep_size
// CHECK: memref.store %c56_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c9_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c6]
// struct_size, topk_ids, no topk_weights, 2 payloads, no eplb_local_stats, workspace, metainfo, runtime_max_tokens_per_rank, no active_rank_mask,
// 2 recv, recv_counts, no offsets, no eplb_gathered_stats, the result
// CHECK: memref.store %c128_i64, %[[FRAME]][%c7]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c8]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c9]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c10]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c11]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c12]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c13]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c14]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c15]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c16]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c17]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c18]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c19]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c20]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c21]
// CHECK: memref.store %[[RESULT:.*]], %[[FRAME]][%c22]
// CHECK: call @moert_moe_dispatch(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br %{{.*}}, ^[[REST:.*]], ^
// CHECK: ^[[REST]]:
// CHECK: %[[OFFSET:.*]] = memref.load %[[FRAME]][
// CHECK: memref.store %[[OFFSET]]
func.func @dispatch(%ids: memref<?x2xi32>, %x: memref<?x16xbf16>, %scales: memref<?xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index,
                    %r0: memref<4x?x16xbf16>, %r1: memref<4x?xf32>, %counts: memref<4xi32>, %result: memref<1xi64, #moe.host>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %offset = moe.dispatch topk_ids(%ids : memref<?x2xi32>) payloads(%x, %scales : memref<?x16xbf16>, memref<?xf32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%r0, %r1 : memref<4x?x16xbf16>, memref<4x?xf32>)
    recv_counts(%counts : memref<4xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 9 : i64, ep_size = 4 : i64} -> (i64)
  memref.store %offset, %result[%c0] : memref<1xi64, #moe.host>
  return
}

// The limits of a call on GPUs, and the ranks that take part.
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: %[[MASK:[a-z0-9]+]]: i64, %{{[a-z0-9]+}}: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// CHECK: memref.store %c1_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c1024_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c5]
// topk_weights, 1 payload, eplb_local_stats, active_rank_mask, 1 recv, no recv_counts, offsets, eplb_gathered_stats
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c9]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c10]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c12]
// CHECK: memref.store %[[MASK]], %[[FRAME]][%c16]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c17]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c19]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c20]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c21]
// CHECK: call @moert_moe_dispatch
func.func @grouped(%ids: memref<?x2xi32>, %w: memref<?x2xf32>, %x: memref<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i64,
                   %rows: memref<?x16xbf16>, %offsets: memref<?xi32>, %stats: memref<8xi32>, %all: memref<?x8xi32>, %mask: i64, %ctx: !moe.context) {
  moe.dispatch topk_ids(%ids : memref<?x2xi32>) topk_weights(%w : memref<?x2xf32>) payloads(%x : memref<?x16xbf16>) eplb_stats(%stats : memref<8xi32>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) active_ranks(%mask) outs(%rows : memref<?x16xbf16>) offsets(%offsets : memref<?xi32>)
    eplb_gathered(%all : memref<?x8xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64, layout = "expert_grouped", max_sms = 1024 : i64, enable_pdl = false} -> (i64)
  return
}

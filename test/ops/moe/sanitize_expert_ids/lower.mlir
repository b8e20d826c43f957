// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_sanitize_expert_ids(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 2 are moert_moe_sanitize_expert_ids_params, 3 to 6 moert_moe_sanitize_expert_ids_args.

// CHECK-LABEL: func.func @sanitize_expert_ids
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, invalid_expert_id, ep_size
// CHECK: memref.store %c24_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c-3_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c2]
// struct_size, workspace, metainfo, expert_ids
// CHECK: memref.store %c32_i64, %[[FRAME]][%c3]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c4]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c5]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c6]
// CHECK: call @moert_moe_sanitize_expert_ids(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @sanitize_expert_ids(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x?x2xi32>, %ctx: !moe.context) {
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x?x2xi32>) context(%ctx) {invalid_expert_id = -3 : i64, ep_size = 4 : i64}
  return
}

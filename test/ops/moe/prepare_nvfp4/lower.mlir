// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_prepare_nvfp4(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 and 1 are moert_moe_prepare_nvfp4_params, 2 to 5 moert_moe_prepare_nvfp4_args. Scales are NULL where there are none.

// CHECK-LABEL: func.func @prepare
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, layout; struct_size, source, scales, prepared
// CHECK: memref.store %c16_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c32_i64, %[[FRAME]][%c2]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c5]
// CHECK: call @moert_moe_prepare_nvfp4(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @prepare(%source: memref<?x256x16xf8E4M3FN>, %prepared: memref<?x16x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<?x256x16xf8E4M3FN>) outs(%prepared : memref<?x16x128xi8>) context(%ctx) {layout = "w1_scales_interleaved"}
  return
}

// CHECK-LABEL: func.func @fragments
// CHECK: memref.store %c16_i64, %[[FRAME:.*]][%c0]
// CHECK: memref.store %c9_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c32_i64, %[[FRAME]][%c2]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c3]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c4]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c5]
// CHECK: call @moert_moe_prepare_nvfp4
func.func @fragments(%source: memref<?x128x64xi8>, %scales: memref<?x128x8xi8>, %prepared: memref<?x36x128xi8>, %ctx: !moe.context) {
  moe.prepare_nvfp4 source(%source : memref<?x128x64xi8>) scales(%scales : memref<?x128x8xi8>) outs(%prepared : memref<?x36x128xi8>) context(%ctx) {layout = "w1_fragments"}
  return
}

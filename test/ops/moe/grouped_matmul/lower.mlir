// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_grouped_matmul(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 4 are moert_moe_grouped_matmul_params, 5 to 12 moert_moe_grouped_matmul_args.

// CHECK-LABEL: func.func @grouped_matmul
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, activation, the bits of 1.702 and of 7.0, accumulator
// CHECK: memref.store %c40_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c4610343945738431496_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c4619567317775286272_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// struct_size, rows, offsets, weights, no bias, row_ids, no row_weights, out
// CHECK: memref.store %c64_i64, %[[FRAME]][%c5]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c6]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c7]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c8]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c9]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c10]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c11]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c12]
// CHECK: call @moert_moe_grouped_matmul(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @grouped_matmul(%rows: memref<?x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_ids: memref<9xi32>, %out: memref<9x16xf32>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<?x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_ids(%row_ids : memref<9xi32>) outs(%out : memref<9x16xf32>) context(%ctx) {activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64}
  return
}

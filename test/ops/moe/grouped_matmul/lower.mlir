// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_grouped_matmul(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 5 are moert_moe_grouped_matmul_params, 6 to 15 moert_moe_grouped_matmul_args.

// CHECK-LABEL: func.func @grouped_matmul
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, activation, the bits of 1.702 and of 7.0, accumulator, weight_format
// CHECK: memref.store %c48_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c4610343945738431496_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c4619567317775286272_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c5]
// struct_size, rows, offsets, weights, no weight_scales, no weight_global_scale, no bias, row_ids, no row_weights, out
// CHECK: memref.store %c80_i64, %[[FRAME]][%c6]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c7]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c8]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c9]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c10]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c11]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c12]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c13]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c14]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c15]
// CHECK: call @moert_moe_grouped_matmul(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @grouped_matmul(%rows: memref<?x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>, %row_ids: memref<9xi32>, %out: memref<9x16xf32>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<?x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>)
    row_ids(%row_ids : memref<9xi32>) outs(%out : memref<9x16xf32>) context(%ctx) {activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64}
  return
}

// Weights of 4 bits: weight_format is mxfp4, its scales are there, a factor is not.
// CHECK-LABEL: func.func @codes
// CHECK: %[[CODES:.*]] = memref.alloca()
// CHECK: memref.store %c2_i64, %[[CODES]][%c5]
// CHECK: memref.store %{{[0-9]+}}, %[[CODES]][%c10]
// CHECK: memref.store %c0_i64, %[[CODES]][%c11]
func.func @codes(%rows: memref<?x64xbf16>, %offsets: memref<5xi32>, %weights: memref<4x32x32xi8>, %scales: memref<4x32x2xf8E8M0FNU>, %out: memref<?x32xbf16>, %ctx: !moe.context) {
  moe.grouped_matmul rows(%rows : memref<?x64xbf16>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x32xi8>)
    scales(%scales : memref<4x32x2xf8E8M0FNU>) outs(%out : memref<?x32xbf16>) context(%ctx) {weight_format = "mxfp4"}
  return
}

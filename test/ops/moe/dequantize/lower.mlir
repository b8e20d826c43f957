// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_dequantize(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 3 are moert_moe_dequantize_params, 4 to 8 moert_moe_dequantize_args; the tensors follow.

// CHECK-LABEL: func.func @dequantize
// CHECK-SAME: (%[[FIRST:[a-z0-9]+]]: memref<5x64xf8E4M3FN, strided<[192, 1], offset: 16>>
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<39xi64>
// CHECK: %[[DATA:.*]] = memref.extract_aligned_pointer_as_index %[[FIRST]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[DATA]]
// CHECK: %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %[[FRAME]]
// CHECK: %[[BASE:.*]] = arith.index_cast %[[INDEX]]
// struct_size, format, scale_layout, packing
// CHECK: memref.store %c32_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c3_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c3_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c3]
// struct_size, values, scales, no global_scale, out
// CHECK: memref.store %c40_i64, %[[FRAME]][%c4]
// CHECK: %[[T5:.*]] = arith.addi %[[BASE]], %c72_i64
// CHECK: memref.store %[[T5]], %[[FRAME]][%c5]
// CHECK: %[[T6:.*]] = arith.addi %[[BASE]], %c152_i64
// CHECK: memref.store %[[T6]], %[[FRAME]][%c6]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c7]
// CHECK: %[[T8:.*]] = arith.addi %[[BASE]], %c232_i64
// CHECK: memref.store %[[T8]], %[[FRAME]][%c8]
// `values`: data, device (CPU), rank 2 and f8E4M3FN = 2 | 10 << 32 | 8 << 40 | 1 << 48, shape, strides, byte_offset; then the sizes and strides themselves
// CHECK: memref.store %[[WORD]], %[[FRAME]][%c9]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c10]
// CHECK: memref.store %c290314019405826_i64, %[[FRAME]][%c11]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c14]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c15]
// CHECK: memref.store %c64_i64, %[[FRAME]][%c16]
// CHECK: memref.store %c192_i64, %[[FRAME]][%c17]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c18]
// f32 = 2 | 2 << 32 | 32 << 40 | 1 << 48, f16 = 2 | 2 << 32 | 16 << 40 | 1 << 48
// CHECK: memref.store %c316667938734082_i64, %[[FRAME]][%c21]
// CHECK: memref.store %c299075752689666_i64, %[[FRAME]][%c31]
// CHECK: %[[PARAMS:.*]] = llvm.inttoptr %[[BASE]]
// CHECK: %[[ADDRESS:.*]] = arith.addi %[[BASE]], %c32_i64
// CHECK: %[[ARGS:.*]] = llvm.inttoptr %[[ADDRESS]]
// CHECK: %[[STATUS:.*]] = call @moert_moe_dequantize(%[[PARAMS]], %[[ARGS]], %[[KERNEL]], %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK: arith.cmpi eq, %[[STATUS]], %c0_i32
func.func @dequantize(%v: memref<5x64xf8E4M3FN, strided<[192, 1], offset: 16>>, %s: memref<1x8xf32>, %y: memref<5x64xf16>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<5x64xf8E4M3FN, strided<[192, 1], offset: 16>>) scales(%s : memref<1x8xf32>) outs(%y : memref<5x64xf16>) context(%ctx)
    {format = "fp8_block", scale_layout = "transposed"}
  return
}

// A global scale, but no scales.
// CHECK-LABEL: func.func @no_scales
// CHECK-SAME: (%[[FIRST:[a-z0-9]+]]: memref<?x64xi8>
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<37xi64>
// CHECK: %[[DATA:.*]] = memref.extract_aligned_pointer_as_index %[[FIRST]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[DATA]]
// CHECK: %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %[[FRAME]]
// CHECK: %[[BASE:.*]] = arith.index_cast %[[INDEX]]
// CHECK: memref.store %c32_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c40_i64, %[[FRAME]][%c4]
// CHECK: %[[T5:.*]] = arith.addi %[[BASE]], %c72_i64
// CHECK: memref.store %[[T5]], %[[FRAME]][%c5]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c6]
// CHECK: %[[T7:.*]] = arith.addi %[[BASE]], %c152_i64
// CHECK: memref.store %[[T7]], %[[FRAME]][%c7]
// CHECK: %[[T8:.*]] = arith.addi %[[BASE]], %c216_i64
// CHECK: memref.store %[[T8]], %[[FRAME]][%c8]
// CHECK: %[[PARAMS:.*]] = llvm.inttoptr %[[BASE]]
// CHECK: %[[ADDRESS:.*]] = arith.addi %[[BASE]], %c32_i64
// CHECK: %[[ARGS:.*]] = llvm.inttoptr %[[ADDRESS]]
// CHECK: %[[STATUS:.*]] = call @moert_moe_dequantize(%[[PARAMS]], %[[ARGS]], %[[KERNEL]], %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK: arith.cmpi eq, %[[STATUS]], %c0_i32
func.func @no_scales(%v: memref<?x64xi8>, %g: memref<1xf32>, %y: memref<?x64xf32>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<?x64xi8>) global_scale(%g : memref<1xf32>) outs(%y : memref<?x64xf32>) context(%ctx) {format = "fp8_tensor"}
  return
}

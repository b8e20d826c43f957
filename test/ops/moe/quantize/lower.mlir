// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_quantize(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 5 are moert_moe_quantize_params, 6 to 10 moert_moe_quantize_args; the tensors follow.

// CHECK-LABEL: func.func @quantize
// CHECK-SAME: (%[[FIRST:[a-z0-9]+]]: memref<5x64xbf16, strided<[192, 1], offset: 8>>
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<41xi64>
// CHECK: %[[DATA:.*]] = memref.extract_aligned_pointer_as_index %[[FIRST]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[DATA]]
// CHECK: %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %[[FRAME]]
// CHECK: %[[BASE:.*]] = arith.index_cast %[[INDEX]]
// struct_size, format, scale_layout, packing, scale_rounding, fast_reciprocal
// CHECK: memref.store %c48_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// struct_size, input, no global_scale, values, scales
// CHECK: memref.store %c40_i64, %[[FRAME]][%c6]
// CHECK: %[[T7:.*]] = arith.addi %[[BASE]], %c88_i64
// CHECK: memref.store %[[T7]], %[[FRAME]][%c7]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c8]
// CHECK: %[[T9:.*]] = arith.addi %[[BASE]], %c168_i64
// CHECK: memref.store %[[T9]], %[[FRAME]][%c9]
// CHECK: %[[T10:.*]] = arith.addi %[[BASE]], %c248_i64
// CHECK: memref.store %[[T10]], %[[FRAME]][%c10]
// `input`: data, device (CPU), rank 2 and bf16 = 2 | 4 << 32 | 16 << 40 | 1 << 48, shape, strides, byte_offset (8 elements of 2 bytes); then the sizes
// and strides themselves
// CHECK: memref.store %[[WORD]], %[[FRAME]][%c11]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c12]
// CHECK: memref.store %c299084342624258_i64, %[[FRAME]][%c13]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c16]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c17]
// CHECK: memref.store %c64_i64, %[[FRAME]][%c18]
// CHECK: memref.store %c192_i64, %[[FRAME]][%c19]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c20]
// i8 = 2 | 0 << 32 | 8 << 40 | 1 << 48, f8E4M3FN = 2 | 10 << 32 | 8 << 40 | 1 << 48
// CHECK: memref.store %c290271069732866_i64, %[[FRAME]][%c23]
// CHECK: memref.store %c290314019405826_i64, %[[FRAME]][%c33]
// CHECK: %[[PARAMS:.*]] = llvm.inttoptr %[[BASE]]
// CHECK: %[[ADDRESS:.*]] = arith.addi %[[BASE]], %c48_i64
// CHECK: %[[ARGS:.*]] = llvm.inttoptr %[[ADDRESS]]
// CHECK: %[[STATUS:.*]] = call @moert_moe_quantize(%[[PARAMS]], %[[ARGS]], %[[KERNEL]], %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK: arith.cmpi eq, %[[STATUS]], %c0_i32
func.func @quantize(%x: memref<5x64xbf16, strided<[192, 1], offset: 8>>, %v: memref<5x32xi8>, %s: memref<8x4xf8E4M3FN>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<5x64xbf16, strided<[192, 1], offset: 8>>) outs(%v : memref<5x32xi8>) scales(%s : memref<8x4xf8E4M3FN>) context(%ctx)
    {format = "nvfp4", scale_layout = "8x4", packing = "mega", fast_reciprocal = true}
  return
}

// A global scale, but no scales.
// CHECK-LABEL: func.func @no_scales
// CHECK-SAME: (%[[FIRST:[a-z0-9]+]]: memref<?x64xf32>
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<39xi64>
// CHECK: %[[DATA:.*]] = memref.extract_aligned_pointer_as_index %[[FIRST]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[DATA]]
// CHECK: %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %[[FRAME]]
// CHECK: %[[BASE:.*]] = arith.index_cast %[[INDEX]]
// CHECK: memref.store %c48_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c40_i64, %[[FRAME]][%c6]
// CHECK: %[[T7:.*]] = arith.addi %[[BASE]], %c88_i64
// CHECK: memref.store %[[T7]], %[[FRAME]][%c7]
// CHECK: %[[T8:.*]] = arith.addi %[[BASE]], %c168_i64
// CHECK: memref.store %[[T8]], %[[FRAME]][%c8]
// CHECK: %[[T9:.*]] = arith.addi %[[BASE]], %c232_i64
// CHECK: memref.store %[[T9]], %[[FRAME]][%c9]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c10]
// CHECK: %[[PARAMS:.*]] = llvm.inttoptr %[[BASE]]
// CHECK: %[[ADDRESS:.*]] = arith.addi %[[BASE]], %c48_i64
// CHECK: %[[ARGS:.*]] = llvm.inttoptr %[[ADDRESS]]
// CHECK: %[[STATUS:.*]] = call @moert_moe_quantize(%[[PARAMS]], %[[ARGS]], %[[KERNEL]], %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK: arith.cmpi eq, %[[STATUS]], %c0_i32
func.func @no_scales(%x: memref<?x64xf32>, %g: memref<1xf32>, %v: memref<?x64xui8>, %ctx: !moe.context) {
  moe.quantize input(%x : memref<?x64xf32>) global_scale(%g : memref<1xf32>) outs(%v : memref<?x64xui8>) context(%ctx) {format = "fp8_tensor"}
  return
}

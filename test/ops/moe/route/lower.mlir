// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_route(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 8 are moert_moe_route_params, 9 to 13 moert_moe_route_args; the tensors follow.

// CHECK-LABEL: func.func @route
// CHECK-SAME: (%[[LOGITS:.*]]: memref<?x8xbf16>, %{{.*}}: memref<?x2xi32>, %{{.*}}: memref<5x2xf32, strided<[4, 1], offset: 3>>, %[[CTX:.*]]: !llvm.ptr) -> i32 attributes {llvm.emit_c_interface}
// CHECK: %[[KERNEL:.*]] = llvm.mlir.zero : !llvm.ptr
// CHECK: %[[FRAME:.*]] = memref.alloca() {alignment = 16 : i64} : memref<44xi64>
// CHECK: memref.extract_strided_metadata %[[LOGITS]]
// CHECK: %[[DATA:.*]] = memref.extract_aligned_pointer_as_index %[[LOGITS]]
// CHECK: %[[WORD:.*]] = arith.index_cast %[[DATA]]
// CHECK: %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %[[FRAME]]
// CHECK: %[[BASE:.*]] = arith.index_cast %[[INDEX]]
// struct_size, top_k, n_experts, score, order, renormalize, the bits of 2.5, n_group, topk_group
// CHECK: memref.store %c72_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c8_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c4612811918334230528_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c8]
// struct_size, logits, no bias, ids, weights
// CHECK: memref.store %c40_i64, %[[FRAME]][%c9]
// CHECK: %[[TENSOR:.*]] = arith.addi %[[BASE]], %c112_i64
// CHECK: memref.store %[[TENSOR]], %[[FRAME]][%c10]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c11]
// CHECK: memref.store %{{.*}}, %[[FRAME]][%c12]
// CHECK: memref.store %{{.*}}, %[[FRAME]][%c13]
// data, device (CPU), rank 2 and bf16 = 2 | 4 << 32 | 16 << 40 | 1 << 48, shape, strides, byte_offset
// CHECK: memref.store %[[WORD]], %[[FRAME]][%c14]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c15]
// CHECK: memref.store %c299084342624258_i64, %[[FRAME]][%c16]
// CHECK: %[[SHAPE:.*]] = arith.addi %[[BASE]], %c160_i64
// CHECK: memref.store %[[SHAPE]], %[[FRAME]][%c17]
// The strides and the offset of `weights` (3 elements of 4 bytes)
// CHECK: memref.store %c12_i64, %[[FRAME]][%c39]
// CHECK: memref.store %c5_i64, %[[FRAME]][%c40]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c41]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c42]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c43]
// CHECK: %[[PARAMS:.*]] = llvm.inttoptr %[[BASE]]
// CHECK: %[[ADDRESS:.*]] = arith.addi %[[BASE]], %c72_i64
// CHECK: %[[ARGS:.*]] = llvm.inttoptr %[[ADDRESS]]
// CHECK: %[[STATUS:.*]] = call @moert_moe_route(%[[PARAMS]], %[[ARGS]], %[[KERNEL]], %[[CTX]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK: %[[OK:.*]] = arith.cmpi eq, %[[STATUS]], %c0_i32
// CHECK: cf.cond_br %[[OK]], ^[[REST:.*]], ^[[EXIT:.*]](%[[STATUS]] : i32)
// CHECK: ^[[REST]]:
// CHECK-NEXT: return %c0_i32
// CHECK: ^[[EXIT]](%[[RESULT:.*]]: i32):
// CHECK-NEXT: return %[[RESULT]]
func.func @route(%logits: memref<?x8xbf16>, %ids: memref<?x2xi32>, %weights: memref<5x2xf32, strided<[4, 1], offset: 3>>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<?x8xbf16>) outs(%ids, %weights : memref<?x2xi32>, memref<5x2xf32, strided<[4, 1], offset: 3>>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64, score = "sigmoid", renormalize = true, routed_scaling_factor = 2.5 : f64}
  return
}

// Two calls share the exit, the declaration of the function, and the words of the larger one, where a bias is there.
// CHECK-LABEL: func.func @twice
// CHECK: memref.alloca() {alignment = 16 : i64} : memref<52xi64>
// CHECK-NOT: memref.alloca
// CHECK: call @moert_moe_route
// CHECK: cf.cond_br %{{.*}}, ^[[REST:.*]], ^[[EXIT:.*]](%
// CHECK: ^[[REST]]:
// CHECK: call @moert_moe_route
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^[[EXIT]](%
// CHECK: func.func private @moert_moe_route(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK-NOT: @moert_moe_route
func.func @twice(%logits: memref<?x8xf32>, %bias: memref<8xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  moe.route logits(%logits : memref<?x8xf32>) bias(%bias : memref<8xf32>) outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64}
  return
}

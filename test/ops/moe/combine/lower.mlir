// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device: buffers are of the rank's device, the kernel is what the runtime has put into the slot of its key.
// GPU: call @moert_comm_device(%{{.*}}) : (!llvm.ptr) -> i64
// GPU: %[[DEVICE_KERNEL:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// GPU: call @moert_moe_combine(%{{.*}}, %{{.*}}, %[[DEVICE_KERNEL]], %{{.*}})

// Words 0 to 11 are moert_moe_combine_params, 12 to 20 moert_moe_combine_args.

// CHECK-LABEL: func.func @combine
// CHECK-SAME: %[[MAX:[a-z0-9]+]]: i64, %[[OFFSET:[a-z0-9]+]]: i64,
// CHECK-SAME: %[[CTX:[a-z0-9]+]]: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// struct_size, top_k, hidden_size, layout, payload_in_workspace, use_low_precision, output_format, sf_layout, output_scalar_scale = 1, max_sms, enable_pdl, ep_size
// CHECK: memref.store %c96_i64, %[[FRAME]][%c0]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c1]
// CHECK: memref.store %c16_i64, %[[FRAME]][%c2]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c3]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c4]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c4607182418800017408_i64, %[[FRAME]][%c8]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c9]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c10]
// CHECK: memref.store %c4_i64, %[[FRAME]][%c11]
// struct_size, payload, workspace, metainfo, runtime_max_tokens_per_rank, combine_payload_offset, no active_rank_mask, out, no output_scales
// CHECK: memref.store %c72_i64, %[[FRAME]][%c12]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c13]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c14]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c15]
// CHECK: memref.store %[[MAX]], %[[FRAME]][%c16]
// CHECK: memref.store %[[OFFSET]], %[[FRAME]][%c17]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c18]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c19]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c20]
// CHECK: call @moert_moe_combine(%{{.*}}, %{{.*}}, %{{.*}}, %[[CTX]])
// CHECK: cf.cond_br
func.func @combine(%x: memref<4x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i64, %offset: i64, %out: memref<?x16xf32>, %ctx: !moe.context) {
  moe.combine payload(%x : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    outs(%out : memref<?x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, ep_size = 4 : i64, payload_in_workspace = true}
  return
}

// The limits of a call on GPUs, and the ranks that take part.
// CHECK-LABEL: func.func @codes
// CHECK-SAME: %[[MASK:[a-z0-9]+]]: i64, %{{[a-z0-9]+}}: !llvm.ptr) -> i32
// CHECK: %[[FRAME:.*]] = memref.alloca()
// use_low_precision, output_format, sf_layout, output_scalar_scale = 0.5
// CHECK: memref.store %c1_i64, %[[FRAME]][%c5]
// CHECK: memref.store %c1_i64, %[[FRAME]][%c6]
// CHECK: memref.store %c2_i64, %[[FRAME]][%c7]
// CHECK: memref.store %c4602678819172646912_i64, %[[FRAME]][%c8]
// max_sms, enable_pdl
// CHECK: memref.store %c32_i64, %[[FRAME]][%c9]
// CHECK: memref.store %c0_i64, %[[FRAME]][%c10]
// active_rank_mask, out, output_scales
// CHECK: memref.store %[[MASK]], %[[FRAME]][%c18]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c19]
// CHECK: memref.store %{{[0-9]+}}, %[[FRAME]][%c20]
// CHECK: call @moert_moe_combine
func.func @codes(%x: memref<4x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i64, %offset: i64, %out: memref<?x8xi8>, %scales: memref<?x4xf8E4M3FN>,
                 %mask: i64, %ctx: !moe.context) {
  moe.combine payload(%x : memref<4x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    active_ranks(%mask) outs(%out : memref<?x8xi8>) output_scales(%scales : memref<?x4xf8E4M3FN>) context(%ctx)
    {top_k = 2 : i64, hidden_size = 16 : i64, use_low_precision = true, output_format = "nvfp4", sf_layout = "8x4", output_scalar_scale = 0.5 : f64, max_sms = 32 : i64,
     enable_pdl = false}
  return
}

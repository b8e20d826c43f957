// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.combine payload(%{{[^ ]*}} : tensor<?x?x16xbf16>) workspace(%{{[^ ]*}}, %{{[^ ]*}} : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%{{[^ ]*}} : index) offset(%{{[^ )]*}})
// CHECK-SAME: outs(%{{[^ ]*}} : tensor<?x16xf32>) context(%{{[^)]*}}) {hidden_size = 16 : i64, top_k = 2 : i64} -> tensor<?x16xf32>
func.func @tensors(%x: tensor<?x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<?x16xf32>,
                   %ctx: !moe.context) -> tensor<?x16xf32> {
  %0 = moe.combine payload(%x : tensor<?x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @in_workspace
// CHECK: {ep_size = 4 : i64, hidden_size = 24 : i64, payload_in_workspace = true, top_k = 22 : i64}
// CHECK-NOT: ->
func.func @in_workspace(%x: memref<4x7x2x3x4xf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: i64, %offset: i64, %out: memref<5x2x3x4xf16>,
                        %ctx: !moe.context) {
  moe.combine payload(%x : memref<4x7x2x3x4xf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : i64) offset(%offset)
    outs(%out : memref<5x2x3x4xf16>) context(%ctx) {top_k = 22 : i64, hidden_size = 24 : i64, ep_size = 4 : i64, payload_in_workspace = true}
  return
}

// Trailing dimensions that are not known, and none at all.
// CHECK-LABEL: func.func @grouped
// CHECK: moe.combine payload(%{{[^ ]*}} : memref<?x?x8xf32>)
// CHECK-SAME: {hidden_size = 1024 : i64, layout = "expert_grouped", top_k = 1 : i64}
// CHECK: moe.combine payload(%{{[^ ]*}} : memref<64xf32>)
// CHECK-SAME: {hidden_size = 1 : i64, layout = "expert_grouped", top_k = 1 : i64}
func.func @grouped(%x: memref<?x?x8xf32>, %y: memref<64xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: memref<?x128x8xf32>,
                   %sums: memref<0xf32>, %ctx: !moe.context) {
  moe.combine payload(%x : memref<?x?x8xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x128x8xf32>) context(%ctx) {top_k = 1 : i64, hidden_size = 1024 : i64, layout = "expert_grouped"}
  moe.combine payload(%y : memref<64xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%sums : memref<0xf32>) context(%ctx) {top_k = 1 : i64, hidden_size = 1 : i64, layout = "expert_grouped", payload_in_workspace = false}
  return
}

// Codes: every format in every layout, on tensors and memrefs; rows that travel as E4M3.
// CHECK-LABEL: func.func @nvfp4
// CHECK: outs(%{{[^ ]*}} : tensor<?x8xi8>) output_scales(%{{[^ ]*}} : tensor<?x?xf8E4M3FN>) context(%{{[^)]*}})
// CHECK-SAME: {hidden_size = 16 : i64, output_format = "nvfp4", output_scalar_scale = 2.500000e+00 : f64, sf_layout = "128x4", top_k = 2 : i64, use_low_precision = true} -> tensor<?x8xi8>, tensor<?x?xf8E4M3FN>
func.func @nvfp4(%x: tensor<?x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %out: tensor<?x8xi8>, %scales: tensor<?x?xf8E4M3FN>,
                 %ctx: !moe.context) -> (tensor<?x8xi8>, tensor<?x?xf8E4M3FN>) {
  %0:2 = moe.combine payload(%x : tensor<?x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x8xi8>) output_scales(%scales : tensor<?x?xf8E4M3FN>) context(%ctx)
    {top_k = 2 : i64, hidden_size = 16 : i64, use_low_precision = true, output_format = "nvfp4", sf_layout = "128x4", output_scalar_scale = 2.5 : f64}
    -> tensor<?x8xi8>, tensor<?x?xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x8xi8>, tensor<?x?xf8E4M3FN>
}

// CHECK-LABEL: func.func @mx
// CHECK: outs(%{{[^ ]*}} : memref<5x48xui8>) output_scales(%{{[^ ]*}} : memref<8x4xui8>) context(%{{[^)]*}}) {hidden_size = 96 : i64, output_format = "mxfp4", sf_layout = "8x4", top_k = 1 : i64}
// CHECK: outs(%{{[^ ]*}} : memref<5x96xf8E4M3FN>) output_scales(%{{[^ ]*}} : memref<5x3xf8E8M0FNU>) context(%{{[^)]*}}) {hidden_size = 96 : i64, layout = "expert_grouped", output_format = "mxfp8", top_k = 1 : i64}
// CHECK: outs(%{{[^ ]*}} : memref<0x96xi8>) output_scales(%{{[^ ]*}} : memref<0x4xi8>)
func.func @mx(%x: memref<2x7x3x32xf16>, %y: memref<64x96xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %v: memref<5x48xui8>, %s: memref<8x4xui8>,
              %w: memref<5x96xf8E4M3FN>, %t: memref<5x3xf8E8M0FNU>, %none: memref<0x96xi8>, %no_scales: memref<0x4xi8>, %ctx: !moe.context) {
  moe.combine payload(%x : memref<2x7x3x32xf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%v : memref<5x48xui8>) output_scales(%s : memref<8x4xui8>) context(%ctx)
    {top_k = 1 : i64, hidden_size = 96 : i64, output_format = "mxfp4", sf_layout = "8x4", output_scalar_scale = 1.0 : f64}
  moe.combine payload(%y : memref<64x96xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%w : memref<5x96xf8E4M3FN>) output_scales(%t : memref<5x3xf8E8M0FNU>) context(%ctx)
    {top_k = 1 : i64, hidden_size = 96 : i64, layout = "expert_grouped", output_format = "mxfp8", sf_layout = "linear", use_low_precision = false}
  moe.combine payload(%y : memref<64x96xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%none : memref<0x96xi8>) output_scales(%no_scales : memref<0x4xi8>) context(%ctx)
    {top_k = 1 : i64, hidden_size = 96 : i64, layout = "expert_grouped", output_format = "mxfp8", sf_layout = "128x4"}
  return
}

// The ranks that take part, with and without scales; what a call leaves to others on a GPU.
// CHECK-LABEL: func.func @active_ranks
// CHECK: offset(%{{[^ ]*}}) active_ranks(%{{[^ ]*}}) outs(%{{[^ ]*}} : tensor<?x16xbf16>) context(%{{[^)]*}}) {enable_pdl = false, hidden_size = 16 : i64, max_sms = 1024 : i64, top_k = 2 : i64} -> tensor<?x16xbf16>
// CHECK: offset(%{{[^ ]*}}) active_ranks(%{{[^ ]*}}) outs(%{{[^ ]*}} : tensor<?x8xi8>) output_scales(%{{[^ ]*}} : tensor<?x1xf8E4M3FN>) context
func.func @active_ranks(%x: tensor<?x?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64, %mask: i64, %out: tensor<?x16xbf16>,
                        %codes: tensor<?x8xi8>, %scales: tensor<?x1xf8E4M3FN>, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x8xi8>, tensor<?x1xf8E4M3FN>) {
  %0 = moe.combine payload(%x : tensor<?x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%out : tensor<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, max_sms = 1024 : i64, enable_pdl = false} -> tensor<?x16xbf16>
  %1:2 = moe.combine payload(%x : tensor<?x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%codes : tensor<?x8xi8>) output_scales(%scales : tensor<?x1xf8E4M3FN>) context(%ctx)
    {top_k = 2 : i64, hidden_size = 16 : i64, output_format = "nvfp4", max_sms = 0 : i64, enable_pdl = true} -> tensor<?x8xi8>, tensor<?x1xf8E4M3FN>
  return %0, %1#0, %1#1 : tensor<?x16xbf16>, tensor<?x8xi8>, tensor<?x1xf8E4M3FN>
}

// CHECK-LABEL: func.func @active_ranks_of_memrefs
// CHECK: active_ranks(%{{[^ ]*}}) outs(%{{[^ ]*}} : memref<5x16xf32>) context
// CHECK: active_ranks(%{{[^ ]*}}) outs(%{{[^ ]*}} : memref<5x32xi8>) output_scales(%{{[^ ]*}} : memref<5x1xi8>) context
func.func @active_ranks_of_memrefs(%x: memref<64x16xf32>, %y: memref<64x32xf32>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                                   %out: memref<5x16xf32>, %codes: memref<5x32xi8>, %scales: memref<5x1xi8>, %ctx: !moe.context) {
  %mask = arith.constant -1 : i64
  moe.combine payload(%x : memref<64x16xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%out : memref<5x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64, layout = "expert_grouped", ep_size = 64 : i64}
  moe.combine payload(%y : memref<64x32xf32>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    active_ranks(%mask) outs(%codes : memref<5x32xi8>) output_scales(%scales : memref<5x1xi8>) context(%ctx)
    {top_k = 2 : i64, hidden_size = 32 : i64, layout = "expert_grouped", output_format = "mxfp8"}
  return
}

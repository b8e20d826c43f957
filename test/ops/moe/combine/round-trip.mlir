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

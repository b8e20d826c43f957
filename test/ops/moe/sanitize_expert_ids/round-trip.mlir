// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @tensors
// CHECK: moe.sanitize_expert_ids workspace(%{{[^ ]*}}, %{{[^ ]*}} : memref<?xi8>, memref<16xi64, #moe.host>) outs(%{{[^ ]*}} : tensor<4x?x8xi32>) context(%{{[^)]*}}) -> tensor<4x?x8xi32>
func.func @tensors(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<4x?x8xi32>, %ctx: !moe.context) -> tensor<4x?x8xi32> {
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<4x?x8xi32>) context(%ctx) -> tensor<4x?x8xi32>
  return %0 : tensor<4x?x8xi32>
}

// CHECK-LABEL: func.func @memrefs
// CHECK: moe.sanitize_expert_ids {{.*}} outs(%{{[^ ]*}} : memref<?x?x?xi32, strided<[?, ?, 1], offset: ?>>) context(%{{[^)]*}}) {ep_size = 64 : i64, invalid_expert_id = 256 : i64}
// CHECK-NOT: ->
func.func @memrefs(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<?x?x?xi32, strided<[?, ?, 1], offset: ?>>, %ctx: !moe.context) {
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<?x?x?xi32, strided<[?, ?, 1], offset: ?>>) context(%ctx)
    {invalid_expert_id = 256 : i64, ep_size = 64 : i64}
  return
}

// Any i32 marks what is invalid; what is the default may be written, and is not printed.
// CHECK-LABEL: func.func @invalid_expert_ids
// CHECK: {invalid_expert_id = -2147483648 : i64}
// CHECK: {invalid_expert_id = 2147483647 : i64}
// CHECK: context(%{{[^)]*}}){{$}}
func.func @invalid_expert_ids(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx) {invalid_expert_id = -2147483648 : i64}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx) {invalid_expert_id = 2147483647 : i64}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx) {invalid_expert_id = -1 : i64, ep_size = 0 : i64}
  return
}

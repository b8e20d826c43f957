// Ops without operands beside the context, and without results, survive every form unchanged.
// RUN: moe-opt %s > %t.mlir
// RUN: moe-opt %t.mlir | diff %t.mlir -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.mlir -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.mlir -
// RUN: FileCheck %s --input-file=%t.mlir

// CHECK-LABEL: @none
// CHECK: moe.workspace_size context(%{{.*}}) {
// CHECK: moe.initialize
// CHECK: moe.allocate() context(%{{.*}}) : memref<4xf32>
// CHECK: moe.workspace_view %{{.*}}[%{{.*}} : index] sizes() context(
func.func @none(%ws: memref<?xi8>, %metainfo: memref<16xi64, #moe.host>, %offset: index, %ctx: !moe.context) -> (index, memref<4xf32>, memref<4xf32>) {
  %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 16 : i64}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%metainfo : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 16 : i64}
  %1 = moe.allocate() context(%ctx) : memref<4xf32>
  %2 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<4xf32>
  return %0, %1, %2 : index, memref<4xf32>, memref<4xf32>
}

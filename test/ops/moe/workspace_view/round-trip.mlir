// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @views
func.func @views(%ws: memref<?xi8>, %slab: memref<1024xi8>, %offset: index, %bytes: i64, %rows: index, %ctx: !moe.context) {
  // CHECK: moe.workspace_view %{{.*}}[%{{.*}} : index] sizes(%{{.*}}) context(%{{.*}}) : memref<?xi8> to memref<?x64xbf16>
  %0 = moe.workspace_view %ws[%offset : index] sizes(%rows) context(%ctx) : memref<?xi8> to memref<?x64xbf16>
  // CHECK: moe.workspace_view %{{.*}}[%{{.*}} : i64] sizes() context(%{{.*}}) : memref<1024xi8> to memref<4x8xf32>
  %1 = moe.workspace_view %slab[%bytes : i64] sizes() context(%ctx) : memref<1024xi8> to memref<4x8xf32>
  // CHECK: sizes(%{{.*}}, %{{.*}}, %{{.*}}) context(%{{.*}}) : memref<?xi8> to memref<?x?x2x?xi8>
  %2 = moe.workspace_view %ws[%offset : index] sizes(%rows, %rows, %rows) context(%ctx) : memref<?xi8> to memref<?x?x2x?xi8>
  // CHECK: memref<f64>
  %3 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<f64>
  // CHECK: memref<256xf32>
  %c0 = arith.constant 0 : index
  %4 = moe.workspace_view %slab[%c0 : index] sizes() context(%ctx) : memref<1024xi8> to memref<256xf32>
  return
}

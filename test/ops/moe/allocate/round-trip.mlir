// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @buffers
func.func @buffers(%rows: index, %columns: index, %ctx: !moe.context) {
  // CHECK: moe.allocate() context(%{{.*}}) : memref<4x8xf32>
  %0 = moe.allocate() context(%ctx) : memref<4x8xf32>
  // CHECK: moe.allocate(%{{.*}}, %{{.*}}) context(%{{.*}}) : memref<?x8x?xbf16>
  %1 = moe.allocate(%rows, %columns) context(%ctx) : memref<?x8x?xbf16>
  // CHECK: moe.allocate() context(%{{.*}}) : memref<i8>
  %2 = moe.allocate() context(%ctx) : memref<i8>
  // CHECK: moe.allocate() context(%{{.*}}) : memref<0xindex>
  %3 = moe.allocate() context(%ctx) : memref<0xindex>
  return
}

// A function that does not return cannot be a graph's: an error at the function, from the whole pipeline and from each of our passes that looks.
// RUN: not moe-compile %s -o %t.so 2>&1 | FileCheck %s
// RUN: moe-opt %s --moe-declare-interface --moe-check-host-access --moe-place-buffers | FileCheck %s --check-prefix=ALONE
// CHECK: no-return.mlir:[[# @LINE + 3]]:1: error: cannot bufferize func.func without func.return
// ALONE: moe.interface
// ALONE: cf.br
func.func @endless(%rows: memref<8x8xf32>, %offsets: memref<2xi32>, %weights: memref<1x8x8xf32>, %out: memref<8x8xf32>, %ctx: !moe.context) {
  cf.br ^loop
^loop:
  moe.grouped_matmul rows(%rows : memref<8x8xf32>) offsets(%offsets : memref<2xi32>) weights(%weights : memref<1x8x8xf32>) outs(%out : memref<8x8xf32>)
    context(%ctx)
  cf.br ^loop
}

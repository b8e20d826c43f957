// One value as operand and as destination, used afterwards: the op works on a copy.
// RUN: moe-opt %s %bufferize | FileCheck %s
// RUN: %python %S/Inputs/products.py %t
// RUN: moe-compile %s -o %t.so
// RUN: moe-run %t.so --input x=%t/x.npy --input weights=%t/weights.npy --input offsets=%t/offsets.npy --expect product=%t/product.npy --expect sum=%t/sum.npy --expect x=%t/x.npy
// CHECK-LABEL: @twice
// CHECK-SAME: %[[X:[^:]*]]: memref<8x8xf32>
// CHECK-NOT: moe.grouped_matmul {{.*}} outs(%[[X]] :
// CHECK: moe.grouped_matmul rows(%[[X]] :
func.func @twice(%x: tensor<8x8xf32> {moe.name = "x"}, %offsets: tensor<2xi32> {moe.name = "offsets"}, %weights: tensor<1x8x8xf32> {moe.name = "weights"},
                 %product: tensor<8x8xf32> {moe.name = "product"}, %sum: tensor<8x8xf32> {moe.name = "sum"}, %ctx: !moe.context) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<8x8xf32>) offsets(%offsets : tensor<2xi32>) weights(%weights : tensor<1x8x8xf32>) outs(%x : tensor<8x8xf32>)
    context(%ctx) -> tensor<8x8xf32>
  %1 = linalg.copy ins(%0 : tensor<8x8xf32>) outs(%product : tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = linalg.add ins(%0, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%sum : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1, %2 : tensor<8x8xf32>, tensor<8x8xf32>
}

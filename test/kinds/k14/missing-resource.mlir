// Weights whose bytes are not in the file: an error at the constant, when bytes are needed.
// RUN: moe-opt %s | FileCheck %s
// RUN: not moe-compile %s -o %t.so 2>&1 | FileCheck %s --check-prefix=ERROR
// CHECK: dense_resource<missing>
// ERROR: missing-resource.mlir:[[# @LINE + 2]]:{{[0-9]+}}: error: resource does not exist
func.func @f(%rows: tensor<8x8xf32>, %offsets: tensor<2xi32>, %out: tensor<8x8xf32>, %ctx: !moe.context) -> tensor<8x8xf32> {
  %weights = arith.constant dense_resource<missing> : tensor<1x8x8xf32>
  %0 = moe.grouped_matmul rows(%rows : tensor<8x8xf32>) offsets(%offsets : tensor<2xi32>) weights(%weights : tensor<1x8x8xf32>) outs(%out : tensor<8x8xf32>)
    context(%ctx) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// Bufferization across a call without an analysis: the op in the callee gets a copy to write.
// RUN: moe-opt %s "--one-shot-bufferize=bufferize-function-boundaries copy-before-write" | FileCheck %s
// CHECK-LABEL: @callee
// CHECK: %[[COPY:.*]] = memref.alloc() {{.*}} : memref<8x8xf32>
// CHECK: memref.copy %{{.*}}, %[[COPY]]
// CHECK: moe.grouped_matmul {{.*}} outs(%[[COPY]] : memref<8x8xf32>)
// CHECK-LABEL: @caller
// CHECK: call @callee
func.func private @callee(%rows: tensor<8x8xf32>, %offsets: tensor<2xi32>, %weights: tensor<1x8x8xf32>, %out: tensor<8x8xf32>, %ctx: !moe.context) -> tensor<8x8xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<8x8xf32>) offsets(%offsets : tensor<2xi32>) weights(%weights : tensor<1x8x8xf32>) outs(%out : tensor<8x8xf32>)
    context(%ctx) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
func.func @caller(%rows: tensor<8x8xf32>, %offsets: tensor<2xi32>, %weights: tensor<1x8x8xf32>, %out: tensor<8x8xf32>, %ctx: !moe.context) -> tensor<8x8xf32> {
  %0 = call @callee(%rows, %offsets, %weights, %out, %ctx) : (tensor<8x8xf32>, tensor<2xi32>, tensor<1x8x8xf32>, tensor<8x8xf32>, !moe.context) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// Ops on tensors where a pass wants buffers, and bufferization without our passes: a diagnostic, or buffers.
// RUN: not moe-opt %s --moe-lower-to-runtime 2>&1 | FileCheck %s --check-prefix=LOWER
// RUN: not moe-opt %s --moe-place-buffers 2>&1 | FileCheck %s --check-prefix=PLACE
// RUN: moe-opt %s --one-shot-bufferize=allow-unknown-ops | FileCheck %s --check-prefix=UNKNOWN
// LOWER: tensors-left.mlir:[[# @LINE + 6]]:{{[0-9]+}}: error: 'moe.grouped_matmul' op is still on tensors: run one-shot-bufferize first
// PLACE: tensors-left.mlir:[[# @LINE + 7]]:{{[0-9]+}}: error: 'func.return' op result #0 is not a destination of the caller
// UNKNOWN: memref.copy
// UNKNOWN: moe.grouped_matmul {{.*}} outs(%{{.*}} : memref<8x8xf32>)
// UNKNOWN: bufferization.to_tensor
func.func @f(%rows: tensor<8x8xf32>, %offsets: tensor<2xi32>, %weights: tensor<1x8x8xf32>, %out: tensor<8x8xf32>, %ctx: !moe.context) -> tensor<8x8xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<8x8xf32>) offsets(%offsets : tensor<2xi32>) weights(%weights : tensor<1x8x8xf32>) outs(%out : tensor<8x8xf32>)
    context(%ctx) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

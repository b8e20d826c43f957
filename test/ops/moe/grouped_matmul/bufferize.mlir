// RUN: moe-opt %s %bufferize | FileCheck %s

// CHECK-LABEL: func.func @destination_of_the_caller
// CHECK-SAME: %[[OUT:[^:]*]]: memref<16x32xf32>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.grouped_matmul {{.*}} outs(%[[OUT]] : memref<16x32xf32>)
// CHECK-NEXT: return
func.func @destination_of_the_caller(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %out: tensor<16x32xf32>, %ctx: !moe.context) -> tensor<16x32xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  return %0 : tensor<16x32xf32>
}

// Rows of no group keep their contents, so what was written into the destination must be there.
// CHECK-LABEL: func.func @contents_stay
// CHECK-SAME: %[[OUT:[^:]*]]: memref<16x32xf32>, %{{[^:]*}}: !moe.context)
// CHECK: linalg.fill {{.*}} outs(%[[OUT]] : memref<16x32xf32>)
// CHECK-NEXT: moe.grouped_matmul {{.*}} outs(%[[OUT]] : memref<16x32xf32>)
// CHECK-NEXT: return
func.func @contents_stay(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %out: tensor<16x32xf32>, %ctx: !moe.context) -> tensor<16x32xf32> {
  %one = arith.constant 1.0 : f32
  %ones = linalg.fill ins(%one : f32) outs(%out : tensor<16x32xf32>) -> tensor<16x32xf32>
  %0 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    outs(%ones : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  return %0 : tensor<16x32xf32>
}

// A destination that someone else still reads is copied before.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %[[OUT:[^:]*]]: memref<16x32xf32>, %[[OTHER:[^:]*]]: memref<16x32xf32>, %{{[^:]*}}: !moe.context)
// CHECK: linalg.fill {{.*}} outs(%[[OUT]] : memref<16x32xf32>)
// CHECK: linalg.copy ins(%[[OUT]] : memref<16x32xf32>) outs(%[[COPY:.*]] : memref<16x32xf32>)
// CHECK: moe.grouped_matmul {{.*}} outs(%[[COPY]] : memref<16x32xf32>)
// CHECK: linalg.add ins(%[[OUT]], %[[COPY]] : memref<16x32xf32>, memref<16x32xf32>) outs(%[[OTHER]] : memref<16x32xf32>)
func.func @destination_is_read_later(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %out: tensor<16x32xf32>, %other: tensor<16x32xf32>,
                                     %ctx: !moe.context) -> (tensor<16x32xf32>, tensor<16x32xf32>) {
  %one = arith.constant 1.0 : f32
  %ones = linalg.fill ins(%one : f32) outs(%out : tensor<16x32xf32>) -> tensor<16x32xf32>
  %0 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>)
    outs(%ones : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  %1 = linalg.add ins(%ones, %0 : tensor<16x32xf32>, tensor<16x32xf32>) outs(%other : tensor<16x32xf32>) -> tensor<16x32xf32>
  return %ones, %1 : tensor<16x32xf32>, tensor<16x32xf32>
}

// Rows that are the destination, too, are copied: the op does not work in place.
// CHECK-LABEL: func.func @rows_are_the_destination
// CHECK-SAME: (%[[ROWS:[^:]*]]: memref<16x8xf32>,
// CHECK-SAME: %[[OUT:[^:]*]]: memref<16x8xf32>, %{{[^:]*}}: !moe.context)
// CHECK: linalg.copy ins(%[[ROWS]] : memref<16x8xf32>) outs(%[[COPY:.*]] : memref<16x8xf32>)
// CHECK: moe.grouped_matmul rows(%[[ROWS]] : memref<16x8xf32>) {{.*}} outs(%[[COPY]] : memref<16x8xf32>)
// CHECK: linalg.copy ins(%[[COPY]] : memref<16x8xf32>) outs(%[[OUT]] : memref<16x8xf32>)
func.func @rows_are_the_destination(%rows: tensor<16x8xf32>, %offsets: tensor<2xi32>, %weights: tensor<1x8x8xf32>, %out: tensor<16x8xf32>, %ctx: !moe.context) -> tensor<16x8xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<16x8xf32>) offsets(%offsets : tensor<2xi32>) weights(%weights : tensor<1x8x8xf32>)
    outs(%rows : tensor<16x8xf32>) context(%ctx) -> tensor<16x8xf32>
  %1 = linalg.copy ins(%0 : tensor<16x8xf32>) outs(%out : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %1 : tensor<16x8xf32>
}

// Constants are read only.
// CHECK-LABEL: func.func @constant_destination
// CHECK: %[[CONSTANT:.*]] = memref.get_global
// CHECK: linalg.copy ins(%[[CONSTANT]] : {{.*}}) outs(%[[COPY:.*]] : memref<16x8xf32>)
// CHECK: moe.grouped_matmul {{.*}} outs(%[[COPY]] : memref<16x8xf32>)
func.func @constant_destination(%rows: tensor<16x8xf32>, %offsets: tensor<2xi32>, %weights: tensor<1x8x8xf32>, %out: tensor<16x8xf32>, %ctx: !moe.context) -> tensor<16x8xf32> {
  %constant = arith.constant dense<3.0> : tensor<16x8xf32>
  %0 = moe.grouped_matmul rows(%rows : tensor<16x8xf32>) offsets(%offsets : tensor<2xi32>) weights(%weights : tensor<1x8x8xf32>)
    outs(%constant : tensor<16x8xf32>) context(%ctx) -> tensor<16x8xf32>
  %1 = linalg.copy ins(%0 : tensor<16x8xf32>) outs(%out : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %1 : tensor<16x8xf32>
}

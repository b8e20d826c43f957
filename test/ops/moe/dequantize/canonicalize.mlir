// RUN: moe-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @rounded_to_bf16
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<4x32xi8>, %[[S:[a-z0-9]+]]: tensor<4x4xf8E4M3FN>, %[[G:[a-z0-9]+]]: tensor<1xf32>
// CHECK-NEXT: %[[OUT:.*]] = tensor.empty() : tensor<4x64xbf16>
// CHECK-NEXT: %[[Y:.*]] = moe.dequantize values(%[[V]] : tensor<4x32xi8>) scales(%[[S]] : tensor<4x4xf8E4M3FN>) global_scale(%[[G]] : tensor<1xf32>) outs(%[[OUT]] : tensor<4x64xbf16>) context(%{{.*}}) {format = "nvfp4", packing = "mega"} -> tensor<4x64xbf16>
// CHECK-NEXT: return %[[Y]] : tensor<4x64xbf16>
func.func @rounded_to_bf16(%v: tensor<4x32xi8>, %s: tensor<4x4xf8E4M3FN>, %g: tensor<1xf32>, %out: tensor<4x64xf32>, %ctx: !moe.context) -> tensor<4x64xbf16> {
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x4xf8E4M3FN>) global_scale(%g : tensor<1xf32>) outs(%out : tensor<4x64xf32>) context(%ctx)
    {format = "nvfp4", packing = "mega"} -> tensor<4x64xf32>
  %1 = arith.truncf %0 : tensor<4x64xf32> to tensor<4x64xbf16>
  return %1 : tensor<4x64xbf16>
}

// Sizes that are not known are those of the old destination; the rounding mode may be named.
// CHECK-LABEL: func.func @rounded_to_f16
// CHECK-SAME: tensor<?x?xi8>, %{{[a-z0-9]+}}: tensor<?x1xf32>, %[[OUT:[a-z0-9]+]]: tensor<?x?xf32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[T:.*]] = tensor.dim %[[OUT]], %[[C0]]
// CHECK-DAG: %[[H:.*]] = tensor.dim %[[OUT]], %[[C1]]
// CHECK: %[[EMPTY:.*]] = tensor.empty(%[[T]], %[[H]]) : tensor<?x?xf16>
// CHECK-NEXT: %[[Y:.*]] = moe.dequantize {{.*}} outs(%[[EMPTY]] : tensor<?x?xf16>)
// CHECK-NEXT: return %[[Y]]
func.func @rounded_to_f16(%v: tensor<?x?xi8>, %s: tensor<?x1xf32>, %out: tensor<?x?xf32>, %ctx: !moe.context) -> tensor<?x?xf16> {
  %0 = moe.dequantize values(%v : tensor<?x?xi8>) scales(%s : tensor<?x1xf32>) outs(%out : tensor<?x?xf32>) context(%ctx) {format = "fp8_token"} -> tensor<?x?xf32>
  %1 = arith.truncf %0 to_nearest_even : tensor<?x?xf32> to tensor<?x?xf16>
  return %1 : tensor<?x?xf16>
}

// A destination that was only there for the wide result goes.
// CHECK-LABEL: func.func @temporary
// CHECK-SAME: %[[T:[a-z0-9]+]]: index
// CHECK-NEXT: %[[EMPTY:.*]] = tensor.empty(%[[T]]) : tensor<?x64xbf16>
// CHECK-NEXT: moe.dequantize {{.*}} outs(%[[EMPTY]] : tensor<?x64xbf16>)
// CHECK-NEXT: return
func.func @temporary(%t: index, %v: tensor<?x32xi8>, %s: tensor<?x2xi8>, %ctx: !moe.context) -> tensor<?x64xbf16> {
  %out = tensor.empty(%t) : tensor<?x64xf32>
  %0 = moe.dequantize values(%v : tensor<?x32xi8>) scales(%s : tensor<?x2xi8>) outs(%out : tensor<?x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<?x64xf32>
  %1 = arith.truncf %0 : tensor<?x64xf32> to tensor<?x64xbf16>
  return %1 : tensor<?x64xbf16>
}

// Someone else reads the wide result; twice the same rounding is two uses, until CSE makes them one.
// CHECK-LABEL: func.func @second_use
// CHECK-COUNT-2: moe.dequantize {{.*}} -> tensor<?x64xf32>
func.func @second_use(%v: tensor<?x32xi8>, %s: tensor<?x2xi8>, %g: tensor<?x2xf8E8M0FNU>, %out: tensor<?x64xf32>, %ctx: !moe.context)
    -> (tensor<?x64xf32>, tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xf16>) {
  %0 = moe.dequantize values(%v : tensor<?x32xi8>) scales(%s : tensor<?x2xi8>) outs(%out : tensor<?x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<?x64xf32>
  %1 = arith.truncf %0 : tensor<?x64xf32> to tensor<?x64xbf16>
  %2 = moe.dequantize values(%v : tensor<?x32xi8>) scales(%g : tensor<?x2xf8E8M0FNU>) outs(%out : tensor<?x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<?x64xf32>
  %3 = arith.truncf %2 : tensor<?x64xf32> to tensor<?x64xbf16>
  %4 = arith.truncf %2 : tensor<?x64xf32> to tensor<?x64xf16>
  return %0, %1, %3, %4 : tensor<?x64xf32>, tensor<?x64xbf16>, tensor<?x64xbf16>, tensor<?x64xf16>
}

// CHECK-LABEL: func.func @other_rounding
// CHECK: moe.dequantize {{.*}} -> tensor<4x64xf32>
// CHECK: arith.truncf %{{.*}} toward_zero
func.func @other_rounding(%v: tensor<4x32xi8>, %s: tensor<4x2xi8>, %out: tensor<4x64xf32>, %ctx: !moe.context) -> tensor<4x64xbf16> {
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x2xi8>) outs(%out : tensor<4x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xf32>
  %1 = arith.truncf %0 toward_zero : tensor<4x64xf32> to tensor<4x64xbf16>
  return %1 : tensor<4x64xbf16>
}

// The op has no results of 8 bits; one of bf16 is rounded twice on its way to them.
// CHECK-LABEL: func.func @other_type
// CHECK: moe.dequantize {{.*}} -> tensor<4x64xf32>
// CHECK: arith.truncf {{.*}} to tensor<4x64xf8E5M2>
// CHECK: moe.dequantize {{.*}} -> tensor<4x64xbf16>
// CHECK: arith.truncf {{.*}} to tensor<4x64xf8E5M2>
func.func @other_type(%v: tensor<4x32xi8>, %s: tensor<4x2xi8>, %out: tensor<4x64xf32>, %half: tensor<4x64xbf16>, %ctx: !moe.context) -> (tensor<4x64xf8E5M2>, tensor<4x64xf8E5M2>) {
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x2xi8>) outs(%out : tensor<4x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xf32>
  %1 = arith.truncf %0 : tensor<4x64xf32> to tensor<4x64xf8E5M2>
  %2 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x2xi8>) outs(%half : tensor<4x64xbf16>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xbf16>
  %3 = arith.truncf %2 : tensor<4x64xbf16> to tensor<4x64xf8E5M2>
  return %1, %3 : tensor<4x64xf8E5M2>, tensor<4x64xf8E5M2>
}

// CHECK-LABEL: func.func @in_memory
// CHECK: moe.dequantize {{.*}} outs(%{{.*}} : memref<4x64xf32>)
// CHECK: arith.truncf
func.func @in_memory(%v: memref<4x32xi8>, %s: memref<4x2xi8>, %out: memref<4x64xf32>, %i: index, %ctx: !moe.context) -> bf16 {
  moe.dequantize values(%v : memref<4x32xi8>) scales(%s : memref<4x2xi8>) outs(%out : memref<4x64xf32>) context(%ctx) {format = "mxfp4"}
  %0 = memref.load %out[%i, %i] : memref<4x64xf32>
  %1 = arith.truncf %0 : f32 to bf16
  return %1 : bf16
}

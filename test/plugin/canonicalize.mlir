// Canonicalisation makes ops of a dialect that this graph does not use: ours loads it.
//
// UNSUPPORTED: sanitizer
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --canonicalize | FileCheck %s

// CHECK: %[[OUT:.*]] = tensor.empty() : tensor<4x64xbf16>
// CHECK: moe.dequantize {{.*}} outs(%[[OUT]] : tensor<4x64xbf16>)
func.func @rounded(%v: tensor<4x32xi8>, %s: tensor<4x4xf8E4M3FN>, %out: tensor<4x64xf32>, %ctx: !moe.context) -> tensor<4x64xbf16> {
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x4xf8E4M3FN>) outs(%out : tensor<4x64xf32>) context(%ctx) {format = "nvfp4"} -> tensor<4x64xf32>
  %1 = arith.truncf %0 : tensor<4x64xf32> to tensor<4x64xbf16>
  return %1 : tensor<4x64xbf16>
}

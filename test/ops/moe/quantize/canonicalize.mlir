// RUN: moe-opt %s --canonicalize | FileCheck %s

// Without tokens there is nothing to write, unless scales are kept for tokens to come: they become zero.
// CHECK-LABEL: func.func @empty
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<0x256xi8>, %[[S:[a-z0-9]+]]: tensor<0x2xf32>
// CHECK-NEXT: %[[Q:.*]]:2 = moe.quantize {{.*}} scale_layout = "transposed"
// CHECK-NEXT: return %[[V]], %[[S]], %[[Q]]#1
func.func @empty(%x: tensor<0x256xf32>, %v: tensor<0x256xi8>, %s: tensor<0x2xf32>, %t: tensor<2x8xf32>, %ctx: !moe.context) -> (tensor<0x256xi8>, tensor<0x2xf32>, tensor<2x8xf32>) {
  %0:2 = moe.quantize input(%x : tensor<0x256xf32>) outs(%v : tensor<0x256xi8>) scales(%s : tensor<0x2xf32>) context(%ctx) {format = "fp8_block"} -> tensor<0x256xi8>, tensor<0x2xf32>
  %1:2 = moe.quantize input(%x : tensor<0x256xf32>) outs(%v : tensor<0x256xi8>) scales(%t : tensor<2x8xf32>) context(%ctx) {format = "fp8_block", scale_layout = "transposed"} -> tensor<0x256xi8>, tensor<2x8xf32>
  return %0#0, %0#1, %1#1 : tensor<0x256xi8>, tensor<0x2xf32>, tensor<2x8xf32>
}

//===--- an input that was widened ----------------------------------------------------------------===//

// CHECK-LABEL: func.func @widened_bf16
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x64xbf16>
// CHECK-NEXT: %[[Q:.*]]:2 = moe.quantize input(%[[X]] : tensor<?x64xbf16>)
// CHECK-NEXT: return %[[Q]]#0, %[[Q]]#1
func.func @widened_bf16(%x: tensor<?x64xbf16>, %v: tensor<?x32xi8>, %s: tensor<?x4xf8E4M3FN>, %ctx: !moe.context) -> (tensor<?x32xi8>, tensor<?x4xf8E4M3FN>) {
  %wide = arith.extf %x : tensor<?x64xbf16> to tensor<?x64xf32>
  %0:2 = moe.quantize input(%wide : tensor<?x64xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
}

// The other operands and the parameters stay. Who else reads the wide input keeps it.
// CHECK-LABEL: func.func @widened_f16
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<4x64xf16>, %[[G:[a-z0-9]+]]: tensor<1xf32>
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[X]]
// CHECK-NEXT: %[[Q:.*]] = moe.quantize input(%[[X]] : tensor<4x64xf16>) global_scale(%[[G]] : tensor<1xf32>) outs({{.*}}) context(%{{.*}}) {format = "fp8_tensor"} -> tensor<4x64xf8E4M3FN>
// CHECK-NEXT: return %[[WIDE]], %[[Q]]
func.func @widened_f16(%x: tensor<4x64xf16>, %g: tensor<1xf32>, %v: tensor<4x64xf8E4M3FN>, %ctx: !moe.context) -> (tensor<4x64xf32>, tensor<4x64xf8E4M3FN>) {
  %wide = arith.extf %x : tensor<4x64xf16> to tensor<4x64xf32>
  %0 = moe.quantize input(%wide : tensor<4x64xf32>) global_scale(%g : tensor<1xf32>) outs(%v : tensor<4x64xf8E4M3FN>) context(%ctx) {format = "fp8_tensor"} -> tensor<4x64xf8E4M3FN>
  return %wide, %0 : tensor<4x64xf32>, tensor<4x64xf8E4M3FN>
}

// The op does not read 8-bit floats.
// CHECK-LABEL: func.func @widened_f8
// CHECK: moe.quantize input(%{{.*}} : tensor<4x64xbf16>)
func.func @widened_f8(%x: tensor<4x64xf8E5M2>, %v: tensor<4x64xf8E4M3FN>, %s: tensor<4x1xf32>, %ctx: !moe.context) -> tensor<4x64xf8E4M3FN> {
  %wide = arith.extf %x : tensor<4x64xf8E5M2> to tensor<4x64xbf16>
  %0:2 = moe.quantize input(%wide : tensor<4x64xbf16>) outs(%v : tensor<4x64xf8E4M3FN>) scales(%s : tensor<4x1xf32>) context(%ctx) {format = "fp8_token"} -> tensor<4x64xf8E4M3FN>, tensor<4x1xf32>
  return %0#0 : tensor<4x64xf8E4M3FN>
}

// CHECK-LABEL: func.func @rounded
// CHECK: arith.truncf
// CHECK: moe.quantize input(%{{.*}} : tensor<4x64xbf16>)
func.func @rounded(%x: tensor<4x64xf32>, %v: tensor<4x64xf8E4M3FN>, %s: tensor<4x1xf32>, %ctx: !moe.context) -> tensor<4x64xf8E4M3FN> {
  %narrow = arith.truncf %x : tensor<4x64xf32> to tensor<4x64xbf16>
  %0:2 = moe.quantize input(%narrow : tensor<4x64xbf16>) outs(%v : tensor<4x64xf8E4M3FN>) scales(%s : tensor<4x1xf32>) context(%ctx) {format = "fp8_token"} -> tensor<4x64xf8E4M3FN>, tensor<4x1xf32>
  return %0#0 : tensor<4x64xf8E4M3FN>
}

//===--- what moe.dequantize made -----------------------------------------------------------------===//

// CHECK-LABEL: func.func @again_mxfp4
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<4x32xi8>, %[[S:[a-z0-9]+]]: tensor<4x2xf8E8M0FNU>
// CHECK-NEXT: return %[[V]], %[[S]]
func.func @again_mxfp4(%v: tensor<4x32xi8>, %s: tensor<4x2xf8E8M0FNU>, %ctx: !moe.context) -> (tensor<4x32xi8>, tensor<4x2xf8E8M0FNU>) {
  %x = tensor.empty() : tensor<4x64xf32>
  %w = tensor.empty() : tensor<4x32xi8>
  %t = tensor.empty() : tensor<4x2xf8E8M0FNU>
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x2xf8E8M0FNU>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "mxfp4", packing = "mega"} -> tensor<4x64xf32>
  %1:2 = moe.quantize input(%0 : tensor<4x64xf32>) outs(%w : tensor<4x32xi8>) scales(%t : tensor<4x2xf8E8M0FNU>) context(%ctx)
    {format = "mxfp4", packing = "mega", scale_rounding = "even"} -> tensor<4x32xi8>, tensor<4x2xf8E8M0FNU>
  return %1#0, %1#1 : tensor<4x32xi8>, tensor<4x2xf8E8M0FNU>
}

// Through bf16, and through f32 that is rounded to bf16 and widened again.
// CHECK-LABEL: func.func @again_mxfp4_in_bf16
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<?x32xi8>, %[[S:[a-z0-9]+]]: tensor<?x2xi8>
// CHECK-NEXT: return %[[V]], %[[S]], %[[V]]
func.func @again_mxfp4_in_bf16(%v: tensor<?x32xi8>, %s: tensor<?x2xi8>, %n: index, %ctx: !moe.context) -> (tensor<?x32xi8>, tensor<?x2xi8>, tensor<?x32xi8>) {
  %x = tensor.empty(%n) : tensor<?x64xbf16>
  %y = tensor.empty(%n) : tensor<?x64xf32>
  %w = tensor.empty(%n) : tensor<?x32xi8>
  %t = tensor.empty(%n) : tensor<?x2xi8>
  %0 = moe.dequantize values(%v : tensor<?x32xi8>) scales(%s : tensor<?x2xi8>) outs(%x : tensor<?x64xbf16>) context(%ctx) {format = "mxfp4"} -> tensor<?x64xbf16>
  %1:2 = moe.quantize input(%0 : tensor<?x64xbf16>) outs(%w : tensor<?x32xi8>) scales(%t : tensor<?x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"}
    -> tensor<?x32xi8>, tensor<?x2xi8>
  %2 = moe.dequantize values(%v : tensor<?x32xi8>) scales(%s : tensor<?x2xi8>) outs(%y : tensor<?x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<?x64xf32>
  %3 = arith.truncf %2 : tensor<?x64xf32> to tensor<?x64xbf16>
  %4 = arith.extf %3 : tensor<?x64xbf16> to tensor<?x64xf32>
  %5:2 = moe.quantize input(%4 : tensor<?x64xf32>) outs(%w : tensor<?x32xi8>) scales(%t : tensor<?x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"}
    -> tensor<?x32xi8>, tensor<?x2xi8>
  return %1#0, %1#1, %5#0 : tensor<?x32xi8>, tensor<?x2xi8>, tensor<?x32xi8>
}

// A padded layout, where nothing is padding.
// CHECK-LABEL: func.func @again_without_padding
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<8x64xi8>, %[[S:[a-z0-9]+]]: tensor<8x4xi8>
// CHECK-NEXT: return %[[V]], %[[S]]
func.func @again_without_padding(%v: tensor<8x64xi8>, %s: tensor<8x4xi8>, %ctx: !moe.context) -> (tensor<8x64xi8>, tensor<8x4xi8>) {
  %x = tensor.empty() : tensor<8x128xf32>
  %w = tensor.empty() : tensor<8x64xi8>
  %t = tensor.empty() : tensor<8x4xi8>
  %0 = moe.dequantize values(%v : tensor<8x64xi8>) scales(%s : tensor<8x4xi8>) outs(%x : tensor<8x128xf32>) context(%ctx) {format = "mxfp4", scale_layout = "8x4"} -> tensor<8x128xf32>
  %1:2 = moe.quantize input(%0 : tensor<8x128xf32>) outs(%w : tensor<8x64xi8>) scales(%t : tensor<8x4xi8>) context(%ctx)
    {format = "mxfp4", scale_layout = "8x4", scale_rounding = "even"} -> tensor<8x64xi8>, tensor<8x4xi8>
  return %1#0, %1#1 : tensor<8x64xi8>, tensor<8x4xi8>
}

// The caller's destinations are written: it does not look into the inputs for the results.
// CHECK-LABEL: func.func @destinations_of_the_caller
// CHECK-COUNT-3: moe.quantize
func.func @destinations_of_the_caller(%v: tensor<4x32xi8>, %s: tensor<4x2xi8>, %w: tensor<4x32xi8>, %t: tensor<4x2xi8>, %ctx: !moe.context)
    -> (tensor<4x32xi8>, tensor<4x2xi8>, tensor<4x32xi8>, tensor<4x2xi8>) {
  %x = tensor.empty() : tensor<4x64xf32>
  %w1 = tensor.empty() : tensor<4x32xi8>
  %t1 = tensor.empty() : tensor<4x2xi8>
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x2xi8>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xf32>
  %1:2 = moe.quantize input(%0 : tensor<4x64xf32>) outs(%w : tensor<4x32xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"} -> tensor<4x32xi8>, tensor<4x2xi8>
  %2:2 = moe.quantize input(%0 : tensor<4x64xf32>) outs(%w : tensor<4x32xi8>) scales(%t1 : tensor<4x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"} -> tensor<4x32xi8>, tensor<4x2xi8>
  %3:2 = moe.quantize input(%0 : tensor<4x64xf32>) outs(%w1 : tensor<4x32xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"} -> tensor<4x32xi8>, tensor<4x2xi8>
  return %1#0, %1#1, %2#0, %3#1 : tensor<4x32xi8>, tensor<4x2xi8>, tensor<4x32xi8>, tensor<4x2xi8>
}

// The result's padding would not be zero: of tokens, of blocks, and perhaps where the number of tokens is not known.
// CHECK-LABEL: func.func @padding
// CHECK-COUNT-3: moe.quantize
func.func @padding(%v: tensor<7x64xi8>, %s: tensor<8x4xi8>, %v3: tensor<8x48xi8>, %vd: tensor<?x64xi8>, %sd: tensor<?x4xi8>, %n: index, %ctx: !moe.context)
    -> (tensor<8x4xi8>, tensor<8x4xi8>, tensor<?x4xi8>) {
  %x = tensor.empty() : tensor<7x128xf32>
  %w = tensor.empty() : tensor<7x64xi8>
  %t = tensor.empty() : tensor<8x4xi8>
  %0 = moe.dequantize values(%v : tensor<7x64xi8>) scales(%s : tensor<8x4xi8>) outs(%x : tensor<7x128xf32>) context(%ctx) {format = "mxfp4", scale_layout = "8x4"} -> tensor<7x128xf32>
  %1:2 = moe.quantize input(%0 : tensor<7x128xf32>) outs(%w : tensor<7x64xi8>) scales(%t : tensor<8x4xi8>) context(%ctx) {format = "mxfp4", scale_layout = "8x4", scale_rounding = "even"} -> tensor<7x64xi8>, tensor<8x4xi8>
  %x3 = tensor.empty() : tensor<8x96xf32>
  %w3 = tensor.empty() : tensor<8x48xi8>
  %2 = moe.dequantize values(%v3 : tensor<8x48xi8>) scales(%s : tensor<8x4xi8>) outs(%x3 : tensor<8x96xf32>) context(%ctx) {format = "mxfp4", scale_layout = "8x4"} -> tensor<8x96xf32>
  %3:2 = moe.quantize input(%2 : tensor<8x96xf32>) outs(%w3 : tensor<8x48xi8>) scales(%t : tensor<8x4xi8>) context(%ctx) {format = "mxfp4", scale_layout = "8x4", scale_rounding = "even"} -> tensor<8x48xi8>, tensor<8x4xi8>
  %xd = tensor.empty(%n) : tensor<?x128xf32>
  %wd = tensor.empty(%n) : tensor<?x64xi8>
  %td = tensor.empty(%n) : tensor<?x4xi8>
  %4 = moe.dequantize values(%vd : tensor<?x64xi8>) scales(%sd : tensor<?x4xi8>) outs(%xd : tensor<?x128xf32>) context(%ctx) {format = "mxfp4", scale_layout = "128x4"} -> tensor<?x128xf32>
  %5:2 = moe.quantize input(%4 : tensor<?x128xf32>) outs(%wd : tensor<?x64xi8>) scales(%td : tensor<?x4xi8>) context(%ctx) {format = "mxfp4", scale_layout = "128x4", scale_rounding = "even"} -> tensor<?x64xi8>, tensor<?x4xi8>
  return %1#1, %3#1, %5#1 : tensor<8x4xi8>, tensor<8x4xi8>, tensor<?x4xi8>
}

// CHECK-LABEL: func.func @again_rounded_up
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<4x64xi8>, %[[S:[a-z0-9]+]]: tensor<4x2xi8>, %[[V4:[a-z0-9]+]]: tensor<4x32xi8>
// CHECK-NEXT: return %[[V4]], %[[V]], %[[S]]
func.func @again_rounded_up(%v: tensor<4x64xi8>, %s: tensor<4x2xi8>, %v4: tensor<4x32xi8>, %ctx: !moe.context) -> (tensor<4x32xi8>, tensor<4x64xi8>, tensor<4x2xi8>) {
  %x4 = tensor.empty() : tensor<4x64xbf16>
  %x = tensor.empty() : tensor<4x64xf32>
  %w4 = tensor.empty() : tensor<4x32xi8>
  %w = tensor.empty() : tensor<4x64xi8>
  %t = tensor.empty() : tensor<4x2xi8>
  %0 = moe.dequantize values(%v4 : tensor<4x32xi8>) scales(%s : tensor<4x2xi8>) outs(%x4 : tensor<4x64xbf16>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xbf16>
  %1:2 = moe.quantize input(%0 : tensor<4x64xbf16>) outs(%w4 : tensor<4x32xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp4"} -> tensor<4x32xi8>, tensor<4x2xi8>
  %2 = moe.dequantize values(%v : tensor<4x64xi8>) scales(%s : tensor<4x2xi8>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "mxfp8"} -> tensor<4x64xf32>
  %3:2 = moe.quantize input(%2 : tensor<4x64xf32>) outs(%w : tensor<4x64xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp8"} -> tensor<4x64xi8>, tensor<4x2xi8>
  return %1#0, %3#0, %3#1 : tensor<4x32xi8>, tensor<4x64xi8>, tensor<4x2xi8>
}

// Where a block's largest code can be one that the encoder does not reach.
// CHECK-LABEL: func.func @other_formats
// CHECK-COUNT-4: moe.quantize
func.func @other_formats(%v: tensor<4x64xi8>, %s: tensor<4x2xi8>, %v4: tensor<4x32xi8>, %s4: tensor<4x4xi8>, %f: tensor<4x1xf32>, %ctx: !moe.context)
    -> (tensor<4x32xi8>, tensor<4x64xi8>, tensor<4x64xi8>, tensor<4x64xi8>) {
  %x = tensor.empty() : tensor<4x64xf32>
  %b = tensor.empty() : tensor<4x64xbf16>
  %w4 = tensor.empty() : tensor<4x32xi8>
  %t4 = tensor.empty() : tensor<4x4xi8>
  %w = tensor.empty() : tensor<4x64xi8>
  %t = tensor.empty() : tensor<4x2xi8>
  %h = tensor.empty() : tensor<4x1xf32>
  %0 = moe.dequantize values(%v4 : tensor<4x32xi8>) scales(%s4 : tensor<4x4xi8>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "nvfp4"} -> tensor<4x64xf32>
  %1:2 = moe.quantize input(%0 : tensor<4x64xf32>) outs(%w4 : tensor<4x32xi8>) scales(%t4 : tensor<4x4xi8>) context(%ctx) {format = "nvfp4"} -> tensor<4x32xi8>, tensor<4x4xi8>
  %2 = moe.dequantize values(%v : tensor<4x64xi8>) scales(%s : tensor<4x2xi8>) outs(%b : tensor<4x64xbf16>) context(%ctx) {format = "mxfp8"} -> tensor<4x64xbf16>
  %3:2 = moe.quantize input(%2 : tensor<4x64xbf16>) outs(%w : tensor<4x64xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp8"} -> tensor<4x64xi8>, tensor<4x2xi8>
  %4 = moe.dequantize values(%v : tensor<4x64xi8>) scales(%s : tensor<4x2xi8>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "mxfp8"} -> tensor<4x64xf32>
  %5:2 = moe.quantize input(%4 : tensor<4x64xf32>) outs(%w : tensor<4x64xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp8", scale_rounding = "even"} -> tensor<4x64xi8>, tensor<4x2xi8>
  %6 = moe.dequantize values(%v : tensor<4x64xi8>) scales(%f : tensor<4x1xf32>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "fp8_block"} -> tensor<4x64xf32>
  %7:2 = moe.quantize input(%6 : tensor<4x64xf32>) outs(%w : tensor<4x64xi8>) scales(%h : tensor<4x1xf32>) context(%ctx) {format = "fp8_block"} -> tensor<4x64xi8>, tensor<4x1xf32>
  return %1#0, %3#0, %5#0, %7#0 : tensor<4x32xi8>, tensor<4x64xi8>, tensor<4x64xi8>, tensor<4x64xi8>
}

// f16 does not hold every product.
// CHECK-LABEL: func.func @rounded_between
// CHECK: moe.quantize
func.func @rounded_between(%v: tensor<4x32xi8>, %s: tensor<4x2xi8>, %ctx: !moe.context) -> tensor<4x32xi8> {
  %x = tensor.empty() : tensor<4x64xf16>
  %w = tensor.empty() : tensor<4x32xi8>
  %t = tensor.empty() : tensor<4x2xi8>
  %0 = moe.dequantize values(%v : tensor<4x32xi8>) scales(%s : tensor<4x2xi8>) outs(%x : tensor<4x64xf16>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xf16>
  %1:2 = moe.quantize input(%0 : tensor<4x64xf16>) outs(%w : tensor<4x32xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"}
    -> tensor<4x32xi8>, tensor<4x2xi8>
  return %1#0 : tensor<4x32xi8>
}

// Another format, layout or packing; destinations of another type.
// CHECK-LABEL: func.func @differ
// CHECK-COUNT-4: moe.quantize
func.func @differ(%v: tensor<128x64xi8>, %s: tensor<128x4xi8>, %ctx: !moe.context) -> (tensor<128x128xi8>, tensor<128x64xi8>, tensor<128x64xi8>, tensor<128x64xi8>) {
  %x = tensor.empty() : tensor<128x128xf32>
  %w = tensor.empty() : tensor<128x64xi8>
  %w8 = tensor.empty() : tensor<128x128xi8>
  %t = tensor.empty() : tensor<128x4xi8>
  %u = tensor.empty() : tensor<128x4xf8E8M0FNU>
  %0 = moe.dequantize values(%v : tensor<128x64xi8>) scales(%s : tensor<128x4xi8>) outs(%x : tensor<128x128xf32>) context(%ctx) {format = "mxfp4"} -> tensor<128x128xf32>
  %1:2 = moe.quantize input(%0 : tensor<128x128xf32>) outs(%w8 : tensor<128x128xi8>) scales(%t : tensor<128x4xi8>) context(%ctx) {format = "mxfp8"} -> tensor<128x128xi8>, tensor<128x4xi8>
  %2:2 = moe.quantize input(%0 : tensor<128x128xf32>) outs(%w : tensor<128x64xi8>) scales(%t : tensor<128x4xi8>) context(%ctx) {format = "mxfp4", scale_layout = "128x4", scale_rounding = "even"} -> tensor<128x64xi8>, tensor<128x4xi8>
  %3:2 = moe.quantize input(%0 : tensor<128x128xf32>) outs(%w : tensor<128x64xi8>) scales(%t : tensor<128x4xi8>) context(%ctx) {format = "mxfp4", packing = "mega", scale_rounding = "even"} -> tensor<128x64xi8>, tensor<128x4xi8>
  %4:2 = moe.quantize input(%0 : tensor<128x128xf32>) outs(%w : tensor<128x64xi8>) scales(%u : tensor<128x4xf8E8M0FNU>) context(%ctx) {format = "mxfp4", scale_rounding = "even"} -> tensor<128x64xi8>, tensor<128x4xf8E8M0FNU>
  return %1#0, %2#0, %3#0, %4#0 : tensor<128x128xi8>, tensor<128x64xi8>, tensor<128x64xi8>, tensor<128x64xi8>
}

// The caller finds the results in the memory that it gave.
// CHECK-LABEL: func.func @in_memory
// CHECK: moe.dequantize
// CHECK: moe.quantize
func.func @in_memory(%v: memref<?x32xi8>, %s: memref<?x2xi8>, %x: memref<?x64xf32>, %w: memref<?x32xi8>, %t: memref<?x2xi8>, %ctx: !moe.context) {
  moe.dequantize values(%v : memref<?x32xi8>) scales(%s : memref<?x2xi8>) outs(%x : memref<?x64xf32>) context(%ctx) {format = "mxfp4"}
  moe.quantize input(%x : memref<?x64xf32>) outs(%w : memref<?x32xi8>) scales(%t : memref<?x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"}
  return
}

// Where order does not count, values can go round in a circle.
// CHECK-LABEL: module @circle
// CHECK: moe.dequantize
// CHECK: moe.quantize
module @circle {
  %ctx = builtin.unrealized_conversion_cast to !moe.context
  %x = tensor.empty() : tensor<4x64xf32>
  %w = tensor.empty() : tensor<4x32xi8>
  %t = tensor.empty() : tensor<4x2xi8>
  %0 = moe.dequantize values(%1#0 : tensor<4x32xi8>) scales(%1#1 : tensor<4x2xi8>) outs(%x : tensor<4x64xf32>) context(%ctx) {format = "mxfp4"} -> tensor<4x64xf32>
  %1:2 = moe.quantize input(%0 : tensor<4x64xf32>) outs(%w : tensor<4x32xi8>) scales(%t : tensor<4x2xi8>) context(%ctx) {format = "mxfp4", scale_rounding = "even"} -> tensor<4x32xi8>, tensor<4x2xi8>
  func.call @use(%1#0) : (tensor<4x32xi8>) -> ()
  func.func private @use(tensor<4x32xi8>)
}

// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/quantized.py %t

// All formats. Ranks have their own tokens; one may have none. What pads the scales, or stands between rows of codes, counts nothing.
// DEFINE: %{ranks} = 1
// DEFINE: %{run} = moe-run %t.so --quiet --ranks %{ranks} --repeat 3
// DEFINE: %{four} = --function nvfp4 --input nvfp4_apart=%t/%{ranks}/nvfp4_apart{rank}.npy --input nvfp4_stuffed=%t/%{ranks}/nvfp4_stuffed{rank}.npy --input nvfp4_g=%t/%{ranks}/nvfp4_g{rank}.npy \
// DEFINE:   --expect nvfp4_out=%t/%{ranks}/nvfp4_out{rank}.npy \
// DEFINE:   --function mxfp4 --input mxfp4_apart=%t/%{ranks}/mxfp4_apart{rank}.npy --input mxfp4_stuffed=%t/%{ranks}/mxfp4_stuffed{rank}.npy \
// DEFINE:   --expect mxfp4_out=%t/%{ranks}/mxfp4_out{rank}.npy
// DEFINE: %{eight} = --function mxfp8 --input mxfp8_apart=%t/%{ranks}/mxfp8_apart{rank}.npy --input mxfp8_stuffed=%t/%{ranks}/mxfp8_stuffed{rank}.npy \
// DEFINE:   --expect mxfp8_out=%t/%{ranks}/mxfp8_out{rank}.npy \
// DEFINE:   --function fp8_block --input fp8_block_apart=%t/%{ranks}/fp8_block_apart{rank}.npy --input fp8_block_stuffed=%t/%{ranks}/fp8_block_stuffed{rank}.npy \
// DEFINE:   --expect fp8_block_out=%t/%{ranks}/fp8_block_out{rank}.npy \
// DEFINE:   --function fp8_token --input fp8_token_apart=%t/%{ranks}/fp8_token_apart{rank}.npy --input fp8_token_stuffed=%t/%{ranks}/fp8_token_stuffed{rank}.npy \
// DEFINE:   --expect fp8_token_out=%t/%{ranks}/fp8_token_out{rank}.npy \
// DEFINE:   --function fp8_tensor --input fp8_tensor_apart=%t/%{ranks}/fp8_tensor_apart{rank}.npy --input fp8_tensor_stuffed=%t/%{ranks}/fp8_tensor_stuffed{rank}.npy \
// DEFINE:   --expect fp8_tensor_out=%t/%{ranks}/fp8_tensor_out{rank}.npy \
// DEFINE:   --function fp8_static --input fp8_static_apart=%t/%{ranks}/fp8_static_apart{rank}.npy --input fp8_static_g=%t/%{ranks}/fp8_static_g{rank}.npy \
// DEFINE:   --expect fp8_static_out=%t/%{ranks}/fp8_static_out{rank}.npy
// RUN: %{run} %{four} %{eight}
// REDEFINE: %{ranks} = 2
// RUN: %{run} %{four} %{eight}
// REDEFINE: %{ranks} = 4
// RUN: %{run} %{four} %{eight}

// Numbers that a graph quantizes itself: codes and scales lie in the arena.
// DEFINE: %{both} = --function nvfp4_both --input nvfp4_x=%t/%{ranks}/nvfp4_x{rank}.npy --input nvfp4_both_g=%t/%{ranks}/nvfp4_g{rank}.npy --expect nvfp4_both_out=%t/%{ranks}/nvfp4_out{rank}.npy \
// DEFINE:   --function mxfp4_both --input mxfp4_x=%t/%{ranks}/mxfp4_x{rank}.npy --expect mxfp4_both_out=%t/%{ranks}/mxfp4_out{rank}.npy \
// DEFINE:   --function mxfp8_both --input mxfp8_x=%t/%{ranks}/mxfp8_x{rank}.npy --expect mxfp8_both_out=%t/%{ranks}/mxfp8_out{rank}.npy \
// DEFINE:   --function fp8_block_both --input fp8_block_x=%t/%{ranks}/fp8_block_x{rank}.npy --expect fp8_block_both_out=%t/%{ranks}/fp8_block_out{rank}.npy \
// DEFINE:   --function fp8_token_both --input fp8_token_x=%t/%{ranks}/fp8_token_x{rank}.npy --expect fp8_token_both_out=%t/%{ranks}/fp8_token_out{rank}.npy \
// DEFINE:   --function fp8_tensor_both --input fp8_tensor_x=%t/%{ranks}/fp8_tensor_x{rank}.npy --expect fp8_tensor_both_out=%t/%{ranks}/fp8_tensor_out{rank}.npy \
// DEFINE:   --function fp8_static_both --input fp8_static_x=%t/%{ranks}/fp8_static_x{rank}.npy --input fp8_static_both_g=%t/%{ranks}/fp8_static_g{rank}.npy --expect fp8_static_both_out=%t/%{ranks}/fp8_static_out{rank}.npy
// REDEFINE: %{ranks} = 1
// RUN: %{run} %{both}
// REDEFINE: %{ranks} = 2
// RUN: %{run} %{both}
// REDEFINE: %{ranks} = 4
// RUN: %{run} %{both}

// The comparison sees a difference.
// RUN: not moe-run %t.so --function fp8_static --input fp8_static_apart=%t/1/fp8_static_apart0.npy --input fp8_static_g=%t/1/nvfp4_g0.npy --expect fp8_static_out=%t/1/fp8_static_out0.npy | FileCheck %s --check-prefix=DIFFERS
// DIFFERS: differs from

// What the compiler cannot know the run time checks.
// RUN: not moe-run %t.so --function mxfp8 --input mxfp8_apart=%t/1/mxfp8_apart0.npy --size Q=16 --random 1 2>&1 | FileCheck %s
// CHECK: moe-run: rank 0: mxfp8: MOERT_ERROR_INVALID_SHAPE {{.*}}: moe.dequantize: operand 'scales' dimension 0 is 16, must equal dimension 0 of 'out' up to a multiple of 8 = 8{{$}}

func.func @nvfp4(%values: tensor<?x32xi8> {moe.name = "nvfp4_apart", moe.dims = ["T"]},
                 %scales: tensor<?x4xf8E4M3FN> {moe.name = "nvfp4_stuffed", moe.dims = ["T"]}, %g: tensor<1xf32> {moe.name = "nvfp4_g"},
                 %out: tensor<?x64xf32> {moe.name = "nvfp4_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x64xf32> {
  %0 = moe.dequantize values(%values : tensor<?x32xi8>) scales(%scales : tensor<?x4xf8E4M3FN>) global_scale(%g : tensor<1xf32>)
    outs(%out : tensor<?x64xf32>) context(%ctx) {format = "nvfp4"} -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

func.func @nvfp4_both(%x: tensor<?x64xbf16> {moe.name = "nvfp4_x", moe.dims = ["T"]}, %g: tensor<1xf32> {moe.name = "nvfp4_both_g"},
                      %out: tensor<?x64xf32> {moe.name = "nvfp4_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x64xbf16>
  %codes = tensor.empty(%tokens) : tensor<?x32xi8>
  %factors = tensor.empty(%tokens) : tensor<?x4xf8E4M3FN>
  %q:2 = moe.quantize input(%x : tensor<?x64xbf16>) global_scale(%g : tensor<1xf32>) outs(%codes : tensor<?x32xi8>)
    scales(%factors : tensor<?x4xf8E4M3FN>) context(%ctx) {format = "nvfp4"} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
  %y = moe.dequantize values(%q#0 : tensor<?x32xi8>) scales(%q#1 : tensor<?x4xf8E4M3FN>) global_scale(%g : tensor<1xf32>)
    outs(%out : tensor<?x64xf32>) context(%ctx) {format = "nvfp4"} -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

func.func @mxfp4(%values: tensor<?x48xui8> {moe.name = "mxfp4_apart", moe.dims = ["T"]},
                 %scales: tensor<?x4xui8> {moe.name = "mxfp4_stuffed", moe.dims = ["P"]},
                 %out: tensor<?x96xbf16> {moe.name = "mxfp4_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x96xbf16> {
  %0 = moe.dequantize values(%values : tensor<?x48xui8>) scales(%scales : tensor<?x4xui8>) outs(%out : tensor<?x96xbf16>) context(%ctx)
    {format = "mxfp4", scale_layout = "128x4", packing = "mega"} -> tensor<?x96xbf16>
  return %0 : tensor<?x96xbf16>
}

func.func @mxfp4_both(%x: tensor<?x96xf32> {moe.name = "mxfp4_x", moe.dims = ["T"]},
                      %out: tensor<?x96xbf16> {moe.name = "mxfp4_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x96xbf16> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x96xf32>
  %codes = tensor.empty(%tokens) : tensor<?x48xui8>
  %unit = arith.constant 128 : index
  %less = arith.constant 127 : index
  %more = arith.addi %tokens, %less : index
  %tiles = arith.divui %more, %unit : index
  %rows = arith.muli %tiles, %unit : index
  %factors = tensor.empty(%rows) : tensor<?x4xui8>
  %q:2 = moe.quantize input(%x : tensor<?x96xf32>) outs(%codes : tensor<?x48xui8>) scales(%factors : tensor<?x4xui8>) context(%ctx)
    {format = "mxfp4", scale_layout = "128x4", packing = "mega", scale_rounding = "even"} -> tensor<?x48xui8>, tensor<?x4xui8>
  %y = moe.dequantize values(%q#0 : tensor<?x48xui8>) scales(%q#1 : tensor<?x4xui8>) outs(%out : tensor<?x96xbf16>) context(%ctx)
    {format = "mxfp4", scale_layout = "128x4", packing = "mega"} -> tensor<?x96xbf16>
  return %y : tensor<?x96xbf16>
}

func.func @mxfp8(%values: tensor<?x64xf8E4M3FN> {moe.name = "mxfp8_apart", moe.dims = ["T"]},
                 %scales: tensor<?x4xf8E8M0FNU> {moe.name = "mxfp8_stuffed", moe.dims = ["Q"]},
                 %out: tensor<?x64xf16> {moe.name = "mxfp8_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x64xf16> {
  %0 = moe.dequantize values(%values : tensor<?x64xf8E4M3FN>) scales(%scales : tensor<?x4xf8E8M0FNU>) outs(%out : tensor<?x64xf16>) context(%ctx)
    {format = "mxfp8", scale_layout = "8x4"} -> tensor<?x64xf16>
  return %0 : tensor<?x64xf16>
}

func.func @mxfp8_both(%x: tensor<?x64xf16> {moe.name = "mxfp8_x", moe.dims = ["T"]},
                      %out: tensor<?x64xf16> {moe.name = "mxfp8_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x64xf16> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x64xf16>
  %codes = tensor.empty(%tokens) : tensor<?x64xf8E4M3FN>
  %unit = arith.constant 8 : index
  %less = arith.constant 7 : index
  %more = arith.addi %tokens, %less : index
  %tiles = arith.divui %more, %unit : index
  %rows = arith.muli %tiles, %unit : index
  %factors = tensor.empty(%rows) : tensor<?x4xf8E8M0FNU>
  %q:2 = moe.quantize input(%x : tensor<?x64xf16>) outs(%codes : tensor<?x64xf8E4M3FN>) scales(%factors : tensor<?x4xf8E8M0FNU>) context(%ctx)
    {format = "mxfp8", scale_layout = "8x4"} -> tensor<?x64xf8E4M3FN>, tensor<?x4xf8E8M0FNU>
  %y = moe.dequantize values(%q#0 : tensor<?x64xf8E4M3FN>) scales(%q#1 : tensor<?x4xf8E8M0FNU>) outs(%out : tensor<?x64xf16>) context(%ctx)
    {format = "mxfp8", scale_layout = "8x4"} -> tensor<?x64xf16>
  return %y : tensor<?x64xf16>
}

func.func @fp8_block(%values: tensor<?x216xui8> {moe.name = "fp8_block_apart", moe.dims = ["T"]},
                     %scales: tensor<2x?xf32> {moe.name = "fp8_block_stuffed", moe.dims = ["R"]},
                     %out: tensor<?x200xf32> {moe.name = "fp8_block_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x200xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %values, %c0 : tensor<?x216xui8>
  %part = tensor.extract_slice %values[0, 0] [%tokens, 200] [1, 1] : tensor<?x216xui8> to tensor<?x200xui8>
  %0 = moe.dequantize values(%part : tensor<?x200xui8>) scales(%scales : tensor<2x?xf32>) outs(%out : tensor<?x200xf32>) context(%ctx)
    {format = "fp8_block", scale_layout = "transposed"} -> tensor<?x200xf32>
  return %0 : tensor<?x200xf32>
}

func.func @fp8_block_both(%x: tensor<?x216xbf16> {moe.name = "fp8_block_x", moe.dims = ["T"]},
                          %out: tensor<?x200xf32> {moe.name = "fp8_block_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x200xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x216xbf16>
  %part = tensor.extract_slice %x[0, 0] [%tokens, 200] [1, 1] : tensor<?x216xbf16> to tensor<?x200xbf16>
  %codes = tensor.empty(%tokens) : tensor<?x200xui8>
  %factors = tensor.empty(%tokens) : tensor<2x?xf32>
  %q:2 = moe.quantize input(%part : tensor<?x200xbf16>) outs(%codes : tensor<?x200xui8>) scales(%factors : tensor<2x?xf32>) context(%ctx)
    {format = "fp8_block", scale_layout = "transposed"} -> tensor<?x200xui8>, tensor<2x?xf32>
  %y = moe.dequantize values(%q#0 : tensor<?x200xui8>) scales(%q#1 : tensor<2x?xf32>) outs(%out : tensor<?x200xf32>) context(%ctx)
    {format = "fp8_block", scale_layout = "transposed"} -> tensor<?x200xf32>
  return %y : tensor<?x200xf32>
}

func.func @fp8_token(%values: tensor<?x7xi8> {moe.name = "fp8_token_apart", moe.dims = ["T"]},
                     %scales: tensor<?x1xf32> {moe.name = "fp8_token_stuffed", moe.dims = ["T"]},
                     %out: tensor<?x7xf32> {moe.name = "fp8_token_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x7xf32> {
  %0 = moe.dequantize values(%values : tensor<?x7xi8>) scales(%scales : tensor<?x1xf32>) outs(%out : tensor<?x7xf32>) context(%ctx)
    {format = "fp8_token"} -> tensor<?x7xf32>
  return %0 : tensor<?x7xf32>
}

func.func @fp8_token_both(%x: tensor<?x7xf32> {moe.name = "fp8_token_x", moe.dims = ["T"]},
                          %out: tensor<?x7xf32> {moe.name = "fp8_token_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x7xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x7xf32>
  %codes = tensor.empty(%tokens) : tensor<?x7xi8>
  %factors = tensor.empty(%tokens) : tensor<?x1xf32>
  %q:2 = moe.quantize input(%x : tensor<?x7xf32>) outs(%codes : tensor<?x7xi8>) scales(%factors : tensor<?x1xf32>) context(%ctx)
    {format = "fp8_token"} -> tensor<?x7xi8>, tensor<?x1xf32>
  %y = moe.dequantize values(%q#0 : tensor<?x7xi8>) scales(%q#1 : tensor<?x1xf32>) outs(%out : tensor<?x7xf32>) context(%ctx)
    {format = "fp8_token"} -> tensor<?x7xf32>
  return %y : tensor<?x7xf32>
}

func.func @fp8_tensor(%values: tensor<?x24xf8E4M3FN> {moe.name = "fp8_tensor_apart", moe.dims = ["T"]},
                      %scales: tensor<1x1xf32> {moe.name = "fp8_tensor_stuffed"},
                      %out: tensor<?x24xf32> {moe.name = "fp8_tensor_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x24xf32> {
  %0 = moe.dequantize values(%values : tensor<?x24xf8E4M3FN>) scales(%scales : tensor<1x1xf32>) outs(%out : tensor<?x24xf32>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xf32>
  return %0 : tensor<?x24xf32>
}

func.func @fp8_tensor_both(%x: tensor<?x24xbf16> {moe.name = "fp8_tensor_x", moe.dims = ["T"]},
                           %out: tensor<?x24xf32> {moe.name = "fp8_tensor_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x24xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x24xbf16>
  %codes = tensor.empty(%tokens) : tensor<?x24xf8E4M3FN>
  %factors = tensor.empty() : tensor<1x1xf32>
  %q:2 = moe.quantize input(%x : tensor<?x24xbf16>) outs(%codes : tensor<?x24xf8E4M3FN>) scales(%factors : tensor<1x1xf32>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xf8E4M3FN>, tensor<1x1xf32>
  %y = moe.dequantize values(%q#0 : tensor<?x24xf8E4M3FN>) scales(%q#1 : tensor<1x1xf32>) outs(%out : tensor<?x24xf32>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}

func.func @fp8_static(%values: tensor<?x24xi8> {moe.name = "fp8_static_apart", moe.dims = ["T"]}, %g: tensor<1xf32> {moe.name = "fp8_static_g"},
                      %out: tensor<?x24xf32> {moe.name = "fp8_static_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x24xf32> {
  %0 = moe.dequantize values(%values : tensor<?x24xi8>) global_scale(%g : tensor<1xf32>) outs(%out : tensor<?x24xf32>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xf32>
  return %0 : tensor<?x24xf32>
}

func.func @fp8_static_both(%x: tensor<?x24xf32> {moe.name = "fp8_static_x", moe.dims = ["T"]}, %g: tensor<1xf32> {moe.name = "fp8_static_both_g"},
                           %out: tensor<?x24xf32> {moe.name = "fp8_static_both_out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x24xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x24xf32>
  %codes = tensor.empty(%tokens) : tensor<?x24xi8>
  %q = moe.quantize input(%x : tensor<?x24xf32>) global_scale(%g : tensor<1xf32>) outs(%codes : tensor<?x24xi8>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xi8>
  %y = moe.dequantize values(%q : tensor<?x24xi8>) global_scale(%g : tensor<1xf32>) outs(%out : tensor<?x24xf32>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}

// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/quantized.py %t

// All formats. Ranks have their own tokens; one may have none. Scales with padding come poisoned, and leave with zeros.
// DEFINE: %{ranks} = 1
// DEFINE: %{run} = moe-run %t.so --quiet --ranks %{ranks} --repeat 3
// DEFINE: %{four} = --function nvfp4 --input nvfp4_x=%t/%{ranks}/nvfp4_x{rank}.npy --input nvfp4_g=%t/%{ranks}/nvfp4_g{rank}.npy \
// DEFINE:   --expect nvfp4_values=%t/%{ranks}/nvfp4_values{rank}.npy --expect nvfp4_scales=%t/%{ranks}/nvfp4_scales{rank}.npy \
// DEFINE:   --function mxfp4 --input mxfp4_x=%t/%{ranks}/mxfp4_x{rank}.npy --input mxfp4_scales=%t/%{ranks}/mxfp4_poison{rank}.npy \
// DEFINE:   --expect mxfp4_values=%t/%{ranks}/mxfp4_values{rank}.npy --expect mxfp4_scales=%t/%{ranks}/mxfp4_scales{rank}.npy
// DEFINE: %{eight} = --function mxfp8 --input mxfp8_x=%t/%{ranks}/mxfp8_x{rank}.npy --input mxfp8_scales=%t/%{ranks}/mxfp8_poison{rank}.npy \
// DEFINE:   --expect mxfp8_values=%t/%{ranks}/mxfp8_values{rank}.npy --expect mxfp8_scales=%t/%{ranks}/mxfp8_scales{rank}.npy \
// DEFINE:   --function fp8_block --input fp8_block_x=%t/%{ranks}/fp8_block_x{rank}.npy --input fp8_block_scales=%t/%{ranks}/fp8_block_poison{rank}.npy \
// DEFINE:   --expect fp8_block_values=%t/%{ranks}/fp8_block_values{rank}.npy --expect fp8_block_scales=%t/%{ranks}/fp8_block_scales{rank}.npy \
// DEFINE:   --function fp8_token --input fp8_token_x=%t/%{ranks}/fp8_token_x{rank}.npy \
// DEFINE:   --expect fp8_token_values=%t/%{ranks}/fp8_token_values{rank}.npy --expect fp8_token_scales=%t/%{ranks}/fp8_token_scales{rank}.npy
// DEFINE: %{tensor} = --function fp8_tensor --input fp8_tensor_x=%t/%{ranks}/fp8_tensor_x{rank}.npy \
// DEFINE:   --expect fp8_tensor_values=%t/%{ranks}/fp8_tensor_values{rank}.npy --expect fp8_tensor_scales=%t/%{ranks}/fp8_tensor_scales{rank}.npy \
// DEFINE:   --function fp8_static --input fp8_static_x=%t/%{ranks}/fp8_static_x{rank}.npy --input fp8_static_g=%t/%{ranks}/fp8_static_g{rank}.npy \
// DEFINE:   --expect fp8_static_values=%t/%{ranks}/fp8_static_values{rank}.npy
// RUN: %{run} %{four} %{eight} %{tensor}
// REDEFINE: %{ranks} = 2
// RUN: %{run} %{four} %{eight} %{tensor}
// REDEFINE: %{ranks} = 4
// RUN: %{run} %{four} %{eight} %{tensor}

// The comparison sees a difference.
// RUN: not moe-run %t.so --function fp8_static --input fp8_static_x=%t/1/fp8_static_x0.npy --input fp8_static_g=%t/1/nvfp4_g0.npy --expect fp8_static_values=%t/1/fp8_static_values0.npy | FileCheck %s --check-prefix=DIFFERS
// RUN: not moe-run %t.so --function mxfp4 --input mxfp4_x=%t/1/mxfp4_x0.npy --input mxfp4_scales=%t/1/mxfp4_poison0.npy --expect mxfp4_scales=%t/1/mxfp4_stuffed0.npy | FileCheck %s --check-prefix=DIFFERS
// DIFFERS: differs from

// What the compiler cannot know the run time checks.
// RUN: not moe-run %t.so --function mxfp4 --input mxfp4_x=%t/1/mxfp4_x0.npy --size P=8 --random 1 2>&1 | FileCheck %s
// CHECK: moe-run: rank 0: mxfp4: MOERT_ERROR_INVALID_SHAPE {{.*}}: moe.quantize: operand 'scales' dimension 0 is 8, must equal dimension 0 of 'input' up to a multiple of 128 = 128{{$}}

func.func @nvfp4(%x: tensor<?x64xbf16> {moe.name = "nvfp4_x", moe.dims = ["T"]}, %g: tensor<1xf32> {moe.name = "nvfp4_g"},
                 %values: tensor<?x32xi8> {moe.name = "nvfp4_values", moe.dims = ["T"]}, %scales: tensor<?x4xf8E4M3FN> {moe.name = "nvfp4_scales", moe.dims = ["T"]},
                 %ctx: !moe.context) -> (tensor<?x32xi8>, tensor<?x4xf8E4M3FN>) {
  %0:2 = moe.quantize input(%x : tensor<?x64xbf16>) global_scale(%g : tensor<1xf32>) outs(%values : tensor<?x32xi8>) scales(%scales : tensor<?x4xf8E4M3FN>)
    context(%ctx) {format = "nvfp4"} -> tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
  return %0#0, %0#1 : tensor<?x32xi8>, tensor<?x4xf8E4M3FN>
}

func.func @mxfp4(%x: tensor<?x96xf32> {moe.name = "mxfp4_x", moe.dims = ["T"]}, %values: tensor<?x48xui8> {moe.name = "mxfp4_values", moe.dims = ["T"]},
                 %scales: tensor<?x4xui8> {moe.name = "mxfp4_scales", moe.dims = ["P"], moe.role = "inout"}, %ctx: !moe.context) -> (tensor<?x48xui8>, tensor<?x4xui8>) {
  %0:2 = moe.quantize input(%x : tensor<?x96xf32>) outs(%values : tensor<?x48xui8>) scales(%scales : tensor<?x4xui8>) context(%ctx)
    {format = "mxfp4", scale_layout = "128x4", packing = "mega", scale_rounding = "even"} -> tensor<?x48xui8>, tensor<?x4xui8>
  return %0#0, %0#1 : tensor<?x48xui8>, tensor<?x4xui8>
}

func.func @mxfp8(%x: tensor<?x64xf16> {moe.name = "mxfp8_x", moe.dims = ["T"]}, %values: tensor<?x64xui8> {moe.name = "mxfp8_values", moe.dims = ["T"]},
                 %scales: tensor<?x4xf8E8M0FNU> {moe.name = "mxfp8_scales", moe.dims = ["Q"], moe.role = "inout"}, %ctx: !moe.context)
    -> (tensor<?x64xui8>, tensor<?x4xf8E8M0FNU>) {
  %0:2 = moe.quantize input(%x : tensor<?x64xf16>) outs(%values : tensor<?x64xui8>) scales(%scales : tensor<?x4xf8E8M0FNU>) context(%ctx)
    {format = "mxfp8", scale_layout = "8x4"} -> tensor<?x64xui8>, tensor<?x4xf8E8M0FNU>
  return %0#0, %0#1 : tensor<?x64xui8>, tensor<?x4xf8E8M0FNU>
}

// Rows that lie apart, and more room for scales than there are tokens.
func.func @fp8_block(%x: tensor<?x216xbf16> {moe.name = "fp8_block_x", moe.dims = ["T"]}, %values: tensor<?x200xf8E4M3FN> {moe.name = "fp8_block_values", moe.dims = ["T"]},
                     %scales: tensor<2x?xf32> {moe.name = "fp8_block_scales", moe.dims = ["R"], moe.role = "inout"}, %ctx: !moe.context)
    -> (tensor<?x200xf8E4M3FN>, tensor<2x?xf32>) {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x216xbf16>
  %part = tensor.extract_slice %x[0, 0] [%tokens, 200] [1, 1] : tensor<?x216xbf16> to tensor<?x200xbf16>
  %0:2 = moe.quantize input(%part : tensor<?x200xbf16>) outs(%values : tensor<?x200xf8E4M3FN>) scales(%scales : tensor<2x?xf32>) context(%ctx)
    {format = "fp8_block", scale_layout = "transposed"} -> tensor<?x200xf8E4M3FN>, tensor<2x?xf32>
  return %0#0, %0#1 : tensor<?x200xf8E4M3FN>, tensor<2x?xf32>
}

func.func @fp8_token(%x: tensor<?x7xf32> {moe.name = "fp8_token_x", moe.dims = ["T"]}, %values: tensor<?x7xi8> {moe.name = "fp8_token_values", moe.dims = ["T"]},
                     %scales: tensor<?x1xf32> {moe.name = "fp8_token_scales", moe.dims = ["T"]}, %ctx: !moe.context) -> (tensor<?x7xi8>, tensor<?x1xf32>) {
  %0:2 = moe.quantize input(%x : tensor<?x7xf32>) outs(%values : tensor<?x7xi8>) scales(%scales : tensor<?x1xf32>) context(%ctx)
    {format = "fp8_token"} -> tensor<?x7xi8>, tensor<?x1xf32>
  return %0#0, %0#1 : tensor<?x7xi8>, tensor<?x1xf32>
}

// One scale for all tokens of a rank, also if it has none; and one that is given.
func.func @fp8_tensor(%x: tensor<?x24xbf16> {moe.name = "fp8_tensor_x", moe.dims = ["T"]}, %values: tensor<?x24xui8> {moe.name = "fp8_tensor_values", moe.dims = ["T"]},
                      %scales: tensor<1x1xf32> {moe.name = "fp8_tensor_scales"}, %ctx: !moe.context) -> (tensor<?x24xui8>, tensor<1x1xf32>) {
  %0:2 = moe.quantize input(%x : tensor<?x24xbf16>) outs(%values : tensor<?x24xui8>) scales(%scales : tensor<1x1xf32>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xui8>, tensor<1x1xf32>
  return %0#0, %0#1 : tensor<?x24xui8>, tensor<1x1xf32>
}
func.func @fp8_static(%x: tensor<?x24xf32> {moe.name = "fp8_static_x", moe.dims = ["T"]}, %g: tensor<1xf32> {moe.name = "fp8_static_g"},
                      %values: tensor<?x24xi8> {moe.name = "fp8_static_values", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x24xi8> {
  %0 = moe.quantize input(%x : tensor<?x24xf32>) global_scale(%g : tensor<1xf32>) outs(%values : tensor<?x24xi8>) context(%ctx)
    {format = "fp8_tensor"} -> tensor<?x24xi8>
  return %0 : tensor<?x24xi8>
}

// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/execute.py grouped_matmul %t

// Rows of no group keep what was there, call after call.
// RUN: moe-run %t.so --function plain --input rows=%t/1/rows{rank}.npy --input offsets=%t/1/offsets{rank}.npy --input weights=%t/1/weights{rank}.npy --input out=%t/1/old{rank}.npy --expect out=%t/1/plain{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function plain --input rows=%t/2/rows{rank}.npy --input offsets=%t/2/offsets{rank}.npy --input weights=%t/2/weights{rank}.npy --input out=%t/2/old{rank}.npy --expect out=%t/2/plain{rank}.npy
// RUN: moe-run %t.so --ranks 4 --function plain --input rows=%t/4/rows{rank}.npy --input offsets=%t/4/offsets{rank}.npy --input weights=%t/4/weights{rank}.npy --input out=%t/4/old{rank}.npy --expect out=%t/4/plain{rank}.npy --repeat 3

// RUN: moe-run %t.so --ranks 4 --function gated --input rows=%t/4/rows{rank}.npy --input offsets=%t/4/offsets{rank}.npy --input weights=%t/4/weights{rank}.npy --input bias=%t/4/bias{rank}.npy --input row_ids=%t/4/row_ids{rank}.npy --input row_weights=%t/4/row_weights{rank}.npy --input out=%t/4/old_half{rank}.npy --expect out=%t/4/gated{rank}.npy --rtol 1e-5 --atol 1e-6 --repeat 3

// Weights in NVFP4: sums of powers of two, which are exact.
// RUN: moe-run %t.so --ranks 4 --function codes --input rows=%t/4/rows{rank}.npy --input offsets=%t/4/offsets{rank}.npy --input weights=%t/4/codes{rank}.npy --input scales=%t/4/scales{rank}.npy --input factors=%t/4/factors{rank}.npy --input out=%t/4/old{rank}.npy --expect out=%t/4/coded{rank}.npy --repeat 3

// No rows at all.
// RUN: moe-run %t.so --function plain --random 1 --size rows.0=0 --size out.0=0 --input offsets=%t/2/offsets1.npy

// Offsets beyond the rows are an error, which names them.
// RUN: not moe-run %t.so --function plain --random 1 --size rows.0=2 --size out.0=2 --input offsets=%t/1/offsets{rank}.npy 2>&1 | FileCheck %s
// CHECK: plain: MOERT_ERROR_DATA {{.*}}: moe.grouped_matmul: offsets[1] is 3, exceeds the 2 rows of 'out'

func.func @plain(%rows: tensor<?x16xf32> {moe.name = "rows"}, %offsets: tensor<4xi32> {moe.name = "offsets"}, %weights: tensor<3x32x16xf32> {moe.name = "weights"},
                 %out: tensor<?x32xf32> {moe.name = "out", moe.role = "inout"}, %ctx: !moe.context) -> tensor<?x32xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<?x16xf32>) offsets(%offsets : tensor<4xi32>) weights(%weights : tensor<3x32x16xf32>)
    outs(%out : tensor<?x32xf32>) context(%ctx) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

func.func @gated(%rows: tensor<9x16xf32> {moe.name = "rows"}, %offsets: tensor<4xi32> {moe.name = "offsets"}, %weights: tensor<3x32x16xf32> {moe.name = "weights"},
                 %bias: tensor<3x32xf32> {moe.name = "bias"}, %row_ids: tensor<9xi32> {moe.name = "row_ids"}, %row_weights: tensor<9xf32> {moe.name = "row_weights"},
                 %out: tensor<9x16xf32> {moe.name = "out", moe.role = "inout"}, %ctx: !moe.context) -> tensor<9x16xf32> {
  %0 = moe.grouped_matmul rows(%rows : tensor<9x16xf32>) offsets(%offsets : tensor<4xi32>) weights(%weights : tensor<3x32x16xf32>)
    bias(%bias : tensor<3x32xf32>) row_ids(%row_ids : tensor<9xi32>) row_weights(%row_weights : tensor<9xf32>)
    outs(%out : tensor<9x16xf32>) context(%ctx) {activation = "swiglu"} -> tensor<9x16xf32>
  return %0 : tensor<9x16xf32>
}

func.func @codes(%rows: tensor<9x16xf32> {moe.name = "rows"}, %offsets: tensor<4xi32> {moe.name = "offsets"}, %weights: tensor<3x32x8xi8> {moe.name = "weights"},
                 %scales: tensor<3x32x1xi8> {moe.name = "scales"}, %factors: tensor<3xf32> {moe.name = "factors"},
                 %out: tensor<9x32xf32> {moe.name = "out", moe.role = "inout"}, %ctx: !moe.context) -> tensor<9x32xf32> {
  %narrow = arith.truncf %rows : tensor<9x16xf32> to tensor<9x16xbf16>
  %0 = moe.grouped_matmul rows(%narrow : tensor<9x16xbf16>) offsets(%offsets : tensor<4xi32>) weights(%weights : tensor<3x32x8xi8>)
    scales(%scales : tensor<3x32x1xi8>) global_scale(%factors : tensor<3xf32>) outs(%out : tensor<9x32xf32>) context(%ctx)
    {weight_format = "nvfp4"} -> tensor<9x32xf32>
  return %0 : tensor<9x32xf32>
}

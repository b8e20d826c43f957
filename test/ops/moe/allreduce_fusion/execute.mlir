// RUN: moe-compile %s -o %t.so
// RUN: %python %S/Inputs/allreduce.py %t
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function reduce --input residual=%t.residual.npy --input gamma=%t.gamma.npy --input experts=%t.experts.{rank}.npy --input scales=%t.scales.{rank}.npy --input count=%t.count.{rank}.npy --input shared=%t.shared.{rank}.npy --expect residual=%t.total.{rank}.npy --expect sum=%t.sum.{rank}.npy
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function reduce --input residual=%t.residual.npy --input gamma=%t.gamma.npy --input experts=%t.experts.{rank}.npy --input scales=%t.scales.{rank}.npy --input count=%t.count.{rank}.npy --input shared=%t.shared.{rank}.npy --expect norm=%t.norm.{rank}.npy --rtol 0.004

// No tokens.
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function reduce --size T=0 --size E=7 --random 1

// More of them than the workspace has room for, more experts than there are, and a rank that dies.
// RUN: not moe-run %t.so --ranks 1 --function setup --function reduce --size T=9 --size E=7 --random 1 2>&1 | FileCheck %s --check-prefix=CAPACITY
// CAPACITY: moe.allreduce_fusion: operand 'residual_in' has 9 tokens, must have at most 8, the max_num_tokens of the workspace
// RUN: not moe-run %t.so --ranks 1 --function setup --function reduce --input experts=%t.experts.0.npy --input count=%t.many.npy --random 1 2>&1 | FileCheck %s --check-prefix=COUNT
// COUNT: moe.allreduce_fusion: operand 'moe_reduction_device_num_experts' holds 2, must be in [0, 1], dimension 0 of 'moe_reduction_active_experts_token_input'
// RUN: not moe-run %t.so --ranks 3 --function setup --function reduce --size T=2 --input count=%t.none.npy --size E=2 --random 1 --timeout 1 --stop 1@moe.allreduce_fusion:data 2>&1 | FileCheck %s --check-prefix=STOP
// STOP: waited 1000 ms for rank 1 (its data, epoch 1)

func.func @setup(%workspace: memref<?xi8> {moe.name = "workspace"}, %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"}, %ctx: !moe.context) {
  moe.initialize workspace(%workspace : memref<?xi8>) metainfo(%metainfo : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 1 : i64}
  return
}

func.func @reduce(%residual: tensor<?x16xbf16> {moe.name = "residual", moe.dims = ["T"], moe.role = "inout"}, %gamma: tensor<16xbf16> {moe.name = "gamma"},
                  %experts: tensor<?x?x16xbf16> {moe.name = "experts", moe.dims = ["E", "T"]}, %scales: tensor<?x?xf32> {moe.name = "scales", moe.dims = ["E", "T"]},
                  %count: tensor<1xi32> {moe.name = "count"}, %shared: tensor<?x16xbf16> {moe.name = "shared", moe.dims = ["T"]},
                  %workspace: memref<?xi8> {moe.name = "workspace"}, %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                  %sum: tensor<?x16xbf16> {moe.name = "sum", moe.dims = ["T"]}, %norm: tensor<?x16xbf16> {moe.name = "norm", moe.dims = ["T"]},
                  %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:3 = moe.allreduce_fusion residual_in(%residual : tensor<?x16xbf16>) rms_gamma(%gamma : tensor<16xbf16>)
    active_experts(%experts, %scales : tensor<?x?x16xbf16>, tensor<?x?xf32>) device_num_experts(%count : tensor<1xi32>)
    token_input(%shared : tensor<?x16xbf16>) workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%sum : tensor<?x16xbf16>) residual_out(%residual : tensor<?x16xbf16>) norm_out(%norm : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1, %0#2 : tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>
}

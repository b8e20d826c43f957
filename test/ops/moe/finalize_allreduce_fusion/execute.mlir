// RUN: moe-compile %s -o %t.so
// RUN: %python %S/Inputs/finalize.py %t
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function reduce --input residual=%t.residual.npy --input weight=%t.weight.npy --input rows=%t.rows.{rank}.npy --input indices=%t.indices.{rank}.npy --input scales=%t.scales.{rank}.npy --input shared=%t.shared.{rank}.npy --expect residual=%t.total.{rank}.npy
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function reduce --input residual=%t.residual.npy --input weight=%t.weight.npy --input rows=%t.rows.{rank}.npy --input indices=%t.indices.{rank}.npy --input scales=%t.scales.{rank}.npy --input shared=%t.shared.{rank}.npy --expect norm=%t.norm.{rank}.npy --rtol 0.004

// No tokens, and a rank that stops.
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function reduce --size T=0 --size P=7 --random 1
// RUN: not moe-run %t.so --ranks 3 --function setup --function reduce --input indices=%t.none.npy --size P=1 --random 1 --timeout 1 --stop 1@moe.finalize_allreduce_fusion:data 2>&1 | FileCheck %s --check-prefix=STOP
// STOP: waited 1000 ms for rank 1 (its data, epoch 1)

// A row that there is not.
// RUN: not moe-run %t.so --ranks 1 --function setup --function reduce --size P=2 --input indices=%t.beyond.npy --random 1 2>&1 | FileCheck %s --check-prefix=INDEX
// INDEX: moe.finalize_allreduce_fusion: operand 'expanded_idx_to_permuted_idx' holds 2 for token 0, slot 0, must be at least -1 and less than 2, dimension 0 of 'allreduce_in'

func.func @setup(%workspace: memref<?xi8> {moe.name = "workspace"}, %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"}, %ctx: !moe.context) {
  moe.initialize workspace(%workspace : memref<?xi8>) metainfo(%metainfo : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 32 : i64, combine_bytes_per_token = 1 : i64}
  return
}

func.func @reduce(%residual: tensor<?x16xbf16> {moe.name = "residual", moe.dims = ["T"], moe.role = "inout"}, %weight: tensor<16xbf16> {moe.name = "weight"},
                  %rows: tensor<?x16xbf16> {moe.name = "rows", moe.dims = ["P"]}, %indices: tensor<?x2xi32> {moe.name = "indices", moe.dims = ["T"]},
                  %scales: tensor<?x2xf32> {moe.name = "scales", moe.dims = ["T"]}, %shared: tensor<?x16xbf16> {moe.name = "shared", moe.dims = ["T"]},
                  %workspace: memref<?xi8> {moe.name = "workspace"}, %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                  %norm: tensor<?x16xbf16> {moe.name = "norm", moe.dims = ["T"]}, %ctx: !moe.context) -> (tensor<?x16xbf16>, tensor<?x16xbf16>) {
  %0:2 = moe.finalize_allreduce_fusion residual_in(%residual : tensor<?x16xbf16>) norm_weight(%weight : tensor<16xbf16>)
    rows(%rows, %indices : tensor<?x16xbf16>, tensor<?x2xi32>) expert_scale_factor(%scales : tensor<?x2xf32>) shared_expert_output(%shared : tensor<?x16xbf16>)
    workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%residual : tensor<?x16xbf16>) norm_out(%norm : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, routed_scaling_factor = 2.0 : f64} -> tensor<?x16xbf16>, tensor<?x16xbf16>
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x16xbf16>
}

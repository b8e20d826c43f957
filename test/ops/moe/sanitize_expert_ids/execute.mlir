// RUN: moe-compile %s -o %t.so
// RUN: %python %S/Inputs/received.py %t
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function receive --input ids=%t.ids.{rank}.npy --input received=%t.before.npy --expect received=%t.received.{rank}.npy --expect kept=%t.kept.{rank}.npy --random 1

// From a rank that the dispatch left out nothing has come.
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function masked --input ids=%t.ids.{rank}.npy --input mask=5,2,5 --input received=%t.before.npy --expect received=%t.masked.received.{rank}.npy --expect kept=%t.masked.kept.{rank}.npy --random 1

// No tokens: all rows are padding.
// RUN: moe-run %t.so --quiet --ranks 3 --function setup --function receive --size T=0 --input received=%t.before.npy --expect received=%t.nothing.{rank}.npy --random 1

// It needs a dispatch.
// RUN: not moe-run %t.so --ranks 3 --function setup --function alone 2>&1 | FileCheck %s
// CHECK: moe.sanitize_expert_ids: no dispatch on this workspace waits for its combine: call moe.sanitize_expert_ids between moe.dispatch and moe.combine

func.func @setup(%workspace: memref<?xi8> {moe.name = "workspace"}, %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"}, %ctx: !moe.context) {
  moe.initialize workspace(%workspace : memref<?xi8>) metainfo(%metainfo : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 4 : i64, dispatch_bytes_per_token = 8 : i64, combine_bytes_per_token = 4 : i64}
  return
}

// What is received stays in `kept`; `received` is sanitised.
func.func @receive(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %workspace: memref<?xi8> {moe.name = "workspace"},
                   %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"}, %received: tensor<3x4x2xi32> {moe.name = "received", moe.role = "inout"},
                   %kept: tensor<3x4x2xi32> {moe.name = "kept"}, %ctx: !moe.context) -> (tensor<3x4x2xi32>, tensor<3x4x2xi32>) {
  %max = arith.constant 4 : index
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%ids : tensor<?x2xi32>) workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%received : tensor<3x4x2xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 7 : i64} -> (tensor<3x4x2xi32>, i64)
  %1 = linalg.copy ins(%0#0 : tensor<3x4x2xi32>) outs(%kept : tensor<3x4x2xi32>) -> tensor<3x4x2xi32>
  %2 = moe.sanitize_expert_ids workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>) outs(%0#0 : tensor<3x4x2xi32>) context(%ctx)
    {invalid_expert_id = 7 : i64} -> tensor<3x4x2xi32>
  return %2, %1 : tensor<3x4x2xi32>, tensor<3x4x2xi32>
}

func.func @alone(%workspace: memref<?xi8> {moe.name = "workspace"}, %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"},
                 %received: tensor<3x4x2xi32> {moe.name = "received", moe.role = "inout"}, %ctx: !moe.context) -> tensor<3x4x2xi32> {
  %0 = moe.sanitize_expert_ids workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>) outs(%received : tensor<3x4x2xi32>) context(%ctx)
    -> tensor<3x4x2xi32>
  return %0 : tensor<3x4x2xi32>
}

func.func @masked(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %workspace: memref<?xi8> {moe.name = "workspace"},
                   %metainfo: memref<16xi64, #moe.host> {moe.name = "metainfo"}, %received: tensor<3x4x2xi32> {moe.name = "received", moe.role = "inout"},
                   %kept: tensor<3x4x2xi32> {moe.name = "kept"}, %mask: i64 {moe.name = "mask"}, %ctx: !moe.context) -> (tensor<3x4x2xi32>, tensor<3x4x2xi32>) {
  %max = arith.constant 4 : index
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%ids : tensor<?x2xi32>) workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) active_ranks(%mask) outs(%received : tensor<3x4x2xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 7 : i64} -> (tensor<3x4x2xi32>, i64)
  %1 = linalg.copy ins(%0#0 : tensor<3x4x2xi32>) outs(%kept : tensor<3x4x2xi32>) -> tensor<3x4x2xi32>
  %2 = moe.sanitize_expert_ids workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>) outs(%0#0 : tensor<3x4x2xi32>) context(%ctx)
    {invalid_expert_id = 7 : i64} -> tensor<3x4x2xi32>
  return %2, %1 : tensor<3x4x2xi32>, tensor<3x4x2xi32>
}

// With the threads of MLIR, which work on several functions at a time, and without.
// RUN: moe-opt %s %pipeline > %t.threads
// RUN: moe-opt %s %pipeline --mlir-disable-threading > %t.alone
// RUN: diff %t.threads %t.alone
// RUN: FileCheck %s --input-file=%t.alone

// Private functions are inlined, and gone; only what is public is exported.
// CHECK-NOT: @helper
// CHECK: llvm.func @first
// CHECK: llvm.call @moert_moe_route
// CHECK: llvm.func @second
// CHECK: llvm.func @third
// CHECK-NOT: @helper
// CHECK: llvm.func @moe.entry.first
// CHECK: llvm.func @moe.entry.second
// CHECK: llvm.func @moe.entry.third
// CHECK: @moert_graph_info
func.func private @helper(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}
func.func @first(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = func.call @helper(%logits, %ids, %weights, %ctx) : (tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>, !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>)
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}
func.func public @second(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) -> (tensor<?x2xf32>, tensor<?x2xi32>) {
  %0:2 = func.call @helper(%logits, %ids, %weights, %ctx) : (tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>, !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>)
  return %0#1, %0#0 : tensor<?x2xf32>, tensor<?x2xi32>
}
// Intermediates of every kind: gemm, elementwise, reduction, sizes that are known only at run time.
func.func @third(%x: tensor<?x16xbf16>, %w: tensor<16x8xbf16>, %out: tensor<?xf32>, %ctx: !moe.context) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x16xbf16>
  %empty = tensor.empty(%n) : tensor<?x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<?x16xbf16>, tensor<16x8xbf16>) outs(%zeros : tensor<?x8xf32>) -> tensor<?x8xf32>
  %other = tensor.empty(%n) : tensor<?x8xf32>
  %1 = linalg.exp ins(%0 : tensor<?x8xf32>) outs(%other : tensor<?x8xf32>) -> tensor<?x8xf32>
  %start = linalg.fill ins(%zero : f32) outs(%out : tensor<?xf32>) -> tensor<?xf32>
  %2 = linalg.reduce ins(%1 : tensor<?x8xf32>) outs(%start : tensor<?xf32>) dimensions = [1] (%a: f32, %b: f32) {
    %sum = arith.addf %a, %b : f32
    linalg.yield %sum : f32
  }
  return %2 : tensor<?xf32>
}

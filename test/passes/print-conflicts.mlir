// RUN: moe-opt %s --moe-declare-interface "--one-shot-bufferize=bufferize-function-boundaries=1 test-analysis-only=1 print-conflicts=1" | FileCheck %s

// What one-shot-bufferize says of its decisions stands in attributes whose names are no parameters' (S4).
// CHECK: moe.dispatch {{.*}}[CONFL-WRITE: {{[0-9]+}}]"
func.func @one_tensor_twice(%workspace: memref<?xi8>, %metainfo: memref<16xi64, #moe.host>, %ids: tensor<4x2xi32>, %tokens: tensor<4x8xf32>,
                            %recv: tensor<2x4x8xf32>, %ctx: !moe.context) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>) {
  %n = arith.constant 4 : index
  %0:3 = moe.dispatch topk_ids(%ids : tensor<4x2xi32>) payloads(%tokens, %tokens : tensor<4x8xf32>, tensor<4x8xf32>)
    workspace(%workspace, %metainfo : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%n : index)
    outs(%recv, %recv : tensor<2x4x8xf32>, tensor<2x4x8xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 4 : i64}
    -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>, i64)
  return %0#0, %0#1 : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}

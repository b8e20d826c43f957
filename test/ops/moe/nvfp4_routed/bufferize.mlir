// RUN: moe-opt %s %bufferize | FileCheck %s

// CHECK-LABEL: func.func @destinations_of_the_caller
// CHECK-SAME: %[[SORTED:[^:]*]]: memref<56xi32>, %[[EXPERTS:[^:]*]]: memref<7xi32>, %[[PADDED:[^:]*]]: memref<1xi32>, %[[CUMSUM:[^:]*]]: memref<6xi32>, %[[OUT:[^:]*]]: memref<5x256xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: moe.nvfp4_routed {{.*}} plan(%[[SORTED]], %[[EXPERTS]], %[[PADDED]], %[[CUMSUM]] : {{.*}}) outs(%[[OUT]] : memref<5x256xbf16>)
// CHECK-NEXT: return
func.func @destinations_of_the_caller(%x: tensor<5x128xi8>, %xs: tensor<5x16xf8E4M3FN>, %w1: tensor<4x512x128xi8>, %s1: tensor<4x512x16xf8E4M3FN>,
    %w2: tensor<4x256x128xi8>, %s2: tensor<4x256x16xf8E4M3FN>, %g: tensor<4xf32>, %u: tensor<4xf32>, %d: tensor<4xf32>, %ids: tensor<5x2xi32>,
    %w: tensor<5x2xf32>, %sorted: tensor<56xi32>, %experts: tensor<7xi32>, %padded: tensor<1xi32>, %cumsum: tensor<6xi32>, %out: tensor<5x256xbf16>,
    %ctx: !moe.context) -> (tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<5x128xi8>, tensor<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<4x512x128xi8>, tensor<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<4x256x128xi8>, tensor<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) topk(%ids, %w : tensor<5x2xi32>, tensor<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>)
    outs(%out : tensor<5x256xbf16>) context(%ctx) {top_k = 2 : i64} -> tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>
}

// What the op keeps, or adds to, must be there: no copy, and no write before it is dropped.
// CHECK-LABEL: func.func @contents_stay
// CHECK-SAME: %[[SORTED:[^:]*]]: memref<56xi32>, %[[EXPERTS:[^:]*]]: memref<7xi32>, %[[PADDED:[^:]*]]: memref<1xi32>, %[[CUMSUM:[^:]*]]: memref<6xi32>, %[[OUT:[^:]*]]: memref<5x256xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-DAG: linalg.fill {{.*}} outs(%[[EXPERTS]] : memref<7xi32>)
// CHECK-DAG: linalg.fill {{.*}} outs(%[[CUMSUM]] : memref<6xi32>)
// CHECK-DAG: linalg.fill {{.*}} outs(%[[OUT]] : memref<5x256xbf16>)
// CHECK: moe.nvfp4_routed {{.*}} plan(%[[SORTED]], %[[EXPERTS]], %[[PADDED]], %[[CUMSUM]] : {{.*}}) outs(%[[OUT]] : memref<5x256xbf16>)
// CHECK-NEXT: return
func.func @contents_stay(%x: tensor<5x128xi8>, %xs: tensor<5x16xf8E4M3FN>, %w1: tensor<4x512x128xi8>, %s1: tensor<4x512x16xf8E4M3FN>,
    %w2: tensor<4x256x128xi8>, %s2: tensor<4x256x16xf8E4M3FN>, %g: tensor<4xf32>, %u: tensor<4xf32>, %d: tensor<4xf32>, %ids: tensor<5x2xi32>,
    %w: tensor<5x2xf32>, %sorted: tensor<56xi32>, %experts: tensor<7xi32>, %padded: tensor<1xi32>, %cumsum: tensor<6xi32>, %out: tensor<5x256xbf16>,
    %ctx: !moe.context) -> (tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>) {
  %none = arith.constant -9 : i32
  %one = arith.constant 1.0 : bf16
  %old_experts = linalg.fill ins(%none : i32) outs(%experts : tensor<7xi32>) -> tensor<7xi32>
  %old_cumsum = linalg.fill ins(%none : i32) outs(%cumsum : tensor<6xi32>) -> tensor<6xi32>
  %old_out = linalg.fill ins(%one : bf16) outs(%out : tensor<5x256xbf16>) -> tensor<5x256xbf16>
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<5x128xi8>, tensor<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<4x512x128xi8>, tensor<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<4x256x128xi8>, tensor<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) topk(%ids, %w : tensor<5x2xi32>, tensor<5x2xf32>)
    plan(%sorted, %old_experts, %padded, %old_cumsum : tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>)
    outs(%old_out : tensor<5x256xbf16>) context(%ctx) {top_k = 2 : i64} -> tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>
}

// A destination that someone else still reads is copied before.
// CHECK-LABEL: func.func @destination_is_read_later
// CHECK-SAME: %[[OUT:[^:]*]]: memref<5x256xbf16>, %{{[^:]*}}: !moe.context)
// CHECK: linalg.fill {{.*}} outs(%[[OUT]] : memref<5x256xbf16>)
// CHECK: linalg.copy ins(%[[OUT]] : memref<5x256xbf16>) outs(%[[COPY:.*]] : memref<5x256xbf16>)
// CHECK: moe.nvfp4_routed {{.*}} outs(%[[COPY]] : memref<5x256xbf16>)
// CHECK: linalg.add ins(%[[OUT]], %[[COPY]] : memref<5x256xbf16>, memref<5x256xbf16>)
func.func @destination_is_read_later(%x: tensor<5x128xi8>, %xs: tensor<5x16xf8E4M3FN>, %w1: tensor<4x512x128xi8>, %s1: tensor<4x512x16xf8E4M3FN>,
    %w2: tensor<4x256x128xi8>, %s2: tensor<4x256x16xf8E4M3FN>, %g: tensor<4xf32>, %u: tensor<4xf32>, %d: tensor<4xf32>, %ids: tensor<5x2xi32>,
    %w: tensor<5x2xf32>, %sorted: tensor<56xi32>, %experts: tensor<7xi32>, %padded: tensor<1xi32>, %cumsum: tensor<6xi32>, %out: tensor<5x256xbf16>,
    %ctx: !moe.context) -> (tensor<5x256xbf16>) {
  %one = arith.constant 1.0 : bf16
  %old_out = linalg.fill ins(%one : bf16) outs(%out : tensor<5x256xbf16>) -> tensor<5x256xbf16>
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<5x128xi8>, tensor<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<4x512x128xi8>, tensor<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<4x256x128xi8>, tensor<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) topk(%ids, %w : tensor<5x2xi32>, tensor<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>)
    outs(%old_out : tensor<5x256xbf16>) context(%ctx) {top_k = 2 : i64} -> tensor<56xi32>, tensor<7xi32>, tensor<1xi32>, tensor<6xi32>, tensor<5x256xbf16>
  %1 = linalg.add ins(%old_out, %0#4 : tensor<5x256xbf16>, tensor<5x256xbf16>) outs(%old_out : tensor<5x256xbf16>) -> tensor<5x256xbf16>
  return %1 : tensor<5x256xbf16>
}

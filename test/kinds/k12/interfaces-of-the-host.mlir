// The host's own passes find the interfaces of the plugin's ops: there is one copy of MLIR in the process.
// UNSUPPORTED: sanitizer
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --one-shot-bufferize=bufferize-function-boundaries | FileCheck %s --check-prefix=BUFFERS
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --cse --canonicalize | FileCheck %s --check-prefix=EFFECTS

// BUFFERS: moe.route logits(%{{.*}} : memref<?x8xf32,
// EFFECTS-LABEL: @same_twice
// EFFECTS: moe.route
// EFFECTS-NOT: moe.route
// EFFECTS: return %[[R:[0-9]+]]#0, %[[R]]#0
func.func @same_twice(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xi32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  %1:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %1#0 : tensor<?x2xi32>, tensor<?x2xi32>
}

// RUN: moe-opt %s --cse --loop-invariant-code-motion --canonicalize --symbol-dce --cse | FileCheck %s

// Pure ops on tensors are merged, removed and moved.
// CHECK-LABEL: func.func @pure_merged
// CHECK: moe.route
// CHECK-NOT: moe.route
// CHECK: moe.grouped_matmul
// CHECK-NOT: moe.grouped_matmul
// CHECK: moe.workspace_size
// CHECK-NOT: moe.workspace_size
// CHECK: return
func.func @pure_merged(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>,
                       %out: tensor<16x32xf32>, %ctx: !moe.context)
    -> (tensor<?x2xi32>, tensor<?x2xi32>, tensor<16x32xf32>, tensor<16x32xf32>, index, index) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  %1:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  %2 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>) outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  %3 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>) outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  %4 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  %5 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return %0#0, %1#0, %2, %3, %4, %5 : tensor<?x2xi32>, tensor<?x2xi32>, tensor<16x32xf32>, tensor<16x32xf32>, index, index
}

// CHECK-LABEL: func.func @pure_unused
// CHECK-NOT: {{ }}moe.
// CHECK: return
func.func @pure_unused(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>,
                       %out: tensor<16x32xf32>, %ws: memref<?xi8>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  %2 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>) outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
  %4 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  %5 = moe.workspace_view %ws[%c0 : index] sizes() context(%ctx) : memref<?xi8> to memref<4xf32>
  %6 = moe.allocate() context(%ctx) : memref<4xf32>
  return
}

// CHECK-LABEL: func.func @pure_in_loop
// CHECK: moe.route
// CHECK: moe.workspace_size
// CHECK: scf.for
func.func @pure_in_loop(%logits: tensor<?x8xf32>, %ids: tensor<?x2xi32>, %w: tensor<?x2xf32>, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
    %1 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
    func.call @use(%0#0, %1) : (tensor<?x2xi32>, index) -> ()
  }
  return
}

// Offsets may be in error: what would not have run does not run.
// CHECK-LABEL: func.func @not_hoisted
// CHECK: scf.for
// CHECK: moe.grouped_matmul
func.func @not_hoisted(%rows: tensor<16x64xf32>, %offsets: tensor<5xi32>, %weights: tensor<4x32x64xf32>, %out: tensor<16x32xf32>, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0 = moe.grouped_matmul rows(%rows : tensor<16x64xf32>) offsets(%offsets : tensor<5xi32>) weights(%weights : tensor<4x32x64xf32>) outs(%out : tensor<16x32xf32>) context(%ctx) -> tensor<16x32xf32>
    func.call @use_product(%0) : (tensor<16x32xf32>) -> ()
  }
  return
}
// Number formats have no errors: what is the same is done once, what nobody uses is not done, and loops are left.
// CHECK-LABEL: func.func @pure_formats
// CHECK-NEXT: moe.quantize
// CHECK-NEXT: moe.dequantize
// CHECK-NEXT: scf.for
// CHECK-NOT: {{ }}moe.
// CHECK: return
func.func @pure_formats(%x: tensor<?x64xf32>, %v: tensor<?x32xi8>, %s: tensor<?x4xi8>, %y: tensor<?x64xf16>, %z: tensor<?x64xf32>, %from: index, %to: index, %step: index, %ctx: !moe.context) {
  scf.for %i = %from to %to step %step {
    %0:2 = moe.quantize input(%x : tensor<?x64xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xi8>) context(%ctx) {format = "nvfp4"} -> tensor<?x32xi8>, tensor<?x4xi8>
    %1:2 = moe.quantize input(%x : tensor<?x64xf32>) outs(%v : tensor<?x32xi8>) scales(%s : tensor<?x4xi8>) context(%ctx) {format = "nvfp4"} -> tensor<?x32xi8>, tensor<?x4xi8>
    %2 = moe.dequantize values(%0#0 : tensor<?x32xi8>) scales(%1#1 : tensor<?x4xi8>) outs(%y : tensor<?x64xf16>) context(%ctx) {format = "nvfp4"} -> tensor<?x64xf16>
    %3 = moe.dequantize values(%0#0 : tensor<?x32xi8>) scales(%1#1 : tensor<?x4xi8>) outs(%z : tensor<?x64xf32>) context(%ctx) {format = "nvfp4"} -> tensor<?x64xf32>
    func.call @use_numbers(%2) : (tensor<?x64xf16>) -> ()
  }
  return
}
func.func private @use_numbers(tensor<?x64xf16>)

func.func private @use_product(tensor<16x32xf32>)
func.func private @use(tensor<?x2xi32>, index)

// On memrefs they write memory: twice is twice.
// CHECK-LABEL: func.func @on_memrefs
// CHECK-COUNT-2: moe.route
// CHECK-COUNT-2: moe.grouped_matmul
// CHECK: return
func.func @on_memrefs(%logits: memref<?x8xf32>, %ids: memref<?x2xi32>, %w: memref<?x2xf32>, %rows: memref<16x64xf32>, %offsets: memref<5xi32>, %weights: memref<4x32x64xf32>,
                      %out: memref<16x32xf32>, %ctx: !moe.context) {
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %w : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  moe.route logits(%logits : memref<?x8xf32>) outs(%ids, %w : memref<?x2xi32>, memref<?x2xf32>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64}
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>) outs(%out : memref<16x32xf32>) context(%ctx)
  moe.grouped_matmul rows(%rows : memref<16x64xf32>) offsets(%offsets : memref<5xi32>) weights(%weights : memref<4x32x64xf32>) outs(%out : memref<16x32xf32>) context(%ctx)
  return
}

// What other ranks see is never removed, merged or moved, whether its results are used or not: every rank must call it as often, in the same order.
// CHECK-LABEL: func.func @fabric
// CHECK: moe.initialize
// CHECK-NEXT: moe.initialize
// CHECK-NEXT: moe.dispatch
// CHECK-NEXT: moe.dispatch
// CHECK-NEXT: moe.combine
// CHECK-NEXT: moe.combine
// CHECK-NEXT: moe.initialize
// CHECK-NEXT: return
func.func @fabric(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %recv: tensor<4x8x16xbf16>, %out: tensor<?x16xbf16>, %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>,
                  %max: index, %offset: i64, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%recv : tensor<4x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  %1:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%recv : tensor<4x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
  %2 = moe.combine payload(%recv : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xbf16>
  %3 = moe.combine payload(%recv : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xbf16>
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// CHECK-LABEL: func.func @fabric_in_loop
// CHECK-NOT: {{ }}moe.
// CHECK: scf.for
// CHECK: moe.dispatch
// CHECK: moe.combine
// CHECK: moe.initialize
// CHECK-NEXT: {{^ *[}]}}
// CHECK-NEXT: return
func.func @fabric_in_loop(%ids: tensor<?x2xi32>, %x: tensor<?x16xbf16>, %recv: tensor<4x8x16xbf16>, %out: tensor<?x16xbf16>, %ws: memref<?xi8>,
                          %info: memref<16xi64, #moe.host>, %max: index, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
      max_tokens(%max : index) outs(%recv : tensor<4x8x16xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 8 : i64} -> (tensor<4x8x16xbf16>, i64)
    %2 = moe.combine payload(%recv : tensor<4x8x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
      outs(%out : tensor<?x16xbf16>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64} -> tensor<?x16xbf16>
    moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  }
  return
}

// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @sanitize_expert_ids_c1(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand 'expert_ids' has size 4 in dimension 0, but ep_size is 8}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx) {ep_size = 8 : i64}
  return
}

// -----

func.func @sanitize_expert_ids_c2(%ws: memref<?xi8>, %info: memref<10xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand 'metainfo' has size 10 in dimension 0, but the number of metainfo fields is 16}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<10xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_rank(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #2 must be 3-D tensor or memref of i32, but got 'memref<8x2xi32>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_element_type(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi64>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #2 must be 3-D tensor or memref of i32, but got 'memref<4x8x2xi64>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi64>) context(%ctx)
  return
}

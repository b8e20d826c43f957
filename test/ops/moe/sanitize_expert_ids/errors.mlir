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

// -----

func.func @sanitize_expert_ids_s2(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand 'expert_ids' must be in device memory, which is the default memory space: its type has another one}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32, #moe.host>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_s2_workspace(%ws: memref<?xi8, #moe.host>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand 'workspace' must be in symmetric memory, which is the default memory space: its type has another one}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8, #moe.host>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_s2_metainfo(%ws: memref<?xi8>, %info: memref<16xi64>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_s2_metainfo_other_space(%ws: memref<?xi8>, %info: memref<16xi64, 1>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, 1>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_s3(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op result #0 must have the type of destination 'expert_ids'}}
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<4x8x2xi32>) context(%ctx) -> tensor<4x?x2xi32>
  return
}

// -----

func.func @sanitize_expert_ids_s3_missing(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: tensor<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op result #0 must have the type of destination 'expert_ids'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : tensor<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_s3_on_memrefs(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op has 1 results, but must have 0: one for each destination on tensors}}
  %0 = moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx) -> tensor<4x8x2xi32>
  return
}

// -----

func.func @sanitize_expert_ids_s4(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op has no parameter 'invalid_id'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx) {invalid_id = -1 : i64}
  return
}

// -----

func.func @sanitize_expert_ids_workspace_tensor(%ws: tensor<?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'tensor<?xi8>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : tensor<?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_workspace_element(%ws: memref<?xui8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<?xui8>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xui8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_workspace_rank(%ws: memref<4x?xi8>, %info: memref<16xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<4x?xi8>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<4x?xi8>, memref<16xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_metainfo_tensor(%ws: memref<?xi8>, %info: tensor<16xi64>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #1 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<16xi64>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, tensor<16xi64>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_metainfo_element(%ws: memref<?xi8>, %info: memref<16xi32, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #1 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'memref<16xi32, #moe.host>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<16xi32, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

// -----

func.func @sanitize_expert_ids_metainfo_rank(%ws: memref<?xi8>, %info: memref<2x8xi64, #moe.host>, %ids: memref<4x8x2xi32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.sanitize_expert_ids' op operand #1 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'memref<2x8xi64, #moe.host>'}}
  moe.sanitize_expert_ids workspace(%ws, %info : memref<?xi8>, memref<2x8xi64, #moe.host>) outs(%ids : memref<4x8x2xi32>) context(%ctx)
  return
}

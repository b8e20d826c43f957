// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @initialize_c1(%ws: memref<?xi8>, %info: memref<17xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand 'metainfo' has size 17 in dimension 0, but the number of metainfo fields is 16}}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<17xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_c2(%ws: memref<764927xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand 'workspace' has 764927 bytes, but these parameters need 764928 (moe.workspace_size)}}
  moe.initialize workspace(%ws : memref<764927xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64, ep_size = 4 : i64}
  return
}

// -----

func.func @initialize_c2_largest(%ws: memref<0xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand 'workspace' has 0 bytes, but these parameters need 6917530112120732544 (moe.workspace_size)}}
  moe.initialize workspace(%ws : memref<0xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 16777216 : i64, dispatch_bytes_per_token = 2147483647 : i64, combine_bytes_per_token = 2147483647 : i64, ep_size = 64 : i64}
  return
}

// -----

func.func @initialize_s2(%ws: memref<?xi8, #moe.host>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand 'workspace' must be in symmetric memory, which is the default memory space: its type has another one}}
  moe.initialize workspace(%ws : memref<?xi8, #moe.host>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_s2_metainfo(%ws: memref<?xi8>, %info: memref<16xi64>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_s4(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op has no parameter 'max_tokens'}}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64, max_tokens = 8 : i64}
  return
}

// -----

func.func @initialize_workspace_tensor(%ws: tensor<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'tensor<?xi8>'}}
  moe.initialize workspace(%ws : tensor<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_metainfo_tensor(%ws: memref<?xi8>, %info: tensor<16xi64>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand #1 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<16xi64>'}}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : tensor<16xi64>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_workspace_element(%ws: memref<?xui8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<?xui8>'}}
  moe.initialize workspace(%ws : memref<?xui8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_workspace_rank(%ws: memref<2x?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<2x?xi8>'}}
  moe.initialize workspace(%ws : memref<2x?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_metainfo_element(%ws: memref<?xi8>, %info: memref<16xui64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op operand #1 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'memref<16xui64, #moe.host>'}}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xui64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// -----

func.func @initialize_s3(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op requires zero results}}
  %0 = "moe.initialize"(%ws, %info, %ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
    : (memref<?xi8>, memref<16xi64, #moe.host>, !moe.context) -> i64
  return
}

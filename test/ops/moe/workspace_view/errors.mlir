// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @workspace_view_c1(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op has 0 'sizes', but its result has 1 dynamic dimensions}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<?x8xf32>
  return
}

// -----

func.func @workspace_view_c1_too_many(%ws: memref<?xi8>, %offset: index, %n: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op has 2 'sizes', but its result has 1 dynamic dimensions}}
  %0 = moe.workspace_view %ws[%offset : index] sizes(%n, %n) context(%ctx) : memref<?xi8> to memref<?x8xf32>
  return
}

// -----

func.func @workspace_view_c2_layout(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op the result must be contiguous: its type has a layout}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<4x8xf32, strided<[16, 1]>>
  return
}

// -----

func.func @workspace_view_c2_memory(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op the result must be in the default memory space}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<4x8xf32, #moe.host>
  return
}

// -----

func.func @workspace_view_c2_element(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op the elements of the view must have 1, 2, 4 or 8 bytes}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<4x8xi1>
  return
}

// -----

func.func @workspace_view_c2_rank(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op the result has rank 17, must be at most 16}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xi8>
  return
}

// -----

func.func @workspace_view_c3(%ws: memref<1024xi8>, %ctx: !moe.context) {
  %c900 = arith.constant 900 : index
  // expected-error@+1 {{'moe.workspace_view' op 128 bytes at offset 900 are not within the workspace of 1024 bytes}}
  %0 = moe.workspace_view %ws[%c900 : index] sizes() context(%ctx) : memref<1024xi8> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_c3_negative(%ws: memref<1024xi8>, %ctx: !moe.context) {
  %minus4 = arith.constant -4 : i64
  // expected-error@+1 {{'moe.workspace_view' op offset is -4, must be at least 0 and a multiple of 4 (the element's size)}}
  %0 = moe.workspace_view %ws[%minus4 : i64] sizes() context(%ctx) : memref<1024xi8> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_c3_misaligned(%ws: memref<?xi8>, %n: index, %ctx: !moe.context) {
  %c3 = arith.constant 3 : index
  // expected-error@+1 {{'moe.workspace_view' op offset is 3, must be at least 0 and a multiple of 4 (the element's size)}}
  %0 = moe.workspace_view %ws[%c3 : index] sizes(%n) context(%ctx) : memref<?xi8> to memref<?x8xf32>
  return
}

// -----

func.func @workspace_view_c3_larger(%ws: memref<127xi8>, %ctx: !moe.context) {
  %c0 = index.constant 0
  // expected-error@+1 {{'moe.workspace_view' op 128 bytes at offset 0 are not within the workspace of 127 bytes}}
  %0 = moe.workspace_view %ws[%c0 : index] sizes() context(%ctx) : memref<127xi8> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_s2(%ws: memref<?xi8, #moe.host>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op operand 'workspace' must be in symmetric memory, which is the default memory space: its type has another one}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8, #moe.host> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_s4(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op has no parameter 'size'}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) {size = 4 : i64} : memref<?xi8> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_workspace_tensor(%ws: tensor<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op operand #0 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'tensor<?xi8>'}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : tensor<?xi8> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_offset_type(%ws: memref<?xi8>, %offset: i32, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_view' op operand #1 must be index or i64, but got 'i32'}}
  %0 = moe.workspace_view %ws[%offset : i32] sizes() context(%ctx) : memref<?xi8> to memref<4x8xf32>
  return
}

// -----

func.func @workspace_view_s3_tensor(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{custom op 'moe.workspace_view' invalid kind of type specified: expected builtin.memref, but found 'tensor<4x8xf32>'}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to tensor<4x8xf32>
  return
}

// -----

func.func @workspace_view_s3_unranked(%ws: memref<?xi8>, %offset: index, %ctx: !moe.context) {
  // expected-error@+1 {{custom op 'moe.workspace_view' invalid kind of type specified: expected builtin.memref, but found 'memref<*xf32>'}}
  %0 = moe.workspace_view %ws[%offset : index] sizes() context(%ctx) : memref<?xi8> to memref<*xf32>
  return
}

// -----

// A constant behind its use is not verified yet when its use is.
func.func @workspace_view_late_constant(%ws: memref<1024xi8>, %ctx: !moe.context) {
  %0 = "moe.workspace_view"(%ws, %offset, %ctx) : (memref<1024xi8>, i64, !moe.context) -> memref<4xf32>
  // expected-error@+1 {{'arith.constant' op failed to verify that all of {value, result} have same type}}
  %offset = "arith.constant"() <{value = 1.0 : f32}> : () -> i64
  return
}

// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @allocate_c1(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op has 0 'sizes', but its result has 2 dynamic dimensions}}
  %0 = moe.allocate() context(%ctx) : memref<?x8x?xf32>
  return
}

// -----

func.func @allocate_c1_too_many(%n: index, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op has 1 'sizes', but its result has 0 dynamic dimensions}}
  %0 = moe.allocate(%n) context(%ctx) : memref<4x8xf32>
  return
}

// -----

func.func @allocate_c2_layout(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op the result must be contiguous: its type has a layout}}
  %0 = moe.allocate() context(%ctx) : memref<4x8xf32, affine_map<(i, j) -> (j, i)>>
  return
}

// -----

func.func @allocate_c2_memory(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op the result must be in the default memory space}}
  %0 = moe.allocate() context(%ctx) : memref<4x8xf32, 1>
  return
}

// -----

func.func @allocate_c2_rank(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op the result has rank 17, must be at most 16}}
  %0 = moe.allocate() context(%ctx) : memref<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xi8>
  return
}

// -----

func.func @allocate_s4(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op has no parameter 'alignment'}}
  %0 = moe.allocate() context(%ctx) {alignment = 128 : i64} : memref<4x8xf32>
  return
}

// -----

func.func @allocate_s3(%ctx: !moe.context) {
  // expected-error@+1 {{custom op 'moe.allocate' invalid kind of type specified: expected builtin.memref, but found 'tensor<4x8xf32>'}}
  %0 = moe.allocate() context(%ctx) : tensor<4x8xf32>
  return
}

// -----

func.func @allocate_c3(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.allocate' op the elements of the result must be whole bytes}}
  %0 = moe.allocate() context(%ctx) : memref<100xi1>
  return
}

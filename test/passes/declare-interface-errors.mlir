// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-declare-interface

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @no_arguments() {
  return
}

// -----

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @context_missing(%x: tensor<4xf32>) {
  return
}

// -----

// expected-error@+1 {{'func.func' op must take a !moe.context as its last argument}}
func.func @context_not_last(%ctx: !moe.context, %x: tensor<4xf32>) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'arg0' must be a ranked tensor, a ranked memref or a number}}
func.func @two_contexts(%first: !moe.context, %second: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op result #0 must be a ranked tensor, which is a destination among the arguments; write numbers into a memref in #moe.host}}
func.func @result_is_a_number(%n: index, %ctx: !moe.context) -> index {
  return %n : index
}

// -----

// expected-error@+1 {{'func.func' op result #1 must be a ranked tensor, which is a destination among the arguments; write numbers into a memref in #moe.host}}
func.func @result_is_a_memref(%x: tensor<4xf32>, %m: memref<4xf32>, %ctx: !moe.context) -> (tensor<4xf32>, memref<4xf32>) {
  return %x, %m : tensor<4xf32>, memref<4xf32>
}

// -----

// expected-error@+1 {{'func.func' op argument #0 has an unknown attribute 'moe.named': known are moe.name, moe.dims, moe.role}}
func.func @unknown_attribute(%x: tensor<4xf32> {moe.named = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.name of argument #0 must be a string: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @name_is_no_string(%x: tensor<4xf32> {moe.name = 1 : i64}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.name of argument #0 must be a string: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @name_is_empty(%x: tensor<4xf32> {moe.name = ""}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.name of argument #0 must be a string: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @name_is_long(%x: tensor<4xf32> {moe.name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.name of argument #0 must be a string: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @name_has_a_separator(%x: tensor<4xf32> {moe.name = "a=b"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.name of argument #0 must be a string: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @name_has_a_space(%x: tensor<4xf32> {moe.name = "a b"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.name of argument #0 must be a string: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @name_has_a_zero(%x: tensor<4xf32> {moe.name = "a\00b"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op arguments #0 and #2 are both named 'x'}}
func.func @names_are_equal(%x: tensor<4xf32> {moe.name = "x"}, %n: index, %y: tensor<4xf32> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op arguments #0 and #1 are both named 'arg1'}}
func.func @name_is_a_default_name(%x: tensor<4xf32> {moe.name = "arg1"}, %y: tensor<4xf32>, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'arg0' must be a ranked tensor, a ranked memref or a number}}
func.func @unranked(%x: memref<*xf32>, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'arg0' must be a ranked tensor, a ranked memref or a number}}
func.func @no_number(%x: !llvm.ptr, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_bits(%x: tensor<4xi1> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_odd_width(%x: tensor<4xi24> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_wide(%x: memref<4xi256> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_other_float(%x: tensor<4xf8E4M3B11FNUZ> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_complex(%x: tensor<4xcomplex<f32>> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_vector(%x: memref<4xvector<4xf32>> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_small_number(%x: f8E5M2 {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_large_number(%x: i128 {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'x' has an element type that callers cannot pass: use index, integers or floats of 8, 16, 32 or 64 bits; of 8-bit floats f8E4M3FN, f8E5M2 and f8E8M0FNU, in buffers only}}
func.func @element_quad(%x: tensor<4xf128> {moe.name = "x"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'arg0' must have rank 16 at most}}
func.func @rank(%x: tensor<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op argument 'arg0' must be contiguous: its type has a layout}}
func.func @layout(%x: memref<4x4xf32, strided<[8, 1]>>, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.role of argument 'arg0' must be "in", "out" or "inout"}}
func.func @role_unknown(%x: tensor<4xf32> {moe.role = "output"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.role of argument 'arg0' must be "in", "out" or "inout"}}
func.func @role_is_no_string(%x: tensor<4xf32> {moe.role}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.role of argument 'arg0' must be "in": it is a number, which the caller passes by value}}
func.func @role_of_a_number(%n: index {moe.role = "out"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.dims of argument 'arg0' must be an array of strings}}
func.func @dims_are_no_array(%x: tensor<?xf32> {moe.dims = "T"}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.dims of argument 'arg0' must be an array of strings}}
func.func @dims_are_no_strings(%x: tensor<?xf32> {moe.dims = [1 : i64]}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.dims of argument 'arg0' has 1 names for 2 dynamic dimensions}}
func.func @dims_too_few(%x: tensor<?x?xf32> {moe.dims = ["T"]}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.dims of argument 'arg0' has 2 names for 1 dynamic dimensions}}
func.func @dims_too_many(%x: tensor<?x4xf32> {moe.dims = ["T", "H"]}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.dims of argument 'arg0' has 1 names for 0 dynamic dimensions}}
func.func @dims_of_a_number(%n: index {moe.dims = ["T"]}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op moe.dims of argument 'arg0' must consist of names: 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @dims_are_no_names(%x: tensor<?xf32> {moe.dims = ["T,H"]}, %ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op must have a name of 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @"a\22b"(%ctx: !moe.context) {
  return
}

// -----

// expected-error@+1 {{'func.func' op must have a name of 1 to 127 visible ASCII characters without quotes, backslash, '=', ':' and ','}}
func.func @nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn(%ctx: !moe.context) {
  return
}

// -----

func.func @first(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}
func.func @second(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.initialize' op initialises workspace 'ws' with another combine_bytes_per_token than another function of the module}}
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 64 : i64}
  return
}

// -----

// Such a function would not be exported.
// expected-error@+1 {{'func.func' op has the name '_mlir_ciface_f', but names that begin with '_mlir_ciface_' are the runtime's: choose another}}
func.func @_mlir_ciface_f(%x: memref<4xf32>, %ctx: !moe.context) {
  return
}

// -----

// The calls of moe.route would call it.
// expected-error@+1 {{'func.func' op has the name 'moert_moe_route', but names that begin with 'moert_' are the runtime's: choose another}}
func.func @moert_moe_route(%x: memref<4xf32>, %ctx: !moe.context) {
  return
}

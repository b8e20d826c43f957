// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @allreduce_fusion_c1_multiple(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op hidden_size is 20, must be a multiple of 8}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 20 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c1(%r: memref<5x24xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'residual_in' has size 24 in dimension 1, but hidden_size is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x24xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c2(%r: memref<5x16xbf16>, %g: memref<8xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'rms_gamma' has size 8 in dimension 0, but hidden_size is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<8xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c3(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x24xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_active_experts_token_input' has size 24 in dimension 2, but hidden_size is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x24xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c3_tokens(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x6x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_active_experts_token_input' has size 6 in dimension 1, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x6x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c3_scales(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<4x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_scale_input' has size 4 in dimension 0, but dimension 0 of operand 'moe_reduction_active_experts_token_input' is 3}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<4x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c3_scales_tokens(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x6xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_scale_input' has size 6 in dimension 1, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x6xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c4(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %n: memref<2xi32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_device_num_experts' has size 2 in dimension 0, but the number of its elements is 1}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>) device_num_experts(%n : memref<2xi32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_token_input(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<4x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_token_input' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<4x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_allreduce_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<4x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_allreduce_out' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%m : memref<4x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_allreduce_out_hidden(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x8xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_allreduce_out' has size 8 in dimension 1, but hidden_size is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%m : memref<5x8xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_residual_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<4x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'residual_out' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%m : memref<4x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_residual_out_hidden(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x8xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'residual_out' has size 8 in dimension 1, but hidden_size is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%m : memref<5x8xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_norm_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<4x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'norm_out' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<4x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_norm_out_hidden(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x8xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'norm_out' has size 8 in dimension 1, but hidden_size is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x8xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c5_none(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op has no destination, must have one of 'moe_allreduce_out', 'residual_out' and 'norm_out'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c6_gamma(%r: memref<5x16xbf16>, %g: memref<16xf32>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'rms_gamma' must have the element type of 'residual_in'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xf32>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c6_experts(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_active_experts_token_input' must have the element type of 'residual_in'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c6_token_input(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_token_input' must have the element type of 'residual_in'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c6_allreduce_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_allreduce_out' must have the element type of 'residual_in'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    allreduce_out(%m : memref<5x16xf32>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c6_residual_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'residual_out' must have the element type of 'residual_in'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    residual_out(%m : memref<5x16xf32>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c6_norm_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'norm_out' must have the element type of 'residual_in'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xf32>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c7(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op rms_eps is -0.001, must be at least 0}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = -1.0e-3 : f64}
  return
}

// -----

func.func @allreduce_fusion_c8(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<10xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'metainfo' has size 10 in dimension 0, but the number of metainfo fields is 16}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<10xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

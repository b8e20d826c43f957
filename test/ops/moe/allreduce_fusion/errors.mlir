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
  // expected-error@+1 {{'moe.allreduce_fusion' op has no destination, must have one of 'moe_allreduce_out', 'residual_out', 'norm_out' and 'quant_out'}}
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

// -----

func.func @allreduce_fusion_s1(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'norm_out' is a tensor, but operand 'residual_in' is a memref: use tensors or memrefs throughout}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : tensor<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s1_input(%r: tensor<5x16xbf16>, %g: tensor<16xbf16>, %x: tensor<3x5x16xbf16>, %s: memref<3x5xf32>, %t: tensor<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_scale_input' is a memref, but operand 'residual_in' is a tensor: use tensors or memrefs throughout}}
  %0 = moe.allreduce_fusion residual_in(%r : tensor<5x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : tensor<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @allreduce_fusion_s1_optional(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %n: tensor<1xi32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_device_num_experts' is a tensor, but operand 'residual_in' is a memref: use tensors or memrefs throughout}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>) device_num_experts(%n : tensor<1xi32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s2(%r: memref<5x16xbf16, #moe.host>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'residual_in' must be in device memory, which is the default memory space: its type has another one}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16, #moe.host>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s2_optional(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %n: memref<1xi32, #moe.host>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'moe_reduction_device_num_experts' must be in device memory, which is the default memory space: its type has another one}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>) device_num_experts(%n : memref<1xi32, #moe.host>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s2_destination(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16, #moe.host>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'norm_out' must be in device memory, which is the default memory space: its type has another one}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16, #moe.host>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s2_workspace(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8, #moe.host>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'workspace' must be in symmetric memory, which is the default memory space: its type has another one}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8, #moe.host>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s2_metainfo(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s2_metainfo_other_space(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, 1>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'metainfo' must be in host memory: give its type the memory space #moe.host}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, 1>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s3(%r: tensor<5x16xbf16>, %g: tensor<16xbf16>, %x: tensor<3x5x16xbf16>, %s: tensor<3x5xf32>, %t: tensor<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op result #0 must have the type of destination 'norm_out'}}
  %0 = moe.allreduce_fusion residual_in(%r : tensor<5x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<3x5x16xbf16>, tensor<3x5xf32>)
    token_input(%t : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : tensor<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<?x16xbf16>
  return
}

// -----

func.func @allreduce_fusion_s3_missing(%r: tensor<5x16xbf16>, %g: tensor<16xbf16>, %x: tensor<3x5x16xbf16>, %s: tensor<3x5xf32>, %t: tensor<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: tensor<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op result #0 must have the type of destination 'norm_out'}}
  moe.allreduce_fusion residual_in(%r : tensor<5x16xbf16>) rms_gamma(%g : tensor<16xbf16>) active_experts(%x, %s : tensor<3x5x16xbf16>, tensor<3x5xf32>)
    token_input(%t : tensor<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : tensor<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_s3_on_memrefs(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op has 1 results, but must have 0: one for each destination on tensors}}
  %0 = moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64} -> tensor<5x16xbf16>
  return
}

// -----

func.func @allreduce_fusion_s4(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op has no parameter 'epsilon'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, epsilon = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_workspace_tensor(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: tensor<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #5 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'tensor<?xi8>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : tensor<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_workspace_element(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xui8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #5 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<?xui8>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xui8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_workspace_rank(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<4x?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #5 must be 1-D memref of i8: this rank's slab in symmetric memory (a workspace is never a value: pass a memref, not a tensor), but got 'memref<4x?xi8>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<4x?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_metainfo_tensor(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: tensor<16xi64>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #6 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'tensor<16xi64>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, tensor<16xi64>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_metainfo_element(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi32, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #6 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'memref<16xi32, #moe.host>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi32, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_metainfo_rank(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<2x8xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #6 must be 1-D memref of i64 in host memory (metainfo is never a value: pass a memref in #moe.host, not a tensor), but got 'memref<2x8xi64, #moe.host>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<2x8xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_element_of_residual_in(%r: memref<5x16xf64>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<5x16xf64>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xf64>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_residual_in(%r: memref<5x2x8xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #0 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<5x2x8xbf16>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x2x8xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_element_of_rms_gamma(%r: memref<5x16xbf16>, %g: memref<16xi16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #1 must be 1-D tensor or memref of bf16, f16 or f32, but got 'memref<16xi16>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xi16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_rms_gamma(%r: memref<5x16xbf16>, %g: memref<1x16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #1 must be 1-D tensor or memref of bf16, f16 or f32, but got 'memref<1x16xbf16>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<1x16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_active_experts(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<15x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #2 must be 3-D tensor or memref of bf16, f16 or f32, but got 'memref<15x16xbf16>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<15x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_element_of_scales(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xi32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #3 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<3x5xi32>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xi32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_scales(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<15xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #3 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<15xf32>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<15xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_token_input(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<80xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #4 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<80xbf16>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<80xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_norm_out(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<80xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #7 must be 2-D tensor or memref of bf16, f16 or f32, but got 'memref<80xbf16>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<80xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_element_of_num_experts(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %n: memref<1xi64>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #4 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<1xi64>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>) device_num_experts(%n : memref<1xi64>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_rank_of_num_experts(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %n: memref<1x1xi32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand #4 must be 1-D tensor or memref of i32 (signless or ui32), but got 'memref<1x1xi32>'}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>) device_num_experts(%n : memref<1x1xi32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c9_codes(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'quant_out' is there, but quant_format is none: leave it out}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x8xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @allreduce_fusion_c9_no_codes(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'quant_out' is not there, but quant_format is nvfp4: add it}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @allreduce_fusion_c9_scales(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x16xi8>, %c: memref<1x1xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'scale_out' is there, but quant_format is fp8_tensor: leave it out}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x16xi8>) scale_out(%c : memref<1x1xf32>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "fp8_tensor"}
  return
}

// -----

func.func @allreduce_fusion_c9_no_scales(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'scale_out' is not there, but quant_format is nvfp4: add it}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x8xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @allreduce_fusion_c10(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x16xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'quant_out' has size 16 in dimension 1, but half of hidden_size is 8}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x16xi8>) scale_out(%c : memref<5x1xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @allreduce_fusion_c10_tokens(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<4x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'quant_out' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<4x8xi8>) scale_out(%c : memref<5x1xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @allreduce_fusion_c10_block(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x16xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op hidden_size is 16, must be a multiple of 32 for mxfp8}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x16xi8>) scale_out(%c : memref<5x1xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "mxfp8"}
  return
}

// -----

func.func @allreduce_fusion_c10_element(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xf8E4M3FN>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op operand 'quant_out' has an element type that is none of nvfp4: must be i8 or ui8}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x8xf8E4M3FN>) scale_out(%c : memref<5x1xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @allreduce_fusion_c11(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x16xi8>, %c: memref<5x1xf32>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op layout_code = 8x4 goes with nvfp4, mxfp4 and mxfp8, but quant_format is fp8_token: leave it linear}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x16xi8>) scale_out(%c : memref<5x1xf32>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "fp8_token", layout_code = "8x4"}
  return
}

// -----

func.func @allreduce_fusion_c12(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op scale_factor is 0, must be larger than 0 as an f32}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x8xi8>) scale_out(%c : memref<5x1xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4", scale_factor = 0.0 : f64}
  return
}

// -----

func.func @allreduce_fusion_c12_format(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<3x5x16xbf16>, %s: memref<3x5xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.allreduce_fusion' op scale_factor = 2 goes with nvfp4 and fp8_tensor, but quant_format is none: leave it 1}}
  moe.allreduce_fusion residual_in(%r : memref<5x16xbf16>) rms_gamma(%g : memref<16xbf16>) active_experts(%x, %s : memref<3x5x16xbf16>, memref<3x5xf32>)
    token_input(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, scale_factor = 2.0 : f64}
  return
}

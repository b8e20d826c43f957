// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @finalize_allreduce_fusion_c1_multiple(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op hidden_size is 20, must be a multiple of 8}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 20 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c1(%r: memref<5x24xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'residual_in' has size 24 in dimension 1, but hidden_size is 16}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x24xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c2(%r: memref<5x16xbf16>, %g: memref<8xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'norm_weight' has size 8 in dimension 0, but hidden_size is 16}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<8xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c3(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x24xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'allreduce_in' has size 24 in dimension 1, but hidden_size is 16}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x24xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c4(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<4x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'expanded_idx_to_permuted_idx' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<4x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c4_scales(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x3xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'expert_scale_factor' has size 3 in dimension 1, but dimension 1 of operand 'expanded_idx_to_permuted_idx' is 2}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x3xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c5(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<4x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'shared_expert_output' has size 4 in dimension 0, but dimension 0 of operand 'residual_in' is 5}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<4x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c5_none(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op has no destination, must have one of 'residual_out', 'norm_out' and 'quant_out'}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c6(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'allreduce_in' must have the element type of 'residual_in'}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c6_weight(%r: memref<5x16xbf16>, %g: memref<16xf32>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'norm_weight' must have the element type of 'residual_in'}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xf32>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c7(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op rms_eps is -1, must be at least 0}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = -1.0 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c8(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<10xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'metainfo' has size 10 in dimension 0, but the number of metainfo fields is 16}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<10xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64}
  return
}

// -----

func.func @finalize_allreduce_fusion_c9(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'quant_out' is not there, but quant_format is nvfp4: add it}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @finalize_allreduce_fusion_c10(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x16xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op operand 'quant_out' has size 16 in dimension 1, but half of hidden_size is 8}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) quant_out(%q : memref<5x16xi8>) scale_out(%c : memref<5x1xi8>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, quant_format = "nvfp4"}
  return
}

// -----

func.func @finalize_allreduce_fusion_c11(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op layout_code = 8x4 goes with nvfp4, mxfp4 and mxfp8, but quant_format is none: leave it linear}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, layout_code = "8x4"}
  return
}

// -----

func.func @finalize_allreduce_fusion_c12(%r: memref<5x16xbf16>, %g: memref<16xbf16>, %x: memref<9x16xbf16>, %i: memref<5x2xi32>, %w: memref<5x2xf32>, %t: memref<5x16xbf16>,
    %ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %m: memref<5x16xbf16>, %q: memref<5x8xi8>, %c: memref<5x1xi8>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.finalize_allreduce_fusion' op scale_factor = 2 goes with nvfp4 and fp8_tensor, but quant_format is none: leave it 1}}
  moe.finalize_allreduce_fusion residual_in(%r : memref<5x16xbf16>) norm_weight(%g : memref<16xbf16>) rows(%x, %i : memref<9x16xbf16>, memref<5x2xi32>)
    expert_scale_factor(%w : memref<5x2xf32>) shared_expert_output(%t : memref<5x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    norm_out(%m : memref<5x16xbf16>) context(%ctx) {hidden_size = 16 : i64, rms_eps = 1.0e-5 : f64, scale_factor = 2.0 : f64}
  return
}

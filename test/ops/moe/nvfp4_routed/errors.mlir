// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @nvfp4_routed_c1(%x: memref<5x160xi8>, %xs: memref<5x20xf8E4M3FN>, %w1: memref<4x512x160xi8>, %s1: memref<4x512x20xf8E4M3FN>,
    %w2: memref<4x320x128xi8>, %s2: memref<4x320x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x320xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op K is 320 by operand 'hidden_states', must be a multiple of 256, and at least that}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x160xi8>, memref<5x20xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x160xi8>, memref<4x512x20xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x320x128xi8>, memref<4x320x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x320xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c1_nothing(%x: memref<5x0xi8>, %xs: memref<5x0xf8E4M3FN>, %w1: memref<4x512x0xi8>, %s1: memref<4x512x0xf8E4M3FN>,
    %w2: memref<4x0x128xi8>, %s2: memref<4x0x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x0xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op K is 0 by operand 'hidden_states', must be a multiple of 256, and at least that}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x0xi8>, memref<5x0xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x0xi8>, memref<4x512x0xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x0x128xi8>, memref<4x0x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x0xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c1_of_another(%x: memref<5x?xi8>, %xs: memref<5x?xf8E4M3FN>, %w1: memref<4x512x?xi8>, %s1: memref<4x512x?xf8E4M3FN>,
    %w2: memref<4x?x128xi8>, %s2: memref<4x?x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x128xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op K is 128 by operand 'out', must be a multiple of 256, and at least that}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x?xi8>, memref<5x?xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x?xi8>, memref<4x512x?xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x?x128xi8>, memref<4x?x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x128xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c1_tokens(%x: memref<1073741824x128xi8>, %xs: memref<1073741824x16xf8E4M3FN>, %w1: memref<4x512x128xi8>,
    %s1: memref<4x512x16xf8E4M3FN>, %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>,
    %d: memref<4xf32>, %ids: memref<1073741824x2xi32>, %w: memref<1073741824x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>,
    %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<1073741824x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op M is 1073741824 by operand 'hidden_states', must be from 0 to 1073741823: i32 must hold M * top_k}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<1073741824x128xi8>, memref<1073741824x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<1073741824x2xi32>, memref<1073741824x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<1073741824x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c2(%x: memref<5x128xi8>, %xs: memref<4x16xi8>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'hidden_states_scale' has size 4 in dimension 0, but M by operand 'hidden_states' is 5}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<4x16xi8>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c2_columns(%x: memref<5x128xi8>, %xs: memref<5x32xi8>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'hidden_states_scale' has size 32 in dimension 1, but K / 16 by operand 'hidden_states' is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x32xi8>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c2_element_type(%x: memref<5x128xi8>, %xs: memref<5x16xf8E8M0FNU>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand #1 must be 2-D tensor or memref of f8E4M3FN or i8 (signless or ui8), but got 'memref<5x16xf8E8M0FNU>'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E8M0FNU>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x256xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm1_weights' has size 256 in dimension 2, but K / 2 by operand 'hidden_states' is 128}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x256xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x384x128xi8>, %s1: memref<4x384x16xf8E4M3FN>,
    %w2: memref<4x256x96xi8>, %s2: memref<4x256x12xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op N is 384 by operand 'gemm1_weights', must be a multiple of 256, and at least that}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x384x128xi8>, memref<4x384x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x96xi8>, memref<4x256x12xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_no_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x0x128xi8>, %s1: memref<4x0x16xf8E4M3FN>,
    %w2: memref<4x256x0xi8>, %s2: memref<4x256x0xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op N is 0 by operand 'gemm1_weights', must be a multiple of 256, and at least that}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x0x128xi8>, memref<4x0x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x0xi8>, memref<4x256x0xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_experts(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<1025x512x128xi8>, %s1: memref<1025x512x16xf8E4M3FN>,
    %w2: memref<1025x256x128xi8>, %s2: memref<1025x256x16xf8E4M3FN>, %g: memref<1025xf32>, %u: memref<1025xf32>, %d: memref<1025xf32>,
    %ids: memref<5x2xi32>, %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<1027xi32>,
    %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op E is 1025 by operand 'gemm1_weights', must be from 1 to 1024}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<1025x512x128xi8>, memref<1025x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<1025x256x128xi8>, memref<1025x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<1025xf32>, memref<1025xf32>, memref<1025xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<1027xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_no_experts(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<0x512x128xi8>, %s1: memref<0x512x16xf8E4M3FN>,
    %w2: memref<0x256x128xi8>, %s2: memref<0x256x16xf8E4M3FN>, %g: memref<0xf32>, %u: memref<0xf32>, %d: memref<0xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<2xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op E is 0 by operand 'gemm1_weights', must be from 1 to 1024}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<0x512x128xi8>, memref<0x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<0x256x128xi8>, memref<0x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<0xf32>, memref<0xf32>, memref<0xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<2xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_scale_experts(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<3x512x16xi8>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm1_weights_scale' has size 3 in dimension 0, but E by operand 'gemm1_weights' is 4}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<3x512x16xi8>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_scale_rows(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x256x16xi8>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm1_weights_scale' has size 256 in dimension 1, but N by operand 'gemm1_weights' is 512}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x256x16xi8>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c3_scale_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x8xi8>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm1_weights_scale' has size 8 in dimension 2, but K / 16 by operand 'hidden_states' is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x8xi8>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c4(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<8x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm2_weights' has size 8 in dimension 0, but E by operand 'gemm1_weights' is 4}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<8x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c4_rows(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x512x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm2_weights' has size 512 in dimension 1, but K by operand 'hidden_states' is 256}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x512x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c4_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x256xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm2_weights' has size 256 in dimension 2, but N / 4 by operand 'gemm1_weights' is 128}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x256xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c4_scale_experts(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<1x256x16xi8>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm2_weights_scale' has size 1 in dimension 0, but E by operand 'gemm1_weights' is 4}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<1x256x16xi8>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c4_scale_rows(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x16x256xi8>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm2_weights_scale' has size 16 in dimension 1, but K by operand 'hidden_states' is 256}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x16x256xi8>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c4_scale_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x32xi8>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'gemm2_weights_scale' has size 32 in dimension 2, but N / 32 by operand 'gemm1_weights' is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x32xi8>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c5(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<1xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'output1_scale_gate_scalar' has size 1 in dimension 0, but E by operand 'gemm1_weights' is 4}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<1xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c5_up(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<5xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'output1_scale_scalar' has size 5 in dimension 0, but E by operand 'gemm1_weights' is 4}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<5xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c5_down(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<5xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'output2_scale_scalar' has size 5 in dimension 0, but E by operand 'gemm1_weights' is 4}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<5xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c6(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x3xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'topk_ids' has size 3 in dimension 1, but top_k is 2}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x3xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c6_tokens(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<6x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'topk_ids' has size 6 in dimension 0, but M by operand 'hidden_states' is 5}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<6x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c6_weights(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x1xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'topk_weights' has size 1 in dimension 1, but top_k is 2}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x1xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c6_weight_tokens(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<1x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'topk_weights' has size 1 in dimension 0, but M by operand 'hidden_states' is 5}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<1x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c6_top_k(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x5xi32>,
    %w: memref<5x5xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op top_k is 5, must be at most E = 4 by operand 'gemm1_weights'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x5xi32>, memref<5x5xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 5 : i64}
  return
}

// -----

func.func @nvfp4_routed_c6_all_experts(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x6xi32>,
    %w: memref<5x6xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op top_k is 6, must be at most num_experts = 5}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x6xi32>, memref<5x6xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 6 : i64, num_experts = 5 : i64}
  return
}

// -----

func.func @nvfp4_routed_c7(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<4x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'out' has size 4 in dimension 0, but M by operand 'hidden_states' is 5}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<4x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c7_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x512xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'out' has size 512 in dimension 1, but K by operand 'hidden_states' is 256}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x512xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c7_element_type(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xf32>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand #15 must be 2-D tensor or memref of bf16, but got 'memref<5x256xf32>'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xf32>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c8(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op block_m is 12, must be a multiple of 8}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64, block_m = 12 : i64}
  return
}

// -----

func.func @nvfp4_routed_c9(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<111xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'sorted_token_ids' has size 111 in dimension 0, must be at least 112, block_m for each entry of 'expert_ids'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<111xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64, block_m = 16 : i64}
  return
}

// -----

func.func @nvfp4_routed_c9_no_blocks(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<0xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'expert_ids' has size 0 in dimension 0, must be at least 1}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<0xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c9_entries(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<2147483648xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>,
    %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'sorted_token_ids' has size 2147483648 in dimension 0, must be at most 2147483647}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<2147483648xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c9_element_type(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xui32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand #12 must be 1-D tensor or memref of i32, but got 'memref<7xui32>'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xui32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c10(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<2xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'num_tokens_post_padded' has size 2 in dimension 0, but the number of its elements is 1}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<2xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c10_sums(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<5xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'cumsum_buffer' has size 5 in dimension 0, must be at least 6, E + 2}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<5xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w1d: memref<8x128x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_data_prepared' has size 8 in dimension 0, but the number of panels is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_data_prepared(%w1d : memref<8x128x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_w1_scale(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w1s: memref<16x128x16xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_scale_prepared' has size 128 in dimension 1, but the height of a panel is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_scale_prepared(%w1s : memref<16x128x16xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_interleaved(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w1i: memref<16x16x64xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>,
    %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_scale_prepared_interleaved' has size 64 in dimension 2, but the width of a panel is 128}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_scale_prepared_interleaved(%w1i : memref<16x16x64xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_gate_up_data(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %gud: memref<16x256x128xi8>, %gus: memref<8x32x128xf8E4M3FN>, %sorted: memref<56xi32>, %experts: memref<7xi32>,
    %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_gate_up_data_prepared' has size 16 in dimension 0, but the number of panels is 8}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_gate_up_data_prepared(%gud : memref<16x256x128xi8>) w1_gate_up_scale_prepared(%gus : memref<8x32x128xf8E4M3FN>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_gate_up_scale(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>,
    %s1: memref<4x512x16xf8E4M3FN>, %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>,
    %d: memref<4xf32>, %ids: memref<5x2xi32>, %w: memref<5x2xf32>, %gud: memref<8x256x128xi8>, %gus: memref<8x16x128xi8>, %sorted: memref<56xi32>,
    %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_gate_up_scale_prepared' has size 16 in dimension 1, but the height of a panel is 32}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_gate_up_data_prepared(%gud : memref<8x256x128xi8>) w1_gate_up_scale_prepared(%gus : memref<8x16x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_w2_data(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w2d: memref<16x128x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w2_data_prepared' has size 128 in dimension 2, but the width of a panel is 64}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w2_data_prepared(%w2d : memref<16x128x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_w2_scale(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w2s: memref<8x8x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>,
    %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w2_scale_prepared' has size 8 in dimension 0, but the number of panels is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w2_scale_prepared(%w2s : memref<8x8x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_w1_fragments(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w1f: memref<32x36x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>,
    %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_fragments_prepared' has size 32 in dimension 0, but the number of panels is 64}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_fragments_prepared(%w1f : memref<32x36x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c11_w2_fragments(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w2f: memref<32x32x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>,
    %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w2_fragments_prepared' has size 32 in dimension 1, but the height of a panel is 36}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w2_fragments_prepared(%w2f : memref<32x32x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c12(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w2d256: memref<16x128x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w2_data_prepared_k256' has size 16 in dimension 0, but the number of panels is 8}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w2_data_prepared_k256(%w2d256 : memref<16x128x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c12_scale(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w2s256: memref<8x8x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w2_scale_prepared_k256' has size 8 in dimension 1, but the height of a panel is 16}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w2_scale_prepared_k256(%w2s256 : memref<8x8x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c12_columns(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x256x128xi8>, %s1: memref<4x256x16xf8E4M3FN>,
    %w2: memref<4x256x64xi8>, %s2: memref<4x256x8xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %w2d256: memref<4x128x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w2_data_prepared_k256' is there, so N must be a multiple of 512, but it is 256 by operand 'gemm1_weights'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x64xi8>, memref<4x256x8xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w2_data_prepared_k256(%w2d256 : memref<4x128x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c13(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %gud: memref<8x256x128xi8>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_gate_up_data_prepared' is there, but 'w1_gate_up_scale_prepared' is not: add it, or leave out both}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_gate_up_data_prepared(%gud : memref<8x256x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c13_data(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %gus: memref<8x32x128xf8E4M3FN>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>,
    %cumsum: memref<6xi32>, %out: memref<5x256xbf16>, %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op operand 'w1_gate_up_scale_prepared' is there, but 'w1_gate_up_data_prepared' is not: add it, or leave out both}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    w1_gate_up_scale_prepared(%gus : memref<8x32x128xf8E4M3FN>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64}
  return
}

// -----

func.func @nvfp4_routed_c14(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op num_experts is 8, must be at least first_expert + E = 9 by operand 'gemm1_weights'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64, first_expert = 5 : i64, num_experts = 8 : i64}
  return
}

// -----

func.func @nvfp4_routed_c14_fewer(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op num_experts is 3, must be at least first_expert + E = 4 by operand 'gemm1_weights'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64, num_experts = 3 : i64}
  return
}

// -----

func.func @nvfp4_routed_c14_largest(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op num_experts is 2147483647, must be at least first_expert + E = 2147483651 by operand 'gemm1_weights'}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64, first_expert = 2147483647 : i64, num_experts = 2147483647 : i64}
  return
}

// -----

func.func @nvfp4_routed_c14_first_alone(%x: memref<5x128xi8>, %xs: memref<5x16xf8E4M3FN>, %w1: memref<4x512x128xi8>, %s1: memref<4x512x16xf8E4M3FN>,
    %w2: memref<4x256x128xi8>, %s2: memref<4x256x16xf8E4M3FN>, %g: memref<4xf32>, %u: memref<4xf32>, %d: memref<4xf32>, %ids: memref<5x2xi32>,
    %w: memref<5x2xf32>, %sorted: memref<56xi32>, %experts: memref<7xi32>, %padded: memref<1xi32>, %cumsum: memref<6xi32>, %out: memref<5x256xbf16>,
    %ctx: !moe.context) {
  // expected-error@+1 {{'moe.nvfp4_routed' op first_expert is 4, must be 0 unless num_experts says how many experts there are}}
  moe.nvfp4_routed hidden_states(%x, %xs : memref<5x128xi8>, memref<5x16xf8E4M3FN>)
    gemm1(%w1, %s1 : memref<4x512x128xi8>, memref<4x512x16xf8E4M3FN>) gemm2(%w2, %s2 : memref<4x256x128xi8>, memref<4x256x16xf8E4M3FN>)
    output_scales(%g, %u, %d : memref<4xf32>, memref<4xf32>, memref<4xf32>) topk(%ids, %w : memref<5x2xi32>, memref<5x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : memref<56xi32>, memref<7xi32>, memref<1xi32>, memref<6xi32>)
    outs(%out : memref<5x256xbf16>) context(%ctx) {top_k = 2 : i64, first_expert = 4 : i64}
  return
}

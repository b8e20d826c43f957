// RUN: moe-compile %s -o %t.so
// RUN: %python %S/Inputs/routed.py %t

// Sums are whole numbers, or zeros, which are exact. What lies behind the plan keeps its contents.
// RUN: moe-run %t.so --function added --size sorted.0=56 --input x=%t.x.npy --input xs=%t.xs.npy --input w1=%t.w1.npy --input s1=%t.s1.npy --input w2=%t.w2.npy --input s2=%t.s2.npy --input g=%t.g.npy --input u=%t.u.npy --input d=%t.d.npy --input ids=%t.ids.npy --input w=%t.w.npy --input experts=%t.old_plan.npy --input cumsum=%t.old_cumsum.npy --input out=%t.old.npy --expect sorted=%t.sorted.npy --expect experts=%t.plan.npy --expect padded=%t.padded.npy --expect cumsum=%t.cumsum.npy --expect out=%t.added.npy

// By itself, call after call, and with weights that were prepared, before and in the graph.
// RUN: moe-run %t.so --function alone --size sorted.0=56 --size out.0=5 --input x=%t.x.npy --input xs=%t.xs.npy --input w1=%t.w1.npy --input s1=%t.s1.npy --input w2=%t.w2.npy --input s2=%t.s2.npy --input g=%t.g.npy --input u=%t.u.npy --input d=%t.d.npy --input ids=%t.ids.npy --input w=%t.w.npy --input experts=%t.old_plan.npy --input cumsum=%t.old_cumsum.npy --input prepared=%t.prepared.npy --expect sorted=%t.sorted.npy --expect out=%t.alone.npy --repeat 3

// The weights of the last expert alone, fewer than a token chooses.
// RUN: moe-run %t.so --function last --size sorted.0=56 --input x=%t.x.npy --input xs=%t.xs.npy --input w1=%t.last_w1.npy --input s1=%t.last_s1.npy --input w2=%t.last_w2.npy --input s2=%t.last_s2.npy --input g=%t.last_g.npy --input u=%t.last_u.npy --input d=%t.last_d.npy --input ids=%t.ids.npy --input w=%t.w.npy --input experts=%t.old_plan.npy --input out=%t.old.npy --expect sorted=%t.last_sorted.npy --expect experts=%t.last_plan.npy --expect cumsum=%t.last_cumsum.npy --expect out=%t.added_last.npy

// A plan that does not fit is an error, which says how much does.
// RUN: not moe-run %t.so --function alone --input x=%t.x.npy --input xs=%t.xs.npy --input w1=%t.w1.npy --input s1=%t.s1.npy --input w2=%t.w2.npy --input s2=%t.s2.npy --input g=%t.g.npy --input u=%t.u.npy --input d=%t.d.npy --input ids=%t.ids.npy --input w=%t.w.npy --input prepared=%t.prepared.npy --random 1 --size out.0=5 --size experts.0=3 --size sorted.0=24 2>&1 | FileCheck %s
// CHECK: alone: MOERT_ERROR_CAPACITY {{.*}}: moe.nvfp4_routed: operand 'expert_ids' has room for 3 blocks, must have room for the 4 of the plan, and 'sorted_token_ids' for 8 entries each

func.func @added(%x: tensor<?x128xi8> {moe.name = "x"}, %xs: tensor<?x16xf8E4M3FN> {moe.name = "xs"}, %w1: tensor<3x256x128xi8> {moe.name = "w1"},
    %s1: tensor<3x256x16xf8E4M3FN> {moe.name = "s1"}, %w2: tensor<3x256x64xi8> {moe.name = "w2"}, %s2: tensor<3x256x8xf8E4M3FN> {moe.name = "s2"},
    %g: tensor<3xf32> {moe.name = "g"}, %u: tensor<3xf32> {moe.name = "u"}, %d: tensor<3xf32> {moe.name = "d"},
    %ids: tensor<?x2xi32> {moe.name = "ids"}, %w: tensor<?x2xf32> {moe.name = "w"}, %sorted: tensor<?xi32> {moe.name = "sorted"},
    %experts: tensor<?xi32> {moe.name = "experts", moe.role = "inout"}, %padded: tensor<1xi32> {moe.name = "padded"},
    %cumsum: tensor<5xi32> {moe.name = "cumsum", moe.role = "inout"}, %out: tensor<?x256xbf16> {moe.name = "out", moe.role = "inout"},
    %ctx: !moe.context) -> (tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>, tensor<?x256xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x128xi8>, tensor<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<3x256x128xi8>, tensor<3x256x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<3x256x64xi8>, tensor<3x256x8xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) topk(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>)
    outs(%out : tensor<?x256xbf16>) context(%ctx) {top_k = 2 : i64, routed_scaling_factor = 2.0 : f64} -> tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>, tensor<?x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>, tensor<?x256xbf16>
}

func.func @alone(%x: tensor<?x128xi8> {moe.name = "x"}, %xs: tensor<?x16xf8E4M3FN> {moe.name = "xs"}, %w1: tensor<3x256x128xi8> {moe.name = "w1"},
    %s1: tensor<3x256x16xf8E4M3FN> {moe.name = "s1"}, %w2: tensor<3x256x64xi8> {moe.name = "w2"}, %s2: tensor<3x256x8xf8E4M3FN> {moe.name = "s2"},
    %g: tensor<3xf32> {moe.name = "g"}, %u: tensor<3xf32> {moe.name = "u"}, %d: tensor<3xf32> {moe.name = "d"},
    %ids: tensor<?x2xi32> {moe.name = "ids"}, %w: tensor<?x2xf32> {moe.name = "w"}, %w2d: tensor<6x128x64xi8> {moe.name = "prepared"},
    %sorted: tensor<?xi32> {moe.name = "sorted"}, %experts: tensor<?xi32> {moe.name = "experts", moe.role = "inout"},
    %padded: tensor<1xi32> {moe.name = "padded"}, %cumsum: tensor<5xi32> {moe.name = "cumsum", moe.role = "inout"},
    %out: tensor<?x256xbf16> {moe.name = "out"}, %ctx: !moe.context) -> (tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>, tensor<?x256xbf16>) {
  %lanes = tensor.empty() : tensor<12x36x128xi8>
  %w2f = moe.prepare_nvfp4 source(%w2 : tensor<3x256x64xi8>) scales(%s2 : tensor<3x256x8xf8E4M3FN>) outs(%lanes : tensor<12x36x128xi8>) context(%ctx) {layout = "w2_fragments"} -> tensor<12x36x128xi8>
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x128xi8>, tensor<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<3x256x128xi8>, tensor<3x256x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<3x256x64xi8>, tensor<3x256x8xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) topk(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>)
    w2_data_prepared(%w2d : tensor<6x128x64xi8>) w2_fragments_prepared(%w2f : tensor<12x36x128xi8>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>)
    outs(%out : tensor<?x256xbf16>) context(%ctx) {top_k = 2 : i64, accumulate = false} -> tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>, tensor<?x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<5xi32>, tensor<?x256xbf16>
}

func.func @last(%x: tensor<?x128xi8> {moe.name = "x"}, %xs: tensor<?x16xf8E4M3FN> {moe.name = "xs"}, %w1: tensor<1x256x128xi8> {moe.name = "w1"},
    %s1: tensor<1x256x16xf8E4M3FN> {moe.name = "s1"}, %w2: tensor<1x256x64xi8> {moe.name = "w2"}, %s2: tensor<1x256x8xf8E4M3FN> {moe.name = "s2"},
    %g: tensor<1xf32> {moe.name = "g"}, %u: tensor<1xf32> {moe.name = "u"}, %d: tensor<1xf32> {moe.name = "d"},
    %ids: tensor<?x2xi32> {moe.name = "ids"}, %w: tensor<?x2xf32> {moe.name = "w"}, %sorted: tensor<?xi32> {moe.name = "sorted"},
    %experts: tensor<?xi32> {moe.name = "experts", moe.role = "inout"}, %padded: tensor<1xi32> {moe.name = "padded"},
    %cumsum: tensor<3xi32> {moe.name = "cumsum"}, %out: tensor<?x256xbf16> {moe.name = "out", moe.role = "inout"}, %ctx: !moe.context)
    -> (tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<3xi32>, tensor<?x256xbf16>) {
  %0:5 = moe.nvfp4_routed hidden_states(%x, %xs : tensor<?x128xi8>, tensor<?x16xf8E4M3FN>)
    gemm1(%w1, %s1 : tensor<1x256x128xi8>, tensor<1x256x16xf8E4M3FN>) gemm2(%w2, %s2 : tensor<1x256x64xi8>, tensor<1x256x8xf8E4M3FN>)
    output_scales(%g, %u, %d : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) topk(%ids, %w : tensor<?x2xi32>, tensor<?x2xf32>)
    plan(%sorted, %experts, %padded, %cumsum : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<3xi32>)
    outs(%out : tensor<?x256xbf16>) context(%ctx) {top_k = 2 : i64, first_expert = 2 : i64, num_experts = 3 : i64} -> tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<3xi32>, tensor<?x256xbf16>
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?xi32>, tensor<?xi32>, tensor<1xi32>, tensor<3xi32>, tensor<?x256xbf16>
}

// RUN: moe-opt %s --split-input-file --verify-diagnostics

// Regions and terminators that are not as the op's verifier may expect them. Each layer is the same but for its epilogue.
func.func @no_block(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %p: memref<?xi64, #moe.host>, %w: memref<?x2xf32>, %out: memref<?x16xbf16>,
                    %ctx: !moe.context) {
  // expected-error@+1 {{'ep.combine.skip_a2a' op region #0 ('epilogue') failed to verify constraint: region with 1 blocks}}
  "ep.combine.skip_a2a"(%out, %c, %x, %src, %p, %p, %p, %w, %src, %ctx) <{hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64,
    max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}> ({
  }) : (memref<?x16xbf16>, memref<360xi32>, memref<?x16xbf16>, memref<?x2xi32>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>,
        memref<?xi64, #moe.host>, memref<?x2xf32>, memref<?x2xi32>, !moe.context) -> ()
  return
}

// -----

func.func @empty_block(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %p: memref<?xi64, #moe.host>, %w: memref<?x2xf32>, %out: memref<?x16xbf16>,
                       %ctx: !moe.context) {
  // expected-error@+1 {{empty block: expect at least a terminator}}
  "ep.combine.skip_a2a"(%out, %c, %x, %src, %p, %p, %p, %w, %src, %ctx) <{hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64,
    max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}> ({
  ^bb0(%i: index, %j: index, %v: bf16):
  }) : (memref<?x16xbf16>, memref<360xi32>, memref<?x16xbf16>, memref<?x2xi32>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>,
        memref<?xi64, #moe.host>, memref<?x2xf32>, memref<?x2xi32>, !moe.context) -> ()
  return
}

// -----

func.func @malformed_terminator(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %p: memref<?xi64, #moe.host>, %w: memref<?x2xf32>,
                                %out: memref<?x16xbf16>, %ctx: !moe.context) {
  "ep.combine.skip_a2a"(%out, %c, %x, %src, %p, %p, %p, %w, %src, %ctx) <{hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64,
    max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}> ({
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'ep.yield' op requires a single operand}}
    "ep.yield"() : () -> ()
  }) : (memref<?x16xbf16>, memref<360xi32>, memref<?x16xbf16>, memref<?x2xi32>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>,
        memref<?xi64, #moe.host>, memref<?x2xf32>, memref<?x2xi32>, !moe.context) -> ()
  return
}

// -----

func.func @two_values(%c: memref<360xi32>, %x: memref<?x16xbf16>, %src: memref<?x2xi32>, %p: memref<?xi64, #moe.host>, %w: memref<?x2xf32>,
                      %out: memref<?x16xbf16>, %ctx: !moe.context) {
  "ep.combine.skip_a2a"(%out, %c, %x, %src, %p, %p, %p, %w, %src, %ctx) <{hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64,
    max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}> ({
  ^bb0(%i: index, %j: index, %v: bf16):
    // expected-error@+1 {{'ep.yield' op requires a single operand}}
    "ep.yield"(%v, %v) : (bf16, bf16) -> ()
  }) : (memref<?x16xbf16>, memref<360xi32>, memref<?x16xbf16>, memref<?x2xi32>, memref<?xi64, #moe.host>, memref<?xi64, #moe.host>,
        memref<?xi64, #moe.host>, memref<?x2xf32>, memref<?x2xi32>, !moe.context) -> ()
  return
}

// -----

func.func @other_parent(%v: bf16) {
  // expected-error@+1 {{'ep.yield' op expects parent op 'ep.combine.skip_a2a'}}
  ep.yield %v : bf16
}

// -----

func.func @region_of_an_op_without(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_size' op requires zero regions}}
  %0 = "moe.workspace_size"(%ctx) <{max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 16 : i64}> ({
  ^bb0(%a: index):
  }) : (!moe.context) -> index
  return
}

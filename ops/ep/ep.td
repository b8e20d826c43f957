//===- ep.td - the `ep` dialect -------------------------------------------------------------------===//
//
// Expert parallelism in the manner of MAX's graph ops of the same names. Constraints are labelled C1, C2, ... per op; the verifiers and the
// negative tests carry the same labels. S1 to S7 hold for every op: see docs/errors.md.
//
// In the mode `skip_a2a` every rank has all tokens, and nothing moves between ranks: a rank picks the pairs (token, slot) whose expert it owns, and
// an all-reduce behind the layer, which is no part of these ops, adds the ranks' partial sums. So `ep.dispatch` and `ep.combine.skip_a2a` are
// local, as the table of ops has it: no rank can wait for another in them, and a rank whose peer has failed may still finish its layer. They write
// `atomic_counters`, which is a memref on tensors too; that effect, not the fabric, keeps a dispatch and its combine from being removed, merged or
// reordered. `ep.init` is a fabric op: symmetric memory is allocated by all ranks together.
//
//===----------------------------------------------------------------------------------------------===//

#ifndef EP_OPS
#define EP_OPS

include "ops/moe/dialect.td"

def Ep_Dialect : Dialect {
  let name = "ep";
  let cppNamespace = "::ep";
  let summary = "Expert parallelism with pointer tables and counters of the caller";
  let description = [{
    Ops in the style of the dialect `moe`, whose `!moe.context` and `#moe.host` they use.
  }];
  let dependentDialects = ["::moe::MoeDialect"];
}

//===--- operands ---------------------------------------------------------------------------------===//

def Ep_Bf16x2    : Moe_Buffer<"2-D tensor or memref of bf16", [BF16], 2>;
def Ep_Counters
    : Moe_State<"1-D memref of i32 that ep.init has cleared (counters are never a value: pass a memref, not a tensor)", [I32], 1, "device">;
def Ep_Pointers
    : Moe_State<"1-D memref of i64 or ui64 in host memory: one address for each rank (never a value: pass a memref in #moe.host, not a tensor)",
                [I64, UI64], 1, "host">;
def Ep_DevicePointers
    : Moe_State<"2-D memref of i64 or ui64 in host memory (never a value: pass a memref in #moe.host, not a tensor)", [I64, UI64], 2, "host">;
def Ep_Rank
    : Moe_State<"1-D memref of i32 in host memory (never a value: pass a memref in #moe.host, not a tensor)", [I32], 1, "host">;

//===--- static parameters ------------------------------------------------------------------------===//

// What all ops of a layer have in common. In the mode `skip_a2a` the experts are those of one rank, and there is one GPU and one node.
defvar Ep_Geometry = (ins
    Moe_Int<1, 1048576>:$hidden_size, Moe_Int<1, 32>:$top_k, Moe_Int<1, 65536>:$n_experts, Moe_Int<1, 16777216>:$max_token_per_rank,
    DefaultValuedAttr<Moe_Int<1, 8>, "1">:$n_gpus_per_node,
    DefaultValuedAttr<Moe_Int<1, 64>, "1">:$n_nodes);

//===--- initialisation ---------------------------------------------------------------------------===//

def Ep_InitOp : Moe_Op<Ep_Dialect, "init", "ep_init"> {
  let summary = "Allocate the buffers of a layer and clear its counters";
  let description = [{
    Zeroes both counter buffers, takes the layer's buffers from the symmetric memory of the communicator, which owns them, and writes their
    addresses to `dev_ptrs`: row 0 is the dispatch's (send, recv, recv_count), row 1 the combine's. The combine's send buffer is for several nodes;
    its address is 0. Receive counts say "no data", 2^64 - 1. `my_rank` is this rank's number. The pointer tables of the other ops have one such
    address for each rank, all of one row and column; entry `my_rank` is this rank's own. `moert/ep.h` has the sizes of all of them.

    Call it once for a layer's counters, not once per step: what a further call replaces is not released before the communicator is. The rows of
    both groups are laid out for the mode `skip_a2a` of the ops below, whose `n_experts` is the number of experts of one rank.

    Collective: every rank must call it. Not capturable in a CUDA graph.

    Constraints:
    - C1: `dispatch_fmt_str` is "BF16": other formats are unsupported.
    - C2: `dispatch_dtype` is that of the format: "bf16".
    - C3: `n_gpus_per_node` and `n_nodes` are 1: buffers of an all-to-all are unsupported.
    - C4: both counter buffers have `10 * n_experts + 320` words.
    - C5: `dev_ptrs` is [2, 3] and `my_rank` is [1].
  }];
  let arguments = !con((ins Ep_Counters:$atomic_counters_0, Ep_Counters:$atomic_counters_1, Ep_DevicePointers:$dev_ptrs, Ep_Rank:$my_rank,
                        Moe_Context:$device_context),
                       Ep_Geometry,
                       (ins DefaultValuedAttr<Moe_OneOf<["bf16", "f8E4M3FN", "ui8"]>, "\"bf16\"">:$dispatch_dtype,
                            DefaultValuedAttr<Moe_OneOf<["bf16", "f16", "f32"]>, "\"bf16\"">:$combine_dtype,
                            DefaultValuedAttr<Moe_OneOf<["f32", "f8E4M3FN", "f8E8M0FNU"]>, "\"f32\"">:$dispatch_scale_dtype,
                            DefaultValuedAttr<Moe_OneOf<["BF16", "BlockwiseFP8", "BLOCK_SCALED_NV", "MXFP4", "MXFP6"]>,
                                              "\"BF16\"">:$dispatch_fmt_str));
  let results = (outs);
  let fabric = 1;
  let kernel = 0;
  let assemblyFormat = [{
    `counters` `(` $atomic_counters_0 `,` $atomic_counters_1 `:` type($atomic_counters_0) `,` type($atomic_counters_1) `)`
    `dev_ptrs` `(` $dev_ptrs `:` type($dev_ptrs) `)` `my_rank` `(` $my_rank `:` type($my_rank) `)` `context` `(` $device_context `)` attr-dict
  }];
  let extraClassDefinition = "MOE_DEFINE_OP($cppClass, ep_init)";
}

//===--- dispatch ---------------------------------------------------------------------------------===//

def Ep_DispatchOp : Moe_DestinationOp<Ep_Dialect, "dispatch", "ep_dispatch", [DestinationStyleOpInterface]> {
  let summary = "Group the tokens by the experts of this rank";
  let description = [{
    With `skip_a2a = true`: a row of `output_tokens` for each pair (token t, slot k) whose expert `topk_ids[t, k]` is one of this rank's, which are
    the global ids from `rank * n_experts` on. Rows stand in ascending order of expert, then token, then slot; `src_info[row]` is (t, k), and the
    rows of local expert e are `row_offsets[e]` to `row_offsets[e + 1]`. `expert_ids` is 0, 1, 2, ... All other ids, also negative ones, are
    ignored. An expert that a token lists twice gets two rows.

    With `fused_shared_expert` group 0 is the shared expert's, of which each rank takes a slice of the tokens, and routed experts are the groups
    from 1 on: `cnt = (T + W - rank - 1) / W` tokens from `start = rank * (T / W) + min(rank, T % W)` on, with W = `allreduce_world_size`.

    Rows that are in no group keep their contents, and so does `src_info` for them and for those of the shared expert. `max_token_per_rank *
    min(n_experts, top_k)` rows, and `max_token_per_rank` more with `fused_shared_expert`, are enough if no token lists an expert twice; more rows
    than there is room for are a capacity error.

    The counters remember the groups for the combine: dispatch and combine alternate on them. Entry `rank` of each table is an address that
    `ep.init` gave for the dispatch (row 0 of `dev_ptrs`) with the same parameters; in this mode the buffers are not used. Rows of one rank do not
    leave it: local.

    Constraints:
    - C1: `skip_a2a` is true: the all-to-all is unsupported.
    - C2: `n_gpus_per_node` and `n_nodes` are 1.
    - C3: `input_tokens` is [T, hidden_size], `output_tokens` [R, hidden_size].
    - C4: `topk_ids` is [T, top_k].
    - C5: `row_offsets` is [G + 1], `expert_ids` [G]: G = `n_experts`, and 1 more with `fused_shared_expert`.
    - C6: `src_info` is [R, 2].
    - C7: `atomic_counters` has `10 * n_experts + 320` words.
    - C8: the pointer tables are [allreduce_world_size].
    - C9: T <= `max_token_per_rank`.
  }];
  let arguments = !con((ins Ep_Bf16x2:$output_tokens, Moe_I32x1:$row_offsets, Moe_I32x1:$expert_ids, Moe_I32x2:$src_info,
                        Ep_Counters:$atomic_counters, Ep_Bf16x2:$input_tokens, Moe_I32x2:$topk_ids,
                        Ep_Pointers:$send_ptrs, Ep_Pointers:$recv_ptrs, Ep_Pointers:$recv_count_ptrs, Moe_Context:$device_context),
                       Ep_Geometry,
                       (ins DefaultValuedAttr<BoolAttr, "false">:$fused_shared_expert,
                            DefaultValuedAttr<BoolAttr, "false">:$skip_a2a,
                            DefaultValuedAttr<Moe_Int<1, 64>, "1">:$allreduce_world_size));
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["output_tokens", "row_offsets", "expert_ids", "src_info"];
  let kept = ["output_tokens", "src_info"];
  let observed = ["send_ptrs", "recv_ptrs", "recv_count_ptrs"];
  let assemblyFormat = [{
    `counters` `(` $atomic_counters `:` type($atomic_counters) `)` `tokens` `(` $input_tokens `:` type($input_tokens) `)`
    `topk_ids` `(` $topk_ids `:` type($topk_ids) `)`
    `buffers` `(` $send_ptrs `,` $recv_ptrs `,` $recv_count_ptrs `:` type($send_ptrs) `,` type($recv_ptrs) `,` type($recv_count_ptrs) `)`
    `outs` `(` $output_tokens `,` $row_offsets `,` $expert_ids `,` $src_info `:` type($output_tokens) `,` type($row_offsets) `,` type($expert_ids) `,`
    type($src_info) `)` `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

//===--- combine ----------------------------------------------------------------------------------===//

def Ep_CombineSkipA2AOp : Moe_EpilogueOp<Ep_Dialect, "combine.skip_a2a", "ep_combine_skip_a2a", [DestinationStyleOpInterface]> {
  let summary = "Weighted sum of the rows that this rank's experts have for each token";
  let description = [{
    This rank's part of each token's result. The op itself does no all-reduce: nothing moves between ranks, whatever `allreduce_world_size` is,
    which only says how the shared expert's rows were split. An all-reduce behind it adds the ranks' parts.

    `input_tokens` has what the experts made of the rows of the `ep.dispatch` before, in their places; `src_info`, `topk_ids` and `atomic_counters`
    are those of that dispatch. Let y(t, k) be the row that `src_info` ascribes to (t, k).

    - `acc = fma(f32(router_weights[t, k]), f32(y(t, k)), acc)` from `acc = 0`, for the slots k in ascending order whose expert is this rank's;
      other ids, also negative ones, add nothing.
    - `v` is `acc` rounded to the element type of `output_tokens`, the combine dtype.
    - With `fused_shared_expert`, for the tokens of this rank's slice (see `ep.dispatch`): `v + input_tokens[t - start]`, rounded to the combine
      dtype once more.
    - `output_tokens[t, h]` is `v`, or what the epilogue makes of it. All of `output_tokens` is written: a token without an expert here gets +0.

    The optional region `epilogue` is the elementwise consumer that a compiler has fused. It takes a row index, a column index and the value of the
    combine dtype, and yields the value to store. It is called exactly once for each element, after the shared expert's row was added, in no order.
    It may read what stands outside, but not `output_tokens`. `has_epilogue_fusion` says that there is a region, to whoever sees only the parameters.
    Targets that do not fuse it apply it afterwards: `moe-expand-epilogues` takes the region away and makes the parameter false.

    A row whose `src_info` lies outside [0, T) x [0, top_k) is skipped; a pair of this rank that no row is ascribed to is a run-time error. The
    counters are ready for the next dispatch afterwards. Entry `rank` of `recv_ptrs` and `recv_count_ptrs` is an address that `ep.init` gave for the
    combine (row 1 of `dev_ptrs`) with the same parameters; the buffers, and `send_ptrs`, are not used. Local.

    Constraints:
    - C1: `skip_a2a` is true: an all-to-all is the business of ep.combine.
    - C2: `n_gpus_per_node` and `n_nodes` are 1.
    - C3: `output_tokens` is [T, hidden_size], `input_tokens` [R, hidden_size], both of the combine dtype.
    - C4: `src_info` is [R, 2].
    - C5: `router_weights` and `topk_ids` are [T, top_k].
    - C6: `atomic_counters` has `10 * n_experts + 320` words.
    - C7: the pointer tables are [allreduce_world_size].
    - C8: T <= `max_token_per_rank`.
    - C9: the epilogue takes two indices and a value of the combine dtype, and yields one such value by `ep.yield`.
    - C10: ops in the epilogue only read, and give numbers.
    - C11: `has_epilogue_fusion` is true exactly if there is an epilogue.
  }];
  let arguments = !con((ins Moe_Float2:$output_tokens, Ep_Counters:$atomic_counters, Moe_Float2:$input_tokens, Moe_I32x2:$src_info,
                        Ep_Pointers:$send_ptrs, Ep_Pointers:$recv_ptrs, Ep_Pointers:$recv_count_ptrs,
                        Moe_Float2:$router_weights, Moe_I32x2:$topk_ids, Moe_Context:$device_context),
                       Ep_Geometry,
                       (ins DefaultValuedAttr<BoolAttr, "false">:$fused_shared_expert,
                            DefaultValuedAttr<BoolAttr, "true">:$skip_a2a,
                            Moe_Int<1, 64>:$allreduce_world_size,
                            DefaultValuedAttr<BoolAttr, "false">:$has_epilogue_fusion));
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["output_tokens"];
  let observed = ["send_ptrs", "recv_ptrs", "recv_count_ptrs"];
  let assemblyFormat = [{
    `counters` `(` $atomic_counters `:` type($atomic_counters) `)` `tokens` `(` $input_tokens `:` type($input_tokens) `)`
    `src_info` `(` $src_info `:` type($src_info) `)`
    `buffers` `(` $send_ptrs `,` $recv_ptrs `,` $recv_count_ptrs `:` type($send_ptrs) `,` type($recv_ptrs) `,` type($recv_count_ptrs) `)`
    `router_weights` `(` $router_weights `:` type($router_weights) `)` `topk_ids` `(` $topk_ids `:` type($topk_ids) `)`
    `outs` `(` $output_tokens `:` type($output_tokens) `)` `context` `(` $device_context `)` attr-dict (`epilogue` $epilogue^)?
    (`->` type($tensors)^)?
  }];
}

def Ep_YieldOp : Op<Ep_Dialect, "yield", [Pure, Terminator, ParentOneOf<["CombineSkipA2AOp"]>]> {
  let summary = "The value that an epilogue stores";
  let description = "Ends the region `epilogue` of an op of this dialect.";
  let arguments = (ins AnyType:$value);
  let assemblyFormat = "attr-dict $value `:` type($value)";
}

#endif // EP_OPS

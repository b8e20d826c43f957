//===- moe.td - the `moe` dialect -----------------------------------------------------------------===//
//
// Layers of mixture-of-experts models: routing, dispatch to the ranks of the experts, the experts, combine.
// Constraints are labelled C1, C2, ... per op; the verifiers and the negative tests carry the same labels.
// S1 to S7 hold for every op: see docs/errors.md.
//
//===----------------------------------------------------------------------------------------------===//

#ifndef MOE_OPS
#define MOE_OPS

include "ops/moe/dialect.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/ViewLikeInterface.td"

//===--- routing ----------------------------------------------------------------------------------===//

def Moe_RouteOp : Moe_DestinationOp<Moe_Dialect, "route", "moe_route", [AlwaysSpeculatable, DestinationStyleOpInterface]> {
  let summary = "Gate logits to expert ids and weights";
  let description = [{
    For each token: the `top_k` experts of the highest value, in descending order of value, ties to the lower
    id, and their weights.

    - The score of an expert is `softmax` over the token's logits or `sigmoid` of its logit, in f32.
    - `bias` is added to the scores for the choice only, never to the weights.
    - `order = "score_then_top_k"`: the weights are the scores of the chosen. `"top_k_then_score"`: the choice is
      by logit (plus bias), and the score function is applied to the chosen logits only.
    - `renormalize` divides the weights by their sum (a sum of 0 gives weights of 0);
      `routed_scaling_factor` multiplies them last.
    - `n_group` > 1: experts stand in `n_group` equal groups of consecutive ids; a group's value is the sum of its
      two highest (biased) scores; only experts of the `topk_group` best groups are eligible, ties to the lower group.
    - NaN is never chosen. A token with fewer than `top_k` numbers has ids of -1 with weight 0 at its end.
      An infinity of either sign is a number. No id is ever outside [-1, n_experts).
    - The sum of exponentials is an f32 left fold over ascending chunks of 32 experts, each chunk summed pairwise:
      the same bits on every backend. The sum for `renormalize` is a left fold over the chosen, in their order.

    Zero tokens are legal. Pure.

    Canonicalisation: on tensors, `renormalize` and `routed_scaling_factor` get their defaults if nobody uses the weights.

    Constraints:
    - C1: `logits` is [T, n_experts].
    - C2: `bias`, if present, is [n_experts].
    - C3: `ids` and `weights` are [T, top_k], with the T of `logits`.
    - C4: `top_k` <= `n_experts`.
    - C5: `n_experts` is a multiple of `n_group`.
    - C6: `topk_group` <= `n_group`.
    - C7: the eligible groups hold at least `top_k` experts.
    - C8: groups of one expert have no two best scores: `n_group` = 1 or `n_experts / n_group` >= 2.
  }];
  let arguments = (ins
      Moe_Float2:$logits, Optional<Moe_F32x1>:$bias,
      Moe_I32x2:$ids, Moe_F32x2:$weights, Moe_Context:$device_context,
      Moe_Int<1, 32>:$top_k, Moe_Int<1, 4096>:$n_experts,
      DefaultValuedAttr<Moe_OneOf<["softmax", "sigmoid"]>, "\"softmax\"">:$score,
      DefaultValuedAttr<Moe_OneOf<["score_then_top_k", "top_k_then_score"]>, "\"score_then_top_k\"">:$order,
      DefaultValuedAttr<BoolAttr, "false">:$renormalize,
      DefaultValuedAttr<Moe_Float, "1.0">:$routed_scaling_factor,
      DefaultValuedAttr<Moe_Int<1, 4096>, "1">:$n_group,
      DefaultValuedAttr<Moe_Int<1, 4096>, "1">:$topk_group);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["ids", "weights"];
  let onlyFor = ["renormalize=weights", "routed_scaling_factor=weights"];
  let assemblyFormat = [{
    `logits` `(` $logits `:` type($logits) `)` (`bias` `(` $bias^ `:` type($bias) `)`)?
    `outs` `(` $ids `,` $weights `:` type($ids) `,` type($weights) `)` `context` `(` $device_context `)`
    attr-dict (`->` type($tensors)^)?
  }];
}

//===--- experts ----------------------------------------------------------------------------------===//

def Moe_GroupedMatmulOp : Moe_DestinationOp<Moe_Dialect, "grouped_matmul", "moe_grouped_matmul", [DestinationStyleOpInterface, AttrSizedOperandSegments]> {
  let summary = "Rows times the weights of their group";
  let description = [{
    `out[r, :] = act(rows[r, :] . weights[g]^T + bias[g]) * row_weights[r]` for the rows r of group g:
    `offsets[g] <= r < offsets[g + 1]`. Rows from `offsets[G]` on, and before `offsets[0]`, keep their contents.
    With `row_ids`, row r is `rows[row_ids[r]]`.

    - `activation = "swiglu"`: the first half of a group's weight rows is the gate, the second half the up
      projection, and the result is `silu(gate) * up`. With `limit` (greater than 0) the clamped form: `g' = min(g, limit)`,
      `u' = clamp(u, -limit, limit)`, result `g' * sigmoid(alpha * g') * (u' + 1)`. 0 means no clamp, and `alpha` is not used.
    - `weight_format`: the weights are codes of 4 bits, two a byte, the first in the low half, and each 16 (`nvfp4`) or 32 (`mxfp4`) of a weight row
      share one of `weight_scales`: docs/formats.md has the numbers. A weight is code times scale, which bf16 holds exactly. The sums of group g are
      multiplied by `1 / weight_global_scale[g]`, the reciprocal of the encoder's factor, as `moe.dequantize` has it; one rounding each.
    - Products accumulate in f32; the reference adds them by fused multiply-add in ascending k, starting from 0, and adds the
      bias (converted to f32) at the end. One rounding to the element type of `out`, after activation and row weight.
    - `offsets` that descend, are negative or exceed the rows, and row ids outside `rows`, are run-time errors; nothing is written then.

    Empty groups and zero rows are legal. No side effects on tensors, but not speculatable: it is not moved to where it would not have run, since
    its offsets may be in error.

    Constraints:
    - C1: `rows` is [R, K] with K a multiple of 8.
    - C2: `weights` is [G, N, K] of the element type of `rows`, with N a multiple of 8 (of 16 with `swiglu`); with a `weight_format`
      [G, N, K / 2] of i8 or ui8, and `rows` is of bf16.
    - C3: `offsets` is [G + 1].
    - C4: `out` is [R, N], or [R, N / 2] with `swiglu`; with `row_ids` [R'], R is R'.
    - C5: `bias`, if present, is [G, N].
    - C6: `row_weights`, if present, is [R].
    - C7: `limit` >= 0, and only with `swiglu`; `alpha` other than 1 only with `limit`.
    - C8: with `weight_format` K is a multiple of 16 (`nvfp4`) or 32 (`mxfp4`).
    - C9: `weight_scales` is there with a `weight_format`, and only then: [G, N, K / 16] of f8E4M3FN or i8 for `nvfp4`, [G, N, K / 32] of f8E8M0FNU
      or i8 for `mxfp4`. i8 is signless or ui8.
    - C10: `weight_global_scale` is [G], and goes with `nvfp4`.
  }];
  let arguments = (ins
      Moe_Float2:$rows, Moe_I32x1:$offsets, Moe_FloatOrCodes3:$weights, Optional<Moe_CodeScales3>:$weight_scales,
      Optional<Moe_F32x1>:$weight_global_scale, Optional<Moe_Float2>:$bias, Optional<Moe_I32x1>:$row_ids, Optional<Moe_F32x1>:$row_weights,
      Moe_Float2:$out, Moe_Context:$device_context,
      DefaultValuedAttr<Moe_OneOf<["none", "swiglu"]>, "\"none\"">:$activation,
      DefaultValuedAttr<Moe_Float, "1.0">:$alpha,
      DefaultValuedAttr<Moe_Float, "0.0">:$limit,
      DefaultValuedAttr<Moe_OneOf<["f32"]>, "\"f32\"">:$accumulator,
      DefaultValuedAttr<Moe_OneOf<["none", "nvfp4", "mxfp4"]>, "\"none\"">:$weight_format);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["out"];
  let kept = ["out"];
  let since = ["weight_scales=2", "weight_global_scale=2"];
  let assemblyFormat = [{
    `rows` `(` $rows `:` type($rows) `)` `offsets` `(` $offsets `:` type($offsets) `)` `weights` `(` $weights `:` type($weights) `)`
    (`scales` `(` $weight_scales^ `:` type($weight_scales) `)`)?
    (`global_scale` `(` $weight_global_scale^ `:` type($weight_global_scale) `)`)?
    (`bias` `(` $bias^ `:` type($bias) `)`)? (`row_ids` `(` $row_ids^ `:` type($row_ids) `)`)?
    (`row_weights` `(` $row_weights^ `:` type($row_weights) `)`)?
    `outs` `(` $out `:` type($out) `)` `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

def Moe_Nvfp4RoutedOp : Moe_DestinationOp<Moe_Dialect, "nvfp4_routed", "moe_nvfp4_routed", [DestinationStyleOpInterface, AttrSizedOperandSegments]> {
  let summary = "The chosen experts of each token, from codes of 4 bits to their weighted sum";
  let description = [{
    All of a layer's routed experts in one call: `hidden_states`, `gemm1_weights` (gate and up projection) and `gemm2_weights` (down projection) are
    codes of NVFP4, two a byte, the first in the low half, each 16 of a row with one scale in E4M3, linear: what `moe.quantize` makes with its defaults. A
    number is code times scale, which bf16 holds exactly; docs/formats.md has the formats. M tokens, K columns, E experts, N = 2 I.

    Ids are those of a layer of `num_experts` experts (0: E), of which the weights have E, from `first_expert` on. If these are not all, the result is what they
    add; calls with the weights of the others add the rest.

    For slot j of token t, with the expert e = `topk_ids[t, j] - first_expert` of the weights and the weight w = `topk_weights[t, j]`:

    - gate = `output1_scale_gate_scalar[e]` times the sum of token by weight row i, up = `output1_scale_scalar[e]` times that by row I + i;
      h = silu(gate) * up, for i < I.
    - h becomes NVFP4: a block of 16 has the scale s = E4M3(max(a / 6, 1e-8)) of its largest magnitude a, an element the code E2M1(h / s), or E2M1(h)
      where s is 0; each to nearest even, saturating. There is no further factor: a scale of h is to be in `output1_scale_scalar` and, its
      reciprocal, in `output2_scale_scalar`.
    - y = `output2_scale_scalar[e]` times the sum of h, as it is now, by the rows of `gemm2_weights`.
    - `out[t]` is the sum of y * w * R over the slots in ascending order, with R = `routed_scaling_factor`, on top of what `out` holds; from 0 with
      `accumulate = false`, which is the same as a zero `out`, to the bit.

    Arithmetic is f32. Sums over k are by fused multiply-add in ascending k, from 0; GPUs may add in another order. gate, up, y: one product, rounded once.
    silu(gate) * up: x * sigmoid(x), then times up. total = fma(y, w, total) if R is 1, else fma(y * w, R, total); one rounding to bf16 at the end. So
    the result is the same in every run, whatever the shape. NaN of a number spreads as arithmetic has it: to its token only, but for one in weights.
    NaN in h makes its block NaN, an infinity has the scale 448 and the largest code; a NaN in `out` is written as 0x7fff.

    An id outside [first_expert, first_expert + E), such as -1, is a choice of nobody: it adds nothing. The same expert may be chosen more than once by a
    token.

    The plan tells who works on what, as `moe_align_block_size` does in vLLM and SGLang. An entry is a pair t * top_k + j; entries stand in bins: bin 0 has the
    choices of nobody, bin e + 1 those of expert e of the weights, in ascending order. Each bin is padded to a multiple of `block_m` by the sentinel M * top_k.

    - `sorted_token_ids`: the entries, bin by bin; behind them sentinels, up to its end.
    - `expert_ids[b]`: whose the entries of block b are, -1 for bin 0. What lies behind the plan keeps its contents.
    - `num_tokens_post_padded[0]`: the entries of the plan, with their padding.
    - `cumsum_buffer`: of bin b its first entry plus the number of its choices, at E + 1 the same as `num_tokens_post_padded`; what lies behind keeps
      its contents.

    A plan for which `expert_ids` has no room is a run-time error; nothing is written then. 1 + (M * top_k + E * (block_m - 1)) / block_m blocks
    always do.

    The `..._prepared` inputs hold the weights or their scales once more, in the order that some kernels read, as `moe.prepare_nvfp4` makes
    them. They never change a result, and which of them are read is the implementation's choice: they must hold what the weights hold.

    Zero tokens are legal. `hidden_states` may have rows that lie apart. No side effects on tensors, but not speculatable: its plan may be in error.

    Constraints:
    - C1: `hidden_states` is [M, K / 2]; K is a multiple of 256, at least 256, and i32 holds M * top_k.
    - C2: `hidden_states_scale` is [M, K / 16].
    - C3: `gemm1_weights` is [E, N, K / 2], `gemm1_weights_scale` [E, N, K / 16]; N is a multiple of 256, at least 256, and E from 1 to 1024.
    - C4: `gemm2_weights` is [E, K, N / 4], `gemm2_weights_scale` [E, K, N / 32].
    - C5: `output1_scale_gate_scalar`, `output1_scale_scalar` and `output2_scale_scalar` are [E].
    - C6: `topk_ids` and `topk_weights` are [M, top_k], and `top_k` <= `num_experts`.
    - C7: `out` is [M, K].
    - C8: `block_m` is a multiple of 8.
    - C9: `expert_ids` is [B] with B at least 1, `sorted_token_ids` has at least B * block_m entries, and no more than i32 counts.
    - C10: `num_tokens_post_padded` is [1], and `cumsum_buffer` has at least E + 2 entries.
    - C11: `w1_data_prepared` is [E * (N / 128) * (K / 256), 128, 128], `w1_scale_prepared` and `w1_scale_prepared_interleaved` are as many panels of
      [16, 128]; `w1_gate_up_data_prepared` is [E * (N / 256) * (K / 256), 256, 128], `w1_gate_up_scale_prepared` as many of [32, 128];
      `w2_data_prepared` is [E * (K / 128) * (N / 256), 128, 64], `w2_scale_prepared` as many of [8, 128];
      `w1_fragments_prepared` is [E * (N / 64) * (K / 128), 36, 128], `w2_fragments_prepared` [E * (K / 64) * (N / 256), 36, 128].
    - C12: `w2_data_prepared_k256` is [E * (K / 128) * (N / 512), 128, 128], `w2_scale_prepared_k256` as many of [16, 128]; with either N is a multiple
      of 512.
    - C13: `w1_gate_up_data_prepared` and `w1_gate_up_scale_prepared` go together.
    - C14: `first_expert` + E <= `num_experts`.
  }];
  let arguments = (ins
      Moe_Bytes2:$hidden_states, Moe_E4M3Scales2:$hidden_states_scale,
      Moe_Bytes3:$gemm1_weights, Moe_E4M3Scales3:$gemm1_weights_scale, Moe_Bytes3:$gemm2_weights, Moe_E4M3Scales3:$gemm2_weights_scale,
      Moe_F32x1:$output1_scale_gate_scalar, Moe_F32x1:$output1_scale_scalar, Moe_F32x1:$output2_scale_scalar,
      Moe_I32x2:$topk_ids, Moe_F32x2:$topk_weights,
      Optional<Moe_E4M3Scales3>:$w1_scale_prepared, Optional<Moe_E4M3Scales3>:$w2_scale_prepared,
      Optional<Moe_Bytes3>:$w1_data_prepared, Optional<Moe_Bytes3>:$w1_gate_up_data_prepared,
      Optional<Moe_E4M3Scales3>:$w1_gate_up_scale_prepared, Optional<Moe_E4M3Scales3>:$w1_scale_prepared_interleaved,
      Optional<Moe_Bytes3>:$w2_data_prepared, Optional<Moe_Bytes3>:$w2_data_prepared_k256,
      Optional<Moe_E4M3Scales3>:$w2_scale_prepared_k256,
      Optional<Moe_Bytes3>:$w1_fragments_prepared, Optional<Moe_Bytes3>:$w2_fragments_prepared,
      Moe_SignedI32x1:$sorted_token_ids, Moe_SignedI32x1:$expert_ids, Moe_SignedI32x1:$num_tokens_post_padded, Moe_SignedI32x1:$cumsum_buffer,
      Moe_BF16x2:$out, Moe_Context:$device_context,
      Moe_Int<1, 32>:$top_k,
      DefaultValuedAttr<Moe_Int<8, 65536>, "8">:$block_m,
      DefaultValuedAttr<Moe_Float, "1.0">:$routed_scaling_factor,
      DefaultValuedAttr<BoolAttr, "true">:$accumulate,
      DefaultValuedAttr<Moe_Int<0, 2147483647>, "0">:$first_expert,
      DefaultValuedAttr<Moe_Int<0, 2147483647>, "0">:$num_experts);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["sorted_token_ids", "expert_ids", "num_tokens_post_padded", "cumsum_buffer", "out"];
  let kept = ["expert_ids", "cumsum_buffer", "out"];
  let strided = ["hidden_states"];
  let assemblyFormat = [{
    `hidden_states` `(` $hidden_states `,` $hidden_states_scale `:` type($hidden_states) `,` type($hidden_states_scale) `)`
    `gemm1` `(` $gemm1_weights `,` $gemm1_weights_scale `:` type($gemm1_weights) `,` type($gemm1_weights_scale) `)`
    `gemm2` `(` $gemm2_weights `,` $gemm2_weights_scale `:` type($gemm2_weights) `,` type($gemm2_weights_scale) `)`
    `output_scales` `(` $output1_scale_gate_scalar `,` $output1_scale_scalar `,` $output2_scale_scalar `:`
    type($output1_scale_gate_scalar) `,` type($output1_scale_scalar) `,` type($output2_scale_scalar) `)`
    `topk` `(` $topk_ids `,` $topk_weights `:` type($topk_ids) `,` type($topk_weights) `)`
    (`w1_scale_prepared` `(` $w1_scale_prepared^ `:` type($w1_scale_prepared) `)`)?
    (`w2_scale_prepared` `(` $w2_scale_prepared^ `:` type($w2_scale_prepared) `)`)?
    (`w1_data_prepared` `(` $w1_data_prepared^ `:` type($w1_data_prepared) `)`)?
    (`w1_gate_up_data_prepared` `(` $w1_gate_up_data_prepared^ `:` type($w1_gate_up_data_prepared) `)`)?
    (`w1_gate_up_scale_prepared` `(` $w1_gate_up_scale_prepared^ `:` type($w1_gate_up_scale_prepared) `)`)?
    (`w1_scale_prepared_interleaved` `(` $w1_scale_prepared_interleaved^ `:` type($w1_scale_prepared_interleaved) `)`)?
    (`w2_data_prepared` `(` $w2_data_prepared^ `:` type($w2_data_prepared) `)`)?
    (`w2_data_prepared_k256` `(` $w2_data_prepared_k256^ `:` type($w2_data_prepared_k256) `)`)?
    (`w2_scale_prepared_k256` `(` $w2_scale_prepared_k256^ `:` type($w2_scale_prepared_k256) `)`)?
    (`w1_fragments_prepared` `(` $w1_fragments_prepared^ `:` type($w1_fragments_prepared) `)`)?
    (`w2_fragments_prepared` `(` $w2_fragments_prepared^ `:` type($w2_fragments_prepared) `)`)?
    `plan` `(` $sorted_token_ids `,` $expert_ids `,` $num_tokens_post_padded `,` $cumsum_buffer `:`
    type($sorted_token_ids) `,` type($expert_ids) `,` type($num_tokens_post_padded) `,` type($cumsum_buffer) `)`
    `outs` `(` $out `:` type($out) `)` `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

def Moe_PrepareNvfp4Op : Moe_DestinationOp<Moe_Dialect, "prepare_nvfp4", "moe_prepare_nvfp4", [AlwaysSpeculatable, DestinationStyleOpInterface]> {
  let summary = "Weights of moe.nvfp4_routed, or their scales, in the order of panels";
  let description = [{
    Makes the optional inputs of `moe.nvfp4_routed`, once for all calls: `w1_data_prepared` with `layout = "w1_data"`, and so on. `source` is
    `gemm1_weights` or `gemm1_weights_scale` [E, N, ...] for `w1_...`, `gemm2_weights` or `gemm2_weights_scale` [E, K, ...] for `w2_...`; `..._data` are
    codes, `..._scales` scales, whose bytes only move. `..._fragments` are both in one tensor: `source` has the codes, `scales` their scales.

    | `layout` | input | rows of a panel | bytes of a row | a panel in `prepared` |
    |---|---|---|---|---|
    | `w1_scales` | `w1_scale_prepared` | 128 | 16 | [16, 128] |
    | `w2_scales` | `w2_scale_prepared` | 128 | 8 | [8, 128] |
    | `w1_data` | `w1_data_prepared` | 128 | 128 | [128, 128] |
    | `w1_gate_up_data` | `w1_gate_up_data_prepared` | 256 | 128 | [256, 128] |
    | `w1_gate_up_scales` | `w1_gate_up_scale_prepared` | 256 | 16 | [32, 128] |
    | `w1_scales_interleaved` | `w1_scale_prepared_interleaved` | 128 | 16 | [16, 128] |
    | `w2_data` | `w2_data_prepared` | 128 | 64 | [128, 64] |
    | `w2_data_k256` | `w2_data_prepared_k256` | 128 | 128 | [128, 128] |
    | `w2_scales_k256` | `w2_scale_prepared_k256` | 128 | 16 | [16, 128] |
    | `w1_fragments` | `w1_fragments_prepared` | 64 | 64 | [36, 128] |
    | `w2_fragments` | `w2_fragments_prepared` | 64 | 64 | [36, 128] |

    - Panels follow each other as in a matrix: those of the first rows from left to right, then those of the next rows, expert by expert.
    - Rows are taken as they come, but for three layouts. `w1_gate_up_...`: a panel has 128 gates, and then the 128 ups that belong to them.
      `w1_scales_interleaved`: 64 gates, the 64 ups that belong to them, the next 64 gates, and so on; `w1_fragments`: so 8 and 8. Gates are the first half
      of an expert's rows.
    - Codes lie in a panel row by row. Scales lie as follows: of row r = 32g + 8c + d, the byte 4k + b goes to ((w * c + k) * 8 + d) * 16 + 4g + b, where w is a
      fourth of the bytes of a row; in `w1_gate_up_scales` the gates so, and behind them the ups.
    - Fragments are what lanes of a warp multiply (operand A of `mma.m16n8k16`). The first 4096 bytes of a panel are codes: in band b of 16 rows and chunk c of
      64 columns, lane l = 4g + t has for the 16 columns from 64c + 16s on the 32-bit word at ((2b + c) * 32 + l) * 16 + 4s, its low byte first. The word
      has four pairs of codes: columns 2t and 2t + 1 of row 16b + g, the same of row 16b + g + 8, and columns 2t + 8 and 2t + 9 of these two rows. A pair is
      in its place if the first code has its sign in bit 15 and its magnitude in bits 8 to 6, the second the same 16 bits above: masked with 0x81c081c0 the
      word is two numbers of bf16, code * 2^-126. The first pair is in its place, the second rotated left by 3 from there, the third by 6; the fourth, masked
      with 0x001b001b and multiplied by 0x1084, is in its place.
    - Behind the codes lie the scales: at 4096 + 128b + 16g + 4i those of blocks of 16 columns 2i and 2i + 1 of row 16b + g, then the same two of row
      16b + g + 8. A scale is a byte c of 5 bits of exponent and 3 of fraction: the bf16 with the bits 0x7000 | c << 4 is scale * 2^118, NaN for 0xff. A
      scale's sign is in its codes, which have the opposite ones, and zero is c = 0 with codes whose magnitudes are 0. bf16 holds all of these exactly, and
      the products, which are code * scale * 2^-8: results do not depend on what the weights are read from.

    Pure.

    Constraints:
    - C1: `source` is [E, R, B]; R is a multiple of the rows of a panel, B of the bytes of a row there.
    - C2: `prepared` has E * R * B bytes, and of fragments an eighth more, as [panels, height, width].
    - C3: codes and fragments are of i8 or ui8.
    - C4: `scales` is [E, R, B / 8], and is there for fragments only.
  }];
  let arguments = (ins Moe_E4M3Scales3:$source, Optional<Moe_E4M3Scales3>:$scales, Moe_E4M3Scales3:$prepared, Moe_Context:$device_context,
      Moe_OneOf<["w1_scales", "w2_scales", "w1_data", "w1_gate_up_data", "w1_gate_up_scales", "w1_scales_interleaved", "w2_data", "w2_data_k256",
                 "w2_scales_k256", "w1_fragments", "w2_fragments"]>:$layout);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["prepared"];
  let assemblyFormat = [{
    `source` `(` $source `:` type($source) `)` (`scales` `(` $scales^ `:` type($scales) `)`)?
    `outs` `(` $prepared `:` type($prepared) `)` `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

//===--- number formats ---------------------------------------------------------------------------===//

// What the two ops say of the formats alike; docs/formats.md is the manual of the numbers themselves.
defvar Moe_QuantizedFormat = Moe_OneOf<["nvfp4", "mxfp4", "mxfp8", "fp8_block", "fp8_token", "fp8_tensor"]>;
defvar Moe_ScaleLayout = DefaultValuedAttr<Moe_OneOf<["linear", "128x4", "8x4", "transposed"]>, "\"linear\"">;
defvar Moe_Packing = DefaultValuedAttr<Moe_OneOf<["low_first", "mega"]>, "\"low_first\"">;

def Moe_QuantizeOp : Moe_DestinationOp<Moe_Dialect, "quantize", "moe_quantize", [AlwaysSpeculatable, DestinationStyleOpInterface, AttrSizedOperandSegments]> {
  let summary = "Rows to 4-bit or 8-bit codes and their scales";
  let description = [{
    Each block of a row of `input` [T, H] gets a scale, by the largest magnitude a of its elements, and each element x a code: to nearest even,
    saturating. All arithmetic is f32 and IEEE's, each step rounded once; results are the same bits on every backend. docs/formats.md has the
    number formats, the layouts, and every special case.

    | `format` | block | codes | scale | code of x |
    |---|---|---|---|---|
    | `nvfp4` | 16 | E2M1 | E4M3: `G * (a / 6)` | `x * min(1 / (scale * (1 / G)), FLT_MAX)`; a = 0: `x * 0` |
    | `mxfp4` | 32 | E2M1 | E8M0: `min(a, FLT_MAX) / 6`, up to a power of two | `x / scale` |
    | `mxfp8` | 32 | E4M3 | E8M0: `min(a, FLT_MAX) / 448`, up to a power of two | `x / scale` |
    | `fp8_block` | 128, the last of a row may be narrower | E4M3 | f32: `max(min(a, FLT_MAX), 1e-4) / 448` | `x / scale` |
    | `fp8_token` | a row | E4M3 | likewise | likewise |
    | `fp8_tensor` | all of `input` | E4M3 | likewise; with `global_scale` none | likewise; with `global_scale` `x * G` |

    - G is `global_scale[0]`, the factor of the encoder, usually `448 * 6 / amax` of the tensor for `nvfp4`: a code stands for `code * scale / G`. Absent: 1.
    - `scale_rounding = "even"`: the scale of `mxfp4` and `mxfp8` is the power of two below a, rounded to the codes' precision, over 4 or 256:
      the largest codes may saturate.
    - `fast_reciprocal` replaces the divisions of `nvfp4` by products with approximate reciprocals (`rcp.approx.ftz` on GPUs), as kernels of TensorRT-LLM
      and FlashInfer do. Codes next to a tie, and scales, may then differ between backends.
    - `packing`: two 4-bit codes a byte. `low_first`: element 2j in the low half of byte j, 2j + 1 in the high half. `mega`: of eight elements
      c0 to c7, byte b has c(b + 4) in its low half and c(b) in its high half.
    - `scale_layout`: docs/formats.md#layouts. Scales that stand for nothing (padding) become zero.
    - 4-bit formats: NaN in a block makes its scale NaN, so that the block is NaN. 8-bit formats: NaN is a code, and does not count for a. An
      infinity saturates. -0 keeps its sign.

    `input` may have rows that lie apart. Zero tokens are legal. Pure.

    Canonicalisation, on tensors: an input that `arith.extf` widened is read as it was. `mxfp4` of what `moe.dequantize` made of the same format, layout
    and packing in f32 or bf16, and `mxfp8` rounded up of what it made in f32, give way to its codes and scales, which stand for the same numbers, if
    the destinations are intermediates (`tensor.empty`) and no scale is padding.

    Constraints:
    - C1: `values` is [T, H], of 4-bit formats [T, H / 2].
    - C2: H is a multiple of 16 for `nvfp4`, of 32 for `mxfp4` and `mxfp8`.
    - C3: element types: `values` of a 4-bit format is i8, of an 8-bit format f8E4M3FN or i8; `scales` is f8E4M3FN or i8 for `nvfp4`, f8E8M0FNU or i8 for
      `mxfp4` and `mxfp8`, f32 for the others. i8 is signless or ui8.
    - C4: with C scales a row, `scales` is [T, C] (`linear`), [T up to a multiple of 128, C up to a multiple of 4] (`128x4`), [T up to a multiple of 8,
      C up to a multiple of 4] (`8x4`), or [C, T or more] (`transposed`). C is H over the block, rounded up; 1 for `fp8_token`; for
      `fp8_tensor` `scales` is [1, 1].
    - C5: `scales` is there, but for `fp8_tensor` with `global_scale`, which has none.
    - C6: `128x4` and `8x4` go with `nvfp4`, `mxfp4` and `mxfp8`, `transposed` with `fp8_block`.
    - C7: `mega` goes with 4-bit formats.
    - C8: `even` goes with `mxfp4` and `mxfp8`.
    - C9: `fast_reciprocal` goes with `nvfp4`.
    - C10: `global_scale` is [1], and goes with `nvfp4` and `fp8_tensor`.
  }];
  let arguments = (ins
      Moe_Float2:$input, Optional<Moe_F32x1>:$global_scale,
      Moe_Codes2:$values, Optional<Moe_Scales2>:$scales, Moe_Context:$device_context,
      Moe_QuantizedFormat:$format, Moe_ScaleLayout:$scale_layout, Moe_Packing:$packing,
      DefaultValuedAttr<Moe_OneOf<["up", "even"]>, "\"up\"">:$scale_rounding,
      DefaultValuedAttr<BoolAttr, "false">:$fast_reciprocal);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["values", "scales"];
  let strided = ["input"];
  let canonicalizes = 1;
  let assemblyFormat = [{
    `input` `(` $input `:` type($input) `)` (`global_scale` `(` $global_scale^ `:` type($global_scale) `)`)?
    `outs` `(` $values `:` type($values) `)` (`scales` `(` $scales^ `:` type($scales) `)`)? `context` `(` $device_context `)`
    attr-dict (`->` type($tensors)^)?
  }];
}

def Moe_DequantizeOp : Moe_DestinationOp<Moe_Dialect, "dequantize", "moe_dequantize", [AlwaysSpeculatable, DestinationStyleOpInterface, AttrSizedOperandSegments]> {
  let summary = "Codes and scales to numbers";
  let description = [{
    `out[t, h] = code * factor`, the product rounded to f32 and then to the element type of `out`. The factor of a block is its scale; for `nvfp4`
    `scale * (1 / G)`, for `fp8_tensor` with `global_scale` `1 / G`, where G is `global_scale[0]`, the encoder's factor. All arithmetic is f32 and IEEE's, each
    step rounded once; results are the same bits on every backend. Formats, layouts and packing are those of `moe.quantize`: docs/formats.md.

    Padding of `scales` is not read. `values` may have rows that lie apart. Zero tokens are legal. Pure.

    What `moe.quantize` makes of the result again stands for the same numbers if the block's largest magnitude is a code that the encoder
    reaches: always for `mxfp4`, and `mxfp8` rounded up; docs/formats.md#there-and-back has all formats.

    Canonicalisation, on tensors: if `arith.truncf` is all that uses a result of f32, the op rounds to that type itself.

    Constraints:
    - C1: `values` is [T, H], of 4-bit formats [T, H / 2], with `out` [T, H].
    - C2: H is a multiple of 16 for `nvfp4`, of 32 for `mxfp4` and `mxfp8`.
    - C3: element types of `values` and `scales`: those of `moe.quantize`.
    - C4: `scales` has the shape that `moe.quantize` gives it.
    - C5: `scales` is there, but for `fp8_tensor` with `global_scale`, which has none.
    - C6: `128x4` and `8x4` go with `nvfp4`, `mxfp4` and `mxfp8`, `transposed` with `fp8_block`.
    - C7: `mega` goes with 4-bit formats.
    - C8: `global_scale` is [1], and goes with `nvfp4` and `fp8_tensor`.
  }];
  let arguments = (ins
      Moe_Codes2:$values, Optional<Moe_Scales2>:$scales, Optional<Moe_F32x1>:$global_scale,
      Moe_Float2:$out, Moe_Context:$device_context,
      Moe_QuantizedFormat:$format, Moe_ScaleLayout:$scale_layout, Moe_Packing:$packing);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["out"];
  let strided = ["values"];
  let canonicalizes = 1;
  let assemblyFormat = [{
    `values` `(` $values `:` type($values) `)` (`scales` `(` $scales^ `:` type($scales) `)`)?
    (`global_scale` `(` $global_scale^ `:` type($global_scale) `)`)?
    `outs` `(` $out `:` type($out) `)` `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

//===--- all-to-all -------------------------------------------------------------------------------===//

// The sizes that fix the layout of a workspace; the same on every rank.
defvar Moe_WorkspaceParameters = (ins
    Moe_Int<1, 16777216>:$max_num_tokens, Moe_Int<1, 2147483647>:$dispatch_bytes_per_token, Moe_Int<1, 2147483647>:$combine_bytes_per_token,
    DefaultValuedAttr<Moe_Int<0, 65536>, "0">:$eplb_stats_num_experts,
    DefaultValuedAttr<Moe_Int<0, 64>, "0">:$ep_size);

def Moe_WorkspaceSizeOp : Moe_Op<Moe_Dialect, "workspace_size", "moe_workspace_size", [AlwaysSpeculatable]> {
  let summary = "Bytes of one rank's workspace";
  let description = [{
    The size of the slab that every rank allocates in symmetric memory: the metadata of docs/abi.md, and areas for
    `ep_size * max_num_tokens` rows of `dispatch_bytes_per_token` bytes and, for what a combine sends and for what it gets, of
    `combine_bytes_per_token` bytes.

    `ep_size` 0 takes the number of ranks from the context; any other value must equal it. Each payload of a dispatch
    starts at a multiple of 128 bytes, so that `dispatch_bytes_per_token` must cover, for every payload, its row bytes;
    the padding between payloads is added by this op (room for 8 payloads). Pure.
  }];
  let arguments = !con((ins Moe_Context:$device_context), Moe_WorkspaceParameters);
  let results = (outs Index:$size);
  let scalar = "size";
  let kernel = 0;
  let assemblyFormat = "`context` `(` $device_context `)` attr-dict";
  let extraClassDefinition = "MOE_DEFINE_OP($cppClass, moe_workspace_size)";
}

def Moe_InitializeOp : Moe_Op<Moe_Dialect, "initialize", "moe_initialize"> {
  let summary = "Lay a workspace out and clear it";
  let description = [{
    Zeroes this rank's slab, writes the byte offsets of its regions to `metainfo` (indices in docs/abi.md; the first ten are
    FLAG_VAL, LOCAL_TOKEN_COUNTER, SEND_COUNTERS, RECV_COUNTERS, DISPATCH_COMPLETION_FLAGS, COMBINE_COMPLETION_FLAGS,
    TOPK_TARGET_RANKS, TOPK_SEND_INDICES, EPLB_GATHERED_STATS, PAYLOAD_DATA), and waits for all ranks, so that a
    dispatch may follow at once.

    Collective over the ranks of the context. Not capturable in a CUDA graph.

    Constraints:
    - C1: `metainfo` has 16 elements.
    - C2: a `workspace` of static size has at least the bytes that `moe.workspace_size` gives for these parameters (known at compile time if
      `ep_size` is not 0).
  }];
  let arguments = !con((ins Moe_WorkspaceMemory:$workspace, Moe_Metainfo:$metainfo, Moe_Context:$device_context), Moe_WorkspaceParameters);
  let results = (outs);
  let fabric = 1;
  let kernel = 0;
  let assemblyFormat = "`workspace` `(` $workspace `:` type($workspace) `)` `metainfo` `(` $metainfo `:` type($metainfo) `)` `context` `(` $device_context `)` attr-dict";
  let extraClassDefinition = "MOE_DEFINE_OP($cppClass, moe_initialize)";
}

def Moe_WorkspaceViewOp : Moe_Op<Moe_Dialect, "workspace_view", "moe_workspace_view", [
    DeclareOpInterfaceMethods<ViewLikeOpInterface>]> {
  let summary = "Part of a workspace as a buffer";
  let description = [{
    The bytes of `workspace` from `offset` on as a contiguous memref of the result's shape; `sizes` are its dynamic sizes. So experts
    write their rows where `moe.combine` sends them from (`payload_in_workspace`), without a copy. Nothing is moved.

    The view must lie within the workspace, and `offset` be a multiple of the element's size: checked at run time.

    Constraints:
    - C1: as many `sizes` as the result has dynamic dimensions.
    - C2: the result is a contiguous memref in the memory space of the workspace.
    - C3: a constant `offset` is at least 0 and a multiple of the element's size; a view of static size at a constant offset lies within a
      workspace of static size.
  }];
  let arguments = (ins Moe_WorkspaceMemory:$workspace, Moe_Count:$offset, Variadic<Index>:$sizes, Moe_Context:$device_context);
  let results = (outs AnyMemRef:$view);
  let scalar = "view";
  let kernel = 0;
  let assemblyFormat = "$workspace `[` $offset `:` type($offset) `]` `sizes` `(` $sizes `)` `context` `(` $device_context `)` attr-dict `:` type($workspace) `to` type($view)";
  let extraClassDefinition = "MOE_DEFINE_VIEW_OP($cppClass, moe_workspace_view)";
}

def Moe_DispatchOp : Moe_DestinationOp<Moe_Dialect, "dispatch", "moe_dispatch", [AttrSizedOperandSegments]> {
  let summary = "Send each token to the ranks of its experts";
  let description = [{
    Sends row t of every payload to each distinct rank that owns one of the experts `topk_ids[t, :]`. Experts stand on ranks in
    contiguous blocks; if `n_experts` is not a multiple of the number of ranks, the first ranks own one more. Ids outside
    [0, n_experts) are dropped and count nothing. Within (source, destination) rows stand in ascending order of t.

    `layout = "rank_major"`: `recv[i]` is [ep_size, R, ...]; row [s, j] is the j-th row that rank s sent, for j < `recv_counts[s]`.
    `layout = "expert_grouped"`: `recv[i]` is [C, ...]: one row for each pair (token, slot k) that chose an expert of this rank, grouped by
    local expert, then ordered by source rank, token and slot; expert e's rows are `offsets[e]` to `offsets[e + 1]`. An expert that a token lists twice
    gets two rows. More rows than C are a capacity error.
    Rows beyond the counts keep their contents.

    R is `runtime_max_tokens_per_rank`: the same on all ranks, at least every rank's T, and at most the workspace's `max_num_tokens`. The result
    `combine_payload_offset` is where in the slab `moe.combine` expects its payload. `topk_weights` travels with the tokens, for
    the combine of layout `expert_grouped`, which applies it (absent: 1). A destination may be the view of the receive area of its payload
    (rank_major): then nothing is copied.

    `eplb_local_stats` are numbers for load balancing, such as how often each expert was chosen: `eplb_gathered_stats`[s, :] become those of rank s, on all
    ranks. Whether they are there, and how many, must be the same on all ranks.

    `active_rank_mask`: the ranks that take part, bit i for rank i, the calling one among them; absent, or 0 at run time: all that live. The others send
    nothing, get nothing and are not waited for: rows for their experts are dropped, and their `recv_counts` and `eplb_gathered_stats` are 0. All ranks
    that take part pass the same mask, here and to the combine. A rank that was left out comes back by `moe.initialize`: see docs/abi.md#ranks-that-take-part.

    `max_sms`: on GPUs the op occupies at most so many multiprocessors, and leaves the others to what runs beside it; 0: as many as it can use. Ranks may
    differ in it. `enable_pdl`: on GPUs the kernel may start before the one in front of it on the stream has ended, for whose end it waits before it reads
    or writes anything (programmatic dependent launch). Results are the same.

    Collective: every rank that takes part must call it, also with T = 0. Dispatch and combine alternate. The workspace must have been initialised.

    Constraints:
    - C1: `topk_ids` is [T, top_k]; `topk_weights`, if present, has its shape.
    - C2: 1 to 8 payloads, each [T, ...].
    - C3: as many `recv` as payloads, of the payload's element type and trailing dimensions: [ep_size, R, ...] or [C, ...].
    - C4: `recv_counts`, if present, is [ep_size], and goes with `rank_major`.
    - C5: `offsets` is [local experts + 1]; `expert_grouped` requires it, `rank_major` has none.
    - C6: `topk_weights` goes with `expert_grouped`.
    - C7: `n_experts` >= `ep_size`, and `top_k` <= `n_experts`.
    - C8: `metainfo` has 16 elements.
    - C9: `runtime_max_tokens_per_rank`, if it is a constant, is at least 1 and T; all `recv` have one R, or one C.
    - C10: `eplb_local_stats` and `eplb_gathered_stats` go together, [S] and [ep_size, S], with S from 1 to `n_experts`. That S is at most the
      `eplb_stats_num_experts` of the workspace is checked at run time.
    - C11: `active_rank_mask`, if it is a constant, has a bit, and with `ep_size` none beyond its ranks.
  }];
  let arguments = (ins
      Moe_I32x2:$topk_ids, Optional<Moe_F32x2>:$topk_weights, Variadic<Moe_Payload>:$payloads, Optional<Moe_I32x1>:$eplb_local_stats,
      Moe_WorkspaceMemory:$workspace, Moe_Metainfo:$metainfo, Moe_Count:$runtime_max_tokens_per_rank, Optional<I64>:$active_rank_mask,
      Variadic<Moe_Payload>:$recv, Optional<Moe_I32x1>:$recv_counts, Optional<Moe_I32x1>:$offsets, Optional<Moe_I32x2>:$eplb_gathered_stats,
      Moe_Context:$device_context,
      Moe_Int<1, 32>:$top_k, Moe_Int<1, 65536>:$n_experts,
      DefaultValuedAttr<Moe_OneOf<["rank_major", "expert_grouped"]>, "\"rank_major\"">:$layout,
      DefaultValuedAttr<Moe_Int<0, 1024>, "0">:$max_sms,
      DefaultValuedAttr<BoolAttr, "true">:$enable_pdl,
      DefaultValuedAttr<Moe_Int<0, 64>, "0">:$ep_size);
  let results = (outs Variadic<AnyRankedTensor>:$tensors, I64:$combine_payload_offset);
  let destinations = ["recv", "recv_counts", "offsets", "eplb_gathered_stats"];
  let since = ["eplb_local_stats=2", "active_rank_mask=2", "eplb_gathered_stats=2"];
  let kept = ["recv"];
  let scalar = "combine_payload_offset";
  let fabric = 1;
  let assemblyFormat = [{
    `topk_ids` `(` $topk_ids `:` type($topk_ids) `)` (`topk_weights` `(` $topk_weights^ `:` type($topk_weights) `)`)?
    `payloads` `(` $payloads `:` type($payloads) `)` (`eplb_stats` `(` $eplb_local_stats^ `:` type($eplb_local_stats) `)`)? `workspace` `(` $workspace `,` $metainfo `:` type($workspace) `,` type($metainfo) `)`
    `max_tokens` `(` $runtime_max_tokens_per_rank `:` type($runtime_max_tokens_per_rank) `)` (`active_ranks` `(` $active_rank_mask^ `)`)?
    `outs` `(` $recv `:` type($recv) `)` (`recv_counts` `(` $recv_counts^ `:` type($recv_counts) `)`)?
    (`offsets` `(` $offsets^ `:` type($offsets) `)`)?
    (`eplb_gathered` `(` $eplb_gathered_stats^ `:` type($eplb_gathered_stats) `)`)? `context` `(` $device_context `)` attr-dict `->` `(` type(results) `)`
  }];
}

def Moe_CombineOp : Moe_DestinationOp<Moe_Dialect, "combine", "moe_combine", [AttrSizedOperandSegments, DestinationStyleOpInterface]> {
  let summary = "Bring expert outputs back to their tokens and add them up";
  let description = [{
    The inverse of the last `moe.dispatch` on this workspace. `out[t]` is the sum over the ranks that token t was sent to.

    `layout = "rank_major"`: `payload` is [ep_size, R, ...]; row [s, j] is this rank's result for the j-th row from rank s, already weighted and summed
    over this rank's experts. `layout = "expert_grouped"`: `payload` is [C, ...], rows where the dispatch had put them; the rows of a token on this rank are
    combined in f32 as t = fma(row, topk_weight, t) in ascending slot order from t = 0, then rounded once to the payload's type.

    The rows of a token from its ranks are added in f32, each in the place of the first slot that named the rank and 0 in the other slots, by
    the tree of `top_k`: for 1, 2, 4, 6, 8, 10, 16 and 22 pairwise as docs/abi.md lists, for all others a left fold; then one rounding to the element type
    of `out`. So a lone -0.0 leaves as +0.0 unless `top_k` is 1. A token without a valid id gets 0.

    - `use_low_precision`: rows travel as E4M3, each element rounded to nearest even and saturated at 448, without a scale, instead of in the payload's
      type; the rest is as above. With `payload_in_workspace` the payload is overwritten by that: nothing may read it behind the op.
    - `output_format`: the sum is rounded to the payload's type, and then quantised as `moe.quantize` does it: `out` gets the codes, `output_scales` the
      scales in `sf_layout`, whose padding becomes zero. `output_scalar_scale` is G of `nvfp4`. docs/formats.md says what the codes are.
    - `active_rank_mask`: that of the dispatch. Rows that it dropped count as 0.
    - `max_sms`, `enable_pdl`: as in `moe.dispatch`.

    R, `top_k` and `layout` must be those of the dispatch. `combine_payload_offset` is the result of the dispatch. With `payload_in_workspace` (rank_major) the payload is the
    view of the workspace at that offset, and is not copied.

    Collective: every rank that takes part must call it, also with T = 0.

    Constraints:
    - C1: `payload` is [ep_size, R, ...] or [C, ...], with trailing dimensions whose product is `hidden_size`.
    - C2: `out` is [T, ...], without a format with the trailing dimensions of `payload`.
    - C3: `payload_in_workspace` goes with `rank_major`.
    - C4: `metainfo` has 16 elements.
    - C5: `runtime_max_tokens_per_rank`, if it is a constant, is at least 1, and the R of `payload`.
    - C6: `output_scales` is there if, and only if, `output_format` is not `none`.
    - C7: without a format `out` is bf16, f16 or f32. With one it is [T, hidden_size] of f8E4M3FN or i8 (`mxfp8`), or [T, hidden_size / 2] of i8 (`nvfp4`,
      `mxfp4`), and `hidden_size` is a multiple of 16 (`nvfp4`) or 32; element type and shape of `output_scales` are those of `moe.quantize` (C3 and C4).
      i8 is signless or ui8.
    - C8: `sf_layout` other than `linear` goes with an `output_format`.
    - C9: `output_scalar_scale` > 0, and other than 1 goes with `nvfp4`.
    - C10: `active_rank_mask`, if it is a constant, has a bit, and with `ep_size` none beyond its ranks.
  }];
  let arguments = (ins
      Moe_FloatN:$payload, Moe_WorkspaceMemory:$workspace, Moe_Metainfo:$metainfo, Moe_Count:$runtime_max_tokens_per_rank,
      I64:$combine_payload_offset, Optional<I64>:$active_rank_mask, Moe_FloatOrCodesN:$out, Optional<Moe_Scales2>:$output_scales, Moe_Context:$device_context,
      Moe_Int<1, 32>:$top_k, Moe_Int<1, 1073741824>:$hidden_size,
      DefaultValuedAttr<Moe_OneOf<["rank_major", "expert_grouped"]>, "\"rank_major\"">:$layout,
      DefaultValuedAttr<BoolAttr, "false">:$payload_in_workspace,
      DefaultValuedAttr<BoolAttr, "false">:$use_low_precision,
      DefaultValuedAttr<Moe_OneOf<["none", "nvfp4", "mxfp4", "mxfp8"]>, "\"none\"">:$output_format,
      DefaultValuedAttr<Moe_OneOf<["linear", "128x4", "8x4"]>, "\"linear\"">:$sf_layout,
      DefaultValuedAttr<Moe_Float, "1.0">:$output_scalar_scale,
      DefaultValuedAttr<Moe_Int<0, 1024>, "0">:$max_sms,
      DefaultValuedAttr<BoolAttr, "true">:$enable_pdl,
      DefaultValuedAttr<Moe_Int<0, 64>, "0">:$ep_size);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["out", "output_scales"];
  let since = ["active_rank_mask=2", "output_scales=2"];
  let fabric = 1;
  let assemblyFormat = [{
    `payload` `(` $payload `:` type($payload) `)` `workspace` `(` $workspace `,` $metainfo `:` type($workspace) `,` type($metainfo) `)`
    `max_tokens` `(` $runtime_max_tokens_per_rank `:` type($runtime_max_tokens_per_rank) `)` `offset` `(` $combine_payload_offset `)`
    (`active_ranks` `(` $active_rank_mask^ `)`)?
    `outs` `(` $out `:` type($out) `)` (`output_scales` `(` $output_scales^ `:` type($output_scales) `)`)? `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

def Moe_SanitizeExpertIdsOp : Moe_DestinationOp<Moe_Dialect, "sanitize_expert_ids", "moe_sanitize_expert_ids", [DestinationStyleOpInterface]> {
  let summary = "Mark the rows of received expert ids that no rank has sent";
  let description = [{
    After a `moe.dispatch` of layout "rank_major" whose payloads have the expert ids among them: `expert_ids` is what was received of them. All entries
    of the rows [s, j] with j >= RECV_COUNTERS[s] of this rank become `invalid_expert_id`. Rows below the counts keep their contents, ids of other
    ranks' experts included. From a rank that the dispatch's `active_rank_mask` left out no row has come.

    `expert_ids` may be the view of its receive area in the workspace. The op is local, but reads what the dispatch has written: it stands between a
    dispatch and its combine (a run-time error otherwise), for behind the combine a peer's next dispatch may already be writing the counts. R is
    that of the dispatch, checked at run time.

    Canonicalisation: an op on no elements, and one on the result of another with the same parameters, with no write in between, give way to their
    operand.

    Constraints:
    - C1: `expert_ids` is [ep_size, R, K].
    - C2: `metainfo` has 16 elements.
  }];
  let arguments = (ins
      Moe_WorkspaceMemory:$workspace, Moe_Metainfo:$metainfo, Moe_I32x3:$expert_ids, Moe_Context:$device_context,
      DefaultValuedAttr<Moe_Int<-2147483648, 2147483647>, "-1">:$invalid_expert_id,
      DefaultValuedAttr<Moe_Int<0, 64>, "0">:$ep_size);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["expert_ids"];
  let kept = ["expert_ids"];
  let observed = ["workspace", "metainfo"];
  let idempotent = 1;
  let assemblyFormat = [{
    `workspace` `(` $workspace `,` $metainfo `:` type($workspace) `,` type($metainfo) `)`
    `outs` `(` $expert_ids `:` type($expert_ids) `)` `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

//===--- all-reduce -------------------------------------------------------------------------------===//

def Moe_AllreduceFusionOp : Moe_DestinationOp<Moe_Dialect, "allreduce_fusion", "moe_allreduce_fusion", [DestinationStyleOpInterface, AttrSizedOperandSegments]> {
  let summary = "Reduce expert outputs, all-reduce, add the residual, normalise";
  let description = [{
    With x = `moe_reduction_active_experts_token_input`, s = `moe_reduction_scale_input`, A = `moe_reduction_device_num_experts` (absent: the size of
    dimension 0 of x), for each token t and column h:

    - this rank's part: the sum over e < A of `x[e, t, h] * s[e, t]`, plus `moe_reduction_token_input[t, h]`
    - `moe_allreduce_out` = y: the sum of the parts of all ranks
    - `residual_out` = z = y + `residual_in`
    - `norm_out` = z * (1 / sqrt(mean(z * z) + rms_eps)) * (weight_bias + `rms_gamma`); the mean is over the columns of a token

    - `quant_out`, `scale_out`: the codes and scales that `moe.quantize` makes of norm, in `quant_format`; docs/formats.md says what they are. `layout_code`
      is the layout of scales, whose padding becomes zero. `scale_factor` is G of `nvfp4` and `fp8_tensor`; the latter has no `scale_out`.

    Each destination is optional; one at least must be there. A may be smaller than dimension 0 of x, and another at every call and on every rank;
    what lies behind does not count. 0 experts are legal, and so are 0 tokens. `residual_out` may be the memory of `residual_in`.

    Rounding. RN rounds to the element type of the tensors, to nearest even; all else is f32, without contraction but for fma. Experts and ranks are
    added in ascending order. NaN and infinities survive.
    - By default (`backend = "trtllm"`) as TensorRT-LLM does it: part = +0, then `RN(part + RN(x * s))` for each expert, then
      `RN(part + token_input)`; y is the part of rank 0, then `RN(y + part)` for each further rank.
    - `fp32_acc = true`: part = +0, then `fma(x, s, part)` for each expert, then `part + token_input`; the parts travel as f32 and are added in f32;
      y is rounded once, at the end.
    - A sum y of -0.0 leaves as +0.0.
    - z = `RN(y + residual_in)`, from the rounded y. norm = `RN((z * inv) * (weight_bias + rms_gamma))` from the rounded z, with
      `inv = 1 / sqrt(sum / hidden_size + rms_eps)`, where division and square root are IEEE's.
    - The sum of squares is a tree that hidden_size alone decides. 8 consecutive columns: `fma(z, z, sum)` in ascending order, from +0. 32 consecutive
      such sums (256 columns; +0 where there is none) by halves: sum i takes sum i + 16, for all i < 16, then i + 8, i + 4, i + 2, i + 1. 32 consecutive
      of these (8192 columns): likewise. Then a left fold, from +0.

    So all ranks get the same bits of y, in every run; of z and norm too, if they have the same residual and gamma.

    `strategy`: in one shot each rank sends its part of a token to all others; in two, to the one that owns the token, which sends them the sum. `auto`
    chooses by the number of ranks and the bytes of a part. Results are the same.

    The parts travel through a workspace that `moe.initialize` has laid out; it may be that of an all-to-all, but not between a
    dispatch and its combine. T is at most its `max_num_tokens`, and `hidden_size` times the size of an element (4 bytes with `fp32_acc`) at most its
    `dispatch_bytes_per_token`: checked at run time. `launch_with_pdl` lets a kernel start before the one in front of it has ended; results are the same.

    Collective: every rank of the context must call it, with the same number of tokens, element type and static parameters. `world_size` 0 takes
    the number of ranks from the context; any other value must equal it.

    Constraints:
    - C1: `residual_in` is [T, hidden_size], with `hidden_size` a multiple of 8.
    - C2: `rms_gamma` is [hidden_size].
    - C3: `moe_reduction_active_experts_token_input` is [experts, T, hidden_size], `moe_reduction_scale_input` [experts, T].
    - C4: `moe_reduction_device_num_experts`, if present, is [1].
    - C5: `moe_reduction_token_input`, `moe_allreduce_out`, `residual_out` and `norm_out` are [T, hidden_size]; there is at least one destination.
    - C6: all tensors but `moe_reduction_scale_input`, the number of experts, codes and scales have the element type of `residual_in`.
    - C7: `rms_eps` >= 0.
    - C8: `metainfo` has 16 elements.
    - C9: `quant_out` is there if, and only if, `quant_format` is not `none`; `scale_out` if it is not `none` or `fp8_tensor` either.
    - C10: element types and shapes of `quant_out` and `scale_out` are those of `moe.quantize` (C1, C3 and C4), and `hidden_size` is a multiple of the block
      (16 for `nvfp4`, 32 for `mxfp4` and `mxfp8`).
    - C11: `layout_code` other than `linear` goes with `nvfp4`, `mxfp4` and `mxfp8`.
    - C12: `scale_factor` > 0, and other than 1 goes with `nvfp4` and `fp8_tensor`.
  }];
  let arguments = (ins
      Moe_Float2:$residual_in, Moe_Float1:$rms_gamma,
      Moe_Float3:$moe_reduction_active_experts_token_input, Moe_Float2:$moe_reduction_scale_input, Optional<Moe_I32x1>:$moe_reduction_device_num_experts,
      Moe_Float2:$moe_reduction_token_input,
      Moe_WorkspaceMemory:$workspace, Moe_Metainfo:$metainfo,
      Optional<Moe_Float2>:$moe_allreduce_out, Optional<Moe_Float2>:$residual_out, Optional<Moe_Float2>:$norm_out,
      Optional<Moe_Codes2>:$quant_out, Optional<Moe_Scales2>:$scale_out, Moe_Context:$device_context,
      Moe_Int<8, 1073741824>:$hidden_size, Moe_Float:$rms_eps,
      DefaultValuedAttr<Moe_Float, "0.0">:$weight_bias,
      DefaultValuedAttr<BoolAttr, "false">:$fp32_acc,
      DefaultValuedAttr<Moe_OneOf<["trtllm"]>, "\"trtllm\"">:$backend,
      DefaultValuedAttr<Moe_OneOf<["auto", "one_shot", "two_shot"]>, "\"auto\"">:$strategy,
      DefaultValuedAttr<Moe_OneOf<["none", "nvfp4", "mxfp4", "mxfp8", "fp8_block", "fp8_token", "fp8_tensor"]>, "\"none\"">:$quant_format,
      DefaultValuedAttr<Moe_OneOf<["linear", "128x4", "8x4"]>, "\"linear\"">:$layout_code,
      DefaultValuedAttr<Moe_Float, "1.0">:$scale_factor,
      DefaultValuedAttr<BoolAttr, "false">:$launch_with_pdl,
      DefaultValuedAttr<Moe_Int<0, 64>, "0">:$world_size);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["moe_allreduce_out", "residual_out", "norm_out", "quant_out", "scale_out"];
  let since = ["quant_out=2", "scale_out=2"];
  let inPlace = ["residual_out=residual_in"];
  let observed = ["metainfo"];
  let fabric = 1;
  let assemblyFormat = [{
    `residual_in` `(` $residual_in `:` type($residual_in) `)` `rms_gamma` `(` $rms_gamma `:` type($rms_gamma) `)`
    `active_experts` `(` $moe_reduction_active_experts_token_input `,` $moe_reduction_scale_input `:`
    type($moe_reduction_active_experts_token_input) `,` type($moe_reduction_scale_input) `)`
    (`device_num_experts` `(` $moe_reduction_device_num_experts^ `:` type($moe_reduction_device_num_experts) `)`)?
    `token_input` `(` $moe_reduction_token_input `:` type($moe_reduction_token_input) `)`
    `workspace` `(` $workspace `,` $metainfo `:` type($workspace) `,` type($metainfo) `)`
    (`allreduce_out` `(` $moe_allreduce_out^ `:` type($moe_allreduce_out) `)`)? (`residual_out` `(` $residual_out^ `:` type($residual_out) `)`)?
    (`norm_out` `(` $norm_out^ `:` type($norm_out) `)`)? (`quant_out` `(` $quant_out^ `:` type($quant_out) `)`)?
    (`scale_out` `(` $scale_out^ `:` type($scale_out) `)`)? `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

def Moe_FinalizeAllreduceFusionOp : Moe_DestinationOp<Moe_Dialect, "finalize_allreduce_fusion", "moe_finalize_allreduce_fusion", [DestinationStyleOpInterface, AttrSizedOperandSegments]> {
  let summary = "Combine expert rows by choice, all-reduce, add the residual, normalise";
  let description = [{
    As `moe.allreduce_fusion`, with another part of this rank: with x = `allreduce_in` [P, hidden_size], rows that this rank's experts have computed,
    i = `expanded_idx_to_permuted_idx` [T, K], w = `expert_scale_factor`, f = `routed_scaling_factor`, for each token t and column h:

    - this rank's part: f times the sum over k < K of `x[i[t, k], h] * w[t, k]`, plus `shared_expert_output[t, h]`. An i of -1 is a choice without a
      row here, and does not count; any other must be a row of x. Without `expert_scale_factor` rows count as they are, without `shared_expert_output`
      nothing is added.
    - `residual_out`, `norm_out`, `quant_out`, `scale_out`, and what is behind them: as in `moe.allreduce_fusion`, with `norm_weight` for `rms_gamma`.

    Rounding. By default part = +0, then `RN(part + RN(x * w))` for each choice, or `RN(part + x)` without w; then, unless f is 1, `RN(part * f)`; then
    `RN(part + shared)`. With `fp32_acc` part = +0, then `fma(x, w, part)`, or `part + x`, then `part * f` and `part + shared`, in f32. All else is as there.

    An index that is no row is an error of the call. On devices it is found when the exchange has begun, so that the peers see this rank fail.

    Collective: every rank of the context must call it, with the same number of tokens, element type and static parameters; P, K and the optional
    inputs may differ. `world_size` 0 takes the number of ranks from the context; any other value must equal it.

    Constraints:
    - C1: `residual_in` is [T, hidden_size], with `hidden_size` a multiple of 8.
    - C2: `norm_weight` is [hidden_size].
    - C3: `allreduce_in` is [P, hidden_size].
    - C4: `expanded_idx_to_permuted_idx` is [T, K], and so is `expert_scale_factor`.
    - C5: `shared_expert_output`, `residual_out` and `norm_out` are [T, hidden_size]; there is at least one destination.
    - C6: all tensors but indices, `expert_scale_factor`, codes and scales have the element type of `residual_in`.
    - C7: `rms_eps` >= 0.
    - C8: `metainfo` has 16 elements.
    - C9: `quant_out` is there if, and only if, `quant_format` is not `none`; `scale_out` if it is not `none` or `fp8_tensor` either.
    - C10: element types and shapes of `quant_out` and `scale_out` are those of `moe.quantize` (C1, C3 and C4), and `hidden_size` is a multiple of the block
      (16 for `nvfp4`, 32 for `mxfp4` and `mxfp8`).
    - C11: `layout_code` other than `linear` goes with `nvfp4`, `mxfp4` and `mxfp8`.
    - C12: `scale_factor` > 0, and other than 1 goes with `nvfp4` and `fp8_tensor`.
  }];
  let arguments = (ins
      Moe_Float2:$residual_in, Moe_Float1:$norm_weight, Moe_Float2:$allreduce_in, Moe_I32x2:$expanded_idx_to_permuted_idx,
      Optional<Moe_Float2>:$expert_scale_factor, Optional<Moe_Float2>:$shared_expert_output,
      Moe_WorkspaceMemory:$workspace, Moe_Metainfo:$metainfo,
      Optional<Moe_Float2>:$residual_out, Optional<Moe_Float2>:$norm_out, Optional<Moe_Codes2>:$quant_out, Optional<Moe_Scales2>:$scale_out,
      Moe_Context:$device_context,
      Moe_Int<8, 1073741824>:$hidden_size, Moe_Float:$rms_eps,
      DefaultValuedAttr<Moe_Float, "1.0">:$routed_scaling_factor,
      DefaultValuedAttr<Moe_Float, "0.0">:$weight_bias,
      DefaultValuedAttr<BoolAttr, "false">:$fp32_acc,
      DefaultValuedAttr<Moe_OneOf<["trtllm"]>, "\"trtllm\"">:$backend,
      DefaultValuedAttr<Moe_OneOf<["auto", "one_shot", "two_shot"]>, "\"auto\"">:$strategy,
      DefaultValuedAttr<Moe_OneOf<["none", "nvfp4", "mxfp4", "mxfp8", "fp8_block", "fp8_token", "fp8_tensor"]>, "\"none\"">:$quant_format,
      DefaultValuedAttr<Moe_OneOf<["linear", "128x4", "8x4"]>, "\"linear\"">:$layout_code,
      DefaultValuedAttr<Moe_Float, "1.0">:$scale_factor,
      DefaultValuedAttr<BoolAttr, "false">:$launch_with_pdl,
      DefaultValuedAttr<Moe_Int<0, 64>, "0">:$world_size);
  let results = (outs Variadic<AnyRankedTensor>:$tensors);
  let destinations = ["residual_out", "norm_out", "quant_out", "scale_out"];
  let inPlace = ["residual_out=residual_in"];
  let observed = ["metainfo"];
  let fabric = 1;
  let assemblyFormat = [{
    `residual_in` `(` $residual_in `:` type($residual_in) `)` `norm_weight` `(` $norm_weight `:` type($norm_weight) `)`
    `rows` `(` $allreduce_in `,` $expanded_idx_to_permuted_idx `:` type($allreduce_in) `,` type($expanded_idx_to_permuted_idx) `)`
    (`expert_scale_factor` `(` $expert_scale_factor^ `:` type($expert_scale_factor) `)`)?
    (`shared_expert_output` `(` $shared_expert_output^ `:` type($shared_expert_output) `)`)?
    `workspace` `(` $workspace `,` $metainfo `:` type($workspace) `,` type($metainfo) `)`
    (`residual_out` `(` $residual_out^ `:` type($residual_out) `)`)?
    (`norm_out` `(` $norm_out^ `:` type($norm_out) `)`)? (`quant_out` `(` $quant_out^ `:` type($quant_out) `)`)?
    (`scale_out` `(` $scale_out^ `:` type($scale_out) `)`)? `context` `(` $device_context `)` attr-dict (`->` type($tensors)^)?
  }];
}

//===--- made by passes ---------------------------------------------------------------------------===//

def Moe_AllocateOp : Moe_Op<Moe_Dialect, "allocate", "moe_allocate"> {
  let summary = "A buffer in the arena of the context";
  let description = [{
    Made by `moe-place-buffers` from the intermediates of a function. The buffer lives until the function returns. `sizes` are the dynamic
    sizes of the result.

    Constraints:
    - C1: as many `sizes` as the result has dynamic dimensions.
    - C2: the result is a contiguous memref in device memory.
    - C3: its elements are whole bytes.
  }];
  let arguments = (ins Variadic<Index>:$sizes, Moe_Context:$device_context);
  let results = (outs AnyMemRef:$buffer);
  let scalar = "buffer";
  let runtime = 0;
  let kernel = 0;
  let assemblyFormat = "`(` $sizes `)` `context` `(` $device_context `)` attr-dict `:` type($buffer)";
  let extraClassDefinition = "MOE_DEFINE_ALLOCATE_OP($cppClass, moe_allocate)";
}

#endif // MOE_OPS

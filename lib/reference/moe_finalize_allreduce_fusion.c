//===- moe_finalize_allreduce_fusion.c - moe.finalize_allreduce_fusion on the host ---------------===//

#include "lib/reference/moe_finalize_allreduce_fusion.h"
#include "lib/reference/checks.h"

#define SAME(ours, name) _Static_assert((int)ours == (int)MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_##name, "the values of the parameter")
SAME(MOERT__STRATEGY_AUTO, STRATEGY_AUTO);
SAME(MOERT__STRATEGY_TWO_SHOT, STRATEGY_TWO_SHOT);
SAME(MOERT__NVFP4 + 1, QUANT_FORMAT_NVFP4);
SAME(MOERT__FP8_TENSOR + 1, QUANT_FORMAT_FP8_TENSOR);
SAME(MOERT__LINEAR, LAYOUT_CODE_LINEAR);
SAME(MOERT__8X4, LAYOUT_CODE_8X4);

typedef moert__finalize_call finalize_call;

//===--- checks -----------------------------------------------------------------------------------===//

static const char rows_name[] = "allreduce_in", indices_name[] = "expanded_idx_to_permuted_idx", scales_name[] = "expert_scale_factor",
                  shared_name[] = "shared_expert_output";

static moert_status check_own(const moert__reduction *call, const void *own) {
  const moert_moe_finalize_allreduce_fusion_args *args = own;
  const moert_tensor *indices = args->expanded_idx_to_permuted_idx, *scales = args->expert_scale_factor;
  static const char tokens[] = "dimension 0 of 'residual_in'";
  moert_status status = moert__check_dimension(args->allreduce_in, rows_name, 1, call->hidden, "hidden_size"); // C3
  if (!status) status = moert__check_dimension(indices, indices_name, 0, call->tokens, tokens);                // C4
  if (!status && scales) status = moert__check_dimension(scales, scales_name, 0, call->tokens, tokens);
  if (!status && scales) status = moert__check_dimension(scales, scales_name, 1, indices->shape[1], "dimension 1 of 'expanded_idx_to_permuted_idx'");
  if (!status) status = moert__reduction_check_rows(call, args->shared_expert_output, shared_name); // C5
  if (!status) status = moert__reduction_check_dtype(call, args->allreduce_in, rows_name);          // C6
  return status ? status : moert__reduction_check_dtype(call, args->shared_expert_output, shared_name);
}

static moert_status check_own_apart(const moert__reduction *call, const void *own) {
  const moert_moe_finalize_allreduce_fusion_args *args = own;
  moert_status status = moert__workspace_check_apart(&call->workspace, args->allreduce_in, rows_name);
  if (!status) status = moert__workspace_check_apart(&call->workspace, args->expanded_idx_to_permuted_idx, indices_name);
  if (!status) status = moert__workspace_check_apart(&call->workspace, args->expert_scale_factor, scales_name);
  return status ? status : moert__workspace_check_apart(&call->workspace, args->shared_expert_output, shared_name);
}

moert_status moert__finalize_check(const moert_moe_finalize_allreduce_fusion_params *params, const moert_moe_finalize_allreduce_fusion_args *args,
                                   moert_context *context, finalize_call *call) {
  const moert_tensor *scales = args->expert_scale_factor;
  const moert__reduction_operands operands = {check_own, check_own_apart, args};
  moert_status status = moert__check_f32("routed_scaling_factor", params->routed_scaling_factor); // C13
  if (status) return status;
  *call = (finalize_call){.args = args, .rows = args->allreduce_in->shape[0], .top_k = args->expanded_idx_to_permuted_idx->shape[1]};
  call->factor = (float)params->routed_scaling_factor;
  if (scales) call->scale_format = moert__format_of(scales->dtype.code, scales->dtype.bits);
  call->reduction = (moert__reduction){
      .context = context,
      .residual = args->residual_in,
      .gamma = args->norm_weight,
      .workspace_memory = args->workspace,
      .metainfo = args->metainfo,
      .residual_out = args->residual_out,
      .norm_out = args->norm_out,
      .quant_out = args->quant_out,
      .scale_out = args->scale_out,
      .gamma_name = "norm_weight",
      .all_outputs = "'residual_out', 'norm_out' and 'quant_out'",
      .hidden = params->hidden_size,
      .fp32_acc = params->fp32_acc,
      .strategy = params->strategy,
      .world_size = params->world_size,
      .quant_format = params->quant_format,
      .scale_layout = params->layout_code,
      .rms_eps = params->rms_eps,
      .weight_bias = params->weight_bias,
      .scale_factor = params->scale_factor,
  };
  return moert__reduction_check(&call->reduction, &operands);
}

uint32_t moert__finalize_hash(const finalize_call *call) {
  return moert__hash(moert__reduction_hash(&call->reduction, MOERT__HASH_FINALIZE_ALLREDUCE_FUSION), moert__bits(call->factor));
}

//===--- the op -----------------------------------------------------------------------------------===//

static moert_status check_indices(const finalize_call *call) {
  const int32_t *indices = moert__data(call->args->expanded_idx_to_permuted_idx);
  for (int64_t i = 0; i < call->reduction.tokens * call->top_k; ++i)
    if (indices[i] < -1 || indices[i] >= call->rows)
      return moert__fail(MOERT_ERROR_DATA,
                         "operand 'expanded_idx_to_permuted_idx' holds %" PRId32 " for token %" PRId64 ", slot %" PRId64
                         ", must be at least -1 and less than %" PRId64 ", dimension 0 of 'allreduce_in'",
                         indices[i], i / call->top_k, i % call->top_k, call->rows);
  return MOERT_OK;
}

static float add_row(const finalize_call *call, int64_t choice, float row, float sum) {
  const moert_tensor *scales = call->args->expert_scale_factor;
  const moert__format format = call->reduction.format;
  const float scale = scales ? moert__load(call->scale_format, moert__data(scales), choice) : 1.0f;
  if (call->reduction.fp32_acc) return scales ? fmaf(row, scale, sum) : sum + row;
  return moert__round_to(format, sum + (scales ? moert__round_to(format, row * scale) : row));
}

static float part_of(const moert__reduction *reduction, const void *own, int64_t token, int64_t column) {
  const finalize_call *call = own;
  const moert_tensor *shared = call->args->shared_expert_output;
  const int32_t *indices = moert__data(call->args->expanded_idx_to_permuted_idx);
  float sum = 0.0f;
  for (int64_t choice = token * call->top_k; choice < (token + 1) * call->top_k; ++choice) {
    if (indices[choice] < 0) continue;
    float row = moert__load(reduction->format, moert__data(call->args->allreduce_in), indices[choice] * reduction->hidden + column);
    sum = add_row(call, choice, row, sum);
  }
  if (call->factor != 1.0f) sum = moert__round_to(reduction->part_format, sum * call->factor);
  return shared ? sum + moert__load(reduction->format, moert__data(shared), token * reduction->hidden + column) : sum;
}

moert_status moert__host_moe_finalize_allreduce_fusion(const moert_moe_finalize_allreduce_fusion_params *params,
                                                       const moert_moe_finalize_allreduce_fusion_args *args, moert_context *context) {
  finalize_call call;
  moert_status status = moert__finalize_check(params, args, context, &call);
  if (!status) status = check_indices(&call);
  return status ? status : moert__reduction_run(&call.reduction, moert__finalize_hash(&call), part_of, &call);
}

//===- moe_allreduce_fusion.c - moe.allreduce_fusion on the host ----------------------------------===//

#include "lib/reference/moe_allreduce_fusion.h"
#include "lib/reference/checks.h"

_Static_assert((int)MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_AUTO == (int)MOERT__STRATEGY_AUTO &&
                   (int)MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT == (int)MOERT__STRATEGY_ONE_SHOT &&
                   (int)MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT == (int)MOERT__STRATEGY_TWO_SHOT,
               "the values of strategy");
_Static_assert((int)MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_NVFP4 - 1 == (int)MOERT__NVFP4 &&
                   (int)MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_FP8_TENSOR - 1 == (int)MOERT__FP8_TENSOR,
               "the values of quant_format");
_Static_assert((int)MOERT_MOE_ALLREDUCE_FUSION_LAYOUT_CODE_LINEAR == (int)MOERT__LINEAR &&
                   (int)MOERT_MOE_ALLREDUCE_FUSION_LAYOUT_CODE_8X4 == (int)MOERT__8X4,
               "the values of layout_code");

typedef moert__allreduce_call allreduce_call;

//===--- checks -----------------------------------------------------------------------------------===//

static const char experts_name[] = "moe_reduction_active_experts_token_input", scales_name[] = "moe_reduction_scale_input",
                  number_name[] = "moe_reduction_device_num_experts", shared_name[] = "moe_reduction_token_input";

// C3
static moert_status check_experts(const moert__reduction *call, const moert_moe_allreduce_fusion_args *args) {
  const moert_tensor *experts = args->moe_reduction_active_experts_token_input, *scales = args->moe_reduction_scale_input;
  moert_status status = moert__check_dimension(experts, experts_name, 1, call->tokens, "dimension 0 of 'residual_in'");
  if (!status) status = moert__check_dimension(experts, experts_name, 2, call->hidden, "hidden_size");
  if (!status)
    status = moert__check_dimension(scales, scales_name, 0, experts->shape[0], "dimension 0 of 'moe_reduction_active_experts_token_input'");
  return status ? status : moert__check_dimension(scales, scales_name, 1, call->tokens, "dimension 0 of 'residual_in'");
}

static moert_status check_own(const moert__reduction *call, const void *own) {
  const moert_moe_allreduce_fusion_args *args = own;
  moert_status status = check_experts(call, args);
  if (!status && args->moe_reduction_device_num_experts) // C4
    status = moert__check_dimension(args->moe_reduction_device_num_experts, number_name, 0, 1, "the number of its elements");
  if (!status) status = moert__reduction_check_rows(call, args->moe_reduction_token_input, shared_name);                  // C5
  if (!status) status = moert__reduction_check_dtype(call, args->moe_reduction_active_experts_token_input, experts_name); // C6
  return status ? status : moert__reduction_check_dtype(call, args->moe_reduction_token_input, shared_name);
}

static moert_status check_own_apart(const moert__reduction *call, const void *own) {
  const moert_moe_allreduce_fusion_args *args = own;
  moert_status status = moert__workspace_check_apart(&call->workspace, args->moe_reduction_active_experts_token_input, experts_name);
  if (!status) status = moert__workspace_check_apart(&call->workspace, args->moe_reduction_scale_input, scales_name);
  if (!status) status = moert__workspace_check_apart(&call->workspace, args->moe_reduction_device_num_experts, number_name);
  return status ? status : moert__workspace_check_apart(&call->workspace, args->moe_reduction_token_input, shared_name);
}

moert_status moert__allreduce_check(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                    moert_context *context, allreduce_call *call) {
  const moert_tensor *scales = args->moe_reduction_scale_input;
  const moert__reduction_operands operands = {check_own, check_own_apart, args};
  *call = (allreduce_call){.args = args, .experts = args->moe_reduction_active_experts_token_input->shape[0]};
  call->scale_format = moert__format_of(scales->dtype.code, scales->dtype.bits);
  call->reduction = (moert__reduction){
      .context = context,
      .residual = args->residual_in,
      .gamma = args->rms_gamma,
      .workspace_memory = args->workspace,
      .metainfo = args->metainfo,
      .sum_out = args->moe_allreduce_out,
      .residual_out = args->residual_out,
      .norm_out = args->norm_out,
      .quant_out = args->quant_out,
      .scale_out = args->scale_out,
      .gamma_name = "rms_gamma",
      .all_outputs = "'moe_allreduce_out', 'residual_out', 'norm_out' and 'quant_out'",
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

uint32_t moert__allreduce_hash(const allreduce_call *call) { return moert__reduction_hash(&call->reduction, MOERT__HASH_ALLREDUCE_FUSION); }

//===--- the op -----------------------------------------------------------------------------------===//

// How many of the experts count: what the device says, within the operand's size.
static moert_status read_experts(allreduce_call *call) {
  const moert_tensor *number = call->args->moe_reduction_device_num_experts;
  int64_t most = call->experts;
  if (!number) return MOERT_OK;
  const void *data = moert__data(number);
  call->experts = number->dtype.code == MOERT_CODE_UINT ? (int64_t)*(const uint32_t *)data : *(const int32_t *)data;
  if (call->experts >= 0 && call->experts <= most) return MOERT_OK;
  return moert__fail(MOERT_ERROR_DATA,
                     "operand 'moe_reduction_device_num_experts' holds %" PRId64 ", must be in [0, %" PRId64
                     "], dimension 0 of 'moe_reduction_active_experts_token_input'",
                     call->experts, most);
}

static float part_of(const moert__reduction *reduction, const void *own, int64_t token, int64_t column) {
  const allreduce_call *call = own;
  const void *inputs = moert__data(call->args->moe_reduction_active_experts_token_input),
             *scales = moert__data(call->args->moe_reduction_scale_input);
  const moert__format format = reduction->format;
  float sum = 0.0f;
  for (int64_t expert = 0; expert < call->experts; ++expert) {
    int64_t row = expert * reduction->tokens + token;
    float input = moert__load(format, inputs, row * reduction->hidden + column), scale = moert__load(call->scale_format, scales, row);
    sum = reduction->fp32_acc ? fmaf(input, scale, sum) : moert__round_to(format, sum + moert__round_to(format, input * scale));
  }
  return sum + moert__load(format, moert__data(call->args->moe_reduction_token_input), token * reduction->hidden + column);
}

moert_status moert__host_moe_allreduce_fusion(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                              moert_context *context) {
  allreduce_call call;
  moert_status status = moert__allreduce_check(params, args, context, &call);
  if (!status) status = read_experts(&call);
  return status ? status : moert__reduction_run(&call.reduction, moert__allreduce_hash(&call), part_of, &call);
}

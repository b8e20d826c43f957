//===- moe_allreduce_fusion.c - moe.allreduce_fusion on the host ----------------------------------===//
//
// Push: every rank sends row t of its part to row (me * T + t) of the receive area of each rank. Then all add the same rows in the same order, so
// that they get the same bits.
//
// The sum of squares of a token: 8 consecutive columns are folded by fma; 32 consecutive sums of that are added by halves, absent ones being +0; so
// are 32 consecutive sums of these, which stand for 8192 columns; and those are folded. On a GPU the three levels are a thread's vector, a warp,
// and the warps of a block.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_allreduce_fusion.h"
#include "lib/reference/checks.h"
#include <string.h>

enum { VECTOR = MOERT__ALLREDUCE_VECTOR, WIDTH = MOERT__ALLREDUCE_WIDTH, GROUP = VECTOR * WIDTH, BLOCK = GROUP * WIDTH };

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_parameters(const moert_moe_allreduce_fusion_params *params) {
  if (params->hidden_size % VECTOR) // C1
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'hidden_size' is %" PRId64 ", must be a multiple of %d", params->hidden_size, VECTOR);
  if (params->rms_eps < 0) // C7
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'rms_eps' is %g, must be at least 0", params->rms_eps);
  moert_status status = moert__check_f32("rms_eps", params->rms_eps);
  return status ? status : moert__check_f32("weight_bias", params->weight_bias);
}

// C1, C5: rows for the tokens of residual_in, if the operand is there.
static moert_status check_rows(const moert__allreduce_call *call, const moert_tensor *tensor, const char *name) {
  if (!tensor) return MOERT_OK;
  moert_status status = moert__check_dimension(tensor, name, 0, call->tokens, "dimension 0 of 'residual_in'");
  return status ? status : moert__check_dimension(tensor, name, 1, call->hidden, "hidden_size");
}

static moert_status check_experts(const moert__allreduce_call *call) {
  static const char experts[] = "moe_reduction_active_experts_token_input", scales[] = "moe_reduction_scale_input";
  const moert_moe_allreduce_fusion_args *args = call->args;
  int64_t most = args->moe_reduction_active_experts_token_input->shape[0];
  moert_status status =
      moert__check_dimension(args->moe_reduction_active_experts_token_input, experts, 1, call->tokens, "dimension 0 of 'residual_in'"); // C3
  if (!status) status = moert__check_dimension(args->moe_reduction_active_experts_token_input, experts, 2, call->hidden, "hidden_size");
  if (!status)
    status = moert__check_dimension(args->moe_reduction_scale_input, scales, 0, most, "dimension 0 of 'moe_reduction_active_experts_token_input'");
  if (!status) status = moert__check_dimension(args->moe_reduction_scale_input, scales, 1, call->tokens, "dimension 0 of 'residual_in'");
  return status;
}

static moert_status check_shapes(const moert__allreduce_call *call) {
  const moert_moe_allreduce_fusion_args *args = call->args;
  moert_status status = check_rows(call, args->residual_in, "residual_in");
  if (!status) status = moert__check_dimension(args->rms_gamma, "rms_gamma", 0, call->hidden, "hidden_size"); // C2
  if (!status) status = check_experts(call);
  if (!status && args->moe_reduction_device_num_experts) // C4
    status = moert__check_dimension(args->moe_reduction_device_num_experts, "moe_reduction_device_num_experts", 0, 1, "the number of its elements");
  if (!status) status = check_rows(call, args->moe_reduction_token_input, "moe_reduction_token_input");
  if (!status) status = check_rows(call, args->moe_allreduce_out, "moe_allreduce_out");
  if (!status) status = check_rows(call, args->residual_out, "residual_out");
  if (!status) status = check_rows(call, args->norm_out, "norm_out");
  if (status || args->moe_allreduce_out || args->residual_out || args->norm_out) return status;
  return moert__fail(MOERT_ERROR_NULL_POINTER, "operands 'moe_allreduce_out', 'residual_out' and 'norm_out' are NULL, must not all be");
}

static moert_status check_dtype(const moert__allreduce_call *call, const moert_tensor *tensor, const char *name) {
  moert_dtype dtype = call->args->residual_in->dtype;
  if (!tensor || moert__dtype_equal(tensor->dtype, dtype)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand '%s': element type %s, must be %s, that of 'residual_in'", name,
                     moert__dtype_name(tensor->dtype), moert__dtype_name(dtype));
}

// C6
static moert_status check_dtypes(const moert__allreduce_call *call) {
  const moert_moe_allreduce_fusion_args *args = call->args;
  moert_status status = check_dtype(call, args->rms_gamma, "rms_gamma");
  if (!status) status = check_dtype(call, args->moe_reduction_active_experts_token_input, "moe_reduction_active_experts_token_input");
  if (!status) status = check_dtype(call, args->moe_reduction_token_input, "moe_reduction_token_input");
  if (!status) status = check_dtype(call, args->moe_allreduce_out, "moe_allreduce_out");
  if (!status) status = check_dtype(call, args->residual_out, "residual_out");
  if (!status) status = check_dtype(call, args->norm_out, "norm_out");
  return status;
}

static moert_status check_places(const moert__allreduce_call *call) {
  const moert_moe_allreduce_fusion_args *args = call->args;
  const struct {
    const moert_tensor *tensor;
    const char *name;
  } operands[] = {{args->residual_in, "residual_in"},
                  {args->rms_gamma, "rms_gamma"},
                  {args->moe_reduction_active_experts_token_input, "moe_reduction_active_experts_token_input"},
                  {args->moe_reduction_scale_input, "moe_reduction_scale_input"},
                  {args->moe_reduction_device_num_experts, "moe_reduction_device_num_experts"},
                  {args->moe_reduction_token_input, "moe_reduction_token_input"},
                  {args->moe_allreduce_out, "moe_allreduce_out"},
                  {args->residual_out, "residual_out"},
                  {args->norm_out, "norm_out"}};
  moert_status status = MOERT_OK;
  for (size_t i = 0; i < sizeof operands / sizeof *operands && !status; ++i)
    status = moert__workspace_check_apart(&call->workspace, operands[i].tensor, operands[i].name);
  return status;
}

static moert_status check_capacity(const moert__allreduce_call *call) {
  const moert_workspace_info *info = &call->workspace.note->info;
  if (call->tokens > info->max_num_tokens)
    return moert__fail(MOERT_ERROR_CAPACITY,
                       "operand 'residual_in' has %" PRId64 " tokens, must have at most %" PRId64 ", the max_num_tokens of the workspace",
                       call->tokens, info->max_num_tokens);
  if (call->row_bytes > info->dispatch_bytes_per_token)
    return moert__fail(MOERT_ERROR_CAPACITY,
                       "a token has %" PRId64 " bytes on its way between ranks, must have at most %" PRId64
                       ", the dispatch_bytes_per_token of the workspace",
                       call->row_bytes, info->dispatch_bytes_per_token);
  return MOERT_OK;
}

moert_status moert__allreduce_check(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                    moert_context *context, moert__allreduce_call *call) {
  const moert_tensor *residual = args->residual_in, *inputs = args->moe_reduction_active_experts_token_input;
  *call = (moert__allreduce_call){.params = params, .args = args, .context = context};
  call->tokens = residual->shape[0];
  call->hidden = params->hidden_size;
  call->experts = inputs->shape[0];
  call->format = moert__format_of(residual->dtype.code, residual->dtype.bits);
  call->scale_format = moert__format_of(args->moe_reduction_scale_input->dtype.code, args->moe_reduction_scale_input->dtype.bits);
  call->part_format = params->fp32_acc ? MOERT__F32 : call->format;
  call->row_bytes = call->hidden * (call->part_format == MOERT__F32 ? 4 : 2);
  moert_status status = check_parameters(params);
  if (!status) status = check_shapes(call);
  if (!status) status = check_dtypes(call);
  if (!status) status = moert__workspace_open(context, "world_size", params->world_size, args->workspace, args->metainfo, &call->workspace);
  if (!status) status = moert__workspace_check_idle(&call->workspace);
  if (!status) status = moert__workspace_check_returns(&call->workspace);
  if (!status) status = check_capacity(call);
  if (!status) status = check_places(call);
  return status;
}

uint32_t moert__allreduce_hash(const moert__allreduce_call *call) {
  const moert_moe_allreduce_fusion_params *params = call->params;
  uint32_t hash = moert__hash(MOERT__HASH_INIT, MOERT__HASH_ALLREDUCE_FUSION);
  hash = moert__hash(hash, call->tokens);
  hash = moert__hash(hash, call->hidden);
  hash = moert__hash_dtype(hash, call->args->residual_in->dtype);
  hash = moert__hash(hash, params->fp32_acc);
  hash = moert__hash(hash, params->backend);
  hash = moert__hash(hash, params->strategy);
  hash = moert__hash(hash, moert__bits((float)params->rms_eps));
  return moert__hash(hash, moert__bits((float)params->weight_bias));
}

//===--- this rank's part -------------------------------------------------------------------------===//

// How many of the experts count: what the device says, within the operand's size.
static moert_status read_experts(moert__allreduce_call *call) {
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

static float part_of(const moert__allreduce_call *call, int64_t token, int64_t column) {
  const moert_moe_allreduce_fusion_args *args = call->args;
  const void *inputs = moert__data(args->moe_reduction_active_experts_token_input), *scales = moert__data(args->moe_reduction_scale_input);
  float sum = 0.0f;
  for (int64_t expert = 0; expert < call->experts; ++expert) {
    int64_t row = expert * call->tokens + token;
    float input = moert__load(call->format, inputs, row * call->hidden + column), scale = moert__load(call->scale_format, scales, row);
    if (call->params->fp32_acc)
      sum = fmaf(input, scale, sum);
    else
      sum = moert__round_to(call->format, sum + moert__round_to(call->format, input * scale));
  }
  float shared = moert__load(call->format, moert__data(args->moe_reduction_token_input), token * call->hidden + column);
  return moert__round_to(call->part_format, sum + shared);
}

// The part of rank `from` as rank `at` receives it.
static char *part_at(const moert__allreduce_call *call, int32_t at, int32_t from) {
  return (char *)moert__workspace_region(&call->workspace, at, MOERT_METAINFO_PAYLOAD_DATA) + from * call->tokens * call->row_bytes;
}

static void send_part(const moert__allreduce_call *call) {
  int32_t rank = call->workspace.rank;
  char *part = part_at(call, rank, rank);
  size_t bytes = (size_t)(call->tokens * call->row_bytes);
  for (int64_t token = 0; token < call->tokens; ++token)
    for (int64_t column = 0; column < call->hidden; ++column)
      moert__store(call->part_format, part, token * call->hidden + column, part_of(call, token, column));
  for (int32_t peer = 0; peer < call->workspace.ranks; ++peer)
    if (peer != rank && bytes && moert__workspace_has(&call->workspace, peer)) memcpy(part_at(call, peer, rank), part, bytes);
}

//===--- exchange ---------------------------------------------------------------------------------===//

// When all have arrived, none reads any more what the epoch before left in the receive areas.
static moert_status exchange(moert__allreduce_call *call) {
  moert_context *context = call->context;
  moert_status status = moert__workspace_enter(&call->workspace, context, moert__allreduce_hash(call));
  if (!status) status = moert__workspace_meet(&call->workspace, context, MOERT_METAINFO_COUNT_FLAGS, "its arrival");
  if (status) return status;
  send_part(call);
  return moert__workspace_complete(&call->workspace, context, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS);
}

//===--- all ranks' sum ---------------------------------------------------------------------------===//

// With fp32_acc the parts are f32, and only the last rounding changes anything. -0.0 leaves as +0.0.
static float add_parts(const moert__allreduce_call *call, int64_t element) {
  int32_t rank = call->workspace.rank;
  int32_t from = 0;
  while (!moert__workspace_has(&call->workspace, from)) ++from;
  float sum = moert__load(call->part_format, part_at(call, rank, from), element);
  while (++from < call->workspace.ranks)
    if (moert__workspace_has(&call->workspace, from))
      sum = moert__round_to(call->part_format, sum + moert__load(call->part_format, part_at(call, rank, from), element));
  sum = moert__round_to(call->format, sum);
  return sum == 0.0f ? 0.0f : sum;
}

// residual_out may be residual_in: an element is read before it is written. norm_out holds the sum with the residual until it is normalised.
static void add_token(const moert__allreduce_call *call, int64_t token) {
  const moert_moe_allreduce_fusion_args *args = call->args;
  for (int64_t element = token * call->hidden; element < (token + 1) * call->hidden; ++element) {
    float sum = add_parts(call, element);
    if (args->moe_allreduce_out) moert__store(call->format, moert__data(args->moe_allreduce_out), element, sum);
    float total = sum + moert__load(call->format, moert__data(args->residual_in), element);
    if (args->residual_out) moert__store(call->format, moert__data(args->residual_out), element, total);
    if (args->norm_out) moert__store(call->format, moert__data(args->norm_out), element, total);
  }
}

//===--- norm -------------------------------------------------------------------------------------===//

static float add_halves(float sums[WIDTH]) {
  for (int width = WIDTH / 2; width; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  return sums[0];
}

static float vector_of_squares(const moert__allreduce_call *call, const void *row, int64_t begin) {
  float sum = 0.0f;
  for (int64_t column = begin; column < begin + VECTOR && column < call->hidden; ++column) {
    float value = moert__load(call->format, row, column);
    sum = fmaf(value, value, sum);
  }
  return sum;
}

static float group_of_squares(const moert__allreduce_call *call, const void *row, int64_t begin) {
  float sums[WIDTH];
  for (int i = 0; i < WIDTH; ++i) sums[i] = vector_of_squares(call, row, begin + i * VECTOR);
  return add_halves(sums);
}

static float sum_of_squares(const moert__allreduce_call *call, const void *row) {
  float total = 0.0f;
  for (int64_t begin = 0; begin < call->hidden; begin += BLOCK) {
    float sums[WIDTH];
    for (int i = 0; i < WIDTH; ++i) sums[i] = group_of_squares(call, row, begin + i * GROUP);
    total += add_halves(sums);
  }
  return total;
}

static void normalize_token(const moert__allreduce_call *call, int64_t token) {
  void *row = (char *)moert__data(call->args->norm_out) + token * call->hidden * moert__dtype_bytes(call->args->norm_out->dtype);
  const void *gamma = moert__data(call->args->rms_gamma);
  float mean = moert__divide(sum_of_squares(call, row), (float)call->hidden);
  float inverse = moert__divide(1.0f, moert__square_root(mean + (float)call->params->rms_eps));
  for (int64_t column = 0; column < call->hidden; ++column) {
    float weight = (float)call->params->weight_bias + moert__load(call->format, gamma, column);
    moert__store(call->format, row, column, moert__load(call->format, row, column) * inverse * weight);
  }
}

//===--- the op -----------------------------------------------------------------------------------===//

static void poison_outputs(const moert__allreduce_call *call) {
  const moert_tensor *outputs[] = {call->args->moe_allreduce_out, call->args->residual_out, call->args->norm_out};
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i)
    if (outputs[i]) moert__workspace_poison(&call->workspace, outputs[i]);
}

moert_status moert__host_moe_allreduce_fusion(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                              moert_context *context) {
  moert__allreduce_call call;
  moert_status status = moert__allreduce_check(params, args, context, &call);
  if (!status) status = read_experts(&call);
  if (status) return status;
  status = exchange(&call);
  if (moert__is_peer_error(status)) poison_outputs(&call);
  if (status) return status;
  for (int64_t token = 0; token < call.tokens; ++token) {
    add_token(&call, token);
    if (args->norm_out) normalize_token(&call, token);
  }
  return MOERT_OK;
}

//===- reduction.c - all-reduces with residual and norm, on the host --------------------------------===//
//
// Push: every rank sends row t of its part to row (me * T + t) of the receive area of each rank. Then all add the same rows in the same order, so
// that they get the same bits.
//
// The sum of squares of a token: 8 consecutive columns are folded by fma; 32 consecutive sums of that are added by halves, absent ones being +0; so
// are 32 consecutive sums of these, which stand for 8192 columns; and those are folded. On a GPU the three levels are a thread's vector, a warp,
// and the warps of a cluster.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/reduction.h"
#include "lib/reference/checks.h"
#include "lib/reference/encode.h"
#include <stdlib.h>
#include <string.h>

enum { VECTOR = MOERT__REDUCTION_VECTOR, WIDTH = MOERT__REDUCTION_WIDTH, GROUP = VECTOR * WIDTH, BLOCK = GROUP * WIDTH };

typedef moert__reduction reduction;

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_parameters(const reduction *call) {
  if (call->hidden % VECTOR) // C1
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'hidden_size' is %" PRId64 ", must be a multiple of %d", call->hidden, VECTOR);
  if (call->rms_eps < 0) // C7
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'rms_eps' is %g, must be at least 0", call->rms_eps);
  moert_status status = moert__check_f32("rms_eps", call->rms_eps);
  return status ? status : moert__check_f32("weight_bias", call->weight_bias);
}

moert_status moert__reduction_check_rows(const reduction *call, const moert_tensor *tensor, const char *name) {
  if (!tensor) return MOERT_OK;
  moert_status status = moert__check_dimension(tensor, name, 0, call->tokens, "dimension 0 of 'residual_in'");
  return status ? status : moert__check_dimension(tensor, name, 1, call->hidden, "hidden_size");
}

moert_status moert__reduction_check_dtype(const reduction *call, const moert_tensor *tensor, const char *name) {
  moert_dtype dtype = call->residual->dtype;
  if (!tensor || moert__dtype_equal(tensor->dtype, dtype)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand '%s': element type %s, must be %s, that of 'residual_in'", name,
                     moert__dtype_name(tensor->dtype), moert__dtype_name(dtype));
}

// C1, C2, C5, C6
static moert_status check_shared_operands(const reduction *call) {
  const struct {
    const moert_tensor *tensor;
    const char *name;
  } outputs[] = {{call->sum_out, "moe_allreduce_out"}, {call->residual_out, "residual_out"}, {call->norm_out, "norm_out"}};
  moert_status status = moert__reduction_check_rows(call, call->residual, "residual_in");
  if (!status) status = moert__check_dimension(call->gamma, call->gamma_name, 0, call->hidden, "hidden_size");
  if (!status) status = moert__reduction_check_dtype(call, call->gamma, call->gamma_name);
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs && !status; ++i) {
    status = moert__reduction_check_rows(call, outputs[i].tensor, outputs[i].name);
    if (!status) status = moert__reduction_check_dtype(call, outputs[i].tensor, outputs[i].name);
  }
  if (status || call->sum_out || call->residual_out || call->norm_out || call->quant_out) return status;
  return moert__fail(MOERT_ERROR_NULL_POINTER, "operands %s are NULL, must not all be", call->all_outputs);
}

static moert_status check_capacity(const reduction *call) {
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

static moert_status check_apart(const reduction *call) {
  const struct {
    const moert_tensor *tensor;
    const char *name;
  } operands[] = {{call->residual, "residual_in"},      {call->gamma, call->gamma_name}, {call->sum_out, "moe_allreduce_out"},
                  {call->residual_out, "residual_out"}, {call->norm_out, "norm_out"},    {call->quant_out, "quant_out"},
                  {call->scale_out, "scale_out"}};
  moert_status status = MOERT_OK;
  for (size_t i = 0; i < sizeof operands / sizeof *operands && !status; ++i)
    status = moert__workspace_check_apart(&call->workspace, operands[i].tensor, operands[i].name);
  return status;
}

//===--- checks of codes --------------------------------------------------------------------------===//

static moert_status check_scale_factor(const reduction *call, bool has_factor) { // C12
  moert_status status = moert__check_f32("scale_factor", call->scale_factor);
  if (status) return status;
  if (!((float)call->scale_factor > 0.0f))
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'scale_factor' is %g, must be larger than 0 as an f32", call->scale_factor);
  if (call->scale_factor != 1.0 && !has_factor)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'scale_factor' is %g, must be 1 unless quant_format is nvfp4 or fp8_tensor",
                       call->scale_factor);
  return MOERT_OK;
}

// C9 and C11 of a call without codes.
static moert_status check_unquantized(const reduction *call) {
  const char *name = call->quant_out ? "quant_out" : call->scale_out ? "scale_out" : NULL;
  if (name) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand '%s' is set, must be NULL with quant_format none", name);
  if (call->scale_layout != MOERT__LINEAR)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'layout_code' is %s, must be linear with quant_format none",
                       call->scale_layout == MOERT__128X4 ? "128x4" : "8x4");
  return check_scale_factor(call, false);
}

// C9 to C12
static moert_status check_quantized(reduction *call) {
  static const moert__quantized_names names = {"dimension 0 of 'residual_in'", "hidden_size", "parameter 'hidden_size'", "quant_out", "scale_out"};
  const int format = (int)call->quant_format - 1;
  moert_tensor factor = {.data = &call->factor, .ndim = 1, .shape = (int64_t[]){1}};
  moert__quantized_operands operands = {.names = &names,
                                        .type = call->format,
                                        .tokens = call->tokens,
                                        .hidden = call->hidden,
                                        .values = call->quant_out,
                                        .scales = call->scale_out,
                                        .format = format,
                                        .layout = call->scale_layout,
                                        .packing = MOERT_MOE_QUANTIZE_PACKING_LOW_FIRST};
  if (!call->quant_format) return check_unquantized(call);
  if (!call->quant_out) return moert__fail(MOERT_ERROR_NULL_POINTER, "operand 'quant_out' is NULL, must be set with a quant_format");
  moert_status status = check_scale_factor(call, format == MOERT__NVFP4 || format == MOERT__FP8_TENSOR);
  if (status) return status;
  if (format == MOERT__FP8_TENSOR && call->scale_out)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "operand 'scale_out' is set, must be NULL with quant_format fp8_tensor: its scale is scale_factor");
  call->factor = (float)call->scale_factor;
  operands.global_scale = format == MOERT__FP8_TENSOR ? &factor : NULL;
  return moert__quantized_check(&call->quantized, &operands);
}

moert_status moert__reduction_check(reduction *call, const moert__reduction_operands *operands) {
  call->tokens = call->residual->shape[0];
  call->format = moert__format_of(call->residual->dtype.code, call->residual->dtype.bits);
  call->part_format = call->fp32_acc ? MOERT__F32 : call->format;
  call->row_bytes = call->hidden * (call->part_format == MOERT__F32 ? 4 : 2);
  moert_status status = check_parameters(call);
  if (!status) status = check_shared_operands(call);
  if (!status) status = operands->check(call, operands->own);
  if (!status) status = check_quantized(call);
  if (!status)
    status = moert__workspace_open(call->context, "world_size", call->world_size, call->workspace_memory, call->metainfo, &call->workspace);
  if (!status) status = moert__workspace_check_idle(&call->workspace);
  if (!status) status = moert__workspace_check_returns(&call->workspace);
  if (!status) status = check_capacity(call);
  if (!status) status = check_apart(call);
  return status ? status : operands->check_apart(call, operands->own);
}

uint32_t moert__reduction_hash(const reduction *call, int op) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, op);
  hash = moert__hash(hash, call->tokens);
  hash = moert__hash(hash, call->hidden);
  hash = moert__hash_dtype(hash, call->residual->dtype);
  hash = moert__hash(hash, call->fp32_acc);
  hash = moert__hash(hash, call->strategy);
  hash = moert__hash(hash, moert__bits((float)call->rms_eps));
  return moert__hash(hash, moert__bits((float)call->weight_bias));
}

//===--- exchange ---------------------------------------------------------------------------------===//

// The part of rank `from` as rank `at` receives it.
static char *part_at(const reduction *call, int32_t at, int32_t from) {
  return (char *)moert__workspace_region(&call->workspace, at, MOERT_METAINFO_PAYLOAD_DATA) + from * call->tokens * call->row_bytes;
}

static void send_part(const reduction *call, moert__reduction_part *part_of, const void *own) {
  int32_t rank = call->workspace.rank;
  char *part = part_at(call, rank, rank);
  size_t bytes = (size_t)(call->tokens * call->row_bytes);
  for (int64_t token = 0; token < call->tokens; ++token)
    for (int64_t column = 0; column < call->hidden; ++column)
      moert__store(call->part_format, part, token * call->hidden + column, part_of(call, own, token, column));
  for (int32_t peer = 0; peer < call->workspace.ranks; ++peer)
    if (peer != rank && bytes && moert__workspace_has(&call->workspace, peer)) memcpy(part_at(call, peer, rank), part, bytes);
}

// When all have arrived, none reads any more what the epoch before left in the receive areas.
static moert_status exchange(reduction *call, uint32_t hash, moert__reduction_part *part, const void *own) {
  moert_status status = moert__workspace_enter(&call->workspace, call->context, hash);
  if (!status) status = moert__workspace_meet(&call->workspace, call->context, MOERT_METAINFO_COUNT_FLAGS, "its arrival");
  if (status) return status;
  send_part(call, part, own);
  return moert__workspace_complete(&call->workspace, call->context, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS);
}

//===--- all ranks' sum ---------------------------------------------------------------------------===//

// With fp32_acc the parts are f32, and only the last rounding changes anything. -0.0 leaves as +0.0.
static float add_parts(const reduction *call, int64_t element) {
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

// Into `row` the sum with the residual. residual_out may be residual_in: an element is read before it is written.
static void add_token(const reduction *call, int64_t token, void *row) {
  for (int64_t column = 0; column < call->hidden; ++column) {
    int64_t element = token * call->hidden + column;
    float sum = add_parts(call, element);
    if (call->sum_out) moert__store(call->format, moert__data(call->sum_out), element, sum);
    float total = sum + moert__load(call->format, moert__data(call->residual), element);
    if (call->residual_out) moert__store(call->format, moert__data(call->residual_out), element, total);
    moert__store(call->format, row, column, total);
  }
}

//===--- norm -------------------------------------------------------------------------------------===//

static float add_halves(float sums[WIDTH]) {
  for (int width = WIDTH / 2; width; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  return sums[0];
}

static float vector_of_squares(const reduction *call, const void *row, int64_t begin) {
  float sum = 0.0f;
  for (int64_t column = begin; column < begin + VECTOR && column < call->hidden; ++column) {
    float value = moert__load(call->format, row, column);
    sum = fmaf(value, value, sum);
  }
  return sum;
}

static float group_of_squares(const reduction *call, const void *row, int64_t begin) {
  float sums[WIDTH];
  for (int i = 0; i < WIDTH; ++i) sums[i] = vector_of_squares(call, row, begin + i * VECTOR);
  return add_halves(sums);
}

static float sum_of_squares(const reduction *call, const void *row) {
  float total = 0.0f;
  for (int64_t begin = 0; begin < call->hidden; begin += BLOCK) {
    float sums[WIDTH];
    for (int i = 0; i < WIDTH; ++i) sums[i] = group_of_squares(call, row, begin + i * GROUP);
    total += add_halves(sums);
  }
  return total;
}

static void normalize_row(const reduction *call, void *row) {
  const void *gamma = moert__data(call->gamma);
  float mean = moert__divide(sum_of_squares(call, row), (float)call->hidden);
  float inverse = moert__divide(1.0f, moert__square_root(mean + (float)call->rms_eps));
  for (int64_t column = 0; column < call->hidden; ++column) {
    float weight = (float)call->weight_bias + moert__load(call->format, gamma, column);
    moert__store(call->format, row, column, moert__load(call->format, row, column) * inverse * weight);
  }
}

//===--- codes ------------------------------------------------------------------------------------===//

static void encode_row(const reduction *call, int64_t token, const void *row) {
  const moert__quantized_call *quantized = &call->quantized;
  moert__encoder encoder = {.call = quantized, .codes = moert__data(call->quant_out), .global = call->factor};
  if (call->scale_out) encoder.scales = moert__data(call->scale_out);
  if (quantized->format == MOERT__FP8_TENSOR) {
    moert__elements_of_row whole = {token, {0, call->hidden}, row, 0};
    moert__encoder_codes(&encoder, call->factor, &whole);
    return;
  }
  for (int64_t block = 0; block < quantized->grid.columns; ++block)
    moert__encode_block(&encoder, token, block, row, moert__columns_of(quantized, block).first);
}

static void clear_padding(const reduction *call) {
  moert__encoder encoder = {.call = &call->quantized};
  if (!call->scale_out) return;
  encoder.scales = moert__data(call->scale_out);
  moert__encoder_clear(&encoder, call->scale_out);
}

//===--- the op -----------------------------------------------------------------------------------===//

static void poison_outputs(const reduction *call) {
  const moert_tensor *outputs[] = {call->sum_out, call->residual_out, call->norm_out, call->quant_out, call->scale_out};
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i)
    if (outputs[i]) moert__workspace_poison(&call->workspace, outputs[i]);
}

// norm_out has the row while it is worked on, else `scratch`.
static void finish_token(const reduction *call, int64_t token, void *scratch) {
  size_t bytes = (size_t)(call->hidden * moert__dtype_bytes(call->residual->dtype));
  void *row = call->norm_out ? (char *)moert__data(call->norm_out) + (size_t)token * bytes : scratch;
  add_token(call, token, row);
  if (call->norm_out || call->quant_out) normalize_row(call, row);
  if (call->quant_out) encode_row(call, token, row);
}

moert_status moert__reduction_run(reduction *call, uint32_t hash, moert__reduction_part *part, const void *own) {
  void *scratch = call->norm_out ? NULL : malloc((size_t)call->hidden * sizeof(float));
  if (!call->norm_out && !scratch) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a row of %" PRId64 " elements", call->hidden);
  moert_status status = exchange(call, hash, part, own);
  if (moert__is_peer_error(status)) poison_outputs(call);
  if (!status && call->quant_out) clear_padding(call);
  for (int64_t token = 0; token < call->tokens && !status; ++token) finish_token(call, token, scratch);
  free(scratch);
  return status;
}

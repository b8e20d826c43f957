//===- moe_combine.c - moe.combine on the host ----------------------------------------------------===//
//
// Pull: every rank lays the result of the row that it got from (source, slot) into row (source * R + slot) of its combine area; then the rank that
// owns the token reads its rows from all ranks that it had sent the token to, and adds them up.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_combine.h"
#include "lib/reference/checks.h"
#include "lib/reference/encode.h"

enum { BLOCK = 256 }; // elements of a row that are added up at a time; whole blocks of every format

_Static_assert((int)MOERT_MOE_COMBINE_OUTPUT_FORMAT_NVFP4 - 1 == (int)MOERT__NVFP4 &&
                   (int)MOERT_MOE_COMBINE_OUTPUT_FORMAT_MXFP4 - 1 == (int)MOERT__MXFP4 &&
                   (int)MOERT_MOE_COMBINE_OUTPUT_FORMAT_MXFP8 - 1 == (int)MOERT__MXFP8,
               "the values of output_format");
_Static_assert((int)MOERT_MOE_COMBINE_SF_LAYOUT_LINEAR == (int)MOERT__LINEAR && (int)MOERT_MOE_COMBINE_SF_LAYOUT_128X4 == (int)MOERT__128X4 &&
                   (int)MOERT_MOE_COMBINE_SF_LAYOUT_8X4 == (int)MOERT__8X4,
               "the values of sf_layout");

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status differs(const char *name, int64_t value, int64_t dispatched) {
  return moert__fail(MOERT_ERROR_INVALID_STATE, "%s is %" PRId64 ", must be %" PRId64 " as in the dispatch", name, value, dispatched);
}

static const char *layout_name(int64_t layout) { return layout == MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED ? "expert_grouped" : "rank_major"; }

static moert_status check_scalar_scale(const moert_moe_combine_params *params) { // C9
  double scale = params->output_scalar_scale;
  moert_status status = moert__check_f32("output_scalar_scale", scale);
  if (status) return status;
  if (!((float)scale > 0.0f))
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'output_scalar_scale' is %g, must be larger than 0 as an f32", scale);
  if (scale != 1.0 && params->output_format != MOERT_MOE_COMBINE_OUTPUT_FORMAT_NVFP4)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'output_scalar_scale' is %g, must be 1 unless output_format is nvfp4", scale);
  return MOERT_OK;
}

static moert_status check_unquantized(const moert__combine_call *call) {
  moert_dtype out = call->args->out->dtype;
  if (call->quantizes) return MOERT_OK;
  if (call->args->output_scales) // C6
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'output_scales' is set, must be NULL with output_format none");
  if (call->params->sf_layout != MOERT_MOE_COMBINE_SF_LAYOUT_LINEAR) // C8
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'sf_layout' is %s, must be linear with output_format none",
                       call->params->sf_layout == MOERT_MOE_COMBINE_SF_LAYOUT_128X4 ? "128x4" : "8x4");
  if (out.code != MOERT_CODE_FLOAT && out.code != MOERT_CODE_BFLOAT) // C7
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'out': element type %s, must be bf16, f16 or f32 with output_format none",
                       moert__dtype_name(out));
  return MOERT_OK;
}

static moert_status check_mask(const moert__combine_call *call) {
  uint64_t mask = call->workspace.mask, dispatched = call->workspace.note->round.mask;
  if (mask == dispatched) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_STATE, "operand 'active_rank_mask' is 0x%" PRIx64 "%s, must be 0x%" PRIx64 " as in the dispatch", mask,
                     call->args->active_rank_mask ? "" : ", as it is absent", dispatched);
}

static moert_status check_round(const moert__combine_call *call) {
  const moert__round *round = &call->workspace.note->round;
  const moert_moe_combine_params *params = call->params;
  if (!call->workspace.note->dispatched)
    return moert__fail(MOERT_ERROR_INVALID_STATE, "no dispatch on this workspace waits for its combine: call moe.dispatch first");
  if (call->max_tokens != round->max_tokens) return differs("operand 'runtime_max_tokens_per_rank'", call->max_tokens, round->max_tokens);
  if (params->top_k != round->top_k) return differs("parameter 'top_k'", params->top_k, round->top_k);
  if (params->layout != round->layout)
    return moert__fail(MOERT_ERROR_INVALID_STATE, "parameter 'layout' is %s, must be %s as in the dispatch", layout_name(params->layout),
                       layout_name(round->layout));
  int64_t offset = call->workspace.layout.offsets[MOERT_METAINFO_COMBINE_DATA];
  if (call->args->combine_payload_offset != offset) return differs("operand 'combine_payload_offset'", call->args->combine_payload_offset, offset);
  if (call->tokens != round->tokens)
    return moert__fail(MOERT_ERROR_INVALID_STATE, "operand 'out' has %" PRId64 " tokens, must have %" PRId64 " as in the dispatch", call->tokens,
                       round->tokens);
  return check_mask(call);
}

static moert_status check_payload_shape(const moert__combine_call *call) {
  const moert_tensor *payload = call->args->payload;
  int64_t rows = call->workspace.note->round.rows;
  if (call->grouped && payload->shape[0] < rows)
    return moert__fail(MOERT_ERROR_INVALID_SHAPE,
                       "operand 'payload' has %" PRId64 " rows, must have at least %" PRId64 ", which the dispatch received", payload->shape[0],
                       rows);
  if (!call->grouped && (payload->ndim < 2 || payload->shape[0] != call->workspace.ranks || payload->shape[1] != call->max_tokens))
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'payload' must be [%" PRId32 ", %" PRId64 ", ...] (ranks, runtime_max_tokens_per_rank)",
                       call->workspace.ranks, call->max_tokens);
  return MOERT_OK;
}

static moert_status check_rows(const moert__combine_call *call) {
  const moert_tensor *payload = call->args->payload;
  int32_t leading = call->grouped ? 1 : 2;
  int64_t hidden = call->params->hidden_size, element = moert__dtype_bytes(payload->dtype), most = call->workspace.note->info.combine_bytes_per_token;
  if (call->row_bytes != hidden * element)
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'payload' has rows of %" PRId64 " elements, must have %" PRId64 " (hidden_size)",
                       call->row_bytes / element, hidden);
  if (!call->quantizes && !moert__same_row(call->args->out, 1, payload, leading))
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'out' must be [%" PRId64 ", ...] with the trailing dimensions of 'payload'", call->tokens);
  if (call->wire_bytes > most)
    return moert__fail(MOERT_ERROR_CAPACITY,
                       "operand 'payload' has rows of %" PRId64 " bytes%s, must have at most %" PRId64 " (combine_bytes_per_token)", call->wire_bytes,
                       call->wire_bytes == call->row_bytes ? "" : " as E4M3", most);
  return MOERT_OK;
}

static moert_status check_quantized(moert__combine_call *call) { // C7
  static const moert__quantized_names names = {"the tokens of the dispatch", "hidden_size", "parameter 'hidden_size'", "out", "output_scales"};
  const moert_moe_combine_args *args = call->args;
  moert__quantized_operands operands = {.names = &names, .type = call->payload_format, .values = args->out, .scales = args->output_scales};
  if (!call->quantizes) return MOERT_OK;
  if (args->out->ndim != 2)
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'out' has rank %" PRId32 ", must have 2 with an output_format", args->out->ndim);
  operands.tokens = call->tokens;
  operands.hidden = call->params->hidden_size;
  operands.format = (int)call->params->output_format - 1;
  operands.layout = call->params->sf_layout;
  operands.packing = MOERT_MOE_QUANTIZE_PACKING_LOW_FIRST;
  return moert__quantized_check(&call->quantized, &operands);
}

static moert_status check_outside(const moert__workspace *workspace, const moert_tensor *output, const char *name) {
  if (!moert__workspace_overlaps(workspace, output, 0, workspace->layout.bytes)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_OVERLAP, "operand '%s' lies in the workspace, which other ranks use during this call", name);
}

// The combine area is written by this rank and read by all others during the call.
static moert_status check_place(const moert__combine_call *call) {
  const moert__workspace *workspace = &call->workspace;
  const char *data = moert__data(call->args->payload), *area = moert__workspace_region(workspace, workspace->rank, MOERT_METAINFO_COMBINE_DATA);
  int64_t begin = workspace->layout.offsets[MOERT_METAINFO_COMBINE_DATA], end = workspace->layout.bytes;
  moert_status status = check_outside(workspace, call->args->out, "out");
  if (!status && call->args->output_scales) status = check_outside(workspace, call->args->output_scales, "output_scales");
  if (status) return status;
  if (!call->params->payload_in_workspace) {
    if (!moert__workspace_overlaps(workspace, call->args->payload, begin, end)) return MOERT_OK;
    return moert__fail(MOERT_ERROR_OVERLAP,
                       "operand 'payload' lies in the combine area of the workspace: set payload_in_workspace, or pass it elsewhere");
  }
  if (call->grouped) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'payload_in_workspace' is 1, must be 0 with layout expert_grouped");
  if (data != area)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "operand 'payload' is at %p, must be at %p (workspace + combine_payload_offset) with payload_in_workspace", (const void *)data,
                       (const void *)area);
  return MOERT_OK;
}

moert_status moert__combine_check(const moert_moe_combine_params *params, const moert_moe_combine_args *args, moert_context *context,
                                  moert__combine_call *call) {
  *call = (moert__combine_call){.params = params, .args = args, .context = context};
  call->grouped = params->layout == MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED;
  call->max_tokens = args->runtime_max_tokens_per_rank;
  call->tokens = args->out->shape[0];
  call->payload_format = moert__format_of(args->payload->dtype.code, args->payload->dtype.bits);
  call->out_format = moert__format_of(args->out->dtype.code, args->out->dtype.bits);
  call->quantizes = params->output_format != MOERT_MOE_COMBINE_OUTPUT_FORMAT_NONE;

  moert_status status = check_scalar_scale(params);
  if (!status) status = check_unquantized(call);
  if (!status)
    status = moert__workspace_open(call->context, "ep_size", call->params->ep_size, call->args->workspace, call->args->metainfo, &call->workspace);
  if (!status) status = moert__workspace_select(&call->workspace, args->active_rank_mask);
  if (!status) status = check_round(call);
  if (!status) status = check_payload_shape(call);
  if (status) return status;
  call->row_bytes = moert__row_size(call->args->payload, call->grouped ? 1 : 2);
  call->wire_bytes = params->use_low_precision && !params->payload_in_workspace ? params->hidden_size : call->row_bytes;
  status = check_rows(call);
  if (!status) status = check_quantized(call);
  if (!status) status = check_place(call);
  return status;
}

uint32_t moert__combine_hash(const moert__combine_call *call) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, MOERT__HASH_COMBINE);
  hash = moert__hash(hash, call->max_tokens);
  hash = moert__hash(hash, call->params->top_k);
  hash = moert__hash(hash, call->params->layout);
  hash = moert__hash(hash, (int64_t)call->workspace.mask);
  hash = moert__hash(hash, call->row_bytes);
  hash = moert__hash(hash, call->wire_bytes);
  hash = moert__hash(hash, call->params->use_low_precision);
  return moert__hash(hash, call->payload_format);
}

void moert__combine_keep(const moert__combine_call *call) { call->workspace.note->dispatched = 0; }

//===--- this rank's rows -------------------------------------------------------------------------===//

static void *local(const moert__combine_call *call, int field) { return moert__workspace_region(&call->workspace, call->workspace.rank, field); }

// Elements into E4M3, to the row at `to` of the wire. That may be their own place: none is written before it was read.
static void narrow_row(const moert__combine_call *call, const void *from, void *to) {
  uint8_t *codes = to;
  for (int64_t column = 0; column < call->params->hidden_size; ++column)
    codes[column] = (uint8_t)moert__f32_to_e4m3(moert__load(call->payload_format, from, column));
}

static void stage_rows(const moert__combine_call *call, const char *from, char *to, int64_t rows) {
  if (!call->params->use_low_precision) {
    if (rows > 0 && from != to) memcpy(to, from, (size_t)(rows * call->row_bytes));
    return;
  }
  for (int64_t row = 0; row < rows; ++row) narrow_row(call, from + row * call->row_bytes, to + row * call->wire_bytes);
}

static void stage_rank_major(const moert__combine_call *call) {
  const char *payload = moert__data(call->args->payload);
  char *area = local(call, MOERT_METAINFO_COMBINE_DATA);
  for (int32_t source = 0; source < call->workspace.ranks; ++source) {
    int64_t first = source * call->max_tokens;
    stage_rows(call, payload + first * call->row_bytes, area + first * call->wire_bytes, moert__workspace_received(&call->workspace, source));
  }
}

static void store_on_wire(const moert__combine_call *call, void *row, int64_t column, float value) {
  if (call->params->use_low_precision)
    ((uint8_t *)row)[column] = (uint8_t)moert__f32_to_e4m3(value);
  else
    moert__store(call->payload_format, row, column, value);
}

static float load_from_wire(const moert__combine_call *call, const void *row, int64_t column) {
  return call->params->use_low_precision ? moert__e4m3_to_f32(((const uint8_t *)row)[column]) : moert__load(call->payload_format, row, column);
}

// One token's rows of this rank's experts into its row of the combine area: weighted, added in slot order, rounded for the wire.
static void stage_token(const moert__combine_call *call, int64_t received) {
  int64_t top_k = call->params->top_k, hidden = call->params->hidden_size;
  const int32_t *rows = (const int32_t *)local(call, MOERT_METAINFO_RECV_TOPK_ROWS) + received * top_k;
  const float *weights = (const float *)local(call, MOERT_METAINFO_RECV_TOPK_WEIGHTS) + received * top_k;
  const void *payload = moert__data(call->args->payload);
  char *staged = (char *)local(call, MOERT_METAINFO_COMBINE_DATA) + received * call->wire_bytes;
  for (int64_t column = 0; column < hidden; ++column) {
    float sum = 0;
    for (int64_t k = 0; k < top_k; ++k)
      if (rows[k] >= 0) sum = fmaf(moert__load(call->payload_format, payload, rows[k] * hidden + column), weights[k], sum);
    store_on_wire(call, staged, column, sum);
  }
}

static void stage_grouped(const moert__combine_call *call) {
  for (int32_t source = 0; source < call->workspace.ranks; ++source)
    for (int64_t j = 0; j < moert__workspace_received(&call->workspace, source); ++j) stage_token(call, source * call->max_tokens + j);
}

static moert_status exchange(moert__combine_call *call) {
  moert_context *context = call->context;
  moert_status status = moert__workspace_enter(&call->workspace, context, moert__combine_hash(call));
  if (!status) status = moert__stop_point(context, "counts"); // those of the dispatch, which hold for its combine
  if (status) return status;
  if (call->grouped)
    stage_grouped(call);
  else
    stage_rank_major(call);
  return moert__workspace_complete(&call->workspace, context, MOERT_METAINFO_COMBINE_COMPLETION_FLAGS);
}

//===--- the sums ---------------------------------------------------------------------------------===//

static void add_block(float *to, const float *from) {
  for (int i = 0; i < BLOCK; ++i) to[i] += from[i];
}

// Into terms[0]. Pairwise: neighbours are added until one is left; one without a neighbour moves up as it is.
static void add_terms(float terms[][BLOCK], int64_t top_k) {
  if (!moert__combine_adds_pairwise(top_k)) {
    for (int64_t k = 1; k < top_k; ++k) add_block(terms[0], terms[k]);
    return;
  }
  for (int64_t stride = 1; stride < top_k; stride *= 2)
    for (int64_t k = 0; k + stride < top_k; k += 2 * stride) add_block(terms[k], terms[k + stride]);
}

// The rows of a token: NULL in the slots that sent none.
static void find_rows(const moert__combine_call *call, int64_t token, const char *rows[]) {
  int64_t top_k = call->params->top_k;
  const int32_t *targets = (const int32_t *)local(call, MOERT_METAINFO_TOPK_TARGET_RANKS) + token * top_k;
  const int32_t *indices = (const int32_t *)local(call, MOERT_METAINFO_TOPK_SEND_INDICES) + token * top_k;
  for (int64_t k = 0; k < top_k; ++k) {
    rows[k] = NULL;
    if (targets[k] < 0) continue;
    const char *area = moert__workspace_region(&call->workspace, targets[k], MOERT_METAINFO_COMBINE_DATA);
    rows[k] = area + (call->workspace.rank * call->max_tokens + indices[k]) * call->wire_bytes;
  }
}

// Elements of a row: as many as are added up at a time, or what is left.
typedef struct segment {
  int64_t token, begin, width;
} segment;

// A segment of the sums, in the type of the payload.
typedef union rounded_sums {
  uint16_t halves[BLOCK];
  float singles[BLOCK];
} rounded_sums;

static moert__encoder encoder_of(const moert__combine_call *call) {
  moert__encoder encoder = {.call = &call->quantized, .codes = moert__data(call->args->out), .scales = moert__data(call->args->output_scales)};
  encoder.global = (float)call->params->output_scalar_scale;
  return encoder;
}

static void quantize_segment(const moert__combine_call *call, const segment *part, const float *sums) {
  moert__encoder encoder = encoder_of(call);
  rounded_sums rounded;
  int64_t size = moert__block_size(call->quantized.format);
  for (int64_t i = 0; i < part->width; ++i) moert__store(call->payload_format, &rounded, i, sums[i]);
  for (int64_t i = 0; i < part->width; i += size) moert__encode_block(&encoder, part->token, (part->begin + i) / size, &rounded, i);
}

static void write_segment(const moert__combine_call *call, const segment *part, const float *sums) {
  if (call->quantizes) {
    quantize_segment(call, part, sums);
    return;
  }
  int64_t first = part->token * call->params->hidden_size + part->begin;
  for (int64_t i = 0; i < part->width; ++i) moert__store(call->out_format, moert__data(call->args->out), first + i, sums[i]);
}

static void add_token(const moert__combine_call *call, int64_t token) {
  const char *rows[MOERT_WORKSPACE_MAX_TOP_K];
  float terms[MOERT_WORKSPACE_MAX_TOP_K][BLOCK];
  int64_t top_k = call->params->top_k, hidden = call->params->hidden_size;
  find_rows(call, token, rows);
  for (int64_t begin = 0; begin < hidden; begin += BLOCK) {
    segment part = {token, begin, hidden - begin < BLOCK ? hidden - begin : BLOCK};
    for (int64_t k = 0; k < top_k; ++k)
      for (int64_t i = 0; i < BLOCK; ++i) terms[k][i] = rows[k] && i < part.width ? load_from_wire(call, rows[k], begin + i) : 0.0f;
    add_terms(terms, top_k);
    write_segment(call, &part, terms[0]);
  }
}

static void write_sums(const moert__combine_call *call) {
  if (call->quantizes) {
    moert__encoder encoder = encoder_of(call);
    moert__encoder_clear(&encoder, call->args->output_scales);
  }
  for (int64_t token = 0; token < call->tokens; ++token) add_token(call, token);
}

static void poison(const moert__combine_call *call) {
  moert__workspace_poison(&call->workspace, call->args->out);
  if (call->quantizes) moert__workspace_poison(&call->workspace, call->args->output_scales);
}

moert_status moert__host_moe_combine(const moert_moe_combine_params *params, const moert_moe_combine_args *args, moert_context *context) {
  moert__combine_call call;
  moert_status status = moert__combine_check(params, args, context, &call);
  if (status) return status;
  status = exchange(&call);
  if (moert__is_peer_error(status)) poison(&call);
  if (status) return status;
  write_sums(&call);
  moert__combine_keep(&call);
  return MOERT_OK;
}

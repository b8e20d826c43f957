//===- moe_combine.c - moe.combine on the host ----------------------------------------------------===//
//
// Pull: every rank lays the result of the row that it got from (source, slot) into row (source * R + slot) of its combine area; then the rank that
// owns the token reads its rows from all ranks that it had sent the token to, and adds them up.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_combine.h"
#include <inttypes.h>

enum { BLOCK = 256 }; // elements of a row that are added up at a time

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status differs(const char *name, int64_t value, int64_t dispatched) {
  return moert__fail(MOERT_ERROR_INVALID_STATE, "%s is %" PRId64 ", must be %" PRId64 " as in the dispatch", name, value, dispatched);
}

static const char *layout_name(int64_t layout) { return layout == MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED ? "expert_grouped" : "rank_major"; }

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
  return MOERT_OK;
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
  if (!moert__same_row(call->args->out, 1, payload, leading))
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'out' must be [%" PRId64 ", ...] with the trailing dimensions of 'payload'", call->tokens);
  if (call->row_bytes > most)
    return moert__fail(MOERT_ERROR_CAPACITY,
                       "operand 'payload' has rows of %" PRId64 " bytes, must have at most %" PRId64 " (combine_bytes_per_token)", call->row_bytes,
                       most);
  return MOERT_OK;
}

// The combine area is written by this rank and read by all others during the call.
static moert_status check_place(const moert__combine_call *call) {
  const moert__workspace *workspace = &call->workspace;
  const char *data = moert__data(call->args->payload), *area = moert__workspace_region(workspace, workspace->rank, MOERT_METAINFO_COMBINE_DATA);
  int64_t begin = workspace->layout.offsets[MOERT_METAINFO_COMBINE_DATA], end = workspace->layout.bytes;
  if (moert__workspace_overlaps(workspace, call->args->out, 0, end))
    return moert__fail(MOERT_ERROR_OVERLAP, "operand 'out' lies in the workspace, which other ranks use during this call");
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

  moert_status status =
      moert__workspace_open(call->context, "ep_size", call->params->ep_size, call->args->workspace, call->args->metainfo, &call->workspace);
  if (!status) status = check_round(call);
  if (!status) status = check_payload_shape(call);
  if (status) return status;
  call->row_bytes = moert__row_size(call->args->payload, call->grouped ? 1 : 2);
  status = check_rows(call);
  if (!status) status = check_place(call);
  return status;
}

uint32_t moert__combine_hash(const moert__combine_call *call) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, MOERT__HASH_COMBINE);
  hash = moert__hash(hash, call->max_tokens);
  hash = moert__hash(hash, call->params->top_k);
  hash = moert__hash(hash, call->params->layout);
  hash = moert__hash(hash, call->row_bytes);
  return moert__hash(hash, call->payload_format);
}

void moert__combine_keep(const moert__combine_call *call) { call->workspace.note->dispatched = 0; }

//===--- this rank's rows -------------------------------------------------------------------------===//

static void *local(const moert__combine_call *call, int field) { return moert__workspace_region(&call->workspace, call->workspace.rank, field); }

static void stage_rank_major(const moert__combine_call *call) {
  if (call->params->payload_in_workspace) return;
  const char *payload = moert__data(call->args->payload);
  char *area = local(call, MOERT_METAINFO_COMBINE_DATA);
  for (int32_t source = 0; source < call->workspace.ranks; ++source) {
    int64_t start = source * call->max_tokens * call->row_bytes;
    size_t bytes = (size_t)(moert__workspace_received(&call->workspace, source) * call->row_bytes);
    if (bytes) memcpy(area + start, payload + start, bytes);
  }
}

// One token's rows of this rank's experts into its row of the combine area: weighted, added in slot order, rounded for the wire.
static void stage_token(const moert__combine_call *call, int64_t received) {
  int64_t top_k = call->params->top_k, hidden = call->params->hidden_size;
  const int32_t *rows = (const int32_t *)local(call, MOERT_METAINFO_RECV_TOPK_ROWS) + received * top_k;
  const float *weights = (const float *)local(call, MOERT_METAINFO_RECV_TOPK_WEIGHTS) + received * top_k;
  const void *payload = moert__data(call->args->payload);
  char *staged = (char *)local(call, MOERT_METAINFO_COMBINE_DATA) + received * call->row_bytes;
  for (int64_t column = 0; column < hidden; ++column) {
    float sum = 0;
    for (int64_t k = 0; k < top_k; ++k)
      if (rows[k] >= 0) sum = fmaf(moert__load(call->payload_format, payload, rows[k] * hidden + column), weights[k], sum);
    moert__store(call->payload_format, staged, column, sum);
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
    rows[k] = area + (call->workspace.rank * call->max_tokens + indices[k]) * call->row_bytes;
  }
}

static void add_token(const moert__combine_call *call, int64_t token) {
  const char *rows[MOERT_WORKSPACE_MAX_TOP_K];
  float terms[MOERT_WORKSPACE_MAX_TOP_K][BLOCK];
  int64_t top_k = call->params->top_k, hidden = call->params->hidden_size;
  find_rows(call, token, rows);
  for (int64_t begin = 0; begin < hidden; begin += BLOCK) {
    int64_t width = hidden - begin < BLOCK ? hidden - begin : BLOCK;
    for (int64_t k = 0; k < top_k; ++k)
      for (int64_t i = 0; i < BLOCK; ++i) terms[k][i] = rows[k] && i < width ? moert__load(call->payload_format, rows[k], begin + i) : 0.0f;
    add_terms(terms, top_k);
    for (int64_t i = 0; i < width; ++i) moert__store(call->out_format, moert__data(call->args->out), token * hidden + begin + i, terms[0][i]);
  }
}

moert_status moert__host_moe_combine(const moert_moe_combine_params *params, const moert_moe_combine_args *args, moert_context *context) {
  moert__combine_call call;
  moert_status status = moert__combine_check(params, args, context, &call);
  if (status) return status;
  status = exchange(&call);
  if (moert__is_peer_error(status)) moert__workspace_poison(&call.workspace, args->out);
  if (status) return status;
  for (int64_t token = 0; token < call.tokens; ++token) add_token(&call, token);
  moert__combine_keep(&call);
  return MOERT_OK;
}

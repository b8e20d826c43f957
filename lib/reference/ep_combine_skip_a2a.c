//===- ep_combine_skip_a2a.c - ep.combine.skip_a2a on the host ----------------------------------------===//
//
// Rows are read where the experts left them: src_info is turned round into the row of each (token, slot), and each token adds its rows up.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/ep_combine_skip_a2a.h"
#include "lib/reference/checks.h"
#include <string.h>

enum { BLOCK = 256 }; // elements of a row that are added up at a time

typedef moert__ep_combine_call combine_call;

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_shapes(const combine_call *call) {
  const moert_ep_combine_skip_a2a_args *args = call->args;
  const moert__ep_layer *layer = &call->layer;
  int64_t rows = args->input_tokens->shape[0];
  moert_status status = moert__check_dimension(args->output_tokens, "output_tokens", 0, layer->tokens, "dimension 0 of 'topk_ids'");   // C3
  if (!status) status = moert__check_dimension(args->output_tokens, "output_tokens", 1, layer->hidden_size, "hidden_size");            // C3
  if (!status) status = moert__check_dimension(args->input_tokens, "input_tokens", 1, layer->hidden_size, "hidden_size");              // C3
  if (!status) status = moert__check_dimension(args->src_info, "src_info", 0, rows, "dimension 0 of 'input_tokens'");                  // C4
  if (!status) status = moert__check_dimension(args->src_info, "src_info", 1, 2, "the number of its columns");                         // C4
  if (!status) status = moert__check_dimension(args->router_weights, "router_weights", 0, layer->tokens, "dimension 0 of 'topk_ids'"); // C5
  if (!status) status = moert__check_dimension(args->router_weights, "router_weights", 1, layer->top_k, "top_k");                      // C5
  if (!status) status = moert__check_dimension(args->topk_ids, "topk_ids", 1, layer->top_k, "top_k");                                  // C5
  if (!status) status = moert__ep_check_counters(args->atomic_counters, "atomic_counters", layer->n_experts);                          // C6
  if (status || moert__dtype_equal(args->input_tokens->dtype, args->output_tokens->dtype)) return status;
  return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'input_tokens': element type %s, must be %s, that of 'output_tokens'",
                     moert__dtype_name(args->input_tokens->dtype), moert__dtype_name(args->output_tokens->dtype)); // C3
}

static moert_status check_tables(const combine_call *call, moert_context *context) {
  const moert_ep_combine_skip_a2a_args *args = call->args;
  const moert_tensor *tables[MOERT_EP_BUFFERS] = {args->send_ptrs, args->recv_ptrs, args->recv_count_ptrs};
  moert_ep_info info = {call->layer.hidden_size, call->layer.top_k, call->layer.n_experts, call->layer.max_token_per_rank,
                        moert__dtype_bytes(args->output_tokens->dtype)};
  moert_ep_buffers buffers = moert_ep_lay_out_buffers(&info);
  return moert__ep_check_tables(&call->layer, tables, buffers.bytes[MOERT_EP_COMBINE], context);
}

// That the counters are those of the dispatch that this call combines.
static moert_status check_round(const combine_call *call) {
  const int32_t *round = call->counters.round;
  const moert__ep_layer *layer = &call->layer;
  if (!round[0]) return moert__fail(MOERT_ERROR_INVALID_STATE, "no dispatch on these counters waits for its combine: call ep.dispatch first");
  int64_t dispatched = (int64_t)round[0] - MOERT_EP_FLAG; // whatever was written over the counter, this does not overflow
  if (dispatched != layer->tokens)
    return moert__fail(MOERT_ERROR_INVALID_STATE, "operand 'topk_ids' has %" PRId64 " tokens, must have %" PRId64 " as in the dispatch",
                       layer->tokens, dispatched);
  if (round[1] != layer->top_k)
    return moert__fail(MOERT_ERROR_INVALID_STATE, "parameter 'top_k' is %" PRId64 ", must be %" PRId32 " as in the dispatch", layer->top_k, round[1]);
  if (round[2] != layer->fused_shared_expert)
    return moert__fail(MOERT_ERROR_INVALID_STATE, "parameter 'fused_shared_expert' is %d, must be %" PRId32 " as in the dispatch",
                       layer->fused_shared_expert, round[2]);
  return MOERT_OK;
}

// That the experts' rows follow one another behind those of the shared expert, as the dispatch placed them, and are rows of input_tokens.
static moert_status check_segments(const combine_call *call) {
  int64_t rows = call->args->input_tokens->shape[0], placed = call->shared.count;
  for (int64_t expert = 0; expert < call->layer.n_experts; ++expert) {
    int64_t end = (int64_t)call->counters.segments[2 * expert] - MOERT_EP_FLAG, count = call->counters.segments[2 * expert + 1];
    if (count < 0 || end - count != placed)
      return moert__fail(MOERT_ERROR_INVALID_STATE,
                         "operand 'atomic_counters' was changed since the dispatch: expert %" PRId64 " has %" PRId64 " rows up to row %" PRId64,
                         expert, count, end);
    placed = end;
  }
  if (placed <= rows) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE,
                     "operand 'input_tokens' has %" PRId64 " rows, must have at least %" PRId64 ", which the dispatch placed", rows, placed);
}

moert_status moert__ep_combine_check(const moert_ep_combine_skip_a2a_params *params, const moert_ep_combine_skip_a2a_args *args,
                                     moert_context *context, moert__ep_combine_call *call) {
  const moert__ep_layer layer = MOERT__EP_LAYER(params, args->topk_ids->shape[0], context);
  if (!params->skip_a2a) return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter 'skip_a2a' is 0, must be 1: an all-to-all needs ep.combine"); // C1
  if (params->has_epilogue_fusion)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter 'has_epilogue_fusion' is 1, must be 0: apply the epilogue with moe-expand-epilogues");
  *call = (moert__ep_combine_call){.args = args, .layer = layer};
  moert_status status = moert__ep_check_layer(&layer, context); // C2, C8
  if (!status) status = check_shapes(call);
  if (!status) status = check_tables(call, context); // C7
  if (status) return status;
  call->shared = moert__ep_shared_slice(&layer);
  call->counters = moert__ep_counters_of(args->atomic_counters, layer.n_experts);
  call->format = moert__format_of(args->output_tokens->dtype.code, args->output_tokens->dtype.bits);
  call->weight_format = moert__format_of(args->router_weights->dtype.code, args->router_weights->dtype.bits);
  return MOERT_OK;
}

//===--- rows -------------------------------------------------------------------------------------===//

static void ascribe_row(const combine_call *call, int32_t *row_of, int64_t row) {
  const int32_t *source = (const int32_t *)moert__data(call->args->src_info) + 2 * row;
  bool inside = source[0] >= 0 && source[0] < call->layer.tokens && source[1] >= 0 && source[1] < call->layer.top_k;
  if (inside) row_of[source[0] * call->layer.top_k + source[1]] = (int32_t)row;
}

// Every pair of this rank must have its row; -1 are the others.
static moert_status find_rows(const combine_call *call, int32_t *row_of) {
  const int32_t *ids = moert__data(call->args->topk_ids);
  int64_t pairs = call->layer.tokens * call->layer.top_k;
  int64_t end = (int64_t)call->counters.segments[2 * (call->layer.n_experts - 1)] - MOERT_EP_FLAG;
  for (int64_t pair = 0; pair < pairs; ++pair) row_of[pair] = -1;
  for (int64_t row = call->shared.count; row < end; ++row) ascribe_row(call, row_of, row);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (moert__ep_local_expert(&call->layer, ids[pair]) < 0)
      row_of[pair] = -1;
    else if (row_of[pair] < 0)
      return moert__fail(MOERT_ERROR_DATA,
                         "operand 'src_info' has no row for token %" PRId64 ", slot %" PRId64 ", whose expert %" PRId32 " is one of rank %" PRId32
                         ": pass 'src_info' and 'topk_ids' of the dispatch",
                         pair / call->layer.top_k, pair % call->layer.top_k, ids[pair], call->layer.rank);
  }
  return MOERT_OK;
}

//===--- sums -------------------------------------------------------------------------------------===//

static void add_routed(const combine_call *call, const int32_t *row_of, int64_t token, int64_t column, int64_t width, float *sums) {
  const void *rows = moert__data(call->args->input_tokens), *weights = moert__data(call->args->router_weights);
  for (int64_t i = 0; i < width; ++i) sums[i] = 0.0f;
  for (int64_t pair = token * call->layer.top_k; pair < (token + 1) * call->layer.top_k; ++pair) {
    if (row_of[pair] < 0) continue;
    float weight = moert__load(call->weight_format, weights, pair);
    int64_t first = row_of[pair] * call->layer.hidden_size + column;
    for (int64_t i = 0; i < width; ++i) sums[i] = fmaf(weight, moert__load(call->format, rows, first + i), sums[i]);
  }
}

// The routed sum is rounded before the shared expert's element is added.
static void store(const combine_call *call, int64_t token, int64_t column, int64_t width, const float *sums) {
  const void *rows = moert__data(call->args->input_tokens);
  void *out = moert__data(call->args->output_tokens);
  int64_t to = token * call->layer.hidden_size + column, row = token - call->shared.begin;
  for (int64_t i = 0; i < width; ++i) moert__store(call->format, out, to + i, sums[i]);
  if (row < 0 || row >= call->shared.count) return;
  for (int64_t i = 0; i < width; ++i) {
    float shared = moert__load(call->format, rows, row * call->layer.hidden_size + column + i);
    moert__store(call->format, out, to + i, moert__load(call->format, out, to + i) + shared);
  }
}

static void combine(const combine_call *call, const int32_t *row_of) {
  float sums[BLOCK];
  for (int64_t token = 0; token < call->layer.tokens; ++token)
    for (int64_t column = 0; column < call->layer.hidden_size; column += BLOCK) {
      int64_t left = call->layer.hidden_size - column, width = left < BLOCK ? left : BLOCK;
      add_routed(call, row_of, token, column, width, sums);
      store(call, token, column, width, sums);
    }
}

// The next dispatch may come.
static void clear_counters(const combine_call *call) {
  memset(call->counters.segments, 0, (size_t)(2 * call->layer.n_experts) * sizeof(int32_t));
  memset(call->counters.round, 0, 3 * sizeof(int32_t));
}

moert_status moert__host_ep_combine_skip_a2a(const moert_ep_combine_skip_a2a_params *params, const moert_ep_combine_skip_a2a_args *args,
                                             moert_context *context) {
  combine_call call;
  moert_status status = moert__ep_combine_check(params, args, context, &call);
  if (!status) status = check_round(&call);
  if (!status) status = check_segments(&call);
  if (status) return status;
  moert__arena_mark mark = moert__arena_mark_get(context);
  void *row_of;
  status = moert_context_allocate(context, call.layer.tokens * call.layer.top_k * (int64_t)sizeof(int32_t), &row_of);
  if (!status) status = find_rows(&call, row_of);
  if (!status) {
    combine(&call, row_of);
    clear_counters(&call);
  }
  moert__arena_rewind(context, mark);
  return status;
}

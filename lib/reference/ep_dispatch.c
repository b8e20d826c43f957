//===- ep_dispatch.c - ep.dispatch on the host --------------------------------------------------------===//
//
// The mode skip_a2a: the tokens are here already, so that rows go from where they are to their groups, without the buffers in between.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/ep_dispatch.h"
#include "lib/reference/checks.h"
#include <string.h>

typedef moert__ep_dispatch_call dispatch_call;

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_shapes(const dispatch_call *call) {
  const moert_ep_dispatch_args *args = call->args;
  const moert__ep_layer *layer = &call->layer;
  int64_t groups = layer->n_experts + layer->fused_shared_expert, rows = args->output_tokens->shape[0];
  const char *experts = layer->fused_shared_expert ? "n_experts + 1 (with the shared expert)" : "n_experts";
  const char *ends = layer->fused_shared_expert ? "n_experts + 2 (with the shared expert's group)" : "n_experts + 1";
  moert_status status = moert__check_dimension(args->input_tokens, "input_tokens", 1, layer->hidden_size, "hidden_size");          // C3
  if (!status) status = moert__check_dimension(args->output_tokens, "output_tokens", 1, layer->hidden_size, "hidden_size");        // C3
  if (!status) status = moert__check_dimension(args->input_tokens, "input_tokens", 0, layer->tokens, "dimension 0 of 'topk_ids'"); // C4
  if (!status) status = moert__check_dimension(args->topk_ids, "topk_ids", 1, layer->top_k, "top_k");                              // C4
  if (!status) status = moert__check_dimension(args->row_offsets, "row_offsets", 0, groups + 1, ends);                             // C5
  if (!status) status = moert__check_dimension(args->expert_ids, "expert_ids", 0, groups, experts);                                // C5
  if (!status) status = moert__check_dimension(args->src_info, "src_info", 0, rows, "dimension 0 of 'output_tokens'");             // C6
  if (!status) status = moert__check_dimension(args->src_info, "src_info", 1, 2, "the number of its columns");                     // C6
  if (!status) status = moert__ep_check_counters(args->atomic_counters, "atomic_counters", layer->n_experts);                      // C7
  return status;
}

static moert_status check_tables(const dispatch_call *call, moert_context *context) {
  const moert_ep_dispatch_args *args = call->args;
  const moert_tensor *tables[MOERT_EP_BUFFERS] = {args->send_ptrs, args->recv_ptrs, args->recv_count_ptrs};
  moert_ep_info info = {call->layer.hidden_size, call->layer.top_k, call->layer.n_experts, call->layer.max_token_per_rank, 1};
  moert_ep_buffers buffers = moert_ep_lay_out_buffers(&info);
  return moert__ep_check_tables(&call->layer, tables, buffers.bytes[MOERT_EP_DISPATCH], context);
}

moert_status moert__ep_dispatch_check(const moert_ep_dispatch_params *params, const moert_ep_dispatch_args *args, moert_context *context,
                                      moert__ep_dispatch_call *call) {
  const moert__ep_layer layer = MOERT__EP_LAYER(params, args->topk_ids->shape[0], context);
  if (!params->skip_a2a) return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter 'skip_a2a' is 0, must be 1: the all-to-all is unsupported"); // C1
  *call = (moert__ep_dispatch_call){.args = args, .layer = layer};
  moert_status status = moert__ep_check_layer(&layer, context); // C2, C9
  if (!status) status = check_shapes(call);
  if (!status) status = check_tables(call, context); // C8
  if (status) return status;
  int64_t room = args->output_tokens->shape[0], most = INT32_MAX - MOERT_EP_FLAG;
  call->shared = moert__ep_shared_slice(&layer);
  call->counters = moert__ep_counters_of(args->atomic_counters, layer.n_experts);
  call->room = room < most ? room : most;
  return MOERT_OK;
}

static int64_t count_rows(const dispatch_call *call) {
  const int32_t *ids = moert__data(call->args->topk_ids);
  int64_t rows = call->shared.count;
  for (int64_t pair = 0; pair < call->layer.tokens * call->layer.top_k; ++pair) rows += moert__ep_local_expert(&call->layer, ids[pair]) >= 0;
  return rows;
}

static moert_status check_counters(const dispatch_call *call) {
  if (call->counters.round[0])
    return moert__fail(MOERT_ERROR_INVALID_STATE, "the dispatch before on these counters waits for its combine: call ep.combine.skip_a2a first");
  int64_t rows = count_rows(call);
  if (rows <= call->room) return MOERT_OK;
  return moert__fail(MOERT_ERROR_CAPACITY,
                     "%" PRId64 " rows are for the experts of rank %" PRId32 ", operand 'output_tokens' has room for %" PRId64
                     "; max_token_per_rank * min(n_experts, top_k) rows, with a fused shared expert max_token_per_rank more, are enough if no token "
                     "lists an expert twice",
                     rows, call->layer.rank, call->room);
}

//===--- groups -----------------------------------------------------------------------------------===//

static void copy_row(const dispatch_call *call, int64_t row, int64_t token) {
  size_t bytes = (size_t)call->layer.hidden_size * sizeof(uint16_t);
  memcpy((char *)moert__data(call->args->output_tokens) + (size_t)row * bytes,
         (const char *)moert__data(call->args->input_tokens) + (size_t)token * bytes, bytes);
}

static void place_shared(const dispatch_call *call) {
  for (int64_t i = 0; i < call->shared.count; ++i) copy_row(call, i, call->shared.begin + i);
}

// The first row of each expert, and the end of the last.
static void find_groups(const dispatch_call *call, int32_t *first) {
  const int32_t *ids = moert__data(call->args->topk_ids);
  int64_t experts = call->layer.n_experts;
  memset(first, 0, (size_t)(experts + 1) * sizeof *first);
  for (int64_t pair = 0; pair < call->layer.tokens * call->layer.top_k; ++pair) {
    int64_t expert = moert__ep_local_expert(&call->layer, ids[pair]);
    if (expert >= 0) ++first[expert + 1];
  }
  first[0] = (int32_t)call->shared.count;
  for (int64_t expert = 0; expert < experts; ++expert) first[expert + 1] += first[expert];
}

// Each expert's rows in ascending order of token and slot: its counter is the number of those that are there.
static void place_routed(const dispatch_call *call, const int32_t *first) {
  const int32_t *ids = moert__data(call->args->topk_ids);
  int32_t *src_info = moert__data(call->args->src_info), *segments = call->counters.segments;
  for (int64_t pair = 0; pair < call->layer.tokens * call->layer.top_k; ++pair) {
    int64_t expert = moert__ep_local_expert(&call->layer, ids[pair]), token = pair / call->layer.top_k;
    if (expert < 0) continue;
    int64_t row = first[expert] + segments[2 * expert + 1]++;
    copy_row(call, row, token);
    src_info[2 * row] = (int32_t)token;
    src_info[2 * row + 1] = (int32_t)(pair % call->layer.top_k);
  }
}

static void leave_counters(const dispatch_call *call, const int32_t *first) {
  const moert__ep_layer *layer = &call->layer;
  for (int64_t expert = 0; expert < layer->n_experts; ++expert) call->counters.segments[2 * expert] = MOERT_EP_FLAG + first[expert + 1];
  call->counters.round[0] = (int32_t)(MOERT_EP_FLAG + layer->tokens);
  call->counters.round[1] = (int32_t)layer->top_k;
  call->counters.round[2] = layer->fused_shared_expert;
}

moert_status moert__host_ep_dispatch(const moert_ep_dispatch_params *params, const moert_ep_dispatch_args *args, moert_context *context) {
  dispatch_call call;
  moert_status status = moert__ep_dispatch_check(params, args, context, &call);
  if (!status) status = check_counters(&call);
  if (status) return status;
  int32_t *row_offsets = moert__data(args->row_offsets), *expert_ids = moert__data(args->expert_ids);
  int64_t shared = call.layer.fused_shared_expert, groups = call.layer.n_experts + shared;
  int32_t *first = row_offsets + shared;
  row_offsets[0] = 0;
  for (int64_t group = 0; group < groups; ++group) expert_ids[group] = (int32_t)group;
  memset(call.counters.segments, 0, (size_t)(2 * call.layer.n_experts) * sizeof(int32_t));
  place_shared(&call);
  find_groups(&call, first);
  place_routed(&call, first);
  leave_counters(&call, first);
  return MOERT_OK;
}

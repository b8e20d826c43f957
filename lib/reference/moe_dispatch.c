//===- moe_dispatch.c - moe.dispatch on the host --------------------------------------------------===//
//
// Push: rank me writes row t of payload i to row (me * R + slot) of the receive area i of each rank that owns one of the token's experts. The
// layout expert_grouped sends the token's ids and weights along, and every receiver sorts what it got. Statistics go to row `me` of
// EPLB_GATHERED_STATS of every rank, and each rank copies all rows out when all has arrived.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_dispatch.h"
#include "lib/reference/checks.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_layout(const moert__dispatch_call *call) {
  const moert_moe_dispatch_args *args = call->args;
  if (call->grouped && !args->offsets)
    return moert__fail(MOERT_ERROR_NULL_POINTER, "operand 'offsets' is NULL, must be set with layout expert_grouped");
  if (call->grouped && args->recv_counts)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'recv_counts' is set, must be NULL with layout expert_grouped");
  if (!call->grouped && args->offsets)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'offsets' is set, must be NULL with layout rank_major");
  if (!call->grouped && args->topk_weights)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'topk_weights' is set, must be NULL with layout rank_major");
  return MOERT_OK;
}

static moert_status check_counts(const moert__dispatch_call *call) {
  int64_t capacity = call->workspace.note->info.max_num_tokens;
  if (call->max_tokens < 1)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'runtime_max_tokens_per_rank' is %" PRId64 ", must be at least 1", call->max_tokens);
  if (call->max_tokens > capacity)
    return moert__fail(MOERT_ERROR_CAPACITY,
                       "operand 'runtime_max_tokens_per_rank' is %" PRId64 ", must be at most %" PRId64 ", the max_num_tokens of the workspace",
                       call->max_tokens, capacity);
  if (call->tokens > call->max_tokens)
    return moert__fail(MOERT_ERROR_CAPACITY, "operand 'topk_ids' has %" PRId64 " tokens, must have at most %" PRId64 " (runtime_max_tokens_per_rank)",
                       call->tokens, call->max_tokens);
  return MOERT_OK;
}

static moert_status check_routing(const moert__dispatch_call *call) {
  const moert_moe_dispatch_args *args = call->args;
  int64_t top_k = call->params->top_k, experts = call->params->n_experts;
  if (experts < call->workspace.ranks)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "parameter 'n_experts' is %" PRId64 ", must be at least %" PRId32 ", the ranks of the communicator", experts,
                       call->workspace.ranks);
  if (top_k > experts)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'top_k' is %" PRId64 ", must be at most %" PRId64 " (n_experts)", top_k, experts);
  moert_status status = moert__check_dimension(args->topk_ids, "topk_ids", 1, top_k, "top_k");
  if (!status && args->topk_weights)
    status = moert__check_dimension(args->topk_weights, "topk_weights", 0, call->tokens, "dimension 0 of 'topk_ids'");
  if (!status && args->topk_weights) status = moert__check_dimension(args->topk_weights, "topk_weights", 1, top_k, "top_k");
  if (!status && args->recv_counts) status = moert__check_dimension(args->recv_counts, "recv_counts", 0, call->workspace.ranks, "ep_size");
  if (!status && args->offsets)
    status = moert__check_dimension(args->offsets, "offsets", 0, call->local_experts + 1, "the number of this rank's experts + 1");
  return status;
}

static moert_status check_stats(moert__dispatch_call *call) {
  const moert_tensor *stats = call->args->eplb_local_stats, *gathered = call->args->eplb_gathered_stats;
  int64_t experts = call->params->n_experts;
  if (!stats && !gathered) return MOERT_OK;
  if (!gathered) return moert__fail(MOERT_ERROR_NULL_POINTER, "operand 'eplb_gathered_stats' is NULL, must be set with 'eplb_local_stats'");
  if (!stats) return moert__fail(MOERT_ERROR_NULL_POINTER, "operand 'eplb_local_stats' is NULL, must be set with 'eplb_gathered_stats'");
  call->num_stats = stats->shape[0];
  if (call->num_stats < 1 || call->num_stats > experts)
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'eplb_local_stats' has %" PRId64 " elements, must have 1 to %" PRId64 " (n_experts)",
                       call->num_stats, experts);
  if (call->num_stats > call->stats_stride)
    return moert__fail(MOERT_ERROR_CAPACITY,
                       "operand 'eplb_local_stats' has %" PRId64 " elements, must have at most %" PRId64
                       ", the eplb_stats_num_experts of the workspace",
                       call->num_stats, call->stats_stride);
  moert_status status = moert__check_dimension(gathered, "eplb_gathered_stats", 0, call->workspace.ranks, "ep_size");
  return status ? status : moert__check_dimension(gathered, "eplb_gathered_stats", 1, call->num_stats, "the elements of 'eplb_local_stats'");
}

static bool recv_has_shape(const moert__dispatch_call *call, const moert_tensor *payload, const moert_tensor *recv) {
  if (call->grouped) return recv->shape[0] == call->args->recv[0].shape[0] && moert__same_row(recv, 1, payload, 1);
  return recv->ndim >= 2 && recv->shape[0] == call->workspace.ranks && recv->shape[1] == call->max_tokens && moert__same_row(recv, 2, payload, 1);
}

enum { NAME_BYTES = 32 };
static const char *payload_name(char name[NAME_BYTES], int64_t i) {
  snprintf(name, NAME_BYTES, "payloads[%d]", (int)i);
  return name;
}

// Between payloads and their destinations.
static moert_status check_pair(const moert__dispatch_call *call, int64_t i) {
  const moert_tensor *payload = &call->args->payloads[i], *recv = &call->args->recv[i];
  char name[NAME_BYTES];
  moert_status status = moert__check_dimension(payload, payload_name(name, i), 0, call->tokens, "the tokens of topk_ids");
  if (status) return status;
  if (!moert__dtype_equal(payload->dtype, recv->dtype))
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'recv[%" PRId64 "]': element type %s, must be %s, that of its payload", i,
                       moert__dtype_name(recv->dtype), moert__dtype_name(payload->dtype));
  if (recv_has_shape(call, payload, recv)) return MOERT_OK;
  if (call->grouped)
    return moert__fail(MOERT_ERROR_INVALID_SHAPE,
                       "operand 'recv[%" PRId64 "]' must be [%" PRId64
                       ", ...], as many rows as 'recv[0]', with the trailing dimensions of its payload",
                       i, call->args->recv[0].shape[0]);
  return moert__fail(MOERT_ERROR_INVALID_SHAPE,
                     "operand 'recv[%" PRId64 "]' must be [%" PRId32 ", %" PRId64
                     ", ...] (ranks, runtime_max_tokens_per_rank) with the trailing dimensions of its payload",
                     i, call->workspace.ranks, call->max_tokens);
}

// A destination may be the receive area of its payload, if the layout is that of the area.
static moert_status check_recv_apart(const moert__dispatch_call *call, int64_t i) {
  const moert_tensor *recv = &call->args->recv[i];
  int64_t end = call->workspace.layout.offsets[MOERT_METAINFO_COMBINE_DATA];
  if (!moert__workspace_overlaps(&call->workspace, recv, 0, end)) return MOERT_OK;
  if (!call->grouped && moert__data(recv) == call->workspace.peers[call->workspace.rank] + call->areas[i]) return MOERT_OK;
  return moert__fail(MOERT_ERROR_OVERLAP,
                     "operand 'recv[%" PRId64 "]' lies in the workspace, may do so only at offset %" PRId64
                     " (its payload's receive area) with layout rank_major",
                     i, call->areas[i]);
}

static moert_status check_places(const moert__dispatch_call *call) {
  const moert_moe_dispatch_args *args = call->args;
  const moert__workspace *workspace = &call->workspace;
  moert_status status = moert__workspace_check_apart(workspace, args->topk_ids, "topk_ids");
  if (!status) status = moert__workspace_check_apart(workspace, args->topk_weights, "topk_weights");
  if (!status) status = moert__workspace_check_apart(workspace, args->recv_counts, "recv_counts");
  if (!status) status = moert__workspace_check_apart(workspace, args->offsets, "offsets");
  if (!status) status = moert__workspace_check_apart(workspace, args->eplb_local_stats, "eplb_local_stats");
  if (!status) status = moert__workspace_check_apart(workspace, args->eplb_gathered_stats, "eplb_gathered_stats");
  for (int64_t i = 0; i < args->num_payloads && !status; ++i) {
    char name[NAME_BYTES];
    status = moert__workspace_check_apart(workspace, &args->payloads[i], payload_name(name, i));
    if (!status) status = check_recv_apart(call, i);
  }
  return status;
}

// Areas follow from the payloads' rows and the workspace's size alone, whatever R is.
static moert_status lay_out_payloads(moert__dispatch_call *call) {
  const moert_workspace_info *info = &call->workspace.note->info;
  int64_t left = info->dispatch_bytes_per_token;
  call->areas[0] = call->workspace.layout.offsets[MOERT_METAINFO_PAYLOAD_DATA];
  for (int64_t i = 0; i < call->args->num_payloads; ++i) {
    call->row_bytes[i] = moert__row_size(&call->args->payloads[i], 1);
    if (call->row_bytes[i] > left)
      return moert__fail(MOERT_ERROR_CAPACITY,
                         "operand 'payloads[%" PRId64 "]' has rows of %" PRId64 " bytes, must have at most %" PRId64
                         " (left of dispatch_bytes_per_token, %" PRId64 ")",
                         i, call->row_bytes[i], left, info->dispatch_bytes_per_token);
    left -= call->row_bytes[i];
    call->areas[i + 1] = moert_workspace_align(call->areas[i] + info->ep_size * info->max_num_tokens * call->row_bytes[i]);
  }
  return MOERT_OK;
}

static moert_status check_payloads(moert__dispatch_call *call) {
  int64_t payloads = call->args->num_payloads, recv = call->args->num_recv;
  if (payloads < 1 || payloads > MOERT_WORKSPACE_MAX_PAYLOADS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'payloads' has %" PRId64 " tensors, must have 1 to %d", payloads,
                       MOERT_WORKSPACE_MAX_PAYLOADS);
  if (recv != payloads)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'recv' has %" PRId64 " tensors, must have %" PRId64 " (payloads)", recv, payloads);
  moert_status status = lay_out_payloads(call);
  for (int64_t i = 0; i < payloads && !status; ++i) status = check_pair(call, i);
  return status;
}

moert_status moert__dispatch_check(const moert_moe_dispatch_params *params, const moert_moe_dispatch_args *args, moert_context *context,
                                   moert__dispatch_call *call) {
  *call = (moert__dispatch_call){.params = params, .args = args, .context = context};
  call->grouped = params->layout == MOERT_MOE_DISPATCH_LAYOUT_EXPERT_GROUPED;
  call->tokens = args->topk_ids->shape[0];
  call->max_tokens = args->runtime_max_tokens_per_rank;
  if (!call->args->combine_payload_offset) return moert__fail(MOERT_ERROR_NULL_POINTER, "result 'combine_payload_offset' is NULL");
  moert__workspace *workspace = &call->workspace;
  int64_t experts = call->params->n_experts;
  moert_status status =
      moert__workspace_open(call->context, "ep_size", call->params->ep_size, call->args->workspace, call->args->metainfo, workspace);
  if (!status) status = moert__workspace_check_idle(workspace);
  if (!status) status = moert__workspace_select(workspace, args->active_rank_mask);
  if (!status) status = moert__workspace_check_returns(workspace);
  if (status) return status;
  call->local_experts =
      moert__first_expert(experts, workspace->ranks, workspace->rank + 1) - moert__first_expert(experts, workspace->ranks, workspace->rank);
  call->stats_stride = workspace->note->info.eplb_stats_num_experts;
  status = check_layout(call);
  if (!status) status = check_routing(call);
  if (!status) status = check_stats(call);
  if (!status) status = check_counts(call);
  if (!status) status = check_payloads(call);
  if (!status) status = check_places(call);
  return status;
}

uint32_t moert__dispatch_hash(const moert__dispatch_call *call) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, MOERT__HASH_DISPATCH);
  hash = moert__hash(hash, call->max_tokens);
  hash = moert__hash(hash, call->params->top_k);
  hash = moert__hash(hash, call->params->n_experts);
  hash = moert__hash(hash, call->params->layout);
  hash = moert__hash(hash, (int64_t)call->workspace.mask);
  hash = moert__hash(hash, call->num_stats);
  hash = moert__hash(hash, call->args->num_payloads);
  for (int64_t i = 0; i < call->args->num_payloads; ++i) {
    hash = moert__hash(hash, call->row_bytes[i]);
    hash = moert__hash_dtype(hash, call->args->payloads[i].dtype);
  }
  return hash;
}

void moert__dispatch_keep(const moert__dispatch_call *call, int64_t rows) {
  moert__workspace_note *note = call->workspace.note;
  note->dispatched = 1;
  note->round = (moert__round){call->tokens, call->max_tokens, call->params->top_k, call->params->layout, rows, call->workspace.mask};
  *call->args->combine_payload_offset = call->workspace.layout.offsets[MOERT_METAINFO_COMBINE_DATA];
}

//===--- sending ----------------------------------------------------------------------------------===//

static void *local(const moert__dispatch_call *call, int field) { return moert__workspace_region(&call->workspace, call->workspace.rank, field); }

// The rank to send a row to; -1: there is no such expert, or its rank takes no part.
static int32_t rank_of(const moert__dispatch_call *call, int32_t expert) {
  int32_t rank = moert__expert_rank(call->params->n_experts, call->workspace.ranks, expert);
  return rank >= 0 && moert__workspace_has(&call->workspace, rank) ? rank : -1;
}

// For each token and slot: the rank to send to and the row's place there. A rank gets a token once, for the first slot that names it.
static void route(const moert__dispatch_call *call) {
  const int32_t *ids = moert__data(call->args->topk_ids);
  int32_t *targets = local(call, MOERT_METAINFO_TOPK_TARGET_RANKS), *indices = local(call, MOERT_METAINFO_TOPK_SEND_INDICES);
  int32_t *counts = local(call, MOERT_METAINFO_SEND_COUNTERS);
  int64_t top_k = call->params->top_k;
  memset(counts, 0, sizeof *counts * (size_t)call->workspace.ranks);
  for (int64_t token = 0; token < call->tokens; ++token) {
    uint64_t named = 0;
    for (int64_t choice = token * top_k; choice < (token + 1) * top_k; ++choice) {
      int32_t target = rank_of(call, ids[choice]);
      bool first = target >= 0 && !(named >> target & 1);
      if (first) named |= UINT64_C(1) << target;
      targets[choice] = first ? target : -1;
      indices[choice] = first ? counts[target]++ : -1;
    }
  }
}

static void send_counts(const moert__dispatch_call *call) {
  const int32_t *counts = local(call, MOERT_METAINFO_SEND_COUNTERS);
  for (int32_t peer = 0; peer < call->workspace.ranks; ++peer) {
    if (!moert__workspace_has(&call->workspace, peer)) continue;
    _Atomic int32_t *received = moert__workspace_region(&call->workspace, peer, MOERT_METAINFO_RECV_COUNTERS);
    atomic_store_explicit(received + call->workspace.rank, counts[peer], memory_order_relaxed);
  }
}

// From ranks that take no part nothing is received. One of them may be sending its count all the same, if it does not know; nobody reads that.
static void clear_counts(const moert__dispatch_call *call) {
  _Atomic int32_t *received = local(call, MOERT_METAINFO_RECV_COUNTERS);
  for (int32_t peer = 0; peer < call->workspace.ranks; ++peer)
    if (!moert__workspace_has(&call->workspace, peer)) atomic_store_explicit(received + peer, 0, memory_order_relaxed);
}

// The token's ids and weights, for the receiver to sort by and to combine with.
static void send_choices(const moert__dispatch_call *call, int64_t token, int32_t target, int64_t row) {
  int64_t top_k = call->params->top_k;
  const int32_t *ids = moert__data(call->args->topk_ids);
  int32_t *sent_ids = moert__workspace_region(&call->workspace, target, MOERT_METAINFO_RECV_TOPK_ROWS);
  float *sent_weights = moert__workspace_region(&call->workspace, target, MOERT_METAINFO_RECV_TOPK_WEIGHTS);
  const float *weights = call->args->topk_weights ? moert__data(call->args->topk_weights) : NULL;
  for (int64_t k = 0; k < top_k; ++k) {
    sent_ids[row * top_k + k] = ids[token * top_k + k];
    sent_weights[row * top_k + k] = weights ? weights[token * top_k + k] : 1.0f;
  }
}

static void send_row(const moert__dispatch_call *call, int64_t token, int32_t target, int32_t index) {
  int64_t row = call->workspace.rank * call->max_tokens + index;
  for (int64_t i = 0; i < call->args->num_payloads; ++i) {
    const char *from = moert__data(&call->args->payloads[i]);
    size_t bytes = (size_t)call->row_bytes[i];
    if (bytes) memcpy(call->workspace.peers[target] + call->areas[i] + row * call->row_bytes[i], from + token * call->row_bytes[i], bytes);
  }
  if (call->grouped) send_choices(call, token, target, row);
}

static void send_rows(const moert__dispatch_call *call) {
  const int32_t *targets = local(call, MOERT_METAINFO_TOPK_TARGET_RANKS), *indices = local(call, MOERT_METAINFO_TOPK_SEND_INDICES);
  for (int64_t choice = 0; choice < call->tokens * call->params->top_k; ++choice)
    if (targets[choice] >= 0) send_row(call, choice / call->params->top_k, targets[choice], indices[choice]);
}

static void send_stats(const moert__dispatch_call *call) {
  if (!call->num_stats) return;
  for (int32_t peer = 0; peer < call->workspace.ranks; ++peer) {
    if (!moert__workspace_has(&call->workspace, peer)) continue;
    int32_t *rows = moert__workspace_region(&call->workspace, peer, MOERT_METAINFO_EPLB_GATHERED_STATS);
    memcpy(rows + call->workspace.rank * call->stats_stride, moert__data(call->args->eplb_local_stats), sizeof *rows * (size_t)call->num_stats);
  }
}

// Every rank knows that all do the same before any sends its rows and statistics.
static moert_status exchange(moert__dispatch_call *call) {
  moert_context *context = call->context;
  moert_status status = moert__workspace_enter(&call->workspace, context, moert__dispatch_hash(call));
  if (status) return status;
  route(call);
  send_counts(call);
  status = moert__workspace_meet(&call->workspace, context, MOERT_METAINFO_COUNT_FLAGS, "its counts");
  if (status) return status;
  clear_counts(call);
  send_rows(call);
  send_stats(call);
  return moert__workspace_complete(&call->workspace, context, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS);
}

//===--- receiving --------------------------------------------------------------------------------===//

static void receive_rank_major(const moert__dispatch_call *call) {
  for (int64_t i = 0; i < call->args->num_recv; ++i) {
    const char *area = call->workspace.peers[call->workspace.rank] + call->areas[i];
    char *recv = moert__data(&call->args->recv[i]);
    if (recv == area) continue;
    for (int32_t source = 0; source < call->workspace.ranks; ++source) {
      int64_t start = source * call->max_tokens * call->row_bytes[i];
      size_t bytes = (size_t)(moert__workspace_received(&call->workspace, source) * call->row_bytes[i]);
      if (bytes) memcpy(recv + start, area + start, bytes);
    }
  }
  int32_t *counts = call->args->recv_counts ? moert__data(call->args->recv_counts) : NULL;
  for (int32_t source = 0; counts && source < call->workspace.ranks; ++source)
    counts[source] = (int32_t)moert__workspace_received(&call->workspace, source);
}

// Calls visit for every received choice, by source, row and slot. `choice` is its place in RECV_TOPK_ROWS; `expert` counts from this rank's first,
// -1: of another rank or none.
typedef void choice_visitor(const moert__dispatch_call *call, int64_t choice, int64_t expert, int64_t *total);

static int64_t visit_choices(const moert__dispatch_call *call, choice_visitor *visit) {
  const int32_t *ids = local(call, MOERT_METAINFO_RECV_TOPK_ROWS);
  int64_t top_k = call->params->top_k, first = moert__first_expert(call->params->n_experts, call->workspace.ranks, call->workspace.rank);
  int64_t total = 0;
  for (int32_t source = 0; source < call->workspace.ranks; ++source) {
    int64_t begin = source * call->max_tokens * top_k, end = begin + moert__workspace_received(&call->workspace, source) * top_k;
    for (int64_t choice = begin; choice < end; ++choice) {
      int64_t expert = ids[choice] - first;
      visit(call, choice, expert >= 0 && expert < call->local_experts ? expert : -1, &total);
    }
  }
  return total;
}

static void count(const moert__dispatch_call *call, int64_t choice, int64_t expert, int64_t *total) {
  (void)call, (void)choice;
  *total += expert >= 0;
}

static void count_by_expert(const moert__dispatch_call *call, int64_t choice, int64_t expert, int64_t *total) {
  (void)choice, (void)total;
  int32_t *offsets = moert__data(call->args->offsets);
  if (expert >= 0) ++offsets[expert + 1];
}

// Gives the choice the next row of its expert: offsets[expert + 1] runs from the expert's first row to its end.
static void place(const moert__dispatch_call *call, int64_t choice, int64_t expert, int64_t *total) {
  (void)total;
  int32_t *rows = local(call, MOERT_METAINFO_RECV_TOPK_ROWS), *offsets = moert__data(call->args->offsets);
  rows[choice] = expert < 0 ? -1 : offsets[expert + 1]++;
  if (expert < 0) return;
  int64_t received = choice / call->params->top_k;
  for (int64_t i = 0; i < call->args->num_recv; ++i) {
    const char *area = call->workspace.peers[call->workspace.rank] + call->areas[i];
    char *recv = moert__data(&call->args->recv[i]);
    int64_t bytes = call->row_bytes[i];
    if (bytes) memcpy(recv + rows[choice] * bytes, area + received * bytes, (size_t)bytes);
  }
}

// The peers have all they wait for: they may finish this call while this rank reports that it has no room.
static moert_status receive_grouped(const moert__dispatch_call *call, int64_t *rows) {
  int64_t capacity = call->args->recv[0].shape[0];
  *rows = visit_choices(call, count);
  if (*rows > capacity || *rows > INT32_MAX) {
    moert__comm_note(moert_context_comm(call->context), MOERT_ERROR_CAPACITY);
    return moert__fail(MOERT_ERROR_CAPACITY, "%" PRId64 " rows arrived for the experts of rank %" PRId32 ", operand 'recv[0]' has room for %" PRId64,
                       *rows, call->workspace.rank, capacity < INT32_MAX ? capacity : INT32_MAX);
  }
  int32_t *offsets = moert__data(call->args->offsets);
  memset(offsets, 0, sizeof *offsets * (size_t)(call->local_experts + 1));
  visit_choices(call, count_by_expert);
  int32_t begin = 0;
  for (int64_t expert = 0; expert < call->local_experts; ++expert) {
    int32_t size = offsets[expert + 1];
    offsets[expert + 1] = begin;
    begin += size;
  }
  visit_choices(call, place);
  return MOERT_OK;
}

// The rows of ranks that take no part are 0.
static void gather_stats(const moert__dispatch_call *call) {
  if (!call->num_stats) return;
  const int32_t *rows = local(call, MOERT_METAINFO_EPLB_GATHERED_STATS);
  int32_t *gathered = moert__data(call->args->eplb_gathered_stats);
  size_t bytes = sizeof *gathered * (size_t)call->num_stats;
  for (int32_t source = 0; source < call->workspace.ranks; ++source) {
    int32_t *row = gathered + source * call->num_stats;
    if (moert__workspace_has(&call->workspace, source))
      memcpy(row, rows + source * call->stats_stride, bytes);
    else
      memset(row, 0, bytes);
  }
}

static void poison_outputs(const moert__dispatch_call *call) {
  const moert_moe_dispatch_args *args = call->args;
  for (int64_t i = 0; i < args->num_recv; ++i) moert__workspace_poison(&call->workspace, &args->recv[i]);
  if (args->recv_counts) moert__workspace_poison(&call->workspace, args->recv_counts);
  if (args->offsets) moert__workspace_poison(&call->workspace, args->offsets);
  if (args->eplb_gathered_stats) moert__workspace_poison(&call->workspace, args->eplb_gathered_stats);
  *args->combine_payload_offset = -1;
}

moert_status moert__host_moe_dispatch(const moert_moe_dispatch_params *params, const moert_moe_dispatch_args *args, moert_context *context) {
  moert__dispatch_call call;
  moert_status status = moert__dispatch_check(params, args, context, &call);
  if (status) return status;
  status = exchange(&call);
  if (moert__is_peer_error(status)) poison_outputs(&call);
  if (status) return status;
  int64_t rows = 0;
  if (call.grouped)
    status = receive_grouped(&call, &rows);
  else
    receive_rank_major(&call);
  if (status) return status;
  gather_stats(&call);
  moert__dispatch_keep(&call, rows);
  return MOERT_OK;
}

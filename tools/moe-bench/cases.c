//===- cases.c - what the bench of the ops measures -------------------------------------------------------------------===//
//
// A case says which operands its ops have, how to call them, and what they cannot do without. A new one is a row of bench_cases.
//
//===----------------------------------------------------------------------------------------------===//

#include "allreduce.h"
#include "grouped.h"
#include "operands.h"
#include "routing.h"
#include <stdlib.h>

enum { BF16_BYTES = 2, I32_BYTES = 4, F32_BYTES = 4 };

//===--- operands -----------------------------------------------------------------------------------===//

static moert_status add_experts(Work *work, int set, int slot) {
  int32_t *ids = routing_choose(work, work->rank, set, ROUTING_UNIFORM);
  if (!ids) return MOERT_ERROR_OUT_OF_MEMORY;
  moert_status status = operand_add_words(work, &work->buffers[set][slot], ids, 2, SHAPE(work->tokens, work->shape.top_k));
  free(ids);
  return status;
}

// Of this rank, on average over the sets: tokens sent to others, received from all (itself included), and rows for its experts.
typedef struct Traffic {
  int64_t sent, received, rows;
} Traffic;

static void count_token(const Work *work, const int32_t *ids, bool own, Traffic *traffic) {
  bool named[MOERT_MAX_RANKS] = {false};
  for (int64_t k = 0; k < work->shape.top_k; ++k) {
    int32_t rank = routing_owner(work, ids[k]);
    traffic->rows += rank == work->rank;
    if (named[rank]) continue;
    named[rank] = true;
    traffic->received += rank == work->rank;
    traffic->sent += own && rank != work->rank;
  }
}

static Traffic count_traffic(const Work *work) {
  Traffic traffic = {0, 0, 0};
  for (int set = 0; set < work->sets; ++set)
    for (int32_t rank = 0; rank < work->ranks; ++rank) {
      int32_t *ids = routing_choose(work, rank, set, ROUTING_UNIFORM);
      for (int64_t t = 0; ids && t < work->tokens; ++t) count_token(work, ids + t * work->shape.top_k, rank == work->rank, &traffic);
      free(ids);
    }
  return (Traffic){traffic.sent / work->sets, traffic.received / work->sets, traffic.rows / work->sets};
}

//===--- moe.route ----------------------------------------------------------------------------------===//

enum { ROUTE_LOGITS, ROUTE_IDS, ROUTE_WEIGHTS };

static moert_status fill_route(Work *work, int set) {
  const Shape *shape = &work->shape;
  moert_status status = operand_add_random(work, set, ROUTE_LOGITS, 4, BF16, 2, SHAPE(work->tokens, shape->experts));
  if (!status) status = operand_add_output(work, &work->buffers[set][ROUTE_IDS], I32, 2, SHAPE(work->tokens, shape->top_k));
  if (!status) status = operand_add_output(work, &work->buffers[set][ROUTE_WEIGHTS], F32, 2, SHAPE(work->tokens, shape->top_k));
  return status;
}

static moert_status call_route(Work *work, int set, moert_kernel *kernel) {
  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.n_experts = work->shape.experts;
  params.renormalize = 1;
  moert_moe_route_args args = MOERT_MOE_ROUTE_ARGS_INIT;
  args.logits = operand(work, set, ROUTE_LOGITS);
  args.ids = operand(work, set, ROUTE_IDS);
  args.weights = operand(work, set, ROUTE_WEIGHTS);
  return moert_moe_route(&params, &args, kernel, work->context);
}

static Cost cost_route(const Work *work) {
  return (Cost){.memory_bytes = work->tokens * (work->shape.experts * BF16_BYTES + work->shape.top_k * (I32_BYTES + F32_BYTES))};
}

//===--- moe.dispatch and moe.combine ---------------------------------------------------------------===//

enum { A2A_IDS, A2A_WEIGHTS, A2A_PAYLOAD, A2A_RECV, A2A_COUNTS, A2A_OFFSETS, A2A_RESULT, A2A_OUT };

static int64_t row_bytes(const Work *work) { return work->shape.hidden * BF16_BYTES; }

static moert_status open_all_to_all(Work *work) { return operand_open_workspace(work, row_bytes(work), row_bytes(work)); }

static moert_status fill_tokens(Work *work, int set) {
  int64_t tokens = work->tokens, hidden = work->shape.hidden;
  moert_status status = add_experts(work, set, A2A_IDS);
  if (!status) status = operand_add_random(work, set, A2A_PAYLOAD, 1, BF16, 2, SHAPE(tokens, hidden));
  if (!status) status = operand_add_output(work, &work->buffers[set][A2A_OUT], BF16, 2, SHAPE(tokens, hidden));
  return status;
}

static moert_status fill_rank_major(Work *work, int set) {
  const int64_t *received = SHAPE(work->ranks, work->tokens, work->shape.hidden);
  moert_status status = fill_tokens(work, set);
  if (!status) status = operand_add_output(work, &work->buffers[set][A2A_RECV], BF16, 3, received);
  if (!status) status = operand_add_output(work, &work->buffers[set][A2A_COUNTS], I32, 1, SHAPE(work->ranks));
  if (!status) status = operand_add_random(work, set, A2A_RESULT, 1, BF16, 3, received);
  return status;
}

static moert_status fill_grouped(Work *work, int set) {
  int64_t experts = routing_local_experts(work, work->rank), pairs = work->shape.top_k < experts ? work->shape.top_k : experts;
  const int64_t *received = SHAPE(work->ranks * work->tokens * pairs, work->shape.hidden);
  moert_status status = fill_tokens(work, set);
  if (!status) status = operand_add_random(work, set, A2A_WEIGHTS, 1, F32, 2, SHAPE(work->tokens, work->shape.top_k));
  if (!status) status = operand_add_output(work, &work->buffers[set][A2A_RECV], BF16, 2, received);
  if (!status) status = operand_add_output(work, &work->buffers[set][A2A_OFFSETS], I32, 1, SHAPE(experts + 1));
  if (!status) status = operand_add_random(work, set, A2A_RESULT, 1, BF16, 2, received);
  return status;
}

static moert_status call_dispatch(Work *work, int set, moert_kernel *kernel, bool grouped) {
  moert_moe_dispatch_params params = MOERT_MOE_DISPATCH_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.n_experts = work->shape.experts;
  params.layout = grouped ? MOERT_MOE_DISPATCH_LAYOUT_EXPERT_GROUPED : MOERT_MOE_DISPATCH_LAYOUT_RANK_MAJOR;
  moert_moe_dispatch_args args = MOERT_MOE_DISPATCH_ARGS_INIT;
  args.topk_ids = operand(work, set, A2A_IDS);
  args.topk_weights = grouped ? operand(work, set, A2A_WEIGHTS) : NULL;
  args.num_payloads = args.num_recv = 1;
  args.payloads = operand(work, set, A2A_PAYLOAD);
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  args.runtime_max_tokens_per_rank = work->tokens;
  args.recv = operand(work, set, A2A_RECV);
  args.recv_counts = grouped ? NULL : operand(work, set, A2A_COUNTS);
  args.offsets = grouped ? operand(work, set, A2A_OFFSETS) : NULL;
  args.combine_payload_offset = &work->combine_offset;
  return moert_moe_dispatch(&params, &args, kernel, work->context);
}

static moert_status call_combine(Work *work, int set, moert_kernel *kernel, bool grouped) {
  moert_moe_combine_params params = MOERT_MOE_COMBINE_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.hidden_size = work->shape.hidden;
  params.layout = grouped ? MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED : MOERT_MOE_COMBINE_LAYOUT_RANK_MAJOR;
  moert_moe_combine_args args = MOERT_MOE_COMBINE_ARGS_INIT;
  args.payload = operand(work, set, A2A_RESULT);
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  args.runtime_max_tokens_per_rank = work->tokens;
  args.combine_payload_offset = work->combine_offset;
  args.out = operand(work, set, A2A_OUT);
  return moert_moe_combine(&params, &args, kernel, work->context);
}

static moert_status call_dispatch_rank_major(Work *work, int set, moert_kernel *kernel) { return call_dispatch(work, set, kernel, false); }
static moert_status call_dispatch_grouped(Work *work, int set, moert_kernel *kernel) { return call_dispatch(work, set, kernel, true); }
static moert_status call_combine_rank_major(Work *work, int set, moert_kernel *kernel) { return call_combine(work, set, kernel, false); }
static moert_status call_combine_grouped(Work *work, int set, moert_kernel *kernel) { return call_combine(work, set, kernel, true); }

// Tokens are read once, received rows written once. A dispatch sends counts, then rows.
static Cost cost_dispatch_rank_major(const Work *work) {
  Traffic traffic = count_traffic(work);
  return (Cost){traffic.sent * row_bytes(work), (work->tokens + traffic.received) * row_bytes(work), 0, 1};
}

static Cost cost_dispatch_grouped(const Work *work) {
  Traffic traffic = count_traffic(work);
  return (Cost){traffic.sent * row_bytes(work), (work->tokens + traffic.rows) * row_bytes(work), 0, 1};
}

// Results are read once, sums written once; what is sent is as much as what came.
static Cost cost_combine_rank_major(const Work *work) {
  Traffic traffic = count_traffic(work);
  return (Cost){traffic.sent * row_bytes(work), (work->tokens + traffic.received) * row_bytes(work), 0, 1};
}

static Cost cost_combine_grouped(const Work *work) {
  Traffic traffic = count_traffic(work);
  return (Cost){traffic.sent * row_bytes(work), (work->tokens + traffic.rows) * row_bytes(work), 0, 1};
}

//===--- ep.dispatch and ep.combine.skip_a2a --------------------------------------------------------===//

enum { EP_IDS, EP_TOKENS, EP_ROWS, EP_OFFSETS, EP_EXPERTS, EP_SOURCES, EP_WEIGHTS, EP_RESULT, EP_OUT };

// As many experts on each rank.
static int64_t ep_experts(const Work *work) { return work->shape.experts / work->ranks; }

static moert_status ep_init(Work *work, uint64_t *addresses) {
  int32_t rank = 0;
  moert_device host = {MOERT_DEVICE_CPU, 0};
  Buffer pointers = {0}, number = {0};
  operand_set(&pointers, addresses, host, I64, 2, SHAPE(MOERT_EP_GROUPS, MOERT_EP_BUFFERS));
  operand_set(&number, &rank, host, I32, 1, SHAPE(1));
  moert_ep_init_params params = MOERT_EP_INIT_PARAMS_INIT;
  params.hidden_size = work->shape.hidden;
  params.top_k = work->shape.top_k;
  params.n_experts = ep_experts(work);
  params.max_token_per_rank = work->tokens;
  moert_ep_init_args args = MOERT_EP_INIT_ARGS_INIT;
  args.atomic_counters_0 = &work->counters[0].tensor;
  args.atomic_counters_1 = &work->counters[1].tensor;
  args.dev_ptrs = &pointers.tensor;
  args.my_rank = &number.tensor;
  return moert_ep_init(&params, &args, NULL, work->context);
}

static moert_status open_ep(Work *work) {
  uint64_t addresses[MOERT_EP_GROUPS * MOERT_EP_BUFFERS];
  int64_t words = moert_ep_lay_out_counters(ep_experts(work)).words;
  moert_status status = MOERT_OK;
  for (int i = 0; i < 2 && !status; ++i) status = operand_add(work, &work->counters[i], I32, 1, SHAPE(words));
  if (!status) status = ep_init(work, addresses);
  if (status) return status;
  for (int i = 0; i < MOERT_EP_GROUPS * MOERT_EP_BUFFERS; ++i) work->addresses[i][work->rank] = addresses[i];
  for (int i = 0; i < MOERT_EP_GROUPS * MOERT_EP_BUFFERS; ++i)
    operand_set(&work->tables[i], work->addresses[i], (moert_device){MOERT_DEVICE_CPU, 0}, I64, 1, SHAPE(work->ranks));
  return MOERT_OK;
}

static moert_status fill_ep(Work *work, int set) {
  int64_t tokens = work->tokens, hidden = work->shape.hidden, experts = ep_experts(work), top_k = work->shape.top_k;
  int64_t rows = tokens * (top_k < experts ? top_k : experts);
  moert_status status = add_experts(work, set, EP_IDS);
  if (!status) status = operand_add_random(work, set, EP_TOKENS, 1, BF16, 2, SHAPE(tokens, hidden));
  if (!status) status = operand_add_output(work, &work->buffers[set][EP_ROWS], BF16, 2, SHAPE(rows, hidden));
  if (!status) status = operand_add_output(work, &work->buffers[set][EP_OFFSETS], I32, 1, SHAPE(experts + 1));
  if (!status) status = operand_add_output(work, &work->buffers[set][EP_EXPERTS], I32, 1, SHAPE(experts));
  if (!status) status = operand_add_output(work, &work->buffers[set][EP_SOURCES], I32, 2, SHAPE(rows, 2));
  if (!status) status = operand_add_random(work, set, EP_WEIGHTS, 1, F32, 2, SHAPE(tokens, top_k));
  if (!status) status = operand_add_random(work, set, EP_RESULT, 1, BF16, 2, SHAPE(rows, hidden));
  if (!status) status = operand_add_output(work, &work->buffers[set][EP_OUT], BF16, 2, SHAPE(tokens, hidden));
  return status;
}

static const moert_tensor *ep_table(const Work *work, int group, int column) { return &work->tables[group * MOERT_EP_BUFFERS + column].tensor; }

static moert_status call_ep_dispatch(Work *work, int set, moert_kernel *kernel) {
  moert_ep_dispatch_params params = MOERT_EP_DISPATCH_PARAMS_INIT;
  params.hidden_size = work->shape.hidden;
  params.top_k = work->shape.top_k;
  params.n_experts = ep_experts(work);
  params.max_token_per_rank = work->tokens;
  params.skip_a2a = 1;
  params.allreduce_world_size = work->ranks;
  moert_ep_dispatch_args args = MOERT_EP_DISPATCH_ARGS_INIT;
  args.output_tokens = operand(work, set, EP_ROWS);
  args.row_offsets = operand(work, set, EP_OFFSETS);
  args.expert_ids = operand(work, set, EP_EXPERTS);
  args.src_info = operand(work, set, EP_SOURCES);
  args.atomic_counters = &work->counters[0].tensor;
  args.input_tokens = operand(work, set, EP_TOKENS);
  args.topk_ids = operand(work, set, EP_IDS);
  args.send_ptrs = ep_table(work, MOERT_EP_DISPATCH, MOERT_EP_SEND);
  args.recv_ptrs = ep_table(work, MOERT_EP_DISPATCH, MOERT_EP_RECV);
  args.recv_count_ptrs = ep_table(work, MOERT_EP_DISPATCH, MOERT_EP_RECV_COUNT);
  return moert_ep_dispatch(&params, &args, kernel, work->context);
}

static moert_status call_ep_combine(Work *work, int set, moert_kernel *kernel) {
  moert_ep_combine_skip_a2a_params params = MOERT_EP_COMBINE_SKIP_A2A_PARAMS_INIT;
  params.hidden_size = work->shape.hidden;
  params.top_k = work->shape.top_k;
  params.n_experts = ep_experts(work);
  params.max_token_per_rank = work->tokens;
  params.allreduce_world_size = work->ranks;
  moert_ep_combine_skip_a2a_args args = MOERT_EP_COMBINE_SKIP_A2A_ARGS_INIT;
  args.output_tokens = operand(work, set, EP_OUT);
  args.atomic_counters = &work->counters[0].tensor;
  args.input_tokens = operand(work, set, EP_RESULT);
  args.src_info = operand(work, set, EP_SOURCES);
  args.send_ptrs = ep_table(work, MOERT_EP_COMBINE, MOERT_EP_SEND);
  args.recv_ptrs = ep_table(work, MOERT_EP_COMBINE, MOERT_EP_RECV);
  args.recv_count_ptrs = ep_table(work, MOERT_EP_COMBINE, MOERT_EP_RECV_COUNT);
  args.router_weights = operand(work, set, EP_WEIGHTS);
  args.topk_ids = operand(work, set, EP_IDS);
  return moert_ep_combine_skip_a2a(&params, &args, kernel, work->context);
}

// Every rank has the same tokens in earnest; here each has its own, which is as much work.
static int64_t count_ep_rows(const Work *work) {
  int64_t rows = 0;
  for (int set = 0; set < work->sets; ++set) {
    int32_t *ids = routing_choose(work, work->rank, set, ROUTING_UNIFORM);
    for (int64_t i = 0; ids && i < work->tokens * work->shape.top_k; ++i) rows += ids[i] / ep_experts(work) == work->rank;
    free(ids);
  }
  return rows / work->sets;
}

static Cost cost_ep(const Work *work) { return (Cost){.memory_bytes = (work->tokens + count_ep_rows(work)) * row_bytes(work)}; }

//===--- the table ----------------------------------------------------------------------------------===//

static const Case bench_cases[] = {
    {"softmax", "bf16", {0, 0, 256, 8}, 0, NULL, fill_route, 1, {{"route", "moe.route", call_route, cost_route}}},
    {"rank_major",
     "bf16",
     {7168, 0, 256, 8},
     0,
     open_all_to_all,
     fill_rank_major,
     2,
     {{"dispatch", "moe.dispatch", call_dispatch_rank_major, cost_dispatch_rank_major},
      {"combine", "moe.combine", call_combine_rank_major, cost_combine_rank_major}}},
    {"expert_grouped",
     "bf16",
     {7168, 0, 256, 8},
     0,
     open_all_to_all,
     fill_grouped,
     2,
     {{"dispatch", "moe.dispatch", call_dispatch_grouped, cost_dispatch_grouped},
      {"combine", "moe.combine", call_combine_grouped, cost_combine_grouped}}},
    {"plain", "bf16", {7168, 0, 0, 0}, 0, allreduce_open, allreduce_fill, 1, {{"allreduce", "moe.allreduce_fusion", allreduce_call, allreduce_cost}}},
    {"experts8",
     "bf16",
     {7168, 0, 8, 0},
     0,
     allreduce_open,
     allreduce_fill,
     1,
     {{"allreduce", "moe.allreduce_fusion", allreduce_call, allreduce_cost}}},
    {"skip_a2a",
     "bf16",
     {7168, 0, 256, 8},
     0,
     open_ep,
     fill_ep,
     2,
     {{"ep.dispatch", "ep.dispatch", call_ep_dispatch, cost_ep}, {"ep.combine", "ep.combine.skip_a2a", call_ep_combine, cost_ep}}},
    {"up, swiglu",
     "bf16",
     {7168, 4096, 32, 8},
     0,
     NULL,
     grouped_fill_gated,
     1,
     {{"grouped_matmul", "moe.grouped_matmul", grouped_call_gated, grouped_cost}}},
    {"down",
     "bf16",
     {2048, 7168, 32, 8},
     0,
     NULL,
     grouped_fill_plain,
     1,
     {{"grouped_matmul", "moe.grouped_matmul", grouped_call_plain, grouped_cost}}},
    {"square",
     "bf16",
     {8192, 8192, 1, 1},
     8192,
     NULL,
     grouped_fill_plain,
     1,
     {{"grouped_matmul", "moe.grouped_matmul", grouped_call_plain, grouped_cost}}},
};

const Case *op_cases(int *count) {
  *count = sizeof bench_cases / sizeof *bench_cases;
  return bench_cases;
}

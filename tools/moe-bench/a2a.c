//===- a2a.c - the cases of the bench of all-to-alls --------------------------------------------------===//
//
// A case of layout rank_major receives in place, in the receive areas of the workspace, and combines one row for each token and rank from memory of
// its own. One of layout expert_grouped receives a row for each pair of token and expert, and combines such rows.
//
//===----------------------------------------------------------------------------------------------===//

#include "a2a.h"
#include "operands.h"
#include <stdlib.h>

enum { SCALED = 128, BF16_BYTES = 2, SWEPT_TOKENS = 4096, NUM_FIGURES = 5, NUM_CASES = 7 };
static const moert_dtype F8 = {MOERT_CODE_F8E4M3FN, 8, 1};

// For 1, 32, 128, 512 and 4096 tokens. 0: none; BY_FLOOR: what the floor allows.
enum { BY_FLOOR = -1 };
typedef struct Figures {
  double goal[NUM_FIGURES], peer[NUM_FIGURES];
} Figures;

// What is special about a case, the steps' figures in their order.
typedef struct Kind {
  bool grouped, fp8, swept;
  Routing routing;
  const char *peer;
  Figures figures[MAX_STEPS];
} Kind;

// Both were measured on 2 x H200 as this bench does it, on 2026-11-29: the kernels of FlashInfer fb28d72 with the best of their block sizes, and
// those of PyTorch and Triton that bench/peers/ep.py describes.
static const char FLASHINFER[] = "flashinfer", TRITON[] = "triton";

static const Kind kinds[NUM_CASES] = {
    {.swept = true,
     .peer = FLASHINFER,
     .figures = {{{4.4, 5.2, 8.4, 24, BY_FLOOR}, {6.3, 7.0, 10.5, 26.6, 166.5}},
                 {{4.4, 5.2, 8.4, 24, 168}, {6.1, 6.5, 9.3, 26.4, 185.5}},
                 {{0}, {11.8, 12.9, 19.2, 53.5, 353.2}}}},
    {.fp8 = true,
     .peer = FLASHINFER,
     .figures = {{{4.4, 4.8, 6.2, 14, BY_FLOOR}, {6.4, 7.0, 8.2, 16.7, 91}}, {{0}, {12.0, 13.0, 17.1, 43.8, 276.0}}}},
    {.grouped = true,
     .peer = TRITON,
     .figures = {{{5.5, 6.5, 10.5, 29, 195}, {9.5, 11.7, 18.7, 50, 343}}, {{5.2, 6.2, 10, 28, 190}, {6.6, 8.2, 15.9, 40, 258}}}},
    {.fp8 = true, .peer = FLASHINFER, .figures = {{{[4] = 29}, {[4] = 59.9}}}},
    {.peer = FLASHINFER, .figures = {{{[4] = 50}, {[4] = 53}}, {{[4] = 51}, {[4] = 55}}}},
    {.routing = ROUTING_ZIPF, .figures = {{{[4] = BY_FLOOR}, {0}}, {{[4] = BY_FLOOR}, {0}}}},
    {.routing = ROUTING_ONE_RANK, .figures = {{{[4] = BY_FLOOR}, {0}}, {{[4] = BY_FLOOR}, {0}}}},
};

static const Case cases[NUM_CASES];
static const Kind *kind_of(const Work *work) { return &kinds[work->what - cases]; }

bool a2a_is_grouped(const Work *work) { return kind_of(work)->grouped; }
Routing a2a_routing(const Work *work) { return kind_of(work)->routing; }
bool a2a_is_swept(const Work *work) { return kind_of(work)->swept && work->tokens >= SWEPT_TOKENS; }

//===--- operands -----------------------------------------------------------------------------------===//

// What a token has of an operand.
typedef struct Row {
  moert_dtype dtype;
  int64_t columns;
} Row;

static Row row_of(const Work *work, int slot) {
  switch (slot) {
  case A2A_IDS: return (Row){I32, work->shape.top_k};
  case A2A_WEIGHTS: return (Row){F32, work->shape.top_k};
  case A2A_SCALES: return (Row){F32, work->shape.hidden / SCALED};
  default: return (Row){kind_of(work)->fp8 ? F8 : BF16, work->shape.hidden};
  }
}

static int64_t bytes_of(Row row) { return row.columns * row.dtype.bits / 8; }

// The grouped layout takes ids and weights along by itself.
static int payload_slots(const Work *work, int slots[]) {
  int count = 0;
  slots[count++] = A2A_ROWS;
  if (kind_of(work)->fp8) slots[count++] = A2A_SCALES;
  if (kind_of(work)->grouped) return count;
  slots[count++] = A2A_IDS;
  slots[count++] = A2A_WEIGHTS;
  return count;
}

// That a token brings to each rank of one of its experts.
static int64_t token_bytes(const Work *work) {
  int64_t bytes = bytes_of(row_of(work, A2A_ROWS)) + bytes_of(row_of(work, A2A_IDS)) + bytes_of(row_of(work, A2A_WEIGHTS));
  return kind_of(work)->fp8 ? bytes + bytes_of(row_of(work, A2A_SCALES)) : bytes;
}

static int64_t result_bytes(const Work *work) { return work->shape.hidden * BF16_BYTES; }

static moert_status open_exchange(Work *work) {
  moert_status status = operand_open_workspace(work, token_bytes(work), result_bytes(work));
  int64_t offset = work->metainfo_words[MOERT_METAINFO_PAYLOAD_DATA];
  int slots[MOERT_WORKSPACE_MAX_PAYLOADS], count = payload_slots(work, slots);
  for (int i = 0; i < count && !status; ++i) {
    Row row = row_of(work, slots[i]);
    operand_set(&work->areas[i], (char *)work->slab + offset, moert_comm_device(work->comm), row.dtype, 3,
                SHAPE(work->ranks, work->tokens, row.columns));
    offset = moert_workspace_align(offset + (int64_t)work->areas[i].bytes);
  }
  return status;
}

// Random bytes; their meaning plays no part in a dispatch.
static moert_status add_payload(Work *work, int set, int slot) {
  Row row = row_of(work, slot);
  moert_status status = operand_add_random(work, set, slot, 1, F32, 2, SHAPE(work->tokens, bytes_of(row) / (int64_t)sizeof(float)));
  Buffer *buffer = &work->buffers[set][slot];
  operand_set(buffer, buffer->tensor.data, buffer->tensor.device, row.dtype, 2, SHAPE(work->tokens, row.columns));
  return status;
}

static moert_status add_ids(Work *work, int set) {
  int32_t *ids = routing_choose(work, work->rank, set, a2a_routing(work));
  if (!ids) return MOERT_ERROR_OUT_OF_MEMORY;
  moert_status status = operand_add_words(work, &work->buffers[set][A2A_IDS], ids, 2, SHAPE(work->tokens, work->shape.top_k));
  free(ids);
  return status;
}

static int64_t grouped_room(const Work *work) {
  int64_t experts = routing_local_experts(work, work->rank), top_k = work->shape.top_k;
  return work->ranks * work->tokens * (top_k < experts ? top_k : experts);
}

static moert_status add_outputs(Work *work) {
  Buffer *buffers = work->buffers[0];
  moert_status status = operand_add_output(work, &buffers[A2A_OUT], BF16, 2, SHAPE(work->tokens, work->shape.hidden));
  if (status || !a2a_is_grouped(work)) return status ? status : operand_add_output(work, &buffers[A2A_COUNTS], I32, 1, SHAPE(work->ranks));
  status = operand_add_output(work, &buffers[A2A_OFFSETS], I32, 1, SHAPE(routing_local_experts(work, work->rank) + 1));
  return status ? status : operand_add_output(work, &buffers[A2A_RECV], BF16, 2, SHAPE(grouped_room(work), work->shape.hidden));
}

static moert_status fill_exchange(Work *work, int set) {
  int64_t hidden = work->shape.hidden;
  moert_status status = set == 0 ? add_outputs(work) : MOERT_OK;
  if (!status) status = add_ids(work, set);
  if (!status) status = operand_add_random(work, set, A2A_WEIGHTS, 1, F32, 2, SHAPE(work->tokens, work->shape.top_k));
  if (!status && kind_of(work)->fp8) status = add_payload(work, set, A2A_SCALES);
  if (!status && kind_of(work)->fp8) status = add_payload(work, set, A2A_ROWS);
  if (!status && !kind_of(work)->fp8) status = operand_add_random(work, set, A2A_ROWS, 1, BF16, 2, SHAPE(work->tokens, hidden));
  if (status) return status;
  return a2a_is_grouped(work) ? operand_add_random(work, set, A2A_RESULT, 1, BF16, 2, SHAPE(grouped_room(work), hidden))
                              : operand_add_random(work, set, A2A_RESULT, 1, BF16, 3, SHAPE(work->ranks, work->tokens, hidden));
}

int a2a_payloads(const Work *work, int set, moert_tensor payloads[]) {
  int slots[MOERT_WORKSPACE_MAX_PAYLOADS], count = payload_slots(work, slots);
  for (int i = 0; i < count; ++i) payloads[i] = *operand(work, set, slots[i]);
  return count;
}

int a2a_received(const Work *work, moert_tensor received[]) {
  int slots[MOERT_WORKSPACE_MAX_PAYLOADS], count = payload_slots(work, slots);
  for (int i = 0; i < count; ++i) received[i] = a2a_is_grouped(work) ? *operand(work, 0, A2A_RECV) : work->areas[i].tensor;
  return count;
}

//===--- calls --------------------------------------------------------------------------------------===//

moert_status a2a_dispatch(Work *work, int set, Launch launch) {
  moert_tensor payloads[MOERT_WORKSPACE_MAX_PAYLOADS], received[MOERT_WORKSPACE_MAX_PAYLOADS];
  bool grouped = a2a_is_grouped(work);
  moert_moe_dispatch_params params = MOERT_MOE_DISPATCH_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.n_experts = work->shape.experts;
  params.layout = grouped ? MOERT_MOE_DISPATCH_LAYOUT_EXPERT_GROUPED : MOERT_MOE_DISPATCH_LAYOUT_RANK_MAJOR;
  params.max_sms = launch.max_sms;
  params.enable_pdl = launch.pdl;
  moert_moe_dispatch_args args = MOERT_MOE_DISPATCH_ARGS_INIT;
  args.topk_ids = operand(work, set, A2A_IDS);
  args.topk_weights = grouped ? operand(work, set, A2A_WEIGHTS) : NULL;
  args.num_payloads = a2a_payloads(work, set, payloads);
  args.num_recv = a2a_received(work, received);
  args.payloads = payloads;
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  args.runtime_max_tokens_per_rank = work->tokens;
  args.recv = received;
  args.recv_counts = grouped ? NULL : operand(work, 0, A2A_COUNTS);
  args.offsets = grouped ? operand(work, 0, A2A_OFFSETS) : NULL;
  args.combine_payload_offset = &work->combine_offset;
  return moert_moe_dispatch(&params, &args, NULL, work->context);
}

moert_status a2a_combine(Work *work, int set, Launch launch) {
  moert_moe_combine_params params = MOERT_MOE_COMBINE_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.hidden_size = work->shape.hidden;
  params.layout = a2a_is_grouped(work) ? MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED : MOERT_MOE_COMBINE_LAYOUT_RANK_MAJOR;
  params.max_sms = launch.max_sms;
  params.enable_pdl = launch.pdl;
  moert_moe_combine_args args = MOERT_MOE_COMBINE_ARGS_INIT;
  args.payload = operand(work, set, A2A_RESULT);
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  args.runtime_max_tokens_per_rank = work->tokens;
  args.combine_payload_offset = work->combine_offset;
  args.out = operand(work, 0, A2A_OUT);
  return moert_moe_combine(&params, &args, NULL, work->context);
}

//===--- costs --------------------------------------------------------------------------------------===//

// Rows that a rank sends to others and receives from them.
typedef struct Traffic {
  int64_t sent[MOERT_MAX_RANKS], received[MOERT_MAX_RANKS];
} Traffic;

static void count_token(const Work *work, int32_t source, const int32_t *ids, Traffic *traffic) {
  uint64_t named = UINT64_C(1) << source;
  for (int64_t k = 0; k < work->shape.top_k; ++k) {
    int32_t rank = routing_owner(work, ids[k]);
    if (named >> rank & 1) continue;
    named |= UINT64_C(1) << rank;
    ++traffic->sent[source];
    ++traffic->received[rank];
  }
}

// Of the rank and direction with the most, the mean of the sets.
static int64_t busiest_rows(const Work *work) {
  int64_t all = 0;
  for (int set = 0; set < work->sets; ++set) {
    Traffic traffic = {{0}, {0}};
    int64_t most = 0;
    for (int32_t source = 0; source < work->ranks; ++source) {
      int32_t *ids = routing_choose(work, source, set, a2a_routing(work));
      for (int64_t t = 0; ids && t < work->tokens; ++t) count_token(work, source, ids + t * work->shape.top_k, &traffic);
      free(ids);
    }
    for (int32_t rank = 0; rank < work->ranks; ++rank) {
      if (traffic.sent[rank] > most) most = traffic.sent[rank];
      if (traffic.received[rank] > most) most = traffic.received[rank];
    }
    all += most;
  }
  return all / work->sets;
}

static Cost cost_dispatch(const Work *work) { return (Cost){.link_bytes = busiest_rows(work) * token_bytes(work)}; }
static Cost cost_combine(const Work *work) { return (Cost){.link_bytes = busiest_rows(work) * result_bytes(work)}; }
static Cost cost_round_trip(const Work *work) { return (Cost){.link_bytes = busiest_rows(work) * (token_bytes(work) + result_bytes(work))}; }

//===--- goals and peers ------------------------------------------------------------------------------===//

static int figure_of(int64_t tokens) {
  static const int64_t counts[NUM_FIGURES] = {1, 32, 128, 512, 4096};
  for (int i = 0; i < NUM_FIGURES; ++i)
    if (counts[i] == tokens) return i;
  return -1;
}

static const Figures *figures_of(const Work *work, const Step *step) { return &kind_of(work)->figures[step - work->what->steps]; }

// By the floor: 4 us for what is not bandwidth, or a tenth where the ranks' loads differ.
double a2a_goal(const Work *work, const Step *step, double floor_us) {
  int column = figure_of(work->tokens);
  double goal = column < 0 ? 0 : figures_of(work, step)->goal[column];
  if (goal != BY_FLOOR) return goal;
  return a2a_routing(work) == ROUTING_UNIFORM ? floor_us + 4 : 1.1 * floor_us;
}

Peer a2a_peer(const Work *work, const Step *step) {
  int column = figure_of(work->tokens);
  return (Peer){kind_of(work)->peer, column < 0 ? 0 : figures_of(work, step)->peer[column]};
}

//===--- the table ----------------------------------------------------------------------------------===//

static const Case cases[NUM_CASES] = {
    {"rank_major",
     "bf16",
     {7168, 0, 256, 8},
     0,
     open_exchange,
     fill_exchange,
     3,
     {{"dispatch", "moe.dispatch", NULL, cost_dispatch},
      {"combine", "moe.combine", NULL, cost_combine},
      {"round_trip", "moe.dispatch and moe.combine", NULL, cost_round_trip}}},
    {"rank_major",
     "fp8",
     {7168, 0, 256, 8},
     0,
     open_exchange,
     fill_exchange,
     2,
     {{"dispatch", "moe.dispatch", NULL, cost_dispatch}, {"round_trip", "moe.dispatch and moe.combine", NULL, cost_round_trip}}},
    {"expert_grouped",
     "bf16",
     {7168, 0, 256, 8},
     0,
     open_exchange,
     fill_exchange,
     3,
     {{"dispatch", "moe.dispatch", NULL, cost_dispatch},
      {"combine", "moe.combine", NULL, cost_combine},
      {"round_trip", "moe.dispatch and moe.combine", NULL, cost_round_trip}}},
    {"rank_major, narrow", "fp8", {2048, 0, 256, 8}, 4096, open_exchange, fill_exchange, 1, {{"dispatch", "moe.dispatch", NULL, cost_dispatch}}},
    {"rank_major, top 1",
     "bf16",
     {4096, 0, 8, 1},
     4096,
     open_exchange,
     fill_exchange,
     2,
     {{"dispatch", "moe.dispatch", NULL, cost_dispatch}, {"combine", "moe.combine", NULL, cost_combine}}},
    {"rank_major, zipf",
     "bf16",
     {7168, 0, 256, 8},
     4096,
     open_exchange,
     fill_exchange,
     2,
     {{"dispatch", "moe.dispatch", NULL, cost_dispatch}, {"combine", "moe.combine", NULL, cost_combine}}},
    {"rank_major, one rank",
     "bf16",
     {7168, 0, 256, 8},
     4096,
     open_exchange,
     fill_exchange,
     2,
     {{"dispatch", "moe.dispatch", NULL, cost_dispatch}, {"combine", "moe.combine", NULL, cost_combine}}},
};

const Case *exchange_cases(int *count) {
  *count = NUM_CASES;
  return cases;
}

//===- ep.c - the ops of the dialect `ep` on a GPU ------------------------------------------------------===//
//
// Rows, groups, counters and sums must have the bits of the host backend, by the kernels that the library chooses and by the generic ones; and what
// does not fit must be refused with the same words, which on a GPU come with the next synchronisation.
//
//===----------------------------------------------------------------------------------------------===//

#include "gpu.h"
#include <math.h>
#include <moert/ep.h>

typedef enum Ids {
  ANY,      // of all ranks, and -1
  ONE,      // all of one expert
  NONE,     // none of any rank
  OF_OTHERS // of other ranks, negative ones, and the largest and smallest numbers
} Ids;

typedef struct Case {
  int64_t tokens, hidden, top_k, experts; // rank r has `uneven` * r tokens more
  int64_t uneven;
  bool shared, special; // special: NaN, infinities, -0 among the numbers
  const char *combine, *weights;
  Ids ids;
  int64_t shift; // elements between a multiple of 256 bytes and the rows
} Case;

typedef struct Layer {
  Case what;
  int64_t tokens, rows; // of this rank
  gpu_buffer *counters[2], *tables[MOERT_EP_GROUPS][MOERT_EP_BUFFERS];
  gpu_buffer *in, *ids, *out, *offsets, *experts, *sources, *results, *weights, *sums;
  moert_tensor shifted[4]; // in, out, results, sums
  int64_t shapes[4][2];
  moert_ep_dispatch_params dispatch_params;
  moert_ep_dispatch_args dispatch_args;
  moert_ep_combine_skip_a2a_params combine_params;
  moert_ep_combine_skip_a2a_args combine_args;
} Layer;

//===--- values -------------------------------------------------------------------------------------===//

static int32_t id(gpu_rank *rank, const Case *what) {
  const int32_t odd[] = {-1, -7, INT32_MAX, INT32_MIN, (int32_t)(what->experts * rank->size)};
  int64_t any = gpu_random_below(rank, what->experts * rank->size + 1) - 1, chosen = gpu_random_below(rank, 6);
  switch (what->ids) {
  case ANY: return (int32_t)any;
  case ONE: return (int32_t)(what->experts - 1);
  case NONE: return -1;
  default: return chosen < 5 ? odd[chosen] : (int32_t)((rank->rank + 1) % rank->size * what->experts);
  }
}

static void fill(gpu_buffer *buffer, const Case *what) {
  const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 3.0e38, 1.0e-40};
  gpu_random(buffer, 2.0);
  if (!what->special) return;
  for (int64_t i = 0; i < buffer->count; ++i) {
    int64_t chosen = gpu_random_below(buffer->rank, 40);
    if (chosen < 7) gpu_set(buffer, i, special[chosen]);
  }
  gpu_upload(buffer);
}

static void fill_ids(gpu_rank *rank, Layer *layer) {
  for (int64_t i = 0; i < layer->ids->count; ++i) gpu_set(layer->ids, i, id(rank, &layer->what));
  gpu_upload(layer->ids);
}

//===--- a layer ------------------------------------------------------------------------------------===//

#define SET_GEOMETRY(params)                                                                                                                         \
  (params).hidden_size = layer->what.hidden, (params).top_k = layer->what.top_k, (params).n_experts = layer->what.experts,                           \
  (params).max_token_per_rank = layer->what.tokens + layer->what.uneven * rank->size + 1

static void init(gpu_rank *rank, Layer *layer) {
  gpu_buffer *pointers = gpu_new_host(rank, "ui64", 2, MOERT_EP_GROUPS, MOERT_EP_BUFFERS), *number = gpu_new_host(rank, "i32", 1, 1);
  moert_ep_init_params params = MOERT_EP_INIT_PARAMS_INIT;
  moert_ep_init_args args = MOERT_EP_INIT_ARGS_INIT;
  for (int i = 0; i < 2; ++i) layer->counters[i] = gpu_new(rank, "i32", 1, moert_ep_lay_out_counters(layer->what.experts).words);
  SET_GEOMETRY(params);
  params.combine_dtype = layer->what.combine[0] == 'b'   ? MOERT_EP_INIT_COMBINE_DTYPE_BF16
                         : layer->what.combine[1] == '1' ? MOERT_EP_INIT_COMBINE_DTYPE_F16
                                                         : MOERT_EP_INIT_COMBINE_DTYPE_F32;
  args.atomic_counters_0 = &layer->counters[0]->tensor;
  args.atomic_counters_1 = &layer->counters[1]->tensor;
  args.dev_ptrs = &pointers->tensor;
  args.my_rank = &number->tensor;
  CHECK_OK(moert_ep_init(&params, &args, NULL, rank->context));
  CHECK_OK(moert_context_synchronize(rank->context));
  gpu_result("my_rank", number);
  CHECK(gpu_is_filled(layer->counters[0], 0));
  CHECK(gpu_is_filled(layer->counters[1], 0));
  gpu_download(pointers);
  for (int64_t i = 0; i < MOERT_EP_GROUPS * MOERT_EP_BUFFERS; ++i) {
    gpu_buffer *table = gpu_new_host(rank, "ui64", 1, rank->size);
    ((uint64_t *)table->host)[rank->rank] = ((const uint64_t *)pointers->host)[i];
    gpu_upload(table);
    layer->tables[i / MOERT_EP_BUFFERS][i % MOERT_EP_BUFFERS] = table;
  }
  for (int group = 0; group < MOERT_EP_GROUPS; ++group) { // "no data"
    uint64_t address = ((const uint64_t *)pointers->host)[group * MOERT_EP_BUFFERS + MOERT_EP_RECV_COUNT], count = 0;
    CHECK_OK(moert_copy(rank->context, &count, (const uint64_t *)(uintptr_t)address + layer->what.experts - 1, sizeof count));
    CHECK(count == MOERT_EP_NO_COUNT);
  }
}

// A matrix that begins `shift` elements behind the beginning of its buffer.
static gpu_buffer *make_matrix(gpu_rank *rank, Layer *layer, int index, const char *dtype, int64_t rows) {
  gpu_buffer *buffer = gpu_new(rank, dtype, 1, rows * layer->what.hidden + layer->what.shift);
  layer->shapes[index][0] = rows;
  layer->shapes[index][1] = layer->what.hidden;
  layer->shifted[index] = buffer->tensor;
  layer->shifted[index].ndim = 2;
  layer->shifted[index].shape = layer->shapes[index];
  layer->shifted[index].byte_offset += (uint64_t)(layer->what.shift * buffer->tensor.dtype.bits / 8);
  return buffer;
}

static void make_buffers(gpu_rank *rank, Layer *layer) {
  const Case *what = &layer->what;
  layer->tokens = what->tokens + what->uneven * rank->rank;
  layer->rows = layer->tokens * what->top_k + (what->shared ? layer->tokens : 0) + 3;
  layer->in = make_matrix(rank, layer, 0, "bf16", layer->tokens);
  layer->out = make_matrix(rank, layer, 1, "bf16", layer->rows);
  layer->results = make_matrix(rank, layer, 2, what->combine, layer->rows);
  layer->sums = make_matrix(rank, layer, 3, what->combine, layer->tokens);
  layer->ids = gpu_new(rank, "i32", 2, layer->tokens, what->top_k);
  layer->weights = gpu_new(rank, what->weights, 2, layer->tokens, what->top_k);
  layer->offsets = gpu_new(rank, "i32", 1, what->experts + what->shared + 1);
  layer->experts = gpu_new(rank, "i32", 1, what->experts + what->shared);
  layer->sources = gpu_new(rank, "i32", 2, layer->rows, 2);
  fill(layer->in, what);
  fill(layer->results, what);
  fill(layer->weights, what);
  fill_ids(rank, layer);
}

static void make_calls(gpu_rank *rank, Layer *layer) {
  layer->dispatch_params = (moert_ep_dispatch_params)MOERT_EP_DISPATCH_PARAMS_INIT;
  SET_GEOMETRY(layer->dispatch_params);
  layer->dispatch_params.fused_shared_expert = layer->what.shared;
  layer->dispatch_params.skip_a2a = 1;
  layer->dispatch_params.allreduce_world_size = rank->size;
  layer->dispatch_args = (moert_ep_dispatch_args){sizeof(moert_ep_dispatch_args),
                                                  &layer->shifted[1],
                                                  &layer->offsets->tensor,
                                                  &layer->experts->tensor,
                                                  &layer->sources->tensor,
                                                  &layer->counters[0]->tensor,
                                                  &layer->shifted[0],
                                                  &layer->ids->tensor,
                                                  &layer->tables[MOERT_EP_DISPATCH][MOERT_EP_SEND]->tensor,
                                                  &layer->tables[MOERT_EP_DISPATCH][MOERT_EP_RECV]->tensor,
                                                  &layer->tables[MOERT_EP_DISPATCH][MOERT_EP_RECV_COUNT]->tensor};
  layer->combine_params = (moert_ep_combine_skip_a2a_params)MOERT_EP_COMBINE_SKIP_A2A_PARAMS_INIT;
  SET_GEOMETRY(layer->combine_params);
  layer->combine_params.fused_shared_expert = layer->what.shared;
  layer->combine_params.allreduce_world_size = rank->size;
  layer->combine_args = (moert_ep_combine_skip_a2a_args){sizeof(moert_ep_combine_skip_a2a_args),
                                                         &layer->shifted[3],
                                                         &layer->counters[0]->tensor,
                                                         &layer->shifted[2],
                                                         &layer->sources->tensor,
                                                         &layer->tables[MOERT_EP_COMBINE][MOERT_EP_SEND]->tensor,
                                                         &layer->tables[MOERT_EP_COMBINE][MOERT_EP_RECV]->tensor,
                                                         &layer->tables[MOERT_EP_COMBINE][MOERT_EP_RECV_COUNT]->tensor,
                                                         &layer->weights->tensor,
                                                         &layer->ids->tensor};
}

static void make_layer(gpu_rank *rank, Layer *layer) {
  layer->what = *(const Case *)rank->user;
  init(rank, layer);
  make_buffers(rank, layer);
  make_calls(rank, layer);
}

//===--- calls --------------------------------------------------------------------------------------===//

// What kernels find wrong comes with the synchronisation.
static moert_status finish(gpu_rank *rank, moert_status status) { return status ? status : moert_context_synchronize(rank->context); }

static moert_status dispatch(gpu_rank *rank, Layer *layer, moert_kernel *kernel) {
  return finish(rank, moert_ep_dispatch(&layer->dispatch_params, &layer->dispatch_args, kernel, rank->context));
}

static moert_status combine(gpu_rank *rank, Layer *layer, moert_kernel *kernel) {
  return finish(rank, moert_ep_combine_skip_a2a(&layer->combine_params, &layer->combine_args, kernel, rank->context));
}

static void check_round(gpu_rank *rank, Layer *layer, moert_kernel *dispatcher, moert_kernel *combiner) {
  gpu_fill(layer->out, GPU_POISON); // rows in no group, and their sources, keep it
  gpu_fill(layer->sources, GPU_POISON);
  gpu_fill(layer->sums, GPU_POISON);
  CHECK_OK(dispatch(rank, layer, dispatcher));
  gpu_result("output_tokens", layer->out);
  gpu_result("row_offsets", layer->offsets);
  gpu_result("expert_ids", layer->experts);
  gpu_result("src_info", layer->sources);
  gpu_result("atomic_counters", layer->counters[0]);
  CHECK_OK(combine(rank, layer, combiner));
  gpu_result("sums", layer->sums);
  CHECK(gpu_is_filled(layer->counters[0], 0));
}

static void body(gpu_rank *rank) {
  Layer layer;
  make_layer(rank, &layer);
  moert_kernel *dispatcher = NULL, *combiner = NULL;
  check_round(rank, &layer, NULL, NULL);
  if (rank->cuda) {
    CHECK_OK(moert_kernel_find("ep.dispatch/sm_90a", &dispatcher));
    CHECK_OK(moert_kernel_find("ep.combine.skip_a2a/sm_90a", &combiner));
  }
  check_round(rank, &layer, dispatcher, combiner);
  fill_ids(rank, &layer);
  check_round(rank, &layer, NULL, NULL);
}

//===--- what is refused ----------------------------------------------------------------------------===//

// A context that has seen an error keeps it.
static void use_new_context(gpu_rank *rank) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  gpu_use_options(rank, &options);
}

static void check_refusal(gpu_rank *rank, const char *name, moert_status status, moert_status expected, const char *text) {
  CHECK_FAILS(status, expected, text);
  gpu_same_status(rank, name, status);
  use_new_context(rank);
}

static bool is_untouched(Layer *layer) {
  return CHECK(gpu_is_filled(layer->out, GPU_POISON)) && CHECK(gpu_is_filled(layer->offsets, GPU_POISON)) &&
         CHECK(gpu_is_filled(layer->experts, GPU_POISON)) && CHECK(gpu_is_filled(layer->sources, GPU_POISON));
}

static void refuse_dispatches(gpu_rank *rank) {
  Layer layer;
  make_layer(rank, &layer);
  int64_t rows = layer.rows;
  layer.shapes[1][0] = layer.sources->shape[0] = 5; // the shared expert has 4, all others go to expert 7
  check_refusal(rank, "capacity", dispatch(rank, &layer, NULL), MOERT_ERROR_CAPACITY,
                "ep.dispatch: 12 rows are for the experts of rank 0, operand 'output_tokens' has room for 5; max_token_per_rank * min(n_experts, "
                "top_k) rows, with a fused shared expert max_token_per_rank more, are enough if no token lists an expert twice");
  is_untouched(&layer);
  CHECK(gpu_is_filled(layer.counters[0], 0));
  layer.shapes[1][0] = layer.sources->shape[0] = rows;
  CHECK_OK(dispatch(rank, &layer, NULL));
  gpu_result("atomic_counters", layer.counters[0]);
  gpu_fill(layer.out, GPU_POISON);
  gpu_fill(layer.offsets, GPU_POISON);
  gpu_fill(layer.experts, GPU_POISON);
  gpu_fill(layer.sources, GPU_POISON);
  check_refusal(rank, "pending", dispatch(rank, &layer, NULL), MOERT_ERROR_INVALID_STATE,
                "ep.dispatch: the dispatch before on these counters waits for its combine: call ep.combine.skip_a2a first");
  is_untouched(&layer);
  gpu_result("atomic_counters", layer.counters[0]);
}

static void refuse_combine(gpu_rank *rank, Layer *layer, const char *name, moert_status expected, const char *text) {
  gpu_fill(layer->sums, GPU_POISON);
  check_refusal(rank, name, combine(rank, layer, NULL), expected, text);
  CHECK(gpu_is_filled(layer->sums, GPU_POISON));
}

// Writes another word for the time of one call.
static void refuse_word(gpu_rank *rank, Layer *layer, gpu_buffer *buffer, int64_t index, int32_t word, const char *name, moert_status expected,
                        const char *text) {
  gpu_download(buffer);
  int32_t *words = buffer->host, before = words[index];
  words[index] = word;
  gpu_upload(buffer);
  refuse_combine(rank, layer, name, expected, text);
  words = buffer->host;
  words[index] = before;
  gpu_upload(buffer);
}

static void refuse_rounds(gpu_rank *rank, Layer *layer) {
  layer->shapes[3][0] = layer->weights->shape[0] = layer->ids->shape[0] = 3;
  refuse_combine(rank, layer, "tokens", MOERT_ERROR_INVALID_STATE,
                 "ep.combine.skip_a2a: operand 'topk_ids' has 3 tokens, must have 4 as in the dispatch");
  layer->shapes[3][0] = layer->weights->shape[0] = layer->ids->shape[0] = layer->tokens;
  layer->combine_params.top_k = layer->weights->shape[1] = layer->ids->shape[1] = 1;
  refuse_combine(rank, layer, "top_k", MOERT_ERROR_INVALID_STATE, "ep.combine.skip_a2a: parameter 'top_k' is 1, must be 2 as in the dispatch");
  layer->combine_params.top_k = layer->weights->shape[1] = layer->ids->shape[1] = layer->what.top_k;
  layer->combine_params.fused_shared_expert = 0;
  refuse_combine(rank, layer, "shared", MOERT_ERROR_INVALID_STATE,
                 "ep.combine.skip_a2a: parameter 'fused_shared_expert' is 0, must be 1 as in the dispatch");
  layer->combine_params.fused_shared_expert = 1;
}

static void refuse_tampering(gpu_rank *rank, Layer *layer) {
  moert_ep_counters words = moert_ep_lay_out_counters(layer->what.experts);
  refuse_word(rank, layer, layer->counters[0], words.segments + 2 * 7 + 1, 9, "count", MOERT_ERROR_INVALID_STATE,
              "ep.combine.skip_a2a: operand 'atomic_counters' was changed since the dispatch: expert 7 has 9 rows up to row 12");
  refuse_word(rank, layer, layer->counters[0], words.segments + 2 * 3, INT32_MIN, "end", MOERT_ERROR_INVALID_STATE,
              "ep.combine.skip_a2a: operand 'atomic_counters' was changed since the dispatch: expert 3 has 0 rows up to row -2147484672");
  layer->shapes[2][0] = layer->sources->shape[0] = 11;
  refuse_combine(rank, layer, "rows", MOERT_ERROR_INVALID_SHAPE,
                 "ep.combine.skip_a2a: operand 'input_tokens' has 11 rows, must have at least 12, which the dispatch placed");
  layer->shapes[2][0] = layer->sources->shape[0] = layer->rows;
  // Row 9 is that of token 2, slot 1.
  refuse_word(rank, layer, layer->sources, 2 * 9, 4, "source", MOERT_ERROR_DATA,
              "ep.combine.skip_a2a: operand 'src_info' has no row for token 2, slot 1, whose expert 7 is one of rank 0: pass 'src_info' and "
              "'topk_ids' of the dispatch");
}

static void refuse_combines(gpu_rank *rank) {
  Layer layer;
  make_layer(rank, &layer);
  refuse_combine(rank, &layer, "idle", MOERT_ERROR_INVALID_STATE,
                 "ep.combine.skip_a2a: no dispatch on these counters waits for its combine: call ep.dispatch first");
  CHECK_OK(dispatch(rank, &layer, NULL));
  refuse_rounds(rank, &layer);
  refuse_tampering(rank, &layer);
  CHECK_OK(combine(rank, &layer, NULL)); // all that was refused has left the round as it was
  gpu_result("sums", layer.sums);
}

static void refuse_instances(gpu_rank *rank) {
  Layer layer;
  moert_kernel *kernel;
  make_layer(rank, &layer);
  CHECK_OK(moert_kernel_find("ep.dispatch/sm_90a/bf16,hidden_size=7168,top_k=8", &kernel));
  CHECK_FAILS(dispatch(rank, &layer, kernel), MOERT_ERROR_INVALID_ARGUMENT,
              "ep.dispatch: kernel is specialisation 0 of the op, which was made for other parameters or element types");
  CHECK_OK(moert_kernel_find("ep.combine.skip_a2a/sm_90a/bf16,hidden_size=2048,top_k=8", &kernel));
  CHECK_FAILS(combine(rank, &layer, kernel), MOERT_ERROR_INVALID_ARGUMENT,
              "ep.combine.skip_a2a: kernel is specialisation 1 of the op, which was made for other parameters or element types");
  is_untouched(&layer);
}

//===--- replays ------------------------------------------------------------------------------------===//

// A layer whose experts do nothing: each token is routed, dispatched and combined again. The weights add up to -1, so that the next one has what was
// chosen last as its smallest logits.
typedef struct Loop {
  Layer layer;
  moert_moe_route_params params;
  moert_moe_route_args args;
  gpu_buffer *weights;
} Loop;

static moert_status turn(gpu_rank *rank, Loop *loop, const moert_tensor *from, const moert_tensor *to) {
  Layer *layer = &loop->layer;
  loop->args.logits = layer->dispatch_args.input_tokens = from;
  layer->combine_args.output_tokens = to;
  moert_status status = moert_moe_route(&loop->params, &loop->args, NULL, rank->context);
  if (!status) status = moert_ep_dispatch(&layer->dispatch_params, &layer->dispatch_args, NULL, rank->context);
  return status ? status : moert_ep_combine_skip_a2a(&layer->combine_params, &layer->combine_args, NULL, rank->context);
}

static moert_status turn_twice(gpu_rank *rank, void *data) {
  Loop *loop = data;
  moert_status status = turn(rank, loop, &loop->layer.shifted[0], &loop->layer.shifted[3]);
  return status ? status : turn(rank, loop, &loop->layer.shifted[3], &loop->layer.shifted[0]);
}

static void replayed(gpu_rank *rank) {
  Loop loop;
  Layer *layer = &loop.layer;
  make_layer(rank, layer);
  loop.weights = gpu_new(rank, "f32", 2, layer->tokens, layer->what.top_k);
  loop.params = (moert_moe_route_params)MOERT_MOE_ROUTE_PARAMS_INIT;
  loop.params.top_k = layer->what.top_k;
  loop.params.n_experts = layer->what.hidden;
  loop.params.renormalize = 1;
  loop.params.routed_scaling_factor = -1.0;
  loop.args = (moert_moe_route_args)MOERT_MOE_ROUTE_ARGS_INIT;
  loop.args.ids = &layer->ids->tensor;
  loop.args.weights = &loop.weights->tensor;
  layer->combine_args.router_weights = &loop.weights->tensor;
  layer->combine_args.input_tokens = &layer->shifted[1];
  CHECK_OK(turn_twice(rank, &loop)); // loads the code and lets the arena grow
  CHECK_OK(gpu_replay(rank, turn_twice, &loop, 20));
  gpu_result("tokens", layer->in);
  gpu_result("ids", layer->ids);
  gpu_result("row_offsets", layer->offsets);
  gpu_result("output_tokens", layer->out);
  gpu_result("atomic_counters", layer->counters[0]);
}

//===--- cases --------------------------------------------------------------------------------------===//

typedef struct Run {
  int32_t ranks;
  gpu_size from; // the smallest extent that has it
  Case what;
} Run;

static const Run runs[] = {
    // those that have instances
    {1, GPU_SMALL, {17, 7168, 8, 16, 0, false, false, "bf16", "f32", ANY, 0}},
    {2, GPU_SMALL, {17, 2048, 8, 16, 3, true, false, "bf16", "bf16", ANY, 0}},
    {1, GPU_QUICK, {130, 7168, 8, 64, 0, true, true, "bf16", "f32", ANY, 0}},
    {1, GPU_QUICK, {17, 7168, 8, 16, 0, true, false, "bf16", "f32", ANY, 1}}, // no vectors of 16 bytes
    // element types, sizes, alignment
    {2, GPU_SMALL, {9, 64, 2, 4, 5, true, true, "f32", "f32", ANY, 0}},
    {2, GPU_SMALL, {9, 64, 3, 5, 5, false, true, "f16", "f16", ANY, 0}},
    {1, GPU_SMALL, {9, 1, 1, 1, 0, true, false, "f32", "bf16", ANY, 0}},
    {1, GPU_QUICK, {9, 100, 32, 3, 0, true, false, "bf16", "f16", ANY, 0}},
    {1, GPU_QUICK, {9, 72, 4, 8, 0, true, false, "f16", "f32", ANY, 3}},
    {1, GPU_QUICK, {9, 12, 4, 8, 0, true, false, "f32", "f32", ANY, 1}},
    {1, GPU_QUICK, {9, 20000, 4, 8, 0, true, false, "bf16", "f32", ANY, 0}},
    // tokens and experts
    {1, GPU_SMALL, {0, 64, 2, 4, 0, true, false, "bf16", "f32", ANY, 0}},
    {4, GPU_SMALL, {0, 64, 2, 4, 1, true, false, "bf16", "f32", ANY, 0}}, // rank 0 has no tokens
    {4, GPU_SMALL, {1, 64, 2, 4, 0, true, false, "bf16", "f32", ANY, 0}},
    {2, GPU_SMALL, {700, 16, 8, 4, 0, false, false, "bf16", "f32", ONE, 0}},
    {2, GPU_SMALL, {70, 16, 8, 4, 0, true, false, "bf16", "f32", NONE, 0}},
    {2, GPU_SMALL, {70, 16, 8, 4, 0, true, false, "bf16", "f32", OF_OTHERS, 0}},
    {1, GPU_QUICK, {300, 16, 8, 1500, 0, true, false, "bf16", "f32", ANY, 0}},
    {1, GPU_QUICK, {40, 16, 8, 65536, 0, false, false, "bf16", "f32", ANY, 0}},
    {4, GPU_QUICK, {511, 256, 8, 64, 37, true, false, "bf16", "f32", ANY, 0}},
    {1, GPU_QUICK, {9000, 8, 8, 256, 0, true, false, "bf16", "f32", ANY, 0}}, // several tiles in a section
    {1, GPU_FULL, {4096, 7168, 8, 32, 0, true, false, "bf16", "f32", ANY, 0}},
};

static const char *name_of(Ids ids) {
  static const char *const names[] = {"any experts", "one expert", "no experts", "others' experts"};
  return names[ids];
}

static void run(Run what) {
  const Case *c = &what.what;
  if (gpu_extent() < what.from) return;
  gpu_case("%d ranks, %lld tokens%s x %lld, top %lld of %lld experts%s, %s %s, %s, shift %lld%s", what.ranks, (long long)c->tokens,
           c->uneven ? " (uneven)" : "", (long long)c->hidden, (long long)c->top_k, (long long)c->experts, c->shared ? " and a shared one" : "",
           c->combine, c->weights, name_of(c->ids), (long long)c->shift, c->special ? ", special values" : "")
      gpu_both(what.ranks, 0, body, &what.what);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  for (size_t i = 0; i < sizeof runs / sizeof *runs; ++i) run(runs[i]);
  Case refused = {4, 32, 2, 8, 0, true, false, "f32", "f32", ONE, 0}, looped = {64, 32, 4, 32, 0, false, false, "bf16", "f32", ANY, 0};
  gpu_case("dispatches that are refused") gpu_both(1, 1, refuse_dispatches, &refused);
  gpu_case("combines that are refused") gpu_both(1, 1, refuse_combines, &refused);
  gpu_case("kernels for other parameters") gpu_only(1, 1, refuse_instances, &refused);
  gpu_case("replays") gpu_both(1, 1, replayed, &looped);
  return gpu_end();
}

//===- nvfp4_routed.c - moe.nvfp4_routed and moe.prepare_nvfp4 on a GPU ------------------------------------===//
//
// Plans and panels must have the bits of the host backend. Sums on a GPU have another order, by which an activation may get another code of NVFP4, so
// that outputs are compared by their distance; those of exact cases, whose sums are the same in any order, must have the host's bits, too.
//
//===----------------------------------------------------------------------------------------------===//

#include "gpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLAYS = 3 };

//===--- cases --------------------------------------------------------------------------------------===//

typedef enum Choices {
  ANY,     // experts of the layer and nobody
  NEAR,    // those of the weights, and two on either side
  NOBODY,  // -1
  OUTSIDE, // ids beyond both ends, few experts
  ONE,     // the last expert, for all
  TWICE    // each token has the same expert in all slots
} Choices;

typedef enum Numbers {
  USUAL,     // near 1
  EXACT,     // few, whole ones and powers of two
  NOT_NUMBER // token 1 has a scale that is NaN
} Numbers;

typedef struct Case {
  const char *name;
  int64_t tokens, hidden, columns, experts, top_k, block_m; // `columns` of gemm1_weights
  Choices choices;
  Numbers numbers;
  double factor;
  bool accumulate;
  int64_t spare;              // blocks that the plan leaves free
  int64_t padding;            // bytes between rows of the states
  int64_t shift;              // elements between a multiple of 256 bytes and states, weights, scales, fragments and out
  bool generic;               // ask for the generic kernel
  int64_t first, all_experts; // of the weights, in a layer of so many; 0: they are all
} Case;

// A case, and what the host backend has made of it.
typedef struct Comparison {
  Case what;
  double *expected[REPLAYS];
} Comparison;

typedef struct Operand {
  gpu_buffer *buffer; // a list that has `shift` elements before the tensor's
  moert_tensor tensor;
  int64_t shape[3], strides[2], shift;
} Operand;

typedef struct Plan {
  gpu_buffer *sorted, *experts, *padded, *cumsum;
} Plan;

typedef struct Layer {
  Case what;
  Operand states, state_scales, first, first_scales, second, second_scales, gate, up, down, out;
  gpu_buffer *ids, *weights;
  Plan plan;
  bool has_fragments; // and passes them
  Operand first_fragments, second_fragments;
} Layer;

//===--- operands -----------------------------------------------------------------------------------===//

// Tensors point into it: it stays where it is. Rows of a matrix may have `padding` elements between them.
static void make_operand(gpu_rank *rank, Operand *operand, const char *dtype, int64_t shift, int64_t padding, int32_t ndim, const int64_t *shape) {
  int64_t count = 1;
  for (int32_t i = 0; i < ndim; ++i) count *= operand->shape[i] = shape[i];
  operand->shift = shift;
  operand->strides[0] = shape[ndim - 1] + padding;
  operand->strides[1] = 1;
  operand->buffer = gpu_new(rank, dtype, 1, shift + count + (padding ? shape[0] * padding : 0));
  operand->tensor = operand->buffer->tensor;
  operand->tensor.ndim = ndim;
  operand->tensor.shape = operand->shape;
  operand->tensor.strides = padding ? operand->strides : NULL;
  operand->tensor.byte_offset += (uint64_t)(shift * operand->tensor.dtype.bits / 8);
}

// Eight bytes at a time: there may be many.
static void random_bytes(gpu_buffer *buffer, uint64_t mask, uint64_t base) {
  unsigned char *bytes = buffer->host;
  for (size_t i = 0; i < buffer->bytes; i += 8) {
    const uint64_t word = (gpu_random_bits(buffer->rank) & mask) + base;
    memcpy(bytes + i, &word, buffer->bytes - i < 8 ? buffer->bytes - i : 8);
  }
  gpu_upload(buffer);
}

// Any codes; of exact cases those of 0, 1 and -1, mostly zeros.
static void make_codes(gpu_rank *rank, Operand *operand, Numbers numbers) {
  static const unsigned char few[8] = {0, 0, 0, 0, 0, 0, 2, 10};
  random_bytes(operand->buffer, ~0ull, 0);
  if (numbers != EXACT) return;
  unsigned char *bytes = operand->buffer->host;
  for (size_t i = 0; i < operand->buffer->bytes; ++i) {
    const uint64_t bits = gpu_random_bits(rank) >> 20;
    bytes[i] = (unsigned char)(few[bits & 7] | few[bits >> 3 & 7] << 4);
  }
  gpu_upload(operand->buffer);
}

// From 1/4 to 4; of exact cases 1 and 2.
static void make_scales(const Operand *operand, Numbers numbers) {
  if (numbers == EXACT)
    random_bytes(operand->buffer, 0x0808080808080808, 0x3838383838383838);
  else
    random_bytes(operand->buffer, 0x1f1f1f1f1f1f1f1f, 0x2828282828282828);
}

static void make_rows(gpu_rank *rank, const Case *what, Operand *codes, Operand *scales, int64_t padding, int32_t ndim, const int64_t *shape) {
  int64_t half[3], sixteenth[3];
  for (int32_t i = 0; i < ndim; ++i) half[i] = sixteenth[i] = shape[i];
  half[ndim - 1] /= 2, sixteenth[ndim - 1] /= 16;
  make_operand(rank, codes, "ui8", what->shift, padding, ndim, half);
  make_operand(rank, scales, "f8E4M3FN", what->shift, 0, ndim, sixteenth);
  make_codes(rank, codes, what->numbers);
  make_scales(scales, what->numbers);
}

// `base`, times something from 1/2 to 3/2 of each expert; of exact cases `exact`.
static void make_factors(gpu_rank *rank, const Case *what, Operand *factors, double base, double exact) {
  make_operand(rank, factors, "f32", 0, 0, 1, &what->experts);
  for (int64_t e = 0; e < what->experts; ++e)
    gpu_set(factors->buffer, e, what->numbers == EXACT ? exact : base * (0.5 + (double)gpu_random_below(rank, 1000) / 1000));
  gpu_upload(factors->buffer);
}

static int64_t choose(gpu_rank *rank, const Case *what, int64_t token) {
  switch (what->choices) {
  case ANY: return gpu_random_below(rank, (what->all_experts ? what->all_experts : what->experts) + 1) - 1;
  case NEAR: return what->first - 2 + gpu_random_below(rank, what->experts + 4);
  case NOBODY: return -1;
  case OUTSIDE: return gpu_random_below(rank, 4) == 0 ? gpu_random_below(rank, what->experts) : gpu_random_below(rank, 2) ? what->experts : -7;
  case ONE: return what->experts - 1;
  case TWICE: return token % what->experts;
  }
  return 0;
}

static gpu_buffer *make_ids(gpu_rank *rank, const Case *what) {
  gpu_buffer *ids = gpu_new(rank, "i32", 2, what->tokens, what->top_k);
  for (int64_t pair = 0; pair < ids->count; ++pair) gpu_set(ids, pair, (double)choose(rank, what, pair / what->top_k));
  gpu_upload(ids);
  return ids;
}

static gpu_buffer *make_weights(gpu_rank *rank, const Case *what) {
  gpu_buffer *weights = gpu_new(rank, "f32", 2, what->tokens, what->top_k);
  gpu_random(weights, 1.0);
  for (int64_t i = 0; what->numbers == EXACT && i < weights->count; ++i) gpu_set(weights, i, ldexp(1, (int)gpu_random_below(rank, 3) - 1));
  gpu_upload(weights);
  return weights;
}

// What `out` holds before the call: of exact cases whole numbers, and others that have bits of their own.
static void make_out(gpu_rank *rank, const Case *what, Operand *out) {
  static const double special[] = {NAN, INFINITY, -0.0, 0x1p-130};
  make_operand(rank, out, "bf16", what->shift, 0, 2, (const int64_t[]){what->tokens, what->hidden});
  if (!what->accumulate) return; // it is poison
  gpu_random(out->buffer, 1.0);
  for (int64_t i = 0; what->numbers == EXACT && i < out->buffer->count; ++i)
    gpu_set(out->buffer, i, i % 97 == 0 ? special[i / 97 % 4] : (double)gpu_random_below(rank, 17) - 8);
  gpu_upload(out->buffer);
}

static int64_t blocks_of(const Case *what, const gpu_buffer *ids) {
  int64_t *counts = calloc((size_t)what->experts + 1, sizeof *counts), blocks = 0;
  for (int64_t pair = 0; pair < ids->count; ++pair) {
    const int64_t expert = (int64_t)gpu_get(ids, pair) - what->first;
    ++counts[expert >= 0 && expert < what->experts ? expert + 1 : 0];
  }
  for (int64_t bin = 0; bin <= what->experts; ++bin) blocks += (counts[bin] + what->block_m - 1) / what->block_m;
  free(counts);
  return blocks;
}

static Plan make_plan(gpu_rank *rank, const Case *what, int64_t blocks) {
  if (blocks < 1) blocks = 1;
  return (Plan){gpu_new(rank, "i32", 1, blocks * what->block_m + 3), gpu_new(rank, "i32", 1, blocks), gpu_new(rank, "i32", 1, 1),
                gpu_new(rank, "i32", 1, what->experts + 5)};
}

// Numbers are of 5 on average, and scaled so that gates, up projections and results are near 1.
static void make_layer(gpu_rank *rank, const Case *what, Layer *layer) {
  const int64_t inner = what->columns / 2;
  const double products = 25.7 * sqrt((double)what->hidden);
  *layer = (Layer){.what = *what};
  make_rows(rank, what, &layer->states, &layer->state_scales, what->padding, 2, (const int64_t[]){what->tokens, what->hidden});
  make_rows(rank, what, &layer->first, &layer->first_scales, 0, 3, (const int64_t[]){what->experts, what->columns, what->hidden});
  make_rows(rank, what, &layer->second, &layer->second_scales, 0, 3, (const int64_t[]){what->experts, what->hidden, inner});
  make_factors(rank, what, &layer->gate, 1 / products, 128);
  make_factors(rank, what, &layer->up, 4 / products, 0x1p-14);
  make_factors(rank, what, &layer->down, 0.1 / sqrt((double)inner), 0.5);
  layer->ids = make_ids(rank, what);
  layer->weights = make_weights(rank, what);
  make_out(rank, what, &layer->out);
  layer->plan = make_plan(rank, what, blocks_of(what, layer->ids) + what->spare);
  if (what->numbers != NOT_NUMBER) return;
  gpu_set(layer->state_scales.buffer, what->shift + what->hidden / 16 + 3, 0x7f);
  gpu_upload(layer->state_scales.buffer);
}

// Leaves the layer `count` experts, behind those `skipped`.
static void take_experts(Layer *layer, int64_t skipped, int64_t count) {
  Operand *const all[] = {&layer->first, &layer->first_scales, &layer->second, &layer->second_scales, &layer->gate, &layer->up, &layer->down};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    int64_t each = all[i]->tensor.dtype.bits / 8;
    for (int32_t dim = 1; dim < all[i]->tensor.ndim; ++dim) each *= all[i]->shape[dim];
    all[i]->tensor.byte_offset += (uint64_t)(skipped * each);
    all[i]->shape[0] = count;
  }
  layer->what.first += skipped;
  layer->what.experts = count;
}

//===--- calls --------------------------------------------------------------------------------------===//

static moert_status prepare(gpu_rank *rank, int64_t layout, const Operand *source, const Operand *scales, const Operand *prepared, bool generic) {
  moert_moe_prepare_nvfp4_params params = MOERT_MOE_PREPARE_NVFP4_PARAMS_INIT;
  moert_moe_prepare_nvfp4_args args = MOERT_MOE_PREPARE_NVFP4_ARGS_INIT;
  params.layout = layout;
  args.source = &source->tensor;
  args.scales = scales ? &scales->tensor : NULL;
  args.prepared = &prepared->tensor;
  moert_kernel *kernel = NULL;
  if (generic && rank->cuda) CHECK_OK(moert_kernel_find("moe.prepare_nvfp4/sm_90a/ui8", &kernel));
  const moert_status status = moert_moe_prepare_nvfp4(&params, &args, kernel, rank->context);
  return status ? status : moert_context_synchronize(rank->context);
}

static void make_fragments(gpu_rank *rank, int64_t layout, const Operand *source, const Operand *scales, Operand *made) {
  const int64_t panels = source->shape[0] * (source->shape[1] / 64) * (source->shape[2] / 64);
  make_operand(rank, made, "ui8", source->shift, 0, 3, (const int64_t[]){panels, 36, 128});
  CHECK_OK(prepare(rank, layout, source, scales, made, false));
}

static void add_fragments(gpu_rank *rank, Layer *layer) {
  make_fragments(rank, MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_FRAGMENTS, &layer->first, &layer->first_scales, &layer->first_fragments);
  make_fragments(rank, MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_FRAGMENTS, &layer->second, &layer->second_scales, &layer->second_fragments);
  layer->has_fragments = true;
}

static moert_status route(gpu_rank *rank, const Layer *layer) {
  const Case *what = &layer->what;
  moert_moe_nvfp4_routed_params params = MOERT_MOE_NVFP4_ROUTED_PARAMS_INIT;
  moert_moe_nvfp4_routed_args args = MOERT_MOE_NVFP4_ROUTED_ARGS_INIT;
  params.top_k = what->top_k;
  params.block_m = what->block_m;
  params.routed_scaling_factor = what->factor;
  params.accumulate = what->accumulate;
  params.first_expert = what->first;
  params.num_experts = what->all_experts;
  args.hidden_states = &layer->states.tensor;
  args.hidden_states_scale = &layer->state_scales.tensor;
  args.gemm1_weights = &layer->first.tensor;
  args.gemm1_weights_scale = &layer->first_scales.tensor;
  args.gemm2_weights = &layer->second.tensor;
  args.gemm2_weights_scale = &layer->second_scales.tensor;
  args.output1_scale_gate_scalar = &layer->gate.tensor;
  args.output1_scale_scalar = &layer->up.tensor;
  args.output2_scale_scalar = &layer->down.tensor;
  args.topk_ids = &layer->ids->tensor;
  args.topk_weights = &layer->weights->tensor;
  if (layer->has_fragments) {
    args.w1_fragments_prepared = &layer->first_fragments.tensor;
    args.w2_fragments_prepared = &layer->second_fragments.tensor;
  }
  args.sorted_token_ids = &layer->plan.sorted->tensor;
  args.expert_ids = &layer->plan.experts->tensor;
  args.num_tokens_post_padded = &layer->plan.padded->tensor;
  args.cumsum_buffer = &layer->plan.cumsum->tensor;
  args.out = &layer->out.tensor;
  moert_kernel *kernel = NULL;
  if (what->generic && rank->cuda) CHECK_OK(moert_kernel_find("moe.nvfp4_routed/sm_90a/ui8", &kernel));
  return moert_moe_nvfp4_routed(&params, &args, kernel, rank->context);
}

static moert_status route_and_wait(gpu_rank *rank, const Layer *layer) {
  const moert_status status = route(rank, layer);
  return status ? status : moert_context_synchronize(rank->context);
}

//===--- outputs ------------------------------------------------------------------------------------===//

static void compare_plan(const Plan *plan) {
  gpu_result("sorted_token_ids", plan->sorted);
  gpu_result("expert_ids", plan->experts);
  gpu_result("num_tokens_post_padded", plan->padded);
  gpu_result("cumsum_buffer", plan->cumsum);
}

static void remember(const gpu_buffer *out, double **expected) {
  free(*expected);
  *expected = malloc((size_t)(out->count + 1) * sizeof **expected);
  for (int64_t i = 0; i < out->count; ++i) (*expected)[i] = gpu_get(out, i);
}

static void check_distance(const gpu_buffer *out, int64_t shift, const double *expected) {
  double squares = 0, reference = 0;
  int64_t unlike = 0; // NaN or infinities, and the host has none or others
  for (int64_t i = shift; i < out->count; ++i) {
    const double value = gpu_get(out, i);
    if (!isfinite(value) || !isfinite(expected[i])) {
      unlike += !(isnan(value) && isnan(expected[i])) && value != expected[i];
      continue;
    }
    squares += (value - expected[i]) * (value - expected[i]);
    reference += expected[i] * expected[i];
  }
  CHECK(unlike == 0);
  gpu_check(sqrt(squares) <= 1e-2 * sqrt(reference) + 1e-30, __FILE__, __LINE__, "the distance is %g of %g", sqrt(squares), sqrt(reference));
}

// Of the host backend's that came first.
static void compare_out(gpu_rank *rank, Comparison *comparison, gpu_buffer *out, int number) {
  gpu_download(out);
  if (comparison->what.numbers == EXACT)
    gpu_result("out", out);
  else if (!rank->is_compared)
    remember(out, &comparison->expected[number]);
  else if (CHECK(comparison->expected[number] != NULL))
    check_distance(out, comparison->what.shift, comparison->expected[number]);
}

static void poison_plan(const Plan *plan) {
  gpu_buffer *const all[] = {plan->sorted, plan->experts, plan->padded, plan->cumsum};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) gpu_fill(all[i], GPU_POISON);
}

static void *copy_of(const gpu_buffer *buffer) {
  void *copy = malloc(buffer->bytes + 1);
  memcpy(copy, buffer->host, buffer->bytes);
  return copy;
}

static void restore(gpu_buffer *buffer, const void *bytes) {
  memcpy(buffer->host, bytes, buffer->bytes);
  gpu_upload(buffer);
}

// Runs it on the `out` of before; its bits must be those of `first`.
static void repeat(gpu_rank *rank, Layer *layer, const void *seed, const void *first) {
  restore(layer->out.buffer, seed);
  poison_plan(&layer->plan);
  CHECK_OK(route_and_wait(rank, layer));
  gpu_download(layer->out.buffer);
  CHECK(memcmp(first, layer->out.buffer->host, layer->out.buffer->bytes) == 0);
}

//===--- layers -------------------------------------------------------------------------------------===//

// All runs have the same bits, by the kernels of the library's choice and by the generic one, and by both once more with fragments.
static void body_layer(gpu_rank *rank) {
  Comparison *comparison = rank->user;
  Layer layer;
  make_layer(rank, &comparison->what, &layer);
  void *seed = copy_of(layer.out.buffer);
  CHECK_OK(route_and_wait(rank, &layer));
  compare_plan(&layer.plan);
  compare_out(rank, comparison, layer.out.buffer, 0);
  void *first = copy_of(layer.out.buffer);
  for (int run = 0; run < 6 && rank->cuda; ++run) {
    layer.what.generic = run == 3 || run == 5;
    if (run == 4) add_fragments(rank, &layer);
    repeat(rank, &layer, seed, first);
  }
  free(seed), free(first);
}

// Without `accumulate` as with it on zeros.
static void body_accumulate(gpu_rank *rank) {
  Comparison *comparison = rank->user;
  Layer layer;
  make_layer(rank, &comparison->what, &layer);
  layer.what.accumulate = false;
  CHECK_OK(route_and_wait(rank, &layer));
  gpu_download(layer.out.buffer);
  void *zeros = calloc(layer.out.buffer->bytes + 1, 1), *alone = copy_of(layer.out.buffer);
  memcpy(zeros, alone, (size_t)(layer.what.shift * 2)); // what is in front of it
  layer.what.accumulate = true;
  repeat(rank, &layer, zeros, alone);
  free(zeros), free(alone);
}

// Some of the experts, then the others, each on what is there: as the host's, and near the whole layer.
static void body_parts(gpu_rank *rank) {
  Comparison *comparison = rank->user;
  const int64_t experts = comparison->what.experts, parts[] = {experts / 4, experts - experts / 4};
  double *whole = NULL;
  Layer layer;
  make_layer(rank, &comparison->what, &layer);
  void *seed = copy_of(layer.out.buffer);
  CHECK_OK(route_and_wait(rank, &layer));
  gpu_download(layer.out.buffer);
  remember(layer.out.buffer, &whole);
  restore(layer.out.buffer, seed);
  for (int part = 0; part < 2; ++part) {
    take_experts(&layer, part ? parts[0] : 0, parts[part]);
    layer.plan = make_plan(rank, &layer.what, blocks_of(&layer.what, layer.ids));
    CHECK_OK(route_and_wait(rank, &layer));
    compare_plan(&layer.plan);
    compare_out(rank, comparison, layer.out.buffer, part);
  }
  check_distance(layer.out.buffer, comparison->what.shift, whole);
  free(seed), free(whole);
}

// One block short: nothing is written, both backends say the same, and the next call works.
static void body_fault(gpu_rank *rank) {
  Comparison *comparison = rank->user;
  Layer layer;
  char text[256];
  make_layer(rank, &comparison->what, &layer);
  void *seed = copy_of(layer.out.buffer);
  const int64_t blocks = blocks_of(&layer.what, layer.ids);
  snprintf(
      text, sizeof text,
      "moe.nvfp4_routed: operand 'expert_ids' has room for %lld blocks, must have room for the %lld of the plan, and 'sorted_token_ids' for %lld "
      "entries each",
      (long long)blocks - 1, (long long)blocks, (long long)layer.what.block_m);
  const moert_status status = route_and_wait(rank, &layer);
  gpu_same_status(rank, "fault", status);
  CHECK_FAILS(status, MOERT_ERROR_CAPACITY, text);
  const Plan *plan = &layer.plan;
  CHECK(gpu_is_filled(plan->sorted, GPU_POISON) && gpu_is_filled(plan->experts, GPU_POISON));
  CHECK(gpu_is_filled(plan->padded, GPU_POISON) && gpu_is_filled(plan->cumsum, GPU_POISON));
  gpu_download(layer.out.buffer);
  CHECK(memcmp(seed, layer.out.buffer->host, layer.out.buffer->bytes) == 0);
  CHECK(moert_comm_status(rank->comm) == MOERT_OK); // no peer can feel it
  layer.plan = make_plan(rank, &layer.what, blocks);
  CHECK_OK(route(rank, &layer));
  CHECK_FAILS(moert_context_synchronize(rank->context), MOERT_ERROR_CAPACITY, text); // the context's first error stays
  compare_plan(&layer.plan);
  compare_out(rank, comparison, layer.out.buffer, 0);
  free(seed);
}

//===--- graphs -------------------------------------------------------------------------------------===//

// Ids come in turn from lists that the graph itself moves on.
typedef struct Replays {
  Layer layer;
  gpu_buffer *ids[REPLAYS + 1];                // of the next replays, the last is for the exchange
  gpu_buffer *outs[REPLAYS], *sorted[REPLAYS]; // of the replays before, the newest first
} Replays;

static moert_status copy(gpu_rank *rank, gpu_buffer *to, gpu_buffer *from) {
  return moert_copy(rank->context, to->tensor.data, from->tensor.data, to->bytes);
}

static moert_status keep(gpu_rank *rank, gpu_buffer **newest, gpu_buffer *from) {
  moert_status status = MOERT_OK;
  for (int i = REPLAYS - 1; i > 0 && !status; --i) status = copy(rank, newest[i], newest[i - 1]);
  return status ? status : copy(rank, newest[0], from);
}

static moert_status step(gpu_rank *rank, void *data) {
  Replays *replays = data;
  moert_status status = copy(rank, replays->layer.ids, replays->ids[0]);
  if (!status) status = route(rank, &replays->layer);
  if (!status) status = keep(rank, replays->outs, replays->layer.out.buffer);
  if (!status) status = keep(rank, replays->sorted, replays->layer.plan.sorted);
  if (!status) status = copy(rank, replays->ids[REPLAYS], replays->ids[0]);
  for (int i = 0; i < REPLAYS && !status; ++i) status = copy(rank, replays->ids[i], replays->ids[i + 1]);
  return status;
}

static void body_replay(gpu_rank *rank) {
  Comparison *comparison = rank->user;
  const Case *what = &comparison->what;
  Replays replays;
  make_layer(rank, what, &replays.layer);
  replays.layer.plan = make_plan(rank, what, 1 + (what->tokens * what->top_k + what->experts * (what->block_m - 1)) / what->block_m);
  for (int i = 0; i <= REPLAYS; ++i) replays.ids[i] = make_ids(rank, what);
  for (int i = 0; i < REPLAYS; ++i) {
    replays.outs[i] = gpu_new(rank, "bf16", 1, replays.layer.out.buffer->count);
    replays.sorted[i] = gpu_new(rank, "i32", 1, replays.layer.plan.sorted->count);
  }
  CHECK_OK(route_and_wait(rank, &replays.layer)); // the arena grows
  CHECK_OK(gpu_replay(rank, step, &replays, REPLAYS));
  for (int i = 0; i < REPLAYS; ++i) {
    gpu_result("sorted_token_ids", replays.sorted[i]);
    compare_out(rank, comparison, replays.outs[i], i);
  }
}

//===--- panels -------------------------------------------------------------------------------------===//

typedef struct Panels {
  const char *name;
  int64_t layout, row_bytes, height, width; // `row_bytes`: of the source
  int64_t shift;
  bool fragments; // with scales
} Panels;

enum { PANEL_EXPERTS = 2, PANEL_ROWS = 512 };

// All bytes are codes, and scales.
static void body_panels(gpu_rank *rank) {
  const Panels *what = rank->user;
  const int64_t bytes = PANEL_EXPERTS * PANEL_ROWS * what->row_bytes, made = what->fragments ? bytes + bytes / 8 : bytes;
  Operand source, scales, prepared;
  make_operand(rank, &source, "ui8", what->shift, 0, 3, (const int64_t[]){PANEL_EXPERTS, PANEL_ROWS, what->row_bytes});
  make_operand(rank, &scales, "f8E4M3FN", what->shift, 0, 3, (const int64_t[]){PANEL_EXPERTS, PANEL_ROWS, what->row_bytes / 8});
  make_operand(rank, &prepared, "ui8", what->shift, 0, 3, (const int64_t[]){made / (what->height * what->width), what->height, what->width});
  random_bytes(source.buffer, ~0ull, 0);
  random_bytes(scales.buffer, ~0ull, 0);
  for (int generic = 0; generic < 2; ++generic) {
    gpu_fill(prepared.buffer, GPU_POISON);
    CHECK_OK(prepare(rank, what->layout, &source, what->fragments ? &scales : NULL, &prepared, generic));
    gpu_result(generic ? "panels of the generic kernel" : "panels", prepared.buffer);
  }
}

//===--- what is run --------------------------------------------------------------------------------===//

static void run(const Case *what, gpu_body *body) {
  Comparison comparison = {.what = *what};
  gpu_both(1, 1, body, &comparison);
  for (int i = 0; i < REPLAYS; ++i) free(comparison.expected[i]);
}

// For tools that slow everything down: every third case.
static bool is_left_out(void) {
  static int number;
  return number++ % 3 != 0 && gpu_extent() == GPU_SMALL;
}

static void run_layers(void) {
  static const Case cases[] = {
      {"one token", 1, 256, 256, 16, 8, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"nine pairs", 3, 512, 256, 5, 3, 8, ANY, USUAL, 2.5, false, 2, 0, 0, false, 0, 0},
      {"groups of all sizes", 65, 512, 1024, 8, 4, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"the plan is full", 37, 256, 512, 6, 2, 16, ANY, USUAL, 2.5, true, 0, 0, 0, false, 0, 0},
      {"blocks of 24", 40, 256, 256, 6, 6, 24, ANY, USUAL, 1, false, 1, 0, 0, false, 0, 0},
      {"one choice", 33, 256, 256, 7, 1, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"32 choices", 9, 256, 256, 32, 32, 8, ANY, USUAL, 2.5, true, 2, 0, 0, false, 0, 0},
      {"one expert", 20, 256, 256, 1, 1, 8, ANY, USUAL, 1, false, 2, 0, 0, false, 0, 0},
      {"1024 experts", 20, 256, 256, 1024, 4, 8, ANY, USUAL, 1, false, 2, 0, 0, false, 0, 0},
      {"no tokens", 0, 256, 256, 4, 2, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"choices of nobody", 11, 256, 256, 4, 2, 8, NOBODY, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"choices of nobody, alone", 11, 256, 256, 4, 2, 8, NOBODY, USUAL, 1, false, 2, 0, 0, false, 0, 0},
      {"ids out of range", 50, 256, 256, 4, 2, 16, OUTSIDE, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"all choices of one expert", 150, 256, 256, 9, 2, 8, ONE, USUAL, 1, false, 2, 0, 0, false, 0, 0},
      {"an expert more than once", 21, 256, 256, 5, 3, 8, TWICE, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"rows that lie apart", 30, 512, 256, 5, 2, 8, ANY, USUAL, 1, true, 2, 48, 0, false, 0, 0},
      {"rows at any distance", 30, 256, 256, 5, 2, 8, ANY, USUAL, 1, true, 2, 3, 0, false, 0, 0},
      {"any address", 18, 256, 512, 5, 2, 8, ANY, USUAL, 1, true, 2, 5, 1, false, 0, 0},
      {"NaN", 12, 256, 256, 4, 2, 8, ANY, NOT_NUMBER, 1, false, 2, 0, 0, false, 0, 0},
      {"many pairs", 700, 256, 256, 12, 8, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 0, 0},
      {"exact, one token", 1, 256, 256, 16, 8, 8, ANY, EXACT, 1, true, 2, 0, 0, false, 0, 0},
      {"exact", 45, 256, 512, 6, 4, 8, ANY, EXACT, 2, true, 2, 0, 0, false, 0, 0},
      {"exact, alone", 70, 512, 256, 3, 2, 16, ANY, EXACT, 2, false, 2, 0, 0, false, 0, 0},
      {"exact, one expert", 140, 256, 256, 3, 1, 8, ONE, EXACT, 1, true, 0, 0, 0, false, 0, 0},
      {"exact, any address", 18, 256, 256, 5, 8, 8, TWICE, EXACT, 1, true, 2, 5, 1, false, 0, 0},
      {"some of many experts", 65, 512, 1024, 8, 8, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 24, 64},
      {"some of many experts, few", 2, 512, 256, 32, 8, 8, NEAR, USUAL, 2.5, false, 2, 0, 0, false, 96, 256},
      {"fewer experts than choices", 50, 256, 256, 4, 8, 16, NEAR, USUAL, 1, true, 2, 0, 0, false, 4, 32},
      {"one expert of many", 300, 256, 256, 1, 32, 8, NEAR, USUAL, 1, false, 2, 0, 0, false, 31, 33},
      {"the largest ids", 40, 256, 256, 5, 3, 8, NEAR, USUAL, 1, true, 2, 0, 0, false, INT32_MAX - 6, INT32_MAX},
      {"exact, some experts", 45, 256, 512, 6, 8, 8, NEAR, EXACT, 2, true, 2, 0, 0, false, 100, 1000},
      {"exact, one expert of many", 1, 256, 256, 1, 8, 8, NEAR, EXACT, 1, true, 2, 0, 0, false, 7, 8},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (is_left_out()) continue;
    Case what = cases[i];
    const int64_t all = what.all_experts ? what.all_experts : what.experts;
    if (what.top_k > all) what.top_k = all;
    gpu_case("%s", what.name) run(&what, body_layer);
  }
}

static void run_others(void) {
  static const Case plain = {"", 21, 256, 256, 6, 4, 8, ANY, USUAL, 2.5, true, 2, 0, 0, false, 0, 6};
  static const Case one = {"", 1, 256, 256, 16, 8, 8, ANY, USUAL, 1, true, 2, 0, 0, false, 0, 0};
  Case what = plain;
  gpu_case("accumulate on zeros") run(&what, body_accumulate);
  gpu_case("a layer in parts") run(&what, body_parts);
  what.numbers = EXACT, what.experts = what.all_experts = 8;
  gpu_case("a layer in parts, exact") run(&what, body_parts);
  what = plain, what.spare = -1;
  gpu_case("one block short") run(&what, body_fault);
  what = one, what.spare = -1;
  gpu_case("one block short, one token") run(&what, body_fault);
  what = plain, what.accumulate = false;
  gpu_case("graphs") run(&what, body_replay);
  what = one, what.accumulate = false;
  gpu_case("graphs, one token") run(&what, body_replay);
  what = plain, what.accumulate = false, what.tokens = 260;
  if (gpu_extent() != GPU_SMALL) gpu_case("graphs, larger groups") run(&what, body_replay);
}

static void run_panels(void) {
  static const Panels layouts[] = {
      {"w1_scales", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_SCALES, 32, 16, 128, 0, false},
      {"w2_scales", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_SCALES, 24, 8, 128, 0, false},
      {"w1_data", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_DATA, 256, 128, 128, 0, false},
      {"w1_gate_up_data", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_GATE_UP_DATA, 256, 256, 128, 0, false},
      {"w1_gate_up_scales", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_GATE_UP_SCALES, 32, 32, 128, 0, false},
      {"w1_scales_interleaved", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_SCALES_INTERLEAVED, 48, 16, 128, 0, false},
      {"w2_data", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_DATA, 192, 128, 64, 0, false},
      {"w2_data_k256", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_DATA_K256, 128, 128, 128, 0, false},
      {"w2_scales_k256", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_SCALES_K256, 16, 16, 128, 0, false},
      {"w1_fragments", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_FRAGMENTS, 192, 36, 128, 0, true},
      {"w2_fragments", MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_FRAGMENTS, 256, 36, 128, 0, true},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; ++i)
    for (int64_t shift = 0; shift < 2; ++shift) {
      Panels what = layouts[i];
      what.shift = shift;
      gpu_case("panels %s%s", what.name, shift ? ", any address" : "") gpu_both(1, 1, body_panels, &what);
    }
  Panels none = layouts[0];
  none.row_bytes = 0;
  gpu_case("panels of nothing") gpu_both(1, 1, body_panels, &none);
  none = layouts[sizeof layouts / sizeof *layouts - 1];
  none.row_bytes = 0;
  gpu_case("fragments of nothing") gpu_both(1, 1, body_panels, &none);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  run_layers();
  run_others();
  run_panels();
  return gpu_end();
}

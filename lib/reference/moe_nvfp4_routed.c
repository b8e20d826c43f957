//===- moe_nvfp4_routed.c - moe.nvfp4_routed on the host --------------------------------------------------===//
//
// The pairs of an expert are worked on in blocks of MOERT__TILE_ROWS, whose numbers are gathered and transposed once; its weights stream past them.
// First all activations are made, as codes again. Then columns of the output, COLUMNS at a time: the results of all pairs, which each token adds up
// in the order of its slots.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_nvfp4_routed.h"
#include "lib/reference/checks.h"
#include "lib/reference/fma_tile.h"
#include <string.h>

typedef moert__nvfp4_routed routed;

enum { COLUMNS = 64 };

//===--- checks -----------------------------------------------------------------------------------===//

// Dimension `at` of a tensor, and where its size comes from.
typedef struct named_dimension {
  const moert_tensor *tensor;
  const char *name;
  int at;
  int64_t size;
  const char *source;
} named_dimension;

static moert_status check_dimensions(const named_dimension *dimensions, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const named_dimension *d = &dimensions[i];
    moert_status status = moert__check_dimension(d->tensor, d->name, d->at, d->size, d->source);
    if (status) return status;
  }
  return MOERT_OK;
}

static moert_status check_at_least(const moert_tensor *tensor, const char *name, int dimension, int64_t least, const char *source) {
  if (tensor->shape[dimension] >= least) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand '%s' dimension %d is %" PRId64 ", must be at least %s%" PRId64, name, dimension,
                     tensor->shape[dimension], source, least);
}

static moert_status check_at_most(const moert_tensor *tensor, const char *name, int dimension, int64_t most, const char *source) {
  if (tensor->shape[dimension] <= most) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand '%s' dimension %d is %" PRId64 ", must be at most %s%" PRId64, name, dimension,
                     tensor->shape[dimension], source, most);
}

static moert_status check_unit(const moert_tensor *tensor, const char *name, int dimension, int64_t unit) {
  moert_status status = check_at_least(tensor, name, dimension, unit, "");
  return status ? status : moert__check_multiple(tensor, name, dimension, unit);
}

// C6, C14: which experts there are, of how many.
static moert_status check_experts(const moert_moe_nvfp4_routed_params *params, int64_t experts) {
  const int64_t top_k = params->top_k, first = params->first_expert, all = params->num_experts;
  if (all == 0 && first > 0)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "parameter 'first_expert' is %" PRId64 ", must be 0 unless 'num_experts' says how many experts there are", first);
  if (all > 0 && first > all - experts)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "parameter 'num_experts' is %" PRId64 ", must be at least %" PRId64 ", 'first_expert' plus dimension 0 of 'gemm1_weights'",
                       all, first + experts);
  if (top_k <= moert__routed_all_experts(all, experts)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'top_k' is %" PRId64 ", must be at most %" PRId64 ", %s", top_k,
                     moert__routed_all_experts(all, experts), all ? "'num_experts'" : "dimension 0 of 'gemm1_weights'");
}

// C1, C3, C6, C14: what all other sizes follow from.
static moert_status check_sizes(const moert_moe_nvfp4_routed_params *params, const moert_moe_nvfp4_routed_args *args) {
  const int64_t top_k = params->top_k;
  moert_status status = check_unit(args->hidden_states, "hidden_states", 1, MOERT__ROUTED_UNIT / 2);
  if (!status) status = check_at_most(args->hidden_states, "hidden_states", 0, INT32_MAX / top_k, "the largest i32 over top_k = ");
  if (!status) status = check_unit(args->gemm1_weights, "gemm1_weights", 1, MOERT__ROUTED_UNIT);
  if (!status) status = check_at_least(args->gemm1_weights, "gemm1_weights", 0, 1, "");
  if (!status) status = check_at_most(args->gemm1_weights, "gemm1_weights", 0, MOERT__ROUTED_MAX_EXPERTS, "");
  return status ? status : check_experts(params, args->gemm1_weights->shape[0]);
}

static moert_status check_shapes(const routed *call, const moert_moe_nvfp4_routed_args *args) {
  static const char m[] = "dimension 0 of 'hidden_states'", k_4[] = "an eighth of dimension 1 of 'hidden_states'",
                    e[] = "dimension 0 of 'gemm1_weights'", k[] = "twice dimension 1 of 'hidden_states'", k_2[] = "dimension 1 of 'hidden_states'";
  const named_dimension dimensions[] = {
      {args->hidden_states_scale, "hidden_states_scale", 0, call->tokens, m}, // C2
      {args->hidden_states_scale, "hidden_states_scale", 1, call->hidden / 16, k_4},
      {args->gemm1_weights, "gemm1_weights", 2, call->hidden / 2, k_2}, // C3
      {args->gemm1_weights_scale, "gemm1_weights_scale", 0, call->experts, e},
      {args->gemm1_weights_scale, "gemm1_weights_scale", 1, 2 * call->inner, "dimension 1 of 'gemm1_weights'"},
      {args->gemm1_weights_scale, "gemm1_weights_scale", 2, call->hidden / 16, k_4},
      {args->gemm2_weights, "gemm2_weights", 0, call->experts, e}, // C4
      {args->gemm2_weights, "gemm2_weights", 1, call->hidden, k},
      {args->gemm2_weights, "gemm2_weights", 2, call->inner / 2, "a quarter of dimension 1 of 'gemm1_weights'"},
      {args->gemm2_weights_scale, "gemm2_weights_scale", 0, call->experts, e},
      {args->gemm2_weights_scale, "gemm2_weights_scale", 1, call->hidden, k},
      {args->gemm2_weights_scale, "gemm2_weights_scale", 2, call->inner / 16, "a thirty-second of dimension 1 of 'gemm1_weights'"},
      {args->output1_scale_gate_scalar, "output1_scale_gate_scalar", 0, call->experts, e}, // C5
      {args->output1_scale_scalar, "output1_scale_scalar", 0, call->experts, e},
      {args->output2_scale_scalar, "output2_scale_scalar", 0, call->experts, e},
      {args->topk_ids, "topk_ids", 0, call->tokens, m}, // C6
      {args->topk_ids, "topk_ids", 1, call->top_k, "top_k"},
      {args->topk_weights, "topk_weights", 0, call->tokens, m},
      {args->topk_weights, "topk_weights", 1, call->top_k, "top_k"},
      {args->out, "out", 0, call->tokens, m}, // C7
      {args->out, "out", 1, call->hidden, k}};
  return check_dimensions(dimensions, sizeof dimensions / sizeof *dimensions);
}

// C8, C9, C10
static moert_status check_plan(const routed *call, const moert_moe_nvfp4_routed_args *args) {
  int64_t least;
  if (call->block_m % MOERT__ROUTED_BLOCK)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'block_m' is %" PRId64 ", must be a multiple of %d", call->block_m,
                       MOERT__ROUTED_BLOCK);
  if (__builtin_mul_overflow(call->blocks, call->block_m, &least)) least = INT64_MAX;
  moert_status status = check_at_least(args->expert_ids, "expert_ids", 0, 1, "");
  if (!status) status = check_at_most(args->sorted_token_ids, "sorted_token_ids", 0, INT32_MAX, "");
  if (!status) status = check_at_least(args->sorted_token_ids, "sorted_token_ids", 0, least, "block_m times dimension 0 of 'expert_ids' = ");
  if (!status) status = moert__check_dimension(args->num_tokens_post_padded, "num_tokens_post_padded", 0, 1, "the number of its elements");
  if (!status) status = check_at_least(args->cumsum_buffer, "cumsum_buffer", 0, call->experts + 2, "two more than dimension 0 of 'gemm1_weights' = ");
  return status;
}

//===--- prepared inputs --------------------------------------------------------------------------===//

typedef struct prepared_input {
  const moert_tensor *tensor; // NULL: not there
  const char *name;
} prepared_input;

static prepared_input prepared_of(const moert_moe_nvfp4_routed_args *args, int which) {
  switch (which) {
  case MOERT__W1_SCALE: return (prepared_input){args->w1_scale_prepared, "w1_scale_prepared"};
  case MOERT__W2_SCALE: return (prepared_input){args->w2_scale_prepared, "w2_scale_prepared"};
  case MOERT__W1_DATA: return (prepared_input){args->w1_data_prepared, "w1_data_prepared"};
  case MOERT__W1_GATE_UP_DATA: return (prepared_input){args->w1_gate_up_data_prepared, "w1_gate_up_data_prepared"};
  case MOERT__W1_GATE_UP_SCALE: return (prepared_input){args->w1_gate_up_scale_prepared, "w1_gate_up_scale_prepared"};
  case MOERT__W1_SCALE_INTERLEAVED: return (prepared_input){args->w1_scale_prepared_interleaved, "w1_scale_prepared_interleaved"};
  case MOERT__W2_DATA: return (prepared_input){args->w2_data_prepared, "w2_data_prepared"};
  case MOERT__W2_DATA_K256: return (prepared_input){args->w2_data_prepared_k256, "w2_data_prepared_k256"};
  case MOERT__W2_SCALE_K256: return (prepared_input){args->w2_scale_prepared_k256, "w2_scale_prepared_k256"};
  case MOERT__W1_FRAGMENTS: return (prepared_input){args->w1_fragments_prepared, "w1_fragments_prepared"};
  default: return (prepared_input){args->w2_fragments_prepared, "w2_fragments_prepared"};
  }
}

// C11, C12
static moert_status check_panels(const routed *call, prepared_input input, moert__routed_panel panel) {
  if (!input.tensor) return MOERT_OK;
  if (panel.down && call->inner % panel.columns)
    return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'gemm1_weights' dimension 1 is %" PRId64 ", must be with '%s' a multiple of %" PRId64,
                       2 * call->inner, input.name, 2 * panel.columns);
  const int64_t panels = moert__routed_panels(panel, call->experts, 2 * call->inner, call->hidden);
  const named_dimension dimensions[] = {{input.tensor, input.name, 0, panels, "the number of panels"},
                                        {input.tensor, input.name, 1, panel.height, "the height of a panel"},
                                        {input.tensor, input.name, 2, panel.width, "the width of a panel"}};
  return check_dimensions(dimensions, sizeof dimensions / sizeof *dimensions);
}

// C13
static moert_status check_together(prepared_input input, prepared_input other) {
  if (input.tensor || !other.tensor) return MOERT_OK;
  return moert__fail(MOERT_ERROR_NULL_POINTER, "operand '%s' is NULL, must be set with '%s'", input.name, other.name);
}

static moert_status check_prepared(const routed *call, const moert_moe_nvfp4_routed_args *args) {
  const prepared_input data = prepared_of(args, MOERT__W1_GATE_UP_DATA), scale = prepared_of(args, MOERT__W1_GATE_UP_SCALE);
  moert_status status = check_together(data, scale);
  if (!status) status = check_together(scale, data);
  for (int i = 0; !status && i < MOERT__ROUTED_NUM_PREPARED; ++i) status = check_panels(call, prepared_of(args, i), moert__routed_panel_of(i));
  return status;
}

//===--- the call ---------------------------------------------------------------------------------===//

static moert__coded_rows rows_of(const moert_tensor *codes, const moert_tensor *scales, int64_t columns, int64_t stride) {
  return (moert__coded_rows){MOERT__NVFP4, columns, stride, moert__data(codes), moert__data(scales)};
}

static void set_sizes(routed *call, const moert_moe_nvfp4_routed_params *params, const moert_moe_nvfp4_routed_args *args) {
  call->tokens = args->hidden_states->shape[0];
  call->top_k = params->top_k;
  call->pairs = call->tokens * call->top_k;
  call->experts = args->gemm1_weights->shape[0];
  call->first_expert = params->first_expert;
  call->all_experts = moert__routed_all_experts(params->num_experts, call->experts);
  call->hidden = 2 * args->hidden_states->shape[1];
  call->inner = args->gemm1_weights->shape[1] / 2;
  call->block_m = params->block_m;
  call->entries = args->sorted_token_ids->shape[0];
  call->blocks = args->expert_ids->shape[0];
  call->factor = (float)params->routed_scaling_factor;
  call->accumulate = params->accumulate != 0;
}

static void set_memory(routed *call, const moert_moe_nvfp4_routed_args *args) {
  call->states = rows_of(args->hidden_states, args->hidden_states_scale, call->hidden, moert__row_stride(args->hidden_states));
  call->gate_up = rows_of(args->gemm1_weights, args->gemm1_weights_scale, call->hidden, call->hidden / 2);
  call->down = rows_of(args->gemm2_weights, args->gemm2_weights_scale, call->inner, call->inner / 2);
  call->gate_scales = moert__data(args->output1_scale_gate_scalar);
  call->up_scales = moert__data(args->output1_scale_scalar);
  call->down_scales = moert__data(args->output2_scale_scalar);
  call->topk_ids = moert__data(args->topk_ids);
  call->topk_weights = moert__data(args->topk_weights);
  call->sorted_token_ids = moert__data(args->sorted_token_ids);
  call->expert_ids = moert__data(args->expert_ids);
  call->num_tokens_post_padded = moert__data(args->num_tokens_post_padded);
  call->cumsum_buffer = moert__data(args->cumsum_buffer);
  call->out = moert__data(args->out);
  for (int i = 0; i < MOERT__ROUTED_NUM_PREPARED; ++i) {
    const moert_tensor *tensor = prepared_of(args, i).tensor;
    call->prepared[i] = tensor ? moert__data(tensor) : NULL;
  }
}

moert_status moert__nvfp4_routed_check(const moert_moe_nvfp4_routed_params *params, const moert_moe_nvfp4_routed_args *args, routed *call) {
  moert_status status = moert__check_f32("routed_scaling_factor", params->routed_scaling_factor);
  if (!status) status = check_sizes(params, args);
  if (status) return status;
  set_sizes(call, params, args);
  status = check_shapes(call, args);
  if (!status) status = check_plan(call, args);
  if (!status) status = check_prepared(call, args);
  if (!status) set_memory(call, args);
  return status;
}

//===--- the plan ---------------------------------------------------------------------------------===//

// What the host works with beside the call.
typedef struct work {
  const routed *call;
  int64_t counts[MOERT__ROUTED_MAX_EXPERTS + 1]; // of the bins
  moert__fma_tile *multiply;
  float *row_block;              // [hidden or inner][MOERT__TILE_ROWS]
  float *column_block;           // [MOERT__TILE_COLUMNS][hidden or inner]
  float *results;                // [pairs][COLUMNS]
  uint8_t *codes, *scales;       // of the activations,
  moert__coded_rows activations; // which are [pairs][inner]
} work;

static int64_t blocks_of(const work *w, int64_t bin) { return (w->counts[bin] + w->call->block_m - 1) / w->call->block_m; }

static moert_status count_bins(work *w) {
  const routed *call = w->call;
  int64_t blocks = 0;
  for (int64_t pair = 0; pair < call->pairs; ++pair) ++w->counts[moert__routed_bin(call, pair)];
  for (int64_t bin = 0; bin <= call->experts; ++bin) blocks += blocks_of(w, bin);
  if (blocks <= call->blocks) return MOERT_OK;
  return moert__fail(MOERT_ERROR_CAPACITY,
                     "operand 'expert_ids' has room for %" PRId64 " blocks, must have room for the %" PRId64
                     " of the plan, and 'sorted_token_ids' for %" PRId64 " entries each",
                     call->blocks, blocks, call->block_m);
}

static void write_plan(const work *w) {
  const routed *call = w->call;
  int64_t start = 0;
  for (int64_t i = 0; i < call->entries; ++i) call->sorted_token_ids[i] = (int32_t)call->pairs;
  for (int64_t bin = 0; bin <= call->experts; ++bin) {
    call->cumsum_buffer[bin] = (int32_t)start;
    for (int64_t block = 0; block < blocks_of(w, bin); ++block, start += call->block_m) call->expert_ids[start / call->block_m] = (int32_t)(bin - 1);
  }
  call->num_tokens_post_padded[0] = call->cumsum_buffer[call->experts + 1] = (int32_t)start;
  for (int64_t pair = 0; pair < call->pairs; ++pair) call->sorted_token_ids[call->cumsum_buffer[moert__routed_bin(call, pair)]++] = (int32_t)pair;
}

// Some pairs of an expert.
typedef struct pair_block {
  int64_t expert;
  const int32_t *pairs;
  int count;
} pair_block;

// Calls `function` with the pairs of each expert, MOERT__TILE_ROWS at a time.
static void for_blocks(const work *w, void (*function)(const work *w, const pair_block *block, int64_t column), int64_t column) {
  for (int64_t expert = 0; expert < w->call->experts; ++expert) {
    const int64_t end = w->call->cumsum_buffer[expert + 1];
    for (int64_t first = end - w->counts[expert + 1]; first < end; first += MOERT__TILE_ROWS) {
      const int64_t count = end - first < MOERT__TILE_ROWS ? end - first : MOERT__TILE_ROWS;
      const pair_block block = {expert, w->call->sorted_token_ids + first, (int)count};
      function(w, &block, column);
    }
  }
}

//===--- products ---------------------------------------------------------------------------------===//

// The rows of the block's pairs, each row for `share` consecutive pairs; lanes beyond are 0.
static void gather(const work *w, const pair_block *block, const moert__coded_rows *rows, int64_t share) {
  if (block->count < MOERT__TILE_ROWS) memset(w->row_block, 0, (size_t)(rows->columns * MOERT__TILE_ROWS) * sizeof(float));
  for (int lane = 0; lane < block->count; ++lane) moert__decode_row(rows, block->pairs[lane] / share, w->row_block + lane, MOERT__TILE_ROWS);
}

// Weight rows from `first` on times what was gathered, times `scale`.
static void multiply(const work *w, const moert__coded_rows *weights, int64_t first, float scale, moert__tile_sums *sums) {
  moert__decode_rows(weights, first, MOERT__TILE_COLUMNS, w->column_block);
  w->multiply(weights->columns, w->row_block, w->column_block, sums);
  for (int c = 0; c < MOERT__TILE_COLUMNS; ++c)
    for (int lane = 0; lane < MOERT__TILE_ROWS; ++lane) sums->of[c][lane] *= scale;
}

//===--- activations ------------------------------------------------------------------------------===//

// The activations of MOERT__ROUTED_SCALED columns, for all lanes.
typedef struct activated {
  float of[MOERT__TILE_ROWS][MOERT__ROUTED_SCALED];
} activated;

static void activate(const work *w, const pair_block *block, int64_t column, activated *made) {
  const routed *call = w->call;
  const int64_t gate_row = block->expert * 2 * call->inner + column;
  for (int first = 0; first < MOERT__ROUTED_SCALED; first += MOERT__TILE_COLUMNS) {
    moert__tile_sums gates, ups;
    multiply(w, &call->gate_up, gate_row + first, call->gate_scales[block->expert], &gates);
    multiply(w, &call->gate_up, gate_row + call->inner + first, call->up_scales[block->expert], &ups);
    for (int c = 0; c < MOERT__TILE_COLUMNS; ++c)
      for (int lane = 0; lane < block->count; ++lane) made->of[lane][first + c] = moert__routed_activation(gates.of[c][lane], ups.of[c][lane]);
  }
}

// Column `column` of the activations of a pair, and those behind it.
static void quantize(const work *w, int64_t pair, int64_t column, const float *values) {
  const int64_t first = pair * w->call->inner + column;
  float amax = 0.0f;
  for (int i = 0; i < MOERT__ROUTED_SCALED; ++i) amax = moert__amax(MOERT__NVFP4, amax, values[i]);
  const uint32_t scale = moert__routed_scale(amax);
  w->scales[first / MOERT__ROUTED_SCALED] = (uint8_t)scale;
  for (int i = 0; i < MOERT__ROUTED_SCALED; i += 2)
    w->codes[(first + i) / 2] = (uint8_t)(moert__routed_code(values[i], scale) | moert__routed_code(values[i + 1], scale) << 4);
}

static void make_activations(const work *w, const pair_block *block, int64_t unused) {
  (void)unused;
  gather(w, block, &w->call->states, w->call->top_k);
  for (int64_t column = 0; column < w->call->inner; column += MOERT__ROUTED_SCALED) {
    activated made;
    activate(w, block, column, &made);
    for (int lane = 0; lane < block->count; ++lane) quantize(w, block->pairs[lane], column, made.of[lane]);
  }
}

//===--- results ----------------------------------------------------------------------------------===//

// Columns of the output from `column` on, of each pair.
static void make_results(const work *w, const pair_block *block, int64_t column) {
  gather(w, block, &w->activations, 1);
  for (int first = 0; first < COLUMNS; first += MOERT__TILE_COLUMNS) {
    moert__tile_sums sums;
    multiply(w, &w->call->down, block->expert * w->call->hidden + column + first, w->call->down_scales[block->expert], &sums);
    for (int c = 0; c < MOERT__TILE_COLUMNS; ++c)
      for (int lane = 0; lane < block->count; ++lane) w->results[block->pairs[lane] * (int64_t)COLUMNS + first + c] = sums.of[c][lane];
  }
}

static void add_choices(const work *w, int64_t token, int64_t column) {
  const routed *call = w->call;
  for (int c = 0; c < COLUMNS; ++c) {
    uint16_t *out = call->out + token * call->hidden + column + c;
    float total = call->accumulate ? moert__bf16_to_f32(*out) : 0.0f;
    for (int64_t pair = token * call->top_k; pair < (token + 1) * call->top_k; ++pair)
      if (moert__routed_bin(call, pair) > 0) total = moert__routed_add(total, w->results[pair * COLUMNS + c], call->topk_weights[pair], call->factor);
    *out = moert__f32_to_bf16(total);
  }
}

//===--- the op -----------------------------------------------------------------------------------===//

static moert_status allocate(moert_context *context, int64_t count, int64_t bytes_each, void **memory) {
  int64_t bytes;
  if (__builtin_mul_overflow(count, bytes_each, &bytes)) bytes = INT64_MAX;
  return moert_context_allocate(context, bytes, memory);
}

static moert_status allocate_scratch(work *w, moert_context *context) {
  const routed *call = w->call;
  const int64_t deepest = call->hidden > call->inner ? call->hidden : call->inner, pairs = call->pairs, scaled = call->inner / MOERT__ROUTED_SCALED;
  void *blocks = NULL, *results = NULL, *codes = NULL, *scales = NULL;
  moert_status status = allocate(context, deepest, (MOERT__TILE_ROWS + MOERT__TILE_COLUMNS) * (int64_t)sizeof(float), &blocks);
  if (!status) status = allocate(context, pairs, COLUMNS * (int64_t)sizeof(float), &results);
  if (!status) status = allocate(context, pairs, call->inner / 2, &codes);
  if (!status) status = allocate(context, pairs, scaled, &scales);
  if (status) return status;
  w->row_block = blocks;
  w->column_block = (float *)blocks + MOERT__TILE_ROWS * deepest;
  w->results = results;
  w->codes = codes;
  w->scales = scales;
  w->activations = (moert__coded_rows){MOERT__NVFP4, call->inner, call->inner / 2, codes, scales};
  return MOERT_OK;
}

static void compute(const work *w) {
  for_blocks(w, make_activations, 0);
  for (int64_t column = 0; column < w->call->hidden; column += COLUMNS) {
    for_blocks(w, make_results, column);
    for (int64_t token = 0; token < w->call->tokens; ++token) add_choices(w, token, column);
  }
}

moert_status moert__host_moe_nvfp4_routed(const moert_moe_nvfp4_routed_params *params, const moert_moe_nvfp4_routed_args *args,
                                          moert_context *context) {
  routed call;
  moert_status status = moert__nvfp4_routed_check(params, args, &call);
  if (status) return status;
  work w = {.call = &call, .multiply = moert__fma_tile_select()};
  status = count_bins(&w);
  moert__arena_mark mark = moert__arena_mark_get(context);
  if (!status && call.pairs > 0) status = allocate_scratch(&w, context);
  if (!status) write_plan(&w);
  if (!status && call.pairs > 0) compute(&w);
  moert__arena_rewind(context, mark);
  return status;
}

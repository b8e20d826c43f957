//===- allreduce_fusion.c - moe.allreduce_fusion on GPUs ----------------------------------------------===//
//
// Sums, residuals and norms must have the bits of the host backend, by the kernels that the library chooses and by the generic ones.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include <stdio.h>

typedef enum Number { ABSENT, SIGNED, UNSIGNED } Number;
typedef enum Outputs { SUM = 1, TOTAL = 2, NORM = 4, IN_PLACE = 8, ALL = SUM | TOTAL | NORM } Outputs;

typedef struct Case {
  int64_t max_tokens, hidden, experts;
  const char *dtype, *scales;
  bool fp32_acc, special;
  Number number;
  int outputs;   // set of Outputs; IN_PLACE: residual_out is residual_in
  int64_t shift; // elements by which rows are displaced from a multiple of 256 bytes
  double epsilon, bias;
  int64_t format, layout; // of codes
} Case;

#define NONE MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_NONE
#define NVFP4 MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_NVFP4
#define MXFP4 MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_MXFP4
#define MXFP8 MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_MXFP8
#define FP8_BLOCK MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_FP8_BLOCK
#define FP8_TOKEN MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_FP8_TOKEN
#define FP8_TENSOR MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_FP8_TENSOR
enum { LINEAR, TILES_OF_128, TILES_OF_8 }; // layouts

typedef struct Layer {
  gpu_rank *rank;
  Case what;
  int64_t tokens;
  gpu_buffer *workspace, *metainfo;
  exchange_operand residual, gamma, inputs, scales, number, shared, sum, total, norm, codes, code_scales;
  moert_moe_initialize_params sizes;
  moert_moe_allreduce_fusion_params params;
  moert_moe_allreduce_fusion_args args;
  moert_kernel *kernel;
} Layer;

//===--- operands ---------------------------------------------------------------------------------===//

static moert_tensor *operand(exchange_operand *operand, int32_t ndim, int64_t a, int64_t b, int64_t c, int64_t shift) {
  operand->memory->tensor = exchange_tensor(operand, ndim, a, b, c, shift);
  return &operand->memory->tensor;
}

static bool is_packed(int64_t format) { return format == NVFP4 || format == MXFP4; }

static int64_t pad(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// Scales of `tokens` tokens: rows and columns as they are laid out.
static void measure_scales(const Case *what, int64_t tokens, int64_t *rows, int64_t *columns) {
  static const int64_t blocks[] = {0, 16, 32, 32, 128, 0, 0};
  int64_t block = blocks[what->format];
  *columns = block ? pad(what->hidden, block) / block : 1;
  *rows = tokens;
  if (what->layout == LINEAR) return;
  *columns = pad(*columns, 4);
  *rows = pad(tokens, what->layout == TILES_OF_128 ? 128 : 8);
}

static void allocate_codes(Layer *l) {
  const Case *what = &l->what;
  int64_t rows, columns;
  measure_scales(what, what->max_tokens, &rows, &columns);
  l->codes.memory = gpu_new(l->rank, "i8", 1, what->max_tokens * what->hidden + what->shift);
  l->code_scales.memory = gpu_new(l->rank, what->format == FP8_BLOCK || what->format == FP8_TOKEN ? "f32" : "ui8", 1, rows * columns);
}

static void shape_codes(Layer *l, int64_t tokens) {
  const Case *what = &l->what;
  int64_t rows, columns;
  measure_scales(what, tokens, &rows, &columns);
  bool scaled = what->format != NONE && what->format != FP8_TENSOR;
  int64_t width = is_packed(what->format) ? what->hidden / 2 : what->hidden;
  l->args.quant_out = what->format == NONE ? NULL : operand(&l->codes, 2, tokens, width, 0, what->shift);
  l->args.scale_out = scaled ? operand(&l->code_scales, 2, rows, columns, 0, 0) : NULL;
}

static void allocate(Layer *l) {
  gpu_rank *rank = l->rank;
  const Case *what = &l->what;
  int64_t elements = what->max_tokens * what->hidden + what->shift;
  exchange_operand *rows[] = {&l->residual, &l->shared, &l->sum, &l->total, &l->norm};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) rows[i]->memory = gpu_new(rank, what->dtype, 1, elements);
  l->gamma.memory = gpu_new(rank, what->dtype, 1, what->hidden + what->shift);
  l->inputs.memory = gpu_new(rank, what->dtype, 1, what->experts * what->max_tokens * what->hidden + what->shift);
  l->scales.memory = gpu_new(rank, what->scales, 1, what->experts * what->max_tokens);
  l->number.memory = gpu_new(rank, what->number == UNSIGNED ? "ui32" : "i32", 1, 1);
  allocate_codes(l);
}

static void shape(Layer *l, int64_t tokens) {
  const Case *what = &l->what;
  int64_t hidden = what->hidden, shift = what->shift;
  l->tokens = tokens;
  l->args.residual_in = operand(&l->residual, 2, tokens, hidden, 0, shift);
  l->args.rms_gamma = operand(&l->gamma, 1, hidden, 0, 0, shift);
  l->args.moe_reduction_active_experts_token_input = operand(&l->inputs, 3, what->experts, tokens, hidden, shift);
  l->args.moe_reduction_scale_input = operand(&l->scales, 2, what->experts, tokens, 0, 0);
  l->args.moe_reduction_device_num_experts = what->number == ABSENT ? NULL : operand(&l->number, 1, 1, 0, 0, 0);
  l->args.moe_reduction_token_input = operand(&l->shared, 2, tokens, hidden, 0, shift);
  l->args.moe_allreduce_out = what->outputs & SUM ? operand(&l->sum, 2, tokens, hidden, 0, shift) : NULL;
  l->args.residual_out = what->outputs & TOTAL ? operand(&l->total, 2, tokens, hidden, 0, shift) : NULL;
  l->args.norm_out = what->outputs & NORM ? operand(&l->norm, 2, tokens, hidden, 0, shift) : NULL;
  if (what->outputs & IN_PLACE) l->args.residual_out = l->args.residual_in;
  shape_codes(l, tokens);
}

static moert_status initialize(Layer *l) {
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  args.workspace = &l->workspace->tensor;
  args.metainfo = &l->metainfo->tensor;
  return moert_moe_initialize(&l->sizes, &args, NULL, l->rank->context);
}

static void open_layer(Layer *l, gpu_rank *rank) {
  *l = (Layer){.rank = rank, .what = *(const Case *)rank->user};
  const Case *what = &l->what;
  allocate(l);
  int64_t row_bytes = what->hidden * (what->fp32_acc || strcmp(what->dtype, "f32") == 0 ? 4 : 2);
  moert_workspace_info info = {what->max_tokens, row_bytes, 1, 0, rank->size};
  l->workspace = gpu_new_symmetric(rank, "i8", 1, moert_workspace_lay_out(&info).bytes);
  l->metainfo = gpu_new_host(rank, "i64", 1, MOERT_METAINFO_FIELDS);
  l->sizes = (moert_moe_initialize_params)MOERT_MOE_INITIALIZE_PARAMS_INIT;
  l->sizes.max_num_tokens = what->max_tokens;
  l->sizes.dispatch_bytes_per_token = row_bytes;
  l->sizes.combine_bytes_per_token = 1;
  l->params = (moert_moe_allreduce_fusion_params)MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT;
  l->params.hidden_size = what->hidden;
  l->params.rms_eps = what->epsilon;
  l->params.weight_bias = what->bias;
  l->params.fp32_acc = what->fp32_acc;
  l->params.quant_format = what->format;
  l->params.layout_code = what->layout;
  if (what->format == NVFP4 || what->format == FP8_TENSOR) l->params.scale_factor = 37.5;
  l->args = (moert_moe_allreduce_fusion_args)MOERT_MOE_ALLREDUCE_FUSION_ARGS_INIT;
  l->args.workspace = &l->workspace->tensor;
  l->args.metainfo = &l->metainfo->tensor;
  shape(l, what->max_tokens);
  CHECK_OK(initialize(l));
}

//===--- calls ------------------------------------------------------------------------------------===//

static void fill(Layer *l, int64_t experts) {
  const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 3.0e38, 1.0e-40};
  gpu_buffer *numbers[] = {l->residual.memory, l->gamma.memory, l->inputs.memory, l->scales.memory, l->shared.memory};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    gpu_random(numbers[i], 2);
    if (!l->what.special) continue;
    for (int64_t k = 0; k < numbers[i]->count; ++k) {
      int64_t chosen = gpu_random_below(l->rank, 3000);
      if (chosen < 7) gpu_set(numbers[i], k, special[chosen]);
      if (chosen >= 100 && chosen < 1000) gpu_set(numbers[i], k, -0.0);
    }
    gpu_upload(numbers[i]);
  }
  gpu_set(l->number.memory, 0, (double)experts);
  gpu_upload(l->number.memory);
}

static moert_status reduce(Layer *l) { return moert_moe_allreduce_fusion(&l->params, &l->args, l->kernel, l->rank->context); }

static moert_status reduce_and_wait(Layer *l) {
  moert_status status = reduce(l);
  return status ? status : moert_context_synchronize(l->rank->context);
}

static void results(Layer *l) {
  gpu_result("sum", l->sum.memory);
  gpu_result("total", l->total.memory);
  gpu_result("norm", l->norm.memory);
  gpu_result("residual", l->residual.memory);
  gpu_result("codes", l->codes.memory);
  gpu_result("scales", l->code_scales.memory);
}

static void check_round(Layer *l, int64_t tokens, int64_t experts) {
  shape(l, tokens);
  fill(l, experts);
  CHECK_OK(reduce_and_wait(l));
  results(l);
}

// One shot and two in turn: what one has left must not be taken for what the other waits for.
static void play(gpu_rank *rank) {
  const int64_t strategies[] = {MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT, MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT,
                                MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_AUTO};
  Layer l;
  open_layer(&l, rank);
  int64_t most = l.what.max_tokens, experts = l.what.experts;
  for (int i = 0; i < 3; ++i) {
    l.params.strategy = strategies[i];
    check_round(&l, most, experts);
    check_round(&l, most / 2, rank->rank % (experts + 1)); // ranks may have different numbers of experts
    check_round(&l, i == 1, experts);
    check_round(&l, 0, 0);
  }
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.allreduce_fusion/sm_90a", &l.kernel));
  for (int i = 0; i < 2; ++i) {
    l.params.strategy = strategies[i];
    check_round(&l, most, experts / 2);
  }
}

// Rows of many bytes, and calls that are several exchanges; the way is the library's choice, or one or two shots.
static void play_many(gpu_rank *rank, int64_t strategy) {
  Layer l;
  open_layer(&l, rank);
  l.params.strategy = strategy;
  check_round(&l, l.what.max_tokens, l.what.experts);
  check_round(&l, l.what.max_tokens - 1, l.what.experts);
}

static void play_auto(gpu_rank *rank) { play_many(rank, MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_AUTO); }
static void play_one_shot(gpu_rank *rank) { play_many(rank, MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT); }
static void play_two_shots(gpu_rank *rank) { play_many(rank, MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT); }

//===--- numbers of experts that there are not ----------------------------------------------------===//

// On a GPU the number is not known before the exchange has begun, so that it fails on all ranks, until they recover.
static void refuse_numbers(gpu_rank *rank) {
  Layer l;
  open_layer(&l, rank);
  fill(&l, rank->rank == 0 ? -1 : 1);
  moert_status status = reduce_and_wait(&l);
  if (rank->rank == 0)
    CHECK_FAILS(status, MOERT_ERROR_DATA,
                "moe.allreduce_fusion: operand 'moe_reduction_device_num_experts' holds -1, must be in [0, 3], dimension 0 of "
                "'moe_reduction_active_experts_token_input'");
  else
    CHECK(status == MOERT_ERROR_PEER_FAILED);
  CHECK(gpu_is_filled(l.norm.memory, 0xff));
  CHECK_OK(moert_comm_recover(rank->comm, (UINT64_C(1) << rank->size) - 1, 0));
  fill(&l, 3);
  CHECK_OK(reduce_and_wait(&l));
}

//===--- replays ----------------------------------------------------------------------------------===//

// residual_out replaces residual_in, so that every replay has other inputs.
static moert_status step(gpu_rank *rank, void *data) {
  (void)rank;
  return reduce(data);
}

static void replay(gpu_rank *rank) {
  Layer l;
  open_layer(&l, rank);
  fill(&l, 1);
  CHECK_OK(reduce_and_wait(&l));
  CHECK_OK(gpu_replay(rank, step, &l, gpu_extent() == GPU_SMALL ? 3 : 50));
  results(&l);
  CHECK_OK(reduce_and_wait(&l)); // calls and replays may alternate
  results(&l);
}

//===--- ten thousand calls -----------------------------------------------------------------------===//

// What a call normalises is the residual of the next, so that the last has a trace of everything before. Tokens, experts, and the way change from
// call to call.
enum { CHAINED = 10 };

typedef struct Chain {
  Layer layer;
  gpu_buffer *numbers[CHAINED];
} Chain;

static moert_status call_chain(gpu_rank *rank, void *data) {
  static const int64_t tokens[CHAINED] = {8, 1, 5, 8, 3, 0, 8, 2, 7, 8};
  Chain *chain = data;
  Layer *l = &chain->layer;
  moert_status status = MOERT_OK;
  (void)rank;
  for (int i = 0; i < CHAINED && !status; ++i) {
    shape(l, tokens[i]);
    moert_tensor from = *l->args.residual_in, to = *l->args.norm_out;
    l->args.residual_in = i % 2 ? &to : &from;
    l->args.norm_out = i % 2 ? &from : &to;
    l->args.residual_out = l->args.moe_allreduce_out = NULL;
    l->args.moe_reduction_device_num_experts = &chain->numbers[i]->tensor;
    l->params.strategy = i % 3 == 1 ? MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT : MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT;
    l->params.launch_with_pdl = i % 4 < 2;
    status = reduce(l);
  }
  return status;
}

static void endure(gpu_rank *rank) {
  Chain chain;
  open_layer(&chain.layer, rank);
  fill(&chain.layer, 0);
  for (int i = 0; i < CHAINED; ++i) {
    chain.numbers[i] = gpu_new(rank, "i32", 1, 1);
    gpu_set(chain.numbers[i], 0, (double)((i + rank->rank) % (chain.layer.what.experts + 1)));
    gpu_upload(chain.numbers[i]);
  }
  gpu_fill(chain.layer.norm.memory, 0);
  CHECK_OK(call_chain(rank, &chain));
  CHECK_OK(moert_context_synchronize(rank->context));
  CHECK_OK(gpu_replay(rank, call_chain, &chain, gpu_extent() == GPU_SMALL ? 10 : 10000 / CHAINED));
  gpu_result("residual", chain.layer.residual.memory);
  gpu_result("norm", chain.layer.norm.memory);
}

//===--- pairs of settings ------------------------------------------------------------------------===//

// Settings of a case, each with its values; a row of the covering set has a value of each.
enum { DTYPE, OUTPUT_SET, CODES, RANKS, WIDTH, LENGTH, NUMBER_OF_EXPERTS, SETTINGS, MOST_VALUES = 9 };

static const char *const dtypes[] = {"bf16", "f16", "f32"};
static const int output_sets[] = {SUM, IN_PLACE, NORM, TOTAL | NORM, ALL};
static const int64_t codes[][2] = {{NONE, LINEAR},  {NVFP4, LINEAR},       {NVFP4, TILES_OF_128}, {NVFP4, TILES_OF_8},
                                   {MXFP8, LINEAR}, {MXFP8, TILES_OF_128}, {FP8_TOKEN, LINEAR},   {FP8_TENSOR, LINEAR}};
static const int64_t widths[] = {8, 64, 2880, 4096, 7168, 8192, 16384}, lengths[] = {0, 1, 7, 128, 129, 2048}, experts_of[] = {0, 1, 8, 16};
static const int num_values[SETTINGS] = {3, 5, 8, 8, 7, 6, 4};

typedef struct Row {
  int values[SETTINGS]; // -1: not chosen yet
} Row;

static int64_t value_of(const int64_t *values, int index) { return index < 0 ? values[0] : values[index]; }

// What formats allow, and what a host computes in a moment. Settings that are not chosen yet count as the smallest.
static bool is_possible(const Row *row) {
  const int *v = row->values;
  int64_t format = v[CODES] < 0 ? NONE : codes[v[CODES]][0], width = v[WIDTH] < 0 ? 64 : widths[v[WIDTH]];
  int64_t experts = value_of(experts_of, v[NUMBER_OF_EXPERTS]) + 2, ranks = v[RANKS] < 0 ? 1 : v[RANKS] + 1;
  if (width == 8 && (format == NVFP4 || format == MXFP8)) return false;
  return width * value_of(lengths, v[LENGTH]) * experts * ranks <= (int64_t)1 << 26;
}

typedef struct Cover {
  bool done[SETTINGS][MOST_VALUES][SETTINGS][MOST_VALUES];
  Row rows[200];
  int num_rows;
} Cover;

static int news_of(const Cover *cover, const Row *row, int setting) {
  int news = 0;
  for (int other = 0; other < SETTINGS; ++other)
    if (other != setting && row->values[other] >= 0) news += !cover->done[setting][row->values[setting]][other][row->values[other]];
  return news;
}

// The rest of a row: of each setting the value that makes most new pairs.
static void complete(const Cover *cover, Row *row) {
  for (int setting = 0; setting < SETTINGS; ++setting) {
    int best = -1, most = -1;
    if (row->values[setting] >= 0) continue;
    for (int value = 0; value < num_values[setting]; ++value) {
      row->values[setting] = value;
      int news = is_possible(row) ? news_of(cover, row, setting) : -1;
      if (news <= most) continue;
      most = news;
      best = value;
    }
    row->values[setting] = best;
  }
}

static void add_row(Cover *cover, const Row *row) {
  for (int a = 0; a < SETTINGS; ++a)
    for (int b = 0; b < SETTINGS; ++b) cover->done[a][row->values[a]][b][row->values[b]] = true;
  cover->rows[cover->num_rows++] = *row;
}

static void cover_pairs(Cover *cover) {
  *cover = (Cover){.num_rows = 0};
  for (int a = 0; a < SETTINGS; ++a)
    for (int b = a + 1; b < SETTINGS; ++b)
      for (int i = 0; i < num_values[a]; ++i)
        for (int k = 0; k < num_values[b]; ++k) {
          Row row;
          for (int setting = 0; setting < SETTINGS; ++setting) row.values[setting] = setting == a ? i : setting == b ? k : -1;
          if (cover->done[a][i][b][k] || !is_possible(&row)) continue;
          complete(cover, &row);
          add_row(cover, &row);
        }
}

static void play_once(gpu_rank *rank) {
  Layer l;
  open_layer(&l, rank);
  check_round(&l, l.what.max_tokens, l.what.experts);
  CHECK_OK(reduce_and_wait(&l)); // in place with another residual
  results(&l);
}

static void play_none(gpu_rank *rank) {
  Layer l;
  open_layer(&l, rank);
  check_round(&l, 0, l.what.experts);
}

// Every value, and every pair of values that can be.
static void run_pairs(int32_t gpus) {
  static Cover cover;
  cover_pairs(&cover);
  printf("%d cases have all pairs of settings\n", cover.num_rows);
  for (int i = 0; i < cover.num_rows; ++i) {
    const int *v = cover.rows[i].values;
    int64_t tokens = lengths[v[LENGTH]];
    Case what = {tokens ? tokens : 1,
                 widths[v[WIDTH]],
                 experts_of[v[NUMBER_OF_EXPERTS]],
                 dtypes[v[DTYPE]],
                 "f32",
                 i % 3 == 0,
                 false,
                 ABSENT,
                 output_sets[v[OUTPUT_SET]],
                 0,
                 1e-6,
                 0,
                 codes[v[CODES]][0],
                 codes[v[CODES]][1]};
    gpu_case("pairs %d: %s, outputs %d, codes %d, %d ranks, hidden %d, %d tokens, %d experts, %d GPUs", i, what.dtype, what.outputs, v[CODES],
             v[RANKS] + 1, (int)what.hidden, (int)tokens, (int)what.experts, gpus)
        gpu_both(v[RANKS] + 1, gpus, tokens ? play_once : play_none, &what);
  }
}

//===--- all --------------------------------------------------------------------------------------===//

typedef struct Named {
  const char *name;
  Case what;
} Named;

// max_tokens, hidden, experts, dtype, scales, fp32_acc, special, number, outputs, shift, epsilon, bias, format, layout
static const Named cases[] = {{"instance 7168", {19, 7168, 3, "bf16", "f32", false, false, ABSENT, ALL, 0, 1e-6, 0, NONE, LINEAR}},
                              {"instance 2048", {33, 2048, 8, "bf16", "bf16", false, false, SIGNED, ALL | IN_PLACE, 0, 1e-5, 1, NONE, LINEAR}},
                              {"7168 in f32", {9, 7168, 3, "bf16", "f32", true, true, UNSIGNED, ALL, 0, 1e-6, 0, NONE, LINEAR}},
                              {"one piece", {40, 8, 2, "f16", "f16", false, false, SIGNED, ALL, 0, 1e-6, 0.5, NONE, LINEAR}},
                              {"special numbers", {40, 264, 2, "bf16", "f32", false, true, ABSENT, ALL, 0, 0, 0, NONE, LINEAR}},
                              {"special numbers in f32", {40, 264, 2, "f16", "bf16", true, true, ABSENT, ALL, 0, 0, 0, NONE, LINEAR}},
                              {"f32", {21, 1000, 4, "f32", "f32", false, true, SIGNED, ALL, 0, 1e-6, 0, NONE, LINEAR}},
                              {"rows that are not aligned", {21, 1000, 4, "bf16", "f32", true, false, SIGNED, ALL, 1, 1e-6, 0, NONE, LINEAR}},
                              {"more than a block", {5, 20008, 2, "f16", "f32", false, false, ABSENT, ALL, 0, 1e-6, 0, NONE, LINEAR}},
                              {"more than a block in f32", {3, 16384, 2, "f32", "f32", true, false, ABSENT, ALL, 1, 1e-6, 0, NONE, LINEAR}},
                              {"the sum alone", {21, 512, 4, "bf16", "f32", false, false, SIGNED, SUM, 0, 1e-6, 0, NONE, LINEAR}},
                              {"the residual alone", {21, 512, 4, "bf16", "f32", false, false, SIGNED, IN_PLACE, 0, 1e-6, 0, NONE, LINEAR}},
                              {"the norm alone", {21, 512, 4, "bf16", "f32", false, false, SIGNED, NORM, 0, 1e-6, 0, NONE, LINEAR}},
                              {"nvfp4, 7168", {19, 7168, 3, "bf16", "f32", false, false, ABSENT, ALL, 0, 1e-6, 0, NVFP4, TILES_OF_128}},
                              {"mxfp8, 2048", {33, 2048, 1, "bf16", "f32", false, true, ABSENT, IN_PLACE, 0, 1e-6, 0, MXFP8, TILES_OF_8}},
                              {"fp8_token, 7168", {19, 7168, 1, "bf16", "f32", false, false, ABSENT, NORM, 0, 1e-6, 0, FP8_TOKEN, LINEAR}},
                              {"nvfp4 alone", {40, 272, 2, "bf16", "f32", false, true, ABSENT, 0, 0, 1e-6, 1, NVFP4, LINEAR}},
                              {"nvfp4 in f32", {5, 48, 2, "f32", "f32", false, true, ABSENT, ALL, 0, 1e-6, 0, NVFP4, TILES_OF_8}},
                              {"mxfp4", {130, 96, 2, "f16", "f32", true, false, ABSENT, ALL, 1, 1e-6, 0, MXFP4, TILES_OF_128}},
                              {"fp8_block", {21, 1000, 2, "f16", "f32", false, true, ABSENT, ALL, 0, 1e-6, 0, FP8_BLOCK, LINEAR}},
                              {"fp8_token of two chunks", {21, 16384, 1, "bf16", "f32", false, true, ABSENT, 0, 0, 1e-6, 0, FP8_TOKEN, LINEAR}},
                              {"fp8_tensor", {21, 2880, 1, "bf16", "f32", false, true, ABSENT, SUM, 1, 1e-6, 0, FP8_TENSOR, LINEAR}},
                              {"mxfp8 of two chunks", {21, 8224, 1, "f32", "f32", false, false, ABSENT, NORM, 0, 1e-6, 0, MXFP8, LINEAR}},
                              {"hundreds of tokens", {700, 64, 1, "bf16", "f32", true, false, ABSENT, ALL, 0, 1e-6, 0, NONE, LINEAR}}};

static const struct {
  const char *name;
  gpu_body *play;
  Case what;
} many[] = {{"more tokens than packets", play_one_shot, {450, 7168, 1, "bf16", "f32", false, false, ABSENT, ALL, 0, 1e-6, 0, NONE, LINEAR}},
            {"more tokens than rows", play_two_shots, {513, 16384, 1, "f32", "f32", true, false, ABSENT, NORM, 0, 1e-6, 0, NONE, LINEAR}},
            {"many bytes", play_auto, {130, 7168, 3, "bf16", "f32", false, true, SIGNED, ALL | IN_PLACE, 0, 1e-6, 0, NVFP4, TILES_OF_128}},
            {"many bytes of f16", play_auto, {300, 2888, 2, "f16", "bf16", false, true, ABSENT, ALL, 1, 1e-6, 1, FP8_BLOCK, LINEAR}},
            {"many bytes of f32", play_auto, {120, 8192, 1, "f32", "f32", true, false, ABSENT, NORM, 0, 1e-6, 0, NONE, LINEAR}}};

static void run_on(int32_t size, int32_t gpus) {
  size_t count = sizeof cases / sizeof *cases, step_size = gpu_extent() == GPU_SMALL ? 5 : 1;
  for (size_t i = 0; i < count; i += step_size) {
    Case what = cases[i].what;
    gpu_case("%s, %d ranks, %d GPUs", cases[i].name, size, gpus) gpu_both(size, gpus, play, &what);
  }
  for (size_t i = 0; i < sizeof many / sizeof *many && gpu_extent() != GPU_SMALL; ++i) {
    Case what = many[i].what;
    gpu_case("%s, %d ranks, %d GPUs", many[i].name, size, gpus) gpu_both(size, gpus, many[i].play, &what);
  }
  Case small = {5, 64, 3, "bf16", "f32", false, false, SIGNED, ALL, 0, 1e-6, 0, NONE, LINEAR};
  Case loop = {16, 512, 2, "bf16", "f32", false, false, SIGNED, ALL | IN_PLACE, 0, 1e-6, 0, NONE, LINEAR};
  gpu_case("numbers of experts, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, refuse_numbers, &small);
  gpu_case("replays, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &loop);
  Case chain = {8, 264, 2, "bf16", "f32", false, false, SIGNED, NORM, 0, 1e-6, 0, NONE, LINEAR};
  gpu_case("ten thousand calls, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, endure, &chain);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count();
  run_on(1, 1);
  run_on(2, gpus);
  if (gpus == 1) run_on(4, gpus);
  if (gpu_extent() != GPU_SMALL && gpus > 1) run_on(4, gpus);
  if (gpu_extent() != GPU_SMALL) run_pairs(gpus);
  if (gpu_extent() == GPU_FULL) run_on(3, 1);
  if (gpu_extent() == GPU_FULL) run_on(8, gpus);
  return gpu_end();
}

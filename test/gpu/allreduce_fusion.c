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

// A call that is several exchanges.
static void play_many(gpu_rank *rank) {
  Layer l;
  open_layer(&l, rank);
  l.params.strategy = l.what.fp32_acc ? MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT : MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT;
  check_round(&l, l.what.max_tokens, l.what.experts);
  check_round(&l, l.what.max_tokens - 1, l.what.experts);
}

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

static void run_on(int32_t size, int32_t gpus) {
  size_t count = sizeof cases / sizeof *cases, step_size = gpu_extent() == GPU_SMALL ? 5 : 1;
  for (size_t i = 0; i < count; i += step_size) {
    Case what = cases[i].what;
    gpu_case("%s, %d ranks, %d GPUs", cases[i].name, size, gpus) gpu_both(size, gpus, play, &what);
  }
  Case packets = {450, 7168, 1, "bf16", "f32", false, false, ABSENT, ALL, 0, 1e-6, 0, NONE, LINEAR},
       rows = {513, 16384, 1, "f32", "f32", true, false, ABSENT, NORM, 0, 1e-6, 0, NONE, LINEAR};
  if (gpu_extent() != GPU_SMALL) {
    gpu_case("more tokens than packets, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, play_many, &packets);
    gpu_case("more tokens than rows, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, play_many, &rows);
  }
  Case small = {5, 64, 3, "bf16", "f32", false, false, SIGNED, ALL, 0, 1e-6, 0, NONE, LINEAR};
  Case loop = {16, 512, 2, "bf16", "f32", false, false, SIGNED, ALL | IN_PLACE, 0, 1e-6, 0, NONE, LINEAR};
  gpu_case("numbers of experts, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, refuse_numbers, &small);
  gpu_case("replays, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &loop);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count();
  run_on(1, 1);
  run_on(2, gpus);
  if (gpus == 1) run_on(4, gpus);
  if (gpu_extent() != GPU_SMALL && gpus > 1) run_on(4, gpus);
  if (gpu_extent() == GPU_FULL) run_on(3, 1);
  if (gpu_extent() == GPU_FULL) run_on(8, gpus);
  return gpu_end();
}

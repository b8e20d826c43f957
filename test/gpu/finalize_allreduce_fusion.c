//===- finalize_allreduce_fusion.c - moe.finalize_allreduce_fusion on GPUs ------------------------------===//
//
// Residuals, norms and codes must have the bits of the host backend, by the kernels that the library chooses and by the generic ones. What the op
// shares with moe.allreduce_fusion is tested there in more cases.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include <stdio.h>

typedef struct Case {
  int64_t max_tokens, hidden, rows, top_k;
  const char *dtype, *scales; // scales NULL: none
  bool fp32_acc, shared, special;
  double factor;
  int64_t format;
} Case;

typedef struct Layer {
  gpu_rank *rank;
  Case what;
  gpu_buffer *workspace, *metainfo;
  exchange_operand residual, gamma, rows, indices, scales, shared, total, norm, codes, code_scales;
  moert_moe_initialize_params sizes;
  moert_moe_finalize_allreduce_fusion_params params;
  moert_moe_finalize_allreduce_fusion_args args;
  moert_kernel *kernel;
} Layer;

#define NONE MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_QUANT_FORMAT_NONE
#define NVFP4 MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_QUANT_FORMAT_NVFP4
#define FP8_TOKEN MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_QUANT_FORMAT_FP8_TOKEN

//===--- operands ---------------------------------------------------------------------------------===//

static moert_tensor *operand(exchange_operand *operand, int32_t ndim, int64_t a, int64_t b) {
  operand->memory->tensor = exchange_tensor(operand, ndim, a, b, 0, 0);
  return &operand->memory->tensor;
}

static void allocate(Layer *l) {
  gpu_rank *rank = l->rank;
  const Case *what = &l->what;
  exchange_operand *rows[] = {&l->residual, &l->shared, &l->total, &l->norm};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) rows[i]->memory = gpu_new(rank, what->dtype, 1, what->max_tokens * what->hidden);
  l->gamma.memory = gpu_new(rank, what->dtype, 1, what->hidden);
  l->rows.memory = gpu_new(rank, what->dtype, 1, what->rows * what->hidden);
  l->indices.memory = gpu_new(rank, "i32", 1, what->max_tokens * what->top_k);
  l->scales.memory = gpu_new(rank, what->scales ? what->scales : "f32", 1, what->max_tokens * what->top_k);
  l->codes.memory = gpu_new(rank, "i8", 1, what->max_tokens * what->hidden);
  l->code_scales.memory = gpu_new(rank, what->format == FP8_TOKEN ? "f32" : "ui8", 1, what->max_tokens * what->hidden / 16);
}

static void shape(Layer *l, int64_t tokens) {
  const Case *what = &l->what;
  int64_t hidden = what->hidden, width = what->format == NVFP4 ? hidden / 2 : hidden, columns = what->format == NVFP4 ? hidden / 16 : 1;
  l->args.residual_in = operand(&l->residual, 2, tokens, hidden);
  l->args.norm_weight = operand(&l->gamma, 1, hidden, 0);
  l->args.allreduce_in = operand(&l->rows, 2, what->rows, hidden);
  l->args.expanded_idx_to_permuted_idx = operand(&l->indices, 2, tokens, what->top_k);
  l->args.expert_scale_factor = what->scales ? operand(&l->scales, 2, tokens, what->top_k) : NULL;
  l->args.shared_expert_output = what->shared ? operand(&l->shared, 2, tokens, hidden) : NULL;
  l->args.residual_out = operand(&l->total, 2, tokens, hidden);
  l->args.norm_out = operand(&l->norm, 2, tokens, hidden);
  l->args.quant_out = what->format == NONE ? NULL : operand(&l->codes, 2, tokens, width);
  l->args.scale_out = what->format == NONE ? NULL : operand(&l->code_scales, 2, tokens, columns);
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
  l->params = (moert_moe_finalize_allreduce_fusion_params)MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_PARAMS_INIT;
  l->params.hidden_size = what->hidden;
  l->params.rms_eps = 1e-6;
  l->params.fp32_acc = what->fp32_acc;
  l->params.routed_scaling_factor = what->factor;
  l->params.quant_format = what->format;
  if (what->format == NVFP4) l->params.scale_factor = 37.5;
  l->args = (moert_moe_finalize_allreduce_fusion_args)MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_ARGS_INIT;
  l->args.workspace = &l->workspace->tensor;
  l->args.metainfo = &l->metainfo->tensor;
  shape(l, what->max_tokens);
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  args.workspace = &l->workspace->tensor;
  args.metainfo = &l->metainfo->tensor;
  CHECK_OK(moert_moe_initialize(&l->sizes, &args, NULL, rank->context));
}

//===--- calls ------------------------------------------------------------------------------------===//

static void fill(Layer *l) {
  const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 3.0e38, 1.0e-40};
  gpu_buffer *numbers[] = {l->residual.memory, l->gamma.memory, l->rows.memory, l->scales.memory, l->shared.memory};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    gpu_random(numbers[i], 2);
    for (int64_t k = 0; k < numbers[i]->count && l->what.special; ++k) {
      int64_t chosen = gpu_random_below(l->rank, 3000);
      if (chosen < 7) gpu_set(numbers[i], k, special[chosen]);
      if (chosen >= 100 && chosen < 1000) gpu_set(numbers[i], k, -0.0);
    }
    gpu_upload(numbers[i]);
  }
  // A quarter of the choices has no row here.
  for (int64_t k = 0; k < l->indices.memory->count; ++k) {
    bool has_row = l->what.rows > 0 && gpu_random_below(l->rank, 4) > 0;
    gpu_set(l->indices.memory, k, has_row ? (double)gpu_random_below(l->rank, l->what.rows) : -1.0);
  }
  gpu_upload(l->indices.memory);
}

static moert_status reduce(Layer *l) { return moert_moe_finalize_allreduce_fusion(&l->params, &l->args, l->kernel, l->rank->context); }

static moert_status reduce_and_wait(Layer *l) {
  moert_status status = reduce(l);
  return status ? status : moert_context_synchronize(l->rank->context);
}

static void results(Layer *l) {
  gpu_result("total", l->total.memory);
  gpu_result("norm", l->norm.memory);
  gpu_result("codes", l->codes.memory);
  gpu_result("scales", l->code_scales.memory);
}

static void check_round(Layer *l, int64_t tokens) {
  shape(l, tokens);
  fill(l);
  CHECK_OK(reduce_and_wait(l));
  results(l);
}

static void play(gpu_rank *rank) {
  const int64_t strategies[] = {MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT, MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT};
  Layer l;
  open_layer(&l, rank);
  for (int i = 0; i < 4; ++i) {
    l.params.strategy = strategies[i % 2];
    if (i == 2 && rank->cuda) CHECK_OK(moert_kernel_find("moe.finalize_allreduce_fusion/sm_90a", &l.kernel));
    check_round(&l, l.what.max_tokens);
    check_round(&l, 1);
    check_round(&l, 0);
  }
}

//===--- indices that name no row -----------------------------------------------------------------===//

// On a GPU they are found when the exchange has begun, so that it fails on all ranks, until they recover.
static void refuse_indices(gpu_rank *rank) {
  const int64_t strategies[] = {MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_STRATEGY_ONE_SHOT, MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT};
  Layer l;
  open_layer(&l, rank);
  for (int i = 0; i < 2; ++i) {
    l.params.strategy = strategies[i];
    fill(&l);
    if (rank->rank == 0) gpu_set(l.indices.memory, 2 * l.what.top_k + 1, (double)l.what.rows);
    gpu_upload(l.indices.memory);
    moert_status status = reduce_and_wait(&l);
    if (rank->rank == 0)
      CHECK_FAILS(
          status, MOERT_ERROR_DATA,
          "moe.finalize_allreduce_fusion: operand 'expanded_idx_to_permuted_idx' holds 6 for token 2, slot 1, must be at least -1 and less than 6, "
          "dimension 0 of 'allreduce_in'");
    else
      CHECK(status == MOERT_ERROR_PEER_FAILED);
    CHECK(gpu_is_filled(l.norm.memory, 0xff));
    CHECK_OK(moert_comm_recover(rank->comm, (UINT64_C(1) << rank->size) - 1, 0));
    fill(&l);
    CHECK_OK(reduce_and_wait(&l));
  }
}

//===--- replays ----------------------------------------------------------------------------------===//

static moert_status step(gpu_rank *rank, void *data) {
  (void)rank;
  return reduce(data);
}

static void replay(gpu_rank *rank) {
  Layer l;
  open_layer(&l, rank);
  l.args.residual_out = l.args.residual_in; // so that every replay has other inputs
  fill(&l);
  CHECK_OK(reduce_and_wait(&l));
  CHECK_OK(gpu_replay(rank, step, &l, gpu_extent() == GPU_SMALL ? 3 : 50));
  gpu_result("residual", l.residual.memory);
  results(&l);
}

//===--- all --------------------------------------------------------------------------------------===//

typedef struct Named {
  const char *name;
  Case what;
} Named;

// max_tokens, hidden, rows, top_k, dtype, scales, fp32_acc, shared, special, factor, format
static const Named cases[] = {{"instance 7168", {19, 7168, 40, 8, "bf16", "f32", false, true, false, 1, NONE}},
                              {"a factor", {33, 2048, 100, 4, "bf16", "bf16", false, true, true, 2.5, NONE}},
                              {"7168 in f32", {9, 7168, 30, 8, "bf16", "f32", true, false, true, 2.5, NONE}},
                              {"without scales", {40, 264, 50, 3, "f16", NULL, false, true, true, 1, NONE}},
                              {"f32", {21, 1000, 64, 5, "f32", "f32", false, true, false, 0.3, NONE}},
                              {"no rows", {21, 512, 0, 2, "bf16", "f32", false, true, false, 1, NONE}},
                              {"many choices", {5, 64, 200, 33, "bf16", "f16", true, true, false, 1, NONE}},
                              {"nvfp4", {19, 7168, 40, 8, "bf16", "f32", false, true, false, 1, NVFP4}},
                              {"fp8_token of two chunks", {5, 16384, 10, 2, "f16", "f32", false, false, false, 1, FP8_TOKEN}}};

static void run_on(int32_t size, int32_t gpus) {
  size_t count = sizeof cases / sizeof *cases, step_size = gpu_extent() == GPU_SMALL ? 3 : 1;
  for (size_t i = 0; i < count; i += step_size) {
    Case what = cases[i].what;
    gpu_case("%s, %d ranks, %d GPUs", cases[i].name, size, gpus) gpu_both(size, gpus, play, &what);
  }
  Case small = {5, 64, 6, 3, "bf16", "f32", false, true, false, 1, NONE};
  gpu_case("indices, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, refuse_indices, &small);
  gpu_case("replays, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &small);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count();
  run_on(1, 1);
  run_on(2, gpus);
  if (gpu_extent() != GPU_SMALL) run_on(4, gpus);
  if (gpu_extent() == GPU_FULL) run_on(3, 1);
  return gpu_end();
}

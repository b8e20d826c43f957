//===- all_to_all.c - moe.dispatch, combine and sanitize_expert_ids on GPUs ---------------------------===//
//
// Rows, counts, the words of the workspace and sums must have the bits of the host backend, by the kernels that the library chooses and by the
// generic ones, on as many ranks as there are GPUs and on more.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include <stdio.h>
#include <stdlib.h>

//===--- rounds -----------------------------------------------------------------------------------===//

// How many tokens this rank has in a round: as many as there may be, none, or any number. R grows.
static int64_t tokens_of(gpu_rank *rank, const exchange_case *what, int64_t round, int64_t *most) {
  *most = 1 + (what->max_tokens - 1) * (round + 1) / what->rounds;
  int64_t any = gpu_random_below(rank, *most + 1);
  if (what->ids == IDS_FIRST || (round + rank->rank) % 3 == 0) return *most;
  return (round + rank->rank) % 3 == 1 && round % 2 == 0 ? 0 : any;
}

static void name_generic_kernels(exchange_layer *l) {
  if (!l->rank->cuda) return;
  CHECK_OK(moert_kernel_find("moe.dispatch/sm_90a", &l->dispatch_kernel));
  CHECK_OK(moert_kernel_find("moe.combine/sm_90a", &l->combine_kernel));
}

static void play(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, what, 0);
  for (int64_t round = 0; round < what->rounds; ++round) {
    int64_t most, tokens = tokens_of(rank, what, round, &most);
    exchange_use_payloads(&l, 1 + round % (1 + what->further)); // rows of other sizes in the same places
    exchange_check_round(&l, tokens, most);
  }
  exchange_use_payloads(&l, 1 + what->further);
  name_generic_kernels(&l);
  exchange_check_round(&l, what->max_tokens - (rank->rank > 0), what->max_tokens);
  CHECK_OK(exchange_initialize(&l)); // again: epochs begin anew
  exchange_check_round(&l, what->max_tokens, what->max_tokens);
}

//===--- expert ids that travel along -------------------------------------------------------------===//

enum { INVALID = -5 };

static void sanitize_one(gpu_rank *rank, exchange_layer *l, moert_kernel *kernel, int64_t invalid, gpu_buffer *received) {
  moert_moe_sanitize_expert_ids_params params = MOERT_MOE_SANITIZE_EXPERT_IDS_PARAMS_INIT;
  moert_moe_sanitize_expert_ids_args args = MOERT_MOE_SANITIZE_EXPERT_IDS_ARGS_INIT;
  params.invalid_expert_id = invalid;
  args.workspace = &l->workspace->tensor;
  args.metainfo = &l->metainfo->tensor;
  args.expert_ids = &received->tensor;
  gpu_fill(received, GPU_POISON);
  CHECK_OK(moert_moe_sanitize_expert_ids(&params, &args, kernel, rank->context));
  gpu_result("sanitized ids", received);
}

static void sanitize(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  exchange_layer l;
  moert_kernel *generic = NULL;
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.sanitize_expert_ids/sm_90a", &generic));
  exchange_open(&l, rank, what, 0);
  exchange_shape(&l, rank->rank % 3 == 1 ? 0 : what->max_tokens - rank->rank, what->max_tokens);
  exchange_fill(&l);
  CHECK_OK(exchange_wait(&l, exchange_dispatch(&l)));
  gpu_buffer *received = gpu_new(rank, "i32", 3, rank->size, what->max_tokens, what->top_k);
  sanitize_one(rank, &l, NULL, -1, received);
  sanitize_one(rank, &l, NULL, 0, received);
  sanitize_one(rank, &l, NULL, INVALID, received);
  sanitize_one(rank, &l, generic, -1, received);
  CHECK_OK(exchange_wait(&l, exchange_combine(&l)));
  gpu_result("out", l.out.memory);
}

//===--- capacity ---------------------------------------------------------------------------------===//

// All rows are for expert 0, on rank 0, which has room for them, or for one less; the other ranks have room for one.
static void fill_up(gpu_rank *rank, int64_t missing) {
  const exchange_case *what = rank->user;
  exchange_layer l;
  int64_t rows = rank->size * what->max_tokens * what->top_k;
  exchange_open(&l, rank, what, rank->rank == 0 ? rows - missing : 1);
  exchange_fill(&l);
  moert_status status = exchange_wait(&l, exchange_dispatch(&l));
  gpu_same_status(rank, "dispatch", status);
  CHECK(status == (missing && rank->rank == 0 ? MOERT_ERROR_CAPACITY : MOERT_OK));
  gpu_result("recv", l.recv[0].memory);
  gpu_result("offsets", l.offsets.memory);
  if (status == MOERT_OK) status = exchange_wait(&l, exchange_combine(&l));
  CHECK(status == (missing ? rank->rank == 0 ? MOERT_ERROR_CAPACITY : MOERT_ERROR_PEER_FAILED : MOERT_OK));
  gpu_result("out", l.out.memory);
  if (!missing) return;
  CHECK_OK(moert_comm_recover(rank->comm, (UINT64_C(1) << rank->size) - 1, 0));
  l.what.ids = IDS_NONE; // which has room everywhere
  exchange_check_round(&l, what->max_tokens, what->max_tokens);
}

static void full(gpu_rank *rank) { fill_up(rank, 0); }
static void overfull(gpu_rank *rank) { fill_up(rank, 1); }

// On a GPU the host does not know how many rows arrived: a payload that has too few fails the combine for all ranks, until they recover.
static void leave_out_a_row(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  exchange_layer l;
  char text[256];
  int rows = (int)(rank->size * what->max_tokens * what->top_k);
  exchange_open(&l, rank, what, 0);
  exchange_fill(&l);
  CHECK_OK(exchange_wait(&l, exchange_dispatch(&l)));
  if (rank->rank == 0) l.combined.shape[0] = rows - 1;
  moert_status status = exchange_wait(&l, exchange_combine(&l));
  snprintf(text, sizeof text, "moe.combine: operand 'payload' has %d rows, must have at least %d, which the dispatch received", rows - 1, rows);
  if (rank->rank == 0)
    CHECK_FAILS(status, MOERT_ERROR_INVALID_SHAPE, text);
  else
    CHECK(status == MOERT_ERROR_PEER_FAILED);
  CHECK(gpu_is_filled(l.out.memory, 0xff));
  CHECK_OK(moert_comm_recover(rank->comm, (UINT64_C(1) << rank->size) - 1, 0));
  l.combined.shape[0] = rows;
  CHECK_OK(exchange_wait(&l, exchange_dispatch(&l)));
  CHECK_OK(exchange_wait(&l, exchange_combine(&l)));
  CHECK(!gpu_is_filled(l.out.memory, 0xff));
}

//===--- replays ----------------------------------------------------------------------------------===//

static void replay(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, what, 0);
  exchange_shape(&l, what->max_tokens - rank->rank % 2, what->max_tokens);
  cudaGraphExec_t executable = exchange_replay(&l, l.out.memory, NULL);
  exchange_check_round(&l, what->max_tokens, what->max_tokens); // calls and replays may alternate
  if (executable) cudaGraphExecDestroy(executable);
}

//===--- epochs -----------------------------------------------------------------------------------===//

// They wrap, and flags that were last raised half of them ago, as those of a new workspace, are not ahead. The host begins at 0 in any case.
static void wrap(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  const uint32_t last = UINT32_MAX - 2;
  exchange_layer l;
  exchange_open(&l, rank, what, 0);
  char *epoch = (char *)l.workspace->tensor.data + l.layout.offsets[MOERT_METAINFO_FLAG_VAL];
  if (rank->cuda) CHECK_OK(moert_copy(l.context, epoch, &last, sizeof last));
  for (int64_t round = 0; round < what->rounds; ++round) {
    exchange_fill(&l);
    CHECK_OK(exchange_wait(&l, exchange_enqueue(&l)));
    gpu_result("out", l.out.memory);
    gpu_result("recv", l.recv[0].memory);
  }
}

//===--- two workspaces ---------------------------------------------------------------------------===//

// Each with its stream; their rounds run at the same time.
static void play_two(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  exchange_layer l[2];
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  for (int i = 0; i < 2; ++i) exchange_open(&l[i], rank, what, 0);
  if (!CHECK_OK(moert_context_create(rank->comm, &options, &l[1].context))) return;
  exchange_settle(rank);
  for (int64_t round = 0; round < what->rounds; ++round) {
    for (int i = 0; i < 2; ++i) exchange_fill(&l[i]);
    CHECK_OK(moert_context_synchronize(rank->context)); // which the inputs were written on
    for (int i = 0; i < 2; ++i) CHECK_OK(exchange_dispatch(&l[i]));
    for (int i = 1; i >= 0; --i) CHECK_OK(exchange_combine(&l[i]));
    for (int i = 0; i < 2; ++i) CHECK_OK(moert_context_synchronize(l[i].context));
    for (int i = 0; i < 2; ++i) gpu_result("out", l[i].out.memory);
    for (int i = 0; i < 2; ++i) gpu_result("recv", l[i].recv[0].memory);
  }
  moert_context_destroy(l[1].context);
}

//===--- E4M3 on the wire, quantised sums ------------------------------------------------------------===//

enum {
  NONE = MOERT_MOE_COMBINE_OUTPUT_FORMAT_NONE,
  NVFP4 = MOERT_MOE_COMBINE_OUTPUT_FORMAT_NVFP4,
  MXFP4 = MOERT_MOE_COMBINE_OUTPUT_FORMAT_MXFP4,
  MXFP8 = MOERT_MOE_COMBINE_OUTPUT_FORMAT_MXFP8,
  LINEAR = MOERT_MOE_COMBINE_SF_LAYOUT_LINEAR,
  TILES_128X4 = MOERT_MOE_COMBINE_SF_LAYOUT_128X4,
  TILES_8X4 = MOERT_MOE_COMBINE_SF_LAYOUT_8X4
};

typedef struct output_case {
  exchange_case what; // without a format, `out` is its own
  bool low;
  int64_t format, layout;
} output_case;

typedef struct quantized_output {
  exchange_operand codes, scales;
  int64_t columns, scale_columns, scale_rows; // scale_rows: those of the padded layout come in so many
} quantized_output;

static int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

static void open_quantized(quantized_output *output, gpu_rank *rank, const output_case *what) {
  const int64_t rows_of[] = {[LINEAR] = 1, [TILES_128X4] = 128, [TILES_8X4] = 8};
  int64_t blocks = what->what.hidden / (what->format == NVFP4 ? 16 : 32);
  output->columns = what->format == MXFP8 ? what->what.hidden : what->what.hidden / 2;
  output->scale_columns = what->layout == LINEAR ? blocks : round_up(blocks, 4);
  output->scale_rows = rows_of[what->layout];
  int64_t rows = what->what.max_tokens, scale_rows = round_up(rows, output->scale_rows);
  output->codes.memory = gpu_new(rank, what->format == MXFP8 ? "f8E4M3FN" : "ui8", 1, rows * output->columns + what->what.shift);
  output->scales.memory = gpu_new(rank, what->format == NVFP4 ? "f8E4M3FN" : "f8E8M0FNU", 1, scale_rows * output->scale_columns + what->what.shift);
}

// Poisoned, for the tokens of the round.
static void shape_quantized(quantized_output *output, exchange_layer *l) {
  exchange_operand *codes = &output->codes, *scales = &output->scales;
  gpu_fill(codes->memory, GPU_POISON);
  gpu_fill(scales->memory, GPU_POISON);
  codes->memory->tensor = exchange_tensor(codes, 2, l->tokens, output->columns, 0, l->what.shift);
  scales->memory->tensor = exchange_tensor(scales, 2, round_up(l->tokens, output->scale_rows), output->scale_columns, 0, l->what.shift);
  l->combine_args.out = &codes->memory->tensor;
  l->combine_args.output_scales = &scales->memory->tensor;
}

static void open_output(exchange_layer *l, quantized_output *output, gpu_rank *rank) {
  const output_case *what = rank->user;
  exchange_open(l, rank, &what->what, 0);
  if (what->format != NONE) open_quantized(output, rank, what);
  l->combine_params.use_low_precision = what->low;
  l->combine_params.output_format = what->format;
  l->combine_params.sf_layout = what->layout;
  if (what->format == NVFP4) l->combine_params.output_scalar_scale = 3.7;
}

static void play_output_round(exchange_layer *l, quantized_output *output, int64_t tokens, int64_t most) {
  bool quantizes = l->combine_params.output_format != NONE;
  exchange_shape(l, tokens, most);
  exchange_fill(l);
  if (quantizes) shape_quantized(output, l);
  if (!CHECK_OK(exchange_wait(l, exchange_dispatch(l)))) return;
  exchange_run_experts(l);
  if (!CHECK_OK(exchange_wait(l, exchange_combine(l)))) return;
  gpu_result("out", quantizes ? output->codes.memory : l->out.memory);
  if (quantizes) gpu_result("scales", output->scales.memory);
}

static void play_output(gpu_rank *rank) {
  const output_case *what = rank->user;
  exchange_layer l;
  quantized_output output = {0};
  open_output(&l, &output, rank);
  for (int64_t round = 0; round < what->what.rounds; ++round) {
    int64_t most, tokens = tokens_of(rank, &what->what, round, &most);
    play_output_round(&l, &output, tokens, most);
  }
  name_generic_kernels(&l);
  play_output_round(&l, &output, what->what.max_tokens - (rank->rank > 0), what->what.max_tokens);
}

static void replay_output(gpu_rank *rank) {
  const output_case *what = rank->user;
  exchange_layer l;
  quantized_output output = {0};
  open_output(&l, &output, rank);
  exchange_shape(&l, what->what.max_tokens - rank->rank % 2, what->what.max_tokens);
  shape_quantized(&output, &l);
  cudaGraphExec_t executable = exchange_replay(&l, output.codes.memory, output.scales.memory);
  if (executable) cudaGraphExecDestroy(executable);
}

// A combine that fails leaves NaN in codes and scales, padding included.
static void leave_out_a_row_of_codes(gpu_rank *rank) {
  exchange_layer l;
  quantized_output output = {0};
  open_output(&l, &output, rank);
  exchange_fill(&l);
  shape_quantized(&output, &l);
  CHECK_OK(exchange_wait(&l, exchange_dispatch(&l)));
  if (rank->rank == 0) --l.combined.shape[0];
  CHECK(exchange_wait(&l, exchange_combine(&l)) == (rank->rank == 0 ? MOERT_ERROR_INVALID_SHAPE : MOERT_ERROR_PEER_FAILED));
  CHECK(gpu_is_filled(output.codes.memory, 0xff));
  CHECK(gpu_is_filled(output.scales.memory, 0xff));
}

//===--- instances --------------------------------------------------------------------------------===//

static void refuse_instances(gpu_rank *rank) {
  exchange_layer l;
  exchange_open(&l, rank, rank->user, 0);
  CHECK_OK(moert_kernel_find("moe.dispatch/sm_90a/i32,top_k=8", &l.dispatch_kernel));
  CHECK_FAILS(exchange_dispatch(&l), MOERT_ERROR_INVALID_ARGUMENT,
              "moe.dispatch: kernel is specialisation 0 of the op, which was made for other parameters or element types");
  l.dispatch_kernel = NULL;
  exchange_fill(&l);
  CHECK_OK(exchange_wait(&l, exchange_dispatch(&l)));
  CHECK_OK(moert_kernel_find("moe.combine/sm_90a/bf16,hidden_size=2048,top_k=8", &l.combine_kernel));
  CHECK_FAILS(exchange_combine(&l), MOERT_ERROR_INVALID_ARGUMENT,
              "moe.combine: kernel is specialisation 1 of the op, which was made for other parameters or element types");
  l.combine_kernel = NULL;
  CHECK_OK(exchange_wait(&l, exchange_combine(&l)));
}

//===--- all --------------------------------------------------------------------------------------===//

typedef struct Named {
  const char *name;
  exchange_case what;
} Named;

// max_tokens, hidden, top_k, experts, dtype, out, grouped, in_place, ids, rounds, further, shift, special
static const Named cases[] = {
    {"rows of one rank", {9, 64, 2, 9, "bf16", "f32", false, false, IDS_ANY, 3, 0, 0, false}},
    {"instance 7168 8", {33, 7168, 8, 64, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}},
    {"instance 2048 8 in place", {20, 2048, 8, 33, "bf16", "bf16", false, true, IDS_WILD, 3, 0, 0, true}},
    {"instance of top_k 4", {300, 32, 4, 16, "f16", "f16", false, false, IDS_ANY, 3, 0, 0, false}},
    {"payloads of odd rows", {17, 24, 3, 11, "bf16", "f32", false, false, IDS_WILD, 4, 7, 0, true}},
    {"rows that are not aligned", {17, 40, 6, 19, "f16", "f32", false, false, IDS_ANY, 3, 3, 1, true}},
    {"rows of an odd size", {13, 7, 5, 8, "bf16", "f16", false, false, IDS_ANY, 3, 2, 0, true}},
    {"odd rows, few and many", {150, 24, 3, 11, "bf16", "f32", false, false, IDS_WILD, 4, 7, 0, true}},
    {"rows that are not aligned, few and many", {140, 40, 6, 19, "f16", "f32", false, false, IDS_ANY, 3, 3, 1, true}},
    {"f32 in place, few and many", {135, 24, 7, 13, "f32", "f32", false, true, IDS_TWICE, 3, 0, 0, true}},
    {"f32 in place", {11, 20, 7, 13, "f32", "f32", false, true, IDS_TWICE, 3, 0, 0, true}},
    {"top_k 10", {11, 48, 10, 20, "f32", "bf16", false, false, IDS_ANY, 2, 0, 0, false}},
    {"top_k 16", {11, 48, 16, 64, "f16", "f32", false, false, IDS_ANY, 2, 0, 0, false}},
    {"top_k 22", {11, 48, 22, 64, "bf16", "f32", false, false, IDS_ANY, 2, 0, 0, true}},
    {"top_k 32", {11, 48, 32, 64, "f32", "f32", false, false, IDS_ANY, 2, 0, 0, false}},
    {"top_k 1", {11, 48, 1, 8, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, true}},
    {"one token", {1, 128, 4, 8, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}},
    {"one expert", {40, 64, 4, 8, "bf16", "f32", false, false, IDS_ONE, 2, 0, 0, false}},
    {"no expert", {40, 64, 4, 8, "bf16", "f32", false, false, IDS_NONE, 2, 0, 0, false}},
    {"thousands of tokens", {2500, 16, 4, 31, "bf16", "f32", false, false, IDS_ANY, 2, 1, 0, false}},
    {"thousands of tokens in place", {1800, 24, 3, 10, "bf16", "bf16", false, true, IDS_WILD, 3, 0, 0, true}},
    {"grouped", {37, 64, 4, 21, "bf16", "f32", true, false, IDS_ANY, 4, 0, 0, false}},
    {"grouped 7168 8", {33, 7168, 8, 64, "bf16", "bf16", true, false, IDS_ANY, 2, 0, 0, false}},
    {"grouped payloads of odd rows", {17, 24, 3, 11, "f16", "f16", true, false, IDS_WILD, 3, 7, 0, true}},
    {"grouped rows that are not aligned", {19, 41, 5, 9, "f32", "bf16", true, false, IDS_WILD, 3, 2, 1, true}},
    {"grouped experts in two slots", {12, 32, 6, 10, "bf16", "f32", true, false, IDS_TWICE, 2, 0, 0, false}},
    {"grouped one expert", {40, 64, 4, 8, "bf16", "f32", true, false, IDS_ONE, 2, 0, 0, false}},
    {"grouped no expert", {40, 64, 4, 8, "bf16", "f32", true, false, IDS_NONE, 2, 0, 0, false}},
    {"grouped hundreds of experts", {600, 16, 8, 700, "bf16", "f32", true, false, IDS_ANY, 2, 0, 0, false}},
    {"grouped thousands of rows, hundreds of experts", {1500, 16, 8, 300, "bf16", "f32", true, false, IDS_WILD, 3, 0, 0, true}},
    {"grouped thousands of rows", {2500, 16, 6, 12, "f16", "f32", true, false, IDS_ANY, 2, 0, 0, false}}};

static void run_cases(int32_t size, int32_t gpus) {
  size_t count = sizeof cases / sizeof *cases, step_size = gpu_extent() == GPU_SMALL ? 5 : 1;
  for (size_t i = 0; i < count; i += step_size) {
    exchange_case what = cases[i].what;
    if (what.experts < size || what.experts < what.top_k) what.experts = size > what.top_k ? size : what.top_k;
    gpu_case("%s, %d ranks, %d GPUs", cases[i].name, size, gpus) gpu_both(size, gpus, play, &what);
  }
}

typedef struct NamedOutput {
  const char *name;
  output_case what;
} NamedOutput;

// what; low, format, layout
static const NamedOutput output_cases[] = {
    {"nvfp4", {{17, 48, 4, 11, "bf16", "f32", false, false, IDS_ANY, 3, 0, 0, true}, false, NVFP4, LINEAR}},
    {"nvfp4, few and many", {{150, 48, 4, 11, "bf16", "f32", false, false, IDS_ANY, 3, 0, 0, true}, false, NVFP4, LINEAR}},
    {"low precision", {{33, 160, 8, 16, "bf16", "bf16", false, false, IDS_ANY, 3, 0, 0, true}, true, NONE, LINEAR}},
    {"mxfp8 in tiles of 8", {{19, 160, 6, 9, "f16", "f32", false, false, IDS_WILD, 3, 0, 0, true}, false, MXFP8, TILES_8X4}},
    {"mxfp4 in tiles of 128, grouped", {{130, 96, 3, 12, "f32", "f32", true, false, IDS_ANY, 2, 0, 0, true}, false, MXFP4, TILES_128X4}},
    {"low precision in place", {{20, 300, 4, 33, "f32", "f32", false, true, IDS_WILD, 3, 0, 0, true}, true, NONE, LINEAR}},
    {"low precision grouped", {{23, 41, 5, 9, "f16", "bf16", true, false, IDS_TWICE, 3, 0, 1, true}, true, NONE, LINEAR}},
    {"instance 7168 8, nvfp4", {{33, 7168, 8, 64, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}, false, NVFP4, TILES_128X4}},
    {"instance 7168 8, low precision", {{33, 7168, 8, 64, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, true}, true, NONE, LINEAR}},
    {"instance 2048 8 in place, low precision", {{20, 2048, 8, 33, "bf16", "bf16", false, true, IDS_WILD, 3, 0, 0, true}, true, NONE, LINEAR}},
    {"2880, mxfp8, low precision", {{12, 2880, 4, 16, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, true}, true, MXFP8, TILES_128X4}},
    {"2880, mxfp4 in place, low precision", {{9, 2880, 4, 16, "f16", "f32", false, true, IDS_ANY, 2, 0, 0, true}, true, MXFP4, LINEAR}},
    {"7168, mxfp8 grouped", {{33, 7168, 8, 64, "bf16", "bf16", true, false, IDS_ANY, 2, 0, 0, false}, false, MXFP8, LINEAR}},
    {"nvfp4 grouped, low precision", {{14, 48, 22, 64, "f16", "f16", true, false, IDS_WILD, 2, 0, 0, true}, true, NVFP4, TILES_8X4}},
    {"mxfp8 that is not aligned", {{17, 96, 6, 19, "bf16", "f32", false, false, IDS_ANY, 3, 0, 1, true}, false, MXFP8, LINEAR}},
    {"nvfp4 that is not aligned", {{17, 80, 7, 19, "f16", "f32", false, false, IDS_ANY, 3, 0, 3, true}, true, NVFP4, TILES_8X4}},
    {"thousands of tokens, nvfp4", {{2500, 32, 4, 31, "bf16", "f32", false, false, IDS_ANY, 2, 0, 0, false}, false, NVFP4, TILES_128X4}},
    {"nvfp4 of one token", {{1, 32, 1, 8, "f32", "f32", false, false, IDS_ANY, 2, 0, 0, true}, false, NVFP4, TILES_128X4}}};

static void run_output_cases(int32_t size, int32_t gpus) {
  size_t count = sizeof output_cases / sizeof *output_cases, step_size = gpu_extent() == GPU_SMALL ? 4 : 1;
  for (size_t i = 0; i < count; i += step_size) {
    output_case what = output_cases[i].what;
    gpu_case("%s, %d ranks, %d GPUs", output_cases[i].name, size, gpus) gpu_both(size, gpus, play_output, &what);
  }
  output_case flat = {{25, 256, 4, 16, "bf16", "bf16", false, false, IDS_WILD, 5, 0, 0, true}, true, NVFP4, TILES_128X4};
  gpu_case("replays of codes, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay_output, &flat);
  output_case room = {{5, 32, 2, 8, "bf16", "f32", true, false, IDS_FIRST, 1, 0, 0, false}, false, MXFP8, TILES_8X4};
  gpu_case("a row of codes too few, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, leave_out_a_row_of_codes, &room);
}

static void run_on(int32_t size, int32_t gpus) {
  run_cases(size, gpus);
  run_output_cases(size, gpus);
  exchange_case ids = {23, 32, 4, 16, "bf16", "f32", false, false, IDS_ANY, 1, 0, 0, false};
  exchange_case room = {5, 32, 2, 8, "bf16", "f32", true, false, IDS_FIRST, 1, 0, 0, false};
  exchange_case flat = {25, 256, 4, 16, "bf16", "bf16", false, false, IDS_WILD, 50, 1, 0, false};
  exchange_case grouped = {25, 256, 8, 16, "bf16", "f32", true, false, IDS_WILD, 50, 0, 0, false};
  gpu_case("sanitize, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, sanitize, &ids);
  gpu_case("full, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, full, &room);
  gpu_case("overfull, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, overfull, &room);
  gpu_case("a row too few, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, leave_out_a_row, &room);
  if (gpu_extent() == GPU_SMALL) flat.rounds = grouped.rounds = 3;
  gpu_case("replays, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &flat);
  gpu_case("replays grouped, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &grouped);
  flat.rounds = grouped.rounds = 5;
  gpu_case("epochs wrap, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, wrap, &flat);
  gpu_case("two workspaces, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, play_two, &flat);
  gpu_case("two workspaces grouped, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, play_two, &grouped);
}

// As processes, whose slabs are imported.
// Processes take seconds to find the GPUs.
static void run_processes(int32_t size, int32_t gpus) {
  size_t step = gpu_extent() == GPU_FULL ? 8 : sizeof cases / sizeof *cases;
  for (size_t i = 1; i < sizeof cases / sizeof *cases; i += step)
    gpu_case("processes: %s, %d ranks, %d GPUs", cases[i].name, size, gpus)
        gpu_processes(size, gpus, play, &cases[i].what, sizeof(exchange_case), -1);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count();
  exchange_case refused = {4, 32, 2, 8, "bf16", "f32", false, false, IDS_ANY, 1, 0, 0, false};
  gpu_case("kernels for other parameters") gpu_only(1, 1, refuse_instances, &refused);
  run_on(1, 1);
  run_on(gpus > 1 ? 2 : 4, gpus);
  if (gpu_extent() != GPU_SMALL && gpus > 1) run_on(4, gpus);
  if (gpu_extent() == GPU_FULL) run_on(3, 1);
  if (gpu_extent() == GPU_FULL) run_on(8, gpus);
  if (gpu_extent() != GPU_SMALL) run_processes(gpus > 1 ? gpus : 2, gpus);
  return gpu_end();
}

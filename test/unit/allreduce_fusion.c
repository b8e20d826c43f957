//===- allreduce_fusion.c - moe.allreduce_fusion: what it refuses, and what it does without a peer --===//

#include "support.h"
#include <moert/ops.h>

enum { RANKS = 3, TOKENS = 3, MAX_TOKENS = 4, HIDDEN = 16, MAX_HIDDEN = 32, EXPERTS = 2, DEADLINE_MS = 300 };

static const moert_dtype BF16 = {MOERT_CODE_BFLOAT, 16, 1}, F16 = {MOERT_CODE_FLOAT, 16, 1}, F32 = {MOERT_CODE_FLOAT, 32, 1},
                         I32 = {MOERT_CODE_INT, 32, 1}, UI32 = {MOERT_CODE_UINT, 32, 1}, I64 = {MOERT_CODE_INT, 64, 1}, I8 = {MOERT_CODE_INT, 8, 1};

//===--- one rank's operands ----------------------------------------------------------------------===//

// What a rank passes; tests change it before a call. All elements of all inputs are 1.
typedef struct layer {
  moert_context *context;
  int64_t metainfo_data[MOERT_METAINFO_FIELDS];
  float scale_data[EXPERTS][MAX_TOKENS + 1];
  uint16_t input_data[EXPERTS * (MAX_TOKENS + 1) * MAX_HIDDEN], gamma_data[MAX_HIDDEN], residual_data[MAX_TOKENS + 1][MAX_HIDDEN];
  uint16_t shared_data[MAX_TOKENS + 1][MAX_HIDDEN], sum_data[TOKENS][HIDDEN], total_data[TOKENS][HIDDEN], norm_data[TOKENS][HIDDEN];
  int32_t count_data[2];
  int64_t shapes[11][3];
  moert_tensor workspace, metainfo, residual, gamma, inputs, scales, count, shared, sum, total, norm;
  moert_moe_allreduce_fusion_params params;
  moert_moe_allreduce_fusion_args args;
} layer;

static moert_tensor make_tensor(void *data, moert_dtype dtype, int64_t *shape, int32_t ndim, int64_t a, int64_t b, int64_t c) {
  shape[0] = a;
  shape[1] = b;
  shape[2] = c;
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, ndim, dtype, shape, NULL, 0};
}

static void make_operands(layer *l) {
  int64_t (*s)[3] = l->shapes;
  l->metainfo = make_tensor(l->metainfo_data, I64, s[0], 1, MOERT_METAINFO_FIELDS, 0, 0);
  l->residual = make_tensor(l->residual_data, BF16, s[1], 2, TOKENS, HIDDEN, 0);
  l->gamma = make_tensor(l->gamma_data, BF16, s[2], 1, HIDDEN, 0, 0);
  l->inputs = make_tensor(l->input_data, BF16, s[3], 3, EXPERTS, TOKENS, HIDDEN);
  l->scales = make_tensor(l->scale_data, F32, s[4], 2, EXPERTS, TOKENS, 0);
  l->count = make_tensor(l->count_data, I32, s[5], 1, 1, 0, 0);
  l->shared = make_tensor(l->shared_data, BF16, s[6], 2, TOKENS, HIDDEN, 0);
  l->sum = make_tensor(l->sum_data, BF16, s[7], 2, TOKENS, HIDDEN, 0);
  l->total = make_tensor(l->total_data, BF16, s[8], 2, TOKENS, HIDDEN, 0);
  l->norm = make_tensor(l->norm_data, BF16, s[9], 2, TOKENS, HIDDEN, 0);
  l->args = (moert_moe_allreduce_fusion_args){sizeof l->args, &l->residual, &l->gamma, &l->inputs, &l->scales, &l->count, &l->shared,
                                              &l->workspace,  &l->metainfo, &l->sum,   &l->total,  &l->norm,   NULL,      NULL};
  l->params = (moert_moe_allreduce_fusion_params)MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT;
  l->params.hidden_size = HIDDEN;
  l->params.rms_eps = 0;
}

static void fill(uint16_t *data, size_t bytes, uint16_t value) {
  for (size_t i = 0; i < bytes / sizeof *data; ++i) data[i] = value;
}

static void fill_operands(layer *l) {
  for (int e = 0; e < EXPERTS; ++e)
    for (int t = 0; t <= MAX_TOKENS; ++t) l->scale_data[e][t] = 1;
  fill(l->input_data, sizeof l->input_data, 0x3f80); // 1
  fill(l->gamma_data, sizeof l->gamma_data, 0x3f80);
  fill(&l->residual_data[0][0], sizeof l->residual_data, 0x3f80);
  fill(&l->shared_data[0][0], sizeof l->shared_data, 0x3f80);
  l->count_data[0] = EXPERTS;
  memset(l->sum_data, 0x5a, sizeof l->sum_data);
  memset(l->total_data, 0x5a, sizeof l->total_data);
  memset(l->norm_data, 0x5a, sizeof l->norm_data);
}

static moert_status reduce(layer *l) { return moert_moe_allreduce_fusion(&l->params, &l->args, NULL, l->context); }

// Operands and an initialised workspace with room for MAX_TOKENS rows of HIDDEN bf16. Collective.
static moert_status open_layer(layer *l, moert_comm *comm, const moert_context_options *options) {
  memset(l, 0, sizeof *l);
  moert_status status = moert_context_create(comm, options, &l->context);
  if (status) return status;
  make_operands(l);
  fill_operands(l);
  int64_t bytes = 0;
  void *memory = NULL;
  moert_moe_workspace_size_params size = {sizeof size, MAX_TOKENS, 2 * HIDDEN, 1, 0, 0};
  moert_moe_workspace_size_args size_args = {sizeof size_args, &bytes};
  status = moert_moe_workspace_size(&size, &size_args, NULL, l->context);
  if (!status) status = moert_symmetric_alloc(comm, (size_t)bytes, &memory);
  if (status) return status;
  l->workspace = make_tensor(memory, I8, l->shapes[10], 1, bytes, 0, 0);
  moert_moe_initialize_params params = {sizeof params, MAX_TOKENS, 2 * HIDDEN, 1, 0, 0};
  moert_moe_initialize_args args = {sizeof args, &l->workspace, &l->metainfo};
  return moert_moe_initialize(&params, &args, NULL, l->context);
}

static void assert_filled(uint16_t data[TOKENS][HIDDEN], uint16_t value) {
  for (int t = 0; t < TOKENS; ++t)
    for (int h = 0; h < HIDDEN; ++h) assert_int_equal(data[t][h], value);
}

//===--- what is refused before anything is sent --------------------------------------------------===//

typedef struct alone {
  moert_comm *comm;
  layer l;
} alone;

static int set_up_alone(void **state) {
  alone *a = malloc(sizeof *a);
  *state = a;
  return moert_comm_create_threads(1, NULL, &a->comm) || open_layer(&a->l, a->comm, NULL);
}

// After each refusal the outputs are as before, and the call still works.
static int tear_down_alone(void **state) {
  alone *a = *state;
  assert_filled(a->l.sum_data, 0x5a5a);
  assert_filled(a->l.total_data, 0x5a5a);
  assert_filled(a->l.norm_data, 0x5a5a);
  assert_ok(reduce(&a->l));
  assert_filled(a->l.sum_data, 0x4040);   // 3
  assert_filled(a->l.total_data, 0x4080); // 4
  assert_filled(a->l.norm_data, 0x3f80);  // 1
  moert_context_destroy(a->l.context);
  moert_comm_destroy(a->comm);
  free(a);
  return 0;
}

#define refuses(change, status, text)                                                                                                                \
  do {                                                                                                                                               \
    layer saved = *l;                                                                                                                                \
    change;                                                                                                                                          \
    assert_fails(reduce(l), status, "moe.allreduce_fusion: " text);                                                                                  \
    *l = saved;                                                                                                                                      \
  } while (0)

static void parameters(void **state) {
  layer *l = &((alone *)*state)->l;
  refuses(l->params.hidden_size = 12, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'hidden_size' is 12, must be a multiple of 8");
  refuses(l->params.hidden_size = 0, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'hidden_size' is 0, must be in [8, 1073741824]");
  refuses(l->params.rms_eps = -1e-6, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'rms_eps' is -1e-06, must be at least 0");
  refuses(l->params.rms_eps = 1e39, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'rms_eps' is 1e+39, beyond the largest f32, 3.40282e+38");
  refuses(l->params.weight_bias = -1e39, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'weight_bias' is -1e+39, beyond the largest f32, 3.40282e+38");
  refuses(l->params.backend = 1, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'backend' is 1, must be in [0, 0]");
  refuses(l->params.world_size = 2, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'world_size' is 2, must be 0 or 1, the ranks of the communicator");
}

#define EXPERT_INPUT "moe_reduction_active_experts_token_input"
#define TOKENS_OF "must equal dimension 0 of 'residual_in' = 3"

static void shapes(void **state) {
  layer *l = &((alone *)*state)->l;
  refuses(l->residual.shape[1] = 8, MOERT_ERROR_INVALID_SHAPE, "operand 'residual_in' dimension 1 is 8, must equal hidden_size = 16");
  refuses(l->gamma.shape[0] = 8, MOERT_ERROR_INVALID_SHAPE, "operand 'rms_gamma' dimension 0 is 8, must equal hidden_size = 16");
  refuses(l->inputs.shape[1] = 2, MOERT_ERROR_INVALID_SHAPE, "operand '" EXPERT_INPUT "' dimension 1 is 2, " TOKENS_OF);
  refuses(l->inputs.shape[2] = 8, MOERT_ERROR_INVALID_SHAPE, "operand '" EXPERT_INPUT "' dimension 2 is 8, must equal hidden_size = 16");
  refuses(l->scales.shape[0] = 1, MOERT_ERROR_INVALID_SHAPE,
          "operand 'moe_reduction_scale_input' dimension 0 is 1, must equal dimension 0 of '" EXPERT_INPUT "' = 2");
  refuses(l->scales.shape[1] = 2, MOERT_ERROR_INVALID_SHAPE, "operand 'moe_reduction_scale_input' dimension 1 is 2, " TOKENS_OF);
  refuses(l->count.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE,
          "operand 'moe_reduction_device_num_experts' dimension 0 is 2, must equal the number of its elements = 1");
  refuses(l->shared.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, "operand 'moe_reduction_token_input' dimension 0 is 2, " TOKENS_OF);
  refuses(l->shared.shape[1] = 8, MOERT_ERROR_INVALID_SHAPE, "operand 'moe_reduction_token_input' dimension 1 is 8, must equal hidden_size = 16");
  refuses(l->sum.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, "operand 'moe_allreduce_out' dimension 0 is 2, " TOKENS_OF);
  refuses(l->total.shape[1] = 8, MOERT_ERROR_INVALID_SHAPE, "operand 'residual_out' dimension 1 is 8, must equal hidden_size = 16");
  refuses(l->norm.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, "operand 'norm_out' dimension 0 is 2, " TOKENS_OF);
  refuses(l->args.moe_allreduce_out = l->args.residual_out = l->args.norm_out = NULL, MOERT_ERROR_NULL_POINTER,
          "operands 'moe_allreduce_out', 'residual_out', 'norm_out' and 'quant_out' are NULL, must not all be");
  refuses(l->args.residual_in = NULL, MOERT_ERROR_NULL_POINTER, "operand 'residual_in' is NULL");
}

static void element_types(void **state) {
  layer *l = &((alone *)*state)->l;
#define NOT_OF_RESIDUAL "element type f16, must be bf16, that of 'residual_in'"
  refuses(l->gamma.dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand 'rms_gamma': " NOT_OF_RESIDUAL);
  refuses(l->inputs.dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand '" EXPERT_INPUT "': " NOT_OF_RESIDUAL);
  refuses(l->shared.dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand 'moe_reduction_token_input': " NOT_OF_RESIDUAL);
  refuses(l->sum.dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand 'moe_allreduce_out': " NOT_OF_RESIDUAL);
  refuses(l->total.dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand 'residual_out': " NOT_OF_RESIDUAL);
  refuses(l->norm.dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand 'norm_out': " NOT_OF_RESIDUAL);
  refuses(l->scales.dtype = I32, MOERT_ERROR_INVALID_DTYPE, "operand 'moe_reduction_scale_input': element type i32, must be bf16, f16 or f32");
}

static void codes(void **state) {
  layer *l = &((alone *)*state)->l;
  uint8_t values[TOKENS][HIDDEN], scales[TOKENS];
  int64_t value_shape[3], scale_shape[3];
  const moert_dtype byte = {MOERT_CODE_UINT, 8, 1};
  moert_tensor quant_out = make_tensor(values, byte, value_shape, 2, TOKENS, HIDDEN / 2, 0),
               scale_out = make_tensor(scales, byte, scale_shape, 2, TOKENS, 1, 0);
#define WITH_CODES                                                                                                                                   \
  l->params.quant_format = MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_NVFP4, l->args.quant_out = &quant_out, l->args.scale_out = &scale_out
  refuses(l->args.quant_out = &quant_out, MOERT_ERROR_INVALID_ARGUMENT, "operand 'quant_out' is set, must be NULL with quant_format none");
  refuses(l->args.scale_out = &scale_out, MOERT_ERROR_INVALID_ARGUMENT, "operand 'scale_out' is set, must be NULL with quant_format none");
  refuses((WITH_CODES, l->args.quant_out = NULL), MOERT_ERROR_NULL_POINTER, "operand 'quant_out' is NULL, must be set with a quant_format");
  refuses((WITH_CODES, l->args.scale_out = NULL), MOERT_ERROR_NULL_POINTER, "operand 'scale_out' is NULL, must be set with format nvfp4");
  refuses((WITH_CODES, l->params.scale_factor = 0), MOERT_ERROR_INVALID_ARGUMENT, "parameter 'scale_factor' is 0, must be larger than 0 as an f32");
  refuses(l->params.scale_factor = 2, MOERT_ERROR_INVALID_ARGUMENT,
          "parameter 'scale_factor' is 2, must be 1 unless quant_format is nvfp4 or fp8_tensor");
  refuses(l->params.layout_code = MOERT_MOE_ALLREDUCE_FUSION_LAYOUT_CODE_8X4, MOERT_ERROR_INVALID_ARGUMENT,
          "parameter 'layout_code' is 8x4, must be linear with quant_format none");
  refuses((WITH_CODES, l->params.quant_format = MOERT_MOE_ALLREDUCE_FUSION_QUANT_FORMAT_FP8_TENSOR), MOERT_ERROR_INVALID_ARGUMENT,
          "operand 'scale_out' is set, must be NULL with quant_format fp8_tensor: its scale is scale_factor");
  value_shape[1] = HIDDEN;
  refuses((WITH_CODES), MOERT_ERROR_INVALID_SHAPE, "operand 'quant_out' dimension 1 is 16, must equal half of hidden_size = 8");
#undef WITH_CODES
}

static void numbers_of_experts(void **state) {
  layer *l = &((alone *)*state)->l;
#define BOUNDS "must be in [0, 2], dimension 0 of '" EXPERT_INPUT "'"
  refuses(l->count_data[0] = 3, MOERT_ERROR_DATA, "operand 'moe_reduction_device_num_experts' holds 3, " BOUNDS);
  refuses(l->count_data[0] = -1, MOERT_ERROR_DATA, "operand 'moe_reduction_device_num_experts' holds -1, " BOUNDS);
  refuses((l->count_data[0] = -1, l->count.dtype = UI32), MOERT_ERROR_DATA, "operand 'moe_reduction_device_num_experts' holds 4294967295, " BOUNDS);
  assert_ok(moert_comm_status(((alone *)*state)->comm));
}

static void capacity(void **state) {
  layer *l = &((alone *)*state)->l;
  l->args.moe_allreduce_out = l->args.residual_out = NULL;
  uint16_t room[MAX_TOKENS + 1][MAX_HIDDEN];
  refuses((l->norm.data = room, l->norm.shape[0] = l->residual.shape[0] = l->shared.shape[0] = l->inputs.shape[1] = l->scales.shape[1] = 5),
          MOERT_ERROR_CAPACITY, "operand 'residual_in' has 5 tokens, must have at most 4, the max_num_tokens of the workspace");
#define WIDE(bytes) "a token has " bytes " bytes on its way between ranks, must have at most 32, the dispatch_bytes_per_token of the workspace"
  refuses(l->params.fp32_acc = 1, MOERT_ERROR_CAPACITY, WIDE("64"));
  refuses((l->norm.data = room,
           l->params.hidden_size = l->norm.shape[1] = l->residual.shape[1] = l->shared.shape[1] = l->inputs.shape[2] = l->gamma.shape[0] = 24),
          MOERT_ERROR_CAPACITY, WIDE("48"));
  l->args.moe_allreduce_out = &l->sum;
  l->args.residual_out = &l->total;
}

static void workspaces(void **state) {
  layer *l = &((alone *)*state)->l;
  refuses(l->metainfo.shape[0] = 10, MOERT_ERROR_INVALID_SHAPE, "operand 'metainfo' dimension 0 is 10, must equal MOERT_METAINFO_FIELDS = 16");
  refuses(memset(l->metainfo_data, 0, sizeof l->metainfo_data), MOERT_ERROR_INVALID_STATE,
          "operand 'metainfo' does not describe operand 'workspace': pass the two that one moe.initialize on this communicator was given");
  char *slab = l->workspace.data;
  int64_t area = l->metainfo_data[MOERT_METAINFO_PAYLOAD_DATA];
  refuses(l->inputs.data = slab + area, MOERT_ERROR_OVERLAP, "operand '" EXPERT_INPUT "' lies in the workspace, where this call receives");
  refuses(l->norm.data = slab + area, MOERT_ERROR_OVERLAP, "operand 'norm_out' lies in the workspace, where this call receives");
  refuses(l->count.data = slab, MOERT_ERROR_OVERLAP, "operand 'moe_reduction_device_num_experts' lies in the workspace, where this call receives");
}

static void overlap(void **state) {
  layer *l = &((alone *)*state)->l;
  refuses(l->norm.data = l->residual_data, MOERT_ERROR_OVERLAP, "operand 'norm_out' overlaps operand 'residual_in'; give it memory of its own");
  refuses(l->sum.data = l->residual_data, MOERT_ERROR_OVERLAP,
          "operand 'moe_allreduce_out' overlaps operand 'residual_in'; give it memory of its own");
  refuses(l->total.data = &l->residual_data[0][1], MOERT_ERROR_OVERLAP,
          "operand 'residual_out' overlaps operand 'residual_in'; give it memory of its own");
  refuses(l->total.data = l->shared_data, MOERT_ERROR_OVERLAP,
          "operand 'residual_out' overlaps operand 'moe_reduction_token_input'; give it memory of its own");
  refuses((l->total.data = l->residual_data, l->norm.data = l->residual_data), MOERT_ERROR_OVERLAP,
          "operand 'residual_out' overlaps operand 'norm_out'; give it memory of its own");
}

static void residual_in_place(void **state) {
  layer *l = &((alone *)*state)->l;
  layer saved = *l;
  l->total.data = l->residual_data;
  assert_ok(reduce(l));
  for (int i = 0; i < TOKENS * HIDDEN; ++i) assert_int_equal((&l->residual_data[0][0])[i], 0x4080); // 4
  assert_filled(l->norm_data, 0x3f80);
  *l = saved;
}

//===--- several ranks ----------------------------------------------------------------------------===//

typedef struct team team;
struct team {
  moert_status (*body)(team *shared, layer *l);
  const char *stop_phase; // of `odd`
  int32_t odd;            // the rank that does something else
  int variant;
  layer layers[RANKS];
};

static moert_status run_member(rank_run *run) {
  team *shared = run->user;
  layer *l = &shared->layers[run->rank];
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  if (shared->stop_phase) options.timeout_ms = DEADLINE_MS;
  if (shared->stop_phase && run->rank == shared->odd) {
    options.stop_op = "moe.allreduce_fusion";
    options.stop_phase = shared->stop_phase;
  }
  moert_status status = open_layer(l, run->comm, &options);
  return status ? status : shared->body(shared, l);
}

static void run_team(team *shared, rank_run *runs) {
  moert_comm *comms[RANKS];
  assert_ok(moert_comm_create_threads(RANKS, NULL, comms));
  run_ranks(runs, comms, RANKS, run_member, shared);
  for (int32_t r = 0; r < RANKS; ++r) moert_context_destroy(shared->layers[r].context);
  destroy_ranks(comms, RANKS);
}

static moert_status reduce_once(team *shared, layer *l) {
  (void)shared;
  return reduce(l);
}

static void a_rank_stops(void **state) {
  (void)state;
  static const char *const phases[][2] = {{"entry", "its arrival"}, {"counts", "its data"}, {"data", "its data"}, {"flag", "its data"}};
  team *shared = calloc(1, sizeof *shared);
  for (size_t i = 0; i < COUNT(phases); ++i) {
    rank_run runs[RANKS];
    *shared = (team){.body = reduce_once, .stop_phase = phases[i][0], .odd = 1};
    run_team(shared, runs);
    for (int32_t r = 0; r < RANKS; ++r) {
      char text[256];
      bool stopped = r == shared->odd;
      if (stopped)
        snprintf(text, sizeof text, "moe.allreduce_fusion: rank 1 was stopped at phase '%s'", phases[i][0]);
      else
        snprintf(text, sizeof text, "moe.allreduce_fusion: rank %" PRId32 " waited %d ms for rank 1 (%s, epoch 1)", r, DEADLINE_MS, phases[i][1]);
      assert_string_equal(runs[r].error, text);
      assert_filled(shared->layers[r].sum_data, stopped ? 0x5a5a : 0xffff);
      assert_filled(shared->layers[r].total_data, stopped ? 0x5a5a : 0xffff);
      assert_filled(shared->layers[r].norm_data, stopped ? 0x5a5a : 0xffff);
    }
  }
  free(shared);
}

enum { OTHER_TOKENS, OTHER_HIDDEN, OTHER_DTYPE, OTHER_EPS, OTHER_BIAS, VARIANTS };

static moert_status reduce_otherwise(team *shared, layer *l) {
  moert_tensor *all[] = {&l->residual, &l->gamma, &l->inputs, &l->shared, &l->sum, &l->total, &l->norm};
  if (l != &shared->layers[shared->odd]) return reduce(l);
  switch (shared->variant) {
  case OTHER_TOKENS:
    l->residual.shape[0] = l->inputs.shape[1] = l->scales.shape[1] = l->shared.shape[0] = l->sum.shape[0] = l->total.shape[0] = l->norm.shape[0] = 0;
    break;
  case OTHER_HIDDEN:
    l->params.hidden_size = l->gamma.shape[0] = l->inputs.shape[2] = 8;
    l->residual.shape[1] = l->shared.shape[1] = l->sum.shape[1] = l->total.shape[1] = l->norm.shape[1] = 8;
    break;
  case OTHER_DTYPE:
    for (size_t i = 0; i < COUNT(all); ++i) all[i]->dtype = F16;
    break;
  case OTHER_EPS: l->params.rms_eps = 1; break;
  default: l->params.weight_bias = 1; break;
  }
  return reduce(l);
}

// Everybody learns of it: those that do as they should, and the one that does not.
static void parameters_differ(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  for (int variant = 0; variant < VARIANTS; ++variant) {
    rank_run runs[RANKS];
    *shared = (team){.body = reduce_otherwise, .odd = variant % RANKS, .variant = variant};
    run_team(shared, runs);
    for (int32_t r = 0; r < RANKS; ++r) {
      char text[256];
      int32_t other = r != shared->odd ? shared->odd : r == 0 ? 1 : 0;
      snprintf(text, sizeof text,
               "moe.allreduce_fusion: rank %" PRId32 " called another op or used other parameters than rank %" PRId32
               " (its arrival, epoch 1): hash ",
               other, r);
      assert_int_equal(runs[r].status, MOERT_ERROR_PEER_MISMATCH);
      assert_memory_equal(runs[r].error, text, strlen(text));
    }
  }
  free(shared);
}

// What may differ: how many experts a rank has, which outputs it wants, the type of its scales, and whether it launches early.
static moert_status reduce_legally(team *shared, layer *l) {
  moert_status status = MOERT_OK;
  bool odd = l == &shared->layers[shared->odd];
  for (int round = 0; round < 100 && !status; ++round) {
    l->count_data[0] = odd ? round % (EXPERTS + 1) : EXPERTS;
    l->args.moe_allreduce_out = odd && round % 2 ? NULL : &l->sum;
    l->params.launch_with_pdl = odd;
    status = reduce(l);
  }
  return status;
}

static void ranks_differ(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = reduce_legally, .odd = 2};
  rank_run runs[RANKS];
  run_team(shared, runs);
  for (int32_t r = 0; r < RANKS; ++r) {
    assert_string_equal(runs[r].error, "");
    assert_filled(shared->layers[r].total_data, 0x4100); // 3 + 3 + 1 + 1, for the last round has no experts on rank 2
    assert_filled(shared->layers[r].norm_data, 0x3f80);
  }
  free(shared);
}

static moert_status report_instead(team *shared, layer *l) {
  if (l != &shared->layers[shared->odd]) return reduce(l);
  moert_comm_report(moert_context_comm(l->context), MOERT_ERROR_DATA);
  return MOERT_OK;
}

static void a_rank_reports_an_error(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = report_instead, .odd = 0};
  rank_run runs[RANKS];
  run_team(shared, runs);
  for (int32_t r = 1; r < RANKS; ++r) {
    char text[256];
    snprintf(text, sizeof text, "moe.allreduce_fusion: rank 0 reported MOERT_ERROR_DATA while rank %" PRId32 " waited for it (its arrival, epoch 1)",
             r);
    assert_string_equal(runs[r].error, text);
    assert_filled(shared->layers[r].norm_data, 0xffff);
  }
  free(shared);
}

// A reduction fails, those that live recover, and reduce without the one that stopped.
static moert_status fail_and_recover(team *shared, layer *l) {
  moert_comm *comm = moert_context_comm(l->context);
  uint64_t mask = ((UINT64_C(1) << RANKS) - 1) & ~(UINT64_C(1) << shared->odd);
  if (!reduce(l)) return MOERT_ERROR_INTERNAL;
  if (l == &shared->layers[shared->odd]) return MOERT_OK;
  moert_context_destroy(l->context);
  moert_status status = moert_context_create(comm, NULL, &l->context);
  if (!status) status = moert_comm_recover(comm, mask, 0);
  for (int round = 0; round < 3 && !status; ++round) status = reduce(l);
  return status;
}

static void ranks_recover_without_one(void **state) {
  (void)state;
  static const char *const phases[] = {"entry", "counts", "data"};
  team *shared = calloc(1, sizeof *shared);
  for (int odd = 0; odd < RANKS; ++odd) {
    rank_run runs[RANKS];
    *shared = (team){.body = fail_and_recover, .stop_phase = phases[odd % 3], .odd = odd};
    run_team(shared, runs);
    for (int32_t r = 0; r < RANKS; ++r) {
      assert_string_equal(runs[r].error, "");
      if (r == odd) continue;
      assert_filled(shared->layers[r].sum_data, 0x40c0);   // 3 + 3
      assert_filled(shared->layers[r].total_data, 0x40e0); // and 1
      assert_filled(shared->layers[r].norm_data, 0x3f80);
    }
  }
  free(shared);
}

int main(void) {
#define alone_test(test) cmocka_unit_test_setup_teardown(test, set_up_alone, tear_down_alone)
  const struct CMUnitTest tests[] = {
      alone_test(parameters),
      alone_test(shapes),
      alone_test(element_types),
      alone_test(codes),
      alone_test(numbers_of_experts),
      alone_test(capacity),
      alone_test(workspaces),
      alone_test(overlap),
      alone_test(residual_in_place),
      cmocka_unit_test(a_rank_stops),
      cmocka_unit_test(parameters_differ),
      cmocka_unit_test(ranks_differ),
      cmocka_unit_test(a_rank_reports_an_error),
      cmocka_unit_test(ranks_recover_without_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

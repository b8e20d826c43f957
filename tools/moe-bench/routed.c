//===- routed.c - what the bench of layers of experts measures ------------------------------------------===//
//
// moe.nvfp4_routed with the weights of five models, and of a rank of eight that share one's experts. A token chooses different experts, uniformly or
// by Zipf's law. Codes and scales are random bytes: those of a set take gigabytes, and as much again as fragments, for generic kernels and the check
// of results read them as they are.
//
//===----------------------------------------------------------------------------------------------===//

#include "device.h"
#include "lib/reference/numerics.h"
#include "operands.h"
#include "routing.h"
#include <math.h>
#include <stdlib.h>

enum {
  STATES,
  STATE_SCALES,
  FIRST,
  FIRST_SCALES,
  SECOND,
  SECOND_SCALES,
  GATE,
  UP,
  DOWN,
  IDS,
  CHOICE_WEIGHTS,
  SORTED,
  BLOCK_EXPERTS,
  PADDED,
  CUMSUM,
  OUT,
  FIRST_FRAGMENTS,
  SECOND_FRAGMENTS
};
enum { BLOCK = 8, SCALED = 16, CHECKED = 4, NUM_FIGURES = 6 }; // entries of the plan that stand together; codes with one scale; tokens

//===--- kinds --------------------------------------------------------------------------------------===//

// For 1, 16, 64, 256, 1024 and 4096 tokens, routed uniformly. 0: none.
typedef double Figures[NUM_FIGURES];

typedef struct Kind {
  Shape shape;
  int64_t local;             // experts whose weights are there, the first ones; 0: all
  const char *names[2];      // with the two routings
  Figures goal, bf16, nvfp4; // of the fastest known: in bf16, and with weights in NVFP4
} Kind;

static const Routing routings[] = {ROUTING_UNIFORM, ROUTING_ZIPF};

// Measured on an H200 as this bench does it, each call in a graph with other experts, on 2026-11-29: in bf16 kernels of Triton 3.6 with the best of
// their tiles, and Marlin (moe_wna16 of vLLM, in aphrodite-engine b42eeec) with short kernels around it. 2880 columns were not padded there.
static const char TRITON[] = "triton_bf16", MARLIN[] = "marlin_nvfp4";

static const Kind kinds[] = {
    {.shape = {7168, 2048, 256, 8},
     .names = {"7168/2048/256/8, uniform", "7168/2048/256/8, zipf"},
     .goal = {62, 665, 1450, 1680, 1900, 4900},
     .bf16 = {171.5, 1975.0, 4372.9, 5056.3, 5502.2, 8641.4},
     .nvfp4 = {93.3, 915.1, 1939.8, 2420.0, 4220.6, 13105.6}},
    {.shape = {7168, 2048, 256, 8}, .local = 32, .names = {"7168/2048/32 of 256/8, uniform", "7168/2048/32 of 256/8, zipf"}},
    {.shape = {6144, 2048, 256, 8}, .names = {"6144/2048/256/8, uniform", "6144/2048/256/8, zipf"}},
    {.shape = {4096, 1536, 128, 8},
     .names = {"4096/1536/128/8, uniform", "4096/1536/128/8, zipf"},
     .bf16 = {79.9, 719.1, 1067.0, 1141.5, 1305.5, 3235.0}},
    {.shape = {3072, 3072, 128, 4},
     .names = {"2880/2880/128/4 padded to 3072, uniform", "2880/2880/128/4 padded to 3072, zipf"},
     .bf16 = {58.0, 619.8, 1307.2, 1507.5, 1612.3, 2584.3}},
    {.shape = {2048, 768, 128, 8},
     .names = {"2048/768/128/8, uniform", "2048/768/128/8, zipf"},
     .bf16 = {28.6, 191.7, 285.3, 307.8, 366.2, 749.8},
     .nvfp4 = {29.4, 109.3, 153.7, 227.5, 523.3, 1533.7}},
};
enum { ROUTINGS = sizeof routings / sizeof *routings, CASES = sizeof kinds / sizeof *kinds * ROUTINGS };

static Case cases[CASES];

static const Kind *kind_of(const Work *work) { return &kinds[(work->what - cases) / ROUTINGS]; }
static Routing routing_of(const Work *work) { return routings[(work->what - cases) % ROUTINGS]; }

static int64_t experts_of(const Work *work) { return kind_of(work)->local ? kind_of(work)->local : work->shape.experts; }
static int64_t pairs_of(const Work *work) { return work->tokens * work->shape.top_k; }
static int64_t bytes_of(int64_t numbers) { return numbers / 2 + numbers / SCALED; }
static int64_t numbers_of_expert(const Work *work) { return 3 * work->shape.intermediate * work->shape.hidden; }

//===--- operands -----------------------------------------------------------------------------------===//

// Any codes, with scales from 1/4 to 4. Of one group a matrix.
static moert_status add_codes(Work *work, int set, int slot, int64_t groups, int64_t rows, int64_t columns) {
  const moert_dtype scale = {MOERT_CODE_F8E4M3FN, 8, 1};
  const int32_t ndim = groups > 1 ? 3 : 2;
  const uint64_t seed = operand_seed(work, work->rank, set) * MAX_BUFFERS + (uint64_t)slot;
  Buffer *codes = &work->buffers[set][slot], *scales = codes + 1;
  moert_status status = operand_add(work, codes, I8, ndim, SHAPE(groups, rows, columns / 2) + 3 - ndim);
  if (!status) status = operand_add(work, scales, scale, ndim, SHAPE(groups, rows, columns / SCALED) + 3 - ndim);
  if (status) return status;
  cudaError_t error = device_random_bytes(codes->tensor.data, codes->bytes, UINT64_MAX, 0, seed, work->stream);
  if (!error) error = device_random_bytes(scales->tensor.data, scales->bytes, 0x1f1f1f1f1f1f1f1f, 0x2828282828282828, seed + 1, work->stream);
  return error ? MOERT_ERROR_DEVICE : MOERT_OK;
}

// What the library makes of the codes in the slot `from`, and of the scales behind them.
static moert_status add_fragments(Work *work, int set, int slot, int64_t layout, int from) {
  const Buffer *codes = &work->buffers[set][from], *scales = codes + 1;
  Buffer *fragments = &work->buffers[set][slot];
  const int64_t panels = codes->shape[0] * (codes->shape[1] / 64) * (codes->shape[2] / 64);
  moert_status status = operand_add(work, fragments, I8, 3, SHAPE(panels, 36, 128));
  if (status) return status;
  moert_moe_prepare_nvfp4_params params = MOERT_MOE_PREPARE_NVFP4_PARAMS_INIT;
  params.layout = layout;
  moert_moe_prepare_nvfp4_args args = MOERT_MOE_PREPARE_NVFP4_ARGS_INIT;
  args.source = &codes->tensor;
  args.scales = &scales->tensor;
  args.prepared = &fragments->tensor;
  return moert_moe_prepare_nvfp4(&params, &args, NULL, work->context);
}

static moert_status fill_fragments(Work *work, int set) {
  if (work->linear) return MOERT_OK;
  moert_status status = add_fragments(work, set, FIRST_FRAGMENTS, MOERT_MOE_PREPARE_NVFP4_LAYOUT_W1_FRAGMENTS, FIRST);
  return status ? status : add_fragments(work, set, SECOND_FRAGMENTS, MOERT_MOE_PREPARE_NVFP4_LAYOUT_W2_FRAGMENTS, SECOND);
}

static moert_status count_choices(Work *work, int set, const int32_t *ids) {
  bool *chosen = calloc((size_t)experts_of(work), sizeof *chosen);
  work->rows[set] = work->chosen[set] = 0;
  for (int64_t pair = 0; chosen && pair < pairs_of(work); ++pair) {
    if (ids[pair] >= experts_of(work)) continue;
    ++work->rows[set];
    work->chosen[set] += !chosen[ids[pair]];
    chosen[ids[pair]] = true;
  }
  free(chosen);
  return chosen ? MOERT_OK : MOERT_ERROR_OUT_OF_MEMORY;
}

static moert_status fill_choices(Work *work, int set) {
  int32_t *ids = routing_choose(work, work->rank, set, routing_of(work));
  if (!ids) return MOERT_ERROR_OUT_OF_MEMORY;
  const int64_t *shape = SHAPE(work->tokens, work->shape.top_k);
  moert_status status = count_choices(work, set, ids);
  if (!status) status = operand_add_words(work, &work->buffers[set][IDS], ids, 2, shape);
  free(ids);
  return status ? status : operand_add_random(work, set, CHOICE_WEIGHTS, 1, F32, 2, shape);
}

// Numbers are of 5 on average; gates, up projections and results come near 1.
static moert_status fill_factors(Work *work, int set) {
  const float products = 25.7f * sqrtf((float)work->shape.hidden), inner = sqrtf((float)work->shape.intermediate);
  const int64_t *shape = SHAPE(experts_of(work));
  moert_status status = operand_add_random(work, set, GATE, 2 / products, F32, 1, shape);
  if (!status) status = operand_add_random(work, set, UP, 8 / products, F32, 1, shape);
  return status ? status : operand_add_random(work, set, DOWN, 0.2f / inner, F32, 1, shape);
}

static moert_status add_outputs(Work *work, int set) {
  Buffer *buffers = work->buffers[set];
  const int64_t experts = experts_of(work), blocks = 1 + (pairs_of(work) + experts * (BLOCK - 1)) / BLOCK;
  moert_status status = operand_add_output(work, &buffers[SORTED], I32, 1, SHAPE(blocks * BLOCK));
  if (!status) status = operand_add_output(work, &buffers[BLOCK_EXPERTS], I32, 1, SHAPE(blocks));
  if (!status) status = operand_add_output(work, &buffers[PADDED], I32, 1, SHAPE(1));
  if (!status) status = operand_add_output(work, &buffers[CUMSUM], I32, 1, SHAPE(experts + 2));
  if (!status) status = operand_add_output(work, &buffers[OUT], BF16, 2, SHAPE(work->tokens, work->shape.hidden));
  return status;
}

static moert_status fill_layer(Work *work, int set) {
  const Shape *shape = &work->shape;
  moert_status status = add_codes(work, set, STATES, 1, work->tokens, shape->hidden);
  if (!status) status = add_codes(work, set, FIRST, experts_of(work), 2 * shape->intermediate, shape->hidden);
  if (!status) status = add_codes(work, set, SECOND, experts_of(work), shape->hidden, shape->intermediate);
  if (!status) status = fill_fragments(work, set);
  if (!status) status = fill_choices(work, set);
  if (!status) status = fill_factors(work, set);
  return status ? status : add_outputs(work, set);
}

//===--- calls --------------------------------------------------------------------------------------===//

static moert_status call_layer(Work *work, int set, moert_kernel *kernel) {
  moert_moe_nvfp4_routed_params params = MOERT_MOE_NVFP4_ROUTED_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.block_m = BLOCK;
  params.accumulate = 0;
  params.num_experts = work->shape.experts;
  moert_moe_nvfp4_routed_args args = MOERT_MOE_NVFP4_ROUTED_ARGS_INIT;
  args.hidden_states = operand(work, set, STATES);
  args.hidden_states_scale = operand(work, set, STATE_SCALES);
  args.gemm1_weights = operand(work, set, FIRST);
  args.gemm1_weights_scale = operand(work, set, FIRST_SCALES);
  args.gemm2_weights = operand(work, set, SECOND);
  args.gemm2_weights_scale = operand(work, set, SECOND_SCALES);
  args.output1_scale_gate_scalar = operand(work, set, GATE);
  args.output1_scale_scalar = operand(work, set, UP);
  args.output2_scale_scalar = operand(work, set, DOWN);
  args.topk_ids = operand(work, set, IDS);
  args.topk_weights = operand(work, set, CHOICE_WEIGHTS);
  if (!work->linear) args.w1_fragments_prepared = operand(work, set, FIRST_FRAGMENTS);
  if (!work->linear) args.w2_fragments_prepared = operand(work, set, SECOND_FRAGMENTS);
  args.sorted_token_ids = operand(work, set, SORTED);
  args.expert_ids = operand(work, set, BLOCK_EXPERTS);
  args.num_tokens_post_padded = operand(work, set, PADDED);
  args.cumsum_buffer = operand(work, set, CUMSUM);
  args.out = operand(work, set, OUT);
  return moert_moe_nvfp4_routed(&params, &args, kernel, work->context);
}

// On average over the sets, of which each has so many of something.
static int64_t mean_of(const Work *work, const int64_t numbers[MAX_SETS], int64_t each) {
  int64_t sum = 0;
  for (int set = 0; set < work->sets; ++set) sum += numbers[set];
  return sum * each / work->sets;
}

static int64_t weight_bytes(const Work *work) { return mean_of(work, work->chosen, bytes_of(numbers_of_expert(work))); }

static Cost cost_layer(const Work *work) {
  const int64_t hidden = work->shape.hidden;
  return (Cost){.memory_bytes = weight_bytes(work) + work->tokens * (bytes_of(hidden) + 2 * hidden),
                .flops = mean_of(work, work->rows, 2 * numbers_of_expert(work))};
}

//===--- results --------------------------------------------------------------------------------------===//

static void *data_of(const Work *work, int set, int slot) { return work->buffers[set][slot].tensor.data; }

static DeviceLayer layer_of(const Work *work, int set) {
  const int64_t count = work->tokens < CHECKED ? work->tokens : CHECKED;
  return (DeviceLayer){.states = data_of(work, set, STATES),
                       .state_scales = data_of(work, set, STATE_SCALES),
                       .first = data_of(work, set, FIRST),
                       .first_scales = data_of(work, set, FIRST_SCALES),
                       .second = data_of(work, set, SECOND),
                       .second_scales = data_of(work, set, SECOND_SCALES),
                       .gate = data_of(work, set, GATE),
                       .up = data_of(work, set, UP),
                       .down = data_of(work, set, DOWN),
                       .weights = data_of(work, set, CHOICE_WEIGHTS),
                       .ids = data_of(work, set, IDS),
                       .experts = experts_of(work),
                       .top_k = work->shape.top_k,
                       .hidden = work->shape.hidden,
                       .inner = work->shape.intermediate,
                       .count = count,
                       .stride = work->tokens / count};
}

// Sums in another order may give an activation another code.
static bool are_near(const uint16_t *out, const float *sums, int64_t count) {
  double squares = 0, reference = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = (double)moert__bf16_to_f32(out[i]) - (double)sums[i];
    squares += difference * difference;
    reference += (double)sums[i] * (double)sums[i];
  }
  return squares <= 1e-4 * reference; // NaN is not
}

static bool rows_are_near(const Work *work, int set, const DeviceLayer *layer, const float *sums, float *expected, uint16_t *out) {
  const int64_t hidden = layer->hidden;
  const char *rows = data_of(work, set, OUT);
  for (int64_t token = 0; token < layer->count; ++token) {
    cudaError_t error = cudaMemcpy(expected, sums + token * hidden, (size_t)hidden * sizeof *expected, cudaMemcpyDeviceToHost);
    if (!error) error = cudaMemcpy(out, rows + token * layer->stride * hidden * 2, (size_t)hidden * sizeof *out, cudaMemcpyDeviceToHost);
    if (error || !are_near(out, expected, hidden)) return false;
  }
  return true;
}

bool routed_check(Work *work, int set) {
  const DeviceLayer layer = layer_of(work, set);
  const int64_t activations = layer.count * layer.top_k * layer.inner, sums = layer.count * layer.hidden;
  float *scratch = NULL, *expected = malloc((size_t)layer.hidden * sizeof *expected);
  uint16_t *out = malloc((size_t)layer.hidden * sizeof *out);
  bool well = expected && out && cudaMalloc((void **)&scratch, (size_t)(activations + sums) * sizeof *scratch) == cudaSuccess;
  well = well && device_layer(&layer, scratch, scratch + activations, work->stream) == cudaSuccess;
  well = well && cudaStreamSynchronize(work->stream) == cudaSuccess;
  well = well && rows_are_near(work, set, &layer, scratch + activations, expected, out);
  cudaFree(scratch);
  free(expected), free(out);
  return well;
}

//===--- goals and peers ------------------------------------------------------------------------------===//

static int figure_of(const Work *work) {
  static const int64_t counts[NUM_FIGURES] = {1, 16, 64, 256, 1024, 4096};
  for (int i = 0; i < NUM_FIGURES && routing_of(work) == ROUTING_UNIFORM; ++i)
    if (counts[i] == work->tokens) return i;
  return -1;
}

// Few rows are no work beside bringing the weights, at 0.8 of the rate of a pass that only reads, and 6 us.
static double goal_by_bytes(const Work *work, const Ceilings *measured) {
  const bool few = mean_of(work, work->rows, 1) <= 16 * experts_of(work);
  return few && measured->read_gbs > 0 ? 1e-3 * (double)weight_bytes(work) / (0.8 * measured->read_gbs) + 6 : 0;
}

void routed_judge(const Work *work, const Ceilings *measured, Record *record) {
  const Kind *kind = kind_of(work);
  const int column = figure_of(work);
  Peer *peer = record->peers;
  record->goal_us = column >= 0 && kind->goal[column] > 0 ? kind->goal[column] : goal_by_bytes(work, measured);
  if (column >= 0 && kind->bf16[column] > 0) *peer++ = (Peer){TRITON, kind->bf16[column]};
  if (column >= 0 && kind->nvfp4[column] > 0) *peer = (Peer){MARLIN, kind->nvfp4[column]};
}

//===--- the table ----------------------------------------------------------------------------------===//

static Case case_of(const Kind *kind, int routing) {
  const Step step = {"nvfp4_routed", "moe.nvfp4_routed", call_layer, cost_layer};
  return (Case){.variant = kind->names[routing], .dtype = "nvfp4", .shape = kind->shape, .fill = fill_layer, .num_steps = 1, .steps = {step}};
}

// Made when they are first asked for.
const Case *routed_cases(int *count) {
  for (int i = 0; i < CASES && !cases[i].variant; ++i) cases[i] = case_of(&kinds[i / ROUTINGS], i % ROUTINGS);
  *count = CASES;
  return cases;
}

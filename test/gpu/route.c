//===- route.c - moe.route on a GPU -----------------------------------------------------------------===//
//
// Ids and weights must have the bits of the host backend, by the kernel that the library chooses and by the generic one.
//
//===----------------------------------------------------------------------------------------------===//

#include "gpu.h"
#include <math.h>

typedef enum Values {
  NUMBERS,    // any
  TIES,       // of few different ones, 0 and -0 among them
  SPECIAL,    // NaN, infinities, the largest and the smallest among them
  INFINITIES, // little else
  FEW,        // nearly all are NaN
  NONE        // all are
} Values;

typedef struct Case {
  int64_t tokens, experts, top_k;
  const char *dtype;
  int64_t groups, eligible;
  bool bias;
  Values values;
} Case;

//===--- operands -----------------------------------------------------------------------------------===//

static double special(gpu_rank *rank) {
  const double values[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 3.0e38, -3.0e38, 1.0e-40, -1.0e-45, 6.0e4, 88.0, -104.0};
  return values[gpu_random_below(rank, (int64_t)(sizeof values / sizeof *values))];
}

static double value(gpu_rank *rank, Values values) {
  double number = (double)gpu_random_below(rank, 1 << 20) * 0x1p-17 - 4.0;
  int64_t chance = gpu_random_below(rank, 16);
  switch (values) {
  case TIES: return chance < 4 ? -0.0 : (double)gpu_random_below(rank, 4) - 2.0;
  case SPECIAL: return chance < 4 ? special(rank) : number;
  case INFINITIES: return chance < 2 ? NAN : chance < 4 ? number : chance < 6 ? (double)INFINITY : -(double)INFINITY;
  case FEW: return chance < 15 || gpu_random_below(rank, 4) ? (double)NAN : number;
  case NONE: return NAN;
  default: return number;
  }
}

static void fill(gpu_buffer *buffer, Values values) {
  for (int64_t i = 0; i < buffer->count; ++i) gpu_set(buffer, i, value(buffer->rank, values));
  gpu_upload(buffer);
}

//===--- calls --------------------------------------------------------------------------------------===//

typedef struct Call {
  moert_moe_route_params params;
  moert_moe_route_args args;
  gpu_buffer *ids, *weights;
} Call;

static moert_status route(gpu_rank *rank, Call *call, moert_kernel *kernel) {
  gpu_fill(call->ids, GPU_POISON);
  gpu_fill(call->weights, GPU_POISON);
  moert_status status = moert_moe_route(&call->params, &call->args, kernel, rank->context);
  return status ? status : moert_context_synchronize(rank->context);
}

static void check_route(gpu_rank *rank, Call *call, moert_kernel *kernel) {
  CHECK_OK(route(rank, call, kernel));
  gpu_result("ids", call->ids);
  gpu_result("weights", call->weights);
}

// All that parameters without a shape can be.
static void check_parameters(gpu_rank *rank, Call *call) {
  moert_kernel *generic = NULL;
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.route/sm_90a", &generic));
  for (int bits = 0; bits < 8; ++bits) {
    call->params.score = bits & 1 ? MOERT_MOE_ROUTE_SCORE_SIGMOID : MOERT_MOE_ROUTE_SCORE_SOFTMAX;
    call->params.order = bits & 2 ? MOERT_MOE_ROUTE_ORDER_TOP_K_THEN_SCORE : MOERT_MOE_ROUTE_ORDER_SCORE_THEN_TOP_K;
    call->params.renormalize = bits >> 2;
    call->params.routed_scaling_factor = bits & 4 ? 2.5 : 1.0;
    check_route(rank, call, NULL);
    check_route(rank, call, generic);
  }
}

static void prepare(gpu_rank *rank, const Case *what, Call *call) {
  gpu_buffer *logits = gpu_new(rank, what->dtype, 2, what->tokens, what->experts);
  gpu_buffer *bias = what->bias ? gpu_new(rank, "f32", 1, what->experts) : NULL;
  call->ids = gpu_new(rank, "i32", 2, what->tokens, what->top_k);
  call->weights = gpu_new(rank, "f32", 2, what->tokens, what->top_k);
  fill(logits, what->values);
  if (bias) fill(bias, what->values == SPECIAL ? SPECIAL : TIES);
  call->params = (moert_moe_route_params)MOERT_MOE_ROUTE_PARAMS_INIT;
  call->params.top_k = what->top_k;
  call->params.n_experts = what->experts;
  call->params.n_group = what->groups;
  call->params.topk_group = what->eligible;
  call->args = (moert_moe_route_args)MOERT_MOE_ROUTE_ARGS_INIT;
  call->args.logits = &logits->tensor;
  call->args.bias = bias ? &bias->tensor : NULL;
  call->args.ids = &call->ids->tensor;
  call->args.weights = &call->weights->tensor;
}

static void body(gpu_rank *rank) {
  Call call;
  prepare(rank, rank->user, &call);
  check_parameters(rank, &call);
}

//===--- cases --------------------------------------------------------------------------------------===//

static const Case cases[] = {
    // those that have instances
    {37, 256, 8, "bf16", 1, 1, false, NUMBERS},
    {37, 256, 8, "bf16", 8, 4, true, TIES},
    {37, 256, 8, "bf16", 8, 4, true, SPECIAL},
    {37, 256, 8, "f32", 8, 4, true, NUMBERS},
    {37, 64, 8, "f32", 1, 1, false, NUMBERS},
    {37, 64, 8, "f32", 4, 2, false, SPECIAL},
    {37, 128, 8, "bf16", 1, 1, true, TIES},
    // shapes at the edges
    {0, 64, 8, "f32", 1, 1, false, NUMBERS},
    {1, 1, 1, "bf16", 1, 1, false, NUMBERS},
    {1, 33, 32, "f16", 1, 1, true, NUMBERS},
    {65, 31, 3, "f16", 1, 1, false, TIES},
    {65, 32, 32, "f32", 1, 1, true, SPECIAL},
    {65, 100, 6, "bf16", 10, 3, true, NUMBERS},
    {65, 96, 1, "f32", 48, 1, false, TIES},
    {9, 4096, 32, "bf16", 1, 1, false, NUMBERS},
    {9, 4096, 32, "f32", 2048, 16, true, TIES},
    {9, 4095, 17, "f16", 1, 1, true, SPECIAL},
    // values
    {257, 64, 8, "f32", 1, 1, false, INFINITIES},
    {257, 64, 8, "bf16", 8, 2, true, INFINITIES},
    {257, 64, 8, "f16", 8, 4, false, FEW},
    {257, 60, 6, "f32", 1, 1, true, FEW},
    {5, 256, 8, "bf16", 8, 4, false, NONE},
};

static const char *name_of(Values values) {
  static const char *const names[] = {"numbers", "ties", "special values", "infinities", "few numbers", "no numbers"};
  return names[values];
}

static void run_case(Case what) {
  gpu_case("%lld x %lld %s, top %lld, %lld of %lld groups%s, %s", (long long)what.tokens, (long long)what.experts, what.dtype, (long long)what.top_k,
           (long long)what.eligible, (long long)what.groups, what.bias ? ", bias" : "", name_of(what.values)) gpu_both(1, 1, body, &what);
}

//===--- an instance by name ------------------------------------------------------------------------===//

static void named(gpu_rank *rank) {
  Call call;
  prepare(rank, rank->user, &call);
  moert_kernel *kernel = NULL;
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.route/sm_90a/bf16,n_experts=256,top_k=8", &kernel));
  check_route(rank, &call, kernel);
  if (!rank->cuda) return;
  call.params.top_k = 7;
  call.ids->shape[1] = call.weights->shape[1] = 7;
  CHECK_FAILS(moert_moe_route(&call.params, &call.args, kernel, rank->context), MOERT_ERROR_INVALID_ARGUMENT,
              "moe.route: kernel is specialisation 0 of the op, which was made for other parameters or element types");
  call.ids->shape[1] = call.weights->shape[1] = 8;
}

//===--- replay -------------------------------------------------------------------------------------===//

static moert_status step(gpu_rank *rank, void *data) {
  Call *calls = data;
  moert_status status = moert_moe_route(&calls[0].params, &calls[0].args, NULL, rank->context);
  return status ? status : moert_moe_route(&calls[1].params, &calls[1].args, NULL, rank->context);
}

// Each call takes its bias from the weights of the other, so that every replay has other inputs.
static void replayed(gpu_rank *rank) {
  Call calls[2];
  moert_tensor bias[2];
  int64_t experts = ((const Case *)rank->user)->experts;
  for (int i = 0; i < 2; ++i) {
    prepare(rank, rank->user, &calls[i]);
    fill(calls[i].weights, NUMBERS);
    bias[i] = calls[i].weights->tensor;
    bias[i].ndim = 1;
    bias[i].shape = &experts;
    calls[1 - i].args.bias = &bias[i];
  }
  CHECK_OK(step(rank, calls)); // loads the code
  CHECK_OK(gpu_replay(rank, step, calls, 20));
  for (int i = 0; i < 2; ++i) {
    gpu_result("ids", calls[i].ids);
    gpu_result("weights", calls[i].weights);
  }
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) run_case(cases[i]);
  Case instance = {33, 256, 8, "bf16", 1, 1, false, NUMBERS}, small = {16, 8, 4, "f32", 1, 1, false, NUMBERS};
  gpu_case("an instance by its name") gpu_both(1, 1, named, &instance);
  gpu_case("replays") gpu_both(1, 1, replayed, &small);
  Case large = {4096, 256, 8, "bf16", 8, 4, true, SPECIAL};
  if (gpu_extent() == GPU_FULL) run_case(large);
  return gpu_end();
}

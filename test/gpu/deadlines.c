//===- deadlines.c - exchanges that fail on GPUs, and what comes after --------------------------------===//
//
// A rank stops at each phase of each exchange, or calls something else. The others must say who was missing and have poisoned outputs, the process
// must live on, and after moert_comm_recover results must be those of the host backend in the same situation.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

// The deadline of what must fail, and of what must not; how long a failure may take.
enum { DEADLINE_MS = 400, PATIENCE_MS = 20000, MOST_MS = 10000 };

typedef struct Scene {
  exchange_case what;
  const char *op, *phase; // where `odd` stops
  const char *awaited;    // what the others then wait for, and in which epoch
  int epoch;
  int odd;
  bool everybody; // recovers, else all but `odd`
  atomic_int through;
} Scene;

static uint64_t all_of(const gpu_rank *rank) { return (UINT64_C(1) << rank->size) - 1; }

static uint64_t survivors(const gpu_rank *rank, const Scene *scene) {
  return scene->everybody ? all_of(rank) : all_of(rank) & ~(UINT64_C(1) << scene->odd);
}

static bool survives(const gpu_rank *rank, const Scene *scene) { return survivors(rank, scene) >> rank->rank & 1; }

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void use_options(gpu_rank *rank, int64_t timeout_ms, const char *op, const char *phase) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  options.stop_op = op;
  options.stop_phase = phase;
  gpu_use_options(rank, &options);
}

static void set_options(exchange_layer *l, int64_t timeout_ms, const char *op, const char *phase) {
  use_options(l->rank, timeout_ms, op, phase);
  l->context = l->rank->context;
}

// The last that a rank does. One that is left out keeps what it has until the others are through: to free memory would wait for their kernels.
static void leave(const gpu_rank *rank, Scene *scene) {
  const struct timespec pause = {0, 1000000};
  if (scene->everybody) return;
  if (survives(rank, scene)) {
    atomic_fetch_add(&scene->through, 1);
    return;
  }
  int64_t end = now_ms() + 2 * PATIENCE_MS;
  while (CHECK(now_ms() < end) && atomic_load(&scene->through) < rank->size - 1) nanosleep(&pause, NULL);
  atomic_store(&scene->through, 0); // the next backend plays the same scene
}

static moert_status round_of(exchange_layer *l) {
  moert_status status = exchange_wait(l, exchange_dispatch(l));
  return status ? status : exchange_wait(l, exchange_combine(l));
}

//===--- reductions -------------------------------------------------------------------------------===//

typedef struct Reduction {
  gpu_buffer *workspace, *metainfo, *residual, *gamma, *inputs, *scales, *shared, *sum, *norm;
  moert_moe_allreduce_fusion_params params;
  moert_moe_allreduce_fusion_args args;
} Reduction;

enum { TOKENS = 8, HIDDEN = 64, EXPERTS = 3 };

static void open_reduction(Reduction *l, gpu_rank *rank) {
  moert_workspace_info info = {TOKENS, 2 * HIDDEN, 1, 0, rank->size};
  moert_moe_initialize_params sizes = MOERT_MOE_INITIALIZE_PARAMS_INIT;
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  *l = (Reduction){.workspace = gpu_new_symmetric(rank, "i8", 1, moert_workspace_lay_out(&info).bytes),
                   .metainfo = gpu_new_host(rank, "i64", 1, MOERT_METAINFO_FIELDS),
                   .residual = gpu_new(rank, "bf16", 2, TOKENS, HIDDEN),
                   .gamma = gpu_new(rank, "bf16", 1, HIDDEN),
                   .inputs = gpu_new(rank, "bf16", 3, EXPERTS, TOKENS, HIDDEN),
                   .scales = gpu_new(rank, "f32", 2, EXPERTS, TOKENS),
                   .shared = gpu_new(rank, "bf16", 2, TOKENS, HIDDEN),
                   .sum = gpu_new(rank, "bf16", 2, TOKENS, HIDDEN),
                   .norm = gpu_new(rank, "bf16", 2, TOKENS, HIDDEN),
                   .params = MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT,
                   .args = MOERT_MOE_ALLREDUCE_FUSION_ARGS_INIT};
  sizes.max_num_tokens = TOKENS;
  sizes.dispatch_bytes_per_token = 2 * HIDDEN;
  sizes.combine_bytes_per_token = 1;
  l->params.hidden_size = HIDDEN;
  l->params.rms_eps = 1e-6;
  args.workspace = l->args.workspace = &l->workspace->tensor;
  args.metainfo = l->args.metainfo = &l->metainfo->tensor;
  l->args.residual_in = &l->residual->tensor;
  l->args.rms_gamma = &l->gamma->tensor;
  l->args.moe_reduction_active_experts_token_input = &l->inputs->tensor;
  l->args.moe_reduction_scale_input = &l->scales->tensor;
  l->args.moe_reduction_token_input = &l->shared->tensor;
  l->args.moe_allreduce_out = &l->sum->tensor;
  l->args.norm_out = &l->norm->tensor;
  gpu_buffer *numbers[] = {l->residual, l->gamma, l->inputs, l->scales, l->shared};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) gpu_random(numbers[i], 2);
  CHECK_OK(moert_moe_initialize(&sizes, &args, NULL, rank->context));
}

static moert_status reduce(Reduction *l, gpu_rank *rank) {
  moert_status status = moert_moe_allreduce_fusion(&l->params, &l->args, NULL, rank->context);
  return status ? status : moert_context_synchronize(rank->context);
}

//===--- a rank that stops ------------------------------------------------------------------------===//

// The text of who waited, with what the device says of it later. None says PEER_FAILED of another that goes on: whoever waits has raised the flag
// that the others wait for, unless they are a whole deadline apart.
static void check_failure(exchange_layer *l, const Scene *scene, moert_status status, int64_t elapsed_ms) {
  char text[512];
  int rank = l->rank->rank;
  snprintf(text, sizeof text, "%s: rank %d waited %d ms for rank %d (%s, epoch %d)", scene->op, rank, DEADLINE_MS, scene->odd, scene->awaited,
           scene->epoch);
  CHECK_FAILS(status, MOERT_ERROR_PEER_TIMEOUT, text);
  CHECK(elapsed_ms >= DEADLINE_MS / 2 && elapsed_ms < MOST_MS);
  CHECK(moert_context_status(l->context) == MOERT_ERROR_PEER_TIMEOUT);
  CHECK(moert_comm_check(l->rank->comm) == MOERT_ERROR_PEER_TIMEOUT);
  exchange_check_poison(l, strcmp(scene->op, "moe.combine") == 0);
  int64_t start = now_ms();
  CHECK(exchange_wait(l, exchange_dispatch(l)) == MOERT_ERROR_PEER_TIMEOUT); // at once
  CHECK(now_ms() - start < DEADLINE_MS);
}

static void play_again(exchange_layer *l) {
  set_options(l, PATIENCE_MS, NULL, NULL);
  exchange_settle(l->rank);
  exchange_check_round(l, l->what.max_tokens, l->what.max_tokens);
  exchange_check_round(l, l->what.max_tokens / 2, l->what.max_tokens);
}

// A good round, one in which a rank stops, and rounds of those that go on.
static void stop(gpu_rank *rank) {
  Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  CHECK_OK(round_of(&l));
  set_options(&l, DEADLINE_MS, rank->rank == scene->odd ? scene->op : NULL, rank->rank == scene->odd ? scene->phase : NULL);
  exchange_settle(rank);
  int64_t start = now_ms();
  moert_status status = round_of(&l);
  if (rank->rank == scene->odd) {
    char text[512];
    snprintf(text, sizeof text, "%s: rank %d was stopped at phase '%s'", scene->op, scene->odd, scene->phase);
    CHECK_FAILS(status, MOERT_ERROR_STOPPED, text);
    moert_context_synchronize(l.context); // what was launched before has run: streams must be idle when ranks recover
  } else {
    check_failure(&l, scene, status, now_ms() - start);
  }
  if (survives(rank, scene) && CHECK_OK(moert_comm_recover(rank->comm, survivors(rank, scene), 0))) play_again(&l);
  leave(rank, scene);
}

typedef struct Phase {
  const char *op, *phase, *awaited;
  int epoch; // the good round had two
} Phase;

static const Phase phases[] = {{"moe.dispatch", "entry", "its counts", 3}, {"moe.dispatch", "counts", "its data", 3},
                               {"moe.dispatch", "data", "its data", 3},    {"moe.dispatch", "flag", "its data", 3},
                               {"moe.combine", "entry", "its data", 4},    {"moe.combine", "counts", "its data", 4},
                               {"moe.combine", "data", "its data", 4},     {"moe.combine", "flag", "its data", 4}};

//===--- replays that fail ------------------------------------------------------------------------===//

static void fail_replays(exchange_layer *l, cudaGraphExec_t executable) {
  for (int i = 0; i < 2; ++i) CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l->context)));
  CHECK(moert_context_synchronize(l->context) == MOERT_ERROR_PEER_TIMEOUT);
  CHECK(moert_comm_check(l->rank->comm) == MOERT_ERROR_PEER_TIMEOUT);
  CHECK(gpu_is_filled(l->out.memory, 0xff));
  gpu_fill(l->out.memory, GPU_POISON); // each fills the outputs, not the first alone
  CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l->context)));
  CHECK_CUDA(cudaStreamSynchronize(moert_context_stream(l->context)));
  CHECK(gpu_is_filled(l->out.memory, 0xff));
}

static void replay_again(exchange_layer *l, cudaGraphExec_t executable) {
  gpu_fill(l->out.memory, GPU_POISON);
  exchange_settle(l->rank);
  for (int i = 0; i < 3; ++i) CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l->context)));
  CHECK_OK(moert_context_synchronize(l->context));
  CHECK(moert_comm_check(l->rank->comm) == MOERT_OK);
  CHECK(!gpu_is_filled(l->out.memory, 0xff) && !gpu_is_filled(l->out.memory, GPU_POISON));
  exchange_settle(l->rank);
  CHECK_OK(round_of(l));
}

// All but one replay a capture, three times: all fail, the second at once. Recovered, the same capture serves the survivors.
static void replay(gpu_rank *rank) {
  Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  CHECK_OK(round_of(&l));
  set_options(&l, DEADLINE_MS, NULL, NULL);
  cudaGraphExec_t executable = exchange_capture(&l);
  if (executable && rank->rank != scene->odd) fail_replays(&l, executable);
  if (executable && survives(rank, scene) && CHECK_OK(moert_comm_recover(rank->comm, survivors(rank, scene), 0))) replay_again(&l, executable);
  leave(rank, scene);
  if (executable) cudaGraphExecDestroy(executable);
}

//===--- ranks that do not do the same ------------------------------------------------------------===//

typedef enum Otherwise { OTHER_R, OTHER_EXPERTS, OTHER_NUMBER, OTHER_DTYPE, ANOTHER_OP, OTHERWISE } Otherwise;

static moert_dtype half_of(moert_dtype dtype) {
  dtype.code = dtype.code == MOERT_CODE_FLOAT ? MOERT_CODE_BFLOAT : MOERT_CODE_FLOAT;
  return dtype;
}

static moert_status call_otherwise(exchange_layer *l, Otherwise otherwise) {
  if (otherwise == OTHER_R) exchange_shape(l, l->what.max_tokens - 1, l->what.max_tokens - 1);
  if (otherwise == OTHER_EXPERTS) ++l->dispatch_params.n_experts;
  if (otherwise == OTHER_NUMBER) l->dispatch_args.num_payloads = l->dispatch_args.num_recv = 1;
  if (otherwise == OTHER_DTYPE) l->payload_list[0].dtype = l->recv_list[0].dtype = half_of(l->payload_list[0].dtype);
  return exchange_wait(l, exchange_dispatch(l));
}

// On the workspace of the layer.
static moert_status call_reduction(exchange_layer *l, Reduction *reduction) {
  reduction->args.workspace = &l->workspace->tensor;
  reduction->args.metainfo = &l->metainfo->tensor;
  moert_status status = reduce(reduction, l->rank);
  CHECK(gpu_is_filled(reduction->norm, 0xff));
  return status;
}

// What the rank says of the one that differs from it. The odd one differs from all others, and on GPUs names whichever it sees first.
static void check_difference(const gpu_rank *rank, bool is_odd, int odd, const char *op, const char *awaited) {
  char text[512], whole[600];
  snprintf(text, sizeof text, " called another op or used other parameters than rank %d (%s, epoch 1): hash ", rank->rank, awaited);
  snprintf(whole, sizeof whole, "%s: rank %d%s", op, odd, text);
  const char *said = moert_last_error();
  bool fits = is_odd ? strncmp(said, op, strlen(op)) == 0 && strstr(said, text) : strncmp(said, whole, strlen(whole)) == 0;
  gpu_check(fits, __FILE__, __LINE__, "rank %d says %s", rank->rank, said);
}

// Everybody learns of it: those that do as they should, and the one that does not.
static void differ(gpu_rank *rank) {
  const Scene *scene = rank->user;
  Reduction reduction;
  open_reduction(&reduction, rank);
  for (int otherwise = 0; otherwise < OTHERWISE; ++otherwise) {
    exchange_layer l;
    bool is_odd = rank->rank == scene->odd, reduces = is_odd && otherwise == ANOTHER_OP;
    exchange_open(&l, rank, &scene->what, 0);
    exchange_fill(&l);
    moert_status status = reduces  ? call_reduction(&l, &reduction)
                          : is_odd ? call_otherwise(&l, (Otherwise)otherwise)
                                   : exchange_wait(&l, exchange_dispatch(&l));
    CHECK_FAILS(status, MOERT_ERROR_PEER_MISMATCH, NULL);
    check_difference(rank, is_odd, scene->odd, reduces ? "moe.allreduce_fusion" : "moe.dispatch", reduces ? "its arrival" : "its counts");
    if (!is_odd) exchange_check_poison(&l, false);
    CHECK_OK(moert_comm_recover(rank->comm, all_of(rank), 0));
  }
}

// A rank that reports an error of its own is not waited for.
static void report(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  if (rank->rank == scene->odd) {
    moert_comm_report(rank->comm, MOERT_ERROR_DATA);
  } else {
    int64_t start = now_ms();
    CHECK(exchange_wait(&l, exchange_dispatch(&l)) == MOERT_ERROR_PEER_FAILED);
    CHECK(strstr(moert_last_error(), "reported") != NULL);
    CHECK(now_ms() - start < MOST_MS);
    exchange_check_poison(&l, false);
  }
  if (CHECK_OK(moert_comm_recover(rank->comm, all_of(rank), 0))) play_again(&l);
}

//===--- reductions that fail ---------------------------------------------------------------------===//

static void reduce_again(Reduction *l, gpu_rank *rank) {
  use_options(rank, PATIENCE_MS, NULL, NULL);
  exchange_settle(rank);
  CHECK_OK(reduce(l, rank));
  gpu_result("sum", l->sum);
  gpu_result("norm", l->norm);
}

static void stop_reduction(gpu_rank *rank) {
  Scene *scene = rank->user;
  Reduction l;
  open_reduction(&l, rank);
  use_options(rank, DEADLINE_MS, rank->rank == scene->odd ? "moe.allreduce_fusion" : NULL, rank->rank == scene->odd ? scene->phase : NULL);
  exchange_settle(rank);
  moert_status status = reduce(&l, rank);
  if (rank->rank == scene->odd) {
    CHECK(status == MOERT_ERROR_STOPPED);
    moert_context_synchronize(rank->context);
  } else {
    char text[512];
    snprintf(text, sizeof text, "moe.allreduce_fusion: rank %d waited %d ms for rank %d (%s, epoch 1)", rank->rank, DEADLINE_MS, scene->odd,
             scene->awaited);
    CHECK_FAILS(status, MOERT_ERROR_PEER_TIMEOUT, text);
    CHECK(gpu_is_filled(l.sum, 0xff));
    CHECK(gpu_is_filled(l.norm, 0xff));
  }
  if (survives(rank, scene) && CHECK_OK(moert_comm_recover(rank->comm, survivors(rank, scene), 0))) reduce_again(&l, rank);
  leave(rank, scene);
}

//===--- processes --------------------------------------------------------------------------------===//

// A process dies between rounds; the others notice, and go on.
static void die(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  CHECK_OK(round_of(&l));
  set_options(&l, DEADLINE_MS, NULL, NULL);
  exchange_settle(rank);
  if (rank->rank == scene->odd) raise(SIGKILL);
  moert_status status = round_of(&l);
  CHECK(status == MOERT_ERROR_PEER_TIMEOUT || status == MOERT_ERROR_PEER_FAILED); // the latter where hosts wait, who see that it has ended
  if (CHECK_OK(moert_comm_recover(rank->comm, survivors(rank, scene), 0))) {
    set_options(&l, PATIENCE_MS, NULL, NULL);
    exchange_fill(&l);
    exchange_settle(rank);
    CHECK_OK(round_of(&l));
    CHECK(!gpu_is_filled(l.out.memory, 0xff));
  }
}

//===--- all --------------------------------------------------------------------------------------===//

static void run_on(int32_t size, int32_t gpus) {
  // max_tokens, hidden, top_k, experts, dtype, out, grouped, in_place, ids, rounds, further, shift, special
  exchange_case flat = {9, 64, 3, 13, "bf16", "f32", false, false, IDS_ANY, 1, 1, 0, false};
  exchange_case grouped = {9, 64, 3, 13, "f16", "f16", true, false, IDS_ANY, 1, 1, 0, false};
  size_t count = sizeof phases / sizeof *phases;
  for (size_t i = 0; i < 2 * count; ++i) {
    const Phase *at = &phases[i / 2];
    bool is_grouped = i % 2, everybody = i % 5 == 4;
    if (gpu_extent() == GPU_SMALL && i % 7 != 0) continue;
    Scene scene = {is_grouped ? grouped : flat, at->op, at->phase, at->awaited, at->epoch, (int)(i / 2) % size, everybody, 0};
    gpu_case("stop in %s at %s%s, %s, %d ranks, %d GPUs", at->op, at->phase, is_grouped ? " grouped" : "",
             everybody ? "all recover" : "the others go on", size, gpus) gpu_both(size, gpus, stop, &scene);
  }
  const char *const reductions[][2] = {{"entry", "its arrival"}, {"counts", "its data"}, {"data", "its data"}, {"flag", "its data"}};
  for (int i = 0; i < 4; ++i) {
    Scene scene = {.phase = reductions[i][0], .awaited = reductions[i][1], .odd = i % size, .everybody = i == 3};
    gpu_case("stop in moe.allreduce_fusion at %s, %d ranks, %d GPUs", scene.phase, size, gpus) gpu_both(size, gpus, stop_reduction, &scene);
  }
  Scene scene = {.what = flat, .odd = size - 1};
  gpu_case("replays that fail, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, replay, &scene);
  Scene many = scene, many_grouped = {.what = grouped, .odd = size - 1};
  many.what.max_tokens = many_grouped.what.max_tokens = 200;
  gpu_case("replays of many tokens that fail, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, replay, &many);
  gpu_case("replays of many tokens that fail grouped, %d ranks, %d GPUs", size, gpus) gpu_only(size, gpus, replay, &many_grouped);
  gpu_case("a rank reports an error, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, report, &scene);
  gpu_case("ranks differ, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, differ, &scene);
  scene.odd = 0;
  gpu_case("rank 0 differs, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, differ, &scene);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count();
  run_on(2, gpus);
  if (gpu_extent() != GPU_SMALL) run_on(4, gpus);
  if (gpu_extent() == GPU_FULL) run_on(3, 1);
  Scene scene = {.what = {9, 64, 3, 13, "bf16", "f32", false, false, IDS_ANY, 1, 1, 0, false}, .odd = 1};
  if (gpu_extent() != GPU_SMALL) gpu_case("a process dies, 2 ranks, %d GPUs", gpus) gpu_processes(2, gpus, die, &scene, sizeof scene, 1);
  if (gpu_extent() == GPU_FULL) gpu_case("a process dies, 4 ranks, %d GPUs", gpus) gpu_processes(4, gpus, die, &scene, sizeof scene, 1);
  return gpu_end();
}

//===- nccl_transport.c - dispatch and combine between ranks that cannot address each other's memory ----------===//
//
// On one host with two GPUs: the transport is forced, and NCCL is told to use neither peer access nor shared memory, so that rows go the way that
// they go between hosts. Everything must have the bits of the host backend, in calls, where what there is is sent, and in captures, where R rows are.
// Ranks that do not come must be found out, and be recovered from.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include "nccl_library.h"
#include <stdio.h>
#include <time.h>

// The deadline of what must fail, and of what must not; how long a failure may take.
enum { RANKS = 2, DEADLINE_MS = 400, PATIENCE_MS = 20000, MOST_MS = 10000, ALL = (1 << RANKS) - 1 };

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void check_transport(const gpu_rank *rank) {
  CHECK(moert_comm_transport(rank->comm) == (rank->cuda ? MOERT_TRANSPORT_NCCL : MOERT_TRANSPORT_PEER));
}

//===--- calls ------------------------------------------------------------------------------------===//

typedef struct Case {
  const char *name;
  exchange_case what;
  bool low;      // E4M3 on the wire
  int64_t stats; // of each rank
} Case;

// Tokens of a round: as many as there may be, none, or any number. R grows.
static int64_t tokens_of(gpu_rank *rank, const exchange_case *what, int64_t round, int64_t *most) {
  *most = 1 + (what->max_tokens - 1) * (round + 1) / what->rounds;
  int64_t any = gpu_random_below(rank, *most + 1);
  if ((round + rank->rank) % 3 == 0) return *most;
  return (round + rank->rank) % 3 == 1 ? 0 : any;
}

typedef struct Layer {
  exchange_layer exchange;
  exchange_operand stats, gathered;
} Layer;

static void open_layer(Layer *l, gpu_rank *rank, const Case *what) {
  exchange_layer *exchange = &l->exchange;
  exchange_open_for(exchange, rank, &what->what, 0, what->stats);
  exchange->combine_params.use_low_precision = what->low;
  if (!what->stats) return;
  l->stats.memory = gpu_new(rank, "i32", 1, what->stats);
  l->gathered.memory = gpu_new(rank, "i32", 1, rank->size * what->stats);
  exchange->dispatch_args.eplb_local_stats = exchange_set(&l->stats, 1, what->stats, 0);
  exchange->dispatch_args.eplb_gathered_stats = exchange_set(&l->gathered, 2, rank->size, what->stats);
}

static void play_round(Layer *l, const Case *what, int64_t tokens, int64_t most) {
  if (what->stats) gpu_random(l->stats.memory, 1000);
  exchange_check_round(&l->exchange, tokens, most);
  if (what->stats) gpu_result("gathered statistics", l->gathered.memory);
}

static void play(gpu_rank *rank) {
  const Case *what = rank->user;
  Layer l;
  check_transport(rank);
  open_layer(&l, rank, what);
  for (int64_t round = 0; round < what->what.rounds; ++round) {
    int64_t most, tokens = tokens_of(rank, &what->what, round, &most);
    play_round(&l, what, tokens, most);
  }
  CHECK_OK(exchange_initialize(&l.exchange)); // again: epochs begin anew
  play_round(&l, what, what->what.max_tokens, what->what.max_tokens);
}

// Two workspaces in one block, whose images are parts of one, and two streams.
static void play_two(gpu_rank *rank) {
  const Case *what = rank->user;
  Layer l[2];
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  for (int i = 0; i < 2; ++i) open_layer(&l[i], rank, what);
  if (!CHECK_OK(moert_context_create(rank->comm, &options, &l[1].exchange.context))) return;
  for (int64_t round = 0; round < what->what.rounds; ++round) {
    for (int i = 0; i < 2; ++i) exchange_fill(&l[i].exchange);
    CHECK_OK(moert_context_synchronize(rank->context)); // which the inputs were written on
    for (int i = 0; i < 2; ++i) CHECK_OK(exchange_dispatch(&l[i].exchange));
    for (int i = 1; i >= 0; --i) CHECK_OK(exchange_combine(&l[i].exchange));
    for (int i = 0; i < 2; ++i) CHECK_OK(moert_context_synchronize(l[i].exchange.context));
    for (int i = 0; i < 2; ++i) gpu_result("out", l[i].exchange.out.memory);
    for (int i = 0; i < 2; ++i) gpu_result("recv", l[i].exchange.recv[0].memory);
  }
  moert_context_destroy(l[1].exchange.context);
}

//===--- captures ---------------------------------------------------------------------------------===//

// A call between replays sends what there is, with the links of the capture.
static void replay(gpu_rank *rank) {
  const Case *what = rank->user;
  Layer l;
  open_layer(&l, rank, what);
  exchange_shape(&l.exchange, what->what.max_tokens - rank->rank, what->what.max_tokens);
  cudaGraphExec_t executable = exchange_replay(&l.exchange, l.exchange.out.memory, NULL);
  if (what->stats) gpu_result("gathered statistics", l.gathered.memory);
  exchange_fill(&l.exchange);
  CHECK_OK(exchange_wait(&l.exchange, exchange_enqueue(&l.exchange)));
  gpu_result("out", l.exchange.out.memory);
  exchange_fill(&l.exchange);
  if (!rank->cuda) CHECK_OK(exchange_enqueue(&l.exchange));
  if (executable) CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l.exchange.context)));
  CHECK_OK(moert_context_synchronize(l.exchange.context));
  gpu_result("out", l.exchange.out.memory);
  if (executable) cudaGraphExecDestroy(executable);
}

// The images of the peers' memory are made by calls.
static void capture_before_a_call(gpu_rank *rank) {
  const Case *what = rank->user;
  Layer l;
  cudaGraph_t graph = NULL;
  open_layer(&l, rank, what);
  cudaStream_t stream = moert_context_stream(l.exchange.context);
  CHECK_CUDA(cudaSetDevice(moert_comm_device(rank->comm).id));
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK_FAILS(
      exchange_dispatch(&l.exchange), MOERT_ERROR_NOT_CAPTURABLE,
      "moe.dispatch: the images of peers' memory have to grow, which a CUDA graph cannot record; call the op once before with as many tokens");
  cudaStreamEndCapture(stream, &graph);
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  exchange_settle(rank);
  exchange_fill(&l.exchange);
  CHECK_OK(exchange_wait(&l.exchange, exchange_enqueue(&l.exchange))); // nobody can have felt it
}

//===--- ranks that do not come -------------------------------------------------------------------===//

typedef struct Scene {
  exchange_case what;
  const char *op, *phase, *awaited; // where rank 1 stops, and what rank 0 then waits for
  int epoch;
} Scene;

static void set_options(exchange_layer *l, int64_t timeout_ms, const char *op, const char *phase) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  options.stop_op = op;
  options.stop_phase = phase;
  gpu_use_options(l->rank, &options);
  l->context = l->rank->context;
}

static moert_status round_of(exchange_layer *l) {
  moert_status status = exchange_wait(l, exchange_dispatch(l));
  return status ? status : exchange_wait(l, exchange_combine(l));
}

static void check_timeout(exchange_layer *l, const Scene *scene, moert_status status, int64_t elapsed_ms) {
  char text[512];
  snprintf(text, sizeof text, "%s: rank 0 waited %d ms for rank 1 (%s, epoch %d)", scene->op, DEADLINE_MS, scene->awaited, scene->epoch);
  CHECK_FAILS(status, MOERT_ERROR_PEER_TIMEOUT, text);
  CHECK(elapsed_ms >= DEADLINE_MS / 2 && elapsed_ms < MOST_MS);
  CHECK(moert_comm_check(l->rank->comm) == MOERT_ERROR_PEER_TIMEOUT);
  exchange_check_poison(l, strcmp(scene->op, "moe.combine") == 0);
  int64_t start = now_ms();
  CHECK(exchange_wait(l, exchange_dispatch(l)) == MOERT_ERROR_PEER_TIMEOUT); // at once
  CHECK(now_ms() - start < DEADLINE_MS);
}

// Rank 1 is here first, and waits for the other.
static void recover_and_play(exchange_layer *l) {
  if (!CHECK_OK(moert_comm_recover(l->rank->comm, ALL, 0))) return;
  set_options(l, PATIENCE_MS, NULL, NULL);
  exchange_settle(l->rank);
  for (int64_t tokens = l->what.max_tokens; tokens > 0; tokens /= 2) exchange_check_round(l, tokens, l->what.max_tokens);
}

// A good round, one in which rank 1 stops, and rounds of both.
static void stop(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  bool is_odd = rank->rank == 1;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  CHECK_OK(round_of(&l));
  set_options(&l, DEADLINE_MS, is_odd ? scene->op : NULL, is_odd ? scene->phase : NULL);
  exchange_settle(rank);
  int64_t start = now_ms();
  moert_status status = round_of(&l);
  if (is_odd) {
    CHECK(status == MOERT_ERROR_STOPPED);
    moert_context_synchronize(l.context); // what was launched before has run: streams must be idle when ranks recover
  } else {
    check_timeout(&l, scene, status, now_ms() - start);
  }
  recover_and_play(&l);
}

// A rank that reports an error of its own is not waited for.
static void report(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  if (rank->rank == 1) {
    moert_comm_report(rank->comm, MOERT_ERROR_DATA);
  } else {
    int64_t start = now_ms();
    CHECK(exchange_wait(&l, exchange_dispatch(&l)) == MOERT_ERROR_PEER_FAILED);
    CHECK(strstr(moert_last_error(), "rank 1 reported") != NULL);
    CHECK(now_ms() - start < MOST_MS);
    exchange_check_poison(&l, false);
  }
  recover_and_play(&l);
}

// Both learn of it by what they tell each other before they send rows.
static void differ(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  char text[256];
  int64_t most = scene->what.max_tokens - rank->rank;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  exchange_shape(&l, most, most);
  moert_status status = exchange_wait(&l, exchange_dispatch(&l));
  CHECK_FAILS(status, MOERT_ERROR_PEER_MISMATCH, NULL);
  snprintf(text, sizeof text, "moe.dispatch: rank %d called another op or used other parameters than rank %d (its counts, epoch 1): hash ",
           1 - rank->rank, rank->rank);
  gpu_check(strncmp(moert_last_error(), text, strlen(text)) == 0, __FILE__, __LINE__, "rank %d says %s", rank->rank, moert_last_error());
  exchange_shape(&l, scene->what.max_tokens, scene->what.max_tokens);
  recover_and_play(&l);
}

// A replay is found out too. The captures of a link that is gone go with it.
static void replay_alone(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  CHECK_OK(round_of(&l));
  set_options(&l, DEADLINE_MS, NULL, NULL);
  cudaGraphExec_t executable = exchange_capture(&l);
  if (rank->rank == 0 && executable) {
    CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l.context)));
    CHECK(moert_context_synchronize(l.context) == MOERT_ERROR_PEER_TIMEOUT);
    CHECK(gpu_is_filled(l.out.memory, 0xff));
  }
  if (executable) cudaGraphExecDestroy(executable);
  if (!CHECK_OK(moert_comm_recover(rank->comm, ALL, 0))) return;
  set_options(&l, PATIENCE_MS, NULL, NULL);
  CHECK_OK(round_of(&l));
  executable = exchange_capture(&l);
  if (!executable) return;
  gpu_fill(l.out.memory, GPU_POISON);
  exchange_settle(rank);
  for (int i = 0; i < 3; ++i) CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l.context)));
  CHECK_OK(moert_context_synchronize(l.context));
  CHECK(!gpu_is_filled(l.out.memory, 0xff) && !gpu_is_filled(l.out.memory, GPU_POISON));
  cudaGraphExecDestroy(executable);
}

// Two of three go on without the other, if there are GPUs for them.
static void leave_out(gpu_rank *rank) {
  const Scene *scene = rank->user;
  exchange_layer l;
  exchange_open(&l, rank, &scene->what, 0);
  exchange_fill(&l);
  CHECK_OK(round_of(&l));
  if (rank->rank == 1 || !CHECK_OK(moert_comm_recover(rank->comm, 5, 0))) return;
  exchange_check_round(&l, scene->what.max_tokens, scene->what.max_tokens);
  exchange_check_round(&l, rank->rank, scene->what.max_tokens);
}

//===--- all --------------------------------------------------------------------------------------===//

// max_tokens, hidden, top_k, experts, dtype, out, grouped, in_place, ids, rounds, further, shift, special
static const Case cases[] = {{"flat", {33, 7168, 8, 64, "bf16", "bf16", false, false, IDS_ANY, 3, 0, 0, false}, false, 0},
                             {"flat in place", {20, 2048, 8, 33, "bf16", "bf16", false, true, IDS_WILD, 3, 0, 0, true}, false, 0},
                             {"payloads of odd rows", {17, 24, 3, 11, "bf16", "f32", false, false, IDS_WILD, 4, 7, 0, true}, false, 5},
                             {"rows that are not aligned", {17, 40, 6, 19, "f16", "f32", false, false, IDS_ANY, 3, 3, 1, true}, false, 0},
                             {"one token", {1, 128, 4, 8, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}, false, 1},
                             {"one expert", {40, 64, 4, 8, "bf16", "f32", false, false, IDS_ONE, 2, 0, 0, false}, false, 0},
                             {"no expert", {40, 64, 4, 8, "bf16", "f32", false, false, IDS_NONE, 2, 0, 0, false}, false, 0},
                             {"E4M3", {33, 160, 8, 16, "bf16", "bf16", false, false, IDS_ANY, 3, 0, 0, true}, true, 0},
                             {"thousands of tokens", {2500, 1024, 4, 31, "bf16", "f32", false, false, IDS_ANY, 2, 1, 0, false}, false, 31},
                             {"grouped", {33, 7168, 8, 64, "bf16", "bf16", true, false, IDS_ANY, 3, 0, 0, false}, false, 0},
                             {"grouped payloads of odd rows", {17, 24, 3, 11, "f16", "f16", true, false, IDS_WILD, 3, 7, 0, true}, false, 3},
                             {"grouped experts in two slots", {12, 32, 6, 10, "bf16", "f32", true, false, IDS_TWICE, 2, 0, 0, false}, false, 0},
                             {"grouped no expert", {40, 64, 4, 8, "bf16", "f32", true, false, IDS_NONE, 2, 0, 0, false}, false, 0},
                             {"grouped E4M3", {23, 41, 5, 9, "f16", "bf16", true, false, IDS_TWICE, 3, 0, 1, true}, true, 0},
                             {"grouped thousands", {2500, 512, 6, 300, "f16", "f32", true, false, IDS_ANY, 2, 0, 0, false}, false, 300}};

static const Scene scenes[] = {{{9, 64, 4, 8, "bf16", "f32", false, false, IDS_ANY, 1, 1, 0, false}, "moe.dispatch", "entry", "its counts", 3},
                               {{9, 64, 4, 8, "bf16", "f32", false, false, IDS_ANY, 1, 0, 0, false}, "moe.dispatch", "counts", "its data", 3},
                               {{9, 64, 4, 8, "bf16", "f32", true, false, IDS_ANY, 1, 0, 0, false}, "moe.dispatch", "data", "its data", 3},
                               {{9, 64, 4, 8, "bf16", "f32", false, false, IDS_ANY, 1, 0, 0, false}, "moe.combine", "entry", "its data", 4},
                               {{9, 64, 4, 8, "bf16", "f32", true, false, IDS_ANY, 1, 0, 0, false}, "moe.combine", "flag", "its data", 4}};

static void run_cases(void) {
  size_t step = gpu_extent() == GPU_SMALL ? 7 : 1;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i += step) {
    Case what = cases[i];
    gpu_case("%s", what.name) gpu_both(RANKS, RANKS, play, &what);
    gpu_case("%s, replays", what.name) gpu_both(RANKS, RANKS, replay, &what);
  }
  Case two = {"", {19, 96, 4, 16, "bf16", "f32", true, false, IDS_ANY, 4, 0, 0, false}, false, 0};
  gpu_case("two workspaces") gpu_both(RANKS, RANKS, play_two, &two);
  gpu_case("a capture before a call") gpu_only(RANKS, RANKS, capture_before_a_call, &two);
}

static void run_scenes(void) {
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i += gpu_extent() == GPU_SMALL ? 2 : 1) {
    Scene scene = scenes[i];
    gpu_case("%s stops at %s", scene.op, scene.phase) gpu_both(RANKS, RANKS, stop, &scene);
  }
  Scene scene = scenes[0];
  gpu_case("a rank that reports an error") gpu_both(RANKS, RANKS, report, &scene);
  gpu_case("ranks that differ") gpu_both(RANKS, RANKS, differ, &scene);
  gpu_case("a replay that nobody joins") gpu_only(RANKS, RANKS, replay_alone, &scene);
  if (gpu_count() > RANKS) gpu_case("a rank that is left out") gpu_both(3, 3, leave_out, &scene);
}

int main(int argc, char **argv) {
  nccl_keep_apart();
  gpu_begin(argc, argv);
  bool plays = gpu_count() >= RANKS && nccl_find();
  if (!plays && gpu_count()) printf("the transport needs two GPUs, and libnccl.so.2 where the dynamic linker looks (LD_LIBRARY_PATH): left out\n");
  if (!plays && gpu_count()) return gpu_end();
  run_cases();
  if (gpu_extent() == GPU_SMALL && gpu_count()) return gpu_end(); // under compute-sanitizer, which no deadline fits
  run_scenes();
  if (gpu_extent() != GPU_FULL) return gpu_end();
  gpu_case("flat, processes") gpu_processes(RANKS, RANKS, play, &cases[0], sizeof cases[0], -1);
  gpu_case("grouped, processes") gpu_processes(RANKS, RANKS, play, &cases[9], sizeof cases[9], -1);
  return gpu_end();
}

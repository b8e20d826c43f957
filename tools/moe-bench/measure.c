//===- measure.c - cases under graph replay, on all ranks ---------------------------------------------===//
//
// A rank is a thread. It captures a chain of calls with its operands in turn, and event records between them, in a graph for each variant; replays
// of the variants alternate. Before a replay the cache is filled with other memory, and all ranks meet. The first call of a chain is not timed: it
// brings the ranks together. What a step took in a replay is the mean over the chain, of all ranks the slowest. A copy beside an op is a chain like
// the op's, of kernels that copy as many bytes.
//
//===----------------------------------------------------------------------------------------------===//

#include "bench.h"
#include "device.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 10000, WARM_REPLAYS = 2, MAX_CALLS = 32, CHAIN_CALLS = 8, CHAIN_US = 2000, POISON = 0xcb };
static const size_t CACHE_BYTES = (size_t)192 << 20, SETS_BYTES = (size_t)256 << 20, MOST_BYTES = (size_t)12 << 30;

//===--- the team -----------------------------------------------------------------------------------===//

typedef struct Team {
  const Options *options;
  int32_t ranks;
  moert_comm *comms[MOERT_MAX_RANKS];
  pthread_barrier_t barrier;
  int decision;
  atomic_bool failed, broken; // what is measured; the communicator too, so that nothing more can be
  double us[MAX_REPLAYS][MAX_VARIANTS][MAX_STEPS][MOERT_MAX_RANKS];
  void (*done)(void *user, const Record *record);
  void *user;
  atomic_bool any_failed;
} Team;

// A graph of `calls` calls, with an event before and behind each step of each.
typedef struct Chain {
  cudaGraphExec_t graph;
  cudaEvent_t events[MAX_CALLS * MAX_STEPS + 1];
  moert_kernel *kernels[MAX_STEPS];
} Chain;

// One rank and what it measures now.
typedef struct Rank {
  Team *team;
  pthread_t thread;
  const Case *what;
  Work *work;
  int calls;
  bool is_measured[MAX_VARIANTS];
  Chain chains[MAX_VARIANTS];
  unsigned char *copied; // memory of copies, copied_bytes for each set: from the second half to the first
  size_t copied_bytes;
  void *cache;              // memory that takes the operands' place in the cache
  unsigned long long *sums; // one of each set, in device memory
  unsigned long long eager[MAX_SETS], replayed[MAX_SETS], poison[MAX_SETS];
} Rank;

static void say(Rank *rank, const char *what, const char *why) {
  const Work *work = rank->work;
  fprintf(stderr, "moe-bench: %s, %s, %lld tokens, rank %d: %s: %s\n", rank->what->steps[0].name, rank->what->variant, (long long)work->tokens,
          work->rank, what, why);
  atomic_store(&rank->team->failed, true);
}

static bool check_status(Rank *rank, moert_status status, const char *what) {
  if (status == MOERT_OK) return true;
  say(rank, what, moert_last_error()[0] ? moert_last_error() : moert_status_text(status));
  if (moert_comm_status(rank->work->comm) != MOERT_OK) atomic_store(&rank->team->broken, true);
  return false;
}

static bool check_cuda(Rank *rank, cudaError_t error, const char *what) {
  if (error == cudaSuccess) return true;
  say(rank, what, cudaGetErrorString(error));
  return false;
}

// All ranks come here. Whether nobody has failed since the measurement began.
static bool all_are_well(Rank *rank) {
  pthread_barrier_wait(&rank->team->barrier);
  bool well = !atomic_load(&rank->team->failed);
  pthread_barrier_wait(&rank->team->barrier);
  return well;
}

//===--- operands -----------------------------------------------------------------------------------===//

static size_t set_bytes(const Work *work) {
  size_t bytes = 0;
  for (int slot = 0; slot < MAX_BUFFERS; ++slot) bytes += work->buffers[0][slot].bytes;
  return bytes;
}

// Enough sets that their operands do not fit in the cache together, as far as there is memory.
static int choose_sets(const Rank *rank) {
  size_t bytes = set_bytes(rank->work);
  int sets = 1;
  while (sets < MAX_SETS && (sets < 2 || (size_t)sets * bytes < SETS_BYTES) && (size_t)(sets + 1) * bytes <= MOST_BYTES) ++sets;
  return sets;
}

// Ranks may have somewhat different operands; what they do together the first decides.
static int decide(Rank *rank, int (*choose)(const Rank *rank)) {
  if (rank->work->rank == 0) rank->team->decision = choose(rank);
  pthread_barrier_wait(&rank->team->barrier);
  int decision = rank->team->decision;
  pthread_barrier_wait(&rank->team->barrier);
  return decision;
}

static bool open_work(Rank *rank) {
  Work *work = rank->work;
  work->sets = 1;
  moert_status status = rank->what->open ? rank->what->open(work) : MOERT_OK;
  if (!status) status = rank->what->fill(work, 0);
  return check_status(rank, status, "operands");
}

static bool fill_sets(Rank *rank, int sets) {
  Work *work = rank->work;
  for (; work->sets < sets; ++work->sets)
    if (!check_status(rank, rank->what->fill(work, work->sets), "operands")) return false;
  return check_status(rank, moert_context_synchronize(work->context), "operands");
}

static bool poison_outputs(Rank *rank) {
  Work *work = rank->work;
  for (int set = 0; set < work->sets; ++set)
    for (int slot = 0; slot < MAX_BUFFERS; ++slot) {
      Buffer *buffer = &work->buffers[set][slot];
      if (!buffer->is_output || buffer->bytes == 0) continue;
      if (!check_cuda(rank, cudaMemsetAsync(buffer->tensor.data, POISON, buffer->bytes, work->stream), "poison")) return false;
    }
  return true;
}

// Of the outputs of each set.
static bool read_checksums(Rank *rank, unsigned long long *sums) {
  Work *work = rank->work;
  bool well = check_cuda(rank, cudaMemsetAsync(rank->sums, 0, MAX_SETS * sizeof *sums, work->stream), "checksums");
  for (int set = 0; set < work->sets && well; ++set)
    for (int slot = 0; slot < MAX_BUFFERS && well; ++slot) {
      Buffer *buffer = &work->buffers[set][slot];
      if (!buffer->is_output || buffer->bytes == 0) continue;
      well = check_cuda(rank, device_checksum(buffer->tensor.data, buffer->bytes, &rank->sums[set], work->stream), "checksums");
    }
  if (well) well = check_status(rank, moert_context_synchronize(work->context), "checksums");
  return well && check_cuda(rank, cudaMemcpy(sums, rank->sums, MAX_SETS * sizeof *sums, cudaMemcpyDeviceToHost), "checksums");
}

//===--- calls --------------------------------------------------------------------------------------===//

static bool call_step(Rank *rank, int step, int set, moert_kernel *kernel) {
  return check_status(rank, rank->what->steps[step].call(rank->work, set, kernel), rank->what->steps[step].op);
}

// Every set once, as the library chooses. What the outputs are then is what they must be after each replay.
static bool call_eagerly(Rank *rank) {
  bool well = poison_outputs(rank) && read_checksums(rank, rank->poison);
  for (int set = 0; set < rank->work->sets && well; ++set)
    for (int step = 0; step < rank->what->num_steps && well; ++step) well = call_step(rank, step, set, NULL);
  if (!well || !read_checksums(rank, rank->eager)) return false;
  for (int set = 0; set < rank->work->sets; ++set)
    if (rank->eager[set] == rank->poison[set]) return say(rank, "results", "an eager call wrote nothing"), false;
  return true;
}

static size_t bytes_of_copy(const Rank *rank, int step) {
  Cost cost = rank->what->steps[step].cost(rank->work);
  return ((size_t)cost.memory_bytes / 2 + 15) / 16 * 16;
}

static bool call_copy(Rank *rank, int step, int set) {
  unsigned char *to = rank->copied + (size_t)set * rank->copied_bytes;
  return check_cuda(rank, device_copy(to, to + rank->copied_bytes / 2, bytes_of_copy(rank, step), 0, rank->work->stream), "copy");
}

static bool call_variant(Rank *rank, Variant variant, int step, int set) {
  return variant == BENCH_COPY ? call_copy(rank, step, set) : call_step(rank, step, set, rank->chains[variant].kernels[step]);
}

static bool record_event(Rank *rank, cudaEvent_t event) {
  return check_cuda(rank, cudaEventRecordWithFlags(event, rank->work->stream, cudaEventRecordExternal), "capture of an event");
}

static bool call_chain(Rank *rank, Variant variant) {
  Chain *chain = &rank->chains[variant];
  int steps = rank->what->num_steps, event = 0;
  for (int step = 0; step < steps; ++step)
    if (!call_variant(rank, variant, step, rank->work->sets - 1)) return false;
  if (!record_event(rank, chain->events[event++])) return false;
  for (int call = 0; call < rank->calls; ++call)
    for (int step = 0; step < steps; ++step) {
      if (!call_variant(rank, variant, step, call % rank->work->sets)) return false;
      if (steps > 1 && !record_event(rank, chain->events[event++])) return false;
    }
  return steps > 1 || record_event(rank, chain->events[event]);
}

static bool capture_chain(Rank *rank, Variant variant) {
  Chain *chain = &rank->chains[variant];
  cudaGraph_t graph = NULL;
  for (int i = 0; i <= MAX_CALLS * MAX_STEPS; ++i)
    if (!check_cuda(rank, cudaEventCreate(&chain->events[i]), "events")) return false;
  if (!check_cuda(rank, cudaStreamBeginCapture(rank->work->stream, cudaStreamCaptureModeThreadLocal), "capture")) return false;
  bool well = call_chain(rank, variant);
  well &= check_cuda(rank, cudaStreamEndCapture(rank->work->stream, &graph), "capture");
  if (well) well = check_cuda(rank, cudaGraphInstantiate(&chain->graph, graph, 0), "capture");
  if (graph) cudaGraphDestroy(graph);
  return well;
}

static bool find_generic_kernels(Rank *rank, Chain *chain) {
  for (int step = 0; step < rank->what->num_steps; ++step) {
    char key[128];
    snprintf(key, sizeof key, "%s/sm_90a/%s", rank->what->steps[step].op, rank->what->dtype);
    if (!check_status(rank, moert_kernel_find(key, &chain->kernels[step]), key)) return false;
  }
  return true;
}

//===--- replays ------------------------------------------------------------------------------------===//

static bool read_interval(Rank *rank, const Chain *chain, int first, double *us) {
  float ms = 0;
  bool well = check_cuda(rank, cudaEventElapsedTime(&ms, chain->events[first], chain->events[first + 1]), "times");
  *us += 1e3 * (double)ms / rank->calls;
  return well;
}

static bool read_times(Rank *rank, const Chain *chain, double us[MAX_STEPS]) {
  int steps = rank->what->num_steps, intervals = steps > 1 ? steps * rank->calls : 1;
  bool well = true;
  for (int i = 0; i < intervals && well; ++i) well = read_interval(rank, chain, i, &us[i % steps]);
  return well;
}

static bool launch(Rank *rank, const Chain *chain) {
  Work *work = rank->work;
  return check_cuda(rank, cudaMemsetAsync(rank->cache, 0, CACHE_BYTES, work->stream), "replay") &&
         check_cuda(rank, cudaGraphLaunch(chain->graph, work->stream), "replay");
}

// Whoever fails says so and comes to the meetings all the same.
static void replay(Rank *rank, int number, Variant variant) {
  Team *team = rank->team;
  Chain *chain = &rank->chains[variant];
  double us[MAX_STEPS] = {0};
  if (!all_are_well(rank)) return;
  bool well = launch(rank, chain) && check_status(rank, moert_context_synchronize(rank->work->context), "replay");
  if (!well || number < 0 || !read_times(rank, chain, us)) return;
  for (int step = 0; step < rank->what->num_steps; ++step) team->us[number][variant][step][rank->work->rank] = us[step];
}

static bool check_replays(Rank *rank) {
  for (Variant variant = BENCH_LIBRARY; variant < BENCH_COPY; ++variant) {
    if (!rank->is_measured[variant]) continue;
    bool well = poison_outputs(rank);
    if (!all_are_well(rank)) return false;
    well = well && launch(rank, &rank->chains[variant]) && read_checksums(rank, rank->replayed);
    for (int set = 0; set < rank->work->sets && well; ++set)
      if (rank->replayed[set] != rank->eager[set]) {
        say(rank, "results",
            variant == BENCH_GENERIC ? "a replay of the generic kernel differs from the eager call" : "a replay differs from the eager call");
        well = false;
      }
    if (!all_are_well(rank)) return false;
  }
  return true;
}

//===--- records ------------------------------------------------------------------------------------===//

static int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

// Of the replays' times, that of each its slowest rank's.
static void sort_times(const Team *team, Variant variant, int step, double *times) {
  for (int i = 0; i < team->options->replays; ++i) {
    times[i] = 0;
    for (int32_t rank = 0; rank < team->ranks; ++rank)
      if (team->us[i][variant][step][rank] > times[i]) times[i] = team->us[i][variant][step][rank];
  }
  qsort(times, (size_t)team->options->replays, sizeof *times, compare_numbers);
}

static double larger(double a, double b) { return a > b ? a : b; }

static double floor_of(const Cost *cost) {
  const Ceilings *most = &reference_ceilings;
  double link = (double)cost->link_bytes / most->link_gbs * 1e-3, memory = (double)cost->memory_bytes / most->memory_gbs * 1e-3;
  double matrix = (double)cost->flops / most->matrix_tflops * 1e-6;
  return larger(link, larger(memory, matrix)) + cost->hops * most->flag_us / 2 + most->node_us;
}

static Cost step_cost(const Work *work, const Step *step) {
  Cost cost = step->cost(work);
  if (work->ranks == 1) cost.hops = 0;
  return cost;
}

static void tell(Rank *rank, int step) {
  const Team *team = rank->team;
  int replays = team->options->replays;
  double times[MAX_REPLAYS];
  Record record = {.what = rank->what, .step = &rank->what->steps[step], .ranks = team->ranks, .tokens = rank->work->tokens};
  for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant) {
    if (!rank->is_measured[variant]) continue;
    sort_times(team, variant, step, times);
    record.us[variant] = times[replays / 2];
    if (variant != BENCH_LIBRARY) continue;
    record.p10 = times[replays / 10];
    record.p90 = times[replays * 9 / 10];
  }
  record.cost = step_cost(rank->work, record.step);
  record.floor_us = floor_of(&record.cost);
  team->done(team->user, &record);
}

//===--- cases --------------------------------------------------------------------------------------===//

// Some calls, every set as often, a few milliseconds at most.
static int choose_calls(const Rank *rank) {
  double us = 0;
  for (int step = 0; step < rank->what->num_steps; ++step) {
    Cost cost = step_cost(rank->work, &rank->what->steps[step]);
    us += floor_of(&cost);
  }
  int calls = rank->work->sets;
  while (calls < CHAIN_CALLS && (double)calls * us < CHAIN_US) calls += rank->work->sets;
  return calls;
}

static void open_copies(Rank *rank) {
  for (int step = 0; step < rank->what->num_steps; ++step)
    if (2 * bytes_of_copy(rank, step) > rank->copied_bytes) rank->copied_bytes = 2 * bytes_of_copy(rank, step);
  check_cuda(rank, cudaMalloc((void **)&rank->copied, (size_t)rank->work->sets * rank->copied_bytes), "memory");
}

static void choose_variants(Rank *rank) {
  const Options *options = rank->team->options;
  rank->is_measured[BENCH_LIBRARY] = true;
  rank->is_measured[BENCH_GENERIC] = options->compare_generic;
  rank->is_measured[BENCH_COPY] = options->bench->copies;
  if (rank->is_measured[BENCH_GENERIC]) find_generic_kernels(rank, &rank->chains[BENCH_GENERIC]);
  if (rank->is_measured[BENCH_COPY]) open_copies(rank);
}

static void measure_captured(Rank *rank) {
  const Options *options = rank->team->options;
  rank->calls = decide(rank, choose_calls);
  choose_variants(rank);
  if (!all_are_well(rank)) return;
  for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant) {
    if (rank->is_measured[variant]) capture_chain(rank, variant);
    if (!all_are_well(rank)) return;
  }
  for (int number = -WARM_REPLAYS; number < options->replays; ++number)
    for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant)
      if (rank->is_measured[variant]) replay(rank, number, variant);
  if (!all_are_well(rank) || !check_replays(rank) || rank->work->rank != 0) return;
  for (int step = 0; step < rank->what->num_steps; ++step)
    if (options_name(options, rank->what->steps[step].name)) tell(rank, step);
}

static void free_chains(Rank *rank) {
  for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant) {
    Chain *chain = &rank->chains[variant];
    if (chain->graph) cudaGraphExecDestroy(chain->graph);
    for (int i = 0; i <= MAX_CALLS * MAX_STEPS; ++i)
      if (chain->events[i]) cudaEventDestroy(chain->events[i]);
    memset(chain, 0, sizeof *chain);
  }
  cudaFree(rank->copied);
  rank->copied = NULL;
  rank->copied_bytes = 0;
}

static void measure_opened(Rank *rank) {
  fill_sets(rank, decide(rank, choose_sets));
  if (!all_are_well(rank)) return;
  call_eagerly(rank);
  if (all_are_well(rank)) measure_captured(rank);
}

static void measure_case(Rank *rank, int64_t tokens) {
  Work *work = rank->work;
  memset(work->buffers, 0, sizeof work->buffers);
  memset(work->counters, 0, sizeof work->counters);
  work->slab = NULL;
  work->what = rank->what;
  work->shape = rank->what->shape;
  work->tokens = tokens;
  open_work(rank);
  if (all_are_well(rank)) measure_opened(rank);
  cudaStreamSynchronize(work->stream);
  bool well = all_are_well(rank);
  if (work->rank == 0 && !well) atomic_store(&rank->team->any_failed, true);
  if (work->rank == 0) atomic_store(&rank->team->failed, false);
  pthread_barrier_wait(&rank->team->barrier);
  free_chains(rank);
  work_close(work);
}

static bool names_case(const Options *options, const Case *what) {
  bool named = false;
  for (int step = 0; step < what->num_steps; ++step) named |= options_name(options, what->steps[step].name);
  return named;
}

static void measure_tokens(Rank *rank) {
  const Options *options = rank->team->options;
  int count = rank->what->tokens ? 1 : options->num_tokens;
  for (int i = 0; i < count && !atomic_load(&rank->team->broken); ++i) {
    measure_case(rank, rank->what->tokens ? rank->what->tokens : options->tokens[i]);
    all_are_well(rank); // `broken` is the same for all
  }
}

//===--- ranks --------------------------------------------------------------------------------------===//

static bool open_rank(Rank *rank) {
  Work *work = rank->work;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = TIMEOUT_MS;
  if (!check_cuda(rank, cudaSetDevice(moert_comm_device(work->comm).id), "device")) return false;
  if (!check_status(rank, moert_context_create(work->comm, &options, &work->context), "context")) return false;
  work->stream = moert_context_stream(work->context);
  return check_cuda(rank, cudaMalloc(&rank->cache, CACHE_BYTES), "memory") &&
         check_cuda(rank, cudaMalloc((void **)&rank->sums, MAX_SETS * sizeof *rank->sums), "memory");
}

static void *run_rank(void *data) {
  Rank *rank = data;
  const Options *options = rank->team->options;
  rank->what = options->cases;
  open_rank(rank);
  bool well = all_are_well(rank);
  if (!well) atomic_store(&rank->team->any_failed, true);
  for (int i = 0; i < options->num_cases && well; ++i) {
    rank->what = &options->cases[i];
    if (names_case(options, rank->what)) measure_tokens(rank);
  }
  cudaFree(rank->cache);
  cudaFree(rank->sums);
  moert_context_destroy(rank->work->context);
  return NULL;
}

// Without one rank the others would wait for it.
static void start_rank(Rank *rank) {
  if (pthread_create(&rank->thread, NULL, run_rank, rank) == 0) return;
  fprintf(stderr, "moe-bench: no thread for rank %d\n", rank->work->rank);
  exit(BENCH_FAILED);
}

static bool run_ranks(Team *team) {
  Rank *ranks = calloc((size_t)team->ranks, sizeof *ranks);
  Work *works = calloc((size_t)team->ranks, sizeof *works);
  bool made = ranks && works;
  for (int32_t r = 0; r < team->ranks && made; ++r) {
    works[r].comm = team->comms[r];
    works[r].rank = r;
    works[r].ranks = team->ranks;
    ranks[r].team = team;
    ranks[r].work = &works[r];
  }
  for (int32_t r = 0; r < team->ranks && made; ++r) start_rank(&ranks[r]);
  for (int32_t r = 0; r < team->ranks && made; ++r) pthread_join(ranks[r].thread, NULL);
  free(ranks);
  free(works);
  return made;
}

Exit measure_all(const Options *options, int num_gpus, void (*done)(void *user, const Record *record), void *user) {
  Team *team = calloc(1, sizeof *team);
  moert_comm_options devices = MOERT_COMM_OPTIONS_INIT;
  if (!team) return BENCH_FAILED;
  devices.device_type = MOERT_DEVICE_CUDA;
  team->options = options;
  team->ranks = options->ranks ? options->ranks : num_gpus;
  team->done = done;
  team->user = user;
  if (moert_comm_create_threads(team->ranks, &devices, team->comms)) {
    fprintf(stderr, "moe-bench: %s\n", moert_last_error());
    free(team);
    return BENCH_FAILED;
  }
  pthread_barrier_init(&team->barrier, NULL, (unsigned)team->ranks);
  bool well = run_ranks(team) && !atomic_load(&team->any_failed);
  pthread_barrier_destroy(&team->barrier);
  for (int32_t r = 0; r < team->ranks; ++r) moert_comm_destroy(team->comms[r]);
  free(team);
  return well ? BENCH_OK : BENCH_FAILED;
}

//===- measure.c - cases under graph replay, on all ranks ---------------------------------------------===//
//
// A rank is a thread. It captures a chain of calls with its operands in turn, and event records between them, in a graph for each variant; replays
// of the variants alternate. Before a replay the cache is filled with other memory, and all ranks meet. The first call of a chain is not timed: it
// brings the ranks together. What a step took in a replay is the mean over the chain, of all ranks the slowest. A copy beside an op is a chain like
// the op's, of kernels that copy as many bytes.
//
//===----------------------------------------------------------------------------------------------===//

#include "device.h"
#include "team.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_REPLAYS = 2, MAX_CALLS = 32, CHAIN_CALLS = 8, CHAIN_US = 2000, POISON = 0xcb };
static const size_t CACHE_BYTES = (size_t)192 << 20, SETS_BYTES = (size_t)256 << 20, MOST_BYTES = (size_t)24 << 30;

// What the ranks share.
typedef struct Times {
  const Ceilings *measured;
  double us[MAX_REPLAYS][MAX_VARIANTS][MAX_STEPS][MOERT_MAX_RANKS];
  void (*done)(void *user, const Record *record);
  void *user;
} Times;

// A graph of `calls` calls, with an event before and behind each step of each.
typedef struct Chain {
  cudaGraphExec_t graph;
  cudaEvent_t events[MAX_CALLS * MAX_STEPS + 1];
  moert_kernel *kernels[MAX_STEPS];
} Chain;

// One rank and what it measures now.
typedef struct Rank {
  Member *member;
  Team *team;
  Work *work;
  Times *times;
  int calls;
  bool is_measured[MAX_VARIANTS];
  Chain chains[MAX_VARIANTS];
  unsigned char *copied; // memory of copies, copied_bytes for each set: from the second half to the first
  size_t copied_bytes;
  void *cache;              // memory that takes the operands' place in the cache
  unsigned long long *sums; // one of each set, in device memory
  unsigned long long eager[MAX_SETS], replayed[MAX_SETS], poison[MAX_SETS];
} Rank;

//===--- operands -----------------------------------------------------------------------------------===//

static size_t set_bytes(const Work *work) {
  size_t bytes = 0;
  for (int slot = 0; slot < MAX_BUFFERS; ++slot) bytes += work->buffers[0][slot].bytes;
  return bytes;
}

// What calls read and write of a set: of weights perhaps those of few experts. Of exchanges the set stands for what comes and goes.
static size_t touched_bytes(const Work *work) {
  const size_t all = set_bytes(work);
  size_t touched = 0;
  for (int step = 0; step < work->what->num_steps; ++step) {
    const Cost cost = work->what->steps[step].cost(work);
    if (cost.link_bytes > 0) return all;
    touched += (size_t)cost.memory_bytes;
  }
  return touched < all ? touched : all;
}

// Enough sets that what is touched of them does not fit in the cache together, as far as there is memory.
static int choose_sets(const Member *member) {
  const size_t bytes = set_bytes(member->work), touched = touched_bytes(member->work);
  int sets = 1;
  while (sets < MAX_SETS && (sets < 2 || (size_t)sets * touched < SETS_BYTES) && (size_t)(sets + 1) * bytes <= MOST_BYTES) ++sets;
  return sets;
}

static bool poison_outputs(Rank *rank) {
  Work *work = rank->work;
  for (int set = 0; set < work->sets; ++set)
    for (int slot = 0; slot < MAX_BUFFERS; ++slot) {
      Buffer *buffer = &work->buffers[set][slot];
      if (!buffer->is_output || buffer->bytes == 0) continue;
      if (!member_check_cuda(rank->member, cudaMemsetAsync(buffer->tensor.data, POISON, buffer->bytes, work->stream), "poison")) return false;
    }
  return true;
}

// Of the outputs of each set.
static bool read_checksums(Rank *rank, unsigned long long *sums) {
  Work *work = rank->work;
  bool well = member_check_cuda(rank->member, cudaMemsetAsync(rank->sums, 0, MAX_SETS * sizeof *sums, work->stream), "checksums");
  for (int set = 0; set < work->sets && well; ++set)
    for (int slot = 0; slot < MAX_BUFFERS && well; ++slot) {
      Buffer *buffer = &work->buffers[set][slot];
      if (!buffer->is_output || buffer->bytes == 0) continue;
      well = member_check_cuda(rank->member, device_checksum(buffer->tensor.data, buffer->bytes, &rank->sums[set], work->stream), "checksums");
    }
  if (well) well = member_check(rank->member, moert_context_synchronize(work->context), "checksums");
  return well && member_check_cuda(rank->member, cudaMemcpy(sums, rank->sums, MAX_SETS * sizeof *sums, cudaMemcpyDeviceToHost), "checksums");
}

//===--- calls --------------------------------------------------------------------------------------===//

static bool call_step(Rank *rank, int step, int set, moert_kernel *kernel) {
  return member_check(rank->member, rank->work->what->steps[step].call(rank->work, set, kernel), rank->work->what->steps[step].op);
}

// Every set once, as the library chooses. What the outputs are then is what they must be after each replay.
static bool call_eagerly(Rank *rank) {
  bool well = poison_outputs(rank) && read_checksums(rank, rank->poison);
  for (int set = 0; set < rank->work->sets && well; ++set)
    for (int step = 0; step < rank->work->what->num_steps && well; ++step) well = call_step(rank, step, set, NULL);
  if (!well || !read_checksums(rank, rank->eager)) return false;
  for (int set = 0; set < rank->work->sets; ++set)
    if (rank->eager[set] == rank->poison[set]) return member_say(rank->member, "results", "an eager call wrote nothing"), false;
  return true;
}

static bool check_eager(Rank *rank) {
  const Bench *bench = rank->team->options->bench;
  for (int set = 0; set < rank->work->sets && bench->check; ++set)
    if (!bench->check(rank->work, set)) return member_say(rank->member, "results", "an eager call differs from the reference"), false;
  return true;
}

static size_t bytes_of_copy(const Rank *rank, int step) {
  Cost cost = rank->work->what->steps[step].cost(rank->work);
  return ((size_t)cost.memory_bytes / 2 + 15) / 16 * 16;
}

static bool call_copy(Rank *rank, int step, int set) {
  unsigned char *to = rank->copied + (size_t)set * rank->copied_bytes;
  return member_check_cuda(rank->member, device_copy(to, to + rank->copied_bytes / 2, bytes_of_copy(rank, step), 0, rank->work->stream), "copy");
}

static bool call_variant(Rank *rank, Variant variant, int step, int set) {
  return variant == BENCH_COPY ? call_copy(rank, step, set) : call_step(rank, step, set, rank->chains[variant].kernels[step]);
}

static bool record_event(Rank *rank, cudaEvent_t event) {
  return member_check_cuda(rank->member, cudaEventRecordWithFlags(event, rank->work->stream, cudaEventRecordExternal), "capture of an event");
}

static bool call_chain(Rank *rank, Variant variant) {
  Chain *chain = &rank->chains[variant];
  int steps = rank->work->what->num_steps, event = 0;
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
    if (!member_check_cuda(rank->member, cudaEventCreate(&chain->events[i]), "events")) return false;
  if (!member_check_cuda(rank->member, cudaStreamBeginCapture(rank->work->stream, cudaStreamCaptureModeThreadLocal), "capture")) return false;
  bool well = call_chain(rank, variant);
  well &= member_check_cuda(rank->member, cudaStreamEndCapture(rank->work->stream, &graph), "capture");
  if (well) well = member_check_cuda(rank->member, cudaGraphInstantiate(&chain->graph, graph, 0), "capture");
  if (graph) cudaGraphDestroy(graph);
  return well;
}

// In a key: where the case is one of weights of 4 bits, the type of the first operand.
static const char *key_dtype(const Work *work) {
  const char *dtype = work->what->dtype;
  if (strcmp(dtype, "nvfp4") != 0 && strcmp(dtype, "mxfp4") != 0) return dtype;
  return work->buffers[0][0].tensor.dtype.code == MOERT_CODE_BFLOAT ? "bf16" : "ui8";
}

static bool find_generic_kernels(Rank *rank, Chain *chain) {
  for (int step = 0; step < rank->work->what->num_steps; ++step) {
    char key[128];
    snprintf(key, sizeof key, "%s/sm_90a/%s", rank->work->what->steps[step].op, key_dtype(rank->work));
    if (!member_check(rank->member, moert_kernel_find(key, &chain->kernels[step]), key)) return false;
  }
  return true;
}

//===--- replays ------------------------------------------------------------------------------------===//

static bool read_interval(Rank *rank, const Chain *chain, int first, double *us) {
  float ms = 0;
  bool well = member_check_cuda(rank->member, cudaEventElapsedTime(&ms, chain->events[first], chain->events[first + 1]), "times");
  *us += 1e3 * (double)ms / rank->calls;
  return well;
}

static bool read_times(Rank *rank, const Chain *chain, double us[MAX_STEPS]) {
  int steps = rank->work->what->num_steps, intervals = steps > 1 ? steps * rank->calls : 1;
  bool well = true;
  for (int i = 0; i < intervals && well; ++i) well = read_interval(rank, chain, i, &us[i % steps]);
  return well;
}

static bool launch(Rank *rank, const Chain *chain) {
  Work *work = rank->work;
  return member_check_cuda(rank->member, cudaMemsetAsync(rank->cache, 0, CACHE_BYTES, work->stream), "replay") &&
         member_check_cuda(rank->member, cudaGraphLaunch(chain->graph, work->stream), "replay");
}

// Whoever fails says so and comes to the meetings all the same.
static void replay(Rank *rank, int number, Variant variant) {
  Chain *chain = &rank->chains[variant];
  double us[MAX_STEPS] = {0};
  if (!members_are_well(rank->member)) return;
  bool well = launch(rank, chain) && member_check(rank->member, moert_context_synchronize(rank->work->context), "replay");
  if (!well || number < 0 || !read_times(rank, chain, us)) return;
  for (int step = 0; step < rank->work->what->num_steps; ++step) rank->times->us[number][variant][step][rank->work->rank] = us[step];
}

static bool check_replays(Rank *rank) {
  for (Variant variant = BENCH_LIBRARY; variant < BENCH_COPY; ++variant) {
    if (!rank->is_measured[variant]) continue;
    bool well = poison_outputs(rank);
    if (!members_are_well(rank->member)) return false;
    well = well && launch(rank, &rank->chains[variant]) && read_checksums(rank, rank->replayed);
    for (int set = 0; set < rank->work->sets && well; ++set)
      if (rank->replayed[set] != rank->eager[set]) {
        member_say(rank->member, "results",
                   variant == BENCH_GENERIC ? "a replay of the generic kernel differs from the eager call" : "a replay differs from the eager call");
        well = false;
      }
    if (!members_are_well(rank->member)) return false;
  }
  return true;
}

//===--- records ------------------------------------------------------------------------------------===//

// Of the replays' times, that of each its slowest rank's.
static void collect_times(const Rank *rank, Variant variant, int step, double *times) {
  for (int i = 0; i < rank->team->options->replays; ++i) {
    times[i] = 0;
    for (int32_t r = 0; r < rank->team->ranks; ++r)
      if (rank->times->us[i][variant][step][r] > times[i]) times[i] = rank->times->us[i][variant][step][r];
  }
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
  Record record = {
      .what = rank->work->what, .step = &rank->work->what->steps[step], .ranks = team->ranks, .tokens = rank->work->tokens, .how = "graph"};
  for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant) {
    if (!rank->is_measured[variant]) continue;
    collect_times(rank, variant, step, times);
    record.us[variant] = sorted_part(times, replays, 0.5);
    if (variant != BENCH_LIBRARY) continue;
    record.p10 = sorted_part(times, replays, 0.1);
    record.p90 = sorted_part(times, replays, 0.9);
  }
  record.cost = step_cost(rank->work, record.step);
  record.floor_us = floor_of(&record.cost);
  if (team->options->bench->judge) team->options->bench->judge(rank->work, rank->times->measured, &record);
  rank->times->done(rank->times->user, &record);
}

//===--- cases --------------------------------------------------------------------------------------===//

// Some calls, every set as often, a few milliseconds at most.
static int choose_calls(const Member *member) {
  const Work *work = member->work;
  double us = 0;
  for (int step = 0; step < work->what->num_steps; ++step) {
    Cost cost = step_cost(work, &work->what->steps[step]);
    us += floor_of(&cost);
  }
  int calls = work->sets;
  while (calls < CHAIN_CALLS && (double)calls * us < CHAIN_US) calls += work->sets;
  return calls;
}

static void open_copies(Rank *rank) {
  for (int step = 0; step < rank->work->what->num_steps; ++step)
    if (2 * bytes_of_copy(rank, step) > rank->copied_bytes) rank->copied_bytes = 2 * bytes_of_copy(rank, step);
  member_check_cuda(rank->member, cudaMalloc((void **)&rank->copied, (size_t)rank->work->sets * rank->copied_bytes), "memory");
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
  rank->calls = members_decide(rank->member, choose_calls);
  choose_variants(rank);
  if (!members_are_well(rank->member)) return;
  for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant) {
    if (rank->is_measured[variant]) capture_chain(rank, variant);
    if (!members_are_well(rank->member)) return;
  }
  for (int number = -WARM_REPLAYS; number < options->replays; ++number)
    for (Variant variant = BENCH_LIBRARY; variant < MAX_VARIANTS; ++variant)
      if (rank->is_measured[variant]) replay(rank, number, variant);
  if (!members_are_well(rank->member) || !check_replays(rank) || rank->work->rank != 0) return;
  for (int step = 0; step < rank->work->what->num_steps; ++step)
    if (options_name(options, rank->work->what->steps[step].name)) tell(rank, step);
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
  member_fill_sets(rank->member, members_decide(rank->member, choose_sets));
  if (!members_are_well(rank->member)) return;
  if (call_eagerly(rank)) check_eager(rank);
  if (members_are_well(rank->member)) measure_captured(rank);
}

static void measure(Member *member) {
  measure_opened(member->own);
  cudaStreamSynchronize(member->work->stream);
  free_chains(member->own);
}

//===--- ranks --------------------------------------------------------------------------------------===//

static void begin(Member *member) {
  Rank *rank = member->own = calloc(1, sizeof *rank);
  if (!member_check_memory(member, rank)) return;
  *rank = (Rank){.member = member, .team = member->team, .work = member->work, .times = member->team->shared};
  if (member_check_cuda(member, cudaMalloc(&rank->cache, CACHE_BYTES), "memory"))
    member_check_cuda(member, cudaMalloc((void **)&rank->sums, MAX_SETS * sizeof *rank->sums), "memory");
}

static void end(Member *member) {
  Rank *rank = member->own;
  if (!rank) return;
  cudaFree(rank->cache);
  cudaFree(rank->sums);
  free(rank);
}

Exit measure_ops(const Options *options, const Ceilings *measured, int num_gpus, void (*done)(void *user, const Record *record), void *user) {
  static const Procedure procedure = {begin, measure, end};
  Times *times = calloc(1, sizeof *times);
  if (!times) return BENCH_FAILED;
  times->measured = measured; // for goals; floors are those of the reference, so that runs can be compared
  times->done = done;
  times->user = user;
  Exit exit = team_run(options, num_gpus, &procedure, times);
  free(times);
  return exit;
}

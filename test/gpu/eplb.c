//===- eplb.c - statistics that travel with moe.dispatch on GPUs ----------------------------------------===//
//
// Every rank must get the numbers of all ranks that live, in memory of its own and in its slab, with the bits of the host backend; and what a
// dispatch does else must not change.
//
//===----------------------------------------------------------------------------------------------===//

#include "exchange.h"
#include <stdatomic.h>
#include <time.h>

// The deadline of what must fail, and of what must not.
enum { DEADLINE_MS = 300, PATIENCE_MS = 20000 };

typedef struct Case {
  exchange_case what;
  int64_t count, room; // of statistics: the most that a round has, and what the workspace has room for
  atomic_int through;  // ranks that are through with a scene that leaves one out
} Case;

typedef struct Layer {
  exchange_layer exchange;
  exchange_operand stats, gathered;
  int64_t count;
} Layer;

//===--- a round ----------------------------------------------------------------------------------===//

// The following dispatches have `count` numbers; 0: none.
static void set_count(Layer *l, int64_t count) {
  moert_moe_dispatch_args *args = &l->exchange.dispatch_args;
  l->count = count;
  args->eplb_local_stats = count ? exchange_set(&l->stats, 1, count, 0) : NULL;
  args->eplb_gathered_stats = count ? exchange_set(&l->gathered, 2, l->exchange.rank->size, count) : NULL;
}

static void open_layer(Layer *l, gpu_rank *rank, const Case *what) {
  exchange_open_for(&l->exchange, rank, &what->what, 0, what->room);
  l->stats.memory = gpu_new(rank, "i32", 1, what->count);
  l->gathered.memory = gpu_new(rank, "i32", 1, rank->size * what->count);
  set_count(l, what->count);
}

// New inputs of all kinds.
static void fill(Layer *l) {
  exchange_fill(&l->exchange);
  for (int64_t i = 0; i < l->stats.memory->count; ++i) gpu_set(l->stats.memory, i, (int32_t)gpu_random_bits(l->exchange.rank));
  gpu_upload(l->stats.memory);
  gpu_fill(l->gathered.memory, GPU_POISON);
}

static void check_stats(Layer *l) {
  gpu_result("gathered statistics", l->gathered.memory);
  exchange_region_result(&l->exchange, "region of statistics", MOERT_METAINFO_EPLB_GATHERED_STATS, "i32", l->exchange.rank->size * l->exchange.stats);
}

static bool check_dispatch(Layer *l, int64_t tokens, int64_t most) {
  exchange_shape(&l->exchange, tokens, most);
  fill(l);
  if (!CHECK_OK(exchange_wait(&l->exchange, exchange_dispatch(&l->exchange)))) return false;
  check_stats(l);
  return true;
}

static void check_combine(Layer *l) {
  exchange_layer *exchange = &l->exchange;
  exchange_run_experts(exchange);
  if (CHECK_OK(exchange_wait(exchange, exchange_combine(exchange)))) gpu_result("out", exchange->out.memory);
}

static void check_round(Layer *l, int64_t tokens, int64_t most) {
  if (!check_dispatch(l, tokens, most)) return;
  exchange_dispatch_results(&l->exchange);
  check_combine(l);
}

//===--- rounds -----------------------------------------------------------------------------------===//

// All ranks have as many numbers: all there may be, one, none, or half of them.
static int64_t count_of(const Case *what, int64_t round) {
  const int64_t counts[] = {what->count, 1, 0, (what->count + 1) / 2};
  return counts[round % 4];
}

// In every third round no rank has a token, and in others some have none.
static int64_t tokens_of(const gpu_rank *rank, const Case *what, int64_t round) {
  if (round % 3 == 2) return 0;
  return (round + rank->rank) % 2 ? what->what.max_tokens : rank->rank / 2;
}

static void play(gpu_rank *rank) {
  const Case *what = rank->user;
  Layer l;
  open_layer(&l, rank, what);
  for (int64_t round = 0; round < what->what.rounds; ++round) {
    set_count(&l, count_of(what, round));
    check_round(&l, tokens_of(rank, what, round), what->what.max_tokens);
  }
  set_count(&l, what->count);
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.dispatch/sm_90a", &l.exchange.dispatch_kernel)); // the generic kernels
  check_round(&l, what->what.max_tokens, what->what.max_tokens);
}

//===--- replays ----------------------------------------------------------------------------------===//

// One capture, whose statistics, with all else, are rewritten between its replays.
static void replay(gpu_rank *rank) {
  const Case *what = rank->user;
  Layer l;
  cudaGraphExec_t executable = NULL;
  open_layer(&l, rank, what);
  exchange_shape(&l.exchange, rank->rank == 0 ? 0 : what->what.max_tokens, what->what.max_tokens);
  fill(&l);
  CHECK_OK(exchange_wait(&l.exchange, exchange_enqueue(&l.exchange)));
  if (rank->cuda) executable = exchange_capture(&l.exchange);
  for (int64_t i = 0; i < what->what.rounds; ++i) {
    fill(&l);
    if (!rank->cuda) CHECK_OK(exchange_enqueue(&l.exchange));
    if (executable) CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l.exchange.context)));
    CHECK_OK(moert_context_synchronize(l.exchange.context));
    check_stats(&l);
    gpu_result("out", l.exchange.out.memory);
    exchange_settle(rank); // who goes on writes to the others' regions
  }
  check_round(&l, what->what.max_tokens, what->what.max_tokens); // calls and replays may alternate
  if (executable) cudaGraphExecDestroy(executable);
}

//===--- failures ---------------------------------------------------------------------------------===//

// Whether the rows of ranks from `begin` to before `end` hold nothing but `value`.
static bool rows_are(Layer *l, int64_t begin, int64_t end, int32_t value) {
  gpu_download(l->gathered.memory);
  for (int64_t i = begin * l->count; i < end * l->count; ++i)
    if (gpu_get(l->gathered.memory, i) != value) return false;
  return true;
}

static uint64_t all_of(const gpu_rank *rank) { return (UINT64_C(1) << rank->size) - 1; }

// The last rank has another number of statistics, or none.
static void differ(gpu_rank *rank) {
  const Case *what = rank->user;
  for (int64_t other = 0; other < what->count; other += what->count - 1) {
    Layer l;
    open_layer(&l, rank, what);
    fill(&l);
    if (rank->rank == rank->size - 1) set_count(&l, other);
    CHECK_FAILS(exchange_wait(&l.exchange, exchange_dispatch(&l.exchange)), MOERT_ERROR_PEER_MISMATCH, NULL);
    CHECK(rows_are(&l, 0, rank->size, -1));
    CHECK_OK(moert_comm_recover(rank->comm, all_of(rank), 0));
    set_count(&l, what->count);
    check_round(&l, what->what.max_tokens, what->what.max_tokens);
  }
}

static void set_options(Layer *l, int64_t timeout_ms, const char *stop_phase) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  options.stop_op = stop_phase ? "moe.dispatch" : NULL;
  options.stop_phase = stop_phase;
  gpu_use_options(l->exchange.rank, &options);
  l->exchange.context = l->exchange.rank->context;
}

// The rank that is left out keeps what it has until the others are through: to free memory would wait for their kernels.
static void await_others(const gpu_rank *rank, Case *what) {
  const struct timespec pause = {0, 1000000};
  for (int waited_ms = 0; atomic_load(&what->through) < rank->size - 1; ++waited_ms) {
    if (!CHECK(waited_ms < 2 * PATIENCE_MS)) break;
    nanosleep(&pause, NULL);
  }
  atomic_store(&what->through, 0); // the next backend plays the same scene
}

// The last rank stops when it has sent its numbers; the others go on without it, and its row is 0 to them.
static void leave_one_out(gpu_rank *rank) {
  Case *what = rank->user;
  int odd = rank->size - 1;
  Layer l;
  open_layer(&l, rank, what);
  check_round(&l, what->what.max_tokens, what->what.max_tokens);
  set_options(&l, DEADLINE_MS, rank->rank == odd ? "flag" : NULL);
  fill(&l);
  exchange_settle(rank);
  moert_status status = exchange_wait(&l.exchange, exchange_dispatch(&l.exchange));
  CHECK(status == (rank->rank == odd ? MOERT_ERROR_STOPPED : MOERT_ERROR_PEER_TIMEOUT));
  if (rank->rank == odd) {
    moert_context_synchronize(l.exchange.context); // what was launched before has run: streams must be idle when ranks recover
    await_others(rank, what);
    return;
  }
  CHECK(rows_are(&l, 0, rank->size, -1));
  if (CHECK_OK(moert_comm_recover(rank->comm, all_of(rank) & ~(UINT64_C(1) << odd), 0))) {
    set_options(&l, PATIENCE_MS, NULL);
    exchange_settle(rank);
    const int64_t tokens[] = {what->what.max_tokens, 0};
    for (int i = 0; i < 2; ++i) // what the rank that is left out had sent of its failed round lies in the slab as the backend left it
      if (check_dispatch(&l, tokens[i], what->what.max_tokens)) check_combine(&l);
    CHECK(rows_are(&l, odd, rank->size, 0));
  }
  atomic_fetch_add(&what->through, 1);
}

//===--- all --------------------------------------------------------------------------------------===//

typedef struct Named {
  const char *name;
  Case what;
} Named;

// max_tokens, hidden, top_k, experts, dtype, out, grouped, in_place, ids, rounds, further, shift, special; count, room, through
static const Named cases[] = {
    {"a number of each expert", {{33, 64, 8, 64, "bf16", "bf16", false, false, IDS_ANY, 6, 1, 0, false}, 64, 64, 0}},
    {"one number", {{5, 32, 4, 16, "bf16", "f32", false, true, IDS_ANY, 6, 0, 0, false}, 1, 9, 0}},
    {"fewer numbers than experts", {{17, 24, 3, 301, "f16", "f32", false, false, IDS_WILD, 6, 0, 0, false}, 257, 301, 0}},
    {"one token", {{1, 16, 4, 700, "bf16", "f32", false, false, IDS_ANY, 6, 0, 0, false}, 700, 701, 0}},
    {"grouped", {{21, 64, 4, 40, "bf16", "f32", true, false, IDS_ANY, 6, 1, 0, false}, 40, 47, 0}},
    {"grouped, one number", {{9, 32, 8, 32, "f16", "f16", true, false, IDS_NONE, 6, 0, 0, false}, 1, 1, 0}},
    {"as many as there may be", {{8, 16, 2, 65536, "bf16", "f32", false, false, IDS_ANY, 3, 0, 0, false}, 65536, 65536, 0}}};

static void run_on(int32_t size, int32_t gpus) {
  size_t count = sizeof cases / sizeof *cases, step = gpu_extent() == GPU_SMALL ? 4 : 1;
  for (size_t i = 0; i < count; i += step) {
    Case what = cases[i].what;
    gpu_case("%s, %d ranks, %d GPUs", cases[i].name, size, gpus) gpu_both(size, gpus, play, &what);
  }
  Case flat = {{25, 64, 4, 128, "bf16", "bf16", false, false, IDS_WILD, 20, 1, 0, false}, 128, 130, 0};
  Case grouped = {{25, 64, 8, 40, "bf16", "f32", true, false, IDS_WILD, 20, 0, 0, false}, 40, 40, 0};
  if (gpu_extent() == GPU_SMALL) flat.what.rounds = grouped.what.rounds = 3;
  gpu_case("replays, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &flat);
  gpu_case("replays grouped, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, replay, &grouped);
  if (size == 1) return;
  gpu_case("ranks differ, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, differ, &flat);
  gpu_case("ranks differ grouped, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, differ, &grouped);
  gpu_case("a rank is left out, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, leave_one_out, size == 2 ? &flat : &grouped);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count();
  int32_t most = gpu_extent() == GPU_SMALL ? 2 : 4, step = gpu_extent() == GPU_FULL ? 1 : 2;
  run_on(1, 1);
  for (int32_t size = 2; size <= most; size += step) run_on(size, gpus);
  for (int32_t size = 2; size <= most && gpus > 1 && gpu_extent() == GPU_FULL; ++size) run_on(size, 1);
  return gpu_end();
}

//===- endurance.c - many rounds of dispatch and combine, of several at once, under all settings -------===//
//
// Rounds take turns with sets of inputs, which the device itself puts in place, and leave a checksum each: of all that they give. The host backend
// makes those of one turn.
//
//===----------------------------------------------------------------------------------------------===//

#include "endurance/kernels.h"
#include "exchange.h"
#include <stdio.h>
#include <time.h>

enum {
  MOST_INPUTS = 2 + EXCHANGE_PAYLOADS,
  MOST_OUTPUTS = 2 + EXCHANGE_PAYLOADS,
  MOST_QUEUED = 8 // rounds before the stream is waited for: a launch without room in its queue may hold up other ranks on the device
};

typedef struct Endurance {
  exchange_case what; // rounds: of a replay
  int64_t replays, sets;
  int64_t repeats;              // of a round before its checksum
  bool echoes;                  // experts return what they get, else rows made beforehand
  bool busy;                    // there is traffic on the links
  int32_t gpus;                 // that the ranks run on
  char *areas[MOERT_MAX_RANKS]; // of the traffic
} Endurance;

// A layer and its inputs.
typedef struct Stage {
  exchange_layer layer; // first, so that it stands for the stage
  const Endurance *what;
  cudaStream_t stream;
  exchange_operand *operands[MOST_INPUTS];
  gpu_buffer *inputs[MOST_INPUTS]; // their sets
  gpu_buffer *outputs[MOST_OUTPUTS];
  int num_inputs, num_outputs;
  gpu_buffer *round, *sums; // sums[round]
} Stage;

//===--- a round ----------------------------------------------------------------------------------===//

static int64_t words_of(const gpu_buffer *buffer) {
  CHECK(buffer->bytes % 4 == 0);
  return (int64_t)buffer->bytes / 4;
}

static void copy_set(const Stage *s, void *to, const void *sets, int64_t words, int64_t num_sets) {
  const uint64_t *round = s->round->tensor.data;
  if (s->layer.rank->cuda)
    CHECK_CUDA(endurance_copy(to, sets, words, num_sets, round, s->stream));
  else
    memcpy(to, (const uint32_t *)sets + words * (int64_t)(*round % (uint64_t)num_sets), (size_t)words * 4);
}

static void put_inputs(const Stage *s) {
  for (int i = 0; i < s->num_inputs; ++i) {
    gpu_buffer *memory = s->operands[i]->memory;
    copy_set(s, memory->tensor.data, s->inputs[i]->tensor.data, words_of(memory), s->what->sets);
  }
}

static void poison_outputs(const Stage *s) {
  for (int i = 0; i < s->num_outputs; ++i) {
    gpu_buffer *output = s->outputs[i];
    if (s->layer.rank->cuda)
      CHECK_CUDA(endurance_fill(output->tensor.data, GPU_POISON, words_of(output), s->stream));
    else
      memset(output->tensor.data, GPU_POISON, output->bytes);
  }
}

static void run_experts(const Stage *s) {
  const exchange_layer *l = &s->layer;
  int64_t area = l->rank->size * l->most * exchange_row_bytes(&l->what) / 4;
  if (s->what->echoes) copy_set(s, l->combined.data, l->recv_list[0].data, l->what.in_place ? area : words_of(l->recv[0].memory), 1);
}

static void add_hashes(uint64_t *sum, const uint32_t *words, int64_t count, uint64_t place) {
  for (int64_t i = 0; i < count; ++i) *sum += endurance_hash(place + (uint64_t)i, words[i]);
}

// And on to the next round.
static void sum_up(const Stage *s) {
  uint64_t *round = s->round->tensor.data, *sums = s->sums->tensor.data;
  for (int i = 0; i < s->num_outputs; ++i) {
    const uint32_t *words = s->outputs[i]->tensor.data;
    uint64_t place = (uint64_t)i << 40;
    if (s->layer.rank->cuda)
      CHECK_CUDA(endurance_add(sums, words, words_of(s->outputs[i]), place, round, s->stream));
    else
      add_hashes(&sums[*round], words, words_of(s->outputs[i]), place);
  }
  if (s->layer.rank->cuda)
    CHECK_CUDA(endurance_advance(round, s->stream));
  else
    ++*round;
}

static moert_status enqueue_round(Stage *s) {
  moert_status status = MOERT_OK;
  poison_outputs(s);
  put_inputs(s);
  for (int64_t i = 0; i < s->what->repeats && status == MOERT_OK; ++i) {
    status = exchange_dispatch(&s->layer);
    if (status == MOERT_OK) run_experts(s);
    if (status == MOERT_OK) status = exchange_combine(&s->layer);
  }
  sum_up(s);
  return status;
}

// The stage's replay.
static moert_status enqueue_rounds(exchange_layer *l) {
  Stage *s = (Stage *)l;
  moert_status status = MOERT_OK;
  for (int64_t i = 0; i < l->what.rounds && status == MOERT_OK; ++i) status = enqueue_round(s);
  return status;
}

//===--- stages -----------------------------------------------------------------------------------===//

static gpu_buffer *add_input(Stage *s, exchange_operand *operand, const char *dtype) {
  gpu_buffer *sets = gpu_new(s->layer.rank, dtype, 2, s->what->sets, operand->memory->count);
  s->operands[s->num_inputs] = operand;
  s->inputs[s->num_inputs++] = sets;
  return sets;
}

static void make_inputs(Stage *s) {
  exchange_layer *l = &s->layer;
  gpu_buffer *ids = add_input(s, &l->ids, "i32");
  for (int64_t i = 0; i < ids->count; ++i) gpu_set(ids, i, exchange_id(l, i % l->what.top_k));
  gpu_upload(ids);
  gpu_random(add_input(s, &l->weights, "f32"), 1);
  for (int64_t i = 0; i < l->num_payloads; ++i) exchange_random(l, add_input(s, &l->payloads[i], exchange_dtype(l, i)));
  exchange_random(l, l->result.memory);
}

static void list_outputs(Stage *s) {
  exchange_layer *l = &s->layer;
  s->outputs[s->num_outputs++] = l->out.memory;
  s->outputs[s->num_outputs++] = l->what.grouped ? l->offsets.memory : l->counts.memory;
  for (int64_t i = l->what.in_place; i < l->num_payloads; ++i) s->outputs[s->num_outputs++] = l->recv[i].memory;
}

// Collective. `context`: NULL for the rank's own; `num_sums`: of rounds.
static void open_stage(Stage *s, gpu_rank *rank, const Endurance *what, moert_context *context, int64_t num_sums) {
  *s = (Stage){.what = what};
  exchange_open(&s->layer, rank, &what->what, 0);
  s->round = gpu_new(rank, "ui64", 1, 1);
  s->sums = gpu_new(rank, "ui64", 1, num_sums);
  gpu_fill(s->round, 0);
  gpu_fill(s->sums, 0);
  make_inputs(s);
  list_outputs(s);
  CHECK_OK(moert_context_synchronize(rank->context)); // which all of that was put on
  if (context) s->layer.context = context;
  if (!rank->cuda) return;
  s->stream = moert_context_stream(s->layer.context);
  CHECK_CUDA(cudaSetDevice(moert_comm_device(rank->comm).id));
  CHECK_CUDA(endurance_preload());
}

//===--- traffic ----------------------------------------------------------------------------------===//

// Kernels that follow each other without a pause: one runs until the next is behind it.
typedef struct Traffic {
  endurance_link link;
  cudaStream_t stream;
  uint64_t *release, launched;
  gpu_buffer *moved;
  double begun;
} Traffic;

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool is_small(void) { return gpu_extent() == GPU_SMALL; }

// Collective. Of the ranks on a GPU the first has the traffic.
static bool open_traffic(Traffic *t, gpu_rank *rank, Endurance *what) {
  void *area = NULL, *release = NULL;
  *t = (Traffic){.link.bytes = is_small() ? 1 << 20 : 64 << 20};
  if (!CHECK_OK(moert_symmetric_alloc(rank->comm, (size_t)(3 * t->link.bytes), &area))) return false;
  what->areas[rank->rank] = area;
  exchange_settle(rank);
  if (rank->rank >= what->gpus) return false;
  t->moved = gpu_new(rank, "ui64", 1, 1);
  gpu_fill(t->moved, 0);
  if (!CHECK_CUDA(cudaHostAlloc(&release, sizeof(uint64_t), cudaHostAllocMapped))) return false;
  if (!CHECK_CUDA(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking))) return false;
  t->release = release;
  t->link = (endurance_link){area, what->areas[(rank->rank + 1) % what->gpus], t->link.bytes, release, t->moved->tensor.data};
  __atomic_store_n(t->release, 0, __ATOMIC_RELAXED);
  return true;
}

// More of it, in place of what runs. It ends by itself should the host fail to end it.
static void renew_traffic(Traffic *t) {
  const int64_t most_passes = is_small() ? 4 : 20000;
  if (t->launched == 0) t->begun = seconds();
  CHECK_CUDA(endurance_load_link(&t->link, t->launched + 1, most_passes, t->stream));
  __atomic_store_n(t->release, t->launched++, __ATOMIC_RELAXED);
}

static void end_traffic(Traffic *t, const gpu_rank *rank) {
  __atomic_store_n(t->release, t->launched, __ATOMIC_RELAXED);
  CHECK_CUDA(cudaStreamSynchronize(t->stream));
  double elapsed = seconds() - t->begun;
  gpu_download(t->moved);
  double rate = gpu_get(t->moved, 0) / elapsed * 1e-9;
  printf("  rank %d pushed and pulled %.0f GB/s beside its rounds\n", rank->rank, rate);
  CHECK(is_small() || rate > 100); // else the link was not under load
}

// When no rank waits for another: to free may wait for the device.
static void close_traffic(Traffic *t) {
  if (t->stream) cudaStreamDestroy(t->stream);
  if (t->release) cudaFreeHost(t->release);
}

//===--- replays ----------------------------------------------------------------------------------===//

// Each checksum is that of the first round with the same inputs, other inputs have another, and the host has the same.
static void check_turns(Stage *s) {
  gpu_download(s->sums);
  const uint64_t *sums = s->sums->host;
  int64_t sets = s->what->sets, different = 0, first = 0;
  for (int64_t i = s->sums->count; i-- > sets;)
    if (sums[i] != sums[i % sets]) ++different, first = i;
  gpu_check(different == 0, __FILE__, __LINE__,
            "rank %d: %lld of %lld rounds have other results than the first with the same inputs, the first: %lld", s->layer.rank->rank,
            (long long)different, (long long)s->sums->count, (long long)first);
  for (int64_t i = 1; i < sets; ++i) CHECK(sums[i] != sums[i - 1]);
  gpu_result_part("checksums", s->sums, sets);
}

static void replay(Stage *s, cudaGraphExec_t executable, Traffic *t) {
  int64_t most_queued = s->layer.what.rounds < MOST_QUEUED ? MOST_QUEUED / s->layer.what.rounds : 1;
  bool fails = false;
  for (int64_t i = 0; i < s->what->replays && !fails; ++i) {
    if (t) renew_traffic(t);
    fails = !CHECK_CUDA(cudaGraphLaunch(executable, s->stream));
    if ((i + 1) % most_queued == 0) fails |= !CHECK_OK(moert_context_synchronize(s->layer.context));
  }
  CHECK_OK(moert_context_synchronize(s->layer.context));
}

static void endure_on_device(Stage *s, Endurance *what) {
  gpu_rank *rank = s->layer.rank;
  Traffic t = {0};
  bool loads = what->busy && open_traffic(&t, rank, what);
  cudaGraphExec_t executable = exchange_capture_of(&s->layer, enqueue_rounds);
  if (executable) replay(s, executable, loads ? &t : NULL);
  if (loads) end_traffic(&t, rank);
  exchange_settle(rank);
  close_traffic(&t);
  if (executable) cudaGraphExecDestroy(executable);
}

static void endure(gpu_rank *rank) {
  Endurance *what = rank->user;
  Stage s;
  open_stage(&s, rank, what, NULL, rank->cuda ? what->replays * what->what.rounds : what->sets);
  int64_t most = what->what.max_tokens;
  exchange_shape(&s.layer, most - rank->rank % 3, most);
  if (rank->cuda)
    endure_on_device(&s, what);
  else
    for (int64_t i = 0; i < what->sets; ++i) CHECK_OK(enqueue_round(&s));
  check_turns(&s);
}

//===--- several at once --------------------------------------------------------------------------===//

enum { MOST_STAGES = 3 };

typedef struct Flow {
  Endurance what;
  int stages;
  int64_t max_sms; // of each
} Flow;

// R grows and shrinks, at another pace in each stage; it is the same on all ranks.
static int64_t most_tokens(const Endurance *what, int64_t round, int64_t pace) {
  int64_t period = 2 * (what->what.max_tokens - 1), at = round * pace % period;
  return 1 + (at < period / 2 ? at : period - at);
}

static void shape_round(Stage *s, int64_t round, int64_t pace) {
  int64_t most = most_tokens(s->what, round, pace);
  exchange_shape(&s->layer, gpu_random_below(s->layer.rank, most + 1), most);
}

// On devices every other rank has the stages in another order.
static void flow_round(Stage *stages, const Flow *flow, int64_t round) {
  const int64_t paces[MOST_STAGES] = {41, 73, 59};
  const gpu_rank *rank = stages[0].layer.rank;
  int count = flow->stages;
  for (int i = 0; i < count; ++i) shape_round(&stages[i], round, paces[i]);
  for (int i = 0; i < count; ++i) CHECK_OK(enqueue_round(&stages[rank->cuda && rank->rank % 2 ? count - 1 - i : i]));
  for (int i = 0; i < count && round % MOST_QUEUED == MOST_QUEUED - 1; ++i) CHECK_OK(moert_context_synchronize(stages[i].layer.context));
}

// Rank-major, grouped, in place: each with its workspace and stream.
static void play_at_once(gpu_rank *rank) {
  const Flow *flow = rank->user;
  Endurance of_stage[MOST_STAGES] = {flow->what, flow->what, flow->what};
  Stage stages[MOST_STAGES];
  moert_context *contexts[MOST_STAGES] = {NULL};
  of_stage[1].what.grouped = of_stage[2].what.in_place = true;
  for (int i = 0; i < flow->stages; ++i)
    if (!CHECK_OK(moert_context_create(rank->comm, NULL, &contexts[i]))) return;
  for (int i = 0; i < flow->stages; ++i) {
    open_stage(&stages[i], rank, &of_stage[i], contexts[i], flow->what.sets);
    stages[i].layer.dispatch_params.max_sms = stages[i].layer.combine_params.max_sms = flow->max_sms;
  }
  exchange_settle(rank);
  for (int64_t round = 0; round < flow->what.sets; ++round) flow_round(stages, flow, round);
  for (int i = 0; i < flow->stages; ++i) CHECK_OK(moert_context_synchronize(contexts[i]));
  exchange_settle(rank);
  for (int i = 0; i < flow->stages; ++i) gpu_result("checksums", stages[i].sums);
  for (int i = 0; i < flow->stages; ++i) moert_context_destroy(contexts[i]);
}

//===--- settings ---------------------------------------------------------------------------------===//

static const int64_t sms[] = {1, 2, 4, 12, 0};
enum { SMS = sizeof sms / sizeof *sms, SETTINGS = 2 * (SMS + 1) };

// With and without programmatic launches: as many multiprocessors on all ranks, or others on each and in each op.
static void choose_setting(exchange_layer *l, int64_t setting) {
  int64_t rank = l->rank->rank, chosen = setting / 2;
  l->dispatch_params.max_sms = sms[chosen < SMS ? chosen : rank % SMS];
  l->combine_params.max_sms = sms[chosen < SMS ? chosen : (rank + 2) % SMS];
  l->dispatch_params.enable_pdl = l->combine_params.enable_pdl = setting % 2 == 0;
}

static void try_settings(gpu_rank *rank) {
  const exchange_case *what = rank->user;
  cudaGraphExec_t captures[SETTINGS] = {NULL};
  exchange_layer l;
  exchange_open(&l, rank, what, 0);
  for (int64_t i = 0; i < SETTINGS; ++i) {
    int64_t most = what->max_tokens > 3 ? what->max_tokens - i % 3 : what->max_tokens;
    choose_setting(&l, i);
    exchange_check_round(&l, (i + rank->rank) % 4 == 0 ? 0 : gpu_random_below(rank, most + 1), most);
    if (!what->in_place) captures[i] = exchange_replay(&l, l.out.memory, NULL);
  }
  for (int64_t i = 0; i < SETTINGS; ++i)
    if (captures[i]) cudaGraphExecDestroy(captures[i]);
}

//===--- all --------------------------------------------------------------------------------------===//

static int64_t by_extent(int64_t small, int64_t quick, int64_t full) {
  return gpu_extent() == GPU_SMALL ? small : gpu_extent() == GPU_QUICK ? quick : full;
}

// max_tokens, hidden, top_k, experts, dtype, out, grouped, in_place, ids, rounds, further, shift, special
static const exchange_case flat = {48, 1024, 8, 32, "bf16", "bf16", false, false, IDS_ANY, 1, 2, 0, false};
static const exchange_case in_place = {48, 1024, 8, 32, "bf16", "f32", false, true, IDS_ANY, 1, 1, 0, false};
static const exchange_case grouped = {32, 512, 8, 32, "bf16", "bf16", true, false, IDS_ANY, 1, 1, 0, false};
static const exchange_case few = {8, 256, 4, 16, "bf16", "bf16", false, false, IDS_ANY, 1, 0, 0, false};
static const exchange_case few_grouped = {8, 256, 4, 16, "bf16", "bf16", true, false, IDS_ANY, 1, 0, 0, false};

static void run_replays(int32_t size, int32_t gpus, int64_t replays) {
  const struct {
    const char *name;
    const exchange_case *what;
  } all[] = {{"rank-major", &flat}, {"in place", &in_place}, {"grouped", &grouped}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    Endurance what = {.what = *all[i].what, .replays = replays, .sets = by_extent(4, 16, 64), .repeats = 1, .echoes = true, .gpus = gpus};
    gpu_case("%lld replays, %s, %d ranks, %d GPUs", (long long)replays, all[i].name, size, gpus) gpu_both(size, gpus, endure, &what);
  }
}

// A replay is `rounds` rounds of `repeats` exchanges.
static void run_busy(int32_t size, int32_t gpus, int64_t replays) {
  const exchange_case *const all[] = {&few, &few_grouped};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    Endurance what = {.what = *all[i], .replays = replays, .sets = by_extent(4, 16, 64), .repeats = by_extent(2, 10, 10), .busy = true, .gpus = gpus};
    what.what.rounds = by_extent(4, 10, 10);
    gpu_case("%lld rounds beside traffic, %s, %d ranks, %d GPUs", (long long)(replays * what.what.rounds * what.repeats),
             i == 0 ? "rank-major" : "grouped", size, gpus) gpu_both(size, gpus, endure, &what);
  }
}

static const struct {
  const char *name;
  exchange_case what;
} odd_cases[] = {{"rows of an odd size", {13, 7, 3, 11, "bf16", "f16", false, false, IDS_ANY, 2, 2, 0, true}},
                 {"rows that are not aligned", {17, 40, 8, 19, "f16", "f32", false, false, IDS_WILD, 2, 3, 1, true}},
                 {"8 payloads", {17, 24, 3, 11, "bf16", "f32", false, false, IDS_WILD, 2, 7, 0, true}},
                 {"top_k 1", {11, 48, 1, 8, "f32", "bf16", false, false, IDS_ANY, 2, 0, 0, true}},
                 {"top_k 22", {11, 48, 22, 64, "bf16", "f32", false, false, IDS_ANY, 2, 1, 0, true}},
                 {"one token of 7168", {1, 7168, 8, 64, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}},
                 {"in place", {9, 264, 8, 33, "bf16", "bf16", false, true, IDS_TWICE, 2, 1, 0, true}},
                 {"hundreds of tokens", {400, 16, 8, 32, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}},
                 {"one expert", {40, 64, 1, 8, "bf16", "bf16", false, false, IDS_ONE, 2, 0, 0, false}},
                 {"grouped rows that are not aligned", {19, 41, 3, 9, "f32", "bf16", true, false, IDS_WILD, 2, 2, 1, true}},
                 {"grouped 8 payloads", {11, 24, 8, 21, "f16", "f16", true, false, IDS_WILD, 2, 7, 0, true}},
                 {"grouped top_k 1", {11, 48, 1, 8, "bf16", "f32", true, false, IDS_ANY, 2, 0, 0, true}},
                 {"grouped top_k 22", {9, 48, 22, 64, "bf16", "f32", true, false, IDS_TWICE, 2, 0, 0, true}},
                 {"many short rows of a block", {400, 512, 8, 32, "bf16", "bf16", false, false, IDS_ANY, 2, 0, 0, false}},
                 {"in place many short rows of a block", {400, 512, 8, 32, "bf16", "bf16", false, true, IDS_ANY, 2, 0, 0, false}}};

static void run_settings(int32_t size, int32_t gpus) {
  for (size_t i = 0; i < sizeof odd_cases / sizeof *odd_cases; i += (size_t)by_extent(6, 3, 1)) {
    exchange_case what = odd_cases[i].what;
    gpu_case("settings: %s, %d ranks, %d GPUs", odd_cases[i].name, size, gpus) gpu_both(size, gpus, try_settings, &what);
  }
}

// By default two exchanges of a rank have room on its device, whatever is behind them on their streams; there, combines follow at once. Three share
// the blocks out.
static void run_flows(int32_t size, int32_t gpus) {
  int64_t ranks = gpus ? (size + gpus - 1) / gpus : size; // on a GPU
  Flow two = {.what = {.what = few, .sets = by_extent(4, 16, 64), .repeats = 1}, .stages = 2};
  two.what.what.max_tokens = 300;
  gpu_case("2 workspaces at once, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, play_at_once, &two);
  Flow three = {.what = two.what, .stages = 3, .max_sms = 44 / ranks};
  three.what.what.max_tokens = 40;
  three.what.sets = by_extent(8, 32, 192);
  three.what.echoes = true;
  gpu_case("3 workspaces at once, %d ranks, %d GPUs", size, gpus) gpu_both(size, gpus, play_at_once, &three);
}

static void run_on(int32_t size, int32_t gpus, int64_t replays, int64_t busy) {
  run_replays(size, gpus, replays);
  run_busy(size, gpus, busy);
  run_flows(size, gpus);
  run_settings(size, gpus);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  int32_t gpus = gpu_count() > 2 ? 2 : gpu_count();
  run_on(2, gpus, by_extent(12, 1000, 10000), by_extent(2, 20, 1000));
  if (gpu_extent() != GPU_SMALL) run_on(4, gpus, by_extent(0, 200, 2000), by_extent(0, 2, 100));
  if (gpu_extent() == GPU_FULL) run_on(8, gpus, 500, 20);
  return gpu_end();
}

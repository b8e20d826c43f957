//===- team.c - ranks that measure cases together -----------------------------------------------------===//

#include "team.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 10000 };

//===--- what ranks tell each other -------------------------------------------------------------------===//

void member_say(Member *member, const char *what, const char *why) {
  const Work *work = member->work;
  fprintf(stderr, "moe-bench: %s, %s, %s, %lld tokens, rank %d: %s: %s\n", work->what->steps[0].name, work->what->variant, work->what->dtype,
          (long long)work->tokens, work->rank, what, why);
  atomic_store(&member->team->failed, true);
}

bool member_check(Member *member, moert_status status, const char *what) {
  if (status == MOERT_OK) return true;
  member_say(member, what, moert_last_error()[0] ? moert_last_error() : moert_status_text(status));
  if (moert_comm_status(member->work->comm) != MOERT_OK) atomic_store(&member->team->broken, true);
  return false;
}

bool member_check_cuda(Member *member, cudaError_t error, const char *what) {
  if (error == cudaSuccess) return true;
  member_say(member, what, cudaGetErrorString(error));
  return false;
}

bool member_check_memory(Member *member, const void *memory) {
  if (!memory) member_say(member, "memory", "there is none");
  return memory != NULL;
}

bool members_are_well(Member *member) {
  pthread_barrier_wait(&member->team->barrier);
  bool well = !atomic_load(&member->team->failed);
  pthread_barrier_wait(&member->team->barrier);
  return well;
}

int members_decide(Member *member, int (*choose)(const Member *member)) {
  Team *team = member->team;
  if (member->work->rank == 0) team->decision = choose(member);
  pthread_barrier_wait(&team->barrier);
  int decision = team->decision;
  pthread_barrier_wait(&team->barrier);
  return decision;
}

static int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

double sorted_part(double *numbers, int count, double part) {
  qsort(numbers, (size_t)count, sizeof *numbers, compare_numbers);
  return numbers[(int)(count * part)];
}

//===--- cases ----------------------------------------------------------------------------------------===//

static void open_work(Member *member) {
  Work *work = member->work;
  work->sets = 1;
  moert_status status = work->what->open ? work->what->open(work) : MOERT_OK;
  if (!status) status = work->what->fill(work, 0);
  member_check(member, status, "operands");
}

bool member_fill_sets(Member *member, int sets) {
  Work *work = member->work;
  for (; work->sets < sets; ++work->sets)
    if (!member_check(member, work->what->fill(work, work->sets), "operands")) return false;
  return member_check(member, moert_context_synchronize(work->context), "operands");
}

static void set_case(Work *work, const Case *what, int64_t tokens) {
  memset(work->buffers, 0, sizeof work->buffers);
  memset(work->counters, 0, sizeof work->counters);
  memset(work->areas, 0, sizeof work->areas);
  work->slab = NULL;
  work->what = what;
  work->shape = what->shape;
  work->tokens = tokens;
}

static void run_case(Member *member, const Case *what, int64_t tokens) {
  Work *work = member->work;
  Team *team = member->team;
  set_case(work, what, tokens);
  open_work(member);
  if (members_are_well(member)) team->procedure->measure(member);
  cudaStreamSynchronize(work->stream);
  bool well = members_are_well(member);
  if (work->rank == 0 && !well) atomic_store(&team->any_failed, true);
  if (work->rank == 0) atomic_store(&team->failed, false);
  pthread_barrier_wait(&team->barrier);
  work_close(work);
}

static void run_tokens(Member *member, const Case *what) {
  const Options *options = member->team->options;
  int count = what->tokens ? 1 : options->num_tokens;
  for (int i = 0; i < count && !atomic_load(&member->team->broken); ++i) {
    run_case(member, what, what->tokens ? what->tokens : options->tokens[i]);
    members_are_well(member); // `broken` is the same for all
  }
}

//===--- ranks ----------------------------------------------------------------------------------------===//

static bool open_context(Member *member) {
  Work *work = member->work;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = TIMEOUT_MS;
  if (!member_check_cuda(member, cudaSetDevice(moert_comm_device(work->comm).id), "device")) return false;
  if (!member_check(member, moert_context_create(work->comm, &options, &work->context), "context")) return false;
  work->stream = moert_context_stream(work->context);
  return true;
}

static void *run_member(void *data) {
  Member *member = data;
  Team *team = member->team;
  const Options *options = team->options;
  member->work->what = options->cases;
  open_context(member);
  bool well = members_are_well(member);
  if (well) team->procedure->begin(member);
  well = members_are_well(member);
  if (!well) atomic_store(&team->any_failed, true);
  for (int i = 0; i < options->num_cases && well; ++i)
    if (options_name_case(options, &options->cases[i])) run_tokens(member, &options->cases[i]);
  team->procedure->end(member);
  moert_context_destroy(member->work->context);
  return NULL;
}

// Without one rank the others would wait for it.
static void start_member(Member *member) {
  if (pthread_create(&member->thread, NULL, run_member, member) == 0) return;
  fprintf(stderr, "moe-bench: no thread for rank %d\n", member->work->rank);
  exit(BENCH_FAILED);
}

static bool run_members(Team *team) {
  Work *works = calloc((size_t)team->ranks, sizeof *works);
  if (!works) return false;
  for (int32_t r = 0; r < team->ranks; ++r) {
    works[r].comm = team->comms[r];
    works[r].rank = r;
    works[r].ranks = team->ranks;
    works[r].linear = strcmp(options_weights(team->options), "linear") == 0;
    team->members[r].team = team;
    team->members[r].work = &works[r];
  }
  for (int32_t r = 0; r < team->ranks; ++r) start_member(&team->members[r]);
  for (int32_t r = 0; r < team->ranks; ++r) pthread_join(team->members[r].thread, NULL);
  free(works);
  return true;
}

Exit team_run(const Options *options, int num_gpus, const Procedure *procedure, void *shared) {
  Team *team = calloc(1, sizeof *team);
  moert_comm_options devices = MOERT_COMM_OPTIONS_INIT;
  if (!team) return BENCH_FAILED;
  devices.device_type = MOERT_DEVICE_CUDA;
  team->options = options;
  team->procedure = procedure;
  team->shared = shared;
  team->ranks = options->ranks ? options->ranks : num_gpus;
  if (moert_comm_create_threads(team->ranks, &devices, team->comms)) {
    fprintf(stderr, "moe-bench: %s\n", moert_last_error());
    free(team);
    return BENCH_FAILED;
  }
  pthread_barrier_init(&team->barrier, NULL, (unsigned)team->ranks);
  bool well = run_members(team) && !atomic_load(&team->any_failed);
  pthread_barrier_destroy(&team->barrier);
  for (int32_t r = 0; r < team->ranks; ++r) moert_comm_destroy(team->comms[r]);
  free(team);
  return well ? BENCH_OK : BENCH_FAILED;
}

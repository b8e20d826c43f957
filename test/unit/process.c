//===- process.c - communicators whose ranks are processes ------------------------------------------===//
//
// Every test forks its ranks before it has threads.
//
//===----------------------------------------------------------------------------------------------===//

#include "members.h"
#include "lib/runtime/internal.h"
#include <moert/ops.h>

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

static moert_status create(member *m, moert_comm **comm) { return moert_comm_create_process(m->rank, m->shared->world, NULL, gather, m, comm); }

//===--- meeting ----------------------------------------------------------------------------------===//

// Every rank writes its number into every living peer's memory, and finds those of all in its own.
static moert_status exchange(moert_comm *comm) {
  enum { WORDS = 100000 };
  int32_t *memory = NULL, rank = moert_comm_rank(comm);
  void *peers[MOERT_MAX_RANKS];
  uint64_t mask = moert_comm_mask(comm);
  moert_status status = moert_symmetric_alloc(comm, WORDS * sizeof *memory, (void **)&memory);
  if (status) return status;
  if ((uintptr_t)memory % 256) return moert__fail(MOERT_ERROR_MISALIGNED, "symmetric memory");
  for (int i = 0; i < WORDS; ++i)
    if (memory[i]) return moert__fail(MOERT_ERROR_DATA, "word %d is not zero", i);
  status = moert__symmetric_peers(comm, memory + WORDS - 64, 256, peers);
  if (!status) status = moert_comm_barrier(comm, PATIENT_MS);
  for (int32_t r = 0; r < moert_comm_size(comm) && !status; ++r)
    if (mask >> r & 1) ((int32_t *)peers[r])[rank] = rank + 1;
  if (!status) status = moert_comm_barrier(comm, PATIENT_MS);
  for (int32_t r = 0; r < moert_comm_size(comm) && !status; ++r)
    if (memory[WORDS - 64 + r] != (mask >> r & 1 ? r + 1 : 0)) return moert__fail(MOERT_ERROR_DATA, "word of rank %d", (int)r);
  return status ? status : moert_symmetric_free(comm, memory);
}

static moert_status exchange_repeatedly(member *m) {
  moert_comm *comm;
  moert_status status = create(m, &comm);
  if (status) return status;
  if (moert_comm_rank(comm) != m->rank || moert_comm_size(comm) != m->shared->world) return moert__fail(MOERT_ERROR_INTERNAL, "rank or size");
  for (int i = 0; i < 20 && !status; ++i) status = exchange(comm);
  moert_comm_destroy(comm);
  return status;
}

static void symmetric_memory(void **state) {
  (void)state;
  for (int32_t size = 1; size <= MAX_PROCESSES; ++size) {
    scene *shared = make_scene(size);
    run_members(shared, exchange_repeatedly);
    for (int32_t r = 0; r < size; ++r) {
      assert_string_equal(shared->error[r], "");
      assert_int_equal(shared->status[r], 0);
    }
    free_scene(shared);
  }
}

// A second communicator in which the ranks stand in reverse; both are used in turns.
static moert_status two_communicators(member *m) {
  moert_comm *forth = NULL, *back = NULL;
  int32_t world = m->shared->world;
  moert_status status = create(m, &forth);
  if (status) return status;
  member reversed = {m->shared, world - 1 - m->rank, m->gatherings};
  status = moert_comm_create_process(reversed.rank, world, NULL, gather, &reversed, &back);
  for (int i = 0; i < 20 && !status; ++i) {
    status = exchange(forth);
    if (!status) status = exchange(back);
  }
  moert_comm_destroy(forth);
  if (!status) status = exchange(back);
  moert_comm_destroy(back);
  return status;
}

static void side_by_side(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, two_communicators);
  for (int32_t r = 0; r < 3; ++r) assert_string_equal(shared->error[r], "");
  free_scene(shared);
}

//===--- joining that fails -----------------------------------------------------------------------===//

static void arguments_that_are_refused(void **state) {
  (void)state;
  moert_comm *comm = NULL;
  assert_fails(moert_comm_create_process(0, 0, NULL, gather, NULL, &comm), MOERT_ERROR_INVALID_ARGUMENT, "size is 0, must be in [1, 64]");
  assert_fails(moert_comm_create_process(0, 65, NULL, gather, NULL, &comm), MOERT_ERROR_INVALID_ARGUMENT, "size is 65, must be in [1, 64]");
  assert_fails(moert_comm_create_process(2, 2, NULL, gather, NULL, &comm), MOERT_ERROR_INVALID_ARGUMENT, "rank is 2, must be in [0, 2)");
  assert_fails(moert_comm_create_process(-1, 2, NULL, gather, NULL, &comm), MOERT_ERROR_INVALID_ARGUMENT, "rank is -1, must be in [0, 2)");
  assert_fails(moert_comm_create_process(0, 2, NULL, NULL, NULL, &comm), MOERT_ERROR_NULL_POINTER, "allgather is NULL");
  assert_fails(moert_comm_create_process(0, 2, NULL, gather, NULL, NULL), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_null(comm);
}

static moert_status rank_1_has_another_size(member *m) {
  moert_comm *comm = NULL;
  moert_status status = moert_comm_create_process(m->rank, m->rank == 1 ? 2 : 3, NULL, gather, m, &comm);
  return comm ? MOERT_ERROR_INTERNAL : status;
}

static void sizes_that_differ(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, rank_1_has_another_size);
  static const char *const texts[] = {"size is 3 on rank 0, but 2 on rank 1", "size is 2 on rank 1, but 3 on rank 0",
                                      "size is 3 on rank 2, but 2 on rank 1"};
  for (int r = 0; r < 3; ++r) {
    assert_string_equal(shared->error[r], texts[r]);
    assert_int_equal(shared->status[r], MOERT_ERROR_PEER_MISMATCH);
  }
  free_scene(shared);
}

static moert_status all_have_a_small_size(member *m) {
  moert_comm *comm = NULL;
  moert_status status = moert_comm_create_process(m->rank % 2, 2, NULL, gather, m, &comm);
  return comm ? MOERT_ERROR_INTERNAL : status;
}

static void allgather_of_more_ranks(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, all_have_a_small_size);
  assert_string_equal(shared->error[0], "size is 2 on rank 0, but the allgather has more ranks");
  assert_string_equal(shared->error[1], "size is 2 on rank 1, but the allgather has more ranks");
  for (int r = 0; r < 3; ++r) assert_int_equal(shared->status[r], MOERT_ERROR_PEER_MISMATCH);
  free_scene(shared);
}

static moert_status only_create(member *m) {
  moert_comm *comm = NULL;
  moert_status status = create(m, &comm);
  return comm ? MOERT_ERROR_INTERNAL : status;
}

static void allgather_in_another_order(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  shared->swaps = true;
  run_members(shared, only_create);
  for (int r = 0; r < 3; ++r) {
    assert_string_equal(shared->error[r], "the allgather gave rank 1 in the place of rank 0");
    assert_int_equal(shared->status[r], MOERT_ERROR_PEER_MISMATCH);
  }
  free_scene(shared);
}

static void allgather_that_fails(void **state) {
  (void)state;
  for (int32_t from = 0; from < 2; ++from) {
    scene *shared = make_scene(2);
    shared->fails_from = from;
    run_members(shared, only_create);
    for (int r = 0; r < 2; ++r) {
      if (from == 1 && r == 1 && shared->status[1] == MOERT_ERROR_UNSUPPORTED) continue; // rank 0 was gone before rank 1 could open its memory
      assert_string_equal(shared->error[r], "the caller's allgather returned 7");
      assert_int_equal(shared->status[r], MOERT_ERROR_PEER_FAILED);
    }
    free_scene(shared);
  }
}

static int gather_that_says_why(void *user, const void *mine, size_t bytes, void *all) {
  (void)user, (void)mine, (void)bytes, (void)all;
  return (int)moert__fail(MOERT_ERROR_LOAD, "there is no road");
}

static void allgather_that_says_why(void **state) {
  (void)state;
  moert_comm *comm = NULL;
  moert__fail(MOERT_ERROR_DATA, "of an earlier call");
  for (int turn = 0; turn < 2; ++turn)
    assert_fails(moert_comm_create_process(0, 2, NULL, gather_that_says_why, NULL, &comm), MOERT_ERROR_PEER_FAILED,
                 "the caller's allgather returned 6002: there is no road");
  assert_null(comm);
}

static moert_status rank_1_has_wrong_options(member *m) {
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  if (m->rank == 1) options.num_devices = -2;
  moert_comm *comm = NULL;
  moert_status status = moert_comm_create_process(m->rank, m->shared->world, &options, gather, m, &comm);
  return comm ? MOERT_ERROR_INTERNAL : status;
}

static void rank_that_cannot_join(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, rank_1_has_wrong_options);
  static const char other[] = "rank 1 could not join: MOERT_ERROR_INVALID_ARGUMENT (an argument has a value that is not allowed)";
  assert_string_equal(shared->error[0], other);
  assert_string_equal(shared->error[1], "options: num_devices is -2, must be at least 0");
  assert_string_equal(shared->error[2], other);
  assert_int_equal(shared->status[0], MOERT_ERROR_PEER_FAILED);
  assert_int_equal(shared->status[1], MOERT_ERROR_INVALID_ARGUMENT);
  free_scene(shared);
}

// No more files than are open already, and `more`.
static void limit_files(int more) {
  int next = dup(0);
  close(next);
  struct rlimit limit = {(rlim_t)(next + more), (rlim_t)(next + more)};
  setrlimit(RLIMIT_NOFILE, &limit);
}

static moert_status no_files_on_rank_0(member *m) {
  if (m->rank == 0) limit_files(0);
  return only_create(m);
}

static moert_status no_files_on_rank_1(member *m) {
  if (m->rank == 1) limit_files(0);
  return only_create(m);
}

static void place_that_cannot_be_made_or_opened(void **state) {
  (void)state;
  scene *shared = make_scene(2);
  run_members(shared, no_files_on_rank_0);
  assert_string_equal(shared->error[0], "the ranks' shared memory cannot be made: Too many open files");
  assert_string_equal(shared->error[1], "rank 0 could not join: MOERT_ERROR_OUT_OF_MEMORY (memory could not be allocated)");
  free_scene(shared);
  shared = make_scene(2);
  run_members(shared, no_files_on_rank_1);
  assert_string_equal(shared->error[0], "rank 1 could not join: MOERT_ERROR_UNSUPPORTED (this library does not do that)");
  assert_int_equal(shared->status[1], MOERT_ERROR_UNSUPPORTED);
  assert_int_equal(strncmp(shared->error[1], "rank 1 cannot open the memory of rank 0, /proc/", 47), 0);
  free_scene(shared);
}

//===--- symmetric memory that fails --------------------------------------------------------------===//

// Rank 1 has no file left for memory of its own (0), or for that of rank 0 (1). Nothing is left behind: with files again, all works.
static moert_status allocate_without_files(member *m, int files) {
  moert_comm *comm;
  struct rlimit before;
  moert_status status = create(m, &comm);
  if (status) return status;
  getrlimit(RLIMIT_NOFILE, &before);
  if (m->rank == 1) {
    int next = dup(0);
    close(next);
    struct rlimit limit = {(rlim_t)(next + files), before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  void *memory = NULL;
  status = moert_symmetric_alloc(comm, 100, &memory);
  snprintf(m->shared->error[m->rank + 2], sizeof m->shared->error[0], "%s: %s", moert_status_name(status), moert_last_error());
  setrlimit(RLIMIT_NOFILE, &before);
  if (memory || moert_comm_status(comm)) return moert__fail(MOERT_ERROR_INTERNAL, "memory, or an error that stands");
  status = exchange(comm);
  moert_comm_destroy(comm);
  return status;
}

static moert_status allocate_without_own(member *m) { return allocate_without_files(m, 0); }

static moert_status allocate_without_peers(member *m) { return allocate_without_files(m, 1); }

static void rank_without_memory(void **state) {
  (void)state;
  scene *shared = make_scene(2);
  run_members(shared, allocate_without_own);
  for (int r = 0; r < 2; ++r) {
    assert_string_equal(shared->error[r], "");
    assert_string_equal(shared->error[r + 2], "MOERT_ERROR_OUT_OF_MEMORY: rank 1 has no memory for 100 bytes of symmetric memory");
  }
  free_scene(shared);
  shared = make_scene(2);
  run_members(shared, allocate_without_peers);
  for (int r = 0; r < 2; ++r) assert_string_equal(shared->error[r], "");
  assert_string_equal(shared->error[2],
                      "MOERT_ERROR_INVALID_MEMORY: rank 1 could not map the symmetric memory of its peers: MOERT_ERROR_INVALID_MEMORY");
  assert_non_null(strstr(shared->error[3], "MOERT_ERROR_INVALID_MEMORY: 100 bytes of another process cannot be mapped: /proc/"));
  free_scene(shared);
}

static moert_status allocate_by_rank(member *m) {
  moert_comm *comm;
  void *memory = NULL;
  moert_status status = create(m, &comm);
  if (status) return status;
  if (moert_symmetric_alloc(comm, m->rank == 1 ? 512 : 256, &memory) != MOERT_ERROR_INVALID_ARGUMENT || memory) return MOERT_ERROR_INTERNAL;
  if (strcmp(moert_last_error(), "symmetric memory must have one size: rank 0 asked for 256, but rank 1 for 512")) return MOERT_ERROR_INTERNAL;
  status = moert_symmetric_alloc(comm, 0, &memory);
  if (!status) status = moert_symmetric_free(comm, memory);
  if (!status) status = exchange(comm);
  moert_comm_destroy(comm);
  return status;
}

static void memory_of_different_sizes(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, allocate_by_rank);
  for (int32_t r = 0; r < 3; ++r) {
    assert_string_equal(shared->error[r], "");
    assert_int_equal(shared->status[r], 0);
  }
  free_scene(shared);
}

//===--- death ------------------------------------------------------------------------------------===//

// Rank 2 is killed; nobody has asked for its exit status yet. The others return at once, and go on without it.
static moert_status lose_rank_2(member *m) {
  moert_comm *comm;
  unsigned char *memory;
  void *peers[MOERT_MAX_RANKS];
  moert_status status = create(m, &comm);
  if (!status) status = moert_symmetric_alloc(comm, 4096, (void **)&memory);
  if (!status) status = moert__symmetric_peers(comm, memory, 4096, peers);
  if (!status) status = moert_comm_barrier(comm, PATIENT_MS);
  if (status) return status;
  if (m->rank == 2) raise(SIGKILL);
  int64_t begin = now_ms();
  if (moert_comm_barrier(comm, PATIENT_MS) != MOERT_ERROR_PEER_FAILED) return moert__fail(MOERT_ERROR_INTERNAL, "barrier");
  m->shared->waited_ms[m->rank] = now_ms() - begin;
  snprintf(m->shared->error[m->rank + 4], sizeof m->shared->error[0], "%s", moert_last_error());
  // A rank that has found the dead one may be on to the next mask when another still hopes for it.
  begin = now_ms();
  status = moert_comm_recover(comm, 0xf, PATIENT_MS);
  if (status != MOERT_ERROR_PEER_FAILED && status != MOERT_ERROR_PEER_MISMATCH) return moert__fail(MOERT_ERROR_INTERNAL, "recovery with the dead");
  do status = moert_comm_recover(comm, 0xb, PATIENT_MS);
  while (status == MOERT_ERROR_PEER_MISMATCH);
  if (now_ms() - begin > PATIENT_MS / 10) return moert__fail(MOERT_ERROR_INTERNAL, "recovery waited for the dead");
  if (!status) status = moert_comm_check(comm);
  if (!status) status = exchange(comm);
  if (!status && m->rank == 0) memset(peers[3], 9, 4096);
  if (!status) status = moert_comm_barrier(comm, PATIENT_MS);
  if (!status && m->rank == 3 && (memory[0] != 9 || memory[4095] != 9)) status = moert__fail(MOERT_ERROR_DATA, "memory from before");
  if (!status) status = moert_symmetric_free(comm, memory);
  moert_comm_destroy(comm);
  return status;
}

static void killed_rank(void **state) {
  (void)state;
  scene *shared = make_scene(4);
  run_members(shared, lose_rank_2);
  bool noticed = false;
  for (int r = 0; r < 4; ++r) {
    if (r == 2) continue;
    assert_string_equal(shared->error[r], "");
    assert_int_equal(shared->status[r], 0);
    assert_true(shared->waited_ms[r] < PATIENT_MS / 10);
    char text[128];
    snprintf(text, sizeof text, "the process of rank 2 has ended while rank %d waited for it (at a barrier, epoch 4)", r);
    noticed |= !strcmp(shared->error[r + 4], text);
  }
  assert_true(noticed); // one may have heard of it from another
  assert_int_equal(shared->status[2], -1);
  free_scene(shared);
}

// What a process has done before it ends is done.
static moert_status leave_early(member *m) {
  moert_comm *comm;
  moert_status status = create(m, &comm);
  if (status) return status;
  if (m->rank == 0) usleep(300000);
  status = moert_comm_barrier(comm, m->rank == 0 ? PATIENT_MS : 1);
  return m->rank == 0 ? status : MOERT_OK; // rank 1 times out, and is gone when rank 0 arrives
}

static void ended_after_its_part(void **state) {
  (void)state;
  scene *shared = make_scene(2);
  run_members(shared, leave_early);
  assert_string_equal(shared->error[0], "");
  assert_int_equal(shared->status[0], 0);
  free_scene(shared);
}

//===--- ops --------------------------------------------------------------------------------------===//

enum { TOKENS = 3, HIDDEN = 8 };

static moert_tensor tensor_of(void *data, uint8_t code, uint8_t bits, int64_t *shape, int32_t ndim) {
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, ndim, {code, bits, 1}, shape, NULL, 0};
}

// What an all-reduce over the living ranks gives, of rank + 1 from each: one value, or an error.
typedef struct reducer {
  int64_t metainfo[MOERT_METAINFO_FIELDS], metainfo_shape[1], workspace_shape[1];
  void *slab;
  moert_context *context;
} reducer;

static moert_status open_reducer(reducer *r, moert_comm *comm) {
  int64_t bytes;
  moert_moe_workspace_size_params size = {sizeof size, TOKENS, 4 * HIDDEN, 1, 0, 0};
  moert_moe_workspace_size_args size_args = {sizeof size_args, &bytes};
  moert_status status = moert_context_create(comm, NULL, &r->context);
  if (!status) status = moert_moe_workspace_size(&size, &size_args, NULL, r->context);
  if (!status) status = moert_symmetric_alloc(comm, (size_t)bytes, &r->slab);
  if (status) return status;
  r->metainfo_shape[0] = MOERT_METAINFO_FIELDS;
  r->workspace_shape[0] = bytes;
  moert_tensor workspace = tensor_of(r->slab, MOERT_CODE_INT, 8, r->workspace_shape, 1);
  moert_tensor metainfo = tensor_of(r->metainfo, MOERT_CODE_INT, 64, r->metainfo_shape, 1);
  moert_moe_initialize_params params = {sizeof params, TOKENS, 4 * HIDDEN, 1, 0, 0};
  moert_moe_initialize_args args = {sizeof args, &workspace, &metainfo};
  return moert_moe_initialize(&params, &args, NULL, r->context);
}

static moert_status reduce(reducer *r, float *sum) {
  float input[TOKENS * HIDDEN], zero[TOKENS * HIDDEN] = {0}, scale[TOKENS], out[TOKENS * HIDDEN];
  int64_t input_shape[] = {1, TOKENS, HIDDEN}, rows[] = {TOKENS, HIDDEN}, columns[] = {HIDDEN}, scales[] = {1, TOKENS};
  for (int i = 0; i < TOKENS * HIDDEN; ++i) input[i] = (float)(moert_comm_rank(moert_context_comm(r->context)) + 1);
  for (int t = 0; t < TOKENS; ++t) scale[t] = 1;
  moert_tensor residual = tensor_of(zero, MOERT_CODE_FLOAT, 32, rows, 2), gamma = tensor_of(zero, MOERT_CODE_FLOAT, 32, columns, 1);
  moert_tensor inputs = tensor_of(input, MOERT_CODE_FLOAT, 32, input_shape, 3), scale_input = tensor_of(scale, MOERT_CODE_FLOAT, 32, scales, 2);
  moert_tensor workspace = tensor_of(r->slab, MOERT_CODE_INT, 8, r->workspace_shape, 1), sums = tensor_of(out, MOERT_CODE_FLOAT, 32, rows, 2);
  moert_tensor metainfo = tensor_of(r->metainfo, MOERT_CODE_INT, 64, r->metainfo_shape, 1);
  moert_moe_allreduce_fusion_params params = MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT;
  params.hidden_size = HIDDEN;
  moert_moe_allreduce_fusion_args args = {sizeof args, &residual, &gamma, &inputs, &scale_input, NULL, &residual,
                                          &workspace,  &metainfo, &sums,  NULL,    NULL,         NULL, NULL};
  moert_status status = moert_moe_allreduce_fusion(&params, &args, NULL, r->context);
  for (int i = 1; i < TOKENS * HIDDEN; ++i)
    if (memcmp(&out[i], &out[0], sizeof *out)) return moert__fail(MOERT_ERROR_DATA, "element %d differs", i);
  *sum = out[0];
  return status;
}

// Rank 1 is killed between two all-reduces; the others find out in the next, and go on in the same workspace without it.
static moert_status reduce_and_lose_rank_1(member *m) {
  moert_comm *comm;
  reducer r;
  float sum = 0;
  moert_status status = create(m, &comm);
  if (!status) status = open_reducer(&r, comm);
  for (int i = 0; i < 3 && !status; ++i) {
    status = reduce(&r, &sum);
    if (!status && sum != 6) return moert__fail(MOERT_ERROR_DATA, "the sum is %g", (double)sum);
  }
  if (status) return status;
  if (m->rank == 1) raise(SIGKILL);
  status = reduce(&r, &sum);
  if (status != MOERT_ERROR_PEER_FAILED || sum == sum) return moert__fail(MOERT_ERROR_INTERNAL, "all-reduce with the dead: %d", (int)status);
  if (moert_context_status(r.context) != MOERT_ERROR_PEER_FAILED) return MOERT_ERROR_INTERNAL;
  status = moert_comm_recover(comm, 0x5, PATIENT_MS);
  if (!status) status = moert_context_status(r.context);
  for (int i = 0; i < 3 && !status; ++i) {
    status = reduce(&r, &sum);
    if (!status && sum != 4) return moert__fail(MOERT_ERROR_DATA, "the sum without rank 1 is %g", (double)sum);
  }
  moert_context_destroy(r.context);
  moert_comm_destroy(comm);
  return status;
}

static void killed_rank_in_an_op(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, reduce_and_lose_rank_1);
  for (int r = 0; r < 3; r += 2) {
    assert_string_equal(shared->error[r], "");
    assert_int_equal(shared->status[r], 0);
  }
  free_scene(shared);
}

//===--- nothing is left behind -------------------------------------------------------------------===//

static int count_files(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  assert_non_null(folder);
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

// Mappings of files in memory, which the library makes.
static int count_mappings(void) {
  int count = 0;
  char line[512];
  FILE *file = fopen("/proc/self/maps", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) count += strstr(line, "memfd:moert") != NULL;
  fclose(file);
  return count;
}

// Two ranks of one process, which takes no part in this: so that the sanitizers see what is left.
static void *live_and_leave(void *argument) {
  member *m = argument;
  moert_status status = MOERT_OK;
  for (int life = 0; life < 1000 && !status; ++life) {
    moert_comm *comm;
    void *kept, *freed;
    if ((status = create(m, &comm))) break;
    status = moert_symmetric_alloc(comm, 64, &kept);
    if (!status) status = moert_symmetric_alloc(comm, 64, &freed);
    if (!status) status = moert_symmetric_free(comm, freed);
    moert_comm_destroy(comm);
  }
  m->shared->status[m->rank] = (int32_t)status;
  return NULL;
}

static void many_lives(void **state) {
  (void)state;
  scene *shared = make_scene(2);
  int files = count_files();
  member members[2] = {{shared, 0, 0}, {shared, 1, 0}};
  pthread_t threads[2];
  for (int r = 0; r < 2; ++r) assert_int_equal(pthread_create(&threads[r], NULL, live_and_leave, &members[r]), 0);
  for (int r = 0; r < 2; ++r) assert_int_equal(pthread_join(threads[r], NULL), 0);
  for (int r = 0; r < 2; ++r) assert_ok(shared->status[r]);
  assert_int_equal(count_files(), files);
  assert_int_equal(count_mappings(), 0);
  free_scene(shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(symmetric_memory),
      cmocka_unit_test(side_by_side),
      cmocka_unit_test(arguments_that_are_refused),
      cmocka_unit_test(sizes_that_differ),
      cmocka_unit_test(allgather_of_more_ranks),
      cmocka_unit_test(allgather_in_another_order),
      cmocka_unit_test(allgather_that_fails),
      cmocka_unit_test(allgather_that_says_why),
      cmocka_unit_test(rank_that_cannot_join),
      cmocka_unit_test(place_that_cannot_be_made_or_opened),
      cmocka_unit_test(rank_without_memory),
      cmocka_unit_test(memory_of_different_sizes),
      cmocka_unit_test(killed_rank),
      cmocka_unit_test(ended_after_its_part),
      cmocka_unit_test(killed_rank_in_an_op),
      cmocka_unit_test(many_lives), // the last: it has threads
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

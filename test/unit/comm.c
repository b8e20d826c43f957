//===- comm.c - communicators: meetings, symmetric memory, waiting, errors --------------------------===//

#include "support.h"
#include "lib/runtime/internal.h"

#include <time.h>
#include <unistd.h>

enum { MISSING_RANK_MS = 500 }; // long against the start of a thread on a loaded machine

//===--- memory that is refused -------------------------------------------------------------------===//

static _Thread_local int callocs_until_failure = -1;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes) {
  if (callocs_until_failure >= 0 && callocs_until_failure-- == 0) return NULL;
  return __real_calloc(count, bytes);
}

//===--- create -----------------------------------------------------------------------------------===//

static void create(void **state) {
  (void)state;
  for (int32_t size = 1; size <= MOERT_MAX_RANKS; ++size) {
    moert_comm *comms[MOERT_MAX_RANKS];
    assert_ok(moert_comm_create_threads(size, NULL, comms));
    for (int32_t r = 0; r < size; ++r) {
      assert_int_equal(moert_comm_rank(comms[r]), r);
      assert_int_equal(moert_comm_size(comms[r]), size);
      assert_ok(moert_comm_status(comms[r]));
    }
    destroy_ranks(comms, size);
  }
}

static void create_refuses(void **state) {
  (void)state;
  moert_comm *comms[2] = {NULL, NULL};
  assert_fails(moert_comm_create_threads(0, NULL, comms), MOERT_ERROR_INVALID_ARGUMENT, "size is 0, must be in [1, 64]");
  assert_fails(moert_comm_create_threads(-1, NULL, comms), MOERT_ERROR_INVALID_ARGUMENT, "size is -1, must be in [1, 64]");
  assert_fails(moert_comm_create_threads(65, NULL, comms), MOERT_ERROR_INVALID_ARGUMENT, "size is 65, must be in [1, 64]");
  assert_fails(moert_comm_create_threads(2, NULL, NULL), MOERT_ERROR_NULL_POINTER, "comms is NULL, must have room for 2 handles");
  callocs_until_failure = 1;
  assert_fails(moert_comm_create_threads(2, NULL, comms), MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of 2 ranks");
  assert_null(comms[0]);
  assert_null(comms[1]);
}

static void null_handles(void **state) {
  (void)state;
  void *memory;
  moert_comm_destroy(NULL);
  moert_comm_report(NULL, MOERT_ERROR_DATA);
  moert_comm_dump(NULL, NULL, NULL);
  assert_int_equal(moert_comm_rank(NULL), -1);
  assert_int_equal(moert_comm_size(NULL), 0);
  assert_int_equal(moert_comm_status(NULL), MOERT_ERROR_NULL_POINTER);
  assert_fails(moert_comm_barrier(NULL, 0), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_fails(moert_symmetric_alloc(NULL, 8, &memory), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_fails(moert_symmetric_free(NULL, NULL), MOERT_ERROR_NULL_POINTER, "comm is NULL");
}

static void timeout_of_the_environment(void **state) {
  (void)state;
  moert_comm *comms[2];
  static const char *const wrong[] = {"soon", "0", "-5", "12x", "1000000000001", "99999999999999999999"};
  for (size_t i = 0; i < COUNT(wrong); ++i) {
    char text[128];
    snprintf(text, sizeof text, "environment variable MOERT_TIMEOUT_MS is '%s', must be in [1, 1000000000000]", wrong[i]);
    setenv("MOERT_TIMEOUT_MS", wrong[i], 1);
    assert_fails(moert_comm_create_threads(2, NULL, comms), MOERT_ERROR_INVALID_ARGUMENT, text);
  }
  setenv("MOERT_TIMEOUT_MS", "20", 1);
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  assert_fails(moert_comm_barrier(comms[0], 0), MOERT_ERROR_PEER_TIMEOUT, "rank 0 waited 20 ms for rank 1 (at a barrier, epoch 1)");
  destroy_ranks(comms, 2);
  setenv("MOERT_TIMEOUT_MS", "", 1);
  assert_ok(moert_comm_create_threads(1, NULL, comms));
  destroy_ranks(comms, 1);
  unsetenv("MOERT_TIMEOUT_MS");
}

//===--- barriers ---------------------------------------------------------------------------------===//

typedef struct barrier_test {
  int rounds;
  int entered[MOERT_MAX_RANKS]; // plain memory: the barrier is what orders it
  bool wrong[MOERT_MAX_RANKS];
} barrier_test;

static moert_status count_rounds(rank_run *run) {
  barrier_test *test = run->user;
  for (int round = 1; round <= test->rounds; ++round) {
    test->entered[run->rank] = round;
    moert_status status = moert_comm_barrier(run->comm, 60000);
    if (status) return status;
    for (int32_t r = 0; r < run->size; ++r) test->wrong[run->rank] |= test->entered[r] != round;
    if ((status = moert_comm_barrier(run->comm, 60000))) return status;
  }
  return MOERT_OK;
}

static void barrier(void **state) {
  (void)state;
  for (int32_t size = 1; size <= MOERT_MAX_RANKS; size += size < 8 ? 1 : 56) {
    moert_comm *comms[MOERT_MAX_RANKS];
    rank_run runs[MOERT_MAX_RANKS];
    barrier_test test = {.rounds = size == MOERT_MAX_RANKS ? 5 : 100};
    assert_ok(moert_comm_create_threads(size, NULL, comms));
    run_ranks(runs, comms, size, count_rounds, &test);
    for (int32_t r = 0; r < size; ++r) {
      assert_string_equal(runs[r].error, "");
      assert_false(test.wrong[r]);
    }
    destroy_ranks(comms, size);
  }
}

static void barrier_refuses(void **state) {
  (void)state;
  moert_comm *comm;
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  assert_fails(moert_comm_barrier(comm, -1), MOERT_ERROR_INVALID_ARGUMENT, "timeout_ms is -1, must be in [0, 1000000000000]");
  assert_fails(moert_comm_barrier(comm, INT64_MAX), MOERT_ERROR_INVALID_ARGUMENT, "timeout_ms is 9223372036854775807, must be in [0, 1000000000000]");
  assert_ok(moert_comm_status(comm));
  assert_ok(moert_comm_barrier(comm, 1000000000000));
  moert_comm_destroy(comm);
}

static moert_status short_barrier(rank_run *run) { return moert_comm_barrier(run->comm, MISSING_RANK_MS); }

static void missing_rank(void **state) {
  (void)state;
  moert_comm *comms[4];
  rank_run runs[4];
  assert_ok(moert_comm_create_threads(4, NULL, comms));
  run_ranks(runs, comms, 3, short_barrier, NULL);
  for (int32_t r = 0; r < 3; ++r) {
    char text[128];
    snprintf(text, sizeof text, "rank %d waited 500 ms for rank 3 (at a barrier, epoch 1)", (int)r);
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_TIMEOUT);
    assert_string_equal(runs[r].error, text);
    assert_int_equal(moert_comm_status(comms[r]), MOERT_ERROR_PEER_TIMEOUT);
  }
  // The first error stays, and nobody waits again: neither those that stand in error nor the one that comes late.
  assert_fails(moert_comm_barrier(comms[1], 60000), MOERT_ERROR_PEER_TIMEOUT,
               "rank 1 stands in error since an earlier call: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the deadline)");
  void *memory = comms;
  assert_fails(moert_symmetric_alloc(comms[2], 64, &memory), MOERT_ERROR_PEER_TIMEOUT,
               "rank 2 stands in error since an earlier call: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the deadline)");
  assert_ptr_equal(memory, comms);
  assert_ok(moert_comm_status(comms[3]));
  assert_ok(moert_comm_barrier(comms[3], 60000));
  destroy_ranks(comms, 4);
}

//===--- reported errors --------------------------------------------------------------------------===//

static moert_status report_or_wait(rank_run *run) {
  if (run->rank != 2) return moert_comm_barrier(run->comm, 60000);
  moert_comm_report(run->comm, MOERT_ERROR_DATA);
  moert_comm_report(run->comm, MOERT_ERROR_CAPACITY); // not the first
  return MOERT_OK;
}

static void reported_error(void **state) {
  (void)state;
  moert_comm *comms[4];
  rank_run runs[4];
  assert_ok(moert_comm_create_threads(4, NULL, comms));
  moert_comm_report(comms[2], MOERT_OK);
  assert_ok(moert_comm_status(comms[2]));
  run_ranks(runs, comms, 4, report_or_wait, NULL);
  for (int32_t r = 0; r < 4; ++r) {
    if (r == 2) continue;
    char text[128];
    snprintf(text, sizeof text, "rank 2 reported MOERT_ERROR_DATA while rank %d waited for it (at a barrier, epoch 1)", (int)r);
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_FAILED);
    assert_string_equal(runs[r].error, text);
    assert_int_equal(moert_comm_status(comms[r]), MOERT_ERROR_PEER_FAILED);
  }
  assert_int_equal(moert_comm_status(comms[2]), MOERT_ERROR_DATA);
  destroy_ranks(comms, 4);
}

static void noted_errors(void **state) {
  (void)state;
  static const struct {
    moert_status status;
    bool recorded;
  } rows[] = {
      {MOERT_OK, false},
      {MOERT_ERROR_INVALID_ARGUMENT, false},
      {MOERT_ERROR_STRUCT_SIZE, false},
      {MOERT_ERROR_UNSUPPORTED, false},
      {MOERT_ERROR_STOPPED, false},
      {MOERT_ERROR_CAPACITY, true},
      {MOERT_ERROR_DATA, true},
      {MOERT_ERROR_PEER_MISMATCH, true},
      {MOERT_ERROR_INTERNAL, true},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    moert_comm *comm;
    assert_ok(moert_comm_create_threads(1, NULL, &comm));
    moert__comm_note(comm, rows[i].status);
    assert_int_equal(moert_comm_status(comm), rows[i].recorded ? rows[i].status : MOERT_OK);
    moert_comm_destroy(comm);
  }
}

//===--- symmetric memory -------------------------------------------------------------------------===//

// Every rank writes its number into every peer's memory, and reads its own after the barrier.
static moert_status exchange(rank_run *run) {
  enum { WORDS = 1000 };
  int32_t *memory = NULL;
  moert_status status = moert_symmetric_alloc(run->comm, WORDS * sizeof *memory, (void **)&memory);
  if (status) return status;
  if ((uintptr_t)memory % 256) return moert__fail(MOERT_ERROR_MISALIGNED, "symmetric memory");
  for (int i = 0; i < WORDS; ++i)
    if (memory[i]) return moert__fail(MOERT_ERROR_DATA, "word %d is not zero", i);
  int32_t *peers[MOERT_MAX_RANKS];
  status = moert__symmetric_peers(run->comm, memory + 8, 4 * (WORDS - 8), (void **)peers);
  if (status) return status;
  if (peers[run->rank] != memory + 8) return moert__fail(MOERT_ERROR_DATA, "own address");
  if ((status = moert_comm_barrier(run->comm, 60000))) return status;
  for (int32_t r = 0; r < run->size; ++r) peers[r][run->rank] = run->rank + 1;
  if ((status = moert_comm_barrier(run->comm, 60000))) return status;
  for (int32_t r = 0; r < run->size; ++r)
    if (memory[8 + r] != r + 1) return moert__fail(MOERT_ERROR_DATA, "word of rank %d is %d", (int)r, (int)memory[8 + r]);
  return moert_symmetric_free(run->comm, memory);
}

static void symmetric_memory(void **state) {
  (void)state;
  for (int32_t size = 1; size <= MOERT_MAX_RANKS; size *= 2) {
    moert_comm *comms[MOERT_MAX_RANKS];
    rank_run runs[MOERT_MAX_RANKS];
    assert_ok(moert_comm_create_threads(size, NULL, comms));
    for (int repeat = 0; repeat < 3; ++repeat) {
      run_ranks(runs, comms, size, exchange, NULL);
      for (int32_t r = 0; r < size; ++r) assert_string_equal(runs[r].error, "");
    }
    destroy_ranks(comms, size);
  }
}

// A fast rank votes again while a slow one still counts the votes before.
static moert_status allocate_and_free_at_once(rank_run *run) {
  for (size_t i = 1; i <= 300; ++i) {
    void *kept, *freed;
    moert_status status = moert_symmetric_alloc(run->comm, i, &kept);
    if (!status) status = moert_symmetric_alloc(run->comm, 1000 * i, &freed);
    if (!status) status = moert_symmetric_free(run->comm, freed);
    if (status) return status;
  }
  return MOERT_OK;
}

static void votes_without_a_pause(void **state) {
  (void)state;
  moert_comm *comms[4];
  rank_run runs[4];
  assert_ok(moert_comm_create_threads(4, NULL, comms));
  run_ranks(runs, comms, 4, allocate_and_free_at_once, NULL);
  for (int32_t r = 0; r < 4; ++r) assert_string_equal(runs[r].error, "");
  destroy_ranks(comms, 4);
}

static moert_status allocate_by_rank(rank_run *run) {
  const size_t *sizes = run->user;
  run->memory = run;
  return moert_symmetric_alloc(run->comm, sizes[run->rank], &run->memory);
}

static void sizes_that_differ(void **state) {
  (void)state;
  moert_comm *comms[4];
  rank_run runs[4];
  assert_ok(moert_comm_create_threads(4, NULL, comms));
  run_ranks(runs, comms, 4, allocate_by_rank, (size_t[]){256, 512, 256, 1024});
  for (int32_t r = 0; r < 4; ++r) {
    assert_int_equal(runs[r].status, MOERT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(runs[r].error, "symmetric memory must have one size: rank 0 asked for 256, but rank 1 for 512, rank 3 for 1024");
    assert_ptr_equal(runs[r].memory, &runs[r]);
    assert_ok(moert_comm_status(comms[r]));
  }
  // All failed alike, so that the call can be repeated.
  run_ranks(runs, comms, 4, allocate_by_rank, (size_t[]){64, 64, 64, 64});
  for (int32_t r = 0; r < 4; ++r) assert_string_equal(runs[r].error, "");
  destroy_ranks(comms, 4);
}

static moert_status allocate_without_memory(rank_run *run) {
  const int *callocs = run->user;
  if (run->rank == 1) callocs_until_failure = *callocs;
  return moert_symmetric_alloc(run->comm, 4096, &run->memory);
}

static void rank_without_memory(void **state) {
  (void)state;
  for (int callocs = 0; callocs < 2; ++callocs) {
    moert_comm *comms[3];
    rank_run runs[3];
    assert_ok(moert_comm_create_threads(3, NULL, comms));
    run_ranks(runs, comms, 3, allocate_without_memory, &callocs);
    for (int32_t r = 0; r < 3; ++r) {
      assert_int_equal(runs[r].status, MOERT_ERROR_OUT_OF_MEMORY);
      assert_string_equal(runs[r].error, "rank 1 has no memory for 4096 bytes of symmetric memory");
      assert_ok(moert_comm_status(comms[r]));
    }
    destroy_ranks(comms, 3);
  }
}

static void size_without_end(void **state) {
  (void)state;
  moert_comm *comm;
  void *memory = NULL;
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  assert_fails(moert_symmetric_alloc(comm, SIZE_MAX, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "rank 0 has no memory for 18446744073709551615 bytes of symmetric memory");
  assert_fails(moert_symmetric_alloc(comm, SIZE_MAX / 2, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "rank 0 has no memory for 9223372036854775807 bytes of symmetric memory");
  assert_null(memory);
  assert_fails(moert_symmetric_alloc(comm, 8, NULL), MOERT_ERROR_NULL_POINTER, "memory is NULL");
  assert_ok(moert_symmetric_alloc(comm, 0, &memory));
  assert_non_null(memory);
  moert_comm_destroy(comm);
}

static void peers_of_addresses(void **state) {
  (void)state;
  moert_comm *comm;
  unsigned char *first, *second;
  void *peers[MOERT_MAX_RANKS];
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  assert_ok(moert_symmetric_alloc(comm, 100, (void **)&first));
  assert_ok(moert_symmetric_alloc(comm, 300, (void **)&second));
  assert_ok(moert__symmetric_peers(comm, first, 100, peers));
  assert_ptr_equal(peers[0], first);
  assert_ok(moert__symmetric_peers(comm, second + 299, 1, peers));
  assert_ptr_equal(peers[0], second + 299);
  assert_ok(moert__symmetric_peers(comm, first + 100, 0, peers));
  int other;
  const struct {
    const void *memory;
    size_t bytes;
  } outside[] = {{first, 101}, {first + 99, 2}, {first + 101, 0}, {second + 1, SIZE_MAX}, {&other, sizeof other}, {NULL, 1}};
  for (size_t i = 0; i < COUNT(outside); ++i) {
    char text[128];
    snprintf(text, sizeof text, "%zu bytes at %p do not lie in one block of symmetric memory of rank 0", outside[i].bytes, outside[i].memory);
    assert_fails(moert__symmetric_peers(comm, outside[i].memory, outside[i].bytes, peers), MOERT_ERROR_INVALID_MEMORY, text);
  }
  assert_fails(moert_symmetric_free(comm, first + 1), MOERT_ERROR_INVALID_ARGUMENT, "memory is not what moert_symmetric_alloc gave to rank 0");
  assert_ok(moert_symmetric_free(comm, NULL));
  assert_ok(moert_symmetric_free(comm, first));
  assert_fails(moert_symmetric_free(comm, first), MOERT_ERROR_INVALID_ARGUMENT, "memory is not what moert_symmetric_alloc gave to rank 0");
  assert_ok(moert__symmetric_peers(comm, second, 300, peers));
  moert_comm_destroy(comm);
}

static moert_status free_the_other(rank_run *run) {
  void *memory[2];
  for (int i = 0; i < 2; ++i) {
    moert_status status = moert_symmetric_alloc(run->comm, 64, &memory[i]);
    if (status) return status;
  }
  return moert_symmetric_free(run->comm, memory[run->rank == 1]);
}

static void frees_that_differ(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  run_ranks(runs, comms, 3, free_the_other, NULL);
  for (int32_t r = 0; r < 3; ++r) {
    assert_int_equal(runs[r].status, MOERT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(runs[r].error, "all ranks must free the same memory: rank 0 gave back allocation 1, but rank 1 allocation 2");
  }
  destroy_ranks(comms, 3);
}

static moert_status allocate_and_leave(rank_run *run) {
  moert_status status = moert_symmetric_alloc(run->comm, 64, &run->memory);
  void *peers[MOERT_MAX_RANKS];
  if (!status) status = moert__symmetric_peers(run->comm, run->memory, 64, peers);
  if (!status && run->rank == 0) run->memory = peers[1];
  if (!status && run->rank == 1) moert_comm_destroy(run->comm);
  return status;
}

static void memory_outlives_its_rank(void **state) {
  (void)state;
  moert_comm *comms[2];
  rank_run runs[2];
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  run_ranks(runs, comms, 2, allocate_and_leave, NULL);
  memset(runs[0].memory, 1, 64); // rank 1's memory, after it has left
  moert_comm_destroy(comms[0]);
}

//===--- mismatch ---------------------------------------------------------------------------------===//

static moert_status barrier_or_alloc(rank_run *run) {
  void *memory;
  return run->rank == 0 ? moert_comm_barrier(run->comm, 60000) : moert_symmetric_alloc(run->comm, 64, &memory);
}

static void different_collectives(void **state) {
  (void)state;
  moert_comm *comms[2];
  rank_run runs[2];
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  run_ranks(runs, comms, 2, barrier_or_alloc, NULL);
  assert_int_equal(runs[0].status, MOERT_ERROR_PEER_MISMATCH);
  assert_string_equal(runs[0].error,
                      "rank 1 called another op or used other parameters than rank 0 (at a barrier, epoch 1): hash 00000002, must be 00000001");
  assert_int_equal(runs[1].status, MOERT_ERROR_PEER_MISMATCH);
  assert_string_equal(
      runs[1].error,
      "rank 0 called another op or used other parameters than rank 1 (in moert_symmetric_alloc, epoch 1): hash 00000001, must be 00000002");
  assert_int_equal(moert_comm_status(comms[0]), MOERT_ERROR_PEER_MISMATCH);
  assert_int_equal(moert_comm_status(comms[1]), MOERT_ERROR_PEER_MISMATCH);
  destroy_ranks(comms, 2);
}

//===--- waiting for a word -----------------------------------------------------------------------===//

typedef struct pair {
  moert_comm *comms[2];
  moert_context *context; // of rank 0
} pair;

static pair create_pair(int64_t timeout_ms) {
  pair made;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  assert_ok(moert_comm_create_threads(2, NULL, made.comms));
  assert_ok(moert_context_create(made.comms[0], &options, &made.context));
  return made;
}

static void destroy_pair(pair *made) {
  moert_context_destroy(made->context);
  destroy_ranks(made->comms, 2);
}

static void epochs_wrap(void **state) {
  (void)state;
  static const struct {
    uint32_t word, epoch;
    bool exact, reached;
  } rows[] = {
      {5, 5, false, true},
      {6, 5, false, true},
      {4, 5, false, false},
      {0, UINT32_MAX, false, true},
      {UINT32_MAX, 0, false, false},
      {3, 1, false, true},
      {UINT32_MAX, UINT32_MAX, false, true},
      {UINT32_MAX - 1, UINT32_MAX, false, false},
      {2, UINT32_MAX - 2, false, true},
      {UINT32_MAX - 2, 2, false, false},
      {0x80000000, 1, false, true},
      {0x80000001, 1, false, false},
      {0, 0, false, true},
      {5, 5, true, true},
      {6, 5, true, false},
      {4, 5, true, false},
      {0, UINT32_MAX, true, false},
      {0, 0, true, true},
      {0x7fffffff, 0x80000001, true, false},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    pair made = create_pair(1);
    _Atomic uint32_t word = rows[i].word;
    moert__wait wait = {&word, rows[i].epoch, 1, "its data", NULL, 0, rows[i].exact};
    assert_int_equal(moert__wait_for(made.context, &wait, moert__deadline_ns(made.context)), rows[i].reached ? MOERT_OK : MOERT_ERROR_PEER_TIMEOUT);
    destroy_pair(&made);
  }
}

static void wait_times_out(void **state) {
  (void)state;
  pair made = create_pair(30);
  _Atomic uint32_t word = 4;
  moert__wait wait = {&word, 5, 1, "its data", NULL, 0, false};
  moert__enter_op("moe.dispatch");
  int64_t deadline = moert__deadline_ns(made.context);
  assert_fails(moert__wait_for(made.context, &wait, deadline), MOERT_ERROR_PEER_TIMEOUT,
               "moe.dispatch: rank 0 waited 30 ms for rank 1 (its data, epoch 5)");
  moert__enter_op(NULL);
  assert_true(moert__deadline_ns(made.context) - deadline >= 30 * 1000000);
  assert_int_equal(moert_comm_status(made.comms[0]), MOERT_ERROR_PEER_TIMEOUT);
  assert_int_equal(moert_context_status(made.context), MOERT_ERROR_PEER_TIMEOUT);
  assert_ok(moert_comm_status(made.comms[1]));
  destroy_pair(&made);
}

static void wait_finds_mismatch(void **state) {
  (void)state;
  for (uint32_t arrived = 4; arrived <= 5; ++arrived) { // also when the word has come already
    pair made = create_pair(60000);
    _Atomic uint32_t word = arrived;
    _Atomic uint64_t announced = UINT64_C(0xabcd) << 32 | 5;
    moert__wait wait = {&word, 5, 1, "its counts", &announced, UINT64_C(0xdcba) << 32 | 5, false};
    assert_fails(moert__wait_for(made.context, &wait, moert__deadline_ns(made.context)), MOERT_ERROR_PEER_MISMATCH,
                 "rank 1 called another op or used other parameters than rank 0 (its counts, epoch 5): hash 0000abcd, must be 0000dcba");
    assert_int_equal(moert_comm_status(made.comms[0]), MOERT_ERROR_PEER_MISMATCH);
    destroy_pair(&made);
  }
}

static void announcement_of_another_epoch(void **state) {
  (void)state;
  pair made = create_pair(60000);
  _Atomic uint32_t word = 5;
  _Atomic uint64_t announced = UINT64_C(0xabcd) << 32 | 6;
  moert__wait wait = {&word, 5, 1, "its counts", &announced, UINT64_C(0xdcba) << 32 | 5, false};
  assert_ok(moert__wait_for(made.context, &wait, moert__deadline_ns(made.context)));
  destroy_pair(&made);
}

static void peer_that_failed_after_its_part(void **state) {
  (void)state;
  pair made = create_pair(60000);
  _Atomic uint32_t word = 5;
  moert__wait wait = {&word, 5, 1, "its data", NULL, 0, false};
  moert_comm_report(made.comms[1], MOERT_ERROR_CAPACITY);
  assert_ok(moert__wait_for(made.context, &wait, moert__deadline_ns(made.context)));
  wait.epoch = 6;
  assert_fails(moert__wait_for(made.context, &wait, moert__deadline_ns(made.context)), MOERT_ERROR_PEER_FAILED,
               "rank 1 reported MOERT_ERROR_CAPACITY while rank 0 waited for it (its data, epoch 6)");
  destroy_pair(&made);
}

typedef struct late_word {
  _Atomic uint32_t *word;
  int data;
} late_word;

static void *write_late(void *argument) {
  late_word *late = argument;
  struct timespec time = {0, 20 * 1000000};
  nanosleep(&time, NULL);
  late->data = 42;
  atomic_store_explicit(late->word, 5, memory_order_release);
  return NULL;
}

static void word_comes_late(void **state) {
  (void)state;
  pair made = create_pair(60000);
  _Atomic uint32_t word = 0;
  late_word late = {&word, 0};
  moert__wait wait = {&word, 5, 1, "its data", NULL, 0, false};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, write_late, &late), 0);
  assert_ok(moert__wait_for(made.context, &wait, moert__deadline_ns(made.context)));
  assert_int_equal(late.data, 42);
  assert_int_equal(pthread_join(thread, NULL), 0);
  destroy_pair(&made);
}

//===--- dump -------------------------------------------------------------------------------------===//

typedef struct lines {
  int count;
  char text[4][256];
} lines;

static void keep_line(void *user, const char *line) {
  lines *kept = user;
  if (kept->count < 4) snprintf(kept->text[kept->count], sizeof kept->text[0], "%s", line);
  kept->count++;
}

static lines dump(const moert_comm *comm) {
  lines kept = {0};
  moert_comm_dump(comm, keep_line, &kept);
  return kept;
}

static moert_status patient_barrier(rank_run *run) {
  moert__enter_op("moe.initialize");
  moert_status status = moert_comm_barrier(run->comm, 60000);
  moert__enter_op(NULL);
  return status;
}

static void dump_of_a_hang(void **state) {
  (void)state;
  static const char expected[] = "rank 1 of 2: no error, waits for rank 0 (at a barrier, epoch 1) in moe.initialize since ";
  moert_comm *comms[2];
  rank_run run;
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  lines before = dump(comms[0]);
  assert_int_equal(before.count, 2);
  assert_string_equal(before.text[0], "rank 0 of 2: no error, not waiting, 0 meetings");
  assert_string_equal(before.text[1], "rank 1 of 2: no error, not waiting, 0 meetings");
  start_rank(&run, comms[1], patient_barrier, NULL);
  lines during = {0};
  while (strncmp(during.text[1], expected, strlen(expected)) != 0) {
    usleep(1000);
    during = dump(comms[0]);
  }
  assert_string_equal(during.text[0], "rank 0 of 2: no error, not waiting, 0 meetings");
  assert_non_null(strstr(during.text[1], " ms, 1 meetings"));
  assert_ok(moert_comm_barrier(comms[0], 60000));
  finish_rank(&run);
  assert_ok(run.status);
  lines after = dump(comms[1]);
  assert_string_equal(after.text[0], "rank 0 of 2: no error, not waiting, 1 meetings");
  assert_string_equal(after.text[1], "rank 1 of 2: no error, not waiting, 1 meetings");
  moert_comm_dump(comms[0], NULL, NULL);
  destroy_ranks(comms, 2);
}

static void dump_after_an_error(void **state) {
  (void)state;
  moert_comm *comms[2];
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  assert_int_equal(moert_comm_barrier(comms[0], 1), MOERT_ERROR_PEER_TIMEOUT);
  moert_comm_report(comms[1], MOERT_ERROR_DATA);
  lines kept = dump(comms[1]);
  assert_string_equal(kept.text[0], "rank 0 of 2: MOERT_ERROR_PEER_TIMEOUT, last waited for rank 1 (at a barrier, epoch 1), 1 meetings");
  assert_string_equal(kept.text[1], "rank 1 of 2: MOERT_ERROR_DATA, not waiting, 0 meetings");
  destroy_ranks(comms, 2);
}

// For the thread sanitizer: dumps while ranks enter and leave waits.
static void dump_of_running_ranks(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  barrier_test test = {.rounds = 200};
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  for (int32_t r = 0; r < 3; ++r) start_rank(&runs[r], comms[r], count_rounds, &test);
  for (int i = 0; i < 200; ++i) assert_int_equal(dump(comms[i % 3]).count, 3);
  for (int32_t r = 0; r < 3; ++r) {
    finish_rank(&runs[r]);
    assert_string_equal(runs[r].error, "");
  }
  destroy_ranks(comms, 3);
}

//===--- life ---------------------------------------------------------------------------------------===//

static moert_status live_and_leave(rank_run *run) {
  void *memory;
  moert_context *context = NULL;
  moert_status status = moert_context_create(run->comm, NULL, &context);
  if (!status) status = moert_symmetric_alloc(run->comm, 4096, &memory);
  if (!status) status = moert_context_allocate(context, 5000, &memory);
  if (!status) status = moert_comm_barrier(run->comm, 60000);
  moert_context_destroy(context);
  moert_comm_destroy(run->comm); // while peers may still be at the barrier
  return status;
}

static void many_lives(void **state) {
  (void)state;
  for (int life = 0; life < 1000; ++life) {
    moert_comm *comms[4];
    rank_run runs[4];
    assert_ok(moert_comm_create_threads(4, NULL, comms));
    run_ranks(runs, comms, 4, live_and_leave, NULL);
    for (int32_t r = 0; r < 4; ++r) assert_string_equal(runs[r].error, "");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(create),
      cmocka_unit_test(create_refuses),
      cmocka_unit_test(null_handles),
      cmocka_unit_test(timeout_of_the_environment),
      cmocka_unit_test(barrier),
      cmocka_unit_test(barrier_refuses),
      cmocka_unit_test(missing_rank),
      cmocka_unit_test(reported_error),
      cmocka_unit_test(noted_errors),
      cmocka_unit_test(symmetric_memory),
      cmocka_unit_test(votes_without_a_pause),
      cmocka_unit_test(sizes_that_differ),
      cmocka_unit_test(rank_without_memory),
      cmocka_unit_test(size_without_end),
      cmocka_unit_test(peers_of_addresses),
      cmocka_unit_test(frees_that_differ),
      cmocka_unit_test(memory_outlives_its_rank),
      cmocka_unit_test(different_collectives),
      cmocka_unit_test(epochs_wrap),
      cmocka_unit_test(wait_times_out),
      cmocka_unit_test(wait_finds_mismatch),
      cmocka_unit_test(announcement_of_another_epoch),
      cmocka_unit_test(peer_that_failed_after_its_part),
      cmocka_unit_test(word_comes_late),
      cmocka_unit_test(dump_of_a_hang),
      cmocka_unit_test(dump_after_an_error),
      cmocka_unit_test(dump_of_running_ranks),
      cmocka_unit_test(many_lives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

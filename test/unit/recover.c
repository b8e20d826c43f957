//===- recover.c - going on without ranks, and errors of kernels ------------------------------------===//

#include "support.h"
#include "lib/runtime/internal.h"

#include <time.h>
#include <unistd.h>

enum { PATIENT_MS = 60000 };

static void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

//===--- recovering -------------------------------------------------------------------------------===//

// Every survivor writes its number to every survivor's memory, and finds those of all.
static moert_status exchange(rank_run *run) {
  int32_t *memory = NULL;
  void *peers[MOERT_MAX_RANKS];
  uint64_t mask = moert_comm_mask(run->comm);
  moert_status status = moert_symmetric_alloc(run->comm, MOERT_MAX_RANKS * sizeof *memory, (void **)&memory);
  if (!status) status = moert__symmetric_peers(run->comm, memory, MOERT_MAX_RANKS * sizeof *memory, peers);
  if (!status) status = moert_comm_barrier(run->comm, PATIENT_MS);
  for (int32_t r = 0; r < run->size && !status; ++r) {
    bool lives = mask >> r & 1;
    if (lives != (peers[r] != NULL)) return moert__fail(MOERT_ERROR_DATA, "address of rank %d is %p", (int)r, peers[r]);
    if (lives) ((int32_t *)peers[r])[run->rank] = run->rank + 1;
  }
  if (!status) status = moert_comm_barrier(run->comm, PATIENT_MS);
  for (int32_t r = 0; r < run->size && !status; ++r)
    if (memory[r] != (mask >> r & 1 ? r + 1 : 0)) return moert__fail(MOERT_ERROR_DATA, "word of rank %d is %d", (int)r, (int)memory[r]);
  return status ? status : moert_symmetric_free(run->comm, memory);
}

static moert_status fail_and_recover(rank_run *run) {
  if (run->rank == 1) moert_comm_report(run->comm, MOERT_ERROR_DATA);
  moert_status status = run->rank == 1 ? MOERT_OK : moert_comm_barrier(run->comm, PATIENT_MS);
  if (status != (run->rank == 1 ? MOERT_OK : MOERT_ERROR_PEER_FAILED)) return status ? status : MOERT_ERROR_INTERNAL;
  status = moert_comm_recover(run->comm, moert_comm_mask(run->comm), PATIENT_MS);
  if (!status) status = moert_comm_status(run->comm);
  return status ? status : exchange(run);
}

// The ranks have had different numbers of meetings: rank 1 was at none.
static void all_go_on(void **state) {
  (void)state;
  for (int32_t size = 2; size <= MOERT_MAX_RANKS; size *= 2) {
    moert_comm *comms[MOERT_MAX_RANKS];
    rank_run runs[MOERT_MAX_RANKS];
    assert_ok(moert_comm_create_threads(size, NULL, comms));
    for (int round = 0; round < 3; ++round) {
      run_ranks(runs, comms, size, fail_and_recover, NULL);
      for (int32_t r = 0; r < size; ++r) {
        assert_string_equal(runs[r].error, "");
        assert_ok(moert_comm_check(comms[r]));
        assert_int_equal(moert__comm_recoveries(comms[r]), round + 1);
        assert_true(moert_comm_mask(comms[r]) == UINT64_MAX >> (64 - size));
      }
    }
    destroy_ranks(comms, size);
  }
}

static moert_status alone(rank_run *run) {
  moert_comm_report(run->comm, MOERT_ERROR_CAPACITY);
  moert_status status = moert_comm_recover(run->comm, 1, 0);
  return status ? status : exchange(run);
}

static void one_rank(void **state) {
  (void)state;
  moert_comm *comm;
  rank_run run;
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  run_ranks(&run, &comm, 1, alone, NULL);
  assert_string_equal(run.error, "");
  moert_comm_destroy(comm);
}

// Ranks leave from the highest down; those that remain recover as soon as one is missing.
static moert_status one_fewer_each_time(rank_run *run) {
  for (int32_t living = run->size; living > 1; --living) {
    moert_status status = exchange(run);
    if (status) return status;
    if (run->rank == living - 1) {
      moert_comm_report(run->comm, MOERT_ERROR_DATA);
      return MOERT_OK;
    }
    status = moert_comm_barrier(run->comm, PATIENT_MS);
    if (status != MOERT_ERROR_PEER_FAILED) return moert__fail(MOERT_ERROR_INTERNAL, "barrier without rank %d: %d", (int)living - 1, (int)status);
    status = moert_comm_recover(run->comm, (UINT64_C(1) << (living - 1)) - 1, PATIENT_MS);
    if (status) return status;
  }
  return exchange(run);
}

static void shrinking(void **state) {
  (void)state;
  enum { SIZE = 7 };
  moert_comm *comms[SIZE];
  rank_run runs[SIZE];
  assert_ok(moert_comm_create_threads(SIZE, NULL, comms));
  run_ranks(runs, comms, SIZE, one_fewer_each_time, NULL);
  for (int32_t r = 0; r < SIZE; ++r) assert_string_equal(runs[r].error, "");
  assert_true(moert_comm_mask(comms[0]) == 1);
  destroy_ranks(comms, SIZE);
}

//===--- a rank that is left out ------------------------------------------------------------------===//

// Rank 1 is late: the others time out, and go on without it while it waits for them.
static moert_status leave_rank_1_out(rank_run *run) {
  if (run->rank == 1) {
    sleep_ms(400);
    return moert_comm_barrier(run->comm, PATIENT_MS);
  }
  moert_status status = moert_comm_barrier(run->comm, 100);
  if (status != MOERT_ERROR_PEER_TIMEOUT) return MOERT_ERROR_INTERNAL;
  sleep_ms(600); // rank 1 waits now: it finds this meeting complete, but for a rank that stands in error
  status = moert_comm_recover(run->comm, 0x5, PATIENT_MS);
  return status ? status : exchange(run);
}

static void left_out(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  run_ranks(runs, comms, 3, leave_rank_1_out, NULL);
  assert_string_equal(runs[0].error, "");
  assert_string_equal(runs[2].error, "");
  assert_true(moert_comm_mask(comms[0]) == 5);
  assert_true(moert_comm_mask(comms[2]) == 5);
  void *memory;
  char text[160];
  assert_int_equal(moert_comm_status(comms[1]), MOERT_ERROR_PEER_FAILED);
  moert_status status = moert_comm_barrier(comms[1], PATIENT_MS);
  assert_int_equal(status, MOERT_ERROR_PEER_FAILED);
  snprintf(text, sizeof text, "%s", moert_last_error());
  assert_true(!strcmp(text, "rank 1 was left out by rank 0, which went on without it (moert_comm_recover)") ||
              !strcmp(text, "rank 1 was left out by rank 2, which went on without it (moert_comm_recover)"));
  assert_fails(moert_symmetric_alloc(comms[1], 8, &memory), MOERT_ERROR_PEER_FAILED, text);
  assert_fails(moert_comm_recover(comms[1], 7, PATIENT_MS), MOERT_ERROR_PEER_FAILED, text);
  assert_fails(moert_comm_check(comms[1]), MOERT_ERROR_PEER_FAILED, text);
  assert_fails(moert_comm_recover(comms[0], 7, PATIENT_MS), MOERT_ERROR_INVALID_ARGUMENT, "mask is 0x7, must have no ranks but those that live, 0x5");
  destroy_ranks(comms, 3);
}

// Rank 2 waits for ranks that go on without it: at a barrier, or because it wants to recover with all.
static moert_status wait_for_those_who_leave(rank_run *run) {
  const bool *recovers = run->user;
  if (run->rank == 2) return *recovers ? moert_comm_recover(run->comm, 0x7, PATIENT_MS) : moert_comm_barrier(run->comm, PATIENT_MS);
  sleep_ms(50);
  return moert_comm_recover(run->comm, 0x3, PATIENT_MS);
}

static void left_out_while_waiting(void **state) {
  (void)state;
  for (int recovers = 0; recovers < 2; ++recovers) {
    moert_comm *comms[3];
    rank_run runs[3];
    bool choice = recovers;
    int64_t begin = now_ms();
    assert_ok(moert_comm_create_threads(3, NULL, comms));
    run_ranks(runs, comms, 3, wait_for_those_who_leave, &choice);
    for (int r = 0; r < 2; ++r) assert_string_equal(runs[r].error, ""); // they do not ask what rank 2 wants
    bool told = runs[2].status == MOERT_ERROR_PEER_FAILED || (recovers && runs[2].status == MOERT_ERROR_PEER_MISMATCH);
    assert_true(told);
    assert_true(now_ms() - begin < PATIENT_MS / 2);
    destroy_ranks(comms, 3);
  }
}

//===--- masks ------------------------------------------------------------------------------------===//

static void masks_that_are_refused(void **state) {
  (void)state;
  moert_comm *comms[2];
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  assert_fails(moert_comm_recover(NULL, 1, 0), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_fails(moert_comm_recover(comms[0], 0, 0), MOERT_ERROR_INVALID_ARGUMENT, "mask is 0x0, must have this rank, 0");
  assert_fails(moert_comm_recover(comms[1], 1, 0), MOERT_ERROR_INVALID_ARGUMENT, "mask is 0x1, must have this rank, 1");
  assert_fails(moert_comm_recover(comms[0], 5, 0), MOERT_ERROR_INVALID_ARGUMENT, "mask is 0x5, must have no ranks but those that live, 0x3");
  assert_fails(moert_comm_recover(comms[0], 3, -1), MOERT_ERROR_INVALID_ARGUMENT, "timeout_ms is -1, must be in [0, 1000000000000]");
  assert_ok(moert_comm_status(comms[0]));
  assert_true(moert_comm_mask(comms[0]) == 3);
  assert_true(moert_comm_mask(NULL) == 0);
  destroy_ranks(comms, 2);
}

static moert_status recover_by_rank(rank_run *run) {
  const uint64_t *masks = run->user;
  return moert_comm_recover(run->comm, masks[run->rank], PATIENT_MS);
}

static moert_status recover_until_agreed(rank_run *run) {
  const uint64_t *masks = run->user;
  moert_status status = moert_comm_recover(run->comm, masks[run->rank], PATIENT_MS);
  if (status == MOERT_ERROR_PEER_MISMATCH) status = moert_comm_recover(run->comm, 0x7, PATIENT_MS);
  return status ? status : exchange(run);
}

static void masks_that_differ(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  run_ranks(runs, comms, 3, recover_by_rank, (uint64_t[]){0x7, 0x3, 0x7});
  assert_string_equal(runs[0].error, "rank 1 recovers with mask 0x3, rank 0 with mask 0x7");
  assert_string_equal(runs[1].error, "rank 0 recovers with mask 0x7, rank 1 with mask 0x3");
  assert_string_equal(runs[2].error, "rank 1 recovers with mask 0x3, rank 2 with mask 0x7");
  for (int r = 0; r < 3; ++r) {
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_MISMATCH);
    assert_int_equal(moert_comm_status(comms[r]), MOERT_ERROR_PEER_MISMATCH);
    assert_int_equal(moert__comm_recoveries(comms[r]), 0);
    assert_true(moert_comm_mask(comms[r]) == 0x7);
  }
  destroy_ranks(comms, 3);
}

// One rank first names another mask. Those who meet it there return, and come again; all agree in the end.
static void masks_that_are_corrected(void **state) {
  (void)state;
  for (int round = 0; round < 100; ++round) {
    moert_comm *comms[3];
    rank_run runs[3];
    assert_ok(moert_comm_create_threads(3, NULL, comms));
    run_ranks(runs, comms, 3, recover_until_agreed, (uint64_t[]){0x7, round % 2 ? 0x3 : 0x7, 0x7});
    for (int r = 0; r < 3; ++r) {
      assert_string_equal(runs[r].error, "");
      assert_ok(moert_comm_status(comms[r]));
    }
    destroy_ranks(comms, 3);
  }
}

static moert_status recover_shortly(rank_run *run) { return moert_comm_recover(run->comm, 0x7, 200); }

static void nobody_comes(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  moert_comm_report(comms[1], MOERT_ERROR_DATA);
  run_ranks(runs, comms, 2, recover_shortly, NULL);
  assert_int_equal(runs[0].status, MOERT_ERROR_PEER_TIMEOUT);
  assert_string_equal(runs[0].error, "rank 0 waited 200 ms for rank 2 (in moert_comm_recover, epoch 1)");
  assert_string_equal(runs[1].error, "rank 1 waited 200 ms for rank 2 (in moert_comm_recover, epoch 1)");
  assert_int_equal(moert_comm_status(comms[0]), MOERT_ERROR_PEER_TIMEOUT);
  assert_int_equal(moert_comm_status(comms[1]), MOERT_ERROR_DATA); // the first error stays
  assert_int_equal(moert__comm_recoveries(comms[1]), 0);
  run_ranks(runs, comms, 3, recover_by_rank, (uint64_t[]){7, 7, 7}); // and later they do
  for (int r = 0; r < 3; ++r) assert_string_equal(runs[r].error, "");
  run_ranks(runs, comms, 3, exchange, NULL);
  for (int r = 0; r < 3; ++r) assert_string_equal(runs[r].error, "");
  destroy_ranks(comms, 3);
}

//===--- memory from before -----------------------------------------------------------------------===//

static moert_status keep_memory(rank_run *run) {
  void *peers[MOERT_MAX_RANKS], *note;
  moert_status status = moert_symmetric_alloc(run->comm, 512, &run->memory);
  if (!status) status = moert__symmetric_make_note(run->comm, (char *)run->memory + 256, &note);
  if (run->rank == 2) return MOERT_OK; // if it is slow, it finds itself left out already
  if (status) return status;
  memset(run->memory, 0x5a, 512);
  status = moert_comm_recover(run->comm, 0x3, PATIENT_MS);
  if (!status) status = moert__symmetric_peers(run->comm, run->memory, 512, peers);
  if (!status && (!peers[0] || !peers[1] || !peers[2])) return moert__fail(MOERT_ERROR_DATA, "memory from before the recovery has lost a rank");
  for (int i = 0; i < 512 && !status; ++i)
    if (((unsigned char *)peers[1 - run->rank])[i] != 0x5a) return moert__fail(MOERT_ERROR_DATA, "byte %d was changed", i);
  if (!status && moert__symmetric_note(run->comm, (char *)run->memory + 256) != note) return moert__fail(MOERT_ERROR_DATA, "the note is gone");
  if (!status) status = moert_comm_barrier(run->comm, PATIENT_MS); // the peer has compared
  return status ? status : moert_symmetric_free(run->comm, run->memory);
}

static void memory_stays(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  run_ranks(runs, comms, 3, keep_memory, NULL);
  for (int r = 0; r < 3; ++r) assert_string_equal(runs[r].error, "");
  destroy_ranks(comms, 3);
}

static void notes(void **state) {
  (void)state;
  moert_comm *comm;
  unsigned char *memory;
  void *note, *other, *again;
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  assert_ok(moert_symmetric_alloc(comm, 512, (void **)&memory));
  assert_null(moert__symmetric_note(comm, memory));
  assert_ok(moert__symmetric_make_note(comm, memory, &note));
  assert_ok(moert__symmetric_make_note(comm, memory + 511, &other));
  assert_ptr_not_equal(note, other);
  assert_int_equal((uintptr_t)note % 16, 0);
  for (int i = 0; i < MOERT__NOTE_BYTES; ++i) assert_int_equal(((unsigned char *)note)[i], 0);
  memset(note, 7, MOERT__NOTE_BYTES);
  assert_ok(moert__symmetric_make_note(comm, memory, &again));
  assert_ptr_equal(again, note);
  assert_int_equal(*(unsigned char *)again, 7);
  assert_ptr_equal(moert__symmetric_note(comm, memory), note);
  assert_ptr_equal(moert__symmetric_note(comm, memory + 511), other);
  assert_null(moert__symmetric_note(comm, memory + 1));
  assert_null(moert__symmetric_note(comm, memory + 512));
  assert_null(moert__symmetric_note(comm, &comm));
  char text[128];
  snprintf(text, sizeof text, "1 bytes at %p do not lie in one block of symmetric memory of rank 0", (void *)(memory + 512));
  assert_fails(moert__symmetric_make_note(comm, memory + 512, &again), MOERT_ERROR_INVALID_MEMORY, text);
  assert_ok(moert_symmetric_free(comm, memory));
  assert_null(moert__symmetric_note(comm, memory));
  moert_comm_destroy(comm);
}

//===--- what kernels report ----------------------------------------------------------------------===//

static void watched_words(void **state) {
  (void)state;
  moert_comm *comms[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  for (int r = 0; r < 3; ++r) {
    moert__watch watch = moert__comm_watch(comms[r]);
    assert_int_equal(watch.rank, r);
    assert_int_equal(watch.ranks, 3);
    assert_ptr_equal(watch.failed, watch.statuses + r * watch.stride + 1);
    for (int i = 0; i < 2; ++i) assert_int_equal(watch.statuses[r * watch.stride + i], 0);
    moert_comm_report(comms[r], MOERT_ERROR_CAPACITY);
    assert_int_equal(watch.statuses[r * watch.stride], MOERT_ERROR_CAPACITY);
  }
  destroy_ranks(comms, 3);
}

static void kernel_that_failed(void **state) {
  (void)state;
  moert_comm *comms[2];
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  *moert__comm_watch(comms[1]).failed = 1;
  assert_fails(moert_comm_barrier(comms[0], PATIENT_MS), MOERT_ERROR_PEER_FAILED,
               "rank 1 reported an error while rank 0 waited for it (at a barrier, epoch 1)");
  destroy_ranks(comms, 2);
}

static void faults(void **state) {
  (void)state;
  static const char text[] = "moe.dispatch: rank 0 waited 30 ms for rank 1 (its data, epoch 9)";
  moert_comm *comm;
  moert__fault *local, *shared;
  assert_fails(moert_comm_check(NULL), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  assert_ok(moert__comm_create_fault(comm, &local));
  assert_ok(moert__comm_create_fault(comm, &shared));
  assert_ok(moert_comm_check(comm));
  *local = (moert__fault){.kind = MOERT__FAULT_OFFSET_NEGATIVE, .op = MOERT__OP_MOE_GROUPED_MATMUL, .values = {3, -7}};
  assert_fails(moert_comm_check(comm), MOERT_ERROR_DATA, "moe.grouped_matmul: offsets[3] is -7, must not be negative");
  assert_ok(moert_comm_status(comm)); // nothing that peers feel
  assert_ok(moert_comm_barrier(comm, PATIENT_MS));
  *shared = (moert__fault){.kind = MOERT__FAULT_TIMEOUT, .op = MOERT__OP_MOE_DISPATCH, .values = {0, 30, 1, MOERT__AWAITED_DATA, 9}};
  assert_fails(moert_comm_barrier(comm, PATIENT_MS), MOERT_ERROR_PEER_TIMEOUT, text);
  assert_int_equal(moert_comm_status(comm), MOERT_ERROR_PEER_TIMEOUT);
  moert__comm_destroy_fault(comm, local); // with what nobody has looked at
  assert_fails(moert_comm_check(comm), MOERT_ERROR_PEER_TIMEOUT, text);
  assert_ok(moert_comm_recover(comm, 1, PATIENT_MS));
  assert_int_equal(shared->kind, MOERT__FAULT_NONE);
  assert_ok(moert_comm_check(comm));
  assert_ok(moert_comm_barrier(comm, PATIENT_MS));
  moert_comm_report(comm, MOERT_ERROR_DATA);
  assert_fails(moert_comm_check(comm), MOERT_ERROR_DATA,
               "rank 0 stands in error since an earlier call: MOERT_ERROR_DATA (a tensor holds values that the op cannot work on)");
  moert__comm_destroy_fault(comm, NULL);
  moert__comm_destroy_fault(comm, shared);
  moert_comm_destroy(comm);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_go_on),
      cmocka_unit_test(one_rank),
      cmocka_unit_test(shrinking),
      cmocka_unit_test(left_out),
      cmocka_unit_test(left_out_while_waiting),
      cmocka_unit_test(masks_that_are_refused),
      cmocka_unit_test(masks_that_differ),
      cmocka_unit_test(masks_that_are_corrected),
      cmocka_unit_test(nobody_comes),
      cmocka_unit_test(memory_stays),
      cmocka_unit_test(notes),
      cmocka_unit_test(watched_words),
      cmocka_unit_test(kernel_that_failed),
      cmocka_unit_test(faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

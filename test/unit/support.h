//===- support.h - what the unit tests share --------------------------------------------------------===//
#ifndef MOERT_TEST_SUPPORT_H
#define MOERT_TEST_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <moert/moert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// The status and the whole text of the last error.
#define assert_fails(call, expected, text)                                                                                                           \
  do {                                                                                                                                               \
    assert_string_equal(moert_status_name(call), #expected);                                                                                         \
    assert_string_equal(moert_last_error(), text);                                                                                                   \
  } while (0)
#define assert_ok(call) assert_string_equal(moert_status_name(call), "MOERT_OK")

// One rank in its own thread. Assertions are for the main thread: a rank leaves what it met here.
typedef struct rank_run {
  moert_comm *comm;
  int32_t rank, size;
  void *user;
  moert_status status;
  char error[2048];
  void *memory;
  pthread_t thread;
  moert_status (*body)(struct rank_run *run);
} rank_run;

static inline void *rank_main(void *argument) {
  rank_run *run = argument;
  run->status = run->body(run);
  snprintf(run->error, sizeof run->error, "%s", run->status ? moert_last_error() : "");
  return NULL;
}

static inline void start_rank(rank_run *run, moert_comm *comm, moert_status (*body)(rank_run *), void *user) {
  run->comm = comm;
  run->rank = moert_comm_rank(comm);
  run->size = moert_comm_size(comm);
  run->user = user;
  run->body = body;
  assert_int_equal(pthread_create(&run->thread, NULL, rank_main, run), 0);
}

static inline void finish_rank(rank_run *run) { assert_int_equal(pthread_join(run->thread, NULL), 0); }

static inline void run_ranks(rank_run *runs, moert_comm **comms, int32_t size, moert_status (*body)(rank_run *), void *user) {
  for (int32_t r = 0; r < size; ++r) start_rank(&runs[r], comms[r], body, user);
  for (int32_t r = 0; r < size; ++r) finish_rank(&runs[r]);
}

static inline void destroy_ranks(moert_comm **comms, int32_t size) {
  for (int32_t r = 0; r < size; ++r) moert_comm_destroy(comms[r]);
}

// Sanitizers end the program when a request is too large unless told that NULL is an answer. A program has this once: its other files
// define MOERT_TEST_FURTHER_FILE.
#ifndef MOERT_TEST_FURTHER_FILE
MOERT_API const char *__asan_default_options(void);
MOERT_API const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
MOERT_API const char *__tsan_default_options(void);
MOERT_API const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

#endif

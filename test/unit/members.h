//===- members.h - ranks as processes, for unit tests -----------------------------------------------===//
//
// A rank is a child of the test. It leaves what it met in memory that all share; assertions are for the parent.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_MEMBERS_H
#define MOERT_TEST_MEMBERS_H

#include "support.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENT_MS = 60000, HELLO_ROOM = 256, MAX_PROCESSES = 8 };

static inline int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

// In memory that all processes share.
typedef struct scene {
  _Atomic uint32_t arrived; // of all ranks at all gatherings together
  int32_t world;
  unsigned char gathered[2][MAX_PROCESSES][HELLO_ROOM];
  int32_t status[MAX_PROCESSES];
  char error[MAX_PROCESSES][512];
  int64_t waited_ms[MAX_PROCESSES];
  bool swaps;         // the allgather gives ranks 0 and 1 in each other's place
  int32_t fails_from; // the gathering, counted from 0, from which on the allgather fails; -1: none
} scene;

typedef struct member {
  scene *shared;
  int32_t rank;
  uint32_t gatherings;
} member;

// Slots take turns: a rank writes one again only when all have come to the gathering in between.
static inline int gather(void *user, const void *mine, size_t bytes, void *all) {
  member *m = user;
  scene *shared = m->shared;
  uint32_t number = m->gatherings++;
  if (bytes > HELLO_ROOM) return -1;
  if (shared->fails_from >= 0 && number >= (uint32_t)shared->fails_from) return 7;
  memcpy(shared->gathered[number % 2][m->rank], mine, bytes);
  atomic_fetch_add(&shared->arrived, 1);
  while (atomic_load(&shared->arrived) < (number + 1) * (uint32_t)shared->world) usleep(100);
  for (int32_t r = 0; r < shared->world; ++r)
    memcpy((char *)all + (size_t)r * bytes, shared->gathered[number % 2][shared->swaps && r < 2 ? 1 - r : r], bytes);
  return 0;
}

static inline scene *make_scene(int32_t world) {
  scene *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(shared, MAP_FAILED);
  shared->world = world;
  shared->fails_from = -1;
  return shared;
}

static inline void free_scene(scene *shared) { assert_int_equal(munmap(shared, sizeof *shared), 0); }

typedef moert_status rank_body(member *m);

static inline void run_member(scene *shared, int32_t rank, rank_body *body) {
  alarm(100);
  member m = {shared, rank, 0};
  moert_status status = body(&m);
  snprintf(shared->error[rank], sizeof shared->error[rank], "%s", status ? moert_last_error() : "");
  shared->status[rank] = (int32_t)status;
  _exit(0);
}

// A rank that does not end as it should has no entry in the scene: its status stays -1.
static inline void run_members(scene *shared, rank_body *body) {
  pid_t children[MAX_PROCESSES];
  for (int32_t r = 0; r < shared->world; ++r) {
    shared->status[r] = -1;
    children[r] = fork();
    assert_true(children[r] >= 0);
    if (!children[r]) run_member(shared, r, body);
  }
  for (int32_t r = 0; r < shared->world; ++r) assert_int_equal(waitpid(children[r], NULL, 0), children[r]);
}

#endif

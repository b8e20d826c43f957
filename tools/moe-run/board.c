//===- board.c - what the ranks of a run leave for each other ---------------------------------------===//
#include "board.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

board *board_make(int32_t size, int64_t repeat) {
  size_t bytes = sizeof(board) + (size_t)size * (size_t)repeat * sizeof(double);
  board *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return NULL;
  made->bytes = bytes;
  made->size = size;
  made->repeat = repeat;
  return made;
}

void board_free(board *b) {
  if (b) munmap(b, b->bytes);
}

run_exit board_print_failures(const board *b) {
  bool same = b->size > 1;
  run_exit first = RUN_OK;
  for (int32_t i = 1; i < b->size; ++i) same = same && strcmp(b->seats[i].message.text, b->seats[0].message.text) == 0;
  for (int32_t i = 0; i < b->size; ++i) {
    const message *m = &b->seats[i].message;
    if (m->exit == RUN_OK) continue;
    if (first == RUN_OK) first = m->exit;
    if (!same)
      fprintf(stderr, "moe-run: rank %d: %s\n", (int)i, m->text);
    else if (i == 0)
      fprintf(stderr, "moe-run: all ranks: %s\n", m->text);
  }
  return first;
}

//===--- meeting ----------------------------------------------------------------------------------===//

// Whether `other` has arrived for its `meeting`-th time before it ended and before the deadline.
static bool wait_for(const seat *other, uint32_t meeting, double deadline) {
  const struct timespec pause = {0, 50000};
  for (;;) {
    // In this order: who has ended after it arrived has arrived.
    bool gone = atomic_load(&other->gone);
    if (atomic_load(&other->meetings) >= meeting) return true;
    if (gone || seconds_now() > deadline) return false;
    nanosleep(&pause, NULL);
  }
}

// All that can come have come, or false.
static bool meet(place here, double seconds) {
  seat *seats = here.board->seats;
  uint32_t meeting = atomic_fetch_add(&seats[here.rank].meetings, 1) + 1;
  double deadline = seconds_now() + seconds;
  bool all = true;
  for (int32_t i = 0; i < here.board->size; ++i) all = wait_for(&seats[i], meeting, deadline) && all;
  return all;
}

// The slots are for `bytes` of each rank until the second meeting.
static bool gather_slots(place here, const unsigned char *mine, size_t bytes, unsigned char *all, size_t stride) {
  const double seconds = 60;
  seat *seats = here.board->seats;
  memcpy(seats[here.rank].slot, mine, bytes);
  if (!meet(here, seconds)) return false;
  for (int32_t i = 0; i < here.board->size; ++i) memcpy(all + (size_t)i * stride, seats[i].slot, bytes);
  return meet(here, seconds);
}

int board_gather(void *user, const void *mine, size_t bytes, void *all) {
  place here = *(const place *)user;
  for (size_t done = 0; done < bytes; done += BOARD_SLOT_BYTES) {
    size_t part = bytes - done < BOARD_SLOT_BYTES ? bytes - done : BOARD_SLOT_BYTES;
    if (!gather_slots(here, (const unsigned char *)mine + done, part, (unsigned char *)all + done, bytes)) return 1;
  }
  return 0;
}

bool board_all_well(place here, bool well) {
  seat *seats = here.board->seats;
  seats[here.rank].slot[0] = well;
  if (!meet(here, INFINITY)) return false;
  for (int32_t i = 0; i < here.board->size; ++i) well = well && seats[i].slot[0];
  return meet(here, INFINITY) && well;
}

//===- board.h - what the ranks of a run leave for each other ---------------------------------------===//
//
// Memory that threads and processes share: messages, times, and a place to meet.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_RUN_BOARD_H
#define MOE_RUN_BOARD_H

#include "options.h"

#include <stdatomic.h>

enum { BOARD_SLOT_BYTES = 4096 };

typedef struct seat {
  message message;           // why the rank failed
  _Atomic uint32_t meetings; // how often it has arrived
  _Atomic bool gone;         // its process has ended
  unsigned char slot[BOARD_SLOT_BYTES];
} seat;

typedef struct board {
  size_t bytes;
  int32_t size;
  int64_t repeat;
  seat seats[MOERT_MAX_RANKS];
  double seconds[]; // of each repetition: rank r's begin at r * repeat
} board;

board *board_make(int32_t size, int64_t repeat); // NULL: no memory
void board_free(board *board);

static inline double *board_seconds(board *b, int32_t rank) { return b->repeat > 0 ? b->seconds + rank * b->repeat : NULL; }

// What the ranks say, to stderr; once if all say the same. The exit status of the lowest rank that failed.
run_exit board_print_failures(const board *board);

// How processes meet. `user` is a place of a rank; waits at most a minute, and not for processes that have ended.
typedef struct place {
  board *board;
  int32_t rank;
} place;

moert_allgather board_gather;
// Whether all processes are well, as soon as each has said so or ended.
bool board_all_well(place here, bool well);

#endif

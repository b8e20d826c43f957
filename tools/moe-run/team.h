//===- team.h - the ranks of this process, as threads ---------------------------------------------===//
#ifndef MOE_RUN_TEAM_H
#define MOE_RUN_TEAM_H

#include "rank.h"

typedef struct team {
  const plan *plan;
  board *board;
  int32_t size;
  rank *ranks;
} team;

// Ranks `first` to `first + count - 1`: all of them, or the only one of a process.
run_exit team_make(const plan *plan, board *board, int32_t first, int32_t count, team *team, message *why);
void team_free(team *team);
// Load, allocate, run. What ranks say is on the board; the result is that of the first rank that failed. `prefix` begins what they say.
run_exit team_run(team *team, const char *prefix);
// Times of the last function to stdout: of a run, that of its slowest rank.
void team_print_times(const team *team);

#endif

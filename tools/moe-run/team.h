//===- team.h - all ranks, as threads -------------------------------------------------------------===//
#ifndef MOE_RUN_TEAM_H
#define MOE_RUN_TEAM_H

#include "rank.h"

typedef struct team {
  const plan *plan;
  int32_t size;
  rank *ranks;
} team;

run_exit team_make(const plan *plan, team *team, message *why);
void team_free(team *team);
// Load, allocate, run. What ranks say is printed to stderr; the result is that of the first rank that failed.
run_exit team_run(team *team);
// Times of the last function to stdout: of a run, that of its slowest rank.
void team_print_times(const team *team);

#endif

//===- team.h - ranks that measure cases together -----------------------------------------------------===//
#ifndef MOE_BENCH_TEAM_H
#define MOE_BENCH_TEAM_H

#include "bench.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct Team Team;

// A rank, which is a thread.
typedef struct Member {
  Team *team;
  pthread_t thread;
  Work *work; // what it measures now
  void *own;  // of the procedure
} Member;

// What the ranks of a bench do. Whoever fails says so, and comes to the meetings all the same.
typedef struct Procedure {
  void (*begin)(Member *member);   // before the first case; makes `own`
  void (*measure)(Member *member); // a case, of which the first set of operands is open. Gives back what it took, the operands apart
  void (*end)(Member *member);     // behind the last case, or where a rank could not begin
} Procedure;

struct Team {
  const Options *options;
  const Procedure *procedure;
  void *shared; // of the procedure
  int32_t ranks;
  Member members[MOERT_MAX_RANKS];
  moert_comm *comms[MOERT_MAX_RANKS];
  pthread_barrier_t barrier;
  int decision;
  atomic_bool failed, broken; // what is measured; the communicator too, so that nothing more can be
  atomic_bool any_failed;
};

// On a thread for each rank.
Exit team_run(const Options *options, int num_gpus, const Procedure *procedure, void *shared);

void member_say(Member *member, const char *what, const char *why); // it has failed
bool member_check(Member *member, moert_status status, const char *what);
bool member_check_cuda(Member *member, cudaError_t error, const char *what);
bool member_check_memory(Member *member, const void *memory); // NULL: there was none
// All ranks come here. Whether nobody has failed since the measurement began.
bool members_are_well(Member *member);
// Ranks may have somewhat different operands; what they do together the first decides.
int members_decide(Member *member, int (*choose)(const Member *member));
bool member_fill_sets(Member *member, int sets);

// Sorts the numbers; then the one behind so large a part of them: 0.5 for the median.
double sorted_part(double *numbers, int count, double part);

#endif

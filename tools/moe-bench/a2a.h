//===- a2a.h - what the parts of the bench of all-to-alls share ---------------------------------------===//
#ifndef MOE_BENCH_A2A_H
#define MOE_BENCH_A2A_H

#include "routing.h"
#include "team.h"

// Operands: of each set; then of set 0 alone, for all calls write there.
enum { A2A_IDS, A2A_WEIGHTS, A2A_ROWS, A2A_SCALES, A2A_RESULT, A2A_RECV, A2A_COUNTS, A2A_OFFSETS, A2A_OUT };

// How an op is called.
typedef struct Launch {
  int64_t max_sms; // 0: all
  bool pdl;
} Launch;

//===--- a2a.c ----------------------------------------------------------------------------------------===//

bool a2a_is_grouped(const Work *work);
Routing a2a_routing(const Work *work);
bool a2a_is_swept(const Work *work); // measured with several numbers of multiprocessors
moert_status a2a_dispatch(Work *work, int set, Launch launch);
moert_status a2a_combine(Work *work, int set, Launch launch);
// The payloads of a dispatch, and where they are received, each at most MOERT_WORKSPACE_MAX_PAYLOADS. How many there are.
int a2a_payloads(const Work *work, int set, moert_tensor payloads[]);
int a2a_received(const Work *work, moert_tensor received[]);
// What it should take, and what the best kernel of others takes; 0: not known. Of a step called with `Launch` {0, true} in a graph.
double a2a_goal(const Work *work, const Step *step, double floor_us);
Peer a2a_peer(const Work *work, const Step *step);

//===--- a2a_check.c ----------------------------------------------------------------------------------===//

// Fills what is written by other bytes. Nobody may call before all have.
void a2a_poison(Member *member);
// Whether a dispatch and a combine of a set have left what they should: every row and count, and the sums of some tokens, to the bit. Collective.
void a2a_check(Member *member, int set);

#endif

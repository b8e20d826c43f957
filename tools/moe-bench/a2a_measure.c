//===- a2a_measure.c - all-to-alls under graph replay, and eagerly --------------------------------------===//
//
// A dispatch alone is the difference of two graphs: of so many dispatches, each with a meeting of the ranks behind it, and of as many meetings. A
// combine likewise. Since the host lets no two dispatches follow each other, both ops and the meeting are captured in turn, and what is not wanted is
// taken out of the graph. Round trips are captured as any program captures them, with kernels that are launched while the one before runs
// (programmatic dependent launch) or without, and called eagerly. Every chain begins with a meeting, before the first event; what a replay took is
// the time of its slowest rank.
//
//===----------------------------------------------------------------------------------------------===//

#include "a2a.h"
#include "device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_REPLAYS = 3, NUM_SWEPT = 6, MOST_CALLS = 100 };

typedef enum Chain {
  MEETINGS,
  DISPATCHES,
  COMBINES,
  SERIAL_DISPATCHES,
  SERIAL_COMBINES,
  ROUND_TRIPS,
  SERIAL_ROUND_TRIPS,
  EAGER_ROUND_TRIPS,
  EAGER_SERIAL_ROUND_TRIPS,
  NUM_CHAINS
} Chain;

typedef enum Way { APART, CAPTURED, EAGER } Way; // APART: with meetings between

// Nodes of a call of each op apart, in their order. 0 is what is in front.
enum { BEFORE, THE_DISPATCH, THE_COMBINE, NODES };

static const struct {
  const char *step, *how;
  Way way;
  bool pdl;
  int from, to; // the nodes behind the one, up to the other, are taken out
} chains[NUM_CHAINS] = {
    [MEETINGS] = {NULL, NULL, APART, true, BEFORE, THE_COMBINE},
    [DISPATCHES] = {"dispatch", "graph", APART, true, THE_DISPATCH, THE_COMBINE},
    [COMBINES] = {"combine", "graph", APART, true, BEFORE, THE_DISPATCH},
    [SERIAL_DISPATCHES] = {"dispatch", "graph, no PDL", APART, false, THE_DISPATCH, THE_COMBINE},
    [SERIAL_COMBINES] = {"combine", "graph, no PDL", APART, false, BEFORE, THE_DISPATCH},
    [ROUND_TRIPS] = {"round_trip", "graph", CAPTURED, true, 0, 0},
    [SERIAL_ROUND_TRIPS] = {"round_trip", "graph, no PDL", CAPTURED, false, 0, 0},
    [EAGER_ROUND_TRIPS] = {"round_trip", "eager", EAGER, true, 0, 0},
    [EAGER_SERIAL_ROUND_TRIPS] = {"round_trip", "eager, no PDL", EAGER, false, 0, 0},
};

// What the ranks share.
typedef struct Shared {
  double us[MAX_REPLAYS][NUM_CHAINS][MOERT_MAX_RANKS];
  unsigned *meetings[MOERT_MAX_RANKS];
  const Ceilings *measured;
  void (*done)(void *user, const Record *record);
  void *user;
} Shared;

// One rank and what it measures now.
typedef struct Rank {
  Member *member;
  Work *work;
  Shared *shared;
  DeviceMeeting meeting;
  cudaEvent_t begin, end;
  int calls;                          // of each op in a chain
  int64_t max_sms;                    // 0: all
  cudaGraphExec_t graphs[NUM_CHAINS]; // NULL: not measured
} Rank;

static const Step *step_of(const Case *what, Chain chain) {
  for (int i = 0; i < what->num_steps; ++i)
    if (chains[chain].step && strcmp(what->steps[i].name, chains[chain].step) == 0) return &what->steps[i];
  return NULL;
}

static bool is_reported(const Rank *rank, Chain chain) {
  const Step *step = step_of(rank->work->what, chain);
  return step && options_name(rank->member->team->options, step->name);
}

//===--- calls --------------------------------------------------------------------------------------===//

// The last call of a chain is that of the last set.
static int last_set(const Rank *rank) { return (rank->calls - 1) % rank->work->sets; }

static bool call_meeting(Rank *rank) { return member_check_cuda(rank->member, device_meet(&rank->meeting, rank->work->stream), "meeting"); }

static bool call_dispatch(Rank *rank, int call, Launch launch) {
  return member_check(rank->member, a2a_dispatch(rank->work, call % rank->work->sets, launch), "moe.dispatch");
}

static bool call_combine(Rank *rank, int call, Launch launch) {
  return member_check(rank->member, a2a_combine(rank->work, call % rank->work->sets, launch), "moe.combine");
}

// As a node of a graph that is captured, or at once.
static bool record_event(Rank *rank, cudaEvent_t event, bool captured) {
  unsigned flags = captured ? cudaEventRecordExternal : cudaEventRecordDefault;
  return member_check_cuda(rank->member, cudaEventRecordWithFlags(event, rank->work->stream, flags), "event");
}

static bool call_round_trips(Rank *rank, Chain chain) {
  const Launch launch = {rank->max_sms, chains[chain].pdl};
  bool captured = chains[chain].way == CAPTURED, well = call_meeting(rank) && record_event(rank, rank->begin, captured);
  for (int call = 0; call < rank->calls && well; ++call) well = call_dispatch(rank, call, launch) && call_combine(rank, call, launch);
  return well && record_event(rank, rank->end, captured);
}

//===--- graphs -------------------------------------------------------------------------------------===//

// Nodes one behind the other: the last ones of the first event and of dispatch, combine and meeting of each call.
typedef struct Line {
  cudaGraphNode_t ends[1 + NODES * MOST_CALLS];
  int count;
} Line;

static bool mark_end(Rank *rank, Line *line) {
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *ends = NULL;
  const cudaGraphEdgeData *edges = NULL;
  size_t count = 0;
  cudaError_t error = cudaStreamGetCaptureInfo(rank->work->stream, &status, NULL, NULL, &ends, &edges, &count);
  if (!error && count != 1) error = cudaErrorStreamCaptureUnjoined;
  if (!error) line->ends[line->count++] = ends[0];
  return member_check_cuda(rank->member, error, "capture");
}

static bool call_line(Rank *rank, Chain chain, Line *line) {
  const Launch launch = {rank->max_sms, chains[chain].pdl};
  bool well = call_meeting(rank) && record_event(rank, rank->begin, true) && mark_end(rank, line);
  for (int call = 0; call < rank->calls && well; ++call)
    well = call_dispatch(rank, call, launch) && mark_end(rank, line) && call_combine(rank, call, launch) && mark_end(rank, line) &&
           call_meeting(rank) && mark_end(rank, line);
  return well && record_event(rank, rank->end, true);
}

// Takes what is behind `before` out, up to `last`. What follows depends on `before` then, as it did on `last` if that can be.
static cudaError_t cut(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphNode_t last) {
  const cudaGraphEdgeData whole = {0};
  cudaGraphEdgeData edge = {0}, unused;
  cudaGraphNode_t next = NULL;
  enum cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  size_t one = 1;
  cudaError_t error = cudaGraphNodeGetDependentNodes(last, &next, &edge, &one);
  while (!error && last != before) {
    cudaGraphNode_t node = last;
    error = cudaGraphNodeGetDependencies(node, &last, &unused, &one);
    if (!error) error = cudaGraphDestroyNode(node);
  }
  if (!error) error = cudaGraphNodeGetType(before, &type);
  return error ? error : cudaGraphAddDependencies(graph, &before, &next, type == cudaGraphNodeTypeKernel ? &edge : &whole, 1);
}

static cudaError_t cut_line(Chain chain, cudaGraph_t graph, const Line *line) {
  cudaError_t error = cudaSuccess;
  for (int call = 0; call + NODES < line->count && !error; call += NODES)
    error = cut(graph, line->ends[call + chains[chain].from], line->ends[call + chains[chain].to]);
  return error;
}

static bool begin_capture(Rank *rank) {
  return member_check_cuda(rank->member, cudaStreamBeginCapture(rank->work->stream, cudaStreamCaptureModeThreadLocal), "capture");
}

static bool end_capture(Rank *rank, cudaGraph_t *graph) {
  return member_check_cuda(rank->member, cudaStreamEndCapture(rank->work->stream, graph), "capture");
}

static bool instantiate(Rank *rank, Chain chain, cudaGraph_t graph) {
  return member_check_cuda(rank->member, cudaGraphInstantiate(&rank->graphs[chain], graph, 0), "graph");
}

static bool make_line(Rank *rank, Chain chain) {
  cudaGraph_t graph = NULL;
  Line line = {{NULL}, 0};
  if (!begin_capture(rank)) return false;
  bool called = call_line(rank, chain, &line), well = end_capture(rank, &graph) && called;
  well = well && member_check_cuda(rank->member, cut_line(chain, graph, &line), "graph") && instantiate(rank, chain, graph);
  if (graph) cudaGraphDestroy(graph);
  return well;
}

static bool make_round_trips(Rank *rank, Chain chain) {
  cudaGraph_t graph = NULL;
  if (!begin_capture(rank)) return false;
  bool called = call_round_trips(rank, chain), well = end_capture(rank, &graph) && called && instantiate(rank, chain, graph);
  if (graph) cudaGraphDestroy(graph);
  return well;
}

// The first are made in any case: a combine needs a dispatch. The sweep has no others.
static bool is_wanted(const Rank *rank, Chain chain) { return chain <= COMBINES || (rank->max_sms == 0 && is_reported(rank, chain)); }

static void make_graphs(Rank *rank) {
  bool well = true;
  for (Chain chain = MEETINGS; chain < EAGER_ROUND_TRIPS && well; ++chain)
    if (is_wanted(rank, chain)) well = chains[chain].way == APART ? make_line(rank, chain) : make_round_trips(rank, chain);
}

static void free_graphs(Rank *rank) {
  for (Chain chain = MEETINGS; chain < NUM_CHAINS; ++chain) {
    if (rank->graphs[chain]) cudaGraphExecDestroy(rank->graphs[chain]);
    rank->graphs[chain] = NULL;
  }
}

//===--- replays ------------------------------------------------------------------------------------===//

static bool has_given_up(Rank *rank) {
  unsigned gave_up = 1;
  cudaError_t error = cudaMemcpy(&gave_up, rank->meeting.words[rank->meeting.rank] + DEVICE_MEETING_GAVE_UP, sizeof gave_up, cudaMemcpyDefault);
  if (member_check_cuda(rank->member, error, "meeting") && !gave_up) return false;
  member_say(rank->member, "meeting", "other ranks did not come");
  atomic_store(&rank->member->team->broken, true);
  return true;
}

static bool run_chain(Rank *rank, Chain chain) {
  bool well = chains[chain].way == EAGER ? call_round_trips(rank, chain)
                                         : member_check_cuda(rank->member, cudaGraphLaunch(rank->graphs[chain], rank->work->stream), "replay");
  return member_check(rank->member, moert_context_synchronize(rank->work->context), "replay") && well && !has_given_up(rank);
}

static void replay(Rank *rank, int number, Chain chain) {
  float ms = 0;
  if (!members_are_well(rank->member) || !run_chain(rank, chain) || number < 0) return;
  if (!member_check_cuda(rank->member, cudaEventElapsedTime(&ms, rank->begin, rank->end), "times")) return;
  rank->shared->us[number][chain][rank->work->rank] = 1e3 * (double)ms / rank->calls;
}

static bool replay_all(Rank *rank) {
  for (int number = -WARM_REPLAYS; number < rank->member->team->options->replays; ++number)
    for (Chain chain = MEETINGS; chain < NUM_CHAINS; ++chain)
      if (is_wanted(rank, chain)) replay(rank, number, chain);
  return members_are_well(rank->member);
}

// Runs chains, which have dispatches and combines, on poisoned outputs, and looks at what the last calls left.
static bool check_chains(Rank *rank, Chain first, Chain last) {
  a2a_poison(rank->member);
  for (Chain chain = first; chain <= last; ++chain)
    if (members_are_well(rank->member)) run_chain(rank, chain);
  if (members_are_well(rank->member)) a2a_check(rank->member, last_set(rank));
  return members_are_well(rank->member);
}

// But the eager calls that were the first of all.
static bool check_all(Rank *rank) {
  if (!check_chains(rank, DISPATCHES, COMBINES)) return false;
  if (is_wanted(rank, SERIAL_DISPATCHES) && is_wanted(rank, SERIAL_COMBINES) && !check_chains(rank, SERIAL_DISPATCHES, SERIAL_COMBINES)) return false;
  for (Chain chain = ROUND_TRIPS; chain < NUM_CHAINS; ++chain)
    if (chain != EAGER_ROUND_TRIPS && is_wanted(rank, chain) && !check_chains(rank, chain, chain)) return false;
  return true;
}

//===--- records ------------------------------------------------------------------------------------===//

static double slowest(const Rank *rank, int number, Chain chain) {
  double us = 0;
  for (int32_t r = 0; r < rank->work->ranks; ++r)
    if (rank->shared->us[number][chain][r] > us) us = rank->shared->us[number][chain][r];
  return us;
}

// Of the replays; meetings behind calls are taken off.
static void collect_times(const Rank *rank, Chain chain, double *times) {
  for (int i = 0; i < rank->member->team->options->replays; ++i) {
    times[i] = slowest(rank, i, chain);
    if (chains[chain].way == APART) times[i] -= slowest(rank, i, MEETINGS);
  }
}

static Record record_of(const Rank *rank, Chain chain) {
  const Work *work = rank->work;
  const Step *step = step_of(work->what, chain);
  const int replays = rank->member->team->options->replays;
  double times[MAX_REPLAYS], link_gbs = rank->shared->measured->link_gbs;
  Record record = {.what = work->what, .step = step, .ranks = work->ranks, .tokens = work->tokens, .how = chains[chain].how};
  collect_times(rank, chain, times);
  record.us[BENCH_LIBRARY] = sorted_part(times, replays, 0.5);
  record.p10 = sorted_part(times, replays, 0.1);
  record.p90 = sorted_part(times, replays, 0.9);
  record.max_sms = rank->max_sms;
  record.cost = step->cost(work);
  if (link_gbs > 0) record.floor_us = 1e-3 * (double)record.cost.link_bytes / link_gbs;
  return record;
}

static void tell(const Rank *rank, Record record) {
  const Work *work = rank->work;
  if (record.max_sms == 0 && strcmp(record.how, chains[ROUND_TRIPS].how) == 0) {
    record.goal_us = a2a_goal(work, record.step, record.floor_us);
    record.peers[0] = a2a_peer(work, record.step);
  }
  rank->shared->done(rank->shared->user, &record);
}

static void tell_all(const Rank *rank) {
  for (Chain chain = DISPATCHES; chain < NUM_CHAINS; ++chain)
    if (is_wanted(rank, chain) && is_reported(rank, chain)) tell(rank, record_of(rank, chain));
}

//===--- cases --------------------------------------------------------------------------------------===//

static int calls_of(int64_t tokens) { return tokens <= 128 ? MOST_CALLS : tokens <= 512 ? 40 : 20; }
static int sets_of(int64_t tokens) { return tokens <= 512 ? 8 : 3; }

// With rank->max_sms. The results are looked at before and after.
static bool measure_graphs(Rank *rank) {
  make_graphs(rank);
  return members_are_well(rank->member) && check_all(rank) && replay_all(rank) && check_chains(rank, DISPATCHES, COMBINES);
}

// Loads code, which a capture must not.
static bool call_first(Rank *rank) { return check_chains(rank, EAGER_ROUND_TRIPS, EAGER_ROUND_TRIPS); }

// Behind the measurement with all multiprocessors.
static void sweep(Rank *rank) {
  static const int64_t most[NUM_SWEPT] = {4, 8, 12, 16, 32, 64};
  double all[COMBINES + 1] = {0};
  for (Chain chain = DISPATCHES; chain <= COMBINES; ++chain) all[chain] = record_of(rank, chain).us[BENCH_LIBRARY];
  for (int i = 0; i < NUM_SWEPT; ++i) {
    rank->max_sms = most[i];
    free_graphs(rank);
    if (!measure_graphs(rank)) return;
    for (Chain chain = DISPATCHES; chain <= COMBINES && rank->work->rank == 0; ++chain) {
      Record record = record_of(rank, chain);
      record.all_sms_us = all[chain];
      if (is_reported(rank, chain)) tell(rank, record);
    }
  }
}

static void measure_opened(Rank *rank) {
  const Work *work = rank->work;
  rank->calls = calls_of(work->tokens);
  rank->max_sms = 0;
  member_fill_sets(rank->member, sets_of(work->tokens));
  if (!members_are_well(rank->member) || !call_first(rank) || !measure_graphs(rank)) return;
  if (work->rank == 0) tell_all(rank);
  if (a2a_is_swept(work)) sweep(rank);
}

static void measure(Member *member) {
  measure_opened(member->own);
  cudaStreamSynchronize(member->work->stream);
  free_graphs(member->own);
}

//===--- ranks --------------------------------------------------------------------------------------===//

static void open_meeting(Rank *rank) {
  const Work *work = rank->work;
  void *words = NULL;
  if (moert_comm_transport(work->comm) != MOERT_TRANSPORT_PEER) member_say(rank->member, "meeting", "ranks cannot write to each other's memory");
  member_check(rank->member, moert_symmetric_alloc(work->comm, DEVICE_MEETING_WORDS * sizeof(unsigned), &words), "memory");
  rank->shared->meetings[work->rank] = words;
  if (!members_are_well(rank->member)) return;
  memcpy(rank->meeting.words, rank->shared->meetings, sizeof rank->meeting.words);
  rank->meeting.rank = work->rank;
  rank->meeting.ranks = work->ranks;
}

static void begin(Member *member) {
  Rank *rank = member->own = calloc(1, sizeof *rank);
  member_check_memory(member, rank);
  if (!members_are_well(member)) return;
  rank->member = member;
  rank->work = member->work;
  rank->shared = member->team->shared;
  open_meeting(rank);
  if (member_check_cuda(member, cudaEventCreate(&rank->begin), "events")) member_check_cuda(member, cudaEventCreate(&rank->end), "events");
}

static void end(Member *member) {
  Rank *rank = member->own;
  if (!rank) return;
  if (rank->begin) cudaEventDestroy(rank->begin);
  if (rank->end) cudaEventDestroy(rank->end);
  moert_symmetric_free(member->work->comm, rank->meeting.words[member->work->rank]);
  free(rank);
}

Exit measure_exchanges(const Options *options, const Ceilings *measured, int num_gpus, void (*done)(void *user, const Record *record), void *user) {
  static const Procedure procedure = {begin, measure, end};
  Shared *shared = calloc(1, sizeof *shared);
  if (!shared) return BENCH_FAILED;
  shared->measured = measured;
  shared->done = done;
  shared->user = user;
  Exit exit = team_run(options, num_gpus, &procedure, shared);
  free(shared);
  return exit;
}

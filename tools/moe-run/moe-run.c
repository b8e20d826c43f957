//===- moe-run.c - run functions of a compiled graph ----------------------------------------------===//
//
// options.c    the command line
// plan.c       which functions run, on which arguments
// load.c       one rank: the sizes and contents of its arguments
// buffers.c    one rank: their memory
// rank.c       one rank: its calls
// replay.c     one rank: its calls captured in CUDA graphs
// team.c       the ranks of this process, as threads
// processes.c  ranks as processes
// board.c      what ranks leave for each other
// compare.c    results against what is expected
// info.c       the interface of a graph as text
// npy.c        arrays in .npy files
// elements.c   element types
// text.c       messages, numbers, file patterns
//
//===----------------------------------------------------------------------------------------------===//
#include "compare.h"
#include "info.h"
#include "processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static run_exit write_output(const rank *r, const variable *v, const buffer *b, message *why) {
  char *path = expand_rank_pattern(v->output, r->number);
  run_exit result = npy_write(path, v->type->npy, v->info->ndim, b->shape, b->data, b->bytes, why);
  free(path);
  return result;
}

static run_exit write_outputs(const team *t, message *why) {
  run_exit result = RUN_OK;
  for (size_t i = 0; i < t->plan->num_variables; ++i)
    for (int32_t j = 0; t->plan->variables[i].output && j < t->size && result == RUN_OK; ++j)
      result = write_output(&t->ranks[j], &t->plan->variables[i], &t->ranks[j].buffers[i], why);
  return result;
}

static void warn_if_not_stopped(const team *t) {
  const options *o = t->plan->options;
  bool here = o->stop_rank >= t->ranks[0].number && o->stop_rank < t->ranks[0].number + t->size;
  if (here) fprintf(stderr, "moe-run: warning: rank %d never came to %s:%s\n", (int)o->stop_rank, o->stop_op, o->stop_phase);
}

// The same as `t` has done, on the host backend: the functions were called once, the last as often as --repeat says; replays began anew.
static run_exit check(const team *t, message *why) {
  options once = *t->plan->options;
  once.stop_rank = -1;
  if (once.replays > 0) once.replays = once.repeat = 0;
  plan p = *t->plan;
  p.options = &once;
  p.on_device = false;
  team host;
  run_exit result = team_make(&p, t->board, t->ranks[0].number, t->size, &host, why);
  if (result == RUN_OK) result = team_run(&host, "the host backend: ");
  if (result == RUN_OK) result = compare_backends(t, &host);
  team_free(&host);
  return result;
}

// All ranks are well, those of other processes too, or nothing is written.
static run_exit agree(const team *t, run_exit result) {
  if (!t->plan->options->processes) return result;
  bool well = board_all_well((place){t->board, t->ranks[0].number}, result == RUN_OK);
  return result == RUN_OK && !well ? RUN_RANK : result;
}

static run_exit run_team(team *t, message *why) {
  const options *o = t->plan->options;
  for (int32_t i = 0; i < t->size; ++i) t->ranks[i].seconds = board_seconds(t->board, t->ranks[i].number);
  run_exit result = agree(t, team_run(t, ""));
  if (result != RUN_OK) return result;
  warn_if_not_stopped(t);
  if (o->repeat > 0 && !o->quiet && t->ranks[0].number == 0) team_print_times(t);
  result = write_outputs(t, why);
  run_exit differs = result == RUN_OK ? compare_results(t, why) : RUN_OK;
  if (result != RUN_OK || differs > RUN_DIFFERENT || !o->check) return result == RUN_OK ? differs : result;
  result = check(t, why);
  return result == RUN_OK ? differs : result;
}

static run_exit run_plan(const plan *p, board *b, int32_t first, int32_t count, message *why) {
  team t;
  run_exit result = team_make(p, b, first, count, &t, why);
  if (result == RUN_OK) result = run_team(&t, why);
  team_free(&t);
  return result;
}

static run_exit plan_and_run(const options *o, moert_graph *graph, board *b, int32_t first, int32_t count, message *why) {
  plan p;
  run_exit result = plan_make(o, graph, &p, why);
  if (result == RUN_OK) result = run_plan(&p, b, first, count, why);
  plan_free(&p);
  return result;
}

static run_exit load_graph(const options *o, moert_graph **graph, message *why) {
  moert_status status = moert_graph_load(o->graph, graph);
  if (status == MOERT_OK) return RUN_OK;
  return message_set(why, RUN_GRAPH, "%s (%s): %s", moert_status_name(status), moert_status_text(status), moert_last_error());
}

static run_exit run_ranks(const options *o, board *b, int32_t first, int32_t count, message *why) {
  moert_graph *graph;
  run_exit result = load_graph(o, &graph, why);
  if (result != RUN_OK) return result;
  result = plan_and_run(o, graph, b, first, count, why);
  moert_graph_unload(graph);
  return result;
}

static run_exit print_info(const options *o, message *why) {
  moert_graph *graph;
  run_exit result = load_graph(o, &graph, why);
  if (result != RUN_OK) return result;
  info_print(o->graph, moert_graph_describe(graph));
  moert_graph_unload(graph);
  return RUN_OK;
}

static run_exit run_on_board(const options *o, message *why) {
  board *b = board_make(o->ranks, o->repeat);
  if (!b) return message_set(why, RUN_RANK, "no memory for %d ranks", (int)o->ranks);
  run_exit result;
  if (o->processes)
    result = processes_run(o, b, run_ranks, why);
  else {
    result = run_ranks(o, b, 0, o->ranks, why);
    board_print_failures(b);
  }
  board_free(b);
  return result;
}

static run_exit run(int count, char **arguments, options *o, message *why) {
  run_exit result = options_parse(count, arguments, o, why);
  if (result != RUN_OK) return result;
  if (o->help)
    options_help(stdout);
  else if (o->version)
    printf("moe-run %s, libmoert %s, ABI %lld\n", MOE_VERSION, moert_version(), (long long)moert_abi_version());
  else
    return o->info ? print_info(o, why) : run_on_board(o, why);
  return RUN_OK;
}

int main(int count, char **arguments) {
  options o;
  message why = {RUN_OK, ""};
  run_exit result = run(count, arguments, &o, &why);
  options_free(&o);
  if (fflush(stdout) != 0 && result == RUN_OK) result = message_set(&why, RUN_FILE, "standard output: %s", strerror(errno));
  if (*why.text != '\0') fprintf(stderr, "moe-run: %s\n", why.text);
  return result;
}

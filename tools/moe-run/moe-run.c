//===- moe-run.c - run functions of a compiled graph ----------------------------------------------===//
//
// options.c    the command line
// plan.c       which functions run, on which arguments
// rank.c       one rank: its sizes, its buffers, its calls
// team.c       all ranks, as threads
// compare.c    results against what is expected
// info.c       the interface of a graph as text
// npy.c        arrays in .npy files
// elements.c   element types
// text.c       messages, numbers, file patterns
//
//===----------------------------------------------------------------------------------------------===//
#include "compare.h"
#include "info.h"

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

static run_exit run_team(team *t, message *why) {
  const options *o = t->plan->options;
  run_exit result = team_run(t);
  if (result != RUN_OK) return result;
  if (o->stop_rank >= 0) fprintf(stderr, "moe-run: warning: rank %d never came to %s:%s\n", (int)o->stop_rank, o->stop_op, o->stop_phase);
  if (o->repeat > 0 && !o->quiet) team_print_times(t);
  result = write_outputs(t, why);
  return result == RUN_OK ? compare_results(t, why) : result;
}

static run_exit run_plan(const plan *p, message *why) {
  team t;
  run_exit result = team_make(p, &t, why);
  if (result == RUN_OK) result = run_team(&t, why);
  team_free(&t);
  return result;
}

static run_exit run_graph(const options *o, moert_graph *graph, message *why) {
  if (o->info) {
    info_print(o->graph, moert_graph_describe(graph));
    return RUN_OK;
  }
  plan p;
  run_exit result = plan_make(o, graph, &p, why);
  if (result == RUN_OK) result = run_plan(&p, why);
  plan_free(&p);
  return result;
}

static run_exit load_and_run(const options *o, message *why) {
  moert_graph *graph;
  moert_status status = moert_graph_load(o->graph, &graph);
  if (status != MOERT_OK) return message_set(why, RUN_GRAPH, "%s (%s): %s", moert_status_name(status), moert_status_text(status), moert_last_error());
  run_exit result = run_graph(o, graph, why);
  moert_graph_unload(graph);
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
    return load_and_run(o, why);
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

//===- options.c - the command line ---------------------------------------------------------------===//
#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct option_row {
  const char *name;
  const char *operand; // NULL: takes none; "[=N]": may be left out, and is NULL for the setter then
  const char *help;
  run_exit (*set)(options *o, const char *operand, message *why);
  size_t flag; // of options without operand: the bool that they set
} option_row;

//===--- setters ----------------------------------------------------------------------------------===//

static run_exit set_function(options *o, const char *operand, message *why) {
  (void)why;
  o->functions = records_grow(o->functions, o->num_functions, sizeof *o->functions);
  o->functions[o->num_functions++] = operand;
  return RUN_OK;
}

static run_exit set_ranks(options *o, const char *operand, message *why) {
  int64_t ranks;
  if (!parse_int64(operand, &ranks) || ranks < 1 || ranks > MOERT_MAX_RANKS)
    return message_set(why, RUN_USAGE, "--ranks %s: expected a number from 1 to %d", operand, MOERT_MAX_RANKS);
  o->ranks = (int32_t)ranks;
  return RUN_OK;
}

static run_exit set_backend(options *o, const char *operand, message *why) {
  o->backend = operand;
  if (strcmp(operand, "host") == 0 || strcmp(operand, "cuda") == 0) return RUN_OK;
  return message_set(why, RUN_USAGE, "--backend %s: expected host or cuda", operand);
}

static run_exit set_devices(options *o, const char *operand, message *why) {
  o->num_devices = list_count(operand);
  bool good = o->num_devices <= MOERT_MAX_RANKS;
  for (int32_t i = 0; good && i < o->num_devices; ++i) {
    char item[LIST_ITEM_BYTES];
    int64_t device = -1;
    good = list_item_of_rank(operand, i, item) && parse_int64(item, &device) && device >= 0 && device <= INT32_MAX;
    o->devices[i] = (int32_t)device;
  }
  if (good) return RUN_OK;
  return message_set(why, RUN_USAGE, "--devices %s: expected at most %d numbers of devices, such as 0,1", operand, MOERT_MAX_RANKS);
}

static run_exit add_binding(binding_list *list, const char *option, const char *operand, message *why) {
  const char *equals = strchr(operand, '=');
  if (!equals || equals == operand || equals[1] == '\0') return message_set(why, RUN_USAGE, "%s %s: expected NAME=VALUE", option, operand);
  binding made = {records(strlen(operand) + 1, 1), NULL};
  strcpy(made.name, operand);
  made.name[equals - operand] = '\0';
  made.value = made.name + (equals - operand) + 1;
  list->items = records_grow(list->items, list->count, sizeof *list->items);
  list->items[list->count++] = made;
  for (size_t i = 0; i + 1 < list->count; ++i)
    if (strcmp(list->items[i].name, made.name) == 0) return message_set(why, RUN_USAGE, "%s %s: '%s' is given twice", option, operand, made.name);
  return RUN_OK;
}

static run_exit set_input(options *o, const char *operand, message *why) { return add_binding(&o->inputs, "--input", operand, why); }
static run_exit set_size(options *o, const char *operand, message *why) { return add_binding(&o->sizes, "--size", operand, why); }
static run_exit set_output(options *o, const char *operand, message *why) { return add_binding(&o->outputs, "--output", operand, why); }
static run_exit set_expect(options *o, const char *operand, message *why) { return add_binding(&o->expectations, "--expect", operand, why); }

static run_exit set_random(options *o, const char *operand, message *why) {
  o->random = true;
  if (parse_uint64(operand, &o->seed)) return RUN_OK;
  return message_set(why, RUN_USAGE, "--random %s: expected a number that is not negative", operand);
}

static run_exit set_bound(double *bound, const char *option, const char *operand, message *why) {
  if (parse_double(operand, bound) && *bound >= 0) return RUN_OK;
  return message_set(why, RUN_USAGE, "%s %s: expected a number that is not negative", option, operand);
}

static run_exit set_rtol(options *o, const char *operand, message *why) {
  o->check_elements = true;
  return set_bound(&o->rtol, "--rtol", operand, why);
}

static run_exit set_atol(options *o, const char *operand, message *why) {
  o->check_elements = true;
  return set_bound(&o->atol, "--atol", operand, why);
}

static run_exit set_rel_l2(options *o, const char *operand, message *why) {
  o->check_rel_l2 = true;
  return set_bound(&o->rel_l2, "--rel-l2", operand, why);
}

static run_exit set_replays(options *o, const char *operand, message *why) {
  if (!operand) return o->replays = 3, RUN_OK;
  if (parse_int64(operand, &o->replays) && o->replays >= 1 && o->replays <= 1000000) return RUN_OK;
  return message_set(why, RUN_USAGE, "--graph=%s: expected a number from 1 to 1000000", operand);
}

static run_exit set_repeat(options *o, const char *operand, message *why) {
  if (parse_int64(operand, &o->repeat) && o->repeat >= 1 && o->repeat <= 1000000) return RUN_OK;
  return message_set(why, RUN_USAGE, "--repeat %s: expected a number from 1 to 1000000", operand);
}

static run_exit set_timeout(options *o, const char *operand, message *why) {
  double seconds;
  if (!parse_double(operand, &seconds) || !(seconds >= 0.001 && seconds <= 1e6))
    return message_set(why, RUN_USAGE, "--timeout %s: expected seconds from 0.001 to 1000000", operand);
  o->timeout_ms = (int64_t)ceil(seconds * 1000);
  return RUN_OK;
}

static bool is_stop_phase(const char *phase) {
  static const char *const phases[] = {"entry", "counts", "data", "flag"};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; ++i)
    if (strcmp(phase, phases[i]) == 0) return true;
  return false;
}

static run_exit set_stop(options *o, const char *operand, message *why) {
  int64_t rank = -1;
  free(o->stop_op);
  char *text = o->stop_op = records(strlen(operand) + 1, 1);
  strcpy(text, operand);
  char *at = strchr(text, '@'), *colon = at ? strchr(at, ':') : NULL;
  if (colon) *at = *colon = '\0';
  if (!colon || !parse_int64(text, &rank) || rank < 0 || rank >= MOERT_MAX_RANKS || at[1] == '\0' || !is_stop_phase(colon + 1))
    return message_set(why, RUN_USAGE, "--stop %s: expected RANK@OP:PHASE, such as 2@moe.dispatch:data; phases are entry, counts, data, flag",
                       operand);
  o->stop_rank = (int32_t)rank;
  memmove(text, at + 1, (size_t)(colon - at) + strlen(colon + 1) + 1);
  o->stop_phase = text + (colon - at);
  return RUN_OK;
}

//===--- table ------------------------------------------------------------------------------------===//

// Rows of one name are forms of one option; the first has its setter.
static const option_row table[] = {
    {"function", "NAME", "function to run; repeat it to run several in this order. Not needed if the graph has one", set_function, 0},
    {"ranks", "N", "number of ranks, 1 to 64, as threads of this process (1)", set_ranks, 0},
    {"processes", NULL, "ranks are processes, not threads", NULL, offsetof(options, processes)},
    {"backend", "NAME", "where it runs: host or cuda (what the graph was compiled for)", set_backend, 0},
    {"devices", "N,...", "rank r runs on the r-th of these GPUs, modulo their number (all)", set_devices, 0},
    {"input", "NAME=FILE.npy", "contents of an argument", set_input, 0},
    {"input", "NAME=NUMBER", "a number passed by value; n0,n1,... gives one per rank", NULL, 0},
    {"size", "SYMBOL=N", "a dynamic size that no input fixes, or a dimension (ARGUMENT.DIM); n0,n1,... gives one per rank", set_size, 0},
    {"random", "SEED", "fill inputs that have no file: floats bell-shaped within (-1, 1), integers 0 to 7", set_random, 0},
    {"output", "NAME=FILE.npy", "write an argument after the last run", set_output, 0},
    {"expect", "NAME=FILE.npy", "compare an argument after the last run: |a - b| <= atol + rtol * |b|, NaN equals NaN", set_expect, 0},
    {"check", NULL, "run the same on the host backend, and compare all that was written", NULL, offsetof(options, check)},
    {"rtol", "X", "relative tolerance of --expect and --check (0)", set_rtol, 0},
    {"atol", "X", "absolute tolerance of --expect and --check (0)", set_atol, 0},
    {"rel-l2", "X", "bound of ||a - b|| / ||b|| (of --check: 0.01); elements are then compared only if --rtol or --atol is given", set_rel_l2, 0},
    {"graph", "[=N]", "after the calls, capture them in CUDA graphs, replay these N times (3), and compare the results", set_replays, 0},
    {"repeat", "N", "run the last function N times and print its times", set_repeat, 0},
    {"timeout", "SECONDS", "how long a rank waits for a peer (MOERT_TIMEOUT_MS, else 30)", set_timeout, 0},
    {"stop", "RANK@OP:PHASE", "let a rank die there: before entry, after counts, after data, before flag", set_stop, 0},
    {"info", NULL, "print the interface of the graph; run nothing", NULL, offsetof(options, info)},
    {"quiet", NULL, "print errors and differences only", NULL, offsetof(options, quiet)},
    {"help", NULL, "print this", NULL, offsetof(options, help)},
    {"version", NULL, "print versions", NULL, offsetof(options, version)},
};
enum { NUM_OPTIONS = sizeof table / sizeof *table };

// The option that `text` names, up to a '='.
static const option_row *find_option(const char *text) {
  size_t length = strcspn(text, "=");
  for (size_t i = 0; i < NUM_OPTIONS; ++i)
    if (strlen(table[i].name) == length && strncmp(table[i].name, text, length) == 0) return &table[i];
  return NULL;
}

static run_exit set_flag(options *o, const option_row *row, bool has_operand, message *why) {
  if (has_operand) return message_set(why, RUN_USAGE, "--%s takes no operand", row->name);
  *(bool *)((char *)o + row->flag) = true;
  return RUN_OK;
}

// Parse one option at arguments[*index], with the operand behind it.
static run_exit parse_option(int count, char **arguments, int *index, options *o, message *why) {
  const char *text = arguments[*index] + 2, *equals = strchr(text, '=');
  const option_row *found = find_option(text);
  if (!found) return message_set(why, RUN_USAGE, "unknown option '%s'; see moe-run --help", arguments[*index]);
  if (!found->operand) return set_flag(o, found, equals != NULL, why);
  if (found->operand[0] == '[' && !equals) return found->set(o, NULL, why);
  if (equals) return found->set(o, equals + 1, why);
  if (*index + 1 >= count) return message_set(why, RUN_USAGE, "--%s needs %s", found->name, found->operand);
  return found->set(o, arguments[++*index], why);
}

static run_exit set_graph(options *o, const char *path, message *why) {
  if (o->graph) return message_set(why, RUN_USAGE, "more than one graph: '%s' and '%s'", o->graph, path);
  o->graph = path;
  return RUN_OK;
}

static run_exit check_files_of_ranks(const options *o, const binding_list *list, const char *option, message *why) {
  for (size_t i = 0; i < list->count && o->ranks > 1; ++i)
    if (!has_rank_pattern(list->items[i].value))
      return message_set(why, RUN_USAGE, "%s %s=%s: %d ranks need one file each: put {rank} into the file's name", option, list->items[i].name,
                         list->items[i].value, (int)o->ranks);
  return RUN_OK;
}

static run_exit check_together(const options *o, message *why) {
  if (!o->graph) return message_set(why, RUN_USAGE, "no graph given; see moe-run --help");
  if (o->stop_rank >= o->ranks) return message_set(why, RUN_USAGE, "--stop: rank %d does not exist; --ranks is %d", (int)o->stop_rank, (int)o->ranks);
  run_exit result = check_files_of_ranks(o, &o->outputs, "--output", why);
  if (result == RUN_OK) result = check_files_of_ranks(o, &o->expectations, "--expect", why);
  if (result == RUN_OK && o->expectations.count == 0 && !o->check && (o->check_elements || o->check_rel_l2))
    return message_set(why, RUN_USAGE, "--rtol, --atol and --rel-l2 are for --expect and --check, which are not given");
  return result;
}

run_exit options_parse(int count, char **arguments, options *o, message *why) {
  run_exit result = RUN_OK;
  bool only_graph = false;
  *o = (options){.ranks = 1, .stop_rank = -1};
  for (int i = 1; i < count && result == RUN_OK; ++i) {
    const char *text = arguments[i];
    if (!only_graph && strcmp(text, "--") == 0)
      only_graph = true;
    else if (!only_graph && strncmp(text, "--", 2) == 0)
      result = parse_option(count, arguments, &i, o, why);
    else if (!only_graph && text[0] == '-')
      result = message_set(why, RUN_USAGE, "unknown option '%s'; see moe-run --help", text);
    else
      result = set_graph(o, text, why);
  }
  return result != RUN_OK || o->help || o->version ? result : check_together(o, why);
}

static void free_bindings(binding_list *list) {
  for (size_t i = 0; i < list->count; ++i) free(list->items[i].name);
  free(list->items);
}

void options_free(options *o) {
  free(o->functions);
  free_bindings(&o->inputs);
  free_bindings(&o->sizes);
  free_bindings(&o->outputs);
  free_bindings(&o->expectations);
  free(o->stop_op);
}

void options_help(FILE *file) {
  fputs("usage: moe-run GRAPH.so [option ...]\n\nRun functions of a compiled graph.\n\n", file);
  for (size_t i = 0; i < NUM_OPTIONS; ++i) {
    char left[64] = "";
    const char *operand = table[i].operand ? table[i].operand : "";
    text_append(left, sizeof left, "--%s%s%s", table[i].name, *operand == '[' ? "" : " ", operand);
    fprintf(file, "  %-24s %s\n", left, table[i].help);
  }
  fputs("\n{rank} in a file's name stands for the rank's number; an input file without it is read by all ranks.\n"
        "FUNCTION:NAME tells arguments apart that share a name but not a type.\n\nexit status\n",
        file);
#define PRINT_EXIT(name, value, text) fprintf(file, "  %d  %s\n", value, text);
  RUN_EXIT_MAP(PRINT_EXIT)
#undef PRINT_EXIT
}

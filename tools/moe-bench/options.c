//===- options.c - the command line -------------------------------------------------------------------===//

#include "bench.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLAYS = 31, QUICK_REPLAYS = 9, MAX_TOKENS = 1 << 20, MAX_CASE_NAME = 128 };

static Exit refuse(const char *option, const char *operand, const char *expected) {
  fprintf(stderr, "moe-bench: %s %s: expected %s\n", option, operand, expected);
  return BENCH_USAGE;
}

static bool parse_number(const char *text, int64_t most, int64_t *number) {
  char *end;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return errno == 0 && end != text && (*end == 0 || *end == ',') && *number >= 1 && *number <= most;
}

static bool is_step(const Options *options, const char *name) {
  for (int i = 0; i < options->num_cases; ++i)
    for (int step = 0; step < options->cases[i].num_steps; ++step)
      if (strcmp(options->cases[i].steps[step].name, name) == 0) return true;
  return false;
}

// Whether the bench has it is known at the end of the line.
static Exit set_op(Options *options, const char *operand) {
  if (options->num_names == MAX_NAMES) return refuse("--op", operand, "fewer --op");
  options->names[options->num_names++] = operand;
  return BENCH_OK;
}

static Exit check_names(const Options *options) {
  for (int i = 0; i < options->num_names; ++i)
    if (!is_step(options, options->names[i])) return refuse("--op", options->names[i], "a name that --list prints");
  return BENCH_OK;
}

static Exit set_case(Options *options, const char *operand) { return options->part = operand, BENCH_OK; }

static Exit check_case(const Options *options) {
  for (int i = 0; i < options->num_cases; ++i)
    if (options_name_case(options, &options->cases[i])) return BENCH_OK;
  return refuse("--case", options->part, "a part of a case that --list prints, of an op that --op names");
}

// Likewise.
static Exit check_compare(const Options *options) {
  if (!options->compare_generic || !options->bench->ways) return BENCH_OK;
  return fprintf(stderr, "moe-bench: --compare generic: %s compares no kernels\n", options->bench->name), BENCH_USAGE;
}

static Exit set_weights(Options *options, const char *operand) {
  if (strcmp(operand, "linear") != 0 && strcmp(operand, "fragments") != 0) return refuse("--weights", operand, "linear or fragments");
  options->weights = operand;
  return BENCH_OK;
}

// Likewise.
static Exit check_weights(const Options *options) {
  if (!options->weights || options->bench->weights) return BENCH_OK;
  return fprintf(stderr, "moe-bench: --weights %s: %s has no weights that could be prepared\n", options->weights, options->bench->name), BENCH_USAGE;
}

const char *options_weights(const Options *options) { return options->weights ? options->weights : "fragments"; }

static Exit set_bench(Options *options, const char *name) {
  if (options->bench) return fprintf(stderr, "moe-bench: %s: there is a bench already, %s\n", name, options->bench->name), BENCH_USAGE;
  for (int i = 0; i < num_benches; ++i)
    if (strcmp(benches[i].name, name) == 0) options->bench = &benches[i];
  if (options->bench) return BENCH_OK;
  fprintf(stderr, "moe-bench: %s is not a bench; there are", name);
  for (int i = 0; i < num_benches; ++i) fprintf(stderr, "%s %s", i ? "," : "", benches[i].name);
  return fprintf(stderr, "\n"), BENCH_USAGE;
}

static Exit set_tokens(Options *options, const char *operand) {
  options->num_tokens = 0;
  for (const char *at = operand; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (options->num_tokens == MAX_TOKEN_COUNTS || !parse_number(at, MAX_TOKENS, &options->tokens[options->num_tokens++]))
      return refuse("--tokens", operand, "at most 32 numbers from 1 to 1048576, such as 1,64,512");
  return BENCH_OK;
}

static Exit set_ranks(Options *options, const char *operand) {
  int64_t ranks;
  if (strchr(operand, ',') || !parse_number(operand, MOERT_MAX_RANKS, &ranks)) return refuse("--ranks", operand, "a number from 1 to 64");
  options->ranks = (int32_t)ranks;
  return BENCH_OK;
}

static Exit set_json(Options *options, const char *operand) { return options->json = operand, BENCH_OK; }
static Exit set_commit(Options *options, const char *operand) { return options->commit = operand, BENCH_OK; }

static Exit set_compare(Options *options, const char *operand) {
  if (strcmp(operand, "generic") != 0) return refuse("--compare", operand, "generic");
  options->compare_generic = true;
  return BENCH_OK;
}

static const struct {
  const char *name, *operand, *help;
  Exit (*set)(Options *options, const char *operand);
  size_t flag; // of options without an operand: the bool that they set
} rows[] = {{"--op", "NAME", "measure this op; may be given several times. Default: all", set_op, 0},
            {"--case", "TEXT", "measure only cases with this in what --list prints behind the op, such as fp8", set_case, 0},
            {"--tokens", "LIST", "tokens of each rank, such as 1,64,512", set_tokens, 0},
            {"--ranks", "N", "ranks, rank r on GPU r modulo their number. Default: one on each GPU; of formats, grouped and nvfp4: 1", set_ranks, 0},
            {"--compare", "generic", "measure the generic kernels too, in turn with the library's choice", set_compare, 0},
            {"--weights", "HOW", "weights of nvfp4: linear, or fragments too. Default: fragments", set_weights, 0},
            {"--json", "FILE", "write the records to a file", set_json, 0},
            {"--commit", "TEXT", "what the records name as the version of the source", set_commit, 0},
            {"--quick", NULL, "few token counts and replays", NULL, offsetof(Options, quick)},
            {"--list", NULL, "print the ops of the bench and their cases", NULL, offsetof(Options, list)},
            {"--help", NULL, "print this", NULL, offsetof(Options, help)},
            {"--version", NULL, "print the version", NULL, offsetof(Options, version)}};
enum { ROWS = sizeof rows / sizeof *rows };

// `argument` is --name or --name=operand; *next is what follows it.
static Exit parse_one(Options *options, const char *argument, const char *next, bool *took_next) {
  size_t length = strcspn(argument, "=");
  const char *operand = argument[length] ? argument + length + 1 : next;
  *took_next = false;
  for (int i = 0; i < ROWS; ++i) {
    if (strlen(rows[i].name) != length || strncmp(rows[i].name, argument, length) != 0) continue;
    if (!rows[i].operand) {
      if (argument[length]) return fprintf(stderr, "moe-bench: %s takes no operand\n", rows[i].name), BENCH_USAGE;
      *(bool *)((char *)options + rows[i].flag) = true;
      return BENCH_OK;
    }
    if (!operand) return fprintf(stderr, "moe-bench: %s needs an operand: %s\n", rows[i].name, rows[i].operand), BENCH_USAGE;
    *took_next = !argument[length];
    return rows[i].set(options, operand);
  }
  fprintf(stderr, "moe-bench: %s is not an option; --help lists them\n", argument);
  return BENCH_USAGE;
}

static void set_defaults(Options *options) {
  if (!options->bench) options->bench = &benches[0];
  options->cases = options->bench->cases(&options->num_cases);
  options->replays = options->quick ? QUICK_REPLAYS : REPLAYS;
  if (options->ranks == 0) options->ranks = options->bench->ranks;
  if (options->num_tokens > 0) return;
  const int64_t *tokens = options->quick ? options->bench->quick_tokens : options->bench->tokens;
  while (tokens[options->num_tokens] > 0) ++options->num_tokens;
  memcpy(options->tokens, tokens, (size_t)options->num_tokens * sizeof *tokens);
}

Exit options_parse(int count, char **arguments, Options *options) {
  *options = (Options){0};
  for (int i = 1; i < count; ++i) {
    bool took_next = false, is_option = arguments[i][0] == '-';
    Exit exit = is_option ? parse_one(options, arguments[i], i + 1 < count ? arguments[i + 1] : NULL, &took_next) : set_bench(options, arguments[i]);
    if (exit) return exit;
    i += took_next;
  }
  set_defaults(options);
  Exit exit = check_names(options);
  if (!exit) exit = check_case(options);
  if (!exit) exit = check_compare(options);
  return exit ? exit : check_weights(options);
}

void options_help(void) {
  printf("moe-bench [bench] [option ...]: measure the ops on the GPUs of this machine\n\n");
  for (int i = 0; i < num_benches; ++i) printf("  %-18s %s%s\n", benches[i].name, benches[i].help, i ? "" : ". The default");
  printf("\n");
  for (int i = 0; i < ROWS; ++i) {
    char name[64];
    snprintf(name, sizeof name, "%s %s", rows[i].name, rows[i].operand ? rows[i].operand : "");
    printf("  %-18s %s\n", name, rows[i].help);
  }
  printf("\nexit status: 0 all measured, 1 something failed or had a wrong result, 2 the command line is wrong, 3 no GPU\n");
}

bool options_name(const Options *options, const char *step) {
  for (int i = 0; i < options->num_names; ++i)
    if (strcmp(options->names[i], step) == 0) return true;
  return options->num_names == 0;
}

bool options_name_case(const Options *options, const Case *what) {
  char name[MAX_CASE_NAME];
  snprintf(name, sizeof name, "%s, %s", what->variant, what->dtype);
  bool named = !options->part || strstr(name, options->part);
  for (int step = 0; step < what->num_steps && named; ++step)
    if (options_name(options, what->steps[step].name)) return true;
  return false;
}

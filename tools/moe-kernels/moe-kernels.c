//===- moe-kernels.c - which kernels there are ------------------------------------------------------===//
//
// Reads the table of kernels/table.h, which is inside: no device, no library and no compiler is needed.
//
//===----------------------------------------------------------------------------------------------===//

#include "kernels/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum Exit { EXACT = 0, GENERIC = 1, USAGE = 2, NONE = 3 } Exit;

enum { MAX_PARAMETERS = 32 };

typedef struct Option {
  const char *name, *value;
} Option;

typedef struct CommandLine {
  const char *op, *target, *dtype, *set; // NULL: not given
  Option parameters[MAX_PARAMETERS];     // of `query`
  int numParameters;
} CommandLine;

//===--- texts ------------------------------------------------------------------------------------===//

static void printHelp(void) {
  puts("moe-kernels list [--op OP] [--set SET]\n"
       "    The specialised kernels: op, target, element type, the parameters that each was made for, and the smallest set that has it.\n"
       "    --op OP          those of one op, such as moe.combine\n"
       "    --set SET        those of a library that was built with this set: minimal, default or full\n"
       "\n"
       "moe-kernels query --op OP [--target TARGET] --dtype TYPE [--PARAMETER VALUE ...]\n"
       "    The kernel that an op gets.\n"
       "    --op OP          the op\n"
       "    --target TARGET  what it runs on; default sm_90a\n"
       "    --dtype TYPE     the element type of its first buffer, such as bf16\n"
       "    --PARAMETER VALUE  a parameter of the op, such as --hidden_size 7168\n"
       "\n"
       "moe-kernels --help | --version\n"
       "\n"
       "An option may also be written --name=value. Of options that are given twice the last counts.\n"
       "\n"
       "Exit status of query: 0 there is an instance for these values, 1 the generic kernel serves them, 3 there is no kernel. 2: bad command line.");
}

static Exit fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static Exit fail(const char *format, ...) {
  va_list arguments;
  fputs("moe-kernels: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputs("\nTry moe-kernels --help.\n", stderr);
  return USAGE;
}

static void printNames(FILE *file, const char *const *names) {
  for (const char *const *name = names; *name; ++name) fprintf(file, "%s%s", name == names ? "" : ", ", *name);
}

static Exit failUnknown(const char *option, const char *value, const char *const *known) {
  fprintf(stderr, "moe-kernels: --%s %s: there are ", option, value);
  printNames(stderr, known);
  fputs("\nTry moe-kernels --help.\n", stderr);
  return USAGE;
}

static bool isOneOf(const char *name, const char *const *names) {
  for (; *names; ++names)
    if (strcmp(name, *names) == 0) return true;
  return false;
}

//===--- command line -----------------------------------------------------------------------------===//

static Exit addParameter(CommandLine *line, Option option) {
  int at = 0;
  while (at < line->numParameters && strcmp(line->parameters[at].name, option.name) != 0) ++at;
  if (at == MAX_PARAMETERS) return fail("more than %d parameters", MAX_PARAMETERS);
  line->parameters[at] = option;
  line->numParameters += at == line->numParameters;
  return EXACT;
}

static Exit addOption(CommandLine *line, bool query, Option option) {
  const struct {
    const char *name;
    const char **value;
    bool ofQuery, ofList;
  } known[] = {
      {"op", &line->op, true, true}, {"target", &line->target, true, false}, {"dtype", &line->dtype, true, false}, {"set", &line->set, false, true}};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strcmp(option.name, known[i].name) != 0 || !(query ? known[i].ofQuery : known[i].ofList)) continue;
    *known[i].value = option.value;
    return EXACT;
  }
  return query ? addParameter(line, option) : fail("--%s: list has only the options --op and --set", option.name);
}

// Options are `--name value` or `--name=value`; the `=` is overwritten.
static Exit parse(CommandLine *line, bool query, char **words) {
  for (; *words; ++words) {
    if (strncmp(*words, "--", 2) != 0 || !(*words)[2]) return fail("'%s' is no option", *words);
    char *equals = strchr(*words, '=');
    Option option = {*words + 2, equals ? equals + 1 : words[1]};
    if (equals) *equals = '\0';
    if (!option.value || !*option.value) return fail("--%s needs a value", option.name);
    if (!equals) ++words;
    if (addOption(line, query, option)) return USAGE;
  }
  return EXACT;
}

//===--- list -------------------------------------------------------------------------------------===//

enum { MAX_TEXT = 512 };

static const char *const sets[] = {"minimal", "default", "full", NULL}; // by MoeKernelSet

static void appendColumns(char *text, const MoeKernelInstance *instance, const char *separator) {
  for (int i = 0; i < instance->numColumns; ++i) {
    size_t used = strlen(text);
    snprintf(text + used, MAX_TEXT - used, "%s%s=%s", used ? separator : "", instance->columns[i].name, instance->columns[i].value);
  }
}

static void printRow(const char *op, const char *target, const char *dtype, const char *columns, const char *set) {
  printf("%-24s %-8s %-6s %-32s %s\n", op, target, dtype, columns, set);
}

// A library of a set has the instances of the smaller sets too.
static bool isInSet(const MoeKernelInstance *instance, const char *set) {
  MoeKernelSet largest = MOE_KERNEL_SET_FULL;
  while (set && strcmp(sets[largest], set) != 0) --largest;
  return instance->set <= largest;
}

static void printInstances(const CommandLine *line, const char *target) {
  for (int i = 0; i < moeNumKernelInstances; ++i) {
    const MoeKernelInstance *instance = &moeKernelInstances[i];
    if ((line->op && strcmp(line->op, instance->op) != 0) || !isInSet(instance, line->set)) continue;
    char columns[MAX_TEXT] = "";
    appendColumns(columns, instance, " ");
    printRow(instance->op, target, instance->dtype, columns, moeKernelSetName(instance->set));
  }
}

static Exit list(const CommandLine *line) {
  if (line->op && !isOneOf(line->op, moeKernelOps)) return failUnknown("op", line->op, moeKernelOps);
  if (line->set && !isOneOf(line->set, sets)) return failUnknown("set", line->set, sets);
  printRow("op", "target", "dtype", "parameters", "set");
  for (const char *const *target = moeKernelTargets; *target; ++target) printInstances(line, *target);
  return EXACT;
}

//===--- query ------------------------------------------------------------------------------------===//

// Any instance of an op says which parameters its kernels were made for.
static const MoeKernelInstance *findInstance(const char *op) {
  for (int i = 0; i < moeNumKernelInstances; ++i)
    if (strcmp(moeKernelInstances[i].op, op) == 0) return &moeKernelInstances[i];
  return NULL;
}

static Exit failParameter(const CommandLine *line, const MoeKernelInstance *instance, const char *name) {
  fprintf(stderr, "moe-kernels: --%s: kernels of %s do not depend on it, but on dtype", name, line->op);
  for (int i = 0; i < instance->numColumns; ++i) fprintf(stderr, ", %s", instance->columns[i].name);
  fputs("\nTry moe-kernels --help.\n", stderr);
  return USAGE;
}

static bool hasColumn(const MoeKernelInstance *instance, const char *name) {
  for (int i = 0; i < instance->numColumns; ++i)
    if (strcmp(instance->columns[i].name, name) == 0) return true;
  return false;
}

// What would read as another part of the key.
static bool isPlain(const char *value) { return !value[strcspn(value, ",/=")] && strlen(value) < 64; }

static Exit checkQuery(const CommandLine *line) {
  if (!line->op) return fail("no op given: use --op OP");
  if (!line->dtype) return fail("no element type given: use --dtype TYPE");
  if (!isPlain(line->op) || !isPlain(line->target) || !isPlain(line->dtype)) return fail("names are short and have no ',', '/' or '='");
  const MoeKernelInstance *instance = findInstance(line->op);
  for (int i = 0; i < line->numParameters; ++i) {
    const Option *parameter = &line->parameters[i];
    if (instance && !hasColumn(instance, parameter->name)) return failParameter(line, instance, parameter->name);
    if (!isPlain(parameter->value)) return fail("--%s %s: values are short and have no ',', '/' or '='", parameter->name, parameter->value);
  }
  return EXACT;
}

static void makeKey(const CommandLine *line, char *key, size_t size) {
  size_t used = (size_t)snprintf(key, size, "%s/%s/%s", line->op, line->target, line->dtype);
  for (int i = 0; i < line->numParameters && used < size; ++i)
    used += (size_t)snprintf(key + used, size - used, ",%s=%s", line->parameters[i].name, line->parameters[i].value);
}

static void printInstance(const CommandLine *line, const MoeKernelInstance *instance) {
  char columns[MAX_TEXT] = "";
  snprintf(columns, sizeof columns, "%s", instance->dtype);
  appendColumns(columns, instance, ",");
  printf("%s/%s/%s", instance->op, line->target, columns);
}

static Exit answer(const CommandLine *line, const MoeKernelMatch *match) {
  switch (match->answer) {
  case MOE_KERNEL_EXACT:
    fputs("exact: ", stdout);
    printInstance(line, match->instance);
    printf(" (set %s)\n", moeKernelSetName(match->instance->set));
    return EXACT;
  case MOE_KERNEL_GENERIC:
    printf("generic: %s/%s/generic; ", line->op, line->target);
    if (match->instance) fputs("nearest ", stdout), printInstance(line, match->instance), fputs(": ", stdout);
    puts(match->why);
    return GENERIC;
  case MOE_KERNEL_NONE: break;
  }
  printf("none: %s\n", match->why);
  return NONE;
}

static Exit query(CommandLine *line) {
  if (!line->target) line->target = moeKernelTargets[0];
  if (checkQuery(line)) return USAGE;
  char key[8192];
  makeKey(line, key, sizeof key);
  MoeKernelMatch match = moeKernelMatch(key);
  return answer(line, &match);
}

//===--- main -------------------------------------------------------------------------------------===//

int main(int count, char **words) {
  const char *command = count > 1 ? words[1] : "";
  if (strcmp(command, "--help") == 0) return printHelp(), EXACT;
  if (strcmp(command, "--version") == 0) return puts("moe-kernels " MOE_VERSION), EXACT;
  bool isQuery = strcmp(command, "query") == 0;
  if (count < 2) return fail("no command given: use list or query");
  if (!isQuery && strcmp(command, "list") != 0) return fail("'%s' is no command: use list or query", command);
  CommandLine line = {0};
  if (parse(&line, isQuery, words + 2)) return USAGE;
  return isQuery ? query(&line) : list(&line);
}

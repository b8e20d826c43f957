//===- mutate.c - mutants of valid modules through the verifiers and the pipeline -----------------===//
//
//   mutate [--seed S] [--count N] [--from I] [--only I] [--verbose 1] FILE.mlir...
//
// Every function of the files is a seed. Mutant I of seed S is always the same. A batch of mutants runs in a process of its own, so that a crash, a
// hang or a leak is that batch's and, but for a leak, that mutant's: its text and what was changed are printed, and the next process goes on behind
// it.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/ir/ops.h"
#include "moe-mlir-c/MoeMlir.h"
#include "mutations.h"
#include <mlir-c/Diagnostics.h>
#include <mlir-c/Pass.h>
#include <mlir-c/RegisterEverything.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define STR mlirStringRefCreateFromCString

enum { BATCH = 100, MAX_MUTANTS = 1 << 20, MAX_SEEDS = 512, SECONDS_PER_MUTANT = 30, REACHED_PERCENT = 60 };

typedef enum Outcome {
  NONE, // its process ended before it did
  REFUSED_BY_PARSER,
  REFUSED_BY_ODS,
  REFUSED_BY_VERIFIER,
  REFUSED_ELSEWHERE,
  REFUSED_BY_PASS,
  PASSED,
  FAILED, // what must not happen
  OUTCOMES
} Outcome;

static const char *const outcomeNames[OUTCOMES] = {"not finished",
                                                   "refused by the parser",
                                                   "refused by a generated constraint of one of our ops",
                                                   "refused by our verifier",
                                                   "refused elsewhere (other ops, dominance, symbols)",
                                                   "verified, refused by a pass with a diagnostic",
                                                   "verified, passed the pipeline",
                                                   "FAILED"};

typedef struct Options {
  uint64_t seed;
  int64_t count, from;
  bool verbose; // say of each mutant what was changed and what became of it
  int numFiles;
  char **files;
} Options;

// What a batch's process leaves to the one that started it.
typedef struct Record {
  int64_t current;
  FuzzText text, log;
  unsigned char outcomes[MAX_MUTANTS];
  bool reached[MAX_MUTANTS]; // its text parses and reaches a verifier of lib/ir or ops
} Record;

static Record *record;

//===--- what the verifiers do --------------------------------------------------------------------===//

// Every op of ours passes here when the generated constraints hold (linked with --wrap).
MlirLogicalResult __real_moeVerifyShared(MlirOperation op);
MlirLogicalResult __wrap_moeVerifyShared(MlirOperation op);

static MlirLocation lastVerified; // of the op whose verifier ran last
static int64_t numVerified;

MlirLogicalResult __wrap_moeVerifyShared(MlirOperation op) {
  lastVerified = mlirOperationGetLocation(op);
  ++numVerified;
  return __real_moeVerifyShared(op);
}

typedef struct FirstError {
  FuzzText text;
  bool found, ours;
} FirstError;

static FirstError firstError;

static MlirLogicalResult keepFirstError(MlirDiagnostic diagnostic, void *data) {
  (void)data;
  if (firstError.found || mlirDiagnosticGetSeverity(diagnostic) != MlirDiagnosticError) return mlirLogicalResultSuccess();
  firstError.found = true;
  firstError.ours = numVerified > 0 && mlirLocationEqual(mlirDiagnosticGetLocation(diagnostic), lastVerified);
  firstError.text.used = 0;
  mlirDiagnosticPrint(diagnostic, fuzzAppend, &firstError.text);
  return mlirLogicalResultSuccess();
}

static void forget(void) {
  firstError.found = firstError.ours = false;
  firstError.text.used = 0;
  firstError.text.data[0] = 0;
  numVerified = 0;
}

// Of a module that was parsed but is not valid.
static Outcome whoRefused(void) {
  const char *text = firstError.text.data;
  bool dominance = strstr(text, "does not dominate this use") != NULL;
  if (firstError.ours && !dominance) return REFUSED_BY_VERIFIER;
  bool ourOp = strncmp(text, "'moe.", 5) == 0 || strncmp(text, "'ep.", 4) == 0;
  return ourOp && !dominance ? REFUSED_BY_ODS : REFUSED_ELSEWHERE;
}

//===--- seeds ------------------------------------------------------------------------------------===//

typedef struct Seeds {
  MlirOperation modules[MAX_SEEDS];
  int64_t count;
} Seeds;

static char *readFile(const char *path) {
  FILE *file = fopen(path, "rb");
  size_t used = 0, capacity = 1 << 16;
  char *text = malloc(capacity);
  while (file && text) {
    size_t got = fread(text + used, 1, capacity - 1 - used, file);
    if (got == 0) break;
    used += got;
    if (used == capacity - 1) text = realloc(text, capacity *= 2);
  }
  if (!file || !text) {
    fprintf(stderr, "mutate: cannot read %s\n", path);
    exit(2);
  }
  fclose(file);
  text[used] = 0;
  return text;
}

static MlirModule parse(MlirContext mlir, const char *text, size_t length) { return mlirModuleCreateParse(mlir, mlirStringRefCreate(text, length)); }

// A module with the function and all that have no ops of ours, which it may call.
static void addSeed(Seeds *seeds, MlirModule file, intptr_t number) {
  MlirOperation module = mlirOperationClone(mlirModuleGetOperation(file));
  MlirBlock body = mlirModuleGetBody(mlirModuleFromOperation(module));
  intptr_t at = 0;
  for (MlirOperation op = mlirBlockGetFirstOperation(body), next; !mlirOperationIsNull(op); op = next, ++at) {
    MlirAttribute visibility = mlirOperationGetAttributeByName(op, STR("sym_visibility"));
    next = mlirOperationGetNextInBlock(op);
    if (at != number && mlirAttributeIsNull(visibility)) mlirOperationDestroy(op);
  }
  seeds->modules[seeds->count++] = module;
}

static void readSeeds(const Options *options, MlirContext mlir, Seeds *seeds) {
  for (int f = 0; f < options->numFiles; ++f) {
    char *text = readFile(options->files[f]);
    MlirModule file = parse(mlir, text, strlen(text));
    free(text);
    if (mlirModuleIsNull(file)) {
      fprintf(stderr, "mutate: %s is no valid module\n", options->files[f]);
      exit(2);
    }
    intptr_t number = 0;
    for (MlirOperation op = mlirBlockGetFirstOperation(mlirModuleGetBody(file)); !mlirOperationIsNull(op);
         op = mlirOperationGetNextInBlock(op), ++number)
      if (seeds->count < MAX_SEEDS && mlirAttributeIsNull(mlirOperationGetAttributeByName(op, STR("sym_visibility")))) addSeed(seeds, file, number);
    mlirModuleDestroy(file);
  }
}

//===--- one mutant -------------------------------------------------------------------------------===//

static void print(MlirOperation op, bool generic, FuzzText *text) {
  MlirOpPrintingFlags flags = mlirOpPrintingFlagsCreate();
  if (generic) mlirOpPrintingFlagsPrintGenericOpForm(flags), mlirOpPrintingFlagsAssumeVerified(flags);
  text->used = 0;
  mlirOperationPrintWithFlags(op, flags, fuzzAppend, text);
  mlirOpPrintingFlagsDestroy(flags);
}

static Outcome fail(const char *what) {
  printf("mutant %lld: %s\n", (long long)record->current, what);
  if (firstError.found) printf("  first error: %s\n", firstError.text.data);
  printf("  changes: %s\n%s\n", record->log.data, record->text.data);
  return FAILED;
}

// What a valid module prints is a valid module, but for a symbol with an empty name, which upstream takes and does not print.
static bool readsBack(MlirOperation module) {
  static FuzzText text;
  print(module, false, &text);
  if (strstr(text.data, "<<INVALID EMPTY SYMBOL>>")) return true;
  MlirModule again = parse(mlirOperationGetContext(module), text.data, text.used);
  bool fine = !mlirModuleIsNull(again);
  if (fine) mlirModuleDestroy(again);
  return fine;
}

static Outcome compile(MlirOperation module, MlirPassManager manager) {
  forget();
  if (!readsBack(module)) return fail("a valid module prints a text that is none");
  forget();
  if (mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(manager, module))) return PASSED;
  return firstError.found ? REFUSED_BY_PASS : fail("a pass failed without a diagnostic");
}

static Outcome finish(MlirOperation module, MlirPassManager manager) {
  forget();
  if (mlirOperationVerify(module)) return compile(module, manager);
  return firstError.found ? whoRefused() : fail("the verifier refused without a diagnostic");
}

static Outcome runText(MlirOperation seed, MlirPassManager manager, fuzz_random *random) {
  static FuzzText original;
  print(seed, fuzz_chance(random, 50), &original);
  record->text.used = 0;
  fuzzMutateText(&original, random, &record->text, &record->log);
  forget();
  MlirModule module = parse(mlirOperationGetContext(seed), record->text.data, record->text.used);
  record->reached[record->current] = numVerified > 0;
  if (mlirModuleIsNull(module)) {
    if (!firstError.found) return fail("the parser refused without a diagnostic");
    bool ofOp = firstError.text.data[0] == '\'' && strstr(firstError.text.data, "' op ");
    return numVerified > 0 || ofOp ? whoRefused() : REFUSED_BY_PARSER;
  }
  Outcome outcome = compile(mlirModuleGetOperation(module), manager);
  mlirModuleDestroy(module);
  return outcome;
}

// The parser verifies what it reads: a mutant counts only if its text gets that far.
static bool reachesVerifier(MlirContext mlir, const FuzzText *text) {
  forget();
  MlirModule module = parse(mlir, text->data, text->used);
  if (!mlirModuleIsNull(module)) mlirModuleDestroy(module);
  return numVerified > 0;
}

static Outcome runModule(MlirOperation seed, MlirPassManager manager, fuzz_random *random) {
  MlirOperation module = mlirOperationClone(seed);
  fuzzMutateModule(module, random, &record->log);
  print(module, true, &record->text);
  record->reached[record->current] = reachesVerifier(mlirOperationGetContext(seed), &record->text);
  Outcome outcome = finish(module, manager);
  mlirOperationDestroy(module);
  return outcome;
}

static void runMutant(const Options *options, const Seeds *seeds, MlirPassManager manager, int64_t index) {
  fuzz_random random = fuzz_start(options->seed, (uint64_t)index);
  record->current = index;
  record->log.used = record->text.used = 0;
  record->text.data[0] = record->log.data[0] = 0;
  alarm(SECONDS_PER_MUTANT);
  MlirOperation module = seeds->modules[fuzz_below(&random, seeds->count)];
  bool byText = fuzz_chance(&random, 8);
  record->outcomes[index] = (unsigned char)(byText ? runText(module, manager, &random) : runModule(module, manager, &random));
  alarm(0);
  if (options->verbose)
    printf("%lld: %s| %s| %s\n", (long long)index, record->log.data, outcomeNames[record->outcomes[index]],
           firstError.found ? firstError.text.data : "");
}

//===--- batches ----------------------------------------------------------------------------------===//

static MlirContext createContext(void) {
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  mlirRegisterAllDialects(registry);
  moeMlirRegisterDialects(registry);
  MlirContext mlir = mlirContextCreateWithRegistry(registry, false);
  mlirDialectRegistryDestroy(registry);
  mlirContextLoadAllAvailableDialects(mlir);
  mlirContextAttachDiagnosticHandler(mlir, keepFirstError, NULL, NULL);
  return mlir;
}

static void ignore(MlirStringRef text, void *data) { (void)text, (void)data; }

static void runBatch(const Options *options, int64_t from, int64_t end) {
  static Seeds seeds;
  MlirContext mlir = createContext();
  MlirPassManager manager = mlirPassManagerCreate(mlir);
  if (mlirLogicalResultIsFailure(
          mlirParsePassPipeline(mlirPassManagerGetAsOpPassManager(manager), STR(moeMlirPipelineGet(STR("host"))), ignore, NULL)))
    exit(2);
  readSeeds(options, mlir, &seeds);
  for (int64_t index = from; index < end; ++index) runMutant(options, &seeds, manager, index);
  for (int64_t i = 0; i < seeds.count; ++i) mlirOperationDestroy(seeds.modules[i]);
  mlirPassManagerDestroy(manager);
  mlirContextDestroy(mlir);
  record->current = end;
}

static void reportDeath(int status, int64_t from, int64_t end) {
  bool finished = record->current == end;
  if (finished)
    printf("mutants %lld to %lld: their process ended with %d: a leak, see above\n", (long long)from, (long long)end - 1, WEXITSTATUS(status));
  else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    printf("mutant %lld: more than %d seconds\n", (long long)record->current, SECONDS_PER_MUTANT);
  else
    printf("mutant %lld: ended its process (%s %d)\n", (long long)record->current, WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  if (!finished) printf("  changes: %s\n%s\n", record->log.data, record->text.data);
}

// Where to go on; `*failures` counts what went wrong.
static int64_t runProcess(const Options *options, int64_t from, int64_t end, int64_t *failures) {
  int status;
  fflush(stdout);
  record->current = from - 1;
  pid_t child = fork();
  if (child == 0) {
    runBatch(options, from, end);
    exit(0); // with the check for leaks
  }
  if (child < 0 || waitpid(child, &status, 0) != child) {
    perror("mutate");
    exit(2);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return end;
  if (record->current < from) {
    fprintf(stderr, "mutate: a batch could not start\n");
    exit(2);
  }
  ++*failures;
  reportDeath(status, from, end);
  return record->current < end ? record->current + 1 : end;
}

//===--- the program ------------------------------------------------------------------------------===//

static Options readOptions(int argc, char **argv) {
  Options options = {.seed = 1, .count = 2000};
  int i = 1;
  for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
    long long value = atoll(argv[i + 1]);
    if (strcmp(argv[i], "--seed") == 0)
      options.seed = (uint64_t)value;
    else if (strcmp(argv[i], "--count") == 0)
      options.count = value;
    else if (strcmp(argv[i], "--from") == 0)
      options.from = value;
    else if (strcmp(argv[i], "--only") == 0)
      options.from = value, options.count = 1;
    else if (strcmp(argv[i], "--verbose") == 0)
      options.verbose = value != 0;
  }
  options.numFiles = argc - i;
  options.files = argv + i;
  if (options.numFiles > 0 && options.from >= 0 && options.count > 0 && options.from + options.count <= MAX_MUTANTS) return options;
  fprintf(stderr, "usage: mutate [--seed S] [--count N] [--from I] [--only I] [--verbose 1] FILE.mlir...\n");
  exit(2);
}

static bool report(const Options *options, int64_t failures) {
  int64_t counts[OUTCOMES] = {0}, reached = 0, end = options->from + options->count;
  for (int64_t i = options->from; i < end; ++i) ++counts[record->outcomes[i]], reached += record->reached[i];
  printf("%lld mutants, seed %llu\n", (long long)options->count, (unsigned long long)options->seed);
  for (int o = 0; o < OUTCOMES; ++o) printf("  %6lld  %s\n", (long long)counts[o], outcomeNames[o]);
  printf("  %6lld  parsed and reached a verifier of one of our ops (%.1f %%, at least %d %% must)\n", (long long)reached,
         100.0 * (double)reached / (double)options->count, REACHED_PERCENT);
  printf("  %6lld  processes that crashed, hung or leaked\n", (long long)failures);
  bool enough = reached * 100 >= options->count * REACHED_PERCENT || options->count < BATCH;
  return enough && failures == 0 && counts[FAILED] == 0 && counts[NONE] == 0;
}

int main(int argc, char **argv) {
  Options options = readOptions(argc, argv);
  record = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (record == MAP_FAILED) return 2;
  mlirRegisterAllPasses();
  moeMlirRegisterPasses();
  int64_t failures = 0, end = options.from + options.count;
  for (int64_t from = options.from; from < end;) from = runProcess(&options, from, from + BATCH < end ? from + BATCH : end, &failures);
  return report(&options, failures) ? 0 : 1;
}

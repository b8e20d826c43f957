//===- moe-compile.c - a graph to a shared library in one command ---------------------------------===//

#include "moe-mlir-c/MoeMlir.h"
#include "tools/moe-compile/backend.h"
#include "tools/moe-compile/options.h"
#include <errno.h>
#include <mlir-c/Diagnostics.h>
#include <mlir-c/Pass.h>
#include <mlir-c/RegisterEverything.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STR mlirStringRefCreateFromCString

//===--- source -----------------------------------------------------------------------------------===//

typedef struct Source {
  const char *path;
  char *text;
  size_t length;
} Source;

static int readSource(const char *path, Source *source) {
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  *source = (Source){path, NULL, 0};
  for (size_t capacity = 0, got = 1; file && got > 0; source->length += got) {
    if (source->length + 1 >= capacity) source->text = realloc(source->text, capacity = 2 * capacity + 65536);
    if (!source->text) break;
    got = fread(source->text + source->length, 1, capacity - source->length - 1, file);
  }
  if (!file || ferror(file) || !source->text) {
    fprintf(stderr, "moe-compile: cannot read '%s': %s\n", path, strerror(errno));
    if (file && file != stdin) fclose(file);
    return EXIT_FILE;
  }
  source->text[source->length] = 0;
  if (file != stdin) fclose(file);
  return 0;
}

//===--- diagnostics ------------------------------------------------------------------------------===//

// The place in a file behind call sites, names and fused locations; null if there is none.
static MlirLocation placeOf(MlirLocation location) {
  if (mlirLocationIsAFileLineColRange(location)) return location;
  if (mlirLocationIsACallSite(location)) return placeOf(mlirLocationCallSiteGetCallee(location));
  if (mlirLocationIsAName(location)) return placeOf(mlirLocationNameGetChildLoc(location));
  if (mlirLocationIsAFused(location) && mlirLocationFusedGetNumLocations(location) > 0) {
    MlirLocation *parts = calloc(mlirLocationFusedGetNumLocations(location), sizeof *parts);
    if (!parts) return (MlirLocation){NULL};
    mlirLocationFusedGetLocations(location, parts);
    MlirLocation place = placeOf(parts[0]);
    free(parts);
    return place;
  }
  return (MlirLocation){NULL};
}

static void toStderr(MlirStringRef text, void *data) {
  (void)data;
  fwrite(text.data, 1, text.length, stderr);
}

// The line, and a caret under the byte that `column` counts to. Tabs are as wide in both; of UTF-8 only the first byte of a character has a width.
static void printLine(const Source *source, int line, int column) {
  const char *start = source->text;
  for (int i = 1; i < line && start; ++i) start = (start = strchr(start, '\n')) ? start + 1 : NULL;
  if (!start || column < 1) return;
  int length = (int)strcspn(start, "\r\n");
  if (length > 240 || column > length + 1) return;
  fprintf(stderr, "%.*s\n", length, start);
  for (int i = 0; i < column - 1; ++i)
    if ((start[i] & 0xC0) != 0x80) fputc(start[i] == '\t' ? '\t' : ' ', stderr);
  fputs("^\n", stderr);
}

static void toCount(MlirStringRef text, void *data) {
  static const char dump[] = "see current operation";
  int *count = data; // of pieces, -1 if the first one announces a dump of the operation
  if (*count == 0 && text.length >= sizeof dump - 1 && memcmp(text.data, dump, sizeof dump - 1) == 0)
    *count = -1;
  else if (*count >= 0)
    ++*count;
}

// The operation as the passes have left it: pages of no use to who wrote the graph.
static bool isDump(MlirDiagnostic note) {
  int count = 0;
  mlirDiagnosticPrint(note, toCount, &count);
  return count < 0;
}

// MLIR calls a text that it is given "-". A graph that another program made may name the places of that program's source.
static bool isInSource(MlirLocation place) { return mlirStringRefEqual(mlirIdentifierStr(mlirLocationFileLineColRangeGetFilename(place)), STR("-")); }

// Prints "FILE:LINE:COLUMN: ", or what of it is known. Whether the line is one of `source`.
static bool printPlace(const Source *source, MlirLocation place) {
  int line = mlirLocationIsNull(place) ? 0 : mlirLocationFileLineColRangeGetStartLine(place);
  bool own = line == 0 || isInSource(place);
  if (own)
    fputs(source->path, stderr);
  else
    toStderr(mlirIdentifierStr(mlirLocationFileLineColRangeGetFilename(place)), NULL);
  if (line) fprintf(stderr, ":%d:%d", line, mlirLocationFileLineColRangeGetStartColumn(place));
  fputs(": ", stderr);
  return own && line;
}

static MlirLogicalResult printDiagnostic(MlirDiagnostic diagnostic, void *data) {
  static const char *const severities[] = {"error", "warning", "note", "remark"};
  const Source *source = data;
  MlirLocation place = placeOf(mlirDiagnosticGetLocation(diagnostic));
  bool own = printPlace(source, place);
  fprintf(stderr, "%s: ", severities[mlirDiagnosticGetSeverity(diagnostic)]);
  mlirDiagnosticPrint(diagnostic, toStderr, NULL);
  fputc('\n', stderr);
  if (own) printLine(source, mlirLocationFileLineColRangeGetStartLine(place), mlirLocationFileLineColRangeGetStartColumn(place));
  for (intptr_t i = 0; i < mlirDiagnosticGetNumNotes(diagnostic); ++i)
    if (!isDump(mlirDiagnosticGetNote(diagnostic, i))) printDiagnostic(mlirDiagnosticGetNote(diagnostic, i), data);
  return mlirLogicalResultSuccess();
}

//===--- MLIR -------------------------------------------------------------------------------------===//

static MlirContext makeContext(Source *source) {
  MlirDialectRegistry registry = mlirDialectRegistryCreate();
  mlirRegisterAllDialects(registry);
  moeMlirRegisterDialects(registry);
  MlirContext context = mlirContextCreateWithRegistry(registry, true);
  mlirDialectRegistryDestroy(registry);
  mlirContextAttachDiagnosticHandler(context, printDiagnostic, source, NULL);
  mlirRegisterAllLLVMTranslations(context);
  mlirRegisterAllPasses();
  moeMlirRegisterPasses();
  return context;
}

static int runPipeline(MlirModule module, const char *pipeline) {
  MlirPassManager manager = mlirPassManagerCreate(mlirModuleGetContext(module));
  int status = 0;
  if (mlirLogicalResultIsFailure(mlirParsePassPipeline(mlirPassManagerGetAsOpPassManager(manager), STR(pipeline), toStderr, NULL)))
    status = EXIT_INTERNAL;
  else if (mlirLogicalResultIsFailure(mlirPassManagerRunOnOp(manager, mlirModuleGetOperation(module))))
    status = EXIT_GRAPH;
  mlirPassManagerDestroy(manager);
  return status;
}

static void toFile(MlirStringRef text, void *file) { fwrite(text.data, 1, text.length, file); }

static int writeMlir(MlirModule module, const char *path) {
  FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
  if (file) mlirOperationPrint(mlirModuleGetOperation(module), toFile, file);
  if (file && !ferror(file) && (file == stdout ? fflush(file) : fclose(file)) == 0) return 0;
  fprintf(stderr, "moe-compile: cannot write '%s': %s\n", path, strerror(errno));
  return EXIT_FILE;
}

//===--- pipelines --------------------------------------------------------------------------------===//

// The target's pipeline with the options of this command; NULL if there is no memory. With `binaries` it ends with machine code of the kernels.
static char *makePipeline(const char *target, const Options *options, bool binaries) {
  static const char selection[] = "moe-select-kernels{target=";
  const char *pipeline = moeMlirPipelineGet(STR(target)), *place = strchr(strstr(pipeline, selection), '}');
  const char *remarks = options->remarks ? " remarks=true" : "", *require = options->requireSpecialized ? " require-specialized=true" : "";
  int head = (int)(place - pipeline), tail = (int)strlen(place) - 1; // without the parenthesis at the end
  size_t size = strlen(pipeline) + strlen(options->cuda) + 128;
  char *text = malloc(size);
  if (!text) return NULL;
  int used = snprintf(text, size, "%.*s%s%s%.*s", head, pipeline, remarks, require, tail, place);
  if (binaries) used += snprintf(text + used, size - (size_t)used, ",gpu-module-to-binary{format=fatbin toolkit=%s}", options->cuda);
  snprintf(text + used, size - (size_t)used, ")");
  return text;
}

// Upstream looks for these when kernels are compiled, and without libdevice leaves functions of it undefined without a word.
static int checkToolkit(const Options *options) {
  static const char *const files[] = {"bin/ptxas", "bin/fatbinary", "nvvm/libdevice/libdevice.10.bc"};
  char path[4096];
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
    snprintf(path, sizeof path, "%s/%s", options->cuda, files[i]);
    if (access(path, i < 2 ? X_OK : R_OK) == 0) continue;
    fprintf(stderr, "moe-compile: cannot use '%s' of the CUDA toolkit: %s; name its folder with --cuda or CUDA_HOME\n", path, strerror(errno));
    return EXIT_FILE;
  }
  return 0;
}

//===--- compilation ------------------------------------------------------------------------------===//

static int runPasses(MlirModule module, const char *target, const Options *options) {
  char *pipeline = makePipeline(target, options, strcmp(target, "host") != 0 && options->emit != EMIT_MLIR);
  int status = pipeline ? runPipeline(module, pipeline) : EXIT_INTERNAL;
  free(pipeline);
  reportStep(options, "passes");
  return status;
}

// The graph for the host, beside a device's.
static int compileHostHalf(MlirModule module, const Options *options) {
  Options plain = *options;
  plain.remarks = plain.requireSpecialized = false; // of the target's kernels
  int status = runPasses(module, "host", &plain);
  if (status == EXIT_GRAPH)
    fprintf(stderr, "moe-compile: the graph compiles for %s, but not for the host; --no-host leaves that half out\n", options->target);
  return status;
}

static int compileHalves(Halves *halves, const Options *options) {
  int status = runPasses(halves->target, options->target, options);
  if (status == 0 && !mlirModuleIsNull(halves->host)) status = compileHostHalf(halves->host, options);
  if (status != 0) return status;
  return options->emit == EMIT_MLIR ? writeMlir(halves->target, options->output) : emitHalves(halves, options);
}

static int compile(MlirContext context, const Source *source, const Options *options) {
  Halves halves = {mlirModuleCreateParse(context, mlirStringRefCreate(source->text, source->length)), {NULL}};
  if (mlirModuleIsNull(halves.target)) return EXIT_GRAPH;
  reportStep(options, "parse");
  if (options->emit == EMIT_LIBRARY && !isForHost(options) && !options->noHost)
    halves.host = mlirModuleFromOperation(mlirOperationClone(mlirModuleGetOperation(halves.target)));
  int status = compileHalves(&halves, options);
  mlirModuleDestroy(halves.target);
  if (!mlirModuleIsNull(halves.host)) mlirModuleDestroy(halves.host);
  return status;
}

static int checkTarget(const Options *options) {
  if (moeMlirPipelineGet(STR(options->target))) return 0;
  const char *why = strcmp(options->target, "sm_100a") == 0 ? ": only the kernels through which ranks talk to each other are built for it" : "";
  fprintf(stderr, "moe-compile: target '%s' is not one of this build (host, sm_90a)%s\n", options->target, why);
  return EXIT_USAGE;
}

static int checkTools(const Options *options) {
  if (isForHost(options) || options->emit == EMIT_MLIR) return 0;
  int status = checkToolkit(options);
  return status == 0 && options->emit == EMIT_LIBRARY ? checkLibraries(options) : status;
}

static int printPipeline(const Options *options) {
  char *pipeline = makePipeline(options->target, options, !isForHost(options));
  bool printed = pipeline && puts(pipeline) >= 0;
  free(pipeline);
  return printed ? 0 : EXIT_FILE;
}

int main(int argc, char **argv) {
  Options options;
  Source source;
  int status;
  if (!parseOptions(argc, argv, &options, &status)) return status;
  if ((status = checkTarget(&options)) != 0) return status;
  if (options.printPipeline) return printPipeline(&options);
  if ((status = checkTools(&options)) != 0) return status;
  if ((status = readSource(options.input, &source)) == 0) {
    reportStep(&options, NULL);
    MlirContext context = makeContext(&source);
    reportStep(&options, "start");
    status = compile(context, &source, &options);
    mlirContextDestroy(context);
  }
  free(source.text);
  return status;
}

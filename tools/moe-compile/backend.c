//===- backend.c - from a module in the LLVM dialect to a file ------------------------------------===//
//
// MLIR to LLVM IR to an object through LLVM's C API, then one call of the system's linker.
//
//===----------------------------------------------------------------------------------------------===//

#include "tools/moe-compile/backend.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <mlir-c/Target/LLVMIR.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void reportStep(const Options *options, const char *step) {
  static struct timespec last;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (options->verbose && step)
    fprintf(stderr, "moe-compile: %-10s %.3f s\n", step, (double)(now.tv_sec - last.tv_sec) + 1e-9 * (double)(now.tv_nsec - last.tv_nsec));
  last = now;
}

static int fail(int status, const char *what, const char *why) {
  fprintf(stderr, "moe-compile: %s%s%s\n", what, why ? ": " : "", why ? why : "");
  return status;
}

// Prints `message`, which LLVM made, and frees it.
static int failWith(int status, const char *what, char *message) {
  fail(status, what, message);
  LLVMDisposeMessage(message);
  return status;
}

//===--- target -----------------------------------------------------------------------------------===//

// LLVM has no question whether a name is a processor's. It goes on with one that has no 64-bit code, and ends the process over that.
static void endProcess(const char *reason) {
  if (strstr(reason, "64-bit code requested")) exit(fail(EXIT_USAGE, "--cpu names no 64-bit processor that this LLVM knows", NULL));
  exit(fail(EXIT_INTERNAL, "LLVM cannot go on", reason));
}

static int makeTargetMachine(const Options *options, LLVMTargetMachineRef *machine) {
  LLVMInstallFatalErrorHandler(endProcess);
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  bool native = strcmp(options->cpu, "native") == 0;
  char *triple = LLVMGetDefaultTargetTriple(), *message = NULL;
  char *cpu = native ? LLVMGetHostCPUName() : LLVMCreateMessage(options->cpu), *features = native ? LLVMGetHostCPUFeatures() : LLVMCreateMessage("");
  LLVMTargetRef target;
  int status = 0;
  if (LLVMGetTargetFromTriple(triple, &target, &message))
    status = failWith(EXIT_INTERNAL, "this LLVM cannot generate code for the machine", message);
  else
    *machine = LLVMCreateTargetMachine(target, triple, cpu, features, LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelDefault);
  LLVMDisposeMessage(triple), LLVMDisposeMessage(cpu), LLVMDisposeMessage(features);
  return status;
}

//===--- LLVM IR ----------------------------------------------------------------------------------===//

// LLVM makes calls of memset and others by name, which would reach a graph function of that name even if it is private.
static void renameFunction(LLVMValueRef function) {
  static const char prefix[] = "moe.graph.";
  size_t length;
  const char *name = LLVMGetValueName2(function, &length);
  char *renamed = malloc(sizeof prefix + length);
  if (!renamed) abort(); // as LLVM does when it has no memory
  memcpy(renamed, prefix, sizeof prefix - 1);
  memcpy(renamed + sizeof prefix - 1, name, length);
  LLVMSetValueName2(function, renamed, sizeof prefix - 1 + length);
  free(renamed);
}

// All but the description becomes private to the library: a graph function called "read" must not meet libc's.
static void internalise(LLVMModuleRef module) {
  for (LLVMValueRef function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function)) {
    if (LLVMIsDeclaration(function)) continue;
    LLVMSetLinkage(function, LLVMInternalLinkage);
    renameFunction(function);
  }
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    size_t length;
    const char *name = LLVMGetValueName2(global, &length);
    if (!LLVMIsDeclaration(global) && strcmp(name, "moert_graph_info") != 0) LLVMSetLinkage(global, LLVMInternalLinkage);
  }
}

static int optimise(LLVMModuleRef module, LLVMTargetMachineRef machine) {
  char *message = NULL;
  if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) return failWith(EXIT_INTERNAL, "invalid LLVM IR", message);
  LLVMDisposeMessage(message);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, "default<O3>", machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return 0;
  char *text = LLVMGetErrorMessage(error);
  fail(EXIT_INTERNAL, "LLVM's passes failed", text);
  LLVMDisposeErrorMessage(text);
  return EXIT_INTERNAL;
}

// LLVM's own functions that write files end the process if the disk is full.
static int writeFile(const char *path, const char *data, size_t size) {
  FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "wb");
  bool written = file && fwrite(data, 1, size, file) == size;
  if (file && (file == stdout ? fflush(file) : fclose(file)) != 0) written = false;
  return written ? 0 : fail(EXIT_FILE, path, strerror(errno));
}

static int writeText(LLVMModuleRef module, const char *path) {
  char *text = LLVMPrintModuleToString(module);
  int status = writeFile(path, text, strlen(text));
  LLVMDisposeMessage(text);
  return status;
}

static int writeObject(LLVMModuleRef module, LLVMTargetMachineRef machine, const char *path) {
  LLVMMemoryBufferRef object;
  char *message = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &object))
    return failWith(EXIT_INTERNAL, "LLVM cannot make an object of the graph", message);
  int status = writeFile(path, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
  LLVMDisposeMemoryBuffer(object);
  return status;
}

//===--- linking ----------------------------------------------------------------------------------===//

// ../lib beside this program.
static const char *libraryFolder(const Options *options, char *buffer, size_t size) {
  if (options->library) return options->library;
  char program[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return ".";
  program[length] = 0;
  snprintf(buffer, size, "%s/../lib", dirname(program));
  return buffer;
}

// -z defs: a symbol that nothing defines is an error now, not when the graph is loaded. libgcc has the conversions of f16 for processors that do not.
static int linkLibrary(const char *object, const Options *options) {
  char folder[PATH_MAX + 8];
  const char *library = libraryFolder(options, folder, sizeof folder);
  const char *const arguments[] = {"ld",           "-shared",      "-Bsymbolic",  "--hash-style=gnu", "-z",   "relro", "-z",    "noexecstack",
                                   "-z",           "defs",         "-o",          options->output,    object, "-L",    library, "-l:libmoert.so",
                                   "-l:libm.so.6", "-l:libc.so.6", "--as-needed", "-l:libgcc_s.so.1", NULL};
  pid_t child = fork();
  if (child < 0) return fail(EXIT_LINK, "cannot start the linker", strerror(errno));
  if (child == 0) {
    execvp("ld", (char *const *)arguments);
    fprintf(stderr, "moe-compile: cannot run ld (install binutils): %s\n", strerror(errno));
    _exit(127);
  }
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status == 0 ? 0 : fail(EXIT_LINK, "the linker failed: does the graph call a function that no library has?", NULL);
}

static int writeLibrary(LLVMModuleRef module, LLVMTargetMachineRef machine, const Options *options) {
  char object[PATH_MAX];
  snprintf(object, sizeof object, "%s.o.XXXXXX", options->output);
  int descriptor = mkstemp(object);
  if (descriptor < 0) return fail(EXIT_FILE, object, strerror(errno));
  close(descriptor);
  int status = writeObject(module, machine, object);
  reportStep(options, "codegen");
  if (status == 0) status = linkLibrary(object, options);
  reportStep(options, "link");
  remove(object);
  return status;
}

//===--- all of it --------------------------------------------------------------------------------===//

static int emitWith(LLVMModuleRef module, LLVMTargetMachineRef machine, const Options *options) {
  char *triple = LLVMGetTargetMachineTriple(machine);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(module, triple);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  LLVMDisposeMessage(triple);
  internalise(module);
  int status = optimise(module, machine);
  reportStep(options, "optimise");
  if (status != 0) return status;
  if (options->emit == EMIT_LLVM) return writeText(module, options->output);
  if (options->emit == EMIT_LIBRARY) return writeLibrary(module, machine, options);
  return writeObject(module, machine, options->output);
}

int emitModule(MlirModule module, const Options *options) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef translated = mlirTranslateModuleToLLVMIR(mlirModuleGetOperation(module), context);
  LLVMTargetMachineRef machine = NULL;
  int status = translated ? makeTargetMachine(options, &machine) : fail(EXIT_GRAPH, "translation to LLVM IR failed", NULL);
  if (status == 0) status = emitWith(translated, machine, options);
  if (machine) LLVMDisposeTargetMachine(machine);
  if (translated) LLVMDisposeModule(translated);
  LLVMContextDispose(context);
  return status;
}

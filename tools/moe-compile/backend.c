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

// Prefixes the name; false if there is no memory.
static bool prefixName(LLVMValueRef value, const char *prefix) {
  size_t length, added = strlen(prefix);
  const char *name = LLVMGetValueName2(value, &length);
  char *renamed = malloc(added + length + 1);
  if (!renamed) return false;
  memcpy(renamed, prefix, added);
  memcpy(renamed + added, name, length);
  LLVMSetValueName2(value, renamed, added + length);
  free(renamed);
  return true;
}

static bool startsWith(LLVMValueRef value, const char *prefix) {
  size_t length;
  const char *name = LLVMGetValueName2(value, &length);
  return length >= strlen(prefix) && memcmp(name, prefix, strlen(prefix)) == 0;
}

// All but the description becomes private to the library: a graph function called "read" must not meet libc's, and LLVM makes calls of memset and
// others by name, which would reach a private function of that name too. What upstream's GPU lowering calls is ours alone: other software in a
// process may export functions of upstream's names.
static bool separateFunctions(LLVMModuleRef module) {
  bool done = true;
  for (LLVMValueRef function = LLVMGetFirstFunction(module); function && done; function = LLVMGetNextFunction(function)) {
    bool declared = LLVMIsDeclaration(function);
    if (!declared) LLVMSetLinkage(function, LLVMInternalLinkage);
    if (!declared || startsWith(function, "mgpu")) done = prefixName(function, declared ? "moert_" : "moe.graph.");
  }
  return done;
}

// Variables called llvm.… are lists for the linker: of constructors, which hand kernels to the runtime.
static void separateVariables(LLVMModuleRef module, const char *description) {
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    size_t length;
    if (LLVMIsDeclaration(global) || startsWith(global, "llvm.")) continue;
    if (strcmp(LLVMGetValueName2(global, &length), "moert_graph_info") != 0)
      LLVMSetLinkage(global, LLVMInternalLinkage);
    else
      LLVMSetValueName2(global, description, strlen(description));
  }
}

// Whether it holds the parameters of a kernel, a struct, or their addresses: buffers of host code are numbers.
static bool isParameterBlock(LLVMValueRef instruction) {
  if (!LLVMIsAAllocaInst(instruction) || !LLVMIsAConstantInt(LLVMGetOperand(instruction, 0))) return false;
  LLVMTypeKind kind = LLVMGetTypeKind(LLVMGetAllocatedType(instruction));
  return kind == LLVMStructTypeKind || kind == LLVMPointerTypeKind;
}

// Upstream allocates the parameters of a launch where the launch stands: in a loop the stack would grow with each iteration.
static void hoistParameters(LLVMValueRef function) {
  LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(function);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(LLVMGetGlobalParent(function)));
  LLVMPositionBuilderBefore(builder, LLVMGetFirstInstruction(entry));
  for (LLVMBasicBlockRef block = LLVMGetNextBasicBlock(entry); block; block = LLVMGetNextBasicBlock(block)) {
    for (LLVMValueRef instruction = LLVMGetFirstInstruction(block), next; instruction; instruction = next) {
      next = LLVMGetNextInstruction(instruction);
      if (!isParameterBlock(instruction)) continue;
      LLVMInstructionRemoveFromParent(instruction);
      LLVMInsertIntoBuilder(builder, instruction);
    }
  }
  LLVMDisposeBuilder(builder);
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

#define CUDA_LIBRARY "libmoert_cuda.so"

int checkLibraries(const Options *options) {
  char folder[PATH_MAX + 8], path[PATH_MAX + 32];
  if (isForHost(options)) return 0;
  snprintf(path, sizeof path, "%s/" CUDA_LIBRARY, libraryFolder(options, folder, sizeof folder));
  if (access(path, R_OK) == 0) return 0;
  fprintf(stderr,
          "moe-compile: cannot read '%s', the CUDA backend, which a graph for %s is linked with: build it with -DMOE_ENABLE_CUDA=ON, or name its "
          "folder with --library\n",
          path, options->target);
  return EXIT_FILE;
}

enum { MAX_OBJECTS = 2 };

typedef struct Objects {
  int count;
  char paths[MAX_OBJECTS][PATH_MAX];
} Objects;

// -z defs: a symbol that nothing defines is an error now, not when the graph is loaded. libgcc has the conversions of f16 for processors that do not.
static void runLinker(const Objects *objects, const Options *options) {
  static const char *const flags[] = {"ld", "-shared", "-Bsymbolic", "--hash-style=gnu", "-z", "relro", "-z", "noexecstack", "-z", "defs"};
  static const char *const libraries[] = {"-l:libm.so.6", "-l:libc.so.6", "--as-needed", "-l:libgcc_s.so.1"};
  char folder[PATH_MAX + 8];
  const char *arguments[32];
  int count = 0;
  for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) arguments[count++] = flags[i];
  arguments[count++] = "-o", arguments[count++] = options->output;
  for (int i = 0; i < objects->count; ++i) arguments[count++] = objects->paths[i];
  arguments[count++] = "-L", arguments[count++] = libraryFolder(options, folder, sizeof folder);
  arguments[count++] = "-l:libmoert.so";
  if (!isForHost(options)) arguments[count++] = "-l:" CUDA_LIBRARY;
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; ++i) arguments[count++] = libraries[i];
  arguments[count] = NULL;
  execvp("ld", (char *const *)arguments);
  fprintf(stderr, "moe-compile: cannot run ld (install binutils): %s\n", strerror(errno));
}

static int linkLibrary(const Objects *objects, const Options *options) {
  pid_t child = fork();
  if (child < 0) return fail(EXIT_LINK, "cannot start the linker", strerror(errno));
  if (child == 0) {
    runLinker(objects, options);
    _exit(127);
  }
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status == 0 ? 0 : fail(EXIT_LINK, "the linker failed: does the graph call a function that no library has?", NULL);
}

// A new file beside the output, one of `objects`.
static int addObject(Objects *objects, const Options *options) {
  char *path = objects->paths[objects->count];
  snprintf(path, sizeof objects->paths[0], "%s.o.XXXXXX", options->output);
  int descriptor = mkstemp(path);
  if (descriptor < 0) return fail(EXIT_FILE, options->output, strerror(errno));
  close(descriptor);
  objects->count++;
  return 0;
}

//===--- all of it --------------------------------------------------------------------------------===//

static int prepareModule(LLVMModuleRef module, LLVMTargetMachineRef machine, const char *description, const Options *options) {
  char *triple = LLVMGetTargetMachineTriple(machine);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(module, triple);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  LLVMDisposeMessage(triple);
  if (!separateFunctions(module)) return fail(EXIT_INTERNAL, "no memory for the names of functions", NULL);
  separateVariables(module, description);
  for (LLVMValueRef function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function))
    if (!LLVMIsDeclaration(function)) hoistParameters(function);
  int status = optimise(module, machine);
  reportStep(options, "optimise");
  return status;
}

// LLVM IR or an object to the output, or an object to a new file. That is made last: LLVM may end the process over the processor.
static int writeModule(LLVMModuleRef module, LLVMTargetMachineRef machine, Objects *objects, const Options *options) {
  if (options->emit == EMIT_LLVM) return writeText(module, options->output);
  int status = objects ? addObject(objects, options) : 0;
  return status ? status : writeObject(module, machine, objects ? objects->paths[objects->count - 1] : options->output);
}

static int emitModule(MlirModule module, LLVMTargetMachineRef machine, const char *description, Objects *objects, const Options *options) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef translated = mlirTranslateModuleToLLVMIR(mlirModuleGetOperation(module), context);
  int status = translated ? prepareModule(translated, machine, description, options) : fail(EXIT_GRAPH, "translation to LLVM IR failed", NULL);
  if (status == 0) status = writeModule(translated, machine, objects, options);
  if (translated) LLVMDisposeModule(translated);
  LLVMContextDispose(context);
  reportStep(options, "codegen");
  return status;
}

static int emitLibrary(const Halves *halves, LLVMTargetMachineRef machine, const Options *options) {
  Objects objects = {.count = 0};
  int status = emitModule(halves->target, machine, "moert_graph_info", &objects, options);
  if (status == 0 && !mlirModuleIsNull(halves->host)) status = emitModule(halves->host, machine, "moert_graph_info_host", &objects, options);
  if (status == 0) status = linkLibrary(&objects, options);
  reportStep(options, "link");
  for (int i = 0; i < objects.count; ++i) remove(objects.paths[i]);
  return status;
}

int emitHalves(const Halves *halves, const Options *options) {
  LLVMTargetMachineRef machine = NULL;
  int status = makeTargetMachine(options, &machine);
  if (status != 0) return status;
  status =
      options->emit == EMIT_LIBRARY ? emitLibrary(halves, machine, options) : emitModule(halves->target, machine, "moert_graph_info", NULL, options);
  LLVMDisposeTargetMachine(machine);
  return status;
}

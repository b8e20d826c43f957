//===- options.h - the command line of moe-compile ------------------------------------------------===//
#ifndef MOE_COMPILE_OPTIONS_H
#define MOE_COMPILE_OPTIONS_H

#include <stdbool.h>

typedef enum Emit { EMIT_MLIR, EMIT_LLVM, EMIT_OBJECT, EMIT_LIBRARY } Emit;

typedef struct Options {
  const char *input, *output;
  const char *target;
  const char *cpu;     // of the host target
  const char *library; // folder of libmoert.so; NULL: ../lib beside this program
  const char *cuda;    // folder of the CUDA toolkit
  Emit emit;
  bool noHost, remarks, requireSpecialized;
  bool printPipeline, verbose;
} Options;

enum { EXIT_GRAPH = 1, EXIT_USAGE = 2, EXIT_FILE = 3, EXIT_LINK = 4, EXIT_INTERNAL = 5 };

bool isForHost(const Options *options);

// True if there is something to compile; else *status is the exit status (help and version were printed, or what is wrong).
bool parseOptions(int argc, char **argv, Options *options, int *status);

#endif

//===- backend.h - from a module in the LLVM dialect to a file ------------------------------------===//
#ifndef MOE_COMPILE_BACKEND_H
#define MOE_COMPILE_BACKEND_H

#include "tools/moe-compile/options.h"
#include <mlir-c/IR.h>

// What a graph has become for its target, and, in a library for a device, for the host; null: there is none.
typedef struct Halves {
  MlirModule target, host;
} Halves;

// Writes options->output as options->emit says (any but EMIT_MLIR); an exit status.
int emitHalves(const Halves *halves, const Options *options);

// Whether the libraries are there that a graph for the target is linked with; else what is missing is printed. An exit status.
int checkLibraries(const Options *options);

// A line with the time since the last one, if options->verbose.
void reportStep(const Options *options, const char *step);

#endif

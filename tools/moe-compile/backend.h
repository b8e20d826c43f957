//===- backend.h - from a module in the LLVM dialect to a file ------------------------------------===//
#ifndef MOE_COMPILE_BACKEND_H
#define MOE_COMPILE_BACKEND_H

#include "tools/moe-compile/options.h"
#include <mlir-c/IR.h>

// Writes options->output as options->emit says (any but EMIT_MLIR); an exit status.
int emitModule(MlirModule module, const Options *options);

// A line with the time since the last one, if options->verbose.
void reportStep(const Options *options, const char *step);

#endif

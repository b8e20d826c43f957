//===- mutations.h - changes of a module that may make it invalid ---------------------------------===//
#ifndef MOE_FUZZ_MUTATIONS_H
#define MOE_FUZZ_MUTATIONS_H

#include "random.h"
#include <mlir-c/IR.h>

// A text that grows; what does not fit is cut off.
typedef struct FuzzText {
  size_t used;
  char data[1 << 18];
} FuzzText;
void fuzzAppend(MlirStringRef piece, void *text);

// Change one to three things of the ops, types, attributes and functions of a parsed module. `log` gets their names.
void fuzzMutateModule(MlirOperation module, fuzz_random *random, FuzzText *log);

// Change tokens of a module's text, mostly in lines with ops of ours.
void fuzzMutateText(const FuzzText *text, fuzz_random *random, FuzzText *changed, FuzzText *log);

#endif

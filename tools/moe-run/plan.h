//===- plan.h - which functions run, on which arguments -------------------------------------------===//
//
// The same for all ranks. Arguments of the functions that have the same name and type are one variable; dimensions that must be equal are one size.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_RUN_PLAN_H
#define MOE_RUN_PLAN_H

#include "elements.h"
#include "options.h"

#include <moert/moert.h>

typedef struct variable {
  const moert_argument_info *info; // where it occurs first
  const element_type *type;
  bool read;    // somebody reads it before anybody has written it
  bool written; // by some function
  const moert_workspace_info *workspace;
  size_t first_size;                   // of its dimensions, in `sizes`
  const char *input, *output, *expect; // of the command line, or NULL
} variable;

// Whether two backends must leave the same in it. The layout of symmetric memory is a backend's own, and 64-bit integers of the host may be
// addresses.
bool variable_is_comparable(const variable *v);

// A dimension or a symbol. Those that must be equal share a root.
typedef struct size_slot {
  size_t root;
  const char *symbol; // of a root: NULL if no member has one
  char *label;        // of a dimension: "x.0"
  const char *given;  // by --size
} size_slot;

typedef struct plan_call {
  const moert_function_info *function;
  size_t *variables; // of each argument
} plan_call;

typedef struct plan {
  const options *options;
  moert_graph *graph;
  bool on_device; // the CUDA backend, else the host's
  variable *variables;
  size_t num_variables;
  size_slot *sizes;
  size_t num_sizes;
  plan_call *calls;
  size_t num_calls;
} plan;

run_exit plan_make(const options *options, moert_graph *graph, plan *plan, message *why);
void plan_free(plan *plan);

size_t plan_size_root(const plan *plan, size_t slot);
// How messages name a size: "T", or "x.0".
const char *plan_size_name(const plan *plan, size_t slot);
// "bf16[T, 7168]"
void append_argument_type(char *buffer, size_t size, const moert_argument_info *info);

#endif

//===- options.h - the command line ---------------------------------------------------------------===//
#ifndef MOE_RUN_OPTIONS_H
#define MOE_RUN_OPTIONS_H

#include "text.h"

#include <moert/moert.h>
#include <stdio.h>

// NAME=VALUE
typedef struct binding {
  char *name; // owns both strings
  const char *value;
} binding;

typedef struct binding_list {
  binding *items;
  size_t count;
} binding_list;

typedef struct options {
  const char *graph;
  const char **functions;
  size_t num_functions;
  int32_t ranks;
  bool processes;      // ranks are processes, else threads
  const char *backend; // NULL: that of the graph's target
  int32_t devices[MOERT_MAX_RANKS], num_devices;
  binding_list inputs, sizes, outputs, expectations;
  bool random;
  uint64_t seed;
  double rtol, atol, rel_l2;
  bool check_elements, check_rel_l2; // which of them were given
  bool check;                        // against the host backend
  int64_t replays;                   // of a CUDA graph; 0: none is captured
  int64_t repeat;                    // 0: once, without times
  int64_t timeout_ms;
  int32_t stop_rank; // -1: none
  char *stop_op;     // owns both strings
  const char *stop_phase;
  bool info, quiet, help, version;
} options;

run_exit options_parse(int count, char **arguments, options *options, message *why);
void options_free(options *options);
void options_help(FILE *file);

#endif

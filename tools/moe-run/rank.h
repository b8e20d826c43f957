//===- rank.h - one rank: its sizes, its buffers, its calls ---------------------------------------===//
#ifndef MOE_RUN_RANK_H
#define MOE_RUN_RANK_H

#include "npy.h"
#include "plan.h"

// The contents of a variable on this rank.
typedef struct buffer {
  npy_array file; // of the input, or zeroed
  char *path;     // of the input, or NULL
  void *owned;    // NULL: the data lies in the file's mapping or in symmetric memory
  void *data;
  int64_t *shape;
  int64_t elements;
  size_t bytes;
} buffer;

typedef struct known_size {
  const char *source; // who says so; NULL: nobody yet
  int64_t value;
} known_size;

typedef struct rank {
  const plan *plan;
  int32_t number;
  moert_comm *comm;
  moert_context *context;
  known_size *sizes; // by the root of plan->sizes
  int64_t *shapes;   // by dimension
  buffer *buffers;   // by variable
  double *seconds;   // of each repetition of the last function
  message message;
} rank;

void rank_init(rank *rank, const plan *plan, int32_t number, moert_comm *comm);
void rank_free(rank *rank);

// What ranks do, each in its own thread, in this order. What goes wrong is in rank->message, and the peers know of it.
run_exit rank_load(rank *rank);               // settle the sizes, map the files, allocate. Local
run_exit rank_allocate_symmetric(rank *rank); // collective
run_exit rank_call(rank *rank, size_t call);  // collective if the function is

#endif

//===- rank.h - one rank: its sizes, its buffers, its calls ---------------------------------------===//
#ifndef MOE_RUN_RANK_H
#define MOE_RUN_RANK_H

#include "board.h"
#include "npy.h"
#include "plan.h"

// The contents of a variable on this rank.
typedef struct buffer {
  npy_array file; // of the input, or zeroed
  char *path;     // of the input, or NULL
  void *owned;    // what `data` is if it is neither the file's mapping nor symmetric memory of the host
  void *data;     // in memory of the host; NULL: nobody looks at it
  void *place;    // what functions get; the same on the host backend
  void *before;   // what the first captured function found here
  void *first;    // what the calls left here, before any replay
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
  const char *prefix; // of messages: which of several runs they are of
  message *message;   // on the board
  moert_comm *comm;
  moert_context *context;
  known_size *sizes;        // by the root of plan->sizes
  int64_t *shapes;          // by dimension
  buffer *buffers;          // by variable
  moert_capture **captures; // by call; NULL: not captured
  bool inputs_kept;         // for the captures
  double *seconds;          // of each repetition; NULL: not timed
} rank;

void rank_init(rank *rank, const plan *plan, int32_t number, moert_comm *comm);
void rank_free(rank *rank);

// What ranks do, each in its own thread, in this order. What goes wrong is in rank->message, and the peers know of it.
run_exit rank_load(rank *rank);              // load.c: settle the sizes, map the files, make what lies in memory of the host. Local
run_exit rank_place(rank *rank);             // buffers.c: allocate symmetric and device memory, fill it. Collective
run_exit rank_call(rank *rank, size_t call); // rank.c: collective if the function is
run_exit rank_replay(rank *rank);            // replay.c: capture what has been called, replay it, compare. Collective likewise
run_exit rank_fetch(rank *rank);             // buffers.c: copy to memory of the host what somebody looks at. Local

//===--- of replay.c ---------------------------------------------------------------------------------===//

// What captured functions begin from, kept for the replays.
run_exit rank_keep_inputs(rank *rank);

//===--- of rank.c ----------------------------------------------------------------------------------===//

// A function of libmoert failed in this thread. A rank that was stopped plays dead; from all others the peers hear.
run_exit rank_fail(rank *rank, const char *what, moert_status status);
moert_tensor *rank_make_tensors(const rank *rank, const plan_call *call); // the caller frees them

//===--- of buffers.c -------------------------------------------------------------------------------===//

// No memory: NULL, and in rank->message.
void *rank_allocate(rank *rank, const variable *variable, size_t bytes);
// To and from the place of a variable.
moert_status rank_write(rank *rank, const buffer *buffer, const void *from);
moert_status rank_read(rank *rank, const buffer *buffer, void *to);
// So that an element that the function forgets to write is seen. Not symmetric memory: peers may already be writing to it.
moert_status rank_poison_outputs(rank *rank, const plan_call *call);

#endif

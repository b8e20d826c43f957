//===- processes.h - ranks as processes -------------------------------------------------------------===//
#ifndef MOE_RUN_PROCESSES_H
#define MOE_RUN_PROCESSES_H

#include "board.h"

// Runs `count` ranks from `first` on in this process; what is not of a rank is in `why`.
typedef run_exit rank_program(const options *options, board *board, int32_t first, int32_t count, message *why);

// Run `program` in a process per rank, and wait for all. Each prints to stdout what it would alone, in the order of ranks; what ranks say is on the
// board. This process must not have called libmoert: devices do not work in both sides of a fork. The exit status of the lowest rank that failed.
run_exit processes_run(const options *options, board *board, rank_program *program, message *why);

#endif

//===- slab.h - what devices keep in the STATE region of a slab ----------------------------------------===//
//
// Kernels include this file. The host writes it when it initialises or recovers a workspace, with everything but the first two zero.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_SLAB_H
#define MOERT_REFERENCE_SLAB_H

typedef struct moert__slab_state {
  unsigned long long mask; // of the ranks that live
  unsigned long long self; // the slab's address: whether the workspace is still there, or another was made over it
  long long rows;          // that the last dispatch of layout expert_grouped placed
  int failed;              // an exchange failed: this one and those after it poison their outputs, until the workspace is recovered
  int full;                // the last dispatch had no room for its rows: those after it fail, but not itself
} moert__slab_state;

#endif

//===- pairs.cuh - device code that the ops of the dialect `ep` share ---------------------------------===//
//
// A pair is a token and one of its slots: pair = token * top_k + slot.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_PAIRS_CUH
#define MOE_KERNELS_PAIRS_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/device.cuh"

static const int kThreads = 256; // of blocks that work on pairs or rows
static const int kFlag = 1024;   // MOERT_EP_FLAG of moert/ep.h

// What a dispatch and its combine have in common.
struct EpLayer {
  const int *ids; // [tokens][topK]
  int64_t tokens, hidden, experts, firstExpert, sharedBegin, sharedCount;
  int topK, rank;
  bool fusedShared;
  int *segments, *round; // the counters
  moert__fault *fault;
  int op;
};

// The local expert of a global id, -1: of another rank or none.
__device__ inline int64_t localExpert(const EpLayer &layer, int id) {
  const int64_t local = id - layer.firstExpert;
  return local >= 0 && local < layer.experts ? local : -1;
}

// Row of the shared expert that a token has, -1: none.
__device__ inline int64_t sharedRow(const EpLayer &layer, int64_t token) {
  const int64_t row = token - layer.sharedBegin;
  return row >= 0 && row < layer.sharedCount ? row : -1;
}

#endif

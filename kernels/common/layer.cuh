//===- layer.cuh - what the launchers of the dialect `ep` share ---------------------------------------===//
#ifndef MOE_KERNELS_LAYER_CUH
#define MOE_KERNELS_LAYER_CUH

#include "kernels/common/pairs.cuh"
#include "lib/reference/ep.h"

static_assert(kFlag == MOERT_EP_FLAG, "pairs.cuh does not include moert/ep.h");

inline EpLayer layerOf(const moert__ep_layer *checked, moert__ep_slice shared, moert__ep_counters counters, const moert_tensor *ids, int op,
                       const moert_context *context) {
  EpLayer layer = {};
  layer.ids = static_cast<const int *>(moert__data(ids));
  layer.tokens = checked->tokens;
  layer.hidden = checked->hidden_size;
  layer.experts = checked->n_experts;
  layer.firstExpert = checked->rank * checked->n_experts;
  layer.sharedBegin = shared.begin;
  layer.sharedCount = shared.count;
  layer.topK = static_cast<int>(checked->top_k);
  layer.rank = checked->rank;
  layer.fusedShared = checked->fused_shared_expert;
  layer.segments = counters.segments;
  layer.round = counters.round;
  layer.fault = moert__context_fault(context);
  layer.op = op;
  return layer;
}

// Whether rows of so many bytes at these addresses are vectors of 16 bytes.
inline bool areVectors(size_t rowBytes, const void *a, const void *b) {
  return (rowBytes | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

#endif

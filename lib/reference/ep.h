//===- ep.h - what the ops of the dialect `ep` share, on all backends -------------------------------===//
//
// The checks read the pointer tables, which are host memory, and nothing of what a device has: counters and ids are looked at by the backends.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_EP_H
#define MOERT_REFERENCE_EP_H

#include "lib/runtime/shared.h"
#include <moert/ep.h>

#ifdef __cplusplus
extern "C" {
#endif

// A call of one layer in the mode skip_a2a, as dispatch and combine have it among their parameters.
typedef struct moert__ep_layer {
  int64_t hidden_size, top_k, n_experts, max_token_per_rank, n_gpus_per_node, n_nodes;
  bool fused_shared_expert;
  int64_t ranks; // allreduce_world_size
  int64_t tokens;
  int32_t rank;
} moert__ep_layer;

#define MOERT__EP_LAYER(params, token_count, context)                                                                                                \
  {(params)->hidden_size,                                                                                                                            \
   (params)->top_k,                                                                                                                                  \
   (params)->n_experts,                                                                                                                              \
   (params)->max_token_per_rank,                                                                                                                     \
   (params)->n_gpus_per_node,                                                                                                                        \
   (params)->n_nodes,                                                                                                                                \
   (params)->fused_shared_expert,                                                                                                                    \
   (params)->allreduce_world_size,                                                                                                                   \
   (token_count),                                                                                                                                    \
   moert_comm_rank(moert_context_comm(context))}

moert_status moert__ep_check_one_rank(int64_t n_gpus_per_node, int64_t n_nodes);
moert_status moert__ep_check_counters(const moert_tensor *counters, const char *name, int64_t n_experts);

// The layer itself, its counters, and of its tables (send, recv, recv_count) this rank's entries, which must lie in symmetric memory with the
// bytes of the group.
moert_status moert__ep_check_layer(const moert__ep_layer *layer, moert_context *context);
moert_status moert__ep_check_tables(const moert__ep_layer *layer, const moert_tensor *const tables[MOERT_EP_BUFFERS],
                                    const int64_t bytes[MOERT_EP_BUFFERS], moert_context *context);

// The local expert of a global id, -1: of another rank or none.
int64_t moert__ep_local_expert(const moert__ep_layer *layer, int32_t id);

// The tokens that this rank's shared expert has; none without one.
typedef struct moert__ep_slice {
  int64_t begin, count;
} moert__ep_slice;
moert__ep_slice moert__ep_shared_slice(const moert__ep_layer *layer);

// What a dispatch leaves in the counters for its combine.
typedef struct moert__ep_counters {
  int32_t *segments; // [n_experts][2]
  int32_t *round;    // [3]
} moert__ep_counters;
moert__ep_counters moert__ep_counters_of(const moert_tensor *counters, int64_t n_experts);

#ifdef __cplusplus
}
#endif

#endif

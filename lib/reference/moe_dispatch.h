//===- moe_dispatch.h - moe.dispatch on every backend -------------------------------------------===//
#ifndef MOERT_REFERENCE_MOE_DISPATCH_H
#define MOERT_REFERENCE_MOE_DISPATCH_H

#include "lib/reference/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the shapes and parameters of a call come to.
typedef struct moert__dispatch_call {
  const moert_moe_dispatch_params *params;
  const moert_moe_dispatch_args *args;
  moert_context *context;
  moert__workspace workspace;
  bool grouped;
  int64_t tokens, max_tokens, local_experts;
  int64_t num_stats, stats_stride; // of each rank, 0: none; from row to row of EPLB_GATHERED_STATS
  int64_t row_bytes[MOERT_WORKSPACE_MAX_PAYLOADS];
  int64_t areas[MOERT_WORKSPACE_MAX_PAYLOADS + 1]; // of the payloads, from the start of the slab; the last is where they end
} moert__dispatch_call;

// All checks, which read neither the slab nor any tensor's elements but metainfo's. Sets *call.
MOERT__SHARED moert_status moert__dispatch_check(const moert_moe_dispatch_params *params, const moert_moe_dispatch_args *args, moert_context *context,
                                                 moert__dispatch_call *call);
// What all ranks must agree on.
MOERT__SHARED uint32_t moert__dispatch_hash(const moert__dispatch_call *call);
// The dispatch is done, or on its way: its combine may follow. `rows` are those of the grouped layout.
MOERT__SHARED void moert__dispatch_keep(const moert__dispatch_call *call, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif

//===- ep_combine_skip_a2a.h - what the backends share of ep.combine.skip_a2a -------------------------===//
#ifndef MOERT_REFERENCE_EP_COMBINE_SKIP_A2A_H
#define MOERT_REFERENCE_EP_COMBINE_SKIP_A2A_H

#include "lib/reference/ep.h"
#include "lib/reference/numerics.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moert__ep_combine_call {
  const moert_ep_combine_skip_a2a_args *args;
  moert__ep_layer layer;
  moert__ep_slice shared;
  moert__ep_counters counters;
  moert__format format, weight_format; // of tokens, of router weights
} moert__ep_combine_call;

// Fills `call` in. What the counters and src_info say is the backend's to check: that they are those of the dispatch that this call combines.
MOERT__SHARED moert_status moert__ep_combine_check(const moert_ep_combine_skip_a2a_params *params, const moert_ep_combine_skip_a2a_args *args,
                                                   moert_context *context, moert__ep_combine_call *call);

#ifdef __cplusplus
}
#endif
#endif

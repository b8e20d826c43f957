//===- ep_dispatch.h - what the backends share of ep.dispatch -----------------------------------------===//
#ifndef MOERT_REFERENCE_EP_DISPATCH_H
#define MOERT_REFERENCE_EP_DISPATCH_H

#include "lib/reference/ep.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moert__ep_dispatch_call {
  const moert_ep_dispatch_args *args;
  moert__ep_layer layer;
  moert__ep_slice shared;
  moert__ep_counters counters;
  int64_t room; // rows that may be placed
} moert__ep_dispatch_call;

// Fills `call` in. What the counters and the ids say is the backend's to check: that no dispatch waits for its combine, and that the rows have room.
MOERT__SHARED moert_status moert__ep_dispatch_check(const moert_ep_dispatch_params *params, const moert_ep_dispatch_args *args,
                                                    moert_context *context, moert__ep_dispatch_call *call);

#ifdef __cplusplus
}
#endif
#endif

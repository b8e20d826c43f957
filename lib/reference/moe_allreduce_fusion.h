//===- moe_allreduce_fusion.h - moe.allreduce_fusion on every backend ---------------------------===//
#ifndef MOERT_REFERENCE_MOE_ALLREDUCE_FUSION_H
#define MOERT_REFERENCE_MOE_ALLREDUCE_FUSION_H

#include "lib/reference/reduction.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the shapes and parameters of a call come to.
typedef struct moert__allreduce_call {
  moert__reduction reduction;
  const moert_moe_allreduce_fusion_args *args;
  int64_t experts; // dimension 0 of their rows
  moert__format scale_format;
} moert__allreduce_call;

// All checks: moe_reduction_device_num_experts is left to look at. Sets *call, which must stay where it is.
MOERT__SHARED moert_status moert__allreduce_check(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                                  moert_context *context, moert__allreduce_call *call);
// What all ranks must agree on.
MOERT__SHARED uint32_t moert__allreduce_hash(const moert__allreduce_call *call);

#ifdef __cplusplus
}
#endif
#endif

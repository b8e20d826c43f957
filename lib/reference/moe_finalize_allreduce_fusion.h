//===- moe_finalize_allreduce_fusion.h - moe.finalize_allreduce_fusion on every backend ---------===//
#ifndef MOERT_REFERENCE_MOE_FINALIZE_ALLREDUCE_FUSION_H
#define MOERT_REFERENCE_MOE_FINALIZE_ALLREDUCE_FUSION_H

#include "lib/reference/reduction.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the shapes and parameters of a call come to.
typedef struct moert__finalize_call {
  moert__reduction reduction;
  const moert_moe_finalize_allreduce_fusion_args *args;
  int64_t rows, top_k; // of allreduce_in; of a token
  float factor;        // routed_scaling_factor
  moert__format scale_format;
} moert__finalize_call;

// All checks: expanded_idx_to_permuted_idx is left to look at. Sets *call, which must stay where it is.
MOERT__SHARED moert_status moert__finalize_check(const moert_moe_finalize_allreduce_fusion_params *params,
                                                 const moert_moe_finalize_allreduce_fusion_args *args, moert_context *context,
                                                 moert__finalize_call *call);
// What all ranks must agree on.
MOERT__SHARED uint32_t moert__finalize_hash(const moert__finalize_call *call);

#ifdef __cplusplus
}
#endif
#endif

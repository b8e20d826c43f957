//===- moe_allreduce_fusion.h - moe.allreduce_fusion on every backend ---------------------------===//
#ifndef MOERT_REFERENCE_MOE_ALLREDUCE_FUSION_H
#define MOERT_REFERENCE_MOE_ALLREDUCE_FUSION_H

#include "lib/reference/numerics.h"
#include "lib/reference/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the shapes and parameters of a call come to.
typedef struct moert__allreduce_call {
  const moert_moe_allreduce_fusion_params *params;
  const moert_moe_allreduce_fusion_args *args;
  moert_context *context;
  moert__workspace workspace;
  int64_t tokens, hidden, experts, row_bytes; // `experts`: dimension 0 of their rows; `row_bytes`: of a part on its way
  moert__format format, scale_format, part_format;
} moert__allreduce_call;

// The sum of squares of a token: this many columns, sums, sums of sums are added at a time.
enum { MOERT__ALLREDUCE_VECTOR = 8, MOERT__ALLREDUCE_WIDTH = 32 };

// The nearest value of an element type.
MOERT__NUMERIC float moert__round_to(moert__format format, float value) {
  union {
    uint16_t half;
    float single;
  } element;
  moert__store(format, &element, 0, value);
  return moert__load(format, &element, 0);
}

// All checks, which read neither the slab nor any tensor's elements but metainfo's: moe_reduction_device_num_experts is left to look at. Sets *call.
MOERT__SHARED moert_status moert__allreduce_check(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                                  moert_context *context, moert__allreduce_call *call);
// What all ranks must agree on.
MOERT__SHARED uint32_t moert__allreduce_hash(const moert__allreduce_call *call);

#ifdef __cplusplus
}
#endif
#endif

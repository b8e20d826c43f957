//===- moe_nvfp4_routed.h - what the backends share of moe.nvfp4_routed ------------------------------------===//
#ifndef MOERT_REFERENCE_MOE_NVFP4_ROUTED_H
#define MOERT_REFERENCE_MOE_NVFP4_ROUTED_H

#include "lib/reference/coded_rows.h"
#include "lib/reference/routed.h"
#include "lib/reference/routed_panels.h"
#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the shapes and parameters of a call come to.
typedef struct moert__nvfp4_routed {
  int64_t tokens, top_k, pairs;   // M, top_k, M * top_k: the sentinel of the plan
  int64_t experts, hidden, inner; // E, K, N / 2
  int64_t first_expert;           // of the weights, in a layer
  int64_t all_experts;            // of so many
  int64_t block_m;
  int64_t entries, blocks;         // of sorted_token_ids and expert_ids: room for the plan
  moert__coded_rows states;        // [tokens][hidden]
  moert__coded_rows gate_up;       // [experts][2 * inner][hidden]: gates, then ups
  moert__coded_rows down;          // [experts][hidden][inner]
  const float *gate_scales;        // [experts]
  const float *up_scales;          // [experts]
  const float *down_scales;        // [experts]
  const int32_t *topk_ids;         // [tokens][top_k]
  const float *topk_weights;       // [tokens][top_k]
  int32_t *sorted_token_ids;       // [entries]
  int32_t *expert_ids;             // [blocks]
  int32_t *num_tokens_post_padded; // [1]
  int32_t *cumsum_buffer;          // [experts + 2], or more
  uint16_t *out;                   // [tokens][hidden], of bf16
  float factor;                    // routed_scaling_factor
  bool accumulate;
  const uint8_t *prepared[MOERT__ROUTED_NUM_PREPARED]; // by moert__routed_prepared; NULL: not there
} moert__nvfp4_routed;

// The checks C1 to C14, which read no tensor's elements; sets *call if all hold. What is left to check is that the plan fits: expert_ids has room for
// its blocks. Then sorted_token_ids has room for its entries, too.
MOERT__SHARED moert_status moert__nvfp4_routed_check(const moert_moe_nvfp4_routed_params *params, const moert_moe_nvfp4_routed_args *args,
                                                     moert__nvfp4_routed *call);

static inline int64_t moert__routed_bin(const moert__nvfp4_routed *call, int64_t pair) {
  return moert__routed_bin_of(call->topk_ids[pair], call->first_expert, call->experts);
}

#ifdef __cplusplus
}
#endif
#endif

//===- route.c - moe.route ------------------------------------------------------------------------===//

#include "lib/ir/lowering.h"

// C4 to C8: what the static parameters say of each other.
static MlirLogicalResult checkParameters(MlirOperation op) {
  long long topK = moeInt(op, "top_k"), experts = moeInt(op, "n_experts"), groups = moeInt(op, "n_group"), chosen = moeInt(op, "topk_group");
  if (topK > experts) return moeError(op, "top_k = %lld exceeds n_experts = %lld", topK, experts);                    // C4
  if (experts % groups) return moeError(op, "n_experts = %lld is not a multiple of n_group = %lld", experts, groups); // C5
  if (chosen > groups) return moeError(op, "topk_group = %lld exceeds n_group = %lld", chosen, groups);               // C6
  if (groups > 1 && experts / groups < 2)                                                                             // C8
    return moeError(op, "n_group = %lld leaves groups of %lld expert; a group's value needs two", groups, experts / groups);
  if (topK > chosen * (experts / groups)) // C7
    return moeError(op, "top_k = %lld exceeds the %lld experts of topk_group = %lld groups", topK, chosen * (experts / groups), chosen);
  return MOE_OK;
}

MlirLogicalResult moe_route_verify(MlirOperation op) {
  int64_t topK = moeInt(op, "top_k"), experts = moeInt(op, "n_experts");
  MOE_TRY(checkParameters(op));
  MOE_TRY(moeCheckDim(op, MOE_ROUTE_LOGITS, 1, experts, "n_experts")); // C1
  MOE_TRY(moeCheckDim(op, MOE_ROUTE_BIAS, 0, experts, "n_experts"));   // C2
  MOE_TRY(moeCheckDim(op, MOE_ROUTE_IDS, 1, topK, "top_k"));           // C3
  MOE_TRY(moeCheckDim(op, MOE_ROUTE_WEIGHTS, 1, topK, "top_k"));
  MOE_TRY(moeCheckSameDim(op, MOE_ROUTE_IDS, 0, MOE_ROUTE_LOGITS, 0));
  return moeCheckSameDim(op, MOE_ROUTE_WEIGHTS, 0, MOE_ROUTE_LOGITS, 0);
}

MlirLogicalResult moe_route_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

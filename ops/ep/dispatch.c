//===- dispatch.c - ep.dispatch ---------------------------------------------------------------------===//

#include "ops/ep/ep.h"

MlirLogicalResult ep_dispatch_verify(MlirOperation op) {
  bool shared = moeInt(op, "fused_shared_expert");
  int64_t hidden = moeInt(op, "hidden_size"), groups = moeInt(op, "n_experts") + shared;
  if (!moeInt(op, "skip_a2a")) // C1
    return moeError(op, "skip_a2a = false is unsupported: this version has no all-to-all with the tables of ep.init (moe.dispatch has its own)");
  MOE_TRY(epCheckOneRank(op));                                                  // C2
  MOE_TRY(moeCheckDim(op, EP_DISPATCH_INPUT_TOKENS, 1, hidden, "hidden_size")); // C3
  MOE_TRY(moeCheckDim(op, EP_DISPATCH_OUTPUT_TOKENS, 1, hidden, "hidden_size"));
  MOE_TRY(moeCheckDim(op, EP_DISPATCH_TOPK_IDS, 1, moeInt(op, "top_k"), "top_k")); // C4
  MOE_TRY(moeCheckSameDim(op, EP_DISPATCH_TOPK_IDS, 0, EP_DISPATCH_INPUT_TOKENS, 0));
  const char *offsets = shared ? "n_experts + 2 (with the shared expert's group)" : "n_experts + 1";
  MOE_TRY(moeCheckDim(op, EP_DISPATCH_ROW_OFFSETS, 0, groups + 1, offsets)); // C5
  MOE_TRY(moeCheckDim(op, EP_DISPATCH_EXPERT_IDS, 0, groups, shared ? "n_experts + 1 (with the shared expert)" : "n_experts"));
  MOE_TRY(moeCheckDim(op, EP_DISPATCH_SRC_INFO, 1, 2, "the number of its columns")); // C6
  MOE_TRY(moeCheckSameDim(op, EP_DISPATCH_SRC_INFO, 0, EP_DISPATCH_OUTPUT_TOKENS, 0));
  MOE_TRY(epCheckCounters(op, EP_DISPATCH_ATOMIC_COUNTERS));                      // C7
  MOE_TRY(epCheckTables(op, EP_DISPATCH_SEND_PTRS, EP_DISPATCH_RECV_COUNT_PTRS)); // C8
  return epCheckTokens(op, EP_DISPATCH_INPUT_TOKENS);                             // C9
}

MlirLogicalResult ep_dispatch_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

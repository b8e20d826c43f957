//===- combine_skip_a2a.c - ep.combine.skip_a2a -----------------------------------------------------===//

#include "ops/ep/ep.h"

MlirLogicalResult ep_combine_skip_a2a_verify(MlirOperation op) {
  int64_t hidden = moeInt(op, "hidden_size"), topK = moeInt(op, "top_k");
  MlirValue input = moeOperand(op, EP_COMBINE_SKIP_A2A_INPUT_TOKENS), output = moeOperand(op, EP_COMBINE_SKIP_A2A_OUTPUT_TOKENS);
  if (!moeInt(op, "skip_a2a")) // C1
    return moeError(op, "skip_a2a = false is unsupported: it needs ep.combine, which this version does not have (moe.combine has its own workspace)");
  MOE_TRY(epCheckOneRank(op));                                                           // C2
  MOE_TRY(moeCheckDim(op, EP_COMBINE_SKIP_A2A_OUTPUT_TOKENS, 1, hidden, "hidden_size")); // C3
  MOE_TRY(moeCheckDim(op, EP_COMBINE_SKIP_A2A_INPUT_TOKENS, 1, hidden, "hidden_size"));
  if (!mlirTypeEqual(moeElementType(input), moeElementType(output)))
    return moeError(op, "'input_tokens' and 'output_tokens' must have the same element type, which is the combine dtype");
  MOE_TRY(moeCheckDim(op, EP_COMBINE_SKIP_A2A_SRC_INFO, 1, 2, "the number of its columns")); // C4
  MOE_TRY(moeCheckSameDim(op, EP_COMBINE_SKIP_A2A_SRC_INFO, 0, EP_COMBINE_SKIP_A2A_INPUT_TOKENS, 0));
  MOE_TRY(moeCheckDim(op, EP_COMBINE_SKIP_A2A_ROUTER_WEIGHTS, 1, topK, "top_k")); // C5
  MOE_TRY(moeCheckDim(op, EP_COMBINE_SKIP_A2A_TOPK_IDS, 1, topK, "top_k"));
  MOE_TRY(moeCheckSameDim(op, EP_COMBINE_SKIP_A2A_ROUTER_WEIGHTS, 0, EP_COMBINE_SKIP_A2A_OUTPUT_TOKENS, 0));
  MOE_TRY(moeCheckSameDim(op, EP_COMBINE_SKIP_A2A_TOPK_IDS, 0, EP_COMBINE_SKIP_A2A_OUTPUT_TOKENS, 0));
  MOE_TRY(epCheckCounters(op, EP_COMBINE_SKIP_A2A_ATOMIC_COUNTERS));                              // C6
  MOE_TRY(epCheckTables(op, EP_COMBINE_SKIP_A2A_SEND_PTRS, EP_COMBINE_SKIP_A2A_RECV_COUNT_PTRS)); // C7
  return epCheckTokens(op, EP_COMBINE_SKIP_A2A_OUTPUT_TOKENS);                                    // C8; C9 to C11: moeVerifyEpilogue
}

MlirLogicalResult ep_combine_skip_a2a_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

//===- initialize.c - moe.initialize --------------------------------------------------------------===//

#include "lib/ir/lowering.h"
#include <moert/workspace.h>

// C2: what the runtime would say of a workspace that is too small.
static MlirLogicalResult checkSize(MlirOperation op) {
  int64_t actual = moeDim(moeOperand(op, MOE_INITIALIZE_WORKSPACE), 0), ranks = moeInt(op, "ep_size");
  moert_workspace_info info = {moeInt(op, "max_num_tokens"), moeInt(op, "dispatch_bytes_per_token"), moeInt(op, "combine_bytes_per_token"),
                               moeInt(op, "eplb_stats_num_experts"), ranks};
  if (actual == MOE_DYNAMIC || ranks == 0) return MOE_OK;
  int64_t needed = moert_workspace_lay_out(&info).bytes;
  if (actual >= needed) return MOE_OK;
  return moeError(op, "operand 'workspace' has %lld bytes, but these parameters need %lld (moe.workspace_size)", (long long)actual,
                  (long long)needed);
}

MlirLogicalResult moe_initialize_verify(MlirOperation op) {
  MOE_TRY(moeCheckMetainfo(op, MOE_INITIALIZE_METAINFO)); // C1
  return checkSize(op);                                   // C2
}

MlirLogicalResult moe_initialize_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

//===- sanitize_expert_ids.c - moe.sanitize_expert_ids --------------------------------------------===//

#include "lib/ir/lowering.h"

MlirLogicalResult moe_sanitize_expert_ids_verify(MlirOperation op) {
  int64_t ranks = moeInt(op, "ep_size");
  if (ranks > 0) MOE_TRY(moeCheckDim(op, MOE_SANITIZE_EXPERT_IDS_EXPERT_IDS, 0, ranks, "ep_size")); // C1
  return moeCheckMetainfo(op, MOE_SANITIZE_EXPERT_IDS_METAINFO);                                    // C2
}

MlirLogicalResult moe_sanitize_expert_ids_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

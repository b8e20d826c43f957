//===- initialize.c - moe.initialize --------------------------------------------------------------===//

#include "lib/ir/lowering.h"

// C2: the rows alone, which are nearly all of a workspace; the runtime knows the layout and checks the rest.
static MlirLogicalResult checkSize(MlirOperation op) {
  int64_t actual = moeDim(moeOperand(op, MOE_INITIALIZE_WORKSPACE), 0), ranks = moeInt(op, "ep_size");
  int64_t row = moeInt(op, "dispatch_bytes_per_token") + moeInt(op, "combine_bytes_per_token"), rows = ranks * moeInt(op, "max_num_tokens");
  if (actual == MOE_DYNAMIC || actual >= rows * row) return MOE_OK;
  return moeError(op, "operand 'workspace' has %lld bytes, but %lld rows of dispatch and combine are %lld: moe.workspace_size says how many it needs",
                  (long long)actual, (long long)rows, (long long)(rows * row));
}

MlirLogicalResult moe_initialize_verify(MlirOperation op) {
  MOE_TRY(moeCheckMetainfo(op, MOE_INITIALIZE_METAINFO));  // C1
  return checkSize(op);                                    // C2
}

MlirLogicalResult moe_initialize_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

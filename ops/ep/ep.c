//===- ep.c - what the verifiers of the dialect `ep` share ------------------------------------------===//

#include "ops/ep/ep.h"
#include <moert/ep.h>

MlirLogicalResult epCheckOneRank(MlirOperation op) {
  static const char *const names[] = {"n_gpus_per_node", "n_nodes"};
  for (int i = 0; i < 2; ++i)
    if (moeInt(op, names[i]) != 1)
      return moeError(op, "%s = %lld is unsupported: in the mode skip_a2a it is 1, and the ranks are the allreduce_world_size", names[i],
                      (long long)moeInt(op, names[i]));
  return MOE_OK;
}

MlirLogicalResult epCheckCounters(MlirOperation op, int index) {
  return moeCheckDim(op, index, 0, moert_ep_lay_out_counters(moeInt(op, "n_experts")).words, "10 * n_experts + 320");
}

MlirLogicalResult epCheckTables(MlirOperation op, int first, int last) {
  for (int index = first; index <= last; ++index) MOE_TRY(moeCheckDim(op, index, 0, moeInt(op, "allreduce_world_size"), "allreduce_world_size"));
  return MOE_OK;
}

MlirLogicalResult epCheckTokens(MlirOperation op, int index) {
  int64_t tokens = moeDim(moeOperand(op, index), 0), most = moeInt(op, "max_token_per_rank");
  if (tokens == MOE_DYNAMIC || tokens <= most) return MOE_OK;
  return moeError(op, "operand '%s' has %lld tokens, must have at most max_token_per_rank = %lld", moeOpOf(op)->operands[index].name,
                  (long long)tokens, (long long)most);
}

//===- allreduce_fusion.c - moe.allreduce_fusion --------------------------------------------------===//

#include "lib/ir/lowering.h"

enum {
  RESIDUAL_IN = MOE_ALLREDUCE_FUSION_RESIDUAL_IN,
  RMS_GAMMA = MOE_ALLREDUCE_FUSION_RMS_GAMMA,
  EXPERTS = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_ACTIVE_EXPERTS_TOKEN_INPUT,
  SCALES = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_SCALE_INPUT,
  NUM_EXPERTS = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_DEVICE_NUM_EXPERTS,
  TOKEN_INPUT = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_TOKEN_INPUT
};

// [T, hidden_size], with the T of residual_in.
static MlirLogicalResult checkTokens(MlirOperation op, int index, int64_t hidden) {
  if (mlirValueIsNull(moeOperand(op, index))) return MOE_OK;
  MOE_TRY(moeCheckDim(op, index, 1, hidden, "hidden_size"));
  return moeCheckSameDim(op, index, 0, RESIDUAL_IN, 0);
}

// C3: expert by expert, what each token got of it and by how much that counts.
static MlirLogicalResult checkExperts(MlirOperation op, int64_t hidden) {
  MOE_TRY(moeCheckDim(op, EXPERTS, 2, hidden, "hidden_size"));
  MOE_TRY(moeCheckSameDim(op, EXPERTS, 1, RESIDUAL_IN, 0));
  MOE_TRY(moeCheckSameDim(op, SCALES, 0, EXPERTS, 0));
  return moeCheckSameDim(op, SCALES, 1, RESIDUAL_IN, 0);
}

// C6
static MlirLogicalResult checkElementTypes(MlirOperation op) {
  static const int checked[] = {
      RMS_GAMMA, EXPERTS, TOKEN_INPUT, MOE_ALLREDUCE_FUSION_MOE_ALLREDUCE_OUT, MOE_ALLREDUCE_FUSION_RESIDUAL_OUT, MOE_ALLREDUCE_FUSION_NORM_OUT};
  MlirType type = moeElementType(moeOperand(op, RESIDUAL_IN));
  for (size_t i = 0; i < sizeof checked / sizeof *checked; ++i) {
    MlirValue operand = moeOperand(op, checked[i]);
    if (!mlirValueIsNull(operand) && !mlirTypeEqual(moeElementType(operand), type))
      return moeError(op, "operand '%s' must have the element type of 'residual_in'", moe_allreduce_fusion.operands[checked[i]].name);
  }
  return MOE_OK;
}

MlirLogicalResult moe_allreduce_fusion_verify(MlirOperation op) {
  static const int destinations[] = {MOE_ALLREDUCE_FUSION_MOE_ALLREDUCE_OUT, MOE_ALLREDUCE_FUSION_RESIDUAL_OUT, MOE_ALLREDUCE_FUSION_NORM_OUT};
  int64_t hidden = moeInt(op, "hidden_size");
  bool any = false;
  if (hidden % 8) return moeError(op, "hidden_size is %lld, must be a multiple of 8", (long long)hidden); // C1
  MOE_TRY(moeCheckDim(op, RESIDUAL_IN, 1, hidden, "hidden_size"));
  MOE_TRY(moeCheckDim(op, RMS_GAMMA, 0, hidden, "hidden_size"));             // C2
  MOE_TRY(checkExperts(op, hidden));                                         // C3
  MOE_TRY(moeCheckDim(op, NUM_EXPERTS, 0, 1, "the number of its elements")); // C4
  MOE_TRY(checkTokens(op, TOKEN_INPUT, hidden));                             // C5
  for (size_t i = 0; i < sizeof destinations / sizeof *destinations; ++i) {
    MOE_TRY(checkTokens(op, destinations[i], hidden));
    any |= !mlirValueIsNull(moeOperand(op, destinations[i]));
  }
  if (!any) return moeError(op, "has no destination, must have one of 'moe_allreduce_out', 'residual_out' and 'norm_out'");
  MOE_TRY(checkElementTypes(op));                                                                                     // C6
  if (moeFloat(op, "rms_eps") < 0) return moeError(op, "rms_eps is %g, must be at least 0", moeFloat(op, "rms_eps")); // C7
  return moeCheckMetainfo(op, MOE_ALLREDUCE_FUSION_METAINFO);                                                         // C8
}

MlirLogicalResult moe_allreduce_fusion_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

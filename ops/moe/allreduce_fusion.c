//===- allreduce_fusion.c - moe.allreduce_fusion --------------------------------------------------===//

#include "lib/ir/lowering.h"
#include "ops/moe/reduction.h"

enum {
  RESIDUAL_IN = MOE_ALLREDUCE_FUSION_RESIDUAL_IN,
  EXPERTS = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_ACTIVE_EXPERTS_TOKEN_INPUT,
  SCALES = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_SCALE_INPUT,
  NUM_EXPERTS = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_DEVICE_NUM_EXPERTS,
  TOKEN_INPUT = MOE_ALLREDUCE_FUSION_MOE_REDUCTION_TOKEN_INPUT
};

// C3: expert by expert, what each token got of it and by how much that counts.
static MlirLogicalResult checkExperts(MlirOperation op) {
  MOE_TRY(moeCheckDim(op, EXPERTS, 2, moeInt(op, "hidden_size"), "hidden_size"));
  MOE_TRY(moeCheckSameDim(op, EXPERTS, 1, RESIDUAL_IN, 0));
  MOE_TRY(moeCheckSameDim(op, SCALES, 0, EXPERTS, 0));
  return moeCheckSameDim(op, SCALES, 1, RESIDUAL_IN, 0);
}

MlirLogicalResult moe_allreduce_fusion_verify(MlirOperation op) {
  static const MoeReduction reduction = {.residual = RESIDUAL_IN,
                                         .gamma = MOE_ALLREDUCE_FUSION_RMS_GAMMA,
                                         .metainfo = MOE_ALLREDUCE_FUSION_METAINFO,
                                         .sumOut = MOE_ALLREDUCE_FUSION_MOE_ALLREDUCE_OUT,
                                         .residualOut = MOE_ALLREDUCE_FUSION_RESIDUAL_OUT,
                                         .normOut = MOE_ALLREDUCE_FUSION_NORM_OUT,
                                         .quantOut = MOE_ALLREDUCE_FUSION_QUANT_OUT,
                                         .scaleOut = MOE_ALLREDUCE_FUSION_SCALE_OUT};
  MOE_TRY(moeVerifyReduction(op, &reduction));                               // C1, C2, C5 to C12
  MOE_TRY(checkExperts(op));                                                 // C3
  MOE_TRY(moeCheckReducedType(op, &reduction, EXPERTS));                     // C6
  MOE_TRY(moeCheckDim(op, NUM_EXPERTS, 0, 1, "the number of its elements")); // C4
  return moeCheckReducedRows(op, &reduction, TOKEN_INPUT);                   // C5
}

MlirLogicalResult moe_allreduce_fusion_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

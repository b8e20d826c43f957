//===- finalize_allreduce_fusion.c - moe.finalize_allreduce_fusion --------------------------------===//

#include "lib/ir/lowering.h"
#include "ops/moe/reduction.h"

enum {
  RESIDUAL_IN = MOE_FINALIZE_ALLREDUCE_FUSION_RESIDUAL_IN,
  ROWS = MOE_FINALIZE_ALLREDUCE_FUSION_ALLREDUCE_IN,
  INDICES = MOE_FINALIZE_ALLREDUCE_FUSION_EXPANDED_IDX_TO_PERMUTED_IDX,
  WEIGHTS = MOE_FINALIZE_ALLREDUCE_FUSION_EXPERT_SCALE_FACTOR,
  SHARED = MOE_FINALIZE_ALLREDUCE_FUSION_SHARED_EXPERT_OUTPUT
};

MlirLogicalResult moe_finalize_allreduce_fusion_verify(MlirOperation op) {
  static const MoeReduction reduction = {.residual = RESIDUAL_IN,
                                         .gamma = MOE_FINALIZE_ALLREDUCE_FUSION_NORM_WEIGHT,
                                         .metainfo = MOE_FINALIZE_ALLREDUCE_FUSION_METAINFO,
                                         .sumOut = -1,
                                         .residualOut = MOE_FINALIZE_ALLREDUCE_FUSION_RESIDUAL_OUT,
                                         .normOut = MOE_FINALIZE_ALLREDUCE_FUSION_NORM_OUT,
                                         .quantOut = MOE_FINALIZE_ALLREDUCE_FUSION_QUANT_OUT,
                                         .scaleOut = MOE_FINALIZE_ALLREDUCE_FUSION_SCALE_OUT};
  MOE_TRY(moeVerifyReduction(op, &reduction));                                 // C1, C2, C5 to C12
  MOE_TRY(moeCheckDim(op, ROWS, 1, moeInt(op, "hidden_size"), "hidden_size")); // C3
  MOE_TRY(moeCheckReducedType(op, &reduction, ROWS));                          // C6
  MOE_TRY(moeCheckSameDim(op, INDICES, 0, RESIDUAL_IN, 0));                    // C4
  if (!mlirValueIsNull(moeOperand(op, WEIGHTS))) {
    MOE_TRY(moeCheckSameDim(op, WEIGHTS, 0, RESIDUAL_IN, 0));
    MOE_TRY(moeCheckSameDim(op, WEIGHTS, 1, INDICES, 1));
  }
  return moeCheckReducedRows(op, &reduction, SHARED); // C5
}

MlirLogicalResult moe_finalize_allreduce_fusion_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

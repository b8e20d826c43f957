//===- reduction.h - what the all-reduces with residual and norm share ---------------------------===//
#ifndef MOE_OPS_REDUCTION_H
#define MOE_OPS_REDUCTION_H

#include "lib/ir/ops.h"

// Where the op has its operands.
typedef struct MoeReduction {
  int residual, gamma, metainfo;
  int sumOut, residualOut, normOut, quantOut, scaleOut; // destinations; sumOut -1: the op has none
} MoeReduction;

// The element type of residual_in.
MlirLogicalResult moeCheckReducedType(MlirOperation op, const MoeReduction *reduction, int index);
// [T, hidden_size] of the element type of residual_in, with its T, if the operand is there.
MlirLogicalResult moeCheckReducedRows(MlirOperation op, const MoeReduction *reduction, int index);
// Constraints of the operands and parameters above: C1, C2, and C5 to C12 of moe.allreduce_fusion.
MlirLogicalResult moeVerifyReduction(MlirOperation op, const MoeReduction *reduction);

#endif

//===- initialize.c - moe.initialize --------------------------------------------------------------===//

#include "lib/ir/lowering.h"

MlirLogicalResult moe_initialize_verify(MlirOperation op) {
  return moeCheckMetainfo(op, MOE_INITIALIZE_METAINFO);  // C1
}

MlirLogicalResult moe_initialize_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

//===- init.c - ep.init -----------------------------------------------------------------------------===//

#include "ops/ep/ep.h"
#include <moert/ep.h>

// What a parameter that differs from its default says.
static MlirStringRef written(MlirOperation op, const char *attribute) {
  return mlirStringAttrGetValue(mlirOperationGetAttributeByName(op, mlirStringRefCreateFromCString(attribute)));
}

MlirLogicalResult ep_init_verify(MlirOperation op) {
  if (moeInt(op, "dispatch_fmt_str") != EP_INIT_DISPATCH_FMT_STR_BF16) { // C1
    MlirStringRef format = written(op, "dispatch_fmt_str");
    return moeError(op, "dispatch_fmt_str = \"%.*s\" is unsupported: this version has \"BF16\"", (int)format.length, format.data);
  }
  if (moeInt(op, "dispatch_dtype") != EP_INIT_DISPATCH_DTYPE_BF16) { // C2
    MlirStringRef dtype = written(op, "dispatch_dtype");
    return moeError(op, "dispatch_dtype = \"%.*s\", but dispatch_fmt_str = \"BF16\" sends \"bf16\"", (int)dtype.length, dtype.data);
  }
  MOE_TRY(epCheckOneRank(op));                             // C3
  MOE_TRY(epCheckCounters(op, EP_INIT_ATOMIC_COUNTERS_0)); // C4
  MOE_TRY(epCheckCounters(op, EP_INIT_ATOMIC_COUNTERS_1));
  MOE_TRY(moeCheckDim(op, EP_INIT_DEV_PTRS, 0, MOERT_EP_GROUPS, "the number of groups")); // C5
  MOE_TRY(moeCheckDim(op, EP_INIT_DEV_PTRS, 1, MOERT_EP_BUFFERS, "the number of buffers of a group"));
  return moeCheckDim(op, EP_INIT_MY_RANK, 0, 1, "the number of ranks that this one is");
}

MlirLogicalResult ep_init_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

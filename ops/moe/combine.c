//===- combine.c - moe.combine --------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"

static bool isGrouped(MlirOperation op) { return moeInt(op, "layout") == MOE_COMBINE_LAYOUT_EXPERT_GROUPED; }

// The elements of a row, MOE_DYNAMIC if a dimension is not known.
static int64_t rowElements(MlirValue buffer, intptr_t leading) {
  int64_t elements = 1;
  for (intptr_t dim = leading; dim < moeRank(buffer); ++dim) {
    int64_t size = moeDim(buffer, dim);
    if (size == MOE_DYNAMIC) return MOE_DYNAMIC;
    if (size > 0 && elements > INT64_MAX / size) return INT64_MAX; // no hidden_size is that large
    elements *= size;
  }
  return elements;
}

// C5: R, where it is a constant, is at least 1, and what a payload by ranks has room for.
static MlirLogicalResult checkRows(MlirOperation op) {
  int64_t rows;
  if (!moeConstantValue(moeOperand(op, MOE_COMBINE_RUNTIME_MAX_TOKENS_PER_RANK), &rows)) return MOE_OK;
  if (rows < 1) return moeError(op, "runtime_max_tokens_per_rank is %lld, must be at least 1", (long long)rows);
  return isGrouped(op) ? MOE_OK : moeCheckDim(op, MOE_COMBINE_PAYLOAD, 1, rows, "runtime_max_tokens_per_rank");
}

MlirLogicalResult moe_combine_verify(MlirOperation op) {
  MlirValue payload = moeOperand(op, MOE_COMBINE_PAYLOAD);
  long long hidden = moeInt(op, "hidden_size"), ranks = moeInt(op, "ep_size");
  intptr_t leading = isGrouped(op) ? 1 : 2;
  if (moeRank(payload) < leading) // C1
    return moeError(op, "operand 'payload' must have rank %ld at least for layout \"%s\", but has rank %ld", (long)leading,
                    isGrouped(op) ? "expert_grouped" : "rank_major", (long)moeRank(payload));
  long long row = rowElements(payload, leading);
  if (row != MOE_DYNAMIC && row != hidden) return moeError(op, "rows of 'payload' have %lld elements, but hidden_size is %lld", row, hidden);
  if (!isGrouped(op) && ranks > 0) MOE_TRY(moeCheckDim(op, MOE_COMBINE_PAYLOAD, 0, ranks, "ep_size"));
  MOE_TRY(checkRows(op));                                                                                                               // C5
  MOE_TRY(moeCheckTrailingDims(op, MOE_COMBINE_OUT, 0, 1, MOE_COMBINE_PAYLOAD, 0, leading));                                            // C2
  if (isGrouped(op) && moeInt(op, "payload_in_workspace")) return moeError(op, "payload_in_workspace goes with layout \"rank_major\""); // C3
  return moeCheckMetainfo(op, MOE_COMBINE_METAINFO);                                                                                    // C4
}

MlirLogicalResult moe_combine_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

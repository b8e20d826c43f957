//===- dispatch.c - moe.dispatch ------------------------------------------------------------------===//

#include "lib/ir/build.h"
#include "lib/ir/lowering.h"
#include <moert/workspace.h>

static bool isGrouped(MlirOperation op) { return moeInt(op, "layout") == MOE_DISPATCH_LAYOUT_EXPERT_GROUPED; }
static bool isPresent(MlirOperation op, int index) { return moeOperandRange(op, index).count > 0; }

// C2: 1 to 8 payloads, a row for each token.
static MlirLogicalResult checkPayloads(MlirOperation op) {
  MoeRange payloads = moeOperandRange(op, MOE_DISPATCH_PAYLOADS);
  int64_t tokens = moeDim(moeOperand(op, MOE_DISPATCH_TOPK_IDS), 0);
  if (payloads.count < 1 || payloads.count > MOERT_WORKSPACE_MAX_PAYLOADS)
    return moeError(op, "has %ld payloads, must have 1 to %d", (long)payloads.count, MOERT_WORKSPACE_MAX_PAYLOADS);
  for (intptr_t i = 0; i < payloads.count; ++i) {
    MlirValue payload = mlirOperationGetOperand(op, payloads.first + i);
    if (moeRank(payload) < 1) return moeError(op, "operand 'payloads' #%ld must have a dimension for the tokens, but has rank 0", (long)i);
    int64_t rows = moeDim(payload, 0);
    if (rows != MOE_DYNAMIC && tokens != MOE_DYNAMIC && rows != tokens)
      return moeError(op, "operand 'payloads' #%ld has %lld rows, but 'topk_ids' has %lld tokens", (long)i, (long long)rows, (long long)tokens);
  }
  return MOE_OK;
}

// C3: a destination for each payload, of its rows: behind [ep_size, R] or [C].
static MlirLogicalResult checkReceived(MlirOperation op) {
  MoeRange payloads = moeOperandRange(op, MOE_DISPATCH_PAYLOADS), recv = moeOperandRange(op, MOE_DISPATCH_RECV);
  intptr_t leading = isGrouped(op) ? 1 : 2;
  if (recv.count != payloads.count) return moeError(op, "has %ld 'recv' for %ld payloads", (long)recv.count, (long)payloads.count);
  for (intptr_t i = 0; i < recv.count; ++i) {
    MlirValue payload = mlirOperationGetOperand(op, payloads.first + i), destination = mlirOperationGetOperand(op, recv.first + i);
    if (!mlirTypeEqual(moeElementType(payload), moeElementType(destination)))
      return moeError(op, "operand 'recv' #%ld must have the element type of 'payloads' #%ld", (long)i, (long)i);
    MOE_TRY(moeCheckTrailingDims(op, MOE_DISPATCH_RECV, i, leading, MOE_DISPATCH_PAYLOADS, i, 1));
    int64_t ranks = isGrouped(op) ? 0 : moeInt(op, "ep_size"), first = moeDim(destination, 0);
    if (ranks > 0 && first != MOE_DYNAMIC && first != ranks)
      return moeError(op, "operand 'recv' #%ld has size %lld in dimension 0, but ep_size is %lld", (long)i, (long long)first, (long long)ranks);
  }
  return MOE_OK;
}

// C9: R, where it is a constant, is at least 1 and T; and all `recv` have one R, or one C.
static MlirLogicalResult checkRows(MlirOperation op) {
  MoeRange recv = moeOperandRange(op, MOE_DISPATCH_RECV);
  int64_t rows = MOE_DYNAMIC, tokens = moeDim(moeOperand(op, MOE_DISPATCH_TOPK_IDS), 0);
  bool constant = moeConstantValue(moeOperand(op, MOE_DISPATCH_RUNTIME_MAX_TOKENS_PER_RANK), &rows);
  if (constant && rows < 1) return moeError(op, "runtime_max_tokens_per_rank is %lld, must be at least 1", (long long)rows);
  if (constant && tokens > rows)
    return moeError(op, "operand 'topk_ids' has %lld tokens, but runtime_max_tokens_per_rank is %lld", (long long)tokens, (long long)rows);
  if (isGrouped(op)) rows = MOE_DYNAMIC;
  for (intptr_t i = 0; i < recv.count; ++i) {
    int64_t size = moeDim(mlirOperationGetOperand(op, recv.first + i), isGrouped(op) ? 0 : 1);
    if (size == MOE_DYNAMIC) continue;
    if (rows != MOE_DYNAMIC && size != rows)
      return moeError(op, "operand 'recv' #%ld has room for %lld rows, but %s is %lld", (long)i, (long long)size,
                      constant && !isGrouped(op) ? "runtime_max_tokens_per_rank" : "the room of another 'recv'", (long long)rows);
    rows = size;
  }
  return MOE_OK;
}

// C5: each rank has `local` experts, and with a remainder the first ranks have one more.
static MlirLogicalResult checkOffsets(MlirOperation op, int64_t local, bool remainder) {
  int64_t offsets = moeDim(moeOperand(op, MOE_DISPATCH_OFFSETS), 0);
  if (offsets == MOE_DYNAMIC || offsets == local + 1 || (remainder && offsets == local + 2)) return MOE_OK;
  return moeError(op, "operand 'offsets' has size %lld in dimension 0, but the number of local experts + 1 is %lld%s", (long long)offsets,
                  (long long)local + 1, remainder ? " or one more" : "");
}

// C4, C5, C6: what goes with which layout.
static MlirLogicalResult checkLayout(MlirOperation op) {
  int64_t ranks = moeInt(op, "ep_size"), experts = moeInt(op, "n_experts");
  bool grouped = isGrouped(op);
  if (grouped && isPresent(op, MOE_DISPATCH_RECV_COUNTS)) return moeError(op, "'recv_counts' goes with layout \"rank_major\"");
  if (grouped && !isPresent(op, MOE_DISPATCH_OFFSETS)) return moeError(op, "layout \"expert_grouped\" needs the destination 'offsets'");
  if (!grouped && isPresent(op, MOE_DISPATCH_OFFSETS)) return moeError(op, "'offsets' goes with layout \"expert_grouped\"");
  if (!grouped && isPresent(op, MOE_DISPATCH_TOPK_WEIGHTS)) return moeError(op, "'topk_weights' goes with layout \"expert_grouped\"");
  if (ranks > 0 && isPresent(op, MOE_DISPATCH_RECV_COUNTS)) MOE_TRY(moeCheckDim(op, MOE_DISPATCH_RECV_COUNTS, 0, ranks, "ep_size"));
  if (ranks > 0 && isPresent(op, MOE_DISPATCH_OFFSETS)) return checkOffsets(op, experts / ranks, experts % ranks != 0);
  return MOE_OK;
}

static MlirLogicalResult checkStatisticsSize(MlirOperation op, int index, intptr_t dim, int64_t experts) {
  int64_t size = moeDim(moeOperand(op, index), dim);
  if (size == MOE_DYNAMIC || (size >= 1 && size <= experts)) return MOE_OK;
  return moeError(op, "operand '%s' has size %lld in dimension %ld, must be from 1 to n_experts = %lld", moeOpOf(op)->operands[index].name,
                  (long long)size, (long)dim, (long long)experts);
}

// C10: numbers for load balancing of each rank, and a destination for those of all.
static MlirLogicalResult checkStatistics(MlirOperation op) {
  bool local = isPresent(op, MOE_DISPATCH_EPLB_LOCAL_STATS), gathered = isPresent(op, MOE_DISPATCH_EPLB_GATHERED_STATS);
  int64_t ranks = moeInt(op, "ep_size"), experts = moeInt(op, "n_experts");
  if (local != gathered)
    return moeError(op, "operand '%s' is there, but '%s' is not: add it, or leave out both", local ? "eplb_local_stats" : "eplb_gathered_stats",
                    local ? "eplb_gathered_stats" : "eplb_local_stats");
  if (!local) return MOE_OK;
  MOE_TRY(moeCheckSameDim(op, MOE_DISPATCH_EPLB_GATHERED_STATS, 1, MOE_DISPATCH_EPLB_LOCAL_STATS, 0));
  MOE_TRY(checkStatisticsSize(op, MOE_DISPATCH_EPLB_LOCAL_STATS, 0, experts));
  MOE_TRY(checkStatisticsSize(op, MOE_DISPATCH_EPLB_GATHERED_STATS, 1, experts));
  return ranks > 0 ? moeCheckDim(op, MOE_DISPATCH_EPLB_GATHERED_STATS, 0, ranks, "ep_size") : MOE_OK;
}

MlirLogicalResult moe_dispatch_verify(MlirOperation op) {
  long long topK = moeInt(op, "top_k"), experts = moeInt(op, "n_experts"), ranks = moeInt(op, "ep_size");
  if (topK > experts) return moeError(op, "top_k = %lld exceeds n_experts = %lld", topK, experts); // C7
  if (experts < ranks) return moeError(op, "n_experts = %lld is less than ep_size = %lld", experts, ranks);
  MOE_TRY(moeCheckDim(op, MOE_DISPATCH_TOPK_IDS, 1, topK, "top_k")); // C1
  MOE_TRY(moeCheckDim(op, MOE_DISPATCH_TOPK_WEIGHTS, 1, topK, "top_k"));
  if (isPresent(op, MOE_DISPATCH_TOPK_WEIGHTS)) MOE_TRY(moeCheckSameDim(op, MOE_DISPATCH_TOPK_WEIGHTS, 0, MOE_DISPATCH_TOPK_IDS, 0));
  MOE_TRY(checkPayloads(op));
  MOE_TRY(checkReceived(op));
  MOE_TRY(checkRows(op));
  MOE_TRY(checkLayout(op));
  MOE_TRY(checkStatistics(op));                                 // C10
  MOE_TRY(moeCheckRankMask(op, MOE_DISPATCH_ACTIVE_RANK_MASK)); // C11
  return moeCheckMetainfo(op, MOE_DISPATCH_METAINFO);           // C8
}

MlirLogicalResult moe_dispatch_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

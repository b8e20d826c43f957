//===- nvfp4_routed.c - moe.nvfp4_routed ----------------------------------------------------------===//

#include "lib/reference/routed.h"
#include "ops/moe/panels.h"
#include <stdio.h>

//===--- sizes ------------------------------------------------------------------------------------===//

typedef enum Size { TOKENS, HIDDEN, EXPERTS, COLUMNS, NUM_SIZES } Size;
static const char *const names[NUM_SIZES] = {"M", "K", "E", "N"};

// A dimension that is a size over a divisor.
typedef struct Dimension {
  int operand;
  intptr_t dim;
  Size size;
  int64_t divisor;
} Dimension;

// The first of a size whose type tells is what the others are compared with.
static const Dimension dimensions[] = {{MOE_NVFP4_ROUTED_HIDDEN_STATES, 0, TOKENS, 1}, // C1
                                       {MOE_NVFP4_ROUTED_HIDDEN_STATES, 1, HIDDEN, 2},
                                       {MOE_NVFP4_ROUTED_HIDDEN_STATES_SCALE, 0, TOKENS, 1}, // C2
                                       {MOE_NVFP4_ROUTED_HIDDEN_STATES_SCALE, 1, HIDDEN, 16},
                                       {MOE_NVFP4_ROUTED_GEMM1_WEIGHTS, 0, EXPERTS, 1}, // C3
                                       {MOE_NVFP4_ROUTED_GEMM1_WEIGHTS, 1, COLUMNS, 1},
                                       {MOE_NVFP4_ROUTED_GEMM1_WEIGHTS, 2, HIDDEN, 2},
                                       {MOE_NVFP4_ROUTED_GEMM1_WEIGHTS_SCALE, 0, EXPERTS, 1},
                                       {MOE_NVFP4_ROUTED_GEMM1_WEIGHTS_SCALE, 1, COLUMNS, 1},
                                       {MOE_NVFP4_ROUTED_GEMM1_WEIGHTS_SCALE, 2, HIDDEN, 16},
                                       {MOE_NVFP4_ROUTED_GEMM2_WEIGHTS, 0, EXPERTS, 1}, // C4
                                       {MOE_NVFP4_ROUTED_GEMM2_WEIGHTS, 1, HIDDEN, 1},
                                       {MOE_NVFP4_ROUTED_GEMM2_WEIGHTS, 2, COLUMNS, 4},
                                       {MOE_NVFP4_ROUTED_GEMM2_WEIGHTS_SCALE, 0, EXPERTS, 1},
                                       {MOE_NVFP4_ROUTED_GEMM2_WEIGHTS_SCALE, 1, HIDDEN, 1},
                                       {MOE_NVFP4_ROUTED_GEMM2_WEIGHTS_SCALE, 2, COLUMNS, 32},
                                       {MOE_NVFP4_ROUTED_OUTPUT1_SCALE_GATE_SCALAR, 0, EXPERTS, 1}, // C5
                                       {MOE_NVFP4_ROUTED_OUTPUT1_SCALE_SCALAR, 0, EXPERTS, 1},
                                       {MOE_NVFP4_ROUTED_OUTPUT2_SCALE_SCALAR, 0, EXPERTS, 1},
                                       {MOE_NVFP4_ROUTED_TOPK_IDS, 0, TOKENS, 1}, // C6
                                       {MOE_NVFP4_ROUTED_TOPK_WEIGHTS, 0, TOKENS, 1},
                                       {MOE_NVFP4_ROUTED_OUT, 0, TOKENS, 1}, // C7
                                       {MOE_NVFP4_ROUTED_OUT, 1, HIDDEN, 1}};
enum { NUM_DIMENSIONS = sizeof dimensions / sizeof *dimensions };

// What the types say of a size; MOE_DYNAMIC, and no dimension, if they do not.
typedef struct Known {
  int64_t value;
  const Dimension *by;
} Known;

static const char *operandName(MlirOperation op, int index) { return moeOpOf(op)->operands[index].name; }

static Known find(MlirOperation op, Size size) {
  for (const Dimension *d = dimensions; d < dimensions + NUM_DIMENSIONS; ++d) {
    int64_t value = d->size == size ? moeDim(moeOperand(op, d->operand), d->dim) : MOE_DYNAMIC;
    if (value != MOE_DYNAMIC && !__builtin_mul_overflow(value, d->divisor, &value)) return (Known){value, d};
  }
  return (Known){MOE_DYNAMIC, NULL};
}

static MlirLogicalResult checkDimension(MlirOperation op, const Dimension *d, const Known *known) {
  char symbol[160];
  if (!known->by || known->by == d) return MOE_OK;
  const char *origin = operandName(op, known->by->operand);
  if (d->divisor == 1)
    snprintf(symbol, sizeof symbol, "%s by operand '%s'", names[d->size], origin);
  else
    snprintf(symbol, sizeof symbol, "%s / %d by operand '%s'", names[d->size], (int)d->divisor, origin);
  return moeCheckDim(op, d->operand, d->dim, known->value / d->divisor, symbol);
}

// C1, C3
static MlirLogicalResult checkBounds(MlirOperation op, Size size, const Known *known, int64_t least, int64_t most, const char *why) {
  if (!known->by || (known->value >= least && known->value <= most)) return MOE_OK;
  return moeError(op, "%s is %lld by operand '%s', must be from %lld to %lld%s", names[size], (long long)known->value,
                  operandName(op, known->by->operand), (long long)least, (long long)most, why);
}

static MlirLogicalResult checkUnit(MlirOperation op, Size size, const Known *known) {
  if (!known->by || (known->value > 0 && known->value % MOERT__ROUTED_UNIT == 0)) return MOE_OK;
  return moeError(op, "%s is %lld by operand '%s', must be a multiple of %d, and at least that", names[size], (long long)known->value,
                  operandName(op, known->by->operand), MOERT__ROUTED_UNIT);
}

static MlirLogicalResult checkSizes(MlirOperation op, const Known known[NUM_SIZES]) {
  const int64_t topK = moeInt(op, "top_k");
  MOE_TRY(checkBounds(op, TOKENS, &known[TOKENS], 0, INT32_MAX / topK, ": i32 must hold M * top_k"));
  MOE_TRY(checkUnit(op, HIDDEN, &known[HIDDEN]));
  MOE_TRY(checkBounds(op, EXPERTS, &known[EXPERTS], 1, MOERT__ROUTED_MAX_EXPERTS, ""));
  MOE_TRY(checkUnit(op, COLUMNS, &known[COLUMNS]));
  for (const Dimension *d = dimensions; d < dimensions + NUM_DIMENSIONS; ++d) MOE_TRY(checkDimension(op, d, &known[d->size]));
  return MOE_OK;
}

// C6
static MlirLogicalResult checkChoices(MlirOperation op, const Known *experts) {
  const int64_t topK = moeInt(op, "top_k"), all = moeInt(op, "num_experts");
  MOE_TRY(moeCheckDim(op, MOE_NVFP4_ROUTED_TOPK_IDS, 1, topK, "top_k"));
  MOE_TRY(moeCheckDim(op, MOE_NVFP4_ROUTED_TOPK_WEIGHTS, 1, topK, "top_k"));
  if (all > 0 && topK > all) return moeError(op, "top_k is %lld, must be at most num_experts = %lld", (long long)topK, (long long)all);
  if (all > 0 || !experts->by || topK <= experts->value) return MOE_OK;
  return moeError(op, "top_k is %lld, must be at most E = %lld by operand '%s'", (long long)topK, (long long)experts->value,
                  operandName(op, experts->by->operand));
}

// C14
static MlirLogicalResult checkRange(MlirOperation op, const Known *experts) {
  const int64_t first = moeInt(op, "first_expert"), all = moeInt(op, "num_experts");
  if (all == 0 && first > 0)
    return moeError(op, "first_expert is %lld, must be 0 unless num_experts says how many experts there are", (long long)first);
  if (all == 0 || !experts->by || first <= all - experts->value) return MOE_OK;
  return moeError(op, "num_experts is %lld, must be at least first_expert + E = %lld by operand '%s'", (long long)all,
                  (long long)(first + experts->value), operandName(op, experts->by->operand));
}

//===--- the plan ---------------------------------------------------------------------------------===//

static MlirLogicalResult checkRoom(MlirOperation op, int operand, int64_t least, int64_t most, const char *why) {
  int64_t size = moeDim(moeOperand(op, operand), 0);
  if (size == MOE_DYNAMIC || (size >= least && size <= most)) return MOE_OK;
  const bool tooSmall = size < least;
  return moeError(op, "operand '%s' has size %lld in dimension 0, must be at %s %lld%s", operandName(op, operand), (long long)size,
                  tooSmall ? "least" : "most", (long long)(tooSmall ? least : most), tooSmall ? why : "");
}

static MlirLogicalResult checkPlan(MlirOperation op, const Known *experts) {
  const int64_t blockM = moeInt(op, "block_m"), blocks = moeDim(moeOperand(op, MOE_NVFP4_ROUTED_EXPERT_IDS), 0);
  int64_t entries = 0;
  if (blockM % MOERT__ROUTED_BLOCK) // C8
    return moeError(op, "block_m is %lld, must be a multiple of %d", (long long)blockM, MOERT__ROUTED_BLOCK);
  if (blocks != MOE_DYNAMIC && __builtin_mul_overflow(blocks, blockM, &entries)) entries = INT64_MAX;
  MOE_TRY(checkRoom(op, MOE_NVFP4_ROUTED_EXPERT_IDS, 1, INT64_MAX, "")); // C9
  MOE_TRY(checkRoom(op, MOE_NVFP4_ROUTED_SORTED_TOKEN_IDS, entries, INT32_MAX, ", block_m for each entry of 'expert_ids'"));
  MOE_TRY(moeCheckDim(op, MOE_NVFP4_ROUTED_NUM_TOKENS_POST_PADDED, 0, 1, "the number of its elements")); // C10
  return checkRoom(op, MOE_NVFP4_ROUTED_CUMSUM_BUFFER, experts->by ? experts->value + 2 : 0, INT64_MAX, ", E + 2");
}

//===--- prepared inputs --------------------------------------------------------------------------===//

static int operandOf(int prepared) { return MOE_NVFP4_ROUTED_W1_SCALE_PREPARED + prepared; }

static bool isThere(MlirOperation op, int prepared) { return !mlirValueIsNull(moeOperand(op, operandOf(prepared))); }

// C11, C12
static MlirLogicalResult checkPanels(MlirOperation op, int prepared, const Known known[NUM_SIZES]) {
  const moert__routed_panel panel = moert__routed_panel_of(prepared);
  const int operand = operandOf(prepared);
  const Known *columns = &known[COLUMNS];
  if (!isThere(op, prepared)) return MOE_OK;
  if (panel.down && columns->by && columns->value / 2 % panel.columns)
    return moeError(op, "operand '%s' is there, so N must be a multiple of %lld, but it is %lld by operand '%s'", operandName(op, operand),
                    (long long)(2 * panel.columns), (long long)columns->value, operandName(op, columns->by->operand));
  const bool areKnown = known[EXPERTS].by && columns->by && known[HIDDEN].by;
  const int64_t panels = areKnown ? moert__routed_panels(panel, known[EXPERTS].value, columns->value, known[HIDDEN].value) : MOE_DYNAMIC;
  return moeCheckPanels(op, operand, panels, panel);
}

static MlirLogicalResult checkPrepared(MlirOperation op, const Known known[NUM_SIZES]) {
  const bool data = isThere(op, MOERT__W1_GATE_UP_DATA), scale = isThere(op, MOERT__W1_GATE_UP_SCALE);
  if (data != scale) // C13
    return moeError(op, "operand '%s' is there, but '%s' is not: add it, or leave out both",
                    operandName(op, operandOf(data ? MOERT__W1_GATE_UP_DATA : MOERT__W1_GATE_UP_SCALE)),
                    operandName(op, operandOf(data ? MOERT__W1_GATE_UP_SCALE : MOERT__W1_GATE_UP_DATA)));
  for (int i = 0; i < MOERT__ROUTED_NUM_PREPARED; ++i) MOE_TRY(checkPanels(op, i, known));
  return MOE_OK;
}

//===----------------------------------------------------------------------------------------------===//

MlirLogicalResult moe_nvfp4_routed_verify(MlirOperation op) {
  Known known[NUM_SIZES];
  for (int size = 0; size < NUM_SIZES; ++size) known[size] = find(op, (Size)size);
  MOE_TRY(checkSizes(op, known));             // C1 to C5, C7
  MOE_TRY(checkChoices(op, &known[EXPERTS])); // C6
  MOE_TRY(checkRange(op, &known[EXPERTS]));   // C14
  MOE_TRY(checkPlan(op, &known[EXPERTS]));    // C8 to C10
  return checkPrepared(op, known);            // C11 to C13
}

MlirLogicalResult moe_nvfp4_routed_lower(MlirOperation op, MoeLowering *lowering) { return moeLowerToCall(op, lowering); }

//===- launch.cu - moe.nvfp4_routed on devices --------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/moe_grouped_matmul/product.h"
#include "kernels/moe_nvfp4_routed/kernels.cuh"
#include "lib/reference/moe_nvfp4_routed.h"

namespace {

using namespace routed;

const unsigned kFewThreads = 64;                      // of a block of finishTokens, if it has little to do
const int64_t kFewEntries = 16 * kWideThreads;        // that one block fills soon enough
const int64_t kDecodeBlocks = 264, kTailBlocks = 132; // at most

//===--- the call ---------------------------------------------------------------------------------===//

bool isAligned(const void *data, uintptr_t unit) { return reinterpret_cast<uintptr_t>(data) % unit == 0; }

Call makeCall(const moert__nvfp4_routed &checked, moert_context *context) {
  Call call = {};
  call.tokens = checked.tokens;
  call.pairs = checked.pairs;
  call.experts = checked.experts;
  call.firstExpert = checked.first_expert;
  call.hidden = checked.hidden;
  call.inner = checked.inner;
  call.entries = checked.entries;
  call.blocks = checked.blocks;
  call.topK = static_cast<int>(checked.top_k);
  call.blockM = static_cast<int>(checked.block_m);
  call.states = checked.states.codes;
  call.stateScales = checked.states.scales;
  call.stateStride = checked.states.stride;
  call.ids = checked.topk_ids;
  call.weights = checked.topk_weights;
  call.sortedIds = checked.sorted_token_ids;
  call.expertIds = checked.expert_ids;
  call.postPadded = checked.num_tokens_post_padded;
  call.cumsum = checked.cumsum_buffer;
  call.out = checked.out;
  call.factor = checked.factor;
  call.accumulate = checked.accumulate;
  call.ordersAtOnce = call.pairs <= kFewPairs && call.entries <= kFewEntries;
  call.readsVectors = isAligned(call.states, sizeof(uint2)) && call.stateStride % static_cast<int64_t>(sizeof(uint2)) == 0;
  call.writesVectors = isAligned(call.out, sizeof(uint4));
  call.fault = moert__context_fault(context);
  call.op = MOERT__OP_MOE_NVFP4_ROUTED;
  return call;
}

template <typename Element> moert_status allocate(moert_context *context, int64_t rows, int64_t columns, Element **memory) {
  int64_t bytes;
  if (__builtin_mul_overflow(rows, columns, &bytes) || __builtin_mul_overflow(bytes, static_cast<int64_t>(sizeof(Element)), &bytes))
    bytes = INT64_MAX;
  void *allocated = nullptr;
  const moert_status status = moert_context_allocate(context, bytes, &allocated);
  *memory = static_cast<Element *>(allocated);
  return status;
}

moert_status allocateScratch(Call *call, moert_context *context) {
  moert_status status = allocate(context, 1, 1, &call->isSound);
  if (!status) status = allocate(context, call->experts + 2, 1, &call->firstBlock);
  if (!status) status = allocate(context, call->experts + 1, 1, &call->firstRow);
  if (status || call->pairs == 0) return status;
  status = allocate(context, call->pairs, 1, &call->tokenOfRow);
  if (!status) status = allocate(context, call->pairs, 1, &call->rowOfPair);
  if (!status) status = allocate(context, call->tokens, call->hidden, &call->numbers);
  if (!status) status = allocate(context, call->pairs, call->inner, &call->activations);
  if (!status) status = allocate(context, call->pairs, call->inner > call->hidden ? call->inner : call->hidden, &call->results);
  return status;
}

//===--- launches ---------------------------------------------------------------------------------===//

// Pairs of the experts at hand, if all are as popular.
int64_t expectedRows(const moert__nvfp4_routed &checked) { return checked.pairs * checked.experts / checked.all_experts; }

moert_status launchPlan(const Call &call, const moert_context *context) {
  const unsigned decoders = gridFor(ceilDivide(call.tokens * (call.hidden / MOERT__ROUTED_SCALED), kWideThreads), kDecodeBlocks);
  const unsigned fillers = gridFor(ceilDivide(call.entries, kThreads * kIdsOfThread), kTailBlocks);
  const moert_status status = launch(context, planRoutes, Grid{1 + decoders, kWideThreads, 0, true}, call);
  const unsigned bins = static_cast<unsigned>(call.experts + 1);
  return status || call.ordersAtOnce ? status : launch(context, orderRoutes, Grid{bins + fillers, kThreads, 0, true}, call);
}

moert_status launchActivations(const Call &call, const moert__nvfp4_routed &checked, moert_context *context) {
  GroupedProduct product = {};
  product.groups = call.experts;
  product.rows = call.pairs;
  product.expectedRows = expectedRows(checked);
  product.inRows = call.tokens;
  product.columns = 2 * call.inner;
  product.depth = call.hidden;
  product.in = call.numbers;
  product.codes = checked.gate_up.codes;
  product.scales = checked.gate_up.scales;
  product.fragments = checked.prepared[MOERT__W1_FRAGMENTS];
  product.factors[0] = checked.gate_scales;
  product.factors[1] = checked.up_scales;
  product.offsets = call.firstRow;
  product.rowIds = call.tokenOfRow;
  product.out = call.results;
  product.swiglu = true;
  product.op = call.op;
  const moert_status status = launchGroupedProduct(product, context);
  const unsigned blocks = gridFor(ceilDivide(call.inner, kEncoded * kThreads) * call.pairs);
  return status ? status : launch(context, requantize, Grid{blocks, kThreads, 0, true}, call);
}

moert_status launchResults(const Call &call, const moert__nvfp4_routed &checked, moert_context *context) {
  GroupedProduct product = {};
  product.groups = call.experts;
  product.rows = product.inRows = call.pairs;
  product.expectedRows = expectedRows(checked);
  product.columns = call.hidden;
  product.depth = call.inner;
  product.in = call.activations;
  product.codes = checked.down.codes;
  product.scales = checked.down.scales;
  product.fragments = checked.prepared[MOERT__W2_FRAGMENTS];
  product.factors[0] = checked.down_scales;
  product.offsets = call.firstRow;
  product.out = call.results;
  product.op = call.op;
  return launchGroupedProduct(product, context);
}

template <int kTopK> moert_status launchSums(const Call &call, const moert_context *context) {
  const int64_t vectors = call.tokens * (call.hidden / kFinishedColumns);
  const unsigned threads = vectors < 132 * kThreads ? kFewThreads : static_cast<unsigned>(kThreads);
  return launch(context, finishTokens<kTopK>, Grid{gridFor(ceilDivide(vectors, threads)), threads, 0, true}, call);
}

using Sums = moert_status (*)(const Call &, const moert_context *);

moert_status launchAll(const moert__nvfp4_routed &checked, Sums sums, moert_context *context) {
  Call call = makeCall(checked, context);
  moert_status status = allocateScratch(&call, context);
  if (!status) status = launchPlan(call, context);
  if (status || call.pairs == 0) return status;
  status = launchActivations(call, checked, context);
  if (!status) status = launchResults(call, checked, context);
  return status ? status : sums(call, context);
}

//===--- instances --------------------------------------------------------------------------------===//

moert_status chooseSums(int32_t instance, int64_t topK, Sums *chosen) {
  Selection selection(instance);
  *chosen = launchSums<0>;
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kTopK)                                                                                                         \
  if (selection.takes(topK == kTopK))                                                                                                                \
    if constexpr (MOE_IS_BUILT(set)) *chosen = launchSums<kTopK>;
#include "kernels/moe_nvfp4_routed/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

} // namespace

moert_status moert__cuda_moe_nvfp4_routed(const moert_moe_nvfp4_routed_params *params, const moert_moe_nvfp4_routed_args *args, int32_t instance,
                                          moert_context *context) {
  moert__nvfp4_routed checked;
  moert_status status = moert__nvfp4_routed_check(params, args, &checked);
  Sums sums = nullptr;
  if (!status) status = chooseSums(instance, checked.top_k, &sums);
  if (status) return status;
  const moert__arena_mark mark = moert__arena_mark_get(context);
  status = launchAll(checked, sums, context);
  moert__arena_rewind(context, mark);
  return status;
}

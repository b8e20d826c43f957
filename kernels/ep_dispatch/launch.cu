//===- launch.cu - launches ep.dispatch ---------------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/common/layer.cuh"
#include "kernels/ep_dispatch/kernels.cuh"
#include "lib/reference/ep_dispatch.h"

static const int64_t kMostSections = 128, kMostCounts = 4 << 20; // of the table of counts

static void cutPairs(DispatchCall *call) {
  const int64_t tiles = ceilDivide(call->layer.tokens * call->layer.topK, kThreads);
  int64_t sections = kMostCounts / call->layer.experts;
  if (sections > kMostSections) sections = kMostSections;
  if (sections > tiles) sections = tiles ? tiles : 1;
  call->sectionPairs = ceilDivide(tiles, sections) * kThreads;
  call->sections = static_cast<int>(sections);
}

static moert_status allocate(DispatchCall *call, moert_context *context) {
  const int64_t counts = call->sections * call->layer.experts, first = call->layer.experts + 1, pairs = call->layer.tokens * call->layer.topK;
  void *memory;
  const moert_status status = moert_context_allocate(context, (counts + first + pairs + 1) * static_cast<int64_t>(sizeof(int)), &memory);
  if (status) return status;
  call->counts = static_cast<int *>(memory);
  call->first = call->counts + counts;
  call->rowOf = call->first + first;
  call->refused = call->rowOf + pairs;
  return MOERT_OK;
}

static DispatchCall callOf(const moert__ep_dispatch_call *checked, moert_context *context) {
  const moert_ep_dispatch_args *args = checked->args;
  DispatchCall call = {};
  call.layer = layerOf(&checked->layer, checked->shared, checked->counters, args->topk_ids, MOERT__OP_EP_DISPATCH, context);
  call.tokens = moert__data(args->input_tokens);
  call.rows = moert__data(args->output_tokens);
  call.rowOffsets = static_cast<int *>(moert__data(args->row_offsets));
  call.expertIds = static_cast<int *>(moert__data(args->expert_ids));
  call.sources = static_cast<int *>(moert__data(args->src_info));
  call.room = checked->room;
  cutPairs(&call);
  return call;
}

template <int kHidden, int kTopK, typename Vector> static moert_status run(const DispatchCall &call, const moert_context *context) {
  const int64_t vectors = call.layer.hidden * static_cast<int64_t>(sizeof(uint16_t)) / static_cast<int64_t>(sizeof(Vector));
  moert_status status = launch(context, countPairs, call.sections, kThreads, 0, call);
  if (!status) status = launch(context, placeGroups, 1, kWideThreads, 0, call);
  if (!status) status = launch(context, placePairs<kTopK>, call.sections, kThreads, 0, call);
  if (!status)
    status = launch(context, copyTokens<kHidden, kTopK, Vector>, gridFor(call.layer.tokens * ceilDivide(vectors, kThreads)), kThreads, 0, call);
  return status;
}

static moert_status choose(const DispatchCall &call, int32_t instance, const moert_context *context) {
  const bool vectors = areVectors(call.layer.hidden * sizeof(uint16_t), call.tokens, call.rows);
  Selection selection(instance);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kTopK)                                                                                                \
  if (selection.takes(accepts(Dtype::type, Dtype::bf16) && call.layer.hidden == kHidden && call.layer.topK == kTopK))                                \
    if constexpr (MOE_IS_BUILT(set))                                                                                                                 \
      if (vectors) return run<kHidden, kTopK, uint4>(call, context);
#include "kernels/ep_dispatch/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  if (selection.mistaken()) return failInstance(instance);
  return vectors ? run<0, 0, uint4>(call, context) : run<0, 0, uint16_t>(call, context);
}

moert_status moert__cuda_ep_dispatch(const moert_ep_dispatch_params *params, const moert_ep_dispatch_args *args, int32_t instance,
                                     moert_context *context) {
  moert__ep_dispatch_call checked;
  moert_status status = moert__ep_dispatch_check(params, args, context, &checked);
  if (status) return status;
  const moert__arena_mark mark = moert__arena_mark_get(context);
  DispatchCall call = callOf(&checked, context);
  status = allocate(&call, context);
  if (!status) status = choose(call, instance, context);
  moert__arena_rewind(context, mark); // what is called next on the stream may use the memory
  return status;
}

//===- launch.cu - launches ep.combine.skip_a2a -------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/common/layer.cuh"
#include "kernels/ep_combine_skip_a2a/kernels.cuh"
#include "lib/reference/ep_combine_skip_a2a.h"

static CombineCall callOf(const moert__ep_combine_call *checked, const moert_context *context) {
  const moert_ep_combine_skip_a2a_args *args = checked->args;
  CombineCall call = {};
  call.layer = layerOf(&checked->layer, checked->shared, checked->counters, args->topk_ids, MOERT__OP_EP_COMBINE_SKIP_A2A, context);
  call.rows = moert__data(args->input_tokens);
  call.weights = moert__data(args->router_weights);
  call.weightFormat = checked->weight_format;
  call.sources = static_cast<const int *>(moert__data(args->src_info));
  call.out = moert__data(args->output_tokens);
  call.numRows = args->input_tokens->shape[0];
  return call;
}

// All ones, as the kernels want it.
static moert_status allocate(CombineCall *call, moert_context *context) {
  const int64_t bytes = static_cast<int64_t>(sizeof(CombineState)) + call->layer.tokens * call->layer.topK * static_cast<int64_t>(sizeof(int));
  void *memory;
  const moert_status status = moert_context_allocate(context, bytes, &memory);
  if (status) return status;
  call->state = static_cast<CombineState *>(memory);
  call->rowOf = reinterpret_cast<int *>(call->state + 1);
  return moert__context_fill(context, memory, 0xff, static_cast<size_t>(bytes));
}

template <moert__format kFormat, int kHidden, int kTopK, int kWidth> static moert_status run(const CombineCall &call, const moert_context *context) {
  const int64_t pieces = ceilDivide(call.layer.hidden / kWidth, kThreads), work = call.layer.tokens * pieces;
  moert_status status = launch(context, checkRound, 1, kWideThreads, 0, call);
  if (!status) status = launch(context, ascribeRows<kTopK>, gridFor(ceilDivide(call.numRows, kThreads)), kThreads, 0, call);
  if (!status) status = launch(context, checkPairs<kTopK>, gridFor(ceilDivide(call.layer.tokens * call.layer.topK, kThreads)), kThreads, 0, call);
  if (!status) status = launch(context, combineRows<kFormat, kHidden, kTopK, kWidth>, gridFor(work ? work : 1), kThreads, 0, call);
  return status;
}

template <moert__format kFormat> constexpr int widthOf() { return kFormat == MOERT__F32 ? 4 : 8; } // elements of 16 bytes

template <moert__format kFormat> static moert_status runGeneric(const CombineCall &call, bool vectors, const moert_context *context) {
  return vectors ? run<kFormat, 0, 0, widthOf<kFormat>()>(call, context) : run<kFormat, 0, 0, 1>(call, context);
}

static moert_status choose(const CombineCall &call, Dtype dtype, int32_t instance, const moert_context *context) {
  const size_t rowBytes = static_cast<size_t>(call.layer.hidden) * (dtype == Dtype::f32 ? 4 : 2);
  const bool vectors = areVectors(rowBytes, call.rows, call.out);
  Selection selection(instance);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kTopK)                                                                                                \
  if (selection.takes(accepts(Dtype::type, dtype) && call.layer.hidden == kHidden && call.layer.topK == kTopK))                                      \
    if constexpr (MOE_IS_BUILT(set))                                                                                                                 \
      if (vectors) return run<formatOf(Dtype::type), kHidden, kTopK, widthOf<formatOf(Dtype::type)>()>(call, context);
#include "kernels/ep_combine_skip_a2a/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  if (selection.mistaken()) return failInstance(instance);
  switch (dtype) {
  case Dtype::bf16: return runGeneric<MOERT__BF16>(call, vectors, context);
  case Dtype::f16: return runGeneric<MOERT__F16>(call, vectors, context);
  default: return runGeneric<MOERT__F32>(call, vectors, context);
  }
}

moert_status moert__cuda_ep_combine_skip_a2a(const moert_ep_combine_skip_a2a_params *params, const moert_ep_combine_skip_a2a_args *args,
                                             int32_t instance, moert_context *context) {
  moert__ep_combine_call checked;
  moert_status status = moert__ep_combine_check(params, args, context, &checked);
  if (status) return status;
  const moert__arena_mark mark = moert__arena_mark_get(context);
  CombineCall call = callOf(&checked, context);
  status = allocate(&call, context);
  if (!status) status = choose(call, dtypeOf(args->output_tokens), instance, context);
  moert__arena_rewind(context, mark); // what is called next on the stream may use the memory
  return status;
}

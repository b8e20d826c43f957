//===- launch.cu - launches moe.route -----------------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/moe_route/kernels.cuh"
#include "lib/reference/moe_route.h"

static const int kMostWarps = 4, kSharedBytes = 48 << 10; // of a block; as much shared memory as needs no opt-in, enough for one warp of any call

static RouteCall callOf(const moert_moe_route_params *params, const moert_moe_route_args *args) {
  RouteCall call = {};
  call.logits = moert__data(args->logits);
  call.bias = args->bias ? static_cast<const float *>(moert__data(args->bias)) : nullptr;
  call.ids = static_cast<int *>(moert__data(args->ids));
  call.weights = static_cast<float *>(moert__data(args->weights));
  call.tokens = args->logits->shape[0];
  call.experts = static_cast<int>(params->n_experts);
  call.topK = static_cast<int>(params->top_k);
  call.groups = static_cast<int>(params->n_group);
  call.eligibleGroups = static_cast<int>(params->topk_group);
  call.scale = static_cast<float>(params->routed_scaling_factor);
  call.sigmoid = params->score == MOERT_MOE_ROUTE_SCORE_SIGMOID;
  call.scoreFirst = params->order == MOERT_MOE_ROUTE_ORDER_SCORE_THEN_TOP_K;
  call.renormalize = params->renormalize;
  return call;
}

template <moert__format kFormat, int kExperts, int kTopK> static moert_status run(const RouteCall &call, const moert_context *context) {
  const int bytes = routeWords(call.experts, call.groups) * static_cast<int>(sizeof(uint32_t));
  const int fitting = kSharedBytes / bytes, warps = fitting < kMostWarps ? fitting : kMostWarps;
  return launch(context, routeTokens<kFormat, kExperts, kTopK>, gridFor(ceilDivide(call.tokens, warps)), warps * kLanes, warps * bytes, call);
}

moert_status moert__cuda_moe_route(const moert_moe_route_params *params, const moert_moe_route_args *args, int32_t instance, moert_context *context) {
  moert_status status = moert__moe_route_check(params, args);
  if (status) return status;
  const Dtype dtype = dtypeOf(args->logits);
  const RouteCall call = callOf(params, args);
  Selection selection(instance);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kExperts, kTopK)                                                                                               \
  if (selection.takes(accepts(Dtype::type, dtype) && params->n_experts == kExperts && params->top_k == kTopK))                                       \
    if constexpr (MOE_IS_BUILT(set)) return run<formatOf(Dtype::type), kExperts, kTopK>(call, context);
#include "kernels/moe_route/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  if (selection.mistaken()) return failInstance(instance);
  switch (dtype) {
  case Dtype::bf16: return run<MOERT__BF16, 0, 0>(call, context);
  case Dtype::f16: return run<MOERT__F16, 0, 0>(call, context);
  default: return run<MOERT__F32, 0, 0>(call, context);
  }
}

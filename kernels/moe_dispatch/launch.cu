//===- launch.cu - moe.dispatch on devices --------------------------------------------------------------===//

#include "kernels/moe_dispatch/kernels.cuh"
#include "lib/reference/moe_dispatch.h"

namespace {

using namespace dispatch;

//===--- instances --------------------------------------------------------------------------------===//

// The kernels that instances have of their own: those that know top_k.
struct Kernels {
  void (*route)(Call), (*send)(Call);
};

template <bool kIsBuilt, int kTopK> Kernels instanceOr(const Kernels &generic) {
  if constexpr (kIsBuilt) return {routeTokens<kTopK>, sendTokens<kTopK>};
  return generic;
}

moert_status chooseKernels(int32_t instance, int64_t topK, Kernels *chosen) {
  Selection selection(instance);
  const Kernels generic = *chosen = {routeTokens<0>, sendTokens<0>};
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kTopK)                                                                                                         \
  if (selection.takes(topK == kTopK)) *chosen = instanceOr<MOE_IS_BUILT(set), kTopK>(generic);
#include "kernels/moe_dispatch/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

template <typename T> T *dataOf(const moert_tensor *tensor) { return tensor ? static_cast<T *>(moert__data(tensor)) : nullptr; }

Payload payloadOf(const moert__dispatch_call &checked, int64_t i) {
  Payload payload = {};
  payload.from = dataOf<char>(&checked.args->payloads[i]);
  payload.recv = dataOf<char>(&checked.args->recv[i]);
  payload.rowBytes = checked.row_bytes[i];
  payload.area = checked.areas[i];
  const uint64_t rows = static_cast<uint64_t>(payload.rowBytes); // of the areas, which begin at multiples of 128
  payload.sendWidth = widthOf(rows | addressOf(payload.from));
  payload.receiveWidth = widthOf(rows | addressOf(payload.recv));
  return payload;
}

Call makeCall(const moert__dispatch_call &checked, moert_context *context) {
  const moert_moe_dispatch_args *args = checked.args;
  Call call = {};
  call.exchange = exchangeOf(checked.workspace, context, MOERT__OP_MOE_DISPATCH);
  call.ids = dataOf<int32_t>(args->topk_ids);
  call.weights = dataOf<float>(args->topk_weights);
  call.tokens = checked.tokens;
  call.maxTokens = checked.max_tokens;
  call.experts = checked.params->n_experts;
  call.capacity = args->recv[0].shape[0];
  call.topK = static_cast<int32_t>(checked.params->top_k);
  call.numPayloads = static_cast<int32_t>(args->num_payloads);
  call.grouped = checked.grouped;
  call.recvCounts = dataOf<int32_t>(args->recv_counts);
  call.offsets = dataOf<int32_t>(args->offsets);
  call.stats = dataOf<int32_t>(args->eplb_local_stats);
  call.gatheredStats = dataOf<int32_t>(args->eplb_gathered_stats);
  call.numStats = checked.num_stats;
  call.statsStride = checked.stats_stride;
  for (int32_t i = 0; i < call.numPayloads; ++i) {
    call.payloads[i] = payloadOf(checked, i);
    call.outputs[i] = outputOf(checked.workspace, &args->recv[i]);
  }
  call.outputs[MOERT_WORKSPACE_MAX_PAYLOADS] = outputOf(checked.workspace, args->recv_counts);
  call.outputs[MOERT_WORKSPACE_MAX_PAYLOADS + 1] = outputOf(checked.workspace, args->offsets);
  call.outputs[MOERT_WORKSPACE_MAX_PAYLOADS + 2] = outputOf(checked.workspace, args->eplb_gathered_stats);
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

// A block for each token; where statistics need more, as if there are no tokens, a thread for each of them.
unsigned sendingGrid(const Call &call) {
  int64_t blocks = ceilDivide(call.numStats, kRowThreads);
  return gridFor(call.tokens > blocks ? call.tokens : blocks);
}

moert_status launchSending(moert_context *context, const Call &call, const Kernels &kernels, uint32_t hash) {
  moert_status status = launchEnter(context, call.exchange, hash, -1, NothingToCheck());
  if (!status) status = launch(context, kernels.route, dim3(call.exchange.watch.ranks), kWideThreads, 0, call);
  if (!status) status = moert__stop_point(context, "counts");
  if (!status) status = launchMeet(context, call.exchange, -1, MOERT_METAINFO_COUNT_FLAGS, MOERT__AWAITED_COUNTS);
  if (!status) status = launch(context, kernels.send, dim3(sendingGrid(call)), kRowThreads, 0, call);
  return status ? status : launchComplete(context, call.exchange, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS);
}

moert_status launchReceiving(moert_context *context, const Call &call, int64_t localExperts) {
  dim3 rows(gridFor(call.exchange.watch.ranks * call.maxTokens));
  if (!call.grouped) return launch(context, receiveRows, rows, kRowThreads, 0, call);
  moert_status status = launch(context, countChoices, dim3(static_cast<unsigned>(localExperts)), kWideThreads, 0, call);
  if (!status) status = launch(context, placeChoices, dim3(static_cast<unsigned>(localExperts)), kWideThreads, 0, call);
  return status ? status : launch(context, gatherRows, rows, kRowThreads, 0, call);
}

} // namespace

moert_status moert__cuda_moe_dispatch(const moert_moe_dispatch_params *params, const moert_moe_dispatch_args *args, int32_t instance,
                                      moert_context *context) {
  moert__dispatch_call checked;
  moert_status status = moert__dispatch_check(params, args, context, &checked);
  Kernels kernels = {};
  if (!status) status = chooseKernels(instance, params->top_k, &kernels);
  if (status) return status;
  const Call call = makeCall(checked, context);
  status = launchSending(context, call, kernels, moert__dispatch_hash(&checked));
  if (!status) status = launchReceiving(context, call, checked.local_experts);
  if (!status) moert__dispatch_keep(&checked, 0);
  return noteLaunch(context, status);
}

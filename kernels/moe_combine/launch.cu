//===- launch.cu - moe.combine on devices ---------------------------------------------------------------===//

#include "kernels/moe_combine/kernels.cuh"

namespace {

using namespace combine;

//===--- instances --------------------------------------------------------------------------------===//

using Kernel = void (*)(Call);

Kernel genericStage(moert__format format) {
  switch (format) {
  case MOERT__BF16: return stageGrouped<MOERT__BF16>;
  case MOERT__F16: return stageGrouped<MOERT__F16>;
  default: return stageGrouped<MOERT__F32>;
  }
}

Kernel genericAdder(moert__format format) {
  switch (format) {
  case MOERT__BF16: return addRows<MOERT__BF16, 0, 0>;
  case MOERT__F16: return addRows<MOERT__F16, 0, 0>;
  default: return addRows<MOERT__F32, 0, 0>;
  }
}

// Instances know hidden_size and top_k.
template <bool kIsBuilt, moert__format kFormat, int kTopK, int kHidden> Kernel instanceOr(Kernel generic) {
  if constexpr (kIsBuilt) return addRows<kFormat, kTopK, kHidden>;
  return generic;
}

moert_status chooseAdder(int32_t instance, const moert__combine_call &checked, Kernel *chosen) {
  const Dtype dtype = dtypeOf(checked.args->payload);
  const int64_t hidden = checked.params->hidden_size, topK = checked.params->top_k;
  Selection selection(instance);
  const Kernel generic = *chosen = genericAdder(checked.payload_format);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kTopK)                                                                                                \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && topK == kTopK))                                                            \
    *chosen = instanceOr<MOE_IS_BUILT(set), formatOf(Dtype::type), kTopK, kHidden>(generic);
#include "kernels/moe_combine/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

Call makeCall(const moert__combine_call &checked, moert_context *context) {
  Call call = {};
  call.exchange = exchangeOf(checked.workspace, context, MOERT__OP_MOE_COMBINE);
  call.payload = moert__data(checked.args->payload);
  call.out = moert__data(checked.args->out);
  call.tokens = checked.tokens;
  call.maxTokens = checked.max_tokens;
  call.hidden = checked.params->hidden_size;
  call.rowBytes = checked.row_bytes;
  call.topK = static_cast<int32_t>(checked.params->top_k);
  call.outFormat = checked.out_format;
  call.alignedArea = call.hidden % kPiece == 0;
  call.alignedPayload = call.alignedArea && widthOf(addressOf(call.payload)) == 16;
  call.alignedOut = call.alignedArea && widthOf(addressOf(call.out)) == 16;
  call.width = widthOf(static_cast<uint64_t>(call.rowBytes) | addressOf(call.payload));
  call.output = outputOf(checked.workspace, checked.args->out);
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

moert_status launchEnterChecked(moert_context *context, const Call &call, const moert__combine_call &checked) {
  uint32_t hash = moert__combine_hash(&checked);
  if (!checked.grouped) return launchEnter(context, call.exchange, hash, -1, NothingToCheck());
  return launchEnter(context, call.exchange, hash, -1, RowsFit{checked.args->payload->shape[0]});
}

moert_status launchStage(moert_context *context, const Call &call, const moert__combine_call &checked) {
  dim3 rows(gridFor(call.exchange.watch.ranks * call.maxTokens));
  if (checked.grouped) return launch(context, genericStage(checked.payload_format), rows, kThreads, 0, call);
  return checked.params->payload_in_workspace ? MOERT_OK : launch(context, stageRankMajor, rows, kThreads, 0, call);
}

moert_status launchAll(moert_context *context, const Call &call, const moert__combine_call &checked, Kernel adder) {
  moert_status status = launchEnterChecked(context, call, checked);
  if (!status) status = moert__stop_point(context, "counts"); // those of the dispatch, which hold for its combine
  if (!status) status = launchStage(context, call, checked);
  if (!status) status = launchComplete(context, call.exchange, MOERT_METAINFO_COMBINE_COMPLETION_FLAGS);
  return status ? status : launch(context, adder, dim3(gridFor(call.tokens)), kThreads, 0, call);
}

} // namespace

moert_status moert__cuda_moe_combine(const moert_moe_combine_params *params, const moert_moe_combine_args *args, int32_t instance,
                                     moert_context *context) {
  moert__combine_call checked;
  moert_status status = moert__combine_check(params, args, context, &checked);
  Kernel adder = nullptr;
  if (!status) status = chooseAdder(instance, checked, &adder);
  if (status) return status;
  status = launchAll(context, makeCall(checked, context), checked, adder);
  if (!status) moert__combine_keep(&checked);
  return noteLaunch(context, status);
}

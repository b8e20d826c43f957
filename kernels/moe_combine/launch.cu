//===- launch.cu - moe.combine on devices ---------------------------------------------------------------===//

#include "kernels/moe_combine/kernels.cuh"

namespace {

using namespace combine;

//===--- instances --------------------------------------------------------------------------------===//

using Kernel = void (*)(Call);

// What makes this rank's rows of the combine area, NULL if they are there, and what adds up a token's rows.
struct Kernels {
  Kernel stage, adder;
};

// The kernels for a payload's type, and for what travels.
template <moert__format kFormat, typename Wire> Kernel stageOf(const moert__combine_call &checked) {
  if (checked.grouped) return stageGrouped<kFormat, Wire>;
  return checked.params->use_low_precision ? stageLowPrecision<kFormat> : checked.params->payload_in_workspace ? nullptr : stageRankMajor;
}

template <moert__format kFormat, typename Wire> Kernel genericAdderOf(const moert__combine_call &checked) {
  return checked.quantizes ? quantizeRows<kFormat, Wire> : addRows<Wire, 0, 0>;
}

template <moert__format kFormat> void genericKernelsOf(const moert__combine_call &checked, Kernels *chosen) {
  if (checked.params->use_low_precision)
    *chosen = {stageOf<kFormat, LowPrecision>(checked), genericAdderOf<kFormat, LowPrecision>(checked)};
  else
    *chosen = {stageOf<kFormat, Numbers<kFormat>>(checked), genericAdderOf<kFormat, Numbers<kFormat>>(checked)};
}

void genericKernels(const moert__combine_call &checked, Kernels *chosen) {
  switch (checked.payload_format) {
  case MOERT__BF16: genericKernelsOf<MOERT__BF16>(checked, chosen); break;
  case MOERT__F16: genericKernelsOf<MOERT__F16>(checked, chosen); break;
  default: genericKernelsOf<MOERT__F32>(checked, chosen);
  }
}

// Instances know hidden_size and top_k; they add rows of the payload's type to such rows.
template <bool kIsBuilt, moert__format kFormat, int kTopK, int kHidden> Kernel instanceOr(Kernel generic) {
  if constexpr (kIsBuilt) return addRows<Numbers<kFormat>, kTopK, kHidden>;
  return generic;
}

moert_status chooseKernels(int32_t instance, const moert__combine_call &checked, Kernels *chosen) {
  const Dtype dtype = dtypeOf(checked.args->payload);
  const int64_t hidden = checked.params->hidden_size, topK = checked.params->top_k;
  const bool plain = !checked.quantizes && !checked.params->use_low_precision;
  Selection selection(instance);
  genericKernels(checked, chosen);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kTopK)                                                                                                \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && topK == kTopK) && plain)                                                   \
    chosen->adder = instanceOr<MOE_IS_BUILT(set), formatOf(Dtype::type), kTopK, kHidden>(chosen->adder);
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
  call.wireBytes = checked.wire_bytes;
  call.topK = static_cast<int32_t>(checked.params->top_k);
  call.outFormat = checked.out_format;
  call.alignedArea = call.hidden % kPiece == 0;
  call.alignedPayload = call.alignedArea && widthOf(addressOf(call.payload)) == 16;
  call.alignedOut = call.alignedArea && widthOf(addressOf(call.out)) == 16;
  call.width = widthOf(static_cast<uint64_t>(call.rowBytes) | addressOf(call.payload));
  call.quantized = checked.quantized;
  call.global = static_cast<float>(checked.params->output_scalar_scale);
  call.output = outputOf(checked.workspace, checked.args->out);
  call.scales = outputOf(checked.workspace, checked.args->output_scales);
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

moert_status launchEnterChecked(moert_context *context, const Call &call, const moert__combine_call &checked) {
  uint32_t hash = moert__combine_hash(&checked);
  if (!checked.grouped) return launchEnter(context, call.exchange, hash, -1, NothingToCheck());
  return launchEnter(context, call.exchange, hash, -1, RowsFit{checked.args->payload->shape[0]});
}

moert_status launchAll(moert_context *context, const Call &call, const moert__combine_call &checked, const Kernels &kernels) {
  const dim3 rows(gridFor(call.exchange.watch.ranks * call.maxTokens));
  moert_status status = launchEnterChecked(context, call, checked);
  if (!status) status = moert__stop_point(context, "counts"); // those of the dispatch, which hold for its combine
  if (!status && kernels.stage) status = launch(context, kernels.stage, rows, kThreads, 0, call);
  if (!status) status = launchComplete(context, call.exchange, MOERT_METAINFO_COMBINE_COMPLETION_FLAGS);
  return status ? status : launch(context, kernels.adder, dim3(gridFor(call.tokens)), kThreads, 0, call);
}

} // namespace

moert_status moert__cuda_moe_combine(const moert_moe_combine_params *params, const moert_moe_combine_args *args, int32_t instance,
                                     moert_context *context) {
  moert__combine_call checked;
  moert_status status = moert__combine_check(params, args, context, &checked);
  Kernels kernels = {};
  if (!status) status = chooseKernels(instance, checked, &kernels);
  if (status) return status;
  status = launchAll(context, makeCall(checked, context), checked, kernels);
  if (!status) moert__combine_keep(&checked);
  return noteLaunch(context, status);
}

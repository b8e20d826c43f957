//===- launch.cu - moe.allreduce_fusion on devices ------------------------------------------------------===//

#include "kernels/moe_allreduce_fusion/kernels.cuh"

namespace {

using namespace allreduce;

//===--- instances --------------------------------------------------------------------------------===//

struct Kernels {
  void (*send)(Call), (*finish)(Call);
};

template <moert__format kFormat, int kHidden, int kFp32Acc> Kernels kernelsOf() {
  return {sendParts<kFormat, kHidden, kFp32Acc>, finishTokens<kFormat, kHidden, kFp32Acc>};
}

Kernels genericOf(moert__format format) {
  switch (format) {
  case MOERT__BF16: return kernelsOf<MOERT__BF16, 0, -1>();
  case MOERT__F16: return kernelsOf<MOERT__F16, 0, -1>();
  default: return kernelsOf<MOERT__F32, 0, -1>();
  }
}

// Instances know hidden_size and fp32_acc.
template <bool kIsBuilt, moert__format kFormat, int kHidden, int kFp32Acc> Kernels instanceOr(const Kernels &generic) {
  if constexpr (kIsBuilt) return kernelsOf<kFormat, kHidden, kFp32Acc>();
  return generic;
}

moert_status chooseKernels(int32_t instance, const moert__allreduce_call &checked, Kernels *chosen) {
  const Dtype dtype = dtypeOf(checked.args->residual_in);
  const int64_t hidden = checked.hidden, fp32Acc = checked.params->fp32_acc;
  Selection selection(instance);
  const Kernels generic = *chosen = genericOf(checked.format);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kFp32Acc)                                                                                             \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && fp32Acc == kFp32Acc))                                                      \
    *chosen = instanceOr<MOE_IS_BUILT(set), formatOf(Dtype::type), kHidden, kFp32Acc>(generic);
#include "kernels/moe_allreduce_fusion/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

void *dataOf(const moert_tensor *tensor) { return tensor ? moert__data(tensor) : nullptr; }

Number numberOf(const moert__allreduce_call &checked) {
  const moert_tensor *number = checked.args->moe_reduction_device_num_experts;
  return {dataOf(number), number && number->dtype.code == MOERT_CODE_UINT, checked.experts};
}

Call makeCall(const moert__allreduce_call &checked, moert_context *context) {
  const moert_moe_allreduce_fusion_args *args = checked.args;
  Call call = {};
  call.exchange = exchangeOf(checked.workspace, context, MOERT__OP_MOE_ALLREDUCE_FUSION);
  call.number = numberOf(checked);
  call.inputs = dataOf(args->moe_reduction_active_experts_token_input);
  call.scales = dataOf(args->moe_reduction_scale_input);
  call.shared = dataOf(args->moe_reduction_token_input);
  call.residual = dataOf(args->residual_in);
  call.gamma = dataOf(args->rms_gamma);
  call.sumOut = dataOf(args->moe_allreduce_out);
  call.residualOut = dataOf(args->residual_out);
  call.normOut = dataOf(args->norm_out);
  call.tokens = checked.tokens;
  call.hidden = checked.hidden;
  call.rowBytes = checked.row_bytes;
  call.scaleFormat = checked.scale_format;
  call.fp32Acc = static_cast<int32_t>(checked.params->fp32_acc);
  call.epsilon = static_cast<float>(checked.params->rms_eps);
  call.bias = static_cast<float>(checked.params->weight_bias);
  uint64_t addresses = addressOf(call.inputs) | addressOf(call.shared) | addressOf(call.residual) | addressOf(call.gamma) | addressOf(call.sumOut) |
                       addressOf(call.residualOut) | addressOf(call.normOut);
  call.aligned = widthOf(addresses) == 16;
  const moert_tensor *outputs[kOutputs] = {args->moe_allreduce_out, args->residual_out, args->norm_out};
  for (int i = 0; i < kOutputs; ++i) call.outputs[i] = outputOf(checked.workspace, outputs[i]);
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

unsigned finishThreads(int64_t hidden) {
  int64_t threads = ceilDivide(hidden, 32 * kPiece) * 32;
  return static_cast<unsigned>(threads < kMostThreads ? threads : kMostThreads);
}

// When all have arrived, none reads any more what the epoch before left in the receive areas.
moert_status launchAll(moert_context *context, const Call &call, const Kernels &kernels, uint32_t hash) {
  const Exchange &exchange = call.exchange;
  moert_status status = launchEnter(context, exchange, hash, MOERT_METAINFO_COUNT_FLAGS, NumberFits{call.number});
  if (!status) status = moert__stop_point(context, "counts");
  if (!status) status = launchMeet(context, exchange, -1, MOERT_METAINFO_COUNT_FLAGS, MOERT__AWAITED_ARRIVAL);
  if (!status) status = launch(context, kernels.send, dim3(gridFor(call.tokens)), kSendThreads, 0, call);
  if (!status) status = launchComplete(context, exchange, MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS);
  return status ? status : launch(context, kernels.finish, dim3(gridFor(call.tokens)), finishThreads(call.hidden), 0, call);
}

} // namespace

moert_status moert__cuda_moe_allreduce_fusion(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                              int32_t instance, moert_context *context) {
  moert__allreduce_call checked;
  moert_status status = moert__allreduce_check(params, args, context, &checked);
  Kernels kernels = {};
  if (!status) status = chooseKernels(instance, checked, &kernels);
  if (status) return status;
  return noteLaunch(context, launchAll(context, makeCall(checked, context), kernels, moert__allreduce_hash(&checked)));
}

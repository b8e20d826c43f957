//===- launch.cu - moe.allreduce_fusion on devices ------------------------------------------------------===//

#include "kernels/moe_allreduce_fusion/launch.cuh"
#include "lib/reference/moe_allreduce_fusion.h"

namespace {

using namespace allreduce;

moert_status chooseKernel(int32_t instance, const moert__reduction &checked, bool aligned, Kernel<Experts> *chosen) {
  const Dtype dtype = dtypeOf(checked.residual);
  const int64_t hidden = checked.hidden, fp32Acc = checked.fp32_acc;
  Selection selection(instance);
  *chosen = genericKernel<Experts>(checked);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kFp32Acc)                                                                                             \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && fp32Acc == kFp32Acc) && aligned)                                           \
    *chosen = instanceOr<MOE_IS_BUILT(set), Experts, formatOf(Dtype::type), kHidden, kFp32Acc>(*chosen, checked);
#include "kernels/moe_allreduce_fusion/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

Experts expertsOf(const moert__allreduce_call &checked) {
  const moert_moe_allreduce_fusion_args *args = checked.args;
  const moert_tensor *number = args->moe_reduction_device_num_experts;
  Experts experts = {};
  experts.inputs = dataOf(args->moe_reduction_active_experts_token_input);
  experts.scales = dataOf(args->moe_reduction_scale_input);
  experts.shared = dataOf(args->moe_reduction_token_input);
  experts.tokens = checked.reduction.tokens;
  experts.number = {dataOf(number), number && number->dtype.code == MOERT_CODE_UINT, checked.experts};
  experts.scaleFormat = checked.scale_format;
  return experts;
}

} // namespace

moert_status moert__cuda_moe_allreduce_fusion(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                              int32_t instance, moert_context *context) {
  moert__allreduce_call checked;
  moert_status status = moert__allreduce_check(params, args, context, &checked);
  if (status) return status;
  const Experts experts = expertsOf(checked);
  const Call call = makeCall(checked.reduction, MOERT__OP_MOE_ALLREDUCE_FUSION, moert__allreduce_hash(&checked),
                             addressOf(experts.inputs) | addressOf(experts.shared));
  Kernel<Experts> kernel = {};
  status = chooseKernel(instance, checked.reduction, call.aligned, &kernel);
  return status ? status : launchAll(call, experts, checked.reduction, kernel, params->launch_with_pdl != 0);
}

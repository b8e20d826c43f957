//===- launch.cu - moe.finalize_allreduce_fusion on devices ---------------------------------------------===//

#include "kernels/moe_finalize_allreduce_fusion/source.cuh"
#include "kernels/moe_allreduce_fusion/launch.cuh"
#include "lib/reference/moe_finalize_allreduce_fusion.h"

namespace {

using namespace allreduce;

moert_status chooseKernel(int32_t instance, const moert__reduction &checked, bool aligned, Kernel<Choices> *chosen) {
  const Dtype dtype = dtypeOf(checked.residual);
  const int64_t hidden = checked.hidden, fp32Acc = checked.fp32_acc;
  Selection selection(instance);
  *chosen = genericKernel<Choices>(checked);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kFp32Acc)                                                                                             \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && fp32Acc == kFp32Acc) && aligned)                                           \
    *chosen = instanceOr<MOE_IS_BUILT(set), Choices, formatOf(Dtype::type), kHidden, kFp32Acc>(*chosen, checked);
#include "kernels/moe_finalize_allreduce_fusion/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

Choices choicesOf(const moert__finalize_call &checked) {
  const moert_moe_finalize_allreduce_fusion_args *args = checked.args;
  Choices choices = {};
  choices.rows = dataOf(args->allreduce_in);
  choices.scales = dataOf(args->expert_scale_factor);
  choices.shared = dataOf(args->shared_expert_output);
  choices.indices = static_cast<const int32_t *>(dataOf(args->expanded_idx_to_permuted_idx));
  choices.numRows = checked.rows;
  choices.topK = static_cast<int32_t>(checked.top_k);
  choices.scaleFormat = checked.scale_format;
  choices.factor = checked.factor;
  return choices;
}

} // namespace

moert_status moert__cuda_moe_finalize_allreduce_fusion(const moert_moe_finalize_allreduce_fusion_params *params,
                                                       const moert_moe_finalize_allreduce_fusion_args *args, int32_t instance,
                                                       moert_context *context) {
  moert__finalize_call checked;
  moert_status status = moert__finalize_check(params, args, context, &checked);
  if (status) return status;
  const Choices choices = choicesOf(checked);
  const Call call = makeCall(checked.reduction, MOERT__OP_MOE_FINALIZE_ALLREDUCE_FUSION, moert__finalize_hash(&checked),
                             addressOf(choices.rows) | addressOf(choices.shared));
  Kernel<Choices> kernel = {};
  status = chooseKernel(instance, checked.reduction, call.aligned, &kernel);
  return status ? status : launchAll(call, choices, checked.reduction, kernel, params->launch_with_pdl != 0);
}

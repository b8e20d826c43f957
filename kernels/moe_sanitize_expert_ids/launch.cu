//===- launch.cu - moe.sanitize_expert_ids on devices -----------------------------------------------------===//

#include "kernels/common/exchange.cuh"
#include "lib/reference/moe_sanitize_expert_ids.h"

namespace {

const int kThreads = 256;

struct Call {
  Exchange exchange;
  int32_t *ids;
  int64_t rows, columns; // `rows`: of each source
  int32_t invalid;
};

//===--- kernel -----------------------------------------------------------------------------------===//

// Row blockIdx.y is what came from that rank. The instances know the id, so that it is part of the code.
template <bool kIsKnown, int32_t kInvalid> __global__ void __launch_bounds__(kThreads) markRows(const __grid_constant__ Call call) {
  if (hasFailed(call.exchange)) return;
  int source = static_cast<int>(blockIdx.y);
  int32_t *ids = call.ids + source * call.rows * call.columns;
  int64_t begin = receivedFrom(call.exchange, source) * call.columns, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = begin + blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < call.rows * call.columns; i += step)
    ids[i] = kIsKnown ? kInvalid : call.invalid;
}

//===--- instances --------------------------------------------------------------------------------===//

using Kernel = void (*)(Call);

template <bool kIsBuilt, int32_t kInvalid> Kernel instanceOr(Kernel generic) {
  if constexpr (kIsBuilt) return markRows<true, kInvalid>;
  return generic;
}

moert_status chooseKernel(int32_t instance, int64_t invalid, Kernel *chosen) {
  Selection selection(instance);
  const Kernel generic = *chosen = markRows<false, 0>;
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kInvalid)                                                                                                      \
  if (selection.takes(invalid == kInvalid)) *chosen = instanceOr<MOE_IS_BUILT(set), kInvalid>(generic);
#include "kernels/moe_sanitize_expert_ids/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

} // namespace

moert_status moert__cuda_moe_sanitize_expert_ids(const moert_moe_sanitize_expert_ids_params *params, const moert_moe_sanitize_expert_ids_args *args,
                                                 int32_t instance, moert_context *context) {
  moert__workspace workspace;
  moert_status status = moert__sanitize_expert_ids_check(params, args, context, &workspace);
  Kernel kernel = nullptr;
  if (!status) status = chooseKernel(instance, params->invalid_expert_id, &kernel);
  if (status) return status;
  Call call = {};
  call.exchange = exchangeOf(workspace, context, MOERT__OP_MOE_SANITIZE_EXPERT_IDS);
  call.ids = static_cast<int32_t *>(moert__data(args->expert_ids));
  call.rows = args->expert_ids->shape[1];
  call.columns = args->expert_ids->shape[2];
  call.invalid = static_cast<int32_t>(params->invalid_expert_id);
  unsigned blocks = gridFor(ceilDivide(call.rows * call.columns, kThreads), 256);
  return launch(context, kernel, dim3(blocks, static_cast<unsigned>(workspace.ranks)), kThreads, 0, call);
}

//===- launch.cu - moe.prepare_nvfp4 on devices -------------------------------------------------------===//

#include "kernels/common/launch.cuh"
#include "kernels/moe_prepare_nvfp4/kernels.cuh"
#include "lib/reference/moe_prepare_nvfp4.h"

namespace {

using namespace prepare;

const unsigned kThreads = 256;

// As the columns of specializations.def name them.
namespace column {
const int w1_scales = MOERT__W1_SCALE, w2_scales = MOERT__W2_SCALE, w1_data = MOERT__W1_DATA, w1_gate_up_data = MOERT__W1_GATE_UP_DATA,
          w1_gate_up_scales = MOERT__W1_GATE_UP_SCALE, w1_scales_interleaved = MOERT__W1_SCALE_INTERLEAVED, w2_data = MOERT__W2_DATA,
          w2_data_k256 = MOERT__W2_DATA_K256, w2_scales_k256 = MOERT__W2_SCALE_K256, w1_fragments = MOERT__W1_FRAGMENTS,
          w2_fragments = MOERT__W2_FRAGMENTS;
}

Call makeCall(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args) {
  Call call = {};
  call.source = static_cast<const uint8_t *>(moert__data(args->source));
  if (args->scales) call.scales = static_cast<const uint8_t *>(moert__data(args->scales));
  call.prepared = static_cast<uint8_t *>(moert__data(args->prepared));
  call.experts = args->source->shape[0];
  call.rows = args->source->shape[1];
  call.rowBytes = args->source->shape[2];
  call.panel = moert__routed_panel_of(static_cast<int>(params->layout));
  return call;
}

template <int kLayout, typename Unit> moert_status moveAll(const Call &call, const moert_context *context) {
  const int64_t units = call.experts * call.rows * call.rowBytes / static_cast<int64_t>(sizeof(Unit));
  return launch(context, movePanels<kLayout, Unit>, gridFor(ceilDivide(units, kThreads)), kThreads, 0, call);
}

template <int kLayout, typename Unit> moert_status makeAll(const Call &call, const moert_context *context) {
  const int64_t bytes = call.experts * call.rows * call.rowBytes, words = (bytes + bytes / 8) / 4;
  return launch(context, makeFragments<kLayout, Unit>, gridFor(ceilDivide(words, kThreads)), kThreads, 0, call);
}

template <int kLayout, typename Unit> moert_status run(const Call &call, const moert_context *context) {
  if constexpr (kLayout == kAnyLayout)
    return call.panel.contents == MOERT__FRAGMENTS ? makeAll<kLayout, Unit>(call, context) : moveAll<kLayout, Unit>(call, context);
  else if constexpr (kLayout == MOERT__W1_FRAGMENTS || kLayout == MOERT__W2_FRAGMENTS)
    return makeAll<kLayout, Unit>(call, context);
  else
    return moveAll<kLayout, Unit>(call, context);
}

bool areWords(const Call &call) {
  return (reinterpret_cast<uintptr_t>(call.source) | reinterpret_cast<uintptr_t>(call.prepared)) % sizeof(uint32_t) == 0;
}

} // namespace

moert_status moert__cuda_moe_prepare_nvfp4(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args, int32_t instance,
                                           moert_context *context) {
  const moert_status status = moert__prepare_nvfp4_check(params, args);
  if (status) return status;
  const Call call = makeCall(params, args);
  const bool words = areWords(call);
  Selection selection(instance);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, value)                                                                                                         \
  if (selection.takes(params->layout == column::value) && words)                                                                                     \
    if constexpr (MOE_IS_BUILT(set)) return run<column::value, uint32_t>(call, context);
#include "kernels/moe_prepare_nvfp4/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  if (selection.mistaken()) return failInstance(instance);
  return words ? run<kAnyLayout, uint32_t>(call, context) : run<kAnyLayout, uint8_t>(call, context);
}

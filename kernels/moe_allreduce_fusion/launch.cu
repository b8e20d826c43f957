//===- launch.cu - moe.allreduce_fusion on devices ------------------------------------------------------===//

#include "kernels/moe_allreduce_fusion/kernels.cuh"

namespace {

using namespace allreduce;

//===--- instances --------------------------------------------------------------------------------===//

struct Kernel {
  void (*byPackets)(Call, Experts), (*byRows)(Call, Experts);
  int blocksPerSm;
};

template <typename Kind> Kernel kernelOf() {
  return {reduceTokens<ByPackets, Kind, Experts>, reduceTokens<ByRows, Kind, Experts>, Kind::kBlocksPerSm};
}

template <moert__format kFormat, bool kInF32, int kHidden> Kernel kernelOf(bool pair) {
  return pair ? kernelOf<Kind<kFormat, kInF32, kHidden, true>>() : kernelOf<Kind<kFormat, kInF32, kHidden, false>>();
}

template <moert__format kFormat> Kernel genericOf(const moert__allreduce_call &checked) {
  const bool pair = checked.workspace.ranks == 2;
  return checked.params->fp32_acc ? kernelOf<kFormat, true, 0>(pair) : kernelOf<kFormat, false, 0>(pair);
}

Kernel genericKernel(const moert__allreduce_call &checked) {
  switch (checked.format) {
  case MOERT__BF16: return genericOf<MOERT__BF16>(checked);
  case MOERT__F16: return genericOf<MOERT__F16>(checked);
  default: return genericOf<MOERT__F32>(checked);
  }
}

// Instances know hidden_size and fp32_acc, and take rows of whole vectors.
template <bool kIsBuilt, moert__format kFormat, int kHidden, int kFp32Acc> Kernel instanceOr(Kernel generic, bool pair) {
  if constexpr (kIsBuilt) return kernelOf<kFormat, kFp32Acc != 0, kHidden>(pair);
  return generic;
}

moert_status chooseKernel(int32_t instance, const moert__allreduce_call &checked, bool aligned, Kernel *chosen) {
  const Dtype dtype = dtypeOf(checked.args->residual_in);
  const int64_t hidden = checked.hidden, fp32Acc = checked.params->fp32_acc;
  Selection selection(instance);
  *chosen = genericKernel(checked);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kFp32Acc)                                                                                             \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && fp32Acc == kFp32Acc) && aligned)                                           \
    *chosen = instanceOr<MOE_IS_BUILT(set), formatOf(Dtype::type), kHidden, kFp32Acc>(*chosen, checked.workspace.ranks == 2);
#include "kernels/moe_allreduce_fusion/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

void *dataOf(const moert_tensor *tensor) { return tensor ? moert__data(tensor) : nullptr; }

Experts expertsOf(const moert__allreduce_call &checked) {
  const moert_moe_allreduce_fusion_args *args = checked.args;
  const moert_tensor *number = args->moe_reduction_device_num_experts;
  Experts experts = {};
  experts.inputs = dataOf(args->moe_reduction_active_experts_token_input);
  experts.scales = dataOf(args->moe_reduction_scale_input);
  experts.shared = dataOf(args->moe_reduction_token_input);
  experts.tokens = checked.tokens;
  experts.number = {dataOf(number), number && number->dtype.code == MOERT_CODE_UINT, checked.experts};
  experts.scaleFormat = checked.scale_format;
  return experts;
}

Round roundOf(const moert__allreduce_call &checked, moert_context *context) {
  Round round = {};
  round.exchange = exchangeOf(checked.workspace, context, MOERT__OP_MOE_ALLREDUCE_FUSION);
  char *slab = round.exchange.slabs[checked.workspace.rank];
  const int64_t *offsets = round.exchange.offsets;
  round.turns = reinterpret_cast<Turns *>(slab + offsets[MOERT_WORKSPACE_REDUCTION_TURNS]);
  round.state = reinterpret_cast<moert__slab_state *>(slab + offsets[MOERT_METAINFO_STATE]);
  round.last = reinterpret_cast<uint32_t *>(slab + offsets[MOERT_METAINFO_FLAG_VAL]);
  round.hash = moert__allreduce_hash(&checked);
  return round;
}

Call makeCall(const moert__allreduce_call &checked, const Experts &experts, moert_context *context) {
  const moert_moe_allreduce_fusion_args *args = checked.args;
  const moert_workspace_info *info = &checked.workspace.note->info;
  Call call = {};
  call.round = roundOf(checked, context);
  call.residual = dataOf(args->residual_in);
  call.gamma = dataOf(args->rms_gamma);
  call.sumOut = dataOf(args->moe_allreduce_out);
  call.residualOut = dataOf(args->residual_out);
  call.normOut = dataOf(args->norm_out);
  call.hidden = static_cast<int32_t>(checked.hidden);
  call.rowBytes = static_cast<uint32_t>(moert_workspace_packet_row(info));
  call.partBytes = static_cast<uint32_t>(moert_workspace_packet_tokens(info) * moert_workspace_packet_row(info));
  call.packets = call.round.exchange.offsets[MOERT_WORKSPACE_REDUCTION_PACKETS];
  call.rows = call.round.exchange.offsets[MOERT_WORKSPACE_REDUCTION_ROWS];
  call.flags = call.round.exchange.offsets[MOERT_WORKSPACE_REDUCTION_FLAGS];
  call.slotBytes = moert_workspace_align(info->dispatch_bytes_per_token);
  call.slots = static_cast<int32_t>(moert_workspace_rows(info));
  call.sums = static_cast<int32_t>(moert_workspace_row_tokens(info) + info->ep_size);
  call.epsilon = static_cast<float>(checked.params->rms_eps);
  call.bias = static_cast<float>(checked.params->weight_bias);
  uint64_t addresses = addressOf(experts.inputs) | addressOf(experts.shared) | addressOf(call.residual) | addressOf(call.gamma) |
                       addressOf(call.sumOut) | addressOf(call.residualOut) | addressOf(call.normOut);
  call.aligned = widthOf(addresses) == 16;
  const moert_tensor *outputs[kOutputs] = {args->moe_allreduce_out, args->residual_out, args->norm_out};
  for (int i = 0; i < kOutputs; ++i) call.outputs[i] = outputOf(checked.workspace, outputs[i]);
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

// Clusters of up to kMostBlocks blocks, as few as a token keeps busy.
moert_status makeGrid(const moert_context *context, const moert__allreduce_call &checked, int64_t tokens, int blocksPerSm, Grid *grid) {
  const int64_t all = ceilDivide(checked.hidden, kGroup), groups = all < 32 ? all : 32, chunks = ceilDivide(checked.hidden, kChunk);
  const int64_t cluster = groups >= kMostBlocks ? kMostBlocks : groups >= 2 ? 2 : 1;
  const unsigned threads = static_cast<unsigned>(ceilDivide(groups, cluster) * 32);
  int sms = 0;
  cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, moert__context_device(context));
  if (error != cudaSuccess) return failDevice(error, "multiprocessors");
  int64_t clusters = sms * blocksPerSm / moert__comm_ranks_on_device(moert_context_comm(context)) / cluster;
  if (tokens < clusters) clusters = tokens;
  if (clusters < 1) clusters = 1;
  const size_t kept = chunks > 1 ? static_cast<size_t>(chunks) * threads * kPiece * (checked.format == MOERT__F32 ? 4 : 2) : 0;
  *grid = {dim3(static_cast<unsigned>(clusters * cluster)), dim3(threads), kept, checked.params->launch_with_pdl != 0};
  grid->cluster = static_cast<unsigned>(cluster);
  return MOERT_OK;
}

// Packets take no fence and one way over the link, but a third more bytes; and in one shot each rank receives the parts of all others. So the more
// ranks there are, the fewer bytes of a part make two shots faster. By the rates of the link: 2 us for another way and fences, 360 GB/s.
bool takesTwoShots(const moert__allreduce_call &checked) {
  const struct {
    int32_t ranks;   // up to
    int64_t kibytes; // of a part that packets take
  } table[] = {{2, 2560}, {4, 512}, {8, 256}, {MOERT_MAX_RANKS, 128}};
  int i = 0;
  if (checked.params->strategy != MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_AUTO)
    return checked.params->strategy == MOERT_MOE_ALLREDUCE_FUSION_STRATEGY_TWO_SHOT;
  while (checked.workspace.ranks > table[i].ranks) ++i;
  return checked.tokens * checked.row_bytes > table[i].kibytes * 1024;
}

// A call of more tokens than there is room for is several exchanges.
moert_status launchAll(moert_context *context, Call call, const Experts &experts, const moert__allreduce_call &checked, Kernel kernel) {
  const moert_workspace_info *info = &checked.workspace.note->info;
  const bool twoShot = takesTwoShots(checked);
  const int64_t most = twoShot ? moert_workspace_row_tokens(info) : moert_workspace_packet_tokens(info);
  moert_status stopped = MOERT_OK, status = moert__stop_point(context, "entry");
  const char *const phases[] = {"counts", "data", "flag"};
  for (int i = 0; i < 3 && !stopped && !status; ++i) stopped = moert__stop_point(context, phases[i]);
  call.round.stops = stopped != MOERT_OK;
  do {
    Grid grid = {};
    const int64_t left = checked.tokens - call.firstToken, tokens = left < most ? left : most;
    call.tokens = static_cast<int32_t>(tokens);
    if (!status) status = makeGrid(context, checked, tokens, kernel.blocksPerSm, &grid);
    if (!status) status = launch(context, twoShot ? kernel.byRows : kernel.byPackets, grid, call, experts);
    call.firstToken += tokens;
  } while (!status && !stopped && call.firstToken < checked.tokens);
  return status ? status : stopped;
}

} // namespace

moert_status moert__cuda_moe_allreduce_fusion(const moert_moe_allreduce_fusion_params *params, const moert_moe_allreduce_fusion_args *args,
                                              int32_t instance, moert_context *context) {
  moert__allreduce_call checked;
  moert_status status = moert__allreduce_check(params, args, context, &checked);
  if (status) return status;
  const Experts experts = expertsOf(checked);
  const Call call = makeCall(checked, experts, context);
  Kernel kernel = {};
  status = chooseKernel(instance, checked, call.aligned, &kernel);
  if (status) return status;
  return noteLaunch(context, launchAll(context, call, experts, checked, kernel));
}

//===- launch.cuh - launches all-reduces with residual and norm -----------------------------------------===//
#ifndef MOE_KERNELS_MOE_ALLREDUCE_FUSION_LAUNCH_CUH
#define MOE_KERNELS_MOE_ALLREDUCE_FUSION_LAUNCH_CUH

#include "kernels/moe_allreduce_fusion/kernels.cuh"

namespace allreduce {

//===--- kernels ----------------------------------------------------------------------------------===//

template <typename Source> struct Kernel {
  void (*byPackets)(Call, Source), (*byRows)(Call, Source);
  int blocksPerSm;
};

template <typename Kind, typename Source> Kernel<Source> kernelOf() {
  return {reduceTokens<ByPackets, Kind, Source>, reduceTokens<ByRows, Kind, Source>, Kind::kBlocksPerSm};
}

template <typename Source, moert__format kFormat> Kernel<Source> genericOf(const moert__reduction &checked) {
  return checked.fp32_acc ? kernelOf<Kind<kFormat, true, 0, false, true>, Source>() : kernelOf<Kind<kFormat, false, 0, false, true>, Source>();
}

template <typename Source> Kernel<Source> genericKernel(const moert__reduction &checked) {
  switch (checked.format) {
  case MOERT__BF16: return genericOf<Source, MOERT__BF16>(checked);
  case MOERT__F16: return genericOf<Source, MOERT__F16>(checked);
  default: return genericOf<Source, MOERT__F32>(checked);
  }
}

// Instances know hidden_size and fp32_acc, and take rows of whole vectors.
template <bool kIsBuilt, typename Source, moert__format kFormat, int kHidden, int kFp32Acc>
Kernel<Source> instanceOr(const Kernel<Source> &generic, const moert__reduction &checked) {
  const bool pair = checked.workspace.ranks == 2;
  if constexpr (kIsBuilt) {
    if (checked.quant_format)
      return pair ? kernelOf<Kind<kFormat, kFp32Acc != 0, kHidden, true, true>, Source>()
                  : kernelOf<Kind<kFormat, kFp32Acc != 0, kHidden, false, true>, Source>();
    return pair ? kernelOf<Kind<kFormat, kFp32Acc != 0, kHidden, true, false>, Source>()
                : kernelOf<Kind<kFormat, kFp32Acc != 0, kHidden, false, false>, Source>();
  }
  return generic;
}

//===--- the call ---------------------------------------------------------------------------------===//

inline void *dataOf(const moert_tensor *tensor) { return tensor ? moert__data(tensor) : nullptr; }

inline Round roundOf(const moert__reduction &checked, int op, uint32_t hash) {
  Round round = {};
  round.exchange = exchangeOf(checked.workspace, checked.context, op);
  char *slab = round.exchange.slabs[checked.workspace.rank];
  const int64_t *offsets = round.exchange.offsets;
  round.turns = reinterpret_cast<Turns *>(slab + offsets[MOERT_WORKSPACE_TURNS]);
  round.state = reinterpret_cast<moert__slab_state *>(slab + offsets[MOERT_METAINFO_STATE]);
  round.last = reinterpret_cast<uint32_t *>(slab + offsets[MOERT_METAINFO_FLAG_VAL]);
  round.hash = hash;
  return round;
}

// Rooms of the workspace.
inline void setRooms(Call *call, const moert__reduction &checked) {
  const moert_workspace_info *info = &checked.workspace.note->info;
  const int64_t *offsets = call->round.exchange.offsets;
  call->packets = offsets[MOERT_WORKSPACE_REDUCTION_PACKETS];
  call->rowBytes = static_cast<uint32_t>(moert_workspace_packet_row(info));
  call->partBytes = static_cast<uint32_t>(moert_workspace_packet_tokens(info) * moert_workspace_packet_row(info));
  call->rows = offsets[MOERT_WORKSPACE_REDUCTION_ROWS];
  call->flags = offsets[MOERT_WORKSPACE_REDUCTION_FLAGS];
  call->slotBytes = moert_workspace_align(info->dispatch_bytes_per_token);
  call->slots = static_cast<int32_t>(moert_workspace_rows(info));
  call->sums = static_cast<int32_t>(moert_workspace_row_tokens(info) + info->ep_size);
}

// `addresses`: the bitwise or of those of the op's own rows.
inline Call makeCall(const moert__reduction &checked, int op, uint32_t hash, uint64_t addresses) {
  const moert_tensor *outputs[kOutputs] = {checked.sum_out, checked.residual_out, checked.norm_out, checked.quant_out, checked.scale_out};
  Call call = {};
  call.round = roundOf(checked, op, hash);
  call.residual = dataOf(checked.residual);
  call.gamma = dataOf(checked.gamma);
  call.sumOut = dataOf(checked.sum_out);
  call.residualOut = dataOf(checked.residual_out);
  call.normOut = dataOf(checked.norm_out);
  call.hidden = static_cast<int32_t>(checked.hidden);
  call.epsilon = static_cast<float>(checked.rms_eps);
  call.bias = static_cast<float>(checked.weight_bias);
  call.factor = checked.factor;
  call.quantizes = checked.quant_format != 0;
  call.quantized = checked.quantized;
  call.alignedCodes = widthOf(addressOf(call.quantized.codes)) >= kPiece;
  addresses |= addressOf(call.residual) | addressOf(call.gamma) | addressOf(call.sumOut) | addressOf(call.residualOut) | addressOf(call.normOut);
  call.aligned = widthOf(addresses) == 16;
  for (int i = 0; i < kOutputs; ++i) call.outputs[i] = outputOf(checked.workspace, outputs[i]);
  setRooms(&call, checked);
  return call;
}

//===--- launches ---------------------------------------------------------------------------------===//

// Packets take no fence and one way over the link, but a third more bytes; and in one shot each rank receives the parts of all others. So the more
// ranks there are, the fewer bytes of a part make two shots faster. By the rates of the link: 2 us for another way and fences, 360 GB/s.
inline bool takesTwoShots(const moert__reduction &checked) {
  const struct {
    int32_t ranks;   // up to
    int64_t kibytes; // of a part that packets take
  } table[] = {{2, 2560}, {4, 512}, {8, 256}, {MOERT_MAX_RANKS, 128}};
  int i = 0;
  if (checked.strategy != MOERT__STRATEGY_AUTO) return checked.strategy == MOERT__STRATEGY_TWO_SHOT;
  while (checked.workspace.ranks > table[i].ranks) ++i;
  return checked.tokens * checked.row_bytes > table[i].kibytes * 1024;
}

// Clusters of up to kMostBlocks blocks, as few as a token keeps busy.
inline moert_status makeGrid(const moert__reduction &checked, int64_t tokens, int blocksPerSm, bool overlaps, Grid *grid) {
  const int64_t all = ceilDivide(checked.hidden, kGroup), groups = all < 32 ? all : 32, chunks = ceilDivide(checked.hidden, kChunk);
  const int64_t cluster = groups >= kMostBlocks ? kMostBlocks : groups >= 2 ? 2 : 1;
  const unsigned threads = static_cast<unsigned>(ceilDivide(groups, cluster) * 32);
  int sms = 0;
  cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, moert__context_device(checked.context));
  if (error != cudaSuccess) return failDevice(error, "multiprocessors");
  int64_t clusters = sms * blocksPerSm / moert__comm_ranks_on_device(moert_context_comm(checked.context)) / cluster;
  if (tokens < clusters) clusters = tokens;
  if (clusters < 1) clusters = 1;
  const size_t kept = chunks > 1 ? static_cast<size_t>(chunks) * threads * kPiece * (checked.format == MOERT__F32 ? 4 : 2) : 0;
  *grid = {dim3(static_cast<unsigned>(clusters * cluster)), dim3(threads), kept, overlaps, static_cast<unsigned>(cluster), true};
  return MOERT_OK;
}

// Passes the stop points. If a test stops the op behind "entry", *stopped is the status to be returned once the kernel is launched.
inline moert_status passStops(moert_context *context, moert_status *stopped) {
  static const char *const phases[] = {"counts", "data", "flag"};
  moert_status status = moert__stop_point(context, "entry");
  *stopped = MOERT_OK;
  for (int i = 0; i < 3 && !status && !*stopped; ++i) *stopped = moert__stop_point(context, phases[i]);
  return status;
}

// What a cluster keeps of a token must fit in the shared memory of its blocks.
inline moert_status checkHidden(const moert__reduction &checked) {
  const int64_t kMost = 24 * kChunk;
  if (checked.hidden <= kMost) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter 'hidden_size' is %lld, must be at most %lld on a GPU",
                     static_cast<long long>(checked.hidden), static_cast<long long>(kMost));
}

// A call of more tokens than there is room for is several exchanges.
template <typename Source>
moert_status launchAll(Call call, const Source &source, const moert__reduction &checked, const Kernel<Source> &kernel, bool overlaps) {
  const moert_workspace_info *info = &checked.workspace.note->info;
  const bool twoShots = takesTwoShots(checked);
  const int64_t most = twoShots ? moert_workspace_row_tokens(info) : moert_workspace_packet_tokens(info);
  moert_status stopped, status = checkHidden(checked);
  if (status) return status;
  status = passStops(checked.context, &stopped);
  call.round.stops = stopped != MOERT_OK;
  do {
    Grid grid = {};
    const int64_t left = checked.tokens - call.firstToken, tokens = left < most ? left : most;
    call.tokens = static_cast<int32_t>(tokens);
    if (!status) status = makeGrid(checked, tokens, kernel.blocksPerSm, overlaps, &grid);
    if (!status) status = launch(checked.context, twoShots ? kernel.byRows : kernel.byPackets, grid, call, source);
    call.firstToken += tokens;
  } while (!status && !stopped && call.firstToken < checked.tokens);
  return noteLaunch(checked.context, status ? status : stopped);
}

} // namespace allreduce

#endif

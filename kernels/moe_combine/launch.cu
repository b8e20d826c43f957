//===- launch.cu - moe.combine on devices ---------------------------------------------------------------===//

#include "kernels/moe_combine/few.cuh"

#include "kernels/common/nccl_launch.cuh"

namespace {

using namespace combine;

//===--- instances --------------------------------------------------------------------------------===//

using Kernel = void (*)(Call, RowsFit);

template <moert__format kFormat, typename Wire> Kernel generalOf(const moert__combine_call &checked) {
  if (checked.quantizes) return combineRows<Kind<kFormat, Wire, Layout::any, true, false, 0, 0>, RowsFit>;
  return combineRows<Kind<kFormat, Wire, Layout::any, false, false, 0, 0>, RowsFit>;
}

template <moert__format kFormat, int kTopK, int kHidden> Kernel plainOf(bool grouped) {
  using Rows = Numbers<kFormat>;
  return grouped ? combineRows<Kind<kFormat, Rows, Layout::grouped, false, true, kTopK, kHidden>, RowsFit>
                 : combineRows<Kind<kFormat, Rows, Layout::rankMajor, false, true, kTopK, kHidden>, RowsFit>;
}

template <moert__format kFormat> Kernel genericOf(const moert__combine_call &checked, bool isPlain) {
  if (isPlain) return plainOf<kFormat, 0, 0>(checked.grouped);
  return checked.params->use_low_precision ? generalOf<kFormat, LowPrecision>(checked) : generalOf<kFormat, Numbers<kFormat>>(checked);
}

Kernel genericKernel(const moert__combine_call &checked, bool isPlain) {
  switch (checked.payload_format) {
  case MOERT__BF16: return genericOf<MOERT__BF16>(checked, isPlain);
  case MOERT__F16: return genericOf<MOERT__F16>(checked, isPlain);
  default: return genericOf<MOERT__F32>(checked, isPlain);
  }
}

// Instances know hidden_size and top_k.
template <bool kIsBuilt, moert__format kFormat, int kTopK, int kHidden> Kernel instanceOr(Kernel generic, bool grouped) {
  if constexpr (kIsBuilt) return plainOf<kFormat, kTopK, kHidden>(grouped);
  return generic;
}

// `isPlain`: as of `Kind`. Instances are.
moert_status chooseKernel(int32_t instance, const moert__combine_call &checked, bool isPlain, Kernel *chosen) {
  const Dtype dtype = dtypeOf(checked.args->payload);
  const int64_t hidden = checked.params->hidden_size, topK = checked.params->top_k;
  Selection selection(instance);
  *chosen = genericKernel(checked, isPlain);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kHidden, kTopK)                                                                                                \
  if (selection.takes(accepts(Dtype::type, dtype) && hidden == kHidden && topK == kTopK) && isPlain)                                                 \
    *chosen = instanceOr<MOE_IS_BUILT(set), formatOf(Dtype::type), kTopK, kHidden>(*chosen, checked.grouped);
#include "kernels/moe_combine/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

// Of pieces of work of which a block has `count`, at most so many together.
Share shareOf(int warps, int most, int64_t count) {
  const int together = static_cast<int>(count < most ? count : most), each = warps / (together < 1 ? 1 : together);
  return {each, each ? warps / each : 0};
}

// Of a block's stages that are filled, some for a row of so many bytes, and of its tokens.
void shareOut(Call *call, int64_t wireBytes, int64_t tokensOfBlock) {
  const bool streams = call->isPlain && call->grouped;
  const int64_t pieces = ceilDivide(wireBytes, pitchOf(streams));
  const int kTold = 4;
  const bool tells = call->copies && (call->round.exchange.watch.ranks - 1) * tokensOfBlock * wireBytes < bulk::kMany * bulk::kStageBytes;
  call->moverTells = tells ? kTold : 0;
  call->fillers = call->copies ? 0 : fillersOf(streams);
  call->adders = kBlockWarps - 2 - call->fillers;
  call->fill = shareOf(call->fillers, kFilledTogether, call->round.exchange.watch.ranks * tokensOfBlock * pieces);
  call->add = shareOf(call->adders, kAddedTogether, tokensOfBlock);
}

Call makeCall(const moert__combine_call &checked, moert_context *context) {
  Call call = {};
  call.round = roundOf(checked.workspace, context, MOERT__OP_MOE_COMBINE, moert__combine_hash(&checked));
  call.payload = moert__data(checked.args->payload);
  call.out = moert__data(checked.args->out);
  call.tokens = checked.tokens;
  call.maxTokens = checked.max_tokens;
  call.flagLane = checked.workspace.note->info.max_num_tokens;
  call.hidden = checked.params->hidden_size;
  call.topK = static_cast<int32_t>(checked.params->top_k);
  call.grouped = checked.grouped;
  call.outFormat = checked.out_format;
  call.alignedArea = call.hidden % kPiece == 0;
  call.alignedPayload = call.alignedArea && widthOf(addressOf(call.payload)) == 16;
  call.alignedOut = call.alignedArea && widthOf(addressOf(call.out)) == 16;
  call.quantized = checked.quantized;
  call.global = static_cast<float>(checked.params->output_scalar_scale);
  call.output = outputOf(checked.workspace, checked.args->out);
  call.scales = outputOf(checked.workspace, checked.args->output_scales);
  call.copies =
      !checked.grouped && !checked.params->use_low_precision && widthOf(static_cast<uint64_t>(checked.row_bytes) | addressOf(call.payload)) == 16;
  call.isPlain = !checked.quantizes && !checked.params->use_low_precision && call.alignedPayload && call.alignedOut &&
                 checked.out_format == checked.payload_format;
  return call;
}

//===--- few tokens -------------------------------------------------------------------------------===//

// Rows of whole pieces that travel as they are. All ranks must come to the same, and so neither where rows lie nor what comes out makes a difference.
bool isFew(const moert__combine_call &checked) {
  return !checked.params->use_low_precision && checked.params->hidden_size % kPiece == 0 && isForFew(checked.workspace, checked.max_tokens);
}

// The rows that the dispatch placed have to be in the payload.
RowsFit rowsFit(const moert__combine_call &checked) { return {checked.args->payload->shape[0]}; }

template <moert__format kFormat, Layout kLayout, typename... Checks>
moert_status launchFewOf(moert_context *context, const Grid &grid, const FewCall &few, const moert__combine_call &checked, const Checks &...checks) {
  using Rows = Numbers<kFormat>;
  if (checked.quantizes) return launch(context, combineFew<Kind<kFormat, Rows, kLayout, true, false, 0, 0>, Checks...>, grid, few, checks...);
  if (few.call.isPlain) return launch(context, combineFew<Kind<kFormat, Rows, kLayout, false, true, 0, 0>, Checks...>, grid, few, checks...);
  return launch(context, combineFew<Kind<kFormat, Rows, kLayout, false, false, 0, 0>, Checks...>, grid, few, checks...);
}

template <moert__format kFormat>
moert_status launchFewOf(moert_context *context, const Grid &grid, const FewCall &few, const moert__combine_call &checked) {
  if (checked.grouped) return launchFewOf<kFormat, Layout::grouped>(context, grid, few, checked, rowsFit(checked));
  return launchFewOf<kFormat, Layout::rankMajor>(context, grid, few, checked, NothingToCheck());
}

moert_status launchFew(moert_context *context, const Call &call, const moert__combine_call &checked) {
  const int64_t *offsets = call.round.exchange.offsets;
  const char *slab = call.round.exchange.slabs[checked.workspace.rank];
  FewCall few = {fewRowsOf(checked.workspace), nullptr, nullptr, nullptr, call};
  unsigned blocks = 0;
  few.received = reinterpret_cast<const int32_t *>(slab + offsets[MOERT_METAINFO_COUNT_FLAGS]);
  few.targets = reinterpret_cast<const int32_t *>(slab + offsets[MOERT_METAINFO_TOPK_TARGET_RANKS]);
  few.indices = reinterpret_cast<const int32_t *>(slab + offsets[MOERT_METAINFO_TOPK_SEND_INDICES]);
  few.rows.units = static_cast<int32_t>(ceilDivide(call.hidden, 32 * kPiece) * (checked.payload_format == MOERT__F32 ? 2 : 1));
  moert_status stopped = MOERT_OK, status = shareRows(context, call.maxTokens, checked.params->max_sms, &few.rows, &blocks);
  if (status) return status;
  few.call.add = {kFewWorkers << few.rows.partShift, 1};
  status = passStops(context, &few.call.round, &stopped);
  if (status) return status;
  const Grid grid = gridOfFew(blocks, checked.params->enable_pdl);
  switch (checked.payload_format) {
  case MOERT__BF16: status = launchFewOf<MOERT__BF16>(context, grid, few, checked); break;
  case MOERT__F16: status = launchFewOf<MOERT__F16>(context, grid, few, checked); break;
  default: status = launchFewOf<MOERT__F32>(context, grid, few, checked);
  }
  return status ? status : stopped;
}

//===--- many tokens ------------------------------------------------------------------------------===//

// Of a row as it travels.
int64_t wireBytesOf(const moert__combine_call &checked) {
  return checked.params->use_low_precision ? checked.params->hidden_size : checked.row_bytes;
}

// What goes from rank to rank: as many rows as the dispatch has brought.
NcclExchange exchangeOverLink(moert_context *context, const Call &call, const moert__combine_call &checked) {
  NcclExchange exchange = makeExchange(context, checked.workspace, MOERT__OP_MOE_COMBINE, call.round.hash, call.maxTokens);
  exchange.counts = MOERT_METAINFO_RECV_COUNTERS;
  addRows(&exchange, call.round.exchange.offsets[MOERT_WORKSPACE_COMBINE_ARRIVALS], arrivalBytes(wireBytesOf(checked)));
  return exchange;
}

moert_status launchMany(moert_context *context, Call call, const moert__combine_call &checked, Kernel kernel) {
  const RowsFit fit = checked.grouped ? rowsFit(checked) : RowsFit{INT64_MAX};
  unsigned blocks = 0;
  moert_status stopped = MOERT_OK, status = exchangeBlocks(context, call.maxTokens, checked.params->max_sms, &blocks);
  if (status) return status;
  shareOut(&call, wireBytesOf(checked), ceilDivide(call.maxTokens, blocks));
  const Grid grid = {dim3(blocks), dim3(32 * kBlockWarps), sharedBytes(call.isPlain && call.grouped), checked.params->enable_pdl != 0};
  if (goesOverLink(context)) return launchOverLink(exchangeOverLink(context, call, checked), kernel, grid, call, fit);
  status = passStops(context, &call.round, &stopped);
  if (!status) status = launch(context, kernel, grid, call, fit);
  return status ? status : stopped;
}

} // namespace

moert_status moert__cuda_moe_combine(const moert_moe_combine_params *params, const moert_moe_combine_args *args, int32_t instance,
                                     moert_context *context) {
  moert__combine_call checked;
  moert_status status = moert__combine_check(params, args, context, &checked);
  if (status) return status;
  const Call call = makeCall(checked, context);
  Kernel kernel;
  status = chooseKernel(instance, checked, call.isPlain, &kernel);
  if (!status) status = isFew(checked) && !goesOverLink(context) ? launchFew(context, call, checked) : launchMany(context, call, checked, kernel);
  if (!status) moert__combine_keep(&checked);
  return noteLaunch(context, status);
}

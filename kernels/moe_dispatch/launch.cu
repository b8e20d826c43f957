//===- launch.cu - moe.dispatch on devices --------------------------------------------------------------===//

#include "kernels/moe_dispatch/few_groups.cuh"

#include "kernels/common/nccl_launch.cuh"
#include "lib/reference/moe_dispatch.h"
#include <cinttypes>

namespace {

using namespace dispatch;

//===--- instances --------------------------------------------------------------------------------===//

using Kernel = void (*)(Call);

template <int kTopK> Kernel kernelOf(Receives receives) {
  switch (receives) {
  case Receives::inPlace: return dispatchTokens<Receives::inPlace, kTopK>;
  case Receives::copies: return dispatchTokens<Receives::copies, kTopK>;
  default: return dispatchTokens<Receives::groups, kTopK>;
  }
}

// Instances know top_k.
template <bool kIsBuilt, int kTopK> Kernel instanceOr(Kernel generic, Receives receives) {
  if constexpr (kIsBuilt) return kernelOf<kTopK>(receives);
  return generic;
}

// For many tokens; one kernel serves all calls of few.
moert_status chooseKernel(int32_t instance, int64_t topK, Receives receives, Kernel *chosen) {
  Selection selection(instance);
  const Kernel generic = *chosen = kernelOf<0>(receives);
#define MOE_COLUMNS(...)
#define MOE_SPECIALIZATION(set, type, kTopK)                                                                                                         \
  if (selection.takes(topK == kTopK)) *chosen = instanceOr<MOE_IS_BUILT(set), kTopK>(generic, receives);
#include "kernels/moe_dispatch/specializations.def"
#undef MOE_COLUMNS
#undef MOE_SPECIALIZATION
  return selection.mistaken() ? failInstance(instance) : MOERT_OK;
}

//===--- the call ---------------------------------------------------------------------------------===//

template <typename T> T *dataOf(const moert_tensor *tensor) { return tensor ? static_cast<T *>(moert__data(tensor)) : nullptr; }

Payload payloadOf(const moert__dispatch_call &checked, int64_t i) {
  Payload payload = {};
  payload.from = dataOf<char>(&checked.args->payloads[i]);
  payload.recv = dataOf<char>(&checked.args->recv[i]);
  payload.rowBytes = checked.row_bytes[i];
  payload.area = checked.areas[i];
  const uint64_t rows = static_cast<uint64_t>(payload.rowBytes); // of the areas, which begin at multiples of 128
  payload.sendWidth = widthOf(rows | addressOf(payload.from));
  payload.receiveWidth = widthOf(rows | addressOf(payload.recv));
  payload.isInPlace = payload.recv == checked.workspace.peers[checked.workspace.rank] + payload.area;
  return payload;
}

Owners ownersOf(int64_t experts, int64_t ranks) {
  Owners owners = {};
  owners.each = static_cast<uint32_t>(experts / ranks);
  owners.extra = static_cast<uint32_t>(experts % ranks);
  owners.more = owners.extra * (owners.each + 1);
  owners.eachFactor = factorOf(owners.each);
  owners.moreFactor = factorOf(owners.each + 1);
  return owners;
}

// Rows of vectors are the copy engine's, unless they are so short, and so many, that it would be slower than the workers.
void shareOut(Call *call, int64_t rowsOfBlock) {
  const int64_t kShortRow = 512;
  for (int32_t i = 0; i < call->numPayloads; ++i) {
    Payload *payload = &call->payloads[i];
    payload->isBulk = payload->sendWidth == 16 && payload->receiveWidth == 16 && payload->rowBytes >= kShortRow;
    payload->team = splitTeam(teamFor(payload->rowBytes / payload->sendWidth, 1), rowsOfBlock);
    call->numBulk += payload->isBulk;
  }
}

Call makeCall(const moert__dispatch_call &checked, moert_context *context) {
  const moert_moe_dispatch_args *args = checked.args;
  Call call = {};
  call.round = roundOf(checked.workspace, context, MOERT__OP_MOE_DISPATCH, moert__dispatch_hash(&checked));
  call.owners = ownersOf(checked.params->n_experts, checked.workspace.ranks);
  call.ids = dataOf<int32_t>(args->topk_ids);
  call.alignedIds = widthOf(addressOf(call.ids)) == 16;
  call.weights = dataOf<float>(args->topk_weights);
  call.tokens = checked.tokens;
  call.maxTokens = checked.max_tokens;
  call.flagLane = checked.workspace.note->info.max_num_tokens;
  call.experts = checked.params->n_experts;
  call.capacity = args->recv[0].shape[0];
  call.topK = static_cast<int32_t>(checked.params->top_k);
  call.numPayloads = static_cast<int32_t>(args->num_payloads);
  call.recvCounts = dataOf<int32_t>(args->recv_counts);
  call.offsets = dataOf<int32_t>(args->offsets);
  call.stats = dataOf<int32_t>(args->eplb_local_stats);
  call.gatheredStats = dataOf<int32_t>(args->eplb_gathered_stats);
  call.numStats = checked.num_stats;
  call.statsStride = checked.stats_stride;
  for (int32_t i = 0; i < call.numPayloads; ++i) {
    call.payloads[i] = payloadOf(checked, i);
    call.outputs[i] = outputOf(checked.workspace, &args->recv[i]);
  }
  call.outputs[MOERT_WORKSPACE_MAX_PAYLOADS] = outputOf(checked.workspace, args->recv_counts);
  call.outputs[MOERT_WORKSPACE_MAX_PAYLOADS + 1] = outputOf(checked.workspace, args->offsets);
  call.outputs[MOERT_WORKSPACE_MAX_PAYLOADS + 2] = outputOf(checked.workspace, args->eplb_gathered_stats);
  return call;
}

//===--- the launch -------------------------------------------------------------------------------===//

Receives receivesOf(const Call &call, bool grouped) {
  if (grouped) return Receives::groups;
  for (int32_t i = 0; i < call.numPayloads; ++i)
    if (!call.payloads[i].isInPlace) return Receives::copies;
  return Receives::inPlace;
}

// The workspace has so many words for numbers of rows.
moert_status checkExperts(int64_t experts, Receives receives) {
  if (receives != Receives::groups || experts <= MOERT_WORKSPACE_MAX_GROUPED_EXPERTS) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter 'n_experts' is %" PRId64 ", must be at most %d on GPUs with layout expert_grouped", experts,
                     MOERT_WORKSPACE_MAX_GROUPED_EXPERTS);
}

// A block for each token or, if rows are to be taken elsewhere, for as many as a rank may send; where statistics need more, a thread for each of
// them.
int64_t workOf(const Call &call, Receives receives) {
  const int64_t rows = receives == Receives::inPlace ? call.tokens : call.maxTokens, stats = ceilDivide(call.numStats, kThreads);
  return rows > stats ? rows : stats;
}

// What goes from rank to rank.
NcclExchange exchangeOverLink(moert_context *context, const Call &call, const moert__dispatch_call &checked, Receives receives) {
  const int64_t *offsets = call.round.exchange.offsets, choices = 4 * call.topK;
  NcclExchange exchange = makeExchange(context, checked.workspace, MOERT__OP_MOE_DISPATCH, call.round.hash, call.maxTokens);
  exchange.experts = call.experts;
  exchange.counts = MOERT_METAINFO_SEND_COUNTERS;
  for (int32_t i = 0; i < call.numPayloads; ++i) addRows(&exchange, call.payloads[i].area, call.payloads[i].rowBytes);
  addLane(&exchange, NcclExtent::words, offsets[MOERT_METAINFO_EPLB_GATHERED_STATS], 4 * call.statsStride, 4 * call.numStats);
  if (receives == Receives::copies) addLane(&exchange, NcclExtent::words, offsets[MOERT_WORKSPACE_GROUP_COUNTS], 8, 8);
  if (receives != Receives::groups) return exchange;
  addLane(&exchange, NcclExtent::experts, offsets[MOERT_WORKSPACE_GROUP_COUNTS], 0, 8);
  addRows(&exchange, offsets[MOERT_METAINFO_RECV_TOPK_ROWS], choices);
  addRows(&exchange, offsets[MOERT_METAINFO_RECV_TOPK_WEIGHTS], choices);
  addRows(&exchange, offsets[MOERT_WORKSPACE_RECV_TOPK_INDICES], choices);
  return exchange;
}

//===--- few tokens -------------------------------------------------------------------------------===//

int64_t packetsOf(const moert__dispatch_call &checked) { return ceilDivide(checked.max_tokens * checked.params->top_k, 2); }

// All ranks must come to the same, and so it makes no difference where rows lie.
bool isFew(const moert__dispatch_call &checked) {
  const bool fits = !checked.grouped || packetsOf(checked) * checked.workspace.ranks <= kMostKeys / 2;
  return fits && checked.num_stats == 0 && isForFew(checked.workspace, checked.max_tokens);
}

FewCall makeFew(const Call &call, const moert__workspace &workspace) {
  FewCall few = {};
  few.rows = fewRowsOf(workspace);
  few.ids = call.ids;
  few.owners = call.owners;
  few.experts = static_cast<int32_t>(call.experts);
  few.tokens = static_cast<int32_t>(call.tokens);
  few.topK = call.topK;
  few.width = 16;
  few.call = call;
  for (int32_t i = 0; i < MOERT_WORKSPACE_MAX_PAYLOADS; ++i) {
    const Payload &payload = call.payloads[i];
    few.payloads[i] = {payload.from, payload.recv, static_cast<int32_t>(payload.rowBytes), i < call.numPayloads ? few.rows.units : INT32_MAX};
    few.rows.units += static_cast<int32_t>(ceilDivide(payload.rowBytes, MOERT_WORKSPACE_UNIT_DATA));
    if (payload.rowBytes == 0) continue;
    const int width = payload.sendWidth < payload.receiveWidth ? payload.sendWidth : payload.receiveWidth;
    if (width < few.width) few.width = width < 4 ? 1 : 4;
  }
  return few;
}

moert_status launchFew(moert_context *context, const Call &call, const moert__dispatch_call &checked) {
  FewCall few = makeFew(call, checked.workspace);
  unsigned blocks = 0;
  moert_status stopped = MOERT_OK, status = shareRows(context, call.maxTokens, checked.params->max_sms, &few.rows, &blocks);
  if (status) return status;
  status = passStops(context, &few.call.round, &stopped);
  if (status) return status;
  Grid grid = gridOfFew(blocks, checked.params->enable_pdl);
  if (checked.grouped) {
    const GroupsCall groups = {few, static_cast<int32_t>(packetsOf(checked)), factorOf(static_cast<uint32_t>(few.topK))};
    grid.shared = groupsBytes(groups);
    status = launch(context, dispatchFewGroups, grid, groups);
  } else {
    status = launch(context, dispatchFew, grid, few);
  }
  return status ? status : stopped;
}

//===--- many tokens ------------------------------------------------------------------------------===//

// To count all tokens before its own takes a block longer than to wait for other blocks, if they are many.
bool countsForOthers(const Call &call, unsigned blocks, Receives receives) {
  const int64_t kAlone = 4 * kThreads, experts = receives == Receives::groups ? call.experts : 0;
  return call.tokens > kAlone && blocks <= MOERT_WORKSPACE_MOST_BLOCKS && experts <= MOERT_WORKSPACE_COUNTED_EXPERTS;
}

moert_status launchMany(moert_context *context, Call call, const moert__dispatch_call &checked, Kernel kernel, Receives receives) {
  unsigned blocks = 0;
  moert_status stopped = MOERT_OK, status = exchangeBlocks(context, workOf(call, receives), checked.params->max_sms, &blocks);
  if (status) return status;
  shareOut(&call, ceilDivide(call.maxTokens, blocks));
  call.counts = countsForOthers(call, blocks, receives);
  const size_t memory = memoryBytes(receives, call.experts, call.round.exchange.watch.ranks);
  const Grid grid = {dim3(blocks), dim3(threadsOf(receives)), memory, checked.params->enable_pdl != 0};
  if (goesOverLink(context)) return launchOverLink(exchangeOverLink(context, call, checked, receives), kernel, grid, call);
  status = passStops(context, &call.round, &stopped);
  if (!status) status = launch(context, kernel, grid, call);
  return status ? status : stopped;
}

} // namespace

moert_status moert__cuda_moe_dispatch(const moert_moe_dispatch_params *params, const moert_moe_dispatch_args *args, int32_t instance,
                                      moert_context *context) {
  moert__dispatch_call checked;
  moert_status status = moert__dispatch_check(params, args, context, &checked);
  if (status) return status;
  const Call call = makeCall(checked, context);
  const Receives receives = receivesOf(call, checked.grouped);
  Kernel kernel = nullptr;
  status = checkExperts(params->n_experts, receives);
  if (!status) status = chooseKernel(instance, params->top_k, receives, &kernel);
  if (status) return status;
  status = isFew(checked) && !goesOverLink(context) ? launchFew(context, call, checked) : launchMany(context, call, checked, kernel, receives);
  if (!status) moert__dispatch_keep(&checked, 0);
  return noteLaunch(context, status);
}

//===- nccl_exchange.cu - exchanges over links ---------------------------------------------------------------===//

#include "kernels/common/nccl_exchange.h"
#include "kernels/common/device.cuh"
#include "kernels/common/launch.cuh"
#include "lib/reference/slab.h"

namespace {

//===--- kernels ----------------------------------------------------------------------------------===//

// The parameter of both kernels: one block, whose thread r is for rank r.
struct Call {
  moert__watch watch;
  moert__slab_state *state;
  const uint32_t *epoch;
  const int32_t *counts;
  int32_t *received; // of a dispatch, else NULL
  moert__link_headers *headers;
  moert__link_words *words;
  unsigned long long mask; // of the ranks that take part
  uint32_t hash;
  int what; // a header stands for: moert__awaited
};

__device__ bool isPeer(const Call &call, int rank) { return rank < call.watch.ranks && rank != call.watch.rank && (call.mask >> rank & 1) != 0; }

// The epoch is that of the exchange before as long as the receiving kernel has not ended this one.
__device__ unsigned long long announcementOf(const Call &call) { return static_cast<unsigned long long>(call.hash) << 32 | (*call.epoch + 1); }

// One more event in the life of the link: an exchange begins, or ends.
__device__ void countExchange(const Call &call) {
  volatile unsigned *exchanges = &call.words->exchanges;
  __threadfence_system();
  *exchanges = *exchanges + 1;
}

__global__ void __launch_bounds__(MOERT_MAX_RANKS) writeHeaders(const __grid_constant__ Call call) {
  const int rank = static_cast<int>(threadIdx.x), failed = call.state->failed != 0;
  if (isPeer(call, rank)) call.headers->sent[rank] = {announcementOf(call), failed ? 0 : call.counts[rank], failed};
  call.headers->received[rank] = {0, 0, 0};
  if (rank != 0) return;
  const unsigned long long epoch = static_cast<uint32_t>(announcementOf(call)), op = call.watch.op, what = call.what;
  volatile moert__link_words *words = call.words;
  words->timeout_ns = call.watch.timeout_ns;
  words->record = call.watch.fault;
  words->waiting = epoch | op << MOERT__WAITING_OP | what << MOERT__WAITING_WHAT;
  countExchange(call);
}

// What is wrong with a peer, MOERT__FAULT_NONE: nothing.
__device__ int faultOf(const Call &call, const moert__link_header &header) {
  if (header.announcement == 0) return MOERT__FAULT_TIMEOUT;
  if (header.announcement != announcementOf(call)) return MOERT__FAULT_MISMATCH;
  return header.failed ? MOERT__FAULT_PEER_FAILED : MOERT__FAULT_NONE;
}

// One thread. The first to find something wrong with the workspace says so.
__device__ void fail(const Call &call, int fault, int peer, int what, unsigned long long announced) {
  const unsigned long long expected = announcementOf(call);
  const uint32_t epoch = static_cast<uint32_t>(expected);
  const int rank = call.watch.rank;
  if (call.state->failed) return;
  call.state->failed = 1;
  if (fault == MOERT__FAULT_MISMATCH)
    report(call.watch.fault, call.watch.op, fault, peer, rank, what, epoch, announced >> 32, expected >> 32);
  else if (fault == MOERT__FAULT_PEER_FAILED)
    report(call.watch.fault, call.watch.op, fault, peer, rank, what, epoch);
  else
    report(call.watch.fault, call.watch.op, fault, rank, call.watch.timeout_ns / 1000000, peer, what, epoch);
  storeRelease(reinterpret_cast<uint32_t *>(call.watch.failed), 1);
}

// The first peer of which something is wrong, else -1.
__device__ int findFault(const Call &call, const int *faults) {
  int rank = 0;
  while (rank < call.watch.ranks && faults[rank] == MOERT__FAULT_NONE) ++rank;
  return rank < call.watch.ranks ? rank : -1;
}

__device__ int firstPeer(const Call &call) {
  int rank = 0;
  while (rank < call.watch.ranks && !isPeer(call, rank)) ++rank;
  return rank;
}

// What a peer says of itself goes before the link's own verdict, which is that of a header that has not come. If all have come, the link was given up
// while rows were on their way, and who was late is not known.
__device__ void judge(const Call &call, const int *faults) {
  const int given = *const_cast<volatile int *>(&call.words->fault), named = *const_cast<volatile int *>(&call.words->blamed);
  const int found = findFault(call, faults);
  const bool hasCome = found >= 0 && faults[found] != MOERT__FAULT_TIMEOUT;
  if (hasCome || (found >= 0 && given == MOERT__FAULT_NONE))
    fail(call, faults[found], found, call.what, call.headers->received[found].announcement);
  else if (given != MOERT__FAULT_NONE)
    fail(call, given, named >= 0 ? named : found >= 0 ? found : firstPeer(call), found >= 0 ? call.what : MOERT__AWAITED_DATA, 0);
}

__global__ void __launch_bounds__(MOERT_MAX_RANKS) readHeaders(const __grid_constant__ Call call) {
  __shared__ int faults[MOERT_MAX_RANKS];
  const int rank = static_cast<int>(threadIdx.x);
  const moert__link_header header = call.headers->received[rank];
  faults[rank] = isPeer(call, rank) ? faultOf(call, header) : MOERT__FAULT_NONE;
  if (call.received && isPeer(call, rank)) call.received[rank] = header.rows;
  __syncthreads();
  if (rank != 0) return;
  judge(call, faults);
  countExchange(call);
  storeRelease(&call.watch.fault->waiting, 0ull);
}

//===--- the call ---------------------------------------------------------------------------------===//

template <typename T> T *regionOf(const moert__workspace &workspace, int field) {
  return reinterpret_cast<T *>(workspace.peers[workspace.rank] + workspace.layout.offsets[field]);
}

Call makeCall(const NcclExchange &exchange, const moert__link *link) {
  const moert__workspace &workspace = *exchange.workspace;
  const bool isDispatch = exchange.counts == MOERT_METAINFO_SEND_COUNTERS;
  Call call = {};
  call.watch = moert__context_watch(exchange.context, exchange.op);
  call.state = regionOf<moert__slab_state>(workspace, MOERT_METAINFO_STATE);
  call.epoch = regionOf<const uint32_t>(workspace, MOERT_METAINFO_FLAG_VAL);
  call.counts = regionOf<const int32_t>(workspace, exchange.counts);
  call.received = isDispatch ? regionOf<int32_t>(workspace, MOERT_METAINFO_RECV_COUNTERS) : nullptr;
  call.headers = moert__link_headers_of(link);
  call.words = moert__link_words_of(link);
  call.mask = workspace.mask;
  call.hash = exchange.hash;
  call.what = isDispatch ? MOERT__AWAITED_COUNTS : MOERT__AWAITED_DATA;
  return call;
}

bool takesPart(const moert__workspace &workspace, int32_t rank) { return rank != workspace.rank && (workspace.mask >> rank & 1) != 0; }

bool isCapturing(const moert_context *context) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(streamOf(context), &status) != cudaSuccess) cudaGetLastError();
  return status != cudaStreamCaptureStatusNone;
}

//===--- lanes ------------------------------------------------------------------------------------===//

int64_t expertsOf(const NcclExchange &exchange, int32_t rank) {
  const int64_t ranks = exchange.workspace->ranks;
  return exchange.experts / ranks + (rank < exchange.experts % ranks ? 1 : 0);
}

struct Span {
  int64_t begin, bytes; // in a slab
};

// What `source` sends to `destination`.
Span spanOf(const NcclExchange &exchange, const NcclLane &lane, int32_t source, int32_t destination, int64_t rows) {
  const int64_t all = (expertsOf(exchange, destination) + 1) * lane.unit;
  switch (lane.extent) {
  case NcclExtent::rows: return {lane.begin + source * lane.stride, rows * lane.unit};
  case NcclExtent::words: return {lane.begin + source * lane.stride, lane.unit};
  default: return {lane.begin + source * all, all};
  }
}

//===--- outboxes ---------------------------------------------------------------------------------===//

// Counters lie at the beginning of a slab, in front of the flags.
moert_status provide(const NcclExchange &exchange, int32_t peer, bool capturing) {
  const moert__workspace &workspace = *exchange.workspace;
  const void *slab = workspace.peers[workspace.rank];
  const int64_t counters = workspace.layout.offsets[MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS];
  moert_status status = moert__outbox_provide(exchange.context, slab, peer, 0, counters, capturing);
  for (int32_t i = 0; i < exchange.numLanes && !status; ++i) {
    const Span span = spanOf(exchange, exchange.lanes[i], workspace.rank, peer, exchange.maxRows);
    status = moert__outbox_provide(exchange.context, slab, peer, span.begin, span.begin + span.bytes, capturing);
  }
  return status;
}

//===--- transfers --------------------------------------------------------------------------------===//

const int kMostTransfers = MOERT_MAX_RANKS * (MOERT_WORKSPACE_MAX_PAYLOADS + 9);

struct Transfers {
  int32_t count;
  moert__transfer all[kMostTransfers];

  void add(int32_t peer, const void *from, int64_t sent, void *to, int64_t received) {
    if (sent > 0 || received > 0) all[count++] = {peer, from, static_cast<size_t>(sent), to, static_cast<size_t>(received)};
  }
};

void addHeaders(const NcclExchange &exchange, const moert__link *link, Transfers *transfers) {
  moert__link_headers *headers = moert__link_headers_of(link);
  const int64_t bytes = sizeof(moert__link_header);
  for (int32_t rank = 0; rank < exchange.workspace->ranks; ++rank)
    if (takesPart(*exchange.workspace, rank)) transfers->add(rank, &headers->sent[rank], bytes, &headers->received[rank], bytes);
}

moert_status addLanes(const NcclExchange &exchange, int32_t peer, int64_t sent, int64_t received, Transfers *transfers) {
  const moert__workspace &workspace = *exchange.workspace;
  char *slab = workspace.peers[workspace.rank], *image = nullptr;
  moert_status status = moert__outbox(exchange.context, slab, peer, &image);
  for (int32_t i = 0; i < exchange.numLanes && !status; ++i) {
    const Span from = spanOf(exchange, exchange.lanes[i], workspace.rank, peer, sent),
               to = spanOf(exchange, exchange.lanes[i], peer, workspace.rank, received);
    transfers->add(peer, image + from.begin, from.bytes, slab + to.begin, to.bytes);
  }
  return status;
}

moert_status move(const NcclExchange &exchange, moert__link *link, const Transfers &transfers) {
  const long long timeout = moert__context_timeout_ms(exchange.context) * 1000000ll;
  return moert__link_move(link, transfers.all, transfers.count, timeout, streamOf(exchange.context));
}

// While the stream is captured: what may be sent.
moert_status moveMost(const NcclExchange &exchange, moert__link *link, Transfers *transfers) {
  moert_status status = MOERT_OK;
  addHeaders(exchange, link, transfers);
  for (int32_t rank = 0; rank < exchange.workspace->ranks && !status; ++rank)
    if (takesPart(*exchange.workspace, rank)) status = addLanes(exchange, rank, exchange.maxRows, exchange.maxRows, transfers);
  return status ? status : move(exchange, link, *transfers);
}

// Whether both ends know what to send: their headers agree, and none of them has failed.
bool agree(const NcclExchange &exchange, const moert__link_words &words, int32_t peer) {
  const moert__link_header &sent = words.sent[peer], &received = words.received[peer];
  const bool fit = sent.rows >= 0 && sent.rows <= exchange.maxRows && received.rows >= 0 && received.rows <= exchange.maxRows;
  return fit && sent.announcement == received.announcement && !sent.failed && !received.failed;
}

moert_status moveHeaders(const NcclExchange &exchange, moert__link *link, Transfers *transfers) {
  addHeaders(exchange, link, transfers);
  moert_status status = move(exchange, link, *transfers);
  transfers->count = 0;
  if (!status) status = moert__stop_point(exchange.context, "counts");
  return status ? status : moert__link_await(link, streamOf(exchange.context));
}

// Outside of captures: what is sent.
moert_status moveCounted(const NcclExchange &exchange, moert__link *link, Transfers *transfers) {
  const moert__link_words &words = *moert__link_words_of(link);
  moert_status status = moveHeaders(exchange, link, transfers);
  if (!status) status = moert__stop_point(exchange.context, "data");
  if (!status) status = moert__stop_point(exchange.context, "flag");
  if (status || words.fault != MOERT__FAULT_NONE) return status; // of a link that was given up the headers say nothing
  for (int32_t rank = 0; rank < exchange.workspace->ranks && !status; ++rank)
    if (takesPart(*exchange.workspace, rank) && agree(exchange, words, rank))
      status = addLanes(exchange, rank, words.sent[rank].rows, words.received[rank].rows, transfers);
  return status ? status : move(exchange, link, *transfers);
}

} // namespace

moert_status prepareOutboxes(const NcclExchange &exchange, char **slabs) {
  const moert__workspace &workspace = *exchange.workspace;
  const bool capturing = isCapturing(exchange.context);
  moert_status status = MOERT_OK;
  for (int32_t rank = 0; rank < workspace.ranks && !status; ++rank) {
    if (!takesPart(workspace, rank)) continue;
    status = provide(exchange, rank, capturing);
    if (!status) status = moert__outbox(exchange.context, workspace.peers[workspace.rank], rank, &slabs[rank]);
  }
  return status;
}

moert_status moveOverLink(const NcclExchange &exchange) {
  moert__link *link = moert__comm_link(moert_context_comm(exchange.context));
  const Call call = makeCall(exchange, link);
  const bool capturing = isCapturing(exchange.context);
  Transfers transfers;
  transfers.count = 0;
  moert_status status = capturing ? MOERT_OK : moert__link_enter(link, streamOf(exchange.context));
  if (!status) status = launch(exchange.context, writeHeaders, dim3(1), MOERT_MAX_RANKS, 0, call);
  if (!status) status = capturing ? moveMost(exchange, link, &transfers) : moveCounted(exchange, link, &transfers);
  if (!status) status = launch(exchange.context, readHeaders, dim3(1), MOERT_MAX_RANKS, 0, call);
  return status || capturing ? status : moert__link_leave(link, streamOf(exchange.context));
}

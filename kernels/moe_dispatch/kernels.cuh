//===- kernels.cuh - moe.dispatch on devices ----------------------------------------------------------===//
//
// lib/reference/moe_dispatch.c says what is written where; these kernels write the same bits.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_DISPATCH_KERNELS_CUH
#define MOE_KERNELS_MOE_DISPATCH_KERNELS_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/exchange.cuh"

namespace dispatch {

const int kRowThreads = 256;
const int kOutputs = MOERT_WORKSPACE_MAX_PAYLOADS + 3;

struct Payload {
  const char *from;
  char *recv;
  int64_t rowBytes, area; // `area`: offset in a slab
  int sendWidth, receiveWidth;
};

// The parameter of all kernels.
struct Call {
  Exchange exchange;
  const int32_t *ids;
  const float *weights; // NULL: all are 1
  int64_t tokens, maxTokens, experts, capacity;
  int32_t topK, numPayloads;
  bool grouped;
  int32_t *recvCounts, *offsets; // may be NULL
  const int32_t *stats;
  int32_t *gatheredStats;
  int64_t numStats, statsStride; // of each rank, 0: none; from row to row of EPLB_GATHERED_STATS
  Payload payloads[MOERT_WORKSPACE_MAX_PAYLOADS];
  Output outputs[kOutputs];
};

// Experts stand on ranks in contiguous blocks; the first ranks own one more.
__device__ inline int64_t firstExpert(const Call &call, int rank) {
  int64_t ranks = call.exchange.watch.ranks, extra = call.experts % ranks;
  return rank * (call.experts / ranks) + (rank < extra ? rank : extra);
}

// The sum of `value` over a block.
__device__ inline long long sumOverBlock(long long value) {
  __shared__ unsigned long long sum;
  __syncthreads();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&sum, static_cast<unsigned long long>(value));
  __syncthreads();
  return static_cast<long long>(sum);
}

//===--- sending ----------------------------------------------------------------------------------===//

// Block r finds the rows for rank r, in the order of tokens, and sends their number. An entry of targets and indices belongs to the block of its
// expert's rank; where there is none, to block 0.
template <int kTopK> __global__ void __launch_bounds__(kWideThreads) routeTokens(const __grid_constant__ Call call) {
  const Exchange &exchange = call.exchange;
  if (hasFailed(exchange)) return;
  const int topK = kTopK ? kTopK : call.topK, target = static_cast<int>(blockIdx.x);
  const int64_t begin = firstExpert(call, target), end = firstExpert(call, target + 1);
  int32_t *targets = regionOf<int32_t>(exchange, MOERT_METAINFO_TOPK_TARGET_RANKS),
          *indices = regionOf<int32_t>(exchange, MOERT_METAINFO_TOPK_SEND_INDICES);
  const bool alive = lives(exchange, target);
  int sent = 0;
  for (int64_t first = 0; first < call.tokens; first += kWideThreads) {
    int64_t token = first + threadIdx.x, choices = token < call.tokens ? topK : 0;
    int slot = -1, count;
    for (int k = 0; k < choices; ++k) {
      int64_t id = call.ids[token * topK + k];
      if (alive && slot < 0 && id >= begin && id < end) slot = k;
    }
    int index = sent + sumBefore(slot >= 0 ? 1 : 0, &count);
    for (int k = 0; k < choices; ++k) {
      int64_t id = call.ids[token * topK + k];
      bool isMine = id >= begin && id < end, isNobodys = id < 0 || id >= call.experts;
      if (!isMine && !(isNobodys && target == 0)) continue;
      targets[token * topK + k] = k == slot ? target : -1;
      indices[token * topK + k] = k == slot ? index : -1;
    }
    sent += count;
  }
  if (threadIdx.x != 0) return;
  regionOf<int32_t>(exchange, MOERT_METAINFO_SEND_COUNTERS)[target] = sent;
  if (!alive) return;
  regionOf<int32_t>(exchange, target, MOERT_METAINFO_RECV_COUNTERS)[exchange.watch.rank] = sent;
  raiseFlag(exchange, target, MOERT_METAINFO_COUNT_FLAGS);
}

// Where the rows of one token go.
struct Destinations {
  int count;
  int ranks[MOERT_WORKSPACE_MAX_TOP_K];
  int64_t rows[MOERT_WORKSPACE_MAX_TOP_K];
  char *bases[MOERT_WORKSPACE_MAX_TOP_K];
};

// By the first warp.
__device__ inline void findDestinations(const Call &call, int64_t token, int topK, Destinations *found) {
  const Exchange &exchange = call.exchange;
  int lane = static_cast<int>(threadIdx.x), target = -1;
  if (lane < topK) target = regionOf<int32_t>(exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[token * topK + lane];
  unsigned sent = __ballot_sync(~0u, target >= 0);
  if (lane == 0) found->count = __popc(sent);
  if (target < 0) return;
  int place = __popc(sent & ((1u << lane) - 1));
  found->ranks[place] = target;
  found->rows[place] = exchange.watch.rank * call.maxTokens + regionOf<int32_t>(exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[token * topK + lane];
}

// The token's ids and weights, for the receiver to sort by and to combine with. All ids that name no expert are -1: there are numbers left over,
// which the receiver uses for itself.
__device__ inline void sendChoices(const Call &call, int64_t token, int topK, const Destinations &to) {
  for (int i = static_cast<int>(threadIdx.x); i < to.count * topK; i += kRowThreads) {
    int k = i % topK, destination = i / topK;
    int64_t place = to.rows[destination] * topK + k;
    int32_t id = call.ids[token * topK + k];
    regionOf<int32_t>(call.exchange, to.ranks[destination], MOERT_METAINFO_RECV_TOPK_ROWS)[place] = id < 0 ? -1 : id;
    regionOf<float>(call.exchange, to.ranks[destination], MOERT_METAINFO_RECV_TOPK_WEIGHTS)[place] =
        call.weights ? call.weights[token * topK + k] : 1.0f;
  }
}

// With all blocks of a kernel.
__device__ inline void sendStats(const Call &call) {
  const Exchange &exchange = call.exchange;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, row = exchange.watch.rank * call.statsStride;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < call.numStats; i += step)
    for (int peer = 0; peer < exchange.watch.ranks; ++peer)
      if (lives(exchange, peer)) regionOf<int32_t>(exchange, peer, MOERT_METAINFO_EPLB_GATHERED_STATS)[row + i] = call.stats[i];
}

// A block sends a token: it reads each row once, and writes it to all ranks that get it.
template <int kTopK> __global__ void __launch_bounds__(kRowThreads) sendTokens(const __grid_constant__ Call call) {
  __shared__ Destinations to;
  if (hasFailed(call.exchange)) return;
  const int topK = kTopK ? kTopK : call.topK;
  for (int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    __syncthreads();
    if (threadIdx.x < 32) findDestinations(call, token, topK, &to);
    for (int i = 0; i < call.numPayloads; ++i) {
      const Payload &payload = call.payloads[i];
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < to.count) {
        int destination = static_cast<int>(threadIdx.x);
        to.bases[destination] = call.exchange.slabs[to.ranks[destination]] + payload.area + to.rows[destination] * payload.rowBytes;
      }
      __syncthreads();
      copyRow(to.bases, to.count, 0, payload.from + token * payload.rowBytes, payload.rowBytes, payload.sendWidth);
    }
    if (call.grouped) sendChoices(call, token, topK, to);
  }
  sendStats(call);
}

//===--- receiving --------------------------------------------------------------------------------===//

__device__ inline void poisonAll(const Call &call) {
  for (int i = 0; i < kOutputs; ++i) poison(call.outputs[i]);
}

// With all blocks of a kernel. The rows of ranks that do not live are 0.
__device__ inline void gatherStats(const Call &call) {
  const Exchange &exchange = call.exchange;
  const int32_t *rows = regionOf<const int32_t>(exchange, MOERT_METAINFO_EPLB_GATHERED_STATS);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < call.numStats; i += step)
    for (int source = 0; source < exchange.watch.ranks; ++source)
      call.gatheredStats[source * call.numStats + i] = lives(exchange, source) ? rows[source * call.statsStride + i] : 0;
}

//===--- receiving, rank_major --------------------------------------------------------------------===//

static __global__ void __launch_bounds__(kRowThreads) receiveRows(const __grid_constant__ Call call) {
  const Exchange &exchange = call.exchange;
  if (hasFailed(exchange)) {
    poisonAll(call);
    return;
  }
  const char *slab = exchange.slabs[exchange.watch.rank];
  for (int64_t row = blockIdx.x; row < exchange.watch.ranks * call.maxTokens; row += gridDim.x) {
    if (row % call.maxTokens >= receivedFrom(exchange, static_cast<int>(row / call.maxTokens))) continue;
    for (int i = 0; i < call.numPayloads; ++i) {
      const Payload &payload = call.payloads[i];
      const char *area = slab + payload.area;
      char *recv = payload.recv;
      if (recv != area) copyRow(&recv, 1, row * payload.rowBytes, area + row * payload.rowBytes, payload.rowBytes, payload.receiveWidth);
    }
  }
  int source = static_cast<int>(threadIdx.x);
  if (call.recvCounts && blockIdx.x == 0 && source < exchange.watch.ranks)
    call.recvCounts[source] = static_cast<int32_t>(receivedFrom(exchange, source));
  gatherStats(call);
}

//===--- receiving, expert_grouped ----------------------------------------------------------------===//

// RECV_TOPK_ROWS holds the ids that were sent: -1 or an expert. `placeChoices` writes the rows of those that are here as -2 - row, so that blocks
// that look at the same entry find either something that is not their expert. `gatherRows` leaves there what the combine needs: the row, or -1.
__device__ inline int32_t markOf(int32_t row) { return -2 - row; }
__device__ inline int32_t rowOf(int32_t entry) { return entry <= -2 ? -2 - entry : -1; }

// Block e counts what arrived for the experts before e, which is where its rows begin.
static __global__ void __launch_bounds__(kWideThreads) countChoices(const __grid_constant__ Call call) {
  const Exchange &exchange = call.exchange;
  if (hasFailed(exchange)) return;
  const int32_t *ids = regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_TOPK_ROWS);
  const int64_t first = firstExpert(call, exchange.watch.rank), local = gridDim.x;
  long long before = 0, all = 0;
  for (int source = 0; source < exchange.watch.ranks; ++source) {
    int64_t begin = source * call.maxTokens * call.topK, end = begin + receivedFrom(exchange, source) * call.topK;
    for (int64_t choice = begin + threadIdx.x; choice < end; choice += kWideThreads) {
      int64_t expert = ids[choice] - first;
      all += expert >= 0 && expert < local;
      before += expert >= 0 && expert < blockIdx.x;
    }
  }
  before = sumOverBlock(before);
  all = sumOverBlock(all);
  if (threadIdx.x != 0) return;
  int64_t most = call.capacity < INT32_MAX ? call.capacity : INT32_MAX;
  if (all <= most) call.offsets[blockIdx.x] = static_cast<int32_t>(before);
  if (blockIdx.x != 0) return;
  stateOf(exchange)->rows = all;
  if (all <= most) {
    call.offsets[local] = static_cast<int32_t>(all);
    return;
  }
  // The peers have all they wait for: they may finish this call while this rank reports that it has no room.
  report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_DISPATCH_CAPACITY, all, exchange.watch.rank, most);
  stateOf(exchange)->full = 1;
  tellPeers(exchange);
}

// Block e gives the choices of its expert their rows, in the order of source, token and slot.
static __global__ void __launch_bounds__(kWideThreads) placeChoices(const __grid_constant__ Call call) {
  const int kEach = 8; // choices of a thread, one behind the other
  const Exchange &exchange = call.exchange;
  if (hasFailed(exchange) || stateOf(exchange)->full) return;
  volatile int32_t *entries = regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_TOPK_ROWS); // other blocks write theirs
  const int64_t expert = firstExpert(call, exchange.watch.rank) + blockIdx.x;
  int32_t next = call.offsets[blockIdx.x];
  for (int source = 0; source < exchange.watch.ranks; ++source) {
    int64_t begin = source * call.maxTokens * call.topK, end = begin + receivedFrom(exchange, source) * call.topK;
    for (int64_t tile = begin; tile < end; tile += kWideThreads * kEach) {
      int64_t choice = tile + threadIdx.x * kEach;
      unsigned mine = 0;
      for (int i = 0; i < kEach; ++i)
        if (choice + i < end && entries[choice + i] == expert) mine |= 1u << i;
      int placed, row = next + sumBefore(__popc(mine), &placed);
      for (int i = 0; i < kEach; ++i)
        if (mine >> i & 1) entries[choice + i] = markOf(row++);
      next += placed;
    }
  }
}

// A block takes a row that was received to all its places in the layout.
static __global__ void __launch_bounds__(kRowThreads) gatherRows(const __grid_constant__ Call call) {
  __shared__ int32_t rows[MOERT_WORKSPACE_MAX_TOP_K];
  __shared__ char *bases[MOERT_WORKSPACE_MAX_TOP_K];
  __shared__ int count;
  const Exchange &exchange = call.exchange;
  if (hasFailed(exchange)) {
    poisonAll(call);
    return;
  }
  if (stateOf(exchange)->full) return;
  const char *slab = exchange.slabs[exchange.watch.rank];
  int32_t *entries = regionOf<int32_t>(exchange, MOERT_METAINFO_RECV_TOPK_ROWS);
  int thread = static_cast<int>(threadIdx.x);
  for (int64_t received = blockIdx.x; received < exchange.watch.ranks * call.maxTokens; received += gridDim.x) {
    if (received % call.maxTokens >= receivedFrom(exchange, static_cast<int>(received / call.maxTokens))) continue;
    __syncthreads();
    if (thread < 32) {
      int32_t *entry = entries + received * call.topK + thread, row = thread < call.topK ? rowOf(*entry) : -1;
      if (thread < call.topK) *entry = row;
      unsigned here = __ballot_sync(~0u, row >= 0);
      if (row >= 0) rows[__popc(here & ((1u << thread) - 1))] = row;
      if (thread == 0) count = __popc(here);
    }
    for (int i = 0; i < call.numPayloads; ++i) {
      const Payload &payload = call.payloads[i];
      __syncthreads();
      if (thread < count) bases[thread] = payload.recv + rows[thread] * payload.rowBytes;
      __syncthreads();
      copyRow(bases, count, 0, slab + payload.area + received * payload.rowBytes, payload.rowBytes, payload.receiveWidth);
    }
  }
  gatherStats(call);
}

} // namespace dispatch

#endif

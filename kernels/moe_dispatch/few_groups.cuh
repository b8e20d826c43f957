//===- few_groups.cuh - moe.dispatch of few tokens with the layout expert_grouped -------------------------===//
//
// As few.cuh, but a row goes to the places of its choices, which depend on what all ranks choose. Each tells all others, and itself, what its tokens
// choose of their experts, in packets (packets.cuh) of two choices and their weights. From these every block finds the places of the rows that it
// has: as many choices come before one as there are of experts before, and of the same expert in front of it.
//
// A row has the room of its token, so that it can be sent before anything is counted. The warps of a block wait for each other when the choices are
// known, and when places are found.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_DISPATCH_FEW_GROUPS_CUH
#define MOE_KERNELS_MOE_DISPATCH_FEW_GROUPS_CUH

#include "kernels/moe_dispatch/few.cuh"

namespace dispatch {

const int kPlacedRows = 4;         // whose places are found at a time
const int kMostKeys = 8192;        // of a call
const uint32_t kNoExpert = 0x7fff; // of keys, which have 15 bits
const int kNamedWords = kFewTokens / 32;

// The kernel's parameter.
struct GroupsCall {
  FewCall few;
  int32_t packets; // of a rank
  uint32_t topKFactor;
};

// What a block knows; behind it, of all choices of all ranks, one rank after the other, the keys: experts of this rank.
struct alignas(16) GroupsMemory {
  FewMemory routes;
  uint32_t has[MOERT_MAX_RANKS][kNamedWords]; // a source's tokens that have a row here
  int32_t places[kPlacedRows][kMaxTopK];      // of their choices, -1: not of this rank
  int32_t rows;                               // of all choices that are
};

__host__ __device__ constexpr int32_t keysOf(int32_t packets) { return 2 * packets; }
__device__ inline uint16_t *keysOf(GroupsMemory *memory) { return reinterpret_cast<uint16_t *>(memory + 1); }

// Whole vectors.
__host__ __device__ inline int32_t allKeys(int32_t packets, int ranks) { return (keysOf(packets) * ranks + 7) / 8 * 8; }

inline size_t groupsBytes(const GroupsCall &groups) {
  return sizeof(GroupsMemory) + static_cast<size_t>(allKeys(groups.packets, groups.few.rows.ranks)) * sizeof(uint16_t);
}

//===--- choices ----------------------------------------------------------------------------------===//

// Two neighbours, as a lane sends them.
struct TwoChoices {
  int32_t ids[2];
  float weights[2];

  __device__ TwoChoices(const GroupsCall &groups, int packet, bool exists) {
    const FewCall &few = groups.few;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int choice = 2 * packet + i;
      const bool isThere = exists && choice < few.tokens * few.topK;
      ids[i] = isThere ? few.ids[choice] : -1;
      weights[i] = isThere && few.call.weights ? few.call.weights[choice] : 1.0f;
    }
  }

  // To the ranks that take part.
  __device__ void send(const GroupsCall &groups, const Begun &begun, int packet) const {
    const FewCall &few = groups.few;
#pragma unroll 1
    for (int i = 0; i < few.rows.ranks; ++i) {
      const int peer = few.rows.rank + i < few.rows.ranks ? few.rows.rank + i : few.rows.rank + i - few.rows.ranks;
      if (!takesPart(begun, peer)) continue;
      char *area = areaOf(few.call.round, begun, few.rows, peer, few.rows.rank) + few.rows.choicesBegin;
      storePacket(area + packet * 16, keyFor(few.call, peer, ids[0]) | keyFor(few.call, peer, ids[1]) << 16, moert__bits(weights[0]),
                  moert__bits(weights[1]), begun.epoch);
    }
  }

private:
  static __device__ uint32_t keyFor(const Call &call, int rank, int32_t id) {
    const int32_t local = id - firstExpert(call, rank);
    return isExpert(call, id) && local >= 0 && local < localExperts(call, rank) ? static_cast<uint32_t>(local) : kNoExpert;
  }
};

// By a warp of each block: all but its first packets.
__device__ inline void sendOtherChoices(const GroupsCall &groups, const Begun &begun) {
#pragma unroll 1
  for (int first = 32 * static_cast<int>(blockIdx.x + gridDim.x); first < groups.packets; first += 32 * static_cast<int>(gridDim.x)) {
    const int packet = first + laneNumber();
    if (packet < groups.packets) TwoChoices(groups, packet, true).send(groups, begun, packet);
  }
}

__device__ inline const char *choicesFrom(const GroupsCall &groups, const Begun &begun, int source, int packet) {
  const FewCall &few = groups.few;
  return areaOf(few.call.round, begun, few.rows, few.rows.rank, source) + few.rows.choicesBegin + packet * 16;
}

// If a choice of `source` is of this rank, that its token has a row here. Returns how many rows it has.
__device__ inline int32_t noteRow(const GroupsCall &groups, GroupsMemory *memory, int source, int choice, uint32_t key) {
  if (key == kNoExpert) return 0;
  const uint32_t token = quotient(static_cast<uint32_t>(choice), groups.topKFactor);
  atomicOr(&memory->has[source][token / 32], 1u << token % 32);
  return 1;
}

// Some packets of a lane.
class AwaitedPackets {
public:
  static const int kCount = 4;

  __device__ AwaitedPackets(const GroupsCall &groups, const Begun &begun, int first) : groups(groups), begun(begun) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      numbers[i] = first + i * kFewThreads + laneNumber();
      const int source = numbers[i] / groups.packets;
      sources[i] = numbers[i] < groups.packets * groups.few.rows.ranks ? source : -1;
      pairs[i] = kNoExpert << 16 | kNoExpert;
    }
  }

  // As `look` of `awaitWarp`.
  __device__ int look() {
    uint4 told[kCount];
    int missing = kHere;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      told[i] = loadPacket(choicesFrom(groups, begun, waits(i) ? sources[i] : groups.few.rows.rank, waits(i) ? packet(i) : 0));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!waits(i)) continue;
      pairs[i] = told[i].x;
      if (told[i].w != begun.epoch) missing = sources[i];
    }
    return missing;
  }

  __device__ void keep(GroupsMemory *memory) const {
    int32_t rows = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (sources[i] < 0) continue;
      reinterpret_cast<uint32_t *>(keysOf(memory))[numbers[i]] = pairs[i];
      rows += noteRow(groups, memory, sources[i], 2 * packet(i), pairs[i] & 0xffff);
      rows += noteRow(groups, memory, sources[i], 2 * packet(i) + 1, pairs[i] >> 16);
    }
    rows = __reduce_add_sync(~0u, rows);
    if (laneNumber() == 0) atomicAdd(&memory->rows, rows);
  }

private:
  __device__ bool waits(int i) const { return sources[i] >= 0 && takesPart(begun, sources[i]); }
  __device__ int packet(int i) const { return numbers[i] - sources[i] * groups.packets; }

  const GroupsCall &groups;
  const Begun &begun;
  int numbers[kCount], sources[kCount]; // sources: -1: there is none
  uint32_t pairs[kCount];
};

// By all warps: what all ranks choose. To be read behind a barrier. False if the round has failed.
__device__ inline bool learnChoices(const GroupsCall &groups, const Begun &begun, GroupsMemory *memory) {
  const int keys = keysOf(groups.packets) * groups.few.rows.ranks, thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int first = 32 * warpNumber(); first < keys / 2; first += AwaitedPackets::kCount * kFewThreads) {
    AwaitedPackets awaited(groups, begun, first);
    if (!awaitWarp(groups.few.call.round, begun, [&] { return awaited.look(); })) return false;
    awaited.keep(memory);
  }
  if (keys + thread < allKeys(groups.packets, groups.few.rows.ranks)) keysOf(memory)[keys + thread] = kNoExpert;
  return true;
}

// How many keys of the two in `pair` are below the numbers in `bounds`: by the upper bits of differences, which do not borrow from each other.
__device__ inline uint32_t countBelow(uint32_t pair, uint32_t bounds) { return (bounds + 0x7fff7fff - pair) >> 15 & 0x10001; }

// How many keys come before one of `expert` that stands at `at`, of every `step`-th vector of keys from the `first` on.
__device__ inline int32_t countBefore(const GroupsCall &groups, GroupsMemory *memory, uint32_t expert, int at, int first, int step) {
  const uint4 *keys = reinterpret_cast<const uint4 *>(keysOf(memory));
  const uint32_t behind = expert * 0x10001, before = behind + 0x10001; // its own count in front of `at`
  uint32_t sums = 0;
  for (int i = first; i < allKeys(groups.packets, groups.few.rows.ranks) / 8; i += step) {
    const uint4 vector = keys[i];
    const uint32_t pairs[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int number = 8 * i + 2 * j;
      sums += countBelow(pairs[j], number + 1 < at ? before : number < at ? behind + 1 : behind);
    }
  }
  return static_cast<int32_t>((sums & 0xffff) + (sums >> 16));
}

// By a warp: of all keys.
__device__ inline int32_t keysBefore(const GroupsCall &groups, GroupsMemory *memory, uint32_t expert, int at) {
  return static_cast<int32_t>(__reduce_add_sync(~0u, countBefore(groups, memory, expert, at, laneNumber(), 32)));
}

// Which of the source's rows a token has.
__device__ inline int32_t rowNumber(const GroupsMemory &memory, int source, int token) {
  int32_t rows = 0;
#pragma unroll
  for (int i = 0; i < kNamedWords; ++i) {
    const int left = token - 32 * i;
    rows += __popc(memory.has[source][i] & (left >= 32 ? ~0u : left > 0 ? (1u << left) - 1 : 0u));
  }
  return rows;
}

//===--- places -----------------------------------------------------------------------------------===//

// A row that a block puts to its places, or a part of it: of this rank's tokens first, and then of those of peers.
struct PlacedRow {
  int source, token, part;
  bool exists;

  __device__ PlacedRow(const GroupsCall &groups, const GroupsMemory &memory, int number) {
    const FewRows &rows = groups.few.rows;
    const int own = itemsOf(rows, groups.few.call.maxTokens);
    if (number < own) {
      const Item item(rows, number);
      source = rows.rank;
      token = item.row;
      part = item.part;
    } else {
      const PeerItem item(rows, number - own);
      source = item.peer;
      token = item.index;
      part = item.part;
    }
    exists = number < own * rows.ranks && (memory.has[source][token / 32] >> token % 32 & 1) != 0;
  }
};

// The number of a block's `inOrder`-th row.
__device__ inline int rowOfBlock(int inOrder) { return static_cast<int>(blockIdx.x + static_cast<unsigned>(inOrder) * gridDim.x); }

// By all warps: the places of `count` of the block's rows from the `first`-th on, a warp for each choice.
__device__ inline void findPlaces(const GroupsCall &groups, GroupsMemory *memory, int first, int count) {
  const int topK = groups.few.topK;
#pragma unroll 1
  for (int i = warpNumber(); i < count * topK; i += kFewThreads / 32) {
    const int inBatch = static_cast<int>(quotient(static_cast<uint32_t>(i), groups.topKFactor)), slot = i - inBatch * topK;
    const PlacedRow row(groups, *memory, rowOfBlock(first + inBatch));
    if (!row.exists) continue;
    const int at = row.source * keysOf(groups.packets) + row.token * topK + slot;
    const uint32_t expert = keysOf(memory)[at];
    const int32_t before = keysBefore(groups, memory, expert, at);
    if (laneNumber() == 0) memory->places[inBatch][slot] = expert == kNoExpert ? -1 : before;
  }
}

// By a warp, for the combine: these places, and the weights.
__device__ inline void notePlaces(const GroupsCall &groups, const Begun &begun, const GroupsMemory &memory, int first, int count) {
  const FewCall &few = groups.few;
  const int slot = laneNumber();
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const PlacedRow row(groups, memory, rowOfBlock(first + i));
    if (!row.exists || row.part != 0 || slot >= few.topK) continue;
    const int choice = row.token * few.topK + slot;
    const int64_t kept = laneRow(few.call, row.source, rowNumber(memory, row.source, row.token)) * few.topK + slot;
    const uint4 told = loadPacket(choicesFrom(groups, begun, row.source, choice / 2));
    regionOf<int32_t>(few.call.round.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[kept] = memory.places[i][slot];
    regionOf<uint32_t>(few.call.round.exchange, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[kept] = choice % 2 ? told.z : told.y;
  }
}

__device__ inline void placeParts(const GroupsCall &groups, const GroupsMemory &memory, const Parts &parts, int inBatch) {
#pragma unroll 1
  for (int slot = 0; slot < groups.few.topK; ++slot) {
    const int32_t place = memory.places[inBatch][slot];
    if (place >= 0) parts.place(place);
  }
}

// By a worker. `isHeld`: the first units are in `parts`. False if the round has failed.
__device__ inline bool placeRow(const GroupsCall &groups, const Begun &begun, const GroupsMemory &memory, const PlacedRow &row, int inBatch,
                                bool isHeld, Parts *parts) {
  const FewCall &few = groups.few;
  Units<1> units(few.rows, row.part);
  if (isHeld) placeParts(groups, memory, *parts, inBatch);
  if (isHeld) units.pass(kHeld);
#pragma unroll 1
  for (; !units.isDone(); units.pass(kHeld)) {
    char *room = roomOf(few.call.round, begun, few.rows, few.rows.rank, row.source, row.token);
    parts->choose(units);
    if (row.source != few.rows.rank) {
      if (parts->receive(begun, row.source, room, [] { return false; }) != Coming::here) return false;
    } else {
      parts->load(static_cast<uint32_t>(row.token), true);
      parts->endLoad(static_cast<uint32_t>(row.token));
    }
    placeParts(groups, memory, *parts, inBatch);
  }
  return true;
}

//===--- what is not a row's ----------------------------------------------------------------------===//

// By a warp of block 0: as `endGroups`.
__device__ inline void endFewGroups(const GroupsCall &groups, const GroupsMemory &memory) {
  const Exchange &exchange = groups.few.call.round.exchange;
  const int64_t rows = memory.rows, most = groups.few.call.capacity;
  if (laneNumber() != 0) return;
  stateOf(exchange)->rows = rows;
  if (rows <= most) return;
  report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_DISPATCH_CAPACITY, rows, exchange.watch.rank, most);
  stateOf(exchange)->full = 1;
  tellPeers(exchange);
}

// By a warp of each block, which has a share of the experts: where their rows begin. Of few choices a lane finds it by itself.
__device__ inline void tellOffsets(const GroupsCall &groups, GroupsMemory *memory) {
  const int kAlone = 32; // vectors of keys
  const int local = static_cast<int>(localExperts(groups.few.call, groups.few.rows.rank)), lane = laneNumber();
  const bool alone = allKeys(groups.packets, groups.few.rows.ranks) <= 8 * kAlone;
  int32_t *offsets = groups.few.call.offsets;
#pragma unroll 1
  for (int i = alone ? lane : 0; rowOfBlock(i) <= local; i += alone ? 32 : 1) {
    const int expert = rowOfBlock(i);
    const uint32_t key = expert == local ? kNoExpert : static_cast<uint32_t>(expert); // behind the last expert's: all
    if (alone)
      offsets[expert] = countBefore(groups, memory, key, 0, 0, 1);
    else if (const int32_t before = keysBefore(groups, memory, key, 0); lane == 0)
      offsets[expert] = before;
  }
}

// By a warp of block 0: how many rows come from each source, for the caller and the combine.
__device__ inline void tellReceived(const FewCall &few, const GroupsMemory &memory) {
  for (int peer = laneNumber(); peer < few.rows.ranks; peer += 32) noteReceived(few.call, peer, rowNumber(memory, peer, kFewTokens));
}

// And how many go there.
__device__ inline void tellSent(const FewCall &few, const FewMemory &routes) {
  for (int peer = laneNumber(); peer < few.rows.ranks; peer += 32)
    regionOf<int32_t>(few.call.round.exchange, MOERT_METAINFO_SEND_COUNTERS)[peer] = rowsBefore(routes, peer, kFewTokens);
}

// By a block's last warp, while it waits: what it knows of its own rank. False if the round has failed.
__device__ inline bool noteOwn(const FewCall &few, const Begun &begun, const FewMemory &routes) {
  noteAllTargets(few, begun, routes);
  if (blockIdx.x != 0) return true;
  tellSent(few, routes);
  return awaitBegun(few.call.round, begun, [](int) { return true; });
}

//===--- all rows ----------------------------------------------------------------------------------===//

// By all warps, when it is known what all ranks choose. `parts`: of a worker; it has the first units of the block's first token. False if the round
// has failed.
__device__ inline bool placeRows(const GroupsCall &groups, const Begun &begun, GroupsMemory *memory, Parts *parts) {
  const int items = itemsOf(groups.few.rows, groups.few.call.maxTokens) * groups.few.rows.ranks;
  bool fails = false;
#pragma unroll 1
  for (int first = 0;; first += kPlacedRows) {
    int count = 0;
    while (count < kPlacedRows && rowOfBlock(first + count) < items) ++count;
    findPlaces(groups, memory, first, count);
    if (__syncthreads_or(fails)) return false;
    if (!isFewWorker() && first == 0 && blockIdx.x == 0) {
      endFewGroups(groups, *memory);
      tellReceived(groups.few, *memory);
    }
    if (memory->rows > groups.few.call.capacity) return true;
    if (!isFewWorker()) notePlaces(groups, begun, *memory, first, count);
    if (!isFewWorker() && first == 0) tellOffsets(groups, memory);
#pragma unroll 1
    for (int i = 0; isFewWorker() && !fails && i < count; ++i) {
      const PlacedRow row(groups, *memory, rowOfBlock(first + i));
      const bool isHeld = first + i == 0 && row.source == groups.few.rows.rank;
      if (row.exists) fails = !placeRow(groups, begun, *memory, row, i, isHeld, parts);
    }
    if (rowOfBlock(first + kPlacedRows) >= items) return !fails;
    __syncthreads(); // the places have been read
  }
}

//===--- the kernel -------------------------------------------------------------------------------===//

__device__ inline void sendToPeers(const FewCall &few, const Begun &begun, const FewMemory &routes, const Parts &parts, int token) {
#pragma unroll 1
  for (unsigned long long left = routes.named[token] & ~(1ull << few.rows.rank); left; left &= left - 1)
    parts.send(begun, __ffsll(static_cast<long long>(left)) - 1, token);
}

static __global__ void __launch_bounds__(kFewThreads, kBlocksPerSm) dispatchFewGroups(const __grid_constant__ GroupsCall groups) {
  extern __shared__ __align__(16) char shared[];
  GroupsMemory *memory = reinterpret_cast<GroupsMemory *>(shared);
  const FewCall &few = groups.few;
  const Call &call = few.call;
  const Item item(few.rows, static_cast<int>(blockIdx.x));
  const Units<1> units(few.rows, item.part);
  const bool sends = isFewWorker() && item.row < few.tokens && !units.isDone();
  const int packet = 32 * static_cast<int>(blockIdx.x) + laneNumber();
  Parts parts(few, units);
  awaitStream();
  const FirstChoices first(few);
  const TwoChoices choices(groups, packet, !isFewWorker() && packet < groups.packets);
  parts.load(static_cast<uint32_t>(item.row), sends);
  if (threadIdx.x == 0) memory->rows = 0;
  for (int i = static_cast<int>(threadIdx.x); i < few.rows.ranks * kNamedWords; i += kFewThreads) memory->has[i / kNamedWords][i % kNamedWords] = 0;
  Begun begun = readFew(few.rows);
  routeTokens(few, begun, first, &memory->routes);
  if (sends) parts.endLoad(static_cast<uint32_t>(item.row));
  shareBegin(call.round, NothingToCheck(), &begun);
  if (call.round.stop != kGoOn) return;
  bool fails = begun.fails;
  if (!isFewWorker()) {
    if (!fails && packet < groups.packets) choices.send(groups, begun, packet);
    if (!fails) sendOtherChoices(groups, begun);
    if (laneNumber() == 0) countBegun(few.rows, begun);
    __syncwarp();
    fails = fails || !noteOwn(few, begun, memory->routes);
  } else if (!fails) {
    if (sends) sendToPeers(few, begun, memory->routes, parts, item.row);
    if (forOtherParts(few, &parts, [&](int token) { sendToPeers(few, begun, memory->routes, parts, token); })) {
      parts.choose(units);
      parts.load(static_cast<uint32_t>(item.row), sends);
      if (sends) parts.endLoad(static_cast<uint32_t>(item.row));
    }
  }
  fails = __syncthreads_or(fails || !learnChoices(groups, begun, memory));
  if (!fails) fails = !placeRows(groups, begun, memory, &parts);
  if (!leaveTurn(few.rows.turns, begun.turn, fails)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace dispatch

#endif

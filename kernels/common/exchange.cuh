//===- exchange.cuh - the protocol of workspaces on devices ---------------------------------------------===//
//
// What lib/reference/workspace.h says of the host backend holds here too, with other words. An exchange is one kernel, whose blocks push to the slabs
// of the peers without waiting, and then wait for what the peers push here: fused.cuh for rows, few.cuh for rows of few tokens, and
// kernels/moe_allreduce_fusion/round.cuh for packets.
//
// Who waits in vain reports it and sets the word `failed` in the slab's STATE. All later kernels look at that word first: they send and read nothing,
// and fill their outputs with ones. It stays set until the workspace is recovered, and so replays of captured calls fail at once too.
//
// Why a peer that has seen a flag sees all that was written before it, in the terms of the memory model of PTX. Let W be a plain store to a peer's
// slab, before the store of a flag in program order or by a barrier of its block, and R a load of the same bytes behind the load by which the peer
// has seen the flag:
//
//   The flag's store has release semantics, or a fence in front of it, the load acquire semantics, both at the scope of the system, which has both
//   threads: they are morally strong, and the first synchronizes with the second.
//
// Base causality order is made of these relations and is transitive, whichever threads, devices and scopes its links have; so W is before R in
// causality order, and R sees W or something later, for each process has one address for a place and both sides use the generic proxy. In return no
// kernel may read what peers write while it runs, but behind acquire loads, and none may use the read-only path for it.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_EXCHANGE_CUH
#define MOE_KERNELS_EXCHANGE_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/formats.cuh"
#include "kernels/common/launch.cuh"
#include "lib/reference/slab.h"
#include "lib/reference/workspace.h"
#include <type_traits>

// What kernels know of a workspace and the ranks that share it; a part of their parameter.
struct Exchange {
  moert__watch watch;
  unsigned long long mask; // of the ranks that take part, if they live
  int64_t offsets[MOERT_WORKSPACE_FIELDS];
  char *slabs[MOERT_MAX_RANKS]; // of each rank, as this rank addresses it
};

// An output that is filled with ones if the exchange fails; `bytes` is 0 if there is none, or if it lies in the workspace.
struct Output {
  char *data;
  int64_t bytes;
};

//===--- the slab ---------------------------------------------------------------------------------===//

template <typename T> __device__ T *regionOf(const Exchange &exchange, int rank, int field) {
  return reinterpret_cast<T *>(exchange.slabs[rank] + exchange.offsets[field]);
}

template <typename T> __device__ T *regionOf(const Exchange &exchange, int field) { return regionOf<T>(exchange, exchange.watch.rank, field); }

__device__ inline moert__slab_state *stateOf(const Exchange &exchange) { return regionOf<moert__slab_state>(exchange, MOERT_METAINFO_STATE); }

__device__ inline bool hasFailed(const Exchange &exchange) { return stateOf(exchange)->failed != 0; }

__device__ inline bool lives(const Exchange &exchange, int rank) {
  return rank < exchange.watch.ranks && ((stateOf(exchange)->mask & exchange.mask) >> rank & 1) != 0;
}

// How many rows of the last dispatch came from `source`. A rank that is out may still write its count.
__device__ inline int64_t receivedFrom(const Exchange &exchange, int source) {
  return lives(exchange, source) ? regionOf<const int32_t>(exchange, MOERT_METAINFO_RECV_COUNTERS)[source] : 0;
}

//===--- failure ----------------------------------------------------------------------------------===//

// Tell the peers, so that they do not wait for this rank.
__device__ inline void tellPeers(const Exchange &exchange) { storeRelease(reinterpret_cast<uint32_t *>(exchange.watch.failed), 1); }

// After a report, by the thread that made it.
__device__ inline void breakOff(const Exchange &exchange) {
  stateOf(exchange)->failed = 1;
  tellPeers(exchange);
}

//===--- beginning --------------------------------------------------------------------------------===//

// What can only be checked on the device before an exchange begins: called by one thread, it reports what is wrong and returns false.
struct NothingToCheck {
  __device__ bool operator()(const Exchange &) const { return true; }
};

// The announcement of rank `from` in the slab of rank `at`: two per rank, in turns, for a peer may be an epoch ahead, but not two.
__device__ inline unsigned long long *announcementAt(const Exchange &exchange, int at, int from, uint32_t epoch) {
  return regionOf<unsigned long long>(exchange, at, MOERT_METAINFO_ANNOUNCEMENTS) + (epoch & 1) * exchange.watch.ranks + from;
}

// Epochs wrap past 0, which flags have that were never set, and past the last number, so that odd ones and even ones take turns.
__device__ inline uint32_t epochAfter(uint32_t epoch) { return epoch >= UINT32_MAX - 1 ? 1 : epoch + 1; }

//===--- outputs ----------------------------------------------------------------------------------===//

// Fills an output with ones, with `step` threads of which this is number `first`.
__device__ inline void poison(const Output &output, int64_t first, int64_t step) {
  int64_t skew = -reinterpret_cast<intptr_t>(output.data) & 15, head = skew < output.bytes ? skew : output.bytes;
  int64_t vectors = (output.bytes - head) / 16, tail = head + 16 * vectors;
  const uint4 ones = {~0u, ~0u, ~0u, ~0u};
  for (int64_t i = first; i < vectors; i += step) reinterpret_cast<uint4 *>(output.data + head)[i] = ones;
  for (int64_t i = first; i < head; i += step) output.data[i] = static_cast<char>(0xff);
  for (int64_t i = tail + first; i < output.bytes; i += step) output.data[i] = static_cast<char>(0xff);
}

// With all threads of a block.
__device__ inline void poisonByBlock(const Output &output) { poison(output, threadIdx.x, blockDim.x); }

//===--- elements ---------------------------------------------------------------------------------===//

// Floating-point rows are worked on in pieces of 8 elements: 16 bytes of a 16-bit type.
const int kPiece = 8;

// Between a piece and the vectors that it is in memory.
template <moert__format kFormat, int kWords> __device__ void unpackPiece(const uint4 (&vectors)[kWords], float (&piece)[kPiece]) {
  const uint32_t *words = reinterpret_cast<const uint32_t *>(vectors);
  if constexpr (kFormat == MOERT__F32) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = moert__float(words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i) pairFrom16Bits<kFormat>(words[i], &piece[2 * i], &piece[2 * i + 1]);
  }
}

template <moert__format kFormat, int kWords> __device__ void packPiece(const float (&piece)[kPiece], uint4 (&vectors)[kWords]) {
  uint32_t *words = reinterpret_cast<uint32_t *>(vectors);
  if constexpr (kFormat == MOERT__F32) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) words[i] = moert__bits(piece[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i) words[i] = pairTo16Bits<kFormat>(piece[2 * i], piece[2 * i + 1]);
  }
}

// A piece as it is in memory. `aligned`: all pieces are whole and begin at multiples of 16 bytes. Otherwise `count` elements are loaded, and the rest
// is 0.
template <moert__format kFormat, int kWords>
__device__ void loadVectors(const void *elements, int64_t index, int count, bool aligned, uint4 (&vectors)[kWords]) {
  const int kSize = kFormat == MOERT__F32 ? 4 : 2;
  if (aligned) {
    const uint4 *from = reinterpret_cast<const uint4 *>(static_cast<const char *>(elements) + index * kSize);
#pragma unroll
    for (int i = 0; i < kWords; ++i) vectors[i] = from[i];
  } else {
    using Bits = std::conditional_t<kSize == 4, uint32_t, uint16_t>;
    const Bits *from = static_cast<const Bits *>(elements) + index;
    uint32_t *words = reinterpret_cast<uint32_t *>(vectors);
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) words[i] = 0;
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (i < count) words[i * kSize / 4] |= static_cast<uint32_t>(from[i]) << i * kSize % 4 * 8;
  }
}

template <moert__format kFormat> __device__ void loadPiece(const void *elements, int64_t index, int count, bool aligned, float (&piece)[kPiece]) {
  uint4 vectors[kPiece * (kFormat == MOERT__F32 ? 4 : 2) / 16];
  loadVectors<kFormat>(elements, index, count, aligned, vectors);
  unpackPiece<kFormat>(vectors, piece);
}

template <moert__format kFormat> __device__ void storePiece(void *elements, int64_t index, int count, bool aligned, const float (&piece)[kPiece]) {
  const int kSize = kFormat == MOERT__F32 ? 4 : 2;
  uint4 words[kPiece * kSize / 16];
  if (aligned) {
    packPiece<kFormat>(piece, words);
    uint4 *to = reinterpret_cast<uint4 *>(static_cast<char *>(elements) + index * kSize);
#pragma unroll
    for (int i = 0; i < kPiece * kSize / 16; ++i) to[i] = words[i];
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (i < count) moert__store(kFormat, elements, index + i, piece[i]);
  }
}

__device__ inline void storePiece(moert__format format, void *elements, int64_t index, int count, bool aligned, const float (&piece)[kPiece]) {
  switch (format) {
  case MOERT__BF16: storePiece<MOERT__BF16>(elements, index, count, aligned, piece); break;
  case MOERT__F16: storePiece<MOERT__F16>(elements, index, count, aligned, piece); break;
  default: storePiece<MOERT__F32>(elements, index, count, aligned, piece);
  }
}

__device__ inline int pieceSize(int64_t columns, int64_t begin) { return static_cast<int>(columns - begin < kPiece ? columns - begin : kPiece); }

//===--- launches ---------------------------------------------------------------------------------===//

inline Exchange exchangeOf(const moert__workspace &workspace, moert_context *context, int op) {
  Exchange exchange = {};
  exchange.watch = moert__context_watch(context, op);
  exchange.mask = workspace.mask;
  for (int field = 0; field < MOERT_WORKSPACE_FIELDS; ++field) exchange.offsets[field] = workspace.layout.offsets[field];
  for (int rank = 0; rank < workspace.ranks; ++rank) exchange.slabs[rank] = workspace.peers[rank];
  return exchange;
}

// Of a tensor that may be NULL.
inline Output outputOf(const moert__workspace &workspace, const moert_tensor *tensor) {
  if (!tensor || moert__workspace_overlaps(&workspace, tensor, 0, workspace.layout.bytes)) return {nullptr, 0};
  return {static_cast<char *>(moert__data(tensor)), moert__elements(tensor) * moert__dtype_bytes(tensor->dtype)};
}

// The widest access that an address or a number of bytes allows; of several, that of their bitwise or.
inline int widthOf(uint64_t bits) {
  int width = 1;
  while (width < 16 && bits % (2 * static_cast<uint64_t>(width)) == 0) width *= 2;
  return width;
}

inline uint64_t addressOf(const void *data) { return reinterpret_cast<uintptr_t>(data); }

// An exchange that could not be launched as a whole is an error that its peers can feel.
inline moert_status noteLaunch(moert_context *context, moert_status status) {
  if (status) moert__comm_note(moert_context_comm(context), status);
  return status;
}

#endif

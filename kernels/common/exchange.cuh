//===- exchange.cuh - the protocol of workspaces on devices ---------------------------------------------===//
//
// What lib/reference/workspace.h says of the host backend holds here word for word. An exchange is a row of kernels on one stream:
//
//   enterExchange  one block: begins the epoch, and announces it to the living ranks
//   ...            kernels that write to peers, with as many blocks as they like; they wait for nobody
//   meetPeers      one block: raises this rank's flags, and waits for those of the living ranks
//   ...            kernels that read what has arrived
//
// Only `meetPeers` waits, in one block whose thread r looks at rank r, so that ranks on one device never keep each other from running.
//
// When a peer does not come, `meetPeers` reports it and sets the word `failed` in the slab's STATE. All later kernels look at that word first: they
// send and read nothing, and the last one of an op fills the outputs with ones. It stays set until the workspace is recovered, and so replays of
// captured calls fail at once too.
//
// Why a peer that has seen a flag sees all that was written before it, in the terms of the memory model of PTX. Let W be a plain store to a peer's
// slab, by any thread of a kernel before this rank's `meetPeers`, and R a load of the same bytes by any thread of a kernel behind the peer's
// `meetPeers`:
//
//   W is before the end of its thread in program order, which synchronizes with the end of its kernel; that, being a task of the stream, with the
//   start of the next one, and so on up to the start of the threads of this rank's `meetPeers`; there the flag's store is next in program order. The
//   store has release semantics, the load by which the peer's `meetPeers` sees its value acquire semantics, both at the scope of the system, which
//   has both threads: they are morally strong, and the first synchronizes with the second. On the peer's stream the same steps as on this one lead
//   from that load to R.
//
// Base causality order is made of these two relations and is transitive, whichever threads, devices and scopes its links have; so W is before R in
// causality order, and R sees W or something later. Nothing more is needed: W needs no order of its own, no thread that wrote needs a fence, and
// neither do those that read, for each process has one address for a place and both sides use the generic proxy. In return no kernel may read what
// peers write while it runs, but through acquire loads, and none may use the read-only path for it.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_EXCHANGE_CUH
#define MOE_KERNELS_EXCHANGE_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/formats.cuh"
#include "kernels/common/launch.cuh"
#include "lib/reference/slab.h"
#include "lib/reference/workspace.h"

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

//===--- flags ------------------------------------------------------------------------------------===//

// What the flag stands for has been written by this thread, or by kernels before; the store's release covers both.
__device__ inline void raiseFlag(const Exchange &exchange, int peer, int field) {
  storeRelease(regionOf<uint32_t>(exchange, peer, field) + exchange.watch.rank, static_cast<uint32_t>(stateOf(exchange)->announcement));
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

template <typename Check> __device__ bool beginEpoch(const Exchange &exchange, uint32_t hash, const Check &check) {
  moert__slab_state *state = stateOf(exchange);
  uint32_t *last = regionOf<uint32_t>(exchange, MOERT_METAINFO_FLAG_VAL), epoch = *last = epochAfter(*last);
  state->announcement = static_cast<unsigned long long>(hash) << 32 | epoch;
  bool stands = state->failed != 0 || state->full != 0;
  if (stands) report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_STANDING);
  if (!stands && check(exchange)) return true;
  breakOff(exchange);
  return false;
}

// `raised`: the region of the flags that say that this rank has begun, -1: the op has none.
template <typename Check>
__global__ void __launch_bounds__(MOERT_MAX_RANKS) enterExchange(const __grid_constant__ Exchange exchange, uint32_t hash, int raised, Check check) {
  bool begun = false;
  if (threadIdx.x == 0) begun = beginEpoch(exchange, hash, check);
  if (!__syncthreads_or(begun)) return;
  int peer = static_cast<int>(threadIdx.x);
  if (!lives(exchange, peer)) return;
  unsigned long long announcement = stateOf(exchange)->announcement;
  storeRelease(announcementAt(exchange, peer, exchange.watch.rank, static_cast<uint32_t>(announcement)), announcement);
  if (raised >= 0) raiseFlag(exchange, peer, raised);
}

//===--- waiting ----------------------------------------------------------------------------------===//

enum class Look { waits, arrived, differs, failed };

// What one thread waits for.
struct Wait {
  const uint32_t *flag;
  const unsigned long long *announced; // what the peer says that it does
  unsigned long long expected;
  const uint32_t *statuses; // two words in host memory
  bool isSelf;
};

__device__ inline Wait waitFor(const Exchange &exchange, int peer, int field) {
  unsigned long long expected = stateOf(exchange)->announcement;
  int rank = exchange.watch.rank;
  return {regionOf<uint32_t>(exchange, field) + peer, announcementAt(exchange, rank, peer, static_cast<uint32_t>(expected)), expected,
          reinterpret_cast<const uint32_t *>(exchange.watch.statuses + peer * exchange.watch.stride), peer == rank};
}

// A flag is equal to the epoch, not ahead of it: before a peer raises the same one again, it waits for one that this rank raises after this wait. And
// so a flag that an op has not raised for half of all epochs, which wrap, does not count as ahead.
//
// The flag is read before what could be wrong, and a mismatch is found however far the peer has come, for it announces before it raises flags.
__device__ inline Look lookAtSlab(const Wait &wait) {
  const uint32_t epoch = static_cast<uint32_t>(wait.expected);
  bool arrived = loadAcquire(wait.flag) == epoch;
  unsigned long long announced = loadAcquire(wait.announced);
  if (static_cast<uint32_t>(announced) == epoch && announced != wait.expected) return Look::differs;
  return arrived ? Look::arrived : Look::waits;
}

// Statuses lie beyond the bus and are read now and then. What a peer did before it failed counts: its part of this exchange, and that it differs.
__device__ inline Look lookAt(const Wait &wait, bool atStatuses) {
  Look look = lookAtSlab(wait);
  if (look != Look::waits || !atStatuses || wait.isSelf) return look;
  bool reported = loadAcquire(wait.statuses) != 0 || loadAcquire(wait.statuses + 1) != 0;
  if (!reported) return Look::waits;
  look = lookAtSlab(wait);
  return look == Look::waits ? Look::failed : look;
}

// To hosts that ask what goes on (moert_comm_dump). Any of the threads that wait may have the last word.
__device__ inline void showWait(const Exchange &exchange, const Wait &wait, int peer, int what) {
  unsigned long long epoch = static_cast<uint32_t>(wait.expected), op = static_cast<unsigned long long>(exchange.watch.op) << MOERT__WAITING_OP;
  unsigned long long awaited = static_cast<unsigned long long>(what) << MOERT__WAITING_WHAT;
  storeRelease(&exchange.watch.fault->waiting, epoch | op | awaited | static_cast<unsigned long long>(peer + 1) << MOERT__WAITING_PEER);
}

// The look at which the block ends: all have arrived (true), one is in error, or time is up. All threads leave in the same round. From kLong rounds
// on, which are some milliseconds, the wait is shown.
__device__ inline bool awaitAll(const Exchange &exchange, const Wait &wait, bool waits, int what, unsigned long long deadline, Look *look) {
  const unsigned kEager = 64, kStatusesEvery = 32, kLong = 4096;
  bool all = false;
  unsigned round = 0;
  *look = waits ? Look::waits : Look::arrived;
  for (;; ++round) {
    bool atStatuses = round % kStatusesEvery == kStatusesEvery - 1;
    if (*look == Look::waits) *look = lookAt(wait, atStatuses);
    if (*look == Look::waits && atStatuses && round > kLong) showWait(exchange, wait, static_cast<int>(threadIdx.x), what);
    all = !__syncthreads_or(*look != Look::arrived);
    if (all || __syncthreads_or(*look == Look::differs || *look == Look::failed || now() >= deadline)) break;
    if (round >= kEager) __nanosleep(500);
  }
  if (round > kLong && threadIdx.x == 0) storeRelease(&exchange.watch.fault->waiting, 0ull);
  return all;
}

// By the thread of the peer that is to blame.
__device__ inline void reportPeer(const Exchange &exchange, const Wait &wait, Look look, int peer, int what) {
  const moert__watch &watch = exchange.watch;
  unsigned long long announced = loadAcquire(wait.announced);
  uint32_t epoch = static_cast<uint32_t>(wait.expected);
  if (look == Look::differs)
    report(watch.fault, watch.op, MOERT__FAULT_MISMATCH, peer, watch.rank, what, epoch, announced >> 32, wait.expected >> 32);
  else if (look == Look::failed)
    report(watch.fault, watch.op, MOERT__FAULT_PEER_FAILED, peer, watch.rank, what, epoch);
  else
    report(watch.fault, watch.op, MOERT__FAULT_TIMEOUT, watch.rank, watch.timeout_ns / 1000000, peer, what, epoch);
}

// To blame is the first rank in error, else the first that has not come.
__device__ inline void blame(const Exchange &exchange, const Wait &wait, Look look, int what) {
  __shared__ int first;
  int peer = static_cast<int>(threadIdx.x);
  bool inError = look == Look::differs || look == Look::failed;
  bool any = __syncthreads_or(inError);
  if (peer == 0) first = MOERT_MAX_RANKS;
  __syncthreads();
  if (any ? inError : look == Look::waits) atomicMin(&first, peer);
  __syncthreads();
  if (peer != first) return;
  reportPeer(exchange, wait, look, peer, what);
  breakOff(exchange);
}

// Raises this rank's flags of the region `raised` (-1: of none), and waits for all of the region `awaited`; `what` is a moert__awaited.
static __global__ void __launch_bounds__(MOERT_MAX_RANKS) meetPeers(const __grid_constant__ Exchange exchange, int raised, int awaited, int what) {
  if (hasFailed(exchange)) return;
  int peer = static_cast<int>(threadIdx.x);
  bool waits = lives(exchange, peer);
  if (waits && raised >= 0) raiseFlag(exchange, peer, raised);
  Wait wait = waitFor(exchange, waits ? peer : exchange.watch.rank, awaited);
  Look look;
  unsigned long long deadline = now() + static_cast<unsigned long long>(exchange.watch.timeout_ns);
  if (!awaitAll(exchange, wait, waits, what, deadline, &look)) blame(exchange, wait, look, what);
}

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

// With all blocks of a kernel, or with one.
__device__ inline void poison(const Output &output) {
  poison(output, blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x, static_cast<int64_t>(gridDim.x) * blockDim.x);
}
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

// `aligned`: all pieces are whole and begin at multiples of 16 bytes. Otherwise `count` of them are loaded, and the rest is 0.
template <moert__format kFormat> __device__ void loadPiece(const void *elements, int64_t index, int count, bool aligned, float (&piece)[kPiece]) {
  const int kSize = kFormat == MOERT__F32 ? 4 : 2;
  uint4 words[kPiece * kSize / 16];
  if (aligned) {
    const uint4 *from = reinterpret_cast<const uint4 *>(static_cast<const char *>(elements) + index * kSize);
#pragma unroll
    for (int i = 0; i < kPiece * kSize / 16; ++i) words[i] = from[i];
    unpackPiece<kFormat>(words, piece);
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = i < count ? moert__load(kFormat, elements, index + i) : 0.0f;
  }
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

template <typename Check> moert_status launchEnter(moert_context *context, const Exchange &exchange, uint32_t hash, int raised, Check check) {
  moert_status status = moert__stop_point(context, "entry");
  return status ? status : launch(context, enterExchange<Check>, dim3(1), MOERT_MAX_RANKS, 0, exchange, hash, raised, check);
}

inline moert_status launchMeet(const moert_context *context, const Exchange &exchange, int raised, int awaited, moert__awaited what) {
  return launch(context, meetPeers, dim3(1), MOERT_MAX_RANKS, 0, exchange, raised, awaited, static_cast<int>(what));
}

// The data is sent, and the exchange ends.
inline moert_status launchComplete(moert_context *context, const Exchange &exchange, int field) {
  moert_status status = moert__stop_point(context, "data");
  if (!status) status = moert__stop_point(context, "flag");
  return status ? status : launchMeet(context, exchange, field, field, MOERT__AWAITED_DATA);
}

// An exchange that could not be launched as a whole is an error that its peers can feel.
inline moert_status noteLaunch(moert_context *context, moert_status status) {
  if (status) moert__comm_note(moert_context_comm(context), status);
  return status;
}

#endif

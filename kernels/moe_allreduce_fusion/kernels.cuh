//===- kernels.cuh - moe.allreduce_fusion on devices ----------------------------------------------------===//
//
// lib/reference/moe_allreduce_fusion.c says what is added in which order; these kernels write the same bits. A thread works on pieces of 8 columns, a
// warp on 32 pieces, a cluster of up to 32 warps on a chunk of a token: the three levels of the sum of squares.
//
// A cluster has every so many-th token. It pushes its part of one to all peers, as packets, before it waits for those of the token before; its own
// part stays in registers.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_ALLREDUCE_FUSION_KERNELS_CUH
#define MOE_KERNELS_MOE_ALLREDUCE_FUSION_KERNELS_CUH

#include "kernels/moe_allreduce_fusion/packets.cuh"
#include "kernels/moe_allreduce_fusion/table.cuh"
#include "lib/reference/moe_allreduce_fusion.h"

namespace allreduce {

static_assert(kPiece == MOERT__ALLREDUCE_VECTOR && MOERT__ALLREDUCE_WIDTH == 32, "a thread's piece, and a warp");
const int kGroup = 32 * kPiece;       // columns of a warp
const int kChunk = 32 * kGroup;       // of a cluster
const int kMostThreads = 256;         // of a block
const int kMostBlocks = 4;            // of a cluster
const int kOutputs = 3;
static_assert(kMostBlocks * kMostThreads == 32 * 32, "a cluster has 32 warps");

// The parameter of all kernels.
struct Call {
  const void *residual, *gamma;
  void *sumOut, *residualOut, *normOut; // may be NULL
  int64_t firstToken;                   // of the whole call: those from there on are the kernel's
  int32_t tokens, hidden;
  uint32_t rowBytes, partBytes; // of packets: from token to token, and from rank to rank
  int64_t packets;              // the offset of the region
  float epsilon, bias;
  bool aligned; // all rows begin at multiples of 16 bytes
  Round round;
  Output outputs[kOutputs];
};

// What a kernel is made for: the element type, whether parts are added in f32, hidden_size (0: known at run time), whether there are two ranks.
template <moert__format kFormat_, bool kInF32_, int kHidden_, bool kPair_> struct Kind {
  static const moert__format kFormat = kFormat_, kWire = kInF32_ ? MOERT__F32 : kFormat_;
  static const bool kInF32 = kInF32_, kPair = kPair_;
  static const int kWords = kFormat == MOERT__F32 ? 8 : 4, kWireWords = kWire == MOERT__F32 ? 8 : 4; // of a piece
  static const int kBatch = kPair ? 1 : kHidden_ ? 2 : 16 / kWireWords; // ranks whose packets are loaded at once
  static const int kBlocksPerSm = kHidden_ ? 2 : 1;                      // that are used; twice as many fit
  static const int kThreads = kHidden_ ? (kHidden_ + kMostBlocks * kGroup - 1) / (kMostBlocks * kGroup) * 32 : kMostThreads;

  static __device__ int hidden(const Call &call) { return kHidden_ ? kHidden_ : call.hidden; }
  static __device__ bool aligned(const Call &call) { return kHidden_ || call.aligned; }
  static __device__ int chunks(const Call &call) { return kHidden_ && kHidden_ <= kChunk ? 1 : (hidden(call) + kChunk - 1) / kChunk; }
  // Warps that have columns of a chunk.
  static __device__ int groups(const Call &call) {
    const int all = (hidden(call) + kGroup - 1) / kGroup;
    return all < 32 ? all : 32;
  }
};

//===--- pieces -------------------------------------------------------------------------------------===//

template <moert__format kFormat, int kWords> __device__ void unpackWords(const uint32_t (&words)[kWords], float (&piece)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (kFormat == MOERT__F32)
      piece[i] = moert__float(words[i]);
    else
      pairFrom16Bits<kFormat>(words[i], &piece[2 * i], &piece[2 * i + 1]);
  }
}

template <moert__format kFormat, int kWords> __device__ void packWords(const float (&piece)[kPiece], uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (kFormat == MOERT__F32)
      words[i] = moert__bits(piece[i]);
    else
      words[i] = pairTo16Bits<kFormat>(piece[2 * i], piece[2 * i + 1]);
  }
}

// Sums that are rounded to the type. Rounding to 24 bits before rounding to at most 11 changes nothing, so that the sum of two numbers of 16 bits may
// be rounded at once.
template <moert__format kFormat, int kWords> __device__ void addWords(const uint32_t (&terms)[kWords], uint32_t (&sums)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (kFormat == MOERT__F32)
      sums[i] = moert__bits(moert__float(sums[i]) + moert__float(terms[i]));
    else if constexpr (kFormat == MOERT__BF16)
      asm("add.rn.bf16x2 %0, %0, %1;" : "+r"(sums[i]) : "r"(terms[i]));
    else
      asm("add.rn.f16x2 %0, %0, %1;" : "+r"(sums[i]) : "r"(terms[i]));
  }
}

// Numbers of the tensors' type.
template <typename Kind> __device__ void loadWords(const Call &call, const void *elements, int64_t index, uint32_t (&words)[Kind::kWords]) {
  if (Kind::aligned(call)) {
    const uint4 *from = reinterpret_cast<const uint4 *>(static_cast<const char *>(elements) + index * (Kind::kWords * 4 / kPiece));
#pragma unroll
    for (int i = 0; i < Kind::kWords / 4; ++i) reinterpret_cast<uint4 *>(words)[i] = from[i];
  } else {
    float piece[kPiece];
    loadPiece<Kind::kFormat>(elements, index, kPiece, false, piece);
    packWords<Kind::kFormat>(piece, words);
  }
}

template <typename Kind> __device__ void storeWords(const Call &call, void *elements, int64_t index, const uint32_t (&words)[Kind::kWords]) {
  if (Kind::aligned(call)) {
    uint4 *to = reinterpret_cast<uint4 *>(static_cast<char *>(elements) + index * (Kind::kWords * 4 / kPiece));
#pragma unroll
    for (int i = 0; i < Kind::kWords / 4; ++i) to[i] = reinterpret_cast<const uint4 *>(words)[i];
  } else {
    float piece[kPiece];
    unpackWords<Kind::kFormat>(words, piece);
    storePiece<Kind::kFormat>(elements, index, kPiece, false, piece);
  }
}

//===--- this rank's part: experts ------------------------------------------------------------------===//

// moe_reduction_device_num_experts; `data` is NULL if there is none, and all `most` count.
struct Number {
  const void *data;
  bool isUnsigned;
  int64_t most;

  __device__ int64_t read() const {
    if (!data) return most;
    return isUnsigned ? static_cast<int64_t>(*static_cast<const uint32_t *>(data)) : *static_cast<const int32_t *>(data);
  }
};

// The sum over the experts' rows, times their scales, and the shared expert's.
struct Experts {
  const void *inputs, *scales, *shared;
  int64_t tokens; // of the whole call
  Number number;
  moert__format scaleFormat;

  __device__ int64_t begin() const { return number.read(); }

  __device__ bool fits(int64_t experts) const { return experts >= 0 && experts <= number.most; }
  __device__ void report(const moert__watch &watch, int64_t experts) const {
    ::report(watch.fault, watch.op, MOERT__FAULT_ALLREDUCE_EXPERTS, experts, number.most);
  }

  // Loads a batch of rows before it is known how many count, so that the number costs no latency.
  template <typename Kind>
  __device__ void makePart(const Call &call, int64_t experts, int64_t token, int64_t column, uint32_t (&part)[Kind::kWireWords]) const {
    const int kBatch = 16 / Kind::kWords;
    const int64_t hidden = Kind::hidden(call);
    uint32_t last[Kind::kWords], sum[Kind::kWireWords] = {};
    loadWords<Kind>(call, shared, token * hidden + column, last);
#pragma unroll 1
    for (int64_t first = 0; first < number.most; first += kBatch) {
      uint32_t rows[kBatch][Kind::kWords];
      float factors[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i >= number.most) break;
        const int64_t row = (first + i) * tokens + token;
        loadWords<Kind>(call, inputs, row * hidden + column, rows[i]);
        factors[i] = scaleFormat == MOERT__F32 ? static_cast<const float *>(scales)[row] : moert__load(scaleFormat, scales, row);
      }
      if (first >= experts) break;
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (first + i < experts) addExpert<Kind>(rows[i], factors[i], sum);
      if (first + kBatch >= experts) break;
    }
    addShared<Kind>(last, sum, part);
  }

  template <typename Kind>
  __device__ static void addExpert(const uint32_t (&row)[Kind::kWords], float factor, uint32_t (&sum)[Kind::kWireWords]) {
    float piece[kPiece];
    unpackWords<Kind::kFormat>(row, piece);
    if constexpr (Kind::kInF32) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) sum[i] = moert__bits(fmaf(piece[i], factor, moert__float(sum[i])));
    } else {
      uint32_t products[Kind::kWords];
#pragma unroll
      for (int i = 0; i < kPiece; ++i) piece[i] *= factor;
      packWords<Kind::kFormat>(piece, products);
      addWords<Kind::kFormat>(products, sum);
    }
  }

  template <typename Kind>
  __device__ static void addShared(const uint32_t (&shared)[Kind::kWords], const uint32_t (&sum)[Kind::kWireWords],
                                   uint32_t (&part)[Kind::kWireWords]) {
    float piece[kPiece];
    unpackWords<Kind::kFormat>(shared, piece);
    packWords<Kind::kWire>(piece, part);
    addWords<Kind::kWire>(sum, part);
  }
};

//===--- all ranks' parts ---------------------------------------------------------------------------===//

// A thread's place in a row.
struct Place {
  int64_t column;
  uint32_t offset; // of its warp's packets in a row of them
  Lane lane;
};

template <typename Kind> __device__ Place placeOf(const Call &call, int chunk, int group) {
  const int64_t column = static_cast<int64_t>(chunk) * kChunk + group * kGroup + static_cast<int>(threadIdx.x % 32) * kPiece;
  const uint32_t unit = static_cast<uint32_t>(chunk * 32 + group) * (Kind::kWireWords / 4);
  const bool warpInside = column - static_cast<int>(threadIdx.x % 32) * kPiece < Kind::hidden(call);
  return {column, unit * MOERT_WORKSPACE_UNIT_BYTES, Lane(column < Kind::hidden(call), warpInside)};
}

// Of a row of packets from rank `from`, in the slab of rank `at`.
__device__ inline char *rowAt(const Call &call, const Begun &begun, int at, int from, int token) {
  const Exchange &exchange = call.round.exchange;
  const uint32_t area = (begun.epoch & 1) * static_cast<uint32_t>(exchange.watch.ranks) + static_cast<uint32_t>(from);
  return exchange.slabs[at] + call.packets + static_cast<int64_t>(area) * call.partBytes + static_cast<uint32_t>(token) * call.rowBytes;
}

template <typename Kind>
__device__ void pushPart(const Call &call, const Begun &begun, const Place &place, int token, const uint32_t (&part)[Kind::kWireWords]) {
  const int me = call.round.exchange.watch.rank, ranks = Kind::kPair ? 2 : call.round.exchange.watch.ranks;
  const Sent<Kind::kWireWords> sent(place.lane, part, call.round.hash);
  if (begun.fails) return;
#pragma unroll 1
  for (int i = 1; i < ranks; ++i) {
    const int peer = me + i < ranks ? me + i : me + i - ranks;
    if (takesPart(begun, peer)) sent.store(rowAt(call, begun, peer, me, token) + place.offset, place.lane, begun.epoch);
  }
}

// Into `sum` the parts of all ranks in their order, of which `own` is this one's. False if the round has failed.
template <typename Kind>
__device__ bool addParts(const Call &call, const Begun &begun, const Place &place, int token, const uint32_t (&own)[Kind::kWireWords],
                         uint32_t (&sum)[Kind::kWireWords]) {
  const int me = call.round.exchange.watch.rank, ranks = Kind::kPair ? 2 : call.round.exchange.watch.ranks;
  bool isFirst = true, goesOn = !begun.fails;
#pragma unroll 1
  for (int first = 0; first < ranks; first += Kind::kBatch) {
    Received<Kind::kWireWords> received[Kind::kBatch];
#pragma unroll
    for (int i = 0; i < Kind::kBatch; ++i)
      if (first + i != me && first + i < ranks && takesPart(begun, first + i))
        received[i].load(rowAt(call, begun, me, first + i, token) + place.offset, place.lane);
#pragma unroll
    for (int i = 0; i < Kind::kBatch; ++i) {
      const int peer = first + i;
      uint32_t part[Kind::kWireWords];
      if (peer >= ranks || !takesPart(begun, peer)) continue;
      if (peer == me) {
#pragma unroll
        for (int word = 0; word < Kind::kWireWords; ++word) part[word] = own[word];
      } else {
        const auto look = [&] {
          received[i].load(rowAt(call, begun, me, peer, token) + place.offset, place.lane);
          return received[i].isHere(place.lane, call.round.hash, begun.epoch);
        };
        goesOn = goesOn && await(call.round, begun, peer, received[i].isHere(place.lane, call.round.hash, begun.epoch), look);
        received[i].unpack(place.lane, part);
      }
      if (!isFirst) addWords<Kind::kWire>(sum, part); // the sum of two is the same in either order
#pragma unroll
      for (int word = 0; word < Kind::kWireWords; ++word) sum[word] = part[word];
      isFirst = false;
    }
  }
  return goesOn;
}

//===--- a token ------------------------------------------------------------------------------------===//

// Into `total` the sum with the residual, as it is stored; -0.0 sums leave as +0.0.
template <typename Kind>
__device__ void addResidual(const Call &call, int64_t element, bool inside, const uint32_t (&sum)[Kind::kWireWords],
                            const uint32_t (&residual)[Kind::kWords], uint32_t (&total)[Kind::kWords]) {
  const uint32_t zeros[Kind::kWords] = {};
  if constexpr (Kind::kWire != Kind::kFormat) {
    float piece[kPiece];
    unpackWords<Kind::kWire>(sum, piece);
    packWords<Kind::kFormat>(piece, total);
  } else {
#pragma unroll
    for (int i = 0; i < Kind::kWords; ++i) total[i] = sum[i];
  }
  addWords<Kind::kFormat>(zeros, total);
  if (call.sumOut && inside) storeWords<Kind>(call, call.sumOut, element, total);
  addWords<Kind::kFormat>(residual, total);
  if (call.residualOut && inside) storeWords<Kind>(call, call.residualOut, element, total);
}

// By halves, into all lanes.
__device__ inline float addHalves(float value) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) value += __shfl_xor_sync(~0u, value, width);
  return value;
}

template <typename Kind> __device__ float squaresOf(const uint32_t (&words)[Kind::kWords]) {
  float piece[kPiece], sum = 0.0f;
  unpackWords<Kind::kFormat>(words, piece);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum = fmaf(piece[i], piece[i], sum);
  return sum;
}

template <typename Kind>
__device__ void normalize(const Call &call, float inverse, const uint32_t (&total)[Kind::kWords], const uint32_t (&gamma)[Kind::kWords],
                          uint32_t (&norm)[Kind::kWords]) {
  float piece[kPiece], weights[kPiece];
  unpackWords<Kind::kFormat>(total, piece);
  unpackWords<Kind::kFormat>(gamma, weights);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) piece[i] = piece[i] * inverse * (call.bias + weights[i]);
  packWords<Kind::kFormat>(piece, norm);
}

// What a cluster does with its tokens, one after the other.
template <typename Kind, typename Source> class Reducer {
public:
  __device__ Reducer(const Call &call, const Source &source, const Begun &begun, int64_t begunSource, Table *table, uint4 *kept)
      : call(call), source(source), begun(begun), begunSource(begunSource), table(table), kept(kept) {
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    uint32_t block;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    group = static_cast<int>(block * (blockDim.x / 32) + threadIdx.x / 32);
  }

  // All chunks of all tokens; `meet` is called when the first has been pushed. False if the round has failed.
  template <typename Meet> __device__ bool run(const Meet &meet) {
    bool goesOn = true;
    float squares = 0.0f;
    Spot pushed = {-1, 0}, next = {static_cast<int>(blockIdx.x / blocks), 0};
    if (call.normOut && Kind::chunks(call) == 1) loadGamma(0);
#pragma unroll 1
    do {
      uint32_t part[Kind::kWireWords];
#pragma unroll
      for (int i = 0; i < Kind::kWireWords; ++i) part[i] = own[i];
      if (next.token < call.tokens) push(next);
      if (pushed.token < 0)
        meet();
      else
        goesOn = reduce(pushed, part, next.token >= call.tokens, &squares) && goesOn;
      pushed = next;
      next = behind(next);
    } while (pushed.token < call.tokens);
    return goesOn;
  }

private:
  struct Spot {
    int token, chunk;
  };

  __device__ Spot behind(const Spot &spot) const {
    if (Kind::chunks(call) > 1 && spot.chunk + 1 < Kind::chunks(call)) return {spot.token, spot.chunk + 1};
    return {spot.token + static_cast<int>(gridDim.x / blocks), 0};
  }

  // Makes this rank's part, and pushes it.
  __device__ void push(const Spot &spot) {
    const Place place = placeOf<Kind>(call, spot.chunk, group);
#pragma unroll
    for (int i = 0; i < Kind::kWireWords; ++i) own[i] = 0;
    if (place.lane.inside) source.template makePart<Kind>(call, begunSource, call.firstToken + spot.token, place.column, own);
    pushPart<Kind>(call, begun, place, spot.token, own);
  }

  // False if the round has failed. `*squares` are those of the token's chunks before, and become those of this one too, the same in all threads.
  __device__ bool reduce(const Spot &spot, const uint32_t (&part)[Kind::kWireWords], bool isLast, float *squares) {
    const Place place = placeOf<Kind>(call, spot.chunk, group);
    const int64_t row = (call.firstToken + spot.token) * Kind::hidden(call);
    uint32_t sum[Kind::kWireWords], residual[Kind::kWords] = {};
    if (place.lane.inside) loadWords<Kind>(call, call.residual, row + place.column, residual);
    const bool goesOn = addParts<Kind>(call, begun, place, spot.token, part, sum);
    if (isLast) letNextBegin();
    addResidual<Kind>(call, row + place.column, place.lane.inside, sum, residual, total);
    if (!call.normOut) return goesOn;
    if (Kind::chunks(call) > 1) keep(spot.chunk);
    const float own = addHalves(place.lane.inside ? squaresOf<Kind>(total) : 0.0f);
    *squares = (spot.chunk ? *squares : 0.0f) + addHalves(table->gather(round++, Kind::groups(call), group, own));
    if (spot.chunk + 1 == Kind::chunks(call)) normalizeRow(row, *squares);
    return goesOn;
  }

  __device__ void normalizeRow(int64_t row, float squares) {
    const float mean = moert__divide(squares, static_cast<float>(Kind::hidden(call)));
    const float inverse = moert__divide(1.0f, moert__square_root(mean + call.epsilon));
    for (int i = 0; i < Kind::chunks(call); ++i) {
      const Place place = placeOf<Kind>(call, i, group);
      uint32_t norm[Kind::kWords];
      if (Kind::chunks(call) > 1) {
        takeKept(i);
        loadGamma(i);
      }
      normalize<Kind>(call, inverse, total, gamma, norm);
      if (place.lane.inside) storeWords<Kind>(call, call.normOut, row + place.column, norm);
    }
  }

  __device__ void loadGamma(int at) {
    const Place place = placeOf<Kind>(call, at, group);
    if (place.lane.inside) loadWords<Kind>(call, call.gamma, place.column, gamma);
  }

  // A thread's own memory for the chunks of a token.
  __device__ void keep(int at) {
#pragma unroll
    for (int i = 0; i < Kind::kWords / 4; ++i)
      kept[(at * (Kind::kWords / 4) + i) * blockDim.x + threadIdx.x] = reinterpret_cast<const uint4 *>(total)[i];
  }
  __device__ void takeKept(int at) {
#pragma unroll
    for (int i = 0; i < Kind::kWords / 4; ++i)
      reinterpret_cast<uint4 *>(total)[i] = kept[(at * (Kind::kWords / 4) + i) * blockDim.x + threadIdx.x];
  }

  const Call &call;
  const Source &source;
  const Begun &begun;
  const int64_t begunSource;
  Table *table;
  uint4 *kept;
  uint32_t blocks; // of the cluster
  int group;
  unsigned round = 0; // of the table
  alignas(16) uint32_t own[Kind::kWireWords]; // this rank's part of what is pushed
  alignas(16) uint32_t total[Kind::kWords];
  alignas(16) uint32_t gamma[Kind::kWords] = {};
};

//===--- the kernel ---------------------------------------------------------------------------------===//

template <typename Source> __device__ void reportRefusal(const Round &round, const Source &source, bool stands, int64_t begunSource) {
  const moert__watch &watch = round.exchange.watch;
  if (stands)
    report(watch.fault, watch.op, MOERT__FAULT_STANDING);
  else
    source.report(watch, begunSource);
  breakOff(round.exchange);
}

template <typename Kind, typename Source>
__global__ void __launch_bounds__(Kind::kThreads, 2 * Kind::kBlocksPerSm)
    reduceByPackets(const __grid_constant__ Call call, const __grid_constant__ Source source) {
  extern __shared__ uint4 kept[];
  __shared__ Table table;
  const Round &round = call.round;
  awaitStream();
  Begun begun = readRound(round);
  const int64_t begunSource = source.begin();
  const bool stands = begun.fails, fits = source.fits(begunSource);
  if (!fits) begun.fails = true;
  if (begun.fails && blockIdx.x == 0 && threadIdx.x == 0) reportRefusal(round, source, stands, begunSource);
  if (round.stops) {
    if (blockIdx.x == 0 && !begun.fails) announce(round, begun);
    return;
  }
  if (threadIdx.x == 0) table.open();
  arriveInCluster();
  const auto meet = [&] {
    if (blockIdx.x == 0 && !begun.fails) announce(round, begun);
    awaitCluster();
    if (threadIdx.x == 0) countBegun(round, begun);
  };
  Reducer<Kind, Source> reducer(call, source, begun, fits ? begunSource : 0, &table, kept);
  bool goesOn = reducer.run(meet) && !begun.fails;
  if (call.tokens == 0 && blockIdx.x == 0 && goesOn) goesOn = awaitAnnouncements(round, begun);
  if (!leaveRound(round, begun, !goesOn)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace allreduce

#endif

//===- kernels.cuh - moe.allreduce_fusion on devices ----------------------------------------------------===//
//
// lib/reference/reduction.c says what is added in which order; these kernels write the same bits. A thread works on pieces of 8 columns, a
// warp on 32 pieces, a cluster of up to 32 warps on a chunk of a token: the three levels of the sum of squares.
//
// A cluster has every so many-th token. It pushes its part of one to all peers, as packets, before it waits for those of the token before; its own
// part stays in registers.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_ALLREDUCE_FUSION_KERNELS_CUH
#define MOE_KERNELS_MOE_ALLREDUCE_FUSION_KERNELS_CUH

#include "kernels/common/packets.cuh"
#include "kernels/common/scales.cuh"
#include "kernels/moe_allreduce_fusion/round.cuh"
#include "kernels/moe_allreduce_fusion/table.cuh"
#include "lib/reference/reduction.h"

namespace allreduce {

using namespace packets;

static_assert(kPiece == MOERT__REDUCTION_VECTOR && MOERT__REDUCTION_WIDTH == 32, "a thread's piece, and a warp");
const int kGroup = 32 * kPiece; // columns of a warp
const int kChunk = 32 * kGroup; // of a cluster
const int kMostThreads = 256;   // of a block
const int kMostBlocks = 4;      // of a cluster
const int kOutputs = 5;
static_assert(kMostBlocks * kMostThreads == 32 * 32, "a cluster has 32 warps");

// The parameter of all kernels.
struct Call {
  const void *residual, *gamma;
  void *sumOut, *residualOut, *normOut; // may be NULL
  int64_t firstToken;                   // of the whole call: those from there on are the kernel's
  int32_t tokens, hidden;
  uint32_t rowBytes, partBytes; // of packets: from token to token, and from rank to rank
  int64_t packets;              // the offset of the region
  int64_t rows, flags;          // likewise of rows and their flags
  int64_t slotBytes;            // from row to row
  int32_t slots, sums;          // rows of each parity, and those before the sums
  float epsilon, bias, factor;  // `factor`: scale_factor
  bool aligned;                 // all rows begin at multiples of 16 bytes
  bool alignedCodes;            // and those of a piece's codes at multiples of their bytes
  bool quantizes;               // there are codes to be made
  moert__quantized_call quantized;
  Round round;
  Output outputs[kOutputs];
};

// What a kernel is made for: the element type, whether parts are added in f32, hidden_size (0: known at run time), whether there are two ranks
// (false: there may be), and whether there may be codes to be made.
template <moert__format kFormat_, bool kInF32_, int kHidden_, bool kPair_, bool kQuantizes_> struct Kind {
  static const moert__format kFormat = kFormat_, kWire = kInF32_ ? MOERT__F32 : kFormat_;
  static const bool kInF32 = kInF32_, kPair = kPair_, kQuantizes = kQuantizes_;
  static const int kWords = kFormat == MOERT__F32 ? 8 : 4, kWireWords = kWire == MOERT__F32 ? 8 : 4; // of a piece
  static const int kBatch = kPair ? 1 : kHidden_ ? 2 : 16 / kWireWords;                              // ranks whose packets are loaded at once
  static const int kBlocksPerSm = kHidden_ ? 2 : 1;                                                  // that are used; twice as many fit
  static const int kThreads = kHidden_ ? (kHidden_ + kMostBlocks * kGroup - 1) / (kMostBlocks * kGroup) * 32 : kMostThreads;

  static __device__ int hidden(const Call &call) { return kHidden_ ? kHidden_ : call.hidden; }
  static __device__ bool quantizes(const Call &call) { return kQuantizes && (kHidden_ || call.quantizes); }
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

//===--- this rank's part ---------------------------------------------------------------------------===//

// RN(sum + RN(row * factor)), or in f32 fma(row, factor, sum).
template <typename Kind> __device__ void addScaled(const uint32_t (&row)[Kind::kWords], float factor, uint32_t (&sum)[Kind::kWireWords]) {
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

template <typename Kind> __device__ void addRow(const uint32_t (&row)[Kind::kWords], uint32_t (&sum)[Kind::kWireWords]) {
  float piece[kPiece];
  uint32_t words[Kind::kWireWords];
  unpackWords<Kind::kFormat>(row, piece);
  packWords<Kind::kWire>(piece, words);
  addWords<Kind::kWire>(words, sum);
}

__device__ inline float loadFactor(moert__format format, const void *factors, int64_t index) {
  return format == MOERT__F32 ? static_cast<const float *>(factors)[index] : moert__load(format, factors, index);
}

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

// Where a part comes from: the sum over the experts' rows, times their scales, and the shared expert's. A source is asked once what the call needs to
// know (`begin`), which may be refused, and then for pieces of parts, which begin as zeros.
struct Experts {
  using Begun = int64_t; // how many experts there are
  static const bool kChecksParts = false;

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
  __device__ bool makePart(const Call &call, int64_t experts, int64_t token, int64_t column, uint32_t (&part)[Kind::kWireWords]) const {
    const int kBatch = 16 / Kind::kWords;
    const int64_t hidden = Kind::hidden(call);
    uint32_t last[Kind::kWords];
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
        factors[i] = loadFactor(scaleFormat, scales, row);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (first + i < experts) addScaled<Kind>(rows[i], factors[i], part);
      if (first + kBatch >= experts) break;
    }
    addRow<Kind>(last, part);
    return true;
  }
};

// By a whole warp, of which a lane may have found something wrong: whether the part of a token was made. If not, the round fails.
template <typename Source> __device__ bool checkPart(const Round &round, const Source &source, bool made, int64_t token) {
  if constexpr (Source::kChecksParts) {
    if (__all_sync(~0u, made)) return true;
    if (threadIdx.x % 32 == 0 && atomicExch(&round.state->failed, 1) == 0) {
      source.reportPart(round.exchange.watch, token);
      tellPeers(round.exchange);
    }
    return false;
  }
  return true;
}

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

// The sum of all parts as it is stored; -0.0 leaves as +0.0.
template <typename Kind> __device__ void roundSum(const uint32_t (&parts)[Kind::kWireWords], uint32_t (&sum)[Kind::kWords]) {
  const uint32_t zeros[Kind::kWords] = {};
  float piece[kPiece];
  unpackWords<Kind::kWire>(parts, piece);
  packWords<Kind::kFormat>(piece, sum);
  addWords<Kind::kFormat>(zeros, sum);
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

// What threads of a cluster have of a token of which they make the outputs. All threads of the cluster call each function.
template <typename Kind> class Token {
public:
  __device__ Token(const Call &call, Table *table, uint4 *kept) : call(call), table(table), kept(kept) {
    uint32_t block;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    quarter = static_cast<int>(block);
    group = static_cast<int>(block * (blockDim.x / 32) + threadIdx.x / 32);
    if (hasNorm() && Kind::chunks(call) == 1) loadGamma(0);
  }

  __device__ Place place(int chunk) const { return placeOf<Kind>(call, chunk, group); }
  __device__ int clusters() const { return static_cast<int>(gridDim.x / blocks); }
  __device__ int cluster() const { return static_cast<int>(blockIdx.x / blocks); }

  // Before anything is waited for. `row`: the token's first element.
  __device__ void loadResidual(int64_t row, const Place &place) {
    if (place.lane.inside) loadWords<Kind>(call, call.residual, row + place.column, residual);
  }

  // A chunk's sum, in their order; behind the last one the norm.
  __device__ void finish(int64_t row, int chunk, const Place &place, const uint32_t (&sum)[Kind::kWords]) {
#pragma unroll
    for (int i = 0; i < Kind::kWords; ++i) total[i] = sum[i];
    if (call.sumOut && place.lane.inside) storeWords<Kind>(call, call.sumOut, row + place.column, total);
    addWords<Kind::kFormat>(residual, total);
    if (call.residualOut && place.lane.inside) storeWords<Kind>(call, call.residualOut, row + place.column, total);
    if (!hasNorm()) return;
    if (Kind::chunks(call) > 1) keep(chunk);
    const float own = addHalves(place.lane.inside ? squaresOf<Kind>(total) : 0.0f);
    squares = (chunk ? squares : 0.0f) + addHalves(table->gather(round++, Kind::groups(call), group, own));
    if (chunk + 1 == Kind::chunks(call)) normalizeRow(row);
  }

  int quarter; // of the token's columns: the block in the cluster

private:
  __device__ bool hasNorm() const { return Kind::quantizes(call) || call.normOut; }

  __device__ void normalizeRow(int64_t row) {
    const float mean = moert__divide(squares, static_cast<float>(Kind::hidden(call)));
    const float inverse = moert__divide(1.0f, moert__square_root(mean + call.epsilon));
    float amax = 0.0f;
    if (Kind::quantizes(call) && call.quantized.format == MOERT__FP8_TOKEN) amax = amaxOfRow(inverse);
    for (int i = 0; i < Kind::chunks(call); ++i) {
      const Place at = place(i);
      uint32_t norm[Kind::kWords];
      makeNorm(i, inverse, norm);
      if (call.normOut && at.lane.inside) storeWords<Kind>(call, call.normOut, row + at.column, norm);
      if (Kind::quantizes(call)) quantize(row / Kind::hidden(call), at, amax, norm);
    }
  }

  __device__ void makeNorm(int chunk, float inverse, uint32_t (&norm)[Kind::kWords]) {
    if (Kind::chunks(call) > 1) {
      takeKept(chunk);
      loadGamma(chunk);
    }
    normalize<Kind>(call, inverse, total, gamma, norm);
  }

  // The numbers of a piece; zeros where the thread has none.
  __device__ void unpackNorm(const Place &at, const uint32_t (&norm)[Kind::kWords], float (&piece)[kPiece]) const {
    unpackWords<Kind::kFormat>(norm, piece);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = at.lane.inside ? piece[i] : 0.0f;
  }

  // The largest magnitude in all threads.
  __device__ float amaxOfRow(float inverse) {
    float amax = 0.0f;
    for (int i = 0; i < Kind::chunks(call); ++i) {
      uint32_t norm[Kind::kWords];
      float piece[kPiece];
      makeNorm(i, inverse, norm);
      unpackNorm(place(i), norm, piece);
      amax = largerMagnitude(MOERT__FP8_TOKEN, amax, tileAmax(MOERT__FP8_TOKEN, piece));
    }
    amax = blockAmax(MOERT__FP8_TOKEN, amax, 32);
    return blockAmax(MOERT__FP8_TOKEN, table->gather(round++, Kind::groups(call), group, amax), 32);
  }

  // By a whole warp. `amax`: of the row, if it has one scale.
  __device__ void quantize(int64_t at, const Place &place, float amax, const uint32_t (&norm)[Kind::kWords]) const {
    const moert__quantized_call &quantized = call.quantized;
    const QuantizeOptions options = {call.factor, __frcp_rn(call.factor), false, false, false};
    const int block = moert__block_size(quantized.format);
    float piece[kPiece];
    uint32_t codes[kPiece / 4], scale = 0;
    unpackNorm(place, norm, piece);
    if (quantized.format == MOERT__FP8_TENSOR) {
      encodeE4M3(piece, call.factor, codes);
    } else if (quantized.format == MOERT__FP8_TOKEN) {
      scale = moert__bits(moert__fp8_scale(amax));
      encodeE4M3Divided(piece, amax, moert__float(scale), codes);
    } else {
      scale = quantizeTile(quantized.format, options, piece, tileAmax(quantized.format, piece), codes);
    }
    if (!place.lane.inside) return;
    storeCodes(at, place.column, codes);
    if (block ? place.column % block == 0 : quantized.format == MOERT__FP8_TOKEN && place.column == 0)
      storeScale(quantized, moert__scale_offset(&quantized.grid, at, block ? place.column / block : 0), scale);
  }

  __device__ void storeCodes(int64_t at, int64_t column, const uint32_t (&words)[kPiece / 4]) const {
    const bool packed = moert__is_packed(call.quantized.format);
    uint8_t *codes = const_cast<uint8_t *>(call.quantized.codes) + at * call.quantized.codes_stride + (packed ? column / 2 : column);
    if (!call.alignedCodes)
      for (int i = 0; i < (packed ? kPiece / 2 : kPiece); ++i) codes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
    else if (packed)
      *reinterpret_cast<uint32_t *>(codes) = words[0];
    else
      *reinterpret_cast<uint2 *>(codes) = make_uint2(words[0], words[1]);
  }

  __device__ void loadGamma(int chunk) {
    const Place at = place(chunk);
    if (at.lane.inside) loadWords<Kind>(call, call.gamma, at.column, gamma);
  }

  // A thread's own memory for the chunks of a token.
  __device__ void keep(int at) {
#pragma unroll
    for (int i = 0; i < Kind::kWords / 4; ++i)
      kept[(at * (Kind::kWords / 4) + i) * blockDim.x + threadIdx.x] = reinterpret_cast<const uint4 *>(total)[i];
  }
  __device__ void takeKept(int at) {
#pragma unroll
    for (int i = 0; i < Kind::kWords / 4; ++i) reinterpret_cast<uint4 *>(total)[i] = kept[(at * (Kind::kWords / 4) + i) * blockDim.x + threadIdx.x];
  }

  const Call &call;
  Table *table;
  uint4 *kept;
  uint32_t blocks; // of the cluster
  int group;       // the warp's, of those of a chunk
  unsigned round = 0;
  float squares = 0.0f;
  alignas(16) uint32_t residual[Kind::kWords] = {};
  alignas(16) uint32_t total[Kind::kWords];
  alignas(16) uint32_t gamma[Kind::kWords] = {};
};

//===--- one shot, by packets ------------------------------------------------------------------------===//

// What a cluster does with its tokens, one after the other.
template <typename Kind, typename Source> class ByPackets {
public:
  static const bool kAwaitsAll = false; // whoever has a token hears of all ranks

  __device__ ByPackets(const Call &call, const Source &source, const Begun &begun, typename Source::Begun begunSource, Table *table, uint4 *kept)
      : call(call), source(source), begun(begun), begunSource(begunSource), token(call, table, kept) {}

  // All chunks of all tokens; `meet` is called when the first has been pushed. False if the round has failed.
  template <typename Meet> __device__ bool run(const Meet &meet) {
    bool goesOn = true;
    Spot pushed = {-1, 0}, next = {token.cluster(), 0};
#pragma unroll 1
    do {
      uint32_t part[Kind::kWireWords];
#pragma unroll
      for (int i = 0; i < Kind::kWireWords; ++i) part[i] = own[i];
      if (next.token < call.tokens) push(next);
      if (pushed.token < 0)
        meet();
      else
        goesOn = reduce(pushed, part) && goesOn;
      pushed = next;
      next = behind(next);
    } while (pushed.token < call.tokens);
    return goesOn && !broken;
  }

private:
  struct Spot {
    int token, chunk;
  };

  __device__ Spot behind(const Spot &spot) const {
    if (Kind::chunks(call) > 1 && spot.chunk + 1 < Kind::chunks(call)) return {spot.token, spot.chunk + 1};
    return {spot.token + token.clusters(), 0};
  }

  // Makes this rank's part, and pushes it.
  __device__ void push(const Spot &spot) {
    const Place place = token.place(spot.chunk);
#pragma unroll
    for (int i = 0; i < Kind::kWireWords; ++i) own[i] = 0;
    const bool made = !place.lane.inside || source.template makePart<Kind>(call, begunSource, call.firstToken + spot.token, place.column, own);
    if (checkPart(call.round, source, made, call.firstToken + spot.token))
      pushPart<Kind>(call, begun, place, spot.token, own);
    else
      broken = true;
  }

  // False if the round has failed.
  __device__ bool reduce(const Spot &spot, const uint32_t (&part)[Kind::kWireWords]) {
    const Place place = token.place(spot.chunk);
    const int64_t row = (call.firstToken + spot.token) * Kind::hidden(call);
    uint32_t parts[Kind::kWireWords], sum[Kind::kWords];
    token.loadResidual(row, place);
    const bool goesOn = addParts<Kind>(call, begun, place, spot.token, part, parts);
    roundSum<Kind>(parts, sum);
    token.finish(row, spot.chunk, place, sum);
    return goesOn;
  }

  const Call &call;
  const Source &source;
  const Begun &begun;
  const typename Source::Begun begunSource;
  Token<Kind> token;
  bool broken = false;                        // a part could not be made
  alignas(16) uint32_t own[Kind::kWireWords]; // this rank's part of what is pushed
};

//===--- two shots, by rows -------------------------------------------------------------------------===//

__device__ inline int countOf(unsigned long long mask) { return __popcll(mask); }

// Of k + 1 ranks that take part each is the owner of every (k + 1)-th token: all others push their parts to it, and it pushes the sum to them. Rows
// are stored as they are; a block of a cluster sets a flag for its quarter of each row, behind a fence that serves several of them.
//
// In the region of rows, of each parity, the parts that this rank receives come first, those of a rank together, and then the sums.
template <typename Kind, typename Source> class ByRows {
public:
  static const bool kAwaitsAll = true; // a rank may get no row of some of the others

  __device__ ByRows(const Call &call, const Source &source, const Begun &begun, typename Source::Begun begunSource, Table *table, uint4 *kept)
      : call(call), source(source), begun(begun), begunSource(begunSource), token(call, table, kept), owners(countOf(begun.mask)),
        mine(numberOf(call.round.exchange.watch.rank)), stripes((call.tokens + owners - 1) / owners), goesOn(!begun.fails) {}

  // False if the round has failed.
  template <typename Meet> __device__ bool run(const Meet &meet) {
    if (goesOn) pushParts();
    meet();
    sumTokens();
    finishTokens();
    return goesOn;
  }

private:
  // Among the ranks that take part, and the other way round.
  __device__ int numberOf(int rank) const { return countOf(begun.mask & ((1ull << rank) - 1)); }
  __device__ int rankOf(int number) const {
    unsigned long long mask = begun.mask;
    for (int i = 0; i < number; ++i) mask &= mask - 1;
    return __ffsll(static_cast<long long>(mask)) - 1;
  }

  __device__ int tokenOf(int stripe, int owner) const { return stripe * owners + owner; }
  __device__ int partSlot(int from, int stripe) const { return from * stripes + stripe; }
  __device__ int sumSlot(int at) const { return call.sums + at; }
  __device__ int64_t slotOf(int slot) const { return static_cast<int64_t>(begun.epoch & 1) * call.slots + slot; }

  __device__ char *rowOf(int number, int slot) const { return call.round.exchange.slabs[rankOf(number)] + call.rows + slotOf(slot) * call.slotBytes; }
  __device__ uint32_t *flagOf(int number, int slot) const {
    char *flags = call.round.exchange.slabs[rankOf(number)] + call.flags;
    return reinterpret_cast<uint32_t *>(flags) + slotOf(slot) * MOERT_WORKSPACE_QUARTERS + token.quarter;
  }

  template <int kWords> __device__ static void loadRow(const char *row, const Place &place, uint32_t (&words)[kWords]) {
    const uint4 *from = reinterpret_cast<const uint4 *>(row + place.column / kPiece * (kWords * 4));
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) reinterpret_cast<uint4 *>(words)[i] = from[i];
  }
  template <int kWords> __device__ static void storeRow(char *row, const Place &place, const uint32_t (&words)[kWords]) {
    uint4 *to = reinterpret_cast<uint4 *>(row + place.column / kPiece * (kWords * 4));
    if (!place.lane.inside) return;
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) to[i] = reinterpret_cast<const uint4 *>(words)[i];
  }

  __device__ void makePart(int at, const Place &place, uint32_t (&part)[Kind::kWireWords]) {
#pragma unroll
    for (int i = 0; i < Kind::kWireWords; ++i) part[i] = 0;
    const bool made = !place.lane.inside || source.template makePart<Kind>(call, begunSource, call.firstToken + at, place.column, part);
    if (!checkPart(call.round, source, made, call.firstToken + at)) goesOn = false;
  }

  // By a whole block, for what its threads have stored: `flag` of each of `count`, NULL: it has none. Nothing if the round has failed.
  template <typename Flag> __device__ void setFlags(int count, const Flag &flag) {
    if (__syncthreads_or(!goesOn)) {
      goesOn = false;
      return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
      if (uint32_t *word = flag(i)) storeRelease(word, begun.epoch);
  }

  // By a whole warp: until the rows are here that `slot` says of each other rank; `from` and `count`: of which.
  template <typename Slot> __device__ void awaitRows(int from, int count, const Slot &slot) {
    for (int first = from; goesOn && first < from + count; first += 32) {
      const int number = first + static_cast<int>(threadIdx.x % 32);
      const bool waits = number < from + count && number != mine;
      const uint32_t *flag = flagOf(mine, waits ? slot(number) : 0);
      const auto look = [&] { return !waits || loadAcquire(flag) == begun.epoch; };
      goesOn = await(call.round, begun, rankOf(waits ? number : mine), look(), look);
    }
    __syncwarp();
  }

  // To the owners, from the rank behind this one on.
  __device__ void pushParts() {
    const int others = owners - 1, batch = others < 4 ? 4 / (others ? others : 1) : 1, step = token.clusters();
    for (int first = token.cluster(); first < stripes; first += batch * step) {
      for (int i = 0; i < batch * others; ++i) {
        const int stripe = first + i / others * step, owner = ownerOf(i % others), at = tokenOf(stripe, owner);
        for (int chunk = 0; chunk < Kind::chunks(call) && at < call.tokens; ++chunk) {
          const Place place = token.place(chunk);
          alignas(16) uint32_t part[Kind::kWireWords];
          makePart(at, place, part);
          storeRow(rowOf(owner, partSlot(mine, stripe)), place, part);
        }
      }
      setFlags(batch * others, [&](int i) {
        const int stripe = first + i / others * step, owner = ownerOf(i % others);
        return tokenOf(stripe, owner) < call.tokens ? flagOf(owner, partSlot(mine, stripe)) : nullptr;
      });
    }
  }
  __device__ int ownerOf(int i) const { return (mine + 1 + i) % owners; }

  // The tokens that this rank owns.
  __device__ void sumTokens() {
    const int others = owners - 1, step = token.clusters(), kTokens = 4;
    for (int first = token.cluster(); first < stripes; first += kTokens * step) {
      for (int stripe = first; stripe < first + kTokens * step; stripe += step)
        if (tokenOf(stripe, mine) < call.tokens) sumToken(stripe);
      setFlags(kTokens * others, [&](int i) {
        const int at = tokenOf(first + i / others * step, mine);
        return at < call.tokens ? flagOf(ownerOf(i % others), sumSlot(at)) : nullptr;
      });
    }
  }

  __device__ void sumToken(int stripe) {
    const int at = tokenOf(stripe, mine);
    const int64_t row = (call.firstToken + at) * Kind::hidden(call);
    for (int chunk = 0; chunk < Kind::chunks(call); ++chunk) {
      const Place place = token.place(chunk);
      alignas(16) uint32_t own[Kind::kWireWords], parts[Kind::kWireWords], sum[Kind::kWords];
      makePart(at, place, own);
      token.loadResidual(row, place);
      awaitRows(0, owners, [&](int number) { return partSlot(number, stripe); });
      addRows(stripe, place, own, parts);
      roundSum<Kind>(parts, sum);
      for (int i = 0; i < owners - 1 && goesOn; ++i) storeRow(rowOf(ownerOf(i), sumSlot(at)), place, sum);
      token.finish(row, chunk, place, sum);
    }
  }

  // The parts in the order of ranks.
  __device__ void addRows(int stripe, const Place &place, const uint32_t (&own)[Kind::kWireWords], uint32_t (&parts)[Kind::kWireWords]) const {
#pragma unroll 1
    for (int first = 0; first < owners; first += Kind::kBatch) {
      alignas(16) uint32_t rows[Kind::kBatch][Kind::kWireWords] = {};
#pragma unroll
      for (int i = 0; i < Kind::kBatch; ++i)
        if (first + i < owners && first + i != mine && place.lane.inside) loadRow(rowOf(mine, partSlot(first + i, stripe)), place, rows[i]);
#pragma unroll
      for (int i = 0; i < Kind::kBatch; ++i) {
        if (first + i >= owners) continue;
#pragma unroll
        for (int word = 0; word < Kind::kWireWords; ++word) rows[i][word] = first + i == mine ? own[word] : rows[i][word];
        if (first + i > 0) addWords<Kind::kWire>(parts, rows[i]);
#pragma unroll
        for (int word = 0; word < Kind::kWireWords; ++word) parts[word] = rows[i][word];
      }
    }
  }

  // Those of other owners.
  __device__ void finishTokens() {
    for (int stripe = token.cluster(); stripe < stripes; stripe += token.clusters())
      for (int i = 0; i < owners - 1; ++i) {
        const int owner = ownerOf(i), at = tokenOf(stripe, owner);
        const int64_t row = (call.firstToken + at) * Kind::hidden(call);
        for (int chunk = 0; chunk < Kind::chunks(call) && at < call.tokens; ++chunk) {
          const Place place = token.place(chunk);
          alignas(16) uint32_t sum[Kind::kWords] = {};
          token.loadResidual(row, place);
          awaitRows(owner, 1, [&](int) { return sumSlot(at); });
          if (place.lane.inside) loadRow(rowOf(mine, sumSlot(at)), place, sum);
          token.finish(row, chunk, place, sum);
        }
      }
  }

  const Call &call;
  const Source &source;
  const Begun &begun;
  const typename Source::Begun begunSource;
  Token<Kind> token;
  const int owners, mine, stripes; // a stripe is a token of each owner
  bool goesOn;
};

//===--- the kernel ---------------------------------------------------------------------------------===//

template <typename Source> __device__ void reportRefusal(const Round &round, const Source &source, bool stands, typename Source::Begun begunSource) {
  const moert__watch &watch = round.exchange.watch;
  if (stands)
    report(watch.fault, watch.op, MOERT__FAULT_STANDING);
  else
    source.report(watch, begunSource);
  breakOff(round.exchange);
}

// `By`: how the parts come together.
template <template <typename, typename> class By, typename Kind, typename Source>
__global__ void __launch_bounds__(Kind::kThreads, 2 * Kind::kBlocksPerSm)
    reduceTokens(const __grid_constant__ Call call, const __grid_constant__ Source source) {
  extern __shared__ uint4 kept[];
  __shared__ Table table;
  const Round &round = call.round;
  awaitStream();
  Begun begun = readRound(round);
  const typename Source::Begun begunSource = source.begin();
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
  By<Kind, Source> reducer(call, source, begun, fits ? begunSource : typename Source::Begun(), &table, kept);
  bool goesOn = reducer.run(meet) && !begun.fails;
  if (blockIdx.x == 0 && goesOn && (By<Kind, Source>::kAwaitsAll || call.tokens == 0)) goesOn = awaitAnnouncements(round, begun);
  if (Kind::quantizes(call) && goesOn && call.quantized.scales) zeroPadding(call.quantized, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x);
  if (!leaveRound(round, begun, !goesOn)) return;
  for (int i = 0; i < kOutputs; ++i) poisonByBlock(call.outputs[i]);
}

} // namespace allreduce

#endif

//===- kernels.cuh - moe.combine on devices -------------------------------------------------------------===//
//
// lib/reference/moe_combine.c says what is added in which order; this kernel writes the same bits, but pushes where the host pulls.
//
// A block has a range of the rows that this rank received from each peer, and a range of this rank's tokens. It pushes its rows, as they go back, to
// COMBINE_ARRIVALS of their ranks, a group at a time, and between groups adds up the tokens whose rows have come; this rank's own part of a token it
// takes from the payload.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_COMBINE_KERNELS_CUH
#define MOE_KERNELS_MOE_COMBINE_KERNELS_CUH

#include "kernels/common/formats.cuh"

namespace fused {
const int kThreads = 512; // that add up: with fewer there is not enough on its way from memory
}

#include "kernels/common/fused.cuh"
#include "kernels/common/scales.cuh"
#include "lib/reference/moe_combine.h"

namespace combine {

using namespace fused;

const int kMaxTopK = MOERT_WORKSPACE_MAX_TOP_K;
const int kMaxGroup = 32; // rows or tokens at a time
const int kSlots = 256;   // of the tokens of a window, one a thread

// The kernel's parameter.
struct Call {
  Round round;
  const void *payload;
  void *out;
  int64_t tokens, maxTokens, hidden, rowBytes, wireBytes; // from row to row of the payload, and of what comes back
  int32_t topK;
  bool grouped, isBulk; // isBulk: the mover pushes the payload
  bool addsVectors;     // all pieces are whole vectors, of one type from payload to output, and travel as they are
  int32_t team, group;  // threads for a row, and rows at a time
  moert__format outFormat;
  bool alignedPayload, alignedArea, alignedOut; // pieces of rows begin at multiples of their bytes, up to 16
  int width;                                    // of accesses that copy the payload
  moert__quantized_call quantized;              // where codes and scales of a quantised output lie
  float global;                                 // G of nvfp4
  Output output, scales;
};

// The rows of the grouped layout that the choices of a group have, -1: none here, and their weights.
struct Choices {
  int32_t rows[kSlots];
  float weights[kSlots];
};

// What a block knows of its tokens and rows.
struct Memory {
  Progress progress; // in rows
  bulk::Barriers barriers;
  int32_t received[MOERT_MAX_RANKS];        // rows of each source
  int32_t targets[kSlots], indices[kSlots]; // of a group's slots: the rank that has the row, -1: none; and its number there
  int32_t numTerms[kMaxGroup];              // slots that have a row, of each token of the group
  int32_t arriving[kMaxGroup][2];           // the first two whose row comes from another rank, -1: none
  int32_t ownSlot[kMaxGroup];               // the one whose row this rank has itself, -1: none
  Choices pushed, own;                      // of the rows of a group that are pushed, and of this rank's own part of a group of tokens
};

//===--- rows that travel -------------------------------------------------------------------------===//

// What their elements are: those of the payload, or E4M3.
template <moert__format kFormat> struct Numbers {
  static const int kBytes = kFormat == MOERT__F32 ? 4 : 2;
  static __device__ void load(const void *row, int64_t column, int size, bool aligned, float (&piece)[kPiece]) {
    loadPiece<kFormat>(row, column, size, aligned, piece);
  }
  static __device__ void store(void *row, int64_t column, int size, bool aligned, const float (&piece)[kPiece]) {
    storePiece<kFormat>(row, column, size, aligned, piece);
  }
  // To what they will be when they have travelled.
  static __device__ void round(float (&piece)[kPiece]) {
    uint4 vectors[kBytes * kPiece / 16];
    packPiece<kFormat>(piece, vectors);
    unpackPiece<kFormat>(vectors, piece);
  }
};

struct LowPrecision {
  static const int kBytes = 1;
  static __device__ void load(const void *row, int64_t column, int size, bool aligned, float (&piece)[kPiece]) {
    const uint8_t *codes = static_cast<const uint8_t *>(row) + column;
    if (aligned) {
      const uint2 words = *reinterpret_cast<const uint2 *>(codes);
      dequantizeTile(MOERT__FP8_BLOCK, 1.0f, false, {words.x, words.y}, piece);
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) piece[i] = i < size ? moert__e4m3_to_f32(codes[i]) : 0.0f;
    }
  }
  static __device__ void store(void *row, int64_t column, int size, bool aligned, const float (&piece)[kPiece]) {
    uint8_t *codes = static_cast<uint8_t *>(row) + column;
    uint32_t words[2];
    encodeE4M3(piece, 1.0f, words);
    if (aligned) {
      *reinterpret_cast<uint2 *>(codes) = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        if (i < size) codes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
    }
  }
  static __device__ void round(float (&piece)[kPiece]) {
    uint32_t words[2];
    encodeE4M3(piece, 1.0f, words);
    dequantizeTile(MOERT__FP8_BLOCK, 1.0f, false, {words[0], words[1]}, piece);
  }
};

// The rows that the dispatch placed are in the payload.
struct RowsFit {
  int64_t rows;
  __device__ bool operator()(const Exchange &exchange) const {
    long long placed = stateOf(exchange)->rows;
    if (placed > rows && blockIdx.x == 0) report(exchange.watch.fault, exchange.watch.op, MOERT__FAULT_COMBINE_ROWS, rows, placed);
    return placed <= rows;
  }
};

// Of kinds of kernels.
enum class Layout { rankMajor, grouped, any };

// What a kernel is made for: the payload's type, what travels, the layout, what comes out; top_k and hidden_size, 0: known at run time.
template <moert__format kFormat_, typename Wire_, Layout kLayout, bool kQuantizes_, int kTopK, int kHidden> struct Kind {
  using Wire = Wire_;
  static const moert__format kFormat = kFormat_;
  static const bool kQuantizes = kQuantizes_;
  static const int kUnrolled = kTopK ? kTopK : 1;

  static __device__ bool isGrouped(const Call &call) { return kLayout == Layout::any ? call.grouped : kLayout == Layout::grouped; }
  // Rows travel as they are.
  static __device__ bool copies(const Call &call) { return !isGrouped(call) && Wire::kBytes == Numbers<kFormat>::kBytes; }
  static __device__ int topK(const Call &call) { return kTopK ? kTopK : call.topK; }
  static __device__ int hidden(const Call &call) { return kHidden ? kHidden : static_cast<int>(call.hidden); }
  static __device__ int64_t wireBytes(const Call &call) { return kHidden ? kHidden * Wire::kBytes : call.wireBytes; }
  static __device__ bool aligned(const Call &call) { return (kHidden && kHidden % kPiece == 0) || call.alignedArea; }
};

//===--- this rank's rows -------------------------------------------------------------------------===//

// Of what came from `source` the row `index`, in all arrays that have a lane for each source.
__device__ inline int64_t laneRow(const Call &call, int source, int32_t index) { return source * call.maxTokens + index; }

__device__ inline uint32_t *rowFlag(const Call &call, int at, int source, int32_t index) {
  return regionOf<uint32_t>(call.round.exchange, at, MOERT_WORKSPACE_COMBINE_ROW_FLAGS) + laneRow(call, source, index);
}

__device__ inline char *arrivalOf(const Call &call, int at, int64_t row, int64_t wireBytes) {
  return regionOf<char>(call.round.exchange, at, MOERT_WORKSPACE_COMBINE_ARRIVALS) + row * wireBytes;
}

// Of `row` of what was received, whose choices begin at `first`: weighted and added in the order of slots, if the layout is grouped.
template <typename Kind> __device__ void loadRow(const Call &call, const Choices &choices, int first, int64_t row, int column, float (&sum)[kPiece]) {
  const int size = pieceSize(Kind::hidden(call), column), topK = Kind::topK(call);
  if (!Kind::isGrouped(call)) {
    loadPiece<Kind::kFormat>(call.payload, row * Kind::hidden(call) + column, size, call.alignedPayload, sum);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum[i] = 0.0f;
#pragma unroll(Kind::kUnrolled)
  for (int k = 0; k < topK; ++k) {
    const int32_t placed = choices.rows[first + k];
    if (placed < 0) continue;
    float piece[kPiece];
    loadPiece<Kind::kFormat>(call.payload, placed * static_cast<int64_t>(Kind::hidden(call)) + column, size, call.alignedPayload, piece);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] = fmaf(piece[i], choices.weights[first + k], sum[i]);
  }
}

// The block's rows that go to other ranks: the ranges of all sources, from the rank behind this one on.
class PushedRows {
public:
  __device__ PushedRows(const Call &call, const Memory &memory) : call(call), memory(memory), me(call.round.exchange.watch.rank), source(me) {
    findSource();
  }

  __device__ bool isDone() const { return source < 0; }
  __device__ int rank() const { return source; }
  __device__ int index() const { return next; }
  __device__ int left() const { return end - next; } // of this source
  __device__ void pass(int count) {
    next += count;
    if (next >= end) findSource();
  }

  __device__ int count() const {
    int rows = 0;
    for (int rank = 0; rank < call.round.exchange.watch.ranks; ++rank)
      if (rank != me) rows += static_cast<int>(first(rank, blockIdx.x + 1) - first(rank, blockIdx.x));
    return rows;
  }

private:
  __device__ int64_t first(int rank, unsigned block) const { return rangeBegin(memory.received[rank], block); }

  __device__ void findSource() {
    const int ranks = call.round.exchange.watch.ranks;
    for (int tries = 0; tries < ranks; ++tries) {
      source = source + 1 == ranks ? 0 : source + 1;
      if (source == me) break;
      next = static_cast<int>(first(source, blockIdx.x));
      end = static_cast<int>(first(source, blockIdx.x + 1));
      if (next < end) return;
    }
    source = -1;
  }

  const Call &call;
  const Memory &memory;
  const int me;
  int source, next = 0, end = 0;
};

// Rows that travel as they are.
struct CopiedRows {
  const char *from;
  char *to;
  int count;
  int64_t bytes;

  __device__ const char *source(int row) const { return from + row * bytes; }
  __device__ int places(int) const { return 1; }
  __device__ char *place(int row, int) const { return to + row * bytes; }
};

// Pushes the rows that the mover does not, a group at each call, and hands them to it for their flags.
template <typename Kind> class Pusher {
public:
  __device__ Pusher(const Call &call, Memory *memory) : call(call), memory(memory), me(call.round.exchange.watch.rank), rows(call, *memory) {}

  __device__ bool isDone() const { return rows.isDone(); }

  __device__ void push() {
    const int count = rows.left() < call.group ? rows.left() : call.group;
    if (Kind::copies(call))
      copy(count);
    else
      compute(count);
    pushed += count;
    syncWorkers();
    if (threadIdx.x == 0) storeShared(&memory->progress.handed, pushed);
    rows.pass(count);
  }

private:
  __device__ char *arrival(int row) const { return arrivalOf(call, rows.rank(), laneRow(call, me, rows.index() + row), Kind::wireBytes(call)); }

  __device__ void copy(int count) {
    int begin = 0;
    const char *from = static_cast<const char *>(call.payload) + laneRow(call, rows.rank(), rows.index()) * call.rowBytes;
    copyRows<1>(call.team, &begin, call.width, CopiedRows{from, arrival(0), count, call.rowBytes});
  }

  __device__ void compute(int count) {
    const Team team = teamOf(call.team);
    if (Kind::isGrouped(call)) loadChoices(count);
    for (int i = team.number; i < count; i += team.count)
      for (int column = team.lane * kPiece; column < Kind::hidden(call); column += team.size * kPiece) {
        float piece[kPiece];
        loadRow<Kind>(call, memory->pushed, i * Kind::topK(call), laneRow(call, rows.rank(), rows.index() + i), column, piece);
        Kind::Wire::store(arrival(i), column, pieceSize(Kind::hidden(call), column), Kind::aligned(call), piece);
      }
  }

  __device__ void loadChoices(int count) {
    const int topK = Kind::topK(call);
    const int64_t begin = laneRow(call, rows.rank(), rows.index()) * topK;
    for (int i = static_cast<int>(threadIdx.x); i < count * topK; i += kThreads) {
      memory->pushed.rows[i] = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[begin + i];
      memory->pushed.weights[i] = regionOf<float>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[begin + i];
    }
    syncWorkers();
  }

  const Call &call;
  Memory *memory;
  const int me;
  PushedRows rows;
  int pushed = 0;
};

// Of the next row, by the mover, behind a fence.
__device__ inline void setFlag(const Call &call, const Begun &begun, const PushedRows &rows) {
  if (!(call.round.parts & kSignal) || call.round.stop != kGoOn) return;
  storeRelaxed(rowFlag(call, rows.rank(), call.round.exchange.watch.rank, rows.index()), begun.epoch);
}

// The rows that the mover pushes.
template <typename Kind> class PushCursor {
public:
  __device__ PushCursor(const Call &call, const Begun &begun, Memory *memory)
      : call(call), begun(begun), memory(memory), me(call.round.exchange.watch.rank), rows(call, *memory) {}

  __device__ bool next(bulk::Piece *piece) {
    if (rows.isDone()) return false;
    offset += bytes;
    if (bytes && offset >= call.rowBytes) {
      offset = 0;
      rows.pass(1);
    }
    if (rows.isDone()) return false;
    const int64_t left = call.rowBytes - offset;
    bytes = static_cast<uint32_t>(left < bulk::kStageBytes ? left : bulk::kStageBytes);
    *piece = {static_cast<const char *>(call.payload) + laneRow(call, rows.rank(), rows.index()) * call.rowBytes + offset, bytes};
    return true;
  }

  __device__ void storeTo(const char *stage) {
    bulk::store(arrivalOf(call, rows.rank(), laneRow(call, me, rows.index()), Kind::wireBytes(call)) + offset, stage, bytes);
  }

  __device__ void settle() { fenceSystem(); }

  __device__ void finish() {
    if (offset + bytes < call.rowBytes) return;
    setFlag(call, begun, rows);
    storeShared(&memory->progress.ended, ++ended);
  }

private:
  const Call &call;
  const Begun &begun;
  Memory *memory;
  const int me;
  PushedRows rows;
  int64_t offset = 0;
  uint32_t bytes = 0;
  int ended = 0;
};

// The mover's part: its first thread. Of rows that the workers push it sets the flags, as many with one fence as there are.
template <typename Kind> __device__ void moveRows(const Call &call, const Begun &begun, Memory *memory, char *stages) {
  PushedRows rows(call, *memory);
  if (call.isBulk) {
    PushCursor<Kind> cursor(call, begun, memory);
    bulk::moveAll(&memory->barriers, stages, rows.count(), cursor, cursor, cursor);
    return;
  }
  for (int ended = 0; !rows.isDone();) {
    awaitProgress(&memory->progress.handed, ended + 1);
    const int handed = loadShared(&memory->progress.handed);
    fenceSystem();
    for (; ended < handed; ++ended, rows.pass(1)) setFlag(call, begun, rows);
    storeShared(&memory->progress.ended, ended);
  }
}

//===--- sums -------------------------------------------------------------------------------------===//

__device__ inline void add(float (&to)[kPiece], const float (&from)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) to[i] += from[i];
}

// What is added up: the rows that the slots of a token have, at `column`.
struct Terms {
  const Memory &memory;
  int token, first, column; // the token's number in the group, and its first slot
  float own[kPiece];        // of this rank's own row, if there is one
};

template <typename Kind> __device__ void loadOwn(const Call &call, Terms *terms) {
  const int slot = terms->memory.ownSlot[terms->token];
  if (slot < 0) return;
  const int64_t row = laneRow(call, call.round.exchange.watch.rank, terms->memory.indices[terms->first + slot]);
  loadRow<Kind>(call, terms->memory.own, terms->first, row, terms->column, terms->own);
  if (!Kind::copies(call)) Kind::Wire::round(terms->own);
}

// 0 for a slot without a row.
template <typename Kind> __device__ void loadTerm(const Call &call, const Terms &terms, int slot, float (&term)[kPiece]) {
  const int at = terms.first + slot, target = terms.memory.targets[at], me = call.round.exchange.watch.rank;
  if (target >= 0 && target != me) {
    const char *arrival = arrivalOf(call, me, laneRow(call, target, terms.memory.indices[at]), Kind::wireBytes(call));
    Kind::Wire::load(arrival, terms.column, pieceSize(Kind::hidden(call), terms.column), Kind::aligned(call), term);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) term[i] = target < 0 ? 0.0f : terms.own[i];
}

template <typename Kind> __device__ void addFolded(const Call &call, const Terms &terms, float (&sum)[kPiece]) {
  loadTerm<Kind>(call, terms, 0, sum);
#pragma unroll 1
  for (int k = 1; k < Kind::topK(call); ++k) {
    float term[kPiece];
    loadTerm<Kind>(call, terms, k, term);
    add(sum, term);
  }
}

// The tree for any number of terms, without an array of them: level l holds the sum of 2^l neighbours whose other half is still to come, as a binary
// counter does. What is left over in the end is added from the right.
template <typename Kind> __device__ void addPairwise(const Call &call, const Terms &terms, float (&sum)[kPiece]) {
  const int kLevels = 5, topK = Kind::topK(call); // up to 31 terms; the largest tree has 22
  float levels[kLevels][kPiece];
#pragma unroll(Kind::kUnrolled)
  for (int k = 0; k < topK; ++k) {
    float term[kPiece];
    loadTerm<Kind>(call, terms, k, term);
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if ((k >> level & 1) == 0) {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) levels[level][i] = term[i];
        break;
      }
      add(levels[level], term);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) term[i] = levels[level][i];
    }
  }
  bool any = false;
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if (!(topK >> level & 1)) continue;
    if (any) add(levels[level], sum);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] = levels[level][i];
    any = true;
  }
}

// Whatever the tree, the sum of two terms and zeros is theirs, but that a zero in it makes a sum of -0 to +0.
template <typename Kind> __device__ void addTwo(const Call &call, Terms *terms, float (&sum)[kPiece]) {
  const Memory &memory = terms->memory;
  const int count = memory.numTerms[terms->token], *arriving = memory.arriving[terms->token];
  float other[kPiece];
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum[i] = other[i] = 0.0f;
  if (arriving[0] >= 0) loadTerm<Kind>(call, *terms, arriving[0], sum);
  if (arriving[1] >= 0) loadTerm<Kind>(call, *terms, arriving[1], other);
  loadOwn<Kind>(call, terms);
  if (memory.ownSlot[terms->token] >= 0)
#pragma unroll
    for (int i = 0; i < kPiece; ++i) (arriving[0] < 0 ? sum : other)[i] = terms->own[i];
  if (count > 1 || Kind::topK(call) > 1) add(sum, other);
  if (count > 1 && Kind::topK(call) > 2)
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] += 0.0f;
}

template <typename Kind> __device__ void addMany(const Call &call, Terms *terms, float (&sum)[kPiece]) {
  loadOwn<Kind>(call, terms);
  if (moert__combine_adds_pairwise(Kind::topK(call)))
    addPairwise<Kind>(call, *terms, sum);
  else
    addFolded<Kind>(call, *terms, sum);
}

template <typename Kind> __device__ void addPiece(const Call &call, Terms *terms, float (&sum)[kPiece]) {
  if (terms->memory.numTerms[terms->token] <= 2)
    addTwo<Kind>(call, terms, sum);
  else
    addMany<Kind>(call, terms, sum);
}

// Of rows that are whole vectors and travel as they are, into an output of their type: some pieces of the token's at most two rows are on their way
// at once.
template <typename Kind> __device__ void addVectors(const Call &call, const Memory &memory, const Team &team, int inGroup, int64_t token) {
  const int kWords = Numbers<Kind::kFormat>::kBytes * kPiece / 16, kBatch = 2;
  const int topK = Kind::topK(call), me = call.round.exchange.watch.rank, hidden = Kind::hidden(call);
  const int slots[2] = {memory.arriving[inGroup][0], memory.ownSlot[inGroup] >= 0 ? memory.ownSlot[inGroup] : memory.arriving[inGroup][1]};
  const uint4 *rows[2];
#pragma unroll
  for (int term = 0; term < 2; ++term) {
    const int target = slots[term] < 0 ? -1 : memory.targets[inGroup * topK + slots[term]];
    const int64_t row = target < 0 ? 0 : laneRow(call, target, memory.indices[inGroup * topK + slots[term]]);
    const char *base = target == me ? static_cast<const char *>(call.payload) : arrivalOf(call, me, 0, 0);
    rows[term] = target < 0 ? nullptr : reinterpret_cast<const uint4 *>(base + row * Kind::wireBytes(call));
  }
#pragma unroll 1
  for (int begin = team.lane; begin < hidden / kPiece; begin += kBatch * team.size) {
    uint4 words[2][kBatch][kWords] = {};
#pragma unroll
    for (int term = 0; term < 2; ++term)
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
#pragma unroll
        for (int word = 0; word < kWords; ++word)
          if (rows[term] && begin + i * team.size < hidden / kPiece) words[term][i][word] = rows[term][(begin + i * team.size) * kWords + word];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int column = (begin + i * team.size) * kPiece;
      float sum[kPiece], other[kPiece];
      if (column >= hidden) break;
      unpackPiece<Kind::kFormat>(words[0][i], sum);
      unpackPiece<Kind::kFormat>(words[1][i], other);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) {
        sum[j] = topK > 1 ? sum[j] + other[j] : rows[0] ? sum[j] : other[j];
        if (topK > 2) sum[j] += 0.0f; // which only adding two -0 leaves to be done
      }
      storePiece<Kind::kFormat>(call.out, token * hidden + column, kPiece, true, sum);
    }
  }
}

//===--- outputs ----------------------------------------------------------------------------------===//

__device__ inline void storeCodes(const Call &call, int64_t token, int64_t column, const uint32_t (&words)[kPiece / 4]) {
  const bool packed = moert__is_packed(call.quantized.format);
  uint8_t *codes = const_cast<uint8_t *>(call.quantized.codes) + token * call.quantized.codes_stride + (packed ? column / 2 : column);
  if (!call.alignedOut)
    for (int i = 0; i < (packed ? kPiece / 2 : kPiece); ++i) codes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
  else if (packed)
    *reinterpret_cast<uint32_t *>(codes) = words[0];
  else
    *reinterpret_cast<uint2 *>(codes) = make_uint2(words[0], words[1]);
}

template <typename Kind> __device__ void addToken(const Call &call, const Memory &memory, const Team &team, int inGroup, int64_t token) {
  const int hidden = Kind::hidden(call);
  if (call.addsVectors && memory.numTerms[inGroup] <= 2) {
    addVectors<Kind>(call, memory, team, inGroup, token);
    return;
  }
  for (int column = team.lane * kPiece; column < hidden; column += team.size * kPiece) {
    Terms terms = {memory, inGroup, inGroup * Kind::topK(call), column, {}};
    float sum[kPiece];
    addPiece<Kind>(call, &terms, sum);
    storePiece(call.outFormat, call.out, token * hidden + column, pieceSize(hidden, column), call.alignedOut, sum);
  }
}

// To codes and scales of the numbers that `out` would have in the payload's type. Whole warps come to the block scales: behind the row's end with
// zeros.
template <typename Kind> __device__ void quantizeToken(const Call &call, const Memory &memory, const Team &team, int inGroup, int64_t token) {
  const int format = call.quantized.format, block = moert__block_size(format), hidden = Kind::hidden(call);
  const QuantizeOptions options = {call.global, __frcp_rn(call.global), false, false, false};
  for (int begin = 0; begin < hidden; begin += team.size * kPiece) {
    const int column = begin + team.lane * kPiece;
    Terms terms = {memory, inGroup, inGroup * Kind::topK(call), column, {}};
    float sum[kPiece] = {};
    uint32_t words[kPiece / 4];
    if (column < hidden) addPiece<Kind>(call, &terms, sum);
    Numbers<Kind::kFormat>::round(sum);
    const uint32_t code = quantizeTile(format, options, sum, tileAmax(format, sum), words);
    if (column >= hidden) continue;
    storeCodes(call, token, column, words);
    if (column % block == 0) storeScale(call.quantized, moert__scale_offset(&call.quantized.grid, token, column / block), code);
  }
}

// Adds up the block's tokens, a group at each call. Where rows are it looks up for a window of several groups.
template <typename Kind> class Adder {
public:
  __device__ Adder(const Call &call, const Begun &begun, Memory *memory)
      : call(call), begun(begun), memory(memory), next(rangeBegin(call.tokens, blockIdx.x)), end(rangeBegin(call.tokens, blockIdx.x + 1)),
        window(next) {}

  // What does not depend on peers.
  __device__ void lookAtFirst() {
    if (!isDone()) look();
  }

  __device__ bool isDone() const { return next >= end; }

  // Adds up what has come; if `waits`, waits for that. False if the round has failed.
  __device__ bool addUp(bool waits) {
    const int thread = static_cast<int>(threadIdx.x), topK = Kind::topK(call), me = call.round.exchange.watch.rank;
    const int first = static_cast<int>(next - window), slot = first * topK + thread;
    const int target = thread < count() * topK ? memory->targets[slot] : -1;
    const bool waitsFor = (call.round.parts & kSignal) && target >= 0 && target != me;
    const uint32_t *flag = rowFlag(call, me, waitsFor ? target : me, waitsFor ? memory->indices[slot] : 0);
    const auto missing = [&] { return waitsFor && loadAcquire(flag) != begun.epoch ? target : -1; };
    const Arrival arrival = await(call.round, begun, waits, missing);
    if (arrival != Arrival::over) return arrival == Arrival::notYet;
    const Team team = teamOf(call.team);
    for (int i = team.number; i < count(); i += team.count) {
      if constexpr (Kind::kQuantizes)
        quantizeToken<Kind>(call, *memory, team, first + i, next + i);
      else
        addToken<Kind>(call, *memory, team, first + i, next + i);
    }
    next += count();
    if (!isDone() && next == window + size()) {
      syncWorkers(); // the window has been read
      window = next;
      look();
    }
    return true;
  }

private:
  __device__ int size() const {
    const int most = kSlots / Kind::topK(call) < kMaxGroup ? kSlots / Kind::topK(call) : kMaxGroup;
    return static_cast<int>(end - window < most ? end - window : most);
  }

  __device__ int count() const {
    const int64_t left = window + size() - next;
    return static_cast<int>(left < call.group ? left : call.group);
  }

  __device__ void look() {
    const int topK = Kind::topK(call), slots = size() * topK, thread = static_cast<int>(threadIdx.x), me = call.round.exchange.watch.rank;
    if (thread < slots) {
      memory->targets[thread] = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[window * topK + thread];
      memory->indices[thread] = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[window * topK + thread];
    }
    syncWorkers();
    if (thread < size()) findTerms(thread, topK, me);
    if (Kind::isGrouped(call) && thread < slots) loadOwnChoice(thread / topK * topK, thread % topK, topK, me);
    syncWorkers();
  }

  __device__ void findTerms(int token, int topK, int me) {
    int found = 0, arriving = 0;
    memory->ownSlot[token] = memory->arriving[token][0] = memory->arriving[token][1] = -1;
    for (int k = 0; k < topK; ++k) {
      const int target = memory->targets[token * topK + k];
      if (target < 0) continue;
      ++found;
      if (target == me)
        memory->ownSlot[token] = k;
      else if (arriving < 2)
        memory->arriving[token][arriving++] = k;
    }
    memory->numTerms[token] = found;
  }

  // Choice k of the token whose slots begin at `first`, if this rank has a row of it.
  __device__ void loadOwnChoice(int first, int k, int topK, int me) {
    for (int slot = first; slot < first + topK; ++slot) {
      if (memory->targets[slot] != me) continue;
      const int64_t choice = laneRow(call, me, memory->indices[slot]) * topK + k;
      memory->own.rows[first + k] = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[choice];
      memory->own.weights[first + k] = regionOf<float>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[choice];
    }
  }

  const Call &call;
  const Begun &begun;
  Memory *memory;
  int64_t next, end, window;
};

//===--- the kernel -------------------------------------------------------------------------------===//

// The workers' part. False if the round has failed.
template <typename Kind> __device__ bool exchangeRows(const Call &call, const Begun &begun, Memory *memory, Adder<Kind> &adder) {
  const bool receives = (call.round.parts & kReceive) && call.round.stop == kGoOn;
  const bool pushes = (call.round.parts & kPush) != 0;
  const int rows = pushes ? PushedRows(call, *memory).count() : 0;
  bool goesOn = true, isComplete = !pushes;
  Pusher<Kind> pusher(call, memory);
  // Also when adding has failed: the mover waits for all rows.
  while (!isComplete || (receives && goesOn && !adder.isDone())) {
    const bool canAdd = receives && goesOn && !adder.isDone();
    if (!isComplete && !call.isBulk && !pusher.isDone()) {
      pusher.push();
    } else if (!isComplete && (!canAdd || !anyWorker(loadShared(&memory->progress.ended) < rows))) {
      if (call.round.stop != kGoOn) return true;
      completePush(call.round, begun, MOERT_METAINFO_COMBINE_COMPLETION_FLAGS, memory->progress, rows);
      isComplete = true;
    }
    if (canAdd) goesOn = adder.addUp(isComplete);
  }
  return goesOn;
}

template <typename Kind, typename Check>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerSm) combineRows(const __grid_constant__ Call call, Check check) {
  extern __shared__ __align__(128) char stages[];
  Memory *memory = reinterpret_cast<Memory *>(stages + bulk::kStages * bulk::kStageBytes);
  awaitStream();
  Begun begun = readRound(call.round);
  const int source = static_cast<int>(threadIdx.x);
  const bool counts = source < call.round.exchange.watch.ranks && takesPart(begun, source);
  if (source < MOERT_MAX_RANKS) memory->received[source] = counts ? regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_COUNTERS)[source] : 0;
  if (threadIdx.x == 0) {
    memory->progress = {};
    bulk::open(&memory->barriers);
  }
  Adder<Kind> adder(call, begun, memory);
  if (isWorker()) adder.lookAtFirst();
  shareBegin(call.round, check, &begun);
  bool fails = begun.fails;
  if (call.round.stop == kStopAtCounts) return;
  if (!fails && isWorker()) {
    fails = !exchangeRows<Kind>(call, begun, memory, adder);
    const bool ends = !fails && call.round.stop == kGoOn && (call.round.parts & kReceive);
    if (Kind::kQuantizes && ends) zeroPadding(call.quantized, blockIdx.x, gridDim.x, threadIdx.x, kThreads);
    if (ends && blockIdx.x == 0) fails = !awaitCompletion(call.round, begun, MOERT_METAINFO_COMBINE_COMPLETION_FLAGS, [] {});
  } else if (!fails && (call.round.parts & kPush)) {
    if (threadIdx.x == kThreads) moveRows<Kind>(call, begun, memory, stages);
    __syncwarp(); // barriers count warps
  }
  if (call.round.stop != kGoOn) return;
  letNextBegin();
  if (!leaveRound(call.round, begun, fails)) return;
  poisonByBlock(call.output);
  poisonByBlock(call.scales);
}

static_assert(kSlots <= kThreads, "a thread looks up a slot");

} // namespace combine

#endif

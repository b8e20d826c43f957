//===- kernels.cuh - moe.combine on devices -------------------------------------------------------------===//
//
// lib/reference/moe_combine.c says what is added in which order; this kernel writes the same bits, but pushes where the host pulls.
//
// A block has a range of the rows that this rank received from each peer, and a range of this rank's tokens. The mover pushes its rows, as they go
// back, to COMBINE_ARRIVALS of their ranks. It takes them from the payload or, if they are not there as they travel, from stages that some warps
// fill. The other warps add up the tokens, each when its rows have come; this rank's own part of a token they take from the payload. No warp of the
// workers waits for another one, so that while some wait for memory others have it.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_COMBINE_KERNELS_CUH
#define MOE_KERNELS_MOE_COMBINE_KERNELS_CUH

#include "kernels/common/formats.cuh"
#include "kernels/common/fused.cuh"
#include "kernels/common/scales.cuh"
#include "lib/reference/moe_combine.h"

namespace combine {

using namespace fused;

const int kTogether = 4; // rows that are added or filled at a time: enough to hide how long one takes, few enough that each is done soon
const uint32_t kAllLanes = ~0u;

// Warps of a block beside the mover's. Each waits for memory by itself: where a lane has few pieces on their way, and much to do with them, there are
// more.
constexpr int warpsOf(bool isPlain, bool grouped) { return isPlain && grouped ? 16 : 8; }

// The kernel's parameter.
struct Call {
  Round round;
  const void *payload;
  void *out;
  int64_t tokens, maxTokens, hidden;
  int64_t flagLane; // from source to source of the row flags
  int32_t topK;
  bool grouped, isPlain; // isPlain: as of `Kind`
  bool copies;           // rows travel as they are, and the mover takes them from the payload
  int32_t fillers;       // warps that fill stages otherwise
  int32_t adders;        // and those that add
  int32_t fillShare,     // of them for a row
      addShare;          // and for a token
  moert__format outFormat;
  bool alignedPayload, alignedArea, alignedOut; // pieces of rows begin at multiples of their bytes, up to 16
  moert__quantized_call quantized;              // where codes and scales of a quantised output lie
  float global;                                 // G of nvfp4
  Output output, scales;
};

// What a block knows.
struct Memory {
  bulk::Barriers barriers;
  int32_t received[MOERT_MAX_RANKS]; // rows of each source
};

//===--- rows that travel -------------------------------------------------------------------------===//

// From row to row of what travels, of which a row has so many bytes: whole vectors, for the copy engine.
__host__ __device__ inline int64_t arrivalBytes(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// What their elements are: those of the payload, or E4M3. `Vectors` is a piece as it is in memory.
template <moert__format kFormat> struct Numbers {
  static const int kBytes = kFormat == MOERT__F32 ? 4 : 2, kWords = kBytes * kPiece / 16;
  struct Vectors {
    uint4 words[kWords];
  };
  static __device__ void load(const void *row, int64_t column, int size, bool aligned, Vectors *vectors) {
    loadVectors<kFormat>(row, column, size, aligned, vectors->words);
  }
  static __device__ void unpack(const Vectors &vectors, float (&piece)[kPiece]) { unpackPiece<kFormat>(vectors.words, piece); }
  static __device__ void store(void *row, int64_t column, const float (&piece)[kPiece]) { storePiece<kFormat>(row, column, kPiece, true, piece); }
  // To what they will be when they have travelled.
  static __device__ void round(float (&piece)[kPiece]) {
    Vectors vectors;
    packPiece<kFormat>(piece, vectors.words);
    unpack(vectors, piece);
  }
};

struct LowPrecision {
  static const int kBytes = 1, kWords = 1;
  struct Vectors {
    uint32_t words[2];
  };
  static __device__ void load(const void *row, int64_t column, int size, bool aligned, Vectors *vectors) {
    const uint8_t *codes = static_cast<const uint8_t *>(row) + column;
    if (aligned) {
      const uint2 words = *reinterpret_cast<const uint2 *>(codes);
      *vectors = {words.x, words.y};
      return;
    }
    *vectors = {};
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (i < size) vectors->words[i / 4] |= static_cast<uint32_t>(codes[i]) << 8 * (i % 4);
  }
  static __device__ void unpack(const Vectors &vectors, float (&piece)[kPiece]) {
    dequantizeTile(MOERT__FP8_BLOCK, 1.0f, false, vectors.words, piece);
  }
  static __device__ void store(void *row, int64_t column, const float (&piece)[kPiece]) {
    uint32_t words[2];
    encodeE4M3(piece, 1.0f, words);
    *reinterpret_cast<uint2 *>(static_cast<uint8_t *>(row) + column) = make_uint2(words[0], words[1]);
  }
  static __device__ void round(float (&piece)[kPiece]) {
    Vectors vectors;
    encodeE4M3(piece, 1.0f, vectors.words);
    unpack(vectors, piece);
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

// What a kernel is made for: the payload's type, what travels, the layout, whether codes come out; top_k and hidden_size, 0: known at run time.
// kIsPlain: everything is aligned, and payload, what travels, and output are of one type.
template <moert__format kFormat_, typename Wire_, Layout kLayout, bool kQuantizes_, bool kIsPlain_, int kTopK, int kHidden> struct Kind {
  using Wire = Wire_;
  static const moert__format kFormat = kFormat_;
  static const bool kQuantizes = kQuantizes_, kIsPlain = kIsPlain_;
  // Pieces of a row that a lane has on their way at once.
  static const int kSpan = !kIsPlain || kLayout == Layout::grouped ? 1 : 4 / Numbers<kFormat>::kWords;
  static const int kThreads = 32 * warpsOf(kIsPlain, kLayout == Layout::grouped);

  // Whether a warp looks where the rows of the next token are while it waits for those of one, for which weighted sums leave no registers.
  static const bool kLooksAhead = kLayout == Layout::rankMajor;

  static __device__ bool isGrouped(const Call &call) { return kLayout == Layout::any ? call.grouped : kLayout == Layout::grouped; }
  static __device__ bool copies(const Call &call) { return kIsPlain ? !isGrouped(call) : call.copies; }
  static __device__ int topK(const Call &call) { return kTopK ? kTopK : call.topK; }
  static __device__ int hidden(const Call &call) { return kHidden ? kHidden : static_cast<int>(call.hidden); }
  static __device__ bool alignedPayload(const Call &call) { return kIsPlain || call.alignedPayload; }
  static __device__ bool alignedArea(const Call &call) { return kIsPlain || call.alignedArea; }
  // From row to row of what travels.
  static __device__ int64_t wireBytes(const Call &call) { return arrivalBytes(static_cast<int64_t>(hidden(call)) * Wire::kBytes); }
};

__device__ inline int laneNumber() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warpNumber() { return static_cast<int>(threadIdx.x) / 32; }

// Of what came from `source` the row `index`, in all arrays that have a lane for each source.
__device__ inline int64_t laneRow(const Call &call, int source, int32_t index) { return source * call.maxTokens + index; }

__device__ inline uint32_t *rowFlag(const Call &call, int at, int source, int32_t index) {
  return regionOf<uint32_t>(call.round.exchange, at, MOERT_WORKSPACE_COMBINE_ROW_FLAGS) + source * call.flagLane + index;
}

__device__ inline char *arrivalOf(const Call &call, int at, int64_t row, int64_t wireBytes) {
  return regionOf<char>(call.round.exchange, at, MOERT_WORKSPACE_COMBINE_ARRIVALS) + row * wireBytes;
}

//===--- rows of the payload ----------------------------------------------------------------------===//

__device__ inline void clear(float (&piece)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) piece[i] = 0.0f;
}

// The choices of a token that this rank has rows of, one a lane.
struct Choices {
  int32_t row;
  float weight;
  uint32_t present; // the lanes that have one
};

// Of row `row` of what was received.
template <typename Kind> __device__ Choices choicesOf(const Call &call, int64_t row) {
  const int lane = laneNumber(), topK = Kind::topK(call);
  Choices choices = {-1, 0.0f, 0};
  if (lane < topK) {
    choices.row = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[row * topK + lane];
    choices.weight = regionOf<float>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[row * topK + lane];
  }
  choices.present = __ballot_sync(kAllLanes, choices.row >= 0);
  return choices;
}

// The columns at which a lane's pieces begin, kSpan at a time; whole warps go over them, for lanes have what others need. `part` of `share` warps for
// [begin, end).
template <int kSpan> class Columns {
public:
  __device__ Columns(int begin, int end, int part, int share) : next(begin + part * kStep), step(share * kStep), end(end) {}

  __device__ bool isDone() const { return next >= end; }
  __device__ void pass() { next += kSpan * step; }
  __device__ bool has(int i) const { return at(i) < end; }
  // Of a piece that there is not: any.
  __device__ int operator[](int i) const { return has(i) ? at(i) : next; }

private:
  static const int kStep = 32 * kPiece;
  __device__ int at(int i) const { return next + i * step + laneNumber() * kPiece; }
  int next, step, end;
};

template <int kSpan> using Pieces = float[kSpan][kPiece];

// Weighted, and added in the order of slots. All rows of a few choices are on their way at once.
template <typename Kind, int kSpan = Kind::kSpan>
__device__ void loadWeighted(const Call &call, const Choices &choices, const Columns<kSpan> &columns, Pieces<kSpan> &sums) {
  using Rows = Numbers<Kind::kFormat>;
  const int kBatch = 4, hidden = Kind::hidden(call);
#pragma unroll
  for (int i = 0; i < kSpan; ++i) clear(sums[i]);
#pragma unroll 1
  for (uint32_t left = choices.present; left;) {
    typename Rows::Vectors batch[kBatch][kSpan];
    float weights[kBatch];
    uint32_t next = left;
    int slot = 0;
#pragma unroll
    for (int k = 0; k < kBatch; ++k, next &= next - 1) {
      if (next) slot = __ffs(static_cast<int>(next)) - 1; // else the last one again: without branches all loads come first
      const int64_t row = static_cast<int64_t>(__shfl_sync(kAllLanes, choices.row, slot)) * hidden;
      weights[k] = __shfl_sync(kAllLanes, choices.weight, slot);
#pragma unroll
      for (int i = 0; i < kSpan; ++i)
        Rows::load(call.payload, row + columns[i], pieceSize(hidden, columns[i]), Kind::alignedPayload(call), &batch[k][i]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k, left &= left - 1)
#pragma unroll
      for (int i = 0; i < kSpan; ++i) {
        float piece[kPiece];
        Rows::unpack(batch[k][i], piece);
#pragma unroll
        for (int j = 0; j < kPiece; ++j) sums[i][j] = left ? fmaf(piece[j], weights[k], sums[i][j]) : sums[i][j];
      }
  }
}

// Row `row` of what was received, as it goes back, but for rounding.
template <typename Kind, int kSpan = Kind::kSpan>
__device__ void loadRow(const Call &call, const Choices &choices, int64_t row, const Columns<kSpan> &columns, Pieces<kSpan> &pieces) {
  if (Kind::isGrouped(call)) {
    loadWeighted<Kind>(call, choices, columns, pieces);
    return;
  }
  const int hidden = Kind::hidden(call);
#pragma unroll
  for (int i = 0; i < kSpan; ++i)
    loadPiece<Kind::kFormat>(call.payload, row * hidden + columns[i], pieceSize(hidden, columns[i]), Kind::alignedPayload(call), pieces[i]);
}

//===--- pushing ----------------------------------------------------------------------------------===//

// The block's rows that go to other ranks, and their pieces: the ranges of all sources, from the rank behind this one on.
class PushedRows {
public:
  __device__ PushedRows(const Call &call, const Memory &memory) : call(call), memory(memory), me(call.round.exchange.watch.rank), source(me) {
    findSource();
  }

  __device__ bool isDone() const { return source < 0; }
  __device__ int rank() const { return source; }
  __device__ int index() const { return next; }
  __device__ void pass() {
    if (++next >= end) findSource();
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

// By a warp, one of `call.fillers` of that number: in turns with the others it fills stages with what travels of the block's rows.
template <typename Kind> __device__ void fillStages(const Call &call, Memory *memory, char *stages, int warp) {
  const int kColumns = bulk::kStageBytes / Kind::Wire::kBytes, hidden = Kind::hidden(call), share = call.fillShare, turns = call.fillers / share;
  const int part = warp % share;
  int number = 0; // of the stage
  for (PushedRows rows(call, *memory); !rows.isDone(); rows.pass()) {
    const int64_t row = laneRow(call, rows.rank(), rows.index());
    for (int first = 0; first < hidden; first += kColumns, ++number) {
      if (number % turns != warp / share) continue;
      const int end = first + kColumns < hidden ? first + kColumns : hidden;
      char *stage = stages + number % bulk::kBlockStages * bulk::kStageBytes;
      Choices choices = {};
      if (Kind::isGrouped(call)) choices = choicesOf<Kind>(call, row);
      bulk::awaitFree(&memory->barriers, number);
      for (Columns<Kind::kSpan> columns(first, end, part, share); !columns.isDone(); columns.pass()) {
        Pieces<Kind::kSpan> pieces;
        loadRow<Kind>(call, choices, row, columns, pieces);
#pragma unroll
        for (int i = 0; i < Kind::kSpan; ++i)
          if (columns.has(i)) Kind::Wire::store(stage, columns[i] - first, pieces[i]);
      }
      bulk::fill(&memory->barriers, number);
    }
  }
}

// The rows that the mover pushes.
template <typename Kind> class PushCursor {
public:
  __device__ PushCursor(const Call &call, const Begun &begun, const Memory &memory)
      : call(call), begun(begun), me(call.round.exchange.watch.rank), rowBytes(static_cast<uint32_t>(Kind::wireBytes(call))), rows(call, memory) {}

  __device__ bool next(bulk::Piece *piece) {
    if (rows.isDone()) return false;
    offset += bytes;
    if (bytes && offset >= rowBytes) {
      offset = 0;
      rows.pass();
    }
    if (rows.isDone()) return false;
    bytes = rowBytes - offset < bulk::kStageBytes ? rowBytes - offset : bulk::kStageBytes;
    *piece = {static_cast<const char *>(call.payload) + laneRow(call, rows.rank(), rows.index()) * rowBytes + offset, bytes};
    return true;
  }

  __device__ void storeTo(const char *stage) {
    bulk::store(arrivalOf(call, rows.rank(), laneRow(call, me, rows.index()), rowBytes) + offset, stage, bytes);
  }

  __device__ void settle() { fenceSystem(); }

  __device__ void finish() {
    if (offset + bytes < rowBytes || !(call.round.parts & kSignal) || call.round.stop != kGoOn) return;
    storeRelaxed(rowFlag(call, rows.rank(), me, rows.index()), begun.epoch);
  }

private:
  const Call &call;
  const Begun &begun;
  const int me;
  const uint32_t rowBytes;
  PushedRows rows;
  uint32_t offset = 0, bytes = 0;
};

// The mover's part: its first thread.
template <typename Kind> __device__ void moveRows(const Call &call, const Begun &begun, Memory *memory, char *stages) {
  PushCursor<Kind> cursor(call, begun, *memory);
  const int rows = PushedRows(call, *memory).count();
  if (Kind::copies(call))
    bulk::moveAll<bulk::kBlockStages>(&memory->barriers, stages, rows, cursor);
  else
    bulk::moveFilled(&memory->barriers, stages, rows, cursor);
}

//===--- sums -------------------------------------------------------------------------------------===//

// A token: where the rows of its slots are, one a lane, and which there are.
struct Token {
  int32_t target, index; // the rank that has the row, -1: none; and its number there
  uint32_t present, own; // the lanes that have one; the lane whose row this rank has itself
  Choices choices;       // of that row
};

template <typename Kind> __device__ Token tokenOf(const Call &call, int64_t number) {
  const int lane = laneNumber(), topK = Kind::topK(call), me = call.round.exchange.watch.rank;
  Token token = {-1, 0, 0, 0, {}};
  if (lane < topK) {
    token.target = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[number * topK + lane];
    token.index = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[number * topK + lane];
  }
  token.present = __ballot_sync(kAllLanes, token.target >= 0);
  token.own = __ballot_sync(kAllLanes, token.target == me);
  if (Kind::isGrouped(call) && token.own) {
    const int32_t index = __shfl_sync(kAllLanes, token.index, __ffs(static_cast<int>(token.own)) - 1);
    token.choices = choicesOf<Kind>(call, laneRow(call, me, index));
  }
  return token;
}

// Where the row is that slot `slot` of a token has: at this rank, that of another, or this rank's own as the mover would take it.
template <typename Kind> __device__ const char *rowOf(const Call &call, const Token &token, int slot) {
  const int me = call.round.exchange.watch.rank, target = __shfl_sync(kAllLanes, token.target, slot);
  const int64_t row = laneRow(call, target, __shfl_sync(kAllLanes, token.index, slot)), bytes = Kind::wireBytes(call);
  return target == me ? static_cast<const char *>(call.payload) + row * bytes : arrivalOf(call, me, row, bytes);
}

template <typename Kind> __device__ void loadVectors(const Call &call, const char *row, int column, typename Kind::Wire::Vectors *vectors) {
  const bool aligned = Kind::alignedArea(call) && (!Kind::copies(call) || Kind::alignedPayload(call));
  Kind::Wire::load(row, column, pieceSize(Kind::hidden(call), column), aligned, vectors);
}

// What this rank itself adds to a token, as it would travel, if that has to be computed.
template <typename Kind, int kSpan> __device__ void loadOwn(const Call &call, const Token &token, const Columns<kSpan> &columns, Pieces<kSpan> &own) {
  const int32_t index = __shfl_sync(kAllLanes, token.index, __ffs(static_cast<int>(token.own)) - 1);
  loadRow<Kind, kSpan>(call, token.choices, laneRow(call, call.round.exchange.watch.rank, index), columns, own);
#pragma unroll
  for (int i = 0; i < kSpan; ++i) Kind::Wire::round(own[i]);
}

__device__ inline void add(float (&to)[kPiece], const float (&from)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) to[i] += from[i];
}

// What slot `slot` adds at `column`, 0 if it has no row. `own`: what this rank's does, if that is computed.
template <typename Kind>
__device__ void loadTerm(const Call &call, const Token &token, const float (&own)[kPiece], int slot, int column, float (&term)[kPiece]) {
  const uint32_t loaded = Kind::copies(call) ? token.present : token.present & ~token.own;
  typename Kind::Wire::Vectors vectors = {};
  if (loaded >> slot & 1) loadVectors<Kind>(call, rowOf<Kind>(call, token, slot), column, &vectors);
  Kind::Wire::unpack(vectors, term);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) term[i] = (token.present & ~loaded) >> slot & 1 ? own[i] : term[i];
}

template <typename Kind>
__device__ void addFolded(const Call &call, const Token &token, const float (&own)[kPiece], int column, float (&sum)[kPiece]) {
  loadTerm<Kind>(call, token, own, 0, column, sum);
#pragma unroll 1
  for (int k = 1; k < Kind::topK(call); ++k) {
    float term[kPiece];
    loadTerm<Kind>(call, token, own, k, column, term);
    add(sum, term);
  }
}

// The tree for any number of terms, without an array of them: level l holds the sum of 2^l neighbours whose other half is still to come, as a binary
// counter does. What is left over in the end is added from the right.
template <typename Kind>
__device__ void addPairwise(const Call &call, const Token &token, const float (&own)[kPiece], int column, float (&sum)[kPiece]) {
  const int kLevels = 5, topK = Kind::topK(call); // up to 31 terms; the largest tree has 22
  float levels[kLevels][kPiece];
#pragma unroll 1
  for (int k = 0; k < topK; ++k) {
    float term[kPiece];
    loadTerm<Kind>(call, token, own, k, column, term);
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

// A token of at most two rows: whatever the tree, the sum of two terms and zeros is theirs, but that a zero in it makes a sum of -0 to +0. All that
// is to be loaded is on its way at once.
template <typename Kind> class SumOfTwo {
public:
  static const int kSpan = Kind::kSpan;

  __device__ SumOfTwo(const Call &call, const Token &token) : call(call), token(token) {
    uint32_t left = Kind::copies(call) ? token.present : token.present & ~token.own;
#pragma unroll
    for (int i = 0; i < 2; ++i, left &= left - 1) rows[i] = left ? rowOf<Kind>(call, token, __ffs(static_cast<int>(left)) - 1) : nullptr;
  }

  __device__ void operator()(const Columns<kSpan> &columns, Pieces<kSpan> &sums) const {
    typename Kind::Wire::Vectors vectors[2][kSpan] = {};
    Pieces<kSpan> own;
    const bool hasOwn = !Kind::copies(call) && token.own;
    if (hasOwn) loadOwn<Kind>(call, token, columns, own);
#pragma unroll
    for (int term = 0; term < 2; ++term)
#pragma unroll
      for (int i = 0; i < kSpan; ++i)
        if (rows[term]) loadVectors<Kind>(call, rows[term], columns[i], &vectors[term][i]);
#pragma unroll
    for (int i = 0; i < kSpan; ++i) {
      float other[kPiece];
      Kind::Wire::unpack(vectors[0][i], sums[i]);
      Kind::Wire::unpack(vectors[1][i], other);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) other[j] = hasOwn ? own[i][j] : other[j];
      addTo(sums[i], other);
    }
  }

private:
  __device__ void addTo(float (&sum)[kPiece], const float (&other)[kPiece]) const {
    const int topK = Kind::topK(call);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (topK > 1)
        sum[i] += other[i];
      else if (!rows[0]) // the only row is this rank's
        sum[i] = other[i];
      if (topK > 2) sum[i] += 0.0f; // which only adding two -0 leaves to be done
    }
  }

  const Call &call;
  const Token &token;
  const char *rows[2]; // those that can be loaded
};

// A token of any rows.
template <typename Kind> class SumOfMany {
public:
  static const int kSpan = 1;

  __device__ SumOfMany(const Call &call, const Token &token) : call(call), token(token) {}

  __device__ void operator()(const Columns<1> &columns, Pieces<1> &sums) const {
    Pieces<1> own = {};
    if (!Kind::copies(call) && token.own) loadOwn<Kind>(call, token, columns, own);
    if (moert__combine_adds_pairwise(Kind::topK(call)))
      addPairwise<Kind>(call, token, own[0], columns[0], sums[0]);
    else
      addFolded<Kind>(call, token, own[0], columns[0], sums[0]);
  }

private:
  const Call &call;
  const Token &token;
};

//===--- outputs ----------------------------------------------------------------------------------===//

template <typename Kind, int kSpan, typename Sum>
__device__ void storeSums(const Call &call, int64_t number, Columns<kSpan> columns, const Sum &sum) {
  const int hidden = Kind::hidden(call);
#pragma unroll 1
  for (; !columns.isDone(); columns.pass()) {
    Pieces<kSpan> sums;
    sum(columns, sums);
#pragma unroll
    for (int i = 0; i < kSpan; ++i) {
      if (!columns.has(i)) continue;
      const int64_t at = number * hidden + columns[i];
      if constexpr (Kind::kIsPlain)
        storePiece<Kind::kFormat>(call.out, at, kPiece, true, sums[i]);
      else
        storePiece(call.outFormat, call.out, at, pieceSize(hidden, columns[i]), call.alignedOut, sums[i]);
    }
  }
}

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

// To codes and scales of the numbers that `out` would have in the payload's type. Whole warps come to the block scales: behind the row's end with
// zeros.
template <typename Kind, typename Sum> __device__ void quantizeSums(const Call &call, int64_t number, Columns<1> columns, const Sum &sum) {
  const int format = call.quantized.format, block = moert__block_size(format);
  const QuantizeOptions options = {call.global, __frcp_rn(call.global), false, false, false};
  for (; !columns.isDone(); columns.pass()) {
    Pieces<1> sums;
    uint32_t words[kPiece / 4];
    sum(columns, sums);
    if (!columns.has(0)) clear(sums[0]);
    Numbers<Kind::kFormat>::round(sums[0]);
    const uint32_t code = quantizeTile(format, options, sums[0], tileAmax(format, sums[0]), words);
    if (!columns.has(0)) continue;
    storeCodes(call, number, columns[0], words);
    if (columns[0] % block == 0) storeScale(call.quantized, moert__scale_offset(&call.quantized.grid, number, columns[0] / block), code);
  }
}

// What warp `part` of those for a token makes of the sum.
template <typename Kind, typename Sum> __device__ void writeToken(const Call &call, int64_t number, int part, const Sum &sum) {
  const Columns<Sum::kSpan> columns(0, Kind::hidden(call), part, call.addShare);
  if constexpr (Kind::kQuantizes)
    quantizeSums<Kind>(call, number, columns, sum);
  else
    storeSums<Kind>(call, number, columns, sum);
}

// The rank whose row this lane's slot of the token waits for, -1: none.
template <typename Kind> __device__ int missingRow(const Call &call, const Begun &begun, const Token &token) {
  const int me = call.round.exchange.watch.rank;
  if (!(call.round.parts & kSignal) || token.target < 0 || token.target == me) return -1;
  return loadAcquire(rowFlag(call, me, token.target, token.index)) == begun.epoch ? -1 : token.target;
}

// By a warp that adds: its part of the block's tokens. False if the round has failed. `token`: the first.
template <typename Kind> __device__ bool addTokens(const Call &call, const Begun &begun, int warp, Token token) {
  const int share = call.addShare, step = call.adders / share, end = rangeBegin(call.tokens, blockIdx.x + 1);
  for (int number = rangeBegin(call.tokens, blockIdx.x) + warp / share; number < end; number += step) {
    Token next = token;
    if (Kind::kLooksAhead && number + step < end) next = tokenOf<Kind>(call, number + step);
    if (!awaitWarp(call.round, begun, [&] { return missingRow<Kind>(call, begun, token); })) return false;
    if (__popc(token.present) <= 2)
      writeToken<Kind>(call, number, warp % share, SumOfTwo<Kind>(call, token));
    else
      writeToken<Kind>(call, number, warp % share, SumOfMany<Kind>(call, token));
    if (Kind::kLooksAhead)
      token = next;
    else if (number + step < end)
      token = tokenOf<Kind>(call, number + step);
  }
  return true;
}

//===--- the kernel -------------------------------------------------------------------------------===//

// Of a warp among those that add; negative: of one that fills stages. The mover's is behind the last.
__device__ inline int adderNumber(const Call &call) { return warpNumber() - call.fillers; }

// By each warp. False if the round has failed. `first`: of one that adds, its first token, if it has any.
template <typename Kind> __device__ bool exchangeRows(const Call &call, const Begun &begun, Memory *memory, char *stages, const Token *first) {
  const bool pushes = (call.round.parts & kPush) != 0, receives = (call.round.parts & kReceive) && call.round.stop == kGoOn;
  const int adder = adderNumber(call);
  if (adder == call.adders) {
    if (pushes && laneNumber() == 0) moveRows<Kind>(call, begun, memory, stages);
    __syncwarp(); // barriers count warps
    return !receives || blockIdx.x != 0 || awaitPeers(call.round, begun);
  }
  if (adder < 0) {
    if (pushes) fillStages<Kind>(call, memory, stages, warpNumber());
    return true;
  }
  if (!receives) return true;
  const unsigned thread = threadIdx.x - 32 * static_cast<unsigned>(call.fillers);
  if (Kind::kQuantizes) zeroPadding(call.quantized, blockIdx.x, gridDim.x, thread, 32 * static_cast<unsigned>(call.adders));
  return !first || addTokens<Kind>(call, begun, adder, *first);
}

template <typename Kind, typename Check>
__global__ void __launch_bounds__(Kind::kThreads + 32, kBlocksPerSm) combineRows(const __grid_constant__ Call call, Check check) {
  extern __shared__ __align__(128) char stages[];
  Memory *memory = reinterpret_cast<Memory *>(stages + bulk::kBlockStages * bulk::kStageBytes);
  awaitStream();
  Begun begun = readRound(call.round);
  const int source = static_cast<int>(threadIdx.x), adder = adderNumber(call);
  const bool counts = source < call.round.exchange.watch.ranks && takesPart(begun, source);
  if (source < MOERT_MAX_RANKS) memory->received[source] = counts ? regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_COUNTERS)[source] : 0;
  if (threadIdx.x == 0) bulk::open(&memory->barriers, Kind::copies(call) ? 1 : call.fillShare);
  const int number = rangeBegin(call.tokens, blockIdx.x) + adder / call.addShare;
  const bool adds = adder >= 0 && adder < call.adders && number < rangeBegin(call.tokens, blockIdx.x + 1);
  Token first = {};
  if (adds) first = tokenOf<Kind>(call, number); // which does not depend on peers
  shareBegin(call.round, check, &begun);
  if (call.round.stop == kStopAtCounts) return;
  const bool fails = begun.fails || !exchangeRows<Kind>(call, begun, memory, stages, adds ? &first : nullptr);
  if (call.round.stop != kGoOn) return;
  if (!leaveRound(call.round, begun, fails)) return;
  poisonByBlock(call.output);
  poisonByBlock(call.scales);
}

} // namespace combine

#endif

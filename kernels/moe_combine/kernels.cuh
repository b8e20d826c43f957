//===- kernels.cuh - moe.combine on devices -------------------------------------------------------------===//
//
// lib/reference/moe_combine.c says what is added in which order; this kernel writes the same bits, but pushes where the host pulls.
//
// A block has a range of the rows that this rank received from each source, and a range of this rank's tokens. The mover pushes its rows, as they go
// back, to COMBINE_ARRIVALS of their ranks. It takes them from the payload or, if they are not there as they travel, from stages that some warps
// fill; in this case the rank's own rows go the same way. The other warps add up the tokens, each when its rows have come. No warp of the workers
// waits for another one, so that while some wait for memory others have it.
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

// Tokens that are added at a time, and stages that are filled: enough to hide how long one takes, few enough that each is done soon, and that other
// stages are on their way meanwhile.
const int kAddedTogether = 4, kFilledTogether = 3;
const uint32_t kAllLanes = ~0u;

// Of a block, with the mover's and the teller's, which are the last: whole quarters, with as many registers as leave room for another block
// (`kBlocksPerSm`).
const int kBlockWarps = 12;
// Those that fill stages, if any do.
__host__ __device__ constexpr int fillersOf(bool streams) { return streams ? 6 : 4; }

// What a warp that weighs rows has of them in shared memory: one turn of vectors a lane in use, and the others on their way.
const int kWeighingTurns = 12, kWeighed = 2, kWeighingBytes = kWeighingTurns * kWeighed * 32 * 16;

// Where rows are weighed, stages are smaller: they wait for what is weighed, not for the link.
__host__ __device__ constexpr int stagesOf(bool streams) { return streams ? 5 : bulk::kBlockStages; }
__host__ __device__ constexpr int pitchOf(bool streams) { return streams ? bulk::kStageBytes / 2 : bulk::kStageBytes; }

// How warps share work: so many of them have a piece together, and so many pieces at a time.
struct Share {
  int32_t warps, pieces;
};

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
  int32_t moverTells;    // and, of few rows, tells of them too, of so many at a time; 0: it does not
  int32_t fillers;       // warps that fill stages otherwise
  int32_t adders;        // and those that add
  Share fill, add;       // of rows, and of tokens, among them
  moert__format outFormat;
  bool alignedPayload, alignedArea, alignedOut; // pieces of rows begin at multiples of their bytes, up to 16
  moert__quantized_call quantized;              // where codes and scales of a quantised output lie
  float global;                                 // G of nvfp4
  Output output, scales;
};

// Rows of a source that are a block's.
struct Range {
  int32_t begin, count;
};

// What a block knows.
struct Memory {
  bulk::Barriers barriers;
  Range rows[MOERT_MAX_RANKS]; // of each source
};

// A block's shared memory: its stages, what warps weigh, and `Memory`.
__host__ __device__ constexpr int memoryOffset(bool streams) {
  return stagesOf(streams) * pitchOf(streams) + (streams ? fillersOf(true) * kWeighingBytes : 0);
}
inline size_t sharedBytes(bool streams) { return static_cast<size_t>(memoryOffset(streams)) + sizeof(Memory); }

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
  static const int kSpan = !kIsPlain ? 1 : (kLayout == Layout::grouped ? 2 : 4) / Numbers<kFormat>::kWords;
  // Weighted rows come by way of shared memory, which leaves room for fewer stages.
  static const bool kStreams = kIsPlain && kLayout == Layout::grouped;
  static const int kStages = stagesOf(kStreams), kPitch = pitchOf(kStreams);

  static __device__ bool isGrouped(const Call &call) { return kLayout == Layout::any ? call.grouped : kLayout == Layout::grouped; }
  static __device__ bool copies(const Call &call) { return kIsPlain ? !isGrouped(call) : call.copies; }
  static __device__ int topK(const Call &call) { return kTopK ? kTopK : call.topK; }
  static __device__ int hidden(const Call &call) { return kHidden ? kHidden : static_cast<int>(call.hidden); }
  static __device__ bool alignedPayload(const Call &call) { return kIsPlain || call.alignedPayload; }
  static __device__ bool alignedArea(const Call &call) { return kIsPlain || call.alignedArea; }
  // From row to row of what travels.
  static __device__ int64_t wireBytes(const Call &call) { return arrivalBytes(static_cast<int64_t>(hidden(call)) * Wire::kBytes); }
};

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

// Of row `row` of what was received, but for what lanes say of each other.
template <typename Kind> __device__ Choices loadChoices(const Call &call, int64_t row) {
  const int lane = laneNumber(), topK = Kind::topK(call);
  Choices choices = {-1, 0.0f, 0};
  if (lane < topK) {
    choices.row = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_ROWS)[row * topK + lane];
    choices.weight = regionOf<float>(call.round.exchange, MOERT_METAINFO_RECV_TOPK_WEIGHTS)[row * topK + lane];
  }
  return choices;
}

__device__ inline void shareChoices(Choices *choices) { choices->present = __ballot_sync(kAllLanes, choices->row >= 0); }

template <typename Kind> __device__ Choices choicesOf(const Call &call, int64_t row) {
  Choices choices = loadChoices<Kind>(call, row);
  shareChoices(&choices);
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

// Some pieces of a row, which begin at `columns`: those of its choices weighted, and added in the order of slots. All of kBatch choices are on their
// way at once.
template <typename Kind, int kBatch, int kSpan>
__device__ void loadWeighted(const Call &call, const Choices &choices, const int (&columns)[kSpan], Pieces<kSpan> &sums) {
  using Rows = Numbers<Kind::kFormat>;
  const int hidden = Kind::hidden(call);
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

//===--- pushing ----------------------------------------------------------------------------------===//

// The block's rows that are pushed: of all sources in turns, so that all links are used at once, from the rank behind this one on. `ownToo`: those of
// this rank too. `together`: of a source, up to so many neighbours at a time.
class PushedRows {
public:
  __device__ PushedRows(const Call &call, const Memory &memory, bool ownToo, int together)
      : call(call), memory(memory), me(call.round.exchange.watch.rank), together(together), ownToo(ownToo), source(me) {
    for (int rank = 0; rank < call.round.exchange.watch.ranks; ++rank) {
      const int count = rowsOf(rank).count;
      most = count > most ? count : most;
    }
    number = -together;
    pass();
  }

  __device__ bool isDone() const { return number >= most; }
  __device__ int rank() const { return source; }
  __device__ int index() const { return rows.begin + number; }
  __device__ int count() const { return rows.count - number < together ? rows.count - number : together; }

  __device__ void pass() {
    const int ranks = call.round.exchange.watch.ranks;
    do {
      if (source == me) number += together;
      source = source + 1 == ranks ? 0 : source + 1;
      rows = rowsOf(source);
    } while (!isDone() && number >= rows.count);
  }

private:
  __device__ Range rowsOf(int rank) const { return rank == me && !ownToo ? Range{0, 0} : memory.rows[rank]; }

  const Call &call;
  const Memory &memory;
  const int me, together;
  const bool ownToo;
  int source, number, most = 0;
  Range rows = {};
};

// A stage takes so many columns.
template <typename Kind> constexpr int kColumns = Kind::kPitch / Kind::Wire::kBytes;

// What goes to a stage: row `row` of what was received, from column `first` on, as the number-th.
struct Filled {
  int64_t row;
  int first, number;
};

// The stages that a warp fills, with the others of its number `turn`: those that have it in turns.
template <typename Kind> class FilledStages {
public:
  __device__ FilledStages(const Call &call, const Memory &memory, int turn) : call(call), rows(call, memory, true, 1), number(turn) {
    for (int i = 0; i < turn; ++i) passOne();
  }

  __device__ bool isDone() const { return rows.isDone(); }
  __device__ Filled get() const { return {laneRow(call, rows.rank(), rows.index()), first, number}; }
  __device__ void pass() {
    for (int i = 0; i < call.fill.pieces; ++i) passOne();
    number += call.fill.pieces;
  }

private:
  __device__ void passOne() {
    if (isDone()) return;
    first += kColumns<Kind>;
    if (first < Kind::hidden(call)) return;
    first = 0;
    rows.pass();
  }

  const Call &call;
  PushedRows rows;
  int number, first = 0;
};

// Of them, `part` of the warps that have it together.
template <typename Kind, int kSpan> __device__ Columns<kSpan> columnsOf(const Call &call, const Filled &filled, int part) {
  const int hidden = Kind::hidden(call), end = hidden - filled.first < kColumns<Kind> ? hidden : filled.first + kColumns<Kind>;
  return Columns<kSpan>(filled.first, end, part, call.fill.warps);
}

template <typename Kind> __device__ Choices choicesOfNext(const Call &call, const FilledStages<Kind> &next) {
  return Kind::isGrouped(call) && !next.isDone() ? choicesOf<Kind>(call, next.get().row) : Choices{-1, 0.0f, 0};
}

// What goes to stages, but for rounding.
template <typename Kind> class Loader {
public:
  static const int kSpan = 1;

  __device__ Loader(const Call &call, const Memory &, int, int) : call(call) {}

  __device__ void next(const Filled &filled, const Choices &choices, int column, Pieces<1> &pieces) const {
    const int hidden = Kind::hidden(call);
    if (Kind::isGrouped(call))
      loadWeighted<Kind, 4, 1>(call, choices, {column}, pieces);
    else
      loadPiece<Kind::kFormat>(call.payload, filled.row * hidden + column, pieceSize(hidden, column), Kind::alignedPayload(call), pieces[0]);
  }

private:
  const Call &call;
};

// Likewise, of weighted rows, in the order in which they are used. What comes next is on its way to shared memory meanwhile: registers would not hold
// enough of it.
template <typename Kind> class Weigher {
public:
  static const int kWords = Numbers<Kind::kFormat>::kWords, kSpan = kWeighed / kWords;

  __device__ Weigher(const Call &call, const Memory &memory, int turn, int part) : call(call), part(part), ahead(call, memory, turn) {
    extern __shared__ __align__(128) char shared[];
    slots = reinterpret_cast<uint4 *>(shared + Kind::kStages * Kind::kPitch + warpNumber() * kWeighingBytes) + laneNumber();
    upcoming = choicesOfNext(call, ahead).row;
    beginStage();
    for (int i = 0; i < kWeighingTurns - 1; ++i) fetch();
  }

  __device__ void next(const Filled &, const Choices &choices, int, Pieces<kSpan> &sums) {
#pragma unroll
    for (int i = 0; i < kSpan; ++i) clear(sums[i]);
#pragma unroll 1
    for (uint32_t left = choices.present; left; left &= left - 1) {
      fetch();
      bulk::awaitCopies<kWeighingTurns - 1>();
      const float weight = __shfl_sync(kAllLanes, choices.weight, __ffs(static_cast<int>(left)) - 1);
#pragma unroll
      for (int i = 0; i < kSpan; ++i) {
        uint4 vectors[kWords];
        float piece[kPiece];
#pragma unroll
        for (int word = 0; word < kWords; ++word) vectors[word] = *slotOf(used, i * kWords + word);
        unpackPiece<Kind::kFormat>(vectors, piece);
#pragma unroll
        for (int j = 0; j < kPiece; ++j) sums[i][j] = fmaf(piece[j], weight, sums[i][j]);
      }
      used = used + 1 == kWeighingTurns ? 0 : used + 1;
    }
  }

private:
  __device__ uint4 *slotOf(int turn, int word) const { return slots + 32 * (turn * kWeighed + word); }

  // Goes on to the next stage of which there is anything to fetch.
  __device__ void beginStage() {
    for (left = 0; !left && !ahead.isDone();) {
      row = upcoming;
      present = __ballot_sync(kAllLanes, row >= 0);
      columns = columnsOf<Kind, kSpan>(call, ahead.get(), part);
      left = columns.isDone() ? 0 : present;
      ahead.pass();
      upcoming = choicesOfNext(call, ahead).row;
    }
  }

  // Some pieces of one choice.
  __device__ void fetch() {
    if (left) {
      const int64_t chosen = __shfl_sync(kAllLanes, row, __ffs(static_cast<int>(left)) - 1);
      const uint4 *from = static_cast<const uint4 *>(call.payload) + chosen * (Kind::hidden(call) / kPiece * kWords);
#pragma unroll
      for (int i = 0; i < kSpan; ++i)
#pragma unroll
        for (int word = 0; word < kWords; ++word) bulk::copyVector(slotOf(fetched, i * kWords + word), from + columns[i] / kPiece * kWords + word);
      left &= left - 1;
      if (!left) pass();
    }
    bulk::closeCopies();
    fetched = fetched + 1 == kWeighingTurns ? 0 : fetched + 1;
  }

  __device__ void pass() {
    columns.pass();
    left = columns.isDone() ? 0 : present;
    if (!left) beginStage();
  }

  const Call &call;
  const int part;
  FilledStages<Kind> ahead;
  Columns<kSpan> columns = {0, 0, 0, 1};
  int32_t row, upcoming;  // of the lane's choice: of the stage that is being fetched, and of the one behind it
  uint32_t present, left; // the choices of the former, and those whose pieces are to be fetched yet
  uint4 *slots;
  int used = 0, fetched = 0; // of the turns
};

// By a warp that fills stages, in turns with the others, with what travels of the block's rows. While it fills one, the choices of the next are read.
template <typename Kind> __device__ void fillStages(const Call &call, Memory *memory, char *stages, int warp) {
  using Source = std::conditional_t<Kind::kStreams, Weigher<Kind>, Loader<Kind>>;
  const int turn = warp / call.fill.warps, part = warp % call.fill.warps;
  if (turn >= call.fill.pieces) return;
  FilledStages<Kind> next(call, *memory, turn);
  Choices choicesAhead = choicesOfNext(call, next);
  Source source(call, *memory, turn, part);
  while (!next.isDone()) {
    const Filled filled = next.get();
    const Choices choices = choicesAhead;
    char *stage = stages + filled.number % Kind::kStages * Kind::kPitch;
    next.pass();
    choicesAhead = choicesOfNext(call, next);
    bulk::awaitFree<Kind::kStages>(&memory->barriers, filled.number);
#pragma unroll 1
    for (auto columns = columnsOf<Kind, Source::kSpan>(call, filled, part); !columns.isDone(); columns.pass()) {
      Pieces<Source::kSpan> pieces;
      source.next(filled, choices, columns[0], pieces);
#pragma unroll
      for (int i = 0; i < Source::kSpan; ++i)
        if (columns.has(i)) Kind::Wire::store(stage, columns[i] - filled.first, pieces[i]);
    }
    bulk::fill<Kind::kStages>(&memory->barriers, filled.number);
  }
}

// The rows that the mover pushes: several short ones at a time, for neighbours are neighbours where they go.
template <typename Kind> class PushCursor {
public:
  __device__ PushCursor(const Call &call, const Begun &begun, const Memory &memory)
      : call(call), begun(begun), me(call.round.exchange.watch.rank), rowBytes(static_cast<uint32_t>(Kind::wireBytes(call))),
        rows(call, memory, !Kind::copies(call), Kind::copies(call) && rowBytes < Kind::kPitch ? static_cast<int>(Kind::kPitch / rowBytes) : 1) {}

  __device__ bool next(bulk::Piece *piece) {
    if (rows.isDone()) return false;
    offset += bytes;
    if (bytes && offset >= rowBytes) {
      offset = 0;
      rows.pass();
    }
    if (rows.isDone()) return false;
    const uint32_t all = rowBytes * static_cast<uint32_t>(rows.count());
    bytes = all - offset < Kind::kPitch ? all - offset : Kind::kPitch;
    *piece = {static_cast<const char *>(call.payload) + laneRow(call, rows.rank(), rows.index()) * rowBytes + offset, bytes};
    return true;
  }

  __device__ void storeTo(const char *stage) {
    bulk::store(arrivalOf(call, rows.rank(), laneRow(call, me, rows.index()), rowBytes) + offset, stage, bytes);
  }

  __device__ void settle() { fenceSystem(); }

  __device__ void finish() {
    if (offset + bytes < rowBytes || !(call.round.parts & kSignal) || call.round.stop != kGoOn) return;
    for (int i = 0; i < rows.count(); ++i) storeRelaxed(rowFlag(call, rows.rank(), me, rows.index() + i), begun.epoch);
  }

private:
  const Call &call;
  const Begun &begun;
  const int me;
  const uint32_t rowBytes;
  PushedRows rows;
  uint32_t offset = 0, bytes = 0;
};

// By the mover.
template <typename Kind> __device__ void moveRows(const Call &call, Memory *memory, char *stages, const PushCursor<Kind> &cursor) {
  if (Kind::copies(call))
    bulk::moveAll<Kind::kStages>(&memory->barriers, stages, cursor, call.moverTells ? bulk::Telling::byMover : bulk::Telling::byTeller,
                                 call.moverTells);
  else
    bulk::moveFilled<Kind::kStages, Kind::kPitch>(&memory->barriers, stages, cursor);
}

//===--- sums -------------------------------------------------------------------------------------===//

// A token: where the rows of its slots are, one a lane, and which there are.
struct Token {
  int32_t target, index; // the rank that has the row, -1: none; and its number there
  uint32_t present;      // the lanes that have one
};

template <typename Kind> __device__ Token tokenOf(const Call &call, int64_t number) {
  const int lane = laneNumber(), topK = Kind::topK(call);
  Token token = {-1, 0, 0};
  if (lane < topK) {
    token.target = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[number * topK + lane];
    token.index = regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[number * topK + lane];
  }
  token.present = __ballot_sync(kAllLanes, token.target >= 0);
  return token;
}

// This rank's own rows are in the payload if they need not be computed.
template <typename Kind> __device__ bool isInPayload(const Call &call, int target) {
  return Kind::copies(call) && target == call.round.exchange.watch.rank;
}

// Where the row is that `target` has as number `index` of this rank's.
template <typename Kind> __device__ const char *rowAt(const Call &call, int target, int32_t index) {
  const int64_t row = laneRow(call, target, index), bytes = Kind::wireBytes(call);
  if (isInPayload<Kind>(call, target)) return static_cast<const char *>(call.payload) + row * bytes;
  return arrivalOf(call, call.round.exchange.watch.rank, row, bytes);
}

// That of slot `slot` of a token.
template <typename Kind> __device__ const char *rowOf(const Call &call, const Token &token, int slot) {
  return rowAt<Kind>(call, __shfl_sync(kAllLanes, token.target, slot), __shfl_sync(kAllLanes, token.index, slot));
}

template <typename Kind> __device__ void loadVectors(const Call &call, const char *row, int column, typename Kind::Wire::Vectors *vectors) {
  const bool aligned = Kind::alignedArea(call) && (!Kind::copies(call) || Kind::alignedPayload(call));
  Kind::Wire::load(row, column, pieceSize(Kind::hidden(call), column), aligned, vectors);
}

__device__ inline void add(float (&to)[kPiece], const float (&from)[kPiece]) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) to[i] += from[i];
}

// What slot `slot` adds at `column`, 0 if it has no row.
template <typename Kind> __device__ void loadTerm(const Call &call, const Token &token, int slot, int column, float (&term)[kPiece]) {
  typename Kind::Wire::Vectors vectors = {};
  if (token.present >> slot & 1) loadVectors<Kind>(call, rowOf<Kind>(call, token, slot), column, &vectors);
  Kind::Wire::unpack(vectors, term);
}

template <typename Kind> __device__ void addFolded(const Call &call, const Token &token, int column, float (&sum)[kPiece]) {
  loadTerm<Kind>(call, token, 0, column, sum);
#pragma unroll 1
  for (int k = 1; k < Kind::topK(call); ++k) {
    float term[kPiece];
    loadTerm<Kind>(call, token, k, column, term);
    add(sum, term);
  }
}

// The tree for any number of terms, without an array of them: level l holds the sum of 2^l neighbours whose other half is still to come, as a binary
// counter does. What is left over in the end is added from the right.
template <typename Kind> __device__ void addPairwise(const Call &call, const Token &token, int column, float (&sum)[kPiece]) {
  const int kLevels = 5, topK = Kind::topK(call); // up to 31 terms; the largest tree has 22
  float levels[kLevels][kPiece];
#pragma unroll 1
  for (int k = 0; k < topK; ++k) {
    float term[kPiece];
    loadTerm<Kind>(call, token, k, column, term);
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

  // NULL: there is no such row.
  __device__ SumOfTwo(const Call &call, const char *first, const char *second) : call(call), rows{first, second} {}

  __device__ void operator()(const Columns<kSpan> &columns, Pieces<kSpan> &sums) const {
    typename Kind::Wire::Vectors vectors[2][kSpan] = {};
    const int topK = Kind::topK(call);
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
      for (int j = 0; j < kPiece; ++j) {
        if (topK > 1) sums[i][j] += other[j];
        if (topK > 2) sums[i][j] += 0.0f; // which only adding two -0 leaves to be done
      }
    }
  }

private:
  const Call &call;
  const char *rows[2];
};

template <typename Kind> __device__ SumOfTwo<Kind> sumOfTwo(const Call &call, const Token &token) {
  const uint32_t first = token.present, second = first & (first - 1);
  const auto rowIn = [&](uint32_t slots) { return slots ? rowOf<Kind>(call, token, __ffs(static_cast<int>(slots)) - 1) : nullptr; };
  return SumOfTwo<Kind>(call, rowIn(first), rowIn(second));
}

// A token of any rows.
template <typename Kind> class SumOfMany {
public:
  static const int kSpan = 1;

  __device__ SumOfMany(const Call &call, const Token &token) : call(call), token(token) {}

  __device__ void operator()(const Columns<1> &columns, Pieces<1> &sums) const {
    if (moert__combine_adds_pairwise(Kind::topK(call)))
      addPairwise<Kind>(call, token, columns[0], sums[0]);
    else
      addFolded<Kind>(call, token, columns[0], sums[0]);
  }

private:
  const Call &call;
  const Token token;
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
  const Columns<Sum::kSpan> columns(0, Kind::hidden(call), part, call.add.warps);
  if constexpr (Kind::kQuantizes)
    quantizeSums<Kind>(call, number, columns, sum);
  else
    storeSums<Kind>(call, number, columns, sum);
}

template <typename Kind> __device__ void addToken(const Call &call, const Token &token, int64_t number, int part) {
  if (__popc(token.present) <= 2)
    writeToken<Kind>(call, number, part, sumOfTwo<Kind>(call, token));
  else
    writeToken<Kind>(call, number, part, SumOfMany<Kind>(call, token));
}

//===--- adding what has come ---------------------------------------------------------------------===//

// A token of a lane: its first rows, how many it has, and the first of its slots whose row has not come.
template <typename Kind> class AwaitedToken {
public:
  __device__ AwaitedToken(const Call &call, const Begun &begun, int64_t number, bool exists)
      : call(call), begun(begun), choices(number * Kind::topK(call)), slot(exists && (call.round.parts & kSignal) ? -1 : Kind::topK(call)) {
    const int topK = exists ? Kind::topK(call) : 0;
#pragma unroll
    for (int k = 0; k < topK; ++k) {
      const char *row = targetOf(k) < 0 ? nullptr : rowAt<Kind>(call, targetOf(k), indexOf(k));
      if (rows == 0) first = row;
      if (rows == 1) second = row;
      rows += row != nullptr;
    }
    if (slot < 0) passSlot();
  }

  // As `look` of `awaitWarp`; kHere when all have come.
  __device__ int look() {
    while (slot < Kind::topK(call) && loadAcquire(flag) == begun.epoch) passSlot();
    return slot < Kind::topK(call) ? target : kHere;
  }

  // By all lanes: the sum of lane `lane`'s token.
  __device__ void add(int lane, int64_t number, int part) const {
    const auto of = [&](const char *row) { return reinterpret_cast<const char *>(__shfl_sync(kAllLanes, reinterpret_cast<uintptr_t>(row), lane)); };
    if (__shfl_sync(kAllLanes, rows, lane) <= 2)
      writeToken<Kind>(call, number, part, SumOfTwo<Kind>(call, of(first), of(second)));
    else
      writeToken<Kind>(call, number, part, SumOfMany<Kind>(call, tokenOf<Kind>(call, number)));
  }

private:
  __device__ int32_t targetOf(int k) const { return regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_TARGET_RANKS)[choices + k]; }
  __device__ int32_t indexOf(int k) const { return regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_TOPK_SEND_INDICES)[choices + k]; }

  __device__ void passSlot() {
    while (++slot < Kind::topK(call)) {
      target = targetOf(slot);
      if (target < 0 || isInPayload<Kind>(call, target)) continue;
      flag = rowFlag(call, call.round.exchange.watch.rank, target, indexOf(slot));
      return;
    }
  }

  const Call &call;
  const Begun &begun;
  const int64_t choices;
  int slot, target = 0, rows = 0;
  const char *first = nullptr, *second = nullptr;
  const uint32_t *flag = nullptr;
};

// By a warp that adds: up to 32 of its tokens, from `begin` on, each when its rows have come, for they do not come in the order of tokens. False if
// the round has failed.
template <typename Kind> __device__ bool addWindow(const Call &call, const Begun &begun, int begin, int end, int part) {
  const int lane = laneNumber(), step = call.add.pieces, mine = begin + lane * step;
  AwaitedToken<Kind> awaited(call, begun, mine, mine < end);
  uint32_t left = __ballot_sync(kAllLanes, mine < end), here = 0;
  const auto look = [&] { return left >> lane & 1 ? awaited.look() : kIdle; };
  while (left) {
    if (!here) here = __ballot_sync(kAllLanes, look() == kHere);
    if (!here) {
      if (!awaitWarp<true>(call.round, begun, look)) return false;
      continue;
    }
    __syncwarp(); // what one lane has seen others may read
    const int chosen = __ffs(static_cast<int>(here)) - 1;
    awaited.add(chosen, begin + chosen * step, part);
    left &= ~(1u << chosen);
    here &= left;
  }
  return true;
}

// The rank whose row this lane's slot of the token waits for; as `look` of `awaitWarp`.
template <typename Kind> __device__ int missingRow(const Call &call, const Begun &begun, const Token &token) {
  if (!(call.round.parts & kSignal) || token.target < 0 || isInPayload<Kind>(call, token.target)) return kIdle;
  return loadAcquire(rowFlag(call, call.round.exchange.watch.rank, token.target, token.index)) == begun.epoch ? kHere : token.target;
}

// By a warp that adds, from token `begin` on. `first`: that token. False if the round has failed.
template <typename Kind> __device__ bool addTokens(const Call &call, const Begun &begun, int warp, int begin, const Token &first) {
  const int step = call.add.pieces, part = warp % call.add.warps, end = rangeBegin(call.tokens, blockIdx.x + 1);
  if (begin + step >= end) { // no other
    if (!awaitWarp(call.round, begun, [&] { return missingRow<Kind>(call, begun, first); })) return false;
    addToken<Kind>(call, first, begin, part);
    return true;
  }
  for (; begin < end; begin += 32 * step)
    if (!addWindow<Kind>(call, begun, begin, end, part)) return false;
  return true;
}

//===--- the kernel -------------------------------------------------------------------------------===//

// Of a warp among those that add; negative: of one that fills stages. The mover's and the teller's are behind the last.
__device__ inline int adderNumber(const Call &call) { return warpNumber() - call.fillers; }

// The first token of a warp that adds, which does not depend on peers; -1: it has none.
__device__ inline int firstNumber(const Call &call) {
  const int adder = adderNumber(call), number = rangeBegin(call.tokens, blockIdx.x) + adder / call.add.warps;
  const bool adds = adder >= 0 && adder < call.add.warps * call.add.pieces && number < rangeBegin(call.tokens, blockIdx.x + 1);
  return adds ? number : -1;
}

// By each warp. False if the round has failed. `number`, `first`: its first token.
template <typename Kind>
__device__ bool exchangeRows(const Call &call, const Begun &begun, Memory *memory, char *stages, int number, const Token &first) {
  const bool pushes = (call.round.parts & kPush) != 0, receives = (call.round.parts & kReceive) && call.round.stop == kGoOn;
  const int adder = adderNumber(call);
  if (adder >= call.adders) {
    const PushCursor<Kind> cursor(call, begun, *memory);
    const bool moves = adder == call.adders, isOne = bulk::isChosen();
    if (pushes && moves && isOne) moveRows<Kind>(call, memory, stages, cursor);
    if (pushes && !moves && !call.moverTells && isOne) bulk::tellAll(memory->barriers, cursor);
    __syncwarp(); // barriers count warps
    return !receives || !(call.round.parts & kSignal) || !moves || blockIdx.x != 0 || awaitBegun(call.round, begun, [](int) { return true; });
  }
  if (adder < 0) {
    if (pushes) fillStages<Kind>(call, memory, stages, warpNumber());
    return true;
  }
  if (!receives) return true;
  const unsigned thread = threadIdx.x - 32 * static_cast<unsigned>(call.fillers);
  if (Kind::kQuantizes) zeroPadding(call.quantized, blockIdx.x, gridDim.x, thread, 32 * static_cast<unsigned>(call.adders));
  return number < 0 || addTokens<Kind>(call, begun, adder, number, first);
}

template <typename Kind, typename Check>
__global__ void __launch_bounds__(32 * kBlockWarps, kBlocksPerSm) combineRows(const __grid_constant__ Call call, Check check) {
  extern __shared__ __align__(128) char stages[];
  Memory *memory = reinterpret_cast<Memory *>(stages + memoryOffset(Kind::kStreams));
  awaitStream();
  Begun begun = readRound(call.round);
  const int source = static_cast<int>(threadIdx.x), number = firstNumber(call);
  const bool counts = source < call.round.exchange.watch.ranks && takesPart(begun, source);
  if (source < MOERT_MAX_RANKS) {
    // Of the last dispatch, where no peer writes: one that is ahead tells the counts of the next dispatch already (RECV_COUNTERS).
    const int32_t received = counts ? regionOf<int32_t>(call.round.exchange, MOERT_METAINFO_COUNT_FLAGS)[source] : 0;
    const int32_t begin = rangeBegin(received, blockIdx.x);
    memory->rows[source] = {begin, rangeBegin(received, blockIdx.x + 1) - begin};
  }
  if (threadIdx.x == 0) bulk::open(&memory->barriers, Kind::copies(call) ? 1 : call.fill.warps);
  Token first = {};
  if (number >= 0) first = tokenOf<Kind>(call, number);
  shareBegin(call.round, check, &begun);
  if (call.round.stop == kStopAtCounts) return;
  if (warpNumber() == kBlockWarps - 1 && laneNumber() == 0 && call.round.stop == kGoOn) countBegun(call.round, begun); // of rounds that fail, too
  __syncwarp();
  const bool fails = begun.fails || !exchangeRows<Kind>(call, begun, memory, stages, number, first);
  if (call.round.stop != kGoOn) return;
  if (!leaveTurn(turnsOf(call.round), begun.turn, fails)) return;
  poisonByBlock(call.output);
  poisonByBlock(call.scales);
}

} // namespace combine

#endif

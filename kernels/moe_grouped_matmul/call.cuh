//===- call.cuh - what the kernels of moe.grouped_matmul share ----------------------------------------===//
//
// Three kernels in turn: planGroups checks the offsets and counts the tiles of the groups, checkRowIds looks for the first id outside the rows (and
// so does gatherRows of sm90_warps.cuh, which takes its place), and a product kernel, whose blocks take one tile after the other from the list that
// the plan describes. The host knows neither offsets nor tiles. Each lets the next begin at once, and waits for the end of the one in front before it
// reads anything: the plan has one block, those of the others wait for nothing else, and a product kernel only begins when all of the second have
// room.
//
// A product kernel says how it divides a group by a type with
//
//   static int64_t count(const Call &, int64_t rows)                             the tiles of a group
//   static Tile at(const Call &, int64_t group, int64_t rows, int64_t number)    one of them; its rows are counted from the group's first
//
// The tiles of a group follow each other, those of the same weights side by side: they share them in the cache.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_CALL_CUH
#define MOE_KERNELS_GROUPED_MATMUL_CALL_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/device.cuh"
#include "kernels/common/formats.cuh"
#include "lib/reference/swiglu.h"
#include <cuda.h>

namespace grouped_matmul {

// The activation of an instance; at run time it is that of the call.
enum class Activation { none, swiglu, atRunTime };

// In the context's arena.
struct Plan {
  unsigned long long firstBadRow; // whose id is outside the rows; kNoRow: none
  int isSound;                    // the offsets are
  int64_t firstTile[1];           // [groups + 1]: tiles of the groups before
};
constexpr unsigned long long kNoRow = ~0ull;

struct Indices { // i32 or ui32
  const void *data;
  bool isUnsigned;
};

struct Call {
  CUtensorMap map, wideMap; // of the weights: launch.cu
  int64_t groups, rows, columns, depth, inRows, outColumns;
  int64_t expectedRows;            // of groups, what a kernel is chosen by
  const void *in, *weights, *bias; // bias may be NULL
  void *out;
  const float *rowWeights;    // may be NULL
  int codesFormat;            // of weights of 4 bits
  const uint8_t *codesScales; // NULL: weights are numbers
  const uint8_t *fragments;   // the same weights, prepared; NULL: they are not
  const float *globalScales;  // of the groups: the encoder's factors; may be NULL
  const float *factors[2];    // of the groups: of the sums of columns of out, and of those behind them; may be NULL
  Indices offsets, rowIds;    // the latter's data may be NULL
  moert__format biasFormat, outFormat;
  bool swiglu;
  moert__swiglu_form form;
  bool readsVectors, writesVectors; // of the inputs and weights, of out: rows begin at multiples of 16 bytes
  bool readsScales;                 // the scales that a stage takes of a row begin at a multiple of their size
  bool isMapped;                    // the copy engine has maps of the weights
  bool checksRowIds;
  uint4 *gathered; // NULL: the product kernel takes rows from `in`; else they are there, in the order of the groups, as gatherRows leaves them
  Plan *plan;
  moert__fault *fault;
  int op;
};

__device__ inline int64_t indexAt(const Indices &indices, int64_t position) {
  return indices.isUnsigned ? static_cast<int64_t>(static_cast<const uint32_t *>(indices.data)[position])
                            : static_cast<int64_t>(static_cast<const int *>(indices.data)[position]);
}

//===--- the plan ---------------------------------------------------------------------------------===//

// The same order of checks as the host's, given that those before held.
__device__ inline int offsetFault(const Call &call, int64_t g) {
  int64_t offset = indexAt(call.offsets, g);
  if (offset < 0) return MOERT__FAULT_OFFSET_NEGATIVE;
  if (g > 0 && offset < indexAt(call.offsets, g - 1)) return MOERT__FAULT_OFFSET_DESCENDS;
  return offset > call.rows ? MOERT__FAULT_OFFSET_EXCEEDS : MOERT__FAULT_NONE;
}

__device__ inline void reportOffset(const Call &call, int64_t g) {
  int kind = offsetFault(call, g);
  int64_t offset = indexAt(call.offsets, g);
  if (kind == MOERT__FAULT_OFFSET_DESCENDS)
    report(call.fault, call.op, kind, g, offset, g - 1, indexAt(call.offsets, g - 1));
  else
    report(call.fault, call.op, kind, g, offset, call.rows);
}

__device__ inline bool offsetsAreSound(const Call &call) {
  __shared__ unsigned long long firstBad;
  if (threadIdx.x == 0) firstBad = kNoRow;
  __syncthreads();
  for (int64_t g = threadIdx.x; g <= call.groups; g += kWideThreads)
    if (offsetFault(call, g) != MOERT__FAULT_NONE) atomicMin(&firstBad, static_cast<unsigned long long>(g));
  __syncthreads();
  if (firstBad == kNoRow) return true;
  if (threadIdx.x == 0) reportOffset(call, static_cast<int64_t>(firstBad));
  return false;
}

__device__ inline int64_t rowsOf(const Call &call, int64_t group) { return indexAt(call.offsets, group + 1) - indexAt(call.offsets, group); }

// One block.
template <typename Tiles> __global__ void __launch_bounds__(kWideThreads) planGroups(const __grid_constant__ Call call) {
  letNextBegin();
  awaitStream();
  Plan *plan = call.plan;
  bool sound = offsetsAreSound(call);
  if (threadIdx.x == 0) {
    plan->isSound = sound;
    plan->firstBadRow = kNoRow;
    plan->firstTile[0] = 0;
  }
  if (!sound) return;
  int64_t before = 0;
  for (int64_t first = 0; first < call.groups; first += kWideThreads) {
    int64_t group = first + threadIdx.x, tiles = group < call.groups ? Tiles::count(call, rowsOf(call, group)) : 0, total;
    int64_t end = before + sumBefore(tiles, &total) + tiles;
    if (group < call.groups) plan->firstTile[group + 1] = end;
    before += total;
  }
}

__global__ void checkRowIds(const __grid_constant__ Call call) {
  letNextBegin();
  awaitStream();
  if (!call.plan->isSound) return;
  int64_t end = indexAt(call.offsets, call.groups);
  int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t r = indexAt(call.offsets, 0) + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; r < end; r += stride) {
    int64_t id = indexAt(call.rowIds, r);
    if (id < 0 || id >= call.inRows) atomicMin(&call.plan->firstBadRow, static_cast<unsigned long long>(r));
  }
}

__device__ inline void reportRowId(const Call &call, int64_t row) {
  report(call.fault, call.op, MOERT__FAULT_ROW_ID, row, indexAt(call.rowIds, row), call.inRows);
}

// Whether there is something to multiply with: what the kernels before found wrong is reported, and nothing written.
__device__ inline bool callIsSound(const Call &call) {
  if (!call.plan->isSound) return false;
  unsigned long long row = call.plan->firstBadRow;
  if (row == kNoRow) return true;
  if (blockIdx.x == 0 && threadIdx.x == 0) reportRowId(call, static_cast<int64_t>(row));
  return false;
}

//===--- tiles ------------------------------------------------------------------------------------===//

struct Tile {
  int64_t group, firstRow, column; // `column` of out
  int rows;
  bool isNarrow; // of those kernels that have two kinds
};

template <Activation kActivation> __device__ bool isGated(const Call &call) {
  return kActivation == Activation::atRunTime ? call.swiglu : kActivation == Activation::swiglu;
}

__device__ inline int64_t ceilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

__device__ inline int64_t countTiles(const Call &call) { return call.plan->firstTile[call.groups]; }

// The last group whose first tile is at most `number`: it has tiles. A warp probes 32 places at a time.
__device__ inline int64_t groupOf(const Call &call, int64_t number) {
  int lane = threadIdx.x % 32;
  int64_t first = 0, count = call.groups;
  while (count > 1) {
    int64_t step = (count + 31) / 32;
    bool reached = lane * step < count && call.plan->firstTile[first + lane * step] <= number;
    int last = 31 - __clz(__ballot_sync(~0u, reached));
    first += last * step;
    count = count - last * step < step ? count - last * step : step;
  }
  return first;
}

template <typename Tiles> __device__ Tile tileAt(const Call &call, int64_t number) {
  const int64_t group = groupOf(call, number);
  Tile tile = Tiles::at(call, group, rowsOf(call, group), number - call.plan->firstTile[group]);
  tile.firstRow += indexAt(call.offsets, group);
  return tile;
}

// Weight rows of a gated tile alternate, eight of the gate and the eight of the up projection that belong to them: both are then in the same tile.
// What a tile has beyond the last row repeats that one: it is multiplied and not stored.
__device__ inline int64_t weightRowOf(const Call &call, const Tile &tile, int place, bool gated) {
  int64_t column = tile.column + (gated ? place / 16 * 8 + place % 8 : place);
  if (column >= call.outColumns) column = call.outColumns - 1;
  return tile.group * call.columns + (gated && place % 16 >= 8 ? call.outColumns + column : column);
}

// The row that a place of a tile multiplies; likewise.
__device__ inline int64_t rowOf(const Call &call, const Tile &tile, int place) {
  const int64_t row = tile.firstRow + (place < tile.rows ? place : tile.rows - 1);
  return call.rowIds.data && !call.gathered ? indexAt(call.rowIds, row) : row;
}

//===--- results ----------------------------------------------------------------------------------===//

__device__ inline float addBias(const Call &call, int64_t group, int64_t column, float sum) {
  if (call.globalScales) sum *= moert__divide(1.0f, call.globalScales[group]);
  if (call.factors[0]) sum *= call.factors[column >= call.outColumns][group];
  return call.bias ? sum + moert__load(call.biasFormat, call.bias, group * call.columns + column) : sum;
}

__device__ inline void storeEight(const Call &call, int64_t index, const float (&values)[8]) {
  if (!call.writesVectors) {
    for (int i = 0; i < 8; ++i) moert__store(call.outFormat, call.out, index + i, values[i]);
  } else if (call.outFormat == MOERT__F32) {
    float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(call.out) + index);
    to[0] = make_float4(values[0], values[1], values[2], values[3]);
    to[1] = make_float4(values[4], values[5], values[6], values[7]);
  } else {
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] = call.outFormat == MOERT__BF16 ? pairTo16Bits<MOERT__BF16>(values[2 * i], values[2 * i + 1])
                                               : pairTo16Bits<MOERT__F16>(values[2 * i], values[2 * i + 1]);
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(call.out) + index) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

__device__ inline void loadFour(float *to, const float *from) { *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from); }

// Scale, bias, activation and row weight of a column, from the sum of its weight row; of a gated tile, from that of the gate and that of the up
// projection.
__device__ inline float finishOne(const Call &call, int64_t group, int64_t row, int64_t column, bool gated, float sum, float up) {
  float value = addBias(call, group, column, sum);
  if (gated) value = moert__swiglu(call.form, value, addBias(call, group, call.outColumns + column, up));
  return call.rowWeights ? value * call.rowWeights[row] : value;
}

// Likewise of eight columns, and their rounding; in a gated tile the sums of the up projection are behind the eight of the gate. `sums` is at a
// multiple of 16 bytes.
__device__ inline void finishEight(const Call &call, int64_t group, int64_t row, int64_t column, bool gated, const float *sums) {
  alignas(16) float values[8], ups[8] = {};
  loadFour(values, sums);
  loadFour(values + 4, sums + 4);
  if (gated) {
    loadFour(ups, sums + 8);
    loadFour(ups + 4, sums + 12);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = finishOne(call, group, row, column + i, gated, values[i], ups[i]);
  storeEight(call, row * call.outColumns + column, values);
}

} // namespace grouped_matmul

#endif

//===- kernels.cuh - moe.nvfp4_routed on devices ------------------------------------------------------===//
//
// In turn: planRoutes, orderRoutes (of few choices planRoutes does its work), a grouped product to activations, requantize, a grouped product to
// results, finishTokens. A choice of an expert has a row, those of an expert follow each other in the order of their pairs; rows have no padding.
//
// Each kernel lets the next begin at once, and waits for the end of the one in front before it reads or writes: so all that are further in front have
// ended, too. If the plan does not fit, no expert has rows, and nothing is written.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_NVFP4_ROUTED_KERNELS_CUH
#define MOE_KERNELS_MOE_NVFP4_ROUTED_KERNELS_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/device.cuh"
#include "kernels/common/formats.cuh"
#include "lib/reference/routed.h"

namespace routed {

const int kThreads = 256;       // of a block, but for those of planRoutes, which have kWideThreads
const int kIdsOfThread = 8;     // that one looks at before it places them
const int kFewPairs = 256;      // that the block which plans also orders
const int kEncoded = 4;         // numbers that a thread makes codes of
const int kFinishedColumns = 8; // of the output, that a thread adds up

struct Call {
  int64_t tokens, pairs, experts, firstExpert, hidden, inner, entries, blocks; // as in moert__nvfp4_routed
  int topK, blockM;
  const uint8_t *states, *stateScales;
  int64_t stateStride; // bytes between rows of the former
  const int32_t *ids;
  const float *weights;
  int32_t *sortedIds, *expertIds, *postPadded, *cumsum; // the plan
  uint16_t *out;
  float factor;
  bool accumulate;
  bool ordersAtOnce;                // planRoutes orders the pairs
  bool readsVectors, writesVectors; // of states, of out
  moert__fault *fault;
  int op;
  // In the context's arena.
  int *isSound;          // [1]: the plan fits
  int32_t *firstBlock;   // [experts + 2]: of the bins, in the plan; its end
  int32_t *firstRow;     // [experts + 1]: of the experts; their end. Zeros if the plan does not fit
  int32_t *tokenOfRow;   // [pairs]
  int32_t *rowOfPair;    // [pairs], -1: none
  uint16_t *numbers;     // [tokens][hidden] of bf16: the states
  uint16_t *activations; // [rows][inner] of bf16
  float *results;        // [rows][inner] of the first product, then [rows][hidden] of the second
};

__device__ inline int binOf(const Call &call, int64_t pair) { return moert__routed_bin_of(call.ids[pair], call.firstExpert, call.experts); }

//===--- the plan ---------------------------------------------------------------------------------===//

__device__ inline void countBins(const Call &call, int *counts) {
  for (int64_t bin = threadIdx.x; bin <= call.experts; bin += kWideThreads) counts[bin] = 0;
  __syncthreads();
  for (int64_t pair = threadIdx.x; pair < call.pairs; pair += kWideThreads) atomicAdd(&counts[binOf(call, pair)], 1);
  __syncthreads();
}

// Sets firstBlock and firstRow. Returns how many blocks the plan has. A sum is of two: blocks in the upper half, rows in the lower.
__device__ inline int64_t placeBins(const Call &call, const int *counts) {
  unsigned long long before = 0;
  for (int64_t first = 0; first <= call.experts; first += kWideThreads) {
    const int64_t bin = first + threadIdx.x;
    const unsigned count = bin <= call.experts ? static_cast<unsigned>(counts[bin]) : 0, blockM = static_cast<unsigned>(call.blockM);
    const unsigned long long blocks = (count + blockM - 1) / blockM, rows = bin > 0 ? count : 0;
    unsigned long long total;
    const unsigned long long place = before + sumBefore(blocks << 32 | rows, &total);
    if (bin <= call.experts) call.firstBlock[bin] = static_cast<int32_t>(place >> 32);
    if (bin > 0 && bin <= call.experts) call.firstRow[bin - 1] = static_cast<int32_t>(place & 0xffffffff);
    before += total;
  }
  if (threadIdx.x == 0) {
    call.firstBlock[call.experts + 1] = static_cast<int32_t>(before >> 32);
    call.firstRow[call.experts] = static_cast<int32_t>(before & 0xffffffff);
  }
  return static_cast<int64_t>(before >> 32);
}

// Whether it fits.
__device__ inline bool makePlan(const Call &call) {
  __shared__ int counts[MOERT__ROUTED_MAX_EXPERTS + 1];
  countBins(call, counts);
  const int64_t blocks = placeBins(call, counts);
  const bool isSound = blocks <= call.blocks;
  if (threadIdx.x == 0) {
    *call.isSound = isSound;
    if (!isSound) report(call.fault, call.op, MOERT__FAULT_ROUTED_CAPACITY, call.blocks, blocks, call.blockM);
  }
  if (isSound) {
    // A thread has the bins that it has placed.
    for (int64_t bin = threadIdx.x; bin <= call.experts; bin += kWideThreads) call.cumsum[bin] = call.firstBlock[bin] * call.blockM + counts[bin];
    if (threadIdx.x == 0) *call.postPadded = call.cumsum[call.experts + 1] = static_cast<int32_t>(blocks * call.blockM);
  } else {
    __syncthreads(); // all have been placed
    for (int64_t expert = threadIdx.x; expert <= call.experts; expert += kWideThreads) call.firstRow[expert] = 0;
  }
  return isSound;
}

// Sixteen at a time: code times scale, which bf16 holds.
__device__ inline void decodeStates(const Call &call, int64_t block, int64_t blocks) {
  const int64_t across = call.hidden / MOERT__ROUTED_SCALED, count = call.tokens * across, step = blocks * kWideThreads;
  for (int64_t i = block * kWideThreads + threadIdx.x; i < count; i += step) {
    const uint8_t *from = call.states + i / across * call.stateStride + i % across * (MOERT__ROUTED_SCALED / 2);
    uint32_t words[2] = {}, pairs[MOERT__ROUTED_SCALED / 2];
    if (call.readsVectors) {
      const uint2 both = *reinterpret_cast<const uint2 *>(from);
      words[0] = both.x, words[1] = both.y;
    } else {
      for (int b = 0; b < MOERT__ROUTED_SCALED / 2; ++b) words[b / 4] |= static_cast<uint32_t>(from[b]) << b % 4 * 8;
    }
    float factor, none;
    e4m3ToPair(call.stateScales[i], &factor, &none);
#pragma unroll
    for (int four = 0; four < MOERT__ROUTED_SCALED / 4; ++four) {
      float x[4];
      decodeE2M1(words[four / 2], four % 2, factor, false, x);
      pairs[2 * four] = pairTo16Bits<MOERT__BF16>(x[0], x[1]);
      pairs[2 * four + 1] = pairTo16Bits<MOERT__BF16>(x[2], x[3]);
    }
    uint4 *to = reinterpret_cast<uint4 *>(call.numbers + i * MOERT__ROUTED_SCALED);
    to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
  }
}

//===--- the order ----------------------------------------------------------------------------------===//

struct Bin {
  int number;
  int64_t firstBlock, endBlock; // of the plan
  int64_t count, firstRow;      // of its pairs; bin 0 has no rows
};

__device__ inline Bin binAt(const Call &call, int number) {
  Bin bin = {number, call.firstBlock[number], call.firstBlock[number + 1], 0, 0};
  if (number > 0) {
    bin.firstRow = call.firstRow[number - 1];
    bin.count = call.firstRow[number] - bin.firstRow;
  } else {
    bin.count = call.pairs - call.firstRow[call.experts];
  }
  return bin;
}

__device__ inline void placePair(const Call &call, const Bin &bin, int64_t place, int64_t pair) {
  call.sortedIds[bin.firstBlock * call.blockM + place] = static_cast<int32_t>(pair);
  call.rowOfPair[pair] = bin.number > 0 ? static_cast<int32_t>(bin.firstRow + place) : -1;
  if (bin.number > 0) call.tokenOfRow[bin.firstRow + place] = static_cast<int32_t>(pair) / call.topK;
}

// Pairs in ascending order: a thread looks at some that follow each other.
__device__ inline void placePairs(const Call &call, const Bin &bin) {
  int64_t placed = 0;
  for (int64_t first = threadIdx.x * kIdsOfThread; placed < bin.count; first += kThreads * kIdsOfThread) {
    unsigned found = 0;
#pragma unroll
    for (int i = 0; i < kIdsOfThread; ++i)
      if (first + i < call.pairs && binOf(call, first + i) == bin.number) found |= 1u << i;
    int total;
    int64_t place = placed + sumBefore<int, kThreads>(__popc(found), &total);
    for (int i = 0; i < kIdsOfThread; ++i)
      if (found >> i & 1) placePair(call, bin, place++, first + i);
    placed += total;
  }
}

__device__ inline void fillEntries(const Call &call, int64_t from, int64_t to, int64_t block, int64_t blocks) {
  for (int64_t entry = from + block * blockDim.x + threadIdx.x; entry < to; entry += blocks * blockDim.x)
    call.sortedIds[entry] = static_cast<int32_t>(call.pairs);
}

// By one block: a pair's place is the number of those of its bin in front of it.
__device__ inline void orderAtOnce(const Call &call) {
  __shared__ int bins[kFewPairs];
  const int pair = static_cast<int>(threadIdx.x);
  if (pair < call.pairs) bins[pair] = binOf(call, pair);
  fillEntries(call, 0, call.entries, 0, 1);
  __syncthreads(); // entries of pairs are written over
  for (int bin = pair; bin <= call.experts; bin += kWideThreads)
    for (int block = call.firstBlock[bin]; block < call.firstBlock[bin + 1]; ++block) call.expertIds[block] = bin - 1;
  if (pair >= call.pairs) return;
  int place = 0;
  for (int before = 0; before < pair; ++before) place += bins[before] == bins[pair];
  placePair(call, binAt(call, bins[pair]), place, pair);
}

// A block for each bin; those behind fill what is behind the plan.
__global__ void __launch_bounds__(kThreads) orderRoutes(const __grid_constant__ Call call) {
  letNextBegin();
  awaitStream();
  if (!*call.isSound) return;
  const int64_t bins = call.experts + 1;
  if (blockIdx.x >= bins) {
    fillEntries(call, static_cast<int64_t>(call.firstBlock[bins]) * call.blockM, call.entries, blockIdx.x - bins, gridDim.x - bins);
    return;
  }
  const Bin bin = binAt(call, static_cast<int>(blockIdx.x));
  for (int64_t block = bin.firstBlock + threadIdx.x; block < bin.endBlock; block += kThreads) call.expertIds[block] = bin.number - 1;
  placePairs(call, bin);
  fillEntries(call, bin.firstBlock * call.blockM + bin.count, bin.endBlock * call.blockM, 0, 1);
}

// The first block makes the plan, the others numbers of the states.
__global__ void __launch_bounds__(kWideThreads) planRoutes(const __grid_constant__ Call call) {
  letNextBegin();
  awaitStream();
  if (blockIdx.x > 0) return decodeStates(call, blockIdx.x - 1, gridDim.x - 1);
  if (!makePlan(call) || !call.ordersAtOnce) return;
  __syncthreads(); // all bins have been placed
  orderAtOnce(call);
}

//===--- activations --------------------------------------------------------------------------------===//

// To NVFP4 and back, with the bits of the host. Four threads share a scale; warps are whole, because rows are whole warps' numbers.
__global__ void __launch_bounds__(kThreads) requantize(const __grid_constant__ Call call) {
  letNextBegin();
  awaitStream();
  const int64_t count = call.firstRow[call.experts] * (call.inner / kEncoded), step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const float4 four = reinterpret_cast<const float4 *>(call.results)[i];
    const float x[kEncoded] = {four.x, four.y, four.z, four.w};
    const uint32_t scale = moert__routed_scale(blockAmax(MOERT__NVFP4, tileAmax(MOERT__NVFP4, x), MOERT__ROUTED_SCALED / kEncoded));
    const float factor = moert__e4m3_to_f32(scale);
    float decoded[kEncoded];
#pragma unroll
    for (int j = 0; j < kEncoded; ++j) decoded[j] = moert__e2m1_to_f32(moert__routed_code(x[j], scale)) * factor;
    reinterpret_cast<uint2 *>(call.activations)[i] =
        make_uint2(pairTo16Bits<MOERT__BF16>(decoded[0], decoded[1]), pairTo16Bits<MOERT__BF16>(decoded[2], decoded[3]));
  }
}

//===--- sums ---------------------------------------------------------------------------------------===//

__device__ inline void loadColumns(const Call &call, int64_t index, float (&sums)[kFinishedColumns]) {
  if (!call.accumulate) {
    for (int c = 0; c < kFinishedColumns; ++c) sums[c] = 0.0f;
  } else if (call.writesVectors) {
    const uint4 pairs = *reinterpret_cast<const uint4 *>(call.out + index);
    pairFrom16Bits<MOERT__BF16>(pairs.x, &sums[0], &sums[1]);
    pairFrom16Bits<MOERT__BF16>(pairs.y, &sums[2], &sums[3]);
    pairFrom16Bits<MOERT__BF16>(pairs.z, &sums[4], &sums[5]);
    pairFrom16Bits<MOERT__BF16>(pairs.w, &sums[6], &sums[7]);
  } else {
    for (int c = 0; c < kFinishedColumns; ++c) sums[c] = moert__bf16_to_f32(call.out[index + c]);
  }
}

__device__ inline void storeColumns(const Call &call, int64_t index, const float (&sums)[kFinishedColumns]) {
  if (call.writesVectors)
    *reinterpret_cast<uint4 *>(call.out + index) =
        make_uint4(pairTo16Bits<MOERT__BF16>(sums[0], sums[1]), pairTo16Bits<MOERT__BF16>(sums[2], sums[3]),
                   pairTo16Bits<MOERT__BF16>(sums[4], sums[5]), pairTo16Bits<MOERT__BF16>(sums[6], sums[7]));
  else
    for (int c = 0; c < kFinishedColumns; ++c) call.out[index + c] = moert__f32_to_bf16(sums[c]);
}

__device__ inline void addColumns(float factor, float weight, const float4 &low, const float4 &high, float (&sums)[kFinishedColumns]) {
  const float y[kFinishedColumns] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int c = 0; c < kFinishedColumns; ++c) sums[c] = moert__routed_add(sums[c], y[c], weight, factor);
}

// The results of some choices are on their way together. Those of nobody are read as if they had the first row, so that no load waits for a branch.
template <int kTopK> __device__ void addChoices(const Call &call, int64_t token, int64_t column, float (&sums)[kFinishedColumns]) {
  constexpr int kHeld = kTopK ? kTopK : 4;
  const int topK = kTopK ? kTopK : call.topK;
  for (int first = 0; first < topK; first += kHeld) {
    int rows[kHeld];
    float weights[kHeld];
    float4 low[kHeld], high[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const bool isThere = first + i < topK;
      const int64_t pair = token * topK + first + i;
      rows[i] = isThere ? call.rowOfPair[pair] : -1;
      weights[i] = isThere ? call.weights[pair] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float4 *from = reinterpret_cast<const float4 *>(call.results + static_cast<int64_t>(max(rows[i], 0)) * call.hidden + column);
      low[i] = from[0];
      high[i] = from[1];
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (rows[i] >= 0) addColumns(call.factor, weights[i], low[i], high[i], sums);
  }
}

// kTopK 0: that of the call.
template <int kTopK> __global__ void __launch_bounds__(kThreads) finishTokens(const __grid_constant__ Call call) {
  awaitStream();
  if (!*call.isSound) return;
  const int64_t across = call.hidden / kFinishedColumns, count = call.tokens * across, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t token = i / across, column = i % across * kFinishedColumns, index = token * call.hidden + column;
    float sums[kFinishedColumns];
    loadColumns(call, index, sums);
    addChoices<kTopK>(call, token, column, sums);
    storeColumns(call, index, sums);
  }
}

} // namespace routed

#endif

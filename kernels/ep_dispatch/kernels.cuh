//===- kernels.cuh - ep.dispatch on devices ------------------------------------------------------------===//
//
// Rows are sorted by expert, then token, then slot. The pairs are cut into sections, each a block's:
//
//   countPairs   how many pairs of each section every expert has
//   placeGroups  one block: looks at the counters, adds the counts up to the first row of each expert and section, writes all outputs but rows
//   placePairs   the row of each pair
//   copyTokens   the rows
//
// If placeGroups finds a fault, nothing is written.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_EP_DISPATCH_KERNELS_CUH
#define MOE_KERNELS_EP_DISPATCH_KERNELS_CUH

#include "kernels/common/pairs.cuh"

struct DispatchCall {
  EpLayer layer;
  const void *tokens;
  void *rows;
  int *rowOffsets, *expertIds, *sources;
  int64_t room;
  int sections;
  int64_t sectionPairs; // a multiple of kThreads
  // The arena's.
  int *counts;  // [sections][experts]: of the pairs, then of those in earlier sections
  int *first;   // [experts + 1]: first row of each expert
  int *rowOf;   // [tokens][topK]: -1: none
  int *refused; // 1: there is a fault
};

struct Section {
  int64_t begin, end;
};

__device__ inline Section sectionOf(const DispatchCall &call, int64_t pairs) {
  const int64_t begin = blockIdx.x * call.sectionPairs, end = begin + call.sectionPairs;
  return {begin, end < pairs ? end : pairs};
}

static __global__ void countPairs(DispatchCall call) {
  int *counts = call.counts + blockIdx.x * call.layer.experts;
  for (int64_t expert = threadIdx.x; expert < call.layer.experts; expert += kThreads) counts[expert] = 0;
  __syncthreads();
  const Section section = sectionOf(call, call.layer.tokens * call.layer.topK);
  for (int64_t pair = section.begin + threadIdx.x; pair < section.end; pair += kThreads) {
    const int64_t expert = localExpert(call.layer, call.layer.ids[pair]);
    if (expert >= 0) atomicAdd(&counts[expert], 1);
  }
}

//===--- groups -----------------------------------------------------------------------------------===//

// Counts of the sections become counts of the sections before; returns the count of all. Sections are read a few at a time, for each waits long.
__device__ inline int addSections(const DispatchCall &call, int64_t expert) {
  const int kAtOnce = 16;
  int sum = 0;
  for (int first = 0; first < call.sections; first += kAtOnce) {
    int counts[kAtOnce], *at = call.counts + first * call.layer.experts + expert;
    const int left = call.sections - first;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) counts[i] = i < left ? at[i * call.layer.experts] : 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i < left) at[i * call.layer.experts] = sum;
      sum += counts[i];
    }
  }
  return sum;
}

__device__ inline void findFirstRows(const DispatchCall &call) {
  const int64_t experts = call.layer.experts;
  int placed = static_cast<int>(call.layer.sharedCount);
  for (int64_t base = 0; base < experts; base += kWideThreads) {
    const int64_t expert = base + threadIdx.x;
    int total;
    const int before = sumBefore(expert < experts ? addSections(call, expert) : 0, &total);
    if (expert < experts) call.first[expert] = placed + before;
    placed += total;
  }
  if (threadIdx.x == 0) call.first[experts] = placed;
  __syncthreads();
}

__device__ inline bool isRefused(const DispatchCall &call) {
  const int64_t rows = call.first[call.layer.experts];
  if (call.layer.round[0])
    report(call.layer.fault, call.layer.op, MOERT__FAULT_EP_PENDING);
  else if (rows > call.room)
    report(call.layer.fault, call.layer.op, MOERT__FAULT_EP_CAPACITY, rows, call.layer.rank, call.room);
  else
    return false;
  return true;
}

__device__ inline void writeGroups(const DispatchCall &call) {
  const EpLayer &layer = call.layer;
  int *offsets = call.rowOffsets + layer.fusedShared;
  for (int64_t expert = threadIdx.x; expert <= layer.experts; expert += kWideThreads) offsets[expert] = call.first[expert];
  for (int64_t group = threadIdx.x; group < layer.experts + layer.fusedShared; group += kWideThreads) call.expertIds[group] = static_cast<int>(group);
  for (int64_t expert = threadIdx.x; expert < layer.experts; expert += kWideThreads) {
    layer.segments[2 * expert] = kFlag + call.first[expert + 1];
    layer.segments[2 * expert + 1] = call.first[expert + 1] - call.first[expert];
  }
  if (threadIdx.x) return;
  if (layer.fusedShared) call.rowOffsets[0] = 0;
  layer.round[0] = static_cast<int>(kFlag + layer.tokens);
  layer.round[1] = layer.topK;
  layer.round[2] = layer.fusedShared;
}

static __global__ void __launch_bounds__(kWideThreads) placeGroups(DispatchCall call) {
  __shared__ bool refused;
  findFirstRows(call);
  if (threadIdx.x == 0) *call.refused = refused = isRefused(call);
  __syncthreads();
  if (!refused) writeGroups(call);
}

//===--- rows -------------------------------------------------------------------------------------===//

// Of the threads of the block with the same expert: how many there are, and how many are before this one.
struct Equals {
  int all, before;
};

__device__ inline Equals countEquals(const int *experts, int expert) {
  Equals equals = {0, 0};
#pragma unroll 8
  for (int i = 0; i < kThreads; i += 4) {
    const int4 four = *reinterpret_cast<const int4 *>(experts + i);
    const int same[4] = {four.x == expert, four.y == expert, four.z == expert, four.w == expert};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      equals.all += same[j];
      equals.before += i + j < static_cast<int>(threadIdx.x) ? same[j] : 0;
    }
  }
  return equals;
}

template <int kTopK> __global__ void __launch_bounds__(kThreads) placePairs(DispatchCall call) {
  alignas(16) __shared__ int experts[kThreads];
  if (*call.refused) return;
  const int topK = kTopK ? kTopK : call.layer.topK;
  int *placed = call.counts + blockIdx.x * call.layer.experts;
  const Section section = sectionOf(call, call.layer.tokens * topK);
  for (int64_t tile = section.begin; tile < section.end; tile += kThreads) {
    const int64_t pair = tile + threadIdx.x;
    const int expert = pair < section.end ? static_cast<int>(localExpert(call.layer, call.layer.ids[pair])) : -1;
    experts[threadIdx.x] = expert;
    __syncthreads();
    const Equals equals = countEquals(experts, expert);
    const int row = expert < 0 ? -1 : call.first[expert] + placed[expert] + equals.before;
    __syncthreads(); // all have read
    if (expert >= 0 && equals.before == 0) placed[expert] += equals.all;
    if (pair < section.end) call.rowOf[pair] = row;
    if (row < 0) continue;
    call.sources[2 * static_cast<int64_t>(row)] = static_cast<int>(pair / topK);
    call.sources[2 * static_cast<int64_t>(row) + 1] = static_cast<int>(pair % topK);
  }
}

// A thread takes one vector of a token to all its rows. kHidden and kTopK 0: those of the call.
template <int kHidden, int kTopK, typename Vector> __global__ void __launch_bounds__(kThreads) copyTokens(DispatchCall call) {
  if (*call.refused) return;
  const int topK = kTopK ? kTopK : call.layer.topK;
  const int64_t vectors = (kHidden ? kHidden : call.layer.hidden) * sizeof(uint16_t) / sizeof(Vector), pieces = (vectors + kThreads - 1) / kThreads;
  const Vector *tokens = static_cast<const Vector *>(call.tokens);
  Vector *rows = static_cast<Vector *>(call.rows);
  for (int64_t work = blockIdx.x; work < call.layer.tokens * pieces; work += gridDim.x) {
    const int64_t token = work / pieces, column = work % pieces * kThreads + threadIdx.x, shared = sharedRow(call.layer, token);
    if (column >= vectors) continue;
    const Vector value = tokens[token * vectors + column];
    if (shared >= 0) rows[shared * vectors + column] = value;
#pragma unroll
    for (int slot = 0; slot < topK; ++slot) {
      const int row = call.rowOf[token * topK + slot];
      if (row >= 0) rows[row * vectors + column] = value;
    }
  }
}

#endif

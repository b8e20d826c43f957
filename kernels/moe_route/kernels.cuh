//===- kernels.cuh - moe.route on devices --------------------------------------------------------------===//
//
// One warp for each token, whose numbers lie in shared memory: lane l has the experts l, l + 32, l + 64, ... The bits are those of
// lib/reference/moe_route.c, which says what they are for NaN, infinities and ties.
//
// The choice compares keys: unsigned integers in the order of the numbers.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_ROUTE_KERNELS_CUH
#define MOE_KERNELS_MOE_ROUTE_KERNELS_CUH

#include "kernels/common/device.cuh"

static const int kLanes = 32;
static const unsigned kAllLanes = 0xffffffffu;

struct RouteCall {
  const void *logits;
  const float *bias; // NULL: none
  int *ids;
  float *weights;
  int64_t tokens;
  int experts, topK, groups, eligibleGroups;
  float scale;
  bool sigmoid, scoreFirst, renormalize;
};

// What a warp has in shared memory.
struct RouteRow {
  float *scores;       // logits until they are scored
  uint32_t *keys;      // of the values that the choice compares
  uint32_t *groupKeys; // only with several groups
  int experts, lane;
};

//===--- keys -------------------------------------------------------------------------------------===//

static const uint32_t kIneligible = 0, kTaken = 1; // smaller than the key of any number

// Of 0 and -0 the same.
__device__ inline uint32_t keyOf(float value) {
  if (moert__is_nan(value)) return kIneligible;
  const uint32_t bits = moert__bits(value + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float numberOf(uint32_t key) { return moert__float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// Takes the first of the largest numbers: its index on every lane, -1 if there is none.
template <int kCount> __device__ inline int takeBest(uint32_t *keys, int count, int lane) {
  uint32_t mine = kTaken;
  int index = 0x7fffffff;
#pragma unroll
  for (int first = 0; first < (kCount ? kCount : count); first += kLanes) {
    const int i = first + lane;
    if (i >= (kCount ? kCount : count) || keys[i] <= mine) continue;
    mine = keys[i];
    index = i;
  }
  const uint32_t best = __reduce_max_sync(kAllLanes, mine);
  if (best == kTaken) return -1;
  const int taken = __reduce_min_sync(kAllLanes, mine == best ? index : 0x7fffffff);
  if (taken % kLanes == lane) keys[taken] = kTaken;
  return taken;
}

//===--- scores -----------------------------------------------------------------------------------===//

// Of the lanes' terms, neighbours first; the same on every lane.
__device__ inline float addPairwise(float term) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) term += __shfl_xor_sync(kAllLanes, term, distance);
  return term;
}

__device__ inline float exponential(float logit, float maximum) { return logit == maximum ? 1.0f : moert__exp(logit - maximum); }

// NaN stays NaN, and adds nothing.
template <int kExperts> __device__ inline void softmax(const RouteRow &row) {
  const int experts = kExperts ? kExperts : row.experts;
  uint32_t best = kIneligible;
#pragma unroll
  for (int first = 0; first < experts; first += kLanes)
    if (first + row.lane < experts) best = max(best, keyOf(row.scores[first + row.lane]));
  best = __reduce_max_sync(kAllLanes, best);
  const float maximum = best == kIneligible ? moert__float(0xff800000u) : numberOf(best);
  float sum = 0.0f;
#pragma unroll
  for (int first = 0; first < experts; first += kLanes) {
    const int i = first + row.lane;
    float term = 0.0f;
    if (i < experts && !moert__is_nan(row.scores[i])) row.scores[i] = term = exponential(row.scores[i], maximum);
    sum += addPairwise(term);
  }
#pragma unroll
  for (int first = 0; first < experts; first += kLanes)
    if (first + row.lane < experts) row.scores[first + row.lane] = moert__divide(row.scores[first + row.lane], sum);
}

template <int kExperts> __device__ inline void score(const RouteCall &call, const RouteRow &row) {
  const int experts = kExperts ? kExperts : row.experts;
  if (!call.sigmoid) {
    softmax<kExperts>(row);
    return;
  }
#pragma unroll
  for (int first = 0; first < experts; first += kLanes)
    if (first + row.lane < experts) row.scores[first + row.lane] = moert__sigmoid(row.scores[first + row.lane]);
}

//===--- choice -----------------------------------------------------------------------------------===//

__device__ inline uint32_t groupKey(const uint32_t *keys, int count) {
  uint32_t best = kIneligible, second = kIneligible;
  for (int i = 0; i < count; ++i) {
    second = max(second, min(best, keys[i]));
    best = max(best, keys[i]);
  }
  return second == kIneligible ? best : keyOf(numberOf(best) + numberOf(second));
}

// Experts outside the best groups become ineligible.
__device__ inline void limitGroups(const RouteCall &call, const RouteRow &row) {
  const int size = row.experts / call.groups;
  __syncwarp();
  for (int group = row.lane; group < call.groups; group += kLanes) row.groupKeys[group] = groupKey(row.keys + group * size, size);
  for (int k = 0; k < call.eligibleGroups; ++k) takeBest<0>(row.groupKeys, call.groups, row.lane);
  __syncwarp();
  for (int i = row.lane; i < row.experts; i += kLanes)
    if (row.groupKeys[i / size] != kTaken) row.keys[i] = kIneligible;
}

template <moert__format kFormat, int kExperts> __device__ inline void load(const RouteCall &call, const RouteRow &row, int64_t token) {
  const int experts = kExperts ? kExperts : row.experts;
#pragma unroll
  for (int first = 0; first < experts; first += kLanes)
    if (first + row.lane < experts) row.scores[first + row.lane] = moert__load(kFormat, call.logits, token * experts + first + row.lane);
}

template <int kExperts> __device__ inline void findKeys(const RouteCall &call, const RouteRow &row) {
  const int experts = kExperts ? kExperts : row.experts;
#pragma unroll
  for (int first = 0; first < experts; first += kLanes) {
    const int i = first + row.lane;
    if (i < experts) row.keys[i] = keyOf(call.bias ? row.scores[i] + call.bias[i] : row.scores[i]);
  }
}

// Leaves the others out of a softmax.
__device__ inline void keepChosen(const RouteRow &row) {
  for (int i = row.lane; i < row.experts; i += kLanes)
    if (row.keys[i] != kTaken) row.scores[i] = moert__float(0x7fc00000u);
}

//===--- weights ----------------------------------------------------------------------------------===//

// Lane k has the weight of the k-th expert.
template <int kTopK> __device__ inline float renormalized(float weight, int topK) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < (kTopK ? kTopK : topK); ++k) sum += __shfl_sync(kAllLanes, weight, k);
  return sum == 0.0f ? 0.0f : moert__divide(weight, sum);
}

template <int kExperts, int kTopK> __device__ inline void routeToken(const RouteCall &call, const RouteRow &row, int64_t token) {
  const int experts = kExperts ? kExperts : row.experts, topK = kTopK ? kTopK : call.topK;
  if (call.scoreFirst) score<kExperts>(call, row);
  findKeys<kExperts>(call, row);
  if (call.groups > 1) limitGroups(call, row);
  int id = -1;
#pragma unroll
  for (int k = 0; k < topK; ++k) {
    const int taken = takeBest<kExperts>(row.keys, experts, row.lane);
    if (k == row.lane) id = taken;
  }
  if (!call.scoreFirst) {
    keepChosen(row);
    score<kExperts>(call, row);
  }
  __syncwarp();
  float weight = id < 0 ? 0.0f : row.scores[id];
  if (call.renormalize) weight = renormalized<kTopK>(weight, topK);
  if (row.lane >= topK) return;
  call.ids[token * topK + row.lane] = id;
  call.weights[token * topK + row.lane] = id < 0 ? 0.0f : weight * call.scale;
}

// Words of shared memory for one warp.
static inline __host__ __device__ int routeWords(int experts, int groups) { return 2 * experts + (groups > 1 ? groups : 0); }

// kExperts and kTopK 0: those of the call.
template <moert__format kFormat, int kExperts, int kTopK> __global__ void routeTokens(RouteCall call) {
  extern __shared__ uint32_t words[];
  const int warps = blockDim.x / kLanes, warp = threadIdx.x / kLanes, experts = kExperts ? kExperts : call.experts;
  uint32_t *mine = words + warp * routeWords(experts, call.groups);
  const RouteRow row = {reinterpret_cast<float *>(mine), mine + experts, mine + 2 * experts, experts, static_cast<int>(threadIdx.x) % kLanes};
  for (int64_t token = static_cast<int64_t>(blockIdx.x) * warps + warp; token < call.tokens; token += static_cast<int64_t>(gridDim.x) * warps) {
    load<kFormat, kExperts>(call, row, token);
    routeToken<kExperts, kTopK>(call, row, token);
    __syncwarp(); // other lanes read the scores
  }
}

#endif

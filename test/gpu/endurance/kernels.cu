//===- kernels.cu - what runs on devices around the exchanges of endurance.c ---------------------------===//

#include "kernels.h"
#include <cuda_runtime.h>

namespace {

const int64_t kThreads = 256, kMostBlocks = 64;
const int kLinkThreads = 1024, kLinkBlocks = 66;

//===--- rounds -----------------------------------------------------------------------------------===//

__device__ int64_t firstIndex() { return blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; }
__device__ int64_t stride() { return gridDim.x * static_cast<int64_t>(blockDim.x); }

__global__ void copySet(uint32_t *to, const uint32_t *sets, int64_t words, int64_t numSets, const uint64_t *round) {
  const uint32_t *from = sets + words * static_cast<int64_t>(*round % static_cast<uint64_t>(numSets));
  for (int64_t i = firstIndex(); i < words; i += stride()) to[i] = from[i];
}

__global__ void fill(uint32_t *memory, uint32_t value, int64_t words) {
  for (int64_t i = firstIndex(); i < words; i += stride()) memory[i] = value;
}

__global__ void addHashes(uint64_t *sums, const uint32_t *memory, int64_t words, uint64_t place, const uint64_t *round) {
  unsigned long long sum = 0;
  for (int64_t i = firstIndex(); i < words; i += stride()) sum += endurance_hash(place + static_cast<uint64_t>(i), memory[i]);
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long *>(&sums[*round]), sum);
}

__global__ void advance(uint64_t *round) { ++*round; }

unsigned blocksFor(int64_t words) {
  const int64_t blocks = (words + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks);
}

//===--- the link ---------------------------------------------------------------------------------===//

__global__ __launch_bounds__(kLinkThreads, 2) void loadLink(endurance_link link, uint64_t number, int64_t passes) {
  __shared__ bool ends;
  const bool pulls = blockIdx.x % 2 == 1;
  const int64_t pairs = gridDim.x / 2, count = link.bytes / static_cast<int64_t>(sizeof(uint4)), step = pairs * blockDim.x;
  const uint4 *from = reinterpret_cast<const uint4 *>(pulls ? link.peers : link.mine);
  uint4 *to = reinterpret_cast<uint4 *>(pulls ? link.mine + 2 * link.bytes : link.peers + link.bytes);
  for (int64_t pass = 0; pass < passes; ++pass) {
#pragma unroll 4
    for (int64_t i = blockIdx.x / 2 * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) to[i] = from[i];
    if (threadIdx.x == 0) {
      atomicAdd(link.moved, static_cast<unsigned long long>(link.bytes / pairs));
      ends = *link.release >= number;
    }
    __syncthreads();
    if (ends) return;
    __syncthreads(); // all have read it before it is written again
  }
}

} // namespace

cudaError_t endurance_preload(void) {
  const void *const kernels[] = {reinterpret_cast<const void *>(copySet), reinterpret_cast<const void *>(fill),
                                 reinterpret_cast<const void *>(addHashes), reinterpret_cast<const void *>(advance),
                                 reinterpret_cast<const void *>(loadLink)};
  cudaError_t error = cudaSuccess;
  for (const void *kernel : kernels) {
    cudaFuncAttributes attributes;
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  }
  return error;
}

cudaError_t endurance_copy(uint32_t *to, const uint32_t *sets, int64_t words, int64_t num_sets, const uint64_t *round, cudaStream_t stream) {
  copySet<<<blocksFor(words), kThreads, 0, stream>>>(to, sets, words, num_sets, round);
  return cudaGetLastError();
}

cudaError_t endurance_fill(uint32_t *memory, unsigned char value, int64_t words, cudaStream_t stream) {
  fill<<<blocksFor(words), kThreads, 0, stream>>>(memory, value * 0x01010101u, words);
  return cudaGetLastError();
}

cudaError_t endurance_add(uint64_t *sums, const uint32_t *memory, int64_t words, uint64_t place, const uint64_t *round, cudaStream_t stream) {
  addHashes<<<blocksFor(words), kThreads, 0, stream>>>(sums, memory, words, place, round);
  return cudaGetLastError();
}

cudaError_t endurance_advance(uint64_t *round, cudaStream_t stream) {
  advance<<<1, 1, 0, stream>>>(round);
  return cudaGetLastError();
}

cudaError_t endurance_load_link(const endurance_link *link, uint64_t number, int64_t passes, cudaStream_t stream) {
  loadLink<<<kLinkBlocks, kLinkThreads, 0, stream>>>(*link, number, passes);
  return cudaGetLastError();
}

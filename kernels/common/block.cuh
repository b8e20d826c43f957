//===- block.cuh - sums over the threads of a block ---------------------------------------------------===//
//
// No headers of the host: NVRTC compiles this too.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_BLOCK_CUH
#define MOE_KERNELS_BLOCK_CUH

static const int kWideThreads = 1024; // of a block that is alone, or that adds up; 32 warps

// The sum of `value` over the threads before this one; *total: over all. For a block of kWideThreads, all of whose threads call it.
template <typename Integer> __device__ Integer sumBefore(Integer value, Integer *total) {
  __shared__ Integer sums[kWideThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Integer sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const Integer before = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += before;
  }
  __syncthreads(); // the sums of the call before have been read
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  Integer before = 0;
  *total = 0;
  for (int i = 0; i < kWideThreads / 32; ++i) {
    if (i < warp) before += sums[i];
    *total += sums[i];
  }
  return before + sum - value;
}

#endif

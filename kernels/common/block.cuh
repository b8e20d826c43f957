//===- block.cuh - sums over the threads of a block ---------------------------------------------------===//
//
// No headers of the host: NVRTC compiles this too.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_BLOCK_CUH
#define MOE_KERNELS_BLOCK_CUH

static const int kWideThreads = 1024; // of a block that is alone, or that adds up; 32 warps

struct SyncBlock {
  __device__ void operator()() const { __syncthreads(); }
};

// The sum of `value` over the threads before this one; *total: over all. For kBlock threads, all of which call it; `sync` is their barrier.
template <typename Integer, int kBlock = kWideThreads, typename Sync = SyncBlock>
__device__ Integer sumBefore(Integer value, Integer *total, const Sync &sync = Sync()) {
  __shared__ Integer sums[kBlock / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Integer sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const Integer before = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += before;
  }
  sync(); // the sums of the call before have been read
  if (lane == 31) sums[warp] = sum;
  sync();
  Integer before = 0;
  *total = 0;
  for (int i = 0; i < kBlock / 32; ++i) {
    if (i < warp) before += sums[i];
    *total += sums[i];
  }
  return before + sum - value;
}

#endif

//===- table.cuh - sums over the blocks of a cluster ----------------------------------------------------===//
#ifndef MOE_KERNELS_MOE_ALLREDUCE_FUSION_TABLE_CUH
#define MOE_KERNELS_MOE_ALLREDUCE_FUSION_TABLE_CUH

#include <stdint.h>

namespace allreduce {

__device__ inline uint32_t sharedAddress(const void *data) { return static_cast<uint32_t>(__cvta_generic_to_shared(data)); }

// Of the same place in the shared memory of another block of the cluster.
__device__ inline uint32_t sharedAddressOf(uint32_t address, uint32_t block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

__device__ inline void arriveInCluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void awaitCluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// A number of each of up to 32 warps of a cluster, which all blocks get. There are two of each, for a warp may begin the next round while others read
// this one, but ends it only when they have.
struct Table {
  uint64_t barriers[2];
  float numbers[2][32];

  // By one thread, before the blocks of the cluster meet.
  __device__ void open() {
    for (int i = 0; i < 2; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(&barriers[i])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  // By all threads of the cluster, for the round of this number: `warps` of them have a number; this warp's is that of the place `own`, if it is
  // less. The result is the number at the lane's place, 0 behind the last.
  __device__ float gather(unsigned round, int warps, int own, float number) {
    const int lane = static_cast<int>(threadIdx.x % 32), turn = static_cast<int>(round & 1);
    const uint32_t barrier = sharedAddress(&barriers[turn]);
    uint32_t blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(warps * 4) : "memory");
    if (lane < static_cast<int>(blocks) && own < warps)
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                       sharedAddressOf(sharedAddress(&numbers[turn][own]), static_cast<uint32_t>(lane))),
                   "r"(__float_as_uint(number)), "r"(sharedAddressOf(barrier, static_cast<uint32_t>(lane)))
                   : "memory");
    for (uint32_t done = 0; !done;)
      asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                   : "=r"(done)
                   : "r"(barrier), "r"(round >> 1 & 1)
                   : "memory");
    return lane < warps ? numbers[turn][lane] : 0.0f;
  }
};

} // namespace allreduce

#endif

//===- turns.cuh - kernels whose blocks leave without waiting for an answer -----------------------------===//
//
// Who counts what all blocks have done, and needs the number, waits for it. Here the number is needed while there is something else to wait for, or
// when a block has failed: blocks count that they have begun, the last of them ends the epoch, and a block that leaves adds itself to a counter that
// only a block that fills the outputs looks at.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_TURNS_CUH
#define MOE_KERNELS_TURNS_CUH

#include "kernels/common/exchange.cuh"

// The region TURNS. What stands by parity is set to 0 by the turn between.
struct Turns {
  uint32_t number;   // of the turn: other kernels have epochs too
  uint32_t begun;    // blocks that have read it, and the epoch
  uint32_t left[2];  // blocks that have left
  uint32_t fills[2]; // whether a block fills the outputs
  uint32_t met[2];   // blocks that have come to where they meet
};

// By the first thread of a block, behind a barrier of it: all its threads have read the epoch, and this one the number. The last block ends the
// epoch, if there is `last`.
__device__ inline void beginTurn(Turns *turns, uint32_t number, uint32_t *last, uint32_t epoch) {
  if (gridDim.x > 1 && atomicAdd(&turns->begun, 1) != gridDim.x - 1) return;
  const uint32_t next = (number & 1) ^ 1;
  turns->begun = turns->left[next] = turns->fills[next] = turns->met[next] = 0;
  turns->number = number + 1;
  if (last) *last = epoch;
}

// All threads of a block, of which this one `failed`. True in one block if any has, when all others have left: it fills the outputs.
__device__ inline bool leaveTurn(Turns *turns, uint32_t number, bool failed) {
  uint32_t *left = &turns->left[number & 1];
  const bool any = __syncthreads_or(failed);
  bool fills = false;
  letNextBegin();
  if (threadIdx.x == 0) {
    fills = any && atomicExch(&turns->fills[number & 1], 1) == 0;
    if (!fills && gridDim.x > 1) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(left) : "memory");
    while (fills && loadAcquire(left) != gridDim.x - 1) __nanosleep(100);
  }
  return any && __syncthreads_or(fills);
}

#endif

//===- device.cuh - what the device code of the kernels shares ----------------------------------------===//
//
// No headers of the host: NVRTC compiles this too.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_DEVICE_CUH
#define MOE_KERNELS_DEVICE_CUH

#include "lib/reference/numerics.h"
#include "lib/runtime/fault.h"

//===--- memory that other ranks and the host share ---------------------------------------------------===//

__device__ inline uint32_t loadAcquire(const uint32_t *word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

__device__ inline unsigned long long loadAcquire(const unsigned long long *word) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ inline void storeRelease(uint32_t *word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ inline void storeRelease(unsigned long long *word, unsigned long long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Nanoseconds.
__device__ inline unsigned long long now() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

//===--- the kernels before and behind ------------------------------------------------------------===//

// What the kernels in front of this one on the stream have written is there, and they have ended.
__device__ inline void awaitStream() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The kernel behind may take its place, and wait for the end of this one. It does when each block has come here with any of its threads: when none of
// them waits for a peer any more, for blocks that wait and blocks that wait for those would need twice the room.
__device__ inline void letNextBegin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

//===--- faults -----------------------------------------------------------------------------------===//

// Called by one thread of a kernel. The first fault stays.
__device__ inline void report(moert__fault *fault, int op, int kind, long long v0 = 0, long long v1 = 0, long long v2 = 0, long long v3 = 0,
                              long long v4 = 0, long long v5 = 0) {
  volatile moert__fault *record = fault;
  if (record->kind != MOERT__FAULT_NONE) return;
  const long long values[6] = {v0, v1, v2, v3, v4, v5};
  for (int i = 0; i < 6; ++i) record->values[i] = values[i];
  record->op = op;
  __threadfence_system();
  record->kind = kind;
}

#endif

//===- kernels.h - what runs on devices around the exchanges of endurance.c ----------------------------===//
//
// All is put on a stream and waits for nothing. Sizes are in words of 4 bytes. `round` is a number on the device, so that a capture does another
// round with every replay.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_ENDURANCE_KERNELS_H
#define MOERT_TEST_ENDURANCE_KERNELS_H

#include "lib/reference/numerics.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a word adds to a checksum: sums do not depend on the order of the words, but on the place of each.
MOERT__NUMERIC uint64_t endurance_hash(uint64_t place, uint32_t word) {
  uint64_t bits = (place + 1) * 0x9e3779b97f4a7c15u + word;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

// Bring all kernels to the current device: the first launch of one may wait for those that run, and these for another rank.
cudaError_t endurance_preload(void);

// Set round % num_sets of those behind each other.
cudaError_t endurance_copy(uint32_t *to, const uint32_t *sets, int64_t words, int64_t num_sets, const uint64_t *round, cudaStream_t stream);
cudaError_t endurance_fill(uint32_t *memory, unsigned char value, int64_t words, cudaStream_t stream); // every byte
// Add the hashes of words from `place` on to sums[round].
cudaError_t endurance_add(uint64_t *sums, const uint32_t *memory, int64_t words, uint64_t place, const uint64_t *round, cudaStream_t stream);
cudaError_t endurance_advance(uint64_t *round, cudaStream_t stream);

// Traffic on the link to a peer: half of the blocks write into the peer's memory, the other half read from it.
typedef struct endurance_link {
  char *mine, *peers;               // areas of three times `bytes`: what is sent, what is pushed into it, what is pulled into it
  int64_t bytes;                    // a multiple of 16
  const volatile uint64_t *release; // of the host
  unsigned long long *moved;        // bytes, by this rank
} endurance_link;

// Until the host has released `number`, but once at least and `passes` times at most. It leaves half of the device's threads, and half of its
// multiprocessors, to others.
cudaError_t endurance_load_link(const endurance_link *link, uint64_t number, int64_t passes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

//===- device.h - the tool's own kernels --------------------------------------------------------------===//
#ifndef MOE_BENCH_DEVICE_H
#define MOE_BENCH_DEVICE_H

#include <cuda_runtime_api.h>
#include <moert/moert.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Each puts one kernel on the stream.

// `count` numbers of bf16, f16 or f32 in [-scale, scale).
cudaError_t device_random(void *memory, int64_t count, moert_dtype dtype, uint64_t seed, float scale, cudaStream_t stream);
// Adds to *sum, in device memory, a number that depends on every byte and its place.
cudaError_t device_checksum(const void *memory, size_t bytes, unsigned long long *sum, cudaStream_t stream);
// Bytes, each of its bits in `mask`, plus `base`: 8 of either at a time, and of memory.
cudaError_t device_random_bytes(void *memory, size_t bytes, uint64_t mask, uint64_t base, uint64_t seed, cudaStream_t stream);
// Only reads; *found, in device memory, tells something of it, but not what.
cudaError_t device_read(const void *memory, size_t bytes, unsigned *found, cudaStream_t stream);
// By stores of 16 bytes; `to` may be a peer's. `blocks` 0: as many as copy fastest.
cudaError_t device_copy(void *to, const void *from, size_t bytes, int blocks, cudaStream_t stream);
// One of two blocks that answer each other `rounds` times; gives up after some seconds. *mine is 0 at the beginning and `rounds` at the end.
cudaError_t device_ping_pong(unsigned *mine, unsigned *peers, bool first, unsigned rounds, cudaStream_t stream);
cudaError_t device_nothing(cudaStream_t stream);

// Where the ranks of GPUs meet: in each rank's memory, which all can address and which is 0 at the beginning, DEVICE_MEETING_WORDS words.
typedef struct DeviceMeeting {
  unsigned *words[MOERT_MAX_RANKS];
  int32_t rank, ranks;
} DeviceMeeting;
enum { DEVICE_MEETING_EPOCH = MOERT_MAX_RANKS, DEVICE_MEETING_GAVE_UP, DEVICE_MEETING_WORDS };
// Ends when all ranks have come, by a kernel of one block. Gives up after some seconds, for good: then the word GAVE_UP of the rank is not 0.
cudaError_t device_meet(const DeviceMeeting *meeting, cudaStream_t stream);
// Adds to *different how many of the words of 32 bits of `count` rows differ: row to[i] of `rows` should be row from[i] of `wanted`. All in memory
// of the device; rows of `row_bytes`, a multiple of 4.
cudaError_t device_compare_rows(const void *rows, const int32_t *to, const void *wanted, const int32_t *from, int64_t count, size_t row_bytes,
                                unsigned long long *different, cudaStream_t stream);

// A layer of moe.nvfp4_routed with operands of that op, and of its tokens some: numbers 0, stride, 2 * stride and so on.
typedef struct DeviceLayer {
  const uint8_t *states, *state_scales, *first, *first_scales, *second, *second_scales;
  const float *gate, *up, *down, *weights;
  const int32_t *ids;
  int64_t experts, top_k, hidden, inner; // `inner`: columns of activations, a multiple of 128
  int64_t count, stride;                 // of the tokens
} DeviceLayer;
// What is to be added to their outputs, [count][hidden], by a thread for each number. `activations` is scratch, [count][top_k][inner].
cudaError_t device_layer(const DeviceLayer *layer, float *activations, float *sums, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

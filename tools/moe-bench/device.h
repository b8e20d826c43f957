//===- device.h - the tool's own kernels --------------------------------------------------------------===//
#ifndef MOE_BENCH_DEVICE_H
#define MOE_BENCH_DEVICE_H

#include <cuda_runtime_api.h>
#include <moert/moert.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// Each puts one kernel on the stream.

// `count` numbers of bf16, f16 or f32 in [-scale, scale).
cudaError_t device_random(void *memory, int64_t count, moert_dtype dtype, uint64_t seed, float scale, cudaStream_t stream);
// Adds to *sum, in device memory, a number that depends on every byte and its place.
cudaError_t device_checksum(const void *memory, size_t bytes, unsigned long long *sum, cudaStream_t stream);
// By stores of 16 bytes; `to` may be a peer's. `blocks` 0: as many as copy fastest.
cudaError_t device_copy(void *to, const void *from, size_t bytes, int blocks, cudaStream_t stream);
// One of two blocks that answer each other `rounds` times; gives up after some seconds. *mine is 0 at the beginning and `rounds` at the end.
cudaError_t device_ping_pong(unsigned *mine, unsigned *peers, bool first, unsigned rounds, cudaStream_t stream);
cudaError_t device_nothing(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

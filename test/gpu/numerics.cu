//===- numerics.cu - the shared arithmetic, host against device, bit for bit ----------------------===//
//
// Every function of one number in lib/reference/numerics.h for all 2^32 values of f32, and the division for as many pairs. Both sides hash their
// results in chunks; where hashes differ, the first value that differs is named. With --quick every seventh chunk, which is often enough for values
// of every exponent; with --small a few.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/numerics.h"
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const uint64_t kChunk = 1 << 20, kMostChunks = (uint64_t)1 << 12;
static const long kMostThreads = 256;

// Chunk i of a sample begins with value i * stride * kChunk.
typedef struct Sample {
  uint64_t stride, chunks;
} Sample;

enum Function { TO_BF16, TO_F16, EXP, SIGMOID, SILU, SQUARE_ROOT, DIVIDE, FUNCTIONS };
static const char *const names[FUNCTIONS] = {"f32_to_bf16", "f32_to_f16", "exp", "sigmoid", "silu", "square_root", "divide"};

// The second operand of a pair: any pattern that has nothing to do with the first.
__host__ __device__ static uint32_t partner(uint32_t bits) { return bits * 2654435761u ^ 0x3f123457u; }

// NaN stands for all NaN: which payload a computed one has differs between processors.
__host__ __device__ static uint32_t canonical(float value) { return moert__is_nan(value) ? 0x7fc00000u : moert__bits(value); }

__host__ __device__ static uint32_t evaluate(int function, uint32_t bits) {
  float x = moert__float(bits);
  switch (function) {
  case TO_BF16: return moert__f32_to_bf16(x);
  case TO_F16: return moert__f32_to_f16(x);
  case EXP: return canonical(moert__exp(x));
  case SIGMOID: return canonical(moert__sigmoid(x));
  case SILU: return canonical(moert__silu(x));
  case SQUARE_ROOT: return canonical(moert__square_root(x));
  default: return canonical(moert__divide(x, moert__float(partner(bits))));
  }
}

__host__ __device__ static uint64_t mix(uint32_t bits, uint32_t result) {
  return ((uint64_t)bits << 32 | result) * 0x9e3779b97f4a7c15u ^ (uint64_t)result << 17;
}

__global__ static void hashOnDevice(int function, uint64_t stride, unsigned long long *hashes) {
  unsigned long long hash = 0;
  for (uint64_t i = threadIdx.x; i < kChunk; i += blockDim.x) {
    uint32_t bits = (uint32_t)(blockIdx.x * stride * kChunk + i);
    hash += mix(bits, evaluate(function, bits));
  }
  atomicAdd(&hashes[blockIdx.x], hash);
}

__global__ static void evaluateOnDevice(int function, uint64_t chunk, uint32_t *results) {
  uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kChunk) results[i] = evaluate(function, (uint32_t)(chunk * kChunk + i));
}

typedef struct Work {
  int function;
  Sample sample;
  uint64_t first, step;
  unsigned long long *hashes;
} Work;

static void *hashOnHost(void *data) {
  Work *work = (Work *)data;
  for (uint64_t chunk = work->first; chunk < work->sample.chunks; chunk += work->step) {
    unsigned long long hash = 0;
    for (uint64_t i = 0; i < kChunk; ++i) {
      uint32_t bits = (uint32_t)(chunk * work->sample.stride * kChunk + i);
      hash += mix(bits, evaluate(work->function, bits));
    }
    work->hashes[chunk] = hash;
  }
  return NULL;
}

static void hashOnAllCores(int function, Sample sample, unsigned long long *hashes) {
  static Work work[kMostThreads];
  pthread_t threads[kMostThreads];
  long cores = sysconf(_SC_NPROCESSORS_ONLN), count = cores > kMostThreads ? kMostThreads : cores;
  for (long t = 0; t < count; ++t) {
    work[t] = {function, sample, (uint64_t)t, (uint64_t)count, hashes};
    pthread_create(&threads[t], NULL, hashOnHost, &work[t]);
  }
  for (long t = 0; t < count; ++t) pthread_join(threads[t], NULL);
}

#define CHECK(call)                                                                                                                                  \
  do {                                                                                                                                               \
    cudaError_t error = (call);                                                                                                                      \
    if (error != cudaSuccess) {                                                                                                                      \
      printf("%s: %s\n", #call, cudaGetErrorString(error));                                                                                          \
      exit(2);                                                                                                                                       \
    }                                                                                                                                                \
  } while (0)

static void showFirst(int function, uint64_t chunk) {
  uint32_t *results;
  CHECK(cudaMallocHost(&results, kChunk * sizeof *results));
  evaluateOnDevice<<<(unsigned)(kChunk / 256), 256>>>(function, chunk, results);
  CHECK(cudaDeviceSynchronize());
  for (uint64_t i = 0; i < kChunk; ++i) {
    uint32_t bits = (uint32_t)(chunk * kChunk + i), host = evaluate(function, bits);
    if (host == results[i]) continue;
    printf("  first at 0x%08x: host 0x%08x, device 0x%08x\n", bits, host, results[i]);
    break;
  }
  CHECK(cudaFreeHost(results));
}

static Sample sampleOf(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--quick") == 0) return {7, kMostChunks / 7};
  if (argc > 1 && strcmp(argv[1], "--small") == 0) return {1021, kMostChunks / 1021};
  return {1, kMostChunks};
}

int main(int argc, char **argv) {
  Sample sample = sampleOf(argc, argv);
  size_t bytes = sample.chunks * sizeof(unsigned long long);
  unsigned long long *device, *ofDevice = (unsigned long long *)malloc(bytes), *ofHost = (unsigned long long *)malloc(bytes);
  int failures = 0;
  CHECK(cudaMalloc(&device, bytes));
  for (int function = 0; function < FUNCTIONS; ++function) {
    CHECK(cudaMemset(device, 0, bytes));
    hashOnDevice<<<(unsigned)sample.chunks, 256>>>(function, sample.stride, device);
    CHECK(cudaGetLastError());
    hashOnAllCores(function, sample, ofHost);
    CHECK(cudaMemcpy(ofDevice, device, bytes, cudaMemcpyDeviceToHost));
    uint64_t different = 0, first = 0;
    for (uint64_t chunk = sample.chunks; chunk-- > 0;)
      if (ofDevice[chunk] != ofHost[chunk]) ++different, first = chunk;
    printf("%s %-12s %.0f million values: %s\n", different ? "FAIL" : "PASS", names[function], (double)(sample.chunks * kChunk) * 1e-6,
           different ? "DIFFERENT" : "same bits on host and device");
    if (different) showFirst(function, first * sample.stride);
    failures += different > 0;
  }
  CHECK(cudaFree(device));
  free(ofDevice), free(ofHost);
  return failures > 0;
}

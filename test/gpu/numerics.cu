//===- numerics.cu - the shared arithmetic, host against device, bit for bit ----------------------===//
//
// Every function of one number in lib/reference/numerics.h and formats.h for all 2^32 values of f32, and those of two for as many pairs. Both sides
// hash their results in chunks; where hashes differ, the first value that differs is named. With --quick every seventh chunk, which is often enough
// for values of every exponent; with --small a few. Likewise the functions of kernels/common/formats.cuh, which do on devices by instructions what
// formats.h says.
//
//===----------------------------------------------------------------------------------------------===//

#include "kernels/common/formats.cuh"
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

enum Function {
  TO_BF16,
  TO_F16,
  EXP,
  SIGMOID,
  SILU,
  SQUARE_ROOT,
  DIVIDE,
  TO_E2M1,
  TO_E4M3,
  MXFP4_EVEN,
  MXFP8_EVEN,
  OF_CODES,
  NVFP4_SCALE,
  MX_SCALE,
  FP8_SCALE,
  PAIR_TO_E4M3, // from here on the device's own
  E4M3_TO_PAIR,
  PAIR_TO_BF16,
  PAIR_TO_F16,
  NVFP4_SCALE_OF_DEVICE,
  ENCODE_E2M1,
  ENCODE_E4M3_DIVIDED,
  DECODE_TILE,
  FUNCTIONS
};
static const char *const names[FUNCTIONS] = {"f32_to_bf16",    "f32_to_f16",  "exp",         "sigmoid",        "silu",          "square_root",
                                             "divide",         "f32_to_e2m1", "f32_to_e4m3", "mxfp4 even",     "mxfp8 even",    "of codes",
                                             "nvfp4_scale",    "mx_scale",    "fp8_scale",   "pairToE4M3",     "e4m3ToPair",    "pairTo16Bits 1",
                                             "pairTo16Bits 2", "nvfp4Scale",  "encodeE2M1",  "encodeE4M3Div.", "dequantizeTile"};

// The second operand of a pair: any pattern that has nothing to do with the first.
__host__ __device__ static uint32_t partner(uint32_t bits) { return bits * 2654435761u ^ 0x3f123457u; }

// NaN stands for all NaN: which payload a computed one has differs between processors.
__host__ __device__ static uint32_t canonical(float value) { return moert__is_nan(value) ? 0x7fc00000u : moert__bits(value); }

// Both parts of a scale in one word.
__host__ __device__ static uint32_t fold(moert__block_scale scale) { return canonical(scale.encode) ^ scale.code * 0x01000193u; }

// The numbers that the lowest bits stand for as codes.
__host__ __device__ static uint32_t decode(uint32_t bits) {
  return canonical(moert__e2m1_to_f32(bits & 15)) ^ canonical(moert__e4m3_to_f32(bits & 255)) * 3 ^ canonical(moert__e8m0_to_f32(bits & 255)) * 5;
}

//===--- the device's own functions -------------------------------------------------------------------===//

// On the device its function, on the host what must have the same bits.
#if defined(__CUDA_ARCH__)
#define OF_SIDE(device, host) device
#else
#define OF_SIDE(device, host) host
#endif

__host__ __device__ static uint32_t foldAll(const float *x, int count) {
  uint32_t result = 0;
  for (int i = 0; i < count; ++i) result = result * 31 + canonical(x[i]);
  return result;
}

static const int kTile = 8;

// Numbers around x, and now and then one that has nothing to do with it. The result is the largest magnitude as `format` counts it.
__host__ __device__ static float makeTile(int format, uint32_t bits, float (&x)[kTile]) {
  uint32_t random = partner(bits);
  float amax = 0;
  for (int i = 0; i < kTile; ++i) {
    x[i] = moert__float(bits) * (float)(int)(random >> i & 0xffff) * 0x1p-14f;
    if (i % 2) x[i] = -x[i];
  }
  x[0] = moert__float(bits);
  if (random >> 29 == 0) x[7] = moert__float(random << 3);
  for (int i = 0; i < kTile; ++i) amax = moert__amax(format, amax, x[i]);
  return amax;
}

// With the factors of both formats, in both orders.
__host__ __device__ static uint32_t encodeTile(uint32_t bits) {
  float x[kTile];
  const float amax = makeTile(MOERT__NVFP4, bits, x);
  const bool isMx = bits >> 8 & 1, mega = bits >> 9 & 1;
  const float encode = isMx ? moert__mx_scale(MOERT__MXFP4, amax, bits >> 10 & 1).encode : moert__nvfp4_scale(amax, 448 * 6.0f).encode;
  uint32_t words[1] = {0};
#if defined(__CUDA_ARCH__)
  encodeE2M1(x, amax, encode, mega, words);
#else
  for (int i = 0; i < kTile; ++i) words[0] |= moert__f32_to_e2m1(x[i] * encode) << (8 * (int)moert__code_byte(mega, i) + moert__code_shift(mega, i));
#endif
  return words[0];
}

__host__ __device__ static uint32_t encodeDividedTile(uint32_t bits) {
  float x[kTile];
  const float amax = makeTile(MOERT__FP8_TOKEN, bits, x), scale = moert__fp8_scale(amax);
  uint32_t words[2] = {0, 0};
#if defined(__CUDA_ARCH__)
  encodeE4M3Divided(x, amax, scale, words);
#else
  for (int i = 0; i < kTile; ++i) words[i / 4] |= moert__f32_to_e4m3(moert__divide(x[i], scale)) << 8 * (i % 4);
#endif
  return words[0] ^ words[1] * 31;
}

// 4-bit codes in both orders, and 8-bit codes.
__host__ __device__ static uint32_t decodeTile(uint32_t bits) {
  float x[kTile];
  const int format = bits % 3 ? MOERT__NVFP4 : MOERT__MXFP8;
  const bool mega = bits % 3 == 2;
  const uint32_t words[2] = {bits * 2654435761u, partner(bits)};
  const float factor = moert__float(bits);
#if defined(__CUDA_ARCH__)
  dequantizeTile(format, factor, mega, words, x);
#else
  for (int i = 0; i < kTile; ++i)
    x[i] = (moert__is_packed(format) ? moert__e2m1_to_f32(words[0] >> (8 * (int)moert__code_byte(mega, i) + moert__code_shift(mega, i)) & 15)
                                     : moert__e4m3_to_f32(words[i / 4] >> 8 * (i % 4) & 255)) *
           factor;
#endif
  return foldAll(x, kTile);
}

__host__ __device__ static uint32_t decodePair(uint32_t bits) {
  float x[2];
#if defined(__CUDA_ARCH__)
  e4m3ToPair(bits & 0xffff, &x[0], &x[1]);
#else
  for (int i = 0; i < 2; ++i) x[i] = moert__e4m3_to_f32(bits >> 8 * i & 255);
#endif
  return foldAll(x, 2);
}

__host__ __device__ static uint32_t evaluateOwn(int function, uint32_t bits) {
  const float x = moert__float(bits), y = moert__float(partner(bits)), magnitude = moert__magnitude(x);
  switch (function) {
  case PAIR_TO_E4M3: return OF_SIDE(pairToE4M3(x, y), moert__f32_to_e4m3(x) | moert__f32_to_e4m3(y) << 8);
  case E4M3_TO_PAIR: return decodePair(bits);
  case PAIR_TO_BF16: return OF_SIDE(pairTo16Bits<MOERT__BF16>(x, y), moert__f32_to_bf16(x) | (uint32_t)moert__f32_to_bf16(y) << 16);
  case PAIR_TO_F16: return OF_SIDE(pairTo16Bits<MOERT__F16>(x, y), moert__f32_to_f16(x) | (uint32_t)moert__f32_to_f16(y) << 16);
  case NVFP4_SCALE_OF_DEVICE: return fold(OF_SIDE(nvfp4Scale(magnitude, y, moert__divide(1, y)), moert__nvfp4_scale(magnitude, y)));
  case ENCODE_E2M1: return encodeTile(bits);
  case ENCODE_E4M3_DIVIDED: return encodeDividedTile(bits);
  default: return decodeTile(bits);
  }
}

//===--- all functions --------------------------------------------------------------------------------===//

__host__ __device__ static uint32_t evaluate(int function, uint32_t bits) {
  float x = moert__float(bits), magnitude = moert__magnitude(x);
  switch (function) {
  case TO_BF16: return moert__f32_to_bf16(x);
  case TO_F16: return moert__f32_to_f16(x);
  case EXP: return canonical(moert__exp(x));
  case SIGMOID: return canonical(moert__sigmoid(x));
  case SILU: return canonical(moert__silu(x));
  case SQUARE_ROOT: return canonical(moert__square_root(x));
  case TO_E2M1: return moert__f32_to_e2m1(x);
  case TO_E4M3: return moert__f32_to_e4m3(x);
  case MXFP4_EVEN: return fold(moert__mx_scale(MOERT__MXFP4, magnitude, 1));
  case MXFP8_EVEN: return fold(moert__mx_scale(MOERT__MXFP8, magnitude, 1));
  case OF_CODES: return decode(bits);
  case NVFP4_SCALE: return fold(moert__nvfp4_scale(magnitude, moert__float(partner(bits))));
  case MX_SCALE: return fold(moert__mx_scale(MOERT__MXFP4, magnitude, 0)) ^ fold(moert__mx_scale(MOERT__MXFP8, magnitude, 0)) * 3;
  case FP8_SCALE: return canonical(moert__fp8_scale(magnitude));
  case DIVIDE: return canonical(moert__divide(x, moert__float(partner(bits))));
  default: return evaluateOwn(function, bits);
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
    printf("%s %-14s %.0f million values: %s\n", different ? "FAIL" : "PASS", names[function], (double)(sample.chunks * kChunk) * 1e-6,
           different ? "DIFFERENT" : "same bits on host and device");
    if (different) showFirst(function, first * sample.stride);
    failures += different > 0;
  }
  CHECK(cudaFree(device));
  free(ofDevice), free(ofHost);
  return failures > 0;
}

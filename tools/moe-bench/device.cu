//===- device.cu - the tool's own kernels -------------------------------------------------------------===//

#include "device.h"
#include "lib/reference/routed.h"

namespace {

constexpr int kThreads = 256, kBlocks = 1056, kMeetingSeconds = 3, kRead = 8;

// splitmix64
__device__ uint64_t mix(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15ull;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
  return bits ^ bits >> 31;
}

__device__ int64_t firstIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t indexStride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void fillRandom(void *memory, int64_t count, moert__format format, uint64_t seed, float scale) {
  for (int64_t i = firstIndex(); i < count; i += indexStride()) {
    float unit = static_cast<float>(mix(seed + static_cast<uint64_t>(i)) >> 40) * 0x1p-23f - 1.0f;
    moert__store(format, memory, i, unit * scale);
  }
}

__global__ void fillBytes(uint64_t *words, int64_t count, uint64_t mask, uint64_t base, uint64_t seed) {
  for (int64_t i = firstIndex(); i < count; i += indexStride()) words[i] = (mix(seed + static_cast<uint64_t>(i)) & mask) + base;
}

// As copyVectors, below.
__global__ void readVectors(const uint4 *from, int64_t count, unsigned *found) {
  const int64_t chunk = kRead * static_cast<int64_t>(blockDim.x);
  unsigned bits = 0;
  for (int64_t start = blockIdx.x * chunk; start < count; start += gridDim.x * chunk) {
    uint4 parts[kRead] = {};
#pragma unroll
    for (int part = 0; part < kRead; ++part) {
      const int64_t i = start + part * static_cast<int64_t>(blockDim.x) + threadIdx.x;
      if (i < count) parts[part] = from[i];
    }
#pragma unroll
    for (int part = 0; part < kRead; ++part) bits |= parts[part].x ^ parts[part].y ^ parts[part].z ^ parts[part].w;
  }
  if (bits == 1) *found = bits;
}

__global__ void addChecksum(const unsigned char *memory, size_t bytes, unsigned long long *sum) {
  uint64_t part = 0;
  int64_t words = static_cast<int64_t>(bytes / 4);
  for (int64_t i = firstIndex(); i < words; i += indexStride())
    part += mix(reinterpret_cast<const uint32_t *>(memory)[i] ^ static_cast<uint64_t>(i) << 32);
  for (int64_t i = words * 4 + firstIndex(); i < static_cast<int64_t>(bytes); i += indexStride())
    part += mix(memory[i] ^ static_cast<uint64_t>(i) << 32);
  atomicAdd(sum, static_cast<unsigned long long>(part));
}

// A block takes chunks that lie together, with four loads under way in each thread.
__global__ void copyVectors(uint4 *to, const uint4 *from, int64_t count) {
  int64_t chunk = 4 * static_cast<int64_t>(blockDim.x);
  for (int64_t start = blockIdx.x * chunk; start < count; start += gridDim.x * chunk) {
    uint4 parts[4];
    for (int part = 0; part < 4; ++part) {
      int64_t i = start + part * static_cast<int64_t>(blockDim.x) + threadIdx.x;
      if (i < count) parts[part] = from[i];
    }
    for (int part = 0; part < 4; ++part) {
      int64_t i = start + part * static_cast<int64_t>(blockDim.x) + threadIdx.x;
      if (i < count) to[i] = parts[part];
    }
  }
}

// The time is read now and then only: a reading takes about as long as a poll.
__device__ bool waitFor(const unsigned *word, unsigned value, uint64_t deadline) {
  for (unsigned polls = 1;; ++polls) {
    unsigned seen;
    uint64_t time;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    if (seen >= value) return true;
    if (polls % 256) continue;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    if (time > deadline) return false;
  }
}

__device__ void tell(unsigned *word, unsigned value) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); }

__device__ uint64_t deadlineIn(unsigned seconds) {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time + seconds * 1000000000ull;
}

__global__ void pingPong(unsigned *mine, unsigned *peers, bool first, unsigned rounds) {
  uint64_t deadline = deadlineIn(5);
  for (unsigned round = 1; round <= rounds; ++round) {
    if (first) tell(peers, round);
    if (!waitFor(mine, round, deadline)) return;
    if (!first) tell(peers, round);
  }
}

// Thread r tells rank r, and waits for it.
__global__ void meet(DeviceMeeting meeting) {
  unsigned *mine = meeting.words[meeting.rank];
  unsigned epoch = mine[DEVICE_MEETING_EPOCH] + 1, gaveUp = mine[DEVICE_MEETING_GAVE_UP];
  __syncthreads();
  if (gaveUp) return;
  if (threadIdx.x == 0) mine[DEVICE_MEETING_EPOCH] = epoch;
  if (threadIdx.x >= static_cast<unsigned>(meeting.ranks)) return;
  tell(meeting.words[threadIdx.x] + meeting.rank, epoch);
  if (!waitFor(mine + threadIdx.x, epoch, deadlineIn(kMeetingSeconds))) mine[DEVICE_MEETING_GAVE_UP] = 1;
}

// A warp compares a row.
__global__ void compareRows(const uint32_t *rows, const int32_t *to, const uint32_t *wanted, const int32_t *from, int64_t count, int64_t words,
                            unsigned long long *different) {
  unsigned long long found = 0;
  for (int64_t i = firstIndex() / 32; i < count; i += indexStride() / 32)
    for (int64_t word = threadIdx.x % 32; word < words; word += 32) found += rows[to[i] * words + word] != wanted[from[i] * words + word];
  if (found) atomicAdd(different, found);
}

//===--- a layer of experts -------------------------------------------------------------------------===//

// One product after the other.
__device__ float multiplyRows(const uint8_t *a, const uint8_t *aScales, const uint8_t *b, const uint8_t *bScales, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    const int shift = k % 2 * 4;
    const float x = moert__e2m1_to_f32(a[k / 2] >> shift & 15) * moert__e4m3_to_f32(aScales[k / MOERT__ROUTED_SCALED]);
    sum = fmaf(x, moert__e2m1_to_f32(b[k / 2] >> shift & 15) * moert__e4m3_to_f32(bScales[k / MOERT__ROUTED_SCALED]), sum);
  }
  return sum;
}

// Number of a choice of a token that is looked at.
__device__ int64_t choiceAt(const DeviceLayer &layer, int64_t token, int64_t slot) { return token * layer.stride * layer.top_k + slot; }

// Before it has a code.
__device__ float activationAt(const DeviceLayer &layer, int64_t token, int64_t slot, int64_t column) {
  const int64_t expert = layer.ids[choiceAt(layer, token, slot)], state = token * layer.stride, hidden = layer.hidden;
  if (expert < 0 || expert >= layer.experts) return 0;
  float sums[2];
  for (int half = 0; half < 2; ++half) {
    const int64_t row = (2 * expert + half) * layer.inner + column;
    sums[half] = multiplyRows(layer.states + state * (hidden / 2), layer.state_scales + state * (hidden / MOERT__ROUTED_SCALED),
                              layer.first + row * (hidden / 2), layer.first_scales + row * (hidden / MOERT__ROUTED_SCALED), hidden);
  }
  return moert__routed_activation(sums[0] * layer.gate[expert], sums[1] * layer.up[expert]);
}

// Sixteen threads share a scale; warps are whole, for their number is a multiple of 128.
__global__ void makeActivations(DeviceLayer layer, float *activations) {
  const int64_t count = layer.count * layer.top_k * layer.inner;
  for (int64_t i = firstIndex(); i < count; i += indexStride()) {
    const int64_t choice = i / layer.inner;
    const float h = activationAt(layer, choice / layer.top_k, choice % layer.top_k, i % layer.inner);
    float amax = fabsf(h);
    for (int lanes = MOERT__ROUTED_SCALED / 2; lanes > 0; lanes /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, lanes));
    const uint32_t scale = moert__routed_scale(amax);
    activations[i] = moert__e2m1_to_f32(moert__routed_code(h, scale)) * moert__e4m3_to_f32(scale);
  }
}

__device__ float resultAt(const DeviceLayer &layer, const float *activations, int64_t expert, int64_t column) {
  const int64_t row = expert * layer.hidden + column;
  const uint8_t *codes = layer.second + row * (layer.inner / 2), *scales = layer.second_scales + row * (layer.inner / MOERT__ROUTED_SCALED);
  float sum = 0;
  for (int64_t k = 0; k < layer.inner; ++k) {
    const float weight = moert__e2m1_to_f32(codes[k / 2] >> k % 2 * 4 & 15) * moert__e4m3_to_f32(scales[k / MOERT__ROUTED_SCALED]);
    sum = fmaf(activations[k], weight, sum);
  }
  return sum * layer.down[expert];
}

__global__ void addResults(DeviceLayer layer, const float *activations, float *sums) {
  const int64_t count = layer.count * layer.hidden;
  for (int64_t i = firstIndex(); i < count; i += indexStride()) {
    const int64_t token = i / layer.hidden;
    float total = 0;
    for (int64_t slot = 0; slot < layer.top_k; ++slot) {
      const int64_t choice = choiceAt(layer, token, slot), expert = layer.ids[choice];
      if (expert < 0 || expert >= layer.experts) continue;
      const float result = resultAt(layer, activations + (token * layer.top_k + slot) * layer.inner, expert, i % layer.hidden);
      total = moert__routed_add(total, result, layer.weights[choice], 1);
    }
    sums[i] = total;
  }
}

__global__ void doNothing() {}

} // namespace

cudaError_t device_random(void *memory, int64_t count, moert_dtype dtype, uint64_t seed, float scale, cudaStream_t stream) {
  if (count > 0) fillRandom<<<kBlocks, kThreads, 0, stream>>>(memory, count, moert__format_of(dtype.code, dtype.bits), seed << 32, scale);
  return cudaGetLastError();
}

cudaError_t device_random_bytes(void *memory, size_t bytes, uint64_t mask, uint64_t base, uint64_t seed, cudaStream_t stream) {
  const int64_t words = static_cast<int64_t>(bytes / sizeof(uint64_t));
  if (words > 0) fillBytes<<<kBlocks, kThreads, 0, stream>>>(static_cast<uint64_t *>(memory), words, mask, base, seed << 32);
  return cudaGetLastError();
}

cudaError_t device_read(const void *memory, size_t bytes, unsigned *found, cudaStream_t stream) {
  const size_t vectors = bytes / sizeof(uint4), chunk = kRead * kThreads;
  const unsigned blocks = static_cast<unsigned>((vectors + chunk - 1) / chunk);
  readVectors<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4 *>(memory), static_cast<int64_t>(vectors), found);
  return cudaGetLastError();
}

cudaError_t device_layer(const DeviceLayer *layer, float *activations, float *sums, cudaStream_t stream) {
  makeActivations<<<kBlocks, kThreads, 0, stream>>>(*layer, activations);
  addResults<<<kBlocks, kThreads, 0, stream>>>(*layer, activations, sums);
  return cudaGetLastError();
}

cudaError_t device_checksum(const void *memory, size_t bytes, unsigned long long *sum, cudaStream_t stream) {
  addChecksum<<<kBlocks, kThreads, 0, stream>>>(static_cast<const unsigned char *>(memory), bytes, sum);
  return cudaGetLastError();
}

cudaError_t device_copy(void *to, const void *from, size_t bytes, int blocks, cudaStream_t stream) {
  size_t vectors = bytes / sizeof(uint4);
  int threads = blocks ? 1024 : kThreads;
  if (!blocks) blocks = static_cast<int>((vectors + 4 * kThreads - 1) / (4 * kThreads));
  copyVectors<<<blocks, threads, 0, stream>>>(static_cast<uint4 *>(to), static_cast<const uint4 *>(from), static_cast<int64_t>(vectors));
  return cudaGetLastError();
}

cudaError_t device_ping_pong(unsigned *mine, unsigned *peers, bool first, unsigned rounds, cudaStream_t stream) {
  pingPong<<<1, 1, 0, stream>>>(mine, peers, first, rounds);
  return cudaGetLastError();
}

cudaError_t device_nothing(cudaStream_t stream) {
  doNothing<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t device_meet(const DeviceMeeting *meeting, cudaStream_t stream) {
  meet<<<1, MOERT_MAX_RANKS, 0, stream>>>(*meeting);
  return cudaGetLastError();
}

cudaError_t device_compare_rows(const void *rows, const int32_t *to, const void *wanted, const int32_t *from, int64_t count, size_t row_bytes,
                                unsigned long long *different, cudaStream_t stream) {
  compareRows<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint32_t *>(rows), to, static_cast<const uint32_t *>(wanted), from, count,
                                                static_cast<int64_t>(row_bytes / 4), different);
  return cudaGetLastError();
}

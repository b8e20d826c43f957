//===- device.cu - the tool's own kernels -------------------------------------------------------------===//

#include "device.h"
#include "lib/reference/numerics.h"

namespace {

constexpr int kThreads = 256, kBlocks = 1056, kMeetingSeconds = 3;

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

__global__ void doNothing() {}

} // namespace

cudaError_t device_random(void *memory, int64_t count, moert_dtype dtype, uint64_t seed, float scale, cudaStream_t stream) {
  if (count > 0) fillRandom<<<kBlocks, kThreads, 0, stream>>>(memory, count, moert__format_of(dtype.code, dtype.bits), seed << 32, scale);
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

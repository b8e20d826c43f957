//===- memory.c - device memory, memory that processes share, host memory that devices address ----------===//

#include "cuda.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static moert_status fail_of_size(cudaError_t error, const char *call, size_t bytes, int32_t device) {
  char what[128];
  snprintf(what, sizeof what, "%s of %zu bytes on device %d", call, bytes, device);
  return moert__cuda_fail(error, what);
}

//===--- memory of one rank -------------------------------------------------------------------------===//

// cudaMalloc and cudaFree may wait for all work of the device. Ranks that share a device would wait for each other's kernels so, which may be waiting
// for them. Memory of a pool comes and goes without; its stream has no other work.
typedef struct Pool {
  cudaMemPool_t pool;
  cudaStream_t stream;
  size_t blocks; // in use
} Pool;

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static Pool pools[MOERT__CUDA_MAX_DEVICES];

static cudaError_t make_pool(int32_t device, Pool *made) {
  struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice, .id = device}};
  uint64_t everything = UINT64_MAX;
  cudaError_t error = made->stream ? cudaSuccess : cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaMemPoolCreate(&made->pool, &properties);
  return error == cudaSuccess ? cudaMemPoolSetAttribute(made->pool, cudaMemPoolAttrReleaseThreshold, &everything) : error;
}

static cudaError_t allocate_locked(int32_t device, size_t bytes, void **memory) {
  Pool *from = &pools[device];
  cudaError_t error = from->pool ? cudaSuccess : make_pool(device, from);
  if (error == cudaSuccess) error = cudaMallocFromPoolAsync(memory, bytes > 0 ? bytes : 1, from->pool, from->stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(from->stream);
  if (error == cudaSuccess) ++from->blocks;
  return error;
}

moert_status moert__cuda_allocate(int32_t device, size_t bytes, void **memory) {
  int32_t entered = moert__cuda_enter(device);
  void *made = NULL;
  pthread_mutex_lock(&pools_lock);
  cudaError_t error = allocate_locked(device, bytes, &made);
  pthread_mutex_unlock(&pools_lock);
  moert__cuda_leave(entered);
  if (error != cudaSuccess) return fail_of_size(error, "cudaMallocFromPoolAsync", bytes, device);
  *memory = made;
  return MOERT_OK;
}

// What nobody uses goes back to the device with the last block.
static void release_locked(int32_t device, void *memory) {
  Pool *to = &pools[device];
  if (cudaFreeAsync(memory, to->stream) != cudaSuccess || cudaStreamSynchronize(to->stream) != cudaSuccess) cudaGetLastError();
  if (--to->blocks == 0 && cudaMemPoolTrimTo(to->pool, 0) != cudaSuccess) cudaGetLastError();
}

void moert__cuda_release(int32_t device, void *memory, size_t bytes) {
  (void)bytes;
  if (!memory) return;
  int32_t entered = moert__cuda_enter(device);
  pthread_mutex_lock(&pools_lock);
  release_locked(device, memory);
  pthread_mutex_unlock(&pools_lock);
  moert__cuda_leave(entered);
}

//===--- memory that processes share ----------------------------------------------------------------===//

_Static_assert(sizeof(moert__memory_handle) >= sizeof(cudaIpcMemHandle_t), "a handle holds one of CUDA's");

// For work of the library's own. The legacy stream would wait for streams of the program; a new stream each time would be dealt a queue of the device
// in turn, and sooner or later that of a rank which waits.
static cudaError_t own_stream(int32_t device, cudaStream_t *stream) {
  static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
  static cudaStream_t streams[MOERT__CUDA_MAX_DEVICES]; // held for the life of the process
  pthread_mutex_lock(&streams_lock);
  cudaError_t error = streams[device] ? cudaSuccess : cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking);
  *stream = streams[device];
  pthread_mutex_unlock(&streams_lock);
  return error;
}

static cudaError_t clear(int32_t device, void *memory, size_t bytes) {
  cudaStream_t stream;
  cudaError_t error = own_stream(device, &stream);
  if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, bytes, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

static moert_status prepare_shared(int32_t device, size_t bytes, void *memory, moert__memory_handle *handle) {
  cudaError_t error = clear(device, memory, bytes);
  if (error != cudaSuccess) return fail_of_size(error, "cudaMemset", bytes, device);
  if (!handle) return MOERT_OK;
  cudaIpcMemHandle_t own;
  error = cudaIpcGetMemHandle(&own, memory);
  if (error != cudaSuccess) return fail_of_size(error, "cudaIpcGetMemHandle", bytes, device);
  memset(handle, 0, sizeof *handle);
  memcpy(handle->bytes, &own, sizeof own);
  return MOERT_OK;
}

// Memory of a pool cannot be given to another process in this way.
moert_status moert__cuda_allocate_shared(int32_t device, size_t bytes, void **memory, moert__memory_handle *handle) {
  // CUDA shares whole blocks of 2 MiB with another process; what else lies in such a block is not for it.
  enum { BLOCK = 2 << 20 };
  if (bytes > SIZE_MAX - BLOCK) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "%zu bytes are more than any device has", bytes);
  size_t whole = handle ? (bytes / BLOCK + 1) * BLOCK : bytes > 0 ? bytes : 1;
  int32_t entered = moert__cuda_enter(device);
  void *made = NULL;
  cudaError_t error = cudaMalloc(&made, whole);
  moert_status status = error == cudaSuccess ? prepare_shared(device, bytes, made, handle) : fail_of_size(error, "cudaMalloc", whole, device);
  if (status != MOERT_OK && cudaFree(made) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
  if (status == MOERT_OK) *memory = made;
  return status;
}

void moert__cuda_release_shared(int32_t device, void *memory, size_t bytes) {
  (void)bytes;
  int32_t entered = moert__cuda_enter(device);
  if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
}

moert_status moert__cuda_import_shared(int32_t device, const moert__memory_handle *handle, size_t bytes, void **memory) {
  cudaIpcMemHandle_t own;
  memcpy(&own, handle->bytes, sizeof own);
  int32_t entered = moert__cuda_enter(device);
  void *opened = NULL;
  cudaError_t error = cudaIpcOpenMemHandle(&opened, own, cudaIpcMemLazyEnablePeerAccess);
  moert__cuda_leave(entered);
  if (error != cudaSuccess) return fail_of_size(error, "cudaIpcOpenMemHandle", bytes, device);
  *memory = opened;
  return MOERT_OK;
}

void moert__cuda_forget_shared(int32_t device, void *memory, size_t bytes) {
  (void)bytes;
  int32_t entered = moert__cuda_enter(device);
  if (cudaIpcCloseMemHandle(memory) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
}

//===--- host memory that devices address -----------------------------------------------------------===//

// CUDA refuses to register memory twice, and ranks that are threads share a block.
typedef struct Registration {
  void *memory;
  int users;
  struct Registration *next;
} Registration;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Registration *registrations;

static Registration **find(const void *memory) {
  Registration **place = &registrations;
  while (*place && (*place)->memory != memory) place = &(*place)->next;
  return place;
}

static moert_status register_memory(void *memory, size_t bytes) {
  cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error != cudaSuccess) return moert__cuda_fail(error, "cudaHostRegister of memory that ranks share");
  void *address = NULL;
  error = cudaHostGetDevicePointer(&address, memory, 0);
  if (error == cudaSuccess && address == memory) return MOERT_OK;
  cudaHostUnregister(memory);
  if (error != cudaSuccess) return moert__cuda_fail(error, "cudaHostGetDevicePointer");
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "the devices address memory of the host at other addresses than the host");
}

static moert_status map_locked(void *memory, size_t bytes) {
  Registration *known = *find(memory);
  if (known) {
    ++known->users;
    return MOERT_OK;
  }
  Registration *made = malloc(sizeof *made);
  if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "%zu bytes for a registration", sizeof *made);
  moert_status status = register_memory(memory, bytes);
  if (status != MOERT_OK) {
    free(made);
    return status;
  }
  *made = (Registration){memory, 1, registrations};
  registrations = made;
  return MOERT_OK;
}

moert_status moert__cuda_map_host(void *memory, size_t bytes) {
  int32_t entered = moert__cuda_enter(moert__cuda_some_device());
  pthread_mutex_lock(&lock);
  moert_status status = map_locked(memory, bytes);
  pthread_mutex_unlock(&lock);
  moert__cuda_leave(entered);
  return status;
}

void moert__cuda_unmap_host(void *memory) {
  int32_t entered = moert__cuda_enter(moert__cuda_some_device());
  pthread_mutex_lock(&lock);
  Registration **place = find(memory), *known = *place;
  if (known && --known->users == 0) {
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
    *place = known->next;
    free(known);
  }
  pthread_mutex_unlock(&lock);
  moert__cuda_leave(entered);
}

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
// for them. Memory of a pool comes and goes without, in the order of the library's own stream. What is free again stays in the pool, until there are
// no ranks in this process or symmetric memory is short: to give it back to the device may be such a wait.
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static cudaMemPool_t pools[MOERT__CUDA_MAX_DEVICES];

static cudaError_t make_pool(int32_t device, cudaMemPool_t *made) {
  struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice, .id = device}};
  uint64_t everything = UINT64_MAX;
  cudaError_t error = *made ? cudaSuccess : cudaMemPoolCreate(made, &properties);
  return error == cudaSuccess ? cudaMemPoolSetAttribute(*made, cudaMemPoolAttrReleaseThreshold, &everything) : error;
}

moert_status moert__cuda_make_pool(int32_t device) {
  pthread_mutex_lock(&pools_lock);
  cudaError_t error = make_pool(device, &pools[device]);
  pthread_mutex_unlock(&pools_lock);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "cudaMemPoolCreate");
}

static cudaError_t allocate_in_order(int32_t device, size_t bytes, void **memory) {
  cudaStream_t stream = moert__cuda_own_stream(device);
  cudaError_t error = cudaMallocFromPoolAsync(memory, bytes > 0 ? bytes : 1, pools[device], stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

moert_status moert__cuda_allocate(int32_t device, size_t bytes, void **memory) {
  int32_t entered = moert__cuda_enter(device);
  void *made = NULL;
  cudaError_t error = allocate_in_order(device, bytes, &made);
  moert__cuda_leave(entered);
  if (error != cudaSuccess) return fail_of_size(error, "cudaMallocFromPoolAsync", bytes, device);
  *memory = made;
  return MOERT_OK;
}

void moert__cuda_release(int32_t device, void *memory, size_t bytes) {
  (void)bytes;
  if (!memory) return;
  int32_t entered = moert__cuda_enter(device);
  cudaStream_t stream = moert__cuda_own_stream(device);
  if (cudaFreeAsync(memory, stream) != cudaSuccess || cudaStreamSynchronize(stream) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
}

static void trim_pools(void) {
  pthread_mutex_lock(&pools_lock);
  for (int device = 0; device < MOERT__CUDA_MAX_DEVICES; ++device)
    if (pools[device] && cudaMemPoolTrimTo(pools[device], 0) != cudaSuccess) cudaGetLastError();
  pthread_mutex_unlock(&pools_lock);
}

//===--- memory that processes share ----------------------------------------------------------------===//

_Static_assert(sizeof(moert__memory_handle) >= sizeof(cudaIpcMemHandle_t), "a handle holds one of CUDA's");

// Not on the legacy stream, which would wait for streams of the program.
static cudaError_t clear(int32_t device, void *memory, size_t bytes) {
  cudaStream_t stream = moert__cuda_own_stream(device);
  cudaError_t error = cudaMemsetAsync(memory, 0, bytes, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

// What the pools keep is memory too, if there is no other.
static cudaError_t allocate_whole(size_t bytes, void **memory) {
  cudaError_t error = cudaMalloc(memory, bytes);
  if (error != cudaErrorMemoryAllocation) return error;
  cudaGetLastError();
  trim_pools();
  return cudaMalloc(memory, bytes);
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
  cudaError_t error = allocate_whole(whole, &made);
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
    if (!registrations) trim_pools(); // that was the last communicator
  }
  pthread_mutex_unlock(&lock);
  moert__cuda_leave(entered);
}

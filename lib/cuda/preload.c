//===- preload.c - the library's kernels are loaded before ranks wait for each other ----------------------===//
//
// CUDA loads a kernel when it is first launched, and that may wait for all work of the device. If one rank waits there for another, whose kernel is
// not loaded yet, neither goes on. So all kernels are loaded before there are ranks. The linker calls this file in place of the function by which
// code that nvcc has made tells CUDA of its kernels (--wrap).
//
//===----------------------------------------------------------------------------------------------===//

#include "cuda.h"
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const void **kernels;
static size_t num_kernels, capacity;
static bool is_complete = true, is_loaded[MOERT__CUDA_MAX_DEVICES];

// The last five are the launch bounds, of no concern here.
typedef void Register(void **image, const char *kernel, char *device_kernel, const char *name, int threads, void *thread, void *block,
                      void *block_size, void *grid_size, int *warp_size);
Register __real___cudaRegisterFunction, __wrap___cudaRegisterFunction;

void __wrap___cudaRegisterFunction(void **image, const char *kernel, char *device_kernel, const char *name, int threads, void *thread, void *block,
                                   void *block_size, void *grid_size, int *warp_size) {
  if (num_kernels == capacity) {
    size_t more = capacity ? 2 * capacity : 64;
    const void **grown = realloc(kernels, more * sizeof *kernels);
    if (grown) kernels = grown, capacity = more;
  }
  if (num_kernels < capacity)
    kernels[num_kernels++] = kernel;
  else
    is_complete = false;
  __real___cudaRegisterFunction(image, kernel, device_kernel, name, threads, thread, block, block_size, grid_size, warp_size);
}

static moert_status load_all(void) {
  if (!is_complete) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "there was no memory for the list of kernels when the library was loaded");
  for (size_t i = 0; i < num_kernels; ++i) {
    cudaKernel_t kernel = NULL;
    cudaError_t error = cudaGetKernel(&kernel, kernels[i]);
    if (error == cudaSuccess) error = moert__cuda_load_kernel(kernel);
    if (error != cudaSuccess) return moert__cuda_fail(error, "loading the library's kernels");
  }
  return MOERT_OK;
}

moert_status moert__cuda_preload(int32_t device) {
  pthread_mutex_lock(&lock);
  moert_status status = is_loaded[device] ? MOERT_OK : load_all();
  is_loaded[device] = status == MOERT_OK;
  pthread_mutex_unlock(&lock);
  return status;
}

//===- module.c - the kernels of compiled graphs --------------------------------------------------------===//
//
// What upstream's lowering of gpu.launch_func calls, under names of our own (moe-compile renames it), so that other software's functions in the same
// process are never met. Signatures of LLVM 22.
//
// The constructors of a graph.so run when it is loaded, perhaps where there is no driver: they only remember the image. It is loaded when a thread
// next enters a device, once for all devices: before an op of the graph waits for other ranks, as loading may wait for all work of the device.
// The functions return no status; what fails is the context's, and so the graph call's.
//
//===----------------------------------------------------------------------------------------------===//

#include "cuda.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct Kernel {
  char *name;
  cudaKernel_t kernel;
  struct Kernel *next;
} Kernel;

typedef struct Module {
  const void *image;
  cudaLibrary_t library; // NULL until it is loaded
  uint64_t devices;      // on which its kernels are loaded: bits
  Kernel *kernels;       // that were asked for
  struct Module *next;
} Module;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Module *modules;
// Grows with every module. A device for which it has the same value as `loaded` has nothing to load.
static atomic_uint_fast64_t generation, loaded[MOERT__CUDA_MAX_DEVICES];

//===--- loading ----------------------------------------------------------------------------------===//

static cudaError_t load_library(Module *module) {
  if (module->library) return cudaSuccess;
  return cudaLibraryLoadData(&module->library, module->image, NULL, NULL, 0, NULL, NULL, 0);
}

static cudaError_t load_kernels(Module *module) {
  unsigned count = 0;
  cudaError_t error = load_library(module);
  if (error == cudaSuccess) error = cudaLibraryGetKernelCount(&count, module->library);
  if (error != cudaSuccess || count == 0) return error;
  cudaKernel_t *kernels = calloc(count, sizeof *kernels);
  if (!kernels) return cudaErrorMemoryAllocation;
  error = cudaLibraryEnumerateKernels(kernels, count, module->library);
  for (unsigned i = 0; i < count && error == cudaSuccess; ++i) error = moert__cuda_load_kernel(kernels[i]);
  free(kernels);
  return error;
}

static void load_on(int32_t device) {
  for (Module *module = modules; module; module = module->next) {
    if (module->devices >> device & 1) continue;
    if (load_kernels(module) == cudaSuccess)
      module->devices |= (uint64_t)1 << device;
    else
      cudaGetLastError();
  }
}

void moert__cuda_load_modules(int32_t device) {
  if (atomic_load_explicit(&loaded[device], memory_order_acquire) == atomic_load(&generation)) return;
  // The thread may be capturing, on another device or in a program's own capture: loading is no part of that.
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  pthread_mutex_lock(&lock);
  uint_fast64_t current = atomic_load(&generation);
  if (cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess) {
    load_on(device);
    cudaThreadExchangeStreamCaptureMode(&mode);
  }
  atomic_store_explicit(&loaded[device], current, memory_order_release);
  pthread_mutex_unlock(&lock);
}

//===--- failures ---------------------------------------------------------------------------------===//

// Whether the thread's graph call goes on; the last error says why if there is none.
static bool goes_on(moert_context *context) {
  if (context) return moert__context_launch_status(context) == MOERT_OK;
  moert__fail(MOERT_ERROR_INVALID_STATE, "a kernel of a graph was to be launched outside of a graph call");
  return false;
}

static void fail(cudaError_t error, const char *what) { moert__context_fail_launch(moert__current_context(), moert__cuda_fail(error, what)); }

//===--- modules ----------------------------------------------------------------------------------===//

MOERT_API void *moert_mgpuModuleLoad(const void *image, size_t bytes);
MOERT_API void moert_mgpuModuleUnload(void *handle);
MOERT_API void *moert_mgpuModuleGetFunction(void *handle, const char *name);

// NULL if there is no memory: then moert_mgpuModuleGetFunction says so.
void *moert_mgpuModuleLoad(const void *image, size_t bytes) {
  (void)bytes;
  Module *module = calloc(1, sizeof *module);
  if (!module) return NULL;
  module->image = image;
  pthread_mutex_lock(&lock);
  module->next = modules;
  modules = module;
  atomic_fetch_add(&generation, 1);
  pthread_mutex_unlock(&lock);
  return module;
}

static void unlink_module(const Module *module) {
  Module **place = &modules;
  while (*place && *place != module) place = &(*place)->next;
  if (*place) *place = module->next;
}

// When the graph is unloaded, or when the process ends: CUDA may be gone then, and refuses.
void moert_mgpuModuleUnload(void *handle) {
  Module *module = handle;
  if (!module) return;
  pthread_mutex_lock(&lock);
  unlink_module(module);
  if (module->library && cudaLibraryUnload(module->library) != cudaSuccess) cudaGetLastError();
  pthread_mutex_unlock(&lock);
  for (Kernel *kernel = module->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    free(kernel->name);
    free(kernel);
  }
  free(module);
}

static Kernel *known_kernel(const Module *module, const char *name) {
  Kernel *kernel = module->kernels;
  while (kernel && strcmp(kernel->name, name) != 0) kernel = kernel->next;
  return kernel;
}

static cudaError_t find_kernel(Module *module, const char *name, cudaKernel_t *found) {
  cudaError_t error = load_library(module);
  if (error == cudaSuccess) error = cudaLibraryGetKernel(found, module->library, name);
  if (error != cudaSuccess) return error;
  Kernel *kernel = calloc(1, sizeof *kernel);
  char *copy = strdup(name);
  if (!kernel || !copy) {
    free(kernel), free(copy);
    return cudaSuccess; // found all the same, and looked for again the next time
  }
  *kernel = (Kernel){copy, *found, module->kernels};
  module->kernels = kernel;
  return cudaSuccess;
}

void *moert_mgpuModuleGetFunction(void *handle, const char *name) {
  Module *module = handle;
  if (!goes_on(moert__current_context())) return NULL;
  if (!module) {
    fail(cudaErrorMemoryAllocation, "remembering a kernel of the graph when it was loaded");
    return NULL;
  }
  cudaKernel_t found = NULL;
  pthread_mutex_lock(&lock);
  const Kernel *known = known_kernel(module, name);
  cudaError_t error = cudaSuccess;
  if (known)
    found = known->kernel;
  else
    error = find_kernel(module, name, &found);
  pthread_mutex_unlock(&lock);
  if (error == cudaSuccess) return found;
  fail(error, "loading a kernel of the graph");
  return NULL;
}

//===--- launches ---------------------------------------------------------------------------------===//

MOERT_API void moert_mgpuLaunchKernel(void *function, intptr_t grid_x, intptr_t grid_y, intptr_t grid_z, intptr_t block_x, intptr_t block_y,
                                      intptr_t block_z, int32_t shared_bytes, void *stream, void **parameters, void **extra, size_t num_parameters);
MOERT_API void *moert_mgpuStreamCreate(void);
MOERT_API void moert_mgpuStreamDestroy(void *stream);
MOERT_API void moert_mgpuStreamSynchronize(void *stream);

static cudaError_t launch(void *function, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, void **parameters) {
  enum { ALWAYS_ALLOWED = 48 << 10 };
  if (shared_bytes > ALWAYS_ALLOWED) {
    cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    if (error != cudaSuccess) return error;
  }
  return cudaLaunchKernel(function, grid, block, parameters, shared_bytes, stream);
}

// On the context's stream, whatever the graph believes.
void moert_mgpuLaunchKernel(void *function, intptr_t grid_x, intptr_t grid_y, intptr_t grid_z, intptr_t block_x, intptr_t block_y, intptr_t block_z,
                            int32_t shared_bytes, void *stream, void **parameters, void **extra, size_t num_parameters) {
  (void)stream, (void)extra, (void)num_parameters;
  moert_context *context = moert__current_context();
  if (!goes_on(context) || !function) return;
  if (grid_x <= 0 || grid_y <= 0 || grid_z <= 0) return; // of an empty tensor; CUDA refuses such grids
  enum { MOST_X = INT32_MAX, MOST_YZ = 65535 };
  if (grid_x > MOST_X || grid_y > MOST_YZ || grid_z > MOST_YZ) {
    moert_status status = moert__fail(MOERT_ERROR_CAPACITY,
                                      "a kernel of the graph has %" PRIdPTR " x %" PRIdPTR " x %" PRIdPTR
                                      " blocks, must have at most %d x %d x %d: call the graph with fewer rows",
                                      grid_x, grid_y, grid_z, MOST_X, MOST_YZ, MOST_YZ);
    moert__context_fail_launch(context, status);
    return;
  }
  dim3 grid = {(unsigned)grid_x, (unsigned)grid_y, (unsigned)grid_z}, block = {(unsigned)block_x, (unsigned)block_y, (unsigned)block_z};
  cudaError_t error = launch(function, grid, block, (size_t)shared_bytes, moert_context_stream(context), parameters);
  if (error != cudaSuccess) fail(error, "launching a kernel of the graph");
}

void *moert_mgpuStreamCreate(void) {
  moert_context *context = moert__current_context();
  return context ? moert_context_stream(context) : NULL;
}

void moert_mgpuStreamDestroy(void *stream) { (void)stream; }

// The order of the stream is all that a graph needs; its caller waits when he wants to.
void moert_mgpuStreamSynchronize(void *stream) { (void)stream; }

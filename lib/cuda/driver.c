//===- driver.c - what only the driver's interface has: a thread's device, loading of a kernel -------------===//

#include "cuda.h"
#include <cudaTypedefs.h>
#include <pthread.h>

//===--- its functions --------------------------------------------------------------------------------===//

// The library is not linked with the driver, which may not be there.
typedef struct Driver {
  PFN_cuDevicePrimaryCtxRetain_v7000 retain_context;
  PFN_cuCtxPushCurrent_v4000 push_context;
  PFN_cuCtxPopCurrent_v4000 pop_context;
  PFN_cuKernelGetFunction_v12000 get_function;
  PFN_cuFuncLoad_v12040 load_function;
} Driver;

static Driver driver;
static bool has_driver; // all of them

bool moert__cuda_find_function(const char *name, void *function) {
  enum cudaDriverEntryPointQueryResult result;
  cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, cudaEnableDefault, &result);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess;
}

static void find_all(void) {
  has_driver =
      moert__cuda_find_function("cuDevicePrimaryCtxRetain", &driver.retain_context) &&
      moert__cuda_find_function("cuCtxPushCurrent", &driver.push_context) && moert__cuda_find_function("cuCtxPopCurrent", &driver.pop_context) &&
      moert__cuda_find_function("cuKernelGetFunction", &driver.get_function) && moert__cuda_find_function("cuFuncLoad", &driver.load_function);
}

static const Driver *find_driver(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_all);
  return has_driver ? &driver : NULL;
}

//===--- the thread's device --------------------------------------------------------------------------===//

// A thread gets the device's primary context on top of what it has, and loses it again. Setting the device instead would, on leaving, make a context
// on device 0 for every thread that had none.

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[MOERT__CUDA_MAX_DEVICES]; // of the devices that were entered; held for the life of the process

// NULL if there is none.
static CUcontext context_of(int32_t device) {
  const Driver *functions = find_driver();
  if (!functions || device < 0 || device >= MOERT__CUDA_MAX_DEVICES) return NULL;
  pthread_mutex_lock(&contexts_lock);
  if (!contexts[device] && functions->retain_context(&contexts[device], device) != CUDA_SUCCESS) contexts[device] = NULL;
  CUcontext context = contexts[device];
  pthread_mutex_unlock(&contexts_lock);
  return context;
}

int32_t moert__cuda_some_device(void) {
  int32_t device = 0;
  pthread_mutex_lock(&contexts_lock);
  while (device < MOERT__CUDA_MAX_DEVICES && !contexts[device]) ++device;
  pthread_mutex_unlock(&contexts_lock);
  return device < MOERT__CUDA_MAX_DEVICES ? device : 0;
}

int32_t moert__cuda_enter(int32_t device) {
  CUcontext context = context_of(device);
  if (!context || driver.push_context(context) != CUDA_SUCCESS) return -1;
  moert__cuda_load_modules(device);
  return device;
}

void moert__cuda_leave(int32_t entered) {
  CUcontext context;
  if (entered >= 0) driver.pop_context(&context);
}

//===--- kernels --------------------------------------------------------------------------------------===//

cudaError_t moert__cuda_load_kernel(cudaKernel_t kernel) {
  const Driver *functions = find_driver();
  if (!functions) return cudaErrorInsufficientDriver;
  CUfunction function = NULL;
  CUresult result = functions->get_function(&function, kernel);
  if (result == CUDA_SUCCESS) result = functions->load_function(function);
  return (cudaError_t)result; // both number their errors alike
}

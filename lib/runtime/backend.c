//===- backend.c - which backend a device or a graph needs ------------------------------------------===//
//
// libmoert_cuda lies beside libmoert, or where the dynamic linker looks. It is loaded once, when it is first asked for, and stays: streams, captures
// and memory of its may live as long as the process.
//
//===----------------------------------------------------------------------------------------------===//

#include "backend.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef MOERT_CUDA_LIBRARY
#error "the build defines MOERT_CUDA_LIBRARY"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const moert__backend *cuda_backend; // under the lock

//===--- loading ----------------------------------------------------------------------------------===//

// The file beside the library that this function is in, if there is one; else the bare name.
static void find_library(char path[4096]) {
  Dl_info own;
  const char *slash = dladdr((const void *)&moert__host_backend, &own) && own.dli_fname ? strrchr(own.dli_fname, '/') : NULL;
  int length = slash ? snprintf(path, 4096, "%.*s/%s", (int)(slash - own.dli_fname), own.dli_fname, MOERT_CUDA_LIBRARY) : -1;
  if (length < 0 || length >= 4096 || access(path, F_OK)) snprintf(path, 4096, "%s", MOERT_CUDA_LIBRARY);
}

static moert_status load(const moert__backend **backend) {
  char path[4096];
  find_library(path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return moert__fail(MOERT_ERROR_LOAD,
                       "the CUDA backend, %s, cannot be loaded: %s; builds with MOE_ENABLE_CUDA have it, and it lies beside libmoert",
                       MOERT_CUDA_LIBRARY, dlerror());
  void *symbol = dlsym(library, MOERT__BACKEND_SYMBOL);
  moert__backend_getter *get;
  memcpy(&get, &symbol, sizeof get); // ISO C has no conversion between the two
  const moert__backend *found = symbol ? get() : NULL;
  if (found && found->struct_size == sizeof *found) {
    *backend = found;
    return MOERT_OK;
  }
  dlclose(library);
  return moert__fail(MOERT_ERROR_LOAD, "the CUDA backend, %s, is not of the build of this library: install both from one", path);
}

static moert_status find_cuda_backend(const moert__backend **backend) {
  pthread_mutex_lock(&lock);
  moert_status status = cuda_backend ? MOERT_OK : load(&cuda_backend);
  if (!status) *backend = cuda_backend;
  pthread_mutex_unlock(&lock);
  return status;
}

//===--- look-up ----------------------------------------------------------------------------------===//

moert_status moert__backend_of_device(int32_t device_type, const moert__backend **backend) {
  switch (device_type) {
  case MOERT_DEVICE_CPU: *backend = &moert__host_backend; return MOERT_OK;
  case MOERT_DEVICE_CUDA: return find_cuda_backend(backend);
  }
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "device type is %d, must be %d (CPU) or %d (CUDA)", (int)device_type, MOERT_DEVICE_CPU,
                     MOERT_DEVICE_CUDA);
}

static moert_status fail_target(const char *target) {
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "target '%s' is unknown to this library, which has host and sm_90a", target);
}

moert_status moert__backend_of_target(const char *target, const moert__backend **backend) {
  const moert__backend *found = &moert__host_backend;
  if (strcmp(target, found->target)) {
    if (strncmp(target, "sm_", 3)) return fail_target(target);
    moert_status status = find_cuda_backend(&found);
    if (status) return status;
    if (strcmp(target, found->target)) return fail_target(target);
  }
  *backend = found;
  return MOERT_OK;
}

//===- backend.c - the CUDA backend: its table, devices, errors -----------------------------------------===//
//
// The CUDA runtime is inside this library, so that it can be loaded where there is no driver; it looks for one when it is first asked.
//
//===----------------------------------------------------------------------------------------------===//

#include "cuda.h"
#include "cuda_ops.h"
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_ops.inc" // generated: moert__cuda_functions

//===--- errors -----------------------------------------------------------------------------------===//

static moert_status status_of(cudaError_t error) {
  switch (error) {
  case cudaErrorMemoryAllocation: return MOERT_ERROR_OUT_OF_MEMORY;
  case cudaErrorNoDevice:
  case cudaErrorInvalidDevice:
  case cudaErrorInsufficientDriver:
  case cudaErrorStubLibrary:
  case cudaErrorCallRequiresNewerDriver:
  case cudaErrorDevicesUnavailable:
  case cudaErrorDeviceNotLicensed:
  case cudaErrorSystemNotReady:
  case cudaErrorSystemDriverMismatch:
  case cudaErrorCompatNotSupportedOnDevice: return MOERT_ERROR_NO_DEVICE;
  case cudaErrorStreamCaptureUnsupported:
  case cudaErrorStreamCaptureInvalidated:
  case cudaErrorStreamCaptureMerge:
  case cudaErrorStreamCaptureUnmatched:
  case cudaErrorStreamCaptureUnjoined:
  case cudaErrorStreamCaptureIsolation:
  case cudaErrorStreamCaptureImplicit:
  case cudaErrorCapturedEvent:
  case cudaErrorStreamCaptureWrongThread: return MOERT_ERROR_NOT_CAPTURABLE;
  default: return MOERT_ERROR_DEVICE;
  }
}

moert_status moert__cuda_fail(cudaError_t error, const char *what) {
  cudaGetLastError(); // forgets it, unless it has broken the context
  return moert__fail(status_of(error), "%s: %s (%s)", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

//===--- devices ----------------------------------------------------------------------------------===//

static moert_status count_devices(int32_t *count) {
  int found = 0;
  cudaError_t error = cudaGetDeviceCount(&found);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice || error == cudaErrorStubLibrary) {
    cudaGetLastError();
    return moert__fail(MOERT_ERROR_NO_DEVICE, "no CUDA device: %s (%s); the library needs an NVIDIA GPU and a driver for CUDA %d.%d or newer",
                       cudaGetErrorName(error), cudaGetErrorString(error), CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (error != cudaSuccess) return moert__cuda_fail(error, "cudaGetDeviceCount");
  if (found == 0) return moert__fail(MOERT_ERROR_NO_DEVICE, "no CUDA device: the driver sees none (CUDA_VISIBLE_DEVICES may hide them)");
  *count = found;
  return MOERT_OK;
}

// The kernels are compiled for one architecture.
static moert_status check_device(int32_t device) {
  int major = 0, minor = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error == cudaErrorInvalidDevice) {
    cudaGetLastError();
    int count = 0;
    cudaGetDeviceCount(&count);
    return moert__fail(MOERT_ERROR_NO_DEVICE, "device %d does not exist, there are %d", device, count);
  }
  if (error != cudaSuccess) return moert__cuda_fail(error, "cudaDeviceGetAttribute");
  if (device >= MOERT__CUDA_MAX_DEVICES)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "device %d: the library serves devices 0 to %d", device, MOERT__CUDA_MAX_DEVICES - 1);
  if (major == 9 && minor == 0) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "device %d has compute capability %d.%d, the kernels of this library are for 9.0 (sm_90a)", device,
                     major, minor);
}

static moert_status open_path(int32_t from, int32_t to) {
  int can = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can, from, to);
  if (error != cudaSuccess) return moert__cuda_fail(error, "cudaDeviceCanAccessPeer");
  if (!can)
    return moert__fail(MOERT_ERROR_UNSUPPORTED,
                       "device %d cannot address the memory of device %d: ranks need devices with peer access, or one, or the transport nccl", from,
                       to);
  int32_t entered = moert__cuda_enter(from);
  error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    error = cudaSuccess;
  }
  moert__cuda_leave(entered);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "cudaDeviceEnablePeerAccess");
}

// Once for each device, before it has ranks.
static moert_status prepare(int32_t device) {
  moert_status status = check_device(device);
  if (status != MOERT_OK) return status;
  int32_t entered = moert__cuda_enter(device);
  status = moert__cuda_preload(device);
  if (status == MOERT_OK) status = moert__cuda_make_streams(device);
  if (status == MOERT_OK) status = moert__cuda_make_pool(device);
  moert__cuda_leave(entered);
  return status;
}

static moert_status connect(const int32_t *devices, int32_t count, bool peers) {
  moert_status status = MOERT_OK;
  for (int32_t i = 0; i < count && status == MOERT_OK; ++i) status = prepare(devices[i]);
  for (int32_t i = 0; i < count && peers; ++i)
    for (int32_t j = 0; j < count && status == MOERT_OK; ++j)
      if (devices[i] != devices[j]) status = open_path(devices[i], devices[j]);
  return status;
}

static moert_status identify(int32_t device, unsigned char identity[16]) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return moert__cuda_fail(error, "cudaGetDeviceProperties");
  for (int i = 0; i < 16; ++i) identity[i] = (unsigned char)properties.uuid.bytes[i];
  return MOERT_OK;
}

// -1: this process does not see it.
static int find_device(const unsigned char identity[16]) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
  for (int device = 0; device < count; ++device) {
    unsigned char seen[16];
    if (identify(device, seen) == MOERT_OK && memcmp(seen, identity, sizeof seen) == 0) return device;
  }
  return -1;
}

static bool reaches(int32_t device, const unsigned char identity[16]) {
  int other = find_device(identity), can = 0;
  if (other < 0 || other == device) return true;
  if (cudaDeviceCanAccessPeer(&can, device, other) != cudaSuccess) cudaGetLastError();
  return can != 0;
}

//===--- ranges for profilers ---------------------------------------------------------------------===//

static void push_range(const char *name) { nvtxRangePushA(name); }

static void pop_range(void) { nvtxRangePop(); }

//===--- the table --------------------------------------------------------------------------------===//

static moert__backend backend = {
    .struct_size = sizeof(moert__backend),
    .name = "cuda",
    .target = "sm_90a",
    .device_type = MOERT_DEVICE_CUDA,
    .ranks_per_device = 1,
    .count_devices = count_devices,
    .connect = connect,
    .identify = identify,
    .reaches = reaches,
    .enter = moert__cuda_enter,
    .leave = moert__cuda_leave,
    .allocate = moert__cuda_allocate,
    .release = moert__cuda_release,
    .allocate_shared = moert__cuda_allocate_shared,
    .release_shared = moert__cuda_release_shared,
    .import_shared = moert__cuda_import_shared,
    .forget_shared = moert__cuda_forget_shared,
    .release_outboxes = moert__cuda_release_outboxes,
    .map_host = moert__cuda_map_host,
    .unmap_host = moert__cuda_unmap_host,
    .make_link_key = moert__cuda_make_link_key,
    .open_links = moert__cuda_open_links,
    .gather_over_link = moert__cuda_gather_over_link,
    .close_link = moert__cuda_close_link,
    .create_stream = moert__cuda_create_stream,
    .destroy_stream = moert__cuda_destroy_stream,
    .synchronize = moert__cuda_synchronize,
    .is_capturing = moert__cuda_is_capturing,
    .fill = moert__cuda_fill,
    .copy = moert__cuda_copy,
    .begin_capture = moert__cuda_begin_capture,
    .end_capture = moert__cuda_end_capture,
    .replay_capture = moert__cuda_replay_capture,
    .destroy_capture = moert__cuda_destroy_capture,
    .push_range = push_range,
    .pop_range = pop_range,
    .functions = moert__cuda_functions,
};

// How many ranks of a device can wait at once. A waiting kernel has one block, so that there is always room for it; but the device takes work from a
// number of queues, to which CUDA deals the streams, and behind a kernel that waits the rest of its queue waits. Two ranks that share a queue can
// stop each other for good. So each rank needs a queue; as the program and its libraries have streams too, half of the queues are left to those. CUDA
// reads their number when it is initialised: 8 unless the variable says otherwise, 32 at most.
static void set_ranks_per_device(void) {
  enum { MOST_QUEUES = 32, MOST_RANKS = 16 };
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  long queues = text ? strtol(text, NULL, 10) : MOST_QUEUES;
  backend.ranks_per_device = queues < 2 ? 1 : queues > MOST_QUEUES ? MOST_RANKS : (int32_t)queues / 2;
}

MOERT_API moert__backend_getter moert__cuda_backend;
const moert__backend *moert__cuda_backend(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, set_ranks_per_device);
  return &backend;
}

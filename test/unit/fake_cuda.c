//===- fake_cuda.c - a stand-in for libmoert_cuda ---------------------------------------------------===//

#include "lib/runtime/backend.h"
#include "fake_cuda.h"

#include <stdlib.h>
#include <string.h>

static fake_cuda fake = {.num_devices = 3};
MOERT_API fake_cuda *fake_cuda_get(void);
MOERT_API moert__backend_getter moert__cuda_backend;

fake_cuda *fake_cuda_get(void) { return &fake; }

static moert_status count_devices(int32_t *count) {
  *count = fake.num_devices;
  return MOERT_OK;
}

static moert_status connect_devices(const int32_t *devices, int32_t count) {
  memcpy(fake.connected, devices, (size_t)count * sizeof *devices);
  fake.num_connected = count;
  return fake.refuses_connect ? moert__fail(MOERT_ERROR_UNSUPPORTED, "no link") : MOERT_OK;
}

static moert_status identify(int32_t device, unsigned char identity[16]) {
  memset(identity, 17 + device, 16);
  return MOERT_OK;
}

static moert_status allocate(int32_t device, size_t bytes, void **memory) {
  fake.device = device;
  fake.allocated++;
  *memory = calloc(1, bytes);
  return MOERT_OK;
}

static void release(int32_t device, void *memory, size_t bytes) {
  (void)device;
  (void)bytes;
  fake.allocated--;
  free(memory);
}

static moert_status allocate_shared(int32_t device, size_t bytes, void **memory, moert__memory_handle *handle) {
  fake.device = device;
  fake.shared++;
  *memory = calloc(1, bytes);
  if (handle) memcpy(handle->bytes, memory, sizeof *memory);
  return MOERT_OK;
}

static void release_shared(int32_t device, void *memory, size_t bytes) {
  (void)device;
  (void)bytes;
  fake.shared--;
  free(memory);
}

static moert_status import_shared(int32_t device, const moert__memory_handle *handle, size_t bytes, void **memory) {
  (void)device;
  (void)bytes;
  fake.imported++;
  memcpy(memory, handle->bytes, sizeof *memory);
  return MOERT_OK;
}

static void forget_shared(int32_t device, void *memory, size_t bytes) {
  (void)device;
  (void)memory;
  (void)bytes;
  fake.imported--;
}

static moert_status map_host(void *memory, size_t bytes) {
  (void)memory;
  (void)bytes;
  if (fake.refuses_map) return moert__fail(MOERT_ERROR_DEVICE, "no map");
  fake.mapped++;
  return MOERT_OK;
}

static void unmap_host(void *memory) {
  (void)memory;
  fake.mapped--;
}

static const moert__backend backend = {
    .struct_size = sizeof(moert__backend),
    .name = "fake",
    .target = "sm_90a",
    .device_type = MOERT_DEVICE_CUDA,
    .ranks_per_device = 2,
    .count_devices = count_devices,
    .connect = connect_devices,
    .identify = identify,
    .allocate = allocate,
    .release = release,
    .allocate_shared = allocate_shared,
    .release_shared = release_shared,
    .import_shared = import_shared,
    .forget_shared = forget_shared,
    .map_host = map_host,
    .unmap_host = unmap_host,
};

const moert__backend *moert__cuda_backend(void) { return &backend; }

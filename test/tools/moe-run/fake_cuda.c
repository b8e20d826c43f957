//===- fake_cuda.c - a device made of host memory, for the tests of moe-run -------------------------===//
//
// Two devices, whose ops are the host's own. A capture keeps what the device's memory holds when it ends, and a replay brings that back; with
// FAKE_BROKEN_REPLAY in the environment it brings back nothing.
//
//===----------------------------------------------------------------------------------------------===//
#include "lib/runtime/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, BLOCKS = 256 };

// Memory of a device, but for what ranks share.
typedef struct block {
  int32_t device;
  void *memory;
  size_t bytes;
} block;

typedef struct capture {
  block copies[BLOCKS]; // `memory` is a copy of the block's
} capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block blocks[BLOCKS];
static _Thread_local bool capturing;

static moert_status count_devices(int32_t *count) { return *count = DEVICES, MOERT_OK; }

static moert_status connect_devices(const int32_t *devices, int32_t count, bool peers) {
  (void)peers;
  for (int32_t i = 0; i < count; ++i)
    if (devices[i] < 0 || devices[i] >= DEVICES) return moert__fail(MOERT_ERROR_NO_DEVICE, "there is no device %d", (int)devices[i]);
  return MOERT_OK;
}

static moert_status identify(int32_t device, unsigned char identity[16]) {
  memset(identity, device, 16);
  return MOERT_OK;
}

static bool reaches(int32_t device, const unsigned char identity[16]) { return (void)device, (void)identity, true; }

static int32_t enter(int32_t device) { return device; }
static void leave(int32_t previous) { (void)previous; }

//===--- memory -------------------------------------------------------------------------------------===//

static void *allocate_zeroed(size_t bytes) {
  void *memory = aligned_alloc(256, bytes / 256 * 256 + 256);
  return memory ? memset(memory, 0, bytes) : NULL;
}

static void remember(block made) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < BLOCKS; ++i)
    if (!blocks[i].memory) {
      blocks[i] = made;
      break;
    }
  pthread_mutex_unlock(&lock);
}

static moert_status allocate(int32_t device, size_t bytes, void **memory) {
  if (!(*memory = allocate_zeroed(bytes))) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory");
  remember((block){device, *memory, bytes});
  return MOERT_OK;
}

static void release(int32_t device, void *memory, size_t bytes) {
  (void)device, (void)bytes;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < BLOCKS; ++i)
    if (blocks[i].memory == memory) blocks[i].memory = NULL;
  pthread_mutex_unlock(&lock);
  free(memory);
}

static moert_status allocate_shared(int32_t device, size_t bytes, void **memory, moert__memory_handle *handle) {
  (void)device;
  if (handle) return moert__fail(MOERT_ERROR_UNSUPPORTED, "this device is for threads");
  *memory = allocate_zeroed(bytes);
  return *memory ? MOERT_OK : moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory");
}

static void release_shared(int32_t device, void *memory, size_t bytes) {
  (void)device, (void)bytes;
  free(memory);
}

static moert_status import_shared(int32_t device, const moert__memory_handle *handle, size_t bytes, void **memory) {
  (void)device, (void)handle, (void)bytes, (void)memory;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "this device is for threads");
}

static moert_status map_host(void *memory, size_t bytes) { return (void)memory, (void)bytes, MOERT_OK; }
static void unmap_host(void *memory) { (void)memory; }

//===--- streams ------------------------------------------------------------------------------------===//

static moert_status create_stream(int32_t device, void **stream) { return (void)device, *stream = &blocks, MOERT_OK; }
static void destroy_stream(int32_t device, void *stream) { (void)device, (void)stream; }
static moert_status synchronize(int32_t device, void *stream) { return (void)device, (void)stream, MOERT_OK; }
static bool is_capturing(int32_t device, void *stream) { return (void)device, (void)stream, capturing; }

static moert_status fill(int32_t device, void *stream, void *memory, unsigned char value, size_t bytes) {
  (void)device, (void)stream;
  memset(memory, value, bytes);
  return MOERT_OK;
}

static moert_status copy(int32_t device, void *stream, void *to, const void *from, size_t bytes) {
  (void)device, (void)stream;
  memcpy(to, from, bytes);
  return MOERT_OK;
}

//===--- captures -----------------------------------------------------------------------------------===//

static moert_status begin_capture(int32_t device, void *stream) { return (void)device, (void)stream, capturing = true, MOERT_OK; }

static moert_status end_capture(int32_t device, void *stream, bool keep, void **made) {
  (void)stream;
  capturing = false;
  capture *c = keep ? calloc(1, sizeof *c) : NULL;
  *made = c;
  pthread_mutex_lock(&lock);
  for (int i = 0; c && i < BLOCKS; ++i) {
    if (!blocks[i].memory || blocks[i].device != device || !(c->copies[i].memory = malloc(blocks[i].bytes + 1))) continue;
    c->copies[i].bytes = blocks[i].bytes;
    memcpy(c->copies[i].memory, blocks[i].memory, blocks[i].bytes);
  }
  pthread_mutex_unlock(&lock);
  return MOERT_OK;
}

static moert_status replay_capture(int32_t device, void *stream, void *made) {
  const capture *c = made;
  (void)device, (void)stream;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < BLOCKS && !getenv("FAKE_BROKEN_REPLAY"); ++i)
    if (c->copies[i].memory) memcpy(blocks[i].memory, c->copies[i].memory, c->copies[i].bytes);
  pthread_mutex_unlock(&lock);
  return MOERT_OK;
}

static void destroy_capture(int32_t device, void *made) {
  capture *c = made;
  (void)device;
  for (int i = 0; c && i < BLOCKS; ++i) free(c->copies[i].memory);
  free(c);
}

//===--- the backend --------------------------------------------------------------------------------===//

static void push_range(const char *name) { (void)name; }
static void pop_range(void) {}

static moert__backend_function *const functions[MOERT__NUM_OPS]; // the host's own serve

static const moert__backend fake = {
    .struct_size = sizeof(moert__backend),
    .name = "cuda",
    .target = "sm_90a",
    .device_type = MOERT_DEVICE_CUDA,
    .ranks_per_device = MOERT_MAX_RANKS,
    .count_devices = count_devices,
    .connect = connect_devices,
    .identify = identify,
    .reaches = reaches,
    .enter = enter,
    .leave = leave,
    .allocate = allocate,
    .release = release,
    .allocate_shared = allocate_shared,
    .release_shared = release_shared,
    .import_shared = import_shared,
    .forget_shared = release_shared,
    .map_host = map_host,
    .unmap_host = unmap_host,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .synchronize = synchronize,
    .is_capturing = is_capturing,
    .fill = fill,
    .copy = copy,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .replay_capture = replay_capture,
    .destroy_capture = destroy_capture,
    .push_range = push_range,
    .pop_range = pop_range,
    .functions = functions,
};

MOERT_API const moert__backend *moert__cuda_backend(void);
const moert__backend *moert__cuda_backend(void) { return &fake; }

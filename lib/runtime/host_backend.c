//===- host_backend.c - the host as a device --------------------------------------------------------===//
//
// One device, whose memory is the C library's. There are no streams: an op has been done when its call returns.
//
// Memory that other processes may import is a file in memory, which they open through this process's descriptor; the descriptor lives as long as the
// memory. What must be known to give memory back lies in front of it.
//
//===----------------------------------------------------------------------------------------------===//

#include "backend.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 256 };

//===--- device -----------------------------------------------------------------------------------===//

static moert_status count_devices(int32_t *count) {
  *count = 1;
  return MOERT_OK;
}

static moert_status connect_devices(const int32_t *devices, int32_t count, bool peers) {
  (void)devices;
  (void)count;
  (void)peers;
  return MOERT_OK;
}

static moert_status identify(int32_t device, unsigned char identity[16]) {
  (void)device;
  memset(identity, 0, 16);
  return MOERT_OK;
}

static bool reaches(int32_t device, const unsigned char identity[16]) {
  (void)device;
  (void)identity;
  return true;
}

static int32_t enter(int32_t device) { return device; }

static void leave(int32_t previous) { (void)previous; }

//===--- memory -----------------------------------------------------------------------------------===//

static moert_status fail_memory(size_t bytes) { return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", bytes); }

static moert_status allocate(int32_t device, size_t bytes, void **memory) {
  (void)device;
  if (bytes > SIZE_MAX - ALIGNMENT) return fail_memory(bytes);
  void *made = aligned_alloc(ALIGNMENT, bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT);
  if (!made) return fail_memory(bytes);
  *memory = made;
  return MOERT_OK;
}

static void release(int32_t device, void *memory, size_t bytes) {
  (void)device;
  (void)bytes;
  free(memory);
}

//===--- memory that ranks share ------------------------------------------------------------------===//

// In front of the memory.
typedef struct origin {
  void *begin;   // of the allocation or mapping
  size_t mapped; // bytes, 0: it is the C library's
  int file;      // open as long as others may import it, or -1
} origin;

typedef struct handle {
  int64_t process, file;
} handle;
_Static_assert(sizeof(handle) <= sizeof(moert__memory_handle), "a handle has outgrown its room");

static origin *origin_of(void *memory) { return (origin *)((unsigned char *)memory - sizeof(origin)); }

static void *remember(unsigned char *memory, void *begin, size_t mapped, int file) {
  *origin_of(memory) = (origin){begin, mapped, file};
  return memory;
}

// calloc gives large blocks page by page on first touch, so the alignment is made here.
static void *allocate_private(size_t bytes) {
  enum { FRONT = sizeof(origin) + ALIGNMENT };
  unsigned char *begin = bytes <= SIZE_MAX - FRONT ? calloc(1, bytes + FRONT) : NULL;
  if (!begin) return NULL;
  uintptr_t first = (uintptr_t)begin + sizeof(origin);
  return remember(begin + sizeof(origin) + (ALIGNMENT - first % ALIGNMENT) % ALIGNMENT, begin, 0, -1);
}

// `file` behind a page for the origin; NULL if it cannot be mapped.
static void *map_file(int file, size_t bytes, int kept) {
  size_t page = moert__page_bytes(), mapped = (bytes + page - 1) / page * page + page;
  unsigned char *begin = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return NULL;
  if (mapped > page && mmap(begin + page, mapped - page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(begin, mapped);
    return NULL;
  }
  return remember(begin + page, begin, mapped, kept);
}

static void *allocate_file(size_t bytes, moert__memory_handle *given) {
  if (bytes > SIZE_MAX / 4) return NULL;
  int file = memfd_create("moert-symmetric", MFD_CLOEXEC);
  if (file < 0) return NULL;
  void *memory = ftruncate(file, (off_t)bytes) ? NULL : map_file(file, bytes, file);
  if (!memory) {
    close(file);
    return NULL;
  }
  handle made = {getpid(), file};
  memcpy(given->bytes, &made, sizeof made);
  return memory;
}

static moert_status allocate_shared(int32_t device, size_t bytes, void **memory, moert__memory_handle *given) {
  (void)device;
  void *made = given ? allocate_file(bytes, given) : allocate_private(bytes);
  if (!made) return fail_memory(bytes);
  *memory = made;
  return MOERT_OK;
}

static void release_shared(int32_t device, void *memory, size_t bytes) {
  (void)device;
  (void)bytes;
  origin from = *origin_of(memory);
  if (from.file >= 0) close(from.file);
  if (from.mapped)
    munmap(from.begin, from.mapped);
  else
    free(from.begin);
}

static moert_status import_shared(int32_t device, const moert__memory_handle *given, size_t bytes, void **memory) {
  (void)device;
  handle theirs;
  memcpy(&theirs, given->bytes, sizeof theirs);
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)theirs.process, (long long)theirs.file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  struct stat found;
  bool fits = file >= 0 && !fstat(file, &found) && (uint64_t)found.st_size == bytes;
  void *made = fits ? map_file(file, bytes, -1) : NULL;
  if (file >= 0) close(file);
  if (!made) return moert__fail(MOERT_ERROR_INVALID_MEMORY, "%zu bytes of another process cannot be mapped: %s", bytes, path);
  *memory = made;
  return MOERT_OK;
}

static moert_status map_host(void *memory, size_t bytes) {
  (void)memory;
  (void)bytes;
  return MOERT_OK;
}

static void unmap_host(void *memory) { (void)memory; }

//===--- streams ----------------------------------------------------------------------------------===//

static moert_status create_stream(int32_t device, void **stream) {
  (void)device;
  *stream = NULL;
  return MOERT_OK;
}

static void destroy_stream(int32_t device, void *stream) {
  (void)device;
  (void)stream;
}

static moert_status synchronize(int32_t device, void *stream) {
  (void)device;
  (void)stream;
  return MOERT_OK;
}

static bool is_capturing(int32_t device, void *stream) {
  (void)device;
  (void)stream;
  return false;
}

static moert_status fill(int32_t device, void *stream, void *memory, unsigned char value, size_t bytes) {
  (void)device;
  (void)stream;
  if (bytes) memset(memory, value, bytes);
  return MOERT_OK;
}

static moert_status copy(int32_t device, void *stream, void *to, const void *from, size_t bytes) {
  (void)device;
  (void)stream;
  if (bytes) memcpy(to, from, bytes);
  return MOERT_OK;
}

//===--- captures ---------------------------------------------------------------------------------===//

static moert_status fail_capture(void) { return moert__fail(MOERT_ERROR_UNSUPPORTED, "the host backend has no captures: call the function instead"); }

static moert_status begin_capture(int32_t device, void *stream) {
  (void)device;
  (void)stream;
  return fail_capture();
}

static moert_status end_capture(int32_t device, void *stream, bool keep, void **capture) {
  (void)device;
  (void)stream;
  (void)keep;
  *capture = NULL;
  return fail_capture();
}

static moert_status replay_capture(int32_t device, void *stream, void *capture) {
  (void)device;
  (void)stream;
  (void)capture;
  return fail_capture();
}

static void destroy_capture(int32_t device, void *capture) {
  (void)device;
  (void)capture;
}

//===--- the backend ------------------------------------------------------------------------------===//

static void push_range(const char *name) { (void)name; }

static void pop_range(void) {}

static moert__backend_function *const no_functions[MOERT__NUM_OPS]; // the host's own serve

const moert__backend moert__host_backend = {
    .struct_size = sizeof(moert__backend),
    .name = "host",
    .target = "host",
    .device_type = MOERT_DEVICE_CPU,
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
    .functions = no_functions,
};

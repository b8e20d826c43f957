//===- fake_cuda.c - a stand-in for libmoert_cuda ---------------------------------------------------===//

#include "lib/runtime/backend.h"
#include "fake_cuda.h"

#include <stdio.h>
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

static moert_status connect_devices(const int32_t *devices, int32_t count, bool peers) {
  fake.connected_peers = peers;
  memcpy(fake.connected, devices, (size_t)count * sizeof *devices);
  fake.num_connected = count;
  return fake.refuses_connect ? moert__fail(MOERT_ERROR_UNSUPPORTED, "no link") : MOERT_OK;
}

static moert_status identify(int32_t device, unsigned char identity[16]) {
  memset(identity, 17 + device, 16);
  return MOERT_OK;
}

static bool reaches(int32_t device, const unsigned char identity[16]) { return !fake.is_far || identity[0] == 17 + device; }

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

//===--- links --------------------------------------------------------------------------------------===//

struct moert__link {
  int32_t rank;
};

static const char key_text[] = "the key of the ranks' links";

static moert_status make_link_key(moert__link_key *key) {
  snprintf((char *)key->bytes, sizeof key->bytes, "%s", key_text);
  return MOERT_OK;
}

static moert_status open_links(const moert__link_key *key, const moert__link_rank *ranks, int32_t count, int64_t timeout_ms, moert__link **links) {
  (void)timeout_ms;
  if (strcmp((const char *)key->bytes, key_text) != 0) return moert__fail(MOERT_ERROR_INTERNAL, "no key");
  if (fake.refuses_links) return moert__fail(MOERT_ERROR_LOAD, "no NCCL");
  for (int32_t i = 0; i < count; ++i) {
    links[i] = calloc(1, sizeof *links[i]);
    links[i]->rank = ranks[i].watch.rank;
    fake.linked = ranks[i].mask;
    fake.links++;
    fake.opened++;
  }
  return MOERT_OK;
}

static moert_status gather_over_link(moert__link *link, const void *mine, size_t bytes, void *all, int64_t timeout_ms) {
  (void)link;
  (void)timeout_ms;
  return fake.gather(fake.gather_user, mine, bytes, all) ? moert__fail(MOERT_ERROR_PEER_TIMEOUT, "nobody came") : MOERT_OK;
}

static void close_link(moert__link *link) {
  fake.links--;
  free(link);
}

static void release_outboxes(void *outboxes) {
  fake.boxes--;
  free(outboxes);
}

static moert_status synchronize(int32_t device, void *stream) {
  (void)device;
  (void)stream;
  return MOERT_OK;
}

//===--- the backend --------------------------------------------------------------------------------===//

static const moert__backend backend = {
    .struct_size = sizeof(moert__backend),
    .name = "fake",
    .target = "sm_90a",
    .device_type = MOERT_DEVICE_CUDA,
    .ranks_per_device = 2,
    .count_devices = count_devices,
    .connect = connect_devices,
    .identify = identify,
    .reaches = reaches,
    .allocate = allocate,
    .release = release,
    .allocate_shared = allocate_shared,
    .release_shared = release_shared,
    .import_shared = import_shared,
    .forget_shared = forget_shared,
    .map_host = map_host,
    .unmap_host = unmap_host,
    .release_outboxes = release_outboxes,
    .make_link_key = make_link_key,
    .open_links = open_links,
    .gather_over_link = gather_over_link,
    .close_link = close_link,
    .synchronize = synchronize,
};

const moert__backend *moert__cuda_backend(void) { return &backend; }

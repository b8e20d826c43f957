//===- fake_backend.c - a device that is host memory, and remembers what it was asked --------------===//

#include "fake_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_state fake = {.device = -1, .op = -1};

void fake_clear(void) {
  fake.failing = NULL;
  fake.log[0] = '\0';
  fake.op = -1;
  fake.instance = 0;
  fake.context = fake.current = NULL;
  fake.op_range = NULL;
  fake.op_args = NULL;
  fake.op_status = MOERT_OK;
  fake.synchronizations = fake.fills = fake.copies = fake.replays = 0;
}

static moert_status answer(const char *name) {
  size_t used = strlen(fake.log);
  snprintf(fake.log + used, sizeof fake.log - used, "%s ", name);
  if (!fake.failing || strcmp(name, fake.failing)) return MOERT_OK;
  fake.failing = NULL;
  return moert__fail(fake.failure, "%s fails", name);
}

//===--- devices ------------------------------------------------------------------------------------===//

static moert_status count_devices(int32_t *count) {
  *count = FAKE_DEVICES;
  return MOERT_OK;
}

static moert_status connect_devices(const int32_t *devices, int32_t count, bool peers) {
  (void)devices, (void)count, (void)peers;
  return MOERT_OK;
}

static bool reaches(int32_t device, const unsigned char identity[16]) {
  (void)device, (void)identity;
  return true;
}

static moert_status identify(int32_t device, unsigned char identity[16]) {
  memset(identity, device + 1, 16);
  return MOERT_OK;
}

static int32_t enter(int32_t device) {
  int32_t previous = fake.device;
  fake.device = device;
  return previous;
}

static void leave(int32_t previous) { fake.device = previous; }

//===--- memory -------------------------------------------------------------------------------------===//

static moert_status allocate(int32_t device, size_t bytes, void **memory) {
  moert_status status = answer("allocate");
  if (status) return status;
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  fake.allocations++;
  fake.allocated += bytes;
  fake.last_device = device;
  return MOERT_OK;
}

static void release(int32_t device, void *memory, size_t bytes) {
  fake.last_device = device;
  fake.allocations--;
  fake.allocated -= bytes;
  free(memory);
}

static moert_status allocate_shared(int32_t device, size_t bytes, void **memory, moert__memory_handle *handle) {
  (void)device, (void)handle;
  moert_status status = answer("allocate_shared");
  if (status) return status;
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  memset(*memory, 0, bytes);
  return MOERT_OK;
}

static void release_shared(int32_t device, void *memory, size_t bytes) {
  (void)device, (void)bytes;
  free(memory);
}

static moert_status import_shared(int32_t device, const moert__memory_handle *handle, size_t bytes, void **memory) {
  (void)device, (void)handle, (void)bytes, (void)memory;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "threads import nothing");
}

static moert_status map_host(void *memory, size_t bytes) {
  (void)memory, (void)bytes;
  moert_status status = answer("map_host");
  fake.mapped += !status;
  return status;
}

static void unmap_host(void *memory) {
  (void)memory;
  fake.mapped--;
}

//===--- links --------------------------------------------------------------------------------------===//

static moert_status make_link_key(moert__link_key *key) {
  *key = (moert__link_key){{0}};
  return MOERT_OK;
}

static moert_status open_links(const moert__link_key *key, const moert__link_rank *ranks, int32_t count, int64_t timeout_ms, moert__link **links) {
  (void)key, (void)ranks, (void)timeout_ms;
  for (int32_t i = 0; i < count; ++i) links[i] = malloc(1);
  fake.links += count;
  return MOERT_OK;
}

static void close_link(moert__link *link) {
  fake.links--;
  free(link);
}

//===--- streams ------------------------------------------------------------------------------------===//

static moert_status on_stream(const char *name, int32_t device, void *stream) {
  fake.last_device = device;
  fake.last_stream = stream;
  return answer(name);
}

static moert_status create_stream(int32_t device, void **stream) {
  moert_status status = on_stream("create_stream", device, NULL);
  if (status) return status;
  *stream = malloc(1);
  fake.streams++;
  return MOERT_OK;
}

static void destroy_stream(int32_t device, void *stream) {
  on_stream("destroy_stream", device, stream);
  fake.streams--;
  free(stream);
}

static moert_status synchronize(int32_t device, void *stream) {
  fake.synchronizations++;
  return on_stream("synchronize", device, stream);
}

static bool is_capturing(int32_t device, void *stream) {
  (void)device, (void)stream;
  return fake.capturing;
}

static moert_status fill(int32_t device, void *stream, void *memory, unsigned char value, size_t bytes) {
  fake.fills++;
  fake.last_value = value;
  fake.last_bytes = bytes;
  memset(memory, value, bytes);
  return on_stream("fill", device, stream);
}

static moert_status copy(int32_t device, void *stream, void *to, const void *from, size_t bytes) {
  fake.copies++;
  fake.last_bytes = bytes;
  memcpy(to, from, bytes);
  return on_stream("copy", device, stream);
}

//===--- captures -----------------------------------------------------------------------------------===//

static moert_status begin_capture(int32_t device, void *stream) {
  moert_status status = on_stream("begin_capture", device, stream);
  fake.capturing = !status;
  return status;
}

static moert_status end_capture(int32_t device, void *stream, bool keep, void **capture) {
  moert_status status = on_stream("end_capture", device, stream);
  fake.capturing = false;
  fake.kept = keep;
  *capture = keep && !status ? malloc(1) : NULL;
  fake.captures += *capture != NULL;
  fake.last_capture = *capture;
  return status;
}

static moert_status replay_capture(int32_t device, void *stream, void *capture) {
  fake.replays++;
  fake.last_capture = capture;
  return on_stream("replay_capture", device, stream);
}

static void destroy_capture(int32_t device, void *capture) {
  fake.last_device = device;
  fake.captures--;
  free(capture);
}

//===--- ranges and ops -----------------------------------------------------------------------------===//

static void push_range(const char *name) {
  fake.range = name;
  fake.depth++;
}

static void pop_range(void) {
  fake.range = NULL;
  fake.depth--;
}

static moert_status run_route(const void *params, const void *args, int32_t instance, moert_context *context) {
  (void)params;
  fake.op = MOERT__OP_MOE_ROUTE;
  fake.instance = instance;
  fake.context = context;
  fake.current = moert__current_context();
  fake.op_range = fake.range;
  fake.op_device = fake.device;
  fake.op_args = args;
  return fake.op_status ? moert__fail(fake.op_status, "told to") : MOERT_OK;
}

static moert__backend_function *const functions[MOERT__NUM_OPS] = {[MOERT__OP_MOE_ROUTE] = run_route};

const moert__backend fake_backend = {
    .struct_size = sizeof(moert__backend),
    .name = "fake",
    .target = "sm_90a",
    .device_type = MOERT_DEVICE_CUDA,
    .ranks_per_device = 2,
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
    .make_link_key = make_link_key,
    .open_links = open_links,
    .close_link = close_link,
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

void fake_report(moert_context *context, int op, int kind, long long v0, long long v1, long long v2, long long v3, long long v4, long long v5) {
  moert__fault *fault = moert__context_fault(context);
  const long long values[] = {v0, v1, v2, v3, v4, v5};
  if (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE)) return;
  memcpy(fault->values, values, sizeof values);
  fault->op = op;
  __atomic_store_n(&fault->kind, kind, __ATOMIC_RELEASE);
}

//===--- in place of the library's ------------------------------------------------------------------===//

moert_status __real_moert__backend_of_device(int32_t device_type, const moert__backend **backend);
moert_status __wrap_moert__backend_of_device(int32_t device_type, const moert__backend **backend);
moert_status __real_moert__backend_of_target(const char *target, const moert__backend **backend);
moert_status __wrap_moert__backend_of_target(const char *target, const moert__backend **backend);

moert_status __wrap_moert__backend_of_device(int32_t device_type, const moert__backend **backend) {
  if (device_type != MOERT_DEVICE_CUDA) return __real_moert__backend_of_device(device_type, backend);
  *backend = &fake_backend;
  return MOERT_OK;
}

moert_status __wrap_moert__backend_of_target(const char *target, const moert__backend **backend) {
  if (strcmp(target, fake_backend.target)) return __real_moert__backend_of_target(target, backend);
  *backend = &fake_backend;
  return MOERT_OK;
}

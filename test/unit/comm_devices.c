//===- comm_devices.c - communicators on devices, with a stand-in for libmoert_cuda -----------------===//

#include "members.h"
#include "fake_cuda.h"
#include "lib/runtime/backend.h"

#include <dlfcn.h>

static fake_cuda *fake; // NULL until the library has been loaded

static moert_status create(int32_t size, int32_t num_devices, const int32_t *devices, moert_comm **comms) {
  moert_comm_options options = {sizeof options, MOERT_DEVICE_CUDA, num_devices, devices, MOERT_TRANSPORT_AUTO};
  return moert_comm_create_threads(size, &options, comms);
}

//===--- loading ----------------------------------------------------------------------------------===//

static void backends(void **state) {
  (void)state;
  const moert__backend *host, *cuda, *again;
  assert_ok(moert__backend_of_device(MOERT_DEVICE_CPU, &host));
  assert_string_equal(host->name, "host");
  assert_ok(moert__backend_of_target("host", &again));
  assert_ptr_equal(host, again);
  assert_ok(moert__backend_of_target("sm_90a", &cuda));
  assert_string_equal(cuda->name, "fake");
  assert_ok(moert__backend_of_device(MOERT_DEVICE_CUDA, &again));
  assert_ptr_equal(cuda, again);
  assert_fails(moert__backend_of_device(10, &again), MOERT_ERROR_INVALID_ARGUMENT, "device type is 10, must be 1 (CPU) or 2 (CUDA)");
  assert_fails(moert__backend_of_target("sm_80", &again), MOERT_ERROR_UNSUPPORTED,
               "target 'sm_80' is unknown to this library, which has host and sm_90a");
  assert_fails(moert__backend_of_target("gfx942", &again), MOERT_ERROR_UNSUPPORTED,
               "target 'gfx942' is unknown to this library, which has host and sm_90a");
  assert_ptr_equal(cuda, again);
  Dl_info where;
  assert_int_not_equal(dladdr((const void *)cuda, &where), 0);
  void *library = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(library);
  void *symbol = dlsym(library, "fake_cuda_get");
  fake_cuda *(*get)(void);
  memcpy(&get, &symbol, sizeof get);
  fake = get();
}

//===--- options ----------------------------------------------------------------------------------===//

static void options_that_are_refused(void **state) {
  (void)state;
  const struct {
    moert_comm_options options;
    moert_status status;
    const char *text;
  } rows[] = {
      {{8, MOERT_DEVICE_CPU, 0, NULL, 0},
       MOERT_ERROR_STRUCT_SIZE,
       "options: struct_size is 8, this library's is 32; begin with MOERT_COMM_OPTIONS_INIT"},
      {{28, MOERT_DEVICE_CPU, 0, NULL, 0},
       MOERT_ERROR_STRUCT_SIZE,
       "options: struct_size is 28, this library's is 32; begin with MOERT_COMM_OPTIONS_INIT"},
      {{32, 3, 0, NULL, 0}, MOERT_ERROR_INVALID_ARGUMENT, "device type is 3, must be 1 (CPU) or 2 (CUDA)"},
      {{24, MOERT_DEVICE_CPU, -1, NULL, 3}, MOERT_ERROR_INVALID_ARGUMENT, "options: num_devices is -1, must be at least 0"},
      {{24, MOERT_DEVICE_CPU, 0, (int32_t[]){0}, 3}, MOERT_ERROR_INVALID_ARGUMENT, "options: devices is set, but num_devices is 0"},
      {{24, MOERT_DEVICE_CPU, 2, NULL, 3}, MOERT_ERROR_NO_DEVICE, "options: num_devices is 2, but this process sees 1"},
      {{24, MOERT_DEVICE_CPU, 1, (int32_t[]){1}, 3}, MOERT_ERROR_NO_DEVICE, "options: devices[0] is 1, must be in [0, 1)"},
      {{24, MOERT_DEVICE_CUDA, 4, NULL, 3}, MOERT_ERROR_NO_DEVICE, "options: num_devices is 4, but this process sees 3"},
      {{32, MOERT_DEVICE_CUDA, 2, (int32_t[]){2, -1}, 0}, MOERT_ERROR_NO_DEVICE, "options: devices[1] is -1, must be in [0, 3)"},
      {{32, MOERT_DEVICE_CUDA, 1, (int32_t[]){2}, 0},
       MOERT_ERROR_UNSUPPORTED,
       "4 ranks are on device 2, at most 2 can wait for each other on one; use more devices"},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    moert_comm *comms[4] = {NULL};
    assert_int_equal(moert_comm_create_threads(4, &rows[i].options, comms), rows[i].status);
    assert_string_equal(moert_last_error(), rows[i].text);
    assert_null(comms[0]);
  }
  assert_int_equal(fake->mapped, 0);
}

static void no_device(void **state) {
  (void)state;
  moert_comm *comm = NULL;
  fake->num_devices = 0;
  assert_fails(create(1, 0, NULL, &comm), MOERT_ERROR_NO_DEVICE, "this process sees no device of backend 'fake'");
  fake->num_devices = 3;
  assert_null(comm);
}

//===--- places -----------------------------------------------------------------------------------===//

static void assert_devices(moert_comm **comms, int32_t size, const int32_t *devices) {
  for (int32_t r = 0; r < size; ++r) {
    moert_device device = moert_comm_device(comms[r]);
    assert_int_equal(device.type, MOERT_DEVICE_CUDA);
    assert_int_equal(device.id, devices[r]);
  }
}

static void devices_of_ranks(void **state) {
  (void)state;
  moert_comm *comms[6];
  assert_ok(create(6, 0, NULL, comms));
  assert_devices(comms, 6, (int32_t[]){0, 1, 2, 0, 1, 2});
  assert_int_equal(fake->num_connected, 3);
  assert_int_equal(fake->mapped, 1);
  destroy_ranks(comms, 6);
  assert_ok(create(4, 2, NULL, comms));
  assert_devices(comms, 4, (int32_t[]){0, 1, 0, 1});
  assert_int_equal(fake->num_connected, 2);
  destroy_ranks(comms, 4);
  assert_fails(create(6, 3, (int32_t[]){2, 0, 2}, comms), MOERT_ERROR_UNSUPPORTED,
               "4 ranks are on device 2, at most 2 can wait for each other on one; use more devices");
  assert_ok(create(3, 3, (int32_t[]){2, 0, 2}, comms));
  assert_devices(comms, 3, (int32_t[]){2, 0, 2});
  assert_int_equal(fake->num_connected, 2);
  assert_int_equal(fake->connected[0], 2);
  assert_int_equal(fake->connected[1], 0);
  destroy_ranks(comms, 3);
  assert_int_equal(fake->mapped, 0);
  assert_ok(moert_comm_create_threads(1, NULL, comms));
  assert_int_equal(moert_comm_device(comms[0]).type, MOERT_DEVICE_CPU);
  assert_int_equal(moert_comm_device(comms[0]).id, 0);
  assert_int_equal(moert_comm_device(NULL).type, 0);
  destroy_ranks(comms, 1);
}

static void devices_that_fail(void **state) {
  (void)state;
  moert_comm *comms[2] = {NULL};
  fake->refuses_connect = true;
  assert_fails(create(2, 0, NULL, comms), MOERT_ERROR_UNSUPPORTED, "no link");
  fake->refuses_connect = false;
  fake->refuses_map = true;
  assert_fails(create(2, 0, NULL, comms), MOERT_ERROR_DEVICE, "no map");
  fake->refuses_map = false;
  assert_null(comms[0]);
  assert_int_equal(fake->mapped, 0);
}

//===--- memory -----------------------------------------------------------------------------------===//

static moert_status allocate(rank_run *run) { return moert_symmetric_alloc(run->comm, 64, &run->memory); }

static void memory_of_devices(void **state) {
  (void)state;
  moert_comm *comms[2];
  rank_run runs[2];
  void *memory = NULL;
  assert_ok(create(2, 2, (int32_t[]){1, 2}, comms));
  assert_ok(moert_device_alloc(comms[1], 100, &memory));
  assert_int_equal(fake->device, 2);
  assert_int_equal(fake->allocated, 1);
  moert_device_free(comms[1], memory);
  moert_device_free(comms[1], NULL);
  assert_int_equal(fake->allocated, 0);
  assert_fails(moert_device_alloc(NULL, 100, &memory), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_fails(moert_device_alloc(comms[0], 100, NULL), MOERT_ERROR_NULL_POINTER, "memory is NULL");
  run_ranks(runs, comms, 2, allocate, NULL);
  assert_int_equal(fake->shared, 2);
  destroy_ranks(comms, 2);
  assert_int_equal(fake->shared, 0);
}

static void memory_of_the_host(void **state) {
  (void)state;
  moert_comm *comm;
  void *memory;
  assert_ok(moert_comm_create_threads(1, NULL, &comm));
  for (size_t bytes = 0; bytes < 1000; bytes += 333) {
    assert_ok(moert_device_alloc(comm, bytes, &memory));
    assert_int_equal((uintptr_t)memory % 256, 0);
    memset(memory, 1, bytes);
    moert_device_free(comm, memory);
  }
  assert_fails(moert_device_alloc(comm, SIZE_MAX, &memory), MOERT_ERROR_OUT_OF_MEMORY, "no memory for 18446744073709551615 bytes");
  moert_comm_destroy(comm);
}

//===--- processes --------------------------------------------------------------------------------===//

static moert_status join(member *m) {
  moert_comm *comm;
  void *memory;
  moert_comm_options options = {sizeof options, MOERT_DEVICE_CUDA, 2, NULL, MOERT_TRANSPORT_AUTO};
  moert_status status = moert_comm_create_process(m->rank, m->shared->world, &options, gather, m, &comm);
  if (status) return status;
  if (moert_comm_device(comm).id != m->rank % 2) return MOERT_ERROR_INTERNAL;
  if (fake->num_connected != 1 || fake->connected[0] != m->rank % 2) return MOERT_ERROR_INTERNAL; // its own; others' memory is imported
  status = moert_symmetric_alloc(comm, 64, &memory);
  if (fake->imported != m->shared->world - 1 || fake->shared != 1) return MOERT_ERROR_INTERNAL;
  moert_comm_destroy(comm);
  return fake->imported || fake->shared || fake->mapped ? MOERT_ERROR_INTERNAL : status;
}

static void processes(void **state) {
  (void)state;
  for (int32_t size = 4; size <= 5; ++size) { // two on each device, then three on device 0
    scene *shared = make_scene(size);
    run_members(shared, join);
    for (int r = 0; r < size; ++r) {
      const char *expected = size == 4 ? ""
                             : r % 2   ? "rank 0 could not join: MOERT_ERROR_UNSUPPORTED (this library does not do that)"
                                       : "3 ranks are on device 0, at most 2 can wait for each other on one; use more devices";
      assert_string_equal(shared->error[r], expected);
    }
    free_scene(shared);
  }
}

static moert_status join_on_another_kind(member *m) {
  moert_comm *comm = NULL;
  moert_comm_options options = {sizeof options, m->rank == 1 ? MOERT_DEVICE_CUDA : MOERT_DEVICE_CPU, 0, NULL, MOERT_TRANSPORT_AUTO};
  moert_status status = moert_comm_create_process(m->rank, m->shared->world, &options, gather, m, &comm);
  return comm ? MOERT_ERROR_INTERNAL : status;
}

static void processes_on_different_kinds(void **state) {
  (void)state;
  scene *shared = make_scene(2);
  run_members(shared, join_on_another_kind);
  assert_string_equal(shared->error[0], "options: device_type is 1 on rank 0, but 2 on rank 1");
  assert_string_equal(shared->error[1], "options: device_type is 2 on rank 1, but 1 on rank 0");
  assert_int_equal(shared->status[0], MOERT_ERROR_PEER_MISMATCH);
  free_scene(shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(backends), // the first: it loads the stand-in
      cmocka_unit_test(processes),
      cmocka_unit_test(processes_on_different_kinds),
      cmocka_unit_test(options_that_are_refused),
      cmocka_unit_test(no_device),
      cmocka_unit_test(devices_of_ranks),
      cmocka_unit_test(devices_that_fail),
      cmocka_unit_test(memory_of_devices),
      cmocka_unit_test(memory_of_the_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

//===- transports.c - how ranks reach each other, with a stand-in for libmoert_cuda ------------------===//

#include "members.h"
#include "fake_cuda.h"
#include "lib/runtime/backend.h"

#include <dlfcn.h>

static fake_cuda *fake;

static moert_status create_with(int32_t size, int32_t transport, moert_comm **comms) {
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = MOERT_DEVICE_CUDA;
  options.transport = transport;
  return moert_comm_create_threads(size, &options, comms);
}

static int set_up(void **state) {
  (void)state;
  const moert__backend *cuda;
  Dl_info where;
  if (moert__backend_of_device(MOERT_DEVICE_CUDA, &cuda) || !dladdr((const void *)cuda, &where)) return -1;
  void *library = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD), *symbol = library ? dlsym(library, "fake_cuda_get") : NULL;
  fake_cuda *(*get)(void);
  memcpy(&get, &symbol, sizeof get);
  if (symbol) fake = get();
  return fake ? 0 : -1;
}

// A test leaves nothing behind, and the next one finds devices that are near.
static int tear_down(void **state) {
  (void)state;
  bool is_clean = fake->links == 0 && fake->boxes == 0 && fake->mapped == 0 && fake->shared == 0;
  fake->is_far = fake->refuses_links = fake->refuses_connect = false;
  fake->opened = 0;
  unsetenv("MOERT_TRANSPORT");
  unsetenv("MOERT_HOST_ID");
  return is_clean ? 0 : -1;
}

//===--- the choice -------------------------------------------------------------------------------===//

static void transport_that_is_chosen(void **state) {
  (void)state;
  const struct {
    const char *environment;
    int32_t asked;
    bool is_far;
    int32_t chosen;
  } rows[] = {
      {NULL, MOERT_TRANSPORT_AUTO, false, MOERT_TRANSPORT_PEER},  {NULL, MOERT_TRANSPORT_AUTO, true, MOERT_TRANSPORT_NCCL},
      {NULL, MOERT_TRANSPORT_PEER, false, MOERT_TRANSPORT_PEER},  {NULL, MOERT_TRANSPORT_PEER, true, MOERT_TRANSPORT_PEER},
      {NULL, MOERT_TRANSPORT_NCCL, false, MOERT_TRANSPORT_NCCL},  {NULL, MOERT_TRANSPORT_NCCL, true, MOERT_TRANSPORT_NCCL},
      {"", MOERT_TRANSPORT_AUTO, true, MOERT_TRANSPORT_NCCL},     {"auto", MOERT_TRANSPORT_AUTO, true, MOERT_TRANSPORT_NCCL},
      {"peer", MOERT_TRANSPORT_AUTO, true, MOERT_TRANSPORT_PEER}, {"nccl", MOERT_TRANSPORT_AUTO, false, MOERT_TRANSPORT_NCCL},
      {"nccl", MOERT_TRANSPORT_PEER, true, MOERT_TRANSPORT_PEER}, {"what", MOERT_TRANSPORT_PEER, false, MOERT_TRANSPORT_PEER},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    moert_comm *comms[3];
    fake->is_far = rows[i].is_far;
    if (rows[i].environment) setenv("MOERT_TRANSPORT", rows[i].environment, 1);
    assert_ok(create_with(3, rows[i].asked, comms));
    bool is_nccl = rows[i].chosen == MOERT_TRANSPORT_NCCL;
    for (int32_t r = 0; r < 3; ++r) {
      assert_int_equal(moert_comm_transport(comms[r]), rows[i].chosen);
      assert_int_equal(moert__comm_link(comms[r]) != NULL, is_nccl);
    }
    assert_int_equal(fake->connected_peers, !is_nccl);
    assert_int_equal(fake->links, is_nccl ? 3 : 0);
    destroy_ranks(comms, 3);
    unsetenv("MOERT_TRANSPORT");
  }
  assert_int_equal(moert_comm_transport(NULL), MOERT_TRANSPORT_AUTO);
}

static void choices_that_are_refused(void **state) {
  (void)state;
  moert_comm *comms[4] = {NULL};
  assert_fails(create_with(2, 3, comms), MOERT_ERROR_INVALID_ARGUMENT, "options: transport is 3, must be 0 (auto), 1 (peer) or 2 (nccl)");
  assert_fails(create_with(2, -1, comms), MOERT_ERROR_INVALID_ARGUMENT, "options: transport is -1, must be 0 (auto), 1 (peer) or 2 (nccl)");
  setenv("MOERT_TRANSPORT", "NCCL", 1);
  assert_fails(create_with(2, MOERT_TRANSPORT_AUTO, comms), MOERT_ERROR_INVALID_ARGUMENT,
               "environment variable MOERT_TRANSPORT is 'NCCL', must be auto, peer or nccl");
  unsetenv("MOERT_TRANSPORT");
  assert_fails(create_with(4, MOERT_TRANSPORT_NCCL, comms), MOERT_ERROR_UNSUPPORTED,
               "2 ranks are on device 0, of which each needs one of its own with the transport nccl; use more devices");
  fake->refuses_links = true;
  assert_fails(create_with(2, MOERT_TRANSPORT_NCCL, comms), MOERT_ERROR_LOAD, "no NCCL");
  fake->refuses_links = false;
  fake->is_far = fake->refuses_connect = true;
  assert_fails(create_with(2, MOERT_TRANSPORT_PEER, comms), MOERT_ERROR_UNSUPPORTED, "no link");
  assert_null(comms[0]);
}

static void transport_of_the_host(void **state) {
  (void)state;
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  moert_comm *comms[2] = {NULL};
  setenv("MOERT_TRANSPORT", "nccl", 1); // of devices alone
  assert_ok(moert_comm_create_threads(2, &options, comms));
  assert_int_equal(moert_comm_transport(comms[0]), MOERT_TRANSPORT_PEER);
  destroy_ranks(comms, 2);
  options.transport = MOERT_TRANSPORT_PEER;
  assert_ok(moert_comm_create_threads(2, &options, comms));
  destroy_ranks(comms, 2);
  options.transport = MOERT_TRANSPORT_NCCL;
  assert_fails(moert_comm_create_threads(2, &options, comms), MOERT_ERROR_UNSUPPORTED,
               "options: transport is nccl, which backend 'host' does not have");
}

// A program that was compiled before the option was there.
static void options_of_an_earlier_version(void **state) {
  (void)state;
  moert_comm_options options = {.struct_size = offsetof(moert_comm_options, transport), .device_type = MOERT_DEVICE_CUDA, .transport = 77};
  moert_comm *comms[2];
  fake->is_far = true;
  assert_ok(moert_comm_create_threads(2, &options, comms));
  assert_int_equal(moert_comm_transport(comms[0]), MOERT_TRANSPORT_NCCL);
  destroy_ranks(comms, 2);
}

//===--- memory -----------------------------------------------------------------------------------===//

static moert_status use_memory(rank_run *run) {
  void *memory, *begin, *peers[MOERT_MAX_RANKS];
  size_t bytes;
  int32_t local = 0;
  moert_status status = moert_symmetric_alloc(run->comm, 1000, &memory);
  if (!status) status = moert__symmetric_peers(run->comm, (char *)memory + 8, 16, peers);
  if (status) return status;
  for (int32_t r = 0; r < run->size; ++r)
    if (peers[r] != (r == run->rank ? (char *)memory + 8 : NULL)) return moert__fail(MOERT_ERROR_DATA, "address of rank %d", (int)r);
  void **boxes = moert__symmetric_outboxes(run->comm, (char *)memory + 999, &begin, &bytes);
  if (!boxes || *boxes || begin != memory || bytes != 1000) return moert__fail(MOERT_ERROR_DATA, "outboxes");
  if (moert__symmetric_outboxes(run->comm, &local, &begin, &bytes)) return moert__fail(MOERT_ERROR_DATA, "outboxes of no block");
  *boxes = malloc(1);
  fake->boxes++;
  return run->user ? MOERT_OK : moert_symmetric_free(run->comm, memory);
}

static void memory_that_peers_cannot_address(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(create_with(3, MOERT_TRANSPORT_NCCL, comms));
  for (int keep = 0; keep < 2; ++keep) {
    run_ranks(runs, comms, 3, use_memory, keep ? comms : NULL);
    for (int32_t r = 0; r < 3; ++r) assert_string_equal(runs[r].error, "");
    assert_int_equal(fake->boxes, keep ? 3 : 0);
  }
  destroy_ranks(comms, 3);
  assert_int_equal(fake->boxes, 0);
}

//===--- ops --------------------------------------------------------------------------------------===//

static void op_without_a_way(void **state) {
  (void)state;
  moert_comm *comms[2];
  moert_context *context;
  int stream;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_moe_allreduce_fusion_params params = MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT;
  moert_moe_allreduce_fusion_args args = MOERT_MOE_ALLREDUCE_FUSION_ARGS_INIT;
  options.stream = &stream;
  assert_ok(create_with(2, MOERT_TRANSPORT_NCCL, comms));
  assert_ok(moert_context_create(comms[0], &options, &context));
  assert_fails(moert_moe_allreduce_fusion(&params, &args, NULL, context), MOERT_ERROR_UNSUPPORTED,
               "moe.allreduce_fusion: the transport of the communicator is nccl, the op needs one whose ranks address each other's memory: peer");
  moert_moe_finalize_allreduce_fusion_params finalize = MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_PARAMS_INIT;
  moert_moe_finalize_allreduce_fusion_args operands = MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_ARGS_INIT;
  assert_fails(moert_moe_finalize_allreduce_fusion(&finalize, &operands, NULL, context), MOERT_ERROR_UNSUPPORTED,
               "moe.finalize_allreduce_fusion: the transport of the communicator is nccl, the op needs one whose ranks address each other's memory: "
               "peer");
  moert_context_destroy(context);
  destroy_ranks(comms, 2);
}

//===--- recovery ---------------------------------------------------------------------------------===//

static moert_status recover(rank_run *run) {
  if (run->rank == 1) return MOERT_OK;
  moert_status status = moert_comm_recover(run->comm, 5, PATIENT_MS);
  if (!status && !moert__comm_link(run->comm)) status = MOERT_ERROR_INTERNAL;
  return status ? status : moert_comm_barrier(run->comm, PATIENT_MS);
}

static void links_are_opened_anew(void **state) {
  (void)state;
  moert_comm *comms[3];
  rank_run runs[3];
  assert_ok(create_with(3, MOERT_TRANSPORT_NCCL, comms));
  assert_int_equal(fake->linked, 7);
  run_ranks(runs, comms, 3, recover, NULL);
  for (int32_t r = 0; r < 3; ++r) assert_string_equal(runs[r].error, "");
  assert_int_equal(fake->linked, 5);
  assert_int_equal(fake->opened, 5);
  assert_int_equal(fake->links, 3); // that of rank 1, which was left out, is there until its communicator goes
  fake->refuses_links = true;
  run_ranks(runs, comms, 3, recover, NULL);
  assert_string_equal(runs[0].error, "no NCCL");
  assert_string_equal(runs[2].error, "no NCCL");
  assert_int_equal(runs[0].status, MOERT_ERROR_LOAD);
  destroy_ranks(comms, 3);
}

//===--- processes --------------------------------------------------------------------------------===//

static moert_comm_options options_of(int32_t transport) {
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = MOERT_DEVICE_CUDA;
  options.transport = transport;
  return options;
}

static moert_status use_processes(member *m, const moert_comm_options *options, int32_t transport, uint32_t gatherings) {
  moert_comm *comm;
  void *memory;
  moert_status status = moert_comm_create_process(m->rank, m->shared->world, options, gather, m, &comm);
  if (status) return status;
  if (m->gatherings != gatherings) status = moert__fail(MOERT_ERROR_INTERNAL, "%d gatherings", (int)m->gatherings);
  if (!status && moert_comm_transport(comm) != transport) status = moert__fail(MOERT_ERROR_INTERNAL, "another transport");
  if (!status) status = moert_symmetric_alloc(comm, 64, &memory);
  bool imports = transport == MOERT_TRANSPORT_PEER;
  if (!status && fake->imported != (imports ? m->shared->world - 1 : 0)) status = moert__fail(MOERT_ERROR_INTERNAL, "imports");
  if (!status && fake->links != !imports) status = moert__fail(MOERT_ERROR_INTERNAL, "links");
  if (!status) status = moert_comm_barrier(comm, PATIENT_MS);
  if (!status) status = moert_symmetric_free(comm, memory);
  moert_comm_destroy(comm);
  return status;
}

static moert_status join_near(member *m) {
  moert_comm_options options = options_of(MOERT_TRANSPORT_AUTO);
  return use_processes(m, &options, MOERT_TRANSPORT_PEER, 3);
}

static moert_status join_told(member *m) {
  moert_comm_options options = options_of(MOERT_TRANSPORT_PEER);
  fake->is_far = true; // nobody asks
  return use_processes(m, &options, MOERT_TRANSPORT_PEER, 2);
}

// One rank that cannot address the memory of a peer is enough.
static moert_status join_far(member *m) {
  moert_comm_options options = options_of(MOERT_TRANSPORT_AUTO);
  fake->is_far = m->rank == 1;
  return use_processes(m, &options, MOERT_TRANSPORT_NCCL, 4);
}

static void processes_of_one_host(void **state) {
  (void)state;
  rank_body *const bodies[] = {join_near, join_told, join_far};
  for (size_t i = 0; i < COUNT(bodies); ++i) {
    scene *shared = make_scene(3);
    run_members(shared, bodies[i]);
    for (int r = 0; r < 3; ++r) assert_string_equal(shared->error[r], "");
    free_scene(shared);
  }
}

static moert_status disagree(member *m) {
  moert_comm *comm = NULL;
  moert_comm_options options = options_of(m->rank == 1 ? MOERT_TRANSPORT_NCCL : MOERT_TRANSPORT_AUTO);
  moert_status status = moert_comm_create_process(m->rank, m->shared->world, &options, gather, m, &comm);
  return comm ? MOERT_ERROR_INTERNAL : status;
}

static moert_status have_no_links(member *m) {
  moert_comm *comm = NULL;
  moert_comm_options options = options_of(MOERT_TRANSPORT_NCCL);
  fake->refuses_links = m->rank == 1;
  moert_status status = moert_comm_create_process(m->rank, m->shared->world, &options, gather, m, &comm);
  return comm || fake->links ? MOERT_ERROR_INTERNAL : status;
}

static void processes_that_cannot_join(void **state) {
  (void)state;
  scene *shared = make_scene(2);
  run_members(shared, disagree);
  assert_string_equal(shared->error[0], "options: transport is 0 on rank 0, but 2 on rank 1");
  assert_string_equal(shared->error[1], "options: transport is 2 on rank 1, but 0 on rank 0");
  free_scene(shared);
  shared = make_scene(3);
  run_members(shared, have_no_links);
  assert_string_equal(shared->error[0], "rank 1 could not join: MOERT_ERROR_LOAD (a shared library could not be loaded)");
  assert_string_equal(shared->error[1], "no NCCL");
  assert_string_equal(shared->error[2], shared->error[0]);
  free_scene(shared);
}

//===--- several hosts ----------------------------------------------------------------------------===//

// Two ranks on each host.
static moert_status join_from_afar(member *m, moert_comm **comm) {
  moert_comm_options options = options_of(MOERT_TRANSPORT_AUTO);
  setenv("MOERT_HOST_ID", m->rank < 2 ? "left" : "right", 1);
  fake->gather = gather;
  fake->gather_user = m;
  return moert_comm_create_process(m->rank, m->shared->world, &options, gather, m, comm);
}

static moert_status meet_over_links(member *m) {
  moert_comm *comm;
  void *memory[2];
  int32_t other;
  moert_status status = join_from_afar(m, &comm);
  if (status) return status;
  for (int i = 0; i < 2 && !status; ++i) status = moert_symmetric_alloc(comm, 64, &memory[i]);
  if (!status) status = moert_comm_barrier(comm, PATIENT_MS);
  if (!status) status = moert__symmetric_agree(comm, memory[0], 5, PATIENT_MS, &other);
  if (!status && other >= 0) status = moert__fail(MOERT_ERROR_DATA, "rank %d differs", (int)other);
  if (!status) status = moert__symmetric_agree(comm, memory[m->rank == 2], 5, PATIENT_MS, &other);
  if (!status && other != (m->rank == 2 ? 0 : 2)) status = moert__fail(MOERT_ERROR_DATA, "rank %d differs", (int)other);
  if (!status) status = moert_symmetric_free(comm, memory[0]);
  if (!status) status = moert_symmetric_alloc(comm, m->rank == 3 ? 128 : 64, &memory[0]);
  moert_comm_destroy(comm);
  return status;
}

static void processes_of_two_hosts(void **state) {
  (void)state;
  scene *shared = make_scene(4);
  fake->num_devices = 4;
  run_members(shared, meet_over_links);
  for (int r = 0; r < 4; ++r) assert_string_equal(shared->error[r], "symmetric memory must have one size: rank 0 asked for 64, but rank 3 for 128");
  free_scene(shared);
  fake->num_devices = 3;
}

static moert_status nobody_comes(member *m) {
  moert_comm *comm;
  moert_status status = join_from_afar(m, &comm);
  if (status) return status;
  m->shared->fails_from = (int32_t)m->gatherings;
  status = moert_comm_barrier(comm, PATIENT_MS);
  moert_status recovered = moert_comm_recover(comm, 7, PATIENT_MS), standing = moert_comm_status(comm);
  moert_comm_destroy(comm);
  return recovered == MOERT_ERROR_UNSUPPORTED && standing == status ? status : MOERT_ERROR_INTERNAL;
}

static void host_that_does_not_come(void **state) {
  (void)state;
  scene *shared = make_scene(3);
  run_members(shared, nobody_comes);
  for (int r = 0; r < 3; ++r) assert_int_equal(shared->status[r], MOERT_ERROR_PEER_TIMEOUT);
  assert_string_equal(shared->error[0], "the ranks are on several hosts, where those that live cannot go on without the others; destroy the "
                                        "communicator, and make one of them alone");
  free_scene(shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(transport_that_is_chosen, tear_down),
      cmocka_unit_test_teardown(choices_that_are_refused, tear_down),
      cmocka_unit_test_teardown(transport_of_the_host, tear_down),
      cmocka_unit_test_teardown(options_of_an_earlier_version, tear_down),
      cmocka_unit_test_teardown(memory_that_peers_cannot_address, tear_down),
      cmocka_unit_test_teardown(op_without_a_way, tear_down),
      cmocka_unit_test_teardown(links_are_opened_anew, tear_down),
      cmocka_unit_test_teardown(processes_of_one_host, tear_down),
      cmocka_unit_test_teardown(processes_that_cannot_join, tear_down),
      cmocka_unit_test_teardown(processes_of_two_hosts, tear_down),
      cmocka_unit_test_teardown(host_that_does_not_come, tear_down),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}

//===- device.c - what the runtime does with a device, without one ------------------------------------===//

#include "support.h"

#include "fake_backend.h"
#include "lib/runtime/runtime.h"
#include <sys/mman.h>

#define GRAPH(name) GRAPH_DIR "/graph_" name ".so"

enum { DEVICE = 2, TOKENS = 3, EXPERTS = 64, TOP_K = 8 };

static moert_comm *comm;
static moert_context *context;

static moert_status create_comm_of(int32_t transport, moert_comm **made) {
  static const int32_t device = DEVICE;
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = MOERT_DEVICE_CUDA;
  options.num_devices = 1;
  options.devices = &device;
  options.transport = transport;
  return moert_comm_create_threads(1, &options, made);
}

static moert_status create_comm(moert_comm **made) { return create_comm_of(MOERT_TRANSPORT_AUTO, made); }

static int set_up(void **state) {
  (void)state;
  if (create_comm(&comm) || moert_context_create(comm, NULL, &context)) return -1;
  fake_clear();
  return 0;
}

// Whatever a test did, nothing is left behind.
static int tear_down(void **state) {
  (void)state;
  moert_context_destroy(context);
  moert_comm_destroy(comm);
  return fake.allocations || fake.allocated || fake.streams || fake.mapped || fake.links || fake.captures || fake.depth || fake.device != -1;
}

//===--- contexts -----------------------------------------------------------------------------------===//

static void stream_of_its_own(void **state) {
  (void)state;
  int streams = fake.streams, mapped = fake.mapped;
  moert_context *made = NULL;
  assert_ok(moert_context_create(comm, NULL, &made));
  assert_int_equal(fake.streams, streams + 1);
  assert_int_equal(fake.mapped, mapped); // the record lies in memory that the device knows
  assert_int_equal(fake.last_device, DEVICE);
  assert_int_equal(moert__context_device(made), DEVICE);
  assert_ptr_equal(moert__context_backend(made), &fake_backend);
  assert_non_null(moert_context_stream(made));
  assert_non_null(moert__context_fault(made));
  assert_string_equal(fake.log, "create_stream ");
  moert_context_destroy(made);
  assert_string_equal(fake.log, "create_stream synchronize destroy_stream ");
  assert_int_equal(fake.streams, streams);
  assert_int_equal(fake.mapped, mapped);
}

static void stream_of_the_caller(void **state) {
  (void)state;
  int streams = fake.streams;
  char stream;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_context *made = NULL;
  options.stream = &stream;
  assert_ok(moert_context_create(comm, &options, &made));
  assert_ptr_equal(moert_context_stream(made), &stream);
  assert_int_equal(fake.streams, streams);
  assert_ok(moert_context_synchronize(made));
  assert_ptr_equal(fake.last_stream, &stream);
  moert_context_destroy(made);
  assert_string_equal(fake.log, "synchronize synchronize "); // what was called may still use the arena
}

static void context_that_cannot_be_made(void **state) {
  (void)state;
  int streams = fake.streams, mapped = fake.mapped;
  moert_context *made = NULL;
  fake.failing = "create_stream";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_context_create(comm, NULL, &made), MOERT_ERROR_DEVICE, "create_stream fails");
  assert_null(made);
  assert_int_equal(fake.streams, streams);
  assert_int_equal(fake.mapped, mapped);
}

enum { RECORDS = 31, CONTEXTS = RECORDS + 3 }; // the test's context has a record too

static bool lies_among(const moert__fault *record, moert_context *const *contexts, int count) {
  for (int i = 0; i < count; ++i)
    if (moert__context_fault(contexts[i]) == record) return true;
  return false;
}

// Contexts beyond those that the communicator has records for have a page each.
static void many_contexts(void **state) {
  (void)state;
  int mapped = fake.mapped;
  moert_context *made[CONTEXTS], *none = NULL;
  for (int i = 0; i < CONTEXTS; ++i) {
    assert_ok(moert_context_create(comm, NULL, &made[i]));
    assert_int_equal(fake.mapped, mapped + (i < RECORDS ? 0 : i - RECORDS + 1));
    assert_false(lies_among(moert__context_fault(made[i]), made, i));
    assert_int_equal((uintptr_t)moert__context_fault(made[i]) % sizeof(moert__fault), 0);
  }
  fake.failing = "map_host";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_context_create(comm, NULL, &none), MOERT_ERROR_DEVICE, "map_host fails");
  assert_null(none);
  fake_report(made[CONTEXTS - 1], MOERT__OP_MOE_GROUPED_MATMUL, MOERT__FAULT_OFFSET_NEGATIVE, 0, -5, 0, 0, 0, 0);
  assert_int_equal(moert_comm_check(comm), MOERT_ERROR_DATA);
  for (int i = CONTEXTS - 1; i >= 0; i -= 2) moert_context_destroy(made[i]);
  assert_ok(moert_comm_check(comm));
  for (int i = CONTEXTS - 2; i >= 0; i -= 2) moert_context_destroy(made[i]);
  assert_int_equal(fake.mapped, mapped);
}

// A context that takes the place of another does not take over its fault.
static void records_come_again(void **state) {
  (void)state;
  moert__fault *last = NULL;
  for (int life = 0; life < 1000; ++life) {
    moert_context *made = NULL;
    assert_ok(moert_context_create(comm, NULL, &made));
    assert_true(!last || moert__context_fault(made) == last);
    assert_ok(moert_context_status(made));
    assert_ok(moert_comm_check(comm));
    fake_report(made, MOERT__OP_MOE_GROUPED_MATMUL, MOERT__FAULT_OFFSET_NEGATIVE, 0, -5, 0, 0, 0, 0);
    assert_int_equal(moert_comm_check(comm), MOERT_ERROR_DATA);
    last = moert__context_fault(made);
    moert_context_destroy(made);
  }
}

static void watch(void **state) {
  (void)state;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_context *made;
  options.timeout_ms = 1500;
  assert_ok(moert_context_create(comm, &options, &made));
  moert__watch seen = moert__context_watch(made, MOERT__OP_MOE_COMBINE);
  assert_int_equal(seen.rank, 0);
  assert_int_equal(seen.ranks, 1);
  assert_true(seen.timeout_ns == INT64_C(1500000000));
  assert_int_equal(seen.op, MOERT__OP_MOE_COMBINE);
  assert_ptr_equal(seen.fault, moert__context_fault(made));
  assert_non_null(seen.failed);
  assert_non_null(seen.statuses);
  moert_context_destroy(made);
}

//===--- the stream ---------------------------------------------------------------------------------===//

static void synchronize(void **state) {
  (void)state;
  assert_ok(moert_context_synchronize(context));
  assert_int_equal(fake.synchronizations, 1);
  assert_ptr_equal(fake.last_stream, moert_context_stream(context));
  fake.failing = "synchronize";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_DEVICE, "synchronize fails");
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DEVICE);
  moert__fail(MOERT_ERROR_DATA, "another text");
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_DEVICE, "synchronize fails"); // the first error stays
  assert_int_equal(moert_comm_status(comm), MOERT_ERROR_DEVICE);                             // for peers, who would wait in vain
}

static void fill_and_copy(void **state) {
  (void)state;
  char from[4] = "abc", to[4] = "xyz";
  assert_ok(moert_copy(context, to, from, 2));
  assert_string_equal(to, "abz");
  assert_ok(moert__context_fill(context, to, '-', 1));
  assert_string_equal(to, "-bz");
  assert_ptr_equal(fake.last_stream, moert_context_stream(context));
  assert_int_equal(fake.last_device, DEVICE);
  assert_ok(moert_copy(context, to, from, 0));
  assert_ok(moert__context_fill(context, to, 1, 0));
  assert_string_equal(fake.log, "copy fill "); // nothing is no call
  fake.failing = "copy";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_copy(context, to, from, 1), MOERT_ERROR_DEVICE, "copy fails");
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DEVICE);
}

static void calls_that_wait_are_not_captured(void **state) {
  (void)state;
  char from = 1, to = 0;
  const char *text =
      "the call waits for the device or for the hosts of other ranks, which a CUDA graph cannot record; make it outside of the capture";
  assert_ok(moert__context_check_not_capturing(context));
  fake.capturing = true;
  assert_fails(moert__context_check_not_capturing(context), MOERT_ERROR_NOT_CAPTURABLE, text);
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_NOT_CAPTURABLE, text);
  assert_string_equal(fake.log, "");
  assert_ok(moert_copy(context, &to, &from, 1)); // the backend knows which memory can be copied then
  assert_string_equal(fake.log, "copy ");
  fake.failing = "copy";
  fake.failure = MOERT_ERROR_NOT_CAPTURABLE;
  assert_fails(moert_copy(context, &to, &from, 1), MOERT_ERROR_NOT_CAPTURABLE, "copy fails");
  fake.capturing = false;
  assert_ok(moert_context_status(context)); // nothing was done, and nothing is broken
}

//===--- arena --------------------------------------------------------------------------------------===//

static void arena_is_of_the_device(void **state) {
  (void)state;
  void *memory = NULL;
  assert_ok(moert_context_allocate(context, 1000, &memory));
  assert_int_equal((uintptr_t)memory % 256, 0);
  assert_int_equal(fake.allocations, 1);
  assert_int_equal(fake.allocated, 64 << 10); // without a header: the host does not write there
  assert_int_equal(fake.last_device, DEVICE);
  memset(memory, 0x5a, 1000);
  assert_ok(moert_context_allocate(context, 60 << 10, &memory));
  assert_int_equal(fake.allocations, 1);
  assert_ok(moert_context_allocate(context, 60 << 10, &memory));
  assert_int_equal(fake.allocations, 2);
  assert_int_equal(fake.allocated, (64 + 128) << 10);
}

// Memory that the host cannot touch.
static void *allocate_untouchable(void *user, size_t bytes, size_t alignment) {
  void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *(size_t *)user += bytes;
  return memory == MAP_FAILED || (uintptr_t)memory % alignment ? NULL : memory;
}

static void free_untouchable(void *user, void *memory, size_t bytes) {
  *(size_t *)user -= bytes;
  munmap(memory, bytes);
}

static void arena_of_the_caller(void **state) {
  (void)state;
  size_t held = 0;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_context *made;
  void *memory = NULL;
  options.allocate = allocate_untouchable;
  options.deallocate = free_untouchable;
  options.allocator_user = &held;
  assert_ok(moert_context_create(comm, &options, &made));
  for (int call = 0; call < 3; ++call) {
    moert__arena_mark mark = moert__arena_mark_get(made);
    for (int64_t bytes = 1; bytes < 1 << 20; bytes *= 3) assert_ok(moert_context_allocate(made, bytes, &memory));
    moert__arena_rewind(made, mark);
  }
  assert_in_range(held, 700000, 2000000);
  assert_int_equal(fake.allocations, 0);
  moert_context_destroy(made);
  assert_int_equal(held, 0);
}

static void arena_without_memory(void **state) {
  (void)state;
  void *memory = NULL;
  fake.failing = "allocate";
  fake.failure = MOERT_ERROR_OUT_OF_MEMORY; // the doubled chunk does not fit, what is needed does
  assert_ok(moert_context_allocate(context, 1000, &memory));
  assert_int_equal(fake.allocated, 1024);
  fake.failing = "allocate";
  assert_fails(moert_context_allocate(context, 100000, &memory), MOERT_ERROR_OUT_OF_MEMORY, "no memory for 100096 bytes on top of 1024 in the arena");
  fake.failing = "allocate";
  fake.failure = MOERT_ERROR_DEVICE; // that is no lack of memory
  assert_fails(moert_context_allocate(context, 1000, &memory), MOERT_ERROR_DEVICE, "allocate fails");
}

static void arena_does_not_grow_in_a_capture(void **state) {
  (void)state;
  void *memory = NULL, *again = NULL;
  fake.capturing = true;
  assert_fails(moert_context_allocate(context, 1000, &memory), MOERT_ERROR_NOT_CAPTURABLE,
               "the arena has to grow for 1024 bytes on top of 0, which a CUDA graph cannot record; call the function once before");
  fake.capturing = false;
  moert__arena_mark mark = moert__arena_mark_get(context);
  assert_ok(moert_context_allocate(context, 1000, &memory));
  moert__arena_rewind(context, mark);
  fake.capturing = true;
  assert_ok(moert_context_allocate(context, 1000, &again));
  fake.capturing = false;
  assert_ptr_equal(again, memory);
}

//===--- ops ----------------------------------------------------------------------------------------===//

typedef struct route_call {
  float logits_data[TOKENS][EXPERTS], weights_data[TOKENS][TOP_K];
  int32_t ids_data[TOKENS][TOP_K];
  int64_t logits_shape[2], chosen_shape[2];
  moert_tensor tensors[3]; // logits, ids, weights
  moert_moe_route_params params;
  moert_moe_route_args args;
} route_call;

static moert_tensor tensor_of(void *data, int64_t *shape, uint8_t code) {
  return (moert_tensor){data, {MOERT_DEVICE_CUDA, DEVICE}, 2, {code, 32, 1}, shape, NULL, 0};
}

static void make_call(route_call *call) {
  *call = (route_call){
      .logits_shape = {TOKENS, EXPERTS}, .chosen_shape = {TOKENS, TOP_K}, .params = MOERT_MOE_ROUTE_PARAMS_INIT, .args = MOERT_MOE_ROUTE_ARGS_INIT};
  call->tensors[0] = tensor_of(call->logits_data, call->logits_shape, MOERT_CODE_FLOAT);
  call->tensors[1] = tensor_of(call->ids_data, call->chosen_shape, MOERT_CODE_INT);
  call->tensors[2] = tensor_of(call->weights_data, call->chosen_shape, MOERT_CODE_FLOAT);
  call->params.top_k = TOP_K;
  call->params.n_experts = EXPERTS;
  call->args.logits = &call->tensors[0];
  call->args.ids = &call->tensors[1];
  call->args.weights = &call->tensors[2];
}

static moert_status route(route_call *call, moert_kernel *kernel) { return moert_moe_route(&call->params, &call->args, kernel, context); }

static void ops_run_on_the_device(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  assert_ok(route(&call, NULL));
  assert_int_equal(fake.op, MOERT__OP_MOE_ROUTE);
  assert_int_equal(fake.instance, MOERT__CHOOSE);
  assert_ptr_equal(fake.context, context);
  assert_null(fake.current); // of graphs
  assert_ptr_equal(fake.op_args, &call.args);
  assert_int_equal(fake.op_device, DEVICE);
  assert_string_equal(fake.op_range, "moe.route");
  assert_int_equal(fake.device, -1);
  assert_int_equal(fake.depth, 0);
  fake.op_status = MOERT_ERROR_DEVICE;
  assert_fails(route(&call, NULL), MOERT_ERROR_DEVICE, "moe.route: told to");
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DEVICE);
  assert_int_equal(fake.device, -1);
  assert_int_equal(fake.depth, 0);
}

// Ops that the backend has no function for are the host's, on the device's memory by fill and copy.
static void ops_of_the_host(void **state) {
  (void)state;
  moert_moe_workspace_size_params params = MOERT_MOE_WORKSPACE_SIZE_PARAMS_INIT;
  moert_moe_workspace_size_args args = MOERT_MOE_WORKSPACE_SIZE_ARGS_INIT;
  int64_t size = 0;
  args.size = &size;
  params.ep_size = 1;
  params.max_num_tokens = 4;
  params.dispatch_bytes_per_token = params.combine_bytes_per_token = 16;
  assert_ok(moert_moe_workspace_size(&params, &args, NULL, context));
  assert_true(size > 0);
  assert_int_equal(fake.op, -1);
}

#define assert_refused(call, status, text)                                                                                                           \
  do {                                                                                                                                               \
    assert_fails(route(call, NULL), status, "moe.route: " text);                                                                                     \
    assert_int_equal(fake.op, -1);                                                                                                                   \
    assert_ok(moert_context_status(context));                                                                                                        \
  } while (0)

static void operands_lie_on_the_device(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.tensors[0].device = (moert_device){MOERT_DEVICE_CPU, 0};
  assert_refused(&call, MOERT_ERROR_INVALID_MEMORY, "operand 'logits': device type 1, must be 2 (CUDA): the communicator's ranks run on devices");
  make_call(&call);
  call.tensors[1].device.id = 0;
  assert_refused(&call, MOERT_ERROR_INVALID_MEMORY, "operand 'ids': device 0, must be 2, which rank 0 runs on");
  make_call(&call);
  call.tensors[1].device.id = 0;
  call.logits_shape[0] = call.chosen_shape[0] = 0; // also where there is nothing to read
  assert_refused(&call, MOERT_ERROR_INVALID_MEMORY, "operand 'ids': device 0, must be 2, which rank 0 runs on");
}

static void host_and_symmetric_operands(void **state) {
  (void)state;
  int8_t *slab;
  int64_t info_data[MOERT_METAINFO_FIELDS], slab_shape[] = {4096}, info_shape[] = {MOERT_METAINFO_FIELDS};
  assert_ok(moert_symmetric_alloc(comm, 4096, (void **)&slab));
  moert_tensor workspace = {slab, {MOERT_DEVICE_CUDA, DEVICE}, 1, {MOERT_CODE_INT, 8, 1}, slab_shape, NULL, 0};
  moert_tensor metainfo = {info_data, {MOERT_DEVICE_CUDA, DEVICE}, 1, {MOERT_CODE_INT, 64, 1}, info_shape, NULL, 0};
  moert_moe_initialize_params params = MOERT_MOE_INITIALIZE_PARAMS_INIT;
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  params.ep_size = params.max_num_tokens = params.dispatch_bytes_per_token = params.combine_bytes_per_token = 1;
  args.workspace = &workspace;
  args.metainfo = &metainfo;
  assert_fails(moert_moe_initialize(&params, &args, NULL, context), MOERT_ERROR_INVALID_MEMORY,
               "moe.initialize: operand 'metainfo': device type 2, must be 1 (CPU): it is read by the host");
  metainfo.device = (moert_device){MOERT_DEVICE_CPU, 0};
  workspace.device = metainfo.device;
  assert_fails(moert_moe_initialize(&params, &args, NULL, context), MOERT_ERROR_INVALID_MEMORY,
               "moe.initialize: operand 'workspace': device type 1, must be 2 (CUDA): the communicator's ranks run on devices");
  workspace.device = (moert_device){MOERT_DEVICE_CUDA, 1};
  assert_fails(moert_moe_initialize(&params, &args, NULL, context), MOERT_ERROR_INVALID_MEMORY,
               "moe.initialize: operand 'workspace': device 1, must be 2, which rank 0 runs on");
  assert_ok(moert_symmetric_free(comm, slab));
}

static void peers_learn_of_device_errors(void **state) {
  (void)state;
  moert_moe_workspace_size_params size_params = MOERT_MOE_WORKSPACE_SIZE_PARAMS_INIT;
  moert_moe_workspace_size_args size_args = MOERT_MOE_WORKSPACE_SIZE_ARGS_INIT;
  moert_moe_initialize_params params = MOERT_MOE_INITIALIZE_PARAMS_INIT;
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  int64_t info_data[MOERT_METAINFO_FIELDS], info_shape[] = {MOERT_METAINFO_FIELDS}, size[1];
  void *slab;
  size_params.ep_size = size_params.max_num_tokens = size_params.dispatch_bytes_per_token = size_params.combine_bytes_per_token = 1;
  params.ep_size = params.max_num_tokens = params.dispatch_bytes_per_token = params.combine_bytes_per_token = 1;
  size_args.size = size;
  assert_ok(moert_moe_workspace_size(&size_params, &size_args, NULL, context));
  assert_ok(moert_symmetric_alloc(comm, (size_t)size[0], &slab));
  moert_tensor workspace = {slab, {MOERT_DEVICE_CUDA, DEVICE}, 1, {MOERT_CODE_INT, 8, 1}, size, NULL, 0};
  moert_tensor metainfo = {info_data, {MOERT_DEVICE_CPU, 0}, 1, {MOERT_CODE_INT, 64, 1}, info_shape, NULL, 0};
  args.workspace = &workspace;
  args.metainfo = &metainfo;
  assert_ok(moert_moe_initialize(&params, &args, NULL, context));
  assert_true(fake.fills > 0);
  fake.failing = "fill";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_moe_initialize(&params, &args, NULL, context), MOERT_ERROR_DEVICE, "moe.initialize: fill fails");
  assert_int_equal(moert_comm_status(comm), MOERT_ERROR_DEVICE);
}

// A device that fails is no lack of memory, and peers learn of it.
static void symmetric_memory_that_cannot_be_made(void **state) {
  (void)state;
  void *memory = NULL;
  fake.failing = "allocate_shared";
  fake.failure = MOERT_ERROR_OUT_OF_MEMORY;
  assert_fails(moert_symmetric_alloc(comm, 16, &memory), MOERT_ERROR_OUT_OF_MEMORY, "rank 0 has no memory for 16 bytes of symmetric memory");
  assert_ok(moert_comm_status(comm));
  fake.failing = "allocate_shared";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_symmetric_alloc(comm, 16, &memory), MOERT_ERROR_DEVICE, "allocate_shared fails");
  assert_null(memory);
  assert_int_equal(moert_comm_status(comm), MOERT_ERROR_DEVICE);
}

static void handles(void **state) {
  (void)state;
  route_call call;
  moert_kernel *kernel = NULL;
  make_call(&call);
  assert_ok(moert_kernel_find("moe.route/sm_90a/f32,top_k=8,n_experts=64", &kernel));
  assert_ok(route(&call, kernel));
  assert_int_equal(fake.instance, 1);
  assert_ok(moert_kernel_find("moe.route/sm_90a/f32,top_k=8,n_experts=65", &kernel));
  assert_ok(route(&call, kernel));
  assert_int_equal(fake.instance, MOERT__GENERIC);
  fake_clear();
  assert_ok(moert_kernel_find("moe.dispatch/sm_90a/i32,top_k=8", &kernel));
  assert_fails(route(&call, kernel), MOERT_ERROR_INVALID_ARGUMENT,
               "moe.route: kernel is 'moe.dispatch/sm_90a/any,top_k=8', must be one of moe.route/sm_90a");
  assert_fails(route(&call, (moert_kernel *)(void *)&call), MOERT_ERROR_INVALID_ARGUMENT,
               "moe.route: kernel is not what moert_kernel_find gave; NULL lets the library choose");
  assert_fails(route(&call, (moert_kernel *)((char *)kernel + 1)), MOERT_ERROR_INVALID_ARGUMENT,
               "moe.route: kernel is not what moert_kernel_find gave; NULL lets the library choose");
  assert_int_equal(fake.op, -1);
}

//===--- faults -------------------------------------------------------------------------------------===//

static void assert_fault(int op, int kind, moert_status status, const char *text, long long v0, long long v1, long long v2, long long v3,
                         long long v4, long long v5) {
  moert__fault *fault = moert__context_fault(context);
  fake_report(context, op, kind, v0, v1, v2, v3, v4, v5);
  assert_int_equal(moert__fault_status(fault), status);
  moert__fail(MOERT_ERROR_DATA, "another text");
  assert_int_equal(moert__fault_tell(fault), status); // which leaves it there
  assert_string_equal(moert_last_error(), text);
  moert__fail(MOERT_ERROR_DATA, "another text");
  assert_int_equal(moert__fault_take(fault), status);
  assert_string_equal(moert_last_error(), text);
  assert_ok(moert__fault_take(fault));
}

static void fault_texts_of_exchanges(void **state) {
  (void)state;
  const int dispatch = MOERT__OP_MOE_DISPATCH;
  assert_fault(dispatch, MOERT__FAULT_TIMEOUT, MOERT_ERROR_PEER_TIMEOUT, "moe.dispatch: rank 1 waited 2000 ms for rank 3 (its counts, epoch 7)", 1,
               2000, 3, MOERT__AWAITED_COUNTS, 7, -1);
  assert_fault(MOERT__OP_MOE_ALLREDUCE_FUSION, MOERT__FAULT_TIMEOUT, MOERT_ERROR_PEER_TIMEOUT,
               "moe.allreduce_fusion: rank 1 waited 2000 ms for rank 3 (its arrival, epoch 4294967295)", 1, 2000, 3, MOERT__AWAITED_ARRIVAL,
               4294967295, -1);
  assert_fault(MOERT__OP_MOE_COMBINE, MOERT__FAULT_PEER_FAILED, MOERT_ERROR_PEER_FAILED,
               "moe.combine: rank 2 reported an error while rank 0 waited for it (its data, epoch 5)", 2, 0, MOERT__AWAITED_DATA, 5, -1, -1);
  assert_fault(dispatch, MOERT__FAULT_MISMATCH, MOERT_ERROR_PEER_MISMATCH,
               "moe.dispatch: rank 2 called another op or used other parameters than rank 0 (its counts, epoch 5): hash 0000beef, must be 8badf00d",
               2, 0, MOERT__AWAITED_COUNTS, 5, 0xbeef, 0x8badf00d);
  assert_fault(dispatch, MOERT__FAULT_STANDING, MOERT_ERROR_PEER_FAILED,
               "moe.dispatch: the workspace stands in error since an earlier call: moert_comm_recover or moe.initialize clears it", 0, 0, 0, 0, 0, 0);
  assert_fault(dispatch, MOERT__FAULT_DISPATCH_CAPACITY, MOERT_ERROR_CAPACITY,
               "moe.dispatch: 9000000000 rows arrived for the experts of rank 1, operand 'recv[0]' has room for 8", 9000000000, 1, 8, -1, -1, -1);
}

static void fault_texts_of_data(void **state) {
  (void)state;
  const int matmul = MOERT__OP_MOE_GROUPED_MATMUL;
  assert_fault(matmul, MOERT__FAULT_OFFSET_NEGATIVE, MOERT_ERROR_DATA, "moe.grouped_matmul: offsets[0] is -5, must not be negative", 0, -5, 9, 9, 9,
               9);
  assert_fault(matmul, MOERT__FAULT_OFFSET_DESCENDS, MOERT_ERROR_DATA,
               "moe.grouped_matmul: offsets[3] is 4, less than offsets[2] = 6: must not descend", 3, 4, 2, 6, 9, 9);
  assert_fault(matmul, MOERT__FAULT_OFFSET_EXCEEDS, MOERT_ERROR_DATA, "moe.grouped_matmul: offsets[4] is 12, exceeds the 10 rows of 'out'", 4, 12, 10,
               9, 9, 9);
  assert_fault(matmul, MOERT__FAULT_ROW_ID, MOERT_ERROR_DATA,
               "moe.grouped_matmul: row_ids[2] is -1, must be at least 0 and less than the 6 rows of 'rows'", 2, -1, 6, 9, 9, 9);
}

static void fault_texts_of_ep(void **state) {
  (void)state;
  const int combine = MOERT__OP_EP_COMBINE_SKIP_A2A;
  assert_fault(combine, MOERT__FAULT_EP_IDLE, MOERT_ERROR_INVALID_STATE,
               "ep.combine.skip_a2a: no dispatch on these counters waits for its combine: call ep.dispatch first", 0, 0, 0, 0, 0, 0);
  assert_fault(combine, MOERT__FAULT_EP_SEGMENTS, MOERT_ERROR_INVALID_STATE,
               "ep.combine.skip_a2a: operand 'atomic_counters' was changed since the dispatch: expert 1 has 2 rows up to row 3", 1, 2, 3, 0, 0, 0);
  assert_fault(
      combine, MOERT__FAULT_EP_SOURCE, MOERT_ERROR_DATA,
      "ep.combine.skip_a2a: operand 'src_info' has no row for token 1, slot 2, whose expert 3 is one of rank 4: pass 'src_info' and 'topk_ids' "
      "of the dispatch",
      1, 2, 3, 4, 0, 0);
}

static void fault_texts_of_plans(void **state) {
  (void)state;
  assert_fault(MOERT__OP_MOE_NVFP4_ROUTED, MOERT__FAULT_ROUTED_CAPACITY, MOERT_ERROR_CAPACITY,
               "moe.nvfp4_routed: operand 'expert_ids' has room for 3 blocks, must have room for the 4 of the plan, and 'sorted_token_ids' for 8 "
               "entries each",
               3, 4, 8, 9, 9, 9);
}

// Kinds are many, and each has a status, a text and values that fit.
static void every_kind(void **state) {
  (void)state;
  static const char *const formats[] = {
#define FORMAT(name, status, format) format,
      MOERT__FAULT_MAP(FORMAT)
#undef FORMAT
  };
  for (size_t kind = 1; kind < COUNT(formats); ++kind) {
    int conversions = 0;
    for (const char *at = formats[kind]; (at = strchr(at, '%')); ++at) ++conversions;
    assert_in_range(conversions, 0, 6);
    fake_report(context, MOERT__OP_MOE_DISPATCH, (int)kind, 1, 1, 1, 1, 1, 1);
    assert_int_not_equal(moert__fault_take(moert__context_fault(context)), MOERT_ERROR_INTERNAL);
    assert_memory_equal(moert_last_error(), "moe.dispatch: ", 14);
    assert_null(strchr(moert_last_error(), '%'));
  }
}

// A kernel of another build, or memory that somebody wrote over.
static void fault_of_no_kind(void **state) {
  (void)state;
  assert_fault(-3, 1000, MOERT_ERROR_INTERNAL, "?: a kernel reported a fault that this library does not know", 0, 0, 0, 0, 0, 0);
  assert_fault(MOERT__OP_MOE_DISPATCH, MOERT__FAULT_TIMEOUT, MOERT_ERROR_PEER_TIMEOUT,
               "moe.dispatch: rank 0 waited 1 ms for rank 1 (something unknown, epoch 2)", 0, 1, 1, 77, 2, 0);
}

enum { REPORTS = 20000 };

static void *report_rows(void *unused) {
  (void)unused;
  for (long long i = 0; i < REPORTS; ++i) fake_report(context, MOERT__OP_MOE_GROUPED_MATMUL, MOERT__FAULT_OFFSET_EXCEEDS, i, i, i, 0, 0, 0);
  return NULL;
}

// Kernels report while the host takes: each fault comes whole, and in order.
static void faults_arrive_while_the_host_looks(void **state) {
  (void)state;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, report_rows, NULL), 0);
  moert__fault *fault = moert__context_fault(context);
  long long last = -1, taken = 0;
  for (int look = 0; look < REPORTS; ++look) {
    long long index, value, rows;
    if (!moert__fault_take(fault)) continue;
    assert_int_equal(sscanf(moert_last_error(), "moe.grouped_matmul: offsets[%lld] is %lld, exceeds the %lld rows", &index, &value, &rows), 3);
    assert_true(index == value && value == rows && index > last);
    last = index;
    ++taken;
  }
  assert_int_equal(pthread_join(thread, NULL), 0);
  taken += moert__fault_take(fault) != MOERT_OK;
  assert_true(taken > 0);
  assert_ok(moert__fault_take(fault));
}

#define OFFSET_TEXT "moe.grouped_matmul: offsets[0] is -5, must not be negative"
#define TIMEOUT_TEXT "moe.dispatch: rank 0 waited 10 ms for rank 1 (its data, epoch 2)"

static void report_offset(void) { fake_report(context, MOERT__OP_MOE_GROUPED_MATMUL, MOERT__FAULT_OFFSET_NEGATIVE, 0, -5, 0, 0, 0, 0); }
static void report_timeout(void) { fake_report(context, MOERT__OP_MOE_DISPATCH, MOERT__FAULT_TIMEOUT, 0, 10, 1, MOERT__AWAITED_DATA, 2, 0); }

static void next_op_returns_a_fault(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  report_offset();
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DATA); // without waiting
  assert_int_equal(fake.synchronizations, 0);
  assert_fails(route(&call, NULL), MOERT_ERROR_DATA, OFFSET_TEXT);
  assert_int_equal(fake.op, -1);
  assert_ok(route(&call, NULL)); // once
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DATA);
  assert_ok(moert_comm_status(comm)); // no peer can feel it
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_DATA, OFFSET_TEXT);
}

static void synchronize_returns_a_fault(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  report_offset();
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_DATA, OFFSET_TEXT);
  assert_int_equal(fake.synchronizations, 1);
  assert_ok(route(&call, NULL));
}

// A call that does not fit is no error of the context, here as on the host.
static void synchronize_returns_a_bad_call(void **state) {
  (void)state;
  fake_report(context, MOERT__OP_EP_DISPATCH, MOERT__FAULT_EP_PENDING, 0, 0, 0, 0, 0, 0);
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_INVALID_STATE,
               "ep.dispatch: the dispatch before on these counters waits for its combine: call ep.combine.skip_a2a first");
  assert_ok(moert_context_synchronize(context));
  assert_ok(moert_context_status(context));
  assert_ok(moert_comm_status(comm));
}

static void log_line(void *user, const char *line) { snprintf(user, 256, "%s", line); }

static void fault_of_an_exchange_is_the_communicators(void **state) {
  (void)state;
  route_call call;
  char line[256] = "";
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.log = log_line;
  options.log_user = line;
  moert_context_destroy(context);
  assert_ok(moert_context_create(comm, &options, &context));
  make_call(&call);
  report_timeout();
  assert_fails(moert_comm_check(comm), MOERT_ERROR_PEER_TIMEOUT, TIMEOUT_TEXT);
  assert_fails(route(&call, NULL), MOERT_ERROR_PEER_TIMEOUT, TIMEOUT_TEXT);
  assert_string_equal(line, "MOERT_ERROR_PEER_TIMEOUT: " TIMEOUT_TEXT);
  assert_int_equal(moert_comm_status(comm), MOERT_ERROR_PEER_TIMEOUT);
  assert_int_equal(moert_context_status(context), MOERT_ERROR_PEER_TIMEOUT);
  assert_ok(route(&call, NULL)); // a local op
  int8_t *memory = NULL;
  assert_int_equal(moert_symmetric_alloc(comm, 16, (void **)&memory), MOERT_ERROR_PEER_TIMEOUT);
}

static void recovery_clears_contexts(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  report_timeout();
  assert_int_equal(route(&call, NULL), MOERT_ERROR_PEER_TIMEOUT);
  report_timeout();
  assert_ok(moert_comm_recover(comm, 1, 1000));
  assert_ok(moert_context_status(context));
  assert_ok(moert_context_synchronize(context));
  assert_ok(route(&call, NULL));
  report_offset();
  assert_fails(route(&call, NULL), MOERT_ERROR_DATA, OFFSET_TEXT);
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DATA); // the first since then
}

//===--- dump ---------------------------------------------------------------------------------------===//

static void append_line(void *user, const char *line) {
  size_t length = strlen(user);
  snprintf((char *)user + length, 1024 - length, "%s\n", line);
}

static void assert_dump(const char *expected) {
  char text[1024] = "";
  moert_comm_dump(comm, append_line, text);
  assert_string_equal(text, expected);
}

static void dump_shows_kernels(void **state) {
  (void)state;
  moert_context *second;
  assert_ok(moert_context_create(comm, NULL, &second));
  assert_dump("rank 0 of 1: no error, not waiting, 0 meetings\n");
  moert__fault *fault = moert__context_fault(context);
  fault->waiting = UINT64_C(4294967295) | (uint64_t)MOERT__OP_MOE_COMBINE << MOERT__WAITING_OP |
                   (uint64_t)MOERT__AWAITED_DATA << MOERT__WAITING_WHAT | UINT64_C(64) << MOERT__WAITING_PEER;
  fake_report(second, MOERT__OP_MOE_GROUPED_MATMUL, MOERT__FAULT_OFFSET_NEGATIVE, 0, -5, 0, 0, 0, 0);
  assert_dump("rank 0 of 1: no error, not waiting, 0 meetings\n"
              "rank 0 of 1: a kernel waits for rank 63 (its data, epoch 4294967295) in moe.combine\n"
              "rank 0 of 1: a kernel reported " OFFSET_TEXT "\n");
  fault->waiting = 0;
  report_timeout(); // which the next call takes
  assert_int_equal(moert_context_synchronize(context), MOERT_ERROR_PEER_TIMEOUT);
  moert_context_destroy(second);
  assert_dump("rank 0 of 1: MOERT_ERROR_PEER_TIMEOUT, not waiting, 0 meetings\n");
}

//===--- graphs -------------------------------------------------------------------------------------===//

static moert_graph *load(const char *path) {
  moert_graph *graph = NULL;
  assert_ok(moert_graph_load(path, &graph));
  assert_non_null(graph);
  return graph;
}

static void slots_are_filled(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device")), *again = load(GRAPH("device"));
  const moert_graph_description *description = moert_graph_describe(graph);
  assert_string_equal(description->target, "sm_90a");
  assert_int_equal(description->num_functions, 6);
  assert_string_equal(moert_kernel_name(description->kernels[0]), "moe.route/sm_90a/f32,n_experts=64,top_k=8");
  moert_graph_unload(again);
  moert_graph_unload(graph);
}

static void graphs_that_are_refused(void **state) {
  (void)state;
  moert_graph *graph = NULL;
  assert_int_equal(moert_graph_load(GRAPH("device_key"), &graph), MOERT_ERROR_NO_KERNEL);
  const char *begin = "'" GRAPH("device_key") "': there is no kernel 'moe.unroute/sm_90a/f32': op 'moe.unroute' is none of those that have kernels: ";
  assert_memory_equal(moert_last_error(), begin, strlen(begin));
  assert_fails(moert_graph_load(GRAPH("device_slots"), &graph), MOERT_ERROR_NOT_FOUND,
               "'" GRAPH("device_slots") "' is not a compiled graph: its moert_graph_info has no slots for kernels");
  assert_fails(moert_graph_load(GRAPH("device_host"), &graph), MOERT_ERROR_NOT_FOUND,
               "'" GRAPH("device_host") "' is not a compiled graph: the target of its moert_graph_info_host is 'sm_90a', must be 'host'");
  assert_null(graph);
}

static moert_status call_route(moert_graph *graph, route_call *call, moert_context *with) {
  return moert_graph_call(graph, "route", call->tensors, 3, with);
}

static void device_functions(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  route_call call;
  make_call(&call);
  assert_ok(call_route(graph, &call, context));
  assert_int_equal(fake.instance, 1);
  assert_ptr_equal(fake.context, context);
  assert_ptr_equal(fake.current, context);
  assert_null(moert__current_context());
  assert_int_equal(fake.op_device, DEVICE);
  assert_int_equal(fake.device, -1);
  call.tensors[2].device.id = 0;
  assert_fails(call_route(graph, &call, context), MOERT_ERROR_INVALID_MEMORY, "route: argument 'weights': device 0, must be 2, which rank 0 runs on");
  moert_graph_unload(graph);
}

static void host_functions(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device")), *alone = load(GRAPH("device_alone")), *host = load(GRAPH("good"));
  moert_comm *own;
  moert_context *on_host;
  route_call call;
  assert_ok(moert_comm_create_threads(1, NULL, &own));
  assert_ok(moert_context_create(own, NULL, &on_host));
  make_call(&call);
  for (int i = 0; i < 3; ++i) call.tensors[i].device = (moert_device){MOERT_DEVICE_CPU, 0};
  call.logits_data[1][5] = 9;
  assert_ok(call_route(graph, &call, on_host));
  assert_int_equal(call.ids_data[1][0], 5);
  assert_int_equal(fake.op, -1);
  assert_fails(moert_graph_call(graph, "setup", NULL, 0, on_host), MOERT_ERROR_NOT_FOUND, "there is no function 'setup'; the graph has 'route'");
  assert_fails(call_route(alone, &call, on_host), MOERT_ERROR_UNSUPPORTED,
               "the graph was compiled for target 'sm_90a', the context's backend runs 'host': compile it for that");
  assert_fails(moert_graph_call(host, "nothing", NULL, 0, context), MOERT_ERROR_UNSUPPORTED,
               "the graph was compiled for target 'host', the context's backend runs 'sm_90a': compile it for that");
  assert_ok(moert_context_status(on_host));
  moert_context_destroy(on_host);
  moert_comm_destroy(own);
  moert_graph_unload(host);
  moert_graph_unload(alone);
  moert_graph_unload(graph);
}

// Nothing of the call runs behind a kernel that did not.
static void kernels_that_are_not_launched(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  route_call call;
  make_call(&call);
  assert_int_equal(moert_graph_call(graph, "launch", call.tensors, 3, context), MOERT_ERROR_DEVICE);
  assert_int_equal(fake.op, -1);
  assert_int_equal(moert_graph_call(graph, "launch_alone", NULL, 0, context), MOERT_ERROR_DEVICE);
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DEVICE);
  assert_int_equal(moert_comm_status(comm), MOERT_ERROR_DEVICE);
  assert_ok(call_route(graph, &call, context)); // calls after it are calls of their own
  moert_graph_unload(graph);
}

static void graph_call_returns_a_fault(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  report_offset();
  assert_fails(moert_graph_call(graph, "setup", NULL, 0, context), MOERT_ERROR_DATA, OFFSET_TEXT);
  assert_ok(moert_graph_call(graph, "setup", NULL, 0, context));
  moert_graph_unload(graph);
}

//===--- captures -----------------------------------------------------------------------------------===//

static void capture_and_replay(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  moert_capture *capture = NULL;
  route_call call;
  make_call(&call);
  assert_ok(moert_graph_capture(graph, "route", call.tensors, 3, context, &capture));
  assert_string_equal(fake.log, "begin_capture end_capture ");
  assert_true(fake.kept);
  assert_int_equal(fake.op, MOERT__OP_MOE_ROUTE);
  void *handle = fake.last_capture;
  assert_ok(moert_capture_replay(capture));
  assert_ok(moert_capture_replay(capture));
  assert_int_equal(fake.replays, 2);
  assert_ptr_equal(fake.last_capture, handle);
  assert_ptr_equal(fake.last_stream, moert_context_stream(context));
  report_offset();
  assert_fails(moert_capture_replay(capture), MOERT_ERROR_DATA, OFFSET_TEXT);
  assert_int_equal(fake.replays, 2);
  fake.failing = "replay_capture";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_capture_replay(capture), MOERT_ERROR_DEVICE, "replay_capture fails");
  moert_capture_destroy(capture);
  assert_int_equal(fake.captures, 0);
  moert_graph_unload(graph);
}

// NCCL's kernels do not survive their link, which an error may have ended.
static void captures_with_links(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  moert_capture *capture = NULL;
  moert_comm *linked;
  moert_context *its;
  route_call call;
  make_call(&call);
  assert_ok(create_comm_of(MOERT_TRANSPORT_NCCL, &linked));
  assert_ok(moert_context_create(linked, NULL, &its));
  assert_ok(moert_graph_capture(graph, "route", call.tensors, 3, its, &capture));
  assert_ok(moert_capture_replay(capture));
  moert_comm_report(linked, MOERT_ERROR_PEER_TIMEOUT);
  assert_fails(moert_capture_replay(capture), MOERT_ERROR_PEER_TIMEOUT,
               "rank 0 stands in error since an earlier call: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the deadline)");
  assert_ok(moert_comm_recover(linked, 1, 0));
  assert_fails(moert_capture_replay(capture), MOERT_ERROR_INVALID_STATE,
               "the call was captured before moert_comm_recover, which with the transport nccl opens new links: capture it again");
  assert_int_equal(fake.replays, 1);
  moert_capture_destroy(capture);
  assert_ok(moert_graph_capture(graph, "route", call.tensors, 3, its, &capture));
  assert_ok(moert_capture_replay(capture));
  moert_capture_destroy(capture);
  moert_context_destroy(its);
  moert_comm_destroy(linked);
  moert_graph_unload(graph);
}

static void captures_that_fail(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  moert_capture *capture = NULL;
  int64_t bytes = 1000;
  moert_tensor number = {&bytes, {MOERT_DEVICE_CPU, 0}, 0, {MOERT_CODE_INT, 64, 1}, NULL, NULL, 0};
  assert_fails(moert_graph_capture(graph, "setup", NULL, 0, context, &capture), MOERT_ERROR_NOT_CAPTURABLE,
               "function 'setup' has ops that a CUDA graph cannot record (moe.initialize, ep.init): move them to a function of their own");
  assert_fails(moert_graph_capture(graph, "fail", &number, 1, context, &capture), MOERT_ERROR_INVALID_ARGUMENT, "fail: 1 arguments, must be 0");
  assert_string_equal(fake.log, ""); // before anything was begun
  fake.failing = "begin_capture";
  fake.failure = MOERT_ERROR_DEVICE;
  assert_fails(moert_graph_capture(graph, "fail", NULL, 0, context, &capture), MOERT_ERROR_DEVICE, "begin_capture fails");
  fake_clear();
  fake.failing = "end_capture"; // the first error stands
  assert_fails(moert_graph_capture(graph, "fail", NULL, 0, context, &capture), MOERT_ERROR_NULL_POINTER, "moe.route: params is NULL");
  assert_false(fake.kept);
  assert_false(fake.capturing);
  fake.failing = "end_capture";
  assert_ok(moert_graph_call(graph, "grow", &number, 1, context));
  assert_fails(moert_graph_capture(graph, "grow", &number, 1, context, &capture), MOERT_ERROR_DEVICE, "end_capture fails");
  assert_null(capture);
  assert_int_equal(fake.captures, 0);
  moert_graph_unload(graph);
}

static void capture_needs_a_call_before(void **state) {
  (void)state;
  moert_graph *graph = load(GRAPH("device"));
  moert_capture *capture = NULL;
  int64_t bytes = 1000;
  moert_tensor number = {&bytes, {MOERT_DEVICE_CPU, 0}, 0, {MOERT_CODE_INT, 64, 1}, NULL, NULL, 0};
  assert_fails(moert_graph_capture(graph, "grow", &number, 1, context, &capture), MOERT_ERROR_NOT_CAPTURABLE,
               "the arena has to grow for 1024 bytes on top of 0, which a CUDA graph cannot record; call the function once before");
  assert_false(fake.kept);
  assert_ok(moert_graph_call(graph, "grow", &number, 1, context));
  assert_ok(moert_graph_capture(graph, "grow", &number, 1, context, &capture));
  moert_capture_destroy(capture);
  report_offset();
  capture = NULL;
  assert_fails(moert_graph_capture(graph, "grow", &number, 1, context, &capture), MOERT_ERROR_DATA, OFFSET_TEXT);
  assert_null(capture);
  moert_graph_unload(graph);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(stream_of_its_own),
      TEST(stream_of_the_caller),
      TEST(context_that_cannot_be_made),
      TEST(many_contexts),
      TEST(records_come_again),
      TEST(watch),
      TEST(synchronize),
      TEST(fill_and_copy),
      TEST(calls_that_wait_are_not_captured),
      TEST(arena_is_of_the_device),
      TEST(arena_of_the_caller),
      TEST(arena_without_memory),
      TEST(arena_does_not_grow_in_a_capture),
      TEST(ops_run_on_the_device),
      TEST(ops_of_the_host),
      TEST(operands_lie_on_the_device),
      TEST(host_and_symmetric_operands),
      TEST(peers_learn_of_device_errors),
      TEST(symmetric_memory_that_cannot_be_made),
      TEST(handles),
      TEST(fault_texts_of_exchanges),
      TEST(fault_texts_of_data),
      TEST(fault_texts_of_ep),
      TEST(fault_texts_of_plans),
      TEST(every_kind),
      TEST(fault_of_no_kind),
      TEST(faults_arrive_while_the_host_looks),
      TEST(next_op_returns_a_fault),
      TEST(synchronize_returns_a_fault),
      TEST(synchronize_returns_a_bad_call),
      TEST(fault_of_an_exchange_is_the_communicators),
      TEST(recovery_clears_contexts),
      TEST(dump_shows_kernels),
      TEST(slots_are_filled),
      TEST(graphs_that_are_refused),
      TEST(device_functions),
      TEST(host_functions),
      TEST(kernels_that_are_not_launched),
      TEST(graph_call_returns_a_fault),
      TEST(capture_and_replay),
      TEST(captures_with_links),
      TEST(captures_that_fail),
      TEST(capture_needs_a_call_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

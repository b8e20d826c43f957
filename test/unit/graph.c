//===- graph.c - compiled graphs: load, describe, call ----------------------------------------------===//

#include "support.h"

#include <unistd.h>

#define GRAPH(name) GRAPH_DIR "/graph_" name ".so"

static moert_comm *comm;
static moert_context *context;
static moert_graph *graph;

static int set_up(void **state) {
  (void)state;
  return moert_comm_create_threads(1, NULL, &comm) || moert_context_create(comm, NULL, &context) || moert_graph_load(GRAPH("good"), &graph);
}

static int tear_down(void **state) {
  (void)state;
  moert_graph_unload(graph);
  moert_context_destroy(context);
  moert_comm_destroy(comm);
  return 0;
}

//===--- load ---------------------------------------------------------------------------------------===//

static void describe(void **state) {
  (void)state;
  const moert_graph_description *description = moert_graph_describe(graph);
  assert_non_null(description);
  assert_string_equal(description->target, "host");
  assert_string_equal(description->producer, "by hand");
  assert_int_equal(description->num_functions, 5);
  assert_string_equal(description->functions[0].name, "scale");
  assert_string_equal(description->functions[0].arguments[1].name, "factor");
  assert_string_equal(description->kernel_keys[0], "moe.route/host");
  assert_null(moert_graph_describe(NULL));
  moert_graph_unload(NULL);
}

static void load_again(void **state) {
  (void)state;
  moert_graph *second = NULL;
  assert_ok(moert_graph_load(GRAPH("good"), &second));
  moert_graph_unload(second);
  assert_ok(moert_graph_call(graph, "nothing", NULL, 0, context));
}

static void load_from_the_current_directory(void **state) {
  (void)state;
  char before[4096];
  moert_graph *second = NULL;
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(GRAPH_DIR), 0);
  assert_ok(moert_graph_load("graph_good.so", &second));
  assert_int_equal(chdir(before), 0);
  moert_graph_unload(second);
}

static void load_refuses(void **state) {
  (void)state;
  moert_graph *other = NULL;
  assert_fails(moert_graph_load(NULL, &other), MOERT_ERROR_NULL_POINTER, "path is NULL");
  assert_fails(moert_graph_load(GRAPH("good"), NULL), MOERT_ERROR_NULL_POINTER, "graph is NULL");
  assert_fails(moert_graph_load("/nowhere/graph.so", &other), MOERT_ERROR_NOT_FOUND, "there is no file '/nowhere/graph.so'");
  assert_fails(moert_graph_load(GRAPH("nameless"), &other), MOERT_ERROR_NOT_FOUND,
               "'" GRAPH("nameless") "' is not a compiled graph: it has no symbol moert_graph_info");
  assert_fails(moert_graph_load(GRAPH("magic"), &other), MOERT_ERROR_NOT_FOUND,
               "'" GRAPH("magic") "' is not a compiled graph: its moert_graph_info begins with 0123456789abcdef, must be 6870726765726f6d");
  assert_fails(moert_graph_load(GRAPH("abi"), &other), MOERT_ERROR_ABI_VERSION,
               "'" GRAPH("abi") "' was compiled for version 7 of the run side, this library is version 2; compile it again");
  assert_fails(moert_graph_load(GRAPH("struct_size"), &other), MOERT_ERROR_STRUCT_SIZE,
               "'" GRAPH("struct_size") "': struct_size of moert_graph_info is 8, must be 80");
  assert_fails(moert_graph_load(GRAPH("target"), &other), MOERT_ERROR_UNSUPPORTED,
               "'" GRAPH("target") "' was compiled for target 'sm_75', which this library does not know");
  assert_null(other);
}

// What the loader of the system says stands in the error.
static void load_tells_what_the_loader_says(void **state) {
  (void)state;
  moert_graph *other = NULL;
  assert_int_equal(moert_graph_load(GRAPH("unresolved"), &other), MOERT_ERROR_LOAD);
  assert_non_null(strstr(moert_last_error(), "'" GRAPH("unresolved") "' could not be loaded: "));
  assert_non_null(strstr(moert_last_error(), "a_function_that_nobody_has"));
  assert_int_equal(moert_graph_load(GRAPH_DIR "/CTestTestfile.cmake", &other), MOERT_ERROR_LOAD);
  assert_non_null(strstr(moert_last_error(), "invalid ELF header"));
  assert_null(other);
}

// A graph for a device needs the CUDA backend, but neither device nor driver; its functions for the host run without both.
static void load_for_a_device(void **state) {
  (void)state;
  moert_graph *other = NULL;
#ifdef MOE_ENABLE_CUDA
  assert_ok(moert_graph_load(GRAPH("device"), &other));
  assert_string_equal(moert_graph_describe(other)->target, "sm_90a");
  assert_string_equal(moert_kernel_name(moert_graph_describe(other)->kernels[0]), "moe.route/sm_90a/f32,n_experts=64,top_k=8");
  assert_fails(moert_graph_call(other, "route", NULL, 0, context), MOERT_ERROR_INVALID_ARGUMENT,
               "route: 0 arguments, must be 3: 'logits', 'ids', 'weights'");
  moert_graph_unload(other);
#else
  assert_int_equal(moert_graph_load(GRAPH("device"), &other), MOERT_ERROR_LOAD);
  assert_non_null(strstr(moert_last_error(), "libmoert_cuda"));
  assert_null(other);
#endif
}

//===--- scale: a call that is right, and one spoiled thing at a time -------------------------------===//

typedef struct scale_call {
  float x[3][4], out[3][4];
  double factor;
  int64_t x_shape[3], out_shape[2], strides[2];
  moert_tensor arguments[3];
} scale_call;

static moert_tensor tensor_of(void *data, int32_t ndim, int64_t *shape, uint8_t code, uint8_t bits) {
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, ndim, {code, bits, 1}, shape, NULL, 0};
}

static void make_call(scale_call *call) {
  *call = (scale_call){.x = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, .factor = 2, .x_shape = {3, 4, 1}, .out_shape = {3, 4}};
  memset(call->out, 0x77, sizeof call->out);
  call->arguments[0] = tensor_of(call->x, 2, call->x_shape, MOERT_CODE_FLOAT, 32);
  call->arguments[1] = tensor_of(&call->factor, 0, NULL, MOERT_CODE_FLOAT, 64);
  call->arguments[2] = tensor_of(call->out, 2, call->out_shape, MOERT_CODE_FLOAT, 32);
}

static void assert_unwritten(const scale_call *call) {
  for (size_t i = 0; i < sizeof call->out; ++i) assert_int_equal(((const unsigned char *)call->out)[i], 0x77);
}

#define assert_refused(call, status, text)                                                                                                           \
  do {                                                                                                                                               \
    assert_fails(moert_graph_call(graph, "scale", (call)->arguments, 3, context), status, "scale: " text);                                           \
    assert_unwritten(call);                                                                                                                          \
  } while (0)

static void right_call(void **state) {
  (void)state;
  scale_call call;
  make_call(&call);
  assert_ok(moert_graph_call(graph, "scale", call.arguments, 3, context));
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 4; ++i) assert_true(call.out[t][i] == 2 * call.x[t][i]);
}

static void byte_offset_and_explicit_strides(void **state) {
  (void)state;
  scale_call call;
  make_call(&call);
  call.x_shape[0] = call.out_shape[0] = 1;
  call.arguments[0].byte_offset = sizeof call.x[0];
  call.arguments[0].strides = call.strides;
  call.strides[0] = 77; // of a dimension of size 1
  call.strides[1] = 1;
  assert_ok(moert_graph_call(graph, "scale", call.arguments, 3, context));
  for (int i = 0; i < 4; ++i) assert_true(call.out[0][i] == 2 * call.x[1][i]);
}

static void no_tokens(void **state) {
  (void)state;
  scale_call call;
  make_call(&call);
  call.x_shape[0] = call.out_shape[0] = 0;
  call.arguments[0].data = call.arguments[2].data = NULL;
  assert_ok(moert_graph_call(graph, "scale", call.arguments, 3, context));
  assert_unwritten(&call);
}

static void call_itself(void **state) {
  (void)state;
  scale_call call;
  make_call(&call);
  assert_fails(moert_graph_call(NULL, "scale", call.arguments, 3, context), MOERT_ERROR_NULL_POINTER, "graph is NULL");
  assert_fails(moert_graph_call(graph, NULL, call.arguments, 3, context), MOERT_ERROR_NULL_POINTER, "function is NULL");
  assert_fails(moert_graph_call(graph, "scale", call.arguments, 3, NULL), MOERT_ERROR_NULL_POINTER, "context is NULL");
  assert_fails(moert_graph_call(graph, "skale", call.arguments, 3, context), MOERT_ERROR_NOT_FOUND,
               "there is no function 'skale'; the graph has 'scale', 'look', 'arena', 'fail', 'nothing'");
  assert_fails(moert_graph_call(graph, "scale", call.arguments, 2, context), MOERT_ERROR_INVALID_ARGUMENT,
               "scale: 2 arguments, must be 3: 'x', 'factor', 'out'");
  assert_fails(moert_graph_call(graph, "scale", call.arguments, -1, context), MOERT_ERROR_INVALID_ARGUMENT,
               "scale: -1 arguments, must be 3: 'x', 'factor', 'out'");
  assert_fails(moert_graph_call(graph, "nothing", call.arguments, 1, context), MOERT_ERROR_INVALID_ARGUMENT, "nothing: 1 arguments, must be 0");
  assert_fails(moert_graph_call(graph, "scale", NULL, 3, context), MOERT_ERROR_NULL_POINTER, "scale: arguments is NULL, must be 3 tensors");
  assert_ok(moert_graph_call(graph, "nothing", NULL, 0, context));
  assert_unwritten(&call);
}

static void shapes(void **state) {
  (void)state;
  scale_call call;
  make_call(&call);
  call.arguments[0].ndim = 3;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "argument 'x': rank 3, must be 2");
  make_call(&call);
  call.arguments[1].ndim = 1;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "argument 'factor': rank 1, must be 0");
  make_call(&call);
  call.arguments[2].shape = NULL;
  assert_refused(&call, MOERT_ERROR_NULL_POINTER, "argument 'out': shape is NULL");
  make_call(&call);
  call.x_shape[0] = -3;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "argument 'x': dimension 0 is -3, must be at least 0");
  make_call(&call);
  call.x_shape[1] = 5;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "argument 'x': dimension 1 is 5, must be 4");
  make_call(&call);
  call.out_shape[0] = 2;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "size 'T' differs: argument 'x': dimension 0 is 3, argument 'out': dimension 0 is 2");
  make_call(&call);
  call.x_shape[0] = INT64_C(1) << 61;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "argument 'x': shape [2305843009213693952, 4] has more bytes than 64 bits can count");
}

static void memory(void **state) {
  (void)state;
  scale_call call;
  make_call(&call);
  call.arguments[0].dtype.code = MOERT_CODE_INT;
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "argument 'x': element type i32, must be f32");
  make_call(&call);
  call.arguments[1].dtype.bits = 32;
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "argument 'factor': element type f32, must be f64");
  make_call(&call);
  call.arguments[1].data = NULL;
  assert_refused(&call, MOERT_ERROR_NULL_POINTER, "argument 'factor': data is NULL, must point to the number");
  make_call(&call);
  call.arguments[1].byte_offset = 4;
  assert_refused(&call, MOERT_ERROR_MISALIGNED, "argument 'factor': data lies 4 bytes past a multiple of 8, the size of its element type f64");
  make_call(&call);
  call.arguments[0].data = NULL;
  assert_refused(&call, MOERT_ERROR_NULL_POINTER, "argument 'x': data is NULL, but the tensor has 12 elements");
  make_call(&call);
  call.arguments[2].device.type = MOERT_DEVICE_CUDA;
  assert_refused(&call, MOERT_ERROR_INVALID_MEMORY, "argument 'out': device type 2, must be 1 (CPU): the host backend reads host memory");
  make_call(&call);
  call.arguments[0].byte_offset = 1;
  assert_refused(&call, MOERT_ERROR_MISALIGNED, "argument 'x': data lies 1 bytes past a multiple of 4, the size of its element type f32");
  make_call(&call);
  call.arguments[2].strides = call.strides;
  call.strides[0] = 1;
  call.strides[1] = 3;
  assert_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS, "argument 'out' is not contiguous (shape [3, 4], strides [1, 3])");
  make_call(&call);
  call.arguments[2].data = call.x;
  assert_refused(&call, MOERT_ERROR_OVERLAP, "argument 'out' overlaps argument 'x'; give it memory of its own");
}

//===--- the other kinds of arguments ---------------------------------------------------------------===//

static void kinds_of_memory(void **state) {
  (void)state;
  int8_t *slab, local[16];
  float square[3][3];
  int32_t cell = -1;
  int8_t small = -7;
  uint8_t flag = 1;
  int64_t slab_shape[] = {16}, square_shape[] = {3, 3};
  assert_ok(moert_symmetric_alloc(comm, 16, (void **)&slab));
  moert_tensor arguments[] = {
      tensor_of(local, 1, slab_shape, MOERT_CODE_INT, 8), tensor_of(square, 2, square_shape, MOERT_CODE_FLOAT, 32),
      tensor_of(&cell, 0, NULL, MOERT_CODE_INT, 32),      tensor_of(&small, 0, NULL, MOERT_CODE_INT, 8),
      tensor_of(&flag, 0, NULL, MOERT_CODE_INT, 1),
  };
  assert_fails(moert_graph_call(graph, "look", arguments, 5, context), MOERT_ERROR_INVALID_MEMORY,
               "look: argument 'workspace': its 16 bytes do not lie in one block of this communicator's symmetric memory (moert_symmetric_alloc)");
  arguments[0].data = slab;
  square_shape[1] = 2;
  assert_fails(moert_graph_call(graph, "look", arguments, 5, context), MOERT_ERROR_INVALID_SHAPE,
               "look: size 'N' differs: argument 'square': dimension 0 is 3, argument 'square': dimension 1 is 2");
  square_shape[1] = 3;
  arguments[4].byte_offset = UINT64_MAX;
  assert_fails(moert_graph_call(graph, "look", arguments, 5, context), MOERT_ERROR_INVALID_MEMORY,
               "look: argument 'flag': byte_offset 18446744073709551615 leads beyond the end of the address space");
  arguments[4].byte_offset = 0;
  assert_int_equal(cell, -1);
  assert_ok(moert_graph_call(graph, "look", arguments, 5, context));
  assert_int_equal(cell, 16 * 1000 + 3 * 10 + 1 + 1 + 1);
  assert_int_equal(slab[0], -7);
  assert_ok(moert_symmetric_free(comm, slab));
}

//===--- arena and status ---------------------------------------------------------------------------===//

static moert_status call_arena(moert_context *with, int64_t bytes) {
  moert_tensor argument = tensor_of(&bytes, 0, NULL, MOERT_CODE_INT, 64);
  return moert_graph_call(graph, "arena", &argument, 1, with);
}

static void arena_is_rewound(void **state) {
  (void)state;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_context *limited;
  options.arena_limit = 3 << 10;
  assert_ok(moert_context_create(comm, &options, &limited));
  for (int call = 0; call < 100; ++call) assert_ok(call_arena(limited, 1000));
  assert_int_equal(moert_context_peak(limited), 3 << 10);
  assert_fails(call_arena(limited, 1025), MOERT_ERROR_OUT_OF_MEMORY,
               "1280 bytes on top of 2560 exceed the arena_limit of 3072; raise it in the context's options");
  assert_int_equal(moert_context_status(limited), MOERT_ERROR_OUT_OF_MEMORY);
  assert_ok(call_arena(limited, 1024)); // also after a failed call
  moert_context_destroy(limited);
}

static void failing_function(void **state) {
  (void)state;
  moert_context *other;
  assert_ok(moert_context_create(comm, NULL, &other));
  assert_int_equal(moert_graph_call(graph, "skale", NULL, 0, other), MOERT_ERROR_NOT_FOUND);
  assert_ok(moert_context_status(other));
  assert_int_equal(moert_graph_call(graph, "fail", NULL, 0, other), MOERT_ERROR_DATA);
  assert_int_equal(moert_context_status(other), MOERT_ERROR_DATA);
  moert_context_destroy(other);
}

//===--- captures -----------------------------------------------------------------------------------===//

static void captures_are_for_devices(void **state) {
  (void)state;
  moert_capture *capture = NULL;
  assert_fails(moert_graph_capture(graph, "nothing", NULL, 0, context, &capture), MOERT_ERROR_UNSUPPORTED,
               "the host backend captures no calls: use moert_graph_call");
  assert_null(capture);
  assert_fails(moert_graph_capture(graph, "nothing", NULL, 0, context, NULL), MOERT_ERROR_NULL_POINTER, "capture is NULL");
  assert_fails(moert_graph_capture(NULL, "nothing", NULL, 0, context, &capture), MOERT_ERROR_NULL_POINTER, "graph is NULL");
  assert_fails(moert_graph_capture(graph, NULL, NULL, 0, context, &capture), MOERT_ERROR_NULL_POINTER, "function is NULL");
  assert_fails(moert_graph_capture(graph, "nothing", NULL, 0, NULL, &capture), MOERT_ERROR_NULL_POINTER, "context is NULL");
  assert_fails(moert_capture_replay(NULL), MOERT_ERROR_NULL_POINTER, "capture is NULL");
  moert_capture_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(describe),
      cmocka_unit_test(load_again),
      cmocka_unit_test(load_from_the_current_directory),
      cmocka_unit_test(load_refuses),
      cmocka_unit_test(load_tells_what_the_loader_says),
      cmocka_unit_test(load_for_a_device),
      cmocka_unit_test(right_call),
      cmocka_unit_test(byte_offset_and_explicit_strides),
      cmocka_unit_test(no_tokens),
      cmocka_unit_test(call_itself),
      cmocka_unit_test(shapes),
      cmocka_unit_test(memory),
      cmocka_unit_test(kinds_of_memory),
      cmocka_unit_test(arena_is_rewound),
      cmocka_unit_test(failing_function),
      cmocka_unit_test(captures_are_for_devices),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

//===- ops.c - the checks that every op function makes ----------------------------------------------===//

#include "support.h"

#include <math.h>
#include <moert/ops.h>

enum { TOKENS = 3, EXPERTS = 4, TOP_K = 2 };

static moert_comm *comm;
static moert_context *context;

static int set_up(void **state) {
  (void)state;
  return moert_comm_create_threads(1, NULL, &comm) || moert_context_create(comm, NULL, &context);
}

static int tear_down(void **state) {
  (void)state;
  moert_context_destroy(context);
  moert_comm_destroy(comm);
  return 0;
}

//===--- a call that is right -----------------------------------------------------------------------===//

// Each test spoils one thing of it.
typedef struct route_call {
  float logits_data[TOKENS][EXPERTS], bias_data[EXPERTS], weights_data[TOKENS][TOP_K];
  int32_t ids_data[TOKENS][TOP_K];
  int64_t logits_shape[3], bias_shape[1], ids_shape[2], weights_shape[2], strides[2];
  moert_tensor logits, bias, ids, weights;
  moert_moe_route_params params;
  moert_moe_route_args args;
} route_call;

static moert_tensor tensor_of(void *data, int32_t ndim, int64_t *shape, uint8_t code, uint8_t bits) {
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, ndim, {code, bits, 1}, shape, NULL, 0};
}

static void make_call(route_call *call) {
  *call = (route_call){.logits_data = {{1, 2, 3, 4}, {4, 3, 2, 1}, {0, 5, 0, 6}},
                       .logits_shape = {TOKENS, EXPERTS, 1},
                       .bias_shape = {EXPERTS},
                       .ids_shape = {TOKENS, TOP_K},
                       .weights_shape = {TOKENS, TOP_K},
                       .params = MOERT_MOE_ROUTE_PARAMS_INIT,
                       .args = MOERT_MOE_ROUTE_ARGS_INIT};
  memset(call->ids_data, 0x77, sizeof call->ids_data);
  memset(call->weights_data, 0x77, sizeof call->weights_data);
  call->logits = tensor_of(call->logits_data, 2, call->logits_shape, MOERT_CODE_FLOAT, 32);
  call->bias = tensor_of(call->bias_data, 1, call->bias_shape, MOERT_CODE_FLOAT, 32);
  call->ids = tensor_of(call->ids_data, 2, call->ids_shape, MOERT_CODE_INT, 32);
  call->weights = tensor_of(call->weights_data, 2, call->weights_shape, MOERT_CODE_FLOAT, 32);
  call->params.top_k = TOP_K;
  call->params.n_experts = EXPERTS;
  call->args.logits = &call->logits;
  call->args.ids = &call->ids;
  call->args.weights = &call->weights;
}

static moert_status route(route_call *call) { return moert_moe_route(&call->params, &call->args, NULL, context); }

// The call fails with this text, and has written nothing.
#define assert_refused(call, status, text)                                                                                                           \
  do {                                                                                                                                               \
    assert_fails(route(call), status, "moe.route: " text);                                                                                           \
    assert_unwritten(call);                                                                                                                          \
  } while (0)

static void assert_unwritten(const route_call *call) {
  const unsigned char *ids = (const unsigned char *)call->ids_data, *weights = (const unsigned char *)call->weights_data;
  for (size_t i = 0; i < sizeof call->ids_data; ++i) assert_int_equal(ids[i], 0x77);
  for (size_t i = 0; i < sizeof call->weights_data; ++i) assert_int_equal(weights[i], 0x77);
  assert_ok(moert_context_status(context)); // bad arguments leave no trace
}

static void right_call(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  assert_ok(route(&call));
  const int32_t expected[TOKENS][TOP_K] = {{3, 2}, {0, 1}, {3, 1}};
  assert_memory_equal(call.ids_data, expected, sizeof expected);
  make_call(&call);
  call.args.bias = &call.bias;
  assert_ok(route(&call));
  assert_memory_equal(call.ids_data, expected, sizeof expected);
}

//===--- structs, context, kernel -------------------------------------------------------------------===//

static void structs(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  assert_fails(moert_moe_route(&call.params, &call.args, NULL, NULL), MOERT_ERROR_NULL_POINTER, "moe.route: context is NULL");
  assert_fails(moert_moe_route(NULL, &call.args, NULL, context), MOERT_ERROR_NULL_POINTER, "moe.route: params is NULL");
  assert_fails(moert_moe_route(&call.params, NULL, NULL, context), MOERT_ERROR_NULL_POINTER, "moe.route: args is NULL");
  assert_fails(moert_moe_route(&call.params, &call.args, (moert_kernel *)(void *)&call, context), MOERT_ERROR_UNSUPPORTED,
               "moe.route: kernel is set, must be NULL: the host backend has no kernels to choose from");
  moert_context_destroy(context); // the one error of these that is not a bad argument stays in its context
  assert_ok(moert_context_create(comm, NULL, &context));
  _Static_assert(sizeof call.params == 72 && sizeof call.args == 40, "sizes in the texts below");
  call.params.struct_size = 64;
  assert_refused(&call, MOERT_ERROR_STRUCT_SIZE, "params: struct_size is 64, must be 72");
  call.params.struct_size = 80;
  assert_refused(&call, MOERT_ERROR_STRUCT_SIZE, "params: struct_size is 80, must be 72");
  make_call(&call);
  call.args.struct_size = 0;
  assert_refused(&call, MOERT_ERROR_STRUCT_SIZE, "args: struct_size is 0, must be 40");
}

//===--- parameters ---------------------------------------------------------------------------------===//

static void parameters(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.params.top_k = 33;
  assert_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'top_k' is 33, must be in [1, 32]");
  call.params.top_k = 0;
  assert_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'top_k' is 0, must be in [1, 32]");
  make_call(&call);
  call.params.n_experts = INT64_MIN;
  assert_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'n_experts' is -9223372036854775808, must be in [1, 4096]");
  make_call(&call);
  call.params.score = 2;
  assert_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'score' is 2, must be in [0, 1]");
  make_call(&call);
  call.params.renormalize = -1;
  assert_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'renormalize' is -1, must be in [0, 1]");
  make_call(&call);
  call.params.routed_scaling_factor = (double)INFINITY;
  assert_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'routed_scaling_factor' is inf, must be finite");
  call.params.routed_scaling_factor = (double)NAN;
  assert_int_equal(route(&call), MOERT_ERROR_INVALID_ARGUMENT);
}

//===--- operands -----------------------------------------------------------------------------------===//

static void presence_and_shape(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.args.ids = NULL;
  assert_refused(&call, MOERT_ERROR_NULL_POINTER, "operand 'ids' is NULL");
  make_call(&call);
  call.logits.ndim = 3;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'logits': rank 3, must be 2");
  make_call(&call);
  call.weights.ndim = -1;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'weights': rank -1, must be 2");
  make_call(&call);
  call.logits.shape = NULL;
  assert_refused(&call, MOERT_ERROR_NULL_POINTER, "operand 'logits': shape is NULL");
  make_call(&call);
  call.logits_shape[1] = -4;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'logits': dimension 1 is -4, must be at least 0");
  make_call(&call);
  call.logits_shape[0] = call.logits_shape[1] = INT64_C(1) << 32;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'logits': shape [4294967296, 4294967296] has more bytes than 64 bits can count");
  call.logits_shape[1] = INT64_C(1) << 30;
  assert_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'logits': shape [4294967296, 1073741824] has more bytes than 64 bits can count");
}

static void element_types(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.ids.dtype = (moert_dtype){MOERT_CODE_INT, 64, 1};
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'ids': element type i64, must be i32");
  call.ids.dtype = (moert_dtype){MOERT_CODE_UINT, 32, 1};
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'ids': element type ui32, must be i32");
  make_call(&call);
  call.logits.dtype = (moert_dtype){MOERT_CODE_FLOAT, 64, 1};
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'logits': element type f64, must be bf16, f16 or f32");
  call.logits.dtype = (moert_dtype){77, 4, 2};
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'logits': element type (code 77, 4 bits, 2 lanes), must be bf16, f16 or f32");
  call.logits.dtype = (moert_dtype){MOERT_CODE_FLOAT, 32, 2};
  assert_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'logits': element type (code 2, 32 bits, 2 lanes), must be bf16, f16 or f32");
}

static void memory(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.logits.device.type = MOERT_DEVICE_CUDA;
  assert_refused(&call, MOERT_ERROR_INVALID_MEMORY, "operand 'logits': device type 2, must be 1 (CPU): the host backend reads host memory");
  make_call(&call);
  call.weights.data = NULL;
  assert_refused(&call, MOERT_ERROR_NULL_POINTER, "operand 'weights': data is NULL, but the tensor has 6 elements");
  make_call(&call);
  call.logits.byte_offset = 2;
  assert_refused(&call, MOERT_ERROR_MISALIGNED, "operand 'logits': data lies 2 bytes past a multiple of 4, the size of its element type f32");
  call.logits.byte_offset = UINT64_MAX - 3;
  assert_refused(&call, MOERT_ERROR_INVALID_MEMORY, "operand 'logits': byte_offset 18446744073709551612 leads beyond the end of the address space");
  make_call(&call);
  call.logits.strides = call.strides;
  call.strides[0] = 8;
  call.strides[1] = 1;
  assert_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS, "operand 'logits' is not contiguous (shape [3, 4], strides [8, 1])");
  call.strides[0] = EXPERTS;
  assert_ok(route(&call));
}

static void overlaps(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.weights.data = call.logits_data[2];
  assert_int_equal(sizeof call.logits_data[2] < sizeof call.weights_data, true);
  call.weights.data = call.logits_data;
  assert_refused(&call, MOERT_ERROR_OVERLAP, "operand 'weights' overlaps operand 'logits'; give it memory of its own");
  make_call(&call);
  call.ids.data = call.weights_data[1];
  call.ids_shape[0] = 1;
  assert_refused(&call, MOERT_ERROR_OVERLAP, "operand 'ids' overlaps operand 'weights'; give it memory of its own");
}

// Data may be NULL where there is none.
static void no_tokens(void **state) {
  (void)state;
  route_call call;
  make_call(&call);
  call.logits_shape[0] = call.ids_shape[0] = call.weights_shape[0] = 0;
  call.logits.data = call.ids.data = call.weights.data = NULL;
  assert_ok(route(&call));
  call.logits.data = call.logits_data;
  call.logits.byte_offset = UINT64_MAX; // nor need it be an address
  assert_ok(route(&call));
  assert_unwritten(&call);
}

// Sizes of tensors without elements are no sizes of anything in memory.
static void sizes_without_elements(void **state) {
  (void)state;
  int64_t rows_shape[] = {0, INT64_C(1) << 62}, offsets_shape[] = {2}, weights_shape[] = {1, 8, INT64_C(1) << 62}, ids_shape[] = {3},
          out_shape[] = {3, 8};
  int32_t offsets_data[] = {0, 0}, ids_data[] = {0, 0, 0};
  float out_data[3][8];
  moert_tensor rows = tensor_of(NULL, 2, rows_shape, MOERT_CODE_FLOAT, 32), offsets = tensor_of(offsets_data, 1, offsets_shape, MOERT_CODE_INT, 32);
  moert_tensor weights = tensor_of(NULL, 3, weights_shape, MOERT_CODE_FLOAT, 32), ids = tensor_of(ids_data, 1, ids_shape, MOERT_CODE_INT, 32);
  moert_tensor out = tensor_of(out_data, 2, out_shape, MOERT_CODE_FLOAT, 32);
  moert_moe_grouped_matmul_params params = MOERT_MOE_GROUPED_MATMUL_PARAMS_INIT;
  moert_moe_grouped_matmul_args args = {sizeof args, &rows, &offsets, &weights, NULL, NULL, NULL, &ids, NULL, &out};
  weights_shape[0] = 0, offsets_shape[0] = 1;
  assert_ok(moert_moe_grouped_matmul(&params, &args, NULL, context));
  weights_shape[0] = 1, weights_shape[1] = out_shape[1] = 0, offsets_shape[0] = 2;
  assert_ok(moert_moe_grouped_matmul(&params, &args, NULL, context));
  weights_shape[0] = INT64_MAX;
  assert_fails(moert_moe_grouped_matmul(&params, &args, NULL, context), MOERT_ERROR_INVALID_SHAPE,
               "moe.grouped_matmul: operand 'weights' dimension 0 is 9223372036854775807, must be less");
}

//===--- rows that lie apart ------------------------------------------------------------------------===//

enum { ROWS = 3, COLUMNS = 2, STRIDE = 5 };

typedef struct quantize_call {
  float input_data[ROWS * STRIDE], scales_data[ROWS];
  uint8_t values_data[ROWS][COLUMNS];
  int64_t input_shape[2], strides[2], values_shape[2], scales_shape[2];
  moert_tensor input, values, scales;
  moert_moe_quantize_params params;
  moert_moe_quantize_args args;
} quantize_call;

static void make_quantize(quantize_call *call) {
  *call = (quantize_call){.input_data = {448, 1, 99, 99, 99, -2, 448, 99, 99, 99, 448, 0.5f, 99, 99, 99},
                          .input_shape = {ROWS, COLUMNS},
                          .strides = {STRIDE, 1},
                          .values_shape = {ROWS, COLUMNS},
                          .scales_shape = {ROWS, 1},
                          .params = MOERT_MOE_QUANTIZE_PARAMS_INIT,
                          .args = MOERT_MOE_QUANTIZE_ARGS_INIT};
  memset(call->values_data, 0x77, sizeof call->values_data);
  memset(call->scales_data, 0x77, sizeof call->scales_data);
  call->input = tensor_of(call->input_data, 2, call->input_shape, MOERT_CODE_FLOAT, 32);
  call->input.strides = call->strides;
  call->values = tensor_of(call->values_data, 2, call->values_shape, MOERT_CODE_F8E4M3FN, 8);
  call->scales = tensor_of(call->scales_data, 2, call->scales_shape, MOERT_CODE_FLOAT, 32);
  call->params.format = MOERT_MOE_QUANTIZE_FORMAT_FP8_TOKEN;
  call->args.input = &call->input;
  call->args.values = &call->values;
  call->args.scales = &call->scales;
}

static moert_status quantize(quantize_call *call) { return moert_moe_quantize(&call->params, &call->args, NULL, context); }

static void assert_quantize_refused(quantize_call *call, moert_status status, const char *text) {
  assert_int_equal(quantize(call), status);
  assert_string_equal(moert_last_error(), text);
  for (size_t i = 0; i < sizeof call->values_data; ++i) assert_int_equal(call->values_data[i / COLUMNS][i % COLUMNS], 0x77);
  for (size_t i = 0; i < sizeof call->scales_data; ++i) assert_int_equal(((unsigned char *)call->scales_data)[i], 0x77);
}

static void rows_apart(void **state) {
  (void)state;
  static const uint8_t expected[ROWS][COLUMNS] = {{0x7e, 0x38}, {0xc0, 0x7e}, {0x7e, 0x30}};
  quantize_call call;
  make_quantize(&call);
  assert_ok(quantize(&call));
  assert_memory_equal(call.values_data, expected, sizeof expected);
  make_quantize(&call);
  call.input_shape[0] = call.values_shape[0] = call.scales_shape[0] = 1; // nobody steps from row to row
  call.strides[0] = -1;
  assert_ok(quantize(&call));
  assert_memory_equal(call.values_data, expected, COLUMNS);
  make_quantize(&call);
  call.input_shape[0] = call.values_shape[0] = call.scales_shape[0] = 0;
  call.strides[0] = call.strides[1] = -1;
  assert_ok(quantize(&call));
}

static void rows_in_disorder(void **state) {
  (void)state;
  quantize_call call;
  make_quantize(&call);
  call.strides[0] = 1;
  assert_quantize_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS,
                          "moe.quantize: operand 'input' does not consist of contiguous rows (shape [3, 2], strides [1, 1]): strides must be "
                          "[2 or more, 1]");
  call.strides[0] = 0;
  assert_quantize_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS,
                          "moe.quantize: operand 'input' does not consist of contiguous rows (shape [3, 2], strides [0, 1]): strides must be "
                          "[2 or more, 1]");
  call.strides[0] = STRIDE, call.strides[1] = 2;
  assert_quantize_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS,
                          "moe.quantize: operand 'input' does not consist of contiguous rows (shape [3, 2], strides [5, 2]): strides must be "
                          "[2 or more, 1]");
  call.strides[0] = -STRIDE, call.strides[1] = 1;
  assert_quantize_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS,
                          "moe.quantize: operand 'input' does not consist of contiguous rows (shape [3, 2], strides [-5, 1]): strides must be "
                          "[2 or more, 1]");
  make_quantize(&call); // no other operand may have rows apart
  call.values.strides = call.strides;
  assert_quantize_refused(&call, MOERT_ERROR_NOT_CONTIGUOUS, "moe.quantize: operand 'values' is not contiguous (shape [3, 2], strides [5, 1])");
}

static void rows_too_far_apart(void **state) {
  (void)state;
  quantize_call call;
  make_quantize(&call);
  call.strides[0] = INT64_MAX;
  assert_quantize_refused(&call, MOERT_ERROR_INVALID_MEMORY,
                          "moe.quantize: operand 'input': its rows lead beyond the end of the address space (shape [3, 2], strides "
                          "[9223372036854775807, 1], byte_offset 0)");
  call.strides[0] = INT64_MAX / 2; // counts of elements have 64-bit values, those of bytes have none
  assert_quantize_refused(&call, MOERT_ERROR_INVALID_MEMORY,
                          "moe.quantize: operand 'input': its rows lead beyond the end of the address space (shape [3, 2], strides "
                          "[4611686018427387903, 1], byte_offset 0)");
  call.strides[0] = INT64_C(1) << 59; // 2^62 bytes, from the end of the address space
  call.input.byte_offset = UINT64_MAX - (UINT64_C(1) << 62) - (uintptr_t)call.input_data + 1;
  char text[256];
  snprintf(text, sizeof text,
           "moe.quantize: operand 'input': its rows lead beyond the end of the address space (shape [3, 2], strides [576460752303423488, 1], "
           "byte_offset %" PRIu64 ")",
           call.input.byte_offset);
  assert_quantize_refused(&call, MOERT_ERROR_INVALID_MEMORY, text);
}

// What lies between the rows counts as theirs.
static void overlap_of_rows_apart(void **state) {
  (void)state;
  quantize_call call;
  make_quantize(&call);
  call.scales.data = &call.input_data[COLUMNS];
  assert_quantize_refused(&call, MOERT_ERROR_OVERLAP, "moe.quantize: operand 'scales' overlaps operand 'input'; give it memory of its own");
  call.scales.data = &call.input_data[(ROWS - 1) * STRIDE + COLUMNS]; // behind the last row
  assert_ok(quantize(&call));
}

//===--- lists and symmetric memory -----------------------------------------------------------------===//

typedef struct dispatch_call {
  int32_t ids_data[1][1];
  float rows_data[2][8], recv_data[2][8];
  int8_t slab[64];
  int64_t info_data[MOERT_METAINFO_FIELDS], ids_shape[2], row_shape[2], recv_shape[3], slab_shape[1], info_shape[1], offset;
  moert_tensor ids, rows[2], recv[2], workspace, metainfo;
  moert_moe_dispatch_params params;
  moert_moe_dispatch_args args;
} dispatch_call;

static void make_dispatch(dispatch_call *call) {
  *call = (dispatch_call){.ids_shape = {1, 1},
                          .row_shape = {1, 8},
                          .recv_shape = {1, 1, 8},
                          .slab_shape = {64},
                          .info_shape = {MOERT_METAINFO_FIELDS},
                          .params = MOERT_MOE_DISPATCH_PARAMS_INIT,
                          .args = MOERT_MOE_DISPATCH_ARGS_INIT};
  call->ids = tensor_of(call->ids_data, 2, call->ids_shape, MOERT_CODE_INT, 32);
  for (int i = 0; i < 2; ++i) {
    call->rows[i] = tensor_of(call->rows_data[i], 2, call->row_shape, MOERT_CODE_FLOAT, 32);
    call->recv[i] = tensor_of(call->recv_data[i], 3, call->recv_shape, MOERT_CODE_FLOAT, 32);
  }
  call->workspace = tensor_of(call->slab, 1, call->slab_shape, MOERT_CODE_INT, 8);
  call->metainfo = tensor_of(call->info_data, 1, call->info_shape, MOERT_CODE_INT, 64);
  call->params.top_k = call->params.n_experts = 1;
  call->args.topk_ids = &call->ids;
  call->args.num_payloads = call->args.num_recv = 2;
  call->args.payloads = call->rows;
  call->args.recv = call->recv;
  call->args.workspace = &call->workspace;
  call->args.metainfo = &call->metainfo;
  call->args.runtime_max_tokens_per_rank = 1;
  call->args.combine_payload_offset = &call->offset;
}

static moert_status dispatch(dispatch_call *call) { return moert_moe_dispatch(&call->params, &call->args, NULL, context); }

static void lists(void **state) {
  (void)state;
  dispatch_call call;
  make_dispatch(&call);
  call.args.num_payloads = -1;
  assert_fails(dispatch(&call), MOERT_ERROR_INVALID_ARGUMENT, "moe.dispatch: operand 'payloads': -1 tensors, must be in [0, 32]");
  call.args.num_payloads = INT64_C(1) << 40;
  assert_fails(dispatch(&call), MOERT_ERROR_INVALID_ARGUMENT, "moe.dispatch: operand 'payloads': 1099511627776 tensors, must be in [0, 32]");
  make_dispatch(&call);
  call.args.payloads = NULL;
  assert_fails(dispatch(&call), MOERT_ERROR_NULL_POINTER, "moe.dispatch: operand 'payloads' is NULL");
  make_dispatch(&call);
  call.rows[1].ndim = 0;
  assert_fails(dispatch(&call), MOERT_ERROR_INVALID_SHAPE, "moe.dispatch: operand 'payloads[1]': rank 0, must be at least 1");
  make_dispatch(&call);
  call.rows[1].dtype = (moert_dtype){MOERT_CODE_INT, 4, 1};
  assert_fails(dispatch(&call), MOERT_ERROR_INVALID_DTYPE,
               "moe.dispatch: operand 'payloads[1]': element type (code 0, 4 bits, 1 lanes), must be of whole bytes");
}

static void symmetric_memory(void **state) {
  (void)state;
  dispatch_call call;
  make_dispatch(&call);
  assert_fails(
      dispatch(&call), MOERT_ERROR_INVALID_MEMORY,
      "moe.dispatch: operand 'workspace': its 64 bytes do not lie in one block of this communicator's symmetric memory (moert_symmetric_alloc)");
  void *slab;
  assert_ok(moert_symmetric_alloc(comm, 32, &slab));
  call.workspace.data = slab;
  assert_fails(
      dispatch(&call), MOERT_ERROR_INVALID_MEMORY,
      "moe.dispatch: operand 'workspace': its 64 bytes do not lie in one block of this communicator's symmetric memory (moert_symmetric_alloc)");
  call.slab_shape[0] = 32;
  call.recv[1].data = call.rows_data[0];
  assert_fails(dispatch(&call), MOERT_ERROR_OVERLAP, "moe.dispatch: operand 'recv[1]' overlaps operand 'payloads[0]'; give it memory of its own");
  assert_ok(moert_symmetric_free(comm, slab));
}

static void signless_and_unsigned(void **state) {
  (void)state;
  dispatch_call call;
  int32_t counts[1];
  moert_tensor recv_counts = tensor_of(counts, 1, (int64_t[]){1}, MOERT_CODE_UINT, 32);
  make_dispatch(&call);
  call.args.recv_counts = &recv_counts; // after the workspace, whose memory is wrong: its own type must have been accepted
  void *slab;
  assert_ok(moert_symmetric_alloc(comm, 64, &slab));
  call.workspace.data = slab;
  moert_status as_unsigned = dispatch(&call);
  recv_counts.dtype.code = MOERT_CODE_INT;
  assert_int_equal(dispatch(&call), as_unsigned); // the slab is not initialised: both get as far as that
  assert_int_not_equal(as_unsigned, MOERT_ERROR_INVALID_DTYPE);
  recv_counts.dtype.code = MOERT_CODE_FLOAT;
  assert_fails(dispatch(&call), MOERT_ERROR_INVALID_DTYPE, "moe.dispatch: operand 'recv_counts': element type f32, must be i32 or ui32");
  assert_ok(moert_symmetric_free(comm, slab));
}

//===--- a communicator in error --------------------------------------------------------------------===//

static void standing_error(void **state) {
  (void)state;
  moert_comm *own;
  moert_context *other;
  dispatch_call call;
  route_call local;
  make_dispatch(&call);
  make_call(&local);
  assert_ok(moert_comm_create_threads(1, NULL, &own));
  assert_ok(moert_context_create(own, NULL, &other));
  moert_comm_report(own, MOERT_ERROR_PEER_TIMEOUT);
  assert_fails(
      moert_moe_dispatch(&call.params, &call.args, NULL, other), MOERT_ERROR_PEER_TIMEOUT,
      "moe.dispatch: the communicator stands in error since an earlier call: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the "
      "deadline)");
  assert_ok(moert_moe_route(&local.params, &local.args, NULL, other)); // local ops go on
  moert_context_destroy(other);
  moert_comm_destroy(own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(right_call),
      cmocka_unit_test(structs),
      cmocka_unit_test(parameters),
      cmocka_unit_test(presence_and_shape),
      cmocka_unit_test(element_types),
      cmocka_unit_test(memory),
      cmocka_unit_test(overlaps),
      cmocka_unit_test(no_tokens),
      cmocka_unit_test(sizes_without_elements),
      cmocka_unit_test(rows_apart),
      cmocka_unit_test(rows_in_disorder),
      cmocka_unit_test(rows_too_far_apart),
      cmocka_unit_test(overlap_of_rows_apart),
      cmocka_unit_test(lists),
      cmocka_unit_test(symmetric_memory),
      cmocka_unit_test(signless_and_unsigned),
      cmocka_unit_test(standing_error),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

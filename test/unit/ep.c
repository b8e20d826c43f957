//===- ep.c - the ops of the dialect `ep`: what they refuse, and what they leave behind ---------------===//

#include "support.h"

#include <moert/ep.h>
#include <moert/ops.h>

enum { HIDDEN = 8, TOP_K = 2, EXPERTS = 4, MAX_TOKENS = 8, TOKENS = 3, ROWS = 17, WORDS = 10 * EXPERTS + 320 };

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

static moert_tensor tensor_of(void *data, int32_t ndim, int64_t *shape, uint8_t code, uint8_t bits) {
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, ndim, {code, bits, 1}, shape, NULL, 0};
}

//===--- a layer whose calls are right --------------------------------------------------------------===//

// Each test spoils one thing of it.
typedef struct layer {
  int32_t counters_data[2][WORDS], rank_data[1];
  uint64_t pointers_data[MOERT_EP_GROUPS][MOERT_EP_BUFFERS];
  int64_t words[2][1], pointers_shape[2], rank_shape[1];
  moert_tensor counters[2], pointers, my_rank;
  moert_ep_init_params init_params;
  moert_ep_init_args init_args;

  uint16_t tokens_data[TOKENS][HIDDEN], rows_data[ROWS][HIDDEN], out_data[TOKENS][HIDDEN];
  int32_t ids_data[TOKENS][TOP_K], offsets_data[EXPERTS + 2], experts_data[EXPERTS + 1], sources_data[ROWS][2];
  float weights_data[TOKENS][TOP_K];
  int64_t tokens_shape[2], rows_shape[2], out_shape[2], ids_shape[2], offsets_shape[1], experts_shape[1], sources_shape[2], weights_shape[2],
      tables_shape[MOERT_EP_GROUPS][MOERT_EP_BUFFERS][1];
  moert_tensor tokens, rows, out, ids, offsets, experts, sources, weights, tables[MOERT_EP_GROUPS][MOERT_EP_BUFFERS];
  moert_ep_dispatch_params dispatch_params;
  moert_ep_dispatch_args dispatch_args;
  moert_ep_combine_skip_a2a_params combine_params;
  moert_ep_combine_skip_a2a_args combine_args;
} layer;

#define SET_GEOMETRY(params)                                                                                                                         \
  (params).hidden_size = HIDDEN, (params).top_k = TOP_K, (params).n_experts = EXPERTS, (params).max_token_per_rank = MAX_TOKENS

static void make_init(layer *call) {
  for (int i = 0; i < 2; ++i) {
    call->words[i][0] = WORDS;
    call->counters[i] = tensor_of(call->counters_data[i], 1, call->words[i], MOERT_CODE_INT, 32);
  }
  memset(call->counters_data, 0x77, sizeof call->counters_data);
  memset(call->pointers_data, 0x77, sizeof call->pointers_data);
  call->rank_data[0] = -7;
  call->pointers_shape[0] = MOERT_EP_GROUPS, call->pointers_shape[1] = MOERT_EP_BUFFERS, call->rank_shape[0] = 1;
  call->pointers = tensor_of(call->pointers_data, 2, call->pointers_shape, MOERT_CODE_INT, 64);
  call->my_rank = tensor_of(call->rank_data, 1, call->rank_shape, MOERT_CODE_INT, 32);
  call->init_params = (moert_ep_init_params)MOERT_EP_INIT_PARAMS_INIT;
  call->init_args = (moert_ep_init_args)MOERT_EP_INIT_ARGS_INIT;
  SET_GEOMETRY(call->init_params);
  call->init_args.atomic_counters_0 = &call->counters[0];
  call->init_args.atomic_counters_1 = &call->counters[1];
  call->init_args.dev_ptrs = &call->pointers;
  call->init_args.my_rank = &call->my_rank;
}

static void make_tensors(layer *call) {
  static const int32_t ids[TOKENS][TOP_K] = {{1, 3}, {-1, 1}, {0, 7}};
  memcpy(call->ids_data, ids, sizeof ids);
  memset(call->rows_data, 0x77, sizeof call->rows_data);
  memset(call->out_data, 0x77, sizeof call->out_data);
  memset(call->offsets_data, 0x77, sizeof call->offsets_data);
  memset(call->experts_data, 0x77, sizeof call->experts_data);
  memset(call->sources_data, 0x77, sizeof call->sources_data);
  for (int t = 0; t < TOKENS; ++t) {
    for (int h = 0; h < HIDDEN; ++h) call->tokens_data[t][h] = (uint16_t)(0x3f80 + 16 * t + h);
    for (int k = 0; k < TOP_K; ++k) call->weights_data[t][k] = 0.5f;
  }
  const int64_t sizes[][2] = {{TOKENS, HIDDEN}, {ROWS, HIDDEN}, {TOKENS, HIDDEN}, {TOKENS, TOP_K}, {ROWS, 2}, {TOKENS, TOP_K}};
  int64_t *const shapes[] = {call->tokens_shape, call->rows_shape, call->out_shape, call->ids_shape, call->sources_shape, call->weights_shape};
  for (size_t i = 0; i < COUNT(shapes); ++i) memcpy(shapes[i], sizes[i], sizeof sizes[i]);
  call->offsets_shape[0] = EXPERTS + 1, call->experts_shape[0] = EXPERTS;
  call->tokens = tensor_of(call->tokens_data, 2, call->tokens_shape, MOERT_CODE_BFLOAT, 16);
  call->rows = tensor_of(call->rows_data, 2, call->rows_shape, MOERT_CODE_BFLOAT, 16);
  call->out = tensor_of(call->out_data, 2, call->out_shape, MOERT_CODE_BFLOAT, 16);
  call->ids = tensor_of(call->ids_data, 2, call->ids_shape, MOERT_CODE_INT, 32);
  call->offsets = tensor_of(call->offsets_data, 1, call->offsets_shape, MOERT_CODE_UINT, 32);
  call->experts = tensor_of(call->experts_data, 1, call->experts_shape, MOERT_CODE_INT, 32);
  call->sources = tensor_of(call->sources_data, 2, call->sources_shape, MOERT_CODE_INT, 32);
  call->weights = tensor_of(call->weights_data, 2, call->weights_shape, MOERT_CODE_FLOAT, 32);
  for (int group = 0; group < MOERT_EP_GROUPS; ++group)
    for (int buffer = 0; buffer < MOERT_EP_BUFFERS; ++buffer) {
      call->tables_shape[group][buffer][0] = 1;
      call->tables[group][buffer] = tensor_of(&call->pointers_data[group][buffer], 1, call->tables_shape[group][buffer], MOERT_CODE_UINT, 64);
    }
}

static void make_calls(layer *call) {
  call->dispatch_params = (moert_ep_dispatch_params)MOERT_EP_DISPATCH_PARAMS_INIT;
  SET_GEOMETRY(call->dispatch_params);
  call->dispatch_params.skip_a2a = 1;
  call->combine_params = (moert_ep_combine_skip_a2a_params)MOERT_EP_COMBINE_SKIP_A2A_PARAMS_INIT;
  SET_GEOMETRY(call->combine_params);
  call->combine_params.allreduce_world_size = 1;
  call->dispatch_args = (moert_ep_dispatch_args){sizeof(moert_ep_dispatch_args),
                                                 &call->rows,
                                                 &call->offsets,
                                                 &call->experts,
                                                 &call->sources,
                                                 &call->counters[0],
                                                 &call->tokens,
                                                 &call->ids,
                                                 &call->tables[MOERT_EP_DISPATCH][MOERT_EP_SEND],
                                                 &call->tables[MOERT_EP_DISPATCH][MOERT_EP_RECV],
                                                 &call->tables[MOERT_EP_DISPATCH][MOERT_EP_RECV_COUNT]};
  call->combine_args = (moert_ep_combine_skip_a2a_args){sizeof(moert_ep_combine_skip_a2a_args),
                                                        &call->out,
                                                        &call->counters[0],
                                                        &call->rows,
                                                        &call->sources,
                                                        &call->tables[MOERT_EP_COMBINE][MOERT_EP_SEND],
                                                        &call->tables[MOERT_EP_COMBINE][MOERT_EP_RECV],
                                                        &call->tables[MOERT_EP_COMBINE][MOERT_EP_RECV_COUNT],
                                                        &call->weights,
                                                        &call->ids};
}

static moert_status init(layer *call) { return moert_ep_init(&call->init_params, &call->init_args, NULL, context); }
static moert_status dispatch(layer *call) { return moert_ep_dispatch(&call->dispatch_params, &call->dispatch_args, NULL, context); }
static moert_status combine(layer *call) { return moert_ep_combine_skip_a2a(&call->combine_params, &call->combine_args, NULL, context); }

static void make_layer(layer *call) {
  memset(call, 0, sizeof *call);
  make_init(call);
  make_tensors(call);
  make_calls(call);
  assert_ok(init(call));
}

static void make_dispatched(layer *call) {
  make_layer(call);
  assert_ok(dispatch(call));
}

static void assert_bytes(const void *memory, size_t size, unsigned char byte) {
  for (size_t i = 0; i < size; ++i) assert_int_equal(((const unsigned char *)memory)[i], byte);
}

//===--- ep.init ------------------------------------------------------------------------------------===//

#define assert_init_refused(call, status, text)                                                                                                      \
  do {                                                                                                                                               \
    assert_fails(init(call), status, "ep.init: " text);                                                                                              \
    assert_bytes((call)->counters_data, sizeof(call)->counters_data, 0x77);                                                                          \
    assert_bytes((call)->pointers_data, sizeof(call)->pointers_data, 0x77);                                                                          \
    assert_int_equal((call)->rank_data[0], -7);                                                                                                      \
    memset(call, 0, sizeof *(call));                                                                                                                 \
    make_init(call);                                                                                                                                 \
  } while (0)

static void init_refuses(void **state) {
  (void)state;
  layer call = {0};
  make_init(&call);
  call.init_params.dispatch_fmt_str = MOERT_EP_INIT_DISPATCH_FMT_STR_MXFP4;
  assert_init_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'dispatch_fmt_str' is MXFP4, which is unsupported: this version has BF16");
  call.init_params.dispatch_fmt_str = MOERT_EP_INIT_DISPATCH_FMT_STR_BLOCK_SCALED_NV;
  assert_init_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'dispatch_fmt_str' is BLOCK_SCALED_NV, which is unsupported: this version has BF16");
  call.init_params.dispatch_fmt_str = 5;
  assert_init_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'dispatch_fmt_str' is 5, must be in [0, 4]");
  call.init_params.dispatch_dtype = MOERT_EP_INIT_DISPATCH_DTYPE_F8E4M3FN;
  assert_init_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'dispatch_dtype' must be bf16, which is what dispatch_fmt_str BF16 sends");
  call.init_params.n_gpus_per_node = 8;
  assert_init_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'n_gpus_per_node' is 8, must be 1: the buffers of an all-to-all are unsupported");
  call.init_params.n_nodes = 2;
  assert_init_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'n_nodes' is 2, must be 1: the buffers of an all-to-all are unsupported");
  call.init_params.hidden_size = 1048577;
  assert_init_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'hidden_size' is 1048577, must be in [1, 1048576]");
  call.words[0][0] = WORDS - 1;
  assert_init_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'atomic_counters_0' dimension 0 is 359, must equal 10 * n_experts + 320 = 360");
  call.words[1][0] = 12 * EXPERTS + 12; // what MAX has in its first version
  assert_init_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'atomic_counters_1' dimension 0 is 60, must equal 10 * n_experts + 320 = 360");
  call.pointers_shape[0] = 1;
  assert_init_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'dev_ptrs' dimension 0 is 1, must equal the number of groups = 2");
  call.pointers_shape[1] = 2;
  assert_init_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'dev_ptrs' dimension 1 is 2, must equal the number of buffers of a group = 3");
  call.rank_shape[0] = 0;
  assert_init_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'my_rank' dimension 0 is 0, must equal the number of ranks that this one is = 1");
  call.pointers.dtype.code = MOERT_CODE_FLOAT;
  assert_init_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'dev_ptrs': element type f64, must be i64 or ui64");
}

static void init_writes(void **state) {
  (void)state;
  layer call, again;
  make_layer(&call);
  assert_bytes(call.counters_data, sizeof call.counters_data, 0);
  assert_int_equal(call.rank_data[0], 0);
  assert_int_equal(call.pointers_data[MOERT_EP_COMBINE][MOERT_EP_SEND], 0); // between nodes only
  uint64_t *counts[] = {(uint64_t *)call.pointers_data[MOERT_EP_DISPATCH][MOERT_EP_RECV_COUNT],
                        (uint64_t *)call.pointers_data[MOERT_EP_COMBINE][MOERT_EP_RECV_COUNT]};
  for (size_t i = 0; i < COUNT(counts); ++i)
    for (int expert = 0; expert < EXPERTS; ++expert) assert_true(counts[i][expert] == UINT64_MAX);
  make_layer(&again); // other buffers, and the first keep their memory
  assert_true(again.pointers_data[MOERT_EP_DISPATCH][MOERT_EP_RECV] != call.pointers_data[MOERT_EP_DISPATCH][MOERT_EP_RECV]);
  memset((void *)call.pointers_data[MOERT_EP_DISPATCH][MOERT_EP_RECV], 1, EXPERTS * MAX_TOKENS * 48);
  assert_ok(dispatch(&call));
  assert_ok(dispatch(&again));
}

static void sizes(void **state) {
  (void)state;
  moert_ep_info info = {7168, 8, 48, 4096, 2};
  moert_ep_buffers buffers = moert_ep_lay_out_buffers(&info);
  assert_int_equal(buffers.message, 14368);
  assert_int_equal(buffers.bytes[MOERT_EP_DISPATCH][MOERT_EP_RECV], INT64_C(48) * 4096 * 14368);
  assert_int_equal(buffers.bytes[MOERT_EP_COMBINE][MOERT_EP_RECV], INT64_C(8) * 4096 * 7168 * 2);
  moert_ep_info most = {1048576, 32, 65536, 16777216, 4};
  buffers = moert_ep_lay_out_buffers(&most);
  for (int group = 0; group < MOERT_EP_GROUPS; ++group)
    for (int buffer = 0; buffer < MOERT_EP_BUFFERS; ++buffer) assert_true(buffers.bytes[group][buffer] >= 0);
  moert_ep_counters counters = moert_ep_lay_out_counters(48);
  assert_int_equal(counters.words, 800);
  assert_true(counters.segments + 2 * 48 <= counters.round && counters.round + 3 <= counters.words);
}

static moert_status init_unevenly(rank_run *run) {
  layer *call = calloc(1, sizeof *call);
  moert_context *own;
  moert_status status = moert_context_create(run->comm, NULL, &own);
  if (!call || status) return free(call), MOERT_ERROR_OUT_OF_MEMORY;
  make_init(call);
  call->init_params.hidden_size = HIDDEN + 8 * run->rank;
  status = moert_ep_init(&call->init_params, &call->init_args, NULL, own);
  if (call->rank_data[0] != -7) status = MOERT_OK; // it has written
  moert_context_destroy(own);
  free(call);
  return status;
}

static void ranks_disagree(void **state) {
  (void)state;
  enum { RANKS = 2 };
  moert_comm *comms[RANKS];
  rank_run runs[RANKS];
  assert_ok(moert_comm_create_threads(RANKS, NULL, comms));
  run_ranks(runs, comms, RANKS, init_unevenly, NULL);
  for (int r = 0; r < RANKS; ++r) {
    assert_string_equal(moert_status_name(runs[r].status), "MOERT_ERROR_INVALID_ARGUMENT");
    assert_string_equal(runs[r].error, "ep.init: symmetric memory must have one size: rank 0 asked for 2816, but rank 1 for 3584");
  }
  destroy_ranks(comms, RANKS);
}

static void init_needs_all(void **state) {
  (void)state;
  moert_comm *comms[2];
  moert_context *alone;
  layer call = {0};
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 50;
  assert_ok(moert_comm_create_threads(2, NULL, comms));
  assert_ok(moert_context_create(comms[1], &options, &alone));
  make_init(&call);
  assert_fails(moert_ep_init(&call.init_params, &call.init_args, NULL, alone), MOERT_ERROR_PEER_TIMEOUT,
               "ep.init: rank 1 waited 50 ms for rank 0 (at a barrier, epoch 1)");
  assert_int_equal(call.rank_data[0], -7);
  moert_context_destroy(alone);
  destroy_ranks(comms, 2);
}

//===--- ep.dispatch --------------------------------------------------------------------------------===//

// The call fails with this text, and has written nothing; the layer is made anew.
#define assert_dispatch_refused(call, status, text)                                                                                                  \
  do {                                                                                                                                               \
    int32_t before[WORDS];                                                                                                                           \
    memcpy(before, (call)->counters_data[0], sizeof before);                                                                                         \
    assert_fails(dispatch(call), status, "ep.dispatch: " text);                                                                                      \
    assert_bytes((call)->rows_data, sizeof(call)->rows_data, 0x77);                                                                                  \
    assert_bytes((call)->offsets_data, sizeof(call)->offsets_data, 0x77);                                                                            \
    assert_bytes((call)->experts_data, sizeof(call)->experts_data, 0x77);                                                                            \
    assert_bytes((call)->sources_data, sizeof(call)->sources_data, 0x77);                                                                            \
    assert_memory_equal(before, (call)->counters_data[0], sizeof before);                                                                            \
    make_layer(call);                                                                                                                                \
  } while (0)

static void dispatch_refuses_parameters(void **state) {
  (void)state;
  layer call;
  make_layer(&call);
  call.dispatch_params.skip_a2a = 0;
  assert_dispatch_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'skip_a2a' is 0, must be 1: the all-to-all is unsupported");
  call.dispatch_params.n_gpus_per_node = 2;
  assert_dispatch_refused(&call, MOERT_ERROR_UNSUPPORTED,
                          "parameter 'n_gpus_per_node' is 2, must be 1: the buffers of an all-to-all are unsupported");
  call.dispatch_params.n_nodes = 2;
  assert_dispatch_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'n_nodes' is 2, must be 1: the buffers of an all-to-all are unsupported");
  call.dispatch_params.allreduce_world_size = 2;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'allreduce_world_size' is 2, must be 1, the ranks of the communicator");
  call.dispatch_params.max_token_per_rank = 2;
  assert_dispatch_refused(&call, MOERT_ERROR_CAPACITY, "operand 'topk_ids' has 3 tokens, must have at most 2 (max_token_per_rank)");
}

static void dispatch_refuses_shapes(void **state) {
  (void)state;
  layer call;
  make_layer(&call);
  call.tokens_shape[1] = HIDDEN - 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'input_tokens' dimension 1 is 7, must equal hidden_size = 8");
  call.rows_shape[1] = HIDDEN - 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'output_tokens' dimension 1 is 7, must equal hidden_size = 8");
  call.tokens_shape[0] = TOKENS - 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'input_tokens' dimension 0 is 2, must equal dimension 0 of 'topk_ids' = 3");
  call.ids_shape[1] = 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'topk_ids' dimension 1 is 1, must equal top_k = 2");
  call.offsets_shape[0] = EXPERTS;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'row_offsets' dimension 0 is 4, must equal n_experts + 1 = 5");
  call.experts_shape[0] = EXPERTS - 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'expert_ids' dimension 0 is 3, must equal n_experts = 4");
  call.dispatch_params.fused_shared_expert = 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE,
                          "operand 'row_offsets' dimension 0 is 5, must equal n_experts + 2 (with the shared expert's group) = 6");
  call.dispatch_params.fused_shared_expert = 1;
  call.offsets_shape[0] = EXPERTS + 2;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE,
                          "operand 'expert_ids' dimension 0 is 4, must equal n_experts + 1 (with the shared expert) = 5");
  call.sources_shape[0] = ROWS - 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'src_info' dimension 0 is 16, must equal dimension 0 of 'output_tokens' = 17");
  call.sources_shape[1] = 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'src_info' dimension 1 is 1, must equal the number of its columns = 2");
  call.words[0][0] = WORDS - 1;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'atomic_counters' dimension 0 is 359, must equal 10 * n_experts + 320 = 360");
  call.tables_shape[MOERT_EP_DISPATCH][MOERT_EP_RECV][0] = 0;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'recv_ptrs' dimension 0 is 0, must equal allreduce_world_size = 1");
  call.tokens.dtype.code = MOERT_CODE_FLOAT;
  assert_dispatch_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'input_tokens': element type f16, must be bf16");
}

static void dispatch_refuses_pointers(void **state) {
  (void)state;
  layer call;
  char text[512];
  uint64_t own;
  make_layer(&call);
  for (int buffer = 0; buffer < MOERT_EP_BUFFERS; ++buffer) {
    static const char *const names[] = {"send_ptrs", "recv_ptrs", "recv_count_ptrs"};
    static const int bytes[] = {MAX_TOKENS * 48, EXPERTS * MAX_TOKENS * 48, EXPERTS * 8};
    call.pointers_data[MOERT_EP_DISPATCH][buffer] = (uintptr_t)&own;
    snprintf(text, sizeof text,
             "ep.dispatch: operand '%s': entry 0 is %p, where symmetric memory of this rank does not have %d bytes: pass what ep.init wrote to "
             "'dev_ptrs' for these parameters",
             names[buffer], (void *)&own, bytes[buffer]);
    assert_fails(dispatch(&call), MOERT_ERROR_INVALID_MEMORY, text);
    make_layer(&call);
  }
  call.pointers_data[MOERT_EP_DISPATCH][MOERT_EP_SEND] = 0;
  assert_string_equal(moert_status_name(dispatch(&call)), "MOERT_ERROR_INVALID_MEMORY");
  make_layer(&call);
  call.dispatch_params.max_token_per_rank = 100 * MAX_TOKENS; // more than ep.init was told
  assert_string_equal(moert_status_name(dispatch(&call)), "MOERT_ERROR_INVALID_MEMORY");
}

static void dispatch_needs_room(void **state) {
  (void)state;
  layer call;
  make_layer(&call);
  call.rows_shape[0] = call.sources_shape[0] = 3;
  assert_dispatch_refused(&call, MOERT_ERROR_CAPACITY,
                          "4 rows are for the experts of rank 0, operand 'output_tokens' has room for 3; max_token_per_rank * min(n_experts, top_k) "
                          "rows, with a fused shared expert max_token_per_rank more, are enough if no token lists an expert twice");
  call.rows_shape[0] = call.sources_shape[0] = 4;
  assert_ok(dispatch(&call));
}

static void calls_alternate(void **state) {
  (void)state;
  layer call;
  make_layer(&call);
  assert_fails(combine(&call), MOERT_ERROR_INVALID_STATE,
               "ep.combine.skip_a2a: no dispatch on these counters waits for its combine: call ep.dispatch first");
  for (int round = 0; round < 3; ++round) {
    assert_ok(dispatch(&call));
    assert_fails(dispatch(&call), MOERT_ERROR_INVALID_STATE,
                 "ep.dispatch: the dispatch before on these counters waits for its combine: call ep.combine.skip_a2a first");
    assert_ok(combine(&call));
    assert_bytes(call.counters_data, sizeof call.counters_data, 0);
    assert_fails(combine(&call), MOERT_ERROR_INVALID_STATE,
                 "ep.combine.skip_a2a: no dispatch on these counters waits for its combine: call ep.dispatch first");
  }
  call.ids_shape[0] = call.tokens_shape[0] = call.out_shape[0] = call.weights_shape[0] = 0; // no tokens are a round too
  assert_ok(dispatch(&call));
  for (int i = 0; i <= EXPERTS; ++i) assert_int_equal(call.offsets_data[i], 0);
  assert_string_equal(moert_status_name(dispatch(&call)), "MOERT_ERROR_INVALID_STATE");
  assert_ok(combine(&call));
  assert_bytes(call.counters_data, sizeof call.counters_data, 0);
}

static void dispatch_groups(void **state) {
  (void)state;
  static const int32_t offsets[] = {0, 1, 3, 3, 4}, sources[][2] = {{2, 0}, {0, 0}, {1, 1}, {0, 1}};
  layer call;
  make_dispatched(&call);
  assert_memory_equal(call.offsets_data, offsets, sizeof offsets);
  assert_memory_equal(call.sources_data, sources, sizeof sources);
  for (int row = 0; row < 4; ++row) assert_memory_equal(call.rows_data[row], call.tokens_data[sources[row][0]], sizeof call.rows_data[row]);
  for (int expert = 0; expert < EXPERTS; ++expert) assert_int_equal(call.experts_data[expert], expert);
  assert_bytes(call.rows_data[4], sizeof call.rows_data - 4 * sizeof call.rows_data[0], 0x77); // kept
  assert_bytes(call.sources_data[4], sizeof call.sources_data - sizeof sources, 0x77);
  const int32_t *segments = call.counters_data[0] + moert_ep_lay_out_counters(EXPERTS).segments;
  for (int expert = 0; expert < EXPERTS; ++expert) {
    assert_int_equal(segments[2 * expert], MOERT_EP_FLAG + offsets[expert + 1]);
    assert_int_equal(segments[2 * expert + 1], offsets[expert + 1] - offsets[expert]);
  }
}

//===--- ep.combine.skip_a2a ------------------------------------------------------------------------===//

// The call fails with this text, and has written nothing; the layer is made and dispatched anew.
#define assert_combine_refused(call, status, text)                                                                                                   \
  do {                                                                                                                                               \
    int32_t before[WORDS];                                                                                                                           \
    memcpy(before, (call)->counters_data[0], sizeof before);                                                                                         \
    assert_fails(combine(call), status, "ep.combine.skip_a2a: " text);                                                                               \
    assert_bytes((call)->out_data, sizeof(call)->out_data, 0x77);                                                                                    \
    assert_memory_equal(before, (call)->counters_data[0], sizeof before);                                                                            \
    make_dispatched(call);                                                                                                                           \
  } while (0)

static void combine_refuses_parameters(void **state) {
  (void)state;
  layer call;
  make_dispatched(&call);
  call.combine_params.skip_a2a = 0;
  assert_combine_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'skip_a2a' is 0, must be 1: an all-to-all needs ep.combine");
  call.combine_params.has_epilogue_fusion = 1;
  assert_combine_refused(&call, MOERT_ERROR_UNSUPPORTED,
                         "parameter 'has_epilogue_fusion' is 1, must be 0: apply the epilogue with moe-expand-epilogues");
  call.combine_params.n_gpus_per_node = 2;
  assert_combine_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'n_gpus_per_node' is 2, must be 1: the buffers of an all-to-all are unsupported");
  call.combine_params.n_nodes = 3;
  assert_combine_refused(&call, MOERT_ERROR_UNSUPPORTED, "parameter 'n_nodes' is 3, must be 1: the buffers of an all-to-all are unsupported");
  call.combine_params.allreduce_world_size = 64;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'allreduce_world_size' is 64, must be 1, the ranks of the communicator");
  call.combine_params.max_token_per_rank = 2;
  assert_combine_refused(&call, MOERT_ERROR_CAPACITY, "operand 'topk_ids' has 3 tokens, must have at most 2 (max_token_per_rank)");
}

static void combine_refuses_shapes(void **state) {
  (void)state;
  layer call;
  make_dispatched(&call);
  call.out_shape[0] = TOKENS - 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'output_tokens' dimension 0 is 2, must equal dimension 0 of 'topk_ids' = 3");
  call.out_shape[1] = HIDDEN - 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'output_tokens' dimension 1 is 7, must equal hidden_size = 8");
  call.rows_shape[1] = HIDDEN - 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'input_tokens' dimension 1 is 7, must equal hidden_size = 8");
  call.sources_shape[0] = ROWS - 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'src_info' dimension 0 is 16, must equal dimension 0 of 'input_tokens' = 17");
  call.sources_shape[1] = 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'src_info' dimension 1 is 1, must equal the number of its columns = 2");
  call.weights_shape[0] = 2;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'router_weights' dimension 0 is 2, must equal dimension 0 of 'topk_ids' = 3");
  call.weights_shape[1] = 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'router_weights' dimension 1 is 1, must equal top_k = 2");
  call.ids_shape[1] = 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'topk_ids' dimension 1 is 1, must equal top_k = 2");
  call.words[0][0] = WORDS - 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'atomic_counters' dimension 0 is 359, must equal 10 * n_experts + 320 = 360");
  call.tables_shape[MOERT_EP_COMBINE][MOERT_EP_SEND][0] = 0;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'send_ptrs' dimension 0 is 0, must equal allreduce_world_size = 1");
  call.out.dtype.code = MOERT_CODE_FLOAT;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_DTYPE, "operand 'input_tokens': element type bf16, must be f16, that of 'output_tokens'");
}

static void combine_refuses_pointers(void **state) {
  (void)state;
  layer call;
  char text[512];
  make_dispatched(&call);
  call.pointers_data[MOERT_EP_COMBINE][MOERT_EP_RECV] = (uintptr_t)&call;
  snprintf(text, sizeof text,
           "ep.combine.skip_a2a: operand 'recv_ptrs': entry 0 is %p, where symmetric memory of this rank does not have 256 bytes: pass what ep.init "
           "wrote to 'dev_ptrs' for these parameters",
           (void *)&call);
  assert_fails(combine(&call), MOERT_ERROR_INVALID_MEMORY, text);
  make_dispatched(&call);
  call.pointers_data[MOERT_EP_COMBINE][MOERT_EP_RECV_COUNT] = 0;
  assert_string_equal(moert_status_name(combine(&call)), "MOERT_ERROR_INVALID_MEMORY");
  make_dispatched(&call);
  call.pointers_data[MOERT_EP_COMBINE][MOERT_EP_SEND] = 1; // is not looked at
  assert_ok(combine(&call));
}

// What does not fit the dispatch.
static void combine_refuses_rounds(void **state) {
  (void)state;
  layer call;
  make_dispatched(&call);
  call.out_shape[0] = call.weights_shape[0] = call.ids_shape[0] = 2;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_STATE, "operand 'topk_ids' has 2 tokens, must have 3 as in the dispatch");
  call.counters_data[0][moert_ep_lay_out_counters(EXPERTS).round] = INT32_MIN;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_STATE, "operand 'topk_ids' has 3 tokens, must have -2147484672 as in the dispatch");
  call.combine_params.top_k = call.weights_shape[1] = call.ids_shape[1] = 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_STATE, "parameter 'top_k' is 1, must be 2 as in the dispatch");
  call.combine_params.fused_shared_expert = 1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_STATE, "parameter 'fused_shared_expert' is 1, must be 0 as in the dispatch");
  call.rows_shape[0] = call.sources_shape[0] = 3;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_SHAPE, "operand 'input_tokens' has 3 rows, must have at least 4, which the dispatch placed");
  call.counters_data[0][moert_ep_lay_out_counters(EXPERTS).segments + 3] = 9;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_STATE,
                         "operand 'atomic_counters' was changed since the dispatch: expert 1 has 9 rows up to row 3");
  call.counters_data[0][moert_ep_lay_out_counters(EXPERTS).segments + 3] = -1;
  assert_combine_refused(&call, MOERT_ERROR_INVALID_STATE,
                         "operand 'atomic_counters' was changed since the dispatch: expert 1 has -1 rows up to row 3");
  call.sources_data[1][0] = TOKENS; // is skipped
  assert_combine_refused(&call, MOERT_ERROR_DATA,
                         "operand 'src_info' has no row for token 0, slot 0, whose expert 1 is one of rank 0: pass 'src_info' and 'topk_ids' of the "
                         "dispatch");
  call.sources_data[2][1] = -1;
  assert_combine_refused(&call, MOERT_ERROR_DATA,
                         "operand 'src_info' has no row for token 1, slot 1, whose expert 1 is one of rank 0: pass 'src_info' and 'topk_ids' of the "
                         "dispatch");
  call.ids_data[1][0] = 3;
  assert_combine_refused(&call, MOERT_ERROR_DATA,
                         "operand 'src_info' has no row for token 1, slot 0, whose expert 3 is one of rank 0: pass 'src_info' and 'topk_ids' of the "
                         "dispatch");
}

// A refused combine can be corrected and repeated; rows beyond the groups are not read.
static void combine_adds(void **state) {
  (void)state;
  layer call;
  make_dispatched(&call);
  call.combine_params.skip_a2a = 0;
  assert_string_equal(moert_status_name(combine(&call)), "MOERT_ERROR_UNSUPPORTED");
  call.combine_params.skip_a2a = 1;
  memset(call.rows_data[4], 0xff, sizeof call.rows_data - 4 * sizeof call.rows_data[0]); // NaN
  assert_ok(combine(&call));
  assert_memory_equal(call.out_data[0], call.tokens_data[0], sizeof call.out_data[0]); // half of it twice
  for (int t = 1; t < TOKENS; ++t)
    for (int h = 0; h < HIDDEN; ++h) assert_int_equal(call.out_data[t][h], call.tokens_data[t][h] - 0x80); // half of it once
  memset(call.ids_data, 0xff, sizeof call.ids_data);
  assert_ok(dispatch(&call));
  assert_ok(combine(&call));
  assert_bytes(call.out_data, sizeof call.out_data, 0); // no expert is here
}

static void no_memory(void **state) {
  (void)state;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  moert_context *small;
  layer call;
  options.arena_limit = 128;
  assert_ok(moert_context_create(comm, &options, &small));
  make_dispatched(&call);
  assert_fails(moert_ep_combine_skip_a2a(&call.combine_params, &call.combine_args, NULL, small), MOERT_ERROR_OUT_OF_MEMORY,
               "ep.combine.skip_a2a: 256 bytes on top of 0 exceed the arena_limit of 128; raise it in the context's options");
  assert_bytes(call.out_data, sizeof call.out_data, 0x77);
  assert_ok(combine(&call));
  moert_context_destroy(small);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(init_refuses),
      cmocka_unit_test(init_writes),
      cmocka_unit_test(sizes),
      cmocka_unit_test(ranks_disagree),
      cmocka_unit_test(init_needs_all),
      cmocka_unit_test(dispatch_refuses_parameters),
      cmocka_unit_test(dispatch_refuses_shapes),
      cmocka_unit_test(dispatch_refuses_pointers),
      cmocka_unit_test(dispatch_needs_room),
      cmocka_unit_test(calls_alternate),
      cmocka_unit_test(dispatch_groups),
      cmocka_unit_test(combine_refuses_parameters),
      cmocka_unit_test(combine_refuses_shapes),
      cmocka_unit_test(combine_refuses_pointers),
      cmocka_unit_test(combine_refuses_rounds),
      cmocka_unit_test(combine_adds),
      cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

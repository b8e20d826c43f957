//===- all_to_all.c - moe.initialize, dispatch, sanitize_expert_ids, combine: what they refuse, and what they do without a peer ===//

#include "support.h"
#include <moert/ops.h>

#include <sched.h>
#include <time.h>

enum { RANKS = 4, TOKENS = 3, MAX_TOKENS = 4, HIDDEN = 4, TOP_K = 2, EXPERTS = 7, LIST = 9, ROOM = 96, DEADLINE_MS = 300, SLACK_MS = 10000 };
enum { DISPATCH_BYTES = 16, COMBINE_BYTES = 8 }; // two payloads of bf16 rows, and one of results

static const moert_dtype BF16 = {MOERT_CODE_BFLOAT, 16, 1}, F16 = {MOERT_CODE_FLOAT, 16, 1}, F32 = {MOERT_CODE_FLOAT, 32, 1},
                         I32 = {MOERT_CODE_INT, 32, 1}, I64 = {MOERT_CODE_INT, 64, 1}, I8 = {MOERT_CODE_INT, 8, 1};

//===--- one rank's operands ----------------------------------------------------------------------===//

// What a rank passes to a dispatch and its combine; tests change it before a call.
typedef struct layer {
  moert_context *context;
  int64_t metainfo_data[MOERT_METAINFO_FIELDS], offset, offset_result;
  int32_t ids_data[MAX_TOKENS + 1][TOP_K], counts_data[RANKS], offsets_data[EXPERTS + 1];
  float weights_data[MAX_TOKENS + 1][TOP_K], out_data[MAX_TOKENS][HIDDEN];
  uint16_t payload_data[MAX_TOKENS + 1][HIDDEN], recv_data[LIST][ROOM * HIDDEN], result_data[ROOM * HIDDEN];
  int64_t shapes[8][3], payload_shapes[LIST][3], recv_shapes[LIST][3];
  moert_tensor workspace, metainfo, ids, weights, counts, offsets, result, out, payloads[LIST], recv[LIST];
  moert_moe_initialize_params sizes;
  moert_moe_dispatch_params dispatch_params;
  moert_moe_dispatch_args dispatch_args;
  moert_moe_combine_params combine_params;
  moert_moe_combine_args combine_args;
} layer;

static moert_tensor make_tensor(void *data, moert_dtype dtype, int64_t *shape, int32_t ndim, int64_t a, int64_t b, int64_t c) {
  shape[0] = a;
  shape[1] = b;
  shape[2] = c;
  return (moert_tensor){data, {MOERT_DEVICE_CPU, 0}, ndim, dtype, shape, NULL, 0};
}

static void make_operands(layer *l, int32_t ranks) {
  int64_t (*s)[3] = l->shapes;
  l->metainfo = make_tensor(l->metainfo_data, I64, s[1], 1, MOERT_METAINFO_FIELDS, 0, 0);
  l->ids = make_tensor(l->ids_data, I32, s[2], 2, TOKENS, TOP_K, 0);
  l->weights = make_tensor(l->weights_data, F32, s[3], 2, TOKENS, TOP_K, 0);
  l->counts = make_tensor(l->counts_data, I32, s[4], 1, ranks, 0, 0);
  l->offsets = make_tensor(l->offsets_data, I32, s[5], 1, 0, 0, 0);
  l->result = make_tensor(l->result_data, BF16, s[6], 3, ranks, MAX_TOKENS, HIDDEN);
  l->out = make_tensor(l->out_data, F32, s[7], 2, TOKENS, HIDDEN, 0);
  for (int i = 0; i < LIST; ++i) {
    l->payloads[i] = make_tensor(l->payload_data, BF16, l->payload_shapes[i], 2, TOKENS, HIDDEN, 0);
    l->recv[i] = make_tensor(l->recv_data[i], BF16, l->recv_shapes[i], 3, ranks, MAX_TOKENS, HIDDEN);
  }
}

static void make_calls(layer *l) {
  l->sizes = (moert_moe_initialize_params)MOERT_MOE_INITIALIZE_PARAMS_INIT;
  l->sizes.max_num_tokens = MAX_TOKENS;
  l->sizes.dispatch_bytes_per_token = DISPATCH_BYTES;
  l->sizes.combine_bytes_per_token = COMBINE_BYTES;
  l->dispatch_params = (moert_moe_dispatch_params)MOERT_MOE_DISPATCH_PARAMS_INIT;
  l->dispatch_params.top_k = TOP_K;
  l->dispatch_params.n_experts = EXPERTS;
  l->combine_params = (moert_moe_combine_params)MOERT_MOE_COMBINE_PARAMS_INIT;
  l->combine_params.top_k = TOP_K;
  l->combine_params.hidden_size = HIDDEN;
  l->dispatch_args = (moert_moe_dispatch_args)MOERT_MOE_DISPATCH_ARGS_INIT;
  l->dispatch_args.topk_ids = &l->ids;
  l->dispatch_args.num_payloads = l->dispatch_args.num_recv = 2;
  l->dispatch_args.payloads = l->payloads;
  l->dispatch_args.recv = l->recv;
  l->dispatch_args.recv_counts = &l->counts;
  l->dispatch_args.combine_payload_offset = &l->offset_result;
  l->combine_args = (moert_moe_combine_args)MOERT_MOE_COMBINE_ARGS_INIT;
  l->combine_args.payload = &l->result;
  l->combine_args.out = &l->out;
  l->dispatch_args.workspace = l->combine_args.workspace = &l->workspace;
  l->dispatch_args.metainfo = l->combine_args.metainfo = &l->metainfo;
  l->dispatch_args.runtime_max_tokens_per_rank = l->combine_args.runtime_max_tokens_per_rank = MAX_TOKENS;
}

// To layout expert_grouped, on a rank that owns `experts`.
static void make_grouped(layer *l, int64_t experts) {
  l->dispatch_params.layout = MOERT_MOE_DISPATCH_LAYOUT_EXPERT_GROUPED;
  l->combine_params.layout = MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED;
  l->dispatch_args.topk_weights = &l->weights;
  l->dispatch_args.recv_counts = NULL;
  l->dispatch_args.offsets = &l->offsets;
  l->offsets.shape[0] = experts + 1;
  for (int i = 0; i < LIST; ++i) {
    l->recv[i].ndim = 2;
    l->recv[i].shape[0] = ROOM;
    l->recv[i].shape[1] = HIDDEN;
  }
  l->result.ndim = 2;
  l->result.shape[0] = ROOM;
  l->result.shape[1] = HIDDEN;
}

static void fill(layer *l, int32_t rank) {
  for (int t = 0; t <= MAX_TOKENS; ++t) {
    for (int k = 0; k < TOP_K; ++k) {
      l->ids_data[t][k] = (rank + 2 * t + 3 * k) % EXPERTS;
      l->weights_data[t][k] = 1.0f;
    }
    for (int h = 0; h < HIDDEN; ++h) l->payload_data[t][h] = (uint16_t)(0x4000 + 16 * rank + t);
  }
  for (int i = 0; i < ROOM * HIDDEN; ++i) l->result_data[i] = 0x3f80; // 1
}

static moert_status workspace_bytes(const layer *l, int64_t *bytes) {
  moert_moe_workspace_size_params params = MOERT_MOE_WORKSPACE_SIZE_PARAMS_INIT;
  params.max_num_tokens = l->sizes.max_num_tokens;
  params.dispatch_bytes_per_token = l->sizes.dispatch_bytes_per_token;
  params.combine_bytes_per_token = l->sizes.combine_bytes_per_token;
  moert_moe_workspace_size_args args = MOERT_MOE_WORKSPACE_SIZE_ARGS_INIT;
  args.size = bytes;
  return moert_moe_workspace_size(&params, &args, NULL, l->context);
}

static moert_status initialize(layer *l) {
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  args.workspace = &l->workspace;
  args.metainfo = &l->metainfo;
  return moert_moe_initialize(&l->sizes, &args, NULL, l->context);
}

static moert_status dispatch(layer *l) {
  moert_status status = moert_moe_dispatch(&l->dispatch_params, &l->dispatch_args, NULL, l->context);
  if (!status) l->combine_args.combine_payload_offset = l->offset_result;
  return status;
}

static moert_status combine(layer *l) { return moert_moe_combine(&l->combine_params, &l->combine_args, NULL, l->context); }

// Operands, memory with `spare` bytes beyond the workspace, and the workspace's initialisation. Collective.
static moert_status open_layer(layer *l, moert_comm *comm, const moert_context_options *options, int64_t spare) {
  memset(l, 0, sizeof *l);
  moert_status status = moert_context_create(comm, options, &l->context);
  if (status) return status;
  make_operands(l, moert_comm_size(comm));
  make_calls(l);
  fill(l, moert_comm_rank(comm));
  int64_t bytes = 0;
  void *memory = NULL;
  status = workspace_bytes(l, &bytes);
  if (!status) status = moert_symmetric_alloc(comm, (size_t)(bytes + spare), &memory);
  if (status) return status;
  l->workspace = make_tensor(memory, I8, l->shapes[0], 1, bytes, 0, 0);
  return initialize(l);
}

static void close_layer(layer *l) { moert_context_destroy(l->context); }

static bool is_poison(const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (((const unsigned char *)data)[i] != 0xff) return false;
  return true;
}

//===--- what is refused before anything is sent --------------------------------------------------===//

// One rank is enough: nothing of this asks a peer. After each refusal the operands are as before, and the call still works.
typedef struct alone {
  moert_comm *comm;
  layer l;
} alone;

static int set_up_alone(void **state) {
  alone *a = malloc(sizeof *a);
  *state = a;
  return moert_comm_create_threads(1, NULL, &a->comm) || open_layer(&a->l, a->comm, NULL, 1 << 20);
}

static int tear_down_alone(void **state) {
  alone *a = *state;
  close_layer(&a->l);
  moert_comm_destroy(a->comm);
  free(a);
  return 0;
}

#define refuses(call, l, change, status, text)                                                                                                       \
  do {                                                                                                                                               \
    layer saved = *(l);                                                                                                                              \
    change;                                                                                                                                          \
    assert_fails(call, status, text);                                                                                                                \
    *(l) = saved;                                                                                                                                    \
  } while (0)

static void workspace_size_refuses(void **state) {
  layer *l = &((alone *)*state)->l;
  assert_fails(workspace_bytes(l, NULL), MOERT_ERROR_NULL_POINTER, "moe.workspace_size: result 'size' is NULL");
  moert_moe_workspace_size_params params = {sizeof params, 1, 1, 1, 0, 2};
  int64_t bytes;
  moert_moe_workspace_size_args args = {sizeof args, &bytes};
  assert_fails(moert_moe_workspace_size(&params, &args, NULL, l->context), MOERT_ERROR_INVALID_ARGUMENT,
               "moe.workspace_size: parameter 'ep_size' is 2, must be 0 or 1, the ranks of the communicator");
  params = (moert_moe_workspace_size_params){sizeof params, 16777216, 2147483647, 2147483647, 65536, 1};
  assert_ok(moert_moe_workspace_size(&params, &args, NULL, l->context));
  assert_true(bytes > 2 * INT64_C(16777216) * 2147483647);
}

static void workspace_view_refuses(void **state) {
  layer *l = &((alone *)*state)->l;
  int64_t shape[3];
  moert_tensor view = make_tensor(NULL, BF16, shape, 2, 3, 5, 0);
  moert_moe_workspace_view_params params = MOERT_MOE_WORKSPACE_VIEW_PARAMS_INIT;
  moert_moe_workspace_view_args args = {sizeof args, &l->workspace, 128, NULL};
#define view_fails(status, text) assert_fails(moert_moe_workspace_view(&params, &args, NULL, l->context), status, "moe.workspace_view: " text)
  view_fails(MOERT_ERROR_NULL_POINTER, "result 'view' is NULL");
  args.view = &view;
  assert_ok(moert_moe_workspace_view(&params, &args, NULL, l->context));
  assert_ptr_equal(view.data, (char *)l->workspace.data + 128);
  shape[1] = -1;
  view_fails(MOERT_ERROR_INVALID_SHAPE, "result 'view': dimension 1 is -1, must be at least 0");
  shape[1] = 5;
  args.offset = 129;
  view_fails(MOERT_ERROR_MISALIGNED, "operand 'offset' is 129, must be a multiple of 2, the size of element type bf16");
  view.dtype.bits = 4;
  view_fails(MOERT_ERROR_INVALID_DTYPE, "result 'view': element type ?, must be of whole bytes");
  view.dtype = BF16;
  view.shape = NULL;
  view_fails(MOERT_ERROR_INVALID_SHAPE, "result 'view' has no shape");
  view.shape = shape;
  l->workspace.shape[0] = 8192;
  args.offset = 8192 - 28;
  view_fails(MOERT_ERROR_INVALID_ARGUMENT,
             "result 'view' has 30 bytes, and does not lie within the 8192 bytes of operand 'workspace' at offset 8164");
  args.offset = -2;
  view_fails(MOERT_ERROR_INVALID_ARGUMENT, "result 'view' has 30 bytes, and does not lie within the 8192 bytes of operand 'workspace' at offset -2");
  args.offset = INT64_MAX - 1;
  view_fails(MOERT_ERROR_INVALID_ARGUMENT,
             "result 'view' has 30 bytes, and does not lie within the 8192 bytes of operand 'workspace' at offset 9223372036854775806");
  args.offset = 128;
  l->workspace.byte_offset = 1;
  view_fails(MOERT_ERROR_MISALIGNED, "operand 'workspace' does not begin at a multiple of 2 bytes, the size of element type bf16");
  l->workspace.byte_offset = 0;
  shape[0] = INT64_MAX, shape[1] = 0; // no bytes, whatever the other sizes are
  assert_ok(moert_moe_workspace_view(&params, &args, NULL, l->context));
#undef view_fails
}

static void initialize_refuses(void **state) {
  layer *l = &((alone *)*state)->l;
  char text[256];
  int64_t bytes;
  assert_ok(workspace_bytes(l, &bytes));
  snprintf(text, sizeof text, "moe.initialize: operand 'workspace' has %" PRId64 " bytes, must have at least %" PRId64 " (moe.workspace_size)",
           bytes - 1, bytes);
  refuses(initialize(l), l, l->workspace.shape[0] = bytes - 1, MOERT_ERROR_WORKSPACE_SIZE, text);
  refuses(initialize(l), l, l->workspace.byte_offset = 64, MOERT_ERROR_MISALIGNED,
          "moe.initialize: operand 'workspace' does not begin at a multiple of 128 bytes");
  refuses(initialize(l), l, l->metainfo.shape[0] = 10, MOERT_ERROR_INVALID_SHAPE,
          "moe.initialize: operand 'metainfo' dimension 0 is 10, must equal MOERT_METAINFO_FIELDS = 16");
  refuses(initialize(l), l, l->sizes.ep_size = 3, MOERT_ERROR_INVALID_ARGUMENT,
          "moe.initialize: parameter 'ep_size' is 3, must be 0 or 1, the ranks of the communicator");
  static const char overlaps[] = "moe.initialize: operand 'metainfo' overlaps operand 'workspace'; give it memory of its own";
  char *slab = l->workspace.data;
  refuses(initialize(l), l, l->metainfo.data = slab + 1024, MOERT_ERROR_OVERLAP, overlaps);
  refuses(initialize(l), l, l->metainfo.data = slab - 8, MOERT_ERROR_OVERLAP, overlaps); // its last words
  refuses(initialize(l), l, l->metainfo.data = slab + (bytes - 8) / 8 * 8, MOERT_ERROR_OVERLAP, overlaps);
  assert_ok(dispatch(l));
}

#define dispatch_refuses(change, status, text) refuses(dispatch(l), l, change, status, "moe.dispatch: " text)
#define combine_refuses(change, status, text) refuses(combine(l), l, change, status, "moe.combine: " text)
#define UNFIT "operand 'metainfo' does not describe operand 'workspace': pass the two that one moe.initialize on this communicator was given"

static void dispatch_refuses_workspaces(void **state) {
  layer *l = &((alone *)*state)->l;
  dispatch_refuses(l->dispatch_params.ep_size = 2, MOERT_ERROR_INVALID_ARGUMENT,
                   "parameter 'ep_size' is 2, must be 0 or 1, the ranks of the communicator");
  dispatch_refuses(l->metainfo.shape[0] = 15, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'metainfo' dimension 0 is 15, must equal MOERT_METAINFO_FIELDS = 16");
  dispatch_refuses(memset(l->metainfo_data, 0, sizeof l->metainfo_data), MOERT_ERROR_INVALID_STATE, UNFIT);
  dispatch_refuses(memset(l->metainfo_data, 0xff, sizeof l->metainfo_data), MOERT_ERROR_INVALID_STATE, UNFIT);
  dispatch_refuses(l->metainfo_data[MOERT_METAINFO_STATE] = INT64_MAX, MOERT_ERROR_INVALID_STATE, UNFIT);
  dispatch_refuses(l->metainfo_data[MOERT_METAINFO_PAYLOAD_DATA] += 128, MOERT_ERROR_INVALID_STATE, UNFIT);
  dispatch_refuses(l->workspace.byte_offset = 128, MOERT_ERROR_INVALID_STATE, UNFIT); // memory that was not initialised
  char text[256];
  int64_t bytes = l->workspace.shape[0];
  snprintf(text, sizeof text, "moe.dispatch: operand 'workspace' has %" PRId64 " bytes, must have at least %" PRId64 " (moe.workspace_size)",
           bytes - 8, bytes);
  refuses(dispatch(l), l, l->workspace.shape[0] = bytes - 8, MOERT_ERROR_WORKSPACE_SIZE, text);
  snprintf(text, sizeof text, "moe.dispatch: operand 'workspace' has 0 bytes, must have at least %" PRId64 " (moe.workspace_size)", bytes);
  refuses(dispatch(l), l, l->workspace.shape[0] = 0, MOERT_ERROR_WORKSPACE_SIZE, text);
  assert_ok(dispatch(l));
}

static void copies_of_workspaces_are_none(void **state) {
  layer *l = &((alone *)*state)->l;
  size_t bytes = (size_t)l->workspace.shape[0]; // a multiple of 128
  memcpy((char *)l->workspace.data + bytes, l->workspace.data, bytes);
  dispatch_refuses(l->workspace.byte_offset = bytes, MOERT_ERROR_INVALID_STATE, UNFIT);
  assert_ok(dispatch(l));
}

static void dispatch_refuses_counts(void **state) {
  layer *l = &((alone *)*state)->l;
  dispatch_refuses(l->dispatch_args.runtime_max_tokens_per_rank = 0, MOERT_ERROR_INVALID_ARGUMENT,
                   "operand 'runtime_max_tokens_per_rank' is 0, must be at least 1");
  dispatch_refuses(l->dispatch_args.runtime_max_tokens_per_rank = 5, MOERT_ERROR_CAPACITY,
                   "operand 'runtime_max_tokens_per_rank' is 5, must be at most 4, the max_num_tokens of the workspace");
  dispatch_refuses(l->dispatch_args.runtime_max_tokens_per_rank = 2, MOERT_ERROR_CAPACITY,
                   "operand 'topk_ids' has 3 tokens, must have at most 2 (runtime_max_tokens_per_rank)");
  dispatch_refuses(l->ids.shape[0] = 5, MOERT_ERROR_CAPACITY, "operand 'topk_ids' has 5 tokens, must have at most 4 (runtime_max_tokens_per_rank)");
  dispatch_refuses(l->dispatch_params.n_experts = 1, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'top_k' is 2, must be at most 1 (n_experts)");
  dispatch_refuses(l->dispatch_params.top_k = 3, MOERT_ERROR_INVALID_SHAPE, "operand 'topk_ids' dimension 1 is 2, must equal top_k = 3");
  dispatch_refuses(l->counts.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, "operand 'recv_counts' dimension 0 is 2, must equal ep_size = 1");
  dispatch_refuses(l->dispatch_args.combine_payload_offset = NULL, MOERT_ERROR_NULL_POINTER, "result 'combine_payload_offset' is NULL");
  assert_ok(moert_comm_status(((alone *)*state)->comm));
  assert_ok(dispatch(l));
}

// Bit 0 alone is a mask of one rank, and as good as none.
static void dispatch_refuses_masks(void **state) {
  layer *l = &((alone *)*state)->l;
  dispatch_refuses(l->dispatch_args.active_rank_mask = 2, MOERT_ERROR_INVALID_ARGUMENT,
                   "operand 'active_rank_mask' is 0x2, must be less than 0x2: the communicator has 1 ranks");
  dispatch_refuses(l->dispatch_args.active_rank_mask = -1, MOERT_ERROR_INVALID_ARGUMENT,
                   "operand 'active_rank_mask' is 0xffffffffffffffff, must be less than 0x2: the communicator has 1 ranks");
  l->dispatch_args.active_rank_mask = 1;
  assert_ok(dispatch(l));
  combine_refuses(l->combine_args.active_rank_mask = 3, MOERT_ERROR_INVALID_ARGUMENT,
                  "operand 'active_rank_mask' is 0x3, must be less than 0x2: the communicator has 1 ranks");
  assert_ok(combine(l));
  l->dispatch_args.active_rank_mask = 0;
  l->combine_args.active_rank_mask = 1;
  assert_ok(dispatch(l));
  assert_ok(combine(l));
}

static void dispatch_refuses_payloads(void **state) {
  layer *l = &((alone *)*state)->l;
  dispatch_refuses(l->dispatch_args.num_payloads = 0, MOERT_ERROR_INVALID_ARGUMENT, "operand 'payloads' has 0 tensors, must have 1 to 8");
  dispatch_refuses(l->dispatch_args.num_payloads = 9, MOERT_ERROR_INVALID_ARGUMENT, "operand 'payloads' has 9 tensors, must have 1 to 8");
  dispatch_refuses(l->dispatch_args.num_recv = 1, MOERT_ERROR_INVALID_ARGUMENT, "operand 'recv' has 1 tensors, must have 2 (payloads)");
  dispatch_refuses(l->payloads[1].shape[1] = 5, MOERT_ERROR_CAPACITY,
                   "operand 'payloads[1]' has rows of 10 bytes, must have at most 8 (left of dispatch_bytes_per_token, 16)");
  dispatch_refuses(l->payloads[1].shape[0] = 2, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'payloads[1]' dimension 0 is 2, must equal the tokens of topk_ids = 3");
  dispatch_refuses(l->recv[1].dtype = F16, MOERT_ERROR_INVALID_DTYPE, "operand 'recv[1]': element type f16, must be bf16, that of its payload");
#define RECV_SHAPE "operand 'recv[1]' must be [1, 4, ...] (ranks, runtime_max_tokens_per_rank) with the trailing dimensions of its payload"
  dispatch_refuses(l->recv[1].shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, RECV_SHAPE);
  dispatch_refuses(l->recv[1].shape[1] = 3, MOERT_ERROR_INVALID_SHAPE, RECV_SHAPE);
  dispatch_refuses(l->recv[1].shape[2] = 3, MOERT_ERROR_INVALID_SHAPE, RECV_SHAPE);
  dispatch_refuses(l->recv[1].ndim = 2, MOERT_ERROR_INVALID_SHAPE, RECV_SHAPE);
  dispatch_refuses(l->recv[1].ndim = 1, MOERT_ERROR_INVALID_SHAPE, RECV_SHAPE);
  assert_ok(dispatch(l));
}

static void dispatch_refuses_layouts(void **state) {
  layer *l = &((alone *)*state)->l;
  dispatch_refuses(l->dispatch_args.offsets = &l->offsets, MOERT_ERROR_INVALID_ARGUMENT,
                   "operand 'offsets' is set, must be NULL with layout rank_major");
  dispatch_refuses(l->dispatch_args.topk_weights = &l->weights, MOERT_ERROR_INVALID_ARGUMENT,
                   "operand 'topk_weights' is set, must be NULL with layout rank_major");
  make_grouped(l, EXPERTS);
  dispatch_refuses(l->dispatch_args.offsets = NULL, MOERT_ERROR_NULL_POINTER, "operand 'offsets' is NULL, must be set with layout expert_grouped");
  dispatch_refuses(l->dispatch_args.recv_counts = &l->counts, MOERT_ERROR_INVALID_ARGUMENT,
                   "operand 'recv_counts' is set, must be NULL with layout expert_grouped");
  dispatch_refuses(l->offsets.shape[0] = 7, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'offsets' dimension 0 is 7, must equal the number of this rank's experts + 1 = 8");
  dispatch_refuses(l->weights.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'topk_weights' dimension 0 is 2, must equal dimension 0 of 'topk_ids' = 3");
  dispatch_refuses(l->weights.shape[1] = 1, MOERT_ERROR_INVALID_SHAPE, "operand 'topk_weights' dimension 1 is 1, must equal top_k = 2");
  dispatch_refuses(l->recv[1].shape[0] = 95, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'recv[1]' must be [96, ...], as many rows as 'recv[0]', with the trailing dimensions of its payload");
  assert_ok(dispatch(l));
}

static void dispatch_refuses_overlap(void **state) {
  layer *l = &((alone *)*state)->l;
  char *slab = l->workspace.data;
  char text[256];
  dispatch_refuses(l->payloads[1].data = slab, MOERT_ERROR_OVERLAP, "operand 'payloads[1]' lies in the workspace, where this call receives");
  dispatch_refuses(l->ids.data = slab + l->metainfo_data[MOERT_METAINFO_TOPK_TARGET_RANKS], MOERT_ERROR_OVERLAP,
                   "operand 'topk_ids' lies in the workspace, where this call receives");
  dispatch_refuses(l->counts.data = slab + l->metainfo_data[MOERT_METAINFO_RECV_COUNTERS], MOERT_ERROR_OVERLAP,
                   "operand 'recv_counts' lies in the workspace, where this call receives");
  int64_t area = l->metainfo_data[MOERT_METAINFO_PAYLOAD_DATA];
  snprintf(text, sizeof text,
           "moe.dispatch: operand 'recv[0]' lies in the workspace, may do so only at offset %" PRId64
           " (its payload's receive area) with layout rank_major",
           area);
  refuses(dispatch(l), l, l->recv[0].data = slab + area + 2, MOERT_ERROR_OVERLAP, text);
  make_grouped(l, EXPERTS);
  refuses(dispatch(l), l, l->recv[0].data = slab + area, MOERT_ERROR_OVERLAP, text);
  dispatch_refuses(l->weights.data = slab, MOERT_ERROR_OVERLAP, "operand 'topk_weights' lies in the workspace, where this call receives");
  dispatch_refuses(l->offsets.data = slab, MOERT_ERROR_OVERLAP, "operand 'offsets' lies in the workspace, where this call receives");
  assert_ok(dispatch(l));
}

// All of a payload's ids, as the layer's dispatch receives them.
static moert_status sanitize(layer *l, int32_t ids[MAX_TOKENS][TOP_K], int64_t *shape, const moert_moe_sanitize_expert_ids_params *params) {
  moert_tensor tensor = {ids, {MOERT_DEVICE_CPU, 0}, 3, I32, shape, NULL, 0};
  moert_moe_sanitize_expert_ids_args args = {sizeof args, &l->workspace, &l->metainfo, &tensor};
  return moert_moe_sanitize_expert_ids(params, &args, NULL, l->context);
}

static void sanitize_refuses_rounds_and_ids(void **state) {
  layer *l = &((alone *)*state)->l;
  int32_t ids[MAX_TOKENS][TOP_K];
  int64_t shape[3] = {1, MAX_TOKENS, TOP_K};
  moert_moe_sanitize_expert_ids_params params = MOERT_MOE_SANITIZE_EXPERT_IDS_PARAMS_INIT;
  memset(ids, 0x5a, sizeof ids);
#define sanitize_refuses(change, status, text) refuses(sanitize(l, ids, shape, &params), l, change, status, "moe.sanitize_expert_ids: " text)
#define NO_DISPATCH "no dispatch on this workspace waits for its combine: call moe.sanitize_expert_ids between moe.dispatch and moe.combine"
  sanitize_refuses((void)0, MOERT_ERROR_INVALID_STATE, NO_DISPATCH);
  assert_ok(dispatch(l));
  sanitize_refuses(l->metainfo.shape[0] = 10, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'metainfo' dimension 0 is 10, must equal MOERT_METAINFO_FIELDS = 16");
  sanitize_refuses(memset(l->metainfo_data, 0, sizeof l->metainfo_data), MOERT_ERROR_INVALID_STATE, UNFIT);
  sanitize_refuses(shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, "operand 'expert_ids' dimension 0 is 2, must equal the ranks of the communicator = 1");
  shape[0] = 1;
  sanitize_refuses(shape[1] = 3, MOERT_ERROR_INVALID_SHAPE,
                   "operand 'expert_ids' dimension 1 is 3, must equal runtime_max_tokens_per_rank of the dispatch = 4");
  shape[1] = MAX_TOKENS;
  sanitize_refuses(params.ep_size = 2, MOERT_ERROR_INVALID_ARGUMENT, "parameter 'ep_size' is 2, must be 0 or 1, the ranks of the communicator");
  params.ep_size = 0;
  sanitize_refuses(params.invalid_expert_id = INT64_C(2147483648), MOERT_ERROR_INVALID_ARGUMENT,
                   "parameter 'invalid_expert_id' is 2147483648, must be in [-2147483648, 2147483647]");
  params.invalid_expert_id = -5;
  void *counts = (char *)l->workspace.data + l->metainfo_data[MOERT_METAINFO_RECV_COUNTERS];
  assert_fails(sanitize(l, counts, shape, &params), MOERT_ERROR_OVERLAP,
               "moe.sanitize_expert_ids: operand 'expert_ids' lies in the workspace before its payloads, may do so only in a receive area");
  for (int t = 0; t < MAX_TOKENS; ++t) assert_int_equal(ids[t][0], 0x5a5a5a5a);
  assert_ok(sanitize(l, ids, shape, &params));
  for (int t = 0; t < MAX_TOKENS; ++t) assert_int_equal(ids[t][1], t < TOKENS ? 0x5a5a5a5a : -5);
  assert_ok(combine(l));
  sanitize_refuses((void)0, MOERT_ERROR_INVALID_STATE, NO_DISPATCH);
  make_grouped(l, EXPERTS);
  assert_ok(dispatch(l));
  sanitize_refuses((void)0, MOERT_ERROR_INVALID_STATE,
                   "the dispatch before had layout expert_grouped, must have rank_major: rows of the other layout have no padding between them");
#undef sanitize_refuses
}

static void calls_alternate(void **state) {
  layer *l = &((alone *)*state)->l;
  for (int round = 0; round < 3; ++round) {
    combine_refuses((void)0, MOERT_ERROR_INVALID_STATE, "no dispatch on this workspace waits for its combine: call moe.dispatch first");
    assert_ok(dispatch(l));
    dispatch_refuses((void)0, MOERT_ERROR_INVALID_STATE, "the dispatch before on this workspace waits for its combine: call moe.combine first");
    assert_ok(combine(l));
  }
}

static void combine_refuses_another_round(void **state) {
  layer *l = &((alone *)*state)->l;
  assert_ok(dispatch(l));
  combine_refuses(l->combine_args.runtime_max_tokens_per_rank = 3, MOERT_ERROR_INVALID_STATE,
                  "operand 'runtime_max_tokens_per_rank' is 3, must be 4 as in the dispatch");
  combine_refuses(l->combine_params.top_k = 3, MOERT_ERROR_INVALID_STATE, "parameter 'top_k' is 3, must be 2 as in the dispatch");
  combine_refuses(make_grouped(l, EXPERTS), MOERT_ERROR_INVALID_STATE, "parameter 'layout' is expert_grouped, must be rank_major as in the dispatch");
  combine_refuses(l->out.shape[0] = 2, MOERT_ERROR_INVALID_STATE, "operand 'out' has 2 tokens, must have 3 as in the dispatch");
  combine_refuses(l->combine_params.ep_size = 2, MOERT_ERROR_INVALID_ARGUMENT,
                  "parameter 'ep_size' is 2, must be 0 or 1, the ranks of the communicator");
  char text[256];
  snprintf(text, sizeof text, "moe.combine: operand 'combine_payload_offset' is 0, must be %" PRId64 " as in the dispatch", l->offset_result);
  refuses(combine(l), l, l->combine_args.combine_payload_offset = 0, MOERT_ERROR_INVALID_STATE, text);
  assert_ok(combine(l));
}

static void combine_refuses_payloads(void **state) {
  layer *l = &((alone *)*state)->l;
  assert_ok(dispatch(l));
#define PAYLOAD_SHAPE "operand 'payload' must be [1, 4, ...] (ranks, runtime_max_tokens_per_rank)"
  combine_refuses(l->result.shape[0] = 2, MOERT_ERROR_INVALID_SHAPE, PAYLOAD_SHAPE);
  combine_refuses(l->result.shape[1] = 3, MOERT_ERROR_INVALID_SHAPE, PAYLOAD_SHAPE);
  combine_refuses(l->result.ndim = 1, MOERT_ERROR_INVALID_SHAPE, PAYLOAD_SHAPE);
  combine_refuses(l->result.shape[2] = 3, MOERT_ERROR_INVALID_SHAPE, "operand 'payload' has rows of 3 elements, must have 4 (hidden_size)");
  combine_refuses(l->out.shape[1] = 3, MOERT_ERROR_INVALID_SHAPE, "operand 'out' must be [3, ...] with the trailing dimensions of 'payload'");
  combine_refuses((l->result.shape[2] = l->out.shape[1] = l->combine_params.hidden_size = 5), MOERT_ERROR_CAPACITY,
                  "operand 'payload' has rows of 10 bytes, must have at most 8 (combine_bytes_per_token)");
  assert_ok(combine(l));
}

static void combine_refuses_places(void **state) {
  layer *l = &((alone *)*state)->l;
  assert_ok(dispatch(l));
  char *area = (char *)l->workspace.data + l->offset_result, text[256];
  combine_refuses(l->result.data = area, MOERT_ERROR_OVERLAP,
                  "operand 'payload' lies in the combine area of the workspace: set payload_in_workspace, or pass it elsewhere");
  combine_refuses((l->out.data = area, l->out.dtype = BF16), MOERT_ERROR_OVERLAP,
                  "operand 'out' lies in the workspace, which other ranks use during this call");
  snprintf(text, sizeof text, "moe.combine: operand 'payload' is at %p, must be at %p (workspace + combine_payload_offset) with payload_in_workspace",
           (void *)(area + 8), (void *)area);
  refuses(combine(l), l, (l->combine_params.payload_in_workspace = 1, l->result.data = area + 8), MOERT_ERROR_INVALID_ARGUMENT, text);
  l->combine_params.payload_in_workspace = 1;
  l->result.data = area;
  assert_ok(combine(l));
}

static void combine_refuses_grouped(void **state) {
  layer *l = &((alone *)*state)->l;
  make_grouped(l, EXPERTS);
  assert_ok(dispatch(l));
  combine_refuses(l->combine_params.payload_in_workspace = 1, MOERT_ERROR_INVALID_ARGUMENT,
                  "parameter 'payload_in_workspace' is 1, must be 0 with layout expert_grouped");
  combine_refuses(l->result.shape[0] = 5, MOERT_ERROR_INVALID_SHAPE,
                  "operand 'payload' has 5 rows, must have at least 6, which the dispatch received");
  assert_ok(combine(l));
  for (int i = 0; i < TOKENS * HIDDEN; ++i) assert_true((&l->out_data[0][0])[i] == 2.0f); // two experts of result 1
}

//===--- several ranks ----------------------------------------------------------------------------===//

typedef struct team team;
typedef moert_status team_body(team *shared, layer *l, int32_t rank);

// Ranks with a layer each: all open theirs, meet, and run `body`.
struct team {
  team_body *body;
  const char *stop_op, *stop_phase; // of `odd`
  int64_t timeout_ms;
  int32_t odd; // the rank that does something else
  layer layers[RANKS];
  int64_t elapsed_ms[RANKS];
  bool grouped;
  int variant;
  _Atomic int left; // a rank has gone for good
};

static int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int64_t experts_of(int32_t rank, int32_t ranks) { return EXPERTS / ranks + (rank < EXPERTS % ranks); }

static moert_status run_member(rank_run *run) {
  team *shared = run->user;
  layer *l = &shared->layers[run->rank];
  moert_status status = open_layer(l, run->comm, NULL, 0);
  if (shared->grouped) make_grouped(l, experts_of(run->rank, run->size));
  moert_context *opened_with = l->context;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = shared->timeout_ms;
  if (run->rank == shared->odd) {
    options.stop_op = shared->stop_op;
    options.stop_phase = shared->stop_phase;
  }
  if (!status) status = moert_context_create(run->comm, &options, &l->context);
  if (!status) status = moert_comm_barrier(run->comm, 0);
  int64_t start = now_ms();
  if (!status) status = shared->body(shared, l, run->rank);
  shared->elapsed_ms[run->rank] = now_ms() - start;
  if (l->context != opened_with) moert_context_destroy(opened_with);
  return status;
}

static void run_team(team *shared, rank_run *runs, int32_t ranks) {
  moert_comm *comms[RANKS];
  assert_ok(moert_comm_create_threads(ranks, NULL, comms));
  run_ranks(runs, comms, ranks, run_member, shared);
  for (int32_t r = 0; r < ranks; ++r) close_layer(&shared->layers[r]);
  destroy_ranks(comms, ranks);
}

static moert_status play_round(team *shared, layer *l, int32_t rank) {
  (void)shared, (void)rank;
  moert_status status = dispatch(l);
  return status ? status : combine(l);
}

static void assert_team_works(bool grouped) {
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = play_round, .odd = -1, .grouped = grouped};
  rank_run runs[RANKS];
  run_team(shared, runs, RANKS);
  for (int32_t r = 0; r < RANKS; ++r) {
    assert_ok(runs[r].status);
    for (int t = 0; t < TOKENS; ++t) { // the results are 1: a row of each rank, or of each expert
      const int32_t *ids = shared->layers[r].ids_data[t];
      bool same_rank = ids[0] / 2 == ids[1] / 2; // of 7 experts, ranks own 2, 2, 2, 1
      for (int h = 0; h < HIDDEN; ++h) assert_true(shared->layers[r].out_data[t][h] == (same_rank && !grouped ? 1.0f : 2.0f));
    }
  }
  free(shared);
}

static void teams_work(void **state) {
  (void)state;
  assert_team_works(false);
  assert_team_works(true);
}

//===--- a rank that stops ------------------------------------------------------------------------===//

static void assert_dispatch_poisoned(const layer *l, bool grouped, int64_t experts, int32_t ranks) {
  size_t rows = grouped ? ROOM : (size_t)(ranks * MAX_TOKENS);
  for (int i = 0; i < 2; ++i) assert_true(is_poison(l->recv_data[i], rows * HIDDEN * sizeof(uint16_t)));
  if (grouped)
    assert_true(is_poison(l->offsets_data, (size_t)(experts + 1) * sizeof(int32_t)));
  else
    assert_true(is_poison(l->counts_data, (size_t)ranks * sizeof(int32_t)));
  assert_int_equal(l->offset_result, -1);
}

// After a failed wait the communicator refuses what needs peers, without waiting again.
static moert_status play_and_again(team *shared, layer *l, int32_t rank) {
  moert_status status = play_round(shared, l, rank);
  if (status == MOERT_ERROR_STOPPED) return status;
  int64_t start = now_ms();
  moert_status again = dispatch(l);
  return again == status && now_ms() - start < DEADLINE_MS ? status : MOERT_ERROR_INTERNAL;
}

static void assert_survivors(const char *op, const char *phase, const char *what, int epoch, bool grouped, int32_t ranks) {
  enum { DEAD = 1 };
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = play_round, .stop_op = op, .stop_phase = phase, .timeout_ms = DEADLINE_MS, .odd = DEAD, .grouped = grouped};
  rank_run runs[RANKS];
  run_team(shared, runs, ranks);
  bool in_dispatch = epoch == 1;
  for (int32_t r = 0; r < ranks; ++r) {
    char text[256];
    if (r == DEAD) {
      snprintf(text, sizeof text, "%s: rank %d was stopped at phase '%s'", op, DEAD, phase);
      assert_string_equal(moert_status_name(runs[r].status), "MOERT_ERROR_STOPPED");
      assert_string_equal(runs[r].error, text);
      continue;
    }
    snprintf(text, sizeof text, "%s: rank %" PRId32 " waited %d ms for rank %d (%s, epoch %d)", op, r, DEADLINE_MS, DEAD, what, epoch);
    assert_string_equal(runs[r].error, text);
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_TIMEOUT);
    assert_true(shared->elapsed_ms[r] >= DEADLINE_MS && shared->elapsed_ms[r] < DEADLINE_MS + SLACK_MS);
    if (in_dispatch)
      assert_dispatch_poisoned(&shared->layers[r], grouped, experts_of(r, ranks), ranks);
    else
      assert_true(is_poison(shared->layers[r].out_data, TOKENS * HIDDEN * sizeof(float)));
  }
  free(shared);
}

static void a_rank_stops_in_dispatch(void **state) {
  (void)state;
  for (int grouped = 0; grouped < 2; ++grouped) {
    assert_survivors("moe.dispatch", "entry", "its counts", 1, grouped, 3);
    assert_survivors("moe.dispatch", "counts", "its data", 1, grouped, 4);
    assert_survivors("moe.dispatch", "data", "its data", 1, grouped, 3);
    assert_survivors("moe.dispatch", "flag", "its data", 1, grouped, 4);
  }
  teams_work(NULL);
}

static void a_rank_stops_in_combine(void **state) {
  (void)state;
  static const char *const phases[] = {"entry", "counts", "data", "flag"};
  for (size_t i = 0; i < COUNT(phases); ++i) assert_survivors("moe.combine", phases[i], "its data", 2, i % 2, i < 2 ? 3 : 4);
  teams_work(NULL);
}

static moert_status initialize_again(team *shared, layer *l, int32_t rank) {
  (void)shared, (void)rank;
  return initialize(l);
}

static void a_rank_stops_in_initialize(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = initialize_again, .stop_op = "moe.initialize", .stop_phase = "entry", .timeout_ms = DEADLINE_MS, .odd = 2};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  assert_string_equal(runs[2].error, "moe.initialize: rank 2 was stopped at phase 'entry'");
  for (int32_t r = 0; r < 2; ++r) assert_non_null(strstr(runs[r].error, "ms for rank 2 (at a barrier, epoch "));
  for (int32_t r = 0; r < 2; ++r) assert_int_equal(runs[r].status, MOERT_ERROR_PEER_TIMEOUT);
  free(shared);
}

static void the_error_stands(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = play_and_again, .stop_op = "moe.dispatch", .stop_phase = "data", .timeout_ms = DEADLINE_MS, .odd = 0};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  assert_int_equal(runs[0].status, MOERT_ERROR_STOPPED);
  for (int32_t r = 1; r < 3; ++r) {
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_TIMEOUT);
    assert_string_equal(runs[r].error,
                        "moe.dispatch: the communicator stands in error since an earlier call: MOERT_ERROR_PEER_TIMEOUT (another rank did "
                        "not arrive before the deadline)");
  }
  free(shared);
}

static moert_status report_instead(team *shared, layer *l, int32_t rank) {
  if (rank != shared->odd) return play_round(shared, l, rank);
  moert_comm_report(moert_context_comm(l->context), MOERT_ERROR_DATA);
  return MOERT_OK;
}

static void a_rank_reports_an_error(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = report_instead, .odd = 1};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  for (int32_t r = 0; r < 3; r += 2) {
    char text[256];
    snprintf(text, sizeof text, "moe.dispatch: rank 1 reported MOERT_ERROR_DATA while rank %" PRId32 " waited for it (its counts, epoch 1)", r);
    assert_string_equal(runs[r].error, text);
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_FAILED);
    assert_dispatch_poisoned(&shared->layers[r], false, 0, 3);
  }
  free(shared);
}

//===--- ranks that do not do the same ------------------------------------------------------------===//

enum { OTHER_TOP_K, OTHER_R, OTHER_EXPERTS, OTHER_LAYOUT, OTHER_DTYPE, OTHER_ROW, OTHER_NUMBER, DISPATCH_VARIANTS };

static void make_other(layer *l, int variant, int64_t experts) {
  switch (variant) {
  case OTHER_TOP_K: l->dispatch_params.top_k = l->ids.shape[1] = 1; break;
  case OTHER_R:
    l->dispatch_args.runtime_max_tokens_per_rank = 3;
    for (int i = 0; i < 2; ++i) l->recv[i].shape[1] = 3;
    break;
  case OTHER_EXPERTS: l->dispatch_params.n_experts = 8; break;
  case OTHER_LAYOUT: make_grouped(l, experts); break;
  case OTHER_DTYPE: l->payloads[1].dtype = l->recv[1].dtype = F16; break;
  case OTHER_ROW: l->payloads[1].shape[1] = l->recv[1].shape[2] = 3; break;
  default: l->dispatch_args.num_payloads = l->dispatch_args.num_recv = 1; break;
  }
}

static moert_status dispatch_otherwise(team *shared, layer *l, int32_t rank) {
  if (rank == shared->odd) make_other(l, shared->variant, experts_of(rank, 3));
  return dispatch(l);
}

// Everybody learns of it: those that do as they should, and the one that does not.
static void assert_mismatch(const rank_run *runs, int32_t odd, const char *op, const char *wait) {
  for (int32_t r = 0; r < 3; ++r) {
    char text[256];
    int32_t other = r != odd ? odd : odd == 0 ? 1 : 0;
    snprintf(text, sizeof text, "%s: rank %" PRId32 " called another op or used other parameters than rank %" PRId32 " (%s): hash ", op, other, r,
             wait);
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_MISMATCH);
    assert_memory_equal(runs[r].error, text, strlen(text));
  }
}

static void parameters_differ_in_dispatch(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  for (int variant = 0; variant < DISPATCH_VARIANTS; ++variant) {
    rank_run runs[RANKS];
    *shared = (team){.body = dispatch_otherwise, .odd = variant % 3, .variant = variant};
    run_team(shared, runs, 3);
    assert_mismatch(runs, shared->odd, "moe.dispatch", "its counts, epoch 1");
    for (int32_t r = 0; r < 3; ++r) assert_int_equal(shared->layers[r].offset_result, -1);
  }
  free(shared);
  teams_work(NULL);
}

static moert_status combine_otherwise(team *shared, layer *l, int32_t rank) {
  moert_status status = dispatch(l);
  if (rank == shared->odd && shared->variant) l->result.dtype = F16;
  if (rank == shared->odd && !shared->variant) l->result.shape[2] = l->out.shape[1] = l->combine_params.hidden_size = 3;
  return status ? status : combine(l);
}

static void parameters_differ_in_combine(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  for (int variant = 0; variant < 2; ++variant) {
    rank_run runs[RANKS];
    *shared = (team){.body = combine_otherwise, .odd = 1 + variant, .variant = variant};
    run_team(shared, runs, 3);
    assert_mismatch(runs, shared->odd, "moe.combine", "its data, epoch 2");
    assert_true(is_poison(shared->layers[0].out_data, TOKENS * HIDDEN * sizeof(float)));
  }
  free(shared);
}

// One rank initialises while the others combine: that meets elsewhere, so that they miss each other.
static moert_status initialize_instead(team *shared, layer *l, int32_t rank) {
  moert_status status = play_round(shared, l, rank);
  if (!status) status = dispatch(l);
  if (!status && rank != shared->odd) return combine(l);
  return status ? status : initialize(l);
}

static void another_op(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = initialize_instead, .odd = 1, .timeout_ms = DEADLINE_MS};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  bool timed_out = false; // the first whose deadline passes; the others notice that one
  for (int32_t r = 0; r < 3; ++r) {
    timed_out |= runs[r].status == MOERT_ERROR_PEER_TIMEOUT;
    assert_true(runs[r].status == MOERT_ERROR_PEER_TIMEOUT || runs[r].status == MOERT_ERROR_PEER_FAILED);
  }
  assert_true(timed_out);
  free(shared);
}

static moert_status initialize_otherwise(team *shared, layer *l, int32_t rank) {
  if (rank == shared->odd) l->sizes.max_num_tokens = 3;
  return initialize(l);
}

static void parameters_differ_in_initialize(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = initialize_otherwise, .odd = 2};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  assert_string_equal(runs[0].error, "moe.initialize: rank 2 used another workspace or other parameters than rank 0");
  assert_string_equal(runs[1].error, "moe.initialize: rank 2 used another workspace or other parameters than rank 1");
  assert_string_equal(runs[2].error, "moe.initialize: rank 0 used another workspace or other parameters than rank 2");
  for (int32_t r = 0; r < 3; ++r) assert_int_equal(runs[r].status, MOERT_ERROR_PEER_MISMATCH);
  free(shared);
}

static moert_status too_few_experts(team *shared, layer *l, int32_t rank) {
  (void)shared, (void)rank;
  l->dispatch_params.n_experts = 2;
  return dispatch(l);
}

static void fewer_experts_than_ranks(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = too_few_experts, .odd = -1};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  for (int32_t r = 0; r < 3; ++r)
    assert_string_equal(runs[r].error, "moe.dispatch: parameter 'n_experts' is 2, must be at least 3, the ranks of the communicator");
  free(shared);
}

//===--- recovery ---------------------------------------------------------------------------------===//

enum { WITHOUT_IT, WITH_IT }; // variants: whether the rank that stopped lives on

static uint64_t survivors(const team *shared, int32_t ranks) {
  uint64_t all = (UINT64_C(1) << ranks) - 1;
  return shared->variant == WITH_IT ? all : all & ~(UINT64_C(1) << shared->odd);
}

// A round fails, the survivors recover, and play more.
static moert_status fail_and_recover(team *shared, layer *l, int32_t rank) {
  moert_comm *comm = moert_context_comm(l->context);
  uint64_t mask = survivors(shared, moert_comm_size(comm));
  if (!play_round(shared, l, rank)) return MOERT_ERROR_INTERNAL;
  if (!(mask >> rank & 1)) return MOERT_OK;
  moert_context_destroy(l->context);
  moert_status status = moert_context_create(comm, NULL, &l->context);
  if (!status) status = moert_comm_recover(comm, mask, 0);
  for (int round = 0; round < 3 && !status; ++round) status = play_round(shared, l, rank);
  return status;
}

// The results are 1: a row of each rank that lives, or of each of their experts.
static float expected_sum(const layer *l, int t, uint64_t mask, bool grouped) {
  const int32_t *ids = l->ids_data[t];
  int first = mask >> ids[0] / 2 & 1, second = mask >> ids[1] / 2 & 1; // of 7 experts, ranks own 2, 2, 2, 1
  return (float)(ids[0] / 2 == ids[1] / 2 && !grouped ? first : first + second);
}

static int expected_count(const layer *source, int32_t rank) {
  int count = 0;
  for (int t = 0; t < TOKENS; ++t) count += source->ids_data[t][0] / 2 == rank || source->ids_data[t][1] / 2 == rank;
  return count;
}

static void assert_survivor(const team *shared, int32_t rank, uint64_t mask) {
  const layer *l = &shared->layers[rank];
  for (int t = 0; t < TOKENS; ++t)
    for (int h = 0; h < HIDDEN; ++h) assert_true(l->out_data[t][h] == expected_sum(l, t, mask, shared->grouped));
  for (int32_t s = 0; s < RANKS && !shared->grouped; ++s)
    assert_int_equal(l->counts_data[s], mask >> s & 1 ? expected_count(&shared->layers[s], rank) : 0);
}

static void assert_recovers(const char *op, const char *phase, int32_t odd, bool grouped, int variant) {
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){
      .body = fail_and_recover, .stop_op = op, .stop_phase = phase, .timeout_ms = DEADLINE_MS, .odd = odd, .grouped = grouped, .variant = variant};
  rank_run runs[RANKS];
  run_team(shared, runs, RANKS);
  uint64_t mask = survivors(shared, RANKS);
  for (int32_t r = 0; r < RANKS; ++r) assert_string_equal(runs[r].error, "");
  for (int32_t r = 0; r < RANKS; ++r)
    if (mask >> r & 1) assert_survivor(shared, r, mask);
  free(shared);
}

static void ranks_recover_without_one(void **state) {
  (void)state;
  for (int grouped = 0; grouped < 2; ++grouped) {
    assert_recovers("moe.dispatch", "entry", 0, grouped, WITHOUT_IT);
    assert_recovers("moe.dispatch", "counts", 1, grouped, WITHOUT_IT);
    assert_recovers("moe.dispatch", "data", 2, grouped, WITHOUT_IT);
    assert_recovers("moe.combine", "entry", 3, grouped, WITHOUT_IT);
    assert_recovers("moe.combine", "flag", 1, grouped, WITHOUT_IT);
  }
}

static void all_ranks_recover(void **state) {
  (void)state;
  assert_recovers("moe.dispatch", "counts", 2, false, WITH_IT);
  assert_recovers("moe.combine", "data", 0, true, WITH_IT);
}

// Recovery is what lets a rank leave a round that it cannot end; its workspace forgets the round.
static void recovery_forgets_rounds(void **state) {
  alone *a = *state;
  assert_ok(dispatch(&a->l));
  assert_ok(moert_comm_recover(a->comm, 1, 0));
  assert_fails(combine(&a->l), MOERT_ERROR_INVALID_STATE,
               "moe.combine: no dispatch on this workspace waits for its combine: call moe.dispatch first");
  assert_ok(dispatch(&a->l));
  assert_ok(combine(&a->l));
}

// A workspace that another was made over is none any more, and is not cleared with the others.
static void recovery_leaves_what_was_overwritten(void **state) {
  alone *a = *state;
  layer *l = &a->l, over = *l;
  make_operands(&over, 1);
  make_calls(&over);
  over.workspace = l->workspace;
  over.workspace.byte_offset = 1024;
  assert_ok(initialize(&over));
  assert_ok(moert_comm_recover(a->comm, 1, 0));
  assert_ok(dispatch(&over));
  assert_ok(combine(&over));
  dispatch_refuses((void)0, MOERT_ERROR_INVALID_STATE, UNFIT);
}

//===--- ranks that are left out of a call --------------------------------------------------------===//

static moert_status masked_round(layer *l, int64_t mask) {
  l->dispatch_args.active_rank_mask = l->combine_args.active_rank_mask = mask;
  memset(l->out_data, 0x5a, sizeof l->out_data);
  memset(l->counts_data, 0x5a, sizeof l->counts_data);
  return play_round(NULL, l, 0);
}

static uint64_t without(const team *shared) { return (UINT64_C(1) << RANKS) - 1 - (UINT64_C(1) << shared->odd); }

static uint64_t checksum(const layer *l) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < l->workspace.shape[0]; ++i) sum = 31 * sum + ((const unsigned char *)l->workspace.data)[i];
  return sum;
}

static bool counters_fit(const layer *l, uint64_t mask) {
  const int32_t *counters = (const int32_t *)((const char *)l->workspace.data + l->metainfo_data[MOERT_METAINFO_RECV_COUNTERS]);
  for (int32_t s = 0; s < RANKS; ++s)
    if (!(mask >> s & 1) && counters[s] != 0) return false;
  return true;
}

// One rank stays away, or takes part in the first round alone: what it had sent there does not count any more, and its slab stays as it is.
static moert_status stay_away(team *shared, layer *l, int32_t rank) {
  moert_comm *comm = moert_context_comm(l->context);
  int64_t mask = (int64_t)without(shared);
  moert_status status = shared->variant == WITH_IT ? masked_round(l, 15) : MOERT_OK;
  if (!status) status = moert_comm_barrier(comm, 0);
  uint64_t before = rank == shared->odd ? checksum(l) : 0;
  if (!status && rank != shared->odd)
    for (int round = 0; round < 3 && !status; ++round) status = masked_round(l, mask);
  if (!status) status = moert_comm_barrier(comm, 0);
  if (!status && rank == shared->odd && checksum(l) != before) return MOERT_ERROR_INTERNAL;
  if (!status && rank != shared->odd && !counters_fit(l, (uint64_t)mask)) return MOERT_ERROR_INTERNAL;
  return status;
}

static void ranks_leave_one_out(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  for (int way = 0; way < 4 * RANKS; ++way) {
    rank_run runs[RANKS];
    *shared = (team){.body = stay_away, .odd = way % RANKS, .grouped = way / RANKS % 2, .variant = way / (2 * RANKS) ? WITH_IT : WITHOUT_IT};
    run_team(shared, runs, RANKS);
    for (int32_t r = 0; r < RANKS; ++r) {
      assert_string_equal(runs[r].error, "");
      assert_ok(runs[r].status);
      if (r != shared->odd) assert_survivor(shared, r, without(shared));
    }
  }
  free(shared);
}

__attribute__((format(printf, 3, 4))) static moert_status must_fail(moert_status status, moert_status expected, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status == expected && strcmp(moert_last_error(), text) == 0 ? MOERT_OK : MOERT_ERROR_INTERNAL;
}

static moert_status dispatch_wrongly(layer *l, int32_t rank) {
  unsigned others = 15u - (1u << rank), beyond = 16u + (1u << rank);
  l->dispatch_args.active_rank_mask = others;
  moert_status status =
      must_fail(dispatch(l), MOERT_ERROR_INVALID_ARGUMENT,
                "moe.dispatch: operand 'active_rank_mask' is 0x%x, must have bit %" PRId32 ": that of the calling rank", others, rank);
  l->dispatch_args.active_rank_mask = beyond;
  return status ? status
                : must_fail(dispatch(l), MOERT_ERROR_INVALID_ARGUMENT,
                            "moe.dispatch: operand 'active_rank_mask' is 0x%x, must be less than 0x10: the communicator has 4 ranks", beyond);
}

// Behind a dispatch of all ranks.
static moert_status combine_wrongly(layer *l, int32_t rank) {
  unsigned own = 1u << rank, others = 15u - own;
  l->combine_args.active_rank_mask = own;
  moert_status status =
      must_fail(combine(l), MOERT_ERROR_INVALID_STATE, "moe.combine: operand 'active_rank_mask' is 0x%x, must be 0xf as in the dispatch", own);
  l->combine_args.active_rank_mask = others;
  return status ? status
                : must_fail(combine(l), MOERT_ERROR_INVALID_ARGUMENT,
                            "moe.combine: operand 'active_rank_mask' is 0x%x, must have bit %" PRId32 ": that of the calling rank", others, rank);
}

// A round of all ranks, then one in which each plays for itself.
static moert_status pass_wrong_masks(team *shared, layer *l, int32_t rank) {
  (void)shared;
  moert_status status = dispatch_wrongly(l, rank);
  l->dispatch_args.active_rank_mask = 15;
  if (!status) status = dispatch(l);
  if (!status) status = combine_wrongly(l, rank);
  l->combine_args.active_rank_mask = 0; // all ranks, which 15 are too
  if (!status) status = combine(l);
  l->dispatch_args.active_rank_mask = 1 << rank;
  if (!status) status = dispatch(l);
  if (!status)
    status = must_fail(combine(l), MOERT_ERROR_INVALID_STATE,
                       "moe.combine: operand 'active_rank_mask' is 0xf, as it is absent, must be 0x%x as in the dispatch", 1u << rank);
  l->combine_args.active_rank_mask = 1 << rank;
  return status ? status : combine(l);
}

static void masks_must_fit(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = pass_wrong_masks, .odd = -1};
  rank_run runs[RANKS];
  run_team(shared, runs, RANKS);
  for (int32_t r = 0; r < RANKS; ++r) {
    assert_string_equal(runs[r].error, "");
    assert_ok(runs[r].status);
    assert_survivor(shared, r, UINT64_C(1) << r);
  }
  free(shared);
}

// Rank 1 leaves out rank 2, which nobody else does: rank 2 hears nothing of it, and learns that a peer has failed.
static moert_status leave_out_2(team *shared, layer *l, int32_t rank) {
  if (rank == shared->odd) l->dispatch_args.active_rank_mask = 3;
  return dispatch(l);
}

static void masks_differ(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = leave_out_2, .odd = 1};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  for (int32_t r = 0; r < 2; ++r) {
    char text[256];
    snprintf(text, sizeof text,
             "moe.dispatch: rank %" PRId32 " called another op or used other parameters than rank %" PRId32 " (its counts, epoch 1): hash ", 1 - r,
             r);
    assert_int_equal(runs[r].status, MOERT_ERROR_PEER_MISMATCH);
    assert_memory_equal(runs[r].error, text, strlen(text));
  }
  assert_int_equal(runs[2].status, MOERT_ERROR_PEER_FAILED);
  for (int32_t r = 0; r < 3; ++r) assert_dispatch_poisoned(&shared->layers[r], false, 0, 3);
  free(shared);
}

enum { BY_INITIALIZE, BY_RECOVERY, FOR_GOOD };

// Behind a round of the ranks 0 and 2: with all that live, and with those of the round before.
static moert_status dispatch_with_others(layer *l) {
  moert_status status = MOERT_OK;
  for (int32_t mask = 0; mask <= 13 && !status; mask += 13) {
    l->dispatch_args.active_rank_mask = mask;
    status = must_fail(dispatch(l), MOERT_ERROR_INVALID_STATE,
                       "moe.dispatch: rank %d was left out of the dispatch before by its 'active_rank_mask' 0x5: call moe.initialize on all ranks "
                       "before it takes part again",
                       mask ? 3 : 1);
  }
  return status;
}

static moert_status begin_anew(const team *shared, layer *l) {
  moert_comm *comm = moert_context_comm(l->context);
  if (shared->variant == BY_INITIALIZE) return initialize(l);
  moert_status status = moert_comm_recover(comm, shared->variant == FOR_GOOD ? 13 : 15, 0);
  if (status || shared->variant != FOR_GOOD) return status;
  l->dispatch_args.active_rank_mask = 15;
  return must_fail(dispatch(l), MOERT_ERROR_INVALID_ARGUMENT,
                   "moe.dispatch: operand 'active_rank_mask' is 0xf, must have no ranks but those that live, 0xd: leave out rank 1");
}

// Fewer and fewer take part. Who was left out is behind, and is not waited for in vain: it comes back when all begin anew, or never.
static moert_status come_back(team *shared, layer *l, int32_t rank) {
  moert_status status = masked_round(l, 15);
  if (rank == 1) shared->left = 1;
  if (!status && rank != 1) status = masked_round(l, 13);
  if (!status && rank % 2 == 0) status = masked_round(l, 5);
  if (!status && rank % 2 == 0) status = dispatch_with_others(l);
  if (status || (shared->variant == FOR_GOOD && rank == 1)) return status;
  while (!shared->left) sched_yield();
  status = begin_anew(shared, l);
  return status ? status : masked_round(l, 0);
}

static void ranks_come_back(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  for (int variant = BY_INITIALIZE; variant <= FOR_GOOD; ++variant) {
    rank_run runs[RANKS];
    *shared = (team){.body = come_back, .odd = -1, .variant = variant, .grouped = variant == BY_RECOVERY};
    run_team(shared, runs, RANKS);
    for (int32_t r = 0; r < RANKS; ++r) {
      assert_string_equal(runs[r].error, "");
      assert_ok(runs[r].status);
      if (variant != FOR_GOOD || r != 1) assert_survivor(shared, r, variant == FOR_GOOD ? 13 : 15);
    }
  }
  free(shared);
}

//===--- a destination without room ---------------------------------------------------------------===//

static moert_status with_little_room(team *shared, layer *l, int32_t rank) {
  for (int t = 0; t < TOKENS; ++t)
    for (int k = 0; k < TOP_K; ++k) l->ids_data[t][k] = 0;
  memset(l->recv_data, 0x5a, sizeof l->recv_data);
  memset(l->offsets_data, 0x5a, sizeof l->offsets_data);
  if (rank == shared->odd)
    for (int i = 0; i < LIST; ++i) l->recv[i].shape[0] = 17;
  return play_round(shared, l, rank);
}

static void more_rows_than_room(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = with_little_room, .odd = 0, .grouped = true};
  rank_run runs[RANKS];
  run_team(shared, runs, 3);
  assert_int_equal(runs[0].status, MOERT_ERROR_CAPACITY);
  assert_string_equal(runs[0].error, "moe.dispatch: 18 rows arrived for the experts of rank 0, operand 'recv[0]' has room for 17");
  for (size_t i = 0; i < sizeof shared->layers[0].recv_data; ++i) assert_int_equal(((unsigned char *)shared->layers[0].recv_data)[i], 0x5a);
  assert_int_equal(shared->layers[0].offsets_data[0], 0x5a5a5a5a);
  for (int32_t r = 1; r < 3; ++r) assert_int_equal(runs[r].status, MOERT_ERROR_PEER_FAILED); // in the combine
  free(shared);
}

//===--- many rounds ------------------------------------------------------------------------------===//

// Layouts alternate, rows are received and combined in place when they may be: what a thread sanitizer should see.
static moert_status play_many(team *shared, layer *l, int32_t rank) {
  moert_status status = MOERT_OK;
  layer grouped = *l;
  make_operands(&grouped, RANKS);
  make_calls(&grouped);
  make_grouped(&grouped, experts_of(rank, RANKS));
  grouped.workspace = l->workspace;
  char *slab = l->workspace.data;
  l->recv[0].data = slab + l->metainfo_data[MOERT_METAINFO_PAYLOAD_DATA];
  l->result.data = slab + l->metainfo_data[MOERT_METAINFO_COMBINE_DATA];
  l->combine_params.payload_in_workspace = 1;
  for (int round = 0; round < 100 && !status; ++round) {
    l->ids.shape[0] = l->out.shape[0] = (round + rank) % (TOKENS + 1);
    for (int i = 0; i < 2; ++i) l->payloads[i].shape[0] = l->ids.shape[0];
    status = dispatch(l);
    if (!status) memcpy(l->result.data, l->recv[0].data, sizeof(uint16_t) * RANKS * MAX_TOKENS * HIDDEN);
    if (!status) status = combine(l);
    if (!status && round % 3 == 0) status = play_round(shared, &grouped, rank);
  }
  return status;
}

static void many_rounds(void **state) {
  (void)state;
  team *shared = calloc(1, sizeof *shared);
  *shared = (team){.body = play_many, .odd = -1};
  rank_run runs[RANKS];
  run_team(shared, runs, RANKS);
  for (int32_t r = 0; r < RANKS; ++r) assert_string_equal(runs[r].error, "");
  free(shared);
}

int main(void) {
#define alone_test(test) cmocka_unit_test_setup_teardown(test, set_up_alone, tear_down_alone)
  const struct CMUnitTest tests[] = {
      alone_test(workspace_size_refuses),
      alone_test(workspace_view_refuses),
      alone_test(initialize_refuses),
      alone_test(dispatch_refuses_workspaces),
      alone_test(copies_of_workspaces_are_none),
      alone_test(dispatch_refuses_counts),
      alone_test(dispatch_refuses_masks),
      alone_test(dispatch_refuses_payloads),
      alone_test(dispatch_refuses_layouts),
      alone_test(dispatch_refuses_overlap),
      alone_test(sanitize_refuses_rounds_and_ids),
      alone_test(calls_alternate),
      alone_test(combine_refuses_another_round),
      alone_test(combine_refuses_payloads),
      alone_test(combine_refuses_places),
      alone_test(combine_refuses_grouped),
      cmocka_unit_test(teams_work),
      cmocka_unit_test(a_rank_stops_in_dispatch),
      cmocka_unit_test(a_rank_stops_in_combine),
      cmocka_unit_test(a_rank_stops_in_initialize),
      cmocka_unit_test(the_error_stands),
      cmocka_unit_test(a_rank_reports_an_error),
      cmocka_unit_test(parameters_differ_in_dispatch),
      cmocka_unit_test(parameters_differ_in_combine),
      cmocka_unit_test(another_op),
      cmocka_unit_test(parameters_differ_in_initialize),
      cmocka_unit_test(fewer_experts_than_ranks),
      cmocka_unit_test(ranks_recover_without_one),
      cmocka_unit_test(all_ranks_recover),
      alone_test(recovery_forgets_rounds),
      alone_test(recovery_leaves_what_was_overwritten),
      cmocka_unit_test(ranks_leave_one_out),
      cmocka_unit_test(masks_must_fit),
      cmocka_unit_test(masks_differ),
      cmocka_unit_test(ranks_come_back),
      cmocka_unit_test(more_rows_than_room),
      cmocka_unit_test(many_rounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

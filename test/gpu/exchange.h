//===- exchange.h - a dispatch and its combine on every rank, for tests -------------------------------===//
//
// A layer is what a rank passes to moe.dispatch and moe.combine; experts do nothing but make numbers. Its first payload is what the combine brings
// back, others may travel along.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_EXCHANGE_H
#define MOERT_TEST_EXCHANGE_H

#include "gpu.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <moert/workspace.h>
#include <string.h>

typedef enum exchange_ids {
  IDS_ANY,   // of all ranks, and some -1
  IDS_ONE,   // all of the last expert
  IDS_NONE,  // all -1
  IDS_WILD,  // negative ones, too large ones, the largest and smallest numbers among them
  IDS_TWICE, // each expert in two slots
  IDS_FIRST  // all of expert 0, and as many tokens on every rank
} exchange_ids;

typedef struct exchange_case {
  int64_t max_tokens, hidden, top_k, experts;
  const char *dtype, *out;
  bool grouped, in_place;
  exchange_ids ids;
  int64_t rounds;
  int64_t further; // payloads of odd row sizes
  int64_t shift;   // elements by which rows are displaced from a multiple of 256 bytes
  bool special;    // NaN, infinities, -0 among the numbers
} exchange_case;

enum { EXCHANGE_PAYLOADS = MOERT_WORKSPACE_MAX_PAYLOADS };

// An operand whose shape may be smaller than its memory.
typedef struct exchange_operand {
  gpu_buffer *memory;
  int64_t shape[3];
} exchange_operand;

typedef struct exchange_layer {
  gpu_rank *rank;
  exchange_case what;
  moert_context *context;
  moert_workspace_layout layout;
  int64_t tokens, most; // of this rank in this round; R
  int64_t capacity;     // of the grouped layout
  int64_t local_experts, offset, num_payloads;
  int64_t stats; // of each rank, that the workspace has room for
  gpu_buffer *workspace, *metainfo;
  exchange_operand ids, weights, payloads[EXCHANGE_PAYLOADS], recv[EXCHANGE_PAYLOADS], counts, offsets, result, out;
  moert_tensor payload_list[EXCHANGE_PAYLOADS], recv_list[EXCHANGE_PAYLOADS], combined;
  moert_moe_initialize_params sizes;
  moert_moe_dispatch_params dispatch_params;
  moert_moe_dispatch_args dispatch_args;
  moert_moe_combine_params combine_params;
  moert_moe_combine_args combine_args;
  moert_kernel *dispatch_kernel, *combine_kernel;
} exchange_layer;

//===--- operands ---------------------------------------------------------------------------------===//

static const int64_t exchange_odd_rows[EXCHANGE_PAYLOADS] = {0, 1, 16, 7, 36, 2, 130, 24}; // bytes of the further payloads

static inline moert_tensor exchange_tensor(exchange_operand *operand, int32_t ndim, int64_t a, int64_t b, int64_t c, int64_t shift) {
  moert_tensor tensor = operand->memory->tensor;
  operand->shape[0] = a, operand->shape[1] = b, operand->shape[2] = c;
  tensor.ndim = ndim;
  tensor.shape = operand->shape;
  tensor.byte_offset = (uint64_t)shift * (tensor.dtype.bits / 8);
  return tensor;
}

static inline moert_tensor *exchange_set(exchange_operand *operand, int32_t ndim, int64_t a, int64_t b) {
  operand->memory->tensor = exchange_tensor(operand, ndim, a, b, 0, 0);
  return &operand->memory->tensor;
}

static inline int64_t exchange_local_experts(const exchange_case *what, int64_t rank, int64_t size) {
  return what->experts / size + (rank < what->experts % size);
}

static inline const char *exchange_dtype(const exchange_layer *l, int64_t payload) { return payload == 0 ? l->what.dtype : "i8"; }

static inline int64_t exchange_columns(const exchange_layer *l, int64_t payload) {
  return payload == 0 ? l->what.hidden : exchange_odd_rows[payload];
}

static inline int64_t exchange_row_bytes(const exchange_case *what) { return what->hidden * (strcmp(what->dtype, "f32") == 0 ? 4 : 2); }

static inline void exchange_allocate(exchange_layer *l) {
  gpu_rank *rank = l->rank;
  const exchange_case *what = &l->what;
  int64_t rows = what->grouped ? l->capacity : rank->size * what->max_tokens;
  l->ids.memory = gpu_new(rank, "i32", 1, what->max_tokens * what->top_k);
  l->weights.memory = gpu_new(rank, "f32", 1, what->max_tokens * what->top_k);
  l->counts.memory = gpu_new(rank, "i32", 1, rank->size);
  l->offsets.memory = gpu_new(rank, "i32", 1, l->local_experts + 1);
  l->result.memory = gpu_new(rank, what->dtype, 1, rows * what->hidden + what->shift);
  l->out.memory = gpu_new(rank, what->out, 1, what->max_tokens * what->hidden + what->shift);
  for (int64_t i = 0; i < l->num_payloads; ++i) {
    l->payloads[i].memory = gpu_new(rank, exchange_dtype(l, i), 1, what->max_tokens * exchange_columns(l, i) + what->shift);
    l->recv[i].memory = gpu_new(rank, exchange_dtype(l, i), 1, rows * exchange_columns(l, i) + what->shift);
  }
}

// Only the first `count` payloads travel from now on.
static inline void exchange_use_payloads(exchange_layer *l, int64_t count) {
  l->num_payloads = l->dispatch_args.num_payloads = l->dispatch_args.num_recv = count;
}

// The operands for a round of `tokens` tokens here and at most `most` anywhere.
static inline void exchange_shape(exchange_layer *l, int64_t tokens, int64_t most) {
  const exchange_case *what = &l->what;
  int64_t size = l->rank->size, shift = what->shift;
  l->tokens = tokens;
  l->most = most;
  l->dispatch_args.runtime_max_tokens_per_rank = l->combine_args.runtime_max_tokens_per_rank = most;
  l->dispatch_args.topk_ids = exchange_set(&l->ids, 2, tokens, what->top_k);
  if (what->grouped) l->dispatch_args.topk_weights = exchange_set(&l->weights, 2, tokens, what->top_k);
  for (int64_t i = 0; i < l->num_payloads; ++i) {
    int64_t columns = exchange_columns(l, i);
    l->payload_list[i] = exchange_tensor(&l->payloads[i], 2, tokens, columns, 0, shift);
    l->recv_list[i] =
        what->grouped ? exchange_tensor(&l->recv[i], 2, l->capacity, columns, 0, shift) : exchange_tensor(&l->recv[i], 3, size, most, columns, shift);
  }
  l->combined = what->grouped ? exchange_tensor(&l->result, 2, l->capacity, what->hidden, 0, shift)
                              : exchange_tensor(&l->result, 3, size, most, what->hidden, shift);
  char *slab = l->workspace->tensor.data;
  if (what->in_place) {
    l->recv_list[0].data = slab + l->layout.offsets[MOERT_METAINFO_PAYLOAD_DATA];
    l->combined.data = slab + l->layout.offsets[MOERT_METAINFO_COMBINE_DATA];
    l->recv_list[0].byte_offset = l->combined.byte_offset = 0;
  }
  l->out.memory->tensor = exchange_tensor(&l->out, 2, tokens, what->hidden, 0, shift);
}

//===--- calls ------------------------------------------------------------------------------------===//

static inline void exchange_make_calls(exchange_layer *l) {
  const exchange_case *what = &l->what;
  l->sizes = (moert_moe_initialize_params)MOERT_MOE_INITIALIZE_PARAMS_INIT;
  l->sizes.max_num_tokens = what->max_tokens;
  l->sizes.combine_bytes_per_token = exchange_row_bytes(what);
  l->sizes.dispatch_bytes_per_token = exchange_row_bytes(what);
  for (int64_t i = 1; i < l->num_payloads; ++i) l->sizes.dispatch_bytes_per_token += exchange_odd_rows[i];
  l->sizes.eplb_stats_num_experts = l->stats;
  l->dispatch_params = (moert_moe_dispatch_params)MOERT_MOE_DISPATCH_PARAMS_INIT;
  l->dispatch_params.top_k = what->top_k;
  l->dispatch_params.n_experts = what->experts;
  l->combine_params = (moert_moe_combine_params)MOERT_MOE_COMBINE_PARAMS_INIT;
  l->combine_params.top_k = what->top_k;
  l->combine_params.hidden_size = what->hidden;
  l->combine_params.payload_in_workspace = what->in_place;
  if (what->grouped) l->dispatch_params.layout = MOERT_MOE_DISPATCH_LAYOUT_EXPERT_GROUPED;
  if (what->grouped) l->combine_params.layout = MOERT_MOE_COMBINE_LAYOUT_EXPERT_GROUPED;
  l->dispatch_args = (moert_moe_dispatch_args)MOERT_MOE_DISPATCH_ARGS_INIT;
  l->dispatch_args.num_payloads = l->dispatch_args.num_recv = l->num_payloads;
  l->dispatch_args.payloads = l->payload_list;
  l->dispatch_args.recv = l->recv_list;
  l->dispatch_args.combine_payload_offset = &l->offset;
  if (what->grouped) l->dispatch_args.offsets = exchange_set(&l->offsets, 1, l->local_experts + 1, 0);
  if (!what->grouped) l->dispatch_args.recv_counts = exchange_set(&l->counts, 1, l->rank->size, 0);
  l->combine_args = (moert_moe_combine_args)MOERT_MOE_COMBINE_ARGS_INIT;
  l->combine_args.payload = &l->combined;
  l->combine_args.out = &l->out.memory->tensor;
  l->dispatch_args.workspace = l->combine_args.workspace = &l->workspace->tensor;
  l->dispatch_args.metainfo = l->combine_args.metainfo = &l->metainfo->tensor;
}

static inline moert_status exchange_initialize(exchange_layer *l) {
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  args.workspace = &l->workspace->tensor;
  args.metainfo = &l->metainfo->tensor;
  return moert_moe_initialize(&l->sizes, &args, NULL, l->context);
}

// Collective. `capacity` is that of the grouped layout, 0: enough for everything.
static inline void exchange_open_for(exchange_layer *l, gpu_rank *rank, const exchange_case *what, int64_t capacity, int64_t stats) {
  *l = (exchange_layer){.rank = rank, .what = *what, .context = rank->context, .num_payloads = 1 + what->further, .stats = stats};
  l->local_experts = exchange_local_experts(what, rank->rank, rank->size);
  l->capacity = capacity ? capacity : rank->size * what->max_tokens * what->top_k;
  exchange_allocate(l);
  l->workspace = NULL;
  l->metainfo = gpu_new_host(rank, "i64", 1, MOERT_METAINFO_FIELDS);
  int64_t bytes = exchange_row_bytes(what);
  for (int64_t i = 1; i < l->num_payloads; ++i) bytes += exchange_odd_rows[i];
  moert_workspace_info info = {what->max_tokens, bytes, exchange_row_bytes(what), stats, rank->size};
  l->layout = moert_workspace_lay_out(&info);
  l->workspace = gpu_new_symmetric(rank, "i8", 1, l->layout.bytes);
  exchange_make_calls(l);
  exchange_shape(l, what->max_tokens, what->max_tokens);
  CHECK_OK(exchange_initialize(l));
}

static inline void exchange_open(exchange_layer *l, gpu_rank *rank, const exchange_case *what, int64_t capacity) {
  exchange_open_for(l, rank, what, capacity, 0);
}

static inline moert_status exchange_dispatch(exchange_layer *l) {
  moert_status status = moert_moe_dispatch(&l->dispatch_params, &l->dispatch_args, l->dispatch_kernel, l->context);
  l->combine_args.combine_payload_offset = l->offset;
  return status;
}

static inline moert_status exchange_combine(exchange_layer *l) {
  return moert_moe_combine(&l->combine_params, &l->combine_args, l->combine_kernel, l->context);
}

// Before ranks on one GPU wait for each other, all have made what they need: CUDA may let a call that makes or frees something wait for the kernels
// that run, and other calls of the process behind it.
static inline void exchange_settle(const gpu_rank *rank) { CHECK_OK(moert_comm_barrier(rank->comm, 0)); }

static inline moert_status exchange_enqueue(exchange_layer *l) {
  moert_status status = exchange_dispatch(l);
  return status ? status : exchange_combine(l);
}

// What the op says, and what it said when the device had come to its end.
static inline moert_status exchange_wait(const exchange_layer *l, moert_status status) {
  return status ? status : moert_context_synchronize(l->context);
}

static inline bool exchange_check_cuda(cudaError_t error, const char *call, int line) {
  return gpu_check(error == cudaSuccess, __FILE__, line, "%s: %s", call, cudaGetErrorString(error));
}
#define CHECK_CUDA(call) exchange_check_cuda(call, #call, __LINE__)

// What is enqueued as a graph, on the device already when this returns; NULL if that failed. Collective: no rank waits for another before all have
// theirs.
static inline cudaGraphExec_t exchange_capture_of(exchange_layer *l, moert_status (*enqueue)(exchange_layer *l)) {
  cudaStream_t stream = moert_context_stream(l->context);
  cudaGraph_t graph = NULL;
  cudaGraphExec_t executable = NULL;
  exchange_settle(l->rank);
  CHECK_CUDA(cudaSetDevice(moert_comm_device(l->rank->comm).id));
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK_OK(enqueue(l));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  if (CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0))) CHECK_CUDA(cudaGraphUpload(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  cudaGraphDestroy(graph);
  exchange_settle(l->rank);
  return executable;
}

static inline cudaGraphExec_t exchange_capture(exchange_layer *l) { return exchange_capture_of(l, exchange_enqueue); }

//===--- numbers ----------------------------------------------------------------------------------===//

static inline int32_t exchange_id(exchange_layer *l, int64_t k) {
  const exchange_case *what = &l->what;
  const int32_t odd[] = {-1, -7, INT32_MAX, INT32_MIN, (int32_t)what->experts};
  int64_t any = gpu_random_below(l->rank, what->experts + 1) - 1, chosen = gpu_random_below(l->rank, 10);
  switch (what->ids) {
  case IDS_ANY: return (int32_t)any;
  case IDS_ONE: return (int32_t)what->experts - 1;
  case IDS_NONE: return -1;
  case IDS_FIRST: return 0;
  case IDS_TWICE: return (int32_t)(k / 2 % what->experts);
  default: return chosen < 5 ? odd[chosen] : (int32_t)any;
  }
}

static inline void exchange_random(exchange_layer *l, gpu_buffer *buffer) {
  const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 3.0e38, 1.0e-40};
  gpu_random(buffer, buffer->tensor.dtype.code == MOERT_CODE_INT ? 100 : 2);
  if (!l->what.special || buffer->tensor.dtype.code == MOERT_CODE_INT) return;
  for (int64_t i = 0; i < buffer->count; ++i) {
    int64_t chosen = gpu_random_below(l->rank, 60);
    if (chosen < 7) gpu_set(buffer, i, special[chosen]);
  }
  gpu_upload(buffer);
}

// New ids, weights and rows. The host's copies of operands are always as large as their memory.
static inline void exchange_fill(exchange_layer *l) {
  for (int64_t i = 0; i < l->what.max_tokens * l->what.top_k; ++i) gpu_set(l->ids.memory, i, exchange_id(l, i % l->what.top_k));
  gpu_upload(l->ids.memory);
  gpu_random(l->weights.memory, 1);
  for (int64_t i = 0; i < l->num_payloads; ++i) exchange_random(l, l->payloads[i].memory);
  exchange_random(l, l->result.memory);
}

// In place, experts leave their numbers in the workspace.
static inline void exchange_run_experts(exchange_layer *l) {
  if (!l->what.in_place) return;
  size_t bytes = (size_t)(l->rank->size * l->most * exchange_row_bytes(&l->what));
  CHECK_OK(moert_copy(l->context, l->combined.data, l->result.memory->tensor.data, bytes));
}

// What a failed dispatch or combine leaves: ones in all its outputs.
static inline void exchange_check_poison(const exchange_layer *l, bool is_combine) {
  if (is_combine) {
    CHECK(gpu_is_filled(l->out.memory, 0xff));
    return;
  }
  for (int64_t i = 0; i < l->num_payloads; ++i) CHECK(gpu_is_filled(l->recv[i].memory, 0xff));
  CHECK(gpu_is_filled(l->what.grouped ? l->offsets.memory : l->counts.memory, 0xff));
}

//===--- results ----------------------------------------------------------------------------------===//

// `count` words of a region of this rank's slab.
static inline void exchange_region_result(exchange_layer *l, const char *name, int field, const char *dtype, int64_t count) {
  gpu_buffer *words = gpu_new_host(l->rank, dtype, 1, count);
  CHECK_OK(moert_copy(l->context, words->tensor.data, (char *)l->workspace->tensor.data + l->layout.offsets[field], words->bytes));
  gpu_result(name, words);
}

// What a region holds of the rows that were received, `each` words of 4 bytes a row; the other rows are nobody's concern.
static inline void exchange_rows_result(exchange_layer *l, const char *name, int field, int64_t each) {
  const int64_t lane = l->most * each;
  gpu_buffer *words = gpu_new_host(l->rank, "i32", 1, l->rank->size * lane), *counts = gpu_new_host(l->rank, "i32", 1, l->rank->size);
  const char *slab = l->workspace->tensor.data;
  CHECK_OK(moert_copy(l->context, words->tensor.data, slab + l->layout.offsets[field], words->bytes));
  CHECK_OK(moert_copy(l->context, counts->tensor.data, slab + l->layout.offsets[MOERT_METAINFO_RECV_COUNTERS], counts->bytes));
  for (int32_t source = 0; source < l->rank->size; ++source) {
    int64_t received = ((const int32_t *)counts->tensor.data)[source] * each;
    memset((int32_t *)words->tensor.data + source * lane + received, 0, (size_t)(lane - received) * sizeof(int32_t));
  }
  gpu_result(name, words);
}

static inline void exchange_dispatch_results(exchange_layer *l) {
  int64_t choices = l->tokens * l->what.top_k;
  for (int64_t i = l->what.in_place; i < l->num_payloads; ++i) gpu_result("recv", l->recv[i].memory);
  gpu_result("recv_counts", l->counts.memory);
  gpu_result("offsets", l->offsets.memory);
  exchange_region_result(l, "epoch", MOERT_METAINFO_FLAG_VAL, "ui32", 1);
  exchange_region_result(l, "send counters", MOERT_METAINFO_SEND_COUNTERS, "i32", l->rank->size);
  exchange_region_result(l, "recv counters", MOERT_METAINFO_RECV_COUNTERS, "i32", l->rank->size);
  exchange_region_result(l, "targets", MOERT_METAINFO_TOPK_TARGET_RANKS, "i32", choices);
  exchange_region_result(l, "indices", MOERT_METAINFO_TOPK_SEND_INDICES, "i32", choices);
  if (l->what.in_place) exchange_rows_result(l, "payload area", MOERT_METAINFO_PAYLOAD_DATA, exchange_row_bytes(&l->what) / 4);
  if (!l->what.grouped) return;
  exchange_rows_result(l, "rows", MOERT_METAINFO_RECV_TOPK_ROWS, l->what.top_k);
  exchange_rows_result(l, "weights", MOERT_METAINFO_RECV_TOPK_WEIGHTS, l->what.top_k);
}

// A round, with all that it leaves behind.
static inline void exchange_check_round(exchange_layer *l, int64_t tokens, int64_t most) {
  exchange_shape(l, tokens, most);
  exchange_fill(l);
  if (!CHECK_OK(exchange_wait(l, exchange_dispatch(l)))) return;
  exchange_dispatch_results(l);
  exchange_run_experts(l);
  if (!CHECK_OK(exchange_wait(l, exchange_combine(l)))) return;
  gpu_result("out", l->out.memory);
}

// One capture, whose inputs are rewritten between its replays. `scales`: NULL without a format. The graph lives until no rank waits for another.
static inline cudaGraphExec_t exchange_replay(exchange_layer *l, gpu_buffer *out, gpu_buffer *scales) {
  cudaGraphExec_t executable = NULL;
  exchange_fill(l);
  CHECK_OK(exchange_wait(l, exchange_enqueue(l)));
  if (l->rank->cuda) executable = exchange_capture(l);
  for (int64_t i = 0; i < l->what.rounds; ++i) {
    exchange_fill(l);
    if (!l->rank->cuda) CHECK_OK(exchange_enqueue(l));
    if (executable) CHECK_CUDA(cudaGraphLaunch(executable, moert_context_stream(l->context)));
    CHECK_OK(moert_context_synchronize(l->context));
    gpu_result("out", out);
    if (scales) gpu_result("scales", scales);
    gpu_result("recv", l->recv[0].memory);
  }
  return executable;
}

#endif

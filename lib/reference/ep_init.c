//===- ep_init.c - ep.init ----------------------------------------------------------------------------===//
//
// Serves every backend. All buffers of a rank are one allocation of symmetric memory, so that all ranks have all of them or none.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/checks.h"
#include "lib/reference/ep.h"

enum { ALIGNMENT = 256 };

static int64_t combine_element_bytes(const moert_ep_init_params *params) { return params->combine_dtype == MOERT_EP_INIT_COMBINE_DTYPE_F32 ? 4 : 2; }

static moert_status check(const moert_ep_init_params *params, const moert_ep_init_args *args) {
  static const char *const formats[] = {"BF16", "BlockwiseFP8", "BLOCK_SCALED_NV", "MXFP4", "MXFP6"};
  if (params->dispatch_fmt_str != MOERT_EP_INIT_DISPATCH_FMT_STR_BF16) // C1
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter 'dispatch_fmt_str' is %s, which is unsupported: this version has BF16",
                       formats[params->dispatch_fmt_str]);
  if (params->dispatch_dtype != MOERT_EP_INIT_DISPATCH_DTYPE_BF16) // C2
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'dispatch_dtype' must be bf16, which is what dispatch_fmt_str BF16 sends");
  moert_status status = moert__ep_check_one_rank(params->n_gpus_per_node, params->n_nodes);                             // C3
  if (!status) status = moert__ep_check_counters(args->atomic_counters_0, "atomic_counters_0", params->n_experts);      // C4
  if (!status) status = moert__ep_check_counters(args->atomic_counters_1, "atomic_counters_1", params->n_experts);      // C4
  if (!status) status = moert__check_dimension(args->dev_ptrs, "dev_ptrs", 0, MOERT_EP_GROUPS, "the number of groups"); // C5
  if (!status) status = moert__check_dimension(args->dev_ptrs, "dev_ptrs", 1, MOERT_EP_BUFFERS, "the number of buffers of a group");
  if (!status) status = moert__check_dimension(args->my_rank, "my_rank", 0, 1, "the number of ranks that this one is");
  return status;
}

// Where each buffer begins in the allocation, and the bytes of all.
typedef struct placement {
  int64_t offset[MOERT_EP_GROUPS][MOERT_EP_BUFFERS], bytes;
} placement;

static placement place(const moert_ep_buffers *buffers) {
  placement placed = {.bytes = 0};
  for (int group = 0; group < MOERT_EP_GROUPS; ++group)
    for (int buffer = 0; buffer < MOERT_EP_BUFFERS; ++buffer) {
      placed.offset[group][buffer] = placed.bytes;
      placed.bytes += (buffers->bytes[group][buffer] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
  return placed;
}

// Has been done on return.
static moert_status clear_counts(const placement *placed, int64_t n_experts, char *memory, moert_context *context) {
  uint64_t first;
  moert_status status = MOERT_OK;
  for (int group = 0; !status && group < MOERT_EP_GROUPS; ++group) {
    char *counts = memory + placed->offset[group][MOERT_EP_RECV_COUNT];
    status = moert__context_fill(context, counts, (unsigned char)MOERT_EP_NO_COUNT, (size_t)n_experts * sizeof first); // all its bytes are equal
    if (!status) status = moert__context_copy(context, &first, counts, sizeof first);                                  // which waits for the device
  }
  return status;
}

static moert_status clear_counters(const moert_tensor *counters, moert_context *context) {
  return moert__context_fill(context, moert__data(counters), 0, (size_t)moert__row_bytes(counters, 0));
}

static void write_pointers(const moert_ep_init_args *args, const moert_ep_buffers *buffers, const placement *placed, int32_t rank, char *memory) {
  uint64_t *pointers = moert__data(args->dev_ptrs);
  for (int group = 0; group < MOERT_EP_GROUPS; ++group)
    for (int buffer = 0; buffer < MOERT_EP_BUFFERS; ++buffer)
      pointers[group * MOERT_EP_BUFFERS + buffer] = buffers->bytes[group][buffer] ? (uintptr_t)(memory + placed->offset[group][buffer]) : 0;
  *(int32_t *)moert__data(args->my_rank) = rank;
}

moert_status moert__host_ep_init(const moert_ep_init_params *params, const moert_ep_init_args *args, moert_context *context) {
  moert_comm *comm = moert_context_comm(context);
  moert_ep_info info = {params->hidden_size, params->top_k, params->n_experts, params->max_token_per_rank, combine_element_bytes(params)};
  moert_ep_buffers buffers = moert_ep_lay_out_buffers(&info);
  placement placed = place(&buffers);
  int64_t timeout_ms = moert__context_timeout_ms(context);
  void *memory;
  moert_status status = check(params, args);
  if (!status) status = moert__context_check_not_capturing(context);
  if (!status) status = moert__stop_point(context, "entry");
  if (!status) status = moert_comm_barrier(comm, timeout_ms); // who is missing is missed here, by the deadline of the context
  if (!status) status = moert_symmetric_alloc(comm, (size_t)placed.bytes, &memory);
  if (!status) status = clear_counts(&placed, params->n_experts, memory, context);
  if (!status) status = moert_comm_barrier(comm, timeout_ms); // from now on peers may write to these buffers
  if (!status) status = clear_counters(args->atomic_counters_0, context);
  if (!status) status = clear_counters(args->atomic_counters_1, context);
  if (!status) write_pointers(args, &buffers, &placed, moert_comm_rank(comm), memory);
  return status;
}

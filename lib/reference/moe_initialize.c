//===- moe_initialize.c - moe.initialize on every backend -----------------------------------------===//
//
// The slab may be memory of a device: it is touched by the context's fill and copy alone.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/slab.h"
#include "lib/reference/workspace.h"
#include "lib/runtime/internal.h"
#include <inttypes.h>
#include <string.h>

typedef struct initialize_call {
  const moert_moe_initialize_args *args;
  moert_context *context;
  moert_comm *comm;
  int64_t timeout_ms;
  moert_workspace_info info;
  moert_workspace_layout layout;
} initialize_call;

//===--- checks -----------------------------------------------------------------------------------===//

// Peers write to the slab, and clearing it would clear metainfo.
static moert_status check_metainfo_apart(const moert_moe_initialize_args *args) {
  uintptr_t slab = (uintptr_t)moert__data(args->workspace), metainfo = (uintptr_t)moert__data(args->metainfo);
  bool apart =
      slab + (uintptr_t)moert__row_bytes(args->workspace, 0) <= metainfo || metainfo + (uintptr_t)moert__row_bytes(args->metainfo, 0) <= slab;
  if (apart) return MOERT_OK;
  return moert__fail(MOERT_ERROR_OVERLAP, "operand 'metainfo' overlaps operand 'workspace'; give it memory of its own");
}

static moert_status check(initialize_call *call) {
  const moert_tensor *workspace = call->args->workspace;
  moert_status status = moert__workspace_check(workspace, call->args->metainfo, call->layout.bytes);
  void *slabs[MOERT_MAX_RANKS];
  if (!status) status = check_metainfo_apart(call->args);
  return status ? status : moert__symmetric_peers(call->comm, moert__data(workspace), (size_t)workspace->shape[0], slabs);
}

//===--- agreement --------------------------------------------------------------------------------===//

static uint32_t hash_of(const moert_workspace_info *info) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, info->max_num_tokens);
  hash = moert__hash(hash, info->dispatch_bytes_per_token);
  hash = moert__hash(hash, info->combine_bytes_per_token);
  return moert__hash(hash, info->eplb_stats_num_experts);
}

// Collective: that all ranks have cleared this slab, for the same parameters.
static moert_status agree(const initialize_call *call) {
  int32_t other;
  moert_status status = moert__symmetric_agree(call->comm, moert__data(call->args->workspace), hash_of(&call->info), call->timeout_ms, &other);
  if (status || other < 0) return status;
  moert__comm_note(call->comm, MOERT_ERROR_PEER_MISMATCH);
  return moert__fail(MOERT_ERROR_PEER_MISMATCH, "rank %" PRId32 " used another workspace or other parameters than rank %" PRId32, other,
                     moert_comm_rank(call->comm));
}

//===--- the op -----------------------------------------------------------------------------------===//

// Ends the life of what was in the slab before, and begins that of the workspace when all ranks have agreed.
static moert_status initialize(initialize_call *call) {
  const moert_tensor *workspace = call->args->workspace;
  char *slab = moert__data(workspace);
  void *made;
  moert__slab_state state = {.mask = moert_comm_mask(call->comm), .self = (uintptr_t)slab};
  moert_status status = moert__symmetric_make_note(call->comm, slab, &made);
  if (status) return status;
  moert__workspace_note *note = made;
  *note = (moert__workspace_note){0};
  status = moert__context_fill(call->context, slab, 0, (size_t)workspace->shape[0]);
  if (!status) status = moert__context_copy(call->context, slab + call->layout.offsets[MOERT_METAINFO_STATE], &state, sizeof state);
  if (!status) status = agree(call);
  if (status) return status;
  note->info = call->info;
  memcpy(moert__data(call->args->metainfo), call->layout.offsets, MOERT_METAINFO_FIELDS * sizeof *call->layout.offsets);
  return MOERT_OK;
}

// A copy from host memory waits for the stream: the token counter, which is 0 between exchanges, is copied to make sure that this rank has left a
// combine before. Behind the barrier none reads this slab any more in one. The state's copy makes sure that the slab is clear before ranks agree.
static moert_status leave_exchanges(const initialize_call *call) {
  const uint32_t none = 0;
  char *counter = (char *)moert__data(call->args->workspace) + call->layout.offsets[MOERT_METAINFO_LOCAL_TOKEN_COUNTER];
  moert_status status = moert__context_copy(call->context, counter, &none, sizeof none);
  return status ? status : moert_comm_barrier(call->comm, call->timeout_ms);
}

moert_status moert__host_moe_initialize(const moert_moe_initialize_params *params, const moert_moe_initialize_args *args, moert_context *context) {
  initialize_call call = {.args = args, .context = context, .comm = moert_context_comm(context), .timeout_ms = moert__context_timeout_ms(context)};
  int64_t ranks;
  moert_status status = moert__workspace_ranks(context, "ep_size", params->ep_size, &ranks);
  if (status) return status;
  call.info = (moert_workspace_info){params->max_num_tokens, params->dispatch_bytes_per_token, params->combine_bytes_per_token,
                                     params->eplb_stats_num_experts, ranks};
  call.layout = moert_workspace_lay_out(&call.info);
  status = moert__context_check_not_capturing(context);
  if (!status) status = check(&call);
  if (!status) status = moert__stop_point(context, "entry");
  if (!status) status = leave_exchanges(&call);
  return status ? status : initialize(&call);
}

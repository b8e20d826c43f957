//===- moe_initialize.c - moe.initialize on the host ----------------------------------------------===//

#include "lib/reference/workspace.h"
#include <inttypes.h>
#include <string.h>

typedef struct initialize_call {
  const moert_moe_initialize_args *args;
  moert_comm *comm;
  int64_t timeout_ms;
  moert_workspace_info info;
  moert_workspace_layout layout;
  void *slabs[MOERT_MAX_RANKS]; // every rank's, as this rank addresses it
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
  if (!status) status = check_metainfo_apart(call->args);
  return status ? status : moert__symmetric_peers(call->comm, moert__data(workspace), (size_t)workspace->shape[0], call->slabs);
}

//===--- agreement --------------------------------------------------------------------------------===//

static uint32_t hash_of(const moert_workspace_info *info) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, info->max_num_tokens);
  hash = moert__hash(hash, info->dispatch_bytes_per_token);
  hash = moert__hash(hash, info->combine_bytes_per_token);
  return moert__hash(hash, info->eplb_stats_num_experts);
}

// The token counter is the one word after the epoch that lies in the same place in every layout and that only its owner writes: until the first
// dispatch it tells the peers what this rank was initialised with.
static _Atomic uint32_t *parameter_word(const initialize_call *call, int32_t rank) {
  return (_Atomic uint32_t *)((char *)call->slabs[rank] + call->layout.offsets[MOERT_METAINFO_LOCAL_TOKEN_COUNTER]);
}

// The first rank whose word is another, -1 if there is none.
static int32_t find_other(const initialize_call *call, uint32_t hash) {
  for (int32_t rank = 0; rank < moert_comm_size(call->comm); ++rank)
    if (atomic_load_explicit(parameter_word(call, rank), memory_order_acquire) != hash) return rank;
  return -1;
}

// Collective: that all ranks have cleared this slab, for the same parameters.
static moert_status agree(const initialize_call *call) {
  uint32_t hash = hash_of(&call->info);
  atomic_store_explicit(parameter_word(call, moert_comm_rank(call->comm)), hash, memory_order_release);
  moert_status status = moert_comm_barrier(call->comm, call->timeout_ms);
  if (status) return status;
  int32_t other = find_other(call, hash);
  status = moert_comm_barrier(call->comm, call->timeout_ms); // every rank has compared: the words may change
  if (other < 0) return status;
  moert__comm_note(call->comm, MOERT_ERROR_PEER_MISMATCH);
  return moert__fail(MOERT_ERROR_PEER_MISMATCH, "rank %" PRId32 " used another workspace or other parameters than rank %" PRId32, other,
                     moert_comm_rank(call->comm));
}

//===--- the op -----------------------------------------------------------------------------------===//

moert_status moert__host_moe_initialize(const moert_moe_initialize_params *params, const moert_moe_initialize_args *args, moert_context *context) {
  initialize_call call = {.args = args, .comm = moert_context_comm(context), .timeout_ms = moert__context_timeout_ms(context)};
  int64_t ranks;
  moert_status status = moert__workspace_ranks(context, "ep_size", params->ep_size, &ranks);
  if (status) return status;
  call.info = (moert_workspace_info){params->max_num_tokens, params->dispatch_bytes_per_token, params->combine_bytes_per_token,
                                     params->eplb_stats_num_experts, ranks};
  call.layout = moert_workspace_lay_out(&call.info);
  status = check(&call);
  if (!status) status = moert__stop_point(context, "entry");
  if (!status) status = moert_comm_barrier(call.comm, call.timeout_ms); // a peer may still be reading this slab in a combine; now none is
  if (status) return status;
  char *slab = moert__data(args->workspace);
  memset(slab, 0, (size_t)args->workspace->shape[0]);
  status = agree(&call);
  if (status) return status;
  atomic_store_explicit(parameter_word(&call, moert_comm_rank(call.comm)), 0, memory_order_relaxed);
  moert__workspace_seal(slab, &call.info, &call.layout);
  memcpy(moert__data(args->metainfo), call.layout.offsets, sizeof call.layout.offsets);
  return MOERT_OK;
}

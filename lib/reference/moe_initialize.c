//===- moe_initialize.c - moe.initialize on every backend -----------------------------------------===//
//
// The slab may be memory of a device: it is touched by the context's fill and copy alone.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/slab.h"
#include "lib/reference/workspace.h"
#include <inttypes.h>
#include <string.h>

typedef struct initialize_call {
  const moert_moe_initialize_args *args;
  moert_context *context;
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
static char *parameter_word(const initialize_call *call, int32_t rank) {
  return (char *)call->slabs[rank] + call->layout.offsets[MOERT_METAINFO_LOCAL_TOKEN_COUNTER];
}

static moert_status set_parameter_word(const initialize_call *call, uint32_t value) {
  return moert__context_copy(call->context, parameter_word(call, moert_comm_rank(call->comm)), &value, sizeof value);
}

// The first living rank whose word is another, -1 if there is none.
static moert_status find_other(const initialize_call *call, uint32_t hash, int32_t *other) {
  uint64_t mask = moert_comm_mask(call->comm);
  *other = -1;
  for (int32_t rank = 0; rank < moert_comm_size(call->comm); ++rank) {
    uint32_t word = hash;
    moert_status status = mask >> rank & 1 ? moert__context_copy(call->context, &word, parameter_word(call, rank), sizeof word) : MOERT_OK;
    if (status) return status;
    if (word == hash) continue;
    *other = rank;
    return MOERT_OK;
  }
  return MOERT_OK;
}

// Collective: that all ranks have cleared this slab, for the same parameters.
static moert_status agree(const initialize_call *call) {
  uint32_t hash = hash_of(&call->info);
  int32_t other;
  moert_status status = set_parameter_word(call, hash);
  if (!status) status = moert_comm_barrier(call->comm, call->timeout_ms);
  if (!status) status = find_other(call, hash, &other);
  if (status) return status;
  status = moert_comm_barrier(call->comm, call->timeout_ms); // every rank has compared: the words may change
  if (other < 0) return status;
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
  if (!status) status = agree(call);
  if (!status) status = set_parameter_word(call, 0);
  if (!status) status = moert__context_copy(call->context, slab + call->layout.offsets[MOERT_METAINFO_STATE], &state, sizeof state);
  if (status) return status;
  note->info = call->info;
  memcpy(moert__data(call->args->metainfo), call->layout.offsets, MOERT_METAINFO_FIELDS * sizeof *call->layout.offsets);
  return MOERT_OK;
}

// Behind the barrier none reads this slab any more in a combine before. Copies to host memory wait for the stream, and so the first one makes sure
// that this rank has left such a combine itself.
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
  if (!status) status = set_parameter_word(&call, 0);
  if (!status) status = moert_comm_barrier(call.comm, call.timeout_ms);
  return status ? status : initialize(&call);
}

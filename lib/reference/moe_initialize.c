//===- moe_initialize.c - moe.initialize on the host ----------------------------------------------===//

#include "lib/reference/workspace.h"
#include <inttypes.h>
#include <string.h>

static uint32_t hash_of(const moert_workspace_info *info) {
  uint32_t hash = moert__hash(MOERT__HASH_INIT, info->max_num_tokens);
  hash = moert__hash(hash, info->dispatch_bytes_per_token);
  hash = moert__hash(hash, info->combine_bytes_per_token);
  return moert__hash(hash, info->eplb_stats_num_experts);
}

// The token counter is the one word after the epoch that lies in the same place in every layout and that only its owner writes: until the first
// dispatch it tells the peers what this rank was initialised with.
static _Atomic uint32_t *parameter_word(char *slab) { return (_Atomic uint32_t *)(slab + 4); }

static moert_status compare_with_peers(char *const peers[], uint32_t hash, moert_comm *comm, int32_t *other) {
  *other = -1;
  for (int32_t rank = 0; rank < moert_comm_size(comm) && *other < 0; ++rank)
    if (atomic_load_explicit(parameter_word(peers[rank]), memory_order_acquire) != hash) *other = rank;
  return *other < 0 ? MOERT_OK : MOERT_ERROR_PEER_MISMATCH;
}

moert_status moert__host_moe_initialize(const moert_moe_initialize_params *params, const moert_moe_initialize_args *args, moert_context *context) {
  moert_comm *comm = moert_context_comm(context);
  int64_t ranks;
  moert_status status = moert__workspace_ranks(context, "ep_size", params->ep_size, &ranks);
  if (status) return status;
  moert_workspace_info info = {params->max_num_tokens, params->dispatch_bytes_per_token, params->combine_bytes_per_token,
                               params->eplb_stats_num_experts, ranks};
  moert_workspace_layout layout = moert_workspace_lay_out(&info);
  status = moert__workspace_check(args->workspace, args->metainfo, layout.bytes);
  if (status) return status;
  char *slab = moert__data(args->workspace);
  size_t bytes = (size_t)args->workspace->shape[0];
  void *memory[MOERT_MAX_RANKS];
  status = moert__symmetric_peers(comm, slab, bytes, memory);
  if (status) return status;
  status = moert__stop_point(context, "entry");
  if (status) return status;

  // A peer may still be reading this slab in a combine; after the barrier none is.
  int64_t timeout_ms = moert__context_timeout_ms(context);
  status = moert_comm_barrier(comm, timeout_ms);
  if (status) return status;
  memset(slab, 0, bytes);
  uint32_t hash = hash_of(&info);
  atomic_store_explicit(parameter_word(slab), hash, memory_order_release);
  status = moert_comm_barrier(comm, timeout_ms);
  if (status) return status;
  char *peers[MOERT_MAX_RANKS];
  for (int64_t rank = 0; rank < ranks; ++rank) peers[rank] = memory[rank];
  int32_t other;
  moert_status agreement = compare_with_peers(peers, hash, comm, &other);
  status = moert_comm_barrier(comm, timeout_ms); // every rank has compared: the words may change
  if (agreement) {
    moert__comm_note(comm, agreement);
    return moert__fail(agreement, "rank %" PRId32 " used another workspace or other parameters than rank %" PRId32, other, moert_comm_rank(comm));
  }
  if (status) return status;

  atomic_store_explicit(parameter_word(slab), 0, memory_order_relaxed);
  moert__workspace_seal(slab, &info, &layout);
  memcpy(moert__data(args->metainfo), layout.offsets, sizeof layout.offsets);
  return MOERT_OK;
}

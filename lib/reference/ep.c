//===- ep.c - what the ops of the dialect `ep` share, on all backends -------------------------------===//

#include "lib/reference/ep.h"
#include "lib/reference/checks.h"

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_is_one(const char *name, int64_t value) {
  if (value == 1) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "parameter '%s' is %" PRId64 ", must be 1: the buffers of an all-to-all are unsupported", name, value);
}

moert_status moert__ep_check_one_rank(int64_t n_gpus_per_node, int64_t n_nodes) {
  moert_status status = check_is_one("n_gpus_per_node", n_gpus_per_node);
  return status ? status : check_is_one("n_nodes", n_nodes);
}

moert_status moert__ep_check_counters(const moert_tensor *counters, const char *name, int64_t n_experts) {
  return moert__check_dimension(counters, name, 0, moert_ep_lay_out_counters(n_experts).words, "10 * n_experts + 320");
}

moert_status moert__ep_check_layer(const moert__ep_layer *layer, moert_context *context) {
  int32_t size = moert_comm_size(moert_context_comm(context));
  moert_status status = moert__ep_check_one_rank(layer->n_gpus_per_node, layer->n_nodes);
  if (status) return status;
  if (layer->ranks != size)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "parameter 'allreduce_world_size' is %" PRId64 ", must be %" PRId32 ", the ranks of the communicator", layer->ranks, size);
  if (layer->tokens > layer->max_token_per_rank)
    return moert__fail(MOERT_ERROR_CAPACITY, "operand 'topk_ids' has %" PRId64 " tokens, must have at most %" PRId64 " (max_token_per_rank)",
                       layer->tokens, layer->max_token_per_rank);
  return MOERT_OK;
}

static moert_status check_entry(const moert_tensor *table, const char *name, int32_t rank, int64_t bytes, moert_comm *comm) {
  void *peers[MOERT_MAX_RANKS], *entry = (void *)(uintptr_t)((const uint64_t *)moert__data(table))[rank];
  if (!moert__symmetric_peers(comm, entry, (size_t)bytes, peers)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_MEMORY,
                     "operand '%s': entry %" PRId32 " is %p, where symmetric memory of this rank does not have %" PRId64
                     " bytes: pass what ep.init wrote to 'dev_ptrs' for these parameters",
                     name, rank, entry, bytes);
}

moert_status moert__ep_check_tables(const moert__ep_layer *layer, const moert_tensor *const tables[MOERT_EP_BUFFERS],
                                    const int64_t bytes[MOERT_EP_BUFFERS], moert_context *context) {
  static const char *const names[MOERT_EP_BUFFERS] = {"send_ptrs", "recv_ptrs", "recv_count_ptrs"};
  for (int i = 0; i < MOERT_EP_BUFFERS; ++i) {
    moert_status status = moert__check_dimension(tables[i], names[i], 0, layer->ranks, "allreduce_world_size");
    if (!status && bytes[i]) status = check_entry(tables[i], names[i], layer->rank, bytes[i], moert_context_comm(context));
    if (status) return status;
  }
  return MOERT_OK;
}

//===--- whose is what ----------------------------------------------------------------------------===//

int64_t moert__ep_local_expert(const moert__ep_layer *layer, int32_t id) {
  int64_t local = id - layer->rank * layer->n_experts;
  return local >= 0 && local < layer->n_experts ? local : -1;
}

moert__ep_slice moert__ep_shared_slice(const moert__ep_layer *layer) {
  int64_t share = layer->tokens / layer->ranks, rest = layer->tokens % layer->ranks, rank = layer->rank;
  if (!layer->fused_shared_expert) return (moert__ep_slice){0, 0};
  return (moert__ep_slice){rank * share + (rank < rest ? rank : rest), share + (rank < rest)};
}

moert__ep_counters moert__ep_counters_of(const moert_tensor *counters, int64_t n_experts) {
  moert_ep_counters layout = moert_ep_lay_out_counters(n_experts);
  int32_t *words = moert__data(counters);
  return (moert__ep_counters){words + layout.segments, words + layout.round};
}

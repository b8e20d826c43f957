//===- moe_sanitize_expert_ids.c - moe.sanitize_expert_ids on the host ----------------------------===//

#include "lib/reference/moe_sanitize_expert_ids.h"
#include "lib/reference/checks.h"

// Behind the combine a peer that is ahead may already be writing the counts of its next dispatch.
static moert_status check_round(const moert__workspace *workspace) {
  const moert__workspace_note *note = workspace->note;
  if (!note->dispatched)
    return moert__fail(MOERT_ERROR_INVALID_STATE,
                       "no dispatch on this workspace waits for its combine: call moe.sanitize_expert_ids between moe.dispatch and moe.combine");
  if (note->round.layout != MOERT_MOE_DISPATCH_LAYOUT_RANK_MAJOR)
    return moert__fail(MOERT_ERROR_INVALID_STATE,
                       "the dispatch before had layout expert_grouped, must have rank_major: rows of the other layout have no padding between them");
  return MOERT_OK;
}

static moert_status check_ids(const moert__workspace *workspace, const moert_tensor *ids) {
  int64_t rows = workspace->note->round.max_tokens;
  moert_status status = moert__check_dimension(ids, "expert_ids", 0, workspace->ranks, "the ranks of the communicator"); // C1
  if (!status) status = moert__check_dimension(ids, "expert_ids", 1, rows, "runtime_max_tokens_per_rank of the dispatch");
  if (status || !moert__workspace_overlaps(workspace, ids, 0, workspace->layout.offsets[MOERT_METAINFO_PAYLOAD_DATA])) return status;
  return moert__fail(MOERT_ERROR_OVERLAP, "operand 'expert_ids' lies in the workspace before its payloads, may do so only in a receive area");
}

moert_status moert__sanitize_expert_ids_check(const moert_moe_sanitize_expert_ids_params *params, const moert_moe_sanitize_expert_ids_args *args,
                                              moert_context *context, moert__workspace *workspace) {
  moert_status status = moert__workspace_open(context, "ep_size", params->ep_size, args->workspace, args->metainfo, workspace);
  if (!status) status = check_round(workspace);
  if (status) return status;
  workspace->mask = workspace->note->round.mask;
  return check_ids(workspace, args->expert_ids);
}

static void invalidate(const moert__workspace *workspace, const moert_tensor *ids, int32_t invalid) {
  int32_t *entries = moert__data(ids);
  int64_t rows = ids->shape[1], width = ids->shape[2];
  for (int32_t source = 0; source < workspace->ranks; ++source)
    for (int64_t i = (source * rows + moert__workspace_received(workspace, source)) * width; i < (source + 1) * rows * width; ++i)
      entries[i] = invalid;
}

moert_status moert__host_moe_sanitize_expert_ids(const moert_moe_sanitize_expert_ids_params *params, const moert_moe_sanitize_expert_ids_args *args,
                                                 moert_context *context) {
  moert__workspace workspace;
  moert_status status = moert__sanitize_expert_ids_check(params, args, context, &workspace);
  if (status) return status;
  if (moert__elements(args->expert_ids)) invalidate(&workspace, args->expert_ids, (int32_t)params->invalid_expert_id);
  return MOERT_OK;
}

//===- moe_workspace_size.c - moe.workspace_size on the host --------------------------------------===//

#include "lib/reference/workspace.h"

moert_status moert__host_moe_workspace_size(const moert_moe_workspace_size_params *params, const moert_moe_workspace_size_args *args,
                                            moert_context *context) {
  if (!args->size) return moert__fail(MOERT_ERROR_NULL_POINTER, "result 'size' is NULL");
  int64_t ranks;
  moert_status status = moert__workspace_ranks(context, "ep_size", params->ep_size, &ranks);
  if (status) return status;
  moert_workspace_info info = {params->max_num_tokens, params->dispatch_bytes_per_token, params->combine_bytes_per_token,
                               params->eplb_stats_num_experts, ranks};
  *args->size = moert_workspace_lay_out(&info).bytes;
  return MOERT_OK;
}

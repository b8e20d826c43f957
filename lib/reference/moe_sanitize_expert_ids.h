//===- moe_sanitize_expert_ids.h - moe.sanitize_expert_ids on every backend ---------------------===//
#ifndef MOERT_REFERENCE_MOE_SANITIZE_EXPERT_IDS_H
#define MOERT_REFERENCE_MOE_SANITIZE_EXPERT_IDS_H

#include "lib/reference/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

// All checks, which read neither the slab nor any tensor's elements but metainfo's. Sets *workspace.
MOERT__SHARED moert_status moert__sanitize_expert_ids_check(const moert_moe_sanitize_expert_ids_params *params,
                                                            const moert_moe_sanitize_expert_ids_args *args, moert_context *context,
                                                            moert__workspace *workspace);

#ifdef __cplusplus
}
#endif
#endif

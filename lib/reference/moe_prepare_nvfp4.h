//===- moe_prepare_nvfp4.h - what the backends share of moe.prepare_nvfp4 ----------------------------------===//
#ifndef MOERT_REFERENCE_MOE_PREPARE_NVFP4_H
#define MOERT_REFERENCE_MOE_PREPARE_NVFP4_H

#include "lib/reference/routed_panels.h"
#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

// The checks C1 to C4.
MOERT__SHARED moert_status moert__prepare_nvfp4_check(const moert_moe_prepare_nvfp4_params *params, const moert_moe_prepare_nvfp4_args *args);

#ifdef __cplusplus
}
#endif
#endif

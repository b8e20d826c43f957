//===- moe_route.h - what the backends share of moe.route ---------------------------------------------===//
#ifndef MOERT_REFERENCE_MOE_ROUTE_H
#define MOERT_REFERENCE_MOE_ROUTE_H

#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

// Parameters and shapes; reads no elements.
MOERT__SHARED moert_status moert__moe_route_check(const moert_moe_route_params *params, const moert_moe_route_args *args);

#ifdef __cplusplus
}
#endif
#endif

//===- moe_quantize.h - what the backends share of moe.quantize -------------------------------------------===//
#ifndef MOERT_REFERENCE_MOE_QUANTIZE_H
#define MOERT_REFERENCE_MOE_QUANTIZE_H

#include "lib/reference/quantized.h"

#ifdef __cplusplus
extern "C" {
#endif

// Parameters and shapes; reads no elements. Fills `call`.
MOERT__SHARED moert_status moert__moe_quantize_check(const moert_moe_quantize_params *params, const moert_moe_quantize_args *args,
                                                     moert__quantized_call *call);

#ifdef __cplusplus
}
#endif
#endif

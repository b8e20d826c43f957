//===- moe_dequantize.h - what the backends share of moe.dequantize ---------------------------------------===//
#ifndef MOERT_REFERENCE_MOE_DEQUANTIZE_H
#define MOERT_REFERENCE_MOE_DEQUANTIZE_H

#include "lib/reference/quantized.h"

#ifdef __cplusplus
extern "C" {
#endif

// Parameters and shapes; reads no elements. Fills `call`.
MOERT__SHARED moert_status moert__moe_dequantize_check(const moert_moe_dequantize_params *params, const moert_moe_dequantize_args *args,
                                                       moert__quantized_call *call);

#ifdef __cplusplus
}
#endif
#endif

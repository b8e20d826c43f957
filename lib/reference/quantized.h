//===- quantized.h - what moe.quantize and moe.dequantize share -----------------------------------------===//
#ifndef MOERT_REFERENCE_QUANTIZED_H
#define MOERT_REFERENCE_QUANTIZED_H

#include "lib/reference/formats.h"
#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

// The columns of a block: all of them where a row has one scale.
typedef struct moert__block_columns {
  int64_t first, end;
} moert__block_columns;

static inline moert__block_columns moert__columns_of(const moert__quantized_call *call, int64_t block) {
  int64_t size = moert__block_size(call->format), first = block * size;
  moert__block_columns columns = {first, size && call->hidden - first > size ? first + size : call->hidden};
  return columns;
}

// Checks C1 to C10 of both ops and fills `call`; reads no elements. `numbers` is called `numbers_name` in error texts.
moert_status moert__quantized_check(moert__quantized_call *call, const char *numbers_name, const moert_tensor *numbers, const moert_tensor *values,
                                    const moert_tensor *scales, const moert_tensor *global_scale, int64_t format, int64_t layout, int64_t packing);

#ifdef __cplusplus
}
#endif
#endif

//===- quantized.h - what ops with quantised operands share --------------------------------------------===//
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

// How error texts speak of a call.
typedef struct moert__quantized_names {
  const char *tokens, *hidden; // where their numbers come from
  const char *hidden_value;    // what has the second
  const char *values, *scales;
} moert__quantized_names;

// The operands and parameters that numbers of `type` are quantised by, or made from.
typedef struct moert__quantized_operands {
  const moert__quantized_names *names;
  moert__format type;
  int64_t tokens, hidden;
  const moert_tensor *values, *scales, *global_scale;
  int format;
  int64_t layout, packing;
} moert__quantized_operands;

// Checks C1 to C10 of moe.quantize and moe.dequantize, and fills `call` but for its numbers; reads no elements.
moert_status moert__quantized_check(moert__quantized_call *call, const moert__quantized_operands *operands);
// The same for a matrix of numbers.
moert_status moert__quantized_check_matrix(moert__quantized_call *call, const moert__quantized_names *names, const moert_tensor *numbers,
                                           const moert_tensor *values, const moert_tensor *scales, const moert_tensor *global_scale, int64_t format,
                                           int64_t layout, int64_t packing);

#ifdef __cplusplus
}
#endif
#endif

//===- moe_dequantize.c - moe.dequantize on the host ----------------------------------------------------===//

#include "lib/reference/moe_dequantize.h"

moert_status moert__moe_dequantize_check(const moert_moe_dequantize_params *params, const moert_moe_dequantize_args *args,
                                         moert__quantized_call *call) {
  static const moert__quantized_names names = {"dimension 0 of 'out'", "dimension 1 of 'out'", "operand 'out' dimension 1", "values", "scales"};
  return moert__quantized_check_matrix(call, &names, args->out, args->values, args->scales, args->global_scale, params->format, params->scale_layout,
                                       params->packing);
}

// What the codes of a block are multiplied with.
static float factor_of(const moert__quantized_call *call, int64_t row, int64_t block) {
  float inverse = call->global ? moert__divide(1.0f, *call->global) : 1.0f;
  if (!call->scales) return inverse;
  int64_t offset = moert__scale_offset(&call->grid, call->format == MOERT__FP8_TENSOR ? 0 : row, block);
  switch (call->format) {
  case MOERT__NVFP4: return moert__nvfp4_factor(((const uint8_t *)call->scales)[offset], inverse);
  case MOERT__MXFP4:
  case MOERT__MXFP8: return moert__e8m0_to_f32(((const uint8_t *)call->scales)[offset]);
  default: return ((const float *)call->scales)[offset];
  }
}

static float code_value(const moert__quantized_call *call, int64_t row, int64_t column) {
  const uint8_t *codes = call->codes + row * call->codes_stride;
  if (!moert__is_packed(call->format)) return moert__e4m3_to_f32(codes[column]);
  return moert__e2m1_to_f32(codes[moert__code_byte(call->mega, column)] >> moert__code_shift(call->mega, column) & 15u);
}

// Any NaN is 0x7fffffff, as the arithmetic of NVIDIA GPUs makes it.
static void write_number(const moert__quantized_call *call, void *out, int64_t row, int64_t column, float value) {
  moert__store(call->type, out, row * call->numbers_stride + column, moert__is_nan(value) ? moert__float(0x7fffffff) : value);
}

static void dequantize_row(const moert__quantized_call *call, void *out, int64_t row) {
  for (int64_t block = 0; block < call->grid.columns; ++block) {
    moert__block_columns columns = moert__columns_of(call, block);
    float factor = factor_of(call, row, block);
    for (int64_t column = columns.first; column < columns.end; ++column) write_number(call, out, row, column, code_value(call, row, column) * factor);
  }
}

moert_status moert__host_moe_dequantize(const moert_moe_dequantize_params *params, const moert_moe_dequantize_args *args, moert_context *context) {
  (void)context;
  moert__quantized_call call;
  moert_status status = moert__moe_dequantize_check(params, args, &call);
  if (status) return status;
  int64_t rows = call.hidden > 0 ? call.tokens : 0; // those without elements may be more than anybody could walk through
  for (int64_t row = 0; row < rows; ++row) dequantize_row(&call, moert__data(args->out), row);
  return MOERT_OK;
}

//===- moe_quantize.c - moe.quantize on the host --------------------------------------------------------===//
//
// One block after the other: its largest magnitude, its scale, its codes.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_quantize.h"
#include "lib/reference/encode.h"

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_parameters(const moert_moe_quantize_params *params) {
  int64_t format = params->format;
  if (params->scale_rounding == MOERT_MOE_QUANTIZE_SCALE_ROUNDING_EVEN && format != MOERT__MXFP4 && format != MOERT__MXFP8) // C8
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'scale_rounding' is even, must be up unless format is mxfp4 or mxfp8");
  if (params->fast_reciprocal && format != MOERT__NVFP4) // C9
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'fast_reciprocal' is 1, must be 0 unless format is nvfp4");
  return MOERT_OK;
}

moert_status moert__moe_quantize_check(const moert_moe_quantize_params *params, const moert_moe_quantize_args *args, moert__quantized_call *call) {
  static const moert__quantized_names names = {"dimension 0 of 'input'", "dimension 1 of 'input'", "operand 'input' dimension 1", "values", "scales"};
  moert_status status = check_parameters(params);
  return status ? status
                : moert__quantized_check_matrix(call, &names, args->input, args->values, args->scales, args->global_scale, params->format,
                                                params->scale_layout, params->packing);
}

//===--- the op -----------------------------------------------------------------------------------===//

static void quantize_blocks(const moert__encoder *encoder, int64_t row) {
  const moert__quantized_call *call = encoder->call;
  for (int64_t block = 0; block < call->grid.columns; ++block)
    moert__encode_block(encoder, row, block, call->numbers, row * call->numbers_stride + moert__columns_of(call, block).first);
}

static moert__elements_of_row whole_row(const moert__quantized_call *call, int64_t row) {
  moert__elements_of_row elements = {row, {0, call->hidden}, call->numbers, row * call->numbers_stride};
  return elements;
}

static void quantize_tensor(const moert__encoder *encoder, int64_t rows) {
  const moert__quantized_call *call = encoder->call;
  float amax = 0.0f;
  for (int64_t row = 0; row < rows && !call->global; ++row) {
    moert__elements_of_row elements = whole_row(call, row);
    amax = moert__encoder_amax(encoder, amax, &elements);
  }
  float factor = call->global ? *call->global : moert__encoder_scale(encoder, amax, 0, 0);
  for (int64_t row = 0; row < rows; ++row) {
    moert__elements_of_row elements = whole_row(call, row);
    moert__encoder_codes(encoder, factor, &elements);
  }
}

moert_status moert__host_moe_quantize(const moert_moe_quantize_params *params, const moert_moe_quantize_args *args, moert_context *context) {
  (void)context;
  moert__quantized_call call;
  moert_status status = moert__moe_quantize_check(params, args, &call);
  if (status) return status;
  moert__encoder encoder = {&call,
                            moert__data(args->values),
                            args->scales ? moert__data(args->scales) : NULL,
                            call.global ? *call.global : 1.0f,
                            params->scale_rounding == MOERT_MOE_QUANTIZE_SCALE_ROUNDING_EVEN,
                            params->fast_reciprocal != 0};
  if (args->scales) moert__encoder_clear(&encoder, args->scales);
  // Rows without elements may be more than anybody could walk through; only fp8_token writes something for them.
  int64_t rows = call.hidden > 0 || call.format == MOERT__FP8_TOKEN ? call.tokens : 0;
  if (call.format == MOERT__FP8_TENSOR) {
    quantize_tensor(&encoder, rows);
    return MOERT_OK;
  }
  for (int64_t row = 0; row < rows; ++row) quantize_blocks(&encoder, row);
  return MOERT_OK;
}

//===- moe_quantize.c - moe.quantize on the host --------------------------------------------------------===//
//
// One block after the other: its largest magnitude, its scale, its codes. lib/reference/formats.h has the arithmetic.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_quantize.h"

#include <string.h>

// A call on the host, which writes codes and scales.
typedef struct quantization {
  const moert__quantized_call *call;
  uint8_t *codes;
  void *scales;
  bool even, fast;
} quantization;

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
  moert_status status = check_parameters(params);
  return status ? status
                : moert__quantized_check(call, "input", args->input, args->values, args->scales, args->global_scale, params->format,
                                         params->scale_layout, params->packing);
}

//===--- scales -----------------------------------------------------------------------------------===//

static float number_at(const moert__quantized_call *call, int64_t row, int64_t column) {
  return moert__load(call->type, call->numbers, row * call->numbers_stride + column);
}

static float widen_amax(const moert__quantized_call *call, float amax, int64_t row, moert__block_columns columns) {
  for (int64_t column = columns.first; column < columns.end; ++column) amax = moert__amax(call->format, amax, number_at(call, row, column));
  return amax;
}

// Of formats whose scales are codes.
static moert__block_scale block_scale(const quantization *work, float amax) {
  const moert__quantized_call *call = work->call;
  float global = call->global ? *call->global : 1.0f;
  if (call->format != MOERT__NVFP4) return moert__mx_scale(call->format, amax, work->even);
  return work->fast ? moert__nvfp4_scale_fast(amax, global) : moert__nvfp4_scale(amax, global);
}

// Returns what the elements are multiplied with, or divided by if the scale is an f32.
static float write_scale(const quantization *work, float amax, int64_t row, int64_t column) {
  int64_t offset = moert__scale_offset(&work->call->grid, row, column);
  if (!moert__has_code_scales(work->call->format)) {
    float scale = moert__fp8_scale(amax);
    ((float *)work->scales)[offset] = scale;
    return scale;
  }
  moert__block_scale scale = block_scale(work, amax);
  ((uint8_t *)work->scales)[offset] = (uint8_t)scale.code;
  return scale.encode;
}

// Whole buffers: in most layouts what stands for nothing lies between what does.
static void clear_scales(const quantization *work, const moert_tensor *scales) {
  if (work->call->grid.layout != MOERT__LINEAR && moert__elements(scales) > 0) memset(work->scales, 0, (size_t)moert__row_bytes(scales, 0));
}

//===--- codes ------------------------------------------------------------------------------------===//

static uint32_t code_of(const moert__quantized_call *call, float value, float factor) {
  bool divides = !moert__has_code_scales(call->format) && !call->global;
  float scaled = divides ? moert__divide(value, factor) : value * factor;
  return moert__is_packed(call->format) ? moert__f32_to_e2m1(scaled) : moert__f32_to_e4m3(scaled);
}

static void write_code(const quantization *work, int64_t row, int64_t column, uint32_t code) {
  const moert__quantized_call *call = work->call;
  uint8_t *codes = work->codes + row * call->codes_stride;
  if (!moert__is_packed(call->format)) {
    codes[column] = (uint8_t)code;
    return;
  }
  uint8_t *pair = codes + moert__code_byte(call->mega, column);
  int shift = moert__code_shift(call->mega, column);
  *pair = (uint8_t)((*pair & ~(15u << shift)) | code << shift);
}

static void write_codes(const quantization *work, float factor, int64_t row, moert__block_columns columns) {
  for (int64_t column = columns.first; column < columns.end; ++column)
    write_code(work, row, column, code_of(work->call, number_at(work->call, row, column), factor));
}

//===--- the op -----------------------------------------------------------------------------------===//

static void quantize_blocks(const quantization *work, int64_t row) {
  const moert__quantized_call *call = work->call;
  for (int64_t block = 0; block < call->grid.columns; ++block) {
    moert__block_columns columns = moert__columns_of(call, block);
    float factor = write_scale(work, widen_amax(call, 0.0f, row, columns), row, block);
    write_codes(work, factor, row, columns);
  }
}

static void quantize_tensor(const quantization *work, int64_t rows) {
  const moert__quantized_call *call = work->call;
  moert__block_columns all = {0, call->hidden};
  float amax = 0.0f;
  for (int64_t row = 0; row < rows && !call->global; ++row) amax = widen_amax(call, amax, row, all);
  float factor = call->global ? *call->global : write_scale(work, amax, 0, 0);
  for (int64_t row = 0; row < rows; ++row) write_codes(work, factor, row, all);
}

moert_status moert__host_moe_quantize(const moert_moe_quantize_params *params, const moert_moe_quantize_args *args, moert_context *context) {
  (void)context;
  moert__quantized_call call;
  moert_status status = moert__moe_quantize_check(params, args, &call);
  if (status) return status;
  quantization work = {&call, moert__data(args->values), args->scales ? moert__data(args->scales) : NULL,
                       params->scale_rounding == MOERT_MOE_QUANTIZE_SCALE_ROUNDING_EVEN, params->fast_reciprocal != 0};
  if (args->scales) clear_scales(&work, args->scales);
  // Rows without elements may be more than anybody could walk through; only fp8_token writes something for them.
  int64_t rows = call.hidden > 0 || call.format == MOERT__FP8_TOKEN ? call.tokens : 0;
  if (call.format == MOERT__FP8_TENSOR) {
    quantize_tensor(&work, rows);
    return MOERT_OK;
  }
  for (int64_t row = 0; row < rows; ++row) quantize_blocks(&work, row);
  return MOERT_OK;
}

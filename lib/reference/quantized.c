//===- quantized.c - constraints of ops with quantised operands ----------------------------------------===//

#include "lib/reference/quantized.h"
#include "lib/reference/checks.h"

#include <stdio.h>

#define SAME_VALUE(ours, name)                                                                                                                       \
  _Static_assert((int)ours == (int)MOERT_MOE_QUANTIZE_##name && (int)ours == (int)MOERT_MOE_DEQUANTIZE_##name, "the ops' values of the parameter")
SAME_VALUE(MOERT__NVFP4, FORMAT_NVFP4);
SAME_VALUE(MOERT__MXFP4, FORMAT_MXFP4);
SAME_VALUE(MOERT__MXFP8, FORMAT_MXFP8);
SAME_VALUE(MOERT__FP8_BLOCK, FORMAT_FP8_BLOCK);
SAME_VALUE(MOERT__FP8_TOKEN, FORMAT_FP8_TOKEN);
SAME_VALUE(MOERT__FP8_TENSOR, FORMAT_FP8_TENSOR);
SAME_VALUE(MOERT__LINEAR, SCALE_LAYOUT_LINEAR);
SAME_VALUE(MOERT__128X4, SCALE_LAYOUT_128X4);
SAME_VALUE(MOERT__8X4, SCALE_LAYOUT_8X4);
SAME_VALUE(MOERT__TRANSPOSED, SCALE_LAYOUT_TRANSPOSED);
SAME_VALUE(0, PACKING_LOW_FIRST); // what moert__quantized_call.mega is
SAME_VALUE(1, PACKING_MEGA);

typedef moert__quantized_operands operands;

static const char *const format_names[] = {"nvfp4", "mxfp4", "mxfp8", "fp8_block", "fp8_token", "fp8_tensor"};
static const char *const layout_names[] = {"linear", "128x4", "8x4", "transposed"};

static const char *format_name(const operands *given) { return format_names[given->format]; }

//===--- parameters and presence ------------------------------------------------------------------===//

static moert_status check_layout(const operands *given) { // C6
  int64_t layout = given->layout;
  bool swizzled = layout == MOERT__128X4 || layout == MOERT__8X4, codes = moert__has_code_scales(given->format),
       block = given->format == MOERT__FP8_BLOCK;
  if (layout == MOERT__LINEAR || (swizzled ? codes : block)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'scale_layout' is %s, must be %s for format %s", layout_names[layout],
                     codes   ? "linear, 128x4 or 8x4"
                     : block ? "linear or transposed"
                             : "linear",
                     format_name(given));
}

static moert_status check_packing(const operands *given) { // C7
  if (given->packing == MOERT_MOE_QUANTIZE_PACKING_LOW_FIRST || moert__is_packed(given->format)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'packing' is mega, must be low_first for format %s, whose codes have 8 bits",
                     format_name(given));
}

static moert_status check_global_scale(const operands *given) { // C10 of moe.quantize, C8 of moe.dequantize
  if (!given->global_scale) return MOERT_OK;
  if (given->format != MOERT__NVFP4 && given->format != MOERT__FP8_TENSOR)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'global_scale' is set, must be NULL with format %s: it goes with nvfp4 and fp8_tensor",
                       format_name(given));
  return moert__check_dimension(given->global_scale, "global_scale", 0, 1, "the number of global scales");
}

static moert_status check_scales_presence(const operands *given) { // C5
  bool tensor = given->format == MOERT__FP8_TENSOR, expected = !(tensor && given->global_scale);
  if (expected == (given->scales != NULL)) return MOERT_OK;
  if (given->scales)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'scales' is set, must be NULL with format fp8_tensor and 'global_scale'");
  return moert__fail(MOERT_ERROR_NULL_POINTER, "operand '%s' is NULL, must be set with format %s%s", given->names->scales, format_name(given),
                     tensor ? " without 'global_scale'" : "");
}

//===--- element types ----------------------------------------------------------------------------===//

static bool is_byte(moert_dtype dtype) { return (dtype.code == MOERT_CODE_INT || dtype.code == MOERT_CODE_UINT) && dtype.bits == 8; }

static moert_status fail_dtype(const operands *given, const char *name, const moert_tensor *tensor, const char *expected) {
  return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand '%s': element type %s, must be %s for format %s", name, moert__dtype_name(tensor->dtype),
                     expected, format_name(given));
}

static moert_status check_element_types(const operands *given) { // C3
  moert_dtype codes = given->values->dtype;
  bool packed = moert__is_packed(given->format);
  if (!is_byte(codes) && (packed || codes.code != MOERT_CODE_F8E4M3FN))
    return fail_dtype(given, given->names->values, given->values, packed ? "i8 or ui8" : "f8E4M3FN, i8 or ui8");
  if (!given->scales) return MOERT_OK;
  moert_dtype scales = given->scales->dtype;
  if (given->format == MOERT__NVFP4 && scales.code != MOERT_CODE_F8E4M3FN && !is_byte(scales))
    return fail_dtype(given, given->names->scales, given->scales, "f8E4M3FN, i8 or ui8");
  if (given->format != MOERT__NVFP4 && moert__has_code_scales(given->format) && scales.code != MOERT_CODE_F8E8M0FNU && !is_byte(scales))
    return fail_dtype(given, given->names->scales, given->scales, "f8E8M0FNU, i8 or ui8");
  if (!moert__has_code_scales(given->format) && scales.bits != 32) return fail_dtype(given, given->names->scales, given->scales, "f32");
  return MOERT_OK;
}

//===--- shapes -----------------------------------------------------------------------------------===//

static moert_status check_hidden(const operands *given) { // C2
  int64_t block = moert__has_code_scales(given->format) ? moert__block_size(given->format) : 1;
  if (given->hidden % block == 0) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE, "%s is %" PRId64 ", must be a multiple of %" PRId64 ", the block of format %s",
                     given->names->hidden_value, given->hidden, block, format_name(given));
}

static moert_status check_values(const operands *given) { // C1
  bool packed = moert__is_packed(given->format);
  char hidden[96];
  snprintf(hidden, sizeof hidden, "%s%s", packed ? "half of " : "", given->names->hidden);
  moert_status status = moert__check_dimension(given->values, given->names->values, 0, given->tokens, given->names->tokens);
  return status ? status : moert__check_dimension(given->values, given->names->values, 1, given->hidden / (packed ? 2 : 1), hidden);
}

// Up to a multiple. A size too large for that is none of elements in memory, and stays.
static int64_t pad(int64_t size, int64_t multiple) {
  int64_t excess = size % multiple;
  return excess && size <= INT64_MAX - multiple ? size - excess + multiple : size;
}

static moert_status check_padded_scales(const operands *given, const moert__scale_grid *grid) {
  int64_t multiple = grid->layout == MOERT__128X4 ? 128 : 8;
  char rows[96];
  snprintf(rows, sizeof rows, "%s up to a multiple of %" PRId64, given->names->tokens, multiple);
  moert_status status = moert__check_dimension(given->scales, given->names->scales, 0, pad(grid->rows, multiple), rows);
  return status ? status
                : moert__check_dimension(given->scales, given->names->scales, 1, pad(grid->columns, 4), "the blocks of a row up to a multiple of 4");
}

static moert_status check_transposed_scales(const operands *given, const moert__scale_grid *grid) {
  moert_status status = moert__check_dimension(given->scales, given->names->scales, 0, grid->columns, "the blocks of a row");
  if (status || given->scales->shape[1] >= grid->rows) return status;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'scales' dimension 1 is %" PRId64 ", must be at least %s = %" PRId64,
                     given->scales->shape[1], given->names->tokens, grid->rows);
}

static moert_status check_linear_scales(const operands *given, const moert__scale_grid *grid) {
  const char *rows = given->names->tokens, *columns = "the blocks of a row";
  if (given->format == MOERT__FP8_TOKEN) columns = "the number of scales of a row of format fp8_token";
  if (given->format == MOERT__FP8_TENSOR) rows = columns = "the number of scales of format fp8_tensor";
  moert_status status = moert__check_dimension(given->scales, given->names->scales, 0, grid->rows, rows);
  return status ? status : moert__check_dimension(given->scales, given->names->scales, 1, grid->columns, columns);
}

static moert_status check_scales(const operands *given, const moert__scale_grid *grid) { // C4
  if (!given->scales) return MOERT_OK;
  switch (grid->layout) {
  case MOERT__LINEAR: return check_linear_scales(given, grid);
  case MOERT__TRANSPOSED: return check_transposed_scales(given, grid);
  default: return check_padded_scales(given, grid);
  }
}

//===--- the call ---------------------------------------------------------------------------------===//

static moert__scale_grid make_grid(const operands *given) {
  int64_t block = moert__block_size(given->format);
  moert__scale_grid grid = {.layout = (int)given->layout};
  grid.rows = given->format == MOERT__FP8_TENSOR ? 1 : given->tokens;
  grid.columns = block ? given->hidden / block + (given->hidden % block != 0) : 1;
  if (!given->scales) return grid;
  bool transposed = given->layout == MOERT__TRANSPOSED;
  grid.padded_rows = given->scales->shape[transposed];
  grid.padded_columns = given->scales->shape[!transposed];
  return grid;
}

static moert__quantized_call make_call(const operands *given) {
  moert__quantized_call call = {.format = given->format, .mega = given->packing == MOERT_MOE_QUANTIZE_PACKING_MEGA, .type = given->type};
  call.tokens = given->tokens;
  call.hidden = given->hidden;
  call.codes = moert__data(given->values);
  call.codes_stride = moert__row_stride(given->values);
  call.scales = given->scales ? moert__data(given->scales) : NULL;
  call.grid = make_grid(given);
  call.global = given->global_scale ? moert__data(given->global_scale) : NULL;
  return call;
}

moert_status moert__quantized_check(moert__quantized_call *call, const moert__quantized_operands *given) {
  moert_status status = check_layout(given);
  if (!status) status = check_packing(given);
  if (!status) status = check_global_scale(given);
  if (!status) status = check_scales_presence(given);
  if (!status) status = check_element_types(given);
  if (!status) status = check_hidden(given);
  if (!status) status = check_values(given);
  if (status) return status;
  *call = make_call(given);
  return check_scales(given, &call->grid);
}

moert_status moert__quantized_check_matrix(moert__quantized_call *call, const moert__quantized_names *names, const moert_tensor *numbers,
                                           const moert_tensor *values, const moert_tensor *scales, const moert_tensor *global_scale, int64_t format,
                                           int64_t layout, int64_t packing) {
  moert__quantized_operands given = {.names = names, .values = values, .scales = scales, .global_scale = global_scale};
  given.type = moert__format_of(numbers->dtype.code, numbers->dtype.bits);
  given.tokens = numbers->shape[0];
  given.hidden = numbers->shape[1];
  given.format = (int)format;
  given.layout = layout;
  given.packing = packing;
  moert_status status = moert__quantized_check(call, &given);
  if (status) return status;
  call->numbers = moert__data(numbers);
  call->numbers_stride = moert__row_stride(numbers);
  return MOERT_OK;
}

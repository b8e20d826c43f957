//===- moe_grouped_matmul.c - moe.grouped_matmul on the host --------------------------------------===//
//
// A group is worked on in blocks of MOERT__TILE_ROWS rows, which are gathered, widened and transposed once; its weights stream past them,
// MOERT__TILE_COLUMNS output columns at a time.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_grouped_matmul.h"
#include "lib/reference/checks.h"
#include "lib/reference/coded_rows.h"
#include "lib/reference/fma_tile.h"

typedef moert__grouped_matmul_operand operand;
typedef moert__grouped_matmul matmul;

// What the host works with beside the call.
typedef struct product {
  const moert_moe_grouped_matmul_args *args;
  const matmul *call;
  moert__fma_tile *multiply;
  float *row_block;    // [depth][MOERT__TILE_ROWS]
  float *column_block; // [MOERT__TILE_COLUMNS][depth]
} product;

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_parameters(const moert_moe_grouped_matmul_params *params) { // C7
  bool swiglu = params->activation == MOERT_MOE_GROUPED_MATMUL_ACTIVATION_SWIGLU;
  if (params->limit < 0)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'limit' is %g, must not be negative; 0 means no clamp", params->limit);
  if (params->limit > 0 && !swiglu)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'limit' is %g, must be 0 without activation swiglu", params->limit);
  if (params->alpha != 1 && params->limit == 0)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'alpha' is %g, must be 1 where limit is 0", params->alpha);
  moert_status status = moert__check_f32("alpha", params->alpha);
  return status ? status : moert__check_f32("limit", params->limit);
}

static moert_status check_plain_weights(const matmul *call, const moert_moe_grouped_matmul_args *args) {
  const moert_tensor *rows = args->rows, *weights = args->weights;
  if (args->weight_scales) // C9
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'weight_scales' is set, must be NULL where weight_format is none");
  if (args->weight_global_scale) // C10
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'weight_global_scale' is set, must be NULL where weight_format is none");
  if (!moert__dtype_equal(weights->dtype, rows->dtype)) // C2
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'weights': element type %s, must be %s as that of 'rows'",
                       moert__dtype_name(weights->dtype), moert__dtype_name(rows->dtype));
  return moert__check_dimension(weights, "weights", 2, call->depth, "dimension 1 of 'rows'");
}

static bool is_byte(moert_dtype dtype) { return (dtype.code == MOERT_CODE_INT || dtype.code == MOERT_CODE_UINT) && dtype.bits == 8; }

static moert_status check_scales(const matmul *call, const moert_tensor *scales, const moert_tensor *weights) { // C9
  const int format = call->codes.format, block = moert__block_size(format);
  if (!is_byte(scales->dtype) && scales->dtype.code != (format == MOERT__NVFP4 ? MOERT_CODE_F8E4M3FN : MOERT_CODE_F8E8M0FNU))
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'weight_scales': element type %s, must be %s, i8 or ui8 for weight_format %s",
                       moert__dtype_name(scales->dtype), format == MOERT__NVFP4 ? "f8E4M3FN" : "f8E8M0FNU",
                       format == MOERT__NVFP4 ? "nvfp4" : "mxfp4");
  moert_status status = moert__check_dimension(scales, "weight_scales", 0, weights->shape[0], "dimension 0 of 'weights'");
  if (!status) status = moert__check_dimension(scales, "weight_scales", 1, weights->shape[1], "dimension 1 of 'weights'");
  const char *columns = block == 16 ? "a sixteenth of dimension 1 of 'rows'" : "a thirty-second of dimension 1 of 'rows'";
  return status ? status : moert__check_dimension(scales, "weight_scales", 2, call->depth / block, columns);
}

static moert_status check_codes(const matmul *call, const moert_moe_grouped_matmul_args *args) {
  const moert_tensor *rows = args->rows, *weights = args->weights;
  if (rows->dtype.code != MOERT_CODE_BFLOAT) // C2
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'rows': element type %s, must be bf16 with a weight_format",
                       moert__dtype_name(rows->dtype));
  if (!is_byte(weights->dtype))
    return moert__fail(MOERT_ERROR_INVALID_DTYPE, "operand 'weights': element type %s, must be i8 or ui8 with a weight_format",
                       moert__dtype_name(weights->dtype));
  if (!args->weight_scales) // C9
    return moert__fail(MOERT_ERROR_NULL_POINTER, "operand 'weight_scales' is NULL, must be set with a weight_format");
  if (args->weight_global_scale && call->codes.format != MOERT__NVFP4) // C10
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "operand 'weight_global_scale' is set, must be NULL where weight_format is mxfp4");
  moert_status status = moert__check_multiple(rows, "rows", 1, moert__block_size(call->codes.format)); // C8
  if (!status) status = moert__check_dimension(weights, "weights", 2, call->depth / 2, "half of dimension 1 of 'rows'");
  if (!status) status = check_scales(call, args->weight_scales, weights);
  if (!status && args->weight_global_scale)
    status = moert__check_dimension(args->weight_global_scale, "weight_global_scale", 0, call->groups, "dimension 0 of 'weights'");
  return status;
}

static moert_status check_weights(const matmul *call, const moert_moe_grouped_matmul_args *args) {
  moert_status status = moert__check_multiple(args->rows, "rows", 1, 8); // C1
  if (!status) status = call->codes.there ? check_codes(call, args) : check_plain_weights(call, args);
  return status ? status : moert__check_multiple(args->weights, "weights", 1, call->swiglu ? 16 : 8);
}

static moert_status check_shapes(const matmul *call, const moert_moe_grouped_matmul_args *args) {
  const char *rows = args->row_ids ? "dimension 0 of 'row_ids'" : "dimension 0 of 'rows'";
  const char *columns = call->swiglu ? "half of dimension 1 of 'weights'" : "dimension 1 of 'weights'";
  moert_status status = check_weights(call, args);
  if (!status && call->groups == INT64_MAX) // of weights without elements
    status = moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand 'weights' dimension 0 is %" PRId64 ", must be less", call->groups);
  if (!status) status = moert__check_dimension(args->offsets, "offsets", 0, call->groups + 1, "one more than dimension 0 of 'weights'"); // C3
  if (!status) status = moert__check_dimension(args->out, "out", 0, call->rows, rows);                                                   // C4
  if (!status) status = moert__check_dimension(args->out, "out", 1, call->out_columns, columns);
  if (!status && args->bias) status = moert__check_dimension(args->bias, "bias", 0, call->groups, "dimension 0 of 'weights'"); // C5
  if (!status && args->bias) status = moert__check_dimension(args->bias, "bias", 1, call->columns, "dimension 1 of 'weights'");
  if (!status && args->row_weights) status = moert__check_dimension(args->row_weights, "row_weights", 0, call->rows, rows); // C6
  return status;
}

static operand operand_of(const moert_tensor *tensor) {
  if (!tensor) return (operand){MOERT__F32, NULL};
  return (operand){moert__format_of(tensor->dtype.code, tensor->dtype.bits), moert__data(tensor)};
}

static moert__grouped_matmul_codes make_codes(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args) {
  moert__grouped_matmul_codes codes = {.there = params->weight_format != MOERT_MOE_GROUPED_MATMUL_WEIGHT_FORMAT_NONE};
  if (!codes.there) return codes;
  codes.format = params->weight_format == MOERT_MOE_GROUPED_MATMUL_WEIGHT_FORMAT_NVFP4 ? MOERT__NVFP4 : MOERT__MXFP4;
  codes.values = moert__data(args->weights);
  if (args->weight_scales) codes.scales = moert__data(args->weight_scales);
  if (args->weight_global_scale) codes.global_scales = moert__data(args->weight_global_scale);
  return codes;
}

static matmul make_matmul(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args) {
  matmul call = {.swiglu = params->activation == MOERT_MOE_GROUPED_MATMUL_ACTIVATION_SWIGLU};
  call.form = (moert__swiglu_form){params->limit > 0, (float)params->alpha, (float)params->limit};
  call.groups = args->weights->shape[0];
  call.rows = (args->row_ids ? args->row_ids : args->rows)->shape[0];
  call.columns = args->weights->shape[1];
  call.depth = args->rows->shape[1];
  call.in_rows = args->rows->shape[0];
  call.out_columns = call.swiglu ? call.columns / 2 : call.columns;
  call.in = operand_of(args->rows);
  call.codes = make_codes(params, args);
  if (!call.codes.there) call.weights = operand_of(args->weights);
  call.bias = operand_of(args->bias);
  call.out = operand_of(args->out);
  call.row_weights = operand_of(args->row_weights).data;
  return call;
}

moert_status moert__grouped_matmul_check(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args, matmul *call) {
  moert_status status = check_parameters(params);
  if (status) return status;
  *call = make_matmul(params, args);
  return check_shapes(call, args);
}

//===--- checks of the elements -------------------------------------------------------------------===//

// Of a tensor of i32 or ui32.
static int64_t index_at(const moert_tensor *tensor, int64_t position) {
  const void *data = moert__data(tensor);
  return tensor->dtype.code == MOERT_CODE_UINT ? (int64_t)((const uint32_t *)data)[position] : (int64_t)((const int32_t *)data)[position];
}

static moert_status check_offsets(const matmul *call, const moert_tensor *offsets) {
  int64_t previous = 0;
  for (int64_t g = 0; g <= call->groups; ++g) {
    int64_t offset = index_at(offsets, g);
    if (offset < 0) return moert__fail(MOERT_ERROR_DATA, "offsets[%" PRId64 "] is %" PRId64 ", must not be negative", g, offset);
    if (offset < previous)
      return moert__fail(MOERT_ERROR_DATA, "offsets[%" PRId64 "] is %" PRId64 ", less than offsets[%" PRId64 "] = %" PRId64 ": must not descend", g,
                         offset, g - 1, previous);
    if (offset > call->rows)
      return moert__fail(MOERT_ERROR_DATA, "offsets[%" PRId64 "] is %" PRId64 ", exceeds the %" PRId64 " rows of 'out'", g, offset, call->rows);
    previous = offset;
  }
  return MOERT_OK;
}

// Of the rows that belong to a group; the others are not looked at.
static moert_status check_row_ids(const matmul *call, const moert_moe_grouped_matmul_args *args) {
  if (!args->row_ids) return MOERT_OK;
  int64_t first = index_at(args->offsets, 0), last = index_at(args->offsets, call->groups), rows = call->in_rows;
  for (int64_t r = first; r < last; ++r) {
    int64_t id = index_at(args->row_ids, r);
    if (id < 0 || id >= rows)
      return moert__fail(MOERT_ERROR_DATA, "row_ids[%" PRId64 "] is %" PRId64 ", must be at least 0 and less than the %" PRId64 " rows of 'rows'", r,
                         id, rows);
  }
  return MOERT_OK;
}

//===--- products ---------------------------------------------------------------------------------===//

static void widen(operand from, int64_t first, int64_t count, float *to) {
  switch (from.format) {
  case MOERT__BF16:
    for (int64_t i = 0; i < count; ++i) to[i] = moert__bf16_to_f32(((const uint16_t *)from.data)[first + i]);
    break;
  case MOERT__F16:
    for (int64_t i = 0; i < count; ++i) to[i] = moert__f16_to_f32(((const uint16_t *)from.data)[first + i]);
    break;
  case MOERT__F32:
    for (int64_t i = 0; i < count; ++i) to[i] = ((const float *)from.data)[first + i];
    break;
  }
}

// Lanes beyond `count` are 0.
static void gather_rows(const product *work, int64_t first, int64_t count) {
  const matmul *call = work->call;
  for (int64_t lane = 0; lane < MOERT__TILE_ROWS; ++lane) {
    float *to = work->row_block + lane;
    if (lane >= count) {
      for (int64_t k = 0; k < call->depth; ++k) to[k * MOERT__TILE_ROWS] = 0.0f;
      continue;
    }
    int64_t row = work->args->row_ids ? index_at(work->args->row_ids, first + lane) : first + lane;
    for (int64_t k = 0; k < call->depth; ++k) to[k * MOERT__TILE_ROWS] = moert__load(call->in.format, call->in.data, row * call->depth + k);
  }
}

// The factor of the decoder, of all sums of the group.
static void scale_sums(const matmul *call, int64_t group, moert__tile_sums *sums) {
  if (!call->codes.global_scales) return;
  const float inverse = moert__divide(1.0f, call->codes.global_scales[group]);
  for (int64_t c = 0; c < MOERT__TILE_COLUMNS; ++c)
    for (int64_t lane = 0; lane < MOERT__TILE_ROWS; ++lane) sums->of[c][lane] *= inverse;
}

static void multiply_columns(const product *work, int64_t group, int64_t column, moert__tile_sums *sums) {
  const matmul *call = work->call;
  const int64_t first = group * call->columns + column;
  if (call->codes.there) {
    const moert__coded_rows weights = {call->codes.format, call->depth, call->depth / 2, call->codes.values, call->codes.scales};
    moert__decode_rows(&weights, first, MOERT__TILE_COLUMNS, work->column_block);
  } else {
    widen(call->weights, first * call->depth, MOERT__TILE_COLUMNS * call->depth, work->column_block);
  }
  work->multiply(call->depth, work->row_block, work->column_block, sums);
  scale_sums(call, group, sums);
}

//===--- activation -------------------------------------------------------------------------------===//

static float add_bias(const matmul *call, int64_t group, int64_t column, float sum) {
  return call->bias.data ? sum + moert__load(call->bias.format, call->bias.data, group * call->columns + column) : sum;
}

static void store_columns(const matmul *call, int64_t group, int64_t first, int64_t count, int64_t column, const moert__tile_sums *gates,
                          const moert__tile_sums *ups) {
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t c = 0; c < MOERT__TILE_COLUMNS; ++c) {
      float value = add_bias(call, group, column + c, gates->of[c][lane]);
      if (call->swiglu) value = moert__swiglu(call->form, value, add_bias(call, group, call->out_columns + column + c, ups->of[c][lane]));
      if (call->row_weights) value *= call->row_weights[first + lane];
      moert__store(call->out.format, call->out.data, (first + lane) * call->out_columns + column + c, value);
    }
}

static void multiply_block(const product *work, int64_t group, int64_t first, int64_t count) {
  const matmul *call = work->call;
  gather_rows(work, first, count);
  for (int64_t column = 0; column < call->out_columns; column += MOERT__TILE_COLUMNS) {
    moert__tile_sums gates, ups = {{{0}}};
    multiply_columns(work, group, column, &gates);
    if (call->swiglu) multiply_columns(work, group, call->out_columns + column, &ups);
    store_columns(call, group, first, count, column, &gates, &ups);
  }
}

//===--- the op -----------------------------------------------------------------------------------===//

static void multiply_groups(const product *work) {
  const moert_tensor *offsets = work->args->offsets;
  for (int64_t group = 0; group < work->call->groups; ++group) {
    int64_t end = index_at(offsets, group + 1);
    for (int64_t first = index_at(offsets, group); first < end; first += MOERT__TILE_ROWS)
      multiply_block(work, group, first, end - first < MOERT__TILE_ROWS ? end - first : MOERT__TILE_ROWS);
  }
}

moert_status moert__host_moe_grouped_matmul(const moert_moe_grouped_matmul_params *params, const moert_moe_grouped_matmul_args *args,
                                            moert_context *context) {
  matmul call;
  moert_status status = moert__grouped_matmul_check(params, args, &call);
  if (!status) status = check_offsets(&call, args->offsets);
  if (!status) status = check_row_ids(&call, args);
  // Without a row of a group, or without columns, the depth is no size of anything in memory.
  if (status || call.out_columns == 0 || index_at(args->offsets, 0) == index_at(args->offsets, call.groups)) return status;
  moert__arena_mark mark = moert__arena_mark_get(context);
  void *blocks;
  status = moert_context_allocate(context, (MOERT__TILE_ROWS + MOERT__TILE_COLUMNS) * call.depth * (int64_t)sizeof(float), &blocks);
  if (status) return status;
  product work = {args, &call, moert__fma_tile_select(), blocks, (float *)blocks + MOERT__TILE_ROWS * call.depth};
  multiply_groups(&work);
  moert__arena_rewind(context, mark);
  return MOERT_OK;
}

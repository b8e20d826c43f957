//===- formats.c - what the bench of the formats measures ----------------------------------------------===//
//
// moe.quantize and moe.dequantize of rows of 7168 numbers, in every format and layout.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/formats.h"
#include "operands.h"
#include <stdio.h>

enum { HIDDEN = 7168, MOST_CASES = 64, MOST_NAME = 48 };

// What is special about a case.
typedef enum Option { PLAIN, EVEN, FAST, GIVEN } Option; // GIVEN: the factor of an FP8 tensor, which is found otherwise

typedef struct Kind {
  int format, layout;
  bool mega;
  Option option;
  moert_dtype dtype; // of the numbers
} Kind;

static Kind kinds[MOST_CASES]; // of the case of the same index
static Case cases[MOST_CASES];
static char names[MOST_CASES][MOST_NAME];
static int num_cases;

static const Kind *kind_of(const Work *work) { return &kinds[work->what - cases]; }

//===--- operands -----------------------------------------------------------------------------------===//

enum { NUMBERS, CODES, SCALES, FACTOR };

static int64_t round_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

static int64_t scales_a_row(const Kind *kind) {
  int64_t block = moert__block_size(kind->format);
  return block ? HIDDEN / block : 1;
}

static bool has_scales(const Kind *kind) { return kind->option != GIVEN; }
static bool has_factor(const Kind *kind) { return kind->format == MOERT__NVFP4 || kind->option == GIVEN; }

static moert_dtype dtype_of_codes(const Kind *kind) { return moert__is_packed(kind->format) ? I8 : (moert_dtype){MOERT_CODE_F8E4M3FN, 8, 1}; }

static moert_dtype dtype_of_scales(const Kind *kind) {
  switch (kind->format) {
  case MOERT__NVFP4: return (moert_dtype){MOERT_CODE_F8E4M3FN, 8, 1};
  case MOERT__MXFP4:
  case MOERT__MXFP8: return (moert_dtype){MOERT_CODE_F8E8M0FNU, 8, 1};
  default: return F32;
  }
}

static moert_status add_scales(Work *work, Buffer *buffer) {
  const Kind *kind = kind_of(work);
  int64_t columns = scales_a_row(kind), rows = kind->format == MOERT__FP8_TENSOR ? 1 : work->tokens;
  switch (kind->layout) {
  case MOERT__128X4: return operand_add(work, buffer, dtype_of_scales(kind), 2, SHAPE(round_up(rows, 128), round_up(columns, 4)));
  case MOERT__8X4: return operand_add(work, buffer, dtype_of_scales(kind), 2, SHAPE(round_up(rows, 8), round_up(columns, 4)));
  case MOERT__TRANSPOSED: return operand_add(work, buffer, dtype_of_scales(kind), 2, SHAPE(columns, rows));
  default: return operand_add(work, buffer, dtype_of_scales(kind), 2, SHAPE(rows, columns));
  }
}

// 448 * 6 over the largest magnitude, and 448 over it, which is 1.
static moert_status add_factor(Work *work, Buffer *buffer) {
  float factor = MOERT__E4M3_MAX * (kind_of(work)->format == MOERT__NVFP4 ? MOERT__E2M1_MAX : 1);
  moert_status status = operand_add(work, buffer, F32, 1, SHAPE(1));
  return status ? status : moert_copy(work->context, buffer->tensor.data, &factor, sizeof factor);
}

static moert_status fill_quantize(Work *work, int set) {
  const Kind *kind = kind_of(work);
  Buffer *buffers = work->buffers[set];
  int64_t bytes = moert__is_packed(kind->format) ? HIDDEN / 2 : HIDDEN;
  moert_status status = operand_add_random(work, set, NUMBERS, 1, kind->dtype, 2, SHAPE(work->tokens, HIDDEN));
  if (!status) status = operand_add(work, &buffers[CODES], dtype_of_codes(kind), 2, SHAPE(work->tokens, bytes));
  if (!status && has_scales(kind)) status = add_scales(work, &buffers[SCALES]);
  if (!status && has_factor(kind)) status = add_factor(work, &buffers[FACTOR]);
  buffers[CODES].is_output = buffers[SCALES].is_output = true;
  return status;
}

//===--- calls --------------------------------------------------------------------------------------===//

static const moert_tensor *scales_operand(const Work *work, int set) { return has_scales(kind_of(work)) ? operand(work, set, SCALES) : NULL; }
static const moert_tensor *factor_operand(const Work *work, int set) { return has_factor(kind_of(work)) ? operand(work, set, FACTOR) : NULL; }

static moert_status call_quantize(Work *work, int set, moert_kernel *kernel) {
  const Kind *kind = kind_of(work);
  moert_moe_quantize_params params = MOERT_MOE_QUANTIZE_PARAMS_INIT;
  params.format = kind->format;
  params.scale_layout = kind->layout;
  params.packing = kind->mega;
  params.scale_rounding = kind->option == EVEN;
  params.fast_reciprocal = kind->option == FAST;
  moert_moe_quantize_args args = MOERT_MOE_QUANTIZE_ARGS_INIT;
  args.input = operand(work, set, NUMBERS);
  args.global_scale = factor_operand(work, set);
  args.values = operand(work, set, CODES);
  args.scales = scales_operand(work, set);
  return moert_moe_quantize(&params, &args, kernel, work->context);
}

static moert_status call_dequantize(Work *work, int set, moert_kernel *kernel) {
  const Kind *kind = kind_of(work);
  moert_moe_dequantize_params params = MOERT_MOE_DEQUANTIZE_PARAMS_INIT;
  params.format = kind->format;
  params.scale_layout = kind->layout;
  params.packing = kind->mega;
  moert_moe_dequantize_args args = MOERT_MOE_DEQUANTIZE_ARGS_INIT;
  args.values = operand(work, set, CODES);
  args.scales = scales_operand(work, set);
  args.global_scale = factor_operand(work, set);
  args.out = operand(work, set, NUMBERS);
  return moert_moe_dequantize(&params, &args, kernel, work->context);
}

// Codes and scales of random numbers: those of random bytes would be NaN now and then.
static moert_status fill_dequantize(Work *work, int set) {
  Buffer *buffers = work->buffers[set];
  moert_status status = fill_quantize(work, set);
  buffers[CODES].is_output = buffers[SCALES].is_output = false;
  buffers[NUMBERS].is_output = true;
  return status ? status : call_quantize(work, set, NULL);
}

//===--- costs --------------------------------------------------------------------------------------===//

// Padding is written. To find the scale of a tensor, its numbers are read twice.
static Cost cost_quantize(const Work *work) {
  const Kind *kind = kind_of(work);
  const Buffer *buffers = work->buffers[0];
  size_t times = kind->format == MOERT__FP8_TENSOR && has_scales(kind) ? 2 : 1;
  return (Cost){.memory_bytes = (int64_t)(times * buffers[NUMBERS].bytes + buffers[CODES].bytes + buffers[SCALES].bytes + buffers[FACTOR].bytes)};
}

// Padding is not read.
static Cost cost_dequantize(const Work *work) {
  const Kind *kind = kind_of(work);
  const Buffer *buffers = work->buffers[0];
  int64_t rows = kind->format == MOERT__FP8_TENSOR ? 1 : work->tokens;
  int64_t scales = has_scales(kind) ? rows * scales_a_row(kind) * dtype_of_scales(kind).bits / 8 : 0;
  return (Cost){.memory_bytes = (int64_t)(buffers[NUMBERS].bytes + buffers[CODES].bytes + buffers[FACTOR].bytes) + scales};
}

//===--- the table ----------------------------------------------------------------------------------===//

static const Step quantize_step = {"quantize", "moe.quantize", call_quantize, cost_quantize};
static const Step dequantize_step = {"dequantize", "moe.dequantize", call_dequantize, cost_dequantize};

static const char *name_of(moert_dtype dtype) { return dtype.bits == 32 ? "f32" : dtype.code == MOERT_CODE_BFLOAT ? "bf16" : "f16"; }

static void name_case(char *name, bool decodes, const Kind *kind) {
  static const char *const formats[] = {"nvfp4", "mxfp4", "mxfp8", "fp8_block", "fp8_token", "fp8_tensor"};
  static const char *const layouts[] = {"linear", "128x4", "8x4", "transposed"};
  static const char *const options[] = {"", ", even", ", fast", ", given"};
  bool found = kind->format == MOERT__FP8_TENSOR && kind->option == PLAIN && !decodes;
  snprintf(name, MOST_NAME, "%s, %s%s%s", formats[kind->format], layouts[kind->layout], kind->mega ? ", mega" : "",
           found ? ", found" : options[kind->option]);
}

static void add_case(bool decodes, Kind kind) {
  int index = num_cases++;
  kinds[index] = kind;
  name_case(names[index], decodes, &kind);
  cases[index] = (Case){.variant = names[index],
                        .dtype = name_of(kind.dtype),
                        .shape = {.hidden = HIDDEN},
                        .fill = decodes ? fill_dequantize : fill_quantize,
                        .num_steps = 1,
                        .steps = {decodes ? dequantize_step : quantize_step}};
}

static bool goes_with(int format, int layout) {
  switch (layout) {
  case MOERT__128X4:
  case MOERT__8X4: return format == MOERT__NVFP4 || format == MOERT__MXFP4 || format == MOERT__MXFP8;
  case MOERT__TRANSPOSED: return format == MOERT__FP8_BLOCK;
  default: return true;
  }
}

static void add_layouts(bool decodes, int format) {
  for (int layout = MOERT__LINEAR; layout <= MOERT__TRANSPOSED; ++layout) {
    if (!goes_with(format, layout)) continue;
    for (int mega = 0; mega <= moert__is_packed(format); ++mega) add_case(decodes, (Kind){format, layout, mega != 0, PLAIN, BF16});
  }
}

static void add_others(bool decodes) {
  static const int of_all_types[] = {MOERT__NVFP4, MOERT__MXFP8, MOERT__FP8_BLOCK};
  for (int i = 0; i < 3; ++i) {
    add_case(decodes, (Kind){of_all_types[i], MOERT__LINEAR, false, PLAIN, F16});
    add_case(decodes, (Kind){of_all_types[i], MOERT__LINEAR, false, PLAIN, F32});
  }
  add_case(decodes, (Kind){MOERT__FP8_TENSOR, MOERT__LINEAR, false, GIVEN, BF16});
  if (decodes) return;
  add_case(decodes, (Kind){MOERT__MXFP4, MOERT__LINEAR, false, EVEN, BF16});
  add_case(decodes, (Kind){MOERT__MXFP8, MOERT__LINEAR, false, EVEN, BF16});
  add_case(decodes, (Kind){MOERT__NVFP4, MOERT__LINEAR, false, FAST, BF16});
}

static void add_all(bool decodes) {
  for (int format = MOERT__NVFP4; format <= MOERT__FP8_TENSOR; ++format) add_layouts(decodes, format);
  add_others(decodes);
}

// Made when they are first asked for.
const Case *format_cases(int *count) {
  if (num_cases == 0) {
    add_all(false);
    add_all(true);
  }
  *count = num_cases;
  return cases;
}

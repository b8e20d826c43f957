//===- quantize.c - moe.quantize and moe.dequantize on a GPU ---------------------------------------------===//
//
// Codes, scales and numbers must have the bits of the host backend, by the kernels that the library chooses and by the generic ones: in every
// format, layout and packing, at the edges of shapes, of every bf16 and f16, of special blocks, of all codes under all scales. Only the codes of
// fast_reciprocal may be others, by one step.
//
//===----------------------------------------------------------------------------------------------===//

#include "gpu.h"
#include "lib/reference/formats.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum Values {
  NUMBERS, // of other magnitudes in each 16
  BITS,    // any patterns
  BLOCKS,  // each block of a kind of its own: zeros, NaN, infinities, subnormals, largest elements at the edges of scales, ties
  ALONE,   // one pattern in each row of zeros, in turn all of 16 bits
  ALL      // all patterns of 16 bits in turn
} Values;

typedef struct Case {
  int format;
  const char *dtype; // of the numbers
  int64_t tokens, hidden;
  Values values;
  int64_t padding; // elements between rows of the input, and bytes between those of the codes that are decoded
  int64_t shift;   // elements before the first of each operand
} Case;

static int64_t round_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

//===--- variants -----------------------------------------------------------------------------------===//

// What a call may have besides format and shape.
typedef struct Variant {
  int layout;
  bool mega, even, global;
} Variant;

enum { MOST_VARIANTS = 12 };

static bool has_scale_codes(int format) { return format == MOERT__NVFP4 || format == MOERT__MXFP4 || format == MOERT__MXFP8; }

static bool is_legal(int format, Variant variant) {
  if (variant.layout == MOERT__TRANSPOSED && format != MOERT__FP8_BLOCK) return false;
  if ((variant.layout == MOERT__128X4 || variant.layout == MOERT__8X4) && !has_scale_codes(format)) return false;
  if (variant.mega && !moert__is_packed(format)) return false;
  if (variant.even && format != MOERT__MXFP4 && format != MOERT__MXFP8) return false;
  return !variant.global || format == MOERT__NVFP4 || format == MOERT__FP8_TENSOR;
}

static int list_variants(int format, Variant *variants) {
  int count = 0;
  for (int bits = 0; bits < 32; ++bits) {
    Variant variant = {bits >> 3, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    if (is_legal(format, variant)) variants[count++] = variant;
  }
  return count;
}

static const char *name_of_format(int format) {
  static const char *const names[] = {"nvfp4", "mxfp4", "mxfp8", "fp8_block", "fp8_token", "fp8_tensor"};
  return names[format];
}

//===--- operands -----------------------------------------------------------------------------------===//

// A matrix in a list that has `shift` elements before it, and others between its rows.
typedef struct Operand {
  gpu_buffer *buffer;
  moert_tensor tensor;
  int64_t shape[2], strides[2], shift;
} Operand;

// Its tensor points into it: it stays where it is.
static void make_operand(gpu_rank *rank, Operand *operand, const char *dtype, int64_t rows, int64_t columns, int64_t padding, int64_t shift) {
  operand->shape[0] = rows;
  operand->shape[1] = columns;
  operand->strides[0] = columns + padding;
  operand->strides[1] = 1;
  operand->shift = shift;
  operand->buffer = gpu_new(rank, dtype, 1, shift + rows * (columns + padding));
  operand->tensor = operand->buffer->tensor;
  operand->tensor.ndim = 2;
  operand->tensor.shape = operand->shape;
  operand->tensor.strides = padding ? operand->strides : NULL;
  operand->tensor.byte_offset += (uint64_t)(shift * operand->tensor.dtype.bits / 8);
}

static int64_t width_of(const Operand *operand) { return operand->tensor.dtype.bits / 8; }

// As the host sees it.
static uint8_t *row_of(const Operand *operand, int64_t row) {
  return (uint8_t *)operand->buffer->host + (operand->shift + row * operand->strides[0]) * width_of(operand);
}

// One call of each op; `global` and `scales` may be absent.
typedef struct Call {
  Case what;
  Variant variant;
  bool fast;
  moert__scale_grid grid;
  gpu_buffer *global;
  Operand input, values, scales;
  Operand strided; // the codes in rows that lie apart
  Operand out;
} Call;

static moert__scale_grid grid_of(const Case *what, int layout) {
  int64_t block = moert__block_size(what->format), columns = block ? (what->hidden + block - 1) / block : 1;
  int64_t rows = what->format == MOERT__FP8_TENSOR ? 1 : what->tokens;
  switch (layout) {
  case MOERT__128X4: return (moert__scale_grid){layout, rows, columns, round_up(rows, 128), round_up(columns, 4)};
  case MOERT__8X4: return (moert__scale_grid){layout, rows, columns, round_up(rows, 8), round_up(columns, 4)};
  case MOERT__TRANSPOSED: return (moert__scale_grid){layout, rows, columns, round_up(rows, 4) + 4, columns};
  default: return (moert__scale_grid){layout, rows, columns, rows, columns};
  }
}

static bool has_scales(const Call *call) { return call->what.format != MOERT__FP8_TENSOR || !call->variant.global; }

// `number` chooses among the element types that stand for the same bytes.
static const char *dtype_of_values(int format, int number) {
  static const char *const dtypes[] = {"i8", "ui8", "f8E4M3FN"};
  return dtypes[number % (moert__is_packed(format) ? 2 : 3)];
}

static const char *dtype_of_scales(int format, int number) {
  if (!has_scale_codes(format)) return "f32";
  const char *dtypes[] = {format == MOERT__NVFP4 ? "f8E4M3FN" : "f8E8M0FNU", "ui8", "i8"};
  return dtypes[number % 3];
}

static void set_global(gpu_rank *rank, Call *call, double value) {
  call->global = gpu_new(rank, "f32", 1, 1);
  gpu_set(call->global, 0, value);
  gpu_upload(call->global);
}

// All but the input.
static void make_call(gpu_rank *rank, Call *call, const Case *what, Variant variant, int number) {
  const char *const outs[] = {"bf16", "f16", "f32"};
  int64_t columns = moert__is_packed(what->format) ? what->hidden / 2 : what->hidden;
  call->what = *what;
  call->variant = variant;
  call->grid = grid_of(what, variant.layout);
  bool turned = variant.layout == MOERT__TRANSPOSED;
  make_operand(rank, &call->values, dtype_of_values(what->format, number), what->tokens, columns, 0, what->shift);
  make_operand(rank, &call->strided, dtype_of_values(what->format, number), what->tokens, columns, what->padding, what->shift);
  make_operand(rank, &call->scales, dtype_of_scales(what->format, number), turned ? call->grid.columns : call->grid.padded_rows,
               turned ? call->grid.padded_rows : call->grid.padded_columns, 0, what->shift);
  make_operand(rank, &call->out, outs[number % 3], what->tokens, what->hidden, 0, what->shift);
}

//===--- numbers ------------------------------------------------------------------------------------===//

static moert__format type_of(const Operand *operand) { return moert__format_of(operand->tensor.dtype.code, operand->tensor.dtype.bits); }

static void set_bits(const Operand *operand, int64_t row, int64_t column, uint32_t bits) {
  memcpy(row_of(operand, row) + column * width_of(operand), &bits, (size_t)width_of(operand)); // little endian: the low bytes come first
}

static void set_number(const Operand *operand, int64_t row, int64_t column, double value) {
  moert__store(type_of(operand), row_of(operand, row), column, (float)value);
}

static double unit(gpu_rank *rank) { return (double)gpu_random_below(rank, 1 << 24) * 0x1p-23 - 1; } // in [-1, 1)

typedef enum Kind { ZEROS, ONE_NAN, ONE_INFINITY, SUBNORMALS, TIES, POWER, TOP_OF_E2M1, TOP_OF_E4M3, LARGEST, ALL_NAN, KINDS } Kind;

// Of the largest element, before it is moved by a unit in the last place.
static double most_of(gpu_rank *rank, Kind kind, double power) {
  switch (kind) {
  case ONE_NAN: return NAN;
  case ONE_INFINITY: return gpu_random_below(rank, 2) ? (double)INFINITY : -(double)INFINITY;
  case SUBNORMALS: return 0x1p-149;
  case TIES:
  case TOP_OF_E2M1: return 6 * power;
  case TOP_OF_E4M3: return 448 * power;
  case LARGEST: return MOERT__F32_MAX;
  default: return power;
  }
}

static double element_of(gpu_rank *rank, Kind kind, double power) {
  const double between[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0}; // of E2M1; E4M3 has all but three of them
  double sign = gpu_random_below(rank, 2) ? 1 : -1;
  switch (kind) {
  case ZEROS: return sign * 0.0;
  case SUBNORMALS: return 0; // by bits
  case TIES: return sign * between[gpu_random_below(rank, 7)] * power;
  case ALL_NAN: return NAN;
  case LARGEST: return unit(rank) * (double)MOERT__F32_MAX;
  default: return unit(rank) * power;
  }
}

static void fill_block(gpu_rank *rank, const Operand *input, int64_t row, int64_t first, int64_t count) {
  Kind kind = (Kind)gpu_random_below(rank, KINDS);
  int exponent = type_of(input) == MOERT__F16 ? (int)gpu_random_below(rank, 28) - 22 : (int)gpu_random_below(rank, 270) - 145;
  double power = ldexp(1, exponent);
  int64_t at = first + gpu_random_below(rank, count);
  for (int64_t h = first; h < first + count; ++h) {
    set_number(input, row, h, element_of(rank, kind, power));
    if (kind == SUBNORMALS)
      set_bits(input, row, h, (uint32_t)gpu_random_below(rank, 128) | (gpu_random_below(rank, 2) ? 0 : 1u << (8 * width_of(input) - 1)));
  }
  if (kind == ZEROS || kind == ALL_NAN) return;
  set_number(input, row, at, most_of(rank, kind, power));
  if (kind < TIES) return;
  uint32_t bits = 0;
  memcpy(&bits, row_of(input, row) + at * width_of(input), (size_t)width_of(input));
  set_bits(input, row, at, bits + (uint32_t)gpu_random_below(rank, 3) - (bits > 0)); // and its neighbours
}

static void fill_blocks(gpu_rank *rank, const Case *what, const Operand *input, int64_t row) {
  int64_t block = moert__block_size(what->format), count = block ? block : what->hidden;
  for (int64_t first = 0; first < what->hidden; first += count)
    fill_block(rank, input, row, first, first + count < what->hidden ? count : what->hidden - first);
}

static void fill_numbers(gpu_rank *rank, const Case *what, const Operand *input, int64_t row) {
  double power = 1;
  for (int64_t h = 0; h < what->hidden; ++h) {
    if (h % 16 == 0) power = ldexp(1, (int)gpu_random_below(rank, 20) - 12);
    set_number(input, row, h, unit(rank) * power);
  }
}

// f32 has more patterns than can be tried: any of them.
static uint32_t pattern(gpu_rank *rank, const Operand *input, int64_t index) {
  return width_of(input) == 4 ? (uint32_t)gpu_random_bits(rank) : (uint32_t)(index * 40503); // which is odd
}

static void fill_row(gpu_rank *rank, const Case *what, const Operand *input, int64_t row) {
  switch (what->values) {
  case NUMBERS: fill_numbers(rank, what, input, row); break;
  case BLOCKS: fill_blocks(rank, what, input, row); break;
  case ALONE:
    memset(row_of(input, row), 0, (size_t)(what->hidden * width_of(input)));
    set_bits(input, row, row / 7 % what->hidden, pattern(rank, input, row));
    break;
  case ALL:
    for (int64_t h = 0; h < what->hidden; ++h) set_bits(input, row, h, pattern(rank, input, row * what->hidden + h));
    break;
  default:
    for (int64_t h = 0; h < what->hidden; ++h) set_bits(input, row, h, (uint32_t)gpu_random_bits(rank));
  }
}

// Between rows poison remains, which has larger magnitudes than NUMBERS.
static void make_input(gpu_rank *rank, Operand *input, const Case *what) {
  make_operand(rank, input, what->dtype, what->tokens, what->hidden, what->padding, what->shift);
  for (int64_t row = 0; row < what->tokens; ++row) fill_row(rank, what, input, row);
  gpu_upload(input->buffer);
}

//===--- calls --------------------------------------------------------------------------------------===//

static moert_status quantize(gpu_rank *rank, const Call *call, const Operand *input, moert_kernel *kernel) {
  moert_moe_quantize_params params = MOERT_MOE_QUANTIZE_PARAMS_INIT;
  params.format = call->what.format;
  params.scale_layout = call->variant.layout;
  params.packing = call->variant.mega;
  params.scale_rounding = call->variant.even;
  params.fast_reciprocal = call->fast;
  moert_moe_quantize_args args = MOERT_MOE_QUANTIZE_ARGS_INIT;
  args.input = &input->tensor;
  args.global_scale = call->global ? &call->global->tensor : NULL;
  args.values = &call->values.tensor;
  args.scales = has_scales(call) ? &call->scales.tensor : NULL;
  return moert_moe_quantize(&params, &args, kernel, rank->context);
}

static moert_status dequantize(gpu_rank *rank, const Call *call, const Operand *values, const Operand *out, moert_kernel *kernel) {
  moert_moe_dequantize_params params = MOERT_MOE_DEQUANTIZE_PARAMS_INIT;
  params.format = call->what.format;
  params.scale_layout = call->variant.layout;
  params.packing = call->variant.mega;
  moert_moe_dequantize_args args = MOERT_MOE_DEQUANTIZE_ARGS_INIT;
  args.values = &values->tensor;
  args.scales = has_scales(call) ? &call->scales.tensor : NULL;
  args.global_scale = call->global ? &call->global->tensor : NULL;
  args.out = &out->tensor;
  return moert_moe_dequantize(&params, &args, kernel, rank->context);
}

static void wait_for(gpu_rank *rank, moert_status status) {
  if (CHECK_OK(status)) CHECK_OK(moert_context_synchronize(rank->context));
}

//===--- padding ------------------------------------------------------------------------------------===//

// Of each scale in the buffer, whether it stands for elements. Caller frees.
static bool *mark_scales(const Call *call) {
  const moert__scale_grid *grid = &call->grid;
  bool *used = calloc((size_t)(call->scales.shape[0] * call->scales.shape[1]) + 1, sizeof *used);
  for (int64_t row = 0; row < grid->rows; ++row)
    for (int64_t column = 0; column < grid->columns; ++column) used[moert__scale_offset(grid, row, column)] = true;
  return used;
}

static void check_padding(const Call *call) {
  bool *used = mark_scales(call);
  int64_t width = width_of(&call->scales), wrong = 0;
  const uint8_t *bytes = row_of(&call->scales, 0);
  for (int64_t i = 0; i < call->scales.shape[0] * call->scales.shape[1] * width; ++i) wrong += !used[i / width] && bytes[i] != 0;
  gpu_check(wrong == 0, __FILE__, __LINE__, "%lld bytes of the scales' padding are not zero", (long long)wrong);
  free(used);
}

static void spoil_padding(const Call *call) {
  bool *used = mark_scales(call);
  int64_t width = width_of(&call->scales);
  for (int64_t i = 0; i < call->scales.shape[0] * call->scales.shape[1]; ++i)
    if (!used[i]) memset(row_of(&call->scales, 0) + i * width, 0xff, (size_t)width); // NaN
  gpu_upload(call->scales.buffer);
  free(used);
}

//===--- what is checked ----------------------------------------------------------------------------===//

static void result(const Call *call, const char *what, gpu_buffer *buffer) {
  static const char *const layouts[] = {"linear", "128x4", "8x4", "transposed"};
  char name[64];
  snprintf(name, sizeof name, "%s, %s%s%s%s", what, layouts[call->variant.layout], call->variant.mega ? ", mega" : "",
           call->variant.even ? ", even" : "", call->variant.global ? ", global scale" : "");
  gpu_result(name, buffer);
}

// Whether a call by the kernel with this key (NULL: the library's choice) is to be made: the host has one kernel only, and what it made is there.
static bool find_kernel(gpu_rank *rank, const char *key, moert_kernel **kernel) {
  *kernel = NULL;
  if (key && rank->cuda) CHECK_OK(moert_kernel_find(key, kernel));
  return !key || rank->cuda;
}

static void check_quantize(gpu_rank *rank, const Call *call, const Operand *input, const char *key) {
  moert_kernel *kernel;
  if (find_kernel(rank, key, &kernel)) {
    gpu_fill(call->values.buffer, GPU_POISON);
    gpu_fill(call->scales.buffer, GPU_POISON);
    wait_for(rank, quantize(rank, call, input, kernel));
  }
  result(call, "codes", call->values.buffer);
  result(call, "scales", call->scales.buffer);
  if (has_scales(call)) check_padding(call);
}

static void check_dequantize(gpu_rank *rank, const Call *call, const char *key) {
  moert_kernel *kernel;
  if (find_kernel(rank, key, &kernel)) {
    gpu_fill(call->out.buffer, GPU_POISON);
    wait_for(rank, dequantize(rank, call, &call->strided, &call->out, kernel));
  }
  result(call, "numbers", call->out.buffer);
}

// The codes as they were written, in rows that may lie apart.
static void spread_codes(const Call *call) {
  for (int64_t row = 0; row < call->what.tokens; ++row)
    memcpy(row_of(&call->strided, row), row_of(&call->values, row), (size_t)call->values.shape[1]);
  gpu_upload(call->strided.buffer);
}

static void check_decoding(gpu_rank *rank, const Call *call) {
  spread_codes(call);
  if (has_scales(call)) spoil_padding(call);
  check_dequantize(rank, call, NULL);
  check_dequantize(rank, call, "moe.dequantize/sm_90a");
}

// What is decoded and encoded again stands for the same numbers, wherever the format promises it and nothing overflows.
static void check_there_and_back(gpu_rank *rank, Call *call) {
  Operand first, second;
  bool exact = (call->what.format == MOERT__MXFP4 || (call->what.format == MOERT__MXFP8 && !call->variant.even)) && call->what.values == NUMBERS;
  make_operand(rank, &first, "f32", call->what.tokens, call->what.hidden, 0, call->what.shift);
  make_operand(rank, &second, "f32", call->what.tokens, call->what.hidden, 0, call->what.shift);
  wait_for(rank, dequantize(rank, call, &call->values, &first, NULL));
  check_quantize(rank, call, &first, NULL);
  wait_for(rank, dequantize(rank, call, &call->values, &second, NULL));
  gpu_download(first.buffer);
  gpu_download(second.buffer);
  if (exact) CHECK(memcmp(first.buffer->host, second.buffer->host, first.buffer->bytes) == 0);
}

// The factors that an encoder may have been given.
static double global_of(const Case *what, int number) {
  const double factors[] = {448.0 * 6 / 256, 1, 0x1p-126, (double)MOERT__F32_MAX, 0x1p-149, -3, 0, INFINITY, NAN};
  return factors[what->values == NUMBERS ? number % 2 : (number + 3 * (int)what->values) % 9];
}

static void check_variant(gpu_rank *rank, const Case *what, const Operand *input, Variant variant, int number) {
  Call call = {.fast = false};
  make_call(rank, &call, what, variant, number);
  if (variant.global) set_global(rank, &call, global_of(what, number));
  check_quantize(rank, &call, input, NULL);
  check_quantize(rank, &call, input, "moe.quantize/sm_90a");
  check_decoding(rank, &call);
  check_there_and_back(rank, &call);
}

// Where each pattern stands alone the numbers are the point, not their places; large calls are few.
static bool is_left_out(const Case *what, Variant variant) {
  bool is_large = what->tokens * what->hidden > 1 << 24;
  return (what->values == ALONE && (variant.layout || variant.mega)) || (is_large && (variant.mega || variant.even));
}

static void body(gpu_rank *rank) {
  const Case *what = rank->user;
  Variant variants[MOST_VARIANTS];
  Operand input;
  make_input(rank, &input, what);
  int count = list_variants(what->format, variants);
  for (int i = 0; i < count; ++i)
    if (!is_left_out(what, variants[i])) check_variant(rank, what, &input, variants[i], (int)(i + what->tokens + what->hidden));
}

//===--- all codes ----------------------------------------------------------------------------------===//

enum { CODES = 256 }; // rows, and elements of each

// The first byte of f32 scales is that of 1 in row 0, then the next ones: they have every exponent.
static void set_scale(gpu_rank *rank, const Call *call, int64_t row, int64_t column) {
  int64_t at = moert__scale_offset(&call->grid, row, column) * width_of(&call->scales);
  uint32_t bits = width_of(&call->scales) == 1 ? (uint32_t)row : ((uint32_t)row + 0x3f) << 24 | (uint32_t)gpu_random_below(rank, 1 << 24);
  memcpy(row_of(&call->scales, 0) + at, &bits, (size_t)width_of(&call->scales));
}

static void set_codes(gpu_rank *rank, const Call *call) {
  bool packed = moert__is_packed(call->what.format);
  for (int64_t row = 0; row < call->what.tokens; ++row)
    for (int64_t i = 0; i < call->values.shape[1]; ++i) row_of(&call->values, row)[i] = (uint8_t)(packed ? i % 8 * 2 * 0x11 + 0x10 : i);
  for (int64_t row = 0; row < call->grid.rows; ++row)
    for (int64_t column = 0; column < call->grid.columns; ++column) set_scale(rank, call, row, column);
}

// Row r has all codes in each of its blocks, and the scale code r.
static void check_codes(gpu_rank *rank) {
  const Case *what = rank->user;
  Variant variants[MOST_VARIANTS];
  int count = list_variants(what->format, variants);
  for (int i = 0; i < 3 * count; ++i) {
    Call call = {.fast = false};
    make_call(rank, &call, what, variants[i / 3], i);
    if (call.variant.global) set_global(rank, &call, global_of(what, i));
    set_codes(rank, &call);
    check_decoding(rank, &call);
  }
}

//===--- fast reciprocals ---------------------------------------------------------------------------===//

// What the host backend made.
typedef struct Fast {
  Case what;
  uint8_t *codes, *scales;
} Fast;

static int step_of(int code, int sign) { return code & sign ? -(code & (sign - 1)) : code; } // -0 and 0 are one

static void count_steps(const char *what, const uint8_t *ours, const uint8_t *hosts, int64_t count, int sign) {
  int64_t different = 0, far = 0;
  for (int64_t i = 0; i < count; ++i) {
    int steps = abs(step_of(ours[i], sign) - step_of(hosts[i], sign));
    different += steps > 0;
    far += steps > 1;
  }
  printf("  %lld of %lld %s differ from the host's by one step\n", (long long)different, (long long)count, what);
  gpu_check(far == 0, __FILE__, __LINE__, "%lld of %lld %s differ by more than one step", (long long)far, (long long)count, what);
}

// Codes one by one. Caller frees.
static uint8_t *unpack(const Call *call) {
  int64_t hidden = call->what.hidden;
  uint8_t *codes = malloc((size_t)(call->what.tokens * hidden) + 1);
  for (int64_t row = 0; row < call->what.tokens; ++row)
    for (int64_t h = 0; h < hidden; ++h)
      codes[row * hidden + h] = row_of(&call->values, row)[moert__code_byte(call->variant.mega, h)] >> moert__code_shift(call->variant.mega, h) & 15;
  return codes;
}

static void check_fast(gpu_rank *rank) {
  Fast *fast = rank->user;
  Operand input;
  Call call = {.fast = true};
  make_input(rank, &input, &fast->what);
  make_call(rank, &call, &fast->what, (Variant){.layout = MOERT__LINEAR, .global = true}, 0);
  set_global(rank, &call, 448 * 6 / 256.0);
  wait_for(rank, quantize(rank, &call, &input, NULL));
  gpu_download(call.values.buffer);
  gpu_download(call.scales.buffer);
  uint8_t *codes = unpack(&call);
  if (rank->cuda) {
    count_steps("codes", codes, fast->codes, fast->what.tokens * fast->what.hidden, 8);
    count_steps("scales", row_of(&call.scales, 0), fast->scales, call.scales.shape[0] * call.scales.shape[1], 0x80);
    free(codes);
    return;
  }
  fast->codes = codes;
  fast->scales = malloc(call.scales.buffer->bytes + 1);
  memcpy(fast->scales, row_of(&call.scales, 0), call.scales.buffer->bytes);
}

static void run_fast(Case what) {
  Fast fast = {what, NULL, NULL};
  gpu_case("fast_reciprocal of %s", what.dtype) {
    if (gpu_needed()) {
      gpu_host_only(1, check_fast, &fast);
      gpu_only(1, 1, check_fast, &fast);
    }
  }
  free(fast.codes);
  free(fast.scales);
}

//===--- instances by name --------------------------------------------------------------------------===//

static void make_all(gpu_rank *rank, Call *call, int format) {
  Case what = *(const Case *)rank->user;
  what.format = format;
  make_input(rank, &call->input, &what);
  make_call(rank, call, &what, (Variant){.layout = MOERT__LINEAR}, 0);
}

static void named(gpu_rank *rank) {
  Call call = {.fast = false}, other = {.fast = false};
  moert_kernel *quantizer = NULL, *dequantizer = NULL;
  make_all(rank, &call, MOERT__NVFP4);
  make_all(rank, &other, MOERT__MXFP4);
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.quantize/sm_90a/bf16,format=nvfp4", &quantizer));
  if (rank->cuda) CHECK_OK(moert_kernel_find("moe.dequantize/sm_90a/i8,format=nvfp4", &dequantizer));
  wait_for(rank, quantize(rank, &call, &call.input, quantizer));
  wait_for(rank, dequantize(rank, &call, &call.values, &call.out, dequantizer));
  result(&call, "codes", call.values.buffer);
  result(&call, "scales", call.scales.buffer);
  result(&call, "numbers", call.out.buffer);
  if (!rank->cuda) return;
  CHECK_FAILS(quantize(rank, &other, &other.input, quantizer), MOERT_ERROR_INVALID_ARGUMENT,
              "moe.quantize: kernel is specialisation 0 of the op, which was made for other parameters or element types");
  CHECK_FAILS(dequantize(rank, &other, &other.values, &other.out, dequantizer), MOERT_ERROR_INVALID_ARGUMENT,
              "moe.dequantize: kernel is specialisation 0 of the op, which was made for other parameters or element types");
  CHECK(gpu_is_filled(other.values.buffer, GPU_POISON) && gpu_is_filled(other.scales.buffer, GPU_POISON) &&
        gpu_is_filled(other.out.buffer, GPU_POISON));
}

//===--- replays ------------------------------------------------------------------------------------===//

// What was row r becomes row r + 1, as the format has rounded it.
static moert_status step(gpu_rank *rank, void *data) {
  Call *call = data;
  moert_status status = quantize(rank, call, &call->input, NULL);
  return status ? status : dequantize(rank, call, &call->values, &call->out, NULL);
}

static void make_step(gpu_rank *rank, Call *call) {
  Case what = *(const Case *)rank->user;
  make_call(rank, call, &what, (Variant){.layout = MOERT__LINEAR}, 0);
  ++what.tokens;
  make_input(rank, &call->input, &what);
  call->input.shape[0] = call->what.tokens;
  call->out.tensor.data = (char *)call->input.tensor.data + what.hidden * width_of(&call->input);
}

static void replayed(gpu_rank *rank) {
  enum { REPLAYS = 20 };
  Call call = {.fast = false};
  make_step(rank, &call);
  uint8_t *before = malloc(call.values.buffer->bytes);
  CHECK_OK(step(rank, &call)); // loads the code
  CHECK_OK(gpu_replay(rank, step, &call, REPLAYS - 1));
  gpu_download(call.values.buffer);
  memcpy(before, call.values.buffer->host, call.values.buffer->bytes);
  CHECK_OK(gpu_replay(rank, step, &call, 1));
  gpu_result("codes", call.values.buffer);
  gpu_result("scales", call.scales.buffer);
  gpu_result("numbers", call.input.buffer);
  CHECK(memcmp(before, call.values.buffer->host, call.values.buffer->bytes) != 0); // every replay had an input of its own
  free(before);
}

//===--- cases --------------------------------------------------------------------------------------===//

static const char *const dtypes[] = {"bf16", "f16", "f32"};

typedef struct Shape {
  int64_t tokens, hidden, padding, shift;
} Shape;

// Rows lie apart by multiples of 16 bytes and by others; operands begin at aligned places and at others. Each format takes those whose rows are
// whole blocks of it.
static const Shape shapes[] = {
    {1, 7168, 0, 0}, {129, 2880, 0, 0}, {7, 640, 8, 0},  {33, 128, 4, 0},  {128, 32, 0, 3},  {31, 160, 3, 1}, {0, 128, 0, 0},
    {1, 32, 0, 4},   {3, 16384, 0, 0},  {8, 96, 16, 16}, {127, 128, 0, 1}, {300, 64, 0, 8},  {129, 48, 1, 0}, {3, 144, 0, 0},
    {65, 16, 8, 8},  {1, 1, 0, 0},      {31, 7, 0, 0},   {3, 127, 1, 0},   {130, 129, 0, 3}, {7, 2881, 0, 0},
};

static bool fits(int format, int64_t hidden) {
  int64_t unit = format == MOERT__NVFP4 ? 16 : has_scale_codes(format) ? 32 : 1;
  return hidden % unit == 0;
}

static const char *name_of_values(Values values) {
  static const char *const names[] = {"numbers", "any bits", "special blocks", "all values, one by one", "all values"};
  return names[values];
}

static void run_case(Case what) {
  gpu_case("%s, %lld x %lld %s, %s, %lld between rows, at %lld", name_of_format(what.format), (long long)what.tokens, (long long)what.hidden,
           what.dtype, name_of_values(what.values), (long long)what.padding, (long long)what.shift) gpu_both(1, 1, body, &what);
}

// Of a sample every third for the types other than bf16; of the smallest every fifth.
static void run_shapes(int format, int type) {
  size_t stride = gpu_extent() == GPU_SMALL ? 5 : gpu_extent() == GPU_QUICK && type > 0 ? 3 : 1;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += stride) {
    Shape shape = shapes[i];
    if (fits(format, shape.hidden)) run_case((Case){format, dtypes[type], shape.tokens, shape.hidden, NUMBERS, shape.padding, shape.shift});
  }
}

static void run_values(int format, int type) {
  bool is_small = gpu_extent() == GPU_SMALL;
  int64_t block = moert__block_size(format), width = block ? block : 16;
  run_case((Case){format, dtypes[type], is_small ? 16 : 256, 256, BLOCKS, 0, 0});
  run_case((Case){format, dtypes[type], is_small ? 16 : 256, 256, BITS, 0, 0});
  if (is_small) return;
  run_case((Case){format, dtypes[type], 256, 256, ALL, 0, 0});
  if (format != MOERT__FP8_TENSOR && (type == 0 || gpu_extent() == GPU_FULL)) run_case((Case){format, dtypes[type], 65536, width, ALONE, 0, 0});
}

static void run_codes(int format) {
  Case what = {format, "bf16", CODES, CODES, BITS, 0, 0};
  gpu_case("%s, all codes", name_of_format(format)) gpu_both(1, 1, check_codes, &what);
}

static void run_replays(int format) {
  Case what = {format, "bf16", 33, 256, NUMBERS, 0, 0};
  gpu_case("%s, replays", name_of_format(format)) gpu_both(1, 1, replayed, &what);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  for (int format = MOERT__NVFP4; format <= MOERT__FP8_TENSOR; ++format) {
    for (int type = 0; type < 3; ++type) {
      run_shapes(format, type);
      run_values(format, type);
    }
    run_codes(format);
    run_replays(format);
    if (gpu_extent() == GPU_FULL) run_case((Case){format, "bf16", 4096, 7168, NUMBERS, 0, 0});
  }
  for (int type = 0; type < 3; ++type) run_fast((Case){MOERT__NVFP4, dtypes[type], 300, 2880, NUMBERS, 0, 0});
  Case small = {MOERT__NVFP4, "bf16", 33, 256, NUMBERS, 0, 0};
  gpu_case("instances by their names") gpu_both(1, 1, named, &small);
  return gpu_end();
}

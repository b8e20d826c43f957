//===- grouped_matmul.c - moe.grouped_matmul on a GPU ---------------------------------------------------===//
//
// Every product is compared with one in double precision, by the bounds of the op. Products of f32 must also have the bits of the host backend, those
// of weights of 4 bits the bits that the same weights in bf16 give.
//
//===----------------------------------------------------------------------------------------------===//

#include "gpu.h"
#include "lib/reference/formats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

//===--- cases --------------------------------------------------------------------------------------===//

typedef enum Layout {
  EVEN,       // the same number of rows in each group
  UNEVEN,     // any number, none included
  ALL_IN_ONE, // in the middle group
  ONE_EACH,   // as many groups as have one
  HOLES,      // rows before the first group and behind the last
  NO_ROWS     // of any group
} Layout;

typedef struct Case {
  const char *dtype, *out, *bias, *index; // bias NULL: none; index: i32 or ui32
  int64_t groups, depth, columns, rows;   // `columns` of the weights, `rows` of out
  Layout layout;
  bool row_ids, row_weights, swiglu;
  double alpha, limit;
  int64_t shift;      // elements between a multiple of 16 bytes and rows, weights and out
  const char *format; // of weights of 4 bits, "nvfp4" or "mxfp4"; NULL: they are numbers
} Case;

typedef struct Operand {
  gpu_buffer *buffer; // a list that has `shift` elements before the tensor's
  moert_tensor tensor;
  int64_t shape[3];
  int64_t shift;
} Operand;

typedef struct Product {
  Case what;
  int64_t in_rows, out_columns;
  Operand rows, weights, out;
  gpu_buffer *offsets, *bias, *row_ids, *row_weights, *scales, *global_scales; // the last two of weights of 4 bits
} Product;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

//===--- operands -----------------------------------------------------------------------------------===//

static void make_operand(gpu_rank *rank, Operand *operand, const char *dtype, int64_t shift, int32_t ndim, const int64_t *shape) {
  int64_t count = 1;
  for (int32_t i = 0; i < ndim; ++i) count *= operand->shape[i] = shape[i];
  operand->shift = shift;
  operand->buffer = gpu_new(rank, dtype, 1, count + shift);
  operand->tensor = operand->buffer->tensor;
  operand->tensor.ndim = ndim;
  operand->tensor.shape = operand->shape;
  operand->tensor.byte_offset += (uint64_t)(shift * operand->tensor.dtype.bits / 8);
}

static int64_t rows_of_group(gpu_rank *rank, const Case *what, int64_t group, int64_t left) {
  switch (what->layout) {
  case EVEN: return group + 1 < what->groups ? what->rows / what->groups : left;
  case UNEVEN: return gpu_random_below(rank, 3) == 0 ? 0 : smaller(left, gpu_random_below(rank, 2 * what->rows / what->groups + 2));
  case ALL_IN_ONE: return group == what->groups / 2 ? left : 0;
  case ONE_EACH: return smaller(left, 1);
  case HOLES: return smaller(left, what->rows / (what->groups + 2));
  case NO_ROWS: break;
  }
  return 0;
}

static void set_offsets(gpu_rank *rank, const Case *what, gpu_buffer *offsets) {
  int64_t offset = what->layout == HOLES ? smaller(3, what->rows) : 0;
  for (int64_t g = 0; g < what->groups; ++g) {
    gpu_set(offsets, g, (double)offset);
    offset += rows_of_group(rank, what, g, what->rows - offset);
  }
  gpu_set(offsets, what->groups, (double)offset);
  gpu_upload(offsets);
}

static bool is_nvfp4(const Case *what) { return strcmp(what->format, "nvfp4") == 0; }

// Any codes; scales about 1, among them zeros and subnormals.
static void make_codes(gpu_rank *rank, const Case *what, Product *product) {
  const int64_t block = is_nvfp4(what) ? 16 : 32;
  make_operand(rank, &product->weights, "ui8", what->shift, 3, (const int64_t[]){what->groups, what->columns, what->depth / 2});
  gpu_random(product->weights.buffer, 256.0);
  product->scales = gpu_new(rank, is_nvfp4(what) ? "f8E4M3FN" : "f8E8M0FNU", 3, what->groups, what->columns, what->depth / block);
  for (int64_t i = 0; i < product->scales->count; ++i) {
    const int64_t code = gpu_random_below(rank, 16);
    gpu_set(product->scales, i, (double)(is_nvfp4(what) ? (code == 0 ? gpu_random_below(rank, 8) : 0x28 + code) : 119 + code / 2));
  }
  gpu_upload(product->scales);
  if (!is_nvfp4(what) || !what->row_weights) return;
  product->global_scales = gpu_new(rank, "f32", 1, what->groups);
  for (int64_t g = 0; g < what->groups; ++g) gpu_set(product->global_scales, g, 0.5 + (double)gpu_random_below(rank, 1000) / 300);
  gpu_upload(product->global_scales);
}

static void make_numbers(gpu_rank *rank, const Case *what, Product *product) {
  make_operand(rank, &product->weights, what->dtype, what->shift, 3, (const int64_t[]){what->groups, what->columns, what->depth});
  gpu_random(product->weights.buffer, 0.25);
}

// Its tensors point into it: it stays where it is.
static void make_product(gpu_rank *rank, const Case *what, Product *product) {
  *product = (Product){.what = *what};
  product->in_rows = what->row_ids ? what->rows / 2 + 1 : what->rows;
  product->out_columns = what->swiglu ? what->columns / 2 : what->columns;
  make_operand(rank, &product->rows, what->dtype, what->shift, 2, (const int64_t[]){product->in_rows, what->depth});
  make_operand(rank, &product->out, what->out, what->shift, 2, (const int64_t[]){what->rows, product->out_columns});
  gpu_random(product->rows.buffer, 1.0);
  if (what->format)
    make_codes(rank, what, product);
  else
    make_numbers(rank, what, product);
  product->offsets = gpu_new(rank, what->index, 1, what->groups + 1);
  set_offsets(rank, what, product->offsets);
  if (what->bias) gpu_random(product->bias = gpu_new(rank, what->bias, 2, what->groups, what->columns), 1.0);
  if (what->row_ids) gpu_random(product->row_ids = gpu_new(rank, what->index, 1, what->rows), (double)product->in_rows);
  if (what->row_weights) gpu_random(product->row_weights = gpu_new(rank, "f32", 1, what->rows), 1.0);
}

static const moert_tensor *tensor_of(const gpu_buffer *buffer) { return buffer ? &buffer->tensor : NULL; }

static moert_status multiply(gpu_rank *rank, const Product *product, const char *kernel) {
  moert_moe_grouped_matmul_params params = MOERT_MOE_GROUPED_MATMUL_PARAMS_INIT;
  moert_moe_grouped_matmul_args args = MOERT_MOE_GROUPED_MATMUL_ARGS_INIT;
  params.activation = product->what.swiglu ? MOERT_MOE_GROUPED_MATMUL_ACTIVATION_SWIGLU : MOERT_MOE_GROUPED_MATMUL_ACTIVATION_NONE;
  if (product->what.format)
    params.weight_format = is_nvfp4(&product->what) ? MOERT_MOE_GROUPED_MATMUL_WEIGHT_FORMAT_NVFP4 : MOERT_MOE_GROUPED_MATMUL_WEIGHT_FORMAT_MXFP4;
  params.limit = product->what.limit;
  params.alpha = product->what.limit > 0 ? product->what.alpha : 1;
  args.rows = &product->rows.tensor;
  args.offsets = &product->offsets->tensor;
  args.weights = &product->weights.tensor;
  args.weight_scales = tensor_of(product->scales);
  args.weight_global_scale = tensor_of(product->global_scales);
  args.bias = tensor_of(product->bias);
  args.row_ids = tensor_of(product->row_ids);
  args.row_weights = tensor_of(product->row_weights);
  args.out = &product->out.tensor;
  moert_kernel *handle = NULL;
  if (kernel && rank->cuda) CHECK_OK(moert_kernel_find(kernel, &handle));
  return moert_moe_grouped_matmul(&params, &args, handle, rank->context);
}

static moert_status multiply_and_wait(gpu_rank *rank, const Product *product, const char *kernel) {
  moert_status status = multiply(rank, product, kernel);
  return status ? status : moert_context_synchronize(rank->context);
}

//===--- in double precision ------------------------------------------------------------------------===//

// A sum and how far one in f32 may be from it.
typedef struct Sum {
  double value, error;
} Sum;

// NULL in place of an operand that is absent.
static double *widen(const gpu_buffer *buffer, int64_t shift) {
  if (!buffer) return NULL;
  double *values = malloc((size_t)(buffer->count + 1) * sizeof *values);
  for (int64_t i = shift; i < buffer->count; ++i) values[i - shift] = gpu_get(buffer, i);
  return values;
}

// What the codes stand for, without the factor of their group.
static double *decode(const Product *product) {
  const Case *what = &product->what;
  const int64_t block = is_nvfp4(what) ? 16 : 32, count = what->groups * what->columns * what->depth;
  const uint8_t *codes = (const uint8_t *)product->weights.buffer->host + product->weights.shift, *scales = product->scales->host;
  double *values = malloc((size_t)(count + 1) * sizeof *values);
  for (int64_t i = 0; i < count; ++i) {
    const double scale = (double)(is_nvfp4(what) ? moert__e4m3_to_f32(scales[i / block]) : moert__e8m0_to_f32(scales[i / block]));
    values[i] = (double)moert__e2m1_to_f32(codes[i / 2] >> (i % 2 * 4) & 15) * scale;
  }
  return values;
}

static Sum dot(const double *a, const double *b, int64_t depth) {
  double value = 0, magnitude = 0;
  for (int64_t k = 0; k < depth; ++k) {
    value += a[k] * b[k];
    magnitude += fabs(a[k] * b[k]);
  }
  return (Sum){value, (double)depth * 0x1p-23 * magnitude + 0x1p-140};
}

static Sum with_bias(Sum sum, const double *bias, int64_t index) {
  if (!bias) return sum;
  sum.value += bias[index];
  sum.error += 0x1p-23 * fabs(sum.value);
  return sum;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// The gate's x sigmoid(x) has a slope of at most 1.1; clamping does not enlarge an error.
static Sum activate(const Case *what, Sum gate, Sum up) {
  double g = gate.value, u = up.value, shifted = u, alpha = 1;
  if (what->limit > 0) {
    alpha = what->alpha;
    g = fmin(g, what->limit);
    shifted = fmax(-what->limit, fmin(u, what->limit)) + 1;
  }
  double silu = g * sigmoid(alpha * g);
  double error = 1.1 * gate.error * (fabs(shifted) + up.error) + fabs(silu) * up.error;
  return (Sum){silu * shifted, error + 0x1p-20 * fabs(silu * shifted)};
}

static double rounding(const char *dtype) { return strcmp(dtype, "bf16") == 0 ? 0x1p-8 : strcmp(dtype, "f16") == 0 ? 0x1p-11 : 0x1p-23; }

typedef struct Model {
  double *rows, *weights, *bias, *row_ids, *row_weights, *global_scales, *out;
} Model;

// A sum times the decoder's factor, which is rounded too.
static Sum model_sum(const Product *product, const Model *model, const double *row, int64_t group, int64_t index) {
  const int64_t depth = product->what.depth;
  Sum sum = dot(row, model->weights + index * depth, depth);
  if (model->global_scales) {
    sum.value /= model->global_scales[group];
    sum.error = sum.error / model->global_scales[group] + 0x1p-22 * fabs(sum.value);
  }
  return with_bias(sum, model->bias, index);
}

static Sum model_element(const Product *product, const Model *model, int64_t group, int64_t row, int64_t column) {
  const Case *what = &product->what;
  const double *from = model->rows + (model->row_ids ? (int64_t)model->row_ids[row] : row) * what->depth;
  int64_t index = group * what->columns + column;
  Sum sum = model_sum(product, model, from, group, index);
  if (what->swiglu) sum = activate(what, sum, model_sum(product, model, from, group, index + product->out_columns));
  double scale = model->row_weights ? model->row_weights[row] : 1;
  return (Sum){sum.value * scale, sum.error * fabs(scale) + fabs(sum.value * scale) * rounding(what->out) + 0x1p-24};
}

typedef struct Distance {
  double squares, reference; // of the differences, of the model's values
  int64_t outside;           // elements beyond their bound
} Distance;

static void compare_row(const Product *product, const Model *model, int64_t group, int64_t row, Distance *distance) {
  for (int64_t column = 0; column < product->out_columns; ++column) {
    Sum expected = model_element(product, model, group, row, column);
    double difference = model->out[row * product->out_columns + column] - expected.value;
    if (!(fabs(difference) <= expected.error)) ++distance->outside;
    distance->squares += difference * difference;
    distance->reference += expected.value * expected.value;
  }
}

// Rows outside the groups are poison still.
static bool is_untouched(const Product *product, int64_t first, int64_t last) {
  size_t width = product->out.tensor.dtype.bits / 8u, columns = (size_t)product->out_columns;
  const unsigned char *bytes = (const unsigned char *)product->out.buffer->host + (size_t)product->out.shift * width;
  for (size_t i = (size_t)first * columns * width; i < (size_t)last * columns * width; ++i)
    if (bytes[i] != GPU_POISON) return false;
  return true;
}

static void check_product(const Product *product) {
  gpu_download(product->out.buffer);
  Model model = {widen(product->rows.buffer, product->rows.shift),
                 product->what.format ? decode(product) : widen(product->weights.buffer, product->weights.shift),
                 widen(product->bias, 0),
                 widen(product->row_ids, 0),
                 widen(product->row_weights, 0),
                 widen(product->global_scales, 0),
                 widen(product->out.buffer, product->out.shift)};
  Distance distance = {0, 0, 0};
  const Case *what = &product->what;
  int64_t first = (int64_t)gpu_get(product->offsets, 0), last = (int64_t)gpu_get(product->offsets, what->groups);
  for (int64_t g = 0; g < what->groups; ++g)
    for (int64_t row = (int64_t)gpu_get(product->offsets, g); row < (int64_t)gpu_get(product->offsets, g + 1); ++row)
      compare_row(product, &model, g, row, &distance);
  gpu_check(distance.outside == 0, __FILE__, __LINE__, "%lld elements are beyond their bound", (long long)distance.outside);
  CHECK(sqrt(distance.squares) <= 1e-2 * sqrt(distance.reference) + 1e-30);
  CHECK(is_untouched(product, 0, first) && is_untouched(product, last, what->rows));
  double *all[] = {model.rows, model.weights, model.bias, model.row_ids, model.row_weights, model.global_scales, model.out};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
}

//===--- products -----------------------------------------------------------------------------------===//

// Further runs have the bits that were downloaded last. In front of each `others`, if there, is written, so that no operand is left in the cache.
static void check_repeats(gpu_rank *rank, const Product *product, int runs, gpu_buffer *others) {
  gpu_buffer *out = product->out.buffer;
  unsigned char *first = malloc(out->bytes + 1);
  memcpy(first, out->host, out->bytes);
  for (int run = 0; run < runs; ++run) {
    gpu_fill(out, GPU_POISON);
    if (others) gpu_fill(others, (unsigned char)run);
    CHECK_OK(multiply_and_wait(rank, product, NULL));
    gpu_download(out);
    CHECK(memcmp(first, out->host, out->bytes) == 0);
  }
  free(first);
}

// Five runs have the same bits.
static void body_product(gpu_rank *rank) {
  Product product;
  make_product(rank, rank->user, &product);
  CHECK_OK(multiply_and_wait(rank, &product, NULL));
  check_product(&product);
  if (strcmp(product.what.dtype, "f32") == 0) gpu_result("out", product.out.buffer);
  if (rank->cuda) check_repeats(rank, &product, 4, NULL);
}

// The library's choice and the generic kernel.
static void body_generic(gpu_rank *rank) {
  Product product;
  make_product(rank, rank->user, &product);
  CHECK_OK(multiply_and_wait(
      rank, &product, product.what.swiglu ? "moe.grouped_matmul/sm_90a/bf16,activation=swiglu" : "moe.grouped_matmul/sm_90a/bf16,activation=none"));
  check_product(&product);
  unsigned char *special = malloc(product.out.buffer->bytes + 1);
  memcpy(special, product.out.buffer->host, product.out.buffer->bytes);
  gpu_fill(product.out.buffer, GPU_POISON);
  CHECK_OK(multiply_and_wait(rank, &product, "moe.grouped_matmul/sm_90a/bf16"));
  gpu_download(product.out.buffer);
  CHECK(memcmp(special, product.out.buffer->host, product.out.buffer->bytes) == 0);
  free(special);
}

// Weights of 4 bits without a factor, and the same in bf16.
static void body_codes(gpu_rank *rank) {
  Product product, same;
  make_product(rank, rank->user, &product);
  CHECK_OK(multiply_and_wait(rank, &product, NULL));
  check_product(&product);
  same = product;
  same.what.format = NULL, same.scales = NULL;
  make_numbers(rank, &same.what, &same);
  double *values = decode(&product);
  for (int64_t i = 0; i < same.weights.buffer->count - same.weights.shift; ++i) gpu_set(same.weights.buffer, i + same.weights.shift, values[i]);
  free(values);
  gpu_upload(same.weights.buffer);
  make_operand(rank, &same.out, same.what.out, same.what.shift, 2, (const int64_t[]){same.what.rows, same.out_columns});
  CHECK_OK(multiply_and_wait(rank, &same, NULL));
  gpu_download(same.out.buffer);
  CHECK(memcmp(product.out.buffer->host, same.out.buffer->host, product.out.buffer->bytes) == 0);
}

// How many rows a group has, and so its tiles, changes no bit of a row.
static void body_tiles(gpu_rank *rank) {
  Product product;
  make_product(rank, rank->user, &product);
  CHECK_OK(multiply_and_wait(rank, &product, NULL));
  check_product(&product);
  size_t row_bytes = (size_t)product.out_columns * product.out.tensor.dtype.bits / 8u;
  unsigned char *whole = malloc(product.out.buffer->bytes + 1);
  memcpy(whole, product.out.buffer->host, product.out.buffer->bytes);
  const int64_t counts[] = {1, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    if (counts[i] > product.what.rows) continue;
    gpu_set(product.offsets, 1, (double)counts[i]);
    gpu_upload(product.offsets);
    gpu_fill(product.out.buffer, GPU_POISON);
    CHECK_OK(multiply_and_wait(rank, &product, NULL));
    gpu_download(product.out.buffer);
    CHECK(memcmp(whole, product.out.buffer->host, (size_t)counts[i] * row_bytes) == 0);
    CHECK(is_untouched(&product, counts[i], product.what.rows));
  }
  free(whole);
}

// Weights that come from memory, not from the cache: whoever does not wait for copies, or gives room back too soon, has other bits now and then.
static void body_evicted(gpu_rank *rank) {
  const int64_t more_than_cache = (int64_t)256 << 20;
  Product product;
  if (!rank->cuda) return;
  make_product(rank, rank->user, &product);
  CHECK_OK(multiply_and_wait(rank, &product, NULL));
  gpu_download(product.out.buffer);
  check_repeats(rank, &product, 10, gpu_new(rank, "ui8", 1, more_than_cache));
}

// NaN, infinities, zeros of both signs in the rows of f32.
static void body_special(gpu_rank *rank) {
  Product product;
  make_product(rank, rank->user, &product);
  const double values[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e38, -1e38, 1e-42};
  for (int64_t i = 0; i < product.rows.buffer->count; i += 1 + gpu_random_below(rank, 2 * product.what.depth))
    gpu_set(product.rows.buffer, i, values[gpu_random_below(rank, 8)]);
  gpu_upload(product.rows.buffer);
  CHECK_OK(multiply_and_wait(rank, &product, NULL));
  gpu_result("out", product.out.buffer);
}

//===--- faults -------------------------------------------------------------------------------------===//

typedef struct Fault {
  Case what;
  bool in_row_ids; // else in the offsets
  int64_t place;
  double value;
  const char *text;
} Fault;

// Nothing is written, both backends say the same, and the next call works.
static void body_fault(gpu_rank *rank) {
  const Fault *fault = rank->user;
  Product product;
  make_product(rank, &fault->what, &product);
  gpu_buffer *buffer = fault->in_row_ids ? product.row_ids : product.offsets;
  double before = gpu_get(buffer, fault->place);
  gpu_set(buffer, fault->place, fault->value);
  gpu_upload(buffer);
  moert_status status = multiply_and_wait(rank, &product, NULL);
  gpu_same_status(rank, "fault", status);
  CHECK_FAILS(status, MOERT_ERROR_DATA, fault->text);
  CHECK(gpu_is_filled(product.out.buffer, GPU_POISON));
  CHECK(moert_comm_status(rank->comm) == MOERT_OK); // no peer can feel it
  gpu_set(buffer, fault->place, before);
  gpu_upload(buffer);
  CHECK_OK(multiply(rank, &product, NULL));
}

//===--- graphs -------------------------------------------------------------------------------------===//

enum { REPLAYS = 3 };

// What a replay works on comes in turn from lists that the graph itself moves on.
typedef struct Replays {
  Product product;
  gpu_buffer *offsets[REPLAYS + 1]; // of the next replays, the last is for the exchange
  gpu_buffer *outs[REPLAYS];        // of the replays before, the newest first
} Replays;

static moert_status copy(gpu_rank *rank, gpu_buffer *to, gpu_buffer *from) {
  return moert_copy(rank->context, to->tensor.data, from->tensor.data, to->bytes);
}

static moert_status step(gpu_rank *rank, void *data) {
  Replays *replays = data;
  moert_status status = copy(rank, replays->product.offsets, replays->offsets[0]);
  if (!status) status = multiply(rank, &replays->product, NULL);
  for (int i = REPLAYS - 1; i > 0 && !status; --i) status = copy(rank, replays->outs[i], replays->outs[i - 1]);
  if (!status) status = copy(rank, replays->outs[0], replays->product.out.buffer);
  if (!status) status = copy(rank, replays->offsets[REPLAYS], replays->offsets[0]);
  for (int i = 0; i < REPLAYS && !status; ++i) status = copy(rank, replays->offsets[i], replays->offsets[i + 1]);
  return status;
}

static void body_replay(gpu_rank *rank) {
  const Case *what = rank->user;
  Replays replays;
  make_product(rank, what, &replays.product);
  for (int i = 0; i <= REPLAYS; ++i) {
    replays.offsets[i] = gpu_new(rank, what->index, 1, what->groups + 1);
    set_offsets(rank, what, replays.offsets[i]);
  }
  for (int i = 0; i < REPLAYS; ++i) replays.outs[i] = gpu_new(rank, what->out, 2, what->rows, replays.product.out_columns);
  CHECK_OK(multiply_and_wait(rank, &replays.product, NULL)); // the arena grows
  gpu_fill(replays.product.out.buffer, GPU_POISON);
  CHECK_OK(gpu_replay(rank, step, &replays, REPLAYS));
  for (int i = 0; i < REPLAYS; ++i) gpu_result(i == 0 ? "third" : i == 1 ? "second" : "first", replays.outs[i]);
}

//===--- what is run --------------------------------------------------------------------------------===//

// For tools that slow everything down: every seventh case, which is one of each type and activation.
static bool is_left_out(void) {
  static int number;
  return number++ % 7 != 0 && gpu_extent() == GPU_SMALL;
}

static void run_shapes(void) {
  static const struct {
    const char *name;
    int64_t groups, depth, columns, rows;
    Layout layout;
  } shapes[] = {{"one tile", 1, 64, 128, 128, EVEN},
                {"one row", 1, 8, 16, 1, EVEN},
                {"tails of all sizes", 3, 200, 144, 301, UNEVEN},
                {"a depth of 8", 5, 8, 272, 90, UNEVEN},
                {"a depth of 72", 2, 72, 16, 40, EVEN},
                {"no depth", 3, 0, 32, 20, EVEN},
                {"no columns", 3, 64, 0, 20, EVEN},
                {"no rows", 4, 64, 64, 0, EVEN},
                {"no groups", 0, 64, 64, 7, NO_ROWS},
                {"no row of a group", 4, 64, 64, 33, NO_ROWS},
                {"all rows in one group", 9, 136, 160, 333, ALL_IN_ONE},
                {"one row a group", 70, 264, 96, 60, ONE_EACH},
                {"rows outside the groups", 6, 128, 128, 200, HOLES},
                {"many groups", 2500, 16, 16, 4000, UNEVEN},
                {"more tiles than blocks", 16, 64, 2048, 700, UNEVEN},
                {"deep", 4, 2056, 256, 260, UNEVEN}};
  static const char *const dtypes[] = {"bf16", "f16", "f32"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
    for (int d = 0; d < 3; ++d)
      for (int gated = 0; gated < 2; ++gated) {
        if (is_left_out()) continue;
        Case what = {dtypes[d],
                     dtypes[d],
                     NULL,
                     "i32",
                     shapes[i].groups,
                     shapes[i].depth,
                     shapes[i].columns,
                     shapes[i].rows,
                     shapes[i].layout,
                     false,
                     false,
                     gated != 0,
                     1,
                     0,
                     0,
                     NULL};
        gpu_case("%s, %s%s", shapes[i].name, dtypes[d], gated ? ", swiglu" : "") gpu_both(1, 1, body_product, &what);
      }
}

static void run_operands(void) {
  const Case plain = {"bf16", "bf16", NULL, "i32", 5, 136, 160, 170, UNEVEN, false, false, false, 1, 0, 0, NULL};
  static const char *const dtypes[] = {"bf16", "f16", "f32"};
  for (int in = 0; in < 3; ++in)
    for (int out = 0; out < 3; ++out)
      for (int bias = 0; bias < 3; ++bias) {
        if (is_left_out()) continue;
        Case what = plain;
        what.dtype = dtypes[in], what.out = dtypes[out], what.bias = dtypes[bias];
        what.row_ids = bias != 0, what.row_weights = out != 1;
        what.swiglu = (in + out + bias) % 2 == 1;
        what.limit = bias == 2 && what.swiglu ? 0.75 : 0, what.alpha = 1.702;
        what.index = out == 2 ? "ui32" : "i32";
        what.shift = (in + bias) % 3 == 0 ? 1 : 0;
        gpu_case("%s to %s, bias %s", dtypes[in], dtypes[out], dtypes[bias]) gpu_both(1, 1, body_product, &what);
      }
  for (int gated = 0; gated < 2; ++gated) {
    Case what = plain;
    what.swiglu = gated != 0, what.bias = "f32", what.row_ids = true, what.row_weights = true;
    gpu_case("generic and specialised, %s", gated ? "swiglu" : "none") gpu_both(1, 1, body_generic, &what);
    what = (Case){"bf16", "f32", NULL, "i32", 1, 512, 384, 200, EVEN, false, false, gated != 0, 1, 0, 0, NULL};
    gpu_case("tiles of all sizes, %s", gated ? "swiglu" : "none") gpu_both(1, 1, body_tiles, &what);
    what = (Case){"f32", "f32", "f32", "i32", 4, 64, 96, 120, UNEVEN, true, true, gated != 0, 1, 0, 0, NULL};
    gpu_case("no numbers, %s", gated ? "swiglu" : "none") gpu_both(1, 1, body_special, &what);
  }
}

// Weights of 4 bits.
static void run_codes(void) {
  static const struct {
    const char *name;
    int64_t groups, depth, columns, rows;
    Layout layout;
  } shapes[] = {{"few rows", 5, 256, 272, 40, UNEVEN},
                {"many rows", 2, 320, 512, 500, UNEVEN},
                {"one block", 3, 32, 16, 9, EVEN},
                {"all rows in one group", 4, 96, 144, 150, ALL_IN_ONE},
                {"no depth", 3, 0, 32, 20, EVEN},
                {"more tiles than blocks", 8, 64, 4096, 300, UNEVEN},
                {"few rows, deep", 3, 7168, 272, 20, UNEVEN},
                {"few rows, more tiles than blocks", 6, 256, 8192, 60, UNEVEN},
                {"eight rows", 5, 768, 272, 8, UNEVEN},
                {"eight rows of many groups", 900, 256, 48, 8, UNEVEN},
                {"eight rows, some outside", 2, 256, 48, 8, HOLES},
                {"few rows and many", 7, 512, 144, 260, UNEVEN}};
  static const char *const formats[] = {"nvfp4", "mxfp4"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
    for (int f = 0; f < 2; ++f)
      for (int gated = 0; gated < 2; ++gated) {
        if (is_left_out()) continue;
        Case what = {
            "bf16",     "f32", NULL, "i32", shapes[i].groups, shapes[i].depth, shapes[i].columns, shapes[i].rows, shapes[i].layout, false, false,
            gated != 0, 1,     0,    0,     formats[f]};
        gpu_case("%s, %s%s", shapes[i].name, formats[f], gated ? ", swiglu" : "") gpu_both(1, 1, body_codes, &what);
        what.out = "bf16", what.bias = "f32", what.row_ids = true, what.row_weights = true, what.shift = (int64_t)i % 2;
        gpu_case("%s, %s%s, all operands", shapes[i].name, formats[f], gated ? ", swiglu" : "") gpu_both(1, 1, body_product, &what);
      }
  Case odd = {"bf16", "f32", NULL, "i32", 1, 48, 80, 33, EVEN, false, false, false, 1, 0, 0, "nvfp4"};
  gpu_case("a depth of three blocks, nvfp4") gpu_both(1, 1, body_codes, &odd);
  for (int f = 0; f < 2; ++f) {
    Case evicted = {"bf16", "bf16", NULL, "i32", 8, 7168, 2048, f == 0 ? 8 : 60, EVEN, false, false, true, 1, 0, 0, formats[f]};
    if (gpu_extent() != GPU_SMALL) gpu_case("weights from memory, %s", formats[f]) gpu_both(1, 1, body_evicted, &evicted);
    Case tiles = {"bf16", "f32", NULL, "i32", 1, 512, 384, 200, EVEN, false, false, true, 1, 0, 0, formats[f]};
    gpu_case("tiles of all sizes, %s", formats[f]) gpu_both(1, 1, body_tiles, &tiles);
  }
}

static void run_faults(void) {
  const Case what = {"bf16", "bf16", NULL, "i32", 5, 64, 64, 50, EVEN, true, false, false, 1, 0, 0, NULL};
  Case few = {"bf16", "bf16", NULL, "i32", 5, 256, 64, 8, EVEN, true, false, false, 1, 0, 0, "nvfp4"};
  Fault faults[] = {
      {few, false, 2, -7, "moe.grouped_matmul: offsets[2] is -7, must not be negative"},
      {few, false, 2, 5, "moe.grouped_matmul: offsets[3] is 3, less than offsets[2] = 5: must not descend"},
      {few, false, 0, 5, "moe.grouped_matmul: offsets[1] is 1, less than offsets[0] = 5: must not descend"},
      {few, false, 5, 9, "moe.grouped_matmul: offsets[5] is 9, exceeds the 8 rows of 'out'"},
      {few, true, 7, 5, "moe.grouped_matmul: row_ids[7] is 5, must be at least 0 and less than the 5 rows of 'rows'"},
      {what, false, 0, -1, "moe.grouped_matmul: offsets[0] is -1, must not be negative"},
      {what, false, 2, -7, "moe.grouped_matmul: offsets[2] is -7, must not be negative"},
      {what, false, 2, 35, "moe.grouped_matmul: offsets[3] is 30, less than offsets[2] = 35: must not descend"},
      {what, false, 5, 51, "moe.grouped_matmul: offsets[5] is 51, exceeds the 50 rows of 'out'"},
      {what, true, 17, -1, "moe.grouped_matmul: row_ids[17] is -1, must be at least 0 and less than the 26 rows of 'rows'"},
      {what, true, 49, 26, "moe.grouped_matmul: row_ids[49] is 26, must be at least 0 and less than the 26 rows of 'rows'"},
      {what, false, 3, 4294967295.0, "moe.grouped_matmul: offsets[3] is 4294967295, exceeds the 50 rows of 'out'"},
      {what, true, 0, 4294967295.0, "moe.grouped_matmul: row_ids[0] is 4294967295, must be at least 0 and less than the 26 rows of 'rows'"}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) {
    if (faults[i].value > 1e9) faults[i].what.index = "ui32";
    gpu_case("fault: %s", faults[i].text) gpu_both(1, 1, body_fault, &faults[i]);
  }
}

static void run_replays(void) {
  Case what = {"f32", "f32", NULL, "i32", 6, 72, 80, 200, UNEVEN, true, false, true, 1, 0, 0, NULL};
  gpu_case("replays with other offsets") gpu_both(1, 1, body_replay, &what);
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  run_shapes();
  run_operands();
  run_codes();
  run_faults();
  run_replays();
  return gpu_end();
}

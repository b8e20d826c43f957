//===- grouped.c - what the bench of grouped products measures --------------------------------------------===//
//
// moe.grouped_matmul with the weights of three models, in bf16, NVFP4 and MXFP4.
//
//===----------------------------------------------------------------------------------------------===//

#include "grouped.h"
#include "device.h"
#include "lib/reference/formats.h"
#include "operands.h"
#include "routing.h"
#include <stdlib.h>
#include <string.h>

enum { ROWS, OFFSETS, WEIGHTS, OUT, SCALES };

//===--- operands -----------------------------------------------------------------------------------===//

static int64_t rows_of(const Work *work) { return work->tokens * work->shape.top_k; }

static bool has_codes(const Work *work) { return strcmp(work->what->dtype, "bf16") != 0; }
static int format_of(const Work *work) { return strcmp(work->what->dtype, "nvfp4") == 0 ? MOERT__NVFP4 : MOERT__MXFP4; }
static int64_t block_of(const Work *work) { return moert__block_size(format_of(work)); }

// Of a group.
static int64_t weight_bytes(const Work *work) {
  const int64_t count = work->shape.intermediate * work->shape.hidden;
  return has_codes(work) ? count / 2 + count / block_of(work) : count * 2;
}

// Each row falls to any group. Caller frees.
static int32_t *choose_offsets(const Work *work, int set) {
  uint64_t state = operand_seed(work, work->rank, set);
  int32_t *offsets = calloc((size_t)work->shape.experts + 1, sizeof *offsets);
  if (!offsets) return NULL;
  for (int64_t r = 0; r < rows_of(work); ++r) ++offsets[1 + routing_random(&state) % (uint64_t)work->shape.experts];
  for (int64_t g = 0; g < work->shape.experts; ++g) offsets[g + 1] += offsets[g];
  return offsets;
}

// The same memory as a matrix.
static moert_tensor matrix_of(const Buffer *buffer, int64_t *shape) {
  moert_tensor matrix = buffer->tensor;
  shape[0] = buffer->shape[0] * buffer->shape[1], shape[1] = buffer->shape[2];
  matrix.ndim = 2, matrix.shape = shape;
  return matrix;
}

static moert_status quantize(Work *work, int format, Buffer *numbers, Buffer *codes, Buffer *scales) {
  int64_t shapes[3][2];
  const moert_tensor input = matrix_of(numbers, shapes[0]), values = matrix_of(codes, shapes[1]), steps = matrix_of(scales, shapes[2]);
  moert_moe_quantize_params params = MOERT_MOE_QUANTIZE_PARAMS_INIT;
  params.format = format;
  moert_moe_quantize_args args = MOERT_MOE_QUANTIZE_ARGS_INIT;
  args.input = &input;
  args.values = &values;
  args.scales = &steps;
  moert_status status = moert_moe_quantize(&params, &args, NULL, work->context);
  return status ? status : moert_context_synchronize(work->context);
}

// Of random numbers, which are there meanwhile; of three dimensions, the last of which are columns.
static moert_status add_codes(Work *work, int format, uint64_t seed, Buffer *codes, Buffer *scales, const int64_t *shape) {
  const moert_dtype scale = {format == MOERT__NVFP4 ? MOERT_CODE_F8E4M3FN : MOERT_CODE_F8E8M0FNU, 8, 1};
  Buffer numbers = {0};
  moert_status status = operand_add(work, codes, I8, 3, SHAPE(shape[0], shape[1], shape[2] / 2));
  if (!status) status = operand_add(work, scales, scale, 3, SHAPE(shape[0], shape[1], shape[2] / moert__block_size(format)));
  if (!status) status = operand_add(work, &numbers, BF16, 3, shape);
  if (!status && device_random(numbers.tensor.data, shape[0] * shape[1] * shape[2], BF16, seed, 1, work->stream) != cudaSuccess)
    status = MOERT_ERROR_DEVICE;
  if (!status) status = quantize(work, format, &numbers, codes, scales);
  moert_device_free(work->comm, numbers.tensor.data);
  return status;
}

static moert_status fill_weights(Work *work, int set) {
  const Shape *shape = &work->shape;
  Buffer *buffers = work->buffers[set];
  const int64_t *all = SHAPE(shape->experts, shape->intermediate, shape->hidden);
  if (!has_codes(work)) return operand_add_random(work, set, WEIGHTS, 0.05f, BF16, 3, all);
  return add_codes(work, format_of(work), operand_seed(work, work->rank, set), &buffers[WEIGHTS], &buffers[SCALES], all);
}

static moert_status fill(Work *work, int set, int64_t out_columns) {
  const Shape *shape = &work->shape;
  int32_t *offsets = choose_offsets(work, set);
  if (!offsets) return MOERT_ERROR_OUT_OF_MEMORY;
  moert_status status = operand_add_words(work, &work->buffers[set][OFFSETS], offsets, 1, SHAPE(shape->experts + 1));
  free(offsets);
  if (!status) status = operand_add_random(work, set, ROWS, 1, BF16, 2, SHAPE(rows_of(work), shape->hidden));
  if (!status) status = fill_weights(work, set);
  if (!status) status = operand_add_output(work, &work->buffers[set][OUT], BF16, 2, SHAPE(rows_of(work), out_columns));
  return status;
}

moert_status grouped_fill_plain(Work *work, int set) { return fill(work, set, work->shape.intermediate); }
moert_status grouped_fill_gated(Work *work, int set) { return fill(work, set, work->shape.intermediate / 2); }

//===--- calls --------------------------------------------------------------------------------------===//

static moert_status call_product(Work *work, int set, moert_kernel *kernel, int64_t activation) {
  moert_moe_grouped_matmul_params params = MOERT_MOE_GROUPED_MATMUL_PARAMS_INIT;
  params.activation = activation;
  moert_moe_grouped_matmul_args args = MOERT_MOE_GROUPED_MATMUL_ARGS_INIT;
  args.rows = operand(work, set, ROWS);
  args.offsets = operand(work, set, OFFSETS);
  args.weights = operand(work, set, WEIGHTS);
  args.out = operand(work, set, OUT);
  if (has_codes(work)) {
    params.weight_format =
        format_of(work) == MOERT__NVFP4 ? MOERT_MOE_GROUPED_MATMUL_WEIGHT_FORMAT_NVFP4 : MOERT_MOE_GROUPED_MATMUL_WEIGHT_FORMAT_MXFP4;
    args.weight_scales = operand(work, set, SCALES);
  }
  return moert_moe_grouped_matmul(&params, &args, kernel, work->context);
}

moert_status grouped_call_plain(Work *work, int set, moert_kernel *kernel) {
  return call_product(work, set, kernel, MOERT_MOE_GROUPED_MATMUL_ACTIVATION_NONE);
}

moert_status grouped_call_gated(Work *work, int set, moert_kernel *kernel) {
  return call_product(work, set, kernel, MOERT_MOE_GROUPED_MATMUL_ACTIVATION_SWIGLU);
}

Cost grouped_cost(const Work *work) {
  const Shape *shape = &work->shape;
  int64_t groups = 0, rows = rows_of(work);
  for (int set = 0; set < work->sets; ++set) {
    int32_t *offsets = choose_offsets(work, set);
    for (int64_t g = 0; offsets && g < shape->experts; ++g) groups += offsets[g + 1] > offsets[g];
    free(offsets);
  }
  const int64_t results = (int64_t)work->buffers[0][OUT].bytes;
  return (Cost){.memory_bytes = groups * weight_bytes(work) / work->sets + rows * shape->hidden * 2 + results,
                .flops = 2 * rows * shape->intermediate * shape->hidden};
}

//===--- the table ----------------------------------------------------------------------------------===//

typedef struct Kind {
  const char *variant;
  Shape shape;
  bool gated;
} Kind;

// The first two are those of a rank that has an eighth of the experts.
static const Kind kinds[] = {
    {"up 7168", {7168, 4096, 32, 8}, true},     {"down 7168", {2048, 7168, 32, 8}, false}, {"up 4096", {4096, 3072, 128, 8}, true},
    {"down 4096", {1536, 4096, 128, 8}, false}, {"up 2048", {2048, 1536, 128, 8}, true},   {"down 2048", {768, 2048, 128, 8}, false},
};
static const char *const dtypes[] = {"bf16", "nvfp4", "mxfp4"};
enum { KINDS = sizeof kinds / sizeof *kinds, DTYPES = sizeof dtypes / sizeof *dtypes };

static Case case_of(const Kind *kind, const char *dtype) {
  const Step step = {"grouped_matmul", "moe.grouped_matmul", kind->gated ? grouped_call_gated : grouped_call_plain, grouped_cost};
  return (Case){.variant = kind->variant,
                .dtype = dtype,
                .shape = kind->shape,
                .fill = kind->gated ? grouped_fill_gated : grouped_fill_plain,
                .num_steps = 1,
                .steps = {step}};
}

// Made when they are first asked for.
const Case *grouped_cases(int *count) {
  static Case cases[KINDS * DTYPES];
  for (int i = 0; i < KINDS * DTYPES && !cases[i].variant; ++i) cases[i] = case_of(&kinds[i / DTYPES], dtypes[i % DTYPES]);
  *count = KINDS * DTYPES;
  return cases;
}

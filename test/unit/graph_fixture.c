//===- graph_fixture.c - what a compiled graph exports, by hand -------------------------------------===//
//
// The macros FIXTURE_... make graphs that must be refused.
//
//===----------------------------------------------------------------------------------------------===//

#include <moert/moert.h>
#include <stdint.h>

#ifndef FIXTURE_SYMBOL
#define FIXTURE_SYMBOL moert_graph_info
#endif
#ifndef FIXTURE_MAGIC
#define FIXTURE_MAGIC MOERT_GRAPH_MAGIC
#endif
#ifndef FIXTURE_ABI_VERSION
#define FIXTURE_ABI_VERSION MOERT_ABI_VERSION
#endif
#ifndef FIXTURE_STRUCT_SIZE
#define FIXTURE_STRUCT_SIZE sizeof(moert_graph_description)
#endif
#ifndef FIXTURE_TARGET
#define FIXTURE_TARGET "host"
#endif

#define DTYPE(code, bits) ((code) | (bits) << 8 | 1 << 16)
enum {
  F32 = DTYPE(MOERT_CODE_FLOAT, 32),
  F64 = DTYPE(MOERT_CODE_FLOAT, 64),
  I8 = DTYPE(MOERT_CODE_INT, 8),
  I32 = DTYPE(MOERT_CODE_INT, 32),
  I64 = DTYPE(MOERT_CODE_INT, 64),
  I1 = DTYPE(MOERT_CODE_INT, 1)
};

typedef struct memref2 {
  float *allocated, *aligned;
  int64_t offset, sizes[2], strides[2];
} memref2;

typedef struct memref1 {
  int8_t *allocated, *aligned;
  int64_t offset, sizes[1], strides[1];
} memref1;

typedef struct memref0 {
  int32_t *allocated, *aligned;
  int64_t offset;
} memref0;

#ifdef FIXTURE_UNRESOLVED
extern moert_status a_function_that_nobody_has(void);
#endif

//===--- scale: out = x * factor, x and out [T, 4] --------------------------------------------------===//

static const int64_t scale_shape[] = {-1, 4};
static const char *const scale_symbols[] = {"T", NULL};
static const moert_argument_info scale_arguments[] = {
    {"x", F32, MOERT_ROLE_IN, MOERT_MEMORY_DEVICE, 2, scale_shape, scale_symbols, NULL},
    {"factor", F64, MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
    {"out", F32, MOERT_ROLE_OUT, MOERT_MEMORY_DEVICE, 2, scale_shape, scale_symbols, NULL},
};

static moert_status scale(void *const *arguments, moert_context *context) {
  (void)context;
  const memref2 *x = arguments[0], *out = arguments[2];
  const double *factor = arguments[1];
  for (int64_t t = 0; t < x->sizes[0]; ++t)
    for (int64_t i = 0; i < x->sizes[1]; ++i)
      out->aligned[out->offset + t * out->strides[0] + i * out->strides[1]] =
          (float)(x->aligned[x->offset + t * x->strides[0] + i * x->strides[1]] * *factor);
  return MOERT_OK;
}

//===--- look: writes what it was given -------------------------------------------------------------===//

static const int64_t look_vector[] = {-1}, look_square[] = {-1, -1};
static const char *const look_square_symbols[] = {"N", "N"};
static const moert_argument_info look_arguments[] = {
    {"workspace", I8, MOERT_ROLE_INOUT, MOERT_MEMORY_SYMMETRIC, 1, look_vector, NULL, NULL},
    {"square", F32, MOERT_ROLE_IN, MOERT_MEMORY_DEVICE, 2, look_square, look_square_symbols, NULL},
    {"cell", I32, MOERT_ROLE_OUT, MOERT_MEMORY_HOST, 0, NULL, NULL, NULL},
    {"small", I8, MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
    {"flag", I1, MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
};

static moert_status look(void *const *arguments, moert_context *context) {
  (void)context;
  const memref1 *workspace = arguments[0];
  const memref2 *square = arguments[1];
  const memref0 *cell = arguments[2];
  workspace->aligned[0] = *(const int8_t *)arguments[3];
  int strides_right = workspace->strides[0] == 1 && square->strides[0] == square->sizes[1] && square->strides[1] == 1;
  int same_pointers = workspace->allocated == workspace->aligned && cell->allocated == cell->aligned && !workspace->offset && !cell->offset;
  *cell->aligned = (int32_t)(workspace->sizes[0] * 1000 + square->sizes[0] * 10 + strides_right + same_pointers + *(const uint8_t *)arguments[4]);
  return MOERT_OK;
}

//===--- arena: takes memory, writes it; fail: fails; nothing: has no arguments -----------------------===//

static const moert_argument_info arena_arguments[] = {
    {"bytes", I64, MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
};

static moert_status arena(void *const *arguments, moert_context *context) {
  const int64_t *bytes = arguments[0];
  for (int i = 0; i < 3; ++i) {
    void *memory;
    moert_status status = moert_context_allocate(context, *bytes, &memory);
    if (status) return status;
    for (int64_t b = 0; b < *bytes; ++b) ((unsigned char *)memory)[b] = 1;
  }
  return MOERT_OK;
}

static moert_status fail(void *const *arguments, moert_context *context) {
  (void)arguments;
  (void)context;
  return MOERT_ERROR_DATA;
}

static moert_status nothing(void *const *arguments, moert_context *context) {
  (void)arguments;
#ifdef FIXTURE_UNRESOLVED
  if (!context) return a_function_that_nobody_has();
#endif
  return context ? MOERT_OK : MOERT_ERROR_INTERNAL;
}

//===--- the description ----------------------------------------------------------------------------===//

static const moert_function_info functions[] = {
    {"scale", scale, 3, scale_arguments, 1}, {"look", look, 5, look_arguments, 1},
    {"arena", arena, 1, arena_arguments, 1}, {"fail", fail, 0, NULL, 1},
    {"nothing", nothing, 0, NULL, 1},
};
static const char *const kernel_keys[] = {"moe.route/host"};

MOERT_API extern const moert_graph_description FIXTURE_SYMBOL;
const moert_graph_description FIXTURE_SYMBOL = {
    FIXTURE_MAGIC, FIXTURE_ABI_VERSION, FIXTURE_STRUCT_SIZE, FIXTURE_TARGET, "by hand", 5, functions, 1, kernel_keys, NULL,
};

//===- graph.c - a graph by hand, which writes all that it is given to write ------------------------===//

#include <moert/moert.h>
#include <stdint.h>
#include <string.h>

#define DTYPE(code, bits) ((code) | (bits) << 8 | 1 << 16)

typedef struct buffer {
  unsigned char *allocated, *aligned;
  int64_t offset, extents[]; // sizes, then strides
} buffer;

static int64_t elements(const buffer *from, int64_t rank) {
  int64_t count = 1;
  for (int64_t d = 0; d < rank; ++d)
    if (__builtin_mul_overflow(count, from->extents[d], &count)) return 0; // empty: one of the sizes is 0
  return count;
}

static moert_status fill(const buffer *to, int64_t rank, int64_t element, const buffer *from, int64_t from_rank) {
  int64_t bytes = elements(to, rank) * element, read = from ? elements(from, from_rank) : 0;
  unsigned char sum = 1;
  for (int64_t i = 0; i < read; ++i) sum = (unsigned char)(sum + from->aligned[i]);
  if (bytes > 0) memset(to->aligned, sum, (size_t)bytes);
  return MOERT_OK;
}

//===--- mixed: every memory, ranks 0 to 4, symbols -------------------------------------------------===//

static const int64_t square_shape[] = {-1, -1}, deep_shape[] = {2, -1, 1, -1}, slab_shape[] = {-1}, info_shape[] = {16};
static const char *const square_symbols[] = {"N", "M"}, *const deep_symbols[] = {NULL, "N", NULL, NULL};
static const moert_argument_info mixed_arguments[] = {
    {"x", DTYPE(MOERT_CODE_BFLOAT, 16), MOERT_ROLE_IN, MOERT_MEMORY_DEVICE, 2, square_shape, square_symbols, NULL},
    {"deep", DTYPE(MOERT_CODE_INT, 8), MOERT_ROLE_IN, MOERT_MEMORY_DEVICE, 4, deep_shape, deep_symbols, NULL},
    {"slab", DTYPE(MOERT_CODE_INT, 8), MOERT_ROLE_INOUT, MOERT_MEMORY_SYMMETRIC, 1, slab_shape, NULL, NULL},
    {"info", DTYPE(MOERT_CODE_INT, 64), MOERT_ROLE_INOUT, MOERT_MEMORY_HOST, 1, info_shape, NULL, NULL},
    {"count", DTYPE(MOERT_CODE_INT, 64), MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
    {"flag", DTYPE(MOERT_CODE_INT, 1), MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
    {"cell", DTYPE(MOERT_CODE_FLOAT, 32), MOERT_ROLE_OUT, MOERT_MEMORY_DEVICE, 0, NULL, NULL, NULL},
    {"out", DTYPE(MOERT_CODE_FLOAT, 64), MOERT_ROLE_OUT, MOERT_MEMORY_DEVICE, 2, square_shape, square_symbols, NULL},
};

static moert_status mixed(void *const *arguments, moert_context *context) {
  void *memory;
  moert_status status = moert_context_allocate(context, *(const int64_t *)arguments[4] & 0xffff, &memory);
  if (status) return status;
  memset(memory, *(const unsigned char *)arguments[5], (size_t)(*(const int64_t *)arguments[4] & 0xffff));
  status = fill(arguments[7], 2, 8, arguments[0], 2);
  if (!status) status = fill(arguments[6], 0, 4, arguments[1], 4);
  if (!status) status = fill(arguments[2], 1, 1, NULL, 0);
  return status ? status : fill(arguments[3], 1, 8, NULL, 0);
}

//===--- fail and nothing ---------------------------------------------------------------------------===//

static moert_status fail(void *const *arguments, moert_context *context) {
  (void)arguments, (void)context;
  return MOERT_ERROR_DATA;
}

static moert_status nothing(void *const *arguments, moert_context *context) {
  (void)arguments, (void)context;
  return MOERT_OK;
}

static const moert_function_info functions[] = {{"mixed", mixed, sizeof mixed_arguments / sizeof *mixed_arguments, mixed_arguments, 1},
                                                {"fail", fail, 0, NULL, 1},
                                                {"nothing", nothing, 0, NULL, 1}};

MOERT_API extern const moert_graph_description moert_graph_info;
const moert_graph_description moert_graph_info = {
    MOERT_GRAPH_MAGIC, MOERT_ABI_VERSION, sizeof moert_graph_info, "host", "by hand", 3, functions, 0, NULL, NULL};

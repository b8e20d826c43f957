//===- graph.c - what a compiled graph looks like, written by hand for the tests of moe-run -------===//
//
// TEST_ABI and TEST_MAGIC make graphs that must be refused; TEST_DEVICE one that was compiled for sm_90a, whose functions run on the host all the
// same: fake_cuda.c is their device.
//
//===----------------------------------------------------------------------------------------------===//
#include <moert/ops.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#ifndef TEST_ABI
#define TEST_ABI MOERT_ABI_VERSION
#endif
#ifndef TEST_MAGIC
#define TEST_MAGIC MOERT_GRAPH_MAGIC
#endif

// A memref descriptor of rank 1 or 2: strides follow the sizes.
typedef struct memref {
  void *allocated, *aligned;
  int64_t offset, sizes[4];
} memref;

#define DTYPE(code, bits) (MOERT_CODE_##code | (bits) << 8 | 1 << 16)
#define COUNT(array) (int64_t)(sizeof(array) / sizeof *(array))
#define SYMBOLS(...)                                                                                                                                 \
  (const char *const[]) { __VA_ARGS__ }
#define SHAPE(...)                                                                                                                                   \
  (const int64_t[]) { __VA_ARGS__ }
#define TENSOR(name, dtype, role, memory, ndim, shape, symbols) {name, dtype, MOERT_ROLE_##role, MOERT_MEMORY_##memory, ndim, shape, symbols, NULL}
#define VALUE(name, dtype) {name, dtype, MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL}

//===--- scale: y = x * factor; the number of calls so far ----------------------------------------===//

static const moert_argument_info scale_arguments[] = {
    TENSOR("x", DTYPE(FLOAT, 32), IN, DEVICE, 2, SHAPE(-1, 8), SYMBOLS("T", NULL)),
    VALUE("factor", DTYPE(FLOAT, 32)),
    TENSOR("y", DTYPE(FLOAT, 32), OUT, DEVICE, 2, SHAPE(-1, 8), SYMBOLS("T", NULL)),
    TENSOR("calls", DTYPE(INT, 64), INOUT, HOST, 1, SHAPE(1), NULL),
};

static moert_status scale(void *const *arguments, moert_context *context) {
  const memref *x = arguments[0], *y = arguments[2], *calls = arguments[3];
  const float *from = x->aligned;
  float factor = *(const float *)arguments[1], *to = y->aligned;
  (void)context;
  for (int64_t i = 0; i < x->sizes[0] * 8; ++i) to[i] = from[i] * factor;
  ++*(int64_t *)calls->aligned;
  return MOERT_OK;
}

//===--- add_y: z = y + y; reads what scale writes ------------------------------------------------===//

static const moert_argument_info add_y_arguments[] = {
    TENSOR("y", DTYPE(FLOAT, 32), IN, DEVICE, 2, SHAPE(-1, 8), SYMBOLS("rows", NULL)),
    TENSOR("z", DTYPE(FLOAT, 32), OUT, DEVICE, 2, SHAPE(-1, 8), SYMBOLS("rows", NULL)),
};

static moert_status add_y(void *const *arguments, moert_context *context) {
  const memref *y = arguments[0], *z = arguments[1];
  (void)context;
  for (int64_t i = 0; i < y->sizes[0] * 8; ++i) ((float *)z->aligned)[i] = 2 * ((const float *)y->aligned)[i];
  return MOERT_OK;
}

//===--- copy: one pair of arguments per element type ---------------------------------------------===//

#define TYPES(X)                                                                                                                                     \
  X(f32, FLOAT, 32)                                                                                                                                  \
  X(f64, FLOAT, 64)                                                                                                                                  \
  X(f16, FLOAT, 16)                                                                                                                                  \
  X(bf16, BFLOAT, 16)                                                                                                                                \
  X(i8, INT, 8)                                                                                                                                      \
  X(i16, INT, 16)                                                                                                                                    \
  X(i32, INT, 32)                                                                                                                                    \
  X(i64, INT, 64)                                                                                                                                    \
  X(ui8, UINT, 8)                                                                                                                                    \
  X(ui16, UINT, 16)                                                                                                                                  \
  X(ui32, UINT, 32)                                                                                                                                  \
  X(ui64, UINT, 64)                                                                                                                                  \
  X(bool, BOOL, 8)                                                                                                                                   \
  X(e4m3, F8E4M3FN, 8)                                                                                                                               \
  X(e5m2, F8E5M2, 8)                                                                                                                                 \
  X(e8m0, F8E8M0FNU, 8)

#define COPY_ARGUMENTS(name, code, bits)                                                                                                             \
  TENSOR("in_" #name, DTYPE(code, bits), IN, DEVICE, 1, SHAPE(-1), SYMBOLS("N")),                                                                    \
      TENSOR("out_" #name, DTYPE(code, bits), OUT, DEVICE, 1, SHAPE(-1), SYMBOLS("N")),
static const moert_argument_info copy_arguments[] = {TYPES(COPY_ARGUMENTS)};

static moert_status copy(void *const *arguments, moert_context *context) {
  (void)context;
  for (int64_t i = 0; i < COUNT(copy_arguments); i += 2) {
    const memref *from = arguments[i], *to = arguments[i + 1];
    memcpy(to->aligned, from->aligned, (size_t)from->sizes[0] * (size_t)(copy_arguments[i].dtype >> 8 & 0xff) / 8);
  }
  return MOERT_OK;
}

//===--- numbers: values of all types, and which rank they came to --------------------------------===//

#define NUMBER_ARGUMENTS(name, code, bits) VALUE(#name, DTYPE(code, bits)),
static const moert_argument_info numbers_arguments[] = {TYPES(NUMBER_ARGUMENTS) TENSOR("bytes", DTYPE(UINT, 8), OUT, HOST, 2, SHAPE(16, 8), NULL)};

static moert_status numbers(void *const *arguments, moert_context *context) {
  const memref *bytes = arguments[16];
  (void)context;
  memset(bytes->aligned, 0, 128);
  for (int64_t i = 0; i < 16; ++i) memcpy((char *)bytes->aligned + 8 * i, arguments[i], (size_t)(numbers_arguments[i].dtype >> 8 & 0xff) / 8);
  return MOERT_OK;
}

//===--- free_size: a dimension without a symbol; forget: outputs that nobody writes --------------===//

static const moert_argument_info free_size_arguments[] = {
    TENSOR("v", DTYPE(FLOAT, 32), INOUT, HOST, 2, SHAPE(-1, -1), NULL),
};

static moert_status free_size(void *const *arguments, moert_context *context) {
  const memref *v = arguments[0];
  (void)context;
  for (int64_t i = 0; i < v->sizes[0] * v->sizes[1]; ++i) ((float *)v->aligned)[i] += 1;
  return MOERT_OK;
}

static const moert_argument_info forget_arguments[] = {
    TENSOR("v", DTYPE(INT, 32), OUT, DEVICE, 1, SHAPE(3), NULL),
    TENSOR("w", DTYPE(BFLOAT, 16), OUT, DEVICE, 1, SHAPE(3), NULL),
};

static moert_status forget(void *const *arguments, moert_context *context) {
  (void)arguments, (void)context;
  return MOERT_OK;
}

//===--- fail: one rank returns an error that its peers wait for; nap: takes its time -------------===//

static const moert_argument_info fail_arguments[] = {VALUE("who", DTYPE(INT, 32))};

static moert_status fail(void *const *arguments, moert_context *context) {
  moert_comm *comm = moert_context_comm(context);
  if (moert_comm_rank(comm) != *(const int32_t *)arguments[0]) return moert_comm_barrier(comm, 20000);
  return moert_symmetric_free(comm, &comm); // never memory of the communicator
}

static const moert_argument_info nap_arguments[] = {VALUE("milliseconds", DTYPE(INT, 64))};

static moert_status nap(void *const *arguments, moert_context *context) {
  int64_t milliseconds = *(const int64_t *)arguments[0];
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  (void)context;
  nanosleep(&time, NULL);
  return MOERT_OK;
}

//===--- die: the process of one rank is ended ----------------------------------------------------===//

static const moert_argument_info die_arguments[] = {VALUE("who", DTYPE(INT, 32))};

static moert_status die(void *const *arguments, moert_context *context) {
  moert_comm *comm = moert_context_comm(context);
  if (moert_comm_rank(comm) == *(const int32_t *)arguments[0]) raise(SIGKILL);
  return moert_comm_barrier(comm, 20000);
}

//===--- near: on a device not quite what it is on the host; count: an inout argument in device memory ---===//

static const moert_argument_info near_arguments[] = {
    TENSOR("x", DTYPE(FLOAT, 32), IN, DEVICE, 1, SHAPE(4), NULL),
    VALUE("apart", DTYPE(FLOAT, 32)),
    TENSOR("y", DTYPE(FLOAT, 32), OUT, DEVICE, 1, SHAPE(4), NULL),
    TENSOR("device", DTYPE(INT, 32), OUT, HOST, 1, SHAPE(1), NULL),
};

static moert_status near(void *const *arguments, moert_context *context) {
  const memref *x = arguments[0], *y = arguments[2], *device = arguments[3];
  bool on_device = moert_comm_device(moert_context_comm(context)).type == MOERT_DEVICE_CUDA;
  for (int i = 0; i < 4; ++i) ((float *)y->aligned)[i] = ((const float *)x->aligned)[i] * (on_device ? 1 + *(const float *)arguments[1] : 1);
  *(int32_t *)device->aligned = 7;
  return MOERT_OK;
}

static const moert_argument_info count_arguments[] = {TENSOR("n", DTYPE(INT, 64), INOUT, DEVICE, 1, SHAPE(2), NULL)};

static moert_status count(void *const *arguments, moert_context *context) {
  const memref *n = arguments[0];
  (void)context;
  for (int i = 0; i < 2; ++i) ++((int64_t *)n->aligned)[i];
  return MOERT_OK;
}

static const moert_argument_info unknown_arguments[] = {TENSOR("q", DTYPE(INT, 4), IN, DEVICE, 1, SHAPE(8), NULL)};

//===--- init, exchange: a dispatch between ranks -------------------------------------------------===//

enum { TOKENS = 16, ROW = 8, TOP_K = 2, EXPERTS = 8 };

static const moert_workspace_info workspace = {TOKENS, ROW * sizeof(float), ROW * sizeof(float), 0, 0};

#define SLAB {"slab", DTYPE(INT, 8), MOERT_ROLE_INOUT, MOERT_MEMORY_SYMMETRIC, 1, SHAPE(-1), SYMBOLS("slab_bytes"), &workspace}
#define METAINFO TENSOR("metainfo", DTYPE(INT, 64), INOUT, HOST, 1, SHAPE(16), NULL)

static const moert_argument_info init_arguments[] = {SLAB, METAINFO};

static const moert_argument_info exchange_arguments[] = {
    TENSOR("ids", DTYPE(INT, 32), IN, DEVICE, 2, SHAPE(-1, TOP_K), SYMBOLS("T", NULL)),
    TENSOR("tokens", DTYPE(FLOAT, 32), IN, DEVICE, 2, SHAPE(-1, ROW), SYMBOLS("T", NULL)),
    TENSOR("slab", DTYPE(INT, 8), INOUT, SYMMETRIC, 1, SHAPE(-1), NULL),
    METAINFO,
    TENSOR("rows", DTYPE(FLOAT, 32), INOUT, DEVICE, 2, SHAPE(-1, ROW), SYMBOLS("C", NULL)),
    TENSOR("offsets", DTYPE(INT, 32), OUT, DEVICE, 1, SHAPE(-1), SYMBOLS("local_experts_plus_1")),
};

static moert_tensor tensor_of(const void *argument, const moert_argument_info *info, moert_context *context) {
  const memref *from = argument;
  moert_dtype dtype = {(uint8_t)info->dtype, (uint8_t)(info->dtype >> 8), 1};
  moert_device device = {MOERT_DEVICE_CPU, 0};
  if (info->memory != MOERT_MEMORY_HOST) device = moert_comm_device(moert_context_comm(context));
  return (moert_tensor){from->aligned, device, (int32_t)info->ndim, dtype, (int64_t *)from->sizes, NULL, 0};
}

static moert_status init(void *const *arguments, moert_context *context) {
  moert_tensor slab = tensor_of(arguments[0], &init_arguments[0], context), metainfo = tensor_of(arguments[1], &init_arguments[1], context);
  moert_moe_initialize_params params = MOERT_MOE_INITIALIZE_PARAMS_INIT;
  params.max_num_tokens = workspace.max_num_tokens;
  params.dispatch_bytes_per_token = workspace.dispatch_bytes_per_token;
  params.combine_bytes_per_token = workspace.combine_bytes_per_token;
  moert_moe_initialize_args args = MOERT_MOE_INITIALIZE_ARGS_INIT;
  args.workspace = &slab;
  args.metainfo = &metainfo;
  return moert_moe_initialize(&params, &args, NULL, context);
}

static moert_status exchange(void *const *arguments, moert_context *context) {
  moert_tensor tensors[6];
  int64_t offset;
  for (int64_t i = 0; i < 6; ++i) tensors[i] = tensor_of(arguments[i], &exchange_arguments[i], context);
  moert_moe_dispatch_params params = MOERT_MOE_DISPATCH_PARAMS_INIT;
  params.top_k = TOP_K;
  params.n_experts = EXPERTS;
  params.layout = MOERT_MOE_DISPATCH_LAYOUT_EXPERT_GROUPED;
  moert_moe_dispatch_args args = MOERT_MOE_DISPATCH_ARGS_INIT;
  args.topk_ids = &tensors[0];
  args.num_payloads = args.num_recv = 1;
  args.payloads = &tensors[1];
  args.workspace = &tensors[2];
  args.metainfo = &tensors[3];
  args.runtime_max_tokens_per_rank = TOKENS;
  args.recv = &tensors[4];
  args.offsets = &tensors[5];
  args.combine_payload_offset = &offset;
  return moert_moe_dispatch(&params, &args, NULL, context);
}

//===--- the description --------------------------------------------------------------------------===//

#define FUNCTION(name) {#name, name, COUNT(name##_arguments), name##_arguments, 1}
static const moert_function_info functions[] = {
    FUNCTION(scale),     FUNCTION(add_y),
    FUNCTION(copy),      FUNCTION(numbers),
    FUNCTION(free_size), FUNCTION(forget),
    FUNCTION(fail),      FUNCTION(nap),
    FUNCTION(die),       FUNCTION(near),
    FUNCTION(count),     {"init", init, COUNT(init_arguments), init_arguments, 0},
    FUNCTION(exchange),  {"unknown", forget, COUNT(unknown_arguments), unknown_arguments, 1},
};

#define GRAPH(target, kernels)                                                                                                                       \
  {                                                                                                                                                  \
      TEST_MAGIC,  TEST_ABI, sizeof(moert_graph_description), target, "the tests of moe-run", COUNT(functions), functions, COUNT(kernel_keys),       \
      kernel_keys, kernels,                                                                                                                          \
  }

MOERT_API extern const moert_graph_description moert_graph_info;
#ifdef TEST_DEVICE
static const char *const kernel_keys[] = {"moe.dispatch/sm_90a/f32,top_k=2", "moe.route/sm_90a/f32,top_k=2"};
static moert_kernel *kernels[2];
MOERT_API extern const moert_graph_description moert_graph_info_host;
const moert_graph_description moert_graph_info_host = GRAPH("host", NULL);
const moert_graph_description moert_graph_info = GRAPH("sm_90a", kernels);
#else
static const char *const kernel_keys[] = {"moe.initialize/host/w16", "moe.dispatch/host/f32,k2,e8"};
const moert_graph_description moert_graph_info = GRAPH("host", NULL);
#endif

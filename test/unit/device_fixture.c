//===- device_fixture.c - a graph for a device and the host, by hand --------------------------------===//
//
// The macros FIXTURE_... make graphs that must be refused.
//
//===----------------------------------------------------------------------------------------------===//

#include <moert/moert.h>
#include <moert/ops.h>

#ifndef FIXTURE_KEY
#define FIXTURE_KEY "moe.route/sm_90a/f32,i32,f32,top_k=8,n_experts=64"
#endif
#ifndef FIXTURE_HOST_TARGET
#define FIXTURE_HOST_TARGET "host"
#endif

#define DTYPE(code, bits) ((code) | (bits) << 8 | 1 << 16)

typedef struct memref {
  void *allocated, *aligned;
  int64_t offset, sizes[2], strides[2];
} memref;

static moert_kernel *slots[1];

//===--- route: calls the op ------------------------------------------------------------------------===//

static const int64_t logits_shape[] = {-1, 64}, chosen_shape[] = {-1, 8};
static const moert_argument_info route_arguments[] = {
    {"logits", DTYPE(MOERT_CODE_FLOAT, 32), MOERT_ROLE_IN, MOERT_MEMORY_DEVICE, 2, logits_shape, NULL, NULL},
    {"ids", DTYPE(MOERT_CODE_INT, 32), MOERT_ROLE_OUT, MOERT_MEMORY_DEVICE, 2, chosen_shape, NULL, NULL},
    {"weights", DTYPE(MOERT_CODE_FLOAT, 32), MOERT_ROLE_OUT, MOERT_MEMORY_DEVICE, 2, chosen_shape, NULL, NULL},
};

static moert_tensor tensor_of(void *argument, uint8_t code, moert_context *context) {
  memref *given = argument;
  return (moert_tensor){given->aligned, moert_comm_device(moert_context_comm(context)), 2, {code, 32, 1}, given->sizes, NULL, 0};
}

static moert_status call_route(void *const *arguments, moert_context *context, moert_kernel *kernel) {
  moert_tensor logits = tensor_of(arguments[0], MOERT_CODE_FLOAT, context), ids = tensor_of(arguments[1], MOERT_CODE_INT, context),
               weights = tensor_of(arguments[2], MOERT_CODE_FLOAT, context);
  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  moert_moe_route_args args = MOERT_MOE_ROUTE_ARGS_INIT;
  params.top_k = 8;
  params.n_experts = 64;
  args.logits = &logits;
  args.ids = &ids;
  args.weights = &weights;
  return moert_moe_route(&params, &args, kernel, context);
}

static moert_status route(void *const *arguments, moert_context *context) { return call_route(arguments, context, slots[0]); }

//===--- grow: takes memory; fail: fails; launch: its kernel does; setup: is not capturable ----------------------------------===//

static const moert_argument_info grow_arguments[] = {
    {"bytes", DTYPE(MOERT_CODE_INT, 64), MOERT_ROLE_IN, MOERT_MEMORY_VALUE, 0, NULL, NULL, NULL},
};

static moert_status grow(void *const *arguments, moert_context *context) {
  void *memory;
  return moert_context_allocate(context, *(const int64_t *)arguments[0], &memory);
}

static moert_status fail(void *const *arguments, moert_context *context) {
  (void)arguments;
  return moert_moe_route(NULL, NULL, NULL, context);
}

// What a graph's own kernels do if they cannot be launched; the library exports it to their launcher.
void moert__context_fail_launch(moert_context *context, moert_status status);

static moert_status launch(void *const *arguments, moert_context *context) {
  moert__context_fail_launch(context, MOERT_ERROR_DEVICE);
  moert__context_fail_launch(context, MOERT_ERROR_CAPACITY);
  return route(arguments, context);
}

static moert_status launch_alone(void *const *arguments, moert_context *context) {
  (void)arguments;
  moert__context_fail_launch(context, MOERT_ERROR_DEVICE);
  return MOERT_OK;
}

static moert_status setup(void *const *arguments, moert_context *context) {
  (void)arguments, (void)context;
  return MOERT_OK;
}

//===--- the descriptions ---------------------------------------------------------------------------===//

static const moert_function_info functions[] = {
    {"route", route, 3, route_arguments, 1},   {"grow", grow, 1, grow_arguments, 1},      {"fail", fail, 0, NULL, 1}, {"setup", setup, 0, NULL, 0},
    {"launch", launch, 3, route_arguments, 1}, {"launch_alone", launch_alone, 0, NULL, 1}};
static const char *const kernel_keys[] = {FIXTURE_KEY};

#ifdef FIXTURE_NO_SLOTS
#define SLOTS NULL
#else
#define SLOTS slots
#endif

MOERT_API extern const moert_graph_description moert_graph_info;
const moert_graph_description moert_graph_info = {MOERT_GRAPH_MAGIC,
                                                  MOERT_ABI_VERSION,
                                                  sizeof(moert_graph_description),
                                                  "sm_90a",
                                                  "by hand",
                                                  sizeof functions / sizeof *functions,
                                                  functions,
                                                  1,
                                                  kernel_keys,
                                                  SLOTS};

#ifndef FIXTURE_NO_HOST
static moert_status route_on_host(void *const *arguments, moert_context *context) { return call_route(arguments, context, NULL); }
static const moert_function_info host_functions[] = {{"route", route_on_host, 3, route_arguments, 1}};
MOERT_API extern const moert_graph_description moert_graph_info_host;
const moert_graph_description moert_graph_info_host = {
    MOERT_GRAPH_MAGIC, MOERT_ABI_VERSION, sizeof(moert_graph_description), FIXTURE_HOST_TARGET, "by hand", 1, host_functions, 0, NULL, NULL,
};
#endif

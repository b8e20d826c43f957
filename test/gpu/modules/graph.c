//===- graph.c - a graph with a kernel of its own, by hand -------------------------------------------------===//
//
// Its functions do what compiled code does. With BROKEN_IMAGE the kernel's image is none.
//
//===----------------------------------------------------------------------------------------------===//

#include <moert/moert.h>
#include <stddef.h>

#ifdef BROKEN_IMAGE
static const unsigned char image[] = "this is no image of a kernel";
#else
#include "kernel_image.h" // made of kernel.cu
#endif

// libmoert_cuda's, as compiled code declares them.
void *moert_mgpuModuleLoad(const void *image, size_t bytes);
void moert_mgpuModuleUnload(void *module);
void *moert_mgpuModuleGetFunction(void *module, const char *name);
void moert_mgpuLaunchKernel(void *function, intptr_t grid_x, intptr_t grid_y, intptr_t grid_z, intptr_t block_x, intptr_t block_y, intptr_t block_z,
                            int32_t shared_bytes, void *stream, void **parameters, void **extra, size_t num_parameters);
void *moert_mgpuStreamCreate(void);
void moert_mgpuStreamDestroy(void *stream);
void moert_mgpuStreamSynchronize(void *stream);

static void *module;

__attribute__((constructor)) static void load(void) { module = moert_mgpuModuleLoad(image, sizeof image); }

__attribute__((destructor)) static void unload(void) { moert_mgpuModuleUnload(module); }

typedef struct memref1 {
  float *allocated, *aligned;
  int64_t offset, sizes[1], strides[1];
} memref1;

static void launch(const char *name, const memref1 *out, intptr_t grid_x, intptr_t grid_y) {
  float *data = out->aligned;
  int64_t size = out->sizes[0];
  void *parameters[] = {&data, &size};
  void *function = moert_mgpuModuleGetFunction(module, name), *stream = moert_mgpuStreamCreate();
  moert_mgpuLaunchKernel(function, grid_x, grid_y, 1, 128, 1, 1, 0, stream, parameters, NULL, 2);
  moert_mgpuStreamSynchronize(stream);
  moert_mgpuStreamDestroy(stream);
}

static moert_status count_up(void *const *arguments, moert_context *context) {
  (void)context;
  const memref1 *out = arguments[0];
  launch("countUp", out, (out->sizes[0] + 127) / 128, 1);
  return MOERT_OK;
}

// What comes after a launch that fails is not launched.
static moert_status too_large(void *const *arguments, moert_context *context) {
  launch("countUp", arguments[0], 1, 70000);
  return count_up(arguments, context);
}

static moert_status unknown(void *const *arguments, moert_context *context) {
  launch("no_such_kernel", arguments[0], 1, 1);
  return count_up(arguments, context);
}

static const int64_t shape[] = {-1};
static const moert_argument_info out_argument[] = {
    {"out", MOERT_CODE_FLOAT | 32 << 8 | 1 << 16, MOERT_ROLE_OUT, MOERT_MEMORY_DEVICE, 1, shape, NULL, NULL}};

static const moert_function_info functions[] = {
    {"count_up", count_up, 1, out_argument, 1}, {"too_large", too_large, 1, out_argument, 1}, {"unknown", unknown, 1, out_argument, 1}};

MOERT_API extern const moert_graph_description moert_graph_info;
const moert_graph_description moert_graph_info = {MOERT_GRAPH_MAGIC,
                                                  MOERT_ABI_VERSION,
                                                  sizeof(moert_graph_description),
                                                  "sm_90a",
                                                  "by hand",
                                                  sizeof functions / sizeof *functions,
                                                  functions,
                                                  0,
                                                  NULL,
                                                  NULL};

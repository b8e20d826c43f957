//===- graph.c - compiled graphs: load, describe, call ----------------------------------------------===//

#include "runtime.h"

#include "kernels/table.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A graph of a device is two: the functions for its target, and the same for the host.
struct moert_graph {
  void *library;
  const moert_graph_description *description;
  const moert__backend *backend;                   // that runs its target
  const moert_graph_description *host_description; // NULL: there is none
};

struct moert_capture {
  moert_context *context;
  void *handle;        // the backend's
  uint32_t recoveries; // of the communicator when it was made
};

//===--- load -------------------------------------------------------------------------------------===//

// dlopen searches the library path for a name without a slash; a graph is a file like any other.
static void *open_library(const char *path) {
  if (strchr(path, '/')) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  size_t length = strlen(path);
  char *here = malloc(length + 3);
  if (!here) return NULL;
  memcpy(here, "./", 2);
  memcpy(here + 2, path, length + 1);
  void *library = dlopen(here, RTLD_NOW | RTLD_LOCAL);
  free(here);
  return library;
}

// A graph for a device is linked with the CUDA backend, which lies beside this library, where the dynamic linker does not look: it finds the one that
// is loaded already.
static moert_status open_graph(const char *path, void **library) {
  if ((*library = open_library(path))) return MOERT_OK;
  const char *reason = dlerror();
  if (reason && strstr(reason, MOERT_CUDA_LIBRARY)) {
    const moert__backend *backend;
    moert_status status = moert__backend_of_device(MOERT_DEVICE_CUDA, &backend);
    if (status) return status;
    if ((*library = open_library(path))) return MOERT_OK;
    reason = dlerror();
  }
  return moert__fail(MOERT_ERROR_LOAD, "'%s' could not be loaded: %s", path, reason ? reason : "no memory");
}

static moert_status check_description(const char *path, const char *symbol, const moert_graph_description *description) {
  if (!description) return moert__fail(MOERT_ERROR_NOT_FOUND, "'%s' is not a compiled graph: it has no symbol %s", path, symbol);
  if (description->magic != MOERT_GRAPH_MAGIC)
    return moert__fail(MOERT_ERROR_NOT_FOUND, "'%s' is not a compiled graph: its %s begins with %016" PRIx64 ", must be %016" PRIx64, path, symbol,
                       description->magic, MOERT_GRAPH_MAGIC);
  if (description->abi_version != MOERT_ABI_VERSION)
    return moert__fail(MOERT_ERROR_ABI_VERSION,
                       "'%s' was compiled for version %" PRId64 " of the run side, this library is version %d; compile it again", path,
                       description->abi_version, MOERT_ABI_VERSION);
  if (description->struct_size != (int64_t)sizeof *description)
    return moert__fail(MOERT_ERROR_STRUCT_SIZE, "'%s': struct_size of %s is %" PRId64 ", must be %zu", path, symbol, description->struct_size,
                       sizeof *description);
  return MOERT_OK;
}

static bool is_for_host(const moert_graph_description *description) { return description->target && !strcmp(description->target, "host"); }

static moert_status find_backend(const char *path, moert_graph *graph) {
  const char *target = graph->description->target ? graph->description->target : "";
  if (is_for_host(graph->description)) {
    graph->backend = &moert__host_backend;
    return MOERT_OK;
  }
  if (!moeKernelTargetExists(target))
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "'%s' was compiled for target '%s', which this library does not know", path, target);
  return moert__backend_of_target(target, &graph->backend);
}

// Graphs that are loaded twice have their slots in common, so what is there already is not written again.
static void fill_slot(moert_kernel **slot, moert_kernel *kernel) {
  if (__atomic_load_n(slot, __ATOMIC_RELAXED) != kernel) __atomic_store_n(slot, kernel, __ATOMIC_RELAXED);
}

static moert_status fill_slots(const char *path, const moert_graph *graph) {
  const moert_graph_description *description = graph->description;
  if (graph->backend == &moert__host_backend || description->num_kernel_keys == 0) return MOERT_OK;
  if (!description->kernels)
    return moert__fail(MOERT_ERROR_NOT_FOUND, "'%s' is not a compiled graph: its moert_graph_info has no slots for kernels", path);
  for (int64_t i = 0; i < description->num_kernel_keys; ++i) {
    moert_kernel *kernel;
    moert_status status = moert_kernel_find(description->kernel_keys[i], &kernel);
    if (status) return moert__fail(status, "'%s': %s", path, moert_last_error());
    fill_slot(&description->kernels[i], kernel);
  }
  return MOERT_OK;
}

static moert_status check_host_description(const char *path, const moert_graph_description *description) {
  if (!description) return MOERT_OK;
  moert_status status = check_description(path, "moert_graph_info_host", description);
  if (status || is_for_host(description)) return status;
  return moert__fail(MOERT_ERROR_NOT_FOUND, "'%s' is not a compiled graph: the target of its moert_graph_info_host is '%s', must be 'host'", path,
                     description->target ? description->target : "");
}

static moert_status read_library(const char *path, moert_graph *graph) {
  graph->description = dlsym(graph->library, "moert_graph_info");
  graph->host_description = dlsym(graph->library, "moert_graph_info_host");
  moert_status status = check_description(path, "moert_graph_info", graph->description);
  if (!status) status = check_host_description(path, graph->host_description);
  if (!status) status = find_backend(path, graph);
  return status ? status : fill_slots(path, graph);
}

moert_status moert_graph_load(const char *path, moert_graph **graph) {
  if (!path) return moert__fail(MOERT_ERROR_NULL_POINTER, "path is NULL");
  if (!graph) return moert__fail(MOERT_ERROR_NULL_POINTER, "graph is NULL");
  if (access(path, F_OK)) return moert__fail(MOERT_ERROR_NOT_FOUND, "there is no file '%s'", path);
  moert_graph *made = calloc(1, sizeof *made);
  if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a graph");
  moert_status status = open_graph(path, &made->library);
  if (status) {
    free(made);
    return status;
  }
  status = read_library(path, made);
  if (status) {
    moert_graph_unload(made);
    return status;
  }
  *graph = made;
  return MOERT_OK;
}

void moert_graph_unload(moert_graph *graph) {
  if (!graph) return;
  dlclose(graph->library);
  free(graph);
}

const moert_graph_description *moert_graph_describe(const moert_graph *graph) { return graph ? graph->description : NULL; }

//===--- find -------------------------------------------------------------------------------------===//

// The half of the graph that the context's backend runs.
static moert_status find_description(const moert_graph *graph, const moert_context *context, const moert_graph_description **description) {
  const moert__backend *backend = moert__context_backend(context);
  *description = backend == graph->backend ? graph->description : backend == &moert__host_backend ? graph->host_description : NULL;
  if (*description) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "the graph was compiled for target '%s', the context's backend runs '%s': compile it for that",
                     graph->description->target, backend->target);
}

static moert_status find_function(const moert_graph_description *description, const char *name, const moert_function_info **function) {
  for (int64_t i = 0; i < description->num_functions; ++i) {
    *function = &description->functions[i];
    if (!strcmp((*function)->name, name)) return MOERT_OK;
  }
  moert__text text = {0};
  for (int64_t i = 0; i < description->num_functions; ++i) moert__append(&text, "%s'%s'", i ? ", " : "", description->functions[i].name);
  return moert__fail(MOERT_ERROR_NOT_FOUND, "there is no function '%s'; the graph has %s", name, text.length ? text.data : "none");
}

static moert_status check_count(const moert_function_info *function, const moert_tensor *arguments, int64_t count) {
  if (count == function->num_arguments && (arguments || !count)) return MOERT_OK;
  if (count == function->num_arguments) return moert__fail(MOERT_ERROR_NULL_POINTER, "arguments is NULL, must be %" PRId64 " tensors", count);
  moert__text text = {0};
  for (int64_t i = 0; i < function->num_arguments; ++i) moert__append(&text, "%s'%s'", i ? ", " : ": ", function->arguments[i].name);
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "%" PRId64 " arguments, must be %" PRId64 "%s", count, function->num_arguments, text.data);
}

//===--- check arguments --------------------------------------------------------------------------===//

static moert__subject subject_of(const moert_argument_info *info) { return (moert__subject){"argument", info->name, -1}; }

static moert_dtype unpack_dtype(int64_t dtype) { return (moert_dtype){(uint8_t)dtype, (uint8_t)(dtype >> 8), (uint16_t)(dtype >> 16)}; }

static moert_status check_static_sizes(const moert_argument_info *info, const moert_tensor *tensor) {
  moert__subject subject = subject_of(info);
  for (int64_t d = 0; d < info->ndim; ++d)
    if (info->shape[d] >= 0 && tensor->shape[d] != info->shape[d])
      return moert__fail_subject(MOERT_ERROR_INVALID_SHAPE, &subject, ": dimension %" PRId64 " is %" PRId64 ", must be %" PRId64, d, tensor->shape[d],
                                 info->shape[d]);
  return MOERT_OK;
}

// A number has no shape, but lies in memory as a tensor does; narrow integers need not fill bytes.
static moert_status check_value(const moert_argument_info *info, const moert_tensor *tensor) {
  moert__subject subject = subject_of(info);
  if (!tensor->data) return moert__fail_subject(MOERT_ERROR_NULL_POINTER, &subject, ": data is NULL, must point to the number");
  moert_tensor whole = *tensor;
  if (!moert__dtype_bytes(tensor->dtype)) whole.dtype = (moert_dtype){MOERT_CODE_UINT, 8, 1};
  return moert__check_memory(&subject, &whole, MOERT_MEMORY_HOST, 0, NULL);
}

static moert_status check_argument(const moert_argument_info *info, const moert_tensor *tensor, moert_comm *comm) {
  moert__subject subject = subject_of(info);
  moert_status status = moert__check_shape(&subject, tensor, info->ndim);
  if (!status) status = moert__check_dtype(&subject, tensor, unpack_dtype(info->dtype));
  if (!status) status = check_static_sizes(info, tensor);
  if (status) return status;
  if (info->memory == MOERT_MEMORY_VALUE) return check_value(info, tensor);
  if ((status = moert__check_dtype_set(&subject, tensor, 0))) return status;
  return moert__check_memory(&subject, tensor, (moert_memory)info->memory, 0, comm);
}

// Where a symbol stands first, its size is fixed.
static moert_status check_symbol(const moert_function_info *function, const moert_tensor *arguments, int64_t argument, int64_t dimension) {
  const moert_argument_info *info = &function->arguments[argument];
  const char *symbol = info->symbols ? info->symbols[dimension] : NULL;
  if (!symbol) return MOERT_OK;
  for (int64_t a = 0; a <= argument; ++a) {
    const moert_argument_info *earlier = &function->arguments[a];
    for (int64_t d = 0; earlier->symbols && d < (a == argument ? dimension : earlier->ndim); ++d) {
      if (!earlier->symbols[d] || strcmp(symbol, earlier->symbols[d])) continue;
      if (arguments[a].shape[d] == arguments[argument].shape[dimension]) return MOERT_OK;
      return moert__fail(MOERT_ERROR_INVALID_SHAPE,
                         "size '%s' differs: argument '%s': dimension %" PRId64 " is %" PRId64 ", argument '%s': dimension %" PRId64 " is %" PRId64,
                         symbol, earlier->name, d, arguments[a].shape[d], info->name, dimension, arguments[argument].shape[dimension]);
    }
  }
  return MOERT_OK;
}

static moert_status check_symbols(const moert_function_info *function, const moert_tensor *arguments) {
  for (int64_t a = 0; a < function->num_arguments; ++a)
    for (int64_t d = 0; d < function->arguments[a].ndim; ++d) {
      moert_status status = check_symbol(function, arguments, a, d);
      if (status) return status;
    }
  return MOERT_OK;
}

//===--- call -------------------------------------------------------------------------------------===//

// What a call needs besides its arguments, in one allocation.
typedef struct frame {
  void **pointers;        // one per argument, for the entry
  moert__extent *extents; // likewise, to find overlaps
  int64_t *words;         // the memref descriptors: allocated, aligned, offset, sizes, strides
} frame;

_Static_assert(sizeof(void *) == sizeof(int64_t), "memref descriptors are 64-bit words");

static moert_status create_frame(const moert_function_info *function, frame *made) {
  size_t count = (size_t)function->num_arguments, words = 0;
  for (size_t a = 0; a < count; ++a) words += 3 + 2 * (size_t)function->arguments[a].ndim;
  unsigned char *memory = malloc(count * (sizeof(moert__extent) + sizeof(void *)) + words * sizeof(int64_t) + 1);
  if (!memory) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for the descriptors of %zu arguments", count);
  made->extents = (moert__extent *)memory;
  made->pointers = (void **)(made->extents + count);
  made->words = (int64_t *)(made->pointers + count);
  return MOERT_OK;
}

static moert_status check_overlap(const moert_function_info *function, const moert_tensor *arguments, moert__extent *extents) {
  for (int64_t a = 0; a < function->num_arguments; ++a) {
    const moert_argument_info *info = &function->arguments[a];
    moert__subject subject = subject_of(info);
    extents[a] = moert__extent_of(&subject, &arguments[a], info->role != MOERT_ROLE_IN, (moert_memory)info->memory);
  }
  return moert__check_overlap(extents, function->num_arguments);
}

static moert_status check_arguments(const moert_function_info *function, const moert_tensor *arguments, moert_comm *comm, moert__extent *extents) {
  for (int64_t a = 0; a < function->num_arguments; ++a) {
    moert_status status = check_argument(&function->arguments[a], &arguments[a], comm);
    if (status) return status;
  }
  moert_status status = check_symbols(function, arguments);
  return status ? status : check_overlap(function, arguments, extents);
}

// Writes the descriptor and returns the word after it. Strides are those of the shape: a contiguous tensor may have others where they do not matter.
static int64_t *describe_buffer(const moert_tensor *tensor, int64_t *words) {
  void *data = moert__data(tensor);
  memcpy(&words[0], &data, sizeof data);
  memcpy(&words[1], &data, sizeof data);
  words[2] = 0;
  int64_t *sizes = words + 3, *strides = sizes + tensor->ndim, stride = 1;
  for (int32_t d = tensor->ndim - 1; d >= 0; --d) {
    sizes[d] = tensor->shape[d];
    strides[d] = stride;
    // An empty tensor may have sizes whose product has no 64-bit value; nobody steps through it.
    if (__builtin_mul_overflow(stride, sizes[d], &stride)) stride = 0;
  }
  return strides + tensor->ndim;
}

static void describe_arguments(const moert_function_info *function, const moert_tensor *arguments, const frame *made) {
  int64_t *words = made->words;
  for (int64_t a = 0; a < function->num_arguments; ++a) {
    bool by_value = function->arguments[a].memory == MOERT_MEMORY_VALUE;
    made->pointers[a] = by_value ? moert__data(&arguments[a]) : words;
    if (!by_value) words = describe_buffer(&arguments[a], words);
  }
}

static moert_status prepare_call(const moert_function_info *function, const moert_tensor *arguments, int64_t count, moert_comm *comm, frame *made) {
  moert_status status = check_count(function, arguments, count);
  if (!status) status = create_frame(function, made);
  if (!status) status = check_arguments(function, arguments, comm, made->extents);
  if (!status) describe_arguments(function, arguments, made);
  return status;
}

// The call itself, on the context's device; when it returns the arena is as it was before.
static moert_status enter_function(const moert_function_info *function, void *const *pointers, moert_context *context) {
  moert__arena_mark mark = moert__arena_mark_get(context);
  moert__visit visit = moert__enter_device(context, function->name);
  moert_context *outer = moert__enter_context(context);
  moert_status status = function->entry(pointers, context);
  moert_status launched = moert__context_take_launch_status(context);
  moert__enter_context(outer);
  moert__leave_device(visit);
  moert__arena_rewind(context, mark);
  return status ? status : launched;
}

// A call that fails ends the capture, and its error stands.
static moert_status record_function(const moert_function_info *function, void *const *pointers, moert_context *context, void **handle) {
  const moert__backend *backend = moert__context_backend(context);
  int32_t device = moert__context_device(context);
  void *stream = moert_context_stream(context);
  moert_status status = backend->begin_capture(device, stream);
  if (status) return status;
  status = enter_function(function, pointers, context);
  moert__text error = {0};
  moert__append(&error, "%s", moert_last_error());
  moert_status ended = backend->end_capture(device, stream, !status, handle);
  return status ? moert__fail(status, "%s", error.data) : ended;
}

// Checks the arguments, in texts that begin with the function's name; then makes the call, or records it if there is a place for its handle.
static moert_status call_function(const moert_function_info *function, const moert_tensor *arguments, int64_t num_arguments, moert_context *context,
                                  void **handle) {
  frame made = {0};
  const char *outer = moert__enter_op(function->name);
  moert_status status = prepare_call(function, arguments, num_arguments, moert_context_comm(context), &made);
  moert__enter_op(outer);
  if (!status && handle) status = record_function(function, made.pointers, context, handle);
  if (!status && !handle) status = enter_function(function, made.pointers, context);
  free(made.extents);
  return status;
}

static moert_status find_in_graph(const moert_graph *graph, const char *name, const moert_context *context, const moert_function_info **function) {
  if (!graph) return moert__fail(MOERT_ERROR_NULL_POINTER, "graph is NULL");
  if (!name) return moert__fail(MOERT_ERROR_NULL_POINTER, "function is NULL");
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  const moert_graph_description *description;
  moert_status status = find_description(graph, context, &description);
  return status ? status : find_function(description, name, function);
}

moert_status moert_graph_call(moert_graph *graph, const char *function, const moert_tensor *arguments, int64_t num_arguments,
                              moert_context *context) {
  const moert_function_info *found;
  moert_status status = find_in_graph(graph, function, context, &found);
  if (status) return status;
  status = moert__context_take_fault(context);
  if (!status) status = call_function(found, arguments, num_arguments, context, NULL);
  if (!status) status = moert__context_take_fault(context);
  moert__context_note(context, status);
  return status;
}

//===--- capture ----------------------------------------------------------------------------------===//

static moert_status check_capturable(const moert_function_info *function, const moert_context *context) {
  if (moert__context_backend(context)->device_type == MOERT_DEVICE_CPU)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "the host backend captures no calls: use moert_graph_call");
  if (function->capturable) return MOERT_OK;
  return moert__fail(MOERT_ERROR_NOT_CAPTURABLE,
                     "function '%s' has ops that a CUDA graph cannot record (moe.initialize, ep.init): move them to a function of their own",
                     function->name);
}

moert_status moert_graph_capture(moert_graph *graph, const char *function, const moert_tensor *arguments, int64_t num_arguments,
                                 moert_context *context, moert_capture **capture) {
  if (!capture) return moert__fail(MOERT_ERROR_NULL_POINTER, "capture is NULL");
  const moert_function_info *found;
  moert_status status = find_in_graph(graph, function, context, &found);
  if (!status) status = check_capturable(found, context);
  if (status) return status;
  moert_capture *made = calloc(1, sizeof *made);
  if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a capture");
  made->context = context;
  made->recoveries = moert__comm_recoveries(moert_context_comm(context));
  status = moert__context_take_fault(context);
  if (!status) status = call_function(found, arguments, num_arguments, context, &made->handle);
  moert__context_note(context, status);
  if (status)
    free(made);
  else
    *capture = made;
  return status;
}

// Kernels of NCCL are captured with what belongs to their link, which an error ends, and a recovery opens anew.
static moert_status check_link(const moert_capture *capture) {
  moert_comm *comm = moert_context_comm(capture->context);
  if (moert_comm_transport(comm) != MOERT_TRANSPORT_NCCL) return MOERT_OK;
  if (capture->recoveries == moert__comm_recoveries(comm)) return moert_comm_check(comm);
  return moert__fail(MOERT_ERROR_INVALID_STATE, "the call was captured before moert_comm_recover, which with the transport nccl opens new links: "
                                                "capture it again");
}

moert_status moert_capture_replay(moert_capture *capture) {
  if (!capture) return moert__fail(MOERT_ERROR_NULL_POINTER, "capture is NULL");
  moert_context *context = capture->context;
  moert_status status = moert__context_take_fault(context);
  if (!status) status = check_link(capture);
  if (!status)
    status = moert__context_backend(context)->replay_capture(moert__context_device(context), moert_context_stream(context), capture->handle);
  moert__context_note(context, status);
  return status;
}

void moert_capture_destroy(moert_capture *capture) {
  if (!capture) return;
  moert__context_backend(capture->context)->destroy_capture(moert__context_device(capture->context), capture->handle);
  free(capture);
}

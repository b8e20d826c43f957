//===- graph.c - compiled graphs: load, describe, call ----------------------------------------------===//

#include "runtime.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct moert_graph {
  void *library;
  const moert_graph_description *description;
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

static moert_status check_description(const char *path, const moert_graph_description *description) {
  if (!description) return moert__fail(MOERT_ERROR_NOT_FOUND, "'%s' is not a compiled graph: it has no symbol moert_graph_info", path);
  if (description->magic != MOERT_GRAPH_MAGIC)
    return moert__fail(MOERT_ERROR_NOT_FOUND, "'%s' is not a compiled graph: its moert_graph_info begins with %016" PRIx64 ", must be %016" PRIx64,
                       path, description->magic, MOERT_GRAPH_MAGIC);
  if (description->abi_version != MOERT_ABI_VERSION)
    return moert__fail(MOERT_ERROR_ABI_VERSION,
                       "'%s' was compiled for version %" PRId64 " of the run side, this library is version %d; compile it again", path,
                       description->abi_version, MOERT_ABI_VERSION);
  if (description->struct_size != (int64_t)sizeof *description)
    return moert__fail(MOERT_ERROR_STRUCT_SIZE, "'%s': struct_size of moert_graph_info is %" PRId64 ", must be %zu", path, description->struct_size,
                       sizeof *description);
  if (!description->target || strcmp(description->target, "host") != 0)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "'%s' was compiled for target '%s', this library runs 'host'", path,
                       description->target ? description->target : "");
  return MOERT_OK;
}

moert_status moert_graph_load(const char *path, moert_graph **graph) {
  if (!path) return moert__fail(MOERT_ERROR_NULL_POINTER, "path is NULL");
  if (!graph) return moert__fail(MOERT_ERROR_NULL_POINTER, "graph is NULL");
  if (access(path, F_OK)) return moert__fail(MOERT_ERROR_NOT_FOUND, "there is no file '%s'", path);
  moert_graph *made = calloc(1, sizeof *made);
  if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a graph");
  made->library = open_library(path);
  if (!made->library) {
    const char *reason = dlerror();
    free(made);
    return moert__fail(MOERT_ERROR_LOAD, "'%s' could not be loaded: %s", path, reason ? reason : "no memory");
  }
  made->description = dlsym(made->library, "moert_graph_info");
  moert_status status = check_description(path, made->description);
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
  return moert__check_memory(&subject, &whole, MOERT_MEMORY_HOST, NULL);
}

static moert_status check_argument(const moert_argument_info *info, const moert_tensor *tensor, moert_comm *comm) {
  moert__subject subject = subject_of(info);
  moert_status status = moert__check_shape(&subject, tensor, info->ndim);
  if (!status) status = moert__check_dtype(&subject, tensor, unpack_dtype(info->dtype));
  if (!status) status = check_static_sizes(info, tensor);
  if (status) return status;
  if (info->memory == MOERT_MEMORY_VALUE) return check_value(info, tensor);
  if ((status = moert__check_dtype_set(&subject, tensor, 0))) return status;
  return moert__check_memory(&subject, tensor, (moert_memory)info->memory, comm);
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

static moert_status call_function(const moert_function_info *function, void *const *pointers, moert_context *context) {
  moert__arena_mark mark = moert__arena_mark_get(context);
  moert_status status = function->entry(pointers, context);
  moert__arena_rewind(context, mark);
  return status;
}

moert_status moert_graph_call(moert_graph *graph, const char *function, const moert_tensor *arguments, int64_t num_arguments,
                              moert_context *context) {
  if (!graph) return moert__fail(MOERT_ERROR_NULL_POINTER, "graph is NULL");
  if (!function) return moert__fail(MOERT_ERROR_NULL_POINTER, "function is NULL");
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  const moert_function_info *found;
  moert_status status = find_function(graph->description, function, &found);
  if (status) return status;
  frame made = {0};
  const char *outer = moert__enter_op(found->name); // texts of the checks begin with the function's name
  status = prepare_call(found, arguments, num_arguments, moert_context_comm(context), &made);
  moert__enter_op(outer);
  if (!status) status = call_function(found, made.pointers, context);
  free(made.extents);
  moert__context_note(context, status);
  return status;
}

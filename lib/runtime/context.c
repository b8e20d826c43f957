//===- context.c - contexts and their arena ---------------------------------------------------------===//
//
// On a device a context has a stream, and a record for the faults of its kernels in host memory.
//
// The arena is a list of chunks that only grows: a graph call takes from the current chunk and moves on to the next when it does not suffice. After
// the call the chunks are empty and stay, so that calls after the first allocate nothing.
//
//===----------------------------------------------------------------------------------------------===//

#include "runtime.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, SMALLEST_CHUNK = 64 << 10 };

// The header is host memory, what it describes the device's.
typedef struct chunk {
  struct chunk *next;
  unsigned char *memory;
  size_t capacity, used;
} chunk;

struct moert_context {
  moert_comm *comm;
  const moert__backend *backend;
  int32_t device;
  moert_context_options options;
  void *stream;
  bool owns_stream;
  moert_status launch_status; // of the kernels of the graph function that is being called; MOERT_OK outside
  moert__fault *fault;        // the communicator's; NULL on the host backend
  char *stop_op, *stop_phase; // owned copies of the options' strings
  moert_status status;        // the first error, met when the communicator had recovered `recoveries` times
  uint32_t recoveries;
  moert__text error;      // its text
  chunk *first, *current; // `current` is NULL as long as nothing was taken
  size_t live, peak;
};

static _Thread_local moert_context *current_context;

//===--- options ----------------------------------------------------------------------------------===//

// The sizes that earlier versions of the struct can have had end where a field begins.
static bool is_known_size(size_t size) {
  static const size_t sizes[] = {offsetof(moert_context_options, stream),
                                 offsetof(moert_context_options, timeout_ms),
                                 offsetof(moert_context_options, arena_limit),
                                 offsetof(moert_context_options, allocate),
                                 offsetof(moert_context_options, deallocate),
                                 offsetof(moert_context_options, allocator_user),
                                 offsetof(moert_context_options, log),
                                 offsetof(moert_context_options, log_user),
                                 offsetof(moert_context_options, stop_op),
                                 offsetof(moert_context_options, stop_phase),
                                 sizeof(moert_context_options)};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
    if (size == sizes[i]) return true;
  return false;
}

static bool is_host(const moert__backend *backend) { return backend->device_type == MOERT_DEVICE_CPU; }

static moert_status check_options(const moert_context_options *options, const moert__backend *backend) {
  if (options->stream && is_host(backend))
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "options: stream is set, must be NULL: the host backend has no streams");
  if (options->timeout_ms < 0 || options->timeout_ms > MOERT__MAX_TIMEOUT_MS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "options: timeout_ms is %" PRId64 ", must be in [0, %" PRId64 "]", options->timeout_ms,
                       MOERT__MAX_TIMEOUT_MS);
  if (!options->allocate != !options->deallocate)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "options: %s is set without %s; set both or neither",
                       options->allocate ? "allocate" : "deallocate", options->allocate ? "deallocate" : "allocate");
  if (!options->stop_op != !options->stop_phase)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "options: %s is set without %s; set both or neither",
                       options->stop_op ? "stop_op" : "stop_phase", options->stop_op ? "stop_phase" : "stop_op");
  return MOERT_OK;
}

static moert_status read_options(const moert_context_options *given, const moert__backend *backend, moert_context_options *options) {
  *options = (moert_context_options)MOERT_CONTEXT_OPTIONS_INIT;
  if (given) {
    if (!is_known_size(given->struct_size))
      return moert__fail(MOERT_ERROR_STRUCT_SIZE, "options: struct_size is %zu, this library's is %zu; begin with MOERT_CONTEXT_OPTIONS_INIT",
                         given->struct_size, sizeof *options);
    memcpy(options, given, given->struct_size);
  }
  moert_status status = check_options(options, backend);
  return status || options->timeout_ms ? status : moert__default_timeout_ms(&options->timeout_ms);
}

//===--- create and destroy -----------------------------------------------------------------------===//

static moert_status copy_string(const char *text, char **copy) {
  *copy = text ? strdup(text) : NULL;
  return !text || *copy ? MOERT_OK : moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a context");
}

static moert_status create_stream(moert_context *context) {
  context->stream = context->options.stream;
  if (context->stream) return MOERT_OK;
  moert_status status = context->backend->create_stream(context->device, &context->stream);
  context->owns_stream = !status;
  return status;
}

static moert_status fill_context(moert_context *context) {
  moert_status status = copy_string(context->options.stop_op, &context->stop_op);
  if (!status) status = copy_string(context->options.stop_phase, &context->stop_phase);
  if (status || is_host(context->backend)) return status;
  status = moert__comm_create_fault(context->comm, &context->fault);
  return status ? status : create_stream(context);
}

moert_status moert_context_create(moert_comm *comm, const moert_context_options *options, moert_context **context) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  const moert__backend *backend = moert__comm_backend(comm);
  moert_context_options read;
  moert_status status = read_options(options, backend, &read);
  if (status) return status;
  moert_context *made = calloc(1, sizeof *made);
  if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a context");
  made->comm = comm;
  made->backend = backend;
  made->device = moert_comm_device(comm).id;
  made->options = read;
  if ((status = fill_context(made))) {
    moert_context_destroy(made);
    return status;
  }
  *context = made;
  return MOERT_OK;
}

static void destroy_chunk(moert_context *context, chunk *at) {
  if (context->options.deallocate)
    context->options.deallocate(context->options.allocator_user, at->memory, at->capacity);
  else
    context->backend->release(context->device, at->memory, at->capacity);
  free(at);
}

// What was called may still run, with the arena and the record.
void moert_context_destroy(moert_context *context) {
  if (!context) return;
  if (context->stream) context->backend->synchronize(context->device, context->stream); // NULL: it was not made
  for (chunk *at = context->first, *next; at; at = next) {
    next = at->next;
    destroy_chunk(context, at);
  }
  if (context->owns_stream) context->backend->destroy_stream(context->device, context->stream);
  moert__comm_destroy_fault(context->comm, context->fault);
  free(context->stop_op);
  free(context->stop_phase);
  free(context);
}

moert_comm *moert_context_comm(const moert_context *context) { return context ? context->comm : NULL; }

void *moert_context_stream(const moert_context *context) { return context ? context->stream : NULL; }

int64_t moert__context_timeout_ms(const moert_context *context) { return context->options.timeout_ms; }

const moert__backend *moert__context_backend(const moert_context *context) { return context->backend; }

int32_t moert__context_device(const moert_context *context) { return context->device; }

moert__fault *moert__context_fault(const moert_context *context) { return context->fault; }

moert__watch moert__context_watch(moert_context *context, int op) {
  moert__watch watch = moert__comm_watch(context->comm);
  watch.timeout_ns = context->options.timeout_ms * 1000000;
  watch.fault = context->fault;
  watch.op = op;
  return watch;
}

//===--- current ----------------------------------------------------------------------------------===//

moert_context *moert__current_context(void) { return current_context; }

moert_context *moert__enter_context(moert_context *context) {
  moert_context *previous = current_context;
  current_context = context;
  return previous;
}

void moert__context_fail_launch(moert_context *context, moert_status status) {
  if (!context->launch_status) context->launch_status = status;
}

moert_status moert__context_launch_status(const moert_context *context) { return context->launch_status; }

moert_status moert__context_take_launch_status(moert_context *context) {
  moert_status status = context->launch_status;
  context->launch_status = MOERT_OK;
  return status;
}

moert__visit moert__enter_device(const moert_context *context, const char *range) {
  const moert__backend *backend = context->backend;
  moert__visit visit = {backend, backend->enter(context->device)};
  backend->push_range(range);
  return visit;
}

void moert__leave_device(moert__visit visit) {
  visit.backend->pop_range();
  visit.backend->leave(visit.previous);
}

//===--- errors -----------------------------------------------------------------------------------===//

// After a recovery what was before is history.
static moert_status own_status(const moert_context *context) {
  return context->recoveries == moert__comm_recoveries(context->comm) ? context->status : MOERT_OK;
}

moert_status moert_context_status(const moert_context *context) {
  if (!context) return MOERT_ERROR_NULL_POINTER;
  moert_status status = own_status(context);
  if (!status) status = moert__fault_status(context->fault);
  return status ? status : moert_comm_status(context->comm);
}

void moert__context_note(moert_context *context, moert_status status) {
  if (status == MOERT_ERROR_DEVICE) moert__comm_note(context->comm, status);      // it may have stopped for good: peers would wait in vain
  bool misused = (int)status / 1000 <= 1 || status == MOERT_ERROR_NOT_CAPTURABLE; // the caller's, who can do without
  if (misused || own_status(context)) return;
  context->status = status;
  context->recoveries = moert__comm_recoveries(context->comm);
  context->error = (moert__text){0};
  moert__append(&context->error, "%s", moert_last_error());
  if (!context->options.log) return;
  moert__text text = {0};
  moert__append(&text, "%s: %s", moert_status_name(status), context->error.data);
  context->options.log(context->options.log_user, text.data);
}

moert_status moert__context_take_fault(moert_context *context) {
  if (!moert__fault_status(context->fault)) return MOERT_OK; // one that stands stays as it is
  bool shared = moert__fault_is_shared(context->fault);
  moert_status status = moert__fault_take(context->fault);
  moert__context_note(context, status);
  if (shared) moert__comm_note(context->comm, status);
  return status;
}

moert_status moert__stop_point(moert_context *context, const char *phase) {
  const char *op = moert__current_op();
  if (!context->stop_op || !op || strcmp(op, context->stop_op) || strcmp(phase, context->stop_phase)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_STOPPED, "rank %" PRId32 " was stopped at phase '%s'", context->comm ? moert_comm_rank(context->comm) : -1, phase);
}

//===--- the stream -------------------------------------------------------------------------------===//

static bool is_capturing(const moert_context *context) { return context->backend->is_capturing(context->device, context->stream); }

moert_status moert__context_check_not_capturing(const moert_context *context) {
  if (!is_capturing(context)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_NOT_CAPTURABLE, "the call waits for the device or for the hosts of other ranks, which a CUDA graph cannot record; "
                                                 "make it outside of the capture");
}

// The context's status, with its text.
static moert_status tell_status(const moert_context *context) {
  moert_status status = own_status(context);
  if (status) return moert__fail(status, "%s", context->error.data);
  return moert_comm_check(context->comm);
}

moert_status moert_context_synchronize(moert_context *context) {
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  moert_status status = moert__context_check_not_capturing(context);
  if (status) return status;
  status = context->backend->synchronize(context->device, context->stream);
  moert__context_note(context, status);
  moert_status fault = moert__context_take_fault(context);
  moert_status first = tell_status(context);
  return first ? first : fault; // a bad argument that a kernel found is no status of the context
}

moert_status moert__context_fill(moert_context *context, void *memory, unsigned char value, size_t bytes) {
  return bytes ? context->backend->fill(context->device, context->stream, memory, value, bytes) : MOERT_OK;
}

moert_status moert__context_copy(moert_context *context, void *to, const void *from, size_t bytes) {
  return bytes ? context->backend->copy(context->device, context->stream, to, from, bytes) : MOERT_OK;
}

moert_status moert_copy(moert_context *context, void *to, const void *from, size_t bytes) {
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  if (bytes && !to) return moert__fail(MOERT_ERROR_NULL_POINTER, "to is NULL");
  if (bytes && !from) return moert__fail(MOERT_ERROR_NULL_POINTER, "from is NULL");
  moert_status status = moert__context_copy(context, to, from, bytes);
  moert__context_note(context, status);
  return status;
}

//===--- arena ------------------------------------------------------------------------------------===//

static size_t room_of(const chunk *at) { return at->capacity - at->used; }

static moert_status fail_memory(const moert_context *context, size_t bytes) {
  return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes on top of %zu in the arena", bytes, context->live);
}

static moert_status request_memory(moert_context *context, size_t bytes, void **memory) {
  if (!context->options.allocate) return context->backend->allocate(context->device, bytes, memory);
  *memory = context->options.allocate(context->options.allocator_user, bytes, ALIGNMENT);
  return *memory ? MOERT_OK : MOERT_ERROR_OUT_OF_MEMORY;
}

// A status without a text of its own is OUT_OF_MEMORY.
static moert_status request_chunk(moert_context *context, size_t capacity, chunk **made) {
  *made = malloc(sizeof **made);
  if (!*made) return MOERT_ERROR_OUT_OF_MEMORY;
  void *memory;
  moert_status status = request_memory(context, capacity, &memory);
  if (status)
    free(*made);
  else
    **made = (chunk){NULL, memory, capacity, 0};
  return status;
}

// Chunks double, so that their number stays small; when there is no memory for that, what is needed now must do.
static moert_status grow(moert_context *context, size_t bytes, chunk **made) {
  if (is_capturing(context))
    return moert__fail(MOERT_ERROR_NOT_CAPTURABLE,
                       "the arena has to grow for %zu bytes on top of %zu, which a CUDA graph cannot record; call the function once before", bytes,
                       context->live);
  size_t capacity = context->current && context->current->capacity <= SIZE_MAX / 4 ? context->current->capacity * 2 : SMALLEST_CHUNK;
  if (context->options.arena_limit && capacity > context->options.arena_limit) capacity = context->options.arena_limit / ALIGNMENT * ALIGNMENT;
  if (capacity < bytes) capacity = bytes;
  moert_status status = request_chunk(context, capacity, made);
  if (status == MOERT_ERROR_OUT_OF_MEMORY && capacity > bytes) status = request_chunk(context, bytes, made);
  if (status == MOERT_ERROR_OUT_OF_MEMORY) return fail_memory(context, bytes);
  if (status) return status;
  chunk **link = context->current ? &context->current->next : &context->first;
  (*made)->next = *link;
  *link = *made;
  return MOERT_OK;
}

// The chunk to take `bytes` from: the current one, the first later one (which are all empty) that is large enough, or a new one.
static moert_status find_chunk(moert_context *context, size_t bytes, chunk **found) {
  *found = context->current ? context->current : context->first;
  while (*found && room_of(*found) < bytes) *found = (*found)->next;
  return *found ? MOERT_OK : grow(context, bytes, found);
}

moert_status moert_context_allocate(moert_context *context, int64_t bytes, void **memory) {
  static _Alignas(ALIGNMENT) unsigned char nothing[ALIGNMENT];
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  if (!memory) return moert__fail(MOERT_ERROR_NULL_POINTER, "memory is NULL");
  if (bytes < 0) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "bytes is %" PRId64 ", must be at least 0", bytes);
  if (bytes == 0) {
    *memory = nothing;
    return MOERT_OK;
  }
  if (bytes > INT64_MAX / 2) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "%" PRId64 " bytes are more than any memory has", bytes);
  size_t rounded = ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size_t limit = context->options.arena_limit;
  if (limit && (rounded > limit || context->live > limit - rounded))
    return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "%zu bytes on top of %zu exceed the arena_limit of %zu; raise it in the context's options", rounded,
                       context->live, limit);
  chunk *from;
  moert_status status = find_chunk(context, rounded, &from);
  if (status) return status;
  context->current = from;
  *memory = from->memory + from->used;
  from->used += rounded;
  context->live += rounded;
  if (context->live > context->peak) context->peak = context->live;
  return MOERT_OK;
}

size_t moert_context_peak(const moert_context *context) { return context ? context->peak : 0; }

moert__arena_mark moert__arena_mark_get(const moert_context *context) {
  return (moert__arena_mark){context->current, context->current ? context->current->used : 0, context->live};
}

void moert__arena_rewind(moert_context *context, moert__arena_mark mark) {
  chunk *at = mark.chunk;
  for (chunk *later = at ? at->next : context->first; later; later = later->next) later->used = 0;
  if (at) at->used = mark.used;
  context->current = at;
  context->live = mark.live;
}

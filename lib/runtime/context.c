//===- context.c - contexts and their arena ---------------------------------------------------------===//
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

typedef struct chunk {
  _Alignas(ALIGNMENT) struct chunk *next;
  size_t capacity; // bytes after this header
  size_t used;
} chunk;

struct moert_context {
  moert_comm *comm;
  moert_context_options options;
  char *stop_op, *stop_phase; // owned copies of the options' strings
  moert_status status;
  chunk *first, *current; // `current` is NULL as long as nothing was taken
  size_t live, peak;
};

//===--- options ----------------------------------------------------------------------------------===//

// The sizes that earlier versions of the struct can have had end where a field begins.
static bool is_known_size(size_t size) {
  static const size_t sizes[] = {
      offsetof(moert_context_options, device),         offsetof(moert_context_options, stream),     offsetof(moert_context_options, timeout_ms),
      offsetof(moert_context_options, arena_limit),    offsetof(moert_context_options, allocate),   offsetof(moert_context_options, deallocate),
      offsetof(moert_context_options, allocator_user), offsetof(moert_context_options, log),        offsetof(moert_context_options, log_user),
      offsetof(moert_context_options, stop_op),        offsetof(moert_context_options, stop_phase), sizeof(moert_context_options)};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
    if (size == sizes[i]) return true;
  return false;
}

static moert_status check_options(const moert_context_options *options) {
  if (options->device != 0)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "options: device is %" PRId32 ", must be 0: the host backend has one device", options->device);
  if (options->stream) return moert__fail(MOERT_ERROR_UNSUPPORTED, "options: stream is set, must be NULL: the host backend has no streams");
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

static moert_status read_options(const moert_context_options *given, moert_context_options *options) {
  *options = (moert_context_options)MOERT_CONTEXT_OPTIONS_INIT;
  if (given) {
    if (!is_known_size(given->struct_size))
      return moert__fail(MOERT_ERROR_STRUCT_SIZE, "options: struct_size is %zu, this library's is %zu; begin with MOERT_CONTEXT_OPTIONS_INIT",
                         given->struct_size, sizeof *options);
    memcpy(options, given, given->struct_size);
  }
  moert_status status = check_options(options);
  return status || options->timeout_ms ? status : moert__default_timeout_ms(&options->timeout_ms);
}

static void *allocate_from_library(void *user, size_t bytes, size_t alignment) {
  (void)user;
  return aligned_alloc(alignment, bytes);
}

static void free_to_library(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

//===--- create and destroy -----------------------------------------------------------------------===//

// false if there is no memory.
static bool copy_string(const char *text, char **copy) {
  *copy = text ? strdup(text) : NULL;
  return !text || *copy;
}

moert_status moert_context_create(moert_comm *comm, const moert_context_options *options, moert_context **context) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!context) return moert__fail(MOERT_ERROR_NULL_POINTER, "context is NULL");
  moert_context_options read;
  moert_status status = read_options(options, &read);
  if (status) return status;
  if (!read.allocate) {
    read.allocate = allocate_from_library;
    read.deallocate = free_to_library;
  }
  moert_context *made = calloc(1, sizeof *made);
  if (!made || !copy_string(read.stop_op, &made->stop_op) || !copy_string(read.stop_phase, &made->stop_phase)) {
    moert_context_destroy(made);
    return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a context");
  }
  made->comm = comm;
  made->options = read;
  *context = made;
  return MOERT_OK;
}

void moert_context_destroy(moert_context *context) {
  if (!context) return;
  for (chunk *at = context->first, *next; at; at = next) {
    next = at->next;
    context->options.deallocate(context->options.allocator_user, at, sizeof *at + at->capacity);
  }
  free(context->stop_op);
  free(context->stop_phase);
  free(context);
}

moert_comm *moert_context_comm(const moert_context *context) { return context ? context->comm : NULL; }

int64_t moert__context_timeout_ms(const moert_context *context) { return context->options.timeout_ms; }

//===--- errors -----------------------------------------------------------------------------------===//

moert_status moert_context_status(const moert_context *context) {
  if (!context) return MOERT_ERROR_NULL_POINTER;
  return context->status ? context->status : moert_comm_status(context->comm);
}

void moert__context_note(moert_context *context, moert_status status) {
  if (context->status || (int)status / 1000 <= 1) return;
  context->status = status;
  if (!context->options.log) return;
  moert__text text = {0};
  moert__append(&text, "%s: %s", moert_status_name(status), moert_last_error());
  context->options.log(context->options.log_user, text.data);
}

moert_status moert__stop_point(moert_context *context, const char *phase) {
  const char *op = moert__current_op();
  if (!context->stop_op || !op || strcmp(op, context->stop_op) || strcmp(phase, context->stop_phase)) return MOERT_OK;
  return moert__fail(MOERT_ERROR_STOPPED, "rank %" PRId32 " was stopped at phase '%s'", context->comm ? moert_comm_rank(context->comm) : -1, phase);
}

//===--- arena ------------------------------------------------------------------------------------===//

static size_t room_of(const chunk *at) { return at->capacity - at->used; }

static chunk *request_chunk(moert_context *context, size_t capacity) {
  chunk *made = context->options.allocate(context->options.allocator_user, sizeof *made + capacity, ALIGNMENT);
  if (made) *made = (chunk){NULL, capacity, 0};
  return made;
}

// Chunks double, so that their number stays small; when there is no memory for that, what is needed now must do.
static chunk *grow(moert_context *context, size_t bytes) {
  size_t capacity = context->current && context->current->capacity <= SIZE_MAX / 4 ? context->current->capacity * 2 : SMALLEST_CHUNK;
  if (context->options.arena_limit && capacity > context->options.arena_limit) capacity = context->options.arena_limit / ALIGNMENT * ALIGNMENT;
  if (capacity < bytes) capacity = bytes;
  chunk *made = request_chunk(context, capacity);
  if (!made && capacity > bytes) made = request_chunk(context, bytes);
  if (!made) return NULL;
  chunk **link = context->current ? &context->current->next : &context->first;
  made->next = *link;
  return *link = made;
}

// The chunk to take `bytes` from: the current one, the first later one (which are all empty) that is large enough, or a new one.
static chunk *find_chunk(moert_context *context, size_t bytes) {
  chunk *at = context->current ? context->current : context->first;
  while (at && room_of(at) < bytes) at = at->next;
  return at ? at : grow(context, bytes);
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
  chunk *from = find_chunk(context, rounded);
  if (!from) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes on top of %zu in the arena", rounded, context->live);
  context->current = from;
  *memory = (unsigned char *)(from + 1) + from->used;
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

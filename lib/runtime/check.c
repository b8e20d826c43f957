//===- check.c - checks of one tensor, whoever was given it -----------------------------------------===//

#include "runtime.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

moert_status moert__fail_subject(moert_status status, const moert__subject *subject, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (subject->index < 0) return moert__fail(status, "%s '%s'%s", subject->kind, subject->name, text);
  return moert__fail(status, "%s '%s[%" PRId64 "]'%s", subject->kind, subject->name, subject->index, text);
}

//===--- shape and element type -------------------------------------------------------------------===//

moert_status moert__check_shape(const moert__subject *subject, const moert_tensor *tensor, int64_t rank) {
  if (rank < 0 && tensor->ndim < 1)
    return moert__fail_subject(MOERT_ERROR_INVALID_SHAPE, subject, ": rank %" PRId32 ", must be at least 1", tensor->ndim);
  if (rank >= 0 && tensor->ndim != rank)
    return moert__fail_subject(MOERT_ERROR_INVALID_SHAPE, subject, ": rank %" PRId32 ", must be %" PRId64, tensor->ndim, rank);
  if (tensor->ndim > 0 && !tensor->shape) return moert__fail_subject(MOERT_ERROR_NULL_POINTER, subject, ": shape is NULL");
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] < 0)
      return moert__fail_subject(MOERT_ERROR_INVALID_SHAPE, subject, ": dimension %" PRId32 " is %" PRId64 ", must be at least 0", d,
                                 tensor->shape[d]);
  return MOERT_OK;
}

// A type without a name is told by its numbers.
static void append_dtype(moert__text *text, moert_dtype dtype) {
  const char *name = moert__dtype_name(dtype);
  if (name[0] != '?') {
    moert__append(text, "%s", name);
    return;
  }
  moert__append(text, "(code %d, %d bits, %d lanes)", dtype.code, dtype.bits, dtype.lanes);
}

static void append_dtype_set(moert__text *text, int dtypes) {
  static const struct {
    int bit;
    const char *name;
  } names[] = {{MOERT__DTYPE_BF16, "bf16"},
               {MOERT__DTYPE_F16, "f16"},
               {MOERT__DTYPE_F32, "f32"},
               {MOERT__DTYPE_F64, "f64"},
               {MOERT__DTYPE_I8, "i8"},
               {MOERT__DTYPE_I16, "i16"},
               {MOERT__DTYPE_I32, "i32"},
               {MOERT__DTYPE_I64, "i64"},
               {MOERT__DTYPE_UI32, "ui32"},
               {MOERT__DTYPE_UI64, "ui64"},
               {MOERT__DTYPE_UI8, "ui8"},
               {MOERT__DTYPE_F8E4M3FN, "f8E4M3FN"},
               {MOERT__DTYPE_F8E8M0FNU, "f8E8M0FNU"}};
  const char *separator = "";
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (!(dtypes & names[i].bit)) continue;
    dtypes &= ~names[i].bit;
    moert__append(text, "%s%s", separator, names[i].name);
    separator = (dtypes & (dtypes - 1)) ? ", " : " or ";
  }
}

moert_status moert__check_dtype_set(const moert__subject *subject, const moert_tensor *tensor, int dtypes) {
  if (dtypes ? (moert__dtype_bit(tensor->dtype) & dtypes) != 0 : moert__dtype_bytes(tensor->dtype) > 0) return MOERT_OK;
  moert__text text = {0};
  append_dtype(&text, tensor->dtype);
  moert__append(&text, ", must be ");
  if (dtypes)
    append_dtype_set(&text, dtypes);
  else
    moert__append(&text, "of whole bytes");
  return moert__fail_subject(MOERT_ERROR_INVALID_DTYPE, subject, ": element type %s", text.data);
}

moert_status moert__check_dtype(const moert__subject *subject, const moert_tensor *tensor, moert_dtype dtype) {
  if (moert__dtype_equal(tensor->dtype, dtype)) return MOERT_OK;
  moert__text text = {0};
  append_dtype(&text, tensor->dtype);
  moert__append(&text, ", must be ");
  append_dtype(&text, dtype);
  return moert__fail_subject(MOERT_ERROR_INVALID_DTYPE, subject, ": element type %s", text.data);
}

//===--- memory -----------------------------------------------------------------------------------===//

static void append_sizes(moert__text *text, const int64_t *sizes, int32_t count) {
  moert__append(text, "[");
  for (int32_t i = 0; i < count; ++i) moert__append(text, "%s%" PRId64, i ? ", " : "", sizes[i]);
  moert__append(text, "]");
}

static void append_layout(moert__text *text, const moert_tensor *tensor) {
  moert__append(text, "shape ");
  append_sizes(text, tensor->shape, tensor->ndim);
  moert__append(text, ", strides ");
  append_sizes(text, tensor->strides, tensor->ndim);
}

static moert_status check_contiguous(const moert__subject *subject, const moert_tensor *tensor) {
  if (moert__is_contiguous(tensor)) return MOERT_OK;
  moert__text text = {0};
  append_layout(&text, tensor);
  return moert__fail_subject(MOERT_ERROR_NOT_CONTIGUOUS, subject, " is not contiguous (%s)", text.data);
}

// Of a matrix whose rows may lie apart.
static moert_status check_rows(const moert__subject *subject, const moert_tensor *tensor) {
  if (moert__has_contiguous_rows(tensor)) return MOERT_OK;
  moert__text text = {0};
  append_layout(&text, tensor);
  return moert__fail_subject(MOERT_ERROR_NOT_CONTIGUOUS, subject,
                             " does not consist of contiguous rows (%s): strides must be [%" PRId64 " or more, 1]", text.data, tensor->shape[1]);
}

static moert_status check_bytes(const moert__subject *subject, const moert_tensor *tensor, int64_t elements) {
  int64_t bytes;
  if (elements >= 0 && !__builtin_mul_overflow(elements, moert__dtype_bytes(tensor->dtype), &bytes)) return MOERT_OK;
  moert__text text = {0};
  append_sizes(&text, tensor->shape, tensor->ndim);
  return moert__fail_subject(MOERT_ERROR_INVALID_SHAPE, subject, ": shape %s has more bytes than 64 bits can count", text.data);
}

// From the first byte of a tensor with elements, whose layout is checked, to the end of its last; -1: that has no 64-bit value.
static int64_t span_bytes(const moert_tensor *tensor) {
  if (moert__is_contiguous(tensor)) return moert__row_bytes(tensor, 0);
  int64_t to_last_row, elements, bytes;
  if (__builtin_mul_overflow(tensor->shape[0] - 1, tensor->strides[0], &to_last_row) ||
      __builtin_add_overflow(to_last_row, tensor->shape[1], &elements) || __builtin_mul_overflow(elements, moert__dtype_bytes(tensor->dtype), &bytes))
    return -1;
  return bytes;
}

static moert_status check_end(const moert__subject *subject, const moert_tensor *tensor) {
  uintptr_t begin, end;
  int64_t bytes = span_bytes(tensor);
  if (bytes >= 0 && !__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &begin) &&
      !__builtin_add_overflow(begin, (uintptr_t)bytes, &end))
    return MOERT_OK;
  if (!moert__is_contiguous(tensor)) {
    moert__text text = {0};
    append_layout(&text, tensor);
    return moert__fail_subject(MOERT_ERROR_INVALID_MEMORY, subject,
                               ": its rows lead beyond the end of the address space (%s, byte_offset %" PRIu64 ")", text.data, tensor->byte_offset);
  }
  return moert__fail_subject(MOERT_ERROR_INVALID_MEMORY, subject, ": byte_offset %" PRIu64 " leads beyond the end of the address space",
                             tensor->byte_offset);
}

static moert_status check_alignment(const moert__subject *subject, const moert_tensor *tensor) {
  uintptr_t alignment = tensor->dtype.bits / 8u;
  uintptr_t excess = (uintptr_t)moert__data(tensor) % alignment;
  if (!excess) return MOERT_OK;
  return moert__fail_subject(MOERT_ERROR_MISALIGNED, subject, ": data lies %d bytes past a multiple of %d, the size of its element type %s",
                             (int)excess, (int)alignment, moert__dtype_name(tensor->dtype));
}

static bool is_host_memory(moert_memory memory) { return memory == MOERT_MEMORY_HOST || memory == MOERT_MEMORY_VALUE; }

// The host has one device, whatever its id.
static moert_status check_device(const moert__subject *subject, moert_device given, moert_memory memory, const moert_comm *comm) {
  static const moert_device cpu = {MOERT_DEVICE_CPU, 0};
  moert_device own = comm ? moert_comm_device(comm) : cpu, expected = is_host_memory(memory) ? cpu : own;
  if (given.type != expected.type)
    return moert__fail_subject(MOERT_ERROR_INVALID_MEMORY, subject, ": device type %" PRId32 ", must be %" PRId32 " (%s): %s", given.type,
                               expected.type, expected.type == MOERT_DEVICE_CPU ? "CPU" : "CUDA",
                               own.type == MOERT_DEVICE_CPU        ? "the host backend reads host memory"
                               : expected.type == MOERT_DEVICE_CPU ? "it is read by the host"
                                                                   : "the communicator's ranks run on devices");
  if (expected.type == MOERT_DEVICE_CPU || given.id == expected.id) return MOERT_OK;
  return moert__fail_subject(MOERT_ERROR_INVALID_MEMORY, subject, ": device %" PRId32 ", must be %" PRId32 ", which rank %" PRId32 " runs on",
                             given.id, expected.id, moert_comm_rank(comm));
}

moert_status moert__check_memory(const moert__subject *subject, const moert_tensor *tensor, moert_memory memory, int flags, moert_comm *comm) {
  bool strided = flags & MOERT__STRIDED && memory != MOERT_MEMORY_SYMMETRIC;
  int64_t elements = moert__elements(tensor);
  moert_status status = check_device(subject, tensor->device, memory, comm);
  if (!status) status = check_bytes(subject, tensor, elements);
  if (status || elements == 0) return status;
  if (!tensor->data)
    return moert__fail_subject(MOERT_ERROR_NULL_POINTER, subject, ": data is NULL, but the tensor has %" PRId64 " elements", elements);
  if ((status = strided ? check_rows(subject, tensor) : check_contiguous(subject, tensor))) return status;
  if ((status = check_end(subject, tensor))) return status;
  if ((status = check_alignment(subject, tensor))) return status;
  if (memory != MOERT_MEMORY_SYMMETRIC) return MOERT_OK;
  void *peers[MOERT_MAX_RANKS];
  if (moert__symmetric_peers(comm, moert__data(tensor), (size_t)moert__row_bytes(tensor, 0), peers))
    return moert__fail_subject(MOERT_ERROR_INVALID_MEMORY, subject,
                               ": its %" PRId64 " bytes do not lie in one block of this communicator's symmetric memory (moert_symmetric_alloc)",
                               moert__row_bytes(tensor, 0));
  return MOERT_OK;
}

//===--- overlap ----------------------------------------------------------------------------------===//

moert__extent moert__extent_of(const moert__subject *subject, const moert_tensor *tensor, bool written, moert_memory memory) {
  uintptr_t begin = (uintptr_t)moert__data(tensor);
  uintptr_t bytes = moert__elements(tensor) ? (uintptr_t)span_bytes(tensor) : 0;
  return (moert__extent){*subject, begin, begin + bytes, written, memory == MOERT_MEMORY_SYMMETRIC, NULL};
}

static bool overlap(const moert__extent *a, const moert__extent *b) {
  bool apart = a->end <= b->begin || b->end <= a->begin || a->begin == a->end || b->begin == b->end;
  return !apart && !a->shared && !b->shared;
}

static bool replaces(const moert__extent *written, const moert__extent *other) {
  return written->in_place && !strcmp(written->in_place, other->subject.name) && written->begin == other->begin && written->end == other->end;
}

static moert_status fail_overlap(const moert__extent *written, const moert__extent *other) {
  const moert__subject *subject = &other->subject;
  if (subject->index < 0)
    return moert__fail_subject(MOERT_ERROR_OVERLAP, &written->subject, " overlaps %s '%s'; give it memory of its own", subject->kind, subject->name);
  return moert__fail_subject(MOERT_ERROR_OVERLAP, &written->subject, " overlaps %s '%s[%" PRId64 "]'; give it memory of its own", subject->kind,
                             subject->name, subject->index);
}

moert_status moert__check_overlap(const moert__extent *extents, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!extents[i].written) continue;
    for (int64_t j = 0; j < count; ++j)
      if (j != i && overlap(&extents[i], &extents[j]) && !replaces(&extents[i], &extents[j])) return fail_overlap(&extents[i], &extents[j]);
  }
  return MOERT_OK;
}

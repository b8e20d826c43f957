//===- fault.c - what kernels reported ------------------------------------------------------------===//
//
// A kernel writes the values of a record before its kind, so that who sees the kind sees them. The host clears the kind alone.
//
//===----------------------------------------------------------------------------------------------===//

#include "runtime.h"

#include <inttypes.h>
#include <string.h>

static int kind_of(const moert__fault *fault) { return fault ? __atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) : MOERT__FAULT_NONE; }

moert_status moert__fault_status(const moert__fault *fault) {
  switch (kind_of(fault)) {
#define FAULT_STATUS(name, status, format)                                                                                                           \
  case MOERT__FAULT_##name: return status;
    MOERT__FAULT_MAP(FAULT_STATUS)
#undef FAULT_STATUS
  }
  return MOERT_ERROR_INTERNAL;
}

bool moert__fault_is_shared(const moert__fault *fault) {
  const moert__op *op = kind_of(fault) ? moert__op_of(fault->op) : NULL;
  return op && op->fabric;
}

//===--- texts ------------------------------------------------------------------------------------===//

static const char *awaited_text(long long awaited) {
  switch (awaited) {
#define AWAITED_TEXT(name, text)                                                                                                                     \
  case MOERT__AWAITED_##name: return text;
    MOERT__AWAITED_MAP(AWAITED_TEXT)
#undef AWAITED_TEXT
  }
  return "something unknown";
}

static const char *format_of(int kind) {
  switch (kind) {
#define FAULT_FORMAT(name, status, format)                                                                                                           \
  case MOERT__FAULT_##name: return format;
    MOERT__FAULT_MAP(FAULT_FORMAT)
#undef FAULT_FORMAT
  }
  return "a kernel reported a fault that this library does not know";
}

// `conversion` is the letter that ends a conversion of MOERT__FAULT_MAP.
static void append_value(moert__text *text, char conversion, long long value) {
  if (conversion == 's')
    moert__append(text, "%s", awaited_text(value));
  else if (conversion == 'x')
    moert__append(text, "%08" PRIx64, (uint64_t)value);
  else
    moert__append(text, "%" PRId64, (int64_t)value);
}

// The formats differ in how many values they take and which of them is a word, so no one call of printf suits all.
static void append_values(moert__text *text, const char *format, const long long *values) {
  for (const char *percent; (percent = strchr(format, '%')); ++values) {
    const char *end = percent + strcspn(percent, "dsx");
    moert__append(text, "%.*s", (int)(percent - format), format);
    append_value(text, *end, *values);
    format = end + 1;
  }
  moert__append(text, "%s", format);
}

moert_status moert__fault_describe(const moert__fault *fault, moert__text *text) {
  moert_status status = moert__fault_status(fault);
  if (!status) return MOERT_OK;
  moert__append(text, "%s: ", moert__op_name(fault->op));
  append_values(text, format_of(fault->kind), fault->values);
  return status;
}

bool moert__fault_describe_wait(const moert__fault *fault, moert__text *text) {
  uint64_t waiting = __atomic_load_n(&fault->waiting, __ATOMIC_RELAXED);
  if (!waiting) return false;
  int op = (int)(waiting >> MOERT__WAITING_OP & 0xffff), what = (int)(waiting >> MOERT__WAITING_WHAT & 0xff);
  moert__append(text, "waits for rank %d (%s, epoch %" PRIu32 ") in %s", (int)(waiting >> MOERT__WAITING_PEER) - 1, awaited_text(what),
                (uint32_t)waiting, moert__op_name(op));
  return true;
}

//===--- look and take ----------------------------------------------------------------------------===//

moert_status moert__fault_tell(const moert__fault *fault) {
  moert__text text = {0};
  moert_status status = moert__fault_describe(fault, &text);
  if (!status) return MOERT_OK;
  const char *outer = moert__enter_op(NULL); // the text has the fault's own
  moert__fail(status, "%s", text.data);
  moert__enter_op(outer);
  return status;
}

moert_status moert__fault_take(moert__fault *fault) {
  moert_status status = moert__fault_tell(fault);
  if (status) __atomic_store_n(&fault->kind, MOERT__FAULT_NONE, __ATOMIC_RELEASE);
  return status;
}

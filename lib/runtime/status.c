//===- status.c - statuses, and what the thread's last error said -----------------------------------===//

#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifndef MOE_VERSION
#error "the build defines MOE_VERSION"
#endif

static _Thread_local char last_error[2048];
static _Thread_local const char *current_op;
static _Thread_local uint64_t failures;

const char *moert_status_name(moert_status status) {
  switch (status) {
#define STATUS_NAME(name, value, text)                                                                                                               \
  case name: return #name;
    MOERT_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
  }
  return "MOERT_ERROR_UNKNOWN";
}

const char *moert_status_text(moert_status status) {
  switch (status) {
#define STATUS_TEXT(name, value, text)                                                                                                               \
  case name: return text;
    MOERT_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
  }
  return "not a status of this library";
}

const char *moert_last_error(void) { return last_error; }

const char *moert_version(void) { return MOE_VERSION; }

int64_t moert_abi_version(void) { return MOERT_ABI_VERSION; }

moert_status moert__fail(moert_status status, const char *format, ...) {
  ++failures;
  char text[sizeof last_error]; // an argument may be the last error itself
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char *op = current_op ? current_op : "";
  const char *separator = current_op ? ": " : "";
  int length = snprintf(last_error, sizeof last_error, "%s%s", op, separator);
  if (length >= 0 && (size_t)length < sizeof last_error) {
    size_t room = sizeof last_error - (size_t)length - 1;
    size_t bytes = strnlen(text, room);
    memcpy(last_error + length, text, bytes);
    last_error[(size_t)length + bytes] = '\0';
  }
  return status;
}

uint64_t moert__count_failures(void) { return failures; }

const char *moert__enter_op(const char *op) {
  const char *previous = current_op;
  current_op = op;
  return previous;
}

const char *moert__current_op(void) { return current_op; }

void moert__append(moert__text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text->data + text->length, sizeof text->data - text->length, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  size_t room = sizeof text->data - 1 - text->length;
  text->length += (size_t)length < room ? (size_t)length : room;
}

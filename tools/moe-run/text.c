//===- text.c - messages, numbers and file patterns -----------------------------------------------===//
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char rank_pattern[] = "{rank}";

run_exit message_set(message *why, run_exit result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why->text, sizeof why->text, format, arguments);
  va_end(arguments);
  why->exit = result;
  return result;
}

void text_append(char *buffer, size_t size, const char *format, ...) {
  size_t used = strlen(buffer);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer + used, size - used, format, arguments);
  va_end(arguments);
}

void text_append_shape(char *buffer, size_t size, int64_t ndim, const int64_t *shape) {
  for (int64_t i = 0; i < ndim; ++i) text_append(buffer, size, "%s%lld", i == 0 ? "[" : ", ", (long long)shape[i]);
  text_append(buffer, size, ndim == 0 ? "[]" : "]");
}

void text_append_index(char *buffer, size_t size, int64_t ndim, const int64_t *shape, int64_t flat) {
  int64_t index[TEXT_MAX_DIMENSIONS];
  for (int64_t i = ndim - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  text_append_shape(buffer, size, ndim, index);
}

bool parse_int64(const char *text, int64_t *value) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0) return false;
  *value = number;
  return true;
}

bool parse_uint64(const char *text, uint64_t *value) {
  char *end;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  // strtoull takes "-1" for the largest number.
  if (end == text || *end != '\0' || errno != 0 || strchr(text, '-')) return false;
  *value = number;
  return true;
}

bool parse_double(const char *text, double *value) {
  char *end;
  errno = 0;
  double number = strtod(text, &end);
  // "inf" is a number that may be meant, "1e999" is not.
  if (end == text || *end != '\0' || (errno == ERANGE && isinf(number))) return false;
  *value = number;
  return true;
}

int32_t list_count(const char *list) {
  int32_t count = 1;
  for (; *list != '\0'; ++list) count += *list == ',';
  return count;
}

bool list_item_of_rank(const char *list, int32_t rank, char item[LIST_ITEM_BYTES]) {
  for (int32_t skip = list_count(list) == 1 ? 0 : rank; skip > 0; --skip) {
    list = strchr(list, ',');
    if (!list) return false;
    ++list;
  }
  size_t length = strcspn(list, ",");
  if (length == 0 || length >= LIST_ITEM_BYTES) return false;
  memcpy(item, list, length);
  item[length] = '\0';
  return true;
}

bool has_rank_pattern(const char *pattern) { return strstr(pattern, rank_pattern) != NULL; }

char *expand_rank_pattern(const char *pattern, int32_t rank) {
  size_t size = strlen(pattern) + 1; // the number is shorter than the pattern that it replaces
  char *path = records(size, 1);
  for (const char *next; (next = strstr(pattern, rank_pattern)); pattern = next + strlen(rank_pattern))
    text_append(path, size, "%.*s%d", (int)(next - pattern), pattern, (int)rank);
  text_append(path, size, "%s", pattern);
  return path;
}

double seconds_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *need(void *memory) {
  if (memory) return memory;
  fputs("moe-run: out of memory\n", stderr);
  exit(RUN_RANK);
}

void *records(size_t count, size_t bytes) { return need(calloc(count ? count : 1, bytes)); }

void *records_grow(void *list, size_t count, size_t bytes) {
  char *grown = need(realloc(list, (count + 1) * bytes));
  memset(grown + count * bytes, 0, bytes);
  return grown;
}

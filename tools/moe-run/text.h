//===- text.h - messages, numbers and file patterns -----------------------------------------------===//
#ifndef MOE_RUN_TEXT_H
#define MOE_RUN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_EXIT_MAP(X)                                                                                                                              \
  X(RUN_OK, 0, "success")                                                                                                                            \
  X(RUN_DIFFERENT, 1, "results differ: from --expect, --check, or between replays")                                                                  \
  X(RUN_USAGE, 2, "the command line is wrong, or does not say enough")                                                                               \
  X(RUN_FILE, 3, "a file could not be read or written, or does not fit")                                                                             \
  X(RUN_GRAPH, 4, "the graph could not be loaded, or is of another ABI version or target")                                                           \
  X(RUN_RANK, 5, "a rank returned an error (also one that --stop caused)")

typedef enum run_exit {
#define RUN_EXIT_ENUM(name, value, text) name = value,
  RUN_EXIT_MAP(RUN_EXIT_ENUM)
#undef RUN_EXIT_ENUM
} run_exit;

// Why something failed. Ranks run at the same time, so each has its own, printed when all are done.
typedef struct message {
  run_exit exit;
  char text[4096];
} message;

// Keep exit status and text; returns `result`.
run_exit message_set(message *why, run_exit result, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Append to a string in a buffer of `size` bytes; what does not fit is cut.
void text_append(char *buffer, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
// "[4, 7168]"
void text_append_shape(char *buffer, size_t size, int64_t ndim, const int64_t *shape);
enum { TEXT_MAX_DIMENSIONS = 64 };
// "[3, 17]": the index of element `flat` in row-major order
void text_append_index(char *buffer, size_t size, int64_t ndim, const int64_t *shape, int64_t flat);

// The whole text is one number.
bool parse_int64(const char *text, int64_t *value);
bool parse_uint64(const char *text, uint64_t *value);
bool parse_double(const char *text, double *value);

// Lists "n0,n1,...": one item for all ranks, or one per rank.
enum { LIST_ITEM_BYTES = 64 };
int32_t list_count(const char *list);
bool list_item_of_rank(const char *list, int32_t rank, char item[LIST_ITEM_BYTES]);

// "{rank}" in a file's name stands for the rank's number.
bool has_rank_pattern(const char *pattern);
char *expand_rank_pattern(const char *pattern, int32_t rank); // the caller frees it

// On a clock that only goes forward.
double seconds_now(void);

// Zeroed memory for the tool's own records, which are small: without it the tool ends.
void *records(size_t count, size_t bytes);
// Make room for one more record in `list`, which has `count`; the new one is zeroed.
void *records_grow(void *list, size_t count, size_t bytes);

#endif

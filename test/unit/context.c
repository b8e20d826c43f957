//===- context.c - contexts: options, arena, errors, fault injection --------------------------------===//

#include "support.h"
#include "lib/runtime/runtime.h"

static moert_comm *comm;

static int create_comm(void **state) {
  (void)state;
  return moert_comm_create_threads(1, NULL, &comm);
}

static int destroy_comm(void **state) {
  (void)state;
  moert_comm_destroy(comm);
  return 0;
}

static moert_context *create(const moert_context_options *options) {
  moert_context *context = NULL;
  assert_ok(moert_context_create(comm, options, &context));
  assert_non_null(context);
  return context;
}

//===--- options ------------------------------------------------------------------------------------===//

static void defaults(void **state) {
  (void)state;
  unsetenv("MOERT_TIMEOUT_MS");
  moert_context *context = create(NULL);
  assert_ptr_equal(moert_context_comm(context), comm);
  assert_ok(moert_context_status(context));
  assert_int_equal(moert_context_peak(context), 0);
  assert_int_equal(moert__context_timeout_ms(context), 30000);
  moert_context_destroy(context);
  setenv("MOERT_TIMEOUT_MS", "77", 1);
  context = create(NULL);
  assert_int_equal(moert__context_timeout_ms(context), 77);
  moert_context_destroy(context);
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 5; // stands before the environment
  context = create(&options);
  assert_int_equal(moert__context_timeout_ms(context), 5);
  moert_context_destroy(context);
  setenv("MOERT_TIMEOUT_MS", "never", 1);
  assert_fails(moert_context_create(comm, NULL, &context), MOERT_ERROR_INVALID_ARGUMENT,
               "environment variable MOERT_TIMEOUT_MS is 'never', must be in [1, 1000000000000]");
  unsetenv("MOERT_TIMEOUT_MS");
}

static void null_handles(void **state) {
  (void)state;
  moert_context *context = NULL;
  void *memory;
  moert_context_destroy(NULL);
  assert_null(moert_context_comm(NULL));
  assert_int_equal(moert_context_status(NULL), MOERT_ERROR_NULL_POINTER);
  assert_int_equal(moert_context_peak(NULL), 0);
  assert_fails(moert_context_create(NULL, NULL, &context), MOERT_ERROR_NULL_POINTER, "comm is NULL");
  assert_fails(moert_context_create(comm, NULL, NULL), MOERT_ERROR_NULL_POINTER, "context is NULL");
  assert_fails(moert_context_allocate(NULL, 8, &memory), MOERT_ERROR_NULL_POINTER, "context is NULL");
  context = create(NULL);
  assert_fails(moert_context_allocate(context, 8, NULL), MOERT_ERROR_NULL_POINTER, "memory is NULL");
  moert_context_destroy(context);
}

static void missing_tail_means_defaults(void **state) {
  (void)state;
  moert_context_options options;
  memset(&options, 0xff, sizeof options); // nothing beyond struct_size may be read
  options.struct_size = offsetof(moert_context_options, arena_limit);
  options.stream = NULL;
  options.timeout_ms = 123;
  moert_context *context = create(&options);
  assert_int_equal(moert__context_timeout_ms(context), 123);
  void *memory;
  assert_ok(moert_context_allocate(context, 1 << 20, &memory));
  moert_context_destroy(context);
  options.struct_size = sizeof(size_t);
  context = create(&options);
  assert_int_equal(moert__context_timeout_ms(context), 30000);
  moert_context_destroy(context);
}

static void unknown_struct_sizes(void **state) {
  (void)state;
  moert_context *context = NULL;
  const size_t unknown[] = {0, 3, sizeof(moert_context_options) - 1, sizeof(moert_context_options) + 8, SIZE_MAX};
  for (size_t i = 0; i < COUNT(unknown); ++i) {
    moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
    char text[160];
    options.struct_size = unknown[i];
    snprintf(text, sizeof text, "options: struct_size is %zu, this library's is %zu; begin with MOERT_CONTEXT_OPTIONS_INIT", unknown[i],
             sizeof options);
    assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_STRUCT_SIZE, text);
    assert_null(context);
  }
}

static void *refuse(void *user, size_t bytes, size_t alignment) {
  (void)user, (void)bytes, (void)alignment;
  return NULL;
}

static void options_that_are_refused(void **state) {
  (void)state;
  moert_context *context = NULL;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.stream = &options;
  assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_UNSUPPORTED,
               "options: stream is set, must be NULL: the host backend has no streams");
  options = (moert_context_options)MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = -1;
  assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_INVALID_ARGUMENT,
               "options: timeout_ms is -1, must be in [0, 1000000000000]");
  options.timeout_ms = INT64_MAX;
  assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_INVALID_ARGUMENT,
               "options: timeout_ms is 9223372036854775807, must be in [0, 1000000000000]");
  options = (moert_context_options)MOERT_CONTEXT_OPTIONS_INIT;
  options.allocate = refuse;
  assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_INVALID_ARGUMENT,
               "options: allocate is set without deallocate; set both or neither");
  options = (moert_context_options)MOERT_CONTEXT_OPTIONS_INIT;
  options.stop_phase = "data";
  assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_INVALID_ARGUMENT,
               "options: stop_phase is set without stop_op; set both or neither");
  options.stop_phase = NULL;
  options.stop_op = "moe.dispatch";
  assert_fails(moert_context_create(comm, &options, &context), MOERT_ERROR_INVALID_ARGUMENT,
               "options: stop_op is set without stop_phase; set both or neither");
  assert_null(context);
}

//===--- arena --------------------------------------------------------------------------------------===//

// Counts what the arena holds, and refuses when told to.
typedef struct counter {
  int allocations, frees;
  size_t held, refuse_above; // 0: never
} counter;

static void *count_allocation(void *user, size_t bytes, size_t alignment) {
  counter *counts = user;
  if (counts->refuse_above && bytes > counts->refuse_above) return NULL;
  counts->allocations++;
  counts->held += bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void count_free(void *user, void *memory, size_t bytes) {
  counter *counts = user;
  counts->frees++;
  counts->held -= bytes;
  free(memory);
}

static moert_context_options counted(counter *counts) {
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.allocate = count_allocation;
  options.deallocate = count_free;
  options.allocator_user = counts;
  return options;
}

static void *allocate(moert_context *context, int64_t bytes) {
  void *memory = NULL;
  assert_ok(moert_context_allocate(context, bytes, &memory));
  assert_non_null(memory);
  assert_int_equal((uintptr_t)memory % 256, 0);
  memset(memory, 0xa5, (size_t)bytes); // for the address sanitizer
  return memory;
}

static void arena_grows(void **state) {
  (void)state;
  counter counts = {0};
  moert_context_options options = counted(&counts);
  moert_context *context = create(&options);
  unsigned char *blocks[64];
  size_t total = 0;
  for (int64_t i = 0; i < 64; ++i) {
    blocks[i] = allocate(context, i * i * 100 + 1);
    memset(blocks[i], (int)i, (size_t)(i * i * 100 + 1));
    total += (size_t)(i * i * 100 + 1 + 255) / 256 * 256;
    assert_int_equal(moert_context_peak(context), total);
  }
  for (int64_t i = 0; i < 64; ++i) {
    assert_int_equal(blocks[i][0], i);
    assert_int_equal(blocks[i][i * i * 100], i);
  }
  assert_in_range(counts.allocations, 1, 12); // doubling
  moert_context_destroy(context);
  assert_int_equal(counts.frees, counts.allocations);
  assert_int_equal(counts.held, 0);
}

static void chunks_are_kept(void **state) {
  (void)state;
  counter counts = {0};
  moert_context_options options = counted(&counts);
  moert_context *context = create(&options);
  int after_first = 0;
  void *first = NULL;
  for (int call = 0; call < 10; ++call) {
    moert__arena_mark mark = moert__arena_mark_get(context);
    void *memory = allocate(context, 1000);
    if (!first) first = memory;
    assert_ptr_equal(memory, first);
    allocate(context, 100000);
    allocate(context, 1000000);
    allocate(context, 50);
    moert__arena_rewind(context, mark);
    if (!call) after_first = counts.allocations;
  }
  assert_int_equal(counts.allocations, after_first);
  assert_int_equal(moert_context_peak(context), 1024 + 100096 + 1000192 + 256);
  moert_context_destroy(context);
  assert_int_equal(counts.held, 0);
}

static void marks_nest(void **state) {
  (void)state;
  moert_context *context = create(NULL);
  unsigned char *outer = allocate(context, 300);
  memset(outer, 1, 300);
  moert__arena_mark mark = moert__arena_mark_get(context);
  unsigned char *inner = allocate(context, 300);
  allocate(context, 10 << 20); // in a chunk of its own
  moert__arena_rewind(context, mark);
  assert_ptr_equal(allocate(context, 300), inner);
  for (int i = 0; i < 300; ++i) assert_int_equal(outer[i], 1);
  assert_int_equal(moert_context_peak(context), 512 + 512 + (10 << 20));
  moert_context_destroy(context);
}

static void no_bytes(void **state) {
  (void)state;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.arena_limit = 1;
  moert_context *context = create(&options);
  allocate(context, 0);
  assert_int_equal(moert_context_peak(context), 0);
  moert_context_destroy(context);
}

static void limit(void **state) {
  (void)state;
  counter counts = {0};
  moert_context_options options = counted(&counts);
  options.arena_limit = 4096;
  moert_context *context = create(&options);
  void *memory = context;
  moert__arena_mark mark = moert__arena_mark_get(context);
  allocate(context, 4000 - 255);
  assert_fails(moert_context_allocate(context, 500, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "512 bytes on top of 3840 exceed the arena_limit of 4096; raise it in the context's options");
  assert_ptr_equal(memory, context);
  allocate(context, 256);
  assert_fails(moert_context_allocate(context, 1, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "256 bytes on top of 4096 exceed the arena_limit of 4096; raise it in the context's options");
  moert__arena_rewind(context, mark);
  assert_fails(moert_context_allocate(context, 4097, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "4352 bytes on top of 0 exceed the arena_limit of 4096; raise it in the context's options");
  allocate(context, 4096);
  assert_int_equal(counts.held, 4096); // chunks do not grow beyond the limit
  moert_context_destroy(context);
}

static void sizes_that_are_refused(void **state) {
  (void)state;
  moert_context *context = create(NULL);
  void *memory = context;
  assert_fails(moert_context_allocate(context, -1, &memory), MOERT_ERROR_INVALID_ARGUMENT, "bytes is -1, must be at least 0");
  assert_fails(moert_context_allocate(context, INT64_MIN, &memory), MOERT_ERROR_INVALID_ARGUMENT,
               "bytes is -9223372036854775808, must be at least 0");
  assert_fails(moert_context_allocate(context, INT64_MAX, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "9223372036854775807 bytes are more than any memory has");
  assert_fails(moert_context_allocate(context, INT64_MAX / 2, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "no memory for 4611686018427387904 bytes on top of 0 in the arena");
  assert_ptr_equal(memory, context);
  assert_int_equal(moert_context_peak(context), 0);
  moert_context_destroy(context);
}

static void failing_allocator(void **state) {
  (void)state;
  counter counts = {.refuse_above = 100000};
  moert_context_options options = counted(&counts);
  moert_context *context = create(&options);
  void *memory = context;
  allocate(context, 60000);
  allocate(context, 60000); // a chunk twice the size of the first is refused, one for just this is not
  assert_fails(moert_context_allocate(context, 100000, &memory), MOERT_ERROR_OUT_OF_MEMORY,
               "no memory for 100096 bytes on top of 120320 in the arena");
  assert_ptr_equal(memory, context);
  counts.refuse_above = 0;
  allocate(context, 100000);
  moert_context_destroy(context);
  assert_int_equal(counts.frees, 3);
  assert_int_equal(counts.held, 0);
}

//===--- the host as a device -----------------------------------------------------------------------===//

static void nothing_to_wait_for(void **state) {
  (void)state;
  moert_context *context = create(NULL);
  assert_null(moert_context_stream(context));
  assert_null(moert_context_stream(NULL));
  assert_null(moert__context_fault(context));
  assert_ok(moert__context_check_not_capturing(context));
  assert_ok(moert_context_synchronize(context));
  assert_fails(moert_context_synchronize(NULL), MOERT_ERROR_NULL_POINTER, "context is NULL");
  moert__context_note(context, moert__fail(MOERT_ERROR_DATA, "row 3 is bad"));
  moert__fail(MOERT_ERROR_CAPACITY, "of another context");
  assert_fails(moert_context_synchronize(context), MOERT_ERROR_DATA, "row 3 is bad");
  moert_context_destroy(context);
}

static void fill_and_copy(void **state) {
  (void)state;
  moert_context *context = create(NULL);
  char from[8] = "1234567", to[8] = "abcdefg";
  assert_ok(moert_copy(context, to, from, 3));
  assert_string_equal(to, "123defg");
  assert_ok(moert_copy(context, NULL, NULL, 0));
  assert_ok(moert__context_fill(context, to, 'x', 2));
  assert_string_equal(to, "xx3defg");
  assert_ok(moert__context_fill(context, NULL, 0, 0));
  assert_fails(moert_copy(NULL, to, from, 3), MOERT_ERROR_NULL_POINTER, "context is NULL");
  assert_fails(moert_copy(context, NULL, from, 3), MOERT_ERROR_NULL_POINTER, "to is NULL");
  assert_fails(moert_copy(context, to, NULL, 3), MOERT_ERROR_NULL_POINTER, "from is NULL");
  moert_context_destroy(context);
}

static void current_context(void **state) {
  (void)state;
  moert_context *context = create(NULL);
  assert_null(moert__current_context());
  assert_null(moert__enter_context(context));
  assert_ptr_equal(moert__current_context(), context);
  assert_ptr_equal(moert__enter_context(NULL), context);
  moert_context_destroy(context);
}

//===--- errors and fault injection -----------------------------------------------------------------===//

typedef struct log_lines {
  int count;
  char last[256];
} log_lines;

static void keep_line(void *user, const char *line) {
  log_lines *kept = user;
  kept->count++;
  snprintf(kept->last, sizeof kept->last, "%s", line);
}

static void first_error(void **state) {
  (void)state;
  log_lines kept = {0};
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.log = keep_line;
  options.log_user = &kept;
  moert_context *context = create(&options);
  moert__context_note(context, MOERT_OK);
  moert__context_note(context, MOERT_ERROR_INVALID_SHAPE);
  assert_ok(moert_context_status(context));
  assert_int_equal(kept.count, 0);
  moert__context_note(context, moert__fail(MOERT_ERROR_CAPACITY, "%d rows, must be at most %d", 9, 8));
  assert_int_equal(moert_context_status(context), MOERT_ERROR_CAPACITY);
  moert__context_note(context, moert__fail(MOERT_ERROR_DATA, "later"));
  assert_int_equal(moert_context_status(context), MOERT_ERROR_CAPACITY);
  assert_int_equal(kept.count, 1);
  assert_string_equal(kept.last, "MOERT_ERROR_CAPACITY: 9 rows, must be at most 8");
  moert_context_destroy(context);
}

static void error_of_the_communicator(void **state) {
  (void)state;
  moert_comm *own;
  moert_context *context;
  assert_ok(moert_comm_create_threads(1, NULL, &own));
  assert_ok(moert_context_create(own, NULL, &context));
  moert_comm_report(own, MOERT_ERROR_PEER_TIMEOUT);
  assert_int_equal(moert_context_status(context), MOERT_ERROR_PEER_TIMEOUT);
  moert__context_note(context, MOERT_ERROR_DATA);
  assert_int_equal(moert_context_status(context), MOERT_ERROR_DATA);
  moert_context_destroy(context);
  moert_comm_destroy(own);
}

static void stop_points(void **state) {
  (void)state;
  char op[] = "moe.dispatch", phase[] = "data";
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.stop_op = op;
  options.stop_phase = phase;
  moert_context *context = create(&options);
  op[0] = phase[0] = '\0'; // strings are copied
  assert_ok(moert__stop_point(context, "data"));
  moert__enter_op("moe.combine");
  assert_ok(moert__stop_point(context, "data"));
  moert__enter_op("moe.dispatch");
  assert_ok(moert__stop_point(context, "flag"));
  assert_fails(moert__stop_point(context, "data"), MOERT_ERROR_STOPPED, "moe.dispatch: rank 0 was stopped at phase 'data'");
  moert__enter_op(NULL);
  assert_ok(moert_comm_status(comm));
  moert_context_destroy(context);
  context = create(NULL);
  moert__enter_op("moe.dispatch");
  assert_ok(moert__stop_point(context, "data"));
  moert__enter_op(NULL);
  moert_context_destroy(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(null_handles),
      cmocka_unit_test(missing_tail_means_defaults),
      cmocka_unit_test(unknown_struct_sizes),
      cmocka_unit_test(options_that_are_refused),
      cmocka_unit_test(arena_grows),
      cmocka_unit_test(chunks_are_kept),
      cmocka_unit_test(marks_nest),
      cmocka_unit_test(no_bytes),
      cmocka_unit_test(limit),
      cmocka_unit_test(sizes_that_are_refused),
      cmocka_unit_test(failing_allocator),
      cmocka_unit_test(nothing_to_wait_for),
      cmocka_unit_test(fill_and_copy),
      cmocka_unit_test(current_context),
      cmocka_unit_test(first_error),
      cmocka_unit_test(error_of_the_communicator),
      cmocka_unit_test(stop_points),
  };
  return cmocka_run_group_tests(tests, create_comm, destroy_comm);
}

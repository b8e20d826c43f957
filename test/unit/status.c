//===- status.c - the status table and the last error -----------------------------------------------===//

#include "support.h"
#include "lib/runtime/internal.h"

typedef struct row {
  const char *name, *text;
  moert_status status;
} row;

static const row table[] = {
#define ROW(name, value, text) {#name, text, name},
    MOERT_STATUS_MAP(ROW)
#undef ROW
};

static void names_and_texts(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(table); ++i) {
    assert_string_equal(moert_status_name(table[i].status), table[i].name);
    assert_string_equal(moert_status_text(table[i].status), table[i].text);
    for (size_t j = 0; j < i; ++j) {
      assert_int_not_equal(table[i].status, table[j].status);
      assert_string_not_equal(table[i].text, table[j].text);
    }
  }
  assert_string_equal(moert_status_name((moert_status)999), "MOERT_ERROR_UNKNOWN");
  assert_string_equal(moert_status_text((moert_status)999), "not a status of this library");
}

// Values that programs and compiled graphs hold never change.
static void values(void **state) {
  (void)state;
  assert_int_equal(MOERT_OK, 0);
  for (size_t i = 1; i < COUNT(table); ++i) assert_in_range(table[i].status / 1000, 1, 6);
  assert_int_equal(MOERT_ERROR_INVALID_ARGUMENT, 1001);
  assert_int_equal(MOERT_ERROR_UNSUPPORTED, 2001);
  assert_int_equal(MOERT_ERROR_NO_KERNEL, 2003);
  assert_int_equal(MOERT_ERROR_NOT_CAPTURABLE, 2004);
  assert_int_equal(MOERT_ERROR_NO_DEVICE, 2005);
  assert_int_equal(MOERT_ERROR_CAPACITY, 3001);
  assert_int_equal(MOERT_ERROR_DATA, 4001);
  assert_int_equal(MOERT_ERROR_DEVICE, 4002);
  assert_int_equal(MOERT_ERROR_PEER_TIMEOUT, 5001);
  assert_int_equal(MOERT_ERROR_INTERNAL, 6001);
}

static void versions(void **state) {
  (void)state;
  assert_string_equal(moert_version(), MOE_VERSION);
  assert_int_equal(moert_abi_version(), MOERT_ABI_VERSION);
}

static void *first_error_of_thread(void *empty) {
  *(bool *)empty = moert_last_error()[0] == '\0';
  moert__fail(MOERT_ERROR_DATA, "of the other thread");
  return NULL;
}

static void last_error_is_the_threads(void **state) {
  (void)state;
  assert_string_equal(moert_last_error(), "");
  assert_fails(moert__fail(MOERT_ERROR_CAPACITY, "rows is %d", 7), MOERT_ERROR_CAPACITY, "rows is 7");
  pthread_t thread;
  bool empty = false;
  assert_int_equal(pthread_create(&thread, NULL, first_error_of_thread, &empty), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(empty);
  assert_string_equal(moert_last_error(), "rows is 7");
}

static void op_prefix(void **state) {
  (void)state;
  assert_null(moert__enter_op("moe.dispatch"));
  assert_fails(moert__fail(MOERT_ERROR_DATA, "outer"), MOERT_ERROR_DATA, "moe.dispatch: outer");
  assert_string_equal(moert__enter_op("moe.route"), "moe.dispatch");
  assert_fails(moert__fail(MOERT_ERROR_DATA, "inner"), MOERT_ERROR_DATA, "moe.route: inner");
  assert_string_equal(moert__enter_op(NULL), "moe.route");
  assert_fails(moert__fail(MOERT_ERROR_DATA, "none"), MOERT_ERROR_DATA, "none");
}

static void text_of_the_last_error(void **state) {
  (void)state;
  moert__fail(MOERT_ERROR_DATA, "inner");
  assert_fails(moert__fail(MOERT_ERROR_DATA, "outer (%s)", moert_last_error()), MOERT_ERROR_DATA, "outer (inner)");
}

static void long_text_is_cut(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  moert__enter_op("moe.route");
  moert__fail(MOERT_ERROR_DATA, "%s", text);
  moert__enter_op(NULL);
  assert_int_equal(strlen(moert_last_error()), 2047);
  assert_memory_equal(moert_last_error(), "moe.route: xxx", 14);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(last_error_is_the_threads),
      cmocka_unit_test(names_and_texts),
      cmocka_unit_test(values),
      cmocka_unit_test(versions),
      cmocka_unit_test(op_prefix),
      cmocka_unit_test(text_of_the_last_error),
      cmocka_unit_test(long_text_is_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

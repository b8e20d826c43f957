//===- kernels.c - the table of kernels, and handles -------------------------------------------------===//

#include "support.h"

#include "kernels/table.h"
#include "lib/runtime/runtime.h"

static void assert_match(const char *key, MoeKernelAnswer answer, const char *op, int number, const char *why) {
  MoeKernelMatch match = moeKernelMatch(key);
  assert_int_equal(match.answer, answer);
  assert_string_equal(match.why, why);
  if (op) {
    assert_non_null(match.instance);
    assert_string_equal(match.instance->op, op);
    assert_int_equal(match.instance->number, number);
  } else {
    assert_null(match.instance);
  }
}

//===--- the table ----------------------------------------------------------------------------------===//

// What everything else takes for granted of the lists.
static void rows_are_sound(void **state) {
  (void)state;
  assert_true(moeNumKernelInstances > 0);
  for (int i = 0; i < moeNumKernelInstances; ++i) {
    const MoeKernelInstance *row = &moeKernelInstances[i];
    bool first = i == 0 || strcmp(row->op, row[-1].op) != 0;
    assert_int_equal(row->number, first ? 0 : row[-1].number + 1);
    assert_in_range(row->numColumns, 1, MOE_KERNEL_MAX_COLUMNS);
    assert_in_range(row->set, MOE_KERNEL_SET_MINIMAL, MOE_KERNEL_SET_FULL);
    for (int c = 0; !first && c < row->numColumns; ++c) assert_string_equal(row->columns[c].name, row[-1].columns[c].name);
  }
  for (const char *const *op = moeKernelOps; *op; ++op) {
    bool found = false;
    for (int i = 0; i < moeNumKernelInstances; ++i) found |= strcmp(moeKernelInstances[i].op, *op) == 0;
    assert_true(found);
  }
  assert_string_equal(moeKernelSetName(MOE_KERNEL_SET_DEFAULT), "default");
  assert_true(moeKernelTargetExists("sm_90a"));
  assert_false(moeKernelTargetExists("sm_90"));
  assert_false(moeKernelTargetExists("host"));
  assert_false(moeKernelTargetExists(""));
}

static void key_of(const MoeKernelInstance *row, char *key, size_t size) {
  snprintf(key, size, "%s/sm_90a/%s,i32", row->op, strcmp(row->dtype, "any") ? row->dtype : "f64");
  for (int c = row->numColumns - 1; c >= 0; --c) // parameters have no order
    snprintf(key + strlen(key), size - strlen(key), ",other_%s=1,%s=%s", row->columns[c].name, row->columns[c].name, row->columns[c].value);
}

// An instance is what its own key gets, as a match, as a handle and by name.
static void every_row_is_found(void **state) {
  (void)state;
  for (int i = 0; i < moeNumKernelInstances; ++i) {
    const MoeKernelInstance *row = &moeKernelInstances[i];
    char key[512], name[512];
    key_of(row, key, sizeof key);
    MoeKernelMatch match = moeKernelMatch(key);
    assert_int_equal(match.answer, MOE_KERNEL_EXACT);
    assert_ptr_equal(match.instance, row);
    snprintf(name, sizeof name, "%s/sm_90a/%s", row->op, row->dtype);
    for (int c = 0; c < row->numColumns; ++c)
      snprintf(name + strlen(name), sizeof name - strlen(name), ",%s=%s", row->columns[c].name, row->columns[c].value);
    moert_kernel *kernel = NULL, *again = NULL;
    assert_ok(moert_kernel_find(key, &kernel));
    assert_string_equal(moert_kernel_name(kernel), name);
    assert_ok(moert_kernel_find(key, &again));
    assert_ptr_equal(again, kernel);
  }
}

static void nearest(void **state) {
  (void)state;
  assert_match("moe.combine/sm_90a/bf16,i32,hidden_size=7168,top_k=8", MOE_KERNEL_EXACT, "moe.combine", 0, "");
  assert_match("moe.combine/sm_90a/bf16,hidden_size=7000,top_k=8", MOE_KERNEL_GENERIC, "moe.combine", 0,
               "hidden_size is 7000, the nearest instance has 7168");
  assert_match("moe.combine/sm_90a/bf16,hidden_size=2100,top_k=8", MOE_KERNEL_GENERIC, "moe.combine", 1,
               "hidden_size is 2100, the nearest instance has 2048");
  // More equal columns come before nearer numbers.
  assert_match("moe.combine/sm_90a/bf16,hidden_size=2048,top_k=1", MOE_KERNEL_GENERIC, "moe.combine", 1, "top_k is 1, the nearest instance has 8");
  assert_match("moe.combine/sm_90a/bf16,hidden_size=2049,top_k=6", MOE_KERNEL_GENERIC, "moe.combine", 1,
               "hidden_size is 2049, the nearest instance has 2048; top_k is 6, the nearest instance has 8");
  assert_match("moe.dispatch/sm_90a/i32,top_k=5", MOE_KERNEL_GENERIC, "moe.dispatch", 1, "top_k is 5, the nearest instance has 4");
  assert_match("moe.dispatch/sm_90a/i32,top_k=", MOE_KERNEL_GENERIC, "moe.dispatch", 0, "top_k is , the nearest instance has 8");
}

static void words_and_what_is_not_given(void **state) {
  (void)state;
  assert_match("moe.grouped_matmul/sm_90a/bf16,activation=swiglu", MOE_KERNEL_EXACT, "moe.grouped_matmul", 1, "");
  assert_match("moe.grouped_matmul/sm_90a/bf16,activation=gelu", MOE_KERNEL_GENERIC, "moe.grouped_matmul", 0,
               "activation is gelu, the nearest instance has none");
  assert_match("moe.grouped_matmul/sm_90a/bf16", MOE_KERNEL_GENERIC, "moe.grouped_matmul", 0,
               "activation is not given, the nearest instance has none");
  assert_match("moe.grouped_matmul/sm_90a/bf16,not_activation=swiglu,activation_=swiglu", MOE_KERNEL_GENERIC, "moe.grouped_matmul", 0,
               "activation is not given, the nearest instance has none");
  assert_match("moe.combine/sm_90a/f64,hidden_size=7168,top_k=8", MOE_KERNEL_GENERIC, NULL, 0, "element type f64, instances have bf16");
  assert_match("moe.route/sm_90a/f16,n_experts=64,top_k=8", MOE_KERNEL_GENERIC, NULL, 0, "element type f16, instances have bf16, f32");
  assert_match("moe.route/sm_90a", MOE_KERNEL_GENERIC, NULL, 0, "element type , instances have bf16, f32");
  assert_match("moe.route/sm_90a/n_experts=64,top_k=8", MOE_KERNEL_GENERIC, NULL, 0, "element type , instances have bf16, f32");
}

static void none(void **state) {
  (void)state;
  const char *unknown = "op 'moe.unroute' is none of those that have kernels: ep.combine.skip_a2a, ep.dispatch, moe.allreduce_fusion, moe.combine, "
                        "moe.dequantize, moe.dispatch, moe.finalize_allreduce_fusion, moe.grouped_matmul, moe.nvfp4_routed, moe.prepare_nvfp4, "
                        "moe.quantize, moe.route, moe.sanitize_expert_ids";
  assert_match("moe.unroute/sm_90a/f32", MOE_KERNEL_NONE, NULL, 0, unknown);
  assert_match("moe.route/host/f32", MOE_KERNEL_NONE, NULL, 0, "target 'host' is none of this build's: sm_90a");
  assert_match("moe.route", MOE_KERNEL_NONE, NULL, 0, "target '' is none of this build's: sm_90a");
  assert_int_equal(moeKernelMatch("").answer, MOE_KERNEL_NONE);
  assert_int_equal(moeKernelMatch("moe.initialize/sm_90a/i8").answer, MOE_KERNEL_NONE); // an op of the host
  char text[1000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  MoeKernelMatch match = moeKernelMatch(text); // what does not fit is cut off
  assert_int_equal(match.answer, MOE_KERNEL_NONE);
  assert_int_equal(strlen(match.why), sizeof match.why - 1);
}

//===--- handles ------------------------------------------------------------------------------------===//

static void handles(void **state) {
  (void)state;
  moert_kernel *kernel = NULL, *other = NULL;
  assert_ok(moert_kernel_find("moe.combine/sm_90a/bf16,hidden_size=7000,top_k=8", &kernel));
  assert_string_equal(moert_kernel_name(kernel), "moe.combine/sm_90a/generic");
  assert_ok(moert_kernel_find("moe.combine/sm_90a/f64", &other));
  assert_ptr_equal(other, kernel);
  assert_ok(moert_kernel_find("moe.route/sm_90a/f64", &other));
  assert_string_equal(moert_kernel_name(other), "moe.route/sm_90a/generic");
  assert_null(moert_kernel_name(NULL));
  other = NULL;
  assert_fails(moert_kernel_find(NULL, &other), MOERT_ERROR_NULL_POINTER, "key is NULL");
  assert_fails(moert_kernel_find("moe.route/sm_90a", NULL), MOERT_ERROR_NULL_POINTER, "kernel is NULL");
  assert_fails(moert_kernel_find("moe.route/sm_80/f32", &other), MOERT_ERROR_NO_KERNEL,
               "there is no kernel 'moe.route/sm_80/f32': target 'sm_80' is none of this build's: sm_90a");
  assert_int_equal(moert_kernel_find("moe.initialize/sm_90a/i8", &other), MOERT_ERROR_NO_KERNEL);
  assert_null(other);
}

static moert_status find_all(rank_run *run) {
  for (int i = 0; i < moeNumKernelInstances; ++i) {
    char key[512];
    moert_kernel *kernel;
    key_of(&moeKernelInstances[i], key, sizeof key);
    moert_status status = moert_kernel_find(key, &kernel);
    if (status) return status;
    run->memory = kernel;
  }
  return MOERT_OK;
}

// Whoever asks first makes them.
static void handles_from_threads(void **state) {
  (void)state;
  moert_comm *comms[4];
  rank_run runs[4];
  assert_ok(moert_comm_create_threads(4, NULL, comms));
  run_ranks(runs, comms, 4, find_all, NULL);
  for (int r = 0; r < 4; ++r) {
    assert_ok(runs[r].status);
    assert_ptr_equal(runs[r].memory, runs[0].memory);
  }
  destroy_ranks(comms, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(handles_from_threads),
      cmocka_unit_test(rows_are_sound),
      cmocka_unit_test(every_row_is_found),
      cmocka_unit_test(nearest),
      cmocka_unit_test(words_and_what_is_not_given),
      cmocka_unit_test(none),
      cmocka_unit_test(handles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

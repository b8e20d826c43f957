//===- tensor.c - the layout of tensors, element types, sizes, contiguity ---------------------------===//

#include "support.h"
#include "lib/runtime/internal.h"

//===--- DLPack -----------------------------------------------------------------------------------===//

// The layout that DLPack 1.0 fixes.
typedef struct dl_device {
  int32_t device_type, device_id;
} dl_device;
typedef struct dl_data_type {
  uint8_t code, bits;
  uint16_t lanes;
} dl_data_type;
typedef struct dl_tensor {
  void *data;
  dl_device device;
  int32_t ndim;
  dl_data_type dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

#define SAME_PLACE(ours, our_field, theirs, their_field)                                                                                             \
  _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && sizeof((ours){0}.our_field) == sizeof((theirs){0}.their_field),       \
                 "layout of DLPack")
SAME_PLACE(moert_device, type, dl_device, device_type);
SAME_PLACE(moert_device, id, dl_device, device_id);
SAME_PLACE(moert_dtype, code, dl_data_type, code);
SAME_PLACE(moert_dtype, bits, dl_data_type, bits);
SAME_PLACE(moert_dtype, lanes, dl_data_type, lanes);
SAME_PLACE(moert_tensor, data, dl_tensor, data);
SAME_PLACE(moert_tensor, device, dl_tensor, device);
SAME_PLACE(moert_tensor, ndim, dl_tensor, ndim);
SAME_PLACE(moert_tensor, dtype, dl_tensor, dtype);
SAME_PLACE(moert_tensor, shape, dl_tensor, shape);
SAME_PLACE(moert_tensor, strides, dl_tensor, strides);
SAME_PLACE(moert_tensor, byte_offset, dl_tensor, byte_offset);
_Static_assert(sizeof(moert_tensor) == sizeof(dl_tensor) && _Alignof(moert_tensor) == _Alignof(dl_tensor), "layout of DLPack");
_Static_assert(sizeof(moert_tensor) == 48 && offsetof(moert_tensor, shape) == 24, "layout of DLPack on 64 bits");

// kDLCPU, kDLCUDA, and DLPack's type codes.
_Static_assert(MOERT_DEVICE_CPU == 1 && MOERT_DEVICE_CUDA == 2, "device types of DLPack");
_Static_assert(MOERT_CODE_INT == 0 && MOERT_CODE_UINT == 1 && MOERT_CODE_FLOAT == 2 && MOERT_CODE_BFLOAT == 4 && MOERT_CODE_BOOL == 6,
               "type codes of DLPack");
_Static_assert(MOERT_CODE_F8E4M3FN == 10 && MOERT_CODE_F8E5M2 == 12 && MOERT_CODE_F8E8M0FNU == 14, "type codes of DLPack");

//===--- element types ----------------------------------------------------------------------------===//

static void element_types(void **state) {
  (void)state;
  static const struct {
    moert_dtype dtype;
    const char *name;
    int64_t bytes;
    int bit;
  } rows[] = {
      {{MOERT_CODE_BFLOAT, 16, 1}, "bf16", 2, MOERT__DTYPE_BF16},
      {{MOERT_CODE_FLOAT, 16, 1}, "f16", 2, MOERT__DTYPE_F16},
      {{MOERT_CODE_FLOAT, 32, 1}, "f32", 4, MOERT__DTYPE_F32},
      {{MOERT_CODE_FLOAT, 64, 1}, "f64", 8, MOERT__DTYPE_F64},
      {{MOERT_CODE_INT, 8, 1}, "i8", 1, MOERT__DTYPE_I8},
      {{MOERT_CODE_INT, 16, 1}, "i16", 2, MOERT__DTYPE_I16},
      {{MOERT_CODE_INT, 32, 1}, "i32", 4, MOERT__DTYPE_I32},
      {{MOERT_CODE_INT, 64, 1}, "i64", 8, MOERT__DTYPE_I64},
      {{MOERT_CODE_UINT, 32, 1}, "ui32", 4, MOERT__DTYPE_UI32},
      {{MOERT_CODE_UINT, 8, 1}, "ui8", 1, MOERT__DTYPE_UI8},
      {{MOERT_CODE_UINT, 16, 1}, "ui16", 2, 0},
      {{MOERT_CODE_UINT, 64, 1}, "ui64", 8, MOERT__DTYPE_UI64},
      {{MOERT_CODE_BOOL, 8, 1}, "bool", 1, 0},
      {{MOERT_CODE_F8E4M3FN, 8, 1}, "f8E4M3FN", 1, MOERT__DTYPE_F8E4M3FN},
      {{MOERT_CODE_F8E5M2, 8, 1}, "f8E5M2", 1, 0},
      {{MOERT_CODE_F8E8M0FNU, 8, 1}, "f8E8M0FNU", 1, MOERT__DTYPE_F8E8M0FNU},
      {{MOERT_CODE_INT, 4, 1}, "?", 0, 0},
      {{MOERT_CODE_INT, 4, 2}, "?", 0, 0},
      {{MOERT_CODE_FLOAT, 32, 4}, "?", 16, 0},
      {{MOERT_CODE_FLOAT, 0, 1}, "?", 0, 0},
      {{MOERT_CODE_FLOAT, 32, 0}, "?", 0, 0},
      {{99, 32, 1}, "?", 4, 0},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    assert_string_equal(moert__dtype_name(rows[i].dtype), rows[i].name);
    assert_int_equal(moert__dtype_bytes(rows[i].dtype), rows[i].bytes);
    assert_int_equal(moert__dtype_bit(rows[i].dtype), rows[i].bit);
    for (size_t j = 0; j < COUNT(rows); ++j) assert_int_equal(moert__dtype_equal(rows[i].dtype, rows[j].dtype), i == j);
  }
}

//===--- sizes ------------------------------------------------------------------------------------===//

static moert_tensor make(int32_t ndim, int64_t *shape, int64_t *strides) {
  return (moert_tensor){NULL, {MOERT_DEVICE_CPU, 0}, ndim, {MOERT_CODE_BFLOAT, 16, 1}, shape, strides, 0};
}

static void elements(void **state) {
  (void)state;
  moert_tensor scalar = make(0, NULL, NULL);
  assert_int_equal(moert__elements(&scalar), 1);
  assert_int_equal(moert__row_bytes(&scalar, 0), 2);
  moert_tensor tensor = make(3, (int64_t[]){5, 6, 7}, NULL);
  assert_int_equal(moert__elements(&tensor), 210);
  assert_int_equal(moert__row_bytes(&tensor, 0), 420);
  assert_int_equal(moert__row_bytes(&tensor, 1), 84);
  assert_int_equal(moert__row_bytes(&tensor, 3), 2);
  moert_tensor large = make(2, (int64_t[]){1 << 20, INT64_C(1) << 41}, NULL);
  assert_int_equal(moert__elements(&large), INT64_C(1) << 61);
  assert_int_equal(moert__row_bytes(&large, 0), INT64_C(1) << 62);
}

static void elements_that_cannot_be_counted(void **state) {
  (void)state;
  moert_tensor huge = make(2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 31}, NULL);
  assert_int_equal(moert__elements(&huge), -1);
  moert_tensor bytes = make(1, (int64_t[]){INT64_C(1) << 62}, NULL);
  assert_int_equal(moert__row_bytes(&bytes, 0), -1);
  moert_tensor negative = make(2, (int64_t[]){0, -1}, NULL);
  assert_int_equal(moert__elements(&negative), -1);
  moert_tensor empty = make(3, (int64_t[]){INT64_MAX, INT64_MAX, 0}, NULL);
  assert_int_equal(moert__elements(&empty), 0);
}

static void contiguity(void **state) {
  (void)state;
  static const struct {
    int64_t shape[3], strides[3];
    bool contiguous;
  } rows[] = {
      {{4, 5, 6}, {30, 6, 1}, true},   {{4, 5, 6}, {30, 6, 2}, false},  {{4, 5, 6}, {31, 6, 1}, false}, {{4, 5, 6}, {6, 30, 1}, false},
      {{1, 5, 6}, {77, 6, 1}, true},   {{4, 1, 6}, {6, -9, 1}, true},   {{4, 5, 1}, {5, 1, 99}, true},  {{1, 1, 1}, {7, 8, 9}, true},
      {{4, 0, 6}, {99, 99, 99}, true}, {{2, 5, 6}, {-30, 6, 1}, false},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    moert_tensor tensor = make(3, (int64_t *)(uintptr_t)rows[i].shape, (int64_t *)(uintptr_t)rows[i].strides);
    assert_int_equal(moert__is_contiguous(&tensor), rows[i].contiguous);
    tensor.strides = NULL;
    assert_true(moert__is_contiguous(&tensor));
  }
  moert_tensor scalar = make(0, NULL, (int64_t[]){0});
  assert_true(moert__is_contiguous(&scalar));
}

static void rows_that_lie_apart(void **state) {
  (void)state;
  static const struct {
    int64_t shape[2], strides[2];
    bool contiguous_rows;
    int64_t stride;
  } rows[] = {
      {{4, 5}, {5, 1}, true, 5},    {{4, 5}, {9, 1}, true, 9},   {{4, 5}, {INT64_MAX, 1}, true, INT64_MAX},
      {{4, 5}, {4, 1}, false, 4},   {{4, 5}, {0, 1}, false, 0},  {{4, 5}, {-5, 1}, false, -5},
      {{4, 5}, {10, 2}, false, 10}, {{4, 5}, {1, 4}, false, 1},  {{1, 5}, {-7, 1}, true, 5},
      {{1, 5}, {5, 2}, false, 5},   {{4, 1}, {3, 99}, true, 3},  {{4, 1}, {0, 1}, false, 0},
      {{1, 1}, {-7, -8}, true, 1},  {{0, 5}, {-7, -8}, true, 5}, {{4, 0}, {-7, -8}, true, 0},
  };
  for (size_t i = 0; i < COUNT(rows); ++i) {
    moert_tensor matrix = make(2, (int64_t *)(uintptr_t)rows[i].shape, (int64_t *)(uintptr_t)rows[i].strides);
    assert_int_equal(moert__has_contiguous_rows(&matrix), rows[i].contiguous_rows);
    assert_int_equal(moert__row_stride(&matrix), rows[i].stride);
    matrix.strides = NULL;
    assert_true(moert__has_contiguous_rows(&matrix));
    assert_int_equal(moert__row_stride(&matrix), rows[i].shape[1]);
  }
}

static void addresses(void **state) {
  (void)state;
  char memory[8];
  moert_tensor tensor = make(0, NULL, NULL);
  tensor.byte_offset = 4;
  assert_null(moert__data(&tensor));
  tensor.data = memory;
  assert_ptr_equal(moert__data(&tensor), memory + 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(element_types),
      cmocka_unit_test(elements),
      cmocka_unit_test(elements_that_cannot_be_counted),
      cmocka_unit_test(contiguity),
      cmocka_unit_test(rows_that_lie_apart),
      cmocka_unit_test(addresses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

//===- tensor.c - element types, sizes, contiguity, addresses ---------------------------------------===//

#include "internal.h"

static const struct {
  moert_dtype dtype;
  int bit;
  const char *name;
} dtype_table[] = {
    {{MOERT_CODE_BFLOAT, 16, 1}, MOERT__DTYPE_BF16, "bf16"},
    {{MOERT_CODE_FLOAT, 16, 1}, MOERT__DTYPE_F16, "f16"},
    {{MOERT_CODE_FLOAT, 32, 1}, MOERT__DTYPE_F32, "f32"},
    {{MOERT_CODE_FLOAT, 64, 1}, MOERT__DTYPE_F64, "f64"},
    {{MOERT_CODE_INT, 8, 1}, MOERT__DTYPE_I8, "i8"},
    {{MOERT_CODE_INT, 16, 1}, MOERT__DTYPE_I16, "i16"},
    {{MOERT_CODE_INT, 32, 1}, MOERT__DTYPE_I32, "i32"},
    {{MOERT_CODE_INT, 64, 1}, MOERT__DTYPE_I64, "i64"},
    {{MOERT_CODE_UINT, 32, 1}, MOERT__DTYPE_UI32, "ui32"},
    {{MOERT_CODE_UINT, 8, 1}, MOERT__DTYPE_UI8, "ui8"},
    {{MOERT_CODE_UINT, 16, 1}, 0, "ui16"},
    {{MOERT_CODE_UINT, 64, 1}, MOERT__DTYPE_UI64, "ui64"},
    {{MOERT_CODE_BOOL, 8, 1}, 0, "bool"},
    {{MOERT_CODE_F8E4M3FN, 8, 1}, MOERT__DTYPE_F8E4M3FN, "f8E4M3FN"},
    {{MOERT_CODE_F8E5M2, 8, 1}, 0, "f8E5M2"},
    {{MOERT_CODE_F8E8M0FNU, 8, 1}, MOERT__DTYPE_F8E8M0FNU, "f8E8M0FNU"},
};

bool moert__dtype_equal(moert_dtype a, moert_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

int moert__dtype_bit(moert_dtype dtype) {
  for (size_t i = 0; i < sizeof dtype_table / sizeof *dtype_table; ++i)
    if (moert__dtype_equal(dtype, dtype_table[i].dtype)) return dtype_table[i].bit;
  return 0;
}

int64_t moert__dtype_bytes(moert_dtype dtype) {
  int64_t bits = (int64_t)dtype.bits * dtype.lanes;
  return dtype.bits % 8 == 0 ? bits / 8 : 0;
}

const char *moert__dtype_name(moert_dtype dtype) {
  for (size_t i = 0; i < sizeof dtype_table / sizeof *dtype_table; ++i)
    if (moert__dtype_equal(dtype, dtype_table[i].dtype)) return dtype_table[i].name;
  return "?";
}

static bool is_empty(const moert_tensor *tensor) {
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] == 0) return true;
  return false;
}

bool moert__is_contiguous(const moert_tensor *tensor) {
  if (!tensor->strides || is_empty(tensor)) return true;
  int64_t expected = 1;
  for (int32_t d = tensor->ndim - 1; d >= 0; --d) {
    if (tensor->shape[d] != 1 && tensor->strides[d] != expected) return false;
    if (__builtin_mul_overflow(expected, tensor->shape[d], &expected)) return false;
  }
  return true;
}

bool moert__has_contiguous_rows(const moert_tensor *matrix) {
  if (!matrix->strides || is_empty(matrix)) return true;
  bool together = matrix->shape[1] == 1 || matrix->strides[1] == 1, apart = matrix->shape[0] == 1 || matrix->strides[0] >= matrix->shape[1];
  return together && apart;
}

// The stride of a dimension that nobody steps along may be any number.
int64_t moert__row_stride(const moert_tensor *matrix) {
  return matrix->strides && matrix->shape[0] > 1 && matrix->shape[1] > 0 ? matrix->strides[0] : matrix->shape[1];
}

// -1 if a size is negative or the product has no 64-bit value: the common checks refuse such a tensor.
int64_t moert__elements(const moert_tensor *tensor) {
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] < 0) return -1;
  if (is_empty(tensor)) return 0;
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d)
    if (__builtin_mul_overflow(elements, tensor->shape[d], &elements)) return -1;
  return elements;
}

int64_t moert__row_bytes(const moert_tensor *tensor, int32_t leading) {
  int64_t bytes = moert__dtype_bytes(tensor->dtype);
  for (int32_t d = leading; d < tensor->ndim; ++d)
    if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes)) return -1;
  return bytes;
}

// By integers: of a tensor that is not checked yet, or has no elements, the sum need not be an address.
void *moert__data(const moert_tensor *tensor) { return tensor->data ? (void *)((uintptr_t)tensor->data + tensor->byte_offset) : NULL; }

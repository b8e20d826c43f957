//===- checks.h - checks that host implementations of ops share -----------------------------------===//
#ifndef MOERT_REFERENCE_CHECKS_H
#define MOERT_REFERENCE_CHECKS_H

#include "lib/runtime/shared.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>

// That a dimension has the size that `source` says.
static inline moert_status moert__check_dimension(const moert_tensor *tensor, const char *name, int dimension, int64_t size, const char *source) {
  if (tensor->shape[dimension] == size) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand '%s' dimension %d is %" PRId64 ", must equal %s = %" PRId64, name, dimension,
                     tensor->shape[dimension], source, size);
}

static inline moert_status moert__check_multiple(const moert_tensor *tensor, const char *name, int dimension, int64_t factor) {
  if (tensor->shape[dimension] % factor == 0) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_SHAPE, "operand '%s' dimension %d is %" PRId64 ", must be a multiple of %" PRId64, name, dimension,
                     tensor->shape[dimension], factor);
}

// That a parameter, which is finite as a double, is as a float.
static inline moert_status moert__check_f32(const char *name, double value) {
  if (fabs(value) <= FLT_MAX) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter '%s' is %g, beyond the largest f32, %g", name, value, (double)FLT_MAX);
}

#endif

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

// Of ops without kernels: the host's code cannot read what a device's tensors hold.
static inline moert_status moert__check_on_host(const moert_tensor *tensor) {
  if (tensor->device.type == MOERT_DEVICE_CPU) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED, "there are no kernels for devices yet: call it on the host backend");
}

// That a parameter, which is finite as a double, is as a float.
static inline moert_status moert__check_f32(const char *name, double value) {
  if (fabs(value) <= FLT_MAX) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter '%s' is %g, beyond the largest f32, %g", name, value, (double)FLT_MAX);
}

#endif

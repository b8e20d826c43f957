//===- npy.h - arrays in NumPy's .npy files -------------------------------------------------------===//
//
// Versions 1.0 to 3.0, little-endian, in C order. What does not fit is refused with a message that names the file.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_RUN_NPY_H
#define MOE_RUN_NPY_H

#include "text.h"

enum { NPY_MAX_DIMENSIONS = TEXT_MAX_DIMENSIONS, NPY_DESCR_BYTES = 8 };

typedef struct npy_array {
  char descr[NPY_DESCR_BYTES]; // "<f4"
  int64_t item_bytes;
  int64_t ndim;
  int64_t shape[NPY_MAX_DIMENSIONS];
  size_t bytes;
  void *data;    // aligned to 64; writable, the file never changes
  void *mapping; // NULL: nothing is open
  size_t mapping_bytes;
  void *copy; // of data that was not aligned in the file
} npy_array;

run_exit npy_open(const char *path, npy_array *array, message *why);
void npy_close(npy_array *array); // also of a zeroed one
// "<f4[4, 7168]"
void npy_append_type(char *buffer, size_t size, const npy_array *array);

run_exit npy_write(const char *path, const char *descr, int64_t ndim, const int64_t *shape, const void *data, size_t bytes, message *why);

#endif

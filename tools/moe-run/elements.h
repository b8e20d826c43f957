//===- elements.h - element types: names, .npy types, numbers -------------------------------------===//
#ifndef MOE_RUN_ELEMENTS_H
#define MOE_RUN_ELEMENTS_H

#include <moert/moert.h>
#include <stdbool.h>

typedef struct element_type {
  moert_dtype dtype;
  const char *name; // "bf16"
  const char *npy;  // how .npy names it; types that NumPy does not have travel as raw integers
} element_type;

// NULL if moe-run does not know the type.
const element_type *element_type_of(moert_dtype dtype);
moert_dtype element_dtype(int64_t packed); // of moert_argument_info
int64_t element_bytes(const element_type *type);
bool element_is_float(const element_type *type);

// Whether elements of a .npy of this type ("<u2") are elements of `type`.
bool element_fits_npy(const element_type *type, const char *npy);

// One number as text, checked against the range of the type.
bool element_parse(const element_type *type, const char *text, void *element);
double element_widen(const element_type *type, const void *element);

// What an output holds before it is written: NaN, or 0x80 bytes for integers.
void elements_poison(const element_type *type, void *data, size_t bytes);
// Reproducible numbers: floats bell-shaped within (-1, 1); integers in [0, 8); booleans.
void elements_fill_random(const element_type *type, void *data, int64_t count, uint64_t seed);

#endif

//===- driver.h - functions of the driver, for C and for the kernels' launchers ---------------------------===//
#ifndef MOERT_CUDA_DRIVER_H
#define MOERT_CUDA_DRIVER_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// A function of the driver by its name; false: it does not have it.
bool moert__cuda_find_function(const char *name, void *function);

#ifdef __cplusplus
}
#endif
#endif

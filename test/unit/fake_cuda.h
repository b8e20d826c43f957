//===- fake_cuda.h - a stand-in for libmoert_cuda ---------------------------------------------------===//
//
// Its devices are the host's memory. It counts what it is asked for, and fails on request.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_FAKE_CUDA_H
#define MOERT_TEST_FAKE_CUDA_H

#include <moert/moert.h>
#include <stdbool.h>

typedef struct fake_cuda {
  int32_t num_devices;
  bool refuses_connect, refuses_map;
  int32_t connected[MOERT_MAX_RANKS], num_connected; // of the last `connect`
  _Atomic int mapped, allocated, shared, imported;   // now
  _Atomic int32_t device;                            // of the last allocation
} fake_cuda;

#endif

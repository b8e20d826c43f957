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
  bool refuses_connect, refuses_map, refuses_links;
  bool is_far;                      // no device addresses the memory of another
  bool connected_peers;             // of the last `connect`
  _Atomic int links, opened, boxes; // now; ever; outboxes now
  _Atomic uint64_t linked;          // the mask that the last links were opened for
  moert_allgather *gather;          // over a link
  void *gather_user;
  int32_t connected[MOERT_MAX_RANKS], num_connected; // of the last `connect`
  _Atomic int mapped, allocated, shared, imported;   // now
  _Atomic int32_t device;                            // of the last allocation
} fake_cuda;

#endif

//===- fake_backend.h - a device that is host memory, and remembers what it was asked --------------===//
//
// For tests of what the runtime does with a backend, on machines without devices. Link with --wrap for moert__backend_of_device and
// moert__backend_of_target: CUDA and sm_90a are this one then.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_FAKE_BACKEND_H
#define MOERT_TEST_FAKE_BACKEND_H

#include "lib/runtime/backend.h"

enum { FAKE_DEVICES = 3 };

typedef struct fake_state {
  // The function of this name fails the next time, with this status.
  const char *failing;
  moert_status failure;

  int device;        // that the thread is on, -1 before
  const char *range; // NULL: outside of all
  int depth;         // of ranges
  int allocations, streams, mapped, links, captures;
  size_t allocated; // bytes that are not released
  int last_device;  // of the last allocation or call on a stream
  void *last_stream;
  size_t last_bytes;
  unsigned char last_value;
  int synchronizations, fills, copies, replays;
  bool capturing, kept;
  void *last_capture;
  char log[512]; // names of the calls on streams and captures since it was cleared, each with a space behind it

  // The last op.
  int op;
  int32_t instance;
  moert_context *context, *current; // its own, and the thread's
  const char *op_range;
  int op_device;
  const void *op_args;
  moert_status op_status; // what ops return
} fake_state;

extern fake_state fake;
extern const moert__backend fake_backend;

// Forget what was asked, not what there is.
void fake_clear(void);
// What a kernel does.
void fake_report(moert_context *context, int op, int kind, long long v0, long long v1, long long v2, long long v3, long long v4, long long v5);

#endif

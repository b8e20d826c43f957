//===- runtime.h - what only the files of lib/runtime share -----------------------------------------===//
//
// status.c   texts of several parts, the current op
// fault.c    texts of records
// comm.c     the default deadline
// context.c  calls on a context's device
// kernel.c   what handles stand for
// check.c    checks of one tensor, for operands of ops and arguments of graphs alike
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_RUNTIME_H
#define MOERT_RUNTIME_H

#include "backend.h"

//===--- status.c ---------------------------------------------------------------------------------===//

const char *moert__current_op(void); // what moert__enter_op set, or NULL

// A text that grows; what does not fit is cut off.
typedef struct moert__text {
  size_t length;
  char data[1536];
} moert__text;
void moert__append(moert__text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

// How often moert__fail was called on this thread.
uint64_t moert__count_failures(void);

//===--- fault.c ----------------------------------------------------------------------------------===//

// Append "<op>: <text>" of the fault that stands in a record, and return its status; nothing if none does.
moert_status moert__fault_describe(const moert__fault *fault, moert__text *text);
// Append what a kernel waits for; false: none waits long.
bool moert__fault_describe_wait(const moert__fault *fault, moert__text *text);

//===--- comm.c -----------------------------------------------------------------------------------===//

#define MOERT__MAX_TIMEOUT_MS INT64_C(1000000000000) // 31 years: sums of deadlines stay far from overflow

// Environment MOERT_TIMEOUT_MS, else 30000.
moert_status moert__default_timeout_ms(int64_t *timeout_ms);

//===--- context.c --------------------------------------------------------------------------------===//

// The thread is on the context's device, and in a range of profilers that is called `range`, until it leaves.
typedef struct moert__visit {
  const moert__backend *backend;
  int32_t previous;
} moert__visit;
moert__visit moert__enter_device(const moert_context *context, const char *range);
void moert__leave_device(moert__visit visit);

// Sets what moert__current_context returns, and returns what that was.
moert_context *moert__enter_context(moert_context *context);

// moert__context_launch_status, and forgets it.
moert_status moert__context_take_launch_status(moert_context *context);

// What a kernel of an earlier call reported, once: its status with its text. A fault of an exchange becomes the communicator's first error.
moert_status moert__context_take_fault(moert_context *context);

//===--- kernel.c ---------------------------------------------------------------------------------===//

// What a launcher of the op is told for `kernel`, which may be NULL. Errors: INVALID_ARGUMENT (no handle, or one of another op), UNSUPPORTED (the
// context's backend has no kernels to choose from).
moert_status moert__kernel_instance(const moert_kernel *kernel, int op, const moert_context *context, int32_t *instance);

//===--- check.c ----------------------------------------------------------------------------------===//

// What a tensor is called in error texts: "operand 'payloads[1]'".
typedef struct moert__subject {
  const char *kind, *name;
  int64_t index; // in its list, -1 if it is not in one
} moert__subject;

// moert__fail with the subject in front; `format` begins with ':' or ' '.
moert_status moert__fail_subject(moert_status status, const moert__subject *subject, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Rank (-1: any from 1) and sizes: none negative.
moert_status moert__check_shape(const moert__subject *subject, const moert_tensor *tensor, int64_t rank);
// Element type: one of the set, or any of whole bytes if the set is empty.
moert_status moert__check_dtype_set(const moert__subject *subject, const moert_tensor *tensor, int dtypes);
moert_status moert__check_dtype(const moert__subject *subject, const moert_tensor *tensor, moert_dtype dtype);
// Data, device, contiguity, alignment, and that symmetric memory is the communicator's. After the two above; element types of whole bytes. `flags`:
// those of an operand, of which MOERT__STRIDED allows rows of a matrix to lie apart, but in symmetric memory. `comm` may be NULL for host memory.
moert_status moert__check_memory(const moert__subject *subject, const moert_tensor *tensor, moert_memory memory, int flags, moert_comm *comm);

// The bytes of a checked tensor, with those between rows that lie apart, to find overlaps.
typedef struct moert__extent {
  moert__subject subject;
  uintptr_t begin, end;
  bool written;
  bool shared;          // symmetric memory, which other tensors may be views of
  const char *in_place; // the tensor whose very memory this one may be, or NULL
} moert__extent;
moert__extent moert__extent_of(const moert__subject *subject, const moert_tensor *tensor, bool written, moert_memory memory);
// What is written overlaps nothing else, but for the tensor that it may replace.
moert_status moert__check_overlap(const moert__extent *extents, int64_t count);

#endif

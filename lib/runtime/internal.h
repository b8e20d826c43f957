//===- internal.h - what the parts of libmoert share ----------------------------------------------===//
//
// status.c   statuses, the thread's last error
// tensor.c   element types, sizes, contiguity, addresses
// check.c    what ops and graphs ask of a tensor (runtime.h)
// comm.h     communicators, in several files: symmetric memory, waiting, recovery, processes
// context.c  contexts and their arena
// fault.c    what kernels reported
// kernel.c   handles of kernels
// graph.c    compiled graphs
// ops.c      the op functions: common checks, then the backend (lib/reference is the host backend)
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_INTERNAL_H
#define MOERT_INTERNAL_H

#include "lib/runtime/shared.h"
#include <stdatomic.h>
#include <unistd.h>

static inline size_t moert__page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

//===--- status.c ---------------------------------------------------------------------------------===//

// The op that this thread is in, or NULL; returns what was there before.
const char *moert__enter_op(const char *op);

//===--- tensor.c ---------------------------------------------------------------------------------===//

enum { // sets of element types, in descriptors
  MOERT__DTYPE_BF16 = 1 << 0,
  MOERT__DTYPE_F16 = 1 << 1,
  MOERT__DTYPE_F32 = 1 << 2,
  MOERT__DTYPE_F64 = 1 << 3,
  MOERT__DTYPE_I8 = 1 << 4,
  MOERT__DTYPE_I16 = 1 << 5,
  MOERT__DTYPE_I32 = 1 << 6,
  MOERT__DTYPE_I64 = 1 << 7,
  MOERT__DTYPE_UI32 = 1 << 8,
  MOERT__DTYPE_UI64 = 1 << 9,
  MOERT__DTYPE_UI8 = 1 << 10,
  MOERT__DTYPE_F8E4M3FN = 1 << 11,
  MOERT__DTYPE_F8E8M0FNU = 1 << 12
};

//===--- ops.c ------------------------------------------------------------------------------------===//

enum { MOERT__OPTIONAL = 1, MOERT__DESTINATION = 2, MOERT__STRIDED = 4 };

typedef struct moert__operand {
  const char *name;
  size_t offset; // of the pointer in the args struct
  size_t count;  // of its number in the args struct if it is a list, else 0
  int dtypes;    // set of MOERT__DTYPE_..., 0: any of whole bytes
  int rank;      // -1: any from 1
  moert_memory memory;
  int flags;
  const char *in_place; // of a destination: the input whose very memory it may be, or NULL
} moert__operand;

typedef enum moert__parameter_kind {
  MOERT__PARAMETER_INT,
  MOERT__PARAMETER_FLOAT,
  MOERT__PARAMETER_BOOL,
  MOERT__PARAMETER_ENUM
} moert__parameter_kind;

typedef struct moert__parameter {
  const char *name;
  size_t offset;
  moert__parameter_kind kind;
  int64_t minimum, maximum; // not of FLOAT, which must be finite
} moert__parameter;

// `instance`: which kernel of the op, as shared.h says.
typedef moert_status moert__backend_function(const void *params, const void *args, int32_t instance, moert_context *context);

typedef struct moert__op {
  int index; // MOERT__OP_...
  const char *name;
  size_t params_size, args_size;
  const moert__operand *operands;
  int num_operands;
  const moert__parameter *parameters;
  int num_parameters;
  bool fabric; // talks to other ranks: refused while the communicator stands in error
  bool kernel; // devices have kernels for it; else the host's function serves every backend
  moert__backend_function *host;
} moert__op;

// What every op function does: check the context, the structs, the parameters' ranges, and each operand's presence, rank, element type, memory,
// contiguity and alignment; then run the backend's function. Backend functions check what is particular to their op: sizes that must
// agree, values, capacity. Nothing is written before all checks have passed.
moert_status moert__run(const moert__op *op, const void *params, const void *args, moert_kernel *kernel, moert_context *context);

// By MOERT__OP_...; NULL: there is no such op.
const moert__op *moert__op_of(int index);

//===--- fault.c ----------------------------------------------------------------------------------===//

// The status of the fault that stands in a record, MOERT_OK if none does (nor if `fault` is NULL). Reads host memory only; any thread may look.
moert_status moert__fault_status(const moert__fault *fault);
// The same, with its text "<op>: ..." as the last error.
moert_status moert__fault_tell(const moert__fault *fault);
// The same, and clears the record. Only the context that the record is of takes it, and moert_comm_recover, which forgets errors.
moert_status moert__fault_take(moert__fault *fault);
// Whether the fault is of an exchange, which peers can feel.
bool moert__fault_is_shared(const moert__fault *fault);

//===--- comm.h -----------------------------------------------------------------------------------===//

const moert__backend *moert__comm_backend(const moert_comm *comm);
// A record for the kernels of one more context of this rank, with nothing in it; a check of the communicator looks at it too. To destroy NULL does
// nothing.
moert_status moert__comm_create_fault(moert_comm *comm, moert__fault **fault);
void moert__comm_destroy_fault(moert_comm *comm, moert__fault *fault);
// What kernels need to know of the ranks; `timeout_ns`, `fault` and `op` stay 0 for the context.
moert__watch moert__comm_watch(moert_comm *comm);
// Collective, a barrier: whether all living ranks gave this number, for the same place in symmetric memory. *other: the first that did not, else -1.
moert_status moert__symmetric_agree(moert_comm *comm, const void *address, uint32_t number, int64_t timeout_ms, int32_t *other);
// How often moert_comm_recover has cleared the errors of this rank: contexts forget theirs when the number has changed.
uint32_t moert__comm_recoveries(const moert_comm *comm);

// Wait until *word is `epoch`, or if not `exact` has gone beyond it (modulo 2^32), with acquire order.
// Meanwhile look at *announced, if not NULL: what `peer` says that it is doing, hash << 32 | epoch. The same epoch with another hash than
// `expected`'s is PEER_MISMATCH. A peer that has reported an error, or whose process has ended, is PEER_FAILED, and so is one that has gone on
// without this rank; past the context's deadline it is PEER_TIMEOUT. The last error says who waited for whom, in which op, for what (`what`: "its
// data", "its counts"; up to 31 characters), and the epoch. All of them become the communicator's first error.
typedef struct moert__wait {
  const _Atomic uint32_t *word;
  uint32_t epoch;
  int32_t peer;
  const char *what;
  const _Atomic uint64_t *announced;
  uint64_t expected;
  bool exact;
} moert__wait;
moert_status moert__wait_for(moert_context *context, const moert__wait *wait, int64_t deadline_ns);
int64_t moert__deadline_ns(const moert_context *context); // now + timeout, on the monotonic clock

#endif

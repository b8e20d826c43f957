//===- internal.h - what the parts of libmoert share ----------------------------------------------===//
//
// status.c   statuses, the thread's last error
// tensor.c   element types, sizes, contiguity, addresses
// check.c    what ops and graphs ask of a tensor (runtime.h)
// comm.c     communicators whose ranks are threads; symmetric memory; waiting
// context.c  contexts and their arena
// graph.c    compiled graphs
// ops.c      the op functions: common checks, then the backend (lib/reference is the host backend)
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_INTERNAL_H
#define MOERT_INTERNAL_H

#include <moert/moert.h>
#include <moert/ops.h>
#include <stdatomic.h>
#include <stdbool.h>

//===--- status.c ---------------------------------------------------------------------------------===//

// Set the thread's last error ("<op>: <text>" inside an op) and return `status`. The first function that decides that
// something is an error calls this; its callers only forward the status.
moert_status moert__fail(moert_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
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
  MOERT__DTYPE_UI64 = 1 << 9
};

bool moert__dtype_equal(moert_dtype a, moert_dtype b);
int moert__dtype_bit(moert_dtype dtype);                               // the bit above, 0 for all others
int64_t moert__dtype_bytes(moert_dtype dtype);                         // 0 if not whole bytes
const char *moert__dtype_name(moert_dtype dtype);                      // "bf16"; "?" if unknown
bool moert__is_contiguous(const moert_tensor *tensor);                 // row-major; dimensions of size 1 and empty tensors are free
int64_t moert__elements(const moert_tensor *tensor);                   // product of the shape; -1: it has no 64-bit value
int64_t moert__row_bytes(const moert_tensor *tensor, int32_t leading); // bytes of the dimensions from `leading` on; -1 likewise
void *moert__data(const moert_tensor *tensor);                         // data + byte_offset

//===--- ops.c ------------------------------------------------------------------------------------===//

enum { MOERT__OPTIONAL = 1, MOERT__DESTINATION = 2 };

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

typedef moert_status moert__backend_function(const void *params, const void *args, moert_context *context);

typedef struct moert__op {
  const char *name;
  size_t params_size, args_size;
  const moert__operand *operands;
  int num_operands;
  const moert__parameter *parameters;
  int num_parameters;
  bool fabric; // talks to other ranks: refused while the communicator stands in error
  moert__backend_function *host;
} moert__op;

#include "host.h" // generated: moert__host_<op>, the backend's functions, which lib/reference defines

// What every op function does: check the context, the structs, the parameters' ranges, and each operand's presence, rank, element type, memory,
// alignment and contiguity; then run the backend's function. Backend functions check what is particular to their op: sizes that must
// agree, values, capacity. Nothing is written before all checks have passed.
moert_status moert__run(const moert__op *op, const void *params, const void *args, moert_kernel *kernel, moert_context *context);

//===--- context.c --------------------------------------------------------------------------------===//

// Remember the first error that is not a bad argument.
void moert__context_note(moert_context *context, moert_status status);
int64_t moert__context_timeout_ms(const moert_context *context);
// Fault injection: MOERT_ERROR_STOPPED if the context's options stop this thread's op at `phase`, else MOERT_OK.
moert_status moert__stop_point(moert_context *context, const char *phase);
// Everything allocated since `mark` is free again.
typedef struct moert__arena_mark {
  void *chunk;
  size_t used, live;
} moert__arena_mark;
moert__arena_mark moert__arena_mark_get(const moert_context *context);
void moert__arena_rewind(moert_context *context, moert__arena_mark mark);

//===--- comm.c -----------------------------------------------------------------------------------===//

// The peers' addresses of `bytes` at `memory`, which must lie in one block of this rank's symmetric memory; else INVALID_MEMORY.
moert_status moert__symmetric_peers(moert_comm *comm, const void *memory, size_t bytes, void *peers[MOERT_MAX_RANKS]);

// Wait until *word has reached `epoch` (compared with >=, modulo 2^32), with acquire order.
// Meanwhile look at *announced, if not NULL: what `peer` says that it is doing, hash << 32 | epoch. The same epoch with another hash than
// `expected`'s is PEER_MISMATCH. A peer whose first error is set is PEER_FAILED; past the context's deadline it is PEER_TIMEOUT. The last error says
// who waited for whom, in which op, for what (`what`: "its data", "its counts"), and the epoch. All of them become the communicator's first error.
typedef struct moert__wait {
  const _Atomic uint32_t *word;
  uint32_t epoch;
  int32_t peer;
  const char *what;
  const _Atomic uint64_t *announced;
  uint64_t expected;
} moert__wait;
moert_status moert__wait_for(moert_context *context, const moert__wait *wait, int64_t deadline_ns);
int64_t moert__deadline_ns(const moert_context *context); // now + timeout, on the monotonic clock

// Record this rank's first error for itself and its peers. Statuses of class 1 and 2 and STOPPED are not recorded.
void moert__comm_note(moert_comm *comm, moert_status status);

#endif

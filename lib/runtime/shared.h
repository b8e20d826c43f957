//===- shared.h - what libmoert_cuda and its kernels' launchers use of libmoert -----------------------===//
//
// C, and C++ for launchers. libmoert exports it to the library of the same build, and promises it to nobody else.
//
// status.c   the thread's last error
// tensor.c   element types, sizes, addresses
// ops.c      the ops
// context.c  contexts: stream, faults, arena
// comm.c     communicators: errors, symmetric memory
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_SHARED_H
#define MOERT_SHARED_H

#include "lib/runtime/fault.h"
#include <moert/moert.h>
#include <moert/ops.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOERT__SHARED __attribute__((visibility("default")))

typedef struct moert__backend moert__backend; // backend.h

//===--- status.c ---------------------------------------------------------------------------------===//

// Set the thread's last error ("<op>: <text>" inside an op) and return `status`. The first function that decides that
// something is an error calls this; its callers only forward the status.
MOERT__SHARED moert_status moert__fail(moert_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

//===--- tensor.c ---------------------------------------------------------------------------------===//

MOERT__SHARED bool moert__dtype_equal(moert_dtype a, moert_dtype b);
MOERT__SHARED int moert__dtype_bit(moert_dtype dtype);                               // the bit above, 0 for all others
MOERT__SHARED int64_t moert__dtype_bytes(moert_dtype dtype);                         // 0 if not whole bytes
MOERT__SHARED const char *moert__dtype_name(moert_dtype dtype);                      // "bf16"; "?" if unknown
MOERT__SHARED bool moert__is_contiguous(const moert_tensor *tensor);                 // row-major; dimensions of size 1 and empty tensors are free
MOERT__SHARED bool moert__has_contiguous_rows(const moert_tensor *matrix);           // each of them is, and they do not overlap; they may lie apart
MOERT__SHARED int64_t moert__row_stride(const moert_tensor *matrix);                 // elements from row to row of such a matrix
MOERT__SHARED int64_t moert__elements(const moert_tensor *tensor);                   // product of the shape; -1: it has no 64-bit value
MOERT__SHARED int64_t moert__row_bytes(const moert_tensor *tensor, int32_t leading); // bytes of the dimensions from `leading` on; -1 likewise
MOERT__SHARED void *moert__data(const moert_tensor *tensor);                         // data + byte_offset

//===--- ops.c ------------------------------------------------------------------------------------===//

#include "host.h" // generated: MOERT__OP_<op>, and moert__host_<op>, the host backend's functions, which lib/reference defines

MOERT__SHARED const char *moert__op_name(int index); // "moe.dispatch" of MOERT__OP_MOE_DISPATCH; "?" of no op

// Which kernel of its op a launcher runs: the number of an instance (kernels/table.h), or one of these. An instance that was made for other
// parameters than the call's is an INVALID_ARGUMENT, for somebody named it.
enum {
  MOERT__CHOOSE = -1, // no kernel was named: the instance for the call's parameters, else the generic one
  MOERT__GENERIC = -2 // the generic one
};

//===--- context.c --------------------------------------------------------------------------------===//

// Remember the first error that is not a bad argument.
MOERT__SHARED void moert__context_note(moert_context *context, moert_status status);
MOERT__SHARED int64_t moert__context_timeout_ms(const moert_context *context);
// Fault injection: MOERT_ERROR_STOPPED if the context's options stop this thread's op at `phase`, else MOERT_OK.
MOERT__SHARED moert_status moert__stop_point(moert_context *context, const char *phase);
// Everything allocated since `mark` is free again.
typedef struct moert__arena_mark {
  void *chunk;
  size_t used, live;
} moert__arena_mark;
MOERT__SHARED moert__arena_mark moert__arena_mark_get(const moert_context *context);
MOERT__SHARED void moert__arena_rewind(moert_context *context, moert__arena_mark mark);

// The context whose graph function this thread is in, NULL outside: what a graph's own kernels are launched for.
MOERT__SHARED moert_context *moert__current_context(void);
// A kernel of the graph itself could not be launched: later ops of the call do not run, and it returns the first such status. MOERT_OK if there was
// none.
MOERT__SHARED void moert__context_fail_launch(moert_context *context, moert_status status);
MOERT__SHARED moert_status moert__context_launch_status(const moert_context *context);
MOERT__SHARED const moert__backend *moert__context_backend(const moert_context *context);
MOERT__SHARED int32_t moert__context_device(const moert_context *context);
// The record for faults of this context's kernels, which devices address as it is. Not on the host backend: NULL there.
MOERT__SHARED moert__fault *moert__context_fault(const moert_context *context);
// What kernels of the current op, an exchange, need to wait for peers.
MOERT__SHARED moert__watch moert__context_watch(moert_context *context, int op);
// Device memory on the context's stream, behind what was called before. On the host backend plain memset and memcpy.
MOERT__SHARED moert_status moert__context_fill(moert_context *context, void *memory, unsigned char value, size_t bytes);
MOERT__SHARED moert_status moert__context_copy(moert_context *context, void *to, const void *from, size_t bytes);
// NOT_CAPTURABLE inside a capture: for ops that must wait for the device or talk to other ranks' hosts.
MOERT__SHARED moert_status moert__context_check_not_capturing(const moert_context *context);

//===--- comm.c -----------------------------------------------------------------------------------===//

// How many ranks of the communicator are on this one's device, itself included: kernels of all of them wait for each other there.
MOERT__SHARED int32_t moert__comm_ranks_on_device(const moert_comm *comm);

// How this rank reaches peers whose memory it cannot address (lib/cuda/link.h); NULL: it can.
typedef struct moert__link moert__link;
MOERT__SHARED moert__link *moert__comm_link(const moert_comm *comm);

// Record this rank's first error for itself and its peers. Statuses of class 1 and 2 and STOPPED are not recorded.
MOERT__SHARED void moert__comm_note(moert_comm *comm, moert_status status);

// Host memory that belongs to an address in this rank's symmetric memory: what a rank remembers of a workspace. NULL if there is none. It is made
// zeroed, unless it is there already, and freed with the block that the address lies in.
enum { MOERT__NOTE_BYTES = 256 };
MOERT__SHARED void *moert__symmetric_note(moert_comm *comm, const void *address);
MOERT__SHARED moert_status moert__symmetric_make_note(moert_comm *comm, const void *address, void **note);

// The peers' addresses of `bytes` at `memory`, which must lie in one block of this rank's symmetric memory; else INVALID_MEMORY. NULL for ranks that
// no longer lived when the block was made, and for those whose memory this rank cannot address.
MOERT__SHARED moert_status moert__symmetric_peers(moert_comm *comm, const void *memory, size_t bytes, void *peers[MOERT_MAX_RANKS]);

// What the backend keeps for the block that an address lies in, until that is freed: NULL before the first time. *begin and *bytes are the block's.
// NULL if there is no such block.
MOERT__SHARED void **moert__symmetric_outboxes(moert_comm *comm, const void *address, void **begin, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif

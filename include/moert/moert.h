/*===- moert.h - the run side of moe-mlir -----------------------------------------------------------===*
 *
 * What a compiled graph runs on, and what a program calls to run it:
 *
 *   status         every function that can fail returns one; moert_last_error() says which argument, value and bound
 *   communicator   a rank among its peers: barrier, symmetric memory, the first error
 *   context        what one call needs: communicator, stream, deadline, arena for intermediates
 *   graph          a compiled graph: load, look at, call
 *   ops            one function per op: <moert/ops.h>
 *
 * Rules that hold throughout
 *   - No function aborts, exits or prints. Outputs are written only when all checks have passed; after an error from a peer, those of an exchange
 *     are NaN, or -1 in integers.
 *   - Structs begin with `struct_size` and have an INIT macro; fields are only ever added at their end. A size that the library
 *     does not know is refused with a text that names both.
 *   - "Collective": every rank of the communicator must make the call, in the same order. "Local": no other rank is involved.
 *   - Every function may be called from any thread; one context or communicator is used by one thread at a time.
 *   - Nothing here is capturable in a CUDA graph unless it says so.
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOERT_MOERT_H
#define MOERT_MOERT_H

#include <moert/workspace.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#error "moe-mlir runs on Linux"
#endif
#define MOERT_API __attribute__((visibility("default")))

/* The version of the layouts below and of the op functions. A graph carries the one that it was compiled for, and is refused by
 * a library of another. */
#define MOERT_ABI_VERSION 2

/*===--- status -------------------------------------------------------------------------------------===*/

/* Classed by thousands: 1 bad argument, 2 unsupported, 3 capacity, 4 execution, 5 peer, 6 internal. Values never change. */
#define MOERT_STATUS_MAP(X)                                                                                                                          \
  X(MOERT_OK, 0, "no error")                                                                                                                         \
  X(MOERT_ERROR_INVALID_ARGUMENT, 1001, "an argument has a value that is not allowed")                                                               \
  X(MOERT_ERROR_NULL_POINTER, 1002, "a pointer that must be set is NULL")                                                                            \
  X(MOERT_ERROR_INVALID_SHAPE, 1003, "a tensor has the wrong rank or a wrong dimension")                                                             \
  X(MOERT_ERROR_INVALID_DTYPE, 1004, "a tensor has the wrong element type")                                                                          \
  X(MOERT_ERROR_INVALID_MEMORY, 1005, "a tensor lies in the wrong kind of memory")                                                                   \
  X(MOERT_ERROR_MISALIGNED, 1006, "a pointer is not aligned to its element type")                                                                    \
  X(MOERT_ERROR_NOT_CONTIGUOUS, 1007, "a tensor is not contiguous in row-major order")                                                               \
  X(MOERT_ERROR_INVALID_STATE, 1008, "the call does not fit what was called before")                                                                 \
  X(MOERT_ERROR_STRUCT_SIZE, 1009, "a struct_size is not one that this library knows")                                                               \
  X(MOERT_ERROR_NOT_FOUND, 1010, "no such function, argument or file")                                                                               \
  X(MOERT_ERROR_OVERLAP, 1011, "an output overlaps an input")                                                                                        \
  X(MOERT_ERROR_UNSUPPORTED, 2001, "this library does not do that")                                                                                  \
  X(MOERT_ERROR_ABI_VERSION, 2002, "the graph was compiled for another version of the run side")                                                     \
  X(MOERT_ERROR_NO_KERNEL, 2003, "the library has no such kernel")                                                                                   \
  X(MOERT_ERROR_NOT_CAPTURABLE, 2004, "the call cannot be captured in a CUDA graph")                                                                 \
  X(MOERT_ERROR_NO_DEVICE, 2005, "there is no such device, or no driver for it")                                                                     \
  X(MOERT_ERROR_CAPACITY, 3001, "more tokens or rows than there is room for")                                                                        \
  X(MOERT_ERROR_OUT_OF_MEMORY, 3002, "memory could not be allocated")                                                                                \
  X(MOERT_ERROR_WORKSPACE_SIZE, 3003, "the workspace is too small")                                                                                  \
  X(MOERT_ERROR_DATA, 4001, "a tensor holds values that the op cannot work on")                                                                      \
  X(MOERT_ERROR_DEVICE, 4002, "a device reported an error")                                                                                          \
  X(MOERT_ERROR_PEER_TIMEOUT, 5001, "another rank did not arrive before the deadline")                                                               \
  X(MOERT_ERROR_PEER_MISMATCH, 5002, "another rank called another op or used other parameters")                                                      \
  X(MOERT_ERROR_PEER_FAILED, 5003, "another rank reported an error")                                                                                 \
  X(MOERT_ERROR_STOPPED, 5004, "this rank was stopped on request")                                                                                   \
  X(MOERT_ERROR_INTERNAL, 6001, "a defect of this library")                                                                                          \
  X(MOERT_ERROR_LOAD, 6002, "a shared library could not be loaded")

typedef enum moert_status {
#define MOERT_STATUS_ENUM(name, value, text) name = value,
  MOERT_STATUS_MAP(MOERT_STATUS_ENUM)
#undef MOERT_STATUS_ENUM
} moert_status;

MOERT_API const char *moert_status_name(moert_status status); /* "MOERT_ERROR_CAPACITY"; local */
MOERT_API const char *moert_status_text(moert_status status); /* the sentence of the table above; local */

/* What the last failed call of this thread said: op, argument, value, bound and, where there is one, the remedy. "" if
 * none failed. Valid until the next failing call of this thread. Local. */
MOERT_API const char *moert_last_error(void);

MOERT_API const char *moert_version(void); /* "0.1.0" */
MOERT_API int64_t moert_abi_version(void); /* MOERT_ABI_VERSION of the loaded library */

/*===--- tensors ------------------------------------------------------------------------------------===*/

/* The layout of DLPack's DLDevice, DLDataType and DLTensor (a test compares them), so that tensors of other libraries pass as they are. */
typedef struct moert_device {
  int32_t type; /* MOERT_DEVICE_... */
  int32_t id;
} moert_device;

enum { MOERT_DEVICE_CPU = 1, MOERT_DEVICE_CUDA = 2 };

typedef struct moert_dtype {
  uint8_t code; /* MOERT_CODE_... */
  uint8_t bits;
  uint16_t lanes;
} moert_dtype;

enum {
  MOERT_CODE_INT = 0,
  MOERT_CODE_UINT = 1,
  MOERT_CODE_FLOAT = 2,
  MOERT_CODE_BFLOAT = 4,
  MOERT_CODE_BOOL = 6,
  MOERT_CODE_F8E4M3FN = 10,
  MOERT_CODE_F8E5M2 = 12,
  MOERT_CODE_F8E8M0FNU = 14
};

typedef struct moert_tensor {
  void *data; /* may be NULL if the tensor has no elements */
  moert_device device;
  int32_t ndim;
  moert_dtype dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: contiguous in row-major order */
  uint64_t byte_offset;
} moert_tensor;

/*===--- communicators ------------------------------------------------------------------------------===*/

typedef struct moert_comm moert_comm;       /* one rank among its peers; long-lived */
typedef struct moert_context moert_context; /* what one call needs; cheap */
typedef struct moert_kernel moert_kernel;   /* a resolved kernel; NULL lets the library choose */
typedef struct moert_graph moert_graph;     /* a loaded graph */

enum { MOERT_MAX_RANKS = 64 };

/* How ranks on devices reach each other. PEER: kernels write to the memory of the others, which must be on one host. NCCL: kernels write to local
 * images of it, and NCCL, of a libnccl.so.2 that is loaded when it is needed, moves what is there; every rank needs a device of its own, and dispatch
 * and combine alone go this way. AUTO: what environment MOERT_TRANSPORT says (auto, peer, nccl); else PEER if all ranks are on one host and each can
 * address the memory of all others, and NCCL if not. */
enum { MOERT_TRANSPORT_AUTO = 0, MOERT_TRANSPORT_PEER = 1, MOERT_TRANSPORT_NCCL = 2 };

/* What the ranks of a communicator run on. All ranks must pass the same device_type and transport; `devices` of a process are those that it sees. */
typedef struct moert_comm_options {
  size_t struct_size;
  int32_t device_type;    /* MOERT_DEVICE_CPU: the host backend; MOERT_DEVICE_CUDA: libmoert_cuda.so, which is loaded when it is first asked for */
  int32_t num_devices;    /* how many `devices` there are; 0: all that this process sees */
  const int32_t *devices; /* rank r runs on devices[r % num_devices] (NULL: on r % num_devices). Several ranks may share a device. */
  int32_t transport;      /* MOERT_TRANSPORT_...; on the host backend AUTO or PEER, which are the same */
} moert_comm_options;

#define MOERT_COMM_OPTIONS_INIT {sizeof(moert_comm_options), MOERT_DEVICE_CPU, 0, NULL, MOERT_TRANSPORT_AUTO}

/* Make `size` (1 to 64) ranks as threads of this process. comms[r] is rank r's, owned by the caller; each may be used by its own thread. `options`
 * may be NULL: the host backend. Errors: NO_DEVICE, UNSUPPORTED (the transport PEER between devices that cannot address each other's memory, more
 * ranks on a device than can wait at once, or with NCCL than one), LOAD (NCCL is needed, but not there), DEVICE (what NCCL said). Local. */
MOERT_API moert_status moert_comm_create_threads(int32_t size, const moert_comm_options *options, moert_comm **comms);

/* How processes meet: every rank passes `bytes` bytes, and gets those of all ranks in the order of ranks. Returns 0 on success. */
typedef int moert_allgather(void *user, const void *mine, size_t bytes, void *all);

/* Make rank `rank` of `size` ranks, each of which is a process: of this host, of one user and in one PID namespace, unless the transport is NCCL.
 * `allgather` is called two to four times before this returns, as often on every rank, and never after; where the ranks have an NCCL communicator,
 * moert_nccl_allgather of <moert/nccl.h> is one. Errors as above, and PEER_MISMATCH (ranks disagree on size, device type or transport), PEER_FAILED
 * (another rank could not join, which the text names; or the allgather failed). Unless the allgather fails, all ranks have a communicator in the end,
 * or none. Collective. */
MOERT_API moert_status moert_comm_create_process(int32_t rank, int32_t size, const moert_comm_options *options, moert_allgather *allgather,
                                                 void *user, moert_comm **comm);

/* Release a rank's handle, after its contexts. Symmetric memory of ranks that are threads lives until the last of them is destroyed. A process gives
 * its own back at once: on the host peers still have it, on GPUs they must no longer use it, so meet at a barrier before, with idle streams. NULL is
 * ignored. Local. */
MOERT_API void moert_comm_destroy(moert_comm *comm);

MOERT_API int32_t moert_comm_rank(const moert_comm *comm);      /* local */
MOERT_API int32_t moert_comm_size(const moert_comm *comm);      /* local */
MOERT_API int32_t moert_comm_transport(const moert_comm *comm); /* PEER or NCCL, which was chosen; local */

/* The first error of this rank that peers can feel (peer, execution or capacity class, met inside a collective), MOERT_OK before. While it
 * stands, every later collective call on the communicator returns it at once, and peers that wait for this rank return
 * MOERT_ERROR_PEER_FAILED. Errors found before anything was sent do not count: correct the call and repeat it. Local. */
MOERT_API moert_status moert_comm_status(const moert_comm *comm);

/* Wait for all ranks, at most `timeout_ms` (0: the default of moert_context_options). Collective. */
MOERT_API moert_status moert_comm_barrier(moert_comm *comm, int64_t timeout_ms);

/* Report an error of the caller's own (a rank that cannot go on) to the peers, who then stop waiting for this rank. Local. */
MOERT_API void moert_comm_report(moert_comm *comm, moert_status status);

/* After an error: the ranks of `mask` (bit r: rank r lives) go on without the others. Clears their first errors, and every workspace of the
 * communicator as moe.initialize does; epochs begin anew, and addresses stay, so that captured CUDA graphs can be replayed (but those of the
 * transport NCCL, which must be captured again). From then on dispatches send nothing to ranks that are not in the mask and combines and all-reduces
 * add nothing of theirs; collectives wait for the mask's ranks alone. Ranks that were left out stay out: their calls return PEER_FAILED. All calls of
 * this rank must have returned, and its streams be idle. Collective of the ranks of `mask`, who must all pass the same. Errors: INVALID_ARGUMENT
 * (this rank is not in the mask, or the mask has ranks that do not exist or were left out before), PEER_TIMEOUT, PEER_MISMATCH (another mask). */
MOERT_API moert_status moert_comm_recover(moert_comm *comm, uint64_t mask, int64_t timeout_ms);
MOERT_API uint64_t moert_comm_mask(const moert_comm *comm); /* the ranks that live; local */

/* The device that this rank runs on. Local. */
MOERT_API moert_device moert_comm_device(const moert_comm *comm);

/* MOERT_OK, or the first error of this rank, one that a kernel met included. For hosts that replay CUDA graphs, whose calls return nothing: reads
 * host memory and waits for nothing, so that it sees what the device has come to. Sets the last error. Local. */
MOERT_API moert_status moert_comm_check(moert_comm *comm);

/* Describe every rank through `write`, a line at a time: its first error, what its host waits for, from whom, in which epoch; then what kernels of
 * its contexts have been waiting for, for some milliseconds at least, and what they have reported. For hangs and post-mortems; may be called from any
 * thread while ranks run. Reads host memory only: what lies in memory of the device, epochs of workspaces among it, it cannot know. Local. */
MOERT_API void moert_comm_dump(const moert_comm *comm, void (*write)(void *user, const char *line), void *user);

/* Symmetric memory: `bytes` of zeroed memory on every rank, aligned to 256, that peers can reach. All ranks must ask for the same size; if they do
 * not, or if one of them has no memory, all fail. Owned by the communicator. Collective. */
MOERT_API moert_status moert_symmetric_alloc(moert_comm *comm, size_t bytes, void **memory);
/* Collective: no rank may use the memory any more. NULL is ignored on all ranks alike. */
MOERT_API moert_status moert_symmetric_free(moert_comm *comm, void *memory);

/*===--- contexts -----------------------------------------------------------------------------------===*/

typedef struct moert_context_options {
  size_t struct_size;
  void *stream;       /* a cudaStream_t of the communicator's device, which must outlive the context; NULL: one
                         that the context makes. On the host backend NULL. */
  int64_t timeout_ms; /* how long to wait for a peer; 0: environment MOERT_TIMEOUT_MS, else 30000 */
  size_t arena_limit; /* bytes of intermediates that one call may use; 0: no limit */
  void *(*allocate)(void *user, size_t bytes, size_t alignment); /* of memory on the device; both or neither; NULL: the C library's, or a CUDA pool */
  void (*deallocate)(void *user, void *memory, size_t bytes);
  void *allocator_user;
  /* Called by the thread that met it with the context's first error that is not a bad argument, "<status>: <text>"; again after a recovery. NULL:
   * nothing is logged. */
  void (*log)(void *user, const char *line);
  void *log_user;
  /* Fault injection for tests of the waiting: before the "entry", after the "counts", after the "data" or before the "flag" of that op
   * ("moe.dispatch") the rank returns MOERT_ERROR_STOPPED as if it had died: its peers get no word of it. NULL: never. */
  const char *stop_op;
  const char *stop_phase;
} moert_context_options;

#define MOERT_CONTEXT_OPTIONS_INIT {sizeof(moert_context_options), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* `comm` must outlive the context; `options` may be NULL and is copied, its strings included. Local. */
MOERT_API moert_status moert_context_create(moert_comm *comm, const moert_context_options *options, moert_context **context);
/* Waits for the context's stream, whose kernels use what belongs to it. NULL is ignored. Local. */
MOERT_API void moert_context_destroy(moert_context *context);
MOERT_API moert_comm *moert_context_comm(const moert_context *context); /* local */

/* The first error of an op or graph call on this context that is not a bad argument, else that of its communicator. On devices ops run behind the
 * call: what a kernel finds wrong is here as soon as the device has come to it, without waiting, and is what the next call on the context returns.
 * Local. */
MOERT_API moert_status moert_context_status(const moert_context *context);

/* Wait until the device has done all that was called on this context, at most until the deadlines in it; then its status, with its text as the last
 * error. On the host backend there is nothing to wait for. Local. */
MOERT_API moert_status moert_context_synchronize(moert_context *context);

MOERT_API void *moert_context_stream(const moert_context *context); /* the stream of the options or of the context's own; local */

/* Memory for intermediates, aligned to 256, valid until the graph call that asks for it returns. Called by compiled graphs. `bytes` 0 gives a pointer
 * that must not be used. Local. */
MOERT_API moert_status moert_context_allocate(moert_context *context, int64_t bytes, void **memory);
/* The most bytes that were in use at once. Local. */
MOERT_API size_t moert_context_peak(const moert_context *context);

/*===--- memory and kernels -------------------------------------------------------------------------===*/

/* Memory on the communicator's device, and copies that are ordered on the context's stream, between host and device memory in any direction. A copy
 * from or to host memory has been done when this returns; one between device memory can be captured. For tools and tests: programs with an allocator
 * of their own do not need them. Local. */
MOERT_API moert_status moert_device_alloc(moert_comm *comm, size_t bytes, void **memory);
MOERT_API void moert_device_free(moert_comm *comm, void *memory); /* NULL is ignored */
MOERT_API moert_status moert_copy(moert_context *context, void *to, const void *from, size_t bytes);

/* The kernel that `key` names, "<op>/<target>/<element types>,<parameters>" as in moert_graph_description: the instance that was compiled for these
 * parameters if this library has it, else the generic one. A handle lives as long as the library. Errors: NO_KERNEL (no such op or target).
 * Local. */
MOERT_API moert_status moert_kernel_find(const char *key, moert_kernel **kernel);
MOERT_API const char *moert_kernel_name(const moert_kernel *kernel); /* "moe.combine/sm_90a/bf16,hidden_size=7168,top_k=8", "…/generic"; local */

/*===--- graphs -------------------------------------------------------------------------------------===*/

/* What a compiled graph says of itself: the data symbol `moert_graph_info` of graph.so. */

typedef enum moert_role { MOERT_ROLE_IN = 0, MOERT_ROLE_OUT = 1, MOERT_ROLE_INOUT = 2 } moert_role;

typedef enum moert_memory {
  MOERT_MEMORY_DEVICE = 0, /* on the device of the context; the host backend's device is the host */
  MOERT_MEMORY_HOST = 1,
  MOERT_MEMORY_SYMMETRIC = 2, /* from moert_symmetric_alloc */
  MOERT_MEMORY_VALUE = 3      /* a number: the tensor has rank 0, and its data lies in host memory */
} moert_memory;

typedef struct moert_argument_info {
  const char *name;
  int64_t dtype;  /* moert_dtype: code | bits << 8 | lanes << 16 */
  int64_t role;   /* moert_role */
  int64_t memory; /* moert_memory */
  int64_t ndim;
  const int64_t *shape;                  /* -1: dynamic */
  const char *const *symbols;            /* of each dimension: its name, equal names are equal sizes; NULL: static or free */
  const moert_workspace_info *workspace; /* of symmetric memory that an op of the graph initialises, else NULL */
} moert_argument_info;

/* arguments[i] points to the memref descriptor of argument i, or to the number that is passed by value. */
typedef moert_status moert_graph_function(void *const *arguments, moert_context *context);

typedef struct moert_function_info {
  const char *name;
  moert_graph_function *entry;
  int64_t num_arguments; /* without the context */
  const moert_argument_info *arguments;
  int64_t capturable; /* 0: it has ops that cannot be captured in a CUDA graph (moe.initialize, ep.init) */
} moert_function_info;

#define MOERT_GRAPH_MAGIC UINT64_C(0x6870726765726f6d) /* "moregrph" */

typedef struct moert_graph_description {
  uint64_t magic;
  int64_t abi_version;
  int64_t struct_size;
  const char *target;   /* "host", "sm_90a" */
  const char *producer; /* "moe-mlir 0.1.0, LLVM 22.1.8" */
  int64_t num_functions;
  const moert_function_info *functions;
  int64_t num_kernel_keys;
  const char *const *kernel_keys; /* of the ops of the graph, each once */
  moert_kernel **kernels;         /* of each key, what moert_kernel_find gives: set when the graph is loaded, NULL on the host backend */
} moert_graph_description;

/* A graph.so that was compiled for a device has the same functions for the host backend too: the data symbol `moert_graph_info_host`. A call runs
 * those of its context's backend. */

/* dlopen a graph. Errors: LOAD (not a library, unresolved symbols: their names are in the last error), NOT_FOUND (no such file, or not a compiled
 * graph), ABI_VERSION, STRUCT_SIZE, UNSUPPORTED (a target that this version does not know), NO_KERNEL. Its code comes to a device with the next call
 * there, which may wait for all work of the device: where ranks share one, load graphs before they run. Local. */
MOERT_API moert_status moert_graph_load(const char *path, moert_graph **graph);
MOERT_API void moert_graph_unload(moert_graph *graph);                                   /* local; NULL is ignored; no call may be running */
MOERT_API const moert_graph_description *moert_graph_describe(const moert_graph *graph); /* local; valid until unload */

/* Call a function with tensors in the order of its arguments. All are checked against the description before anything runs: number, element type,
 * rank, static sizes, equal symbols, contiguity, alignment, memory, overlap. The arena is rewound when the call returns. Collective if the function
 * has ops that are. */
MOERT_API moert_status moert_graph_call(moert_graph *graph, const char *function, const moert_tensor *arguments, int64_t num_arguments,
                                        moert_context *context);

/* A call that was captured in a CUDA graph. Replays take no host call of the runtime: what kernels find wrong is in moert_context_status, and
 * moert_comm_check. */
typedef struct moert_capture moert_capture;

/* Capture the call that moert_graph_call would make, with these tensors, without running it. Call the function once before on this context: code is
 * loaded and the arena grows there, not here. A capture belongs to its context, on whose stream it is replayed. Errors: as moert_graph_call, and
 * NOT_CAPTURABLE (an op of the function cannot be captured, or the arena is too small), UNSUPPORTED (the host backend). Local; but where ranks share
 * a device, each meets its peers at a barrier between its captures and its first replay: to make a capture may wait for all work of the device, and
 * so for a replay that waits for this rank. */
MOERT_API moert_status moert_graph_capture(moert_graph *graph, const char *function, const moert_tensor *arguments, int64_t num_arguments,
                                           moert_context *context, moert_capture **capture);
/* Put a replay on the stream. Collective if the function has ops that are. */
MOERT_API moert_status moert_capture_replay(moert_capture *capture);
/* No replay may be running, on this rank or one that shares its device. NULL is ignored. Local. */
MOERT_API void moert_capture_destroy(moert_capture *capture);

#ifdef __cplusplus
}
#endif
#endif /* MOERT_MOERT_H */

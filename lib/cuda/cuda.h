//===- cuda.h - what the parts of libmoert_cuda share -------------------------------------------------===//
//
// backend.c  the table that libmoert asks for; devices, errors, ranges for profilers
// driver.c   what only the driver's interface has: a thread's device, loading of a kernel
// memory.c   device memory, memory that processes share, host memory that devices address
// stream.c   streams, copies, captures
// preload.c  the library's kernels are loaded before ranks wait for each other
// module.c   the kernels of compiled graphs
// nccl.c     NCCL, and the bootstrap by it: <moert/nccl.h>
// link.c     links between ranks that cannot address each other's memory
// outbox.c   local images of the memory of such peers
//
// Ranks of one device wait for each other in kernels. What CUDA does only when the device has nothing to do, or behind such a kernel, would wait with
// them: what a rank needs is made before there are ranks (`prepare` in backend.c), or comes from pools.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_CUDA_H
#define MOERT_CUDA_H

#include "lib/cuda/driver.h"
#include "lib/runtime/backend.h"
#include <cuda_runtime_api.h>

enum { MOERT__CUDA_MAX_DEVICES = 64 }; // `connect` refuses those with larger ordinals, so that tables need no other check

//===--- backend.c --------------------------------------------------------------------------------===//

// The status for an error of CUDA, with "<what>: <name> (<text>)" as the last error. An error that has broken the device's context is what every
// later call returns too; any other is forgotten here.
moert_status moert__cuda_fail(cudaError_t error, const char *what);

//===--- driver.c ---------------------------------------------------------------------------------===//

// The device becomes the thread's until `leave`, which takes what `enter` returned. -1: there is no such device; calls that follow go to another one
// or say what is wrong, so only a device that `connect` has been given may be entered.
int32_t moert__cuda_enter(int32_t device);
void moert__cuda_leave(int32_t entered);
// One of those that were entered before: for what concerns no particular one, and must not make a context on another.
int32_t moert__cuda_some_device(void);

// Have the code of a kernel on the thread's device, where it would else come with the first launch.
cudaError_t moert__cuda_load_kernel(cudaKernel_t kernel);

//===--- memory.c ---------------------------------------------------------------------------------===//

// Make the pool that `allocate` takes from, on the thread's device, `device`; once.
moert_status moert__cuda_make_pool(int32_t device);
moert_status moert__cuda_allocate(int32_t device, size_t bytes, void **memory);
void moert__cuda_release(int32_t device, void *memory, size_t bytes);
moert_status moert__cuda_allocate_shared(int32_t device, size_t bytes, void **memory, moert__memory_handle *handle);
void moert__cuda_release_shared(int32_t device, void *memory, size_t bytes);
moert_status moert__cuda_import_shared(int32_t device, const moert__memory_handle *handle, size_t bytes, void **memory);
void moert__cuda_forget_shared(int32_t device, void *memory, size_t bytes);
moert_status moert__cuda_map_host(void *memory, size_t bytes);
void moert__cuda_unmap_host(void *memory);

//===--- stream.c ---------------------------------------------------------------------------------===//

// Make the streams that `create_stream` takes from, and the library's own, on the thread's device, `device`; once.
moert_status moert__cuda_make_streams(int32_t device);
// For work of the library's own that waits for no rank. Not to be destroyed.
cudaStream_t moert__cuda_own_stream(int32_t device);
moert_status moert__cuda_create_stream(int32_t device, void **stream);
void moert__cuda_destroy_stream(int32_t device, void *stream);
moert_status moert__cuda_synchronize(int32_t device, void *stream);
bool moert__cuda_is_capturing(int32_t device, void *stream);
moert_status moert__cuda_fill(int32_t device, void *stream, void *memory, unsigned char value, size_t bytes);
moert_status moert__cuda_copy(int32_t device, void *stream, void *to, const void *from, size_t bytes);
moert_status moert__cuda_begin_capture(int32_t device, void *stream);
moert_status moert__cuda_end_capture(int32_t device, void *stream, bool keep, void **capture);
moert_status moert__cuda_replay_capture(int32_t device, void *stream, void *capture);
void moert__cuda_destroy_capture(int32_t device, void *capture);

//===--- preload.c --------------------------------------------------------------------------------===//

// Load every kernel of this library on the thread's device, `device`; once.
moert_status moert__cuda_preload(int32_t device);

//===--- link.c and outbox.c; link.h has the rest ----------------------------------------------------===//

moert_status moert__cuda_make_link_key(moert__link_key *key);
moert_status moert__cuda_open_links(const moert__link_key *key, const moert__link_rank *ranks, int32_t count, int64_t timeout_ms,
                                    moert__link **links);
moert_status moert__cuda_gather_over_link(moert__link *link, const void *mine, size_t bytes, void *all, int64_t timeout_ms);
void moert__cuda_close_link(moert__link *link);
void moert__cuda_release_outboxes(void *outboxes);

//===--- module.c ---------------------------------------------------------------------------------===//

// Load the kernels of the graphs of this process on the thread's device, `device`. What fails here fails again, and is reported, when the kernel is
// launched.
void moert__cuda_load_modules(int32_t device);

#endif

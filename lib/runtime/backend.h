//===- backend.h - what a kind of device does for the runtime ---------------------------------------===//
//
// libmoert has the host backend; libmoert_cuda has the other, and is loaded when a communicator or a graph first asks for it. Everything else of
// the run side is the same for both: communicators, contexts, checks of operands, statuses.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_BACKEND_H
#define MOERT_BACKEND_H

#include "lib/runtime/internal.h"

// How another process finds memory of this one. `bytes` are the backend's.
typedef struct moert__memory_handle {
  unsigned char bytes[64];
} moert__memory_handle;

// What the ranks of a transport that moves rows find each other by.
typedef struct moert__link_key {
  unsigned char bytes[128];
} moert__link_key;

// A rank on its way to a link.
typedef struct moert__link_rank {
  int32_t device;
  moert__watch watch;
  uint64_t mask; // of the ranks that have one
} moert__link_rank;

// Functions that can fail set the last error. `device` is an ordinal; host memory has none, and the host backend ignores it.
struct moert__backend {
  size_t struct_size;
  const char *name;         // "cuda"
  const char *target;       // of graphs that it runs: "sm_90a"
  int32_t device_type;      // MOERT_DEVICE_CUDA
  int32_t ranks_per_device; // at most: that many can wait for each other at the same time

  // Devices. `connect` makes those of this process ready for ranks; after it the memory of each is addressable from all if they are to be `peers`.
  moert_status (*count_devices)(int32_t *count);
  moert_status (*connect)(const int32_t *devices, int32_t count, bool peers);
  // Which device this is, the same in every process.
  moert_status (*identify)(int32_t device, unsigned char identity[16]);
  // Whether `device` can address the memory of that one. Of one that this process does not see, it is yes: importing its memory tells.
  bool (*reaches)(int32_t device, const unsigned char identity[16]);
  // Makes it the thread's current one; returns what was current before, for `leave`.
  int32_t (*enter)(int32_t device);
  void (*leave)(int32_t previous);

  // Memory, aligned to 256; `release` is told 0 bytes by those who do not know them. `allocate_shared` is cleared, and gets a handle if that is not
  // NULL: other processes may import it.
  moert_status (*allocate)(int32_t device, size_t bytes, void **memory);
  void (*release)(int32_t device, void *memory, size_t bytes);
  moert_status (*allocate_shared)(int32_t device, size_t bytes, void **memory, moert__memory_handle *handle);
  void (*release_shared)(int32_t device, void *memory, size_t bytes);
  moert_status (*import_shared)(int32_t device, const moert__memory_handle *handle, size_t bytes, void **memory);
  void (*forget_shared)(int32_t device, void *memory, size_t bytes);
  // What launchers have made for a block of symmetric memory (moert__symmetric_outboxes).
  void (*release_outboxes)(void *outboxes);
  // Host memory that kernels of every device may read and write at the same address.
  moert_status (*map_host)(void *memory, size_t bytes);
  void (*unmap_host)(void *memory);

  // The transport between ranks that cannot address each other's memory; NULL: there is none. A key is made by one rank, and told to all. `open` is
  // collective, for `count` ranks of this process. `gather` is an allgather of the living ranks' hosts, in the order of ranks.
  moert_status (*make_link_key)(moert__link_key *key);
  moert_status (*open_links)(const moert__link_key *key, const moert__link_rank *ranks, int32_t count, int64_t timeout_ms, moert__link **links);
  moert_status (*gather_over_link)(moert__link *link, const void *mine, size_t bytes, void *all, int64_t timeout_ms);
  void (*close_link)(moert__link *link);

  // Streams; all NULL on the host.
  moert_status (*create_stream)(int32_t device, void **stream);
  void (*destroy_stream)(int32_t device, void *stream);
  moert_status (*synchronize)(int32_t device, void *stream);
  bool (*is_capturing)(int32_t device, void *stream);
  moert_status (*fill)(int32_t device, void *stream, void *memory, unsigned char value, size_t bytes);
  moert_status (*copy)(int32_t device, void *stream, void *to, const void *from, size_t bytes); // whichever memory; host memory is done on return

  // What `begin` and `end` enclose on a stream is recorded, not run. `end` gives NULL if `keep` is false.
  moert_status (*begin_capture)(int32_t device, void *stream);
  moert_status (*end_capture)(int32_t device, void *stream, bool keep, void **capture);
  moert_status (*replay_capture)(int32_t device, void *stream, void *capture);
  void (*destroy_capture)(int32_t device, void *capture);

  // Ranges for profilers.
  void (*push_range)(const char *name);
  void (*pop_range)(void);

  // By MOERT__OP_...; NULL: the host's function serves here too.
  moert__backend_function *const *functions;
};

extern const moert__backend moert__host_backend;
// The backend of a device type, or of the target of a graph; loads libmoert_cuda.so, which lies beside libmoert.so or where the dynamic linker looks.
moert_status moert__backend_of_device(int32_t device_type, const moert__backend **backend);
moert_status moert__backend_of_target(const char *target, const moert__backend **backend);

// libmoert_cuda.so exports this.
#define MOERT__BACKEND_SYMBOL "moert__cuda_backend"
typedef const moert__backend *moert__backend_getter(void);

#endif

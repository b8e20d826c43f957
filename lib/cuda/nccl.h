//===- nccl.h - what is used of NCCL 2, which is looked for at run time ------------------------------------===//
#ifndef MOERT_CUDA_NCCL_H
#define MOERT_CUDA_NCCL_H

#include "cuda.h"

typedef struct ncclComm *moert__nccl_comm;
enum { MOERT__NCCL_SUCCESS = 0, MOERT__NCCL_IN_PROGRESS = 7, MOERT__NCCL_UINT8 = 1 }; // ncclResult_t, ncclDataType_t

// ncclConfig_t of NCCL 2.14, where it has its first field; later versions read the rest as not set.
typedef struct moert__nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking;
} moert__nccl_config;

typedef struct moert__nccl {
  void *handle;
  int (*count)(moert__nccl_comm comm, int *count);
  int (*device)(moert__nccl_comm comm, int *device);
  int (*async_error)(moert__nccl_comm comm, int *error);
  int (*all_gather)(const void *mine, void *all, size_t count, int type, moert__nccl_comm comm, cudaStream_t stream);
  const char *(*error_string)(int result);
  // Of links alone.
  int (*unique_id)(moert__link_key *id);
  int (*init_rank)(moert__nccl_comm *comm, int size, moert__link_key id, int rank, const moert__nccl_config *config);
  int (*finalize)(moert__nccl_comm comm);
  int (*destroy)(moert__nccl_comm comm);
  int (*abort)(moert__nccl_comm comm);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*send)(const void *data, size_t count, int type, int peer, moert__nccl_comm comm, cudaStream_t stream);
  int (*receive)(void *data, size_t count, int type, int peer, moert__nccl_comm comm, cudaStream_t stream);
} moert__nccl;

// For links: loaded once, and for good. Errors: LOAD.
moert_status moert__nccl_load(const moert__nccl **nccl);

#endif

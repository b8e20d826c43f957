//===- nccl_library.h - NCCL as tests use it themselves -------------------------------------------------------===//
//
// NCCL is looked for by its name, and need not be there; what is used of it is declared here, as NCCL 2 has it.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_TEST_NCCL_LIBRARY_H
#define MOERT_TEST_NCCL_LIBRARY_H

#include "gpu.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NCCL_ID_BYTES = 128, NCCL_UINT8 = 1 };

typedef struct nccl_id {
  char bytes[NCCL_ID_BYTES];
} nccl_id;

typedef struct ncclComm *nccl_comm;

typedef struct nccl_library {
  bool is_there;
  int (*get_unique_id)(nccl_id *id);
  int (*comm_init_rank)(nccl_comm *comm, int size, nccl_id id, int rank);
  int (*comm_destroy)(nccl_comm comm);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*send)(const void *data, size_t count, int type, int peer, nccl_comm comm, cudaStream_t stream);
  int (*receive)(void *data, size_t count, int type, int peer, nccl_comm comm, cudaStream_t stream);
} nccl_library;

static nccl_library nccl_found;

static inline bool nccl_find_function(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static inline void nccl_look_for(void) {
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  nccl_library *found = &nccl_found;
  found->is_there = library && nccl_find_function(library, "ncclGetUniqueId", &found->get_unique_id) &&
                    nccl_find_function(library, "ncclCommInitRank", &found->comm_init_rank) &&
                    nccl_find_function(library, "ncclCommDestroy", &found->comm_destroy) &&
                    nccl_find_function(library, "ncclGroupStart", &found->group_start) &&
                    nccl_find_function(library, "ncclGroupEnd", &found->group_end) && nccl_find_function(library, "ncclSend", &found->send) &&
                    nccl_find_function(library, "ncclRecv", &found->receive);
}

// Once in each process.
static inline bool nccl_find(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, nccl_look_for);
  return nccl_found.is_there;
}

// Makes NCCL go the way between hosts, unless the environment says otherwise. Before anything of NCCL is called.
static inline void nccl_keep_apart(void) {
  setenv("NCCL_P2P_DISABLE", "1", 0);
  setenv("NCCL_SHM_DISABLE", "1", 0);
  setenv("MOERT_TRANSPORT", "nccl", 1);
}

#endif

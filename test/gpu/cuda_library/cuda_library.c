//===- cuda_library.c - libmoert_cuda where there is no driver ------------------------------------------===//
//
//   cuda_library LIBRARY
//
// It can be loaded, and a communicator on it is refused with a text that says what is missing; so is the bootstrap by NCCL. Exit status 77 (skipped)
// where there is a driver.
//
//===----------------------------------------------------------------------------------------------===//

#include <dlfcn.h>
#include <moert/nccl.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void check(int holds, const char *what) {
  if (holds) return;
  printf("failed: %s (last error: %s)\n", what, moert_last_error());
  ++failures;
}

static void check_nccl(void *library) {
  moert_allgather *allgather = NULL;
  void *symbol = library ? dlsym(library, "moert_nccl_allgather") : NULL;
  memcpy(&allgather, &symbol, sizeof symbol);
  check(allgather != NULL, "it has the bootstrap by NCCL");
  if (!allgather) return;
  int mine = 1, all[2] = {-1, -1};
  check(allgather(NULL, &mine, sizeof mine, all) == MOERT_ERROR_NULL_POINTER, "no communicator of NCCL");
  moert_comm *comm = NULL;
  check(moert_comm_create_process(0, 2, NULL, allgather, &mine, &comm) == MOERT_ERROR_PEER_FAILED, "there is no NCCL to bootstrap by");
  check(strcmp(moert_last_error(), "the caller's allgather returned 6002: moert_nccl_allgather: the program has not loaded libnccl.so.2") == 0,
        "the text says so");
  check(comm == NULL && all[0] == -1, "nothing was written");
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  if (dlopen("libcuda.so.1", RTLD_NOW)) return 77;
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) printf("%s\n", dlerror());
  check(library != NULL, "the library can be loaded");
  check(library && dlsym(library, "moert__cuda_backend") != NULL, "it has the backend");

  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  options.device_type = MOERT_DEVICE_CUDA;
  moert_comm *comms[2] = {NULL, NULL};
  check(moert_comm_create_threads(2, &options, comms) == MOERT_ERROR_NO_DEVICE, "a communicator is refused with NO_DEVICE");
  check(comms[0] == NULL && comms[1] == NULL, "nothing was written");
  check(strcmp(moert_last_error(), "no CUDA device: cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA runtime version); "
                                   "the library needs an NVIDIA GPU and a driver for CUDA 13.0 or newer") == 0,
        "the text says what is missing");
  check_nccl(library);
  return failures > 0;
}

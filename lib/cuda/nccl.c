//===- nccl.c - NCCL, and ranks that find each other by it --------------------------------------------------===//
//
// The bootstrap uses the NCCL that the program has loaded, whose communicator it is given; links load one where there is none yet. What is used of it
// is declared in nccl.h, as NCCL 2 has it.
//
//===----------------------------------------------------------------------------------------------===//

#include "nccl.h"
#include <dlfcn.h>
#include <moert/nccl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

//===--- the library ----------------------------------------------------------------------------------===//

static bool find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol); // ISO C has no conversion between the two
  return symbol != NULL;
}

static bool find_gathering(moert__nccl *nccl) {
  void *library = nccl->handle;
  return find(library, "ncclCommCount", &nccl->count) && find(library, "ncclCommCuDevice", &nccl->device) &&
         find(library, "ncclCommGetAsyncError", &nccl->async_error) && find(library, "ncclAllGather", &nccl->all_gather) &&
         find(library, "ncclGetErrorString", &nccl->error_string);
}

static bool find_links(moert__nccl *nccl) {
  void *library = nccl->handle;
  return find(library, "ncclGetUniqueId", &nccl->unique_id) && find(library, "ncclCommInitRankConfig", &nccl->init_rank) &&
         find(library, "ncclCommFinalize", &nccl->finalize) && find(library, "ncclCommDestroy", &nccl->destroy) &&
         find(library, "ncclCommAbort", &nccl->abort) && find(library, "ncclGroupStart", &nccl->group_start) &&
         find(library, "ncclGroupEnd", &nccl->group_end) && find(library, "ncclSend", &nccl->send) && find(library, "ncclRecv", &nccl->receive);
}

// To be closed by the caller.
static moert_status open_nccl(moert__nccl *nccl) {
  nccl->handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (!nccl->handle) return moert__fail(MOERT_ERROR_LOAD, "moert_nccl_allgather: the program has not loaded libnccl.so.2");
  if (find_gathering(nccl)) return MOERT_OK;
  dlclose(nccl->handle);
  return moert__fail(MOERT_ERROR_LOAD, "moert_nccl_allgather: libnccl.so.2 lacks functions of NCCL 2");
}

static moert_status load(moert__nccl *nccl) {
  nccl->handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!nccl->handle)
    return moert__fail(MOERT_ERROR_LOAD, "the transport nccl needs libnccl.so.2, which cannot be loaded: %s; add its folder to LD_LIBRARY_PATH",
                       dlerror());
  if (find_gathering(nccl) && find_links(nccl)) return MOERT_OK;
  dlclose(nccl->handle);
  nccl->handle = NULL;
  return moert__fail(MOERT_ERROR_LOAD, "the transport nccl needs NCCL 2.14 or newer, of which libnccl.so.2 lacks functions");
}

moert_status moert__nccl_load(const moert__nccl **nccl) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static moert__nccl loaded;
  pthread_mutex_lock(&lock);
  moert_status status = loaded.handle ? MOERT_OK : load(&loaded);
  pthread_mutex_unlock(&lock);
  *nccl = &loaded;
  return status;
}

// What a function of NCCL returned; a communicator that does not block is waited for.
static moert_status finish(const moert__nccl *nccl, moert__nccl_comm comm, int result, const char *call) {
  const struct timespec pause = {0, 100000};
  int asked = MOERT__NCCL_SUCCESS;
  while (result == MOERT__NCCL_IN_PROGRESS && asked == MOERT__NCCL_SUCCESS) {
    nanosleep(&pause, NULL);
    asked = nccl->async_error(comm, &result);
  }
  if (asked != MOERT__NCCL_SUCCESS) result = asked;
  return result == MOERT__NCCL_SUCCESS ? MOERT_OK : moert__fail(MOERT_ERROR_DEVICE, "%s: %s", call, nccl->error_string(result));
}

//===--- the gathering --------------------------------------------------------------------------------===//

// A stream of its own, as NCCL's kernels wait for those of other ranks.
typedef struct Room {
  cudaStream_t stream;
  unsigned char *memory; // this rank's bytes, then all
} Room;

static cudaError_t make_room(Room *room, size_t bytes) {
  cudaError_t error = cudaStreamCreateWithFlags(&room->stream, cudaStreamNonBlocking);
  return error == cudaSuccess ? cudaMalloc((void **)&room->memory, bytes) : error;
}

static void leave_room(const Room *room) {
  if (room->memory && cudaFree(room->memory) != cudaSuccess) cudaGetLastError();
  if (room->stream && cudaStreamDestroy(room->stream) != cudaSuccess) cudaGetLastError();
}

static moert_status wait_for(cudaError_t error, cudaStream_t stream) {
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "moert_nccl_allgather");
}

static moert_status gather(const moert__nccl *nccl, moert__nccl_comm comm, const Room *room, const void *mine, size_t bytes, void *all, size_t size) {
  unsigned char *gathered = room->memory + bytes;
  cudaError_t error = cudaMemcpyAsync(room->memory, mine, bytes, cudaMemcpyHostToDevice, room->stream);
  if (error != cudaSuccess) return moert__cuda_fail(error, "moert_nccl_allgather");
  moert_status status = finish(nccl, comm, nccl->all_gather(room->memory, gathered, bytes, MOERT__NCCL_UINT8, comm, room->stream),
                               "moert_nccl_allgather: ncclAllGather");
  if (status) return status;
  return wait_for(cudaMemcpyAsync(all, gathered, bytes * size, cudaMemcpyDeviceToHost, room->stream), room->stream);
}

static moert_status gather_on_device(const moert__nccl *nccl, moert__nccl_comm comm, const void *mine, size_t bytes, void *all, size_t size,
                                     int device) {
  int32_t entered = moert__cuda_enter(device);
  if (entered < 0) return moert__fail(MOERT_ERROR_DEVICE, "moert_nccl_allgather: device %d of the ncclComm_t cannot be used", device);
  Room room = {NULL, NULL};
  cudaError_t error = make_room(&room, bytes * (size + 1));
  moert_status status =
      error == cudaSuccess ? gather(nccl, comm, &room, mine, bytes, all, size) : moert__cuda_fail(error, "moert_nccl_allgather: cudaMalloc");
  leave_room(&room);
  moert__cuda_leave(entered);
  return status;
}

int moert_nccl_allgather(void *user, const void *mine, size_t bytes, void *all) {
  if (!user) return (int)moert__fail(MOERT_ERROR_NULL_POINTER, "moert_nccl_allgather: user is NULL, must be an ncclComm_t");
  moert__nccl_comm comm = user;
  moert__nccl nccl;
  int size = 0, device = 0;
  moert_status status = open_nccl(&nccl);
  if (status) return (int)status;
  status = finish(&nccl, comm, nccl.count(comm, &size), "moert_nccl_allgather: ncclCommCount");
  if (!status) status = finish(&nccl, comm, nccl.device(comm, &device), "moert_nccl_allgather: ncclCommCuDevice");
  if (!status) status = gather_on_device(&nccl, comm, mine, bytes, all, (size_t)size, device);
  dlclose(nccl.handle);
  return (int)status;
}

/*===- nccl.h - ranks that find each other by NCCL ----------------------------------------------------===*
 *
 * For programs that have an NCCL communicator and no other means to talk between processes. Link with libmoert_cuda. The function uses the
 * libnccl.so.2 that the program has loaded, and loads none itself; the transport NCCL (moert_comm_options) does, if the program has none.
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOERT_NCCL_H
#define MOERT_NCCL_H

#include <moert/moert.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A moert_allgather whose `user` is the caller's ncclComm_t, of which rank and size are those of the communicator to be made:
 *
 *   status = moert_comm_create_process(rank, size, &options, moert_nccl_allgather, nccl, &comm);
 *
 * Runs ncclAllGather on a stream and memory of its own, on the communicator's device, and waits for it. Returns 0, or the moert_status whose text is
 * the last error: NULL_POINTER, LOAD (the program has not loaded libnccl.so.2), DEVICE (what NCCL or CUDA said), OUT_OF_MEMORY. Collective. */
MOERT_API int moert_nccl_allgather(void *user, const void *mine, size_t bytes, void *all);

#ifdef __cplusplus
}
#endif
#endif /* MOERT_NCCL_H */

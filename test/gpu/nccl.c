//===- nccl.c - ranks that find each other by NCCL -----------------------------------------------------------===//

#include "lib/runtime/shared.h"
#include "nccl_library.h"
#include <moert/nccl.h>
#include <stdio.h>

enum { RANKS = 2 };

//===--- a communicator of NCCL -----------------------------------------------------------------------===//

// All ranks have rank 0's, through the communicator that the harness has made.
static void share_id(gpu_rank *rank, nccl_id *id) {
  gpu_buffer *shared = gpu_new_symmetric(rank, "i8", 1, NCCL_ID_BYTES);
  void *peers[MOERT_MAX_RANKS];
  if (rank->rank == 0) {
    CHECK(nccl_found.get_unique_id(id) == 0);
    CHECK_OK(moert_copy(rank->context, shared->tensor.data, id, sizeof *id));
  }
  CHECK_OK(moert_comm_barrier(rank->comm, 0));
  if (CHECK_OK(moert__symmetric_peers(rank->comm, shared->tensor.data, NCCL_ID_BYTES, peers)))
    CHECK_OK(moert_copy(rank->context, id, peers[0], sizeof *id));
  CHECK_OK(moert_comm_barrier(rank->comm, 0));
}

// NULL on the host, which has nothing to do here.
static nccl_comm join_nccl(gpu_rank *rank) {
  nccl_id id;
  nccl_comm made = NULL;
  if (!rank->cuda || !CHECK(nccl_find())) return NULL;
  memset(&id, 0, sizeof id);
  share_id(rank, &id);
  cudaSetDevice(moert_comm_device(rank->comm).id);
  CHECK(nccl_found.comm_init_rank(&made, rank->size, id, rank->rank) == 0);
  return made;
}

//===--- tests ----------------------------------------------------------------------------------------===//

static void gather(gpu_rank *rank) {
  static const size_t sizes[] = {1, 7, 256, 100003};
  nccl_comm nccl = join_nccl(rank);
  int before = -1, after = -1;
  if (!nccl) return;
  cudaGetDevice(&before);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    size_t bytes = sizes[s], wrong = 0;
    unsigned char *mine = malloc(bytes), *all = malloc(RANKS * bytes);
    for (size_t i = 0; i < bytes; ++i) mine[i] = (unsigned char)(i * 7 + (size_t)rank->rank * 101);
    CHECK_OK((moert_status)moert_nccl_allgather(nccl, mine, bytes, all));
    for (size_t i = 0; i < RANKS * bytes; ++i) wrong += all[i] != (unsigned char)(i % bytes * 7 + i / bytes * 101);
    gpu_check(wrong == 0, __FILE__, __LINE__, "rank %d: %zu of %zu bytes are wrong", rank->rank, wrong, RANKS * bytes);
    free(mine);
    free(all);
  }
  cudaGetDevice(&after);
  CHECK(before == after);
  CHECK(nccl_found.comm_destroy(nccl) == 0);
}

// A word of each rank, written and read by all.
static void use(gpu_rank *rank, moert_comm *comm) {
  moert_context *context = NULL;
  void *memory = NULL, *peers[MOERT_MAX_RANKS];
  int32_t mine = 100 + rank->rank, theirs = 0;
  CHECK(moert_comm_rank(comm) == rank->rank && moert_comm_size(comm) == rank->size);
  if (!CHECK_OK(moert_context_create(comm, NULL, &context))) return;
  if (CHECK_OK(moert_symmetric_alloc(comm, sizeof mine, &memory)) && CHECK_OK(moert__symmetric_peers(comm, memory, sizeof mine, peers))) {
    CHECK_OK(moert_copy(context, memory, &mine, sizeof mine));
    CHECK_OK(moert_comm_barrier(comm, 0));
    for (int32_t r = 0; r < rank->size; ++r) {
      CHECK_OK(moert_copy(context, &theirs, peers[r], sizeof theirs));
      CHECK(theirs == 100 + r);
    }
  }
  CHECK_OK(moert_comm_barrier(comm, 0));
  moert_context_destroy(context);
}

static void bootstrap(gpu_rank *rank) {
  nccl_comm nccl = join_nccl(rank);
  if (!nccl) return;
  moert_comm_options options = MOERT_COMM_OPTIONS_INIT;
  moert_comm *comm = NULL;
  options.device_type = MOERT_DEVICE_CUDA;
  if (CHECK_OK(moert_comm_create_process(rank->rank, rank->size, &options, moert_nccl_allgather, nccl, &comm))) {
    CHECK(nccl_found.comm_destroy(nccl) == 0); // it was needed for the bootstrap alone
    use(rank, comm);
  }
  moert_comm_destroy(comm);
}

static void without_nccl(void) {
  int mine = 1, all[2];
  CHECK_FAILS((moert_status)moert_nccl_allgather(NULL, &mine, sizeof mine, all), MOERT_ERROR_NULL_POINTER,
              "moert_nccl_allgather: user is NULL, must be an ncclComm_t");
  CHECK_FAILS((moert_status)moert_nccl_allgather(&mine, &mine, sizeof mine, all), MOERT_ERROR_LOAD,
              "moert_nccl_allgather: the program has not loaded libnccl.so.2");
}

int main(int argc, char **argv) {
  gpu_begin(argc, argv);
  gpu_case("no NCCL is loaded") without_nccl();
  bool found = nccl_find();
  if (!found) printf("libnccl.so.2 is not where the dynamic linker looks (LD_LIBRARY_PATH): the cases with it are left out\n");
  if (found && gpu_count() < RANKS) printf("NCCL needs a GPU for each rank, there are %d: the cases with it are left out\n", gpu_count());
  if (!found || gpu_count() < RANKS || gpu_extent() == GPU_SMALL) return gpu_end();
  gpu_case("an allgather of NCCL, ranks as threads") gpu_only(RANKS, RANKS, gather, NULL);
  gpu_case("an allgather of NCCL, ranks as processes") gpu_processes(RANKS, RANKS, gather, NULL, 0, -1);
  gpu_case("processes that find each other by NCCL") gpu_processes(RANKS, RANKS, bootstrap, NULL, 0, -1);
  return gpu_end();
}

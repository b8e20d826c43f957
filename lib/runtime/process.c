//===- process.c - ranks that are processes ---------------------------------------------------------===//
//
// The processes meet through the caller's allgather, twice. First each says who it is; rank 0 has made the place, a file in memory, which the others
// open through rank 0's descriptor. The second time each says whether that went well, so that all have a communicator or none.
//
// A rank with an error of its own takes part in both, so that nobody is left waiting; only arguments without which there is no allgather are refused
// at once.
//
//===----------------------------------------------------------------------------------------------===//

#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HELLO_MAGIC UINT64_C(0x6f6c6c65682d656d) // "me-hello"

// What a rank tells all others.
typedef struct hello {
  uint64_t magic;
  int32_t abi_version, rank, size, device_type;
  int32_t status;        // of this rank so far
  int32_t process, file; // of rank 0: where the place is
  int32_t reserved;
  uint64_t nonce;
  unsigned char device[16]; // which it is
} hello;

// A rank on its way into the communicator.
typedef struct joining {
  int32_t rank, size;
  moert_allgather *allgather;
  void *user;
  int64_t timeout_ms;
  moert__group described;
  int file; // the place's, of rank 0; -1
  hello mine, all[MOERT_MAX_RANKS];
} joining;

//===--- processes --------------------------------------------------------------------------------===//

// A process that has ended but that its parent has not asked for is there still; its descriptor knows.
bool moert__process_has_ended(int32_t process) {
  int file = (int)syscall(SYS_pidfd_open, (pid_t)process, 0);
  if (file < 0) return errno == ESRCH || (errno == ENOSYS && kill(process, 0) && errno == ESRCH);
  struct pollfd ended = {.fd = file, .events = POLLIN};
  bool has = poll(&ended, 1, 0) == 1;
  close(file);
  return has;
}

//===--- the place --------------------------------------------------------------------------------===//

static moert_status fail_system(moert_status status, const char *what) { return moert__fail(status, "%s: %s", what, strerror(errno)); }

static moert_status map_place(joining *j, int file) {
  size_t bytes = moert__place_bytes(j->size);
  void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (place == MAP_FAILED) return fail_system(MOERT_ERROR_OUT_OF_MEMORY, "the ranks' shared memory cannot be mapped");
  j->described.place = place;
  return MOERT_OK;
}

static moert_status make_place(joining *j) {
  if (getrandom(&j->mine.nonce, sizeof j->mine.nonce, 0) != sizeof j->mine.nonce) return fail_system(MOERT_ERROR_INTERNAL, "getrandom");
  j->file = memfd_create("moert", MFD_CLOEXEC);
  if (j->file < 0 || ftruncate(j->file, (off_t)moert__place_bytes(j->size)))
    return fail_system(MOERT_ERROR_OUT_OF_MEMORY, "the ranks' shared memory cannot be made");
  moert_status status = map_place(j, j->file);
  if (status) return status;
  j->described.place->nonce = j->mine.nonce;
  j->mine.file = j->file;
  return MOERT_OK;
}

static moert_status open_place(joining *j) {
  const hello *first = &j->all[0];
  char path[64];
  snprintf(path, sizeof path, "/proc/%" PRId32 "/fd/%" PRId32, first->process, first->file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  struct stat found;
  bool fits = file >= 0 && !fstat(file, &found) && (size_t)found.st_size == moert__place_bytes(j->size);
  moert_status status = fits ? map_place(j, file) : MOERT_OK;
  if (file >= 0) close(file);
  if (status) return status;
  if (fits && j->described.place->nonce == first->nonce) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED,
                     "rank %" PRId32 " cannot open the memory of rank 0, %s: all ranks must be processes of one host, one user and one PID namespace",
                     j->rank, path);
}

//===--- the first time ---------------------------------------------------------------------------===//

static moert_status prepare(joining *j, const moert_comm_options *given) {
  moert_comm_options options;
  moert__group *group = &j->described;
  moert_status status = moert__default_timeout_ms(&j->timeout_ms);
  if (!status) status = moert__read_comm_options(given, &options);
  if (status) return status;
  j->mine.device_type = options.device_type;
  status = moert__place_ranks(&options, j->rank, 1, &group->backend, group->devices);
  if (!status) status = group->backend->identify(group->devices[j->rank], j->mine.device);
  return status || j->rank != 0 ? status : make_place(j);
}

static moert_status gather(joining *j, moert_status status) {
  j->mine.status = (int32_t)status;
  memset(j->all, 0, sizeof j->all); // larger than `size` hellos: a rank with too small a size finds more ranks here
  uint64_t failures = moert__count_failures();
  int failed = j->allgather(j->user, &j->mine, sizeof j->mine, j->all);
  if (!failed) return MOERT_OK;
  if (failures == moert__count_failures()) return moert__fail(MOERT_ERROR_PEER_FAILED, "the caller's allgather returned %d", failed);
  return moert__fail(MOERT_ERROR_PEER_FAILED, "the caller's allgather returned %d: %s", failed, moert_last_error()); // moert_nccl_allgather's
}

static moert_status check_hello(const joining *j, int32_t rank) {
  const hello *theirs = &j->all[rank];
  if (theirs->magic != HELLO_MAGIC || theirs->abi_version != MOERT_ABI_VERSION)
    return moert__fail(MOERT_ERROR_PEER_MISMATCH, "the allgather gave nothing for rank %" PRId32 " that this version of the library understands",
                       rank);
  if (theirs->size != j->size)
    return moert__fail(MOERT_ERROR_PEER_MISMATCH, "size is %" PRId32 " on rank %" PRId32 ", but %" PRId32 " on rank %" PRId32, j->size, j->rank,
                       theirs->size, theirs->rank);
  if (theirs->rank != rank)
    return moert__fail(MOERT_ERROR_PEER_MISMATCH, "the allgather gave rank %" PRId32 " in the place of rank %" PRId32, theirs->rank, rank);
  if (!theirs->status && !j->mine.status && theirs->device_type != j->mine.device_type)
    return moert__fail(MOERT_ERROR_PEER_MISMATCH, "options: device_type is %" PRId32 " on rank %" PRId32 ", but %" PRId32 " on rank %" PRId32,
                       j->mine.device_type, j->rank, theirs->device_type, rank);
  return MOERT_OK;
}

static moert_status check_statuses(const joining *j) {
  for (int32_t r = 0; r < j->size; ++r) {
    moert_status status = (moert_status)j->all[r].status;
    if (status)
      return moert__fail(MOERT_ERROR_PEER_FAILED, "rank %" PRId32 " could not join: %s (%s)", r, moert_status_name(status),
                         moert_status_text(status));
  }
  return MOERT_OK;
}

static moert_status check_hellos(const joining *j) {
  moert_status status = MOERT_OK;
  for (int32_t r = 0; r < j->size && !status; ++r) status = check_hello(j, r);
  if (!status && j->size < MOERT_MAX_RANKS && j->all[j->size].magic)
    status = moert__fail(MOERT_ERROR_PEER_MISMATCH, "size is %" PRId32 " on rank %" PRId32 ", but the allgather has more ranks", j->size, j->rank);
  return status ? status : check_statuses(j);
}

// How many ranks are on this rank's device.
static int32_t count_neighbours(const joining *j) {
  int32_t count = 0;
  for (int32_t r = 0; r < j->size; ++r) count += !memcmp(j->all[r].device, j->mine.device, sizeof j->mine.device);
  return count;
}

//===--- joining ----------------------------------------------------------------------------------===//

// A communicator, unless one of the others has none.
static moert_status enter(joining *j, moert_comm **comm) {
  moert_status status = check_hellos(j);
  const int32_t on_device = count_neighbours(j);
  if (!status) status = moert__check_ranks_on_device(j->described.backend, j->described.devices[j->rank], on_device);
  if (!status && j->rank != 0) status = open_place(j);
  if (status) return status;
  moert__group *group;
  status = moert__create_group(&j->described, j->rank, 1, &group);
  j->described.place = NULL; // the group's now
  if (status) return status;
  *comm = moert__create_rank(group, j->rank, on_device, j->timeout_ms);
  if (!*comm) {
    moert__release_group(group);
    return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %" PRId32 " ranks", j->size);
  }
  atomic_store_explicit(&moert__control_of(*comm, j->rank)->process, j->mine.process, memory_order_relaxed);
  return MOERT_OK;
}

static moert_status join(joining *j, const moert_comm_options *options, moert_comm **comm) {
  moert_status own = prepare(j, options);
  moert_status status = gather(j, own);
  if (status) return status;
  if (!own) own = enter(j, comm);
  status = gather(j, own);
  if (own) return own; // its text stands
  return status ? status : check_statuses(j);
}

moert_status moert_comm_create_process(int32_t rank, int32_t size, const moert_comm_options *options, moert_allgather *allgather, void *user,
                                       moert_comm **comm) {
  moert_status status = moert__check_size(size);
  if (status) return status;
  if (rank < 0 || rank >= size) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "rank is %" PRId32 ", must be in [0, %" PRId32 ")", rank, size);
  if (!allgather) return moert__fail(MOERT_ERROR_NULL_POINTER, "allgather is NULL");
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  joining *j = calloc(1, sizeof *j);
  if (!j) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %" PRId32 " ranks", size);
  *j = (joining){.rank = rank, .size = size, .allgather = allgather, .user = user, .file = -1};
  j->described = (moert__group){.size = size, .processes = true};
  j->mine = (hello){.magic = HELLO_MAGIC, .abi_version = MOERT_ABI_VERSION, .rank = rank, .size = size, .process = getpid(), .file = -1};
  moert_comm *made = NULL;
  status = join(j, options, &made);
  if (j->described.place) munmap(j->described.place, moert__place_bytes(size));
  if (j->file >= 0) close(j->file);
  free(j);
  if (status)
    moert_comm_destroy(made);
  else
    *comm = made;
  return status;
}

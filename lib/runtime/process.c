//===- process.c - ranks that are processes ---------------------------------------------------------===//
//
// The processes meet through the caller's allgather. First each says who it is; rank 0 has made the place, a file in memory, which the others open
// through rank 0's descriptor. The last time each says whether that went well, so that all have a communicator or none. If rank 0 asks for it each
// says in between which transport it needs; if one of them needs NCCL, all use it, and meet once more to open their links. Between hosts every rank
// makes a place of its own.
//
// A rank with an error of its own takes part in all, so that nobody is left waiting; only arguments without which there is no allgather are refused
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
  int32_t transport;     // what it was told at first, then what it needs
  uint64_t nonce;
  unsigned char host[16], device[16]; // which they are
  moert__link_key key;                // of rank 0
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

//===--- hosts ------------------------------------------------------------------------------------===//

static uint64_t hash_text(uint64_t hash, const char *text, size_t length) {
  for (size_t i = 0; i < length; ++i) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
  return hash;
}

static uint64_t hash_file(uint64_t hash, const char *path) {
  char text[64];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text);
  if (file >= 0) close(file);
  return hash_text(hash, text, length > 0 ? (size_t)length : 0);
}

// What processes that can open each other's descriptors have in common: the kernel since it was booted, and the namespace of their numbers.
static void identify_host(unsigned char identity[16]) {
  uint64_t words[2] = {hash_file(UINT64_C(14695981039346656037), "/proc/sys/kernel/random/boot_id"), 0};
  const char *given = getenv("MOERT_HOST_ID");
  struct stat namespace;
  if (!stat("/proc/self/ns/pid", &namespace)) words[1] = namespace.st_ino;
  if (given && *given) words[0] = hash_text(words[0], given, strlen(given));
  memcpy(identity, words, sizeof words);
}

static bool on_one_host(const joining *j) {
  for (int32_t r = 1; r < j->size; ++r)
    if (memcmp(j->all[r].host, j->all[0].host, sizeof j->all[0].host)) return false;
  return true;
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

// Of ranks on several hosts.
static moert_status make_own_place(joining *j) {
  void *place = mmap(NULL, moert__place_bytes(j->size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return fail_system(MOERT_ERROR_OUT_OF_MEMORY, "the rank's control blocks cannot be made");
  if (j->described.place) munmap(j->described.place, moert__place_bytes(j->size));
  j->described.place = place;
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
  j->mine.transport = options.transport;
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
  if (!theirs->status && !j->mine.status && theirs->transport != j->mine.transport)
    return moert__fail(MOERT_ERROR_PEER_MISMATCH, "options: transport is %" PRId32 " on rank %" PRId32 ", but %" PRId32 " on rank %" PRId32,
                       j->mine.transport, j->rank, theirs->transport, rank);
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

//===--- the transport ----------------------------------------------------------------------------===//

static moert_status need_transport(const joining *j, int32_t *needed) {
  const moert__group *group = &j->described;
  bool reach = on_one_host(j);
  for (int32_t r = 0; r < j->size; ++r) reach = reach && group->backend->reaches(group->devices[j->rank], j->all[r].device);
  return moert__choose_transport(group->backend, j->mine.transport, reach, needed);
}

static bool any_needs_links(const joining *j) {
  for (int32_t r = 0; r < j->size; ++r)
    if (j->all[r].transport == MOERT_TRANSPORT_NCCL) return true;
  return false;
}

// All ranks take part if rank 0 is on devices, and not told to use peers: so they agree on what follows. *own: how this rank fares.
static moert_status agree_on_transport(joining *j, moert_status *own) {
  const hello first = j->all[0];
  int32_t needed = MOERT_TRANSPORT_PEER;
  j->described.transport = MOERT_TRANSPORT_PEER;
  if (first.status || first.device_type == MOERT_DEVICE_CPU || first.transport == MOERT_TRANSPORT_PEER) return MOERT_OK;
  if (!*own) *own = need_transport(j, &needed);
  j->mine.transport = needed;
  moert_status status = gather(j, *own);
  if (status || !any_needs_links(j)) return status;
  j->described.transport = MOERT_TRANSPORT_NCCL;
  j->described.apart = !on_one_host(j);
  if (!*own) *own = check_statuses(j);
  if (!*own && j->rank == 0) *own = j->described.backend->make_link_key(&j->mine.key);
  return MOERT_OK;
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
  const int32_t on_device = count_neighbours(j);
  moert_status status = moert__check_ranks_on_device(&j->described, j->described.devices[j->rank], on_device);
  if (!status && j->described.apart) status = make_own_place(j);
  if (!status && !j->described.apart && j->rank != 0) status = open_place(j);
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

// Whether all ranks have come so far.
static moert_status conclude(joining *j, moert_status own) {
  moert_status status = gather(j, own);
  if (own) return own; // its text stands
  return status ? status : check_statuses(j);
}

static moert_status join(joining *j, const moert_comm_options *options, moert_comm **comm) {
  moert_status own = prepare(j, options);
  moert_status status = gather(j, own);
  if (status) return status;
  if (!own) own = check_hellos(j);
  status = agree_on_transport(j, &own);
  if (status) return status;
  if (!own) own = enter(j, comm);
  status = conclude(j, own);
  if (status || j->described.transport == MOERT_TRANSPORT_PEER) return status;
  return conclude(j, moert__open_links(comm, 1, &j->all[0].key, j->timeout_ms));
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
  identify_host(j->mine.host);
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

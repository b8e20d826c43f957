//===- comm.c - communicators: create and destroy, errors, memory of the device ----------------------===//

#include "comm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

//===--- the default deadline ---------------------------------------------------------------------===//

moert_status moert__default_timeout_ms(int64_t *timeout_ms) {
  *timeout_ms = 30000;
  const char *text = getenv("MOERT_TIMEOUT_MS");
  if (!text || !*text) return MOERT_OK;
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*end || errno || value < 1 || value > MOERT__MAX_TIMEOUT_MS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "environment variable MOERT_TIMEOUT_MS is '%s', must be in [1, %" PRId64 "]", text,
                       MOERT__MAX_TIMEOUT_MS);
  *timeout_ms = value;
  return MOERT_OK;
}

moert_status moert__check_timeout(const moert_comm *comm, int64_t *timeout_ms) {
  if (*timeout_ms < 0 || *timeout_ms > MOERT__MAX_TIMEOUT_MS)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "timeout_ms is %" PRId64 ", must be in [0, %" PRId64 "]", *timeout_ms, MOERT__MAX_TIMEOUT_MS);
  if (!*timeout_ms) *timeout_ms = comm->timeout_ms;
  return MOERT_OK;
}

//===--- options ----------------------------------------------------------------------------------===//

moert_status moert__check_size(int32_t size) {
  if (size >= 1 && size <= MOERT_MAX_RANKS) return MOERT_OK;
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "size is %" PRId32 ", must be in [1, %d]", size, MOERT_MAX_RANKS);
}

// The sizes that earlier versions of the struct can have had end where a field begins.
static bool is_known_size(size_t size) { return size == offsetof(moert_comm_options, transport) || size == sizeof(moert_comm_options); }

static moert_status check_options(const moert_comm_options *options) {
  if (options->num_devices < 0)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "options: num_devices is %" PRId32 ", must be at least 0", options->num_devices);
  if (options->devices && !options->num_devices) return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "options: devices is set, but num_devices is 0");
  if (options->transport < MOERT_TRANSPORT_AUTO || options->transport > MOERT_TRANSPORT_NCCL)
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "options: transport is %" PRId32 ", must be %d (auto), %d (peer) or %d (nccl)",
                       options->transport, MOERT_TRANSPORT_AUTO, MOERT_TRANSPORT_PEER, MOERT_TRANSPORT_NCCL);
  return MOERT_OK;
}

// AUTO is what the environment says.
static moert_status resolve_transport(moert_comm_options *options) {
  static const char *const names[] = {[MOERT_TRANSPORT_AUTO] = "auto", [MOERT_TRANSPORT_PEER] = "peer", [MOERT_TRANSPORT_NCCL] = "nccl"};
  const char *text = options->device_type == MOERT_DEVICE_CUDA && options->transport == MOERT_TRANSPORT_AUTO ? getenv("MOERT_TRANSPORT") : NULL;
  if (!text || !*text) return MOERT_OK;
  for (int32_t i = 0; i < (int32_t)(sizeof names / sizeof *names); ++i) {
    if (strcmp(text, names[i])) continue;
    options->transport = i;
    return MOERT_OK;
  }
  return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "environment variable MOERT_TRANSPORT is '%s', must be auto, peer or nccl", text);
}

moert_status moert__read_comm_options(const moert_comm_options *given, moert_comm_options *options) {
  *options = (moert_comm_options)MOERT_COMM_OPTIONS_INIT;
  if (!given) return MOERT_OK;
  if (!is_known_size(given->struct_size))
    return moert__fail(MOERT_ERROR_STRUCT_SIZE, "options: struct_size is %zu, this library's is %zu; begin with MOERT_COMM_OPTIONS_INIT",
                       given->struct_size, sizeof *given);
  memcpy(options, given, given->struct_size);
  moert_status status = check_options(options);
  return status ? status : resolve_transport(options);
}

static moert_status count_devices(const moert__backend *backend, int32_t *count) {
  moert_status status = backend->count_devices(count);
  if (status || *count > 0) return status;
  return moert__fail(MOERT_ERROR_NO_DEVICE, "this process sees no device of backend '%s'", backend->name);
}

static moert_status check_device(const moert_comm_options *options, int32_t index, int32_t device, int32_t visible) {
  if (device >= 0 && device < visible) return MOERT_OK;
  if (!options->devices)
    return moert__fail(MOERT_ERROR_NO_DEVICE, "options: num_devices is %" PRId32 ", but this process sees %" PRId32, options->num_devices, visible);
  return moert__fail(MOERT_ERROR_NO_DEVICE, "options: devices[%" PRId32 "] is %" PRId32 ", must be in [0, %" PRId32 ")", index, device, visible);
}

moert_status moert__place_ranks(const moert_comm_options *options, int32_t first, int32_t count, const moert__backend **backend, int32_t *devices) {
  int32_t visible;
  moert_status status = moert__backend_of_device(options->device_type, backend);
  if (!status) status = count_devices(*backend, &visible);
  if (status) return status;
  int32_t turns = options->num_devices ? options->num_devices : visible;
  for (int32_t r = first; r < first + count && !status; ++r) {
    int32_t index = r % turns;
    devices[r] = options->devices ? options->devices[index] : index;
    status = check_device(options, index, devices[r], visible);
  }
  return status;
}

// NCCL refuses two ranks on one device.
moert_status moert__check_ranks_on_device(const moert__group *group, int32_t device, int32_t ranks) {
  const moert__backend *backend = group->backend;
  if (group->transport == MOERT_TRANSPORT_NCCL && ranks > 1)
    return moert__fail(MOERT_ERROR_UNSUPPORTED,
                       "%" PRId32 " ranks are on device %" PRId32 ", of which each needs one of its own with the transport nccl; use more devices",
                       ranks, device);
  if (ranks <= backend->ranks_per_device) return MOERT_OK;
  return moert__fail(MOERT_ERROR_UNSUPPORTED,
                     "%" PRId32 " ranks are on device %" PRId32 ", at most %" PRId32 " can wait for each other on one; use more devices", ranks,
                     device, backend->ranks_per_device);
}

// How many ranks are on the device of rank r, itself included.
static int32_t count_on_device(const moert__group *group, int32_t r) {
  int32_t ranks = 0;
  for (int32_t other = 0; other < group->size; ++other) ranks += group->devices[other] == group->devices[r];
  return ranks;
}

static moert_status check_crowding(const moert__group *group) {
  moert_status status = MOERT_OK;
  for (int32_t r = 0; r < group->size && !status; ++r) status = moert__check_ranks_on_device(group, group->devices[r], count_on_device(group, r));
  return status;
}

//===--- transports -------------------------------------------------------------------------------===//

moert_status moert__choose_transport(const moert__backend *backend, int32_t asked, bool reach, int32_t *transport) {
  if (asked == MOERT_TRANSPORT_NCCL && !backend->open_links)
    return moert__fail(MOERT_ERROR_UNSUPPORTED, "options: transport is nccl, which backend '%s' does not have", backend->name);
  bool needs_links = asked == MOERT_TRANSPORT_AUTO && !reach && backend->open_links;
  *transport = asked == MOERT_TRANSPORT_NCCL || needs_links ? MOERT_TRANSPORT_NCCL : MOERT_TRANSPORT_PEER;
  return MOERT_OK;
}

// Of ranks that are threads.
static moert_status choose_for_threads(moert__group *group, int32_t asked) {
  bool reach = true;
  for (int32_t r = 0; r < group->size && asked == MOERT_TRANSPORT_AUTO; ++r) {
    unsigned char identity[16];
    moert_status status = group->backend->identify(group->devices[r], identity);
    if (status) return status;
    for (int32_t other = 0; other < group->size; ++other) reach &= group->backend->reaches(group->devices[other], identity);
  }
  return moert__choose_transport(group->backend, asked, reach, &group->transport);
}

moert_status moert__open_links(moert_comm *const *comms, int32_t count, const moert__link_key *key, int64_t timeout_ms) {
  const moert__backend *backend = comms[0]->group->backend;
  moert__link_rank ranks[MOERT_MAX_RANKS] = {0};
  moert__link *links[MOERT_MAX_RANKS];
  for (int32_t i = 0; i < count; ++i)
    ranks[i] = (moert__link_rank){.device = moert_comm_device(comms[i]).id, .watch = moert__comm_watch(comms[i]), .mask = comms[i]->mask};
  moert_status status = backend->open_links(key, ranks, count, timeout_ms, links);
  for (int32_t i = 0; i < count && !status; ++i) comms[i]->link = links[i];
  return status;
}

void moert__close_link(moert_comm *comm) {
  if (comm->link) comm->group->backend->close_link(comm->link);
  comm->link = NULL;
}

moert__link *moert__comm_link(const moert_comm *comm) { return comm->link; }

int32_t moert_comm_transport(const moert_comm *comm) { return comm ? comm->group->transport : MOERT_TRANSPORT_AUTO; }

//===--- groups -----------------------------------------------------------------------------------===//

size_t moert__place_bytes(int32_t size) {
  size_t page = moert__page_bytes(), bytes = sizeof(moert__place) + (size_t)size * sizeof(moert__control);
  return (bytes + page - 1) / page * page;
}

// Anonymous, but shared: so the backend can treat it like that of processes.
static moert__place *create_place(int32_t size) {
  void *place = mmap(NULL, moert__place_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return place == MAP_FAILED ? NULL : place;
}

// The devices of this process's ranks, each once.
static moert_status connect_devices(const moert__group *group, int32_t first, int32_t count) {
  int32_t used[MOERT_MAX_RANKS], num_used = 0;
  for (int32_t r = first; r < first + count; ++r) {
    int32_t at = 0;
    while (at < num_used && used[at] != group->devices[r]) ++at;
    used[at] = group->devices[r];
    if (at == num_used) ++num_used;
  }
  return group->backend->connect(used, num_used, group->transport == MOERT_TRANSPORT_PEER);
}

static void destroy_group(moert__group *group) {
  if (group->is_mapped_to_devices) group->backend->unmap_host(group->place);
  munmap(group->place, moert__place_bytes(group->size));
  free(group);
}

moert_status moert__create_group(const moert__group *described, int32_t first, int32_t count, moert__group **made) {
  moert__group *group = calloc(1, sizeof *group);
  if (!group) {
    munmap(described->place, moert__place_bytes(described->size));
    return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %" PRId32 " ranks", described->size);
  }
  *group = *described;
  atomic_init(&group->references, count);
  moert_status status = connect_devices(group, first, count);
  if (!status) status = group->backend->map_host(group->place, moert__place_bytes(group->size));
  group->is_mapped_to_devices = !status;
  if (status)
    destroy_group(group);
  else
    *made = group;
  return status;
}

void moert__release_group(moert__group *group) {
  if (atomic_fetch_sub_explicit(&group->references, 1, memory_order_acq_rel) != 1) return;
  for (int32_t r = 0; r < group->size; ++r) moert__free_blocks(group, r, group->left[r]);
  destroy_group(group);
}

//===--- ranks ------------------------------------------------------------------------------------===//

moert_comm *moert__create_rank(moert__group *group, int32_t rank, int32_t on_device, int64_t timeout_ms) {
  moert_comm *comm = calloc(1, sizeof *comm);
  if (!comm) return NULL;
  comm->group = group;
  comm->rank = rank;
  comm->on_device = on_device;
  comm->timeout_ms = timeout_ms;
  comm->mask = UINT64_MAX >> (MOERT_MAX_RANKS - group->size);
  pthread_mutex_init(&comm->records_lock, NULL);
  atomic_init(&moert__control_of(comm, rank)->waiting.peer, -1);
  return comm;
}

static void free_rank(moert_comm *comm) {
  pthread_mutex_destroy(&comm->records_lock);
  free(comm);
}

static moert_status create_ranks(moert__group *group, int64_t timeout_ms, moert_comm **comms) {
  moert_comm *made[MOERT_MAX_RANKS] = {0};
  int32_t count = 0, size = group->size;
  while (count < size && (made[count] = moert__create_rank(group, count, count_on_device(group, count), timeout_ms))) ++count;
  if (count == size) {
    memcpy(comms, made, (size_t)size * sizeof *comms);
    return MOERT_OK;
  }
  for (int32_t r = 0; r < count; ++r) free_rank(made[r]);
  destroy_group(group);
  return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %" PRId32 " ranks", size);
}

static void destroy_ranks(moert_comm *const *comms, int32_t count) {
  for (int32_t r = 0; r < count; ++r) moert_comm_destroy(comms[r]);
}

static moert_status create_linked_ranks(moert__group *group, int64_t timeout_ms, moert_comm **comms) {
  moert_comm *made[MOERT_MAX_RANKS];
  moert__link_key key;
  const int32_t size = group->size;
  moert_status status = create_ranks(group, timeout_ms, made);
  if (status) return status;
  if (group->transport == MOERT_TRANSPORT_NCCL) {
    status = group->backend->make_link_key(&key);
    if (!status) status = moert__open_links(made, size, &key, timeout_ms);
  }
  if (status)
    destroy_ranks(made, size);
  else
    memcpy(comms, made, (size_t)size * sizeof *comms);
  return status;
}

moert_status moert_comm_create_threads(int32_t size, const moert_comm_options *options, moert_comm **comms) {
  moert_status status = moert__check_size(size);
  if (status) return status;
  if (!comms) return moert__fail(MOERT_ERROR_NULL_POINTER, "comms is NULL, must have room for %" PRId32 " handles", size);
  int64_t timeout_ms;
  moert_comm_options read;
  moert__group described = {.size = size};
  status = moert__default_timeout_ms(&timeout_ms);
  if (!status) status = moert__read_comm_options(options, &read);
  if (!status) status = moert__place_ranks(&read, 0, size, &described.backend, described.devices);
  if (!status) status = choose_for_threads(&described, read.transport);
  if (!status) status = check_crowding(&described);
  if (status) return status;
  described.place = create_place(size);
  if (!described.place) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a communicator of %" PRId32 " ranks", size);
  moert__group *group;
  status = moert__create_group(&described, 0, size, &group);
  return status ? status : create_linked_ranks(group, timeout_ms, comms);
}

void moert_comm_destroy(moert_comm *comm) {
  if (!comm) return;
  moert__close_link(comm);
  comm->group->left[comm->rank] = comm->blocks;
  moert__release_group(comm->group);
  free_rank(comm);
}

int32_t moert_comm_rank(const moert_comm *comm) { return comm ? comm->rank : -1; }

int32_t moert_comm_size(const moert_comm *comm) { return comm ? comm->group->size : 0; }

uint64_t moert_comm_mask(const moert_comm *comm) { return comm ? comm->mask : 0; }

moert_device moert_comm_device(const moert_comm *comm) {
  return comm ? (moert_device){comm->group->backend->device_type, comm->group->devices[comm->rank]} : (moert_device){0, 0};
}

const moert__backend *moert__comm_backend(const moert_comm *comm) { return comm->group->backend; }

int32_t moert__comm_ranks_on_device(const moert_comm *comm) { return comm->on_device; }

uint32_t moert__comm_recoveries(const moert_comm *comm) { return comm->recoveries; }

//===--- errors -----------------------------------------------------------------------------------===//

moert_status moert_comm_status(const moert_comm *comm) {
  if (!comm) return MOERT_ERROR_NULL_POINTER;
  const moert__control *mine = moert__control_of(comm, comm->rank);
  if (atomic_load_explicit(&mine->left_out_by, memory_order_acquire)) return MOERT_ERROR_PEER_FAILED;
  return (moert_status)atomic_load_explicit(&mine->status, memory_order_acquire);
}

void moert_comm_report(moert_comm *comm, moert_status status) {
  int32_t none = MOERT_OK;
  if (comm && status) atomic_compare_exchange_strong(&moert__control_of(comm, comm->rank)->status, &none, (int32_t)status);
}

void moert__comm_note(moert_comm *comm, moert_status status) {
  int class = (int)status / 1000;
  if (class > 2 && status != MOERT_ERROR_STOPPED) moert_comm_report(comm, status);
}

static moert_status tell_standing_error(const moert_comm *comm) {
  if (atomic_load_explicit(&moert__control_of(comm, comm->rank)->left_out_by, memory_order_acquire)) return moert__fail_left_out(comm);
  moert_status status = moert_comm_status(comm);
  if (!status) return MOERT_OK;
  return moert__fail(status, "rank %" PRId32 " stands in error since an earlier call: %s (%s)", comm->rank, moert_status_name(status),
                     moert_status_text(status));
}

//===--- checks ---------------------------------------------------------------------------------===//

moert_status moert__standing_error(moert_comm *comm) {
  moert_status status = tell_standing_error(comm);
  return status ? status : moert__comm_tell_fault(comm, true);
}

moert_status moert_comm_check(moert_comm *comm) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  moert_status status = moert__comm_tell_fault(comm, false);
  return status ? status : tell_standing_error(comm);
}

moert__watch moert__comm_watch(moert_comm *comm) {
  moert__control *controls = comm->group->place->controls;
  return (moert__watch){.rank = comm->rank,
                        .ranks = comm->group->size,
                        .failed = (int *)&controls[comm->rank].failed,
                        .statuses = (const int *)&controls[0].status,
                        .stride = sizeof *controls / sizeof(int)};
}

//===--- memory of the device ---------------------------------------------------------------------===//

moert_status moert_device_alloc(moert_comm *comm, size_t bytes, void **memory) {
  if (!comm) return moert__fail(MOERT_ERROR_NULL_POINTER, "comm is NULL");
  if (!memory) return moert__fail(MOERT_ERROR_NULL_POINTER, "memory is NULL");
  return comm->group->backend->allocate(comm->group->devices[comm->rank], bytes, memory);
}

void moert_device_free(moert_comm *comm, void *memory) {
  if (comm && memory) comm->group->backend->release(comm->group->devices[comm->rank], memory, 0);
}

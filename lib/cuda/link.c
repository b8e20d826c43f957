//===- link.c - links between ranks that cannot address each other's memory ---------------------------------===//
//
// A link has an NCCL communicator that does not block: its calls begin things, and are asked whether they are done, so that they can be given up. All
// connections are made when links are opened; later calls find them there.
//
// The lock guards the communicator, which the watchman may give up at any time.
//
//===----------------------------------------------------------------------------------------------===//

#include "link.h"
#include "nccl.h"
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARCEL = 256, WATCH_NS = 5000000, LONG_NS = 10000000, GRACE_NS = 200000000, FAREWELL_MS = 2000 };

struct moert__link {
  const moert__nccl *nccl;
  int32_t device, size;             // ranks in NCCL's communicator
  int32_t numbers[MOERT_MAX_RANKS]; // of each rank in it, -1: it is not there
  moert__watch watch;
  moert__link_words *words;
  moert__link_headers *headers; // and behind them room to gather in
  unsigned char *parcels;       // of the host, to gather
  cudaStream_t stream;          // the link's own
  cudaEvent_t arrival, left;    // left: behind the last exchange
  pthread_mutex_t lock;
  pthread_cond_t wakes;
  moert__nccl_comm comm; // NULL: the link was given up
  bool has_watchman, is_closing, is_ending;
  pthread_t watchman, ending;
};

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// As long as something is soon done, sleeping would be what takes longest.
static void pause_before_look(int looks) {
  const struct timespec pause = {0, 50000};
  if (looks < 20000)
    sched_yield();
  else
    nanosleep(&pause, NULL);
}

moert__link_words *moert__link_words_of(const moert__link *link) { return link->words; }

moert__link_headers *moert__link_headers_of(const moert__link *link) { return link->headers; }

static bool is_begun(int result) { return result == MOERT__NCCL_SUCCESS || result == MOERT__NCCL_IN_PROGRESS; }

//===--- giving up ----------------------------------------------------------------------------------===//

static bool is_linked(const moert__link *link, int32_t rank) { return rank != link->watch.rank && link->numbers[rank] >= 0; }

typedef struct Ending {
  int (*how)(moert__nccl_comm comm);
  moert__nccl_comm comm;
} Ending;

static void *end(void *user) {
  Ending *ending = user;
  ending->how(ending->comm);
  free(ending);
  return NULL;
}

// Under the lock: by ncclCommAbort, which lets the kernels end at once, or ncclCommDestroy. Then both wait until the program has destroyed all graphs
// of the ranks of this process that these kernels are in, which nobody else is to wait for.
static void end_comm(moert__link *link, int (*how)(moert__nccl_comm comm)) {
  Ending *ending = malloc(sizeof *ending);
  if (ending) *ending = (Ending){how, link->comm};
  link->is_ending = ending && pthread_create(&link->ending, NULL, end, ending) == 0;
  if (!link->is_ending) {
    free(ending);
    how(link->comm);
  }
  link->comm = NULL;
}

// If there are no such graphs NCCL is soon done, and before the program ends.
static void await_end(moert__link *link) {
  struct timespec until;
  if (!link->is_ending) return;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += FAREWELL_MS / 1000;
  if (pthread_timedjoin_np(link->ending, NULL, &until) != 0) pthread_detach(link->ending);
}

// Under the lock. Kernels behind those of NCCL read the words when these have ended.
static void give_up(moert__link *link, int fault, int32_t blamed) {
  if (!link->comm) return;
  link->words->blamed = blamed;
  __atomic_store_n(&link->words->fault, fault, __ATOMIC_RELEASE);
  end_comm(link, link->nccl->abort);
}

static bool is_given_up(moert__link *link) {
  pthread_mutex_lock(&link->lock);
  bool is = !link->comm;
  pthread_mutex_unlock(&link->lock);
  return is;
}

static bool has_reported(const moert__link *link, int32_t rank) {
  const int *statuses = link->watch.statuses + rank * link->watch.stride;
  return __atomic_load_n(statuses, __ATOMIC_ACQUIRE) != 0 || __atomic_load_n(statuses + 1, __ATOMIC_ACQUIRE) != 0;
}

static int32_t find_reported(const moert__link *link) {
  for (int32_t r = 0; r < link->watch.ranks; ++r)
    if (is_linked(link, r) && has_reported(link, r)) return r;
  return -1;
}

// Under the lock: an exchange has been under way for `waited_ns`. What a peer sent before it failed counts, and has come within the grace.
static void look_after(moert__link *link, int64_t waited_ns) {
  int error = MOERT__NCCL_SUCCESS;
  if (!link->comm) return;
  int32_t reported = waited_ns > GRACE_NS ? find_reported(link) : -1;
  int asked = link->nccl->async_error(link->comm, &error);
  if (asked != MOERT__NCCL_SUCCESS || !is_begun(error))
    give_up(link, MOERT__FAULT_PEER_FAILED, -1);
  else if (reported >= 0)
    give_up(link, MOERT__FAULT_PEER_FAILED, reported);
  else if (waited_ns > __atomic_load_n(&link->words->timeout_ns, __ATOMIC_RELAXED))
    give_up(link, MOERT__FAULT_TIMEOUT, -1);
}

// To hosts that ask what goes on (moert_comm_dump): which of the peers is waited for is not known.
static void show_wait(const moert__link *link, unsigned exchanges) {
  moert__link_words *words = link->words;
  int32_t peer = 0;
  while (peer < link->watch.ranks && !is_linked(link, peer)) ++peer;
  moert__fault *record = words->record;
  __atomic_store_n(&record->waiting, words->waiting | (unsigned long long)(peer + 1) << MOERT__WAITING_PEER, __ATOMIC_RELEASE);
  if (__atomic_load_n(&words->exchanges, __ATOMIC_ACQUIRE) != exchanges) __atomic_store_n(&record->waiting, 0, __ATOMIC_RELEASE);
}

static void sleep_under_lock(moert__link *link) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += WATCH_NS;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    ++until.tv_sec;
  }
  pthread_cond_timedwait(&link->wakes, &link->lock, &until);
}

static void *keep_watch(void *user) {
  moert__link *link = user;
  unsigned seen = 0;
  int64_t since = now_ns();
  pthread_mutex_lock(&link->lock);
  while (!link->is_closing) {
    unsigned exchanges = __atomic_load_n(&link->words->exchanges, __ATOMIC_ACQUIRE);
    if (exchanges != seen || exchanges % 2 == 0) since = now_ns();
    seen = exchanges;
    if (exchanges % 2) look_after(link, now_ns() - since);
    if (exchanges % 2 && now_ns() - since > LONG_NS) show_wait(link, exchanges);
    sleep_under_lock(link);
  }
  pthread_mutex_unlock(&link->lock);
  return NULL;
}

//===--- calls of NCCL ------------------------------------------------------------------------------===//

static moert_status fail_nccl(const moert__link *link, int result, const char *call) {
  return moert__fail(MOERT_ERROR_DEVICE, "%s: %s", call, link->nccl->error_string(result));
}

static moert_status fail_given_up(const moert__link *link, int64_t timeout_ns) {
  if (__atomic_load_n(&link->words->fault, __ATOMIC_ACQUIRE) == MOERT__FAULT_PEER_FAILED)
    return moert__fail(MOERT_ERROR_PEER_FAILED, "a peer of rank %d reported an error, or NCCL has lost it", link->watch.rank);
  return moert__fail(MOERT_ERROR_PEER_TIMEOUT, "rank %d waited %" PRId64 " ms for NCCL to reach its peers", link->watch.rank, timeout_ns / 1000000);
}

// Under the lock: waits until what was begun with `result` has been put on its stream.
static moert_status settle(moert__link *link, int result, const char *call, int64_t timeout_ns) {
  const int64_t deadline = now_ns() + timeout_ns;
  for (int looks = 0; result == MOERT__NCCL_IN_PROGRESS; ++looks) {
    pthread_mutex_unlock(&link->lock);
    pause_before_look(looks);
    pthread_mutex_lock(&link->lock);
    if (link->comm && now_ns() > deadline) give_up(link, MOERT__FAULT_TIMEOUT, -1);
    if (!link->comm) return fail_given_up(link, timeout_ns);
    int asked = link->nccl->async_error(link->comm, &result);
    if (asked != MOERT__NCCL_SUCCESS) result = asked;
  }
  return result == MOERT__NCCL_SUCCESS ? MOERT_OK : fail_nccl(link, result, call);
}

// Inside a group.
static int begin_transfer(moert__link *link, const moert__transfer *transfer, cudaStream_t stream) {
  const int peer = link->numbers[transfer->peer];
  int result = MOERT__NCCL_SUCCESS;
  if (transfer->send_bytes) result = link->nccl->send(transfer->send, transfer->send_bytes, MOERT__NCCL_UINT8, peer, link->comm, stream);
  if (is_begun(result) && transfer->receive_bytes)
    result = link->nccl->receive(transfer->receive, transfer->receive_bytes, MOERT__NCCL_UINT8, peer, link->comm, stream);
  return result;
}

static int begin_transfers(moert__link *link, const moert__transfer *transfers, int32_t count, cudaStream_t stream) {
  int result = link->nccl->group_start();
  for (int32_t i = 0; i < count && is_begun(result); ++i) result = begin_transfer(link, &transfers[i], stream);
  int ended = link->nccl->group_end();
  return is_begun(result) ? ended : result;
}

moert_status moert__link_move(moert__link *link, const moert__transfer *transfers, int32_t count, long long timeout_ns, cudaStream_t stream) {
  if (count == 0) return MOERT_OK;
  pthread_mutex_lock(&link->lock);
  moert_status status = MOERT_OK;
  if (link->comm) status = settle(link, begin_transfers(link, transfers, count, stream), "ncclSend and ncclRecv", timeout_ns);
  if (status == MOERT_ERROR_DEVICE) give_up(link, MOERT__FAULT_PEER_FAILED, -1);
  pthread_mutex_unlock(&link->lock);
  return status;
}

//===--- turns --------------------------------------------------------------------------------------===//

moert_status moert__link_enter(moert__link *link, cudaStream_t stream) {
  cudaError_t error = cudaStreamWaitEvent(stream, link->left, 0);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "the exchange before");
}

moert_status moert__link_leave(moert__link *link, cudaStream_t stream) {
  cudaError_t error = cudaEventRecord(link->left, stream);
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "the end of an exchange");
}

//===--- waiting ------------------------------------------------------------------------------------===//

// Until the event has come; past the deadline, 0: there is none, the link is given up, and so it comes.
static cudaError_t await_event(moert__link *link, int64_t deadline_ns) {
  cudaError_t error = cudaErrorNotReady;
  for (int looks = 0; error == cudaErrorNotReady; ++looks) {
    error = cudaEventQuery(link->arrival);
    if (error != cudaErrorNotReady) break;
    cudaGetLastError();
    if (deadline_ns && now_ns() > deadline_ns) {
      pthread_mutex_lock(&link->lock);
      give_up(link, MOERT__FAULT_TIMEOUT, -1);
      pthread_mutex_unlock(&link->lock);
    }
    pause_before_look(looks);
  }
  return error;
}

moert_status moert__link_await(moert__link *link, cudaStream_t stream) {
  cudaError_t error = cudaMemcpyAsync(link->words->sent, link->headers, sizeof *link->headers, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaEventRecord(link->arrival, stream);
  if (error == cudaSuccess) error = await_event(link, 0); // the watchman keeps the deadline
  return error == cudaSuccess ? MOERT_OK : moert__cuda_fail(error, "headers of an exchange");
}
_Static_assert(offsetof(moert__link_words, received) - offsetof(moert__link_words, sent) == offsetof(moert__link_headers, received),
               "headers are copied at once");

//===--- hosts --------------------------------------------------------------------------------------===//

static unsigned char *device_parcels(const moert__link *link) { return (unsigned char *)(link->headers + 1); }

static cudaError_t gather(moert__link *link, size_t bytes, int64_t deadline_ns) {
  unsigned char *own = device_parcels(link), *all = own + PARCEL;
  cudaError_t error = cudaMemcpyAsync(own, link->parcels, bytes, cudaMemcpyHostToDevice, link->stream);
  if (error != cudaSuccess) return error;
  pthread_mutex_lock(&link->lock);
  if (link->comm) {
    int result = link->nccl->all_gather(own, all, bytes, MOERT__NCCL_UINT8, link->comm, link->stream);
    if (settle(link, result, "ncclAllGather", deadline_ns - now_ns()) == MOERT_ERROR_DEVICE) give_up(link, MOERT__FAULT_PEER_FAILED, -1);
  }
  pthread_mutex_unlock(&link->lock);
  error = cudaMemcpyAsync(link->parcels, all, bytes * (size_t)link->size, cudaMemcpyDeviceToHost, link->stream);
  if (error == cudaSuccess) error = cudaEventRecord(link->arrival, link->stream);
  return error == cudaSuccess ? await_event(link, deadline_ns) : error;
}

moert_status moert__cuda_gather_over_link(moert__link *link, const void *mine, size_t bytes, void *all, int64_t timeout_ms) {
  if (bytes > PARCEL) return moert__fail(MOERT_ERROR_INTERNAL, "%zu bytes are more than ranks tell each other at a time", bytes);
  int32_t entered = moert__cuda_enter(link->device);
  memcpy(link->parcels, mine, bytes);
  cudaError_t error = gather(link, bytes, now_ns() + timeout_ms * 1000000);
  moert__cuda_leave(entered);
  if (error != cudaSuccess) return moert__cuda_fail(error, "words of the ranks' hosts");
  if (is_given_up(link)) return fail_given_up(link, timeout_ms * 1000000);
  for (int32_t r = 0; r < link->watch.ranks; ++r)
    if (link->numbers[r] >= 0) memcpy((unsigned char *)all + (size_t)r * bytes, link->parcels + (size_t)link->numbers[r] * bytes, bytes);
  return MOERT_OK;
}

//===--- opening ------------------------------------------------------------------------------------===//

moert_status moert__cuda_make_link_key(moert__link_key *key) {
  const moert__nccl *nccl;
  moert_status status = moert__nccl_load(&nccl);
  if (status != MOERT_OK) return status;
  int result = nccl->unique_id(key);
  return result == MOERT__NCCL_SUCCESS ? MOERT_OK : moert__fail(MOERT_ERROR_DEVICE, "ncclGetUniqueId: %s", nccl->error_string(result));
}

static void number_ranks(moert__link *link, uint64_t mask) {
  for (int32_t r = 0; r < MOERT_MAX_RANKS; ++r) link->numbers[r] = r < link->watch.ranks && mask >> r & 1 ? link->size++ : -1;
}

// Memory that the devices of other ranks may be able to address is not from a pool: NCCL uses that.
static cudaError_t make_parts(moert__link *link) {
  const size_t parcels = PARCEL * (MOERT_MAX_RANKS + 1);
  cudaError_t error = cudaHostAlloc((void **)&link->words, sizeof *link->words, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error == cudaSuccess) memset(link->words, 0, sizeof *link->words);
  if (error == cudaSuccess) error = cudaHostAlloc((void **)&link->parcels, parcels, cudaHostAllocPortable);
  if (error == cudaSuccess) error = cudaMalloc((void **)&link->headers, sizeof *link->headers + parcels);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaMemsetAsync(link->headers, 0, sizeof *link->headers + parcels, link->stream);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&link->left, cudaEventDisableTiming);
  return error == cudaSuccess ? cudaEventCreateWithFlags(&link->arrival, cudaEventDisableTiming) : error;
}

static void free_link(moert__link *link) {
  int32_t entered = moert__cuda_enter(link->device);
  if (link->arrival && cudaEventDestroy(link->arrival) != cudaSuccess) cudaGetLastError();
  if (link->left && cudaEventDestroy(link->left) != cudaSuccess) cudaGetLastError();
  if (link->stream && cudaStreamDestroy(link->stream) != cudaSuccess) cudaGetLastError();
  if (link->headers && cudaFree(link->headers) != cudaSuccess) cudaGetLastError();
  if (link->parcels && cudaFreeHost(link->parcels) != cudaSuccess) cudaGetLastError();
  if (link->words && cudaFreeHost(link->words) != cudaSuccess) cudaGetLastError();
  moert__cuda_leave(entered);
  pthread_cond_destroy(&link->wakes);
  pthread_mutex_destroy(&link->lock);
  free(link);
}

static void prepare_waiting(moert__link *link) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&link->wakes, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&link->lock, NULL);
}

static moert_status make_link(const moert__nccl *nccl, const moert__link_rank *rank, moert__link **made) {
  moert__link *link = calloc(1, sizeof *link);
  if (!link) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a link");
  link->nccl = nccl;
  link->device = rank->device;
  link->watch = rank->watch;
  number_ranks(link, rank->mask);
  prepare_waiting(link);
  int32_t entered = moert__cuda_enter(link->device);
  cudaError_t error = make_parts(link);
  moert__cuda_leave(entered);
  if (error == cudaSuccess) {
    *made = link;
    return MOERT_OK;
  }
  free_link(link);
  return moert__cuda_fail(error, "a link between ranks");
}

// NCCL's communicators of ranks of one process are made together, as each waits for all others.
static moert_status begin_comms(const moert__link_key *key, moert__link **links, int32_t count) {
  const moert__nccl *nccl = links[0]->nccl;
  const moert__nccl_config config = {.size = sizeof config, .magic = 0xcafebeef, .version = 21400, .blocking = 0};
  int result = nccl->group_start();
  for (int32_t i = 0; i < count && is_begun(result); ++i) {
    moert__link *link = links[i];
    int32_t entered = moert__cuda_enter(link->device);
    result = nccl->init_rank(&link->comm, link->size, *key, link->numbers[link->watch.rank], &config);
    moert__cuda_leave(entered);
  }
  int ended = nccl->group_end();
  if (is_begun(result)) result = ended;
  bool goes_on = result == MOERT__NCCL_SUCCESS || result == MOERT__NCCL_IN_PROGRESS;
  return goes_on ? MOERT_OK : fail_nccl(links[0], result, "ncclCommInitRankConfig");
}

static moert_status settle_all(moert__link **links, int32_t count, const char *call, int64_t deadline_ns) {
  moert_status status = MOERT_OK;
  for (int32_t i = 0; i < count && status == MOERT_OK; ++i) {
    pthread_mutex_lock(&links[i]->lock);
    status = settle(links[i], MOERT__NCCL_IN_PROGRESS, call, deadline_ns - now_ns());
    pthread_mutex_unlock(&links[i]->lock);
  }
  return status;
}

// A header to and from every peer.
static int32_t greetings(const moert__link *link, moert__transfer transfers[MOERT_MAX_RANKS]) {
  int32_t count = 0;
  for (int32_t r = 0; r < link->watch.ranks; ++r)
    if (is_linked(link, r))
      transfers[count++] =
          (moert__transfer){r, &link->headers->sent[r], sizeof *link->headers->sent, &link->headers->received[r], sizeof *link->headers->received};
  return count;
}

static moert_status begin_greetings(moert__link **links, int32_t count) {
  const moert__nccl *nccl = links[0]->nccl;
  moert__transfer transfers[MOERT_MAX_RANKS];
  int result = nccl->group_start();
  for (int32_t i = 0; i < count; ++i) {
    int32_t entered = moert__cuda_enter(links[i]->device);
    const int32_t peers = greetings(links[i], transfers);
    for (int32_t p = 0; p < peers && is_begun(result); ++p) result = begin_transfer(links[i], &transfers[p], links[i]->stream);
    moert__cuda_leave(entered);
  }
  int ended = nccl->group_end();
  if (is_begun(result)) result = ended;
  bool goes_on = result == MOERT__NCCL_SUCCESS || result == MOERT__NCCL_IN_PROGRESS;
  return goes_on ? MOERT_OK : fail_nccl(links[0], result, "the first ncclSend and ncclRecv");
}

static moert_status await_greetings(moert__link **links, int32_t count, int64_t deadline_ns, int64_t timeout_ms) {
  moert_status status = MOERT_OK;
  for (int32_t i = 0; i < count && status == MOERT_OK; ++i) {
    moert__link *link = links[i];
    int32_t entered = moert__cuda_enter(link->device);
    cudaError_t error = cudaEventRecord(link->arrival, link->stream);
    if (error == cudaSuccess) error = await_event(link, deadline_ns);
    moert__cuda_leave(entered);
    if (error != cudaSuccess) status = moert__cuda_fail(error, "the first ncclSend and ncclRecv");
    if (error == cudaSuccess && is_given_up(link)) status = fail_given_up(link, timeout_ms * 1000000);
  }
  return status;
}

static moert_status set_watchman(moert__link *link) {
  link->has_watchman = pthread_create(&link->watchman, NULL, keep_watch, link) == 0;
  return link->has_watchman ? MOERT_OK : moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no thread for a link");
}

static moert_status connect(const moert__link_key *key, moert__link **links, int32_t count, int64_t timeout_ms) {
  const int64_t deadline_ns = now_ns() + timeout_ms * 1000000;
  moert_status status = begin_comms(key, links, count);
  if (status == MOERT_OK) status = settle_all(links, count, "ncclCommInitRankConfig", deadline_ns);
  if (status == MOERT_OK) status = begin_greetings(links, count);
  if (status == MOERT_OK) status = settle_all(links, count, "the first ncclSend and ncclRecv", deadline_ns);
  if (status == MOERT_OK) status = await_greetings(links, count, deadline_ns, timeout_ms);
  for (int32_t i = 0; i < count && status == MOERT_OK; ++i) status = set_watchman(links[i]);
  return status;
}

moert_status moert__cuda_open_links(const moert__link_key *key, const moert__link_rank *ranks, int32_t count, int64_t timeout_ms,
                                    moert__link **links) {
  const moert__nccl *nccl;
  int32_t made = 0;
  moert_status status = moert__nccl_load(&nccl);
  while (status == MOERT_OK && made < count) {
    status = make_link(nccl, &ranks[made], &links[made]);
    made += status == MOERT_OK;
  }
  if (status == MOERT_OK) status = connect(key, links, count, timeout_ms);
  for (int32_t i = 0; i < made && status != MOERT_OK; ++i) {
    links[i]->words->fault = MOERT__FAULT_PEER_FAILED; // there is nobody to take leave of
    moert__cuda_close_link(links[i]);
  }
  return status;
}

//===--- closing ------------------------------------------------------------------------------------===//

// Rows of this rank may be on their way still.
static void take_leave(moert__link *link) {
  pthread_mutex_lock(&link->lock);
  moert_status status = settle(link, link->nccl->finalize(link->comm), "ncclCommFinalize", FAREWELL_MS * INT64_C(1000000));
  if (link->comm && status == MOERT_OK) end_comm(link, link->nccl->destroy);
  give_up(link, MOERT__FAULT_PEER_FAILED, -1);
  pthread_mutex_unlock(&link->lock);
}

void moert__cuda_close_link(moert__link *link) {
  pthread_mutex_lock(&link->lock);
  link->is_closing = true;
  bool in_order = link->comm && link->words->fault == MOERT__FAULT_NONE && link->words->exchanges % 2 == 0;
  if (!in_order) give_up(link, MOERT__FAULT_PEER_FAILED, -1);
  pthread_cond_signal(&link->wakes);
  pthread_mutex_unlock(&link->lock);
  if (link->has_watchman) pthread_join(link->watchman, NULL);
  if (in_order) take_leave(link);
  await_end(link);
  free_link(link);
}

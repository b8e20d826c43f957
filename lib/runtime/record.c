//===- record.c - records of what kernels of a rank's contexts report -------------------------------===//
//
// The records lie in the rank's control block, which devices know since the communicator was made: to map more memory of the host may wait for all
// work of a device, and so for a kernel that waits for a peer. A rank with more contexts than that at a time gives each further one a page.
//
//===----------------------------------------------------------------------------------------------===//

#include "comm.h"

#include <stdlib.h>
#include <sys/mman.h>

struct moert__record_link {
  moert__record_link *next;
  moert__fault *record;
  bool has_page; // of its own
};

//===--- places -----------------------------------------------------------------------------------===//

_Static_assert(MOERT__RECORDS == 32, "taken_records has a bit for each");

static moert__fault *records_of(const moert_comm *comm) { return moert__control_of(comm, comm->rank)->records; }

// NULL if all are taken.
static moert__fault *take_record(moert_comm *comm) {
  pthread_mutex_lock(&comm->records_lock);
  int first = comm->taken_records == UINT32_MAX ? -1 : __builtin_ctz(~comm->taken_records);
  if (first >= 0) comm->taken_records |= UINT32_C(1) << first;
  pthread_mutex_unlock(&comm->records_lock);
  return first < 0 ? NULL : &records_of(comm)[first];
}

// Shared: a fork would otherwise give the process another page than the one that the devices know.
static moert_status map_page(const moert__backend *backend, void **page) {
  *page = mmap(NULL, moert__page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (*page == MAP_FAILED) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for the faults of a context");
  moert_status status = backend->map_host(*page, moert__page_bytes());
  if (status) munmap(*page, moert__page_bytes());
  return status;
}

static moert_status find_place(moert_comm *comm, moert__record_link *link) {
  link->record = take_record(comm);
  if (link->record) return MOERT_OK;
  void *page;
  moert_status status = map_page(comm->group->backend, &page);
  if (status) return status;
  link->record = page;
  link->has_page = true;
  return MOERT_OK;
}

//===--- create and destroy -----------------------------------------------------------------------===//

// Of the context before a fault may be left that nobody has looked at.
static void clear(moert__fault *record) {
  __atomic_store_n(&record->waiting, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&record->kind, MOERT__FAULT_NONE, __ATOMIC_RELEASE);
}

moert_status moert__comm_create_fault(moert_comm *comm, moert__fault **fault) {
  moert__record_link *made = calloc(1, sizeof *made);
  if (!made) return moert__fail(MOERT_ERROR_OUT_OF_MEMORY, "no memory for a context");
  moert_status status = find_place(comm, made);
  if (status) {
    free(made);
    return status;
  }
  clear(made->record);
  pthread_mutex_lock(&comm->records_lock);
  made->next = comm->records;
  comm->records = made;
  pthread_mutex_unlock(&comm->records_lock);
  *fault = made->record;
  return MOERT_OK;
}

static moert__record_link *unlink_record(moert_comm *comm, const moert__fault *record) {
  pthread_mutex_lock(&comm->records_lock);
  moert__record_link **at = &comm->records;
  while ((*at)->record != record) at = &(*at)->next;
  moert__record_link *found = *at;
  *at = found->next;
  if (!found->has_page) comm->taken_records &= ~(UINT32_C(1) << (record - records_of(comm)));
  pthread_mutex_unlock(&comm->records_lock);
  return found;
}

void moert__comm_destroy_fault(moert_comm *comm, moert__fault *fault) {
  if (!fault) return;
  clear(fault);
  moert__record_link *link = unlink_record(comm, fault);
  if (link->has_page) {
    comm->group->backend->unmap_host(fault);
    munmap(fault, moert__page_bytes());
  }
  free(link);
}

//===--- all of a rank ----------------------------------------------------------------------------===//

moert_status moert__comm_tell_fault(moert_comm *comm, bool shared) {
  moert_status status = MOERT_OK;
  pthread_mutex_lock(&comm->records_lock);
  for (const moert__record_link *at = comm->records; at && !status; at = at->next) {
    if (shared && !moert__fault_is_shared(at->record)) continue;
    status = moert__fault_tell(at->record);
    if (status && moert__fault_is_shared(at->record)) moert__comm_note(comm, status);
  }
  pthread_mutex_unlock(&comm->records_lock);
  return status;
}

void moert__forget_faults(moert_comm *comm) {
  pthread_mutex_lock(&comm->records_lock);
  for (const moert__record_link *at = comm->records; at; at = at->next) moert__fault_take(at->record);
  pthread_mutex_unlock(&comm->records_lock);
}

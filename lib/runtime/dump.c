//===- dump.c - what the ranks of a communicator wait for -------------------------------------------===//

#include "comm.h"

#include <inttypes.h>
#include <string.h>

typedef struct waiting_copy {
  int32_t peer;
  uint32_t epoch;
  char what[sizeof(moert__label)], op[sizeof(moert__label)];
  int64_t since_ns;
} waiting_copy;

static void copy_label(const moert__label *label, char text[sizeof(moert__label)]) {
  for (size_t i = 0; i < sizeof label->words / sizeof *label->words; ++i) {
    uint64_t word = atomic_load_explicit(&label->words[i], memory_order_acquire);
    memcpy(text + i * sizeof word, &word, sizeof word);
  }
  text[sizeof(moert__label) - 1] = '\0'; // parts of two texts need not end
}

// A rank that starts and ends waits so fast that no copy holds together does not hang.
static waiting_copy copy_waiting(const moert__waiting *theirs) {
  waiting_copy copy;
  for (int attempt = 0; attempt < 64; ++attempt) {
    uint32_t version = atomic_load_explicit(&theirs->version, memory_order_acquire);
    copy.peer = atomic_load_explicit(&theirs->peer, memory_order_acquire);
    copy.epoch = atomic_load_explicit(&theirs->epoch, memory_order_acquire);
    copy_label(&theirs->what, copy.what);
    copy_label(&theirs->op, copy.op);
    copy.since_ns = atomic_load_explicit(&theirs->since_ns, memory_order_acquire);
    if (version % 2 == 0 && version == atomic_load_explicit(&theirs->version, memory_order_relaxed)) return copy;
  }
  copy.peer = -1;
  return copy;
}

static const char *state_of(const moert__control *theirs, moert_status status) {
  if (atomic_load_explicit(&theirs->left_out_by, memory_order_acquire)) return "left out";
  if (status) return moert_status_name(status);
  return atomic_load_explicit(&theirs->failed, memory_order_acquire) ? "a kernel reported an error" : "no error";
}

static void describe_rank(const moert_comm *comm, int32_t rank, moert__text *text) {
  const moert__control *theirs = moert__control_of(comm, rank);
  moert_status status = (moert_status)atomic_load_explicit(&theirs->status, memory_order_acquire);
  waiting_copy copy = copy_waiting(&theirs->waiting);
  moert__append(text, "rank %" PRId32 " of %" PRId32 ": %s, ", rank, comm->group->size, state_of(theirs, status));
  if (copy.peer < 0) {
    moert__append(text, "not waiting");
  } else {
    moert__append(text, "%s for rank %" PRId32 " (%s, epoch %" PRIu32 ")", status ? "last waited" : "waits", copy.peer, copy.what, copy.epoch);
    if (*copy.op) moert__append(text, " in %s", copy.op);
    if (!status) moert__append(text, " since %" PRId64 " ms", (moert__now_ns() - copy.since_ns) / 1000000);
  }
  moert__append(text, ", %" PRIu32 " meetings", atomic_load_explicit(&theirs->arrived, memory_order_acquire));
}

// What kernels of a context wait for, or have reported and the host has not taken; false: nothing. Devices write while this reads: the text of a
// fault that is replaced meanwhile may have parts of both.
static bool describe_record(const moert_comm *comm, int32_t rank, const moert__fault *record, moert__text *text) {
  moert__append(text, "rank %" PRId32 " of %" PRId32 ": a kernel ", rank, comm->group->size);
  if (moert__fault_describe_wait(record, text)) return true;
  moert__append(text, "reported ");
  return moert__fault_describe(record, text) != MOERT_OK;
}

void moert_comm_dump(const moert_comm *comm, void (*write)(void *user, const char *line), void *user) {
  if (!comm || !write) return;
  for (int32_t r = 0; r < comm->group->size; ++r) {
    moert__text text = {0};
    describe_rank(comm, r, &text);
    write(user, text.data);
    for (int i = 0; i < MOERT__RECORDS; ++i) {
      moert__text record = {0};
      if (describe_record(comm, r, &moert__control_of(comm, r)->records[i], &record)) write(user, record.data);
    }
  }
}

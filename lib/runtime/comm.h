//===- comm.h - what the files of communicators share -----------------------------------------------===//
//
// comm.c       create and destroy, errors, memory of the device
// wait.c       waiting for peers, meetings
// symmetric.c  symmetric memory and notes
// recover.c    going on without ranks
// process.c    ranks that are processes
// record.c     records of what kernels of a rank's contexts report
// dump.c       what ranks wait for
//
// The ranks of a group meet in one *place*: memory that all of them address, and their devices too, with a control block for each rank. It has no
// pointers that a rank would follow in another process. A rank writes only its own control block and reads those of its peers, by C11 atomics;
// nothing is locked. The one exception is `left_out_by`, which the ranks that go on write for those that stay behind.
//
// Ranks of several hosts have a place each, into which the control blocks of the others are copied at each meeting: so much of them as a meeting
// needs.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_COMM_H
#define MOERT_COMM_H

#include "runtime.h"

#include <pthread.h>

enum { MOERT__LINE = 128 };

//===--- the place --------------------------------------------------------------------------------===//

// What a rank tells all others for one meeting.
typedef struct moert__vote {
  _Atomic uint64_t value;
  _Atomic(void *) memory;      // of moert_symmetric_alloc this rank's block as it addresses it itself, NULL if it has no memory
  moert__memory_handle handle; // how other processes find that block
} moert__vote;

// Up to 31 characters.
typedef struct moert__label {
  _Atomic uint64_t words[4];
} moert__label;

// What a rank waits for, for moert_comm_dump. `version` is odd while the others change.
typedef struct moert__waiting {
  _Atomic uint32_t version;
  _Atomic int32_t peer; // -1: it has not waited yet, or what it waited for has come
  _Atomic uint32_t epoch;
  moert__label what, op;
  _Atomic int64_t since_ns;
} moert__waiting;

// A rank in moert_comm_recover (recover.c).
typedef struct moert__proposal {
  _Atomic uint64_t ticket; // number << 2 | state; 0: it never was there
  _Atomic uint64_t mask;
  _Atomic uint64_t allocations;
  _Atomic uint32_t meetings;
  _Atomic int32_t phase;
  _Atomic int32_t result;
  _Atomic uint32_t seen[MOERT_MAX_RANKS]; // of each rank the newest number that this one has seen
} moert__proposal;

enum { MOERT__RECORDS = 32 };

typedef struct moert__control {
  _Alignas(MOERT__LINE) _Atomic uint32_t arrived; // at this meeting
  _Atomic uint64_t announced;                     // kind of meeting << 32 | its number
  // Two words next to each other, for kernels (moert__watch).
  _Atomic int32_t status; // first error that the host reported
  _Atomic int32_t failed; // whether a kernel of this rank reported a fault of an exchange

  _Atomic int32_t left_out_by; // 1 + a rank that went on without this one, 0: none did
  _Atomic int32_t process;     // its number among processes, 0 among threads
  moert__vote votes[2];
  _Alignas(MOERT__LINE) moert__waiting waiting;
  _Alignas(MOERT__LINE) moert__proposal proposal;
  moert__link_key link_key;                                   // of the links of the recovery that is under way, from the first rank of its mask
  _Alignas(MOERT__LINE) moert__fault records[MOERT__RECORDS]; // of the rank's contexts, which its kernels write (record.c)
} moert__control;

_Static_assert(offsetof(moert__control, failed) == offsetof(moert__control, status) + sizeof(int), "kernels read status and failed as two ints");

typedef struct moert__place {
  uint64_t nonce; // which place it is, among processes
  moert__control controls[];
} moert__place;

size_t moert__place_bytes(int32_t size); // whole pages

//===--- groups and ranks -------------------------------------------------------------------------===//

typedef struct moert__note {
  struct moert__note *next;
  size_t offset; // of the address in its block
  _Alignas(16) unsigned char bytes[MOERT__NOTE_BYTES];
} moert__note;

// One allocation of symmetric memory as a rank knows it.
typedef struct moert__block {
  struct moert__block *next;
  uint64_t number; // the same on all ranks; 0: the peers never came to agree on it
  size_t bytes;
  unsigned char *memory[MOERT_MAX_RANKS]; // NULL: that rank did not live, or this one cannot address its memory
  void *outboxes;                         // the backend's
  moert__note *notes;
} moert__block;

// What the ranks of one process have in common; among processes every rank has its own.
typedef struct moert__group {
  const moert__backend *backend;
  moert__place *place; // mapped
  int32_t size;
  int32_t transport;
  bool processes;
  bool apart; // the ranks have a place each: they are on several hosts
  bool is_mapped_to_devices;
  int32_t devices[MOERT_MAX_RANKS]; // of this process's ranks
  _Atomic int32_t references;
  moert__block *left[MOERT_MAX_RANKS]; // blocks of ranks whose handle is gone; peers may still write there
} moert__group;

typedef struct moert__record_link moert__record_link; // record.c

struct moert_comm {
  moert__group *group;
  int32_t rank;
  int32_t on_device; // ranks of the communicator that are on this one's device, itself included
  int64_t timeout_ms;
  moert__link *link; // of the transport NCCL, else NULL
  uint64_t mask;     // the ranks that live
  uint32_t meetings; // so far
  uint64_t allocations;
  moert__block *blocks;
  uint32_t recoveries;
  uint32_t ticket; // of the last proposal
  // Of each rank the last proposal with which all came together, and the last that was in the way when masks differed.
  uint32_t met[MOERT_MAX_RANKS], refused[MOERT_MAX_RANKS];
  pthread_mutex_t records_lock; // contexts come and go on any thread
  uint32_t taken_records;       // of the control block: bits
  moert__record_link *records;
};

static inline moert__control *moert__control_of(const moert_comm *comm, int32_t rank) { return &comm->group->place->controls[rank]; }
static inline bool moert__lives(const moert_comm *comm, int32_t rank) { return comm->mask >> rank & 1; }

//===--- comm.c -----------------------------------------------------------------------------------===//

moert_status moert__check_size(int32_t size);
// The options or, if they are NULL, the defaults.
moert_status moert__read_comm_options(const moert_comm_options *given, moert_comm_options *options);
// The backend, and the devices of ranks [first, first + count).
moert_status moert__place_ranks(const moert_comm_options *options, int32_t first, int32_t count, const moert__backend **backend, int32_t *devices);
moert_status moert__check_ranks_on_device(const moert__group *group, int32_t device, int32_t ranks);
// The transport that was asked for or, if that is AUTO, the one that is needed; `reach`: all ranks can address each other's memory.
moert_status moert__choose_transport(const moert__backend *backend, int32_t asked, bool reach, int32_t *transport);
// Links of ranks that live, to all others that live: of ranks of this process, which have none. Collective.
moert_status moert__open_links(moert_comm *const *comms, int32_t count, const moert__link_key *key, int64_t timeout_ms);
void moert__close_link(moert_comm *comm);
// A group of which ranks [first, first + count) are in this process: it owns its place, which the devices may address; releases the place if it
// fails.
moert_status moert__create_group(const moert__group *described, int32_t first, int32_t count, moert__group **made);
void moert__release_group(moert__group *group);
// NULL if there is no memory.
moert_comm *moert__create_rank(moert__group *group, int32_t rank, int32_t on_device, int64_t timeout_ms);
// An error that stands, be it one of a kernel that nobody has looked at yet: a collective returns it without waiting for anybody.
moert_status moert__standing_error(moert_comm *comm);
moert_status moert__check_timeout(const moert_comm *comm, int64_t *timeout_ms); // and put the default for 0

//===--- wait.c -----------------------------------------------------------------------------------===//

int64_t moert__now_ns(void);
// Wait until the deadline, and record what goes wrong.
moert_status moert__wait_until(moert_comm *comm, const moert__wait *wait, int64_t deadline_ns, int64_t timeout_ms);
// The parts of a wait of one's own: what moert_comm_dump shows (`wait` NULL: nothing any more), a pause that grows with the number of looks, whether
// it is time to ask for the peer's process, and errors.
void moert__publish_waiting(moert_comm *comm, const moert__wait *wait);
void moert__pause_before_look(uint64_t looks);
bool moert__has_ended(const moert_comm *comm, int32_t peer, uint64_t looks);
moert_status moert__fail_timeout(const moert_comm *comm, const moert__wait *wait, int64_t timeout_ms);
moert_status moert__fail_ended(const moert_comm *comm, int32_t peer, const char *what, uint32_t epoch);
moert_status moert__fail_left_out(const moert_comm *comm);

typedef enum moert__meeting {
  MOERT__MEETING_BARRIER = 1,
  MOERT__MEETING_ALLOC,
  MOERT__MEETING_FREE,
  MOERT__MEETING_MAP, // of processes alone, as the next
  MOERT__MEETING_UNMAP,
  MOERT__MEETING_AGREE
} moert__meeting;

// Of barriers that compare numbers: whether all ranks gave this one. *other: the first that did not, else -1.
moert_status moert__agree(moert_comm *comm, uint64_t number, int64_t timeout_ms, int32_t *other);
// Votes of the meeting that is next for this rank, and of the last.
moert__vote *moert__next_vote(const moert_comm *comm);
const moert__vote *moert__vote_of(const moert_comm *comm, int32_t rank);
moert_status moert__meet(moert_comm *comm, moert__meeting kind, int64_t timeout_ms);

//===--- symmetric.c ------------------------------------------------------------------------------===//

void moert__free_blocks(const moert__group *group, int32_t rank, moert__block *blocks);
// Calls moert__workspace_recover for every note; the first error.
moert_status moert__symmetric_recover(moert_comm *comm, uint64_t mask);

//===--- record.c ---------------------------------------------------------------------------------===//

// The status of a fault that stands in a record, with its text as the last error; only those of exchanges if `shared`.
moert_status moert__comm_tell_fault(moert_comm *comm, bool shared);
// What kernels have reported so far is forgotten.
void moert__forget_faults(moert_comm *comm);

//===--- process.c --------------------------------------------------------------------------------===//

// Whether a process of this number is there no more, or runs no more.
bool moert__process_has_ended(int32_t process);

#endif

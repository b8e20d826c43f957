//===- workspace.h - layout and protocol words of workspaces --------------------------------------===//
//
// Every rank has a slab of one layout in symmetric memory; metainfo holds the offsets of its regions (docs/abi.md). Each dispatch, combine and
// all-reduce is one epoch. A rank first announces to all what it is about to do, then writes to its peers' slabs, and raises a flag there: a word
// that only this rank writes, set to the epoch, with release order. A peer that has seen the flag may read everything that was written before it.
//
// All that stands here of ranks is about those that take part. The others fall behind by epochs, and are not waited for again before all begin anew.
//
// Why no word is overwritten before all have read it: a rank ends an epoch only when every peer's flag of that epoch has arrived, so that no
// rank is more than one epoch ahead. Rows that a dispatch sends are read until the receiver's combine flag, and rows that a combine offers until
// the reader announces its next dispatch. Statistics go out with the rows of a dispatch, when the count flags of all ranks have arrived, and are read
// before it ends: a peer sends others only when this rank has begun its next dispatch, behind its combine flag. Rows of an all-reduce are read in its
// epoch, and every rank waits until all have begun an epoch before it sends rows. Areas are laid out for the largest token count, and rows of
// statistics for the largest number of them, so none moves when a call uses less of it.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_WORKSPACE_H
#define MOERT_REFERENCE_WORKSPACE_H

#include "lib/runtime/shared.h"

#ifdef __cplusplus
extern "C" {
#endif

// A dispatch that its combine has to fit.
typedef struct moert__round {
  int64_t tokens, max_tokens, top_k, layout;
  int64_t rows;  // of the grouped layout on this rank; 0 where only the device knows
  uint64_t mask; // of the ranks that took part; 0: there was no dispatch yet
} moert__round;

// What this rank's host remembers of a workspace between calls: the note of the slab's address. An address without one is no workspace.
typedef struct moert__workspace_note {
  moert_workspace_info info; // `ep_size` is the number of ranks; 0: not initialised
  int64_t dispatched;        // whether `round` waits for its combine
  moert__round round;
} moert__workspace_note;

// An initialised workspace in the hands of one call.
typedef struct moert__workspace {
  int32_t rank, ranks;
  uint64_t mask;                // of the ranks that take part: those that live or, once selected, those of `active_rank_mask`
  char *peers[MOERT_MAX_RANKS]; // every rank's slab as this rank addresses it, its own included
  moert_workspace_layout layout;
  moert__workspace_note *note;
  uint64_t announcement; // hash << 32 | epoch of this call
} moert__workspace;

static inline bool moert__workspace_has(const moert__workspace *workspace, int32_t rank) { return workspace->mask >> rank & 1; }
// A region of the slab of `rank`.
void *moert__workspace_region(const moert__workspace *workspace, int32_t rank, int field);

// The number of ranks, if the parameter `name` agrees with the context.
moert_status moert__workspace_ranks(moert_context *context, const char *name, int64_t value, int64_t *ranks);
// That metainfo has its length, and the slab its alignment and at least `bytes`.
moert_status moert__workspace_check(const moert_tensor *workspace, const moert_tensor *metainfo, int64_t bytes);
// Go on with the ranks of `mask`, as after moe.initialize: no rank may be in an exchange, before all have done this. `note` is that of `address`.
moert_status moert__workspace_recover(moert_comm *comm, void *address, void *note, uint64_t mask);
// Check workspace and metainfo against each other and against the context, which the parameter `name` has to agree with.
moert_status moert__workspace_open(moert_context *context, const char *name, int64_t value, const moert_tensor *workspace,
                                   const moert_tensor *metainfo, moert__workspace *opened);
// Leave only the ranks of the operand `active_rank_mask`; 0: it is absent, and all that live stay.
moert_status moert__workspace_select(moert__workspace *workspace, int64_t active_rank_mask);
// That no rank of the mask was left out of the dispatch before: it is behind by epochs, and would be waited for in vain.
moert_status moert__workspace_check_returns(const moert__workspace *workspace);

// FNV-1a over what ranks must agree on; start from MOERT__HASH_INIT.
#define MOERT__HASH_INIT UINT32_C(2166136261)
enum { MOERT__HASH_DISPATCH = 1, MOERT__HASH_COMBINE, MOERT__HASH_ALLREDUCE_FUSION, MOERT__HASH_FINALIZE_ALLREDUCE_FUSION }; // the first value
uint32_t moert__hash(uint32_t hash, int64_t value);
uint32_t moert__hash_dtype(uint32_t hash, moert_dtype dtype);

//===--- the exchange of the host backend; kernels/common/exchange.cuh is that of devices -------------===//

// An exchange begins: at the stop point "entry", begin the next epoch, and say to all ranks what this one does.
moert_status moert__workspace_enter(moert__workspace *workspace, moert_context *context, uint32_t hash);
// The counts are sent: raise this rank's flag in the region `field` of every slab; behind the stop point "counts", wait for all others' (`what`
// they stand for), and make sure that all ranks do the same.
moert_status moert__workspace_meet(const moert__workspace *workspace, moert_context *context, int field, const char *what);
// The data is sent, and the exchange ends: behind the stop points "data" and "flag", the same for the data.
moert_status moert__workspace_complete(const moert__workspace *workspace, moert_context *context, int field);
// How many rows of the last dispatch came from `source`.
int64_t moert__workspace_received(const moert__workspace *workspace, int32_t source);
// Whether an exchange ended because of another rank: then outputs are poisoned.
bool moert__is_peer_error(moert_status status);
// What an output holds after a failed wait: NaN in every floating-point format, -1 in integers. An output inside the workspace is left to the peers,
// which may still write there.
void moert__workspace_poison(const moert__workspace *workspace, const moert_tensor *output);

//===--- operands ---------------------------------------------------------------------------------===//

// That no dispatch still needs its receive areas.
moert_status moert__workspace_check_idle(const moert__workspace *workspace);
// That a tensor, if there is one, does not lie in the slab before the combine area: peers write there while this rank reads its inputs and writes
// its outputs.
moert_status moert__workspace_check_apart(const moert__workspace *workspace, const moert_tensor *tensor, const char *name);
// Whether a tensor and bytes [begin, end) of this rank's slab share memory.
MOERT__SHARED bool moert__workspace_overlaps(const moert__workspace *workspace, const moert_tensor *tensor, int64_t begin, int64_t end);
// The bytes of the dimensions from `leading` on; INT64_MAX if an empty tensor has dimensions whose product is larger.
int64_t moert__row_size(const moert_tensor *tensor, int32_t leading);
// Whether a has the dimensions of b from there on.
bool moert__same_row(const moert_tensor *a, int32_t a_leading, const moert_tensor *b, int32_t b_leading);

// Experts stand on ranks in contiguous blocks; the first `experts % ranks` ranks own one more.
int64_t moert__first_expert(int64_t experts, int64_t ranks, int64_t rank);
int32_t moert__expert_rank(int64_t experts, int64_t ranks, int64_t expert); // -1: no such expert

#ifdef __cplusplus
}
#endif
#endif

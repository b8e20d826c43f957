//===- fault.h - what a kernel reports to the host --------------------------------------------------===//
//
// A kernel cannot return a status. It writes a record to host memory that is mapped to its device; the host makes a status and a text of it when it
// next looks. For moert_comm_dump a kernel that has waited long says there what it waits for. Kernels include this file.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_FAULT_H
#define MOERT_FAULT_H

// X(name, status, format of up to 6 values, all int64_t). The texts are those of the host backend for the same errors.
#define MOERT__FAULT_MAP(X)                                                                                                                          \
  X(NONE, MOERT_OK, "")                                                                                                                              \
  X(TIMEOUT, MOERT_ERROR_PEER_TIMEOUT, "rank %" PRId64 " waited %" PRId64 " ms for rank %" PRId64 " (%s, epoch %" PRId64 ")")                        \
  X(PEER_FAILED, MOERT_ERROR_PEER_FAILED, "rank %" PRId64 " reported an error while rank %" PRId64 " waited for it (%s, epoch %" PRId64 ")")         \
  X(MISMATCH, MOERT_ERROR_PEER_MISMATCH,                                                                                                             \
    "rank %" PRId64 " called another op or used other parameters than rank %" PRId64 " (%s, epoch %" PRId64 "): hash %08" PRIx64                     \
    ", must be %08" PRIx64)                                                                                                                          \
  X(STANDING, MOERT_ERROR_PEER_FAILED, "the workspace stands in error since an earlier call: moert_comm_recover or moe.initialize clears it")        \
  X(DISPATCH_CAPACITY, MOERT_ERROR_CAPACITY,                                                                                                         \
    "%" PRId64 " rows arrived for the experts of rank %" PRId64 ", operand 'recv[0]' has room for %" PRId64)                                         \
  X(COMBINE_ROWS, MOERT_ERROR_INVALID_SHAPE, "operand 'payload' has %" PRId64 " rows, must have at least %" PRId64 ", which the dispatch received")  \
  X(ALLREDUCE_EXPERTS, MOERT_ERROR_DATA,                                                                                                             \
    "operand 'moe_reduction_device_num_experts' holds %" PRId64 ", must be in [0, %" PRId64                                                          \
    "], dimension 0 of 'moe_reduction_active_experts_token_input'")                                                                                  \
  X(FINALIZE_INDEX, MOERT_ERROR_DATA,                                                                                                                \
    "operand 'expanded_idx_to_permuted_idx' holds %" PRId64 " for token %" PRId64 ", slot %" PRId64 ", must be at least -1 and less than %" PRId64   \
    ", dimension 0 of 'allreduce_in'")                                                                                                               \
  X(OFFSET_NEGATIVE, MOERT_ERROR_DATA, "offsets[%" PRId64 "] is %" PRId64 ", must not be negative")                                                  \
  X(OFFSET_DESCENDS, MOERT_ERROR_DATA, "offsets[%" PRId64 "] is %" PRId64 ", less than offsets[%" PRId64 "] = %" PRId64 ": must not descend")        \
  X(OFFSET_EXCEEDS, MOERT_ERROR_DATA, "offsets[%" PRId64 "] is %" PRId64 ", exceeds the %" PRId64 " rows of 'out'")                                  \
  X(ROW_ID, MOERT_ERROR_DATA, "row_ids[%" PRId64 "] is %" PRId64 ", must be at least 0 and less than the %" PRId64 " rows of 'rows'")                \
  X(EP_PENDING, MOERT_ERROR_INVALID_STATE, "the dispatch before on these counters waits for its combine: call ep.combine.skip_a2a first")            \
  X(EP_CAPACITY, MOERT_ERROR_CAPACITY,                                                                                                               \
    "%" PRId64 " rows are for the experts of rank %" PRId64 ", operand 'output_tokens' has room for %" PRId64                                        \
    "; max_token_per_rank * min(n_experts, top_k) rows, with a fused shared expert max_token_per_rank more, are enough if no token lists an "        \
    "expert twice")                                                                                                                                  \
  X(EP_IDLE, MOERT_ERROR_INVALID_STATE, "no dispatch on these counters waits for its combine: call ep.dispatch first")                               \
  X(EP_TOKENS, MOERT_ERROR_INVALID_STATE, "operand 'topk_ids' has %" PRId64 " tokens, must have %" PRId64 " as in the dispatch")                     \
  X(EP_TOP_K, MOERT_ERROR_INVALID_STATE, "parameter 'top_k' is %" PRId64 ", must be %" PRId64 " as in the dispatch")                                 \
  X(EP_SHARED, MOERT_ERROR_INVALID_STATE, "parameter 'fused_shared_expert' is %" PRId64 ", must be %" PRId64 " as in the dispatch")                  \
  X(EP_SEGMENTS, MOERT_ERROR_INVALID_STATE,                                                                                                          \
    "operand 'atomic_counters' was changed since the dispatch: expert %" PRId64 " has %" PRId64 " rows up to row %" PRId64)                          \
  X(EP_ROWS, MOERT_ERROR_INVALID_SHAPE, "operand 'input_tokens' has %" PRId64 " rows, must have at least %" PRId64 ", which the dispatch placed")    \
  X(EP_SOURCE, MOERT_ERROR_DATA,                                                                                                                     \
    "operand 'src_info' has no row for token %" PRId64 ", slot %" PRId64 ", whose expert %" PRId64 " is one of rank %" PRId64                        \
    ": pass 'src_info' and 'topk_ids' of the dispatch")                                                                                              \
  X(ROUTED_CAPACITY, MOERT_ERROR_CAPACITY,                                                                                                           \
    "operand 'expert_ids' has room for %" PRId64 " blocks, must have room for the %" PRId64 " of the plan, and 'sorted_token_ids' for %" PRId64      \
    " entries each")

enum moert__fault_kind {
#define MOERT__FAULT_ENUM(name, status, format) MOERT__FAULT_##name,
  MOERT__FAULT_MAP(MOERT__FAULT_ENUM)
#undef MOERT__FAULT_ENUM
};

// What a rank waits for; the %s of the formats above.
#define MOERT__AWAITED_MAP(X)                                                                                                                        \
  X(COUNTS, "its counts")                                                                                                                            \
  X(DATA, "its data")                                                                                                                                \
  X(ARRIVAL, "its arrival")
enum moert__awaited {
#define MOERT__AWAITED_ENUM(name, text) MOERT__AWAITED_##name,
  MOERT__AWAITED_MAP(MOERT__AWAITED_ENUM)
#undef MOERT__AWAITED_ENUM
};

// One record of a context. The first fault stays until the host has taken it: one thread of a kernel looks whether `kind` is 0, writes the values and
// then, behind a fence for the system, `kind`. All kernels of a context are on one stream, so that no two look at once.
typedef struct moert__fault {
  int kind;            // moert__fault_kind
  int op;              // MOERT__OP_...
  long long values[6]; // those of the format in order; for %s a moert__awaited

  // What a kernel has been waiting for, for some milliseconds at least: epoch | op << ..._OP | moert__awaited << ..._WHAT | (peer + 1) << ..._PEER;
  // 0: none has. Apart from the fault.
  unsigned long long waiting;
} moert__fault;
enum { MOERT__WAITING_OP = 32, MOERT__WAITING_WHAT = 48, MOERT__WAITING_PEER = 56 };

// What the kernels of an exchange need to know of the communicator; a kernel parameter.
typedef struct moert__watch {
  int rank, ranks;
  long long timeout_ns;
  moert__fault *fault; // of the context
  int op;              // MOERT__OP_...
  int *failed;         // this rank's word for peers in host memory: set to 1 with a fault of an exchange
  // Of rank r two words at statuses + r * stride, in host memory: the first error that its host reported, and its `failed`. Who waits for r gives up
  // when one of them is set.
  const int *statuses;
  long long stride; // in ints
} moert__watch;

#endif

/*===- ep.h - counters and buffers of the ops of the dialect `ep` -------------------------------------===*
 *
 * A caller allocates the counters, ep.init the buffers. Both follow from the parameters of the ops; their sizes are computed here, for compilers and
 * callers that want to know them before.
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOERT_EP_H
#define MOERT_EP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*===--- counters: int32 words ----------------------------------------------------------------------===*/

enum { MOERT_EP_FLAG = 1024 }; /* is added to what is there, so that a 0 says that nothing is */

/* Where what a dispatch leaves for its combine begins. The other words are for kernels. */
typedef struct moert_ep_counters {
  int64_t segments; /* of each expert: MOERT_EP_FLAG + the row behind its last, then the number of its rows */
  int64_t round;    /* MOERT_EP_FLAG + tokens, top_k, fused_shared_expert */
  int64_t words;
} moert_ep_counters;

static inline moert_ep_counters moert_ep_lay_out_counters(int64_t n_experts) {
  const int64_t sending = 2 * n_experts + 8, waiting = 8 * n_experts + 8, blocks = 304;
  moert_ep_counters layout;
  layout.segments = sending;
  layout.round = sending + waiting;
  layout.words = sending + waiting + blocks;
  return layout;
}

/*===--- buffers: bytes -----------------------------------------------------------------------------===*/

enum { MOERT_EP_DISPATCH = 0, MOERT_EP_COMBINE = 1, MOERT_EP_GROUPS = 2 };                    /* rows of dev_ptrs */
enum { MOERT_EP_SEND = 0, MOERT_EP_RECV = 1, MOERT_EP_RECV_COUNT = 2, MOERT_EP_BUFFERS = 3 }; /* columns */
enum { MOERT_EP_ALIGNMENT = 16 };                                                             /* of the parts of a message */
#define MOERT_EP_NO_COUNT UINT64_MAX                                                          /* a receive count that has not come */

typedef struct moert_ep_info {
  int64_t hidden_size, top_k, n_experts, max_token_per_rank;
  int64_t combine_element_bytes;
} moert_ep_info;

typedef struct moert_ep_buffers {
  int64_t message;                                  /* a token in bf16, its row on its rank (i32), its experts (u16 each); each part aligned */
  int64_t bytes[MOERT_EP_GROUPS][MOERT_EP_BUFFERS]; /* 0: there is no such buffer */
} moert_ep_buffers;

static inline int64_t moert_ep_align(int64_t bytes) { return (bytes + MOERT_EP_ALIGNMENT - 1) / MOERT_EP_ALIGNMENT * MOERT_EP_ALIGNMENT; }

/* For format "BF16" and the mode skip_a2a: one node, and n_experts those of one rank. Within the bounds of the ops' parameters no number here reaches
 * 2^63. */
static inline moert_ep_buffers moert_ep_lay_out_buffers(const moert_ep_info *info) {
  const int64_t counts = 8 * info->n_experts;
  moert_ep_buffers buffers;
  buffers.message = moert_ep_align(2 * info->hidden_size) + moert_ep_align(4) + moert_ep_align(2 * info->top_k);
  buffers.bytes[MOERT_EP_DISPATCH][MOERT_EP_SEND] = info->max_token_per_rank * buffers.message;
  buffers.bytes[MOERT_EP_DISPATCH][MOERT_EP_RECV] = info->n_experts * info->max_token_per_rank * buffers.message;
  buffers.bytes[MOERT_EP_DISPATCH][MOERT_EP_RECV_COUNT] = counts;
  buffers.bytes[MOERT_EP_COMBINE][MOERT_EP_SEND] = 0; /* between nodes only */
  buffers.bytes[MOERT_EP_COMBINE][MOERT_EP_RECV] = info->top_k * info->max_token_per_rank * info->hidden_size * info->combine_element_bytes;
  buffers.bytes[MOERT_EP_COMBINE][MOERT_EP_RECV_COUNT] = counts;
  return buffers;
}

#ifdef __cplusplus
}
#endif
#endif /* MOERT_EP_H */

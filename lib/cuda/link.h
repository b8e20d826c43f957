//===- link.h - links between ranks that cannot address each other's memory ---------------------------------===//
//
// The transport NCCL, as launchers see it (kernels/common/nccl_exchange.h). Kernels write to local images of the peers' slabs, *outboxes*; a link
// moves what is there to the slabs themselves. C, and C++ for launchers.
//
// No call of a link waits for a peer longer than the deadline of the exchange. A thread of the link, the watchman, looks at what is under way: at the
// deadline, when a peer has reported an error, or when NCCL has met one, it gives the link up. Then NCCL's kernels end, and those behind them on
// the stream see in the words of the link that nothing came, and why.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_CUDA_LINK_H
#define MOERT_CUDA_LINK_H

#include "lib/runtime/shared.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a rank tells a peer at the beginning of an exchange.
typedef struct moert__link_header {
  unsigned long long announcement; // hash << 32 | epoch; 0: nothing has come
  int rows;                        // that it sends
  int failed;                      // it sends none, and has reported why
} moert__link_header;

// In host memory, at the same address for kernels.
typedef struct moert__link_words {
  // Kernels write these. Exchanges so far, begun and ended: while the number is odd one is under way.
  unsigned exchanges;
  long long timeout_ns; // of that exchange, as the next two
  moert__fault *record;
  unsigned long long waiting; // what moert_comm_dump shows of it, without the peer: as moert__fault has it
  // The watchman writes these: the fault that the link was given up for, MOERT__FAULT_NONE before, and the peer that is to blame, -1: NCCL cannot
  // tell.
  int fault, blamed;
  moert__link_header sent[MOERT_MAX_RANKS], received[MOERT_MAX_RANKS]; // as moert__link_await has found them
} moert__link_words;

// In device memory.
typedef struct moert__link_headers {
  moert__link_header sent[MOERT_MAX_RANKS], received[MOERT_MAX_RANKS];
} moert__link_headers;

// Both must have the bytes that the other end has.
typedef struct moert__transfer {
  int32_t peer;
  const void *send;
  size_t send_bytes;
  void *receive;
  size_t receive_bytes;
} moert__transfer;

moert__link_words *moert__link_words_of(const moert__link *link);
moert__link_headers *moert__link_headers_of(const moert__link *link);

// An exchange has the link's words and headers for itself: what is put on the stream from here on follows what another stream was given in front of
// `moert__link_leave`. Exchanges that are captured follow each other as the program launches them.
moert_status moert__link_enter(moert__link *link, cudaStream_t stream);
moert_status moert__link_leave(moert__link *link, cudaStream_t stream);

// Put transfers on the stream, all at once; can be captured. Nothing is moved over a link that was given up, whose words say so.
moert_status moert__link_move(moert__link *link, const moert__transfer *transfers, int32_t count, long long timeout_ns, cudaStream_t stream);
// Wait until the stream has come here, and copy the headers to the link's words.
moert_status moert__link_await(moert__link *link, cudaStream_t stream);

// The image of the slab of `peer`, which has the layout of this rank's: its address, which must not be used but for bytes that have been given
// memory. `capturing`: no memory may be made; what has none is NOT_CAPTURABLE.
moert_status moert__outbox(moert_context *context, const void *slab, int32_t peer, char **image);
moert_status moert__outbox_provide(moert_context *context, const void *slab, int32_t peer, int64_t begin, int64_t end, bool capturing);

#ifdef __cplusplus
}
#endif
#endif

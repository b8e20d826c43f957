//===- bulk.cuh - rows that the copy engine of a multiprocessor moves ------------------------------------===//
//
// One thread, the mover, takes rows from global memory through stages of shared memory to one or more places, on any GPU. It needs no registers for
// what is on its way, so that few multiprocessors fill a link; and it learns that what it has stored is there without a fence over all stores of the
// multiprocessor, which would take as long as the link's queue.
//
// Addresses and sizes are multiples of 16 bytes.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_BULK_CUH
#define MOE_KERNELS_BULK_CUH

#include <cstdint>

namespace bulk {

const int kStages = 6;
const int kStageBytes = 14336; // at most; the row of the largest models in 16 bits
const int kUnfinished = 4;     // groups that may be on their way when those before them are told

// In shared memory. Of the copies into each stage one phase after the other.
struct Barriers {
  unsigned long long full[kStages];
};

__device__ inline uint32_t sharedAddress(const void *shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }

__device__ inline void open(Barriers *barriers) {
  for (int i = 0; i < kStages; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(&barriers->full[i])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void load(char *stage, const char *from, uint32_t bytes, unsigned long long *full) {
  const uint32_t barrier = sharedAddress(full);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAddress(stage)), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ inline void awaitLoad(unsigned long long *full, uint32_t phase) {
  uint32_t isFull;
  do
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(isFull)
                 : "r"(sharedAddress(full)), "r"(phase)
                 : "memory");
  while (!isFull);
}

__device__ inline void store(char *to, const char *stage, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(sharedAddress(stage)), "r"(bytes) : "memory");
}

// The stores since the last one are a group.
__device__ inline void closeGroup() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All but the last `kLeft` groups have been read from their stages.
template <int kLeft> __device__ void awaitReads() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory"); }
// They are where they belong: this thread sees them, and those that it tells.
template <int kLeft> __device__ void awaitStores() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kLeft) : "memory"); }

// A piece of a row.
struct Piece {
  const char *from;
  uint32_t bytes;
};

// Moves all pieces of a cursor, in its order; once in the life of the barriers. A cursor has
//
//   bool next(Piece *)                the next piece, false: no more
//   void storeTo(const char *stage)   stores the piece that `next` has given to its places
//   void finish()                     what the piece is a part of may be told: it is where it belongs, and so are those before it
//   void settle()                     before `finish` of a few pieces
//
// of which `loads` reads ahead, `stores` follows, and `ends` comes last. There are about `count` pieces: of many more are told at once, for to tell
// costs a fence, a microsecond; of few each soon, for somebody waits.
template <typename Cursor> __device__ void moveAll(Barriers *barriers, char *stages, int count, Cursor loads, Cursor stores, Cursor ends) {
  const uint32_t told = count < 64 ? 2 : 8;
  uint32_t loaded = 0, stored = 0, ended = 0;
  bool hasMore = true;
  Piece piece;
  for (;;) {
    if (hasMore && loaded - stored < kStages - 1) {
      hasMore = loads.next(&piece);
      if (hasMore) {
        load(stages + loaded % kStages * kStageBytes, piece.from, piece.bytes, &barriers->full[loaded % kStages]);
        ++loaded;
        continue;
      }
    }
    const bool isStoring = stored < loaded;
    if (isStoring) {
      stores.next(&piece);
      awaitLoad(&barriers->full[stored % kStages], stored / kStages & 1);
      stores.storeTo(stages + stored % kStages * kStageBytes);
      closeGroup();
      ++stored;
      awaitReads<1>();
      if (stored - ended < kUnfinished + told) continue;
      awaitStores<kUnfinished>();
    } else {
      awaitStores<0>();
    }
    const uint32_t end = isStoring ? stored - kUnfinished : stored;
    if (ended < end) ends.settle();
    for (; ended < end; ++ended) {
      ends.next(&piece);
      ends.finish();
    }
    if (!isStoring) return;
  }
}

} // namespace bulk

#endif

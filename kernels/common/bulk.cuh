//===- bulk.cuh - rows that the copy engine of a multiprocessor moves ------------------------------------===//
//
// One thread, the mover, takes rows from global memory, or what other warps make of them, through stages of shared memory to one or more places, on
// any GPU. It needs no registers for what is on its way, so that few multiprocessors fill a link; and it learns that what it has stored is there
// without a fence over all stores of the multiprocessor, which would take as long as the link's queue.
//
// Addresses and sizes are multiples of 16 bytes.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_BULK_CUH
#define MOE_KERNELS_BULK_CUH

#include <cstdint>

namespace bulk {

const int kBlockStages = 6;    // of all movers of a block
const int kStageBytes = 14336; // at most; the row of the largest models in 16 bits
const int kUnfinished = 4;     // groups that may be on their way when those before them are told

// In shared memory. Stages are filled and, where others than the mover do that, freed, one phase after the other.
struct Barriers {
  unsigned long long full[kBlockStages], free[kBlockStages];
};

__device__ inline uint32_t sharedAddress(const void *shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }

__device__ inline void openBarrier(unsigned long long *barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(count) : "memory");
}

// Behind all `openBarrier`, in front of the block's barrier.
__device__ inline void publishBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// `fills`: the calls of `fill` by which a stage is full; 1 if the mover loads.
__device__ inline void open(Barriers *barriers, int fills) {
  for (int i = 0; i < kBlockStages; ++i) {
    openBarrier(&barriers->full[i], fills);
    openBarrier(&barriers->free[i], 1);
  }
  publishBarriers();
}

__device__ inline void arrive(unsigned long long *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
}

// The barrier waits for so many bytes as well.
__device__ inline void arriveForBytes(unsigned long long *barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes) : "memory");
}

__device__ inline void await(unsigned long long *barrier, uint32_t phase) {
  uint32_t isOver;
  do
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(isOver)
                 : "r"(sharedAddress(barrier)), "r"(phase)
                 : "memory");
  while (!isOver);
}

//===--- by warps that fill stages ----------------------------------------------------------------===//

// Stage `number`, counted from the first on, may be written to.
__device__ inline void awaitFree(Barriers *barriers, int number) {
  if (number >= kBlockStages) await(&barriers->free[number % kBlockStages], static_cast<uint32_t>(number / kBlockStages - 1) & 1);
}

// By a whole warp, when it has written its part.
__device__ inline void fill(Barriers *barriers, int number) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(&barriers->full[number % kBlockStages]);
}

//===--- by the mover -----------------------------------------------------------------------------===//

__device__ inline void load(char *stage, const char *from, uint32_t bytes, unsigned long long *full) {
  arriveForBytes(full, bytes);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sharedAddress(stage)), "l"(from),
               "r"(bytes), "r"(sharedAddress(full))
               : "memory");
}

// What others have stored, and this thread has seen, may be loaded.
__device__ inline void orderLoads() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

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

// A cursor goes over pieces in their order. It has
//
//   bool next(Piece *)                the next piece, false: no more
//   void storeTo(const char *stage)   stores the piece that `next` has given to its places
//   void finish()                     what the piece is a part of may be told: it is where it belongs, and so are those before it
//   void settle()                     before `finish` of a few pieces
//
// Of about `count` pieces, if these are many, more are told at once, for to tell costs a fence, a microsecond; of few each soon, for somebody waits.
template <int kStages, typename Cursor> class Stores {
public:
  __device__ Stores(Barriers *barriers, char *stages, int count, const Cursor &cursor)
      : barriers(barriers), stages(stages), told(count < 64 ? 2 : 8), stores(cursor), ends(cursor) {}

  __device__ uint32_t count() const { return stored; }

  // The next piece, when its stage is full. False: no more. Then the stages of all but the last two have been read.
  __device__ bool storeNext() {
    Piece piece;
    if (!stores.next(&piece)) return false;
    await(&barriers->full[stored % kStages], stored / kStages & 1);
    stores.storeTo(stages + stored % kStages * kStageBytes);
    closeGroup();
    ++stored;
    awaitReads<1>();
    if (stored - ended < kUnfinished + told) return true;
    awaitStores<kUnfinished>();
    tell(stored - kUnfinished);
    return true;
  }

  __device__ void finish() {
    awaitStores<0>();
    tell(stored);
  }

private:
  __device__ void tell(uint32_t end) {
    Piece piece;
    if (ended < end) ends.settle();
    for (; ended < end; ++ended) {
      ends.next(&piece);
      ends.finish();
    }
  }

  Barriers *barriers;
  char *stages;
  const uint32_t told;
  uint32_t stored = 0, ended = 0;
  Cursor stores, ends;
};

// Moves all pieces, by way of so many stages; once in the life of the barriers.
template <int kStages, typename Cursor> __device__ void moveAll(Barriers *barriers, char *stages, int count, const Cursor &cursor) {
  Stores<kStages, Cursor> stores(barriers, stages, count, cursor);
  Cursor loads = cursor;
  Piece piece;
  bool hasMore = true;
  for (uint32_t loaded = 0;;) {
    if (hasMore && loaded - stores.count() < kStages - 1) {
      hasMore = loads.next(&piece);
      if (hasMore) load(stages + loaded % kStages * kStageBytes, piece.from, piece.bytes, &barriers->full[loaded % kStages]);
      loaded += hasMore;
    } else if (!stores.storeNext()) {
      break;
    }
  }
  stores.finish();
}

// Likewise by way of all stages, which others fill.
template <typename Cursor> __device__ void moveFilled(Barriers *barriers, char *stages, int count, const Cursor &cursor) {
  Stores<kBlockStages, Cursor> stores(barriers, stages, count, cursor);
  while (stores.storeNext())
    if (stores.count() > 1) arrive(&barriers->free[(stores.count() - 2) % kBlockStages]);
  stores.finish();
}

} // namespace bulk

#endif

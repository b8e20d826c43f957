//===- bulk.cuh - rows that the copy engine of a multiprocessor moves ------------------------------------===//
//
// One thread, the mover, takes rows from global memory, or what other warps make of them, through stages of shared memory to one or more places, on
// any GPU. It needs no registers for what is on its way, so that few multiprocessors fill a link; and it learns that what it has stored is there.
// To tell others takes a fence, which lasts until all that the multiprocessor has on its way is there: a thread of another warp, the teller, does
// that, and the mover goes on. Where nobody has to know of pieces before all are there, there is no teller, and another mover instead.
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

const int kUnfinished = 4; // groups that may be on their way when those before them are there
const uint32_t kMany = 64; // pieces, which a block has where few multiprocessors have all

// In shared memory, of a mover. Stages are filled and, where others than the mover do that, freed, one phase after the other.
struct Barriers {
  unsigned long long full[kBlockStages], free[kBlockStages];
  int moved; // pieces that are where they belong, as the teller knows; inverted: all
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
  barriers->moved = 0;
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

// One thread of a warp, all of which call this. The compiler knows of it that there is one: the operands of its copies go straight to the registers
// of the warp, where it would have to look otherwise which threads have the same.
__device__ inline bool isChosen() {
  uint32_t chosen;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(chosen));
  return chosen != 0;
}

//===--- words in shared memory -------------------------------------------------------------------===//

__device__ inline int loadShared(const int *word) {
  int value;
  asm volatile("ld.acquire.cta.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

__device__ inline void storeShared(int *word, int value) { asm volatile("st.release.cta.s32 [%0], %1;" ::"l"(word), "r"(value) : "memory"); }

//===--- by warps that fill stages ----------------------------------------------------------------===//

// Stage `number`, counted from the first on, may be written to.
template <int kStages> __device__ void awaitFree(Barriers *barriers, int number) {
  if (number >= kStages) await(&barriers->free[number % kStages], static_cast<uint32_t>(number / kStages - 1) & 1);
}

// By a whole warp, when it has written its part.
template <int kStages> __device__ void fill(Barriers *barriers, int number) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(&barriers->full[number % kStages]);
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

//===--- by any thread ----------------------------------------------------------------------------===//

// To shared memory, where this thread finds it when it has awaited the group.
__device__ inline void copyVector(uint4 *to, const uint4 *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sharedAddress(to)), "l"(from) : "memory");
}
__device__ inline void copyWord(int32_t *to, const int32_t *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sharedAddress(to)), "l"(from) : "memory");
}
__device__ inline void closeCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last `kLeft` groups are there.
template <int kLeft> __device__ void awaitCopies() { asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory"); }

//===--- by the mover, many pieces ----------------------------------------------------------------===//

// A piece of a row.
struct Piece {
  const char *from;
  uint32_t bytes;
};

// A cursor goes over pieces in their order. It has
//
//   bool next(Piece *)                the next piece, false: no more
//   void storeTo(const char *stage)   stores the piece that `next` has given to its places
//   void settle()                     lets others see what this thread sees
//   void finish()                     what the piece is a part of may be told: it is where it belongs, and so are those before it
template <typename Cursor> class Teller {
public:
  explicit __device__ Teller(const Cursor &cursor) : cursor(cursor) {}

  __device__ uint32_t count() const { return told; }

  // That the first `moved` pieces are there.
  __device__ void tell(uint32_t moved) {
    Piece piece;
    if (told < moved) cursor.settle();
    for (; told < moved; ++told) {
      cursor.next(&piece);
      cursor.finish();
    }
  }

private:
  uint32_t told = 0;
  Cursor cursor;
};

// Who tells of pieces: a teller, to which the mover says how far it has come so often that it is less than 2 * kUnfinished pieces behind; the mover
// itself, of `batch` pieces at a time, which is a little sooner where it waits for the link anyhow; or nobody.
enum class Telling { byTeller, byMover, never };

template <int kStages, int kPitch, typename Cursor> class Stores {
public:
  __device__ Stores(Barriers *barriers, char *stages, const Cursor &cursor, Telling telling, uint32_t batch = 0)
      : barriers(barriers), stages(stages), telling(telling), batch(batch), cursor(cursor), teller(cursor) {}

  __device__ uint32_t count() const { return stored; }

  // The next piece, when its stage is full. False: no more. Then the stages of all but the last two have been read.
  __device__ bool storeNext() {
    Piece piece;
    if (!cursor.next(&piece)) return false;
    await(&barriers->full[stored % kStages], stored / kStages & 1);
    cursor.storeTo(stages + stored % kStages * kPitch);
    closeGroup();
    ++stored;
    awaitReads<1>();
    if (telling == Telling::never) return true;
    if (telling == Telling::byMover) {
      if (stored - teller.count() < batch) return true;
      awaitStores<0>();
      teller.tell(stored);
    } else if (stored > kUnfinished && (stored < kMany || stored % kUnfinished == 0)) {
      awaitStores<kUnfinished>();
      storeShared(&barriers->moved, static_cast<int>(stored) - kUnfinished);
    }
    return true;
  }

  __device__ void finish() {
    awaitStores<0>();
    if (telling == Telling::byMover)
      teller.tell(stored);
    else
      storeShared(&barriers->moved, ~static_cast<int>(stored));
  }

private:
  Barriers *barriers;
  char *stages;
  const Telling telling;
  const uint32_t batch;
  uint32_t stored = 0;
  Cursor cursor;
  Teller<Cursor> teller;
};

// Moves all pieces, by way of so many stages; once in the life of the barriers.
template <int kStages, typename Cursor>
__device__ void moveAll(Barriers *barriers, char *stages, const Cursor &cursor, Telling telling, uint32_t batch = 0) {
  Stores<kStages, kStageBytes, Cursor> stores(barriers, stages, cursor, telling, batch);
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

// Likewise, of stages that others fill, `kPitch` bytes from each to the next.
template <int kStages, int kPitch, typename Cursor> __device__ void moveFilled(Barriers *barriers, char *stages, const Cursor &cursor) {
  Stores<kStages, kPitch, Cursor> stores(barriers, stages, cursor, Telling::byTeller);
  while (stores.storeNext())
    if (stores.count() > 1) arrive(&barriers->free[(stores.count() - 2) % kStages]);
  stores.finish();
}

//===--- by the teller ----------------------------------------------------------------------------===//

// Tells of all pieces that the mover takes with a cursor that began like this one.
template <typename Cursor> __device__ void tellAll(const Barriers &barriers, const Cursor &cursor) {
  Teller<Cursor> teller(cursor);
  int moved;
  do {
    moved = loadShared(&barriers.moved);
    teller.tell(static_cast<uint32_t>(moved < 0 ? ~moved : moved));
  } while (moved >= 0);
}

} // namespace bulk

#endif

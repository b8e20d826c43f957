//===- wgmma.cuh - tiles in shared memory, and the tensor cores of a warpgroup -------------------------------===//
//
// A tile has rows of 64 elements of 16 bits, 128 bytes, and begins at a multiple of 1024 bytes. The sixteen-byte chunks of a row are permuted by the
// row's number, as CU_TENSOR_MAP_SWIZZLE_128B does, so that eight rows' chunks of the same place lie in different banks.
//
// Rows of one tile times rows of another: d[i][j] += sum over k of a[i][k] * b[j][k], where 64 rows of a meet `kRows` of b. Of the 64 a warp has 16.
// A thread has d[j / 8][0 and 1] for row lane / 4 and rows j = lane % 4 * 2 and the next of each eight of b, d[j / 8][2 and 3] for row lane / 4 + 8.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_WGMMA_CUH
#define MOE_KERNELS_WGMMA_CUH

#include "lib/reference/numerics.h"
#include <cstdint>

namespace wgmma {

constexpr int kTileDepth = 64;     // elements of a tile's row
constexpr int kTileRowBytes = 128; // of a tile's row
constexpr int kStep = 16;          // elements that one instruction multiplies

// Where a chunk of a row lies.
__device__ inline uint32_t chunkAt(uint32_t tile, int row, int chunk) { return tile + row * kTileRowBytes + ((chunk ^ (row & 7)) * 16); }

// What the instruction is told of a tile that is `offset` bytes behind another, and begins `step` times 16 elements into its rows: 128-byte swizzle,
// eight rows in 1024 bytes. What depends on `tile` alone is the same for all that lie behind it.
__device__ inline uint64_t describe(uint32_t tile, int offset, int step) {
  const uint64_t kSwizzle128 = 1ull << 62, kEightRows = static_cast<uint64_t>(1024 / 16) << 32;
  const uint32_t kUnused = 1u << 16;
  return kSwizzle128 | kEightRows | ((tile / 16 | kUnused) + static_cast<uint32_t>(offset + step * kStep * 2) / 16);
}

// In front of the first product, and wherever threads have touched the sums.
__device__ inline void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last one are a group.
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All but the last `kLeft` groups are done: their tiles have been read.
template <int kLeft> __device__ void await() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory"); }

// What threads have written to shared memory, and told by a barrier, is there for the tensor cores. Here and not where it is written, for there the
// fence would wait for all copies that are under way.
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

//===--- barriers ------------------------------------------------------------------------------------===//

// Of the 128 threads of a warpgroup; `number` is at least 1: 0 is that of the block.
__device__ inline void syncWarpgroup(int number) { asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory"); }

//===--- registers -----------------------------------------------------------------------------------===//

// A warpgroup gives registers away, or gets those that others gave away.
template <int kCount> __device__ void shrinkRegisters() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount)); }
template <int kCount> __device__ void growRegisters() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount)); }

//===--- products ------------------------------------------------------------------------------------===//

// As the instructions' names have them.
template <moert__format kFormat> struct TypeName;
template <> struct TypeName<MOERT__BF16> {
  static constexpr char text[] = ".bf16.bf16";
};
template <> struct TypeName<MOERT__F16> {
  static constexpr char text[] = ".f16.f16";
};

// The sums of `kRows` rows of b. The lists of an instruction's operands cannot be put together but by macros.
template <moert__format kFormat, int kRows> struct Product;

#define MOE_OPERANDS_4(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define MOE_OPERANDS_8(d, i) MOE_OPERANDS_4(d, i), MOE_OPERANDS_4(d, i + 1)
#define MOE_OPERANDS_16(d, i) MOE_OPERANDS_8(d, i), MOE_OPERANDS_8(d, i + 2)
#define MOE_OPERANDS_32(d, i) MOE_OPERANDS_16(d, i), MOE_OPERANDS_16(d, i + 4)
#define MOE_OPERANDS_24(d, i) MOE_OPERANDS_16(d, i), MOE_OPERANDS_8(d, i + 4)
#define MOE_OPERANDS_40(d, i) MOE_OPERANDS_32(d, i), MOE_OPERANDS_8(d, i + 8)
#define MOE_OPERANDS_48(d, i) MOE_OPERANDS_32(d, i), MOE_OPERANDS_16(d, i + 8)
#define MOE_OPERANDS_56(d, i) MOE_OPERANDS_32(d, i), MOE_OPERANDS_24(d, i + 8)
#define MOE_OPERANDS_64(d, i) MOE_OPERANDS_32(d, i), MOE_OPERANDS_32(d, i + 8)

#define MOE_NAMES_4 "%0, %1, %2, %3"
#define MOE_NAMES_8 MOE_NAMES_4 ", %4, %5, %6, %7"
#define MOE_NAMES_16 MOE_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MOE_NAMES_24 MOE_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define MOE_NAMES_32 MOE_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define MOE_NAMES_40 MOE_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MOE_NAMES_48 MOE_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MOE_NAMES_56 MOE_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MOE_NAMES_64 MOE_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"

// With a in the registers of the warps: a thread has elements lane % 4 * 2 and the next of row lane / 4, of row lane / 4 + 8, and both eight elements
// on.
template <moert__format kFormat, int kRows> struct RegisterProduct;

// kSums: floats of a thread, kRows / 2. The places of a and b follow them, then that of the type.
#define MOE_PRODUCT(kRowCount, kSums, kA, kB, kType)                                                                                                 \
  template <moert__format kFormat> struct Product<kFormat, kRowCount> {                                                                              \
    template <int kEights> static __device__ void add(float (&d)[kEights][4], uint64_t a, uint64_t b) {                                              \
      static_assert(kEights >= kRowCount / 8, "sums for every row");                                                                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kRowCount "k16.f32%" #kType " {" MOE_NAMES_##kSums "}, %" #kA ", %" #kB ", 1, 1, 1, 0, 0;"   \
                   : MOE_OPERANDS_##kSums(d, 0)                                                                                                      \
                   : "l"(a), "l"(b), "C"(TypeName<kFormat>::text));                                                                                  \
    }                                                                                                                                                \
  };
#define MOE_REGISTER_PRODUCT(kRowCount, kSums, kA0, kA1, kA2, kA3, kB, kType)                                                                        \
  template <moert__format kFormat> struct RegisterProduct<kFormat, kRowCount> {                                                                      \
    template <int kEights> static __device__ void add(float (&d)[kEights][4], const uint32_t (&a)[4], uint64_t b) {                                  \
      static_assert(kEights >= kRowCount / 8, "sums for every row");                                                                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kRowCount "k16.f32%" #kType " {" MOE_NAMES_##kSums "}, {%" #kA0 ", %" #kA1 ", %" #kA2        \
                                                                                                           ", %" #kA3 "}, %" #kB ", 1, 1, 1, 0;"     \
                   : MOE_OPERANDS_##kSums(d, 0)                                                                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "C"(TypeName<kFormat>::text));                                              \
    }                                                                                                                                                \
  };
MOE_PRODUCT(8, 4, 4, 5, 6)
MOE_PRODUCT(16, 8, 8, 9, 10)
MOE_PRODUCT(32, 16, 16, 17, 18)
MOE_PRODUCT(48, 24, 24, 25, 26)
MOE_PRODUCT(64, 32, 32, 33, 34)
MOE_PRODUCT(80, 40, 40, 41, 42)
MOE_PRODUCT(96, 48, 48, 49, 50)
MOE_PRODUCT(112, 56, 56, 57, 58)
MOE_PRODUCT(128, 64, 64, 65, 66)
MOE_REGISTER_PRODUCT(8, 4, 4, 5, 6, 7, 8, 9)
MOE_REGISTER_PRODUCT(16, 8, 8, 9, 10, 11, 12, 13)
MOE_REGISTER_PRODUCT(32, 16, 16, 17, 18, 19, 20, 21)
MOE_REGISTER_PRODUCT(48, 24, 24, 25, 26, 27, 28, 29)
MOE_REGISTER_PRODUCT(64, 32, 32, 33, 34, 35, 36, 37)
MOE_REGISTER_PRODUCT(80, 40, 40, 41, 42, 43, 44, 45)
MOE_REGISTER_PRODUCT(96, 48, 48, 49, 50, 51, 52, 53)
MOE_REGISTER_PRODUCT(112, 56, 56, 57, 58, 59, 60, 61)
MOE_REGISTER_PRODUCT(128, 64, 64, 65, 66, 67, 68, 69)
#undef MOE_PRODUCT
#undef MOE_REGISTER_PRODUCT

} // namespace wgmma

#endif

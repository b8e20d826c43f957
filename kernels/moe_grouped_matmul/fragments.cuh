//===- fragments.cuh - prepared weights of 4 bits in kernels ------------------------------------------------===//
//
// lib/reference/fragments.h says what a panel holds. A lane decodes a pair of codes by two instructions of integers and the product with its scale,
// and a scale by one and a half.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_KERNELS_GROUPED_MATMUL_FRAGMENTS_CUH
#define MOE_KERNELS_GROUPED_MATMUL_FRAGMENTS_CUH

#include "lib/reference/fragments.h"

namespace grouped_matmul {

constexpr int kPanelRows = 64, kPanelDepth = 128, kBandRows = 16, kPanelBands = kPanelRows / kBandRows;
constexpr int kPanelBytes = 4 * MOERT__FRAGMENT_WORDS, kPanelScalesAt = 4 * MOERT__FRAGMENT_CODE_WORDS;
constexpr int kBandChunkBytes = 512;    // codes of a band's 64 columns
constexpr int kBandScalesBytes = 128;   // of a band
constexpr float kFragmentSums = 0x1p8f; // times a sum of products is what it stands for

// Four pairs of codes, each number times 2^-126.
__device__ inline void decodeWord(uint32_t word, uint32_t (&pairs)[4]) {
  constexpr uint32_t kPlaces = 0x81c081c0;
  pairs[0] = word & kPlaces;
  pairs[1] = __funnelshift_r(word, word, 3) & kPlaces;
  pairs[2] = __funnelshift_r(word, word, 6) & kPlaces;
  pairs[3] = (word & 0x001b001b) * 0x1084 & kPlaces;
}

// The scales of block 0 or 1 of a word, times 2^118: of a row, and in the upper half of that eight below.
__device__ inline uint32_t scalesOf(uint32_t word, int block) { return ((block ? word >> 4 : word << 4) & 0x0ff00ff0) | 0x70007000; }

// By the factor in the lower half of `factors`, or in the upper. They stay in front of the fence behind which the tensor cores read the product.
__device__ inline uint32_t multiplyByLower(uint32_t pair, uint32_t factors) {
  uint32_t product;
  asm volatile("{\n\t.reg .b16 lower, upper;\n\t.reg .b32 both;\n\tmov.b32 {lower, upper}, %2;\n\tmov.b32 both, {lower, lower};\n\t"
               "mul.rn.bf16x2 %0, %1, both;\n\t}"
               : "=r"(product)
               : "r"(pair), "r"(factors));
  return product;
}
__device__ inline uint32_t multiplyByUpper(uint32_t pair, uint32_t factors) {
  uint32_t product;
  asm volatile("{\n\t.reg .b16 lower, upper;\n\t.reg .b32 both;\n\tmov.b32 {lower, upper}, %2;\n\tmov.b32 both, {upper, upper};\n\t"
               "mul.rn.bf16x2 %0, %1, both;\n\t}"
               : "=r"(product)
               : "r"(pair), "r"(factors));
  return product;
}

// What a lane multiplies of a band's block.
__device__ inline void decodeBlock(uint32_t word, uint32_t scales, uint32_t (&a)[4]) {
  uint32_t pairs[4];
  decodeWord(word, pairs);
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    a[i] = multiplyByLower(pairs[i], scales);
    a[i + 1] = multiplyByUpper(pairs[i + 1], scales);
  }
}

__device__ inline void splitVector(const uint4 &vector, uint32_t (&words)[4]) {
  words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
}

} // namespace grouped_matmul

#endif

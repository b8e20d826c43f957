//===- fragments.h - weights of moe.nvfp4_routed as lanes multiply them, for all sides ------------------===//
#ifndef MOERT_REFERENCE_FRAGMENTS_H
#define MOERT_REFERENCE_FRAGMENTS_H

#include "lib/reference/routed_panels.h"

// A panel of fragments is 64 rows of 128 codes with their scales, in 32-bit words whose bytes are in ascending order: the codes, four bands of 16
// rows in two chunks of 64 columns, and then the scales, a band after the other. Lane l of a warp has in each chunk of a band four words, one for
// each 16 columns: what mma.m16n8k16 takes as its operand A, and wgmma from registers.
//
// Neither codes nor scales are converted when they are read. In its place, a number of E2M1 has its sign in bit 15 and its magnitude in bits 6 to 8
// of half a word: as bf16 that is code * 2^-126. A scale is a byte c for which the bf16 with the bits 0x7000 | c << 4 is scale * 2^118. bf16 holds
// both exactly, and their product, which is code * scale * 2^-8: kernels take out a power of two, so that no result depends on it.
enum {
  MOERT__FRAGMENT_CODE_WORDS = 1024,
  MOERT__FRAGMENT_WORDS = 1152, // and those of scales
  MOERT__FRAGMENT_SCALES = 8,   // of a row
  MOERT__FRAGMENT_MAGNITUDES = 0x77,
  MOERT__FRAGMENT_SIGNS = 0x88, // of the two codes of a byte
  MOERT__FRAGMENT_NAN = 0xff
};

// The weights of an expert, as they are in gemm1_weights or gemm2_weights and their scales.
typedef struct moert__fragment_source {
  const uint8_t *codes, *scales;
  int64_t rows, row_bytes; // of codes
} moert__fragment_source;

//===--- numbers ----------------------------------------------------------------------------------===//

// The byte of a scale of E4M3, whose sign is that of its codes: exponents are 14 more, and none is subnormal.
MOERT__NUMERIC uint32_t moert__fragment_scale(uint32_t scale) {
  const uint32_t magnitude = scale & 0x7f;
  if (magnitude == 0) return 0;
  if (magnitude == 0x7f) return MOERT__FRAGMENT_NAN;
  if (magnitude >= 8) return magnitude + (14 << 3);
  const uint32_t shift = magnitude >= 4 ? 1 : magnitude >= 2 ? 2 : 3;
  return (15 - shift) << 3 | (magnitude << shift & 7);
}

// Two codes whose scale becomes moert__fragment_scale(scale): that has no sign, and what is there for 0 is none.
MOERT__NUMERIC uint32_t moert__fragment_codes(uint32_t codes, uint32_t scale) {
  const uint32_t magnitudes = scale & 0x7f ? codes & MOERT__FRAGMENT_MAGNITUDES : 0;
  return magnitudes | ((scale & 0x80 ? ~codes : codes) & MOERT__FRAGMENT_SIGNS);
}

// Two codes in their place, the first in the lower half.
MOERT__NUMERIC uint32_t moert__fragment_place(uint32_t codes) {
  return (codes & 0x07) << 6 | (codes & 0x08) << 12 | (codes & 0x70) << 18 | (codes & 0x80) << 24;
}

// The same where the other three pairs of a word leave room: & 0x001b001b, * 0x1084, & 0x81c081c0 brings them to their place.
MOERT__NUMERIC uint32_t moert__fragment_left(uint32_t codes) {
  const uint32_t halves = (codes & 0x0f) | (codes & 0xf0) << 12;
  return (halves & 0x00080008) | (halves & 0x00060006) >> 1 | (halves & 0x00010001) << 4;
}

MOERT__NUMERIC uint32_t moert__fragment_rotated(uint32_t word, int left) { return word << left | word >> (32 - left); }

//===--- words ------------------------------------------------------------------------------------===//

// A place in an expert's weights.
typedef struct moert__fragment_block {
  int64_t row, column; // of the rows as they come; `column` counts blocks of 16
} moert__fragment_block;

// Row r of the panel p down, and block b of the panel q across.
MOERT__NUMERIC moert__fragment_block moert__fragment_block_of(moert__routed_panel panel, int64_t rows, int64_t p, int64_t q, int64_t r, int64_t b) {
  const moert__fragment_block block = {moert__routed_source_row(panel, rows, p, r), q * MOERT__FRAGMENT_SCALES + b};
  return block;
}

MOERT__NUMERIC uint32_t moert__fragment_scale_at(const moert__fragment_source *source, moert__fragment_block block) {
  return source->scales[block.row * (source->row_bytes / 8) + block.column];
}

// Byte `byte` of a block's codes, as the word has it.
MOERT__NUMERIC uint32_t moert__fragment_pair(const moert__fragment_source *source, moert__fragment_block block, int64_t byte) {
  return moert__fragment_codes(source->codes[block.row * source->row_bytes + 8 * block.column + byte], moert__fragment_scale_at(source, block));
}

// Word `word` of a panel's codes. Each of its four pairs is a byte of the source.
MOERT__NUMERIC uint32_t moert__fragment_code_word(const moert__fragment_source *source, moert__routed_panel panel, int64_t p, int64_t q,
                                                  int64_t word) {
  const int64_t step = word % 4, lane = word / 4 % 32, chunk = word / 128 % 2, band = word / 256;
  const int64_t row = 16 * band + lane / 4, column = 4 * chunk + step, byte = lane % 4;
  const moert__fragment_block upper = moert__fragment_block_of(panel, source->rows, p, q, row, column);
  const moert__fragment_block lower = moert__fragment_block_of(panel, source->rows, p, q, row + 8, column);
  return moert__fragment_place(moert__fragment_pair(source, upper, byte)) |
         moert__fragment_rotated(moert__fragment_place(moert__fragment_pair(source, lower, byte)), 3) |
         moert__fragment_rotated(moert__fragment_place(moert__fragment_pair(source, upper, byte + 4)), 6) |
         moert__fragment_left(moert__fragment_pair(source, lower, byte + 4));
}

// Word `word` of a panel's scales: two of a row, and the same two of the row eight below.
MOERT__NUMERIC uint32_t moert__fragment_scale_word(const moert__fragment_source *source, moert__routed_panel panel, int64_t p, int64_t q,
                                                   int64_t word) {
  uint32_t scales = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t row = word / 32 * 16 + word % 32 / 4 + i / 2 * 8, column = word % 4 * 2 + i % 2;
    scales |= moert__fragment_scale(moert__fragment_scale_at(source, moert__fragment_block_of(panel, source->rows, p, q, row, column))) << (8 * i);
  }
  return scales;
}

// Word `word` of the expert's panel that is `p` down and `q` across.
MOERT__NUMERIC uint32_t moert__fragment_word(const moert__fragment_source *source, moert__routed_panel panel, int64_t p, int64_t q, int64_t word) {
  if (word < MOERT__FRAGMENT_CODE_WORDS) return moert__fragment_code_word(source, panel, p, q, word);
  return moert__fragment_scale_word(source, panel, p, q, word - MOERT__FRAGMENT_CODE_WORDS);
}

// To any address.
MOERT__NUMERIC void moert__fragment_store(uint8_t *to, uint32_t word) {
  for (int i = 0; i < 4; ++i) to[i] = (uint8_t)(word >> (8 * i));
}

#endif

//===- fma_tile.h - products of a few rows and columns, bits independent of the instructions ------===//
//
// Each sum starts from 0 and takes its terms by fused multiply-add in ascending k. Lanes of a vector hold the sums of different rows, so that width
// and presence of vector instructions change nothing: without them fmaf is a function, slower and as exact.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOERT_REFERENCE_FMA_TILE_H
#define MOERT_REFERENCE_FMA_TILE_H

#include <math.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MOERT__TILE_ROWS = 16, MOERT__TILE_COLUMNS = 4 };

typedef struct moert__tile_sums {
  float of[MOERT__TILE_COLUMNS][MOERT__TILE_ROWS];
} moert__tile_sums;

// sums->of[c][r]: of rows[k][r] * columns[c][k] over 0 <= k < depth.
typedef void moert__fma_tile(int64_t depth, const float *rows, const float *columns, moert__tile_sums *sums);

static inline void moert__fma_tile_portable(int64_t depth, const float *rows, const float *columns, moert__tile_sums *sums) {
  moert__tile_sums s = {{{0}}};
  for (int64_t k = 0; k < depth; ++k)
    for (int c = 0; c < MOERT__TILE_COLUMNS; ++c)
      for (int r = 0; r < MOERT__TILE_ROWS; ++r) s.of[c][r] = fmaf(rows[k * MOERT__TILE_ROWS + r], columns[c * depth + k], s.of[c][r]);
  *sums = s;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static inline void moert__fma_tile_avx2(int64_t depth, const float *rows, const float *columns,
                                                                            moert__tile_sums *sums) {
  __m256 s[MOERT__TILE_COLUMNS][2];
  for (int c = 0; c < MOERT__TILE_COLUMNS; ++c) s[c][0] = s[c][1] = _mm256_setzero_ps();
  for (int64_t k = 0; k < depth; ++k) {
    __m256 lower = _mm256_loadu_ps(rows + k * MOERT__TILE_ROWS), upper = _mm256_loadu_ps(rows + k * MOERT__TILE_ROWS + 8);
    for (int c = 0; c < MOERT__TILE_COLUMNS; ++c) {
      __m256 column = _mm256_set1_ps(columns[c * depth + k]);
      s[c][0] = _mm256_fmadd_ps(lower, column, s[c][0]);
      s[c][1] = _mm256_fmadd_ps(upper, column, s[c][1]);
    }
  }
  for (int c = 0; c < MOERT__TILE_COLUMNS; ++c) {
    _mm256_storeu_ps(sums->of[c], s[c][0]);
    _mm256_storeu_ps(sums->of[c] + 8, s[c][1]);
  }
}
#endif

static inline moert__fma_tile *moert__fma_tile_select(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return moert__fma_tile_avx2;
#endif
  return moert__fma_tile_portable;
}

#endif

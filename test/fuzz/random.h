//===- random.h - random numbers that a seed repeats ----------------------------------------------===//
#ifndef MOE_FUZZ_RANDOM_H
#define MOE_FUZZ_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct fuzz_random {
  uint64_t state;
} fuzz_random;

// Case `index` of a run has numbers of its own, so that it can be repeated alone.
static inline fuzz_random fuzz_start(uint64_t seed, uint64_t index) {
  return (fuzz_random){seed * UINT64_C(0xd1342543de82ef95) ^ index * UINT64_C(0x2545f4914f6cdd1d)};
}

// Splitmix64.
static inline uint64_t fuzz_next(fuzz_random *random) {
  uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

// From 0 to count - 1; 0 if there is none.
static inline int64_t fuzz_below(fuzz_random *random, int64_t count) { return count > 0 ? (int64_t)(fuzz_next(random) % (uint64_t)count) : 0; }

static inline bool fuzz_chance(fuzz_random *random, int percent) { return fuzz_below(random, 100) < percent; }

#define FUZZ_PICK(random, array) ((array)[fuzz_below(random, (int64_t)FUZZ_COUNT(array))])

#endif

//===- routing.h - which experts tokens choose --------------------------------------------------------===//
#ifndef MOE_BENCH_ROUTING_H
#define MOE_BENCH_ROUTING_H

#include "bench.h"

// How likely experts are.
typedef enum Routing {
  ROUTING_UNIFORM,  // all as likely
  ROUTING_ZIPF,     // expert e in proportion to 1 / (e + 1)
  ROUTING_ONE_RANK, // those of rank 0 alone, which are as likely
} Routing;

// splitmix64
uint64_t routing_random(uint64_t *state);
// [tokens][top_k] different experts of each token of a rank, the same whoever asks. The caller frees it; NULL: there is no memory.
int32_t *routing_choose(const Work *work, int32_t rank, int set, Routing routing);
// The rank of an expert. Experts stand in blocks; the first ranks have one more if they do not divide evenly.
int32_t routing_owner(const Work *work, int32_t expert);
int64_t routing_local_experts(const Work *work, int32_t rank);

#endif

//===- routing.c - which experts tokens choose --------------------------------------------------------===//

#include "routing.h"
#include "operands.h"
#include <stdlib.h>

uint64_t routing_random(uint64_t *state) {
  uint64_t bits = *state += 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

int32_t routing_owner(const Work *work, int32_t expert) {
  int64_t each = work->shape.experts / work->ranks, more = work->shape.experts % work->ranks;
  return (int32_t)(expert < more * (each + 1) ? expert / (each + 1) : (expert - more) / each);
}

int64_t routing_local_experts(const Work *work, int32_t rank) {
  return work->shape.experts / work->ranks + (rank < work->shape.experts % work->ranks);
}

// `sum` of 1, 1/2, ... 1 / experts.
static int32_t draw_zipf(int64_t experts, double sum, uint64_t *state) {
  double left = (double)(routing_random(state) >> 11) * 0x1p-53 * sum;
  int64_t expert = 0;
  while (expert + 1 < experts && (left -= 1.0 / (double)(expert + 1)) >= 0) ++expert;
  return (int32_t)expert;
}

static int32_t draw(const Work *work, Routing routing, double sum, uint64_t *state) {
  switch (routing) {
  case ROUTING_ZIPF: return draw_zipf(work->shape.experts, sum, state);
  case ROUTING_ONE_RANK: return (int32_t)(routing_random(state) % (uint64_t)routing_local_experts(work, 0));
  default: return (int32_t)(routing_random(state) % (uint64_t)work->shape.experts);
  }
}

static bool contains(const int32_t *ids, int64_t count, int32_t id) {
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] == id) return true;
  return false;
}

int32_t *routing_choose(const Work *work, int32_t rank, int set, Routing routing) {
  const int64_t top_k = work->shape.top_k;
  double sum = 0;
  for (int64_t e = 0; e < work->shape.experts; ++e) sum += 1.0 / (double)(e + 1);
  uint64_t state = operand_seed(work, rank, set);
  int32_t *ids = malloc((size_t)(work->tokens * top_k) * sizeof *ids);
  for (int64_t t = 0; ids && t < work->tokens; ++t)
    for (int64_t k = 0; k < top_k; ++k) {
      int32_t *row = ids + t * top_k;
      do row[k] = draw(work, routing, sum, &state);
      while (contains(row, k, row[k]));
    }
  return ids;
}

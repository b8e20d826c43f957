//===- routed.c - moe.nvfp4_routed ----------------------------------------------------------------------===//

#include "routed.h"
#include "grouped.h"
#include "lib/reference/formats.h"
#include "operands.h"
#include "routing.h"
#include <stdlib.h>

enum {
  STATES,
  STATE_SCALES,
  FIRST,
  FIRST_SCALES,
  SECOND,
  SECOND_SCALES,
  GATE,
  UP,
  DOWN,
  IDS,
  CHOICE_WEIGHTS,
  SORTED,
  BLOCK_EXPERTS,
  PADDED,
  CUMSUM,
  OUT
};
enum { BLOCK = 8 }; // entries of the plan

static int64_t pairs_of(const Work *work) { return work->tokens * work->shape.top_k; }
static int64_t bytes_of(int64_t numbers) { return numbers / 2 + numbers / 16; }

//===--- operands -----------------------------------------------------------------------------------===//

static moert_status fill_codes(Work *work, int set, int codes, int64_t groups, int64_t rows, int64_t columns) {
  Buffer *buffers = work->buffers[set];
  const uint64_t seed = operand_seed(work, work->rank, set) * MAX_BUFFERS + (uint64_t)codes;
  return grouped_add_codes(work, MOERT__NVFP4, seed, &buffers[codes], &buffers[codes + 1], SHAPE(groups, rows, columns));
}

// A matrix, of one group.
static void drop_groups(Buffer *buffer) {
  buffer->shape[0] = buffer->shape[1], buffer->shape[1] = buffer->shape[2];
  buffer->tensor.ndim = 2;
}

static moert_status fill_choices(Work *work, int set) {
  int32_t *ids = routing_choose(work, work->rank, set, ROUTING_UNIFORM);
  if (!ids) return MOERT_ERROR_OUT_OF_MEMORY;
  const int64_t *shape = SHAPE(work->tokens, work->shape.top_k);
  moert_status status = operand_add_words(work, &work->buffers[set][IDS], ids, 2, shape);
  free(ids);
  return status ? status : operand_add_random(work, set, CHOICE_WEIGHTS, 1, F32, 2, shape);
}

static moert_status fill_factors(Work *work, int set) {
  moert_status status = MOERT_OK;
  for (int slot = GATE; slot <= DOWN && !status; ++slot) status = operand_add_random(work, set, slot, 0.05f, F32, 1, SHAPE(work->shape.experts));
  return status;
}

static moert_status add_outputs(Work *work, int set) {
  Buffer *buffers = work->buffers[set];
  const int64_t experts = work->shape.experts, blocks = 1 + (pairs_of(work) + experts * (BLOCK - 1)) / BLOCK;
  moert_status status = operand_add_output(work, &buffers[SORTED], I32, 1, SHAPE(blocks * BLOCK));
  if (!status) status = operand_add_output(work, &buffers[BLOCK_EXPERTS], I32, 1, SHAPE(blocks));
  if (!status) status = operand_add_output(work, &buffers[PADDED], I32, 1, SHAPE(1));
  if (!status) status = operand_add_output(work, &buffers[CUMSUM], I32, 1, SHAPE(experts + 2));
  if (!status) status = operand_add_output(work, &buffers[OUT], BF16, 2, SHAPE(work->tokens, work->shape.hidden));
  return status;
}

moert_status routed_fill(Work *work, int set) {
  const Shape *shape = &work->shape;
  moert_status status = fill_codes(work, set, STATES, 1, work->tokens, shape->hidden);
  if (!status) status = fill_codes(work, set, FIRST, shape->experts, 2 * shape->intermediate, shape->hidden);
  if (!status) status = fill_codes(work, set, SECOND, shape->experts, shape->hidden, shape->intermediate);
  if (!status) status = fill_choices(work, set);
  if (!status) status = fill_factors(work, set);
  if (!status) status = add_outputs(work, set);
  drop_groups(&work->buffers[set][STATES]);
  drop_groups(&work->buffers[set][STATE_SCALES]);
  return status;
}

//===--- calls --------------------------------------------------------------------------------------===//

moert_status routed_call(Work *work, int set, moert_kernel *kernel) {
  moert_moe_nvfp4_routed_params params = MOERT_MOE_NVFP4_ROUTED_PARAMS_INIT;
  params.top_k = work->shape.top_k;
  params.block_m = BLOCK;
  params.accumulate = 0;
  moert_moe_nvfp4_routed_args args = MOERT_MOE_NVFP4_ROUTED_ARGS_INIT;
  args.hidden_states = operand(work, set, STATES);
  args.hidden_states_scale = operand(work, set, STATE_SCALES);
  args.gemm1_weights = operand(work, set, FIRST);
  args.gemm1_weights_scale = operand(work, set, FIRST_SCALES);
  args.gemm2_weights = operand(work, set, SECOND);
  args.gemm2_weights_scale = operand(work, set, SECOND_SCALES);
  args.output1_scale_gate_scalar = operand(work, set, GATE);
  args.output1_scale_scalar = operand(work, set, UP);
  args.output2_scale_scalar = operand(work, set, DOWN);
  args.topk_ids = operand(work, set, IDS);
  args.topk_weights = operand(work, set, CHOICE_WEIGHTS);
  args.sorted_token_ids = operand(work, set, SORTED);
  args.expert_ids = operand(work, set, BLOCK_EXPERTS);
  args.num_tokens_post_padded = operand(work, set, PADDED);
  args.cumsum_buffer = operand(work, set, CUMSUM);
  args.out = operand(work, set, OUT);
  return moert_moe_nvfp4_routed(&params, &args, kernel, work->context);
}

static int64_t count_chosen(const Work *work, int set) {
  int32_t *ids = routing_choose(work, work->rank, set, ROUTING_UNIFORM);
  bool *chosen = calloc((size_t)work->shape.experts, sizeof *chosen);
  int64_t count = 0;
  for (int64_t pair = 0; ids && chosen && pair < pairs_of(work); ++pair) {
    count += !chosen[ids[pair]];
    chosen[ids[pair]] = true;
  }
  free(ids), free(chosen);
  return count;
}

Cost routed_cost(const Work *work) {
  const int64_t hidden = work->shape.hidden, numbers = 3 * work->shape.intermediate * hidden;
  int64_t chosen = 0;
  for (int set = 0; set < work->sets; ++set) chosen += count_chosen(work, set);
  return (Cost){.memory_bytes = chosen * bytes_of(numbers) / work->sets + work->tokens * (bytes_of(hidden) + 2 * hidden),
                .flops = 2 * pairs_of(work) * numbers};
}

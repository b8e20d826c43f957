//===- allreduce.c - the bench of the all-reduces with residual and norm --------------------------------===//

#include "allreduce.h"
#include "operands.h"
#include <stdlib.h>

enum { BF16_BYTES = 2 };

static int64_t row_bytes(const Work *work) { return work->shape.hidden * BF16_BYTES; }

moert_status allreduce_open(Work *work) { return operand_open_workspace(work, row_bytes(work), 1); }

// What both ops have at the same places.
enum { RESIDUAL, GAMMA, SHARED, RESIDUAL_OUT, NORM_OUT, OWN };

static moert_status fill_common(Work *work, int set) {
  const int64_t tokens = work->tokens, hidden = work->shape.hidden;
  moert_status status = operand_add_random(work, set, RESIDUAL, 1, BF16, 2, SHAPE(tokens, hidden));
  if (!status) status = operand_add_random(work, set, GAMMA, 1, BF16, 1, SHAPE(hidden));
  if (!status) status = operand_add_random(work, set, SHARED, 1, BF16, 2, SHAPE(tokens, hidden));
  for (int slot = RESIDUAL_OUT; slot <= NORM_OUT && !status; ++slot)
    status = operand_add_output(work, &work->buffers[set][slot], BF16, 2, SHAPE(tokens, hidden));
  return status;
}

// In two ranks' one shot a rank sends its part; in two shots each sends 1 / ranks of the tokens to each other one, and their sums on: no all-reduce
// sends less.
static Cost cost_of(const Work *work, int64_t rows) {
  const int64_t all = work->tokens * row_bytes(work);
  return (Cost){2 * (work->ranks - 1) * all / work->ranks, (rows + 4) * all, 0, 1};
}

//===--- moe.allreduce_fusion -----------------------------------------------------------------------===//

enum { EXPERTS = OWN, SCALES };

moert_status allreduce_fill(Work *work, int set) {
  const int64_t tokens = work->tokens, experts = work->shape.experts;
  moert_status status = fill_common(work, set);
  if (!status) status = operand_add_random(work, set, EXPERTS, 1, BF16, 3, SHAPE(experts, tokens, work->shape.hidden));
  return status ? status : operand_add_random(work, set, SCALES, 1, F32, 2, SHAPE(experts, tokens));
}

moert_status allreduce_call(Work *work, int set, moert_kernel *kernel) {
  moert_moe_allreduce_fusion_params params = MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT;
  moert_moe_allreduce_fusion_args args = MOERT_MOE_ALLREDUCE_FUSION_ARGS_INIT;
  params.hidden_size = work->shape.hidden;
  params.rms_eps = 1e-6;
  params.launch_with_pdl = 1;
  args.residual_in = operand(work, set, RESIDUAL);
  args.rms_gamma = operand(work, set, GAMMA);
  args.moe_reduction_active_experts_token_input = operand(work, set, EXPERTS);
  args.moe_reduction_scale_input = operand(work, set, SCALES);
  args.moe_reduction_token_input = operand(work, set, SHARED);
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  args.residual_out = operand(work, set, RESIDUAL_OUT);
  args.norm_out = operand(work, set, NORM_OUT);
  return moert_moe_allreduce_fusion(&params, &args, kernel, work->context);
}

Cost allreduce_cost(const Work *work) { return cost_of(work, work->shape.experts); }

//===--- moe.finalize_allreduce_fusion --------------------------------------------------------------===//

enum { ROWS = OWN, INDICES, WEIGHTS };

// Every choice has a row of its own, in another place than its neighbours.
static moert_status add_indices(Work *work, int set) {
  const int64_t choices = work->tokens * work->shape.top_k;
  int32_t *indices = malloc((size_t)choices * sizeof *indices);
  if (!indices) return MOERT_ERROR_OUT_OF_MEMORY;
  for (int64_t i = 0; i < choices; ++i) indices[i] = (int32_t)(i % work->shape.top_k * work->tokens + i / work->shape.top_k);
  moert_status status = operand_add_words(work, &work->buffers[set][INDICES], indices, 2, SHAPE(work->tokens, work->shape.top_k));
  free(indices);
  return status;
}

static moert_status fill_finalize(Work *work, int set) {
  const int64_t tokens = work->tokens, top_k = work->shape.top_k;
  moert_status status = fill_common(work, set);
  if (!status) status = operand_add_random(work, set, ROWS, 1, BF16, 2, SHAPE(tokens * top_k, work->shape.hidden));
  if (!status) status = add_indices(work, set);
  return status ? status : operand_add_random(work, set, WEIGHTS, 1, F32, 2, SHAPE(tokens, top_k));
}

static moert_status call_finalize(Work *work, int set, moert_kernel *kernel) {
  moert_moe_finalize_allreduce_fusion_params params = MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_PARAMS_INIT;
  moert_moe_finalize_allreduce_fusion_args args = MOERT_MOE_FINALIZE_ALLREDUCE_FUSION_ARGS_INIT;
  params.hidden_size = work->shape.hidden;
  params.rms_eps = 1e-6;
  params.launch_with_pdl = 1;
  args.residual_in = operand(work, set, RESIDUAL);
  args.norm_weight = operand(work, set, GAMMA);
  args.allreduce_in = operand(work, set, ROWS);
  args.expanded_idx_to_permuted_idx = operand(work, set, INDICES);
  args.expert_scale_factor = operand(work, set, WEIGHTS);
  args.shared_expert_output = operand(work, set, SHARED);
  args.workspace = &work->workspace.tensor;
  args.metainfo = &work->metainfo.tensor;
  args.residual_out = operand(work, set, RESIDUAL_OUT);
  args.norm_out = operand(work, set, NORM_OUT);
  return moert_moe_finalize_allreduce_fusion(&params, &args, kernel, work->context);
}

static Cost cost_finalize(const Work *work) { return cost_of(work, work->shape.top_k); }

//===--- the table ----------------------------------------------------------------------------------===//

static const Case cases[] = {
    {"plain", "bf16", {7168, 0, 0, 0}, 0, allreduce_open, allreduce_fill, 1, {{"allreduce", "moe.allreduce_fusion", allreduce_call, allreduce_cost}}},
    {"experts1",
     "bf16",
     {7168, 0, 1, 0},
     0,
     allreduce_open,
     allreduce_fill,
     1,
     {{"allreduce", "moe.allreduce_fusion", allreduce_call, allreduce_cost}}},
    {"experts8",
     "bf16",
     {7168, 0, 8, 0},
     0,
     allreduce_open,
     allreduce_fill,
     1,
     {{"allreduce", "moe.allreduce_fusion", allreduce_call, allreduce_cost}}},
    {"finalize8",
     "bf16",
     {7168, 0, 0, 8},
     0,
     allreduce_open,
     fill_finalize,
     1,
     {{"finalize", "moe.finalize_allreduce_fusion", call_finalize, cost_finalize}}}};

const Case *allreduce_cases(int *count) {
  *count = sizeof cases / sizeof *cases;
  return cases;
}

//===- moe_route.c - moe.route on the host --------------------------------------------------------===//
//
// Scores, choice and weights of one token after the other. What the op's description leaves to the arithmetic:
//
//   NaN        Adds nothing to a softmax, so that the other experts' scores are those without it. A value that is NaN, be it by
//              the logit or the bias, is not eligible.
//   infinity   Softmax in its limit: experts at +inf share the weight equally and the rest have 0; if all numbers are -inf, they share it.
//              In code: where a logit equals the maximum, its exponential is 1, not exp(inf - inf).
//   groups     A group's second best value is left out if it has none. A group without numbers, or whose value is inf - inf, is not eligible.
//   sum        The exponentials of a chunk of 32 consecutive experts are added pairwise, neighbours first: ((e0 + e1) + (e2 + e3)) + ...; NaN
//              and, in the order top_k_then_score, experts that were not chosen count 0. Chunks are added from the first to the last.
//
//===----------------------------------------------------------------------------------------------===//

#include "lib/reference/moe_route.h"
#include "lib/reference/checks.h"
#include "lib/reference/numerics.h"

enum { MAX_EXPERTS = 4096, MAX_GROUPS = MAX_EXPERTS / 2, MAX_TOP_K = 32, CHUNK = 32 };

//===--- checks -----------------------------------------------------------------------------------===//

static moert_status check_shapes(const moert_moe_route_params *params, const moert_moe_route_args *args) {
  int64_t tokens = args->logits->shape[0];
  moert_status status = moert__check_dimension(args->logits, "logits", 1, params->n_experts, "n_experts");           // C1
  if (!status && args->bias) status = moert__check_dimension(args->bias, "bias", 0, params->n_experts, "n_experts"); // C2
  if (!status) status = moert__check_dimension(args->ids, "ids", 0, tokens, "dimension 0 of 'logits'");              // C3
  if (!status) status = moert__check_dimension(args->ids, "ids", 1, params->top_k, "top_k");
  if (!status) status = moert__check_dimension(args->weights, "weights", 0, tokens, "dimension 0 of 'logits'");
  if (!status) status = moert__check_dimension(args->weights, "weights", 1, params->top_k, "top_k");
  return status;
}

static moert_status check_parameters(const moert_moe_route_params *params) {
  int64_t top_k = params->top_k, experts = params->n_experts, groups = params->n_group, eligible = params->topk_group;
  if (top_k > experts) // C4
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'top_k' is %" PRId64 ", must be at most n_experts = %" PRId64, top_k, experts);
  if (experts % groups != 0) // C5
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'n_experts' is %" PRId64 ", must be a multiple of n_group = %" PRId64, experts,
                       groups);
  if (eligible > groups) // C6
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT, "parameter 'topk_group' is %" PRId64 ", must be at most n_group = %" PRId64, eligible, groups);
  if (eligible * (experts / groups) < top_k) // C7
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "parameter 'topk_group' is %" PRId64 ": so many groups of n_experts / n_group = %" PRId64 " experts hold %" PRId64
                       ", must hold at least top_k = %" PRId64,
                       eligible, experts / groups, eligible * (experts / groups), top_k);
  if (groups > 1 && experts / groups < 2) // C8
    return moert__fail(MOERT_ERROR_INVALID_ARGUMENT,
                       "parameter 'n_group' is %" PRId64 ", must be 1 or at most n_experts / 2 = %" PRId64
                       ": a group is judged by its two best experts",
                       groups, experts / 2);
  return moert__check_f32("routed_scaling_factor", params->routed_scaling_factor);
}

moert_status moert__moe_route_check(const moert_moe_route_params *params, const moert_moe_route_args *args) {
  moert_status status = check_parameters(params);
  return status ? status : check_shapes(params, args);
}

//===--- scores -----------------------------------------------------------------------------------===//

static float sum_chunk(const float *terms, int64_t count) {
  float sums[CHUNK];
  for (int64_t i = 0; i < CHUNK; ++i) sums[i] = i < count ? terms[i] : 0.0f;
  for (int64_t width = CHUNK / 2; width > 0; width /= 2)
    for (int64_t i = 0; i < width; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}

static float sum_of_exponentials(const float *terms, int64_t count) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; i += CHUNK) sum += sum_chunk(terms + i, count - i);
  return sum;
}

// NaN stays NaN.
static void softmax(const float *logits, int64_t count, float *scores) {
  float maximum = -INFINITY;
  for (int64_t i = 0; i < count; ++i) maximum = logits[i] > maximum ? logits[i] : maximum;
  for (int64_t i = 0; i < count; ++i) scores[i] = moert__is_nan(logits[i]) ? 0.0f : logits[i] == maximum ? 1.0f : moert__exp(logits[i] - maximum);
  float sum = sum_of_exponentials(scores, count);
  for (int64_t i = 0; i < count; ++i) scores[i] = moert__is_nan(logits[i]) ? logits[i] : moert__divide(scores[i], sum);
}

static void score(int64_t function, const float *logits, int64_t count, float *scores) {
  if (function == MOERT_MOE_ROUTE_SCORE_SOFTMAX) {
    softmax(logits, count, scores);
    return;
  }
  for (int64_t i = 0; i < count; ++i) scores[i] = moert__sigmoid(logits[i]);
}

//===--- choice -----------------------------------------------------------------------------------===//

// The first index of the largest number, -1 if there is none.
static int32_t find_best(const float *values, int64_t count) {
  int32_t best = -1;
  for (int32_t i = 0; i < count; ++i)
    if (!moert__is_nan(values[i]) && (best < 0 || values[i] > values[best])) best = i;
  return best;
}

// Indices of the `wanted` largest numbers in descending order, -1 where there are no more. What is taken becomes NaN.
static void take_best(float *values, int64_t count, int64_t wanted, int32_t *indices) {
  for (int64_t k = 0; k < wanted; ++k) {
    indices[k] = find_best(values, count);
    if (indices[k] >= 0) values[indices[k]] = NAN;
  }
}

static float group_value(const float *values, int64_t count) {
  int32_t best = find_best(values, count);
  if (best < 0) return NAN;
  int32_t before = find_best(values, best), after = find_best(values + best + 1, count - best - 1);
  float second = after < 0 ? NAN : values[best + 1 + after];
  if (before >= 0 && (after < 0 || values[before] > second)) second = values[before];
  return moert__is_nan(second) ? values[best] : values[best] + second;
}

// Values of experts outside the best groups become NaN.
static void limit_groups(const moert_moe_route_params *params, float *values) {
  int64_t size = params->n_experts / params->n_group;
  float groups[MAX_GROUPS];
  for (int64_t g = 0; g < params->n_group; ++g) groups[g] = group_value(values + g * size, size);
  int32_t eligible[MAX_GROUPS];
  take_best(groups, params->n_group, params->topk_group, eligible);
  bool is_eligible[MAX_GROUPS] = {false};
  for (int64_t k = 0; k < params->topk_group; ++k)
    if (eligible[k] >= 0) is_eligible[eligible[k]] = true;
  for (int64_t i = 0; i < params->n_experts; ++i)
    if (!is_eligible[i / size]) values[i] = NAN;
}

//===--- weights ----------------------------------------------------------------------------------===//

// Logits of experts that were not chosen become NaN, which leaves them out of a softmax.
static void keep_chosen(float *logits, int64_t count, const int32_t *ids, int64_t top_k) {
  float chosen[MAX_TOP_K];
  for (int64_t k = 0; k < top_k; ++k) chosen[k] = ids[k] < 0 ? NAN : logits[ids[k]];
  for (int64_t i = 0; i < count; ++i) logits[i] = NAN;
  for (int64_t k = 0; k < top_k; ++k)
    if (ids[k] >= 0) logits[ids[k]] = chosen[k];
}

static void renormalize(float *weights, int64_t top_k) {
  float sum = 0.0f;
  for (int64_t k = 0; k < top_k; ++k) sum += weights[k];
  for (int64_t k = 0; k < top_k; ++k) weights[k] = sum == 0.0f ? 0.0f : moert__divide(weights[k], sum);
}

static void route_token(const moert_moe_route_params *params, float *logits, const float *bias, int32_t *ids, float *weights) {
  int64_t experts = params->n_experts, top_k = params->top_k;
  bool score_first = params->order == MOERT_MOE_ROUTE_ORDER_SCORE_THEN_TOP_K;
  float scores[MAX_EXPERTS], values[MAX_EXPERTS];
  if (score_first) score(params->score, logits, experts, scores);
  for (int64_t i = 0; i < experts; ++i) {
    values[i] = score_first ? scores[i] : logits[i];
    if (bias) values[i] += bias[i];
  }
  if (params->n_group > 1) limit_groups(params, values);
  take_best(values, experts, top_k, ids);
  if (!score_first) {
    keep_chosen(logits, experts, ids, top_k);
    score(params->score, logits, experts, scores);
  }
  for (int64_t k = 0; k < top_k; ++k) weights[k] = ids[k] < 0 ? 0.0f : scores[ids[k]];
  if (params->renormalize) renormalize(weights, top_k);
  for (int64_t k = 0; k < top_k; ++k) weights[k] = ids[k] < 0 ? 0.0f : weights[k] * (float)params->routed_scaling_factor;
}

moert_status moert__host_moe_route(const moert_moe_route_params *params, const moert_moe_route_args *args, moert_context *context) {
  (void)context;
  moert_status status = moert__moe_route_check(params, args);
  if (status) return status;
  int64_t tokens = args->logits->shape[0], experts = params->n_experts;
  moert__format format = moert__format_of(args->logits->dtype.code, args->logits->dtype.bits);
  const void *rows = moert__data(args->logits);
  const float *bias = args->bias ? moert__data(args->bias) : NULL;
  int32_t *ids = moert__data(args->ids);
  float *weights = moert__data(args->weights);
  for (int64_t t = 0; t < tokens; ++t) {
    float logits[MAX_EXPERTS];
    for (int64_t i = 0; i < experts; ++i) logits[i] = moert__load(format, rows, t * experts + i);
    route_token(params, logits, bias, ids + t * params->top_k, weights + t * params->top_k);
  }
  return MOERT_OK;
}

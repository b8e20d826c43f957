//===- run_side.c - kinds of bugs that such libraries have had, K1 to K6, K9 --------------------------===//
//
// A test for each row of docs/bug-kinds.md that is about the run side. A test's name begins with its kind.
//
//===----------------------------------------------------------------------------------------------===//

#include "scene.h"

#include <math.h>
#include <moert/ep.h>
#include <time.h>

static moert_comm *alone_comm;
static moert_context *alone;

static int set_up(void **state) {
  (void)state;
  return moert_comm_create_threads(1, NULL, &alone_comm) || moert_context_create(alone_comm, NULL, &alone);
}

static int tear_down(void **state) {
  (void)state;
  moert_context_destroy(alone);
  moert_comm_destroy(alone_comm);
  return 0;
}

static int release(void **state) {
  (void)state;
  assert_guards_and_release();
  return 0;
}

// In both layouts.
static void assert_both(scene s) {
  for (int grouped = 0; grouped < 2; ++grouped) {
    s.grouped = grouped;
    assert_scene(&s);
  }
}

//===--- local ops --------------------------------------------------------------------------------===//

static moert_status route(const moert_tensor *logits, const moert_tensor *ids, const moert_tensor *weights, moert_moe_route_params params) {
  params.n_experts = logits->shape[1];
  params.top_k = ids->shape[1];
  moert_moe_route_args args = {sizeof args, logits, NULL, ids, weights};
  return moert_moe_route(&params, &args, NULL, alone);
}

static moert_status multiply(const moert_tensor *rows, const moert_tensor *offsets, const moert_tensor *weights, const moert_tensor *out,
                             moert_context *context) {
  moert_moe_grouped_matmul_params params = MOERT_MOE_GROUPED_MATMUL_PARAMS_INIT;
  moert_moe_grouped_matmul_args args = {sizeof args, rows, offsets, weights, NULL, NULL, NULL, NULL, NULL, out};
  return moert_moe_grouped_matmul(&params, &args, NULL, context);
}

// Small multiples of 1/8.
static float element_of(int64_t i) { return (float)(i % 11 - 5) / 8; }

// One group of [rows, depth] times [columns, depth], exact sums.
static void assert_product(const float *out, const float *rows, const float *weights, int64_t num_rows, int64_t columns, int64_t depth) {
  for (int64_t r = 0; r < num_rows; ++r)
    for (int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += (double)rows[r * depth + k] * (double)weights[n * depth + k];
      assert_true((double)out[r * columns + n] == sum);
    }
}

//===--- all-reduce -------------------------------------------------------------------------------===//

// x + residual of all ranks, normalised: what every rank passes is a function of its number, the token and the column.
typedef struct reduction {
  int32_t ranks;
  int64_t tokens, hidden, limit, experts;
  int64_t shift; // of every tensor, in elements
} reduction;

static float part_value(int32_t rank, int64_t i) { return (float)((i + 3 * rank) % 9 - 4); }
static float gamma_value(int64_t h) { return (float)(h % 5 + 1) / 4; }

typedef struct reduction_buffers {
  float *x, *scales, *shared, *residual, *gamma, *sum, *total, *norm;
} reduction_buffers;

// The sum and the total are exact; the norm is compared to what f32 leaves of it.
static const char *wrong_reduction(const reduction *c, const reduction_buffers *b) {
  for (int64_t t = 0; t < c->tokens; ++t) {
    double squares = 0;
    for (int64_t i = t * c->hidden; i < (t + 1) * c->hidden; ++i) {
      double sum = 0;
      for (int32_t rank = 0; rank < c->ranks; ++rank) sum += (double)part_value(rank, i) * (double)(2 * c->experts + 1);
      if ((double)b->sum[i] != sum) return "the sum";
      if ((double)b->total[i] != sum + (double)part_value(1, i)) return "the sum with the residual";
      squares += (double)b->total[i] * (double)b->total[i];
    }
    for (int64_t h = 0; h < c->hidden; ++h) {
      double norm = (double)b->total[t * c->hidden + h] / sqrt(squares / (double)c->hidden + 0.5) * (double)gamma_value(h);
      if (!(fabs((double)b->norm[t * c->hidden + h] - norm) <= 2e-6 * (1 + fabs(norm)))) return "the norm";
    }
  }
  return NULL;
}

static moert_status call_reduction(const reduction *c, const reduction_buffers *b, member *m) {
  int64_t t = c->tokens, h = c->hidden;
  moert_tensor x = TENSOR(b->x, F32, c->experts, t, h), scales = TENSOR(b->scales, F32, c->experts, t), shared = TENSOR(b->shared, F32, t, h);
  moert_tensor residual = TENSOR(b->residual, F32, t, h), gamma = TENSOR(b->gamma, F32, h), sum = TENSOR(b->sum, F32, t, h);
  moert_tensor total = TENSOR(b->total, F32, t, h), norm = TENSOR(b->norm, F32, t, h);
  moert_moe_allreduce_fusion_params params = MOERT_MOE_ALLREDUCE_FUSION_PARAMS_INIT;
  params.hidden_size = h;
  params.rms_eps = 0.5;
  moert_moe_allreduce_fusion_args args = {sizeof args,   &residual,    &gamma, &x,     &scales, NULL, &shared,
                                          &m->workspace, &m->metainfo, &sum,   &total, &norm,   NULL, NULL};
  return moert_moe_allreduce_fusion(&params, &args, NULL, m->context);
}

static float *take_floats(const reduction *c, int64_t count) { return (float *)take((size_t)(count + c->shift) * sizeof(float)) + c->shift; }

static moert_status reduce(const reduction *c, member *m) {
  int64_t elements = c->tokens * c->hidden;
  reduction_buffers b = {take_floats(c, c->experts * elements),
                         take_floats(c, c->experts * c->tokens),
                         take_floats(c, elements),
                         take_floats(c, elements),
                         take_floats(c, c->hidden),
                         take_floats(c, elements),
                         take_floats(c, elements),
                         take_floats(c, elements)};
  for (int64_t i = 0; i < elements; ++i) {
    for (int64_t e = 0; e < c->experts; ++e) b.x[e * elements + i] = part_value(m->rank, i);
    b.shared[i] = part_value(m->rank, i);
    b.residual[i] = part_value(1, i);
  }
  for (int64_t i = 0; i < c->experts * c->tokens; ++i) b.scales[i] = 2;
  for (int64_t h = 0; h < c->hidden; ++h) b.gamma[h] = gamma_value(h);
  moert_status status = call_reduction(c, &b, m);
  if (!status)
    m->wrong = wrong_reduction(c, &b);
  else if (!is_untouched(b.sum, (size_t)elements * 4) || !is_untouched(b.total, (size_t)elements * 4) || !is_untouched(b.norm, (size_t)elements * 4))
    m->wrong = "an output of a refused call";
  return status;
}

// A scene for reductions: a workspace with room for `tokens` rows.
static scene reducers(int32_t ranks, int64_t tokens, int64_t hidden, moert_status (*play)(member *m)) {
  return (scene){.ranks = ranks, .experts = ranks, .top_k = 1, .hidden = hidden, .limit = tokens, .choose = spread, .play = play};
}

static moert_status play_reduction(member *m) {
  reduction c = {.ranks = m->scene->ranks, .tokens = tokens_of(m->scene, m->rank, 0), .hidden = m->scene->hidden, .experts = 2};
  return reduce(&c, m);
}

//===--- expert parallelism without an all-to-all ---------------------------------------------------===//

// Every rank has the tokens of rank 0. A rank's part of the result is left in m->out; assert_parts adds them up.
typedef struct ep_call {
  int32_t *counters[2], my_rank[1], *offsets, *experts, *sources;
  uint64_t pointers[MOERT_EP_GROUPS][MOERT_EP_BUFFERS], tables[MOERT_EP_GROUPS][MOERT_EP_BUFFERS][MAX_RANKS];
  uint16_t *tokens, *rows;
  float *row_results;
  int64_t local, capacity, num_tokens;
} ep_call;

static uint16_t bf16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float f32_of(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static void make_ep(const member *m, ep_call *c) {
  const scene *s = m->scene;
  c->local = s->experts / s->ranks;
  c->num_tokens = tokens_of(s, 0, 0);
  c->capacity = s->limit * s->top_k;
  for (int i = 0; i < 2; ++i) c->counters[i] = take((size_t)moert_ep_lay_out_counters(c->local).words * 4);
  c->offsets = take((size_t)(c->local + 1) * 4);
  c->experts = take((size_t)c->local * 4);
  c->sources = take((size_t)c->capacity * 8);
  c->tokens = take((size_t)(c->num_tokens * s->hidden) * 2);
  c->rows = take((size_t)(c->capacity * s->hidden) * 2);
  c->row_results = take((size_t)(c->capacity * s->hidden) * 4);
  for (int64_t i = 0; i < c->num_tokens * s->hidden; ++i) c->tokens[i] = bf16_of(value_of(s, 0, i / s->hidden, i % s->hidden));
  for (int64_t i = 0; i < c->num_tokens * s->top_k; ++i) {
    m->ids[i] = s->choose(s, 0, i / s->top_k, i % s->top_k);
    m->weights[i] = weight_of(i / s->top_k, i % s->top_k);
  }
}

static moert_status init_ep(const member *m, ep_call *c) {
  int64_t words = moert_ep_lay_out_counters(c->local).words;
  moert_tensor first = TENSOR(c->counters[0], I32, words), second = TENSOR(c->counters[1], I32, words);
  moert_tensor pointers = TENSOR(c->pointers, UI64, MOERT_EP_GROUPS, MOERT_EP_BUFFERS), rank = TENSOR(c->my_rank, I32, 1);
  moert_ep_init_params params = MOERT_EP_INIT_PARAMS_INIT;
  params.hidden_size = m->scene->hidden, params.top_k = m->scene->top_k, params.n_experts = c->local, params.max_token_per_rank = m->scene->limit;
  params.combine_dtype = MOERT_EP_INIT_COMBINE_DTYPE_F32;
  moert_ep_init_args args = {sizeof args, &first, &second, &pointers, &rank};
  moert_status status = moert_ep_init(&params, &args, NULL, m->context);
  for (int group = 0; group < MOERT_EP_GROUPS; ++group)
    for (int buffer = 0; buffer < MOERT_EP_BUFFERS; ++buffer) c->tables[group][buffer][m->rank] = c->pointers[group][buffer];
  return status;
}

#define TABLE(call, group, buffer, ranks) TENSOR((call)->tables[group][buffer], UI64, ranks)

static moert_status dispatch_ep(const member *m, ep_call *c) {
  const scene *s = m->scene;
  moert_tensor rows = TENSOR(c->rows, BF16, c->capacity, s->hidden), offsets = TENSOR(c->offsets, I32, c->local + 1);
  moert_tensor experts = TENSOR(c->experts, I32, c->local), sources = TENSOR(c->sources, I32, c->capacity, 2);
  moert_tensor counters = TENSOR(c->counters[0], I32, moert_ep_lay_out_counters(c->local).words);
  moert_tensor tokens = TENSOR(c->tokens, BF16, c->num_tokens, s->hidden), ids = TENSOR(m->ids, I32, c->num_tokens, s->top_k);
  moert_tensor send = TABLE(c, MOERT_EP_DISPATCH, MOERT_EP_SEND, s->ranks), recv = TABLE(c, MOERT_EP_DISPATCH, MOERT_EP_RECV, s->ranks);
  moert_tensor counts = TABLE(c, MOERT_EP_DISPATCH, MOERT_EP_RECV_COUNT, s->ranks);
  moert_ep_dispatch_params params = {sizeof params, s->hidden, s->top_k, c->local, s->limit, 1, 1, 0, 1, s->ranks};
  moert_ep_dispatch_args args = {sizeof args, &rows, &offsets, &experts, &sources, &counters, &tokens, &ids, &send, &recv, &counts};
  return moert_ep_dispatch(&params, &args, NULL, m->context);
}

// Each pair (token, slot) of this rank's experts once, by expert, token and slot.
static const char *wrong_ep_rows(const member *m, const ep_call *c) {
  const scene *s = m->scene;
  int64_t row = 0;
  for (int64_t e = 0; e < c->local; ++e) {
    if (c->offsets[e] != row || c->experts[e] != e) return "the first row of an expert";
    for (int64_t choice = 0; choice < c->num_tokens * s->top_k; ++choice) {
      if (s->choose(s, 0, choice / s->top_k, choice % s->top_k) != m->rank * c->local + e) continue;
      if (c->sources[2 * row] != choice / s->top_k || c->sources[2 * row + 1] != choice % s->top_k) return "the source of a row";
      if (memcmp(c->rows + row * s->hidden, c->tokens + choice / s->top_k * s->hidden, (size_t)s->hidden * 2) != 0) return "a row of an expert";
      ++row;
    }
  }
  if (c->offsets[c->local] != row) return "the end of the rows";
  return is_untouched(c->sources + 2 * row, (size_t)(c->capacity - row) * 8) ? NULL : "a source behind the rows";
}

static moert_status combine_ep(const member *m, ep_call *c) {
  const scene *s = m->scene;
  moert_tensor out = TENSOR(m->out, F32, c->num_tokens, s->hidden), rows = TENSOR(c->row_results, F32, c->capacity, s->hidden);
  moert_tensor counters = TENSOR(c->counters[0], I32, moert_ep_lay_out_counters(c->local).words), sources = TENSOR(c->sources, I32, c->capacity, 2);
  moert_tensor weights = TENSOR(m->weights, F32, c->num_tokens, s->top_k), ids = TENSOR(m->ids, I32, c->num_tokens, s->top_k);
  moert_tensor send = TABLE(c, MOERT_EP_COMBINE, MOERT_EP_SEND, s->ranks), recv = TABLE(c, MOERT_EP_COMBINE, MOERT_EP_RECV, s->ranks);
  moert_tensor counts = TABLE(c, MOERT_EP_COMBINE, MOERT_EP_RECV_COUNT, s->ranks);
  moert_ep_combine_skip_a2a_params params = {sizeof params, s->hidden, s->top_k, c->local, s->limit, 1, 1, 0, 1, s->ranks, 0};
  moert_ep_combine_skip_a2a_args args = {sizeof args, &out, &counters, &rows, &sources, &send, &recv, &counts, &weights, &ids};
  return moert_ep_combine_skip_a2a(&params, &args, NULL, m->context);
}

static moert_status play_ep(member *m) {
  ep_call c = {0};
  make_ep(m, &c);
  moert_status status = init_ep(m, &c);
  if (!status) status = dispatch_ep(m, &c);
  if (status) return status;
  m->wrong = wrong_ep_rows(m, &c);
  for (int64_t e = 0; e < c.local; ++e)
    for (int64_t i = c.offsets[e] * m->scene->hidden; i < c.offsets[e + 1] * m->scene->hidden; ++i)
      c.row_results[i] = f32_of(c.rows[i]) * (float)(m->rank * c.local + e + 1);
  return combine_ep(m, &c);
}

static void assert_ep(scene s) {
  s.play = play_ep;
  assert_scene(&s);
  for (int64_t i = 0; i < tokens_of(&s, 0, 0) * s.hidden; ++i) {
    double parts = 0, sum = 0;
    for (int32_t r = 0; r < s.ranks; ++r) parts += (double)s.members[r].out[i];
    for (int64_t k = 0; k < s.top_k; ++k) {
      int32_t e = s.choose(&s, 0, i / s.hidden, k);
      if (e >= 0 && e < s.experts) sum += (double)weight_of(i / s.hidden, k) * (e + 1) * (double)value_of(&s, 0, i / s.hidden, i % s.hidden);
    }
    assert_true(parts == sum);
  }
}

//===--- K1: empty, idle and uneven ranks -----------------------------------------------------------===//

// Ranks arrive at different times.
static moert_status play_with_jitter(member *m) {
  moert_status status = MOERT_OK;
  for (int64_t i = 0; i < m->scene->steps && !status; ++i) {
    nanosleep(&(struct timespec){0, (i * 7 + m->rank * 13) % 5 * 200000}, NULL);
    status = play_step(m);
  }
  return status;
}

static void k1_ranks_without_tokens_in_every_position(void **state) {
  (void)state;
  scene s = {.ranks = 4,
             .experts = 8,
             .top_k = 2,
             .hidden = 256,
             .limit = 4,
             .choose = spread,
             .play = play_with_jitter,
             .steps = 24,
             .sets = 6,
             .tokens = {{4, 0, 3, 1}, {0, 0, 0, 0}, {0, 4, 1, 3}, {4, 0, 3, 1}, {1, 2, 0, 0}, {0, 0, 0, 4}}};
  assert_both(s);
}

static void k1_empty_batch_with_null_pointers(void **state) {
  (void)state;
  moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  moert_tensor logits = TENSOR(NULL, F32, 0, 128), ids = TENSOR(NULL, I32, 0, 2), weights = TENSOR(NULL, F32, 0, 2);
  assert_ok(route(&logits, &ids, &weights, params));
  int32_t no_rows[3] = {0};
  float *matrices = take(2 * 8 * 128 * 4);
  moert_tensor rows = TENSOR(NULL, F32, 0, 128), offsets = TENSOR(no_rows, I32, 3), groups = TENSOR(matrices, F32, 2, 8, 128),
               out = TENSOR(NULL, F32, 0, 8);
  assert_ok(multiply(&rows, &offsets, &groups, &out, alone));
}

// A rank without tokens has no memory for them.
static moert_status play_without_memory(member *m) {
  m->ids = NULL;
  m->weights = m->x = m->out = NULL;
  moert_status status = play_step(m);
  const reduction none = {.ranks = m->scene->ranks, .hidden = m->scene->hidden, .experts = 2};
  const reduction_buffers buffers = {.gamma = take_floats(&none, none.hidden)};
  return status ? status : call_reduction(&none, &buffers, m);
}

static void k1_empty_batch_with_null_pointers_on_ranks(void **state) {
  (void)state;
  assert_both((scene){.ranks = 2, .experts = 4, .top_k = 2, .hidden = 128, .limit = 3, .choose = spread, .play = play_without_memory});
  assert_ep((scene){.ranks = 2, .experts = 4, .top_k = 2, .hidden = 128, .limit = 3, .choose = spread});
}

static int32_t to_rank_0(const scene *s, int32_t rank, int64_t token, int64_t slot) {
  return (int32_t)((rank + token + slot) % experts_of(s->experts, s->ranks, 0));
}

static void k1_all_tokens_to_one_rank(void **state) {
  (void)state;
  assert_both((scene){.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 4, .choose = to_rank_0, .tokens = {{4, 4}}, .steps = 50});
}

// Rank 1 leaves a step out, in the manner of an early return for no tokens.
static moert_status skip_a_step(member *m) {
  moert_status status = MOERT_OK;
  for (int64_t i = 0; i < 5 && !status; ++i)
    if (i != 2 || m->rank != m->scene->odd) status = play_step(m);
  return status;
}

static void k1_rank_that_skips_a_step(void **state) {
  (void)state;
  scene s = {.ranks = 2,
             .experts = 4,
             .top_k = 2,
             .hidden = 8,
             .limit = 3,
             .choose = spread,
             .tokens = {{3, 0}},
             .play = skip_a_step,
             .odd = 1,
             .timeout_ms = DEADLINE_MS};
  run_scene(&s);
  assert_string_equal(s.runs[0].error, "moe.dispatch: rank 0 waited 300 ms for rank 1 (its counts, epoch 9)");
  assert_int_equal(s.runs[0].status, MOERT_ERROR_PEER_TIMEOUT);
  assert_string_equal(s.runs[1].error, "");
}

static moert_status skip_a_dispatch(member *m) {
  moert_status status = play_step(m);
  if (!status && m->rank != m->scene->odd) status = dispatch_layer(m);
  return status ? status : combine_layer(m);
}

static void k1_rank_that_skips_a_dispatch(void **state) {
  (void)state;
  scene s = {.ranks = 2,
             .experts = 4,
             .top_k = 2,
             .hidden = 8,
             .limit = 3,
             .choose = spread,
             .tokens = {{3, 0}},
             .play = skip_a_dispatch,
             .odd = 1,
             .timeout_ms = DEADLINE_MS};
  run_scene(&s);
  assert_string_equal(s.runs[0].error, "moe.dispatch: rank 0 waited 300 ms for rank 1 (its counts, epoch 3)");
  assert_string_equal(s.runs[1].error, "moe.combine: no dispatch on this workspace waits for its combine: call moe.dispatch first");
}

// The shared expert is local, so that the idle rank multiplies no rows, and joins dispatch and combine all the same. What the combine gives is
// whole: a further reduction would count it twice.
static moert_status play_with_shared_expert(member *m) {
  const scene *s = m->scene;
  int64_t tokens = tokens_of(s, m->rank, 0);
  moert_status status = play_step(m);
  if (status) return status;
  float *weights = take((size_t)(s->hidden * s->hidden) * 4), *shared = take((size_t)(tokens * s->hidden) * 4);
  for (int64_t i = 0; i < s->hidden * s->hidden; ++i) weights[i] = element_of(i);
  int32_t ends[] = {0, (int32_t)tokens};
  moert_tensor rows = TENSOR(m->x, F32, tokens, s->hidden), offsets = TENSOR(ends, I32, 2), matrix = TENSOR(weights, F32, 1, s->hidden, s->hidden);
  moert_tensor out = TENSOR(shared, F32, tokens, s->hidden);
  status = multiply(&rows, &offsets, &matrix, &out, m->context);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < s->hidden; ++h) {
      double dense = 0, routed = 0;
      for (int64_t k = 0; k < s->hidden; ++k) dense += (double)m->x[t * s->hidden + k] * (double)weights[h * s->hidden + k];
      for (int64_t k = 0; k < s->top_k; ++k)
        routed += (double)weight_of(t, k) * (s->choose(s, m->rank, t, k) + 1) * (double)value_of(s, m->rank, t, h);
      if ((double)m->out[t * s->hidden + h] + (double)shared[t * s->hidden + h] != routed + dense) m->wrong = "routed and shared expert";
    }
  return status;
}

static void k1_idle_rank_with_shared_expert(void **state) {
  (void)state;
  assert_both(
      (scene){.ranks = 2, .experts = 4, .top_k = 2, .hidden = 16, .limit = 3, .choose = spread, .tokens = {{3, 0}}, .play = play_with_shared_expert});
}

// 9 tokens on rank 0 in chunks of 5; the other ranks have none in the second.
static void k1_chunks_of_no_tokens(void **state) {
  (void)state;
  assert_both((scene){.ranks = 4,
                      .experts = 6,
                      .top_k = 2,
                      .hidden = 8,
                      .limit = 5,
                      .choose = spread,
                      .tokens = {{5, 1, 1, 1}, {4, 0, 0, 0}},
                      .sets = 2,
                      .steps = 2});
}

//===--- K2: routing indices ------------------------------------------------------------------------===//

static int32_t padding(const scene *s, int32_t rank, int64_t token, int64_t slot) {
  if (token >= 2 || (token == 1 && slot == 1)) return -1;
  return (int32_t)((rank + token + slot) % s->experts);
}

static void k2_ids_of_padding(void **state) {
  (void)state;
  const scene s = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 4, .choose = padding, .tokens = {{4, 4}}};
  assert_both(s);
  assert_ep(s);
}

// A quarter of the ids is none, half of them -1 and half the number of experts.
static int32_t with_sentinels(const scene *s, int32_t rank, int64_t token, int64_t slot) {
  int64_t i = token * s->top_k + slot;
  return i % 8 == 3 ? -1 : i % 8 == 6 ? (int32_t)s->experts : spread(s, rank, token, slot);
}

static void k2_sentinels_minus_one_and_number_of_experts(void **state) {
  (void)state;
  const scene small = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 4, .choose = with_sentinels, .tokens = {{4, 4}}};
  scene large = small;
  large.experts = 64, large.limit = large.tokens[0][0] = large.tokens[0][1] = 1024;
  assert_both(small);
  assert_both(large);
  assert_ep(small);
}

static int32_t only_3(const scene *s, int32_t rank, int64_t token, int64_t slot) { return (void)s, (void)rank, (void)token, (void)slot, 3; }

static void k2_expert_listed_twice(void **state) {
  (void)state;
  const scene s = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 1, .choose = only_3, .tokens = {{1, 1}}};
  assert_both(s); // the weights of both slots count
  assert_ep(s);
}

static void k2_logits_without_numbers(void **state) {
  (void)state;
  enum { EXPERTS = 8, TOP_K = 3, ROWS = 4 };
  float logits_data[ROWS][EXPERTS], *weights_data = take(ROWS * TOP_K * 4);
  int32_t *ids_data = take(ROWS * TOP_K * 4);
  for (int i = 0; i < EXPERTS; ++i) {
    logits_data[0][i] = NAN;
    logits_data[1][i] = i == 7 ? NAN : (float)i / 4;
    logits_data[2][i] = -INFINITY;
    logits_data[3][i] = 0.5f;
  }
  moert_tensor logits = TENSOR(logits_data, F32, ROWS, EXPERTS), ids = TENSOR(ids_data, I32, ROWS, TOP_K),
               weights = TENSOR(weights_data, F32, ROWS, TOP_K);
  for (int variant = 0; variant < 8; ++variant) {
    moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
    params.score = variant & 1, params.order = variant >> 1 & 1, params.renormalize = variant >> 2;
    assert_ok(route(&logits, &ids, &weights, params));
    for (int k = 0; k < TOP_K; ++k) {
      assert_int_equal(ids_data[k], -1);
      assert_true(weights_data[k] == 0);
      assert_int_equal(ids_data[TOP_K + k], 6 - k);
      assert_int_equal(ids_data[2 * TOP_K + k], k);
      assert_int_equal(ids_data[3 * TOP_K + k], k);
      assert_true(weights_data[TOP_K + k] > 0);
    }
    double all = params.order ? TOP_K : EXPERTS; // that share a softmax
    double sigmoid = 1 / (1 + exp(-0.5)), minus_infinity = params.score ? 0 : params.renormalize ? 1.0 / TOP_K : 1 / all;
    double equal = params.renormalize ? 1.0 / TOP_K : params.score ? sigmoid : 1 / all;
    double scores[EXPERTS - 1], sum = 0, chosen = 0;
    for (int i = 0; i < EXPERTS - 1; ++i) {
      scores[i] = params.score ? 1 / (1 + exp(-i / 4.0)) : exp(i / 4.0);
      if (!params.order || i >= 4) sum += scores[i];
      if (i >= 4) chosen += scores[i];
    }
    double divisor = params.renormalize ? chosen : params.score ? 1 : sum;
    for (int k = 0; k < TOP_K; ++k) {
      assert_true(fabs((double)weights_data[TOP_K + k] - scores[6 - k] / divisor) < 1e-6);
      assert_true(fabs((double)weights_data[2 * TOP_K + k] - minus_infinity) < 1e-6);
      assert_true(fabs((double)weights_data[3 * TOP_K + k] - equal) < 1e-6);
    }
  }
}

// Ids of another type are refused, not reinterpreted.
static moert_status dispatch_other_ids(member *m) {
  const scene *s = m->scene;
  int64_t *wide = take((size_t)(3 * s->top_k) * 8);
  moert_tensor x = TENSOR(m->x, F32, 3, s->hidden), recv = TENSOR(m->recv, F32, 1, s->limit, s->hidden),
               ids = TENSOR(wide, s->odd ? UI32 : I64, 3, s->top_k);
  moert_moe_dispatch_params params = {sizeof params, s->top_k, s->experts, 0, 0, 1, 0};
  moert_moe_dispatch_args args = {sizeof args, &ids, NULL, 1,     &x,   NULL, &m->workspace, &m->metainfo,
                                  s->limit,    0,    1,    &recv, NULL, NULL, NULL,          &m->payload_offset};
  return moert_moe_dispatch(&params, &args, NULL, m->context);
}

static void k2_element_type_of_ids(void **state) {
  (void)state;
  scene s = {.ranks = 1, .experts = 4, .top_k = 2, .hidden = 8, .limit = 3, .choose = spread, .tokens = {{3}}, .play = dispatch_other_ids};
  run_scene(&s);
  assert_string_equal(s.runs[0].error, "moe.dispatch: operand 'topk_ids': element type i64, must be i32");
  s.odd = 1;
  run_scene(&s);
  assert_string_equal(s.runs[0].error, "moe.dispatch: operand 'topk_ids': element type ui32, must be i32");
}

// Rank 0 has nothing to do: no row, in no group.
static void k2_rank_without_chosen_experts_does_no_work(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 4, .top_k = 1, .hidden = 8, .limit = 4, .choose = only_3, .tokens = {{4, 4}}, .grouped = true};
  assert_scene(&s);
  for (int e = 0; e <= 2; ++e) assert_int_equal(s.members[0].offsets[e], 0);
  assert_both(s);
  assert_ep(s);
}

static void k2_every_top_k(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 32, .hidden = 8, .limit = 3, .choose = spread, .tokens = {{3, 3}}};
  for (s.top_k = 1; s.top_k <= 32; ++s.top_k) assert_both(s);
  s.top_k = 33;
  run_scene(&s);
  for (int r = 0; r < 2; ++r) assert_string_equal(s.runs[r].error, "moe.dispatch: parameter 'top_k' is 33, must be in [1, 32]");
}

// A result for as many tokens as arrived, not as many as were sent.
static moert_status combine_what_arrived(member *m) {
  const scene *s = m->scene;
  moert_status status = dispatch_layer(m);
  if (status) return status;
  apply_experts(m);
  moert_tensor payload = TENSOR(m->result, F32, s->ranks, s->limit, s->hidden), out = TENSOR(m->recv, F32, s->ranks * s->limit, s->hidden);
  moert_moe_combine_params params = {sizeof params, s->top_k, s->hidden, 0, 0, 0, 0, 0, 1.0, 0, 1, 0};
  moert_moe_combine_args args = {sizeof args, &payload, &m->workspace, &m->metainfo, s->limit, m->payload_offset, 0, &out, NULL};
  status = moert_moe_combine(&params, &args, NULL, m->context);
  if (status != MOERT_ERROR_INVALID_STATE ||
      strcmp(moert_last_error(), "moe.combine: operand 'out' has 6 tokens, must have 3 as in the dispatch") != 0)
    m->wrong = "the refusal of a combine for received tokens";
  return combine_layer(m);
}

static void k2_combine_for_received_tokens(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 3, .choose = spread, .tokens = {{3, 3}}, .play = combine_what_arrived};
  assert_scene(&s);
}

// From each row back to its pair (token, slot), and no pair twice: what arrives is checked row by row, all values of column 0 being different.
static void k2_rows_are_a_bijection_of_choices(void **state) {
  (void)state;
  const scene s = {.ranks = 1, .experts = 4, .top_k = 2, .hidden = 8, .limit = 4, .choose = spread, .tokens = {{4}}};
  assert_both(s);
  assert_ep(s);
}

//===--- K3: partition of experts and number of ranks -----------------------------------------------===//

static int32_t last_expert(const scene *s, int32_t rank, int64_t token, int64_t slot) {
  return slot ? (int32_t)((rank + token) % s->experts) : (int32_t)s->experts - 1;
}

static void k3_last_expert_of_an_uneven_partition(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 5, .top_k = 2, .hidden = 8, .limit = 2, .choose = last_expert, .tokens = {{2, 2, 2}}};
  assert_both(s);
  s.ranks = 3, s.experts = 8;
  assert_both(s);
}

// Token t chooses expert t alone; its owner must be the one of the table.
static int32_t expert_of_token(const scene *s, int32_t rank, int64_t token, int64_t slot) { return (void)s, (void)rank, (void)slot, (int32_t)token; }

static void k3_owner_of_every_expert(void **state) {
  (void)state;
  static const struct {
    int32_t experts, ranks, sizes[MAX_RANKS];
  } cases[] = {{7, 2, {4, 3}}, {7, 3, {3, 2, 2}}, {7, 4, {2, 2, 2, 1}}, {30, 8, {4, 4, 4, 4, 4, 4, 3, 3}}};
  for (size_t i = 0; i < COUNT(cases); ++i) {
    scene s = {.ranks = cases[i].ranks, .experts = cases[i].experts, .top_k = 1, .hidden = 8, .limit = cases[i].experts, .choose = expert_of_token};
    for (int32_t r = 0; r < s.ranks; ++r) s.tokens[0][r] = s.experts;
    for (int32_t r = 0; r < s.ranks; ++r) assert_int_equal(experts_of(s.experts, s.ranks, r), cases[i].sizes[r]);
    assert_both(s);
  }
}

// Ids are global on every rank; a rank's experts begin at its own.
static int32_t upper_half(const scene *s, int32_t rank, int64_t token, int64_t slot) {
  return (int32_t)(s->experts / 2 + (rank + token + slot) % (s->experts / 2));
}

static void k3_global_ids_on_the_second_rank(void **state) {
  (void)state;
  const scene s = {.ranks = 2, .experts = 8, .top_k = 2, .hidden = 8, .limit = 4, .choose = upper_half, .tokens = {{4, 4}}};
  assert_both(s);
  assert_ep(s);
}

static int32_t far_apart(const scene *s, int32_t rank, int64_t token, int64_t slot) {
  return (void)slot, token ? (int32_t)s->experts - 1 - rank : 1023 + rank;
}

static void k3_more_than_1024_experts(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 1025, .top_k = 1, .hidden = 8, .limit = 2, .choose = far_apart, .tokens = {{2, 2}}};
  assert_both(s);
  s.experts = 2048;
  assert_both(s);
  assert_ep(s);
}

//===--- K4: shapes, alignment, pointers ------------------------------------------------------------===//

// Rows of f8 with a scale for 128 columns each arrive byte by byte.
static moert_status dispatch_f8(member *m) {
  enum { TOKENS = 2 };
  const scene *s = m->scene;
  int64_t h = s->hidden, groups = h / 128;
  unsigned char *x = take((size_t)(TOKENS * h)), *recv = take((size_t)(s->limit * h));
  float *scales = take((size_t)(TOKENS * groups) * 4), *recv_scales = take((size_t)(s->limit * groups) * 4);
  for (int64_t i = 0; i < TOKENS * h; ++i) x[i] = (unsigned char)(i * 7);
  for (int64_t i = 0; i < TOKENS * groups; ++i) scales[i] = (float)i;
  int32_t ids_data[TOKENS] = {1, 0};
  moert_tensor ids = TENSOR(ids_data, I32, TOKENS, 1), payloads[] = {TENSOR(x, F8, TOKENS, h), TENSOR(scales, F32, TOKENS, groups)};
  moert_tensor destinations[] = {TENSOR(recv, F8, 1, s->limit, h), TENSOR(recv_scales, F32, 1, s->limit, groups)};
  moert_moe_dispatch_params params = {sizeof params, 1, s->experts, 0, 0, 1, 0};
  moert_moe_dispatch_args args = {sizeof args, &ids, NULL,         2,    payloads, NULL, &m->workspace,     &m->metainfo, s->limit,
                                  0,           2,    destinations, NULL, NULL,     NULL, &m->payload_offset};
  moert_status status = moert_moe_dispatch(&params, &args, NULL, m->context);
  if (memcmp(recv, x, (size_t)(TOKENS * h)) != 0 || memcmp(recv_scales, scales, (size_t)(TOKENS * groups) * 4) != 0) m->wrong = "a row of f8";
  return status;
}

static void k4_rows_of_f8_with_scales(void **state) {
  (void)state;
  scene s = {.ranks = 1, .experts = 2, .top_k = 1, .limit = 3, .choose = spread, .tokens = {{2}}, .play = dispatch_f8};
  for (s.hidden = 384; s.hidden <= 640; s.hidden += 256) assert_scene(&s);
}

static void multiply_rows(int64_t rows, int64_t columns, int64_t depth, int64_t shift) {
  float *x = take((size_t)(rows * depth + shift) * 4), *w = take((size_t)(columns * depth + shift) * 4),
        *y = take((size_t)(rows * columns + shift) * 4);
  x += shift, w += shift, y += shift;
  for (int64_t i = 0; i < rows * depth; ++i) x[i] = element_of(i);
  for (int64_t i = 0; i < columns * depth; ++i) w[i] = element_of(3 * i + 1);
  int32_t ends[] = {0, (int32_t)rows};
  moert_tensor in = TENSOR(x, F32, rows, depth), offsets = TENSOR(ends, I32, 2), matrix = TENSOR(w, F32, 1, columns, depth),
               out = TENSOR(y, F32, rows, columns);
  assert_ok(multiply(&in, &offsets, &matrix, &out, alone));
  assert_product(y, x, w, rows, columns, depth);
}

// No size is on a list: what models have, and what lies beside.
static void k4_hidden_sizes_of_no_list(void **state) {
  (void)state;
  static const int64_t sizes[] = {1600, 2880, 2944, 3072};
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    assert_both((scene){.ranks = 2, .experts = 3, .top_k = 2, .hidden = sizes[i], .limit = 3, .choose = spread, .tokens = {{3, 2}}});
    multiply_rows(3, 8, sizes[i], 0);
  }
}

static void k4_small_hidden_sizes_in_allreduce(void **state) {
  (void)state;
  static const int64_t sizes[] = {8, 16, 24, 64, 72, 200};
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    scene s = reducers(2, 4, sizes[i], play_reduction);
    s.tokens[0][0] = s.tokens[0][1] = 4;
    assert_scene(&s);
  }
}

static void k4_one_token_of_odd_hidden_sizes_in_allreduce(void **state) {
  (void)state;
  static const int64_t sizes[] = {3584, 2880, 1000};
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    scene s = reducers(2, 1, sizes[i], play_reduction);
    s.tokens[0][0] = s.tokens[0][1] = 1;
    assert_scene(&s);
  }
  scene s = reducers(2, 1, 1001, play_reduction);
  s.tokens[0][0] = s.tokens[0][1] = 1;
  run_scene(&s);
  for (int r = 0; r < 2; ++r) assert_string_equal(s.runs[r].error, "moe.allreduce_fusion: parameter 'hidden_size' is 1001, must be a multiple of 8");
}

// Every row of the result begins at another alignment, and so does the first.
static moert_status combine_into_a_slice(member *m) {
  const scene *s = m->scene;
  moert_status status = dispatch_layer(m);
  if (status) return status;
  apply_experts(m);
  int64_t tokens = tokens_of(s, m->rank, 0);
  for (int64_t i = 0; i < s->limit * s->ranks * s->hidden; ++i) ((uint16_t *)m->recv)[i] = bf16_of(m->result[i]);
  uint16_t *buffer = take((size_t)((tokens + 2) * s->hidden) * 2), *slice = buffer + s->hidden + 1;
  moert_tensor payload = TENSOR(m->recv, BF16, s->ranks, s->limit, s->hidden), out = TENSOR(slice, BF16, tokens, s->hidden);
  moert_moe_combine_params params = {sizeof params, s->top_k, s->hidden, 0, 0, 0, 0, 0, 1.0, 0, 1, 0};
  moert_moe_combine_args args = {sizeof args, &payload, &m->workspace, &m->metainfo, s->limit, m->payload_offset, 0, &out, NULL};
  status = moert_moe_combine(&params, &args, NULL, m->context);
  // One rank and one slot: the result is the row, which bf16 has rounded once.
  for (int64_t i = 0; i < tokens * s->hidden && !m->wrong; ++i) {
    double exact =
        (double)weight_of(i / s->hidden, 0) * (s->choose(s, 0, i / s->hidden, 0) + 1) * (double)value_of(s, 0, i / s->hidden, i % s->hidden);
    if (fabs((double)f32_of(slice[i]) - exact) > fabs(exact) / 128) m->wrong = "an element of the slice";
  }
  if (!is_untouched(buffer, (size_t)(slice - buffer) * 2) || !is_untouched(slice + tokens * s->hidden, (size_t)(s->hidden - 1) * 2))
    m->wrong = "the buffer around the slice";
  return status;
}

static void k4_result_within_a_larger_buffer(void **state) {
  (void)state;
  scene s = {.ranks = 1, .experts = 3, .top_k = 1, .hidden = 46, .limit = 5, .choose = spread, .tokens = {{5}}, .play = combine_into_a_slice};
  assert_scene(&s);
}

static moert_status reduce_views(member *m) {
  moert_status status = MOERT_OK;
  static const int64_t shifts[] = {8, 1, 3};
  for (size_t i = 0; i < COUNT(shifts) && !status; ++i) {
    reduction c = {.ranks = m->scene->ranks, .tokens = 4, .hidden = m->scene->hidden, .experts = 2, .shift = shifts[i]};
    status = reduce(&c, m);
  }
  return status;
}

static void k4_view_at_odd_element_offset(void **state) {
  (void)state;
  scene s = reducers(2, 4, 24, reduce_views);
  assert_scene(&s);
  for (int64_t shift = 1; shift <= 8; shift += 7) multiply_rows(5, 8, 24, shift);
  // Between elements there is no view.
  unsigned char *buffer = take(64);
  moert_tensor logits = TENSOR(buffer + 2, F32, 1, 8), ids = TENSOR(buffer + 40, I32, 1, 2), weights = TENSOR(buffer + 48, F32, 1, 2);
  assert_fails(route(&logits, &ids, &weights, (moert_moe_route_params)MOERT_MOE_ROUTE_PARAMS_INIT), MOERT_ERROR_MISALIGNED,
               "moe.route: operand 'logits': data lies 2 bytes past a multiple of 4, the size of its element type f32");
}

//===--- K5: capacity and workspaces ----------------------------------------------------------------===//

// The rank with too many tokens learns it before it sends anything; the others do not wait for ever.
static void k5_more_tokens_than_the_limit(void **state) {
  (void)state;
  scene s = {.ranks = 3, .experts = 4, .top_k = 2, .hidden = 8, .limit = 4, .choose = spread, .tokens = {{4, 5, 0}}, .timeout_ms = DEADLINE_MS};
  run_scene(&s);
  assert_string_equal(s.runs[1].error, "moe.dispatch: operand 'topk_ids' has 5 tokens, must have at most 4 (runtime_max_tokens_per_rank)");
  assert_string_equal(s.runs[0].error, "moe.dispatch: rank 0 waited 300 ms for rank 1 (its counts, epoch 1)");
  assert_string_equal(s.runs[2].error, "moe.dispatch: rank 2 waited 300 ms for rank 1 (its counts, epoch 1)");
}

// After the refusal the same rank makes the call with fewer tokens, and nobody has noticed.
static moert_status correct_the_call(member *m) {
  if (m->rank == m->scene->odd && (dispatch_layer(m) != MOERT_ERROR_CAPACITY || moert_comm_status(moert_context_comm(m->context))))
    m->wrong = "the refusal";
  m->step = 1;
  return play_step(m);
}

static void k5_corrected_call_after_a_refusal(void **state) {
  (void)state;
  assert_both((scene){.ranks = 3,
                      .experts = 4,
                      .top_k = 2,
                      .hidden = 8,
                      .limit = 4,
                      .choose = spread,
                      .tokens = {{0, 5, 0}, {4, 4, 0}},
                      .sets = 2,
                      .odd = 1,
                      .play = correct_the_call});
}

// Layers of rows of 64 and 128 bytes in one workspace; one of 256 bytes is refused, unless the workspace was made for the widest.
enum { UNLIKE_LAYERS = 3 };

static moert_status play_unlike_layers(member *m) {
  scene *s = m->scene;
  moert_status status = MOERT_OK;
  for (int i = 0; i < UNLIKE_LAYERS && !status; ++i) {
    m->scene = &s->layers[i];
    make_buffers(m);
    status = play_step(m);
  }
  return status;
}

static void k5_workspace_shared_by_unlike_layers(void **state) {
  (void)state;
  scene layers[UNLIKE_LAYERS];
  for (int grouped = 0; grouped < 2; ++grouped) {
    scene s = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 64, .limit = 3, .choose = spread, .tokens = {{3, 2}}, .grouped = grouped};
    for (int i = 0; i < UNLIKE_LAYERS; ++i) layers[i] = s, layers[i].hidden = 16 << i;
    s.play = play_unlike_layers;
    s.layers = layers;
    assert_scene(&s);
    s.hidden = 32;
    run_scene(&s);
    for (int r = 0; r < 2; ++r)
      assert_string_equal(s.runs[r].error, "moe.dispatch: operand 'payloads[0]' has rows of 256 bytes, must have at most 144 (left of "
                                           "dispatch_bytes_per_token, 144)");
  }
}

static void k5_capacity_minus_one_exact_plus_one(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 6, .choose = spread};
  static const int64_t tokens[] = {5, 6, 7, 18};
  for (size_t i = 0; i < COUNT(tokens); ++i) {
    char text[256];
    snprintf(text, sizeof text, "moe.dispatch: operand 'topk_ids' has %" PRId64 " tokens, must have at most 6 (runtime_max_tokens_per_rank)",
             tokens[i]);
    s.tokens[0][0] = s.tokens[0][1] = tokens[i];
    if (tokens[i] <= s.limit) assert_both(s);
    if (tokens[i] <= s.limit) continue;
    run_scene(&s);
    for (int r = 0; r < 2; ++r) assert_string_equal(s.runs[r].error, text);
  }
}

// Independent of the header: what docs/abi.md says of the regions, in a wider type.
__extension__ typedef __int128 wide_integer;
static wide_integer fit(wide_integer bytes, wide_integer item, wide_integer most) {
  wide_integer count = bytes / item < 1 ? 1 : bytes / item;
  return count < most ? count : most;
}

static wide_integer closed_form(wide_integer ranks, wide_integer tokens, wide_integer row, wide_integer combine_row, wide_integer stats) {
  wide_integer packets = (row + 1023) / 1024 * 1408, rows = 2 * fit(32 << 20, row, tokens) + ranks;
  wide_integer dispatched = row / 512 + 8, combined = 2 * ((combine_row + 1023) / 1024), units = dispatched > combined ? dispatched : combined;
  wide_integer few_row = (528 * units + 127) / 128 * 128, few = fit(8 << 20, few_row, tokens < 128 ? tokens : 128);
  wide_integer parts[] = {8 + 8 * ranks,
                          4 * ranks,
                          4 * ranks,
                          128 * tokens,
                          128 * tokens,
                          4 * ranks * stats,
                          16 * ranks,
                          4 * ranks,
                          128 * ranks * tokens,
                          128 * ranks * tokens,
                          256,
                          4 * ranks * tokens,
                          4 * ranks * tokens,
                          8 * (4096 + 2 * ranks),
                          128 * ranks * tokens,
                          128,
                          640 * (ranks + 512),
                          2 * ranks * fit((8 << 20) / ranks, packets, tokens) * packets,
                          32 * rows,
                          2 * rows * ((row + 127) / 128 * 128),
                          2 * ranks * (few_row > 8 << 20 ? 0 : few) * (few_row + 256),
                          (ranks * tokens * row + 127) / 128 * 128 + 1024,
                          ranks * tokens * combine_row,
                          ranks * tokens * ((combine_row + 15) / 16 * 16)};
  wide_integer sum = 0;
  for (size_t i = 0; i < COUNT(parts); ++i) sum += (parts[i] + 127) / 128 * 128;
  return sum;
}

static int64_t size_of(int32_t ranks, int64_t tokens, int64_t row, int64_t combine_row, int64_t stats) {
  moert_comm *comms[MOERT_MAX_RANKS];
  moert_context *context;
  assert_ok(moert_comm_create_threads(ranks, NULL, comms));
  assert_ok(moert_context_create(comms[0], NULL, &context));
  int64_t bytes = 0;
  moert_moe_workspace_size_params params = {sizeof params, tokens, row, combine_row, stats, ranks};
  moert_moe_workspace_size_args args = {sizeof args, &bytes};
  assert_ok(moert_moe_workspace_size(&params, &args, NULL, context));
  moert_context_destroy(context);
  destroy_ranks(comms, ranks);
  return bytes;
}

static void k5_size_is_the_closed_form(void **state) {
  (void)state;
  assert_true(size_of(32, 1024, 2 * 7168, 2 * 7168, 256) == closed_form(32, 1024, 2 * 7168, 2 * 7168, 256));
  assert_in_range(size_of(32, 1024, 2 * 7168, 2 * 7168, 0), INT64_C(1550) << 20, INT64_C(1600) << 20);
  assert_true(size_of(1, 1, 1, 1, 0) == closed_form(1, 1, 1, 1, 0));
  assert_true(size_of(5, 3, 7, 11, 13) == closed_form(5, 3, 7, 11, 13));
}

static void k5_sizes_beyond_two_to_the_31(void **state) {
  (void)state;
  int64_t bytes = size_of(2, 131072, 2 * 4096, 2 * 4096, 0);
  assert_true(bytes == closed_form(2, 131072, 2 * 4096, 2 * 4096, 0));
  assert_true(bytes > INT64_C(1) << 32);
  assert_true(size_of(64, 16777216, 2147483647, 2147483647, 65536) == closed_form(64, 16777216, 2147483647, 2147483647, 65536));
}

static void k5_allreduce_of_few_and_many_tokens(void **state) {
  (void)state;
  static const int64_t tokens[] = {1, 2, 127, 128, 129, 300};
  scene s = reducers(4, 300, 8, play_reduction);
  for (size_t i = 0; i < COUNT(tokens); ++i) {
    for (int r = 0; r < 4; ++r) s.tokens[0][r] = tokens[i];
    assert_scene(&s);
  }
}

// Nothing is written beyond a buffer, for it is refused on every rank before anything is sent.
static moert_status reduce_one_too_many(member *m) {
  reduction c = {.ranks = m->scene->ranks, .tokens = m->scene->limit + 1, .hidden = m->scene->hidden, .experts = 2};
  char *behind = (char *)m->workspace.data + m->workspace_shape[0];
  memset(behind, 0x3c, (size_t)m->scene->spare_bytes);
  moert_status status = reduce(&c, m);
  for (int64_t i = 0; i < m->scene->spare_bytes; ++i)
    if (behind[i] != 0x3c) m->wrong = "the memory behind the workspace";
  return status;
}

static void k5_allreduce_beyond_the_capacity(void **state) {
  (void)state;
  scene s = reducers(4, 5, 8, reduce_one_too_many);
  s.spare_bytes = 4096;
  run_scene(&s);
  for (int r = 0; r < 4; ++r) {
    assert_string_equal(s.runs[r].error,
                        "moe.allreduce_fusion: operand 'residual_in' has 6 tokens, must have at most 5, the max_num_tokens of the workspace");
    assert_null(s.members[r].wrong);
  }
}

// All buffers of these tests stand between guards; so do the workspace and its flags.
static moert_status play_between_guards(member *m) {
  char *behind = (char *)m->workspace.data + m->workspace_shape[0];
  memset(behind, 0x3c, (size_t)m->scene->spare_bytes);
  moert_status status = play_steps(m);
  reduction c = {.ranks = m->scene->ranks, .tokens = m->scene->limit, .hidden = m->scene->hidden, .experts = 1};
  if (!status) status = reduce(&c, m);
  for (int64_t i = 0; i < m->scene->spare_bytes; ++i)
    if (behind[i] != 0x3c) m->wrong = "the memory behind the workspace";
  const uint32_t *flags = (const uint32_t *)((const char *)m->workspace.data + m->metainfo_data[MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS]);
  for (int32_t r = 0; r < m->scene->ranks; ++r)
    if (flags[r] != 2 * m->scene->steps + 1) m->wrong = "a flag";
  return status;
}

static void k5_guards_around_outputs_and_flags(void **state) {
  (void)state;
  assert_both((scene){.ranks = 3,
                      .experts = 5,
                      .top_k = 2,
                      .hidden = 8,
                      .limit = 4,
                      .choose = spread,
                      .tokens = {{4, 4, 4}},
                      .steps = 6,
                      .spare_bytes = 4096,
                      .play = play_between_guards});
}

static moert_status ask_for_too_much(rank_run *run) {
  bool other = *(const bool *)run->user && run->rank == 1;
  return moert_symmetric_alloc(run->comm, other ? 4096 : SIZE_MAX / 4, &run->memory);
}

// Ranks agree before any of them uses what it got: none hangs, none keeps memory, and they may ask again.
static void k5_ranks_without_memory_fail_together(void **state) {
  (void)state;
  moert_comm *comms[3];
  assert_ok(moert_comm_create_threads(3, NULL, comms));
  for (int attempt = 0; attempt < 6; ++attempt) {
    rank_run runs[3] = {{0}};
    bool differ = attempt % 2;
    run_ranks(runs, comms, 3, ask_for_too_much, &differ);
    for (int r = 0; r < 3; ++r) {
      assert_null(runs[r].memory);
      assert_string_equal(runs[r].error, differ ? "symmetric memory must have one size: rank 0 asked for 4611686018427387903, but rank 1 for 4096"
                                                : "rank 0 has no memory for 4611686018427387903 bytes of symmetric memory");
    }
  }
  destroy_ranks(comms, 3);
}

static moert_status other_sizes(member *m) {
  int64_t tokens = m->scene->limit - (m->rank == 1);
  moert_moe_initialize_params params = {sizeof params, tokens, 8, 8, 0, 0};
  moert_moe_initialize_args args = {sizeof args, &m->workspace, &m->metainfo};
  return moert_moe_initialize(&params, &args, NULL, m->context);
}

static void k5_ranks_that_ask_for_other_sizes(void **state) {
  (void)state;
  scene s = {.ranks = 2, .experts = 4, .top_k = 2, .hidden = 64, .limit = 4, .choose = spread, .play = other_sizes};
  run_scene(&s);
  assert_string_equal(s.runs[0].error, "moe.initialize: rank 1 used another workspace or other parameters than rank 0");
  assert_string_equal(s.runs[1].error, "moe.initialize: rank 0 used another workspace or other parameters than rank 1");
}

static void k5_limit_counts_the_tokens_of_one_rank(void **state) {
  (void)state;
  assert_both((scene){.ranks = 2, .experts = 4, .top_k = 2, .hidden = 8, .limit = 7, .choose = spread, .tokens = {{7, 7}}});
}

//===--- K6: groups and sets of ranks ---------------------------------------------------------------===//

// A thread that is a rank of several communicators plays on one after the other.
enum { MAX_GROUPS = 4, GROUP_STEPS = 20 };

typedef struct group_scene {
  scene scenes[MAX_GROUPS];
  moert_comm *comms[MAX_GROUPS][MAX_RANKS];
  const int32_t (*ranks)[MAX_RANKS]; // of each group: the threads
  int32_t num_groups;
} group_scene;

typedef struct group_thread {
  group_scene *shared;
  int32_t number;
  pthread_t thread;
  moert_status status;
  char error[512];
} group_thread;

// This thread's part in a group, NULL if it has none.
static member *member_in(group_thread *t, int32_t group) {
  const scene *s = &t->shared->scenes[group];
  for (int32_t r = 0; r < s->ranks; ++r)
    if (t->shared->ranks[group][r] == t->number) return &t->shared->scenes[group].members[r];
  return NULL;
}

static moert_status open_groups(group_thread *t) {
  moert_status status = MOERT_OK;
  for (int32_t g = 0; g < t->shared->num_groups && !status; ++g) {
    member *m = member_in(t, g);
    if (!m) continue;
    m->scene = &t->shared->scenes[g];
    m->rank = (int32_t)(m - m->scene->members);
    make_buffers(m);
    status = open_member(m, t->shared->comms[g][m->rank]);
  }
  return status;
}

static moert_status play_groups(group_thread *t) {
  moert_status status = open_groups(t);
  for (int step = 0; step < GROUP_STEPS && !status; ++step)
    for (int32_t g = 0; g < t->shared->num_groups && !status; ++g) {
      member *m = member_in(t, g);
      if (m && t->number == 0) nanosleep(&(struct timespec){0, 300000}, NULL); // the others are in the next group already
      if (m) status = play_step(m);
    }
  for (int32_t g = 0; g < t->shared->num_groups; ++g)
    if (member_in(t, g)) close_member(member_in(t, g));
  return status;
}

static void *group_thread_main(void *argument) {
  group_thread *t = argument;
  t->status = play_groups(t);
  snprintf(t->error, sizeof t->error, "%s", t->status ? moert_last_error() : "");
  return NULL;
}

// Groups of the same shapes, `sizes` of them: only who is in them differs.
static void assert_groups(const int32_t ranks[][MAX_RANKS], const int32_t *sizes, int32_t num_groups, int32_t threads) {
  group_scene *shared = calloc(1, sizeof *shared);
  group_thread runs[MAX_RANKS];
  shared->ranks = ranks;
  shared->num_groups = num_groups;
  for (int32_t g = 0; g < num_groups; ++g) {
    shared->scenes[g] = (scene){.ranks = sizes[g],
                                .experts = 6,
                                .top_k = 2,
                                .hidden = 8,
                                .limit = 3,
                                .choose = spread,
                                .timeout_ms = 20000,
                                .tokens = {{3, 1, 2, 0}, {0, 3, 1, 2}},
                                .sets = 2};
    assert_ok(moert_comm_create_threads(sizes[g], NULL, shared->comms[g]));
  }
  for (int32_t i = 0; i < threads; ++i) {
    runs[i] = (group_thread){.shared = shared, .number = i};
    assert_int_equal(pthread_create(&runs[i].thread, NULL, group_thread_main, &runs[i]), 0);
  }
  for (int32_t i = 0; i < threads; ++i) assert_int_equal(pthread_join(runs[i].thread, NULL), 0);
  for (int32_t i = 0; i < threads; ++i) assert_string_equal(runs[i].error, "");
  for (int32_t g = 0; g < num_groups; ++g) {
    for (int32_t r = 0; r < sizes[g]; ++r) assert_null(shared->scenes[g].members[r].wrong);
    destroy_ranks(shared->comms[g], sizes[g]);
  }
  free(shared);
}

static void k6_two_groups_of_two_ranks(void **state) {
  (void)state;
  static const int32_t ranks[][MAX_RANKS] = {{0, 1}, {2, 3}}, sizes[] = {2, 2};
  assert_groups(ranks, sizes, 2, 4);
}

static void k6_small_group_before_the_large(void **state) {
  (void)state;
  static const int32_t ranks[][MAX_RANKS] = {{0, 1}, {0, 1, 2}}, sizes[] = {2, 3};
  assert_groups(ranks, sizes, 2, 3);
}

static void k6_two_overlapping_communicators(void **state) {
  (void)state;
  static const int32_t ranks[][MAX_RANKS] = {{0, 1, 2}, {0, 2}}, sizes[] = {3, 2};
  assert_groups(ranks, sizes, 2, 3);
}

static void k6_grid_of_two_by_two(void **state) {
  (void)state;
  static const int32_t ranks[][MAX_RANKS] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}}, sizes[] = {2, 2, 2, 2};
  assert_groups(ranks, sizes, 4, 4);
}

static void k6_every_rank_has_its_own_slots(void **state) {
  (void)state;
  scene s = {.ranks = 1, .experts = 8, .top_k = 2, .hidden = 8, .limit = 2, .choose = spread, .steps = 3};
  for (int r = 0; r < MAX_RANKS; ++r) s.tokens[0][r] = 2 - r % 2;
  for (; s.ranks <= MAX_RANKS; ++s.ranks) assert_both(s);
}

//===--- K9: scales and padded layouts --------------------------------------------------------------===//

// The formats whose scales may be in tiles.
static const int64_t tiled_formats[] = {MOERT_MOE_QUANTIZE_FORMAT_NVFP4, MOERT_MOE_QUANTIZE_FORMAT_MXFP4, MOERT_MOE_QUANTIZE_FORMAT_MXFP8};
static const int64_t tiled_layouts[] = {MOERT_MOE_QUANTIZE_SCALE_LAYOUT_128X4, MOERT_MOE_QUANTIZE_SCALE_LAYOUT_8X4};

// Rows of f32, their codes and scales, and the numbers that these stand for.
typedef struct quantized {
  int64_t format, layout, tokens, hidden;
  float *numbers, *back;
  uint8_t *codes, *scales;
  float *global; // NULL: none
} quantized;

static int64_t round_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }
static int64_t block_of(const quantized *q) { return q->format == MOERT_MOE_QUANTIZE_FORMAT_NVFP4 ? 16 : 32; }
static int64_t row_bytes_of(const quantized *q) { return q->format == MOERT_MOE_QUANTIZE_FORMAT_MXFP8 ? q->hidden : q->hidden / 2; }
static int64_t tile_rows_of(const quantized *q) { return q->layout == MOERT_MOE_QUANTIZE_SCALE_LAYOUT_128X4 ? 128 : 8; }
static bool is_tiled(const quantized *q) { return q->layout != MOERT_MOE_QUANTIZE_SCALE_LAYOUT_LINEAR; }
static int64_t scale_rows_of(const quantized *q) { return is_tiled(q) ? round_up(q->tokens, tile_rows_of(q)) : q->tokens; }
static int64_t scale_columns_of(const quantized *q) { return is_tiled(q) ? round_up(q->hidden / block_of(q), 4) : q->hidden / block_of(q); }
static int64_t num_scales_of(const quantized *q) { return scale_rows_of(q) * scale_columns_of(q); }

static quantized take_quantized(int64_t format, int64_t layout, int64_t tokens, int64_t hidden) {
  quantized q = {.format = format, .layout = layout, .tokens = tokens, .hidden = hidden};
  q.numbers = take((size_t)(tokens * hidden) * sizeof(float));
  q.back = take((size_t)(tokens * hidden) * sizeof(float));
  q.codes = take((size_t)(tokens * row_bytes_of(&q)));
  q.scales = take((size_t)num_scales_of(&q));
  return q;
}

// What five blocks have in a row: no multiple of the four columns of a tile.
static int64_t odd_hidden_of(int64_t format) { return format == MOERT_MOE_QUANTIZE_FORMAT_NVFP4 ? 144 : 160; }

// A magnitude of E2M1 times a power of two that differs from block to block. Each 16 have a 6, so that all formats hold all of it.
static float exact_number(int64_t row, int64_t column) {
  static const float magnitudes[] = {6, 0, 0.5f, -1, 1.5f, -2, 3, -4};
  return ldexpf(magnitudes[column % 16 ? (row + column) % 8 : 0], (int)((row * 7 + column / 32 * 3) % 11) - 5);
}

static void fill_exact(const quantized *q, int64_t first_row) {
  for (int64_t i = 0; i < q->tokens * q->hidden; ++i) q->numbers[i] = exact_number(first_row + i / q->hidden, i % q->hidden);
}

static moert_status quantize_with(const quantized *q, int64_t scale_rows, int64_t scale_columns) {
  moert_tensor input = TENSOR(q->numbers, F32, q->tokens, q->hidden), values = TENSOR(q->codes, I8, q->tokens, row_bytes_of(q));
  moert_tensor scales = TENSOR(q->scales, I8, scale_rows, scale_columns), global = TENSOR(q->global, F32, 1);
  moert_moe_quantize_params params = MOERT_MOE_QUANTIZE_PARAMS_INIT;
  params.format = q->format;
  params.scale_layout = q->layout;
  moert_moe_quantize_args args = {sizeof args, &input, q->global ? &global : NULL, &values, &scales};
  return moert_moe_quantize(&params, &args, NULL, alone);
}

static moert_status dequantize_with(const quantized *q, int64_t scale_rows, int64_t scale_columns) {
  moert_tensor out = TENSOR(q->back, F32, q->tokens, q->hidden), values = TENSOR(q->codes, I8, q->tokens, row_bytes_of(q));
  moert_tensor scales = TENSOR(q->scales, I8, scale_rows, scale_columns), global = TENSOR(q->global, F32, 1);
  moert_moe_dequantize_params params = MOERT_MOE_DEQUANTIZE_PARAMS_INIT;
  params.format = q->format;
  params.scale_layout = q->layout;
  moert_moe_dequantize_args args = {sizeof args, &values, &scales, q->global ? &global : NULL, &out};
  return moert_moe_dequantize(&params, &args, NULL, alone);
}

static void quantize(const quantized *q) { assert_ok(quantize_with(q, scale_rows_of(q), scale_columns_of(q))); }

static void dequantize(const quantized *q) {
  memset(q->back, 0xa5, (size_t)(q->tokens * q->hidden) * sizeof(float));
  assert_ok(dequantize_with(q, scale_rows_of(q), scale_columns_of(q)));
}

static void assert_back(const quantized *q) {
  for (int64_t i = 0; i < q->tokens * q->hidden; ++i) assert_true(q->back[i] == q->numbers[i]);
}

// Where the scale of a block is: tiles of 128 or 8 rows and four columns, one row of tiles after the other.
static int64_t scale_place(const quantized *q, int64_t row, int64_t column) {
  if (!is_tiled(q)) return row * scale_columns_of(q) + column;
  int64_t rows = tile_rows_of(q), tile = row / rows * (scale_columns_of(q) / 4) + column / 4, within = row % rows;
  return tile * rows * 4 + (rows == 128 ? within % 32 * 16 + within / 32 * 4 : within * 4) + column % 4;
}

// Of one byte for each scale: 1 where it stands for a block.
static uint8_t *mark_scales(const quantized *q) {
  uint8_t *marks = take((size_t)num_scales_of(q));
  memset(marks, 0, (size_t)num_scales_of(q));
  for (int64_t row = 0; row < q->tokens; ++row)
    for (int64_t column = 0; column < q->hidden / block_of(q); ++column) marks[scale_place(q, row, column)] = 1;
  return marks;
}

// NaN of E4M3 and of E8M0, and zero.
static void assert_padding_is_not_read(int64_t format, int64_t layout, int64_t tokens) {
  static const uint8_t fills[] = {0x7f, 0xff, 0};
  quantized q = take_quantized(format, layout, tokens, odd_hidden_of(format));
  const uint8_t *marks = mark_scales(&q);
  fill_exact(&q, 0);
  quantize(&q);
  for (int64_t i = 0; i < num_scales_of(&q); ++i) assert_true(marks[i] || q.scales[i] == 0);
  for (size_t f = 0; f < COUNT(fills); ++f) {
    for (int64_t i = 0; i < num_scales_of(&q); ++i)
      if (!marks[i]) q.scales[i] = fills[f];
    dequantize(&q);
    assert_back(&q);
  }
}

static void k9_padding_of_scales_is_zero_and_not_read(void **state) {
  (void)state;
  static const int64_t tokens[] = {1, 7, 31, 33, 127, 129};
  for (size_t f = 0; f < COUNT(tiled_formats); ++f)
    for (size_t l = 0; l < COUNT(tiled_layouts); ++l)
      for (size_t t = 0; t < COUNT(tokens); ++t) assert_padding_is_not_read(tiled_formats[f], tiled_layouts[l], tokens[t]);
}

// Scales of two matrices behind each other: the second begins where the padded scales of the first end.
static void assert_two_matrices(int64_t format, int64_t layout, int64_t tokens, int64_t hidden) {
  quantized first = take_quantized(format, layout, tokens, hidden), second = take_quantized(format, layout, tokens, hidden);
  uint8_t *both = take((size_t)(2 * num_scales_of(&first)));
  fill_exact(&first, 0);
  fill_exact(&second, 1000);
  quantize(&second);
  const uint8_t *separate = second.scales;
  first.scales = both;
  second.scales = both + num_scales_of(&first);
  quantize(&second);
  quantize(&first);
  assert_memory_equal(second.scales, separate, (size_t)num_scales_of(&second));
  dequantize(&first);
  dequantize(&second);
  assert_back(&first);
  assert_back(&second);
}

static void k9_strides_are_those_of_the_padded_scales(void **state) {
  (void)state;
  for (size_t l = 0; l < COUNT(tiled_layouts); ++l) {
    assert_two_matrices(MOERT_MOE_QUANTIZE_FORMAT_NVFP4, tiled_layouts[l], 130, 144);
    assert_two_matrices(MOERT_MOE_QUANTIZE_FORMAT_MXFP4, tiled_layouts[l], 144, 160);
    assert_two_matrices(MOERT_MOE_QUANTIZE_FORMAT_MXFP8, tiled_layouts[l], 160, 96);
  }
}

static void k9_shapes_of_padded_scales(void **state) {
  (void)state;
  quantized q = take_quantized(MOERT_MOE_QUANTIZE_FORMAT_NVFP4, MOERT_MOE_QUANTIZE_SCALE_LAYOUT_128X4, 130, 144);
  fill_exact(&q, 0);
  assert_fails(quantize_with(&q, 130, 12), MOERT_ERROR_INVALID_SHAPE,
               "moe.quantize: operand 'scales' dimension 0 is 130, must equal dimension 0 of 'input' up to a multiple of 128 = 256");
  assert_fails(quantize_with(&q, 256, 9), MOERT_ERROR_INVALID_SHAPE,
               "moe.quantize: operand 'scales' dimension 1 is 9, must equal the blocks of a row up to a multiple of 4 = 12");
  assert_true(is_untouched(q.codes, (size_t)(q.tokens * row_bytes_of(&q))) && is_untouched(q.scales, (size_t)num_scales_of(&q)));
  q.layout = MOERT_MOE_QUANTIZE_SCALE_LAYOUT_8X4;
  assert_fails(quantize_with(&q, 256, 12), MOERT_ERROR_INVALID_SHAPE,
               "moe.quantize: operand 'scales' dimension 0 is 256, must equal dimension 0 of 'input' up to a multiple of 8 = 136");
}

static void k9_scales_in_tiles_given_as_linear(void **state) {
  (void)state;
  quantized q = take_quantized(MOERT_MOE_QUANTIZE_FORMAT_NVFP4, MOERT_MOE_QUANTIZE_SCALE_LAYOUT_128X4, 5, 144);
  fill_exact(&q, 0);
  quantize(&q);
  q.layout = MOERT_MOE_QUANTIZE_SCALE_LAYOUT_LINEAR;
  assert_fails(dequantize_with(&q, 128, 12), MOERT_ERROR_INVALID_SHAPE,
               "moe.dequantize: operand 'scales' dimension 0 is 128, must equal dimension 0 of 'out' = 5");
  assert_fails(dequantize_with(&q, 5, 12), MOERT_ERROR_INVALID_SHAPE,
               "moe.dequantize: operand 'scales' dimension 1 is 12, must equal the blocks of a row = 9");
  assert_true(is_untouched(q.back, (size_t)(q.tokens * q.hidden) * sizeof(float)));
}

static void assert_zeros(const quantized *q) {
  for (int64_t i = 0; i < q->tokens * q->hidden; ++i) q->numbers[i] = i % 3 ? 0.0f : -0.0f;
  quantize(q);
  dequantize(q);
  for (int64_t i = 0; i < num_scales_of(q); ++i) assert_int_equal(q->scales[i], 0);
  for (int64_t i = 0; i < q->tokens * q->hidden; ++i) assert_true(q->back[i] == 0 && signbit(q->back[i]) == signbit(q->numbers[i]));
}

static void k9_rows_of_zeros(void **state) {
  (void)state;
  static float globals[] = {0x1p-126f, 1, 0x1.fffffep127f};
  for (size_t f = 0; f < COUNT(tiled_formats); ++f) {
    quantized q = take_quantized(tiled_formats[f], MOERT_MOE_QUANTIZE_SCALE_LAYOUT_8X4, 9, odd_hidden_of(tiled_formats[f]));
    assert_zeros(&q);
    for (size_t g = 0; g < COUNT(globals) && q.format == MOERT_MOE_QUANTIZE_FORMAT_NVFP4; ++g) {
      q.global = &globals[g];
      assert_zeros(&q);
    }
  }
}

static void assert_least_scale(int64_t tokens) {
  float numbers[64] = {0}, scale = -1;
  uint8_t codes[64];
  memset(codes, 0xa5, sizeof codes);
  moert_tensor input = TENSOR(numbers, F32, tokens, 32), values = TENSOR(codes, F8, tokens, 32), scales = TENSOR(&scale, F32, 1, 1);
  moert_moe_quantize_params params = MOERT_MOE_QUANTIZE_PARAMS_INIT;
  params.format = MOERT_MOE_QUANTIZE_FORMAT_FP8_TENSOR;
  moert_moe_quantize_args args = {sizeof args, &input, NULL, &values, &scales};
  assert_ok(moert_moe_quantize(&params, &args, NULL, alone));
  assert_true(scale == 1e-4f / 448);
  for (int64_t i = 0; i < tokens * 32; ++i) assert_int_equal(codes[i], 0);
  assert_true(is_untouched(codes + tokens * 32, (size_t)(64 - tokens * 32)));
}

static void k9_scale_of_a_tensor_of_zeros(void **state) {
  (void)state;
  for (int64_t tokens = 0; tokens < 3; ++tokens) assert_least_scale(tokens);
}

// Codes are off by no more than half of the widest gap, a quarter of the largest magnitude at most, or of the gap under the smallest scale. The
// smallest scale of nvfp4 is 2^-9: beside that all subnormals are zero.
static void assert_near(const quantized *q) {
  for (int64_t first = 0; first < q->tokens * q->hidden; first += block_of(q)) {
    double amax = 0;
    for (int64_t i = first; i < first + block_of(q); ++i) amax = fmax(amax, fabs((double)q->numbers[i]));
    double bound = q->format == MOERT_MOE_QUANTIZE_FORMAT_NVFP4 && amax < 0x1p-9 ? amax : fmax(amax / 4, 0x1p-129);
    for (int64_t i = first; i < first + block_of(q); ++i) assert_true(fabs((double)q->back[i] - (double)q->numbers[i]) <= bound);
  }
}

// Row 0 has numbers of which a scale is subnormal or zero; the others have a 1 among them, at another place in each row.
static void k9_blocks_of_subnormals(void **state) {
  (void)state;
  static const float small[] = {1e-35f, -1e-36f, 1e-37f, -1e-38f, 1e-39f, -1e-40f, 1e-45f, 0};
  for (size_t f = 0; f < COUNT(tiled_formats); ++f) {
    quantized q = take_quantized(tiled_formats[f], MOERT_MOE_QUANTIZE_SCALE_LAYOUT_LINEAR, 33, 96);
    for (int64_t row = 0; row < q.tokens; ++row)
      for (int64_t column = 0; column < q.hidden; ++column)
        q.numbers[row * q.hidden + column] = row > 0 && column % 32 == row - 1 ? 1.0f : small[(column / 32 * 2 + column % 3) % 8];
    quantize(&q);
    dequantize(&q);
    assert_near(&q);
  }
}

// The same rows, alone and from row `first` on among others.
static void assert_rows_alone(int64_t format, int64_t layout, int64_t first) {
  quantized few = take_quantized(format, layout, 8, 160), many = take_quantized(format, layout, 64, 160);
  for (int64_t i = 0; i < many.tokens * many.hidden; ++i) many.numbers[i] = (float)(i * 7919 % 10007 - 5000) / 3;
  memcpy(few.numbers, many.numbers + first * many.hidden, (size_t)(few.tokens * few.hidden) * sizeof(float));
  quantize(&few);
  quantize(&many);
  dequantize(&few);
  dequantize(&many);
  assert_memory_equal(few.codes, many.codes + first * row_bytes_of(&many), (size_t)(few.tokens * row_bytes_of(&few)));
  assert_memory_equal(few.back, many.back + first * many.hidden, (size_t)(few.tokens * few.hidden) * sizeof(float));
  for (int64_t row = 0; row < few.tokens; ++row)
    for (int64_t column = 0; column < few.hidden / block_of(&few); ++column)
      assert_int_equal(few.scales[scale_place(&few, row, column)], many.scales[scale_place(&many, first + row, column)]);
}

static void k9_rows_do_not_depend_on_others(void **state) {
  (void)state;
  static const int64_t layouts[] = {MOERT_MOE_QUANTIZE_SCALE_LAYOUT_LINEAR, MOERT_MOE_QUANTIZE_SCALE_LAYOUT_128X4,
                                    MOERT_MOE_QUANTIZE_SCALE_LAYOUT_8X4};
  for (size_t f = 0; f < COUNT(tiled_formats); ++f)
    for (size_t l = 0; l < COUNT(layouts); ++l) {
      assert_rows_alone(tiled_formats[f], layouts[l], 0);
      assert_rows_alone(tiled_formats[f], layouts[l], 37);
    }
}

static void k9_no_row_is_lost(void **state) {
  (void)state;
  for (size_t f = 0; f < COUNT(tiled_formats); ++f)
    for (size_t l = 0; l < COUNT(tiled_layouts); ++l)
      for (int64_t tokens = 1; tokens <= 130; ++tokens) {
        quantized q = take_quantized(tiled_formats[f], tiled_layouts[l], tokens, 64);
        fill_exact(&q, 0);
        quantize(&q);
        dequantize(&q);
        assert_back(&q);
      }
}

//===--- K15: runtime wrappers ----------------------------------------------------------------------===//

// Memory for two destinations at once, and for an operand and a destination: refused, with nothing written.
static void k15_one_buffer_for_two_operands(void **state) {
  (void)state;
  float logits_data[2][8] = {{0}};
  int32_t *memory = take(2 * 2 * 4);
  moert_tensor logits = TENSOR(logits_data, F32, 2, 8), ids = TENSOR(memory, I32, 2, 2), weights = TENSOR(memory, F32, 2, 2);
  moert_tensor over_logits = TENSOR(logits_data, F32, 2, 2);
  const moert_moe_route_params params = MOERT_MOE_ROUTE_PARAMS_INIT;
  assert_fails(route(&logits, &ids, &weights, params), MOERT_ERROR_OVERLAP,
               "moe.route: operand 'ids' overlaps operand 'weights'; give it memory of its own");
  assert_true(is_untouched(memory, 2 * 2 * 4));
  assert_fails(route(&logits, &ids, &over_logits, params), MOERT_ERROR_OVERLAP,
               "moe.route: operand 'weights' overlaps operand 'logits'; give it memory of its own");
  assert_true(is_untouched(memory, 2 * 2 * 4));
}

int main(void) {
#define test(name) cmocka_unit_test_teardown(name, release)
  const struct CMUnitTest tests[] = {
      test(k1_ranks_without_tokens_in_every_position),
      test(k1_empty_batch_with_null_pointers),
      test(k1_empty_batch_with_null_pointers_on_ranks),
      test(k1_all_tokens_to_one_rank),
      test(k1_rank_that_skips_a_step),
      test(k1_rank_that_skips_a_dispatch),
      test(k1_idle_rank_with_shared_expert),
      test(k1_chunks_of_no_tokens),
      test(k2_ids_of_padding),
      test(k2_sentinels_minus_one_and_number_of_experts),
      test(k2_expert_listed_twice),
      test(k2_logits_without_numbers),
      test(k2_element_type_of_ids),
      test(k2_rank_without_chosen_experts_does_no_work),
      test(k2_every_top_k),
      test(k2_combine_for_received_tokens),
      test(k2_rows_are_a_bijection_of_choices),
      test(k3_last_expert_of_an_uneven_partition),
      test(k3_owner_of_every_expert),
      test(k3_global_ids_on_the_second_rank),
      test(k3_more_than_1024_experts),
      test(k4_rows_of_f8_with_scales),
      test(k4_hidden_sizes_of_no_list),
      test(k4_small_hidden_sizes_in_allreduce),
      test(k4_one_token_of_odd_hidden_sizes_in_allreduce),
      test(k4_result_within_a_larger_buffer),
      test(k4_view_at_odd_element_offset),
      test(k5_more_tokens_than_the_limit),
      test(k5_corrected_call_after_a_refusal),
      test(k5_workspace_shared_by_unlike_layers),
      test(k5_capacity_minus_one_exact_plus_one),
      test(k5_size_is_the_closed_form),
      test(k5_sizes_beyond_two_to_the_31),
      test(k5_allreduce_of_few_and_many_tokens),
      test(k5_allreduce_beyond_the_capacity),
      test(k5_guards_around_outputs_and_flags),
      test(k5_ranks_without_memory_fail_together),
      test(k5_ranks_that_ask_for_other_sizes),
      test(k5_limit_counts_the_tokens_of_one_rank),
      test(k6_two_groups_of_two_ranks),
      test(k6_small_group_before_the_large),
      test(k6_two_overlapping_communicators),
      test(k6_grid_of_two_by_two),
      test(k6_every_rank_has_its_own_slots),
      test(k9_padding_of_scales_is_zero_and_not_read),
      test(k9_strides_are_those_of_the_padded_scales),
      test(k9_shapes_of_padded_scales),
      test(k9_scales_in_tiles_given_as_linear),
      test(k9_rows_of_zeros),
      test(k9_scale_of_a_tensor_of_zeros),
      test(k9_blocks_of_subnormals),
      test(k9_rows_do_not_depend_on_others),
      test(k9_no_row_is_lost),
      test(k15_one_buffer_for_two_operands),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

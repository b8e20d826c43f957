//===- run_side.c - kinds of bugs that such libraries have had, K1 to K6 ------------------------------===//
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
  return moert_comm_create_threads(1, &alone_comm) || moert_context_create(alone_comm, NULL, &alone);
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
  moert_moe_grouped_matmul_args args = {sizeof args, rows, offsets, weights, NULL, NULL, NULL, out};
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
  member *members;
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
  moert_moe_allreduce_fusion_params params = {sizeof params, h, 0.5, 0, 0, 0, 0, 0};
  moert_moe_allreduce_fusion_args args = {sizeof args, &residual, &gamma, &x, &scales, NULL, &shared, &m->workspace, &m->metainfo, &sum, &total, &norm};
  return moert_moe_allreduce_fusion(&params, &args, NULL, m->context);
}

static float *take_floats(const reduction *c, int64_t count) { return (float *)take((size_t)(count + c->shift) * sizeof(float)) + c->shift; }

static moert_status reduce(const reduction *c, member *m) {
  int64_t elements = c->tokens * c->hidden;
  reduction_buffers b = {take_floats(c, c->experts * elements), take_floats(c, c->experts * c->tokens), take_floats(c, elements),
                         take_floats(c, elements),              take_floats(c, c->hidden),              take_floats(c, elements),
                         take_floats(c, elements),              take_floats(c, elements)};
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
  moert_ep_combine_skip_a2a_params params = {sizeof params, s->hidden, s->top_k, c->local, s->limit, 1, 1, 0, 1, s->ranks};
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
  scene s = {.ranks = 4, .experts = 8, .top_k = 2, .hidden = 256, .limit = 4, .choose = spread, .play = play_with_jitter, .steps = 24, .sets = 6,
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
  moert_tensor rows = TENSOR(NULL, F32, 0, 128), offsets = TENSOR(no_rows, I32, 3), groups = TENSOR(matrices, F32, 2, 8, 128), out = TENSOR(NULL, F32, 0, 8);
  assert_ok(multiply(&rows, &offsets, &groups, &out, alone));
  assert_int_equal(ids.shape[1], 2);
}

static moert_status play_with_null(member *m) {
  m->ids = NULL, m->weights = m->x = m->out = NULL;
  return m->scene->play_inner ? m->scene->play_inner(m) : play_steps(m);
}

//===- scene.c - a layer of experts on several ranks, and what must come of it ------------------------===//

#define MOERT_TEST_FURTHER_FILE
#include "scene.h"

const moert_dtype BF16 = {MOERT_CODE_BFLOAT, 16, 1}, F8 = {MOERT_CODE_F8E4M3FN, 8, 1}, F32 = {MOERT_CODE_FLOAT, 32, 1}, I8 = {MOERT_CODE_INT, 8, 1},
                  I32 = {MOERT_CODE_INT, 32, 1}, UI32 = {MOERT_CODE_UINT, 32, 1}, I64 = {MOERT_CODE_INT, 64, 1}, UI64 = {MOERT_CODE_UINT, 64, 1};

//===--- memory between guards --------------------------------------------------------------------===//

enum { UNTOUCHED = 0xa5, GUARD = 0x3c };

typedef struct block {
  struct block *next;
  size_t bytes;
  unsigned char *memory; // guard, bytes, guard
} block;

static block *blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

void *take(size_t bytes) {
  block *b = malloc(sizeof *b);
  b->bytes = bytes;
  b->memory = malloc(bytes + 2 * GUARD_BYTES);
  memset(b->memory, GUARD, bytes + 2 * GUARD_BYTES);
  memset(b->memory + GUARD_BYTES, UNTOUCHED, bytes);
  pthread_mutex_lock(&blocks_lock);
  b->next = blocks;
  blocks = b;
  pthread_mutex_unlock(&blocks_lock);
  return b->memory + GUARD_BYTES;
}

void assert_guards_and_release(void) {
  while (blocks) {
    block *b = blocks;
    for (size_t i = 0; i < GUARD_BYTES; ++i) {
      assert_int_equal(b->memory[i], GUARD);
      assert_int_equal(b->memory[GUARD_BYTES + b->bytes + i], GUARD);
    }
    blocks = b->next;
    free(b->memory);
    free(b);
  }
}

bool is_untouched(const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (((const unsigned char *)data)[i] != UNTOUCHED) return false;
  return true;
}

//===--- what a token is --------------------------------------------------------------------------===//

int64_t tokens_of(const scene *s, int32_t rank, int64_t step) { return s->tokens[step % (s->sets ? s->sets : 1)][rank]; }

// Column 0 tells tokens apart.
float value_of(const scene *s, int32_t rank, int64_t token, int64_t column) {
  return column ? (float)((rank * 5 + token * 3 + column) % 13 - 6) : (float)(rank * s->limit + token);
}

float weight_of(int64_t token, int64_t slot) { return (float)((token + 2 * slot) % 7 + 1) / 8; }

int64_t experts_of(int64_t experts, int32_t ranks, int32_t rank) { return experts / ranks + (rank < experts % ranks); }

int64_t first_expert_of(int64_t experts, int32_t ranks, int32_t rank) {
  int64_t first = 0;
  for (int32_t r = 0; r < rank; ++r) first += experts_of(experts, ranks, r);
  return first;
}

int32_t rank_of(int64_t experts, int32_t ranks, int64_t expert) {
  for (int32_t r = 0; r < ranks; ++r) {
    int64_t first = first_expert_of(experts, ranks, r);
    if (expert >= first && expert < first + experts_of(experts, ranks, r)) return r;
  }
  return -1;
}

int32_t spread(const scene *s, int32_t rank, int64_t token, int64_t slot) { return (int32_t)((3 * rank + 2 * token + 5 * slot) % s->experts); }

//===--- one rank's memory ------------------------------------------------------------------------===//

static int64_t list_bytes(const scene *s) { return s->row_bytes ? s->row_bytes : s->hidden * 4 + s->top_k * 8; }

static int64_t most_tokens(const scene *s) {
  int64_t most = s->limit;
  for (int64_t step = 0; step < (s->sets ? s->sets : 1); ++step)
    for (int32_t rank = 0; rank < s->ranks; ++rank) most = tokens_of(s, rank, step) > most ? tokens_of(s, rank, step) : most;
  return most;
}

static int64_t room(const scene *s) { return s->ranks * s->limit * (s->grouped ? s->top_k : 1); }

void make_buffers(member *m) {
  const scene *s = m->scene;
  size_t tokens = (size_t)most_tokens(s), slots = (size_t)s->top_k, columns = (size_t)s->hidden, rows = (size_t)room(s);
  m->ids = take(tokens * slots * 4);
  m->weights = take(tokens * slots * 4);
  m->x = take(tokens * columns * 4);
  m->out = take(tokens * columns * 4);
  m->recv = take(rows * columns * 4);
  m->recv_ids = take(rows * slots * 4);
  m->recv_weights = take(rows * slots * 4);
  m->result = take(rows * columns * 4);
  m->recv_counts = take((size_t)s->ranks * 4);
  m->offsets = take((size_t)(experts_of(s->experts, s->ranks, m->rank) + 1) * 4);
}

// Inputs of this step; outputs are as `take` gives them.
void fill_inputs(member *m) {
  const scene *s = m->scene;
  int64_t tokens = tokens_of(s, m->rank, m->step);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < s->top_k; ++k) {
      m->ids[t * s->top_k + k] = s->choose(s, m->rank, t, k);
      m->weights[t * s->top_k + k] = weight_of(t, k);
    }
    for (int64_t h = 0; h < s->hidden; ++h) m->x[t * s->hidden + h] = value_of(s, m->rank, t, h);
  }
  memset(m->recv, UNTOUCHED, (size_t)(room(s) * s->hidden) * 4);
  if (m->out) memset(m->out, UNTOUCHED, (size_t)(most_tokens(s) * s->hidden) * 4);
}

moert_status open_member(member *m, moert_comm *comm) {
  const scene *s = m->scene;
  moert_context_options options = MOERT_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = s->timeout_ms;
  moert_status status = moert_context_create(comm, &options, &m->context);
  if (status) return status;
  int64_t bytes = 0;
  void *memory = NULL;
  moert_moe_workspace_size_params size = {sizeof size, s->limit, list_bytes(s), s->hidden * 4, 0, 0};
  moert_moe_workspace_size_args size_args = {sizeof size_args, &bytes};
  status = moert_moe_workspace_size(&size, &size_args, NULL, m->context);
  if (!status) status = moert_symmetric_alloc(comm, (size_t)(bytes + s->spare_bytes), &memory);
  if (status) return status;
  m->workspace = (moert_tensor){memory, {MOERT_DEVICE_CPU, 0}, 1, I8, m->workspace_shape, NULL, 0};
  m->metainfo = (moert_tensor){m->metainfo_data, {MOERT_DEVICE_CPU, 0}, 1, I64, m->metainfo_shape, NULL, 0};
  m->workspace_shape[0] = bytes;
  m->metainfo_shape[0] = MOERT_METAINFO_FIELDS;
  moert_moe_initialize_params params = {sizeof params, s->limit, list_bytes(s), s->hidden * 4, 0, 0};
  moert_moe_initialize_args args = {sizeof args, &m->workspace, &m->metainfo};
  return moert_moe_initialize(&params, &args, NULL, m->context);
}

void close_member(member *m) { moert_context_destroy(m->context); }

//===--- what arrived -----------------------------------------------------------------------------===//

static bool names_rank(const scene *s, int32_t source, int64_t token, int32_t rank) {
  for (int64_t k = 0; k < s->top_k; ++k)
    if (rank_of(s->experts, s->ranks, s->choose(s, source, token, k)) == rank) return true;
  return false;
}

static bool row_is(const member *m, int64_t row, int32_t source, int64_t token) {
  const scene *s = m->scene;
  for (int64_t h = 0; h < s->hidden; ++h)
    if (m->recv[row * s->hidden + h] != value_of(s, source, token, h)) return false;
  for (int64_t k = 0; k < s->top_k; ++k)
    if (m->recv_ids[row * s->top_k + k] != s->choose(s, source, token, k) || m->recv_weights[row * s->top_k + k] != weight_of(token, k)) return false;
  return true;
}

static bool rows_are_untouched(const member *m, int64_t begin, int64_t end) {
  return is_untouched(m->recv + begin * m->scene->hidden, (size_t)((end - begin) * m->scene->hidden) * 4);
}

// Each token once to each of its ranks, in order; nothing behind the counts.
static const char *wrong_by_rank(const member *m) {
  const scene *s = m->scene;
  for (int32_t source = 0; source < s->ranks; ++source) {
    int64_t row = source * s->limit;
    for (int64_t t = 0; t < tokens_of(s, source, m->step); ++t)
      if (names_rank(s, source, t, m->rank) && !row_is(m, row++, source, t)) return "a row that arrived";
    if (m->recv_counts[source] != row - source * s->limit) return "a count of rows that arrived";
    if (!rows_are_untouched(m, row, (source + 1) * s->limit)) return "a row behind those that arrived";
  }
  return NULL;
}

// Each pair (token, slot) of this rank's experts once, by expert, source, token and slot.
static const char *wrong_by_expert(const member *m) {
  const scene *s = m->scene;
  int64_t row = 0, first = first_expert_of(s->experts, s->ranks, m->rank), experts = experts_of(s->experts, s->ranks, m->rank);
  for (int64_t e = 0; e < experts; ++e) {
    if (m->offsets[e] != row) return "the first row of an expert";
    for (int32_t source = 0; source < s->ranks; ++source)
      for (int64_t choice = 0; choice < tokens_of(s, source, m->step) * s->top_k; ++choice)
        if (s->choose(s, source, choice / s->top_k, choice % s->top_k) == first + e && !row_is(m, row++, source, choice / s->top_k))
          return "a row of an expert";
  }
  if (m->offsets[experts] != row) return "the end of the rows";
  return rows_are_untouched(m, row, room(s)) ? NULL : "a row behind those of the experts";
}

//===--- what came back ---------------------------------------------------------------------------===//

static const char *wrong_result(const member *m) {
  const scene *s = m->scene;
  int64_t tokens = tokens_of(s, m->rank, m->step);
  if (!m->out) return NULL;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < s->hidden; ++h) {
      double sum = 0;
      for (int64_t k = 0; k < s->top_k; ++k) {
        int32_t e = s->choose(s, m->rank, t, k);
        if (e >= 0 && e < s->experts) sum += (double)weight_of(t, k) * (e + 1) * (double)value_of(s, m->rank, t, h);
      }
      if ((double)m->out[t * s->hidden + h] != sum) return "a result";
    }
  return is_untouched(m->out + tokens * s->hidden, (size_t)((most_tokens(s) - tokens) * s->hidden) * 4) ? NULL : "a result of no token";
}

//===--- the calls --------------------------------------------------------------------------------===//

moert_status dispatch_layer(member *m) {
  const scene *s = m->scene;
  int64_t t = tokens_of(s, m->rank, m->step), rows = room(s), local = experts_of(s->experts, s->ranks, m->rank);
  fill_inputs(m);
  moert_tensor ids = TENSOR(m->ids, I32, t, s->top_k), weights = TENSOR(m->weights, F32, t, s->top_k);
  moert_tensor payloads[] = {TENSOR(m->x, F32, t, s->hidden), ids, weights};
  moert_tensor by_rank[] = {TENSOR(m->recv, F32, s->ranks, s->limit, s->hidden), TENSOR(m->recv_ids, I32, s->ranks, s->limit, s->top_k),
                            TENSOR(m->recv_weights, F32, s->ranks, s->limit, s->top_k)};
  moert_tensor by_expert[] = {TENSOR(m->recv, F32, rows, s->hidden), TENSOR(m->recv_ids, I32, rows, s->top_k),
                              TENSOR(m->recv_weights, F32, rows, s->top_k)};
  moert_tensor counts = TENSOR(m->recv_counts, I32, s->ranks), offsets = TENSOR(m->offsets, I32, local + 1);
  moert_moe_dispatch_params params = {sizeof params, s->top_k, s->experts, s->grouped, 0, 1, 0};
  moert_moe_dispatch_args args = {sizeof args,
                                  &ids,
                                  s->grouped ? &weights : NULL,
                                  COUNT(payloads),
                                  payloads,
                                  NULL,
                                  &m->workspace,
                                  &m->metainfo,
                                  s->limit,
                                  0,
                                  COUNT(payloads),
                                  s->grouped ? by_expert : by_rank,
                                  s->grouped ? NULL : &counts,
                                  s->grouped ? &offsets : NULL,
                                  NULL,
                                  &m->payload_offset};
  moert_status status = moert_moe_dispatch(&params, &args, NULL, m->context);
  if (!status && !m->wrong) m->wrong = s->grouped ? wrong_by_expert(m) : wrong_by_rank(m);
  return status;
}

static void apply_by_expert(member *m) {
  const scene *s = m->scene;
  int64_t first = first_expert_of(s->experts, s->ranks, m->rank);
  for (int64_t e = 0; e < experts_of(s->experts, s->ranks, m->rank); ++e)
    for (int64_t i = m->offsets[e] * s->hidden; i < m->offsets[e + 1] * s->hidden; ++i) m->result[i] = m->recv[i] * (float)(first + e + 1);
}

static void apply_by_rank(member *m) {
  const scene *s = m->scene;
  for (int32_t source = 0; source < s->ranks; ++source)
    for (int64_t row = source * s->limit; row < source * s->limit + m->recv_counts[source]; ++row)
      for (int64_t h = 0; h < s->hidden; ++h) {
        float sum = 0;
        for (int64_t k = row * s->top_k; k < (row + 1) * s->top_k; ++k)
          if (rank_of(s->experts, s->ranks, m->recv_ids[k]) == m->rank)
            sum += m->recv_weights[k] * (float)(m->recv_ids[k] + 1) * m->recv[row * s->hidden + h];
        m->result[row * s->hidden + h] = sum;
      }
}

void apply_experts(member *m) {
  if (m->scene->grouped)
    apply_by_expert(m);
  else
    apply_by_rank(m);
}

moert_status combine_layer(member *m) {
  const scene *s = m->scene;
  moert_tensor by_rank = TENSOR(m->result, F32, s->ranks, s->limit, s->hidden), by_expert = TENSOR(m->result, F32, room(s), s->hidden);
  moert_tensor out = TENSOR(m->out, F32, tokens_of(s, m->rank, m->step), s->hidden);
  moert_moe_combine_params params = {sizeof params, s->top_k, s->hidden, s->grouped, 0, 0, 0, 0, 1.0, 0, 1, 0};
  moert_moe_combine_args args = {sizeof args, s->grouped ? &by_expert : &by_rank, &m->workspace, &m->metainfo, s->limit, m->payload_offset, 0, &out,
                                 NULL};
  moert_status status = moert_moe_combine(&params, &args, NULL, m->context);
  if (!status && !m->wrong) m->wrong = wrong_result(m);
  return status;
}

moert_status play_step(member *m) {
  moert_status status = dispatch_layer(m);
  if (status) return status;
  apply_experts(m);
  status = combine_layer(m);
  ++m->step;
  return status;
}

moert_status play_steps(member *m) {
  moert_status status = MOERT_OK;
  for (int64_t i = 0; i < (m->scene->steps ? m->scene->steps : 1) && !status; ++i) status = play_step(m);
  return status;
}

//===--- all ranks --------------------------------------------------------------------------------===//

static moert_status play_member(rank_run *run) {
  scene *s = run->user;
  member *m = &s->members[run->rank];
  m->scene = s;
  m->rank = run->rank;
  make_buffers(m);
  moert_status status = open_member(m, run->comm);
  if (!status) status = s->play ? s->play(m) : play_steps(m);
  close_member(m);
  return status;
}

void run_scene(scene *s) {
  moert_comm *comms[MAX_RANKS];
  assert_ok(moert_comm_create_threads(s->ranks, NULL, comms));
  memset(s->members, 0, sizeof s->members);
  run_ranks(s->runs, comms, s->ranks, play_member, s);
  destroy_ranks(comms, s->ranks);
}

void assert_scene(scene *s) {
  run_scene(s);
  for (int32_t r = 0; r < s->ranks; ++r) {
    assert_string_equal(s->runs[r].error, "");
    if (s->members[r].wrong) fail_msg("rank %" PRId32 ": %s is wrong", r, s->members[r].wrong);
  }
}

//===- a2a_check.c - whether all-to-alls of tokens gave what they should --------------------------------===//
//
// The host finds from the experts that all ranks' tokens chose where every row must lie, and adds up the sums of some tokens by the order that
// docs/abi.md states. It takes nothing of this from the library.
//
//===----------------------------------------------------------------------------------------------===//

#include "a2a.h"
#include "device.h"
#include "lib/reference/numerics.h"
#include "operands.h"
#include <stdio.h>
#include <stdlib.h>

enum { POISON = 0xcb, SAMPLED_TOKENS = 64, MOST_TOP_K = 32, MESSAGE = 160 };

// A set on one rank.
typedef struct Check {
  Member *member;
  const Work *work;
  int set;
  int32_t *ids[MOERT_MAX_RANKS]; // of each rank's tokens
  int32_t *places;               // [tokens][top_k] of a source: the row on the rank of the expert; -1: none
  int32_t *next, *before;        // of each expert: the row that comes next, the rows of sources that come first
  int32_t *lists;                // of rows to compare: where they lie, then which tokens they are
  uint16_t *rows, *sums;         // [top_k][hidden] that are added up; what came out
  float *weights;                // of this rank's tokens
  int32_t owners[MOST_TOP_K];    // of the slots of a token
  bool first[MOST_TOP_K];        // whether no slot before has the same
  int32_t *device_lists;
  void *wanted;                  // a peer's payload
  unsigned long long *different; // words, of each payload
} Check;

static int64_t choices(const Work *work) { return work->tokens * work->shape.top_k; }
static size_t row_bytes_of(const moert_tensor *payload) { return (size_t)(payload->shape[1] * payload->dtype.bits / 8); }
static const Work *work_of(const Check *check, int32_t rank) { return check->member->team->members[rank].work; }

//===--- places -------------------------------------------------------------------------------------===//

// Rows from one rank to another in the order of tokens, one for all experts there.
static void place_by_rank(Check *check, int32_t source) {
  const Work *work = check->work;
  const int64_t top_k = work->shape.top_k;
  int32_t rows[MOERT_MAX_RANKS] = {0};
  for (int64_t t = 0; t < work->tokens; ++t) {
    uint64_t named = 0;
    for (int64_t choice = t * top_k; choice < (t + 1) * top_k; ++choice) {
      int32_t rank = routing_owner(work, check->ids[source][choice]);
      bool first = !(named >> rank & 1);
      named |= UINT64_C(1) << rank;
      check->places[choice] = first ? (int32_t)(source * work->tokens + rows[rank]++) : -1;
    }
  }
}

// Where the rows of each expert begin on its rank, into `next`; in `before` how many of them are of earlier sources.
static void begin_groups(Check *check, int32_t source) {
  const Work *work = check->work;
  int32_t begin = 0;
  for (int64_t e = 0; e < work->shape.experts; ++e) check->next[e] = check->before[e] = 0;
  for (int32_t rank = 0; rank < work->ranks; ++rank)
    for (int64_t i = 0; i < choices(work); ++i) {
      ++check->next[check->ids[rank][i]];
      check->before[check->ids[rank][i]] += rank < source;
    }
  for (int32_t e = 0; e < work->shape.experts; ++e) {
    int32_t count = check->next[e];
    if (e > 0 && routing_owner(work, e) != routing_owner(work, e - 1)) begin = 0;
    check->next[e] = begin;
    begin += count;
  }
}

static void place_by_expert(Check *check, int32_t source) {
  begin_groups(check, source);
  for (int64_t e = 0; e < check->work->shape.experts; ++e) check->next[e] += check->before[e];
  for (int64_t i = 0; i < choices(check->work); ++i) check->places[i] = check->next[check->ids[source][i]]++;
}

static void place_rows(Check *check, int32_t source) {
  if (a2a_is_grouped(check->work))
    place_by_expert(check, source);
  else
    place_by_rank(check, source);
}

//===--- the dispatch -------------------------------------------------------------------------------===//

// The rows that come from a source to this rank, into the lists. How many there are.
static int64_t list_rows(Check *check, int32_t source) {
  const Work *work = check->work;
  int64_t count = 0;
  place_rows(check, source);
  for (int64_t i = 0; i < choices(work); ++i) {
    if (check->places[i] < 0 || routing_owner(work, check->ids[source][i]) != work->rank) continue;
    check->lists[count] = check->places[i];
    check->lists[choices(work) + count++] = (int32_t)(i / work->shape.top_k);
  }
  return count;
}

static void compare_payload(Check *check, int32_t source, int number, const moert_tensor *payload, const moert_tensor *received, int64_t count) {
  const Work *work = check->work;
  size_t row_bytes = row_bytes_of(payload);
  unsigned long long different = 0;
  cudaError_t error =
      cudaMemcpyPeerAsync(check->wanted, received->device.id, payload->data, payload->device.id, (size_t)work->tokens * row_bytes, work->stream);
  if (!error) error = cudaMemsetAsync(check->different, 0, sizeof different, work->stream);
  if (!error)
    error = device_compare_rows(received->data, check->device_lists, check->wanted, check->device_lists + choices(work), count, row_bytes,
                                check->different, work->stream);
  if (!error) error = cudaMemcpyAsync(&different, check->different, sizeof different, cudaMemcpyDefault, work->stream);
  if (!error) error = cudaStreamSynchronize(work->stream);
  if (!member_check_cuda(check->member, error, "results of the dispatch") || different == 0) return;
  char text[MESSAGE];
  snprintf(text, sizeof text, "%llu words of payload %d from rank %d are not what was sent", different, number, source);
  member_say(check->member, "results of the dispatch", text);
}

static void compare_count(Check *check, const char *what, int64_t index, int32_t found, int64_t wanted) {
  if (found == wanted) return;
  char text[MESSAGE];
  snprintf(text, sizeof text, "%s[%lld] is %d, must be %lld", what, (long long)index, found, (long long)wanted);
  member_say(check->member, "results of the dispatch", text);
}

static bool read_words(Check *check, int slot, void *words) {
  const Buffer *buffer = &check->work->buffers[0][slot];
  return member_check_cuda(check->member, cudaMemcpy(words, buffer->tensor.data, buffer->bytes, cudaMemcpyDefault), "results of the dispatch");
}

static void check_source(Check *check, int32_t source, const int32_t *counts) {
  const Work *work = check->work;
  moert_tensor sent[MOERT_WORKSPACE_MAX_PAYLOADS], received[MOERT_WORKSPACE_MAX_PAYLOADS];
  int64_t count = list_rows(check, source);
  size_t bytes = (size_t)(2 * choices(work)) * sizeof *check->lists;
  if (!a2a_is_grouped(work)) compare_count(check, "recv_counts", source, counts[source], count);
  if (!member_check_cuda(check->member, cudaMemcpy(check->device_lists, check->lists, bytes, cudaMemcpyDefault), "results of the dispatch")) return;
  a2a_payloads(work_of(check, source), check->set, sent);
  for (int i = a2a_received(work, received); i-- > 0;) compare_payload(check, source, i, &sent[i], &received[i], count);
}

static int64_t rows_here(const Check *check) {
  const Work *work = check->work;
  int64_t rows = 0;
  for (int32_t rank = 0; rank < work->ranks; ++rank)
    for (int64_t i = 0; i < choices(work); ++i) rows += routing_owner(work, check->ids[rank][i]) == work->rank;
  return rows;
}

static void compare_offsets(Check *check, const int32_t *offsets) {
  const Work *work = check->work;
  int64_t local = 0;
  begin_groups(check, 0);
  for (int32_t e = 0; e < work->shape.experts; ++e) {
    if (routing_owner(work, e) != work->rank) continue;
    compare_count(check, "offsets", local, offsets[local], check->next[e]);
    ++local;
  }
  compare_count(check, "offsets", local, offsets[local], rows_here(check));
}

static void check_offsets(Check *check) {
  int32_t *offsets = calloc((size_t)routing_local_experts(check->work, check->work->rank) + 1, sizeof *offsets);
  if (member_check_memory(check->member, offsets) && read_words(check, A2A_OFFSETS, offsets)) compare_offsets(check, offsets);
  free(offsets);
}

static void check_dispatch(Check *check) {
  int32_t counts[MOERT_MAX_RANKS] = {0};
  if (a2a_is_grouped(check->work))
    check_offsets(check);
  else if (!read_words(check, A2A_COUNTS, counts))
    return;
  for (int32_t source = 0; source < check->work->ranks; ++source) check_source(check, source, counts);
}

//===--- the combine --------------------------------------------------------------------------------===//

// Of this rank or a peer: memory of pools is copied to the host by its own device.
static bool read_row(Check *check, const Buffer *from, int64_t row, uint16_t *to) {
  size_t bytes = (size_t)check->work->shape.hidden * sizeof *to;
  cudaError_t error = cudaSetDevice(from->tensor.device.id);
  if (!error) error = cudaMemcpy(to, (const char *)from->tensor.data + (size_t)row * bytes, bytes, cudaMemcpyDefault);
  cudaError_t back = cudaSetDevice(check->work->workspace.tensor.device.id);
  return member_check_cuda(check->member, error ? error : back, "results of the combine");
}

// What the rank of slot k sends for the token, if k is the first slot that names it, else 0.
static float term(const Check *check, int64_t token, int64_t k, int64_t column) {
  const Work *work = check->work;
  const int64_t top_k = work->shape.top_k, hidden = work->shape.hidden;
  float sum = 0;
  if (!check->first[k]) return 0;
  if (!a2a_is_grouped(work)) return moert__bf16_to_f32(check->rows[k * hidden + column]);
  for (int64_t i = k; i < top_k; ++i)
    if (check->owners[i] == check->owners[k])
      sum = fmaf(moert__bf16_to_f32(check->rows[i * hidden + column]), check->weights[token * top_k + i], sum);
  return moert__bf16_to_f32(moert__f32_to_bf16(sum));
}

// Pairwise, which is the order of each top_k of the cases.
static uint16_t add_terms(const Check *check, int64_t token, int64_t column) {
  const int64_t top_k = check->work->shape.top_k;
  float terms[MOST_TOP_K];
  for (int64_t k = 0; k < top_k; ++k) terms[k] = term(check, token, k, column);
  for (int64_t stride = 1; stride < top_k; stride *= 2)
    for (int64_t k = 0; k + stride < top_k; k += 2 * stride) terms[k] += terms[k + stride];
  return moert__f32_to_bf16(terms[0]);
}

static bool check_token(Check *check, int64_t token) {
  const Work *work = check->work;
  const int64_t top_k = work->shape.top_k, hidden = work->shape.hidden;
  for (int64_t k = 0; k < top_k; ++k) {
    const int64_t choice = token * top_k + k;
    check->owners[k] = routing_owner(work, check->ids[work->rank][choice]);
    check->first[k] = true;
    for (int64_t i = 0; i < k; ++i) check->first[k] &= check->owners[i] != check->owners[k];
    const Buffer *result = &work_of(check, check->owners[k])->buffers[check->set][A2A_RESULT];
    if (check->places[choice] >= 0 && !read_row(check, result, check->places[choice], check->rows + k * hidden)) return false;
  }
  if (!read_row(check, &work->buffers[0][A2A_OUT], token, check->sums)) return false;
  for (int64_t column = 0; column < hidden; ++column) {
    uint16_t wanted = add_terms(check, token, column);
    if (check->sums[column] == wanted) continue;
    char text[MESSAGE];
    snprintf(text, sizeof text, "out[%lld][%lld] is 0x%04x, must be 0x%04x", (long long)token, (long long)column, check->sums[column], wanted);
    member_say(check->member, "results of the combine", text);
    return false;
  }
  return true;
}

static void check_combine(Check *check) {
  const Work *work = check->work;
  const Buffer *weights = &work->buffers[check->set][A2A_WEIGHTS];
  int64_t stride = work->tokens > SAMPLED_TOKENS ? work->tokens / SAMPLED_TOKENS : 1;
  cudaError_t error = cudaMemcpy(check->weights, weights->tensor.data, weights->bytes, cudaMemcpyDefault);
  if (!member_check_cuda(check->member, error, "results of the combine")) return;
  place_rows(check, work->rank);
  for (int64_t token = 0; token < work->tokens; token += stride)
    if (!check_token(check, token)) return;
}

//===--- sets ---------------------------------------------------------------------------------------===//

static bool open_host(Check *check) {
  const Work *work = check->work;
  const size_t count = (size_t)choices(work), hidden = (size_t)work->shape.hidden, experts = (size_t)work->shape.experts;
  bool made = true;
  for (int32_t rank = 0; rank < work->ranks; ++rank) made &= (check->ids[rank] = routing_choose(work, rank, check->set, a2a_routing(work))) != NULL;
  made &= (check->places = calloc(count, sizeof *check->places)) != NULL;
  made &= (check->next = calloc(experts, sizeof *check->next)) != NULL;
  made &= (check->before = calloc(experts, sizeof *check->before)) != NULL;
  made &= (check->lists = calloc(2 * count, sizeof *check->lists)) != NULL;
  made &= (check->rows = calloc((size_t)work->shape.top_k * hidden, sizeof *check->rows)) != NULL;
  made &= (check->sums = calloc(hidden, sizeof *check->sums)) != NULL;
  made &= (check->weights = calloc(count, sizeof *check->weights)) != NULL;
  if (!made) member_say(check->member, "memory", "there is none");
  return made;
}

static bool open_device(Check *check) {
  const Work *work = check->work;
  size_t words = (size_t)(2 * choices(work)) * sizeof *check->device_lists, row_bytes = 0;
  moert_tensor payloads[MOERT_WORKSPACE_MAX_PAYLOADS];
  for (int i = a2a_payloads(work, check->set, payloads); i-- > 0;)
    if (row_bytes_of(&payloads[i]) > row_bytes) row_bytes = row_bytes_of(&payloads[i]);
  cudaError_t error = cudaMalloc((void **)&check->device_lists, words);
  if (!error) error = cudaMalloc(&check->wanted, (size_t)work->tokens * row_bytes);
  if (!error) error = cudaMalloc((void **)&check->different, sizeof *check->different);
  return member_check_cuda(check->member, error, "memory");
}

static void close_check(Check *check) {
  for (int32_t rank = 0; rank < check->work->ranks; ++rank) free(check->ids[rank]);
  free(check->places);
  free(check->next);
  free(check->before);
  free(check->lists);
  free(check->rows);
  free(check->sums);
  free(check->weights);
  cudaFree(check->device_lists);
  cudaFree(check->wanted);
  cudaFree(check->different);
}

void a2a_check(Member *member, int set) {
  Check check = {.member = member, .work = member->work, .set = set};
  if (open_host(&check) && open_device(&check)) {
    check_dispatch(&check);
    check_combine(&check);
  }
  close_check(&check);
}

static bool poison(Member *member, const Buffer *buffer) {
  if (buffer->bytes == 0) return true;
  return member_check_cuda(member, cudaMemsetAsync(buffer->tensor.data, POISON, buffer->bytes, member->work->stream), "poison");
}

void a2a_poison(Member *member) {
  static const int slots[] = {A2A_RECV, A2A_COUNTS, A2A_OFFSETS, A2A_OUT};
  const Work *work = member->work;
  bool well = true;
  for (int i = 0; i < 4 && well; ++i) well = poison(member, &work->buffers[0][slots[i]]);
  for (int i = 0; i < MOERT_WORKSPACE_MAX_PAYLOADS && well; ++i) well = poison(member, &work->areas[i]);
  if (well) member_check_cuda(member, cudaStreamSynchronize(work->stream), "poison");
}

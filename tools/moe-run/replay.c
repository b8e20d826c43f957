//===- replay.c - one rank: its calls captured in CUDA graphs ---------------------------------------===//
//
// The functions that can be captured are, in the order in which they were called, and replayed in this order: from the same inputs the results must
// be the same, to the bit. A replay runs no code of the host, so memory of the host stays as the capture leaves it; symmetric memory is the ranks'.
//
//===----------------------------------------------------------------------------------------------===//
#include "rank.h"

#include <stdlib.h>
#include <string.h>

// Whether a function that is captured has the variable in this role.
static bool has_role(const plan *p, size_t index, moert_role role) {
  for (size_t i = 0; i < p->num_calls; ++i)
    for (int64_t j = 0; p->calls[i].function->capturable && j < p->calls[i].function->num_arguments; ++j)
      if (p->calls[i].variables[j] == index && p->calls[i].function->arguments[j].role == (int64_t)role) return true;
  return false;
}

static bool is_result(const plan *p, size_t index) {
  if (p->variables[index].info->memory != MOERT_MEMORY_DEVICE) return false;
  return has_role(p, index, MOERT_ROLE_OUT) || has_role(p, index, MOERT_ROLE_INOUT);
}

static bool is_begun_from(const plan *p, size_t index, moert_memory memory) {
  return p->variables[index].info->memory == (int64_t)memory && has_role(p, index, MOERT_ROLE_INOUT);
}

//===--- what there was before ----------------------------------------------------------------------===//

// What the variable's place holds now; NULL if that fails.
static void *keep(rank *r, size_t index) {
  const buffer *b = &r->buffers[index];
  void *kept = rank_allocate(r, &r->plan->variables[index], b->bytes);
  moert_status status = kept ? rank_read(r, b, kept) : MOERT_OK;
  if (status == MOERT_OK) return kept;
  rank_fail(r, r->plan->variables[index].info->name, status);
  free(kept);
  return NULL;
}

run_exit rank_keep_inputs(rank *r) {
  for (size_t i = 0; i < r->plan->num_variables; ++i)
    if (is_begun_from(r->plan, i, MOERT_MEMORY_DEVICE) || is_begun_from(r->plan, i, MOERT_MEMORY_HOST))
      if (!(r->buffers[i].before = keep(r, i))) return r->message->exit;
  return RUN_OK;
}

static run_exit keep_results(rank *r) {
  for (size_t i = 0; i < r->plan->num_variables; ++i)
    if (is_result(r->plan, i) && !(r->buffers[i].first = keep(r, i))) return r->message->exit;
  return RUN_OK;
}

static run_exit restore(rank *r, moert_memory memory) {
  for (size_t i = 0; i < r->plan->num_variables; ++i) {
    moert_status status = is_begun_from(r->plan, i, memory) ? rank_write(r, &r->buffers[i], r->buffers[i].before) : MOERT_OK;
    if (status != MOERT_OK) return rank_fail(r, r->plan->variables[i].info->name, status);
  }
  return RUN_OK;
}

//===--- capture and replay -------------------------------------------------------------------------===//

static run_exit capture_call(rank *r, size_t index) {
  const plan_call *call = &r->plan->calls[index];
  moert_tensor *tensors = rank_make_tensors(r, call);
  moert_status status =
      moert_graph_capture(r->plan->graph, call->function->name, tensors, call->function->num_arguments, r->context, &r->captures[index]);
  free(tensors);
  return status == MOERT_OK ? RUN_OK : rank_fail(r, call->function->name, status);
}

static run_exit capture_all(rank *r) {
  run_exit result = restore(r, MOERT_MEMORY_HOST);
  if (result == RUN_OK) result = restore(r, MOERT_MEMORY_DEVICE);
  for (size_t i = 0; i < r->plan->num_calls && result == RUN_OK; ++i)
    if (r->plan->calls[i].function->capturable) result = capture_call(r, i);
  return result;
}

static run_exit prepare_replay(rank *r) {
  run_exit result = restore(r, MOERT_MEMORY_DEVICE);
  moert_status status = MOERT_OK;
  for (size_t i = 0; i < r->plan->num_calls && result == RUN_OK && status == MOERT_OK; ++i)
    if (r->captures[i]) status = rank_poison_outputs(r, &r->plan->calls[i]);
  if (result != RUN_OK || status == MOERT_OK) return result;
  return rank_fail(r, "poison", status);
}

// Ranks start together, for the times, and because no rank of a GPU may capture while another one's kernels wait for it.
static run_exit replay_all(rank *r, double *seconds) {
  moert_status status = moert_comm_barrier(r->comm, r->plan->options->timeout_ms);
  double start = seconds_now();
  for (size_t i = 0; i < r->plan->num_calls && status == MOERT_OK; ++i)
    if (r->captures[i]) status = moert_capture_replay(r->captures[i]);
  if (status == MOERT_OK) status = moert_context_synchronize(r->context);
  if (seconds) *seconds = seconds_now() - start;
  return status == MOERT_OK ? RUN_OK : rank_fail(r, "replay", status);
}

//===--- results ----------------------------------------------------------------------------------===//

static void note_difference(rank *r, int64_t replay, const variable *v, const buffer *b) {
  size_t width = (size_t)element_bytes(v->type);
  int64_t different = 0, first = 0;
  char index[1024] = "";
  for (int64_t i = b->elements - 1; i >= 0; --i)
    if (memcmp((const char *)b->data + (size_t)i * width, (const char *)b->first + (size_t)i * width, width) != 0) ++different, first = i;
  text_append_index(index, sizeof index, v->info->ndim, b->shape, first);
  message_set(r->message, RUN_DIFFERENT, "replay %lld: %s differs from what the call wrote: %lld of %lld elements; first at %s: %.9g, was %.9g",
              (long long)replay, v->info->name, (long long)different, (long long)b->elements, index,
              element_widen(v->type, (const char *)b->data + (size_t)first * width),
              element_widen(v->type, (const char *)b->first + (size_t)first * width));
}

// Peers wait for this rank in later replays: after a difference it goes on, and the first is what it reports.
static run_exit compare_replay(rank *r, int64_t replay) {
  for (size_t i = 0; i < r->plan->num_variables; ++i) {
    buffer *b = &r->buffers[i];
    if (!b->first) continue;
    moert_status status = rank_read(r, b, b->data);
    if (status != MOERT_OK) return rank_fail(r, r->plan->variables[i].info->name, status);
    bool told = r->message->exit != RUN_OK;
    if (!told && memcmp(b->data, b->first, b->bytes) != 0) note_difference(r, replay, &r->plan->variables[i], b);
  }
  return RUN_OK;
}

run_exit rank_replay(rank *r) {
  const options *o = r->plan->options;
  run_exit result = keep_results(r);
  if (result == RUN_OK) result = capture_all(r);
  for (int64_t i = 0; i < o->replays && result == RUN_OK; ++i) {
    result = prepare_replay(r);
    if (result == RUN_OK) result = replay_all(r, NULL);
    if (result == RUN_OK) result = compare_replay(r, i + 1);
  }
  for (int64_t i = 0; i < o->repeat && result == RUN_OK; ++i) {
    result = prepare_replay(r);
    if (result == RUN_OK) result = replay_all(r, &r->seconds[i]);
  }
  return result == RUN_OK ? r->message->exit : result;
}

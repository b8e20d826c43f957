//===- rank.c - one rank: its calls -----------------------------------------------------------------===//
#include "rank.h"

#include <stdlib.h>

run_exit rank_fail(rank *r, const char *what, moert_status status) {
  const options *o = r->plan->options;
  if (status == MOERT_ERROR_STOPPED) return message_set(r->message, RUN_RANK, "%sstopped at %s:%s", r->prefix, o->stop_op, o->stop_phase);
  moert_comm_report(r->comm, status);
  return message_set(r->message, RUN_RANK, "%s%s: %s (%s): %s", r->prefix, what, moert_status_name(status), moert_status_text(status),
                     moert_last_error());
}

//===--- calls ------------------------------------------------------------------------------------===//

moert_tensor *rank_make_tensors(const rank *r, const plan_call *call) {
  moert_tensor *tensors = records((size_t)call->function->num_arguments, sizeof *tensors);
  for (int64_t i = 0; i < call->function->num_arguments; ++i) {
    const variable *v = &r->plan->variables[call->variables[i]];
    const buffer *b = &r->buffers[call->variables[i]];
    bool on_host = v->info->memory == MOERT_MEMORY_HOST || v->info->memory == MOERT_MEMORY_VALUE;
    moert_device device = on_host ? (moert_device){MOERT_DEVICE_CPU, 0} : moert_comm_device(r->comm);
    tensors[i] = (moert_tensor){b->place, device, (int32_t)v->info->ndim, v->type->dtype, b->shape, NULL, 0};
  }
  return tensors;
}

// On devices what a kernel finds wrong is known when it has run, not before.
static moert_status call_once(rank *r, const plan_call *call, const moert_tensor *tensors, double *seconds) {
  moert_status status = rank_poison_outputs(r, call);
  // Times are of ranks that start together.
  if (status == MOERT_OK && seconds) status = moert_comm_barrier(r->comm, r->plan->options->timeout_ms);
  if (status != MOERT_OK) return status;
  double start = seconds_now();
  status = moert_graph_call(r->plan->graph, call->function->name, tensors, call->function->num_arguments, r->context);
  if (status == MOERT_OK) status = moert_context_synchronize(r->context);
  if (seconds) *seconds = seconds_now() - start;
  return status;
}

// Once, before the first function that will be captured.
static run_exit keep_inputs(rank *r, const plan_call *call) {
  if (r->inputs_kept || r->plan->options->replays == 0 || !call->function->capturable) return RUN_OK;
  r->inputs_kept = true;
  return rank_keep_inputs(r);
}

run_exit rank_call(rank *r, size_t index) {
  const options *o = r->plan->options;
  const plan_call *call = &r->plan->calls[index];
  run_exit kept = keep_inputs(r, call);
  if (kept != RUN_OK) return kept;
  bool last = index + 1 == r->plan->num_calls && o->replays == 0;
  moert_tensor *tensors = rank_make_tensors(r, call);
  moert_status status = MOERT_OK;
  for (int64_t i = 0; i < (last && o->repeat > 0 ? o->repeat : 1) && status == MOERT_OK; ++i)
    status = call_once(r, call, tensors, last && r->seconds ? &r->seconds[i] : NULL);
  free(tensors);
  return status == MOERT_OK ? RUN_OK : rank_fail(r, call->function->name, status);
}

//===--- life -------------------------------------------------------------------------------------===//

void rank_init(rank *r, const plan *p, int32_t number, moert_comm *comm) {
  *r = (rank){.plan = p, .number = number, .comm = comm, .prefix = ""};
  r->sizes = records(p->num_sizes, sizeof *r->sizes);
  r->shapes = records(p->num_sizes, sizeof *r->shapes);
  r->buffers = records(p->num_variables, sizeof *r->buffers);
  r->captures = records(p->num_calls, sizeof *r->captures);
}

static void free_buffer(rank *r, buffer *b, moert_memory memory) {
  if (r->plan->on_device && memory == MOERT_MEMORY_DEVICE) moert_device_free(r->comm, b->place);
  npy_close(&b->file);
  free(b->path);
  free(b->owned);
  free(b->before);
  free(b->first);
}

void rank_free(rank *r) {
  for (size_t i = 0; i < r->plan->num_calls; ++i) moert_capture_destroy(r->captures[i]);
  for (size_t i = 0; i < r->plan->num_variables; ++i) free_buffer(r, &r->buffers[i], (moert_memory)r->plan->variables[i].info->memory);
  moert_context_destroy(r->context);
  free(r->sizes);
  free(r->shapes);
  free(r->buffers);
  free(r->captures);
}

//===- buffers.c - the memory of a rank's arguments -------------------------------------------------===//
//
// On the host backend an argument is where it was loaded, or in symmetric memory. On devices it is copied there; arguments in memory of the host and
// numbers stay.
//
//===----------------------------------------------------------------------------------------------===//
#include "rank.h"

#include <stdlib.h>
#include <string.h>

void *rank_allocate(rank *r, const variable *v, size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 256, bytes ? bytes : 1) == 0) return memory;
  message_set(r->message, RUN_RANK, "%sargument '%s': no memory for %zu bytes", r->prefix, v->info->name, bytes);
  return NULL;
}

//===--- placing ----------------------------------------------------------------------------------===//

static moert_status place_symmetric(rank *r, buffer *b) {
  moert_status status = moert_symmetric_alloc(r->comm, b->bytes, &b->place);
  if (status == MOERT_OK && b->data) status = rank_write(r, b, b->data);
  if (status == MOERT_OK && !r->plan->on_device) b->data = b->place;
  return status;
}

static moert_status place_on_device(rank *r, buffer *b) {
  moert_status status = moert_device_alloc(r->comm, b->bytes, &b->place);
  return status == MOERT_OK ? rank_write(r, b, b->data) : status;
}

run_exit rank_place(rank *r) {
  for (size_t i = 0; i < r->plan->num_variables; ++i) {
    const variable *v = &r->plan->variables[i];
    buffer *b = &r->buffers[i];
    moert_status status = MOERT_OK;
    if (v->info->memory == MOERT_MEMORY_SYMMETRIC)
      status = place_symmetric(r, b);
    else if (r->plan->on_device && v->info->memory == MOERT_MEMORY_DEVICE)
      status = place_on_device(r, b);
    else
      b->place = b->data;
    if (status != MOERT_OK) return rank_fail(r, v->info->name, status);
  }
  return RUN_OK;
}

//===--- copying ----------------------------------------------------------------------------------===//

moert_status rank_write(rank *r, const buffer *b, const void *from) {
  return b->place == from || b->bytes == 0 ? MOERT_OK : moert_copy(r->context, b->place, from, b->bytes);
}

moert_status rank_read(rank *r, const buffer *b, void *to) {
  return b->place == to || b->bytes == 0 ? MOERT_OK : moert_copy(r->context, to, b->place, b->bytes);
}

static bool is_looked_at(const plan *p, const variable *v) { return v->output || v->expect || (p->options->check && variable_is_comparable(v)); }

run_exit rank_fetch(rank *r) {
  for (size_t i = 0; i < r->plan->num_variables; ++i) {
    const variable *v = &r->plan->variables[i];
    buffer *b = &r->buffers[i];
    if (!is_looked_at(r->plan, v)) continue;
    if (!b->data && !(b->data = b->owned = rank_allocate(r, v, b->bytes))) return r->message->exit;
    moert_status status = rank_read(r, b, b->data);
    if (status != MOERT_OK) return rank_fail(r, v->info->name, status);
  }
  return RUN_OK;
}

//===--- poison -----------------------------------------------------------------------------------===//

// From memory of the host, in parts: outputs may be large.
static moert_status poison_on_device(rank *r, const element_type *type, const buffer *b) {
  enum { PART = 1 << 22 };
  size_t part = b->bytes < PART ? b->bytes : PART;
  char *poison = records(part, 1);
  moert_status status = MOERT_OK;
  elements_poison(type, poison, part);
  for (size_t at = 0; at < b->bytes && status == MOERT_OK; at += part)
    status = moert_copy(r->context, (char *)b->place + at, poison, b->bytes - at < part ? b->bytes - at : part);
  free(poison);
  return status;
}

moert_status rank_poison_outputs(rank *r, const plan_call *call) {
  moert_status status = MOERT_OK;
  for (int64_t i = 0; i < call->function->num_arguments && status == MOERT_OK; ++i) {
    const moert_argument_info *info = &call->function->arguments[i];
    const element_type *type = r->plan->variables[call->variables[i]].type;
    const buffer *b = &r->buffers[call->variables[i]];
    if (info->role != MOERT_ROLE_OUT || info->memory == MOERT_MEMORY_SYMMETRIC) continue;
    if (b->place == b->data)
      elements_poison(type, b->data, b->bytes);
    else
      status = poison_on_device(r, type, b);
  }
  return status;
}

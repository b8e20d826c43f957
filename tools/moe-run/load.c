//===- load.c - the sizes and contents of a rank's arguments ----------------------------------------===//
#include "rank.h"

#include <moert/ops.h>
#include <stdlib.h>
#include <string.h>

//===--- sizes ------------------------------------------------------------------------------------===//

static known_size *find_size(const rank *r, size_t slot) { return &r->sizes[plan_size_root(r->plan, slot)]; }

// False if the size is known and another.
static bool settle_size(rank *r, size_t slot, int64_t value, const char *source) {
  known_size *size = find_size(r, slot);
  if (!size->source) *size = (known_size){source, value};
  return size->value == value;
}

static run_exit conflict(rank *r, size_t slot, int64_t value, const char *source) {
  const known_size *size = find_size(r, slot);
  return message_set(r->message, RUN_FILE, "size %s is %lld (%s) and %lld (%s)", plan_size_name(r->plan, slot), (long long)size->value, size->source,
                     (long long)value, source);
}

static run_exit settle_static_sizes(rank *r) {
  static const char source[] = "the graph";
  for (size_t i = 0; i < r->plan->num_calls; ++i)
    for (int64_t j = 0; j < r->plan->calls[i].function->num_arguments; ++j) {
      const moert_argument_info *info = &r->plan->calls[i].function->arguments[j];
      size_t first = r->plan->variables[r->plan->calls[i].variables[j]].first_size;
      for (int64_t k = 0; k < info->ndim; ++k)
        if (info->shape[k] >= 0 && !settle_size(r, first + (size_t)k, info->shape[k], source))
          return conflict(r, first + (size_t)k, info->shape[k], source);
    }
  return RUN_OK;
}

static run_exit settle_given_sizes(rank *r) {
  static const char source[] = "--size";
  for (size_t i = 0; i < r->plan->num_sizes; ++i) {
    char item[LIST_ITEM_BYTES];
    int64_t value;
    const char *given = r->plan->sizes[i].given;
    if (!given || !list_item_of_rank(given, r->number, item) || !parse_int64(item, &value)) continue; // plan_make has checked them
    if (!settle_size(r, i, value, source)) return conflict(r, i, value, source);
  }
  return RUN_OK;
}

static run_exit settle_workspace(rank *r, const variable *v) {
  const moert_workspace_info *info = v->workspace;
  int64_t bytes = 0;
  moert_moe_workspace_size_params params = MOERT_MOE_WORKSPACE_SIZE_PARAMS_INIT;
  params.max_num_tokens = info->max_num_tokens;
  params.dispatch_bytes_per_token = info->dispatch_bytes_per_token;
  params.combine_bytes_per_token = info->combine_bytes_per_token;
  params.eplb_stats_num_experts = info->eplb_stats_num_experts;
  params.ep_size = info->ep_size;
  moert_moe_workspace_size_args args = MOERT_MOE_WORKSPACE_SIZE_ARGS_INIT;
  args.size = &bytes;
  moert_status status = moert_moe_workspace_size(&params, &args, NULL, r->context);
  if (status != MOERT_OK) return rank_fail(r, v->info->name, status);
  settle_size(r, v->first_size, (bytes + element_bytes(v->type) - 1) / element_bytes(v->type), "the workspace's parameters");
  return RUN_OK;
}

// Sizes of workspaces that neither the graph nor --size fixes.
static run_exit settle_workspaces(rank *r) {
  run_exit result = RUN_OK;
  for (size_t i = 0; i < r->plan->num_variables && result == RUN_OK; ++i) {
    const variable *v = &r->plan->variables[i];
    if (v->workspace && v->info->ndim == 1 && !find_size(r, v->first_size)->source) result = settle_workspace(r, v);
  }
  return result;
}

// All sizes are known: write the shapes down.
static run_exit settle_shapes(rank *r) {
  for (size_t i = 0; i < r->plan->num_sizes; ++i) {
    const known_size *size = find_size(r, i);
    const char *name = plan_size_name(r->plan, i);
    if (!size->source) return message_set(r->message, RUN_USAGE, "size %s is not known: no input file fixes it; give --size %s=N", name, name);
    r->shapes[i] = size->value;
  }
  return RUN_OK;
}

//===--- input files ------------------------------------------------------------------------------===//

static run_exit misfit(rank *r, const variable *v, const buffer *b, int64_t dimension) {
  char has[1024] = "", needs[1024] = "";
  npy_append_type(has, sizeof has, &b->file);
  append_argument_type(needs, sizeof needs, v->info);
  if (dimension >= 0 && v->info->shape[dimension] < 0) {
    size_t slot = v->first_size + (size_t)dimension;
    const known_size *size = find_size(r, slot);
    text_append(needs, sizeof needs, " with %s = %lld (%s)", plan_size_name(r->plan, slot), (long long)size->value, size->source);
  }
  return message_set(r->message, RUN_FILE, "%s: the file has %s; argument '%s' needs %s, element type %s", b->path, has, v->info->name, needs,
                     v->type->npy);
}

static run_exit check_input(rank *r, const variable *v, const buffer *b) {
  if (!element_fits_npy(v->type, b->file.descr) || b->file.ndim != v->info->ndim) return misfit(r, v, b, -1);
  for (int64_t i = 0; i < v->info->ndim; ++i)
    if (!settle_size(r, v->first_size + (size_t)i, b->file.shape[i], b->path)) return misfit(r, v, b, i);
  return RUN_OK;
}

static run_exit open_inputs(rank *r) {
  run_exit result = RUN_OK;
  for (size_t i = 0; i < r->plan->num_variables && result == RUN_OK; ++i) {
    const variable *v = &r->plan->variables[i];
    buffer *b = &r->buffers[i];
    if (!v->input || v->info->memory == MOERT_MEMORY_VALUE) continue;
    b->path = expand_rank_pattern(v->input, r->number);
    result = npy_open(b->path, &b->file, r->message);
    if (result == RUN_OK) result = check_input(r, v, b);
  }
  return result;
}

//===--- contents ---------------------------------------------------------------------------------===//

static run_exit measure(rank *r, const variable *v, buffer *b) {
  bool overflow = false;
  int64_t bytes;
  b->shape = r->shapes + v->first_size;
  b->elements = 1;
  for (int64_t i = 0; i < v->info->ndim; ++i) overflow = __builtin_mul_overflow(b->elements, b->shape[i], &b->elements) || overflow;
  if (overflow || __builtin_mul_overflow(b->elements, element_bytes(v->type), &bytes)) {
    char shape[1024] = "";
    text_append_shape(shape, sizeof shape, v->info->ndim, b->shape);
    return message_set(r->message, RUN_USAGE, "argument '%s': %s has more bytes than fit a 64-bit size", v->info->name, shape);
  }
  b->bytes = (size_t)bytes;
  return RUN_OK;
}

// Each argument of each rank has numbers of its own, the same in every run.
static uint64_t seed_of(const rank *r, const variable *v) {
  uint64_t seed = r->plan->options->seed * 64 + (uint64_t)r->number;
  for (const char *c = v->info->name; *c != '\0'; ++c) seed = (seed ^ (uint64_t)(unsigned char)*c) * UINT64_C(0x100000001b3);
  return seed;
}

static run_exit parse_value(rank *r, const variable *v, buffer *b) {
  int32_t count = list_count(v->input), ranks = r->plan->options->ranks;
  char item[LIST_ITEM_BYTES];
  if (count != 1 && count != ranks)
    return message_set(r->message, RUN_USAGE, "--input %s=%s: %d numbers for %d ranks: give one, or one per rank", v->info->name, v->input,
                       (int)count, (int)ranks);
  if (list_item_of_rank(v->input, r->number, item) && element_parse(v->type, item, b->data)) return RUN_OK;
  return message_set(r->message, RUN_USAGE, "--input %s=%s: not a number that fits %s", v->info->name, v->input, v->type->name);
}

static run_exit fill(rank *r, const variable *v, buffer *b) {
  if (v->info->memory == MOERT_MEMORY_VALUE) return parse_value(r, v, b);
  if (!v->read)
    elements_poison(v->type, b->data, b->bytes);
  else if (v->info->role == MOERT_ROLE_IN)
    elements_fill_random(v->type, b->data, b->elements, seed_of(r, v));
  else
    memset(b->data, 0, b->bytes);
  return RUN_OK;
}

// Symmetric memory comes later, and is zeroed.
static run_exit make_buffer(rank *r, const variable *v, buffer *b) {
  run_exit result = measure(r, v, b);
  if (result != RUN_OK) return result;
  b->data = b->file.mapping ? b->file.data : NULL;
  if (b->data || v->info->memory == MOERT_MEMORY_SYMMETRIC) return RUN_OK;
  b->data = b->owned = rank_allocate(r, v, b->bytes);
  return b->data ? fill(r, v, b) : r->message->exit;
}

static run_exit make_buffers(rank *r) {
  run_exit result = RUN_OK;
  for (size_t i = 0; i < r->plan->num_variables && result == RUN_OK; ++i) result = make_buffer(r, &r->plan->variables[i], &r->buffers[i]);
  return result;
}

run_exit rank_load(rank *r) {
  run_exit (*const steps[])(rank *) = {settle_static_sizes, open_inputs, settle_given_sizes, settle_workspaces, settle_shapes, make_buffers};
  run_exit result = RUN_OK;
  for (size_t i = 0; i < sizeof steps / sizeof *steps && result == RUN_OK; ++i) result = steps[i](r);
  return result;
}

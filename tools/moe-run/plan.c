//===- plan.c - which functions run, on which arguments -------------------------------------------===//
#include "plan.h"

#include <stdlib.h>
#include <string.h>

//===--- types ------------------------------------------------------------------------------------===//

void append_argument_type(char *buffer, size_t size, const moert_argument_info *info) {
  const element_type *type = element_type_of(element_dtype(info->dtype));
  if (type)
    text_append(buffer, size, "%s", type->name);
  else
    text_append(buffer, size, "type %#llx", (unsigned long long)info->dtype);
  for (int64_t i = 0; i < info->ndim; ++i) {
    const char *symbol = info->symbols ? info->symbols[i] : NULL;
    text_append(buffer, size, i == 0 ? "[" : ", ");
    if (info->shape[i] >= 0)
      text_append(buffer, size, "%lld", (long long)info->shape[i]);
    else
      text_append(buffer, size, "%s", symbol ? symbol : "?");
  }
  if (info->ndim > 0) text_append(buffer, size, "]");
}

static bool same_type(const moert_argument_info *a, const moert_argument_info *b) {
  bool same = a->dtype == b->dtype && a->memory == b->memory && a->ndim == b->ndim;
  for (int64_t i = 0; same && i < a->ndim; ++i) same = a->shape[i] < 0 || b->shape[i] < 0 || a->shape[i] == b->shape[i];
  return same;
}

bool variable_is_comparable(const variable *v) {
  moert_dtype dtype = element_dtype(v->info->dtype);
  bool is_address = v->info->memory == MOERT_MEMORY_HOST && dtype.bits == 64 && (dtype.code == MOERT_CODE_INT || dtype.code == MOERT_CODE_UINT);
  return v->written && v->info->memory != MOERT_MEMORY_SYMMETRIC && !is_address;
}

//===--- sizes ------------------------------------------------------------------------------------===//

size_t plan_size_root(const plan *p, size_t slot) {
  while (p->sizes[slot].root != slot) slot = p->sizes[slot].root;
  return slot;
}

const char *plan_size_name(const plan *p, size_t slot) {
  const size_slot *root = &p->sizes[plan_size_root(p, slot)];
  return root->symbol ? root->symbol : root->label;
}

static size_t add_size(plan *p) {
  p->sizes = records_grow(p->sizes, p->num_sizes, sizeof *p->sizes);
  p->sizes[p->num_sizes].root = p->num_sizes;
  return p->num_sizes++;
}

static size_t size_of_symbol(plan *p, const char *symbol) {
  for (size_t i = 0; i < p->num_sizes; ++i)
    if (!p->sizes[i].label && strcmp(p->sizes[i].symbol, symbol) == 0) return i;
  size_t made = add_size(p);
  p->sizes[made].symbol = symbol;
  return made;
}

static void make_equal(plan *p, size_t dimension, size_t symbol) {
  size_t from = plan_size_root(p, dimension), to = plan_size_root(p, symbol);
  p->sizes[from].root = to;
  if (!p->sizes[to].symbol) p->sizes[to].symbol = p->sizes[from].symbol;
}

static void bind_symbols(plan *p, const variable *v, const moert_argument_info *info) {
  for (int64_t i = 0; info->symbols && i < info->ndim; ++i)
    if (info->shape[i] < 0 && info->symbols[i]) make_equal(p, v->first_size + (size_t)i, size_of_symbol(p, info->symbols[i]));
}

static void add_dimensions(plan *p, variable *v) {
  v->first_size = p->num_sizes;
  for (int64_t i = 0; i < v->info->ndim; ++i) {
    size_t length = strlen(v->info->name) + 24, slot = add_size(p);
    p->sizes[slot].label = records(length, 1);
    text_append(p->sizes[slot].label, length, "%s.%lld", v->info->name, (long long)i);
  }
}

//===--- functions and variables ------------------------------------------------------------------===//

static size_t find_same(const plan *p, const moert_argument_info *info) {
  size_t i = 0;
  while (i < p->num_variables && (strcmp(p->variables[i].info->name, info->name) != 0 || !same_type(p->variables[i].info, info))) ++i;
  return i;
}

static run_exit add_variable(plan *p, const moert_function_info *function, const moert_argument_info *info, message *why) {
  const element_type *type = element_type_of(element_dtype(info->dtype));
  if (!type)
    return message_set(why, RUN_GRAPH, "function '%s': argument '%s' has element type %#llx, which moe-run does not know", function->name, info->name,
                       (unsigned long long)info->dtype);
  p->variables = records_grow(p->variables, p->num_variables, sizeof *p->variables);
  variable *v = &p->variables[p->num_variables++];
  *v = (variable){.info = info, .type = type, .read = info->role != MOERT_ROLE_OUT};
  add_dimensions(p, v);
  return RUN_OK;
}

static run_exit add_arguments(plan *p, plan_call *call, message *why) {
  for (int64_t i = 0; i < call->function->num_arguments; ++i) {
    const moert_argument_info *info = &call->function->arguments[i];
    size_t index = find_same(p, info);
    run_exit result = index < p->num_variables ? RUN_OK : add_variable(p, call->function, info, why);
    if (result != RUN_OK) return result;
    variable *v = &p->variables[index];
    if (!v->workspace) v->workspace = info->workspace;
    v->written = v->written || info->role != MOERT_ROLE_IN;
    bind_symbols(p, v, info);
    call->variables[i] = index;
  }
  return RUN_OK;
}

static run_exit unknown_function(const moert_graph_description *graph, const char *name, message *why) {
  char known[1024] = "";
  for (int64_t i = 0; i < graph->num_functions; ++i) text_append(known, sizeof known, "%s%s", i ? ", " : "", graph->functions[i].name);
  if (name) return message_set(why, RUN_USAGE, "--function %s: the graph has no such function; it has %s", name, known);
  return message_set(why, RUN_USAGE, "the graph has %lld functions: choose with --function from %s", (long long)graph->num_functions, known);
}

static run_exit add_call(plan *p, const char *name, message *why) {
  const moert_graph_description *graph = moert_graph_describe(p->graph);
  const moert_function_info *function = NULL;
  for (int64_t i = 0; i < graph->num_functions && !function; ++i)
    if (strcmp(graph->functions[i].name, name) == 0) function = &graph->functions[i];
  if (!function) return unknown_function(graph, name, why);
  p->calls = records_grow(p->calls, p->num_calls, sizeof *p->calls);
  plan_call *call = &p->calls[p->num_calls++];
  *call = (plan_call){function, records((size_t)function->num_arguments, sizeof *call->variables)};
  return add_arguments(p, call, why);
}

static run_exit add_calls(plan *p, message *why) {
  const moert_graph_description *graph = moert_graph_describe(p->graph);
  if (p->options->num_functions == 0)
    return graph->num_functions == 1 ? add_call(p, graph->functions[0].name, why) : unknown_function(graph, NULL, why);
  run_exit result = RUN_OK;
  for (size_t i = 0; i < p->options->num_functions && result == RUN_OK; ++i) result = add_call(p, p->options->functions[i], why);
  return result;
}

//===--- what the command line says of them -------------------------------------------------------===//

// Whether `key` is the argument's name, or "FUNCTION:NAME".
static bool is_named(const moert_function_info *function, const char *name, const char *key) {
  size_t length = strlen(function->name);
  return strcmp(name, key) == 0 || (strncmp(key, function->name, length) == 0 && key[length] == ':' && strcmp(key + length + 1, name) == 0);
}

static run_exit unknown_argument(const plan *p, const char *option, const char *key, message *why) {
  char known[2048] = "";
  for (size_t i = 0; i < p->num_variables; ++i) text_append(known, sizeof known, "%s%s", i ? ", " : "", p->variables[i].info->name);
  return message_set(why, RUN_USAGE, "%s %s: the functions that run have no such argument; they have %s", option, key, known);
}

static run_exit find_variable(plan *p, const char *option, const char *key, variable **found, message *why) {
  *found = NULL;
  for (size_t i = 0; i < p->num_calls; ++i)
    for (int64_t j = 0; j < p->calls[i].function->num_arguments; ++j) {
      variable *v = &p->variables[p->calls[i].variables[j]];
      if (!is_named(p->calls[i].function, v->info->name, key) || v == *found) continue;
      if (*found) return message_set(why, RUN_USAGE, "%s %s: arguments of several types have this name; write FUNCTION:%s", option, key, key);
      *found = v;
    }
  return *found ? RUN_OK : unknown_argument(p, option, key, why);
}

static run_exit set_input(plan *p, const binding *b, message *why) {
  variable *v;
  run_exit result = find_variable(p, "--input", b->name, &v, why);
  if (result != RUN_OK) return result;
  if (!v->read) return message_set(why, RUN_USAGE, "--input %s: the argument is an output; nothing reads it before it is written", b->name);
  v->input = b->value;
  return RUN_OK;
}

static run_exit set_result(plan *p, const char *option, const binding *b, bool expect, message *why) {
  variable *v;
  run_exit result = find_variable(p, option, b->name, &v, why);
  if (result != RUN_OK) return result;
  if (v->info->memory == MOERT_MEMORY_VALUE) return message_set(why, RUN_USAGE, "%s %s: the argument is a number passed by value", option, b->name);
  *(expect ? &v->expect : &v->output) = b->value;
  return RUN_OK;
}

static run_exit unknown_size(const plan *p, const char *key, message *why) {
  char known[2048] = "";
  for (size_t i = 0; i < p->num_sizes; ++i)
    if (!p->sizes[i].label) text_append(known, sizeof known, "%s%s", *known ? ", " : "", p->sizes[i].symbol);
  return message_set(why, RUN_USAGE, "--size %s: the functions that run have no such size; symbols: %s", key, *known ? known : "none");
}

static run_exit check_size_list(const plan *p, const binding *b, message *why) {
  int32_t count = list_count(b->value), ranks = p->options->ranks;
  if (count != 1 && count != ranks)
    return message_set(why, RUN_USAGE, "--size %s=%s: %d sizes for %d ranks: give one, or one per rank", b->name, b->value, (int)count, (int)ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    char item[LIST_ITEM_BYTES];
    int64_t size;
    if (!list_item_of_rank(b->value, rank, item) || !parse_int64(item, &size) || size < 0)
      return message_set(why, RUN_USAGE, "--size %s=%s: expected numbers that are not negative", b->name, b->value);
  }
  return RUN_OK;
}

static run_exit set_size(plan *p, const binding *b, message *why) {
  for (size_t i = 0; i < p->num_sizes; ++i)
    if (strcmp(p->sizes[i].label ? p->sizes[i].label : p->sizes[i].symbol, b->name) == 0) {
      p->sizes[i].given = b->value;
      return check_size_list(p, b, why);
    }
  return unknown_size(p, b->name, why);
}

static run_exit apply_options(plan *p, message *why) {
  const options *o = p->options;
  run_exit result = RUN_OK;
  for (size_t i = 0; i < o->inputs.count && result == RUN_OK; ++i) result = set_input(p, &o->inputs.items[i], why);
  for (size_t i = 0; i < o->outputs.count && result == RUN_OK; ++i) result = set_result(p, "--output", &o->outputs.items[i], false, why);
  for (size_t i = 0; i < o->expectations.count && result == RUN_OK; ++i) result = set_result(p, "--expect", &o->expectations.items[i], true, why);
  for (size_t i = 0; i < o->sizes.count && result == RUN_OK; ++i) result = set_size(p, &o->sizes.items[i], why);
  return result;
}

// What is read must come from somewhere; only arguments that are also written start as zeros.
static run_exit check_inputs(const plan *p, message *why) {
  for (size_t i = 0; i < p->num_variables; ++i) {
    const variable *v = &p->variables[i];
    if (v->input || !v->read || v->info->role == MOERT_ROLE_INOUT) continue;
    if (v->info->memory == MOERT_MEMORY_VALUE)
      return message_set(why, RUN_USAGE, "argument '%s' is a number: give it with --input %s=NUMBER", v->info->name, v->info->name);
    if (v->info->memory != MOERT_MEMORY_SYMMETRIC && !p->options->random)
      return message_set(why, RUN_USAGE, "argument '%s' has no contents: give --input %s=FILE.npy or --random SEED", v->info->name, v->info->name);
  }
  return RUN_OK;
}

static run_exit check_replays(const plan *p, message *why) {
  bool some = false;
  for (size_t i = 0; i < p->num_calls; ++i) some = some || p->calls[i].function->capturable;
  if (some || p->options->replays == 0) return RUN_OK;
  return message_set(why, RUN_USAGE, "--graph: none of the functions that run can be captured in a CUDA graph");
}

//===--- where it runs ----------------------------------------------------------------------------===//

static run_exit check_host(const options *o, message *why) {
  static const char remedy[] = "give --backend cuda and a graph that was compiled for sm_90a";
  if (o->check) return message_set(why, RUN_USAGE, "--check compares with the host backend, which is where this runs: %s", remedy);
  if (o->replays > 0) return message_set(why, RUN_USAGE, "--graph: the host backend has no CUDA graphs: %s", remedy);
  if (o->num_devices > 0) return message_set(why, RUN_USAGE, "--devices: the host backend has none to choose from: %s", remedy);
  return RUN_OK;
}

static run_exit choose_backend(plan *p, message *why) {
  const options *o = p->options;
  const char *target = moert_graph_describe(p->graph)->target;
  bool for_host = strcmp(target, "host") == 0;
  p->on_device = o->backend ? strcmp(o->backend, "cuda") == 0 : !for_host;
  if (p->on_device && for_host)
    return message_set(why, RUN_GRAPH, "--backend cuda: the graph was compiled for target %s: compile it with --target=sm_90a", target);
  return p->on_device ? RUN_OK : check_host(o, why);
}

run_exit plan_make(const options *o, moert_graph *graph, plan *p, message *why) {
  *p = (plan){.options = o, .graph = graph};
  run_exit result = choose_backend(p, why);
  if (result == RUN_OK) result = add_calls(p, why);
  if (result == RUN_OK) result = apply_options(p, why);
  if (result == RUN_OK) result = check_inputs(p, why);
  return result == RUN_OK ? check_replays(p, why) : result;
}

void plan_free(plan *p) {
  for (size_t i = 0; i < p->num_calls; ++i) free(p->calls[i].variables);
  for (size_t i = 0; i < p->num_sizes; ++i) free(p->sizes[i].label);
  free(p->calls);
  free(p->sizes);
  free(p->variables);
}

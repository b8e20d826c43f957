//===- compare.c - results against what is expected -----------------------------------------------===//
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct comparison {
  double squared_difference, squared_norm, largest; // sums and the largest |a - b|
  int64_t different, first;                         // elements beyond the tolerances
} comparison;

typedef struct expectation {
  const char *source; // "y.npy"
  const element_type *type;
  const char *data;
} expectation;

typedef struct tolerance {
  bool elements, norm; // which are judged
  double rtol, atol, rel_l2;
} tolerance;

// How the expected file's elements are read: as the argument's, or as f32 or f64 where the argument is a float.
static const element_type *expected_type(const variable *v, const char *descr) {
  if (element_fits_npy(v->type, descr)) return v->type;
  if (!element_is_float(v->type)) return NULL;
  if (strcmp(descr, "<f4") == 0) return element_type_of((moert_dtype){MOERT_CODE_FLOAT, 32, 1});
  return strcmp(descr, "<f8") == 0 ? element_type_of((moert_dtype){MOERT_CODE_FLOAT, 64, 1}) : NULL;
}

// |a - b|; 0 also for two NaN and for equal infinities.
static double distance(const element_type *type, const void *actual, const element_type *wanted, const void *expected) {
  if (type == wanted && memcmp(actual, expected, (size_t)element_bytes(type)) == 0) return 0;
  double a = element_widen(type, actual), b = element_widen(wanted, expected);
  if (isnan(a) && isnan(b)) return 0;
  if (isnan(a) || isnan(b)) return INFINITY;
  // Integers that differ but are the same as doubles are large; the true distance does not matter then.
  if (a == b) return element_is_float(type) ? 0 : 1;
  return fabs(a - b);
}

static void compare_element(comparison *c, const tolerance *t, int64_t index, double apart, double expected) {
  if (!isnan(expected) && !isinf(expected)) c->squared_norm += expected * expected;
  if (apart == 0) return;
  c->squared_difference += apart * apart;
  if (apart > c->largest) c->largest = apart;
  // An infinite bound of an infinite expectation would let every number pass.
  double bound = isfinite(expected) ? t->atol + t->rtol * fabs(expected) : 0;
  if (apart <= bound) return;
  if (c->different++ == 0) c->first = index;
}

static comparison compare_all(const tolerance *t, const variable *v, const buffer *b, const expectation *e) {
  comparison c = {0, 0, 0, 0, 0};
  for (int64_t i = 0; i < b->elements; ++i) {
    const char *actual = (const char *)b->data + i * element_bytes(v->type), *expected = e->data + i * element_bytes(e->type);
    compare_element(&c, t, i, distance(v->type, actual, e->type, expected), element_widen(e->type, expected));
  }
  return c;
}

static double rel_l2_of(const comparison *c) {
  if (c->squared_difference == 0) return 0;
  return c->squared_norm == 0 ? INFINITY : sqrt(c->squared_difference / c->squared_norm);
}

static void print_first(const variable *v, const buffer *b, const expectation *e, const comparison *c) {
  char index[1024] = "";
  text_append_index(index, sizeof index, v->info->ndim, b->shape, c->first);
  printf("; first at %s: %.9g, expected %.9g", index, element_widen(v->type, (const char *)b->data + c->first * element_bytes(v->type)),
         element_widen(e->type, e->data + c->first * element_bytes(e->type)));
}

// One line: what was compared, how far it is apart.
static run_exit judge(const rank *r, const tolerance *t, const variable *v, const buffer *b, const expectation *e) {
  comparison c = compare_all(t, v, b, e);
  double rel_l2 = rel_l2_of(&c);
  bool elements_differ = t->elements && c.different > 0, far = t->norm && !(rel_l2 <= t->rel_l2);
  if (r->plan->options->quiet && !elements_differ && !far) return RUN_OK;
  printf("rank %d: %s %s %s: rel-L2 %.3g, max abs error %.3g", (int)r->number, v->info->name, elements_differ || far ? "differs from" : "agrees with",
         e->source, rel_l2, c.largest);
  if (far) printf(" (rel-L2 may be %.3g)", t->rel_l2);
  if (elements_differ) {
    printf("; %lld of %lld elements beyond atol %.3g + rtol %.3g * |expected|", (long long)c.different, (long long)b->elements, t->atol, t->rtol);
    print_first(v, b, e, &c);
  } else
    printf(", %lld elements", (long long)b->elements);
  printf("\n");
  return elements_differ || far ? RUN_DIFFERENT : RUN_OK;
}

//===--- --expect ---------------------------------------------------------------------------------===//

// Every element must be equal, unless something else is asked for.
static tolerance tolerance_of_files(const options *o) {
  return (tolerance){o->check_elements || !o->check_rel_l2, o->check_rel_l2, o->rtol, o->atol, o->rel_l2};
}

static run_exit check_file(const rank *r, const variable *v, const buffer *b, const char *path, const npy_array *file, message *why) {
  char has[1024] = "", shape[1024] = "";
  bool fits = expected_type(v, file->descr) != NULL && file->ndim == v->info->ndim;
  for (int64_t i = 0; fits && i < file->ndim; ++i) fits = file->shape[i] == b->shape[i];
  if (fits) return RUN_OK;
  npy_append_type(has, sizeof has, file);
  text_append_shape(shape, sizeof shape, v->info->ndim, b->shape);
  return message_set(why, RUN_FILE, "rank %d: %s: the file has %s; argument '%s' is %s%s, element type %s%s", (int)r->number, path, has,
                     v->info->name, v->type->name, shape, v->type->npy, element_is_float(v->type) ? " (or <f4, <f8)" : "");
}

static run_exit compare_on_rank(const rank *r, const variable *v, const buffer *b, message *why) {
  npy_array file;
  char *path = expand_rank_pattern(v->expect, r->number);
  run_exit result = npy_open(path, &file, why);
  if (result == RUN_OK) result = check_file(r, v, b, path, &file, why);
  if (result == RUN_OK) {
    tolerance t = tolerance_of_files(r->plan->options);
    expectation e = {path, expected_type(v, file.descr), file.data};
    result = judge(r, &t, v, b, &e);
  }
  npy_close(&file);
  free(path);
  return result;
}

run_exit compare_results(const team *t, message *why) {
  run_exit worst = RUN_OK;
  for (size_t i = 0; i < t->plan->num_variables; ++i)
    for (int32_t j = 0; t->plan->variables[i].expect && j < t->size; ++j) {
      run_exit result = compare_on_rank(&t->ranks[j], &t->plan->variables[i], &t->ranks[j].buffers[i], why);
      if (result > RUN_DIFFERENT) return result;
      if (result > worst) worst = result;
    }
  return worst;
}

//===--- --check ----------------------------------------------------------------------------------===//

// Numbers that are not floats must be equal; floats agree as --rtol, --atol and --rel-l2 say, or, if none is given, to this rel-L2.
static tolerance tolerance_of_check(const options *o, const element_type *type) {
  const double rel_l2 = 0.01;
  if (!element_is_float(type)) return (tolerance){true, false, 0, 0, 0};
  if (!o->check_elements && !o->check_rel_l2) return (tolerance){false, true, 0, 0, rel_l2};
  return tolerance_of_files(o);
}

static run_exit compare_with_host(const rank *r, const variable *v, const buffer *b, const buffer *host) {
  const expectation e = {"the host backend", v->type, host->data};
  tolerance t = tolerance_of_check(r->plan->options, v->type);
  if (memcmp(b->data, host->data, b->bytes) != 0) return judge(r, &t, v, b, &e);
  if (!r->plan->options->quiet)
    printf("rank %d: %s has the bits of the host backend, %lld elements\n", (int)r->number, v->info->name, (long long)b->elements);
  return RUN_OK;
}

run_exit compare_backends(const team *t, const team *host) {
  run_exit worst = RUN_OK;
  for (size_t i = 0; i < t->plan->num_variables; ++i) {
    const variable *v = &t->plan->variables[i];
    if (!variable_is_comparable(v)) continue;
    for (int32_t j = 0; j < t->size; ++j)
      if (compare_with_host(&t->ranks[j], v, &t->ranks[j].buffers[i], &host->ranks[j].buffers[i]) != RUN_OK) worst = RUN_DIFFERENT;
  }
  return worst;
}

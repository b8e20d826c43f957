//===- team.c - all ranks, as threads -------------------------------------------------------------===//
#include "team.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// What all ranks do at the same time.
typedef struct step {
  run_exit (*task)(rank *rank, size_t index);
  size_t index;
  char label[256]; // "running layer on 4 ranks"
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int32_t running;
} step;

typedef struct worker {
  pthread_t thread;
  bool started;
  rank *rank;
  step *step;
} worker;

static void leave(step *s) {
  pthread_mutex_lock(&s->lock);
  --s->running;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

static void *work(void *argument) {
  worker *w = argument;
  w->step->task(w->rank, w->step->index);
  leave(w->step);
  return NULL;
}

static void start(worker *w) {
  w->started = pthread_create(&w->thread, NULL, work, w) == 0;
  if (w->started) return;
  message_set(&w->rank->message, RUN_RANK, "a thread could not be started");
  moert_comm_report(w->rank->comm, MOERT_ERROR_OUT_OF_MEMORY);
  leave(w->step);
}

// Say what takes longer than a second.
static void wait_for_all(step *s, bool quiet) {
  struct timespec begin, due, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  due = (struct timespec){begin.tv_sec + 1, begin.tv_nsec};
  pthread_mutex_lock(&s->lock);
  int timed_out = 0;
  while (s->running > 0 && timed_out == 0) timed_out = pthread_cond_timedwait(&s->changed, &s->lock, &due);
  bool told = s->running > 0 && !quiet;
  if (told) fprintf(stderr, "moe-run: %s ...", s->label);
  while (s->running > 0) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (told) fprintf(stderr, " %.1f s\n", (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
}

static void print_failures(const team *t) {
  bool same = t->size > 1;
  for (int32_t i = 1; i < t->size; ++i) same = same && strcmp(t->ranks[i].message.text, t->ranks[0].message.text) == 0;
  for (int32_t i = 0; i < (same ? 1 : t->size); ++i) {
    const message *m = &t->ranks[i].message;
    if (m->exit == RUN_OK) continue;
    if (same)
      fprintf(stderr, "moe-run: all ranks: %s\n", m->text);
    else
      fprintf(stderr, "moe-run: rank %d: %s\n", (int)i, m->text);
  }
}

static run_exit result_of(const team *t) {
  for (int32_t i = 0; i < t->size; ++i)
    if (t->ranks[i].message.exit != RUN_OK) return t->ranks[i].message.exit;
  return RUN_OK;
}

static run_exit run_step(team *t, step *s) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&s->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&s->lock, NULL);
  s->running = t->size;
  worker *workers = records((size_t)t->size, sizeof *workers);
  for (int32_t i = 0; i < t->size; ++i) {
    workers[i] = (worker){.rank = &t->ranks[i], .step = s};
    start(&workers[i]);
  }
  wait_for_all(s, t->plan->options->quiet);
  for (int32_t i = 0; i < t->size; ++i)
    if (workers[i].started) pthread_join(workers[i].thread, NULL);
  free(workers);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  print_failures(t);
  return result_of(t);
}

static run_exit load(rank *r, size_t index) { return (void)index, rank_load(r); }
static run_exit allocate_symmetric(rank *r, size_t index) { return (void)index, rank_allocate_symmetric(r); }

run_exit team_run(team *t) {
  const char *ranks = t->size == 1 ? "rank" : "ranks";
  step s = {.task = load};
  text_append(s.label, sizeof s.label, "loading the arguments of %d %s", (int)t->size, ranks);
  run_exit result = run_step(t, &s);
  s = (step){.task = allocate_symmetric, .label = "allocating symmetric memory"};
  if (result == RUN_OK) result = run_step(t, &s);
  for (size_t i = 0; i < t->plan->num_calls && result == RUN_OK; ++i) {
    s = (step){.task = rank_call, .index = i};
    text_append(s.label, sizeof s.label, "running %s on %d %s", t->plan->calls[i].function->name, (int)t->size, ranks);
    result = run_step(t, &s);
  }
  return result;
}

//===--- times ------------------------------------------------------------------------------------===//

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void team_print_times(const team *t) {
  int64_t count = t->plan->options->repeat;
  double *slowest = records((size_t)count, sizeof *slowest);
  for (int64_t i = 0; i < count; ++i)
    for (int32_t j = 0; j < t->size; ++j)
      if (t->ranks[j].seconds[i] > slowest[i]) slowest[i] = t->ranks[j].seconds[i];
  qsort(slowest, (size_t)count, sizeof *slowest, compare_doubles);
  double median = 0.5 * (slowest[(count - 1) / 2] + slowest[count / 2]);
  printf("%s: %lld run%s on %d rank%s: min %.3f ms, median %.3f ms\n", t->plan->calls[t->plan->num_calls - 1].function->name, (long long)count,
         count == 1 ? "" : "s", (int)t->size, t->size == 1 ? "" : "s", 1e3 * slowest[0], 1e3 * median);
  free(slowest);
}

//===--- life -------------------------------------------------------------------------------------===//

static moert_status make_context(rank *r, const options *o) {
  moert_context_options made = MOERT_CONTEXT_OPTIONS_INIT;
  made.timeout_ms = o->timeout_ms;
  if (o->stop_rank == r->number) {
    made.stop_op = o->stop_op;
    made.stop_phase = o->stop_phase;
  }
  return moert_context_create(r->comm, &made, &r->context);
}

run_exit team_make(const plan *p, team *t, message *why) {
  *t = (team){.plan = p};
  moert_comm *comms[MOERT_MAX_RANKS];
  int32_t size = p->options->ranks;
  moert_status status = moert_comm_create_threads(size, comms);
  if (status == MOERT_OK) {
    t->size = size;
    t->ranks = records((size_t)size, sizeof *t->ranks);
    for (int32_t i = 0; i < size; ++i) rank_init(&t->ranks[i], p, i, comms[i]);
    for (int32_t i = 0; i < size && status == MOERT_OK; ++i) status = make_context(&t->ranks[i], p->options);
  }
  if (status == MOERT_OK) return RUN_OK;
  return message_set(why, RUN_RANK, "%s (%s): %s", moert_status_name(status), moert_status_text(status), moert_last_error());
}

void team_free(team *t) {
  for (int32_t i = 0; i < t->size; ++i) rank_free(&t->ranks[i]);
  for (int32_t i = 0; i < t->size; ++i) moert_comm_destroy(t->ranks[i].comm);
  free(t->ranks);
}

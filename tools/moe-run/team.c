//===- team.c - the ranks of this process, as threads------------------------------------------------------===//
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
  message_set(w->rank->message, RUN_RANK, "a thread could not be started");
  moert_comm_report(w->rank->comm, MOERT_ERROR_OUT_OF_MEMORY);
  leave(w->step);
}

// Say what takes longer than a second.
static void wait_for_all(step *s, bool quiet) {
  double begin = seconds_now();
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  ++due.tv_sec;
  pthread_mutex_lock(&s->lock);
  int timed_out = 0;
  while (s->running > 0 && timed_out == 0) timed_out = pthread_cond_timedwait(&s->changed, &s->lock, &due);
  bool told = s->running > 0 && !quiet;
  if (told) fprintf(stderr, "moe-run: %s ...", s->label);
  while (s->running > 0) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  if (told) fprintf(stderr, " %.1f s\n", seconds_now() - begin);
}

static run_exit result_of(const team *t) {
  for (int32_t i = 0; i < t->size; ++i)
    if (t->ranks[i].message->exit != RUN_OK) return t->ranks[i].message->exit;
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
  wait_for_all(s, t->plan->options->quiet || t->plan->options->processes);
  for (int32_t i = 0; i < t->size; ++i)
    if (workers[i].started) pthread_join(workers[i].thread, NULL);
  free(workers);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  return result_of(t);
}

static run_exit load(rank *r, size_t index) { return (void)index, rank_load(r); }
static run_exit place_arguments(rank *r, size_t index) { return (void)index, rank_place(r); }
static run_exit replay(rank *r, size_t index) { return (void)index, rank_replay(r); }
static run_exit fetch(rank *r, size_t index) { return (void)index, rank_fetch(r); }

static run_exit run_calls(team *t) {
  run_exit result = RUN_OK;
  for (size_t i = 0; i < t->plan->num_calls && result == RUN_OK; ++i) {
    step s = {.task = rank_call, .index = i};
    text_append(s.label, sizeof s.label, "running %s on %d %s", t->plan->calls[i].function->name, (int)t->size, t->size == 1 ? "rank" : "ranks");
    result = run_step(t, &s);
  }
  return result;
}

run_exit team_run(team *t, const char *prefix) {
  for (int32_t i = 0; i < t->size; ++i) t->ranks[i].prefix = prefix;
  step s = {.task = load};
  text_append(s.label, sizeof s.label, "loading the arguments of %d %s", (int)t->size, t->size == 1 ? "rank" : "ranks");
  run_exit result = run_step(t, &s);
  s = (step){.task = place_arguments, .label = "allocating symmetric and device memory"};
  if (result == RUN_OK) result = run_step(t, &s);
  if (result == RUN_OK) result = run_calls(t);
  s = (step){.task = replay, .label = "capturing and replaying"};
  if (result == RUN_OK && t->plan->options->replays > 0) result = run_step(t, &s);
  s = (step){.task = fetch, .label = "copying the results"};
  return result == RUN_OK ? run_step(t, &s) : result;
}

//===--- times ------------------------------------------------------------------------------------===//

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// What was timed: the last function, or the replay of all that were captured.
static void append_timed(char *text, size_t size, const plan *p) {
  if (p->options->replays == 0) {
    text_append(text, size, "%s", p->calls[p->num_calls - 1].function->name);
    return;
  }
  text_append(text, size, "replay of");
  const char *between = " ";
  for (size_t i = 0; i < p->num_calls; ++i) {
    if (!p->calls[i].function->capturable) continue;
    text_append(text, size, "%s%s", between, p->calls[i].function->name);
    between = ", ";
  }
}

void team_print_times(const team *t) {
  int64_t count = t->board->repeat;
  int32_t ranks = t->board->size;
  char timed[1024] = "";
  double *slowest = records((size_t)count, sizeof *slowest);
  for (int64_t i = 0; i < count; ++i)
    for (int32_t j = 0; j < ranks; ++j)
      if (board_seconds(t->board, j)[i] > slowest[i]) slowest[i] = board_seconds(t->board, j)[i];
  qsort(slowest, (size_t)count, sizeof *slowest, compare_doubles);
  double median = 0.5 * (slowest[(count - 1) / 2] + slowest[count / 2]);
  append_timed(timed, sizeof timed, t->plan);
  printf("%s: %lld run%s on %d rank%s: min %.3f ms, median %.3f ms\n", timed, (long long)count, count == 1 ? "" : "s", (int)ranks,
         ranks == 1 ? "" : "s", 1e3 * slowest[0], 1e3 * median);
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

static moert_status make_comms(const plan *p, board *b, int32_t first, moert_comm **comms) {
  const options *o = p->options;
  moert_comm_options made = MOERT_COMM_OPTIONS_INIT;
  if (p->on_device) {
    made.device_type = MOERT_DEVICE_CUDA;
    made.num_devices = o->num_devices;
    made.devices = o->num_devices > 0 ? o->devices : NULL;
  }
  place here = {b, first};
  if (o->processes) return moert_comm_create_process(first, o->ranks, &made, board_gather, &here, comms);
  return moert_comm_create_threads(o->ranks, &made, comms);
}

static moert_status fill_team(team *t, int32_t first, int32_t count, moert_comm *const *comms) {
  const plan *p = t->plan;
  moert_status status = MOERT_OK;
  t->size = count;
  t->ranks = records((size_t)count, sizeof *t->ranks);
  for (int32_t i = 0; i < count; ++i) {
    rank_init(&t->ranks[i], p, first + i, comms[i]);
    t->ranks[i].message = &t->board->seats[first + i].message;
  }
  for (int32_t i = 0; i < count && status == MOERT_OK; ++i) status = make_context(&t->ranks[i], p->options);
  return status;
}

run_exit team_make(const plan *p, board *b, int32_t first, int32_t count, team *t, message *why) {
  *t = (team){.plan = p, .board = b};
  moert_comm *comms[MOERT_MAX_RANKS];
  moert_status status = make_comms(p, b, first, comms);
  if (status == MOERT_OK) status = fill_team(t, first, count, comms);
  if (status == MOERT_OK) return RUN_OK;
  return message_set(why, RUN_RANK, "%s (%s): %s", moert_status_name(status), moert_status_text(status), moert_last_error());
}

void team_free(team *t) {
  for (int32_t i = 0; i < t->size; ++i) rank_free(&t->ranks[i]);
  for (int32_t i = 0; i < t->size; ++i) moert_comm_destroy(t->ranks[i].comm);
  free(t->ranks);
}

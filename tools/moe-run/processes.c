//===- processes.c - ranks as processes -------------------------------------------------------------===//
#include "processes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct process {
  pid_t id;   // 0: none was started, or it has been waited for
  int output; // its stdout
  run_exit exit;
} process;

// The ranks end with their parent, not after it.
static _Noreturn void run_child(const options *o, board *b, int32_t rank, int output, pid_t parent, rank_program *program) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  message *why = &b->seats[rank].message;
  run_exit result = RUN_RANK;
  if (getppid() == parent && dup2(output, STDOUT_FILENO) >= 0) result = program(o, b, rank, 1, why);
  if (fflush(stdout) != 0 && result == RUN_OK) result = message_set(why, RUN_FILE, "standard output: %s", strerror(errno));
  exit(result);
}

static run_exit start(const options *o, board *b, int32_t rank, process *p, rank_program *program, message *why) {
  pid_t parent = getpid();
  p->output = memfd_create("moe-run", MFD_CLOEXEC);
  if (p->output >= 0) p->id = fork();
  if (p->id == 0 && p->output >= 0) run_child(o, b, rank, p->output, parent, program);
  if (p->id > 0) return RUN_OK;
  p->id = 0;
  return message_set(why, RUN_RANK, "a process for rank %d could not be started: %s", (int)rank, strerror(errno));
}

static void note_end(seat *s, process *p, int status) {
  p->id = 0;
  p->exit = WIFEXITED(status) ? (run_exit)WEXITSTATUS(status) : RUN_RANK;
  if (WIFSIGNALED(status))
    message_set(&s->message, RUN_RANK, "its process was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else if (p->exit > RUN_RANK)
    p->exit = message_set(&s->message, RUN_RANK, "its process ended with status %d", WEXITSTATUS(status));
  atomic_store(&s->gone, true);
}

// How many still run.
static int32_t poll_all(board *b, process *all) {
  int32_t running = 0;
  for (int32_t i = 0; i < b->size; ++i) {
    int status;
    if (all[i].id > 0 && waitpid(all[i].id, &status, WNOHANG) == all[i].id) note_end(&b->seats[i], &all[i], status);
    running += all[i].id > 0;
  }
  return running;
}

// Say what takes longer than a second.
static void wait_for_all(const options *o, board *b, process *all) {
  const struct timespec pause = {0, 1000000};
  double begin = seconds_now();
  bool told = false;
  while (poll_all(b, all) > 0) {
    if (!told && !o->quiet && seconds_now() > begin + 1) told = fprintf(stderr, "moe-run: running %d processes ...", (int)b->size) > 0;
    nanosleep(&pause, NULL);
  }
  if (told) fprintf(stderr, " %.1f s\n", seconds_now() - begin);
}

static void print_output(int output) {
  char part[4096];
  ssize_t bytes;
  for (off_t at = 0; (bytes = pread(output, part, sizeof part, at)) > 0; at += bytes) fwrite(part, 1, (size_t)bytes, stdout);
}

static run_exit collect(const board *b, const process *all) {
  run_exit failed = board_print_failures(b), worst = RUN_OK;
  for (int32_t i = 0; i < b->size; ++i) {
    print_output(all[i].output);
    if (all[i].exit > worst) worst = all[i].exit;
  }
  return failed == RUN_OK ? worst : failed;
}

run_exit processes_run(const options *o, board *b, rank_program *program, message *why) {
  process all[MOERT_MAX_RANKS];
  run_exit result = RUN_OK;
  fflush(stdout);
  for (int32_t i = 0; i < b->size; ++i) all[i] = (process){0, -1, RUN_OK};
  for (int32_t i = 0; i < b->size && result == RUN_OK; ++i) result = start(o, b, i, &all[i], program, why);
  for (int32_t i = 0; i < b->size && result != RUN_OK; ++i)
    if (all[i].id > 0) kill(all[i].id, SIGKILL);
  wait_for_all(o, b, all);
  if (result == RUN_OK) result = collect(b, all);
  for (int32_t i = 0; i < b->size; ++i)
    if (all[i].output >= 0) close(all[i].output);
  return result;
}

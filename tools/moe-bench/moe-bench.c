//===- moe-bench.c - how fast the ops are, and how fast they could be ----------------------------------===//
//
// options.c      the command line
// ceilings.c     what the machine gives at most
// benches.c      the groups of cases
// cases.c        what the bench of the ops measures
// formats.c      what that of the formats does
// allreduce.c    what that of all-reduces does
// grouped.c      what that of grouped products does
// routed.c       what that of layers of experts does
// a2a.c          what that of all-to-alls does
// a2a_check.c    whether their results are right
// operands.c     operands of cases
// routing.c      which experts tokens choose
// team.c         ranks that measure cases together
// a2a_measure.c  all-to-alls under graph replay, and eagerly
// measure.c      the cases of all other benches under graph replay
// report.c       the table and the file of records
// device.cu      the tool's own kernels
//
//===----------------------------------------------------------------------------------------------===//

#include "bench.h"
#include <stdio.h>

static int count_gpus(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

static void list_cases(const Options *options) {
  for (int i = 0; i < options->num_cases; ++i)
    for (int step = 0; step < options->cases[i].num_steps; ++step)
      printf("%-16s %s, %s\n", options->cases[i].steps[step].name, options->cases[i].variant, options->cases[i].dtype);
}

static Exit run(const Options *options) {
  Report report = {.options = options, .num_gpus = count_gpus()};
  if (report.num_gpus == 0) {
    fprintf(stderr, "moe-bench: there is no GPU, or no driver for it\n");
    return BENCH_NO_DEVICE;
  }
  cudaError_t error = ceilings_measure(report.num_gpus, &report.measured);
  if (error) {
    fprintf(stderr, "moe-bench: the ceilings could not be measured: %s\n", cudaGetErrorString(error));
    return BENCH_FAILED;
  }
  report_begin(&report);
  Exit exit = options->bench->measure(options, &report.measured, report.num_gpus, report_add, &report);
  if (options->bench->goals) report_summary(&report);
  Exit written = report_write_json(&report);
  report_end(&report);
  return exit ? exit : written;
}

int main(int argc, char **argv) {
  Options options;
  Exit exit = options_parse(argc, argv, &options);
  if (exit) return exit;
  if (options.help) return options_help(), BENCH_OK;
  if (options.version) return printf("moe-bench %s, libmoert %s\n", MOE_VERSION, moert_version()), BENCH_OK;
  if (options.list) return list_cases(&options), BENCH_OK;
  return run(&options);
}

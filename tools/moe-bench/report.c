//===- report.c - the table and the file of records ---------------------------------------------------===//

#include "bench.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

//===--- the table ----------------------------------------------------------------------------------===//

static void print_ceiling(const char *name, double measured, double reference, const char *unit) {
  if (measured > 0)
    printf("| %s | %.4g | %.4g | %s |\n", name, measured, reference, unit);
  else
    printf("| %s | not measured | %.4g | %s |\n", name, reference, unit);
}

void report_begin(const Report *report) {
  const Ceilings *measured = &report->measured, *reference = &reference_ceilings;
  printf("| ceiling | this run | reference | unit |\n|---|---|---|---|\n");
  print_ceiling("link, each way, both at once", measured->link_gbs, reference->link_gbs, "GB/s");
  print_ceiling("memory, copy, read and written", measured->memory_gbs, reference->memory_gbs, "GB/s");
  print_ceiling("flag round trip", measured->flag_us, reference->flag_us, "us");
  print_ceiling("graph node", measured->node_us, reference->node_us, "us");
  bool generic = report->options->compare_generic, copies = report->options->bench->copies;
  printf("\n| op | case | type | ranks | tokens | us | p10 | p90 | floor us | fraction | GB/s | TFLOP/s |%s%s\n",
         copies ? " copy us | of the copy's rate |" : "", generic ? " generic us |" : "");
  printf("|---|---|---|---|---|---|---|---|---|---|---|---|%s%s\n", copies ? "---|---|" : "", generic ? "---|" : "");
}

// What moved most: over the link if anything did.
static double rate_bytes(const Record *record) {
  return (double)(record->cost.link_bytes > 0 ? record->cost.link_bytes : record->cost.memory_bytes) / record->us[BENCH_LIBRARY] * 1e-3;
}

static void print_record(const Report *report, const Record *record) {
  printf("| %s | %s | %s | %d | %lld | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | ", record->step->name, record->what->variant, record->what->dtype,
         record->ranks, (long long)record->tokens, record->us[BENCH_LIBRARY], record->p10, record->p90, record->floor_us,
         record->floor_us / record->us[BENCH_LIBRARY], rate_bytes(record));
  if (record->cost.flops > 0) printf("%.1f ", (double)record->cost.flops / record->us[BENCH_LIBRARY] * 1e-6);
  printf("|");
  if (report->options->bench->copies) printf(" %.2f | %.2f |", record->us[BENCH_COPY], record->us[BENCH_COPY] / record->us[BENCH_LIBRARY]);
  if (report->options->compare_generic) printf(" %.2f |", record->us[BENCH_GENERIC]);
  printf("\n");
  fflush(stdout);
}

// The rate of a product that is as large as that of the reference.
static void keep_matrix_rate(Report *report, const Record *record) {
  if (strcmp(record->what->variant, "square") == 0) report->measured.matrix_tflops = (double)record->cost.flops / record->us[BENCH_LIBRARY] * 1e-6;
}

void report_add(void *user, const Record *record) {
  Report *report = user;
  print_record(report, record);
  keep_matrix_rate(report, record);
  if (report->count == report->room) {
    int room = 2 * report->room + 64;
    Record *records = realloc(report->records, (size_t)room * sizeof *records);
    if (!records) {
      report->lost = true;
      return;
    }
    report->records = records;
    report->room = room;
  }
  report->records[report->count++] = *record;
}

void report_end(Report *report) {
  free(report->records);
  report->records = NULL;
}

//===--- the file -----------------------------------------------------------------------------------===//

static void write_text(FILE *file, const char *name, const char *text) {
  fprintf(file, "\"%s\": \"", name);
  for (; *text; ++text) {
    if (*text == '"' || *text == '\\') fputc('\\', file);
    if ((unsigned char)*text >= 0x20) fputc(*text, file);
  }
  fprintf(file, "\"");
}

static void write_ceiling(FILE *file, const char *name, double value) {
  if (value > 0)
    fprintf(file, ", \"%s\": %.6g", name, value);
  else
    fprintf(file, ", \"%s\": null", name);
}

// As the system tells it; else the CUDA version that it serves.
static void read_driver_version(char *text, size_t size) {
  FILE *file = fopen("/sys/module/nvidia/version", "r");
  bool known = file && fgets(text, (int)size, file);
  int version = 0;
  if (file) fclose(file);
  cudaDriverGetVersion(&version);
  if (!known) snprintf(text, size, "CUDA %d.%d", version / 1000, version % 1000 / 10);
}

static void write_header(FILE *file, const Report *report) {
  struct cudaDeviceProp properties;
  int runtime = 0;
  char text[128], date[32];
  time_t now = time(NULL);
  struct tm utc;
  memset(&properties, 0, sizeof properties);
  cudaGetDeviceProperties(&properties, 0);
  cudaRuntimeGetVersion(&runtime);
  strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &utc));
  fprintf(file, "  {");
  write_text(file, "machine", properties.name);
  fprintf(file, ", \"gpus\": %d, ", report->num_gpus);
  read_driver_version(text, sizeof text);
  write_text(file, "driver", text);
  fprintf(file, ", ");
  snprintf(text, sizeof text, "%d.%d", runtime / 1000, runtime % 1000 / 10);
  write_text(file, "cuda", text);
  fprintf(file, ", ");
  write_text(file, "commit", report->options->commit ? report->options->commit : moert_version());
  fprintf(file, ", ");
  write_text(file, "date", date);
  write_ceiling(file, "link_gbs", report->measured.link_gbs);
  write_ceiling(file, "memory_gbs", report->measured.memory_gbs);
  write_ceiling(file, "matrix_tflops", report->measured.matrix_tflops);
  write_ceiling(file, "flag_us", report->measured.flag_us);
  write_ceiling(file, "node_us", report->measured.node_us);
  fprintf(file, "}");
}

static void write_record(FILE *file, const Report *report, const Record *record) {
  const Shape *shape = &record->what->shape;
  const Cost *cost = &record->cost;
  fprintf(file, ",\n  {");
  write_text(file, "bench", report->options->bench->name);
  fprintf(file, ", ");
  write_text(file, "case", record->step->name);
  fprintf(file, ", ");
  write_text(file, "variant", record->what->variant);
  fprintf(file, ", ");
  write_text(file, "dtype", record->what->dtype);
  fprintf(file, ", \"ranks\": %d, \"tokens\": %lld, \"hidden\": %lld, \"intermediate\": %lld, \"experts\": %lld, \"top_k\": %lld", record->ranks,
          (long long)record->tokens, (long long)shape->hidden, (long long)shape->intermediate, (long long)shape->experts, (long long)shape->top_k);
  fprintf(file, ", \"us\": %.3f, \"us_p10\": %.3f, \"us_p90\": %.3f", record->us[BENCH_LIBRARY], record->p10, record->p90);
  fprintf(file, ", \"bytes\": %lld, \"flops\": %lld, \"floor_us\": %.3f, \"fraction\": %.4f, \"peers\": {",
          (long long)(cost->link_bytes > 0 ? cost->link_bytes : cost->memory_bytes), (long long)cost->flops, record->floor_us,
          record->floor_us / record->us[BENCH_LIBRARY]);
  if (report->options->bench->copies) fprintf(file, "\"copy\": %.3f", record->us[BENCH_COPY]);
  if (report->options->compare_generic) fprintf(file, "%s\"generic\": %.3f", report->options->bench->copies ? ", " : "", record->us[BENCH_GENERIC]);
  fprintf(file, "}}");
}

Exit report_write_json(const Report *report) {
  const char *path = report->options->json;
  if (!path) return BENCH_OK;
  if (report->lost) fprintf(stderr, "moe-bench: %s: there was no memory for all records\n", path);
  FILE *file = fopen(path, "w");
  if (file) {
    fprintf(file, "[\n");
    write_header(file, report);
    for (int i = 0; i < report->count; ++i) write_record(file, report, &report->records[i]);
    fprintf(file, "\n]\n");
    bool written = !ferror(file);
    if (fclose(file) == 0 && written) return report->lost ? BENCH_FAILED : BENCH_OK;
  }
  fprintf(stderr, "moe-bench: %s: %s\n", path, strerror(errno));
  return BENCH_FAILED;
}

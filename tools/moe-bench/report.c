//===- report.c - the table and the file of records ---------------------------------------------------===//

#include "bench.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

//===--- the table ----------------------------------------------------------------------------------===//

static void print_rate(double rate) {
  if (rate > 0)
    printf(" %.4g |", rate);
  else
    printf(" not measured |");
}

static void print_ceiling(const char *name, double measured, double reference, const char *unit) {
  printf("| %s |", name);
  print_rate(measured);
  print_rate(reference);
  printf(" %s |\n", unit);
}

static void print_head(const Report *report) {
  const Bench *bench = report->options->bench;
  bool generic = report->options->compare_generic, copies = bench->copies, goals = bench->goals, weights = bench->weights;
  printf("\n| op | case | type | ranks | tokens | us | p10 | p90 | floor us | fraction | GB/s | TFLOP/s |%s%s%s%s\n",
         copies ? " copy us | of the copy's rate |" : "", generic ? " generic us |" : "", goals ? " goal us | peers' us |" : "",
         weights ? " weights |" : "");
  printf("|---|---|---|---|---|---|---|---|---|---|---|---|%s%s%s%s\n", copies ? "---|---|" : "", generic ? "---|" : "", goals ? "---|---|" : "",
         weights ? "---|" : "");
}

static void print_head_of_ways(void) {
  printf("\n| op | case | type | how | SMs | ranks | tokens | us | p10 | p90 | floor us | fraction | GB/s | of all SMs' rate | goal us | peer us | "
         "peer |\n");
  printf("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

static void print_ceilings(const Report *report) {
  const Ceilings *measured = &report->measured, *reference = &reference_ceilings;
  printf("| ceiling | this run | reference | unit |\n|---|---|---|---|\n");
  print_ceiling("link, each way, both at once", measured->link_gbs, reference->link_gbs, "GB/s");
  print_ceiling("memory, copy, read and written", measured->memory_gbs, reference->memory_gbs, "GB/s");
  print_ceiling("memory, read", measured->read_gbs, reference->read_gbs, "GB/s");
  print_ceiling("flag round trip", measured->flag_us, reference->flag_us, "us");
  print_ceiling("graph node", measured->node_us, reference->node_us, "us");
}

void report_begin(const Report *report) {
  print_ceilings(report);
  if (report->options->bench->ways)
    print_head_of_ways();
  else
    print_head(report);
}

// What moved most: over the link if anything did.
static double rate_bytes(const Record *record) {
  return (double)(record->cost.link_bytes > 0 ? record->cost.link_bytes : record->cost.memory_bytes) / record->us[BENCH_LIBRARY] * 1e-3;
}

// Empty where there is none.
static void print_number(double number) {
  if (number > 0)
    printf(" %.2f |", number);
  else
    printf(" |");
}

static void print_peers(const Record *record, const char *before, int digits) {
  for (const Peer *peer = record->peers; peer < record->peers + MAX_PEERS; ++peer)
    if (peer->us > 0) printf("%s%s %.*f", peer == record->peers ? before : ", ", peer->name, digits, peer->us);
}

static void print_record(const Report *report, const Record *record) {
  printf("| %s | %s | %s | %d | %lld | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | ", record->step->name, record->what->variant, record->what->dtype,
         record->ranks, (long long)record->tokens, record->us[BENCH_LIBRARY], record->p10, record->p90, record->floor_us,
         record->floor_us / record->us[BENCH_LIBRARY], rate_bytes(record));
  if (record->cost.flops > 0) printf("%.1f ", (double)record->cost.flops / record->us[BENCH_LIBRARY] * 1e-6);
  printf("|");
  if (report->options->bench->copies) printf(" %.2f | %.2f |", record->us[BENCH_COPY], record->us[BENCH_COPY] / record->us[BENCH_LIBRARY]);
  if (report->options->compare_generic) printf(" %.2f |", record->us[BENCH_GENERIC]);
  if (report->options->bench->goals) {
    print_number(record->goal_us);
    print_peers(record, " ", 2);
    printf(" |");
  }
  if (report->options->bench->weights) printf(" %s |", options_weights(report->options));
  printf("\n");
  fflush(stdout);
}

static void print_record_of_ways(const Record *record) {
  double us = record->us[BENCH_LIBRARY];
  printf("| %s | %s | %s | %s |", record->step->name, record->what->variant, record->what->dtype, record->how);
  if (record->max_sms > 0)
    printf(" %lld |", (long long)record->max_sms);
  else
    printf(" all |");
  printf(" %d | %lld | %.2f | %.2f | %.2f |", record->ranks, (long long)record->tokens, us, record->p10, record->p90);
  print_number(record->floor_us);
  print_number(record->floor_us / us);
  printf(" %.0f |", rate_bytes(record));
  print_number(record->all_sms_us / us);
  print_number(record->goal_us);
  print_number(record->peers[0].us);
  printf(" %s |\n", record->peers[0].us > 0 ? record->peers[0].name : "");
  fflush(stdout);
}

// The rate of a product that is as large as that of the reference.
static void keep_matrix_rate(Report *report, const Record *record) {
  if (strcmp(record->what->variant, "square") == 0) report->measured.matrix_tflops = (double)record->cost.flops / record->us[BENCH_LIBRARY] * 1e-6;
}

void report_add(void *user, const Record *record) {
  Report *report = user;
  if (report->options->bench->ways)
    print_record_of_ways(record);
  else
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

//===--- the summary --------------------------------------------------------------------------------===//

static bool is_same_row(const Record *a, const Record *b) {
  return a->what == b->what && a->step == b->step && a->max_sms == b->max_sms && strcmp(a->how, b->how) == 0;
}

static bool is_first_of_row(const Report *report, int index) {
  for (int i = 0; i < index; ++i)
    if (is_same_row(&report->records[i], &report->records[index])) return false;
  return true;
}

// Those of the records, in their order.
static int collect_tokens(const Report *report, int64_t tokens[MAX_TOKEN_COUNTS]) {
  int count = 0;
  for (int i = 0; i < report->count; ++i) {
    int at = 0;
    while (at < count && tokens[at] != report->records[i].tokens) ++at;
    if (at == count && count < MAX_TOKEN_COUNTS) tokens[count++] = report->records[i].tokens;
  }
  return count;
}

static const Record *find_record(const Report *report, const Record *row, int64_t tokens) {
  for (int i = 0; i < report->count; ++i)
    if (report->records[i].tokens == tokens && is_same_row(&report->records[i], row)) return &report->records[i];
  return NULL;
}

static void print_cell(const Record *record) {
  if (record) printf(" %.2f", record->us[BENCH_LIBRARY]);
  if (record && record->goal_us > 0) printf(", goal %.1f", record->goal_us);
  if (record) print_peers(record, ", ", 1);
  printf(" |");
}

void report_summary(const Report *report) {
  int64_t tokens[MAX_TOKEN_COUNTS];
  int columns = collect_tokens(report, tokens);
  printf("\n| us of tokens a rank |");
  for (int i = 0; i < columns; ++i) printf(" %lld |", (long long)tokens[i]);
  printf("\n|---|");
  for (int i = 0; i < columns; ++i) printf("---|");
  for (int i = 0; i < report->count; ++i) {
    const Record *row = &report->records[i];
    if (row->max_sms > 0 || !is_first_of_row(report, i)) continue;
    printf("\n| %s, %s, %s, %s |", row->step->name, row->what->variant, row->what->dtype, row->how);
    for (int column = 0; column < columns; ++column) print_cell(find_record(report, row, tokens[column]));
  }
  printf("\n");
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

static void write_number(FILE *file, const char *name, double value) {
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
  write_number(file, "link_gbs", report->measured.link_gbs);
  write_number(file, "memory_gbs", report->measured.memory_gbs);
  write_number(file, "read_gbs", report->measured.read_gbs);
  write_number(file, "matrix_tflops", report->measured.matrix_tflops);
  write_number(file, "flag_us", report->measured.flag_us);
  write_number(file, "node_us", report->measured.node_us);
  fprintf(file, "}");
}

static void write_way(FILE *file, const Record *record) {
  fprintf(file, ", ");
  write_text(file, "how", record->how);
  fprintf(file, ", \"max_sms\": %lld", (long long)record->max_sms);
  write_number(file, "all_sms_us", record->all_sms_us);
}

static void write_weights(FILE *file, const Options *options) {
  fprintf(file, ", ");
  write_text(file, "weights", options_weights(options));
}

static void write_peer(FILE *file, const char **separator, const char *name, double us) {
  fprintf(file, "%s\"%s\": %.3f", *separator, name, us);
  *separator = ", ";
}

static void write_peers(FILE *file, const Report *report, const Record *record) {
  const char *separator = "";
  fprintf(file, ", \"peers\": {");
  if (report->options->bench->copies) write_peer(file, &separator, "copy", record->us[BENCH_COPY]);
  if (report->options->compare_generic) write_peer(file, &separator, "generic", record->us[BENCH_GENERIC]);
  for (int i = 0; i < MAX_PEERS; ++i)
    if (record->peers[i].us > 0) write_peer(file, &separator, record->peers[i].name, record->peers[i].us);
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
  fprintf(file, ", \"bytes\": %lld, \"flops\": %lld, \"floor_us\": %.3f, \"fraction\": %.4f",
          (long long)(cost->link_bytes > 0 ? cost->link_bytes : cost->memory_bytes), (long long)cost->flops, record->floor_us,
          record->floor_us / record->us[BENCH_LIBRARY]);
  if (report->options->bench->ways) write_way(file, record);
  if (report->options->bench->goals) write_number(file, "goal_us", record->goal_us);
  if (report->options->bench->weights) write_weights(file, report->options);
  write_peers(file, report, record);
  fprintf(file, "}");
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

//===- bench.h - what the parts of moe-bench share ----------------------------------------------------===//
#ifndef MOE_BENCH_BENCH_H
#define MOE_BENCH_BENCH_H

#include <cuda_runtime_api.h>
#include <moert/ep.h>
#include <moert/moert.h>
#include <moert/ops.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_SETS = 16, MAX_BUFFERS = 18, MAX_STEPS = 3, MAX_REPLAYS = 64, MAX_TOKEN_COUNTS = 32, MAX_NAMES = 16, MAX_PEERS = 2 };

// The tool's exit statuses.
typedef enum Exit { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_NO_DEVICE = 3 } Exit;

// What is measured in turn.
typedef enum Variant {
  BENCH_LIBRARY, // the kernel that the library chooses
  BENCH_GENERIC, // the generic one
  BENCH_COPY,    // the tool's own copy of as many bytes
  MAX_VARIANTS
} Variant;

typedef struct Case Case;
typedef struct Ceilings Ceilings;
typedef struct Options Options;
typedef struct Record Record;
typedef struct Work Work;

//===--- benches.c ------------------------------------------------------------------------------------===//

// A group of cases.
typedef struct Bench {
  const char *name, *help;
  const Case *(*cases)(int *count);
  int64_t tokens[MAX_TOKEN_COUNTS], quick_tokens[MAX_TOKEN_COUNTS]; // defaults; 0 ends them
  int32_t ranks;                                                    // likewise; 0: one on each GPU
  // Every case that the options name, on all ranks; `done` is called for each record as it comes.
  Exit (*measure)(const Options *options, const Ceilings *measured, int num_gpus, void (*done)(void *user, const Record *record), void *user);
  // Whether the outputs that a call has left in a set are right, as far as it looks; NULL: nothing does, but all calls must agree.
  bool (*check)(Work *work, int set);
  void (*judge)(const Work *work, const Ceilings *measured, Record *record); // sets goal and peers of a record; NULL: `measure` does
  bool copies;                                                               // beside each op a copy
  bool goals;                                                                // beside each time what it should be, and those of others
  bool weights;                                                              // --weights says how they are passed
  bool ways;                                                                 // ops are called in several ways; generic kernels are not compared
} Bench;

extern const Bench benches[]; // the first is the default
extern const int num_benches;

//===--- options.c ------------------------------------------------------------------------------------===//

struct Options {
  const Bench *bench;
  const Case *cases; // of the bench
  int num_cases;
  const char *names[MAX_NAMES]; // of steps; none: all
  int num_names;
  const char *part; // of the names of cases; NULL: all
  int64_t tokens[MAX_TOKEN_COUNTS];
  int num_tokens;
  int32_t ranks; // 0: one on each GPU
  int replays;
  const char *json, *commit; // NULL: not given
  const char *weights;       // likewise, else "linear" or "fragments"
  bool compare_generic, quick, list, help, version;
};

// Says on standard error what is wrong.
Exit options_parse(int count, char **arguments, Options *options);
void options_help(void);
const char *options_weights(const Options *options); // as they are, given or not
bool options_name(const Options *options, const char *step);
bool options_name_case(const Options *options, const Case *what);

//===--- ceilings.c -----------------------------------------------------------------------------------===//

// What the machine gives at most; 0: not measured.
struct Ceilings {
  double link_gbs;      // each way, both at once
  double memory_gbs;    // of a copy, read and written
  double read_gbs;      // of a pass that only reads
  double matrix_tflops; // of bf16
  double flag_us;       // round trip
  double node_us;       // of a graph
};

extern const Ceilings reference_ceilings; // of docs/moe-bench.md, from which the floors are computed
cudaError_t ceilings_measure(int num_gpus, Ceilings *measured);

//===--- cases ----------------------------------------------------------------------------------------===//

typedef struct Shape {
  int64_t hidden, intermediate, experts, top_k;
} Shape;

// What an op cannot do without, on one rank.
typedef struct Cost {
  int64_t link_bytes, memory_bytes, flops; // sent to other ranks; read and written; of matrix products
  int hops;                                // flags that wait for each other
} Cost;

typedef struct Buffer {
  moert_tensor tensor;
  int64_t shape[3];
  size_t bytes;
  bool is_output;
} Buffer;

// A case on one rank, with `sets` of operands that calls take in turn.
struct Work {
  moert_comm *comm;
  moert_context *context;
  cudaStream_t stream;
  int32_t rank, ranks;
  const Case *what;
  Shape shape;
  int64_t tokens;
  int sets;
  Buffer buffers[MAX_SETS][MAX_BUFFERS];
  // What all sets share.
  void *slab;
  Buffer areas[MOERT_WORKSPACE_MAX_PAYLOADS]; // of the slab
  Buffer workspace, metainfo, counters[2], tables[MOERT_EP_GROUPS * MOERT_EP_BUFFERS];
  int64_t metainfo_words[MOERT_METAINFO_FIELDS], combine_offset;
  uint64_t addresses[MOERT_EP_GROUPS * MOERT_EP_BUFFERS][MOERT_MAX_RANKS];
  // Of layers: weights are passed as they are, not as fragments too; in each set, choices of an expert whose weights are there, and such experts that
  // are chosen.
  bool linear;
  int64_t rows[MAX_SETS], chosen[MAX_SETS];
};

// One op of a case.
typedef struct Step {
  const char *name; // as --op has it
  const char *op;
  moert_status (*call)(Work *work, int set, moert_kernel *kernel); // NULL: the bench has calls of its own
  Cost (*cost)(const Work *work);
} Step;

// One op, or some that alternate on the same operands.
struct Case {
  const char *variant, *dtype;
  Shape shape;
  int64_t tokens;                   // 0: those of --tokens
  moert_status (*open)(Work *work); // what the sets share; collective. NULL: nothing
  moert_status (*fill)(Work *work, int set);
  int num_steps;
  Step steps[MAX_STEPS];
};

const Case *op_cases(int *count);        // cases.c
const Case *format_cases(int *count);    // formats.c
const Case *allreduce_cases(int *count); // allreduce.c
const Case *exchange_cases(int *count);  // a2a.c
const Case *grouped_cases(int *count);   // grouped.c
const Case *routed_cases(int *count);    // routed.c
bool routed_check(Work *work, int set);
void routed_judge(const Work *work, const Ceilings *measured, Record *record);
void work_close(Work *work); // operands.c; collective

//===--- measure.c, a2a_measure.c ---------------------------------------------------------------------===//

typedef struct Peer {
  const char *name; // NULL: there is none
  double us;
} Peer;

// One row of the table.
struct Record {
  const Case *what;
  const Step *step;
  int32_t ranks;
  int64_t tokens;
  double us[MAX_VARIANTS], p10, p90; // p10 and p90 of the library's choice; 0: not measured
  Cost cost;
  double floor_us;
  // Of benches with goals.
  double goal_us; // 0: none
  Peer peers[MAX_PEERS];
  // Of benches with ways.
  const char *how;   // "graph", "eager"
  int64_t max_sms;   // 0: all
  double all_sms_us; // with all multiprocessors, where `max_sms` varies; 0: none
};

Exit measure_ops(const Options *options, const Ceilings *measured, int num_gpus, void (*done)(void *user, const Record *record), void *user);
Exit measure_exchanges(const Options *options, const Ceilings *measured, int num_gpus, void (*done)(void *user, const Record *record), void *user);

//===--- report.c -------------------------------------------------------------------------------------===//

typedef struct Report {
  const Options *options;
  Ceilings measured;
  int num_gpus;
  Record *records;
  int count, room;
  bool lost; // there was no memory for a record
} Report;

void report_begin(const Report *report);             // ceilings, and the head of the table
void report_add(void *report, const Record *record); // a row
void report_summary(const Report *report);           // of benches with goals
Exit report_write_json(const Report *report);        // to options->json
void report_end(Report *report);

#endif

//===- benches.c - the groups of cases ----------------------------------------------------------------===//

#include "bench.h"

const Bench benches[] = {
    {"ops", "the ops, on all GPUs", op_cases, {1, 8, 32, 128, 512, 2048}, {8, 512}, 0, measure_ops, false, false},
    {"formats",
     "quantize and dequantize in every format and layout, on one GPU",
     format_cases,
     {1, 64, 4096},
     {1, 4096},
     1,
     measure_ops,
     true,
     false},
    {"allreduce",
     "all-reduces with residual and norm, on all GPUs",
     allreduce_cases,
     {1, 16, 64, 128, 512, 2048},
     {1, 128},
     0,
     measure_ops,
     false,
     false},
    {"a2a",
     "dispatch and combine in detail, on all GPUs",
     exchange_cases,
     {1, 32, 128, 512, 4096},
     {1, 128, 4096},
     0,
     measure_exchanges,
     false,
     true},
};
const int num_benches = sizeof benches / sizeof *benches;

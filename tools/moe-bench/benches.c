//===- benches.c - the groups of cases ----------------------------------------------------------------===//

#include "bench.h"

const Bench benches[] = {
    {"ops", "the ops, on all GPUs", op_cases, {1, 8, 32, 128, 512, 2048}, {8, 512}, 0, false},
    {"formats", "quantize and dequantize in every format and layout, on one GPU", format_cases, {1, 64, 4096}, {1, 4096}, 1, true},
};
const int num_benches = sizeof benches / sizeof *benches;

//===- routed.h - operands and calls of moe.nvfp4_routed ------------------------------------------------===//
#ifndef MOE_BENCH_ROUTED_H
#define MOE_BENCH_ROUTED_H

#include "bench.h"

// Of a case's shape gemm1_weights are [experts, 2 * intermediate, hidden], and each token chooses top_k different experts.
moert_status routed_fill(Work *work, int set);
moert_status routed_call(Work *work, int set, moert_kernel *kernel);
// The weights of experts that are chosen, states and output, each once.
Cost routed_cost(const Work *work);

#endif

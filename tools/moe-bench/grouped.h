//===- grouped.h - operands and calls of moe.grouped_matmul ---------------------------------------------===//
#ifndef MOE_BENCH_GROUPED_H
#define MOE_BENCH_GROUPED_H

#include "bench.h"

// Of a case's shape the weights are [experts, intermediate, hidden], and rows are top_k for each token, each of which falls to any group. Gated: with
// swiglu, half as wide.
moert_status grouped_fill_plain(Work *work, int set);
moert_status grouped_fill_gated(Work *work, int set);
moert_status grouped_call_plain(Work *work, int set, moert_kernel *kernel);
moert_status grouped_call_gated(Work *work, int set, moert_kernel *kernel);
// The weights of groups with rows, rows and results, each once.
Cost grouped_cost(const Work *work);

#endif

//===- allreduce.h - calls of moe.allreduce_fusion -----------------------------------------------------===//
#ifndef MOE_BENCH_ALLREDUCE_H
#define MOE_BENCH_ALLREDUCE_H

#include "bench.h"

// Residual and norm of `hidden` columns of bf16, from `experts` experts with scales and a shared one.
moert_status allreduce_open(Work *work);
moert_status allreduce_fill(Work *work, int set);
moert_status allreduce_call(Work *work, int set, moert_kernel *kernel);
Cost allreduce_cost(const Work *work);

#endif

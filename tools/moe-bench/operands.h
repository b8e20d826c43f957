//===- operands.h - operands of cases -----------------------------------------------------------------===//
#ifndef MOE_BENCH_OPERANDS_H
#define MOE_BENCH_OPERANDS_H

#include "bench.h"

static const moert_dtype BF16 = {MOERT_CODE_BFLOAT, 16, 1}, F16 = {MOERT_CODE_FLOAT, 16, 1}, F32 = {MOERT_CODE_FLOAT, 32, 1},
                         I8 = {MOERT_CODE_INT, 8, 1}, I32 = {MOERT_CODE_INT, 32, 1}, I64 = {MOERT_CODE_INT, 64, 1};

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

void operand_set(Buffer *buffer, void *data, moert_device device, moert_dtype dtype, int32_t ndim, const int64_t *shape);
// Memory of the rank's device, which work_close frees if the buffer is one of `work`.
moert_status operand_add(Work *work, Buffer *buffer, moert_dtype dtype, int32_t ndim, const int64_t *shape);
moert_status operand_add_output(Work *work, Buffer *buffer, moert_dtype dtype, int32_t ndim, const int64_t *shape);
// Numbers in [-scale, scale), other ones in each slot of each set.
moert_status operand_add_random(Work *work, int set, int slot, float scale, moert_dtype dtype, int32_t ndim, const int64_t *shape);
moert_status operand_add_words(Work *work, Buffer *buffer, const int32_t *words, int32_t ndim, const int64_t *shape);
// Of the work's tokens a rank. Collective.
moert_status operand_open_workspace(Work *work, int64_t dispatch_bytes, int64_t combine_bytes);
uint64_t operand_seed(const Work *work, int32_t rank, int set);
const moert_tensor *operand(const Work *work, int set, int slot);

#endif

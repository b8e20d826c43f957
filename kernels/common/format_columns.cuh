//===- format_columns.cuh - formats as the columns of specializations.def name them --------------------===//
#ifndef MOE_KERNELS_FORMAT_COLUMNS_CUH
#define MOE_KERNELS_FORMAT_COLUMNS_CUH

#include "lib/reference/formats.h"

namespace column {
static const int nvfp4 = MOERT__NVFP4, mxfp4 = MOERT__MXFP4, mxfp8 = MOERT__MXFP8, fp8_block = MOERT__FP8_BLOCK, fp8_token = MOERT__FP8_TOKEN,
                 fp8_tensor = MOERT__FP8_TENSOR;
}

#endif

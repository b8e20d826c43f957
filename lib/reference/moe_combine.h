//===- moe_combine.h - moe.combine on every backend ---------------------------------------------===//
#ifndef MOERT_REFERENCE_MOE_COMBINE_H
#define MOERT_REFERENCE_MOE_COMBINE_H

#include "lib/reference/quantized.h"
#include "lib/reference/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the shapes and parameters of a call come to.
typedef struct moert__combine_call {
  const moert_moe_combine_params *params;
  const moert_moe_combine_args *args;
  moert_context *context;
  moert__workspace workspace;
  bool grouped;
  int64_t max_tokens, tokens, row_bytes; // row_bytes: of the payload
  int64_t wire_bytes;                    // from row to row of the combine area: of E4M3 with use_low_precision, unless the payload lies there
  moert__format payload_format, out_format;
  bool quantizes;                  // `out` is codes
  moert__quantized_call quantized; // if it is: as of moe.quantize whose input has the type of the payload; G is (float)output_scalar_scale
} moert__combine_call;

// All checks, which read neither the slab nor any tensor's elements but metainfo's: that the grouped payload has room for the rows that a device
// received is left to kernels. Sets *call.
MOERT__SHARED moert_status moert__combine_check(const moert_moe_combine_params *params, const moert_moe_combine_args *args, moert_context *context,
                                                moert__combine_call *call);
// What all ranks must agree on.
MOERT__SHARED uint32_t moert__combine_hash(const moert__combine_call *call);
// The combine is done, or on its way: a dispatch may follow.
MOERT__SHARED void moert__combine_keep(const moert__combine_call *call);
// Whether the rows of a token are added pairwise, else by a left fold. The association belongs to the op's contract: a function of top_k alone.
MOERT__NUMERIC bool moert__combine_adds_pairwise(int64_t top_k) {
  return top_k == 1 || top_k == 2 || top_k == 4 || top_k == 6 || top_k == 8 || top_k == 10 || top_k == 16 || top_k == 22;
}

#ifdef __cplusplus
}
#endif
#endif

//===- routed.h - bounds and arithmetic of moe.nvfp4_routed, for compile side, host and devices ----------===//
#ifndef MOERT_REFERENCE_ROUTED_H
#define MOERT_REFERENCE_ROUTED_H

#include "lib/reference/formats.h"
#include "lib/reference/swiglu.h"

enum {
  MOERT__ROUTED_MAX_EXPERTS = 1024,
  MOERT__ROUTED_UNIT = 256, // K and N are multiples of it
  MOERT__ROUTED_BLOCK = 8,  // block_m likewise
  MOERT__ROUTED_SCALED = 16 // elements that share a scale
};

//===--- experts ----------------------------------------------------------------------------------===//

// Of the layer: `given` is 0 if the weights have all.
MOERT__NUMERIC int64_t moert__routed_all_experts(int64_t given, int64_t experts) { return given ? given : experts; }

// The bin of a choice, its expert among those of the weights + 1; 0: nobody's. i32 holds first + experts, so that less than `first`, and what is
// negative, is beyond `experts` as an unsigned number.
MOERT__NUMERIC int32_t moert__routed_bin_of(int32_t id, int64_t first, int64_t experts) {
  const uint32_t expert = (uint32_t)id - (uint32_t)first;
  return expert < (uint32_t)experts ? (int32_t)expert + 1 : 0;
}

//===--- arithmetic -------------------------------------------------------------------------------===//

MOERT__NUMERIC float moert__routed_activation(float gate, float up) {
  moert__swiglu_form plain = {0, 1.0f, 0.0f};
  return moert__swiglu(plain, gate, up);
}

// The code of the scale of a block whose largest magnitude is amax; NaN stays one. The bound is below what E4M3 tells from 0.
MOERT__NUMERIC uint32_t moert__routed_scale(float amax) {
  float scale = moert__divide(amax, MOERT__E2M1_MAX);
  return moert__f32_to_e4m3(scale < 1e-8f ? 1e-8f : scale);
}

// The code of an element of such a block.
MOERT__NUMERIC uint32_t moert__routed_code(float value, uint32_t scale) {
  return moert__f32_to_e2m1(moert__divide(value, scale == 0 ? 1.0f : moert__e4m3_to_f32(scale)));
}

// A token's sum with the result y of one more of its choices.
MOERT__NUMERIC float moert__routed_add(float total, float y, float weight, float factor) {
  return factor == 1.0f ? fmaf(y, weight, total) : fmaf(y * weight, factor, total);
}

#endif

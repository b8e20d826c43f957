//===- swiglu.h - the gated activation, for host and devices ----------------------------------------===//
#ifndef MOERT_REFERENCE_SWIGLU_H
#define MOERT_REFERENCE_SWIGLU_H

#include "lib/reference/numerics.h"

typedef struct moert__swiglu_form {
  int clamped;
  float alpha, limit; // of the clamped form
} moert__swiglu_form;

// silu(gate) * up; clamped: min(gate, limit) * sigmoid(alpha * gate) * (up + 1) with up in [-limit, limit]. NaN passes both clamps.
MOERT__NUMERIC float moert__swiglu(moert__swiglu_form form, float gate, float up) {
  if (!form.clamped) return moert__silu(gate) * up;
  float limit = form.limit;
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return gate * moert__sigmoid(form.alpha * gate) * (up + 1.0f);
}

#endif

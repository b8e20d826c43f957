// RUN: moe-opt %s --split-input-file --verify-diagnostics
// RUN: moe-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// A name that is misspelt is an error at its place, in both dialects and both forms.
func.func @generic(%ctx: !moe.context) {
  // expected-error@+1 {{unregistered operation 'ep.dispach' found in dialect ('ep') that does not allow unknown operations}}
  "ep.dispach"(%ctx) : (!moe.context) -> ()
  return
}

// -----

func.func @generic_moe(%ctx: !moe.context) {
  // expected-error@+1 {{unregistered operation 'moe.dispach' found in dialect ('moe') that does not allow unknown operations}}
  "moe.dispach"(%ctx) : (!moe.context) -> ()
  return
}

// -----

func.func @custom(%ctx: !moe.context) {
  // expected-error@+1 {{custom op 'moe.dispach' is unknown}}
  moe.dispach context(%ctx)
  return
}

// -----

// expected-error@+1 {{unknown attribute `hst` in dialect `moe`}}
func.func private @attribute() attributes {a = #moe.hst}

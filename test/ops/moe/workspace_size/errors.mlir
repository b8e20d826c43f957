// RUN: moe-opt %s --split-input-file --verify-diagnostics

func.func @workspace_size_s4(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_size' op has no parameter 'tokens'}}
  %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64, tokens = 8 : i64}
  return
}

// -----

func.func @workspace_size_s3_type(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_size' op result #0 must be index, but got 'i64'}}
  %0 = "moe.workspace_size"(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64} : (!moe.context) -> i64
  return
}

// -----

func.func @workspace_size_s3_missing(%ctx: !moe.context) {
  // expected-error@+1 {{'moe.workspace_size' op requires one result}}
  "moe.workspace_size"(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64} : (!moe.context) -> ()
  return
}

// -----

func.func @workspace_size_context_type(%ctx: index) {
  // expected-error@+1 {{'moe.workspace_size' op operand #0 must be !moe.context, but got 'index'}}
  %0 = "moe.workspace_size"(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64} : (index) -> index
  return
}

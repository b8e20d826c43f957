// A parameter without a default must be there, and each must be of its type.
//
// RUN: split-file %s %t
// RUN: %mlir-opt --allow-unregistered-dialect %t/missing.mlir --emit-bytecode -o %t/missing.mlirbc
// RUN: not moe-opt %t/missing.mlirbc 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: %mlir-opt --allow-unregistered-dialect %t/type.mlir --emit-bytecode -o %t/type.mlirbc
// RUN: not moe-opt %t/type.mlirbc 2>&1 | FileCheck %s --check-prefix=TYPE

// MISSING: error: 'moe.workspace_size' op requires attribute 'combine_bytes_per_token'
//--- missing.mlir
func.func @size(%ctx: !moe.context) -> index {
  %0 = "moe.workspace_size"(%ctx) <{max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64}> : (!moe.context) -> index
  return %0 : index
}
// TYPE: error: Invalid attribute `max_num_tokens` in property conversion: "8"
//--- type.mlir
func.func @size(%ctx: !moe.context) -> index {
  %0 = "moe.workspace_size"(%ctx) <{max_num_tokens = "8", dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}> : (!moe.context) -> index
  return %0 : index
}

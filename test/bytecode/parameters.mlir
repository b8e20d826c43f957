// Parameters stand in bytecode by name: what a file does not have is at its default. So an op gets new parameters without files becoming unreadable.
// An mlir-opt that does not know the dialect writes such files.
//
// RUN: %mlir-opt --allow-unregistered-dialect %s --emit-bytecode -o %t.mlirbc
// RUN: moe-opt %t.mlirbc | FileCheck %s
// RUN: moe-opt %t.mlirbc --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

// CHECK: moe.workspace_size context(%{{.*}}) {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, max_num_tokens = 8 : i64}
// GENERIC: combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, ep_size = 0 : i64, eplb_stats_num_experts = 0 : i64, max_num_tokens = 8 : i64
func.func @size(%ctx: !moe.context) -> index {
  %0 = "moe.workspace_size"(%ctx) <{max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}> : (!moe.context) -> index
  return %0 : index
}

// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @size
// CHECK: %{{.*}} = moe.workspace_size context(%{{.*}}) {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, max_num_tokens = 8 : i64}
// CHECK: %{{.*}} = moe.workspace_size context(%{{.*}}) {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, ep_size = 64 : i64, eplb_stats_num_experts = 256 : i64, max_num_tokens = 8 : i64}
func.func @size(%ctx: !moe.context) -> (index, index) {
  %0 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  %1 = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64,
                                         eplb_stats_num_experts = 256 : i64, ep_size = 64 : i64}
  return %0, %1 : index, index
}

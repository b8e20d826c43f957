// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @initialize
// CHECK: moe.initialize workspace(%{{.*}} : memref<?xi8>) metainfo(%{{.*}} : memref<16xi64, #moe.host>) context(%{{.*}}) {combine_bytes_per_token = 32 : i64, dispatch_bytes_per_token = 16 : i64, max_num_tokens = 8 : i64}
func.func @initialize(%ws: memref<?xi8>, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64}
  return
}

// The bounds of the parameters, and static sizes.
// CHECK-LABEL: func.func @bounds
// CHECK: {combine_bytes_per_token = 1 : i64, dispatch_bytes_per_token = 1 : i64, ep_size = 64 : i64, eplb_stats_num_experts = 65536 : i64, max_num_tokens = 1 : i64}
// CHECK: {combine_bytes_per_token = 2147483647 : i64, dispatch_bytes_per_token = 2147483647 : i64, max_num_tokens = 16777216 : i64}
func.func @bounds(%ws: memref<17982848xi8>, %large: memref<?xi8>, %info: memref<?xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<17982848xi8>) metainfo(%info : memref<?xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 1 : i64, dispatch_bytes_per_token = 1 : i64, combine_bytes_per_token = 1 : i64, eplb_stats_num_experts = 65536 : i64, ep_size = 64 : i64}
  moe.initialize workspace(%large : memref<?xi8>) metainfo(%info : memref<?xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 16777216 : i64, dispatch_bytes_per_token = 2147483647 : i64, combine_bytes_per_token = 2147483647 : i64, eplb_stats_num_experts = 0 : i64, ep_size = 0 : i64}
  return
}

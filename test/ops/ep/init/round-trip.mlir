// RUN: moe-opt %s > %t.pretty
// RUN: moe-opt %t.pretty | diff %t.pretty -
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | diff %t.pretty -
// RUN: moe-opt %s --emit-bytecode | moe-opt | diff %t.pretty -
// RUN: FileCheck %s --input-file=%t.pretty

// CHECK-LABEL: func.func @defaults
// CHECK: ep.init counters(%{{[^ ,]+}}, %{{[^ ,]+}} : memref<360xi32>, memref<?xi32>) dev_ptrs(%{{[^ ,]+}} : memref<2x3xi64, #moe.host>) my_rank(%{{[^ ,]+}} : memref<1xi32, #moe.host>) context(%{{[^ ,]+}})
// CHECK-SAME: {hidden_size = 16 : i64, max_token_per_rank = 8 : i64, n_experts = 4 : i64, top_k = 2 : i64}
func.func @defaults(%c0: memref<360xi32>, %c1: memref<?xi32>, %dev: memref<2x3xi64, #moe.host>, %rank: memref<1xi32, #moe.host>, %ctx: !moe.context) {
  ep.init counters(%c0, %c1 : memref<360xi32>, memref<?xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>) my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, n_gpus_per_node = 1 : i64, n_nodes = 1 : i64,
     dispatch_fmt_str = "BF16", dispatch_dtype = "bf16", combine_dtype = "bf16", dispatch_scale_dtype = "f32"}
  return
}

// CHECK-LABEL: func.func @all
// CHECK: dev_ptrs(%{{[^ ,]+}} : memref<?x?xui64, #moe.host>) my_rank(%{{[^ ,]+}} : memref<?xi32, #moe.host>)
// CHECK-SAME: {combine_dtype = "f32", dispatch_scale_dtype = "f8E8M0FNU", hidden_size = 1048576 : i64, max_token_per_rank = 16777216 : i64, my.note = "kept", n_experts = 65536 : i64, top_k = 32 : i64}
func.func @all(%c0: memref<655680xi32>, %c1: memref<655680xi32>, %dev: memref<?x?xui64, #moe.host>, %rank: memref<?xi32, #moe.host>, %ctx: !moe.context) {
  ep.init counters(%c0, %c1 : memref<655680xi32>, memref<655680xi32>) dev_ptrs(%dev : memref<?x?xui64, #moe.host>) my_rank(%rank : memref<?xi32, #moe.host>)
    context(%ctx) {hidden_size = 1048576 : i64, top_k = 32 : i64, n_experts = 65536 : i64, max_token_per_rank = 16777216 : i64, combine_dtype = "f32",
                   dispatch_scale_dtype = "f8E8M0FNU", my.note = "kept"}
  return
}

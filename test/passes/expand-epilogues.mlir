// RUN: moe-opt %s --moe-expand-epilogues | FileCheck %s --implicit-check-not=has_epilogue_fusion
// RUN: moe-opt %s --moe-select-kernels | FileCheck %s --check-prefix=FUSED
// RUN: moe-opt %s --moe-expand-epilogues --moe-select-kernels | FileCheck %s --check-prefix=EXPANDED

// Kernels are told apart by whether they have an epilogue.
// FUSED: moe.kernels = [{{.*}},has_epilogue_fusion=1"
// EXPANDED: moe.kernels = [{{.*}},has_epilogue_fusion=0"

// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @residual
// CHECK-SAME: %[[RESIDUAL:[^:]*]]: memref<?x16xbf16>, %[[OUT:[^:]*]]: memref<?x16xbf16>, %{{[^:]*}}: !moe.context)
// CHECK-NEXT: ep.combine.skip_a2a {{.*}} outs(%[[OUT]] : memref<?x16xbf16>) {{.*}}top_k = 2 : i64}{{$}}
// CHECK-NEXT: linalg.generic {indexing_maps = [#[[ROWS]]], iterator_types = ["parallel", "parallel"]} outs(%[[OUT]] : memref<?x16xbf16>) {
// CHECK-NEXT: ^bb0(%[[VALUE:.*]]: bf16):
// CHECK-DAG: %[[ROW:.*]] = linalg.index 0 : index
// CHECK-DAG: %[[COLUMN:.*]] = linalg.index 1 : index
// CHECK: %[[OTHER:.*]] = memref.load %[[RESIDUAL]][%[[ROW]], %[[COLUMN]]]
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[VALUE]], %[[OTHER]] : bf16
// CHECK-NEXT: linalg.yield %[[SUM]] : bf16
// CHECK-NOT: ep.yield
// CHECK: return
func.func @residual(%c: memref<360xi32>, %x: memref<?x16xbf16>, %sources: memref<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: memref<?x2xf32>, %ids: memref<?x2xi32>,
                    %residual: memref<?x16xbf16>, %out: memref<?x16xbf16>, %ctx: !moe.context) {
  ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xbf16>) src_info(%sources : memref<?x2xi32>)
    buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
    router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
    epilogue {
    ^bb0(%row: index, %column: index, %value: bf16):
      %other = memref.load %residual[%row, %column] : memref<?x16xbf16>
      %sum = arith.addf %value, %other : bf16
      ep.yield %sum : bf16
    }
  return
}

// Inside loops, several times, and with what is computed outside.
// CHECK-LABEL: func.func @repeated
// CHECK: scf.for
// CHECK: ep.combine.skip_a2a
// CHECK-NEXT: linalg.generic
// CHECK: ep.combine.skip_a2a
// CHECK-NEXT: {{^    [}]$}}
func.func @repeated(%c: memref<360xi32>, %x: memref<?x16xf32>, %sources: memref<?x2xi32>, %s: memref<1xi64, #moe.host>, %w: memref<?x2xf32>, %ids: memref<?x2xi32>,
                    %scale: f32, %n: index, %out: memref<?x16xf32>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xf32>) src_info(%sources : memref<?x2xi32>)
      buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
      router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xf32>) context(%ctx)
      {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64, has_epilogue_fusion = true}
      epilogue {
      ^bb0(%row: index, %column: index, %value: f32):
        %product = arith.mulf %value, %scale : f32
        ep.yield %product : f32
      }
    ep.combine.skip_a2a counters(%c : memref<360xi32>) tokens(%x : memref<?x16xf32>) src_info(%sources : memref<?x2xi32>)
      buffers(%s, %s, %s : memref<1xi64, #moe.host>, memref<1xi64, #moe.host>, memref<1xi64, #moe.host>)
      router_weights(%w : memref<?x2xf32>) topk_ids(%ids : memref<?x2xi32>) outs(%out : memref<?x16xf32>) context(%ctx)
      {hidden_size = 16 : i64, top_k = 2 : i64, n_experts = 4 : i64, max_token_per_rank = 8 : i64, allreduce_world_size = 1 : i64}
  }
  return
}

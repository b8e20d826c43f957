// The way of a graph for sm_90a as far as no CUDA toolkit is needed.
// RUN: moe-compile %s --target=sm_90a --emit=mlir --cuda=/nowhere -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: FileCheck %s --input-file=%t.mlir --check-prefix=KERNELS

// Ops of ours are calls, what is not ours are kernels; in one function, in the order of the graph.
// CHECK: gpu.container_module
// CHECK-LABEL: llvm.func @gate(
// CHECK: llvm.call @moert_context_comm
// CHECK: llvm.call @moert_comm_device
// CHECK: llvm.call @moert_context_allocate
// CHECK: gpu.launch_func @[[FILL:.*]]::@{{.*}} blocks in
// CHECK: gpu.launch_func @[[MATMUL:.*]]::@{{.*}} blocks in
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// CHECK: llvm.call @moert_moe_route
// CHECK: llvm.return
// Each kernel has a module, for the processor, with 64-bit offsets.
// CHECK: gpu.module @[[FILL]] [#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx83">]
// CHECK: gpu.module @[[MATMUL]] [#nvvm.target<O = 3, chip = "sm_90a", features = "+ptx83">]
// CHECK: nvvm.read.ptx.sreg
// CHECK: llvm.getelementptr {{.*}} : (!llvm.ptr, i64) -> !llvm.ptr, bf16
// CHECK: llvm.fpext %{{.*}} : bf16 to f32

// Nothing of ours and of upstream's higher levels is left, in either.
// KERNELS-NOT: {{^ *(%.* = )?(moe|ep|linalg|scf|memref|arith|func)\.}}
func.func @gate(%tokens: tensor<?x16xbf16>, %router: tensor<16x8xbf16>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %ctx: !moe.context)
    -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %T = tensor.dim %tokens, %c0 : tensor<?x16xbf16>
  %empty = tensor.empty(%T) : tensor<?x8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %logits = linalg.matmul ins(%tokens, %router : tensor<?x16xbf16>, tensor<16x8xbf16>) outs(%zeros : tensor<?x8xf32>) -> tensor<?x8xf32>
  %chosen:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %chosen#0, %chosen#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

// The copy is made in place. Ops without parallel loops, with reductions before parallel loops, in a loop of the host; views with offsets; elementwise ops on tensors; scf.forall.
// CHECK-LABEL: llvm.func @others(
// CHECK-COUNT-5: gpu.launch_func
// CHECK: llvm.return
func.func @others(%x: tensor<?x?xf32>, %columns: tensor<?xf32>, %total: tensor<f32>, %rows: tensor<?x4xbf16>, %n: index, %ctx: !moe.context)
    -> (tensor<?xf32>, tensor<f32>, tensor<?x4xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%before = %columns) -> tensor<?xf32> {
    %after = linalg.reduce ins(%x : tensor<?x?xf32>) outs(%before : tensor<?xf32>) dimensions = [0] (%a: f32, %b: f32) {
      %sum = arith.addf %a, %b : f32
      linalg.yield %sum : f32
    }
    scf.yield %after : tensor<?xf32>
  }
  %1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%total : tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %a, %b : f32
    linalg.yield %sum : f32
  } -> tensor<f32>
  %m = tensor.dim %rows, %c0 : tensor<?x4xbf16>
  %2 = arith.mulf %rows, %rows : tensor<?x4xbf16>
  %3 = math.exp %2 : tensor<?x4xbf16>
  %4 = linalg.copy ins(%3 : tensor<?x4xbf16>) outs(%rows : tensor<?x4xbf16>) -> tensor<?x4xbf16>
  %5 = scf.forall (%i) in (%m) shared_outs(%out = %4) -> tensor<?x4xbf16> {
    %row = tensor.extract_slice %out[%i, 0] [1, 4] [1, 1] : tensor<?x4xbf16> to tensor<1x4xbf16>
    %first = tensor.extract %row[%c0, %c0] : tensor<1x4xbf16>
    %last = tensor.insert %first into %row[%c0, %c1] : tensor<1x4xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %last into %out[%i, 0] [1, 4] [1, 1] : tensor<1x4xbf16> into tensor<?x4xbf16>
    }
  }
  return %0, %1, %5 : tensor<?xf32>, tensor<f32>, tensor<?x4xbf16>
}

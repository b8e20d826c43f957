// RUN: moe-opt %s --moe-prepare-kernels --split-input-file --verify-diagnostics | FileCheck %s

// Parallel loops first, in their order; then the reductions, in theirs. Maps, kinds of loops and indices follow.
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
// CHECK-DAG: #[[COLUMN:.*]] = affine_map<(d0, d1, d2, d3) -> (d3, d1)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
// CHECK-LABEL: func.func @interleaved(
// CHECK-NOT: scf.parallel
// CHECK: linalg.generic {indexing_maps = [#[[ROW]], #[[COLUMN]], #[[OUT]]], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
// CHECK: linalg.index 2
// CHECK: linalg.index 0
// CHECK: linalg.index 3
// CHECK: linalg.index 1
func.func @interleaved(%x: memref<4x5xindex>, %y: memref<7x6xindex>, %out: memref<4x6xindex>, %ctx: !moe.context) {
  linalg.generic {indexing_maps = [affine_map<(r, i, s, j) -> (i, r)>, affine_map<(r, i, s, j) -> (s, j)>, affine_map<(r, i, s, j) -> (i, j)>],
                  iterator_types = ["reduction", "parallel", "reduction", "parallel"]}
    ins(%x, %y : memref<4x5xindex>, memref<7x6xindex>) outs(%out : memref<4x6xindex>) {
  ^bb0(%a: index, %b: index, %c: index):
    %r = linalg.index 0 : index
    %i = linalg.index 1 : index
    %s = linalg.index 2 : index
    %j = linalg.index 3 : index
    %0 = arith.addi %r, %i : index
    %1 = arith.muli %0, %s : index
    %2 = arith.subi %1, %j : index
    %3 = arith.muli %a, %b : index
    %4 = arith.addi %3, %2 : index
    %5 = arith.addi %4, %c : index
    linalg.yield %5 : index
  }
  return
}

// -----

// What has no parallel loop, to one or no element, gets one of a single iteration, unless it is in one.
// CHECK-LABEL: func.func @total(
// CHECK: scf.parallel (%{{.*}}) = (%c0{{.*}}) to (%c1{{.*}}) step (%c1{{.*}}) {
// CHECK-NEXT: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK: scf.reduce
// CHECK: scf.parallel
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction"]
// CHECK-NOT: scf.parallel
func.func @total(%x: memref<?xf32>, %out: memref<f32>, %outs: memref<8xf32>, %n: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]} ins(%x : memref<?xf32>) outs(%out : memref<f32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  }
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %one = memref.subview %outs[%i] [1] [1] : memref<8xf32> to memref<f32, strided<[], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]} ins(%x : memref<?xf32>)
      outs(%one : memref<f32, strided<[], offset: ?>>) {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
    }
  }
  return
}

// -----

func.func @number(%x: memref<?xf32>, %n: index, %y: memref<1xf32, #moe.host>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{'scf.parallel' op reduces to a number, which host code would need and a kernel cannot return: write it as a linalg.generic that reduces into a tensor}}
  %sum = scf.parallel (%i) = (%c0) to (%n) step (%c1) init (%zero) -> f32 {
    %v = memref.load %x[%i] : memref<?xf32>
    scf.reduce(%v : f32) {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      scf.reduce.return %s : f32
    }
  }
  memref.store %sum, %y[%c0] : memref<1xf32, #moe.host>
  return
}

// -----

// A constant of one value becomes a buffer that is filled where the function begins; host code still reads the constant. Others stay.
memref.global "private" constant @twos : memref<4xf32> = dense<2.0>
memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
// CHECK-LABEL: func.func @constants(
// CHECK-SAME: %[[X:.*]]: memref<4xf32>, %{{.*}}: memref<1xf32, #moe.host>, %[[CTX:.*]]: !moe.context)
// CHECK-NEXT: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK-NEXT: %[[TWOS:.*]] = moe.allocate() context(%[[CTX]]) : memref<4xf32>
// CHECK-NEXT: linalg.fill ins(%[[TWO]] : f32) outs(%[[TWOS]] : memref<4xf32>)
// CHECK-NOT: moe.allocate
// CHECK: %[[HOST:.*]] = memref.get_global @twos
// CHECK: %[[TABLE:.*]] = memref.get_global @table
// CHECK: memref.load %[[HOST]]
// CHECK: linalg.generic {{.*}} ins(%[[TWOS]], %[[TABLE]] :
// CHECK: memref.load %[[TWOS]]
func.func @constants(%x: memref<4xf32>, %y: memref<1xf32, #moe.host>, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %twos = memref.get_global @twos : memref<4xf32>
  %table = memref.get_global @table : memref<4xf32>
  %two = memref.load %twos[%c0] : memref<4xf32>
  memref.store %two, %y[%c0] : memref<1xf32, #moe.host>
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%twos, %table : memref<4xf32>, memref<4xf32>) outs(%x : memref<4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %first = memref.load %twos[%c0] : memref<4xf32>
    %0 = arith.addf %a, %first : f32
    %1 = arith.mulf %0, %b : f32
    linalg.yield %1 : f32
  }
  return
}

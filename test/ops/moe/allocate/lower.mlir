// RUN: moe-opt %s --moe-lower-to-runtime --canonicalize | FileCheck %s
// RUN: moe-opt %s --moe-select-kernels=target=sm_90a --moe-lower-to-runtime --canonicalize | FileCheck %s --check-prefix=GPU

// On a device the arena is the device's: nothing differs.
// GPU: call @moert_context_allocate

// CHECK-LABEL: func.func @allocate
// CHECK-SAME: (%[[ROWS:.*]]: index, %[[CTX:.*]]: !llvm.ptr) -> i32
// CHECK: %[[SLOT:.*]] = memref.alloca() {alignment = 16 : i64} : memref<1xi64>
// CHECK: %[[COUNT:.*]] = arith.index_cast %[[ROWS]] : index to i64
// CHECK: %[[LOW:.*]], %[[HIGH:.*]] = arith.mulsi_extended %{{.*}}, %{{.*}} : i64
// CHECK-DAG: arith.cmpi eq, %[[HIGH]], %c0_i64
// CHECK-DAG: arith.cmpi sge, %[[LOW]], %c0_i64
// CHECK: %[[BYTES:.*]] = arith.select %{{.*}}, %[[LOW]], %c9223372036854775807_i64
// CHECK: %[[STATUS:.*]] = call @moert_context_allocate(%[[CTX]], %[[BYTES]], %{{.*}}) : (!llvm.ptr, i64, !llvm.ptr) -> i32
// CHECK: cf.cond_br %{{.*}}, ^[[REST:.*]], ^{{.*}}(%[[STATUS]] : i32)
// CHECK: ^[[REST]]:
// CHECK: %[[ADDRESS:.*]] = memref.load %[[SLOT]][%c0]
// CHECK: llvm.inttoptr %[[ADDRESS]]
// CHECK: %[[MEMORY:.*]] = builtin.unrealized_conversion_cast %{{.*}} : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> to memref<?xi8>
// CHECK: %[[BUFFER:.*]] = memref.view %[[MEMORY]][%c0][%[[ROWS]]] : memref<?xi8> to memref<?x2x3xf32>
// CHECK: memref.store %{{.*}}, %[[BUFFER]]
func.func @allocate(%rows: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %buffer = moe.allocate(%rows) context(%ctx) : memref<?x2x3xf32>
  memref.store %one, %buffer[%c0, %c0, %c0] : memref<?x2x3xf32>
  return
}

// CHECK-LABEL: func.func @fixed
// CHECK: call @moert_context_allocate(%{{.*}}, %c64_i64, %{{.*}})
func.func @fixed(%ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : bf16
  %buffer = moe.allocate() context(%ctx) : memref<4x8xbf16>
  memref.store %one, %buffer[%c0, %c0] : memref<4x8xbf16>
  return
}

// Bytes that exceed an i64, also of a static size, are a number that no arena has; they do not wrap round to a small one.
// CHECK-LABEL: func.func @overflow
// CHECK: arith.select %{{.*}}, %{{.*}}, %c9223372036854775807_i64
// CHECK: %[[BYTES:.*]] = arith.select %{{.*}}, %{{.*}}, %c9223372036854775807_i64
// CHECK: call @moert_context_allocate(%{{.*}}, %[[BYTES]], %{{.*}})
// CHECK: call @moert_context_allocate(%{{.*}}, %c9223372036854775807_i64, %{{.*}})
func.func @overflow(%rows: index, %columns: index, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : bf16
  %buffer = moe.allocate(%rows, %columns) context(%ctx) : memref<?x?xbf16>
  memref.store %one, %buffer[%c0, %c0] : memref<?x?xbf16>
  %large = moe.allocate() context(%ctx) : memref<4294967296x4294967296xbf16>
  memref.store %one, %large[%c0, %c0] : memref<4294967296x4294967296xbf16>
  return
}

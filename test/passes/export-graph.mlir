// RUN: moe-opt %s --moe-export-graph | FileCheck %s

// Entries take the addresses of the arguments as an array: a buffer's is passed on, a number is loaded.
// CHECK: llvm.mlir.global internal constant @[[NAME:moe.c[0-9]+]]("x\00")
// CHECK: llvm.mlir.global internal constant @{{.*}}(dense<[-1, 16]> : tensor<2xi64>)
// CHECK: llvm.func @moe.entry.f(%[[ARGUMENTS:.*]]: !llvm.ptr, %[[CTX:.*]]: !llvm.ptr) -> i32 {
// CHECK: %[[SLOT0:.*]] = llvm.getelementptr %[[ARGUMENTS]][0]
// CHECK: %[[BUFFER:.*]] = llvm.load %[[SLOT0]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[SLOT1:.*]] = llvm.getelementptr %[[ARGUMENTS]][1]
// CHECK: %[[ADDRESS:.*]] = llvm.load %[[SLOT1]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[NUMBER:.*]] = llvm.load %[[ADDRESS]] : !llvm.ptr -> i64
// CHECK: %[[STATUS:.*]] = llvm.call @_mlir_ciface_f(%[[BUFFER]], %[[NUMBER]], %[[CTX]]) : (!llvm.ptr, i64, !llvm.ptr) -> i32
// CHECK: llvm.return %[[STATUS]] : i32
// moert_argument_info of x: name, bf16 (4 | 16 << 8 | 1 << 16), inout, symmetric, rank 2, shape, symbols, workspace
// CHECK: !llvm.array<2 x struct<(ptr, i64, i64, i64, i64, ptr, ptr, ptr)>>
// CHECK: llvm.mlir.addressof @[[NAME]] : !llvm.ptr
// CHECK: llvm.mlir.constant(69636 : i64)
// CHECK: llvm.mlir.constant(2 : i64)
// CHECK: llvm.mlir.constant(2 : i64)
// CHECK: llvm.mlir.constant(2 : i64)
// n: index is a signed integer of 64 bits, in, a value, rank 0, without shape, symbols and workspace
// CHECK: llvm.mlir.constant(81920 : i64)
// CHECK: llvm.mlir.constant(0 : i64)
// CHECK: llvm.mlir.constant(3 : i64)
// CHECK: llvm.mlir.constant(0 : i64)
// CHECK-COUNT-3: llvm.mlir.zero : !llvm.ptr
// moert_function_info ends with: it can be captured in a CUDA graph
// CHECK: !llvm.array<1 x struct<(ptr, ptr, i64, ptr, i64)>>
// CHECK: llvm.mlir.addressof @moe.entry.f
// CHECK: llvm.mlir.constant(2 : i64)
// CHECK: llvm.mlir.constant(1 : i64)
// moert_graph_description: magic, ABI version, struct_size, target, producer, functions, kernel keys, a slot for the kernel of each
// CHECK: llvm.mlir.global internal constant @{{.*}}("sm_0\00")
// CHECK: llvm.mlir.global internal constant @{{.*}}("moe-mlir {{[0-9.]+}}, LLVM 22.1.{{[0-9]+}}\00")
// CHECK: llvm.mlir.global internal constant @{{.*}}("key/0\00")
// CHECK: llvm.mlir.global internal @moert_kernel_slots() {{.*}} : !llvm.array<1 x ptr> {
// CHECK: llvm.mlir.zero : !llvm.array<1 x ptr>
// CHECK: llvm.mlir.global external constant @moert_graph_info() {{.*}} : !llvm.struct<(i64, i64, i64, ptr, ptr, i64, ptr, i64, ptr, ptr)> {
// CHECK: llvm.mlir.constant(7525640765745295213 : i64)
// CHECK: llvm.mlir.constant(2 : i64)
// CHECK: llvm.mlir.constant(80 : i64)
// CHECK: llvm.mlir.addressof @moert_kernel_slots
module attributes {moe.target = "sm_0", moe.kernels = ["key/0"]} {
  llvm.func @_mlir_ciface_f(%x: !llvm.ptr, %n: i64, %ctx: !llvm.ptr) -> i32 attributes {moe.interface = []} {
    %0 = llvm.mlir.constant(0 : i32) : i32
    llvm.return %0 : i32
  }
  llvm.func @f() attributes {moe.interface = [
      {memory = "symmetric", name = "x", role = "inout", symbols = ["T", ""], type = tensor<?x16xbf16>, workspace = [8, 16, 32, 5, 4]},
      {memory = "value", name = "n", role = "in", symbols = [], type = index}]} {
    llvm.return
  }
}

// RUN: moe-opt %s --moe-declare-interface | FileCheck %s

// Names, default names, dims, roles, memory; only what is not written is read-only.
// CHECK-LABEL: func.func @arguments(
// CHECK-SAME: tensor<?x8xf32> {bufferization.writable = false, moe.dims = ["T"], moe.name = "logits"}
// CHECK-SAME: tensor<?x2xi32> {bufferization.writable = true}
// CHECK-SAME: tensor<?x2xf32> {bufferization.writable = true, moe.dims = [""]}
// CHECK-SAME: memref<16xi64, #moe.host>
// CHECK-SAME: moe.interface = [
// CHECK-SAME: {memory = "device", name = "logits", role = "in", symbols = ["T", ""], type = tensor<?x8xf32>},
// CHECK-SAME: {memory = "device", name = "arg1", role = "out", symbols = ["", ""], type = tensor<?x2xi32>},
// CHECK-SAME: {memory = "device", name = "arg2", role = "out", symbols = ["", ""], type = tensor<?x2xf32>},
// CHECK-SAME: {memory = "host", name = "arg3", role = "inout", symbols = [""], type = memref<16xi64, #moe.host>},
// CHECK-SAME: {memory = "device", name = "arg4", role = "inout", symbols = ["A", "", "B"], type = memref<?x2x?xf8E8M0FNU>},
// CHECK-SAME: {memory = "value", name = "scale", role = "in", symbols = [], type = bf16},
// CHECK-SAME: {memory = "value", name = "arg6", role = "in", symbols = [], type = index}]}
func.func @arguments(%logits: tensor<?x8xf32> {moe.name = "logits", moe.dims = ["T"]}, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32> {moe.dims = [""]},
                     %info: memref<16xi64, #moe.host>, %memory: memref<?x2x?xf8E8M0FNU> {moe.dims = ["A", "B"]}, %scale: bf16 {moe.name = "scale"}, %n: index,
                     %ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = moe.route logits(%logits : tensor<?x8xf32>) outs(%ids, %weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

// A role that the author gives is the role.
// CHECK-LABEL: func.func @roles(
// CHECK-SAME: {bufferization.writable = true, moe.role = "inout"}
// CHECK-SAME: role = "inout"
// CHECK-SAME: role = "in", symbols = [""], type = memref<4xf32>
func.func @roles(%sum: tensor<4xf32> {moe.role = "inout"}, %input: memref<4xf32> {moe.role = "in"}, %ctx: !moe.context) {
  return
}

// Destinations are found behind linalg, control flow, slices and changes of shape.
// CHECK-LABEL: func.func @behind_control_flow(
// CHECK-SAME: role = "in", symbols = [], type = i64
// CHECK-SAME: name = "a", role = "out"
// CHECK-SAME: name = "b", role = "out"
// CHECK-SAME: name = "c", role = "out"
// CHECK-SAME: name = "d", role = "out"
// CHECK-SAME: name = "e", role = "out"
// CHECK-SAME: name = "f", role = "in"
func.func @behind_control_flow(%number: i64, %a: tensor<4xf32> {moe.name = "a"}, %b: tensor<4xf32> {moe.name = "b"}, %c: tensor<8xf32> {moe.name = "c"},
                               %d: tensor<2x2xf32> {moe.name = "d"}, %e: tensor<4xf32> {moe.name = "e"}, %f: tensor<4xf32> {moe.name = "f"}, %ctx: !moe.context)
    -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %choice = arith.trunci %number : i64 to i1
  %0 = scf.if %choice -> tensor<4xf32> {
    %filled = linalg.fill ins(%zero : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %filled : tensor<4xf32>
  } else {
    %added = linalg.add ins(%f, %f : tensor<4xf32>, tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %added : tensor<4xf32>
  }
  %1 = tensor.insert_slice %f into %c[0] [4] [1] : tensor<4xf32> into tensor<8xf32>
  %2 = tensor.collapse_shape %d [[0, 1]] : tensor<2x2xf32> into tensor<4xf32>
  %3 = linalg.copy ins(%f : tensor<4xf32>) outs(%2 : tensor<4xf32>) -> tensor<4xf32>
  %4 = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %e) -> tensor<4xf32> {
    %inserted = tensor.insert %zero into %t[%i] : tensor<4xf32>
    scf.yield %inserted : tensor<4xf32>
  }
  return %0, %1, %3, %4 : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<4xf32>
}

// A workspace is symmetric memory in every function that uses it; what lays it out is known wherever its name is the same.
// CHECK-LABEL: func.func @setup(
// CHECK-SAME: {memory = "symmetric", name = "ws", role = "inout", symbols = [""], type = memref<?xi8>, workspace = [8, 16, 32, 5, 4]}
// CHECK-LABEL: func.func @step(
// CHECK-SAME: {memory = "symmetric", name = "ws", role = "inout", symbols = [""], type = memref<?xi8>, workspace = [8, 16, 32, 5, 4]}
// CHECK-SAME: {memory = "symmetric", name = "other", role = "inout", symbols = [""], type = memref<?xi8>}
func.func @setup(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host>, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 32 : i64, eplb_stats_num_experts = 5 : i64, ep_size = 4 : i64}
  return
}
func.func @step(%x: memref<?x?x16xbf16>, %ws: memref<?xi8> {moe.name = "ws"}, %other: memref<?xi8> {moe.name = "other"}, %info: memref<16xi64, #moe.host>, %max: index, %offset: i64,
                %out: memref<?x16xf32>, %ctx: !moe.context) {
  moe.combine payload(%x : memref<?x?x16xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  moe.combine payload(%x : memref<?x?x16xbf16>) workspace(%other, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : memref<?x16xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 16 : i64}
  return
}

// Private functions and declarations have no interface; public ones may say so.
// CHECK-LABEL: func.func private @helper(%{{.*}}: tensor<4xf32>)
// CHECK-NOT: moe.interface
// CHECK-LABEL: func.func public @exported(
// CHECK-SAME: moe.interface = []
func.func private @helper(%x: tensor<4xf32>) {
  return
}
func.func private @elsewhere(tensor<4xf32>)
func.func public @exported(%ctx: !moe.context) {
  return
}

// The way back from what is returned leads through blocks of a region, and ends where it closes.
// CHECK-LABEL: func.func @blocks(
// CHECK-SAME: tensor<4xf32> {bufferization.writable = true}
func.func @blocks(%out: tensor<4xf32>, %ctx: !moe.context) -> tensor<4xf32> {
  %0 = scf.execute_region -> tensor<4xf32> {
    cf.br ^bb1
  ^bb1:
    scf.yield %out : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @circle(
// CHECK-SAME: tensor<4xf32> {bufferization.writable = true}
func.func @circle(%out: tensor<4xf32>, %ctx: !moe.context) -> tensor<4xf32> {
  return %out : tensor<4xf32>
^bb1:
  %a = tensor.cast %b : tensor<4xf32> to tensor<4xf32>
  %b = tensor.cast %a : tensor<4xf32> to tensor<4xf32>
  return %a : tensor<4xf32>
}

// A loop may have more results than values that go round.
// CHECK-LABEL: func.func @loop(
func.func @loop(%out: tensor<4xf32>, %ctx: !moe.context) -> tensor<4xf32> {
  %false = arith.constant false
  %0:2 = scf.while (%value = %out) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    scf.condition(%false) %value, %value : tensor<4xf32>, tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    scf.yield %a : tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}

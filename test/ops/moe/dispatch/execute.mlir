// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/execute.py all_to_all %t

// Two payloads, counts; rows beyond the counts keep what was there. Ids of -1 go nowhere; some ranks have no tokens. The combine lets the next call follow.
// RUN: moe-run %t.so --function setup --function step --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input scales=%t/1/scales{rank}.npy --input max=6 --input recv=%t/1/old{rank}.npy --input recv_scales=%t/1/old_scales{rank}.npy --expect recv=%t/1/recv{rank}.npy --expect recv_scales=%t/1/recv_scales{rank}.npy --expect counts=%t/1/counts{rank}.npy --expect out=%t/1/back{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function setup --function step --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input scales=%t/2/scales{rank}.npy --input max=6 --input recv=%t/2/old{rank}.npy --input recv_scales=%t/2/old_scales{rank}.npy --expect recv=%t/2/recv{rank}.npy --expect recv_scales=%t/2/recv_scales{rank}.npy --expect counts=%t/2/counts{rank}.npy --expect out=%t/2/back{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 4 --function setup --function step --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input scales=%t/4/scales{rank}.npy --input max=6 --input recv=%t/4/old{rank}.npy --input recv_scales=%t/4/old_scales{rank}.npy --expect recv=%t/4/recv{rank}.npy --expect recv_scales=%t/4/recv_scales{rank}.npy --expect counts=%t/4/counts{rank}.npy --expect out=%t/4/back{rank}.npy --repeat 3

// Grouped by expert.
// RUN: moe-run %t.so --function setup --function grouped --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input weights=%t/1/weights{rank}.npy --input max=6 --input rows=%t/1/old_rows{rank}.npy --expect rows=%t/1/rows{rank}.npy --expect offsets=%t/1/offsets{rank}.npy --size offsets.0=6 --expect weighted=%t/1/weighted{rank}.npy
// RUN: moe-run %t.so --ranks 4 --function setup --function grouped --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input weights=%t/4/weights{rank}.npy --input max=6 --input rows=%t/4/old_rows{rank}.npy --expect rows=%t/4/rows{rank}.npy --expect offsets=%t/4/offsets{rank}.npy --size offsets.0=3,2,2,2 --expect weighted=%t/4/weighted{rank}.npy --repeat 3

// Without the setup, and with more tokens than the layout has room for: errors of the op, on every rank.
// RUN: not moe-run %t.so --ranks 2 --function step --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input scales=%t/2/scales{rank}.npy --input max=6 --input recv=%t/2/old{rank}.npy --input recv_scales=%t/2/old_scales{rank}.npy --size ws.0=65536 2>&1 | FileCheck %s --check-prefix=SETUP
// SETUP: moe-run: all ranks: step: MOERT_ERROR_INVALID_STATE {{.*}}: moe.dispatch: operand 'metainfo' does not describe operand 'workspace': pass the two that one moe.initialize on this communicator was given{{$}}
// RUN: not moe-run %t.so --ranks 2 --function setup --function step --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input scales=%t/2/scales{rank}.npy --input max=9 --input recv=%t/2/old{rank}.npy --input recv_scales=%t/2/old_scales{rank}.npy 2>&1 | FileCheck %s --check-prefix=TOKENS
// TOKENS: moe-run: all ranks: step: MOERT_ERROR_CAPACITY {{.*}}: moe.dispatch: operand 'runtime_max_tokens_per_rank' is 9, must be at most 8, the max_num_tokens of the workspace{{$}}

func.func @setup(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"}, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 24 : i64, combine_bytes_per_token = 16 : i64}
  return
}

func.func @step(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]},
                %scales: tensor<?xui8> {moe.name = "scales", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"},
                %max: index {moe.name = "max"}, %recv: tensor<?x6x8xbf16> {moe.name = "recv", moe.dims = ["R"], moe.role = "inout"},
                %recv_scales: tensor<?x6xui8> {moe.name = "recv_scales", moe.dims = ["R"], moe.role = "inout"},
                %counts: tensor<?xi32> {moe.name = "counts", moe.dims = ["R"]}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]}, %ctx: !moe.context)
    -> (tensor<?x6x8xbf16>, tensor<?x6xui8>, tensor<?xi32>, tensor<?x8xf32>) {
  %0:4 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x, %scales : tensor<?x8xbf16>, tensor<?xui8>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%recv, %recv_scales : tensor<?x6x8xbf16>, tensor<?x6xui8>)
    recv_counts(%counts : tensor<?xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, tensor<?x6xui8>, tensor<?xi32>, i64)
  %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#3)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %0#0, %0#1, %0#2, %1 : tensor<?x6x8xbf16>, tensor<?x6xui8>, tensor<?xi32>, tensor<?x8xf32>
}

func.func @grouped(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]},
                   %weights: tensor<?x2xf32> {moe.name = "weights", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
                   %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %rows: tensor<24x8xbf16> {moe.name = "rows", moe.role = "inout"},
                   %offsets: tensor<?xi32> {moe.name = "offsets"}, %out: tensor<?x8xf32> {moe.name = "weighted", moe.dims = ["T"]}, %ctx: !moe.context)
    -> (tensor<24x8xbf16>, tensor<?xi32>, tensor<?x8xf32>) {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) topk_weights(%weights : tensor<?x2xf32>) payloads(%x : tensor<?x8xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) outs(%rows : tensor<24x8xbf16>) offsets(%offsets : tensor<?xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64, layout = "expert_grouped"} -> (tensor<24x8xbf16>, tensor<?xi32>, i64)
  %1 = moe.combine payload(%0#0 : tensor<24x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#2)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64, layout = "expert_grouped"} -> tensor<?x8xf32>
  return %0#0, %0#1, %1 : tensor<24x8xbf16>, tensor<?xi32>, tensor<?x8xf32>
}

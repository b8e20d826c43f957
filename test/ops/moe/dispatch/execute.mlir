// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/execute.py all_to_all %t

// Two payloads, counts; rows beyond the counts keep what was there. Ids of -1 go nowhere; some ranks have no tokens. The combine lets the next call follow.
// RUN: moe-run %t.so --function setup --function step --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input scales=%t/1/scales{rank}.npy --input max=6 --input recv=%t/1/old{rank}.npy --input recv_scales=%t/1/old_scales{rank}.npy --expect recv=%t/1/recv{rank}.npy --expect recv_scales=%t/1/recv_scales{rank}.npy --expect counts=%t/1/counts{rank}.npy --expect out=%t/1/back{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function setup --function step --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input scales=%t/2/scales{rank}.npy --input max=6 --input recv=%t/2/old{rank}.npy --input recv_scales=%t/2/old_scales{rank}.npy --expect recv=%t/2/recv{rank}.npy --expect recv_scales=%t/2/recv_scales{rank}.npy --expect counts=%t/2/counts{rank}.npy --expect out=%t/2/back{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 4 --function setup --function step --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input scales=%t/4/scales{rank}.npy --input max=6 --input recv=%t/4/old{rank}.npy --input recv_scales=%t/4/old_scales{rank}.npy --expect recv=%t/4/recv{rank}.npy --expect recv_scales=%t/4/recv_scales{rank}.npy --expect counts=%t/4/counts{rank}.npy --expect out=%t/4/back{rank}.npy --repeat 3

// Grouped by expert.
// RUN: moe-run %t.so --function setup --function grouped --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input weights=%t/1/weights{rank}.npy --input max=6 --input rows=%t/1/old_rows{rank}.npy --expect rows=%t/1/rows{rank}.npy --expect offsets=%t/1/offsets{rank}.npy --size offsets.0=6 --expect weighted=%t/1/weighted{rank}.npy
// RUN: moe-run %t.so --ranks 4 --function setup --function grouped --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input weights=%t/4/weights{rank}.npy --input max=6 --input rows=%t/4/old_rows{rank}.npy --expect rows=%t/4/rows{rank}.npy --expect offsets=%t/4/offsets{rank}.npy --size offsets.0=3,2,2,2 --expect weighted=%t/4/weighted{rank}.npy --repeat 3

// Rank 2 is left out by the others, and takes part in a round of its own: nothing goes between them. Payloads and counts of both layouts.
// DEFINE: %{masked} = moe-run %t.so --ranks 4 --function setup --input ids=%t/masked/ids{rank}.npy --input x=%t/masked/x{rank}.npy --input mask=11,11,4,11 --input max=6
// RUN: %{masked} --function masked --input scales=%t/masked/scales{rank}.npy --input recv=%t/masked/old{rank}.npy --input recv_scales=%t/masked/old_scales{rank}.npy --expect recv=%t/masked/recv{rank}.npy --expect recv_scales=%t/masked/recv_scales{rank}.npy --expect counts=%t/masked/counts{rank}.npy --expect out=%t/masked/back{rank}.npy --repeat 3
// RUN: %{masked} --function masked_grouped --input weights=%t/masked/weights{rank}.npy --input rows=%t/masked/old_rows{rank}.npy --expect rows=%t/masked/rows{rank}.npy --expect offsets=%t/masked/offsets{rank}.npy --size offsets.0=3,2,2,2 --expect weighted=%t/masked/weighted{rank}.npy --repeat 3
// A rank that calls without its own bit, one that is no rank, and ranks that came back.
// DEFINE: %{refused} = moe-run %t.so --ranks 4 --function setup --input ids=%t/masked/ids{rank}.npy --input x=%t/masked/x{rank}.npy --input max=6 --input scales=%t/masked/scales{rank}.npy --input recv=%t/masked/old{rank}.npy --input recv_scales=%t/masked/old_scales{rank}.npy
// RUN: not %{refused} --function masked --input mask=14,13,11,7 2>&1 | FileCheck %s --check-prefix=OWN
// OWN: moe-run: rank 0: masked: MOERT_ERROR_INVALID_ARGUMENT {{.*}}: moe.dispatch: operand 'active_rank_mask' is 0xe, must have bit 0: that of the calling rank{{$}}
// OWN: moe-run: rank 2: masked: MOERT_ERROR_INVALID_ARGUMENT {{.*}}: moe.dispatch: operand 'active_rank_mask' is 0xb, must have bit 2: that of the calling rank{{$}}
// RUN: not %{refused} --function masked --input mask=31 2>&1 | FileCheck %s --check-prefix=BEYOND
// BEYOND: moe-run: all ranks: masked: MOERT_ERROR_INVALID_ARGUMENT {{.*}}: moe.dispatch: operand 'active_rank_mask' is 0x1f, must be less than 0x10: the communicator has 4 ranks{{$}}
// RUN: not %{refused} --function masked --function step --input mask=3,3,12,12 2>&1 | FileCheck %s --check-prefix=BACK
// BACK: moe-run: rank 0: step: MOERT_ERROR_INVALID_STATE {{.*}}: moe.dispatch: rank 2 was left out of the dispatch before by its 'active_rank_mask' 0x3: call moe.initialize on all ranks before it takes part again{{$}}
// BACK: moe-run: rank 2: step: MOERT_ERROR_INVALID_STATE {{.*}}: moe.dispatch: rank 0 was left out of the dispatch before by its 'active_rank_mask' 0xc: call moe.initialize on all ranks before it takes part again{{$}}

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

func.func @masked(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]},
                %scales: tensor<?xui8> {moe.name = "scales", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"},
                %max: index {moe.name = "max"}, %mask: i64 {moe.name = "mask"}, %recv: tensor<?x6x8xbf16> {moe.name = "recv", moe.dims = ["R"], moe.role = "inout"},
                %recv_scales: tensor<?x6xui8> {moe.name = "recv_scales", moe.dims = ["R"], moe.role = "inout"},
                %counts: tensor<?xi32> {moe.name = "counts", moe.dims = ["R"]}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]}, %ctx: !moe.context)
    -> (tensor<?x6x8xbf16>, tensor<?x6xui8>, tensor<?xi32>, tensor<?x8xf32>) {
  %0:4 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x, %scales : tensor<?x8xbf16>, tensor<?xui8>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) active_ranks(%mask) outs(%recv, %recv_scales : tensor<?x6x8xbf16>, tensor<?x6xui8>)
    recv_counts(%counts : tensor<?xi32>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, tensor<?x6xui8>, tensor<?xi32>, i64)
  %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#3)
    active_ranks(%mask) outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %0#0, %0#1, %0#2, %1 : tensor<?x6x8xbf16>, tensor<?x6xui8>, tensor<?xi32>, tensor<?x8xf32>
}

func.func @masked_grouped(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]},
                   %weights: tensor<?x2xf32> {moe.name = "weights", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
                   %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %mask: i64 {moe.name = "mask"}, %rows: tensor<24x8xbf16> {moe.name = "rows", moe.role = "inout"},
                   %offsets: tensor<?xi32> {moe.name = "offsets"}, %out: tensor<?x8xf32> {moe.name = "weighted", moe.dims = ["T"]}, %ctx: !moe.context)
    -> (tensor<24x8xbf16>, tensor<?xi32>, tensor<?x8xf32>) {
  %0:3 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) topk_weights(%weights : tensor<?x2xf32>) payloads(%x : tensor<?x8xbf16>)
    workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) active_ranks(%mask) outs(%rows : tensor<24x8xbf16>) offsets(%offsets : tensor<?xi32>)
    context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64, layout = "expert_grouped"} -> (tensor<24x8xbf16>, tensor<?xi32>, i64)
  %1 = moe.combine payload(%0#0 : tensor<24x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#2)
    active_ranks(%mask) outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64, layout = "expert_grouped"} -> tensor<?x8xf32>
  return %0#0, %0#1, %1 : tensor<24x8xbf16>, tensor<?xi32>, tensor<?x8xf32>
}

// RUN: moe-compile %s -o %t.so
// RUN: %python %S/../Inputs/execute.py all_to_all %t

// The experts of a rank write their rows where the combine sends them from, or into a buffer of their own: the same result.
// RUN: moe-run %t.so --function setup --function in_workspace --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input max=6 --expect out=%t/1/back{rank}.npy
// RUN: moe-run %t.so --function setup --function in_buffer --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input max=6 --expect out=%t/1/back{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function setup --function in_workspace --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 --expect out=%t/2/back{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 2 --function setup --function in_buffer --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 --expect out=%t/2/back{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 4 --function setup --function in_workspace --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input max=6 --expect out=%t/4/back{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 4 --function setup --function in_buffer --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input max=6 --expect out=%t/4/back{rank}.npy --repeat 3

// A loop of dispatch and combine in one call: layouts and sums of several rounds do not mix.
// RUN: moe-run %t.so --function setup --function rounds --input ids=%t/1/ids{rank}.npy --input x=%t/1/x{rank}.npy --input max=6 --expect out=%t/1/back{rank}.npy --input rounds=4 --repeat 3
// RUN: moe-run %t.so --ranks 4 --function setup --function rounds --input ids=%t/4/ids{rank}.npy --input x=%t/4/x{rank}.npy --input max=6 --expect out=%t/4/back{rank}.npy --input rounds=4 --repeat 3

// Rows that travel as E4M3, from the workspace; sums that leave as NVFP4, the padding of their scales as zeros.
// DEFINE: %{ranks} = 1
// DEFINE: %{wide} = moe-run %t.so --quiet --ranks %{ranks} --repeat 3 --function setup --input ids=%t/%{ranks}/ids{rank}.npy --input wide=%t/%{ranks}/wide{rank}.npy --input max=6
// DEFINE: %{codes} = --function codes --input scales=%t/%{ranks}/old_code_scales{rank}.npy --expect codes=%t/%{ranks}/codes{rank}.npy --expect scales=%t/%{ranks}/code_scales{rank}.npy
// RUN: %{wide} --function low_precision --expect low=%t/%{ranks}/low{rank}.npy
// RUN: %{wide} %{codes}
// REDEFINE: %{ranks} = 2
// RUN: %{wide} --function low_precision --expect low=%t/%{ranks}/low{rank}.npy
// RUN: %{wide} %{codes}
// REDEFINE: %{ranks} = 4
// RUN: %{wide} --function low_precision --expect low=%t/%{ranks}/low{rank}.npy
// RUN: %{wide} %{codes}

// Scales for fewer tokens are an error of the op.
// RUN: not moe-run %t.so --function setup --function codes --input ids=%t/1/ids0.npy --input wide=%t/1/wide0.npy --input max=6 --size P=4 --random 1 2>&1 | FileCheck %s --check-prefix=SCALES
// SCALES: moe-run: rank 0: codes: MOERT_ERROR_INVALID_SHAPE {{.*}}: moe.combine: operand 'output_scales' dimension 0 is 4, must equal the tokens of the dispatch up to a multiple of 8 = 8{{$}}

// A combine that no dispatch went before, and one that does not fit its dispatch, are errors of the op.
// RUN: not moe-run %t.so --ranks 2 --function setup --function alone --input x=%t/2/x{rank}.npy --input max=6 --random 1 2>&1 | FileCheck %s --check-prefix=ALONE
// ALONE: moe-run: all ranks: alone: MOERT_ERROR_INVALID_STATE {{.*}}: moe.combine: no dispatch on this workspace waits for its combine: call moe.dispatch first{{$}}
// RUN: not moe-run %t.so --ranks 2 --function setup --function unequal --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 2>&1 | FileCheck %s --check-prefix=UNEQUAL
// UNEQUAL: moe-run: all ranks: unequal: MOERT_ERROR_INVALID_STATE {{.*}}: moe.combine: parameter 'top_k' is 3, must be 2 as in the dispatch{{$}}

// A mask of ranks goes with its dispatch: without it the combine is refused, and so is another.
// RUN: moe-run %t.so --ranks 4 --function setup --function masked --input ids=%t/masked/ids{rank}.npy --input x=%t/masked/x{rank}.npy --input max=6 --input mask=11,11,4,11 --input combined=11,11,4,11 --expect out=%t/masked/back{rank}.npy --repeat 3
// RUN: not moe-run %t.so --ranks 4 --function setup --function masked --input ids=%t/masked/ids{rank}.npy --input x=%t/masked/x{rank}.npy --input max=6 --input mask=15 --input combined=11,11,14,13 2>&1 | FileCheck %s --check-prefix=MASK
// MASK: moe-run: rank 0: masked: MOERT_ERROR_INVALID_STATE {{.*}}: moe.combine: operand 'active_rank_mask' is 0xb, must be 0xf as in the dispatch{{$}}
// MASK: moe-run: rank 2: masked: MOERT_ERROR_INVALID_STATE {{.*}}: moe.combine: operand 'active_rank_mask' is 0xe, must be 0xf as in the dispatch{{$}}
// RUN: not moe-run %t.so --ranks 4 --function setup --function forgotten --input ids=%t/masked/ids{rank}.npy --input x=%t/masked/x{rank}.npy --input max=6 --input mask=11,11,4,11 2>&1 | FileCheck %s --check-prefix=ABSENT
// ABSENT: moe-run: rank 0: forgotten: MOERT_ERROR_INVALID_STATE {{.*}}: moe.combine: operand 'active_rank_mask' is 0xf, as it is absent, must be 0xb as in the dispatch{{$}}
// ABSENT: moe-run: rank 2: forgotten: MOERT_ERROR_INVALID_STATE {{.*}}: moe.combine: operand 'active_rank_mask' is 0xf, as it is absent, must be 0x4 as in the dispatch{{$}}

// A rank that stops in its combine, in whatever phase, has its peers wait for its data.
// RUN: not moe-run %t.so --ranks 2 --function setup --function in_buffer --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 --timeout 1 --quiet --stop 1@moe.combine:entry 2>&1 | FileCheck %s --check-prefix=STOP -DPHASE=entry
// RUN: not moe-run %t.so --ranks 2 --function setup --function in_buffer --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 --timeout 1 --quiet --stop 1@moe.combine:counts 2>&1 | FileCheck %s --check-prefix=STOP -DPHASE=counts
// RUN: not moe-run %t.so --ranks 2 --function setup --function in_buffer --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 --timeout 1 --quiet --stop 1@moe.combine:data 2>&1 | FileCheck %s --check-prefix=STOP -DPHASE=data
// RUN: not moe-run %t.so --ranks 2 --function setup --function in_buffer --input ids=%t/2/ids{rank}.npy --input x=%t/2/x{rank}.npy --input max=6 --timeout 1 --quiet --stop 1@moe.combine:flag 2>&1 | FileCheck %s --check-prefix=STOP -DPHASE=flag
// STOP: moe-run: rank 0: in_buffer: MOERT_ERROR_PEER_TIMEOUT {{.*}}: moe.combine: rank 0 waited 1000 ms for rank 1 (its data, epoch 2){{$}}
// STOP-NEXT: moe-run: rank 1: stopped at moe.combine:[[PHASE]]{{$}}

func.func @setup(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"}, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 64 : i64, combine_bytes_per_token = 64 : i64}
  return
}

func.func @in_workspace(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x8xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%empty : tensor<?x6x8xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, i64)
  %view = moe.workspace_view %ws[%0#1 : i64] sizes(%ranks) context(%ctx) : memref<?xi8> to memref<?x6x8xbf16>
  %area = bufferization.to_tensor %view restrict writable : memref<?x6x8xbf16> to tensor<?x6x8xbf16>
  %rows = linalg.copy ins(%0#0 : tensor<?x6x8xbf16>) outs(%area : tensor<?x6x8xbf16>) -> tensor<?x6x8xbf16>
  %1 = moe.combine payload(%rows : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64, payload_in_workspace = true} -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// The number of ranks, from the 4 bytes of a counter that each has in the workspace: two sizes whose parameters differ by one expert of the statistics.
func.func private @ranks(%ctx: !moe.context) -> index {
  %c128 = arith.constant 128 : index
  %without = moe.workspace_size context(%ctx) {max_num_tokens = 1 : i64, dispatch_bytes_per_token = 1 : i64, combine_bytes_per_token = 1 : i64}
  %with = moe.workspace_size context(%ctx) {max_num_tokens = 1 : i64, dispatch_bytes_per_token = 1 : i64, combine_bytes_per_token = 1 : i64, eplb_stats_num_experts = 32 : i64}
  %difference = arith.subi %with, %without : index
  %ranks = arith.divui %difference, %c128 : index
  return %ranks : index
}

func.func @in_buffer(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x8xf32> {
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x8xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%empty : tensor<?x6x8xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, i64)
  %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

func.func @low_precision(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x32xbf16> {moe.name = "wide", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %out: tensor<?x32xf32> {moe.name = "low", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x32xf32> {
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x32xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%empty : tensor<?x6x32xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x32xbf16>, i64)
  %view = moe.workspace_view %ws[%0#1 : i64] sizes(%ranks) context(%ctx) : memref<?xi8> to memref<?x6x32xbf16>
  %area = bufferization.to_tensor %view restrict writable : memref<?x6x32xbf16> to tensor<?x6x32xbf16>
  %rows = linalg.copy ins(%0#0 : tensor<?x6x32xbf16>) outs(%area : tensor<?x6x32xbf16>) -> tensor<?x6x32xbf16>
  %1 = moe.combine payload(%rows : tensor<?x6x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x32xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 32 : i64, payload_in_workspace = true, use_low_precision = true} -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}

func.func @codes(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x32xbf16> {moe.name = "wide", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %out: tensor<?x16xi8> {moe.name = "codes", moe.dims = ["T"]},
              %scales: tensor<?x4xf8E4M3FN> {moe.name = "scales", moe.dims = ["P"], moe.role = "inout"}, %ctx: !moe.context) -> (tensor<?x16xi8>, tensor<?x4xf8E4M3FN>) {
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x32xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%empty : tensor<?x6x32xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x32xbf16>, i64)
  %1:2 = moe.combine payload(%0#0 : tensor<?x6x32xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x16xi8>) output_scales(%scales : tensor<?x4xf8E4M3FN>) context(%ctx)
    {top_k = 2 : i64, hidden_size = 32 : i64, output_format = "nvfp4", sf_layout = "8x4", output_scalar_scale = 3.5} -> tensor<?x16xi8>, tensor<?x4xf8E4M3FN>
  return %1#0, %1#1 : tensor<?x16xi8>, tensor<?x4xf8E4M3FN>
}

func.func @rounds(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %rounds: index {moe.name = "rounds"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %result = scf.for %round = %c0 to %rounds step %c1 iter_args(%sum = %out) -> tensor<?x8xf32> {
    %empty = tensor.empty(%ranks) : tensor<?x6x8xbf16>
    %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
      max_tokens(%max : index) outs(%empty : tensor<?x6x8xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, i64)
    %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
      outs(%sum : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
    scf.yield %1 : tensor<?x8xf32>
  }
  return %result : tensor<?x8xf32>
}

func.func @alone(%x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %payload: tensor<2x6x8xbf16> {moe.name = "payload"}, %ws: memref<?xi8> {moe.name = "ws"},
                 %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
                 %ctx: !moe.context) -> tensor<?x8xf32> {
  %offset = arith.constant 0 : i64
  %0 = moe.combine payload(%payload : tensor<2x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%offset)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

func.func @unequal(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x8xf32> {
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x8xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) outs(%empty : tensor<?x6x8xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, i64)
  %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 3 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

func.func @masked(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %mask: i64 {moe.name = "mask"}, %combined: i64 {moe.name = "combined"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x8xf32> {
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x8xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) active_ranks(%mask) outs(%empty : tensor<?x6x8xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, i64)
  %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    active_ranks(%combined) outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

func.func @forgotten(%ids: tensor<?x2xi32> {moe.name = "ids", moe.dims = ["T"]}, %x: tensor<?x8xbf16> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"},
              %info: memref<16xi64, #moe.host> {moe.name = "info"}, %max: index {moe.name = "max"}, %mask: i64 {moe.name = "mask"}, %out: tensor<?x8xf32> {moe.name = "out", moe.dims = ["T"]},
              %ctx: !moe.context) -> tensor<?x8xf32> {
  %ranks = func.call @ranks(%ctx) : (!moe.context) -> index
  %empty = tensor.empty(%ranks) : tensor<?x6x8xbf16>
  %0:2 = moe.dispatch topk_ids(%ids : tensor<?x2xi32>) payloads(%x : tensor<?x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>)
    max_tokens(%max : index) active_ranks(%mask) outs(%empty : tensor<?x6x8xbf16>) context(%ctx) {top_k = 2 : i64, n_experts = 5 : i64} -> (tensor<?x6x8xbf16>, i64)
  %1 = moe.combine payload(%0#0 : tensor<?x6x8xbf16>) workspace(%ws, %info : memref<?xi8>, memref<16xi64, #moe.host>) max_tokens(%max : index) offset(%0#1)
    outs(%out : tensor<?x8xf32>) context(%ctx) {top_k = 2 : i64, hidden_size = 8 : i64} -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// A dispatch and its combine, with experts that change nothing; again with an epilogue, twice the sum of value and residual. Repeated on the same counters.

// DEFINE: %{ranks}=1
// DEFINE: %{tokens}=5
// DEFINE: %{shared}=0
// DEFINE: %{t}=%t.%{ranks}.%{tokens}.%{shared}
// DEFINE: %{compile}=%python %S/../Inputs/execute.py %s %{t} %{ranks} %{tokens} %{shared} && moe-compile %{t}/graph.mlir -o %{t}/graph.so
// DEFINE: %{run}=moe-run %{t}/graph.so --ranks %{ranks} --function setup --function fused --function round --input x=%{t}/x{rank}.npy --input ids=%{t}/ids{rank}.npy --input w=%{t}/weights{rank}.npy --input residual=%{t}/residual{rank}.npy --size R=70 --expect part=%{t}/part{rank}.npy --expect doubled=%{t}/doubled{rank}.npy --expect counters=%{t}/counters{rank}.npy --repeat 3 --quiet
// RUN: %{compile} && %{run}

// REDEFINE: %{shared}=1
// RUN: %{compile} && %{run}

// REDEFINE: %{ranks}=2
// REDEFINE: %{shared}=0
// RUN: %{compile} && %{run}

// REDEFINE: %{tokens}=7
// REDEFINE: %{shared}=1
// RUN: %{compile} && %{run}

// REDEFINE: %{ranks}=4
// REDEFINE: %{tokens}=13
// RUN: %{compile} && %{run}

// REDEFINE: %{tokens}=3
// RUN: %{compile} && %{run}

// REDEFINE: %{tokens}=0
// REDEFINE: %{shared}=0
// RUN: %{compile} && %{run}

// REDEFINE: %{ranks}=8
// REDEFINE: %{shared}=1
// RUN: %{compile} && %{run}

// REDEFINE: %{tokens}=13
// RUN: %{compile} && %{run}

// The comparison sees a difference.
// RUN: not moe-run %t.1.5.1/graph.so --function setup --function round --input x=%t.1.5.1/x{rank}.npy --input ids=%t.1.5.1/ids{rank}.npy --input w=%t.1.5.1/weights{rank}.npy --size R=70 --expect part=%t.1.5.0/part{rank}.npy

func.func @setup(%c: memref<340xi32> {moe.name = "counters"}, %others: memref<340xi32> {moe.name = "others"}, %dev: memref<2x3xi64, #moe.host> {moe.name = "dev_ptrs"},
                 %number: memref<1xi32, #moe.host> {moe.name = "my_rank"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"}, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  ep.init counters(%c, %others : memref<340xi32>, memref<340xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>) my_rank(%number : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64}
  %i32 = memref.load %number[%c0] : memref<1xi32, #moe.host>
  %rank = arith.index_cast %i32 : i32 to index
  scf.for %group = %c0 to %c2 step %c1 {
    scf.for %buffer = %c0 to %c3 step %c1 {
      %address = memref.load %dev[%group, %buffer] : memref<2x3xi64, #moe.host>
      memref.store %address, %tables[%group, %buffer, %rank] : memref<2x3x@W@xi64, #moe.host>
    }
  }
  return
}

func.func @round(%c: memref<340xi32> {moe.name = "counters"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"},
    %x: tensor<?x16xbf16> {moe.name = "x", moe.dims = ["T"]}, %ids: tensor<?x3xi32> {moe.name = "ids", moe.dims = ["T"]}, %w: tensor<?x3xf32> {moe.name = "w", moe.dims = ["T"]},
    %rows: tensor<?x16xbf16> {moe.name = "rows", moe.dims = ["R"], moe.role = "inout"}, %sources: tensor<?x2xi32> {moe.name = "sources", moe.dims = ["R"], moe.role = "inout"},
    %out: tensor<?x16xbf16> {moe.name = "part", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %send = memref.subview %tables[%c0, %c0, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %recv = memref.subview %tables[%c0, %c1, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %count = memref.subview %tables[%c0, %c2, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %csend = memref.subview %tables[%c1, %c0, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %crecv = memref.subview %tables[%c1, %c1, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %ccount = memref.subview %tables[%c1, %c2, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %offsets = tensor.empty() : tensor<@ENDS@xi32>
  %experts = tensor.empty() : tensor<@GROUPS@xi32>
  %0:4 = ep.dispatch counters(%c : memref<340xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x3xi32>)
    buffers(%send, %recv, %count : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64} -> tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>
  %1 = ep.combine.skip_a2a counters(%c : memref<340xi32>) tokens(%0#0 : tensor<?x16xbf16>) src_info(%0#3 : tensor<?x2xi32>)
    buffers(%csend, %crecv, %ccount : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    router_weights(%w : tensor<?x3xf32>) topk_ids(%ids : tensor<?x3xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64} -> tensor<?x16xbf16>
  return %1 : tensor<?x16xbf16>
}

func.func @fused(%c: memref<340xi32> {moe.name = "counters"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"},
    %x: tensor<?x16xbf16> {moe.name = "x", moe.dims = ["T"]}, %ids: tensor<?x3xi32> {moe.name = "ids", moe.dims = ["T"]}, %w: tensor<?x3xf32> {moe.name = "w", moe.dims = ["T"]},
    %rows: tensor<?x16xbf16> {moe.name = "rows", moe.dims = ["R"], moe.role = "inout"}, %sources: tensor<?x2xi32> {moe.name = "sources", moe.dims = ["R"], moe.role = "inout"},
    %residual: tensor<?x16xbf16> {moe.name = "residual", moe.dims = ["T"]}, %out: tensor<?x16xbf16> {moe.name = "doubled", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x16xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %send = memref.subview %tables[%c0, %c0, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %recv = memref.subview %tables[%c0, %c1, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %count = memref.subview %tables[%c0, %c2, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %csend = memref.subview %tables[%c1, %c0, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %crecv = memref.subview %tables[%c1, %c1, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %ccount = memref.subview %tables[%c1, %c2, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %offsets = tensor.empty() : tensor<@ENDS@xi32>
  %experts = tensor.empty() : tensor<@GROUPS@xi32>
  %0:4 = ep.dispatch counters(%c : memref<340xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x3xi32>)
    buffers(%send, %recv, %count : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64} -> tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>
  %1 = ep.combine.skip_a2a counters(%c : memref<340xi32>) tokens(%0#0 : tensor<?x16xbf16>) src_info(%0#3 : tensor<?x2xi32>)
    buffers(%csend, %crecv, %ccount : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    router_weights(%w : tensor<?x3xf32>) topk_ids(%ids : tensor<?x3xi32>) outs(%out : tensor<?x16xbf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64, has_epilogue_fusion = true} epilogue {
    ^bb0(%row: index, %column: index, %value: bf16):
      %other = tensor.extract %residual[%row, %column] : tensor<?x16xbf16>
      %sum = arith.addf %value, %other : bf16
      %twice = arith.addf %sum, %sum : bf16
      ep.yield %twice : bf16
    } -> tensor<?x16xbf16>
  return %1 : tensor<?x16xbf16>
}

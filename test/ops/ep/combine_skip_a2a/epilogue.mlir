// Epilogues of f16 and f32: a value of the column is added, one of the row is subtracted.

// DEFINE: %{ranks}=1
// DEFINE: %{tokens}=5
// DEFINE: %{shared}=0
// DEFINE: %{t}=%t.%{ranks}.%{tokens}.%{shared}
// DEFINE: %{compile}=%python %S/../Inputs/execute.py %s %{t} %{ranks} %{tokens} %{shared} && moe-compile %{t}/graph.mlir -o %{t}/graph.so
// DEFINE: %{run}=moe-run %{t}/graph.so --ranks %{ranks} --function setup --function half --function single --input x=%{t}/x{rank}.npy --input ids=%{t}/ids{rank}.npy --input w=%{t}/weights{rank}.npy --size R=70 --expect f16=%{t}/f16{rank}.npy --expect f32=%{t}/f32{rank}.npy --repeat 2 --quiet
// RUN: %{compile} && %{run}

// REDEFINE: %{ranks}=2
// REDEFINE: %{tokens}=7
// REDEFINE: %{shared}=1
// RUN: %{compile} && %{run}

// REDEFINE: %{ranks}=4
// REDEFINE: %{tokens}=0
// RUN: %{compile} && %{run}

#rows = affine_map<(r, h) -> (r, h)>

func.func @setup(%c: memref<340xi32> {moe.name = "counters"}, %others: memref<340xi32> {moe.name = "others"}, %dev: memref<2x3xi64, #moe.host> {moe.name = "dev_ptrs"},
                 %number: memref<1xi32, #moe.host> {moe.name = "my_rank"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"}, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  ep.init counters(%c, %others : memref<340xi32>, memref<340xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>) my_rank(%number : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, combine_dtype = "f32"}
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

func.func @half(%c: memref<340xi32> {moe.name = "counters"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"},
    %x: tensor<?x16xbf16> {moe.name = "x", moe.dims = ["T"]}, %ids: tensor<?x3xi32> {moe.name = "ids", moe.dims = ["T"]}, %w: tensor<?x3xf32> {moe.name = "w", moe.dims = ["T"]},
    %rows: tensor<?x16xbf16> {moe.name = "rows", moe.dims = ["R"], moe.role = "inout"}, %sources: tensor<?x2xi32> {moe.name = "sources", moe.dims = ["R"], moe.role = "inout"},
    %out: tensor<?x16xf16> {moe.name = "f16", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x16xf16> {
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
  %R = tensor.dim %rows, %c0 : tensor<?x16xbf16>
  %empty = tensor.empty(%R) : tensor<?x16xf16>
  %results = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
    ins(%0#0 : tensor<?x16xbf16>) outs(%empty : tensor<?x16xf16>) {
    ^bb0(%from: bf16, %old: f16):
      %wide = arith.extf %from : bf16 to f32
      %narrow = arith.truncf %wide : f32 to f16
      linalg.yield %narrow : f16
    } -> tensor<?x16xf16>
  %1 = ep.combine.skip_a2a counters(%c : memref<340xi32>) tokens(%results : tensor<?x16xf16>) src_info(%0#3 : tensor<?x2xi32>)
    buffers(%csend, %crecv, %ccount : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    router_weights(%w : tensor<?x3xf32>) topk_ids(%ids : tensor<?x3xi32>) outs(%out : tensor<?x16xf16>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64, has_epilogue_fusion = true} epilogue {
    ^bb0(%row: index, %column: index, %value: f16):
      %number = arith.index_cast %column : index to i32
      %float = arith.sitofp %number : i32 to f16
      %sum = arith.addf %value, %float : f16
      ep.yield %sum : f16
    } -> tensor<?x16xf16>
  return %1 : tensor<?x16xf16>
}

func.func @single(%c: memref<340xi32> {moe.name = "counters"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"},
    %x: tensor<?x16xbf16> {moe.name = "x", moe.dims = ["T"]}, %ids: tensor<?x3xi32> {moe.name = "ids", moe.dims = ["T"]}, %w: tensor<?x3xf32> {moe.name = "w", moe.dims = ["T"]},
    %rows: tensor<?x16xbf16> {moe.name = "rows", moe.dims = ["R"], moe.role = "inout"}, %sources: tensor<?x2xi32> {moe.name = "sources", moe.dims = ["R"], moe.role = "inout"},
    %out: tensor<?x16xf32> {moe.name = "f32", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x16xf32> {
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
  %R = tensor.dim %rows, %c0 : tensor<?x16xbf16>
  %empty = tensor.empty(%R) : tensor<?x16xf32>
  %results = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
    ins(%0#0 : tensor<?x16xbf16>) outs(%empty : tensor<?x16xf32>) {
    ^bb0(%from: bf16, %old: f32):
      %wide = arith.extf %from : bf16 to f32
      linalg.yield %wide : f32
    } -> tensor<?x16xf32>
  %1 = ep.combine.skip_a2a counters(%c : memref<340xi32>) tokens(%results : tensor<?x16xf32>) src_info(%0#3 : tensor<?x2xi32>)
    buffers(%csend, %crecv, %ccount : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    router_weights(%w : tensor<?x3xf32>) topk_ids(%ids : tensor<?x3xi32>) outs(%out : tensor<?x16xf32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64, has_epilogue_fusion = true} epilogue {
    ^bb0(%row: index, %column: index, %value: f32):
      %number = arith.index_cast %row : index to i32
      %float = arith.sitofp %number : i32 to f32
      %difference = arith.subf %value, %float : f32
      ep.yield %difference : f32
    } -> tensor<?x16xf32>
  return %1 : tensor<?x16xf32>
}

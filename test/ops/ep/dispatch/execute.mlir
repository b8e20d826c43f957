// The tokens are the same on all ranks; ids have duplicates, and ones of no rank. What is in no group is kept.

// DEFINE: %{ranks}=1
// DEFINE: %{tokens}=5
// DEFINE: %{shared}=0
// DEFINE: %{t}=%t.%{ranks}.%{tokens}.%{shared}
// DEFINE: %{compile}=%python %S/../Inputs/execute.py %s %{t} %{ranks} %{tokens} %{shared} && moe-compile %{t}/graph.mlir -o %{t}/graph.so
// DEFINE: %{run}=moe-run %{t}/graph.so --ranks %{ranks} --function setup --function dispatch --input x=%{t}/x{rank}.npy --input ids=%{t}/ids{rank}.npy --size R=70 --expect rows=%{t}/rows{rank}.npy --expect offsets=%{t}/offsets{rank}.npy --expect experts=%{t}/experts{rank}.npy --expect sources=%{t}/sources{rank}.npy --quiet
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

// Once more on the same counters: the combine is missing.
// RUN: not moe-run %t.1.5.0/graph.so --function setup --function dispatch --repeat 2 --input x=%t.1.5.0/x{rank}.npy --input ids=%t.1.5.0/ids{rank}.npy --size R=70 2>&1 | FileCheck %s
// CHECK: dispatch: MOERT_ERROR_INVALID_STATE (the call does not fit what was called before): ep.dispatch: the dispatch before on these counters waits for its combine

// Without the tables that ep.init fills.
// RUN: not moe-run %t.1.5.0/graph.so --function dispatch --input x=%t.1.5.0/x{rank}.npy --input ids=%t.1.5.0/ids{rank}.npy --size R=70 2>&1 | FileCheck %s --check-prefix=TABLES
// TABLES: dispatch: MOERT_ERROR_INVALID_MEMORY (a tensor lies in the wrong kind of memory): ep.dispatch: operand 'send_ptrs': entry 0 is (nil), where symmetric memory of this rank does not have 2048 bytes: pass what ep.init wrote to 'dev_ptrs' for these parameters

// On another number of ranks than the graph is for.
// RUN: not moe-run %t.1.5.0/graph.so --ranks 2 --function dispatch --input x=%t.1.5.0/x0.npy --input ids=%t.1.5.0/ids0.npy --size R=70 2>&1 | FileCheck %s --check-prefix=RANKS
// RANKS: MOERT_ERROR_INVALID_ARGUMENT (an argument has a value that is not allowed): ep.dispatch: parameter 'allreduce_world_size' is 1, must be 2, the ranks of the communicator

// Without room.
// RUN: not moe-run %t.1.5.0/graph.so --function setup --function dispatch --input x=%t.1.5.0/x{rank}.npy --input ids=%t.1.5.0/ids{rank}.npy --size R=1 2>&1 | FileCheck %s --check-prefix=ROOM
// ROOM: MOERT_ERROR_CAPACITY (more tokens or rows than there is room for): ep.dispatch: {{[0-9]+}} rows are for the experts of rank 0, operand 'output_tokens' has room for 1;

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

func.func @dispatch(%c: memref<340xi32> {moe.name = "counters"}, %tables: memref<2x3x@W@xi64, #moe.host> {moe.name = "tables"},
                    %x: tensor<?x16xbf16> {moe.name = "x", moe.dims = ["T"]}, %ids: tensor<?x3xi32> {moe.name = "ids", moe.dims = ["T"]},
                    %rows: tensor<?x16xbf16> {moe.name = "rows", moe.dims = ["R"]}, %offsets: tensor<@ENDS@xi32> {moe.name = "offsets"},
                    %experts: tensor<@GROUPS@xi32> {moe.name = "experts"}, %sources: tensor<?x2xi32> {moe.name = "sources", moe.dims = ["R"]}, %ctx: !moe.context)
    -> (tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %send = memref.subview %tables[%c0, %c0, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %recv = memref.subview %tables[%c0, %c1, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %count = memref.subview %tables[%c0, %c2, %c0] [1, 1, @W@] [1, 1, 1]
    : memref<2x3x@W@xi64, #moe.host> to memref<@W@xi64, strided<[1], offset: ?>, #moe.host>
  %0:4 = ep.dispatch counters(%c : memref<340xi32>) tokens(%x : tensor<?x16xbf16>) topk_ids(%ids : tensor<?x3xi32>)
    buffers(%send, %recv, %count : memref<@W@xi64, strided<[1], offset: ?>, #moe.host>,
            memref<@W@xi64, strided<[1], offset: ?>, #moe.host>, memref<@W@xi64, strided<[1], offset: ?>, #moe.host>)
    outs(%rows, %offsets, %experts, %sources : tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64, skip_a2a = true, fused_shared_expert = @SHARED@,
     allreduce_world_size = @W@ : i64} -> tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>
  return %0#0, %0#1, %0#2, %0#3 : tensor<?x16xbf16>, tensor<@ENDS@xi32>, tensor<@GROUPS@xi32>, tensor<?x2xi32>
}

// RUN: moe-compile %s -o %t.so
// RUN: moe-run %t.so --random 1 --output dev_ptrs=%t.1.dev{rank}.npy --output my_rank=%t.1.rank{rank}.npy --output c0=%t.1.c0{rank}.npy --output c1=%t.1.c1{rank}.npy
// RUN: %python %S/Inputs/check.py %t 1
// RUN: moe-run %t.so --ranks 8 --repeat 3 --random 1 --output dev_ptrs=%t.8.dev{rank}.npy --output my_rank=%t.8.rank{rank}.npy --output c0=%t.8.c0{rank}.npy --output c1=%t.8.c1{rank}.npy
// RUN: %python %S/Inputs/check.py %t 8

// All or none: a rank that dies.
// RUN: not moe-run %t.so --ranks 2 --timeout 1 --stop 1@ep.init:entry 2>&1 | FileCheck %s
// CHECK: rank 0: init: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the deadline): ep.init: rank 0 waited 1000 ms for rank 1 (at a barrier, epoch {{[0-9]+}})

func.func @init(%c0: memref<340xi32> {moe.name = "c0"}, %c1: memref<340xi32> {moe.name = "c1"}, %dev: memref<2x3xi64, #moe.host> {moe.name = "dev_ptrs"},
                %rank: memref<1xi32, #moe.host> {moe.name = "my_rank"}, %ctx: !moe.context) {
  ep.init counters(%c0, %c1 : memref<340xi32>, memref<340xi32>) dev_ptrs(%dev : memref<2x3xi64, #moe.host>) my_rank(%rank : memref<1xi32, #moe.host>) context(%ctx)
    {hidden_size = 16 : i64, top_k = 3 : i64, n_experts = 2 : i64, max_token_per_rank = 32 : i64}
  return
}

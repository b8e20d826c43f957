// RUN: moe-compile %s -o %t.so

// RUN: moe-run %t.so --function size --output size=%t.1.size{rank}.npy
// RUN: moe-run %t.so --function setup --output info=%t.1.info{rank}.npy --output ws=%t.1.ws{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function size --output size=%t.2.size{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function setup --output info=%t.2.info{rank}.npy --output ws=%t.2.ws{rank}.npy
// RUN: moe-run %t.so --ranks 4 --function size --output size=%t.4.size{rank}.npy
// RUN: moe-run %t.so --ranks 4 --function setup --output info=%t.4.info{rank}.npy --output ws=%t.4.ws{rank}.npy --repeat 3
// RUN: %python %S/../Inputs/check_workspace.py %t 8 24 16

// A slab that is too small, also if only the run shows it.
// RUN: not moe-run %t.so --ranks 2 --function setup --size ws.0=4096 2>&1 | FileCheck %s
// CHECK: all ranks: setup: MOERT_ERROR_WORKSPACE_SIZE {{.*}}: moe.initialize: operand 'workspace' has 4096 bytes, must have at least 566912 (moe.workspace_size)

// The parameter ep_size is checked against the ranks that there are.
// RUN: moe-run %t.so --ranks 2 --function two
// RUN: not moe-run %t.so --ranks 4 --function two --size other_ws.0=1048576 2>&1 | FileCheck %s --check-prefix=RANKS
// RANKS: two: MOERT_ERROR_INVALID_ARGUMENT{{.*}}moe.initialize: parameter 'ep_size' is 2, must be 0 or 4

func.func @size(%size: memref<1xi64, #moe.host> {moe.name = "size"}, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %bytes = moe.workspace_size context(%ctx) {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 24 : i64, combine_bytes_per_token = 16 : i64}
  %number = arith.index_cast %bytes : index to i64
  memref.store %number, %size[%c0] : memref<1xi64, #moe.host>
  return
}
func.func @setup(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"}, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 24 : i64, combine_bytes_per_token = 16 : i64}
  return
}
func.func @two(%ws: memref<?xi8> {moe.name = "other_ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"}, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 8 : i64, dispatch_bytes_per_token = 24 : i64, combine_bytes_per_token = 16 : i64, ep_size = 2 : i64}
  return
}

// RUN: moe-compile %s -o %t.so
// RUN: %python -c "import numpy as np; [np.save('%t.x%%d.npy' % r, np.arange(r, r + 4 * n, dtype=np.float32).reshape(n, 4)) for r, n in enumerate((3, 0, 5, 1))]"

// What is written through a view is read through another one of the same place.
// RUN: moe-run %t.so --function setup --function write --input x=%t.x{rank}.npy --input offset=2048 --expect out=%t.x{rank}.npy
// RUN: moe-run %t.so --ranks 2 --function setup --function write --input x=%t.x{rank}.npy --input offset=2048 --expect out=%t.x{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 4 --function setup --function write --input x=%t.x{rank}.npy --input offset=2048 --expect out=%t.x{rank}.npy

// Beyond the workspace, not a multiple of the element, negative: errors, and nothing is written.
// RUN: not moe-run %t.so --function setup --function write --input x=%t.x{rank}.npy --input offset=2000000 2>&1 | FileCheck %s --check-prefix=BEYOND
// BEYOND: moe-run: rank 0: write: MOERT_ERROR_INVALID_ARGUMENT {{.*}}: moe.workspace_view: result 'view' has 48 bytes, and does not lie within the 1207936 bytes of operand 'workspace' at offset 2000000{{$}}
// RUN: not moe-run %t.so --function setup --function write --input x=%t.x{rank}.npy --input offset=2049 2>&1 | FileCheck %s --check-prefix=UNALIGNED
// UNALIGNED: moe-run: rank 0: write: MOERT_ERROR_MISALIGNED {{.*}}: moe.workspace_view: operand 'offset' is 2049, must be a multiple of 4, the size of element type f32{{$}}
// RUN: not moe-run %t.so --function setup --function write --input x=%t.x{rank}.npy --input offset=-4 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: moe-run: rank 0: write: MOERT_ERROR_INVALID_ARGUMENT {{.*}}: moe.workspace_view: result 'view' has 48 bytes, and does not lie within the 1207936 bytes of operand 'workspace' at offset -4{{$}}

func.func @setup(%ws: memref<?xi8> {moe.name = "ws"}, %info: memref<16xi64, #moe.host> {moe.name = "info"}, %ctx: !moe.context) {
  moe.initialize workspace(%ws : memref<?xi8>) metainfo(%info : memref<16xi64, #moe.host>) context(%ctx)
    {max_num_tokens = 64 : i64, dispatch_bytes_per_token = 64 : i64, combine_bytes_per_token = 64 : i64}
  return
}
func.func @write(%x: tensor<?x4xf32> {moe.name = "x", moe.dims = ["T"]}, %ws: memref<?xi8> {moe.name = "ws"}, %offset: i64 {moe.name = "offset"},
                 %out: tensor<?x4xf32> {moe.name = "out", moe.dims = ["T"]}, %ctx: !moe.context) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %to = moe.workspace_view %ws[%offset : i64] sizes(%n) context(%ctx) : memref<?xi8> to memref<?x4xf32>
  bufferization.materialize_in_destination %x in restrict writable %to : (tensor<?x4xf32>, memref<?x4xf32>) -> ()
  %from = moe.workspace_view %ws[%offset : i64] sizes(%n) context(%ctx) : memref<?xi8> to memref<?x4xf32>
  %y = bufferization.to_tensor %from restrict : memref<?x4xf32> to tensor<?x4xf32>
  %0 = linalg.copy ins(%y : tensor<?x4xf32>) outs(%out : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// RUN: moe-compile %s -o %t.so
// RUN: moe-run %t.so --function size --output size=%t.1.npy
// RUN: moe-run %t.so --ranks 2 --function size --output size=%t.2.{rank}.npy --repeat 3
// RUN: moe-run %t.so --ranks 4 --function size --output size=%t.4.{rank}.npy

// Rows dominate: of each size, ranks times tokens times the row sizes, that of a combine twice, what all-reduces use, and rows of few tokens; the metadata are less than 1 %.
// Every rank says the same.
// RUN: %python -c "import numpy as np; sizes = [np.load('%t.1.npy')[0], np.load('%t.2.0.npy')[0], np.load('%t.4.0.npy')[0]]; print(*[0.0 < s / (r * 512 * 98304.0 + 2 * (1024 + r) * 32768 + 2 * r * (2**23 // r // 45056) * 45056 + 2 * r * 128 * 38016) - 1 < 0.01 for r, s in zip((1, 2, 4), sizes)], all(np.load('%t.4.%%d.npy' % r)[0] == sizes[2] for r in range(4)))" | FileCheck %s --check-prefix=SIZES
// SIZES: True True True True

// The largest parameters stay within an i64.
// RUN: moe-run %t.so --ranks 4 --function largest --output size=%t.largest.{rank}.npy
// RUN: %python -c "import numpy as np; print(4 * 2**24 * 3 * (2**31 - 1) < np.load('%t.largest.0.npy')[0] < 2**60)" | FileCheck %s --check-prefix=LARGEST
// LARGEST: True

// RUN: moe-run %t.so --ranks 2 --function two --quiet
// RUN: not moe-run %t.so --ranks 4 --function two 2>&1 | FileCheck %s --check-prefix=RANKS
// RANKS: two: MOERT_ERROR_INVALID_ARGUMENT{{.*}}moe.workspace_size: parameter 'ep_size' is 2, must be 0 or 4

func.func @size(%size: memref<1xi64, #moe.host> {moe.name = "size"}, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %bytes = moe.workspace_size context(%ctx) {max_num_tokens = 512 : i64, dispatch_bytes_per_token = 32768 : i64, combine_bytes_per_token = 32768 : i64}
  %number = arith.index_cast %bytes : index to i64
  memref.store %number, %size[%c0] : memref<1xi64, #moe.host>
  return
}
func.func @largest(%size: memref<1xi64, #moe.host> {moe.name = "size"}, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %bytes = moe.workspace_size context(%ctx) {max_num_tokens = 16777216 : i64, dispatch_bytes_per_token = 2147483647 : i64, combine_bytes_per_token = 2147483647 : i64,
                                             eplb_stats_num_experts = 65536 : i64}
  %number = arith.index_cast %bytes : index to i64
  memref.store %number, %size[%c0] : memref<1xi64, #moe.host>
  return
}
func.func @two(%size: memref<1xi64, #moe.host> {moe.name = "size"}, %ctx: !moe.context) {
  %c0 = arith.constant 0 : index
  %bytes = moe.workspace_size context(%ctx) {max_num_tokens = 512 : i64, dispatch_bytes_per_token = 32768 : i64, combine_bytes_per_token = 32768 : i64, ep_size = 2 : i64}
  %number = arith.index_cast %bytes : index to i64
  memref.store %number, %size[%c0] : memref<1xi64, #moe.host>
  return
}

#===- finalize.py - inputs and results of the graph of execute.mlir -------------------------------===#
#
# Small whole numbers, so that every sum is exact in bf16. Rank r has r + 2 rows; a third of the choices has none.
#
#===----------------------------------------------------------------------------------------------===#
import sys

import numpy as np

RANKS, TOKENS, HIDDEN, TOP_K = 3, 5, 16, 2
rng = np.random.default_rng(5)


def bf16(values):
    """Rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def save(name, array):
    np.save('%s.%s.npy' % (sys.argv[1], name), array)


def whole(*shape):
    return rng.integers(-3, 4, shape).astype(np.float64)


residual, weight, total = whole(TOKENS, HIDDEN), whole(HIDDEN), 0
for rank in range(RANKS):
    rows, scales, shared = whole(rank + 2, HIDDEN), whole(TOKENS, TOP_K), whole(TOKENS, HIDDEN)
    indices = rng.integers(-1, rank + 2, (TOKENS, TOP_K)).astype(np.int32)
    chosen = np.where(indices[..., None] >= 0, rows[indices], 0)
    total = total + 2 * (chosen * scales[..., None]).sum(axis=1) + shared
    save('rows.%d' % rank, bf16(rows))
    save('indices.%d' % rank, indices)
    save('scales.%d' % rank, scales.astype(np.float32))
    save('shared.%d' % rank, bf16(shared))
save('residual', bf16(residual))
save('weight', bf16(weight))
save('beyond', np.full((1, TOP_K), 2, np.int32))
save('none', np.full((2, TOP_K), -1, np.int32))
with_residual = total + residual
norm = with_residual / np.sqrt((with_residual**2).mean(axis=1, keepdims=True) + 1e-5) * weight
for rank in range(RANKS):
    save('total.%d' % rank, bf16(with_residual))
    save('norm.%d' % rank, norm.astype(np.float32))

#===- allreduce.py - inputs and results of the graph of execute.mlir ------------------------------===#
#
# Small whole numbers, so that every sum is exact in bf16. Rank r has r + 1 experts, of which r count.
#
#===----------------------------------------------------------------------------------------------===#
import sys

import numpy as np

RANKS, TOKENS, HIDDEN = 3, 5, 16
rng = np.random.default_rng(4)


def bf16(values):
    """Rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def save(name, array):
    np.save('%s.%s.npy' % (sys.argv[1], name), array)


def whole(*shape):
    return rng.integers(-3, 4, shape).astype(np.float64)


residual, gamma, total = whole(TOKENS, HIDDEN), whole(HIDDEN), 0
for rank in range(RANKS):
    experts, scales, shared = whole(rank + 1, TOKENS, HIDDEN), whole(rank + 1, TOKENS), whole(TOKENS, HIDDEN)
    total = total + (experts[:rank] * scales[:rank, :, None]).sum(axis=0) + shared
    save('experts.%d' % rank, bf16(experts))
    save('scales.%d' % rank, scales.astype(np.float32))
    save('count.%d' % rank, np.array([rank], np.int32))
    save('shared.%d' % rank, bf16(shared))
save('residual', bf16(residual))
save('gamma', bf16(gamma))
save('none', np.zeros(1, np.int32))
save('many', np.array([2], np.int32))
with_residual = total + residual
norm = with_residual / np.sqrt((with_residual**2).mean(axis=1, keepdims=True) + 1e-5) * gamma
for rank in range(RANKS):
    save('sum.%d' % rank, bf16(total))
    save('total.%d' % rank, bf16(with_residual))
    save('norm.%d' % rank, norm.astype(np.float32))

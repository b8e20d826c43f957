#===- routed.py - inputs and results of the graphs of execute.mlir --------------------------------===#
#
# Gates are multiples of 128, where sigmoid is 0 or 1 in f32 (or 0, where the product is), and all else is whole numbers and powers of two, so that
# every sum is exact.
#
#===----------------------------------------------------------------------------------------------===#
import sys

import numpy as np

from formats_model import E2M1, E4M3, Arrays

TOKENS, EXPERTS, HIDDEN, INNER, BLOCK = 5, 3, 256, 128, 8
IDS = np.array([[0, 1], [-1, 2], [2, 2], [7, 1], [1, 0]], np.int32)
rng = np.random.default_rng(6)


def save(name, array):
    np.save('%s.%s.npy' % (sys.argv[1], name), array)


def bf16(values):
    """Rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def codes_and_scales(name, *shape):
    """Codes of 0, 1 and 2 of both signs, scales of 1 and 2; what they stand for."""
    codes = rng.choice(np.array([0, 2, 4, 10, 12], np.uint8), shape)
    scales = rng.choice(np.array([0x38, 0x40], np.uint8), (*shape[:-1], shape[-1] // 16))
    save(name[0], (codes[..., 0::2] | codes[..., 1::2] << 4).view(np.int8))
    save(name[1], scales)
    return (Arrays.decode(E2M1, codes) * np.repeat(Arrays.decode(E4M3, scales), 16, axis=-1)).astype(np.float64)


x = codes_and_scales(('x', 'xs'), TOKENS, HIDDEN)
first = codes_and_scales(('w1', 's1'), EXPERTS, 2 * INNER, HIDDEN)
second = codes_and_scales(('w2', 's2'), EXPERTS, HIDDEN, INNER)
gate_scales, up_scales, down_scales = np.full(EXPERTS, 128.0), np.full(EXPERTS, 2.0 ** -14), np.array([0.5, 1, 2])
weights = rng.choice([0.5, 1.0, 2.0], IDS.shape)
old = rng.integers(-9, 10, (TOKENS, HIDDEN)).astype(np.float64)

total, of_last = np.zeros((TOKENS, HIDDEN)), np.zeros((TOKENS, HIDDEN))
for token, expert, weight in zip(np.repeat(np.arange(TOKENS), 2), IDS.reshape(-1), weights.reshape(-1)):
    if 0 <= expert < EXPERTS:
        sums = first[expert] @ x[token]
        h = (np.maximum(sums[:INNER] * gate_scales[expert], 0) * sums[INNER:] * up_scales[expert]).astype(np.float32).reshape(-1, 16)
        scales = Arrays.encode(E4M3, np.maximum(np.abs(h).max(axis=1) / np.float32(6), np.float32(1e-8)))
        steps = Arrays.decode(E4M3, scales)[:, None]
        codes = Arrays.encode(E2M1, h / np.where(steps == 0, np.float32(1), steps))
        h = (Arrays.decode(E2M1, codes) * steps).astype(np.float64).reshape(INNER)
        y = second[expert] @ h * down_scales[expert] * weight
        total[token] += y
        of_last[token] += y if expert == EXPERTS - 1 else 0


def plan_of(first):
    """Entries and sums of the experts from `first` on; no bin has more than a block."""
    flat = IDS.reshape(-1)
    bins = [np.flatnonzero((flat < first) | (flat >= EXPERTS))] + [np.flatnonzero(flat == expert) for expert in range(first, EXPERTS)]
    entries = np.full(7 * BLOCK, IDS.size, np.int32)
    for block, pairs in enumerate(bins):
        entries[block * BLOCK:block * BLOCK + len(pairs)] = pairs
    return entries, np.array([block * BLOCK + len(pairs) for block, pairs in enumerate(bins)] + [len(bins) * BLOCK], np.int32)


entries, sums = plan_of(0)
last_entries, last_sums = plan_of(EXPERTS - 1)

save('g', gate_scales.astype(np.float32))
save('u', up_scales.astype(np.float32))
save('d', down_scales.astype(np.float32))
save('ids', IDS)
save('w', weights.astype(np.float32))
save('old', bf16(old))
save('added', bf16(old + total * 2))
save('alone', bf16(total))
save('sorted', entries)
save('old_plan', np.full(7, -9, np.int32))
save('plan', np.array([-1, 0, 1, 2, -9, -9, -9], np.int32))
save('padded', np.array([4 * BLOCK], np.int32))
save('old_cumsum', np.full(5, -9, np.int32))
save('cumsum', sums)
save('added_last', bf16(old + of_last))
save('last_sorted', last_entries)
save('last_plan', np.array([-1, 0, -9, -9, -9, -9, -9], np.int32))
save('last_cumsum', last_sums)
for name in ('w1', 's1', 'w2', 's2', 'g', 'u', 'd'):
    save('last_' + name, np.load('%s.%s.npy' % (sys.argv[1], name))[-1:])
save('prepared', rng.integers(0, 256, (EXPERTS * 2, 128, 64)).astype(np.uint8).view(np.int8))

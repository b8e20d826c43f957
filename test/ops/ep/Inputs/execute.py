"""execute.py GRAPH FOLDER RANKS TOKENS SHARED: FOLDER/graph.mlir, which is GRAPH with the numbers of this case, and as
FOLDER/<argument><rank>.npy the inputs and expected outputs of the execute.mlir of ep.dispatch and ep.combine.skip_a2a.

Values are small multiples of powers of two, so that sums are exact and every order of adding them gives the same. SHARED is 0 or 1."""
import os
import re
import sys

import numpy as np

HIDDEN, TOP_K, EXPERTS, ROWS = 16, 3, 2, 70  # EXPERTS of each rank
POISON = -0x7f7f7f80  # what moe-run fills outputs of i32 with


def bf16(values):
    """The bits of values that bf16 holds exactly."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xffff).any()
    return (bits >> 16).astype(np.uint16)


def main():
    graph, folder, (ranks, tokens, shared) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:6])
    os.makedirs(folder, exist_ok=True)
    groups = EXPERTS + shared
    numbers = {'W': ranks, 'SHARED': str(bool(shared)).lower(), 'GROUPS': groups, 'ENDS': groups + 1}
    with open(graph) as source, open(os.path.join(folder, 'graph.mlir'), 'w') as made:
        made.write(re.sub('@(%s)@' % '|'.join(numbers), lambda match: str(numbers[match[1]]), source.read()))
    rng = np.random.default_rng([ranks, tokens, shared])
    x = rng.integers(-8, 9, (tokens, HIDDEN)).astype(np.float32) / 4
    residual = rng.integers(-8, 9, (tokens, HIDDEN)).astype(np.float32) / 4
    ids = rng.integers(-1, ranks * EXPERTS + 1, (tokens, TOP_K)).astype(np.int32)  # duplicates, -1 and one behind the last among them
    weights = rng.integers(1, 5, (tokens, TOP_K)).astype(np.float32) / 4
    total = np.zeros_like(x)

    for rank in range(ranks):
        mine = np.array_split(np.arange(tokens), ranks)[rank] if shared else np.arange(0)
        pairs = [np.argwhere(ids == rank * EXPERTS + expert) for expert in range(EXPERTS)]
        members = ([mine] if shared else []) + [p[:, 0] for p in pairs]
        taken = np.concatenate(members).astype(int)
        sources = np.full((ROWS, 2), POISON, np.int32)
        sources[len(mine):len(taken)] = np.concatenate(pairs)
        part = np.zeros_like(x)
        for expert in range(EXPERTS):
            for token, k in pairs[expert]:
                part[token] += weights[token, k] * x[token]
        part[mine] += x[mine]
        total += part

        def save(name, array):
            np.save(os.path.join(folder, '%s%d.npy' % (name, rank)), array)

        save('x', bf16(x))
        save('ids', ids)
        save('weights', weights)
        save('residual', bf16(residual))
        expected = np.full((ROWS, HIDDEN), 0xffff, np.uint16)  # NaN, likewise
        expected[:len(taken)] = bf16(x[taken])
        save('rows', expected)
        save('sources', sources)
        save('offsets', np.cumsum([0] + [len(m) for m in members]).astype(np.int32))
        save('experts', np.arange(groups, dtype=np.int32))
        save('part', bf16(part))
        save('doubled', bf16(2 * (part + residual)))
        save('f16', (part + np.arange(HIDDEN)).astype(np.float16))
        save('f32', part - np.arange(tokens, dtype=np.float32)[:, None])
        save('counters', np.zeros(10 * EXPERTS + 320, np.int32))
    valid = (ids >= 0) & (ids < ranks * EXPERTS)
    assert np.array_equal(total, x * (shared + (weights * valid).sum(axis=1, keepdims=True)))  # an all-reduce gives each token all it should have


main()

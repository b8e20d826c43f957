"""check_workspace.py PREFIX TOKENS DISPATCH COMBINE: what size and setup of initialize/execute.mlir wrote, for 1, 2 and 4 ranks."""
import sys

import numpy as np

prefix, tokens, dispatch, combine = sys.argv[1], *map(int, sys.argv[2:])
sizes = []
for ranks in (1, 2, 4):
    load = lambda name, rank: np.load('%s.%d.%s%d.npy' % (prefix, ranks, name, rank))
    size, info = int(load('size', 0)[0]), load('info', 0)
    sizes.append(size)
    offsets = np.delete(info, 8)  # the statistics, which are empty here
    assert info[:4].tolist() == [0, 4, 8, 8 + 4 * ranks], info
    assert (offsets < size).all() and len(set(offsets)) == len(offsets), info
    assert (info[4:][info[4:] != 0] % 128 == 0).all(), info
    assert info[9] + ranks * tokens * dispatch <= size, 'no room for the payloads'
    for rank in range(ranks):
        assert int(load('size', rank)[0]) == size and np.array_equal(load('info', rank), info), 'layouts of ranks differ'
        slab = load('ws', rank)
        assert slab.shape == (size,), 'moe-run made a slab of another size'
        assert not slab[info[9]:info[9] + ranks * tokens * dispatch].any(), 'payload area is not cleared'
assert sizes == sorted(sizes), sizes

"""check.py PREFIX RANKS: what ep.init gave each rank, PREFIX.<RANKS>.<what><rank>.npy."""
import sys

import numpy as np

prefix, ranks = sys.argv[1], int(sys.argv[2])
for rank in range(ranks):
    def load(what):
        return np.load('%s.%d.%s%d.npy' % (prefix, ranks, what, rank))

    pointers = load('dev')
    assert load('rank').tolist() == [rank]
    assert not load('c0').any() and not load('c1').any()
    assert pointers.shape == (2, 3) and pointers[1, 0] == 0
    ordered = np.sort(np.delete(pointers.reshape(-1), 3))
    assert (ordered % 256 == 0).all() and np.array_equal(ordered, np.delete(pointers.reshape(-1), 3))
    message = 32 + 16 + 16
    sizes = [32 * message, 2 * 32 * message, 2 * 8, 3 * 32 * 16 * 2]  # of all but the last; behind each the next one begins at a multiple of 256
    assert np.array_equal(np.diff(ordered), [-(-size // 256) * 256 for size in sizes])

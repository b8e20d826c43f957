#===- received.py - inputs and results of the graph of execute.mlir -------------------------------===#
#
# 7 experts stand on 3 ranks: 3, 2 and 2. Rank r has r + 1 tokens. In `masked` rank 1 is left out by the others, and plays for itself.
#
#===----------------------------------------------------------------------------------------------===#
import sys

import numpy as np

RANKS, ROWS, TOP_K, OWNERS = 3, 4, 2, [0, 0, 0, 1, 1, 2, 2]
rng = np.random.default_rng(5)


def save(name, array):
    np.save('%s.%s.npy' % (sys.argv[1], name), array.astype(np.int32))


before = 100 + np.arange(RANKS * ROWS * TOP_K).reshape(RANKS, ROWS, TOP_K)
ids = [rng.integers(0, len(OWNERS), (rank + 1, TOP_K)) for rank in range(RANKS)]
save('before', before)
for rank, name in [(rank, name) for rank in range(RANKS) for name in ('', 'masked.')]:
    kept, received = before.copy(), np.full_like(before, 7)
    for source in range(RANKS):
        if name and (source == 1) != (rank == 1):
            continue
        rows = [row for row in ids[source] if rank in [OWNERS[i] for i in row]]
        for j, row in enumerate(rows):
            kept[source, j] = received[source, j] = row
    save('ids.%d' % rank, ids[rank])
    save('%skept.%d' % (name, rank), kept)
    save('%sreceived.%d' % (name, rank), received)
    save('nothing.%d' % rank, np.full_like(before, 7))

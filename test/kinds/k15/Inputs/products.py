"""Makes the arguments and expected results of same-value.mlir in FOLDER, with plain loops."""
import os
import sys

import numpy as np

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
x = (np.arange(64) % 7 - 3).reshape(8, 8).astype(np.float32)
weights = (np.arange(64) % 5 - 2).reshape(1, 8, 8).astype(np.float32)
product = np.zeros((8, 8))
for r in range(8):
    for n in range(8):
        product[r, n] = x[r, n]  # a row of no group keeps its contents
        if r < 6:
            product[r, n] = sum(float(x[r, k]) * float(weights[0, n, k]) for k in range(8))
np.save(os.path.join(folder, 'x.npy'), x)
np.save(os.path.join(folder, 'weights.npy'), weights)
np.save(os.path.join(folder, 'offsets.npy'), np.array([0, 6], np.int32))
np.save(os.path.join(folder, 'product.npy'), product.astype(np.float32))
np.save(os.path.join(folder, 'sum.npy'), (product + x).astype(np.float32))

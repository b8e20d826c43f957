#===- panels.py - inputs and results of the graph of execute.mlir ---------------------------------===#
#
# Two experts of 128 gates and 128 ups, which are a panel's rows as they come, in two panels each.
#
#===----------------------------------------------------------------------------------------------===#
import sys

import numpy as np

rng = np.random.default_rng(7)


def save(name, array):
    np.save('%s.%s.npy' % (sys.argv[1], name), array)


def panels(rows):
    """[2, 256, 2 * bytes] as [4, 256, bytes]."""
    return rows.reshape(2, 256, 2, rows.shape[2] // 2).swapaxes(1, 2).reshape(4, 256, rows.shape[2] // 2)


data = rng.integers(-128, 128, (2, 256, 256)).astype(np.int8)
scales = rng.integers(0, 127, (2, 256, 32)).astype(np.int8)
save('data', data)
save('scales', scales)
save('data_panels', panels(data))
# Of row 32g + 8c + d the byte 4k + b: [panel, half, g, c, d, k, b] becomes [panel, half, c, k, d, g, b].
save('scale_panels', panels(scales).reshape(4, 2, 4, 4, 8, 4, 4).transpose(0, 1, 3, 5, 4, 2, 6).reshape(4, 32, 128))

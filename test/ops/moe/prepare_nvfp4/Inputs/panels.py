#===- panels.py - inputs and results of the graphs of execute.mlir --------------------------------===#
#
# Two experts of 128 gates and 128 ups, which are a panel's rows as they come, in two panels each; of fragments two experts of a panel each, whose
# scales are powers of two.
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


def rotated(word, left):
    return word << left & 0xffffffff | word >> (32 - left)


def in_place(codes):
    return sum(((code & 7) << 6 | (code & 8) << 12) << half for code, half in zip(codes, (0, 16)))


def left_over(codes):
    return sum(((code & 6) >> 1 | (code & 1) << 4 | code & 8) << half for code, half in zip(codes, (0, 16)))


def fragment(codes, exponents):
    """Of codes [64, 128] and exponents [64, 8] of the scales."""
    words = []
    for b, c, l, s in np.ndindex(4, 2, 32, 4):
        row, column = 16 * b + l // 4, 64 * c + 16 * s + l % 4 * 2
        pairs = [[int(code) for code in codes[r, k:k + 2]] for k in (column, column + 8) for r in (row, row + 8)]
        words.append(in_place(pairs[0]) | rotated(in_place(pairs[1]), 3) | rotated(in_place(pairs[2]), 6) | left_over(pairs[3]))
    scales = [(exponents[16 * b + g + 8 * half, 2 * i + j] + 21) << 3 for b, g, i, half, j in np.ndindex(4, 8, 4, 2, 2)]
    return np.concatenate([np.array(words, '<u4').view(np.uint8), np.array(scales, np.uint8)]).reshape(36, 128).view(np.int8)


codes = rng.integers(0, 16, (2, 64, 128))
exponents = rng.integers(-6, 9, (2, 64, 8))
save('codes', (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8).view(np.int8))
save('code_scales', ((exponents + 7) << 3).astype(np.int8))
save('fragments', np.stack([fragment(*expert) for expert in zip(codes, exponents)]))

#===- quantized.py - inputs and results of the graphs of moe.quantize and moe.dequantize ----------===#
#
# quantized.py FOLDER: for 1, 2 and 4 ranks, FOLDER/<ranks>/<argument><rank>.npy. Results are those of test/oracle/formats_model.py. For each graph F:
# its input F_x, its global scale F_g, the codes F_values and scales F_scales that it makes of them, a buffer F_poison for scales with padding, codes
# whose rows lie apart, F_apart, scales with other padding, F_stuffed, and the numbers F_out that come of them.
#
#===----------------------------------------------------------------------------------------------===#
import os
import sys
from typing import NamedTuple

import numpy as np

from formats_model import Rule, dequantize, lay_out, pack, quantize

TOKENS = {1: [5], 2: [130, 0], 4: [3, 0, 33, 1]}


class Graph(NamedTuple):
    rule: Rule
    hidden: int
    dtype: str  # of the input
    layout: str = 'linear'
    packing: str = 'low_first'
    value_dtype: type = np.uint8  # of the files: i8, or any other type of 8 bits
    more: int = 0  # columns of transposed scales beyond the tokens
    gap: int = 0  # columns of the input beyond what is quantized, and of codes that lie apart


GRAPHS = {
    'nvfp4': Graph(Rule('nvfp4', 448 * 6 / 3.5), 64, 'bf16', value_dtype=np.int8),
    'mxfp4': Graph(Rule('mxfp4', even=True), 96, 'f32', '128x4', 'mega'),
    'mxfp8': Graph(Rule('mxfp8'), 64, 'f16', '8x4'),
    'fp8_block': Graph(Rule('fp8_block'), 200, 'bf16', 'transposed', more=2, gap=16),
    'fp8_token': Graph(Rule('fp8_token'), 7, 'f32', value_dtype=np.int8),
    'fp8_tensor': Graph(Rule('fp8_tensor'), 24, 'bf16'),
    'fp8_static': Graph(Rule('fp8_tensor', 0.75), 24, 'f32', value_dtype=np.int8),
}


def numbers(rng, rows, columns, infinite):
    """Rows of several magnitudes; the first three have zeros, a NaN and, if `infinite`, an infinity too."""
    x = rng.normal(size=(rows, columns)) * np.exp2(rng.integers(-6, 7, (rows, 1)))
    x[:1, :columns // 2] = -0.0
    x[1:2, columns // 3] = np.nan
    x[2:3, columns // 4] = -np.inf if infinite else 3
    return x.astype(np.float32)


def narrow(x, dtype):
    """The array for the file, and its values. Of bf16, whose bits the file has, any number will do: what f32 has more is cut off."""
    if dtype == 'bf16':
        bits = x.view(np.uint32) & 0xffff0000
        return (bits >> 16).astype(np.uint16), bits.view(np.float32)
    stored = x.astype(np.float16 if dtype == 'f16' else np.float32)
    return stored, stored.astype(np.float32)


def poison(buffer):
    return np.full(buffer.size * buffer.itemsize, 0xcb, np.uint8).view(buffer.dtype).reshape(buffer.shape)


def arrays_of(graph, rng, tokens):
    rule = graph.rule
    if rule.global_scale is not None:
        rule = rule._replace(global_scale=float(np.float32(rule.global_scale)))
        yield 'g', np.array([rule.global_scale], np.float32)
    one_block = rule.format == 'fp8_tensor' and rule.scaled  # where an infinity would leave nothing but zeros
    stored, read = narrow(numbers(rng, tokens, graph.hidden + graph.gap, not one_block), graph.dtype)
    codes, scales = quantize(rule, np.ascontiguousarray(read[:, :graph.hidden]))
    yield 'x', stored
    values = (pack(codes, graph.packing) if rule.numbers.packed else codes).view(graph.value_dtype)
    yield 'values', values
    yield 'apart', np.pad(values, ((0, 0), (0, graph.gap)), constant_values=-1 if values.dtype == np.int8 else 0xff)
    yield 'out', dequantize(rule, codes, scales)
    if rule.scaled:
        yield 'scales', lay_out(scales, graph.layout, graph.more)
        yield 'stuffed', lay_out(scales, graph.layout, graph.more, 0x7f)
        yield 'poison', poison(lay_out(scales, graph.layout, graph.more))


def main(folder):
    for ranks, counts in TOKENS.items():
        os.makedirs(os.path.join(folder, str(ranks)), exist_ok=True)
        for rank, tokens in enumerate(counts):
            rng = np.random.default_rng([5, ranks, rank])
            for name, graph in GRAPHS.items():
                for what, array in arrays_of(graph, rng, tokens):
                    np.save(os.path.join(folder, str(ranks), '%s_%s%d.npy' % (name, what, rank)), array)


if __name__ == '__main__':
    main(sys.argv[1])

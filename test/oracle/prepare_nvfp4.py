#===- prepare_nvfp4.py - moe.prepare_nvfp4 against NumPy ------------------------------------------===#
#
# Layouts as permutations of axes. Every byte of a source is another number where that is possible, and destinations are poisoned.
#
#===----------------------------------------------------------------------------------------------===#
import numpy as np

from moert import expect_error, run_ranks, typed

# Rows of a panel, bytes of a row there, shape of a panel.
LAYOUTS = {'w1_scales': (128, 16, (16, 128)), 'w2_scales': (128, 8, (8, 128)), 'w1_data': (128, 128, (128, 128)), 'w1_gate_up_data': (256, 128, (256, 128)),
           'w1_gate_up_scales': (256, 16, (32, 128)), 'w1_scales_interleaved': (128, 16, (16, 128)), 'w2_data': (128, 64, (128, 64)),
           'w2_data_k256': (128, 128, (128, 128)), 'w2_scales_k256': (128, 16, (16, 128))}


def in_turn(source, unit):
    """`unit` gates, their ups, the next gates."""
    experts, rows, row_bytes = source.shape
    return source.reshape(experts, 2, rows // 2 // unit, unit, row_bytes).swapaxes(1, 2).reshape(source.shape)


def scatter(panels):
    """[..., 128, bytes] of scales in their order."""
    words = panels.shape[-1] // 4
    split = panels.reshape(-1, 4, 4, 8, words, 4)  # g, c, d, k, b
    return split.transpose(0, 2, 4, 3, 1, 5)


def prepared(layout, source):
    rows, row_bytes, shape = LAYOUTS[layout]
    if layout == 'w1_scales_interleaved':
        source = in_turn(source, 64)
    elif 'gate_up' in layout:
        source = in_turn(source, 128)
    experts, down, across = source.shape[0], source.shape[1] // rows, source.shape[2] // row_bytes
    panels = source.reshape(experts, down, rows, across, row_bytes).swapaxes(2, 3)
    if 'scales' in layout:
        panels = scatter(panels.reshape(-1, 128, row_bytes))
    return panels.reshape(experts * down * across, *shape)


def run(rank, layout, source, dtype='ui8'):
    shape = prepared(layout, source).shape
    got = np.full(shape, 0xa5, np.uint8)
    rank.op('moe.prepare_nvfp4', source=typed(source, dtype), prepared=got, layout=layout)
    return got


def test_layouts(rank):
    rng = np.random.default_rng(41)
    for layout, (rows, row_bytes, _) in LAYOUTS.items():
        for experts, down, across in ((1, 1, 1), (3, 2, 5), (2, 4, 1), (0, 1, 1), (2, 0, 3), (2, 1, 0)):
            source = rng.integers(0, 256, (experts, down * rows, across * row_bytes)).astype(np.uint8)
            np.testing.assert_array_equal(run(rank, layout, source, 'f8E4M3FN' if 'scales' in layout else 'ui8'), prepared(layout, source), layout)


def test_places(rank):
    """By the formulas of the manual, byte by byte."""
    rng = np.random.default_rng(42)
    for layout, words in (('w1_scales', 4), ('w2_scales', 2), ('w2_scales_k256', 4)):
        source = rng.integers(0, 256, (1, 128, 4 * words)).astype(np.uint8)
        got = run(rank, layout, source).reshape(-1)
        for g, c, d, k, b in np.ndindex(4, 4, 8, words, 4):
            assert got[((words * c + k) * 8 + d) * 16 + 4 * g + b] == source[0, 32 * g + 8 * c + d, 4 * k + b]
    source = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 16, axis=2)  # the number of the row
    got = run(rank, 'w1_scales_interleaved', source).reshape(2, 2048)
    for panel, first in enumerate((0, 64)):
        assert set(got[panel]) == set(range(first, first + 64)) | set(range(128 + first, 192 + first))


def test_errors(rank):
    def refuse(status, text, source, prepared_shape, layout, dtype='ui8', prepared_dtype='ui8'):
        got = np.full(prepared_shape, 0xa5, np.uint8)
        expect_error('MOERT_ERROR_' + status, 'moe.prepare_nvfp4: ' + text, rank.op, 'moe.prepare_nvfp4', source=typed(source, dtype),
                     prepared=typed(got, prepared_dtype), layout=layout)
        assert (got == 0xa5).all()

    source = lambda *shape: np.zeros(shape, np.uint8)
    refuse('INVALID_SHAPE', "operand 'source' dimension 1 is 128, must be a multiple of 256", source(1, 128, 128), (0, 256, 128), 'w1_gate_up_data')  # C1
    refuse('INVALID_SHAPE', "operand 'source' dimension 2 is 64, must be a multiple of 128", source(1, 128, 64), (0, 128, 128), 'w2_data_k256')
    refuse('INVALID_SHAPE', "operand 'prepared' dimension 0 is 5, must equal the number of panels = 6", source(3, 256, 16), (5, 16, 128), 'w1_scales')  # C2
    refuse('INVALID_SHAPE', "operand 'prepared' dimension 1 is 16, must equal the height of a panel = 8", source(1, 128, 8), (1, 16, 128), 'w2_scales')
    refuse('INVALID_SHAPE', "operand 'prepared' dimension 2 is 128, must equal the width of a panel = 64", source(1, 128, 64), (1, 128, 128), 'w2_data')
    text = "operand '%s': element type f8E4M3FN, must be i8 or ui8 where layout is of codes"
    refuse('INVALID_DTYPE', text % 'source', source(1, 128, 128), (1, 128, 128), 'w1_data', dtype='f8E4M3FN')  # C3
    refuse('INVALID_DTYPE', text % 'prepared', source(1, 128, 128), (1, 128, 128), 'w1_data', prepared_dtype='f8E4M3FN')


def main(rank):
    for test in (test_layouts, test_places, test_errors):
        test(rank)
        print('ok', test.__name__, flush=True)


if __name__ == '__main__':
    run_ranks(1, main)

#===- prepare_nvfp4.py - moe.prepare_nvfp4 against NumPy ------------------------------------------===#
#
# Layouts as permutations of axes, fragments as bits that are moved one by one. Every byte of a source is another number where that is possible, and
# destinations are poisoned.
#
#===----------------------------------------------------------------------------------------------===#
import numpy as np

from formats_model import E2M1, E4M3, Arrays
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


# --- fragments ---------------------------------------------------------------------------------------------

FRAGMENTS = ('w1_fragments', 'w2_fragments')
IN_PLACE = 0x81c081c0  # two numbers of E2M1 in bf16
SIZES = ((1, 1, 1), (3, 2, 5), (2, 4, 1), (0, 1, 1), (2, 0, 3), (2, 1, 0))  # experts, panels down, panels across


def places():
    """Where each bit of a word's codes lies, the lowest bit of a code first: [column half, row half, first or second, bit]."""
    in_place = np.array([[6, 7, 8, 15], [22, 23, 24, 31]])
    left = np.array([[4, 0, 1, 3], [20, 16, 17, 19]])
    return np.array([[in_place, (in_place + 3) % 32], [(in_place + 6) % 32, left]])


def bf16(bits):
    with np.errstate(invalid='ignore'):  # NaN that signals
        return (np.asarray(bits, np.uint32) << 16).view(np.float32).astype(np.float64)


def scale_bytes():
    """Of each E4M3 without its sign, by what the bytes stand for."""
    values = bf16(0x7000 | np.arange(256) << 4) / 2.0 ** 118
    numbers = Arrays.decode(E4M3, np.arange(127, dtype=np.uint8)).astype(np.float64)
    found = [0] + [int(np.flatnonzero(values == number)[0]) for number in numbers[1:]]
    return np.array(found + [255], np.uint8)


def numbers_of(codes, scales):
    with np.errstate(invalid='ignore'):
        return Arrays.decode(E2M1, codes).astype(np.float64) * np.repeat(Arrays.decode(E4M3, scales).astype(np.float64), 16, axis=2)


def fragments(layout, codes, scales):
    """Of codes [experts, rows, columns], one in each element."""
    if layout == 'w1_fragments':
        codes, scales = in_turn(codes, 8), in_turn(scales, 8)
    experts, down, across = codes.shape[0], codes.shape[1] // 64, codes.shape[2] // 128
    blocks = np.repeat(scales, 16, axis=2)
    codes = np.where(blocks & 0x7f, codes, codes & 8) ^ np.where(blocks & 0x80, 8, 0)
    # experts, down, band, row half, g, across, chunk, step, column half, t, first or second
    split = codes.astype(np.uint32).reshape(experts, down, 4, 2, 8, across, 2, 4, 2, 4, 2)
    split = split.transpose(0, 1, 5, 2, 6, 4, 9, 7, 8, 3, 10)
    bits = split[..., None] >> np.arange(4, dtype=np.uint32) & 1
    words = (bits << places().astype(np.uint32)).sum(axis=(-4, -3, -2, -1), dtype=np.uint32)
    rows = scale_bytes()[scales & 0x7f].reshape(experts, down, 4, 2, 8, across, 4, 2).transpose(0, 1, 5, 2, 4, 6, 3, 7)
    panels = [words.astype('<u4').reshape(-1, 1024).view(np.uint8), rows.reshape(-1, 512)]
    return np.concatenate(panels, axis=1).reshape(experts * down * across, 36, 128)


def decoded(panels):
    """[panels, 64, 128] of numbers, as a kernel reads them."""
    flat = np.ascontiguousarray(panels.reshape(-1, 4608))
    words = flat[:, :4096].copy().view('<u4').astype(np.uint32)
    rotated = lambda by: words >> np.uint32(by) | words << np.uint32((32 - by) % 32)
    pairs = np.stack([words, rotated(3), rotated(6), (words & np.uint32(0x001b001b)) * np.uint32(0x1084)], axis=-1) & np.uint32(IN_PLACE)
    codes = bf16(np.stack([pairs & np.uint32(0xffff), pairs >> np.uint32(16)], axis=-1))
    # panel, band, chunk, g, t, step, column half, row half, first or second
    codes = codes.reshape(-1, 4, 2, 8, 4, 4, 2, 2, 2).transpose(0, 1, 7, 3, 2, 5, 6, 4, 8).reshape(-1, 64, 128)
    scales = bf16(0x7000 | flat[:, 4096:].astype(np.uint32) << 4).reshape(-1, 4, 8, 4, 2, 2).transpose(0, 1, 4, 2, 3, 5).reshape(-1, 64, 8)
    with np.errstate(invalid='ignore'):
        return codes * np.repeat(scales, 16, axis=2) * 2.0 ** 8


def as_panels(numbers, layout):
    experts, rows, columns = numbers.shape
    numbers = in_turn(numbers, 8) if layout == 'w1_fragments' else numbers
    return numbers.reshape(experts, rows // 64, 64, columns // 128, 128).swapaxes(2, 3).reshape(-1, 64, 128)


def run_fragments(rank, layout, codes, scales, shift=0):
    """`shift` bytes behind an address of NumPy's choice, which is a multiple of 16."""
    def moved(array):
        memory = np.full(array.size + shift, 0xa5, np.uint8)
        memory[shift:] = array.reshape(-1)
        return memory[shift:].reshape(array.shape)

    experts, rows, columns = codes.shape
    got = moved(np.full((experts * (rows // 64) * (columns // 128), 36, 128), 0xa5, np.uint8))
    rank.op('moe.prepare_nvfp4', source=moved((codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)), scales=typed(moved(scales), 'f8E4M3FN'),
            prepared=got, layout=layout)
    return got


def check_fragments(rank, layout, codes, scales, **options):
    got = run_fragments(rank, layout, codes, scales, **options)
    np.testing.assert_array_equal(got, fragments(layout, codes, scales), layout)
    numbers, expected = decoded(got), as_panels(numbers_of(codes, scales), layout)
    np.testing.assert_array_equal(numbers, expected, layout)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(numbers)[known], np.signbit(expected)[known], layout)


def test_fragments(rank):
    rng = np.random.default_rng(43)
    for layout in FRAGMENTS:
        for number, (experts, down, across) in enumerate(SIZES):
            codes = rng.integers(0, 16, (experts, 64 * down, 128 * across)).astype(np.uint8)
            scales = rng.integers(0, 256, (experts, 64 * down, 8 * across)).astype(np.uint8)
            check_fragments(rank, layout, codes, scales, shift=number % 4)


def test_fragment_numbers(rank):
    """Every code with every scale, in every place of a word; what is read is their product, zeros with their signs."""
    assert sorted(places().reshape(-1)) == list(range(32))
    assert scale_bytes()[0x38] >> 3 == 21 and scale_bytes()[1] >> 3 == 12
    scales = np.arange(256, dtype=np.uint8).reshape(1, 64, 4)
    for layout in FRAGMENTS:
        for first in range(16):
            codes = np.tile((np.arange(16) + first) % 16, (1, 64, 8)).astype(np.uint8)
            check_fragments(rank, layout, codes, np.concatenate([scales, scales[:, ::-1] ^ 0x80], axis=2))


def test_fragment_places(rank):
    """By the formulas of the manual, word by word."""
    rng = np.random.default_rng(44)
    codes = rng.integers(0, 16, (1, 64, 128)).astype(np.uint8)
    scales = rng.integers(1, 127, (1, 64, 8)).astype(np.uint8)
    got = run_fragments(rank, 'w2_fragments', codes, scales).reshape(-1)
    words, table = got[:4096].view('<u4'), scale_bytes()
    for b, c, l, s in np.ndindex(4, 2, 32, 4):
        word, (g, t), columns = int(words[((2 * b + c) * 32 + l) * 4 + s]), divmod(l, 4), 64 * c + 16 * s
        pairs = (word, word >> 3 | word << 29, word >> 6 | word << 26, (word & 0x001b001b) * 0x1084)
        for pair, read in enumerate(pairs):
            row, column = 16 * b + g + pair % 2 * 8, columns + pair // 2 * 8 + 2 * t
            for number in range(2):
                half = (read & IN_PLACE) >> (16 * number)
                assert half >> 6 & 7 | half >> 12 & 8 == codes[0, row, column + number]
    for b, g, i, row_half, block in np.ndindex(4, 8, 4, 2, 2):
        assert got[4096 + 128 * b + 16 * g + 4 * i + 2 * row_half + block] == table[scales[0, 16 * b + g + 8 * row_half, 2 * i + block]]
    rows = np.arange(1, 65, dtype=np.uint8)  # a gate is followed by its up, eight rows behind it
    got = run_fragments(rank, 'w1_fragments', codes, np.repeat(rows[None, :, None], 8, axis=2)).reshape(-1)[4096:].reshape(4, 8, 4, 2, 2)
    for b, g in np.ndindex(4, 8):
        assert (got[b, g, :, 0] == table[1 + 8 * b + g]).all() and (got[b, g, :, 1] == table[33 + 8 * b + g]).all()


# --- all layouts -------------------------------------------------------------------------------------------

def run(rank, layout, source, dtype='ui8'):
    shape = prepared(layout, source).shape
    got = np.full(shape, 0xa5, np.uint8)
    rank.op('moe.prepare_nvfp4', source=typed(source, dtype), prepared=got, layout=layout)
    return got


def test_layouts(rank):
    rng = np.random.default_rng(41)
    for layout, (rows, row_bytes, _) in LAYOUTS.items():
        for experts, down, across in SIZES:
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
    def refuse(status, text, source, prepared_shape, layout, dtype='ui8', prepared_dtype='ui8', **others):
        got = np.full(prepared_shape, 0xa5, np.uint8)
        expect_error('MOERT_ERROR_' + status, 'moe.prepare_nvfp4: ' + text, rank.op, 'moe.prepare_nvfp4', source=typed(source, dtype),
                     prepared=typed(got, prepared_dtype), layout=layout, **others)
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
    scales = {'scales': source(2, 128, 16)}
    fragment = lambda status, text, shape, prepared_shape=(8, 36, 128), **others: refuse(
        status, text, source(*shape), prepared_shape, 'w1_fragments', **{**scales, **others})
    fragment('INVALID_SHAPE', "operand 'source' dimension 1 is 96, must be a multiple of 64", (2, 96, 128))  # C1
    fragment('INVALID_SHAPE', "operand 'source' dimension 2 is 96, must be a multiple of 64", (2, 128, 96))
    fragment('INVALID_SHAPE', "operand 'prepared' dimension 0 is 4, must equal the number of panels = 8", (2, 128, 128), (4, 36, 128))  # C2
    fragment('INVALID_SHAPE', "operand 'prepared' dimension 1 is 32, must equal the height of a panel = 36", (2, 128, 128), (8, 32, 128))
    fragment('INVALID_DTYPE', text % 'source', (2, 128, 128), dtype='f8E4M3FN')  # C3
    fragment('INVALID_DTYPE', text % 'prepared', (2, 128, 128), prepared_dtype='f8E4M3FN')
    fragment('NULL_POINTER', "operand 'scales' is NULL, must be set where layout is of fragments", (2, 128, 128), scales=None)  # C4
    for dimension, shape, what in ((0, (1, 128, 16), "dimension 0 of 'source' = 2"), (1, (2, 64, 16), "dimension 1 of 'source' = 128"),
                                   (2, (2, 128, 8), "an eighth of dimension 2 of 'source' = 16")):
        fragment('INVALID_SHAPE', "operand 'scales' dimension %d is %d, must equal %s" % (dimension, shape[dimension], what), (2, 128, 128),
                 scales=source(*shape))
    fragment('INVALID_DTYPE', "operand 'scales': element type f8E8M0FNU, must be i8, ui8 or f8E4M3FN", (2, 128, 128),
             scales=typed(source(2, 128, 16), 'f8E8M0FNU'))
    for layout in LAYOUTS:
        rows, row_bytes, shape = LAYOUTS[layout]
        refuse('INVALID_ARGUMENT', "operand 'scales' is set, must be NULL where layout is not of fragments", source(2, rows, row_bytes), (2, *shape), layout,
               scales=source(2, rows, row_bytes // 8))


def test_overlap(rank):
    """Codes are read by many threads, so nothing is made where they are."""
    memory = np.zeros(8192 + 1024, np.uint8)
    codes, scales = memory[:4096].reshape(1, 64, 64), np.zeros((1, 64, 8), np.uint8)
    expect_error('MOERT_ERROR_OVERLAP', "moe.prepare_nvfp4: operand 'prepared' overlaps operand 'source'; give it memory of its own", rank.op,
                 'moe.prepare_nvfp4', source=codes, scales=scales, prepared=memory[4095:4095 + 4608].reshape(1, 36, 128), layout='w2_fragments')
    expect_error('MOERT_ERROR_OVERLAP', "moe.prepare_nvfp4: operand 'prepared' overlaps operand 'scales'; give it memory of its own", rank.op,
                 'moe.prepare_nvfp4', source=codes.copy(), scales=memory[:512].reshape(1, 64, 8), prepared=memory[511:511 + 4608].reshape(1, 36, 128),
                 layout='w2_fragments')


def main(rank):
    for test in (test_layouts, test_places, test_fragments, test_fragment_numbers, test_fragment_places, test_errors, test_overlap):
        test(rank)
        print('ok', test.__name__, flush=True)


if __name__ == '__main__':
    run_ranks(1, main)

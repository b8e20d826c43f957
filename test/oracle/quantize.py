#===- quantize.py - moe.quantize and moe.dequantize against tables and fractions ------------------===#
#
# First the two arithmetics of formats_model.py against each other, then the library against the fast one: to the bit, in every format, layout and
# packing. Outputs are poisoned, and stand between bytes that must stay as they were.
#
#===----------------------------------------------------------------------------------------------===#
import itertools
import math

import numpy as np

import formats_model as model
from formats_model import E2M1, E4M3, E8M0, F32_MAX, FORMATS, SWIZZLED, Arrays, Exact, Rule
from moert import decode, encode, expect_error, run_ranks, typed

DTYPES = ('bf16', 'f16', 'f32')
BITS = {'bf16': np.uint16, 'f16': np.uint16, 'f32': np.uint32}
POISON, GUARD = 0xcb, 64  # bytes


def f32(x):
    return float(np.float32(x))


RULES = (Rule('nvfp4'), Rule('nvfp4', f32(3.7)), Rule('nvfp4', f32(3.7), fast=True), Rule('mxfp4'), Rule('mxfp4', even=True), Rule('mxfp8'),
         Rule('mxfp8', even=True), Rule('fp8_block'), Rule('fp8_token'), Rule('fp8_tensor'), Rule('fp8_tensor', f32(0.37)))

# Element types of values and scales; the first is the one that says what they are.
VALUE_TYPES = {'e2m1': ('i8', 'ui8'), 'e4m3': ('f8E4M3FN', 'i8', 'ui8')}
SCALE_TYPES = {'e4m3': ('f8E4M3FN', 'i8', 'ui8'), 'e8m0': ('f8E8M0FNU', 'i8', 'ui8'), None: ('f32',)}


def value_types(rule):
    return VALUE_TYPES[rule.numbers.elements.name]


def scale_types(rule):
    return SCALE_TYPES[rule.numbers.scales and rule.numbers.scales.name]


def packings(rule):
    return ('low_first', 'mega') if rule.numbers.packed else ('low_first',)


def from_bits(bits, dtype):
    """An array of `dtype`, as moert.encode makes them."""
    return np.ascontiguousarray(bits, BITS[dtype]).view({'bf16': np.uint16, 'f16': np.float16, 'f32': np.float32}[dtype])


def numbers(array, dtype):
    """As f32, which holds them all."""
    with np.errstate(invalid='ignore'):
        return decode(array, dtype).astype(np.float32)


# --- calls --------------------------------------------------------------------------------------------

class Guarded:
    """A poisoned output, and the bytes around it."""

    def __init__(self, shape, dtype):
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self.memory = np.full(size + 2 * GUARD, POISON, np.uint8)
        self.array = self.memory[GUARD:GUARD + size].view(dtype).reshape(shape)

    def taken(self):
        assert (self.memory[:GUARD] == POISON).all() and (self.memory[len(self.memory) - GUARD:] == POISON).all(), 'written beyond the output'
        return self.array


def spread(array, gap):
    """The rows of a matrix `gap` elements further apart; between them lie bytes 0xff, NaN in every format."""
    memory = np.full((len(array), (array.shape[1] + gap) * array.itemsize), 0xff, np.uint8).view(array.dtype)
    memory[:, :array.shape[1]] = array
    return memory[:, :array.shape[1]]


def parameters(rule, layout, packing):
    return dict(format=rule.format, scale_layout=layout, packing=packing,
                global_scale=None if rule.global_scale is None else np.array([rule.global_scale], np.float32))


def quantize(rank, rule, x, dtype, layout='linear', packing='low_first', more=0, types=None):
    """Values and scales as the library gives them. `x` is an array of `dtype`."""
    tokens, hidden = x.shape
    value_type, scale_type = types or (value_types(rule)[0], scale_types(rule)[0])
    values = Guarded((tokens, hidden // 2 if rule.numbers.packed else hidden), np.uint8)
    rows = 1 if rule.format == 'fp8_tensor' else tokens
    scales = Guarded(model.buffer_shape(layout, rows, model.columns_of(rule, hidden), more), np.float32 if scale_type == 'f32' else np.uint8)
    rank.op('moe.quantize', input=typed(x, dtype), values=typed(values.array, value_type),
            scales=typed(scales.array, scale_type) if rule.scaled else None, scale_rounding='even' if rule.even else 'up',
            fast_reciprocal=rule.fast, **parameters(rule, layout, packing))
    return values.taken(), scales.taken() if rule.scaled else None


def dequantize(rank, rule, values, scales, dtype, layout='linear', packing='low_first', types=None):
    """An array of `dtype`."""
    value_type, scale_type = types or (value_types(rule)[0], scale_types(rule)[0])
    out = Guarded((len(values), values.shape[1] * 2 if rule.numbers.packed else values.shape[1]), from_bits(0, dtype).dtype)
    rank.op('moe.dequantize', values=typed(values, value_type), scales=typed(scales, scale_type) if rule.scaled else None,
            out=typed(out.array, dtype), **parameters(rule, layout, packing))
    return out.taken()


def same(got, want, what):
    """The same bits."""
    assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, want.shape, got.dtype, want.dtype)
    bits = [a.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[a.itemsize]) for a in (np.ascontiguousarray(got), np.ascontiguousarray(want))]
    wrong = bits[0] != bits[1]
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError('%s: %d of %d differ, first at %s: %#x, must be %#x' % (what, wrong.sum(), wrong.size, at, bits[0][at], bits[1][at]))


def check_quantize(rank, rule, x, dtype, layout='linear', packing='low_first', more=0, types=None, expected=None):
    codes, scales = expected or model.quantize(rule, numbers(x, dtype))
    got_values, got_scales = quantize(rank, rule, x, dtype, layout, packing, more, types)
    what = '%s %s %s %s %s' % (rule, dtype, layout, packing, x.shape)
    same(got_values, model.pack(codes, packing) if rule.numbers.packed else codes, what + ' values')
    if rule.scaled:
        same(got_scales, model.lay_out(scales, layout, more), what + ' scales')
    return codes, scales


def narrowed(values, dtype):
    """Of f32 values, what moe.dequantize writes for them; NaN has all bits set but the sign."""
    array = encode(values, dtype)
    array.view(BITS[dtype])[np.isnan(values)] = np.iinfo(BITS[dtype]).max >> 1
    return array


def check_dequantize(rank, rule, codes, scales, dtype, layout='linear', packing='low_first', more=0, types=None, gap=0, paddings=(0,), expected=None):
    if expected is None:
        expected = model.dequantize(rule, codes, scales)
    values = model.pack(codes, packing) if rule.numbers.packed else codes
    for padding in paddings:
        buffer = model.lay_out(scales, layout, more, padding) if rule.scaled else None
        got = dequantize(rank, rule, spread(values, gap) if gap else values, buffer, dtype, layout, packing, types)
        what = '%s %s %s %s %s padding %#x' % (rule, dtype, layout, packing, codes.shape, padding)
        same(got, narrowed(expected, dtype), what)


# --- the two arithmetics ----------------------------------------------------------------------------------

def interesting(rng, count):
    """f32 values of all kinds: any bits, neighbours of what codes stand for and of their middles, special ones."""
    tables = [np.array([float(m) for m in codes.magnitudes], np.float32) for codes in (E2M1, E4M3, E8M0)]
    tables += [(table[1:] + table[:-1]) / 2 for table in tables[:2]]
    near = np.concatenate(tables)
    near = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))])
    special = np.array([0, np.inf, np.nan, F32_MAX, 2.0**-126, 2.0**-149, 1e-4, 1e-40], np.float32)
    values = np.concatenate([near, special, rng.integers(0, 1 << 31, count, np.uint32).view(np.float32)])
    return np.concatenate([values, -values])


def agree(what, exact, fast):
    exact, fast = np.asarray(exact), np.asarray(fast)
    assert exact.shape == fast.shape, what
    wrong = ~((exact == fast) & (np.signbit(exact) == np.signbit(fast)) | (np.isnan(exact) & np.isnan(fast)))
    assert not wrong.any(), (what, np.argwhere(wrong)[:3], exact[wrong][:3], fast[wrong][:3])


def test_steps():
    rng = np.random.default_rng(1)
    values = interesting(rng, 2000)
    others = rng.permutation(values)
    with np.errstate(all='ignore'):
        for name in ('times', 'divide'):
            exact = [getattr(Exact, name)(float(a), float(b)) for a, b in zip(values, others)]
            agree(name, exact, getattr(Arrays, name)(values, others).astype(np.float64))
        every = np.concatenate([values, numbers(np.arange(1 << 16, dtype=np.uint16), 'bf16')])
        for codes in (E2M1, E4M3):
            agree(codes.name, [Exact.encode(codes, float(x)) for x in every], Arrays.encode(codes, every))
        positive = values[~np.signbit(values)]
        for divisor in (6.0, 448.0):
            finite = np.minimum(positive, F32_MAX).astype(np.float32)
            agree('up', [Exact.power_up(float(x), divisor) for x in finite], Arrays.power_up(finite, divisor))
        for precision, divisor in ((2, 4), (4, 256)):
            agree('below', [Exact.power_below(float(x), precision, divisor) for x in positive], Arrays.power_below(positive, precision, divisor))
    for dtype, precision, least, end in (('bf16', 8, -126, 2**128), ('f16', 11, -14, 2**16)):
        finite = values[np.isfinite(values) & (values != 0)]
        exact = [float(rounded) if abs(rounded) < end else math.copysign(math.inf, rounded)
                 for rounded in (model.round_to(model.Fraction(float(x)), precision, least) for x in finite)]
        got = decode(encode(finite, dtype), dtype)
        agree(dtype, np.abs(exact), np.abs(got))


def blocks_of(rng, width, count):
    """Blocks of f32 values: of one binade or several, anywhere, and of anything."""
    scale = np.ldexp(1.0, rng.integers(-150, 128, (count, 1)))
    with np.errstate(over='ignore'):
        blocks = (rng.normal(size=(count, width)) * np.ldexp(1.0, rng.integers(-8, 1, (count, width))) * scale).astype(np.float32)
    anything = rng.integers(0, 1 << 32, (count // 4, width), np.uint32).view(np.float32)
    blocks[:count // 4] = np.where(rng.random((count // 4, width)) < 0.1, anything, blocks[:count // 4])
    return blocks


def test_blocks():
    rng = np.random.default_rng(2)
    factors = list(map(f32, (2.0**-149, 1e-38, 0.01, 1, 448, 2688 / 3, 1e38, F32_MAX, -2, 0, math.inf, math.nan)))
    for rule in RULES:
        for factor in [rule.global_scale] + factors if rule.global_scale else [None]:
            factored = rule._replace(global_scale=factor)
            width = model.block_of(rule, 7)
            for block in blocks_of(rng, width, 32 if width < 100 else 12):
                with np.errstate(all='ignore'):
                    codes, scales = model.quantize(factored, block[None])
                    scale, exact = model.quantize_exactly(factored, [float(x) for x in block])
                    agree(factored, exact, codes[0])
                    if scale is not None:
                        agree(factored, scale, scales[0, 0])
                    values = model.dequantize_exactly(factored, scale, exact)
                    agree(factored, values, model.dequantize(factored, codes, scales)[0])


# --- moe.quantize -------------------------------------------------------------------------------------------

def with_others(rng, largest, width, dtype):
    """Rows of one block each: a value somewhere, all others no larger in magnitude. NaN stands among numbers."""
    sign = np.iinfo(BITS[dtype]).max // 2 + 1
    infinity = {'bf16': 0x7f80, 'f16': 0x7c00}[dtype]
    magnitudes = np.minimum(largest & (sign - 1), infinity).astype(np.int64)
    rows = (rng.random((len(largest), width)) ** 0.25 * (magnitudes[:, None] + 1)).astype(BITS[dtype])
    rows |= np.where(rng.random(rows.shape) < 0.5, sign, 0).astype(BITS[dtype])
    rows[np.arange(len(rows)), rng.integers(0, width, len(rows))] = largest
    return rows


def test_every_value(rank):
    """All 16-bit values: alone in a block, as its largest, and many in one."""
    rng = np.random.default_rng(3)
    every = np.arange(1 << 16, dtype=np.uint16)
    for rule, dtype in itertools.product(RULES, ('bf16', 'f16')):
        block = FORMATS[rule.format].block
        width = block if block in (16, 32) else 1
        if block >= 0:
            alone = np.zeros((len(every), width), np.uint16)
            alone[every, rng.integers(0, width, len(every))] = every
            check_quantize(rank, rule, from_bits(alone, dtype), dtype)
            largest = with_others(rng, every, width if width > 1 else 5, dtype)
            check_quantize(rank, rule, from_bits(largest, dtype), dtype)
        check_quantize(rank, rule, from_bits(rng.permutation(every).reshape(-1, 512), dtype), dtype)
        check_quantize(rank, rule, from_bits(np.sort(every & 0x7fff).reshape(-1, 512), dtype), dtype)  # blocks of near numbers
    for value in every[::29]:
        check_quantize(rank, Rule('fp8_tensor'), from_bits([[value]], 'bf16'), 'bf16')


TOKENS = (0, 1, 7, 31, 33, 127, 128, 129, 300)
WIDE = {16: (0, 16, 32, 128, 144, 2880, 7168), 32: (0, 32, 128, 160, 2880, 7168)}
ODD = (0, 1, 7, 127, 128, 129, 200, 2880)


def hiddens(rule):
    return WIDE.get(rule.numbers.block, ODD)


def example(rng, tokens, hidden, dtype):
    x = rng.normal(size=(tokens, hidden)) * np.exp2(rng.integers(-4, 5, (tokens, 1))) * np.exp2(rng.integers(-3, 1, (tokens, hidden)))
    return encode(x, dtype)


def test_variants(rank):
    """Everything with everything, at one size."""
    rng = np.random.default_rng(4)
    for rule, dtype in itertools.product(RULES, DTYPES):
        hidden = {16: 80, 32: 160}.get(rule.numbers.block, 300)
        x = example(rng, 37, hidden, dtype)
        expected = model.quantize(rule, numbers(x, dtype))
        for layout, packing, value_type, scale_type in itertools.product(rule.numbers.layouts, packings(rule), value_types(rule), scale_types(rule)):
            gap, more = int(rng.integers(0, 3)) * 8, 5 if layout == 'transposed' else 0
            check_quantize(rank, rule, spread(x, gap), dtype, layout, packing, more, (value_type, scale_type), expected)
            check_dequantize(rank, rule, *expected, dtype, layout, packing, more, (value_type, scale_type), gap, (0, 0x7f, 0xff))


def test_shapes(rank):
    rng = np.random.default_rng(5)
    turn = itertools.count()
    for rule in RULES:
        for hidden, tokens in itertools.product(hiddens(rule), TOKENS):
            i = next(turn)
            if tokens * hidden > 100000 and i % 5:
                continue
            dtype = DTYPES[i % 3]
            x = example(rng, tokens, hidden, dtype)
            expected = model.quantize(rule, numbers(x, dtype))
            numbers_back = model.dequantize(rule, *expected)
            for layout in rule.numbers.layouts:
                packing, more = packings(rule)[i % len(packings(rule))], i % 4 if layout == 'transposed' else 0
                check_quantize(rank, rule, spread(x, i % 2 * 3), dtype, layout, packing, more, None, expected)
                check_dequantize(rank, rule, *expected, dtype, layout, packing, more, None, i % 2 * 5, (0x7f,), numbers_back)


def test_largest_at_powers(rank):
    """Blocks whose largest magnitude is c * 2**k, or the f32 number before or behind it."""
    rng = np.random.default_rng(6)
    with np.errstate(over='ignore'):
        at = np.array([c * 2.0**k for c in (1, 1.5, 1.75, 1.875, 1.9375, 6, 448, 464, 2.5, 3.5, 1e-4) for k in range(-149, 128)], np.float32)
    at = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(0))])
    for rule in RULES:
        width = {16: 16, 32: 32, -1: 1}.get(rule.numbers.block, 5)
        fractions = rng.random((len(at), width)).astype(np.float32)
        fractions[:, ::3] = rng.integers(0, 13, fractions[:, ::3].shape) / np.float32(12)  # ties
        with np.errstate(all='ignore'):
            x = np.where(np.isinf(at[:, None]), np.float32(1), at[:, None] * fractions)
        x[np.arange(len(at)), rng.integers(0, width, len(at))] = at
        x[:, 1:] *= rng.choice(np.float32([-1, 1]), x[:, 1:].shape)
        if rule.format == 'fp8_tensor' and rule.scaled:
            for value in x[::7]:
                check_quantize(rank, rule, value[None], 'f32')
        else:
            check_quantize(rank, rule, x, 'f32')


def special_blocks(width):
    inf, nan, f = np.inf, np.nan, np.float32
    full = lambda value: np.full(width, value, np.float32)
    rows = [full(0), full(-0.0), full(nan), full(-nan), full(inf), full(-inf), full(F32_MAX), full(-F32_MAX), full(2.0**-149), full(2.0**-127)]
    for others in (0, -0.0, 1, 1e-40, 1e38):
        for one in (nan, -nan, inf, -inf, F32_MAX, 1e-35, 1e-38, 1e-40, 1e-45, -1e-45, -0.0, 1.0):
            row = full(others)
            row[width // 2] = one
            rows.append(row)
    several = full(1)
    several[:4] = f([nan, inf, -inf, -0.0])[:width]
    rows.append(several)
    rows += [full(10.0**-e) for e in range(33, 46)]
    rows += [np.geomspace(1e-45, 1e-35, width).astype(np.float32), np.geomspace(1e-45, 1e38, width).astype(np.float32)]
    return np.array(rows)


def test_special_blocks(rank):
    for rule in RULES:
        width = model.block_of(rule, 9)
        rows = special_blocks(width)
        if rule.format == 'fp8_tensor':
            for row in rows:
                check_quantize(rank, rule, row[None], 'f32')
        else:
            check_quantize(rank, rule, rows, 'f32')
    # What the contract says of them in words.
    zeros = np.zeros((2, 32), np.float32)
    zeros[1] = -0.0
    assert [v.tolist() for v in quantize(rank, Rule('nvfp4'), zeros, 'f32')] == [[[0] * 16, [0x88] * 16], [[0, 0], [0, 0]]]
    assert [v.tolist() for v in quantize(rank, Rule('mxfp8'), zeros, 'f32')] == [[[0] * 32, [0x80] * 32], [[0], [0]]]
    broken = np.ones((1, 32), np.float32)
    broken[0, 3] = np.nan
    for rule, scale in ((Rule('nvfp4'), 0x7f), (Rule('mxfp4'), 255), (Rule('mxfp4', even=True), 255)):
        values, scales = quantize(rank, rule, broken, 'f32')
        assert scales[0, 0] == scale
        back = dequantize(rank, rule, values, scales, 'f32')
        assert np.isnan(back[0, :16]).all()
    values, scales = quantize(rank, Rule('mxfp8'), broken, 'f32')
    assert values[0, 3] == 0x7f and scales[0, 0] == 127 - 8 and values[0, 0] == 0x78  # 1 is 256 * 2**-8


def test_global_scales(rank):
    rng = np.random.default_rng(7)
    x = np.concatenate([blocks_of(rng, 16, 1500), special_blocks(16)])
    usual = (rng.normal(size=(500, 16)) * 3).astype(np.float32)
    for g in (2.0**-149, 1e-40, 2.0**-126, 1e-30, 0.37, 1.0, 448 * 6 / np.abs(usual).max(), 448 * 6 / 1e-30, 2.0**126, 2.0**127, 1e38, F32_MAX, -3.0,
              0.0, -0.0, np.inf, np.nan):
        for rule in (Rule('nvfp4'), Rule('nvfp4', fast=True), Rule('fp8_tensor')):
            scaled = rule._replace(global_scale=f32(g))
            for part in (x, usual):
                codes, scales = check_quantize(rank, scaled, part, 'f32')
                check_dequantize(rank, scaled, codes, scales, 'f32')


def test_independent_rows(rank):
    """Eight rows alone, and among others."""
    rng = np.random.default_rng(8)
    x = np.concatenate([blocks_of(rng, 160, 48), example(rng, 16, 160, 'f32')])
    for rule in RULES:
        if rule.format == 'fp8_tensor' and rule.scaled:
            continue
        values, scales = quantize(rank, rule, x, 'f32')
        for begin in (0, 20, 56):
            part_values, part_scales = quantize(rank, rule, x[begin:begin + 8], 'f32')
            same(part_values, values[begin:begin + 8], 'values of rows alone')
            if rule.scaled:
                same(part_scales, scales[begin:begin + 8], 'scales of rows alone')


# --- moe.dequantize -----------------------------------------------------------------------------------------

F32_SCALES = np.array([0, -0.0, 1, -1, 1 / 448, 1e-4 / 448, 0.3, 3e38, F32_MAX, np.inf, -np.inf, np.nan, 1e-38, 2.0**-126, 1e-42, 2.0**-149,
                       F32_MAX / 448], np.float32)
FACTORS = (None, 1.0, 448 * 6 / 3.3, 0.37, 1e-38, 2.0**-149, 2.0**127, F32_MAX, -2.0, 0.0, np.inf, np.nan)


def test_every_code(rank):
    """Each code with each scale."""
    codes4 = np.tile(np.arange(16, dtype=np.uint8), (256, 2))
    codes8 = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = np.arange(256, dtype=np.uint8)[:, None]
    for dtype in DTYPES:
        for g in FACTORS:
            rule = Rule('nvfp4', None if g is None else f32(g))
            for layout, packing in itertools.product(rule.numbers.layouts, packings(rule)):
                check_dequantize(rank, rule, codes4, np.repeat(scales, 2, 1), dtype, layout, packing)
            if g is not None:
                check_dequantize(rank, Rule('fp8_tensor', f32(g)), codes8[:1], None, dtype)
        for layout, packing in itertools.product(SWIZZLED, ('low_first', 'mega')):
            check_dequantize(rank, Rule('mxfp4'), codes4, scales, dtype, layout, packing)
        check_dequantize(rank, Rule('mxfp8'), codes8, np.repeat(scales, 8, 1), dtype)
        for scale in F32_SCALES:
            check_dequantize(rank, Rule('fp8_tensor'), codes8[:1], np.array([[scale]]), dtype)
        many = codes8[:len(F32_SCALES)]
        check_dequantize(rank, Rule('fp8_token'), many, F32_SCALES[:, None], dtype)
        check_dequantize(rank, Rule('fp8_block'), many, np.stack([F32_SCALES, F32_SCALES[::-1]], 1), dtype, 'transposed', more=3)


def test_padding_is_not_read(rank):
    rng = np.random.default_rng(9)
    for rule, tokens in itertools.product((Rule('nvfp4'), Rule('mxfp4'), Rule('mxfp8'), Rule('fp8_block')), (1, 7, 31, 33, 127, 129)):
        hidden = {16: 144, 32: 160, 128: 300}[rule.numbers.block]  # 9, 5 and 3 columns
        codes, scales = model.quantize(rule, example(rng, tokens, hidden, 'f32'))
        for layout in rule.numbers.layouts:
            check_dequantize(rank, rule, codes, scales, 'bf16', layout, more=7 if layout == 'transposed' else 0, paddings=(0, 0x7f, 0xff))


def there_and_back(rank, rule, codes, scales, dtype='f32'):
    """The numbers that codes and scales stand for, and what becomes of those numbers."""
    first = dequantize(rank, rule, model.pack(codes, 'low_first') if rule.numbers.packed else codes, scales, dtype)
    return first, *quantize(rank, rule, first, dtype)


def test_there_and_back(rank):
    """Of the numbers of all blocks, `mxfp4`, and `mxfp8` rounded up, make codes and scales of the same numbers, whatever code is the
    largest: infinities of products beyond f32 are infinities again."""
    rng = np.random.default_rng(10)
    for rule, dtype in ((Rule('mxfp4'), 'f32'), (Rule('mxfp4'), 'bf16'), (Rule('mxfp4', even=True), 'f32'), (Rule('mxfp8'), 'f32')):
        count = 16 if rule.numbers.packed else 256
        codes = rng.integers(0, count, (2048, 32)).astype(np.uint8)
        codes[::2] &= count - 1 - rng.integers(0, count // 2, (1024, 1)).astype(np.uint8)  # with other largest ones
        scales = np.tile(np.arange(256, dtype=np.uint8), 8)[:, None]
        first, values, again = there_and_back(rank, rule, codes, scales, dtype)
        assert np.isinf(numbers(first, dtype)).any()
        same(dequantize(rank, rule, values, again, dtype), first, rule)
    # In all formats blocks with a largest code, and whose numbers are normal, get their codes back.
    for rule in RULES:
        largest = len(rule.numbers.elements.magnitudes) - 1
        sign = rule.numbers.elements.sign
        codes = (rng.integers(0, largest + 1, (96, 128)) | rng.integers(0, 2, (96, 128)) * sign).astype(np.uint8)
        codes[:, ::16] = largest | rng.integers(0, 2, (96, 8)) * sign
        shape = (1, 1) if rule.format == 'fp8_tensor' else (96, model.columns_of(rule, 128))
        lowest, highest = {'nvfp4': (8, 0x7f), 'mxfp4': (2, 252), 'mxfp8': (16, 246)}.get(rule.format, (0, 1))
        scales = rng.integers(lowest, highest, shape).astype(np.uint8) if rule.numbers.scales else (rng.random(shape) + 0.01).astype(np.float32)
        _, values, again = there_and_back(rank, rule, codes, scales if rule.scaled else None)
        same(values, model.pack(codes, 'low_first') if rule.numbers.packed else codes, '%s there and back, codes' % (rule,))
        if rule.numbers.scales:
            same(again, scales, '%s there and back, scales' % (rule,))


# --- errors -------------------------------------------------------------------------------------------------

def bytes_of(*shape):
    return np.full(shape, POISON, np.uint8)


def test_errors(rank):
    def refuse(op, name, text, **named):
        expect_error('MOERT_ERROR_' + name, op + ': ' + text, rank.op, op, **named)
        for operand in ('values', 'scales', 'out'):  # poisoned, whether they are outputs or not
            array = getattr(named.get(operand), 'array', named.get(operand))
            assert array is None or (array.view(np.uint8) == POISON).all(), operand

    def both(name, text, tokens=5, hidden=64, **changes):
        """With either op, whose numbers are called `input` or `out`."""
        for op, numbers_name in (('moe.quantize', 'input'), ('moe.dequantize', 'out')):
            matrix = bytes_of(tokens, hidden * 4).view(np.float32)
            named = {'format': 'mxfp8', 'values': typed(bytes_of(tokens, hidden), 'f8E4M3FN'), 'scales': bytes_of(tokens, 2), numbers_name: matrix}
            named.update(changes)
            refuse(op, name, text.replace('NUMBERS', numbers_name), **named)

    f32_scales, one = bytes_of(5, 4).view(np.float32), np.ones(1, np.float32)
    both('INVALID_SHAPE', "operand 'values' dimension 0 is 4, must equal dimension 0 of 'NUMBERS' = 5", values=bytes_of(4, 64))  # C1
    both('INVALID_SHAPE', "operand 'values' dimension 1 is 64, must equal half of dimension 1 of 'NUMBERS' = 32",
         format='mxfp4', values=bytes_of(5, 64))
    both('INVALID_SHAPE', "operand 'NUMBERS' dimension 1 is 48, must be a multiple of 32, the block of format mxfp8", hidden=48)  # C2
    both('INVALID_DTYPE', "operand 'values': element type f8E4M3FN, must be i8 or ui8 for format nvfp4", format='nvfp4')  # C3
    both('INVALID_DTYPE', "operand 'scales': element type f32, must be f8E8M0FNU, i8 or ui8 for format mxfp8", scales=f32_scales)
    both('INVALID_DTYPE', "operand 'scales': element type ui8, must be f32 for format fp8_token", format='fp8_token')
    both('INVALID_SHAPE', "operand 'scales' dimension 1 is 3, must equal the blocks of a row = 2", scales=bytes_of(5, 3))  # C4
    both('INVALID_SHAPE', "operand 'scales' dimension 0 is 5, must equal dimension 0 of 'NUMBERS' up to a multiple of 128 = 128",
         scale_layout='128x4')
    both('INVALID_SHAPE', "operand 'scales' dimension 1 is 2, must equal the blocks of a row up to a multiple of 4 = 4",
         scale_layout='8x4', scales=bytes_of(8, 2))
    both('INVALID_SHAPE', "operand 'scales' dimension 1 is 4, must be at least dimension 0 of 'NUMBERS' = 5",
         scale_layout='transposed', format='fp8_block', scales=bytes_of(1, 16).view(np.float32))
    both('NULL_POINTER', "operand 'scales' is NULL, must be set with format fp8_tensor without 'global_scale'",
         format='fp8_tensor', scales=None)  # C5
    both('INVALID_ARGUMENT', "operand 'scales' is set, must be NULL with format fp8_tensor and 'global_scale'",
         format='fp8_tensor', scales=f32_scales, global_scale=one)
    both('INVALID_ARGUMENT', "parameter 'scale_layout' is transposed, must be linear, 128x4 or 8x4 for format mxfp8", scale_layout='transposed')  # C6
    both('INVALID_ARGUMENT', "parameter 'packing' is mega, must be low_first for format mxfp8, whose codes have 8 bits", packing='mega')  # C7
    both('INVALID_ARGUMENT', "operand 'global_scale' is set, must be NULL with format mxfp8: it goes with nvfp4 and fp8_tensor",
         global_scale=one)  # C10
    both('INVALID_SHAPE', "operand 'global_scale' dimension 0 is 2, must equal the number of global scales = 1",
         format='nvfp4', global_scale=np.ones(2, np.float32))
    plain = dict(input=np.ones((5, 64), np.float32), values=bytes_of(5, 32), scales=bytes_of(5, 4))
    refuse('moe.quantize', 'INVALID_ARGUMENT', "parameter 'scale_rounding' is even, must be up unless format is mxfp4 or mxfp8", format='nvfp4',
           scale_rounding='even', **plain)  # C8
    refuse('moe.quantize', 'INVALID_ARGUMENT', "parameter 'fast_reciprocal' is 1, must be 0 unless format is nvfp4", format='mxfp4',
           fast_reciprocal=True, **plain)  # C9


def main(rank):
    test_steps()
    test_blocks()
    for test in (test_variants, test_shapes, test_special_blocks, test_largest_at_powers, test_global_scales, test_independent_rows, test_every_value,
                 test_every_code, test_padding_is_not_read, test_there_and_back, test_errors):
        test(rank)


if __name__ == '__main__':
    run_ranks(1, main)
